# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor's modules return, as in `module_results`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ..results.fact_records import (
    MOST_HOSTS,
    ClusterRecord,
    DaemonRecord,
    Empty,
    Line,
    Most,
    NodeFacts,
    NodeOptions,
    Number32,
    Word,
)
from ..results.module_results import Clock, Result
from .evidence import SlurmNode


class ServerAnswer(TypedDict):
    """Facts about a controller or the database host. Names of nodes become hosts of the play."""

    daemons: Annotated[dict[Word, DaemonRecord], Most(16)]
    full: Annotated[list[Line], Most(64)]
    cluster: ClusterRecord
    nodes: Annotated[list[SlurmNode], Most(MOST_HOSTS)]
    node_options: NodeOptions | Empty


class DoctorInfo(Result, Clock, ServerAnswer):
    """The result of slurm_doctor_info."""

    old_keys: Annotated[dict[Word, Number32], Most(16)]


class DoctorNodeInfo(Result, Clock, NodeFacts):
    """The result of slurm_doctor_node_info."""


RESULTS = {"slurm_doctor_info": DoctorInfo, "slurm_doctor_node_info": DoctorNodeInfo}
