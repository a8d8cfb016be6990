# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packer itself builds an image of a node with the template of inventory/a3mega, on a bare host of the lab.

Only the source differs: a host that is there already (Packer's builder `null`), instead of a machine of Google Cloud.
So what Packer copies, installs and calls is what the template says. ansible-core comes from a directory of wheels.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from images import bare_image, boot, power_off
from lab import ROOT, Lab, podman

pytestmark = pytest.mark.skipif(shutil.which("packer") is None, reason="no packer on this machine")

IMAGE = ROOT / "inventory/a3mega/image"
HOST, ADDRESS = "packer", "10.213.7.253"
CLOUD = 'sources = ["source.googlecompute.host"]'


@pytest.fixture(name="lab", scope="module")
def without_stand_ins() -> Lab:
    """The scenario with its own cluster file, whose files are next to it: Packer copies them."""
    return Lab("image")


@pytest.fixture(name="bare", scope="module")
def bare_host(lab: Lab) -> Iterator[str]:
    """A bare host; its container."""
    power_off(HOST)
    try:
        yield boot(lab, bare_image(lab), HOST, b"", ADDRESS)
    finally:
        power_off(HOST)


def wheels_for(bare: str, directory: Path) -> None:
    """Give the host what pip installs, since a lab has no package index."""
    version = podman("exec", bare, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    (line,) = [line for line in (IMAGE / "a3mega.pkr.hcl").read_text().split("\n") if '"2.' in line]
    release = line.split('"')[1]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", f"--python-version={version}"]
    subprocess.run([*command, f"--dest={directory}", f"ansible-core=={release}"], check=True)
    podman("cp", str(directory), f"{bare}:/opt/wheels")
    podman("exec", bare, "sh", "-c", "printf '[global]\\nno-index = true\\nfind-links = /opt/wheels\\n' >/etc/pip.conf")


def test_packer_builds_an_image_of_a_node(lab: Lab, bare: str, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    wheels_for(bare, tmp_path / "wheels")
    galaxy = [Path(sys.executable).with_name("ansible-galaxy"), "collection", "build", "--output-path", tmp_path, ROOT]
    subprocess.run([str(word) for word in galaxy], check=True, stdout=subprocess.DEVNULL)
    (collection,) = tmp_path.glob("*.tar.gz")

    template = (IMAGE / "a3mega.pkr.hcl").read_text()
    assert CLOUD in template
    shutil.copytree(IMAGE, tmp_path / "image")
    (tmp_path / "image/a3mega.pkr.hcl").write_text(
        template.replace(CLOUD, 'sources = ["source.null.lab"]')
        + f'source "null" "lab" {{\n  ssh_host = "{ADDRESS}"\n  ssh_username = "admin"\n'
        f'  ssh_private_key_file = "{ROOT}/.lab/id_ed25519"\n}}\n'
    )
    next_to = lab.inventory.parent
    files = {path.name for path in next_to.iterdir()} - {"secrets", "report", lab.inventory.name}
    given = {"cluster_file": lab.inventory, "collection": collection, "image_of": lab.nodes[0]}
    given |= {"files": json.dumps(sorted(files))}
    given |= dict.fromkeys(("project_id", "zone", "subnetwork_name"), "none")
    options = [word for name, value in given.items() for word in ("-var", f"{name}={value}")]
    result = subprocess.run(
        ["packer", "build", "-color=false", *options, "a3mega.pkr.hcl"],
        cwd=tmp_path / "image",
        env={**os.environ, "CHECKPOINT_DISABLE": "1", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr

    def on_host(command: str) -> str:
        return str(podman("exec", bare, "sh", "-c", f"{command} || true")).strip()

    assert on_host("systemctl is-enabled slurmd") == "enabled"
    assert on_host("systemctl is-active slurmd munge").split() == ["inactive", "inactive"]
    assert on_host("dpkg-query -W -f '${db:Status-Status}' slurmd") == "installed"
    assert on_host("ls /etc/munge/munge.key /etc/ssh/ssh_host_*_key 2>/dev/null; cat /etc/machine-id") == ""
    # What Packer has copied and installed is in memory.
    assert on_host("find / -xdev -name 'gpucluster-slurm*.tar.gz'") == ""
