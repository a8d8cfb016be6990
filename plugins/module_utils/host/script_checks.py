# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a script can run: what execve(2) or the interpreter's own check of the syntax would refuse.

No script is ever run to find this out. A check of the syntax reads it only (`bash -n`); perl has none, because
`perl -c` runs the BEGIN blocks.

Sources: `load_script` in Linux' `fs/binfmt_script.c` for the `#!` line. Slurm starts each program of slurm.conf by
execve(2), which does not know how to run a file without this line (`_run_command_child_exec` in
`src/common/run_command.c`, `_run_srun_script` in `src/srun/srun_job.c`, `src/plugins/jobcomp/script`); a shell, which
does, starts RebootProgram only, by system(3) (`_rpc_reboot` in `src/slurmd/slurmd/req.c`).
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..language.formatting import short, shown, visible

PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Directories of programs that have no path. slurm-prolog gives them to its scripts."""

SYSTEM = ("/usr/bin", "/bin")
"""Directories whose shells and Python are those of the distribution. Others could be scripts of the site."""

MISSING = "is missing"
"""The reason for a file that is not there."""

NO_INTERPRETER = "which names no interpreter"
"""A part of the reason for a text that a shell would run, but not execve(2)."""

_BUFFER = 256
"""Bytes of a file that the kernel reads to find its interpreter (BINPRM_BUF_SIZE). The last one may only end a word."""

_LARGEST = 1 << 20
"""Bytes of a script whose syntax is checked. A larger one has an archive inside."""

_SECONDS = 10
"""The time limit of a check of the syntax."""

_DEPTH = 5
"""Scripts of which one is the interpreter of the other, as far as the kernel follows them (`exec_binprm`)."""

_ELF = b"\x7fELF"
"""The first bytes of a program that needs no interpreter."""

_NEEDS = "needs"

_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-8 and UTF-16."""

_EXPECTED = "allowed: #! and the path of an interpreter, such as #!/bin/bash, as the first bytes"
_CONVERT = r"allowed: lines that end with a newline only; sed -i 's/\r$//' FILE converts them"

_SHELL = re.compile(r"(?:r?bash|r?ksh(?:93)?|mksh|zsh|dash|ash|sh)")
_PYTHON = re.compile(r"python(?:[23](?:\.[0-9]+)?)?")
_HERE_DOCUMENT = re.compile(rb"""<<(-?)\s*(?:\\?(\w+)|'([^'\n]+)'|"([^"\n]+)")""")
_ERROR = re.compile(r"(?:line )?(\d+): (.*)")

_COMPILE = """
import sys
try:
    compile(getattr(sys.stdin, "buffer", sys.stdin).read(), "script", "exec", 0, True)
except (SyntaxError, ValueError) as error:
    sys.stderr.write("%s: %s" % (getattr(error, "lineno", None) or 1, getattr(error, "msg", None) or error))
    sys.exit(9)
"""
"""Compiles a Python script without running it. The last argument: this program's own `__future__` does not count."""

_REFUSED = 9
"""The exit status of this program for a script with an error."""


class ScriptError(ValueError):
    """A script that cannot run. The message names the line, what it has, and what is allowed."""


class Interpreter(NamedTuple):
    """The programs that the first line of a script names."""

    needed: tuple[str, ...]
    """Those that must be there: the path that the kernel starts, and the program that `env` starts, by path or name."""

    @property
    def name(self) -> str:
        """The name of the program that reads the script, such as bash."""
        return _name(self.needed[-1])

    @property
    def is_shell(self) -> bool:
        """Whether a shell reads the script."""
        return bool(_SHELL.fullmatch(self.name))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def content_of(script: str) -> bytes:
    """The bytes of a script that was read as text. Bytes that are not UTF-8 are surrogates in it (PEP 383).

    Raises ScriptError for characters that no file can have.
    """
    try:
        return script.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        line = script.count("\n", 0, error.start) + 1
        raise ScriptError(f"line {line}: found {shown(script[error.start])}, allowed: whole characters") from None


def interpreter(content: bytes) -> Interpreter:
    """The interpreter of a script. Raises ScriptError if the kernel, or `env`, would find none."""
    first = content.partition(b"\n")[0]
    if not content.strip():
        raise ScriptError(f"is empty, {_EXPECTED}")
    if content.startswith(_MARKS):
        raise ScriptError(f"line 1: begins with a byte order mark, {_EXPECTED}, without such a mark")
    path, argument = _first_line(content)
    if not content.startswith(b"#!") or not path.startswith(b"/") or b"\0" in first:
        raise ScriptError(f"line 1: found {_line(first)}, {NO_INTERPRETER}, {_EXPECTED}")
    words, needed = [path, *filter(None, [argument])], [path]
    if path.endswith(b"/env"):
        words = [path, *_words_of_env(argument)]
        needed += filter(None, [_require_program_of_env(words[1:], first)])
    result = Interpreter(tuple(word.decode(errors="surrogateescape") for word in needed))
    # Perl takes a carriage return at the end of its switches for a blank (`moreswitches` in perl.c).
    if words[-1].endswith(b"\r") and not (result.name == "perl" and len(words) > 1):
        what = f"line 1: found {_line(first)}, which ends with a carriage return (CR LF), a part of the last word"
        raise ScriptError(f"{what} for Linux, {_CONVERT}")
    return result


