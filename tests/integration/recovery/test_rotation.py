# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New passwords of the database and the backup, and a new key of tokens, while a stream of short jobs runs.

The tests depend on each other and run in this order. The first one gives the cluster the key `rest`, the last one takes
it back. Scenario rotation has munge's key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Run, with_cluster

DATABASE, CONTROLLER = "rec-db", "rec-ctl"
HOST_PASSWORD = "/etc/gpucluster-slurm/backup/password"
SECRETS = ("backup_password", "jwt_hs256.key", "slurmdbd_storage_pass")
SPAN = "--skip-tags=validate"
STREAM = """
touch /root/stream; : > /root/ids
while test -e /root/stream; do
    timeout 60 sbatch --parsable --mem=10 -D / -o /dev/null --wrap "sleep 0.5" >>/root/ids
    sleep 0.7
done
"""
ASK = """
import sys, urllib.request, urllib.error
url = "http://127.0.0.1:6820/slurm/v0.0.41/ping"
request = urllib.request.Request(url, headers={"X-SLURM-USER-TOKEN": sys.argv[1]})
try:
    print(urllib.request.urlopen(request, timeout=60).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture(name="site", scope="module")
def with_rest(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab with the key rest, and a user for its tokens."""
    site = with_cluster(
        lab, tmp_path_factory.mktemp("site"), {**lab.cluster, "rest": {"host": CONTROLLER}}, slurmrestd_tls=False
    )
    for host in (DATABASE, CONTROLLER):
        site.command(host, "id alice >/dev/null 2>&1 || useradd --uid 2001 --create-home alice")
    run = site.playbook("site", SPAN)
    assert run.rc == 0, run.failed or run.output[-3000:]
    yield site
    run = lab.playbook("site", SPAN)
    assert run.rc == 0, run.failed or run.output[-3000:]
    (secrets(lab) / "jwt_hs256.key").unlink()


def secrets(site: Lab) -> Path:
    """The directory of the secrets. That of a lab with another cluster file is the same."""
    return Path(Lab(site.scenario).inventory.parent) / "secrets/recovery"


def contents(site: Lab) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in secrets(site).iterdir()}


def keys_of_backup(site: Lab) -> list[dict[str, Any]]:
    """The keys of the repository, opened with the password that the host has."""
    command = f"restic -r /home/backup --password-file {HOST_PASSWORD} key list --json"
    return list(json.loads(site.command(DATABASE, command)))


def token(site: Lab) -> str:
    said = site.command(CONTROLLER, "runuser -u alice -- timeout 60 scontrol token lifespan=600")
    return str(said).removeprefix("SLURM_JWT=")


def answer(site: Lab, given: str) -> str:
    """What slurmrestd says to a token."""
    return str(site.script(CONTROLLER, f"python3 - {given}", ASK.encode()).decode().strip())


@contextmanager
def stream(site: Lab) -> Iterator[None]:
    """Short jobs all the time. At the end each of them is complete in the database."""
    site.script(CONTROLLER, "cat >/root/stream.sh", STREAM.encode())
    site.command(CONTROLLER, "nohup bash /root/stream.sh >/dev/null 2>&1 & sleep 1")
    yield
    site.command(CONTROLLER, "rm /root/stream")
    time.sleep(3)
    ids = site.command(CONTROLLER, "cat /root/ids").split()
    states = f"timeout 60 sacct -n -X -P -j {','.join(ids)} --format=state"
    site.wait_for(CONTROLLER, f"{states} | grep -c COMPLETED", str(len(ids)), 120)
    others = site.host(CONTROLLER).run(f"{states} | grep -vc COMPLETED").stdout.strip()
    assert others == "0"
    print(f"measured: {len(ids)} jobs, all of them in the database")


def consistent(site: Lab) -> None:
    """All hosts work with the secrets of the control host, and nothing is left of previous ones."""
    now = contents(site)
    assert not [name for name in now if name.endswith((".next", ".new"))]
    for host in (DATABASE, CONTROLLER):
        assert site.command(host, f"cat {HOST_PASSWORD}").encode() == now["backup_password"].strip()
    (key,) = keys_of_backup(site)
    assert key["current"]
    user = f"MYSQL_PWD={now['slurmdbd_storage_pass'].decode().strip()}"
    site.script(DATABASE, f"{user} mariadb --user=slurm --execute='SELECT 1'", b"")
    assert site.command(CONTROLLER, "timeout 60 sacctmgr -nP show cluster format=cluster") == "recovery"
    assert answer(site, token(site)) == "200"


