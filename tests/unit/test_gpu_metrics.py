# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm-gpu-metrics: answers of a real H200 and of stand-ins, calls that fail or hang, and the file that it writes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
import recordings
from ansible_collections.gpucluster.slurm.plugins.module_utils.language import hostlist
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics import (
    gpu_calls,
    gpu_driver,
    gpu_jobs,
    slurm_gpu_metrics,
)
from gpu_nodes import MODEL, Node, only, samples

pytestmark = pytest.mark.once

UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def place(root: Path, files: dict[str, str]) -> None:
    """Write files below a directory."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


# -- a real GPU ------------------------------------------------------------------------------------------------------


def test_a_real_gpu_has_all_series_of_the_dashboard(node: Node) -> None:
    """The answer of an H200 to the fields of the program. pmon of this recording is the stand-in's."""
    fields = [*gpu_driver.FIELDS]
    (node.directory / "answer").write_text(recordings.query_gpu(fields))
    place(node.root, {f"proc/driver/{path}": text for path, text in recordings.driver_files().items()})
    query = f"--query-gpu={','.join(fields)}"
    node.have([MODEL], ["/dev/nvidia0"])
    node.put(
        "nvidia-smi",
        f'test "$1" != {query} || exec cat {node.directory}/answer; exec python3 {node.directory}/smi.py "$@"',
    )
    place(node.directory, {"smi.py": "print('# gpu pid type sm mem command\\n    0 - - - - -')"})
    node.prolog(7, "0")
    found = node.collect()
    labels = {"gpu": "0", "UUID": UUID, "device": "nvidia0", "modelName": "NVIDIA H200", "hpc_job": "7"}
    names = ("GPU_TEMP", "POWER_USAGE", "SM_CLOCK", "GPU_UTIL", "FB_USED", "ECC_SBE_VOL_TOTAL", "ECC_DBE_VOL_TOTAL")
    dcgm = {name: only(found, f"DCGM_FI_DEV_{name}", labels) for name in names}
    assert dcgm == dict(zip(names, (36, 78.22, 345, 0, 0, 0, 0)))
    job = {"user": "user7", "account": "physics", "partition": "gpu", "slurmjobid": "7", "gpu": "0"}
    job |= {"gpu_type": "NVIDIA H200", "shared": "0"}
    assert only(found, "slurm_job_power_gpu", job) == 78220
    assert only(found, "slurm_job_utilization_gpu", job) == 0
    assert only(found, "gpucluster_gpu_processes", {"gpu": "0"}) == 0
    assert not [name for name, _labels, _value in found if name == "gpucluster_gpu_slowed"]


def test_the_recorded_list_of_slurmd() -> None:
    for name in ("slurmd-G-files", "slurmd-G-nvidia", "slurmd-G-nvml"):
        assert gpu_jobs.parse_gres(recordings.slurm(name)) == [["/dev/nvidia0"]]


def test_the_recorded_answer_about_details() -> None:
    gpu = gpu_driver.DriverGpu("0", "nvidia0", address="0000:00:06.0")
    assert gpu_driver.add_details([gpu], recordings.nvidia_smi(("-q", "-x"))[1])
    assert (gpu.processes, gpu.instances) == (0, [])


# -- loads -----------------------------------------------------------------------------------------------------------


def test_a_known_load(node: Node) -> None:
    """Two GPUs compute, one of them for a job; the other job holds its GPU without a process."""
    node.have([MODEL] * 3, ["/dev/nvidia[0-2]"])
    node.loads("0 30 2", "2 51 1")
    node.prolog(7, "0,1")
    found = node.collect()
    of = {gpu: {"gpu": gpu} for gpu in "012"}
    assert [only(found, "DCGM_FI_DEV_GPU_UTIL", of[gpu]) for gpu in "012"] == [30, 0, 51]
    assert [only(found, "gpucluster_gpu_processes", of[gpu]) for gpu in "012"] == [2, 0, 1]
    assert [only(found, "gpucluster_gpu_allocated", of[gpu]) for gpu in "012"] == [1, 1, 0]
    assert [only(found, "slurm_job_utilization_gpu", of[gpu]) for gpu in "01"] == [30, 0]
    assert [only(found, "slurm_job_memory_usage_gpu", of[gpu]) for gpu in "01"] == [1000 * 1024**2, 0]
    assert [only(found, "slurm_job_memory_total_gpu", of[gpu]) for gpu in "01"] == [81559 * 1024**2] * 2
    assert [only(found, "gpucluster_job_gpu_share", of[gpu]) for gpu in "01"] == [1, 1]
    assert [only(found, "slurm_job_power_gpu", of[gpu]) for gpu in "01"] == [258220, 78220]
    assert len([1 for name, _labels, _value in found if name == "slurm_job_power_gpu"]) == 2


