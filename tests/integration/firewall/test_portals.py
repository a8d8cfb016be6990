# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls of two portals (docs/admin/portal-*.md) with profile `strict` and the keys `firewall` and `rest`.

Open OnDemand's commands are those of ood_core 0.31.1, on the login host. Slurm-web's requests are those of its agent
6.0.0, from fw-foreign, which is a client of the key `rest` and no host of the cluster.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import ROOT, Lab, with_cluster
from reach import REGISTRY, REST, USERS, Way, found_ways, is_served, many, open_ways, ways_of_monitoring

CONTROLLER, LOGIN, NODES, FOREIGN = "fw-ctl", "fw-login", ("fw-node1", "fw-node2"), "fw-foreign"
CLUSTER = (CONTROLLER, LOGIN, *NODES)
ADDRESS = "10.213.7.221"
OPERATOR = "portal"
YEAR = 31536000

FIELDS = """
Account JobID BatchHost MinCpus NumCPUs MinTmpDisk NumNodes EndTime Dependency Feature ArrayJobID GroupName GroupID
OverSubscribe Sockets JobArrayID Cores Name Threads Comment ArrayTaskID TimeLimit TimeLeft MinMemory TimeUsed ReqNodes
NodeList Command Contiguous QOS Partition PriorityLong Reason StartTime StateCompact State UserName UserID Reservation
SubmitTime WCKey Licenses ExcNodes CoreSpec Nice SchedNodes SCT WorkDir tres-alloc tres-per-node
"""
"""What Open OnDemand asks squeue for, in its order."""

HISTORY = (
    "User,Group,JobId,JobName,Elapsed,ReqMem,AllocCPUS,ReqCPUS,Timelimit,State,TotalCPU,MaxRSS,Partition,Submit,Start,"
    "End,ReqTRES"
)
"""What Open OnDemand asks sacct for."""

AGENT = {
    "slurm": {
        "jobs": (
            "jobs",
            "account cpus job_id job_state node_count nodes partition priority qos state_reason user_name",
        ),
        "nodes": (
            "nodes",
            "name cpus sockets cores gres gres_used real_memory state reason alloc_cpus alloc_idle_cpus",
        ),
        f"node/{NODES[0]}": ("nodes", "name architecture operating_system boot_time threads alloc_memory partitions"),
        "partitions": ("partitions", "name node_sets"),
        "reservations": ("reservations", "name users accounts node_list node_count start_time end_time flags"),
    },
    "slurmdb": {
        "accounts": ("accounts", "name"),
        "associations": ("associations", "account max parent_account qos user"),
        "qos": ("qos", "name description priority flags limits"),
    },
}
"""What Slurm-web's agent requests: the path, the key of the answer, and fields that it reads there."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the cluster file, with a certificate for the address of the login host."""
    found = tmp_path_factory.mktemp("portals")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3", "-subj", "/CN=portals"]
    files = ["-addext", f"subjectAltName=IP:{ADDRESS}", "-out", f"{found}/tls.crt", "-keyout", f"{found}/tls.key"]
    subprocess.run([*command, *files], check=True, capture_output=True)
    (found / "tls.key").chmod(0o600)
    return found


def with_portals(lab: Lab, directory: Path) -> Lab:
    """The lab with the cluster file of the documentation."""
    cluster = yaml.safe_load(lab.inventory.read_text())
    cluster["rest"] = {"host": LOGIN, "clients": ["10.213.7.224"]}
    cluster["profile"] = "strict"
    users = [{"name": "alice", "DefaultAccount": "science"}, {"name": "bob", "DefaultAccount": "science"}]
    operator = {"name": OPERATOR, "DefaultAccount": "science", "AdminLevel": "Operator"}
    cluster["accounting"] = {"accounts": [{"name": "science"}], "users": [*users, operator]}
    tls = {"slurmrestd_certificate": str(directory / "tls.crt"), "slurmrestd_key": str(directory / "tls.key")}
    return with_cluster(lab, directory, cluster, registry_tls=False, **tls)


