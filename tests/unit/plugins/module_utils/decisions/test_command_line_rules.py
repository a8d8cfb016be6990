# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What --limit and --tags name must be there: Ansible ignores the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import command_line
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preflight
from plain_host import GROUPS, cluster

PLAYBOOKS = Path(__file__).parents[5] / "playbooks"


def errors(**variables: Any) -> list[str]:
    """The errors in the options of a run."""
    return [*command_line.option_errors(cluster(**variables)["head"])]


@pytest.mark.parametrize(
    "limit",
    [
        *("", "head", "head,n1", "head:n1", "slurm_compute", "slurm_compute[0:1]", "slurm_compute[-1]", "n*", "~n[12]"),
        *("all", "all:!n1", "slurm_compute:&n1", "!n1,head", "@site.retry", "localhost", " head , n2 "),
    ],
)
def test_what_the_inventory_has(limit: str) -> None:
    assert errors(ansible_limit=limit) == []
    assert errors() == []


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("haed", "--limit: found 'haed', allowed: hosts and groups of the inventory; did you mean 'head'?"),
        (
            "head,n[1-2]",
            "--limit: found 'n[1-2]', allowed: hosts and groups of the inventory; Ansible does not know Slurm's "
            "hostlists, write n1,n2",
        ),
        ("all:!gpu7", "--limit: found 'gpu7', allowed: hosts and groups of the inventory"),
        ("head,~x.*", "--limit: found '~x.*', allowed: hosts and groups of the inventory"),
    ],
)
def test_what_it_has_not(limit: str, message: str) -> None:
    assert errors(ansible_limit=limit) == [message]
    ansible = {"full": "2.21.0", "major": 2, "minor": 21, "revision": 0}
    assert message in preflight.objections(cluster(ansible_limit=limit, ansible_version=ansible)["head"])


@pytest.mark.parametrize(
    ("playbook", "hosts", "left_out"),
    [
        ("doctor", ["n1"], "head"),
        ("doctor", ["n1", "head"], ""),
        ("validate", ["n1", "head"], "login"),
        ("warm_up", ["n1"], "login"),
        ("validate", ["login"], ""),
        ("backup", ["n1"], "head"),
        ("site", ["n1"], ""),
        ("rolling", ["n1"], ""),
    ],
)
def test_a_limit_without_the_hosts_of_a_playbook(playbook: str, hosts: list[str], left_out: str) -> None:
    """Otherwise the playbook would do nothing and end well."""
    host = cluster(ansible_limit=",".join(hosts), ansible_play_hosts_all=hosts)["n1"]
    found = command_line.limit_error(host, playbook)
    assert found == (
        left_out
        and f"--limit: leaves out {left_out}, and {playbook}.yml would do nothing without it. Name it as well: "
        f"--limit '{','.join(hosts)},{left_out}'"
    )
    host.called = [f"gpucluster.slurm.{playbook}"]
    assert [*command_line.option_errors(host)] == [*filter(None, [found])]
    host.called = [str(PLAYBOOKS / f"{playbook}.yml")]
    assert [*command_line.option_errors(host)] == [*filter(None, [found])]


def test_a_playbook_that_reads_the_whole_inventory() -> None:
    for playbook in ("adopt", "new"):
        (limit,) = command_line.errors(cluster(ansible_limit="n1")["n1"], playbook)
        assert limit.startswith(f"--limit: {playbook}.yml reads all hosts of the inventory: leave this option out")


def test_options_with_which_nobody_would_be_asked() -> None:
    assert command_line.errors(cluster()["head"], "doctor") == []
    (limit,) = command_line.errors(cluster(ansible_limit="n1", ansible_play_hosts_all=["n1"])["n1"], "doctor")
    assert limit.startswith("--limit: leaves out head, and doctor.yml would do nothing")
    (wrong,) = command_line.errors(cluster(ansible_limit="head,n7")["head"], "doctor")
    assert wrong.startswith("--limit: found 'n7', allowed: hosts and groups of the inventory")
    (group,) = command_line.errors(cluster(groups={**GROUPS, "slurm_controller": []})["head"], "doctor")
    assert group.startswith("The inventory has no host in the group slurm_controller")


def tags_of(playbook: str, **variables: Any) -> list[str]:
    """The errors in the options of a run of a playbook."""
    host = cluster(**variables)["head"]
    host.called = [str(PLAYBOOKS / f"{playbook}.yml")]
    return [*command_line.option_errors(host)]


def test_tags() -> None:
    assert tags_of("site", ansible_run_tags=["compute", "all"], ansible_skip_tags=["validate"]) == []
    (error,) = tags_of("site", ansible_run_tags=["compute", "contrller"])
    assert error.startswith("--tags: found 'contrller', allowed: access, backup, ")
    assert error.endswith("; did you mean 'controller'?")
    (error,) = tags_of("site", ansible_skip_tags=["nosuch"])
    assert error.startswith("--skip-tags: found 'nosuch', allowed: ")
    host = cluster(ansible_run_tags=["mine"])["head"]
    host.called = ["/srv/site.yml"]
    assert [*command_line.option_errors(host)] == [], "a play of the site can have it"


@pytest.mark.parametrize("playbook", sorted(path.stem for path in PLAYBOOKS.glob("*.yml")))
def test_tags_of_each_playbook(playbook: str) -> None:
    """A stage of site.yml in the options of another playbook would skip its plays, and the run would end well."""
    assert tags_of(playbook, ansible_run_tags=["all"], ansible_skip_tags=["validate"]) == []
    found = tags_of(playbook, ansible_run_tags=["compute"])
    whole = f"--tags: found compute, but {playbook}.yml runs as a whole: leave this option out"
    expected = {"site": [], "validate": ["--tags: found 'compute', allowed: backup, preflight, validate"]}
    assert found == expected.get(playbook, [whole])


def test_every_playbook_reads_its_options_whatever_the_tags() -> None:
    for path in PLAYBOOKS.glob("*.yml"):
        plays = yaml.safe_load(path.read_text())
        checks = [
            play
            for play in plays
            if play.get("ansible.builtin.import_playbook") in ("stages/preflight.yml", "stages/options.yml")
        ]
        assert [*checks[0]["tags"]][-1] == "always", path
        assert checks[0].get("vars", {}).get("__slurm_playbook", path.stem) == path.stem


def test_the_tags_are_those_of_the_plays() -> None:
    plays = [play for path in PLAYBOOKS.rglob("*.yml") for play in yaml.safe_load(path.read_text())]
    tags = {tag for play in plays for tag in play.get("tags", [])}
    assert tags - {*command_line.OF_ANSIBLE} == {*command_line.TAGS}
