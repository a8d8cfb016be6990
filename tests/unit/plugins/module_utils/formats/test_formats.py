# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The functions of the formats, with the real parsers that this machine has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import partial

import hard_values
import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats import file_values, mariadb_values, systemd
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.directory_purposes import directory_for
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.written import FORMATS, password_errors, written
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import file_checks
from hypothesis import example, given, settings
from hypothesis import strategies as st

with_modprobe = pytest.mark.skipif(not shutil.which("modprobe"), reason="no kmod on this machine")
with_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd on this machine")
with_mariadb = pytest.mark.skipif(not shutil.which("my_print_defaults"), reason="no MariaDB client on this machine")


@with_mariadb
@settings(max_examples=40)
@given(values=st.lists(hard_values.texts, min_size=1, max_size=20))
@example(values=["\N{LATIN SMALL LETTER A WITH GRAVE}"])
def test_mariadb_reads_what_was_written(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "my.cnf"
    found = hard_values.written(mariadb_values.option_value, values)
    lines = [f"o{i} = {text}" for i, (_value, text) in enumerate(found)]
    path.write_text("\n".join(["[mariadbd]", *lines, ""]))
    said = subprocess.run(["my_print_defaults", f"--defaults-file={path}", "mariadbd"], check=True, capture_output=True)
    assert said.stdout.decode() == "".join(f"--o{i}={value}\n" for i, (value, _text) in enumerate(found))


@with_modprobe
@settings(max_examples=20)
@given(values=st.lists(hard_values.texts, min_size=1, max_size=20))
def test_modprobe_reads_what_was_written(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "modprobe.conf"
    found = hard_values.written(file_values.module_options, values)
    path.write_text("".join(f"options o{i} x {text}y\n" for i, (_value, text) in enumerate(found)))
    said = subprocess.run(["modprobe", "--showconfig", "--dirname=/nowhere", f"--config={path}"], capture_output=True)
    shown = [line for line in said.stdout.decode().split("\n") if line.startswith("options o")]
    assert shown == [f"options o{i} x {value}y" for i, (value, _text) in enumerate(found)]


@given(value=hard_values.texts)
def test_the_registry_reads_yaml(value: str) -> None:
    """docker-registry reads each variable as YAML, after systemd (test_formats.py of the scenarios)."""
    for _value, text in hard_values.written(file_values.registry_variable, [value] if value.isprintable() else []):
        inner = json.dumps(value, ensure_ascii=False)
        assert text == systemd.environment_value(inner)
        assert yaml.safe_load(inner) == value


@given(value=hard_values.texts)
def test_no_format_writes_another_line(value: str) -> None:
    for form in FORMATS:
        for _value, text in hard_values.written(partial(written, form=form), [value]):
            assert not any(character in text for character in "\n\r\0")


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        ("slurm", "hash#inside", r"hash\#inside"),
        ("slurm", "a b", '"a b"'),
        ("slurm", "a\\", "a\\\\"),
        ("mariadb", "64M", "64M"),
        ("mariadb", True, "ON"),
        ("mariadb", "a#b", '"a#b"'),
        ("mariadb", " a", '" a"'),
        ("mariadb", 'C:\\ "x"', r'"C:\\ \"x\""'),
        ("mariadb", "", '""'),
        ("systemd", "nas:/vol%20", "nas:/vol%%20"),
        ("systemd_quoted", '/a "b"%\\', r'"/a \"b\"%%\\"'),
        ("registry", "a$b#c", r'"\"a\$b#c\""'),
        ("logrotate", "/var/log/a b", '"/var/log/a b"'),
        ("modprobe", r"NVreg_X=1\2", r"NVreg_X=1\\2"),
        ("line", 4, "4"),
    ],
)
def test_written(form: str, value: object, text: str) -> None:
    assert written(value, form) == text


