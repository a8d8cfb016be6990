# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scripts that cannot run, compared with what execve(2) and the interpreters do with them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import script_checks
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.script_checks import (
    ScriptError,
    check_script,
    content_of,
    missing_path,
    why_not,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LATIN = b'#!/bin/bash\n# gr\xfc\xdfe\necho "gr\xfc\xdfe"\n'


def refusal(content: bytes, *, elsewhere: bool = False) -> str:
    """Why a script cannot run; empty if it can."""
    try:
        check_script(content, elsewhere=elsewhere)
    except ScriptError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "content",
    [
        b"#!/bin/bash\nexit 0\n",
        b"#! /bin/sh -e",
        b"#!/usr/bin/env bash\n",
        b"#!/usr/bin/env -S bash -eu\ntrue\n",
        b"#!/usr/bin/env -iS A=b bash\n",
        b"#!/usr/bin/env -S -u HOME bash\n",
        b"#!/usr/bin/env -S '${SHELL}' -x\n",
        b"#!/opt/site/tool --any\r\r x\n",
        LATIN,
        b"\x7fELF\x02\x01\0\0",
        b"#!/usr/bin/perl -w\r\nprint 1;\r\n",
        b"#!/usr/bin/env -S python3 -I\r\nprint(1)\r\n",
        b"#!/usr/bin/python3\nprint(1)\r\n",
        b"#!/usr/bin/python3\nfrom __future__ import annotations\n",
        b"#!/usr/bin/python3\n# -*- coding: latin-1 -*-\nprint('\xfc')\n",
        b"#!/bin/bash\n# a comment\r\ncat <<-'END' <<E\r\n\tone\r\n\tEND\n\rE\r\nE\r\n".replace(b"<<E\r", b"<<E"),
        b"#!/bin/bash\nshopt -s extglob\nls !(a|b)\n",
        b"#!/bin/bash\n. /opt/site/lib.sh\nls !(a|b)\n",
        b"#!/bin/sh\n[ -e /x ] && exit 0\ncat <<END\nno end\n",
    ],
)
def test_what_runs_is_accepted(content: bytes) -> None:
    assert refusal(content) == refusal(content, elsewhere=True) == ""


RETURNED = "which ends with a carriage return (CR LF)"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#!/bin/bash\r\nexit 0\r\n", f"line 1: found '#!/bin/bash\\r', {RETURNED}, a part of the last word for"),
        (b"#!/bin/bash -e\r\nexit 0\r\n", RETURNED),
        (b"#!/usr/bin/env bash\r\nexit 0\r\n", RETURNED),
        (b"#!/opt/tool x\r\n", r"allowed: lines that end with a newline only; sed -i 's/\r$//' FILE converts them"),
        (b"#!/bin/sh\n\ntrue\r\n", f"line 3: found 'true\\r', {RETURNED}, a part of the command for sh"),
        (
            b"#!/usr/bin/env -S bash -eu\r\nexit 0\r\n",
            f"line 2: found 'exit 0\\r', {RETURNED}, a part of the command for bash",
        ),
        (b"#!/bin/bash\nif true; then\n", "line 3: bash -n: syntax error: unexpected end of file"),
        (b"#!/bin/sh\nif true; then\n", "sh -n: Syntax error: end of file unexpected"),
        (b"#!/usr/bin/env -S bash -eu\nfi\n", "line 2: bash -n: syntax error near unexpected token `fi'"),
        (b"#!/bin/bash\nls !(a|b)\n", "line 2: bash -n: syntax error near unexpected token `('"),
        (b"#!/bin/bash\nshopt -s extglob\nls !(a|b)\nfi\n", "line 3: bash -n: syntax error"),
        (b'#!/bin/bash\ncat <<A\nx\nA\necho "\n', "bash -n: unexpected EOF while looking for matching"),
        (b"\xef\xbb\xbf#!/bin/sh\n", "line 1: begins with a byte order mark"),
        ("#!/bin/sh\n".encode("utf-16"), "line 1: begins with a byte order mark"),
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (
            b"echo\n",
            "line 1: found 'echo', which names no interpreter, allowed: #! and the path of an interpreter, such as",
        ),
        (b"#!/bin/bash\0\ntrue\n", "line 1: found '#!/bin/bash\\x00', which"),
        (b"#!\n", "line 1: found '#!', which names no interpreter, allowed"),
        (b"#!bash\n", "line 1: found '#!bash', which"),
        (b" #!/bin/sh\n", "line 1: found ' #!/bin/sh', which"),
        (b"#!/bin" + b"/" * 250 + b"sh\n", "line 1: its interpreter does not end within 255 bytes"),
        (b"#!/usr/bin/env\n", "which names no program, allowed: such as #!/usr/bin/env -S bash"),
        (b"#!/usr/bin/env -i\n", "which names no program"),
        (b"#!/usr/bin/env bash -e\n", "of which env makes one word, 'bash -e'"),
    ],
)
def test_what_cannot_run_is_refused_with_its_line(content: bytes, message: str) -> None:
    assert message in refusal(content)


