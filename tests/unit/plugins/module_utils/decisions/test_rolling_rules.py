# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role rolling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import rolling
from plain_host import PlainHost, cluster

DEFAULTS: dict[str, Any] = {
    "rolling_tasks": "",
    "rolling_packages": [],
    "rolling_reboot": False,
    "rolling_budget": "10%",
    "rolling_user": "root",
    "rolling_window": {},
    "rolling_accept": False,
}


def hosts(nodes: str = "n1 n2", files: dict[str, bytes] | None = None, **variables: Any) -> dict[str, PlainHost]:
    """A cluster in whose play are these hosts."""
    wanted = DEFAULTS | {"ansible_play_hosts": nodes.split()} | variables
    found: dict[str, PlainHost] = cluster(files=files, **wanted)
    return found


def test_a_change_is_described() -> None:
    host = hosts(rolling_packages=["a", "b"], rolling_tasks="my.yml", rolling_reboot=True)["n1"]
    assert rolling.work(host) == "packages a, b, tasks of /cluster/my.yml, a reboot"
    host.set(__rolling_nodes=["n1", "n2"])
    assert rolling.announcement(host).endswith("a reboot: on n[1-2]")


def found(hosts_of_play: dict[str, PlainHost], **security: list[str]) -> None:
    """The nodes have found these security updates."""
    for name, names in security.items():
        hosts_of_play[name].set(__rolling_updates={"updates": [], "security": names, "lists_days": 0})


@pytest.mark.parametrize("given", ["security", ["security"]])
def test_security_updates_are_those_that_each_node_has_found(given: Any) -> None:
    play = hosts(rolling_packages=given)
    found(play, n1=["munge=0.5.16-1+deb13u1"], n2=[])
    host = play["n1"].set(__rolling_nodes=["n1", "n2"])
    assert rolling.objection(host) == ""
    assert rolling.targets(host) == ["munge=0.5.16-1+deb13u1"]
    assert rolling.targets(play["n2"]) == []
    assert rolling.simulation(host)[-4:] == ["--only-upgrade", "--no-remove", "--", "munge=0.5.16-1+deb13u1"]
    assert rolling.unchanged_nodes(host) == "n2"
    assert rolling.announcement(host) == "security updates: on n[1-2]; none for n2"
    found(play, n2=["munge=0.5.16-1+deb13u1"])
    assert rolling.unchanged_nodes(host) == ""


def test_packages_by_name_are_brought_to_their_newest_version() -> None:
    host = hosts(rolling_packages=["htop", "munge"])["n1"]
    assert rolling.work(host) == "packages htop, munge"
    assert rolling.simulation(host)[:2] == ["apt-get", "--simulate"]
    for command in (rolling.simulation(host), rolling.installation(host)):
        assert " ".join(command).endswith(" --assume-yes install -- htop munge")
    assert rolling.unchanged_nodes(host) is None


def test_a_reboot_is_for_nodes_without_a_security_update_too() -> None:
    play = hosts(rolling_packages="security", rolling_reboot=True)
    found(play, n1=["munge=2"], n2=[])
    assert rolling.unchanged_nodes(play["n1"]) is None


def test_a_new_driver_needs_a_reboot() -> None:
    play = hosts(rolling_packages="security")
    container = ["libnvidia-container1=1.18", "nvidia-container-toolkit=1.18"]
    found(play, n1=container, n2=[])
    assert rolling.driver_objection(play["n1"]) == ""
    found(play, n2=["libnvidia-compute-550=550.163.01-0ubuntu1"])
    objection = rolling.driver_objection(play["n1"])
    assert objection.startswith("n2: security updates of NVIDIA's driver are pending")
    assert objection.endswith("-e rolling_reboot=true")
    assert rolling.driver_objection(play["n1"].set(rolling_reboot="true")) == ""
    assert rolling.driver_objection(hosts()["n1"]) == ""


@pytest.mark.parametrize(("value", "reboots"), [("true", True), ("false", False), (True, True), (False, False)])
def test_a_reboot_can_be_asked_for_on_the_command_line(value: bool | str, reboots: bool) -> None:
    host = hosts(rolling_reboot=value)["n1"]
    assert rolling.reboots(host) == reboots
    assert rolling.objection(host).startswith("Nothing to do: set rolling_tasks") != reboots


def test_a_file_of_tasks_must_be_there(tmp_path: Path) -> None:
    host = hosts(rolling_tasks="my.yml", slurm_cluster_dir=str(tmp_path))["n1"]
    assert rolling.objection(host) == (
        f"rolling_tasks: found 'my.yml', allowed: a file on the control host; {tmp_path}/my.yml is none"
    )
    with pytest.raises(ValueError, match="is missing"):
        rolling.change(host)
    (tmp_path / "my.yml").mkdir()
    assert rolling.objection(host)
    (tmp_path / "my.yml").rmdir()
    (tmp_path / "my.yml").touch()
    assert rolling.objection(host) == ""


