# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that stand in for those of enroot and pyxis, which no repository has."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lab import ROOT, Lab

STAND_IN = ROOT / "tests/integration/stand_in"


@dataclass(frozen=True)
class Workshop:
    """A directory where plugins and packages are made, with Slurm's headers."""

    directory: Path

    @classmethod
    def open(cls, lab: Lab, directory: Path) -> Self:
        """One with the headers of the lab's Slurm, from its package."""
        fetch = "cd $(mktemp -d) && apt-get -qq download libslurm-dev && dpkg-deb --fsys-tarfile *.deb; rm -r $PWD"
        with tarfile.open(fileobj=io.BytesIO(lab.script(lab.controller, fetch, b""))) as archive:
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