def test_python_is_checked_where_it_runs_and_not_run(tmp_path: Path) -> None:
    content = f"#!/usr/bin/python3\nopen('{tmp_path}/ran', 'w')\nif True\n".encode()
    assert refusal(content) == "line 3: python3: expected ':'"
    assert refusal(content, elsewhere=True) == ""
    assert refusal(b"#!/usr/bin/python3\nx = '\xfc'\n").startswith("line 2: python3: (unicode error)") or refusal(
        b"#!/usr/bin/python3\nx = '\xfc'\n"
    ).startswith("line 1: python3: Non-UTF-8")
    assert not (tmp_path / "ran").exists()


def test_a_check_of_the_syntax_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even files that the environment names for shells."""
    (tmp_path / "env").write_text(f"touch {tmp_path}/ran\n")
    monkeypatch.setenv("BASH_ENV", f"{tmp_path}/env")
    monkeypatch.setenv("ENV", f"{tmp_path}/env")
    for shell in ("bash", "sh"):
        assert refusal(f"#!/bin/{shell}\ntouch {tmp_path}/ran\nset +n\ntouch {tmp_path}/ran\n".encode()) == ""
    assert not (tmp_path / "ran").exists()


def test_a_shell_of_the_site_is_not_asked(tmp_path: Path) -> None:
    """It could be a script, which would run."""
    shell = tmp_path / "bash"
    shell.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    shell.chmod(0o755)
    assert refusal(f"#!{shell}\nif true; then\n".encode()) == ""
    assert not (tmp_path / "ran").exists()


def test_other_hosts_can_have_other_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    """sh can be bash there, and a control host that is not Linux has an old bash."""
    content = b"#!/bin/sh\na=(1 2)\n"
    assert ("sh -n: Syntax error" in refusal(content), refusal(content, elsewhere=True)) == (True, "")
    assert "syntax error" in refusal(b"#!/bin/sh\nif true; then\n", elsewhere=True).lower()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert refusal(b"#!/bin/bash\nif true; then\n", elsewhere=True) == ""
    assert RETURNED in refusal(b"#!/bin/bash\r\n", elsewhere=True)


def test_bytes_that_are_not_utf_8_stay() -> None:
    assert content_of(LATIN.decode(errors="surrogateescape")) == LATIN
    with pytest.raises(ScriptError, match=r"line 2: found .*ud800"):
        content_of("#!/bin/sh\n\ud800\n")


# -- programs of a host ----------------------------------------------------------------------------------------------


def program(path: Path, content: bytes, mode: int = 0o755) -> Path:
    """A file of a host."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_the_programs_of_a_host(tmp_path: Path) -> None:
    bin_sh = program(tmp_path / "bin/sh", b"\x7fELF")
    found = {
        "/opt/runs": (b"#!/bin/sh\ntrue\n", 0o755, ""),
        "/opt/returned": (b"#!/bin/sh\r\n", 0o755, "line 1: found '#!/bin/sh\\r'"),
        "/opt/latin": (LATIN.replace(b"bash", b"sh"), 0o755, ""),
        "/opt/zsh": (b"#!/bin/zsh\n", 0o755, "needs /bin/zsh, which is missing"),
        "/opt/env": (b"#!/usr/bin/env sh\n", 0o755, "needs /usr/bin/env, which is missing"),
        "/opt/mode": (b"#!/bin/sh\n", 0o644, "is not executable"),
        "/opt/syntax": (b"#!/bin/sh\nif true; then\n", 0o755, "line 3: sh -n: "),
        "/opt/loop": (b"#!/opt/loop\n", 0o755, "has an interpreter that is a script"),
        "/opt/nested": (b"#!/opt/runs\n", 0o755, ""),
        "/opt/bad": (b"#!/opt/zsh\n", 0o755, "needs /opt/zsh, which needs /bin/zsh, which is missing"),
    }
    for path, (content, mode, _reason) in found.items():
        program(tmp_path / path[1:], content, mode)
    for path, (_content, _mode, reason) in found.items():
        assert reason in why_not(path, str(tmp_path)), path
        assert bool(reason) == bool(why_not(path, str(tmp_path))), path
    assert why_not("/opt/none", str(tmp_path)) == "is missing"
    assert why_not("/opt", str(tmp_path)) == "is no file"
    assert why_not("sh", str(tmp_path)) == ""
    assert why_not("zsh", str(tmp_path)) == "is missing"
    (tmp_path / "opt/link").symlink_to(bin_sh)
    assert why_not("/opt/link", str(tmp_path)) == ""


