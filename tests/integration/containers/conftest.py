# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of scenario containers.

The cluster is equipped once: tests that need it bare come first, those with the real packages last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from debs import HOSTS, Site, Workshop, real_packages
from images import FORGET, push_image, tls_variables
from lab import Lab


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Sort the tests by what they need of the cluster; those that need the same stay in their order."""
    items.sort(key=lambda test: [*({"equipped", "real"} & {*test.fixturenames})])


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The scenario, for all of its tests."""
    return Lab("containers")


@pytest.fixture(scope="session")
def workshop(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Where plugins and packages for the lab are made."""
    return Workshop.open(lab, tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="session")
def site(lab: Lab) -> Site:
    """The lab's cluster, without what an earlier run of the tests has equipped it with."""
    site = Site(lab)
    site.strip()
    return site


@pytest.fixture(scope="session")
def equipped(site: Site, workshop: Workshop) -> Site:
    """The cluster with enroot, pyxis and the job tools; stand-ins for the first two."""
    return site.having(workshop.everything())


@pytest.fixture(scope="session")
def tls(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Variables of a registry with TLS; afterwards the registry is as it was, but for images that were pushed."""
    yield tls_variables(lab, tmp_path_factory.mktemp("tls"))
    assert Site(lab).run(tags="containers").rc == 0
    for host in HOSTS:
        lab.command(host, FORGET)


@pytest.fixture(scope="session")
def images(lab: Lab, tls: dict[str, Any]) -> None:
    """The registry has TLS, and an image."""
    run = Site(lab).run(tags="containers", **tls)
    assert run.rc == 0, run.failed
    push_image(lab)


@pytest.fixture(scope="session")
def real(lab: Lab, request: pytest.FixtureRequest) -> Site:
    """The cluster with the real enroot and pyxis, and images; skips where no packages are named."""
    packages = real_packages()
    if not packages:
        pytest.skip("ENROOT_PACKAGES and PYXIS_PACKAGE name no packages")
    site, tls = map(request.getfixturevalue, ("site", "tls"))
    site.strip()
    equipped: Site = site.having(packages | tls)
    push_image(lab)
    return equipped
