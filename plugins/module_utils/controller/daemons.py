# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmctld and slurmdbd on this host: their state, and how they load a configuration."""

from __future__ import annotations

import os
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ansible.module_utils.basic import AnsibleModule

from ..client.commands import CommandError, output, run
from ..client.scontrol import CLEARED, serving
from ..configuration.conf_file import Configuration, ConfigurationChange, read, value_text
from ..configuration.parameter_values import LOCAL
from ..configuration.ports import SLURMCTLD, SLURMDBD
from ..configuration.release_order import HEAD, JOB_STATE, PACKAGE_SOURCE, protocol_of_state, reads, release_of_protocol
from ..configuration.upgrade import database_release, parts, tables_release
from ..host.files import File, write
from ..host.journal import read_journal_end, read_start_failure
from ..host.load_times import write_load_time
from ..host.log_files import log_size, read_log
from ..language.errors import CollectionError
from ..language.hostlist import expand, fold
from . import succession
from .change_plan import TRAITS, JobPlacement, Step, parts_daemons, removed_nodes
from .configured_cluster import Host
from .controller_host import account, this_host
from .conversion import COLUMNS
from .drift import differences, in_force
from .sockets import address_of, connection_error, is_served, listener
from .state_save_location import StateDirectoryError
from .trial_start import TrialError, errors_in, short_name, start_on_trial

# States of a node that cannot have jobs (slurm.conf(5) and sinfo(1)); one that does not answer has a star.
LOST = re.compile(r"down|unknown|inval|fail|.*\*$")
# Why slurmctld drains a node itself when it registers: before 22.11 its state is not "inval" as well
# (validate_node_specs in src/slurmctld/node_mgr.c).
REFUSED = re.compile(r"Low (CPUs|RealMemory|TmpDisk|socket)|gres/")

SEEKING = 40
"""Seconds in which a standby that is told to take over serves."""

UNIT_SECONDS = 300
"""Seconds for a start or a restart: systemd kills a daemon that does not stop in TimeoutStopSec, 90 s."""

UNANSWERED = re.compile(r"no answer in|timed out|Unable to contact slurm controller|Zero Bytes were transmitted")
"""Errors of scontrol if slurmctld does not answer (src/common/slurm_errno.c)."""

CLUSTER_NAME = "clustername"
"""The file of StateSaveLocation with the name of the cluster, and its number behind a line: `people|2981`."""

OTHER_NUMBER = (
    "slurmdbd has another number for the cluster than the state in {directory}. If its database is new, since the "
    "former one is lost: restore that from a backup (gpucluster.slurm.restore); without a backup, remove | and the "
    "number from {directory}/clustername, keep the name, and run again. That loses no job. If the database belongs to "
    "another cluster, correct AccountingStorageHost"
)
"""The way on after `CLUSTER ID MISMATCH`. slurmctld says to remove the file, which has the name of the cluster too."""

IS_ACTIVE = {0: True, 3: False, 4: False}
"""What the exit status of `systemctl is-active` means (systemctl(1)). With another one it had no answer."""

DATABASE = {"accountingstoragebackuphost", "accountingstoragehost", "accountingstorageport", "accountingstoragetype"}
"""Parameters that lead to slurmdbd, in small letters."""

FAILED = {"prolog": ("Prolog error", "Prolog/Epilog failure"), "epilog": ("Epilog error", "Prolog/Epilog failure")}
"""The reasons with which slurmctld, as SlurmUser, drains the node of a program that has failed, by its parameter.

Sources in src/slurmctld: validate_node_specs (node_mgr.c), job_epilog_complete (job_mgr.c), _notify_slurmctld_nodes
(agent.c). Slurm drains no node because of other programs. A HealthCheckProgram drains and resumes its node itself.
"""

Nodes = Mapping[str, "tuple[str, str]"]
"""State and reason of each node."""


