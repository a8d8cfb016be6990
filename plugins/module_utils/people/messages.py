# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What several hosts say, in lines that name the hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..language.formatting import limited
from ..language.hostlist import fold


def host_lines(said: Mapping[str, Iterable[str]]) -> list[str]:
    """Each text once, behind the folded names of the hosts that have it; those of the most hosts come first."""
    hosts: dict[str, list[str]] = {}
    for host, texts in said.items():
        for text in dict.fromkeys(texts):
            hosts.setdefault(text, []).append(host)
    ordered = sorted(hosts.items(), key=lambda item: -len(item[1]))
    return limited([f"{fold(names)}: {text}" for text, names in ordered])
