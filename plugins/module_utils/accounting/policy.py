# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A policy as data: read and checked, and created from what there is.

What a policy does not name is left alone, or with `purge` removed: limits as well as QOS, accounts and users.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..language.formatting import PROBLEMS, limited, short, shown
from ..language.spelling import nearest
from .entities import OWN, ROOT, Entity, Settings, State, parents_of
from .limits import LEFT_ALONE, LIMITS, find, meaning, move_gpu_hours, name_of, of_all_clusters
from .unmanaged import can_name, find_unmanaged, find_unmanaged_settings

if TYPE_CHECKING:
    from ...plugin_utils.results.module_results import Policy

Wanted = dict[Entity, Settings]
Partitions = Mapping[str, Iterable[tuple[str, Any]]]
"""Parameters of partitions, by the partition's name."""

CLOSED = ("MaxJobs", "MaxSubmitJobs", "GrpSubmitJobs")
"""Limits that are 0 for a suspended user: no job of theirs starts, and none is taken.

slurmctld does not check one of the two limits of submitted jobs where the QOS of the job or of the partition has a
limit of the same kind (`_qos_policy_validate` and `acct_policy_validate` in `src/slurmctld/acct_policy.c`).
"""

_QOS_OF_PARTITIONS = ("qos", "allowqos", "denyqos")
"""Parameters in small letters. slurmctld ends where a QOS is not there (`_build_single_partitionline_info`)."""
_IN_PARTITIONS = {"qos": _QOS_OF_PARTITIONS, "account": ("allowaccounts", "denyaccounts")}
"""The parameters of partitions that name entities, by their kind."""

_LISTS = {"qos": "qos", "account": "accounts"}
"""The keys of a policy that list the entities of a kind."""


class PolicyError(ValueError):
    """All that is wrong with a policy, a line each."""


# -- partitions ------------------------------------------------------------------------------------------------------


def names_in(value: Any) -> list[str]:
    """The names that a parameter has, in small letters; none for `ALL`."""
    names = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return [name for name in (str(name).strip().lower() for name in names) if name not in ("", "all")]


