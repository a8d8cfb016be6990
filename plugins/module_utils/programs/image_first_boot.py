# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""The first boot of a host that is made from an image: its controllers, its munge key, and the release of its cluster.

    slurm-first-boot          before munge and slurmd (or sackd) start: finds the controllers, gets the key, and asks a
                              controller whether it takes the release of this image
    slurm-first-boot check    while slurmd (or sackd) starts: waits until the host is in its cluster

Both run at each boot, and change nothing that is right. docs/admin/images.md of the collection has the sources of
controllers and key. The first error ends the program, and is its last line. No key is ever shown.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..client.bounded_command import KEY_BYTES, decoded_key, run_bounded, sized_key
from ..client.commands import run
from ..host.json_files import read_settings
from ..host.replacing import remove, replace
from ..language.errors import CollectionError
from ..language.formatting import message, shown
from ..language.spelling import nearest

SETTINGS = "/etc/gpucluster-slurm/first-boot.json"
"""What the cluster file said when the image was built."""
SITE = "/etc/gpucluster-slurm/first-boot.conf"
"""Settings of the site, as cloud-init writes them: lines NAME=VALUE."""
KERNEL = "/proc/cmdline"
UNITS = "/etc/systemd/system"
ENVIRONMENT = "/run/gpucluster-slurm/first-boot.env"
"""What the unit of slurmd or sackd reads (EnvironmentFile), so that systemd need not read its units again."""
KEY = "/etc/munge/munge.key"
KEY_OWNER = "munge"

PREFIX = "gpucluster."
NAMES = ("controllers",)
"""What the site can set: as kernel arguments with PREFIX, and in SITE."""

ASK, COMMAND, JOIN = 3, 15, 300
"""Time limits in seconds: an answer of slurmctld, of a command of Slurm, and the time in which the host has to be in
its cluster."""

TELLS = "24.11"
"""The first release whose slurmctld answers a question without a credential; earlier ones close the connection."""
PING = 1008
"""REQUEST_PING (src/common/slurm_protocol_defs.h)."""
NO_CREDENTIAL = 1 << 6
"""SLURM_NO_AUTH_CRED (src/common/slurm_protocol_common.h)."""

LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
HOST = re.compile(rf"{LABEL}(?:\.{LABEL})*")
NOT_UP = re.compile(r"\S*\*|unknown\S*|down\S*|inval\S*|future\S*")
"""States of a node that is not in service (sinfo(1), node state codes), as role slurmd has them."""


class FirstBootError(CollectionError):
    """Why the host cannot join its cluster."""


class Server(NamedTuple):
    """A controller, as slurmd's option --conf-server has it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ImageSettings(NamedTuple):
    """The file SETTINGS."""

    cluster: str
    daemon: str
    """slurmd or sackd; empty on a login host whose Slurm has no sackd."""
    servers: Sequence[str]
    port: int
    key_command: Sequence[str]
    tls: bool
    """Whether controllers take connections with TLS alone (TLSType): without a certificate they cannot be asked."""
    protocols: Mapping[str, int]
    """Releases of Slurm in their order, and the versions of their protocol."""
    takes: Mapping[str, Sequence[str]]
    """By release of slurmctld, the earlier ones whose daemons it takes."""


def settings_of_image() -> ImageSettings:
    """The settings of the image. Raises SettingsError."""
    return ImageSettings(**read_settings(SETTINGS))


# -- Controllers -----------------------------------------------------------------------------------------------------


def parse_servers(text: str, port: int, where: str) -> list[Server]:
    """The controllers in a list HOST[:PORT],...

    Args:
        text: the list.
        port: that of controllers without one.
        where: what has the list, for messages.

    Raises:
        FirstBootError: the list has something else.
    """
    servers: list[Server] = []
    for word in text.split(","):
        name, colon, number = word.strip().partition(":")
        if not is_host(name):
            raise FirstBootError(
                f"{where}: found {shown(word.strip())}, allowed: HOST or HOST:PORT, separated by commas, where HOST is "
                "a name or an IPv4 address"
            )
        if colon and not (number.isascii() and number.isdigit() and 0 < int(number) < 65536):
            raise FirstBootError(f"{where}: found port {shown(number)} of {name}, allowed: 1 to 65535")
        server = Server(name, int(number) if colon else port)
        if server in servers:
            raise FirstBootError(f"{where}: {server} is there twice")
        servers.append(server)
    return servers


def is_host(name: str) -> bool:
    """Whether this is the name of a host (RFC 1123), or an IPv4 address.

    Slurm takes what follows the first colon for the port, so an IPv6 address needs a name (`fetch_config` in
    src/common/fetch_config.c).
    """
    if re.fullmatch(r"[0-9.]+", name):
        try:
            ipaddress.IPv4Address(name)
        except ValueError:
            return False
        return True
    return len(name) <= 253 and bool(HOST.fullmatch(name))


def site_values(pairs: Iterable[tuple[str, str]], where: str) -> dict[str, str]:
    """Values by name. Raises FirstBootError for a name that does not exist, and for one that is there twice."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in NAMES:
            close = nearest(name, NAMES)
            hint = f"; did you mean {close}?" if close else ""
            raise FirstBootError(f"{where}: found {shown(name)}, allowed: {', '.join(NAMES)}{hint}")
        if name in found:
            raise FirstBootError(f"{where}: {name} is there twice")
        found[name] = value.strip()
    return found