def test_jobs_that_share_a_gpu_have_its_values_and_say_so(node: Node) -> None:
    node.loads("0 64 2")
    node.prolog(7, "0")
    node.prolog(8, "0")
    found = node.collect()
    for job in ("7", "8"):
        assert only(found, "slurm_job_utilization_gpu", {"slurmjobid": job, "shared": "1"}) == 64
        assert only(found, "gpucluster_job_gpu_share", {"slurmjobid": job, "gpu": "0"}) == 0.5
    # One series for the GPU, so that the power of a node is counted once.
    (labels,) = [labels for name, labels, _v in found if name == "DCGM_FI_DEV_POWER_USAGE" and labels["gpu"] == "0"]
    assert labels["hpc_job"] == "7,8"
    assert only(found, "gpucluster_gpu_jobs", {"gpu": "0"}) == 2


def test_processes_that_pmon_shows() -> None:
    gpus = [gpu_driver.DriverGpu(str(i), f"nvidia{i}") for i in range(3)]
    output = (
        "# gpu         pid   type     sm    mem    enc    dec    command \n"
        "# Idx           #    C/G      %      %      %      %    name \n"
        "    0       4121     C     24      1      -      -    python 3      \n"
        "    1       4122     C     66      1      -      -    a      \n"
        "    1       4123   C+G     33      1      -      -    b      \n"
        "    1       4124     G      4      1      -      -    Xorg      \n"
        "    2       4125     C      -      -      -      -    c      \n"
    )
    assert gpu_driver.count_processes(gpus, output)
    assert [gpu.processes for gpu in gpus] == [1, 2, 1]


def test_mig_instances(node: Node) -> None:
    """Each instance has its memory, and a sum counts the memory of a GPU once."""
    caps = "/dev/nvidia-caps/nvidia-cap"
    node.have([f"{MODEL}|3g.40gb 3g.40gb"], [f"/dev/nvidia0,{caps}{n},{caps}{n + 1}" for n in (12, 21)])
    place(node.root, {"proc/driver/nvidia-caps/mig-minors": "gpu0/gi1/access 12\ngpu0/gi2/access 21\n"})
    node.loads("0 40 3")
    node.collect()
    node.prolog(7, "1")
    found = node.collect()
    memory = [(labels.get("GPU_I_ID"), labels.get("hpc_job"), v) for n, labels, v in found if n.endswith("FB_USED")]
    assert memory == [("1", None, 40), ("2", "7", 40)]
    assert only(found, "slurm_job_memory_usage_gpu", {"gpu": "0.2", "shared": "0"}) == 40 * 1024**2
    assert only(found, "slurm_job_memory_total_gpu", {"gpu": "0.2", "shared": "0"}) == 10000 * 1024**2
    allocated = {labels["gpu"]: value for name, labels, value in found if name == "gpucluster_gpu_allocated"}
    assert allocated == {"0.1": 0, "0.2": 1}
    processes = {labels["gpu"]: value for name, labels, value in found if name == "gpucluster_gpu_processes"}
    assert processes == {"0.1": 2, "0.2": 1}
    # nvidia-smi has no utilization of a GPU with MIG, and none is made up.
    assert not [name for name, _labels, _value in found if "util" in name.lower()]


# -- errors ----------------------------------------------------------------------------------------------------------


