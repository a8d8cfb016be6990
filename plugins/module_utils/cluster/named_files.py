# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the control host that a cluster file or a variable names: people, scripts, keys, certificates and packages.

They are checked before they are read or sent to a host: a FIFO would let a run wait without an end, and a file that is
no package, or a certificate with its key, would be copied to hosts, where all users can read it.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..formats.characters import one_line
from ..formats.directory_purposes import LONGEST, within
from ..host.script_checks import ScriptError, check_script
from ..language.formatting import shown
from ..language.secret_forms import public_error

LARGEST = 2**26
"""Bytes of a file with people, a script or a key; people with keys of SSH need less than 1 KiB each."""

LARGEST_PACKAGE = 2**32
"""Bytes of a package."""

DEB = b"!<arch>\ndebian-binary"
"""How a package begins (deb(5))."""

VAULT = b"$ANSIBLE_VAULT;"
"""How a file begins that ansible-vault has encrypted."""

_PUBLIC_KEY = re.compile(rb"^-----BEGIN PGP PUBLIC KEY BLOCK-----", re.MULTILINE)
_PRIVATE_KEY = re.compile(rb"^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----", re.MULTILINE)

ALLOWED = "allowed: a file next to the cluster file or below its directory, or an absolute path"

_OF_KERNEL = ("/dev", "/proc", "/sys")
_PARTS = (
    ("slurm_monitoring", "receivers", "text"),
    ("slurm_report", "password_file", "text"),
    ("slurm_database_server", "ca", "certificate"),
    ("slurm_machines", "ca", "certificate"),
    ("slurm_machines", "program", "program"),
)
"""Variables with a file: the variable, the part that names it, and its kind."""
_PACKAGES = ("apptainer_packages", "enroot_packages", "pyxis_packages")


def name_error(name: Any) -> str:
    """Why a file cannot be named so, as `..., allowed: ...`; empty if it can.

    A relative name stays in the directory of the cluster file.
    """
    try:
        right = isinstance(name, str) and one_line(name) == name.strip() and len(name.encode()) <= LONGEST
    except ValueError as error:
        return str(error)
    if not right or name[:1] in ("", "~") or name.endswith("/") or ".." in name.split("/"):
        return ALLOWED
    return ""


def file_error(directory: str, name: Any, kind: str = "text") -> str:
    """Why a file cannot be used, as `..., allowed: ...`; empty if it can.

    directory: that of the cluster file. A symbolic link may lead out of it, as an absolute path may.
    kind: `package`, one of those of `content_error`, or `text` for any file. What ansible-vault has encrypted is
        looked into where it is decrypted.
    """
    if error := name_error(name):
        return error
    path = os.path.join(directory, name)
    largest = LARGEST_PACKAGE if kind == "package" else LARGEST
    try:
        if any(within(os.path.realpath(path), top) for top in _OF_KERNEL):
            return "a file of the kernel, allowed: a regular file"
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return f"which does not exist, {ALLOWED}"
    except OSError as failure:
        return f"which cannot be read: {failure.strerror}, allowed: a regular file"
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return "which is no regular file, allowed: a regular file"
        if status.st_size > largest:
            return f"of {status.st_size} bytes, allowed: up to {largest}"
        if kind == "package":
            right = os.read(file, len(DEB)) == DEB
            return "" if right else "which is no package, allowed: a package of Debian (.deb)"
        content = os.read(file, status.st_size) if kind in _CONTENT else b""
    except OSError as failure:
        return f"which cannot be read: {failure.strerror}, allowed: a regular file"
    finally:
        os.close(file)
    return "" if content.startswith(VAULT) else content_error(kind, content)


def content_error(kind: str, content: bytes) -> str:
    """Why a content cannot be used, as `..., allowed: ...`; empty if it can.

    kind: `certificate`, `repository key`, `script` or `program`, a script that hosts run, which all users of a host can
        read, or `private key`. Others may have any content.
    """
    return _CONTENT[kind](content) if kind in _CONTENT else ""


def _certificate_error(content: bytes) -> str:
    try:
        # OpenSSL passes over what is between the blocks of a file, and over blocks of another kind.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        return "which is no certificate, allowed: certificates in PEM form"
    return _public_error(content)


def _repository_key_error(content: bytes) -> str:
    if not _PUBLIC_KEY.search(content):
        return "which is no public key, allowed: a public key in ASCII armor (.asc)"
    return _public_error(content)


def _program_error(content: bytes) -> str:
    try:
        interpreter = check_script(content, elsewhere=True)
    except ScriptError as error:
        return f"which cannot run: {error}"
    if not interpreter:
        return "which is no text, allowed: a script"
    return _public_error(content)


def _private_key_error(content: bytes) -> str:
    return "" if _PRIVATE_KEY.search(content) else "which is no private key, allowed: a private key in PEM form"


def _public_error(content: bytes) -> str:
    return public_error(content.decode(errors="replace"))


_CONTENT: dict[str, Callable[[bytes], str]] = {
    "certificate": _certificate_error,
    "private key": _private_key_error,
    "program": _program_error,
    "repository key": _repository_key_error,
    "script": _public_error,
}


def named_file_errors(variables: Mapping[str, Any], directory: str) -> list[str]:
    """The errors of the files that variables name, as `VARIABLE: found FILE, ..., allowed: ...`.

    Args:
        variables: by name; those with files are slurm_packages, slurm_storage, slurm_monitoring, slurm_report,
            slurm_database_server, slurm_machines and the packages of container tools.
        directory: that of the cluster file, for relative names.
    """
    return [
        f"{key}: found {shown(name)}, {error}"
        for key, name, kind in _named(variables)
        if (error := file_error(directory, name, kind)) and not _of_another_release(key, directory, name)
    ]


def _of_another_release(key: str, directory: str, name: Any) -> bool:
    """Whether a missing file may be the package of pyxis for a release of Slurm that no host has yet.

    Role pyxis and playbook upgrade copy the package for the release of the cluster alone.
    """
    return (
        key.startswith("pyxis_packages.")
        and not name_error(name)
        and not os.path.lexists(os.path.join(directory, name))
    )


def _named(variables: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """The files that variables name, as (key, name, kind of file_error)."""
    source = variables.get("slurm_packages")
    if isinstance(source, Mapping):
        yield from _of_entries("slurm_packages.files", source.get("files"))
        if isinstance(source.get("key"), str):
            yield "slurm_packages.key", source["key"], "repository key"
    for name, part, kind in _PARTS:
        value = variables.get(name)
        if isinstance(value, Mapping) and value.get(part):
            yield f"{name}.{part}", value[part], kind
    mounts = variables.get("slurm_storage")
    for i, entry in enumerate(mounts if isinstance(mounts, list) else []):
        if isinstance(entry, Mapping):
            yield from _of_entries(f"slurm_storage[{i}].packages", entry.get("packages"))
    for name in _PACKAGES:
        yield from _of_entries(name, variables.get(name))


def _of_entries(key: str, found: Any) -> Iterator[tuple[str, Any, str]]:
    """The files in a list or a mapping of entries."""
    if isinstance(found, Mapping):
        places = [(f"{key}.{name}", entry) for name, entry in found.items()]
    else:
        places = [(f"{key}[{i}]", entry) for i, entry in enumerate(found if isinstance(found, list) else [])]
    for place, entry in places:
        if isinstance(entry, Mapping) and entry.get("file") is not None:
            yield f"{place}.file", entry["file"], "package"
