# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule about addresses and ports, with the messages of real daemons that refuse the same files."""

from __future__ import annotations

import pytest
from cross_check_verdicts import NODES, ignored, refused, right, verdict


def test_nodes_without_an_address_make_slurmctld_wait() -> None:
    # error: getaddrinfo() failed: Name or service not known, attempt number -4, and so on
    assert verdict("NodeName=n[1-3]\nNodeName=m1 NodeAddr=gone\n", unresolved=("n2", "n3", "gone")) == (
        [
            "slurm.conf: NodeName: found 'n[2-3],gone', allowed: names that have an address on this host; "
            "give these nodes a NodeAddr"
        ],
        [],
    )
    # error: slurm_set_addr: Unable to resolve "m1", after five seconds in which squeue has no answer
    dotted = "NodeName=m1.example.org NodeAddr=10.0.0.1\nNodeName=m2.example.org NodeAddr=10.0.0.2\n"
    assert verdict(dotted, unresolved=("m1",)) == (
        [],
        [
            "slurm.conf: NodeName: found 'm1.example.org', allowed: names whose part before the first dot has an "
            "address on this host, too; slurmctld answers an srun there, and stands still while it resolves 'm1'"
        ],
    )


@pytest.mark.parametrize(
    "line",
    [
        "NodeName=n2 State=CLOUD",
        "NodeName=n2 State=FUTURE",
        "NodeName=n2 NodeAddr=10.0.0.1",
        "NodeName=n2 NodeAddr=fe80::2",
    ],
)
def test_nodes_that_need_no_name(line: str) -> None:
    assert verdict(f"{line}\n", unresolved=("n2", "10.0.0.1", "fe80::2")) == ([], [])


def test_two_nodes_at_one_address() -> None:
    what = "NodeAddr: found '10.0.0.1' port 6818, which n1 has, allowed: one of its own; one is down"
    assert ignored("NodeName=n[1-2] NodeAddr=10.0.0.1\n") == f"slurm.conf: NodeName=n2: {what}"
    assert right("NodeName=n[1-2] NodeAddr=10.0.0.1 Port=[7001-7002]\n")


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        # slurmd: fatal: Unable to bind listen port (7817): Address already in use
        ("SlurmctldPort=7000\nSlurmdPort=7000", "SlurmdPort: found '7000' on n1, where SlurmctldPort is 7000"),
        (
            "SlurmctldPort=7000-7003\nSlurmdPort=7002",
            "SlurmdPort: found '7002' on n1, where SlurmctldPort is 7000-7003",
        ),
        ("SlurmdPort=6817", "SlurmdPort: found '6817' on n1, where SlurmctldPort is 6817"),
        (
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=n1\nAccountingStoragePort=6818",
            "SlurmdPort: found '6818' on n1, where AccountingStoragePort is 6818",
        ),
        (
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=localhost\nAccountingStoragePort=6817",
            "AccountingStoragePort: found '6817' on n1, where SlurmctldPort is 6817",
        ),
        ("SlurmdPort=22", "SlurmdPort: found '22' on 10.0.0.1, where ssh is 22"),
    ],
)
def test_daemons_of_a_host_with_one_port(lines: str, what: str) -> None:
    assert refused(f"SlurmctldHost=n1\n{lines}\n{NODES}") == f"slurm.conf: {what}, allowed: another port"


def test_srun_can_take_any_port_of_its_range_on_any_host() -> None:
    """Daemons start with it, as on a cluster that is taken over."""
    what = "found '6800-6817' on n1, where SlurmctldPort is 6817, allowed: another port"
    assert ignored(f"SlurmctldHost=n1\nSrunPortRange=6800-6817\n{NODES}") == f"slurm.conf: SrunPortRange: {what}"


def test_daemons_of_different_hosts_may_have_one_port() -> None:
    assert right(f"SlurmctldHost=head\nSlurmctldPort=7000\nSlurmdPort=7000\n{NODES}")


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("60000", "allowed: FIRST-LAST, as 60001-63000"),
        ("60000-50000", "allowed: FIRST-LAST, as 60001-63000"),
        ("60000-70000", "allowed: FIRST-LAST, as 60001-63000"),
        ("60000-60004", "5 ports, allowed: 8 or more, which one srun on all nodes needs"),
    ],
)
def test_ports_of_srun(value: str, what: str) -> None:
    hundred = "NodeName=n[1-100] NodeAddr=10.0.0.[1-100]\n"
    found = f"slurm.conf: SrunPortRange: found '{value}', {what}"
    assert ignored(f"SlurmctldHost=head\nSrunPortRange={value}\n{hundred}") == found


def test_a_range_for_srun_that_is_large_enough() -> None:
    assert right("SrunPortRange=60000-60007\nNodeName=n[1-100] NodeAddr=10.0.0.[1-100]\n")


def test_controllers_that_configless_hosts_do_not_reach() -> None:
    conf = "SlurmctldHost=head(fd00::1)\nCommunicationParameters=EnableIPv6\nSlurmctldParameters=enable_configless\n"
    what = "found 'fd00::1', allowed: an IPv4 address; configless hosts of Slurm 22.05 use no other"
    assert refused(conf, version="22.05.8") == f"slurm.conf: SlurmctldHost: {what}"
    assert right(conf, version="24.11.5")
    assert right(conf.replace("fd00::1", "10.0.0.9"), version="22.05.8")
