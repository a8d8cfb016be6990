#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather the pending updates of a host's packages."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_updates_info
short_description: Gather the pending updates of a host's packages
description:
  - Returns which packages of Slurm, munge, MariaDB, enroot, apptainer, NVIDIA, the kernel and OpenSSH have a newer
    version in apt's lists, and whether that is a security update. Held packages and packages that apt's preferences
    keep at a version are among them.
  - A security update is a version in a list of Debian's or Ubuntu's archive of security updates. Other sources of
    packages do not say what their versions are for.
  - It changes nothing and does not update apt's lists.
extends_documentation_fragment: [gpucluster.slurm.reading, gpucluster.slurm.arguments.slurm_updates_info]
"""

EXAMPLES = r"""
- name: Gather pending updates
  gpucluster.slurm.slurm_updates_info:
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import output
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import switch
from ..module_utils.host.packages.apt_updates import gather_updates

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import UpdatesInfo


def gather(module: AnsibleModule) -> UpdatesInfo:
    """The module's result. Raises CommandError."""
    return {"changed": False, **gather_updates(output, module.params["whole"])}


ARGUMENTS = {"whole": switch("Whether to return the security updates of all packages as well.")}


def main() -> None:
    run_module(gather, ARGUMENTS)


if __name__ == "__main__":
    main()
