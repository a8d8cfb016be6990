# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that site.yml has set up are as before after reset.yml, file by file and package by package.

The tests run in this order: from bare hosts to a cluster, one node that leaves and returns, and the end of the cluster.
"""

from __future__ import annotations

import pytest
from lab import Lab, Run

CONTROLLER, LOGIN, NODE, OTHER = "off-ctl", "off-login", "off-node1", "off-node2"
HOSTS = (CONTROLLER, LOGIN, NODE, OTHER)

PACKAGES = "dpkg-query --show --showformat='${Package} ${db:Status-Abbrev}\\n'"

FILES = """
find /etc /usr /opt /root /srv /lib/systemd /var/lib /var/spool /var/log /home -xdev \\
  \\( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/systemd -o -path /var/log/apt \\
     -o -path /var/log/journal -o -path /var/lib/ucf \\
     -o -name dpkg.log -o -name alternatives.log -o -path /usr/share/man -o -name __pycache__ \\) -prune \\
  -o -printf '%y %m %p %l\\n' | sort
"""
"""All files and directories, without those of dpkg, ucf, apt and systemd, compiled, or logged."""

CONTENTS = """
find /etc -xdev -type f -not -name '*-' -print0 | sort -z | xargs -0 sha256sum
"""

OF_RUNS = {
    *("/etc/group", "/etc/gshadow", "/etc/passwd", "/etc/shadow", "/etc/subgid", "/etc/subuid"),
    *("/etc/ld.so.cache", "/etc/mailcap"),
}
"""Files that the system changes with system users and with libraries: system users of packages stay."""


def state(lab: Lab, host: str) -> dict[str, set[str]]:
    """Packages, files and contents of a host."""
    commands = {"packages": PACKAGES, "files": FILES, "contents": CONTENTS}
    return {name: {*lab.command(host, command).split("\n")} for name, command in commands.items()}


@pytest.fixture(scope="module", name="before")
def states_before(lab: Lab) -> dict[str, dict[str, set[str]]]:
    """The bare hosts."""
    return {host: state(lab, host) for host in HOSTS}


def differences(before: dict[str, set[str]], after: dict[str, set[str]], stays: tuple[str, ...] = ()) -> list[str]:
    """What a host has lost or got, without what begins with one of `stays`."""
    found = []
    for name in before:
        lines = [("-", line) for line in before[name] - after[name]] + [
            ("+", line) for line in after[name] - before[name]
        ]
        for sign, line in sorted(lines, key=lambda item: item[1]):
            path = next((word for word in line.split() if word.startswith("/")), line)
            if path not in OF_RUNS and path.rstrip("-") not in OF_RUNS and not path.startswith(stays):
                found.append(f"{name} {sign} {line}")
    return found


def reset(lab: Lab, hosts: str, *arguments: str) -> Run:
    return lab.playbook("reset", "-e", f"reset_hosts={hosts}", *arguments)


def site(lab: Lab) -> None:
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {}), run.failed or run.output[-4000:]


def test_bare_hosts_become_a_cluster(lab: Lab, before: dict[str, dict[str, set[str]]]) -> None:
    assert not [line for host in HOSTS for line in before[host]["packages"] if line.startswith(("slurm", "munge"))]
    site(lab)
    assert lab.command(LOGIN, "timeout 120 srun --nodes=2 hostname | sort") == f"{NODE}\n{OTHER}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "reset_hosts: missing, allowed: all, or hosts of the cluster: off-ctl,off-login,"),
        (("-e", "reset_hosts=off-node3"), "reset_hosts: found 'off-node3', "),
        (("-e", "reset_hosts=off-ctl"), "reset_hosts: found off-ctl, which off-login,off-node[1-2] need"),
        (
            ("-e", "reset_hosts=all", "-e", "reset_also=data,hoems"),
            "reset_also: found 'hoems', unknown part, did you mean 'homes'?",
        ),
        (("-e", "reset_hosts=all", "-e", "reset_also=homes"), "reset_also: found homes without people"),
        (("-e", "reset_hosts=all", "--limit=off-node1"), "--limit: leaves out off-ctl,off-login,off-node2"),
    ],
)
def test_wrong_options_are_refused(lab: Lab, arguments: tuple[str, ...], message: str) -> None:
    run = lab.playbook("reset", *arguments)
    assert run.rc == 2
    assert message in str(run.failed), run.failed
    assert not run.changed


def test_a_running_job_is_named_and_nothing_is_changed(lab: Lab) -> None:
    job = lab.command(NODE, f"timeout 60 sbatch --parsable --nodelist={OTHER} --output=/dev/null --wrap='sleep 900'")
    lab.wait_for(NODE, f"squeue -h -j {job} -o %T", "RUNNING")
    present = {host: state(lab, host) for host in (OTHER, NODE)}
    for hosts in (OTHER, "all"):
        run = reset(lab, hosts)
        assert run.rc == 2
        assert f"job {job} runs on this host, and nothing was changed" in str(run.failed[OTHER])
        assert not run.changed
    assert lab.command(NODE, f"squeue -h -j {job} -o %T") == "RUNNING"
    assert "drain" not in lab.command(NODE, f"sinfo -h -n {OTHER} -o %T")
    assert present == {host: state(lab, host) for host in present}
    lab.command(NODE, f"scancel {job}")
    lab.wait_until_idle(NODE, OTHER)


def test_one_node_leaves_and_returns(lab: Lab, before: dict[str, dict[str, set[str]]]) -> None:
    present = state(lab, OTHER)
    plan = reset(lab, OTHER, "--check", "--diff", "-e", "reset_also=data,people")
    assert (plan.rc, plan.failed) == (0, {})
    assert state(lab, OTHER) == present
    run = reset(lab, OTHER, "-e", "reset_also=data,people")
    assert (run.rc, run.failed) == (0, {}), run.failed
    assert differences(before[OTHER], state(lab, OTHER)) == []
    assert "gpucluster.slurm reset:" in lab.command(NODE, "sinfo -h -R -o %E")
    assert lab.command(LOGIN, "timeout 60 srun hostname") == NODE
    site(lab)
    lab.command(CONTROLLER, f"scontrol update nodename={OTHER} state=resume")
    assert lab.command(LOGIN, "timeout 120 srun --nodes=2 hostname | sort") == f"{NODE}\n{OTHER}"


def test_data_stays_unless_it_is_named(lab: Lab, before: dict[str, dict[str, set[str]]]) -> None:
    """The next cluster goes on with the jobs and records of before."""
    lab.command(LOGIN, "timeout 60 srun --job-name=remembered true")
    waiting = lab.command(LOGIN, "timeout 60 sbatch --parsable --begin=now+7days --output=/dev/null --wrap=true")
    run = reset(lab, "all")
    assert (run.rc, run.failed) == (0, {}), run.failed
    assert lab.command(CONTROLLER, "ls /srv/backup")
    kept = ("/var/lib/slurm", "/var/log/", "/var/spool/slurm", "/var/lib/munge", "/srv/backup", "/var/lib/mysql")
    accounts = ("/etc/ssh/people", "/home/carol", "/var/lib/slurm-check")
    for host in (LOGIN, NODE, OTHER):
        assert differences(before[host], state(lab, host), kept + accounts) == []
    assert lab.command(CONTROLLER, "ls -A /var/lib/gpucluster-slurm") == "packages.json"  # for the next test
    assert lab.command(CONTROLLER, "systemctl is-active mariadb") == "active"
    site(lab)
    assert lab.command(LOGIN, f"squeue -h -j {waiting} -o %T") == "PENDING"
    assert "remembered" in lab.command(LOGIN, "sacct -n -X -a -S now-1day -o JobName%20")


def test_the_cluster_ends(lab: Lab, before: dict[str, dict[str, set[str]]]) -> None:
    run = reset(lab, "all", "-e", "reset_also=data,database,people,homes")
    assert (run.rc, run.failed) == (0, {}), run.failed
    for host in HOSTS:
        assert differences(before[host], state(lab, host), ("/srv/backup", "/var/lib/mysql", "/etc/mysql")) == []
    again = reset(lab, "all")
    assert (again.rc, again.failed) == (0, {})
    assert not lab.command(CONTROLLER, "ls -d /etc/slurm /var/lib/gpucluster-slurm 2>/dev/null || true")
    site(lab)
    assert lab.command(LOGIN, "timeout 120 srun --nodes=2 hostname | sort") == f"{NODE}\n{OTHER}"
