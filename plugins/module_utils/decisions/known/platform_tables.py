# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Differences between distributions, package sources and releases of Slurm (docs/design/platforms.md).

The three choices are independent of each other. A host that is not in these tables is refused (decisions/platform.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DISTRIBUTIONS = ("debian 12", "debian 13", "ubuntu 22.04", "ubuntu 24.04", "ubuntu 26.04")
"""ID and VERSION_ID of /etc/os-release."""

DISTRIBUTION_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "munge": ("munge",),
    "mariadb": ("mariadb-server",),
    "mariadb_client": ("mariadb-client",),
    "registry": ("docker-registry", "nginx"),
    "logs": ("logrotate",),
    "completion": ("bash-completion",),
    "backup": ("restic",),
    "mail": ("msmtp", "ca-certificates"),
    "ipmi": ("ipmitool",),
    "redfish": ("python3-sushy", "ca-certificates"),
    "firewall": ("nftables",),
    "node_exporter": ("prometheus-node-exporter",),
    "prometheus": ("prometheus", "prometheus-alertmanager"),
    "tokens": ("python3-jwt",),
    "slurm_report": ("nginx", "python3-jinja2", "openssl"),
    "rest_front": ("nginx",),
    "acceptance": ("fio", "hpcc", "iperf3"),
}
"""Packages by purpose. They have the same names in all distributions."""

PENALISING = ("debian 13", "ubuntu 26.04")
"""Distributions whose sshd refuses an address for a while after several failed logins (PerSourcePenalties, OpenSSH
9.8)."""

PLUGINS_OF_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "slurm-wlm-elasticsearch-plugin": ("jobcomp_elasticsearch",),
    "slurm-wlm-hdf5-plugin": ("acct_gather_profile_hdf5",),
    "slurm-wlm-influxdb-plugin": ("acct_gather_profile_influxdb",),
    "slurm-wlm-ipmi-plugins": ("acct_gather_energy_ipmi", "acct_gather_energy_xcc"),
    "slurm-wlm-jwt-plugin": ("auth_jwt",),
    "slurm-wlm-kafka-plugin": ("jobcomp_kafka",),
    "slurm-wlm-mysql-plugin": ("accounting_storage_mysql", "jobcomp_mysql"),
    "slurm-wlm-nvml-plugin": ("gpu_nvml",),
    "slurm-wlm-rsmi-plugin": ("gpu_rsmi",),
}
"""The plugins in packages of Debian and Ubuntu that Slurm's daemons do not need. A run installs them for keys of the
cluster file, also where slurm_conf names a plugin. SchedMD's package slurm-smd, which is always installed, has all
plugins that it was built with."""

BROKEN_PACKAGES: Mapping[str, tuple[str, ...]] = {"debian 12": ("slurm-wlm-nvml-plugin",)}
"""Packages of Slurm's plugins that apt cannot install on a distribution, because they need a version of Slurm that a
security update has replaced."""


@dataclass(frozen=True)
class PackageSource:
    """Where Slurm's packages come from."""

    name: str
    title: str
    """Its name in messages."""
    packages: Mapping[str, tuple[str, ...]]
    """Names by purpose. All of SchedMD's packages depend on slurm-smd; as files, it has to be named with them."""
    units: Mapping[str, str]
    """The packages that have the units of daemons. A host with such a package shows in check mode what a run would
    change on the daemon, whatever other packages it lacks."""
    plugins: Mapping[str, tuple[str, ...]]
    """Names by the method of AutoDetect that needs them; these packages have versions of their own."""
    version: str
    """The package on which all others depend in its own version, so that its version is theirs."""
    hold: tuple[str, ...]
    """The source packages whose packages apt must not change."""
    rotates: bool
    """Whether the packages of the daemons rotate their logs."""