def test_what_is_missing() -> None:
    assert missing_path("/opt/a", "is missing") == "/opt/a"
    assert missing_path("/opt/a", "needs /bin/zsh, which is missing") == "/bin/zsh"
    assert missing_path("/opt/a", "needs /opt/b, which needs /bin/zsh, which is missing") == "/bin/zsh"
    assert missing_path("/opt/a", "is not executable") == missing_path("/opt/a", "line 1: it is missing") == ""


def test_real_programs() -> None:
    assert [why_not(path) for path in (sys.executable, "/bin/sh", "bash", "env")] == ["", "", "", ""]


def test_a_file_system_without_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "a", b"#!/bin/sh\n")
    real = os.statvfs(path)
    monkeypatch.setattr(os, "statvfs", lambda _path: type("Status", (), {"f_flag": real.f_flag | os.ST_NOEXEC}))
    assert why_not(str(path)) == "is on a file system that is mounted with noexec"


# -- properties ------------------------------------------------------------------------------------------------------

PROPERTY = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def run(content: bytes) -> tuple[bool, bytes, bytes]:
    """Run a script as Slurm does, by execve(2) without PATH: whether it was started, its output and its errors."""
    with tempfile.TemporaryDirectory() as directory:
        path = program(Path(directory) / "script", content)
        try:
            done = subprocess.run([path], env={}, capture_output=True, timeout=20, check=False, cwd=directory)
        except OSError:
            return False, b"", b""
        return True, done.stdout, done.stderr


FIRST_LINES = st.builds(
    lambda start, blank, slashes, path, argument, end: (
        start + blank + b"/" * slashes + path + (b" " + argument if argument else b"") + end
    ),
    st.sampled_from([b"#!", b"#!", b"#!", b"#!", b"# !", b"\xef\xbb\xbf#!", b"", b"!#"]),
    st.sampled_from([b"", b"", b" ", b"\t "]),
    st.sampled_from([0, 1, 1, 1, 2, 100, *range(236, 252)]),
    st.sampled_from([b"bin/sh", b"bin/bash", b"usr/bin/env", b"bin/no-shell", b"usr/bin"]),
    st.sampled_from([b"", b"", b"-e", b"-e ", b"-S bash -eu", b"-iS bash", b"sh", b"bash -e", b"no-shell", b"A=b"]),
    st.sampled_from([b"\n", b"\n", b"\r\n", b"\r\n", b" \n", b"\t\r\n"]),
)


@PROPERTY
@given(FIRST_LINES)
def test_first_lines_are_judged_as_the_kernel_and_env_judge_them(line: bytes) -> None:
    """Those that `env` would start without end, as it gets no program but the script, are refused without a try."""
    content = line + b"echo ran\n"
    error = refusal(content)
    if error:
        assert "names no program" in error or run(content)[1] != b"ran\n"
        return
    found = script_checks.interpreter(content)
    there = found.is_shell and all(why_not(needed) == "" for needed in found.needed)
    # What a shell itself does with its argument is not judged.
    if found.needed[0].endswith("/env") or re.search(rb"bin/(ba)?sh( -e)?\s*$", line):
        assert (run(content)[1] == b"ran\n") == there


LINES = st.sampled_from(
    [
        b"true",
        b"if true; then",
        b"fi",
        b"for x in 1 2; do",
        b"done",
        b"# comment",
        b"# comment\r",
        b"true\r",
        b": \r",
        b"x='gr\xfc\xdfe'",
        b"echo \xe9 >&2",
        b"y='open",
        b"'",
        b"cat <<END >&2",
        b"END",
        b"END\r",
        b"shopt -s extglob",
        b"z=${x//+(a)/b}",
        b"ls -d !(b) >&2",
        b"f() {",
        b"}",
        b"case $x in a) ;;",
        b"esac",
        b"a=(1 2",
        b")",
    ]
)


@PROPERTY
@given(st.sampled_from([b"bash", b"sh"]), st.lists(LINES, max_size=6))
def test_bodies_are_judged_as_the_shell_judges_them(shell: bytes, lines: list[bytes]) -> None:
    """What is refused is what the shell complains about when it comes there.

    A pattern such as !(b) is accepted where the script can allow it, although that may happen too late.
    """
    content = b"\n".join([b"#!/bin/" + shell, *lines, b"echo ran\n"])
    error = refusal(content)
    started, _output, errors = run(content)
    assert started
    complaint = re.search(rb"syntax error|unexpected|bad substitution", errors.lower())
    if not error:
        assert not complaint or complaint[0].startswith(b"bad") or b"!(b)" in content
    elif RETURNED not in error:
        assert complaint
        assert error.startswith("line ")
