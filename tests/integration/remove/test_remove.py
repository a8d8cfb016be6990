# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that leave, get another name, another address or other hardware (docs/admin/nodes.md), while jobs run.

The tests run in this order: one removes what the next one uses. A job runs on the first node from the first test to the
last one.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from lab import ROOT, Lab, LiveRun, Run

CONTROLLER = "leave-ctl"
GO = "/home/go"
BACK = "/home/back"
"""All hosts have the same /home."""


@dataclass
class Site:
    """The lab with a cluster file of its own, and the jobs that were submitted."""

    lab: Lab
    jobs: dict[int, str] = field(default_factory=dict)
    """The state that accounting has of each job at the end."""

    @property
    def file(self) -> Path:
        return Path(self.lab.inventory)

    def remove(self, nodes: str, *arguments: str) -> Run:
        return self.lab.playbook("remove_nodes", "-e", f"remove_nodes={nodes}", *arguments)

    def start(self, nodes: str, *arguments: str) -> LiveRun:
        return self.lab.start("remove_nodes", "-e", f"remove_nodes={nodes}", *arguments)

    def site(self, *arguments: str) -> Run:
        run = self.lab.playbook("site", "--skip-tags=validate", *arguments)
        succeeded(run)
        return run

    def edit(self, before: str, after: str) -> None:
        text = self.file.read_text()
        assert before in text
        self.file.write_text(text.replace(before, after))

    def command(self, command: str) -> str:
        return str(self.lab.command(CONTROLLER, f"timeout 60 {command}"))

    def submit(self, node: str, *options: str, runs: bool = True, gate: str = GO) -> int:
        """A job on a node that ends when the gate is open; its number."""
        wrapped = f"--wrap 'until test -e {gate}; do sleep 0.5; done'"
        job = int(
            self.command(f"sbatch --parsable -D / -o /dev/null -w {node} --time=60 {' '.join(options)} {wrapped}")
        )
        self.jobs[job] = "COMPLETED"
        if runs:
            self.lab.wait_for(CONTROLLER, f"timeout 60 squeue --noheader --jobs={job} --format=%T", "RUNNING")
        return job

    def cancel(self, job: int) -> None:
        self.command(f"scancel {job}")
        self.jobs[job] = "CANCELLED"

    def state(self, job: int) -> str:
        return self.command(f"squeue --noheader --jobs={job} --format=%T")

    def runs_job(self, node: str) -> None:
        """Return when a job has run on a node."""
        self.lab.wait_until_idle(CONTROLLER, node)
        assert self.command(f"srun -D / -w {node} hostname") == node

    def nodes(self) -> str:
        return self.command("sinfo --noheader --Node --partition=all --format=%N").replace("\n", " ")


