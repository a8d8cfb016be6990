# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that show that hosts have one key of munge, and that their munged runs."""

from __future__ import annotations

ENCODE = ["munge", "--no-input", "--ttl=-1", "--restrict-uid=0"]
"""Makes a credential, which is valid as long as munged allows, an hour by default: a task on all hosts of a large
cluster takes minutes. The clocks are compared before, by their offsets."""

DECODE = ["unmunge", "--output=/dev/null", "--keys=STATUS"]
"""Decodes a credential from standard input. With --no-output, nothing says that one has expired."""
