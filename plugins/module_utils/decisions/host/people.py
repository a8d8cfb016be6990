# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role people: the plan of people, and what the hosts say about it."""

from __future__ import annotations

import json
from collections.abc import Collection

from ...people.directory import directory_differences, lowered
from ...people.messages import host_lines
from ..known import registered
from ..known.run_host import RunHost

WAY_OUT = "Nothing was changed. Correct the plan (users and groups), or the accounts on these hosts."
DIRECTORY_WAY_OUT = (
    "Nothing was changed. Slurm needs the same ids on every host: check for local users of these names (/etc/passwd), "
    "and compare the settings of the directory's client, such as the ranges of ids in sssd.conf."
)


def plan(host: RunHost) -> str:
    """The plan as one text."""
    return str(host.shared("people_plan") or json.dumps(host["slurm_people"]))


def conflicts(host: RunHost) -> list[str]:
    """What contradicts the plan on the hosts of this play, and the way out; nothing without a conflict."""
    compared = registered.PEOPLE_COMPARED.by_host(host, host.play_hosts)
    found = host_lines({name: answer.get("conflicts", []) for name, answer in compared.items()})
    return [*found, WAY_OUT] if found else []


def warnings(host: RunHost) -> list[str]:
    """Users who leave, and what stays of them: on the hosts of this play, and in the database of Slurm."""
    applied = registered.PEOPLE_APPLIED.by_host(host, host.play_hosts)
    remarks = {name: answer.get("remarks", []) for name, answer in applied.items()}
    return [*host_lines(remarks), *_associations(host, {text for texts in remarks.values() for text in texts})]


def _associations(host: RunHost, remarks: Collection[str]) -> list[str]:
    """The line about the associations of users whom this run has removed; a policy with purge removes these as well."""
    users = host["slurm_people"].get("users", []) if host["slurm_database"] else []
    gone = [
        user["name"]
        for user in users
        if user.get("state") == "absent"
        and any(text.startswith(f"user {user['name']} is removed,") for text in remarks)
    ]
    purges = any(host.of(name).flag("slurm_accounting", "slurm_accounting_purge") for name in host["slurm_controllers"])
    if not gone or purges:
        return []
    return [
        f"What Slurm has of {', '.join(gone)} stays, associations and limits: sacctmgr delete user {','.join(gone)} "
        "removes it, as purge: true of the key accounting does"
    ]


def jobs_question(host: RunHost) -> list[str]:
    """The command that asks for the jobs of suspended users; empty without any."""
    users = [user["name"] for user in host["slurm_people"].get("users", []) if user.get("state") == "suspended"]
    fields = "--Format=JobID:21,BatchFlag:3,UserName:64"
    return ["timeout", "60", "squeue", "--noheader", f"--user={','.join(users)}", fields] if users else []


def jobs_that_end(host: RunHost) -> dict[str, str]:
    """The users of jobs of suspended users that do not go on, by the jobs' numbers.

    Slurm keeps the allocation of an srun or salloc that was killed until its time limit (srun(1)), so these jobs end in
    any case.
    """
    users = host["slurm_people"].get("users", [])
    ending = [user["name"] for user in users if user.get("state") == "suspended" and user.get("jobs") == "end"]
    rows = [line.split() for line in registered.PEOPLE_JOBS.seen(host).get("stdout_lines", [])]
    return {row[0]: row[2] for row in rows if len(row) == 3 and (row[1] != "1" or row[2] in ending)}


# -- people of a directory --------------------------------------------------------------------------------------------


def question(host: RunHost) -> list[str]:
    """The command that asks for the ids of the users of the directory; empty on a host where it did not answer."""
    run = registered.SLURM_RUN.of(host)
    answered = run["directory_answers"][host.name]["unknown"] is not None
    return ["timeout", "20", "getent", "passwd", "--", *lowered(run["directory_users"])] if answered else []


def directory(host: RunHost) -> dict[str, list[str]]:
    """The `remarks` name users whom hosts do not know and hosts that did not answer, the `conflicts` other ids."""
    said = {name: registered.PEOPLE_IDS.seen(host.of(name)).get("stdout", "") for name in host.play_hosts}
    run = registered.SLURM_RUN.of(host)
    found = directory_differences(run["directory_answers"], said, run["directory_users"])
    return {**found, "conflicts": [*found["conflicts"], DIRECTORY_WAY_OUT] if found["conflicts"] else []}
