# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs in Python for hosts: modules of this collection, with those that they import (docs/design/programs.md)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath

from ...host import program_library
from .packages import MANAGED
from .shipped_files import COLLECTION, HostFile

MODULES = COLLECTION / "plugins/module_utils"

PACKAGE = "gpucluster_slurm"
"""The name of `module_utils` on a host."""

_IMPORT = re.compile(r"^from (\.+)([\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
"""An import that is executed when the module is loaded; those for types alone are indented."""

_OTHERS = (".j2", ".css", ".js")
"""Files that a package of `programs` reads, apart from modules."""

_STARTER = """#!/usr/bin/python3 -IB
{mark}
import sys

sys.path.insert(0, "{directory}")

from gpucluster_slurm.{module} import main

sys.exit(main())
"""

_SENT = """import sys
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec


class Sent(InspectLoader):
    def find_spec(self, name, path=None, target=None):
        path = name.replace(".", "/")
        if path + ".py" in SOURCES or any(known.startswith(path + "/") for known in SOURCES):
            return ModuleSpec(name, self, is_package=path + ".py" not in SOURCES)

    def get_source(self, name):
        return SOURCES.get(name.replace(".", "/") + ".py", "")


SOURCES = {sources}
sys.meta_path.insert(0, Sent())

from gpucluster_slurm.{module} import main

sys.exit(main())
"""
"""A program as one text, for a host that keeps nothing of it."""

_LOCAL = """import sys
from types import ModuleType

package = sys.modules["gpucluster_slurm"] = ModuleType("gpucluster_slurm")
package.__path__ = [{modules!r}]

from gpucluster_slurm.{module} import main

sys.exit(main())
"""
"""A program that reads the modules of this collection where it is."""


def _imported(path: str, text: str) -> Iterator[str]:
    """The modules that a module of module_utils imports, as paths below it."""
    for dots, name, several, one in _IMPORT.findall(text):
        place = PurePosixPath(path).parents[len(dots) - 1].joinpath(*name.split("."))
        if (MODULES / place).with_suffix(".py").is_file():
            yield f"{place}.py"
        else:
            names = re.findall(r"(\w+)(?: as \w+)?", several or one)
            yield from (f"{place / name}.py" for name in names)


@cache
def sources(module: str) -> Mapping[str, str]:
    """The texts of a module of `module_utils`, such as `programs.gpus`, and of all that it imports, by their paths.

    The templates of a package below `programs` belong to its modules.
    """
    found: dict[str, str] = {}
    following = [f"{module.replace('.', '/')}.py"]
    while following:
        path = following.pop()
        if path not in found:
            found[path] = (MODULES / path).read_text(encoding="utf-8")
            following += _imported(path, found[path])
    packages = {PurePosixPath(path).parent for path in found if path.startswith("programs/") and path.count("/") > 1}
    others = [path for package in packages for path in (MODULES / package).iterdir() if path.suffix in _OTHERS]
    found.update({path.relative_to(MODULES).as_posix(): path.read_text(encoding="utf-8") for path in others})
    return dict(sorted(found.items()))


def library_directory(name: str) -> str:
    """The directory of a library, with all of its contents, for its removal."""
    return f"{program_library.LIBRARY}/{name}"


def library(name: str, programs: Mapping[str, str], mark: str = MANAGED) -> list[HostFile]:
    """Programs and their library, as files of slurm_files, slurm_packages and slurm_service.

    Args:
        name: the name of the library. The programs of a library are written by one task.
        programs: a module with a function `main` for each path of a program.
        mark: the line by which the program is known as ours.
    """
    texts = {path: text for module in programs.values() for path, text in sources(module).items()}
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:12]
    directory = f"{library_directory(name)}/{digest}"
    modules: list[HostFile] = [
        {"path": f"{directory}/{PACKAGE}/{path}", "content": text} for path, text in sorted(texts.items())
    ]
    starters: list[HostFile] = [
        {"path": path, "content": _STARTER.format(directory=directory, mark=mark, module=module), "mode": "0755"}
        for path, module in programs.items()
    ]
    return [*modules, *starters]


def sent(module: str) -> str:
    """A program with all that it imports as one text, which Python reads from its standard input or a file."""
    texts = {f"{PACKAGE}/{path}": text for path, text in sources(module).items() if path.endswith(".py")}
    return _SENT.replace("{module}", module).replace("{sources}", repr(texts))


def local(module: str) -> str:
    """A program for the control host, as an argument of `python -c`."""
    return _LOCAL.format(module=module, modules=str(MODULES))


def program_of(text: str) -> str:
    """The module of a starter, or of a program that is sent, as a file of module_utils; empty for another text."""
    found = re.search(r"^from gpucluster_slurm\.([\w.]+) import main\n\nsys\.exit\(main\(\)\)\n\Z", text, re.MULTILINE)
    path = f"{found[1].replace('.', '/')}.py" if found else ""
    if not found or not (MODULES / path).is_file():
        return ""
    mark, directory = text.split("\n")[1], program_library.directory_of(text)
    starter = _STARTER.format(directory=directory, mark=mark, module=found[1])
    return path if text in (starter, sent(found[1])) else ""
