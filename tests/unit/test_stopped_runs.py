# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml on stand-ins for hosts: runs that stop, and the tasks that they have done until then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import KEPT_CONF
from standing_hosts import Hosts, honest

# Scenario guide installs a cluster of three hosts with the newest ansible-core.
pytestmark = pytest.mark.once

LOOK = Path(__file__).parents[2] / "playbooks/stages/look.yml"


def cluster(**slurm_conf: Any) -> dict[str, Any]:
    """A cluster file with two compute nodes of one kind, and another one."""
    machine = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "x",
        "controllers": "head",
        "hardware": {"a": machine},
        "nodes": [{"hosts": "n[1-2]", "hardware": "a"}, {"hosts": "n3", "hardware": "a", "Weight": 9}],
        "partitions": [{"name": "p", "nodes": "ALL", "default": True}],
        "slurm_conf": slurm_conf,
    }


def standing(names: list[str], **facts: Any) -> dict[str, Any]:
    """Honest hosts with other facts; they have the GPUs that the cluster file does not mention."""
    hosts = {name: honest(name) for name in names}
    for answers in hosts.values():
        answers["slurm_host_facts"]["ansible_facts"]["slurm_host"] |= facts
    return hosts


USER_DATA = {"writes_hosts": "/var/lib/cloud/instance/cloud-config.txt", "own_name": False}
SMD = {"file": "/nonexistent/slurm-smd_25.11.2-1_amd64.deb"}
UNSUITABLE: dict[str, tuple[dict[str, Any], Any, str]] = {
    "another distribution": (
        {"distribution": "rocky 9.5"},
        "distribution",
        "this collection does not know the distribution rocky 9.5; it knows debian 12, debian 13, ubuntu 22.04, ",
    ),
    "an old release": (
        {"distribution": "ubuntu 22.04", "slurm_version": "21.08.5-2ubuntu1"},
        "distribution",
        "Slurm 21.08.5-2ubuntu1 is too old: this collection knows the releases 22.05, 23.02, 23.11, 24.05, 24.11, "
        "25.05, 25.11, 26.05; install SchedMD's packages (slurm_packages, the key packages of the cluster file)",
    ),
    "a release to come": (
        {"slurm_version": "27.05.0", "packages": {"slurm-smd": "27.05.0-1"}},
        "schedmd",
        "Slurm 27.05.0 is unknown: this collection knows the releases 22.05, 23.02, 23.11, 24.05, 24.11, 25.05, "
        "25.11, 26.05; give packages of one of these",
    ),
    "no packages": (
        {"slurm_version": ""},
        "schedmd",
        "apt has no package slurm-smd; add a repository that has it (slurm_packages: repository and key)",
    ),
    "no packages of Ubuntu": (
        {"slurm_version": "", "distribution": "ubuntu 24.04"},
        "distribution",
        "apt has no package slurm-wlm-basic-plugins; add a repository that has it (Ubuntu's component universe has it)",
    ),
    "packages of the distribution": (
        {"packages": {"slurm-wlm-basic-plugins": "24.11.5-4"}, "slurm_version": "24.11.5"},
        "schedmd",
        "the host has Slurm 24.11.5 with packages of the distribution, and slurm_packages asks for those of SchedMD; "
        "to change it, drain the host, wait for the end of its jobs, run apt-get remove --allow-change-held-packages "
        "'?installed?source-package(slurm-wlm)' there, and run site.yml again",
    ),
    "packages of SchedMD": (
        {"packages": {"slurm-smd": "25.11.2-1"}, "slurm_version": "25.11.2"},
        "distribution",
        "the host has Slurm 25.11.2 with packages of SchedMD, and slurm_packages asks for those of the distribution; ",
    ),
    "another version than the files": (
        {"packages": {"slurm-smd": "25.05.1-1"}, "slurm_version": "25.05.1"},
        {"files": [SMD]},
        "the host has Slurm 25.05.1-1, and the files of slurm_packages are 25.11.2-1; site.yml installs Slurm and "
        "never changes its version, so give the files of 25.05.1-1, or upgrade all hosts with "
        "the playbook gpucluster.slurm.upgrade",
    ),
    "user-data by which cloud-init writes /etc/hosts": (
        {"cloud_init": USER_DATA, "packages": {"cloud-init": "25.1.4-1"}},
        "distribution",
        "manage_etc_hosts is set in /var/lib/cloud/instance/cloud-config.txt, the configuration that the cloud or its "
        "user has given to this instance. Remove it there, or switch cloud-init off after it has set up the host "
        "(touch /etc/cloud/cloud-init.disabled)",
    ),
}
REPOSITORY = {
    "repository": "https://x.example.org noble main",
    "key": {"url": "https://x.example.org/key.asc", "sha256": "0" * 64},
}
SUITABLE: dict[str, tuple[dict[str, Any], Any]] = {
    "files": ({"slurm_version": ""}, {"files": [SMD]}),
    "the same files": ({"packages": {"slurm-smd": "25.11.2-1"}, "slurm_version": "25.11.2"}, {"files": [SMD]}),
    "a repository to add": ({"slurm_version": ""}, REPOSITORY),
    # The refusal of Ubuntu's own Slurm, "an old release", names these.
    "Ubuntu 22.04 with files": ({"distribution": "ubuntu 22.04", "slurm_version": ""}, {"files": [SMD]}),
    "Ubuntu 22.04 with a repository to add": ({"distribution": "ubuntu 22.04", "slurm_version": ""}, REPOSITORY),
    "Ubuntu 22.04 with a repository of its own": (
        {"distribution": "ubuntu 22.04", "slurm_version": "25.11.2-1"},
        "schedmd",
    ),
    "Ubuntu 22.04 with SchedMD's packages": (
        {"distribution": "ubuntu 22.04", "packages": {"slurm-smd": "25.11.2-1"}, "slurm_version": "25.11.2"},
        "schedmd",
    ),
    "cloud-init was removed": ({"cloud_init": USER_DATA}, "distribution"),
    "closed ports": ({"ufw": ["22"]}, "distribution"),
    "open ports": ({"ufw": ["any"]}, "distribution"),
    "other programs than the package says": (
        {
            "packages": {"slurm-wlm-basic-plugins": "21.08.5-1"},
            "slurm_version": "24.11.5",
            "distribution": "ubuntu 24.04",
        },
        "distribution",
    ),
}


