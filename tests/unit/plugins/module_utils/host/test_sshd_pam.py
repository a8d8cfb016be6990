# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PAM's files of sshd: the collection's lines, the session without pam_systemd, and the way back."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.sshd_pam import (
    WHO,
    session_file,
    sshd_file,
    who_passes,
    with_systemd,
)

SSHD = """\
# PAM configuration for the Secure Shell service
@include common-auth
account    required     pam_nologin.so
@include common-account
session    required     pam_loginuid.so
@include common-session
session    required     pam_limits.so
@include common-password
"""
COMMON = """\
session	[default=1]			pam_permit.so
session	requisite			pam_deny.so
session	required			pam_permit.so
session	required	pam_unix.so
session	optional	pam_systemd.so
"""


def test_the_lines_come_first_and_pam_systemd_does_not_come() -> None:
    jobs = sshd_file(SSHD, "job")
    first, second, third = (line for line in jobs.split("\n") if line.startswith("account"))
    assert first.startswith("account [success=1 default=ignore] pam_access.so accessfile=/etc/security/")
    assert second.startswith("account required pam_slurm_adopt.so")
    assert "action_generic_failure=deny" in second
    assert third == "account    required     pam_nologin.so"
    assert "@include gpucluster-slurm-session\n" in jobs
    assert "@include common-session\n" not in jobs
    session = session_file(COMMON)
    assert "pam_systemd.so" not in session
    assert session.count("\nsession") == COMMON.count("session\t")


def test_administrators_alone_keep_pam_systemd() -> None:
    text = sshd_file(SSHD, "administrators")
    assert "account required pam_access.so" in text
    assert "slurm_adopt" not in text
    assert "@include common-session\n" in text


@pytest.mark.parametrize("before", WHO)
@pytest.mark.parametrize("after", WHO)
def test_each_change_is_complete_and_has_a_way_back(before: str, after: str) -> None:
    text = sshd_file(sshd_file(SSHD, before), after)
    assert text == sshd_file(SSHD, after)
    assert sshd_file(text, "all") == SSHD
    assert who_passes(text, COMMON, session_file(COMMON)) == after


@pytest.mark.parametrize(
    ("sshd", "common", "session"),
    [
        (sshd_file(SSHD, "job"), COMMON, ""),
        (sshd_file(SSHD, "job"), COMMON + "session optional pam_mkhomedir.so\n", session_file(COMMON)),
        (sshd_file(SSHD, "job").replace("action_generic_failure=deny", ""), COMMON, session_file(COMMON)),
        (sshd_file(SSHD, "job").replace("gpucluster-slurm-session", "common-session"), COMMON, ""),
    ],
)
def test_lines_that_somebody_has_changed_are_seen(sshd: str, common: str, session: str) -> None:
    assert who_passes(sshd, common, session) == ""


def test_a_file_without_a_newline_at_its_end_is_nobodys_change() -> None:
    assert who_passes(SSHD.rstrip("\n"), COMMON, "") == "all"
    assert who_passes("", "", "") == "all", "a host without sshd"


def test_another_way_to_pam_systemd_is_found() -> None:
    files = {"/etc/pam.d/common-session": COMMON, "/etc/pam.d/site": "session include common-session\n"}
    jobs = sshd_file(SSHD, "job")
    assert with_systemd(jobs, lambda path: files.get(path, "")) == ""
    assert with_systemd(jobs + "@include site\n", lambda path: files.get(path, "")) == "/etc/pam.d/common-session"
    assert with_systemd(jobs + "-session optional pam_systemd.so\n", lambda _path: "") == "/etc/pam.d/sshd"
    assert with_systemd(jobs + "# session optional pam_systemd.so\n", lambda _path: "") == ""
