# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of `check`, in their order. A later part adds functions to `Check` and lines to `run`."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import acceptance
import loads
import machine
import recording
import stand_ins
from cluster import USER, Cluster, field
from root import NODE, Root
from steps import AbsentError, Answer, StepError, Steps, wait_for

BROKEN = {
    "lost": (
        15,
        "Unable to determine the device handle for GPU0: 0000:01:00.0: GPU is lost.  "
        "Reboot the system to recover this GPU",
    ),
    "driver": (
        9,
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.",
    ),
    "garbage": (0, "\x00\n,,,"),
}
"""Exit status and output of an nvidia-smi that is broken, in its own form. No real GPU is broken for them."""
RESUMED = 10
"""Seconds after which a node that is resumed has to be IDLE."""
WRAPPER = "/usr/local/sbin/nvidia-smi"
METRICS = """
import sys
sys.path.insert(0, "/collection/plugins")
from module_utils.programs.metrics import slurm_gpu_metrics
"""
TEXTFILE = "/var/lib/prometheus/node-exporter/gpu.prom"
BUSY, MEASURED = "gpucluster_job_gpu_busy_seconds_total", "gpucluster_job_gpu_measured_seconds_total"
USED = (BUSY, MEASURED, "slurm_job_utilization_gpu")
SAMPLE_SECONDS, USE_SECONDS = 0.25, 20
"""Shorter spans than on a node, and how long samples are taken of each load: 100/sqrt(80) percentage points."""
SAMPLER = f"""{METRICS}
slurm_gpu_metrics.SAMPLE_SECONDS = {SAMPLE_SECONDS}
slurm_gpu_metrics.sample()
"""
SHOWN = ("gpucluster_gpu_processes", "DCGM_FI_DEV_POWER_USAGE", "gpucluster_gpu_query_seconds")
SHARES = {100: (90, 100), 30: (15, 45), 0: (0, 5)}
"""Percentages of each second in which a load computes, and the lowest and highest ones by the samples."""
QUERY = "index,pci.bus_id,name,memory.total,mig.mode.current,driver_version"


