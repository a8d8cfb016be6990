# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts of an ordinary user to reach servers of this collection, and to take them from others.

Each attempt is one row of a table. alice is the user; what a site has beforehand, such as a further address of a host,
root does. Another id of a range of /etc/subuid is one that root gives, as newuidmap(1) would.
"""

from __future__ import annotations

import shlex

import pytest
from lab import Lab
from reach import is_served, many, unit

CONTROLLER, LOGIN, NODES = "fw-ctl", "fw-login", ("fw-node1", "fw-node2")
CLUSTER = (CONTROLLER, LOGIN, *NODES)
ADDRESS = {host: f"10.213.7.{220 + i}" for i, host in enumerate(CLUSTER)}
EXPORTER, REGISTRY = 9100, 5000
SERVER = ADDRESS[CONTROLLER], REGISTRY
ANSWERED = "an answer"
PROGRAM = "/usr/local/share/attempt.py"

ATTEMPT = """
import os, socket, struct, subprocess, sys, time

how, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262 if how == "mptcp" else 0)
one.settimeout(4)
request = b"GET /metrics HTTP/1.0\\r\\n\\r\\n"
if how == "mapped":
    one = socket.socket(socket.AF_INET6)
    one.settimeout(4)
    host = "::ffff:" + host
elif how == "loopback":
    one.bind(("127.0.0.2", 0))
elif how == "device":
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
elif how == "source-port":
    one.bind(("", 9090))
elif how == "small-segments":
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 88)
elif how == "foreign-source":
    one.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
    one.bind(("10.213.7.220", 0))
elif how == "udp":
    one = socket.socket(type=socket.SOCK_DGRAM)
    one.settimeout(4)
elif how == "link-local":
    one = socket.socket(socket.AF_INET6)
    one.settimeout(4)
elif how == "connect":
    request = b"CONNECT 10.213.7.220:9090 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" + request
elif how == "whole-address":
    request = b"GET http://10.213.7.220:9090/metrics HTTP/1.0\\r\\nX-Forwarded-For: 127.0.0.1\\r\\n\\r\\n"
elif how == "held-port":
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("", 60500))
if how == "fast-open":
    one.settimeout(None)
    one.sendto(request, socket.MSG_FASTOPEN, (host, port))
else:
    one.connect((host, port, 0, socket.if_nametoindex("eth0")) if how == "link-local" else (host, port))
    one.sendall(request)
said = b""
while len(said) < 40000 and (more := one.recv(9999)):
    said += more
if b"go_goroutines" in said or b"stand-in" in said:
    print("an answer")
"""
"""Asks a server in an unusual way; says so if it has read what a server of monitoring has for Prometheus."""

STAND_IN = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6 if ":" in sys.argv[1] else 2)
while True:
    one = server.accept()[0]
    one.recv(999)
    one.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nstand-in")
    one.close()
"""
"""A server of the site, or one of a user, on a port of this collection."""


@pytest.fixture(name="lab", scope="module")
def prepared(lab: Lab) -> Lab:
    """The lab with the program on each host, and with a key by which alice comes from one host to another."""
    public = ""
    for host in CLUSTER:
        lab.script(host, f"install -m 644 /dev/stdin {PROGRAM}", ATTEMPT.encode())
        home = "install -d -o alice -g alice -m 700 /home/alice /home/alice/.ssh"
        key = "test -e .ssh/id_ed25519 || runuser -u alice -- ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519"
        public += lab.command(host, f"{home}; cd /home/alice; {key}; cat .ssh/id_ed25519.pub") + "\n"
    for host in CLUSTER:
        where = "-o alice -m 600 /dev/stdin /home/alice/.ssh"
        lab.script(host, f"install {where}/authorized_keys", public.encode())
        lab.script(host, f"install {where}/config", b"StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")
    return lab


def by_alice(lab: Lab, host: str, command: str) -> str:
    """What a command of alice says, with all errors."""
    # Where ssh or srun is refused, it ends with 255, as ssh of the tests would.
    whole = f"cd /home/alice && HOME=/home/alice timeout 60 {command} 2>&1 || true"
    return str(lab.host(host).run(f"runuser -u alice -- sh -c {shlex.quote(whole)}").stdout)


def asks(how: str, target: str, port: int = EXPORTER) -> str:
    """The command of an attempt."""
    return f"python3 {PROGRAM} {how} {ADDRESS.get(target, target)} {port}"


def listening(address: str, port: int) -> str:
    """The command of a stand-in for a server."""
    return f"python3 -c {shlex.quote(STAND_IN)} {address} {port}"


# -- who reaches them --------------------------------------------------------------------------------------------------

