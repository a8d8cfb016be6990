# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of a run as the decisions see it (module_utils/decisions), from Ansible's variables and templates."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import yaml
from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.module_utils.common.yaml import SafeLoader
from ansible.plugins.loader import become_loader, connection_loader
from ansible.template import trust_as_template
from ansible.utils.vars import load_extra_vars

from ..module_utils.cluster import removal
from ..module_utils.cluster.schema import plain
from ..module_utils.decisions.known import registered
from ..module_utils.decisions.known.run_host import ANSWER, RunHost
from ..module_utils.decisions.run import shared
from . import command_output, inventory_sources

ROLES = Path(__file__).parents[2] / "roles"


@cache
def role_defaults(role: str) -> dict[str, Any]:
    """The defaults of a role, as its file has them."""
    return yaml.safe_load((ROLES / role / "defaults/main.yml").read_text(encoding="utf-8")) or {}


PIPELINING = ("ansible_pipelining", "ansible_ssh_pipelining")
"""Variables with which a site switches Ansible's pipelining on or off."""

RUN = (
    "ansible_check_mode",
    "ansible_play_hosts",
    "ansible_play_hosts_all",
    "ansible_run_tags",
    "ansible_search_path",
    registered.SLURM_UPGRADES.name,
)
"""Variables of a run, which are not among those of another host."""


RESOLVERS = 50
"""Names that are resolved at the same time, since one without an answer takes seconds."""


def addresses_of(name: str) -> list[str]:
    """The IP addresses of a name; none if it has no answer."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return []


class Run:
    """What Ansible's main process knows of this run, and the processes of tasks inherit."""

    of_collection: ClassVar[bool] = False
    """Whether it is a playbook of this collection, in which the variables of a cluster are the same in all plays."""


def once(name: str, compute: Callable[[], Any]) -> Any:
    """A value of types that JSON has, which the first process of this run that asks for it computes for all.

    Ansible has a process for each task of a host, and a directory for a run, which it removes at its end.
    """
    path = f"{constants.DEFAULT_LOCAL_TMP}/gpucluster-{name}.json"
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        if not text:
            text = json.dumps(compute())
            file.write(text)
        return json.loads(text)


