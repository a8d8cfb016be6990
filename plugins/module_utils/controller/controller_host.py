# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The properties of slurmctld's host besides its files: plugins, users, and addresses of other hosts."""

from __future__ import annotations

import os
import pwd
import queue
import re
import socket
import threading
import time
from collections.abc import Iterable

from ansible.module_utils.basic import AnsibleModule

from ..client.commands import run
from .configured_cluster import Host
from .state_save_location import StateDirectoryError, as_user

HOSTS = "/etc/hosts"
# How many names are resolved at once, and for how many seconds; those without an answer by then are not checked.
THREADS = 64
TIMEOUT = 15


def this_host(module: AnsibleModule, directory: str) -> Host:
    """The host that a module runs on, with Slurm's files in a directory.

    In check mode every name has an address, every directory can be written, and plugins come, since stage base, which
    sees to these, has not changed the host yet.
    """

    def plugins(plugin_dir: str) -> frozenset[str] | None:
        """The plugins in a PluginDir, or next to slurmctld's library, where Slurm installs them."""
        if not plugin_dir:
            slurmctld = module.get_bin_path("slurmctld")
            libraries = run(["ldd", slurmctld]).output if slurmctld else ""
            library = re.search(r"libslurmfull\.so => (\S+)/libslurmfull\.so", libraries)
            plugin_dir = library[1] if library else ""
        found = installed(plugin_dir)
        return found.union(module.params.get("coming") or ()) if found and module.check_mode else found

    def started_as(daemon: str) -> str | None:
        """The user in the unit of a daemon, root without one; None if systemd does not answer."""
        answer = run(["systemctl", "show", "--property=User", "--value", daemon])
        return None if answer.status else answer.output.strip() or "root"

    return Host(
        text=lambda name: text(os.path.join(directory, name)),
        plugins=plugins,
        unresolved=lambda names: [] if module.check_mode else find_unresolved(names),
        account=account,
        started_as=started_as,
        writes=lambda user, path: module.check_mode or writes(user, path),
    )


def text(path: str) -> str | None:
    """The text of a file; None if it does not exist. Bytes that are not UTF-8 are surrogates in it."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None


def account(user: str) -> str | None:
    """The name of a user, who may be given by number (`uid_from_string` in `src/common/uid.c`); None: there is none."""
    try:
        return pwd.getpwnam(user).pw_name
    except KeyError:
        pass  # it may be a number
    try:
        return pwd.getpwuid(int(user)).pw_name
    except (KeyError, ValueError, OverflowError):
        return None


def writes(user: str, path: str) -> bool:
    """Whether a user can read, write and enter a directory, or there is none, or its file system does not answer."""

    def work() -> dict[str, bool]:
        try:
            os.stat(path)
        except FileNotFoundError:
            return {"writes": True}
        except OSError:
            return {"writes": False}
        return {"writes": os.access(path, os.R_OK | os.W_OK | os.X_OK)}

    try:
        return bool(as_user(pwd.getpwnam(user).pw_uid, work)["writes"])
    except StateDirectoryError:
        return True


def installed(plugin_dir: str) -> frozenset[str] | None:
    """The plugins in directories that are separated by colons; None if one of them cannot be listed."""
    try:
        files = [file for directory in plugin_dir.split(":") for file in os.listdir(directory)]
    except OSError:
        return None
    return frozenset(file.removesuffix(".so") for file in files if file.endswith(".so"))


def find_unresolved(names: Iterable[str], hosts: str = HOSTS, timeout: float = TIMEOUT) -> list[str]:
    """The names without an address. The file of hosts is read once; what it lacks is asked from the resolver."""
    lines = (line.partition("#")[0].split() for line in (text(hosts) or "").split("\n"))
    known = {name for line in lines for name in line[1:]}
    wanted: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        if name not in known:
            wanted.put(name)
    missing: list[str] = []

    def ask() -> None:
        """Resolve names until there is none left."""
        while True:
            try:
                name = wanted.get_nowait()
            except queue.Empty:
                return
            try:
                socket.getaddrinfo(name, None)
            except OSError:
                missing.append(name)

    # Daemon threads: one that waits for a dead name server must not keep the module from its end.
    threads = [threading.Thread(target=ask, daemon=True) for _number in range(min(THREADS, wanted.qsize()))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [*missing]
