# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One store of packed modules for all playbooks of the tests.

Ansible packs each module anew in each run, from a hundred files, into a directory that ends with the run. That was a
third of the time of a run on stand-ins for hosts. Here the directory is the same for all runs (`conftest.py`) of one
release of ansible-core: the name of a packed module says nothing of the release that packed it.
"""

from __future__ import annotations

import os

from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__


class CallbackModule(CallbackBase):
    """Shows nothing: it begins before the first task."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "packed_modules"

    def __init__(self) -> None:
        super().__init__()
        store = os.path.join(os.environ["PACKED_MODULES"], __version__)
        os.makedirs(store, exist_ok=True)
        os.symlink(store, os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache"))
