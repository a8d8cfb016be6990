# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A new password of the registry behind that of the cluster. The one behind it is a stand-in on the node.

The tests depend on each other and run in this order. The registry of the cluster stays on the controller.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab, with_cluster
from stand_ins import STAND_IN

CONTROLLER, NODE = "rec-ctl", "rec-node1"
UPSTREAM = "http://10.213.7.132:5002"
ACCOUNT = "/etc/docker/registry/upstream.env"
PROGRAM, ACCEPTED, REQUESTS = "/root/token_registry.py", "/root/account", "/root/requests"


def accept(lab: Lab, password: str) -> None:
    """Let the other registry accept this password alone."""
    lab.command(NODE, f"echo cache:{password} >{ACCEPTED}")


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
    """What the registry behind it says of the password, when that of the cluster looks for an image."""
    lab.command(NODE, f"rm -f {REQUESTS}")
    url = "http://127.0.0.1:5000/v2/none/manifests/latest"
    lab.command(CONTROLLER, f"curl -so /dev/null {url}")
    (said,) = {*lab.command(NODE, f"cat {REQUESTS}").split()}
    return str(said)


@pytest.fixture(name="directory", scope="module")
def directory_of_cluster(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for cluster files. The registry of the cluster runs with the password `first`."""
    lab.command(CONTROLLER, "DEBIAN_FRONTEND=noninteractive apt-get install -yqq curl")
    lab.script(NODE, f"cat >{PROGRAM}", (STAND_IN / "token_registry.py").read_bytes())
    accept(lab, "first")
    lab.command(NODE, f"systemd-run --quiet --collect --unit=upstream python3 {PROGRAM} 5002 {ACCEPTED} {REQUESTS}")
    found = tmp_path_factory.mktemp("registry")
    run = site_with(lab, found, "first").playbook("site", "--skip-tags=validate")
    assert run.rc == 0, run.failed or run.output[-3000:]
    assert pull(lab) == "accepted"
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
    assert f"{UPSTREAM}/token does not accept the user and the password (401)" in str(run.failed)
    assert "wr0ng" not in run.output
    assert lab.command(CONTROLLER, f"sha256sum {ACCOUNT}; systemctl show -P MainPID docker-registry") == before
    assert pull(lab) == "accepted"


def test_a_new_password(lab: Lab, directory: Path) -> None:
    accept(lab, "second")
    assert pull(lab) == "refused"
    site = site_with(lab, directory, "second")
    check = site.playbook("rotate_keys", "--check", "-e", "rotate=registry")
    assert (check.rc, check.failed, bool(check.changed)) == (0, {}, True)
    run = site.playbook("rotate_keys", "-e", "rotate=registry")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert pull(lab) == "accepted"


def test_a_run_that_was_killed_is_completed(lab: Lab, directory: Path) -> None:
    accept(lab, "third")
    site = site_with(lab, directory, "third")
    live = site.start("rotate_keys", "-e", "rotate=registry")
    live.wait_for_task("registry : Run the services")
    live.kill()
    run = site.playbook("rotate_keys", "-e", "rotate=registry")
    # The process of the task may have ended it meanwhile.
    assert run.rc == 0 or "has this registry_upstream_password already" in str(run.failed)
    assert pull(lab) == "accepted"
