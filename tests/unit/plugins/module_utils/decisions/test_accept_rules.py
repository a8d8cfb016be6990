# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role accept: tasks, jobs, rounds, and what is shown. Results are made up, nodes that are slow included."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.catalog import TESTS
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.published import PublishedMachine
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.tasks import MOST_ROUNDS
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import accept
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import node_measuring
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from plain_host import PlainHost, cluster

ROOT = Path(__file__).parents[5]
NAMES = [f"n{number}" for number in range(1, 6)]
MACHINE: dict[str, Any] = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}
OPTIONS: dict[str, Any] = {
    "accept_level": "quick",
    "accept_container": "",
    "accept_nccl_tests": "",
    "accept_profile": "",
    "accept_disk": "/tmp",
    "accept_shared": "",
    "accept_budget": {},
    "accept_drain": False,
    "accept_user": "root",
    "accept_report_dir": "/cluster/report/x",
    "slurm_cluster_file": "/cluster/my.cluster.yml",
    "slurm_nodes": [{"hosts": "n[1-5]", "hardware": "m"}],
    "slurm_partitions": [{"name": "all", "nodes": "n[1-5]"}],
    "slurm_hardware_types": {"m": MACHINE},
    "ansible_play_hosts": NAMES,
    "__accept_begun": {"taken": "n[1-5]", "left": {}, "outputs": []},
}
GPUS = {"m": {**MACHINE, "gres": [{"name": "gpu", "type": "h100", "file": "/dev/nvidia[0-7]"}]}}


def host(files: Mapping[str, bytes] | None = None, **variables: Any) -> PlainHost:
    found: PlainHost = cluster(files=files, **(OPTIONS | variables))["n1"]
    return found


def printed(job: int, nodes: list[str], tests: list[str], slow: Mapping[str, float], kind: str = "m") -> str:
    """What slurm-accept prints: values around 100, less by a factor on slow nodes."""
    noise = random.Random(f"{job}{nodes}")
    lines = []
    for name in tests:
        test = TESTS[name]
        value = 1.0 if test.is_check else 100 * noise.gauss(1, 0.002) * min(slow.get(node, 1.0) for node in nodes)
        result = {"test": name, "value": value, "unit": test.unit, "nodes": nodes, "gpu": None, "size": None}
        more = {"text": "", "hardware": kind, "driver": "", "image": "", "job": job, "time": 1}
        lines.append(json.dumps(result | more))
    return "\n".join(lines)


def run(site: PlainHost, slow: Mapping[str, float]) -> tuple[PlainHost, int]:
    """A whole run, as the tasks of the role do it; returns the host, and the number of rounds."""
    outputs: list[dict[str, Any]] = []
    for rounds in range(20):
        for task in accept.wanted(site):
            words = task["job"]["script"].split()
            tests = next(word for word in words if word.startswith("--tests=")).partition("=")[2].split(",")
            job = len(outputs) + 1
            text = printed(job, expand(task["nodes"]), tests, slow)
            outputs.append({"task": task["name"], "job": job, "nodes": task["nodes"], "text": text, "why": ""})
        site.set(__accept_stored={"outputs": outputs}, __accept_rounds=rounds + 1)
        if not accept.goes_on(site):
            return site, rounds + 1
    raise AssertionError("the run does not end")


def test_the_jobs_of_a_node_and_of_a_pair() -> None:
    site = host(accept_level="medium")
    tasks = {task["name"]: task for task in accept.wanted(site)}
    assert [name for name in tasks if "node" in name] == [f"1/node/{name}" for name in NAMES]
    job = tasks["1/node/n1"]["job"]
    assert job["options"] == {
        "exclusive": True,
        "ntasks-per-node": 1,
        "chdir": "/",
        "error": "/var/lib/gpucluster-slurm/accept/%j.err",
    }
    assert (job["partition"], job["nodelist"], job["memory"], job["nodes"]) == ("all", "n1", "0", "1")
    assert job["script"].startswith("#!/bin/bash\nexec /usr/local/lib/gpucluster-slurm/slurm-accept node --tests=")
    pairs = [task for name, task in tasks.items() if "/pair/" in name]
    partners = Counter(name for task in pairs for name in expand(task["nodes"]))
    assert min(partners.values()) >= 3
    assert {*partners} == {*NAMES}
    assert (
        "slurm-accept pair --tests=network_tcp,network_rdma,network_rdma_across --nodes=" in pairs[0]["job"]["script"]
    )


