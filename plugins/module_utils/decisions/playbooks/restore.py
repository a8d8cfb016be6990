# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of a restore (role backup): what is lost, what is put back, and which jobs that concerns.

The hosts with data have read the backup and checked their data (`slurm-backup look`), and compute nodes have named
their jobs. All rules read these answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...cluster import access_key
from ...cluster.package_source import files_version
from ...configuration import upgrade
from ...configuration.release_order import PACKAGE_SOURCE
from ...language.hostlist import expand, fold
from ..daemons import slurmd
from ..known import registered, secret_sources
from ..known.registered import Registered
from ..known.run_host import RunHost
from ..known.whole_cluster import backup_hosts
from ..servers.backup import PROGRAM

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import Command

IDS_A_SECOND = 40
"""Job ids that no cluster uses in each second: by default slurmctld has at most 10,000 jobs (MaxJobCount), and each of
them for 300 s after its end (MinJobAge), which makes 33. A task of an array gets its id when it starts."""

BURSTS = 10
"""How many times MaxJobCount jobs are submitted in a burst at most, in a backup's age."""

DEFAULTS = {"FirstJobId": 1, "MaxJobId": 0x03FF0000, "MaxJobCount": 10_000}
"""Those of Slurm (`src/common/read_config.h`)."""

HIGHEST_ID = 0x03FFFFFF
"""The highest MaxJobId; slurmctld takes a higher one for it."""


def primary(host: RunHost) -> str:
    """The controller whose state is put back."""
    return str(host["slurm_controllers"][0])


def _printed(host: RunHost, name: str, result: Registered[Command]) -> dict[str, Any]:
    """What slurm-backup printed on a host; empty if it did not run there, or if the cluster has no such host."""
    printed = result.seen(host.of(name)).get("stdout") if name else None
    found: dict[str, Any] = json.loads(printed or "{}")
    return found


# -- what is lost -----------------------------------------------------------------------------------------------------


def _answers(host: RunHost) -> dict[str, dict[str, Any]]:
    """What was found out about each part, by part."""
    return {
        "database": _printed(host, host["slurm_database"], registered.BACKUP_READ),
        "controller": _printed(host, state_holder(host), registered.BACKUP_READ),
    }


def state_holder(host: RunHost) -> str:
    """The first controller that has the state, which several controllers share; the primary if none has it."""
    answers = {name: _printed(host, name, registered.BACKUP_READ) for name in host["slurm_controllers"]}
    having = (name for name, answer in answers.items() if answer.get("present", {}).get("controller"))
    return next(having, primary(host))


def parts(host: RunHost) -> list[str]:
    """The parts that are lost, and are put back."""
    return [part for part, answer in _answers(host).items() if "present" in answer and not answer["present"][part]]


def puts_state(host: RunHost) -> bool:
    """Whether the state of slurmctld is put back."""
    return "controller" in parts(host)


def puts_state_here(host: RunHost) -> bool:
    """Whether it is put back on this host."""
    return host.name == primary(host) and puts_state(host) and not _has_appeared(host)


def checks_directory(host: RunHost) -> bool:
    """Whether the controllers have to have one state directory first: a mount could be missing."""
    return puts_state(host) and len(host["slurm_controllers"]) > 1


def _has_appeared(host: RunHost) -> bool:
    """Whether the state was there when the storage had been mounted."""
    now = registered.BACKUP_STATE_NOW.seen(host.of(primary(host)))
    return bool((now.get("stat") or {}).get("exists"))


def backups(host: RunHost) -> dict[str, dict[str, Any]]:
    """The last backup of each part."""
    answers = _answers(host)
    found: dict[str, dict[str, Any]] = (answers["controller"] or answers["database"])["backups"]
    return found


def lacks_secrets(host: RunHost) -> bool:
    """Whether the control host lacks the secrets of the cluster, and the backup has them."""
    return "controller" in backups(host) and not secret_sources.is_known(host, secret_sources.MUNGE)


# -- refusals ---------------------------------------------------------------------------------------------------------


def reading_objection(host: RunHost) -> str:
    """Why the backup cannot be read; empty if it can."""
    missing = [name for name in backup_hosts(host) if name not in host.play_hosts]
    if missing:
        return f"Nothing was changed. These hosts have to take part, bare or not: {', '.join(missing)}"
    if not host["slurm_backup"]:
        return "slurm_backup is empty: name the target of the backup (cluster file, backup: target)"
    if not secret_sources.is_known(host, secret_sources.BACKUP):
        path = secret_sources.path(host, secret_sources.BACKUP)
        return f"{path} is missing: put your copy of the key of the backup there"
    return ""


