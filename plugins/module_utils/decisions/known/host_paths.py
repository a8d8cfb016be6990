# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths on the hosts that several roles use."""

from __future__ import annotations

CONF_DIR = "/etc/slurm"
LOG_DIR = "/var/log/slurm"
LIB_DIR = "/var/lib/slurm"

KEPT_DIR = "/var/lib/gpucluster-slurm"
"""What the collection keeps on a host. slurm_config keeps the files in force here."""

KEPT_CONF = f"{KEPT_DIR}/good/slurm.conf"
KEPT_LIST = f"{KEPT_DIR}/files"
"""Names and checksums of the files in force."""

KEPT_HOSTS = f"{KEPT_DIR}/hosts"
"""The names of all hosts that the cluster has had."""

KEPT_SLURMD = f"{KEPT_DIR}/slurmd"
"""On the controllers: the values that slurmd reads at its start."""

UPGRADE_DIR = f"{KEPT_DIR}/upgrade"
UPGRADE_MARK = f"{UPGRADE_DIR}/state.json"
"""Here while the database or slurmctld is between two releases (role slurm_upgrade)."""

SLURMD_SETTINGS = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"
"""The settings of slurmd's unit. Where they are missing, slurmd may read files of its own."""

SCRIPTS_DIR = "/usr/local/lib/gpucluster-slurm"
"""This collection's prologs, epilogs and programs, and the plugin pyxis."""

HEALTH_PROGRAM = "/usr/local/sbin/slurm-health"
"""The program with which slurmd checks its node (role slurm_health)."""

ENROOT_PROLOG = f"{SCRIPTS_DIR}/enroot-prolog"
ENROOT_EPILOG = f"{SCRIPTS_DIR}/enroot-epilog"
MAIL_PROGRAM = f"{SCRIPTS_DIR}/mail"
DATABASE_CA = "/etc/gpucluster-slurm/database-ca.pem"

PYXIS_PLUGIN = f"{SCRIPTS_DIR}/spank_pyxis.so"
PYXIS_DIR = "/var/lib/pyxis"
"""The runtime path of pyxis. Its default is in memory: an image of several GB would count as memory of its job, which
Slurm would end, or fill /run."""

PYXIS_PREVIOUS_LINE = f"{KEPT_DIR}/spank_pyxis.so.line.before"
"""On the controller: the previous line of plugstack.conf, until a container has run with the plugin (role pyxis)."""

APPTAINER_SOURCE = "/etc/apt/sources.list.d/gpucluster-apptainer.list"
NVIDIA_FILES = ("/etc/modules-load.d/gpucluster-nvidia.conf", "/etc/modprobe.d/gpucluster-nvidia.conf")
"""Kernel modules and their options (role nvidia_driver)."""

MARIADB_SOCKET = "/run/mysqld/mysqld.sock"

JOB_DIR = "/var/lib/slurm-check"
"""The home of the user who submits the jobs of the collection, and where these jobs write."""
