# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who changes which images of the cluster's registry: attempts of bob, an ordinary user, with a login and without one.

The image `site/pytorch:latest` is root's. Each attempt uses bob's own uid on the host of the registry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from debs import as_user
from images import HOST, KEPT, login
from lab import Lab

REGISTRY = f"{HOST}:5000"
IMAGE = f"docker://{REGISTRY}/site/pytorch:latest"
MANIFEST = "/v2/site/pytorch/manifests/latest"
UPLOADS = "/v2/site/pytorch/blobs/uploads/"
SEND = """
import json, os, socket, sys
attempts = json.load(sys.stdin)
def send(data):
    with socket.create_connection(("127.0.0.1", 5000), 20) as connection:
        connection.sendall(data.encode("latin-1"))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return [int(line.split()[1]) for line in answer.decode("latin-1").splitlines() if line.startswith("HTTP/")]
print(json.dumps([os.getuid(), {name: send(data) for name, data in attempts.items()}]))
"""
"""Sends requests, and prints the uid of its process and the statuses of the answers to each."""


@pytest.fixture(scope="module", autouse=True)
def image_of_the_site(lab: Lab) -> Iterator[str]:
    """The digest of an image that root has pushed, which must be the same in the end."""
    lab.script(HOST, "apt-get -qq install --yes --no-install-recommends skopeo busybox-static >&2", b"")
    push = f"tar --create --file a.tar /etc/hostname; skopeo copy --dest-tls-verify=false tarball:a.tar {IMAGE}"
    lab.command(HOST, f"{login(REGISTRY, '--tls-verify=false')}; {push} 2>&1")
    digest = f"skopeo inspect --tls-verify=false --format '{{{{.Digest}}}}' {IMAGE}"
    before = lab.command(HOST, digest)
    yield before
    assert lab.command(HOST, digest) == before
    lab.command(HOST, "rm ~/registry.json a.tar")


