# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which secrets a run changes, and when munge's key can be changed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import munge
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import rotation
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import comparison
from plain_host import PlainHost, cluster

STORE = "/cluster/secrets/x/munge.key"
MARK = "/var/lib/slurm/slurmctld/clustername"
KEY, NEXT = b"k" * 64, b"n" * 64


def digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def run(files: dict[str, bytes] | None = None, rotate: str = "munge", **variables: Any) -> dict[str, PlainHost]:
    """A cluster that serves, whose hosts have the key of the control host."""
    hosts: dict[str, PlainHost] = cluster(
        {STORE: KEY} if files is None else files, munge_key_file=STORE, rotate=rotate, **variables
    )
    for host in hosts.values():
        host.say(files={munge.KEY: digest(KEY), MARK: digest(b"x")})
    hosts["head"].say(clusters={"found": [], "daemons": ["slurmctld"]})
    return hosts


@pytest.mark.parametrize(
    ("rotate", "wanted"),
    [("munge", ["munge"]), ("backup, jwt,munge", ["munge", "jwt", "backup"]), ("jwt,jwt,", ["jwt"])],
)
def test_secrets_are_changed_in_one_order(rotate: str, wanted: list[str]) -> None:
    head = run(rotate=rotate)["head"]
    assert (rotation.wanted(head), rotation.errors(head)) == (wanted, [])


def test_an_unknown_secret_is_named_with_the_nearest_one() -> None:
    (error,) = rotation.errors(run(rotate="munge,databse")["head"])
    assert error == (
        "rotate: found 'databse', allowed: a list of munge, jwt, database, registry, backup, with commas; "
        "did you mean 'database'?"
    )


@pytest.mark.parametrize("rotate", ["", " , "])
def test_a_run_without_a_secret_is_refused(rotate: str) -> None:
    (error,) = rotation.errors(run(rotate=rotate)["head"])
    assert error.startswith("rotate: missing, allowed: a list of munge")


@pytest.mark.parametrize(
    ("files", "rotate", "begun"),
    [
        ({STORE: KEY, f"{STORE}.next": NEXT}, "jwt,munge", True),
        ({STORE: KEY, f"{STORE}.next": NEXT}, "jwt", False),
        ({STORE: KEY}, "munge", False),
    ],
)
def test_a_run_waits_for_a_switch_that_an_earlier_one_may_have_left(
    files: dict[str, bytes], rotate: str, begun: bool
) -> None:
    assert rotation.has_begun(run(files, rotate)["head"]) is begun


def test_secrets_of_a_command_are_not_made_in_files() -> None:
    command = ["pass", "show", "{secret}"]
    (error,) = rotation.errors(run(slurm_secrets_command=command)["head"])
    assert error.startswith("rotate: slurm_secrets_command prints the secrets")
    assert rotation.errors(run(rotate="registry", slurm_secrets_command=command)["head"]) == []


def test_a_whole_cluster_has_no_objection() -> None:
    head = run()["head"]
    assert rotation.munge_objections(head) == []
    assert "4 hosts get another key" in rotation.munge_plan(head)[0]


def test_other_secrets_need_nothing_of_that() -> None:
    head = run(files={}, rotate="jwt", ansible_play_hosts=["head"])["head"]
    assert (rotation.munge_objections(head), rotation.munge_plan(head)) == ([], [])


def objection(hosts: dict[str, PlainHost]) -> str:
    (found,) = rotation.munge_objections(hosts["head"])
    return found


def test_a_host_that_is_away_is_named() -> None:
    assert "munge: n[1-2] cannot take part" in objection(run(ansible_play_hosts=["head", "login"]))


def test_a_host_with_another_key_is_named() -> None:
    hosts = run()
    hosts["n2"].say(files={munge.KEY: digest(b"other")})
    assert "munge: n2 has another key than head" in objection(hosts)


def test_the_store_must_have_the_key_of_the_cluster() -> None:
    assert "is not the munge key of the running cluster on head" in objection(run({STORE: b"other" * 10}))
    assert "munge.key is missing" in objection(run({}))


@pytest.mark.parametrize(
    ("key", "words"), [(b"short", "found 5 bytes"), (b"l" * 65537, "found 65537 bytes"), (KEY, "found the present key")]
)
def test_an_own_key_is_checked(key: bytes, words: str) -> None:
    assert words in objection(run({STORE: KEY, f"{STORE}.next": key}))