def test_the_jobs_of_nodes_with_gpus() -> None:
    site = host(
        accept_level="long",
        slurm_hardware_types=GPUS,
        accept_nccl_tests="/shared/nccl-tests/build",
        accept_container="torch.sqsh",
        slurm_containers=["enroot", "pyxis"],
        accept_profile="/var/lib/tcpxo/profile.sh",
        slurm_health_xids=[13, 43],
    )
    tasks = {task["name"]: task["job"] for task in accept.wanted(site)}
    many = tasks["1/many/n[1-5]"]
    assert (many["gres"], many["options"]["ntasks-per-node"]) == ("gpu:8", 8)
    assert many["script"].startswith("#!/bin/bash\n. /var/lib/tcpxo/profile.sh\nexec ")
    assert "--image=torch.sqsh --runtime=pyxis --nccl-tests=/shared/nccl-tests/build" in many["script"]
    node = tasks["1/node/n1"]["script"]
    assert "--gpus=8" in node
    assert "--xids=13,43" in node
    assert "profile.sh" not in node
    # Of dcgmi's levels the highest has the others.
    assert "dcgm_3" in node
    assert "dcgm_1" not in node


def test_without_an_image_gpus_are_checked_and_the_run_says_what_it_lacks() -> None:
    site = host(slurm_hardware_types=GPUS)
    lines = accept.announcement(site)
    assert lines[0] == "nodes     n[1-5]"
    assert any(line.startswith("without   gpu_matrix, ") for line in lines)
    assert "gpu_ecc" in lines[1]
    # A node may have nvbandwidth.
    assert "gpu_memory_bandwidth" in lines[1]


@pytest.mark.parametrize("image", ["torch.sif", ""])
def test_mig_instances_are_checked_and_not_measured(image: str) -> None:
    gres = [{"name": "gpu", "type": "h100", "file": "/dev/nvidia[0-1]", "mig": {"1g.10gb": 7}}]
    site = host(slurm_hardware_types={"m": {**MACHINE, "gres": gres}}, accept_container=image)
    job = accept.wanted(site)[0]["job"]
    assert job["gres"] == "gpu:14"
    assert "--gpus=2" in job["script"]
    assert "gpu_ecc" in job["script"]
    assert "gpu_matrix" not in job["script"]
    assert "host_to_gpu" not in job["script"]
    assert not any(line.startswith("without") for line in accept.announcement(site))


@pytest.mark.parametrize(
    ("value", "kind", "slow"), [(188.2, "a3-megagpu-8g", 0), (120.0, "a3-megagpu-8g", 1), (120.0, "m", 0)]
)
def test_the_figure_of_guide_003_holds_for_its_machine_alone(value: float, kind: str, slow: int) -> None:
    """all_gather of 8 GiB on two A3 Mega nodes, which nothing else can be compared with."""
    pair = ["n1", "n2"]
    outputs = []
    for job in range(1, 5):
        line = json.loads(printed(job, pair, ["all_gather_pair"], {}, kind))
        text = json.dumps({**line, "value": value + job / 100, "size": 8 << 30})
        outputs.append({"task": f"{job}/pair/n1+n2", "job": job, "nodes": "n[1-2]", "text": text, "why": ""})
    site = host(
        slurm_hardware_types={kind: GPUS["m"]},
        slurm_nodes=[{"hosts": "n[1-2]", "hardware": kind}],
        __accept_stored={"outputs": outputs},
    )
    said = accept.result(site)
    assert (said["ok"], len(said["slow_pairs"])) == (not slow, slow)
    if slow:
        assert "n[1-2]: NCCL's bus bandwidth of all_gather on two nodes: 120.03 GB/s, under 179.2 of Google" in str(
            accept.table(site)
        )
        assert accept.failure(site).startswith("pairs are slow. ")
        assert accept.cases(site)[-1]["nodes"] == "n[1-2]"


