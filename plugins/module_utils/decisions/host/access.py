# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role access: which files of the plan in slurm_access a host has, and whether it has them.

The texts are equal for all hosts, so they are rendered once (`texts`); the other functions get them or their digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...cluster.access_key import access_parts, exempt_networks, known_hosts, login_limits, trusted_hosts
from ..known.host_paths import KEPT_DIR, SCRIPTS_DIR
from ..known.platform_tables import DISTRIBUTION_PACKAGES, PENALISING
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import cluster_members, source

PATHS: Mapping[str, str] = {
    "known_hosts": "/etc/ssh/ssh_known_hosts2",
    "client": "/etc/ssh/ssh_config.d/gpucluster-slurm-access.conf",
    "shosts": "/etc/ssh/shosts.equiv",
    "administrators": "/etc/security/gpucluster-slurm-access.conf",
    "sshd": "/etc/ssh/sshd_config.d/10-gpucluster-slurm-access.conf",
    "sshd_of_jobs": "/etc/ssh/sshd_config.d/10-gpucluster-slurm-access.conf",
    "penalties": "/etc/ssh/sshd_config.d/10-gpucluster-slurm-penalties.conf",
    "limits": "/etc/systemd/system/user-.slice.d/50-gpucluster-slurm.conf",
    "shared_limits": "/etc/systemd/system/user-.slice.d/50-gpucluster-slurm.conf",
    "message": "/etc/profile.d/gpucluster-slurm.sh",
    "message_program": f"{SCRIPTS_DIR}/login-message",
}
"""The files by the names that `access_parts` gives to hosts. Two names with one path are two texts for it."""

UNCONFIRMED = f"{KEPT_DIR}/access/undo"
"""Here if another run was killed before a new connection had confirmed its change."""


@dataclass(frozen=True)
class AccessOptions:
    """Options of the module slurm_access."""

    who: str
    administrators: list[str]
    members: list[str]
    files: list[HostFile]
    absent: list[str]


def paths() -> list[str]:
    """The paths of all files that a host may have."""
    return list(dict.fromkeys(PATHS.values()))


def compared_files(host: RunHost) -> list[str]:
    """The files whose digests tell whether a host is as it should be (module slurm_host_facts); none without a plan."""
    return [*paths(), UNCONFIRMED] if host["slurm_access"] else []


def packages(host: RunHost) -> list[str]:
    """The packages that the host needs."""
    if not host["slurm_access"]:
        return []
    adopt = source(host).packages["adopt"] if parts(host)["who"] == "job" else ()
    completion = DISTRIBUTION_PACKAGES["completion"] if host.within("slurm_login") else ()
    return [*adopt, *completion]


# -- for all hosts ----------------------------------------------------------------------------------------------------


def texts(host: RunHost) -> dict[str, str]:
    """The texts of the files by name, for all hosts; without those that have nothing to say.

    The controllers keep the keys of hosts that are not in this run, so that without a controller the file of known
    hosts stays as it is: its text is not among these.
    """
    access, hosts = host["slurm_access"], cluster_members(host)["all"]
    addresses, further = host["slurm_addresses"], host["slurm_further_addresses"]
    if not access:
        return {}
    users = [*host.members("slurm_login"), *host.members("slurm_compute")]
    trusted = trusted_hosts(addresses, dict.fromkeys(users), further)
    found = {
        "client": host.text("access", "client.conf.j2"),
        "shosts": host.text("access", "shosts.equiv.j2", names=trusted),
        "administrators": host.text("access", "access.conf.j2", names=passing(access)),
        "sshd": _sshd(host, jobs=False),
        "sshd_of_jobs": _sshd(host, jobs=True),
        "penalties": host.text("access", "penalties.conf.j2", networks=exempt_networks(addresses, hosts, further)),
        "limits": host.text("access", "slice.conf.j2", limits=login_limits(access)),
        "shared_limits": host.text("access", "slice.conf.j2", limits=login_limits(access, shared=True)),
        "message": host.text("access", "profile.sh.j2", program=PATHS["message_program"]),
        "message_program": host.text("access", "login-message.sh.j2"),
    }
    keepers = [controller for controller in host["slurm_controllers"] if controller in host.play_hosts]
    if keepers:
        present = host.of(keepers[0]).facts["known_hosts"]
        lines = known_hosts(present, host_keys(host), addresses, hosts, further)
        found["known_hosts"] = host.text("access", "known_hosts.j2", lines=lines)
    return {name: text for name, text in found.items() if text}


