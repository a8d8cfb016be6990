# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program slurm-metrics of role slurm_metrics, with recorded answers of Slurm (recorded/README.md), and the rules
for the names of other dashboards."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment, slurm_records
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import apt_updates, dpkg
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.series import Series
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics import (
    metric_host,
    metric_jobs,
    metric_nodes,
)
from programs import ROLES, StandIn, load

pytestmark = pytest.mark.once

ROOT = ROLES.parent
RECORDED = Path(__file__).parent / "recorded"
RELEASES = sorted(path.name for path in (RECORDED / "metrics").iterdir())
HOST = socket.gethostname().partition(".")[0]
OTHER = f"other-{HOST}"

Values = dict[str, float]

OF_NODES = ("alloc", "comp", "down", "drain", "err", "fail", "idle", "maint", "mix", "resv")
UNITS = ("alloc", "idle", "other", "total")
OF_JOBS = (
    *("cancelled", "completed", "completing", "failed", "node_fail"),
    *("pending", "preempted", "running", "suspended", "timeout"),
)
OF_SLURMCTLD = (
    *("threads", "queue_size", "last_cycle", "mean_cycle"),
    *("backfill_last_cycle", "backfill_mean_cycle", "backfill_depth_mean"),
)
NAMES = [
    *(f"slurm_nodes_{state}" for state in OF_NODES),
    *(f"slurm_queue_{state}" for state in OF_JOBS),
    *(f"slurm_scheduler_{what}" for what in OF_SLURMCTLD),
    *(f"slurm_{unit}_{name}" for unit in ("cpus", "gpus") for name in UNITS),
]
"""The series of dashboard 4323, and of DeepOps' boards."""


@pytest.fixture(scope="module", name="metrics")
def program() -> ModuleType:
    """The program."""
    module: ModuleType = load("metrics.slurm_metrics")
    return module


def recorded(release: str, name: str) -> str:
    """What a command has said, with its separators."""
    return (RECORDED / "metrics" / release / f"{name}.txt").read_bytes().decode()


def parse(text: str) -> Values:
    """Values by name and labels."""
    rows = (line.rpartition(" ") for line in text.split("\n") if line and not line.startswith("#"))
    return {name: float(value) for name, _space, value in rows}


@pytest.fixture(name="run")
def with_stand_ins(
    metrics: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_in: StandIn
) -> Callable[..., Values]:
    """A function that runs a subcommand with a release's commands and settings, and returns the file's values."""
    directory = tmp_path / "textfiles"
    directory.mkdir()
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", os.environ["PATH"])
    monkeypatch.setattr(metrics, "DIRECTORY", str(directory))
    monkeypatch.setattr(metrics, "SETTINGS", str(tmp_path / "metrics.json"))
    monkeypatch.setattr(locks, "LOCKS", str(tmp_path / "run/locks"))

    def run(release: str, *arguments: str, status: int = 0, **settings: Any) -> Values:
        place = RECORDED / "metrics" / release
        stand_in("scontrol", f'case "$*" in *nodes) cat {place}/nodes.txt;; *) cat {place}/config.txt;; esac')
        stand_in("squeue", f"cat {place}/jobs.txt")
        stand_in("sdiag", f"cat {place}/sdiag.txt")
        return again(*arguments, status=status, **settings)

    def again(*arguments: str, status: int = 0, **settings: Any) -> Values:
        known = {"controllers": [HOST], "state_directory": str(tmp_path), "all": False, "users_and_accounts": False}
        known |= {"daemons": [], "keys": {}, "key_max_age_days": 0, "backup": None, "repair": False}
        known |= settings
        (tmp_path / "metrics.json").write_text(json.dumps(known))
        assert metrics.main(arguments) == status
        return parse("".join(path.read_text() for path in directory.glob("*.prom")))

    run.again = again  # type: ignore[attr-defined]
    return run


# -- recorded answers --------------------------------------------------------------------------------------------------

NODE = {"22.05": "node22", "24.11": "node24", "26.05": "node26.example.org"}
CANCELLED = {"22.05": 2, "24.11": 1, "26.05": 2}


