# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets are nowhere but in the files that are made for them."""

from __future__ import annotations

import base64
import os

from lab import Lab

HOSTS = ("head", "login1", "compute01", "compute02")


def test_new_secrets_appear_nowhere(lab: Lab) -> None:
    """Both are made anew, in the noisiest run there is, while the process lists are written down."""
    secrets = lab.inventory.parent / "secrets/demo"
    (secrets / "munge.key").write_bytes(os.urandom(1024))
    (secrets / "slurmdbd_storage_pass").unlink()
    watch = "nohup sh -c 'while :; do ps axww -o args; sleep 0.1; done' >/root/processes 2>/dev/null & echo $!"
    watchers = {host: lab.command(host, watch) for host in HOSTS}

    run = lab.playbook("site", "-vvv", "--diff")

    for host, pid in watchers.items():
        lab.command(host, f"kill {pid}")
    assert (run.rc, run.failed) == (0, {})
    key, password = (secrets / "munge.key").read_bytes(), (secrets / "slurmdbd_storage_pass").read_text().strip()
    assert len(password) == 36

    # A key is bytes: pieces of it, in the forms in which a program would print them.
    pieces = [form(key[:48]) for form in (lambda piece: base64.b64encode(piece).decode(), bytes.hex, repr)]
    for secret in [password, *pieces]:
        assert secret not in run.output
    for host in HOSTS:
        # The search itself must not be what is found: sudo logs the commands of the test.
        hidden = base64.b64encode(password.encode()).decode()
        lab.command(host, f"umask 077; rm -f /root/password; echo {hidden} | base64 -d >/root/password")
        find = "find / -xdev -type f -perm /o=r -size -4M ! -path '/proc/*' -exec grep -laFf /root/password {} +"
        assert lab.host(host).run(find).stdout == ""
        assert lab.host(host).run("journalctl --no-pager | grep -Ff /root/password").stdout == ""
        assert lab.host(host).run("grep -Ff /root/password /root/processes").stdout == ""
        lab.command(host, "rm /root/processes /root/password")
    assert lab.command("head", "sacctmgr -nP show cluster format=cluster") == "demo"


def test_a_key_that_the_control_host_lost_comes_back_from_the_cluster(lab: Lab) -> None:
    key = lab.inventory.parent / "secrets/demo/munge.key"
    before = key.read_bytes()
    key.unlink()
    run = lab.playbook("site", "--tags=base")
    assert (run.rc, run.failed) == (0, {})
    assert key.read_bytes() == before


def test_the_control_host_keeps_them_to_itself(lab: Lab) -> None:
    secrets = lab.inventory.parent / "secrets/demo"
    assert oct(secrets.stat().st_mode)[-3:] == "700"
    assert {oct(path.stat().st_mode)[-3:] for path in secrets.iterdir()} == {"600"}
