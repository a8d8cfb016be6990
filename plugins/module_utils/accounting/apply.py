# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Code that the modules for accounting share: read, check, compare, apply, and verify."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ..configuration.conf_file import Configuration
from ..host.plan_result import plan_result
from ..language.hostlist import fold
from .differences import (
    AccountingChange,
    after_changes,
    compare,
    contents,
    in_use,
    kept_accounts,
    kept_lines,
    not_removed,
    surplus,
    table,
)
from .entities import Entity, Settings, State
from .other_clusters import OtherClusters, in_other_clusters, kept_for_other_clusters, kept_settings
from .policy import Partitions, PolicyError, Wanted, closed_users, read
from .refusals import additions, find_refused
from .sacctmgr import AccountingError, Sacctmgr
from .sacctmgr_commands import batches
from .unmanaged import describe_kept_settings, kept_from_purge

if TYPE_CHECKING:
    from ...plugin_utils.results.module_results import PolicyResult


def apply_policy(
    module: AnsibleModule,
    sacctmgr: Sacctmgr,
    policy: Mapping[str, Any],
    purge: bool = False,
    absent: Sequence[Entity] = (),
    partitions: Partitions | None = None,
    tracked: Sequence[str] | None = None,
    enforced: Configuration | None = None,
    add: bool = False,
) -> PolicyResult:
    """Apply a policy to the accounting, and return a module's result.

    absent: what must not be there. purge: nothing that the policy does not name must be there. partitions: those whose
    QOS have to be known. tracked: the resources that slurm.conf will track; None if this is not known. enforced: the
    slurm.conf by which slurmctld will refuse jobs. add: only what refuses nobody, before slurmctld enforces the policy.

    Raises:
        PolicyError: the policy is wrong; nothing has changed.
        AccountingError: Slurm does not answer, or has not taken all of it.
    """
    closed = closed_users(policy)
    state = sacctmgr.state()
    state.coordinators = sacctmgr.coordinators(closed)
    # Resources that the same run would make known to slurmctld are missing in check mode.
    state.grows = add or (module.check_mode and tracked is None)
    if module.check_mode and state.tres:
        state.tres.extend(tracked or ())
    wanted = read(policy, sacctmgr.cluster, state, purge, partitions)
    settings = _kept_settings(state, wanted, sacctmgr.cluster) if purge else {}
    unwanted = surplus(state, wanted) if purge else [entity for entity in absent if entity in state.entities]
    others = sacctmgr.others(unwanted, purge)
    kept = _kept(state, unwanted, sacctmgr, others, purge)
    _refuse(state, absent, kept)
    unwanted = [entity for entity in unwanted if entity not in kept]

    def find_changes(state: State) -> list[AccountingChange]:
        """The differences of a state from the wanted one."""
        found = compare(state, wanted, unwanted)
        return additions(state, found, sacctmgr.cluster) if add else found

    changes = find_changes(state)
    if changes and not module.check_mode:
        _apply(sacctmgr, state, changes, find_changes, closed)
    return {
        **plan_result([{"what": change.what, "before": change.before, "after": change.after} for change in changes]),
        "table": table(changes),
        "kept": kept_lines({**kept, **in_other_clusters(unwanted, others), **settings}),
        "registered": sacctmgr.cluster in state.clusters,
        "refused": _refused(sacctmgr, state, after_changes(state, wanted, unwanted), enforced) if enforced else [],
    }


def _refused(
    sacctmgr: Sacctmgr, state: State, entities: Mapping[Entity, Settings], enforced: Configuration
) -> list[str]:
    """Who submits jobs now that slurmctld would refuse."""
    enforce = enforced.settings.get(("slurm.conf", "accountingstorageenforce"), ("", ""))[1].split(",")
    return find_refused(
        state.entities, entities, enforce, enforced.partitions, sacctmgr.queued_jobs(), sacctmgr.release()
    )


def _kept_settings(state: State, wanted: Wanted, cluster: str) -> dict[Entity, str]:
    """The settings that a purge would remove, and that stay, with the reason."""
    shared = kept_settings(state, wanted) if state.others(cluster) else {}
    unmanaged = describe_kept_settings(state, wanted)
    return {
        entity: "; ".join(part[entity] for part in (shared, unmanaged) if entity in part)
        for entity in {**shared, **unmanaged}
    }


def _kept(
    state: State, unwanted: Sequence[Entity], sacctmgr: Sacctmgr, others: OtherClusters, purge: bool
) -> dict[Entity, str]:
    """The unwanted entities that are not removed, with the reason. Raises AccountingError."""
    # A cluster that is gone cannot be asked for its jobs.
    used = in_use(state, unwanted, sacctmgr.jobs()) if any(entity.kind != "cluster" for entity in unwanted) else {}
    kept = {entity: f"has jobs {fold(numbers)}" for entity, numbers in used.items()}
    if purge:
        kept |= kept_from_purge(state, unwanted)
    if others.clusters:
        kept = kept_for_other_clusters(state, unwanted, others, purge) | kept
    accounts = [entity for entity in unwanted if entity.kind == "account"]
    left = [entity for entity in unwanted if entity.kind != "account" and entity not in kept]
    kept |= not_removed(state, left, others.members)
    return kept | kept_accounts(state, accounts, kept)


def _refuse(state: State, absent: Iterable[Entity], kept: Mapping[Entity, str]) -> None:
    """Raise PolicyError if an entity that must be absent cannot be removed."""
    errors = [f"{entity.text}: {kept[entity]}" for entity in absent if entity in kept]
    for entity in absent:
        inside = contents(state, entity.name) if entity.kind == "account" else []
        if inside:
            errors.append(f"{entity.text}: is not empty: {', '.join(thing.text for thing in inside)}")
    if errors:
        raise PolicyError("\n".join(errors))


def _apply(
    sacctmgr: Sacctmgr,
    state: State,
    changes: Sequence[AccountingChange],
    find_changes: Callable[[State], list[AccountingChange]],
    closed: Collection[str],
) -> None:
    """Apply changes in a few processes, and those that Slurm did not take once more. Raises AccountingError."""
    for load, lines in batches(state, changes, sacctmgr.cluster):
        sacctmgr.run(lines, load)
    state = sacctmgr.state()
    state.coordinators = sacctmgr.coordinators(closed)
    left = find_changes(state)
    messages = []
    if left:
        for load, lines in batches(state, left, sacctmgr.cluster):
            for part in [lines] if load else [[line] for line in lines]:
                failed, message = sacctmgr.run(part, load)
                if failed:
                    raise AccountingError(message)
                messages.append(message)
        state = sacctmgr.state()
        state.coordinators = sacctmgr.coordinators(closed)
        left = find_changes(state)
    if left:
        raise AccountingError("\n".join([*messages, "Slurm did not apply these changes:", *table(left)]))
