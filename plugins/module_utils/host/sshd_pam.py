# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PAM's files of sshd on Debian and Ubuntu: who passes, and with which session.

The collection's own lines are a marked part at the top of sshd's file. PAM evaluates the lines of each type in their
order, so that no module of another line can end the evaluation before them; common-account, which follows, still
refuses expired accounts.

A process that pam_slurm_adopt has added to a job must stay there, and pam_systemd would take it into a session of
systemd. So sshd alone gets a copy of common-session without it; the console, su and cron keep theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .files import with_part, without_part

SSHD = "/etc/pam.d/sshd"
COMMON = "/etc/pam.d/common-session"
SESSION = "/etc/pam.d/gpucluster-slurm-session"
"""The copy of COMMON for sshd."""
ADMINISTRATORS = "/etc/security/gpucluster-slurm-access.conf"
"""Who is an administrator (access.conf(5))."""

WHO = ("all", "administrators", "job")
"""Who passes: everybody whom the other lines let pass, administrators, or these and users with a job on the host."""

MARKER = "# {mark} gpucluster.slurm"

_MEMBER = f"pam_access.so accessfile={ADMINISTRATORS} nodefgroup listsep=,"
_LINES = {
    "administrators": f"account required {_MEMBER}\n",
    # An administrator jumps over Slurm's module, which needs slurmd.
    "job": f"account [success=1 default=ignore] {_MEMBER}\n"
    "account required pam_slurm_adopt.so action_adopt_failure=deny action_generic_failure=deny\n",
}
_ITS_SESSION = re.compile(r"(?m)^@include[ \t]+common-session[ \t]*$")
_OWN_SESSION = re.compile(r"(?m)^@include[ \t]+gpucluster-slurm-session[ \t]*$")
_INCLUDED = re.compile(r"(?m)^(?:@include|-?session\s+(?:include|substack))\s+(\S+)")
_SYSTEMD = re.compile(r"(?m)^-?session\s.*\bpam_systemd\.so\b.*$")

_MANAGED = "# Managed by gpucluster.slurm: a copy of common-session for sshd, without pam_systemd.\n"


def sshd_file(present: str, who: str) -> str:
    """The text of sshd's file by its present text. Without own lines, the file is again what it was before."""
    previous = without_part(present.encode(), MARKER).decode() if MARKER.format(mark="BEGIN") in present else present
    previous = _OWN_SESSION.sub("@include common-session", previous)
    if who == "all":
        return previous
    if who == "job":
        previous = _ITS_SESSION.sub("@include gpucluster-slurm-session", previous)
    return with_part(b"", _LINES[who].encode(), MARKER).decode() + previous


def session_file(common: str) -> str:
    """The text of the copy of common-session. The other line keeps the number of modules, over which lines may jump."""
    return _MANAGED + _SYSTEMD.sub("session optional pam_permit.so", common)


def who_passes(sshd: str, common: str, session: str) -> str:
    """Whom sshd's file lets pass, one of WHO; empty if it has own lines that are not as they should be."""
    for who in WHO:
        if sshd == sshd_file(sshd, who) and (who != "job" or session == session_file(common)):
            return who
    return ""


def with_systemd(text: str, read: Callable[[str], str], name: str = SSHD) -> str:
    """The file with a line by which sshd still reaches pam_systemd; empty if there is none.

    text: the text of the file `name`. read: returns the text of another file by its path.
    """
    if _SYSTEMD.search(text):
        return name
    paths = (f"/etc/pam.d/{included}" for included in _INCLUDED.findall(text))
    found = (with_systemd(read(path), read, path) for path in paths if path not in (name, SESSION))
    return next(filter(None, found), "")
