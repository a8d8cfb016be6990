# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The munge key is read as bytes. As text it is a deprecation on standard error, and an error from core 2.23 on."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
# No UTF-8, a line's end, and blanks at the end, which a lookup of text would remove.
KEY = bytes(range(256)) * 4 + b"\n \n"
PLAY = [
    {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.debug": {"msg": "{{ lookup('gpucluster.slurm.base64_file', munge_key_file) }}"}}],
    }
]


def program(name: str, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment's Ansible."""
    return subprocess.run(
        [Path(sys.executable).with_name(name), *arguments],
        env=os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **variables},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "vault"])
def test_the_munge_key_is_read_without_a_warning(tmp_path: Path, encrypted: bool) -> None:
    key, password, play = tmp_path / "munge.key", tmp_path / "password", tmp_path / "play.yml"
    key.write_bytes(KEY)
    password.write_text("correct horse")
    if encrypted:
        program("ansible-vault", "encrypt", "--vault-password-file", password, key)
    play.write_text(json.dumps(PLAY))
    run = program(
        "ansible-playbook",
        *("-i", "localhost,", "-e", f"munge_key_file={key}", "--vault-password-file", password, play),
        ANSIBLE_STDOUT_CALLBACK="ansible.posix.jsonl",
        ANSIBLE_INVENTORY_ENABLED="host_list",
    )
    assert base64.b64encode(KEY).decode() in run.stdout
    assert run.stderr == ""
