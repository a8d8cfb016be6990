# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SchedMD's packages: from a repository that the hosts have, from one that the collection adds, and as files.

The packages are stand-ins: Debian's binaries, split and named as SchedMD's (molecule/shared). The tests run in this
order, after those of the release.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lab import Lab, with_cluster


def installed(lab: Lab, host: str) -> list[str]:
    """Slurm's packages on a host, of whomever."""
    listed = lab.command(host, "dpkg-query -W -f '${db:Status-Status} ${Package}\\n' '*slurm*' sackd 2>/dev/null; true")
    return sorted(line.split()[1] for line in listed.splitlines() if line.startswith("installed "))


@pytest.fixture(scope="module", name="way_out")
def command_of_the_refusal(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The command by which a host gets rid of SchedMD's packages, from the refusal of the other source.

    After that, the hosts have no repository with these packages.
    """
    cluster = {**lab.cluster, "packages": "distribution"}
    run = with_cluster(lab, tmp_path_factory.mktemp("other"), cluster).playbook("site", "--tags=base")
    assert {*run.failed} == {*lab.nodes}
    assert run.changed == {}
    (message,) = run.failed[lab.controller]
    command = re.search(r"with packages of SchedMD, .* run (apt-get remove .*) there, and run site.yml again", message)
    assert command, message
    for host in lab.nodes:
        lab.command(host, "rm -f /etc/apt/sources.list.d/lab.list")
    return f"DEBIAN_FRONTEND=noninteractive {command[1]} --yes"


def install_again(lab: Lab, directory: Path, way_out: str, packages: object) -> None:
    """Remove Slurm from the node, let site.yml install it with this key `packages`, and run a job there."""
    node = lab.nodes[-1]
    lab.command(node, way_out)
    assert installed(lab, node) == []
    run = with_cluster(lab, directory, {**lab.cluster, "packages": packages}).playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    assert installed(lab, node) == ["slurm-smd", "slurm-smd-client", "slurm-smd-slurmd"]
    assert lab.command(node, "apt-mark showhold").split() == installed(lab, node)
    lab.wait_until_idle(lab.controller, node)
    assert lab.command(lab.controller, f"timeout 180 srun -w {node} hostname") == node


def test_the_packages_are_schedmds_and_held(lab: Lab) -> None:
    packages = [f"slurm-smd{name}" for name in ("", "-client", "-slurmctld", "-slurmd", "-slurmdbd")]
    assert installed(lab, lab.controller) == packages
    assert lab.command(lab.controller, "apt-mark showhold").split() == packages
    # They make no user, and they do not rotate the logs of the daemons.
    assert lab.command(lab.controller, "id -u slurm") == "64030"
    rotated = lab.command(lab.controller, "logrotate --debug /etc/logrotate.conf 2>&1")
    for log in ("slurmctld.log", "slurmd.log", "slurmdbd.log"):
        assert f"considering log /var/log/slurm/{log}" in rotated


@pytest.mark.rare  # 84 s; scenario slurm-26.05 itself installs from a repository
def test_a_repository_with_its_key(lab: Lab, way_out: str, tmp_path: Path) -> None:
    (tmp_path / "schedmd.asc").write_text(lab.command(lab.controller, "cat /srv/stand-in/key.asc"))
    install_again(lab, tmp_path, way_out, {"repository": "file:/srv/stand-in ./", "key": "schedmd.asc"})


@pytest.mark.rare  # 50 s; scenario upgrade has packages as files as well
def test_files(lab: Lab, way_out: str, tmp_path: Path) -> None:
    names = lab.command(lab.controller, "cd /srv/stand-in; ls slurm-smd*.deb").split()
    for name in names:
        (tmp_path / name).write_bytes(lab.script(lab.controller, f"cat /srv/stand-in/{name}", b""))
    install_again(lab, tmp_path, way_out, {"files": [{"file": name} for name in names]})