def _require_program_of_env(words: Sequence[bytes], first: bytes) -> bytes:
    """As _program_of_env. Raises ScriptError if env(1) finds none in the first line, or one that has blanks."""
    program = _program_of_env(words)
    if program is None:
        what = "which names no program"
    elif re.search(rb"[ \t]", program):
        what = f"of which env makes one word, {_line(program)}"
    else:
        return program
    raise ScriptError(f"line 1: found {_line(first)}, {what}, allowed: such as #!/usr/bin/env -S bash -eu")


def _first_line(content: bytes) -> tuple[bytes, bytes]:
    """The path and the argument in the first line of a script, as the kernel reads them.

    Raises ScriptError if the path does not end within the buffer. An argument is cut there.
    """
    buffer = content[:_BUFFER]
    line, newline, _rest = buffer.partition(b"\n")
    line = line[2:].lstrip(b" \t")
    if len(buffer) == _BUFFER and not newline:
        if not re.search(rb"[ \t]", line):
            what = f"line 1: its interpreter does not end within {_BUFFER - 1} bytes, of which Linux reads no more"
            raise ScriptError(f"{what}, allowed: a shorter path")
        line = line[:-1]
    path, argument = [*re.split(rb"[ \t]+", line.strip(b" \t"), maxsplit=1), b""][:2]
    return path, argument


def _words_of_env(argument: bytes) -> list[bytes]:
    """The words that env(1) makes of its one argument: several only with -S, which can follow other letters."""
    match = re.match(rb"(-[iv0]*S|--split-string[= \t])(.*)", argument, re.DOTALL)
    if match:
        return match[2].split()
    return [argument] if argument else []


def _program_of_env(words: Sequence[bytes]) -> bytes | None:
    """The program that env(1) starts, without its options and variables; None if there is none.

    It is empty where quotes, escapes and variables of `-S` make it.
    """
    if re.search(rb"[\\'\"$#]", b" ".join(words)):
        return b""
    rest = iter(words)
    for word in rest:
        if word in (b"-u", b"-C", b"-a"):
            next(rest, None)
        elif not word.startswith(b"-") and b"=" not in word:
            return word
    return None


def _line(line: bytes) -> str:
    """A line as messages show it."""
    return shown(line.decode(errors="backslashreplace"))


def _returned_line(content: bytes) -> int | None:
    """The first line with a carriage return at its end that a shell would take as a part of a command.

    In comments and here-documents it does no harm.
    """
    ends: list[tuple[bytes, bool]] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if ends:
            end, tabs = ends[0]
            if (line.lstrip(b"\t") if tabs else line) == end:
                del ends[0]
            continue
        if line.endswith(b"\r") and not line.lstrip(b" \t").startswith(b"#"):
            return number
        ends = [(match[2] or match[3] or match[4], bool(match[1])) for match in _HERE_DOCUMENT.finditer(line)]
    return None


def check_script(content: bytes, *, elsewhere: bool = False) -> Interpreter | None:
    """The interpreter of a script that can run; None for a program that needs none.

    Args:
        content: of the file.
        elsewhere: other hosts run it. Then only what their interpreters refuse as well is refused: Python is not
            checked, since a later release accepts more, and neither is anything where this is not Linux.

    Raises:
        ScriptError: it cannot run.
    """
    if content.startswith(_ELF):
        return None
    found = interpreter(content)
    number = _returned_line(content) if found.is_shell else None
    if number:
        line = content.split(b"\n")[number - 1]
        what = f"line {number}: found {_line(line)}, which ends with a carriage return (CR LF), a part of the command"
        raise ScriptError(f"{what} for {found.name}, {_CONVERT}")
    _check_syntax(content, found, elsewhere)
    return found


def _check_syntax(content: bytes, found: Interpreter, elsewhere: bool) -> None:
    """Raise ScriptError if the interpreter itself refuses the syntax. One that is not here refuses nothing."""
    if len(content) > _LARGEST or (elsewhere and (not found.is_shell or sys.platform != "linux")):
        return
    refusals: list[str] = []
    for command in _checks(content, found, elsewhere):
        refusal = _refusal(command, content)
        if not refusal:
            return
        refusals.append(refusal)
    if refusals:
        raise ScriptError(refusals[0])


