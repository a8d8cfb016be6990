# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of apt and dpkg that wait while another one holds a lock.

It can be that of a killed run, or apt-daily.service of a host that has just booted. apt-get waits for dpkg's lock
itself (DPkg::Lock::Timeout), and not for the locks of its lists and of its downloads (apt's source,
`pkgAcquire::GetLock` in apt-pkg/acquire.cc). dpkg waits for none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule

LOCKED = re.compile(r"lock was locked by|Could not get lock")
"""What dpkg and apt-get say of a lock of another process, in English."""

SECONDS = 300
"""How long to wait for another command."""

PAUSE = 2
"""Seconds between two attempts."""


def run_unlocked(
    module: AnsibleModule, command: Sequence[str], environment: Mapping[str, str], seconds: float = SECONDS
) -> tuple[int, str, str]:
    """Run a command, again as long as a lock keeps it from its work.

    Args:
        environment: its variables; the messages must be in English.
        seconds: how long to try.

    Returns:
        Exit status, output, and what is on stderr.
    """
    deadline = time.monotonic() + seconds
    while True:
        rc, stdout, stderr = module.run_command([*command], environ_update=dict(environment))
        if rc == 0 or not LOCKED.search(stderr) or time.monotonic() > deadline:
            return int(rc), str(stdout), str(stderr)
        time.sleep(PAUSE)
