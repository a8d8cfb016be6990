#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_people
short_description: Give a host the users and groups of a plan
description:
  - Creates the accounts of a whole list of users, with their groups and SSH keys, and changes or removes those that
    differ from the plan. C(/etc/passwd), C(/etc/shadow), C(/etc/group) and C(/etc/gshadow) are changed as complete
    texts under their lock, checked with pwck(8) and grpck(8). Lines of other users and groups stay as they are.
  - A user is known by name and id. With an account that contradicts the plan (C(conflicts)) the module fails before it
    changes anything; in check mode it only returns the conflicts.
  - New users have no password, and the passwords of others stay. Keys are in C(/etc/ssh/people.keys.d), where only root
    can write. For the group C(people) of all users of the plan, a drop-in of sshd names this directory alone, so that
    keys in their homes no longer count.
  - A suspended user has no key, a locked password and an expired account, which PAM refuses for ssh, su, cron and at.
    The user's sessions are ended, and the processes of jobs are not.
  - Homes are neither created nor removed.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_people]
"""

EXAMPLES = r"""
- name: Create an account
  gpucluster.slurm.slurm_people: {plan: {groups: [], users: [{name: alice, uid: 5001}]}}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import NOT_STARTED, Answer, run
from ..module_utils.host.files import File, write, write_new
from ..module_utils.host.job_processes import ancestors, processes
from ..module_utils.host.locks import accounts_locked
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option
from ..module_utils.host.plan_result import PlanRow, plan_result
from ..module_utils.language.errors import CollectionError
from ..module_utils.language.formatting import limited
from ..module_utils.people import sessions
from ..module_utils.people.accounts import (
    PeopleRecord,
    Texts,
    conflicts,
    differences,
    homes_to_check,
    lowest,
    new_texts,
    rows,
)
from ..module_utils.people.plan import PeoplePlan, read_plan
from ..module_utils.people.state import (
    KEYS,
    RECORD,
    SSHD,
    SSHD_TEXT,
    build_record,
    key_path,
    key_text,
    read,
    read_applied_plan,
    read_record,
    read_texts,
    record_text,
)

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import PeopleResult

TIMEOUT = 30
"""Seconds to wait for another program that changes the accounts."""
HOME_SECONDS = 20
"""The time limit to find the owners of all homes, which may be on a server that does not answer."""
MEMBERS = re.compile(r"^([^:\n]*:[^:\n]*:[^:\n]*):[^:\n]*$", re.MULTILINE)
"""A line of group or gshadow."""
LINGER = "/var/lib/systemd/linger"


class PeopleError(CollectionError):
    """Accounts that cannot be changed, and why."""


def home_owners(homes: Iterable[str]) -> tuple[dict[str, int], list[str]]:
    """The ids of the owners of homes that exist, by path, and a warning. It does not wait for a server for long."""
    names = "".join(f"{home}\0" for home in homes)
    if not names:
        return {}, []
    command = ["timeout", "--signal=KILL", str(HOME_SECONDS), "xargs", "-0", "stat", "--format=%u %n", "--"]
    answer = run(command, names, HOME_SECONDS + 5)
    owners = {}
    for line in answer.output.split("\n"):
        uid, _blank, path = line.partition(" ")
        if path:
            owners[path] = int(uid)
    # xargs ends with 123 where some homes do not exist.
    silent = answer.status not in (0, 123)
    return owners, [
        f"the owners of homes were not found within {HOME_SECONDS} s, and are not compared with the plan"
    ] if silent else []


def lockouts(plan: PeoplePlan, texts: Texts) -> list[str]:
    """Conflicts with the user of this connection, who would be locked out."""
    running = processes()
    uids_of_connection = {uid for process in ancestors(os.getpid(), running) for uid in process.uids}
    shadows = rows(texts["shadow"], 9)
    problems = []
    for user in plan.users:
        if user.uid in uids_of_connection and user.uid:
            password = shadows.get(user.name, ["", "*"])[1]
            if not user.usable:
                problems.append(f"user {user.name}, as whom Ansible works here, is {user.state} in the plan")
            elif not user.keys and password.startswith(("*", "!")):
                problems.append(f"user {user.name}, as whom Ansible works here, has no key in the plan")
    return problems