NODE, OTHER = NODES
AS_UNIT = (
    "sh -c 'export XDG_RUNTIME_DIR=/run/user/2001; rm -f said; systemd-run --user --quiet --collect"
    " -p StandardOutput=file:/home/alice/said -p StandardError=file:/home/alice/said {0}; sleep 3; cat said'"
)
PROXY = (
    "sh -c 'export XDG_RUNTIME_DIR=/run/user/2001; systemd-run --user --quiet --collect --unit=relay"
    " --socket-property=ListenStream=127.0.0.1:7999 /usr/lib/systemd/systemd-socket-proxyd {0}:9100;"
    " python3 {1} plain 127.0.0.1 7999; systemctl --user stop relay.socket relay'"
)
TUNNEL = "sh -c 'ssh -fN -o ExitOnForwardFailure=yes {0} {1} && sleep 1; {2}; pkill -u alice -f [E]xitOnForward'"

ATTEMPTS = {
    "in plain words, own host": (NODE, asks("plain", NODE)),
    "in plain words, another host": (LOGIN, asks("plain", NODE)),
    "IPv4 written as IPv6, own host": (NODE, asks("mapped", NODE)),
    "IPv4 written as IPv6, another host": (LOGIN, asks("mapped", NODE)),
    "from 127.0.0.2": (NODE, asks("loopback", NODE)),
    "by an interface, own host": (NODE, asks("device", NODE)),
    "by an interface, another host": (NODE, asks("device", OTHER)),
    "from the port of Prometheus": (NODE, asks("source-port", OTHER)),
    "from the address of Prometheus": (NODE, asks("foreign-source", OTHER)),
    "TCP Fast Open, own host": (NODE, asks("fast-open", NODE)),
    "TCP Fast Open, another host": (NODE, asks("fast-open", OTHER)),
    "Multipath TCP, own host": (NODE, asks("mptcp", NODE)),
    "Multipath TCP, another host": (NODE, asks("mptcp", CONTROLLER, 9090)),
    "small segments": (NODE, asks("small-segments", NODE)),
    "UDP": (NODE, asks("udp", OTHER)),
    "a user namespace": (NODE, f"unshare -Ur {asks('plain', NODE)}"),
    "a unit of the user": (NODE, AS_UNIT.format(asks("plain", NODE))),
    "a socket proxy of the user": (NODE, PROXY.format(ADDRESS[NODE], PROGRAM)),
    "ssh -W through the node": (
        LOGIN,
        f"sh -c 'printf \"GET /metrics HTTP/1.0\\r\\n\\r\\n\" | ssh -W {ADDRESS[NODE]}:9100 {NODE}"
        f" | grep -q go_goroutines && echo {ANSWERED}'",
    ),
    "ssh -L through the node": (
        LOGIN,
        TUNNEL.format(f"-L 7998:{ADDRESS[NODE]}:9100", NODE, f"python3 {PROGRAM} plain 127.0.0.1 7998"),
    ),
    "ssh -R from the login host": (
        LOGIN,
        TUNNEL.format(f"-R 7997:{ADDRESS[NODE]}:9100", NODE, f"ssh {NODE} python3 {PROGRAM} plain 127.0.0.1 7997"),
    ),
    "a shell of the controller": (LOGIN, f"ssh -o ConnectTimeout=5 {ADDRESS[CONTROLLER]} {asks('plain', NODE)}"),
    "a job": (LOGIN, f"srun -w {NODE} {asks('plain', NODE)}"),
    "a job as another user": (LOGIN, f"srun --uid=prometheus -w {NODE} {asks('plain', NODE)}"),
    "a job in another group": (LOGIN, f"srun --gid=prometheus -w {NODE} {asks('plain', NODE)}"),
    "the display of a job": (
        LOGIN,
        f"sh -c 'xauth add {ADDRESS[CONTROLLER]}:3090 . 00; DISPLAY={ADDRESS[CONTROLLER]}:3090.0 srun --x11 -w {NODE} "
        f"sh -c \"d=\\${{DISPLAY#*:}}; python3 {PROGRAM} plain 127.0.0.1 \\$((6000 + \\${{d%.*}}))\"'",
    ),
    "the registry as a proxy, CONNECT": (LOGIN, asks("connect", CONTROLLER, REGISTRY)),
    "the registry as a proxy, a whole address": (LOGIN, asks("whole-address", CONTROLLER, REGISTRY)),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTEMPTS)
def test_alice_gets_no_answer(lab: Lab, name: str) -> None:
    host, command = ATTEMPTS[name]
    if "XDG_RUNTIME_DIR" in command:
        lab.command(host, "systemctl start user@2001")
    said = by_alice(lab, host, command)
    print(said[-500:])
    assert ANSWERED not in said


@pytest.mark.parametrize("ids", ["--reuid=165536", "--reuid=231071", "--reuid=alice --regid=prometheus"])
def test_another_id_gets_no_answer(lab: Lab, ids: str) -> None:
    as_other = "setpriv --clear-groups {} -- {}"
    assert ANSWERED not in lab.host(NODE).run(as_other.format(ids, asks("plain", NODE))).stdout
    assert ANSWERED in lab.command(NODE, as_other.format("--reuid=prometheus", asks("plain", NODE)))


