# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation that the modules that write files of root share."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation that they share."""

    DOCUMENTATION = r"""
options:
  files:
    description: The files. Their owner is root. Missing directories are created.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Path of the file.
        type: path
        required: true
      content:
        description: The text of the file.
        type: str
        required: true
      mode:
        description: Permissions of the file, in octal.
        type: str
        default: "0644"
      marker:
        description:
          - Makes O(files[].content) a part of the file, between two lines that are this text with C({mark}) replaced by
            C(BEGIN) and C(END). The rest of the file is not changed.
        type: str
"""
