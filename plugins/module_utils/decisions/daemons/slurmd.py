# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurmd."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from ...cluster.storage_key import has_automounts
from ...language.hostlist import expand, fold
from ..known import image, registered
from ..known.host_paths import CONF_DIR, KEPT_DIR, KEPT_SLURMD, SLURMD_SETTINGS
from ..known.platform import missing_plugins
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.unchanged_hosts import changed_hosts, common_text, record_digest
from ..known.whole_cluster import conf_servers, is_controller, serving_controller

CHANGING_GROUPS = ("slurm_needs_preparation", "slurm_needs_first_nodes", "slurm_needs_previous")
"""Groups of hosts on which an earlier stage of the run can have changed what slurmd reads at its start."""

NOT_UP = re.compile(r"^\S+ (\S*\*|unknown\S*|down\S*|inval\S*|future\S*) ", re.MULTILINE)
"""Lines of sinfo with a state of a node that is not in service; "*" marks a node that does not answer (sinfo(1), node
state codes)."""

DRAINED = re.compile(r"(\S+) (?:drain|fail)\S* (.*)")

MIG_LINE = "# slurm-mig.service makes MIG instances\n"
"""Without this line slurm-mig (role nvidia_mig) does nothing when the host boots. To remove a service that is left over
from an earlier cluster file would need one more task on each host."""


@dataclass(frozen=True)
class SlurmdService:
    """Options of slurm_service for slurmd."""

    files: list[HostFile]
    running_with: list[list[str]]
    servers: list[str]
    absent: list[str]
    keep_in: str
    """Where the files of a cluster that was set up by hand stay, until it is given back."""
    digest: str
    stale: bool
    """Whether slurmd has to start again, because its GPUs or its plugins have changed."""


@dataclass(frozen=True)
class NodeCheck:
    """What Slurm says about a node after its slurmd has started."""

    up: bool
    lines: list[str]
    """The lines about the node: node, state, reason. There is one for each of its partitions."""
    drained: str
    """The drained nodes of all hosts, with their reasons, which the first host shows for all; empty on other hosts."""


def has_mig(host: RunHost) -> bool:
    """Whether GPUs of the host have MIG layouts."""
    return host.name in host.shared("mig_hosts")


def settings(host: RunHost, read_at_start: str) -> str:
    """The settings of slurmd's unit, without the line about MIG.

    Args:
        host: any node, since they are equal on all nodes.
        read_at_start: the values of the configuration that slurmd reads only at its start, or their checksum.
    """
    servers = ",".join(conf_servers(host))
    automounts = has_automounts(host["slurm_storage"])
    return host.text("slurmd", "slurmd.service.j2", servers=servers, read_at_start=read_at_start, automounts=automounts)


def returned_values(host: RunHost) -> str | None:
    """The values that slurmd reads at its start, as role slurmctld has returned them in this run; None if it has not.

    In check mode these are the values after the change.
    """
    found = registered.SLURMCTLD_CONFIG.seen(host.of(serving_controller(host))).get("read_at_start")
    return None if found is None else str(found)


def asks_for_values(host: RunHost) -> bool:
    """Whether the controller has to be asked for these values."""
    return returned_values(host) is None and not image.builds(host)


def read_at_start(host: RunHost) -> str:
    """These values, after the question; empty if the controller has none yet."""
    told = returned_values(host)
    return str(registered.SLURMD_ASKED.seen(host).get("stdout", "")) if told is None else told


def service(host: RunHost) -> SlurmdService:
    """How slurmd runs on this host."""
    mig = has_mig(host)
    content = settings(host, registered.SLURMD_READ_AT_START.of(host)) + (MIG_LINE if mig else "")
    return SlurmdService(
        files=[{"path": SLURMD_SETTINGS, "content": content}],
        running_with=same_servers(conf_servers(host)),
        servers=conf_servers(host),
        # Commands would read this file instead of the configuration that slurmd fetches.
        absent=[] if is_controller(host) else [f"{CONF_DIR}/slurm.conf"],
        keep_in=f"{KEPT_DIR}/found",
        digest=digest(common(host, values_checksum(host)), mig, is_controller(host)),
        stale=(host.check_mode and host.name in (host.get("nvidia_mig_pending") or [])) or bool(missing_plugins(host)),
    )


def same_servers(servers: list[str]) -> list[list[str]]:
    """Options of a slurmd that asks these servers already, so that it runs on when its cluster is taken over.

    The port may be missing there, if it is Slurm's usual one.
    """
    forms = [text := ",".join(servers), text.replace(":6817", "")]
    return [["--conf-server", form] for form in forms] + [[f"--conf-server={form}"] for form in forms]


