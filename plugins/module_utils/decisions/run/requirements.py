# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a run refuses a host, and the way out: rules that need the answer of this host alone.

Rules that compare hosts are in comparison.py, those of its platform in platform.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..host import kernel, nfs_server, storage
from ..known import image, platform
from ..known.host_paths import LIB_DIR
from ..known.platform_tables import BROKEN_PACKAGES
from ..known.run_host import RunHost
from ..known.whole_cluster import id_variables, ip_addresses, is_controller, slurm_user

LEAST_MIB = 64
"""What must be free where a controller or the database writes."""

IMEX_CHANNELS = 2048
"""Channels that Slurm gives to jobs by default (`channel_count` in switch_nvidia_imex.c)."""
LEAST_CHANNELS = 2
"""Fewer are none: channel 0 is of no job (`_setup_controller` there)."""


def objections(host: RunHost) -> list[str]:
    """Why the run refuses this host."""
    return [
        *platform.objections(host),
        *_name(host),
        *_users(host),
        *_autodetect(host),
        *_scripts(host),
        *_plugins(host),
        *_imex(host),
        *_kernel(host),
        *storage.objections(host),
        *nfs_server.objections(host),
        *_hosts_file(host),
        *_cloud_init(host),
        *_directories(host),
        *_read_only(host),
        *_full_disks(host),
    ]


def _name(host: RunHost) -> Iterator[str]:
    found = host.facts["hostname"]
    if not image.builds(host) and host.name not in (found, found.split(".")[0]):
        yield (
            f"the host name is {found}, and the name in the inventory is {host.name}; slurmd and slurmctld find "
            "themselves in slurm.conf by the host name, or by its part before the first dot, so make them equal "
            f"(hostnamectl set-hostname {host.name})"
        )


def _users(host: RunHost) -> Iterator[str]:
    for name, variable in id_variables(host).items():
        wanted, found = int(host[variable]), host.facts["users"].get(name)
        if found is not None and int(found) != wanted:
            yield (
                f"the user {name} has id {found} here and {wanted} in this cluster ({variable}); it must be the same "
                "on every host"
            )
        for conflict in host.facts["taken_ids"].get(name, ()):
            yield (
                f"{conflict} here, and the user {name} and its group have {wanted} in this cluster ({variable}); it "
                "must be the same on every host"
            )


def _autodetect(host: RunHost) -> Iterator[str]:
    """Checked on the controllers, which write gres.conf for the nodes."""
    wanted, known = host.shared("autodetect"), platform.platform(host).autodetect
    if is_controller(host) and not {*wanted} <= {*known}:
        yield (
            f"Slurm {platform.slurm_release(host)} knows autodetect {', '.join(known)}, and the machine types have "
            f"{', '.join(wanted)}"
        )


def _scripts(host: RunHost) -> Iterator[str]:
    given = host["slurm_prologs"] or host["slurm_epilogs"]
    if given and is_controller(host) and not platform.platform(host).sends_scripts:
        yield (
            f"Slurm {platform.slurm_release(host)} does not send prologs and epilogs to the nodes, as Slurm 23.11 and "
            "later do; upgrade Slurm, or put the scripts on the nodes and name them in slurm_conf (Prolog, Epilog) "
            "instead of slurm_prologs and slurm_epilogs (the keys prologs and epilogs of the cluster file)"
        )


def _plugins(host: RunHost) -> Iterator[str]:
    distribution, missing = host.facts["distribution"], platform.missing_plugins(host)
    if {*missing} & {*BROKEN_PACKAGES.get(distribution, ())}:
        yield (
            f"apt cannot install {', '.join(missing)} with the installed Slurm of {distribution}, and slurmd would "
            "find no GPU with autodetect nvml; give the machine type file (/dev/nvidia[0-7]) instead of autodetect, or "
            "install SchedMD's packages (slurm_packages, the key packages of the cluster file)"
        )


def _imex(host: RunHost) -> Iterator[str]:
    """What makes jobs in an NVLink domain run without an IMEX channel of their own. Slurm only warns of it."""
    conf = host["slurm_conf"]
    plugin = str(conf.get("SwitchType", "")).lower()
    if plugin != "switch/nvidia_imex" or not host.option("nvidia_driver", "nvidia_driver_imex_nodes"):
        return
    parameters = str(conf.get("SwitchParameters", "")).lower()
    options = str(host.option("nvidia_driver", "nvidia_driver_module_options").get("nvidia", ""))
    yield from _imex_channels(parameters, options)
    if re.search(r"NVreg_CreateImexChannel0=0*[1-9]", options):
        yield (
            "nvidia_driver_module_options has NVreg_CreateImexChannel0, a channel that all jobs share, and SwitchType "
            "switch/nvidia_imex gives each job one of its own; remove one of the two"
        )
    if host.facts["imex_channels"] is False and "imex_dev_major=" not in parameters:
        yield (
            "NVIDIA's driver has no IMEX channels (/proc/devices has no nvidia-caps-imex-channels), so jobs would run "
            "without one: SwitchType switch/nvidia_imex only warns in slurmd's log. Install a driver that has them, "
            "and let NVreg_ImexChannelCount be more than 0"
        )


