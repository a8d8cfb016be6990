# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role rotation for the other secrets. The roles of site.yml give them to the hosts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...language.formatting import shown
from ...language.hostlist import fold
from ..daemons import slurmctld, slurmdbd
from ..known import registered, secret_sources
from ..known.program_files import sent
from ..known.run_host import RunHost
from ..known.whole_cluster import backup_hosts, is_controller, serves, serving_controller
from ..servers import backup, rest
from ..values import jwt_keys, slurmctld_metrics
from . import rotation

LOCAL = ("", "localhost", "127.0.0.1", "::1")
"""Hosts of a database that role slurmdbd manages."""

ENCRYPTED = b"$ANSIBLE_VAULT"
"""The beginning of a file that ansible-vault has encrypted."""

UPSTREAM = ("registry_upstream", "registry_upstream_username", "registry_upstream_password")
"""Variables of the registry behind that of the cluster."""

KEEPS = "slurmctld keeps the records of jobs meanwhile"

KEY = "head -c 64 /dev/urandom"
"""What prints a new key."""


# -- the files of the control host ------------------------------------------------------------------------------------


def database_file(host: RunHost) -> str:
    """The file with the password of the database."""
    return f"{host['slurm_secrets_dir']}/{secret_sources.DATABASE}"


def backup_file(host: RunHost) -> str:
    """The file with the password of the backup."""
    return f"{host['slurm_secrets_dir']}/{secret_sources.BACKUP}"


def next_backup_file(host: RunHost) -> str:
    """The file with the next password of the backup. It is there while the password changes."""
    return f"{backup_file(host)}.next"


def token_files(host: RunHost) -> list[str]:
    """The files with the keys of tokens that the cluster has."""
    keys = [*([jwt_keys.COMMANDS] if host["slurm_rest"] else []), *([jwt_keys.PAGES] if has_pages(host) else [])]
    return [jwt_keys.control_path(host, key) for key in keys]


def has_pages(host: RunHost) -> bool:
    """Whether Prometheus reads slurmctld's pages with tokens. The release of Slurm decides, once it is known."""
    return slurmctld_metrics.cluster_source(host) == "pages with tokens"


def new_secrets(host: RunHost) -> list[dict[str, Any]]:
    """The secrets that this run makes: the file, what prints one, and whether one that is there stays.

    A next password of the backup that is there is that of a run that was killed. The password of a registry is the
    site's own.
    """
    wanted = rotation.wanted(host)
    made = [
        *((path, KEY, False) for path in token_files(host) if "jwt" in wanted),
        *([(database_file(host), secret_sources.NEW_PASSWORD, False)] if "database" in wanted else []),
        *([(next_backup_file(host), secret_sources.NEW_PASSWORD, True)] if "backup" in wanted else []),
    ]
    return [{"path": path, "command": command, "stays": stays} for path, command, stays in made]


# -- errors -----------------------------------------------------------------------------------------------------------


def errors(host: RunHost) -> list[str]:
    """Why a secret cannot change, as far as the control host knows before it has asked a host."""
    wanted = rotation.wanted(host)
    found = {"jwt": _token_errors, "database": _database_errors, "registry": _registry_errors, "backup": _backup_errors}
    return [f"rotate={part}: {text}" for part, check in found.items() if part in wanted for text in check(host)]


def _token_errors(host: RunHost) -> Iterator[str]:
    if not token_files(host):
        yield "the cluster has no key of tokens, since it has neither the key rest nor pages of slurmctld with tokens"
    yield from _encrypted(token_files(host))


def _database_errors(host: RunHost) -> Iterator[str]:
    if not host["slurm_database"]:
        yield "the cluster file has no database"
        return
    server = host.of(host["slurm_database"])
    conf = {str(key).lower(): str(value) for key, value in (server.get("slurmdbd_conf") or {}).items()}
    if conf.get("storagehost", "") not in LOCAL:
        yield (
            f"slurmdbd_conf has StorageHost={shown(conf['storagehost'])}, allowed: a database on the host of slurmdbd. "
            "Change the password there, then in slurmdbd_storage_pass_file, and run site.yml"
        )
    yield from _own_file(server, "slurmdbd_storage_pass_file", database_file(host))


