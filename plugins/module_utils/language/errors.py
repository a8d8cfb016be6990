# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of errors whose message a user gets. Others are kinds of OSError or ValueError."""

from __future__ import annotations

from typing import Any


class CollectionError(Exception):
    """An error that ends a module, with further keys of the module's result."""

    def __init__(self, message: str, /, **result: Any) -> None:
        super().__init__(message)
        self.result = result
