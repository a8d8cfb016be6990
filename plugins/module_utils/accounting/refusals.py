# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs that slurmctld refuses by a policy and slurm.conf, and whose jobs they are.

Its rules: `_determine_and_validate_qos` and `part_policy_valid_*` in `src/slurmctld/job_mgr.c`,
`assoc_mgr_get_default_qos_info` and `assoc_mgr_fill_in_assoc` in `src/common/assoc_mgr.c`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..language.hostlist import fold
from .differences import AccountingChange
from .entities import ROOT, Entity, QueuedJob, Settings, State, parents_of
from .limits import LIMITS
from .policy import Partitions, entities_of, names_in

_NOT_ASSOCIATIONS = {"", "nojobs", "nosteps"}
"""Words of AccountingStorageEnforce with which a job needs no association."""

_OF_ACCOUNTS = {"allowaccounts", "denyaccounts"}
"""Parameters of partitions, in small letters."""

_ACCOUNTS_BY_ASSOCIATIONS = "23.02"
"""The first release in which they need an association (`part_policy_valid_acct` in src/slurmctld/partition_mgr.c)."""

_WITH_QOS = {"all", "qos"}
"""Its words with which a job needs a QOS of its association."""

NORMAL = "normal"
"""The QOS of a job that names none, where its association has several and no DefaultQOS."""


@dataclass(frozen=True)
class _Associations:
    """The entities of a cluster, in which each has the QOS of the one above it unless it has its own."""

    entities: Mapping[Entity, Settings]
    parents: Mapping[str, str]

    @classmethod
    def of(cls, entities: Mapping[Entity, Settings]) -> _Associations:
        """Those of these entities."""
        return cls(entities, parents_of(entities))

    def above(self, account: str) -> list[str]:
        """An account, and those that it is in."""
        path = [account]
        while (parent := self.parents.get(path[-1], ROOT)) not in (ROOT, *path):
            path.append(parent)
        return path

    def first(self, place: Entity, key: str) -> tuple[Entity, str]:
        """The entity from which a place has a setting, and its value; empty if none has it."""
        account = place.account or place.name
        cluster = [entity for entity in self.entities if entity.kind == "cluster"]
        for entity in (place, *(Entity("account", name) for name in self.above(account)), *cluster):
            if value := self.entities.get(entity, {}).get(key, ""):
                return entity, value
        return place, ""

    def qos(self, place: Entity) -> list[str]:
        """The QOS that a place may use; none if nothing says it."""
        return [name for name in self.first(place, "QOS")[1].split(",") if name]

    def of_user(self, user: str, account: str, partition: str) -> Entity | None:
        """The association of a job."""
        for part in (partition, ""):
            if (found := Entity("association", user, account, part)) in self.entities:
                return found
        return None


# -- before slurm.conf -------------------------------------------------------------------------------------------------


def additions(state: State, changes: Iterable[AccountingChange], cluster: str) -> list[AccountingChange]:
    """The part of changes that refuses nobody: what is new, with its settings, and names that are added to others.

    A limit on a resource that slurmdbd does not know yet is left out, as slurmctld makes it known. Before slurmctld has
    registered its cluster, only QOS can be added: one that has run without slurmdbd ends where another number is
    registered for it (`fatal: CLUSTER ID MISMATCH`).
    """
    associations, known = _Associations.of(state.entities), cluster in state.clusters
    found = (_addition(state, associations, change) for change in changes if change.after is not None)
    return [change for change in found if change is not None and (known or change.entity.kind == "qos")]


def _addition(state: State, associations: _Associations, change: AccountingChange) -> AccountingChange | None:
    """The part of a change that refuses nobody; None if it has none."""
    after = change.after or ""
    if change.entity not in state.entities:
        is_tres = change.key and LIMITS[change.entity.kind][change.key].kind == "tres"
        known = all(pair.partition("=")[0] in state.tres for pair in after.split(","))
        return None if is_tres and not known else change
    if change.key not in ("QOS", "WCKeys") or not after:
        return None
    # One without QOS of its own has those of the account above it.
    before = associations.first(change.entity, "QOS")[1] if change.key == "QOS" else change.before or ""
    names = {*filter(None, before.split(",")), *after.split(",")}
    unknown = change.key == "QOS" and not before
    return None if unknown or names == {*before.split(",")} else replace(change, after=",".join(sorted(names)))


# -- a policy --------------------------------------------------------------------------------------------------------


def without_default_qos(policy: Mapping[str, Any], enforce: Collection[str]) -> list[str]:
    """The accounts and users of a policy whose jobs slurmctld refuses unless they name a QOS, with the reason.

    Args:
        policy: as `read` takes it, and valid.
        enforce: the words of AccountingStorageEnforce.
    """
    if not _WITH_QOS & {word.lower() for word in enforce}:
        return []
    associations = _Associations.of(entities_of(policy))
    reasons: dict[str, None] = {}
    for place in _places(associations):
        holder, _value = associations.first(place, "QOS")
        subject = place if holder == place else Entity("account", place.account or place.name)
        if reason := _refused_default(associations.qos(place), associations.first(place, "DefaultQOS")[1]):
            reasons[f"{subject.text}: {reason}"] = None
    return [*reasons]


