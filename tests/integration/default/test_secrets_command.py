# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets from a command of the site. A stand-in for `pass` and the like reads them from memory (tmpfs).

The last test gives the cluster other secrets and then its own again.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from lab import Lab, with_cluster
from secret_search import KEPT, Processes, control_files, forms, now, on_host

STAND_IN = """#!/bin/sh
# A stand-in for the command line of a store of secrets.
echo "$2" >>"$(dirname "$0")/asked"
exec cat "$(dirname "$0")/$1/$2"
"""
HOSTS = ("head", "login1", "compute01", "compute02")


@pytest.fixture(name="store", scope="module")
def store_with_the_secrets_of_the_cluster(lab: Lab) -> Iterator[Path]:
    """The key in base64, as such stores have text alone."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="store-") as name:
        store = Path(name)
        (store / "demo").mkdir()
        (store / "give").write_text(STAND_IN)
        (store / "give").chmod(0o700)
        own = lab.inventory.parent / "secrets/demo"
        (store / "demo/munge.key").write_bytes(base64.encodebytes((own / "munge.key").read_bytes()))
        (store / "demo/slurmdbd_storage_pass").write_bytes((own / "slurmdbd_storage_pass").read_bytes())
        yield store


@pytest.fixture(name="other", scope="module")
def lab_with_the_command(lab: Lab, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    directory = tmp_path_factory.mktemp("command")
    command = [str(store / "give"), "{cluster}", "{secret}"]
    variables = {"slurm_secrets_dir": str(directory / "none"), "slurm_secrets_command": command}
    return with_cluster(lab, directory, lab.cluster, **variables)


def asked(store: Path) -> Counter[str]:
    """How often each secret was asked for, since the last time."""
    file = store / "asked"
    words = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return Counter(words)


def test_a_converged_cluster_has_nothing_to_do(other: Lab, store: Path) -> None:
    asked(store)
    run = other.playbook("site", "--diff")
    assert (run.rc, run.failed, run.changed, run.warnings) == (0, {}, {}, [])
    assert asked(store) == {"munge.key": 1, "slurmdbd_storage_pass": 1}


def test_a_store_without_the_secrets_is_one_error_before_anything_else(other: Lab, store: Path) -> None:
    given = store / "demo"
    given.rename(store / "away")
    try:
        run = other.playbook("site")
    finally:
        (store / "away").rename(given)
    assert run.rc != 0
    ((host, (message,)),) = run.failed.items()
    assert host == "head"
    for name in ("munge.key", "slurmdbd_storage_pass"):
        assert f"{name}: {store}/give demo {name}: ended with 1: cat: {given}/{name}: No such file" in message
    assert {task for _host, task, _result in run.results if "Gather facts" in task} == set()
    assert asked(store) == {"munge.key": 1, "slurmdbd_storage_pass": 1}


@pytest.mark.rare
def test_other_secrets_reach_the_hosts_and_no_disk_of_the_control_host(other: Lab, store: Path) -> None:
    given = {path: path.read_bytes() for path in (store / "demo").iterdir()}
    key, password = os.urandom(1024), str(uuid4())
    (store / "demo/munge.key").write_bytes(base64.encodebytes(key))
    (store / "demo/slurmdbd_storage_pass").write_text(f"{password}\n")
    searched, begin = forms(key, password.encode()), now()
    try:
        with Processes() as processes:
            run = other.playbook("site", "--skip-tags=validate", "-vvv", "--diff")
        assert (run.rc, run.failed) == (0, {})
        assert not any(form in run.output.encode() for form in searched)
        assert processes.rounds > 10
        assert processes.with_any(searched) == []
        assert set(control_files(searched, begin, other.inventory.parent)) == {*given}
        for host in HOSTS:
            found = on_host(other, host, searched, begin)
            assert found.items() <= KEPT.items()
            assert "/etc/munge/munge.key" in found
        assert other.command("head", "sacctmgr -nP show cluster format=cluster") == "demo"
    finally:
        for path, content in given.items():
            path.write_bytes(content)
        run = other.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    assert not (other.inventory.parent / "none").exists()
