# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decisions of slurm_config; tests/integration shows its effects on a cluster."""

from __future__ import annotations

import base64
import getpass
import os
import socket
import struct
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import (
    Configuration,
    ConfigurationChange,
    ConfigurationError,
    changes,
    read,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import file_validation, kept_files, succession
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.change_plan import (
    JobPlacement,
    steps,
    table,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.daemons import (
    DAEMONS,
    Before,
    ConfigError,
    Daemon,
    NotYetError,
    Slurmctld,
    Slurmdbd,
    advice,
    check_database,
    check_state,
    placement,
    takeover,
    those_up,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.trial_start import trial_conf
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import applied_state
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File, FileError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_config
from programs import StandIn

CONF = """
ClusterName=demo
StateSaveLocation=/var/spool/slurmctld  KillWait=30
SuspendProgram=/sbin/off
SlurmctldPrimaryOnProg=/sbin/move-the-address
AccountingStorageType=accounting_storage/slurmdbd
NodeName=n[1-2] NodeAddr=10.0.0.[1-2] Port=6818 RealMemory=1000 Reason="a b"
PartitionName=p Nodes=ALL QOS=high AllowQos=high,normal
"""


def test_the_second_slurmctld_reaches_nothing_and_runs_nothing() -> None:
    found = trial_conf(CONF, "/run/x").splitlines()
    assert found[:2] == [
        "StateSaveLocation=/run/x/gpucluster-trial-state",
        "SlurmctldPidFile=/run/x/gpucluster-trial-pid",
    ]
    assert [line for line in found[4:] if line] == [
        "ClusterName=demo",
        "KillWait=30",
        'NodeName=n[1-2] RealMemory=1000 Reason="a b" NodeAddr=127.0.0.1 Port=1',
        "PartitionName=p Nodes=ALL",
    ]


def test_the_second_slurmctld_is_the_only_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup waits for the heartbeat of a primary. A list without this host is left for Slurm to refuse."""
    conf = "SlurmctldHost=head(10.0.0.1)\nSlurmctldHost=login1.example.org(10.0.0.2)\n"

    def kept(host: str) -> list[str]:
        monkeypatch.setattr("socket.gethostname", lambda: host)
        return [line for line in trial_conf(conf, "/run/x").splitlines() if line.startswith("SlurmctldHost")]

    assert kept("head") == ["SlurmctldHost=head(10.0.0.1)"]
    assert kept("login1.example.org") == ["SlurmctldHost=login1.example.org(10.0.0.2)"]
    assert kept("other") == conf.splitlines()


BOTH = "Slurmctld(primary) at head is UP\nSlurmctld(backup) at login1 is UP\n"
SECOND = BOTH.replace("head is UP", "head is DOWN")


@pytest.mark.parametrize(
    ("host", "ping", "answers"),
    [
        ("head", BOTH, True),
        ("head.example.org", BOTH, True),
        ("login1", BOTH, False),
        ("head", SECOND, False),
        ("login1", SECOND, True),
        ("alias", BOTH, True),
        ("head", "", False),
    ],
)
def test_a_controller_answers_when_it_is_the_one_that_serves(
    monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, host: str, ping: str, answers: bool
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    stand_in("systemctl", "exit 0")
    licenses = "No licenses configured in Slurm."
    stand_in("scontrol", f"case $* in\nping) printf '{ping}' ;;\n'show licenses') echo '{licenses}' ;;\nesac")
    params = {"directory": "/etc/slurm", "patience": 1}
    module: Any = SimpleNamespace(params=params, check_mode=True)
    daemon = Slurmctld(module)
    configuration = read({"slurm.conf": "SlurmctldHost=head(10.0.0.1)\nSlurmctldHost=login1\n"})
    assert daemon.answers(configuration) is answers
    # A second controller that is restarted waits for the first one, for SlurmctldTimeout seconds.
    assert takeover(configuration) == (240 if host == "login1" else 0)


@pytest.mark.parametrize(
    ("storage", "answer", "number"),
    [
        ("slurmdbd", "echo other", ""),
        ("slurmdbd", "true", ""),
        ("slurmdbd", "echo lab", "|2981"),
        ("slurmdbd", "exit 1", "|2981"),
        ("none", "exit 1", "|2981"),
    ],
)
def test_slurmctld_takes_the_number_of_a_slurmdbd_that_does_not_know_the_cluster(
    stand_in: StandIn, tmp_path: Path, storage: str, answer: str, number: str
) -> None:
    stand_in("sacctmgr", answer)
    stand_in("systemctl", "exit 1")
    (tmp_path / "clustername").write_text("lab|2981")
    text = f"ClusterName=Lab\nStateSaveLocation={tmp_path}\nSlurmUser={getpass.getuser()}\n"
    configuration = read({"slurm.conf": f"{text}AccountingStorageType=accounting_storage/{storage}\n"})
    module: Any = SimpleNamespace(params={"directory": "/etc/slurm", "patience": 1}, check_mode=True)
    with pytest.raises(ConfigError, match="systemctl restart slurmctld failed"):
        Slurmctld(module).act("restart", configuration)
    assert (tmp_path / "clustername").read_text() == f"lab{number}"


def test_the_advice_of_slurmctld_for_a_lost_database_is_completed() -> None:
    configuration = read({"slurm.conf": "StateSaveLocation=/var/lib/state\n"})
    said = advice("slurmctld: fatal: CLUSTER ID MISMATCH.", configuration)
    assert "remove | and the number from /var/lib/state/clustername" in said
    assert advice("slurmctld: fatal: no such file", configuration) == ""


def test_jobs_that_nobody_tells_of_count_as_running(tmp_path: Path) -> None:
    """While slurmctld does not answer, a change that can end jobs has to be allowed, unless it has never run."""
    conf = f"StateSaveLocation={tmp_path}\nNodeName=n[1-2]\nPartitionName=p Nodes=ALL\n"
    params = {"directory": "/etc/slurm", "patience": 1}
    daemon = Slurmctld(cast(Any, SimpleNamespace(params=params)))
    configuration = read({"slurm.conf": conf})
    gone = [
        ConfigurationChange("PartitionName", "p", "PartitionName", "p", None),
        ConfigurationChange("NodeName", "n2", "NodeName", "n2", None),
    ]
    assert [step.ends for step in steps(gone, daemon.possible_jobs(configuration), "24.11.5")] == [(), ()]
    (tmp_path / "job_state").touch()
    assert [step.ends for step in steps(gone, daemon.possible_jobs(configuration), "24.11.5")] == [
        ("unknown",),
        ("unknown",),
    ]


@pytest.mark.parametrize(
    ("row", "traits", "seconds"),
    [
        ("6|main|n1|0:02|R|1|0:58|(null)||N/A|N/A|N/A|cpu=1,mem=1000M,node=1,billing=1|", set(), 2),
        ("7|main|n1|1:02:03|R|0|UNLIMITED|(null)|n[1-2]|N/A|N/A|N/A|cpu=1|", {"interactive"}, 3723),
        (
            "8|main|n1|2-00:00:01|CF|1|INVALID|root_1||N/A|gres:gpu|N/A|cpu=1|",
            {"configuring", "overdue", "reserved"},
            172801,
        ),
        ("9_[1-3]|main,all||0:00|PD|1|1:00|(null)|n[1-2]|N/A|N/A|N/A|N/A|", set(), 0),
    ],
)
def test_jobs_as_squeue_shows_them(row: str, traits: set[str], seconds: int) -> None:
    found = placement(row.split("|"))
    assert ({*found.traits}, found.seconds) == (traits, seconds)
    assert (found.number, found.partition, found.gres) == (*row.split("|")[:2], "gpu" in row)
    assert found.required == ({"n1", "n2"} if "|n[1-2]|" in row else set())


def test_every_problem_is_reported() -> None:
    files = {
        "slurm.conf": "KilWait=1\nMinJobAge=x\nNodeName=n1 RealMemry=1\n",
        "gres.conf": "NodeName=n1 Name=gpu File=/dev/a\nNodeName=n1 Name=gpu File=/dev/b\n",
        "own.conf": "anything\n",
        "slurmdbd.conf": "DbdHost=head\nInclude /etc/slurm/storage.conf\n",
    }
    refused, ignored = file_validation.check_parameters(files, "24.11.5")
    assert [problem.partition(" unknown")[0].partition(" found")[0] for problem in refused] == [
        "slurm.conf: KilWait:",
        "slurm.conf: MinJobAge:",
        "slurm.conf: NodeName=n1: RealMemry:",
    ]
    assert ignored == []


@pytest.mark.parametrize(
    ("included", "what"),
    [
        ("NodeName=n1 NodeAddr=10.0.0.1 RealMemry=1", "slurm.conf: NodeName=n1: RealMemry: unknown to Slurm"),
        (
            "NodeName=n1 NodeAddr=10.0.0.1",
            "slurm.conf: PartitionName=p: Nodes: found 'n2', allowed: nodes of slurm.conf",
        ),
    ],
)
def test_files_are_checked_with_what_they_include(tmp_path: Path, included: str, what: str) -> None:
    (tmp_path / "nodes.conf").write_text(f"{included}\n")
    files = {"slurm.conf": "Include nodes.conf\nPartitionName=p Nodes=n[1-2]\n"}
    params = {"directory": str(tmp_path), "files": files, "patience": 1}
    module: Any = SimpleNamespace(params=params, check_mode=True, get_bin_path=lambda _name: None)
    with pytest.raises(ConfigError) as error:  # Slurm itself is not asked where the files are wrong already
        file_validation.check_wanted_files(module, Slurmctld(module), files, (), "24.11")
    assert str(error.value).startswith(what)


class Loaded:
    """A slurmctld with one job on n1, and a value of SelectType in force."""

    name = "slurmctld"

    def __init__(self, select_type: str) -> None:
        self.select_type = select_type

    def answers(self, _configuration: Configuration) -> bool:
        """It serves."""
        return True

    def jobs(self) -> list[JobPlacement]:
        """Its job."""
        return [JobPlacement("7", "p", frozenset({"n1"}), False)]

    def in_force(self, changes: Iterable[ConfigurationChange]) -> set[ConfigurationChange]:
        """Of SelectType, it knows."""
        return {change for change in changes if (change.key, change.after) == ("SelectType", self.select_type)}


def present_files(good: Configuration, edited: Configuration | None = None) -> slurm_config.Present:
    """Files in force that say `good`, and in the directory `edited`."""
    return slurm_config.Present("/etc/slurm", {}, [], good, edited, False, [])


@pytest.mark.parametrize(
    ("kept", "loaded", "line"),
    [
        # Nothing is kept, so the values in force decide.
        (None, "good", "slurm.conf SelectType  edited -> good  reconfigure"),
        (
            None,
            "edited",
            "slurm.conf SelectType  edited -> good  restart slurmdbd, slurmctld, slurmd, no job at all  ENDS JOBS 7",
        ),
        # The kept file is the wanted one, so that the edit is a change only if it is in force.
        ("good", "good", None),
        (
            "good",
            "edited",
            "slurm.conf SelectType  edited -> good  restart slurmdbd, slurmctld, slurmd, no job at all  ENDS JOBS 7",
        ),
    ],
)
def test_an_edited_file_is_what_is_in_force_only_if_slurmctld_says_so(
    kept: str | None, loaded: str, line: str | None
) -> None:
    good, edited = (read({"slurm.conf": f"SelectType={value}\n"}) for value in ("good", "edited"))
    daemon = cast(Daemon, Loaded(loaded))
    present = present_files(good if kept else edited, edited)
    plan = slurm_config.plan_steps(daemon, present, good, "24.11.5")
    assert table(plan) == ([line] if line else [])


def test_without_edited_files_slurmctld_is_not_asked_for_its_values() -> None:
    old, new = (read({"slurm.conf": f"SelectType={value}\n"}) for value in ("a", "b"))
    (step,) = slurm_config.plan_steps(cast(Daemon, Loaded("b")), present_files(old), new, "24.11.5")
    assert step.ends == ("7",)


class Answers:
    """The answers of a daemon, for the functions that decide."""

    def __init__(self, name: str, answers: bool, active: bool) -> None:
        self.name, self.reconfigures = name, DAEMONS[name].reconfigures
        self.answers, self.active = (lambda _configuration: answers), (lambda: active)


@pytest.mark.parametrize(
    ("daemon", "key", "answers", "active", "action"),
    [
        ("slurmctld", "KillWait", True, True, "reconfigure"),
        ("slurmctld", "SlurmctldPort", True, True, "restart"),
        ("slurmctld", "KillWait", False, True, "restart"),
        ("slurmctld", "KillWait", False, False, "start"),
        ("slurmdbd", "DebugLevel", True, True, "restart"),
    ],
)
def test_what_a_daemon_needs(daemon: str, key: str, answers: bool, active: bool, action: str) -> None:
    file = DAEMONS[daemon].conf
    plan = steps([ConfigurationChange(file, "", key, "1", "2")], [], "24.11.5")
    assert slurm_config.choose_action(cast(Daemon, Answers(daemon, answers, active)), Configuration(), plan) == action


class Recorded:
    """A daemon that records each call and the ClusterName of its configuration.

    The call `fails` does not work, and the first call `silent` has no answer.
    """

    name, conf, interruptible, owner, mode = "slurmctld", "slurm.conf", True, "root", 0o644

    def __init__(self, fails: str = "", silent: str = "") -> None:
        self.fails, self.silent, self.calls = fails, silent, list[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            of = [argument for argument in arguments if isinstance(argument, Configuration)]
            self.calls.append(" ".join([name, *(c.settings["slurm.conf", "clustername"][1] for c in of)]))
            if self.calls[-1] == self.fails:
                raise ConfigError("no")
            if self.calls[-1] == self.silent:
                self.silent = ""
                raise NotYetError("no answer")
            return Before({"n1": ("idle", "")}, frozenset())

        return call


@pytest.mark.parametrize(
    ("fails", "calls"),
    [
        ("", ["before old", "act new", "wait new", "verify new"]),
        ("act new", ["before old", "act new", "act old", "resume old"]),
        ("verify new", ["before old", "act new", "wait new", "verify new", "act old", "resume old"]),
    ],
)
def test_each_step_goes_by_the_files_that_are_in_force_then(tmp_path: Path, fails: str, calls: list[str]) -> None:
    old, new = (read({"slurm.conf": f"ClusterName={name}\n"}) for name in ("old", "new"))
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=old\n")
    (tmp_path / "topology.conf").write_text("SwitchName=s1\n")
    daemon = Recorded(fails)
    files = [File(str(path), b"ClusterName=new\n"), File(str(tmp_path / "mpi.conf"), b"PMIxDebug=1\n")]
    wanted = slurm_config.Wanted({"slurm.conf": "ClusterName=new\n", "mpi.conf": "PMIxDebug=1\n"}, {})
    good = {"slurm.conf": "ClusterName=old\n", "topology.conf": "SwitchName=s1\n"}
    present = slurm_config.Present(str(tmp_path), good, ["topology.conf"], old, None, False, [])
    plan = slurm_config.Plan(wanted, present, files, new, "24.11.5", None, [])
    with pytest.raises(ConfigError, match="Rolled back") if fails else nullcontext():
        slurm_config.apply(cast(Daemon, daemon), plan, "reconfigure")
    assert daemon.calls == calls
    assert path.read_text() == ("ClusterName=old\n" if fails else "ClusterName=new\n")
    # A file that is added or removed takes the same way.
    names = {"slurm.conf", "topology.conf"} if fails else {"slurm.conf", "mpi.conf"}
    assert {file.name for file in tmp_path.iterdir()} == names


@pytest.mark.parametrize(
    ("silent", "calls", "messages"),
    [
        ("act old", ["act old", "wait old"], 0),
        ("wait old", ["act old", "wait old", "act old", "wait old"], 1),
    ],
)
def test_a_slurmctld_that_is_silent_after_its_reconfigure_is_restarted(
    silent: str, calls: list[str], messages: int
) -> None:
    daemon, configuration = Recorded(silent=silent), read({"slurm.conf": "ClusterName=old\n"})
    assert len(slurm_config.act_and_wait(cast(Daemon, daemon), "reconfigure", configuration)) == messages
    assert daemon.calls == calls


def test_a_restart_without_an_answer_is_an_error() -> None:
    daemon, configuration = Recorded(silent="wait old"), read({"slurm.conf": "ClusterName=old\n"})
    with pytest.raises(NotYetError):
        slurm_config.act_and_wait(cast(Daemon, daemon), "restart", configuration)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("slurm_reconfigure error: Socket timed out on send/recv operation", NotYetError),
        ("slurm_reconfigure error: Unable to contact slurm controller (connect failure)", NotYetError),
        ("slurm_reconfigure error: Invalid node name specified", ConfigError),
    ],
)
def test_a_reconfigure_without_an_answer_is_not_a_refusal(
    stand_in: StandIn, tmp_path: Path, said: str, error: type[ConfigError]
) -> None:
    stand_in("scontrol", f"echo '{said}' >&2; exit 1")
    params = {"directory": str(tmp_path), "patience": 0}
    with pytest.raises(ConfigError) as raised:
        Slurmctld(cast(Any, SimpleNamespace(params=params))).act("reconfigure", Configuration())
    assert type(raised.value) is error
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("state", "reason", "up"),
    [
        ("idle", "none", True),
        ("drained", "a person", True),
        ("mixed", "none", True),
        ("down", "none", False),
        ("idle*", "none", False),
        ("inval", "Low RealMemory (reported:3661 < 100.00% of configured:3700)", False),
        ("drained", "Low RealMemory (reported:3661 < 100.00% of configured:3700)", False),
        ("drained", "gres/gpu count reported lower than configured (1 < 2)", False),
    ],
)
def test_nodes_that_can_have_jobs(state: str, reason: str, up: bool) -> None:
    assert those_up({"n1": (state, reason)}) == ({"n1"} if up else set())


def test_hosts_that_left_are_known_from_the_kept_names_and_the_files_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files in force know those that left before the names were kept."""
    monkeypatch.setattr(kept_files, "GOOD", str(tmp_path))
    monkeypatch.setattr(kept_files, "HOSTS", str(tmp_path / "hosts"))
    (tmp_path / "slurm.conf").write_text("NodeName=n[1-3]\n")
    (tmp_path / "hosts").write_text("head\nlogin9\n")
    params = {"files": {"slurm.conf": "NodeName=n1\nNodeName=cloud1 State=CLOUD\n"}, "directory": "/none"}

    def known(hosts: str, cleaned: str = "") -> tuple[list[str], list[str]]:
        module: Any = SimpleNamespace(params={**params, "hosts": hosts, "cleaned_hosts": cleaned})
        return slurm_config.find_known_hosts(module)

    assert known("head,n1") == (["head", "n1", "cloud1", "login9", "n2", "n3"], ["login9", "n2", "n3"])
    assert known("head,n1", "n[2-3]")[1] == ["login9"]
    assert known("") == ([], [])
    with pytest.raises(ValueError, match=r"n\[2"):
        known("head", "n[2")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"files": {"slurm.conf": 5}}, "files: slurm.conf: found int, allowed: the text of the file"),
        ({"files": {"slurm.conf": ["A=1"]}}, "files: slurm.conf: found list, allowed: the text of the file"),
        (
            {"files": {"../slurm.conf": ""}},
            "files: found '../slurm.conf', allowed: the name of a file without a directory",
        ),
        ({"secrets": {"key.conf": 5}}, "secrets: key.conf: found int, allowed: the text of the file"),
        ({"secrets": {"key.conf": "geheim!"}}, "key.conf: the secret is not base64"),
        ({"files": {"slurm.conf": "NodeName=n[\n"}}, "slurm.conf: NodeName=n[: bad hostlist"),
    ],
)
def test_files_that_cannot_be_are_refused_first(params: dict[str, Any], message: str) -> None:
    module = SimpleNamespace(params={"files": {}, "partial": False, "secrets": {}, "directory": "/etc/slurm", **params})
    daemon = SimpleNamespace(name="slurmctld", owner="root", mode=0o644, version=lambda: "24.11.5")
    with pytest.raises((ConfigError, ConfigurationError, FileError)) as error:
        slurm_config.configure(cast(Any, module), cast(Daemon, daemon))
    assert str(error.value).startswith(message)


