# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real runs of site.yml at the same time, on stand-ins for hosts. Only the controller's run lock is real."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from standing_hosts import Hosts, honest
from test_stopped_runs import cluster

# Scenario default has the same on hosts.
pytestmark = pytest.mark.once

SITE = ("gpucluster.slurm.site", "--tags=base")

LOCK = """\
import json, re, sys
from pathlib import Path
from types import SimpleNamespace
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks, run_lock
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_run

def write(files):
    for file in files:
        Path(file.path).write_bytes(file.content)

# The owner of the lock is root, and the tests may have another user.
run_lock.FOLDER, locks.LOCKS, run_lock.write = FOLDER, f"{FOLDER}/locks", write
slurm_run.SLURM_CONF = "/nonexistent"
text = Path(sys.argv[1]).read_text()
found = json.JSONDecoder().raw_decode(text, text.index('{"ANSIBLE_MODULE_ARGS'))[0]["ANSIBLE_MODULE_ARGS"]
defaults = {"take_over": False, "former": [], "rolling": False, "nodes": [], "controllers": []}
module = SimpleNamespace(params=defaults | found, check_mode=found["_ansible_check_mode"])
print(json.dumps(slurm_run.begin_or_end(module)))
"""
"""The real module, with the options that the controller was given, and a directory of the test for its files."""

PYTHON = """\
#!/bin/sh
cd "${{0%/*}}" || exit
cat "$@" >asked.$$
module=$(sed -n "s/^module_fqn='.*[.]\\\\(.*\\\\)',$/\\\\1/p" asked.$$)
mv asked.$$ "asked-$module"
while test -e "hold-$module"; do touch "held-$module"; sleep 0.1; done
{lock}
exec sed "s/\\"time\\": [0-9.]*/\\"time\\": $(date +%s)/" "$module.json"
"""
"""A stand-in for a host's Python that waits while there is a file hold-MODULE."""


@pytest.fixture(name="site")
def cluster_of_four_nodes(tmp_path: Path) -> Hosts:
    model = cluster()
    model["nodes"] = [{"hosts": "n[1-4]", "hardware": "a"}]
    hosts = {name: honest(name) for name in ("head", "n1", "n2", "n3", "n4")}
    site = Hosts(tmp_path / "site", model, hosts)
    key = site.directory / "secrets/x/munge.key"
    key.parent.mkdir(parents=True)
    key.write_bytes(bytes(1024))
    folder = tmp_path / "locks"
    (tmp_path / "lock.py").write_text(f"FOLDER = {str(folder)!r}\n{LOCK}")
    lock = f'test "$module" != slurm_run || exec {sys.executable} {tmp_path}/lock.py asked-slurm_run'
    for name in hosts:
        (site.directory / "hosts" / name / "python").write_text(PYTHON.format(lock=lock))
    return site


def lock(site: Hosts) -> list[str]:
    """The nodes of the runs that have the lock; `all` for one that has it alone."""
    folder = site.directory.parent / "locks"
    if not (folder / "run").exists():
        return []
    if json.loads((folder / "run").read_text())["process"] != "0":
        return ["all"]
    return sorted(each["nodes"] for each in json.loads((folder / "run.shared").read_text()))


@contextmanager
def held(site: Hosts, node: str, module: str, limit: str = "all") -> Iterator[subprocess.Popen[str]]:
    """A run that waits in a task of a node; it goes on at the end, until its own end."""
    place = site.directory / "hosts" / node
    (place / f"hold-{module}").touch()
    run = site.start(*SITE, f"--limit={limit}")
    try:
        end = time.monotonic() + 300
        while not (place / f"held-{module}").exists():
            assert run.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        yield run
    finally:
        (place / f"hold-{module}").unlink()
        (place / f"held-{module}").unlink(missing_ok=True)
        print(*run.communicate())


def run_on(site: Hosts, limit: str, *arguments: str) -> tuple[int, str]:
    """The exit status of a run, and its output in one line."""
    run = site.run(*SITE, f"--limit={limit}", *arguments)
    print(run.stdout, run.stderr)
    return run.returncode, " ".join((run.stdout + run.stderr).split())


def refused(site: Hosts, limit: str, *words: str) -> None:
    """A run that ends at the lock, before it changes anything, and says these words."""
    status, said = run_on(site, limit)
    assert status != 0
    assert re.findall(r"TASK \[(.*?)\]", said)[-1] == "gpucluster.slurm.slurm : Acquire the run lock"
    assert all(each in said for each in words), said


@pytest.mark.rare  # 40 s; the other tests have two slices, and runs that must be alone
def test_runs_share_the_lock_only_if_they_cannot_meet(site: Hosts) -> None:
    with held(site, "n1", "slurm_packages", "n1,n2") as one:
        assert lock(site) == ["n[1-2]"]
        refused(site, "n2,n3", "running site.yml on n[1-2] since", "and this run has n2 as well.", "--limit")
        refused(site, "all", "running site.yml on n[1-2] since", "-e slurm_take_over=true")
        assert run_on(site, "n3,n4")[0] == 0
        assert site.asked("n4", "slurm_packages")
        assert lock(site) == ["n[1-2]"]
        planned, said = run_on(site, "n2", "--check")
        assert "the plan may change meanwhile" in said
        assert planned == 0
    assert one.returncode == 0
    assert lock(site) == []
    with held(site, "head", "slurm_packages") as whole:
        assert lock(site) == ["all"]
        refused(site, "n3,n4", "running a playbook of this collection on this cluster since")
    assert whole.returncode == 0
    assert lock(site) == []


