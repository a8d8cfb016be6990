# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of a node and a login host, built where no systemd runs and before there is a controller."""

from __future__ import annotations

import json

import pytest
from images import Tree, bare_tree
from lab import Lab

NODE, LOGIN = "img-node01", "img-login"

SECRETS = {
    "/etc/munge/copy/munge.key": "munge key",
    "/etc/slurm/slurm.key": "key of Slurm",
    "/etc/slurm/slurmdbd.conf": "password of the database",
    "/opt/deploy": "private key",
    "/root/.aws/credentials": "credentials of a cloud",
    "/etc/enroot/.credentials": "credentials",
}
"""What the test puts into a tree, with what the scan says of it."""


def identities(tree: Tree) -> str:
    """What a tree has that differs between hosts."""
    paths = "/etc/ssh/ssh_host_* /etc/munge/munge.key /var/lib/systemd/random-seed /var/lib/apt/lists/*"
    return str(tree.command(f"ls -d {paths} 2>/dev/null; cat /etc/machine-id"))


def test_nothing_runs_and_the_units_are_enabled(node: Tree) -> None:
    processes = [line.split() for line in node.command("ps -e -o stat=,comm=").split("\n")]
    running = {name for state, name, *_defunct in processes if not state.startswith("Z")}
    assert running <= {"sleep", "sh", "ps"}
    for unit in ("munge", "slurmd", "scratch.mount", "prometheus-node-exporter", "gpucluster-host-keys"):
        assert node.command(f"systemctl is-enabled {unit}") == "enabled"
    assert "img-ctl:6817" in node.command("cat /etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf")
    assert "pam_slurm_adopt" in node.command("cat /etc/pam.d/sshd")
    assert node.command("ls -d /scratch") == "/scratch"
    packages = "apptainer enroot nvslurm-plugin-pyxis nftables"
    assert node.command(f"dpkg-query -W -f '${{db:Status-Status}} ' {packages}").split() == ["installed"] * 4
    assert "/usr/local/share/ca-certificates/gpucluster-registry.crt" in node.command("ls /usr/local/share/ca-cert*/*")
    assert node.command("cat /etc/modules-load.d/gpucluster-nvidia.conf | tail -n 1") == "overlay"
    assert "held" in node.command("dpkg-query --show --showformat='${db:Status-Want} ${db:Status-Status}' slurmd") or (
        "slurmd" in node.command("apt-mark showhold")
    )


def test_the_image_has_no_identity_and_no_secret(node: Tree) -> None:
    assert identities(node) == ""
    assert node.command("slurm-image-scan") == ""


def test_the_image_names_its_host_among_the_others_only(node: Tree) -> None:
    trees = "/etc /usr/local /var/lib/gpucluster-slurm"
    named = node.command(f"grep -rlwE '{NODE}|10[.]213[.]7[.]101' {trees} || true").split()
    other = node.command(f"grep -rlwE 'img-node02|10[.]213[.]7[.]102' {trees} || true").split()
    assert named == other


def test_a_second_build_and_check_mode_change_nothing(node: Tree) -> None:
    for arguments in (["--check", "--diff"], []):
        run = node.build(*arguments)
        assert (run.rc, run.failed, run.changed, run.warnings) == (0, {}, {}, [])


def test_the_list_of_what_is_left_is_for_programs_as_well(node: Tree) -> None:
    run = node.builds[0]
    by_task = {task.rpartition(" : ")[2]: result for _host, task, result in run.results}
    shown = by_task["Show what the image does not have"]["msg"]
    stats = by_task["Return what the image does not have"]["ansible_stats"]["data"]["slurm_image"]
    for text in ("munge key", "registration"):
        assert text in "\n".join(shown)
        assert text in json.dumps(stats["left"])
    assert (stats["host"], stats["slurm"][:5]) == (NODE, node.lab.release)


def test_only_the_tree_is_touched(node: Tree) -> None:
    # Tasks on the control host check the model, in the name of the first host of the cluster.
    contacted = {host for host, _task, result in node.builds[0].results if "ansible_facts" in result}
    assert contacted == {NODE}
    assert {*node.builds[0].changed} == {NODE}
    assert node.lab.host(node.lab.controller).run("dpkg-query --show munge").rc != 0


def test_secrets_fail_the_build_by_path_and_kind(node: Tree) -> None:
    texts = {
        "private key": f"-----BEGIN PRIVATE KEY-----\n{'x' * 64}",
        "password of the database": "StoragePass=topsecret",
        "credentials of a cloud": "aws_secret_access_key=topsecret",
    }
    for path, kind in SECRETS.items():
        node.command(f"mkdir -p $(dirname {path}) && echo '{texts.get(kind, 'topsecret')}' > {path}")
    try:
        run = node.build()
        (message,) = run.failed[NODE]
        for path, kind in SECRETS.items():
            assert f"{path}: " in message
            assert kind in message
        assert "topsecret" not in run.output
        accepted = json.dumps({"image_accepted": dict.fromkeys(SECRETS, "of a test")})
        assert node.build("--extra-vars", accepted).rc == 0
    finally:
        node.command(f"rm -r {' '.join(SECRETS)} /etc/munge/copy")
    assert node.command("slurm-image-scan") == ""


def test_an_image_of_a_login_host(lab: Lab) -> None:
    with bare_tree(lab, LOGIN) as tree:
        predicted = tree.build("--check", "--diff")
        assert (predicted.rc, predicted.failed) == (0, {})
        assert tree.command("ls /etc/systemd/system/sackd.service.d 2>/dev/null || echo none") == "none"
        run = tree.build()
        assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
        assert tree.command("systemctl is-enabled munge sackd") == "enabled\nenabled"
        assert "img-ctl:6817" in tree.command("cat /etc/systemd/system/sackd.service.d/gpucluster-slurm.conf")
        assert identities(tree) == ""


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", "image_of: found nothing"),
        ("img-node1", "did you mean 'img-node10'?"),
        ("img-ctl", "is a controller or the database host"),
    ],
)
def test_what_has_no_image_is_refused_before_anything_is_contacted(lab: Lab, name: str, error: str) -> None:
    run = lab.playbook("image", f"--extra-vars=image_of={name}")
    assert run.rc != 0
    assert error in str(run.failed)


def test_other_playbooks_refuse_the_variable(lab: Lab) -> None:
    run = lab.playbook("site", "--extra-vars=slurm_image=build", "--check")
    assert "slurm_image: found build" in str(run.failed)