class Before(NamedTuple):
    """The state of a daemon before a change."""

    nodes: Nodes
    """The nodes that could be reached."""
    unlike: frozenset[str]
    """Its differences from its files."""


class ConfigError(CollectionError):
    """Why a configuration is not in force."""


class NotYetError(ConfigError):
    """A daemon runs and does not answer; it may answer later."""


def ask(*command: str) -> str:
    """The output of a command. Raises ConfigError with its message if it fails; NotYetError without an answer."""
    try:
        return output(command)
    except CommandError as error:
        silent = UNANSWERED.search(str(error))
        raise (NotYetError if silent else ConfigError)(str(error)) from None


class Daemon:
    """A daemon of Slurm that systemd runs on this host.

    Methods get what its files say at that time as `configuration`.
    """

    name = ""
    conf = ""
    """Its main file."""
    log = ""
    """The parameter that names the file of its log, in small letters."""
    owner, mode = "root", 0o644
    """Of its files."""
    reconfigures = True
    """Whether it can load files without a restart."""
    interruptible = True
    """Whether it may be restarted while it starts."""
    only_one = True
    """Whether it serves whenever it runs."""
    host: Host | None = None
    """Properties of this host that its files must agree with."""

    def __init__(self, module: AnsibleModule) -> None:
        self.timeout: int = module.params.get("patience", 0)

    def version(self) -> str:
        """The installed release, such as 24.11.5. Raises ConfigError without one."""
        return self.version_with("")

    def version_with(self, conf: str) -> str:
        """Likewise, with another slurm.conf."""
        answer = run([self.name, "-V"], conf=conf)
        if not (match := re.search(r"\d+\.\d+\.\d+", answer.output)):
            raise ConfigError(f"{self.name} -V shows no version ({answer.message}); is its package installed?")
        return match[0]

    def active(self) -> bool:
        """Whether systemd runs it. Raises ConfigError if systemd does not say it."""
        answer = run(["systemctl", "is-active", self.name])
        if answer.status not in IS_ACTIVE:
            raise ConfigError(f"systemd does not say whether {self.name} runs: {answer.message}")
        return IS_ACTIVE[answer.status]

    def main_process(self) -> int:
        """The number of its main process; 0 if systemd does not run it."""
        number = run(["systemctl", "show", "--property=MainPID", "--value", self.name]).output.strip()
        return int(number) if number.isdecimal() else 0

    def answers(self, configuration: Configuration) -> bool:
        """Whether it serves."""
        raise NotImplementedError

    def silence(self, _configuration: Configuration) -> str:
        """Why it does not answer; empty if that is not known."""
        return ""

    def act(self, action: str, configuration: Configuration) -> None:
        """Start, restart or reconfigure it.

        Raises ConfigError with the output of the command and the errors that the daemon has logged.
        """
        self._act(action, configuration)
        if action != "reconfigure" and self.reconfigures:
            self.seek_control(configuration)
            self.wait(configuration)
            self._act("reconfigure", configuration)  # which hands the files to the other hosts

    def _act(self, action: str, configuration: Configuration) -> None:
        """Run the command of an action. Raises ConfigError; NotYetError if slurmctld does not answer it."""
        command = ["scontrol", "reconfigure"] if action == "reconfigure" else ["systemctl", action, self.name]
        if action != "reconfigure":
            # Its failures before may have reached the unit's limit of starts, which is not meant for this one.
            run(["systemctl", "reset-failed", self.name])
        log = configuration.settings.get((self.conf, self.log), ("", ""))[1]
        before, logged = time.time(), log_size(log)
        answer = run(command, seconds=UNIT_SECONDS)
        if not answer.status and action == "reconfigure":
            # A standby whose files are newer than what it has read is restarted; this one may become a standby.
            write_load_time(self.name, before)
        if not answer.status:
            return
        # scontrol says no more than "Unspecified error".
        errors = errors_in(read_log(log, logged))
        message = f"{' '.join(command)} failed: {answer.message}" + (f"\n{self.name}: {errors}" if errors else "")
        if action != "reconfigure":
            raise ConfigError(f"{message}\n{read_start_failure(self.name, answer.message, 8)}".strip())
        raise NotYetError(message) if UNANSWERED.search(answer.message) else ConfigError(message)

    def wait(self, configuration: Configuration) -> None:
        """Wait until it answers. Raises ConfigError if it has ended, NotYetError if it does not in time."""
        self.wait_until(configuration, lambda: self.answers(configuration))

    def wait_until(self, configuration: Configuration, answers: Callable[[], bool]) -> None:
        """Wait for another condition than that it serves itself. Raises as `wait`."""
        timeout = self.timeout + takeover(configuration)
        deadline = time.monotonic() + timeout
        while not answers():
            if not self.active():
                log = read_journal_end(self.name, 8)
                raise ConfigError(f"{self.name} ended after its start. The end of its log:\n{log}")
            if time.monotonic() > deadline:
                reason = self.silence(configuration)
                raise NotYetError(f"{self.name} does not answer after {timeout} s{reason and f' ({reason})'}")
            time.sleep(1)

    # Methods that some daemons override.

    def seek_control(self, _configuration: Configuration) -> None:
        """Let it serve sooner after its start, if it waits for another one that is gone."""

    def jobs(self) -> list[JobPlacement]:
        """The jobs that have not ended."""
        return []

    def possible_jobs(self, _configuration: Configuration) -> list[JobPlacement]:
        """The jobs that can exist while it does not answer."""
        return []

    def in_force(self, _changes: Iterable[ConfigurationChange]) -> set[ConfigurationChange]:
        """The changes whose result it already has in force, as far as it shows that. Raises ConfigError."""
        return set()

    def before(self, _configuration: Configuration) -> Before:
        """Its present state."""
        return Before({}, frozenset())

    def check_files(self, directory: str) -> None:
        """Let Slurm check the files in a directory. Raises ConfigError with its message."""

    def verify(self, configuration: Configuration, plan: Sequence[Step], before: Before) -> None:
        """Check that its files are in force, and that it has the nodes that it had before.

        Raises ConfigError if not.
        """

    def is_unregistered(self, _configuration: Configuration) -> bool:
        """Whether slurmdbd answers and does not know the cluster, which registers when the daemon starts."""
        return False

    def check_others(self, configuration: Configuration, plan: Sequence[Step]) -> None:
        """Check that the daemons of other hosts that it needs answer. Raises ConfigError if not."""

    def resume(self, configuration: Configuration, before: Before) -> None:
        """Resume nodes that were drained because of files that have been rolled back."""

    def resume_corrected(self, _configuration: Configuration, _plan: Sequence[Step], _since: float) -> list[str]:
        """Resume nodes that it has drained itself since a time because of a program that the plan replaces.

        Returns a message for each reason.
        """
        return []