@pytest.fixture(scope="module", name="site")
def site_of_the_tests(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("remove")
    path = directory / lab.inventory.name
    path.write_text(lab.inventory.read_text())
    (directory / "group_vars").mkdir()
    secrets = lab.inventory.parent / "secrets/remove"
    (directory / "group_vars/slurm_cluster.yml").write_text(f"slurm_secrets_dir: {secrets}\n")
    site = Site(Lab(lab.scenario, path))
    lab.command(CONTROLLER, f"rm -f {GO} /home/end")
    site.submit("leave-node1", gate="/home/end")
    yield site
    lab.command(CONTROLLER, f"touch {GO} /home/end; timeout 60 scancel --user=root; true")


@pytest.fixture(autouse=True)
def gate(lab: Lab) -> None:
    """Jobs of a test wait for its word."""
    lab.command(CONTROLLER, f"rm -f {GO}")


def succeeded(run: Run) -> None:
    assert run.rc == 0, run.failed or run.output[-3000:]


def later(lab: Lab, host: str, script: str) -> None:
    """Run a script on a host when this connection has ended."""
    lab.script(host, "cat >/root/later", script.encode())
    lab.command(host, "systemd-run --on-active=1 --timer-property=AccuracySec=100ms sh /root/later")
    time.sleep(3)


def power_off(lab: Lab, host: str) -> None:
    later(lab, host, "systemctl poweroff --force")


def new_machine(lab: Lab) -> None:
    """Make the hosts anew that are off."""
    config = yaml.safe_load((ROOT / "molecule" / lab.scenario / "molecule.yml").read_text())
    given = json.dumps({"molecule_yml": {"platforms": config["platforms"]}})
    subprocess.run(
        ["ansible-playbook", "molecule/shared/create.yml", "-e", given],
        cwd=ROOT,
        env={**lab.environment, "MOLECULE_SCENARIO_NAME": lab.scenario},
        check=True,
        capture_output=True,
    )


def lines(before: str, after: str) -> list[str]:
    return [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]


def reason(site: Site, node: str) -> str:
    return site.command(f"sinfo --noheader --Node --partition=all --nodes={node} --format='%T %E'")


# -- refusals, and the output of a check ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("leave-node9", "remove_nodes: found 'leave-node9', unknown node, did you mean"),
        ("leave-ctl", "controllers: leave-ctl cannot leave the cluster"),
        ("leave-node1", "partitions[2]: partition one would have no node without leave-node1"),
        ("leave-node[3-4]", "slurm_files.topology.conf: a list would be empty without leave-node[3-4]"),
        ("leave-node[1-4]", "nodes: leave-node[1-4] cannot leave the cluster, which would have no node"),
    ],
)
def test_nodes_that_cannot_leave_are_refused_before_any_host_is_asked(site: Site, nodes: str, message: str) -> None:
    run = site.remove(nodes)
    assert run.rc != 0
    assert message in run.output
    assert not run.changed


def test_a_run_without_nodes_is_refused(site: Site) -> None:
    run = site.lab.playbook("remove_nodes")
    assert run.rc != 0
    assert "No nodes to remove: name them with -e remove_nodes=" in str(run.failed)


def test_a_reservation_and_a_pending_job_by_name_are_refused(site: Site) -> None:
    site.command(
        "scontrol create reservation ReservationName=course StartTime=now+100 Duration=60 Nodes=leave-node[3-4] "
        "Users=root"
    )
    run = site.remove("leave-node4")
    site.command("scontrol delete ReservationName=course")
    assert "reservation course has leave-node4: take them out first" in str(run.failed)
    waits = site.submit("leave-node4", "--begin=now+3600", runs=False)
    run = site.remove("leave-node4")
    assert "NodeName=leave-node4" in str(run.failed)
    assert f"ENDS JOBS {waits}" in str(run.failed)
    site.cancel(waits)
    assert reason(site, "leave-node4") == "idle none"


def test_a_check_shows_everything_and_changes_nothing(site: Site) -> None:
    before = site.file.read_text()
    job = site.submit("leave-node4")
    run = site.remove("leave-node4", "--check", "--diff")
    succeeded(run)
    assert f"waiting   leave-node4: job {job} of root until" in run.output
    output = str([*run.results])
    for message in (
        '+  - {hosts: "leave-node[1-3]"',
        "NodeName=leave-node4",
        "10.213.7.174 leave-node4",
        "slurmd.service: active, enabled",
        "/etc/munge/munge.key: present",
        "/scratch",
        "/etc/ssh/shosts.equiv",
        "Slurm would not have leave-node4 any more",
    ):
        assert message in output, message
    assert site.file.read_text() == before
    assert site.state(job) == "RUNNING"
    assert reason(site, "leave-node4") in ("mixed none", "allocated none")
    assert site.lab.command("leave-node4", "systemctl is-active slurmd munge") == "active\nactive"
    site.command(f"touch {GO}")
    site.lab.wait_until_idle(CONTROLLER, "leave-node4")


