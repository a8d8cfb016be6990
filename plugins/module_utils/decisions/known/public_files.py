# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the control host that variables name and that all users of hosts can read."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ...cluster.named_files import content_error, file_error
from .run_host import RunHost


def option_errors(host: RunHost, role: str, name: str, kind: str) -> Iterator[str]:
    """What is wrong with the file that an option of a role names; kind: that of file_error."""
    path = host.option(role, name)
    if error := file_error("/", os.path.abspath(path) if path else path, kind):
        yield f"{name}: found {path or 'nothing'}, {error}"


def public_content(host: RunHost, name: str, path: str, kind: str) -> str:
    """The text of a file that all users of hosts can read. Bytes that are not UTF-8 are surrogates in it.

    It is looked into again, since ansible-vault may have encrypted it, and a role may run without preflight.

    Args:
        host: a host of the run.
        name: the variable that names the file, for messages.
        path: its path.
        kind: `certificate`, `repository key`, `script` or `program`.

    Raises:
        ValueError: there is no such file, or its content is not of this kind, or has a secret.
    """
    content = host.content(path)
    if content is None:
        raise ValueError(f"{name}: {path} is missing")
    if error := content_error(kind, content):
        raise ValueError(f"{name}: found {path}, {error}")
    return content.decode(errors="surrogateescape")
