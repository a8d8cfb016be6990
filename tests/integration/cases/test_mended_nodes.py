# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mode full: nodes reset their GPUs, mount file systems again and make room; a machine is switched off and on.

Stand-ins are nvidia-smi, the kernel's messages, reboots, and the program of the site that switches machines: it asks
this test, which stops containers and starts them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from booted_node import LASTING, BootedNode
from faulty_node import DATA, HEALTH, PLACE, SMI, Controllers, Work, kernel_says
from lab import Lab, container, podman, with_cluster
from reboots import power
from test_treated_nodes import BY_ITSELF, FIRST, QUICK, SECOND, SLOW, case_files

# Ten minutes.
pytestmark = pytest.mark.rare

TAGS = "--tags=base,controller,compute,repair"
"""The stage controller brings slurm-machine."""
MACHINES = "/home/machines"
RESETS = f"{LASTING}/resets"
MIG = f"{LASTING}/mig"
SCRATCH = "/test-scratch"

PROGRAM = f"""\
#!/bin/sh
case $1 in
  state) cat {MACHINES}/$2 ;;
  *) echo "$1 $2" >>{MACHINES}/asked ;;
esac
"""

NVIDIA_SMI = f"""\
#!/bin/sh
case $1 in
  -L) printf 'GPU 0: H100 (UUID: GPU-0)\\nGPU 1: H100 (UUID: GPU-1)\\n' ;;
  -q) cat {PLACE}/driver.xml ;;
  --query-gpu=mig*) [ -e {MIG} ] && echo Enabled || echo Disabled ;;
  --gpu-reset) date +%s >>{RESETS}; cp {LASTING}/driver.xml {PLACE}/ ;;
esac
"""

MOUNT = f"""\
[Mount]
What=tmpfs
Where={DATA}
Type=tmpfs
[Install]
WantedBy=local-fs.target
"""
UNIT = "test\\x2ddata.mount"

# Files that were not changed for ten days may go.
OLD = f"d {SCRATCH} 1777 root root m:10d\n"

PREPARE = f"""
mkdir -p {DATA} {SCRATCH}
mount -t tmpfs -o size=8m scratch {SCRATCH}
systemctl daemon-reload
systemctl enable --quiet --now '{UNIT}'
"""

END = f"""
systemctl disable --quiet '{UNIT}'
umount -l {DATA} {SCRATCH}
rm -rf /etc/systemd/system/'{UNIT}' /etc/tmpfiles.d/test.conf {DATA} {SCRATCH} {RESETS} {MIG}
systemctl daemon-reload
"""

FULL = f"fallocate -l 6M {SCRATCH}/old && touch -d '20 days ago' {SCRATCH}/old"


@dataclass(frozen=True)
class MendedKind:
    """A kind of fault, and what is done about it."""

    finding: str
    happens: Work
    treatments: list[str]
    reset: bool = False
    """Whether the node resets its GPUs."""


def fails(words: str) -> Work:
    """A command on the node, and the health check sees what it has done."""
    return lambda node: node.run(f"{words}; {HEALTH} || true")


KINDS = (
    MendedKind("xid-48", kernel_says("NVRM: Xid (PCI:0000:3b:00): 48, pid=2, Double Bit ECC"), ["reset"], True),
    MendedKind(
        "nvswitch-fatal",
        lambda node: (
            node.run(f"touch {MIG}"),
            node.tell_kernel("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
        )[0],
        ["reset", "reboot"],
    ),
    MendedKind("check-filesystems", fails(f"umount {DATA}"), ["mount"]),
    MendedKind("check-disk", fails(FULL), ["clean"]),
    MendedKind("disk-lost", kernel_says("nvme nvme0: Disabling device after reset failure: -19"), ["power cycle"]),
)


class FullNode(BootedNode):
    """A node with a file system of its own, and a small one for scratch."""

    @contextmanager
    def prepared(self) -> Iterator[None]:
        with super().prepared():
            self.write(SMI, NVIDIA_SMI, "755")
            self.write(f"/etc/systemd/system/{UNIT}".replace("\\", "\\\\"), MOUNT)
            self.write("/etc/tmpfiles.d/test.conf", OLD)
            self.run(PREPARE)
            self.change_settings(self.see)
            try:
                yield
            finally:
                self.lab.host(self.name).run(END)

    @staticmethod
    def see(content: dict[str, Any]) -> None:
        """Let the health check see both file systems."""
        content["environment"] |= {"HEALTH_MOUNTS": DATA, "HEALTH_WRITABLE": SCRATCH, "HEALTH_DISK_FREE": "4"}


@dataclass
class Machines:
    """The stand-in for BMCs: containers are stopped and started, as the program of the site asks for it."""

    nodes: list[str]
    asked: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """They answer in this block."""
        on = "; ".join(f"echo on >{MACHINES}/{node}" for node in self.nodes)
        self._run(f"rm -rf {MACHINES}; mkdir -m 777 {MACHINES}; : >{MACHINES}/asked; chmod 666 {MACHINES}/asked; {on}")
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended,))
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            self._run(f"rm -r {MACHINES}")

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(0.5):
            for line in self._run(f"cat {MACHINES}/asked").splitlines()[len(self.asked) :]:
                word, node = line.split()
                self.asked.append(line)
                if word == "stop":
                    podman("stop", "--time=60", container(node))
                else:
                    podman("start", container(node))
                self._run(f"echo {'off' if word == 'stop' else 'on'} >{MACHINES}/{node}")

    @staticmethod
    def _run(command: str) -> str:
        return str(podman("exec", container(FIRST), "sh", "-c", command))