@pytest.mark.parametrize("check", [["--check"], []])
def test_what_a_run_of_site_has_left_is_named_and_not_brought_into_force(site: Site, check: list[str]) -> None:
    """slurmctld would refuse the plugin, which is not installed, after the nodes were drained."""
    before, conf = site.file.read_text(), site.command("cat /etc/slurm/slurm.conf")
    site.edit("slurm_conf:\n", "slurm_conf:\n  KillWait: 45\n  AuthAltTypes: auth/jwt\n")
    refused = site.lab.playbook("site", "--tags=controller")
    run = site.remove("leave-node4", *check)
    site.file.write_text(before)
    assert refused.rc != 0
    assert "AuthAltTypes: found 'auth/jwt', which is not installed" in str(refused.failed)
    assert run.rc != 0
    said = " ".join(str(run.failed).split())
    assert "The cluster file has more changes than the removal of these nodes" in said
    assert "slurm.conf KillWait 30 -> 45" in said
    assert "slurm.conf AuthAltTypes (none) -> auth/jwt" in said
    assert "leave-node" not in said.partition("KillWait")[2].partition("AuthAltTypes")[2]
    assert reason(site, "leave-node4") == "idle none"
    assert site.command("cat /etc/slurm/slurm.conf") == conf
    assert site.command("ls /etc/gpucluster-slurm | grep -c key || true") == "0"


@pytest.mark.parametrize("check", [["--check"], []])
def test_other_changes_of_hosts_are_named_and_not_brought_into_force(site: Site, check: list[str]) -> None:
    before = site.file.read_text()
    site.edit("size=8m", "size=9m")
    site.edit("between_nodes: host_based", "between_nodes: none")
    run = site.remove("leave-node4", *check)
    site.file.write_text(before)
    assert run.rc != 0
    said = " ".join(str(run.failed).split())
    assert "The run would change more than the removal of these nodes needs" in said
    assert "storage: leave-node[1-3]; access: leave-ctl,leave-node[1-3]" in said, said
    assert reason(site, "leave-node4") == "idle none"
    assert "size=8192k" in site.lab.command("leave-node1", "grep /scratch /proc/mounts")


def test_nodes_are_resumed_whose_removal_slurmctld_refuses(site: Site) -> None:
    """Its own line of its log is in the message. A stand-in for a refusal that no check foresees."""
    script = "echo 'fatal: no such luck' >>/var/log/slurm/slurmctld.log; echo 'error: Unspecified error' >&2; exit 1"
    site.lab.script(
        CONTROLLER,
        "cat >/root/refuse",
        f"""\
#!/bin/sh
case $1 in reconfigure) {script} ;; esac
exec /usr/bin/scontrol.real "$@"
""".encode(),
    )
    site.command("sh -c 'mv /usr/bin/scontrol /usr/bin/scontrol.real; install /root/refuse /usr/bin/scontrol'")
    try:
        run = site.remove("leave-node4")
    finally:
        site.command("mv /usr/bin/scontrol.real /usr/bin/scontrol")
    assert run.rc != 0
    assert "fatal: no such luck" in str(run.failed), run.failed
    assert "Resumed: leave-node4" in str(run.failed)
    site.lab.wait_until_idle(CONTROLLER, "leave-node4")
    assert reason(site, "leave-node4") == "idle none"


# -- the removal -----------------------------------------------------------------------------------------------------


def test_a_node_with_jobs_at_the_deadline_is_not_removed(site: Site) -> None:
    job = site.submit("leave-node4")
    run = site.remove("leave-node[2,4]", "-e", "remove_nodes_deadline=2026-01-01T00:00")
    assert run.rc != 0
    assert f"stays     leave-node4: after the deadline, job {job} of root" in str(run.failed)
    assert reason(site, "leave-node2") == "idle none"
    assert reason(site, "leave-node4") in ("mixed none", "allocated none")
    assert site.state(job) == "RUNNING"
    site.command(f"touch {GO}")
    site.lab.wait_until_idle(CONTROLLER, "leave-node4")


