# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about the host of a node. Nothing is changed, and nothing waits longer than some seconds."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..client.commands import NOT_STARTED, run
from ..client.munge_credentials import DECODE
from ..controller.sockets import connection_error, sockets
from ..gpu.devices import NVIDIA
from ..hardware.cpu_files import TopologyError, counted_cpus
from ..hardware.sysfs import Tree
from ..hardware.topology import read_memory
from ..health import seen_findings
from ..host.job_processes import jobs_of_processes, processes
from ..host.kernel_messages import KernelMessagesError
from ..host.mounts.mountinfo import Mount, mounted
from ..host.timeout_call import TimeoutCallError, call_with_timeout
from . import daemon_facts
from .controller_facts import checksum, find_uid, read_text
from .evidence import DaemonState, NodeFacts, complete

CONNECT = 3
"""Seconds for a connection to slurmctld."""
TIMEOUT = 3
"""Seconds for a file system."""
UNITS = "/etc/systemd/system"
NETWORK = re.compile(r"nfs4?|lustre|ceph|gpfs|beegfs\S*|cifs|glusterfs|fuse\.\S+|9p|wekafs|panfs|orangefs")
"""Types of file systems of servers, which may not answer."""
LEFT = 8
"""Processes that are named."""


@dataclass(frozen=True)
class HostQuestions:
    """The options of slurm_doctor_node_info."""

    node: str
    port: int
    controllers: Sequence[str]
    controller_port: int
    slurm_user: str
    spool_dir: str
    log_file: str
    tmp_fs: str
    device_files: Sequence[str]
    gpus: int
    jobs: Collection[str]
    credential: str


def gather(asked: HostQuestions) -> NodeFacts:
    """The facts about this host."""
    names = {"%n": asked.node, "%h": socket.gethostname().partition(".")[0]}
    spool, log = substitute(asked.spool_dir, names), substitute(asked.log_file, names)
    daemons = daemon_facts.read_daemons({"slurmd": log, "munge": ""})
    absent = DaemonState(active="", enabled=False, result="")
    points = mounted()
    smi = run([*NVIDIA.list_command], seconds=20) if asked.gpus else None
    error, count = read_nvidia_smi(smi.status, f"{smi.output}\n{smi.errors}") if smi else ("", None)
    unresolved = [name for name in asked.controllers if not _resolves(name)]
    return complete(
        NodeFacts,
        version=re.sub(r"^slurm\S* ", "", run(["slurmd", "-V"], seconds=10).output.strip()),
        slurmd=daemons.get("slurmd", absent),
        munge=daemons.get("munge", absent),
        munge_error=_check_credential(asked.credential) if asked.credential else "",
        slurm_uid=find_uid(asked.slurm_user),
        slurm_conf=checksum(read_text(_find_conf(spool))),
        cpus=_count_cpus(),
        memory=read_memory(Tree()) or 0,
        full=daemon_facts.find_full(dict.fromkeys([spool, os.path.dirname(log), asked.tmp_fs, "/var/log"])),
        unmounted=find_unmounted(points, read_text("/etc/fstab"), _read_mount_units()),
        hanging=_find_hanging(points),
        missing_files=[path for path in asked.device_files if not os.path.exists(path)],
        nvidia_error=error,
        nvidia_gpus=count,
        xids=_find_errors_of_gpus() if asked.gpus else [],
        cgroup="v2" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "v1",
        listens=bool(sockets(asked.port)),
        addresses=read_addresses(read_text("/proc/net/fib_trie"), read_text("/proc/net/if_inet6")),
        unresolved=unresolved,
        closed={
            name: why
            for name in asked.controllers
            if name not in unresolved and (why := connection_error(name, asked.controller_port, CONNECT))
        },
        left=find_left(asked.jobs),
        booted=_read_boot_time(read_text("/proc/stat")),
    )


def substitute(path: str, names: Mapping[str, str]) -> str:
    """A path of slurm.conf with the host's names in it."""
    for pattern, name in names.items():
        path = path.replace(pattern, name)
    return path


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    except OSError:
        return False


def _count_cpus() -> int:
    try:
        return bin(counted_cpus(Tree())).count("1")
    except TopologyError:
        return 0


