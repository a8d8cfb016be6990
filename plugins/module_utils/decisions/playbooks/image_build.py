# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role image and its playbook: options, what the image has for itself, and what it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...cluster.keys import SERVERS
from ...language.formatting import listed
from ..host import firewall, storage
from ..known import command_line
from ..known.program_files import library
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, plain_file
from ..known.whole_cluster import hosts_of_key

SCAN_PROGRAM = "/usr/local/sbin/slurm-image-scan"

MARK = "# Managed by gpucluster.slurm (role image): changes here are overwritten."

HOST_KEYS = "gpucluster-host-keys"
HOST_KEYS_UNIT = f"""{MARK}
[Unit]
Description=Host keys of sshd
# Before each unit of sshd, also one that a socket starts.
Before=ssh.service ssh.socket sshd.service
ConditionPathExists=/usr/bin/ssh-keygen

[Service]
Type=oneshot
RemainAfterExit=yes
# Makes the keys that are missing, and no others. Debian 13 has a unit for it (sshd-keygen.service), which systemd skips
# where /etc/machine-id is an empty file: that is no first boot for it (ConditionFirstBoot).
ExecStart=/usr/bin/ssh-keygen -A

[Install]
WantedBy=multi-user.target
"""


# -- the options of image.yml ----------------------------------------------------------------------------------------


HOST_KEY_FILES = [plain_file(f"/etc/systemd/system/{HOST_KEYS}.service", HOST_KEYS_UNIT)]
"""The unit that makes host keys at the boot of a host, since the image has none."""


@listed
def errors(host: RunHost) -> Iterator[str]:
    """The errors in the options of image.yml."""
    name = str(host.option("image", "image_of"))
    nodes = dict.fromkeys([*host.members("slurm_compute"), *host.members("slurm_login")])
    servers = {*host.members("slurm_controller"), *host.members("slurm_database")}
    allowed = [node for node in nodes if node not in servers]
    text = f"image_of: found {name or 'nothing'}, allowed: a compute node or login host of the inventory"
    if name in servers:
        yield f"{text}; {name} is a controller or the database host, whose state is no part of an image"
    elif name not in allowed:
        example = next(iter(allowed), "")
        yield text + (command_line.propose(name, allowed) or (f", such as -e image_of={example}" if example else ""))
    elif name not in host.all_play_hosts:
        yield f"--limit: leaves out {name}, the host of image_of: leave this option out"


# -- what the image has for itself -----------------------------------------------------------------------------------


def files(_host: RunHost) -> list[HostFile]:
    """The scan, for use by hand."""
    return library("slurm-image-scan", {SCAN_PROGRAM: "programs.scan_image"}, MARK)


# -- what is left ----------------------------------------------------------------------------------------------------


def left(host: RunHost) -> dict[str, list[str]]:
    """What the image does not have, for the first boot and for one run of site.yml on the hosts that have booted."""
    return {"first_boot": list(_at_first_boot(host)), "site": list(_with_site(host))}


def _at_first_boot(host: RunHost) -> Iterator[str]:
    """What the image does by itself at its first boot."""
    yield "the machine id and the ssh host keys are made"
    yield "the munge key is taken from where the site has it, then munge and Slurm's daemon start"
    if storage.own_plan(host).get("mounts"):
        yield "file systems are mounted by the units of the image"


def _with_site(host: RunHost) -> Iterator[str]:
    """What one run of site.yml does, which needs the controllers or the hardware."""
    compute = host.within("slurm_compute")
    if compute:
        yield "registration: the measured hardware is compared with the machine type"
    if compute and host.flag("nvidia_driver", "nvidia_driver_manage") and has_gpus(host):
        yield (
            "the check of NVIDIA's driver, and its fabric manager where the machine has NVSwitches"
            if host.option("nvidia_driver", "nvidia_driver_gpus")
            else "NVIDIA's driver: nvidia_driver_gpus does not name its GPUs"
        )
    if host.name in host.shared("mig_hosts"):
        yield "MIG instances"
    if host["slurm_people"]:
        yield "users, groups and keys of people, and their homes"
    if host["slurm_access"]:
        yield "known hosts and their keys, and the check of the access by a new connection"
    if firewall.has_rules(host):
        yield "the firewall"
    if served := [key.name for key in SERVERS if key.name != "login" and host.name in hosts_of_key(host, key)]:
        yield f"what the host serves: {', '.join(served)}"
    yield "settings of the kernel for large clusters, and those of base_kernel_settings"


def has_gpus(host: RunHost) -> bool:
    """Whether machine types of the cluster have GPUs."""
    return any(entry["name"] == "gpu" for entry in host.shared("gres"))


def report(host: RunHost) -> list[str]:
    """The list at the end of the build."""
    found = left(host)
    titles = {"first_boot": "At the first boot:", "site": "By one run of site.yml, when the hosts have booted:"}
    return [f"The image of {host.name} is built. It does not have:"] + [
        line for key, title in titles.items() for line in [title, *(f"  {text}" for text in found[key])]
    ]


def result(host: RunHost) -> dict[str, Any]:
    """The same for programs (set_stats)."""
    return {
        "host": host.name,
        "slurm": host.facts["slurm_version"],
        "accepted": host.option("image", "image_accepted"),
        "left": left(host),
    }
