# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SPANK plugins. Those whose release is read are compiled here, with the symbol that Slurm's headers make."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.spank import (
    PluginError,
    plugin_release,
    plugstack_lines,
)


def compiled(directory: Path, source: str) -> bytes:
    """A shared object, without debug information."""
    library = directory / "plugin.so"
    gcc = ["gcc", "-shared", "-fPIC", "-nostdlib", "-s", "-x", "c", "-", "-o", str(library)]
    subprocess.run(gcc, input=source, text=True, check=True)
    return library.read_bytes()


@pytest.mark.parametrize(("number", "release"), [(0x160508, "22.05"), (0x180B05, "24.11"), (0x1A0503, "26.05")])
def test_release_of_a_plugin(tmp_path: Path, number: int, release: str) -> None:
    names = 'const char plugin_name[] = "greet", plugin_type[] = "spank"; int plugin_versions = 7;'
    assert plugin_release(compiled(tmp_path, f"{names} const unsigned int plugin_version = {number};")) == release
    assert plugin_release(compiled(tmp_path, f"{names} unsigned int plugin_version = {number};")) == release


def test_what_is_no_plugin_of_slurm(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="no symbol plugin_version"):
        plugin_release(compiled(tmp_path, "int other;"))
    with pytest.raises(PluginError, match="not a 64-bit"):
        plugin_release(b"#!/bin/sh\n" + b" " * 100)


def test_a_plugin_that_is_cut_off(tmp_path: Path) -> None:
    data = compiled(tmp_path, "const unsigned int plugin_version = 1;")
    for length in range(0, len(data), 16):
        with pytest.raises(PluginError):
            plugin_release(data[:length])


def refused(data: bytes) -> bool:
    """Whether a file is refused, by no other error than that for it."""
    try:
        plugin_release(data)
    except PluginError:
        return True
    return False


def test_a_plugin_with_a_wrong_byte(tmp_path: Path) -> None:
    data = compiled(tmp_path, "const unsigned int plugin_version = 1;")
    assert 10 < sum(refused(data[:place] + b"\xff" + data[place + 1 :]) for place in range(len(data))) < len(data)


def test_lines() -> None:
    plugins: list[dict[str, Any]] = [
        {"plugin": "spank_pyxis.so", "arguments": ["runtime_path=/run/pyxis", "execute_entrypoint=0"]},
        {"plugin": "/opt/site/tmp.so", "required": True},
    ]
    assert plugstack_lines(plugins).splitlines() == [
        "optional spank_pyxis.so runtime_path=/run/pyxis execute_entrypoint=0",
        "required /opt/site/tmp.so",
    ]
    assert plugstack_lines([]) == ""


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ([{"plugin": "a.so"}, {"plugin": "b.so"}, {"plugin": "a.so"}], "a.so is listed twice"),
        ([{"plugin": "a.so", "arguments": ["path=/my files"]}], "a.so: found 'path=/my files'"),
        ([{"plugin": "a.so", "arguments": ["color=#fff"]}], "a.so: found 'color=#fff'"),
        ([{"plugin": ""}], "found ''"),
    ],
)
def test_what_slurm_would_read_as_something_else(plugins: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plugstack_lines(plugins)