def test_gpus_of_two_sockets_are_one_machine_for_published_figures() -> None:
    """As the example has them. Where a machine has GPUs of two types, no figure is for it."""
    example = yaml.safe_load((ROOT / "inventory/a3mega/a3mega.cluster.yml").read_text())["hardware"]
    site = host(slurm_hardware_types=example)
    assert node_measuring.published_machines(site) == {"a3-megagpu-8g": PublishedMachine("h100", 8, "a3-megagpu-8g")}
    types = [{"name": "gpu", "type": kind, "file": "/dev/nvidia0"} for kind in ("h100", "a100")]
    assert node_measuring.published_machines(host(slurm_hardware_types={"m": {**MACHINE, "gres": types}})) == {}


def test_nodes_without_gpus_have_no_tests_of_gpus() -> None:
    assert accept.announcement(host())[1:] == [
        "tests     stream, dgemm, disk_write_local, disk_read_local",
        "time      about 2 minutes on each node, in 5 jobs",
    ]


def test_packages_follow_from_the_level() -> None:
    assert accept.packages(host()) == [{"name": "fio"}, {"name": "hpcc"}]
    assert [entry["name"] for entry in accept.packages(host(accept_level="medium"))] == ["fio", "hpcc", "iperf3"]
    assert accept.packages(host(accept_disk="")) == [{"name": "hpcc"}]


def test_healthy_nodes_need_one_round() -> None:
    site, rounds = run(host(accept_level="medium"), {})
    assert rounds == 1
    said = accept.result(site)
    assert (said["ok"], said["named"], said["measured"]) == (True, [], NAMES)
    assert "Nothing is slow or broken." in accept.table(site)
    assert accept.failure(site) == ""
    assert accept.drained(site.set(accept_drain="true")) == []


def test_a_slow_node_is_named_after_further_rounds_and_drained_if_asked() -> None:
    site, rounds = run(host(accept_level="medium"), {"n3": 0.7})
    assert 1 < rounds <= MOST_ROUNDS
    said = accept.result(site)
    assert said["named"] == ["n3"]
    assert said["undecided"] == []
    assert {finding["test"] for finding in said["findings"]} >= {"stream", "network_tcp"}
    assert accept.failure(site) == "named: n3. The table above and /cluster/report/x say why."
    assert accept.drained(site) == []
    (drain,) = accept.drained(site.set(accept_drain="true"))
    assert drain["name"] == "n3"
    assert drain["reason"].startswith("gpucluster.slurm accept: ")
    assert len(drain["reason"]) <= accept.REASON
    wrong = [case for case in accept.cases(site) if case["failure"]]
    assert {case["nodes"] for case in wrong} == {"n3"}


def test_the_same_outputs_give_the_same_tasks() -> None:
    """A run that was killed computes its rounds again, and makes only what is missing."""
    site, rounds = run(host(accept_level="medium"), {"n3": 0.7})
    names = [{task["name"] for task in accept.wanted(site.set(__accept_rounds=number))} for number in range(rounds)]
    done = {output["task"] for output in site["__accept_stored"]["outputs"]}
    assert set().union(*names) == done


def test_a_job_without_a_result_fails_the_run() -> None:
    lost = {"task": "1/node/n2", "job": 0, "nodes": "n2", "text": "", "why": "n2 has got job 7 of alice"}
    site = host(__accept_stored={"outputs": [lost]})
    assert accept.result(site)["errors"] == ["n2: n2 has got job 7 of alice"]
    assert accept.failure(site).startswith("1 jobs without a result")
    assert accept.cases(site) == [{"test": "job", "nodes": "n2", "failure": "n2: n2 has got job 7 of alice"}]


def test_what_could_not_be_measured_is_no_failure() -> None:
    text = "not measured: dgemm: hpcc is not installed\nnot measured: nonsense: x\n"
    both = [{"task": f"1/node/{n}", "job": 1, "nodes": n, "text": text, "why": ""} for n in ("n1", "n2")]
    site = host(__accept_stored={"outputs": both})
    assert accept.result(site)["missed"] == ["dgemm on n[1-2]: hpcc is not installed"]
    assert accept.result(site)["ok"]