SOURCES: Mapping[str, PackageSource] = {
    "distribution": PackageSource(
        name="distribution",
        title="the distribution",
        packages={
            "slurmctld": ("slurmctld", "slurm-client"),
            "slurmd": ("slurmd", "slurm-client"),
            "slurmdbd": ("slurmdbd", "slurm-client"),
            "slurm_client": ("slurm-client",),
            "sackd": ("sackd",),
            "adopt": ("libpam-slurm-adopt",),
            "tokens_of_slurm": ("slurm-wlm-jwt-plugin",),
            "slurmrestd": ("slurmrestd",),
        },
        units={"slurmd": "slurmd", "sackd": "sackd"},
        plugins={"nvml": ("slurm-wlm-nvml-plugin",), "rsmi": ("slurm-wlm-rsmi-plugin",)},
        version="slurm-wlm-basic-plugins",
        hold=("slurm-wlm", "slurm-wlm-contrib"),
        rotates=True,
    ),
    "schedmd": PackageSource(
        name="schedmd",
        title="SchedMD",
        packages={
            "slurmctld": ("slurm-smd", "slurm-smd-slurmctld", "slurm-smd-client"),
            "slurmd": ("slurm-smd", "slurm-smd-slurmd", "slurm-smd-client"),
            "slurmdbd": ("slurm-smd", "slurm-smd-slurmdbd", "slurm-smd-client"),
            "slurm_client": ("slurm-smd", "slurm-smd-client"),
            "sackd": ("slurm-smd", "slurm-smd-sackd"),
            "adopt": ("slurm-smd", "slurm-smd-libpam-slurm-adopt"),
            "tokens_of_slurm": ("slurm-smd",),
            "slurmrestd": ("slurm-smd", "slurm-smd-slurmrestd"),
        },
        units={"slurmd": "slurm-smd-slurmd", "sackd": "slurm-smd-sackd"},
        plugins={},
        version="slurm-smd",
        hold=("slurm-smd",),
        rotates=False,
    ),
}


@dataclass(frozen=True)
class Release:
    """What differs between releases of Slurm."""

    sackd: bool
    """Whether Slurm has this daemon, which fetches the configuration for hosts without slurmctld and slurmd. It came
    together with its packages, of Debian, of Ubuntu and of SchedMD."""
    sends_scripts: bool
    """Whether slurmctld sends a prolog and an epilog to the nodes."""
    run_dirs: Mapping[str, str]
    """Directories in which the daemons can write their PID files (RuntimeDirectory of the units; older units make no
    directories)."""
    autodetect: tuple[str, ...]
    """Methods by which slurmd can find GPUs (gres.conf(5)); with another method it would find none."""
    namespaces: bool
    """Whether NamespaceType has replaced JobContainerType."""
    metrics: Literal["", "public", "tokens"] = ""
    """slurmctld's pages with metrics: none, those that PrivateData closes, or those that tokens open."""


OLD_RUN_DIRS = {"slurmctld": "/run", "slurmd": "/run", "slurmdbd": "/run"}
RUN_DIRS = {"slurmctld": "/run/slurmctld", "slurmd": "/run/slurm", "slurmdbd": "/run/slurmdbd"}
WITH_NRT = ("nrt", "nvml", "oneapi", "rsmi")
WITH_NVIDIA = ("nrt", "nvidia", "nvml", "oneapi", "rsmi")

RELEASES: Mapping[str, Release] = {
    "22.05": Release(False, False, OLD_RUN_DIRS, ("nvml", "oneapi", "rsmi"), False),
    "23.02": Release(False, False, OLD_RUN_DIRS, ("nvml", "oneapi", "rsmi"), False),
    "23.11": Release(True, True, RUN_DIRS, WITH_NRT, False),
    "24.05": Release(True, True, RUN_DIRS, WITH_NRT, False),
    "24.11": Release(True, True, RUN_DIRS, WITH_NVIDIA, False),
    "25.05": Release(True, True, RUN_DIRS, WITH_NVIDIA, False),
    "25.11": Release(True, True, RUN_DIRS, WITH_NVIDIA, True, "public"),
    "26.05": Release(True, True, RUN_DIRS, WITH_NVIDIA, True, "tokens"),
}
"""In the order of time. Releases compare as texts."""

NEWEST = max(RELEASES)
