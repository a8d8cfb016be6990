# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the program that reads a file accepts it, asked before the file replaces the one that is there.

CHECKS has a row for each kind of file: which paths, which command, and which lines of its output are a refusal. The
new files are put into a temporary directory under the same paths as on the host. A program that is not installed, or
that does not answer in time, refuses nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..client.environment import own_environment

SECONDS = 30
"""The time limit of a check in seconds."""

MOST = 300
"""Characters that a message has of what a program says."""

NEVER = "which never comes"
"""The reason for a time that is only in the past, or on a day that no month has."""

UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
"""Directories of units, in the order in which systemd searches them (systemd.unit(5))."""

_UNIT_DIRECTORY = UNITS[0]
_UNIT = re.compile(r"/etc/systemd/system/(?:([^/]+\.[a-z]+)\.d/[^/]+\.conf|([^/]+\.[a-z]+))")


class Check(NamedTuple):
    """How a program is asked about files."""

    program: str
    """Its name for messages."""
    paths: str
    """A regular expression for the whole path of a file."""
    command: tuple[str, ...]
    """`%s` is the new file, or the file with `around`, if there is one."""
    refusal: str
    """A regular expression for the lines of its output that refuse the file; `%s` is the new file."""
    always: bool = False
    """Whether these lines are a refusal also after an exit status of 0."""
    around: str = ""
    """A file that includes the new one (`%s`), for a program that does not read it alone; `%d` is a directory."""


CHECKS = (
    # sshd_config(5): the rest of sshd's configuration does not change how these lines are read.
    Check("sshd", r"/etc/ssh/sshd_config\.d/[^/]+\.conf", ("/usr/sbin/sshd", "-t", "-f", "%s"), r"^%s\b"),
    Check("ssh", r"/etc/ssh/ssh_config\.d/[^/]+\.conf", ("/usr/bin/ssh", "-G", "-F", "%s", "localhost"), r"^%s\b"),
    # logrotate(8): --debug changes nothing.
    Check("logrotate", r"/etc/logrotate\.d/[^/]+", ("/usr/sbin/logrotate", "--debug", "%s"), r"^error:"),
    # The server reads its options, prints them and ends; its status is 0 for a wrong option of InnoDB, without which
    # it does not start. It adjusts numbers that are out of range, with a warning.
    Check(
        "mariadbd",
        r"/etc/mysql/mariadb\.conf\.d/[^/]+\.cnf",
        ("/usr/sbin/mariadbd", "--defaults-file=%s", "--user=mysql", "--help", "--verbose"),
        r"unknown (?:variable|option)|Error while setting value|Unknown suffix|Incorrect \w+ value|requires an argument"
        r"|is not a compiled character set",
        always=True,
    ),
    Check(
        "nginx",
        r"/etc/nginx/conf\.d/[^/]+\.conf",
        ("/usr/sbin/nginx", "-t", "-c", "%s"),
        r"\[emerg\]",
        around="pid %d/pid; error_log stderr; events {} http { access_log off; include %s; }\n",
    ),
    Check(
        "nft",
        r"/etc/gpucluster-slurm/firewall\.nft(?:\.new)?",
        ("/usr/sbin/nft", "--check", "--file", "%s"),
        r"^%s:|^Error",
    ),
)
"""Every kind of file that one command judges. Units are checked together, by `_refused_units`."""


def run_check(command: Sequence[str]) -> tuple[int, str] | None:
    """The exit status of a command and all it prints; None if it is not installed or does not answer in time."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # The control host's programs are where its user finds them; a module has set its own PATH.
            env={**own_environment(), "PATH": os.environ.get("PATH", os.defpath)},
            timeout=SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.returncode, done.stdout.decode(errors="replace")


def calendar_refusal(value: str) -> str:
    """Why systemd refuses a calendar event, as `which ...`, or NEVER; empty if systemd accepts it or is not there.

    Source: systemd-analyze(1), `calendar`, which has the parser of OnCalendar=.
    """
    answer = run_check(["systemd-analyze", "calendar", "--", value])
    if answer is None:
        return ""
    status, output = answer
    if status == 0:
        return NEVER if re.search(r"^\s*Next elapse: never$", output, re.MULTILINE) else ""
    # Another failure, such as a command that systemd does not have yet, is no judgement.
    refused = re.search(r"^Failed to parse calendar specification '.*': (.*)$", output, re.MULTILINE | re.DOTALL)
    return f"which systemd cannot read ({refused[1].strip().partition(chr(10))[0]})" if refused else ""


def refusals(wanted: Mapping[str, bytes], changed: Iterable[str]) -> list[str]:
    """The new files that their programs refuse, as `PATH was not written, since PROGRAM refuses it: MESSAGE`.

    Args:
        wanted: the content of files by their paths, also of those that do not change: another file may name them.
        changed: the paths whose content changes. A file that names one of them is checked as well.
    """
    new = {*changed}
    affected = [path for path, text in wanted.items() if path in new or any(other.encode() in text for other in new)]
    rows = [(check, path) for check in CHECKS for path in affected if re.fullmatch(check.paths, path)]
    units = [path for path in affected if path in new and _UNIT.fullmatch(path)]
    if not rows and not units:
        return []
    return [
        f"{path} was not written, since {program} refuses it{_origin(wanted[path])}: {error}"
        for path, program, error in _ask_programs(wanted, rows, units)
        if error
    ]


def _ask_programs(
    wanted: Mapping[str, bytes], rows: Sequence[tuple[Check, str]], units: Sequence[str]
) -> list[tuple[str, str, str]]:
    """The path of each file of rows and of units, the program that judges it, and why it refuses it, or nothing."""
    with tempfile.TemporaryDirectory(prefix="gpucluster-check-") as directory:
        _put_new_files(wanted, {path for _check, path in rows}, units, directory)
        answers = [(path, check.program, _refused(check, path, directory)) for check, path in rows]
        return answers + [(path, "systemd", error) for path, error in _refused_units(units, directory).items()]


def _put_new_files(wanted: Mapping[str, bytes], files: Iterable[str], units: Sequence[str], directory: str) -> None:
    """Write the files and units to check, and those that they name, of which they get the paths in the directory.

    Units keep the paths of the host: systemd reads them as they are.
    """
    checked = {*files, *units}
    named = {path for path in wanted for other in checked if path.encode() in wanted[other]}
    for path in checked | named:
        text = wanted[path]
        for other in named if path not in units else ():
            text = text.replace(other.encode(), f"{directory}{other}".encode())
        _put(f"{directory}{path}", text)


def _put(path: str, content: bytes) -> None:
    """Write a file of the temporary directory, which root alone can open."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o644)) as file:
        file.write(content)


