# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules and NVLink domains of role nvidia_driver, as they are rendered. There is no such hardware here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
LOADED = next(iter(sorted(path.name for path in Path("/sys/module").iterdir())))
"""A module that is loaded here."""
HOSTS = {"gb[01-02]": "10.0.0.[1-2]"}


def run(directory: Path, task: dict[str, Any], **variables: Any) -> tuple[int, str, dict[str, Any]]:
    """Run a task of the role for the host gb01, in check mode; returns status, output and what changes, by task."""
    given = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "slurm_cluster_name": "x",
        "slurm_addresses": [{"hosts": hosts, "address": address} for hosts, address in HOSTS.items()],
        "__slurm_host": {"files": {}},
        **variables,
    }
    inventory = {"slurm_compute": {"hosts": {"gb01": given, "gb02": None, "gb03": None}}}
    (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
    play = {
        "hosts": "gb01",
        "gather_facts": False,
        "tasks": [task],
    }
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        ["ansible-playbook", "play.yml", "-i", "hosts.yml", "--diff", "--check"],
        cwd=directory,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.jsonl",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"_event"')]
    results = {event["task"]["name"]: event["hosts"]["gb01"] for event in events if event.get("hosts")}
    return done.returncode, done.stdout + done.stderr, results


def step(name: str) -> dict[str, Any]:
    """A task file of the role."""
    role = {"name": "gpucluster.slurm.nvidia_driver", "tasks_from": name, "rolespec_validate": False, "public": True}
    return {"ansible.builtin.include_role": role}


def test_modules_and_options_are_files_for_the_boot(tmp_path: Path) -> None:
    rc, output, results = run(
        tmp_path,
        step("modules"),
        nvidia_driver_kernel_modules=[LOADED, "nvidia-peermem"],
        nvidia_driver_module_options={"nvidia": "NVreg_CreateImexChannel0=1"},
    )
    assert rc == 0, output
    written = next(result for name, result in results.items() if "Write the modules" in name)
    texts = {diff["after_header"]: diff["after"] for diff in written["diff"]}
    assert {path: text.split("\n")[1:] for path, text in texts.items()} == {
        "/etc/modules-load.d/gpucluster-nvidia.conf": [LOADED, "nvidia-peermem", ""],
        "/etc/modprobe.d/gpucluster-nvidia.conf": ["options nvidia NVreg_CreateImexChannel0=1", ""],
    }
    loaded = next(result for name, result in results.items() if "Load a module" in name)
    assert [item["changed"] for item in loaded["results"]] == [False, True]


def test_without_modules_there_is_no_file(tmp_path: Path) -> None:
    rc, output, results = run(tmp_path, step("modules"))
    assert rc == 0, output
    assert [name for name, result in results.items() if result.get("changed")] == []


@pytest.mark.parametrize(
    ("nodes", "error"),
    [
        ("gb[02-03]", "found gb[02-03], without gb01, allowed: a hostlist with this host"),
        ("gb[01-04]", "found gb[01-04], unknown host gb04, allowed: hosts of the inventory"),
    ],
)
def test_a_wrong_domain_is_refused(tmp_path: Path, nodes: str, error: str) -> None:
    rc, output, _results = run(tmp_path, step("imex"), nvidia_driver_imex_nodes=nodes)
    assert rc != 0
    assert f"nvidia_driver_imex_nodes: {error}" in output


def test_the_domain_has_the_addresses_of_its_hosts(tmp_path: Path) -> None:
    show = {"ansible.builtin.debug": {"msg": "{{ lookup('gpucluster.slurm.decision', 'nvidia_driver.domain_text') }}"}}
    block = {"block": [step("modules"), show]}
    rc, output, results = run(tmp_path, block, nvidia_driver_imex_nodes="gb[01-03]")
    assert rc == 0, output
    assert results["ansible.builtin.debug"]["msg"] == "10.0.0.1\n10.0.0.2\ngb03\n"
