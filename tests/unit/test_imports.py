# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directions of imports between the plugins and the packages of module_utils: docs/design/rooms.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "plugins"
OURS = "ansible_collections.gpucluster.slurm.plugins."
ON_HOSTS = ("module_utils", "modules")
"""Kinds of plugins that run on hosts."""

DOCUMENT = (ROOT / "docs/design/rooms.md").read_text()
TABLE = {
    row[0].strip(" `"): {*re.findall(r"`([^`]+)`", row[2])}
    for line in DOCUMENT.partition("\n## ")[0].splitlines()
    if line.startswith("| `") and len(row := line.strip("|").split("|")) == 3
}
"""The packages that a package may import."""

CLIENTS = {
    "module_utils/client/scontrol",
    "module_utils/accounting/sacctmgr",
    "module_utils/controller/daemons",
    "module_utils/controller/trial_start",
}
"""Modules that speak to a running Slurm, or start one."""
WITHOUT_SLURM = ("cluster", "configuration", "configuration/parameter_tables", "nodes", "filter", "inventory")
"""Packages that reach none of them."""

MODULES = {path.relative_to(PLUGINS).with_suffix("").as_posix(): path for path in sorted(PLUGINS.rglob("*.py"))}
"""Files by module, such as `module_utils/cluster/model`."""


def package_of(module: str) -> str:
    """The package of a module: the longest name in the table that is its beginning, or else its folder."""
    place = module.removeprefix("module_utils/")
    packages = [package for package in TABLE if f"{place}/".startswith(f"{package}/")]
    return max(packages, key=len) if packages else place.rpartition("/")[0] or place


def imported(module: str, for_mypy: bool = True) -> Iterator[str]:
    """The dotted names that a module imports, or only those that it imports when it runs."""
    tree = ast.parse(MODULES[module].read_text())
    if not for_mypy:
        tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = f"{OURS}{module.replace('/', '.')}".rsplit(".", node.level)[0] + "." if node.level else ""
            yield from (f"{start}{node.module or ''}.{alias.name}".replace("..", ".") for alias in node.names)


def own_module(name: str) -> str:
    """The module of this collection that has a dotted name, or that is the one in which the name is defined."""
    place = name.removeprefix(OURS).replace(".", "/")
    return place if place in MODULES else place.rpartition("/")[0]


IMPORTS = {
    module: {own_module(name) for name in imported(module) if name.startswith(OURS)} - {module} for module in MODULES
}
"""Modules of this collection by the module that imports them."""


def reached(starts: set[str], arrows: dict[str, set[str]]) -> set[str]:
    """All that can be reached, the starts themselves only by a detour."""
    found: set[str] = set()
    following = {target for start in starts for target in arrows[start]}
    while following:
        found |= following
        following = {target for module in following for target in arrows[module]} - found
    return found


def test_each_name_of_a_file_is_used_once() -> None:
    names = [module.rpartition("/")[2] for module in MODULES if module.startswith("module_utils/")]
    assert [name for name in names if name != "__init__" and names.count(name) > 1] == []


def test_each_file_is_in_a_package() -> None:
    assert [*(PLUGINS / "module_utils").glob("*.py")] == []


def test_imports_of_the_collection_are_relative() -> None:
    """A program of a host has the same modules below another name."""
    assert [module for module, path in MODULES.items() if f"from {OURS}" in path.read_text()] == []


def test_each_import_is_of_a_file() -> None:
    assert {target for targets in IMPORTS.values() for target in targets} <= {*MODULES}


def test_the_table_has_each_package() -> None:
    assert {package_of(module) for module in MODULES} == {*TABLE}


@pytest.mark.parametrize("package", TABLE)
def test_a_package_imports_what_the_table_names(package: str) -> None:
    """An import that no longer exists must not stay allowed."""
    targets = {package_of(target) for module in MODULES if package_of(module) == package for target in IMPORTS[module]}
    assert targets - {package} == TABLE[package]


@pytest.mark.parametrize("package", TABLE)
def test_no_package_imports_itself_by_a_detour(package: str) -> None:
    assert package not in reached({package}, TABLE)


def test_no_module_imports_itself_by_a_detour() -> None:
    assert [module for module in MODULES if module in reached({module}, IMPORTS)] == []


@pytest.mark.parametrize("package", WITHOUT_SLURM)
def test_no_client_of_a_running_slurm_is_reached(package: str) -> None:
    assert {*MODULES} > CLIENTS
    own = {module for module in MODULES if package_of(module) == package}
    assert own
    assert reached(own, IMPORTS) & CLIENTS == set()


def test_what_runs_on_hosts_imports_nothing_else_of_ansible() -> None:
    strange = {
        (module, name)
        for module in MODULES
        if module.startswith(ON_HOSTS)
        for name in imported(module, for_mypy=False)
        if name.startswith("ansible") and not name.startswith(("ansible.module_utils.", f"{OURS}module_utils."))
    }
    assert strange == set()


PROGRAMS = [module for module in MODULES if package_of(module) == "programs"]


def test_programs_need_nothing_of_ansible() -> None:
    """A host has Python alone."""
    found = {*PROGRAMS} | reached({*PROGRAMS}, IMPORTS)
    assert {(module, name) for module in found for name in imported(module) if name.startswith("ansible.")} == set()


def test_packages_need_no_init() -> None:
    assert [*PLUGINS.rglob("__init__.py")] == []


def test_no_two_modules_have_a_class_of_the_same_name() -> None:
    names: dict[str, list[str]] = {}
    for module in MODULES:
        if module.startswith("module_utils/"):
            for node in ast.parse(MODULES[module].read_text()).body:
                if isinstance(node, ast.ClassDef):
                    names.setdefault(node.name.strip("_"), []).append(module)
    assert {name: modules for name, modules in names.items() if len(modules) > 1} == {}
