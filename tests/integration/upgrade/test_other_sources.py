# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade.yml with packages from a repository, at a URL and as files, and with pyxis, on a cluster of one host. The
packages are stand-ins. The tests are in this order, and each needs those before it."""

from __future__ import annotations

import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from lab import ROOT, Lab, Run, with_cluster
from stand_ins import SUITES, build

HOST = "up-one"
DAEMONS = ("slurmdbd", "slurmctld", "slurmd")
PLUGIN = "/usr/local/lib/gpucluster-slurm/spank_pyxis.so"
PORT = 8070
GO = "/home/other-go"
# Whatever another test has made there.
BARE = r"""
systemctl disable --quiet --now slurm-backup.timer slurmd slurmctld slurmdbd sackd 2>/dev/null
packages=$(dpkg-query -W -f '${Package} ${source:Package}\n' | awk '$2 ~ /^(slurm|enroot|nvslurm)/ {print $1}')
dpkg --purge $packages >/dev/null 2>&1
systemctl start mariadb && mariadb -e 'DROP DATABASE IF EXISTS slurm_acct_db'
# A purge removes the user slurm, and would leave his logs to a number.
rm -rf /etc/slurm /var/lib/slurm /var/log/slurm /var/lib/gpucluster-slurm /usr/local/lib/gpucluster-slurm /srv/stand-in
rm -f /etc/apt/sources.list.d/gpucluster-slurm.sources /var/cache/gpucluster-slurm/*.deb
"""


@pytest.fixture(scope="module", name="packages")
def packages_of_two_releases(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directory with the packages of each release."""
    directory = tmp_path_factory.mktemp("packages")
    return {release: build(lab, HOST, directory, release) for release in SUITES}


def files(directory: Path) -> dict[str, Any]:
    """The key `packages` of the cluster file, with all packages of a release as files."""
    return {"files": [{"file": str(path)} for path in sorted(directory.glob("slurm-smd*.deb"))]}


def pyxis(directory: Path) -> dict[str, str]:
    """The package of pyxis for a release."""
    return {"file": str(next(directory.glob("nvslurm-plugin-pyxis_*.deb")))}


def site(directory: Path, packages: dict[str, Path], source: dict[str, Any], **more: Any) -> Lab:
    """The cluster with packages from a source. more: other keys of the cluster file, or `pyxis_packages`."""
    own = Lab("upgrade", Path(ROOT, "molecule/upgrade/inventory/one.cluster.yml"))
    variables = {
        "slurm_containers": ["enroot", "pyxis"],
        "enroot_packages": [{"file": str(next(packages["24.11"].glob("enroot_*.deb")))}],
        "pyxis_packages": more.pop("pyxis_packages", {name: pyxis(path) for name, path in packages.items()}),
    }
    cluster = {key: value for key, value in own.cluster.items() if key != "backup"} | more
    return with_cluster(own, directory, {**cluster, "packages": source}, **variables)


def upgrade(lab: Lab) -> Run:
    """A run without the jobs of `validate`."""
    return lab.playbook("upgrade", "--skip-tags=validate")


@pytest.fixture(scope="module", name="number")
def job_until_the_end(lab: Lab, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The number of a job on the new cluster, which lasts until the last test."""
    lab.host(HOST).run(BARE)
    own = site(tmp_path_factory.mktemp("site"), packages, files(packages["24.11"]))
    run = own.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    lab.command(HOST, f"touch {GO}")
    wrapped = f"srun sh -c 'while test -e {GO}; do sleep 1; done'"
    return str(lab.command(HOST, f'timeout 60 sbatch --parsable -D / -o /dev/null --wrap "{wrapped}"'))


def state(lab: Lab, number: str) -> tuple[set[str], str]:
    """The releases of the daemons that run, and the checksum of the plugin, while the job runs and has its steps."""
    lab.wait_for(HOST, f"timeout 60 squeue -h -j {number} -o %T", "RUNNING", 60)
    # One for what joins the job (PrologFlags=Contain), one for the script, and one for its step, which begins later.
    lab.wait_for(HOST, "pgrep -c slurmstepd", "3", 60)
    shown = f"for daemon in {' '.join(DAEMONS)}; do /proc/$(systemctl show -P MainPID $daemon)/exe -V; done"
    releases = {line.split()[-1].rpartition(".")[0] for line in lab.command(HOST, shown).split("\n")}
    return releases, lab.command(HOST, f"sha256sum {PLUGIN}").split()[0]


def test_a_release_without_a_package_of_pyxis_is_refused(
    lab: Lab, number: str, packages: dict[str, Path], tmp_path: Path
) -> None:
    before = state(lab, number)
    assert before[0] == {"24.11"}
    only = {"24.11": pyxis(packages["24.11"])}
    run = upgrade(site(tmp_path, packages, files(packages["26.05"]), pyxis_packages=only))
    assert "Nothing was changed. pyxis_packages has no package for Slurm 26.05" in str(run.failed)
    assert (run.changed, state(lab, number)) == ({}, before)


def test_a_pyxis_of_the_previous_release_is_refused_before_anything_stops(
    lab: Lab, number: str, packages: dict[str, Path], tmp_path: Path
) -> None:
    before = state(lab, number)
    wrong = {"24.11": pyxis(packages["24.11"]), "26.05": pyxis(packages["24.11"])}
    run = upgrade(site(tmp_path, packages, files(packages["26.05"]), pyxis_packages=wrong))
    assert "spank_pyxis.so is for Slurm 24.11, which Slurm 26.05 does not load" in str(run.failed)
    assert (run.changed, state(lab, number)) == ({}, before)


def test_a_repository_is_added_and_its_release_is_tried(
    lab: Lab, number: str, packages: dict[str, Path], tmp_path: Path
) -> None:
    """The cluster file has a key that the new release refuses, so the run ends before anything stops."""
    before = state(lab, number)
    shutil.copy(packages["26.05"] / "key.asc", tmp_path)
    packed = subprocess.run(["tar", "-c", "."], cwd=packages["26.05"], check=True, stdout=subprocess.PIPE).stdout
    lab.script(HOST, "mkdir -p /srv/stand-in && tar -x -C /srv/stand-in", packed)
    source = {"repository": "file:/srv/stand-in ./", "key": "key.asc"}
    run = upgrade(site(tmp_path, packages, source, slurm_conf={"AccountingStorageLoc": "x"}))
    assert "AccountingStorageLoc" in str(run.failed)
    assert [task.rpartition(" : ")[2] for task in run.changed[HOST]] == [
        "Give the host the repository of slurm_packages"
    ]
    assert state(lab, number) == before


def test_files_and_a_package_at_a_url_under_a_running_job(
    lab: Lab, number: str, packages: dict[str, Path], tmp_path: Path
) -> None:
    source = files(packages["26.05"])
    path = next(path for path in packages["26.05"].glob("slurm-smd_*.deb"))
    lab.script(HOST, f"mkdir -p /srv/packages; cat >/srv/packages/{path.name}", path.read_bytes())
    server = f"systemd-run --unit=packages python3 -m http.server --directory /srv/packages {PORT} 2>&1"
    lab.command(HOST, f"systemctl is-active --quiet packages || {server}")
    lab.wait_for(HOST, f"ss -Htln sport = :{PORT}", str(PORT))
    remote = {"url": f"http://localhost:{PORT}/{path.name}", "sha256": sha256(path.read_bytes()).hexdigest()}
    source["files"] = [remote if entry["file"] == str(path) else entry for entry in source["files"]]
    own = site(tmp_path, packages, source)

    run = upgrade(own)
    assert (run.rc, run.failed) == (0, {})
    releases, plugin = state(lab, number)
    assert releases == {"26.05"}
    packaged = lab.command(HOST, "sha256sum $(dpkg -L nvslurm-plugin-pyxis | grep 'pyxis[.]so$')").split()[0]
    assert plugin == packaged == sha256(_plugin(packages["26.05"])).hexdigest()
    # A container has run with it, so nothing is kept of the previous one.
    assert lab.command(HOST, f"ls {PLUGIN}*") == PLUGIN
    line = lab.command(HOST, f"grep {PLUGIN} /etc/slurm/plugstack.conf")
    assert line == f"required {PLUGIN} runtime_path=/var/lib/pyxis"
    job = "timeout 180 srun --container-image=any sh -c 'echo $PYXIS_container_image'"
    assert lab.command(HOST, job) == "any"
    again = upgrade(own)
    assert (again.rc, again.failed, again.changed) == (0, {}, {})
    lab.command(HOST, f"rm {GO}")
    lab.wait_for(HOST, f"timeout 60 sacct -nPX -o state,exitcode -j {number}", "COMPLETED|0:0", 120)


def _plugin(directory: Path) -> bytes:
    """The plugin in the package of pyxis for a release."""
    tar = ["sh", "-c", 'dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards "*/spank_pyxis.so"', "sh"]
    return subprocess.run([*tar, pyxis(directory)["file"]], check=True, stdout=subprocess.PIPE).stdout
