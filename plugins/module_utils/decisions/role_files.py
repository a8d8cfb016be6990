# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of roles, which are the same for all hosts."""

from __future__ import annotations

from pathlib import Path

ROLES = Path(__file__).parents[3] / "roles"


def role_file(role: str, path: str) -> str:
    """The text of a file of a role, without blanks at its end, as the lookup `ansible.builtin.file` returns it.

    A template is not rendered.
    """
    return (ROLES / role / path).read_text(encoding="utf-8").rstrip()
