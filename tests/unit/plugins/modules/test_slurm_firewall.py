# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that slurm_firewall refuses; tests/integration/firewall loads them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import FileError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_firewall

FROM = "import sys; sys.path[:] = {path!r}; from {module} import connection; print(connection())"


@pytest.mark.parametrize(
    ("address", "places", "expected"),
    [
        ("10.0.0.5", ["any"], True),
        ("10.0.0.5", ["10.0.0.0/24"], True),
        ("10.0.0.5", ["10.0.0.4", "10.0.0.5"], True),
        ("10.0.0.5", ["10.0.0.1-10.0.0.5"], True),
        ("::ffff:10.0.0.5", ["10.0.0.0/24"], True),
        ("fd00::5", ["10.0.0.0/24", "fd00::-fd00::9"], True),
        ("10.0.0.5", ["10.0.0.1-10.0.0.4", "10.0.1.0/24", "fd00::/8"], False),
        ("fd00::5", ["10.0.0.0/8"], False),
        ("10.0.0.5", [], False),
    ],
)
def test_admitted(address: str, places: list[str], expected: bool) -> None:
    assert slurm_firewall.admitted(address, places) is expected


def test_the_address_of_the_connection_is_found_behind_sudo() -> None:
    code = FROM.format(path=sys.path, module=slurm_firewall.__name__)
    environment = {"SSH_CONNECTION": "fe80::1%eth0 41000 10.0.0.2 2222"}
    inner = ["env", "-u", "SSH_CONNECTION", sys.executable, "-c", code]
    outer = ["sh", "-c", '"$@"; true', "sh", *inner]
    found = subprocess.run(outer, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    assert found.stdout == "('fe80::1', 2222)\n"


def test_what_would_refuse_this_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_firewall, "connection", lambda: ("192.0.2.1", 22))
    slurm_firewall.refuse(["192.0.2.0/24"], 22)
    with pytest.raises(FileError, match=r"firewall.ssh: found 10.0.0.0/8, allowed: also 192.0.2.1, from which"):
        slurm_firewall.refuse(["10.0.0.0/8"], 22)
    with pytest.raises(FileError, match=r"firewall.ssh_port: found 2222, allowed: 22, the port of sshd"):
        slurm_firewall.refuse(["any"], 2222)
    monkeypatch.setattr(slurm_firewall, "connection", lambda: None)
    slurm_firewall.refuse([], 22)