# -- check -----------------------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Reads a policy, and collects its errors."""

    state: State
    purge: bool
    blind: bool = False
    """Whether Slurm may have more than `state`."""
    closed: Collection[str] = ()
    """Users who may have no jobs, who coordinate no account either."""
    wanted: Wanted = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    unnamed: set[str] = field(default_factory=set)
    """What has an entry without a valid name, such as `account`: others may refer to it."""

    def name(self, what: str, entry: Mapping[str, Any]) -> str:
        """The name of an entry, as Slurm keeps it."""
        return self._name(what, "name", entry.get("name")).lower()

    def _name(self, what: str, key: str, found: Any) -> str:
        """A name; as text if it is none, which is an error."""
        try:
            return name_of(found)
        except ValueError as error:
            problem = "missing" if found is None else f"found {shown(found)}, allowed: {error}"
            self.errors.append(f"{what}: {key}: {problem}")
            self.unnamed.add(what)
            return str(found)

    def settings(
        self, what: str, entry: Mapping[str, Any], own: Sequence[str], *kinds: str
    ) -> dict[str, dict[str, str]]:
        """The limits of an entry by kind of entity; `own` are the keys that are no limits."""
        by_kind: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
        for key, value in entry.items():
            if key in own:
                continue
            try:
                kind, limit = find(kinds, str(key), own)
                if limit.name in by_kind[kind]:
                    self.errors.append(f"{what}: {limit.name}: is given twice")
                by_kind[kind][limit.name] = meaning(limit, value)
            except ValueError as error:
                self.errors.append(f"{what}: {error}")
        try:
            move_gpu_hours(by_kind[kinds[-1]])  # those of the association, where a user has them
        except ValueError as error:
            self.errors.append(f"{what}: {error}")
        return by_kind

    def add(self, entity: Entity, settings: Settings) -> None:
        """An entity that must be there."""
        if entity in self.wanted:
            self.errors.append(f"{entity.text}: is listed twice")
        self.wanted[entity] = settings

    def entries(self, what: str, found: Any) -> Iterator[Mapping[str, Any]]:
        """The entries of a list; a name stands for an entry that has no more."""
        if found is not None and not isinstance(found, list):
            self.errors.append(f"{what}: found {shown(found)}, allowed: a list")
            return
        for entry in found or []:
            yield entry if isinstance(entry, Mapping) else {"name": entry}

    def policy(self, policy: Mapping[str, Any], cluster: str) -> None:
        """All of a policy."""
        if policy.get("limits") is not None:
            entity = Entity("cluster", cluster)
            self.add(entity, self.settings(entity.text, policy["limits"], [], "cluster")["cluster"])
        self.qos(policy.get("qos"))
        self.closed = closed_users(policy)
        self.accounts("accounts", policy.get("accounts"))
        self.users(policy.get("users"))

    def qos(self, found: Any) -> None:
        """QOS."""
        for entry in self.entries("qos", found):
            entity = Entity("qos", self.name("qos", entry))
            self.add(entity, self.settings(entity.text, entry, ["name"], "qos")["qos"])

    def accounts(self, what: str, found: Any, parent: str = "") -> None:
        """Accounts, with those that are in them."""
        for entry in self.entries(what, found):
            entity = Entity("account", self.name("account", entry))
            settings = self.settings(entity.text, entry, ["name", "accounts"], "account")["account"]
            if "Coordinators" in settings:
                names = settings["Coordinators"].split(",")
                settings["Coordinators"] = ",".join(name for name in names if name not in self.closed)
            if parent and settings.setdefault("Parent", parent) != parent:
                self.errors.append(f"{entity.text}: Parent: found {shown(settings['Parent'])}, but it is in {parent}")
            self.add(entity, settings)
            self.accounts(f"{entity.text}: accounts", entry.get("accounts"), entity.name)

    def users(self, found: Any) -> None:
        """Users, with their accounts. Where no default is named, it is the one that stays, or else the first."""
        for entry in self.entries("users", found):
            entity = Entity("user", self.name("user", entry))
            own, before = ["name", "accounts"], len(self.errors)
            settings = self.settings(entity.text, entry, own, "user", "association")
            places = [*self.entries(f"{entity.text}: accounts", entry.get("accounts"))]
            names = [str(place.get("name", "")).lower() for place in places]
            present = self.state.entities.get(entity, {}).get("DefaultAccount", "")
            stays = present if present in names or not self.purge or not can_name(present) else ""
            default = settings["user"].setdefault("DefaultAccount", stays or "".join(names[:1]))
            if not default:
                if not any("DefaultAccount" in error for error in self.errors[before:]):
                    self.errors.append(f"{entity.text}: has no account; name its DefaultAccount, or accounts")
                continue
            self.add(entity, settings["user"])
            given = default in names or not can_name(default)
            for place in places if given else [{"name": default}, *places]:
                account, partition = self.name(entity.text, place), place.get("partition")
                partition = "" if partition in (None, "") else self._name(entity.text, "partition", partition)
                where = Entity("association", entity.name, account, partition)
                special = self.settings(where.text, place, ["name", "partition"], "association")["association"]
                self.add(where, {**settings["association"], **special})
            if not self.purge:
                self._close_or_open(entity.name, settings["association"])

    def _close_or_open(self, user: str, limits: Settings) -> None:
        """Close the accounts of a suspended user that the policy does not name, and open them for one who is back.

        Somebody has given them by hand. Their limits are left alone otherwise.
        """
        closed = dict.fromkeys(CLOSED, "0")
        if not closed.keys() <= limits.keys():
            return
        wanted = {name: limits[name] for name in CLOSED}
        for entity, present in self.state.entities.items():
            is_other = entity.kind == "association" and entity.name == user and entity not in self.wanted
            if is_other and (wanted == closed or closed.items() <= present.items()):
                self.wanted[entity] = wanted

    def partitions(self, partitions: Partitions, kinds: Iterable[str]) -> None:
        """Check that each name in partitions is known: to the policy, or to Slurm."""
        keys = {key: known for kind, known in self._all_known(kinds).items() for key in _IN_PARTITIONS[kind]}
        for name, parameters in partitions.items():
            for key, value in parameters:
                if key.lower() in keys:
                    # What no policy can name is for slurmdbd to know.
                    names = filter(can_name, names_in(value))
                    self._known(f"partition {name}: {key}", names, keys[key.lower()])

    def known(self, kind: str) -> set[str]:
        """The names that there are after the change."""
        stays = find_unmanaged(self.state) if self.purge else self.state.entities
        others = self.state.elsewhere if kind == "user" else ()
        return {entity.name for entity in (*self.wanted, *stays, *OWN, *others) if entity.kind == kind}

    def _all_known(self, kinds: Iterable[str]) -> dict[str, set[str]]:
        """The known names by kind; none of a kind with an entry without a valid name, which may be one of them."""
        return {kind: self.known(kind) for kind in kinds if kind not in self.unnamed}

    def references(self, kinds: Iterable[str] = (*_LISTS, "user")) -> None:
        """Check that each name of these kinds is known: to the policy, or to Slurm if the object stays there."""
        state, known = self.state, self._all_known(kinds)
        for entity, settings in self.wanted.items():
            if entity.kind == "association":
                self._known(f"{entity.text}: account", [entity.account], known.get("account"))
            for key, value in settings.items():
                if LIMITS[entity.kind][key].kind == "tres" and state.tres:
                    resources = [pair.partition("=")[0] for pair in value.split(",") if pair]
                    if state.grows:
                        resources = [resource for resource in resources if "/" not in resource]
                    self._known(f"{entity.text}: {key}", resources, state.tres)
                elif key in ("QOS", "DefaultQOS", "Preempt"):
                    self._known(f"{entity.text}: {key}", filter(None, value.split(",")), known.get("qos"))
                elif key == "Coordinators":
                    self._known(f"{entity.text}: {key}", filter(None, value.split(",")), known.get("user"))
                elif key == "Parent":
                    self._known(f"{entity.text}: {key}", [value], known.get("account"))

    def circles(self) -> None:
        """Check that no account is its own ancestor."""
        parents = parents_of(self.state.entities, self.wanted)
        for entity in self.wanted:
            if entity.kind == "account" and (circle := _circle(entity.name, parents)):
                self.errors.append(f"{entity.text}: is its own ancestor: {' in '.join(circle)}")

    def _known(self, where: str, names: Iterable[str], known: Iterable[str] | None) -> None:
        """Report names that are not known. None: the known names cannot be found out."""
        if known is None:
            return
        known = [*known]
        for name in names:
            if name not in known:
                # After very many errors a guess would only cost time: nobody sees it (`limited`).
                meant = nearest(name, known) if len(self.errors) <= PROBLEMS else None
                hint = f", did you mean {meant!r}?" if meant else ""
                way_out = f" (if Slurm has it already, list it as {{name: {short(name)}}})" if self.blind else ""
                self.errors.append(f"{where}: {shown(name)} is unknown{hint}{way_out}")


