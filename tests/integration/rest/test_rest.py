# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `rest` on a real cluster: tokens of users through nginx, and those that are refused.

The tests depend on each other and run in this order, on a cluster without the key. The last one puts everything back.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import ROOT, Lab, Run, with_cluster

HERE = Path(__file__).parent
CONTROLLER, HOST, ADDRESS = "rest-ctl", "rest-login", "10.213.7.237"
KEY = "/etc/gpucluster-slurm/jwt_hs256.key"
MAX_LIFE = 3600
SPAN = "--skip-tags=validate"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the cluster file, with a certificate for the address of the host."""
    found = tmp_path_factory.mktemp("rest")
    names = f"subjectAltName=IP:{ADDRESS}"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3", "-subj", "/CN=rest"]
    files = ["-addext", names, "-out", f"{found}/tls.crt", "-keyout", f"{found}/tls.key"]
    subprocess.run([*command, *files], check=True, capture_output=True)
    (found / "tls.key").chmod(0o600)
    return found


@pytest.fixture(name="site", scope="module")
def with_key(lab: Lab, directory: Path) -> Iterator[Callable[..., Lab]]:
    """The lab with a value of the key, and other keys of the cluster file."""

    def changed(rest: Any, **keys: Any) -> Lab:
        cluster = {**yaml.safe_load(lab.inventory.read_text()), **keys}
        if rest is not None:
            cluster["rest"] = rest
        tls = {"slurmrestd_certificate": str(directory / "tls.crt"), "slurmrestd_key": str(directory / "tls.key")}
        return with_cluster(lab, directory, cluster, **tls)

    yield changed
    secret_key(lab).unlink(missing_ok=True)


REST = {"host": HOST, "max_token_lifespan": MAX_LIFE}


def secret_key(lab: Lab) -> Path:
    """The key of the tokens on the control host."""
    return Path(lab.inventory.parent) / "secrets" / str(lab.cluster["name"]) / "jwt_hs256.key"


def run(lab: Lab, *arguments: str) -> Run:
    """Run site.yml without the jobs at its end; it must succeed."""
    done = lab.playbook("site", SPAN, *arguments)
    assert done.rc == 0, done.failed or done.output[-3000:]
    return done


def token_of(lab: Lab, user: str, life: int = 600) -> str:
    """A token as the documented command gives it."""
    said = lab.command(HOST, f"runuser -u {user} -- timeout 60 scontrol token lifespan={life}")
    return str(said).strip().removeprefix("SLURM_JWT=")


def part(data: bytes) -> str:
    """A part of a token."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def made(key: bytes, alg: str = "HS256", **claims: Any) -> str:
    """A token that is made with a key."""
    head = json.dumps({"alg": alg, "typ": "JWT"}).encode()
    signed = f"{part(head)}.{part(json.dumps({'exp': int(time.time()) + 600, **claims}).encode())}"
    return f"{signed}.{part(hmac.new(key, signed.encode(), hashlib.sha256).digest())}"


Answer = tuple[int, Any]


@pytest.fixture
def ask(directory: Path) -> Callable[..., Answer]:
    """Asks as a program does, over HTTPS with the certificate checked: the status, and the answer's JSON or text."""

    def asked(path: str, *headers: str, method: str = "GET", body: Any = None) -> Answer:
        command = ["curl", "--silent", "--max-time", "60", "--cacert", str(directory / "tls.crt"), "--request", method]
        data = ["--header", "Content-Type: application/json", "--data", json.dumps(body)] if body is not None else []
        # Tokens are not on the command line, where others would see them.
        given = "".join(f'header = "{header}"\n' for header in headers)
        url = f"https://{ADDRESS}:6820{path}"
        command += [*data, "--write-out", "\n%{http_code}", "--config", "-", url]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
        text, _newline, status = done.stdout.rpartition("\n")
        return int(status), json.loads(text) if text.startswith("{") else text.strip()

    return asked


def refusal(status: int, reason: str) -> Answer:
    """The answer of the proxy to a request that it refuses."""
    return status, {"errors": [{"error": reason, "source": "slurm-rest-auth"}]}