@pytest.mark.parametrize("release", RELEASES)
def test_series_of_a_release(run: Callable[..., Values], release: str) -> None:
    """Two nodes of two CPUs. One has a job with a GPU and is drained. The other has a job, for which an array waits."""
    found = run(release, "cluster", "--all")
    node = NODE[release]
    expected = {
        f'slurm_controller_serving{{controller="{HOST}",place="0"}}': 1,
        "slurm_metrics_cluster_success": 1,
        "slurm_dbd_agent_queue_size": 0,
        "slurm_dbd_agent_queue_limit": 100000,
        "slurm_jobs_could_start": 30,
        'slurm_partition_jobs_could_start{partition="all"}': 30,
        "slurm_nodes": 2,
        "slurm_nodes_alloc": 1,
        "slurm_nodes_mixed": 1,
        "slurm_nodes_draining": 1,
        "slurm_nodes_drain": 1,
        "slurm_nodes_idle": 0,
        "slurm_nodes_completing": 0,
        "slurm_jobs_pending": 37,
        "slurm_jobs_hold": 5,
        "slurm_jobs_running": 2,
        "slurm_jobs_failed": 1,
        "slurm_jobs_cancelled": CANCELLED[release],
        "slurm_jobs": 37 + 2 + found["slurm_jobs_finished"],
        "slurm_jobs_timeout": 0,
        "slurm_jobs_gpus_alloc": 1,
        "slurm_jobs_memory_alloc": 300,
        f'slurm_node_gpus{{node="{node}"}}': 2,
        f'slurm_node_gpus_alloc{{node="{node}"}}': 1,
        f'slurm_node_cpus_idle{{node="{node}"}}': 1,
        f'slurm_node_memory_bytes{{node="{node}"}}': 2000,
        'slurm_partition_nodes{partition="all"}': 2,
        'slurm_partition_gpus{partition="all"}': 2,
        'slurm_partition_jobs_pending{partition="all"}': 37,
    }
    assert {name: found.get(name) for name in expected} == expected
    (since,) = (value for name, value in found.items() if name.startswith("slurm_node_drain_since_seconds"))
    assert f'slurm_node_drain_since_seconds{{node="{node}",cause="person"}}' in found
    # The drain was a few seconds after the last start.
    assert 0 < since - found["slurm_last_job_start_seconds"] < 60
    sdiag = recorded(release, "sdiag")
    main, backfill = re.findall(r"^\tLast cycle: +(\d+)$", sdiag, re.MULTILINE)
    assert (found["slurm_schedule_cycle_last"], found["slurm_bf_cycle_last"]) == (int(main), int(backfill))
    assert found["slurm_server_thread_cnt"] == int(re.findall(r"thread count: +(\d+)", sdiag)[0])


def test_cases_of_nodes_that_fail(run: Callable[..., Values], stand_in: StandIn) -> None:
    stand_in("slurm-repair", """echo '{"by_state": {"saved": 2, "person": 1}, "returned": 3, "seconds": 5400.0}'""")
    found = run("24.11", "cluster", repair=True)
    assert {name: value for name, value in found.items() if name.startswith("slurm_repair_")} == {
        'slurm_repair_cases{state="saved"}': 2,
        'slurm_repair_cases{state="person"}': 1,
        "slurm_repair_returned_nodes": 3,
        "slurm_repair_returned_seconds": 5400,
    }


def test_the_series_are_those_of_slurmctld(run: Callable[..., Values]) -> None:
    """What slurmctld 26.05 said of itself in the same seconds."""
    native = parse(recorded("26.05", "endpoint"))
    own = run("26.05", "cluster", "--all", users_and_accounts=True)
    shown = {f"slurm_nodes_{name}" for name in metric_nodes.SHOWN}
    both = own.keys() & native.keys() - {"slurm_server_thread_cnt", *shown}
    assert {name: (own[name], native[name]) for name in both if own[name] != native[name]} == {}
    only = {name.partition("{")[0] for name in own.keys() - native.keys() - {*NAMES}}
    assert only == {
        "slurm_controller_serving",
        "slurm_dbd_agent_queue_limit",
        "slurm_dbd_agent_queue_size",
        "slurm_jobs_could_start",
        "slurm_last_job_start_seconds",
        "slurm_metrics_cluster_seconds",
        "slurm_metrics_cluster_success",
        "slurm_node_drain_since_seconds",
        "slurm_partition_jobs_could_start",
        "slurm_partition_nodes_shown_idle",
        "slurm_ping_seconds",
    }
    missing = {name.partition("{")[0] for name in native.keys() - own.keys()}
    states = {name for name in missing if name.startswith(("slurm_nodes_", "slurm_node_", "slurm_jobs_"))}
    assert states == {"slurm_nodes_powering_up", "slurm_jobs_nodes_alloc"}


