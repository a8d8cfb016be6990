# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SPANK plugins: the lines that name them, and the release of Slurm that a plugin file was built for.

Each plugin of Slurm has a symbol `plugin_version`, SLURM_VERSION_NUMBER of the headers it was compiled with: a byte
each for major, minor and micro. Slurm loads a SPANK plugin if major and minor are its own (`_verify_syms` in
`src/common/plugin.c`); a required one that it does not load ends each job.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..language.errors import CollectionError
from ..language.formatting import shown

SYMBOL = b"plugin_version"

_DYNSYM = 11  # SHT_DYNSYM of elf(5), symbols that dlsym finds
_HEADER = struct.Struct("<4sBB10x24xQ10xHHH")  # magic, class, data; shoff, shentsize, shnum, shstrndx
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def plugstack_lines(plugins: Iterable[Mapping[str, Any]]) -> str:
    """The lines of plugstack.conf for plugins with their `plugin`, `arguments` and whether they are `required`.

    Slurm separates words by blanks, reads `#` as the start of a comment everywhere and has no quotes
    (`_plugin_stack_parse_line` in `src/common/spank.c`). A plugin that is named twice runs twice.

    Raises:
        ValueError: names the plugin and the word that Slurm would not take as it is, or that it is named twice.
    """
    lines: dict[str, str] = {}
    for entry in plugins:
        plugin = str(entry["plugin"])
        words = [plugin, *map(str, entry.get("arguments") or [])]
        for word in words:
            if not word or "#" in word or word.split() != [word]:
                raise ValueError(f"{plugin}: found {shown(word)}, allowed: a word without blanks and '#'")
        if plugin in lines:
            raise ValueError(f"{plugin} is listed twice, and would run twice")
        lines[plugin] = " ".join(["required" if entry.get("required") else "optional", *words])
    return "\n".join(lines.values())


class PluginError(CollectionError):
    """The file is not a Slurm plugin, or cannot be read."""


@dataclass(frozen=True)
class _Section:
    """The used fields of an entry in the table of sections."""

    kind: int
    address: int
    offset: int
    size: int
    link: int


def plugin_release(data: bytes) -> str:
    """The release that a plugin is for, such as `24.11`.

    data: the shared object, ELF of 64 bits, little endian as on x86-64 and arm64.

    Raises:
        PluginError: it is none, or has no such symbol.
    """
    try:
        sections = [*_sections(data)]
        value, number = _find(data, sections)
        section = sections[number]
        (version,) = struct.unpack_from("<I", data, section.offset + value - section.address)
    except (struct.error, IndexError, OverflowError, ValueError):  # a table or a name leads nowhere
        raise PluginError("cut off or damaged") from None
    return f"{version >> 16 & 0xFF}.{version >> 8 & 0xFF:02}"


def _sections(data: bytes) -> Iterator[_Section]:
    """The table of sections."""
    magic, width, order, offset, size, count, _names = _HEADER.unpack_from(data)
    if (magic, width, order) != (b"\x7fELF", 2, 1):
        raise PluginError("not a 64-bit little-endian shared object")
    for number in range(count):
        _name, kind, _flags, address, start, length, link, *_rest = _SECTION.unpack_from(data, offset + number * size)
        yield _Section(kind, address, start, length, link)


def _find(data: bytes, sections: list[_Section]) -> tuple[int, int]:
    """Address of the symbol, and the number of its section."""
    for table in (section for section in sections if section.kind == _DYNSYM):
        names = sections[table.link].offset
        for place in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, _info, _other, section, value, _size = _SYMBOL.unpack_from(data, place)
            start = names + name
            if section and data[start : data.index(b"\0", start)] == SYMBOL:
                return value, section
    raise PluginError("not a Slurm plugin: it has no symbol plugin_version")
