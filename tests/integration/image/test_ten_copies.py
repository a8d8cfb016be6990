# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ten nodes that are copies of one image, with what cloud-init would write: name, address and munge key."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from images import SSH_OPTIONS, boot, cluster_key, power_off
from lab import Lab, podman

REPLACED = "img-node05"


@pytest.fixture(scope="module", autouse=True)
def clean(lab: Lab) -> Iterator[None]:
    """The copies are removed at the end."""
    yield
    power_off(*lab.nodes)


def names(lab: Lab) -> list[str]:
    """The names of the hosts on which a job of all nodes runs."""
    return sorted(lab.command(lab.controller, f"timeout 180 srun -N{len(lab.nodes)} hostname").split())


def test_ten_copies_join_with_their_first_boot(lab: Lab, image: str) -> None:
    for node in lab.nodes:
        boot(lab, image, node, cluster_key(lab))
    for node in lab.nodes:
        lab.wait_until_idle(lab.controller, node)
    assert names(lab) == lab.nodes


@pytest.mark.usefixtures("image")
def test_copies_have_identities_of_their_own(lab: Lab) -> None:
    for what in ("cat /etc/machine-id", "cat /etc/ssh/ssh_host_ed25519_key.pub"):
        answers = [podman("exec", f"gpucluster-{node}", "sh", "-c", what).strip() for node in lab.nodes]
        assert len({*answers}) == len(lab.nodes)
        assert all(answers)


def test_a_node_is_replaced_while_jobs_run(lab: Lab, image: str) -> None:
    jobs = {}
    for node in lab.nodes:
        command = f"sbatch --parsable --output=/dev/null --no-requeue --nodelist={node} --wrap 'sleep 45'"
        jobs[node] = lab.command(lab.controller, command)
    lab.wait_for(lab.controller, "echo running: $(squeue -h -t running | wc -l)", f"running: {len(jobs)}")
    power_off(REPLACED)
    boot(lab, image, REPLACED, cluster_key(lab))
    assert lab.command(lab.controller, f"timeout 180 srun --overcommit --nodelist={REPLACED} hostname") == REPLACED
    for node, job in jobs.items():
        if node != REPLACED:
            lab.wait_for(lab.controller, f"scontrol show job {job}", "JobState=COMPLETED")
    # Slurm ends the job of the replaced node when it asks this node the next time.
    lab.command(lab.controller, f"scancel {jobs[REPLACED]}")


@pytest.mark.usefixtures("image")
def test_site_yml_has_nothing_to_install(lab: Lab) -> None:
    before = podman("exec", f"gpucluster-{lab.nodes[0]}", "dpkg-query", "--show")
    run = lab.playbook("site", "--limit=!img-login", "--skip-tags=validate", *SSH_OPTIONS)
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert podman("exec", f"gpucluster-{lab.nodes[0]}", "dpkg-query", "--show") == before
    # slurmd gets values that only the controller knows, sshd the host keys of others, node-exporter its address. What
    # is left to site.yml is in the list at the end of a build; a container proves the plugin of pyxis.
    tasks = {"Run slurmd with its settings", "Apply who may log in", "Run the services"}
    left = ("gpucluster.slurm.firewall ", "gpucluster.slurm.people ", "gpucluster.slurm.pyxis ")
    changed = {task for host in lab.nodes for task in run.changed.get(host, []) if not task.startswith(left)}
    assert {task.rpartition(" : ")[2] for task in changed} <= tasks
    again = lab.playbook("site", "--limit=!img-login", "--skip-tags=validate", *SSH_OPTIONS)
    assert (again.rc, again.failed, again.changed) == (0, {}, {})
    assert names(lab) == lab.nodes


def test_a_copy_with_the_key_of_another_cluster_says_so(lab: Lab, image: str) -> None:
    power_off(REPLACED)
    boot(lab, image, REPLACED, b"another key of at least 32 bytes, as munge wants it")
    said = "journalctl --no-pager --unit=slurm-first-boot-check"
    deadline = time.monotonic() + 120
    while "does not accept credentials of this host" not in podman("exec", f"gpucluster-{REPLACED}", *said.split()):
        assert time.monotonic() < deadline
        time.sleep(2)