@pytest.mark.parametrize("release", RELEASES)
def test_only_what_slurmctld_lacks(run: Callable[..., Values], release: str) -> None:
    found = {name.partition("{")[0] for name in run(release, "cluster")}
    assert ("slurm_node_gpus" in found) == (release != "26.05")
    assert not found & {"slurm_nodes", "slurm_jobs", "slurm_server_thread_cnt", "slurm_user_jobs"}
    assert found >= {"slurm_jobs_could_start", "slurm_dbd_agent_queue_limit", "slurm_node_drain_since_seconds"}


def test_users_and_accounts(run: Callable[..., Values]) -> None:
    found = run("22.05", "cluster", users_and_accounts=True)
    assert found['slurm_user_jobs_pending{username="alice"}'] == 37
    assert found['slurm_account_jobs_gpus_alloc{account="science"}'] == 1


# -- parts -------------------------------------------------------------------------------------------------------------


def test_drained_and_silent_nodes() -> None:
    line = recorded("24.11" if "24.11" in RELEASES else "22.05", "nodes").split("\n")[1]
    state = re.search(r" State=\S+", line)
    assert state

    def counted(text: str) -> tuple[list[str], Values]:
        (node,) = metric_nodes.read_nodes(line.replace(state[0], f" State={text}") + "\n")
        series = Series()
        metric_nodes.add_faults(series, [node])
        return sorted(node.states), parse(series.text())

    name = line.partition(" ")[0].removeprefix("NodeName=")
    assert counted("IDLE+DRAIN")[0] == ["drain", "drained", "idle"]
    assert counted("ALLOCATED+DRAIN")[0] == ["alloc", "draining"]
    states, faults = counted("DOWN+DRAIN+NOT_RESPONDING+INVALID_REG")
    assert states == ["down", "drain", "drained", "invalid_reg", "noresp"]
    assert faults[f'slurm_node_not_responding{{node="{name}"}}'] == 1
    (down,) = (series for series in faults if series.startswith("slurm_node_down{"))
    assert (f'node="{name}",cause="person"' in down, faults[down]) == (True, 1)
    # slurmd answers, and slurmctld or a person has set the node down.
    assert counted("DOWN")[1] == {down: 1}
    assert counted("IDLE+PLANNED") == (["idle", "planned"], {})


def test_a_job_that_was_cancelled_while_it_waited_has_not_started() -> None:
    def start(state: str) -> int:
        fields = [state, "None", "all,half", "alice", "science", "N/A", "1795817000", "2", "cpu=2,mem=10M"]
        (job,) = metric_jobs.read_jobs(f"{slurm_records.FIELD.join(fields)}{metric_jobs.RECORD}\n")
        assert job.partition == "all"
        return int(job.start)

    assert {state: start(state) for state in ("RUNNING", "TIMEOUT", "COMPLETING")} == dict.fromkeys(
        ("RUNNING", "TIMEOUT", "COMPLETING"), 1795817000
    )
    assert {state: start(state) for state in ("PENDING", "CANCELLED", "DEADLINE")} == dict.fromkeys(
        ("PENDING", "CANCELLED", "DEADLINE"), 0
    )


def test_gpus_of_all_types() -> None:
    def count(text: str) -> int:
        return sum(slurm_records.gpus(text).values())

    assert count("gpu:h100:6(S:0-1),gpu:1g.10gb:7(S:0),shard:32(S:0,1)") == 13
    assert count("gpu:h100:2(IDX:0,3),gpu:a40:1(IDX:5),shard:0") == 3
    assert count("gpu:4,mps:400") == 4
    assert count("(null)") == 0


def test_means_of_nothing_are_zero(metrics: ModuleType) -> None:
    text = recorded("22.05", "sdiag")
    found = metrics.read_sdiag(re.sub(r"^\t.*[Mm]ean.*\n", "", text, flags=re.MULTILINE))
    assert (found["sched_mean_cycle"], found["bf_mean_cycle"], found["bf_depth_mean"]) == (0, 0, 0)
    with pytest.raises(metrics.MetricsError, match="without statistics"):
        metrics.read_sdiag("No data available. Probably slurmctld is not working\n")


