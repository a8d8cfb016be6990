# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of alertmanager."""

from __future__ import annotations


def configuration(receivers: str | None) -> str:
    """The configuration: what the site's file of receivers says, or alerts that nobody is sent."""
    return receivers or "route: {receiver: none}\nreceivers: [{name: none}]\n"
