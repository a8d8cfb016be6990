# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files with their wanted content, owner and mode, replaced atomically."""

from __future__ import annotations

import base64
import errno
import grp
import os
import pwd
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..language.errors import CollectionError
from . import program_library
from .file_checks import refusals
from .options import option, several

OPTION = several(
    "The files. Their owner is root. Missing directories are created.",
    "dict",
    options={
        "path": option("Path of the file.", "path", required=True),
        "content": option("The text of the file.", required=True),
        "mode": option("Permissions of the file, in octal.", default="0644"),
        "marker": option(
            "Makes O(files[].content) a part of the file, between two lines that are this text with C({mark}) replaced "
            "by C(BEGIN) and C(END). The rest of the file is not changed."
        ),
    },
)
"""The option of a module for files that belong to root and are not secret."""


SECRET_OPTIONS = {
    "path": option("Path of the file.", "path", required=True),
    "secret": option("The content of the file, encoded in base64.", required=True, no_log=True),
    "owner": option("User and group that own the file, by name.", default="root"),
    "mode": option("Permissions of the file, in octal.", default="0600"),
}
"""Options of a file that is secret."""


class FileError(CollectionError):
    """A file cannot be written as wanted."""


def _shown(content: bytes) -> str:
    """The content of a file for a diff."""
    return f"({len(content)} bytes that are no text)\n" if b"\0" in content else content.decode(errors="replace")


def opener(mode: int) -> Callable[[str, int], int]:
    """The option `opener` of open(): a file that it creates has this mode, under the umask of all modules (0022)."""
    return lambda path, flags: os.open(path, flags, mode)


@contextmanager
def named_in_errors(path: str) -> Iterator[None]:
    """Name a file in the errors of writing it, where the kernel's calls do not know it: a full disk, for example."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


def write_new(path: str, content: bytes, mode: int) -> None:
    """Write a file of a temporary directory. Raises OSError."""
    with named_in_errors(path), open(path, "wb", opener=opener(mode)) as file:
        file.write(content)


@contextmanager
def temporary_file(content: bytes, suffix: str = "") -> Iterator[str]:
    """A file with a content, by its path, that only root can read. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="gpucluster-slurm-") as directory:
        path = os.path.join(directory, f"file{suffix}")
        write_new(path, content, 0o600)
        yield path


