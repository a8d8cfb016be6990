# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure time and memory on the control host for 1,000, 3,000 and 10,000 nodes: inventory, slurm.conf, plan, checks.

All times are processor times, so other work on the machine hardly changes them.    usage: python scale.py
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import correlation, linear_regression
from typing import Any

import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

init_plugin_loader()

# Imports of the collection need the plugin loader, hence E402.
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import changes, read  # noqa: E402
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.change_plan import JobPlacement, steps, table  # noqa: E402
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.configured_cluster import Host  # noqa: E402
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.cross_checks import cross_check  # noqa: E402
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import slurm_conf_values  # noqa: E402
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand  # noqa: E402
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.templated_host import TemplatedHost  # noqa: E402
from ansible_collections.gpucluster.slurm.tests.benchmark.large import cluster  # noqa: E402

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SIZES = (1_000, 3_000, 10_000)

FIELDS = ("NodeAddr", "CoresPerSocket", "ThreadsPerCore", "RealMemory", "Gres")
LOOP = "\n".join(
    [
        "{% for host in groups.slurm_compute %}",
        " ".join(["NodeName={{ host }}", *(f"{key}={{{{ hostvars[host].{key} | default('') }}}}" for key in FIELDS)]),
        "{% endfor %}",
    ]
)
"""A template as comparable projects have it: one line for each node, each field from the facts of its host."""


@dataclass(frozen=True)
class Process:
    """A command that has ended: seconds of processor time, peak memory in MiB, its output."""

    seconds: float
    memory: float
    output: str


def run(*argv: str | Path) -> Process:
    """Run a command of Ansible and its children to their end."""
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=output)
        status, usage = os.wait4(process.pid, 0)[1:]
        assert status == 0, argv
        output.seek(0)
        return Process(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output.read())


def listed(inventory: Path) -> Process:
    """`ansible-inventory --list`."""
    return run("ansible-inventory", "--list", "-i", inventory)


def content(found: Any) -> Any:
    """The data of an inventory, without the order of hosts in groups and without Ansible's marks for unsafe strings."""
    if isinstance(found, list):
        return sorted(map(content, found), key=str)
    if isinstance(found, dict):
        return found.get("__ansible_unsafe", {key: content(value) for key, value in found.items()})
    return found


def seconds(function: Callable[[], Any]) -> float:
    """Seconds of processor time of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def lines(text: str) -> dict[str, dict[str, str]]:
    """The FIELDS of each node, by name."""
    nodes = {}
    for line in text.splitlines():
        if line.startswith("NodeName="):
            fields = dict(pair.split("=", 1) for pair in line.split(" ") if "=" in pair)
            names = expand(fields["NodeName"])
            for name, address in zip(names, expand(fields["NodeAddr"])):
                nodes[name] = {key: fields.get(key, "") for key in FIELDS} | {"NodeAddr": address}
    return nodes


def rendered(inventory: Path) -> tuple[float, float]:
    """Seconds to render the role's slurm.conf, and to render the same nodes with the loop."""
    loader = DataLoader()
    hosts = InventoryManager(loader, sources=[str(inventory)])
    manager = VariableManager(loader, hosts)
    variables = manager.get_vars(host=hosts.get_host("head"))
    variables["hostvars"] = HostVars(hosts, manager, loader)
    defaults = loader.load_from_file(str(ROOT / "roles/slurm/defaults/main.yml"), trusted_as_template=True)
    variables = {**defaults, **variables}
    templar = Templar(loader, variables=variables)
    ours = seconds(lambda: slurm_conf_values.text(TemplatedHost(variables, templar, loader)))
    nodes = lines(slurm_conf_values.text(TemplatedHost(variables, templar, loader)))
    for name, fields in nodes.items():
        manager.set_nonpersistent_facts(name, fields)
    loop = seconds(lambda: templar.template(trust_as_template(LOOP)))
    assert lines(templar.template(trust_as_template(LOOP))) == nodes
    return ours, loop