def bearer(token: str) -> str:
    """The header with a token."""
    return f"Authorization: Bearer {token}"


def documented(release: str) -> list[str]:
    """The versions of a release in docs/admin/rest.md."""
    row = re.search(rf"^\| {re.escape(release)} \| (.*) \|$", (ROOT / "docs/admin/rest.md").read_text(), re.MULTILINE)
    assert row, f"docs/admin/rest.md has no versions of {release}"
    return re.findall(r"v[0-9.]+[0-9]", row[1])


def newest(lab: Lab) -> str:
    """The newest version that slurmrestd of the lab's release has."""
    return documented(lab.release)[-1]


def failed_services(lab: Lab) -> str:
    """Services that have failed."""
    return str(lab.command(HOST, "systemctl --failed --no-legend --plain"))


# -- the run -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "slurmrestd_certificate: found /missing"),
        ({"slurm_conf": {"AuthAltTypes": "auth/jwt"}}, "slurm_conf.AuthAltTypes"),
    ],
)
def test_mistakes_are_told_before_anything_is_changed(site: Callable[..., Lab], keys: Any, message: str) -> None:
    # A certificate that is missing stops the run of each value that is right.
    done = site(REST, **keys).playbook("site", SPAN, "-e", "slurmrestd_certificate=/missing")
    assert done.rc != 0
    assert message in done.output
    assert done.changed == {}


def test_check_mode_predicts_an_installation(site: Callable[..., Lab], lab: Lab) -> None:
    done = run(site(REST), "--check")
    assert HOST in done.changed
    lab.command(HOST, f"ls {KEY}", 2)
    assert not secret_key(lab).exists()


def test_a_killed_run_is_completed_and_the_next_one_changes_nothing(site: Callable[..., Lab], lab: Lab) -> None:
    live = site(REST).start("site", SPAN)
    live.wait_for_task("slurmrestd : Run the services")
    lab.wait_for(HOST, "ls /etc/systemd/system", "slurmrestd.service")
    live.kill()
    run(site(REST))
    assert run(site(REST)).changed == {}
    assert run(site(REST), "--check", "--diff").changed == {}
    assert secret_key(lab).stat().st_mode & 0o777 == 0o600
    assert secret_key(lab).stat().st_size == 64
    assert failed_services(lab) == ""


def test_who_runs_as_whom_and_who_listens_where(lab: Lab) -> None:
    ids = set()
    for name in ("slurmrestd", "slurm-rest-auth"):
        shown = lab.command(HOST, f"ps -o uid=,group= -p $(systemctl show -P MainPID {name})").split()
        assert 61184 <= int(shown[0]) <= 65519, "the range of systemd's dynamic users"
        assert shown[1] == "www-data"
        ids.add(shown[0])
    assert len(ids) == 2
    listening = lab.command(HOST, "ss --listening --tcp --numeric --processes --no-header")
    assert "slurmrestd" not in listening
    assert [line.split()[3] for line in listening.splitlines() if "nginx" in line] == ["0.0.0.0:6820"]
    sockets = "/run/slurmrestd/socket /run/slurm-rest-auth/socket"
    assert lab.command(HOST, f"stat --format '%a %G' {sockets}").split("\n")[:2] == ["660 www-data"] * 2
    assert lab.command(HOST, f"stat --format '%a %U' {KEY}").split() == ["400", "slurm"]
    for path in sockets.split():
        program = f"import socket; socket.socket(socket.AF_UNIX).connect('{path}')"
        assert "PermissionError" in lab.host(HOST).run(f'runuser -u alice -- python3 -c "{program}"').stderr
    # The controller checks tokens as well.
    assert lab.command(CONTROLLER, f"stat --format '%a %U' {KEY}").split() == ["400", "slurm"]
    assert not lab.host(CONTROLLER).package("slurmrestd").is_installed


# -- users -------------------------------------------------------------------------------------------------------------