def objection(host: RunHost) -> str:
    """Why nothing can be put back; empty if something can."""
    wanted, answers = parts(host), _answers(host)
    # A restore was killed after it had put data back, and before its daemons ran with them.
    continues = any(answer.get("unfinished") for answer in answers.values())
    if not wanted and not continues:
        others = host["slurm_database_server"].get("host", "")
        database = f"{others or host['slurm_database']} has the database, " if host["slurm_database"] else ""
        if others:
            database = f"{database}which its administrator restores, "
        return (
            f"Nothing is lost: {database}{state_holder(host)} has the state of slurmctld. Existing data are never "
            "overwritten. Run gpucluster.slurm.site, which makes the lost hosts anew."
        )
    unsaved = [part for part in wanted if part not in backups(host)]
    if unsaved:
        return f"{host['slurm_backup']['target']} has no backup of: {', '.join(unsaved)}"
    return ""


def accepts_conversion(host: RunHost) -> bool:
    """Whether the daemons of a later release may convert what is put back."""
    return host.flag("backup", "backup_convert")


@dataclass(frozen=True)
class ReleaseDifference:
    """A part of the backup, and its host, which has another release of Slurm."""

    text: str
    release: str
    """That of the backup."""
    later: bool
    """Whether the host has a later one."""


def release_differences(host: RunHost) -> list[ReleaseDifference]:
    """The parts that are put back into hosts of another release, as far as both are known.

    The cluster may have a later release than the backup, so the comparison of the hosts with each other does not tell.
    """
    found = []
    for part in parts(host):
        saved, name = backups(host)[part], primary(host) if part == "controller" else host["slurm_database"]
        slurm = host.of(name).facts["slurm"]
        version = slurm["installed"] or files_version(host["slurm_packages"]) or slurm["candidate"]
        before, after = upgrade.parts(saved["slurm"])[0], upgrade.parts(version)[0]
        if before and after and before != after:
            what = f"the backup of the {part} of {saved['time']} is one of Slurm {saved['slurm']}"
            has = f"{name} {'has' if slurm['installed'] else 'would get'} {version}"
            found.append(ReleaseDifference(f"{what}, and {has}", before, before < after))
    return found


def release_objection(host: RunHost) -> str:
    """Why the hosts must not get what is put back: their Slurm is of another release; empty if they may."""
    refused = [found for found in release_differences(host) if not (found.later and accepts_conversion(host))]
    if not refused:
        return ""
    then = (
        " and then gpucluster.slurm.upgrade. If the other hosts have the later release already, -e backup_convert=true "
        "lets slurmdbd and slurmctld convert what is put back"
    )
    return (
        f"Nothing was changed: {'; '.join(found.text for found in refused)}. "
        f"{PACKAGE_SOURCE.format(release=refused[0].release)}; remove those that it has, and run "
        f"gpucluster.slurm.restore again{then if all(found.later for found in refused) else ''}"
    )


def lost_jobs_objection(host: RunHost) -> str:
    """The jobs that slurmctld would end, because the backup does not have them as running; empty without any."""
    jobs = compared_jobs(host)
    lost = "; ".join(f"{job} on {', '.join(nodes)}" for job, nodes in jobs.get("lost", {}).items())
    if not lost:
        return ""
    shared = " If their state is on storage that this run has not mounted yet, run gpucluster.slurm.site instead."
    return (
        f"Nothing was changed. The backup of {jobs.get('time', '')} does not have these jobs as running, so slurmctld "
        f"would end them: {lost}. Wait for their end, or accept it with -e backup_end_jobs=true."
        f"{shared if checks_directory(host) else ''}"
    )


# -- what is put back -------------------------------------------------------------------------------------------------


def release(host: RunHost) -> dict[str, str]:
    """The latest version of Slurm that the parts are of, for the comparison of releases; empty if it is not known.

    A conversion that is accepted lets the hosts have a later release.
    """
    saved = {} if accepts_conversion(host) else backups(host)
    if not saved:
        return {}
    known = sorted(saved[part]["slurm"] for part in parts(host) if saved[part].get("slurm"))
    return {"release": known[-1], "source": f"the backup in {host['slurm_backup']['target']}"} if known else {}


def announcement(host: RunHost) -> list[str]:
    """Lines about what is put back, and about what happened between the backup and the loss."""
    saved = backups(host)
    wanted = [f"from the backup: {part}, {saved[part]['time']}" for part in parts(host)]
    wanted += [f"converted by a later release: {found.text}" for found in release_differences(host) if found.later]
    return (wanted or ["all data are restored; an interrupted restore continues"]) + events(host)


def events(host: RunHost) -> list[str]:
    """Lines about what happened between the backup and the loss."""
    found = compared_jobs(host)
    over = ended_jobs(host)
    open_ = [name for name in found.get("ended", {}) if name not in over]
    lines = {
        "jobs that ran at the time of the backup and run no more: they are ended, and not requeued": over,
        "jobs that ran at the time of the backup, and of which it is not known whether they run: they stay": open_,
    }
    said = [f"{what}: {', '.join(names)}" for what, names in lines.items() if names]
    known = running_jobs(host)
    unasked = [name for name in host.members("slurm_compute") if name not in known]
    if unasked and puts_state(host):
        said.append(f"the jobs of these nodes are unknown, since they were not reached: {fold(unasked)}")
    return [*found.get("words", []), *_later_jobs(host).get("words", []), *said]


