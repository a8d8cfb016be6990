# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's driver by platform and source.

The archive decides whether a branch is still there: if its packages have become transitional, it is refused.
docs/admin/tested.md says how far each platform was tested.

Names of packages have values in braces: `{branch}`; `{kernel}`, the running release; `{flavour}`, its kind by the
metapackages of the host (amd64, generic, generic-hwe-24.04, gcp).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class DriverPackages:
    """Packages of a source that are the same for all its branches."""

    components: list[str]
    """Of the distribution's archive, besides main."""
    headers: list[str]
    """Packages to build a kernel module."""
    tools: list[str]
    """Packages with versions of their own."""
    cuda: list[str]
    """The toolkit."""


@dataclass(frozen=True)
class SignedModules:
    """Modules that are built and signed by the distribution, for hosts with Secure Boot."""

    driver: list[str]
    """The packages of the driver without DKMS."""
    modules: list[str]
    """They have versions of their own, and each is for one kernel."""


@dataclass(frozen=True)
class DriverBranch:
    """The packages of a branch. It may lack one of the two kinds of kernel modules, `open` and `proprietary`."""

    libraries: list[str]
    """Packages for programs without a display."""
    display: Mapping[str, list[str]]
    """More packages for a display, by kind of the modules."""
    proprietary: list[str]
    open: list[str] | None = None
    fabric: list[str] | None = None
    """Packages for machines with NVSwitch."""
    subnet: list[str] | None = None
    """Further packages for machines whose NVSwitches an adapter manages; they have versions of their own."""
    signed: Mapping[str, SignedModules] | None = None
    """By kind of the modules."""


@dataclass(frozen=True)
class DriverSource:
    """Where the driver comes from."""

    common: DriverPackages
    branches: Mapping[str, DriverBranch]
    """Without a wanted branch, the role takes the first that supports the GPUs; the newest need not be first."""
    repository: str | None = None
    """URL of NVIDIA's packages, with NVIDIA's word for the architecture as `{machine}`; None for the distribution."""


HEADERS = ["linux-headers-{kernel}", "linux-headers-{flavour}"]

