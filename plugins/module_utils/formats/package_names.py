# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of packages, which become arguments of apt-get."""

from __future__ import annotations

import re
from typing import Any

from ..language.formatting import shown

INSTALLED = "/var/lib/gpucluster-slurm/installed"
"""The directory with a file for each package that this collection has installed for a key of the cluster file."""

LONGEST = 128
"""Characters of the name of a package, and of its version; those of Debian have fewer than 100."""

_NAME = rf"[a-z0-9][a-z0-9+.-]{{1,{LONGEST - 1}}}"
_ARCHITECTURE = r"[a-z0-9][a-z0-9-]{0,31}"
_VERSION = rf"(?:[0-9]{{1,9}}:)?[0-9][A-Za-z0-9.+~-]{{0,{LONGEST - 1}}}"
_RELEASE = r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}"
_PACKAGE = re.compile(rf"{_NAME}(?::{_ARCHITECTURE})?(?:(?:={_VERSION})|(?:/{_RELEASE}))?")


def package(value: Any) -> str:
    """The name of a package as apt-get(8) has it, perhaps with `:ARCHITECTURE`, and `=VERSION` or `/RELEASE`.

    The name is that of Debian's policy, 5.6.1 (Source) and 5.6.7 (Package), the version that of 5.6.12.

    A last `-` of the argument removes a package, and a last `+` installs it, if apt knows none of the whole name
    (`FromModifierCommandLine` in `apt-pkg/cacheset.cc`). What apt knows differs by host and by day, so a last `-` is
    always refused; no package of Debian ends in one. A last `+` stays, since packages such as g++ end in it, and it
    asks for nothing else than an installation.

    Raises:
        ValueError: says what is allowed.
    """
    if isinstance(value, bool) or not isinstance(value, str):
        raise ValueError("allowed: the name of a package, a text")
    if value.endswith("-"):
        raise ValueError("allowed: the name of a package without '-' at its end, which makes apt-get remove packages")
    if not _PACKAGE.fullmatch(value):
        raise ValueError(
            f"allowed: the name of a package, 2 to {LONGEST} lower case letters, digits, '+', '-' and '.', a letter or "
            "digit first; then perhaps :ARCHITECTURE, and =VERSION or /RELEASE"
        )
    return value


def package_source(value: Any) -> dict[str, Any]:
    """An entry with the source of a package: a mapping with name, url and sha256, or file.

    Raises:
        ValueError: names the key.
    """
    if not isinstance(value, dict):
        raise ValueError("allowed: a mapping with name, url and sha256, or file")
    if value.get("name") is not None:
        try:
            package(value["name"])
        except ValueError as error:
            raise ValueError(f"found name {shown(value['name'])}, {error}") from None
    return value
