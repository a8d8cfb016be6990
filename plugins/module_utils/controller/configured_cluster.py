# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's files together, the host of slurmctld, and what a rule finds wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..configuration.conf_file import Configuration
from ..language.spelling import nearest


class Finding(NamedTuple):
    """A contradiction."""

    place: str
    """The file, and the line in it: `slurm.conf: PartitionName=gpu`."""
    key: str
    text: str
    """The found value, the allowed values, and the nearest of them."""
    effect: str
    """REFUSED or IGNORED."""


@dataclass(frozen=True)
class Host:
    """The properties of slurmctld's host, apart from the checked files."""

    text: Callable[[str], str | None]
    """The text of another file, by its path or its name next to slurm.conf; None: it is not there."""
    plugins: Callable[[str], frozenset[str] | None]
    """The plugins (`auth_munge`) in a PluginDir, or in that of the installed Slurm for ''; None: not known."""
    unresolved: Callable[[Iterable[str]], Iterable[str]]
    """Of many host names, those that have no address here."""
    account: Callable[[str], str | None] = str
    """The name of a user, by the name or the number; None: there is no such user."""
    started_as: Callable[[str], str | None] = lambda _daemon: None
    """The user as whom systemd starts a daemon; root can become any, as None is not known."""
    writes: Callable[[str, str], bool] = lambda _account, _path: True
    """Whether a user can write a directory, or it is not there."""


@dataclass(frozen=True)
class ConfiguredCluster:
    """The settings of all files together."""

    says: Configuration
    lines: list[tuple[str, str, dict[str, str]]]
    """Lines of slurm.conf with parameters of their own: kind, name, the others by their key in small letters."""
    gres_conf: bool
    """Whether there is a gres.conf."""
    host: Host
    release: str
    """The release of Slurm, such as 24.11."""

    def get(self, key: str, default: str = "", file: str = "slurm.conf") -> str:
        """The value of a parameter."""
        return self.says.settings.get((file, key.lower()), ("", default))[1]

    def list_of(self, key: str) -> list[str]:
        """The value of a parameter that is a list with commas."""
        return [word.strip() for word in self.get(key).split(",") if word.strip()]

    def of_kind(self, kind: str) -> list[tuple[str, dict[str, str]]]:
        """The lines of a kind."""
        return [(name, values) for line, name, values in self.lines if line == kind]

    @cached_property
    def nodes(self) -> dict[str, dict[str, str]]:
        """The parameters of each node by their key in small letters."""
        return {name: {key.lower(): value for key, value in pairs} for name, pairs in self.says.nodes.items()}

    @cached_property
    def partitions(self) -> dict[str, dict[str, str]]:
        """The parameters of each partition by their key in small letters."""
        return {name: {key.lower(): value for key, value in pairs} for name, pairs in self.says.partitions.items()}

    @property
    def slurmdbd(self) -> bool:
        """Whether there is a database (`slurm_with_slurmdbd`)."""
        return self.get("AccountingStorageType").lower().endswith(("/slurmdbd", "/ctld_relay"))


def suggest(name: str, names: Iterable[str]) -> str:
    """The nearest name, as the end of a sentence."""
    match = nearest(name, names)
    return f", did you mean {match!r}?" if match else ""
