# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's driver from the distribution's real archive, without a GPU: libraries and tools are installed, parts that
need a kernel of their own are simulated. The host is the login host: nothing else there looks for NVIDIA's library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import driver
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.driver_platforms import driver_platforms
from lab import Lab, Run

HOST = "login1"
PLATFORMS = driver_platforms()


@pytest.fixture
def role(lab: Lab, tmp_path: Path) -> Any:
    """Run the role on the host, with these variables and arguments."""
    playbook = tmp_path / "driver.yml"

    def run(*arguments: str, **variables: Any) -> Run:
        play = {"hosts": HOST, "become": True, "gather_facts": False, "roles": ["gpucluster.slurm.nvidia_driver"]}
        playbook.write_text(yaml.safe_dump([play | {"vars": variables}]))
        return lab.playbook(str(playbook), *arguments)

    return run


def platform(lab: Lab) -> str:
    return str(lab.command(HOST, '. /etc/os-release; echo "$ID $VERSION_ID"'))


def test_a_host_without_a_gpu_stays_as_it_is_and_the_run_says_why(role: Any) -> None:
    run = role()
    assert (run.rc, run.changed) == (0, {})
    assert (
        f"Role nvidia_driver installs no driver on {HOST}: a container, whose driver is that of its host" in run.output
    )


def test_an_unknown_branch_is_refused_with_those_that_are_known(lab: Lab, role: Any) -> None:
    run = lab.playbook("site", "--tags", "preflight", "--extra-vars", "nvidia_driver_branch=999")
    assert run.rc != 0
    assert "470, 535, 550, 570, 580, 595" in run.output
    run = role(nvidia_driver_branch="595", nvidia_driver_gpus=["2330"])
    known = ", ".join(PLATFORMS[platform(lab)]["distribution"]["branches"])
    assert f"{platform(lab)} has no driver branch 595 from distribution; it has {known}" in run.failed[HOST][0]


@pytest.mark.rare
def test_libraries_and_tools_are_installed_and_keep_their_version(lab: Lab, role: Any) -> None:
    variables = {"nvidia_driver_gpus": ["2330"]}
    before = lab.command(HOST, "sha256sum /etc/apt/sources.list")
    plan = role("--check", "--diff", **variables)
    assert list(plan.changed) == [HOST]
    assert lab.host(HOST).run("command -v nvidia-smi").rc != 0

    run = role(**variables)
    assert (run.rc, run.changed) == (0, {HOST: ["gpucluster.slurm.nvidia_driver : Install the driver"]})
    assert role(**variables).changed == {}
    assert role("--check", **variables).changed == {}
    assert lab.command(HOST, "sha256sum /etc/apt/sources.list") == before
    preferences = lab.command(HOST, "cat /etc/apt/preferences.d/gpucluster-nvidia")
    assert driver.pinned(preferences) in lab.command(HOST, "ls -R /usr/lib/x86_64-linux-gnu/nvidia/current")
    assert "couldn't communicate with the NVIDIA driver" in lab.host(HOST).run("nvidia-smi").stdout
    assert lab.host(HOST).package("nvidia-persistenced").is_installed
    assert not lab.host(HOST).package("dkms").is_installed


@pytest.mark.rare
def test_every_choice_can_be_installed_from_the_archive(lab: Lab) -> None:
    here = platform(lab)
    kernel = lab.command(HOST, "apt-cache depends linux-headers-amd64 | sed -n 's/.*Depends: linux-headers-//p'")
    for branch, packages in PLATFORMS[here]["distribution"]["branches"].items():
        for kind in {"open", "proprietary"} & set(packages):
            options = {"source": "distribution", "branch": branch, "modules": kind, "display": False, "cuda": False}
            generation = "turing" if int(branch) > 470 else "kepler"
            choice = driver.choose(PLATFORMS, driver.DriverTarget(here, [generation], kernel=kernel), options)
            madison = lab.command(HOST, f"apt-cache madison {' '.join(choice.driver)}")
            version = driver.agree(choice.driver, driver.offered(madison), branch, "")
            lab.script(HOST, "cat >/tmp/preferences", driver.preferences(version).encode())
            simulated = lab.command(
                HOST,
                "apt-get --simulate --option=Dir::Etc::preferencesparts=/dev/null "
                "--option=Dir::Etc::preferences=/tmp/preferences install --no-install-recommends --allow-downgrades "
                + " ".join(choice.driver + choice.tools),
            )
            (module,) = packages[kind]
            assert f"Inst {module.format(branch=branch)} ({version}-" in simulated
