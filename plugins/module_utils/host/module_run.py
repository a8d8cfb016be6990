# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of a module: its arguments, its lock, its work, and the end with the result or the error."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..client.environment import own_environment
from ..language.errors import CollectionError
from .locks import locked

Params = Mapping[str, Any]
"""The arguments of a module, complete and of the types that its specification names."""


def run_module(
    work: Callable[[AnsibleModule], Mapping[str, Any]],
    arguments: Mapping[str, Any],
    *,
    lock: tuple[str, float] | None = None,
    message: str = "{error}",
    failed: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Do the work of a module, and end with its result or its error.

    Args:
        work: returns the result. It may raise CollectionError, OSError or ValueError.
        arguments: the specification of the module's arguments.
        lock: the name of the lock of this host that is held meanwhile, and the seconds to wait for it.
        message: that of an error; it can name arguments.
        failed: further keys of the result of a module that has failed.
        options: those of AnsibleModule, such as required_if.
    """
    # The arguments may have secrets. With this limit the kernel writes no core and starts no program for one (core(5)).
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    # For run_command as well, which gives a command the environment of this process.
    environment = own_environment()
    os.environ.clear()
    os.environ.update(environment)
    module = AnsibleModule(argument_spec=arguments, supports_check_mode=True, **options)
    try:
        with locked(*lock) if lock else nullcontext():
            result = work(module)
    except (CollectionError, OSError, ValueError) as error:
        more = error.result if isinstance(error, CollectionError) else {}
        module.fail_json(msg=message.format(error=error, **module.params), **{**(failed or {}), **more})
    module.exit_json(**result)
