# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role rotation: which secrets a run changes, and what that touches."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from ...language.formatting import limited, shown
from ...language.hostlist import fold
from ...language.spelling import nearest
from ..host import munge
from ..known import registered, secret_sources
from ..known.program_files import sent
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import conf_servers, is_controller, serving_controller
from ..run.comparison import runs_slurmctld

PARTS = ("munge", "jwt", "database", "registry", "backup")
"""The secrets that can be changed, in the order in which a run changes them."""

LEAST_BYTES, MOST_BYTES = 32, 65536
"""The size of a key of munge."""


# -- the options -----------------------------------------------------------------------------------------------------


def _given(host: RunHost) -> list[str]:
    """The names of the option, as they were given."""
    return [name.strip() for name in str(host.option("rotation", "rotate")).split(",") if name.strip()]


def wanted(host: RunHost) -> list[str]:
    """The secrets that this run changes, in the order of PARTS."""
    given = {*_given(host)}
    return [part for part in PARTS if part in given]


def errors(host: RunHost) -> list[str]:
    """The errors in the options that the control host can see."""
    allowed = f"allowed: a list of {', '.join(PARTS)}, with commas"
    if not _given(host):
        return [f"rotate: missing, {allowed}, such as -e rotate=munge"]
    if secret_sources.comes_from_command(host) and _given(host) != ["registry"]:
        return [
            "rotate: slurm_secrets_command prints the secrets, and this playbook makes new ones in files. "
            "docs/admin/rotation.md has the way with a command"
        ]
    return [
        f"rotate: found {shown(name)}, {allowed}{_meant(name)}"
        for name in dict.fromkeys(_given(host))
        if name not in PARTS
    ]


def _meant(name: str) -> str:
    near = nearest(name, PARTS)
    return f"; did you mean {near!r}?" if near else ""


# -- munge: the hosts ------------------------------------------------------------------------------------------------

PROGRAM = "/run/gpucluster-munge-switch.py"
"""The program of the switch, until the next reboot."""

_ASKING = ("slurm_controller", "slurm_login", "slurm_compute")
"""Groups of hosts that have Slurm's commands and its configuration."""


def rotates(host: RunHost, part: str) -> bool:
    """Whether this run changes a secret."""
    return part in wanted(host)


def has_begun(host: RunHost) -> bool:
    """Whether an earlier run may have armed hosts. They change their keys without it."""
    return rotates(host, "munge") and host.content(munge.next_path(host)) is not None


def cluster_hosts(host: RunHost) -> list[str]:
    """All hosts with munge."""
    return host.members("slurm_cluster")


def _digest(key: bytes | None) -> str:
    return hashlib.sha256(key).hexdigest() if key is not None else ""


def next_digest(host: RunHost) -> str:
    """The checksum of the next key; empty without one."""
    return _digest(host.content(munge.next_path(host)))


def _keys(host: RunHost, path: str) -> dict[str, str]:
    """The checksums of a file on the hosts that have answered, by host; empty where it is missing."""
    answers = {name: host.of(name).facts_or_none for name in cluster_hosts(host)}
    return {name: facts["files"].get(path, "") for name, facts in answers.items() if facts is not None}


def present_digest(host: RunHost) -> str:
    """The checksum of the key of the running cluster."""
    return _keys(host, munge.KEY).get(serving_controller(host), "")


def has_switched(host: RunHost) -> bool:
    """Whether the controllers have the next key: a run was killed after the switch, and this one completes it."""
    following = next_digest(host)
    return following not in ("", _digest(host.content(munge.key_path(host)))) and present_digest(host) == following


def strays(host: RunHost) -> list[str]:
    """Hosts that an earlier run has left with another key than the controllers have."""
    if has_switched(host):
        return []
    return [name for name, key in _keys(host, munge.KEY).items() if key == next_digest(host) != ""]


# -- munge: refusals -------------------------------------------------------------------------------------------------


def munge_objections(host: RunHost) -> list[str]:
    """Why the key of munge cannot be changed now; empty if it can. A switch that has taken place is completed."""
    if not rotates(host, "munge") or has_switched(host):
        return []
    return limited([*_away(host), *_store_errors(host), *_host_errors(host)])


def _away(host: RunHost) -> Iterator[str]:
    if away := [name for name in cluster_hosts(host) if name not in host.play_hosts]:
        yield (
            f"munge: {fold(away)} cannot take part, and a host with the previous key would be cut off. Bring it back, "
            "or remove it from the cluster file (a node with gpucluster.slurm.remove_nodes), and run without --limit"
        )


def _store_errors(host: RunHost) -> Iterator[str]:
    path, following = munge.key_path(host), munge.next_path(host)
    key, after = host.content(path), host.content(following)
    if key is None:
        yield f"munge_key_file: {path} is missing: run gpucluster.slurm.site, which fetches the key of the cluster"
    elif _digest(key) != present_digest(host):
        yield f"munge_key_file: {path} is not the munge key of the running cluster on {serving_controller(host)}"
    if after is not None and not LEAST_BYTES <= len(after) <= MOST_BYTES:
        yield (
            f"{following}: found {len(after)} bytes, allowed: {LEAST_BYTES} to {MOST_BYTES} random bytes, such as of "
            "head -c 1024 /dev/urandom"
        )
    if after is not None and after == key:
        yield f"{following}: found the present key, allowed: another one, or no such file for a random key"


