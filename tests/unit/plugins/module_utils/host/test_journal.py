# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal about a unit that did not start. The answers are those of systemd 257 on a host without nfsd."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import journal

UNITS = {
    "nfs-server": ("nfs-server.service", "inactive", "", "nfs-mountd.service system.slice sysinit.target"),
    "nfs-mountd": ("nfs-mountd.service", "inactive", "", "proc-fs-nfsd.mount rpcbind.socket"),
    "proc-fs-nfsd.mount": ("proc-fs-nfsd.mount", "failed", "99cec50f", "system.slice"),
    "scratch.mount": ("scratch.mount", "inactive", "", "dev-sdx.device -.mount"),
    "dev-sdx.device": ("dev-sdx.device", "inactive", "", ""),
    "loop": ("loop.service", "inactive", "", "loop.service"),
    "silent": ("silent.service", "inactive", "", "quiet.service"),
    "quiet": ("quiet.service", "failed", "77", ""),
}
JOURNAL = {
    "_SYSTEMD_INVOCATION_ID=99cec50f": (
        "mount: /proc/fs/nfsd: unknown filesystem type 'nfsd'.\n"
        "       dmesg(1) may have more information after failed mount system call.\n"
    ),
    "--unit=slurmd": "fatal: no\n",
    "--unit=quiet": "Failed to start quiet.service.\n",
}


def run(command: Sequence[str], **_more: object) -> Answer:
    """Answer as systemctl and journalctl do."""
    if command[0] == "journalctl":
        return Answer(0, JOURNAL.get(command[-1], ""), "")
    shown = []
    for name in command[command.index("--") + 1 :]:
        unit, state, invocation, requires = UNITS.get(name, (name, "active", "1", ""))
        shown.append(
            f"Requires={requires}\nRequisite=\nBindsTo=\nId={unit}\nActiveState={state}\nInvocationID={invocation}\n"
        )
    return Answer(0, "\n".join(shown), "")


@pytest.mark.parametrize(
    ("unit", "cause"),
    [
        ("nfs-server", "proc-fs-nfsd.mount has failed: mount: /proc/fs/nfsd: unknown filesystem type 'nfsd'."),
        ("scratch.mount", "dev-sdx.device is inactive"),
        ("silent", "quiet has failed: Failed to start quiet.service."),
        ("loop", ""),
    ],
)
def test_the_unit_behind_a_failed_dependency_is_named(monkeypatch: pytest.MonkeyPatch, unit: str, cause: str) -> None:
    monkeypatch.setattr(journal, "run", run)
    said = f"A dependency job for {unit}.service failed. See 'journalctl -xe' for details."
    assert journal.read_start_failure(unit, said, 15) == cause


def test_a_unit_that_failed_itself_has_its_own_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "run", run)
    assert journal.read_start_failure("slurmd", "Job for slurmd.service failed.", 15) == "fatal: no\n"
