# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver for a machine, on each platform of role nvidia_driver, and the error if there is none.

For Debian 12 and 13 the tests in the lab show that the archives have these names (tests/integration/default).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import driver as nvidia
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.driver import DriverError, DriverTarget
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.driver_platforms import driver_platforms
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree

ROLE = Path(__file__).parents[6] / "roles/nvidia_driver"
PLATFORMS = driver_platforms()
OPTIONS = {"source": "distribution", "branch": "", "modules": "auto", "display": False, "cuda": False}
KERNEL = "6.12.117+deb13-amd64"


def choose(
    platform: str,
    *generations: str,
    switches: int = 0,
    nvlink: bool = False,
    kernel: str = KERNEL,
    **options: Any,
) -> nvidia.Choice:
    target = DriverTarget(platform, generations, switches, kernel, nvlink=nvlink)
    return nvidia.choose(PLATFORMS, target, {**OPTIONS, **options})


@pytest.mark.parametrize(
    ("device", "generation"),
    [
        ("0dc0", "fermi"),
        ("102d", "kepler"),  # Tesla K80
        ("13f2", "maxwell"),  # Tesla M60
        ("15f8", "pascal"),  # Tesla P100
        ("1617", "maxwell"),
        ("1b38", "pascal"),  # Tesla P40
        ("1db6", "volta"),  # Tesla V100
        ("0x1eb8", "turing"),  # Tesla T4
        ("2184", "turing"),  # GTX 1660
        ("20b2", "ampere"),  # A100
        ("2235", "ampere"),  # A40
        ("25b6", "ampere"),  # A16
        ("2330", "hopper"),  # H100
        ("2335", "hopper"),  # H200
        ("26b9", "ada"),  # L40S
        ("2901", "blackwell"),  # B200
        ("3182", "blackwell"),  # B300
    ],
)
def test_a_device_id_tells_the_generation(device: str, generation: str) -> None:
    assert nvidia.generation(device) == generation


def test_what_is_no_device_id_is_refused() -> None:
    with pytest.raises(DriverError, match="found 'h100', allowed: a PCI device id"):
        nvidia.generation("h100")


@pytest.mark.parametrize(
    ("generations", "kinds"),
    [
        (["volta"], ["proprietary"]),
        (["turing"], ["open", "proprietary"]),
        (["hopper", "ampere"], ["open", "proprietary"]),
        (["pascal", "ampere"], ["proprietary"]),
        (["blackwell"], ["open"]),
        (["volta", "blackwell"], []),
    ],
)
def test_open_modules_need_turing_and_blackwell_needs_them(generations: list[str], kinds: list[str]) -> None:
    assert nvidia.kernel_modules(generations) == kinds


