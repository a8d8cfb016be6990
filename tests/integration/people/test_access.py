# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may log in where: with a job and without one, an administrator without Slurm, and changes that would lock out.

The tests depend on each other and run in this order. alice is an ordinary user; the user of the connection becomes a
member of the group ops. The last test takes the plan back, so that other tests of the scenario find open hosts.

A container shows the job's cgroups of Slurm's controllers of cgroup v1; pam_systemd would not take a process out of
these. That sshd starts no session of systemd is shown by logind.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from lab import Lab, Run, with_cluster

CHANGE = "Apply who may log in"
KNOWN = "/etc/ssh/ssh_known_hosts2"
PAM = "/etc/pam.d/sshd"
SLICE = "/etc/systemd/system/user-.slice.d/50-gpucluster-slurm.conf"
SSHD = "/etc/ssh/sshd_config.d/10-gpucluster-slurm-access.conf"
REFUSED = "you have no active jobs on this node"
UNPROVED = "/var/lib/gpucluster-slurm/access"
UNIT = "gpucluster-slurm-access"
MODULE = "/usr/lib/x86_64-linux-gnu/security/pam_access.so"
PLAN: dict[str, Any] = {
    "administrators": ["ops"],
    "between_nodes": "host_based",
    "login_limits": {"MemoryMax": "2G", "TasksMax": 2000, "CPUQuota": "150%"},
}


@dataclass
class Site:
    """The lab with an access plan."""

    lab: Lab
    directory: Path

    @property
    def head(self) -> str:
        """The controller, which is a login host and a compute node as well."""
        return str(self.lab.controller)

    @property
    def login(self) -> str:
        """A host that is a login host only."""
        return expand(self.lab.cluster["login"])[-1]

    @property
    def nodes(self) -> list[str]:
        """Two hosts that are compute nodes only."""
        return [str(node) for node in self.lab.nodes[-2:]]

    @property
    def hosts(self) -> list[str]:
        """All hosts."""
        return [self.head, self.login, *self.nodes]

    def run(self, *arguments: str, tags: str = "access", **plan: Any) -> Run:
        """Put the plan into force, with other keys."""
        cluster = yaml.safe_load(self.lab.inventory.read_text()) | {"access": PLAN | plan}
        if "accounting" in cluster:
            (account,) = cluster["accounting"]["accounts"]
            cluster["accounting"]["users"] = [{"name": "alice", "DefaultAccount": account["name"]}]
        return with_cluster(self.lab, self.directory, cluster).playbook("site", f"--tags={tags}", *arguments)

    def ssh(self, host: str, command: str, user: str = "alice") -> subprocess.CompletedProcess[str]:
        """A command over a new connection, with what the server says."""
        options = ["-F", str(self.lab.ssh_config), "-o", "LogLevel=INFO", "-o", "BatchMode=yes"]
        return subprocess.run(
            ["timeout", "60", "ssh", *options, f"{user}@{host}", command], capture_output=True, text=True, check=False
        )

    def as_alice(self, host: str, command: str) -> tuple[int, str]:
        """A command of alice on a host on which she is without ssh; 0 or 1 for its end, and its output."""
        found = self.lab.host(host).run(f"cd /tmp && runuser -u alice -- timeout 60 {command} 2>&1 || exit 1")
        return found.rc, str(found.stdout)

    @contextmanager
    def job(self, host: str) -> Iterator[str]:
        """A job of alice on a host; its number. It is cancelled at the end, and squeue no longer shows it."""
        command = f"sbatch --parsable --nodelist={host} --mem=100 --time=10 --output=/dev/null --wrap='sleep 600'"
        status, number = self.as_alice(self.head, command)
        assert status == 0, number
        number = number.strip()
        self.lab.wait_for(self.head, f"squeue --noheader --jobs={number} --format=%T", "RUNNING", 60)
        try:
            yield number
        finally:
            self.lab.command(self.head, f"scancel {number}")
            self.lab.wait_for(self.head, f"squeue --noheader --jobs={number} | grep . || echo gone", "gone", 60)

    def sum(self, host: str, path: str) -> str:
        """The checksum of a file."""
        return str(self.lab.command(host, f"sha256sum {path}"))

    def spoil(self, host: str) -> str:
        """Take the collection's lines out of sshd's file, as the package's own file would be; its checksum."""
        lines = (
            r"/^# BEGIN gpucluster/,/^# END gpucluster/d; s/^@include gpucluster-slurm-session/@include common-session/"
        )
        self.lab.command(host, f"sed -i '{lines}' {PAM}")
        return self.sum(host, PAM)

    def no_timer(self, host: str) -> None:
        """Assert that no timer waits to take back a change."""
        timers = self.lab.command(host, f"systemctl list-units --all --no-legend '{UNIT}*'")
        assert timers == ""

    def comes_in(self, host: str) -> None:
        """Assert that the administrator comes in by a new connection, and becomes root."""
        found = self.ssh(host, "sudo -n id -un", user="admin")
        assert (found.returncode, found.stdout) == (0, "root\n"), found.stderr


