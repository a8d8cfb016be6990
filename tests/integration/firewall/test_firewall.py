# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewall: the traffic of a cluster, a host that is no part of it, lockouts, drift and removal.

The tests depend on each other and run in this order. The scenario has installed the cluster with its firewall. The last
test removes the firewall.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import Lab, Run, container, podman, with_cluster
from reach import ASK, NODE_EXPORTER, REGISTRY, USERS, Way, found_ways, open_ways, ways_of_monitoring

CONTROLLER, LOGIN, NODES, FOREIGN = "fw-ctl", "fw-login", ("fw-node1", "fw-node2"), "fw-foreign"
CLUSTER = (CONTROLLER, LOGIN, *NODES)
CHANGE = "Load the firewall"
RULES = "/etc/gpucluster-slurm/firewall.nft"
NEW = f"{RULES}.new"
UNIT = "gpucluster-slurm-firewall.service"
TIMER = "gpucluster-slurm-firewall-undo"
TABLE = "nft --stateless list table inet gpucluster_slurm"
COUNTED = re.compile(r"\t\telements = \{[^}]* ct count [^}]*\}\n")
OPEN = 8443

SCAN = """
import resource, select, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
host, found = sys.argv[1], set()
for first in range(1, 65536, 4000):
    waiting, poll = {}, select.poll()
    for port in range(first, min(first + 4000, 65536)):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex((host, port))
        waiting[one.fileno()] = one, port
        poll.register(one, select.POLLOUT)
    for _round in range(8):
        for number, _event in poll.poll(250):
            one, port = waiting.pop(number)
            poll.unregister(number)
            error = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            one.close()
            if error in (0, 111):  # connected, or refused by the host itself: the request has passed the firewall
                found.add(port)
    for one, _port in waiting.values():
        one.close()
print(*sorted(found))
"""
"""Prints the ports to which a request for a connection passes."""

SERVER = """
import socket, sys
server = socket.create_server(("", int(sys.argv[1])))
while True:
    one = server.accept()[0]
    one.sendall(b"hello")
    one.close()
"""

CONNECT = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).recv(9).decode())"

IPV6 = """
import socket, sys
host, *ports = sys.argv[1:]
for port in ports:
    one = socket.socket(socket.AF_INET6)
    one.settimeout(3)
    if one.connect_ex((host, int(port), 0, socket.if_nametoindex("eth0"))) in (0, 111):
        print(port)
"""
"""Prints the ports to which a request passes, as SCAN does, at an address of IPv6."""

RING = """
import os, socket, time
rank = int(os.environ["SLURM_PROCID"])
if rank == 0:
    server = socket.create_server(("", 0))
    path = os.path.expanduser("~/ring.new")
    open(path, "w").write(f"{socket.gethostname()} {server.getsockname()[1]}")
    os.rename(path, os.path.expanduser("~/ring"))
    print("got", server.accept()[0].recv(9).decode())
else:
    while not os.path.exists(os.path.expanduser("~/ring")):
        time.sleep(0.2)
    host, port = open(os.path.expanduser("~/ring")).read().split()
    socket.create_connection((host, int(port)), 20).sendall(b"around")
"""
"""Two tasks that meet at a port of the kernel's choice, as those of MPI and NCCL do."""

DISPLAY = """
import socket
server = socket.create_server(("localhost", 6042))
while True:
    one = server.accept()[0]
    one.sendall(b"display " + one.recv(9))
"""
"""Stands in for an X server."""

WINDOW = """
import os, socket
port = 6000 + int(os.environ["DISPLAY"].partition(":")[2].partition(".")[0])
one = socket.create_connection(("localhost", port), 20)
one.sendall(b"window")
print(one.recv(30).decode())
"""
"""Stands in for an X client in a job."""


