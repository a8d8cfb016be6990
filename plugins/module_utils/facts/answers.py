# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the answers of a host: types, patterns and sizes of the facts.

Somebody may have taken over a compute node. What it says of itself is data that is written into files of the control
host, shown to people and compared with that of other hosts: an answer of another type, or one that is not written as
such answers are, is nobody's measurement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], str]
"""Returns the error in a value, or an empty text."""

SHOWN = 60
"""Characters of a wrong value that are shown."""

LARGEST = 2**43
"""MiB: more memory or disk than that is nobody's."""


def _found(value: Any) -> str:
    """A value as it is shown: printable, and short."""
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _number(most: int, least: int = 0, none: bool = False) -> Check:
    def check(value: Any) -> str:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if (value is None and none) or (whole and least <= value <= most):
            return ""
        return f"found {_found(value)}, allowed: a number from {least} to {most}{', or none' if none else ''}"

    return check


def _text(pattern: str, most: int = 200, none: bool = False) -> Check:
    def check(value: Any) -> str:
        if value is None and none:
            return ""
        if isinstance(value, str) and len(value) <= most and re.fullmatch(pattern, value, re.ASCII):
            return ""
        return f"found {_found(value)}, allowed: a text like {pattern}, of at most {most} characters"

    return check


def _truth(value: Any) -> str:
    return "" if isinstance(value, bool) else f"found {_found(value)}, allowed: true or false"


def _list(of: Check, most: int = 4096) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, list) or len(value) > most:
            return f"found {_found(value)}, allowed: a list of at most {most}"
        return next((f"[{i}]: {what}" for i, item in enumerate(value) if (what := of(item))), "")

    return check


def _mapping(key: Check, of: Check, most: int = 4096) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, Mapping) or len(value) > most:
            return f"found {_found(value)}, allowed: a mapping of at most {most}"
        return next((f"{_found(name)}: {what}" for name, item in value.items() if (what := key(name) or of(item))), "")

    return check


def _record(**fields: Check) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, Mapping):
            return f"found {_found(value)}, allowed: a mapping"
        for name, of in fields.items():
            if name not in value:
                return f"{name}: is missing"
            if what := of(value[name]):
                return f"{name}: {what}" if not what.startswith("[") else f"{name}{what}"
        return "".join(f"found {_found(name)}, which is no such fact" for name in [*value] if name not in fields)[:200]

    return check


_PRINTABLE = r"[ -~]*"
_WORD = r"[A-Za-z0-9][A-Za-z0-9+._~:-]*"
_PATH = r"/[A-Za-z0-9+._/@%:-]*"

HARDWARE = _record(
    cpus=_number(1 << 20, 1),
    boards=_number(1 << 16),
    sockets_per_board=_number(1 << 16),
    cores_per_socket=_number(1 << 16),
    threads_per_core=_number(1 << 16),
    real_memory=_number(LARGEST, none=True),
    tmp_disk=_number(LARGEST, none=True),
    device_files=_list(_text(_PATH)),
    gpus=_list(
        _record(
            minor=_number(1 << 20, none=True),
            pci_address=_text(r"[0-9a-fA-F:.]+"),
            model=_text(_PRINTABLE, none=True),
            type=_text(r"[a-z0-9][a-z0-9._-]*", 64, none=True),
            memory_mb=_number(LARGEST, none=True),
            numa_node=_number(1 << 16, none=True),
            cores=_text(r"[0-9,-]*", 4096),
            mig=_list(_record(profile=_text(_WORD, 64), uuid=_text(_WORD)), 64),
        ),
        1024,
    ),
)
"""The fact `slurm_hardware` (module slurm_hardware_facts)."""

HOST = _record(
    distribution=_text(r"[a-z0-9._-]+( [A-Za-z0-9._-]+)?", 64),
    codename=_text(r"[a-z0-9._-]*", 64),
    hostname=_text(r"[A-Za-z0-9._-]*", 255),
    container=_text(r"[a-z0-9-]+", 64),
    memory_mib=_number(LARGEST),
    nvidia_gpus=_number(1024),
    slurm_version=_text(r"(?:[A-Za-z0-9+._~:-]+)?"),
    packages=_mapping(_text(_WORD), _text(_WORD)),
    candidates=_mapping(_text(_WORD), _text(_WORD)),
    mirror=_text(r"(?:[a-z+]+:[A-Za-z0-9+._~:/@%-]+)?"),
    interrupted=_truth,
    clocks=_mapping(_text(_WORD), _truth),
    users=_mapping(_text(_WORD), _number(1 << 32)),
    directories=_mapping(_text(_PATH), _text(r"[0-7]{4}")),
    files=_mapping(_text(_PATH), _text(r"[0-9a-f]{64}")),
    part=_text(r"([0-9a-f]{64})?"),
    serving_controller=_text(r"[A-Za-z0-9._-]*", 255),
    namespaces=_record(
        max_user_namespaces=_number(1 << 63, none=True),
        unprivileged_userns_clone=_number(1 << 31, none=True),
        apparmor_restrict_unprivileged_userns=_number(1 << 31, none=True),
    ),
)
"""The fact `slurm_host` (module slurm_host_facts)."""

FACTS: dict[str, Check] = {"slurm_host": HOST, "slurm_hardware": HARDWARE}


def answer_errors(facts: Any, wanted: list[str]) -> list[str]:
    """What is wrong with the facts of a host, `FACT: what`; empty if all is right.

    facts: what a module has returned as `ansible_facts`. wanted: those that have to be there. Another one, such as a
    variable of a role, would win over that of the inventory where facts are variables.
    """
    if not isinstance(facts, Mapping):
        return [f"ansible_facts: found {_found(facts)}, allowed: a mapping"]
    # Ansible adds what it has found out itself.
    own = [name for name in facts if not (isinstance(name, str) and name.startswith("discovered_interpreter"))]
    strange = [f"{_found(name)}: is no fact of this collection" for name in own if name not in FACTS]
    missing = [f"{name}: is missing" for name in wanted if name not in facts]
    wrong = [f"{name}: {what}" for name in FACTS if name in facts and (what := FACTS[name](facts[name]))]
    return missing + wrong + strange[:5]
