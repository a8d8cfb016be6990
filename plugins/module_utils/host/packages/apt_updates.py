# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which installed packages have a newer version in apt's lists, and whether that is a security update.

apt is asked what it knows, and downloads nothing. `apt-cache policy` shows held packages as well, which `apt list
--upgradable` and `apt-get upgrade` do not tell from others or leave out.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import dpkg

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import UpdateRecord, Updates

POLICY = ("apt-cache", "policy")
"""Asks for apt's lists, or for the versions of the packages whose names follow."""

LISTS = "/var/lib/apt/lists"
STAMP = "/var/lib/apt/periodic/update-success-stamp"
"""Written after each update of the lists, if the package update-notifier-common is installed."""

DAY = 86400

CONTAINER = "/run/systemd/container"
"""A container has this file (systemd(1)), and the kernel of its host."""

YES, NO, UNKNOWN = "yes", "no", "unknown"
"""Whether an update is a security update."""

PENDING, HELD, PINNED, NOT_BOOTED, NONE = "pending", "held", "pinned", "not booted", "none"
"""What is known of a kind of packages: an update is pending; dpkg's hold or apt's preferences keep it back; a newer
kernel is installed and does not run; there is nothing newer, and nobody says whether there should be."""

KERNEL, SLURM = "kernel", "slurm"

KINDS: Sequence[tuple[str, re.Pattern[str], re.Pattern[str]]] = [
    (kind, re.compile(name), re.compile(source))
    for kind, name, source in (
        # Metapackages alone: the kernels that they have brought before are in no list any more.
        (KERNEL, r"linux-image-(?!unsigned-|\d).*", "(?!)"),
        ("nvidia", r".*nvidia.*|(lib)?cuda.*", ".*nvidia.*"),
        (SLURM, "(?!)", r"slurm-(wlm|smd|llnl).*"),
        ("munge", "(?!)", "munge"),
        ("mariadb", "(?!)", "mariadb.*"),
        ("enroot", "enroot.*", "(?!)"),
        ("apptainer", "apptainer.*", "(?!)"),
        ("openssh", "(?!)", "openssh"),
    )
]
"""The kinds of packages that concern this collection, by the names of packages and of their source packages."""

MAIN = ("slurmctld", "slurmd", "munge", "mariadb-server", "openssh-server")
"""Packages that stand for their kind before others."""

IMAGE = re.compile(r"linux-image-(?:unsigned-)?(\d\S*)")
"""The package of one kernel; its name has what `uname --kernel-release` says."""

LIST = re.compile(r"^ *-?\d+ (\S.*)\n +release (.*)$", re.MULTILINE)
BLOCK = re.compile(r"^(\S+?)(?::\w+)?:\n((?: .*\n)*)", re.MULTILINE)
ROW = re.compile(
    r"^(?P<mark> \*\*\* |     )(?P<version>\S+) (?P<priority>-?\d+)(?: \(.*\))?$|^ {7,}-?\d+ (?P<list>\S.*)$"
)
"""A version, or a list that has it, in `apt-cache policy PACKAGE` (pkgCacheFile::Policy in apt's source). A version
that Ubuntu gives to a part of the hosts first is followed by `(phased 10%)`."""

USUAL_PRIORITY = 500
"""A version with a lower one is not installed by itself (apt_preferences(5))."""


@dataclass(frozen=True)
class Archive:
    """What apt knows of the archive that a list is from, by its Release file."""

    origin: str = ""
    label: str = ""
    suite: str = ""
    version: str = ""
    component: str = ""

    @property
    def is_security(self) -> bool:
        """Whether it has security updates alone."""
        return (self.origin, self.label) == ("Debian", "Debian-Security") or (
            self.origin.startswith("Ubuntu") and self.suite.endswith("-security")
        )

    @property
    def supported(self) -> tuple[str, str, str]:
        """Distribution, release and component, for which there can be an archive of security updates; empty for others.

        Backports and packages of unstable get none. The version of all suites of a release begins with its number:
        12.15, 12-updates.
        """
        number = re.match(r"\d+", self.version)
        if not number or self.suite.endswith(("-backports", "-proposed")):
            return ("", "", "")
        if self.origin.startswith("Ubuntu"):
            return ("Ubuntu", self.version, self.component)
        own = self.origin == "Debian" and self.label in ("Debian", "Debian-Security")
        return ("Debian", number[0], self.component) if own else ("", "", "")


def read_archives(policy: str) -> dict[str, Archive]:
    """The archive of each list, from the output of POLICY."""
    found = {}
    for name, release in LIST.findall(policy):
        fields = dict(field.split("=", 1) for field in re.split(r",(?=[a-z]=)", release) if "=" in field)
        found[name] = Archive(*(fields.get(key, "") for key in "olavc"))
    return found