# -- slurmdbd --------------------------------------------------------------------------------------------------------


@pytest.fixture(name="port")
def port_of_this_process() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def slurmdbd(stand_in: StandIn, process: int, sacctmgr: str = "echo demo") -> Slurmdbd:
    """slurmdbd, of which systemd names this process; sacctmgr is a script."""
    stand_in("systemctl", f"echo {process}")
    stand_in("sacctmgr", sacctmgr)
    return Slurmdbd(cast(Any, SimpleNamespace(params={"patience": 0})))


def test_slurmdbd_is_asked_where_its_process_listens(stand_in: StandIn, port: int, tmp_path: Path) -> None:
    configuration = read({"slurmdbd.conf": f"DbdHost=head\nDbdPort={port}\nAuthType=auth/slurm\nStorageUser=slurm\n"})
    daemon = slurmdbd(stand_in, os.getpid(), f"cat $SLURM_CONF >{tmp_path}/asked")
    assert daemon.answers(configuration)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert {"AccountingStorageHost=127.0.0.1", f"AccountingStoragePort={port}", "AuthType=auth/slurm"} <= {*asked}
    assert "StorageUser=slurm" not in asked


@pytest.mark.parametrize(
    ("process", "sacctmgr", "reason"),
    [
        (0, "echo demo", "systemd does not run slurmdbd"),
        # Another daemon has the port, such as slurmctld.
        (1, "echo demo", "its process 1 does not listen on port PORT"),
        (-1, "echo 'sacctmgr: error: Connection refused' >&2; exit 1", "sacctmgr: sacctmgr: error: Connection refused"),
    ],
)
def test_slurmdbd_is_not_another_daemon_on_its_port(
    stand_in: StandIn, port: int, process: int, sacctmgr: str, reason: str
) -> None:
    configuration = read({"slurmdbd.conf": f"DbdPort={port}\n"})
    daemon = slurmdbd(stand_in, os.getpid() if process < 0 else process, sacctmgr)
    assert not daemon.answers(configuration)
    assert daemon.silence(configuration) == reason.replace("PORT", str(port))
    if process < 0:
        stand_in("systemctl", f"[ $1 = is-active ] || echo {os.getpid()}")
        with pytest.raises(NotYetError) as error:
            daemon.wait(configuration)
        assert str(error.value) == f"slurmdbd does not answer after 0 s ({reason})"


