# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `rest` with two controllers, profile strict, the firewall, and a database host of its own.

It comes before test_controllers.py, which ends with one controller.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, with_cluster
from under_load import BOTH, DATABASE, FIRST, FIRST_SERVES, LOGIN, SECOND, away, serves, site, succeeded

KEY = "/etc/gpucluster-slurm/jwt_hs256.key"


@pytest.fixture(name="changed", scope="module")
def with_key(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab with the key, without TLS: nginx listens for programs of the login host alone."""
    directory = tmp_path_factory.mktemp("rest")
    changed = with_cluster(lab, directory, {**lab.cluster, "rest": LOGIN}, slurmrestd_tls=False)
    succeeded(site(changed), FIRST_SERVES)
    yield changed
    succeeded(site(lab), FIRST_SERVES)
    for host in (FIRST, SECOND, DATABASE, LOGIN):
        assert not lab.host(host).file(KEY).exists, host
    (Path(lab.inventory.parent) / "secrets" / str(lab.cluster["name"]) / KEY.rpartition("/")[2]).unlink()


GET = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"X-SLURM-USER-TOKEN": sys.stdin.read()})
print(urllib.request.urlopen(request, timeout=200).read().decode())
"""


def ask(lab: Lab, token: str, path: str) -> dict[str, Any]:
    """The answer to a request with a token."""
    said = lab.script(LOGIN, f"python3 -c {shlex.quote(GET)} http://127.0.0.1:6820{path}", token.encode())
    found: dict[str, Any] = json.loads(said)
    return found


def test_requests_and_tokens_go_on_after_a_takeover(lab: Lab, changed: Lab) -> None:
    owners = {lab.command(host, f"stat --format='%a %U' {KEY}") for host in (FIRST, SECOND, DATABASE, LOGIN)}
    assert owners == {"400 slurm"}
    assert site(changed).changed == {}
    make = "runuser -u alice -- timeout 60 scontrol token lifespan=900"
    token = lab.command(LOGIN, make).removeprefix("SLURM_JWT=")
    paths = "/slurm/v0.0.42/nodes/", "/slurmdb/v0.0.42/associations/"
    before = [ask(lab, token, path) for path in paths]
    assert {node["name"] for node in before[0]["nodes"]} == {"two-node1", "two-node2"}
    with away(lab, FIRST):
        serves(lab, SECOND, 300)
        assert [ask(lab, token, path)["errors"] for path in paths] == [[], []]
        # The second controller has the same key.
        assert lab.command(LOGIN, make).startswith("SLURM_JWT=")
    serves(lab, FIRST, 300)
    lab.wait_for(LOGIN, "timeout 60 scontrol ping", BOTH, 120)
    assert ask(lab, token, paths[0])["errors"] == []
