# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""job_container.conf (`src/plugins/job_container/tmpfs/read_jcconf.c`, from 25.11 on `src/plugins/namespace/tmpfs`) and
namespace.yaml (`src/plugins/namespace/linux`), of which only the names of keys are here: it is no file of Key=value.

job_container.conf(5): a reconfigure is not enough, and a slurmd that starts again with another file loses what running
jobs have mounted.
"""

from __future__ import annotations

JOB_CONTAINER_CONF = """
AutoBasePath        bool   nodes
BasePath            path   nodes
CloneNSEpilog       path   nodes  24.11+
CloneNSEpilog_Wait  u32 s  nodes  24.11+
CloneNSScript       path   nodes  24.11+
CloneNSScript_Wait  u32 s  nodes  24.11+
Dirs                text   nodes  23.02+
EntireStepInNS      bool   nodes  24.11+
InitScript          path   nodes
NodeName            hosts  nodes
Shared              bool   nodes  23.02+
"""
"""Lines of several parameters, or of one."""

NAMESPACE_YAML = """
auto_base_path        text  nodes  25.11+
base_path             text  nodes  25.11+
clone_ns_epilog       text  nodes  25.11+
clone_ns_epilog_wait  text  nodes  25.11+
clone_ns_flags        text  nodes  25.11+
clone_ns_script       text  nodes  25.11+
clone_ns_script_wait  text  nodes  25.11+
defaults              text  nodes  25.11+
dir_confs             text  nodes  26.05+
dirs                  text  nodes  25.11+
disable_bpf_token     text  nodes  25.11+
init_script           text  nodes  25.11+
node_confs            text  nodes  25.11+
nodes                 text  nodes  25.11+
options               text  nodes  25.11+
path                  text  nodes  26.05+
shared                text  nodes  25.11+
tmpfs                 text  nodes  26.05+
user_ns_script        text  nodes  25.11+
"""
"""Keys of namespace.yaml, of all its levels."""
