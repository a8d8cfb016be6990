# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of scenario containers.

The cluster has apptainer, a registry without TLS and GPUs that are device files at first. It is equipped once, with
all else at the same time: enroot, pyxis, the job tools, a SPANK plugin, TLS, and a node with AutoDetect and MIG. The
runs of site.yml that do this are the fixtures `planned`, `equipping` and `again`, and many tests check each of them.
Tests that need the cluster bare come first, those with the real packages of enroot and pyxis last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.nvidia_gpus import CHANGED
from debs import GREET, HOSTS, NVIDIA_CLI, PLUGIN, Site, Workshop, real_packages, serve
from gpus import DECLARED, NODE, PLAIN, REMOVE, install_gpus
from images import COMPLETE, FORGET, SMALL, push_image, tls_variables
from lab import Lab, Run, with_cluster
from stand_ins import STAND_IN

# What becomes of the cluster, by the fixtures that change it: a test comes when all that it needs has been done.
STATES = ("prepared", "planned", "equipping", "equipped", "worse", "cache", "real")
# Is on the first host once the tests have begun to change the cluster.
USED = "/var/lib/slurm/tests-were-here"
# The stages that equip the cluster; base installs Slurm's plugin for NVML.
EQUIPPING = "base,containers,controller,compute"
FRIENDLY = [{"plugin": GREET, "arguments": ["friendly"]}]


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Sort the tests by what they need of the cluster; those that need the same stay in their order."""
    items.sort(key=lambda test: max((STATES.index(name) for name in {*STATES} & {*test.fixturenames}), default=-1))


def strip(site: Site) -> None:
    """Take from the cluster what it was equipped with."""
    site.lab.command(NODE, REMOVE)
    run = site.run()
    assert run.rc == 0, run.failed
    packages = "dpkg-query -W -f '${Package} ' enroot enroot+caps nvslurm-plugin-pyxis 2>/dev/null"
    # /workspace: the stand-in mounts on the host itself.
    files = f"/var/cache/gpucluster-slurm/*.deb {PLUGIN}* {GREET} {NVIDIA_CLI} /workspace"
    for host in HOSTS:
        site.lab.command(host, f"dpkg --purge $({packages}) >/dev/null 2>&1 || :; rm -rf {files}")


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The scenario, for all of its tests. Hosts that earlier ones have equipped are bare again."""
    lab = Lab("containers")
    if lab.host("front").run(f"test -e {USED}").rc == 0:
        for host in HOSTS:
            lab.command(host, FORGET)
        strip(Site(lab))
    lab.command("front", f"touch {USED}")
    return lab


@pytest.fixture(scope="session")
def site(lab: Lab) -> Site:
    """The cluster as molecule has made it."""
    return Site(lab)