def test_another_change_has_another_checksum_and_records_of_earlier_releases_hold() -> None:
    files = {"/cluster/my.yml": b"- ansible.builtin.debug: {msg: mine}\n\n"}
    host = hosts(rolling_packages=["htop"], rolling_tasks="my.yml", files=files)["n1"]
    assert rolling.change(host) == "8bd8366bfcb3b3186a5b980436d191f396ef709ec5ab0cfba66bce390ef73db2"
    assert rolling.change(host.set(rolling_tasks="")) != rolling.change(host.set(rolling_packages=[]))
    assert rolling.change(host.set(rolling_reboot="true")) == rolling.change(host.set(rolling_reboot=True))


def test_a_budget_can_be_for_each_partition() -> None:
    assert rolling.budgets(hosts()["n1"]) == {"*": "10%"}
    assert rolling.budgets(hosts(rolling_budget={"a": 2})["n1"]) == {"a": 2}


def test_nodes_that_serve_the_cluster_are_not_rebooted() -> None:
    host = hosts("n1 n2", slurm_database="n1", slurm_controllers=["n3"], rolling_reboot=True)["n2"]
    assert (rolling.kept_nodes(host), rolling.changed_nodes(host)) == (["n1"], ["n2"])
    host.set(__rolling_nodes=["n2"])
    assert rolling.announcement(host) == "a reboot: on n2; without n1, which this run needs: reboot them by hand"
    assert rolling.changed_nodes(host.set(rolling_reboot=False, rolling_packages=["a"])) == ["n1", "n2"]
    standby = hosts("n1 n2", slurm_database="", slurm_controllers=["n3", "n2"], rolling_reboot=True)["n1"]
    assert rolling.kept_nodes(standby) == ["n2"]


def test_the_window_is_a_reservation_that_a_site_can_change() -> None:
    host = hosts(rolling_window={"StartTime": "now", "Users": ["alice"]})["n1"].set(__rolling_nodes=["n1", "n2"])
    window = rolling.window(host)
    assert window == {
        "Nodes": "n[1-2]",
        "Users": ["alice"],
        "Flags": ["MAINT", "IGNORE_JOBS"],
        "StartTime": "now",
    }


@pytest.mark.parametrize(
    ("conf", "program"),
    [
        ({}, "/usr/local/sbin/slurm-health"),
        ({"HealthCheckProgram": "/opt/check"}, "/opt/check"),
        ({"HealthCheckProgram": None}, ""),
    ],
)
def test_a_site_chooses_the_check_of_health(conf: dict[str, Any], program: str) -> None:
    assert rolling.health_program(hosts(slurm_conf=conf)["n1"]) == program


@pytest.mark.parametrize(("over", "batches", "goes_on"), [(False, 1, True), (True, 1, False), (False, "100", False)])
def test_batches_have_an_end(over: bool, batches: int | str, goes_on: bool) -> None:
    host = hosts()["n1"].set(__rolling_step={"over": over}, __rolling_batches=batches)
    assert rolling.goes_on(host) == goes_on


def test_each_node_of_a_batch_has_its_error() -> None:
    found = hosts("n2 login")
    found["n2"].set(__rolling_error="apt: no space")
    host = found["login"].set(__rolling_step={"ready": ["n1", "n2", "login"]})
    assert rolling.results(host) == {"n1": "it was not reached", "n2": "apt: no space", "login": ""}


JOBS = [{"name": "all", "nodes": "n[1-2]"}, {"name": "other", "nodes": "n[1-2]"}]


def test_each_node_that_is_back_has_one_job_in_its_first_partition() -> None:
    check = rolling.check_jobs(hosts(slurm_partitions=JOBS)["n1"].set(__rolling_resumed={"ready": ["n2", "n1"]}))
    assert [job["name"] for job in check] == ["all/n1", "all/n2"]


@pytest.mark.parametrize(
    ("run", "errors"),
    [
        ({"jobs": [{"message": ""}, {"message": "has failed"}]}, {"n2": "has failed", "n1": "", "n3": ""}),
        ({"msg": "no sbatch"}, dict.fromkeys(["n2", "n1", "n3"], "no sbatch")),
        ({"jobs": []}, dict.fromkeys(["n2", "n1", "n3"], "the job could not be submitted")),
    ],
)
def test_a_node_without_a_good_job_is_not_confirmed(run: dict[str, Any], errors: dict[str, str]) -> None:
    host = hosts()["n1"].set(__rolling_resumed={"ready": ["n2", "n1", "n3"]}, __rolling_jobs=run)
    assert rolling.check_results(host) == errors


