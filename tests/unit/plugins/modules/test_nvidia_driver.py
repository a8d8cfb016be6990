# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module nvidia_driver on a machine with a GPU, whose commands give prepared answers."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import driver
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.driver import DriverError
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.driver_platforms import driver_platforms
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File
from ansible_collections.gpucluster.slurm.plugins.modules import nvidia_driver

PLATFORMS = driver_platforms()
VERSION = "550.163.01"
PACKAGES = ["libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "nvidia-smi", "nvidia-open-kernel-dkms"]
MADISON = "".join(f"{name} | {VERSION}-2 | http://mirror/debian trixie/non-free amd64 Packages\n" for name in PACKAGES)
RELEASE = "6.12.0-amd64"
TOOLS = ["nvidia-persistenced", f"linux-headers-{RELEASE}", "linux-headers-amd64"]


class Machine:
    """A host below a directory, and the module. `answers`: by the beginning of a command; `told`: commands that ran."""

    def __init__(self, root: Path) -> None:
        self.root, self.check_mode, self.params = root, False, dict[str, Any]()
        self.told: list[str] = []
        self.answers: dict[str, tuple[int, str, str]] = {
            "systemd-detect-virt": (1, "", ""),
            "apt-get indextargets": (0, "http://mirror/debian/ trixie Debian\n", ""),
            "dkms status": (0, f"nvidia-current/{VERSION}, {RELEASE}, x86_64: installed\n", ""),
            "systemctl is-enabled": (0, "enabled\n", ""),
            "systemctl is-active": (0, "active\n", ""),
        }
        self.actions: dict[str, Callable[[], Any]] = {}
        self.write("etc/os-release", 'ID=debian\nVERSION_ID="13"\n')
        self.write("etc/apt/sources.list", "deb http://mirror/debian trixie main\n")
        for name, text in {"vendor": "0x10de", "class": "0x030200", "device": "0x2330"}.items():
            self.write(f"sys/bus/pci/devices/0000:07:00.0/{name}", text)

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def install(self, directory: str = "nvidia/current/", version: str = VERSION) -> None:
        self.write(f"usr/lib/x86_64-linux-gnu/{directory}libnvidia-ml.so.{version}", "")
        shown = "".join(f"{name} installed install nvidia {version}-2\n" for name in [*PACKAGES, *TOOLS])
        self.answers["dpkg-query --show"] = (0, shown, "")
        self.write("etc/apt/preferences.d/gpucluster-nvidia", driver.preferences(version))

    def load(self) -> None:
        self.write("sys/module/nvidia/version", VERSION)

    def get_bin_path(self, _name: str) -> None:
        return None

    def run_command(self, command: list[str], **_arguments: Any) -> tuple[int, str, str]:
        command_line = " ".join(word for word in command if not word.startswith("--option") and word != "--quiet")
        self.told.append(command_line)
        for beginning, action in self.actions.items():
            if command_line.startswith(beginning):
                action()
        found = [answer for beginning, answer in self.answers.items() if command_line.startswith(beginning)]
        return found[-1] if found else (0, "", "")

    def run(self, check: bool = False, **options: Any) -> Any:
        defaults = {"source": "distribution", "branch": "", "version": "", "modules": "auto", "display": False}
        more = {"cuda": False, "gpus": [], "repository": "", "repository_key": "", "start": True}
        self.params, self.check_mode, self.told = {"platforms": PLATFORMS, **defaults, **more, **options}, check, []
        return nvidia_driver.Driver(self).set_up()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    places = ("SOURCES", "PREFERENCES", "MODPROBE", "MODULES", "UNIT_FILE", "SECURE_BOOT")
    for name in places:
        monkeypatch.setattr(nvidia_driver, name, str(tmp_path) + getattr(nvidia_driver, name))
    tree = Tree(str(tmp_path))

    class Below(Tree):
        """Also for names that are below the directory already."""

        def path(self, name: str) -> str:
            return name if name.startswith(str(tmp_path)) else tree.path(name)

    monkeypatch.setattr(nvidia_driver, "Tree", Below)
    monkeypatch.setattr(nvidia_driver, "File", lambda path, content: File(path, content, owner=getpass.getuser()))
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"release": RELEASE}))
    return Machine(tmp_path)


@pytest.fixture
def whole(machine: Machine) -> Machine:
    """One that is as it should be."""
    machine.install()
    machine.load()
    machine.run()
    assert machine.run(check=True)["pending"] is False
    return machine