@cache
def argument_specs(role: str) -> dict[str, Any]:
    """The argument specs of a role, by entry point."""
    specs = yaml.load((ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8"), SafeLoader)
    return dict(specs["argument_specs"])


@cache
def known_variables() -> frozenset[str]:
    """The names of the options of all roles, and that of the nodes that the inventory plugin takes out."""
    specs = [spec for path in ROLES.iterdir() for spec in argument_specs(path.name).values()]
    return frozenset(name for spec in specs for name in spec.get("options") or ()) | {removal.OPTION}


class TemplatedHost(RunHost):
    """A host of a run. A variable is templated when it is read for the first time."""

    def __init__(
        self, variables: Mapping[str, Any], templar: Any, loader: Any, further: Mapping[str, Any] | None = None
    ) -> None:
        self._further = further or {}
        self._variables = {**variables, **self._further}
        self._templar = templar.copy_with_new_env(available_variables=self._variables)
        self._loader = loader
        self._read: dict[str, Any] = {}
        self._shared: dict[str, Any] = {}
        self._others: dict[str, TemplatedHost] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            value = self._raw(name)
            said = name == ANSWER and isinstance(value, dict)  # nothing in a result is a template
            self._read[name] = plain(value if said else self._templar.template(value))
        return self._read[name]

    def _raw(self, name: str) -> Any:
        if name not in self._variables and name in role_defaults("slurm"):
            return trusted(role_defaults("slurm")[name])
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def of(self, name: str) -> TemplatedHost:
        """A host of the inventory, without the variables of the role and of the task that run."""
        if name not in self._others:
            self._others[name] = self._other(name)
        return self._others[name]

    def _other(self, name: str) -> TemplatedHost:
        hostvars = self._variables["hostvars"]
        if name not in hostvars:
            raise LookupError(f"{name} is no host of the inventory")
        variables = {**hostvars.raw_get(name), "hostvars": hostvars}
        variables |= {run: self._variables[run] for run in RUN if run in self._variables}
        return TemplatedHost(variables, self._templar, self._loader, self._further)

    def extended(self, **variables: Any) -> TemplatedHost:
        """The same host with further variables, which all hosts reached from it have."""
        return TemplatedHost(self._variables, self._templar, self._loader, {**self._further, **variables})

    def shared(self, name: str) -> Any:
        """What a function of decisions/run/shared.py says for all hosts of the cluster."""
        if name not in self._shared:
            function = getattr(shared, name)
            # Of one host, so that it does not depend on which of them asks first. A play of a site, in which roles are
            # used alone, can have variables of its own.
            self._shared[name] = (
                once(
                    f"{name}{self._further.get('__slurm_case', '')}", lambda: function(self.of(self.all_play_hosts[0]))
                )
                if Run.of_collection
                else function(self)
            )
        return self._shared[name]

    def text(self, role: str, template: str, **variables: Any) -> str:
        """The text of a template of a role, rendered with the variables of this host and further ones."""
        known = {**trusted(role_defaults("slurm")), **self._variables, **variables}
        templar = self._templar.copy_with_new_env(available_variables=known)
        path = ROLES / role / "templates" / template
        return render(templar, self._loader, str(path))

    def content(self, path: str) -> bytes | None:
        """The content of a file on the control host, decrypted where ansible-vault encrypts it; None without one."""
        path = self._found(path)
        if not os.path.exists(path):
            return None
        try:
            # Decrypted if need be, into a file that is removed below, or by Ansible at its end.
            real = self._loader.get_real_file(path)
            content = Path(real).read_bytes()
            self._loader.cleanup_tmp_file(real)
        except OSError as error:
            raise AnsibleError(f"{path}: {error}") from error
        return content

    def output(self, command: Sequence[str], directory: str) -> bytes:
        """What a command prints that runs on the control host in a directory, once in a run of this collection."""
        return command_output.output(command, directory)

    def resolve(self, names: Sequence[str]) -> dict[str, list[str]]:
        """The IP addresses of names, as the control host resolves them; none of a name that it cannot resolve."""
        with ThreadPoolExecutor(RESOLVERS) as pool:
            return dict(zip(names, pool.map(addresses_of, names)))

    @property
    def writes_arguments(self) -> bool:
        """Whether Ansible writes the arguments of modules for this host into files of the control host."""
        own = self.of(self.name)  # a task has values of its own for these variables
        variables = {name: own[name] for name in PIPELINING if name in own}
        connection = str(own.get("ansible_connection") or constants.DEFAULT_TRANSPORT)
        plugin = connection_loader.get(connection, class_only=True)  # this reads its options
        become = become_loader.get(str(own.get("ansible_become_method") or constants.DEFAULT_BECOME_METHOD))
        pipelining = constants.config.get_config_value(
            "pipelining",
            plugin_type="connection",
            plugin_name=plugin.ansible_name.rpartition(".")[2],
            variables=variables,
        )
        return constants.DEFAULT_KEEP_REMOTE_FILES or not (pipelining and getattr(become, "pipelining", True))

    def _found(self, path: str) -> str:
        """A relative path is searched as Ansible's own lookups search it."""
        path = os.path.expandvars(os.path.expanduser(path))
        directories = self.get("ansible_search_path") or []
        places = [os.path.join(directory, part, path) for directory in directories for part in ("files", "")]
        return next((place for place in places if os.path.exists(place)), path)

    def option(self, role: str, name: str) -> Any:
        """A variable of a role: that of this host, or else the default of the role."""
        if name in self._variables:
            return self[name]
        return plain(self._templar.template(trusted(role_defaults(role)[name])))

    def argument_options(self, role: str) -> dict[str, Any]:
        """The options in the argument spec of a role, by name."""
        return dict(argument_specs(role)["main"]["options"])

    @property
    def known_variables(self) -> frozenset[str]:
        """The names of the variables of this collection: the options in the argument specs of all roles."""
        return known_variables()

    @property
    def given_variables(self) -> frozenset[str]:
        """The names of the variables on the command line (-e)."""
        return frozenset(load_extra_vars(self._loader))

    @property
    def playbooks(self) -> list[str]:
        """The playbooks on the command line."""
        return [str(playbook) for playbook in context.CLIARGS.get("args") or ()]

    @property
    def no_inventory(self) -> str:
        """Why the inventories on the command line have no cluster."""
        return inventory_sources.explain(map(str, context.CLIARGS.get("inventory") or ()))


def trusted(value: Any) -> Any:
    """A value of a file of this collection, whose texts may be templates."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: trusted(element) for key, element in value.items()}
    return [trusted(element) for element in value] if isinstance(value, list) else value


def render(templar: Any, loader: Any, path: str) -> str:
    """The text of a template file, as Ansible's own lookup and its module template render it."""
    text = trust_as_template(loader.get_text_file_contents(path))
    rendered = templar.template(text, escape_backslashes=False, overrides={"trim_blocks": True})
    return "" if rendered is None else str(rendered)  # of a template without any output
