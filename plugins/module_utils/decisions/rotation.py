# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role rotation: which secrets a run changes, and what that touches."""

from __future__ import annotations

from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run_host import RunHost
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.formatting import shown
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.spelling import nearest

PARTS = ("munge", "jwt", "database", "registry", "backup")
"""The secrets that can be changed, in the order in which a run changes them."""


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
    return [
        f"rotate: found {shown(name)}, {allowed}{_meant(name)}"
        for name in dict.fromkeys(_given(host))
        if name not in PARTS
    ]


def _meant(name: str) -> str:
    near = nearest(name, PARTS)
    return f"; did you mean {near!r}?" if near else ""


# -- the result ------------------------------------------------------------------------------------------------------


def result(host: RunHost) -> dict[str, object]:
    """The result of the playbook, for set_stats."""
    return {"rotate": wanted(host)}