def _circle(account: str, parents: Mapping[str, str]) -> list[str]:
    """The accounts from one to itself; none if it is in no circle."""
    path = [account]
    while (above := parents.get(path[-1], ROOT)) not in (ROOT, *path[1:]):
        path.append(above)
        if above == account:
            return path
    return []


def read(
    policy: Mapping[str, Any], cluster: str, state: State, purge: bool = False, partitions: Partitions | None = None
) -> Wanted:
    """The wanted state of the cluster by a policy, with the limits that it names, or with `purge` all limits.

    policy: `limits` of the cluster, `qos`, `accounts`, `users`. partitions: those whose QOS have to be known.

    Raises:
        PolicyError: with all that is wrong.
    """
    reader = _Reader(state, purge)
    reader.policy(policy, cluster)
    reader.references()
    reader.partitions(partitions or {}, ["qos"])
    reader.circles()
    if reader.errors:
        raise PolicyError("\n".join(limited(reader.errors)))
    if not purge:
        return reader.wanted
    shared = bool(state.others(cluster))
    stay = find_unmanaged_settings(state, find_unmanaged(state))
    return {entity: _all(entity, settings, shared, stay.get(entity, ())) for entity, settings in reader.wanted.items()}


def problems(policy: Mapping[str, Any], purge: bool, partitions: Partitions) -> list[str]:
    """The errors of a policy that do not depend on Slurm's data.

    With `purge` there is nothing that the policy does not name. Without it, Slurm may have more accounts and QOS, which
    are not known before slurmdbd runs. So a policy that lists any accounts has to list all that it refers to; the same
    holds for QOS. An entry with nothing but a name leaves an account or QOS as it is.
    """
    reader = _Reader(State(), purge, blind=not purge)
    reader.policy(policy, "")
    kinds = [kind for kind, key in _LISTS.items() if purge or policy.get(key)]
    reader.references(kinds)
    reader.partitions(partitions, kinds)
    reader.circles()
    return reader.errors


