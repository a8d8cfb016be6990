# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program slurm-accept of role accept: what it reads in the output of other programs, and what it prints.

fio, iperf3 and hpcc are those of Debian 12 (recorded/acceptance_tools), nvidia-smi that of a real H200. The table of
nccl-tests is from guide 003. The outputs of `nvidia-smi nvlink`, dcgmi and ib_write_bw are made up after their
documentation.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.measurements import Asked, read_lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.tasks import DIAGNOSES, MISSED
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import program_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.network_ports import Port, read_ports
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.gpu_findings import fabric_fault
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import kernel_messages, program_library
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.accept import (
    accept_command,
    accept_results,
    gpu_measurements,
    node_speed,
)
from programs import StandIn
from recordings import answer

pytestmark = pytest.mark.once

RECORDED = Path(__file__).parent / "recorded/acceptance_tools"


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other programs are those of the test alone."""
    path = f"{tmp_path}/stand-ins:{tmp_path}/none"
    monkeypatch.setattr(accept_results, "CLEAN", {**accept_results.CLEAN, "PATH": path})
    (tmp_path / "none").mkdir()
    for name in ("sh", "cat", "cp", "sleep"):
        (tmp_path / "none" / name).symlink_to(f"/bin/{name}")
    monkeypatch.setattr(node_speed, "STARTED", 5)
    monkeypatch.setenv("SLURM_JOB_ID", "17")


Measure = Callable[..., tuple[list[Any], dict[str, str]]]


@pytest.fixture(name="measure")
def _measure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Measure:
    """Run the program. Returns the values as the control host reads them, and why other tests have none."""

    def measure(what: str, *words: str, hardware: str = "m") -> tuple[list[Any], dict[str, str]]:
        capsys.readouterr()
        monkeypatch.setattr("sys.argv", ["/opt/slurm-accept", what, f"--hardware={hardware}", *words])
        assert accept_command.main() == 0
        text = capsys.readouterr().out
        reading = read_lines(text, Asked(17, {"n1": hardware, "n2": hardware}), "job 17")
        assert not reading.errors
        others = [line for line in text.splitlines() if not line.startswith("{")]
        assert all(line.startswith(MISSED) for line in others)
        pairs = (line[len(MISSED) :].split(": ", 1) for line in others)
        return reading.values, dict(pairs)

    return measure


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def gpu_of(text: str) -> ElementTree.Element:
    found = ElementTree.fromstring(text).find("gpu")
    assert found is not None
    return found


H200 = answer("nvidia-smi", "q-x")[1]


# -- the catalog -----------------------------------------------------------------------------------------------------


def test_diagnoses_are_those_of_the_tasks() -> None:
    assert tuple(gpu_measurements.DIAGNOSES) == DIAGNOSES


# -- GPUs ------------------------------------------------------------------------------------------------------------


def said(line: str) -> str:
    """A message of the kernel, as journalctl prints it."""
    return json.dumps({"MESSAGE": line, "__MONOTONIC_TIMESTAMP": "1", "__CURSOR": "c"})


def test_a_healthy_h200(measure: Measure, stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "q-x").write_text(H200)
    stand_in("nvidia-smi", f'test "$1" = nvlink || cat {tmp_path}/q-x')
    stand_in("journalctl", f"echo '{said('NVRM: Xid (PCI:0000:00:06): 31, pid=7')}'")
    tests = "gpu_count,gpu_driver,gpu_xid,gpu_ecc,gpu_remapped_rows,gpu_pcie,gpu_clocks,gpu_nvlink,fabric_manager"
    values, missed = measure("node", "--nodes=n1", "--gpus=1", f"--tests={tests}", "--xids=48,79")
    # This GPU has no NVLinks and no fabric.
    assert {value.test: value.value for value in values} == dict.fromkeys(tests.split(",")[:7], 1)
    assert {value.driver for value in values} == {"580.159.04"}
    assert missed == {}


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (
            {"<dram_uncorrectable>0": "<dram_uncorrectable>2"},
            {"gpu_ecc": "uncorrected errors: dram_uncorrectable 2"},
        ),
        ({"<current_ecc>Enabled": "<current_ecc>Disabled"}, {"gpu_ecc": "ECC is disabled"}),
        (
            {"<remapped_row_pending>No": "<remapped_row_pending>Yes"},
            {"gpu_remapped_rows": "rows of memory wait for a reset"},
        ),
        ({"<current_link_width>16x": "<current_link_width>8x"}, {"gpu_pcie": "width 8x of 16x"}),
        ({"<current_link_gen>5": "<current_link_gen>3"}, {"gpu_pcie": "generation 3 of 5"}),
        (
            {"<current_link_gen>5": "<current_link_gen>1", "<performance_state>P0": "<performance_state>P8"},
            {},
        ),
        (
            {"reason_hw_thermal_slowdown>Not Active": "reason_hw_thermal_slowdown>Active"},
            {"gpu_clocks": "hw_thermal_slowdown"},
        ),
    ],
    ids=str,
)
def test_a_fault_of_a_gpu(change: dict[str, str], faults: dict[str, str]) -> None:
    text = H200
    for before, after in change.items():
        assert before in text
        text = text.replace(before, after, 1)
    assert {test: fault for test, fault in gpu_measurements.gpu_faults(gpu_of(text)).items() if fault} == faults


def test_the_fabric_of_a_gpu() -> None:
    assert fabric_fault(gpu_of(H200)) is None
    good = H200.replace("<state>N/A</state>\n\t\t\t<status>N/A", "<state>Completed</state>\n\t\t\t<status>Success", 1)
    assert fabric_fault(gpu_of(good)) == ""
    bad = good.replace("<state>Completed", "<state>In Progress").replace("<status>Success", "<status>N/A")
    assert fabric_fault(gpu_of(bad)) == "fabric In Progress"


def test_links_that_are_down() -> None:
    text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
    )
    assert gpu_measurements.nvlink_faults(text) == {0: "", 1: "links down: 1"}
    assert gpu_measurements.nvlink_faults("") == {}


@pytest.mark.parametrize(
    ("number", "more", "fault"), [(13, "", 0), (13, "13,43", 1), (64, "", 1), (48, "", 0)], ids=str
)
def test_errors_of_programs_and_those_that_the_driver_has_mended_are_no_faults(
    measure: Measure, stand_in: StandIn, tmp_path: Path, number: int, more: str, fault: int
) -> None:
    (tmp_path / "q-x").write_text(H200)
    stand_in("nvidia-smi", f"cat {tmp_path}/q-x")
    stand_in("journalctl", f"echo '{said(f'NVRM: Xid (PCI:0000:00:06): {number}, pid=1, and more')}'")
    # The driver asks for no recovery, which an error that needs another GPU outlives.
    values, _missed = measure("node", "--nodes=n1", "--gpus=1", "--tests=gpu_driver,gpu_xid", f"--xids={more}")
    (found,) = [value for value in values if value.test == "gpu_xid"]
    assert (found.value, found.text) == ((0, f"Xid (PCI:0000:00:06): {number}, pid=1, and more") if fault else (1, ""))


def test_a_diagnosis() -> None:
    def of(status: str, **more: Any) -> str:
        test = {"name": "PCIe", "results": [{"gpu_id": "3", "status": status, **more}]}
        return "Successfully ran\n" + json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": [test]}]}})

    assert gpu_measurements.diagnosis_faults(of("Pass")) == ""
    failed = of("Fail", warnings=[{"warning": "bandwidth is low"}])
    assert gpu_measurements.diagnosis_faults(failed) == "PCIe of GPU 3: bandwidth is low"


def test_a_node_without_its_tools_says_so(measure: Measure, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> list[kernel_messages.KernelMessage]:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(kernel_messages, "read_ring", refused)
    stand_in("nvidia-smi", "echo 'no devices'; exit 9")
    stand_in("journalctl", "echo 'No journal files were opened' >&2; exit 1")
    tests = "gpu_count,gpu_ecc,gpu_xid,gpu_matrix,host_to_gpu,dcgm_1"
    values, missed = measure("node", "--nodes=n1", "--gpus=8", f"--tests={tests}", "--xids=79")
    assert values == []
    assert missed == {
        "gpu_count": "nvidia-smi ended with 9: no devices",
        "gpu_ecc": "nvidia-smi ended with 9: no devices",
        "gpu_xid": "/dev/kmsg: Operation not permitted; journalctl: No journal files were opened",
        "gpu_matrix": "accept_container names no image with PyTorch",
        "host_to_gpu": "accept_container names no image with PyTorch, and nvbandwidth is not installed",
        "dcgm_1": "dcgmi is not installed",
    }


def test_a_program_that_hangs_is_ended(stand_in: StandIn) -> None:
    stand_in("nvidia-smi", "sleep 100")
    with pytest.raises(accept_results.MeasureError, match=r"nvidia-smi: no answer in 0\.2 s"):
        accept_results.run(["nvidia-smi"], 0.2)


# -- nccl-tests ------------------------------------------------------------------------------------------------------

GUIDE = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608        131072     float    none      -1    349.2   24.02   22.52    N/A    347.0   24.18   22.67    N/A
  4294967296      67108864     float    none      -1    21511  199.67  187.19    N/A    21493  199.83  187.34    N/A
  8589934592     134217728     float    none      -1    42783  200.78  188.23    N/A    42777  200.81  188.26    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 126.358
#
"""
"""Three rows of the table in guide 003."""


