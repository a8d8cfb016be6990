# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cloud-init would change on a host at its next boot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..hardware.sysfs import Tree

if TYPE_CHECKING:
    from ...plugin_utils.results.fact_records import CloudInit

OFF = "/etc/cloud/cloud-init.disabled"
"""With this file cloud-init does not run, nor with `cloud-init=disabled` on the kernel's command line."""

INSTANCE = "/var/lib/cloud/instance"
CONFIGS = ("cloud-config.txt", "vendor2-cloud-config.txt", "vendor-cloud-config.txt")
"""The configuration of this instance: the user's, then the cloud's. Each wins over those after it, and all of them win
over the files in /etc/cloud (`ConfigMerger` in cloudinit/helpers.py)."""

GIVEN = "/var/lib/cloud/data/set-hostname"
"""The name that cloud-init has given to the host, in JSON. It gives the host another one if the cloud has another name
for the instance, whatever name the host has by then (cloudinit/config/cc_set_hostname.py)."""

TRUE = ("true", "1", "on", "yes", "template")
"""The values of manage_etc_hosts with which /etc/hosts is written from a template at each boot. With `localhost` only
the line of 127.0.1.1 is written (cloudinit/config/cc_update_etc_hosts.py)."""


def read_cloud_init(tree: Tree, hostname: str) -> CloudInit:
    """The fact `cloud_init`, which module slurm_host_facts documents."""
    given = re.search(r'"hostname": *"([^".]+)', tree.text(GIVEN) or "")
    off = tree.exists(OFF) or "cloud-init=disabled" in (tree.text("/proc/cmdline") or "").split()
    return {
        "writes_hosts": "" if off else _writer_of_hosts(tree),
        "own_name": given is not None and given[1] != hostname.partition(".")[0],
    }


def _writer_of_hosts(tree: Tree) -> str:
    """The file of the instance's configuration by which /etc/hosts is written at each boot; empty if there is none."""
    for name in CONFIGS:
        # cloud-init writes these files itself, as YAML with one key on each line.
        match = re.search(r"(?m)^manage_etc_hosts: *['\"]?(\w+)", tree.text(f"{INSTANCE}/{name}") or "")
        if match:
            return f"{INSTANCE}/{name}" if match[1].lower() in TRUE else ""
    return ""
