#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_configuration_info
short_description: Read the configuration files of a running Slurm
version_added: 0.2.0
description:
  - Returns the texts of C(slurm.conf), of the other files that slurmctld reads from its directory, and of all files
    that they include, as the filter P(gpucluster.slurm.adopted#filter) takes them.
  - C(slurmdbd.conf), which has a password, is left out. Other files can have secrets as well, such as
    C(AccountingStoragePass), so register the result with C(no_log).
options:
  conf:
    description: >-
      Path of slurm.conf. If empty, the running slurmctld is asked. If it does not answer, the path is
      C(/etc/slurm/slurm.conf).
    type: str
    default: ""
extends_documentation_fragment: [gpucluster.slurm.reading]
requirements:
  - Slurm's scontrol (22.05 or later)
seealso:
  - module: gpucluster.slurm.slurm_config
"""

EXAMPLES = r"""
- name: Read the configuration
  gpucluster.slurm.slurm_configuration_info:
  register: configuration
  no_log: true
"""

RETURN = r"""
files:
  description: The texts, a file beside slurm.conf by its name, and another one by its path.
  type: dict
  returned: always
  sample: {slurm.conf: "ClusterName=demo\n", nodes.conf: "NodeName=n1\n"}
directory:
  description: The directory of slurm.conf.
  type: str
  returned: always
  sample: /etc/slurm
version:
  description: The version of the running slurmctld, or else of the installed Slurm.
  type: str
  returned: always
  sample: 24.11.5
user_id:
  description: The user id with which slurmctld runs; null if it does not run on this host.
  type: int
  returned: always
  sample: 64030
package:
  description: The package of the program that runs as slurmctld; empty if it is in none.
  type: str
  returned: always
  sample: slurmctld
"""

import os
import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.sources import SourceError, read_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.slurm_commands import CommandError, output, run


def origin() -> tuple[int | None, str]:
    """The user id of the running slurmctld, and the package that its program comes from."""
    process = run(["pgrep", "--oldest", "--exact", "slurmctld"]).output.strip()
    if not process:
        return None, ""
    program = run(["dpkg-query", "--search", os.readlink(f"/proc/{process}/exe")])
    return os.stat(f"/proc/{process}").st_uid, "" if program.status else program.output.partition(":")[0]


def main() -> None:
    module = AnsibleModule(argument_spec={"conf": {"type": "str", "default": ""}}, supports_check_mode=True)
    conf = module.params["conf"]
    try:
        answer = run(["scontrol", "show", "config"], seconds=60, conf=conf)
        shown = dict(re.findall(r"^(\w+)\s*= (.*)$", answer.output if not answer.status else "", re.MULTILINE))
        path = Path(conf or shown.get("SLURM_CONF", "/etc/slurm/slurm.conf"))
        version = shown.get("SLURM_VERSION") or output(["scontrol", "--version"]).split()[-1]
        files = read_files(path)
        user_id, package = origin()
    except (SourceError, CommandError, OSError, ValueError) as error:
        module.fail_json(msg=f"Slurm's configuration cannot be read: {error}")
    module.exit_json(
        changed=False, files=files, directory=str(path.parent), version=version, user_id=user_id, package=package
    )


if __name__ == "__main__":
    main()
