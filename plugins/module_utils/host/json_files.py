# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of JSON: settings, which the roles write, and records of earlier runs."""

from __future__ import annotations

import json
from typing import Any

from ..language.errors import CollectionError


class SettingsError(CollectionError):
    """Settings that cannot be read, in one line."""


Record = dict[str, Any]
"""The content of a file of JSON that this collection writes."""


def read_settings(path: str) -> Record:
    """The settings in a file. Raises SettingsError."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: found no object of JSON")
    return found


def read_record(path: str) -> Record:
    """A record of an earlier run; empty without one, or if it cannot be read: a run was killed while it wrote."""
    try:
        return read_settings(path)
    except SettingsError:
        return {}
