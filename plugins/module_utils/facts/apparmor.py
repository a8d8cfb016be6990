# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AppArmor's restriction of user namespaces, which Ubuntu has: a program may make one if its profile says so."""

from __future__ import annotations

import re

from ..hardware.sysfs import Tree

PROFILES = "/etc/apparmor.d"
LOADED = "/sys/kernel/security/apparmor/profiles"
"""The profiles that the kernel has: lines such as `apptainer (unconfined)`."""


def profile_state(tree: Tree, name: str) -> str:
    """Whether the programs of a file of profiles may make user namespaces: "loaded", or why not.

    "missing": there is no such file. "no userns": it has no rule that allows it; upstream's package of apptainer has
    such a file if it was built for a distribution without the restriction. "not loaded": the kernel does not have the
    profile. If the kernel does not show its profiles, as in a container, the file decides.
    """
    text = tree.text(f"{PROFILES}/{name}")
    if text is None:
        return "missing"
    if not re.search(r"(?m)^\s*(allow\s+)?userns\b", text):
        return "no userns"
    loaded = tree.text(LOADED)
    # "profile NAME PATH {", or "PATH {", which is its own name.
    pairs = re.findall(r"(?m)^\s*(?:profile\s+(\S+)|(/\S+)\s+(?:flags=\([^)]*\)\s*)?\{)", text)
    own = {pair[0] or pair[1] for pair in pairs}
    in_kernel = {line.rpartition(" (")[0] for line in (loaded or "").split("\n")}
    return "loaded" if loaded is None or own & in_kernel else "not loaded"
