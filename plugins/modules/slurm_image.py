#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_image
short_description: Remove what must not be in an image, and search for secrets
description:
  - Removes what makes one host differ from another - the machine id, ssh host keys, the random seed, leases of DHCP,
    the state of cloud-init, the munge key that its package makes.
  - Removes what the build has left - logs, histories of shells, apt's lists and archives. This does not count as a
    change.
  - Then searches the tree for secrets and other identities. If there is one that is not in O(accepted), the module
    fails with its path and kind. It shows no content.
  - C(/etc/machine-id) stays as an empty file, and not as V(uninitialized), with which systemd would enable units by
    its presets at the first boot (machine-id(5), First Boot Semantics).
  - Both are one task, because sshd takes no new connection without its host keys.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_image]
"""

EXAMPLES = r"""
- name: Remove what must not be in the image
  gpucluster.slurm.slurm_image:
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import glob
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..module_utils.host import image_scan
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import several
from ..module_utils.host.plan_result import plan_result
from ..module_utils.language.errors import CollectionError

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import ImageResult

MACHINE_ID = "/etc/machine-id"
"""It must be there: systemd mounts a file over it where the image cannot be written."""

IDENTITIES: tuple[tuple[str, str], ...] = (
    ("/var/lib/dbus/machine-id", "machine id"),
    ("/etc/ssh/ssh_host_*_key", "ssh host key"),
    ("/etc/ssh/ssh_host_*_key.pub", "public key of the host"),
    ("/etc/munge/munge.key", "munge key"),
    ("/var/lib/systemd/random-seed", "random seed"),
    ("/var/lib/systemd/credential.secret", "key of systemd's credentials"),
    ("/var/lib/dhcp/*.leases*", "lease"),
    ("/var/lib/dhclient/*", "lease"),
    ("/var/lib/NetworkManager/*.lease*", "lease"),
    ("/var/lib/cloud/instance", "state of cloud-init"),
    ("/var/lib/cloud/instances/*", "state of cloud-init"),
    ("/var/lib/cloud/data/*", "state of cloud-init"),
    ("/var/lib/cloud/sem/*", "state of cloud-init"),
)
"""What differs between hosts. Each host makes or gets its own."""

TRACES = (
    "/var/lib/apt/lists/*",
    "/var/cache/apt/archives/*.deb",
    "/var/cache/apt/*.bin",
    "/var/log/*.log",
    "/var/log/apt/*",
    "/var/log/journal/*",
    "/var/log/installer",
    "/root/.*_history",
    "/home/*/.*_history",
    "/root/.cache",
    "/root/.ansible",
)
"""What a build leaves. Every run writes some of it, so that it does not count as a change."""


class ImageError(CollectionError):
    """Secrets that were found."""


def identities() -> Iterator[dict[str, str | None]]:
    """What is to be removed, as changes of a plan."""
    if os.path.exists(MACHINE_ID) and os.path.getsize(MACHINE_ID):
        yield {"what": MACHINE_ID, "before": "machine id", "after": "empty"}
    for pattern, kind in IDENTITIES:
        for path in sorted(glob.glob(pattern)):
            # D-Bus has its machine id as a link to systemd's.
            if not (os.path.islink(path) and kind == "machine id"):
                yield {"what": path, "before": kind, "after": None}


def remove(path: str) -> None:
    """Remove a file, a link, or a directory with all that it has. Raises OSError."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def seal(params: Params, check_mode: bool) -> ImageResult:
    """Remove what must not be in the image, and search for secrets. Raises ImageError, OSError."""
    plan = list(identities())
    if not check_mode:
        for change in plan:
            if change["after"] is None:
                remove(str(change["what"]))
            else:
                os.truncate(MACHINE_ID, 0)
        for pattern in TRACES:
            for path in glob.glob(pattern):
                remove(path)
    gone = [str(change["what"]) for change in plan]
    found = [
        finding
        for finding in image_scan.without(image_scan.scan(), params["accepted"])
        if not any(finding.path == path or path.startswith(f"{finding.path}/") for path in gone)
    ]
    if secrets := [str(finding) for finding in found if not finding.is_remark]:
        raise ImageError(
            "the image has secrets, or what must differ between hosts:\n"
            + "\n".join(secrets)
            + "\nRemove them, or keep them from being made. If one has to stay, name its path in image_accepted."
        )
    return {**plan_result(plan), "remarks": [str(finding) for finding in found]}


ARGUMENTS = {"accepted": several("Paths in which a secret is accepted, by name or by patterns of a shell.")}


def main() -> None:
    run_module(lambda module: seal(module.params, module.check_mode), ARGUMENTS)


if __name__ == "__main__":
    main()
