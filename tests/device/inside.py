# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection's own code says, run in the root by Debian's Python.

usage: inside.py facts|gpus|configure|accept_job|accept_read

Input and output are JSON. `check` has mounted the checkout at /collection and runs this program in the root.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
import yaml
from ansible.module_utils import basic
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance import tasks
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.catalog import TESTS, Scope
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.judgement import Options, judge
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.published import (
    PublishedMachine,
    published_floor,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import render
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.machine_types import gres_kinds
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import slurm_health
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import program_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values.default_values import DATABASE
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values.defaults import CGROUP, SLURM, fixed
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import driver, mig
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.jobs import batch
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.discovery import machine_type
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.health import health_environment

COLLECTION = Path("/collection")
MODULES = "ansible_collections.gpucluster.slurm.plugins.modules"
CONF = Path("/etc/slurm")
HEALTH = Path("/etc/gpucluster-slurm")
PROGRAM = Path("/usr/local/sbin/slurm-health")


def variables(path: str) -> dict[str, Any]:
    """The variables of a role, as they are written."""
    loaded: dict[str, Any] = yaml.safe_load((COLLECTION / "roles" / path).read_text())
    return loaded


def facts(_given: Any) -> Any:
    """The result of module slurm_hardware_facts."""
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": {"_ansible_remote_tmp": "/tmp"}}).encode()
    basic._ANSIBLE_PROFILE = "legacy"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        runpy.run_module(f"{MODULES}.slurm_hardware_facts", run_name="__main__")
    return json.loads(said.getvalue())


def nvidia_smi(arguments: Sequence[str]) -> tuple[int, str]:
    """Run nvidia-smi, as module nvidia_mig does."""
    done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def gpus(_given: Any) -> Any:
    """What the modules nvidia_driver and nvidia_mig see: the driver's version, its kind, and the layout of each GPU."""
    tree = Tree("/")
    found, number = driver.devices(tree)
    version = tree.text("/proc/driver/nvidia/version") or ""
    return {
        "driver": driver.loaded_version(tree),
        "kind": "open" if "Open Kernel Module" in version else "proprietary" if version else "",
        "devices": found,
        "number": number,
        "mig": [{"name": gpu.name, "capable": gpu.capable, "layout": gpu.shown} for gpu in mig.look(nvidia_smi)],
    }


def with_autodetect(machine: dict[str, Any], method: str) -> dict[str, Any]:
    """A machine type whose GPUs Slurm finds by itself, instead of by their files; as it is for no method."""
    counts: dict[str, int] = {}
    for entry in machine.get("gres") or ():
        for kind, count in gres_kinds(entry):
            counts[kind or ""] = counts.get(kind or "", 0) + count
    if not method or any("autodetect" in entry for entry in machine.get("gres") or ()):
        return machine
    entries = [
        {"name": "gpu", **({"type": kind} if kind else {}), "count": count, "autodetect": method}
        for kind, count in counts.items()
    ]
    return {**machine, "gres": entries}


def configure(given: Any) -> Any:
    """Write the files of a cluster of this one node.

    Args:
        given: `facts`, `node`, `autodetect` (a method or ""), `cgroups` ("v1", "v2" or ""), `database` (bool).

    Returns:
        The texts of the files, by name.
    """
    machine, odd = machine_type(given["facts"])
    if machine is None:
        raise ValueError("; ".join(odd))
    hardware = {"machine": with_autodetect(machine, given["autodetect"])}
    nodes = [{"hosts": given["node"], "hardware": "machine", "address": "127.0.0.1"}]
    own: dict[str, Any] = {
        "StateSaveLocation": "/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        "SlurmctldPidFile": "/run/slurm/slurmctld.pid",
        "SlurmdPidFile": "/run/slurm/slurmd.pid",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd.log",
        "JobCompLoc": "/var/log/slurm/job_completions",
        "MailProg": "/usr/bin/true",
        # `check` starts the health check itself.
        "HealthCheckInterval": 0,
        "Prolog": f"{CONF}/slurm-prolog",
        "Epilog": f"{CONF}/slurm-epilog",
    }
    cgroup_conf = fixed(CGROUP)
    if not given["cgroups"]:
        own |= {
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/affinity",
            "JobAcctGatherType": "jobacct_gather/linux",
            "PrologFlags": None,
        }
        cgroup_conf = {"CgroupPlugin": "disabled"}
    elif given["cgroups"] == "v2":
        # There is no systemd that would make the scopes, nor turn on the controllers.
        cgroup_conf |= {"CgroupPlugin": "cgroup/v2", "IgnoreSystemd": True, "EnableControllers": True}
    else:
        cgroup_conf |= {"CgroupPlugin": "cgroup/v1"}
    accounting = {}
    if given["database"]:
        accounting = {**fixed(SLURM, DATABASE), "AccountingStorageHost": given["node"]}
        accounting["AccountingStorageTRES"] = "gres/gpu"
    head = {"ClusterName": "device", "SlurmctldHost": f"{given['node']}(127.0.0.1)"}
    files = {
        "slurm.conf": render.slurm_conf(head, fixed(SLURM), render.node_parameters(nodes, hardware), accounting, own)
        + render.node_lines(nodes, hardware)
        + render.partition_lines([{"name": "main", "nodes": "ALL", "default": True}], nodes, hardware, {}),
        "gres.conf": render.gres_lines(nodes, hardware),
        "cgroup.conf": render.slurm_conf(cgroup_conf),
    }
    source = (COLLECTION / "roles/slurmctld/templates/job_script.sh.j2").read_text()
    template = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True).from_string(source)
    for stage in ("prolog", "epilog"):
        files[f"slurm-{stage}"] = template.render(
            stage=stage, scripts=[], gpu_map=True, health=str(PROGRAM), candidate="NVRM: "
        )
    for name, text in files.items():
        (CONF / name).write_text(text)
        (CONF / name).chmod(0o755 if name in ("slurm-prolog", "slurm-epilog") else 0o644)
    _health(health_environment(nodes, hardware, {})[given["node"]])
    return files


