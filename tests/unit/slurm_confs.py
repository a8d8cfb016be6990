# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slurm.conf for tests, and what a change of it changes."""

from __future__ import annotations

from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    ConfigurationChange,
    changes,
    read,
)

OLD = """
# The cluster
ClusterName=demo  KillWait=30
SlurmctldHost=head(10.0.0.1)
SlurmctldHost=head2
MailProg="/bin/a mail"   # a comment
Epilog=/a\\#b
NodeName=DEFAULT Sockets=2 CoresPerSocket=4
NodeName=n[1-4] NodeAddr=10.0.0.[1-4] RealMemory=1000 Gres=gpu:2
NodeName=n[5-6] RealMemory=2000 \\
  Weight=3
PartitionName=gpu Nodes=n[1-4] Default=YES
PartitionName=old Nodes=n5
"""


def edited(*replacements: tuple[str, str]) -> list[ConfigurationChange]:
    """The changes that replacements in the text make."""
    new = OLD
    for before, after in replacements:
        assert before in new
        new = new.replace(before, after)
    return changes(read({"slurm.conf": OLD}), read({"slurm.conf": new}))
