#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_access
short_description: Change who can log in to a host, and take it back if nobody can
description:
  - Writes files of ssh, sshd, PAM and systemd, and edits the file of PAM for sshd.
  - A change of files by which a login could fail is confirmed by a second, new connection from the control host, as the
    same user and with the same way to become root, while the first one is still open. If the new connection fails, the
    previous files come back.
  - If the run is killed between the change and its confirmation, a timer of the host takes the change back after two
    minutes.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_access]
"""

EXAMPLES = r"""
- name: Let in administrators, and users who have a job on the node
  gpucluster.slurm.slurm_access: {who: job, administrators: [ops]}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import glob
import grp
import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host import sshd_pam
from ..module_utils.host.access_change import AccessChange
from ..module_utils.host.files import OPTION, File, FileError, check, from_options, replace
from ..module_utils.host.job_processes import processes, served_steps
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, several, switch

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import AccessResult

DIRECTORY = "/var/lib/gpucluster-slurm/access"
"""Directory of the previous files until the change is confirmed."""

GUARDED = ("/etc/pam.d/", "/etc/security/", "/etc/ssh/sshd_config.d/", "/etc/systemd/")
"""Where the files are by which a login can fail."""

MARK = b"Managed by gpucluster.slurm"

MODULES = ("/lib/security", "/lib/*/security", "/usr/lib/*/security")
"""Directories of PAM's modules, on Debian's architectures."""


def text(path: str) -> str:
    """The content of a file; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def pam_files(who: str) -> tuple[list[File], list[str]]:
    """The files of PAM that have to be there, in the order in which they are needed, and those that have not."""
    present = text(sshd_pam.SSHD)
    if not present:
        raise FileError(f"{sshd_pam.SSHD} is missing: this host has no sshd that asks PAM")
    sshd = File(sshd_pam.SSHD, sshd_pam.sshd_file(present, who).encode())
    if who != "job":
        return [sshd], [sshd_pam.SESSION]
    session = File(sshd_pam.SESSION, sshd_pam.session_file(text(sshd_pam.COMMON)).encode())
    return [session, sshd], []


def login_user() -> str:
    """The user of the connection, who has become root; empty if the host does not tell it."""
    if user := os.environ.get("SUDO_USER", ""):
        return user
    try:
        return pwd.getpwuid(int(text("/proc/self/loginuid").strip() or -1)).pw_name
    except (KeyError, ValueError, OverflowError):
        return ""


def groups_of(user: str) -> set[str]:
    """The names of a user's groups, from the host's own files and its directory services."""

    def name(number: int) -> str:
        try:
            return grp.getgrgid(number).gr_name
        except KeyError:
            return ""

    return {*map(name, os.getgrouplist(user, pwd.getpwnam(user).pw_gid))} - {""}


def jobs_without_external_step() -> list[str]:
    """Jobs of this host from before PrologFlags=contain: their users would be refused."""
    steps = served_steps(processes())
    lacking = {step.job for step in steps} - {step.job for step in steps if step.step == "extern"}
    return sorted(lacking, key=lambda job: (len(job), job))


def refuse(who: str, administrators: list[str], new_members: list[str], check_mode: bool) -> None:
    """Refuse a change of PAM that would lock out the administrator or users with jobs. Raises FileError.

    In check mode the package of pam_slurm_adopt may not be there yet.
    """
    user = login_user()
    if user not in ("", "root", *new_members):
        own = groups_of(user)
        if not own & {*administrators}:
            allowed = f"one of {', '.join(sorted(own))}" if own else "a group of this user"
            raise FileError(
                f"access.administrators: found {', '.join(administrators) or 'no group'}, allowed: {allowed}, since "
                f"the user of the connection, {user}, would be locked out; nothing was changed"
            )
    if who != "job":
        return
    if not check_mode and not any(glob.glob(f"{directory}/pam_slurm_adopt.so") for directory in MODULES):
        raise FileError("the module pam_slurm_adopt.so is missing: run stage base, which installs its package")
    common = sshd_pam.sshd_file(text(sshd_pam.SSHD), "job")
    if path := sshd_pam.with_systemd(common, text):
        raise FileError(
            f"{path} loads pam_systemd itself, which would take users' processes out of their jobs; leave it in "
            "common-session, of which sshd includes a copy without it"
        )


def who_may_pass(module: AnsibleModule) -> str:
    """Who passes sshd after this run: as wanted, or as now while there are jobs whose users would be refused."""
    wanted: str = module.params["who"]
    waiting = jobs_without_external_step() if wanted == "job" else []
    if not waiting:
        return wanted
    # sshd stays as it is. The next run finds the same difference.
    module.warn(
        f"{os.uname().nodename}: everybody may log in until these jobs have ended, which have no external step "
        f"since they began before PrologFlags=contain: {', '.join(waiting)}"
    )
    return sshd_pam.who_passes(*map(text, (sshd_pam.SSHD, sshd_pam.COMMON, sshd_pam.SESSION))) or "all"


@dataclass(frozen=True)
class AccessFiles:
    """The files that change."""

    written: list[File]
    removed: list[str]

    @property
    def guarded(self) -> list[File]:
        """Those of the written ones by which a login can fail."""
        return [file for file in self.written if file.path.startswith(GUARDED)]

    @property
    def can_lock_out(self) -> bool:
        """Whether a login can fail by the change."""
        return bool(self.guarded or self.removed)

    @property
    def diff(self) -> list[dict[str, str]]:
        """The diff of the change."""
        return [file.diff for file in self.written] + [
            {"before_header": path, "after_header": path, "before": "present\n", "after": "absent\n"}
            for path in self.removed
        ]


def find_changes(params: Params, who: str) -> AccessFiles:
    """The files that are not as wanted. Raises FileError, OSError."""
    files = from_options(params["files"])
    pam, unwanted = pam_files(who)
    return AccessFiles(
        [file for file in [*files, *pam] if file.changes],
        [path for path in (*params["absent"], *unwanted) if os.path.exists(path) and managed(path)],
    )


def present(module: AnsibleModule, change: AccessChange) -> AccessResult:
    """Make the change, and return the module's result. Raises FileError, OSError."""
    interrupted = change.unconfirmed
    if interrupted and not module.check_mode:
        change.restore()  # of a run that was killed
    who = who_may_pass(module)
    files = find_changes(module.params, who)
    if who != "all" and files.can_lock_out:
        new_members = module.params["members"] if module.check_mode else []
        refuse(who, module.params["administrators"], new_members, module.check_mode)
    check(files.written)  # a file that sshd refuses shows before another one changes
    if not module.check_mode:
        apply(change, files, module.params["start"])
    return {
        "changed": bool(files.written or files.removed or interrupted),
        "files": [*(file.path for file in files.written), *files.removed],
        "unproven": files.can_lock_out and module.params["start"] and not module.check_mode,
        "diff": files.diff,
    }