def request(method: str, path: str, password: str = "", more: str = "") -> str:
    """A request with a login of bob."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {REGISTRY}\r\nConnection: close\r\n{more}"
    return f"{head}{f'Authorization: Basic {password}' + chr(13) + chr(10) if password else ''}\r\n"


def sent(lab: Lab, user: str, requests: dict[str, str]) -> dict[str, list[int]]:
    """The statuses of the answers to requests of a user."""
    lab.script(HOST, f"cat >/tmp/requests.json; cat >/tmp/send.py <<'END'\n{SEND}\nEND", json.dumps(requests).encode())
    uid, found = json.loads(as_user(lab, "python3 /tmp/send.py </tmp/requests.json", user))
    assert uid == int(as_user(lab, "id -u", user)) != 0
    return dict(found)


def password(lab: Lab, name: str, user: str, options: str = f"-s {REGISTRY}") -> str:
    """A name and a credential of munge, as a header has them."""
    return str(as_user(lab, f"printf '%s:%s' {name} $(munge {options}) | base64 --wrap=0", user))


def test_no_attempt_of_an_ordinary_user_changes_an_image_of_the_site(lab: Lab) -> None:
    bob = password(lab, "bob", "bob")
    host = f"http://{REGISTRY}"
    body = "Content-Length: 2\r\n"
    methods = ("PUT", "POST", "PATCH", "DELETE", "OPTIONS", "PROPFIND")
    paths = {
        "//v2/site/pytorch/manifests/latest": "two slashes",
        "/v2//site/pytorch/manifests/latest": "two slashes",
        "/v2/bob/../site/pytorch/manifests/latest": "up",
        "/v2/bob/%2e%2e/site/pytorch/manifests/latest": "up",
        "/v2/bob%2f..%2fsite/pytorch/manifests/latest": "up",
        "/v2/bob/..%2fsite/pytorch/manifests/latest": "up",
        "/v2/%73ite/pytorch/manifests/latest": "a letter",
        "/v2/Site/pytorch/manifests/latest": "a capital",
        "/v2/site/pytorch/manifests/latest/": "a slash at the end",
        "/v2/bob/x/blobs/uploads/../../../../site/pytorch/manifests/latest": "up from an upload",
        "/v2/bob/x?/../../site/pytorch/manifests/latest": "a query",
        "/v2/_catalog": "the catalog",
        "/": "the root",
    }
    attempts: dict[str, tuple[str, list[int]]] = {
        **{f"{method} without a login": (request(method, MANIFEST), [401]) for method in methods},
        **{f"{method} with bob's login": (request(method, MANIFEST, bob), [403]) for method in methods},
        **{f"{path}: {why}": (request("DELETE", path, bob), [403]) for path, why in paths.items()},
        "NUL": (request("DELETE", "/v2/bob/x%00/../../site/pytorch/manifests/latest", bob), [400]),
        "the check": (request("DELETE", "/check", bob), [404]),
        "an upload": (request("POST", UPLOADS, bob), [403]),
        "a mounted layer": (request("POST", f"{UPLOADS}?mount=sha256:0f&from=bob/x", bob), [403]),
        "another host in the request": (request("PUT", f"{host}{MANIFEST}", bob, body) + "{}", [403]),
        "another method in a header": (request("GET", MANIFEST, bob, "X-HTTP-Method-Override: DELETE\r\n"), [200]),
        "another path in headers": (
            request("PUT", MANIFEST, bob, "X-Original-URI: /v2/bob/x/manifests/1\r\nX-Original-Method: GET\r\n"),
            [403],
        ),
        "two logins": (request("PUT", MANIFEST, bob, f"Authorization: Basic {bob}\r\n"), [400]),
        "a second request on the connection": (
            request("GET", "/", bob).replace("Connection: close\r\n", "") + request("DELETE", MANIFEST, bob),
            [200, 403],
        ),
        "a request in a body": (
            request("GET", "/", bob, f"Content-Length: {len(request('DELETE', MANIFEST))}\r\n")
            + request("DELETE", MANIFEST),
            [200],
        ),
        "a method in small letters": (request("delete", MANIFEST, bob), [400]),
        "TRACE": (request("TRACE", MANIFEST, bob), [405]),
        "CONNECT": (request("CONNECT", REGISTRY, bob), [400]),
        "the name of root": (request("PUT", MANIFEST, password(lab, "root", "bob")), [401]),
        "a password": (request("PUT", MANIFEST, "Ym9iOnNlY3JldA=="), [401]),
        "no name and password": (request("PUT", MANIFEST, "Og=="), [401]),
        "a credential for something else": (request("GET", "/v2/", password(lab, "bob", "bob", "-n")), [401]),
        "a credential for another registry": (
            request("GET", "/v2/", password(lab, "bob", "bob", "-s evil:5000")),
            [401],
        ),
        "a credential that munge has decoded elsewhere": (
            request("GET", "/v2/", as_user(lab, spent_credential(), "bob")),
            [401],
        ),
        "bob's own login": (request("GET", "/v2/", bob), [200]),
        "bob's own image": (request("POST", "/v2/bob/x/blobs/uploads/", bob), [202]),
        "a pull without a login": (request("GET", MANIFEST), [200]),
    }
    found = sent(lab, "bob", {name: data for name, (data, _wanted) in attempts.items()})
    assert found == {name: wanted for name, (_data, wanted) in attempts.items()}


def spent_credential() -> str:
    """A command that prints a login whose credential this host has decoded already."""
    return f"c=$(munge -s {REGISTRY}); echo $c | unmunge >/dev/null; printf 'bob:%s' $c | base64 --wrap=0"


def test_no_user_passes_by_nginx(lab: Lab) -> None:
    assert lab.command(HOST, "ss -Hltnp | grep docker-registry || echo none") == "none"
    for socket in ("/run/docker-registry/socket", "/run/slurm-registry-auth/socket"):
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{socket}')"
        assert "PermissionError" in as_user(lab, f'python3 -c "{connect}" 2>&1', "bob", rc=1)


def test_a_login_of_skopeo(lab: Lab) -> None:
    """Alice pushes and deletes her own image, also with what the node's job has; bob cannot, and reads it."""
    copy = "skopeo copy --src-tls-verify=false --dest-tls-verify=false"
    own = f"docker://{REGISTRY}/alice/pytorch:1"
    for user in ("alice", "bob"):
        as_user(lab, login(REGISTRY, "--tls-verify=false"), user)
    as_user(lab, f"{KEPT}; {copy} {IMAGE} {own}")
    said = as_user(lab, f"{KEPT}; {copy} {IMAGE} {own} 2>&1; skopeo delete --tls-verify=false {own} 2>&1", "bob", rc=1)
    assert said.count("you may not change alice/pytorch") == 2
    said = as_user(lab, f"{KEPT}; {copy} {own} {IMAGE} 2>&1", rc=1)
    assert "denied: you may not change site/pytorch: users change images below their own name" in said
    job = f"timeout 60 srun -w box01 bash -c 'c=$(munge -s {REGISTRY}); {{ printf %s $USER:$c | base64 --wrap=0; }}'"
    of_job = as_user(lab, job)
    assert sent(lab, "alice", {"job": request("POST", "/v2/alice/y/blobs/uploads/", of_job)}) == {"job": [202]}
    assert as_user(lab, f"skopeo list-tags --tls-verify=false {own.removesuffix(':1')} | grep -c '\"1\"'", "bob") == "1"
    as_user(lab, f"{KEPT}; skopeo delete --tls-verify=false {own}; rm ~/registry.json")


def test_a_suspended_user_and_a_new_munge_key_end_a_login(lab: Lab) -> None:
    # munge would decode it once more after a restart with the same key, if it were still valid.
    bob = password(lab, "bob", "bob", f"-s {REGISTRY} --ttl=2")
    ping = {"ping": request("GET", "/v2/", bob)}
    assert sent(lab, "bob", ping) == {"ping": [200]}
    lab.command(HOST, "usermod --expiredate 1 bob")
    try:
        assert sent(lab, "alice", ping) == {"ping": [403]}
    finally:
        lab.command(HOST, "usermod --expiredate '' bob")
    assert sent(lab, "bob", ping) == {"ping": [200]}
    lab.command(HOST, "systemctl restart munge; sleep 3")
    lab.wait_for(HOST, "systemctl is-active slurm-registry-auth", "active")
    lab.wait_for(HOST, "test -S /run/slurm-registry-auth/socket && echo there", "there")
    assert sent(lab, "bob", ping | {"new": request("GET", "/v2/", password(lab, "bob", "bob"))}) == {
        "ping": [401],
        "new": [200],
    }
    # Without the check nobody pushes, and everybody pulls.
    lab.command(HOST, "systemctl stop slurm-registry-auth")
    try:
        assert sent(lab, "bob", ping) == {"ping": [500]}
        as_user(lab, f"skopeo inspect --tls-verify=false {IMAGE}", "bob")
    finally:
        lab.command(HOST, "systemctl start slurm-registry-auth")
