# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that change a host by themselves, and a file for each that keeps them from what Slurm needs (role base)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..known.run_host import RunHost

MANAGED = "Managed by gpucluster.slurm: changes here are overwritten."


def cloud_init(host: RunHost) -> str:
    """cloud-init runs at each boot.

    It would write /etc/hosts anew, without the cluster, where that is its configuration. It would rename the host if
    the cloud has another name for it. A name that cloud-init has given stays with it, since copies of the disk are
    other hosts.
    """
    lines = ["manage_etc_hosts: false"] if host.flag("base", "base_manage_hosts_file") else []
    lines += ["preserve_hostname: true"] if host.facts["cloud_init"]["own_name"] else []
    return "\n".join([f"# {MANAGED}", *lines, ""]) if lines else ""


def needrestart(_host: RunHost) -> str:
    """needrestart restarts a service with an old library, also if only a job of slurmd uses that.

    A daemon of Slurm is restarted when its configuration was checked, and the end of the fabric manager ends the
    programs on GPUs.
    """
    return f"""# {MANAGED}
# 0: needrestart names the service, and does not restart it by itself.
$nrconf{{override_rc}}->{{qr(^(slurmctld|slurmd|slurmdbd|slurmrestd|sackd)\\.service$)}} = 0;
$nrconf{{override_rc}}->{{qr(^nvidia-fabricmanager\\.service$)}} = 0;
"""


def unattended_upgrades(host: RunHost) -> str:
    """A reboot ends jobs. With GPUs, libraries, kernel module and kernel change together, and not while jobs run.

    Slurm's packages need no line here, since they are held.
    """
    if not host.within("slurm_compute"):
        return ""
    lines = [f"// {MANAGED}", 'Unattended-Upgrade::Automatic-Reboot "false";']
    if host.facts["nvidia_gpus"]:
        lines.append('Unattended-Upgrade::Package-Blacklist { "linux-"; "(lib)?nvidia-"; "libcuda"; };')
    return "\n".join([*lines, ""])


FILES: Mapping[str, tuple[str, Callable[[RunHost], str]]] = {
    "cloud-init": ("/etc/cloud/cloud.cfg.d/99-gpucluster-slurm.cfg", cloud_init),
    "needrestart": ("/etc/needrestart/conf.d/gpucluster-slurm.conf", needrestart),
    "unattended-upgrades": ("/etc/apt/apt.conf.d/99gpucluster-slurm", unattended_upgrades),
}
"""By package: the path of the file, and its text. A file with nothing to say is not written."""


def files(host: RunHost) -> dict[str, str]:
    """The content of each file on this host, by path. A host without the program gets no file."""
    texts = {path: text(host) for package, (path, text) in FILES.items() if package in host.facts["packages"]}
    return {path: text for path, text in texts.items() if text}
