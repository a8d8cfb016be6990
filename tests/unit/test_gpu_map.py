# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which job has which GPU: slurm-prolog, slurm-epilog and slurm-gpu-metrics together, on a node of gpu_nodes.py."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics import gpu_jobs
from gpu_nodes import MODEL, Node, attributions

pytestmark = pytest.mark.once


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path, monkeypatch)
    node.collect()
    return node


def test_the_map_has_a_job_from_its_prolog_to_its_epilog(node: Node) -> None:
    node.prolog(7, "0,1")
    assert node.map() == {"0": "7\n", "1": "7\n"}
    node.epilog(7)
    assert node.map() == {}
    assert [*(node.run / "gpu-job-data").iterdir()] == []
    assert node.log() == ""


def test_root_alone_writes_and_programs_of_others_read(node: Node) -> None:
    """Who can open a lock can hold it, and a job's data is for slurm-gpu-metrics."""
    node.prolog(7, "0")
    modes = {name: (node.run / name).stat().st_mode & 0o777 for name in ("gpu-jobs", "gpu-job-data", "locks")}
    assert modes == {"gpu-jobs": 0o755, "gpu-job-data": 0o700, "locks": 0o700}
    assert (node.run / "gpu-jobs/0").stat().st_mode & 0o777 == 0o644


def test_jobs_share_a_gpu(node: Node) -> None:
    """As with gres/shard and gres/mps."""
    node.prolog(7, "1")
    node.prolog(8, "1")
    assert node.map() == {"1": "7\n8\n"}
    node.epilog(7)
    assert node.map() == {"1": "8\n"}


def test_a_job_without_gpus_costs_no_process(node: Node) -> None:
    node.put("flock", f"touch {node.directory}/locked; exit 1")
    node.prolog(7, None)
    node.epilog(7)
    assert not (node.directory / "locked").exists()
    assert node.map() == {}


def test_a_place_of_slurm_leads_to_a_gpu_by_its_minor_number(node: Node) -> None:
    """slurmd has the files in the order 0, 1, 2, and the driver has given minor number 0 to the GPU that is last."""
    node.have([MODEL] * 3, ["/dev/nvidia[0-1]", "/dev/nvidia2"], minors=[2, 1, 0])
    node.configuration.touch()
    node.collect()
    assert (node.run / "gpu-devices").read_text() == "0 2 /dev/nvidia0\n1 1 /dev/nvidia1\n2 0 /dev/nvidia2\n"
    node.prolog(7, "0")
    assert node.map() == {"2": "7\n"}


def test_slurm_counts_by_its_own_list(node: Node) -> None:
    """The lines of gres.conf name the files in another order."""
    node.have([MODEL] * 4, ["/dev/nvidia3", "/dev/nvidia[0,2]", "/dev/nvidia1"])
    node.configuration.touch()
    node.collect()
    node.prolog(7, "0,3")
    assert node.map() == {"1": "7\n", "3": "7\n"}


def test_mig_instances_have_the_number_of_their_gpu_instance(node: Node) -> None:
    caps = "/dev/nvidia-caps/nvidia-cap"
    node.have(
        [MODEL, f"{MODEL}|3g.40gb 1g.10gb"],
        ["/dev/nvidia0", f"/dev/nvidia1,{caps}30,{caps}31", f"/dev/nvidia1,{caps}66,{caps}67"],
    )
    minors = node.root / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir()
    minors.write_text(
        "config 1\nmonitor 2\ngpu0/gi1/access 12\n"
        "gpu1/gi1/access 30\ngpu1/gi1/ci0/access 31\ngpu1/gi2/access 66\ngpu1/gi2/ci0/access 67\n"
    )
    node.configuration.touch()
    node.collect()
    node.prolog(7, "0,2")
    assert node.map() == {"0": "7\n", "1.2": "7\n"}
    node.start_steps(7)
    assert attributions(node.collect()) == {"7": {"0", "1.2"}}


def test_slurmd_is_asked_once_for_each_change_of_its_files(node: Node) -> None:
    runs = node.directory / "slurmd-runs"
    node.collect()
    assert runs.read_text() == "run\n"
    (node.configuration.parent / "gres.conf").touch()
    node.collect()
    node.collect()
    assert runs.read_text() == "run\nrun\n"


def test_a_change_while_slurmd_prints_its_list_is_seen(node: Node) -> None:
    """The list can be that of the files before."""
    line = "slurmd: Gres Name=gpu Type=a Count=1 Index=0 ID=1 File=/dev/nvidia0 Links=(null)"
    node.put("slurmd", f"echo run >>{node.directory}/slurmd-runs; touch {node.configuration}; echo '{line}'")
    node.configuration.touch()
    node.collect()
    node.collect()
    assert (node.directory / "slurmd-runs").read_text() == "run\nrun\nrun\n"


