# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A new password of the registry behind that of the cluster: a real docker-registry on the node, which asks for it.

The tests depend on each other and run in this order. The registry of the cluster stays on the controller.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab, with_cluster

CONTROLLER, NODE = "rec-ctl", "rec-node1"
UPSTREAM = "http://10.213.7.132:5002"
ACCOUNT = "/etc/docker/registry/upstream.env"
SETTINGS = """
version: 0.1
storage: {inmemory: {}}
http: {addr: "0.0.0.0:5002"}
auth: {htpasswd: {realm: upstream, path: /root/upstream.htpasswd}}
"""


def accept(lab: Lab, password: str) -> None:
    """Let the other registry accept this password alone."""
    lab.command(NODE, f"htpasswd -Bbc /root/upstream.htpasswd cache {password}")
    lab.command(NODE, "systemctl stop upstream; systemctl reset-failed upstream; true")
    lab.command(NODE, "systemd-run --unit=upstream docker-registry serve /root/upstream.yml")
    lab.wait_for(NODE, f"curl -so /dev/null -w %{{http_code}} -u cache:{password} {UPSTREAM}/v2/", "200", 60)


def site_with(lab: Lab, directory: Path, password: str) -> Lab:
    """The lab with a registry, and this password of the one behind it."""
    variables = {
        "registry_tls": False,
        "registry_upstream": UPSTREAM,
        "registry_upstream_username": "cache",
        "registry_upstream_password": password,
    }
    return with_cluster(lab, directory, {**lab.cluster, "registry": CONTROLLER}, **variables)


def pull(lab: Lab) -> str:
    """What the registry of the cluster says of an image that the other one does not have: 404 if it may look."""
    url = "http://127.0.0.1:5000/v2/none/manifests/latest"
    return str(lab.command(CONTROLLER, f"curl -so /dev/null -w %{{http_code}} {url}"))


def refusals(lab: Lab) -> int:
    """How often the other registry has refused a password. A request without one is another error."""
    said = lab.command(NODE, "journalctl -u upstream --no-pager | grep -c 'authentication failure' || true")
    return int(said)


@pytest.fixture(name="directory", scope="module")
def directory_of_cluster(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for cluster files. The registry of the cluster runs with the password `first`."""
    lab.command(NODE, "DEBIAN_FRONTEND=noninteractive apt-get install -yqq docker-registry apache2-utils curl")
    lab.command(NODE, "systemctl disable --now docker-registry")
    lab.command(CONTROLLER, "DEBIAN_FRONTEND=noninteractive apt-get install -yqq curl")
    lab.script(NODE, "cat >/root/upstream.yml", SETTINGS.encode())
    accept(lab, "first")
    found = tmp_path_factory.mktemp("registry")
    run = site_with(lab, found, "first").playbook("site", "--skip-tags=validate")
    assert run.rc == 0, run.failed or run.output[-3000:]
    assert pull(lab) == "404"
    return found


def test_a_password_that_the_registry_has_is_refused(lab: Lab, directory: Path) -> None:
    run = site_with(lab, directory, "first").playbook("rotate_keys", "-e", "rotate=registry")
    assert run.rc != 0
    assert "has this registry_upstream_password already: change the variable first" in str(run.failed)
    assert run.changed == {}


def test_a_password_that_is_not_accepted_changes_nothing(lab: Lab, directory: Path) -> None:
    before = lab.command(CONTROLLER, f"sha256sum {ACCOUNT}; systemctl show -P MainPID docker-registry")
    run = site_with(lab, directory, "wr0ng").playbook("rotate_keys", "-vvv", "--diff", "-e", "rotate=registry")
    assert run.rc != 0
    assert f"{UPSTREAM}/v2/ does not accept the user and the password (401)" in str(run.failed)
    assert "wr0ng" not in run.output
    assert lab.command(CONTROLLER, f"sha256sum {ACCOUNT}; systemctl show -P MainPID docker-registry") == before
    assert pull(lab) == "404"


def test_a_new_password(lab: Lab, directory: Path) -> None:
    accept(lab, "second")
    refused = refusals(lab)
    pull(lab)
    assert refusals(lab) > refused, "the registry of the cluster still has the first password"
    site = site_with(lab, directory, "second")
    check = site.playbook("rotate_keys", "--check", "-e", "rotate=registry")
    assert (check.rc, check.failed, check.changed) == (0, {}, {})
    run = site.playbook("rotate_keys", "-e", "rotate=registry")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    refused = refusals(lab)
    assert pull(lab) == "404"
    assert refusals(lab) == refused


def test_a_run_that_was_killed_is_completed(lab: Lab, directory: Path) -> None:
    accept(lab, "third")
    site = site_with(lab, directory, "third")
    live = site.start("rotate_keys", "-e", "rotate=registry")
    live.wait_for_task("registry : Run the registry with its configuration")
    live.kill()
    run = site.playbook("rotate_keys", "-e", "rotate=registry")
    # The process of the task may have ended it meanwhile.
    assert run.rc == 0 or "has this registry_upstream_password already" in str(run.failed)
    refused = refusals(lab)
    assert pull(lab) == "404"
    assert refusals(lab) == refused
