# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the modules for accounting apply a policy: the number of commands, and errors for values that Slurm refuses."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.apply import apply_policy
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.differences import in_use, kept_accounts
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.entities import Entity, JobAssociation, State
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.other_clusters import OtherClusters
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import PolicyError
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.sacctmgr import AccountingError


class Database:
    """A stand-in for sacctmgr that takes what is loaded, without limits, and nothing else."""

    cluster = "lab"

    def __init__(self, takes: bool = True, running: list[JobAssociation] | None = None) -> None:
        self.takes = takes
        self.running = running or []
        self.entities: dict[Entity, dict[str, str]] = {}
        self.calls: list[str] = []
        self.dismissed: list[str] = []

    def state(self) -> State:
        """The content of the database."""
        self.calls.append("state")
        return State({**self.entities}, ["lab"], ["cpu"])

    def coordinators(self, users: Collection[str]) -> list[Entity]:
        """Each user who is asked for coordinates an account."""
        return [Entity("coordinator", user, "a0") for user in sorted(users) if user not in self.dismissed]

    def jobs(self) -> list[JobAssociation]:
        """The running jobs."""
        self.calls.append("jobs")
        return self.running

    def others(self, *_about: Any) -> OtherClusters:
        """The database has no other cluster."""
        return OtherClusters([])

    def run(self, lines: list[str], load: bool) -> tuple[bool, str]:
        """Load the accounts of a file, unless `takes` is false; every other command fails with an error."""
        self.calls.append("load" if load else "commands")
        if lines[0].startswith("delete coordinator"):
            self.dismissed.append(lines[0].split("names=")[1].split()[0])
            return False, ""
        if not self.takes or not load:
            return True, f"{lines[-1]}: no"
        account = ""
        for line in lines:
            kind, name = line.replace("'", "").split(":")[0].split(" - ")
            account = name if kind == "Parent" else account
            if kind == "Account":
                self.entities[Entity("account", name)] = {"Parent": account}
            elif kind == "User":
                self.entities[Entity("user", name)] = {"DefaultAccount": account}
                self.entities[Entity("association", name, account)] = {}
        return False, ""


def apply(database: Any, policy: dict[str, Any], check: bool = False, **options: Any) -> Any:
    """The result that a module would return."""
    module: Any = SimpleNamespace(check_mode=check)
    return apply_policy(module, database, policy, **options)


def policy_of(users: int) -> dict[str, Any]:
    """A policy with so many users, ten in an account."""
    names = [f"u{i}" for i in range(users)]
    accounts = [f"a{i}" for i in range(users // 10)]
    own = [{"name": name, "DefaultAccount": accounts[i // 10]} for i, name in enumerate(names)]
    return {"accounts": accounts, "users": own}


@pytest.mark.parametrize("users", [10, 1000])
def test_the_number_of_calls_does_not_depend_on_the_users(users: int) -> None:
    database, policy = Database(), policy_of(users)
    assert apply(database, policy)["changed"]
    assert database.calls == ["state", "load", "load", "state"]
    database.calls.clear()
    assert not apply(database, policy)["changed"]
    assert database.calls == ["state"]


def test_a_check_applies_nothing_and_says_the_same() -> None:
    database, policy = Database(), policy_of(10)
    checked = apply(database, policy, check=True)
    assert (database.calls, database.entities) == (["state"], {})
    assert apply(database, policy) == checked


def test_a_check_knows_the_resources_that_slurm_will_track() -> None:
    policy = {"qos": [{"name": "a", "GrpTRES": {"gres/gpu:h100": 1}}]}
    assert apply(Database(), policy, check=True)["changed"]
    assert apply(Database(), policy, check=True, tracked=["gres/gpu", "gres/gpu:h100"])["changed"]
    with pytest.raises(PolicyError, match="'gres/gpu:h100' is unknown"):
        apply(Database(), policy, check=True, tracked=["gres/gpu"])
    with pytest.raises(PolicyError, match="'gres/gpu:h100' is unknown"):
        apply(Database(), policy, tracked=["gres/gpu", "gres/gpu:h100"])


def test_what_slurm_does_not_take_is_applied_by_itself_and_reported() -> None:
    database = Database(takes=False)
    with pytest.raises(AccountingError, match="Account - 'a0': no"):
        apply(database, policy_of(10))
    assert database.calls == ["state", "load", "load", "state", "load"]


def test_what_slurm_takes_without_effect_is_reported() -> None:
    class Deaf(Database):
        """A sacctmgr that reports success and does nothing."""

        def run(self, lines: list[str], load: bool) -> tuple[bool, str]:
            """Report success."""
            return False, f"{lines[-1]}: well" if load else ""

    message = r"Account - 'a0': well\n(.*\n)*Slurm did not apply these changes:\naccount a0  new"
    with pytest.raises(AccountingError, match=message):
        apply(Deaf(), policy_of(10))


def test_what_is_in_use_or_not_empty_is_not_removed() -> None:
    database = Database(running=[JobAssociation("7", "u3", "a0", "normal")])
    apply(database, policy_of(10))
    with pytest.raises(PolicyError, match="account a0: has jobs 7\naccount a0: is not empty: user u0 in a0, "):
        apply(database, {}, absent=[Entity("account", "a0")])
    kept = apply(database, {"accounts": ["a0"]}, check=True, purge=True)
    assert kept["kept"] == ["user u3: has jobs 7"]
    assert [change["what"] for change in kept["plan"]] == [f"user u{i}" for i in range(10) if i != 3]


def test_a_job_keeps_what_it_has_and_no_other_account_of_its_user() -> None:
    state = State(
        {
            **{Entity("account", name): {"Parent": "root"} for name in ("chem", "phys")},
            Entity("user", "alice"): {"DefaultAccount": "phys"},
            **{Entity("association", "alice", name): {} for name in ("chem", "phys")},
            Entity("association", "alice", "phys", "gpu"): {},
        }
    )
    kept = in_use(state, state.entities, [JobAssociation("7", "alice", "phys", "normal")])
    assert [(entity.text, numbers) for entity, numbers in kept.items()] == [
        ("account phys", ["7"]),
        ("user alice", ["7"]),
        ("user alice in phys", ["7"]),
        ("user alice in phys, partition gpu", ["7"]),
    ]
    # A user who stays is in all of the accounts.
    kept_users = {Entity("user", "alice"): "has jobs 7"}
    accounts = [Entity("account", name) for name in ("chem", "phys")]
    assert [entity.name for entity in kept_accounts(state, accounts, kept_users)] == ["chem", "phys"]


def test_a_suspended_user_coordinates_no_account() -> None:
    """A coordinator can take limits back, and make accounts and associations without limits."""
    database, policy = Database(), policy_of(10)
    apply(database, policy)
    closed = {"MaxJobs": 0, "MaxSubmitJobs": 0, "GrpSubmitJobs": 0}
    for entity in [one for one in database.entities if one.kind == "association" and one.name == "u1"]:
        database.entities[entity] = dict.fromkeys(closed, "0")
    policy["users"][1].update(closed)
    assert apply(database, policy, check=True)["table"] == ["coordinator u1 in a0  gone"]
    assert database.dismissed == []
    assert apply(database, policy)["changed"]
    assert database.dismissed == ["u1"]
    assert not apply(database, policy)["changed"]
