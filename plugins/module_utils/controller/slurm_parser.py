# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parser of the installed Slurm reads in a file, by its own library.

No program of Slurm shows the password in slurmdbd.conf. slurmdbd reads its files by `s_p_parse_file` of libslurmfull.so
(`read_slurmdbd_conf` in `src/slurmdbd/read_config.c`), and so does this module.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import tempfile
from collections.abc import Callable
from typing import Any

from ..client.commands import run
from ..configuration.conf_file import ConfigurationError, lines, value_text
from ..host.files import File, write

_STRING = 1  # S_P_STRING of slurm_parser_enum_t (src/common/parse_config.h), the same in all releases
_FAILED = 1
_LONGEST = 10
"""Seconds. Slurm waits a minute for a file that is not there."""


class _Option(ctypes.Structure):
    """s_p_options_t: a key with its type, without functions of its own."""

    _fields_ = (
        ("key", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("handler", ctypes.c_void_p),
        ("destroy", ctypes.c_void_p),
        ("line_options", ctypes.c_void_p),
    )


def library_of(program: str) -> str | None:
    """The path of libslurmfull.so that a program of Slurm loads; None for a program that is linked statically."""
    match = re.search(r"=> (\S+/libslurmfull\S*)", run(["ldd", program]).output)
    return match[1] if match else None


def parsed(library: str, path: str, key: str) -> str | None:
    """The value of a parameter in a file, as Slurm's parser reads it; None if the parser does not read the file.

    The parser runs in a process of its own, which it may end, and which has no output: its messages have parts of the
    file.
    """
    read_end, write_end = os.pipe()
    if (child := os.fork()) == 0:
        status = _FAILED
        try:
            os.close(read_end)
            status = _say(library, path, key, write_end)
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        said = answer.read()
    _child, status = os.waitpid(child, 0)
    return said.decode(errors="replace") if status == 0 else None


def secret_problem(name: str, text: str, library: str | None) -> str:
    """Why Slurm would read other values in a file with secrets than the ones that it was written for; empty if it reads
    these. The message shows no value.

    name: of the file. text: its lines, `Key=value`. library: Slurm's; None where its parser cannot be asked.
    """
    try:
        pairs = [pair for line in lines(name, text) for pair in line]
        rewritten = "".join(f"{key}={value_text(value)}\n" for key, value in pairs)
    except (ConfigurationError, ValueError):
        rewritten = ""
    if rewritten != text:  # a `#` that is not escaped, for example
        return f"{name}: a value is not written as Slurm's parser reads it"
    if library is None:
        return ""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, name)
        write([File(path, text.encode(), mode=0o600)])
        for key, value in pairs:
            if parsed(library, path, key) != value:
                return f"{name}: {key}: the parser of the installed Slurm reads another value than the given one"
    return ""


def _say(library: str, path: str, key: str, output: int) -> int:
    """In the child: write the value to a file descriptor. Returns the status of the process."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the parser may end the process in any way
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LONGEST)
    value = parser(library)(path, key)
    if value is None:
        return _FAILED
    os.write(output, value)
    return 0


def parser(library: str) -> Callable[[str, str], bytes | None]:
    """Slurm's parser as a function of a path and a key. It may end the process.

    The last two arguments of `s_p_parse_file` are others in other releases; 0 is right in each of them.
    """
    loaded = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    create, destroy = loaded.slurm_s_p_hashtbl_create, loaded.slurm_s_p_hashtbl_destroy
    parse_file, get_string = loaded.slurm_s_p_parse_file, loaded.slurm_s_p_get_string
    create.argtypes, create.restype = [ctypes.POINTER(_Option)], ctypes.c_void_p
    destroy.argtypes = [ctypes.c_void_p]
    parse_file.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p]
    get_string.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_char_p, ctypes.c_void_p]

    def read(path: str, key: str) -> bytes | None:
        """The value; None if the file or the key is wrong."""
        options: Any = (_Option * 2)(_Option(key=key.encode(), type=_STRING), _Option())
        table, value = create(options), ctypes.c_char_p()
        wrong = parse_file(table, None, path.encode(), 0, None)
        result = None if wrong or not get_string(ctypes.byref(value), key.encode(), table) else value.value
        destroy(table)
        return result

    return read
