# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes without state: one with a read-only root and the mounts of docs/admin/images.md, one that is copied anew.

A machine with an overlay in memory is in test_machine.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from images import boot, boot_read_only, cluster_key, power_off
from lab import ROOT, Lab, container, podman

READ_ONLY, COPY = "img-node01", "img-node02"


def documented() -> tuple[str, list[str]]:
    """The file for tmpfiles.d that the page has, and the directories on which it has a tmpfs mounted."""
    (text,) = re.findall(r"```\n(# tmpfs on\n.*?)```", (ROOT / "docs/admin/images.md").read_text(), re.DOTALL)
    comments = re.findall(r"^#.*$", text, re.MULTILINE)
    return text, re.findall(r"/[a-z/-]+", "\n".join(comments))


def on(node: str, command: str) -> str:
    """The output of a shell command on a node."""
    return str(podman("exec", container(node), "sh", "-c", command).strip())


@pytest.fixture(name="boots", scope="module")
def both_boots(lab: Lab, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The jobs of two boots, each with the loss of power before. The nodes run at the end."""
    jobs = []
    try:
        for number in range(2):
            power_off(READ_ONLY, COPY)
            # Slurm would notice it only after a while, and start a job there.
            lost = f"scontrol update nodename={READ_ONLY},{COPY} state=down reason=power"
            lab.command(lab.controller, lost)
            boot_read_only(lab, READ_ONLY, *documented(), tmp_path_factory.mktemp("files"))
            boot(lab, image, COPY, cluster_key(lab))
            for node in (READ_ONLY, COPY):
                lab.wait_until_idle(lab.controller, node, 600)
            script = f"echo $SLURM_JOB_ID; test $(cat /run/noted-jobs) = $SLURM_JOB_ID; echo {number} >/var/log/seen"
            job = f"timeout 180 srun -N2 --nodelist={READ_ONLY},{COPY} sh -ec '{script}'"
            first, second = lab.command(lab.controller, job).split()
            assert first == second
            jobs.append(first)
        yield jobs
    finally:
        power_off(READ_ONLY, COPY)


def test_records_of_jobs_outlive_a_boot(lab: Lab, boots: list[str]) -> None:
    for job in boots:
        lab.wait_for(lab.controller, f"sacct --jobs={job} -XnP -o NNodes,State", "2|COMPLETED")


def failed(host: str) -> set[str]:
    """The units that have failed on a host."""
    return {line.split()[0] for line in on(host, "systemctl --failed --no-legend --plain").splitlines()}


@pytest.mark.usefixtures("boots")
@pytest.mark.parametrize(("host", "without"), [(READ_ONLY, {"ssh.service"}), (COPY, set())])
def test_all_units_run_but_sshd_without_host_keys(lab: Lab, host: str, without: set[str]) -> None:
    """Other units fail in every container of a busy machine."""
    assert failed(host) - failed(lab.controller) - {"gpucluster-host-keys.service"} == without
    assert on(host, "test -e /run/health-check-ran; cat /var/log/seen") == "1"


@pytest.mark.usefixtures("boots")
def test_a_failed_health_check_drains_a_node_and_its_end_resumes_it(lab: Lab) -> None:
    on(READ_ONLY, "systemctl stop scratch.mount; /usr/local/sbin/slurm-health || :")
    assert lab.command(lab.controller, f"sinfo -h -n {READ_ONLY} -o %t") == "drain"
    on(READ_ONLY, "systemctl start scratch.mount; /usr/local/sbin/slurm-health")
    lab.wait_until_idle(lab.controller, READ_ONLY)


@pytest.mark.usefixtures("boots")
@pytest.mark.parametrize("host", [READ_ONLY, COPY])
def test_a_job_runs_in_a_container(host: str) -> None:
    job = f"timeout 180 srun --nodelist={host} --container-image=debian env"
    assert "PYXIS_container_image=debian" in on(host, job)


@pytest.mark.usefixtures("boots")
def test_a_root_that_cannot_be_written() -> None:
    assert on(READ_ONLY, "touch /usr/written 2>&1 || :").endswith("Read-only file system")
