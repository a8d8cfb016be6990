#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_configuration_info
short_description: Read the configuration files of a running Slurm
description:
  - Returns the texts of C(slurm.conf), of the other files that slurmctld reads from its directory, and of all files
    that they include, as role P(gpucluster.slurm.adopt#role) takes them.
  - With O(daemon=slurmd) it returns the files that slurmd of this node reads. It returns none if slurmd fetches its
    files from slurmctld, or if there is no slurmd, whatever files there are on the node.
  - C(slurmdbd.conf), which has a password, is left out. Other files can have secrets as well, such as
    C(AccountingStoragePass), so register the result with C(no_log).
extends_documentation_fragment: [gpucluster.slurm.reading, gpucluster.slurm.arguments.slurm_configuration_info]
"""

EXAMPLES = r"""
- name: Read the configuration
  gpucluster.slurm.slurm_configuration_info:
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import output, run
from ..module_utils.configuration.sources import (
    TRANSLATED,
    Files,
    SourceError,
    configuration_of,
    read_files,
    source_lines,
)
from ..module_utils.controller.drift import differences
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import ConfigurationInfo, FoundConfiguration

DEFAULT = "/etc/slurm/slurm.conf"
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where slurmd is searched for while it does not run: the path of systemd's units."""


def origin() -> tuple[int | None, str]:
    """The user id of the running slurmctld, and the package that its program comes from."""
    process = run(["pgrep", "--oldest", "--exact", "slurmctld"]).output.strip()
    if not process:
        return None, ""
    program = run(["dpkg-query", "--search", os.readlink(f"/proc/{process}/exe")])
    return os.stat(f"/proc/{process}").st_uid, "" if program.status else program.output.partition(":")[0]


def find_drift(files: Files, config: str, version: str, conf: str) -> list[str]:
    """The differences of slurmctld from its files: a second reading of them, by Slurm itself.

    Args:
        config: the output of `scontrol show config`; empty if slurmctld did not answer.
        conf: path of slurm.conf, or empty.
    """
    nodes = run(["scontrol", "--all", "--future", "--oneliner", "show", "node"], conf=conf)
    partitions = run(["scontrol", "--all", "--oneliner", "show", "partition"], conf=conf)
    if not config or nodes.status or partitions.status:
        return []
    try:
        says = configuration_of({name: source_lines(files, name) for name in TRANSLATED})
    except SourceError:  # which the control host names
        return []
    return differences(says, config, nodes.output, partitions.output, version)


def of_slurmctld(conf: str) -> FoundConfiguration:
    """What the controller has. Raises as `read_files`, CommandError and ValueError."""
    answer = run(["scontrol", "show", "config"], seconds=60, conf=conf)
    config = answer.output if not answer.status else ""
    shown = dict(re.findall(r"^(\w+)\s*= (.*)$", config, re.MULTILINE))
    path = Path(conf or shown.get("SLURM_CONF", DEFAULT))
    version = shown.get("SLURM_VERSION") or output(["scontrol", "--version"]).split()[-1]
    files = read_files(path)
    user_id, package = origin()
    return {
        "files": files,
        "directory": str(path.parent),
        "version": version,
        "user_id": user_id,
        "package": package,
        "drift": find_drift(files, config, version, conf),
    }


def path_of_slurmd(arguments: list[str], environment: Mapping[str, str]) -> str | None:
    """The slurm.conf that a running slurmd reads; empty for the usual one, None if it fetches its files.

    Args:
        arguments, environment: of the process. The option -f comes before SLURM_CONF, and --conf-server before both
            (slurmd(8)). SLURMD_RECONF_CONF_CACHE is there after a reconfigure of a slurmd that has fetched its files.
    """
    if any(word.partition("=")[0] == "--conf-server" for word in arguments):
        return None
    if "SLURMD_RECONF_CONF_CACHE" in environment:
        return None
    for place, word in enumerate(arguments):
        if word == "-f" and place + 1 < len(arguments):
            return arguments[place + 1]
        if word.startswith("-f") and not word.startswith("--"):
            return word[2:]
    return environment.get("SLURM_CONF", "")


def read_strings(process: str, name: str) -> list[str]:
    """The strings in a file of a process: its arguments (cmdline) or its environment (environ). Raises OSError."""
    return Path("/proc", process, name).read_bytes().decode(errors="replace").split("\0")


def of_slurmd(conf: str) -> FoundConfiguration:
    """What a node has of its own. Raises as `read_files`, and OSError."""
    process = run(["pgrep", "--uid", "0", "--oldest", "--exact", "slurmd"]).output.strip()
    path: str | None = ""
    if process:
        environment = dict(word.split("=", 1) for word in read_strings(process, "environ") if "=" in word)
        path = path_of_slurmd(read_strings(process, "cmdline"), environment)
    if path is None or not (process or shutil.which("slurmd", path=PROGRAMS)):
        return {"files": {}, "directory": ""}
    conf_path = Path(path or conf or DEFAULT)
    return {"files": read_files(conf_path) if conf_path.exists() else {}, "directory": str(conf_path.parent)}


def read_configuration(module: AnsibleModule) -> ConfigurationInfo:
    """The module's result. Raises SourceError, CommandError, OSError and ValueError."""
    read = {"slurmctld": of_slurmctld, "slurmd": of_slurmd}[module.params["daemon"]]
    return {"changed": False, **read(module.params["conf"])}


ARGUMENTS = {
    "conf": option(
        "Path of slurm.conf. If empty, the running slurmctld is asked. If it does not answer, the path is "
        "C(/etc/slurm/slurm.conf). The path that slurmd was started with comes before this one.",
        default="",
    ),
    "daemon": option("The daemon whose files are read.", choices=["slurmctld", "slurmd"], default="slurmctld"),
}


def main() -> None:
    run_module(read_configuration, ARGUMENTS, message="Slurm's configuration cannot be read: {error}")


if __name__ == "__main__":
    main()
