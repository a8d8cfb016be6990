# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation that the modules that compare directories share."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation that they share."""

    DOCUMENTATION = r"""
options:
  directories:
    description:
      - Directories of root and of services, whose owner and mode are compared.
      - No other user may be able to change their paths. A symbolic link is followed if it belongs to root. A symbolic
        link of another user, a directory above in which other users can write, and a directory that another user has
        made are errors.
    type: list
    elements: dict
    default: []
    version_added: 0.2.0
    suboptions:
      path:
        description: Path of the directory.
        type: path
        required: true
      owner:
        description:
          - User who owns the directory, by name. Its group is that of the user. With the empty value, any owner and
            mode is right with which other users cannot write there, and nothing is changed.
        type: str
        default: ""
      owner_id:
        description:
          - Id of a user O(directories[].owner) who does not exist yet, and of the group of this user. Without it, what
            belongs to this id belongs to a stranger.
        type: int
        default: 0
        version_added: 0.2.0
      mode:
        description: Permissions of the directory, in octal.
        type: str
        default: "0755"
      make:
        description: Whether the directory is made if it is missing.
        type: bool
        default: true
      closed:
        description:
          - Whether nothing in the directory may belong to an ordinary user. That is one with an id of 1000 or more who
            owns none of the directories.
        type: bool
        default: false
      file:
        description: Whether it is a file with one name, which is never made.
        type: bool
        default: false
"""