def test_a_node_leaves_when_its_job_has_ended_and_runs_that_were_killed_go_on(site: Site) -> None:
    before = site.file.read_text()
    job = site.submit("leave-node4")
    run = site.start("leave-node4", "-e", "remove_nodes_write=true")
    run.wait_for_line(f"waiting   leave-node4: job {job} of root until")
    # The line is also shown before the node is drained.
    drained = "timeout 60 sinfo --noheader --nodes=leave-node4 --format=%E"
    site.lab.wait_for(CONTROLLER, drained, "gpucluster.slurm remove_nodes: leaves the cluster", 60)
    run.kill()
    run = site.start("leave-node4", "-e", "remove_nodes_write=true")
    run.wait_for_line(f"waiting   leave-node4: job {job} of root until")
    site.command(f"touch {GO}")
    run.wait_for_task("Stop the daemons")
    run.kill()
    assert "leave-node4" not in site.nodes()
    assert site.file.read_text() == before
    last = site.remove("leave-node4", "-e", "remove_nodes_write=true")
    succeeded(last)
    assert "Cleaned: leave-node4" in last.output
    assert lines(before, site.file.read_text()) == [
        '-   - {hosts: "leave-node[1-4]", hardware: container, address: "10.213.7.[171-174]"} # four',
        '+   - {hosts: "leave-node[1-3]", hardware: container, address: "10.213.7.[171-173]"} # four',
        '-   - {name: small, nodes: "leave-node[2-4]"} # three',
        '+   - {name: small, nodes: "leave-node[2-3]"} # three',
        "-     SwitchName=s2 Nodes=leave-node[3-4]",
        "+     SwitchName=s2 Nodes=leave-node3",
    ]


def test_a_removed_host_has_nothing_of_the_cluster(site: Site) -> None:
    lab = site.lab
    for service in ("slurmd", "munge"):
        assert lab.host("leave-node4").run(f"systemctl is-active {service}").stdout.strip() == "inactive"
        assert lab.host("leave-node4").run(f"systemctl is-enabled {service}").stdout.strip() == "disabled"
    left = lab.command(
        "leave-node4",
        "ls -d /etc/munge/munge.key /etc/gpucluster-slurm /etc/ssh/shosts.equiv /etc/ssh/ssh_known_hosts2 "
        "/usr/local/sbin/slurm-health /etc/systemd/system/scratch.mount 2>/dev/null; "
        "grep -rl 'Managed by gpucluster.slurm' /etc /usr/local 2>/dev/null; "
        "grep -l 'gpucluster' /etc/hosts /etc/pam.d/sshd; grep ' /scratch ' /proc/self/mountinfo; true",
    )
    assert left == ""
    for host in (CONTROLLER, "leave-node1", "leave-node2", "leave-node3"):
        # The controller has no shosts.equiv: no compute node logs in there.
        files = lab.command(host, "cat /etc/hosts /etc/ssh/ssh_known_hosts2 $(ls /etc/ssh/shosts.equiv 2>/dev/null)")
        assert "leave-node4" not in files
    assert "leave-node4" not in site.command("cat /var/lib/gpucluster-slurm/hosts /etc/slurm/*.conf")


def test_the_next_run_of_site_changes_nothing(site: Site) -> None:
    run = site.site()
    assert not run.changed
    assert "have left the cluster but are not cleaned" not in run.output


# -- the other paths of docs/admin/nodes.md --------------------------------------------------------------------------


def test_a_host_gets_another_name(site: Site) -> None:
    """Its container was leave-node4, by which ssh still knows it here."""
    site.lab.command("leave-node4", "hostname leave-node5; echo leave-node5 >/etc/hostname")
    site.edit(
        '  - {hosts: "leave-node[1-3]"',
        '  - {hosts: leave-node5, hardware: container, address: 10.213.7.174}\n  - {hosts: "leave-node[1-3]"',
    )
    site.edit("Nodes=leave-node3\n", "Nodes=leave-node[3,5]\n")
    site.site()
    site.runs_job("leave-node5")


