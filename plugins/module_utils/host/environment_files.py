# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables in files of a host that its units read, such as /etc/default/slurmd (EnvironmentFile= of systemd).

They come before those of Environment= (systemd.exec(5)), so a line that is left over from another cluster decides which
configuration a daemon reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OWN = re.compile(r'^Environment="(\w+_OPTIONS)=(.+)"$', re.MULTILINE)
"""The options of a daemon in a drop-in of the collection."""

CONFIGURATION = {
    "SLURMCTLD_OPTIONS": (r"-f[\s=]*(\S+)", "/etc/slurm/slurm.conf"),
    "SLURM_CONF": (r"(\S+)", "/etc/slurm/slurm.conf"),
    "OPTIONS": (r"--key-file[\s=]+(\S+)", "/etc/munge/munge.key"),
}
"""How variables of a daemon without such a drop-in name the file that it reads, and that of the collection."""


class Variable(NamedTuple):
    """A variable that makes a daemon read another configuration."""

    file: str
    name: str
    value: str
    allowed: str


def files_of_unit(shown: str) -> list[str]:
    """The files of EnvironmentFile= in the output of `systemctl show`, except those of the boot, in /run."""
    found = re.findall(r"^EnvironmentFiles=(\S+)", shown, re.MULTILINE)
    return [path for path in found if not path.startswith("/run/")]


def variables(text: str) -> dict[str, str]:
    """The variables in such a file. A comment begins with `#` or `;`."""
    lines = re.findall(r"^\s*(\w+)=(.*)$", text.replace("\\\n", " "), re.MULTILINE)
    return {name: re.sub(r"""^(["'])(.*)\1$""", r"\2", value.strip()) for name, value in lines}


def leads_elsewhere(name: str, value: str, own: Mapping[str, str], same: Sequence[Sequence[str]]) -> str:
    """What is allowed instead of the value of a variable; empty if the daemon reads the same configuration with it.

    Args:
        own: the variables of the drop-ins of the collection.
        same: other words that mean the same as theirs.
    """
    words = f" {' '.join(value.split())} "
    if name in own:
        forms = [own[name], *(" ".join(form) for form in same)]
        return "" if any(f" {form} " in words for form in forms) else own[name]
    option, file = CONFIGURATION.get(name, ("", ""))
    found = re.search(rf"\s{option}\s", words) if option and not own else None
    return file if found and found[1] != file else ""


def find_other(texts: Mapping[str, str], drop_ins: Sequence[str], same: Sequence[Sequence[str]]) -> Variable | None:
    """The variable that makes a daemon read another configuration than that of the collection, if there is one.

    Args:
        texts: the files of its unit, in their order: the last value of a variable counts.
        drop_ins: the texts of the drop-ins of the collection.
        same: as in leads_elsewhere().
    """
    own = dict(OWN.findall("\n".join(drop_ins)))
    last = {name: (file, value) for file, text in texts.items() for name, value in variables(text).items()}
    for name, (file, value) in last.items():
        if allowed := leads_elsewhere(name, value, own, same):
            return Variable(file, name, value, allowed)
    return None
