# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packed modules that one run leaves to the next."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.packed_modules import STATES, give, keep, state
from programs import environment

OURS = "ansible_collections.gpucluster.slurm.plugins.modules.slurm_files-ZIP_DEFLATED-none"
OF_ANSIBLE = "ansible.modules.stat-ZIP_DEFLATED-none"
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.stat": {"path": "/"}}, {"ansible.builtin.ping": {}}],
    }
]


@pytest.fixture(name="run")
def packed_of_a_run(tmp_path: Path) -> Path:
    run = tmp_path / "ansiballz_cache"
    run.mkdir()
    others = (
        "ansible.legacy.mine-ZIP_DEFLATED-none",
        "ansible_collections.site.own.plugins.modules.x-ZIP_DEFLATED-none",
    )
    for name in (OURS, f"{OURS}.lock", OF_ANSIBLE, *others):
        (run / name).write_text(f"packed {name}")
    return run


@pytest.fixture(name="store")
def store_of_a_state(tmp_path: Path) -> Path:
    return tmp_path / "home/packed-modules/0a1b"


def test_the_next_run_has_the_modules_of_ansible_and_of_the_collection(run: Path, store: Path, tmp_path: Path) -> None:
    """Not those that any playbook or collection may have by the same name."""
    keep(run, store)
    (tmp_path / "next").mkdir()
    give(store, tmp_path / "next")
    found = {file.name: file.read_text() for file in (tmp_path / "next").iterdir()}
    assert found == {name: f"packed {name}" for name in (OURS, OF_ANSIBLE)}
    assert [file.stat().st_mode & 0o777 for file in (store.parent, store, store / OURS)] == [0o700, 0o700, 0o600]


def test_without_a_store_a_run_begins_with_nothing(store: Path, tmp_path: Path) -> None:
    give(store, tmp_path / "next")
    assert not (tmp_path / "next").exists()


@pytest.mark.parametrize("level", [0, 1])
def test_a_store_into_which_others_may_write_is_not_used(run: Path, store: Path, tmp_path: Path, level: int) -> None:
    keep(run, store)
    (store, store.parent)[level].chmod(0o777)
    give(store, tmp_path / "next")
    assert not (tmp_path / "next").exists()
    (store / OURS).unlink()
    keep(run, store)
    assert not (store / OURS).exists()


def test_a_full_disk_leaves_no_half_of_a_file(run: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        keep(run, store)
    assert not [file for file in store.iterdir() if not file.name.startswith(".")]


def test_states_of_long_ago_are_removed(run: Path, store: Path) -> None:
    for number in range(STATES + 2):
        folder = store.with_name(f"old{number}")
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    keep(run, store)
    assert {folder.name for folder in store.parent.iterdir()} == {"old3", "old4", store.name}


def test_runs_that_end_at_once_keep_whole_files(run: Path, store: Path) -> None:
    (run / OURS).write_text("x" * 1_000_000)
    threads = [threading.Thread(target=keep, args=(run, store)) for _number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {file.name: file.stat().st_size for file in store.iterdir()}[OURS] == 1_000_000
    assert {file.name for file in store.iterdir()} == {OURS, OF_ANSIBLE}


def test_any_change_of_the_sources_is_another_state(tmp_path: Path) -> None:
    file = tmp_path / "a/b/c.py"
    file.parent.mkdir(parents=True)
    file.write_text("1")
    os.utime(file, (1, 1))
    states = [state([tmp_path])]
    os.utime(file, (2, 2))
    states.append(state([tmp_path]))
    file.write_text("22")
    os.utime(file, (2, 2))
    states.append(state([tmp_path]))
    (tmp_path / "d.py").write_text("")
    states.append(state([tmp_path]))
    assert len({*states}) == 4
    (tmp_path / "a/b/__pycache__").mkdir()
    (tmp_path / "a/b/__pycache__/c.cpython-311.pyc").write_text("")
    (tmp_path / "a/.#c.py").symlink_to("nobody@nowhere")
    assert state([tmp_path]) == states[-1]


def packed_by_a_run(directory: Path, **variables: str) -> set[str]:
    """The modules that a real run has packed itself."""
    (directory / "play.yml").write_text(yaml.safe_dump(PLAY))
    run = subprocess.run(
        [
            Path(sys.executable).with_name("ansible-playbook"),
            *("-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"),
            directory / "play.yml",
        ],
        env=environment(
            ANSIBLE_CALLBACKS_ENABLED="gpucluster.slurm.packed_modules",
            ANSIBLE_DEBUG="1",
            ANSIBLE_HOME=str(directory / "home"),
            ANSIBLE_INVENTORY_ENABLED="host_list",
            **variables,
        ),
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "ANSIBALLZ: " in run.stdout
    return {*re.findall(r"ANSIBALLZ: Lock acquired: .*/([^/\s]+)-ZIP_DEFLATED", run.stdout)}


def test_a_second_run_packs_nothing(tmp_path: Path) -> None:
    assert packed_by_a_run(tmp_path) == {"ansible.modules.stat", "ansible.modules.ping"}
    assert packed_by_a_run(tmp_path) == set()


def test_nothing_is_kept_where_a_site_has_module_utils(tmp_path: Path) -> None:
    """Modules of ansible-core are packed with those instead of its own if they have the same name."""
    (tmp_path / "utils").mkdir()
    for _run in range(2):
        assert "ansible.modules.stat" in packed_by_a_run(tmp_path, ANSIBLE_MODULE_UTILS=str(tmp_path / "utils"))
    assert not (tmp_path / "home/gpucluster-slurm").exists()
