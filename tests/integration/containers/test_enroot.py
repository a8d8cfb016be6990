# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real enroot and pyxis, where ENROOT_PACKAGES and PYXIS_PACKAGE name their packages: what a cluster adds to the
user's guide, several nodes, several users, and what jobs leave behind.

The tests run in this order.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from debs import NVIDIA_CLI, PLUGIN, Site, as_user
from images import IMAGE
from lab import Lab

DIRECTORIES = "/run/enroot/2001 /var/lib/enroot/2001"
IMPORTS = "/var/lib/pyxis/2001"
MISSING = "registry:5000#missing:13"


pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture(autouse=True)
def clean(lab: Lab) -> Iterator[None]:
    """Users without containers after each test."""
    yield
    for user in ("alice", "bob"):
        as_user(lab, "rm -rf .cache .config .local .parallel *.sqsh ran", user)


def in_container(lab: Lab, options: str, command: str, user: str = "alice", rc: int = 0) -> str:
    """What a command prints in containers, without what pyxis says."""
    return str(as_user(lab, f"timeout 180 srun {options} sh -c {shlex.quote(command)} 2>/dev/null", user, rc))


def see_that_nothing_is_left(lab: Lab, host: str) -> None:
    """Wait until a node has nothing of alice's jobs; of pyxis' own, an empty directory stays."""
    listing = f"{{ ls -d {DIRECTORIES} {IMPORTS}/*; ps --no-headers -o comm -u alice; grep enroot /proc/mounts; }}"
    lab.wait_for(host, f"echo left: $({listing} 2>/dev/null | wc -l).", "left: 0.")


def test_each_node_has_a_container_of_its_own(lab: Lab) -> None:
    where = "read name </proc/sys/kernel/hostname; echo $name >/mine; sleep 3; test -e /.lock && cat /mine"
    assert sorted(in_container(lab, f"-N2 --container-image={IMAGE}", where).split()) == ["box01", "box02"]
    assert as_user(lab, "enroot list") == ""


def test_a_job_leaves_nothing_on_its_node(lab: Lab) -> None:
    in_container(lab, f"-w box01 --container-image={IMAGE}", "true")
    see_that_nothing_is_left(lab, "box01")


def test_a_job_that_is_cancelled_leaves_nothing_either(lab: Lab) -> None:
    script = f"srun --container-image={IMAGE} sleep 300"
    job = as_user(lab, f"sbatch --parsable -w box01 -o /dev/null --wrap {shlex.quote(script)}")
    lab.wait_for("box01", "ls /var/lib/enroot/2001/containers; pgrep -xu alice sleep", f"pyxis_{job}.0")
    as_user(lab, f"scancel {job}")
    see_that_nothing_is_left(lab, "box01")


def test_users_have_containers_of_the_same_name_and_see_their_own(lab: Lab) -> None:
    for user in ("alice", "bob"):
        said = in_container(
            lab, f"--container-image={IMAGE} --container-name=work", f"echo {user} >/whose; cat /whose", user
        )
        assert said == user
    for user in ("alice", "bob"):
        assert as_user(lab, "enroot list", user) == "pyxis_work"
        assert in_container(lab, "--container-name=work", "cat /whose", user) == user
    for path in (".local/share/enroot", ".cache/enroot"):
        assert as_user(lab, f"stat -c %a {path}") == "700"


def test_users_do_not_see_each_others_jobs(lab: Lab) -> None:
    script = f"srun --container-image={IMAGE} sleep 300"
    job = as_user(lab, f"sbatch --parsable -w box01 -o /dev/null --wrap {shlex.quote(script)}")
    lab.wait_for("box01", "pgrep -xu alice sleep", "\n")
    listing = f"for d in {DIRECTORIES} {IMPORTS} /proc/$(pgrep -xu alice sleep)/root; do ls $d && echo seen; done; true"
    assert "seen" not in as_user(lab, f"timeout 180 srun -w box01 sh -c {shlex.quote(listing)} 2>&1", "bob")
    as_user(lab, f"scancel {job}")


def test_a_directory_that_somebody_else_has_made_is_not_used(lab: Lab) -> None:
    lab.command("front", "rm -rf /var/lib/enroot/2001")
    as_user(lab, "mkdir -m 777 /var/lib/enroot/2001", "bob")
    try:
        said = as_user(lab, f"enroot import -o image.sqsh docker://{IMAGE} 2>&1")
        assert "/var/lib/enroot/2001 is not a directory of alice" in said
        assert lab.command("front", "ls -A /var/lib/enroot/2001") == ""
    finally:
        lab.command("front", "rm -r /var/lib/enroot/2001")


