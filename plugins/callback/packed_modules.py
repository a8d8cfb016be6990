# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback that keeps the modules that ansible-core has packed for the next run."""

from __future__ import annotations

DOCUMENTATION = """
name: packed_modules
type: aggregate
short_description: Keeps packed modules for the next run
version_added: "0.2.0"
author: gpucluster.slurm contributors (@gpucluster)
description:
  - Before it sends a module to hosts, ansible-core packs it with all that it imports, in each run again. This
    callback keeps the packed modules of ansible-core and of this collection in
    C(gpucluster-slurm/packed-modules) below E(ANSIBLE_HOME), which is C(~/.ansible) by default, so that the next
    run begins with them. Each state of the sources has a directory of its own, and may be removed at any time.
  - Nothing is kept if the directory may be written by others, or if there are C(module_utils) of a site. A run gets
    nothing if E(ANSIBLE_LOCAL_TEMP) is on another file system.
requirements:
  - C(callbacks_enabled = gpucluster.slurm.packed_modules) in the section C([defaults]) of ansible.cfg, or the
    environment variable E(ANSIBLE_CALLBACKS_ENABLED).
seealso:
  - plugin: gpucluster.slurm.result
    plugin_type: callback
"""

import os
from contextlib import suppress
from pathlib import Path

import ansible.module_utils
import ansible.modules
from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import module_utils_loader

from ..plugin_utils.packed_modules import give, keep, state

OF_ANSIBLE = (Path(ansible.module_utils.__file__).parent, Path(ansible.modules.__file__).parent)
PLUGINS = Path(__file__).parents[1]


def has_own_utils() -> bool:
    """Whether a site has module_utils, which modules of ansible-core may have been packed with."""
    found = (Path(path) for path in module_utils_loader.print_paths().split(os.pathsep))
    return any(path.is_dir() and path != OF_ANSIBLE[0] for path in found)


class CallbackModule(CallbackBase):
    """The callback. It shows nothing, and without its directory everything is packed as ever."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpucluster.slurm.packed_modules"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.run = Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache")
        name = state([*OF_ANSIBLE, PLUGINS / "modules", PLUGINS / "module_utils"])
        self.store = Path(constants.ANSIBLE_HOME, "gpucluster-slurm/packed-modules", name)
        with suppress(OSError):
            if not has_own_utils():
                give(self.store, self.run)

    def v2_playbook_on_stats(self, *_: object) -> None:
        """Keep what this run has packed."""
        with suppress(OSError):
            if not has_own_utils():
                keep(self.run, self.store)