@pytest.fixture(name="portals", scope="module", autouse=True)
def converged(lab: Lab, directory: Path) -> Iterator[Lab]:
    """The lab with both keys; without the key of the tokens on the control host afterwards."""
    for host in (CONTROLLER, LOGIN, *NODES):
        for user, uid in (("bob", 2002), (OPERATOR, 2100)):
            lab.command(host, f"id -u {user} || useradd --uid {uid} --create-home --shell /bin/bash {user}")
    lab.command(LOGIN, "install --directory --owner=alice --group=alice /home/alice")
    changed = with_portals(lab, directory)
    done = changed.playbook("site", "--skip-tags=validate")
    assert done.rc == 0, done.failed or done.output[-3000:]
    data = base64.b64encode((directory / "tls.crt").read_bytes()).decode()
    lab.command(FOREIGN, f"sh -c 'echo {data} | base64 -d >/root/tls.crt'")
    yield changed
    (lab.inventory.parent / "secrets" / str(lab.cluster["name"]) / "jwt_hs256.key").unlink(missing_ok=True)


def as_user(lab: Lab, user: str, *command: str, given: str = "") -> str:
    """What a command of the portal prints, which runs it as its user without a shell."""
    data = base64.b64encode(given.encode()).decode()
    inner = f"cd && echo {data} | base64 -d | timeout 90 {shlex.join(command)}"
    return str(lab.command(LOGIN, f"runuser -u {user} -- env HOME=/home/{user} bash -c {shlex.quote(inner)}"))


# -- Open OnDemand -----------------------------------------------------------------------------------------------------


def queue(lab: Lab, user: str, *options: str) -> list[dict[str, str]]:
    """The jobs that Open OnDemand reads from squeue, by its fields."""
    names = FIELDS.split()
    fields = ":\x1f,".join([*names, ""])
    text = as_user(lab, user, "squeue", "--all", "--states=all", "--noconvert", "-O", fields, *options)
    _header, _end, jobs = text.partition("\x1f\n")
    return [dict(zip(names, line.split("\x1f"), strict=False)) for line in jobs.splitlines()]


@pytest.fixture
def job(lab: Lab) -> Iterator[str]:
    """A job as Open OnDemand submits it: the script is standard input, and the environment that of a login."""
    script = "#!/bin/bash\ncd; echo $GREETING; sleep 600\n"
    options = ["--no-requeue", "-D", "/tmp", "-J", "sys/dashboard", "-o", "/home/alice/portal.log", "-p", "all"]
    options += ["-A", "science", "-t", "01:00:00", "-n", "1", "--export", "GREETING", "--parsable"]
    number = as_user(lab, "alice", "env", "GREETING=hello", "sbatch", *options, given=script).strip().split(";")[0]
    assert number.isdigit()
    yield number
    lab.command(CONTROLLER, f"scancel {number}")


def test_open_ondemand_submits_reads_and_ends_a_job(lab: Lab, job: str) -> None:
    lab.wait_for(LOGIN, f"squeue --noheader --jobs={job} --format=%T", "RUNNING")
    [found] = queue(lab, "alice", "-j", job)
    wanted = {
        "Account": "science",
        "NumCPUs": "1",
        "Name": "sys/dashboard",
        "TimeLimit": "1:00:00",
        "StateCompact": "R",
    }
    wanted |= {"UserName": "alice", "Partition": "all", "WorkDir": "/tmp"}
    assert {field: found[field] for field in wanted} == wanted
    assert found["NodeList"] in NODES
    assert re.search(r"(?:^|,)mem=\w+(?:,|$)", found["tres-alloc"])
    assert job in [one["JobID"] for one in queue(lab, "alice", "-u", "alice")]
    # PrivateData, by the profile: a user's portal shows the user's jobs alone.
    assert queue(lab, "bob") == []
    lab.wait_for(found["NodeList"], "cat /home/alice/portal.log", "hello")
    for command in (("scontrol", "hold", job), ("scontrol", "release", job), ("scancel", job)):
        as_user(lab, "alice", *command)
    lab.wait_for(LOGIN, f"sacct -nPXj {job} -o State", "CANCELLED")
    past = ["sacct", "-P", "--delimiter", "\x1f", "-n", "--units", "G", "--allocations", "-o", HISTORY, "-j", job]
    [line] = as_user(lab, "alice", *past).splitlines()
    history = dict(zip(HISTORY.split(","), line.split("\x1f"), strict=True))
    assert (history["User"], history["JobId"], history["State"].split()[0]) == ("alice", job, "CANCELLED")


