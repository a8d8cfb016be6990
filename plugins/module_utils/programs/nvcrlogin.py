# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Save an API key of NVIDIA's registry, so that jobs pull its images unattended.

usage: nvcrlogin            asks for the key, without showing it
       nvcrlogin < FILE     takes it from a file
       nvcrlogin --remove   forgets it

The key is kept for enroot and for apptainer, in files that only you can read. A former one is replaced; what these
files have for other registries stays. Keys are made on NVIDIA's site, NGC.
"""

from __future__ import annotations

import base64
import getpass
import json
import os
import pwd
import re
import stat
import sys
from pathlib import Path

from ..host.replacing import replace

CONF = Path("/etc/gpucluster-slurm/job-tools.conf")
MACHINES = ("nvcr.io", "authn.nvidia.com")
USER = "$oauthtoken"  # the name of everybody whose password is a key
# The words of netrc(5), across lines: a name or a password can be any word. Words in comments and in macros, which end
# with an empty line, have no meaning.
WORDS = re.compile(
    r"(?P<comment>^[ \t]*#.*)|(?P<macro>macdef\s.*(\n.+)*)"
    r"|(?P<name>machine|login|password|account)\s+(?P<value>\S+)|\S+",
    re.MULTILINE,
)


def enroot_file() -> Path:
    """The file in which enroot looks for credentials, by the administrator's configuration."""
    found = re.search(r"^ENROOT_CONFIG_DIR='(.*)'$", CONF.read_text() if CONF.exists() else "", re.MULTILINE)
    me = pwd.getpwuid(os.getuid())
    directory = found[1] if found else "%h/.config/enroot"
    for word, value in {"%h": str(Path.home()), "%U": str(me.pw_uid), "%u": me.pw_name}.items():
        directory = directory.replace(word, value)
    return Path(directory, ".credentials")


def apptainer_file() -> Path:
    """The file in which apptainer looks for credentials."""
    return Path(os.environ.get("APPTAINER_CONFIGDIR") or Path.home() / ".apptainer", "docker-config.json")


def netrc(text: str, key: str) -> str:
    """Enroot's file with a key, or without one if the key is empty. It comes first: `default` ends a search."""
    former: list[list[int]] = []
    inside = False
    for word in WORDS.finditer(text):
        if word["name"] == "machine" or word["macro"] or word[0] == "default":
            inside = word["value"] in MACHINES
            if inside:
                former.append([*word.span()])
        elif inside and not word["comment"]:
            former[-1][1] = word.end()
    for start, end in reversed(former):
        before, after = text[:start], text[end:]
        if re.search(r"^[ \t]*\Z", before, re.MULTILINE):  # no line stays empty
            before, after = before.rstrip(" \t"), re.sub(r"\A[ \t]*\r?\n?", "", after)
        text = before + after
    own = [f"machine {machine} login {USER} password {key}\n" for machine in MACHINES] if key else []
    return "".join([*own, text])


def docker(text: str, key: str) -> str:
    """Apptainer's file with a key, or without one if the key is empty. Raises ValueError."""
    content = json.loads(text or "{}")
    auths = content.setdefault("auths", {}) if isinstance(content, dict) else content
    if not isinstance(auths, dict):
        where = '"auths"' if isinstance(content, dict) else "the file"
        raise ValueError(f"{where}: found {'nothing' if auths is None else type(auths).__name__}, allowed: an object")
    auths.pop(MACHINES[0], None)
    if key:
        auths[MACHINES[0]] = {"auth": base64.b64encode(f"{USER}:{key}".encode()).decode()}
    return json.dumps(content, indent=2) + "\n"


def save(key: str) -> None:
    """Write both files, or none if one cannot be read. Raises OSError, ValueError."""
    texts = {}
    for path, change in ((enroot_file(), netrc), (apptainer_file(), docker)):
        before = path.read_bytes().decode(errors="surrogateescape") if path.exists() else ""
        if before or key:
            texts[path] = change(before, key)
    for path, text in texts.items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(str(path.resolve()), text.encode(errors="surrogateescape"), 0o600)


def changed() -> str:
    """Do what the arguments say. Returns the error message, or an empty text."""
    if sys.argv[1:] in (["-h"], ["--help"]):
        print((__doc__ or "").strip())
        return ""
    if sys.argv[1:] not in ([], ["--remove"]):
        return "a key is not given on the command line, where others see it: see nvcrlogin --help"
    key = ""
    if not sys.argv[1:]:
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISREG(mode) and mode & 0o077:
            return f"others can read the file of the key: found mode {mode & 0o777:o}, allowed: 600 or 400"
        key = (getpass.getpass("API key (not shown): ") if sys.stdin.isatty() else sys.stdin.read()).strip()
        if not re.fullmatch(r"[!-~]+", key):
            return "no key: found " + ("nothing" if not key else "blanks or other characters that no key has")
    try:
        save(key)
    except OSError as error:
        return str(error)
    except ValueError as error:
        return f"{apptainer_file()}: {error}"
    print("The key is saved." if key else "The key is forgotten.")
    return ""


def main() -> int:
    """Run the command."""
    problem = changed()
    if problem:
        print(f"nvcrlogin: {problem}", file=sys.stderr)
    return 1 if problem else 0
