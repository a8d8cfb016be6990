#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_spank_plugin
short_description: Change a SPANK plugin of Slurm so that the change can be undone
description:
  - Installs a SPANK plugin, or another version of it, at the path that plugstack.conf names, and keeps the previous one
    until a job has confirmed that the new one works.
  - On the controller it saves the plugin's line in plugstack.conf. It does not change plugstack.conf, which is one of
    the files of M(gpucluster.slurm.slurm_config).
  - Each file is replaced atomically, so a job that starts meanwhile has either the previous or the new plugin. If a run
    is killed, neither is lost, and the next run continues.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_spank_plugin]
"""

EXAMPLES = r"""
- name: Restore the previous plugin
  gpucluster.slurm.slurm_spank_plugin: {path: /usr/local/lib/gpucluster-slurm/spank_pyxis.so, state: former}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.files import FileError
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, switch
from ..module_utils.host.spank_change import Change, SpankPlugin, apply, checksum, content

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import PluginResult

KEPT = "/var/lib/gpucluster-slurm"
"""Directory in which the previous line is kept."""


def wanted(source: str, sha256: str | None, check_mode: bool) -> tuple[str, bytes]:
    """The checksum of the wanted plugin, and its content, which is empty if a package will install it later.

    Raises:
        FileError: another one is there.
        OSError: it cannot be read.
    """
    if sha256 and check_mode:
        return sha256, b""
    with open(source, "rb") as file:
        plugin = file.read()
    found = checksum(plugin)
    if sha256 and found != sha256:
        raise FileError(f"{source}: found sha256 {found}, allowed {sha256}")
    return found, plugin


def plan(plugin: SpankPlugin, params: Params, check_mode: bool) -> list[Change]:
    """The necessary changes, in this order. Raises FileError, OSError."""
    if params["state"] == "proven":
        return plugin.forget()
    if params["state"] == "former":
        return plugin.restore()
    changes = []
    if params["source"]:
        changes += plugin.install(*wanted(params["source"], params["sha256"], check_mode))
    if params["line"]:
        plugstack = content(os.path.join(params["directory"], "plugstack.conf")) or b""
        changes += plugin.keep_line(plugstack.decode(), params["line"], params["replaced"])
    return changes


def change_plugin(module: AnsibleModule) -> PluginResult:
    """Change the plugin, and return the module's result. Raises FileError, OSError and ValueError."""
    params, plugin = module.params, SpankPlugin(module.params["path"], KEPT)
    changes = plan(plugin, params, module.check_mode)
    diff = [change.diff for change in changes]
    result: PluginResult = {"changed": bool(changes), "unproven": plugin.is_unconfirmed(changes), "diff": diff}
    if params["line"]:
        result["former_line"] = plugin.line_before(changes, params["line"])
    if not module.check_mode:
        apply(changes)
    return result


ARGUMENTS = {
    "path": option("Path of the plugin, as in plugstack.conf.", "path", required=True),
    "state": option(
        "V(present) installs O(source), and saves the previous plugin, and the line of plugstack.conf if it differs "
        "from O(line). A copy that is already saved is not replaced, since no job has run with a later plugin.\n"
        "V(proven) removes the saved copies, after a job has run with the plugin.\n"
        "V(former) restores the previous plugin, or removes the plugin if there was none, and then removes the saved "
        "copies. If the previous plugin is for another release of Slurm, such as before an upgrade, nothing is "
        "changed.",
        choices=["present", "proven", "former"],
        default="present",
    ),
    "source": option("Path of the plugin on this host that V(present) copies, such as the one in a package.", "path"),
    "sha256": option(
        "SHA-256 checksum of O(source). A file with another checksum is refused. With it, O(source) need not exist in "
        "check mode, since its package may not be installed yet."
    ),
    "line": option("The plugin's new line for plugstack.conf."),
    "replaced": switch(
        "Whether a host gets another plugin than the one with which its jobs run. Then V(present) saves the line of "
        "plugstack.conf also if it is O(line) already."
    ),
    "directory": option("Directory of Slurm's configuration, with O(line).", "path", default="/etc/slurm"),
}


def main() -> None:
    run_module(
        change_plugin,
        ARGUMENTS,
        required_if=[("state", "present", ("source", "line"), True)],
        required_by={"sha256": "source"},
    )


if __name__ == "__main__":
    main()
