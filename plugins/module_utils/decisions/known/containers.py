# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether users of a host can make containers without special rights, for several roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import image, registered
from .run_host import RunHost


def kernel_objections(host: RunHost) -> list[str]:
    """Why the settings of the kernel do not let users make namespaces. The collection does not change them."""
    limit = host.facts["namespaces"]["max_user_namespaces"]
    clone = host.facts["namespaces"]["unprivileged_userns_clone"]
    if image.builds(host) or (limit not in (None, 0) and clone != 0):
        return []
    return [
        f"users cannot make containers here: user.max_user_namespaces is {shown(limit)}, allowed: more than 0, such as "
        f"65536; kernel.unprivileged_userns_clone is {shown(clone)}, allowed: 1, or a kernel without it. Set them in a "
        "file of /etc/sysctl.d, then sysctl --system"
    ]


def shown(setting: int | None) -> str:
    """A setting of the kernel in a message."""
    return "missing" if setting is None else str(setting)


def needs_profile(host: RunHost, profile: str) -> bool:
    """Whether AppArmor restricts user namespaces, and no profile of this name was loaded before the installation."""
    if image.builds(host):
        return False  # another kernel than that of the hosts
    restricts = host.facts["namespaces"]["apparmor_restrict_unprivileged_userns"] == 1
    return restricts and host.facts["profiles"].get(profile) != "loaded" and not host.check_mode


def profile_objections(host: RunHost, profile: str) -> list[str]:
    """Why AppArmor does not let a program make containers, after the installation of its packages."""
    result: Mapping[str, Any] = registered.SLURM_APPARMOR_FACTS.of(host)
    state = result["ansible_facts"]["slurm_host"]["profiles"][profile]
    if state == "loaded":
        return []
    file = f"/etc/apparmor.d/{profile}"
    reasons = {
        "missing": f"the packages have no profile {file}. Use packages with this profile, such as upstream's for this "
        "release of Ubuntu",
        "no userns": f"the profile {file} has no rule userns, as in a package for another distribution. Use packages "
        "for this release of Ubuntu",
        "not loaded": f"the kernel does not have the profile in {file}. Load it (apparmor_parser --replace {file})",
    }
    return [
        "users cannot make containers here: kernel.apparmor_restrict_unprivileged_userns is 1, and "
        f"{reasons.get(state, '')}, or set kernel.apparmor_restrict_unprivileged_userns to 0 in a file of "
        "/etc/sysctl.d, then sysctl --system"
    ]
