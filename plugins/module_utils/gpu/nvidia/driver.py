# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's driver: the one that a machine needs, its packages, and checks that the installed one is complete.

Everything here is a function of what was read: of PCI ids, of apt's files and output, of a table of platforms
(`gpu/nvidia/driver_platforms.py`).
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...hardware.sysfs import Tree
from ...language.errors import CollectionError
from ...language.spelling import nearest
from ..pci import PCI, is_display
from .nvidia_gpus import CHANGED, VENDOR

MANAGED = "# Managed by gpucluster.slurm: changes here are overwritten."
"""The first line of each file."""

NO_NOUVEAU = f"""{MANAGED} See modprobe.d(5).
# The kernel's own driver of NVIDIA's GPUs: with it loaded, NVIDIA's cannot have them.
blacklist nouveau
options nouveau modeset=0
install nouveau /bin/false
"""

UNIT = f"""{MANAGED}
# Slurm's daemon counts device files when it starts, and nobody else makes them before the first program asks.
[Unit]
Description=Device files of NVIDIA's GPUs
Wants=nvidia-persistenced.service
After=nvidia-persistenced.service nvidia-fabricmanager.service
Before=slurmd.service

[Service]
Type=oneshot
RemainAfterExit=yes
# Not on a host that has no GPUs yet.
ExecCondition=sh -c 'grep --quiet --no-messages 0x10de /sys/bus/pci/devices/*/vendor'
ExecStart=nvidia-smi --list-gpus
ExecStart=-nvidia-modprobe -u -c 0
ExecStart=install -D --mode=0644 /dev/null {CHANGED}

[Install]
WantedBy=slurmd.service
"""


class DriverError(CollectionError):
    """The wanted driver cannot be chosen or installed; with the reason, or the possible choices."""


# -- generations -----------------------------------------------------------------------------------------------------