class Slurmdbd(Daemon):
    """The database daemon. While it is stopped, slurmctld keeps the accounting records."""

    name, conf, log = "slurmdbd", "slurmdbd.conf", "logfile"
    owner, mode = "slurm", 0o600  # slurmdbd refuses another one's, and others' eyes (slurmdbd.conf(5))
    reconfigures = False
    interruptible = False  # it may be converting its tables

    def version(self) -> str:
        # It reads its file before it says its version, and a wrong one would be refused here.
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, self.conf)
            write([File(path, b"DbdHost=localhost\nStorageType=accounting_storage/mysql\n", mode=0o600)])
            return self.version_with(os.path.join(directory, "slurm.conf"))

    def act(self, action: str, configuration: Configuration) -> None:
        create_archive(configuration)
        super().act(action, configuration)

    def answers(self, configuration: Configuration) -> bool:
        return not self.silence(configuration)

    def silence(self, configuration: Configuration) -> str:
        # Another daemon can have its port, so slurmdbd is recognized by its process, its port and its protocol.
        process, port = self.main_process(), dbd_port(configuration)
        if not process:
            return f"systemd does not run {self.name}"
        if not (address := address_of(process, port)):
            return f"its process {process} does not listen on port {port}"
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "slurm.conf")
            write([File(path, client_conf(configuration, address).encode())])
            command = ["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster"]
            answer = run(command, seconds=30, conf=path)
        return f"sacctmgr: {answer.message}" if answer.status else ""

    def check_files(self, directory: str) -> None:
        with open(os.path.join(directory, self.conf), encoding="utf-8") as file:
            configuration = read({self.conf: file.read()})
        if not self.active():
            check_database(self.version(), configuration)
        port = dbd_port(configuration)
        process, name = listener(port)
        if process not in (0, self.main_process()):
            raise ConfigError(
                f"{self.conf}: DbdPort: found '{port}', on which {name} (process {process}) listens on this host, "
                "allowed: a free port"
            )


