# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurmdbd has and a policy cannot express: no policy names it, and no purge removes it.

Such are accounts with blanks and umlauts (`phys lab`), users of a domain (`EX\\bob`), users with capital letters
(PreserveCaseUser in slurmdbd.conf), the differences that `qos+=` makes of what a parent has (`+high`), and all that
refers to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .differences import kept_lines
from .entities import OWN, ROOT, Entity, Settings, State
from .limits import LEFT_ALONE, LIMITS, NAME, Limit, meaning

NO_NAME = "has a name that a policy cannot have"

_REFERENCES = {
    "QOS": "qos",
    "DefaultQOS": "qos",
    "Preempt": "qos",
    "Parent": "account",
    "DefaultAccount": "account",
    "Coordinators": "user",
}
"""The kinds of entities that settings name."""


def can_name(name: str) -> bool:
    """Whether a policy can have the name of an entity, which it keeps in small letters."""
    return bool(NAME.fullmatch(name)) and name == name.lower()


def find_unmanaged(state: State) -> dict[Entity, str]:
    """The entities that no policy can name, with the reason."""
    found: dict[Entity, str] = {}
    places: dict[str, list[Entity]] = {}
    for entity in state.entities:
        if entity.kind == "cluster":
            continue
        if not can_name(entity.name) or (entity.partition and not NAME.fullmatch(entity.partition)):
            found[entity] = NO_NAME
        elif entity.account and not can_name(entity.account):
            found[entity] = f"the account {NO_NAME}"
        if entity.kind == "association":
            places.setdefault(entity.name, []).append(entity)
    for name, own in places.items():
        user = Entity("user", name)
        if user in found:
            continue
        if state.entities.get(user, {}).get("DefaultAccount") == "":
            found.update(dict.fromkeys((user, *own), "has no default account"))
        elif all(place in found for place in own):
            found[user] = "has no account that a policy can name"
    return found


def find_unmanaged_settings(state: State, unmanaged: Mapping[Entity, str]) -> dict[Entity, dict[str, str]]:
    """The settings that no policy can have, of the entities that it can name."""
    known = {
        kind: {entity.name for entity in (*state.entities, *OWN) if entity.kind == kind and entity not in unmanaged}
        for kind in ("qos", "account", "user")
    }
    known["user"] |= {entity.name for entity in state.elsewhere if entity.kind == "user" and can_name(entity.name)}
    found = {}
    for entity, settings in state.entities.items():
        limits = LIMITS[entity.kind]
        values = {
            name: value
            for name, value in settings.items()
            if value != limits[name].default and not _can_express(limits[name], value, known)
        }
        if values and entity not in unmanaged and entity.name != ROOT:
            found[entity] = values
    return found


def _can_express(limit: Limit, value: str, known: Mapping[str, set[str]]) -> bool:
    """Whether a policy can have a value."""
    try:
        text = meaning(limit, value)
    except ValueError:
        return False
    kind = _REFERENCES.get(limit.name)
    return text == value and (kind is None or {*value.split(",")} <= known[kind])


def describe(settings: Mapping[str, str]) -> str:
    """Why these settings stay as they are."""
    values = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return f"{values} cannot be in a policy"


def kept_from_purge(state: State, unwanted: Iterable[Entity]) -> dict[Entity, str]:
    """The unwanted entities that no policy can name, and the users with such an association, with the reason."""
    unmanaged = find_unmanaged(state)
    members = {
        Entity("user", place.name): f"is in {place.account}: {reason}"
        for place, reason in unmanaged.items()
        if place.kind == "association"
    }
    reasons = members | unmanaged
    return {entity: reasons[entity] for entity in unwanted if entity in reasons}


def describe_kept_settings(state: State, wanted: Mapping[Entity, Settings]) -> dict[Entity, str]:
    """The settings that no policy can have and this one does not replace, with the reason."""
    found = {}
    for entity, own in find_unmanaged_settings(state, find_unmanaged(state)).items():
        if entity in wanted and entity.kind != "cluster":
            found[entity] = {
                name: value
                for name, value in own.items()
                if LIMITS[entity.kind][name].kind not in LEFT_ALONE and wanted[entity].get(name, value) == value
            }
    return {entity: describe(own) for entity, own in found.items() if own}


def list_unmanaged(state: State) -> list[str]:
    """All that a policy of this state leaves out, as text; equal reasons of several names are one line."""
    unmanaged = find_unmanaged(state)
    settings = find_unmanaged_settings(state, unmanaged)
    whole = {
        entity: reason
        for entity, reason in unmanaged.items()
        if entity.kind != "association" or Entity("user", entity.name) not in unmanaged
    }
    return [*kept_lines(whole), *kept_lines({entity: describe(own) for entity, own in settings.items()})]