# At the first change and at the last one.
@pytest.mark.parametrize("module", ["slurm_packages", pytest.param("slurm_service", marks=pytest.mark.rare)])
def test_a_killed_slice_is_completed_by_the_next_one_beside_a_slice_that_goes_on(site: Hosts, module: str) -> None:
    with held(site, "n3", "slurm_packages", "n3,n4") as other:
        with held(site, "n1", module, "n1,n2") as killed:
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait()
            assert lock(site) == ["n[1-2]", "n[3-4]"]
        # The slice that goes on has its nodes, also for the control host of the killed one.
        refused(site, "n2,n3", "running site.yml on n[3-4] since")
        assert run_on(site, "n1,n2")[0] == 0
        assert lock(site) == ["n[3-4]"]
    assert other.returncode == 0
    assert lock(site) == []
    for node in ("n1", "n2", "n3", "n4"):
        assert site.asked(node, "slurm_service"), node


@pytest.mark.rare  # 15 s; the slice that another one completes is killed in the same way
def test_another_control_host_takes_a_killed_slice_over_and_no_other_one(site: Hosts) -> None:
    with held(site, "n3", "slurm_packages", "n3,n4") as other:
        entry = {"host": "adm2", "user": "bob", "process": "100 5", "since": "2026-11-24 10:02", "nodes": "n[1-2]"}
        shared = site.directory.parent / "locks/run.shared"
        shared.write_text(json.dumps([*json.loads(shared.read_text()), entry]))
        refused(site, "n1", "bob on adm2 has been running site.yml on n[1-2] since", "-e slurm_take_over=true")
        assert run_on(site, "n1", "-e", "slurm_take_over=true")[0] == 0
        assert lock(site) == ["n[3-4]"]
    assert other.returncode == 0


LINE = """\
- hosts: slurm_compute
  gather_facts: false
  tasks:
    - set_fact: {__slurm_packages_run: {plugins: [{path: /usr/lib/spank_pyxis.so, sha256: "0"}]}}
    - import_role: {name: gpucluster.slurm.base, tasks_from: gather}
    - import_role: {name: gpucluster.slurm.slurm, tasks_from: acquire_run_lock}
      vars: {__slurm_run_may_share: true}
    - import_role: {name: gpucluster.slurm.pyxis, tasks_from: record_line}
"""
"""What a run does before its nodes get a plugin of pyxis."""


@pytest.mark.parametrize("changes", [True, False])
def test_a_run_that_changes_the_line_of_pyxis_must_be_alone(site: Hosts, changes: bool) -> None:
    line, folder = site.directory / "line.yml", site.directory.parent / "locks"
    line.write_text(LINE)
    said = json.dumps({"changed": changes, "unproven": changes, "former_line": "", "diff": []})
    for name in ("n1", "n2"):
        (site.directory / "hosts" / name / "slurm_spank_plugin.json").write_text(said)
    first = site.run(str(line), "--limit=n1")
    assert first.returncode == 0, first.stdout
    assert lock(site) == (["all"] if changes else ["n1"])
    recorded = '"_ansible_check_mode": false' in site.asked("n1", "slurm_spank_plugin")
    assert recorded
    (folder / "run").unlink()
    # Beside a run of other nodes.
    entry = {"host": "adm2", "user": "bob", "process": "100 5", "since": "2026-11-24 10:02"}
    (folder / "run.shared").write_text(json.dumps([{**entry, "nodes": "n[3-4]"}]))
    (folder / "run").write_text(json.dumps({**entry, "process": "0"}))
    second = site.run(str(line), "--limit=n2", "-e", "slurm_take_over=true")
    recorded = '"_ansible_check_mode": false' in site.asked("n2", "slurm_spank_plugin")
    assert (second.returncode == 0, recorded) == (not changes, not changes), second.stdout
    assert ("bob on adm2 has been running site.yml on n[3-4] since" in second.stdout) is changes
    assert lock(site) == ["n2", "n[3-4]"]


def test_a_part_of_an_inventory_is_refused_with_what_to_do(site: Hosts) -> None:
    """As a job slice of AWX has it: the variables of its hosts refer to a controller that it lacks."""
    referring = {name: f"{{{{ hostvars[groups.slurm_controller | first].{name} }}}}" for name in ("slurm_nodes",)}
    compute = {"hosts": {"n1": {"slurm_controllers": ["head"], **referring}}}
    site.file = site.directory / "part.yml"
    site.file.write_text(yaml.safe_dump({"slurm_cluster": {"children": {"slurm_compute": compute}}}))
    for arguments in ((), ("--limit=n1",)):
        run = site.run(*SITE, *arguments)
        assert run.returncode != 0
        assert "The inventory lacks head (slurm_controllers): it is a part of a cluster" in run.stdout
        assert "Give each job the whole inventory, and a limit of its own." in run.stdout