def test_unsuitable_hosts_are_named_with_the_way_out_and_left_out(tmp_path: Path) -> None:
    """Each kind of host in one run; the other hosts go on."""
    expected = {f"wrong{number}": words for number, (_facts, _packages, words) in enumerate(UNSUITABLE.values())}
    kinds = {f"wrong{number}": kind[:2] for number, kind in enumerate(UNSUITABLE.values())}
    kinds |= {f"right{number}": kind for number, kind in enumerate(SUITABLE.values())}
    # Their releases differ, which would be wrong in a cluster, and is the subject of another test.
    unknown = {"installed": "", "candidate": "", "state_protocol": 0}
    hosts = standing(["head"], slurm=unknown)
    for name, (facts, _packages) in kinds.items():
        hosts |= standing([name], slurm=unknown, **facts)
    model = cluster()
    model["nodes"] = [{"hosts": ",".join(kinds), "hardware": "a"}]
    there = Hosts(tmp_path / "site", model, hosts)
    (there.directory / "host_vars").mkdir()
    for name, (_facts, packages) in kinds.items():
        (there.directory / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump({"slurm_packages": packages}))
    run = there.run(str(LOOK))
    said = {
        match[1]: " ".join(match[2].replace("''", "'").split())
        for match in re.finditer(r"^fatal: \[(\S+)\]: FAILED! =>(.*?)(?=^fatal|^\S|\Z)", run.stdout, re.M | re.S)
    }
    assert said.keys() == expected.keys(), run.stdout
    for name, words in expected.items():
        assert words in said[name]
    closed = f"right{[*SUITABLE].index('closed ports')}"
    assert re.findall(r"(\w+): ufw allow", run.stdout) == [closed]
    assert f"{closed}: ufw allow proto tcp from NETWORK to any port 6818,60001:63000" in run.stdout


def slurm(installed: str = "", candidate: str = "") -> dict[str, Any]:
    """The facts of a host with Slurm, or of one that would get it."""
    return {
        "slurm": {"installed": installed, "candidate": candidate, "state_protocol": 0},
        "slurm_version": installed or candidate,
        "packages": {"slurm-wlm-basic-plugins": f"{installed}-1"} if installed else {},
    }