def planned(directory: Path) -> tuple[float, float]:
    """Seconds to compare the files with other ones while each node has a job, and the number of lines of that plan.

    In the other files all nodes have another weight and other GRES, and one line of nodes is missing.
    """
    old = {name: (directory / name).read_text() for name in ("slurm.conf", "gres.conf")}
    text = old["slurm.conf"].splitlines()
    text.remove(next(line for line in text if line.startswith("NodeName=")))
    edited = "\n".join(f"{line} Weight=77" if line.startswith("NodeName=") else line for line in text)
    new = {"slurm.conf": edited, "gres.conf": old["gres.conf"].replace("File=", "Flags=x File=")}
    jobs = [JobPlacement(str(i), "all", frozenset({node}), True) for i, node in enumerate(read(old).nodes)]
    lines_of_plan: list[str] = []
    spent = seconds(lambda: lines_of_plan.extend(table(steps(changes(read(old), read(new)), jobs, "24.11.5"))))
    return spent, len(lines_of_plan)


def checked(directory: Path) -> float:
    """Seconds to check the files together."""
    files = {name: (directory / name).read_text() for name in ("slurm.conf", "gres.conf")}
    host = Host(files.get, lambda _plugin_dir: None, lambda _names: ())
    return seconds(lambda: cross_check(files, host, "24.11"))


def main() -> None:
    """Measure and print."""
    figures: dict[str, list[float]] = {}

    def report(what: str, value: float, limit: str = "") -> None:
        """Keep a figure and print it."""
        figures.setdefault(what, []).append(value)
        print(f"  {what:44} {value:8.2f}{f'   ({limit})' if limit else ''}", flush=True)

    with tempfile.TemporaryDirectory() as directory:
        for size in SIZES:
            print(f"{size} nodes")
            file, plain = Path(directory, f"{size}.cluster.yml"), Path(directory, f"{size}.yml")
            file.write_text(yaml.dump(cluster(size)))
            run("ansible-inventory", "--list", "--export", "--yaml", "--output", plain, "-i", file)
            ours, theirs = listed(file), listed(plain)
            mine, plain_ones = (json.loads(each.output) for each in (ours, theirs))
            mine["slurm_cluster"]["children"].remove("slurm_registry")  # the written inventory has no empty group
            assert content(mine) == content(plain_ones)
            report("ansible-inventory --list, s", ours.seconds)
            report("  ratio to the same written out in YAML", ours.seconds / theirs.seconds, "at most 0.8")
            report("  memory, MiB", ours.memory, "at most 1024")
            render, loop = rendered(file)
            report("slurm.conf, s", render, "at most 2")
            report("  ratio of a loop over hostvars to it", loop / render, "at least 20" if size == SIZES[-1] else "")
            play = run("ansible-playbook", HERE / "slurm_conf.yml", "-i", file, "-e", f"directory={directory}")
            report("ansible-playbook that writes it, s", play.seconds)
            report("  memory, MiB", play.memory, "at most 1024")
            plan, changed = planned(Path(directory))
            report("plan of a change with a job on each node, s", plan, "at most 2")
            report("  its lines", changed)
            report("checking the files together, s", checked(Path(directory)), "at most 2")
    print("Cost of 1,000 more nodes, between the sizes, and how well a straight line fits")
    for what in (
        "ansible-inventory --list, s",
        "slurm.conf, s",
        "ansible-playbook that writes it, s",
        "plan of a change with a job on each node, s",
    ):
        values = figures[what]
        steps = [(b - a) / (y - x) * 1000 for a, b, x, y in zip(values, values[1:], SIZES, SIZES[1:])]
        line = linear_regression(SIZES, values)
        print(
            f"  {what:44} {steps[0]:.3f} {steps[1]:.3f}   {line.intercept:.2f} + {line.slope * 1000:.3f} x, "
            f"r = {correlation(SIZES, values):.4f}"
        )


if __name__ == "__main__":
    main()