def test_the_last_xid_of_a_gpu(node: Node) -> None:
    node.have([MODEL] * 2, ["/dev/nvidia[0-1]"])
    messages = (
        "4,1,100,-;NVRM: Xid (PCI:0000:02:00): 31, pid=7, name=a, Ch 00000008\n"
        "4,2,200,-;NVRM: Xid (PCI:0000:02:00 GPU-I:05): 79, pid=7, GPU has fallen off the bus.\n"
        "6,3,300,-;somebody writes NVRM: Xid (PCI:0000:0a:00): 48\n"
    )
    place(node.root, {"dev/kmsg": messages})
    found = node.collect()
    assert [only(found, "DCGM_FI_DEV_XID_ERRORS", {"gpu": gpu}) for gpu in "01"] == [0, 79]
    # The kernel drops old messages.
    (node.root / "dev/kmsg").write_text("")
    assert only(node.collect(), "DCGM_FI_DEV_XID_ERRORS", {"gpu": "1"}) == 79


def xid_now(number: int, gpu: int, before: float = 0) -> str:
    """A message of the kernel about a GPU of the stand-in, so many seconds ago."""
    when = int((time.monotonic() - before) * 1e6)
    return f"4,{number},{when},-;NVRM: Xid (PCI:0000:0{gpu + 1}:00): {number}, pid=7, name=a\n"


def errors_of_jobs(node: Node) -> dict[tuple[str, str, str], float]:
    """The errors by job, GPU and Xid."""
    return {
        (labels["slurmjobid"], labels["gpu"], labels["xid"]): value
        for name, labels, value in node.collect()
        if name == "gpucluster_job_gpu_errors"
    }


def test_errors_are_those_of_the_job_that_had_the_gpu_alone(node: Node) -> None:
    node.have([MODEL] * 3, ["/dev/nvidia[0-2]"])
    node.collect()
    now = str(int(time.time()) - 5)
    for job, gpus in ((7, "0"), (8, "1"), (9, "1"), (10, "2")):
        node.prolog(job, gpus, SLURM_JOB_START_TIME=now)
    early = xid_now(13, 0, before=60)
    node.epilog(10)
    text = early + xid_now(31, 0) + xid_now(31, 0) + xid_now(94, 1)
    place(node.root, {"dev/kmsg": text})
    assert errors_of_jobs(node) == {("7", "0", "31"): 2}
    # The last error often ends the job, and the kernel drops old messages.
    node.epilog(7)
    (node.root / "dev/kmsg").write_text("")
    assert errors_of_jobs(node) == {("7", "0", "31"): 2}
    node.prolog(11, "0", SLURM_JOB_START_TIME=str(int(time.time()) + 1))
    assert errors_of_jobs(node) == {("7", "0", "31"): 2}


def test_what_an_epilog_has_kept_is_removed_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.prolog(7, "0")
    node.epilog(7)
    kept = node.run / "gpu-job-ended"
    assert ([path.name for path in kept.iterdir()], kept.stat().st_mode & 0o777) == (["7"], 0o700)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 200)
    node.collect()
    assert [*kept.iterdir()] == []
    for number in range(1000):
        (kept / str(number)).touch()
    node.prolog(8, "0")
    node.epilog(8)
    assert not (kept / "8").exists() or (kept / "8").stat().st_size == 0
    assert not (node.run / "gpu-job-data/8").exists()


def test_reasons_for_lower_clocks() -> None:
    fields = ["index", "pci.bus_id", "uuid", "name", "clocks_throttle_reasons.active"]
    row = "0, 00000000:01:00.0, GPU-0, A100, 0x0000000000000049\n"
    (gpu,) = gpu_driver.parse_gpus(fields, row, {})
    assert gpu.slowed == ["hw_slowdown", "hw_thermal_slowdown"]


