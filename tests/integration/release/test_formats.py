# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values with hard characters in files of the programs of a host: what these programs read (docs/design/formats.md).

All values of a format are in a few files, so that each program reads them at once. tests/unit tries more values.
"""

from __future__ import annotations

import inspect
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import value_text
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import slurm_parser
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats import file_values, systemd
from lab import ROOT, Lab

HARD = "#\\\"'`$%;=,:*?!&|<>()[]{}~^@+-/._ aZ09ä漢\u00a0"
VALUES = [
    *(text for one in HARD for text in (one, f"{one}a", f"a{one}", f"a{one}b", f"a {one}", f"{one}{one}")),
    *(f"{one}{another}" for one, another in pairwise(HARD)),
    "%h %%n ${HOME} $(id) `id` \\n \\x41 \\",
    "x" * 3000,
]
DIRECTORY = "/run/formats"


def written(function: Callable[[str], str], values: list[str] = VALUES) -> dict[str, str]:
    """What a format makes of each value; those that it refuses are left out."""

    def text(value: str) -> str | None:
        try:
            return function(value)
        except ValueError:
            return None

    texts = {value: text(value) for value in values}
    found = {value: written for value, written in texts.items() if written is not None}
    assert len(found) > len(values) / 3, "a format takes most values"
    return found


def archive(files: Mapping[str, str]) -> bytes:
    """A tar archive of files by name."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


@pytest.fixture(name="said")
def answers(lab: Lab) -> Iterator[Callable[[Mapping[str, str], str], str]]:
    """A function that puts files into DIRECTORY of the controller, and returns the output of a script there."""

    def said(files: Mapping[str, str], script: str) -> str:
        start = f"set -e; rm -rf {DIRECTORY}; mkdir {DIRECTORY}; tar -x -C {DIRECTORY}; cd {DIRECTORY}"
        return str(lab.script(str(lab.controller), f"{start}\n{script}", archive(files)).decode())

    yield said
    lab.command(str(lab.controller), f"rm -rf {DIRECTORY} /run/systemd/system/*formats*; systemctl daemon-reload")


def test_slurmdbd_has_the_password_of_the_control_host(lab: Lab) -> None:
    """It has the characters that are hard to write where the scenario says so, and accounting works with it."""
    given = lab.inventory.parent / "group_vars/slurm_cluster.yml"
    if not given.exists():
        pytest.skip("the password is the collection's own")
    password = (ROOT / "molecule" / lab.scenario / "storage_pass").read_text().rstrip("\n")
    head = str(lab.controller)
    assert lab.command(head, "tail -n 1 /etc/slurm/slurmdbd_storage.conf") == f"StoragePass={value_text(password)}"
    assert lab.command(head, "stat -c '%U %a' /etc/slurm/slurmdbd_storage.conf") == "slurm 600"
    # The module has asked this library before it changed anything.
    assert "libslurmfull" in lab.command(head, "ldd $(command -v slurmdbd)")
    assert str(lab.cluster["name"]) in lab.command(head, "timeout 30 sacctmgr -nP show cluster format=cluster")


def test_slurm(said: Callable[[Mapping[str, str], str], str]) -> None:
    found = written(value_text)
    program = "\n".join(
        [
            "from __future__ import annotations",
            "import ctypes, json, re, shutil, subprocess",
            f"_STRING = {slurm_parser._STRING}",
            inspect.getsource(slurm_parser._Option),
            inspect.getsource(slurm_parser.parser),
            "ldd = subprocess.run(['ldd', shutil.which('slurmdbd')], capture_output=True, text=True).stdout",
            "read = parser(re.search(r'=> (\\S+/libslurmfull\\S*)', ldd)[1])",
            f"values = [read(f'{{number}}.conf', 'StoragePass') for number in range({len(found)})]",
            "print(json.dumps([None if value is None else value.decode() for value in values]))",
        ]
    )
    files = {f"{i}.conf": f"StoragePass={text}\n" for i, text in enumerate(found.values())}
    assert json.loads(said({**files, "read.py": program}, "python3 read.py")) == [*found]


def test_units_of_systemd(said: Callable[[Mapping[str, str], str], str]) -> None:
    """A setting that is one text, and one that is a list, with a path in quotes."""
    names = [value for value in VALUES if "/" not in value and len(value) < 255]
    texts, paths = written(systemd.setting), written(systemd.quoted, names)
    units = {
        f"formats-t{i}.mount": f"[Mount]\nWhat={text}\nWhere=/formats/t{i}\nType=x\n"
        for i, text in enumerate(texts.values())
    }
    units |= {
        f"formats-p{i}.target": f"[Unit]\nRequiresMountsFor={systemd.quoted(f'/q{path}')}\n"
        for i, path in enumerate(paths)
    }
    show = "systemctl show --value --property"
    script = f"""cp *.mount *.target /run/systemd/system; systemctl daemon-reload
        {show}=What $(ls -v *.mount); echo -----; {show}=RequiresMountsFor $(ls -v *.target)"""
    sources, _line, mounts = said(units, script).partition("-----\n")
    assert sources.rstrip("\n").split("\n\n") == [*texts]
    shown = [  # systemctl quotes for a shell
        re.sub(r"\\(.)", r"\1", line[1:-1]) if line.startswith('"') else line
        for line in mounts.rstrip("\n").split("\n\n")
    ]
    assert shown == [f"/q{path}" for path in paths]


def test_environment_files_of_systemd(said: Callable[[Mapping[str, str], str], str]) -> None:
    plain, quoted = written(systemd.environment_value), written(file_values.registry_variable)
    text = "".join(
        [
            *(f"P{i}={value}\n" for i, value in enumerate(plain.values())),
            *(f"R{i}={value}\n" for i, value in enumerate(quoted.values())),
        ]
    )
    script = f"systemd-run --quiet --pipe --wait --collect -p EnvironmentFile={DIRECTORY}/file env -0"
    found = dict(line.split("=", 1) for line in said({"file": text}, script).split("\0") if line)
    assert [found[f"P{i}"] for i in range(len(plain))] == [*plain]
    assert [yaml.safe_load(found[f"R{i}"]) for i in range(len(quoted))] == [*quoted]  # as docker-registry does


def test_logrotate(said: Callable[[Mapping[str, str], str], str]) -> None:
    found = written(file_values.logrotate_path, [f"/formats/{i}{value}/log" for i, value in enumerate(VALUES[:-1])])
    text = "".join(f"{path} {{\n  missingok\n}}\n" for path in found.values())
    lines = said({"file": text}, "chmod 644 file; logrotate --debug file 2>&1").split("\n")
    assert [line.removeprefix("considering log ") for line in lines if line.startswith("considering log ")] == [*found]
