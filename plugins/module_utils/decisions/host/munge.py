# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role munge."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...client.munge_credentials import DECODE, ENCODE
from ..known import image, registered, secret_sources
from ..known.daemon_records import ServiceOptions
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import serves, serving_controller, state_mark

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import HostAnswer

KEY = "/etc/munge/munge.key"
"""The key on a host."""


def service(host: RunHost) -> ServiceOptions:
    """How munge runs on this host. An image has no key.

    The controller makes a credential, and every other host decodes it. A host without a controller decodes its own
    credential. Without a credential there is nothing to decode, and the run fails with the error of the controller.
    """
    if image.builds(host):
        return ServiceOptions([])
    files = key_files(host)
    return ServiceOptions(files, digest(host), proof={"command": ENCODE} if serves(host) else decoding(host))


def lacks_key(host: RunHost) -> bool:
    """Whether a task has to write the key on the control host. An image has no key."""
    return not (image.builds(host) or secret_sources.is_known(host, secret_sources.MUNGE))


def key_files(host: RunHost) -> list[HostFile]:
    """The key, in base64, since it has arbitrary bytes.

    Raises:
        ValueError: the control host has no key. In check mode it may not exist yet.
    """
    key = base64.b64encode(secret_sources.required(host, secret_sources.MUNGE, "munge_key_file")).decode()
    return [{"path": KEY, "secret": key, "owner": "munge", "mode": "0400"}]


def digest(host: RunHost) -> str:
    """The checksum of the options, by which a host is known to be as the last run has left it (SHA-256)."""
    return hashlib.sha256(json.dumps(key_files(host)).encode()).hexdigest()


def decoding(host: RunHost) -> dict[str, Any] | None:
    """The check that a host decodes a credential of the controller."""
    controller = serving_controller(host)
    if controller in host.all_play_hosts:
        credential = registered.MUNGE_ENCODED.seen(host.of(controller)).get("proof", "")
    else:
        credential = registered.MUNGE_CREDENTIAL.seen(host).get("stdout", "")
    return {"command": DECODE, "stdin": credential} if credential else None


def cluster_runs(host: RunHost) -> bool:
    """Whether the controller has served a cluster, which keeps its key."""
    asked = registered.MUNGE_CLUSTER.seen(host)
    if "stat" in asked:
        return bool(asked["stat"]["exists"])
    return state_mark(host) in host.of(serving_controller(host)).facts["files"]


def hosts_with_work(host: RunHost, answers: Mapping[str, HostAnswer]) -> list[str]:
    """The hosts on which munge is not as the last run has left it, in the order of the answers.

    With them, the controller is one of them, whose credential they decode. Without a key on the control host, all are.

    Args:
        host: any host.
        answers: by host, the answer to slurm_host_facts with the stages that follow from it.
    """
    wanted = digest(host) if secret_sources.is_known(host, secret_sources.MUNGE) else None
    changed = {
        name
        for name, answer in answers.items()
        if wanted is None
        or answer["ansible_facts"]["slurm_host"]["applied"].get("munge") != wanted
        or "preparation" in answer["stages"]
    }
    changed |= {serving_controller(host)} if changed else set()
    return [name for name in answers if name in changed]


def key_path(host: RunHost) -> str:
    """The file on the control host with the key, unless a command of the site prints it."""
    return secret_sources.path(host, secret_sources.MUNGE)


def next_path(host: RunHost) -> str:
    """The file on the control host with the next key, from the beginning of a switch to its end."""
    return f"{key_path(host)}.next"


def switch_objection(host: RunHost) -> str:
    """Why site.yml must not give hosts the key of the control host: all have to get another key at the same time.

    A cluster whose controller has not served yet may get any key.
    """
    if image.builds(host):
        return ""
    path, controller = key_path(host), serving_controller(host)
    ends = "gpucluster.slurm.rotate_keys -e rotate=munge"
    if host.content(next_path(host)) is not None:
        return (
            f"Nothing was changed. {next_path(host)} exists: the cluster gets another munge key. Run {ends}, which "
            "completes that or goes back"
        )
    wanted = secret_sources.secret(host, secret_sources.MUNGE)
    facts = host.of(controller).facts_or_none if controller in host["groups"]["all"] else None
    if wanted is None or facts is None:
        return ""
    files = facts["files"]
    if state_mark(host) not in files or files.get(KEY, "") in ("", hashlib.sha256(wanted).hexdigest()):
        return ""
    if secret_sources.comes_from_command(host):
        return (
            f"Nothing was changed. slurm_secrets_command prints another munge key than {KEY} of {controller} has, and "
            "hosts that get another key one by one lose jobs. docs/admin/rotation.md has the way to another key"
        )
    return (
        f"Nothing was changed. {path} is not the munge key of the running cluster ({KEY} of {controller}), and hosts "
        f"that get another key one by one lose jobs. To change the key, rename the file to {next_path(host)}, remove "
        f"{path}, and run {ends}. To keep the cluster's key, remove {path}: the next run fetches it"
    )