def test_the_driver_is_asked_whenever_the_module_runs_in_earnest(whole: Machine) -> None:
    assert whole.run()["changed"] is False
    assert "nvidia-smi --list-gpus" in whole.told
    whole.answers["nvidia-smi"] = (9, "No devices were found", "")
    with pytest.raises(DriverError, match="No devices were found"):
        whole.run()
    assert whole.run(check=True)["pending"] is False


def test_a_source_that_apt_cannot_use_is_taken_away_again(machine: Machine) -> None:
    machine.answers["apt-get update"] = (100, "", "E: Conflicting values set for option Trusted")
    with pytest.raises(DriverError, match="Conflicting values"):
        machine.run()
    assert not Path(nvidia_driver.SOURCES).exists()
    assert machine.told.count("apt-get update") == 1
    assert not [command_line for command_line in machine.told if command_line.startswith("apt-get install")]


def test_apt_lists_are_renewed_before_a_version_is_said_not_to_be_there(machine: Machine) -> None:
    machine.actions["apt-get update"] = lambda: machine.answers.update({"apt-cache madison": (0, MADISON, "")})
    # As after a run that was killed before it had the lists of the source that it has written.
    assert machine.run(check=True)["version"] == ""
    machine.write("etc/apt/sources.list", "deb http://mirror/debian trixie main contrib non-free non-free-firmware\n")
    plan = machine.run(check=True)
    assert (plan["version"], plan["pending"]) == (VERSION, True)
    assert machine.told.count("apt-get update") == 1
    with pytest.raises(DriverError, match=r"version 550.999.01 of the driver is not in all of its packages"):
        machine.run(check=True, version="550.999.01")


def test_a_host_without_apt_lists_gets_them_before_its_sources_are_checked(machine: Machine) -> None:
    targets = machine.answers.pop("apt-get indextargets")
    machine.actions["apt-get update"] = lambda: machine.answers.update({"apt-get indextargets": targets})
    plan = machine.run(check=True)
    assert [diff["after_header"] for diff in plan["diff"] if "contrib" in diff["after"]] == [nvidia_driver.SOURCES]
    assert not Path(nvidia_driver.SOURCES).exists()


@pytest.mark.parametrize("fails", ["apt-get install", "dkms autoinstall"])
def test_a_module_that_does_not_compile_is_named_with_its_first_error(machine: Machine, fails: str) -> None:
    """The package may fail because of it, which apt reports, or not."""
    machine.write("etc/apt/sources.list", "deb http://mirror/debian trixie main contrib non-free non-free-firmware\n")
    machine.answers |= {"apt-cache madison": (0, MADISON, ""), "dkms status": (0, "", "")}
    machine.answers[fails] = (1, "", "E: Sub-process /usr/bin/dpkg returned an error code (1)")
    machine.actions["apt-get install"] = machine.install
    with pytest.raises(DriverError, match="DKMS has no log of it" if fails == "dkms autoinstall" else "error code"):
        machine.run()
    log = f"var/lib/dkms/nvidia-current-open/{VERSION}/build/make.log"
    machine.write(log, "nv-pci.c:237:9: error: too few arguments\nmake: *** [nv-pci.o] Error 1\n")
    machine.answers.pop("dpkg-query --show")
    with pytest.raises(
        DriverError, match=rf"^DKMS .*{VERSION} \(open\) .*{RELEASE}: nv-pci.c:237:9: error: too few .*{log}"
    ):
        machine.run()


def test_a_module_that_cannot_be_loaded_is_an_error_and_no_reason_to_boot(machine: Machine) -> None:
    machine.install()
    machine.write(nvidia_driver.SECURE_BOOT[len(str(machine.root)) + 1 :], "\x06\x00\x00\x00\x01")
    machine.answers["modprobe"] = (1, "", "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service")
    plan = machine.run(check=True)
    assert (plan["pending"], plan["reboot"]) == (True, [])
    with pytest.raises(DriverError, match=r"(?s)Key was rejected by service.*Secure Boot is on"):
        machine.run()

    machine.actions["modprobe"] = machine.load
    done = machine.run()
    assert (done["changed"], done["reboot"], done["remarks"]) == (True, [], [])


def test_nouveau_is_a_reason_to_boot_and_nothing_is_loaded_beside_it(machine: Machine) -> None:
    machine.install()
    machine.write("sys/module/nouveau/version", "")
    assert machine.run()["reboot"] == ["nouveau is loaded, and has the GPUs until the next boot"]
    assert not [command_line for command_line in machine.told if command_line.startswith(("modprobe", "nvidia-smi"))]


