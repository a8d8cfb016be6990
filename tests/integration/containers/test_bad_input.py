# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an administrator may have got wrong, through site.yml: one clear error, no change of Slurm, and jobs go on.

What the registry and the job tools are given is in their own tests. Settings of the kernel are the machine's: the tests
hide them behind files of their own, on one host.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from debs import Site, Workshop, as_user
from lab import Lab

NODE = "box02"


def refusal(lab: Lab, **variables: Any) -> str:
    """Why site.yml stops on a compute node with other variables; nothing has changed there, and it runs jobs."""
    run = Site(lab).run(f"--limit={NODE}", tags="containers", **variables)
    assert [*run.failed] == [NODE], run.output
    assert run.changed == {}
    assert as_user(lab, f"timeout 180 srun -w {NODE} hostname") == NODE
    (message,) = run.failed[NODE]
    return str(message)


@contextmanager
def settings(lab: Lab, directory: str, **values: int) -> Iterator[None]:
    """Other values for settings of the kernel in a directory of /proc/sys, as programs on the node read them."""
    copy = f"/run/settings/{directory.replace('/', '-')}"
    write = " ".join(f"&& echo {value} >{copy}/{name}" for name, value in values.items())
    copy_all = f"mkdir -p {copy} && {{ cp -r {directory}/. {copy} 2>/dev/null || :; }}"
    lab.command(NODE, f"{copy_all} {write} && mount --bind {copy} {directory}")
    try:
        yield
    finally:
        lab.command(NODE, f"umount {directory} && rm -r {copy}")


def test_a_package_with_another_checksum(lab: Lab) -> None:
    """The registry's own answer stands in for a package."""
    url, found, other = "http://10.213.7.70:5000/v2/", hashlib.sha256(b"{}").hexdigest(), "0" * 64
    said = refusal(lab, apptainer_packages=[{"url": url, "sha256": other}])
    assert f"{url}: found sha256 {found}, allowed {other}" in said


def test_users_that_cannot_have_subordinate_ids(lab: Lab) -> None:
    said = refusal(lab, apptainer_fakeroot_uids=["1000-1999", "all", "70000"])
    assert "apptainer_fakeroot_uids: found all, 70000, allowed: numbers from 1 to 65534" in said


def test_a_package_for_another_architecture(lab: Lab, workshop: Workshop) -> None:
    package = workshop.package("apptainer", "9.9-1", {}, "s390x")
    said = refusal(lab, apptainer_packages=[{"file": str(package)}])
    assert "apptainer_9.9-1_s390x.deb: found architecture s390x, allowed " in said


def test_a_kernel_that_lets_users_make_no_namespaces(lab: Lab) -> None:
    none, forbidden = {"max_user_namespaces": 0}, {"unprivileged_userns_clone": 0}
    with settings(lab, "/proc/sys/user", **none), settings(lab, "/proc/sys/kernel", **forbidden):
        said = refusal(lab)
    assert "users cannot make containers here: user.max_user_namespaces is 0, allowed: more than 0" in said
    assert "kernel.unprivileged_userns_clone is 0, allowed: 1" in said


def test_a_program_that_apparmor_lets_make_no_namespaces(lab: Lab) -> None:
    with settings(lab, "/proc/sys/kernel", apparmor_restrict_unprivileged_userns=1):
        said = refusal(lab)
    assert "kernel.apparmor_restrict_unprivileged_userns is 1, and the packages have brought no profile" in said


def test_a_program_that_apparmor_has_a_profile_for(lab: Lab) -> None:
    profile = "/etc/apparmor.d/apptainer"
    lab.command(NODE, f"mkdir -p {profile.rpartition('/')[0]} && touch {profile}")
    with settings(lab, "/proc/sys/kernel", apparmor_restrict_unprivileged_userns=1):
        run = Site(lab).run(f"--limit={NODE}", tags="containers")
    lab.command(NODE, f"rm {profile}")
    assert (run.rc, run.changed) == (0, {})