def _checks(content: bytes, found: Interpreter, elsewhere: bool) -> Iterator[list[str]]:
    """The commands that check the syntax of a script. It is right if one of them accepts it."""
    path = _standard(found.needed[-1])
    if path is None:
        return
    if _PYTHON.fullmatch(found.name):
        yield [path, "-I", "-S", "-c", _COMPILE]
    elif found.is_shell:
        yield [path, "-n"]
        # `bash -n` runs no `shopt -s extglob`, after which !(a) is a pattern. A file that is read can have it as well.
        if found.name == "bash" and re.search(rb"extglob|(^|[;&|\s])(\.|source)\s", content):
            yield [path, "-O", "extglob", "-n"]
        # sh is another shell on other hosts.
        if elsewhere and found.name == "sh" and (bash := _standard("bash")):
            yield [bash, "-n"]


def _standard(program: str) -> str | None:
    """The path of a program of the distribution; None if it is not here, or elsewhere."""
    directory, _slash, name = re.sub("/+", "/", program).rpartition("/")
    places = [directory] if directory else SYSTEM
    paths = [f"{place}/{name}" for place in places if place in SYSTEM]
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _refusal(command: Sequence[str], content: bytes) -> str:
    """Why a command refuses the syntax of a script, with the line; empty if it does not, or gives no answer."""
    python = _COMPILE in command
    with tempfile.NamedTemporaryFile(prefix="syntax-") as file:
        file.write(content)
        file.flush()
        file.seek(0)
        try:
            done = subprocess.run(
                [*command, *([] if python else [file.name])],
                stdin=file if python else subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={"LC_ALL": "C", "PATH": ":".join(PATH)},  # no BASH_ENV or ENV, which shells read
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        said = done.stderr.decode(errors="replace").replace(f"{file.name}: ", "").strip()
    if not said or done.returncode < 1 or (python and done.returncode != _REFUSED):
        return ""
    checker = _name(command[0]) if python else f"{_name(command[0])} -n"
    lines = [match for match in map(_ERROR.match, said.split("\n")) if match and not match[2].startswith("warning:")]
    if not lines:
        return f"{checker}: {_message(said)}"
    return f"line {lines[0][1]}: {checker}: {_message(lines[0][2])}"


def _message(said: str) -> str:
    """The message of an interpreter in one line."""
    return short(visible(" ".join(said.split())), 200)


def why_not(path: str, root: str = "", depth: int = 0) -> str:
    """Why root cannot run a program of this host, which may be a script; empty if it can.

    Args:
        path: its full path, or a name that is searched in PATH.
        root: the directory that has the files of the host; empty for `/`.
        depth: the number of scripts whose interpreters lead to it.
    """
    if depth > _DEPTH:
        return "has an interpreter that is a script, whose interpreter is a script, and so on"
    places = [root + path] if path.startswith("/") else [f"{root}{directory}/{path}" for directory in PATH]
    reasons = {place: _not_executable(place) for place in places}
    executable = [place for place, reason in reasons.items() if not reason]
    if not executable:
        return next((reason for reason in reasons.values() if reason != MISSING), MISSING)
    try:
        program = check_script(_read_content(executable[0]))
    except OSError:
        return "cannot be read"
    except ScriptError as error:
        return str(error)
    for needed in program.needed if program else ():
        if reason := why_not(needed, root, depth + 1):
            return f"{_NEEDS} {needed}, which {reason}"
    return ""


def _read_content(path: str) -> bytes:
    """The bytes of a program that tell whether it can run: of a script as many as are checked. Raises OSError."""
    with open(path, "rb") as file:
        start = file.read(_BUFFER)
        return start if start.startswith(_ELF) else start + file.read(_LARGEST)


def missing_path(path: str, reason: str) -> str:
    """What is not there, by a reason of `why_not`: the program itself, or its interpreter; empty for other reasons."""
    if reason == MISSING:
        return path
    match = re.fullmatch(rf"(?:.*, which )?{_NEEDS} (\S+), which {MISSING}", reason)
    return match[1] if match else ""


def _not_executable(path: str) -> str:
    """Why root cannot execute a file, apart from its content."""
    try:
        mode = os.stat(path).st_mode
        mount = os.statvfs(path).f_flag
    except OSError:
        return MISSING
    if not stat.S_ISREG(mode):
        return "is no file"
    if not mode & 0o111:
        return "is not executable"
    return "is on a file system that is mounted with noexec" if mount & os.ST_NOEXEC else ""