@dataclass(frozen=True)
class Offer:
    """A version of a package that apt knows."""

    version: str
    priority: int
    lists: tuple[str, ...]
    """The lists that have it."""
    installed: bool


def read_offers(policy: str) -> dict[str, tuple[str, list[Offer]]]:
    """The candidate of each package and the versions that apt knows, the highest first, from POLICY with names."""
    found: dict[str, tuple[str, list[Offer]]] = {}
    for package, block in BLOCK.findall(policy + "\n"):
        head, _title, table = block.partition("  Version table:\n")
        candidate = re.search(r"^  Candidate: (\S+)", head, re.MULTILINE)
        offers: list[Offer] = []
        for row in filter(None, map(ROW.match, table.split("\n"))):
            if row["version"]:
                offers.append(Offer(row["version"], int(row["priority"]), (), "*" in row["mark"]))
            elif offers:
                last = offers[-1]
                offers[-1] = Offer(last.version, last.priority, (*last.lists, row["list"]), last.installed)
        found[package] = (candidate[1] if candidate else "", offers)
    return found


@dataclass(frozen=True)
class Update:
    """What apt knows of an installed package."""

    available: str
    """The newer version; empty if there is none."""
    security: str
    reached: bool = True
    """Whether apt would install it: its preferences do not keep it back."""


class Archives:
    """The archives of a host's lists."""

    def __init__(self, by_list: Mapping[str, Archive]) -> None:
        self._by_list = by_list
        self._covered = {each.supported for each in by_list.values() if each.is_security} - {("", "", "")}

    def has_security(self, offer: Offer) -> bool:
        """Whether a version is a security update."""
        return any(self._by_list[name].is_security for name in offer.lists if name in self._by_list)

    def is_covered(self, offer: Offer) -> bool:
        """Whether the host also has the list of the security updates for the archive that a version is from."""
        return any(self._by_list[name].supported in self._covered for name in offer.lists if name in self._by_list)

    def judge(self, offer: Offer) -> str:
        """Whether a version is a security update, as far as it is known."""
        return YES if self.has_security(offer) else NO if self.is_covered(offer) else UNKNOWN


def find_update(candidate: str, offers: Sequence[Offer], archives: Archives) -> Update:
    """The newer version of an installed package: the highest security update, or else what apt would install.

    A security update can be below the candidate, such as one of Ubuntu with a later version in noble-updates. It can be
    above the candidate, if apt's preferences keep the package at a version.
    """
    own = next((number for number, offer in enumerate(offers) if offer.installed), None)
    if own is None:
        return Update("", UNKNOWN)
    newer = offers[:own]
    first = next((number for number, offer in enumerate(newer) if offer.version == candidate), own)
    kept = [offer for offer in newer[:first] if offer.priority >= USUAL_PRIORITY]
    ranges = ((True, newer[first:]), (False, kept))
    security = [(offer, usable) for usable, among in ranges for offer in among if archives.has_security(offer)]
    others = [(offer, usable) for usable, among in ranges for offer in among]
    for offer, usable in security[:1] or others[:1]:
        return Update(offer.version, archives.judge(offer), usable)
    return Update("", NO if archives.is_covered(offers[own]) else UNKNOWN)


def find_kind(name: str, source: str) -> str:
    """The kind of a package; empty if it does not concern this collection."""
    # Modules and images for one kernel have its name, and are replaced by others with the next one.
    kinds = [each for each in KINDS if each[0] == KERNEL or not name.startswith("linux-")]
    return next((kind for kind, own, origin in kinds if own.fullmatch(name) or origin.fullmatch(source)), "")


def find_state(update: Update, held: bool) -> str:
    """What keeps an update back, if there is one."""
    if not update.available:
        return NONE
    return HELD if held else PENDING if update.reached else PINNED


def list_updates(packages: Mapping[str, dpkg.Package], updates: Mapping[str, Update]) -> list[UpdateRecord]:
    """A record for each kind: that of a package with a security update, or else with one that may be one.

    A kind without an update has a record if nobody says whether there is one. A package that is in no list any more,
    such as a library of an earlier release, is known by others of its source.
    """
    known = {packages[name].source for name, update in updates.items() if update.security != UNKNOWN}
    by_kind: dict[str, list[UpdateRecord]] = {}
    for name, update in sorted(updates.items()):
        package = packages[name]
        kind = find_kind(name, package.source)
        if kind and (update.available or package.source not in known):
            by_kind.setdefault(kind, []).append(
                {
                    "kind": kind,
                    "state": find_state(update, package.held),
                    "security": update.security,
                    "package": name,
                    "installed": package.version,
                    "available": update.available,
                    "packages": 1,
                }
            )
    return [_choose_record(by_kind[kind]) for kind, _name, _source in KINDS if kind in by_kind]


