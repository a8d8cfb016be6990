# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables in /etc/environment of the hosts, which each login has, and on Ubuntu each sudo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lab import Lab

CLEAN = "env -i PATH=/usr/sbin:/usr/bin timeout 60"
"""Before the commands of the test itself, which run in the same sudo."""

VARIABLES = {
    "SQUEUE_STATES": "PENDING",
    "SQUEUE_PARTITION": "nosuch",
    "SQUEUE_USERS": "nobody",
    "SQUEUE_FORMAT": "%i",
    "SINFO_FORMAT": "%N",
    "SINFO_PARTITION": "nosuch",
    "SACCT_FORMAT": "jobid",
    "SBATCH_ACCOUNT": "nobody",
    "SBATCH_PARTITION": "nosuch",
    "SCANCEL_STATE": "PENDING",
    "SLURM_BITSTR_LEN": "3",
    "SLURM_CLUSTERS": "other",
    "SLURM_CONF": "/old/slurm.conf",
    "SLURM_JWT": "expired",
    "SLURM_TIME_FORMAT": "relative",
    "APT_CONFIG": "/nowhere",
    "DPKG_ADMINDIR": "/nowhere",
    "HWLOC_SYNTHETIC": "pack:4 core:9 pu:2",
    "LANGUAGE": "de",
    "LC_ALL": "de_DE.UTF-8",
    "MYSQL_UNIX_PORT": "/nowhere",
    "SYSTEMD_OFFLINE": "1",
    "SYSTEMD_UNIT_PATH": "/nowhere",
}
"""Each of them alone has changed an answer of a playbook or of a module, or could have."""


@contextmanager
def readable(lab: Lab, hosts: Sequence[str]) -> Iterator[None]:
    """Let sudo read /etc/environment, as Ubuntu's /etc/pam.d/sudo has it. At the end that file is empty."""
    for host in hosts:
        lab.command(
            host, "cp /etc/pam.d/sudo /root/sudo && echo 'session required pam_env.so readenv=1' >>/etc/pam.d/sudo"
        )
    try:
        yield
    finally:
        for host in hosts:
            lab.host(host).run(f"{CLEAN} sh -c 'mv /root/sudo /etc/pam.d/sudo; : >/etc/environment'")


def put(lab: Lab, hosts: Sequence[str], variables: dict[str, str]) -> None:
    """Set variables on these hosts."""
    text = "".join(f"{name}={value}\n" for name, value in variables.items())
    for host in hosts:
        lab.script(host, "cat >/etc/environment", text.encode())