@pytest.fixture(scope="session")
def workshop(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Where plugins and packages for the lab are made. One package is served."""
    workshop = Workshop.open(lab, tmp_path_factory.mktemp("workshop"))
    serve(lab, workshop)
    return workshop


@pytest.fixture(scope="session")
def tls(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Variables of a registry with TLS."""
    variables: dict[str, Any] = tls_variables(lab, tmp_path_factory.mktemp("tls"))
    return variables


@pytest.fixture(scope="session")
def everything(lab: Lab, workshop: Workshop, tls: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The cluster with all that it can have, of which nothing has been done: MIG on a node, and one without GPUs."""
    own = yaml.safe_load((lab.inventory.parent / "group_vars/slurm_cluster.yml").read_text())
    cluster = lab.cluster
    cluster["hardware"] = {"mig": cluster["hardware"]["one-type"] | {"gres": DECLARED}, "plain": PLAIN}
    for entry in cluster["nodes"]:
        entry["hardware"] = "mig" if entry["hosts"] == NODE else "plain"
    declared = with_cluster(lab, tmp_path_factory.mktemp("everything"), cluster)
    return Site(declared, own | workshop.everything() | tls | {"slurm_plugstack": FRIENDLY})


@pytest.fixture(scope="session")
def prepared(everything: Site, workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The same, on hosts that have what site.yml does not bring: GPUs to detect, a SPANK plugin, an older pyxis."""
    install_gpus(everything.lab, tmp_path_factory.mktemp("gpus"))
    workshop.provide_greet(everything.lab)
    workshop.provide_older_pyxis(everything.lab)
    return everything


@pytest.fixture(scope="session")
def planned(prepared: Site) -> Run:
    """A run in check mode that tells of MIG, TLS and the SPANK plugin, while the node with MIG is in maintenance."""
    lab, reservation = (
        prepared.lab,
        f"reservationname=mig users=root flags=maint starttime=now duration=60 nodes={NODE}",
    )
    lab.command("front", f"scontrol create {reservation}")
    try:
        lab.wait_for("front", f"sinfo -h -n {NODE} -o %T", "maint")
        run = prepared.run("--check", "--diff", f"--limit=front,{NODE}", tags=EQUIPPING, slurm_containers=[])
    finally:
        lab.command("front", "scontrol delete reservationname=mig")
    lab.wait_until_idle("front", NODE)
    assert run.rc == 0, run.failed
    return run


@pytest.fixture(scope="session")
def equipping(prepared: Site, planned: Run) -> Run:
    """The run that equips the cluster. pyxis is not checked, since Slurm takes no job of the account for that."""
    assert planned.changed
    run = prepared.run("--diff", tags=EQUIPPING, validate_options={"account": "nobodys"})
    assert run.rc == 0, run.failed
    prepared.lab.wait_until_idle("front", NODE)
    return run


@pytest.fixture(scope="session")
def again(prepared: Site, equipping: Run) -> Run:
    """The next run, as if that one had been killed before it came to slurmd, which only finds MIG when it starts."""
    assert equipping.changed
    prepared.lab.command(NODE, f"test -e {CHANGED} && touch {CHANGED}")
    run = prepared.run()
    assert run.rc == 0, run.failed
    return run


@pytest.fixture(scope="session")
def equipped(prepared: Site, again: Run) -> Site:
    """The cluster with everything, as its configuration in force says."""
    assert again.rc == 0
    return prepared


@pytest.fixture(scope="session")
def images(equipped: Site) -> None:
    """The registry has an image."""
    push_image(equipped.lab, SMALL)


@pytest.fixture(scope="session")
def real(lab: Lab, request: pytest.FixtureRequest) -> Site:
    """The cluster with the real enroot and pyxis, and images; skips where no packages are named."""
    packages = real_packages()
    if not packages:
        pytest.skip("ENROOT_PACKAGES and PYXIS_PACKAGE name no packages")
    strip(Site(lab))
    for node in lab.nodes:
        lab.script(node, f"cat >{NVIDIA_CLI}; chmod 755 {NVIDIA_CLI}", (STAND_IN / "nvidia-container-cli").read_bytes())
    more = {"enroot_environment": {"HINT": "two words"}, "enroot_infiniband": True}
    real = Site(lab, packages | more | request.getfixturevalue("tls"))
    run = real.run()
    assert run.rc == 0, run.failed
    push_image(lab, COMPLETE)
    return real


@pytest.fixture(name="running")
def a_job_that_runs(lab: Lab) -> Iterator[str]:
    """A job on the node with MIG, by its number. It is ended with the test, or it would be in the way of the next."""
    job = lab.command("front", f"sbatch --parsable -w {NODE} --output=/dev/null --wrap 'sleep 900'")
    lab.wait_for("front", f"squeue -h -j {job} -o %T", "RUNNING")
    yield job
    lab.command("front", f"scancel {job}")
    # Not until the node is idle, which Slurm shows seconds later.
    lab.wait_for("front", f"echo left: $(squeue -h -o %A | grep -cx {job}).", "left: 0.")