# -- the format --------------------------------------------------------------------------------------------------------


def test_promtool_reads_strange_names(metrics: ModuleType) -> None:
    series = Series()
    job = metric_jobs.MetricJob("RUNNING", "", 'p"{}\\', "u\n# x", "a=b c\t,\r", 1, 1, 1, 0.5, 0)
    metric_jobs.add_users_and_accounts(series, [job])
    metrics.add_partitions(series, [], [job])
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=series.text(), capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr  # 3: names that do not follow Prometheus' advice
    broken = subprocess.run(["promtool", "check", "metrics"], input='x{a="b\n"} 1\n', text=True, check=False)
    assert broken.returncode == 1


# -- failures ----------------------------------------------------------------------------------------------------------

FAILED = {
    f'slurm_controller_serving{{controller="{HOST}",place="0"}}': 0,
    "slurm_metrics_cluster_success": 0,
}


def without_times(values: Values) -> Values:
    return {name: value for name, value in values.items() if not name.endswith("_seconds")}


def wait_for_end(pid: int) -> None:
    """Return when a process has ended, which takes a moment after the signal."""
    until = time.monotonic() + 30
    with suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                pytest.fail("a child of the command still runs")
            time.sleep(0.05)


def test_a_command_that_hangs_is_ended_with_its_children(
    run: Any, metrics: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_in: StandIn
) -> None:
    run("22.05", "cluster", "--all")
    monkeypatch.setattr(metrics, "DEADLINE", 2)
    child = tmp_path / "child"
    stand_in("scontrol", f"sleep 1000 & echo $! >{child}; wait")
    begin = time.monotonic()
    assert without_times(run.again("cluster", "--all", status=1)) == FAILED
    assert time.monotonic() - begin < 10
    wait_for_end(int(child.read_text()))


@pytest.mark.parametrize("command", ["scontrol", "sdiag", "squeue"])
def test_a_command_that_fails(run: Any, stand_in: StandIn, command: str) -> None:
    run("22.05", "cluster", "--all")
    stand_in(command, "echo Unable to contact slurm controller >&2; exit 1")
    found = without_times(run.again("cluster", "--all", status=1))
    assert found == {**FAILED, next(iter(FAILED)): float(command != "scontrol")}


def test_an_answer_that_is_none(run: Any, stand_in: StandIn) -> None:
    run("22.05", "cluster", "--all")
    stand_in("scontrol", "echo NodeName=x")
    assert without_times(run.again("cluster", status=1))["slurm_metrics_cluster_success"] == 0


def test_old_values_do_not_stay(run: Any, metrics: ModuleType) -> None:
    assert run("22.05", "cluster", "--all")
    file = Path(metrics.DIRECTORY) / "slurm.prom"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert run.again("cluster", controllers=["others"], status=1) == {}
    run.again("cluster")
    Path(metrics.SETTINGS).write_text("{")
    assert metrics.main(["cluster"]) == 1
    assert not file.exists()


def test_no_link_in_the_directory_is_followed(run: Any, metrics: ModuleType, tmp_path: Path) -> None:
    """Prometheus' user owns the parent directory."""
    directory = Path(metrics.DIRECTORY)
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (directory / ".slurm.prom.new").symlink_to(theirs)
    (directory / "slurm.prom").symlink_to(theirs)
    assert run("22.05", "cluster", "--all")
    assert theirs.read_text() == "theirs"
    assert not (directory / "slurm.prom").is_symlink()
    moved = directory.rename(tmp_path / "moved")
    directory.symlink_to(moved)
    tmp_path.chmod(0o777)
    before = (moved / "slurm.prom").read_bytes()
    assert metrics.main(["cluster"]) == 1
    assert (moved / "slurm.prom").read_bytes() == before