# -- jobs -------------------------------------------------------------------------------------------------------------


def running_jobs(host: RunHost) -> dict[str, Any]:
    """The jobs of each compute node that has answered."""
    answers = registered.BACKUP_STEPS.by_host(host, host.members("slurm_compute")).items()
    return {
        name: answer["ansible_facts"]["slurm_host"]["jobs"] for name, answer in answers if "ansible_facts" in answer
    }


def compared_jobs(host: RunHost) -> dict[str, Any]:
    """How these jobs differ from those of the backup (`slurm-backup jobs`)."""
    return _printed(host, primary(host), registered.BACKUP_COMPARED)


def _later_jobs(host: RunHost) -> dict[str, Any]:
    """The jobs that the database has since the backup of the state (`slurm-backup since`)."""
    return _printed(host, host["slurm_database"], registered.BACKUP_SINCE_READ)


def later_jobs_command(host: RunHost) -> list[str]:
    """The command that finds them."""
    seconds, number = backups(host)["controller"]["seconds"], compared_jobs(host)["next_job_id"]
    return [PROGRAM, "since", str(seconds), str(number)]


def ended_jobs(host: RunHost) -> list[str]:
    """The jobs that ran at the time of the backup and run on no node now, as scancel takes them.

    Nothing is known of nodes that were not reached, nor without the step extern: salloc needs no other step.
    """
    flags = str(host["slurm_conf"].get("PrologFlags", "contain")).lower()
    if not any(value in flags for value in access_key.CONTAINS):
        return []
    asked = running_jobs(host).keys()
    return [name for name, nodes in compared_jobs(host).get("ended", {}).items() if asked >= {*expand(nodes)}]


def state_command(host: RunHost) -> list[str]:
    """The command that puts the state back."""
    return [
        PROGRAM,
        "restore",
        "controller",
        f"--next-job-id={next_job_id(host)}",
        *(["--ended", *ended_jobs(host)] if ended_jobs(host) else []),
    ]


def next_job_id(host: RunHost) -> int:
    """The next job id: none that may have been given since the backup, of which nobody may know any more."""
    found = compared_jobs(host)
    used = [*found.get("used", []), *_later_jobs(host).get("submitted", [])]
    first, last, jobs = (int(host["slurm_conf"].get(*default)) for default in DEFAULTS.items())
    gap = BURSTS * jobs + IDS_A_SECOND * int(found["age"])
    return id_after(int(found["next_job_id"]), used, gap, max(first, 1), min(last, HIGHEST_ID))


def id_after(saved: int, used: Iterable[int], gap: int, first: int, last: int) -> int:
    """The job id that leaves out so many, and those that are known to be used.

    slurmctld gives the ids from the first up to the last but one, and begins again (`get_next_job_id` in
    `src/slurmctld/job_mgr.c`). Half of them are left out at most, so that recent ones come last.
    """
    span = max(last - first, 2)
    place = max(saved - first, 0)
    later = [(number - first - place) % span + 1 for number in used]
    gap = min(gap, span // 2)
    return first + (place + max([gap, *(number for number in later if number <= span // 2)])) % span


# -- the end ----------------------------------------------------------------------------------------------------------


def restored_parts(host: RunHost) -> list[dict[str, Any]]:
    """What each restore said. A host that has both parts restores them in two tasks."""
    found = [
        _printed(host, host["slurm_database"], registered.BACKUP_RESTORED_DATABASE),
        _printed(host, primary(host), registered.BACKUP_RESTORED_STATE),
    ]
    return [part for part in found if part]


def result(host: RunHost) -> dict[str, Any]:
    """What was restored, for the statistics of the run."""
    return {"parts": restored_parts(host), "jobs": compared_jobs(host), "since": _later_jobs(host)}


def report(host: RunHost) -> list[str]:
    """Lines about what was restored."""
    kept = ["the state of slurmctld is on its storage, and was not put back"] if _has_appeared(host) else []
    lines = [*kept, *(part["words"] for part in restored_parts(host)), *events(host)]
    # sacctmgr writes a title and a question around the jobs.
    runaway = re.findall("(?m)^([0-9_+]+)[|]", registered.BACKUP_RUNAWAY.seen(host).get("stdout", ""))
    if runaway:
        lines.append(
            "jobs that the database has as running and slurmctld does not know (sacctmgr show runawayjobs ends them): "
            + ", ".join(runaway)
        )
    return [*lines, _last_line(host)]


def _last_line(host: RunHost) -> str:
    """The end of the report, with the nodes that wait for a person."""
    if host.check_mode:
        return "nothing was restored, since check mode changes nothing"
    drained = slurmd.drained(registered.BACKUP_NODES.seen(host).get("stdout_lines") or [])
    left_out = f"; drained, without new jobs until they are resumed: {drained}" if drained else ""
    return f"the restore is complete{left_out}"
