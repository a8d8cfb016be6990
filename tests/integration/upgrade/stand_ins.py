# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for packages: SchedMD's, with Debian's binaries of two releases, and those of enroot and pyxis for them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jinja2
from lab import ROOT, Lab

SUITES = {"24.11": "trixie", "26.05": "sid"}
ORIGINALS = (
    "sackd slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin slurmctld slurmd slurmdbd "
    "libslurm-dev"
)
SOURCES = ROOT / "tests/integration/stand_in"

# The packages of pyxis have the same version in both releases, as those of a site may have.
SCRIPT = """\
set -eu
repository=$PWD work=$PWD/work
mkdir "$work"
tar --extract --directory="$work"
build() { dpkg-deb --root-owner-group -Zzstd -z1 --build "$1" "$repository" >/dev/null; }

# own NAME VERSION DEPENDS: a package of the files in $work/NAME.
own() {
    mkdir "$work/$1/DEBIAN"
    cat >"$work/$1/DEBIAN/control" <<END
Package: $1
Version: $2
Architecture: all
Maintainer: tests
Depends: $3
Description: stand-in
END
    build "$work/$1"
}
dpkg-deb --extract "$work"/libslurm-dev_*.deb "$work/headers"
rm "$work"/libslurm-dev_*.deb
plugins=$work/nvslurm-plugin-pyxis/usr/lib/$(gcc -print-multiarch)/slurm
mkdir -p "$plugins"
gcc -shared -fPIC -I"$work/headers/usr/include" "$SOURCES/pyxis.c" -o "$plugins/spank_pyxis.so"
own nvslurm-plugin-pyxis 0.24.0-1 bash
install -D "$SOURCES/enroot" "$work/enroot/usr/bin/enroot"
own enroot 4.1.2-1 squashfs-tools

{% include 'schedmd.sh.j2' %}

{% include 'repository.sh.j2' %}
"""


def build(lab: Lab, host: str, directory: Path, release: str) -> Path:
    """A directory with the packages for a release of Slurm, which is also a repository with its key in key.asc.

    The host fetches Debian's packages.
    """
    names = " ".join(f"{name}/{SUITES[release]}" for name in ORIGINALS.split())
    originals = lab.script(host, f"cd $(mktemp -d) && apt-get -qq download {names} && tar -c *.deb; rm -r $PWD", b"")
    templates = jinja2.FileSystemLoader(ROOT / "molecule/shared/templates")
    environment = jinja2.Environment(loader=templates, trim_blocks=True, autoescape=False)
    script = environment.from_string(SCRIPT).render(origin="SchedMD", codename="stable")
    target = directory / release
    target.mkdir()
    subprocess.run(["sh", "-c", f"SOURCES={SOURCES}\n{script}"], cwd=target, input=originals, check=True)
    return target
