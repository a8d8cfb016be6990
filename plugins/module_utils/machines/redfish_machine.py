# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine whose BMC speaks Redfish, by the library sushy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

try:
    import sushy
    import sushy.auth
    import sushy.exceptions
except ImportError:  # A controller of a cluster with `by: redfish` has it.
    sushy = None

from .machine_orders import IS_OFF, IS_ON, OFF, START, STOP
from .machine_settings import CA, MachineError, MachineSettings, password

_OVERRIDING = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that requests prefers to the certificates of the settings."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
"""Variables that would send the password of a BMC by way of a proxy."""
_LONGEST = 300
"""Characters of an error."""


class RedfishMachine:
    """The machine of a node."""

    def __init__(self, system: Any) -> None:
        """system: that of the BMC, of sushy."""
        self._system = system

    def state(self) -> str:
        """Whether it is on; one that is just going off is. Raises MachineError."""
        state = self._system.power_state
        if state is None:
            raise MachineError("the BMC does not say whether the machine is on")
        return IS_OFF if state == sushy.SYSTEM_POWER_STATE_OFF else IS_ON

    def change(self, order: str) -> None:
        """Carry out an order."""
        resets = {START: sushy.RESET_ON, STOP: sushy.RESET_GRACEFUL_SHUTDOWN, OFF: sushy.RESET_FORCE_OFF}
        self._system.reset_system(resets[order])


@contextmanager
def redfish_machine(settings: MachineSettings, node: str) -> Iterator[RedfishMachine]:
    """The machine of a node, with a session of its own, which is closed afterwards: BMCs have few.

    It changes the environment, and has no limit of time: it is for a process of its own. Raises MachineError.
    """
    if sushy is None:
        raise MachineError("python3-sushy is missing; run site.yml")
    for name in (*_OVERRIDING, *_PROXIES):
        os.environ.pop(name, None)
    auth = sushy.auth.SessionOrBasicAuth(settings.user, password())
    failures = (sushy.exceptions.SushyError, OSError)  # those of requests are kinds of OSError
    try:
        verify = CA if settings.has_ca else settings.verify
        root = sushy.Sushy(f"https://{settings.address_of(node).in_url}", auth=auth, verify=verify)
        yield RedfishMachine(only_system(root))
    except failures as error:
        raise MachineError(" ".join(str(error).split())[:_LONGEST]) from error
    finally:
        with suppress(*failures):  # the order is carried out, and the BMC ends the session by itself
            auth.close()


def only_system(root: Any) -> Any:
    """The system of a BMC that has one. Raises MachineError."""
    systems = root.get_system_collection().get_members()
    if len(systems) != 1:
        raise MachineError(f"the BMC has {len(systems)} systems, allowed: one; with several use by: program")
    return systems[0]