def _registry_errors(host: RunHost) -> Iterator[str]:
    name = host["slurm_registry"]
    if not name:
        yield "the cluster file has no registry"
        return
    missing = [option for option in UPSTREAM if not host.of(name).option("registry", option)]
    if missing:
        yield f"missing: {', '.join(missing)}. The registry has a password only for another one behind it"


def _backup_errors(host: RunHost) -> Iterator[str]:
    if not host["slurm_backup"]:
        yield "the cluster file has no backup"
        return
    for name in backup_hosts(host):
        yield from _own_file(host.of(name), "backup_password_file", backup_file(host))
        break


def _own_file(host: RunHost, variable: str, path: str) -> Iterator[str]:
    """A file of the site, or one that the site has encrypted, is not written by a run."""
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


def objections(host: RunHost) -> list[str]:
    """Why a secret cannot change, by the answers of the hosts."""
    wanted, found = rotation.wanted(host), list(errors(host))
    missing = [name for name in touched(host) if name not in host.play_hosts]
    if missing:
        found.append(f"{fold(missing)} needs a new secret, and is not in this run: it is outside of --limit, or failed")
    pending = "the cluster file has changes that are not in force: run site.yml first"
    if "jwt" in wanted and not missing and slurmctld.configuration_changes(host.of(serving_controller(host))):
        found.append(f"rotate=jwt: {pending}")
    server = host["slurm_database"]
    if "database" in wanted and server and not missing and slurmdbd.configuration_changes(host.of(server)):
        found.append(f"rotate=database: {pending}")
    name = host["slurm_registry"]
    if "registry" in wanted and not missing and has_account(host.of(name)):
        found.append(f"rotate=registry: {name} has this registry_upstream_password already: change the variable first")
    return found


# -- what a run touches -----------------------------------------------------------------------------------------------