def test_a_slurmd_that_says_nothing_is_not_asked_each_time(node: Node) -> None:
    node.put("slurmd", f"echo run >>{node.directory}/slurmd-runs; exit 1")
    node.configuration.touch()
    found = [node.collect(), node.collect()][1]
    assert (node.directory / "slurmd-runs").read_text() == "run\nrun\n"
    assert ("gpucluster_gpu_query_failures_total", {"query": "slurmd"}, 1) in found


@pytest.mark.parametrize("changed", ["conf/slurm.conf", "conf/gres.conf", "run/gpus-changed"])
def test_a_prolog_takes_no_list_that_slurmd_may_have_replaced(node: Node, changed: str) -> None:
    """It runs between the start of slurmd and the next run of slurm-gpu-metrics, which then gives the job its GPUs."""
    node.have([MODEL] * 2, ["/dev/nvidia1", "/dev/nvidia0"])
    (node.directory / changed).touch()
    node.prolog(7, "0")
    assert node.map() == {}
    node.start_steps(7)
    assert attributions(node.collect()) == {"7": {"1"}}
    assert node.map() == {"1": "7\n"}


def test_before_the_first_list_of_slurmd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job starts right after a boot."""
    node = Node(tmp_path, monkeypatch)
    node.prolog(7, "1")
    assert node.map() == {}
    node.collect()
    assert node.map() == {"1": "7\n"}
    node.epilog(7)
    assert node.map() == {}


def test_names_that_are_added_make_a_job_no_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its prolog was killed before the first list of slurmd."""
    node = Node(tmp_path, monkeypatch)
    node.prolog(7, "1")
    node.age(7, 15)
    assert attributions(node.collect()) == {"7": {"1"}}
    assert (node.run / "gpu-job-data/7").stat().st_mtime < time.time() - 14


def test_a_job_that_lost_its_epilog_is_gone_when_its_steps_are(node: Node) -> None:
    node.prolog(7, "0")
    node.age(7, 3600)
    node.start_steps(7)
    assert attributions(node.collect()) == {"7": {"0"}}
    node.start_steps()
    assert attributions(node.collect()) == {}
    assert node.map() == {}


def test_a_job_has_its_gpus_until_slurmd_has_started_its_step(node: Node) -> None:
    node.prolog(7, "0")
    node.age(7, 15)
    assert attributions(node.collect()) == {"7": {"0"}}
    node.age(7, 25)
    assert attributions(node.collect()) == {}
    # A slow node: the step starts after this time.
    node.start_steps(7)
    assert attributions(node.collect()) == {"7": {"0"}}


def test_data_of_a_lost_epilog_is_removed_after_a_day(node: Node) -> None:
    node.prolog(7, "0")
    node.age(7, 23 * 3600)
    node.collect()
    assert (node.run / "gpu-job-data/7").exists()
    node.age(7, 25 * 3600)
    node.collect()
    assert not (node.run / "gpu-job-data/7").exists()


def test_a_job_runs_again_on_other_gpus(node: Node) -> None:
    """It was requeued, its first epilog was lost, and it runs here again."""
    node.prolog(7, "0,1")
    node.prolog(7, "1")
    assert node.map() == {"1": "7\n"}
    node.prolog(7, None)
    node.start_steps(7)
    assert node.map() == {}
    assert attributions(node.collect()) == {}


def test_a_socket_in_a_directory_of_users_is_no_step(node: Node) -> None:
    node.prolog(7, "0")
    node.age(7, 3600)
    node.start_steps(7)
    node.spool.chmod(0o777)
    assert attributions(node.collect()) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_the_directory_can_be_of_slurms_user_and_the_socket_cannot(node: Node) -> None:
    """As with Debian's packages, whose /var/lib/slurm/slurmd is of user slurm."""
    node.prolog(7, "0")
    node.age(7, 3600)
    node.start_steps(7)
    os.chown(node.spool, 12345, -1)
    assert attributions(node.collect()) == {"7": {"0"}}
    (socket,) = node.spool.iterdir()
    os.chown(socket, 12345, -1)
    assert attributions(node.collect()) == {}


@pytest.mark.parametrize("stage", ["prolog", "epilog"])
def test_a_failure_fails_no_job(node: Node, stage: str) -> None:
    """Somebody holds the lock too long. The next run of slurm-gpu-metrics leaves no line of the job."""
    if stage == "epilog":
        node.prolog(7, "0")
    node.put("flock", "exit 1")
    (node.epilog(7) if stage == "epilog" else node.prolog(7, "0"))
    what = "still has" if stage == "epilog" else "does not have"
    assert node.log() == f"-t slurm-{stage} -- job 7: the map of GPUs {what} this job\n"
    assert attributions(node.collect()) == {}
    assert node.map() == {}


