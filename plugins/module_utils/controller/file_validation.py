# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of wanted files before they are put in force: by the tables, with the host, and by Slurm."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from ansible.module_utils.basic import AnsibleModule

from ..configuration import parameters
from ..configuration.conf_file import KEY_VALUE, NAMED_LINES, lines, table_of
from ..host.files import write_new
from ..host.script_checks import content_of
from . import cross_checks
from .daemons import ConfigError, Daemon
from .slurm_parser import library_of, secret_problem

RUN = "/run/gpucluster-slurm"
PATH = "/usr/sbin:/usr/bin"
"""Where the packages of all releases have the daemons."""


def check_parameters(files: Mapping[str, str], version: str) -> tuple[list[str], list[str]]:
    """The parameters that the release would refuse, and those that it would ignore."""
    refused = [f"{problem.key}: {problem.text}" for problem in parameters.unread_files(files, version)]
    ignored: list[str] = []
    for file in (name for name in files if name in KEY_VALUE):
        settings_of_file: list[tuple[str, str]] = []
        checked = [(f"{file}: ", file, settings_of_file)]
        for pairs in lines(file, files[file]):
            if pairs[0][0] == "Include":
                continue
            kind = table_of(file, pairs)
            if kind == file and file not in ("gres.conf", *NAMED_LINES):
                settings_of_file.extend(pairs)
            else:  # a line that names a node, a partition or the like has parameters of its own
                checked.append((f"{file}: {pairs[0][0]}={pairs[0][1]}: ", kind, [*pairs]))
        for place, kind, values in checked:
            for problem in parameters.problems(kind, values, version):
                lines_of_effect = refused if problem.effect == parameters.REFUSED else ignored
                lines_of_effect.append(f"{place}{problem.key}: {problem.text}")
    return refused, ignored


@contextmanager
def candidate_directory(module: AnsibleModule, files: Mapping[str, str], gone: Collection[str]) -> Iterator[str]:
    """A directory with the files and all others of the configuration but those `gone`, for Slurm's own checks."""
    os.makedirs(RUN, mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="candidate-", dir=RUN) as directory:
        os.chmod(directory, 0o755)
        current = module.params["directory"]
        for name in os.listdir(current) if os.path.isdir(current) else []:
            if name not in (*files, *gone, "slurmdbd.conf"):
                os.symlink(os.path.join(current, name), os.path.join(directory, name))
        for name, text in files.items():
            write_new(os.path.join(directory, name), content_of(text), 0o644)
        yield directory


def check_wanted_files(
    module: AnsibleModule, daemon: Daemon, files: Mapping[str, str], gone: Collection[str], version: str
) -> list[str]:
    """Check the wanted files, without those that are `gone` then.

    Returns the settings that Slurm would ignore; raises ConfigError with all that it would refuse.
    """
    refused: list[str] = []
    ignored: list[str] = []
    if host := daemon.host:
        present_text = host.text
        host = replace(host, text=lambda name: None if name in gone else files.get(name, present_text(name)))
        whole, refused, ignored = cross_checks.whole(files, host)
    else:
        whole = {**files}
    if not refused:
        refused, more = check_parameters(whole, version)
        ignored += more
    if not refused and host:
        refused, more = cross_checks.cross_check(whole, host, version)
        ignored += more
    if refused:
        raise ConfigError("\n".join(refused))
    with candidate_directory(module, whole, gone) as directory:
        daemon.check_files(directory)
    return ignored


def check_secrets(daemon: Daemon, secrets: Mapping[str, str]) -> None:
    """Check that Slurm reads the secrets that were given. Raises ConfigError, without them."""
    library = library_of(shutil.which(daemon.name, path=PATH) or daemon.name) if secrets else None
    if problems := [problem for name, text in secrets.items() if (problem := secret_problem(name, text, library))]:
        raise ConfigError("\n".join(problems))
