# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that has left the cluster file is named until an administrator confirms that it is clean."""

from __future__ import annotations

from pathlib import Path

from lab import Lab
from plays import Task, configuration, play, task


def test_a_host_that_left_is_named_until_it_is_clean(lab: Lab, tmp_path: Path) -> None:
    host = lab.controller
    files = configuration(lab, host)

    def run(name: str, hosts: str, **options: str | bool) -> Task:
        check = bool(options.pop("check", False))
        return task(name, "slurm_config", {"files": files, "hosts": hosts, **options}, check=check)

    results = play(
        lab,
        tmp_path,
        run("with another host", f"{host},gone1"),
        run("check", host, check=True),
        run("named", host),
        run("named again", host),
        run("confirmed", host, cleaned_hosts="gone1"),
        run("silent", host),
    )
    assert [name for name, result in results.items() if result.get("failed") or result["changed"]] == []
    text = "Hosts that have left the cluster but are not cleaned: gone1. They still have the munge key"
    named = {name for name, result in results.items() if text in str(result["remarks"])}
    assert named == {"check", "named", "named again"}
    assert lab.command(host, "cat /var/lib/gpucluster-slurm/hosts") == host
