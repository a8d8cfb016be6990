# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm's own parser reads. Slurm is that of this machine; test_formats.py of the scenarios has other releases."""

from __future__ import annotations

import shutil
from pathlib import Path

import hard_values
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    unreadable,
    value_in,
    value_text,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.slurm_parser import (
    library_of,
    parsed,
    secret_problem,
)
from hypothesis import given, settings

CONF = "slurmdbd_storage.conf"
NASTY = 'it\'s "not" 100%;$HOME`id` \\ä#'

sinfo = shutil.which("sinfo")
LIBRARY = library_of(sinfo) if sinfo else None
with_slurm = pytest.mark.skipif(LIBRARY is None, reason="no Slurm on this machine")


def read_by_slurm(directory: Path, text: str) -> str | None:
    assert LIBRARY
    (directory / "slurm.conf").write_text(text)
    return parsed(LIBRARY, str(directory / "slurm.conf"), "StoragePass")


@with_slurm
@settings(max_examples=150)
@given(value=hard_values.texts)
def test_slurm_reads_what_was_written(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    for _value, written in hard_values.written(value_text, [value]):
        text = f"StoragePass={written}\n"
        assert read_by_slurm(tmp_path_factory.getbasetemp(), text) == value
        assert value_in(text, CONF, "storagepass") == value
        assert secret_problem(CONF, text, None) == ""


@with_slurm
@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("StoragePass=hash#inside", "hash"),
        (r"StoragePass=hash\#inside", "hash#inside"),
        ('StoragePass="a b"', "a b"),
        ("StorageUser=a", None),
        ("", None),
    ],
)
def test_the_parser_of_slurm(tmp_path: Path, line: str, value: str | None) -> None:
    assert read_by_slurm(tmp_path, f"{line}\n") == value


@pytest.mark.parametrize(
    "line",
    [
        "StoragePass=hash#inside",  # Slurm reads `hash`
        r"StoragePass=a\b",
        "StoragePass=a b",
        "StoragePass=a\nb",
        "# StoragePass=a",
    ],
)
def test_a_secret_that_slurm_reads_otherwise_is_refused_and_not_shown(line: str) -> None:
    what = "slurmdbd_storage.conf: a value is not written as Slurm's parser reads it"
    assert secret_problem(CONF, f"{line}\n", LIBRARY) == what


def test_an_installed_slurm_with_another_parser_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "ansible_collections.gpucluster.slurm.plugins.module_utils.controller.slurm_parser"
    monkeypatch.setattr(f"{module}.parsed", lambda *_: None)
    assert secret_problem(CONF, "StoragePass=abc\n", "/lib") == (
        "slurmdbd_storage.conf: StoragePass: the parser of the installed Slurm reads another value than the given one"
    )


def test_the_reasons_have_no_value() -> None:
    for value in ("a\nb", 'a "b"', '"ab"'):
        assert unreadable(value)
        assert value not in unreadable(value)
    assert unreadable(NASTY) == "has quotes and would have to be quoted"
    assert unreadable(NASTY.replace('"', "")) == ""