def test_further_addresses_of_a_host_are_closed(lab: Lab) -> None:
    """An address that the cluster file does not have, and one of IPv6."""
    shown = lab.command(OTHER, "ip -6 -brief address show dev eth0 scope link")
    [link_local] = [one.partition("/")[0] for one in shown.split() if one.startswith("fe80:")]
    lab.command(OTHER, "ip address replace 10.213.7.250/24 dev eth0")
    try:
        with (
            unit(lab, OTHER, listening("10.213.7.250", EXPORTER), "further"),
            unit(lab, OTHER, listening("::", EXPORTER), "link-local"),
        ):
            lab.wait_for(OTHER, f"ss -Hltn sport = :{EXPORTER}", "[::]", 20)
            for host in (LOGIN, *NODES):
                assert ANSWERED not in by_alice(lab, host, asks("plain", "10.213.7.250"))
                assert ANSWERED not in by_alice(lab, host, asks("link-local", link_local))
            assert ANSWERED in lab.command(OTHER, asks("link-local", link_local))
    finally:
        lab.command(OTHER, "ip address delete 10.213.7.250/24 dev eth0")


HELD = """
import socket, time
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
one.bind(("10.213.7.222", 9100))
one.connect(("10.213.7.221", 60500))
print("connected", flush=True)
time.sleep(2)
"""


def test_a_port_that_was_held_opens_no_way_back(lab: Lab) -> None:
    """alice connects from the port of node-exporter, so that the kernel of the node would know a connection to it."""
    lab.command(NODE, "systemctl stop prometheus-node-exporter")
    try:
        with unit(lab, LOGIN, listening("0.0.0.0", 60500), "meeting", "alice"):
            lab.wait_for(LOGIN, "ss -Hltn sport = :60500", "60500", 20)
            assert "connected" not in by_alice(lab, NODE, f"timeout 5 python3 -c {shlex.quote(HELD)}")
    finally:
        lab.command(NODE, "systemctl start prometheus-node-exporter")
    lab.wait_for(NODE, f"ss -Hltn sport = :{EXPORTER}", str(EXPORTER), 20)
    assert ANSWERED not in by_alice(lab, LOGIN, asks("held-port", NODE))


def test_a_user_poses_as_no_server(lab: Lab) -> None:
    """The server is away, and a program of alice listens in its place."""
    lab.command(NODE, "systemctl stop prometheus-node-exporter")
    try:
        with unit(lab, NODE, listening("0.0.0.0", EXPORTER), "poser", "alice"):
            lab.wait_for(NODE, f"ss -Hltn sport = :{EXPORTER}", str(EXPORTER), 20)
            for host in (CONTROLLER, NODE):
                said = lab.host(host).run(f"runuser -u prometheus -- {asks('plain', NODE)}").stdout
                assert ANSWERED not in said, host
    finally:
        lab.command(NODE, "systemctl start prometheus-node-exporter")


# -- who takes them from others ----------------------------------------------------------------------------------------

STAGES = (
    "silent",
    "half a line",
    "half a header",
    "half a body",
    "idle",
    "nothing read",
    "half a handshake",
    "each anew",
    "Multipath TCP",
)


@pytest.mark.parametrize("how", STAGES)
def test_connections_of_one_host_leave_others_theirs(lab: Lab, how: str) -> None:
    with many(lab, [LOGIN], how, *SERVER):
        assert [is_served(lab, host, "alice", *SERVER) for host in NODES] == [True, True]
    assert is_served(lab, LOGIN, "alice", *SERVER)


def test_connections_of_three_hosts_leave_others_theirs(lab: Lab) -> None:
    with many(lab, [LOGIN, *NODES], "half a line", *SERVER):
        assert is_served(lab, CONTROLLER, "www-data", *SERVER)


@pytest.mark.parametrize("how", ["half a line", "Multipath TCP"])
def test_connections_of_one_user_leave_another_user_of_the_host_theirs(lab: Lab, how: str) -> None:
    with many(lab, [CONTROLLER], how, *SERVER):
        assert is_served(lab, CONTROLLER, "www-data", *SERVER)
        assert is_served(lab, LOGIN, "alice", *SERVER)


def test_connections_of_a_users_further_ids_leave_others_theirs(lab: Lab) -> None:
    """Sixteen of the 65,536 ids that /etc/subuid gives to a user."""
    with many(lab, [CONTROLLER], "half a line", *SERVER, [str(165536 + i) for i in range(16)]):
        assert is_served(lab, LOGIN, "alice", *SERVER)


def test_users_of_a_login_host_share_its_connections(lab: Lab) -> None:
    """What docs/admin/firewall.md says of those who share an address."""
    with many(lab, [LOGIN], "half a line", *SERVER):
        assert not is_served(lab, LOGIN, "nobody", *SERVER)
    assert is_served(lab, LOGIN, "nobody", *SERVER)
