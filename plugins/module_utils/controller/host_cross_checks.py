# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about what slurmctld's host must have: users, plugins and programs (`cross_checks`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..configuration.parameter_tables import releases
from ..configuration.parameter_tables.choices import NONE_IN_ANY_CASE, PLUGINS
from ..configuration.parameter_values import without_version, words
from ..configuration.parameters import FILES, REFUSED
from ..host.script_checks import ScriptError, check_script, content_of
from .configured_cluster import ConfiguredCluster, Finding, suggest

# -- users -----------------------------------------------------------------------------------------------------------


def check_users(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Users that do not exist, or as whom a daemon does not start.

    Users must exist (`_validate_and_set_defaults`). slurmctld becomes SlurmUser, which only root can
    (`become_slurm_user` in `src/slurmctld/controller.c`), and writes its state as that user (`set_slurmctld_state_loc`
    there). slurmd ends if it runs as another user than SlurmdUser (`main` in `src/slurmd/slurmd/slurmd.c`); its unit
    starts it as root.
    """
    host = cluster.host
    name = cluster.get("SlurmUser", "root")
    user, starter = host.account(name), host.started_as("slurmctld")
    state = cluster.get("StateSaveLocation")
    if user is None:
        yield Finding("slurm.conf", "SlurmUser", f"found {name!r}, allowed: a user of this host", REFUSED)
    elif starter not in (None, "root", user):
        what = f"found {name!r}, allowed: {starter}, the user of slurmctld.service"
        yield Finding("slurm.conf", "SlurmUser", what, REFUSED)
    elif state and not host.writes(user, state):
        what = f"found {state!r}, allowed: a directory that SlurmUser {name!r} can write"
        yield Finding("slurm.conf", "StateSaveLocation", what, REFUSED)
    daemon = cluster.get("SlurmdUser", "root")
    if host.account(daemon) != "root":
        yield Finding("slurm.conf", "SlurmdUser", f"found {daemon!r}, allowed: root, the user of slurmd", REFUSED)


# -- plugins ---------------------------------------------------------------------------------------------------------

_NOT_LOADED = {
    "CertgenType",
    "CliFilterPlugins",
    "CryptoType",
    "ExtSensorsType",
    "HttpParserType",
    "JobContainerType",
    "LaunchType",
    "MpiDefault",
    "NamespaceType",
    "PowerPlugin",
    "ProctrackType",
    "RoutePlugin",
    "TaskPlugin",
    "UrlParserType",
}
"""Parameters whose plugins slurmctld does not need to start: clients and slurmd load them, or no program any more.

The packages of Slurm have the plugins of one kind together, so that this host has those of Slurm itself, too.
"""

_PREFIX = {
    "energy": "acct_gather_energy",
    "filesystem": "acct_gather_filesystem",
    "interconnect": "acct_gather_interconnect",
    "profile": "acct_gather_profile",
    "storage": "accounting_storage",
}
"""How plugins are called whose kind has another name in the tables of parameters."""

_NONE_IS_A_PLUGIN = {"auth", "cred", "crypto", "tls"}
"""Kinds of which `none` is a plugin with a file of its own."""

_OTHER_NAMES = {"cred/slurm", "topology/default"}
"""Names that stand for another plugin (`cred_g_init`, `topology_g_init`)."""


@dataclass(frozen=True)
class _PluginKind:
    """The plugins of one kind, by their names without it."""

    files: frozenset[str]
    """Those that are installed."""
    known: frozenset[str]
    """Those that come with Slurm."""
    usable: frozenset[str]
    """Those that are installed, and `none` where it needs no file."""


def _find_plugins(kind: str, installed: frozenset[str]) -> _PluginKind:
    """The plugins of a kind, among the installed ones of all kinds."""
    prefix = f"{_PREFIX.get(kind, kind)}_"
    files = frozenset(file.removeprefix(prefix) for file in installed if file.startswith(prefix))
    known = frozenset(words(PLUGINS[kind]))
    without_file = frozenset() if kind in _NONE_IS_A_PLUGIN else {"none"} & known
    return _PluginKind(files, known, files | without_file)


def _find_wanted_plugins(cluster: ConfiguredCluster) -> Iterator[tuple[str, str, list[str]]]:
    """The parameters of slurm.conf that name plugins: each with the kind of these plugins and their names."""
    for (file, key), (_spelled, value) in cluster.says.settings.items():
        parameter = FILES["slurm.conf"].get(key) if file == "slurm.conf" else None
        form, _blank, kind = parameter.value.partition(" ") if parameter else ("", "", "")
        if parameter and form in ("plugin", "plugins"):
            names = value.split(",") if form == "plugins" else [value]
            yield parameter.name, kind, [name.strip() for name in names if name.strip()]


def check_plugins(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Plugins that slurmctld loads and that are not installed (`plugin_context_create` in `src/common/plugin.c`).

    `none` needs no file where the tables of parameters have it (`_validate_and_set_defaults` in
    `src/common/read_config.c` removes the name); elsewhere slurmctld ends. Authentication by `none` is a plugin. Some
    names have no kind before a slash, or another one. 22.05 starts without the plugin of JobCompType.
    """
    installed = cluster.host.plugins(cluster.get("PluginDir"))
    if not installed:
        return
    for parameter, kind, wanted in _find_wanted_plugins(cluster):
        plugins = _find_plugins(kind, installed)
        any_case = parameter in NONE_IN_ANY_CASE and cluster.release >= releases.NONE_IN_ANY_CASE
        for word in wanted:
            name = word.rpartition("/")[2]
            name = "none" if any_case and name.lower() == "none" else name
            if name in plugins.usable or word in _OTHER_NAMES or word.replace("/", "_") in installed:
                continue
            if parameter not in _NOT_LOADED or (plugins.files and without_version(name) in plugins.known):
                allowed = f"{', '.join(sorted(plugins.usable)) or 'nothing'}{suggest(name, plugins.usable)}"
                what = f"found {word!r}, which is not installed, allowed: {allowed}"
                yield Finding("slurm.conf", parameter, what, REFUSED)


# -- programs --------------------------------------------------------------------------------------------------------


def check_programs(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Find files that slurmctld cannot send to the nodes, where the first job would fail and drain its node.

    It sends a Prolog or Epilog whose path is relative to its own directory (`new_config_response` in
    src/common/fetch_config.c). It does not report that one is missing, or cannot run.
    """
    for key in ("Prolog", "Epilog"):
        for path in cluster.get(key).split():
            if path.startswith("/"):
                continue
            if cluster.release < releases.SCRIPTS_SENT:
                what = f"found {path!r}, which Slurm {cluster.release} does not send to the nodes, allowed: a full path"
                yield Finding("slurm.conf", key, what, REFUSED)
                continue
            script = cluster.host.text(path)
            if script is None:
                yield Finding("slurm.conf", key, f"found {path!r}, which is no file next to slurm.conf", REFUSED)
                continue
            try:
                check_script(content_of(script))
            except ScriptError as error:
                yield Finding("slurm.conf", key, f"found {path!r}, {error}", REFUSED)


RULES = (check_users, check_plugins, check_programs)
