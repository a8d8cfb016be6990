# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role apptainer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ...formats.characters import one_line
from ..known import containers
from ..known.host_paths import APPTAINER_SOURCE
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, plain_file

LAST_USER_ID = 65534
"""Ids have 32 bits, each user has 65536 of them, and the last one means "no id"."""

USER_IDS = re.compile(r"[1-9][0-9]*(-[1-9][0-9]*)?$")

NO_CODENAME = re.compile(r"stable|testing|experimental|^proposed")
"""Suites that apt's preferences would not know: they know a suite by its codename. With another name they would not
apply, and apt would install every package from the suite."""


def objections(host: RunHost) -> list[str]:
    """Why settings do not work."""
    found = []
    if wrong := wrong_user_ids(host["apptainer_fakeroot_uids"]):
        found.append(
            f"apptainer_fakeroot_uids: found {', '.join(wrong)}, allowed: numbers from 1 to 65534, such as 1000 or "
            "1000-1999"
        )
    if NO_CODENAME.search(host["apptainer_suite"]):
        found.append(
            f"apptainer_suite: found {host['apptainer_suite']}, allowed: a codename, such as sid (of unstable), "
            "rc-buggy (of experimental) or trixie-backports, or empty"
        )
    return found


def wrong_user_ids(ids: Iterable[Any]) -> list[str]:
    """What is no user id, and ids of users that cannot have subordinate ids."""
    ranges = [str(entry) for entry in ids]
    numbers = [part for entry in ranges for part in entry.split("-") if part.isdecimal()]
    return [entry for entry in ranges if not USER_IDS.match(entry)] + [
        str(int(number)) for number in numbers if int(number) > LAST_USER_ID
    ]


def from_suite(host: RunHost) -> bool:
    """Whether apptainer comes from apptainer_suite, since the repositories of the host do not have it."""
    if not host["apptainer_suite"] or {"name": "apptainer"} not in host["apptainer_packages"]:
        return False
    return "apptainer" not in host.facts["candidates"] or APPTAINER_SOURCE in host.facts["files"]


def mirror_objections(host: RunHost) -> list[str]:
    """Why the suite cannot be had: it is taken from the mirror that the host uses."""
    if not from_suite(host) or host.facts["mirror"] or APPTAINER_SOURCE in host.facts["files"]:
        return []
    return [
        f"apptainer_suite: {host['apptainer_suite']} is taken from the mirror that the host uses, and apt knows none "
        f"with Origin Debian and Codename {host.facts['codename']} (apt-get indextargets). Where apt has no lists, run "
        "apt-get update. Otherwise set apptainer_suite to '' and have apptainer in a repository of the host, or give "
        "apptainer_packages a url or file"
    ]


def needs_profile(host: RunHost) -> bool:
    """Whether the profile of AppArmor is checked after the installation."""
    return not host.flag("apptainer", "apptainer_setuid") and containers.needs_profile(host, "apptainer")


def files(host: RunHost) -> list[HostFile]:
    """The settings of apptainer, and apt's files for the suite."""
    own = [
        plain_file("/etc/apptainer/apptainer.conf", conf_text(host)),
        plain_file("/etc/profile.d/gpucluster-apptainer.sh", profile_text(host)),
    ]
    return own + (apt_files(host) if from_suite(host) else [])


def apt_files(host: RunHost) -> list[HostFile]:
    """The suite, and that nothing else comes from it.

    An image has no lists of apt, so its mirror is not known: both files stay as the build has written them.
    """
    if not host.facts["mirror"]:
        return []
    source = host.text("apptainer", "sources.j2", mirror=host.facts["mirror"])
    return [
        plain_file(APPTAINER_SOURCE, source),
        plain_file("/etc/apt/preferences.d/gpucluster-apptainer", host.text("apptainer", "preferences.j2")),
    ]


def conf_text(host: RunHost) -> str:
    """apptainer.conf. The values of the site win over the collection's own.

    If a site names a path, apptainer forgets its own default paths, so they are listed here (apptainer.conf, bind
    path).
    """
    own = {
        "allow setuid": host.flag("apptainer", "apptainer_setuid"),
        "bind path": ["/etc/localtime", "/etc/hosts", *host["apptainer_bind_paths"]],
    }
    directives = {**own, **host["apptainer_conf"]}
    lines = [(name, directive_text(value)) for name, values in directives.items() for value in flattened(values)]
    return host.text("apptainer", "apptainer.conf.j2", directives=lines)


def flattened(value: Any) -> list[Any]:
    """The values of a directive; a list becomes one line for each of its values, and None none."""
    if isinstance(value, list):
        return [element for part in value for element in flattened(part)]
    return [] if value in (None, "None", "null") else [value]


def directive_text(value: Any) -> str:
    """A value in apptainer.conf.

    Raises:
        ValueError: it is more than one line.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(value)


def profile_text(host: RunHost) -> str:
    """The directories of a user, created at a login."""
    wanted = {"CACHEDIR": host["apptainer_cache_dir"], "TMPDIR": host["apptainer_tmp_dir"]}
    directories = {
        name: path.replace("%h", "$HOME").replace("%U", "$(id -u)").replace("%u", "$(id -un)")
        for name, path in wanted.items()
        if path
    }
    return host.text("apptainer", "profile.sh.j2", directories=directories)


def subordinate_ids(host: RunHost) -> str:
    """The lines of /etc/subuid and /etc/subgid: the ids of user N start at N x 65536, the same on every host."""
    lines = []
    for entry in host["apptainer_fakeroot_uids"]:
        ends = [int(number) for number in str(entry).split("-")]
        lines += [f"{uid}:{uid * 65536}:65536\n" for uid in range(ends[0], ends[-1] + 1)]
    return "".join(lines)