def test_nodes_in_no_partition_need_no_check() -> None:
    host = hosts(slurm_partitions=[])["n1"].set(__rolling_resumed={"ready": ["n1"]}, __rolling_jobs={"skipped": True})
    assert rolling.check_jobs(host) == []
    assert rolling.check_results(host) == {"n1": ""}


def test_the_end_knows_the_beginning_from_any_node() -> None:
    found = hosts()
    assert not rolling.begun(found["head"]).found
    found["n2"].set(__rolling_nodes=["n1", "n2"], __rolling_digest="abc")
    assert rolling.begun(found["head"]) == rolling.BegunChange(True, "n[1-2]", "abc")


BATCH: dict[str, Any] = {
    "__rolling_step": {"ready": ["n1", "n2"], "changed_earlier": ["n1"]},
    "__rolling_resumed": {"ready": ["n1", "n2"]},
    "__rolling_nodes": ["n1", "n2"],
}


@pytest.mark.parametrize("value", [True, "true", "yes"])
def test_nodes_whose_job_was_good_are_measured_if_the_site_wants_it(value: bool | str) -> None:
    good = {"jobs": [{"message": ""}, {"message": ""}]}
    host = hosts(rolling_accept=value, slurm_partitions=JOBS)["n2"].set(__rolling_jobs=good, **BATCH)
    assert rolling.measured_nodes(host) == ["n1", "n2"]
    # What was measured of a node before it was changed does not count.
    assert rolling.fresh_nodes(host) == ["n2"]
    assert rolling.changes_here(host)
    bad = {"jobs": [{"message": ""}, {"message": "has failed"}]}
    assert rolling.measured_nodes(host.set(__rolling_jobs=bad)) == ["n1"]
    assert rolling.measured_nodes(host.set(rolling_accept="false")) == []


def test_a_node_that_an_earlier_run_has_changed_is_not_changed_again() -> None:
    assert not rolling.changes_here(hosts()["n1"].set(**BATCH))


def test_a_node_returns_by_its_job_and_by_the_acceptance_tests() -> None:
    lost = {"task": "1/node/n2", "job": 8, "nodes": "n2", "text": "", "why": "job 8 ended as NODE_FAIL (0:0)"}
    measured = {"taken": "n[1-2]", "left": {}, "outputs": [lost]}
    host = hosts(rolling_accept="true", slurm_partitions=JOBS)["n1"]
    host.set(__rolling_jobs={"jobs": [{"message": ""}, {"message": ""}]}, __accept_begun=measured, **BATCH)
    assert rolling.check_results(host) == {"n1": "", "n2": "n2: job 8 ended as NODE_FAIL (0:0)"}
    assert rolling.check_results(host.set(rolling_accept=False)) == {"n1": "", "n2": ""}


def test_the_users_of_the_jobs_that_check_nodes() -> None:
    assert rolling.users(hosts(accept_user="bench")["n1"]) == ["root"]
    assert rolling.users(hosts(accept_user="root", rolling_accept=True)["n1"]) == ["root"]
    assert rolling.users(hosts(accept_user="bench", rolling_accept=True)["n1"]) == ["root", "bench"]


def test_a_run_says_once_what_judges_the_nodes_and_a_wrong_baseline_ends_it() -> None:
    variables: dict[str, Any] = {
        "rolling_reboot": True,
        "rolling_accept": True,
        "slurm_cluster_file": "/cluster/my.cluster.yml",
        "__rolling_nodes": ["n1", "n2"],
    }
    said = "a reboot: on n[1-2]; a node returns when it has passed the acceptance tests of level quick"
    assert rolling.announcement(hosts(**variables)["n1"]) == (
        f"{said}, without /cluster/my.baseline.yml: checks and published figures decide, and other changed nodes, if "
        "there are four or more of a kind"
    )
    entry = b"- {hardware: m, test: stream, nodes: 1, median: 90, spread: 1, floor: 80, unit: GB/s, values: 4, "
    good = {"/cluster/my.baseline.yml": entry + b"measured: 2026-11-28}\n"}
    assert rolling.announcement(hosts(files=good, **variables)["n1"]) == said
    with pytest.raises(ValueError, match=r"^/cluster/my.baseline.yml: "):
        rolling.announcement(hosts(files={"/cluster/my.baseline.yml": b"a: b"}, **variables)["n1"])