@pytest.fixture(scope="module")
def site(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(lab, tmp_path_factory.mktemp("access"))
    for host in site.hosts:
        lab.command(host, "groupadd --force ops && usermod --append --groups ops admin")
        lab.command(host, "cp /etc/ssh/authorized_keys.d/admin /etc/ssh/authorized_keys.d/alice")
    run = site.run(tags="base,access,policy", compute="all", between_nodes="none", login_limits={})
    assert (run.rc, run.failed) == (0, {}), "open hosts, with alice's account"
    return site


def ran(run: Run) -> dict[str, Any]:
    """The results of the task that changes access, by host."""
    return {host: result for host, task, result in run.results if CHANGE in task}


def test_check_mode_predicts_the_change_and_the_next_run_has_no_task(site: Site) -> None:
    before = [site.sum(host, PAM) for host in site.hosts]
    predicted = site.run("--check", "--diff", tags="base,access")
    assert [site.sum(host, PAM) for host in site.hosts] == before
    applied = site.run("--diff", tags="base,access")
    assert (applied.rc, applied.failed, applied.warnings) == (0, {}, [])
    files = {host: result["files"] for host, result in ran(applied).items()}
    assert {host: result["files"] for host, result in ran(predicted).items()} == files
    assert sorted(files) == sorted(site.hosts)
    assert [host for host in site.hosts if PAM in files[host]] == site.nodes, "the others stay open"

    again = site.run(tags="base,access")
    assert (again.rc, again.changed, ran(again)) == (0, {}, {})
    for host in site.hosts:
        site.comes_in(host)
        site.no_timer(host)
        site.lab.command(host, f"test -e {UNPROVED}", rc=1)


def test_a_user_without_a_job_is_refused_on_compute_nodes_only(site: Site) -> None:
    for node in site.nodes:
        found = site.ssh(node, "true")
        assert found.returncode == 255
        assert REFUSED in found.stderr
    # sshd would refuse everybody who comes from the login host after four such logins (PerSourcePenalties).
    for _ in range(6):
        assert REFUSED in site.as_alice(site.login, f"ssh {site.nodes[0]} true")[1]
    for host in (site.login, site.head):
        assert site.ssh(host, "id -un").stdout == "alice\n"


def test_a_user_with_a_job_is_a_part_of_it_and_ends_with_it(site: Site) -> None:
    node, other = site.nodes
    with site.job(node) as job:
        cgroups = site.ssh(node, "cat /proc/self/cgroup").stdout
        for controller in ("freezer", "devices", "memory", "cpuset"):
            (line,) = [line for line in cgroups.splitlines() if f":{controller}:" in line]
            assert f"/uid_2001/job_{job}/step_extern" in line
        assert site.ssh(node, "echo $XDG_RUNTIME_DIR").stdout == "\n", "there is no session of systemd"
        assert "alice" not in site.lab.command(node, "loginctl list-sessions --no-legend")
        assert REFUSED in site.ssh(other, "true").stderr

        sessions = subprocess.Popen(
            ["ssh", "-F", str(site.lab.ssh_config), f"alice@{node}", "exec sleep 567"], stderr=subprocess.DEVNULL
        )
        site.lab.wait_for(node, "pgrep -u alice -af 'sleep 567'", "567", 30)
    assert sessions.wait(60) == 255, "the connection is closed"
    site.lab.wait_for(node, "pgrep -u alice -af 'sleep 567' || echo gone", "gone", 60)


def test_the_console_and_su_keep_their_sessions(site: Site) -> None:
    node = site.nodes[0]
    assert "pam_systemd.so" in site.lab.command(node, "cat /etc/pam.d/common-session")
    changed = site.lab.command(node, "grep -lr gpucluster /etc/pam.d").split()
    assert sorted(changed) == ["/etc/pam.d/gpucluster-slurm-session", PAM]


def test_administrators_come_in_without_slurm(site: Site) -> None:
    node = site.nodes[0]
    site.lab.command(site.head, "systemctl stop slurmctld")
    site.lab.command(node, "systemctl stop slurmd")
    try:
        site.comes_in(node)
        assert site.ssh(node, "true").returncode == 255
    finally:
        site.lab.command(site.head, "systemctl start slurmctld")
        site.lab.wait_for(site.head, "timeout 60 scontrol ping", "UP", 60)
        site.lab.command(node, "systemctl start slurmd")
        site.lab.wait_until_idle(site.head, node, 60)


def test_ssh_between_hosts_asks_nothing_and_needs_a_job(site: Site) -> None:
    first, second = site.nodes
    ssh = "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o PubkeyAuthentication=no"
    address = site.lab.command(site.login, f"getent hosts {second}").split()[0]
    assert REFUSED in site.as_alice(site.login, f"ssh {second} true")[1]
    with site.job(second):
        for name in (second, address):
            assert site.as_alice(site.login, f"{ssh} {name} hostname") == (0, f"{second}\n")
        assert site.as_alice(first, f"{ssh} {second} hostname") == (0, f"{second}\n")
    for user in ("root", "admin"):
        command = f"runuser -u {user} -- {ssh} {second} true || exit 1"
        assert "Permission denied" in site.lab.host(site.login).run(command).stderr


def test_users_are_limited_on_login_hosts(site: Site) -> None:
    show = "systemctl show user-2001.slice -p MemoryMax -p TasksMax -p CPUQuotaPerSecUSec"
    assert set(site.ssh(site.login, show).stdout.split()) == {
        f"MemoryMax={2 << 30}",
        "TasksMax=2000",
        "CPUQuotaPerSecUSec=1.500000s",
    }
    kernel = "cat /sys/fs/cgroup/{memory,pids}/user.slice/user-2001.slice/{memory.limit_in_bytes,pids.max} 2>/dev/null"
    if Path("/sys/fs/cgroup/memory").exists():
        assert site.ssh(site.login, f"bash -c '{kernel}'").stdout.split() == [str(2 << 30), "2000"]
    assert set(site.ssh(site.head, show).stdout.split()) == {
        f"MemoryMax={1 << 30}",
        "TasksMax=1000",
        "CPUQuotaPerSecUSec=750ms",
    }, "half next to jobs and daemons"


def test_a_login_shows_the_cluster_and_completes_commands(site: Site) -> None:
    def login(command: str) -> str:
        options = ["-F", str(site.lab.ssh_config), "-tt", f"alice@{site.login}"]
        argv = ["timeout", "60", "ssh", *options, f"bash -lic '{command}'"]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout

    assert "of 3 nodes idle" in login("exit")
    assert "You have no jobs." in login("exit")
    with site.job(site.nodes[0]):
        assert "Your jobs: 1 running (squeue --me)" in login("exit")
    assert "-F _sbatch sbatch" in login("_completion_loader sbatch; complete -p sbatch")
    others = (
        "dpkg --listfiles slurm-client slurm-client-emulator slurm-wlm-basic-plugins 2>/dev/null | grep -E 'zsh|fish'"
    )
    assert site.lab.host(site.login).run(others).stdout == "", "Debian's packages serve bash alone"
    site.lab.command(site.head, "systemctl kill --signal=STOP slurmctld")
    try:
        start = time.monotonic()
        assert "nodes idle" not in login("exit")
        assert time.monotonic() - start < 10, "two seconds, and the login itself"
    finally:
        site.lab.command(site.head, "systemctl kill --signal=CONT slurmctld")
    assert site.ssh(site.login, "true").stdout == "", "scp and rsync see no message"


def test_a_home_that_does_not_answer_delays_the_message_by_two_seconds(site: Site) -> None:
    """bindfs is a file system in a process: while it is stopped, the home hangs as one of a lost server does."""
    login = site.login
    site.lab.command(login, "apt-get install --quiet=2 --yes --no-install-recommends bindfs")
    site.lab.command(login, "install -d -o alice /srv/alice /mnt/alice && bindfs -o allow_other /srv/alice /mnt/alice")
    message = "export HOME=/mnt/alice; time . /etc/profile.d/gpucluster-slurm.sh"
    options = ["-F", str(site.lab.ssh_config), "-tt", f"alice@{login}"]
    argv = ["timeout", "60", "ssh", *options, f"bash --norc -ic 'TIMEFORMAT=%0R; {message}'"]

    def shown() -> str:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout

    assert "nodes idle" in shown()
    site.lab.command(login, "pkill -STOP bindfs")
    try:
        assert shown().split() == ["2"]
    finally:
        site.lab.command(login, "pkill -CONT bindfs && umount /mnt/alice")


def test_a_limited_run_keeps_the_other_hosts_keys(site: Site) -> None:
    first, second = site.nodes
    site.lab.command(
        second, "cp -p /etc/ssh/ssh_host_ed25519_key /root/ && cp -p /etc/ssh/ssh_host_ed25519_key.pub /root/"
    )
    site.lab.command(second, "rm /etc/ssh/ssh_host_ed25519_key* && ssh-keygen -q -A && systemctl reload ssh")
    before, old = site.sum(first, KNOWN), site.lab.command(site.head, f"cat {KNOWN}").splitlines()

    alone = site.run(f"--limit={second}")
    assert (alone.rc, ran(alone)) == (0, {}), "without a controller, the file stays as it is"
    limited = site.run(f"--limit={second},{site.head}")
    assert (limited.rc, limited.failed) == (0, {})
    new = site.lab.command(site.head, f"cat {KNOWN}").splitlines()
    assert [line.split()[0] for line in new] == [line.split()[0] for line in old]
    assert [line for line in new if line not in old] == [line for line in new if line.startswith(f"{second},")]
    assert site.sum(first, KNOWN) == before, "it is not in the run"


def test_drift_of_access_is_repaired(site: Site) -> None:
    files = {site.nodes[0]: KNOWN, site.login: SLICE, site.nodes[1]: SSHD}
    all_hosts = site.run()
    assert (all_hosts.rc, all_hosts.failed) == (0, {}), "every host has the new key of a host"
    before = {host: site.sum(host, path) for host, path in files.items()}
    site.lab.command(site.nodes[0], f"sed -i '/^{site.login},/d; s/ssh-ed25519 AAAA/ssh-ed25519 AAAB/' {KNOWN}")
    site.lab.command(site.login, f"sed -i 's/^TasksMax=.*/TasksMax=infinity/' {SLICE} && systemctl daemon-reload")
    site.lab.command(site.nodes[1], f"rm {SSHD} && systemctl reload ssh")
    show = "systemctl show user-2001.slice -P TasksMax"
    assert site.ssh(site.login, show).stdout == "infinity\n"

    run = site.run("--diff")
    assert (run.rc, run.failed) == (0, {})
    assert {host: result["files"] for host, result in ran(run).items()} == {
        host: [path] for host, path in files.items()
    }
    assert {host: site.sum(host, path) for host, path in files.items()} == before
    assert site.ssh(site.login, show).stdout == "2000\n"
    again = site.run()
    assert (again.rc, again.changed, ran(again)) == (0, {}, {})


def test_a_group_without_the_user_of_the_connection_is_refused(site: Site) -> None:
    node = site.nodes[0]
    previous = site.spoil(node)
    run = site.run(f"--limit={node},{site.head}", administrators=["staff"])
    (message,) = run.failed[node]
    assert "access.administrators: found staff, allowed: one of admin, ops" in message
    assert "nothing was changed" in message
    assert site.sum(node, PAM) == previous


def test_a_change_that_locks_out_is_taken_back(site: Site) -> None:
    """PAM cannot load the module by which administrators pass, as after a broken upgrade."""
    node = site.nodes[0]
    previous = site.spoil(node)
    site.lab.command(node, f"mv {MODULE} /root/")
    try:
        run = site.run(f"--limit={node},{site.head}")
        (message,) = run.failed[node]
        assert "No new connection as " in message
        assert "could become root, so the previous files were restored" in message
        assert site.sum(node, PAM) == previous
        site.comes_in(node)
        site.no_timer(node)
    finally:
        site.lab.command(node, f"mv /root/pam_access.so {MODULE}")


def test_the_host_takes_back_what_a_killed_run_has_not_proved(site: Site) -> None:
    """New sessions wait on the node while the change is not confirmed. The timer is not awaited: its service starts."""
    node = site.nodes[0]
    previous = site.spoil(node)
    wait = f"while [ -d {UNPROVED} ] && [ -e /etc/ssh/sshrc ]; do sleep 0.2; done"
    watch = f"until grep -q BEGIN {PAM}; do sleep 0.1; done; echo changed; read -r _; sudo rm /etc/ssh/sshrc"
    with subprocess.Popen(
        ["timeout", "300", "ssh", "-F", str(site.lab.ssh_config), node, watch],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as session:
        assert session.stdin
        assert session.stdout
        site.lab.command(node, f"echo '{wait}' >/etc/ssh/sshrc")
        cluster = yaml.safe_load(site.lab.inventory.read_text()) | {"access": PLAN}
        live = with_cluster(site.lab, site.directory, cluster).start("site", "--tags=access")
        live.wait_for_task(CHANGE)
        assert session.stdout.readline() == "changed\n"
        live.kill()
        session.stdin.write("\n")

    assert site.sum(node, PAM) != previous
    assert f"{UNIT}.service" in site.lab.command(node, f"systemctl list-timers --no-legend {UNIT}.timer")
    site.lab.command(node, f"systemctl start {UNIT}.service")
    site.lab.wait_for(node, f"test -e {UNPROVED} || echo gone", "gone", 60)
    assert site.sum(node, PAM) == previous
    site.comes_in(node)


def test_the_plan_is_taken_back(site: Site) -> None:
    run = site.run(compute="all", between_nodes="none", login_limits={})
    assert (run.rc, run.failed) == (0, {})
    for node in site.nodes:
        assert site.ssh(node, "id -un").stdout == "alice\n"
        site.comes_in(node)
        left = "find /etc/pam.d /etc/security /etc/ssh /etc/systemd -name '*gpucluster-slurm*' -not -path '*service*'"
        assert site.lab.command(node, left) == ""
        assert "gpucluster" not in site.lab.command(node, f"cat {PAM}")
    again = site.run(compute="all", between_nodes="none", login_limits={})
    assert (again.rc, again.changed, ran(again)) == (0, {}, {})
