# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of hosts that somebody else controls: each one is refused with one short line."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import measurement, probe
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.answers import answer_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from sysfs import Gpu, Machine

Path_ = tuple[Any, ...]


def honest(directory: Path) -> dict[str, Any]:
    """The facts of a host with a GPU, as the modules return them."""
    root = Machine(packages=2, memory_kb=4_194_304, gpus=(Gpu("0000:07:00.0", minor=0),)).write(directory)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/os-release").write_text("ID=debian\nVERSION_ID=13\nVERSION_CODENAME=trixie\n")
    hardware, _differences = measurement.measure(Mock(), sysroot=str(root))
    questions = probe.Questions(directories=["/etc"], files=["/etc/os-release"], users=["root"])
    host = probe.look(Tree(str(root)), lambda _command: "", questions)
    host["packages"] = {"munge": "0.5.16-1", "libpmix2t64": "5.0.7-1+b1"}
    return {"slurm_host": host, "slurm_hardware": hardware, "discovered_interpreter_python": "/usr/bin/python3"}


WANTED = ["slurm_host", "slurm_hardware"]
HOSTILE: list[tuple[str, Path_, Any]] = [
    ("a type that ends the file", ("slurm_hardware", "gpus", 0, "type"), "h100: {}\nnodes: []"),
    ("a type that is a template", ("slurm_hardware", "gpus", 0, "type"), "{{ lookup('pipe', 'id') }}"),
    ("a type in capital letters", ("slurm_hardware", "gpus", 0, "type"), "H100"),
    ("an empty type", ("slurm_hardware", "gpus", 0, "type"), ""),
    ("a type that is a list", ("slurm_hardware", "gpus", 0, "type"), ["h100"]),
    ("a model with an escape of the terminal", ("slurm_hardware", "gpus", 0, "model"), "\x1b]0;x\x07\x1b[2J"),
    ("a model of several lines", ("slurm_hardware", "gpus", 0, "model"), "H100\n# - {hosts: all}"),
    ("a model with a line separator", ("slurm_hardware", "gpus", 0, "model"), "H100\u2028x"),
    ("a very long model", ("slurm_hardware", "gpus", 0, "model"), "x" * 100_000),
    ("cores that are no list", ("slurm_hardware", "gpus", 0, "cores"), "0-3; reboot"),
    ("a PCI address with a path", ("slurm_hardware", "gpus", 0, "pci_address"), "../../etc/shadow"),
    ("a MIG profile with a quote", ("slurm_hardware", "gpus", 0, "mig"), [{"profile": "1g.10gb'", "uuid": "MIG-1"}]),
    ("a MIG instance without a profile", ("slurm_hardware", "gpus", 0, "mig"), [{"uuid": "MIG-1"}]),
    ("a GPU that is a text", ("slurm_hardware", "gpus", 0), "gpu"),
    ("GPUs that are a mapping", ("slurm_hardware", "gpus"), {"0": {}}),
    ("a million GPUs", ("slurm_hardware", "gpus"), [{}] * 1_000_000),
    ("negative CPUs", ("slurm_hardware", "cpus"), -1),
    ("no CPUs", ("slurm_hardware", "cpus"), 0),
    ("more CPUs than there can be", ("slurm_hardware", "cpus"), 10**30),
    ("CPUs that are true", ("slurm_hardware", "cpus"), True),
    ("CPUs that are a text", ("slurm_hardware", "cpus"), "64"),
    ("half a CPU", ("slurm_hardware", "cpus"), 0.5),
    ("CPUs that are nested", ("slurm_hardware", "cpus"), {"cpus": {"cpus": 1}}),
    ("memory that is not a number", ("slurm_hardware", "real_memory"), float("nan")),
    ("memory without end", ("slurm_hardware", "real_memory"), float("inf")),
    ("negative memory", ("slurm_hardware", "real_memory"), -(2**63)),
    ("a device file with a newline", ("slurm_hardware", "device_files"), ["/dev/nvidia0\nGresTypes=x"]),
    ("a device file that is none", ("slurm_hardware", "device_files"), [None]),
    ("a fact that there is not", ("slurm_hardware", "owner"), "root"),
    ("hardware that is a text", ("slurm_hardware",), "none"),
    ("hardware that is null", ("slurm_hardware",), None),
    ("a host name with a command", ("slurm_host", "hostname"), "n1$(reboot)"),
    ("a host name of several lines", ("slurm_host", "hostname"), "n1\nfatal: [head]: FAILED!"),
    ("a distribution that is a template", ("slurm_host", "distribution"), "{{ 7 * 7 }}"),
    ("a release with an escape", ("slurm_host", "slurm_version"), "24.11\x1b[1A"),
    ("a mirror with an option of apt", ("slurm_host", "mirror"), "http://a/ [trusted=yes]"),
    ("a package that is a path", ("slurm_host", "packages"), {"../../x": "1"}),
    ("a user id that is a text", ("slurm_host", "users"), {"slurm": "0"}),
    ("a checksum that is short", ("slurm_host", "files"), {"/etc/x": "abc"}),
    ("clocks that are a list", ("slurm_host", "clocks"), ["chrony"]),
    ("a setting of the kernel that is a text", ("slurm_host", "namespaces", "max_user_namespaces"), "many"),
    ("an interrupted installation that is a text", ("slurm_host", "interrupted"), "no"),
    ("a variable of a role", ("munge_key_file",), "/root/.ssh/id_rsa"),
    ("a variable of Ansible", ("ansible_connection",), "local"),
    ("a name with an escape", ("\x1b[2J",), 1),
]


def test_an_honest_host_is_taken(tmp_path: Path) -> None:
    assert answer_errors(honest(tmp_path), WANTED) == []


@pytest.mark.parametrize(("place", "answer"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_a_hostile_answer_is_refused_in_a_short_printable_line(place: Path_, answer: Any, tmp_path: Path) -> None:
    facts = honest(tmp_path)
    target: Any = facts
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = answer
    (error,) = answer_errors(facts, WANTED)
    assert error.isprintable()
    assert len(error) < 300


@pytest.mark.parametrize("facts", [None, [], "text", 7])
def test_answers_that_are_no_mapping(facts: Any) -> None:
    (error,) = answer_errors(facts, WANTED)
    assert "allowed: a mapping" in error


def test_a_missing_fact_is_named(tmp_path: Path) -> None:
    facts = honest(tmp_path)
    del facts["slurm_host"]["hostname"]
    del facts["slurm_hardware"]
    assert answer_errors(facts, WANTED) == ["slurm_hardware: is missing", "slurm_host: hostname: is missing"]