def test_open_ondemand_sees_the_cluster_and_the_accounts_of_its_user(lab: Lab) -> None:
    nodes, cpus = as_user(lab, "alice", "sinfo", "-aho", "%F/%C").strip().split("/"), 2 * len(NODES)
    assert (int(nodes[3]), int(nodes[7])) == (len(NODES), cpus)
    lines = as_user(lab, "alice", "sinfo", "-ahNO", "nodehost:100,gres:512,gresused:512,statelong").splitlines()
    assert [line.split()[0] for line in lines] == [*NODES]
    assert all(len(line.split()) == 4 for line in lines)
    listed = as_user(lab, "alice", "sinfo", "-ho", "\x1e%c\x1f%n\x1f%f").split("\x1e")
    assert sorted(one.split("\x1f")[1] for one in listed if one) == [*NODES]
    [partition] = as_user(lab, "alice", "scontrol", "show", "part", "-o").splitlines()
    assert all(re.match(r"\w+=.+$", token) for token in partition.split())
    ask = ["sacctmgr", "-nP", "show", "users", "withassoc", "format=account,qos", "where", "user=alice"]
    assert as_user(lab, "alice", *ask, "cluster=firewall").splitlines() == ["science|normal"]
    # The name of the portal's cluster file has to be that of the cluster: it leaves out a line without an account.
    assert as_user(lab, "alice", *ask, "cluster=other").strip() == "|"


# -- Slurm-web ---------------------------------------------------------------------------------------------------------


GET = """
import ssl, sys, urllib.error, urllib.request
headers = {"X-SLURM-USER-NAME": sys.argv[2], "X-SLURM-USER-TOKEN": sys.stdin.read()}
request = urllib.request.Request(sys.argv[1], headers=headers)
try:
    answer = urllib.request.urlopen(request, timeout=60, context=ssl.create_default_context(cafile="/root/tls.crt"))
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.headers.get_content_type(), answer.read().decode())
"""


def get(lab: Lab, token: str, path: str) -> tuple[int, Any]:
    """The status and the answer to a request of the agent, with the headers that it sends."""
    url = f"https://{ADDRESS}:6820{path}"
    said = lab.script(FOREIGN, f"python3 -c {shlex.quote(GET)} {url} {OPERATOR}", token.encode()).decode()
    status, kind, body = said.split(" ", 2)
    return int(status), json.loads(body) if kind == "application/json" else body.strip()


@pytest.fixture(scope="module")
def token(lab: Lab) -> str:
    """The token of the documentation: root makes it for the operator, for longer than the users' tokens."""
    said = lab.command(CONTROLLER, f"timeout 60 scontrol token username={OPERATOR} lifespan={YEAR}")
    return str(said).strip().removeprefix("SLURM_JWT=")


def newest(lab: Lab) -> str:
    """The newest version of the lab's release, by docs/admin/rest.md."""
    row = re.search(rf"^\| {re.escape(lab.release)} \| (.*) \|$", (ROOT / "docs/admin/rest.md").read_text(), re.M)
    assert row
    return row[1].split(", ")[-1]


