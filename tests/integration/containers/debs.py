# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that stand in for those of enroot and pyxis, which no repository has, and plugins compiled for the lab."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import ROOT, Lab, Run

HOSTS = ("front", "box01", "box02")
PLUGIN = "/usr/local/lib/gpucluster-slurm/spank_pyxis.so"
EVERYTHING = ["apptainer", "enroot", "pyxis", "job_tools"]
STAND_IN = ROOT / "tests/integration/stand_in"


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

    def having(self, variables: dict[str, Any]) -> Site:
        """The cluster after a run with these variables, which each later run has as well."""
        site = Site(self.lab, variables)
        run = site.run()
        assert run.rc == 0, run.failed
        return site

    def strip(self) -> None:
        """Take from the cluster what it was equipped with, where it was."""
        if self.lab.host("front").run(f"ls {PLUGIN} /usr/local/lib/greet.so").stdout:
            packages = "dpkg-query -W -f '${Package} ' enroot enroot+caps nvslurm-plugin-pyxis 2>/dev/null"
            run = self.run(tags="controller")
            assert run.rc == 0, run.failed
            for host in HOSTS:
                self.lab.command(host, f"dpkg --purge $({packages}) >/dev/null 2>&1 || :")
                # /workspace: the stand-in mounts on the host itself.
                files = f"/var/cache/gpucluster-slurm/*.deb {PLUGIN}* /usr/local/lib/greet.so /workspace"
                self.lab.command(host, f"rm -rf {files}")

    def run(self, *arguments: str, tags: str = "containers,controller", **variables: Any) -> Run:
        """Run some stages of site.yml; these variables win over the site's own."""
        extra = json.dumps(self.variables | variables)
        return self.lab.playbook("site", f"--tags={tags}", f"--extra-vars={extra}", *arguments)

    def refusal(self, package: dict[str, str], **arguments: str) -> str:
        """What the module for packages says of one that it does not install on a compute node."""
        command = [
            "ansible",
            "box01",
            "-i",
            str(self.lab.inventory),
            "--become",
            "-m",
            "gpucluster.slurm.slurm_packages",
        ]
        result = subprocess.run(
            [*command, f"--args={json.dumps({'packages': [package], **arguments})}"],
            cwd=ROOT,
            env=self.lab.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "FAILED!" in result.stdout, result.stdout + result.stderr
        return " ".join(result.stdout.split())

    def plan(self, *arguments: str, **variables: Any) -> list[str]:
        """Run them to a good end; what they say that changes of Slurm's configuration."""
        run = self.run(*arguments, **variables)
        assert run.rc == 0, run.failed
        said = (result.get("msg", "") for _host, task, result in run.results if "Say what that changes" in task)
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

    def everything(self) -> dict[str, Any]:
        """The variables of a cluster with all that there is for containers."""
        return {
            "slurm_containers": EVERYTHING,
            "enroot_packages": [{"file": str(self.enroot())}],
            "pyxis_packages": {"22.05": {"file": "/nowhere.deb"}, "24.11": {"file": str(self.pyxis())}},
        }