def complaints(texts: Texts) -> set[str]:
    """The errors that pwck(8) and grpck(8) find in account files.

    grpck gets groups without members: it would ask for each of them, on some hosts a directory service.
    """
    said = set()
    with tempfile.TemporaryDirectory(prefix="people-") as directory:
        for name, text in texts.items():
            content = text if name in ("passwd", "shadow") else MEMBERS.sub(r"\1:", text)
            write_new(f"{directory}/{name}", content.encode(errors="surrogateescape"), 0o600)
        for program, *names in (("pwck", "passwd", "shadow"), ("grpck", "group", "gshadow")):
            # Without --quiet, pwck checks homes, which may be on a server that does not answer.
            paths = [f"{directory}/{name}" for name in names if name in texts]
            answer = run([program, "--quiet", "--read-only", *paths])
            if answer.status:
                said |= {*answer.message.replace(directory, "/etc").split("\n")}
    return {line for line in said if line and not line.endswith(("? No", ": no changes"))}


def check(before: Texts, after: Texts) -> None:
    """Raises PeopleError if the new files have errors that the present ones do not have."""
    if (said := complaints(after)) and (new := sorted(said - complaints(before))):
        raise PeopleError(f"the new files would have errors: {'; '.join(limited(new))}")


def account_files(before: Texts, after: Texts) -> list[File]:
    """The files that differ, with the owner and mode that they have."""
    files = []
    for name, text in after.items():
        if text != before[name]:
            file = File(f"/etc/{name}", text.encode(errors="surrogateescape"), secret=True)
            file.ids, file.mode = file.found_as
            files.append(file)
    return files


def key_files(plan: PeoplePlan) -> tuple[list[File], list[str]]:
    """The files of keys that differ, and those that must not be there."""
    texts = {key_path(user.name): key_text(user) for user in plan.users}
    files = [File(path, text.encode()) for path, text in texts.items() if text is not None]
    for file in files:
        file.synced = False  # if the host loses power now, the record shows the next run what is missing
    gone = [path for path, text in texts.items() if text is None and os.path.lexists(path)]
    return [file for file in files if file.changes], gone


def sshd(*options: str) -> Answer:
    """What sshd says of its configuration."""
    os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # sshd needs it, and has it only while its service runs
    return run(["/usr/sbin/sshd", *options])


def set_up_sshd(plan: PeoplePlan, file: File) -> None:
    """Write the drop-in, and reload sshd if it takes the configuration. Raises PeopleError; then it is as before."""
    try:
        write([file])
        answer = sshd("-t")
        if answer.status == NOT_STARTED:
            return
        if answer.status:
            raise PeopleError(f"sshd -t: {answer.message}")
        for name in list(plan.accounts)[:1]:
            shown = sshd("-T", "-C", f"user={name},host=localhost,addr=127.0.0.1").output
            used = [line for line in shown.split("\n") if line.lower().startswith("authorizedkeysfile ")]
            if used != [f"authorizedkeysfile {KEYS}/%u"]:
                what = used[0] if used else "nothing"
                raise PeopleError(
                    f"sshd has {what} for {name} instead of {KEYS}/%u. {SSHD} has no effect: /etc/ssh/sshd_config does "
                    "not include sshd_config.d, or an earlier Match sets AuthorizedKeysFile"
                )
    except PeopleError:
        if file.found is None:
            os.unlink(file.path)
        else:
            write([File(file.path, file.found)])
        raise
    for unit in ("ssh.service", "sshd.service"):
        if run(["systemctl", "is-active", "--quiet", unit]).status == 0:
            answer = run(["systemctl", "reload", unit])
            if answer.status:
                raise PeopleError(f"systemctl reload {unit}: {answer.message}")
            break


def record_file(record: PeopleRecord) -> File:
    """The file of the record."""
    return File(RECORD, record_text(record).encode(), mode=0o600)


def outcome(plan: PeoplePlan, before: Texts, record: PeopleRecord) -> list[str]:
    """Messages about users whose accounts are removed or not managed any more."""
    people = rows(before["passwd"], 7)
    named = {user.name for user in plan.users}
    removed = [people[name] for name in plan.absent if name in people]
    left = [name for name in record.known if name not in named and name in people]
    return [f"user {row[0]} is removed, and the home {row[5]} stays" for row in removed] + [
        f"user {name} is not in the plan and keeps the account" for name in left
    ]


@dataclass(frozen=True)
class Change:
    """A change of the accounts of this host."""

    plan: PeoplePlan
    checksum: str
    record: PeopleRecord
    before: Texts
    after: Texts
    keys: list[File]
    """The files of keys that differ."""
    gone: list[str]
    """Files of keys that must not be there."""
    drop_in: File
    barred: dict[int, str]
    """The names of users who are suspended or absent, by uid."""

    def described(self) -> list[PlanRow]:
        """What changes, for the result of the module."""
        files = [file for file in [*self.keys, self.drop_in] if file.changes]
        changes = differences(self.before, self.after)
        changes += [{"what": file.path, "before": _shown(file.found), "after": _shown(file.content)} for file in files]
        changes += [{"what": path, "before": "present", "after": None} for path in self.gone]
        if self.record.plan != self.checksum or read_applied_plan() != self.checksum:
            what = f"checksum of the plan in {RECORD}"
            changes.append({"what": what, "before": self.record.plan or None, "after": self.checksum})
        return changes