def _places(associations: _Associations) -> Iterator[Entity]:
    """The associations of users, and the accounts that have neither users nor accounts in the policy."""
    used = {*associations.parents.values()}
    for entity in associations.entities:
        if entity.kind == "association":
            used.add(entity.account)
            yield entity
    yield from (entity for entity in associations.entities if entity.kind == "account" and entity.name not in used)


def _refused_default(allowed: Sequence[str], default: str) -> str:
    """Why slurmctld refuses a job without a QOS; empty if it takes it."""
    if not allowed or default in allowed or (not default and (len(allowed) == 1 or NORMAL in allowed)):
        return ""
    has = f"DefaultQOS is {default}, which is not in QOS" if default else "it has several QOS and no DefaultQOS"
    return f"{has} ({', '.join(allowed)}), so slurmctld refuses its jobs without --qos: set DefaultQOS to one of them"


# -- a change --------------------------------------------------------------------------------------------------------


def find_refused(
    before: Mapping[Entity, Settings],
    entities: Mapping[Entity, Settings],
    enforce: Collection[str],
    partitions: Partitions,
    jobs: Sequence[QueuedJob],
    release: str,
) -> list[str]:
    """Whose jobs slurmctld would refuse, by jobs that have not ended, with the reason.

    Args:
        before: the accounts, users and QOS before the change.
        entities: the accounts, users and QOS after the change.
        enforce: the words of AccountingStorageEnforce after it.
        partitions: their parameters after it.
        jobs: whose users submit such jobs now.
        release: that of slurmctld.
    """
    associations, words = _Associations.of(entities), {word.lower() for word in enforce}
    idle: set[str] = set() if words - _NOT_ASSOCIATIONS or release < _ACCOUNTS_BY_ASSOCIATIONS else _OF_ACCOUNTS
    rules = {
        name: {key.lower(): names_in(value) for key, value in pairs if key.lower() not in idle}
        for name, pairs in partitions.items()
    }
    numbers: dict[str, list[str]] = {}
    for job in jobs:
        rule = rules.get(job.partition, {})
        if job.user != ROOT and (reason := _reason(associations, words, rule, job)):
            old, new = (_default_account(found, job.user) for found in (before, entities))
            moves = job.account == old != new and reason.startswith("partition ")
            if moves and not _reason(associations, words, rule, job._replace(account=new)):
                reason = _BETWEEN.format(user=job.user, old=old, new=new, partition=job.partition)
            numbers.setdefault(reason, []).append(job.number)
    return [f"{reason} (now: job {fold(found)})" for reason, found in numbers.items()]


_BETWEEN = (
    "user {user}: DefaultAccount changes from {old} to {new}, and partition {partition} will not allow {old}, so jobs "
    "without an account are refused until the policy is changed, seconds after slurm.conf. To refuse nobody, let the "
    "partition allow both in this run, and {new} alone in the next"
)
"""The policy changes after slurm.conf, and neither the account before nor the one after it is allowed all the time."""


def _default_account(entities: Mapping[Entity, Settings], user: str) -> str:
    return entities.get(Entity("user", user), {}).get("DefaultAccount", "")


def _reason(
    associations: _Associations, enforce: Collection[str], rules: Mapping[str, Sequence[str]], job: QueuedJob
) -> str:
    """Why slurmctld would refuse such a job; empty if it takes it."""
    account = _default_account(associations.entities, job.user) if job.account in ("", "(null)") else job.account
    place = associations.of_user(job.user, account, job.partition)
    if {*enforce} - _NOT_ASSOCIATIONS and place is None:
        return f"user {job.user}: has no association in account {account or '(none)'}"
    allowed = associations.qos(place) if place and _WITH_QOS & {*enforce} else []
    if allowed and job.qos not in allowed:
        return f"{place.text if place else ''}: may use QOS {', '.join(allowed)}, not QOS {job.qos}"
    for kind, names in (("accounts", associations.above(account)), ("qos", [job.qos])):
        allow, deny = rules.get(f"allow{kind}", ()), rules.get(f"deny{kind}", ())
        key = "Qos" if kind == "qos" else "Accounts"
        if allow and not {*allow} & {*names}:
            name = names[0] or "(none)"
            return f"partition {job.partition}: Allow{key} lacks {name}, with which user {job.user} submits"
        if not allow and {*deny} & {*names}:
            return f"partition {job.partition}: Deny{key} has {names[0]}, with which user {job.user} submits"
    return ""
