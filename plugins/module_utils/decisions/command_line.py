# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of ansible-playbook's options --limit and --tags, of which Ansible ignores what it does not find."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run_host import RunHost
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.spelling import nearest

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"

TAGS = (
    *("access", "backup", "base", "compute", "containers", "controller", "database", "firewall", "login", "mig"),
    *("people", "policy", "preflight", "storage", "validate"),
)
"""The tags of the plays."""
OF_ANSIBLE = ("all", "always", "never", "tagged", "untagged")

SUBSCRIPT = re.compile(r"\[(?:-?\d+|\d+[:-]\d*)\]$")
"""The numbers of hosts in a group: `compute[0:3]` (PATTERN_WITH_SUBSCRIPT in Ansible's inventory/manager.py)."""


def option_errors(host: RunHost) -> Iterator[str]:
    """The errors in --limit, and in --tags and --skip-tags of a playbook of this collection."""
    groups = host["groups"]
    names = {*groups, *(name for members in groups.values() for name in members), "localhost"}
    for term in split_limit(str(host.get("ansible_limit") or "")):
        if not matches(term, names):
            yield f"--limit: found {term!r}, allowed: hosts and groups of the inventory{explain(term, names)}"
    if not all(map(is_of_collection, host.playbooks)):
        return  # plays of a site can have tags of their own
    for playbook in host.playbooks:
        if error := limit_error(host, re.sub(r".*[./]", "", playbook.removesuffix(".yml"))):
            yield error
    for option, variable in (("--tags", "ansible_run_tags"), ("--skip-tags", "ansible_skip_tags")):
        for tag in host.get(variable) or []:
            if tag not in (*TAGS, *OF_ANSIBLE):
                yield f"{option}: found {tag!r}, allowed: {', '.join(TAGS)}{propose(tag, TAGS)}"


def is_of_collection(playbook: str) -> bool:
    """Whether a playbook on the command line is one of this collection."""
    return playbook.startswith("gpucluster.slurm.") or Path(playbook).resolve().is_relative_to(PLAYBOOKS)


def limit_error(host: RunHost, playbook: str) -> str:
    """The error in a --limit that leaves out all hosts on which a playbook does its work; empty if there is none.

    Ansible skips the plays of such hosts, and the run ends well.
    """
    controllers = host.members("slurm_controller")
    clients = [*host.members("slurm_login"), *controllers][:1]
    needed = {"backup": controllers, "doctor": controllers, "validate": clients, "warm_up": clients}.get(playbook, [])
    if not needed or {*needed} & {*host.all_play_hosts}:
        return ""
    limit = f"{host.get('ansible_limit') or ''},{needed[0]}"
    return (
        f"--limit: leaves out {' and '.join(needed)}, and {playbook}.yml would do nothing without it. Name it as well: "
        f"--limit '{limit}'"
    )


def split_limit(limit: str) -> list[str]:
    """The terms of --limit, without the signs of what is left out (!) or shared (&), and without names of files (@)."""
    terms = limit.split(",") if "," in limit else re.findall(r"(?:\[[^\]]*\]|[^\[:])+", limit)
    return [name for term in terms if (name := term.strip().lstrip("!&")) and not name.startswith("@")]


def matches(term: str, names: Collection[str]) -> bool:
    """Whether a term names a host or a group, as a pattern or a regular expression (~)."""
    if term.startswith("~"):
        return any(re.match(term[1:], name) for name in names)
    return any(fnmatchcase(name, SUBSCRIPT.sub("", term)) for name in names)


def explain(term: str, names: Collection[str]) -> str:
    """What to write instead of a hostlist of Slurm, or of a name that is nearly right."""
    try:
        hosts = expand(term)
    except ValueError:
        hosts = []
    if len(hosts) > 1 and {*hosts} <= {*names}:
        return f"; Ansible does not know Slurm's hostlists, write {','.join(hosts)}"
    return propose(term, names)


def propose(name: str, names: Collection[str]) -> str:
    """The nearest name, if there is one."""
    near = nearest(name, names)
    return f"; did you mean {near!r}?" if near else ""