class Check:
    """All steps, with what earlier ones have found for later ones.

    Args:
        out: the directory of the results.
        scratch: an empty directory.
        seconds: the time limit of all steps.
        host: the name of this machine, to be replaced.
        with_stand_ins: whether the GPU is a stand-in.
    """

    def __init__(self, out: Path, scratch: Path, seconds: float, host: str, with_stand_ins: bool) -> None:
        self.steps = Steps(out, seconds)
        self.steps.names.learn({host})
        self.scratch = scratch
        self.machine = stand_ins.make(self.steps, scratch / "stand-ins") if with_stand_ins else machine.find()
        self.root = Root(self.steps, scratch / "root")
        self.cluster = Cluster(self.root)
        self.program = scratch / "gpu_load"
        self.cgroups = ""
        self.facts: dict[str, Any] = {}
        self.served = self.ready = self.node_serves = False

    def run(self) -> int:
        """Take the steps. Returns the exit status."""
        take = self.steps.take
        recording.learn_names(self.steps, self.machine)
        try:
            take("machine", self.describe)
            take("recording", lambda: recording.record(self.steps, self.machine))
            take("root", self.prepare)
            take("facts", self.measure)
            take("gpus", self.gpus)
            take("slurmd -C", self.slurmd_says)
            take("build of the loads", self.build)
            take("servers", self.start_servers)
            take("AutoDetect=nvidia", lambda: self.node("nvidia"))
            take("AutoDetect=nvml", lambda: self.node("nvml"))
            take("device files", lambda: self.node(""))
            take("job", self.job)
            take("job without GPU", self.confined)
            take("record of the job", self.accounted)
            for name in ("compute", "memory", "copies", "matrix"):
                take(name, lambda name=name: self.load(name))
            take("use of the GPU", self.use)
            take("health check", self.healthy)
            take("health check at a job", self.healthy_at_job)
            for name in BROKEN:
                take(f"broken nvidia-smi: {name}", lambda name=name: self.broken(name))
            take("accept", self.accept)
        finally:
            self.cluster.log_all()
        failed = self.steps.failed()
        print(f"{len(self.steps.lines)} steps, {failed} failed", flush=True)
        return int(failed > 0)

    # -- what later steps need ---------------------------------------------------------------------------------------

    def needs_root(self) -> Root:
        """The root, once it is mounted."""
        if not self.ready:
            raise AbsentError("the root is not there")
        return self.root

    def needs_facts(self) -> dict[str, Any]:
        """The facts with a GPU."""
        self.needs_root()
        if not self.facts.get("gpus"):
            raise AbsentError("the facts have no GPU")
        return self.facts

    def needs_node(self) -> Cluster:
        """The cluster with its node IDLE, as the last configuration has left it."""
        if not self.node_serves:
            raise AbsentError("no node has become IDLE")
        return self.cluster

    # -- the machine -------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """What this machine is and has."""
        here = self.machine
        if here.devices and not any("nvidia-uvm" in path for path in here.devices):
            # The first CUDA program makes the file so. In the root none could.
            self.steps.command(["nvidia-modprobe", "-c", "0", "-u"])
            here.devices = machine.device_files()
        self.cgroups, why = machine.cgroups()
        self.steps.log(f"{here}")
        init = Path("/proc/1/comm").read_text().strip()
        cgroups = f"cgroups {self.cgroups} can be written" if self.cgroups else f"no cgroups ({why})"
        found = {
            "nvidia-smi": here.nvidia_smi,
            "libcuda": here.has("libcuda.so"),
            "libnvidia-ml": here.has("libnvidia-ml.so"),
            "nvcc": here.nvcc,
            "cuBLAS": here.cublas,
            "PyTorch": here.torch,
        }
        missing = [name for name, path in found.items() if not path]
        figures = (
            f"kernel {os.uname().release}, init {init}, {os.cpu_count()} CPUs, {cgroups}, "
            f"{' '.join(path.rpartition('/dev/')[2] for path in here.devices) or 'no device files'}, "
            f"{len(here.libraries)} libraries of the driver, "
            f"nvidia-smi {here.nvidia_smi or 'missing'}, nvcc {here.nvcc or 'missing'}, "
            f"cuBLAS {here.cublas or 'missing'}, PyTorch {here.torch or 'missing'}"
        )
        if here.stand_ins:
            return f"stand-ins for the GPU, {figures}"
        if not here.nvidia_smi or not here.has("libnvidia-ml.so") or not here.devices:
            raise StepError(f"missing: {', '.join(missing)}; {figures}")
        return figures

    def prepare(self) -> str:
        """Unpack and mount the root."""
        self.root.unpack()
        self.root.mount(self.machine)
        if self.machine.stand_ins:
            stand_ins.install(self.root)
        self.root.answer("ip", "link", "set", "lo", "up")
        # Slurm's daemons listen only where a host has an address that is not 127.0.0.1 (AI_ADDRCONFIG, getaddrinfo(3)).
        self.root.answer("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
        version = self.root.answer("slurmd", "-V").strip()
        self.ready = True
        return f"{version}, nvidia-smi in the root says: {self.root.run('nvidia-smi', '-L').message}"

    def nvidia_smi(self) -> list[list[str]]:
        """What nvidia-smi says of each GPU, in the order of QUERY; empty if it does not know the question."""
        query = ("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
        lines = self.root.run(*query).output.split("\n")
        return [columns for line in lines if len(columns := [column.strip() for column in line.split(",")]) == 6]

    def measure(self) -> str:
        """The facts of module slurm_hardware_facts, and whether they agree with slurmd and nvidia-smi."""
        result = self.needs_root().collection("facts")
        if result.get("failed"):
            raise StepError(result["msg"])
        self.facts = result["ansible_facts"]["slurm_hardware"]
        if not self.facts["gpus"]:
            raise StepError(f"no GPU in {self.facts}")
        wrong = [f"{item['name']}: {item['measured']}, slurmd: {item['slurmd']}" for item in result["differences"]]
        for gpu, answer in zip(self.facts["gpus"], self.nvidia_smi()):
            known = (gpu["pci_address"], gpu["model"], str(gpu["memory_mb"]))
            domain, _, rest = answer[1].lower().partition(":")
            said = (f"{int(domain, 16):04x}:{rest}", answer[2], answer[3])
            if known != said:
                wrong.append(f"GPU {known}, nvidia-smi: {said}")
        gpus = "; ".join(
            f"minor {gpu['minor']}, {gpu['pci_address']}, {gpu['model']}, type {gpu['type']}, {gpu['memory_mb']} MiB, "
            f"NUMA node {gpu['numa_node']}, cores {gpu['cores'] or 'unknown'}, {len(gpu['mig'])} MIG instances"
            for gpu in self.facts["gpus"]
        )
        shape = "/".join(str(self.facts[key]) for key in ("sockets_per_board", "cores_per_socket", "threads_per_core"))
        figures = f"{self.facts['cpus']} CPUs ({shape}), {self.facts['real_memory']} MiB; {gpus}"
        if wrong:
            raise StepError(f"{' | '.join(wrong)}; {figures}")
        return figures

    def gpus(self) -> str:
        """Driver, its kind and MIG mode as the collection sees them, and NVLink, of which it knows nothing."""
        result = self.needs_root().collection("gpus")
        said = self.nvidia_smi()
        driver = said[0][5] if said else ""
        links = len(re.findall(r"Link \d+: [\d.]+ GB/s", self.root.run("nvidia-smi", "nvlink", "-s").output))
        layouts = ", ".join(gpu["layout"] + ("" if gpu["capable"] else " (not capable)") for gpu in result["mig"])
        figures = (
            f"driver {result['driver'] or 'not loaded as a module'} ({result['kind'] or 'of an unknown kind'}), "
            f"nvidia-smi: {driver or 'no answer'}; PCI devices {result['devices']}; {layouts}; {links} active NVLinks"
        )
        if result["driver"] and driver and result["driver"] != driver:
            raise StepError(figures)
        return figures

    def slurmd_says(self) -> str:
        """What slurmd finds without a configuration."""
        printed: str = self.needs_root().answer("slurmd", "-C")
        return printed.split("\n")[0]

    # -- Slurm ---------------------------------------------------------------------------------------------------------

    def start_servers(self) -> str:
        """Start munge, MariaDB and slurmdbd."""
        self.needs_root()
        self.cluster.start_servers()
        self.cluster.database_serves()
        self.served = True
        return "munged, MariaDB and slurmdbd serve"

    def node(self, autodetect: str) -> str:
        """A node whose GPUs Slurm finds in one way: `slurmd -G`, and IDLE with its GPUs."""
        facts = self.needs_facts()
        if autodetect == "nvidia" and self.machine.stand_ins:
            raise AbsentError("slurmd reads /proc and /sys of a real driver, and a stand-in makes it crash")
        refused, self.node_serves = "", False
        if self.cgroups == "v2":
            # slurmd makes its scope in this slice, which systemd would have made.
            Path(machine.CGROUPS, "system.slice").mkdir(exist_ok=True)
        for cgroups in [self.cgroups, ""] if self.cgroups else [""]:
            self.cluster.configure(facts, autodetect, cgroups, self.served)
            found = self.root.run("slurmd", "-G", "-N", NODE)
            detected = re.findall(r"Gres Name=gpu .*", found.output + found.errors)
            try:
                if found.status or not detected:
                    raise StepError(f"slurmd -G: {found.message}")
                shown = self.cluster.start()
                self.node_serves = True
                # What slurmd has refused once is not tried again.
                self.cgroups = cgroups
                break
            except StepError as error:
                refused += f" (with cgroups {cgroups or 'disabled'}: {error})"
        else:
            raise StepError(refused.strip())
        gres = field(shown, "Gres")
        count = sum(int(number) for number in re.findall(r"gpu(?::[^:,()]+)?:(\d+)", gres))
        lines = " / ".join(self.cluster.files["gres.conf"].strip().split("\n"))
        figures = (
            f"{lines} -> {' / '.join(detected)} -> IDLE Gres={gres}, cgroups {cgroups or 'disabled'}{refused}, "
            f"CfgTRES={field(shown, 'CfgTRES')}"
        )
        if count != len(facts["gpus"]):
            raise StepError(f"{count} GPUs of {len(facts['gpus'])}: {figures}")
        return figures

    def job(self) -> str:
        """A job of a user with one GPU, and what it sees."""
        script = "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS; nvidia-smi -L; id -un"
        answer = self.needs_node().job("sh", "-c", script)
        lines = [line for line in answer.output.split("\n") if line]
        if answer.status or len(lines) < 3 or not lines[0].startswith("0"):
            raise StepError(f"CUDA_VISIBLE_DEVICES: {lines[:1]}, {answer.message}")
        seen = f"nvidia-smi -L: {len(lines) - 2} lines"
        return f"CUDA_VISIBLE_DEVICES and SLURM_JOB_GPUS {lines[0]}, {seen}, user {lines[-1]}"

    def confined(self) -> str:
        """Whether a job without a GPU can open the device file of one, and a job with it can."""
        file = f"/dev/nvidia{self.needs_facts()['gpus'][0]['minor']}"
        script = f"LC_ALL=C; exec 3<{file}"
        without = self.needs_node().job("sh", "-c", script, gres="")
        given = self.cluster.job("sh", "-c", script)
        refused, other = (self.opening(file, answer) for answer in (without, given))
        figures = f"{file} without a GPU: {refused}; with it: {other}"
        kind = re.search(r"CgroupPlugin=(\S+)", self.cluster.files["cgroup.conf"])
        plugin = kind[1] if kind else "unknown"
        if plugin == "disabled":
            raise AbsentError(f"no cgroups confine devices here; {figures}")
        if "not permitted" not in refused or "not permitted" in other:
            raise StepError(f"{plugin} does not confine: {figures}")
        return f"{plugin} confines: {figures}"

    def opening(self, file: str, answer: Answer) -> str:
        """What a shell says of a file that it opens in a job. srun's own last line has its exit status only."""
        said = [line for line in answer.errors.split("\n") if file in line]
        return "opened" if answer.status == 0 else "".join(said) or answer.message

    def accounted(self) -> str:
        """The GPU in the record of a job: slurmctld's while it runs, and slurmdbd's."""
        running = self.needs_node().job("sh", "-c", "scontrol --oneliner --details show job $SLURM_JOB_ID")
        if running.status:
            raise StepError(running.message)
        shown = running.output
        job = field(shown, "JobId")
        figures = " ".join(f"{name}={field(shown, name)}" for name in ("AllocTRES", "GRES", "TresPerNode"))
        if not self.served:
            return f"no database; {figures}"
        query = ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=AllocTRES,State")
        kept = self.root.answer(*query).strip()
        if "gres/gpu=1" not in kept:
            raise StepError(f"sacct has {kept or 'nothing'}; {figures}")
        return f"{figures}; sacct: {kept}"

    # -- loads ---------------------------------------------------------------------------------------------------------

    def build(self) -> str:
        """Build the program of the loads, and put it into the root."""
        if self.machine.stand_ins:
            return "stand-in for gpu_load"
        figures: str = loads.build(self.steps, self.machine, self.program)
        if self.ready:
            shutil.copy(self.program, self.root.inner(loads.PROGRAM))
        return figures

    def load(self, name: str) -> str:
        """A load in a job, or outside of Slurm where no node has become IDLE."""
        in_job = self.node_serves
        if not in_job and not self.program.exists():
            raise AbsentError("no node has become IDLE, and gpu_load was not built")
        command = [loads.PROGRAM if in_job else str(self.program), name]
        if name == "matrix":
            place = self.root.inner("/opt/cublas") if in_job else Path(self.machine.cublas or "/nonexistent")
            found = loads.cublas(place)
            command.append(f"/opt/cublas/{found.name}" if in_job else str(found))
        if in_job:
            answer = self.cluster.job("env", "LD_LIBRARY_PATH=/opt/cublas", *command)
        else:
            answer = self.steps.command(command, 60)
        return f"{loads.shown(answer)}, {'in a job' if in_job else 'not in a job, since no node has become IDLE'}"

    # -- who uses the GPU ----------------------------------------------------------------------------------------------

    def series(self) -> list[tuple[str, dict[str, str], float]]:
        """What slurm-gpu-metrics writes now: names, labels and values."""
        self.root.answer("python3", "-I", "-c", f"{METRICS}sys.exit(slurm_gpu_metrics.main())")
        rows = re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", self.root.read(TEXTFILE), re.MULTILINE)
        return [(name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for name, labels, value in rows]

    def use(self) -> str:
        """The series of a job that holds the GPU and computes for a known part of each second, and those after it."""
        self.needs_node()
        if not self.machine.stand_ins and not self.program.exists():
            raise AbsentError("gpu_load was not built")
        self.root.inner(TEXTFILE).parent.mkdir(parents=True, exist_ok=True)
        before = self.series()
        figures = [f"{self.root.read('/run/gpucluster-slurm/gpu-devices').strip() or 'no list of slurmd'}"]
        if held := [row for row in before if row[0] == "gpucluster_gpu_allocated" and row[2]]:
            raise StepError(f"allocated before the job: {held}")
        for share, (lowest, highest) in SHARES.items():
            figures.append(self.used(share, lowest, highest))
        return "; ".join(figures)

    def used(self, share: int, lowest: int, highest: int) -> str:
        """The figures of one load. Raises StepError if they are not between the limits, or name another job."""
        self.cluster.start_job("env", "LD_LIBRARY_PATH=/opt/cublas", loads.PROGRAM, "busy", str(share), "60")
        try:
            time.sleep(3)
            self.series()  # the map has the job from now on
            self.root.run("timeout", str(USE_SECONDS), "python3", "-I", "-c", SAMPLER, seconds=USE_SECONDS + 10)
            found = self.series()
        finally:
            self.cluster.end_job()
        jobs = {name: [(labels, value) for own, labels, value in found if own == name] for name in USED}
        # Those of the last job stay for a time.
        newest = {
            name: max(rows, key=lambda row: int(row[0]["slurmjobid"]), default=None) for name, rows in jobs.items()
        }
        if any(row is None or row[0]["user"] != USER for row in newest.values()) or len(jobs[USED[-1]]) != 1:
            raise StepError(f"{share} %: {jobs}")
        busy, measured, shown_use = (row[1] for row in newest.values() if row)
        mean = 100 * busy / measured if measured else -1
        values = {name: max((value for own, _labels, value in found if own == name), default=0) for name in SHOWN}
        shown = ", ".join(f"{name.rpartition('gpu_')[2] or name} {value:g}" for name, value in values.items())
        figures = f"{share} %: {mean:.0f} % of {measured:.0f} s, shown as {shown_use:g} %, {shown}"
        if not lowest <= mean <= highest or measured < USE_SECONDS / 2:
            raise StepError(figures)
        if not wait_for(lambda: not [row for row in self.series() if row[0] == USED[-1]], 10):
            raise StepError(f"{figures}; the job has the GPU after its end")
        return figures

    # -- the health check ----------------------------------------------------------------------------------------------

    def health(self) -> tuple[int, str, str]:
        """Run the health check. Returns its status, what it prints, and state and reason of the node."""
        self.needs_node()
        answer = self.root.run("slurm-health", seconds=60)
        node = self.cluster.node()
        return answer.status, answer.output.strip(), f"{field(node, 'State')} {field(node, 'Reason')}".strip()

    def healthy(self) -> str:
        """The health check on the node as it is."""
        status, printed, node = self.health()
        if status:
            raise StepError(f"{printed}; {node}")
        return f"no error, {node}"

    def healthy_at_job(self) -> str:
        """What the prolog and the epilog of a job see of the GPU, with their times; and that nothing was ever found."""
        self.needs_node()
        figures = []
        for moment in ("before", "after"):
            began = time.monotonic()
            answer = self.root.run("slurm-health", f"--{moment}-job", seconds=60)
            figures.append(f"{moment} {1000 * (time.monotonic() - began):.0f} ms")
            if answer.status or answer.output.strip():
                raise StepError(f"{moment} a job: {answer.message}, status {answer.status}")
        found = self.root.answer("slurm-health", "--list", seconds=60).strip()
        if found:
            raise StepError(found)
        return f"{', '.join(figures)}, no finding"

    def broken(self, name: str) -> str:
        """What the health check and the facts say of a broken nvidia-smi, and that the node is resumed after it."""
        self.needs_node()
        status, output = BROKEN[name]
        self.root.write(WRAPPER, f"#!/usr/bin/python3\nprint({output!r})\nraise SystemExit({status})\n", 0o755)
        try:
            status, printed, node = self.health()
            result = self.root.collection("facts")
        finally:
            self.root.inner(WRAPPER).unlink()
        after = self.health()
        # slurmctld shows a node that is resumed as not responding until slurmd has answered its next ping.
        responds = wait_for(lambda: self.cluster.state() == "IDLE", RESUMED)
        warnings = re.findall(r"'msg': ['\"](.*?)['\"][,}]", str(result.get("warnings")))
        figures = f"{printed}; node: {node}; facts: {result.get('msg') or warnings}; afterwards: {after[2]}"
        figures += f", then {self.cluster.state()}"
        if status != 1 or "DRAIN" not in node or "DRAIN" in after[2] or after[0] or not responds or not warnings:
            raise StepError(figures)
        return figures

    # -- acceptance ----------------------------------------------------------------------------------------------------

    def accept(self) -> str:
        """The acceptance program of the collection, in several jobs, and its figures with the published ones."""
        self.needs_node()
        gpus, torch = self.needs_facts()["gpus"], self.machine.torch
        until = min(time.monotonic() + acceptance.SECONDS, self.steps.end - acceptance.RESERVE)
        image = f"{acceptance.MACHINE}{torch}" if torch else ""
        directory = f"{acceptance.PLACE}/outputs"
        given = {"node": NODE, "gpus": len(gpus), "image": image, "directory": directory}
        job = self.root.collection("accept_job", stdin=given)
        acceptance.install(self.root, job["program"], job["files"])
        self.root.inner(directory).mkdir()
        if image:
            self.root.mount_machine(image, acceptance.PLACE)
        outputs: list[dict[str, Any]] = []
        took: list[float] = []
        most = acceptance.JOBS if torch and not self.machine.stand_ins else acceptance.FEWEST
        # The first job reads PyTorch from the disk, so it takes longest. One that could not end is not begun.
        while len(outputs) < most and time.monotonic() + max(took, default=0) < until:
            begun, number, text, why = time.monotonic(), 0, "", ""
            try:
                number, text = self.cluster.batch(job["arguments"], job["script"], directory, until - begun)
            except StepError as error:
                why = str(error)
            took.append(time.monotonic() - begun)
            outputs.append({"task": "", "job": number, "nodes": NODE, "text": text, "why": why})
            if why:
                break
        if not outputs:
            raise AbsentError("no time is left for a job")
        given = {"outputs": outputs, "node": NODE, "gpu": gpus[0]["type"], "gpus": len(gpus)}
        result = self.root.collection("accept_read", stdin=given)
        lines = "".join(f"{json.dumps(value)}\n" for value in result["values"])
        (self.steps.out / "accept.jsonl").write_text(self.steps.names.replaced(lines))
        figures = acceptance.shown(result, gpus[0]["model"], bool(torch))
        return f"{len(outputs)} jobs of {max(took):.1f} to {min(took):.1f} s; {figures}"