def test_the_fabric_manager_is_started_with_the_driver(whole: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"vendor": "0x10de", "class": "0x068000", "device": "0x22a3"}.items():
        whole.write(f"sys/bus/pci/devices/0000:0a:00.0/{name}", text)
    monkeypatch.setattr(driver, "choose", lambda *_: driver.Choice("550", "open", [], PACKAGES, TOOLS, []))
    whole.answers["systemctl is-active nvidia-fabricmanager.service"] = (3, "inactive\n", "")
    assert whole.run(check=True)["pending"] is True
    assert whole.run()["changed"] is True
    assert whole.told.index("nvidia-smi --list-gpus") < whole.told.index(f"systemctl start {nvidia_driver.FABRIC}")
    del whole.answers["systemctl is-active nvidia-fabricmanager.service"]
    assert whole.run(check=True)["pending"] is False


def test_a_fabric_manager_of_another_version_than_the_driver_is_refused(whole: Machine) -> None:
    """Both are the site's: the role installs the two in one version."""
    (whole.root / "etc/apt/preferences.d/gpucluster-nvidia").unlink()
    for name, text in {"vendor": "0x10de", "class": "0x068000", "device": "0x22a3"}.items():
        whole.write(f"sys/bus/pci/devices/0000:0a:00.0/{name}", text)
    fabric = "nvidia-fabricmanager-550 installed install nvidia {}\n"
    whole.answers["dpkg-query --show"] = (0, fabric.format("550.90.07-1"), "")
    with pytest.raises(DriverError, match=r"driver 550.163.01 and fabric manager .*550.90.07"):
        whole.run(check=True)
    whole.answers["dpkg-query --show"] = (0, fabric.format(f"{VERSION}-1"), "")
    assert whole.run(check=True)["reason"] == ""


def test_an_adapter_that_manages_nvswitches_has_its_modules_before_the_fabric_manager(
    whole: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HGX B200 and B300 have no NVSwitch on PCI. The data of the adapter are made by hand from NVIDIA's guide."""
    for name, text in {"vendor": "0x15b3", "class": "0x020700", "vpd": "\x82 ConnectX-7 \x90 SW_MNG \x00"}.items():
        whole.write(f"sys/bus/pci/devices/0000:0b:00.0/{name}", text)
    targets = []

    def choose(_platforms: Any, target: driver.DriverTarget, _options: Any) -> driver.Choice:
        targets.append(target)
        return driver.Choice("550", "open", [], PACKAGES, TOOLS, [])

    monkeypatch.setattr(driver, "choose", choose)
    whole.answers["systemctl is-active nvidia-fabricmanager.service"] = (3, "inactive\n", "")
    assert whole.run(check=True)["pending"] is True
    assert whole.run()["changed"] is True
    assert targets[-1].nvlink
    assert targets[-1].has_fabric
    assert Path(nvidia_driver.MODULES).read_text().split("\n")[1:] == ["ib_umad", "mlx5_ib", ""]
    start = whole.told.index(f"systemctl start {nvidia_driver.FABRIC}")
    assert whole.told[start - 1] == "modprobe --all ib_umad mlx5_ib"
    del whole.answers["systemctl is-active nvidia-fabricmanager.service"]
    assert whole.run(check=True)["pending"] is False
    whole.write("sys/bus/pci/devices/0000:0b:00.0/vpd", "\x82 ConnectX-7 \x90")
    assert whole.run(check=True)["pending"] is False
    assert not targets[-1].has_fabric


def test_an_older_branch_that_debian_would_not_use_is_refused_with_what_to_remove(whole: Machine) -> None:
    whole.answers["dpkg-query --search"] = (0, "libnvidia-ml1:amd64: /usr/lib/...\n", "")
    with pytest.raises(DriverError, match=r"driver 550.163.01 is installed.*branch 535.*purge libcuda1 libnvidia-cfg1"):
        whole.run(check=True, branch="535", modules="proprietary")


def test_a_library_that_hides_the_one_that_is_installed_is_an_error(whole: Machine) -> None:
    whole.write("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.1", "")
    with pytest.raises(DriverError, match=r"driver 550.163.01 is installed, but programs load the library of 570.1"):
        whole.run()


UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\n'
HEADLESS = ["nvidia-utils-580-server", "nvidia-compute-utils-580-server", "nvidia-headless-no-dkms-580-server-open"]


def madison(*packages: str, version: str = "580.95.05-0ubuntu0.24.04.1") -> tuple[int, str, str]:
    return (0, "".join(f"{name} | {version} | http://mirror noble/main amd64 Packages\n" for name in packages), "")


@pytest.fixture(name="locked")
def with_ubuntu_on_gcp_and_secure_boot(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine.write("etc/os-release", UBUNTU)
    machine.write("etc/apt/sources.list", "deb http://mirror/debian trixie main restricted universe multiverse\n")
    machine.write(nvidia_driver.SECURE_BOOT[len(str(machine.root)) + 1 :], "\x06\x00\x00\x00\x01")
    monkeypatch.setattr(driver, "own", lambda *_: {("http://mirror/debian", "trixie")})
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"release": "6.8.0-1028-gcp"}))
    machine.answers["dpkg-query --show --showformat"] = (0, "", "")
    machine.answers["apt-cache madison"] = madison(*HEADLESS, *modules("6.8.0-1028-gcp", "gcp"))
    return machine