def texts(run: Run) -> str:
    return "\n".join(str(result.get("msg", "")) for _host, _task, result in run.results)


ALL = "rotate=database,jwt,backup"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("rotate=registry", "rotate=registry: the cluster file has no registry"),
        ("{rotate: database, slurmdbd_conf: {StorageHost: db9}}", "slurmdbd_conf has StorageHost='db9'"),
        ("{rotate: database, slurmdbd_storage_pass_file: /root/p}", "slurmdbd_storage_pass_file: found '/root/p'"),
    ],
)
def test_what_cannot_change_is_refused_before_a_host_is_asked(site: Lab, given: str, error: str) -> None:
    before = contents(site)
    run = site.playbook("rotate_keys", "-e", given)
    assert run.rc != 0
    assert error in str(run.failed)
    assert (run.changed, contents(site)) == ({}, before)


def test_a_check_says_what_it_would_touch_and_changes_nothing(site: Lab) -> None:
    before = contents(site)
    run = site.playbook("rotate_keys", "--check", "--diff", "-e", ALL)
    assert (run.rc, run.failed) == (0, {})
    assert {CONTROLLER, DATABASE} <= run.changed.keys(), "the last lines count what would change"
    for text in ("All tokens of users end at once", "MariaDB's user", "prove it with a backup"):
        assert text in texts(run)
    assert contents(site) == before


def test_new_secrets_while_jobs_run(site: Lab) -> None:
    before, old = contents(site), token(site)
    assert answer(site, old) == "200"
    with stream(site):
        start = time.monotonic()
        run = site.playbook("rotate_keys", "-vvv", "--diff", "-e", ALL)
        print(f"measured: rotate_keys.yml: {time.monotonic() - start:.0f} s")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    now = contents(site)
    assert all(now[name] != before[name] for name in SECRETS)
    assert now["munge.key"] == before["munge.key"]
    for name in ("backup_password", "slurmdbd_storage_pass"):
        assert now[name].decode().strip() not in run.output
    assert answer(site, old) == "401"
    consistent(site)
    second = site.playbook("site", SPAN)
    assert (second.rc, second.changed) == (0, {}), second.changed


@pytest.mark.parametrize(
    ("rotate", "task", "playbook"),
    [
        ("database", "slurmdbd : Make the database and its user", "site"),
        ("database", "slurmdbd : Run slurmdbd", "rotate_keys"),
        ("jwt", "rotation : Run the daemons with the new keys", "site"),
        ("backup", "rotation : Let the new password open the backup", "rotate_keys"),
        ("backup", "rotation : Make it the password of the backup", "rotate_keys"),
        ("jwt,database,backup", "backup : Save the cluster by a timer", "rotate_keys"),
        ("backup", "rotation : End the previous password", "rotate_keys"),
    ],
)
def test_the_next_run_completes_one_that_was_killed(site: Lab, rotate: str, task: str, playbook: str) -> None:
    order = ("-e", f"rotate={rotate}")
    with stream(site):
        live = site.start("rotate_keys", *order)
        live.wait_for_task(task)
        live.kill()
        run = site.playbook(playbook, *([SPAN] if playbook == "site" else order))
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    consistent(site)


def test_a_site_run_in_between_loses_nothing(site: Lab) -> None:
    """The next password opens the backup, and the hosts do not have it yet."""
    live = site.start("rotate_keys", "-e", "rotate=backup")
    live.wait_for_task("backup : Save the cluster by a timer")
    live.kill()
    run = site.playbook("site", SPAN)
    assert (run.rc, run.failed) == (0, {})
    assert (secrets(site) / "backup_password.next").exists()
    run = site.playbook("rotate_keys", "-e", "rotate=backup")
    assert (run.rc, run.failed) == (0, {})
    consistent(site)
