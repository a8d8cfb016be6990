# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of slurm_people that need no host; tests/integration/people shows how it changes one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.accounts import PeopleRecord
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.plan import PeoplePlan, Person
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_people
from ansible_collections.gpucluster.slurm.plugins.modules.slurm_people import PeopleError, check, home_owners, outcome
from programs import StandIn

TEXTS = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nalice:x:5001:5001::/home/alice:/bin/bash\n",
    "shadow": "root:*:20000::::::\nalice:$6$secret:::::::\n",
    "group": "root:x:0:\npeople:x:967:alice,nobody-knows-her\nalice:x:5001:\n",
    "gshadow": "root:*::\npeople:!::alice,nobody-knows-her\nalice:!::\n",
}


def test_errors_in_new_files_are_found_by_pwck_and_grpck() -> None:
    check(TEXTS, TEXTS)
    wrong = {**TEXTS, "shadow": TEXTS["shadow"].replace("alice:", "alice::"), "group": TEXTS["group"] + "root:x:7:\n"}
    with pytest.raises(PeopleError) as error:
        check(TEXTS, wrong)
    assert "the new files would have errors: " in str(error.value)
    assert "duplicate group entry" in str(error.value)
    assert "secret" not in str(error.value)
    check(wrong, wrong)


def test_the_owners_of_homes_that_exist(tmp_path: Path) -> None:
    assert home_owners([str(tmp_path), str(tmp_path / "missing")]) == ({str(tmp_path): os.getuid()}, [])
    assert home_owners([]) == ({}, [])


def test_a_server_of_homes_that_does_not_answer_is_a_warning(stand_in: StandIn) -> None:
    stand_in("xargs", "exit 137")
    assert home_owners(["/home/alice"]) == (
        {},
        ["the owners of homes were not found within 20 s, and are not compared with the plan"],
    )


def test_users_who_go_are_named() -> None:
    gone = Person("alice", 5001, 5001, (), "", "/home/alice", "/bin/bash", (), "absent", "stay")
    assert outcome(PeoplePlan((gone,), {}), TEXTS, PeopleRecord()) == [
        "user alice is removed, and the home /home/alice stays"
    ]
    left = PeopleRecord(users={"alice": 5001, "bob": 5002})
    assert outcome(PeoplePlan((), {}), TEXTS, left) == ["user alice is not in the plan and keeps the account"]


@pytest.mark.parametrize("previous", [None, "# previous\n"])
def test_a_drop_in_that_sshd_refuses_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, previous: str | None
) -> None:
    path = tmp_path / "people.conf"
    if previous is not None:
        path.write_text(previous)
    seen = []

    def refuse(*options: str) -> Answer:
        seen.append((options, path.read_text()))
        return Answer(255, "", "line 3: no")

    monkeypatch.setattr(slurm_people, "sshd", refuse)
    with pytest.raises(PeopleError, match="sshd -t: line 3: no"):
        slurm_people.set_up_sshd(PeoplePlan((), {}), File(str(path), b"new\n"))
    assert seen == [(("-t",), "new\n")]
    assert (path.read_text() if path.exists() else None) == previous


def test_a_drop_in_without_effect_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = Person("alice", 5001, 5001, (), "", "/home/alice", "/bin/bash", (), "present", "stay")
    used = "port 22\nauthorizedkeysfile .ssh/authorized_keys\n"
    monkeypatch.setattr(slurm_people, "sshd", lambda *_options: Answer(0, used, ""))
    path = tmp_path / "people.conf"
    with pytest.raises(PeopleError, match="has no effect"):
        slurm_people.set_up_sshd(PeoplePlan((alice,), {}), File(str(path), b"new\n"))
    assert not path.exists()
