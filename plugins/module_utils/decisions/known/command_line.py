# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of ansible-playbook's options --limit, --tags and -e, of which Ansible ignores what it does not find."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from ...cluster.variable_names import name_errors
from ...language.hostlist import expand
from ...language.spelling import nearest
from .run_host import RunHost

PLAYBOOKS = Path(__file__).resolve().parents[4] / "playbooks"

TAGS = (
    *("access", "backup", "base", "compute", "containers", "controller", "database", "firewall", "login", "mig"),
    *("metrics", "people", "policy", "preflight", "repair", "report", "rest", "storage", "validate"),
)
"""The tags of the plays of site.yml: its stages."""
STAGES = {"site": TAGS, "validate": ("backup", "preflight", "validate")}
"""The playbooks whose stages can be chosen, with their tags. Any other one runs as a whole."""
WHOLE = ("adopt", "new")
"""The playbooks whose plays on the control host would be skipped with --limit."""
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
    playbooks = [re.sub(r".*[./]", "", playbook.removesuffix(".yml")) for playbook in host.playbooks]
    yield from filter(None, (limit_error(host, playbook) for playbook in playbooks))
    yield from tag_errors(host, playbooks)


def errors(host: RunHost, playbook: str) -> list[str]:
    """The errors in the options of a playbook that has no other check, also where a playbook of the site runs it."""
    names = name_errors({host.name: host}, host.known_variables, host.given_variables)
    return [*dict.fromkeys(filter(None, [*option_errors(host), limit_error(host, playbook), *names]))]


def is_of_collection(playbook: str) -> bool:
    """Whether a playbook on the command line is one of this collection."""
    return playbook.startswith("gpucluster.slurm.") or Path(playbook).resolve().is_relative_to(PLAYBOOKS)


def tag_errors(host: RunHost, playbooks: Collection[str]) -> Iterator[str]:
    """The errors in --tags and --skip-tags. Ansible skips a play without such a tag, and the run ends well."""
    run, skipped = (host.get(variable) or [] for variable in ("ansible_run_tags", "ansible_skip_tags"))
    whole = [playbook for playbook in playbooks if playbook not in STAGES]
    stages = sorted({tag for playbook in playbooks for tag in STAGES.get(playbook, ())})
    if whole and {*run} - {"all"}:
        yield f"--tags: found {', '.join(run)}, but {whole[0]}.yml runs as a whole: leave this option out"
    for option, tags, allowed in (("--tags", [] if whole else run, stages), ("--skip-tags", skipped, TAGS)):
        for tag in tags:
            if tag not in (*allowed, *OF_ANSIBLE):
                yield f"{option}: found {tag!r}, allowed: {', '.join(allowed)}{propose(tag, allowed)}"


def limit_error(host: RunHost, playbook: str) -> str:
    """The error in a --limit that leaves out all hosts on which a playbook does its work; empty if there is none.

    Ansible skips the plays of such hosts, and the run ends well.
    """
    controllers = host.members("slurm_controller")
    if playbook in WHOLE and host.get("ansible_limit"):
        return f"--limit: {playbook}.yml reads all hosts of the inventory: leave this option out, name fewer with -i"
    if playbook == "doctor" and not controllers:
        return "The inventory has no host in the group slurm_controller, and only controllers know the nodes' states."
    clients = [*host.members("slurm_login"), *controllers][:1]
    of_controllers = dict.fromkeys(("backup", "doctor", "maintenance", "report"), controllers)
    needed = {**of_controllers, "validate": clients, "warm_up": clients}.get(playbook, [])
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