def test_fields_that_this_driver_does_not_know(node: Node) -> None:
    """Driver 525 calls reasons otherwise, and knows no average of corrected errors here. It is asked this once."""
    node.put(
        "nvidia-smi",
        f'echo "$1" >>{node.directory}/asked\n'
        'case "$1" in *clocks_event*) f=clocks_event_reasons.active;; *errors.corrected*)'
        " f=ecc.errors.corrected.volatile.total;; pmon) echo '# gpu pid type sm'; exit;;"
        " *) echo '0, 00000000:01:00.0, GPU-0, A100, Disabled, 81920, 0x4, 41, 99.5, 1410, 17, 5, 3'; exit;; esac\n"
        'echo "Field \\"$f\\" is not a valid field to query."; echo; exit 2',
    )
    for _run in range(2):
        found = node.collect()
        assert only(found, "DCGM_FI_DEV_POWER_USAGE", {"gpu": "0"}) == 99.5
        assert only(found, "gpucluster_gpu_slowed", {"reason": "sw_power_cap"}) == 1
        assert only(found, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", {"gpu": "0"}) == 3
        assert not [name for name, _labels, _value in found if "SBE" in name]
        assert only(found, "gpucluster_gpu_query_failures_total", {"query": "gpu"}) == 0
    assert len((node.directory / "asked").read_text().split()) == 3 + 1 + 2


@pytest.mark.parametrize("answer", ["No devices were found; exit 6", "; exit 0", "'GPU 0 is lost'; exit 15"])
def test_a_driver_that_says_nothing_of_use(node: Node, answer: str) -> None:
    """The series without the driver stay: who has which GPU is known, and what is not known is left out."""
    node.collect()
    node.prolog(7, "1")
    node.put("nvidia-smi", f"echo {answer}")
    found = node.collect()
    names = {name for name, _labels, _value in found}
    assert not [name for name in names if name.startswith(("DCGM", "slurm_job"))]
    assert [only(found, "gpucluster_gpu_allocated", {"gpu": gpu}) for gpu in "01"] == [0, 1]
    assert only(found, "gpucluster_job_gpu_share", {"slurmjobid": "7", "gpu": "1"}) == 1
    assert only(found, "gpucluster_gpu_query_failures_total", {"query": "gpu"}) == 1
    assert only(found, "gpucluster_gpu_query_hanging", {}) == 0


@pytest.mark.parametrize(
    "garbage",
    [
        "\\000\\n,,,",
        "0, :, , , , , , , , , , , , ",
        "1, 00000000:01:00.0, u, m, Enabled, x, 0xg, [N/A], [Unknown Error], -, , , , ",
        "# gpu pid type sm\\n9 9 9 9\\n0\\n0 1",
        '<?xml version="1.0" ?><a><gpu/><gpu id="x"/></a>',
        "slurmd: Gres Name=gpu Type=a Count=2 Index=0 ID=1 File=/dev/nvidia[a-] x",
    ],
)
def test_answers_that_have_no_known_form(node: Node, garbage: str) -> None:
    """Each program says the same garbage to all questions."""
    node.prolog(7, "0")
    for name in ("nvidia-smi", "slurmd"):
        node.put(name, f"printf '{garbage}\\n'")
    for _run in range(2):
        assert node.collect()


def test_without_any_program_of_the_driver(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.bin / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", str(node.bin))
    found = node.collect()
    assert only(found, "gpucluster_gpu_query_failures_total", {"query": "gpu"}) == 1


def test_a_call_that_takes_too_long_is_killed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_driver, "QUERY_SECONDS", 0.3)
    node.put("nvidia-smi", f"echo $$ >{node.directory}/pid; sleep 300 & wait")
    started = time.monotonic()
    found = node.collect()
    assert time.monotonic() - started < 20
    process = int((node.directory / "pid").read_text())
    assert gpu_calls.start_of(process) is None
    assert only(found, "gpucluster_gpu_query_failures_total", {"query": "gpu"}) == 1
    assert only(found, "gpucluster_gpu_query_hanging", {}) == 0
    assert only(found, "gpucluster_gpu_query_seconds", {"query": "gpu"}) >= 0.3


def test_a_call_that_cannot_be_killed_is_left_and_none_is_added(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in for state D is a process that this test keeps from being killed."""
    monkeypatch.setattr(gpu_driver, "QUERY_SECONDS", 0.3)
    node.put("nvidia-smi", f"echo $$ >>{node.directory}/pids; exec sleep 300")
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda _group, _signal: None)
        found = node.collect()
    process = int((node.directory / "pids").read_text())
    try:
        assert only(found, "gpucluster_gpu_query_hanging", {}) == 1
        for failures in (2, 3):
            found = node.collect()
            assert only(found, "gpucluster_gpu_query_hanging", {}) == 1
            assert only(found, "gpucluster_gpu_query_failures_total", {"query": "gpu"}) == failures
        assert (node.directory / "pids").read_text() == f"{process}\n"
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    monkeypatch.setattr(gpu_driver, "QUERY_SECONDS", 20.0)
    node.put("nvidia-smi", "echo 0, 00000000:01:00.0, GPU-0, A100, Disabled, 81920, 0x0, 41, 99.5, 1410, 17, 5, 0, 0")
    found = node.collect()
    assert only(found, "gpucluster_gpu_query_hanging", {}) == 0
    assert only(found, "DCGM_FI_DEV_GPU_UTIL", {"gpu": "0"}) == 17


def test_another_process_with_the_number_of_one_that_hung(node: Node) -> None:
    """Linux gives numbers of processes again."""
    node.run.joinpath("gpu-state.json").write_text(json.dumps({"hanging": [os.getpid(), 1]}))
    assert only(node.collect(), "gpucluster_gpu_query_hanging", {}) == 0


@pytest.mark.parametrize("state", ["", "{", "[]", "null", '{"unheard": 1}', '{"failures": [], "hanging": {}}'])
def test_a_state_that_is_not_understood_counts_as_none(node: Node, state: str) -> None:
    node.run.joinpath("gpu-state.json").write_text(state)
    assert only(node.collect(), "gpucluster_gpu_query_failures_total", {"query": "gpu"}) == 0


def test_pmon_that_fails_leaves_the_sample(node: Node) -> None:
    node.put(
        "nvidia-smi",
        "test $1 != pmon || { echo 'Process monitoring is not supported.'; exit 3; }\n"
        "echo 0, 00000000:01:00.0, GPU-0, A100, Disabled, 81920, 0x0, 41, 99.5, 1410, 17, 5, 0, 0",
    )
    found = node.collect()
    assert only(found, "DCGM_FI_DEV_GPU_UTIL", {"gpu": "0"}) == 17
    assert not [name for name, _labels, _value in found if name == "gpucluster_gpu_processes"]
    assert only(found, "gpucluster_gpu_query_failures_total", {"query": "processes"}) == 1


# -- AMD -------------------------------------------------------------------------------------------------------------


def test_gpus_of_amd(node: Node) -> None:
    """By the kernel's documentation of sysfs; the graphics part of a CPU is left out."""
    (node.root / "proc/driver").rename(node.root / "none")
    files = {
        "vendor": "0x1002\n",
        "mem_info_vram_total": f"{64 << 30}\n",
        "mem_info_vram_used": f"{3 << 30}\n",
        "gpu_busy_percent": "42\n",
        "unique_id": "1a2b\n",
        "product_name": "AMD Instinct MI210\n",
        "hwmon/hwmon3/temp1_input": "36000\n",
        "hwmon/hwmon3/power1_average": "90500000\n",
        "hwmon/hwmon3/freq1_input": "1700000000\n",
    }
    for minor, own in ((128, {"mem_info_vram_total": f"{512 << 20}\n"}), (130, {}), (129, {})):
        place(node.root / f"sys/class/drm/renderD{minor}/device", {**files, **own})
    node.put("slurmd", "echo 'slurmd: Gres Name=gpu Type=mi210 Count=2 Index=0 ID=1 File=/dev/dri/renderD[129-130] x'")
    node.collect()
    node.prolog(7, "1")
    found = node.collect()
    labels = {"gpu": "1", "UUID": "1a2b", "device": "dri/renderD130", "modelName": "AMD Instinct MI210", "hpc_job": "7"}
    names = ("GPU_TEMP", "POWER_USAGE", "SM_CLOCK", "GPU_UTIL", "FB_USED")
    assert [only(found, f"DCGM_FI_DEV_{name}", labels) for name in names] == [36, 90.5, 1700, 42, 3072]
    assert only(found, "slurm_job_utilization_gpu", {"gpu": "1", "slurmjobid": "7"}) == 42
    assert not [name for name, _labels, _value in found if "XID" in name]


# -- the file --------------------------------------------------------------------------------------------------------


def test_the_file_is_replaced_at_once_and_everybody_can_read_it(node: Node) -> None:
    node.collect()
    before = node.textfile.stat()
    node.collect()
    assert node.textfile.stat().st_ino != before.st_ino
    assert before.st_mode & 0o777 == 0o644
    assert [path.name for path in node.directory.glob("*.prom*")] == ["gpu.prom"]


@pytest.mark.parametrize("name", [".gpu.prom.new", "gpu.prom"])
def test_a_link_in_the_directory_of_another_user_is_not_followed(node: Node, name: str) -> None:
    """The directory belongs to the user of node-exporter on some hosts."""
    victim = node.directory / "shadow"
    victim.write_text("root:*:1\n")
    (node.directory / name).symlink_to(victim)
    node.collect()
    assert victim.read_text() == "root:*:1\n"
    assert not node.textfile.is_symlink()


def test_a_link_in_place_of_the_directory_is_not_followed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent belongs to that user, who can put a link there to a directory of root."""
    victim = node.directory / "of-root"
    victim.mkdir()
    for name in ("gpu.prom", ".gpu.prom.new"):
        (victim / name).write_text("of root")
    (node.directory / "link").symlink_to(victim)
    node.directory.chmod(0o777)
    monkeypatch.setattr(slurm_gpu_metrics, "TEXTFILE", str(node.directory / "link/gpu.prom"))
    assert slurm_gpu_metrics.main([]) == 1
    assert {path.read_text() for path in victim.iterdir()} == {"of root"}


def test_each_series_has_its_help_and_type_once(node: Node) -> None:
    node.prolog(7, "0")
    node.collect()
    slurm_gpu_metrics.take_sample(5.0)
    node.collect()
    text = node.textfile.read_text()
    names = [name for name, _labels, _value in samples(text)]
    kinds = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
    assert [name for i, name in enumerate(names) if name not in names[:i]] == [*kinds]
    counters = {f"DCGM_FI_DEV_ECC_{kind}_VOL_TOTAL" for kind in ("SBE", "DBE")} | {
        "gpucluster_gpu_query_failures_total",
        "gpucluster_job_gpu_busy_seconds_total",
        "gpucluster_job_gpu_measured_seconds_total",
    }
    assert {name for name, kind in kinds.items() if kind == "counter"} == counters
    # The names of a series are together, as the format demands.
    assert len([1 for a, b in zip(["", *names], names) if a != b]) == len(kinds)


def test_every_series_is_in_the_design() -> None:
    design = (Path(__file__).parents[2] / "docs/design/gpu_use.md").read_text()
    known = set()
    for text in re.findall(r"`((?:DCGM|slurm_job|gpucluster_gpu|gpucluster_job)_[\w{},]+)`", design):
        before, _, rest = text.partition("{")
        inner, _, after = rest.partition("}")
        known |= {f"{before}{part}{after}" for part in inner.split(",")}
    assert {*slurm_gpu_metrics.HELP} == known


def test_one_run_at_a_time(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.collect()
    monkeypatch.setattr(slurm_gpu_metrics, "RUN_SECONDS", 0.0)
    node.textfile.unlink()
    with open(node.run / "locks/gpu-metrics", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert slurm_gpu_metrics.main([]) == 1
    assert not node.textfile.exists()


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("/dev/nvidia0", ["/dev/nvidia0"]),
        ("/dev/nvidia[0-1,4],/dev/nvidia7", ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia4", "/dev/nvidia7"]),
        ("/dev/x[08-10]y,/dev/z", ["/dev/x08y", "/dev/x09y", "/dev/x10y", "/dev/z"]),
        ("/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12", ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"]),
    ],
)
def test_files_of_a_hostlist(text: str, files: list[str]) -> None:
    assert hostlist.expand(text) == files
