#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_firewall
short_description: Load the firewall of a host, and take it back if nobody can log in
description:
  - Loads the table C(inet gpucluster_slurm) of nftables, in one transaction, and lets each boot load it. Other tables
    are never touched.
  - New rules are confirmed by a second, new connection from the control host, as the same user and with the same way to
    become root, while the first one is still open. If the new connection fails, the previous rules come back.
  - If the run is killed between the change and its confirmation, a timer of the host takes the rules back after two
    minutes. A boot meanwhile loads confirmed rules only.
  - Rules that would refuse the address of the present connection are not loaded.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_firewall]
"""

EXAMPLES = r"""
- name: Load the firewall
  gpucluster.slurm.slurm_firewall: {rules: "{{ rules }}", unit: "{{ unit }}", digest: "{{ digest }}"}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import run
from ..module_utils.host import firewall_change as firewall
from ..module_utils.host.files import File, FileError, check, replace
from ..module_utils.host.json_files import read_record
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import FirewallResult


def connection() -> tuple[str, int] | None:
    """The address of the control host and the port of sshd, by which this module came; None without ssh.

    sudo removes the variable of sshd, so the processes above this one are asked.
    """
    process = os.getpid()
    while process > 1:
        try:
            with open(f"/proc/{process}/environ", encoding="utf-8", errors="replace") as file:
                found = dict(entry.partition("=")[::2] for entry in file.read().split("\0"))
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None
        fields = found.get("SSH_CONNECTION", "").split()
        if len(fields) == 4 and fields[3].isdigit():
            return fields[0].partition("%")[0], int(fields[3])
    return None


def admitted(address: str, places: list[str]) -> bool:
    """Whether an address is among addresses, ranges and networks."""
    own = ip_address(address)
    own = getattr(own, "ipv4_mapped", None) or own
    for place in places:
        if place == "any":
            return True
        first, dash, last = place.partition("-")
        if dash:
            ends = ip_address(first), ip_address(last)
            if own.version == ends[0].version and int(ends[0]) <= int(own) <= int(ends[1]):
                return True
        elif own in ip_network(place):
            return True
    return False


def refuse(ssh: list[str], port: int) -> None:
    """Refuse rules that would not let in the present connection again. Raises FileError."""
    here = connection()
    if here is None:
        return
    address, own_port = here
    if port and own_port != port:
        raise FileError(
            f"firewall.ssh_port: found {port}, allowed: {own_port}, the port of sshd by which this run has come; "
            "nothing was changed"
        )
    if not admitted(address, ssh):
        raise FileError(
            f"firewall.ssh: found {', '.join(ssh) or 'nobody'}, allowed: also {address}, from which this run has come, "
            "or a network with it; nothing was changed"
        )


def others() -> list[str]:
    """Warnings about other firewalls that are active: a connection comes in only if both let it in."""
    asked = {
        "firewalld": ("active", ["systemctl", "is-active", "firewalld.service"]),
        "ufw": ("Status: active", ["/usr/sbin/ufw", "status"]),
    }
    return [
        f"{os.uname().nodename}: {name} is active as well, and its rules stay as they are: a connection comes in only "
        "if both let it in (docs/design/firewall.md)"
        for name, (active, command) in asked.items()
        if run(command).output.split("\n")[0] == active
    ]


def present(module: AnsibleModule) -> FirewallResult:
    """Make the change, and return the module's result. Raises FileError, OSError."""
    params, check_mode = module.params, module.check_mode
    refuse(params["ssh"], params["ssh_port"])
    rules = File(firewall.RULES, params["rules"].encode(), mode=0o600)
    unit = File(f"{firewall.UNITS}/{firewall.UNIT}", params["unit"].encode())
    loaded = firewall.table_checksum()
    unproven = rules.differs or not loaded or loaded != read_record(firewall.RECORD).get("listed")
    changed = unproven or rules.changes or unit.changes or firewall.state() != params["digest"]
    for warning in others() if changed else []:
        module.warn(warning)
    check([rules, unit])  # rules that nft refuses show before anything changes
    if changed and not check_mode:
        change_rules(rules, unit, params["digest"], unproven)
    diff = [file.diff for file in (rules, unit) if file.changes]
    if unproven and not rules.changes:
        diff.append(table(loaded))
    return {"changed": changed, "unproven": unproven and not check_mode, "diff": diff}


def change_rules(rules: File, unit: File, digest: str, unproven: bool) -> None:
    """Write the files, and load the rules if a new connection has to confirm them. Raises FileError, OSError."""
    firewall.restore()  # of a run that was killed
    replace([unit])
    if unproven:
        firewall.apply(rules.content.decode(), digest)
    else:
        replace([rules])
        firewall.keep(digest)


def table(loaded: str) -> dict[str, str]:
    """The diff of a table that is not in the kernel as it was loaded."""
    name = f"table {' '.join(firewall.TABLE)}"
    before = "other rules in the kernel\n" if loaded else "not in the kernel\n"
    return {"before_header": name, "after_header": name, "before": before, "after": "as in the file\n"}


def absent(module: AnsibleModule) -> FirewallResult:
    """Remove the firewall, and return the module's result. Raises FileError, OSError."""
    changed = firewall.state() != "" or firewall.table_checksum() != ""
    if changed and not module.check_mode:
        firewall.remove()
    name = f"table {' '.join(firewall.TABLE)}"
    diff = [{"before_header": name, "after_header": name, "before": "present\n", "after": "absent\n"}]
    return {"changed": changed, "unproven": False, "diff": diff if changed else []}


def change_firewall(module: AnsibleModule) -> FirewallResult:
    """Do what the state asks for, and return the module's result. Raises FileError, OSError and ValueError."""
    if module.params["state"] == "present":
        return present(module) if module.params["rules"] else absent(module)
    if module.params["state"] == "proven":
        firewall.confirm()
    else:
        firewall.restore()
    return {"changed": True, "unproven": False}


ARGUMENTS = {
    "rules": option(
        "The file for nft, which replaces the table. Without it, the table, its unit and its files are removed.",
        default="",
    ),
    "unit": option("The unit of systemd that loads the rules at each boot. It is required with O(rules).", default=""),
    "digest": option("A name of the rules, which C(slurm_host_facts) returns as long as they hold.", default=""),
    "ssh": option(
        "The addresses, ranges and networks from which the rules let in ssh; V(any) is everybody.",
        "list",
        elements="str",
        default=["any"],
    ),
    "ssh_port": option("The port of sshd that the rules open; V(0) is every port.", "int", default=22),
    "state": option(
        "V(present) makes a change. V(proven) ends the timer, since a new connection has come through, and V(former) "
        "restores the previous rules. Only the first one is for playbooks; the module's action on the control host "
        "uses the others.",
        choices=["present", "proven", "former"],
        default="present",
    ),
}


def main() -> None:
    run_module(change_firewall, ARGUMENTS)


if __name__ == "__main__":
    main()