def test_two_runs_at_once(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = run("22.05", "cluster", "--all")
    with open(tmp_path / "run/locks/metrics-cluster", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run.again("cluster", status=1) == before
    assert "lock metrics-cluster: held by process" in capsys.readouterr().err


# -- several controllers -----------------------------------------------------------------------------------------------


@pytest.fixture(name="heartbeat")
def place_that_serves(tmp_path: Path, stand_in: StandIn) -> Callable[[int], None]:
    """A function that writes the place of the controller that serves."""
    stand_in("setpriv", 'shift 2; exec "$@"')  # which wants rights that the tests may not have

    def write(place: int) -> None:
        (tmp_path / "heartbeat").write_bytes(struct.pack(">QQ", 1_795_817_000, place))

    return write


def test_who_serves(run: Any, heartbeat: Callable[[int], None]) -> None:
    heartbeat(1)
    found = run("22.05", "cluster", "--all", controllers=[OTHER, HOST])
    assert found[f'slurm_controller_serving{{controller="{HOST}",place="1"}}'] == 1
    assert found["slurm_nodes"] == 2
    heartbeat(0)
    standby = run.again("cluster", "--all", controllers=[OTHER, HOST])
    assert standby == {f'slurm_controller_serving{{controller="{HOST}",place="1"}}': 0}


@pytest.mark.usefixtures("heartbeat")
@pytest.mark.parametrize("content", [b"", b"short", None])
def test_nobody_knows_who_serves(run: Any, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "heartbeat").write_bytes(content)
    found = run("22.05", "cluster", "--all", controllers=[HOST, OTHER], status=1)
    assert without_times(found) == FAILED


# -- the host ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", sorted(path.name for path in (RECORDED / "apt").iterdir()))
def test_updates_are_those_of_doctor(run: Any, stand_in: StandIn, host: str) -> None:
    place = RECORDED / "apt" / host
    stand_in("dpkg-query", f"cut -d ' ' -f 1,2 {place}/dpkg.txt")
    stand_in("apt-cache", f"[ $# = 1 ] && exec cat {place}/lists.txt; cat {place}/packages.txt")
    found = run.again("host")
    archives = apt_updates.Archives(apt_updates.read_archives((place / "lists.txt").read_text()))
    packages = dpkg.installed((place / "dpkg.txt").read_text())
    offers = apt_updates.read_offers((place / "packages.txt").read_text())
    updates = [apt_updates.find_update(*offers[name], archives) for name in packages if name in offers]
    pending = [update.security == apt_updates.YES for update in updates if update.available]
    assert sum(pending) > 0
    assert found == {
        'gpucluster_updates_pending{kind="security"}': sum(pending),
        'gpucluster_updates_pending{kind="other"}': len(pending) - sum(pending),
    }


@pytest.mark.parametrize(
    ("candidate", "priorities", "kind"),
    [
        ("3", (500, 500), "other"),
        ("3", (100, 100), "other"),
        ("1", (100, 100), ""),
        ("1", (100, 500), "other"),
        ("2", (500, 500), "other"),
    ],
)
def test_versions_that_apt_would_not_install(
    run: Any, stand_in: StandIn, tmp_path: Path, candidate: str, priorities: tuple[int, int], kind: str
) -> None:
    """A version of backports has a low priority; a preference can keep the installed one."""
    rows = "".join(f"     {number} {priority}\n        {priority} x\n" for number, priority in zip("32", priorities))
    text = f"a:\n  Installed: 1\n  Candidate: {candidate}\n  Version table:\n{rows} *** 1 100\n        100 y\n"
    (tmp_path / "policy").write_text(text)
    stand_in("dpkg-query", "echo a installed")
    stand_in("apt-cache", f"[ $# = 1 ] || cat {tmp_path}/policy")
    found = run.again("host")
    assert {name for name, value in found.items() if value} == (
        {f'gpucluster_updates_pending{{kind="{kind}"}}'} if kind else set()
    )


@pytest.fixture(name="no_updates")
def host_without_updates(stand_in: StandIn) -> None:
    for name in ("dpkg-query", "apt-cache"):
        stand_in(name, "true")


@pytest.mark.usefixtures("no_updates")
def test_keys_daemons_and_backup(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_in: StandIn) -> None:
    key, record = tmp_path / "munge.key", tmp_path / "status.json"
    key.write_text("x")
    os.utime(key, (1_700_000_000, 1_700_000_000))
    monkeypatch.setattr(metric_host, "BACKUP", str(record))
    stand_in("systemctl", "printf 'ActiveState=active\\n\\nActiveState=failed\\n\\nActiveState=reloading\\n'")
    settings = {
        "keys": {"munge": str(key), "slurmctld_http": str(tmp_path / "none")},
        "key_max_age_days": 90,
        "daemons": ["munge", "slurmd", "mariadb"],
        "backup": {"max_age_hours": 48},
    }
    expected = {
        'gpucluster_key_time_seconds{key="munge"}': 1_700_000_000,
        "gpucluster_key_max_age_seconds": 7_776_000,
        'gpucluster_daemon_up{daemon="munge"}': 1,
        'gpucluster_daemon_up{daemon="slurmd"}': 0,
        'gpucluster_daemon_up{daemon="mariadb"}': 1,
        "gpucluster_backup_max_age_seconds": 172800,
        'gpucluster_updates_pending{kind="security"}': 0,
        'gpucluster_updates_pending{kind="other"}': 0,
    }
    assert run.again("host", **settings) == {**expected, "gpucluster_backup_last_seconds": 0}
    record.write_text('{"succeeded": 1700000123, "tried": 1700000200, "error": "no space"}')
    assert run.again("host", **settings) == {**expected, "gpucluster_backup_last_seconds": 1_700_000_123}
    record.write_text("[")
    assert run.again("host", **settings) == {**expected, "gpucluster_backup_last_seconds": 0}


@pytest.mark.usefixtures("no_updates")
def test_what_is_not_known_has_no_series(run: Any, stand_in: StandIn) -> None:
    stand_in("systemctl", "exit 1")
    found = run.again("host", daemons=["munge"], status=1)
    assert set(found) == {'gpucluster_updates_pending{kind="security"}', 'gpucluster_updates_pending{kind="other"}'}
    stand_in("apt-cache", "echo E: broken lists >&2; exit 100")
    assert run.again("host", status=1) == {}


# -- the names of other dashboards -------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_all_names_exist_on_each_release(run: Callable[..., Values], release: str) -> None:
    assert {*NAMES} <= run(release, "cluster").keys()


def test_prometheus_takes_the_names_from_slurm_metrics_alone() -> None:
    """slurmctld has some of them as well, with other meanings."""
    text = (ROLES / "slurm_metrics/templates/prometheus.yml.j2").read_text()
    (dropped,) = re.findall(r"regex: slurm_nodes_\((.*)\), action: drop", text)
    of_slurmctld = {name for name in parse(recorded("26.05", "endpoint")) if name.startswith("slurm_nodes_")}
    assert {f"slurm_nodes_{name}" for name in dropped.split("|")} == {
        f"slurm_nodes_{name}" for name in metric_nodes.SHOWN
    } & of_slurmctld


def nodes_in(*states: str, reason: str = "") -> list[Any]:
    """Nodes of four CPUs and two GPUs, one in each state; those that can have jobs have one with a CPU and a GPU."""
    lines = [
        f"NodeName=n{number} CPUAlloc={used} CPUEfctv=4 CPUTot=4 Gres=gpu:a:2(S:0) GresUsed=gpu:a:{used}(IDX:0) "
        f"RealMemory=10 AllocMem=0 FreeMem=5 State={state} Partitions=all{reason and f' Reason={reason}'}"
        for number, state in enumerate(states, 1)
        for used in [int(state.startswith(("MIXED", "ALLOCATED")))]
    ]
    return list(metric_nodes.read_nodes("\n".join(lines)))


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        *[("IDLE", "idle"), ("IDLE+CLOUD+POWERED_DOWN", "idle"), ("IDLE+RESERVED+NOT_RESPONDING", "idle")],
        *[("IDLE+DRAIN", "drain"), ("MIXED+DRAIN", "drain"), ("DOWN+DRAIN+NOT_RESPONDING", "drain")],
        *[("IDLE+RESERVED", "resv"), ("IDLE+MAINTENANCE", "maint"), ("IDLE+MAINTENANCE+RESERVED", "maint")],
        *[("DOWN+MAINTENANCE", "down"), ("MIXED+MAINTENANCE", "mix"), ("IDLE+MAINTENANCE+DRAIN", "drain")],
        *[("IDLE+PLANNED", ""), ("MIXED+PLANNED", "mix"), ("IDLE+BLOCKED", ""), ("FUTURE", ""), ("UNKNOWN", "")],
        *[("IDLE+COMPLETING", "comp"), ("ALLOCATED+COMPLETING", "alloc"), ("MIXED+COMPLETING", "comp")],
        *[("IDLE+FAIL", "fail"), ("MIXED+FAIL", "fail"), ("IDLE+INVALID_REG+DRAIN", "err"), ("MIXED+RESERVED", "mix")],
        *[("IDLE+REBOOT_REQUESTED", ""), ("DOWN+REBOOT_ISSUED+NOT_RESPONDING", ""), ("MIXED+REBOOT_REQUESTED", "mix")],
    ],
)
def test_a_node_has_the_state_that_sinfo_shows(state: str, shown: str) -> None:
    """`node_state_string`; the lab compares them with sinfo."""
    (node,) = nodes_in(state)
    assert node.shown == shown