def entities_of(policy: Mapping[str, Any]) -> Wanted:
    """The wanted state by a policy alone, as far as it is right."""
    reader = _Reader(State(), purge=False)
    reader.policy(policy, "")
    return reader.wanted


SLURMS_OWN_RESOURCES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
"""The resources that Slurm always tracks (slurm.conf(5), AccountingStorageTRES)."""


def untracked_limits(policy: Mapping[str, Any], tracked: Iterable[str]) -> list[str]:
    """The limits of a policy on resources that slurmctld does not track, so that it would not enforce them.

    tracked: the value of AccountingStorageTRES.
    """
    known = {*SLURMS_OWN_RESOURCES, *tracked}
    return [
        f"{entity.text}: {key}: slurm.conf does not track {short(resource)}, so slurmctld would not enforce the limit"
        for entity, settings in entities_of(policy).items()
        for key, value in settings.items()
        if LIMITS[entity.kind][key].kind == "tres"
        for resource in [pair.partition("=")[0] for pair in value.split(",") if pair]
        if resource not in known
    ]


def closed_users(policy: Mapping[str, Any]) -> set[str]:
    """The users of a policy who may have no jobs, such as those who are suspended."""
    users = policy.get("users") or []
    return {
        str(user.get("name")).lower()
        for user in users
        if isinstance(user, Mapping) and all(str(user.get(name)) == "0" for name in CLOSED)
    }


def account_names(policy: Mapping[str, Any]) -> set[str]:
    """The accounts of a policy; none if it lists none, as Slurm may have them then, or if one has no valid name."""
    reader = _Reader(State(), purge=False)
    reader.accounts("accounts", policy.get("accounts"))
    return reader.known("account") if policy.get("accounts") and "account" not in reader.unnamed else set()


def _all(entity: Entity, settings: Settings, shared: bool, stay: Collection[str]) -> Settings:
    """The settings with those that are not named, except texts, coordinators and WCKeys, which are never unset.

    shared: the database has other clusters, whose settings are not unset either. stay: those that no policy can have.
    """
    unset = {
        name: limit.default
        for name, limit in LIMITS[entity.kind].items()
        if limit.kind not in LEFT_ALONE and name not in stay and not (shared and of_all_clusters(entity.kind, name))
    }
    return settings if entity.kind == "cluster" else {**unset, **settings}


# -- back to data ----------------------------------------------------------------------------------------------------


def policy_of(state: State) -> Policy:
    """The present state as a policy: limits that are set, and all entities except those that Slurm adds itself.

    What a policy cannot express is left out (`list_unmanaged`).
    """
    unmanaged = find_unmanaged(state)
    unmanaged_settings = find_unmanaged_settings(state, unmanaged)

    def entries(kind: str) -> Iterator[tuple[Entity, dict[str, Any]]]:
        """Entities of a kind with their limits."""
        for entity, settings in state.entities.items():
            if entity.kind == kind and entity not in OWN and entity.name != ROOT and entity not in unmanaged:
                left_out = unmanaged_settings.get(entity, {})
                unset = {name: limit.default for name, limit in LIMITS[kind].items()}
                yield (
                    entity,
                    {key: value for key, value in settings.items() if value != unset[key] and key not in left_out},
                )

    accounts = {entity.name: {"name": entity.name, **own} for entity, own in entries("account")}
    users = {entity.name: {"name": entity.name, **own} for entity, own in entries("user")}
    for entity, own in entries("association"):
        place = {"name": entity.account, **({"partition": entity.partition} if entity.partition else {}), **own}
        users[entity.name].setdefault("accounts", []).append(place)
    cluster = [own for _entity, own in entries("cluster")]
    return {
        "limits": cluster[0] if cluster else {},
        "qos": [{"name": entity.name, **own} for entity, own in entries("qos")],
        "accounts": list(accounts.values()),
        "users": list(users.values()),
    }