def _choose_record(records: Sequence[UpdateRecord]) -> UpdateRecord:
    """The record that says most, with the number of packages that have one of its state."""

    def rank(record: UpdateRecord) -> tuple[bool, int, bool, bool]:
        security = (YES, UNKNOWN, NO).index(record["security"])
        return record["state"] == NONE, security, record["state"] != PENDING, record["package"] not in MAIN

    chosen = min(records, key=rank)
    return {**chosen, "packages": sum(record["state"] == chosen["state"] for record in records)}


def list_security_updates(packages: Mapping[str, dpkg.Package], updates: Mapping[str, Update]) -> list[str]:
    """The security updates that apt would install, as NAME=VERSION; Slurm's packages change on all hosts in order."""
    return [
        f"{name}={update.available}"
        for name, update in sorted(updates.items())
        if update.security == YES
        and find_state(update, packages[name].held) == PENDING
        and find_kind(name, packages[name].source) != SLURM
    ]


def order_of_kernel(release: str) -> list[int]:
    """The numbers of a kernel's release up to the name of its flavour, for comparisons: 6.1.0-25-amd64."""
    head = re.match(r"\d+(?:[.+~-](?:deb|bpo)?\d+)*", release)
    return [int(number) for number in re.findall(r"\d+", head[0])] if head else []


def newest_kernel(packages: Iterable[str]) -> str:
    """The release of the newest installed kernel; empty without any."""
    releases = [match[1] for match in map(IMAGE.fullmatch, packages) if match]
    return max(releases, key=order_of_kernel, default="")


def find_kernel(
    packages: Mapping[str, dpkg.Package],
    running: str,
    offers: Mapping[str, tuple[str, Sequence[Offer]]],
    archives: Archives,
) -> list[UpdateRecord]:
    """The newest installed kernel, if an older one runs.

    Args:
        packages: the installed packages.
        running: the release of the kernel that runs; empty in a container.
        offers: what apt knows of them. Whether a kernel was a security update is not known any more when the lists have
            the next one.
        archives: those of the lists.
    """
    newest = newest_kernel(packages)
    if not running or not newest or order_of_kernel(newest) <= order_of_kernel(running):
        return []
    package = next(name for name in packages if (match := IMAGE.fullmatch(name)) and match[1] == newest)
    own = [offer for offer in offers.get(package, ("", ()))[1] if offer.installed]
    return [
        {
            "kind": KERNEL,
            "state": NOT_BOOTED,
            "security": archives.judge(own[0]) if own else UNKNOWN,
            "package": package,
            "installed": running,
            "available": newest,
            "packages": 1,
        }
    ]


def read_age(lists: str, stamp: str, now: float) -> int | None:
    """The age of apt's lists in days, of those of security updates if there are any; None if there are none.

    Their files have the time of the archive's last change. An update of the lists that finds nothing new leaves no
    trace but the stamp, so they can be younger.
    """
    times: dict[str, float] = {}
    # A host whose lists were never downloaded may lack the directory, and apt can replace a list meanwhile.
    with suppress(OSError), os.scandir(lists) as entries:
        times = {entry.name: entry.stat().st_mtime for entry in entries if entry.name.endswith("Release")}
    if not times:
        return None
    newest = max([time for name, time in times.items() if "-security" in name] or times.values())
    with suppress(OSError):  # only update-notifier-common writes the stamp
        newest = max(newest, os.stat(stamp).st_mtime)
    return max(0, int(now - newest) // DAY)


def gather_updates(run: Callable[[Sequence[str]], str], whole: bool) -> Updates:
    """The updates of this host.

    Args:
        run: runs a command and returns its output; it raises an error for one that fails.
        whole: whether the security updates of all packages are wanted, and not only those of the kinds.
    """
    packages = dpkg.installed(run(dpkg.QUERY))
    running = "" if os.path.exists(CONTAINER) else os.uname().release
    newest = newest_kernel(packages)
    names = [
        name
        for name, package in packages.items()
        if whole or find_kind(name, package.source) or (newest and name.endswith(newest))
    ]
    archives = Archives(read_archives(run(POLICY)))
    offers = read_offers(run([*POLICY, *names])) if names else {}
    updates = {name: find_update(*offers[name], archives) for name in names if name in offers}
    return {
        "updates": [*list_updates(packages, updates), *find_kernel(packages, running, offers, archives)],
        "security": list_security_updates(packages, updates) if whole else [],
        "lists_days": read_age(LISTS, STAMP, time.time()),
    }