def passing(access: Mapping[str, Any]) -> list[str]:
    """Who passes sshd without a job, as access.conf(5) has them: a name in brackets is that of a group."""
    return ["root", *(f"({group})" for group in access.get("administrators", []))]


def with_keys(access: Mapping[str, Any]) -> list[str]:
    """The groups whose users need a key of their own everywhere.

    Whoever controls one node would otherwise control all by an administrator who comes from there.
    """
    return list(dict.fromkeys(["root", "sudo", "admin", "wheel", *access.get("administrators", [])]))


def _sshd(host: RunHost, jobs: bool) -> str:
    """The settings of sshd; jobs: on hosts where the processes of users become parts of their jobs."""
    access = host["slurm_access"]
    host_based = access.get("between_nodes") == "host_based"
    return host.text("access", "sshd.conf.j2", jobs=jobs, host_based=host_based, with_keys=with_keys(access))


def host_keys(host: RunHost) -> dict[str, str]:
    """The public key of each host of this play; empty for a host that has not answered."""
    found = {name: host.of(name).facts_or_none for name in host.play_hosts}
    return {name: facts["host_key"] if facts else "" for name, facts in found.items()}


def text_digests(rendered: Mapping[str, str]) -> dict[str, str]:
    """The checksums of the texts by name (SHA-256), for the rules of one host."""
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in rendered.items()}


# -- for one host -----------------------------------------------------------------------------------------------------


def parts(host: RunHost) -> dict[str, Any]:
    """The names of the files that the host has (`files`), and who passes its sshd (`who`)."""
    return access_parts(host["slurm_access"], host["group_names"])


def names(host: RunHost, rendered: Collection[str]) -> list[str]:
    """The names of the files that the host gets, of those that have a text."""
    left_out = () if host.facts["distribution"] in PENALISING else ("penalties",)
    return [name for name in parts(host)["files"] if name in rendered and name not in left_out]


def wanted_files(host: RunHost, digests: Mapping[str, str]) -> dict[str, str]:
    """The digests of the files that the host gets, by path."""
    return {PATHS[name]: digests[name] for name in names(host, digests)}


def differs(host: RunHost, digests: Mapping[str, str]) -> bool:
    """Whether the host lacks something, or has too much.

    A file known_hosts or shosts.equiv that is not wanted may be the site's own.
    """
    if not host["slurm_access"]:
        return False
    wanted = wanted_files(host, digests)
    own = {*wanted} | ({*compared_files(host)} - {PATHS["known_hosts"], PATHS["shosts"]})
    present = {path: digest for path, digest in host.facts["files"].items() if path in own}
    return host.facts["sshd"] != parts(host)["who"] or present != wanted


def people_of(people: Mapping[str, Any], groups: Collection[str]) -> list[str]:
    """The users of the cluster file who are in one of these groups; a primary group without a name has the user's."""
    names = {group["gid"]: group["name"] for group in people.get("groups", [])}
    present = [user for user in people.get("users", []) if user["state"] == "present"]
    own = {user["name"]: {names.get(user["gid"], user["name"]), *user["groups"]} for user in present}
    return [name for name, of_user in own.items() if not of_user.isdisjoint(groups)]


def options(host: RunHost) -> AccessOptions:
    """What the module slurm_access does on the host.

    In a run without a controller, the file of known hosts stays as it is.
    """
    rendered, administrators = host.shared("access_texts"), host["slurm_access"].get("administrators", [])
    files: list[HostFile] = [{"path": PATHS[name], "content": rendered[name]} for name in names(host, rendered)]
    stay = {*(file["path"] for file in files), PATHS["known_hosts"]}
    return AccessOptions(
        who=parts(host)["who"],
        administrators=administrators,
        members=people_of(host["slurm_people"], administrators),
        files=files,
        absent=[path for path in paths() if path not in stay],
    )