@pytest.mark.parametrize(
    ("platform", "generation", "branch", "driver"),
    [
        (
            "debian 12",
            "ampere",
            "535",
            ["libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "nvidia-smi", "nvidia-open-kernel-dkms"],
        ),
        (
            "debian 13",
            "volta",
            "550",
            ["libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "nvidia-smi", "nvidia-kernel-dkms"],
        ),
        (
            "debian sid",
            "kepler",
            "470",
            [
                "libnvidia-tesla-470-cuda1",
                "libnvidia-tesla-470-cfg1",
                "libnvidia-tesla-470-ml1",
                "nvidia-tesla-470-smi",
                "nvidia-tesla-470-kernel-dkms",
            ],
        ),
        (
            "ubuntu 22.04",
            "turing",
            "580",
            ["nvidia-utils-580-server", "nvidia-compute-utils-580-server", "nvidia-headless-580-server-open"],
        ),
        (
            "ubuntu 24.04",
            "pascal",
            "580",
            ["nvidia-utils-580-server", "nvidia-compute-utils-580-server", "nvidia-headless-580-server"],
        ),
        (
            "ubuntu 26.04",
            "blackwell",
            "580",
            ["nvidia-utils-580-server", "nvidia-compute-utils-580-server", "nvidia-headless-580-server-open"],
        ),
    ],
)
def test_each_platform_has_its_packages(platform: str, generation: str, branch: str, driver: list[str]) -> None:
    choice = choose(platform, generation)
    assert (choice.branch, choice.driver) == (branch, driver)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_branch_gives_complete_packages_on_every_platform(platform: str) -> None:
    for source, table in PLATFORMS[platform].items():
        for branch, packages in table["branches"].items():
            generation = "turing" if "open" in packages else "maxwell" if int(branch) > 470 else "kepler"
            choice = choose(platform, generation, source=source, branch=branch, display=True, cuda=True)
            names = choice.driver + choice.tools
            assert choice.branch == branch
            assert not [name for name in names if "{" in name or not name]
            assert f"linux-headers-{KERNEL}" in names
            assert "linux-headers-amd64" in names


def test_the_options_of_the_role_name_every_branch_and_source() -> None:
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    sources = [source for platform in PLATFORMS.values() for source in platform.items()]
    branches = {branch for _name, source in sources for branch in source["branches"]}
    assert set(options["nvidia_driver_branch"]["choices"]) == branches | {""}
    assert set(options["nvidia_driver_source"]["choices"]) == {name for name, _source in sources}


@pytest.mark.parametrize(
    ("kernel", "images", "found"),
    [
        ("6.12.0-amd64", ["linux-image-amd64", "linux-image-6.12.0-amd64"], ["amd64"]),
        ("6.12.117+deb13-cloud-amd64", [], ["cloud-amd64"]),
        ("6.8.0-60-generic", ["linux-image-generic"], ["generic"]),
        # A virtual machine has linux-image-virtual, whose kernel is the generic one.
        ("6.8.0-60-generic", ["linux-image-virtual"], ["generic"]),
        ("6.11.0-26-generic", ["linux-image-generic-hwe-24.04"], ["generic-hwe-24.04"]),
        (
            "6.11.0-26-generic",
            ["linux-image-generic", "linux-image-generic-hwe-24.04", "linux-image-generic-64k-hwe-24.04"],
            ["generic", "generic-hwe-24.04"],
        ),
        ("6.8.0-1028-gcp", ["linux-image-gcp", "linux-image-6.8.0-1028-gcp"], ["gcp"]),
        ("6.8.0-1028-gcp", ["linux-image-gcp-lts-24.04"], ["gcp-lts-24.04"]),
        ("6.17.0-1021-gcp", ["linux-image-gcp-6.17"], ["gcp-6.17"]),
        ("6.8.0-1030-aws", ["linux-image-aws"], ["aws"]),
        ("6.8.0-1018-nvidia", ["linux-image-nvidia", "linux-image-nvidia-64k"], ["nvidia"]),
        ("6.8.0-1018-nvidia-64k", ["linux-image-nvidia", "linux-image-nvidia-64k-hwe-24.04"], ["nvidia-64k-hwe-24.04"]),
    ],
)
def test_flavours_of_a_kernel(kernel: str, images: list[str], found: list[str]) -> None:
    assert nvidia.flavours(kernel, images) == found


def test_signed_modules_are_taken_where_the_platform_has_them() -> None:
    images = ["linux-image-generic-hwe-24.04"]
    target = DriverTarget("ubuntu 24.04", ["pascal"], 0, "6.11.0-26-generic", images, signed=True)
    choice = nvidia.choose(PLATFORMS, target, OPTIONS)
    assert choice.driver[-1] == "nvidia-headless-no-dkms-580-server"
    assert (
        choice.signed
        == choice.tools
        == [
            "linux-modules-nvidia-580-server-6.11.0-26-generic",
            "linux-modules-nvidia-580-server-generic-hwe-24.04",
        ]
    )
    for platform, options in {
        "debian 13": OPTIONS,
        "ubuntu 24.04": {**OPTIONS, "branch": "470", "modules": "proprietary"},
    }.items():
        target = DriverTarget(platform, ["turing"], kernel=KERNEL, signed=True)
        assert nvidia.choose(PLATFORMS, target, options).signed == []
    without_kernel = DriverTarget("ubuntu 24.04", ["hopper"], signed=True)
    assert nvidia.choose(PLATFORMS, without_kernel, OPTIONS).signed == []


def test_transitional_packages_name_the_branch_that_they_install() -> None:
    shown = """Package: nvidia-headless-535-server
Version: 535.309.01-0ubuntu0.24.04.2
Depends: nvidia-headless-580-server
Description-en: NVIDIA headless metapackage (transitional package)

Package: nvidia-utils-580-server
Depends: libc6 (>= 2.34), libnvidia-compute-580-server
Description-en: NVIDIA Server Driver support binaries
"""
    assert nvidia.replaced_by(shown) == {"nvidia-headless-535-server": "580"}
    assert nvidia.replaced_by("") == {}


def test_a_container_gets_no_kernel_modules() -> None:
    choice = choose("debian 13", "hopper", kernel="")
    assert (choice.modules, choice.tools) == ("", ["nvidia-persistenced"])
    assert not [name for name in choice.driver if "kernel" in name]


def test_a_machine_whose_nvswitches_an_adapter_manages_gets_the_subnet_manager_too() -> None:
    """B200 and B300. The subnet manager has versions of its own, the fabric manager that of the driver."""
    choice = choose("debian 13", "blackwell", nvlink=True, source="nvidia")
    assert "nvidia-fabricmanager-580" in choice.driver
    assert "nvlsm" in choice.tools
    with pytest.raises(
        DriverError, match=r"no fabric manager and subnet manager of NVLink \(nvlsm\) from distribution"
    ):
        choose("debian 13", "hopper", nvlink=True)
    with pytest.raises(DriverError, match="no subnet manager of NVLink"):
        choose("ubuntu 24.04", "blackwell", nvlink=True, branch="580")
    assert "nvlsm" not in choose("debian 13", "hopper", switches=4, source="nvidia").tools


def test_a_machine_with_nvswitch_gets_the_fabric_manager_of_the_branch() -> None:
    assert "nvidia-fabricmanager-595" in choose("ubuntu 24.04", "hopper", switches=4, branch="595").driver
    with pytest.raises(DriverError, match="has no fabric manager from distribution, and the machine needs it"):
        choose("debian 13", "hopper", switches=4)


@pytest.mark.parametrize(
    ("platform", "generation", "options", "message"),
    [
        (
            "debian 11",
            "turing",
            {},
            "no NVIDIA driver is known for debian 11; one is known for debian 12, debian 13",
        ),
        (
            "debian sid",
            "turing",
            {"source": "nvidia"},
            "debian sid has no NVIDIA driver from 'nvidia'; it has one from distribution",
        ),
        (
            "debian 13",
            "turing",
            {"branch": "505"},
            "debian 13 has no driver branch 505 from distribution; it has 550, 535; did you mean 5[53][05]",
        ),
        (
            "debian 13",
            "blackwell",
            {},
            r"none of the driver branches 550, 535, which debian 13 has from distribution, drives the GPUs of this "
            r"machine \(blackwell needs 570 or later\)",
        ),
        (
            "ubuntu 24.04",
            "volta",
            {"branch": "595"},
            r"driver branch 595 from distribution does not drive the GPUs of this machine "
            r"\(volta needs 580 or earlier\)",
        ),
        ("debian 13", "volta", {"modules": "open"}, "open kernel modules do not drive volta; these do: proprietary"),
        ("ubuntu 24.04", "blackwell", {"modules": "proprietary"}, "do not drive blackwell; these do: open"),
        (
            "debian 13",
            "ampere",
            {"branch": "535", "modules": "open"},
            "driver branch 535, which debian 13 has from distribution, has no open kernel modules",
        ),
    ],
)
def test_what_there_is_not_is_told_with_what_there_is(
    platform: str, generation: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DriverError, match=message):
        choose(platform, generation, **options)


MADISON = """\
libcuda1 | 535.309.01-0+deb12u1 | http://mirror/debian bookworm-updates/non-free amd64 Packages
libcuda1 | 535.261.03-1 | http://mirror/debian bookworm/non-free amd64 Packages
nvidia-open-kernel-dkms | 535.261.03-1 | http://mirror/debian bookworm/contrib amd64 Packages
nvidia-kernel-dkms | 535.309.01-0+deb12u1 | http://mirror/debian bookworm-updates/non-free amd64 Packages
nvidia-kernel-dkms | 535.261.03-1 | http://mirror/debian bookworm/non-free amd64 Packages
"""


def test_kernel_modules_and_libraries_get_one_version() -> None:
    offered = nvidia.offered(MADISON)
    assert nvidia.agree(["libcuda1", "nvidia-kernel-dkms"], offered, "535", "") == "535.309.01"
    assert nvidia.agree(["libcuda1", "nvidia-open-kernel-dkms"], offered, "535", "") == "535.261.03"
    assert nvidia.agree(["libcuda1", "nvidia-kernel-dkms"], offered, "535", "535.261.03") == "535.261.03"
    with pytest.raises(
        DriverError, match=r"535.309.01 of the driver is not in all of its packages: .*dkms 535.261.03-1$"
    ):
        nvidia.agree(["libcuda1", "nvidia-open-kernel-dkms"], offered, "535", "535.309.01")
    with pytest.raises(DriverError, match="nvidia-smi is not there"):
        nvidia.agree(["libcuda1", "nvidia-smi"], offered, "535", "")


def test_preferences_tell_the_version_that_they_keep() -> None:
    assert nvidia.pinned(nvidia.preferences("550.163.01")) == "550.163.01"
    assert nvidia.pinned(None) == ""


ONE_LINE = """\
# a comment
deb [arch=amd64,i386 lang+=de signed-by=/usr/share/keyrings/site.gpg] http://mirror/debian trixie main  # the site's
deb-src http://mirror/debian trixie main
deb http://mirror/debian/ trixie-updates main contrib non-free
deb [trusted=yes] http://site/packages trixie main
"""
DEB822 = """\
Types: deb deb-src
# a comment
URIs: http://mirror/ubuntu
Suites: noble noble-updates
Components: main restricted
Check-Valid-Until: no
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: http://mirror/ubuntu
Suites: noble-backports
Components: main

Types: deb
URIs: http://ppa/ubuntu
Suites: noble
Components: main
"""
TARGETS = """\
http://mirror/debian/ trixie Debian
http://mirror/debian/ trixie-updates Debian
http://mirror/debian/ trixie-backports Debian Backports
http://mirror/ubuntu/ noble Ubuntu
http://ppa/ubuntu/ noble LP-PPA-somebody
http://site/packages/ trixie $(ORIGIN)
"""


def test_only_components_that_are_missing_are_added_with_all_that_the_site_says_of_its_sources() -> None:
    debian = nvidia.own(TARGETS, "debian 13")
    sources = nvidia.read_sources({"/etc/apt/sources.list": ONE_LINE})
    assert debian == {("http://mirror/debian", "trixie"), ("http://mirror/debian", "trixie-updates")}
    assert [source.components for source in sources] == [("main",), ("main", "contrib", "non-free"), ("main",)]
    assert nvidia.missing_components(sources, ["contrib", "non-free"], debian) == (
        "Types: deb\nURIs: http://mirror/debian\nSuites: trixie\nComponents: contrib non-free\n"
        "Architectures: amd64,i386\nLanguages-Add: de\nSigned-By: /usr/share/keyrings/site.gpg\n"
    )
    ubuntu = nvidia.own(TARGETS, "ubuntu 24.04")
    key = DEB822[DEB822.index("Check-Valid") : DEB822.index("\nEnabled")]
    sources = nvidia.read_sources({"/etc/apt/sources.list.d/x.sources": DEB822, "/etc/apt/x.sources.save": DEB822})
    assert len(sources) == 2
    assert nvidia.missing_components(sources, ["restricted", "universe"], ubuntu) == (
        "Types: deb\nURIs: http://mirror/ubuntu\nSuites: noble noble-updates\nComponents: universe\n" + key
    )
    everywhere = nvidia.read_sources(
        {"/etc/apt/sources.list": "deb http://mirror/debian/ trixie main contrib non-free"}
    )
    assert nvidia.missing_components(everywhere, ["contrib", "non-free"], debian) == ""
    # Of an image for clouds; apt itself writes the URI otherwise.
    cloud = nvidia.read_sources({"/etc/apt/sources.list": "deb mirror+file:///etc/apt/mirrors/debian.list trixie main"})
    listed = nvidia.own("mirror+file:/etc/apt/mirrors/debian.list/ trixie Debian\n", "debian 13")
    assert "Components: contrib\n" in nvidia.missing_components(cloud, ["contrib"], listed)


@pytest.mark.parametrize(
    ("loaded", "version", "nouveau", "expected"),
    [
        ("", "", False, []),
        ("550.163.01", "550.163.01", False, []),
        ("535.183.01", "550.163.01", False, ["the kernel has loaded 535.183.01, 550.163.01 is installed"]),
        ("", "550.163.01", True, ["nouveau is loaded"]),
        ("", "550.163.01", False, []),  # a boot does not mend that
    ],
)
def test_a_reboot_is_asked_for_where_it_is_needed(
    loaded: str, version: str, nouveau: bool, expected: list[str]
) -> None:
    reasons = nvidia.reboot_reasons(loaded, version, nouveau)
    assert len(reasons) == len(expected)
    assert all(text in reason for text, reason in zip(expected, reasons))


def test_dkms_has_to_have_the_version_for_the_kernel_that_runs() -> None:
    status = f"nvidia-current/550.163.01, {KERNEL}, x86_64: installed (Original modules exist)\n"
    assert nvidia.built(status, "550.163.01", KERNEL)
    assert not nvidia.built(status, "550.163.01", "6.12.118+deb13-amd64")
    assert not nvidia.built(status, "550.163.02", KERNEL)
    assert not nvidia.built(status.replace("installed", "added"), "550.163.01", KERNEL)


LOG = """DKMS (dkms-3.2.2) make.log for nvidia-current-open/550.163.01 for kernel 6.12.118+deb13-amd64 (x86_64)
 CONFTEST: pci_resize_resource
cc -Werror=undef -Wno-error -c nvidia/nv-pci.c
/build/nvidia/nv-pci.c: In function 'nv_resize_pcie_bars':
/build/nvidia/nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'
make[4]: *** [Makefile.build:234: nvidia/nv-pci.o] Error 1

# exit code: 2
# elapsed time: 00:00:53
----------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (LOG, "/build/nvidia/nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'"),
        ("cc x\nmake: *** No rule to make target 'modules'.  Stop.\nmake: end\n", "make: *** No rule to make target"),
        ('ERROR: modpost: "x" undefined!\nmake: *** [modpost] Error 1\n', "ERROR: modpost"),
        ("one\nlast\n\n# exit code: 1\n", "last"),
        ("", "DKMS has no log of it"),
    ],
)
def test_the_first_error_of_a_build_is_named(log: str, error: str) -> None:
    assert nvidia.build_error(log).startswith(error)


def test_a_module_that_does_not_compile_is_one_line_with_what_to_do() -> None:
    said = nvidia.build_failure(LOG, "/build/make.log", "550.163.01", "6.12.118+deb13-amd64", "open", ["hopper"])
    assert said.startswith("DKMS has no module 550.163.01 (open) for kernel 6.12.118+deb13-amd64: /build/nvidia/nv-pci")
    assert "The whole log is /build/make.log" in said
    assert "set nvidia_driver_modules to proprietary" in said
    assert "\n" not in said
    # Blackwell needs the open ones.
    said = nvidia.build_failure(LOG, "/build/make.log", "580.1", "6.12.118", "open", ["blackwell"])
    assert "nvidia_driver_modules" not in said
    assert "apt-mark hold" in said


def test_secure_boot_is_read_from_the_variable_of_uefi() -> None:
    assert nvidia.secure_boot(b"\x06\x00\x00\x00\x01")
    assert not nvidia.secure_boot(b"\x06\x00\x00\x00\x00")
    assert not nvidia.secure_boot(None)


def test_a_machine_tells_its_gpus_its_switches_and_its_versions(tmp_path: Path) -> None:
    devices = {
        "0000:07:00.0": ("0x10de", "0x030200", "0x2330"),
        "0000:0a:00.0": ("0x10de", "0x068000", "0x22a3"),
        "0000:0b:00.0": ("0x10de", "0x040300", "0x10f0"),
        "0000:0c:00.0": ("0x8086", "0x030000", "0x0412"),
    }
    for address, values in devices.items():
        directory = tmp_path / "sys/bus/pci/devices" / address
        directory.mkdir(parents=True)
        for name, value in zip(("vendor", "class", "device"), values):
            (directory / name).write_text(value + "\n")
    tree = Tree(str(tmp_path))
    assert nvidia.devices(tree) == (["2330"], 1)
    assert (nvidia.loaded_version(tree), nvidia.library(tree)) == ("", "")

    library = tmp_path / "usr/lib/x86_64-linux-gnu/nvidia/current"
    library.mkdir(parents=True)
    (library / "libnvidia-ml.so.550.163.01").touch()
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("550.163.01\n")
    assert nvidia.loaded_version(tree) == "550.163.01"
    assert nvidia.library_version(nvidia.library(tree)) == "550.163.01"

    # Two libraries: programs load the one that Debian's alternatives select.
    (library.parent / "tesla-535").mkdir()
    (library.parent / "tesla-535/libnvidia-ml.so.535.247.01").touch()
    link = library.parent.parent / "libnvidia-ml.so.1"
    link.symlink_to("nvidia/tesla-535/libnvidia-ml.so.535.247.01")
    assert nvidia.library_version(nvidia.library(tree)) == "535.247.01"


def test_an_older_branch_is_not_used_with_a_newer_one_in_debian() -> None:
    current = "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550.163.01"
    assert nvidia.outlives(current, "535")
    assert not nvidia.outlives(current, "550")
    assert not nvidia.outlives(current.replace("nvidia/current/", ""), "535")
    assert not nvidia.outlives("", "535")
