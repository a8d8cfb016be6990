# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's mails. slurmctld starts the program, as the user slurm, for each mail."""

from __future__ import annotations

import base64
import re

from ..known import registered, secret_sources
from ..known.host_paths import KEPT_CONF, MAIL_PROGRAM
from ..known.program_files import library
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, unloaded
from ..known.whole_cluster import serves, slurm_user

SETTINGS = "/etc/gpucluster-slurm/mail/msmtprc"
PASSWORD = "/etc/gpucluster-slurm/mail/password"

MARK = "# Managed by gpucluster.slurm: changes here are overwritten (variable slurm_mail)."

NO_MAIL = "Slurm sends no mail: --mail-type has no effect until slurm_mail names a relay (cluster file, key mail)."


def has_password(host: RunHost) -> bool:
    """Whether the controllers log in to the relay."""
    return "user" in host["slurm_mail"]


def files(host: RunHost) -> list[HostFile]:
    """The program, its settings and the password, for slurm_service; empty without slurm_mail."""
    if not host["slurm_mail"]:
        return []
    program = library("slurm-mail", {MAIL_PROGRAM: "programs.job_mail"}, MARK)
    files: list[HostFile] = [
        *unloaded(program),
        {"path": SETTINGS, "content": settings(host), "loaded": False},
    ]
    return [*files, password(host)] if has_password(host) else files


def absent(host: RunHost) -> list[str]:
    """Those of the files that the cluster does not have."""
    if not host["slurm_mail"]:
        return [MAIL_PROGRAM, SETTINGS, PASSWORD]
    return [] if has_password(host) else [PASSWORD]


def settings(host: RunHost) -> str:
    """The settings of msmtp. The relay is HOST:PORT, with an IPv6 address in brackets."""
    relay = str(host["slurm_mail"]["relay"])
    name = re.sub(r"[\]\[]", "", re.sub(":[0-9]+$", "", relay))
    port = re.search("[0-9]+$", relay)
    return host.text(
        "slurmctld",
        "msmtprc.j2",
        host=name,
        port=port[0] if port else "",
        password_file=PASSWORD,
        jobstats=bool("job_tools" in host["slurm_containers"] and host["slurm_database"]),
    )


def password(host: RunHost) -> HostFile:
    """The password of the relay.

    Raises:
        ValueError: the control host does not have it.
    """
    content = secret_sources.secret(host, secret_sources.MAIL)
    if content is None:
        raise ValueError(f"slurm_mail: {secret_sources.path(host, secret_sources.MAIL)} is missing")
    secret = base64.b64encode(content).decode()
    return {"path": PASSWORD, "secret": secret, "owner": slurm_user(host), "mode": "0400", "loaded": False}


def warnings(host: RunHost) -> list[str]:
    """Said by the run that installs the controller, or that leaves Slurm without mail."""
    if not serves(host) or host["slurm_mail"] or "MailProg" in host["slurm_conf"]:
        return []
    plan = registered.SLURMCTLD_CONFIG.seen(host).get("plan") or []
    changed = any(line["what"] == "slurm.conf MailProg" for line in plan)
    return [NO_MAIL] if changed or KEPT_CONF not in host.facts["files"] else []