def test_the_largest_size_counts_and_not_the_average() -> None:
    assert gpu_measurements.read_nccl_tests(GUIDE) == (8589934592, 188.23)


def test_a_table_with_the_number_of_the_task_before_each_line() -> None:
    text = "".join(f" 0: {line}\n" for line in GUIDE.splitlines())
    assert gpu_measurements.read_nccl_tests(text) == (8589934592, 188.23)


def test_a_table_with_wrong_values_is_none() -> None:
    with pytest.raises(accept_results.MeasureError, match="3 wrong values"):
        gpu_measurements.read_nccl_tests(GUIDE.replace("values : 0 OK", "values : 3 FAILED"))
    with pytest.raises(accept_results.MeasureError, match="no table"):
        gpu_measurements.read_nccl_tests("# Avg bus bandwidth    : 126.358\n")


def test_collectives_of_a_node_by_nccl_tests(measure: Measure, tmp_path: Path) -> None:
    program = tmp_path / "all_reduce_perf"
    program.write_text(f"#!/bin/sh\necho \"$@\" >{tmp_path}/said\ncat <<'E'\n{GUIDE}E\n")
    program.chmod(0o755)
    tests = "--tests=all_reduce_node,gpu_matrix"
    (value,), missed = measure("node", "--nodes=n1", "--gpus=8", tests, f"--nccl-tests={tmp_path}")
    assert (value.test, value.value, value.size) == ("all_reduce_node", 188.23, 8589934592)
    assert (tmp_path / "said").read_text().split()[-2:] == ["-g", "8"]
    assert [*missed] == ["gpu_matrix"]