def test_a_port_that_another_process_has_is_refused(stand_in: StandIn, port: int, tmp_path: Path) -> None:
    (tmp_path / "slurmdbd.conf").write_text(f"DbdPort={port}\n")
    slurmdbd(stand_in, os.getpid()).check_files(str(tmp_path))  # it is its own
    with pytest.raises(ConfigError) as error:
        slurmdbd(stand_in, 1).check_files(str(tmp_path))
    assert str(error.value).startswith(f"slurmdbd.conf: DbdPort: found '{port}', on which ")
    assert f"(process {os.getpid()}) listens on this host, allowed: a free port" in str(error.value)


def test_a_daemon_has_not_ended_because_systemd_does_not_answer(stand_in: StandIn) -> None:
    """Else it would be started, and its files taken back."""
    stand_in("systemctl", "echo 'Failed to connect to system scope bus: Connection timed out' >&2; exit 1")
    daemon = Slurmdbd(cast(Any, SimpleNamespace(params={"patience": 0})))
    with pytest.raises(ConfigError, match=r"^systemd does not say whether slurmdbd runs: Failed to connect .* out$"):
        daemon.active()


def test_a_start_is_not_refused_for_failures_before(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in("systemctl", f"echo $* >>{tmp_path}/asked")
    Slurmdbd(cast(Any, SimpleNamespace(params={"patience": 0}))).act("restart", Configuration())
    assert (tmp_path / "asked").read_text().splitlines() == ["reset-failed slurmdbd", "restart slurmdbd"]


def test_the_directory_of_the_archive_is_created_before_the_start(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in("systemctl", f"echo systemctl $* >>{tmp_path}/asked")
    stand_in("runuser", f"echo runuser $* >>{tmp_path}/asked")
    daemon = Slurmdbd(cast(Any, SimpleNamespace(params={"patience": 0})))
    daemon.act("restart", read({"slurmdbd.conf": "SlurmUser=slurm\nArchiveDir=/srv/archive\n"}))
    assert (tmp_path / "asked").read_text().splitlines() == [
        "runuser -u slurm -- mkdir --parents --mode=0700 /srv/archive",
        "systemctl reset-failed slurmdbd",
        "systemctl restart slurmdbd",
    ]


def test_a_directory_that_its_user_cannot_create_is_an_error(stand_in: StandIn) -> None:
    stand_in("runuser", "echo 'mkdir: Permission denied' >&2; exit 1")
    daemon = Slurmdbd(cast(Any, SimpleNamespace(params={"patience": 0})))
    with pytest.raises(ConfigError) as error:
        daemon.act("restart", read({"slurmdbd.conf": "SlurmUser=slurm\nArchiveDir=/srv/archive\n"}))
    assert str(error.value) == (
        "slurmdbd.conf: ArchiveDir: found '/srv/archive', which user slurm cannot create: mkdir: Permission denied"
    )


NOT_RUNNING = "[ $1 = is-active ] && exit 3; echo 0"


@pytest.mark.parametrize(("protocol", "refused"), [("11520", True), ("10752", False), ("NULL", False), ("", False)])
def test_slurmdbd_does_not_start_with_the_database_of_a_later_release(
    stand_in: StandIn, tmp_path: Path, protocol: str, refused: bool
) -> None:
    stand_in("systemctl", NOT_RUNNING)
    stand_in("slurmdbd", "echo slurm 24.11.5")
    stand_in("mariadb", f"cat >{tmp_path}/asked; echo '{protocol}'")
    (tmp_path / "slurmdbd.conf").write_text("StorageLoc=acct\nDbdPort=1\n")
    daemon = Slurmdbd(cast(Any, SimpleNamespace(params={"patience": 0})))
    if refused:
        with pytest.raises(ConfigError, match=r"acct belongs to a cluster with Slurm 26\.05, and slurmdbd 24\.11\.5 "):
            daemon.check_files(str(tmp_path))
    else:
        daemon.check_files(str(tmp_path))
    assert "`acct`.cluster_table" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(("version", "refused"), [("24.11.5", True), ("25.11.1", True), ("26.05.5", False)])
def test_slurmdbd_does_not_start_with_the_tables_of_a_later_slurmdbd(
    stand_in: StandIn, version: str, refused: bool
) -> None:
    """slurmctld of the cluster is still 24.11, as between two stages of an upgrade."""
    stand_in("mariadb", r"printf '10752\nid_job\nfailed_node\nlineage\nstd_err\nqos_req\nsegment_size\nsluid\n'")
    configuration = read({"slurmdbd.conf": "StorageLoc=acct\n"})
    if refused:
        with pytest.raises(ConfigError, match=rf"with Slurm 26\.05, and slurmdbd {version} would damage it"):
            check_database(version, configuration)
    else:
        check_database(version, configuration)


@pytest.mark.parametrize(("protocol", "refused"), [(11520, True), (10752, False)])
def test_slurmctld_does_not_start_with_the_state_of_a_later_release(
    tmp_path: Path, protocol: int, refused: bool
) -> None:
    word = b"PROTOCOL_VERSION\0"
    (tmp_path / "job_state").write_bytes(struct.pack(">I", len(word)) + word + struct.pack(">HQ", protocol, 0))
    if refused:
        with pytest.raises(
            ConfigError, match=r"has the state of Slurm 26\.05, which slurmctld 24\.11\.5 does not read"
        ):
            check_state("24.11.5", str(tmp_path))
    else:
        check_state("24.11.5", str(tmp_path))
    check_state("24.11.5", str(tmp_path / "missing"))


# -- the check on nodes ----------------------------------------------------------------------------------------------

NODE_LINES = "ClusterName=x\nNodeName=n[1-2] NodeAddr=10.0.0.[1-2]\nNodeName=n3 Weight=9\n"


class Running(Recorded):
    """A slurmctld that does all that it is asked for."""

    def version(self) -> str:
        return "24.11.5"

    def answers(self, _configuration: Configuration) -> bool:
        return True

    def jobs(self) -> list[Any]:
        return []

    def is_unregistered(self, _configuration: Configuration) -> bool:
        return self.new_database

    reconfigures, host, new_database = True, None, False


@pytest.fixture
def apply_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a text of slurm.conf in force, or confirm it or take it back; the nodes `up` are those that are up."""
    for name in ("KEPT", "GOOD", "FILES", "PREVIOUS", "FOUND", "HOSTS", "PROGRAMS", "READ_AT_START"):
        monkeypatch.setattr(kept_files, name, str(tmp_path / ("kept" if name == "KEPT" else f"kept/{name.lower()}")))
    monkeypatch.setattr(file_validation, "RUN", str(tmp_path / "run"))
    (tmp_path / "etc").mkdir()

    def run(
        conf: str | None,
        state: str = "present",
        up: str = "n1 n2 n3",
        others: dict[str, str] | None = None,
        check: bool = False,
        **own: Any,
    ) -> Any:
        daemon = Running()
        # mypy knows no attributes that a test replaces.
        daemon.before = lambda _old: Before(dict.fromkeys(up.split(), ("idle", "")), frozenset())  # type: ignore[attr-defined]
        files = conf and {"slurm.conf": conf, **(others or {})}
        params = {"directory": str(tmp_path / "etc"), "files": files, "partial": False, "secrets": {}}
        module: Any = SimpleNamespace(
            params=params | {"end_jobs": False, "hosts": "", "leaving": "", **own}, check_mode=check
        )
        if state == "present":
            return slurm_config.configure(module, cast(Daemon, daemon))
        return slurm_config.confirm_or_restore(module, cast(Daemon, daemon), state)

    return run


def conf_in_force(directory: Path) -> str:
    return (directory / "etc/slurm.conf").read_text()


BEFORE, AFTER = f"SlurmdPort=6818\n{NODE_LINES}", f"SlurmdPort=22\n{NODE_LINES}"


def test_a_change_that_restarts_slurmd_is_unproven_until_nodes_have_started_with_it(apply_conf: Any) -> None:
    assert apply_conf(BEFORE)["unproven"] == []  # a first configuration replaces nothing
    assert apply_conf(AFTER)["unproven"] == ["n[1-2]", "n3"]
    assert apply_conf(AFTER)["unproven"] == ["n[1-2]", "n3"]  # the run was killed, and this is the next one
    proven = apply_conf(None, "proven")
    assert (proven["unproven"], proven["in_force"], proven["actions"]) == ([], {"slurm.conf": AFTER}, [])
    assert not proven["changed"]
    assert apply_conf(AFTER)["unproven"] == []
    assert apply_conf(f"KillWait=9\n{AFTER}")["unproven"] == []


def test_a_slurmctld_registers_in_a_new_database_by_a_restart(apply_conf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_conf(BEFORE)
    assert (apply_conf(BEFORE)["changed"], apply_conf(BEFORE)["actions"]) == (False, [])
    monkeypatch.setattr(Running, "new_database", True)
    assert (apply_conf(BEFORE)["changed"], apply_conf(BEFORE)["actions"]) == (True, ["restart"])


def test_check_mode_says_which_nodes_would_be_the_first(apply_conf: Any) -> None:
    assert apply_conf(AFTER, check=True)["unproven"] == []
    apply_conf(BEFORE)
    for _again in range(2):
        assert apply_conf(AFTER, check=True)["unproven"] == ["n[1-2]", "n3"]
    assert apply_conf(AFTER, check=True, up="n1")["unproven"] == ["n1"]
    assert apply_conf(f"KillWait=9\n{BEFORE}", check=True)["unproven"] == []
    apply_conf(AFTER, up="n3")
    assert apply_conf(f"KillWait=9\n{AFTER}", check=True)["unproven"] == ["n3"]  # of the run that was killed
    assert apply_conf(BEFORE, check=True)["unproven"] == []
    assert apply_conf(AFTER)["unproven"] == ["n3"]


def test_the_same_settings_written_otherwise_are_only_written(tmp_path: Path, apply_conf: Any) -> None:
    """The files of a cluster of another origin are kept, and slurmctld reads nothing anew."""
    found = {"slurm.conf": "ClusterName=X\nInclude nodes.conf\n", "nodes.conf": "NodeName=n1 CPUs=2\n"}
    for name, text in found.items():
        (tmp_path / "etc" / name).write_text(text)
    (tmp_path / "etc/slurmdbd.conf").write_text("StoragePass=secret\n")
    (tmp_path / "etc/slurmdbd.conf").chmod(0o600)
    wanted = "ClusterName=x\nNodeName=n1 Sockets=2 CoresPerSocket=1 ThreadsPerCore=1\n"
    first = apply_conf(wanted)
    assert (first["changed"], first["plan"], first["actions"], first["unproven"]) == (True, [], [], [])
    assert conf_in_force(tmp_path) == wanted
    kept = tmp_path / "kept/found"
    assert {path.name: path.read_text() for path in kept.iterdir()} == {
        **found,
        "slurmdbd.conf": "StoragePass=secret\n",
    }
    assert [path.stat().st_mode & 0o777 for path in (kept, kept / "slurmdbd.conf")] == [0o700, 0o600]
    again = apply_conf(wanted)
    assert (again["changed"], again["actions"]) == (False, [])


@pytest.mark.parametrize(
    ("conf", "kept"), [("ClusterName=x\n", True), ("# Managed by gpucluster.slurm: changes\n", False), ("", False)]
)
def test_a_standby_keeps_the_files_that_it_had_before(tmp_path: Path, apply_conf: Any, conf: str, kept: bool) -> None:
    """Those of another origin: the serving controller keeps its own when the first files are put in force."""
    if conf:
        (tmp_path / "etc/slurm.conf").write_text(conf)
    assert not apply_conf(None, "found")["changed"]
    assert (tmp_path / "kept/found/slurm.conf").exists() is kept


def test_a_standby_with_files_of_the_cluster_keeps_none(tmp_path: Path, apply_conf: Any) -> None:
    apply_conf(BEFORE)
    (tmp_path / "etc/slurm.conf").write_text("ClusterName=y\n")
    apply_conf(None, "found")
    assert not (tmp_path / "kept/found").exists()


def test_what_means_something_else_is_planned(tmp_path: Path, apply_conf: Any) -> None:
    (tmp_path / "etc/slurm.conf").write_text("ClusterName=x\nInclude nodes.conf\nKillWait=30\n")
    (tmp_path / "etc/nodes.conf").write_text("NodeName=n1 CPUs=2\n")
    result = apply_conf("ClusterName=x\nNodeName=n1 CPUs=2 Weight=5\nKillWait=0x1e\n")
    assert [step["what"] for step in result["plan"]] == ["NodeName=n1 Weight"]
    assert result["actions"] == ["reconfigure"]
    assert (tmp_path / "kept/found/nodes.conf").exists()


def test_the_previous_files_return_after_a_failed_check(tmp_path: Path, apply_conf: Any) -> None:
    apply_conf(BEFORE)
    (tmp_path / "kept/good/slurmdbd_storage.conf").write_text("StoragePass=secret\n")
    apply_conf(f"KillWait=9\n{AFTER}")
    previous = apply_conf(None, "former")
    assert previous["actions"] == ["restart"]
    assert "SlurmdPort=6818" in previous["read_at_start"].splitlines()
    assert previous["in_force"] == {"slurm.conf": BEFORE}
    assert conf_in_force(tmp_path) == BEFORE
    assert (tmp_path / "kept/good/slurm.conf").read_text() == BEFORE
    assert apply_conf(BEFORE)["unproven"] == []


@pytest.mark.parametrize(
    "place", ["etc/slurm.conf", "kept/good/slurm.conf", "kept/files", "kept/hosts", "kept/previous"]
)
def test_a_record_holds_until_a_file_of_the_configuration_changes(
    tmp_path: Path, apply_conf: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(applied_state, "RECORDS", str(tmp_path / "notes"))
    monkeypatch.setattr(applied_state, "File", lambda path, content, mode: File(path, content, getpass.getuser(), mode))
    apply_conf(BEFORE)
    digest = "0c" * 32
    params = {"directory": str(tmp_path / "etc"), "files": {"slurm.conf": BEFORE}, "secrets": {}, "digest": digest}
    module: Any = SimpleNamespace(params=params)
    slurm_config.record_applied_state(module, cast(Daemon, Running()), holds=True)
    assert applied_state.holding(["slurmctld_config"], {}) == {"slurmctld_config": digest}
    (tmp_path / place).write_text("another")
    assert applied_state.holding(["slurmctld_config"], {}) == {}
    slurm_config.record_applied_state(module, cast(Daemon, Running()), holds=False)
    assert not (tmp_path / "notes/slurmctld_config").exists()


def names_in(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


def test_a_file_that_leaves_the_data_leaves_the_host(tmp_path: Path, apply_conf: Any) -> None:
    """Only files that the module has written: neither those of a person, nor those of slurmdbd."""
    etc, good = tmp_path / "etc", tmp_path / "kept/good"
    (etc / "mpi.conf").write_text("PMIxDebug=1\n")
    apply_conf(BEFORE, others={"topology.conf": "SwitchName=s1 Nodes=n[1-3]\n", "job_submit.lua": "-- 1\n", "a.sh": ""})
    (good / "slurmdbd_storage.conf").write_text("StoragePass=secret\n")
    changed = apply_conf(BEFORE, others={"topology.conf": "SwitchName=s1 Nodes=n[1-2]\n"})
    assert [(step["what"], step["before"], step["after"]) for step in changed["plan"]] == [
        ("topology.conf SwitchName=s1", "Nodes=n[1-3]", "Nodes=n[1-2]"),
        ("a.sh", "sha256 e3b0c44298fc", None),
        ("job_submit.lua", "sha256 a2cb31fae485", None),
    ]
    assert {step["needs"] for step in changed["plan"]} == {"reconfigure"}
    assert {"a.sh", "job_submit.lua"} <= {*changed["absent"]}
    assert names_in(etc) == ["mpi.conf", "slurm.conf", "topology.conf"]
    assert names_in(good) == ["slurm.conf", "slurmdbd_storage.conf", "topology.conf"]
    assert not apply_conf(BEFORE, others={"topology.conf": "SwitchName=s1 Nodes=n[1-2]\n"})["changed"]


def test_files_keep_each_of_their_bytes(tmp_path: Path, apply_conf: Any) -> None:
    """A script in Latin-1, and one whose lines have carriage returns, which are read back as they were written."""
    files = {"a.sh": "#!/bin/bash\n# gr\udcfc\udcdfe\n", "b.py": "#!/usr/bin/python3\r\n"}
    changed = apply_conf(BEFORE, others=files)
    assert changed["changed"]
    # As text they would not pass Ansible, which escapes what a terminal obeys and refuses what is not UTF-8.
    assert changed["in_force"].keys() == {"slurm.conf"}
    assert changed["in_force_bytes"] == {
        "a.sh": b64encode(b"#!/bin/bash\n# gr\xfc\xdfe\n").decode(),
        "b.py": b64encode(b"#!/usr/bin/python3\r\n").decode(),
    }
    assert (tmp_path / "etc/a.sh").read_bytes() == b"#!/bin/bash\n# gr\xfc\xdfe\n"
    assert (tmp_path / "etc/b.py").read_bytes() == b"#!/usr/bin/python3\r\n"
    assert not apply_conf(BEFORE, others=files)["changed"]


def test_some_of_the_files_can_be_changed_alone(tmp_path: Path, apply_conf: Any) -> None:
    apply_conf(BEFORE, others={"topology.conf": "SwitchName=s1 Nodes=n1\n", "plugstack.conf": "optional a.so\n"})
    params = {"files": {"plugstack.conf": "required a.so\n"}, "partial": True}
    changed = apply_conf(None, **params)
    assert [step["what"] for step in changed["plan"]] == ["plugstack.conf required=a.so"]
    assert names_in(tmp_path / "etc") == ["plugstack.conf", "slurm.conf", "topology.conf"]
    assert changed["in_force"].keys() == {"plugstack.conf", "slurm.conf", "topology.conf"}
    assert not apply_conf(None, **params)["changed"]


def test_the_previous_files_return_without_those_that_were_added(tmp_path: Path, apply_conf: Any) -> None:
    apply_conf(BEFORE, others={"mpi.conf": "PMIxDebug=1\n"})
    apply_conf(AFTER, others={"topology.conf": "SwitchName=s1 Nodes=n1\n"})
    assert apply_conf(None, "former")["in_force"].keys() == {"mpi.conf", "slurm.conf"}
    assert names_in(tmp_path / "etc") == names_in(tmp_path / "kept/good") == ["mpi.conf", "slurm.conf"]


TWO = f"SlurmctldHost=a\nSlurmctldHost=b\nSlurmUser={getpass.getuser()}\n{NODE_LINES}"


def test_the_files_of_several_controllers_have_a_serial_number(
    tmp_path: Path, apply_conf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that was away knows by it that its files are older. One controller has none."""
    own, shared = tmp_path / "kept/serial", tmp_path / "gpucluster-slurm-serial"
    monkeypatch.setattr(succession, "SERIAL", str(own))
    assert apply_conf(NODE_LINES)["serial"] == ""
    two = f"StateSaveLocation={tmp_path}\n{TWO}"
    assert apply_conf(two)["serial"] == own.read_text() == shared.read_text() == "1 24.11.5"
    assert apply_conf(two)["serial"] == "1 24.11.5"
    shared.write_text("5 24.11.5")  # the other controller was changed, and is lost
    assert apply_conf(f"KillWait=9\n{two}")["serial"] == own.read_text() == shared.read_text() == "6 24.11.5"
    # The other controllers have the rest of the files, and get this part by the role that changes it.
    part = {"files": {"plugstack.conf": "optional a.so\n"}, "partial": True}
    assert apply_conf(None, **part)["serial"] == "6 24.11.5"
    assert apply_conf(None, "proven")["serial"] == "6 24.11.5"
    # Files that are taken back are a change as well.
    assert apply_conf(f"SlurmdPort=22\n{two}")["serial"] == "7 24.11.5"
    assert apply_conf(None, "former")["serial"] == own.read_text() == shared.read_text() == "8 24.11.5"


def test_another_order_of_controllers_is_refused_where_one_serves(
    tmp_path: Path, apply_conf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(succession, "SERIAL", str(tmp_path / "kept/serial"))
    monkeypatch.setattr("socket.gethostname", lambda: "a.example.org")
    two = f"StateSaveLocation={tmp_path}\n{TWO}"
    apply_conf(two)
    message = "slurm.conf SlurmctldHost: found 'b a', allowed: a, which serves, before b.*take a out of controllers"
    with pytest.raises(ConfigError, match=message):
        apply_conf(two.replace("Host=a", "Host=x").replace("Host=b", "Host=a").replace("Host=x", "Host=b"))
    assert conf_in_force(tmp_path) == two


def test_a_controller_starts_with_the_highest_serial_number(
    tmp_path: Path, apply_conf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unit compares the numbers. The others keep theirs until the change holds: they have the files before it."""
    own, shared = tmp_path / "kept/serial", tmp_path / "gpucluster-slurm-serial"
    monkeypatch.setattr(succession, "SERIAL", str(own))
    two = f"StateSaveLocation={tmp_path}\n{TWO}"
    apply_conf(two)
    shared.write_text("5 24.11.5")
    seen = []

    def refuse(_self: Any, action: str, _configuration: Any) -> None:
        seen.append((action, own.read_text()))
        raise ConfigError("it does not start")

    monkeypatch.setattr(Running, "act", refuse, raising=False)
    with pytest.raises(ConfigError):
        apply_conf(f"KillWait=9\n{two}")
    assert seen[0][1] == "6 24.11.5"
    assert shared.read_text() == "5 24.11.5"


def test_a_controller_that_was_started_waits_until_one_serves(apply_conf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["", "", "b"])
    monkeypatch.setattr(slurm_config, "serving", lambda: next(answers))

    def wait_until(_self: Any, configuration: Configuration, answered: Any) -> None:
        assert configuration.settings["slurm.conf", "slurmctldhost"][1] == "a b"
        while not answered():
            pass

    monkeypatch.setattr(Running, "wait_until", wait_until, raising=False)
    sought: list[Any] = []
    monkeypatch.setattr(
        Running, "seek_control", lambda _self, configuration: sought.append(configuration), raising=False
    )
    apply_conf(TWO)
    assert not apply_conf(None, "serving")["changed"]
    assert next(answers, None) is None
    assert len(sought) == 1


def test_a_serial_number_that_cannot_be_shared_is_a_warning(
    tmp_path: Path, apply_conf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(succession, "SERIAL", str(tmp_path / "kept/serial"))
    result = apply_conf(f"StateSaveLocation={tmp_path}/missing\n{TWO}")
    assert result["remarks"][-1] == (
        f"The serial number of the files was not written into {tmp_path}/missing, so a controller that was away could "
        f"start with older ones: [Errno 2] No such file or directory: '{tmp_path}/missing/gpucluster-slurm-serial.new'"
    )


def test_files_that_this_release_does_not_read_are_refused(apply_conf: Any) -> None:
    with pytest.raises(ConfigError, match=r"topology.yaml: Slurm 24.11 does not have it, 25.05 and later do"):
        apply_conf(BEFORE, others={"topology.yaml": "- topology: a\n"})


def test_without_an_unproven_change_nothing_is_confirmed_or_restored(tmp_path: Path, apply_conf: Any) -> None:
    apply_conf(BEFORE)
    (tmp_path / "kept/good/slurmdbd_storage.conf").write_text("StoragePass=secret\n")
    assert not apply_conf(None, "former")["changed"]
    assert not apply_conf(None, "proven")["changed"]
    assert conf_in_force(tmp_path) == BEFORE


def test_a_change_that_is_taken_back_by_hand_needs_no_check(apply_conf: Any) -> None:
    apply_conf(BEFORE)
    apply_conf(AFTER)
    assert apply_conf(AFTER.replace("22", "23"))["unproven"] == ["n[1-2]", "n3"]
    assert apply_conf(BEFORE)["unproven"] == []


def test_nodes_that_were_down_try_nothing(apply_conf: Any) -> None:
    apply_conf(BEFORE)
    assert apply_conf(AFTER, up="")["unproven"] == []


# -- nodes that Slurm has drained, and the database ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "resumed"), [("Prolog", "n[1-2]"), ("Epilog", ""), ("HealthCheckProgram", ""), ("KillWait", "")]
)
def test_nodes_that_slurm_has_drained_return_with_the_corrected_program(
    tmp_path: Path, stand_in: StandIn, key: str, resumed: str
) -> None:
    """Not those with another reason, of another user, or drained before the program was in force."""
    rows = [
        "n1|drained|2026-01-02T10:00:00|slurm|Prolog error",
        "n1|drained|2026-01-02T10:00:00|slurm|Prolog error",
        "n2|draining|2026-01-02T10:00:09|slurm|Prolog error",
        "n3|drained|2026-01-02T09:59:59|slurm|Prolog error",
        "n4|drained|2026-01-02T10:00:00|root|Prolog error",
        "n5|drained|2026-01-02T10:00:00|slurm|bad | DIMM",
        "n6|idle|Unknown|Unknown|none",
    ]
    stand_in("sinfo", "cat <<END\n" + "\n".join(rows) + "\nEND")
    stand_in("scontrol", f"echo $* >>{tmp_path}/asked")
    daemon = Slurmctld(cast(Any, SimpleNamespace(params={"directory": "/etc/slurm", "patience": 1})))
    plan = steps([ConfigurationChange("slurm.conf", "", key, "/a", "/b")], [], "24.11.5")
    since = time.mktime((2026, 1, 2, 10, 0, 0, 0, 0, -1)) + 0.5
    messages = daemon.resume_corrected(read({"slurm.conf": "SlurmUser=slurm\n"}), plan, since)
    if not resumed:
        assert (messages, (tmp_path / "asked").exists()) == ([], False)
        return
    assert messages == ["Resumed n[1-2], drained by slurmctld because of the previous Prolog (Prolog error)"]
    asked = (tmp_path / "asked").read_text()
    assert asked == "update nodename=n[1-2] state=resume reason=Not responding (resumed)\n"


def test_the_time_of_a_program_is_that_of_its_own_change(tmp_path: Path, apply_conf: Any) -> None:
    apply_conf(f"Prolog=/a\n{NODE_LINES}")
    os.utime(tmp_path / "kept/programs", (1000, 1000))
    apply_conf(f"Prolog=/a\nKillWait=9\n{NODE_LINES}")
    assert kept_files.find_program_time() == 1000
    apply_conf(f"Prolog=/b\nKillWait=9\n{NODE_LINES}")
    assert kept_files.find_program_time() > 1000


def test_a_database_that_does_not_answer_is_found_before_the_change() -> None:
    daemon = Slurmctld(cast(Any, SimpleNamespace(params={"directory": "/etc/slurm", "patience": 1})))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        conf = f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStoragePort={port}\n"
        configuration = read({"slurm.conf": conf})
        plan = steps(changes(Configuration(), configuration), [], "24.11.5")
        daemon.check_others(configuration, plan)
    with pytest.raises(ConfigError, match=f"slurmdbd does not answer at localhost:{port}: Connection refused"):
        daemon.check_others(configuration, plan)
    daemon.check_others(configuration, [])  # only a change of these parameters needs an answer


# -- secrets ---------------------------------------------------------------------------------------------------------


class Database(Slurmdbd):
    """A slurmdbd, which does not start with the database `bad`."""

    owner = getpass.getuser()

    def version(self) -> str:
        return "24.11.5"

    def active(self) -> bool:
        return True

    def answers(self, _configuration: Configuration) -> bool:
        return True

    def check_files(self, directory: str) -> None:
        assert os.path.exists(f"{directory}/slurmdbd.conf")

    def act(self, _action: str, configuration: Configuration) -> None:
        if configuration.settings["slurmdbd.conf", "storageloc"][1] == "bad":
            raise ConfigError("slurmdbd has ended")


def apply_database(directory: Path, line: str, database: str = "acct", check_mode: bool = False) -> Any:
    """Put a slurmdbd.conf and a secret in force."""
    secrets = {"slurmdbd_storage.conf": base64.b64encode(f"{line}\n".encode()).decode()}
    files = {"slurmdbd.conf": f"DbdHost=head\nStorageLoc={database}\n"}
    params = {"directory": str(directory / "etc"), "files": files, "partial": False, "secrets": secrets}
    module: Any = SimpleNamespace(
        params=params | {"end_jobs": False, "leaving": "", "patience": 0}, check_mode=check_mode
    )
    return slurm_config.configure(module, Database(module))


def secret_in(directory: Path) -> str:
    return (directory / "etc/slurmdbd_storage.conf").read_text()


@pytest.mark.usefixtures("apply_conf")
@pytest.mark.parametrize("check_mode", [True, False])
def test_a_secret_that_slurm_would_read_otherwise_is_refused_before_anything_is_written(
    tmp_path: Path, check_mode: bool
) -> None:
    """In check mode as well: the role asks before it changes the password of the database user."""
    with pytest.raises(ConfigError) as error:
        apply_database(tmp_path, "StoragePass=hash#inside", check_mode=check_mode)
    assert str(error.value) == "slurmdbd_storage.conf: a value is not written as Slurm's parser reads it"
    assert names_in(tmp_path / "etc") == []
    apply_database(tmp_path, r"StoragePass=hash\#inside")
    assert secret_in(tmp_path) == "StoragePass=hash\\#inside\n"


@pytest.mark.usefixtures("apply_conf")
def test_a_rollback_keeps_the_password_that_the_database_user_has(tmp_path: Path) -> None:
    apply_database(tmp_path, "StoragePass=old")
    with pytest.raises(ConfigError, match="Rolled back: the old files are in force again"):
        apply_database(tmp_path, "StoragePass=new", database="bad")
    assert secret_in(tmp_path) == "StoragePass=new\n"
    assert "StorageLoc=acct" in (tmp_path / "etc/slurmdbd.conf").read_text()
    assert apply_database(tmp_path, "StoragePass=new")["changed"]  # the run that corrects it
    assert not apply_database(tmp_path, "StoragePass=new")["changed"]


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ("9", "These changes would end jobs (1): let no job into the partition"),
        ("unknown", "slurmctld does not answer, so these changes could end jobs: start it"),
    ],
)
def test_a_change_that_would_end_jobs_names_what_helps_and_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: str, says: str
) -> None:
    """The name is that of the role, which a person sets; the option of the module is set nowhere else."""
    monkeypatch.setattr(file_validation, "check_wanted_files", lambda *_arguments: [])
    monkeypatch.setattr(slurm_config, "check_order", lambda *_arguments: None)
    before, after = "PartitionName=p Nodes=ALL\nPartitionName=old Nodes=ALL\n", "PartitionName=p Nodes=ALL\n"
    old, new = (read({"slurm.conf": text}) for text in (before, after))
    jobs = [JobPlacement(job, "old", frozenset({"n1"}), False)]
    present = slurm_config.Present(str(tmp_path), {}, [], old, None, False, [])
    wanted = slurm_config.Wanted({"slurm.conf": after}, {})
    plan = slurm_config.Plan(wanted, present, [], new, "24.11.5", "", steps(changes(old, new), jobs, "24.11.5", new))
    module: Any = SimpleNamespace(params={"end_jobs": False}, check_mode=True)
    with pytest.raises(ConfigError) as error:
        slurm_config.check_plan(module, cast(Daemon, Recorded()), plan)
    assert str(error.value).startswith(says)
    assert "; or accept it with -e slurmctld_end_jobs=true\nPartitionName=old " in str(error.value)


@pytest.mark.parametrize("end_jobs", [False, True])
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_removal_of_nodes_brings_nothing_else_into_force(tmp_path: Path, end_jobs: bool, check_mode: bool) -> None:
    """It has no look at what a run of site.yml has left, and nobody has been asked for it."""
    before = "KillWait=30\nNodeName=n[1-2]\nPartitionName=p Nodes=ALL\n"
    after = "KillWait=60\nNodeName=n1\nPartitionName=p Nodes=ALL MaxTime=5\n"
    old, new = (read({"slurm.conf": text}) for text in (before, after))
    wanted = slurm_config.Wanted({"slurm.conf": after}, {})
    present = slurm_config.Present(str(tmp_path), {"slurm.conf": before}, [], old, None, False, [])
    plan = slurm_config.Plan(wanted, present, [], new, "24.11.5", "", steps(changes(old, new), [], "24.11.5", new))
    with_n2 = after.replace("NodeName=n1", "NodeName=n[1-2]")
    params = {"leaving": "n2", "with_leaving": {"slurm.conf": with_n2}, "end_jobs": end_jobs}
    module: Any = SimpleNamespace(params=params, check_mode=check_mode)
    daemon = Recorded()
    with pytest.raises(ConfigError) as error:
        slurm_config.check_plan(module, cast(Daemon, daemon), plan)
    assert daemon.calls == []
    text = " ".join(str(error.value).split())
    assert "slurm.conf KillWait 30 -> 60" in text
    assert "PartitionName=p MaxTime (none) -> 5" in text
    assert "NodeName=n2" not in text
    assert "site.yml" in text


def test_a_daemon_that_falls_silent_after_its_first_answer_is_restarted() -> None:
    daemon, before = Mock(), Before({}, frozenset())
    daemon.name = "slurmctld"
    daemon.verify.side_effect = [NotYetError("Socket timed out on send/recv operation"), None]
    (message,) = slurm_config.verify(daemon, Mock(), before, "reconfigure")
    assert "slurmctld did not answer after scontrol reconfigure, so it was restarted" in message
    assert daemon.act.call_args.args[0] == "restart"
    daemon.verify.side_effect = NotYetError("Socket timed out on send/recv operation")
    with pytest.raises(NotYetError):
        slurm_config.verify(daemon, Mock(), before, "restart")