def modules(*kernels: str) -> list[str]:
    return [f"linux-modules-nvidia-580-server-open-{name}" for name in kernels]


def test_secure_boot_takes_modules_that_ubuntu_has_signed(locked: Machine) -> None:
    locked.answers["modinfo"] = (0, "580.95.05\n", "")
    plan = locked.run(check=True)
    assert plan["packages"] == [*HEADLESS, *modules("6.8.0-1028-gcp", "gcp")]
    assert not [command_line for command_line in locked.told if command_line.startswith("dkms")]
    locked.actions["modprobe"] = locked.load
    locked.run()
    assert not [command_line for command_line in locked.told if command_line.startswith("dkms")]
    locked.answers["modinfo"] = (0, "580.82.07\n", "")
    with pytest.raises(DriverError, match=r"driver 580.95.05 is installed, .* 6.8.0-1028-gcp, has version 580.82.07"):
        locked.run()


def test_a_kernel_without_signed_modules_is_refused_before_anything_is_changed(locked: Machine) -> None:
    locked.answers["apt-cache madison"] = madison(*HEADLESS, *modules("gcp"))
    with pytest.raises(DriverError, match=r"no signed modules linux-modules-nvidia-580-server-open-6.8.0-1028-gcp: "):
        locked.run()
    assert not [command_line for command_line in locked.told if command_line.startswith("apt-get install")]


def test_a_driver_of_dkms_goes_on_with_secure_boot(locked: Machine) -> None:
    locked.answers["dpkg-query --show --showformat"] = (
        0,
        "nvidia-dkms-580-server-open installed install x 580-1\n",
        "",
    )
    dkms = [name.replace("no-dkms-", "") for name in HEADLESS]
    locked.answers["apt-cache madison"] = madison(*dkms)
    assert locked.run(check=True)["packages"] == [
        *dkms,
        "linux-headers-6.8.0-1028-gcp",
        "linux-headers-gcp",
    ]


def test_a_branch_whose_packages_are_transitional_is_refused(locked: Machine) -> None:
    kernels = modules("6.8.0-1028-gcp", "gcp")
    names = [name.replace("580", "535") for name in [*HEADLESS, *kernels]]
    locked.answers["apt-cache madison"] = madison(*names, version="535.309.01-0ubuntu0")
    locked.answers["apt-cache show"] = (
        0,
        f"Package: {names[0]}\nDepends: nvidia-utils-580-server\nDescription-en: Binaries (transitional package)\n",
        "",
    )
    with pytest.raises(DriverError, match=r"535: nvidia-utils-535-server of ubuntu 24.04 is .* installs branch 580"):
        locked.run(check=True, branch="535")


def test_an_image_gets_the_driver_for_its_newest_kernel_and_nothing_is_started(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []

    @contextmanager
    def services_held(hold: bool) -> Iterator[None]:
        held.append(hold)
        yield

    monkeypatch.setattr(nvidia_driver, "services_held", services_held)
    machine.answers |= {"systemd-detect-virt": (0, "", ""), "systemctl is-enabled": (1, "disabled\n", "")}
    machine.answers["apt-cache madison"] = (0, MADISON, "")
    for name in ("6.1.0-44-amd64", RELEASE):
        machine.write(f"lib/modules/{name}/modules.dep", "")
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"release": "6.8.0-of-the-builder"}))
    machine.load()
    machine.actions["apt-get install"] = machine.install
    result = machine.run(gpus=["2330"], start=False)
    assert (result["changed"], result["version"], result["modules"]) == (True, VERSION, "open")
    assert held == [True]
    assert any(command.startswith("apt-get install") and TOOLS[1] in command for command in machine.told)
    forbidden = ("modprobe", "nvidia-smi", "systemctl start", "systemctl daemon-reload", "systemd-detect-virt")
    assert [command for command in machine.told if command.startswith(forbidden)] == []
    assert any(command.startswith("systemctl enable") for command in machine.told)


