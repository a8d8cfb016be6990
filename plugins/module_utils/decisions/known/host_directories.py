# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every directory that this collection makes or uses for files of root and of services.

slurm_host_facts compares owner and mode on each host, and the task that prepares it repairs them (options of
slurm_packages).
"""

from __future__ import annotations

from typing import Any

from ...cluster.chosen_directories import chosen_directories
from ...formats.package_names import INSTALLED
from .host_paths import CONF_DIR, JOB_DIR, KEPT_DIR, LIB_DIR, LOG_DIR, PYXIS_DIR, SCRIPTS_DIR, UPGRADE_DIR
from .run_host import RunHost
from .whole_cluster import is_controller, profile, service_ids, slurm_user

Directory = dict[str, Any]
"""An entry: path, owner, mode (0755 without one). With `make: false` only programs make it, when they need it; others
are made on every host, and at each boot by systemd-tmpfiles. `closed`: nothing in it belongs to an ordinary user."""


def directories(host: RunHost) -> list[Directory]:
    """All directories of a host."""
    found = (
        created_at_boot(host) + OF_MUNGE + OF_PROGRAMS + of_controllers(host) + written_by_slurm(host) + chosen(host)
    )
    ids = service_ids(host)
    return [{**entry, "owner_id": ids[entry["owner"]]} if entry.get("owner") in ids else entry for entry in found]


def created_at_boot(host: RunHost) -> list[Directory]:
    """Directories that every host needs."""
    owner, user = slurm_user(host), profile(host).job_user
    always: list[Directory] = [
        {"path": CONF_DIR, "owner": "root"},
        {"path": LIB_DIR, "owner": owner},
        {"path": LOG_DIR, "owner": owner, "mode": profile(host).logs},
        # munged does not start if others can write there.
        {"path": "/etc/munge", "owner": "munge", "mode": "0700", "closed": True},
        {"path": "/var/lib/munge", "owner": "munge", "mode": "0711", "closed": True},
    ]
    return always + ([{"path": JOB_DIR, "owner": user, "mode": "0750"}] if user != "root" else [])


OF_MUNGE: list[Directory] = [
    {"path": "/var/log/munge", "owner": "munge", "mode": "0700", "make": False},
    {"path": "/var/log/munge/munged.log", "owner": "munge", "mode": "0640", "file": True},
]
"""The package makes them. A disk that outlives its host has them with the id of another time, with which munged does
not start."""


def _of_root(path: str, mode: str = "", closed: bool = True) -> Directory:
    entry: Directory = {"path": path, "owner": "root", "make": False}
    return entry | ({"mode": mode} if mode else {}) | ({"closed": True} if closed else {})


OF_PROGRAMS: list[Directory] = [
    _of_root("/etc/gpucluster-slurm"),
    _of_root("/etc/gpucluster-slurm/backup"),
    _of_root("/etc/gpucluster-slurm/health.d"),
    _of_root("/etc/gpucluster-slurm/machines"),
    _of_root("/etc/gpucluster-slurm/mail"),
    _of_root("/etc/gpucluster-slurm/prometheus"),
    _of_root("/etc/gpucluster-slurm/prometheus/rules"),
    _of_root("/etc/gpucluster-slurm/prometheus/targets"),
    _of_root("/etc/gpucluster-slurm/report"),
    _of_root("/etc/gpucluster-slurm/rest"),
    _of_root("/etc/ssh/people.keys.d"),
    _of_root("/etc/systemd/system/prometheus.service.d"),
    _of_root("/etc/systemd/system/prometheus-alertmanager.service.d"),
    _of_root("/etc/systemd/system/prometheus-node-exporter.service.d"),
    _of_root("/etc/systemd/system/slurmctld.service.d"),
    _of_root("/etc/systemd/system/slurmd.service.d"),
    _of_root("/etc/systemd/system/slurmdbd.service.d"),
    _of_root("/etc/systemd/system/sackd.service.d"),
    _of_root("/run/gpucluster-slurm"),
    _of_root("/run/gpucluster-slurm/enroot"),
    _of_root("/run/gpucluster-slurm/locks", "0700"),
    _of_root("/run/gpucluster-slurm/made"),
    _of_root(SCRIPTS_DIR),
    _of_root("/var/cache/gpucluster-slurm"),
    _of_root("/var/cache/gpucluster-slurm/restic", "0700"),
    _of_root(KEPT_DIR),
    _of_root(f"{KEPT_DIR}/access", "0700"),
    _of_root(f"{KEPT_DIR}/backup"),
    _of_root(f"{KEPT_DIR}/former", "0700"),
    _of_root(f"{KEPT_DIR}/found", "0700", closed=False),
    _of_root(INSTALLED),
    _of_root(f"{KEPT_DIR}/report", "0700"),
    _of_root(f"{KEPT_DIR}/report-pages"),
    _of_root(f"{KEPT_DIR}/report-pages/admin"),
    _of_root(UPGRADE_DIR, "0700"),
    _of_root(PYXIS_DIR, closed=False),
]


def of_controllers(host: RunHost) -> list[Directory]:
    """The directory of the last good files, which must be closed before a standby controller gets its copies there."""
    return [{**_of_root(f"{KEPT_DIR}/good", "0700"), "make": is_controller(host)}]


def written_by_slurm(host: RunHost) -> list[Directory]:
    """Directories that slurmctld makes itself, and cannot use if they belong to somebody else.

    SchedMD's package of slurmctld would make its directory with root as its owner. Other hosts do not need it. The
    packages of the daemons differ in owner and mode of the last two.
    """
    owner = slurm_user(host)
    return [
        {"path": f"{LIB_DIR}/slurmctld", "owner": owner, "make": is_controller(host)},
        {"path": f"{LOG_DIR}/job_completions", "owner": owner, "mode": "0644", "file": True},
        {"path": f"{LIB_DIR}/slurmd"},
        {"path": f"{LIB_DIR}/archive"},
    ]


def chosen(host: RunHost) -> list[Directory]:
    """Where a site wants files of daemons.

    It chooses owner and mode, and nobody else may be able to change the path.
    """
    return list(
        chosen_directories(
            host["slurm_conf"],
            host.get("slurmdbd_conf") or {},
            host["group_names"],
            host["slurm_backup"].get("target", ""),
        )
    )