@pytest.mark.parametrize(
    ("form", "value", "error"),
    [
        ("line", "a\nb", "found a newline (character 2), allowed: one line without tabs and control characters"),
        ("line", "\x07", "found the control character U+0007 (character 1), allowed: one line"),
        ("line", "a\udce4", "found a byte that is not UTF-8 (character 2), allowed: one line"),
        ("mariadb", None, "allowed: a text, a number or a boolean"),
        ("mariadb", "x" * 4001, "found 4001 bytes, allowed: up to 4000"),
        ("systemd", "a\\", "found a backslash at the end, allowed: a text that does not end in a backslash"),
        ("systemd", " a", "found a blank at an end"),
        ("logrotate", "/var/log/*", "found *, allowed: a path without quotes, backslashes and patterns"),
        ("slurm", 'a "b"', "has quotes and would have to be quoted"),
        ("nftables", "a", "found format 'nftables', allowed: line, logrotate, mariadb"),
    ],
)
def test_values_that_a_format_cannot_express(form: str, value: object, error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        written(value, form)


def test_passwords() -> None:
    passwords = {"a": "hash#inside", "b": "x\ny", "c": "", "d": 'my "own" secret', "e": 'my "own" secret'}
    forms = dict.fromkeys(passwords, "slurm") | {"e": "line"}
    assert password_errors(passwords, forms) == [
        "b: found a newline (character 2), allowed: one line without tabs and control characters",
        "c: found nothing, allowed: a password",
        "d: the password has quotes and would have to be quoted, which Slurm's parser would not read, "
        "allowed: another password",
    ]


@pytest.mark.parametrize("path", ["%h/.cache/enroot", "/run/enroot/%U", "/scratch/a-%u/x"])
def test_directories_of_users(path: str) -> None:
    assert directory_for("user")(path) == path


@pytest.mark.parametrize("path", ["$HOME/x", "/a b", "/x/%", "/x/%n", "x/%U", "/a/../b", "/`id`", "%hx", "/a;b", ""])
def test_paths_that_a_shell_would_take_otherwise(path: str) -> None:
    with pytest.raises(ValueError, match="allowed: "):
        directory_for("user")(path)


TIMES = [
    *("daily", "Hourly UTC", "02:30", "2:3:4.5", "Mon", "Mon..Fri 02:30", "Mon-Fri 2:30", "mon,tue *-*-1/2 4:0"),
    *("*:0/15", "*-*~1", "Mon *-05~07/1", "Sun *-*-8..14 03:00", "8..17:00", "3,4,5:00", "Monday..Friday", "Mon,Wed,"),
    *("02:00 UTC", "03-05 08:05:40", "biannually", "*:*", "*:*:*", "2099-01-01"),
]


@with_systemd
@pytest.mark.parametrize("value", TIMES)
def test_times_of_systemd(value: str) -> None:
    subprocess.run(["systemd-analyze", "calendar", "--", value], check=True, capture_output=True)
    assert systemd.calendar(value) == value


@pytest.mark.parametrize("value", TIMES)
def test_times_without_systemd(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_checks, "run_check", lambda _command: None)
    assert systemd.calendar(value) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("nonsense", "where 'nonsense' is neither a date nor a time"),
        ("dayly", "where 'daily' was probably meant"),
        ("*-*-* 25:00", "where 25 is no hour"),
        ("*-13-01", "where 13 is no month"),
        ("02:30:61", "where 61 is no second"),
        ("0 2 * * *", "which is no time"),
        ("", "which is no time"),
        ("-Mon", "where '-Mon' has something else than numbers"),
        ("--help", "where '--help' has something else than numbers"),
        ("*-*-* %i", "which is no time"),
        ("02:00  UTC", "which is no time"),
        ("02:00\nUnit=x.service", "found a newline"),
        ("\N{ARABIC-INDIC DIGIT TWO}:00", "which is no time"),
        ("x" * 10000, "a text of 10000 characters, allowed: up to 200"),
        ("weekly,daily", "neither a date nor a time"),
        ("12", "neither a date nor a time"),
    ],
)
def test_what_is_no_time_is_refused_without_systemd(value: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_checks, "run_check", lambda _command: None)
    with pytest.raises(ValueError, match=reason) as error:
        systemd.calendar(value)
    assert "allowed: " in str(error.value)


@with_systemd
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("02:00 Mars/Base", "which systemd cannot read"),
        ("2:00 PM", "which systemd cannot read"),
        ("Fri..Mon 1:00", "which systemd cannot read"),
        ("0/0:00", "which systemd cannot read"),
        ("*-02-30", "which never comes"),
        ("2001-01-01", "which never comes"),
        ("@1700000000", "which never comes"),
    ],
)
def test_what_only_systemd_knows_is_refused_by_it(value: str, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"{reason}.*, allowed: a time of systemd.time\(7\)"):
        systemd.calendar(value)


@with_systemd
def test_a_control_host_without_time_zones_leaves_them_to_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "_ZONES", "/nowhere")
    assert systemd.calendar("02:00 Mars/Base") == "02:00 Mars/Base"
    with pytest.raises(ValueError, match="never comes"):
        systemd.calendar("*-02-30 Europe/Berlin")
