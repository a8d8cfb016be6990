#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install NVIDIA's driver and check that it is complete."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver
short_description: Install NVIDIA's driver and check that it is complete
description:
  - Chooses kernel modules and packages for the GPUs that a host has on PCI, keeps their version with apt's preferences,
    blocks nouveau, and makes sure that the module is built for the running kernel and that the device files exist
    before slurmd starts.
  - A driver that works and that this module has not installed stays as it is, unless O(branch) or O(version) is given.
  - It never reboots. C(reboot) says why a reboot is necessary.
  - Nothing is done on a host without an NVIDIA GPU, nor in a container, which uses the driver of its host; see O(gpus).
attributes:
  check_mode:
    details:
      - The versions in a source that is not enabled yet are unknown, so they are not predicted.
      - apt's package lists, which are a cache, are updated if they do not have the packages.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.nvidia_driver]
"""

EXAMPLES = r"""
- name: Install the driver for the GPUs
  gpucluster.slurm.nvidia_driver:
    platforms: "{{ lookup('gpucluster.slurm.decision', 'nvidia_driver.platforms') }}"
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.gpu.nvidia import driver
from ..module_utils.gpu.nvidia.driver import DriverError
from ..module_utils.hardware.sysfs import Tree
from ..module_utils.host.files import File, write
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.host.packages import dpkg
from ..module_utils.host.packages.apt_get import services_held
from ..module_utils.host.packages.apt_lock import SECONDS, run_unlocked

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import DriverResult

SOURCES = "/etc/apt/sources.list.d/gpucluster-nvidia.sources"
LISTS = "/etc/apt/sources.list.d"
PREFERENCES = "/etc/apt/preferences.d/gpucluster-nvidia"
MODPROBE = "/etc/modprobe.d/gpucluster-nvidia.conf"
MODULES = "/etc/modules-load.d/gpucluster-nvlink.conf"
UNIT = "gpucluster-nvidia.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
FABRIC = "nvidia-fabricmanager.service"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
DKMS = "/var/lib/dkms"
CONTAINER_TOOLS = "libnvidia-container-tools"
SIGNED = (
    "Secure Boot is on: the kernel loads only modules that are signed with a key that it knows. Enrol the key that "
    "DKMS signs with (mokutil --import /var/lib/dkms/mok.pub, on Ubuntu /var/lib/shim-signed/mok/MOK.der) and confirm "
    "it at the console during the next boot, or switch Secure Boot off. On Ubuntu, the role takes signed modules from "
    "the archive if no package nvidia-dkms-* is installed"
)