def seen_values(host: RunHost) -> str:
    """The checksum of the values that slurmd reads at its start, as the facts of the controller have it; or empty."""
    controller = host.of(serving_controller(host)).facts_or_none
    return controller["files"].get(KEPT_SLURMD, "") if controller else ""


def values_checksum(host: RunHost) -> str:
    """The checksum of these values (SHA-256), since the facts do not have their text; empty if nothing is known."""
    if registered.SLURMD_READ_AT_START.name not in host:
        return seen_values(host)
    return hashlib.sha256(str(registered.SLURMD_READ_AT_START.of(host)).encode()).hexdigest()


def common(host: RunHost, values: str) -> str:
    """What is equal on all nodes in the checksum of slurmd's options; values: as values_checksum() returns them."""
    return common_text(settings(host, values))


def digest(common_options: str, mig: bool, controller: bool) -> str:
    """The checksum of slurmd's options on a host, by which it is known to be as the last run has left it.

    Args:
        common_options: what common() returns.
        mig: whether GPUs of the host have MIG layouts.
        controller: whether the host is a controller, too.
    """
    return record_digest(common_options, mig or None, controller or None)


def all_have_work(host: RunHost) -> bool:
    """Whether any slurmd may have work: the controller has changed its configuration, or has not answered."""
    controller = host.of(serving_controller(host))
    changed = bool(registered.SLURMCTLD_CONFIG.seen(controller).get("changed"))
    return changed or out_of_service(host) is None or seen_values(host) == ""


def out_of_service(host: RunHost) -> str | None:
    """The nodes that Slurm does not have in service, as a hostlist; None if the controller has not said it."""
    controller = host.of(serving_controller(host)).facts_or_none
    return controller["out_of_service"] if controller else None


def disturbed(host: RunHost) -> set[str]:
    """The nodes with work although their slurmd may be as the last run has left it.

    An earlier stage of this run can have changed what slurmd reads at its start, also NVIDIA's driver or the MIG
    instances, or would do so; or Slurm does not have the node in service.
    """
    done = registered.NVIDIA_DRIVER_DONE.name
    drivers = [name for name in host.members("slurm_needs_driver") if done in host.of(name)]
    pending = [host.of(name).get("nvidia_mig_pending") or [] for name in host.members("slurm_needs_mig")[:1]]
    groups = [host.members(group) for group in CHANGING_GROUPS]
    return {*chain(*groups, drivers, *pending, expand(out_of_service(host) or ""))}


def hosts_with_work(host: RunHost, records: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The nodes whose slurmd is to be compared or changed, or that are not in service.

    Args:
        host: any host.
        records: by node, the checksums that modules have recorded there.
    """
    if all_have_work(host):
        return list(records)
    text = common(host, values_checksum(host))
    mig, controllers = {*host.shared("mig_hosts")}, {*host["slurm_controllers"]}
    digests = {name: digest(text, name in mig, name in controllers) for name in records}
    found = {*changed_hosts(records, {"slurmd": digests})} | disturbed(host)
    return [name for name in records if name in found]


def started_hosts(host: RunHost) -> list[str]:
    """The first nodes whose slurmd has started with the change."""
    return [name for name in host.play_hosts if registered.SLURMD_OUTCOME.name not in host.of(name)]


def are_up(_host: RunHost, sinfo: str) -> bool:
    """Whether the nodes in sinfo's output are in service."""
    return not NOT_UP.search(sinfo)


def node_check(host: RunHost) -> NodeCheck:
    """What sinfo has said last."""
    lines = list(registered.SLURMD_STATES.seen(host).get("stdout_lines") or [])
    own = [line for line in lines if line.startswith(f"{host.name} ")]
    return NodeCheck(
        up=not any(NOT_UP.search(line) for line in own),
        lines=own,
        drained=drained(lines) if host.name == host.play_hosts[0] else "",
    )


def drained(lines: Iterable[str]) -> str:
    """The drained nodes among sinfo's lines, with their reasons. Reasons that differ in letter case count as one."""
    # Each node once, in sinfo's order, although there is a line for each of its partitions.
    nodes = dict.fromkeys(match.groups() for line in lines if (match := DRAINED.fullmatch(line)))
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for name, reason in nodes:
        by_reason.setdefault(reason.lower(), []).append((name, reason))
    groups = [by_reason[key] for key in sorted(by_reason)]
    return "; ".join(f"{fold([name for name, _reason in group])} ({group[0][1]})" for group in groups)


def first_nodes_failure(host: RunHost) -> list[str]:
    """Why a change is undone, with the errors of the first nodes."""
    nodes = host.members("slurm_needs_previous")
    errors = registered.SLURMD_OUTCOME.by_host(host, nodes).values()
    head = (
        "The change is undone, since slurmd does not start with it. Slurmd was restarted on no other node than "
        f"{fold(nodes)}."
    )
    return [head, *filter(None, errors)]