def test_outputs_are_read_from_the_nodes_and_lost_nodes_are_named() -> None:
    reads = {"n1": [5, 7, 8], "n2": [6, 7]}
    site = host(__accept_step={"ready": ["n1", "n2"], "reads": reads}, ansible_play_hosts=["n1"])
    found = {5: ("x", ""), 7: ("", "its output cannot be read"), 8: ("", "python3: not found")}
    site.of("n1").set(
        __accept_read={"outputs": [{"job": job, "text": text, "why": why} for job, (text, why) in found.items()]}
    )
    assert accept.read_here(site) == [5, 7, 8]
    lost = "n2 was not reached, and may have its output"
    assert accept.read_outputs(site) == [
        {"job": 5, "text": "x", "why": ""},
        {"job": 7, "text": "", "why": lost},
        {"job": 8, "text": "", "why": "python3: not found"},
        {"job": 6, "text": "", "why": lost},
    ]
    # Of a pair, the node on which Slurm has run the script has the output.
    site.set(ansible_play_hosts=["n1", "n2"])
    site.of("n2").set(__accept_read={"outputs": [{"job": 7, "text": "y", "why": ""}]})
    assert accept.read_outputs(site)[1] == {"job": 7, "text": "y", "why": ""}


def test_a_baseline_is_proposed_and_used() -> None:
    site, _rounds = run(host(accept_level="medium"), {})
    text = accept.baseline_text(site)
    assert {entry["test"] for entry in yaml.safe_load(text)} == {
        *("stream", "dgemm", "disk_write_local", "disk_read_local", "network_tcp", "network_rdma"),
        "network_rdma_across",
    }
    assert accept.baseline_change(site)[0] == "--- reviewed"
    assert node_measuring.baseline_path(site) == "/cluster/my.baseline.yml"
    # Two nodes are too few to compare them with each other.
    two: dict[str, Any] = {"__accept_begun": {"taken": "n[1-2]", "left": {}, "outputs": []}}
    slow, _rounds = run(host({"/cluster/my.baseline.yml": text.encode()}, **two), {"n2": 0.7})
    assert accept.result(slow)["named"] == ["n2"]
    unknown, _rounds = run(host(**two), {"n2": 0.7})
    assert accept.result(unknown)["named"] == []
    trends = [row.trend for row in accept.rows(slow)]
    assert all("% since " in trend for trend in trends)


@pytest.mark.parametrize("text", ["- {hardware: m", "- {hardware: m, floor: much}", "a: b"])
def test_a_baseline_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"^/cluster/my.baseline.yml: "):
        node_measuring.baseline(host({"/cluster/my.baseline.yml": text.encode()}))


def test_the_budget() -> None:
    assert accept.budget(host()) == {}
    assert accept.budget(host(accept_budget="10%")) == {"*": "10%"}
    assert accept.budget(host(accept_budget={"gpu": 2})) == {"gpu": 2}


def test_another_level_or_limit_is_another_run() -> None:
    site = host()
    before = accept.change(site)
    assert accept.change(site.set(ansible_play_hosts=["n1"])) == before
    assert accept.change(site.set(ansible_limit="n1")) != before
    assert accept.change(host(accept_level="long")) != before


def test_jobs_of_another_user_write_into_its_directory() -> None:
    site = host(accept_user="slurm-check")
    assert node_measuring.directory(site) == "/var/lib/slurm-check/accept"
    assert accept.wanted(site)[0]["job"]["output"] == "/var/lib/slurm-check/accept/%j.out"


def test_a_node_that_is_lost_later_stays_a_part_of_the_run() -> None:
    site = host(__accept_names=NAMES, ansible_play_hosts=["n1", "n2"])
    assert accept.nodes(site) == "n[1-5]"
    assert accept.nodes(host(ansible_play_hosts=["n1", "n2", "head"])) == "n[1-2]"


