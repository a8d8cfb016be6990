# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets other than munge's key that role rotation changes. The roles of site.yml give them to the hosts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from ...language.formatting import shown
from ...language.hostlist import fold
from ..daemons import slurmctld, slurmdbd
from ..known import registered, secret_sources
from ..known.program_files import sent
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import backup_hosts, is_controller, serves, serving_controller
from ..servers import backup, rest
from ..values import jwt_keys, slurmctld_metrics
from . import rotation

ENCRYPTED = b"$ANSIBLE_VAULT"
"""The beginning of a file that ansible-vault has encrypted."""

UPSTREAM = ("registry_upstream", "registry_upstream_username", "registry_upstream_password")
"""Variables of the registry behind that of the cluster."""

KEEPS = "slurmctld keeps the records of jobs meanwhile"
PENDING = "the cluster file has changes that are not in force: run site.yml first"


class NewSecret(TypedDict):
    """A file that the control host makes, what prints its content, and whether a file that is there stays."""

    path: str
    command: str
    stays: bool


@dataclass(frozen=True)
class ChangedSecret:
    """A secret that a run changes."""

    errors: list[str]
    """Why it cannot change, as far as the control host knows before it has asked a host."""
    new: list[NewSecret] = field(default_factory=list)
    """What the control host makes."""
    steps: dict[str, list[str]] = field(default_factory=dict)
    """The hosts of each step."""
    lines: list[str] = field(default_factory=list)
    """What the change touches, and what ends."""
    objection: Callable[[], str] = str
    """Why it cannot change, by the answers of the hosts; empty if it can."""


def _token_keys(host: RunHost) -> ChangedSecret:
    # The release of Slurm decides whether Prometheus reads slurmctld's pages with tokens, once it is known.
    pages, served = slurmctld_metrics.cluster_source(host) == "pages with tokens", host["slurm_rest"]
    keys = [*([jwt_keys.COMMANDS] if served else []), *([jwt_keys.PAGES] if pages else [])]
    files = [secret_sources.path(host, key) for key in keys]
    with_keys = [*host["slurm_controllers"], *([host["slurm_database"], served["host"]] if served else [])]
    steps = {
        "tokens": [name for name in dict.fromkeys(with_keys) if name],
        "metrics": [host["slurm_monitoring"]["host"]] if pages else [],
        "rest": [served["host"]] if served else [],
    }
    daemons: dict[str, list[str]] = {}
    for name in steps["tokens"]:
        for daemon in token_services(host.of(name)):
            daemons.setdefault(daemon, []).append(name)
    restarts = ", ".join(f"{name} on {fold(names)}" for name, names in daemons.items())
    lines = [f"jwt: another key of tokens. {restarts} restart within seconds; jobs go on, and {KEEPS}"]
    lines += ["  All tokens of users end at once: programs need new ones (scontrol token)"] if served else []
    lines += [f"  The token of Prometheus ends; {fold(steps['metrics'])} gets a new one in this run"] if pages else []
    none = "the cluster has no key of tokens, since it has neither the key rest nor pages of slurmctld with tokens"
    return ChangedSecret(
        [*([] if files else [none]), *_encrypted(files)],
        [{"path": path, "command": "head -c 64 /dev/urandom", "stays": False} for path in files],
        steps,
        lines,
        lambda: PENDING if slurmctld.configuration_changes(host.of(serving_controller(host))) else "",
    )


def _database_password(host: RunHost) -> ChangedSecret:
    if not host["slurm_database"]:
        return ChangedSecret(["the cluster file has no database"])
    server = host.of(host["slurm_database"])
    errors = []
    if others := host["slurm_database_server"]:
        errors = [
            f"others run the database server {others['host']}: let its administrator change the password of user "
            f"{others['user']}, then change {_file(host, secret_sources.DATABASE)}, and run site.yml"
        ]
    return ChangedSecret(
        [*errors, *_own_file(server, secret_sources.DATABASE)],
        [{"path": _file(host, secret_sources.DATABASE), "command": secret_sources.NEW_PASSWORD, "stays": False}],
        {"database": [server.name]},
        [
            f"database: another password for MariaDB's user and slurmdbd on {server.name}. slurmdbd restarts within "
            f"seconds; {KEEPS}"
        ],
        lambda: PENDING if slurmdbd.configuration_changes(server) else "",
    )