def plan_change(plan: PeoplePlan, checksum: str, record: PeopleRecord, before: Texts) -> Change:
    """The change from the present accounts to those of the plan."""
    keys, gone = key_files(plan)
    barred = {user.uid: user.name for user in plan.users if not user.usable}
    drop_in = File(SSHD, SSHD_TEXT.encode())
    return Change(plan, checksum, record, before, new_texts(plan, before), keys, gone, drop_in, barred)


def put_in_force(change: Change) -> None:
    """Change the accounts, keys and sshd, and end processes of those barred. Raises PeopleError, FileError, OSError."""
    check(change.before, change.after)
    os.makedirs(KEYS, mode=0o755, exist_ok=True)
    os.chown(KEYS, 0, 0)
    os.chmod(KEYS, 0o755)
    for path in change.gone:
        os.unlink(path)
    write(change.keys + account_files(change.before, change.after))
    if os.path.exists("/run/nscd/socket"):
        run(["nscd", "--invalidate=passwd"])
        run(["nscd", "--invalidate=group"])
    # A record without a plan tells the next run to reload sshd, if this one is killed before it does.
    if change.drop_in.changes or not change.record.plan:
        write([record_file(replace(change.record, plan=""))])
        set_up_sshd(change.plan, change.drop_in)
    for name in change.barred.values():
        with suppress(FileNotFoundError):
            os.unlink(f"{LINGER}/{name}")
    if change.barred and (rest := sessions.end(change.barred, lambda name: run(["loginctl", "terminate-user", name]))):
        raise PeopleError(f"{rest} processes of users who are suspended or absent have not ended")
    write([record_file(build_record(change.plan, change.checksum, change.record))])


def apply(plan: PeoplePlan, checksum: str, check_mode: bool) -> PeopleResult:
    """The module's result. Raises PeopleError, FileError, OSError."""
    record, before = read_record(), read_texts()
    owners, remarks = home_owners(homes_to_check(plan, before, record))
    problems = conflicts(plan, before, record, lowest(read("/etc/login.defs") or ""), owners) + lockouts(plan, before)
    if problems:
        return {"changed": False, "conflicts": limited(problems), "remarks": [], "diff": []}
    change = plan_change(plan, checksum, record, before)
    running = sessions.outside_jobs(sessions.all_ids(change.barred), processes()) if change.barred else []
    remarks += outcome(plan, before, record)
    if running:
        remarks.append(f"{len(running)} processes of users who are suspended or absent are ended")
    changes = change.described()
    if not check_mode:
        put_in_force(change)
    return {
        "changed": bool(changes or running),
        "conflicts": [],
        "remarks": limited(remarks),
        "diff": plan_result(changes)["diff"],
    }


def _shown(content: bytes | None) -> str | None:
    return None if content is None else "; ".join(content.decode(errors="replace").removesuffix("\n").split("\n"))


def change_people(module: AnsibleModule) -> PeopleResult:
    """Apply the plan, and return the module's result. Raises as `apply`, and PeopleError for conflicts."""
    text = module.params["plan"]
    plan, checksum = read_plan(text), hashlib.sha256(text.encode()).hexdigest()
    if module.check_mode:
        result = apply(plan, checksum, check_mode=True)
    else:
        with accounts_locked(TIMEOUT):
            result = apply(plan, checksum, check_mode=False)
        if result["conflicts"]:
            raise PeopleError("; ".join(result["conflicts"]), **result)
    if not module._diff:  # pylint: disable=protected-access  # Ansible has no other name for it
        del result["diff"]
    return {**result, "invocation": UNSENT}


UNSENT: dict[str, object] = {"module_args": {}}
"""The plan of thousands of users is not sent back."""

ARGUMENTS = {
    "plan": option(
        "The plan, a mapping or its JSON text, with the lists C(users) and C(groups). A user has C(name) and C(uid), "
        "and optionally C(gid) (default the C(uid)), C(groups), C(full_name), C(home), C(shell), C(keys), and "
        "C(state), V(present), V(suspended) or V(absent). A primary group that is not in C(groups) gets the name of "
        "its user. A group has C(name) and C(gid). The group C(people) has the gid 967 unless it is in the list.",
        "json",
        required=True,
    )
}


def main() -> None:
    run_module(change_people, ARGUMENTS, failed={"invocation": UNSENT})


if __name__ == "__main__":
    main()
