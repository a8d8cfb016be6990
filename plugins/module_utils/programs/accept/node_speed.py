# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures disks, processors and the network of nodes."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ...hardware.network_ports import Port, read_ports
from ...hardware.sysfs import Tree
from ...host import replacing
from .accept_results import GIB, MIB, MeasureError, Results, background, run, run_any, there

STARTED = 60
"""Seconds until the other side of a measurement must answer: srun starts it."""

FILE = GIB
"""Bytes of fio's file: the same at each level, so that the values can be compared."""

FILE_SECONDS = 30
"""How long fio writes and reads it at most."""

NETWORK_SECONDS = 5
"""How long iperf3 sends in each direction."""

MATRIX = 32 * MIB
"""Bytes of hpcc's matrix for each core, more than its share of a cache."""

HPCC_SECONDS = 900

MESSAGE = 8 * MIB
"""Bytes of a message of ib_write_bw."""
SERVERS = itertools.count()
"""Each server of ib_write_bw listens on a port of its own: the one before may not have ended yet."""


def measure_files(results: Results, kind: str, directory: str) -> None:
    """fio, in a new directory below this one; kind: `local` or `shared`."""
    wanted = results.wanted(f"disk_write_{kind}", f"disk_read_{kind}")
    if not wanted or not directory:
        return
    with results.named(*wanted):
        if not there("fio"):
            raise MeasureError("fio is not installed")
        free = shutil.disk_usage(directory).free
        if free < 2 * FILE:
            raise MeasureError(f"{directory} has {free // MIB} MiB free, and needs {2 * FILE // MIB} MiB")
        folder = tempfile.mkdtemp(prefix=".slurm-accept-", dir=directory)
        try:
            for way in ("write", "read"):
                results.add(f"disk_{way}_{kind}", fio(folder, way), size=FILE)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def fio(folder: str, way: str) -> float:
    """MB/s, past the memory of the kernel where the file system can do that. Raises MeasureError."""
    command = ["fio", "--name=accept", f"--directory={folder}", f"--rw={way}", f"--size={FILE}", "--bs=1M"]
    command += ["--ioengine=libaio", "--iodepth=16", f"--runtime={FILE_SECONDS}", "--output-format=json"]
    command += ["--end_fsync=1"] if way == "write" else []
    limit = 2 * FILE_SECONDS + 60
    try:
        text = run([*command, "--direct=1"], limit)
    except MeasureError as error:
        if "Invalid argument" not in str(error) and "direct" not in str(error).lower():
            raise
        text = run([*command, "--direct=0"], limit)
    return read_fio(text, way)


def read_fio(text: str, way: str) -> float:
    """MB/s in fio's JSON, which may follow a line of text."""
    return float(json.loads(text[text.index("{") :])["jobs"][0][way]["bw_bytes"]) / 1e6


HPL = """\
HPLinpack benchmark input file
Written by slurm-accept
HPL.out      output file name
8            device out
1            number of sizes
{order}      N
1            number of block sizes
192          NB
0            process mapping
1            number of grids
{rows}       P
{columns}    Q
16.0         threshold
1            number of panel factorizations
2            PFACT: right-looking
1            number of stopping criteria
4            NBMIN
1            number of panels in recursion
2            NDIV
1            number of recursive factorizations
1            RFACT: Crout
1            number of broadcasts
1            BCAST
1            number of lookahead depths
1            DEPTH
2            SWAP
64           swapping threshold
0            L1
0            U
1            equilibration
8            alignment
##### this line is ignored #####
0            PTRANS: further sizes
1000         values
0            PTRANS: further block sizes
40           values
"""
"""hpcc's input file hpccinf.txt, in the form of Debian's /usr/share/doc/hpcc/examples/_hpccinf.txt."""


