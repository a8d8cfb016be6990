# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of scenario containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from debs import HOSTS, PLUGIN, Site, Workshop, real_packages
from images import FORGET, push_image, tls_variables
from lab import Lab


@pytest.fixture(scope="module")
def workshop(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Where plugins and packages for the lab are made."""
    return Workshop.open(lab, tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="module")
def site(lab: Lab) -> Iterator[Site]:
    """The lab's cluster with other variables; afterwards it is as it was."""
    yield Site(lab)
    assert lab.playbook("site", "--tags=controller").rc == 0
    for host in HOSTS:
        packages = "dpkg-query -W -f '${Package} ' enroot enroot+caps nvslurm-plugin-pyxis 2>/dev/null"
        lab.command(host, f"dpkg --purge $({packages}) >/dev/null 2>&1 || :")
        # /workspace: the stand-in mounts on the host itself.
        lab.command(host, f"rm -rf /var/cache/gpucluster-slurm/*.deb {PLUGIN}* /usr/local/lib/greet.so /workspace")


@pytest.fixture(scope="module")
def equipped(site: Site, workshop: Workshop) -> Site:
    """The cluster with enroot, pyxis and the job tools; stand-ins for the first two."""
    return site.having(workshop.everything())


@pytest.fixture(scope="module")
def tls(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Variables of a registry with TLS; afterwards the registry is as it was, but for images that were pushed."""
    yield tls_variables(lab, tmp_path_factory.mktemp("tls"))
    assert Site(lab).run(tags="containers").rc == 0
    for host in HOSTS:
        lab.command(host, FORGET)


@pytest.fixture(scope="module")
def images(lab: Lab, tls: dict[str, Any]) -> None:
    """The registry has TLS, and an image."""
    run = Site(lab).run(tags="containers", **tls)
    assert run.rc == 0, run.failed
    push_image(lab)


@pytest.fixture(scope="module")
def real(lab: Lab, request: pytest.FixtureRequest) -> Site:
    """The cluster with the real enroot and pyxis, and images; skips where no packages are named."""
    packages = real_packages()
    if not packages:
        pytest.skip("ENROOT_PACKAGES and PYXIS_PACKAGE name no packages")
    site, tls = map(request.getfixturevalue, ("site", "tls"))
    equipped: Site = site.having(packages | tls)
    push_image(lab)
    return equipped