def _imex_channels(parameters: str, options: str) -> Iterator[str]:
    """A number of channels with which some jobs get none, or one that the driver does not have."""
    given = re.search(r"imex_channel_count=(\d*)", parameters)
    of_driver = re.search(r"NVreg_ImexChannelCount=(\d+)", options)
    count = int(given[1] or 0) if given else IMEX_CHANNELS
    if count < LEAST_CHANNELS:
        yield (
            f"slurm_conf: SwitchParameters: found imex_channel_count={count}, with which jobs would run without an "
            f"IMEX channel; allowed: {LEAST_CHANNELS} or more"
        )
    elif of_driver and int(of_driver[1]) < count:
        yield (
            f"nvidia_driver_module_options: found NVreg_ImexChannelCount={of_driver[1]}, and Slurm gives jobs "
            f"{count} IMEX channels; set SwitchParameters (slurm_conf) to imex_channel_count={of_driver[1]}, "
            "or give the driver more"
        )


def _kernel(host: RunHost) -> Iterator[str]:
    unknown = kernel.kernel(host).unknown
    if unknown:
        yield (
            f"base_kernel_settings: found {', '.join(unknown)}, allowed: settings of this host's kernel that are one "
            "number (sysctl --all shows them)"
        )


def _hosts_file(host: RunHost) -> Iterator[str]:
    """Lines of /etc/hosts that are not the collection's come first there, and so would replace its addresses."""
    found = host.facts["other_addresses"]
    if not found or not host.flag("base", "base_manage_hosts_file"):
        return
    wanted: dict[str, list[str]] = {}
    for entry in ip_addresses(host):
        wanted.setdefault(entry["name"], []).append(entry["address"])
    for name, address in found.items():
        if address not in wanted.get(name, [address]):
            yield (
                f"/etc/hosts has a line {address} {name}, and in this cluster the address is {', '.join(wanted[name])};"
                " remove the line, or correct the cluster file"
            )
            return


def _cloud_init(host: RunHost) -> Iterator[str]:
    source = host.facts["cloud_init"]["writes_hosts"]
    if source and "cloud-init" in host.facts["packages"] and host.flag("base", "base_manage_hosts_file"):
        yield (
            "cloud-init would write /etc/hosts anew at the next boot, without the hosts of the cluster: "
            f"manage_etc_hosts is set in {source}, the configuration that the cloud or its user has given to this "
            "instance. Remove it there, or switch cloud-init off after it has set up the host (touch "
            "/etc/cloud/cloud-init.disabled), or have the names in DNS and set base_manage_hosts_file to false"
        )


def _directories(host: RunHost) -> Iterator[str]:
    """What is refused about directories. With another SlurmUser, all of Slurm's files would seem to be a stranger's."""
    found, wanted = host.facts["directories"], slurm_user(host)
    owner = found["differ"].get(LIB_DIR, "").partition(":")[0]
    if owner == "slurm" and wanted != owner:
        yield (
            f"slurm_conf.SlurmUser: found {wanted!r}, and {LIB_DIR} of this host belongs to {owner}, allowed: {owner}; "
            "the files of an installed cluster are not given to another user"
        )
    elif found["refused"]:
        yield "; ".join(found["refused"])


def _read_only(host: RunHost) -> Iterator[str]:
    found = host.facts["read_only"]
    if found:
        yield (
            f"{', '.join(found)}: the file system is read-only, and the run writes there; after an error of the disk "
            "(dmesg shows it) replace the disk, otherwise make it writable (mount -o remount,rw), or change a node "
            "with a read-only root by its image (the playbook gpucluster.slurm.image)"
        )


def _full_disks(host: RunHost) -> Iterator[str]:
    full = {path: free for path, free in host.facts["free_mib"].items() if free < LEAST_MIB}
    if full:
        yield (
            "the disk is full, and Slurm could not write its state, its log or its database: in "
            f"{', '.join(full)} {min(full.values())} MiB are free, allowed: {LEAST_MIB} or more"
        )