def measure_cpus(results: Results) -> None:
    """hpcc, with a process for each core of the job; all of them work at the same time."""
    wanted = results.wanted("stream", "dgemm")
    if not wanted:
        return
    with results.named(*wanted):
        if not there("hpcc"):
            raise MeasureError("hpcc is not installed")
        processes = count_cores()
        rows = max(number for number in range(1, math.isqrt(processes) + 1) if processes % number == 0)
        order = math.isqrt(min(MATRIX * processes, free_memory() // 4) // 8)
        with tempfile.TemporaryDirectory(prefix="slurm-accept-") as folder:
            text = HPL.format(order=order, rows=rows, columns=processes // rows)
            replacing.replace(f"{folder}/hpccinf.txt", text.encode())
            command = ["mpirun", "--map-by", ":OVERSUBSCRIBE", "-np", str(processes), "hpcc"]
            run(command, HPCC_SECONDS, directory=folder)
            found = read_hpcc((Path(folder) / "hpccoutf.txt").read_text(encoding="utf-8", errors="replace"))
        results.add("dgemm", found["StarDGEMM_Gflops"] * processes)
        results.add("stream", found["StarSTREAM_Triad"] * processes)


def read_hpcc(text: str) -> dict[str, float]:
    """The summary of hpcc. Raises MeasureError if hpcc calls its result wrong, KeyError and ValueError for others."""
    _before, _begin, summary = text.partition("Begin of Summary section.")
    values = dict(re.findall(r"^(\w+)=(\S+)$", summary, re.MULTILINE))
    if values["Success"] != "1":
        raise MeasureError("hpcc found a wrong result: a processor or memory computes wrongly")
    return {name: float(values[name]) for name in ("StarDGEMM_Gflops", "StarSTREAM_Triad")}


def count_cores() -> int:
    """Cores of this job: hyper-threads do not help hpcc."""
    cpus = os.sched_getaffinity(0)
    cores = set()
    for cpu in cpus:
        folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            cores.add((folder / "thread_siblings_list").read_text(encoding="ascii"))
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))


def free_memory() -> int:
    """Bytes that are available on this node."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else GIB


def on_node(node: str, *command: str) -> list[str]:
    """The command that starts another one on a node of this job."""
    where = ["--nodes=1", "--ntasks=1", f"--nodelist={node}", "--overlap", "--mpi=none"]
    return ["srun", *where, "--kill-on-bad-exit=0", *command]


def measure_network(results: Results) -> None:
    """iperf3 between this node and the other one, in both directions, one after the other: the slower one counts."""
    if not results.wanted("network_tcp"):
        return
    with results.named("network_tcp"):
        if not there("iperf3"):
            raise MeasureError("iperf3 is not installed")
        other, port = results.other, str(20000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 10000)
        command = ["iperf3", "--client", other, "--port", port, "--json", "--parallel", "4"]
        command += ["--time", str(NETWORK_SECONDS), "--omit", "1"]
        with background(on_node(other, "iperf3", "--server", "--port", port)) as server:
            ways = [*command], [*command, "--reverse"]
            rates = [until_it_answers(partial(ask_iperf3, way), server) for way in ways]
        results.add("network_tcp", min(rates))


def until_it_answers(ask: Callable[[], float], server: subprocess.Popen[bytes]) -> float:
    """The answer of a client, which fails while srun starts the server. Raises the last MeasureError."""
    until = time.monotonic() + STARTED
    while time.monotonic() < until and server.poll() is None:
        with contextlib.suppress(MeasureError):
            return ask()
        time.sleep(1)
    if server.poll() is not None:
        raise MeasureError(f"the other side has ended with {server.returncode}")
    return ask()


def ask_iperf3(command: Sequence[str]) -> float:
    """Gbit/s of a client. Raises MeasureError."""
    return read_iperf3(run_any(command, 60))


def read_iperf3(text: str) -> float:
    """Gbit/s that were received, in iperf3's JSON. Raises MeasureError with iperf3's own error."""
    answer = json.loads(text)
    if answer.get("error"):
        raise MeasureError(f"iperf3: {answer['error']}")
    return float(answer["end"]["sum_received"]["bits_per_second"]) / 1e9


def measure_rdma(results: Results) -> None:
    """ib_write_bw over each rail, then from each rail to another one, one after the other. The slowest is named."""
    ports = rails(read_ports(Tree()))
    for test, least, measure in (("network_rdma", 1, along), ("network_rdma_across", 2, across)):
        if len(ports) < least or not results.wanted(test):
            continue
        with results.named(test):
            if not there("ib_write_bw"):
                raise MeasureError("ib_write_bw (package perftest) is not installed")
            add_slowest(results, test, measure(ports, partial(rdma_speed, results.other)))


Speed = Callable[[Port, Port], float]
"""Gbit/s from a port of this node to one of the other. Raises MeasureError."""


def along(ports: Sequence[Port], speed: Speed) -> dict[str, float]:
    """Gbit/s over each rail. Raises MeasureError."""
    return {port.name: speed(port, port) for port in ports}


def across(ports: Sequence[Port], speed: Speed) -> dict[str, float]:
    """Gbit/s from each rail to another one of the other node, by their names.

    The other one is as far on as the first that the first rail reaches: rails on different planes do not reach each
    other. Raises MeasureError if a rail does not reach its other one.
    """
    distance = first_reached(ports, speed)
    others = [*ports[distance:], *ports[:distance]]
    return {f"{here.name} to {other.name}": speed(here, other) for here, other in zip(ports, others)}


def first_reached(ports: Sequence[Port], speed: Speed) -> int:
    """The place of the first other rail that the first rail reaches. Raises MeasureError if there is none."""
    for place in range(1, len(ports)):
        with contextlib.suppress(MeasureError):
            speed(ports[0], ports[place])
            return place
    raise MeasureError(f"{ports[0].name} reaches no other rail of the other node; are they separate networks?")


def add_slowest(results: Results, test: str, values: Mapping[str, float]) -> None:
    """Print the slowest of these values, with its name if there are others."""
    slowest = min(values, key=values.__getitem__)
    results.add(test, values[slowest], size=MESSAGE, text=slowest if len(values) > 1 else "")


def rdma_speed(node: str, here: Port, other: Port) -> float:
    """Gbit/s of ib_write_bw from a port of this node to one of the other node. Raises MeasureError."""
    listens = 18000 + (int(os.environ.get("SLURM_JOB_ID", "0")) + next(SERVERS)) % 1000
    common = ["ib_write_bw", "-p", str(listens), "-s", str(MESSAGE), "-n", "2000", "--report_gbits", "-F"]
    server = [*common, "-d", other.device, "-i", str(other.number)]
    client = [*common, "-d", here.device, "-i", str(here.number), node]
    try:
        with background(on_node(node, *server)) as process:
            return until_it_answers(partial(ask_perftest, client), process)
    except MeasureError as error:
        raise MeasureError(f"from {here.name} to {other.name}: {error}") from error


def rails(ports: Sequence[Port]) -> list[Port]:
    """The ports that are up and have the highest rate. Slower ones are for storage and management."""
    up = [port for port in ports if port.is_up]
    highest = max((port.rate for port in up), default=0)
    return [port for port in up if port.rate == highest]


def ask_perftest(command: Sequence[str]) -> float:
    """Gbit/s of a client. Raises MeasureError."""
    return read_perftest(run(command, 120))


def read_perftest(text: str) -> float:
    """The average in the last line of numbers of perftest: bytes, iterations, peak, average, messages."""
    rows = re.findall(r"^\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", text, re.MULTILINE)
    if not rows:
        raise MeasureError("ib_write_bw shows no table")
    return float(rows[-1][3])
