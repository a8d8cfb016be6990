# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `rest` with the release of the scenario and its source of packages; afterwards the cluster is as before."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import ROOT, Lab, with_cluster

pytestmark = pytest.mark.rare

KEY = "jwt_hs256.key"
PATH = f"/etc/gpucluster-slurm/{KEY}"


@pytest.fixture(name="changed", scope="module")
def with_key(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab with the key, without TLS: nginx listens for programs of the controller alone."""
    cluster = {**lab.cluster, "rest": lab.controller}
    changed = with_cluster(lab, tmp_path_factory.mktemp("rest"), cluster, slurmrestd_tls=False)
    run(changed)
    yield changed
    run(lab)
    assert not lab.host(lab.controller).file(PATH).exists
    (Path(lab.inventory.parent) / "secrets" / str(lab.cluster["name"]) / KEY).unlink()


def run(lab: Lab) -> dict[str, list[str]]:
    """What a run of site.yml changes, which has to succeed."""
    done = lab.playbook("site", "--skip-tags=validate")
    assert (done.rc, done.failed) == (0, {}), done.output[-3000:]
    return dict(done.changed)


GET = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"X-SLURM-USER-TOKEN": sys.stdin.read()})
try:
    answer = urllib.request.urlopen(request, timeout=100)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""


def ask(lab: Lab, token: str, path: str) -> Any:
    """The answer to a request with a token; the status if it is an error."""
    script = f"python3 -c {shlex.quote(GET)} http://127.0.0.1:6820{path}"
    status, body = lab.script(lab.controller, script, token.encode()).decode().split(" ", 1)
    return json.loads(body) if status == "200" else int(status)


def versions(lab: Lab) -> list[str]:
    """The versions of the release in docs/admin/rest.md."""
    page = (ROOT / "docs/admin/rest.md").read_text()
    row = re.search(rf"^\| {re.escape(lab.release)} \| (.*) \|$", page, re.MULTILINE)
    assert row
    return row[1].split(", ")


def test_the_interface_of_this_release(lab: Lab, changed: Lab) -> None:
    host = lab.controller
    assert run(changed) == {}
    said = lab.command(host, "runuser -u alice -- timeout 60 scontrol token lifespan=900")
    token = said.strip().removeprefix("SLURM_JWT=")
    # Each version that the documentation names answers; the description of all has no other.
    for version in versions(lab):
        pings = ask(lab, token, f"/slurm/{version}/ping")["pings"]
        assert [ping["ping"] for ping in pings] == ["UP"], version
        assert ask(lab, token, f"/slurmdb/{version}/associations")["errors"] == [], version
    paths = ask(lab, token, "/openapi/v3")["paths"]
    served = {found[1] for path in paths if (found := re.match(r"/slurm/(v[0-9.]+)/", path))}
    assert sorted(served) == versions(lab)
    assert ask(lab, "no-token", f"/slurm/{versions(lab)[0]}/ping") == 401
    # Only the key's own user and services have it, and slurmrestd has a user of its own.
    assert lab.command(host, f"stat --format='%a %U' {PATH}") == "400 slurm"
    assert int(lab.command(host, "ps -o uid= -p $(systemctl show -P MainPID slurmrestd)")) >= 61184
    assert "slurmrestd" not in lab.command(host, "ss --listening --tcp --processes --no-header")
