# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The function of each format: how a value is written into a file, or why it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..configuration.conf_file import unreadable, value_text
from . import file_values, mariadb_values, systemd
from .characters import one_line

FORMATS: dict[str, Callable[[Any], str]] = {
    "line": one_line,
    "logrotate": file_values.logrotate_path,
    "mariadb": mariadb_values.option_value,
    "modprobe": file_values.module_options,
    "registry": file_values.registry_variable,
    "slurm": value_text,
    "systemd": systemd.setting,
    "systemd_quoted": systemd.quoted,
}

LONGEST_IPMI_PASSWORD = 20
"""Bytes of a password in IPMI 2.0 (Set User Password)."""


def written(value: Any, form: str) -> str:
    """A value as a file of a format has it; form: a key of FORMATS.

    Raises:
        ValueError: the format cannot express it, or there is no such format.
    """
    if form not in FORMATS:
        raise ValueError(f"found format {form!r}, allowed: {', '.join(FORMATS)}")
    return FORMATS[form](value)


def mariadb_client_options(server: Mapping[str, Any], password: str, ca: str) -> str:
    """The options of MariaDB's client for a server, as a file has them: a command line would show the password.

    server: its host, port and user. ca: the path of the certificates that check it; without one there is no TLS.
    Raises ValueError as `written`.
    """
    tls = {"ssl-ca": ca, "ssl-verify-server-cert": True} if ca else {"ssl": False}
    options = {**{name: server[name] for name in ("host", "port", "user")}, "password": password, **tls}
    return "[client]\n" + "".join(f"{name} = {written(value, 'mariadb')}\n" for name, value in options.items())


def password_errors(passwords: Mapping[str, str], forms: Mapping[str, str]) -> list[str]:
    """The passwords that cannot be written, as `FILE: found ..., allowed: ...`, with a character of them at most.

    Args:
        passwords: the content of each file, by its path.
        forms: `slurm`, `ipmi` or `line`, by the same paths.
    """
    errors = {file: _password_error(password, forms[file]) for file, password in passwords.items()}
    return [f"{file}: {error}" for file, error in errors.items() if error]


def _password_error(text: str, form: str) -> str:
    """Why a file of a format cannot have a password; empty if it can."""
    if not text:
        return "found nothing, allowed: a password"
    try:
        one_line(text)
    except ValueError as error:
        return str(error)
    size = len(text.encode(errors="surrogateescape"))
    if form == "ipmi" and size > LONGEST_IPMI_PASSWORD:
        return f"found a password of {size} bytes, allowed: up to {LONGEST_IPMI_PASSWORD}, as IPMI has them"
    reason = unreadable(text) if form == "slurm" else ""
    return f"the password {reason}, which Slurm's parser would not read, allowed: another password" if reason else ""
