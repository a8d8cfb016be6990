# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Code that the filters share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ansible.errors import AnsibleFilterError


def value_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a filter: its ValueErrors and TypeErrors are errors of the user's data, shown as such."""

    @wraps(function)
    def filter_function(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except (ValueError, TypeError) as error:
            raise AnsibleFilterError(str(error)) from error

    return filter_function