def test_each_node_and_each_task_counts_once(metrics: ModuleType) -> None:
    nodes = nodes_in("IDLE", "IDLE+DRAIN", "IDLE+RESERVED", "IDLE+MAINTENANCE", "MIXED+DRAIN", "DOWN", "MIXED")
    fields = ["CANCELLED", "None", "all", "alice", "science", "1-10", "0", "1", ""]
    jobs = metric_jobs.read_jobs(f"{slurm_records.FIELD.join(fields)}{metric_jobs.RECORD}\n")
    series = Series()
    metrics.add_names(series, nodes, jobs, dict.fromkeys(metrics.SDIAG.values(), 0))
    found = parse(series.text())
    shown = {name: found[f"slurm_nodes_{name}"] for name in metric_nodes.SHOWN if found[f"slurm_nodes_{name}"]}
    assert shown == {"idle": 1, "drain": 2, "resv": 1, "maint": 1, "down": 1, "mix": 1}
    assert found['slurm_partition_nodes_shown_idle{partition="all"}'] == 1
    assert found["slurm_queue_cancelled"] == 10
    units = {name: [found[f"slurm_{unit}_{name}"] for unit in ("cpus", "gpus")] for name in UNITS}
    assert units == {"alloc": [2, 2], "idle": [15, 7], "other": [11, 5], "total": [28, 14]}


