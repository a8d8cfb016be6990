# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of a SPANK plugin that can be undone until a job has confirmed that the new one works.

The previous plugin is kept next to the plugin, and the previous line of plugstack.conf on the controller; an empty file
means that there was none. Files are replaced atomically. The copy is written before the original is replaced, and
copies are removed last. So after a run that was killed there is a complete plugin and the copy of the previous one, and
the next run continues from there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..configuration.spank import PluginError, plugin_release
from .files import File, write


@dataclass(frozen=True)
class Change:
    """A change of a file: it is written or removed."""

    path: str
    content: bytes | None
    """None: it is removed."""
    before: str
    after: str
    """The text that is shown of it."""

    @property
    def diff(self) -> dict[str, str]:
        """The diff of the change."""
        return {"before_header": self.path, "after_header": self.path, "before": self.before, "after": self.after}


class SpankPlugin:
    """A plugin on this host, and the copies of the previous plugin and line."""

    def __init__(self, path: str, directory: str) -> None:
        """`path`: the plugin, as plugstack.conf names it. `directory`: that in which the previous line is kept."""
        self.path = path
        self.previous = f"{path}.before"
        self.previous_line = os.path.join(directory, f"{os.path.basename(path)}.line.before")

    def install(self, sha256: str, plugin: bytes) -> list[Change]:
        """The changes that install a plugin. `sha256`: its checksum, in hexadecimal."""
        found = content(self.path)
        if found is not None and checksum(found) == sha256:
            return []
        keep = [] if os.path.exists(self.previous) else [_kept(self.previous, None, found or b"")]
        return [*keep, Change(self.path, plugin, _shown(found), f"sha256 {sha256}\n")]

    def keep_line(self, plugstack: str, line: str, replaced: bool = False) -> list[Change]:
        """The changes that save the plugin's line in plugstack.conf before another line or another plugin replaces it.

        Without a line jobs have no plugin, whatever a killed run has saved.
        """
        lines = lines_of(plugstack, self.path)
        kept, previous = content(self.previous_line), "\n".join(lines).encode()
        if (line in lines and not replaced) or kept == previous or (kept is not None and lines):
            return []
        return [_kept(self.previous_line, kept, previous)]

    def restore(self) -> list[Change]:
        """The changes that restore the previous plugin, or remove the plugin if there was none.

        There are none if the previous plugin is for another release of Slurm, which would not load it.
        """
        previous, found = content(self.previous), content(self.path)
        if previous is None or found == (previous or None):
            return self.forget()
        if len({_release(plugin) for plugin in (previous, found or b"")} - {""}) > 1:
            return []
        return [Change(self.path, previous or None, _shown(found), _shown(previous or None)), *self.forget()]

    def forget(self) -> list[Change]:
        """The changes that remove all saved copies."""
        kept = ((path, content(path)) for path in (self.previous, self.previous_line))
        return [Change(path, None, _shown(data), "") for path, data in kept if data is not None]

    def is_unconfirmed(self, changes: Sequence[Change]) -> bool:
        """Whether copies are kept after these changes. If so, no job has confirmed yet that the plugin works."""
        after = {change.path: change.content is not None for change in changes}
        return any(after.get(path, os.path.exists(path)) for path in (self.previous, self.previous_line))

    def line_before(self, changes: Sequence[Change], line: str) -> str:
        """The line that plugstack.conf had before these changes; empty if it had none, `line` if it had the same."""
        kept = next(
            (change.content for change in changes if change.path == self.previous_line), content(self.previous_line)
        )
        return line if kept is None else kept.decode()


def lines_of(plugstack: str, plugin: str) -> list[str]:
    """The lines of plugstack.conf for a plugin, their second field, without comments and with single blanks."""
    lines = (line.partition("#")[0].split() for line in plugstack.split("\n"))
    return [" ".join(fields) for fields in lines if fields[1:2] == [plugin]]


def content(path: str) -> bytes | None:
    """The content of a file; None if it does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _release(plugin: bytes) -> str:
    """The release of Slurm that a plugin is for; empty if it is no plugin."""
    try:
        return plugin_release(plugin)
    except PluginError:
        return ""


def checksum(plugin: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(plugin).hexdigest()


def apply(changes: Sequence[Change]) -> None:
    """Make changes: all files are written, or none if one cannot be written, and then the others are removed, in order.

    Raises:
        OSError: the disk is full, for example.
    """
    write([File(change.path, change.content) for change in changes if change.content is not None])
    for change in changes:
        if change.content is None:
            os.unlink(change.path)


def _kept(path: str, before: bytes | None, after: bytes) -> Change:
    """A change that writes a copy."""
    return Change(path, after, _shown(before), _shown(after))


def _shown(data: bytes | None) -> str:
    """A plugin or a line as it is shown; empty if there is no file."""
    if data is None:
        return ""
    return f"sha256 {checksum(data)}\n" if b"\0" in data else f"{data.decode() or '(none)'}\n"