def _health(environment: Mapping[str, str]) -> None:
    """Install the health check and its settings, as role slurm_health does."""
    defaults = variables("slurm_health/defaults/main.yml")
    source = COLLECTION / "roles/slurm_health/files"
    checks = HEALTH / "health.d"
    checks.mkdir(parents=True, exist_ok=True)
    for name in [name for name in defaults["slurm_health_checks"] if name not in slurm_health.BUILT_IN]:
        (checks / name).write_bytes((source / "checks" / name).read_bytes())
        (checks / name).chmod(0o755)
    PROGRAM.write_text(f"#!/usr/bin/python3 -I\n{program_files.sent('programs.health_check')}")
    PROGRAM.chmod(0o755)
    settings = {
        "HEALTH_MOUNTS": "",
        "HEALTH_UNITS": "/etc/systemd/system",
        "HEALTH_WRITABLE": "/var/lib/slurm/slurmd /tmp",
        "HEALTH_DISK_FREE": str(defaults["slurm_health_disk_free"]),
    }
    content = {
        "limit": defaults["slurm_health_limit"],
        "environment": {**environment, **settings},
        "built_in": slurm_health.BUILT_IN,
        "shared_percent": defaults["slurm_health_shared_percent"],
        "xids": defaults["slurm_health_xids"],
    }
    text = json.dumps(content)
    (HEALTH / "health.json").write_text(text)


def accept_job(given: Any) -> Any:
    """The job of accept.yml with the level `quick` that measures the GPUs of this node.

    Args:
        given: `node`, `gpus` (their number), `image` (of PyTorch; "" without it), `directory` (of the outputs).

    Returns:
        The words of sbatch, its script, the path of the program that it runs, and the files of that program.
    """
    xids = variables("slurm_health/defaults/main.yml")["slurm_health_xids"]
    site = tasks.Site(
        image=given["image"], runtime="apptainer", xids=",".join(map(str, xids)), directory=given["directory"]
    )
    place = tasks.NodePlace(given["node"], "machine", given["gpus"], "main", cards=given["gpus"])
    possible = tasks.of_scope(tasks.tests_of(place, "quick", site), Scope.NODE, Scope.GPU)
    tests = tuple(name for name in possible if name.startswith("gpu_") or TESTS[name].gpus)
    task = tasks.Task(f"1/node/{place.name}", "node", (place.name,), tests)
    job = tasks.job_of(task, {place.name: place}, site)
    return {
        "arguments": batch.sbatch_arguments(job),
        "script": batch.batch_script(job),
        "program": tasks.PROGRAM,
        "files": program_files.library("slurm-accept", {tasks.PROGRAM: "programs.accept.accept_command"}),
    }


def accept_read(given: Any) -> Any:
    """What such jobs have measured, read and judged as accept.yml does.

    Args:
        given: `outputs` (as tasks.read_outputs takes them), `node`, `gpu` (its type), `gpus` (their number).

    Returns:
        `values`, `missed` and `errors` as lines, `findings` in words, `again` (tests), `floors` (by test).
    """
    output = tasks.read_outputs(given["outputs"], {given["node"]: "machine"})
    machines = {"machine": PublishedMachine(given["gpu"], given["gpus"])}
    judgement = judge(output.values, options=Options(machines=machines))
    floors = {value.test: published_floor(machines, "machine", value.test, 1, value.size) for value in output.values}
    return {
        "values": [asdict(value) for value in output.values],
        "missed": tasks.missed_lines(output.missed),
        "errors": output.errors,
        "findings": [finding.text for finding in judgement.findings],
        "again": [*judgement.again],
        "floors": {test: figure.floor for test, figure in floors.items() if figure},
    }


def main() -> None:
    """Answer one question."""
    functions = {
        "facts": facts,
        "gpus": gpus,
        "configure": configure,
        "accept_job": accept_job,
        "accept_read": accept_read,
    }
    answer = functions[sys.argv[1]](json.load(sys.stdin))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