def steps(host: RunHost) -> dict[str, list[str]]:
    """The hosts of each step, in the order of the steps."""
    wanted, served = rotation.wanted(host), host["slurm_rest"]
    jwt = "jwt" in wanted
    with_keys = [*host["slurm_controllers"], *([host["slurm_database"], served["host"]] if served else [])]
    return {
        "tokens": [name for name in dict.fromkeys(with_keys) if name] if jwt else [],
        "metrics": [host["slurm_monitoring"]["host"]] if jwt and has_pages(host) else [],
        "rest": [served["host"]] if jwt and served else [],
        "database": [host["slurm_database"]] if "database" in wanted and host["slurm_database"] else [],
        "registry": [host["slurm_registry"]] if "registry" in wanted else [],
        # The files of the control host are in the backup.
        "backup": backup_hosts(host) if wanted else [],
        "first": [serving_controller(host)] if new_secrets(host) else [],
        "key": [key_host(host)] if "backup" in wanted else [],
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
    lines = {"jwt": _token_lines, "database": _database_lines, "registry": _registry_lines, "backup": _backup_lines}
    wanted = rotation.wanted(host)
    return [line for part, of_part in lines.items() if part in wanted for line in of_part(host)]


def _database_lines(host: RunHost) -> Iterator[str]:
    yield (
        f"database: another password for MariaDB's user and slurmdbd on {host['slurm_database']}. slurmdbd restarts "
        f"within seconds; {KEEPS}"
    )


def _registry_lines(host: RunHost) -> Iterator[str]:
    name = host["slurm_registry"]
    yield (
        f"registry: the registry on {name} gets registry_upstream_password of the site, if "
        f"{host.of(name)['registry_upstream']} accepts it, and restarts within seconds: pulls of images in this moment "
        "fail"
    )


def _backup_lines(host: RunHost) -> Iterator[str]:
    yield (
        f"backup: another password for {host['slurm_backup']['target']}; {fold(steps(host)['backup'])} prove it with a "
        "backup, then the previous one ends. Replace the copy of the password that you keep elsewhere. A copy of the "
        "repository from before can still be read with the previous one"
    )
    if host.content(next_backup_file(host)) is not None:
        yield f"  An earlier run has not ended: this one goes on with its password, {next_backup_file(host)}"


def _token_lines(host: RunHost) -> Iterator[str]:
    hosts = steps(host)
    daemons: dict[str, list[str]] = {}
    for name in hosts["tokens"]:
        for daemon in token_services(host.of(name)):
            daemons.setdefault(daemon, []).append(name)
    restarts = ", ".join(f"{name} on {fold(names)}" for name, names in daemons.items())
    yield f"jwt: another key of tokens. {restarts} restart within seconds; jobs go on, and {KEEPS}"
    if host["slurm_rest"]:
        yield "  All tokens of users end at once: programs need new ones (scontrol token)"
    if hosts["metrics"]:
        yield f"  The token of Prometheus ends; {fold(hosts['metrics'])} gets a new one in this run"


# -- the keys of tokens -----------------------------------------------------------------------------------------------


def token_services(host: RunHost) -> list[str]:
    """The daemons of this host that check tokens."""
    accounts = rest.has_key(host)
    return [
        *(["slurmdbd"] if accounts and host.name == host["slurm_database"] else []),
        *(["slurmctld"] if is_controller(host) else []),
        *([rest.CHECK] if rest.is_served(host) else []),
    ]


def is_standby(host: RunHost) -> bool:
    """Whether this host is a controller that does not serve."""
    return is_controller(host) and not serves(host)


def first_token_services(host: RunHost) -> list[str]:
    """The daemons of this host that get the new key first. slurmctld of a standby is stopped meanwhile."""
    return [name for name in token_services(host) if not (name == "slurmctld" and is_standby(host))]


def token_key_files(host: RunHost, service: str) -> list[dict[str, Any]]:
    """The keys that one of these daemons reads when it starts, for slurm_service."""
    return [*(slurmctld_metrics.key_files(host) if service == "slurmctld" else []), *rest.key_files(host)]


# -- the registry -----------------------------------------------------------------------------------------------------


def changes_registry_here(host: RunHost) -> bool:
    """Whether this host has the registry whose password changes."""
    return "registry" in rotation.wanted(host) and host.name == host["slurm_registry"]


def has_account(host: RunHost) -> bool:
    """Whether the registry of this host works with the password, by the answer of slurm_service in check mode."""
    answer = registered.REGISTRY_COMPARED.seen(host)
    return not (answer.get("files") or answer.get("actions"))


def registry_account(host: RunHost) -> str:
    """User and password for the registry behind that of this host, as JSON."""
    return json.dumps({name: str(host[f"registry_upstream_{name}"]) for name in ("username", "password")})


def registry_proof(host: RunHost) -> list[str]:
    """The command that asks the other registry whether it accepts them."""
    return ["python3", "-I", "-c", sent("programs.registry_account"), host["registry_upstream"]]


# -- the backup -------------------------------------------------------------------------------------------------------


def key_host(host: RunHost) -> str:
    """The host that gives the repository its new key: the one that also removes old backups."""
    return next(name for name in backup_hosts(host) if backup.settings(host.of(name))["prunes"])


def backup_program(_host: RunHost) -> list[dict[str, Any]]:
    """The program slurm-backup, for slurm_files."""
    return backup.program()


def changes_backup(host: RunHost) -> bool:
    """Whether the password of the backup changes."""
    return "backup" in rotation.wanted(host)


def new_password(host: RunHost) -> str:
    """The next password of the backup."""
    return (host.content(next_backup_file(host)) or b"").decode()


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
