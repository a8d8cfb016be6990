# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that stand in for those of enroot and pyxis, which no repository has, and plugins compiled for the lab."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab import ROOT, Lab, Run
from plays import Case, run_cases

HOSTS = ("front", "box01", "box02")
PLUGIN = "/usr/local/lib/gpucluster-slurm/spank_pyxis.so"
URL = "http://10.213.7.70:8070"
GREET = "/usr/local/lib/greet.so"
NVIDIA_CLI = "/usr/local/bin/nvidia-container-cli"
# The plugin as the package of pyxis brings it, for a shell.
PACKAGED = "$(dpkg -L nvslurm-plugin-pyxis | grep 'pyxis[.]so$')"
# The host that has an older pyxis before the cluster is equipped, and where that plugin is kept for a comparison.
OLDER, OLDER_PLUGIN = "box02", "/root/older_pyxis.so"
EVERYTHING = ["apptainer", "enroot", "pyxis", "job_tools"]
STAND_IN = ROOT / "tests/integration/stand_in"


def sha256(path: Path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def serve(lab: Lab, workshop: Workshop) -> None:
    """Have the login host serve packages at URL: one, and a file that is large for a small disk."""
    lab.script("front", "mkdir -p /srv/packages; cat >/srv/packages/enroot.deb", workshop.enroot().read_bytes())
    lab.command("front", "head -c 100000 /dev/zero >/srv/packages/large.deb")
    server = "systemd-run --unit=packages python3 -m http.server --directory /srv/packages 8070 2>&1"
    lab.command("front", f"systemctl is-active --quiet packages || {server}")
    lab.wait_for("front", "ss -Htln sport = :8070", "8070")


def as_user(lab: Lab, script: str, user: str = "alice", rc: int = 0) -> str:
    """What a script prints on the login host, in a login shell of a user."""
    return str(lab.command("front", f"runuser -l {user} -c {shlex.quote(script)}", rc))


def real_packages() -> dict[str, Any]:
    """The variables of a cluster with all that there is for containers, from packages that the environment names.

    ENROOT_PACKAGES: paths, separated by commas or blanks. PYXIS_PACKAGE: one for the lab's Slurm. Nothing without both.
    """
    enroot = os.environ.get("ENROOT_PACKAGES", "").replace(",", " ").split()
    pyxis = os.environ.get("PYXIS_PACKAGE", "")
    if not enroot or not pyxis:
        return {}
    return {
        "slurm_containers": EVERYTHING,
        "enroot_packages": [{"file": path} for path in enroot],
        "pyxis_packages": {"24.11": {"file": pyxis}},
    }


@dataclass(frozen=True)
class Site:
    """The lab's cluster, with other variables."""

    lab: Lab
    variables: dict[str, Any] = field(default_factory=dict)

    def run(self, *arguments: str, tags: str = "containers,controller,compute", **variables: Any) -> Run:
        """Run some stages of site.yml; these variables win over the site's own."""
        extra = json.dumps(self.variables | variables)
        return self.lab.playbook("site", f"--tags={tags}", f"--extra-vars={extra}", *arguments)

    def cases(self, directory: Path, cases: Mapping[str, Case]) -> dict[str, Run]:
        """Try roles and modules with the site's variables, where a case has no other ones. See run_cases."""
        own = {name: replace(case, variables=self.variables | {**case.variables}) for name, case in cases.items()}
        outcomes: dict[str, Run] = run_cases(self.lab, directory, own)
        return outcomes


def plan(run: Run) -> list[str]:
    """What a run has said that it changes of Slurm's configuration."""
    said = (result.get("msg", "") for _host, task, result in run.results if "Show the changes" in task)
    return [line for text in said for line in text.splitlines()]


@dataclass(frozen=True)
class Workshop:
    """A directory where plugins and packages are made, with Slurm's headers."""

    directory: Path

    @classmethod
    def open(cls, lab: Lab, directory: Path) -> Workshop:
        """One with the headers of the lab's Slurm, from its package."""
        fetch = "cd $(mktemp -d) && apt-get -qq download libslurm-dev && dpkg-deb --fsys-tarfile *.deb; rm -r $PWD"
        with tarfile.open(fileobj=io.BytesIO(lab.script("front", fetch, b""))) as archive:
            archive.extractall(directory)
        return cls(directory)

    def plugin(self, source: Path, *flags: str) -> Path:
        """The shared object of a plugin."""
        library = self.directory / f"{source.stem}.so"
        gcc = ["gcc", "-shared", "-fPIC", f"-I{self.directory}/usr/include", *flags, str(source), "-o", str(library)]
        subprocess.run(gcc, check=True)
        return library

    def provide_greet(self, lab: Lab, *flags: str) -> None:
        """Put the plugin of the tests on each host, in one step: a job may be about to load it."""
        library = self.plugin(Path(__file__).with_name("greet.c"), *flags).read_bytes()
        for host in HOSTS:
            lab.script(host, f"cat >{GREET}.new; mv {GREET}.new {GREET}", library)

    def package(
        self, name: str, version: str, files: dict[str, Path], architecture: str = "all", depends: str = "bash"
    ) -> Path:
        """A package with files by their paths; programs and libraries, so that all can be executed."""
        root = self.directory / "package" / f"{name}_{version}_{architecture}"
        deb = root.parent / f"{root.name}.deb"
        if deb.exists():  # each build has other times in it, and another checksum
            return deb
        for path, source in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(source.read_bytes())
            (root / path).chmod(0o755)
        (root / "DEBIAN").mkdir(parents=True, exist_ok=True)
        control = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: tests\n"
        (root / "DEBIAN/control").write_text(f"{control}Depends: {depends}\nDescription: stand-in for {name}\n")
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, deb], check=True, stdout=subprocess.DEVNULL)
        return deb

    def enroot(self, version: str = "4.1.2-1", architecture: str = "all") -> Path:
        """The stand-in for enroot."""
        return self.package("enroot", version, {"usr/bin/enroot": STAND_IN / "enroot"}, architecture, "squashfs-tools")

    def pyxis(self, version: str = "0.24.0-1", *flags: str) -> Path:
        """The stand-in for pyxis."""
        multiarch = subprocess.run(
            ["gcc", "-print-multiarch"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        plugin = self.plugin(STAND_IN / "pyxis.c", *flags)
        path = f"usr/lib/{multiarch}/slurm/spank_pyxis.so"
        return self.package("nvslurm-plugin-pyxis", version, {path: plugin})

    def provide_older_pyxis(self, lab: Lab) -> None:
        """Have an older pyxis on the host OLDER, as role pyxis leaves it."""
        package = self.pyxis("0.23.0-1", "-g")
        install = f"""set -e
            cat >/root/older.deb
            dpkg --install /root/older.deb >&2
            cp {PACKAGED} {OLDER_PLUGIN}
            install -D -m 644 {OLDER_PLUGIN} {PLUGIN}"""
        lab.script(OLDER, install, package.read_bytes())

    def everything(self) -> dict[str, Any]:
        """The variables of a cluster with all that there is for containers: one package is at a URL, one is a file."""
        return {
            "slurm_containers": EVERYTHING,
            "enroot_packages": [{"url": f"{URL}/enroot.deb", "sha256": sha256(self.enroot())}],
            "pyxis_packages": {"22.05": {"file": "/nowhere.deb"}, "24.11": {"file": str(self.pyxis())}},
        }