@dataclass
class Site:
    """The lab with a firewall."""

    lab: Lab
    directory: Path

    def run(self, *arguments: str, tags: str = "firewall", ssh_config: Path | None = None, **plan: Any) -> Run:
        """Put other keys of the firewall into force."""
        return self.with_plan(**plan).playbook("site", *self._options(tags, ssh_config), *arguments)

    def with_plan(self, **plan: Any) -> Lab:
        """The lab with other keys of the firewall; without the key if `ssh` is empty.

        Without `servers`, it has no servers of the collection that have rules of their own.
        """
        cluster = yaml.safe_load(self.lab.inventory.read_text())
        if not plan.pop("servers", True):
            del cluster["monitoring"], cluster["registry"]
        cluster["firewall"] |= plan
        if not cluster["firewall"]["ssh"]:
            del cluster["firewall"]
        return with_cluster(self.lab, self.directory, cluster, registry_tls=False)

    def _options(self, tags: str, ssh_config: Path | None) -> list[str]:
        return [f"--tags={tags}"] + ([f"--ssh-common-args=-F {ssh_config}"] if ssh_config else [])

    def as_alice(self, host: str, command: str, seconds: int = 90) -> str:
        """The output of a command of an ordinary user, which has to succeed."""
        inner = shlex.quote(f"cd && timeout {seconds} {command}")
        return str(self.lab.command(host, f"runuser -u alice -- env HOME=/home/alice sh -c {inner} 2>&1"))

    def tables(self) -> dict[str, str]:
        """The table of each host, without the connections that it counts."""
        return {host: COUNTED.sub("", str(self.lab.command(host, TABLE))) for host in CLUSTER}

    def connects(self, source: str, target: str, port: int) -> bool:
        """Whether a host reaches a server on a port."""
        found = self.lab.host(source).run(f"python3 -c {shlex.quote(CONNECT)} {target} {port}")
        return bool(found.rc == 0 and "hello" in found.stdout)

    @contextmanager
    def server(self, host: str, port: int) -> Iterator[None]:
        """A program of a user that listens on a host."""
        self.lab.command(host, f"systemd-run --quiet --unit=fw-server python3 -c {shlex.quote(SERVER)} {port}")
        self.lab.wait_for(host, f"ss -Hltn sport = :{port}", str(port), 20)
        try:
            yield
        finally:
            self.lab.command(host, "systemctl stop fw-server")


@pytest.fixture(scope="module")
def site(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Site:
    lab.command(LOGIN, "install --directory --owner=alice --group=alice /home/alice")
    return Site(lab, tmp_path_factory.mktemp("firewall"))


def ran(run: Run) -> dict[str, Any]:
    """The results of the task that loads the firewall, by host."""
    return {host: result for host, task, result in run.results if CHANGE in task}


def address(site: Site, host: str) -> str:
    """The address of a host."""
    return str(site.lab.command(host, "hostname -I")).split()[0]


# -- the traffic -----------------------------------------------------------------------------------------------------


def test_a_second_run_changes_nothing_and_has_no_task(site: Site) -> None:
    assert all("reject" in table for table in site.tables().values())
    run = site.lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed, run.changed, run.warnings) == (0, {}, {}, [])
    assert ran(run) == {}


def test_jobs_of_two_nodes(site: Site) -> None:
    assert sorted(site.as_alice(LOGIN, "srun -N2 hostname").split()) == [*NODES]
    site.lab.command(LOGIN, "rm -f /home/alice/ring")
    site.lab.command(LOGIN, f"cat > /home/alice/ring.py <<'END'\n{RING}\nEND")
    assert "got around" in site.as_alice(LOGIN, "srun -N2 python3 ring.py")
    job = "sbatch --wait --parsable -N2 --output=/home/alice/out --wrap 'srun hostname'"
    site.as_alice(LOGIN, job)
    assert sorted(site.lab.command(LOGIN, "cat /home/alice/out").split()) == [*NODES]


def test_files_and_terminals_of_jobs(site: Site) -> None:
    found = site.as_alice(LOGIN, "salloc -N2 sh -c 'sbcast --force /etc/hostname /tmp/sent && srun cat /tmp/sent'")
    assert found.count(LOGIN) == 2
    found = site.as_alice(LOGIN, "script -qec 'srun --pty tty' /dev/null")
    assert "/dev/pts/" in found


