# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real playbooks on hosts that lie: they are left out and named, the others go on, and the control host is as before.

The hosts are stand-ins (`standing_hosts`). Each lie alone is tried in `test_answers`.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.report_pages import report_page as page
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.answers import checked
from standing_hosts import GRES, HARDWARE, Hosts, honest

SECRET = "what only the control host may read"
TEMPLATE = "{{ lookup('pipe', 'touch owned') }}"
ESCAPES = "\x1b[2J\x1b]52;c;eA==\x07\r\nok: [head]\n\u2028fatal: [head]: FAILED!\x9b1A"


def cluster(nodes: str, gres: bool = False) -> dict[str, Any]:
    """A cluster file with these compute nodes."""
    machine = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "x",
        "controllers": "head",
        "hardware": {"a": {**machine, "gres": [GRES]} if gres else machine},
        "nodes": [{"hosts": nodes, "hardware": "a"}],
        "partitions": [{"name": "p", "nodes": "ALL", "default": True}],
    }


def recap(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What the end of a run says of each host: `ok`, `failed` or `unreachable`."""
    counts = re.findall(r"^(\S+) +: ok=\d+ .*unreachable=(\d+) +failed=(\d+)", run.stdout, re.MULTILINE)
    return {host: "unreachable" if int(gone) else "failed" if int(bad) else "ok" for host, gone, bad in counts}


def refused(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """By host, what was said of an answer that was refused."""
    lines = re.findall(
        r"^fa(?:tal|iled): \[(\S+)\]:? .*The host returned an invalid result for (.*)$", run.stdout, re.MULTILINE
    )
    return dict(lines)


def harmless(run: subprocess.CompletedProcess[str]) -> None:
    """Nothing in the output is what a terminal obeys, and nothing looks like a line of it that is none."""
    output = run.stdout + run.stderr
    assert re.findall(r"[^\n\t -~]", output) == []
    assert len(re.findall(r"^fatal: \[head\]", output, re.MULTILINE)) == (recap(run).get("head") == "failed")
    assert output.count("\nPLAY RECAP") == 1


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def variables(secret: Path) -> dict[str, Any]:
    """What a host would like the variables of the control host to be."""
    return {
        "munge_key_file": str(secret),
        "slurm_controllers": ["localhost"],
        "slurm_hardware_file": str(secret.parent / "written"),
        "slurm_secrets_dir": str(secret.parent / "written"),
        "pyxis_packages": {"24.11": {"file": str(secret)}},
        "slurm_health_own_checks": {"x": str(secret)},
        "ansible_sftp_executable": str(secret.parent / "owned.sh"),
        "ansible_control_path": "../../x",
    }


def lies(secret: Path) -> list[tuple[str, Any]]:
    """A module, and the answer of a host in its place. One run has all of them."""
    said, facts = honest("n"), variables(secret)
    look = said["slurm_host_facts"]
    hardware, host = (look["ansible_facts"][name] for name in ("slurm_hardware", "slurm_host"))
    return [
        ("slurm_service", {**said["slurm_service"], "ansible_facts": facts}),
        ("slurm_service", {**said["slurm_service"], "ansible_facts": {"slurm_host": {**host, "users": TEMPLATE}}}),
        ("nvidia_mig", {**said["nvidia_mig"], "ansible_facts": facts}),
        ("slurm_packages", {**said["slurm_packages"], "ansible_facts": facts}),
        ("slurm_host_facts", {"ansible_facts": {**look["ansible_facts"], **facts}}),
        ("slurm_host_facts", {"ansible_facts": {"slurm_host": host, "slurm_hardware": {**hardware, "cpus": -1}}}),
        ("nvidia_mig", {**said["nvidia_mig"], "gpus": {"x": TEMPLATE}}),
        ("slurm_service", {**said["slurm_service"], "proof": {"x": 1}}),
        # It says that it failed, or Ansible does. The first one ends the run without the check, with ansible-core 2.19;
        # later releases take it for none.
        ("slurm_host_facts", {"ansible_stats": "data"}),
        ("slurm_packages", {"failed": True, "msg": ESCAPES, "warnings": [ESCAPES], "exception": ESCAPES}),
        ("slurm_host_facts", f"junk {ESCAPES} " + json.dumps({"failed": True, "msg": "x"}) + f"\n{ESCAPES}"),
        ("slurm_host_facts", ESCAPES),
        ("slurm_host_facts", ""),
    ]


def more_lies(secret: Path) -> list[tuple[str, Any]]:
    """Lies for the check alone, since a run is slow; `test_answers` has more."""
    said, facts = honest("n"), variables(secret)
    look = said["slurm_host_facts"]
    hardware, host = (look["ansible_facts"][name] for name in ("slurm_hardware", "slurm_host"))
    injecting = [
        "slurm_hardware_facts",
        "slurm_packages",
        "slurm_service",
        "nvidia_driver",
        "slurm_config",
        "slurm_job",
    ]
    return [
        *((module, {**said[module], "ansible_facts": facts}) for module in injecting),
        ("slurm_host_facts", {"ansible_facts": {"slurm_host": {**host, "distribution": TEMPLATE}}}),
        ("slurm_host_facts", {"ansible_facts": {"slurm_host": {**host, "hostname": "../../x"}}}),
        ("slurm_host_facts", {"ansible_facts": {"slurm_host": host, "slurm_hardware": {**hardware, "cpus": 10**400}}}),
        ("slurm_host_facts", {"ansible_facts": {"slurm_host": {**host, "serving_controller": "x y"}}}),
        ("slurm_host_facts", {**look, "differences": TEMPLATE}),
        ("slurm_host_facts", {**look, "differences": {"x": {"x": {"x": TEMPLATE}}}}),
        ("slurm_host_facts", {"failed": True, "msg": ESCAPES, "ansible_facts": facts}),
        ("nvidia_mig", {**said["nvidia_mig"], "gpus": [{"x": TEMPLATE}]}),
        ("nvidia_mig", {**said["nvidia_mig"], "gpus": {"../0": "x"}}),
        ("nvidia_driver", {**said["nvidia_driver"], "reason": {"x": TEMPLATE}}),
        ("nvidia_driver", {**said["nvidia_driver"], "remarks": "x", "reboot": ESCAPES}),
        ("slurm_service", {**said["slurm_service"], "ansible_stats": {"data": {"slurm_plan": TEMPLATE}}}),
        ("slurm_packages", {**said["slurm_packages"], "plugins": [["/x"]]}),
        ("slurm_run", {"others": [{"host": TEMPLATE}]}),
        ("slurm_files", {**said["slurm_files"], "files": {"/x": TEMPLATE}}),
    ]


def site(directory: Path, lying: list[tuple[str, Any]]) -> Hosts:
    """A cluster whose first compute nodes lie, each in its own way, and whose last one does not."""
    names = [f"n{number:02}" for number in range(1, len(lying) + 2)]
    hosts = {name: honest(name) for name in ["head", *names]}
    hosts["head"]["stat"] = {"stat": {"exists": False}}  # no cluster runs yet
    for name, (module, answer) in zip(names, lying):
        hosts[name][module] = answer
    return Hosts(directory, cluster(f"n[01-{len(names):02}]", gres=True), hosts)


def files(directory: Path) -> set[str]:
    """The files in a directory, without those of the stand-ins."""
    return {
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and "hosts" not in path.relative_to(directory).parts
    }


def unharmed(hosts: Hosts, secret: Path, *made: str) -> None:
    """The control host has these files and no other, and no host has seen the secret."""
    there = ["ansible.cfg", "group_vars/slurm_cluster.yml", "x.cluster.yml", *made]
    assert files(secret.parent) == {"secret", *(f"site/{name}" for name in there)}
    for path in hosts.directory.glob("hosts/*/asked-*"):
        text = path.read_text(errors="replace")
        assert SECRET not in text
        assert base64.b64encode(SECRET.encode()).decode() not in text


@pytest.mark.once  # the other tests here run playbooks with both
def test_liars_are_left_out_and_named_and_the_others_go_on(tmp_path: Path, secret: Path) -> None:
    lying = lies(secret)
    hosts = site(tmp_path / "site", lying)
    run = hosts.run("gpucluster.slurm.site", "--tags", "base,mig")
    liars = [f"n{number:02}" for number in range(1, len(lying) + 1)]
    last = f"n{len(lying) + 1:02}"
    assert recap(run) == {"localhost": "ok", "head": "ok", last: "ok", **dict.fromkeys(liars, "failed")}
    assert {*liars[:8]} <= {*refused(run)} <= {*liars[:9]}
    assert "'munge_key_file': is no fact of this module" in refused(run)["n03"]
    harmless(run)
    assert "munge.key" in hosts.asked(last, "slurm_service")
    unharmed(hosts, secret, "secrets/x/munge.key")


def test_no_lie_is_taken(secret: Path) -> None:
    more = more_lies(secret)
    assert len(more) + len(lies(secret)) > 30
    for module, answer in more:
        taken = checked(module, answer, {"hardware": True})
        assert taken.keys() == {"failed", "msg"}
        assert "Has somebody taken it over?" in taken["msg"]
        assert taken["msg"].isprintable()


def test_a_host_that_measures_lies_does_not_break_the_hardware_file(tmp_path: Path, secret: Path) -> None:
    target = secret.parent / "written"
    lie = {"ansible_facts": {"slurm_hardware": HARDWARE, "slurm_hardware_file": str(target)}, "differences": []}
    gpu = HARDWARE["gpus"][0]
    odd = {**HARDWARE, "gpus": [{**gpu, "model": "x: {} #"}]}
    hosts = Hosts(
        tmp_path / "site",
        {**cluster("n[1-3]"), "nodes": [{"hosts": "n[1-3]", "hardware": "detected"}]},
        {
            "head": honest("head"),
            "n1": {"slurm_hardware_facts": lie},
            "n2": {"slurm_hardware_facts": {"ansible_facts": {"slurm_hardware": odd}, "differences": []}},
            "n3": honest("n3"),
        },
    )
    run = hosts.run("gpucluster.slurm.discover")
    assert recap(run)["n1"] == "failed"
    assert recap(run)["n3"] == "ok"
    assert "n2: no node line can be made, since the cluster file would refuse it" in run.stdout
    harmless(run)
    assert not target.exists()
    found = yaml.safe_load((hosts.directory / "x.hardware.yml").read_text())
    assert [node["hosts"] for node in found["nodes"]] == ["n3"]


@pytest.mark.once  # the other tests here run playbooks with both
def test_what_is_said_of_jobs_is_data_in_reports(tmp_path: Path) -> None:
    """Node names, reasons and outputs come from compute nodes and users, also through an honest controller."""
    said = f"</failure>]]>&{ESCAPES}{{{{ 7 * 7 }}}}"
    job = {
        "name": "p/n1",
        "job_id": 7,
        "partition": "p",
        "status": "waiting",
        "ok": False,
        "state": "PENDING",
        "expected": "COMPLETED",
        "exit_code": "",
        "nodes": "",
        "elapsed": 0,
        "reason": said,
        "node_states": {"n1": said},
        "message": said,
    }
    answer = {"failed": True, "msg": said, "jobs": [job], "accounting": False}
    answers = honest("head") | {
        "slurm_job": answer,
        "slurm_updates_info": {"changed": False, "updates": [], "security": [], "lists_days": 0},
    }
    hosts = Hosts(tmp_path / "site", cluster("n1"), {"head": answers, "n1": {}})
    run = hosts.run("gpucluster.slurm.validate")
    harmless(run)
    assert recap(run)["head"] == "failed"
    reports = hosts.directory / "report/x"
    (case,) = ET.parse(reports / "validation.xml").getroot().iter("testcase")
    (failure,) = case.iter("failure")
    shown = said.replace("\x1b", r"\x1b").replace("\x07", r"\x07").replace("\r", r"\r").replace("\u2028", r"\u2028")
    shown = shown.replace("\x9b", r"\x9b")
    assert failure.get("message") == shown.replace("\n", " ")
    assert json.loads((reports / "validation.json").read_text())["jobs"][0]["message"] == shown


@pytest.mark.once
def test_what_nodes_say_of_an_acceptance_is_data_on_the_page(tmp_path: Path) -> None:
    """A whole run of accept.yml, whose jobs have printed this; the page has it as texts."""
    said = f"</b><script>1</script>{ESCAPES}{{{{ 7 * 7 }}}}"
    line = {"test": "stream", "value": 100.0, "unit": "GB/s", "nodes": ["n1"], "gpu": None, "size": None, "text": ""}
    line |= {"hardware": "a", "driver": "", "image": "", "job": 7, "time": 1}
    outputs = [
        {"task": "1/node/n1", "job": 7, "nodes": "n1", "text": json.dumps(line), "why": ""},
        {"task": "1/node/n2", "job": 8, "nodes": "n2", "text": "", "why": said},
    ]
    step = {"ready": [], "over": True, "ok": True, "table": [], "taken": "n[1-2]", "left": {"n3": said}}
    step |= {"switches": {}, "reads": {}, "others": [], "outputs": outputs}
    answers = honest("n1") | {"slurm_acceptance": step, "file": {"path": "/x"}}
    hosts = Hosts(
        tmp_path / "site", {**cluster("n[1-2]"), "report": "head"}, dict.fromkeys(("head", "n1", "n2"), answers)
    )
    run = hosts.run("gpucluster.slurm.accept", "-e", "slurm_report_tls=false")
    assert recap(run)["n1"] == "failed"
    assert "1 jobs without a result" in run.stdout
    runs = json.loads((hosts.directory / "report/x/acceptance-runs.json").read_text())["runs"]
    (kept,) = runs
    assert (kept["measured"], kept["left"], kept["faults"]) == (1, 1, 1)
    assert [row["median"] for row in kept["values"]] == [100]
    # The host of the page gets the same; n1 is the first node, which Ansible takes for it here.
    asked = hosts.asked("n1", "slurm_acceptance")
    assert '"step": "keep"' in asked
    assert kept["finished"] in asked
    data = {"made": kept["finished"], "version": 1, "cluster": "x", "acceptance": runs}
    page.write_pages(data, tmp_path)
    html = (tmp_path / "admin.html").read_text()
    assert "&lt;script&gt;1&lt;/script&gt;" in html
    assert "<script>1" not in html
    assert "\x1b" not in html
    assert "script&gt;1" not in (tmp_path / "index.html").read_text()


def test_the_lies_would_do_harm_without_the_gate(tmp_path: Path, secret: Path) -> None:
    """What the stand-ins say is what Ansible takes: with a module of Ansible's own the fact is a variable."""
    lie = {"rc": 0, "stdout": "", "ansible_facts": {"path": str(secret)}}
    hosts = Hosts(tmp_path / "site", cluster("n1"), {"head": {}, "n1": {"command": lie}})
    play = {
        "hosts": "n1",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.command": "true"},
            {"ansible.builtin.debug": {"msg": "{{ lookup('ansible.builtin.file', path) }}"}},
        ],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    assert SECRET in hosts.run(str(tmp_path / "play.yml")).stdout