# -- nodes that are out by order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", "power"),
        ("DOWN+CLOUD+POWERED_DOWN+NOT_RESPONDING", "power"),
        ("DOWN+CLOUD+POWERING_DOWN+NOT_RESPONDING", "power"),
        ("IDLE+REBOOT_ISSUED+NOT_RESPONDING", "reboot"),
        ("IDLE+MAINTENANCE+REBOOT_ISSUED+NOT_RESPONDING", "reboot"),
    ],
)
def test_a_node_that_is_not_meant_to_answer_has_no_fault(state: str, why: str) -> None:
    series = Series()
    metric_nodes.add_faults(series, nodes_in(state))
    assert parse(series.text()) == {f'slurm_node_planned_outage{{node="n1",why="{why}"}}': 1}


def test_a_node_that_did_not_come_back_has_one() -> None:
    series = Series()
    metric_nodes.add_faults(series, nodes_in("DOWN+CLOUD+POWERED_DOWN", reason="ResumeTimeout reached [slurm@170]"))
    assert parse(series.text()) == {
        'slurm_node_down{node="n1",cause="reboot-timeout",reason="ResumeTimeout reached"}': 1
    }


def test_what_the_health_check_has_found_is_in_the_series() -> None:
    series = Series()
    reason = "health check filesystems: /home is not mounted; disk: full [root@170]"
    metric_nodes.add_faults(series, nodes_in("IDLE+DRAIN", reason=reason))
    labels = 'node="n1",cause="health-check",finding="check-filesystems"'
    assert [*parse(series.text())] == [f"slurm_node_drain_since_seconds{{{labels}}}"]


def test_a_cloud_node_that_is_up_and_silent_has_one() -> None:
    series = Series()
    metric_nodes.add_faults(series, nodes_in("ALLOCATED+CLOUD+NOT_RESPONDING"))
    assert parse(series.text()) == {'slurm_node_not_responding{node="n1"}': 1}


def test_a_maintenance_is_announced_and_hides_no_fault() -> None:
    series = Series()
    metric_nodes.add_faults(series, nodes_in("DOWN+MAINTENANCE+NOT_RESPONDING", reason="cables [root@170]"))
    assert parse(series.text()) == {
        'slurm_node_planned_outage{node="n1",why="maintenance"}': 1,
        'slurm_node_down{node="n1",cause="person",reason="cables"}': 1,
        'slurm_node_not_responding{node="n1"}': 1,
    }