def kernel_values() -> dict[str, str]:
    """What the arguments of the kernel say. Raises FirstBootError."""
    with open(KERNEL, encoding="utf-8", errors="replace") as file:
        words = file.read().split()
    pairs = (word[len(PREFIX) :].partition("=") for word in words if word.startswith(PREFIX))
    return site_values(((name, value) for name, _equals, value in pairs), f"kernel argument {PREFIX}*")


def file_values() -> dict[str, str]:
    """What the file of the site says; nothing without it. Raises FirstBootError."""
    try:
        with open(SITE, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
    except FileNotFoundError:
        return {}
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    wrong = next((name for name, equals, _value in pairs if not equals), None)
    if wrong is not None:
        raise FirstBootError(f"{SITE}: found {shown(wrong)}, allowed: lines NAME=VALUE")
    return site_values(((name.strip(), value) for name, _equals, value in pairs), SITE)


def unit_servers(daemon: str) -> str:
    """The controllers in the settings of the daemon's unit, which site.yml keeps up to date; empty without them."""
    try:
        with open(f"{UNITS}/{daemon}.service.d/gpucluster-slurm.conf", encoding="utf-8") as file:
            found = re.search(rf'^Environment="{daemon.upper()}_OPTIONS=--conf-server (\S+)"$', file.read(), re.M)
    except FileNotFoundError:
        return ""
    return found[1] if found else ""


class FoundControllers(NamedTuple):
    """The controllers of this host."""

    servers: list[Server]
    source: str
    in_unit: bool
    """Whether the unit of the daemon names them already."""


def find_controllers(settings: ImageSettings) -> FoundControllers:
    """The controllers, from the first source that names some. Raises FirstBootError."""
    in_unit = unit_servers(settings.daemon)
    sources = (
        (f"kernel argument {PREFIX}controllers", kernel_values().get("controllers")),
        (f"{SITE}, controllers", file_values().get("controllers")),
        (f"{settings.daemon}.service", in_unit or None),
        (SETTINGS, ",".join(settings.servers)),
    )
    where, text = next((where, text) for where, text in sources if text is not None)
    return FoundControllers(parse_servers(text, settings.port, where), where, text == in_unit)


def environment(daemon: str, servers: Sequence[Server]) -> str:
    """The file ENVIRONMENT, which replaces the variable in the settings of the unit (systemd.exec(5))."""
    return f'{daemon.upper()}_OPTIONS="--conf-server {",".join(map(str, servers))}"\n'


def set_environment(text: str) -> None:
    """Write the file ENVIRONMENT, or remove it if the text is empty."""
    if text:
        os.makedirs(os.path.dirname(ENVIRONMENT), 0o755, exist_ok=True)
        replace(ENVIRONMENT, text.encode())
    else:
        remove(ENVIRONMENT)


# -- The key ---------------------------------------------------------------------------------------------------------


def ensure_key(command: Sequence[str]) -> str:
    """Have the munge key in its file, for user munge alone.

    Args:
        command: the site's command for a key that is not there; empty without one.

    Returns:
        What was done, for the journal.

    Raises:
        FirstBootError: there is no key, or a wrong one.
    """
    owner = pwd.getpwnam(KEY_OWNER)
    ids = (owner.pw_uid, owner.pw_gid)
    there = read_key()
    if there is None:
        if not command:
            raise FirstBootError(
                f"{KEY} is missing, and the image has no command for it: put the key there before munge starts "
                "(cloud-init, a mount), or build the image with first_boot_key_command"
            )
        try:
            key = decoded_key(run_bounded(command, "/"))
        except ValueError as error:
            raise FirstBootError(f"first_boot_key_command: {command[0]}: {error}") from error
        replace(KEY, key, 0o400, ids, synced=True)
        return f"munge key: {len(key)} bytes from {command[0]}"
    key, status = there
    try:
        sized_key(key)
    except ValueError as error:
        raise FirstBootError(f"{KEY}: {error}") from error
    if (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) != (*ids, 0o400):
        replace(KEY, key, 0o400, ids, synced=True)
        return f"munge key: {KEY}, whose owner and mode were corrected"
    return f"munge key: {KEY}"


def read_key() -> tuple[bytes, os.stat_result] | None:
    """The key in its file; None without one. User munge owns the directory, so no link is followed.

    Raises:
        FirstBootError: something else is there.
    """
    try:
        handle = os.open(KEY, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FirstBootError(f"{KEY}: {error.strerror}; allowed: a file") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise FirstBootError(f"{KEY} is not a file with one name")
        return os.read(handle, KEY_BYTES[1] + 1), status
    finally:
        os.close(handle)


# -- The release -----------------------------------------------------------------------------------------------------


def own_version() -> str:
    """The version of Slurm on this host, such as 24.11.5. Raises FirstBootError.

    sackd has no option for it, and commands want a configuration before they tell it.
    """
    with tempfile.NamedTemporaryFile(prefix="slurm-first-boot.") as conf:
        conf.write(b"ClusterName=none\nSlurmctldHost=localhost\n")
        conf.flush()
        answer = run(["scontrol", "-V"], seconds=COMMAND, conf=conf.name)
    found = re.search(r"\b\d+\.\d+\.\d+", answer.output)
    if not found:
        raise FirstBootError(f"scontrol -V does not tell its release: {message(answer.message)}")
    return found[0]


def exchange(server: Server, protocol: int) -> bytes:
    """The answer of a controller to a ping without a credential; empty if it closes the connection.

    Slurm refuses it, in a message that every release reads: that of the question, if the controller takes it, or else
    its own one (`_on_msg` in src/slurmctld/controller.c, 24.11 and later). So no key is needed. Raises OSError.
    """
    header = struct.pack(">HHHIHHH", protocol, NO_CREDENTIAL, PING, 0, 0, 0, 0)
    with socket.create_connection(server, ASK) as connection:
        connection.settimeout(ASK)
        connection.sendall(struct.pack(">I", len(header)) + header)
        answer = b""
        while len(answer) < 6 and (part := connection.recv(4096)):
            answer += part
    return answer


def protocol_of(answer: bytes) -> int:
    """The version of the protocol of an answer; 0 if it is none of Slurm's. Slurm 26.05 may answer as a web server."""
    if len(answer) < 6 or struct.unpack_from(">I", answer)[0] > 4096:
        return 0
    return int(struct.unpack_from(">H", answer, 4)[0])


def ask_release(server: Server, own: str, protocols: Mapping[str, int]) -> str:
    """The release as which a controller answers: that of this host if it takes it; empty if it does not answer.

    One that answers as a web server is asked in all other releases, the latest first.

    Raises:
        OSError: it cannot be reached.
        FirstBootError: it is something else than slurmctld, or of an unknown release.
    """
    releases = {number: release for release, number in protocols.items()}
    for release in (own, *reversed([*protocols])):
        answer = exchange(server, protocols[release])
        if not answer:
            return ""
        found = protocol_of(answer)
        if found:
            return releases.get(found, f"with protocol {found}")
    raise FirstBootError(
        f"{server} does not answer as slurmctld of a release that this image knows ({', '.join(protocols)}): correct "
        "the name and the port of the controller, or build the image with the release of the cluster"
    )


def check_release(servers: Sequence[Server], version: str, settings: ImageSettings) -> str:
    """Ask the first controller that answers whether it takes this release of Slurm.

    Returns:
        What was found, for the journal. Controllers that do not answer are no error: they may boot later, and slurmd
        asks until one answers.

    Raises:
        FirstBootError: the controller takes other releases only.
    """
    own = version.rpartition(".")[0]
    if settings.tls:
        return "release: not asked, since the controllers use TLS"
    if own not in settings.protocols:
        return f"release: {own} is not in the tables of this image, so no controller was asked"
    silent = []
    for server in servers:
        try:
            release = ask_release(server, own, settings.protocols)
            if not release and own >= TELLS:
                time.sleep(1)  # it may have been about to end
                release = ask_release(server, own, settings.protocols) or f"older than {TELLS}"
        except OSError as error:
            silent.append(f"{server}: {error.strerror or error}")
            continue
        if release == own:
            return f"release: {server} takes Slurm {version}"
        if release:
            raise FirstBootError(refusal(server, release, version, settings.takes))
        return f"release: {server} does not tell its release"
    return f"release: no controller answers yet ({'; '.join(silent)})"


def refusal(server: Server, release: str, version: str, takes: Mapping[str, Sequence[str]]) -> str:
    """Why a release does not fit."""
    taken = f", which takes daemons of {', '.join([*takes[release], release])}" if release in takes else ""
    return (
        f"this image has Slurm {version}, and slurmctld on {server} has Slurm {release}{taken}: build the image with "
        "the release of the cluster"
    )


# -- In the cluster --------------------------------------------------------------------------------------------------


def is_joined(settings: ImageSettings, servers: Sequence[Server]) -> str:
    """Why the host is not in its cluster; empty if it is."""
    name = socket.gethostname().partition(".")[0]
    of_node = ["--Node", "--format=%T %E", f"--nodes={name}"]
    question = ["sinfo", "--noheader", *(of_node if settings.daemon == "slurmd" else ["--summarize"])]
    # Commands have no configuration before slurmd or sackd has fetched it.
    names = {"SLURM_CONF_SERVER": ",".join(map(str, servers))}
    answer = run(question, seconds=COMMAND, environment=names)
    if answer.status:
        error = message(answer.message)
        return f"{cause(error, servers)} ({error})"
    if settings.daemon != "slurmd":
        return ""
    first = answer.output.strip().partition("\n")[0]
    if not first:
        return (
            f"cluster {settings.cluster} has no node {name}: give this host the name of a node of the cluster file, or "
            "add the node there and run site.yml"
        )
    state, _blank, reason = first.partition(" ")
    return f"node {name} is {state} ({reason}); see journalctl -u slurmd" if NOT_UP.fullmatch(state) else ""


def cause(error: str, servers: Sequence[Server]) -> str:
    """What is probably behind an error of Slurm's commands."""
    if "munge.socket" in error:
        return "munge does not run (journalctl -u munge)"
    names = ", ".join(map(str, servers))
    if re.search(r"authentication|credential", error, re.IGNORECASE):
        now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        return (
            f"{names} does not accept credentials of this host: its munge key ({KEY}) is another one, or the clocks "
            f"differ by more than 5 minutes (here it is {now} UTC)"
        )
    return f"Slurm's commands have no answer from {names}"


def check() -> None:
    """Wait until the host is in its cluster. Raises FirstBootError."""
    settings = settings_of_image()
    servers = find_controllers(settings).servers
    until, told = time.monotonic() + JOIN, ""
    while problem := is_joined(settings, servers):
        if problem != told:
            print(f"not in the cluster yet: {problem}", flush=True)
            told = problem
        if time.monotonic() > until:
            release = check_release(servers, own_version(), settings)
            raise FirstBootError(f"not in the cluster after {JOIN} s: {problem}; {release}")
        time.sleep(1)
    print(f"in cluster {settings.cluster}")


def prepare() -> None:
    """Have everything that munge and the daemon need for their start. Raises FirstBootError."""
    settings = settings_of_image()
    problems, done = [], []
    if settings.daemon:
        found = find_controllers(settings)
        print(f"controllers: {', '.join(map(str, found.servers))} ({found.source})")
        set_environment("" if found.in_unit else environment(settings.daemon, found.servers))
        try:
            done.append(check_release(found.servers, own_version(), settings))
        except FirstBootError as error:
            problems.append(str(error))
    try:
        done.append(ensure_key(settings.key_command))
    except FirstBootError as error:
        problems.append(str(error))
    print("\n".join(done))
    if problems:
        raise FirstBootError("; ".join(problems))


def main() -> int:
    """Run the program."""
    actions = {(): prepare, ("check",): check}
    action = actions.get(tuple(sys.argv[1:]))
    if not action:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 1
    os.umask(0o022)
    try:
        action()
    except CollectionError as error:
        print(f"slurm-first-boot: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"slurm-first-boot: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