def test_collectives_of_a_pair_by_srun(measure: Measure, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in("srun", f"echo \"$@\" >{tmp_path}/said\ncat <<'E'\n{GUIDE}E")
    stand_in("nvidia-smi", "echo 580.159.04; echo 580.159.04")
    words = ["--nodes=n1,n2", "--gpus=8", "--tests=all_gather_pair", "--nccl-tests=/nccl", "--image=i.sqsh"]
    (value,), missed = measure("pair", *words, "--runtime=pyxis")
    assert (value.nodes, value.value, value.driver, value.image) == (("n1", "n2"), 188.23, "580.159.04", "i.sqsh")
    said = (tmp_path / "said").read_text()
    assert "--ntasks=16 --ntasks-per-node=8 --overlap --mpi=pmix --container-image=i.sqsh" in said
    assert "/nccl/all_gather_perf -b 1G -e 8G" in said
    assert missed == {}


def test_gpus_by_pytorch_in_a_container(measure: Measure, stand_in: StandIn, tmp_path: Path) -> None:
    line = '{"test": "gpu_matrix", "value": 650.1, "unit": "TFLOP/s", "nodes": [], "gpu": 0, "size": 1, "text": "",'
    stand_in("apptainer", f'echo "$@" >{tmp_path}/said; echo NOTE; echo \'{line} "hardware": "x", "job": 3}}\'')
    words = ["--nodes=n1", "--gpus=1", "--tests=gpu_matrix,host_to_gpu", "--image=torch.sif", "--runtime=apptainer"]
    (value,), _missed = measure("node", *words)
    assert (value.test, value.value, value.gpu, value.hardware, value.job) == ("gpu_matrix", 650.1, 0, "m", 17)
    assert (
        (tmp_path / "said")
        .read_text()
        .startswith("exec --nv --bind=/opt:/opt torch.sif python3 -B /opt/slurm-accept gpus --tests=")
    )


def test_gpus_by_nvbandwidth_without_an_image(measure: Measure, stand_in: StandIn, tmp_path: Path) -> None:
    """Its memory bandwidth counts each byte once, that of PyTorch when it is read and when it is written."""
    stand_in("nvbandwidth", f'echo "$@" >{tmp_path}/said; cat {RECORDED}/nvbandwidth.txt')
    tests = "gpu_memory_bandwidth,host_to_gpu,gpu_to_host,gpu_to_gpu,gpu_matrix"
    values, missed = measure("node", "--nodes=n1", "--gpus=8", f"--tests={tests}")
    found = {(value.test, value.gpu): value.value for value in values}
    assert (found["gpu_memory_bandwidth", 2], found["host_to_gpu", 4]) == (2231.44, 26.19)
    assert (found["gpu_to_gpu", 0], found["gpu_to_gpu", 6]) == (276.07, 274.89)
    assert len(values) == 24
    assert {value.size for value in values} == {1 << 30}
    assert missed == {
        "gpu_to_host": "nvbandwidth shows no table of device_to_host_memcpy_ce",
        "gpu_matrix": "accept_container names no image with PyTorch",
    }
    assert (tmp_path / "said").read_text().split()[:3] == ["-b", "1024", "-t"]


# -- disks, processors, network --------------------------------------------------------------------------------------


def test_a_disk(measure: Measure, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_speed, "FILE", 1 << 20)
    stand_in("fio", f"cat {tmp_path}/$3.json")
    for way in ("write", "read"):
        (tmp_path / f"--rw={way}.json").write_text(f"note: both iodepth\n{recorded(f'fio-{way}.json')}")
    tests = "--tests=disk_write_local,disk_read_local"
    values, missed = measure("node", "--nodes=n1", tests, f"--disk={tmp_path}")
    assert [value.test for value in values] == ["disk_write_local", "disk_read_local"]
    assert all(value.value > 1 and value.size == 1 << 20 for value in values)
    assert missed == {}
    assert not [*tmp_path.glob(".slurm-accept-*")]


def test_a_file_system_past_whose_cache_nobody_writes(stand_in: StandIn, tmp_path: Path) -> None:
    refuses = "echo 'fio: looks like your file system does not support direct=1/buffered=0' >&2; exit 1"
    stand_in("fio", f'case "$*" in *--direct=1*) {refuses};; esac; cat {RECORDED}/fio-write.json')
    assert node_speed.fio(str(tmp_path), "write") > 1


def test_a_full_disk(measure: Measure, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("fio", "exit 1")
    monkeypatch.setattr(node_speed, "FILE", 1 << 60)
    _values, missed = measure("node", "--nodes=n1", "--tests=disk_write_local", f"--disk={tmp_path}")
    assert "MiB free, and needs" in missed["disk_write_local"]


def test_hpcc() -> None:
    found = node_speed.read_hpcc(recorded("hpccoutf.txt"))
    assert found == {"StarDGEMM_Gflops": pytest.approx(4.79807), "StarSTREAM_Triad": pytest.approx(70.5372)}
    with pytest.raises(accept_results.MeasureError, match="computes wrongly"):
        node_speed.read_hpcc(recorded("hpccoutf.txt").replace("Success=1", "Success=0"))


def test_processors_by_hpcc(measure: Measure, stand_in: StandIn) -> None:
    stand_in("hpcc", "exit 1")
    stand_in("mpirun", f'cat hpccinf.txt >&2; test -n "$SLURM_JOB_ID" && exit 3; cp {RECORDED}/hpccoutf.txt .')
    values, missed = measure("node", "--nodes=n1", "--tests=stream,dgemm")
    assert missed == {}
    cores = node_speed.count_cores()
    assert {value.test: value.value for value in values} == {
        "stream": pytest.approx(70.5372 * cores, rel=1e-4),
        "dgemm": pytest.approx(4.79807 * cores, rel=1e-4),
    }


def test_iperf3() -> None:
    assert node_speed.read_iperf3(recorded("iperf3.json")) == pytest.approx(13.98, rel=1e-3)
    with pytest.raises(accept_results.MeasureError, match="iperf3: unable to connect to server: Connection refused"):
        node_speed.read_iperf3(recorded("iperf3-refused.json"))


def test_the_slower_direction_of_a_network_counts(measure: Measure, stand_in: StandIn, tmp_path: Path) -> None:
    answers = {way: json.dumps({"end": {"sum_received": {"bits_per_second": rate}}}) for way, rate in WAYS.items()}
    stand_in("srun", "exec sleep 60")
    # Its first connection is refused, since the server has not started yet.
    refused = f"test -e {tmp_path}/up || {{ echo x >{tmp_path}/up; cat {RECORDED}/iperf3-refused.json; exit 1; }}"
    way = f"case \"$*\" in *--reverse*) echo '{answers['back']}';; *) echo '{answers['there']}';; esac"
    stand_in("iperf3", f"{refused}; {way}")
    (value,), missed = measure("pair", "--nodes=n1,n2", "--tests=network_tcp")
    assert (value.value, value.nodes) == (9.4, ("n1", "n2"))
    assert missed == {}


WAYS = {"there": 23.1e9, "back": 9.4e9}


def test_a_server_that_does_not_start(measure: Measure, stand_in: StandIn) -> None:
    stand_in("srun", "echo 'srun: error' >&2; exit 1")
    stand_in("iperf3", f"sleep 0.5; cat {RECORDED}/iperf3-refused.json; exit 1")
    _values, missed = measure("pair", "--nodes=localhost,127.0.0.1", "--tests=network_tcp")
    assert missed["network_tcp"] == "the other side has ended with 1"


PERFTEST = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8388608    2000             394.21             392.87               0.005854
---------------------------------------------------------------------------------------
"""
"""From perftest's documentation (ib_write_bw --report_gbits)."""


def test_rdma(tmp_path: Path) -> None:
    assert node_speed.read_perftest(PERFTEST) == 392.87
    states = {
        "mlx5_0": ("4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)"),
        "mlx5_1": ("1: DOWN", "2: Polling", "400 Gb/sec (4X NDR)"),
        "mlx5_2": ("4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)"),
        "mlx5_3": ("4: ACTIVE", "5: LinkUp", "25 Gb/sec (1X EDR)"),  # for management
    }
    for name, texts in states.items():
        port = tmp_path / "sys/class/infiniband" / name / "ports/1"
        port.mkdir(parents=True)
        for file, text in zip(("state", "phys_state", "rate"), texts):
            (port / file).write_text(f"{text}\n")
    assert [port.name for port in node_speed.rails(read_ports(Tree(str(tmp_path))))] == ["mlx5_0/1", "mlx5_2/1"]
    assert node_speed.rails([]) == []


RAILS = [Port(f"mlx5_{number}", 1, "InfiniBand", "ACTIVE", "LinkUp", 400, {}) for number in range(4)]

Measured = Callable[[str, Mapping[str, float]], "tuple[dict[str, Any], list[str]]"]


@pytest.fixture(name="measure_rails")
def rails_of_stand_ins(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Measure with stand-ins for srun and ib_write_bw. Returns the result, and the pairs of adapters in their order."""
    asked: list[str] = []

    def measure_rails(test: str, speeds: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
        def start(command: list[str]) -> AbstractContextManager[None]:
            asked.append(command[command.index("-d") + 1])
            return nullcontext()

        def run(command: list[str], _seconds: float) -> str:
            asked[-1] = f"{command[command.index('-d') + 1]} {asked[-1]}"
            if asked[-1] not in speeds:
                raise accept_results.MeasureError("ib_write_bw ended with 1: Failed status 12")
            return PERFTEST.replace("392.87", str(speeds[asked[-1]]))

        monkeypatch.setattr(node_speed, "run", run)
        monkeypatch.setattr(node_speed, "background", start)
        node_speed.measure_rdma(accept_results.Results(["n1", "n2"], frozenset([test])))
        (line,) = capsys.readouterr().out.splitlines()
        return (json.loads(line) if line.startswith("{") else {"missed": line}), asked

    monkeypatch.setattr(node_speed, "read_ports", lambda _tree: RAILS)
    monkeypatch.setattr(node_speed, "there", lambda _program: True)
    monkeypatch.setattr(node_speed, "until_it_answers", lambda ask, _server: ask())
    return measure_rails


def test_the_slowest_rail_is_named(measure_rails: Measured) -> None:
    """Each rail of the node is measured with the same rail of the other."""
    speeds = {"mlx5_0 mlx5_0": 392.0, "mlx5_1 mlx5_1": 97.5, "mlx5_2 mlx5_2": 391.0, "mlx5_3 mlx5_3": 391.0}
    result, asked = measure_rails("network_rdma", speeds)
    assert (result["value"], result["text"], asked) == (97.5, "mlx5_1/1", [*speeds])


def test_each_rail_is_measured_with_another_one(measure_rails: Measured) -> None:
    speeds = {"mlx5_0 mlx5_1": 380.0, "mlx5_1 mlx5_2": 381.0, "mlx5_2 mlx5_3": 190.0, "mlx5_3 mlx5_0": 380.0}
    result, asked = measure_rails("network_rdma_across", speeds)
    assert (result["value"], result["text"], asked[1:]) == (190.0, "mlx5_2/1 to mlx5_3/1", [*speeds])


def test_rails_of_two_planes_are_measured_with_those_of_their_plane(measure_rails: Measured) -> None:
    speeds = {"mlx5_0 mlx5_2": 380.0, "mlx5_1 mlx5_3": 381.0, "mlx5_2 mlx5_0": 382.0, "mlx5_3 mlx5_1": 370.0}
    result, asked = measure_rails("network_rdma_across", speeds)
    assert (result["value"], result["text"]) == (370.0, "mlx5_3/1 to mlx5_1/1")
    assert asked == ["mlx5_0 mlx5_1", "mlx5_0 mlx5_2", *speeds]


def test_rails_without_a_program_to_measure_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = ("network_rdma", "network_rdma_across")
    monkeypatch.setattr(node_speed, "read_ports", lambda _tree: RAILS)
    monkeypatch.setattr(node_speed, "there", lambda _program: "")
    node_speed.measure_rdma(accept_results.Results(["n1", "n2"], frozenset(tests)))
    why = "ib_write_bw (package perftest) is not installed"
    assert capsys.readouterr().out.splitlines() == [f"not measured: {test}: {why}" for test in tests]
    monkeypatch.setattr(node_speed, "read_ports", lambda _tree: [])
    node_speed.measure_rdma(accept_results.Results(["n1", "n2"], frozenset(tests)))
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("speeds", "why"),
    [
        ({}, "mlx5_0/1 reaches no other rail of the other node; are they separate networks?"),
        # A cable is in the wrong switch.
        ({"mlx5_0 mlx5_2": 380.0}, "from mlx5_1/1 to mlx5_3/1: ib_write_bw ended with 1"),
    ],
)
def test_rails_that_do_not_reach_others_are_named(measure_rails: Measured, speeds: dict[str, float], why: str) -> None:
    result, _asked = measure_rails("network_rdma_across", speeds)
    assert result["missed"].startswith(f"not measured: network_rdma_across: {why}")


def test_a_value_that_is_no_number_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    results = accept_results.Results(["n1"], frozenset(["stream"]))
    results.add("stream", float("nan"))
    results.add("stream", 0.0)
    results.add("dgemm", 5.0)
    assert capsys.readouterr().out.splitlines() == [
        "not measured: stream: the value is nan",
        "not measured: stream: the value is 0.0",
    ]


TORCH = """
import multiprocessing as python
class multiprocessing:
    def spawn(work, arguments, number):
        started = [python.get_context("spawn").Process(target=work, args=(rank, *arguments)) for rank in range(number)]
        [process.start() for process in started]
        assert [process.join() or process.exitcode for process in started] == [0] * number
class Event:
    def __init__(self, enable_timing): pass
    def record(self): pass
    def elapsed_time(self, other): return 1.0
class cuda:
    Event = Event
    device_count = lambda: 2
    set_device = synchronize = lambda *_: None
    mem_get_info = lambda _: (1 << 36, 1 << 36)
class distributed:
    class ReduceOp: MIN = 0
    init_process_group = all_reduce = destroy_process_group = lambda *_, **__: None
class tensor:
    def __init__(self, values, device): self.item = lambda: values[0]
zeros = lambda *_, **__: None
float32 = 0
"""
"""What a collective takes from PyTorch; its processes are real ones."""


def test_the_processes_of_a_collective_do_not_run_the_program_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's `spawn` would load the file of the program in each of them."""
    monkeypatch.setattr(program_library, "LIBRARY", f"{tmp_path}/library")
    (tmp_path / "torch.py").write_text(TORCH)
    for file in program_files.library("slurm-accept", {f"{tmp_path}/slurm-accept": "programs.accept.accept_command"}):
        path = Path(file["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"])
    words = [sys.executable, "-B", f"{tmp_path}/slurm-accept", "ranks", "--tests=all_reduce_node", "--nodes=n1"]
    variables = {"PYTHONPATH": str(tmp_path), "SLURMD_NODENAME": "n1", "PATH": "/usr/bin:/bin"}
    answer = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert answer.stderr == ""
    assert json.loads(answer.stdout)["test"] == "all_reduce_node"