class Driver:
    """The driver of this host: its present state, the wanted state, and the changes between them."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.options, self.tree = module, module.params, Tree()
        self.present, self.switches = driver.devices(self.tree)
        # The data of adapters are slow to read, and a machine with NVSwitches on PCI has no manager of others.
        self.nvlink = bool(self.present) and not self.switches and driver.manages_nvlink(self.tree)
        self.start: bool = self.options["start"]
        if not self.start:
            self.present, self.switches, self.nvlink = [], 0, False  # those of the machine that builds
        self.container = self.start and self.status("systemd-detect-virt", "--container", "--quiet") == 0
        self.kernel = "" if self.container else self.find_kernel()
        self.loaded = "" if self.container or not self.start else driver.loaded_version(self.tree)
        self.library = driver.library_version(driver.library(self.tree))
        self.pinned = driver.pinned(self.tree.text(PREFERENCES))
        self.locked = self.secure_boot() if self.start else ""
        self.files: list[File] = []
        self.units: list[str] = []
        self.renewed = False
        self.result: DriverResult = {
            "changed": False,
            "reason": "",
            "generations": [],
            "branch": "",
            "modules": "",
            "version": "",
            "packages": [],
            "pending": False,
            "disruptive": False,
            "reboot": [],
            "remarks": [],
            "diff": [],
        }

    # -- commands --

    def status(self, *command: str) -> int:
        """The exit status of a command."""
        return int(self.module.run_command([*command])[0])

    def ask(self, *command: str) -> str:
        """The output of a command, whether it succeeds or not."""
        return str(self.module.run_command([*command], environ_update={"LC_ALL": "C.UTF-8"})[1])

    def do(self, *command: str) -> str:
        """Run a command that changes something. Raises DriverError with the end of its output if it fails."""
        environment = {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        rc, stdout, stderr = run_unlocked(self.module, command, environment)
        if rc != 0:
            output = "\n".join([*stdout.rstrip("\n").split("\n")[-10:], *stderr.rstrip("\n").split("\n")[-10:]])
            raise DriverError(f"{' '.join(command)}: {output}")
        return str(stdout)

    def apt(self, *arguments: str) -> str:
        """Run apt-get, which waits until another apt-get has ended. Raises DriverError."""
        return self.do("apt-get", "--quiet", f"--option=DPkg::Lock::Timeout={SECONDS}", *arguments)

    # -- what there is --

    def find_kernel(self) -> str:
        """The kernel for which modules are built: the one that runs, or the newest one of an image; empty without."""
        return os.uname().release if self.start else driver.newest_kernel(self.tree.names("/lib/modules"))

    def secure_boot(self) -> str:
        """The warning about modules if Secure Boot is on; empty if it is not."""
        try:
            with open(SECURE_BOOT, "rb") as file:
                return SIGNED if driver.secure_boot(file.read()) else ""
        except OSError:
            return ""  # no UEFI

    def installed(self, packages: list[str]) -> dict[str, str]:
        """The version of each of these packages that is installed."""
        found = dpkg.installed(self.ask(*dpkg.QUERY, *packages))
        return {name: package.version for name, package in found.items()}

    def platform(self) -> str:
        """Distribution and release, such as "debian 13"; a release without a number is "debian sid"."""
        lines = (self.tree.text("/etc/os-release") or "").split("\n")
        values = dict(line.replace('"', "").split("=", 1) for line in lines if "=" in line)
        return f"{values.get('ID', 'unknown')} {values.get('VERSION_ID', 'sid')}"

    def own(self, platform: str) -> set[tuple[str, str]]:
        """The archives of the distribution for which apt has package lists."""
        targets = self.ask("apt-get", "indextargets", "--format", driver.TARGETS, "Created-By: Packages")
        return driver.own(targets, platform)

    def source(self, choice: driver.Choice, platform: str) -> list[File]:
        """The apt source that the packages need; None if the site's sources are enough.

        Raises DriverError without a key.
        """
        paths = [f"{LISTS}/{name}" for name in self.tree.names(LISTS)]
        texts = {path: self.tree.text(path) or "" for path in ["/etc/apt/sources.list", *paths] if path != SOURCES}
        paragraphs = driver.missing_components(driver.read_sources(texts), choice.components, self.own(platform))
        if self.options["source"] == "nvidia":
            key = self.options["repository_key"].strip()
            if not key:
                raise DriverError(
                    "NVIDIA's repository needs its key (nvidia_driver_repository_key), the text of its 3bf863cc.pub"
                )
            uri = self.options["repository"] or self.options["platforms"][platform]["nvidia"]["repository"].format(
                machine=driver.MACHINES.get(self.ask("dpkg", "--print-architecture").strip(), "x86_64")
            )
            signed = "".join(f" {line.rstrip() or '.'}\n" for line in key.split("\n"))
            paragraphs += ("\n" if paragraphs else "") + f"Types: deb\nURIs: {uri}\nSuites: /\nSigned-By:\n{signed}"
        return [File(SOURCES, f"{driver.MANAGED}\n{paragraphs}".encode())] if paragraphs else []

    def enable(self, source: list[File]) -> None:
        """Write the source and download its lists.

        A source that apt cannot use is removed again. Raises DriverError.
        """
        write(source)
        try:
            self.renew()
        except DriverError:
            # With a source that it does not accept, apt refuses every command on the host.
            for file in source:
                if file.found is None:
                    os.unlink(file.path)
                else:
                    write([File(file.path, file.found)])
            raise

    # -- what is wanted --

    def set_up(self) -> DriverResult:
        """Make the changes, or predict them in check mode. Raises DriverError."""
        wanted = self.options["gpus"] or ([] if self.container else self.present)
        if not wanted or (not self.start and not self.kernel):
            self.result["reason"] = self.why_none(wanted)
            return self.result
        self.result["generations"] = sorted({driver.generation(device) for device in wanted})
        present = self.library or self.loaded
        if present and not (self.pinned or self.options["branch"] or self.options["version"]):
            self.result["version"] = present
            self.result["remarks"].append(f"driver {present} was already installed and is not changed")
        else:
            self.packages()
        self.settings()
        self.bring_up()
        return self.result

    def why_none(self, wanted: list[str]) -> str:
        """Why no driver is installed; wanted: its GPUs."""
        if self.container:
            return "a container, whose driver is that of its host"
        return "an image without a kernel" if wanted else "no NVIDIA GPU on PCI"

    def packages(self) -> None:
        """Install the packages from their source in the wanted version. Raises DriverError."""
        platform = self.platform()
        choice = self.choose(platform)
        self.result.update({"branch": choice.branch, "modules": choice.modules})
        self.refuse_older(choice)
        version = self.wanted_version(choice.branch)
        present = {name: driver.upstream(has) for name, has in self.installed(choice.driver + choice.tools).items()}
        if version and all(present.get(name) == version for name in choice.driver):
            self.files += self.source(choice, platform)
        else:
            version = self.available(choice, platform, version)
        changed = self.find_changed(choice, present, version)
        before = self.loaded or self.library
        disruptive = bool(before) and before != version and bool(changed)
        self.result.update({"version": version, "packages": changed, "disruptive": disruptive})
        if version:
            self.files.append(File(PREFERENCES, driver.preferences(version).encode()))
        if not self.module.check_mode:
            self.install(choice, changed, version)

    def choose(self, platform: str) -> driver.Choice:
        """The packages for this machine. Raises DriverError."""
        branch = self.options["branch"] or (self.options["version"] or self.pinned).split(".")[0]
        images = self.installed(["linux-image-*"]) if self.kernel else ()
        # A module of DKMS is signed with a key of the host. Where DKMS has the driver already, it goes on.
        signed = bool(self.locked) and not self.installed(["nvidia-dkms-*"])
        target = driver.DriverTarget(
            platform,
            self.result["generations"],
            self.switches,
            self.kernel,
            images,
            signed=signed,
            nvlink=self.nvlink,
        )
        return driver.choose(self.options["platforms"], target, {**self.options, "branch": branch})

    def wanted_version(self, branch: str) -> str:
        """The version that is asked for, installed, or in a container loaded by its host; empty: the newest one."""
        if self.options["version"]:
            return str(self.options["version"])
        if self.pinned.split(".")[0] == branch:
            return self.pinned
        return driver.loaded_version(self.tree) if self.container else ""

    def find_changed(self, choice: driver.Choice, present: Mapping[str, str], version: str) -> list[str]:
        """The packages to install; `present`: the installed ones with NVIDIA's version."""
        changed = [name for name in choice.driver if name not in present or version not in ("", present[name])]
        changed += [name for name in choice.tools if name not in present]
        if CONTAINER_TOOLS not in self.installed([CONTAINER_TOOLS]) and self.candidate(CONTAINER_TOOLS):
            changed.append(CONTAINER_TOOLS)
        return changed

    def install(self, choice: driver.Choice, changed: list[str], version: str) -> None:
        """Write the files, install packages, and check what is there then. Raises DriverError."""
        write(self.files)
        if changed:
            self.install_packages(changed, version)
            self.library = driver.library_version(driver.library(self.tree))
        if self.library and self.library != version:
            raise DriverError(
                f"driver {version} is installed, but programs load the library of {self.library}, "
                f"{driver.library(self.tree)}: remove it"
            )
        if choice.signed:
            self.check_signed(version)
        elif self.kernel:
            self.build(version)

    def install_packages(self, changed: list[str], version: str) -> None:
        """Install packages. Raises DriverError, with that of the compiler if the package of the module has failed."""
        try:
            with services_held(not self.start):
                self.apt("install", "--yes", "--no-install-recommends", "--allow-downgrades", *changed)
        except DriverError as error:
            if not self.build_log(version)[0]:
                raise
            raise DriverError(self.build_failure(version)) from error

    def check_signed(self, version: str) -> None:
        """Check that the signed module for the running kernel has the driver's version. Raises DriverError."""
        found = self.ask("modinfo", "--field", "version", "nvidia").strip()
        if found != version:
            raise DriverError(
                f"driver {version} is installed, and its signed module for the running kernel, {self.kernel}, has "
                f"version {found or '(none)'}: update the kernel and boot it"
            )

    def candidate(self, package: str) -> bool:
        """Whether apt would install a package."""
        policy = self.ask("apt-cache", "policy", package).split()
        return "Candidate:" in policy and policy[policy.index("Candidate:") + 1] != "(none)"

    def refuse_older(self, choice: driver.Choice) -> None:
        """Raise DriverError if the installed driver would stay in use instead of the wanted one."""
        file = driver.library(self.tree)
        if not driver.outlives(file, choice.branch):
            return
        owners = self.ask("dpkg-query", "--search", file).split("\n")
        if {line.split(":")[0] for line in owners} & {*choice.driver}:
            return  # whose packages are replaced
        versions = self.installed([])
        packages = [name for name in sorted(versions) if driver.upstream(versions[name]) == self.library]
        raise DriverError(
            f"driver {self.library} is installed, and Debian would go on using it instead of branch {choice.branch}, "
            "which is older. Nothing was changed. Drain the node and remove it first: "
            f"apt-get purge {' '.join(packages)}"
        )

    def available(self, choice: driver.Choice, platform: str, version: str) -> str:
        """The version that all packages have. A missing source is written.

        apt's lists are a cache: they are renewed, in check mode, too, if it is not in them. They may be older than the
        version, not be there at all, or lack a source that a run has written and was killed before it had the lists.
        Empty in check mode, where the source is to be written first. Raises DriverError.
        """
        if not self.own(platform):
            self.renew()
        try:
            return self.agree(choice, platform, version)
        except DriverError:
            if self.renewed:
                raise
        self.renew()
        return self.agree(choice, platform, version)

    def agree(self, choice: driver.Choice, platform: str, version: str) -> str:
        """The version that all packages have in the present lists. Raises DriverError."""
        source = self.source(choice, platform)
        if any(file.changes for file in source):
            if self.module.check_mode:
                self.files += source
                return ""
            self.enable(source)
        offered = driver.offered(self.ask("apt-cache", "madison", *choice.driver, *choice.signed))
        found = driver.agree(choice.driver, offered, choice.branch, version)
        if choice.signed and (lacking := [name for name in choice.signed if name not in offered]):
            raise DriverError(
                f"Secure Boot is on, and the archive has no signed modules {', '.join(lacking)}: update the kernel and "
                "boot it, or install the driver with DKMS and enrol its key"
            )
        self.refuse_transitional(choice, platform)
        self.files += source
        return found

    def refuse_transitional(self, choice: driver.Choice, platform: str) -> None:
        """Raise DriverError if the archive has only empty packages of the branch, which install another one."""
        shown = self.ask("apt-cache", "show", "--no-all-versions", *choice.driver)
        if replaced := driver.replaced_by(shown):
            name, branch = next(iter(replaced.items()))
            raise DriverError(
                f"driver branch {choice.branch}: {name} of {platform} is a transitional package now, which installs "
                f"branch {branch}. Set nvidia_driver_branch to {branch}, or to another one that the platform has"
            )

    def renew(self) -> None:
        """Update apt's lists. Raises DriverError."""
        self.renewed = True
        self.apt("update")

    def build(self, version: str) -> None:
        """Check that DKMS has built the module for the kernel. Raises DriverError with the compiler's first error."""
        if driver.built(self.ask("dkms", "status"), version, self.kernel):
            return
        self.status("dkms", "autoinstall", "-k", self.kernel)
        if not driver.built(self.ask("dkms", "status"), version, self.kernel):
            raise DriverError(self.build_failure(version))
        self.result["changed"] = True

    def build_log(self, version: str) -> tuple[str, str]:
        """The log of a build that has failed, and its path; empty without one. DKMS moves that of one that has not."""
        names = [name for name in self.tree.names(DKMS) if name.startswith("nvidia")]
        paths = [f"{DKMS}/{name}/{version}/build/make.log" for name in names]
        return next(((log, path) for path in paths if (log := self.tree.text(path))), ("", DKMS))

    def build_failure(self, version: str) -> str:
        """Why DKMS could not build the module."""
        modules, generations = self.result["modules"], self.result["generations"]
        return driver.build_failure(*self.build_log(version), version, self.kernel, modules, generations)

    def settings(self) -> None:
        """Block nouveau, and order the units. Raises DriverError."""
        files: list[File] = []
        idle: list[str] = []
        if not self.container:
            files = [File(MODPROBE, driver.NO_NOUVEAU.encode()), File(UNIT_FILE, driver.UNIT.encode())]
            if self.nvlink:
                modules = "".join(f"{name}\n" for name in driver.NVLINK_MODULES)
                files.append(File(MODULES, f"{driver.MANAGED}\n{modules}".encode()))
            idle = self.find_idle_units()
        self.files += files
        self.predict(idle)
        if not self.module.check_mode:
            self.write_settings(files, idle)

    def find_idle_units(self) -> list[str]:
        """The units that do not start at boot; `units` gets all that the machine needs and can have."""
        self.units = [UNIT, *([FABRIC] if self.switches or self.nvlink else [])]
        states = {unit: self.ask("systemctl", "is-enabled", unit).strip() for unit in self.units}
        if not self.result["branch"] and states.get(FABRIC) in ("", "not-found"):
            self.result["remarks"].append("the machine has NVSwitch but no fabric manager, so CUDA will not work")
            self.units.remove(FABRIC)
        elif FABRIC in self.units and not self.result["branch"]:
            self.refuse_other_fabric()
        return [unit for unit in self.units if states[unit] != "enabled"]

    def refuse_other_fabric(self) -> None:
        """Raise DriverError if the site's fabric manager has another version than its driver, and would not start."""
        versions = {driver.upstream(found) for found in self.installed(["nvidia-fabricmanager*"]).values()}
        if versions and self.library and self.library not in versions:
            raise DriverError(
                f"driver {self.library} and fabric manager {', '.join(sorted(versions))} are installed. The fabric "
                "manager starts with its own version of the driver alone, and without it CUDA does not work. Nothing "
                "was changed: give both the same version"
            )

    def predict(self, idle: list[str]) -> None:
        """Put into the result whether packages, files or units change, and the differences."""
        packages, changed_files = self.result["packages"], [file for file in self.files if file.changes]
        if packages or changed_files or idle:
            self.result["changed"] = True
        self.result["pending"] = self.result["changed"]
        self.result["diff"] = [file.diff for file in changed_files]
        if packages:
            after = "".join(f"{name}\n" for name in packages)
            self.result["diff"].append({"before_header": "packages", "before": "", "after": after})

    def write_settings(self, files: list[File], idle: list[str]) -> None:
        """Write the files, and enable units. Raises DriverError."""
        changed = {file.path for file in files if file.changes}
        write(files)
        if MODPROBE in changed and self.module.get_bin_path("update-initramfs"):
            self.do("update-initramfs", "-u")  # which loads modules, too
        if UNIT_FILE in changed and self.start:
            self.do("systemctl", "daemon-reload")
        if idle:
            self.do("systemctl", "enable", *idle)

    def mark_changed(self) -> None:
        """Put into the result that something differs from what is wanted."""
        self.result["changed"] = self.result["pending"] = True

    def bring_up(self) -> None:
        """Load the driver, start its units and check that it answers, as far as necessary. Raises DriverError."""
        if self.container or not self.start:
            return
        nouveau = self.tree.exists("/sys/module/nouveau")
        if self.present and self.library and not self.loaded and not nouveau:
            self.mark_changed()
            if not self.module.check_mode:
                self.load()
        if self.locked and not self.loaded:
            self.result["remarks"].append(self.locked)
        reboot = driver.reboot_reasons(self.loaded, self.library, nouveau)
        self.result["reboot"] = reboot
        if self.present and self.loaded and not reboot:
            self.start_units()

    def start_units(self) -> None:
        """Start the units that do not run, after the driver has answered. Raises DriverError."""
        stopped = [unit for unit in self.units if self.ask("systemctl", "is-active", unit).strip() != "active"]
        if stopped:
            self.mark_changed()
        if not self.module.check_mode:
            self.do("nvidia-smi", "--list-gpus")
            if FABRIC in stopped and self.nvlink:
                self.do("modprobe", "--all", *driver.NVLINK_MODULES)
            if stopped:
                self.do("systemctl", "start", *stopped)

    def load(self) -> None:
        """Load the kernel module. Raises DriverError, since a reboot would not remove the cause of a failure."""
        rc, stdout, stderr = self.module.run_command(["modprobe", "nvidia"], environ_update={"LC_ALL": "C.UTF-8"})
        self.loaded = driver.loaded_version(self.tree)
        if not self.loaded:
            errors = "\n".join(filter(None, [stdout.strip(), stderr.strip(), self.locked]))
            raise DriverError(
                f"the kernel module of the driver cannot be loaded (modprobe nvidia: status {rc}): {errors}"
            )