@pytest.mark.parametrize(
    ("made_anew", "check"), [("head", False), ("db", True), pytest.param("n3", False, marks=pytest.mark.rare)]
)
def test_releases_do_not_mix(tmp_path: Path, made_anew: str, check: bool) -> None:
    """A host that was made anew, and to which apt offers Slurm 24.11, in a cluster with 26.05."""
    names = ["head", "head2", "db", "n1", "n2", "n3"]
    hosts = standing(names, **slurm("26.05.5")) | standing([made_anew], **slurm(candidate="24.11.5-4"))
    # The second controller serves while the first one is lost.
    controllers = "head,head2" if made_anew == "head" else "head"
    model = cluster(StateSaveLocation="/shared") | {"controllers": controllers, "database": "db"}
    there = Hosts(tmp_path / "site", model, hosts)
    run = there.run("gpucluster.slurm.site", "--skip-tags", "mig,validate", *(["--check"] if check else []))
    assert run.returncode != 0
    said = " ".join(run.stdout.split())
    assert "would install Slurm 24.11.5-4, and the cluster has Slurm 26.05 (26.05.5 on head" in said
    assert '"update_lists": true' in there.asked(made_anew, "slurm_host_facts"), "old lists refuse no host"
    changed = [name for name in names if there.asked(name, "slurm_packages") or there.asked(name, "slurm_config")]
    assert made_anew not in changed
    assert bool(changed) == (made_anew == "n3"), "without its controllers and its database, no host is changed"


def test_a_host_of_another_cluster_stops_the_run_for_all_hosts(tmp_path: Path) -> None:
    """The nodes without Slurm would get the wrong munge key. A host that is not reached is not judged."""
    hosts = standing(["head", "n1", "n2", "n3"])
    daemon = {"name": "y", "file": "/run/slurm/conf/slurm.conf", "by": "slurmd"}
    for name in ("n1", "n3"):
        hosts[name]["slurm_host_facts"]["ansible_facts"]["slurm_host"]["clusters"]["found"] = [daemon]
    hosts["n3"]["slurm_host_facts"] = {"unreachable": True, "msg": "no route to host"}
    there = Hosts(tmp_path / "site", cluster(), hosts)
    run = there.run("gpucluster.slurm.site")
    assert run.returncode != 0
    assert "the cluster file is that of x (slurm_cluster_name)" in run.stdout
    assert "n1: cluster y: slurmd runs with /run/slurm/conf/slurm.conf" in run.stdout
    assert "gpucluster.slurm.adopt" in run.stdout
    for name in ("head", "n2", "n3"):
        assert not there.asked(name, "slurm_packages") + there.asked(name, "slurm_run")


@pytest.mark.parametrize("playbook", ["site", "warm_up", "restore"])
def test_hosts_that_a_newer_collection_has_changed_stop_the_run(tmp_path: Path, playbook: str) -> None:
    """Nothing is touched, also not on the hosts that the newer collection has not reached."""
    hosts = standing(["head", "n1", "n2", "n3"])
    for name in ("head", "n1"):
        hosts[name]["slurm_host_facts"]["ansible_facts"]["slurm_host"]["state_version"] = 1000
    there = Hosts(tmp_path / "site", cluster(), hosts)
    run = there.run(f"gpucluster.slurm.{playbook}")
    assert run.returncode != 0
    assert ": found 1000, allowed: up to 1" in run.stdout
    for name in hosts:
        assert not there.asked(name, "slurm_packages") + there.asked(name, "slurm_run")


def test_a_missing_program_stops_the_run_before_any_change(tmp_path: Path) -> None:
    hosts = standing(["head", "n1", "n2", "n3"])
    for name in ("n1", "n2"):
        hosts[name]["slurm_host_facts"]["ansible_facts"]["slurm_host"]["programs"] = {"/nonexistent": "is missing"}
    there = Hosts(tmp_path / "site", cluster(Prolog="/nonexistent"), hosts)
    run = there.run("gpucluster.slurm.site", "--skip-tags", "mig")
    assert "slurm.conf Prolog: /nonexistent is missing on n[1-2]" in run.stdout
    assert run.returncode != 0
    assert "/nonexistent" in there.asked("n3", "slurm_host_facts")
    assert "/nonexistent" not in there.asked("head", "slurm_host_facts")
    assert not there.asked("head", "slurm_packages")