def test_an_mpi_program_on_two_nodes(site: Site) -> None:
    """The validation compiles it. Debian's Open MPI 5 needs PMIx, and starts single programs with another PMI."""
    install = "DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends gcc libc6-dev libopenmpi-dev"
    update = f"apt-get -qq update && {install} openmpi-bin >/dev/null 2>&1"
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda host: site.lab.command(host, update), NODES))
    ends = {}
    for mpi in ("pmi2", "pmix"):
        report = site.directory / mpi
        options = {"validate_mpi": "mpicc", "validate_options": {"export": f"ALL,SLURM_MPI_TYPE={mpi}"}}
        options["validate_report_dir"] = str(report)
        run = site.lab.playbook("validate", f"--extra-vars={json.dumps(options)}")
        assert ("MpiDefault: pmix" in run.output) == (mpi == "pmi2"), run.output
        jobs = json.loads((report / "validation.json").read_text())["jobs"]
        assert "mpi" in {job["name"] for job in jobs}
        ends[mpi] = {job["name"]: job["exit_code"] for job in jobs if not job["ok"]}
    assert ends == {"pmi2": {"mpi": "4:0"}, "pmix": {}}
    # grep ends with 1 where it counts none.
    assert site.lab.command(NODES[0], "ls /tmp | grep -c gpucluster-slurm-mpi || true") == "0"


def test_windows_of_jobs(site: Site) -> None:
    for host in (LOGIN, *NODES):
        site.lab.command(host, "test -x /usr/bin/xauth || { apt-get -qq update && apt-get -qq install xauth; }")
    site.lab.command(LOGIN, f"systemd-run --quiet --unit=fw-display python3 -c {shlex.quote(DISPLAY)}")
    try:
        cookie = "xauth add localhost:42 MIT-MAGIC-COOKIE-1 0123456789abcdef0123456789abcdef"
        site.lab.command(LOGIN, f"cat > /home/alice/window.py <<'END'\n{WINDOW}\nEND")
        command = f"sh -c '{cookie}; DISPLAY=localhost:42.0 srun --x11 python3 window.py'"
        assert "display window" in site.as_alice(LOGIN, command)
    finally:
        site.lab.command(LOGIN, "systemctl stop fw-display")


def test_commands_of_users_and_of_jobs(site: Site) -> None:
    assert "firewall" in site.as_alice(LOGIN, "sacctmgr --noheader --parsable2 show cluster format=cluster")
    assert site.as_alice(LOGIN, "sacct --noheader --allocations --format=state").split().count("COMPLETED") >= 5
    found = site.as_alice(
        LOGIN, "srun sh -c 'sinfo --noheader --format=%D; srun --overlap hostname; sacct -n -X | wc -l'"
    )
    assert found.split()[0] == "2"
    started = site.as_alice(
        LOGIN,
        "sh -c 'srun sleep 20 & sleep 5; sstat --noheader --format=jobid --allsteps "
        "$(squeue --me --noheader --format=%A); wait'",
    )
    assert "." in started


def test_login_hosts_get_a_changed_configuration(site: Site) -> None:
    before = site.lab.command(LOGIN, "stat --format=%Y%i /run/slurm/conf/slurm.conf")
    site.lab.command(CONTROLLER, "timeout 60 scontrol reconfigure")
    seen = f"test $(stat --format=%Y%i /run/slurm/conf/slurm.conf) = {before} || echo new"
    site.lab.wait_for(LOGIN, seen, "new", 60)


def test_the_registry_answers_hosts_of_the_cluster(site: Site) -> None:
    get = "python3 -c 'import urllib.request as r; "
    get += 'print(r.urlopen("http://10.213.7.220:5000/", timeout=9).status)\''
    for host in (LOGIN, *NODES):
        assert site.lab.command(host, get) == "200"
    assert site.lab.host(FOREIGN).run(get).rc == 1


# -- who is refused --------------------------------------------------------------------------------------------------