DEBIAN = DriverPackages(
    components=["contrib", "non-free", "non-free-firmware"],
    headers=HEADERS,
    tools=["nvidia-persistenced"],
    cuda=["nvidia-cuda-toolkit"],
)
DEBIAN_CURRENT = DriverBranch(
    open=["nvidia-open-kernel-dkms"],
    proprietary=["nvidia-kernel-dkms"],
    libraries=["libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "nvidia-smi"],
    display={"open": ["nvidia-driver"], "proprietary": ["nvidia-driver"]},
)
DEBIAN_TESLA = DriverBranch(
    proprietary=["nvidia-tesla-{branch}-kernel-dkms"],
    libraries=[
        "libnvidia-tesla-{branch}-cuda1",
        "libnvidia-tesla-{branch}-cfg1",
        "libnvidia-tesla-{branch}-ml1",
        "nvidia-tesla-{branch}-smi",
    ],
    display={"proprietary": ["nvidia-tesla-{branch}-driver"]},
)

UBUNTU = DriverPackages(
    components=["restricted", "universe", "multiverse"], headers=HEADERS, tools=[], cuda=["nvidia-cuda-toolkit"]
)
UBUNTU_SERVER = DriverBranch(
    open=["nvidia-headless-{branch}-server-open"],
    proprietary=["nvidia-headless-{branch}-server"],
    libraries=["nvidia-utils-{branch}-server", "nvidia-compute-utils-{branch}-server"],
    display={"open": ["nvidia-driver-{branch}-server-open"], "proprietary": ["nvidia-driver-{branch}-server"]},
    fabric=["nvidia-fabricmanager-{branch}", "libnvidia-nscq-{branch}"],
    signed={
        "open": SignedModules(
            driver=["nvidia-headless-no-dkms-{branch}-server-open"],
            modules=[
                "linux-modules-nvidia-{branch}-server-open-{kernel}",
                "linux-modules-nvidia-{branch}-server-open-{flavour}",
            ],
        ),
        "proprietary": SignedModules(
            driver=["nvidia-headless-no-dkms-{branch}-server"],
            modules=["linux-modules-nvidia-{branch}-server-{kernel}", "linux-modules-nvidia-{branch}-server-{flavour}"],
        ),
    },
)
UBUNTU_OLD_SERVER = DriverBranch(
    proprietary=["nvidia-headless-{branch}-server"],
    libraries=["nvidia-utils-{branch}-server", "nvidia-compute-utils-{branch}-server"],
    display={"proprietary": ["nvidia-driver-{branch}-server"]},
)
UBUNTU_BRANCHES = {
    "580": UBUNTU_SERVER,
    "595": UBUNTU_SERVER,
    "570": UBUNTU_SERVER,
    "535": UBUNTU_SERVER,
    "470": UBUNTU_OLD_SERVER,
}

REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"


def nvidia_for_debian(release: str) -> DriverSource:
    """NVIDIA's repository for a release of Debian, such as debian12."""
    return DriverSource(
        repository=f"{REPOSITORIES}/{release}/{{machine}}/",
        common=DriverPackages(
            components=["contrib"], headers=HEADERS, tools=["nvidia-persistenced"], cuda=["cuda-toolkit"]
        ),
        branches={
            "580": DriverBranch(
                open=["nvidia-kernel-open-dkms"],
                proprietary=["nvidia-kernel-dkms"],
                libraries=["nvidia-driver-cuda"],
                display={"open": ["nvidia-driver"], "proprietary": ["nvidia-driver"]},
                fabric=["nvidia-fabricmanager-{branch}"],
                subnet=["nvlsm"],
            )
        },
    )


def nvidia_for_ubuntu(release: str) -> DriverSource:
    """NVIDIA's repository for a release of Ubuntu, such as ubuntu2404."""
    return DriverSource(
        repository=f"{REPOSITORIES}/{release}/{{machine}}/",
        common=DriverPackages(components=[], headers=HEADERS, tools=[], cuda=["cuda-toolkit"]),
        branches={
            "580": DriverBranch(
                open=["nvidia-dkms-{branch}-open"],
                proprietary=["nvidia-dkms-{branch}"],
                libraries=["libnvidia-compute-{branch}", "nvidia-utils-{branch}", "nvidia-compute-utils-{branch}"],
                display={"open": ["nvidia-driver-{branch}-open"], "proprietary": ["nvidia-driver-{branch}"]},
                fabric=["nvidia-fabricmanager-{branch}"],
                subnet=["nvlsm"],
            )
        },
    )


PLATFORMS: Mapping[str, Mapping[str, DriverSource]] = {
    "debian 12": {
        "distribution": DriverSource(DEBIAN, {"535": DEBIAN_CURRENT, "470": DEBIAN_TESLA}),
        "nvidia": nvidia_for_debian("debian12"),
    },
    "debian 13": {
        "distribution": DriverSource(DEBIAN, {"550": DEBIAN_CURRENT, "535": DEBIAN_TESLA}),
        "nvidia": nvidia_for_debian("debian13"),
    },
    "debian sid": {
        "distribution": DriverSource(DEBIAN, {"550": DEBIAN_CURRENT, "535": DEBIAN_TESLA, "470": DEBIAN_TESLA})
    },
    "ubuntu 22.04": {"distribution": DriverSource(UBUNTU, UBUNTU_BRANCHES), "nvidia": nvidia_for_ubuntu("ubuntu2204")},
    "ubuntu 24.04": {"distribution": DriverSource(UBUNTU, UBUNTU_BRANCHES), "nvidia": nvidia_for_ubuntu("ubuntu2404")},
    "ubuntu 26.04": {"distribution": DriverSource(UBUNTU, {"580": UBUNTU_SERVER, "595": UBUNTU_SERVER})},
}
"""By distribution and release, as /etc/os-release has them, and source."""


def driver_platforms() -> dict[str, dict[str, dict[str, Any]]]:
    """The table as the module nvidia_driver takes it, without what a branch or a source lacks."""
    return {
        platform: {source: asdict(entry, dict_factory=_without_none) for source, entry in sources.items()}
        for platform, sources in PLATFORMS.items()
    }


def _without_none(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    return {name: value for name, value in pairs if value is not None}