def test_a_change_is_started_on_one_node_of_each_kind(tmp_path: Path) -> None:
    """The slurmd of n1 does not start: the controller undoes the change, and n2 was never asked."""
    hosts = standing(["head", "n1", "n2", "n3"], packages={"slurmctld": "24.11.5-4", "slurmd": "24.11.5-4"})
    hosts["head"]["slurm_config"] |= {"unproven": ["n[1-2]", "n3"]}
    hosts["n1"]["slurm_service"] = {"failed": True, "msg": "service slurmd: bind: Address already in use"}
    there = Hosts(tmp_path / "site", cluster(), hosts)
    run = there.run("gpucluster.slurm.site", "--tags", "controller,compute", "--skip-tags", "mig")
    assert (
        "The change is undone, since slurmd does not start with it. Slurmd was restarted on no other node than n[1,3]."
        in run.stdout
    )
    assert "n1: service slurmd: bind: Address already in use" in run.stdout
    assert run.returncode != 0
    assert '"state": "former"' in there.asked("head", "slurm_config")
    assert "slurmd.service" in there.asked("n3", "slurm_service")
    assert not there.asked("n2", "slurm_service")


def test_after_a_good_start_the_other_nodes_follow_and_drained_nodes_are_named(tmp_path: Path) -> None:
    hosts = standing(["head", "n1", "n2", "n3"], packages={"slurmctld": "24.11.5-4", "slurmd": "24.11.5-4"})
    hosts["head"]["slurm_config"] |= {"unproven": ["n[1-2]", "n3"]}
    states = ["n1 drained Prolog error", "n1 drained Prolog error", "n2 draining Prolog error", "n3 drained bad DIMM"]
    hosts["n1"]["command"] |= {"stdout": "\n".join(states)}  # it answers for the host that it delegates to
    there = Hosts(tmp_path / "site", cluster(), hosts)
    run = there.run("gpucluster.slurm.site", "--tags", "controller,compute", "--skip-tags", "mig")
    assert run.returncode == 0, run.stdout
    assert '"state": "proven"' in there.asked("head", "slurm_config")
    assert "slurmd.service" in there.asked("n2", "slurm_service")
    last = run.stdout.rpartition("PLAY [Compute nodes]")[2]
    assert last.count("Drained, without new jobs until they are resumed: ") == 1
    assert "n3 (bad DIMM); n[1-2] (Prolog error)" in last


def test_a_host_with_another_clock_is_refused(tmp_path: Path) -> None:
    """The control host's clock may be wrong itself: the hosts are compared with the controller."""
    hosts = standing(["head", "n1", "n2", "n3"])
    for name, seconds in {"head": 500, "n1": 510, "n2": 620, "n3": 100}.items():
        hosts[name]["slurm_host_facts"]["time"] += seconds
    run = Hosts(tmp_path / "x", cluster(), hosts).run(str(LOOK))
    assert run.returncode == 2, run.stdout + run.stderr
    said = " ".join(run.stdout.split())
    refused = re.findall(r"\[(\w+)\]: FAILED! .*?the clock is (\d+) s (ahead of|behind) that of (\w+), allowed", said)
    assert sorted((name, how, of) for name, _seconds, how, of in refused) == [
        ("n2", "ahead of", "head"),
        ("n3", "behind", "head"),
    ]


def test_a_run_that_was_only_refused_releases_the_run_lock(tmp_path: Path) -> None:
    """Otherwise a run from another control host, or another container of AWX, would believe that it goes on."""
    hosts = standing(["head", "n1", "n2", "n3"], files={KEPT_CONF: "0" * 64})
    hosts["head"]["slurm_config"] = {"failed": True, "msg": "jobs would end"}
    there = Hosts(tmp_path / "site", cluster(), hosts)
    run = there.run("gpucluster.slurm.site", "--skip-tags", "mig")
    assert run.returncode != 0
    assert not any(there.asked(name, "slurm_packages") for name in hosts), run.stdout
    assert any('"state": "ended"' in there.asked(name, "slurm_run") for name in hosts), run.stdout


CHECKS = {
    "plan": 2,
    "registration": 1,
    "rotation_plan": 1,
    "upgrade_plan": 3,
    "restore": 2,
}
"""Stages between the run lock and the first change, with the number of plays that refuse."""


@pytest.mark.parametrize("stage", CHECKS)
def test_each_check_below_the_run_lock_releases_it(stage: str) -> None:
    plays = yaml.safe_load((LOOK.parent / f"{stage}.yml").read_text())
    releases = [
        role
        for play in plays
        for task in play.get("tasks", ())
        for last in task.get("always", ())
        if (role := last["ansible.builtin.import_role"]["tasks_from"]) == "release_after_refusal"
    ]
    assert len(releases) == CHECKS[stage]