def check_database(version: str, configuration: Configuration) -> None:
    """Refuse a database of this host that is of a later release (`refuse_later`). Raises ConfigError."""
    if configuration.settings.get((Slurmdbd.conf, "storagehost"), ("", LOCAL[0]))[1] not in LOCAL:
        return  # module slurm_database_server asks the server
    name = configuration.settings.get((Slurmdbd.conf, "storageloc"), ("", "slurm_acct_db"))[1]
    query = f"SELECT MAX(rpc_version) FROM `{name}`.cluster_table WHERE deleted = 0; {COLUMNS.format(name=name)}"
    answer = run(["mariadb", "--batch", "--skip-column-names"], stdin=query)
    if not answer.status:
        refuse_later(version, name, answer.output.split())


def refuse_later(version: str, name: str, found: Sequence[str]) -> None:
    """Refuse a database of a later release: slurmdbd would remove the columns that it does not know.

    Each slurmctld that registers leaves its protocol version in `cluster_table`, `rpc_version`, and slurmdbd leaves the
    columns of its release. found: both. Raises ConfigError.
    """
    protocol, *columns = found or [""]
    release = database_release(columns)
    if protocol.isdecimal() and not reads(version, int(protocol)):
        release = release_of_protocol(int(protocol))
    elif release <= tables_release(parts(version)[0]):
        return
    raise ConfigError(
        f"the database {name} belongs to a cluster with Slurm {release}, and slurmdbd {version} would damage it. "
        f"{PACKAGE_SOURCE.format(release=release)}"
    )


def check_state(version: str, directory: str) -> None:
    """Refuse a state of a later release: slurmctld would take control and end without having read it.

    Raises ConfigError.
    """
    try:
        with open(os.path.join(directory, JOB_STATE), "rb") as file:
            protocol = protocol_of_state(file.read(HEAD))
    except OSError:
        return  # there is none yet, or another check names the directory
    if not reads(version, protocol):
        raise ConfigError(
            f"{directory} has the state of Slurm {release_of_protocol(protocol)}, which slurmctld {version} does not "
            f"read. {PACKAGE_SOURCE.format(release=release_of_protocol(protocol))}"
        )


def create_archive(configuration: Configuration) -> None:
    """Create the directory of the archive, without which slurmdbd does not start (`read_slurmdbd_conf`).

    The user of slurmdbd creates it, so that root follows no link below a directory of this user. Raises ConfigError.
    """
    _key, path = configuration.settings.get((Slurmdbd.conf, "archivedir"), ("", ""))
    _key, user = configuration.settings.get((Slurmdbd.conf, "slurmuser"), ("", "root"))
    if path:
        answer = run(["runuser", "-u", user, "--", "mkdir", "--parents", "--mode=0700", path])
        if answer.status:
            what = f"found '{path}', which user {user} cannot create: {answer.message}"
            raise ConfigError(f"{Slurmdbd.conf}: ArchiveDir: {what}")