WRONG = {
    "tag": f"--container-image={MISSING}",
    "host": "--container-image=nowhere.invalid#debian:13",
    "file": "--container-image=./none.sqsh",
    "broken file": "--container-image=./broken.sqsh",
    "directory": f"--container-image={IMAGE} --container-workdir=/none",
    "mount": f"--container-image={IMAGE} --container-mounts=/none:/data",
    "name": "--container-name=none",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_container_that_cannot_start_does_not_run_its_command_on_the_host(lab: Lab, what: str) -> None:
    as_user(lab, "head -c 9999 /bin/bash >broken.sqsh")
    as_user(lab, f"timeout 180 srun -w box01 {WRONG[what]} --container-mount-home touch ~/ran 2>&1", rc=1)
    assert as_user(lab, "ls -d ran", rc=2) == ""
    assert as_user(lab, "timeout 180 srun -w box01 hostname") == "box01"


def test_mpi_and_pytorch_in_containers_on_two_nodes(lab: Lab) -> None:
    for mpi, names in {"pmix": "PMIX_RANK", "pmi2": "PMI_RANK"}.items():
        said = in_container(lab, f"-N2 -n4 --mpi={mpi} --container-image={IMAGE}", f"echo ${names}")
        assert sorted(said.split()) == ["0", "1", "2", "3"]
    pmix = f"SLURM_PMIX_TMPDIR=/var/tmp timeout 180 srun -N2 --mpi=pmix --container-image={IMAGE}"
    assert len(as_user(lab, f"{pmix} sh -c 'ls -d /var/tmp/spmix_appdir_2001_*' 2>/dev/null").split()) == 2
    torch = f"PYTORCH_VERSION=2 timeout 180 srun -N2 -n4 --container-env=PYTORCH_VERSION --container-image={IMAGE}"
    said = as_user(lab, f"{torch} sh -c 'echo $MASTER_ADDR $WORLD_SIZE $RANK $LOCAL_RANK' 2>/dev/null")
    assert sorted(said.splitlines()) == ["box01 4 0 0", "box01 4 1 1", "box01 4 2 0", "box01 4 3 1"]


def test_containers_have_the_sites_variables_and_infiniband_where_there_is_some(lab: Lab) -> None:
    """The device of the first node is a stand-in."""
    lab.command("box01", "mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/uverbs0 c 231 192")
    try:
        said = in_container(lab, f"-N2 --container-image={IMAGE}", "printenv HINT; ls /dev/infiniband/uverbs0; true")
        assert sorted(said.splitlines()) == ["/dev/infiniband/uverbs0", "two words", "two words"]
    finally:
        lab.command("box01", "rm -r /dev/infiniband")


def test_an_image_of_nvidia_needs_nvidia_container_cli_in_jobs_with_gpus_only(lab: Lab) -> None:
    """The container gets the variable of these images. The node has GPUs."""
    image = f"--container-image={IMAGE} --container-name=nvidia --container-remap-root"
    in_container(lab, f"-w box01 {image}", "echo NVIDIA_VISIBLE_DEVICES=all >>/etc/environment")
    lab.command("box01", f"mv {NVIDIA_CLI} {NVIDIA_CLI}.away")
    try:
        said = in_container(lab, "-w box01 --container-name=nvidia", "echo $NVIDIA_VISIBLE_DEVICES")
        assert said == "void"
        said = as_user(lab, "timeout 180 srun -w box01 --gres=gpu:1 --container-name=nvidia true 2>&1", rc=1)
        assert "Command not found: nvidia-container-cli" in said
    finally:
        lab.command("box01", f"mv {NVIDIA_CLI}.away {NVIDIA_CLI}")


def test_a_full_disk_gives_one_sentence_and_no_half_is_left(lab: Lab) -> None:
    data = "/home/alice/.local/share/enroot"
    as_user(lab, f"mkdir -p {data}")
    lab.command("box01", f"mount -t tmpfs -o size=20m,uid=2001,mode=0700 small {data}")
    try:
        options = f"-w box01 --container-image={IMAGE} --container-name=half"
        said = as_user(lab, f"timeout 180 srun {options} true 2>&1", rc=1)
        assert said.count(f"enroot: no space is left in {data}, or your quota is used up") == 1
        assert len(said.splitlines()) < 20
        lab.wait_for("box01", f"echo left: $(ls -A {data}).", "left: .")
    finally:
        lab.command("box01", f"umount {data}")


def test_a_container_without_a_name_is_listed_and_can_be_attached_to(lab: Lab) -> None:
    script = f"srun --container-image={IMAGE} sh -c 'touch /mine; sleep 300'"
    job = as_user(lab, f"sbatch --parsable -w box01 -o /dev/null --wrap {shlex.quote(script)}")
    lab.wait_for("box01", "pgrep -xu alice sleep", "\n")
    step = f"srun --jobid={job} --overlap"
    assert f"pyxis_{job}.0" in as_user(lab, f"{step} enroot list -f")
    assert as_user(lab, f"{step} --container-name={job}.0 ls /mine 2>/dev/null") == "/mine"
    as_user(lab, f"scancel {job}")


def test_a_container_is_saved_without_its_mount_points(lab: Lab) -> None:
    make = "--container-mounts=/tmp:/new/mount --container-save=saved.sqsh"
    in_container(lab, f"-w box01 --container-image={IMAGE} {make}", "echo kept >/file")
    assert in_container(lab, "--container-image=./saved.sqsh", "cat /file; ls /new") == "kept"


def test_a_step_attaches_to_a_running_container_beside_one_without_a_name(lab: Lab) -> None:
    """It would not see a mount of the running one in a second container."""
    mount = "mkdir -p /seen; mount -t tmpfs none /seen; touch /seen/mine; sleep 300"
    named = f"srun --overlap --container-image={IMAGE} --container-name=work --container-remap-root sh -c '{mount}'"
    script = f"#!/bin/sh\nsrun --overlap --container-image={IMAGE} sleep 300 & {named}"
    job = as_user(lab, f"sbatch --parsable -w box01 -n2 -o /dev/null <<'END'\n{script}\nEND")
    lab.wait_for("box01", "echo running: $(pgrep -cxu alice sleep).", "running: 2.")
    step = f"timeout 180 srun --jobid={job} --overlap"
    listed = as_user(lab, f"{step} enroot list").split()
    assert {name.partition(".")[0] for name in listed} == {f"pyxis_{job}", "pyxis_work"}
    assert "<unknown>" not in as_user(lab, f"{step} enroot list -f")
    assert as_user(lab, f"{step} --container-name=work ls /seen 2>/dev/null") == "mine"
    assert as_user(lab, f"{step} --container-name=work:no_exec ls /seen 2>/dev/null") == ""
    as_user(lab, f"scancel {job}")


def test_a_machine_type_on_which_no_container_starts_is_found_before_jobs_need_it(lab: Lab, real: Site) -> None:
    """The check of a changed line runs on one node of each machine type. The previous line is restored."""
    hook = "/etc/enroot/hooks.d/60-broken.sh"
    line = lab.command("front", f"grep {PLUGIN} /etc/slurm/plugstack.conf")
    lab.script("box02", f"cat >{hook}; chmod 755 {hook}", b"#!/bin/sh\necho the hook is broken >&2\nexit 1\n")
    try:
        run = real.run("--skip-tags=preflight,mig", tags="controller", pyxis_arguments=["execute_entrypoint=0"])
    finally:
        lab.command("box02", f"rm {hook}")
    for text in ("no container has run after the change", "box02", "the hook is broken"):
        assert text in str(run.failed)
    assert lab.command("front", f"grep {PLUGIN} /etc/slurm/plugstack.conf") == line
    assert in_container(lab, f"-N2 --container-image={IMAGE}", "test -e /.lock && echo inside") == "inside\ninside"


def test_where_pyxis_is_optional_the_command_runs_on_the_host(lab: Lab) -> None:
    """Slurm ignores what an optional plugin says. Tests after this one need the line as it was."""
    nodes = ("box01", "box02")

    def wait_for(line: str) -> None:
        for host in nodes:
            lab.wait_for(host, "cat /run/slurm/conf/plugstack.conf", f"{line} {PLUGIN}")

    with lab.configuration_kept():
        lab.command("front", "sed -i 's/^required/optional/' /etc/slurm/plugstack.conf && scontrol reconfigure")
        wait_for("optional")
        said = as_user(lab, f"timeout 180 srun -w box01 --container-image={MISSING} sh -c 'hostname; touch ran' 2>&1")
    wait_for("required")
    assert "pyxis: failed to import docker image" in said
    assert "returned error code: 404 Not Found" in said
    assert "box01" in said.splitlines()
    assert as_user(lab, "ls ran") == "ran"
