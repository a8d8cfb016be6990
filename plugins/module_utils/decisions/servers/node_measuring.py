# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What measuring nodes depends on: the nodes and their partitions, what the site has for it, the reviewed baseline."""

from __future__ import annotations

try:
    import yaml
except ImportError:  # on a host, which does not decide
    yaml = None  # type: ignore[assignment]

from ...acceptance.baseline import BaselineEntry, baseline_file, read_baseline
from ...acceptance.catalog import TESTS
from ...acceptance.published import PublishedMachine
from ...acceptance.quick_level import LEVEL, MeasuringPlan
from ...acceptance.tasks import NodePlace, Site, possible_tests
from ...cluster.machine_types import gres_count, is_there
from ...cluster.partitions import resolver
from ...cluster.repair_key import treats
from ...jobs.validation import find_restrictions
from ...language.hostlist import expand
from ..known.host_paths import JOB_DIR, KEPT_DIR
from ..known.platform_tables import DISTRIBUTION_PACKAGES
from ..known.run_host import RunHost
from ..known.whole_cluster import tmp_fs


def plan(host: RunHost) -> MeasuringPlan:
    """What the controllers need to measure a node by themselves."""
    places = {place.name: place for place in all_places(host)}
    return MeasuringPlan(places, site(host), baseline(host), published_machines(host))


def own_packages(host: RunHost) -> list[str]:
    """Packages of a node that repair measures by itself."""
    is_node = host.name in host.members("slurm_compute")
    return packages_of(host, LEVEL) if is_node and treats(host["slurm_repair"]) else []


def packages_of(host: RunHost, level: str) -> list[str]:
    """Packages of the distribution for the tests of a level."""
    wanted = possible_tests(level, site(host), 0)
    programs = {name for test in wanted for name in TESTS[test].programs}
    return [name for name in DISTRIBUTION_PACKAGES["acceptance"] if name in programs]


def site(host: RunHost) -> Site:
    """What the site has for measuring."""
    image = host.option("accept", "accept_container")
    return Site(
        image=image,
        runtime=("pyxis" if "pyxis" in host["slurm_containers"] else "apptainer") if image else "",
        nccl_tests=host.option("accept", "accept_nccl_tests"),
        profile=host.option("accept", "accept_profile"),
        disk=host.option("accept", "accept_disk"),
        shared=host.option("accept", "accept_shared"),
        xids=",".join(map(str, host.option("slurm_health", "slurm_health_xids"))),
        directory=directory(host),
    )


def directory(host: RunHost) -> str:
    """Where the jobs write on nodes: a directory of their user."""
    return f"{KEPT_DIR}/accept" if host.option("accept", "accept_user") == "root" else f"{JOB_DIR}/accept"


def default_disk(host: RunHost) -> str:
    """The directory of the jobs' temporary files, if it is the same on all nodes."""
    path = tmp_fs(host)
    return path if "%" not in path else "/tmp"


def all_places(host: RunHost) -> list[NodePlace]:
    """The nodes that are in a partition, with their first one."""
    hardware, found = host["slurm_hardware_types"], dict[str, NodePlace]()
    kinds = {name: node["hardware"] for node in filter(is_there, host["slurm_nodes"]) for name in expand(node["hosts"])}
    resolve = resolver(host["slurm_nodes"], hardware, host["slurm_conf"])
    for partition in host["slurm_partitions"]:
        limits = find_restrictions(partition)
        for name in resolve(partition["nodes"]):
            if name in kinds:
                gres = [entry for entry in hardware.get(kinds[name], {}).get("gres") or [] if entry["name"] == "gpu"]
                cards = sum(gres_count({**entry, "mig": None}) for entry in gres)
                gpus = sum(map(gres_count, gres))
                place = NodePlace(name, kinds[name], gpus, partition["name"], **limits, cards=cards)
                found.setdefault(name, place)
    return [*found.values()]


def published_machines(host: RunHost) -> dict[str, PublishedMachine]:
    """What is known of machine types, for published figures. The name of one may be that of a machine of a cloud."""
    found = {}
    for name, machine in host["slurm_hardware_types"].items():
        gpus = [entry for entry in machine.get("gres") or [] if entry["name"] == "gpu"]
        types = {str(entry.get("type") or "") for entry in gpus}
        if len(types) == 1:  # an entry for each socket, say; a mixed machine has no figure
            cards = sum(gres_count({**entry, "mig": None}) for entry in gpus)
            found[name] = PublishedMachine(types.pop(), cards, platform=name)
    return found


def baseline_path(host: RunHost) -> str:
    """The reviewed baseline, next to the cluster file."""
    file = host.get("slurm_cluster_file")
    return baseline_file(file) if file else f"{host['slurm_cluster_dir']}/{host['slurm_cluster_name']}.baseline.yml"


def baseline(host: RunHost) -> list[BaselineEntry]:
    """The reviewed baseline; empty without one. Raises BaselineError, and ValueError if it is no YAML."""
    path = baseline_path(host)
    content = host.content(path)
    try:
        return read_baseline(yaml.safe_load(content) if content else None, path)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
