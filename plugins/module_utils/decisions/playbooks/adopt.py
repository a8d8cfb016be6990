# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role adopt: the cluster file of a cluster that runs, and the way back of its hosts.

Until the cluster file is there, the hosts are those of any inventory: they have no variables of a cluster.
"""

from __future__ import annotations

import os
from typing import Any

from ...adoption import survey
from ...configuration.sources import configuration_of, source_lines
from ..host import slurm_health
from ..known import registered
from ..known.daemon_records import CleanupOptions
from ..known.host_paths import CONF_DIR, HEALTH_PROGRAM, KEPT_DIR, SCRIPTS_DIR
from ..known.run_host import RunHost
from ..run.preparation import hosts_marker
from ..values import defaults
from .new_cluster import SCHEMA, inventory_hosts, known

OPTIONS = ("adopt_dir", "adopt_controller", "adopt_conf")

RESULTS = (
    registered.NEW_CLUSTER_FACTS.name,
    registered.NEW_CLUSTER_PROCESSES.name,
    registered.ADOPT_OWN.name,
    registered.ADOPT_FILES.name,
    registered.ADOPT_ACCOUNTING.name,
)
"""What is known about a host: registered results of this role, and of gather.yml in role new_cluster."""

MUNGE_KEY = "/etc/munge/munge.key"

FOUND_DIR = f"{KEPT_DIR}/found"
"""On a host that was taken over: the files that it had before."""

CREATED_FILES = (
    f"{CONF_DIR}/*.conf",
    f"{slurm_health.CHECKS}/*",
    HEALTH_PROGRAM,
    "/etc/apt/apt.conf.d/*gpucluster-*",
    "/etc/cloud/cloud.cfg.d/*gpucluster-*",
    "/etc/logrotate.d/gpucluster-*",
    "/etc/needrestart/conf.d/gpucluster-*",
    "/etc/sysctl.d/*gpucluster-*",
    "/etc/systemd/system/*.service.d/gpucluster-*",
    "/etc/sysusers.d/gpucluster-*",
    "/etc/tmpfiles.d/gpucluster-*",
)
"""What site.yml has created on the hosts of a cluster that is given back. Features that were added since are removed by
their keys, before."""

CREATED_WITHOUT_MARK = (slurm_health.SETTINGS,)

CREATED_DIRECTORIES = (KEPT_DIR, "/run/gpucluster-slurm", "/var/cache/gpucluster-slurm")

EMPTY_DIRECTORIES = (slurm_health.CHECKS, slurm_health.DIRECTORY, SCRIPTS_DIR)
"""Those in which features may have something that a host still needs, such as the password of its backups."""


# -- what is read -----------------------------------------------------------------------------------------------------


def objections(host: RunHost) -> list[str]:
    """Why nothing is read, before any host is reached."""
    found = survey.adoption_errors(
        {option: host[option] for option in OPTIONS},
        inventory_hosts(host),
        [name for name in host if name.startswith("adopt_")],
    )
    directory = str(host["adopt_dir"])
    return found if os.path.isdir(directory) else [*found, f"adopt_dir: {directory} is not a directory"]


def _survey(host: RunHost) -> dict[str, dict[str, Any]]:
    """What is known about each host of the inventory."""
    return {name: known(host, name, RESULTS) for name in inventory_hosts(host)}


def controller(host: RunHost) -> str:
    """The host whose files are read.

    Raises:
        ValueError: slurmctld does not run there, or the collection manages the cluster already.
    """
    return survey.adoption_controller(_survey(host), inventory_hosts(host), host["adopt_controller"])


def source(host: RunHost) -> str:
    """The same host, once it was found."""
    return host.members("slurm_adopt_controller")[0]


def cluster_name(host: RunHost) -> str:
    """The cluster whose accounting is read, since a database can have several; empty if slurm.conf does not name it.

    Raises:
        SourceError: a file cannot be read.
    """
    lines_of_conf = {"slurm.conf": source_lines(registered.ADOPT_FILES.of(host)["files"], "slurm.conf")}
    _name, value = configuration_of(lines_of_conf).settings.get(("slurm.conf", "clustername"), ("", ""))
    return value.lower()


def result(host: RunHost) -> dict[str, Any]:
    """The content of the cluster file, and all comments on it.

    Raises:
        ValueError: a file cannot be read, or the version of Slurm is not known.
    """
    return survey.adopted(_survey(host), inventory_hosts(host), source(host), defaults.recommended(host))


# -- what is written --------------------------------------------------------------------------------------------------


def kept_result(host: RunHost) -> dict[str, Any]:
    """This result, which the source has."""
    kept: dict[str, Any] = registered.ADOPT_RESULT.of(host.of(source(host)))
    return kept


def lines(host: RunHost) -> list[str]:
    """What was found, for a person."""
    found = kept_result(host)
    return [*found["table"], "", *found["remarks"], *found["comments"], *found["differences"]]


def result_errors(host: RunHost) -> list[str]:
    """Why the cluster file is not written: it would not be valid, would mean something else, or is there already."""
    found, path = kept_result(host), file(host)
    there = f"{path} exists already and is not overwritten; set another adopt_dir"
    return [*found["errors"], *found["unexplained"], *([there] if os.path.exists(path) else [])]


def file(host: RunHost) -> str:
    """The path of the cluster file."""
    return f"{host['adopt_dir']}/{kept_result(host)['cluster']['name']}.cluster.yml"


def text(host: RunHost) -> str:
    """The text of the cluster file. It has AccountingStoragePass."""
    return host.text("adopt", "cluster.yml.j2", schema=SCHEMA, source=source(host), found=kept_result(host))


def statistics(host: RunHost) -> dict[str, Any]:
    """The result of the playbook, for programs that run it."""
    found = kept_result(host)
    return {
        "file": file(host),
        "unmanaged": found["cluster"].get("unmanaged", ""),
        "remarks": found["remarks"],
        "comments": found["comments"],
        "differences": found["differences"],
    }


# -- munge's key ------------------------------------------------------------------------------------------------------


def key_file(host: RunHost) -> str:
    """The path of munge's key on the control host."""
    return f"{host['adopt_dir']}/secrets/{kept_result(host)['cluster']['name']}/munge.key"


def compared_keys(host: RunHost) -> list[dict[str, str]]:
    """The keys that have to be one key, each with its host; none if the control host has none."""
    if not os.path.exists(key_file(host)):
        return []
    return [{"host": host.name, "path": MUNGE_KEY}, {"host": "localhost", "path": key_file(host)}]


# -- a cluster that is given back -------------------------------------------------------------------------------------


def return_options(host: RunHost) -> CleanupOptions:
    """How a host gets its own files back."""
    return CleanupOptions(
        secrets=[*CREATED_WITHOUT_MARK],
        files=[*CREATED_FILES],
        restored={"kept": FOUND_DIR, "path": CONF_DIR},
        directories=[*CREATED_DIRECTORIES],
        empty_directories=[*EMPTY_DIRECTORIES],
        parts=[{"path": "/etc/hosts", "marker": hosts_marker(host)}],
    )
