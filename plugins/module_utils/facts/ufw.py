# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewall ufw, from its files: the program itself would need its lock, and takes a second."""

from __future__ import annotations

import re

from ..hardware.sysfs import Tree

PROGRAM = "/usr/sbin/ufw"
CONF, DEFAULTS, RULES = "/etc/ufw/ufw.conf", "/etc/default/ufw", "/etc/ufw/user.rules"


def open_ports(tree: Tree) -> list[str] | None:
    """The TCP ports to which ufw allows connections, as in its rules: "6817", "80,443", "60001:63000" or "any".

    None if ufw is not active. A rule for some addresses or one interface counts as one for all: which of them are hosts
    of the cluster is not known here.
    """
    # The files stay when the package is removed.
    if not tree.exists(PROGRAM) or not _set(tree, CONF, "ENABLED", "yes"):
        return None
    if _set(tree, DEFAULTS, "DEFAULT_INPUT_POLICY", "accept"):
        return ["any"]
    # ### tuple ### ACTION PROTOCOL PORT ADDRESS PORT ADDRESS [APPLICATION APPLICATION] DIRECTION [comment=TEXT]
    rule = r"(?m)^### tuple ### (?:allow|limit)\S* (?:tcp|any) ([0-9:,]+|any) .* in(?:_\S+)?(?: |$)"
    return list(dict.fromkeys(re.findall(rule, tree.text(RULES) or "")))


def _set(tree: Tree, path: str, key: str, value: str) -> bool:
    """Whether a file of variables of the shell has a value for a key, in any case of letters."""
    match = re.search(rf"(?m)^\s*{key}\s*=\s*[\"']?(\w+)", tree.text(path) or "")
    return match is not None and match[1].lower() == value
