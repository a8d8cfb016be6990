# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of files; whole files are in the tests of the modules."""

from __future__ import annotations

import os
import pwd
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import (
    FileError,
    from_base64,
    from_options,
    from_secret_options,
    opener,
    part_of,
    replace,
    temporary_file,
    with_part,
    write_new,
)

MARKER = "# {mark} x"


@contextmanager
def full_disk() -> Iterator[None]:
    """A write of more than 10 bytes fails without a path, as on a full disk. pytest may write to a file itself."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_names_the_file(tmp_path: Path) -> None:
    path, content = tmp_path / "slurm.conf", "x" * 20000
    with pytest.raises(OSError, match=r"File too large: .*/slurm.conf'"), full_disk():
        replace(from_options([{"path": str(path), "content": content, "mode": "0644"}]))
    with pytest.raises(OSError, match=r"File too large: .*/slurm.conf'"), full_disk():
        write_new(str(path), content.encode(), 0o600)
    named = pytest.raises(OSError, match=r"File too large: .*/file.x'")
    with named, full_disk(), temporary_file(content.encode(), ".x"):
        pass


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (b"a\n# BEGIN x\nb\nc\n# END x\nd\n", b"b\nc\n"),
        (b"# BEGIN x\n# END x", b""),
        (b"# BEGIN y\nb\n# END y\n", None),
        (b"# END x\n# BEGIN x\nb\n", None),
        (b"", None),
    ],
)
def test_the_part_of_a_file(whole: bytes, part: bytes | None) -> None:
    assert part_of(whole, MARKER) == part


@pytest.mark.parametrize(
    ("whole", "after"),
    [
        (b"a\n# BEGIN x\nb\n# END x\nd\n", b"a\n# BEGIN x\nNEW\n# END x\nd\n"),
        (b"a", b"a\n# BEGIN x\nNEW\n# END x\n"),
        (b"\xff\r\n\n", b"\xff\r\n\n# BEGIN x\nNEW\n# END x\n"),
        (b"", b"# BEGIN x\nNEW\n# END x\n"),
    ],
)
@pytest.mark.parametrize("part", [b"", b"n\n", b"n1\nn2\n"])
def test_another_part_leaves_the_rest_as_it_is(whole: bytes, after: bytes, part: bytes) -> None:
    wanted = after.replace(b"NEW\n", part)
    assert with_part(whole, part, MARKER) == wanted
    assert with_part(wanted, part, MARKER) == wanted
    assert part_of(wanted, MARKER) == part


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "99"}, "mode: found '99', allowed: three or four octal digits such as 0644"),
        ({"mode": "-644"}, "mode: found '-644', allowed: three or four octal digits such as 0644"),
        ({"mode": "77777"}, "mode: found '77777', allowed: three or four octal digits such as 0644"),
        ({"path": "x"}, "path: found 'x', allowed: an absolute path"),
        ({"path": "/etc"}, "/etc: found a directory, allowed: a file"),
        ({"marker": "# x"}, "/none: marker: found '# x', allowed: one line with {mark}"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(FileError) as error:
        from_options([{"path": "/none", "content": "", "mode": "0644", **options}])
    assert str(error.value) == message


def test_a_secret_that_is_not_base64_is_not_shown() -> None:
    assert from_base64("munge.key", "a2\nV5\n") == b"key"
    with pytest.raises(FileError, match=r"^munge.key: the secret is not base64$"):
        from_base64("munge.key", "geheim!")


@pytest.mark.parametrize("umask", [0, 0o077])
def test_a_secret_file_is_closed_and_its_diff_shows_nothing(tmp_path: Path, umask: int) -> None:
    path, owner, before = tmp_path / "key", pwd.getpwuid(os.getuid()).pw_name, os.umask(umask)
    try:
        (file,) = from_secret_options([{"path": str(path), "secret": "a2V5", "owner": owner, "mode": "0400"}])
        replace([file])
    finally:
        os.umask(before)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"key", 0o400)
    assert "key\n" not in str(file.diff["after"])
    assert not from_secret_options([{"path": str(path), "secret": "a2V5", "owner": owner, "mode": "0400"}])[0].changes


@pytest.fixture(name="no_umask")
def without_umask() -> Iterator[None]:
    """A umask that removes nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_a_file_has_the_mode_of_its_opener(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w", encoding="utf-8", opener=opener(0o644)) as file:
        file.write("x")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
