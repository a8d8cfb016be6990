# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role backup: what a host saves, and what it says about that. Those of a restore are in restore.py."""

from __future__ import annotations

import base64
import json
from typing import Any

from ...cluster.control_files import archive
from ...formats.written import mariadb_client_options
from ..known import registered, secret_sources
from ..known.daemon_records import ServiceOptions
from ..known.host_paths import DATABASE_CA, LIB_DIR
from ..known.program_files import library
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, unloaded
from ..known.site_database import certificate_files, has_server
from ..known.whole_cluster import is_controller, source, state_directory

DIRECTORY = "/etc/gpucluster-slurm/backup"
PROGRAM = "/usr/local/sbin/slurm-backup"
ENVIRONMENT = f"{DIRECTORY}/environment"
CLIENT = f"{DIRECTORY}/database.cnf"

KEPT = {"daily": 7, "weekly": 5, "monthly": 12}
"""The numbers of backups that a site keeps by default."""


def hosts_of_age(run: RunHost) -> list[str] | str:
    """The hosts whose last backup is checked; Ansible's pattern for no hosts without backups.

    The playbook validate gathers no facts, and takes the hosts from the variables. A play has no variables of a host.
    """
    if hosts := run.members("slurm_needs_backup"):
        return hosts
    controllers = run.members("slurm_controller")
    known = controllers or run.members("slurm_cluster")
    # ansible-playbook --list-tasks has no variables of hosts.
    if not known or "hostvars" not in run or not run.of(known[0])["slurm_backup"]:
        return "!all"
    return list(dict.fromkeys([*run.members("slurm_database"), *controllers]))


def service(host: RunHost) -> ServiceOptions:
    """How the host makes its backups."""
    files = [*settings_files(host), *(control_files(host) if is_controller(host) else [])]
    optional = {ENVIRONMENT: _environment(host), CLIENT: _client(host)}
    return ServiceOptions(files, absent=[path for path, wanted in optional.items() if not wanted])


def settings_files(host: RunHost) -> list[HostFile]:
    """The program, its timer and its settings, with which a host can also read the backup."""
    return [
        {"path": "/etc/systemd/system/slurm-backup.timer", "content": host.text("backup", "timer.j2")},
        {
            "path": "/etc/systemd/system/slurm-backup.service",
            "content": host.text("backup", "service.j2", program=PROGRAM),
            "loaded": False,
        },
        *unloaded(program()),
        {
            "path": f"{DIRECTORY}/settings.json",
            "content": json.dumps(settings(host), indent=4, sort_keys=True),
            "mode": "0600",
            "loaded": False,
        },
        {"path": f"{DIRECTORY}/password", "secret": password(host), "mode": "0600", "loaded": False},
        *_environment(host),
        *_client(host),
    ]


def program() -> list[HostFile]:
    """The program slurm-backup."""
    return library("slurm-backup", {PROGRAM: "programs.slurm_backup.backup_command"})


def settings(host: RunHost) -> dict[str, Any]:
    """What this host saves, and where. Values of a role that runs on another host are that host's variables."""
    database, controllers = host["slurm_database"], host["slurm_controllers"]
    return {
        "cluster": host["slurm_cluster_name"],
        "host": host.name,
        "target": host["slurm_backup"]["target"],
        "keep": host["slurm_backup"].get("keep", KEPT),
        "database": _slurmdbd_conf(host, "StorageLoc", host["slurm_database_server"].get("name", "slurm_acct_db")),
        "archive": _slurmdbd_conf(host, "ArchiveDir", f"{LIB_DIR}/archive"),
        "state": state_directory(host) if is_controller(host) else "",
        "controllers": controllers,
        "slurm_package": source(host).version,
        # One host removes what is older than the site keeps.
        "prunes": host.name == (database or controllers[0]),
    }


def _slurmdbd_conf(host: RunHost, key: str, default: str) -> Any:
    """A parameter of slurmdbd.conf on the host of the database; empty on other hosts."""
    if host.name != host["slurm_database"]:
        return ""
    return (host.get("slurmdbd_conf") or {}).get(key, default)


def password(host: RunHost) -> str:
    """The key of the backup in base64.

    Raises:
        ValueError: the control host has no key. In check mode it may not exist yet.
    """
    return base64.b64encode(secret_sources.required(host, secret_sources.BACKUP, "backup_password_file")).decode()


def lacks_password(host: RunHost) -> bool:
    """Whether a task has to write the key on the control host."""
    return not secret_sources.is_known(host, secret_sources.BACKUP)


def known_password(host: RunHost) -> str:
    """The key of the backup that a host of this play has; empty if none has it.

    A control host without the key, such as another administrator's, gets it from there.
    """
    for name in host.play_hosts:
        content = registered.BACKUP_PRESENT.seen(host.of(name)).get("content")
        if content is not None:
            return base64.b64decode(content).decode().strip()
    return ""


def control_files(host: RunHost) -> list[HostFile]:
    """What the control host has of the cluster, as one archive. Encrypted files stay encrypted.

    Secrets that a command gives are those of another store, which has its own backup.
    """
    directory = "" if secret_sources.comes_from_command(host) else host["slurm_secrets_dir"]
    packed = archive(host["slurm_cluster_dir"], host["slurm_cluster_name"], directory)
    secret = base64.b64encode(packed).decode()
    return [{"path": f"{DIRECTORY}/control.tar", "secret": secret, "mode": "0600", "loaded": False}]


def _environment(host: RunHost) -> list[HostFile]:
    """Variables for restic, if the site has any."""
    if secret_sources.comes_from_command(host) and not secret_sources.has_environment(host["slurm_backup"]["target"]):
        return []
    content = secret_sources.secret(host, secret_sources.BACKUP_ENVIRONMENT)
    if content is None:
        return []
    secret = base64.b64encode(content).decode()
    return [{"path": ENVIRONMENT, "secret": secret, "mode": "0600", "loaded": False}]


def _client(host: RunHost) -> list[HostFile]:
    """Options of MariaDB's programs for a database server of others. A command line would show the password."""
    if not has_server(host):
        return []
    server = host["slurm_database_server"]
    secret = (secret_sources.secret(host, secret_sources.DATABASE) or b"").decode().rstrip()
    text = mariadb_client_options(server, secret, DATABASE_CA if server.get("ca") else "")
    content = base64.b64encode(text.encode()).decode()
    return [*unloaded(certificate_files(host)), {"path": CLIENT, "secret": content, "mode": "0600", "loaded": False}]


# -- a backup on demand -----------------------------------------------------------------------------------------------


def saved_parts(host: RunHost) -> list[str]:
    """The names of what the host would save."""
    wanted = settings(host)
    parts = []
    if host.name == host["slurm_database"]:
        parts += [f"the database {wanted['database']}", f"the archive {wanted['archive']}"]
    if is_controller(host):
        parts.append(f"the state in {wanted['state']}, the configuration and the files of the control host")
    return parts


def results(host: RunHost) -> list[dict[str, Any]]:
    """What `slurm-backup run` and `slurm-backup verify` said on the hosts of this play."""
    found = []
    for name in host.play_hosts:
        saved = registered.BACKUP_RUN.seen(host.of(name)).get("stdout")
        if saved is not None:
            verified = registered.BACKUP_VERIFIED.seen(host.of(name)).get("stdout", '{"verified": []}')
            found.append({**json.loads(saved), **json.loads(verified)})
    return found


def table(host: RunHost) -> list[str]:
    """The table of these results, in lines."""
    return [line for line in host.text("backup", "table.j2", results=results(host)).split("\n") if line]
