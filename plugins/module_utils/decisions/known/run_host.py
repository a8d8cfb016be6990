# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the decisions of a run may know: a `RunHost`. Nothing in this package imports Ansible."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....plugin_utils.results.fact_records import HostFact
    from ....plugin_utils.results.module_results import HostAnswer

ANSWER = "__slurm_facts"
"""The result of slurm_host_facts, as tasks register it."""

TRUE_TEXTS = ("1", "on", "t", "true", "y", "yes")


class RunHost(Mapping[str, Any]):
    """A host of a run: its variables by name, and what the control host can tell about it.

    In a run it is a `TemplatedHost` (plugin_utils), in unit tests a `PlainHost` (tests/unit/plain_host.py).
    """

    @abstractmethod
    def of(self, name: str) -> RunHost:
        """A host of the inventory, without the variables of the role and of the task that run."""

    @abstractmethod
    def text(self, role: str, template: str, **variables: Any) -> str:
        """The text of a template of a role, rendered with the variables of this host and further ones."""

    @abstractmethod
    def content(self, path: str) -> bytes | None:
        """The content of a file on the control host, decrypted where ansible-vault encrypts it; None without one."""

    @abstractmethod
    def output(self, command: Sequence[str], directory: str) -> bytes:
        """What a command prints that runs on the control host in a directory, once in a run of this collection.

        Raises:
            ValueError: it has failed, or printed nothing. The text has the last line of its errors, no output.
        """

    @abstractmethod
    def resolve(self, names: Sequence[str]) -> dict[str, list[str]]:
        """The IP addresses of names, as the control host resolves them; none of a name that it cannot resolve."""

    @property
    @abstractmethod
    def writes_arguments(self) -> bool:
        """Whether Ansible writes the arguments of modules for this host into files of the control host."""

    @abstractmethod
    def extended(self, **variables: Any) -> RunHost:
        """The same host with further variables, which all hosts reached from it have."""

    @abstractmethod
    def option(self, role: str, name: str) -> Any:
        """A variable of a role: that of this host, or else the default of the role."""

    @abstractmethod
    def shared(self, name: str) -> Any:
        """What a function of decisions/shared.py says for all hosts of the cluster."""

    def flag(self, role: str, name: str) -> bool:
        """A variable of a role that is on or off. With `-e` it is a text, as Ansible's filter `bool` reads it."""
        value = self.option(role, name)
        return value.lower() in TRUE_TEXTS if isinstance(value, str) else bool(value)

    @abstractmethod
    def argument_options(self, role: str) -> dict[str, Any]:
        """The options in the argument spec of a role, by name."""

    @property
    @abstractmethod
    def known_variables(self) -> frozenset[str]:
        """The names of the variables of this collection: the options in the argument specs of all roles."""

    @property
    @abstractmethod
    def given_variables(self) -> frozenset[str]:
        """The names of the variables on the command line (-e)."""

    @property
    @abstractmethod
    def playbooks(self) -> list[str]:
        """The playbooks on the command line."""

    @property
    @abstractmethod
    def no_inventory(self) -> str:
        """Why the inventories on the command line have no cluster."""

    @property
    def name(self) -> str:
        """The name of the host in the inventory."""
        return str(self["inventory_hostname"])

    @property
    def check_mode(self) -> bool:
        """Whether this run changes nothing."""
        return bool(self.get("ansible_check_mode"))

    @property
    def play_hosts(self) -> list[str]:
        """The hosts of this play that have not failed."""
        return list(self["ansible_play_hosts"])

    @property
    def all_play_hosts(self) -> list[str]:
        """The hosts of this play, also those that have failed or were not reached."""
        return list(self["ansible_play_hosts_all"])

    def members(self, group: str) -> list[str]:
        """The hosts of a group, in the order of the inventory; none without the group."""
        return list(self["groups"].get(group) or [])

    def within(self, *groups: str) -> bool:
        """Whether this host is in one of the groups."""
        return any(group in groups for group in self["group_names"])

    def answer(self) -> HostAnswer | None:
        """The result of slurm_host_facts on this host; None before it has answered."""
        result: HostAnswer | None = self.get(ANSWER)
        return result if result and "slurm_host" in (result.get("ansible_facts") or {}) else None

    @property
    def facts_or_none(self) -> HostFact | None:
        """The facts of this host (`slurm_host` of the module slurm_host_facts); None before it has answered."""
        answer = self.answer()
        return answer["ansible_facts"]["slurm_host"] if answer is not None else None

    @property
    def facts(self) -> HostFact:
        """The facts of this host. Raises LookupError: it has not answered."""
        facts = self.facts_or_none
        if facts is None:
            raise LookupError(f"{self.name} has not answered slurm_host_facts")
        return facts