def _check_credential(credential: str) -> str:
    """Why this host does not take a credential; empty if it does."""
    answer = run(DECODE, stdin=credential, seconds=10)
    return " ".join(answer.message.split()) if answer.status else ""


def _find_conf(spool: str) -> str:
    """The slurm.conf that slurmd reads: that of -f, its copy of the controller's, or the host's own."""
    slurmds = (pid for pid, process in processes().items() if process.name == "slurmd" and process.uids[0] == 0)
    arguments = [word for word in read_text(f"/proc/{next(slurmds, 0)}/cmdline").split("\0") if word]
    if "-f" in arguments[:-1]:
        return arguments[arguments.index("-f") + 1]
    cached = f"{spool}/conf-cache/slurm.conf"
    fetched = any(word.startswith("--conf-server") for word in arguments) or not os.path.exists("/etc/slurm/slurm.conf")
    return cached if fetched and os.path.exists(cached) else "/etc/slurm/slurm.conf"


# -- file systems ----------------------------------------------------------------------------------------------------


def _read_mount_units() -> list[str]:
    """The texts of the mount units that start at boot."""
    found = []
    for directory in sorted(os.listdir(UNITS)) if os.path.isdir(UNITS) else []:
        if directory.endswith((".wants", ".requires")):
            names = sorted(os.listdir(f"{UNITS}/{directory}"))
            found += [read_text(f"{UNITS}/{directory}/{name}") for name in names if name.endswith(".mount")]
    return found


def find_unmounted(points: Mapping[str, Mount], fstab: str, units: Iterable[str]) -> list[str]:
    """Mount points of fstab and of units on which nothing is mounted. An automount counts as a mount."""
    wanted = []
    for line in fstab.split("\n"):
        fields = line.partition("#")[0].split()
        if len(fields) > 3 and fields[1].startswith("/") and "noauto" not in fields[3].split(","):
            wanted.append(fields[1].rstrip("/") or "/")
    for unit in units:
        found = re.search(r"^Where=(\S+)", unit, re.MULTILINE)
        wanted += [found[1]] if found else []
    return [path for path in dict.fromkeys(wanted) if path not in points]


def _find_hanging(points: Mapping[str, Mount]) -> list[str]:
    """File systems of servers that do not answer."""
    found = []
    for point, mount in points.items():
        if NETWORK.fullmatch(mount.type):
            try:
                call_with_timeout(partial(os.statvfs, point), TIMEOUT)
            except TimeoutCallError as error:
                found.append(f"{point} ({error})")
    return found


# -- GPUs ------------------------------------------------------------------------------------------------------------


def read_nvidia_smi(status: int, listing: str) -> tuple[str, int | None]:
    """The error of `nvidia-smi -L`, and the GPUs that it lists; None if it is not installed."""
    if status == NOT_STARTED:
        return "", None
    return NVIDIA.read_list(status, listing)


def _find_errors_of_gpus() -> list[str]:
    """The last findings of GPUs that count, as the kernel or the driver says them."""
    try:
        return [one.text for one in seen_findings.current()][-4:]
    except KernelMessagesError:
        return []


# -- network and processes -------------------------------------------------------------------------------------------


def read_addresses(fib_trie: str, if_inet6: str) -> list[str]:
    """The addresses of this host, from /proc/net/fib_trie and /proc/net/if_inet6, without those of its loopback."""
    found = re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", fib_trie)
    for line in filter(None, if_inet6.split("\n")):
        digits = line.split()[0]
        address = ":".join(digits[start : start + 4] for start in range(0, 32, 4))
        found.append(socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address)))
    return sorted({address for address in found if not address.startswith("127.") and address != "::1"})


def find_left(running: Collection[str]) -> list[str]:
    """Processes of jobs that do not run here any more, and those that end them."""
    present = processes()
    jobs = jobs_of_processes(present)
    return [f"{present[pid].name} {pid} of job {job}" for pid, job in jobs.items() if job not in running][:LEFT]


def _read_boot_time(stat: str) -> str:
    found = re.search(r"^btime (\d+)", stat, re.MULTILINE)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(int(found[1]))) if found else ""