def test_the_served_versions_are_those_of_the_documentation(lab: Lab, ask: Callable[..., Answer]) -> None:
    status, served = ask("/openapi/v3", bearer(token_of(lab, "alice")))
    assert status == 200
    found = {match[1] for path in served["paths"] if (match := re.match(r"/slurm/(v[0-9.]+)/", path))}
    assert sorted(found) == documented(lab.release)


def test_a_user_submits_reads_and_cancels_a_job(lab: Lab, ask: Callable[..., Answer]) -> None:
    mine, version = token_of(lab, "alice"), newest(lab)
    script = "#!/bin/sh\nid -un\nsleep 600\n"
    job = {"name": "by-rest", "current_working_directory": "/tmp", "environment": ["PATH=/usr/bin:/bin"]}
    body = {"script": script, "job": {**job, "standard_output": "/dev/null"}}
    status, said = ask(f"/slurm/{version}/job/submit", bearer(mine), method="POST", body=body)
    assert status == 200, said
    number = said["job_id"]
    for header in (bearer(mine), f"X-SLURM-USER-TOKEN: {mine}"):
        status, said = ask(f"/slurm/{version}/job/{number}", header)
        assert (status, said["jobs"][0]["user_name"], said["jobs"][0]["name"]) == (200, "alice", "by-rest")
    # PrivateData: bob sees neither the job nor may he end it.
    other = token_of(lab, "bob")
    assert ask(f"/slurm/{version}/jobs/", bearer(other))[1]["jobs"] == []
    ask(f"/slurm/{version}/job/{number}", bearer(other), method="DELETE")
    assert lab.command(HOST, f"squeue --noheader --jobs={number} --format=%T").strip() in ("PENDING", "RUNNING")
    assert ask(f"/slurm/{version}/job/{number}", bearer(mine), method="DELETE")[0] == 200
    lab.wait_for(HOST, f"sacct -nPXj {number} -o User,State", "alice|CANCELLED")
    status, said = ask(f"/slurmdb/{version}/job/{number}", bearer(mine))
    assert (status, said["jobs"][0]["state"]["current"]) == (200, ["CANCELLED"]), said


def test_nodes_are_for_everybody(lab: Lab, ask: Callable[..., Answer]) -> None:
    status, said = ask(f"/slurm/{newest(lab)}/nodes/", bearer(token_of(lab, "bob")))
    assert (status, [node["name"] for node in said["nodes"]]) == (200, [CONTROLLER])


def test_slurm_limits_tokens(lab: Lab) -> None:
    assert token_of(lab, "alice", MAX_LIFE)
    for options in (f"lifespan={MAX_LIFE + 1}", "username=bob", "username=root", "lifespan=infinite"):
        done = lab.host(HOST).run(f"runuser -u alice -- timeout 60 scontrol token {options}")
        assert done.rc != 0, options
        assert "SLURM_JWT" not in done.stdout


# -- a generated client ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generator() -> Path:
    """The programs of an environment of its own: the generator needs older packages than the tests."""
    home = Path(ROOT / ".cache/rest-client")
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--allow-existing", f"--python={sys.executable}", str(home)], check=True)
    into = [f"--python={home}/bin/python", "--system-certs", str(HERE / "client.lock")]
    subprocess.run([uv, "pip", "sync", "--quiet", *into], check=True)
    return home / "bin"


