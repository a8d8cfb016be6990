# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""topology.conf (`src/plugins/topology/{tree,block,ring}`) and topology.yaml (topology.yaml(5), `add_parse` in
`src/plugins/data_parser`). Of topology.yaml only the names of keys are here: it is no file of Key=value.
"""

from __future__ import annotations

TOPOLOGY_CONF = """
BlockLevels  text   reconfigure  23.11-23.11; use BlockSizes
BlockName    text   reconfigure  23.11+
BlockSizes   text   reconfigure  24.05+
LinkSpeed    u32    reconfigure
Nodes        hosts  reconfigure
RingName     text   reconfigure  26.05+
Switches     hosts  reconfigure
SwitchName   text   reconfigure
"""
"""Lines of topology/tree (SwitchName), topology/block (BlockName, BlockSizes) and topology/ring."""

TOPOLOGY_YAML = """
alpha_step_rank  text  reconfigure  25.11+
anchor           text  reconfigure  26.05+
anchor_seed      text  reconfigure  26.05+
anchor_spacing   text  reconfigure  26.05+
block            text  reconfigure  25.05+
block_sizes      text  reconfigure  25.05+
blocks           text  reconfigure  25.05+
children         text  reconfigure  25.05+
cluster_default  text  reconfigure  25.05+
dims             text  reconfigure  26.05+
flat             text  reconfigure  25.05+
name             text  reconfigure  26.05+
nodes            text  reconfigure  25.05+
placements       text  reconfigure  26.05+
regions          text  reconfigure  26.05+
ring             text  reconfigure  26.05+
rings            text  reconfigure  26.05+
switch           text  reconfigure  25.05+
switches         text  reconfigure  25.05+
topology         text  reconfigure  25.05+
torus3d          text  reconfigure  26.05+
toruses          text  reconfigure  26.05+
tree             text  reconfigure  25.05+
x                text  reconfigure  26.05+
y                text  reconfigure  26.05+
z                text  reconfigure  26.05+
"""
"""Keys of topology.yaml, of all its levels."""