def _origin(content: bytes) -> str:
    """Where the values of a file come from, by its own first line: ` (cluster file, backup: times)`."""
    named = re.match(rb"[^\n]*Managed by gpucluster\.slurm: changes here are overwritten (\([^()\n]+\))", content)
    return f" {named[1].decode(errors='replace')}" if named else ""


def _message(lines: Iterable[str], directory: str) -> str:
    """The message of a program in one line, with the paths of the host."""
    text = "; ".join(" ".join(line.replace(directory, "").split()) for line in lines)
    return text if len(text) <= MOST else f"{text[:MOST]}..."


def _refused(check: Check, path: str, directory: str) -> str:
    """Why the program of a row refuses a file; empty if it does not."""
    new = asked = f"{directory}{path}"
    if check.around:
        asked = f"{directory}/around.conf"
        _put(asked, check.around.replace("%d", directory).replace("%s", new).encode())
    answer = run_check([word.replace("%s", asked) for word in check.command])
    if answer is None or (answer[0] == 0 and not check.always):
        return ""
    refusal = re.compile(check.refusal.replace("%s", re.escape(new)))
    return _message([line for line in answer[1].split("\n") if refusal.search(line)], directory)


# -- units -----------------------------------------------------------------------------------------------------------


def _refused_units(paths: Sequence[str], directory: str) -> dict[str, str]:
    """Why systemd refuses units or their drop-ins, by their paths.

    systemd-analyze(1), `verify`, reads the new files with those of the host. Only what it says about a line of a new
    file counts, and that it refuses a new unit: a program that is installed later is no fault of a unit. A setting that
    is too new for the systemd of the host is ignored there, and no fault either.
    """
    if not paths:
        return {}
    found = {path: _calendar_error(f"{directory}{path}") for path in paths if path.endswith(".timer")}
    names = {path: _unit_of(path, directory) for path in paths}
    units = sorted({f"{directory}{_UNIT_DIRECTORY}/{name}" for name in names.values()})
    answer = run_check(["systemd-analyze", "verify", "--man=no", *units])
    for path in paths if answer else []:
        lines = answer[1].split("\n") if answer else []
        bad = [error for line in lines if (error := _unit_error(line, path, names[path], directory))]
        found[path] = found.get(path) or _message(bad, directory)
    return {path: error for path, error in found.items() if error}


def _unit_of(path: str, directory: str) -> str:
    """The name of the unit that a file belongs to. That of a drop-in is written with it, if it is not new itself."""
    match = _UNIT.fullmatch(path)
    base, own = match.groups() if match else ("", "")
    if own:
        return str(own)
    name = re.sub(r"-(\.[a-z]+)$", r"-1\1", base)  # user-.slice.d is for each slice user-UID.slice
    new = f"{directory}{_UNIT_DIRECTORY}/{name}"
    if not os.path.exists(new):
        present = [f"{place}/{name}" for place in UNITS if os.path.isfile(f"{place}/{name}")]
        content = b"[Service]\nExecStart=/bin/true\n" if name.endswith(".service") else b"[Unit]\n"
        if present:
            with open(present[0], "rb") as file:
                content = file.read()
        _put(new, content)
    return name


def _unit_error(line: str, path: str, unit: str, directory: str) -> str:
    """What a line of `systemd-analyze verify` says against a new file; empty if nothing.

    The lines are `FILE:LINE: MESSAGE, ignoring: VALUE` (`log_syntax`), and `UNIT: MESSAGE. Refusing.` from the
    `*_verify` functions of `src/core`.
    """
    new = f"{directory}{path}"
    if line.startswith(f"{new}:"):
        number, _colon, message = line.removeprefix(f"{new}:").partition(":")
        other_release = re.search(r"Unknown (?:key|section|lvalue)|deprecated|obsolete|[Ss]upport for|removed", message)
        if other_release or not re.search(r"ignoring|[Ff]ailed|[Ii]nvalid|[Mm]issing", message):
            return ""
        return f"line {number}, {_line(new, int(number)) if number.isdigit() else ''}:{message}"
    own = path.endswith(f"/{unit}")
    return line if own and line.startswith(f"{unit}: ") and line.endswith("Refusing.") else ""


def _line(path: str, number: int) -> str:
    """A line of a file, by its number from 1."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def _calendar_error(path: str) -> str:
    """Why the times of a timer cannot be used; empty if they can."""
    with open(path, encoding="utf-8", errors="replace") as file:
        times = re.findall(r"^OnCalendar=(.+)$", file.read(), re.MULTILINE)
    return "; ".join(f"OnCalendar={value}, {error}" for value in times if (error := calendar_refusal(value)))