def test_the_run_is_kept_for_the_page_with_earlier_ones() -> None:
    path = "/cluster/report/x/acceptance-runs.json"
    site, _rounds = run(host(), {"n2": 0.7})
    first = accept.runs_kept(site, "2026-11-27T10:00:00+00:00")["runs"][0]
    assert {key: first[key] for key in ("finished", "ok", "level", "measured", "named", "names")} == {
        "finished": "2026-11-27T10:00:00+00:00",
        "ok": False,
        "level": "quick",
        "measured": 5,
        "named": 1,
        "names": "n2",
    }
    assert first["findings"][0].startswith("n2: ")
    assert len(first["findings"]) == first["faults"]
    assert {row["test"] for row in first["values"]} == {"stream", "dgemm", "disk_write_local", "disk_read_local"}
    assert all(row["values"] == 5 and 99 < row["median"] < 101 for row in first["values"])
    site.files = {path: json.dumps({"runs": [first]}).encode()}
    later = accept.runs_kept(site, "2026-11-28T10:00:00+00:00")["runs"]
    assert later[1:] == [{**first, "findings": []}]
    site.files = {path: json.dumps({"runs": later}).encode()}
    # The page gets this run alone, with its time: its host has the runs of other control hosts as well.
    assert accept.last_run(site) == later[0]
    for text in ("", "[]", "{", "7"):
        site.files = {path: text.encode()}
        assert len(accept.runs_kept(site, "2026-11-28T10:00:00+00:00")["runs"]) == 1


def test_a_job_without_a_result_is_on_the_page() -> None:
    outputs = [{"task": "1/node/n1", "job": 0, "nodes": "n1", "text": "", "why": "job 1 ended as TIMEOUT (0:0)"}]
    site = host(__accept_stored={"outputs": outputs}, __accept_rounds=1)
    found = accept.runs_kept(site, "2026-11-28T10:00:00+00:00")["runs"][0]
    assert (found["ok"], found["named"], found["faults"]) == (False, 0, 1)
    assert found["findings"] == [f"failed: {accept.result(site)['errors'][0]}"]


def test_nodes_of_a_rolling_change_are_measured_alone_at_level_quick_and_judged_with_those_before() -> None:
    """Four nodes are back in service, and n5 is slow: its peers name it. The level is not that of accept.yml."""
    rolling: dict[str, Any] = {"accept_level": "medium", "__accept_level": "quick", "__accept_names": NAMES}
    before, _rounds = run(host(**rolling, __accept_begun={"taken": "n[1-4]", "left": {}}), {})
    earlier = before["__accept_stored"]["outputs"]
    begun = {"taken": "n5", "left": {}, "outputs": earlier}
    site = host(**rolling, __accept_begun=begun, __accept_stored={})
    assert [task["name"] for task in accept.wanted(site)] == ["1/node/n5"]
    assert accept.packages(site) == [{"name": "fio"}, {"name": "hpcc"}]
    outputs = list(earlier)
    number = 0
    while not number or accept.goes_on(site):
        number += 1
        (task,) = accept.wanted(site)
        assert task["name"] == f"{number}/node/n5"
        text = printed(10 + number, ["n5"], ["stream", "dgemm"], {"n5": 0.7})
        outputs.append({"task": task["name"], "job": 10 + number, "nodes": "n5", "text": text, "why": ""})
        site.set(__accept_stored={"outputs": outputs}, __accept_rounds=number)
    assert 3 <= number <= MOST_ROUNDS
    errors = accept.node_errors(site, ["n5", "n4"])
    assert errors["n4"] == ""
    (drain,) = accept.drained(site.set(accept_drain=True))
    assert drain["reason"].removeprefix("gpucluster.slurm accept: ") in errors["n5"]
    assert errors["n5"].startswith("dgemm ")


def test_a_node_of_a_rolling_change_without_a_result_does_not_return() -> None:
    lost = {"task": "1/node/n1", "job": 7, "nodes": "n1", "text": "", "why": "job 7 ended as TIMEOUT (0:0)"}
    text = "not measured: dgemm: hpcc is not installed\n"
    missed = {"task": "1/node/n2", "job": 8, "nodes": "n2", "text": text, "why": ""}
    begun = {"taken": "n[1-2]", "left": {"n3": "DOWN (no reason)"}, "outputs": [lost, missed]}
    assert accept.node_errors(host(__accept_begun=begun), ["n1", "n2", "n3"]) == {
        "n1": "n1: job 7 ended as TIMEOUT (0:0)",
        "n2": "",
        "n3": "it was not measured: DOWN (no reason)",
    }


def test_a_rolling_change_has_its_own_measurements() -> None:
    assert accept.change(host(__rolling_digest="a")) != accept.change(host(__rolling_digest="b"))
    limited = host(__rolling_digest="a", ansible_limit="n1")
    assert accept.change(limited) == accept.change(host(__rolling_digest="a"))