def test_a_full_disk_fails_no_job_and_leaves_no_earlier_run(node: Node) -> None:
    node.prolog(7, "0")
    text = node.text("prolog").replace('>"$gpu_data" || return', ">/dev/full || return")
    assert text != node.text("prolog")
    subprocess.run(["bash", "-c", text], env=node.variables(7, "1"), check=True, stderr=subprocess.DEVNULL)
    assert "does not have this job" in node.log()
    node.start_steps(7)
    assert attributions(node.collect()) == {}


def test_a_lock_that_somebody_holds_leaves_out_jobs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.prolog(7, "0")
    monkeypatch.setattr(gpu_jobs, "LOCK_SECONDS", 0.1)
    with open(node.run / "locks/gpus", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = node.collect()
    names = {name for name, _labels, _value in found}
    assert "DCGM_FI_DEV_GPU_TEMP" in names
    assert not names & {"gpucluster_gpu_allocated", "slurm_job_memory_usage_gpu"}


@pytest.mark.parametrize("gpus", ["0;reboot", "a[$(reboot)]", "../x", "0 1"])
def test_nothing_else_than_places_is_taken(node: Node, gpus: str) -> None:
    node.put("reboot", f"touch {node.directory}/rebooted")
    node.prolog(7, gpus)
    assert node.map() == {}
    assert not (node.directory / "rebooted").exists()
    assert "does not have this job" in node.log()


def test_names_from_outside_stay_in_their_lines(node: Node) -> None:
    node.prolog(7, "0", SLURM_JOB_ACCOUNT='a"b\\\nnames=1\nuser=root', SLURM_JOB_USER="DOMAIN\\müller")
    node.start_steps(7)
    found = node.collect()
    (labels,) = [labels for name, labels, _value in found if name == "slurm_job_power_gpu"]
    assert labels["account"] == r"a\"b\\names=1user=root"
    assert labels["user"] == r"DOMAIN\\müller"
    assert labels["gpu"] == "0"


class Model:
    """What is true on a node: the jobs that run, and their GPUs."""

    def __init__(self, node: Node, seed: int) -> None:
        self.node = node
        self.random = random.Random(seed)
        self.running: dict[int, str] = {}
        """Jobs with steps, whose prolog has ended."""
        self.lost: set[int] = set()
        """Jobs that have ended without an epilog."""
        self.next = 1

    def gpus(self) -> str:
        """GPUs for a job: most are free, and some are shared."""
        return ",".join(str(gpu) for gpu in sorted(self.random.sample(range(4), self.random.randint(1, 2))))

    def start(self, job: int) -> None:
        """A job starts, or starts again."""
        gpus = self.gpus()
        self.node.prolog(job, gpus)
        self.running[job] = gpus
        self.lost.discard(job)

    def kill_prolog(self, job: int) -> None:
        """The prolog is killed at any time, and the job does not start."""
        process = subprocess.Popen(
            ["bash", "-c", self.node.text("prolog")],
            env=self.node.variables(job, self.gpus()),
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(self.random.uniform(0, 0.02))
        os.killpg(process.pid, 9)
        process.wait()
        self.lost.add(job)

    def step(self) -> None:
        """Something happens."""
        running = sorted(self.running)
        what = self.random.choice(["start", "start", "end", "end", "lose", "requeue", "kill", "again", "late"])
        if what == "start" or not running:
            self.start(self.next)
            self.next += 1
        elif what == "kill":
            self.kill_prolog(self.next)
            self.next += 1
        elif what == "again" and self.lost:
            self.start(self.random.choice(sorted(self.lost)))
        elif what == "late" and self.lost:
            job = self.random.choice(sorted(self.lost))
            self.node.epilog(job)
            self.lost.discard(job)
        else:
            job = self.random.choice(running)
            del self.running[job]
            if what == "lose":
                self.lost.add(job)
            else:
                self.node.epilog(job)
            if what == "requeue":
                self.start(job)

    def expected(self) -> dict[str, set[str]]:
        """The GPUs of each job that runs."""
        return {str(job): set(gpus.split(",")) for job, gpus in self.running.items()}


@pytest.mark.parametrize("seed", range(8))
def test_no_wrong_attribution_after_any_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Jobs start, end, are requeued, and lose their prolog or epilog. Then each GPU has the jobs that run on it."""
    node = Node(tmp_path, monkeypatch)
    node.have([MODEL] * 4, ["/dev/nvidia[0-3]"])
    node.configuration.touch()
    node.collect()
    model = Model(node, seed)
    for _round in range(5):
        for _event in range(8):
            model.step()
        node.start_steps(*model.running)
        for path in (node.run / "gpu-job-data").iterdir():
            node.age(int(path.name), 60)
        assert attributions(node.collect()) == model.expected()
        by_map: dict[str, set[str]] = {}
        for name, jobs in node.map().items():
            for job in jobs.split():
                by_map.setdefault(job, set()).add(name)
        assert by_map == model.expected()