def _registry_password(host: RunHost) -> ChangedSecret:
    """The site has the password itself."""
    name = host["slurm_registry"]
    if not name:
        return ChangedSecret(["the cluster file has no registry"])
    registry = host.of(name)
    if missing := [option for option in UPSTREAM if not registry.option("registry", option)]:
        return ChangedSecret(
            [f"missing: {', '.join(missing)}. The registry has a password only for another one behind it"]
        )
    line = (
        f"registry: the registry on {name} gets registry_upstream_password of the site, if "
        f"{registry['registry_upstream']} accepts it, and restarts within seconds: pulls of images in this moment fail"
    )

    def objection() -> str:
        """That the registry works with the password, by the answer of slurm_service in check mode."""
        compared = registered.REGISTRY_COMPARED.seen(registry)
        has_it = not (compared.get("files") or compared.get("actions"))
        return f"{name} has this registry_upstream_password already: change the variable first" if has_it else ""

    return ChangedSecret([], [], {"registry": [name]}, [line], objection)


def _backup_password(host: RunHost) -> ChangedSecret:
    """The file of the next password is there while the password changes, also after a run was killed."""
    if not host["slurm_backup"]:
        return ChangedSecret(["the cluster file has no backup"])
    hosts, path = backup_hosts(host), f"{_file(host, secret_sources.BACKUP)}.next"
    lines = [
        f"backup: another password for {host['slurm_backup']['target']}; {fold(hosts)} prove it with a backup, then "
        "the previous one ends. Replace the copy of the password that you keep elsewhere. A copy of the repository "
        "from before can still be read with the previous one"
    ]
    if host.content(path) is not None:
        lines.append(f"  An earlier run has not ended: this one goes on with its password, {path}")
    return ChangedSecret(
        list(_own_file(host.of(hosts[0]), secret_sources.BACKUP)),
        [{"path": path, "command": secret_sources.NEW_PASSWORD, "stays": True}],
        # The host that also removes old backups gives the repository its new key.
        {"key": [next(name for name in hosts if backup.settings(host.of(name))["prunes"])]},
        lines,
    )


SECRETS = {
    "jwt": _token_keys,
    "database": _database_password,
    "registry": _registry_password,
    "backup": _backup_password,
}


def changing(host: RunHost) -> dict[str, ChangedSecret]:
    """The secrets that this run changes, by name."""
    return {name: secret(host) for name, secret in SECRETS.items() if rotation.rotates(host, name)}


def _file(host: RunHost, name: str) -> str:
    return f"{host['slurm_secrets_dir']}/{name}"


def _own_file(host: RunHost, name: str) -> Iterator[str]:
    """A file of the site, or one that the site has encrypted, is not written by a run."""
    variable, path = secret_sources.SECRETS[name].variable, _file(host, name)
    found = host.get(variable) or path
    if found != path:
        yield (
            f"{variable}: found {shown(found)}, allowed: the file of slurm_secrets_dir, {path}. Put the new secret "
            f"into your file, and run site.yml"
        )
    yield from _encrypted([path])


def _encrypted(paths: Iterable[str]) -> Iterator[str]:
    for path in map(Path, paths):
        if path.is_file() and path.read_bytes().startswith(ENCRYPTED):
            yield (
                f"{path} is encrypted with ansible-vault, and this run would write the new secret as it is. Decrypt it "
                "before, and encrypt it again afterwards (ansible-vault decrypt, encrypt)"
            )


# -- the plan ---------------------------------------------------------------------------------------------------------


def errors(host: RunHost) -> list[str]:
    """The errors in the options, or else why a secret cannot change, before a host is asked."""
    return rotation.errors(host) or [
        f"rotate={name}: {text}" for name, secret in changing(host).items() for text in secret.errors
    ]


def objections(host: RunHost) -> list[str]:
    """Why a secret cannot change, by the answers of the hosts."""
    found = [*rotation.munge_objections(host), *errors(host)]
    missing = [name for name in touched(host) if name not in host.play_hosts]
    if missing:
        text = f"{fold(missing)} needs a new secret, and is not in this run: it is outside of --limit, or failed"
        return [*found, text]
    by_name = {name: secret.objection() for name, secret in changing(host).items()}
    return [*found, *(f"rotate={name}: {text}" for name, text in by_name.items() if text)]


