# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `machines` of the cluster file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import machines_key
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker
from ansible_collections.gpucluster.slurm.plugins.module_utils.machines import machine_settings

IPMI = {"by": "ipmi", "address": "{host}-bmc", "user": "operator"}
REDFISH = {**IPMI, "by": "redfish"}
PROGRAM = {"by": "program", "program": "files/machine"}


def checked(found: Any) -> tuple[machines_key.MachinesKey, list[str]]:
    """The valid part, and the problems."""
    problems: list[str] = []
    checker = Checker("my.cluster.yml", problems)
    machines = machines_key.check(checker, found)
    machines_key.check_addresses(checker, machines, ["gpu01", "gpu02", "gpu03"])
    return machines, problems


@pytest.mark.parametrize(
    "found",
    [
        {},
        IPMI,
        {**IPMI, "address": "{host}.mgmt.example.org:6230", "addresses": {"gpu01": "[2001:db8::1]:623"}},
        {**IPMI, "addresses": {"gpu[01-02]": "10.1.0.[1-2]:623", "gpu03": "2001:db8::3"}},
        {**REDFISH, "ca": "files/bmc-ca.pem"},
        {**REDFISH, "verify": False},
        {**REDFISH, "verify": True, "ca": "files/bmc-ca.pem"},
        PROGRAM,
        {**PROGRAM, "user": "operator"},
    ],
)
def test_right_values_stay(found: Any) -> None:
    assert checked(found) == (found, [])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ("ipmi", "machines: found 'ipmi', allowed: a mapping with by, address"),
        ({"address": "{host}-bmc", "user": "u"}, "my.cluster.yml: machines.by: missing"),
        (
            {**IPMI, "by": "impi"},
            "machines.by: found 'impi', unknown value, did you mean 'ipmi'? allowed: ipmi, redfish",
        ),
        ({**IPMI, "adress": "x"}, "machines.adress: unknown key, did you mean 'address'?"),
        ({**IPMI, "password": "secret"}, "machines.password: is not a key of the cluster file: put it into the file"),
        ({"by": "ipmi", "user": "u"}, "machines.address: missing, needed with by: ipmi"),
        ({"by": "redfish", "address": "{host}"}, "machines.user: missing, needed with by: redfish"),
        ({"by": "program"}, "machines.program: missing, needed with by: program"),
        ({**IPMI, "address": "bmc"}, "machines.address: found 'bmc', allowed: the address of a BMC with {host}"),
        ({**IPMI, "address": "-{host}"}, "machines.address: found '-{host}', allowed: the address"),
        ({**IPMI, "address": "{host}:0"}, "machines.address: found '{host}:0', allowed: the address"),
        ({**IPMI, "user": "-U"}, "machines.user: found '-U', allowed: letters"),
        ({**IPMI, "user": "a" * 17}, "allowed: up to 16 characters, as IPMI has them"),
        ({**IPMI, "ca": "x.pem"}, "machines.ca: found 'x.pem' with by: ipmi, allowed: only with by: redfish"),
        ({**IPMI, "verify": False}, "machines.verify: found False with by: ipmi, allowed: only with by: redfish"),
        ({**IPMI, "program": "x"}, "machines.program: found 'x' with by: ipmi, allowed: only with by: program"),
        ({**PROGRAM, "address": "{host}"}, "with by: program, allowed: only with by: ipmi and by: redfish"),
        ({**REDFISH, "verify": "no"}, "machines.verify: found 'no', allowed: true or false"),
        ({**REDFISH, "verify": False, "ca": "x.pem"}, "machines.verify: found false, allowed: true, or no ca"),
        ({**REDFISH, "ca": "../x.pem"}, "machines.ca: found '../x.pem', allowed: a file next to the cluster file"),
        (
            {**IPMI, "addresses": {"gpu1": "10.1.0.1"}},
            "machines.addresses.gpu1: found 'gpu1', unknown node, did you mean 'gpu01'? allowed: nodes of the cluster, "
            "gpu[01-03]",
        ),
        ({**IPMI, "addresses": {"gpu01": "-x"}}, "machines.addresses.gpu01: found '-x', allowed: the address of a BMC"),
        (
            {**IPMI, "addresses": {"gpu[01-03]": "10.1.0.[1-2]"}},
            "allowed: the address of a BMC for each of these nodes",
        ),
        ({**IPMI, "addresses": {"gpu[01-02]": "a[1-2]", "gpu02": "b"}}, "found 'gpu02', which has an address already"),
        ({**IPMI, "addresses": ["gpu01"]}, "machines.addresses: found ['gpu01'], allowed: a mapping"),
    ],
)
def test_each_mistake_is_one_error_with_what_is_allowed(found: Any, problem: str) -> None:
    (message,) = checked(found)[1]
    assert problem in message
    assert "secret" not in message.replace("slurm_secrets_dir", "")


def test_each_node_has_its_own_address() -> None:
    machines = {**IPMI, "addresses": {"gpu[01-02]": "10.1.0.[1-2]", "gpu03": "[2001:db8::3]:623"}}
    assert machines_key.single_addresses(machines) == {
        "gpu01": "10.1.0.1",
        "gpu02": "10.1.0.2",
        "gpu03": "[2001:db8::3]:623",
    }
    assert machines_key.single_addresses(IPMI) == {}


def test_the_program_of_the_hosts_has_the_same_words() -> None:
    ours = (machines_key.IPMI, machines_key.REDFISH, machines_key.PROGRAM)
    assert ours == (machine_settings.BY_IPMI, machine_settings.BY_REDFISH, machine_settings.BY_PROGRAM)
