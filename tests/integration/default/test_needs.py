# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of the collection that list which changes need a reconfigure or a restart, against the hosts' Slurm."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Iterator

import pytest
from check_needs import compare, summary
from lab import Lab

DAEMONS = ("/usr/sbin/slurmd", "/usr/sbin/slurmstepd")


@pytest.fixture
def libraries(lab: Lab) -> Iterator[None]:
    """Give the controller the libraries that slurmd needs and that it lacks."""
    node = lab.nodes[-1]
    needed = lab.command(node, rf"ldd {' '.join(DAEMONS)} | sed -n 's/.*=> \(.*\) (.*/\1/p' | sort -u")
    find_missing = f"for path in {' '.join(needed.split())}; do [ -e $path ] || echo $path; done"
    paths = " ".join(lab.command(lab.controller, find_missing).split())
    if not paths:
        yield
        return
    lab.script(lab.controller, "tar -xPC /", lab.script(node, f"tar -chPC / {paths}", b""))
    yield
    lab.command(lab.controller, f"rm {paths}")


@pytest.mark.usefixtures("libraries")
def test_slurm_needs_what_the_tables_say(lab: Lab) -> None:
    # The controller has a compute node's slurmd during the test, so that one host has both daemons.
    packed = lab.script(lab.nodes[-1], f"tar -chC / {' '.join(name[1:] for name in DAEMONS)}", b"")
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        programs = {name: member.read() for name in DAEMONS if (member := tar.extractfile(name[1:]))}

    def run(script: str, data: bytes) -> str:
        """Run a script on the controller. A login may have a third of the threads of its host (TasksMax), too few."""
        command = f"systemd-run --quiet --scope --property=TasksMax=infinity sh -c {shlex.quote(script)}"
        output: bytes = lab.script(lab.controller, command, data)
        return output.decode()

    version, findings = compare(run, programs, every=False)
    print(summary(version, findings))
    assert not [str(one) for one in findings if one.wrong]
    assert len({(one.case.file, one.case.key) for one in findings if one.checked}) >= 60