def test_a_generated_client(
    lab: Lab, ask: Callable[..., Answer], directory: Path, generator: Path, tmp_path: Path
) -> None:
    mine, version = token_of(lab, "alice"), newest(lab)
    served = json.dumps(ask("/openapi/v3", bearer(mine))[1])
    prepare = [sys.executable, str(ROOT / "roles/slurmrestd/files/one_version.py"), version]
    document = subprocess.run(prepare, input=served, capture_output=True, text=True, check=True).stdout
    (tmp_path / "slurm.json").write_text(document)
    paths = {**os.environ, "PATH": f"{generator}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    generate = [str(generator / "openapi-python-client"), "generate", "--meta=none", f"--path={tmp_path}/slurm.json"]
    generate.append(f"--output-path={tmp_path}/slurm_client")
    made_by = subprocess.run(generate, env=paths, capture_output=True, text=True, check=True)
    assert "Warning" not in made_by.stdout, made_by.stdout
    head, claims, signature = mine.split(".")
    tokens = {
        "alice": mine,
        "bob": token_of(lab, "bob"),
        "expired": made(secret_key(lab).read_bytes(), sun="alice", exp=int(time.time()) - 1),
        "foreign": made(b"x" * 64, sun="alice"),
        "tampered": f"{head}.{part(json.dumps({'exp': 2**40, 'sun': 'bob'}).encode())}.{signature}",
    }
    program = [str(generator / "python"), str(HERE / "client.py")]
    program += [f"https://{ADDRESS}:6820", str(directory / "tls.crt"), version]
    done = subprocess.run(program, input=json.dumps(tokens), env=paths, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert claims not in done.stdout

    number = said["submit"]["job_id"]
    (job,) = said["read"]["jobs"]
    assert (job["job_id"], job["user_name"], job["name"]) == (number, "alice", "generated")
    assert number not in [job["job_id"] for job in said["jobs of bob"]["jobs"]]
    assert "Access/permission denied" in json.dumps(said["cancel by bob"]), said["cancel by bob"]
    assert said["read again"]["jobs"][0]["job_state"][0] in ("PENDING", "RUNNING")
    assert (said["cancel"]["http"], said["cancel"].get("errors")) == (200, [])
    assert [node["name"] for node in said["nodes"]["nodes"]] == [CONTROLLER]
    assert {found["cluster"] for found in said["associations"]["associations"]} == {lab.cluster["name"]}
    (ended,) = said["accounting"]["jobs"]
    assert (ended["job_id"], ended["user"], ended["state"]["current"]) == (number, "alice", ["CANCELLED"])
    foreign = "the token was not made by this cluster, or its key was replaced"
    for name, why in {"expired": "the token has expired", "foreign": foreign, "tampered": foreign}.items():
        assert said[name]["http"] == 401
        assert said[name]["errors"] == [{"error": why, "source": "slurm-rest-auth"}]


# -- who is refused ----------------------------------------------------------------------------------------------------


def test_tokens_that_are_refused(lab: Lab, ask: Callable[..., Answer]) -> None:
    mine, path, key = token_of(lab, "alice"), f"/slurm/{newest(lab)}/ping/", secret_key(lab).read_bytes()
    assert ask(path, bearer(mine))[0] == 200
    head, claims, signature = mine.split(".")
    foreign = "the token was not made by this cluster, or its key was replaced"
    several = "the request has several tokens"
    another = "the header X-SLURM-USER-NAME names another user than the token"
    anybody = "tokens of root and SlurmUser are refused, since they may act as anybody"
    attempts: list[tuple[tuple[str, ...], tuple[int, str]]] = [
        ((), (401, "the request has no token, in the header X-SLURM-USER-TOKEN or as Authorization: Bearer TOKEN")),
        ((bearer(token_of(lab, "root")),), (403, anybody)),
        ((bearer(token_of(lab, "root")), "X-SLURM-USER-NAME: alice"), (401, another)),
        ((bearer(token_of(lab, "slurm")),), (403, anybody)),
        ((bearer(made(key, sun="0")),), (403, "the user of the token has no account here")),
        ((bearer(made(key, sun="alice", exp=int(time.time()) - 1)),), (401, "the token has expired")),
        ((bearer(made(b"x" * 64, sun="alice")),), (401, foreign)),
        ((bearer(f"{head}.{part(b'{{}}')}.{signature}"),), (401, foreign)),
        ((bearer(f"{head}.{claims}.{part(b'x' * 32)}"),), (401, foreign)),
        ((bearer(made(key, alg="none", sun="alice")),), (401, "the token is not signed with HS256")),
        ((bearer(mine), "X-SLURM-USER-NAME: bob"), (401, another)),
        ((bearer(mine), f"X-SLURM-USER-TOKEN: {mine}"), (401, several)),
        ((bearer("x" * 5000),), (401, "the token has more than 4096 characters")),
    ]
    assert [ask(path, *headers) for headers, _why in attempts] == [refusal(*why) for _headers, why in attempts]
    assert ask(path, bearer("x" * 20000))[0] == 400, "nginx' own limit"
    # No answer of the check is the client's, and its path is not to be had.
    assert ask("/check", bearer(mine))[0] == 404


@pytest.fixture
def send(directory: Path) -> Callable[..., str]:
    """Sends bytes that no client would send, over TLS, and returns all that nginx answers until it closes."""

    def sent(data: bytes, version: ssl.TLSVersion | None = None) -> str:
        context = ssl.create_default_context(cafile=str(directory / "tls.crt"))
        if version:
            # The client takes old versions, so that it is nginx that refuses them.
            context.set_ciphers("DEFAULT@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version
        received = b""
        with (
            socket.create_connection((ADDRESS, 6820), 60) as plain,
            context.wrap_socket(plain, server_hostname=ADDRESS) as connection,
        ):
            connection.sendall(data)
            while found := connection.recv(65536):
                received += found
        return received.decode(errors="replace")

    return sent


def statuses(received: str) -> list[int]:
    """The statuses of all answers on a connection."""
    return [int(status) for status in re.findall(r"HTTP/1\.[01] (\d{3}) ", received)]


@pytest.fixture
def job_of_bob(lab: Lab) -> Iterator[None]:
    """A job of-bob, which nobody else may see."""
    batch = "timeout 60 sbatch --parsable --chdir=/tmp --output=/dev/null --job-name=of-bob --wrap='sleep 600'"
    number = lab.command(HOST, f"runuser -u bob -- {batch}")
    yield
    lab.command(HOST, f"timeout 60 scancel {number}")


@pytest.mark.usefixtures("job_of_bob")
def test_requests_that_two_parsers_could_read_in_two_ways(lab: Lab, send: Callable[..., str]) -> None:
    mine, root, path = token_of(lab, "alice"), token_of(lab, "root"), f"/slurm/{newest(lab)}/jobs/"
    head = f"GET {path} HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close\r\nAuthorization: Bearer {mine}\r\n"
    post = head.replace("GET", "POST")
    hidden = f"GET {path} HTTP/1.1\r\nHost: a\r\nX-SLURM-USER-TOKEN: {root}\r\nX-SLURM-USER-NAME: bob\r\n\r\n"
    # What slurmrestd says of a GET with a body.
    useless = 400 if lab.release == "24.11" else 500
    chunked = f"{len(hidden):x}\r\n{hidden}\r\n0\r\n\r\n"
    attempts: dict[str, tuple[str, list[int]]] = {
        "two tokens in equal headers": (f"{head}Authorization: Bearer {mine}\r\n\r\n", [400]),
        "two tokens in headers of Slurm": (
            f"{head}X-SLURM-USER-TOKEN: {mine}\r\nX-SLURM-USER-TOKEN: {root}\r\n\r\n",
            [401],
        ),
        "a name in small letters": (f"{head}x-slurm-user-name: bob\r\n\r\n", [401]),
        "two names": (f"{head}X-SLURM-USER-NAME: alice\r\nX-SLURM-USER-NAME: bob\r\n\r\n", [401]),
        "headers with underscores": (f"{head}X_SLURM_USER_TOKEN: {root}\r\nX_SLURM_USER_NAME: bob\r\n\r\n", [200]),
        "a blank before the colon": (f"{head}X-SLURM-USER-NAME : bob\r\n\r\n", [400]),
        "a folded header": (f"{head}X-SLURM-USER-NAME: alice\r\n bob\r\n\r\n", [400]),
        "a line that ends with LF": (f"{head}X-A: b\nX-SLURM-USER-NAME: bob\r\n\r\n", [401]),
        "CR in a header": (f"{head}X-A: b\rX-SLURM-USER-NAME: bob\r\n\r\n", [400]),
        "NUL in a header": (f"{head}X-SLURM-USER-NAME: alice\0bob\r\n\r\n", [400]),
        "a length and chunks": (f"{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}", [400]),
        "two lengths": (f"{post}Content-Length: 0\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}", [400]),
        "chunks in two words": (f"{post}Transfer-Encoding: chunked, identity\r\n\r\n{chunked}", [501]),
        "a request in chunks": (f"{head}Transfer-Encoding: chunked\r\n\r\n{chunked}", [useless]),
        "a request in a body": (f"{head}Content-Length: {len(hidden)}\r\n\r\n{hidden}", [useless]),
        "a second request without a token": (
            head.replace("Connection: close\r\n", "")
            + f"\r\nGET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            [200, 401],
        ),
        "HTTP/0.9, whose answers have no status": (f"GET {path}\r\n", []),
        "another host": (f"{head}\r\n".replace(f"GET {path}", f"GET http://localhost{path}"), [200]),
        "TRACE": (f"{head}\r\n".replace("GET", "TRACE"), [405]),
        "CONNECT": (f"{head}\r\n".replace(f"GET {path}", "CONNECT localhost:6817"), [400]),
        "4,000 headers": (f"{head}{''.join(f'X-{n}: {n}' + chr(13) + chr(10) for n in range(4000))}\r\n", [400]),
    }
    found = {name: send(data.encode()) for name, (data, _wanted) in attempts.items()}
    assert {name: statuses(said) for name, said in found.items()} == {
        name: wanted for name, (_d, wanted) in attempts.items()
    }
    assert not [name for name, said in found.items() if "of-bob" in said or "eyJ" in said]


def test_paths_without_a_token(lab: Lab, send: Callable[..., str]) -> None:
    mine, version = token_of(lab, "alice"), newest(lab)
    paths = {
        "/": 401,
        "/openapi/v3": 401,
        f"/slurm/{version}/jobs/": 401,
        f"//slurm/{version}/jobs/": 401,
        f"/slurm/../slurm/{version}/jobs/": 401,
        f"/check/../slurm/{version}/jobs/": 401,
        f"/slurm/%2e%2e/slurm/{version}/jobs/": 401,
        f"/slurm%2f{version}/jobs/": 401,
        "/check": 404,
        "//check": 404,
        "/%63heck": 404,
        "/slurm/%2e%2e/check": 404,
        "/slurm/../../etc/passwd": 400,
        "/slurm/%00": 400,
    }
    form = "GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{}\r\n"
    assert {path: statuses(send(form.format(path, "").encode()))[0] for path in paths} == paths
    # With a token, slurmrestd gets no path that leads elsewhere.
    token = f"Authorization: Bearer {mine}\r\n"
    leading = {
        "/slurm/../check": 404,
        "/slurm/..%2f..%2fetc/passwd": 400,
        "//etc/passwd": 404,
        "/slurm/%252e%252e/": 404,
    }
    assert {path: statuses(send(form.format(path, token).encode()))[0] for path in leading} == leading


def test_a_job_of_another_user_cannot_be_submitted(lab: Lab, ask: Callable[..., Answer]) -> None:
    mine, path = token_of(lab, "alice"), f"/slurm/{newest(lab)}/job/submit"
    job = {"current_working_directory": "/tmp", "environment": ["PATH=/usr/bin:/bin"], "standard_output": "/dev/null"}
    before = lab.command(HOST, "timeout 60 squeue --noheader --states=all --format=%i")
    for wrong in ({"user_id": "bob"}, {"user_id": "2002"}, {"user_id": "root"}, {"user_id": "0"}, {"group_id": 0}):
        body = {"job": {**job, **wrong, "script": "#!/bin/sh\nid\n"}}
        _status, said = ask(path, bearer(mine), method="POST", body=body)
        assert said["errors"], wrong
        assert not said.get("job_id"), wrong
    assert lab.command(HOST, "timeout 60 squeue --noheader --states=all --format=%i") == before


def test_slurmrestd_comes_back_after_a_request_that_ends_it(lab: Lab, ask: Callable[..., Answer]) -> None:
    mine, version = token_of(lab, "alice"), newest(lab)
    # The name of a group ends slurmrestd 24.11 (GROUP_ID in `src/plugins/data_parser`).
    body = {"job": {"group_id": "root", "current_working_directory": "/tmp", "script": "#!/bin/sh\nid\n"}}
    for _attempt in range(6):
        status, said = ask(f"/slurm/{version}/job/submit", bearer(mine), method="POST", body=body)
        assert status >= 400, said
        lab.wait_for(HOST, "systemctl is-active slurmrestd && ls /run/slurmrestd/socket", "socket", 30)
    deadline = time.monotonic() + 30
    while ask(f"/slurm/{version}/ping/", bearer(mine))[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_large_and_slow_requests(lab: Lab, ask: Callable[..., Answer], send: Callable[..., str]) -> None:
    mine, version = token_of(lab, "alice"), newest(lab)
    restarts = "systemctl show --property=NRestarts --value slurmrestd slurm-rest-auth"
    before = lab.command(HOST, restarts)
    head = f"POST /slurm/{version}/job/submit HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nAuthorization: Bearer {mine}\r\n"
    length = 9 * 2**20
    # A body that slurmrestd may take: 9 MiB of brackets.
    deep = send(f"{head}Content-Length: {length}\r\n\r\n{'[' * length}".encode())
    assert statuses(deep)[0] >= 400, deep[:200]
    assert statuses(send(f"{head}Content-Length: {11 * 2**20}\r\n\r\n".encode())) == [413]
    without = head.replace("Authorization", "X-A")
    assert statuses(send(f"{without}Content-Length: {length}\r\n\r\n".encode())) == [401], "the body is not awaited"
    # 60 clients of an address, which may have 100, that send a head or a body slowly. Others are answered meanwhile,
    # and nginx ends these.
    begin, slow = time.monotonic(), []
    context = ssl._create_unverified_context()
    for number in range(60):
        connection = socket.create_connection((ADDRESS, 6820), 60)
        if number % 3:
            connection = context.wrap_socket(connection)
            connection.sendall(f"{head}Content-Length: 10\r\n\r\n".encode() if number % 3 == 1 else head.encode())
        slow.append(connection)
    assert ask(f"/slurm/{version}/ping/", bearer(mine))[0] == 200
    for connection in slow:
        while connection.recv(65536):
            pass
        connection.close()
    assert time.monotonic() - begin < 45
    assert ask(f"/slurm/{version}/ping/", bearer(mine))[0] == 200
    assert lab.command(HOST, restarts) == before


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_tls(lab: Lab, send: Callable[..., str]) -> None:
    request = f"GET /slurm/{newest(lab)}/ping/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        assert statuses(send(request, version)) == [401]
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        with pytest.raises(ssl.SSLError, match="alert protocol version"):
            send(request, version)
    with socket.create_connection((ADDRESS, 6820), 60) as plain:
        plain.sendall(request)
        assert statuses(plain.recv(65536).decode()) == [400], "HTTP without TLS"


def test_the_token_of_an_account_that_was_removed(lab: Lab, ask: Callable[..., Answer]) -> None:
    left, path = made(secret_key(lab).read_bytes(), sun="carol"), f"/slurm/{newest(lab)}/ping/"
    none = refusal(403, "the user of the token has no account here")
    assert ask(path, bearer(left)) == none
    lab.command(HOST, "useradd --no-create-home carol")
    assert ask(path, bearer(left)) != none
    lab.command(HOST, "userdel carol")
    assert ask(path, bearer(left)) == none


def test_nothing_secret_is_in_logs(lab: Lab) -> None:
    logs = "journalctl --unit slurmrestd --unit slurm-rest-auth --unit slurmctld --no-pager; cat /var/log/nginx/*.log"
    found = lab.command(HOST, f"sh -c '{logs}'")
    assert "refused: tokens of root and SlurmUser are refused" in found
    assert "eyJ" not in found, "each token begins so"


def test_a_suspended_user_is_refused_and_what_a_live_token_still_does(
    site: Callable[..., Lab], lab: Lab, ask: Callable[..., Answer]
) -> None:
    mine, path = token_of(lab, "alice"), f"/slurm/{newest(lab)}/ping/"
    bob = {"name": "bob", "uid": 2002}

    def people(**keys: Any) -> None:
        users = [{"name": "alice", "uid": 2001, **keys}, bob]
        done = site(REST, users=users).playbook("site", "--tags=people")
        assert done.rc == 0, done.failed or done.output[-3000:]

    people(state="suspended")
    assert ask(path, bearer(mine)) == refusal(403, "the account of the token's user is suspended or has expired")
    # Slurm itself knows nothing of it.
    assert "JOBID" in lab.command(HOST, f"env SLURM_JWT={mine} timeout 60 squeue")
    people()
    assert ask(path, bearer(mine))[0] == 200


def test_a_new_key_ends_all_tokens(site: Callable[..., Lab], lab: Lab, ask: Callable[..., Answer]) -> None:
    old, path = token_of(lab, "alice"), f"/slurm/{newest(lab)}/ping/"
    secret_key(lab).write_bytes(b"n" * 64)
    done = run(site(REST))
    assert {*done.changed} == {CONTROLLER, HOST}
    assert ask(path, bearer(old)) == refusal(401, "the token was not made by this cluster, or its key was replaced")
    assert lab.host(HOST).run(f"env SLURM_JWT={old} timeout 60 squeue").rc != 0
    assert ask(path, bearer(token_of(lab, "alice")))[0] == 200
    assert run(site(REST)).changed == {}


def test_a_program_that_is_away_lets_nobody_in(lab: Lab, ask: Callable[..., Answer]) -> None:
    mine, path = token_of(lab, "alice"), f"/slurm/{newest(lab)}/ping/"
    lab.command(HOST, "systemctl stop slurm-rest-auth")
    assert ask(path, bearer(mine))[0] == 500
    lab.command(HOST, "systemctl start slurm-rest-auth")
    starts = "systemctl show --property=ExecMainStartTimestampMonotonic --value slurmrestd slurm-rest-auth"
    before = lab.command(HOST, starts).split()
    lab.command(HOST, "systemctl kill --signal=KILL slurmrestd slurm-rest-auth")
    # They need a moment between their start and their first answer.
    deadline = time.monotonic() + 60
    while {*before} & {*lab.command(HOST, starts).split()} or ask(path, bearer(mine))[0] != 200:
        assert time.monotonic() < deadline
        time.sleep(0.5)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_without_the_key_nothing_stays(site: Callable[..., Lab], lab: Lab) -> None:
    run(site(None))
    units = [f"/etc/systemd/system/{name}.service" for name in ("slurmrestd", "slurm-rest-auth")]
    own = "/usr/local/lib/gpucluster-slurm"
    programs = [f"{own}/slurm-rest-auth", f"{own}/library/slurm-rest-auth"]
    directories = ["/etc/gpucluster-slurm/rest", "/run/slurmrestd", *programs]
    for path in (KEY, "/etc/nginx/conf.d/gpucluster-rest.conf", *units, *directories):
        assert not lab.host(HOST).file(path).exists, path
    assert not lab.host(CONTROLLER).file(KEY).exists
    for package in ("slurmrestd", "nginx", "slurm-wlm-jwt-plugin"):
        assert not lab.host(HOST).package(package).is_installed, package
    assert not lab.host(CONTROLLER).package("slurm-wlm-jwt-plugin").is_installed
    assert "AuthAlt" not in lab.command(CONTROLLER, "cat /etc/slurm/slurm.conf /etc/slurm/slurmdbd.conf")
    assert lab.host(HOST).run("runuser -u alice -- timeout 60 scontrol token").rc != 0
    assert run(site(None)).changed == {}
    assert failed_services(lab) == ""