def new_secrets(host: RunHost) -> list[NewSecret]:
    """The secrets that this run makes on the control host."""
    return [file for secret in changing(host).values() for file in secret.new]


def steps(host: RunHost) -> dict[str, list[str]]:
    """The hosts of each step."""
    return {
        **{step: hosts for secret in changing(host).values() for step, hosts in secret.steps.items()},
        # The files of the control host are in the backup.
        "backup": backup_hosts(host) if rotation.wanted(host) else [],
        "first": [serving_controller(host)] if new_secrets(host) else [],
    }


def touched(host: RunHost) -> list[str]:
    """All hosts that a step needs."""
    return list(dict.fromkeys(name for names in steps(host).values() for name in names))


def groups(host: RunHost) -> list[dict[str, str]]:
    """The hosts of each step, for add_host. None in check mode."""
    found = {} if host.check_mode else steps(host)
    return [{"host": name, "group": f"slurm_rotates_{step}"} for step, names in found.items() for name in names]


def would_change(host: RunHost) -> bool:
    """Whether the run that this check foretells changes the host, also its munge key."""
    return host.check_mode and (rotation.rotates(host, "munge") or host.name in touched(host))


def announcement(host: RunHost) -> list[str]:
    """What each change touches, and what ends."""
    return [*rotation.munge_plan(host), *(line for secret in changing(host).values() for line in secret.lines)]


# -- what tasks need --------------------------------------------------------------------------------------------------


def token_services(host: RunHost) -> list[str]:
    """The daemons of this host that check tokens."""
    accounts = rest.has_key(host)
    return [
        *(["slurmdbd"] if accounts and host.name == host["slurm_database"] else []),
        *(["slurmctld"] if is_controller(host) else []),
        *([rest.CHECK] if rest.is_served(host) else []),
    ]


@dataclass(frozen=True)
class TokenDaemons:
    """The daemons of a host that get the new keys."""

    standby: bool
    """Whether slurmctld of this host is stopped meanwhile, since another one serves."""
    first: list[str]
    """The daemons that get them first."""
    files: dict[str, list[HostFile]]
    """The keys that each daemon reads when it starts, for slurm_service."""


def token_daemons(host: RunHost) -> TokenDaemons:
    """The daemons of this host that check tokens, and their keys."""
    names, standby = token_services(host), is_controller(host) and not serves(host)
    pages = {"slurmctld": slurmctld_metrics.key_files(host)}
    return TokenDaemons(
        standby,
        [name for name in names if not (name == "slurmctld" and standby)],
        {name: [*pages.get(name, []), *rest.key_files(host)] for name in names},
    )


def registry_proof(host: RunHost) -> dict[str, Any]:
    """The command that asks the registry behind that of this host whether it accepts user and password."""
    return {
        "argv": ["python3", "-I", "-c", sent("programs.registry_account"), host["registry_upstream"]],
        "stdin": json.dumps({name: str(host[f"registry_upstream_{name}"]) for name in ("username", "password")}),
    }


@dataclass(frozen=True)
class NewBackupPassword:
    """What tasks need for the next password of the backup."""

    program: list[HostFile]
    password: str
    file: str
    next_file: str


def new_backup_password(host: RunHost) -> NewBackupPassword:
    """The next password of the backup, its files, and the program slurm-backup."""
    file = _file(host, secret_sources.BACKUP)
    password = (host.content(f"{file}.next") or b"").decode()
    return NewBackupPassword(backup.program(), password, file, f"{file}.next")


def backup_remarks(host: RunHost) -> list[str]:
    """What is said about the old key of the repository, by the answer of slurm-backup."""
    answer = json.loads(registered.ROTATION_REMOVED.of(host)["stdout"])
    if not answer["left"]:
        return []
    return [
        f"The repository {host['slurm_backup']['target']} keeps the key {', '.join(key[:8] for key in answer['left'])} "
        f"of the previous password, since {', '.join(answer['clusters'])} has backups there and may use it. Remove it "
        "when no cluster does (restic key remove)"
    ]