def test_a_foreign_host_is_refused_at_every_port(site: Site) -> None:
    scans = {
        host: subprocess.Popen(
            ["ssh", "-F", str(site.lab.ssh_config), FOREIGN, f"python3 - {address(site, host)}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for host in CLUSTER
    }
    for scan in scans.values():
        assert scan.stdin is not None
        scan.stdin.write(SCAN)
        scan.stdin.close()
    found = {host: scan.stdout.read().split() for host, scan in scans.items() if scan.stdout is not None}
    assert [scan.wait() for scan in scans.values()] == [0, 0, 0, 0]
    assert found == {CONTROLLER: [], LOGIN: [str(OPEN)], NODES[0]: [], NODES[1]: []}


def test_it_is_refused_with_ipv6_as_well(site: Site) -> None:
    ports = "22 3306 6817 6818 6819"

    def passes(host: str) -> str:
        """The ports to which a request passes from the foreign host, at the host's own address of the link."""
        shown = str(site.lab.command(host, "ip -6 -brief address show dev eth0 scope link"))
        (link_local,) = (each.partition("/")[0] for each in shown.split() if each.startswith("fe80:"))
        found: bytes = site.lab.script(FOREIGN, f"python3 - {link_local} {ports}", IPV6.encode())
        return " ".join(found.decode().split())

    assert {host: passes(host) for host in CLUSTER} == dict.fromkeys(CLUSTER, "")
    # Without the rules all of them pass.
    site.lab.command(NODES[1], f"systemctl stop {UNIT}")
    assert passes(NODES[1]) == ports
    site.lab.command(NODES[1], f"systemctl start {UNIT}")
    assert passes(NODES[1]) == ""


def test_hosts_of_the_cluster_reach_what_they_need_and_no_more(site: Site) -> None:
    target = {host: address(site, host) for host in CLUSTER}
    with site.server(NODES[0], 7777):
        reached = {host: site.connects(host, target[NODES[0]], 7777) for host in (CONTROLLER, LOGIN, NODES[1], FOREIGN)}
    assert reached == {CONTROLLER: False, LOGIN: False, NODES[1]: True, FOREIGN: False}, "compute nodes alone"
    with site.server(CONTROLLER, 7777):
        reached = {host: site.connects(host, target[CONTROLLER], 7777) for host in (LOGIN, NODES[0])}
    assert reached == {LOGIN: False, NODES[0]: False}
    with site.server(LOGIN, 60500):
        reached = {host: site.connects(host, target[LOGIN], 60500) for host in (CONTROLLER, *NODES, FOREIGN)}
    assert reached == {CONTROLLER: True, NODES[0]: True, NODES[1]: True, FOREIGN: False}, "a port of srun"
    with site.server(LOGIN, OPEN):
        assert site.connects(FOREIGN, target[LOGIN], OPEN), "what the site opens"


@pytest.fixture(name="table", scope="module")
def expected() -> set[tuple[str, str, str, int]]:
    """Who reaches which server, with the key and without."""
    registry = Way(CLUSTER, USERS, [CONTROLLER], [REGISTRY])
    ways: set[tuple[str, str, str, int]] = open_ways([*ways_of_monitoring(CONTROLLER, CLUSTER), registry])
    return ways


def found(site: Site) -> set[tuple[str, str, str, int]]:
    """What the kernels say, for each host, and for the one that is no host of the cluster."""
    targets = {host: address(site, host) for host in CLUSTER}
    ways: set[tuple[str, str, str, int]] = found_ways(site.lab, [*CLUSTER, FOREIGN], targets)
    return ways


def test_who_reaches_which_server(site: Site, table: set[tuple[str, str, str, int]]) -> None:
    assert found(site) == table


def test_a_job_reads_no_metrics(site: Site) -> None:
    exporters = " ".join(f"{address(site, to)}:{NODE_EXPORTER}" for to in CLUSTER)
    assert site.as_alice(LOGIN, f"srun -w {NODES[0]} python3 -c {shlex.quote(ASK)} {exporters}") == ""


def test_what_users_do_not_reach_without_the_key_either(site: Site, table: set[tuple[str, str, str, int]]) -> None:
    """The same rules, without those for all other ports."""
    succeeded = site.run(ssh=[])
    assert (succeeded.rc, succeeded.failed) == (0, {})
    try:
        assert "meta skuid" in site.lab.command(NODES[0], TABLE)
        assert "ct state" not in site.lab.command(NODES[0], TABLE), "no tracking of connections on compute nodes"
        # The registry is open to whoever reaches its host.
        assert found(site) == table | open_ways([Way([FOREIGN], ["root", "alice"], [CONTROLLER], [REGISTRY])])
        test_a_job_reads_no_metrics(site)
    finally:
        site.lab.playbook("site", "--tags=firewall")


# -- changes ---------------------------------------------------------------------------------------------------------


def test_check_mode_predicts_a_change_that_no_job_notices(site: Site) -> None:
    plan: dict[str, Any] = {"open": [{"hosts": "compute", "ports": "9222", "from": ["controllers"]}]}
    before = site.tables()
    predicted = site.run("--check", "--diff", **plan)
    assert (predicted.rc, predicted.failed) == (0, {})
    assert site.tables() == before
    job = "nohup runuser -u alice -- sh -c 'cd && timeout 120 srun -N2 sh -c \"for i in 1 2 3 4 5 6 7 8 9; do "
    job += "echo alive; sleep 4; done\"' > /home/alice/alive 2>&1 < /dev/null &"
    site.lab.command(LOGIN, job)
    site.lab.wait_for(LOGIN, "cat /home/alice/alive", "alive", 60)
    applied = site.run("--diff", **plan)
    assert (applied.rc, applied.failed, applied.warnings) == (0, {}, [])
    assert predicted.changed == applied.changed
    changed = {host: result["changed"] for host, result in ran(applied).items()}
    assert changed == {LOGIN: True, NODES[0]: True, NODES[1]: True}, "the controller has the same rules"
    assert {host: result["diff"] for host, result in ran(predicted).items()} == {
        host: result["diff"] for host, result in ran(applied).items()
    }
    again = site.run("--diff", **plan)
    assert (again.rc, again.failed, again.changed, ran(again)) == (0, {}, {}, {})
    site.lab.wait_for(LOGIN, "grep --count alive /home/alice/alive", "18", 90)
    with site.server(NODES[0], 9222):
        assert site.connects(CONTROLLER, address(site, NODES[0]), 9222)
        assert not site.connects(LOGIN, address(site, NODES[0]), 9222)
    back = site.run()
    assert (back.rc, back.failed) == (0, {})
    assert site.tables() == before


def test_rules_without_the_control_host_are_refused(site: Site) -> None:
    before = site.tables()
    for check in ([], ["--check"]):
        run = site.run(*check, ssh=["192.0.2.0/24"])
        assert {*run.failed} == {*CLUSTER}
        assert "also 10.213.7.1, from which this run has come" in run.failed[CONTROLLER][0]
        run = site.run(*check, ssh_port=2222)
        assert "found 2222, allowed: 22, the port of sshd by which this run has come" in run.failed[CONTROLLER][0]
    assert site.tables() == before


def through_foreign(site: Site, name: str, command: str = "") -> Path:
    """A configuration of ssh in which a new connection to one node comes from the foreign host."""
    path = site.directory / "ssh_config"
    own = site.lab.ssh_config.read_text()
    jump = f"ssh -F {site.lab.ssh_config} -W %h:%p {FOREIGN}"
    path.write_text(f"Host {address(site, name)}\n  ProxyCommand {command or jump}\n{own}")
    return path


def one_more_port(site: Site, node: str) -> dict[str, Any]:
    """A plan that changes a single host."""
    return {"open": [*site.lab.cluster["firewall"]["open"], {"hosts": node, "ports": "9222", "from": ["login"]}]}


def test_rules_that_cut_off_ssh_are_taken_back(site: Site) -> None:
    """The open connection is admitted by its address, and a new one comes from another address."""
    before = site.tables()
    node = NODES[0]
    assert site.run("--check").rc == 0, "it leaves open connections"
    plan = one_more_port(site, node)
    started = time.monotonic()
    run = site.run(ssh_config=through_foreign(site, node), **plan)
    assert {*run.failed} == {node}
    assert "No new connection as " in run.failed[node][0]
    assert "could become root, so the previous files were restored" in run.failed[node][0]
    assert time.monotonic() - started < 100
    assert site.tables() == before
    site.lab.command(node, f"! systemctl list-units --all --no-legend '{TIMER}*' | grep .")
    site.lab.command(node, f"test ! -e {NEW}")
    run = site.run()
    assert (run.rc, run.failed, run.changed) == (0, {}, {}), "the previous plan holds"


def test_a_killed_run_is_taken_back_by_the_host(site: Site) -> None:
    before = site.tables()
    node = NODES[0]
    assert site.run("--check").rc == 0, "it leaves open connections"
    config = through_foreign(site, node, "sleep 300")
    plan = one_more_port(site, node)
    live = site.with_plan(**plan).start("site", "--tags=firewall", f"--ssh-common-args=-F {config}")
    live.wait_for_task(CHANGE)
    site.lab.wait_for(node, f"{TABLE} | grep 9222 || true", "9222", 60)
    live.kill()
    boot = site.lab.command(node, f"cat {RULES}")
    assert "9222" not in boot, "a boot would load the previous rules"
    site.lab.wait_for(node, f"{TABLE} | grep 9222 || echo back", "back", 130)
    assert site.tables() == before
    run = site.run(**plan)
    assert (run.rc, run.failed, {*run.changed}) == (0, {}, {node})
    assert "9222" in site.lab.command(node, TABLE)
    assert site.run().rc == 0
    assert site.tables() == before


# -- drift and removal -----------------------------------------------------------------------------------------------


def test_drift_is_repaired(site: Site) -> None:
    before = site.tables()
    site.lab.command(CONTROLLER, "nft flush ruleset")
    site.lab.command(LOGIN, "nft insert rule inet gpucluster_slurm input tcp dport 1-65535 accept")
    site.lab.command(NODES[0], f"systemctl disable --quiet {UNIT}")
    site.lab.command(NODES[1], "nft add table inet of_the_site && systemctl restart nftables")
    site.lab.wait_for(NODES[1], TABLE, "reject", 20)
    predicted = site.run("--check")
    assert {*predicted.changed} == {CONTROLLER, LOGIN, NODES[0]}
    repaired = site.run()
    assert (repaired.rc, repaired.failed, repaired.changed) == (0, {}, predicted.changed)
    assert site.tables() == before
    for host in CLUSTER:
        assert site.lab.command(host, f"systemctl is-enabled {UNIT} && systemctl is-active {UNIT}").split() == [
            "enabled",
            "active",
        ]
    assert ran(site.run()) == {}


def test_a_boot_loads_the_rules_before_any_port_is_open(site: Site) -> None:
    """The container starts again: its network is a new one, without rules."""
    before = site.lab.command(NODES[0], TABLE)
    podman("restart", container(NODES[0]))
    site.lab.wait_for(NODES[0], "systemctl is-active slurmd", "active", 60)
    assert site.lab.command(NODES[0], TABLE) == before
    units = (UNIT, "ssh.service", "slurmd.service")
    show = "systemctl show --property=ActiveEnterTimestampMonotonic --value"
    rules, *servers = (int(site.lab.command(NODES[0], f"{show} {unit}")) for unit in units)
    assert all(0 < rules < server for server in servers), servers
    site.lab.wait_until_idle(CONTROLLER, NODES[0])
    assert ran(site.run()) == {}


def test_other_tables_stay(site: Site) -> None:
    site.lab.command(NODES[0], "nft add table inet of_the_site")
    plan: dict[str, Any] = {"open": [{"hosts": NODES[0], "ports": "9222", "from": ["login"]}]}
    assert site.run(**plan).rc == 0
    assert "of_the_site" in site.lab.command(NODES[0], "nft list tables")
    site.lab.command(NODES[0], "nft delete table inet of_the_site")


def test_another_firewall_is_named_and_stays(site: Site) -> None:
    site.lab.command(LOGIN, "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install ufw")
    site.lab.command(LOGIN, "ufw allow 22/tcp && ufw --force enable")
    try:
        rules = site.lab.command(LOGIN, "ufw status")
        plan: dict[str, Any] = {"open": [{"hosts": LOGIN, "ports": "9222", "from": ["login"]}]}
        run = site.run(**plan)
        assert (run.rc, run.failed) == (0, {})
        assert any("ufw is active as well" in text for text in run.warnings)
        assert site.lab.command(LOGIN, "ufw status") == rules
    finally:
        site.lab.command(LOGIN, "ufw --force disable")


def test_without_the_key_the_firewall_goes(site: Site) -> None:
    predicted = site.run("--check", ssh=[], servers=False)
    assert {*predicted.changed} == {*CLUSTER}
    removed = site.run(ssh=[], servers=False)
    assert (removed.rc, removed.failed, removed.changed) == (0, {}, predicted.changed)
    for host in CLUSTER:
        left = f"{RULES}* /etc/systemd/system/{UNIT} /etc/systemd/system/*/{UNIT} /var/lib/gpucluster-slurm/firewall*"
        assert site.lab.host(host).run(f"ls -d {left}").stdout == ""
        assert "gpucluster_slurm" not in site.lab.command(host, "nft list tables")
    with site.server(NODES[0], 7777):
        assert site.connects(FOREIGN, address(site, NODES[0]), 7777)
    assert ran(site.run(ssh=[], servers=False)) == {}