def _without_waiting(path: str, flags: int) -> int:
    """The option `opener` of open(): a FIFO in the place of the file has no writer, who would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


class File:
    """A wanted file, and its differences from the present one."""

    def __init__(self, path: str, content: bytes, owner: str = "root", mode: int = 0o644, secret: bool = False) -> None:
        """Read the present file. `secret`: its content is never shown.

        Raises FileError if the path is relative or a directory, or if the owner does not exist.
        """
        self.path, self.content, self.owner, self.mode, self.secret = path, content, owner, mode, secret
        self.synced = True
        """Whether the content is on the disk before it replaces the file; that takes long for thousands of files."""
        self._staged = ""
        if not os.path.isabs(path):
            raise FileError(f"path: found {path!r}, allowed: an absolute path")
        try:
            self.ids = pwd.getpwnam(self.owner).pw_uid, grp.getgrnam(self.owner).gr_gid
        except KeyError:
            raise FileError(f"{self.path}: there is no user or group {self.owner}") from None
        self._check_link()
        try:
            with open(self.path, "rb", opener=_without_waiting) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise FileError(f"{self.path}: found something else, allowed: a file; remove what is there")
                self.found: bytes | None = file.read()
                self.found_as = (status.st_uid, status.st_gid), status.st_mode & 0o7777
        except FileNotFoundError:
            self.found, self.found_as = None, ((-1, -1), 0)
        except IsADirectoryError:
            raise FileError(f"{self.path}: found a directory, allowed: a file") from None

    def _check_link(self) -> None:
        """Raises FileError for a symbolic link of another user: it would be followed, and lead to any file of root."""
        try:
            status = os.lstat(self.path)
        except OSError:  # opening the file reports it
            return
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            raise FileError(
                f"{self.path}: found a symbolic link of the user with id {status.st_uid}, allowed: a file, or a link "
                "of root; remove it"
            )

    @property
    def differs(self) -> bool:
        """Whether the content differs."""
        return self.found != self.content

    @property
    def changes(self) -> bool:
        """Whether a change is necessary."""
        return self.differs or self.found_as != (self.ids, self.mode)

    @property
    def _replaced(self) -> bool:
        """Whether a new file takes the place of the present one.

        A user who owned the file, or could write to it, may still have it open after its owner and mode are corrected.
        """
        (uid, _gid), mode = self.found_as
        return self.differs or (self.changes and (uid not in (0, self.ids[0]) or bool(mode & 0o022)))

    @property
    def diff(self) -> dict[str, str]:
        """The diff of the change."""
        shown = {"before_header": self.path, "after_header": self.path}
        if not self.differs:
            (uid, gid), mode = self.found_as
            return {
                **shown,
                "before": f"{uid}:{gid} {mode:04o}\n",
                "after": "{}:{} {:04o}\n".format(*self.ids, self.mode),
            }
        if self.secret:
            return {**shown, "before": "(a secret)\n", "after": "(another secret)\n"}
        return {**shown, "before": _shown(self.found or b""), "after": _shown(self.content)}

    def stage(self) -> None:
        """Write the content next to the file, where a full disk or a wrong owner shows before anything is replaced."""
        if not self._replaced:
            return
        directory, name = os.path.split(os.path.realpath(self.path))
        os.makedirs(directory, mode=0o755, exist_ok=True)
        descriptor, self._staged = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=directory)
        try:
            with named_in_errors(self.path), os.fdopen(descriptor, "wb") as file:
                file.write(self.content)
                os.fchown(file.fileno(), *self.ids)
                os.fchmod(file.fileno(), self.mode)
                file.flush()
                if self.synced:
                    os.fsync(file.fileno())
        except OSError:
            self.discard()
            raise

    def commit(self) -> None:
        """Replace the file by the staged one, or correct its owner and mode."""
        if self._staged:
            try:
                os.replace(self._staged, os.path.realpath(self.path))
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                raise FileError(
                    f"{self.path} is a mount, which cannot be replaced: the engine of this container shows a file of "
                    "its own there. Make the container without it, such as with podman run --no-hosts"
                ) from None
            self._staged = ""
        elif self.changes:
            os.chown(self.path, *self.ids)
            os.chmod(self.path, self.mode)

    def discard(self) -> None:
        """Remove the staged file."""
        if self._staged:
            os.unlink(self._staged)
            self._staged = ""


def _lines(text: bytes) -> list[bytes]:
    """The lines of a text, whether or not the last one ends with a newline."""
    return text.removesuffix(b"\n").split(b"\n") if text else []


def _part_lines(lines: list[bytes], marker: str) -> tuple[list[bytes], slice | None]:
    """The lines BEGIN and END of a marker, and the place of the part that they enclose; None without such a part."""
    marks = [marker.replace("{mark}", mark).encode() for mark in ("BEGIN", "END")]
    if marks[0] not in lines or marks[1] not in lines[lines.index(marks[0]) :]:
        return marks, None
    first = lines.index(marks[0])
    return marks, slice(first, lines.index(marks[1], first) + 1)


def part_of(whole: bytes, marker: str) -> bytes | None:
    """The text between the lines BEGIN and END of a marker; None if the file does not have them."""
    lines = _lines(whole)
    _marks, place = _part_lines(lines, marker)
    return None if place is None else b"".join(line + b"\n" for line in lines[place][1:-1])


def without_part(whole: bytes, marker: str) -> bytes:
    """A file without the lines BEGIN and END of a marker and those between them."""
    lines = _lines(whole)
    _marks, place = _part_lines(lines, marker)
    if place is not None:
        del lines[place]
    return b"".join(line + b"\n" for line in lines)


def with_part(whole: bytes, part: bytes, marker: str) -> bytes:
    """A file with another text between the lines BEGIN and END of a marker; without these lines it is put at the end.

    marker: the lines, with `{mark}` for BEGIN and END, as in ansible.builtin.blockinfile. part: whole lines.
    """
    lines = _lines(whole)
    (begin, end), place = _part_lines(lines, marker)
    lines[slice(len(lines), None) if place is None else place] = [begin, *_lines(part), end]
    return b"\n".join(lines) + b"\n"


def mode_of(text: str) -> int:
    """The mode of a file. Raises FileError if it is not octal."""
    if not re.fullmatch("[0-7]{3,4}", text):
        raise FileError(f"mode: found {text!r}, allowed: three or four octal digits such as 0644")
    return int(text, 8)


def from_base64(name: str, secret: str) -> bytes:
    """The content of a secret file. Raises FileError, without the secret, if it is not base64."""
    try:
        return base64.b64decode("".join(secret.split()), validate=True)
    except ValueError:
        raise FileError(f"{name}: the secret is not base64") from None


def from_secret_options(files: Iterable[Mapping[str, str]]) -> list[File]:
    """Files by their SECRET_OPTIONS. Raises OSError and FileError, without the secret."""
    return [
        File(file["path"], from_base64(file["path"], file["secret"]), file["owner"], mode_of(file["mode"]), secret=True)
        for file in files
    ]


def from_options(files: Iterable[Mapping[str, str]]) -> list[File]:
    """Files by OPTION. Raises OSError, and FileError for a path, a mode or a marker that cannot be."""
    found = []
    for wanted in files:
        file = File(wanted["path"], wanted["content"].encode(errors="surrogateescape"), mode=mode_of(wanted["mode"]))
        if wanted.get("marker"):
            if "{mark}" not in wanted["marker"] or "\n" in wanted["marker"]:
                raise FileError(f"{file.path}: marker: found {wanted['marker']!r}, allowed: one line with {{mark}}")
            file.content = with_part(file.found or b"", file.content, wanted["marker"])
        found.append(file)
    return found


def check(files: Sequence[File]) -> None:
    """Ask the programs that read the files about those that differ. Changes nothing.

    Files that are as wanted are of use if a changed file is checked together with them.

    Raises FileError if a program refuses the new content of a file.
    """
    refused = refusals({file.path: file.content for file in files}, [file.path for file in files if file.differs])
    if refused:
        raise FileError("; ".join(refused))


def write(files: Sequence[File], check_mode: bool = False) -> None:
    """Check the wanted files and write them, as `check` and `replace` do. In check mode nothing is written."""
    check(files)
    if not check_mode:
        replace(files)


def replace(files: Sequence[File]) -> None:
    """Write files that have been checked: all of them, or none if one cannot be written.

    Files that are as wanted stay as they are.

    Raises OSError: the disk is full, for example. Nothing has changed.
    """
    try:
        for file in files:
            file.stage()
    except OSError:
        for file in files:
            file.discard()
        raise
    _commit_libraries(files)
    for file in files:
        file.commit()


def _commit_libraries(files: Sequence[File]) -> None:
    """Put libraries of programs in their place, compiled, before the programs that name them."""
    libraries = {file.path: program_library.directory_of(file.path) for file in files}
    modules = [file for file in files if libraries[file.path]]
    programs = [file for file in files if not libraries[file.path] and _library_in(file.content)]
    if not modules or not any(file.changes for file in [*modules, *programs]):
        return
    for file in modules:
        file.commit()
    program_library.compile_modules(file.path for file in modules)
    before = {_library_in(file.found or b"") for file in programs}
    program_library.remove_others({libraries[file.path] for file in modules}, before)


def _library_in(content: bytes) -> str:
    """The directory of a library that a program names at its beginning; empty without one."""
    return program_library.directory_of(content[:1024].decode(errors="replace"))