def test_slurm_web_finds_the_version(lab: Lab, token: str) -> None:
    status, said = get(lab, token, f"/slurm/{newest(lab)}/ping")
    assert (status, said["errors"]) == (200, [])
    assert (said["meta"]["slurm"]["cluster"], said["meta"]["slurm"]["release"][:5]) == ("firewall", lab.release)
    # It tries newer ones first, and goes on after 404 alone, with JSON in the answer or without.
    assert get(lab, token, "/slurm/v0.0.99/ping")[0] == 404


def test_slurm_web_sees_everything_by_an_operators_token(lab: Lab, token: str, job: str) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for component, paths in AGENT.items():
        for path, (key, fields) in paths.items():
            status, said = get(lab, token, f"/{component}/{newest(lab)}/{path}")
            assert (status, said["errors"]) == (200, []), path
            found[path] = said[key]
            for item in said[key]:
                assert {*fields.split()} <= {*item}, path
    assert [(one["user_name"], one["account"]) for one in found["jobs"] if one["job_id"] == int(job)] == [
        ("alice", "science")
    ]
    assert sorted(node["name"] for node in found["nodes"]) == [*NODES]
    assert {"alice", "bob"} <= {one["user"] for one in found["associations"]}
    assert {one["name"] for one in found["accounts"]} == {"root", "science"}
    for component in AGENT:
        status, said = get(lab, token, f"/{component}/{newest(lab)}/job/{job}")
        assert (status, len(said["jobs"])) == (200, 1), component


def test_a_token_of_another_user_than_the_agent_names_is_refused(lab: Lab) -> None:
    said = lab.command(LOGIN, "runuser -u bob -- timeout 60 scontrol token lifespan=600")
    token = str(said).strip().removeprefix("SLURM_JWT=")
    assert get(lab, token, f"/slurm/{newest(lab)}/ping")[0] == 401


# -- the firewall ------------------------------------------------------------------------------------------------------


def test_only_clients_and_the_cluster_reach_the_port(lab: Lab) -> None:
    connect = f"import socket; print(socket.socket().connect_ex(('{ADDRESS}', 6820)))"
    assert [lab.command(host, f'python3 -c "{connect}"').strip() for host in (FOREIGN, CONTROLLER, NODES[0])] == [
        "0"
    ] * 3
    # The machine of the tests is in `ssh` alone.
    refused = subprocess.run(["python3", "-c", connect], capture_output=True, text=True, check=True)
    assert refused.stdout.strip() != "0"
    assert not lab.host(CONTROLLER).socket("tcp://0.0.0.0:6820").is_listening


def test_who_reaches_which_server(lab: Lab) -> None:
    """The table of test_firewall.py, with the REST interface."""
    targets = {host: f"10.213.7.{220 + i}" for i, host in enumerate(CLUSTER)}
    table = [*ways_of_monitoring(CONTROLLER, CLUSTER), Way(CLUSTER, USERS, [CONTROLLER], [REGISTRY])]
    table += [Way(CLUSTER, USERS, [LOGIN], [REST]), Way([FOREIGN], ["root", "alice"], [LOGIN], [REST])]
    assert found_ways(lab, [*CLUSTER, FOREIGN], targets) == open_ways(table)


@pytest.mark.parametrize("how", ["silent", "half a handshake", "after the handshake"])
@pytest.mark.parametrize("source", [NODES[0], LOGIN])
def test_half_open_tls_leaves_others_theirs(lab: Lab, token: str, source: str, how: str) -> None:
    """Of one user, on a node and on the host of the server."""
    with many(lab, [source], how, ADDRESS, REST):
        assert get(lab, token, f"/slurm/{newest(lab)}/ping")[0] == 200
        assert is_served(lab, NODES[1], "alice", ADDRESS, REST)
        assert source != LOGIN or is_served(lab, LOGIN, "bob", ADDRESS, REST)


def test_a_second_run_changes_nothing(portals: Lab) -> None:
    done = portals.playbook("site", "--skip-tags=validate")
    assert (done.rc, done.failed, done.changed) == (0, {}, {})
