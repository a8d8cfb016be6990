# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports that ufw opens, from its files as ufw 0.36 writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import ufw
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree

RULES = """*filter
### RULES ###

### tuple ### deny any any 0.0.0.0/0 any 1.2.3.4 in
-A ufw-user-input -s 1.2.3.4 -j DROP

### tuple ### allow tcp 22 0.0.0.0/0 any 0.0.0.0/0 OpenSSH - in
### tuple ### allow tcp 6817,60001:63000 0.0.0.0/0 any 10.213.7.0/24 in
### tuple ### limit tcp 2222 0.0.0.0/0 any 0.0.0.0/0 in comment=6d7920636f6d6d656e74
### tuple ### allow tcp 80 0.0.0.0/0 any 0.0.0.0/0 in_eth0
### tuple ### allow_log any 5000 0.0.0.0/0 any 0.0.0.0/0 in
### tuple ### deny tcp 6819 0.0.0.0/0 any 0.0.0.0/0 in
### tuple ### allow udp 6818 0.0.0.0/0 any 0.0.0.0/0 in
### tuple ### allow any 53 0.0.0.0/0 any 0.0.0.0/0 out
### tuple ### route:allow tcp 6818 0.0.0.0/0 any 0.0.0.0/0 in_eth1!out_eth2
"""
ACTIVE = "# /etc/ufw/ufw.conf\n#\nENABLED=yes\nLOGLEVEL=low\n"


@pytest.mark.parametrize(
    ("conf", "policy", "rules", "opened"),
    [
        (None, "DROP", RULES, None),
        ("ENABLED=no\n", "DROP", RULES, None),
        ("#ENABLED=yes\n", "DROP", RULES, None),
        (ACTIVE, "DROP", RULES, ["22", "6817,60001:63000", "2222", "80", "5000"]),
        (ACTIVE, "DROP", None, []),
        (ACTIVE, "REJECT", "### tuple ### allow any any 0.0.0.0/0 any 10.0.0.0/8 in\n", ["any"]),
        (ACTIVE, "ACCEPT", RULES, ["any"]),
    ],
)
def test_ports(tmp_path: Path, conf: str | None, policy: str, rules: str | None, opened: list[str] | None) -> None:
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/ufw").touch()
    for path, text in ((ufw.CONF, conf), (ufw.DEFAULTS, f'DEFAULT_INPUT_POLICY="{policy}"\n'), (ufw.RULES, rules)):
        if text is not None:
            file = tmp_path / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    assert ufw.open_ports(Tree(str(tmp_path))) == opened
    (tmp_path / "usr/sbin/ufw").unlink()
    assert ufw.open_ports(Tree(str(tmp_path))) is None