def test_slurmctld_must_run_on_the_primary() -> None:
    hosts = run()
    hosts["head"].say(clusters={"found": [], "daemons": []})
    assert "slurmctld does not run on head" in objection(hosts)
    hosts = run(slurm_controllers=["head", "login"])
    hosts["login"].say(clusters={"found": [], "daemons": ["slurmctld"]})
    for host in hosts.values():
        host.set(__slurm_run={"serving_controller": "login"})
    assert "login serves, and not head" in objection(hosts)


def test_a_switch_that_has_taken_place_is_completed_also_without_some_hosts() -> None:
    hosts = run({STORE: KEY, f"{STORE}.next": NEXT}, ansible_play_hosts=["head"])
    hosts["head"].say(files={munge.KEY: digest(NEXT)})
    assert rotation.has_switched(hosts["head"])
    assert rotation.munge_objections(hosts["head"]) == []
    assert rotation.strays(hosts["head"]) == []
    assert "completes the switch" in rotation.munge_plan(hosts["head"])[0]


def test_a_host_that_is_alone_with_the_next_key_gets_the_present_one_back() -> None:
    hosts = run({STORE: KEY, f"{STORE}.next": NEXT})
    hosts["n1"].say(files={munge.KEY: digest(NEXT)})
    assert rotation.strays(hosts["head"]) == ["n1"]
    assert rotation.munge_objections(hosts["head"]) == []


def test_hosts_are_armed_by_what_they_can_do() -> None:
    hosts = run(slurm_controllers=["head", "login"])
    assert rotation.arming(hosts["n1"], 100.0) == [
        *("python3", rotation.PROGRAM, "arm", "--at=100.0", "--gap=2.0"),
        *("--controller=head:6817", "--controller=login:6817", "--proves"),
    ]
    assert "--is-controller" in rotation.arming(hosts["head"], 0)
    standbys = [name for name, host in hosts.items() if "--is-standby" in rotation.arming(host, 0)]
    assert standbys == ["login"]


def told(hosts: dict[str, PlainHost], **states: dict[str, Any]) -> None:
    for name, state in states.items():
        hosts[name].set(__rotation_state={"stdout": json.dumps(state)})


def test_hosts_without_the_staged_key_stop_the_run() -> None:
    hosts = run({STORE: KEY, f"{STORE}.next": NEXT})
    ready = {"next": digest(NEXT), "armed": False}
    told(hosts, head=ready, login=ready, n1=ready, n2=ready)
    assert rotation.staging_errors(hosts["head"]) == []
    told(hosts, n1={**ready, "armed": True}, n2={**ready, "next": ""})
    assert len(rotation.staging_errors(hosts["head"])) == 2


def test_the_serving_controller_decides() -> None:
    hosts = run({STORE: KEY, f"{STORE}.next": NEXT})
    told(hosts, head={"present": digest(NEXT)}, n1={"present": digest(KEY), "error": "munged failed"})
    assert rotation.switched(hosts["head"])
    assert rotation.failures(hosts["head"]) == ["n1: munged failed"]
    told(hosts, head={"present": digest(KEY)})
    assert not rotation.switched(hosts["head"])
    assert "all hosts have the previous key. n1: munged failed" in rotation.munge_failure(hosts["head"])


def test_site_refuses_another_key_than_a_running_cluster_has() -> None:
    assert munge.switch_objection(run()["n1"]) == ""
    hosts = run({STORE: b"other" * 10})
    assert "is not the munge key of the running cluster" in munge.switch_objection(hosts["n1"])
    hosts["head"].say(files={munge.KEY: digest(KEY)})
    assert munge.switch_objection(hosts["n1"]) == ""  # it has served no cluster yet
    assert "the cluster gets another munge key" in munge.switch_objection(run({f"{STORE}.next": NEXT})["n1"])


def test_the_comparison_refuses_it_except_in_the_run_that_changes_the_key() -> None:
    hosts = run({STORE: b"other" * 10}, base_manage_hosts_file=True)
    hosts["head"].say(clusters={"found": [], "daemons": []})
    for host in hosts.values():
        host["__slurm_facts"].update(objections=[], stages=[])
    assert "is not the munge key" in comparison.compare(hosts["head"]).stop
    for host in hosts.values():
        host.set(__slurm_rotates=True)
    assert comparison.compare(hosts["head"]).stop == ""