@pytest.mark.parametrize(
    ("gpus", "kernel", "reason"),
    [([], RELEASE, "no NVIDIA GPU on PCI"), (["2330"], "", "an image without a kernel")],
)
def test_an_image_without_a_kernel_or_named_gpus_gets_no_driver(
    machine: Machine, gpus: list[str], kernel: str, reason: str
) -> None:
    if kernel:
        machine.write(f"lib/modules/{kernel}/modules.dep", "")
    result = machine.run(gpus=gpus, start=False)
    assert (result["reason"], result["changed"]) == (reason, False)


def test_the_newest_kernel() -> None:
    assert driver.newest_kernel(["6.8.0-9-generic", "6.8.0-51-generic", "6.1.0-44-amd64"]) == "6.8.0-51-generic"
    assert driver.newest_kernel([]) == ""


GPU, SWITCH, ADAPTER = "0x030200", "0x068000", "0x020700"
SERVERS: dict[str, tuple[list[tuple[str, str, str, str]], str, list[str]]] = {
    "HGX A100": ([("10de", GPU, "20b2", "")] * 8 + [("10de", SWITCH, "1af1", "")] * 6, "amd64", ["fabricmanager-580"]),
    "HGX H100": ([("10de", GPU, "2330", "")] * 8 + [("10de", SWITCH, "22a3", "")] * 4, "amd64", ["fabricmanager-580"]),
    "HGX H200": ([("10de", GPU, "2335", "")] * 8 + [("10de", SWITCH, "22a3", "")] * 4, "amd64", ["fabricmanager-580"]),
    "H100 PCIe": ([("10de", GPU, "2331", "")] * 4 + [("15b3", ADAPTER, "1021", "ConnectX-7")], "amd64", []),
    "HGX B200": (
        [("10de", GPU, "2901", "")] * 8
        + [("15b3", ADAPTER, "1021", "ConnectX-7")] * 8
        + [("15b3", ADAPTER, "1021", "ConnectX-7 SW_MNG")] * 4,
        "amd64",
        ["fabricmanager-580", "nvlsm"],
    ),
    "GB200": ([("10de", GPU, "2941", "")] * 4 + [("15b3", ADAPTER, "1021", "ConnectX-7")] * 4, "arm64", []),
}
"""Servers by hand from public lists of lspci: vendor, class, device and vital product data of their devices, their
architecture, and which packages their fabric needs."""


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_gets_what_its_fabric_needs(machine: Machine, server: str) -> None:
    """From NVIDIA's repository for its architecture, with the units that it needs and no others."""
    devices, architecture, fabric = SERVERS[server]
    for number, (vendor, kind, device, data) in enumerate(devices):
        texts = {"vendor": f"0x{vendor}", "class": kind, "device": f"0x{device}", **({"vpd": data} if data else {})}
        for name, text in texts.items():
            machine.write(f"sys/bus/pci/devices/0000:{number + 7:02x}:00.0/{name}", text)
    names = ["nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-fabricmanager-580"]
    machine.answers["apt-cache madison"] = madison(*names, version="580.95.05-1")
    machine.answers["dpkg --print-architecture"] = (0, f"{architecture}\n", "")
    machine.answers["systemctl is-enabled"] = (1, "disabled\n", "")
    result = machine.run(source="nvidia", repository_key="KEY", check=True)
    (sources,) = [each["after"] for each in result["diff"] if "nvidia.sources" in each.get("after_header", "")]
    assert f"debian13/{'sbsa' if architecture == 'arm64' else 'x86_64'}/" in sources
    checked = nvidia_driver.Driver(machine)
    target = driver.DriverTarget("debian 13", result["generations"], checked.switches, RELEASE, nvlink=checked.nvlink)
    options = {"source": "nvidia", "branch": "", "modules": "auto", "display": False, "cuda": False}
    choice = driver.choose(PLATFORMS, target, options)
    packages = [*choice.driver, *choice.tools]
    assert [name.removeprefix("nvidia-") for name in packages if re.search("fabric|nvlsm", name)] == fabric
    assert choice.modules == "open"
    checked.find_idle_units()
    assert checked.units == [nvidia_driver.UNIT, *([nvidia_driver.FABRIC] if fabric else [])]


def test_the_unit_of_the_device_files_is_valid(tmp_path: Path) -> None:
    """It starts after nvidia-persistenced and the fabric manager, and before slurmd."""
    unit = tmp_path / nvidia_driver.UNIT
    unit.write_text(driver.UNIT)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    others = [line for line in checked.stderr.split("\n") if line and "is not executable" not in line]
    assert others == []
    order = dict(line.split("=", 1) for line in driver.UNIT.split("\n") if line.startswith(("After=", "Before=")))
    assert order == {"After": "nvidia-persistenced.service nvidia-fabricmanager.service", "Before": "slurmd.service"}
