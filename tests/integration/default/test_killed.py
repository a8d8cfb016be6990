# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next run completes a run that was killed, also with a new password; no secret appears anywhere else.

The cluster gets another configuration with another password, and then its previous state again. The tests depend on
each other. `test_bare_hosts.py` interrupts an installation of packages, scenario `single` a change of slurm.conf.
"""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

import pytest
from lab import Lab, Run
from secret_search import KEPT, Processes, control_files, forms, now, on_host

HOSTS = ("head", "login1", "compute01", "compute02")
UNITS = "munge mariadb slurmdbd slurmctld slurmd sackd"
FILES = "/etc/munge /etc/slurm /etc/hosts /etc/tmpfiles.d /etc/systemd/system/*.service.d"
SLURMD = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"
NEW = """--extra-vars={"slurm_conf": {"KillWait": 31}}"""


def state(lab: Lab) -> dict[str, str]:
    """Files with owner, mode and content, states of units, and users, by host."""
    show = (
        f"find {FILES} -type f -exec stat -c '%n %U %a' {{}} + -exec sha256sum {{}} + 2>/dev/null | sort;"
        f"systemctl is-active {UNITS}; id munge; id slurm; true"
    )
    return {host: lab.command(host, show) for host in HOSTS}


def killed_at(lab: Lab, task: str, *arguments: str, seconds: float = 0) -> None:
    """Run site.yml, and kill it when this task starts, or so many seconds later."""
    run = lab.start("site", "--skip-tags=validate", *arguments)
    run.wait_for_task(task)
    time.sleep(seconds)
    run.kill()


def on_another_control_host(lab: Lab, *arguments: str) -> Run:
    """Run site.yml with another host name of the control host, and with a umask that keeps nothing from anybody."""
    other = 'hostname adm2; umask 0; exec "$@"'
    return lab.start("site", *arguments, before=("unshare", "--uts", "sh", "-c", other, "sh")).finish()


def works(lab: Lab, kill_wait: int) -> None:
    """Check that the configuration is in force, credentials decode on every host, and the database answers."""
    assert f"KillWait                = {kill_wait} sec" in lab.command("login1", "scontrol show config")
    credential = lab.command("head", "munge -n")
    for host in HOSTS:
        assert "Success" in lab.command(host, f"echo {credential} | unmunge")
    assert lab.command("head", "sacctmgr -nP show cluster format=cluster") == "demo"


def is_closed(secrets: Path) -> None:
    """Check that the control host keeps them to itself."""
    assert oct(secrets.stat().st_mode)[-3:] == "700"
    assert {oct(path.stat().st_mode)[-3:] for path in secrets.iterdir()} == {"600"}


@pytest.fixture(name="secrets", scope="module")
def directory_of_secrets(lab: Lab) -> Path:
    return Path(lab.inventory.parent / "secrets/demo")


@pytest.fixture(name="old", scope="module")
def what_an_undisturbed_run_has_left(lab: Lab, secrets: Path) -> tuple[dict[Path, bytes], dict[str, str]]:
    """The secrets, and the state of the hosts."""
    return {path: path.read_bytes() for path in secrets.iterdir()}, state(lab)


@pytest.mark.usefixtures("old")
def test_the_next_run_finishes_with_a_new_password_and_no_secret_appears(
    lab: Lab, secrets: Path, tmp_path: Path
) -> None:
    """The next run prints, logs and keeps as much as possible.

    The key of munge stays (scenario rotation has another one), and a host that has lost it gets it again.
    """
    key, password, begin = (secrets / "munge.key").read_bytes(), str(uuid4()), now()
    (secrets / "slurmdbd_storage_pass").write_text(f"{password}\n")
    lab.command("compute01", "head -c 1024 /dev/urandom >/etc/munge/munge.key")
    searched = forms(key, password.encode())
    killed_at(lab, "munge : Run munge", NEW)
    # A run that was killed while a module had its secret may leave the temporary files of both.
    for host in HOSTS:
        assert on_host(lab, host, searched, begin).items() <= KEPT.items()

    kept = {"LOG_PATH": tmp_path / "log", "CACHE_PLUGIN": "jsonfile", "CACHE_PLUGIN_CONNECTION": tmp_path / "facts"}
    settings = [f"ANSIBLE_{name}={value}" for name, value in kept.items()]
    with Processes() as processes:
        run = lab.start("site", "--skip-tags=validate", "-vvv", "--diff", NEW, before=("env", *settings)).finish()

    assert (run.rc, run.failed) == (0, {})
    works(lab, kill_wait=31)
    assert processes.with_any(searched) == []
    assert not [form for form in searched if form in run.output.encode()]
    assert "Run slurmdbd" in (tmp_path / "log").read_text()
    assert {path.name.rpartition("_")[2] for path in (tmp_path / "facts").iterdir()} >= {*HOSTS}
    assert {*control_files(searched, begin, tmp_path)} == {secrets / "slurmdbd_storage_pass"}
    munge = "/etc/munge/munge.key"
    found = {host: on_host(lab, host, searched, begin) for host in HOSTS}
    assert found.pop("head") == {path: mode for path, mode in KEPT.items() if path != munge}
    assert found == {"login1": {}, "compute01": {munge: KEPT[munge]}, "compute02": {}}


@pytest.mark.rare  # 43 s; unit tests have a process that a killed run has left as well
def test_the_next_run_waits_for_the_tasks_of_a_killed_one(lab: Lab) -> None:
    """A kill -9 ends ansible-playbook, and not its process for a task: here a restart of slurmd that takes half a
    minute.
    """
    slow = "/etc/systemd/system/slurmd.service.d/zz-slow.conf"
    begin = f"printf '[Service]\\nExecStartPre=/bin/sleep 30\\n' >{slow}; systemctl daemon-reload; echo >>{SLURMD}"
    lab.command("compute02", begin)
    try:
        killed_at(lab, "slurmd : Run slurmd", NEW, seconds=10)
        run = lab.playbook("site", "--skip-tags=validate", NEW)
        assert (run.rc, run.failed) == (0, {})
        assert "but tasks of it still change hosts." in run.output
    finally:
        lab.command("compute02", f"rm {slow}; systemctl daemon-reload")
    works(lab, kill_wait=31)


@pytest.mark.rare  # 40 s; the tests before it complete runs that were killed
def test_the_way_back_ends_where_it_began(
    lab: Lab, secrets: Path, old: tuple[dict[Path, bytes], dict[str, str]]
) -> None:
    """The last run is one of another control host, which has no secrets: it gets them from the cluster.

    It cannot know whether the run that was killed goes on, so a person has to say so.
    """
    files, expected = old
    for path, content in files.items():
        path.write_bytes(content)
    lab.command("compute02", f"echo >>{SLURMD}")
    killed_at(lab, "slurmd : Run slurmd")
    for path in files:
        path.unlink()
    secrets.rmdir()
    refused = on_another_control_host(lab, "--skip-tags=validate")
    assert refused.rc != 0
    assert "Two runs at the same time" in str(refused.failed), refused.output
    assert refused.changed == {}
    run = on_another_control_host(lab, "--skip-tags=validate", "--extra-vars={slurm_take_over: true}")
    assert (run.rc, run.failed) == (0, {})
    works(lab, kill_wait=30)
    assert state(lab) == expected
    assert {path: path.read_bytes() for path in files} == files
    is_closed(secrets)
