# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_repair: where the program runs, what it knows, and who tells it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.quick_level import plan_from_json
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.tasks import PROGRAM
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.ports import REPAIR
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import slurm_health
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import stages
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import node_measuring, repair
from jinja2 import Template
from plain_host import PlainHost, cluster

TEMPLATES = Path(__file__).parents[5] / "roles/slurm_repair/templates"


def hosts(**variables: Any) -> dict[str, PlainHost]:
    measures = {"accept_user": "root", "accept_disk": "/tmp"}
    found: dict[str, PlainHost] = cluster(**{"slurm_repair": {"mode": "observe"}, **measures, **variables})
    return found


def test_the_controllers_have_the_program() -> None:
    of = hosts()
    assert ["repair" in stages.stages(of[name]) for name in ("head", "n1")] == [True, False]
    assert not repair.is_used(hosts(slurm_repair={})["head"])


def test_another_controller_finds_the_cases() -> None:
    """They are in the directory that controllers share."""
    of = hosts(slurm_conf={"StateSaveLocation": "/shared/state"}, slurm_controllers=["head", "head2"])
    assert repair.settings(of["head"]) == {
        "cluster": "x",
        "controller": "head",
        "controllers": ["head", "head2"],
        "job_user": "root",
        "directory": "/shared/state/repair",
        "least_nodes": {},
        "machines": False,
        "mail": "",
        "mail_domain": "",
        "mode": "observe",
        "port": 6830,
        "quiet_hours": [],
        "user": "slurm",
    }


def test_controllers_know_what_measuring_depends_on() -> None:
    of = hosts()["head"]
    (file,) = (file for file in repair.socket_files(of) if file["path"] == repair.PLAN)
    assert plan_from_json(json.loads(file["content"]), repair.PLAN) == node_measuring.plan(of)
    programs = [file["path"] for file in slurm_health.files(hosts()["n1"])]
    assert PROGRAM in programs
    assert PROGRAM not in [file["path"] for file in slurm_health.files(hosts(slurm_repair={})["n1"])]


def test_nodes_that_are_measured_have_the_programs() -> None:
    for mode, packages in (("observe", []), ("reboot", ["fio", "hpcc"])):
        of = hosts(slurm_repair={"mode": mode})
        assert [node_measuring.own_packages(of[name]) for name in ("head", "n1")] == [[], packages]


def test_nodes_know_where_reports_go() -> None:
    assert slurm_health.reports(hosts(slurm_repair={})["n1"]) == {}
    of = hosts(slurm_controllers=["head", "head2"])["n1"]
    to = {"controllers": ["head", "head2"], "port": REPAIR, "reader": "slurm", "treats": False}
    assert slurm_health.reports(of) == {"repair": to}
    assert json.loads(slurm_health.settings(of, {})["content"])["repair"] == to


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    of = hosts()["head"]
    files = [*repair.socket_files(of), *repair.timer_files(of)]
    names = sorted(Path(file["path"]).name for file in files if file["path"].startswith(repair.UNITS))
    assert names == ["slurm-repair.service", "slurm-repair.socket", "slurm-repair.timer", "slurm-repair@.service"]
    for name in names:
        template = Template((TEMPLATES / f"{name}.j2").read_text(encoding="utf-8"))
        text = template.render(slurm_cluster_name="lab", port=REPAIR, program="/bin/true")
        (tmp_path / name).write_text(f"{text}\n")
    paths = [str(tmp_path / name) for name in names if "@" not in name]
    done = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.split("\n") if "slurm-repair" in line] == []
