# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What preflight says of the secrets (secret_sources.py), before a host is contacted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...cluster.machines_key import IPMI
from ...formats.written import password_errors
from ..known import image, secret_sources
from ..known.run_host import RunHost
from ..values import slurmctld_metrics

FORMS = {
    secret_sources.DATABASE: "slurm",
    secret_sources.MAIL: "line",
    secret_sources.MACHINES: "line",
    secret_sources.BACKUP: "line",
}
"""How the file of a host has a password."""


OF_OTHERS = {
    secret_sources.DATABASE: ("slurm_database_server", "of the database server"),
    secret_sources.MAIL: ("slurm_mail", "of the relay"),
    secret_sources.MACHINES: ("slurm_machines", "of the machines"),
}
"""The secrets of servers that others run, which no run makes: the variable with their user, and whose they are."""


def needed(host: RunHost) -> dict[str, str]:
    """The secrets that the cluster needs, and for each a host that gets it.

    Slurm's release is not known yet. It decides whether slurmctld's pages need a key, and the newest one does.
    """
    if image.builds(host):
        return {}
    controllers, target = host["slurm_controllers"], str(host["slurm_backup"].get("target", ""))
    controller, database = next(iter(controllers), ""), host["slurm_database"]
    keeper = database or controller
    users = {
        secret_sources.MUNGE: host.name,
        secret_sources.DATABASE: database,
        secret_sources.COMMANDS: controller if host["slurm_rest"] else "",
        secret_sources.PAGES: controller if slurmctld_metrics.cluster_source(host) == "pages with tokens" else "",
        secret_sources.BACKUP: keeper if target else "",
        secret_sources.BACKUP_ENVIRONMENT: keeper if secret_sources.has_environment(target) else "",
        secret_sources.MAIL: controller if "user" in host["slurm_mail"] else "",
        secret_sources.MACHINES: controller if "user" in host["slurm_machines"] else "",
    }
    # A host that the inventory lacks has an error of its own.
    return {name: user for name, user in users.items() if user in host["groups"]["all"]}


def _path(host: RunHost, name: str, user: str) -> str:
    """The file of a secret. Where a variable of a role names another one, it is that of the host with the role."""
    variable, keeper = secret_sources.SECRETS[name].variable, host.of(user)
    return str(keeper[variable]) if variable in keeper else secret_sources.path(host, name)


def file_errors(host: RunHost) -> Iterator[str]:
    """What is wrong with secrets in files. Those that are missing are made by the run, or come from the cluster."""
    if secret_sources.comes_from_command(host):
        return
    users = needed(host)
    for name, (variable, of) in OF_OTHERS.items():
        if name in users and host[variable] and not secret_sources.is_known(host, name):
            yield (
                f"{variable} has user {host[variable]['user']}, and {_path(host, name, users[name])} is missing: put "
                f"the password {of} there (mode 0600; ansible-vault may encrypt it)"
            )
    names = {_path(host, name, users[name]): name for name in OF_OTHERS if name in users}
    contents = {path: content for path in names if (content := host.content(path)) is not None}
    yield from _password_errors(host, contents, names)


def command_errors(host: RunHost) -> Iterator[str]:
    """Why the command of the site does not give the secrets, in one text. It is asked for all of them."""
    if not secret_sources.comes_from_command(host):
        return
    if host.writes_arguments:
        yield (
            "slurm_secrets_command: Ansible would write the arguments of modules, and so the secrets, into files of "
            "this machine for a moment: switch pipelining on (pipelining = True in the section [ssh_connection] of "
            "ansible.cfg), keep no files of modules (ANSIBLE_KEEP_REMOTE_FILES), and become root by sudo, not su"
        )
        return
    answers = {name: _answer(host, name) for name in needed(host)}
    missing = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    given = {name: answer for name, answer in answers.items() if isinstance(answer, bytes)}
    names = {name: name for name in FORMS if name in given}
    lines = [f"  {name}: {text}" for name, text in missing.items()]
    lines += [f"  {text}" for text in _password_errors(host, {name: given[name] for name in names}, names)]
    if lines:
        yield "\n".join(["slurm_secrets_command has not given these secrets:", *lines, *_ways(missing)])


def _ways(missing: Iterable[str]) -> list[str]:
    """How a person makes those that are missing, since the run writes nothing into the site's store."""
    new = [f"  {name}: {secret_sources.SECRETS[name].new}" for name in missing if secret_sources.SECRETS[name].new]
    if not new:
        return []
    return [
        "A new cluster needs new secrets. What makes one, for your store (docs/admin/secrets.md):",
        *new,
        "A cluster that runs keeps its own: take them from its hosts, as the page says.",
    ]


def _answer(host: RunHost, name: str) -> bytes | str:
    """A secret of the command, or why there is none."""
    try:
        return secret_sources.secret(host, name) or b""
    except ValueError as error:
        return str(error)


def _password_errors(host: RunHost, contents: dict[str, bytes], names: dict[str, str]) -> list[str]:
    """Passwords that the files of hosts cannot express. The texts name a character of a password at most."""
    forms = {**FORMS, **({secret_sources.MACHINES: IPMI} if host["slurm_machines"].get("by") == IPMI else {})}
    passwords = {what: content.decode(errors="surrogateescape").rstrip() for what, content in contents.items()}
    return password_errors(passwords, {what: forms[name] for what, name in names.items()})


def warnings(host: RunHost) -> Iterator[str]:
    """Files of secrets that nobody reads, because the command gives them."""
    if secret_sources.comes_from_command(host):
        paths = [_path(host, name, user) for name, user in needed(host).items()]
        if found := [path for path in paths if host.content(path) is not None]:
            yield (
                f"slurm_secrets_command gives the secrets, so that these files are not read: {', '.join(found)}. "
                "Remove them if the command gives the same"
            )
