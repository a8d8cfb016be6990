# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of the commands that modules and tasks run."""

from __future__ import annotations

import os

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "SLURM_TIME_FORMAT": "standard",
}
"""Variables on which the answers of commands depend, such as how scontrol writes times."""

KEPT = (
    *("HOME", "USER", "LOGNAME", "SUDO_USER", "SUDO_UID", "SUDO_GID", "TZ"),
    *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"),
)
"""Variables that a command has from its host: who runs it, and what a site may need. Others change answers: with
SQUEUE_STATES=PENDING in /etc/environment, squeue shows no job that runs."""


def own_environment() -> dict[str, str]:
    """The environment of each command that a module runs."""
    return {**{name: os.environ[name] for name in KEPT if name in os.environ}, **ENVIRONMENT}


def person() -> str:
    """The user who has started this program, also with sudo."""
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or "root"