def apply(change: AccessChange, files: AccessFiles, start: bool) -> None:
    """Write and remove the files. Raises FileError, OSError.

    start: whether the change is in force at once, so that it must be confirmed.
    """
    if not start:
        replace(files.written)
        for path in files.removed:
            os.unlink(path)
        return
    replace([file for file in files.written if file not in files.guarded])
    if files.can_lock_out:
        change.apply(files.guarded, files.removed)


def managed(path: str) -> bool:
    """Whether a file is one of this collection."""
    with open(path, "rb") as file:
        return MARK in file.read(1024)


def change_access(module: AnsibleModule) -> AccessResult:
    """Do what the state asks for, and return the module's result. Raises FileError, OSError and ValueError."""
    change = AccessChange(DIRECTORY)
    if module.params["state"] == "present":
        return present(module, change)
    if module.params["state"] == "proven":
        change.confirm()
    else:
        change.restore()
    return {"changed": True, "files": [], "unproven": False}


ARGUMENTS = {
    "who": option(
        "Who passes sshd on this host, apart from root. V(all) is everybody with an account, as without this "
        "collection. V(administrators) is the members of O(administrators). V(job) is these, and users with a job on "
        "the host, whose processes become part of the job (pam_slurm_adopt).",
        choices=[*sshd_pam.WHO],
        default="all",
    ),
    "administrators": several(
        "Groups whose members pass in any case. The user of the connection must be root or in one of them."
    ),
    "members": several(
        "Users whom the run makes members of O(administrators). They count as members in check mode only."
    ),
    "files": OPTION,
    "absent": several(
        "Files of this collection that are not wanted on this host. Other files are left as they are.", "path"
    ),
    "state": option(
        "V(present) makes a change. V(proven) ends the timer, since a new connection has come through, and V(former) "
        "restores the previous files. Only the first one is for playbooks; the module's action on the control host "
        "uses the others.",
        choices=["present", "proven", "former"],
        default="present",
    ),
    "start": switch(
        "Whether the change comes into force now, with its check by a new connection. With V(false) the files are "
        "written and nothing is reloaded. The control host sets it where an image is built (C(slurm_image) of role "
        "C(gpucluster.slurm.slurm)).",
        default=True,
    ),
}


def main() -> None:
    run_module(change_access, ARGUMENTS)


if __name__ == "__main__":
    main()
