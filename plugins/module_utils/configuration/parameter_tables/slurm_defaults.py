# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's own values of parameters that roles have to know, where slurm.conf does not have them.

Source: `DEFAULT_...` in `src/common/read_config.h`, the same in all releases.
"""

from __future__ import annotations

from collections.abc import Mapping

SLURM_DEFAULTS: Mapping[str, str | int] = {
    "SlurmdSpoolDir": "/var/spool/slurmd",
    "SlurmdTimeout": 300,
    "StateSaveLocation": "/var/spool",
}
