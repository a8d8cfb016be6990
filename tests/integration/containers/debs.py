# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages and plugins of this scenario: stand-ins, and plugins compiled for the lab."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import stand_ins
from lab import Lab, Run
from plays import Case, run_cases

HOSTS = ("front", "box01", "box02")
PLUGIN = "/usr/local/lib/gpucluster-slurm/spank_pyxis.so"
URL = "http://10.213.7.70:8070"
GREET = "/usr/local/lib/greet.so"
NVIDIA_CLI = "/usr/local/bin/nvidia-container-cli"
# The plugin as the package of pyxis brings it, for a shell.
PACKAGED = "$(dpkg -L nvslurm-plugin-pyxis | grep 'pyxis[.]so$')"
# The host that has an older pyxis before the cluster is equipped, and where that plugin is kept for a comparison.
OLDER, OLDER_PLUGIN = "box02", "/root/older_pyxis.so"
EVERYTHING = ["apptainer", "enroot", "pyxis", "job_tools"]


def sha256(path: Path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def serve(lab: Lab, workshop: Workshop) -> None:
    """Have the login host serve packages at URL: one, and a file that is large for a small disk."""
    lab.script("front", "mkdir -p /srv/packages; cat >/srv/packages/enroot.deb", workshop.enroot().read_bytes())
    lab.command("front", "head -c 100000 /dev/zero >/srv/packages/large.deb")
    server = "systemd-run --unit=packages python3 -m http.server --directory /srv/packages 8070 2>&1"
    lab.command("front", f"systemctl is-active --quiet packages || {server}")
    lab.wait_for("front", "ss -Htln sport = :8070", "8070")


def as_user(lab: Lab, script: str, user: str = "alice", rc: int = 0) -> str:
    """What a script prints on the login host, in a login shell of a user."""
    return str(lab.command("front", f"runuser -l {user} -c {shlex.quote(script)}", rc))


def real_packages() -> dict[str, Any]:
    """The variables of a cluster with all that there is for containers, from packages that the environment names.

    ENROOT_PACKAGES: paths, separated by commas or blanks. PYXIS_PACKAGE: one for the lab's Slurm. Nothing without both.
    """
    enroot = os.environ.get("ENROOT_PACKAGES", "").replace(",", " ").split()
    pyxis = os.environ.get("PYXIS_PACKAGE", "")
    if not enroot or not pyxis:
        return {}
    return {
        "slurm_containers": EVERYTHING,
        "enroot_packages": [{"file": path} for path in enroot],
        "pyxis_packages": {"24.11": {"file": pyxis}},
    }


@dataclass(frozen=True)
class Site:
    """The lab's cluster, with other variables."""

    lab: Lab
    variables: dict[str, Any] = field(default_factory=dict)

    def run(self, *arguments: str, tags: str = "containers,controller,compute", **variables: Any) -> Run:
        """Run some stages of site.yml; these variables win over the site's own."""
        extra = json.dumps(self.variables | variables)
        return self.lab.playbook("site", f"--tags={tags}", f"--extra-vars={extra}", *arguments)

    def cases(self, directory: Path, cases: Mapping[str, Case]) -> dict[str, Run]:
        """Try roles and modules with the site's variables, where a case has no other ones. See run_cases."""
        own = {name: replace(case, variables=self.variables | {**case.variables}) for name, case in cases.items()}
        outcomes: dict[str, Run] = run_cases(self.lab, directory, own)
        return outcomes


def plan(run: Run) -> list[str]:
    """What a run has said that it changes of Slurm's configuration."""
    said = (result.get("msg", "") for _host, task, result in run.results if "Show the changes" in task)
    return [line for text in said for line in text.splitlines()]


@dataclass(frozen=True)
class Workshop(stand_ins.Workshop):
    """A directory where plugins and packages for this scenario are made."""

    def provide_greet(self, lab: Lab, *flags: str) -> None:
        """Put the plugin of the tests on each host, in one step: a job may be about to load it."""
        library = self.plugin(Path(__file__).with_name("greet.c"), *flags).read_bytes()
        for host in HOSTS:
            lab.script(host, f"cat >{GREET}.new; mv {GREET}.new {GREET}", library)

    def provide_older_pyxis(self, lab: Lab) -> None:
        """Have an older pyxis on the host OLDER, as role pyxis leaves it."""
        package = self.pyxis("0.23.0-1", "-g")
        install = f"""set -e
            cat >/root/older.deb
            dpkg --install /root/older.deb >&2
            cp {PACKAGED} {OLDER_PLUGIN}
            install -D -m 644 {OLDER_PLUGIN} {PLUGIN}"""
        lab.script(OLDER, install, package.read_bytes())

    def everything(self) -> dict[str, Any]:
        """The variables of a cluster with all that there is for containers: one package is at a URL, one is a file."""
        return {
            "slurm_containers": EVERYTHING,
            "enroot_packages": [{"url": f"{URL}/enroot.deb", "sha256": sha256(self.enroot())}],
            "pyxis_packages": {"22.05": {"file": "/nowhere.deb"}, "24.11": {"file": str(self.pyxis())}},
        }