ARGUMENTS = {
    "platforms": option(
        "The packages of each platform and source, as C(module_utils/gpu/nvidia/driver_platforms.py) has them.",
        "dict",
        required=True,
    ),
    "source": option("Source of the packages, a key of the platform's entry in O(platforms).", default="distribution"),
    "branch": option(
        "Branch of the driver. If empty, the installed branch, or else the first of the platform that fits the GPUs.",
        default="",
    ),
    "version": option(
        "Version of the driver. If empty, the installed version, or else the newest of the branch.", default=""
    ),
    "modules": option(
        "Kind of the kernel modules; V(auto) is V(open) for GPUs that support them.",
        choices=["auto", "open", "proprietary"],
        default="auto",
    ),
    "display": switch("Whether the packages for a display are installed."),
    "cuda": switch("Whether the CUDA toolkit is installed."),
    "gpus": several(
        "PCI device ids of the GPUs to install the driver for, on a host that does not show them, such as an image "
        "that is being built. A container gets the libraries and tools without kernel modules, unless O(start) is "
        "V(false)."
    ),
    "start": switch(
        "Whether the module is loaded and units are started, with the check that the driver answers. With V(false) "
        "the kernel modules are built for the newest kernel in the tree, and nothing is measured. The control host "
        "sets it where an image is built (C(slurm_image) of role C(gpucluster.slurm.slurm)).",
        default=True,
    ),
    "repository": option("A mirror of NVIDIA's repository. If empty, NVIDIA's own repository.", default=""),
    "repository_key": option(
        "The key of NVIDIA's repository, as ASCII-armoured text. Needed with O(source=nvidia).",
        default="",
        no_log=False,
    ),
}


def main() -> None:
    run_module(lambda module: Driver(module).set_up(), ARGUMENTS)


if __name__ == "__main__":
    main()
