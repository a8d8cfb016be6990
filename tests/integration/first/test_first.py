# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From nothing to jobs by the commands of docs/admin/getting-started.md, in its sections, and nothing else.

The control host has neither Ansible nor the collection, and its reader an empty home. A tarball of the checkout stands
in for Galaxy. What the reader has already, as the page says, is an ssh key. The tests run in this order: the third
section only reads the hosts, and the second one needs them bare.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import ROOT, Lab

PAGE = ROOT / "docs/admin/getting-started.md"
DESK = "first-desk"
TARBALL = "/srv/collection.tar.gz"

NAMES = {
    "install gpucluster.slurm": f"install {TARBALL}",
    "192.0.2.10": "10.213.7.24",
    "192.0.2.11": "10.213.7.25",
    "192.0.2.12": "10.213.7.26",
    "10.1.{0..7}.{1..250}": "10.213.7.{25..26}",
    "10.1.[0:7].[1:250]": "10.213.7.[25:26]",
}
"""What the reader replaces in the commands: the names and addresses of the hosts. The tarball is the stand-in."""

READER = """
useradd --home-dir /srv/reader --create-home --shell /bin/bash reader
echo 'reader ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/reader
cp /etc/ssh/authorized_keys.d/admin /etc/ssh/authorized_keys.d/reader
chmod 0644 /etc/ssh/authorized_keys.d/reader
install --directory --owner=reader --group=reader --mode=0700 /srv/reader/.ssh
cd /srv/reader/.ssh
tar -x
ssh-keyscan -t ed25519 10.213.7.24 10.213.7.25 10.213.7.26 >known_hosts
chown -R reader: /srv/reader
"""
"""Makes the reader, who has a key that the hosts accept, and has trusted theirs. Input: the key."""

GPUS = """
mount -t tmpfs gpu-stand-in /proc/driver
for n in 0 1; do
  gpu=/proc/driver/nvidia/gpus/0000:0$((n + 1)):00.0
  mkdir -p $gpu
  printf 'Model: NVIDIA H100 80GB HBM3\\nDevice Minor: %s\\n' $n >$gpu/information
done
"""
"""What NVIDIA's driver says in /proc of the stand-ins for GPUs."""

AUTHORITIES = Path("/usr/local/share/ca-certificates")
"""Authorities that this machine trusts, as behind a proxy of a site."""


def commands(section: str) -> str:
    """The commands of a section as a script."""
    (text,) = (part for part in PAGE.read_text().split("\n## ") if part.startswith(f"{section}\n"))
    lines = [line.removeprefix("    ") for line in text.splitlines() if line.startswith("    ")]
    assert lines, section
    return "\n".join([*lines, ""])


def ssh(lab: Lab, script: str) -> str:
    """Run a script in a login shell of the reader; its output. It ends with the first command that fails."""
    words = ["ssh", "-nF", str(lab.ssh_config), "-l", "reader", DESK, f"bash -lec {shlex.quote(script)}"]
    run = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(run.stdout)
    assert run.returncode == 0, run.stdout[-4000:]
    return run.stdout


def typed(lab: Lab, section: str) -> str:
    """Run the commands of a section in a new shell, as the page says of these; the output."""
    script = commands(section)
    for name, own in NAMES.items():
        script = script.replace(name, own)
    start = time.monotonic()
    output = ssh(lab, script if section == "The control host" else f". ~/ansible/bin/activate\n{script}")
    print(f"measured: {section}: {time.monotonic() - start:.0f} s")
    assert "using the discovered Python interpreter" not in output  # for each host
    assert "[DEPRECATION" not in output
    return output


@pytest.fixture(name="reader", scope="module", autouse=True)
def reader_of_the_page(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The reader on the control host, with a tarball of the checkout, also of what is not committed yet."""
    words = ["git", "-C", str(ROOT), "stash", "create"]
    changed = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    folder = tmp_path_factory.mktemp("tarball")
    tool = [sys.executable, str(ROOT / "tests/tools/tarball.py"), changed or "HEAD", str(folder)]
    subprocess.run(tool, cwd=ROOT, check=True)
    (tarball,) = folder.iterdir()
    lab.script(DESK, f"cat >{TARBALL}; chmod 0644 {TARBALL}", tarball.read_bytes())
    for path in AUTHORITIES.glob("*.crt"):
        lab.script(DESK, f"cat >{path}; chmod 0644 {path}", path.read_bytes())
    lab.command(DESK, "update-ca-certificates")
    for node in ("first-gpu1", "first-gpu2"):
        lab.script(node, GPUS, b"")
    keys = ROOT / ".lab"
    words = ["tar", "-C", str(keys), "-c", "id_ed25519", "id_ed25519.pub"]
    key = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
    lab.script(DESK, f"set -eu\n{READER}", key)


def test_the_readme_begins_with_commands_of_the_page() -> None:
    block = (ROOT / "README.md").read_text().partition("\n    ")[2].partition("\n\n")[0]
    lines = [line.strip() for line in block.splitlines()]
    assert lines[-1] == "ansible-playbook gpucluster.slurm.site -i my.cluster.yml"
    page = [line for section in ("The control host", "A head and GPU nodes") for line in commands(section).splitlines()]
    assert [line for line in page if line in lines] == lines


def test_the_control_host(lab: Lab) -> None:
    assert ssh(lab, "umask; ls ~; command -v ansible ansible-galaxy pip || true") == "0077\n"
    typed(lab, "The control host")


def test_a_cluster_file_of_many_nodes(lab: Lab) -> None:
    typed(lab, "2,000 nodes")
    assert "first-gpu[1-2]" in ssh(lab, "cat ~/large/large.cluster.yml")


def test_a_head_and_gpu_nodes(lab: Lab) -> None:
    output = typed(lab, "A head and GPU nodes")
    assert sorted(output.splitlines()[-2:]) == ["first-gpu1", "first-gpu2"]
    there = ssh(lab, "cd ~/my && find * .gitignore \\( -path secrets -o -path report \\) -prune -o -type f -print")
    assert sorted(there.split()) == [".gitignore", "ansible.cfg", "group_vars/slurm_cluster.yml", "my.cluster.yml"]


def test_one_machine(lab: Lab) -> None:
    assert typed(lab, "One machine").splitlines()[-1] == DESK
