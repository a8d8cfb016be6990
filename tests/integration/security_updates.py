# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Security updates for hosts: Debian's packages with a later revision, in an archive whose Release file says
Debian-Security. And a ledger that jobs write themselves, with which no record of Slurm is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from lab import Lab

REVISION = "+lab1"
DIRECTORY = "/srv/lab-security"
SOURCES = "/etc/apt/sources.list.d/lab-security.list"
HIDDEN = "/root/lab-hidden-sources"
"""Sources of packages that a test takes away, so that the archive's own updates do not matter."""

OFFER = f"""
set -eu
mkdir -p {DIRECTORY}
cd "$(mktemp -d)"
apt-get download --quiet $(dpkg-query --show --showformat='${{source:Package}} ${{Package}}=${{Version}}\\n' |
  sed -n "s/^$SOURCE //p")
for deb in *.deb; do
  dpkg-deb --raw-extract "$deb" tree
  version=$(sed -n 's/^Version: //p' tree/DEBIAN/control)
  sed -i "s/$version/$version{REVISION}/g" tree/DEBIAN/control
  dpkg-deb --root-owner-group -Zgzip -z1 --build tree {DIRECTORY} >/dev/null
  rm -r tree "$deb"
done
cd {DIRECTORY}
for deb in *.deb; do
  dpkg-deb --field "$deb"
  printf 'Filename: ./%s\\nSize: %s\\n' "$deb" "$(stat --format=%s "$deb")"
  printf 'SHA256: %s\\n\\n' "$(sha256sum <"$deb" | cut -c1-64)"
done >Packages
cat >Release <<END
Origin: Debian
Label: Debian-Security
Suite: stable-security
Codename: trixie-security
Version: 13
Date: $(LC_ALL=C date --utc '+%a, %d %b %Y %T +0000')
SHA256:
 $(sha256sum <Packages | cut -c1-64) $(stat --format=%s Packages) Packages
END
mkdir -p {HIDDEN}
# A host has one of both forms of sources.
mv /etc/apt/sources.list /etc/apt/sources.list.d/* {HIDDEN} 2>/dev/null || true
echo 'deb [trusted=yes] file:{DIRECTORY} ./' >{SOURCES}
apt-get --quiet=2 update
"""
"""Offers the host a later revision of its packages of the source package $SOURCE, and nothing else."""

HIDE = f"mkdir -p {HIDDEN}; mv /etc/apt/sources.list /etc/apt/sources.list.d/* {HIDDEN}; apt-get --quiet=2 update"
SHOW = f"""
rm -f {SOURCES}
if test -e {HIDDEN}/sources.list; then mv {HIDDEN}/sources.list /etc/apt; fi
mv {HIDDEN}/* /etc/apt/sources.list.d; rm -rf {HIDDEN} {DIRECTORY}
apt-get --quiet=2 update
"""

LEDGER = "/home/ledger"
JOB = f'echo "start $SLURM_JOB_ID" >>{LEDGER}; sleep 2; echo "end $SLURM_JOB_ID" >>{LEDGER}'


@contextmanager
def offered(lab: Lab, source: str, hosts: list[str], others: list[str]) -> Iterator[None]:
    """Offer hosts security updates of their packages from this source package, and other hosts none of any package."""
    for host in hosts:
        lab.script(host, f"SOURCE={source}\n{OFFER}", b"")
    for host in others:
        lab.script(host, HIDE, b"")
    try:
        yield
    finally:
        for host in [*hosts, *others]:
            lab.script(host, SHOW, b"")


def check_ledger(lab: Lab, host: str, jobs: list[str]) -> None:
    """Each of these jobs, and each job at all, has begun once and has ended once."""
    lines = Counter(lab.command(host, f"cat {LEDGER}").splitlines())
    begun = {line.split()[1] for line in lines if line.startswith("start ")}
    assert {*jobs} <= begun, f"jobs that never began: {sorted({*jobs} - begun)}"
    assert lines == Counter(f"{what} {job}" for job in begun for what in ("start", "end"))
