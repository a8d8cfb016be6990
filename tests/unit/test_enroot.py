# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of role enroot: the directory of containers that each command of enroot gets, the hook for GPUs, the program
that removes what jobs leave, the importer, and what the wrapper of enroot mends: the names of running containers, full
disks and mount points. enroot, find, tar and pyxis are stand-ins with their names. Also the settings that it takes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.software.enroot import unknown_settings
from plain_host import cluster

ROLE = Path(__file__).parents[2] / "roles/enroot"
FILES = ROLE / "files"
HOST = os.uname().nodename


@pytest.fixture(name="enroot")
def program(tmp_path: Path) -> Path:
    """A program with the name and the command line of enroot, which prints its directory of containers."""
    for directory in ("home/pyxis_mine", "home/other", "disk"):
        (tmp_path / directory).mkdir(parents=True)
    path = tmp_path / "enroot"
    path.write_text(
        f"#! /usr/bin/env bash\nprintf '%s' \"$(bash {FILES}/enroot-data.sh $$ {tmp_path}/home {tmp_path}/disk)\""
    )
    path.chmod(0o755)
    return path


def data(enroot: Path, *arguments: str) -> Path:
    """The directory of containers of `enroot ARGUMENTS`."""
    return Path(subprocess.run([enroot, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout)


@pytest.mark.parametrize(
    "arguments",
    [("create", "--name", "pyxis_12.0", "a.sqsh"), ("start", "--conf", "x", "pyxis_7_12.0"), ("remove", "pyxis_1.4")],
)
def test_containers_without_a_name_are_on_the_nodes_own_disk(enroot: Path, arguments: tuple[str, ...]) -> None:
    assert data(enroot, *arguments) == enroot.parent / "disk/containers"


@pytest.mark.parametrize(
    "arguments", [("create", "--name", "pyxis_mine"), ("start", "pyxis_v1.0"), ("list", "-f"), ("list",)]
)
def test_other_containers_are_in_the_data_directory(enroot: Path, arguments: tuple[str, ...]) -> None:
    (enroot.parent / "disk/containers").mkdir()
    assert data(enroot, *arguments) == enroot.parent / "home"


def test_a_list_has_both_while_there_is_a_container_without_a_name(enroot: Path) -> None:
    own = enroot.parent / "disk/containers"
    (own / "pyxis_12.0").mkdir(parents=True)
    for gone in ((), ("pyxis_mine",)):
        for name in gone:
            (enroot.parent / "home" / name).rmdir()
        assert data(enroot, "list", "-f") == own
        names = {"pyxis_12.0", "pyxis_mine", "other"} - {*gone}
        assert {path.name for path in own.iterdir() if path.is_dir()} == {path.name for path in own.iterdir()} == names
    assert data(enroot, "start", "pyxis_mine") == enroot.parent / "home"
    (own / "pyxis_12.0").rmdir()
    assert data(enroot, "list") == enroot.parent / "home"


def test_another_list_does_not_take_what_a_list_reads(enroot: Path) -> None:
    """pyxis would not find a container that exists."""
    own = enroot.parent / "disk/containers"
    (own / "pyxis_12.0").mkdir(parents=True)
    links = []
    for _list in range(2):
        data(enroot, "list", "-f")
        links.append(os.lstat(own / "pyxis_mine").st_ino)
    assert links[0] == links[1]


@pytest.mark.parametrize(
    ("job", "of", "name"),
    [
        pytest.param("", "", "pyxis_work", id="no job"),
        pytest.param("", "7", "pyxis_work", id="outside of jobs"),
        pytest.param("7", "", "pyxis_work", id="by hand"),
        pytest.param("7", "7", "pyxis_work", id="the same job"),
        pytest.param("7", "70", "<unknown>", id="another job"),
    ],
)
def test_a_running_container_is_known_by_its_directory(tmp_path: Path, job: str, of: str, name: str) -> None:
    """Also by a link. The root of the test itself stands in for that of a container, and has no name in its path."""
    wrapper = (FILES / "enroot.sh").read_text().replace("/usr/bin/enroot", f"{tmp_path}/enroot")
    wrapper = wrapper.replace("$own-list", f"{FILES}/list.sh")
    look = """awk '($5 == "/") {print "the path " $4; exit}' /proc/$3/mountinfo | awk -v of=enroot '{print of, $0}'"""
    program_of(tmp_path, "enroot", f"set -euo pipefail; cd {tmp_path}/data; {look}")
    (tmp_path / "data/pyxis_another").mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"], env=os.environ | {"SLURM_JOB_ID": of}) as container:

        def said(command: str) -> str:
            words = ["sh", "-c", wrapper, "enroot", command, "-f", str(container.pid)]
            return subprocess.check_output(words, env=os.environ | {"SLURM_JOB_ID": job}, text=True)

        try:
            assert said("list") == "enroot <unknown>\n"
            (tmp_path / "data/pyxis_work").symlink_to("/")
            assert said("list") == f"enroot {name}\n"
            assert said("start").startswith("enroot the path ")
        finally:
            container.kill()


JOB = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0"}
# Not a variable of Slurm: the host lacks nvidia-container-cli.
NO_CLI = {"NO_CLI": "1"}
BOTH = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]


@pytest.mark.parametrize(
    ("gpus", "job", "image", "added"),
    [
        pytest.param(False, {}, [], ["NVIDIA_VISIBLE_DEVICES=void"], id="no GPUs"),
        pytest.param(False, {}, ["NVIDIA_VISIBLE_DEVICES=all"], ["NVIDIA_VISIBLE_DEVICES=void"], id="no GPUs, NVIDIA"),
        pytest.param(True, {}, [], [], id="no job"),
        pytest.param(True, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0"}, [], [], id="a step without GPUs"),
        pytest.param(True, NO_CLI, [], ["NVIDIA_VISIBLE_DEVICES=void"], id="no job, no nvidia-container-cli"),
        pytest.param(True, JOB | NO_CLI, [], BOTH, id="a plain image, no nvidia-container-cli"),
        pytest.param(True, JOB, [], BOTH, id="a plain image"),
        pytest.param(True, JOB, ["NVIDIA_VISIBLE_DEVICES=none"], BOTH[1:], id="an image with devices"),
        pytest.param(True, JOB, ["NVIDIA_DRIVER_CAPABILITIES=all"], BOTH[:1], id="an image with capabilities"),
    ],
)
def test_devices_of_a_container(
    tmp_path: Path, gpus: bool, job: dict[str, str], image: list[str], added: list[str]
) -> None:
    if gpus:
        (tmp_path / "nvidia0").touch()
    if "NO_CLI" not in job:
        program_of(tmp_path, "nvidia-container-cli", "")
    environment = tmp_path / "environment"
    environment.write_text("".join(f"{line}\n" for line in image))
    hook = (FILES / "gpus.sh").read_text().replace("/dev/nvidia", f"{tmp_path}/nvidia")
    subprocess.run(
        ["sh", "-c", hook],
        check=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "ENROOT_ENVIRON": str(environment), **job},
    )
    assert environment.read_text().splitlines() == [*image, *added]


def program_of(directory: Path, name: str, script: str) -> Path:
    """A program of bash in a directory. With `env` in its first line, the kernel would know it as bash."""
    path = directory / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("caller", ["slurmstepd", "bash"])
@pytest.mark.parametrize("command", ["create --name pyxis_new a.sqsh", "load --name pyxis_new docker://a"])
def test_a_container_that_pyxis_makes_has_a_mark(enroot: Path, command: str, caller: str) -> None:
    caller = str(program_of(enroot.parent, caller, f"{enroot} {command}; true"))
    for job in ("7", "8"):  # the first one makes it
        subprocess.run([caller], check=True, env=os.environ | {"SLURM_JOB_ID": job})
    marks = {path.name: os.readlink(path) for path in (enroot.parent / "home").glob(".making-*")}
    assert marks == ({".making-pyxis_new": f"{HOST}:7"} if caller.endswith("slurmstepd") else {})
    assert (enroot.parent / "disk/made").exists()


@pytest.mark.parametrize("command", ["create --name pyxis_mine a.sqsh", "start pyxis_new", "list", "create --name new"])
def test_other_commands_leave_no_mark(enroot: Path, command: str) -> None:
    caller = program_of(enroot.parent, "slurmstepd", f"{enroot} {command}; true")
    subprocess.run([caller], check=True, env=os.environ | {"SLURM_JOB_ID": "7"})
    assert [*(enroot.parent / "home").glob(".making-*")] == []


def test_what_a_job_has_not_completed_is_removed(tmp_path: Path) -> None:
    """Not what another job makes, on this node or another one, and not what has been started."""
    data, cache, jobs = (tmp_path / name for name in ("data", "cache", "jobs"))
    for directory in (data, cache / "images", jobs / str(os.getuid())):
        directory.mkdir(parents=True)
    (jobs / str(os.getuid()) / "8").touch()
    makers = {"half": f"{HOST}:7", "lost": f"{HOST}:5", "others": f"{HOST}:8", "elsewhere": "other:7"}
    for name, maker in (makers | {"started": f"{HOST}:7"}).items():
        (data / f"pyxis_{name}").mkdir()
        (data / f".making-pyxis_{name}").symlink_to(maker)
    (data / "pyxis_started/.lock").touch()
    (data / "pyxis_by_hand").mkdir()
    days = {"new": 0, "used": 40, "old": 40, "part.0123456789": 2, "images/old": 40, "images/new": 2}
    for name, age in days.items():
        (cache / name).touch()
        os.utime(cache / name, (time.time() - (age if name != "used" else 1) * 86400, time.time() - age * 86400))
    program_of(tmp_path, "enroot", f"test $1 = remove && rmdir {data}/$3")
    variables = {"data": data, "cache": cache, "days": 30}
    script = jinja2.Template((ROLE / "templates/clean.sh.j2").read_text()).render(variables)
    script = script.replace("/run/gpucluster-slurm/enroot", str(jobs))
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", script, "enroot-clean", "7"], check=True, env=environment)
    assert {path.name for path in data.iterdir()} == {
        *("pyxis_others", ".making-pyxis_others", "pyxis_elsewhere", ".making-pyxis_elsewhere"),
        *("pyxis_started", "pyxis_by_hand"),
    }
    left = {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()}
    assert left == {"new", "used", "images/new"}


@pytest.mark.parametrize("message", ["No space left on device", "Disk quota exceeded", "Wrote only 10 of 512 bytes"])
@pytest.mark.parametrize(("command", "directory"), [("tar", "TEMP"), ("unsquashfs", "DATA")])
def test_a_full_disk_gives_one_sentence(tmp_path: Path, command: str, directory: str, message: str) -> None:
    script = f"echo one >&2; for i in {{1..3000}}; do echo 'file $i: {message}' >&2; done; exit 2"
    program_of(tmp_path, command, script)
    run = subprocess.run(
        ["bash", "-c", f"set -euo pipefail; shopt -s lastpipe; source {FILES}/full-disk.sh; {command} || echo $? left"],
        check=True,
        text=True,
        capture_output=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", f"ENROOT_{directory}_PATH": "/somewhere"},
    )
    assert run.stdout == "2 left\n"
    assert run.stderr == "one\nenroot: no space is left in /somewhere, or your quota is used up\n"


@pytest.mark.parametrize(("command", "left"), [("export", "/root/new"), ("create", "")])
def test_a_mount_point_that_nobody_can_read_does_not_end_an_export(tmp_path: Path, command: str, left: str) -> None:
    wrapper = (FILES / "enroot.sh").read_text().replace("/usr/bin/enroot", f"{tmp_path}/enroot")
    wrapper = wrapper.replace("$own-export", f"{FILES}/export.sh")
    program_of(tmp_path, "find", "echo $1/new; echo Permission denied >&2; exit 1")
    program_of(tmp_path, "enroot", "set -euo pipefail; shopt -s lastpipe; find /root -empty | read path; echo $path")
    run = subprocess.run(
        ["sh", "-c", wrapper, "enroot", command],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert run.stdout.strip() == left


def test_nodes_share_one_import(tmp_path: Path) -> None:
    """enroot is a stand-in, which takes a moment to import an image, and the first time ends before it is complete."""
    enroot = f"""
case $1 in
    info) echo "  ENROOT_CACHE_PATH={tmp_path}/cache" ;;
    digest) echo sha256:0123 ;;
    import)
        echo "$4" >>{tmp_path}/imports; echo half >"$3"
        test -s {tmp_path}/again || exit 1
        sleep 0.3; echo whole >"$3" ;;
esac
"""
    program_of(tmp_path, "enroot", enroot)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    get = ["bash", f"{FILES}/import-once.sh", "get", "docker://registry#image:1"]
    assert subprocess.run(get, env=environment, check=False).returncode == 1
    (tmp_path / "again").write_text("yes")
    nodes = [subprocess.Popen(get, env=environment, stdout=subprocess.PIPE, text=True) for _node in range(3)]
    assert {node.communicate()[0] for node in nodes} == {f"{tmp_path}/cache/images/0123\n"}
    assert (tmp_path / "imports").read_text().splitlines() == ["docker://registry#image:1@sha256:0123"] * 2
    held = (tmp_path / "cache/images/0123.lock").read_text()
    assert held.startswith("process ")
    assert f" of node {HOST}, job " in held
    short = (FILES / "import-once.sh").read_text().replace("flock -w 3600", "flock -w 0.1")
    with open(tmp_path / "cache/images/0123.lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        late = subprocess.run(["bash", "-c", short, *get[1:]], env=environment, check=False, capture_output=True)
    assert late.returncode == 1
    assert late.stderr.decode() == f"docker://registry#image:1: {held.strip()} has imported it for more than an hour\n"
    subprocess.run([*get[:2], "release"], env=environment, check=True)
    assert (tmp_path / "cache/images/0123").read_text() == "whole\n"


@pytest.mark.parametrize(
    ("settings", "unknown"),
    [
        (
            dict.fromkeys(
                ("ENROOT_UNSHARE_IPC", "ENROOT_UNSHARE_NET", "ENROOT_UNSHARE_PID", "ENROOT_UNSHARE_UTS"), True
            ),
            [],
        ),
        ({"ENROOT_ALLOW_HTTP": True, "NVIDIA_VISIBLE_DEVICES": "all", "https_proxy": "http://proxy:3128"}, []),
        ({"ENROOT_UNSHARE_NETS": True, "ENROOT_UNSHARE_NET": True}, ["ENROOT_UNSHARE_NETS"]),
    ],
)
def test_settings_of_enroot_and_of_its_next_release_are_taken(settings: dict[str, Any], unknown: list[str]) -> None:
    assert unknown_settings(cluster(enroot_conf=settings)["n1"]) == unknown
