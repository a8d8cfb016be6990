# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apptainer as a normal user has it, in jobs. The image is made from one program, busybox: there is no registry.

The library of NVIDIA's driver is a stand-in, an empty library of its name: that --nv brings it into a container is
shown, CUDA is not.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from debs import HOSTS, as_user
from lab import Lab

DEFINITION = """Bootstrap: scratch

%files
    /home/alice/busybox /bin/busybox
%setup
    cd "$APPTAINER_ROOTFS"
    mkdir -p bin dev etc home proc root sys tmp var/tmp
    for name in cat dd env id ls sh; do ln -s busybox bin/$name; done
%post
    id -u >/built-by
%environment
    export GREETING=hello
"""


@pytest.fixture(scope="module")
def image(lab: Lab) -> Iterator[str]:
    """An image that alice has built in a job."""
    lab.script("front", "apt-get -qq install --yes --no-install-recommends busybox-static >&2", b"")
    lab.script(
        "front", "install -o alice $(command -v busybox) /home/alice; cat >/home/alice/tiny.def", DEFINITION.encode()
    )
    as_user(lab, "timeout 120 srun -w box01 apptainer build tiny.sif tiny.def")
    yield "tiny.sif"
    lab.command("front", "rm /home/alice/tiny.sif /home/alice/tiny.def /home/alice/busybox")


def test_a_job_runs_an_image_that_another_job_has_built(lab: Lab, image: str) -> None:
    inside = "id -u; echo $GREETING; cat /built-by; test -e /usr/bin/srun || echo not the host"
    said = as_user(lab, f"timeout 180 srun -w box02 apptainer exec {image} sh -c {shlex.quote(inside)}")
    assert said.splitlines() == ["2001", "hello", "0", "not the host"]


def test_root_in_a_container_is_the_user_outside(lab: Lab, image: str) -> None:
    job = f"timeout 180 srun apptainer exec --fakeroot --bind $PWD:/work {image}"
    assert as_user(lab, f"{job} id -u") == "0"
    as_user(lab, f"{job} sh -c 'echo >/work/by-root'")
    assert lab.command("front", "stat -c %U /home/alice/by-root; rm /home/alice/by-root") == "alice"


def test_containers_see_what_the_site_binds(lab: Lab, image: str) -> None:
    seen = as_user(lab, f"timeout 180 srun apptainer exec {image} cat /etc/debian_version")
    assert seen == lab.command("box01", "cat /etc/debian_version")


def test_a_container_has_the_libraries_of_the_driver(lab: Lab, image: str, tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    gcc = ["gcc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-x", "c", "/dev/null", "-o", str(library)]
    subprocess.run(gcc, check=True)
    lab.script("box01", "cat >/usr/local/lib/libcuda.so.1; ldconfig", library.read_bytes())
    try:
        libraries = as_user(lab, f"timeout 180 srun -w box01 apptainer exec --nv {image} ls /.singularity.d/libs")
    finally:
        lab.command("box01", "rm /usr/local/lib/libcuda.so.1; ldconfig")
    assert "libcuda.so.1" in libraries.split()


def test_a_container_has_no_more_memory_than_its_job(lab: Lab, image: str) -> None:
    eat = f"timeout 180 srun --mem=100 apptainer exec {image} dd if=/dev/zero of=/dev/null bs=300M count=1 2>&1"
    assert "oom" in as_user(lab, f"{eat} || :").lower()


@pytest.mark.usefixtures("image")
def test_caches_are_where_the_site_wants_them_and_the_users_alone(lab: Lab) -> None:
    assert as_user(lab, "stat -c %a .cache/images .cache/builds").split() == ["700", "700"]


@pytest.mark.parametrize("host", HOSTS)
def test_nothing_but_apptainer_comes_from_unstable(lab: Lab, host: str) -> None:
    source = "/^[^ ]/ {name = $1} /^ [*]{3}/ {getline; if (/ sid/) print name}"
    assert lab.command(host, f"apt-cache policy $(dpkg-query -W -f '${{Package}} ') | awk '{source}'") == "apptainer:"
    assert "sid" not in lab.command(host, "apt-get --simulate dist-upgrade | grep ^Inst || :")


def test_users_have_the_same_subordinate_ids_on_each_host(lab: Lab) -> None:
    for host in HOSTS:
        for file in ("/etc/subuid", "/etc/subgid"):
            assert {"3000:196608000:65536", "3001:196673536:65536"} <= {*lab.command(host, f"cat {file}").split()}