def test_a_host_that_is_gone_is_named_until_it_is_clean(site: Site) -> None:
    lab = site.lab
    lab.command(CONTROLLER, f"rm -f {BACK}")
    gone = f"systemctl stop ssh slurmd; pkill sshd; until test -e {BACK}; do sleep 1; done; systemctl start ssh slurmd"
    later(lab, "leave-node3", gone)
    run = site.remove("leave-node3", "-e", "remove_nodes_write=true")
    succeeded(run)
    assert "Not reached: leave-node3" in run.output
    assert "Not cleaned: leave-node3" in run.output
    assert "leave-node3" not in site.nodes()
    named = "Hosts that have left the cluster but are not cleaned: leave-node3"
    run = site.site()
    assert named in run.output
    assert "answers at" not in run.output

    site.command(f"touch {BACK}")
    lab.wait_for("leave-node3", "echo up", "up")
    run = site.site()
    assert f"{named} (leave-node3 answers at 10.213.7.173). They still have the munge key" in run.output
    assert "leave-node3" not in site.nodes()
    # slurmd starts again and again, and does not find its node.
    assert "ActiveState=active" not in lab.command("leave-node3", "systemctl show -p ActiveState slurmd")

    lab.command("leave-node3", "systemctl disable --now slurmd munge; rm /etc/munge/munge.key")
    site.site("-e", "slurmctld_cleaned_hosts=leave-node3")
    assert named not in site.site().output


def test_hardware_is_replaced_under_the_same_name(site: Site) -> None:
    """A new container is a new machine: without the keys and the state of the previous one."""
    site.command("scontrol update NodeName=leave-node5 State=DRAIN Reason='new machine'")
    power_off(site.lab, "leave-node4")
    new_machine(site.lab)
    site.lab.command(
        "leave-node4", "test ! -e /etc/munge/munge.key; hostname leave-node5; echo leave-node5 >/etc/hostname"
    )
    site.site()
    site.command("scontrol update NodeName=leave-node5 State=RESUME")
    site.runs_job("leave-node5")


def test_a_host_gets_another_address(site: Site) -> None:
    """The address is that of the host that has left."""
    power_off(site.lab, "leave-node3")
    site.command("scontrol update NodeName=leave-node2 State=DRAIN Reason='another address'")
    # With the first address of a network, the kernel removes the others of this network.
    move = "ip address del 10.213.7.172/24 dev $device; ip address add 10.213.7.173/24 dev $device"
    # The container's own line; its hosts file is a mount, which sed cannot replace.
    own = "sed '1,/^# BEGIN/s/10.213.7.172/10.213.7.173/' /etc/hosts >/root/hosts; cat /root/hosts >/etc/hosts"
    later(site.lab, "leave-node2", f"device=$(ip -o -4 address show to 10.213.7.172 | cut -d' ' -f2); {move}; {own}")
    site.edit(
        '  - {hosts: "leave-node[1-2]", hardware: container, address: "10.213.7.[171-172]"}',
        '  - {hosts: "leave-node[1-2]", hardware: container, address: "10.213.7.[171,173]"}',
    )
    site.site()
    assert "10.213.7.173 leave-node2" in site.lab.command("leave-node1", "cat /etc/hosts")
    site.command("scontrol update NodeName=leave-node2 State=RESUME")
    site.runs_job("leave-node2")


def test_no_job_was_lost(site: Site) -> None:
    """The job of the first test still runs, and accounting has all others as they ended."""
    first = min(site.jobs)
    assert site.state(first) == "RUNNING"
    site.command("touch /home/end")
    for job, state in site.jobs.items():
        site.lab.wait_for(CONTROLLER, f"timeout 60 sacct --noheader -X -P --jobs={job} --format=state", state, 60)