def dbd_port(configuration: Configuration) -> int:
    """The port of slurmdbd."""
    return int(configuration.settings.get((Slurmdbd.conf, "dbdport"), ("", SLURMDBD))[1])


SHARED = ("AuthInfo", "AuthType", "CommunicationParameters", "PluginDir", "TLSParameters", "TLSType")
"""Parameters that slurmdbd and its clients must have alike."""


def client_conf(configuration: Configuration, address: str) -> str:
    """A slurm.conf with which sacctmgr asks slurmdbd at an address; its host needs no slurm.conf of its own."""
    shared = (configuration.settings.get((Slurmdbd.conf, key.lower())) for key in SHARED)
    pairs = {
        "ClusterName": "check",
        "SlurmctldHost": "localhost",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": address,
        "AccountingStoragePort": str(dbd_port(configuration)),
        **dict(filter(None, shared)),
    }
    return "".join(f"{key}={value_text(value)}\n" for key, value in pairs.items())


class Slurmctld(Daemon):
    """The controller."""

    name, conf, log = "slurmctld", "slurm.conf", "slurmctldlogfile"
    only_one = False  # of several controllers one serves

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.host = this_host(module, module.params["directory"])

    def answers(self, configuration: Configuration) -> bool:
        if not self.active():
            return False
        name = serving()
        # Slurm finds itself among SlurmctldHost by the name of its host, or else by its addresses.
        host = short_name(socket.gethostname())
        return name != "" and (short_name(name) == host or host not in controllers(configuration))

    def seek_control(self, configuration: Configuration) -> None:
        # Until a standby listens, five seconds after its start, the command fails. Other commands would wait for half
        # of SlurmctldTimeout before they try again (`slurm_send_recv_controller_msg` in
        # `src/common/slurm_protocol_api.c`), so none is given before it serves, which its next heartbeat shows.
        deadline = time.monotonic() + SEEKING
        before, asked = read_heartbeat(configuration), False
        while time.monotonic() < deadline and (asked or self.may_take_over(configuration, before)):
            asked = asked or run(["scontrol", "takeover", str(place_here(configuration))], seconds=30).status == 0
            if asked and read_heartbeat(configuration) != before:
                return
            time.sleep(1)

    def may_take_over(self, configuration: Configuration, heartbeat: bytes) -> bool:
        """Whether it may take control at once as a standby; `heartbeat`: the last one of the cluster."""
        own = place_here(configuration)
        port = _setting(configuration, "slurmctldport", SLURMCTLD).partition("-")[0]
        addresses = enumerate(_setting(configuration, "slurmctldhost", "").split()[:own])
        connecting = [place for place, host in addresses if not connection_error(connection_address(host), port, 2)]
        return succession.may_take_over(own, succession.find_last_index(heartbeat), connecting)

    def possible_jobs(self, configuration: Configuration) -> list[JobPlacement]:
        state = state_directory(configuration)
        if not os.path.exists(os.path.join(state, "job_state")):  # it has never run
            return []
        partitions, nodes = ",".join(configuration.partitions), frozenset(configuration.nodes)
        return [JobPlacement("unknown", partitions, nodes, True, TRAITS)]

    def jobs(self) -> list[JobPlacement]:
        fields = ["JobArrayID", "Partition", "NodeList", "TimeUsed", "StateCompact", "BatchFlag", "TimeLeft"]
        fields += ["Reservation", "ReqNodes", "tres-per-job", "tres-per-node", "tres-per-task", "tres-alloc"]
        shown = ask("squeue", "--noheader", "--Format", ",".join(f"{field}:|" for field in fields))
        return [placement(line.split("|")) for line in filter(None, shown.split("\n"))]

    def check_files(self, directory: str) -> None:
        answer = run(["sinfo", "--version"], conf=f"{directory}/slurm.conf")
        if answer.status:
            raise ConfigError(answer.message.replace(f"{directory}/", ""))
        with open(f"{directory}/slurm.conf", encoding="utf-8") as file:
            settings = read({"slurm.conf": file.read()}).settings
        user = settings.get(("slurm.conf", "slurmuser"), ("", "root"))[1]
        if not self.active():
            check_state(self.version(), settings.get(("slurm.conf", "statesavelocation"), ("", ""))[1])
        try:
            start_on_trial(directory, account(user) or user)
        except TrialError as error:
            raise ConfigError(str(error)) from None

    def act(self, action: str, configuration: Configuration) -> None:
        if self.is_unregistered(configuration):
            renew_number(configuration)
        super().act(action, configuration)

    def is_unregistered(self, configuration: Configuration) -> bool:
        if not _setting(configuration, "accountingstoragetype", "").lower().endswith("/slurmdbd"):
            return False
        command = ["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster"]
        answer = run(command, seconds=10)
        name = _setting(configuration, "clustername", "").lower()
        return not answer.status and name not in answer.output.split()

    def check_others(self, configuration: Configuration, plan: Sequence[Step]) -> None:
        settings = {
            key: value for (file, key), (_name, value) in configuration.settings.items() if file == "slurm.conf"
        }
        changed = DATABASE & {step.change.key.lower() for step in plan if step.change.file == "slurm.conf"}
        if not changed or not settings.get("accountingstoragetype", "").lower().endswith("/slurmdbd"):
            return
        port = settings.get("accountingstorageport", SLURMDBD)
        hosts = [settings.get("accountingstoragehost", "localhost"), settings.get("accountingstoragebackuphost", "")]
        errors = {f"{host}:{port}": connection_error(host, port, 10) for host in filter(None, hosts)}
        if all(errors.values()):
            keys = "AccountingStorageHost and AccountingStoragePort"
            where = "; ".join(f"{server}: {error}" for server, error in errors.items())
            raise ConfigError(f"slurm.conf {keys}: slurmdbd does not answer at {where}")

    def before(self, configuration: Configuration) -> Before:
        if not self.answers(configuration):
            return super().before(configuration)
        nodes = self.states()
        reached = reachable(configuration, those_up(nodes))
        unlike = frozenset(line.partition(":")[0] for line in self.unlike(configuration))
        return Before({node: state for node, state in nodes.items() if node in reached}, unlike)

    def states(self) -> Nodes:
        """State and reason of each node."""
        shown = run(["sinfo", "--noheader", "--Node", "--all", "--format=%N|%T|%E"]).output
        rows = (line.split("|", 2) for line in shown.split("\n"))
        return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}

    def unlike(self, configuration: Configuration) -> list[str]:
        """Its differences from its files. Raises ConfigError if it does not answer."""
        return differences(configuration, *self.shown(), self.version())

    def in_force(self, changes: Iterable[ConfigurationChange]) -> set[ConfigurationChange]:
        return in_force(changes, *self.shown(), self.version())

    def shown(self) -> tuple[str, str, str]:
        """Its parameters, nodes and partitions, as it shows them. Raises ConfigError if it does not answer."""
        config = ask("scontrol", "show", "config")
        nodes = ask("scontrol", "--all", "--future", "--oneliner", "show", "node")
        return config, nodes, ask("scontrol", "--all", "--oneliner", "show", "partition")

    def verify(self, configuration: Configuration, plan: Sequence[Step], before: Before) -> None:
        deadline = time.monotonic() + self.timeout
        while True:
            unlike = [line for line in self.unlike(configuration) if line.partition(":")[0] not in before.unlike]
            if not parts_daemons(plan):  # a node that is refused differs as well, and its reason is the better message
                self.wait_for_nodes(those_up(before.nodes) - removed_nodes(plan))
            if not unlike:
                return
            # Until a node has registered anew, slurmctld shows the GPUs that it had.
            if time.monotonic() > deadline or not all(" Gres: " in line for line in unlike):
                raise ConfigError("\n".join(unlike))
            time.sleep(1)

    def wait_for_nodes(self, wanted: set[str]) -> None:
        """Wait until nodes can have jobs. Raises ConfigError if one is refused, or does not come in time."""
        deadline = time.monotonic() + self.timeout
        while missing := sorted(wanted - those_up(nodes := self.states())):
            # They will not be up again by themselves.
            if refused := [node for node in missing if node in nodes and is_refused(*nodes[node])]:
                raise ConfigError(f"Slurm no longer accepts {fold(refused)}: {nodes[refused[0]][1]}")
            if time.monotonic() > deadline:
                raise ConfigError(f"{fold(missing)} were up before the change, but not {self.timeout} s after it")
            time.sleep(1)

    def resume(self, configuration: Configuration, before: Before) -> None:
        whole = {node for node in those_up(before.nodes) if "drain" not in before.nodes[node][0]}
        deadline = time.monotonic() + self.timeout
        while self.answers(configuration) and time.monotonic() < deadline:
            nodes = self.states()
            drained = sorted(node for node in whole & nodes.keys() if re.match("inval|drain", nodes[node][0]))
            if not drained:
                return
            run(["scontrol", "update", f"nodename={fold(drained)}", "state=resume", f"reason={CLEARED}"])
            time.sleep(1)

    def resume_corrected(self, configuration: Configuration, plan: Sequence[Step], since: float) -> list[str]:
        keys = {step.change.key.lower(): step.change.key for step in plan if step.change.file == "slurm.conf"}
        programs = {reason: keys[key] for key, reasons in FAILED.items() if key in keys for reason in reasons}
        if not programs:
            return []
        user = slurm_user(configuration)
        shown = ask("sinfo", "--noheader", "--Node", "--all", "--format=%N|%T|%H|%u|%E")
        nodes_by_reason: dict[str, list[str]] = {}
        for row in filter(None, dict.fromkeys(shown.split("\n"))):  # a node has a row for each partition
            node, state, when, who, reason = row.split("|", 4)
            if reason in programs and "drain" in state and who == user and _seconds(when) >= int(since):
                nodes_by_reason.setdefault(reason, []).append(node)
        for nodes in nodes_by_reason.values():
            ask("scontrol", "update", f"nodename={fold(nodes)}", "state=resume", f"reason={CLEARED}")
        return [
            f"Resumed {fold(nodes)}, drained by slurmctld because of the previous {programs[reason]} ({reason})"
            for reason, nodes in nodes_by_reason.items()
        ]