def _host_errors(host: RunHost) -> Iterator[str]:
    known = {present_digest(host), next_digest(host)}
    if odd := [name for name, key in _keys(host, munge.KEY).items() if key not in known]:
        yield f"munge: {fold(odd)} has another key than {serving_controller(host)}: run gpucluster.slurm.site first"
    primary = host["slurm_controllers"][0]
    if serving_controller(host) != primary:
        yield (
            f"munge: {serving_controller(host)} serves, and not {primary}: it would serve again only after "
            f"SlurmctldTimeout. Start slurmctld on {primary} first"
        )
    stopped = [
        name
        for name in host["slurm_controllers"]
        if (facts := host.of(name).facts_or_none) is not None and not runs_slurmctld(facts)
    ]
    if stopped:
        yield f"munge: slurmctld does not run on {fold(stopped)}: run gpucluster.slurm.site first"


# -- munge: what each host does --------------------------------------------------------------------------------------


def program_file(_host: RunHost) -> HostFile:
    """The program of the switch, as one file."""
    return {"path": PROGRAM, "content": sent("programs.munge_switch"), "mode": "0700"}


def next_key(host: RunHost) -> str:
    """The next key, in base64, since it has arbitrary bytes."""
    key = host.content(munge.next_path(host))
    if key is None:
        raise ValueError(f"{munge.next_path(host)} is missing")
    return base64.b64encode(key).decode()


def command(_host: RunHost, step: str) -> list[str]:
    """The program of the switch with one of its steps."""
    return ["python3", PROGRAM, step]


def arming(host: RunHost, at: float) -> list[str]:
    """The command that arms this host for a time of the control host's clock."""
    answer = host.answer()
    options = [f"--at={at + (answer['clock_offset'] if answer else 0):.1f}", f"--gap={gap(host):.1f}"]
    if host.within(*_ASKING, "slurm_database") or is_controller(host):
        options += [f"--controller={address}" for address in conf_servers(host)]
    options += ["--is-controller"] if is_controller(host) else []
    options += ["--is-standby"] if host.name in host["slurm_controllers"][1:] else []
    options += ["--proves"] if host.within(*_ASKING) else []
    return [*command(host, "arm"), *options]


def gap(host: RunHost) -> float:
    """Seconds in which all other hosts change their key."""
    return 2 + len(cluster_hosts(host)) / 100


def margin(host: RunHost, took: float) -> float:
    """Seconds until the switch, from those that an earlier task on all hosts took: two more follow."""
    return 10 + 2 * took + len(cluster_hosts(host)) / 50


def staging_errors(host: RunHost) -> list[str]:
    """Hosts that do not have the next key, or are still in a switch."""
    states, texts = _states(host), []
    if other := [name for name, state in states.items() if state.get("next") != next_digest(host)]:
        texts.append(f"munge: {fold(other)} does not have the staged key")
    if armed := [name for name, state in states.items() if state.get("armed")]:
        texts.append(f"munge: an earlier run still changes the key on {fold(armed)}: run again in some minutes")
    return texts


def _states(host: RunHost) -> dict[str, dict[str, Any]]:
    """What the program has said on each host; empty where it has said nothing."""
    found = {name: registered.ROTATION_STATE.seen(host.of(name)).get("stdout") for name in cluster_hosts(host)}
    return {name: json.loads(text or "{}") for name, text in found.items()}


def switched(host: RunHost) -> bool:
    """Whether the cluster has the next key now: the serving controller decides."""
    state = _states(host).get(serving_controller(host)) or {}
    return has_switched(host) or (bool(next_digest(host)) and state.get("present") == next_digest(host))


def failures(host: RunHost) -> list[str]:
    """What went wrong on hosts during the switch."""
    found: dict[str, list[str]] = {}
    for name, state in _states(host).items():
        if state.get("error"):
            found.setdefault(str(state["error"]), []).append(name)
    return [f"{fold(names)}: {error}" for error, names in found.items()]


# -- munge: the plan -------------------------------------------------------------------------------------------------


def munge_plan(host: RunHost) -> list[str]:
    """What the change of munge's key will touch, for a person."""
    if not rotates(host, "munge"):
        return []
    if has_switched(host):
        return ["munge: completes the switch of an earlier run: all hosts get the key that the controllers have"]
    lines = [
        f"munge: {len(cluster_hosts(host))} hosts get another key at the same time. slurmctld is stopped on "
        f"{fold(host['slurm_controllers'])} for about {8 + gap(host):.0f} s: commands wait, jobs go on. Credentials "
        "of the present key are refused afterwards, also those of other programs that use munge"
    ]
    if found := strays(host):
        lines.append(f"munge: {fold(found)} first get back the present key, since an earlier run has not ended")
    return lines


def munge_failure(host: RunHost) -> str:
    """Why the run fails after a switch that did not take place."""
    reasons = "; ".join(failures(host)) or "the controllers have not switched"
    return (
        f"munge: all hosts have the previous key. {reasons}. Run again for another try, or remove "
        f"{munge.next_path(host)} to stay with this key"
    )


# -- the result ------------------------------------------------------------------------------------------------------


def result(host: RunHost) -> dict[str, object]:
    """The result of the playbook, for set_stats."""
    found: dict[str, object] = {"rotate": wanted(host)}
    if rotates(host, "munge") and not host.check_mode:
        found["munge"] = {"hosts": len(cluster_hosts(host)), "late": failures(host)}
    return found
