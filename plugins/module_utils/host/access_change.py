# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of files that decide who can log in, with a timer on the host that takes it back unless it is confirmed.

The previous files are kept before anything is changed, with a script that restores them. A timer of systemd runs the
script after some time. Whoever renames the directory of the previous files first, the script or the
confirmation, decides.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from .files import File, FileError, write

UNIT = "gpucluster-slurm-access"
"""The timer's unit, which exists from the change to its confirmation."""

SECONDS = 120
"""The time after which the host takes a change back that no new connection and module have confirmed."""

SSHD = "/usr/sbin/sshd"


RELOADS = {
    "/etc/systemd/": "systemctl daemon-reload",
    "/etc/ssh/sshd_config.d/": "systemctl try-reload-or-restart ssh.service",
}
"""Folders of files that a daemon has to read again, with the command."""


class UnconfirmedError(FileError):
    """There is no change to confirm any more."""


def undo_script(directory: str, kept: Sequence[str], absent: Sequence[str]) -> str:
    """The script that restores the previous files.

    kept: their paths, in the order of their copies in the directory, 0, 1 and so on. absent: files that there were not.
    """
    taken = f"{directory}.undone"
    lines = [
        "#!/bin/sh",
        "# Managed by gpucluster.slurm. Takes back a change of access that no new connection has proved.",
        f"rm -rf {shlex.quote(taken)}",
        f"mv -T {shlex.quote(directory)} {shlex.quote(taken)} || exit 0",
    ]
    for number, path in enumerate(kept):
        copy = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.former")
        lines.append(f"cp -p {shlex.quote(f'{taken}/{number}')} {shlex.quote(copy)}")
        lines.append(f"mv -f {shlex.quote(copy)} {shlex.quote(path)}")
    lines += [f"rm -f {shlex.quote(path)}" for path in absent]
    return "\n".join([*lines, *reloads([*kept, *absent]), f"rm -rf {shlex.quote(taken)}", ""])


def reloads(paths: Sequence[str]) -> list[str]:
    """The commands after which files are in force. PAM reads its files at each login."""
    return [command for folder, command in RELOADS.items() if any(path.startswith(folder) for path in paths)]


class AccessChange:
    """A change of such files that is not confirmed yet."""

    def __init__(self, directory: str) -> None:
        """directory: for the previous files, on a disk; its parent is created if need be."""
        self.directory = directory
        self._undo = os.path.join(directory, "undo")

    @property
    def unconfirmed(self) -> bool:
        """Whether there is a change that nobody has confirmed, from this run or one that was killed."""
        return os.path.exists(self._undo)

    def apply(self, files: Sequence[File], gone: Sequence[str]) -> None:
        """Write files in their order, and remove others. The timer runs before the first change.

        Raises:
            FileError: sshd does not take the files, and the previous ones are back; or there is no timer.
            OSError: the disk is full, for example. Nothing has changed.
        """
        self._keep([*(file.path for file in files), *gone])
        try:
            start_timer(UNIT, ["/bin/sh", self._undo])
            write(files)
            for path in gone:
                os.unlink(path)
            _run([SSHD, "-t"])
            for command in reloads([*(file.path for file in files), *gone]):
                _run(command.split())
        except (FileError, OSError):
            self.restore()
            raise

    def restore(self) -> None:
        """Restore the previous files now, unless the timer has done so. Raises FileError."""
        if self.unconfirmed:
            _run(["/bin/sh", self._undo])
        stop_timer(UNIT)

    def confirm(self) -> None:
        """Keep the change, since a new connection has come through. Raises UnconfirmedError if the timer was faster."""
        confirmed = f"{self.directory}.proved"
        shutil.rmtree(confirmed, ignore_errors=True)  # of a run that was killed; usually there is none
        try:
            os.rename(self.directory, confirmed)
        except FileNotFoundError:
            raise UnconfirmedError(
                f"the host has restored the previous files, since no new connection confirmed the change within "
                f"{SECONDS} s",
                put_back=True,
            ) from None
        stop_timer(UNIT)
        shutil.rmtree(confirmed, ignore_errors=True)  # the change is confirmed; the next one removes what is left

    def _keep(self, paths: Sequence[str]) -> None:
        """Keep the previous files. The script is the last one, so that it is there only if they are complete."""
        os.makedirs(os.path.dirname(self.directory), mode=0o755, exist_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)  # of an earlier change; usually there is none
        os.mkdir(self.directory, mode=0o700)
        kept: list[str] = []
        absent: list[str] = []
        for path in paths:
            if os.path.exists(path):
                copy = os.path.join(self.directory, str(len(kept)))
                shutil.copy2(path, copy)
                status = os.stat(path)
                os.chown(copy, status.st_uid, status.st_gid)
                kept.append(path)
            else:
                absent.append(path)
        write([File(self._undo, undo_script(self.directory, kept, absent).encode(), mode=0o700)])


def start_timer(unit: str, command: Sequence[str]) -> None:
    """Let the host run a command after SECONDS, instead of an earlier one of this unit. Raises FileError."""
    stop_timer(unit)
    timer = ["--quiet", "--collect", f"--unit={unit}", f"--on-active={SECONDS}", "--timer-property=AccuracySec=1s"]
    _run(["systemd-run", *timer, *command])


def stop_timer(unit: str) -> None:
    """Stop a timer, if there is one."""
    # It fails where no timer runs. There is no module here, whose run_command pylint asks for.
    command = ["systemctl", "--quiet", "stop", f"{unit}.timer"]
    subprocess.run(command, check=False, capture_output=True)  # pylint: disable=ansible-bad-function


def _run(command: Sequence[str]) -> None:
    """Run a command. Raises FileError with its own message if it fails."""
    try:
        # The module's run_command has no limit of time.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, check=False, capture_output=True, text=True, timeout=60
        )
    except subprocess.TimeoutExpired:
        raise FileError(f"{' '.join(command)}: did not end within 60 s") from None
    if done.returncode:
        raise FileError(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