def _seconds(when: str) -> float:
    """A local time as sinfo shows it, in seconds since the epoch; 0 if there is none."""
    try:
        return time.mktime(time.strptime(when, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return 0


def placement(row: Sequence[str]) -> JobPlacement:
    """A job, from the fields that Slurmctld.jobs() asks squeue for."""
    number, partition, nodes, used, state, batch, left, reservation, required, *resources = row
    days, _dash, clock = used.rpartition("-")
    seconds = 0
    for field in clock.split(":"):
        seconds = 60 * seconds + (int(field) if field.isdecimal() else 0)
    seconds += 24 * 3600 * int(days or 0)
    traits = {
        "configuring": state == "CF",
        "interactive": batch == "0",
        "overdue": left in ("0:00", "INVALID"),  # less than nothing is shown as the latter (`_print_secs`)
        "reserved": reservation not in ("", "(null)", "N/A"),
    }
    present = frozenset(trait for trait, there in traits.items() if there)
    gres = any("gres" in text for text in resources)
    asked = frozenset(expand(required if required not in ("(null)", "N/A") else ""))
    return JobPlacement(number, partition, frozenset(expand(nodes)), gres, present, seconds, asked)


def _setting(configuration: Configuration, key: str, default: str) -> str:
    """A parameter of slurm.conf, by its name in small letters."""
    return configuration.settings.get(("slurm.conf", key), ("", default))[1]


def state_directory(configuration: Configuration) -> str:
    """StateSaveLocation."""
    return _setting(configuration, "statesavelocation", "/var/spool")


def slurm_user(configuration: Configuration) -> str:
    """The user of slurmctld."""
    return _setting(configuration, "slurmuser", "root")


def connection_address(host: str) -> str:
    """Where a value of SlurmctldHost, such as `head(10.0.0.1)`, says that its slurmctld listens."""
    name, _parenthesis, address = host.partition("(")
    return address.rstrip(")") or name


def advice(message: str, configuration: Configuration) -> str:
    """The way on after an error, on a line of its own; empty where the message says enough."""
    mismatch = "CLUSTER ID MISMATCH" in message
    return f"\n{OTHER_NUMBER.format(directory=state_directory(configuration))}" if mismatch else ""


def renew_number(configuration: Configuration) -> None:
    """Let slurmctld take the number that slurmdbd gives the cluster, by removing that of its state.

    slurmdbd gives a cluster that it does not know a number by chance, and slurmctld ends where its state has another
    one. Jobs are not known by it (`_verify_clustername` and `ctld_assoc_mgr_init` in `src/slurmctld/controller.c`).
    Raises ConfigError.
    """
    directory, user = state_directory(configuration), slurm_user(configuration)
    name, line, _number = succession.read_state_file(directory, CLUSTER_NAME, user).decode().partition("|")
    try:
        if line:
            succession.write_state_file(directory, CLUSTER_NAME, user, name)
    except StateDirectoryError as error:
        raise ConfigError(f"{directory}/{CLUSTER_NAME}: {error}") from None


def controllers(configuration: Configuration) -> list[str]:
    """The controllers that files name, in their order, without their domains."""
    return [short_name(host) for host in _setting(configuration, "slurmctldhost", "").split()]


def place_here(configuration: Configuration) -> int:
    """The place of this host in SlurmctldHost; 0 is that of the primary, which needs nobody's control."""
    hosts, here = controllers(configuration), short_name(socket.gethostname())
    return hosts.index(here) if here in hosts else 0


def read_heartbeat(configuration: Configuration) -> bytes:
    """The last heartbeat of a serving controller; empty on the primary, which does not ask for it."""
    if not place_here(configuration):
        return b""
    return succession.read_state_file(state_directory(configuration), succession.HEARTBEAT, slurm_user(configuration))


def takeover(configuration: Configuration) -> int:
    """Seconds by which slurmctld on this host may answer later than it starts, since another controller serves first.

    run_backup() in src/slurmctld/backup.c: it asks three times in this time, and once more after it.
    """
    if not place_here(configuration):
        return 0
    return 2 * int(_setting(configuration, "slurmctldtimeout", "120"))


def those_up(nodes: Nodes) -> set[str]:
    """The nodes that can have jobs, drained ones among them, but not those that Slurm has refused."""
    return {node for node, now in nodes.items() if not LOST.match(now[0]) and not is_refused(*now)}


def is_refused(state: str, reason: str) -> bool:
    """Whether Slurm has refused a node when it registered."""
    return state.startswith("inval") or ("drain" in state and bool(REFUSED.match(reason)))


def reachable(configuration: Configuration, nodes: Iterable[str]) -> set[str]:
    """The nodes whose slurmd serves connections: Slurm misses one that is dead or hangs only after SlurmdTimeout."""
    names = list(nodes)
    port = configuration.settings.get(("slurm.conf", "slurmdport"), ("", "6818"))[1]

    def answers(node: str) -> bool:
        settings = {key.lower(): value for key, value in configuration.nodes.get(node, ())}
        address = settings.get("nodeaddr") or settings.get("nodehostname") or node
        return is_served(address, settings.get("port", port), 2)

    with ThreadPoolExecutor(64) as pool:
        return {name for name, found in zip(names, pool.map(answers, names)) if found}


DAEMONS = {daemon.name: daemon for daemon in (Slurmctld, Slurmdbd)}