GENERATIONS = ("fermi", "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "hopper", "ada", "blackwell")
"""Of NVIDIA's GPUs, oldest first; fermi stands for all that are older, too."""

_FIRST_IDS = (
    (0x0000, "fermi"),
    (0x0FC0, "kepler"),
    (0x1040, "fermi"),
    (0x1180, "kepler"),
    (0x1200, "fermi"),
    (0x1280, "kepler"),
    (0x1340, "maxwell"),
    (0x15F0, "pascal"),
    (0x1600, "maxwell"),
    (0x1B00, "pascal"),
    (0x1D80, "volta"),
    (0x1E00, "turing"),
    (0x2080, "ampere"),
    (0x2180, "turing"),
    (0x2200, "ampere"),
    (0x2300, "hopper"),
    (0x2400, "ampere"),
    (0x2600, "ada"),
    (0x2900, "blackwell"),
)
"""Where a range of PCI device ids begins, by the names of the chips in the PCI ID database; it ends with the next."""

_RELEASES = {"fermi": (0, 390), "kepler": (0, 470), "maxwell": (0, 580), "pascal": (0, 580), "volta": (0, 580)}
_RELEASES |= {"hopper": (525, 9999), "ada": (525, 9999), "blackwell": (570, 9999)}
"""First and last branch of the driver for a generation; one that is not here has no limits (NVIDIA's release notes)."""

OPEN, PROPRIETARY = "open", "proprietary"

MACHINES = {"amd64": "x86_64", "arm64": "sbsa"}
"""Names of architectures in the addresses of NVIDIA's packages, by those of dpkg. Grace has arm64."""

_MELLANOX = "0x15b3"

NVLINK_MODULES = ("ib_umad", "mlx5_ib")
"""What the fabric manager needs before it starts, where an adapter manages the NVSwitches."""


def generation(device: str) -> str:
    """The generation of a GPU by its PCI device id: "2330" and "0x2330" are hopper. Raises DriverError for no id."""
    try:
        number = int(device, 16)
    except ValueError:
        raise DriverError(f"found {device!r}, allowed: a PCI device id in hexadecimal, such as 2330") from None
    place = bisect.bisect_right([first for first, _name in _FIRST_IDS], number) - 1
    return _FIRST_IDS[place][1]


def kernel_modules(generations: Iterable[str]) -> list[str]:
    """The kinds of kernel modules that can drive GPUs of these generations, the better one first.

    The open ones need Turing or later, Blackwell needs them (README of NVIDIA's open-gpu-kernel-modules).
    """
    ages = [GENERATIONS.index(name) for name in generations]
    if min(ages) < GENERATIONS.index("turing"):
        return [PROPRIETARY] if max(ages) < GENERATIONS.index("blackwell") else []
    return [OPEN] if max(ages) >= GENERATIONS.index("blackwell") else [OPEN, PROPRIETARY]


def devices(tree: Tree) -> tuple[list[str], int]:
    """The PCI device ids of a machine's NVIDIA GPUs, and the number of its NVSwitches (bridges, class 0680)."""
    found, switches = [], 0
    for address in tree.names(PCI):
        if tree.text(f"{PCI}/{address}/vendor") == VENDOR:
            if is_display(tree, address):
                found.append((tree.text(f"{PCI}/{address}/device") or "").removeprefix("0x"))
            elif (tree.text(f"{PCI}/{address}/class") or "").startswith("0x0680"):
                switches += 1
    return found, switches


def manages_nvlink(tree: Tree) -> bool:
    """Whether an adapter of the machine manages its NVSwitches.

    Those of the fifth generation of NVLink (HGX B200 and B300) are not on PCI. The vital product data of the adapter
    says `SW_MNG` (NVIDIA, "Fabric manager for NVIDIA NVSwitch systems").
    """
    adapters = [
        address
        for address in tree.names(PCI)
        if tree.text(f"{PCI}/{address}/vendor") == _MELLANOX
        and (tree.text(f"{PCI}/{address}/class") or "").startswith("0x0207")  # InfiniBand: others answer slowly
    ]
    return any("SW_MNG" in (tree.text(f"{PCI}/{address}/vpd") or "") for address in adapters)


# -- choice ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """Packages that make a driver."""

    branch: str
    modules: str
    """Kind of the kernel modules; empty if the kernel is that of the container's host."""
    components: list[str]
    """Of the distribution's archive, besides main."""
    driver: list[str]
    """Packages that have the driver's version."""
    tools: list[str]
    """Packages with versions of their own."""
    signed: list[str]
    """Those of the tools that are kernel modules signed by the distribution; without any, DKMS builds the module."""


def flavours(kernel: str, images: Iterable[str]) -> list[str]:
    """The kinds of a kernel by the names of its metapackages, which bring its next releases.

    "6.8.0-60-generic" is generic, or generic-hwe-24.04 if the host has linux-image-generic-hwe-24.04. A host with both
    may boot either.

    Args:
        kernel: the release of the kernel that runs.
        images: installed packages linux-image-*.
    """
    kind = re.sub(r"^[\d.]+(-\d+|\+[^-]*)?-", "", kernel)
    pattern = rf"linux-image-({re.escape(kind)}(?:-(?:hwe-|lts-)?\d+\.\d+(?:-edge)?)?)"
    found = [match[1] for name in sorted(images) if (match := re.fullmatch(pattern, name))]
    return found or [kind]


def _fill(packages: Sequence[str], flavours: Sequence[str], **values: str) -> list[str]:
    """Names of packages with the values in their place, once for each flavour where a name has one."""
    filled = (package.format(flavour=kind, **values) for package in packages for kind in flavours)
    return list(dict.fromkeys(filled))


@dataclass(frozen=True)
class DriverTarget:
    """The machine that gets a driver."""

    platform: str
    """Distribution and release, such as "debian 13"."""
    generations: Sequence[str]
    """Those of its GPUs, one or more."""
    switches: int = 0
    """Its NVSwitches on PCI, which need the fabric manager."""
    kernel: str = ""
    """The release of the kernel that runs; empty where no module is to be built for it."""
    images: Collection[str] = ()
    """Its installed packages linux-image-*."""
    signed: bool = False
    """Whether it takes modules that the distribution has signed, if there are such modules."""
    nvlink: bool = False
    """Whether an adapter manages its NVSwitches. They need the fabric manager and a subnet manager."""

    @property
    def has_fabric(self) -> bool:
        """Whether it needs the fabric manager."""
        return bool(self.switches) or self.nvlink

    def fill(self, packages: Sequence[str], branch: str) -> list[str]:
        """Names of packages with branch, kernel and flavours in their place."""
        return _fill(packages, flavours(self.kernel, self.images), branch=branch, kernel=self.kernel)


_OF_FABRIC = {"fabric": "fabric manager", "subnet": "subnet manager of NVLink (nvlsm)"}


def choose(platforms: Mapping[str, Any], target: DriverTarget, options: Mapping[str, Any]) -> Choice:
    """The packages for the GPUs of a machine.

    Args:
        platforms: what each platform has, by name ("debian 13") and source (`gpu/nvidia/driver_platforms.py`).
        target: the machine.
        options: `source`; `branch`, empty for the first one that fits; `modules`, `auto` or a kind; `display`; `cuda`.

    Raises:
        DriverError: the platform has no such driver, or the GPUs have none there; with the possible choices.
    """
    platform, source = target.platform, options["source"]
    table = _find_source(platforms, platform, source)
    branch = _choose_branch(table["branches"], target, source, options["branch"])
    packages = table["branches"][branch]
    kind = _kind(
        options["modules"], target.generations, packages, f"driver branch {branch}, which {platform} has from {source},"
    )
    fabric = (["fabric"] if target.has_fabric else []) + (["subnet"] if target.nvlink else [])
    if not {*fabric} <= {*packages}:
        lacking = " and ".join(_OF_FABRIC[name] for name in fabric if name not in packages)
        raise DriverError(
            f"{platform} has no {lacking} from {source}, and the machine needs it for its NVSwitches; it is in "
            "NVIDIA's repository (nvidia_driver_source: nvidia)"
        )
    modules = _find_modules(packages, table["common"]["headers"], kind, target)
    driver = packages["libraries"] + modules.driver + (packages["fabric"] if target.has_fabric else [])
    if options["display"] and target.kernel:
        driver += packages["display"][kind]
    tools = table["common"]["tools"] + modules.tools + (table["common"]["cuda"] if options["cuda"] else [])
    tools += packages["subnet"] if target.nvlink else []
    return Choice(
        branch,
        kind if target.kernel else "",
        table["common"]["components"],
        target.fill(driver, branch),
        target.fill(tools, branch),
        target.fill(modules.tools, branch) if modules.are_signed else [],
    )


def _find_source(platforms: Mapping[str, Any], platform: str, source: str) -> Mapping[str, Any]:
    """What a source has for a platform. Raises DriverError."""
    if platform not in platforms:
        raise DriverError(f"no NVIDIA driver is known for {platform}; one is known for {', '.join(platforms)}")
    if source not in platforms[platform]:
        sources = ", ".join(platforms[platform])
        raise DriverError(f"{platform} has no NVIDIA driver from {source!r}; it has one from {sources}")
    table: Mapping[str, Any] = platforms[platform][source]
    return table


def _choose_branch(branches: Mapping[str, Any], target: DriverTarget, source: str, wanted: str) -> str:
    """The wanted branch, or the first that drives the GPUs. Raises DriverError."""
    if wanted and wanted not in branches:
        meant = nearest(wanted, branches)
        hint = f"; did you mean {meant}?" if meant else ""
        raise DriverError(
            f"{target.platform} has no driver branch {wanted} from {source}; it has {', '.join(branches)}{hint}"
        )
    fitting = [branch for branch in branches if all(_fits(branch, name) for name in target.generations)]
    if wanted in fitting or (fitting and not wanted):
        return wanted or fitting[0]
    limits = ", ".join(f"{name} {_limits(name)}" for name in dict.fromkeys(target.generations))
    if wanted:
        raise DriverError(f"driver branch {wanted} from {source} does not drive the GPUs of this machine ({limits})")
    raise DriverError(
        f"none of the driver branches {', '.join(branches)}, which {target.platform} has from {source}, drives the "
        f"GPUs of this machine ({limits})"
    )


@dataclass(frozen=True)
class _ModulePackages:
    """Packages that bring the kernel modules."""

    driver: list[str]
    """Packages that have the driver's version."""
    tools: list[str]
    """Packages with versions of their own."""
    are_signed: bool
    """Whether the tools are modules that the distribution has signed."""


def _find_modules(packages: Mapping[str, Any], headers: list[str], kind: str, target: DriverTarget) -> _ModulePackages:
    """The packages of the kernel modules of a kind; none where the kernel is that of another host."""
    if not target.kernel:
        return _ModulePackages([], [], False)
    signed = packages.get("signed", {}).get(kind) if target.signed else None
    if signed:
        return _ModulePackages(signed["driver"], signed["modules"], True)
    return _ModulePackages(packages[kind], headers, False)


def _fits(branch: str, name: str) -> bool:
    first, last = _RELEASES.get(name, (0, 9999))
    return first <= int(branch) <= last


def _limits(name: str) -> str:
    first, last = _RELEASES.get(name, (0, 9999))
    return f"needs {first} or later" if first else f"needs {last} or earlier" if last < 9999 else "takes any"


def _kind(wanted: str, generations: Sequence[str], packages: Mapping[str, Any], where: str) -> str:
    """The kind of kernel modules. Raises DriverError."""
    possible = kernel_modules(generations)
    if wanted != "auto" and wanted not in possible:
        raise DriverError(
            f"{wanted} kernel modules do not drive {', '.join(dict.fromkeys(generations))}; "
            f"these do: {', '.join(possible) or 'none, for these GPUs together'}"
        )
    kinds = possible if wanted == "auto" else [wanted]
    if not kinds:
        raise DriverError(f"no kernel modules drive {' and '.join(dict.fromkeys(generations))} together")
    available = [kind for kind in kinds if kind in packages]
    if not available:
        raise DriverError(f"{where} has no {' or '.join(kinds)} kernel modules")
    return available[0]


# -- apt -------------------------------------------------------------------------------------------------------------


def upstream(version: str) -> str:
    """NVIDIA's version in that of a package: "1:550.163.01-2" is 550.163.01."""
    return re.sub(r"^\d+:|[-+~].*$", "", version)


def offered(madison: str) -> dict[str, list[str]]:
    """What `apt-cache madison` lists: the versions of each package, newest first."""
    found: dict[str, list[str]] = {}
    for line in madison.split("\n"):
        columns = [column.strip() for column in line.split("|")]
        if len(columns) == 3 and columns[1] not in found.setdefault(columns[0], []):
            found[columns[0]].append(columns[1])
    return found


def agree(packages: Sequence[str], versions: Mapping[str, Sequence[str]], branch: str, wanted: str) -> str:
    """NVIDIA's version that all packages have: the wanted one, or the newest of the branch.

    Packages of one archive may differ: the open modules of Debian 12 are older than the libraries of its updates.

    Raises:
        DriverError: there is none; with what each package has.
    """
    common = [set(map(upstream, versions.get(package, ()))) for package in packages]
    there = sorted(set.intersection(*common), key=lambda text: [int(number) for number in re.findall(r"\d+", text)])
    there = [version for version in there if version.split(".")[0] == branch]
    if wanted and wanted in there:
        return wanted
    if wanted or not there:
        has = "; ".join(f"{name} {', '.join(versions.get(name, ())) or 'is not there'}" for name in packages)
        raise DriverError(f"version {wanted or branch} of the driver is not in all of its packages: {has}")
    return there[-1]


def replaced_by(shown: str) -> dict[str, str]:
    """The branch that transitional packages install in their place, by package, from what `apt-cache show` says.

    Ubuntu empties the packages of a branch when NVIDIA ends it: nvidia-headless-535-server then needs only
    nvidia-headless-580-server.
    """
    found: dict[str, str] = {}
    for paragraph in shown.split("\n\n"):
        fields: dict[str, str] = dict(re.findall(r"(?m)^(Package|Depends|Description(?:-en)?): *(.*)$", paragraph))
        description = fields.get("Description-en") or fields.get("Description") or ""
        match = re.search(r"nvidia-[a-z0-9-]*?(\d{3})\b", fields.get("Depends", ""))
        if "transitional" in description and match:
            found[fields["Package"]] = match[1]
    return found


def preferences(version: str) -> str:
    """apt's preferences that keep a version. The pin holds for what has this version only, whatever else it names."""
    return (
        f"{MANAGED} See apt_preferences(5).\n"
        "# Kernel modules and libraries must have one version, so it changes only when it is asked for.\n"
        "Package: *nvidia* libcuda1 libcudadebugger1\n"
        f"Pin: version {version}-*\n"
        "Pin-Priority: 1001\n"
    )


def pinned(text: str | None) -> str:
    """The version in such preferences; empty if there are none."""
    match = re.search(r"(?m)^Pin: version ([\d.]+)-\*$", text or "")
    return match[1] if match else ""


@dataclass(frozen=True)
class Source:
    """A source of apt: one line, or one paragraph of deb822."""

    uris: str
    suites: str
    components: tuple[str, ...]
    options: str = ""
    """All that else is said of it, as lines of deb822. apt refuses to work at all where two sources differ in that."""

    @property
    def places(self) -> set[tuple[str, str]]:
        """Its archives: pairs of URI and suite."""
        return {(_uri(uri), suite) for uri in self.uris.split() for suite in self.suites.split()}


def _uri(text: str) -> str:
    """One text for what apt takes as the same: file:///srv and file:/srv/."""
    return re.sub(r"^([\w+-]+:)//(?=/)", r"\1", text).rstrip("/")


_WHAT = {"types", "uris", "suites", "components", "enabled"}
"""Fields of deb822 that say what a source is; the others are options."""

_OFF = {"no", "false", "off", "without", "disable", "0"}

_OPTIONS = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
"""Options of one line that have other names in deb822 (sources.list(5))."""


def read_sources(files: Mapping[str, str]) -> list[Source]:
    """The sources of binary packages in apt's files, by path (sources.list(5)). Those switched off are left out."""
    found = []
    for path, text in sorted(files.items()):
        if path.endswith(".sources"):
            for paragraph in re.split(r"\n[ \t]*\n", text):
                lines = "".join(f"{line}\n" for line in paragraph.rstrip("\n").split("\n") if not line.startswith("#"))
                # With the lines of a key that go on, as they are.
                fields = re.findall(r"(?m)^([\w-]+):((?:.*\n)(?:[ \t].*\n)*)", lines)
                keys = {key.lower(): " ".join(value.split()) for key, value in fields}
                if "deb" in keys.get("types", "").split() and keys.get("enabled", "yes").lower() not in _OFF:
                    others = [f"{key}:{value}" for key, value in fields if key.lower() not in _WHAT]
                    components = tuple(keys.get("components", "").split())
                    found.append(Source(keys.get("uris", ""), keys.get("suites", ""), components, "".join(others)))
        elif path.endswith(".list"):
            for options, uri, suite, components in re.findall(
                r"(?m)^\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)[ \t]*([^#\n]*)", text
            ):
                lines = "".join(map(_option, options.split()))
                found.append(Source(uri, suite, tuple(components.split()), lines))
    return found


def _option(text: str) -> str:
    """An option of one line in deb822: "lang+=de,fr" adds, "lang-=de" removes."""
    key, _equals, value = text.partition("=")
    kind = {"+": "-Add", "-": "-Remove"}.get(key[-1:], "")
    name = key.rstrip("+-")
    return f"{_OPTIONS.get(name, '-'.join(map(str.capitalize, name.split('-'))))}{kind}: {value}\n"


TARGETS = "$(REPO_URI) $(RELEASE) $(ORIGIN)"
"""The format argument for `apt-get indextargets`."""


def own(targets: str, platform: str) -> set[tuple[str, str]]:
    """The archives of the distribution itself, pairs of URI and suite.

    Others have a component main, too: PPAs, a vendor's, a site's own packages. They do not have what is wanted.

    Args:
        targets: lines of `apt-get indextargets --format TARGETS`, which knows the Origin of what apt has lists of.
        platform: distribution and release ("debian 13").
    """
    rows = [line.split(maxsplit=2) for line in targets.split("\n")]
    origin = platform.split()[0].capitalize()
    return {(_uri(row[0]), row[1]) for row in rows if len(row) == 3 and row[2] == origin}


def missing_components(sources: Sequence[Source], wanted: Sequence[str], own: Collection[tuple[str, str]]) -> str:
    """Sources in deb822 for the components that an archive of the distribution lacks; empty if it has all of them.

    They have the mirror, the suites and the options of the site's own ones, which stay as they are.
    """
    there: dict[str, set[tuple[str, str]]] = {}
    for source in sources:
        for component in source.components:
            there.setdefault(component, set()).update(source.places)
    paragraphs = []
    for source in sources:
        lacking = [component for component in wanted if not source.places <= there.get(component, set())]
        if lacking and "main" in source.components and source.places & set(own):
            what = f"Types: deb\nURIs: {source.uris}\nSuites: {source.suites}\nComponents: {' '.join(lacking)}\n"
            paragraphs.append(what + source.options)
    return "\n".join(dict.fromkeys(paragraphs))


# -- what there is ---------------------------------------------------------------------------------------------------


def loaded_version(tree: Tree) -> str:
    """The version of the kernel module that is loaded; empty if none is."""
    return tree.text("/sys/module/nvidia/version") or ""


_LIBRARY = r"/libnvidia-ml\.so\.(\d+\.[\d.]+)$"


def library(tree: Tree) -> str:
    """The file of the driver's library that programs load; empty without one."""
    places = [f"/usr/lib/{machine}-linux-gnu" for machine in ("x86_64", "aarch64")]
    # Debian keeps several drivers apart, nvidia/current and nvidia/tesla-535, and its alternatives take the newest.
    for place in places:
        file = os.path.realpath(tree.path(f"{place}/libnvidia-ml.so.1"))
        if os.path.exists(file) and re.search(_LIBRARY, file):
            return file
    places += [f"{place}/nvidia/{name}" for place in places for name in tree.names(f"{place}/nvidia")]
    found = (tree.path(f"{place}/{name}") for place in places for name in tree.names(place))
    return next((file for file in found if re.search(_LIBRARY, file)), "")


def library_version(file: str) -> str:
    """The version of that library, by the name of its file; empty without one."""
    match = re.search(_LIBRARY, file)
    return match[1] if match else ""


def outlives(file: str, branch: str) -> bool:
    """Whether the library that is there is taken instead of one of this branch that is next to it.

    So it is with an older branch in Debian, where update-alternatives(1) takes the newest. Ubuntu's replace each other.
    """
    version = library_version(file)
    return "/nvidia/" in file and bool(version) and int(version.split(".")[0]) > int(branch)


def secure_boot(variable: bytes | None) -> bool:
    """Whether UEFI starts only what is signed: the variable SecureBoot, four bytes of attributes and one of value."""
    return variable is not None and variable[4:5] == b"\x01"


def newest_kernel(names: Iterable[str]) -> str:
    """The newest of these releases of kernels, the directories of /lib/modules; empty if there is none."""
    return max(names, key=lambda name: ([int(part) for part in re.findall(r"\d+", name)], name), default="")


_BUILD_ERROR = re.compile(r"\berror: |^ERROR: |^make.*: \*\*\* ")


def built(dkms: str, version: str, kernel: str) -> bool:
    """Whether `dkms status` has a module of this version of NVIDIA's installed for a kernel."""
    pattern = rf"nvidia[^/,]*(?:/|, ){re.escape(version)}, {re.escape(kernel)},[^:]*: installed"
    return re.search(rf"(?m)^{pattern}", dkms) is not None


def build_error(log: str) -> str:
    """Why DKMS could not build a module: the first error of a compiler or of make in its log, or else its last line."""
    lines = [line.strip() for line in log.split("\n") if line.strip(" -") and not line.startswith("#")]
    return next((line for line in lines if _BUILD_ERROR.search(line)), lines[-1] if lines else "DKMS has no log of it")


def build_failure(log: str, path: str, version: str, kernel: str, modules: str, generations: Iterable[str]) -> str:
    """The message about a module that DKMS could not build, with what to do.

    Args:
        log: the log of the build, which is in `path`.
        version: of the driver.
        kernel: for which the module is.
        modules: kind of the module.
        generations: those of the GPUs.
    """
    others = [kind for kind in kernel_modules(generations) if kind != modules]
    ways = [f"set nvidia_driver_modules to {kind}" for kind in others]
    ways.append("use an earlier kernel with its headers, for which it compiles, and hold both (apt-mark hold)")
    return (
        f"DKMS has no module {version} ({modules}) for kernel {kernel}: {build_error(log)}. The whole log is {path}. "
        f"What to do: {', or '.join(ways)}"
    )


def reboot_reasons(loaded: str, version: str, nouveau: bool) -> list[str]:
    """Why a machine has to be rebooted before its driver works; empty if it need not.

    A module that is not loaded is none of these reasons: what keeps it from being loaded is there after a boot, too.

    Args:
        loaded: version of the module that is loaded, empty if none is.
        version: version that is installed.
        nouveau: whether the kernel's own driver is loaded, which has the GPUs.
    """
    reasons = []
    if loaded and version and loaded != version:
        reasons.append(f"driver/library mismatch: the kernel has loaded {loaded}, {version} is installed")
    if nouveau:
        reasons.append("nouveau is loaded, and has the GPUs until the next boot")
    return reasons
