# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets of a cluster on the control host: in files, or from a command of the site (docs/design/secrets.md)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ...client.bounded_command import decoded_key
from .run_host import RunHost

MUNGE = "munge.key"
DATABASE = "slurmdbd_storage_pass"
PAGES = "slurmctld_http.key"
COMMANDS = "jwt_hs256.key"
BACKUP = "backup_password"
BACKUP_ENVIRONMENT = "backup.env"
MAIL = "mail_password"
MACHINES = "machines_password"

NEW_PASSWORD = "cat /proc/sys/kernel/random/uuid"
NEW_TOKEN_KEY = "head -c 64 /dev/urandom | base64 --wrap=0"


@dataclass(frozen=True)
class Secret:
    """What is known of a secret."""

    new: str
    """The command that makes a new one; empty if the site has it from elsewhere."""
    is_key: bool = False
    """Whether it is bytes. Everything else is text."""
    variable: str = ""
    """A variable of a role that can name another file."""


SECRETS: Mapping[str, Secret] = {
    MUNGE: Secret("head -c 1024 /dev/urandom | base64 --wrap=0", True, "munge_key_file"),
    DATABASE: Secret(NEW_PASSWORD, variable="slurmdbd_storage_pass_file"),
    PAGES: Secret(NEW_TOKEN_KEY, True),
    COMMANDS: Secret(NEW_TOKEN_KEY, True),
    BACKUP: Secret(NEW_PASSWORD, variable="backup_password_file"),
    BACKUP_ENVIRONMENT: Secret("", variable="backup_environment_file"),
    MAIL: Secret(""),
    MACHINES: Secret(""),
}
"""The secrets by name, which is that of the file in slurm_secrets_dir, and what `{secret}` of the command becomes."""


def comes_from_command(host: RunHost) -> bool:
    """Whether a command of the site prints the secrets. Then the control host reads and writes no file of them."""
    return bool(host["slurm_secrets_command"])


def secret(host: RunHost, name: str) -> bytes | None:
    """A secret; None if the control host has no file of it.

    Raises:
        ValueError: the command of the site has not given it. The text has nothing of the command's output.
    """
    if not comes_from_command(host):
        return host.content(path(host, name))
    asked = command(host, name)
    try:
        return _decoded(name, host.output(asked, str(host["slurm_cluster_dir"])))
    except ValueError as error:
        raise ValueError(f"{shlex.join(asked)}: {error}") from error


def is_known(host: RunHost, name: str) -> bool:
    """Whether the control host has a secret, so that no task makes it. A command is not asked for that."""
    return comes_from_command(host) or host.content(path(host, name)) is not None


def required(host: RunHost, name: str, what: str) -> bytes:
    """A secret; an empty one in check mode, which makes none.

    what: the variable that needs it, for the error.

    Raises:
        ValueError: the control host has none.
    """
    found = secret(host, name)
    if found is None and not host.check_mode:
        raise ValueError(f"{what}: {path(host, name)} is missing")
    return found or b""


def has_environment(target: str) -> bool:
    """Whether restic may need variables for the target of the backup: a service, and no directory or ssh."""
    return bool(target) and not target.startswith(("/", "sftp:"))


def path(host: RunHost, name: str) -> str:
    """The file on the control host that has a secret, without a command."""
    variable = SECRETS[name].variable
    # The default of these variables is the same file; it is known within their role alone.
    return str(host[variable] if variable in host else f"{host['slurm_secrets_dir']}/{name}")


def command(host: RunHost, name: str) -> list[str]:
    """The command of the site for a secret. Other braces are the site's own."""
    values = {"{cluster}": str(host["slurm_cluster_name"]), "{secret}": name}
    arguments = [str(argument) for argument in host["slurm_secrets_command"]]
    for word, value in values.items():
        arguments = [argument.replace(word, value) for argument in arguments]
    return arguments


def _decoded(name: str, output: bytes) -> bytes:
    """The secret in the output of the command. Everything that is no key is text."""
    return decoded_key(output) if SECRETS[name].is_key else output