@pytest.fixture(name="controllers")
def two_controllers(lab: Lab) -> Iterator[Controllers]:
    """Rounds follow each other quickly."""
    lab.wait_for(FIRST, "timeout 60 scontrol ping", f"at {FIRST} is UP")
    for name in (FIRST, SECOND):
        lab.command(name, QUICK)
    yield Controllers(lab, FIRST, SECOND, FIRST)
    for name in (FIRST, SECOND):
        lab.command(name, SLOW)


@pytest.fixture(name="machines")
def machines_of_nodes(lab: Lab) -> Iterator[Machines]:
    machines = Machines([*lab.nodes])
    with machines.running():
        yield machines


@pytest.fixture(name="nodes")
def nodes_in_mode_full(
    lab: Lab, controllers: Controllers, machines: Machines, tmp_path: Path
) -> Iterator[Mapping[str, FullNode]]:
    """The nodes, which are well before the test and after it. The cluster file has mode full and machines."""
    program = tmp_path / "machine"
    program.write_text(PROGRAM)
    keys = {"repair": {"mode": "full"}, "machines": {"by": "program", "program": str(program)}}
    run = with_cluster(lab, tmp_path, {**lab.cluster, **keys}).playbook("site", TAGS)
    assert run.rc == 0, run.failed
    assert machines.asked == []
    nodes = {name: FullNode(lab, controllers, name) for name in lab.nodes}
    with power(*lab.nodes), ExitStack() as stack:
        for node in nodes.values():
            stack.enter_context(node.prepared())
        for name in nodes:
            lab.wait_until_idle(FIRST, name)
        yield nodes
    assert lab.playbook("site", TAGS).rc == 0


def test_each_fault_has_the_treatment_that_mends_it(
    lab: Lab, controllers: Controllers, machines: Machines, nodes: Mapping[str, FullNode]
) -> None:
    known = case_files(controllers)
    assert not any(case.treatments for case in known.values()), "nodes were treated before: make the scenario anew"
    broken = {**dict(zip(nodes, KINDS))}
    for name, kind in broken.items():
        kind.happens(nodes[name])
    lab.wait_for(FIRST, "echo =$(slurm-repair list | tail -n +2 | wc -l)=", f"={len(KINDS)}=", 180)
    jobs = {
        name: lab.command(FIRST, f"sbatch --parsable --nodelist={name} -o /dev/null --wrap=true").strip()
        for name in broken
    }
    lab.wait_for(FIRST, "echo =$(slurm-repair list | tail -n +2 | wc -l)=", "=0=", 1500)
    print(lab.command(FIRST, "slurm-repair list --all"))
    ended = [case for number, case in case_files(controllers).items() if number not in known]
    found = {case.node: (case.finding, case.ends, [what for _when, what in case.treatments]) for case in ended}
    assert found == {name: (kind.finding, BY_ITSELF, kind.treatments) for name, kind in broken.items()}
    for case in ended:
        lab.wait_for(FIRST, f"timeout 60 sacct -n -X -j {jobs[case.node]} -o State", "COMPLETED", 90)
        start = lab.command(FIRST, f"SLURM_TIME_FORMAT=%s sacct -n -X -j {jobs[case.node]} -o Start").strip()
        assert int(start) >= case.last("measured") - 1, f"a job has started on {case.node} before it was proven"
        print(f"    {case.finding}: {(case.last('returned') - case.last('drained')) / 60:.1f} minutes in treatment")
    resets = {name: lab.command(name, f"cat {RESETS} 2>/dev/null | wc -l").strip() for name in broken}
    assert resets == {name: str(int(kind.reset)) for name, kind in broken.items()}
    (switched,) = (name for name, kind in broken.items() if kind.finding == "disk-lost")
    assert machines.asked == [f"stop {switched}", f"start {switched}"]
