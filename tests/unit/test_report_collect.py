# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program slurm-report of role slurm_report: what it collects, with answers of three releases of Slurm."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import commands, drains, environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.program_files import sent
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor import causes
from programs import StandIn
from report_programs import RELEASES, RESERVATIONS, config, jobs, program, put_commands

pytestmark = pytest.mark.once

Data = dict[str, Any]
Collect = Callable[..., Data]


@pytest.fixture(name="report")
def of_role(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module that collects, with directories of the test."""
    module: ModuleType = program()
    state = tmp_path / "state"
    state.mkdir()
    values = {
        "STATE": state,
        "BACKUP": tmp_path / "status.json",
        "SETTINGS": tmp_path / "report.json",
        "MAINTENANCE": tmp_path / "maintenance.json",
        "GPU_HOURS": str(tmp_path / "stand-ins/slurm-gpu-hours"),
        "REPAIR": str(tmp_path / "stand-ins/slurm-repair"),
    }
    for name, value in values.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.fixture(name="collected")
def with_stand_ins(report: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_in: StandIn) -> Collect:
    """A function that collects from the commands of a release."""
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", os.environ["PATH"])

    def run(release: str, settings: Data | None = None, **texts: str) -> Data:
        put_commands(stand_in, tmp_path, release, texts)
        found: Data = report.collect({"causes": causes.reason_table(), **(settings or {})}, report.STATE / "hosts.json")
        return found

    return run


def by(rows: list[Data], key: str) -> dict[str, Data]:
    """Rows by one of their values."""
    return {row[key]: row for row in rows}


def iso(seconds: int) -> str:
    """A time as the data have it."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat()


# -- recorded answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_data_of_a_release(collected: Collect, release: str) -> None:
    data = collected(release)
    assert data["version"] == 1
    assert (data["cluster"], data["release"][:5]) == (f"release-{release[:2]}", release)
    assert data["private"] == []
    assert data["controllers"] == [{"name": f"ctl{release[:2]}", "place": 0, "answers": True, "serves": True}]
    assert [row["part"] for row in data["missing"]] == ["usage.idle_gpu_hours", "hosts", "validation"]
    nodes = by(data["nodes"], "name")
    assert sorted(nodes) == ["cpu01", "gpu01", "gpu02", "gpu03", "gpu04", "gpu05", "gpu06"]
    assert nodes["cpu01"] == {
        "name": "cpu01",
        "state": "IDLE",
        "partitions": ["cpu"],
        "cpus": 8,
        "cpus_allocated": 0,
        "memory": 2000,
        "memory_allocated": 0,
        "gpus": [],
        "features": [],
    }
    assert nodes["gpu01"]["gpus"] == [
        {"type": "a100", "count": 2, "allocated": 2},
        {"type": "t4", "count": 2, "allocated": 2},
    ]
    assert nodes["gpu01"]["partitions"] == ["main", "short-jobs-of-all-groups"]


@pytest.mark.parametrize("release", RELEASES)
def test_jobs_of_a_release(collected: Collect, release: str) -> None:
    found = by(collected(release)["jobs"], "id")
    recorded = by(jobs(release), "JobID")
    waiting = found["9"]
    assert (waiting["start"], waiting["expected_start"]) == (None, iso(int(recorded["9"]["StartTime"])))
    assert waiting["time_limit"] == 1800
    assert waiting["gpus"] == [{"type": "h100", "count": 4}]
    assert waiting["reason"] == "QOSMaxGRESPerUser"
    assert waiting["priority"] == 4294901760
    assert waiting["nodes"] == ""
    array = found["10_[1-20%2]"]
    assert (array["array_tasks"], array["name"]) == (20, "job 10")
    running = found["1"]
    assert (running["start"], running["expected_start"]) == (iso(int(recorded["1"]["StartTime"])), None)
    assert (running["nodes"], running["reason"], running["array_tasks"]) == ("gpu01", "", 1)
    assert sum(gpu["count"] for gpu in running["gpus"]) == 2
    assert len(found) == len(recorded)


@pytest.mark.parametrize("release", RELEASES)
def test_drained_nodes_have_the_words_of_doctor(collected: Collect, release: str) -> None:
    (drained,) = [row for row in collected(release)["drains"] if "gpu05" in row["nodes"]]
    assert "DRAIN" in drained["state"]
    assert drained["since"] is not None
    assert drained["cause"] == "person"
    assert drained["meaning"] == "A person has drained the node."
    assert drained["remedy"] == "Ask who has drained it."


def node(name: str, state: str, reason: str) -> str:
    """A line of scontrol."""
    return (
        f"NodeName={name} CPUAlloc=0 CPUEfctv=2 CPUTot=2 Gres=(null) RealMemory=2000 AllocMem=0 FreeMem=N/A"
        f" State={state} Partitions=all CfgTRES=cpu=2 Reason={reason}\n"
    )


def test_equal_drains_are_one_row(collected: Collect) -> None:
    reason = "health check gpu: no GPU [root@1795819491]"
    nodes = "".join(node(f"n{number}", "IDLE+DRAIN", reason) for number in (1, 2, 4))
    nodes += node("n3", "DOWN+NOT_RESPONDING", "Not responding [slurm@1795819492]")
    first, second = collected("24.11", nodes=nodes)["drains"]
    assert (first["nodes"], first["by"], first["reason"]) == ("n[1-2,4]", "root", "health check gpu: no GPU")
    assert (first["cause"], first["since"]) == ("health-check", iso(1795819491))
    assert (second["nodes"], second["cause"]) == ("n3", "unknown")


@pytest.mark.parametrize("release", RELEASES)
def test_use_of_a_release(collected: Collect, release: str) -> None:
    tracked = config(release, AccountingStorageType="accounting_storage/slurmdbd", AccountingStorageTRES="cpu,gres/gpu")
    data = collected(release, config=tracked)
    usage = data["usage"]
    why = "idle GPU hours are known on controllers of a cluster with the key monitoring"
    assert {"part": "usage.idle_gpu_hours", "why": why} in data["missing"]
    today = date.today()
    assert [day["day"] for day in usage["days"]] == [str(today - timedelta(count)) for count in range(30, 0, -1)]
    assert usage["since"].startswith(str(today - timedelta(30)))
    assert usage["until"].startswith(f"{today}T00:00:00")
    assert usage["days"][0] == {
        "day": str(today - timedelta(30)),
        "cpu_hours": 10.0,
        "gpu_hours": 2.0,
        "idle_gpu_hours": None,
    }
    assert usage["users"] == [
        {
            "account": account,
            "user": user,
            "cpu_hours": cpu,
            "gpu_hours": gpu,
            "idle_gpu_hours": None,
            "fairshare": share,
        }
        for account, user, cpu, gpu, share in (
            ("chemistry", "bob", 0.5, 0.0, None),
            ("physics", "alice", 2.0, 1.0, 0.75),
        )
    ]


def test_the_user_of_the_own_jobs_is_no_user_of_the_cluster(collected: Collect) -> None:
    """The sums of days are those of sreport, with all users."""
    tracked = config("24.11", AccountingStorageType="accounting_storage/slurmdbd", AccountingStorageTRES="cpu,gres/gpu")
    usage = collected("24.11", settings={"job_user": "bob"}, config=tracked)["usage"]
    assert [row["user"] for row in usage["users"]] == ["alice"]
    assert usage["days"][0]["cpu_hours"] == 10.0


def test_gpu_hours_are_unknown_where_slurm_does_not_account_for_gpus(collected: Collect) -> None:
    plain = config("24.11", AccountingStorageType="accounting_storage/slurmdbd", AccountingStorageTRES="cpu,mem")
    data = collected("24.11", config=plain)
    assert {day["gpu_hours"] for day in data["usage"]["days"]} == {None}
    assert [row["part"] for row in data["missing"]] == ["hosts", "validation"]


def test_idle_gpu_hours(collected: Collect, stand_in: StandIn) -> None:
    yesterday = str(date.today() - timedelta(1))
    rows = [
        {"account": "physics", "user": "alice", "day": yesterday, "idle_hours": 0.25},
        {"account": "physics", "user": "alice", "day": str(date.today() - timedelta(2)), "idle_hours": 0.5},
    ]
    stand_in("slurm-gpu-hours", f"echo '{json.dumps({'rows': rows})}'")
    tracked = config("24.11", AccountingStorageType="accounting_storage/slurmdbd", AccountingStorageTRES="cpu,gres/gpu")
    usage = collected("24.11", config=tracked)["usage"]
    assert usage["days"][-1]["idle_gpu_hours"] == 0.25
    assert usage["days"][0]["idle_gpu_hours"] == 0
    assert by(usage["users"], "user")["alice"]["idle_gpu_hours"] == 0.75
    assert by(usage["users"], "user")["bob"]["idle_gpu_hours"] == 0


def test_a_cluster_without_slurmdbd(collected: Collect) -> None:
    data = collected("24.11", config=config("24.11", AccountingStorageType="(null)"))
    assert data["usage"] is None
    assert {"part": "usage", "why": "the cluster has no slurmdbd"} in data["missing"]


def test_maintenance(collected: Collect) -> None:
    assert collected("26.05")["maintenance"] == [
        {
            "name": "week",
            "start": iso(1795900000),
            "end": iso(1795903600),
            "nodes": "gpu[01-02]",
            "message": "new switch, Flags=no",
        }
    ]
    assert collected("26.05", reservations="No reservations in the system\n")["maintenance"] == []


def test_the_message_of_the_playbook_maintenance(collected: Collect, report: ModuleType) -> None:
    line = RESERVATIONS.replace("=week", "=gpucluster_maintenance").replace(" Comment=new switch, Flags=no", "")
    assert collected("24.11", reservations=line)["maintenance"][0]["message"] == ""
    report.MAINTENANCE.write_text(json.dumps({"name": "gpucluster_maintenance", "message": "It's <b>\nnew"}))
    assert collected("22.05", reservations=line)["maintenance"][0]["message"] == "It's <b>\nnew"
    # The message of an earlier maintenance is not that of another reservation.
    assert collected("24.11")["maintenance"][0]["message"] == "new switch, Flags=no"


ALERT = {
    "labels": {"alertname": "SlurmNodeDrained", "severity": "ticket", "node": "n1"},
    "annotations": {"summary": "n1 has been drained for 4h 0m 0s (person)", "remedy": "x"},
    "state": "firing",
    "activeAt": "2026-11-29T04:00:00.123456789Z",
    "value": "1.4e+04",
}


def test_alerts_that_fire(collected: Collect) -> None:
    """Prometheus is a stand-in: an answer in the form of its API, `/api/v1/alerts`."""
    asked = []

    class Prometheus(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            answer = {"status": "success", "data": {"alerts": [ALERT, {**ALERT, "state": "pending"}]}}
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Prometheus) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        data = collected("24.11", settings={"prometheus": url, "links": [{"title": "Prometheus", "url": url}]})
        server.shutdown()
    assert asked == ["/api/v1/alerts"]
    alert = {"name": "SlurmNodeDrained", "severity": "ticket", "since": "2026-11-29T04:00:00Z"}
    assert data["alerts"] == [{**alert, "text": "n1 has been drained for 4h 0m 0s (person)"}]
    assert data["links"] == [{"title": "Prometheus", "url": url}]
    gone = collected("24.11", settings={"prometheus": url})
    assert gone["alerts"] is None
    (why,) = (row["why"] for row in gone["missing"] if row["part"] == "alerts")
    assert why.startswith(f"{url} does not answer:")
    without = collected("24.11")
    assert (without["alerts"], [row for row in without["missing"] if row["part"] == "alerts"]) == (None, [])


CASE = {
    "number": 12,
    "node": "gpu03",
    "state": "saved",
    "finding": "xid-79",
    "text": "GPU lost",
    "next": "drain (reboot)",
    "why": "",
    "held": "",
}


def test_open_cases(collected: Collect, stand_in: StandIn) -> None:
    answer = json.dumps([{**CASE, "opened": 1795819491.5, "since": 1795819551, "more": 1}])
    stand_in("slurm-repair", f"test \"$*\" = 'list --json' && echo '{answer}'")
    data = collected("24.11", settings={"cases": True})
    assert data["cases"] == [{**CASE, "opened": iso(1795819491), "since": iso(1795819551)}]
    without = collected("24.11", settings={"cases": False})
    assert (without["cases"], [row for row in without["missing"] if row["part"] == "cases"]) == (None, [])


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'slurm-repair: slurmctld does not answer' >&2; exit 1", "slurmctld does not answer"),
        ("echo '[{}]'", "an answer was not understood: KeyError"),
        ("echo case", "an answer was not understood: JSONDecodeError"),
    ],
)
def test_cases_that_could_not_be_had(collected: Collect, stand_in: StandIn, script: str, why: str) -> None:
    stand_in("slurm-repair", script)
    data = collected("24.11", settings={"cases": True})
    assert data["cases"] is None
    (found,) = (row["why"] for row in data["missing"] if row["part"] == "cases")
    assert why in found


@pytest.mark.parametrize(
    ("used", "allocated"),
    [
        ("gpu:h100:1(IDX:0),shard:h100:3(0/4,2/4,1/4,0/4)", 3),
        ("gpu:h100:1(IDX:0),shard:h100:3(-/4,2/4,1/4,0/4)", 3),
        ("gpu:h100:1(IDX:0),shard:h100:2(IDX:2-3)", 3),
        ("gpu:h100:0(IDX:N/A),mps:h100:50(50/100,0/100,0/100,0/100)", 1),
        ("gpu:h100:4(IDX:0-3),shard:0", 4),
    ],
)
def test_a_gpu_of_which_jobs_have_shares_is_in_use(collected: Collect, used: str, allocated: int) -> None:
    line = node("n1", "MIXED", "x [root@1]").replace("Gres=(null)", f"Gres=gpu:h100:4,shard:h100:16 GresUsed={used}")
    assert collected("24.11", nodes=line)["nodes"][0]["gpus"] == [{"type": "h100", "count": 4, "allocated": allocated}]


@pytest.mark.parametrize(
    ("alloc", "asked", "shares"),
    [
        ("cpu=1,node=1,gres/shard=2,gres/shard:h100=2", "", [("shard", "h100", 2)]),
        ("cpu=1,node=1,gres/shard=2", "gres/shard:h100:2", [("shard", "", 2)]),
        ("cpu=2,mem=1G,node=2,billing=2", "gres/shard:2", [("shard", "", 4)]),
        ("cpu=2,mem=1G,node=1", "gres:mps:50", [("mps", "", 50)]),
        ("cpu=1,node=1,gres/gpu=2", "gres/gpu:2", []),
    ],
)
def test_shares_of_a_job(alloc: str, asked: str, shares: list[tuple[str, str, int]]) -> None:
    fields = dict.fromkeys(program().JOB_FIELDS, "") | {"tres-alloc": alloc, "tres-per-node": asked}
    found = program().shares_of_job(fields)
    assert [(share["kind"], share["type"], share["count"]) for share in found] == shares


def test_private_data_and_several_controllers(collected: Collect) -> None:
    text = config("24.11", PrivateData="jobs,usage").replace(
        "SlurmctldHost[0]        = ctl24(127.0.0.1)", "SlurmctldHost[0]  = one\nSlurmctldHost[1]  = two(10.0.0.2)"
    )
    text = (
        text.partition("Slurmctld(primary)")[0] + "Slurmctld(primary) at one is DOWN\nSlurmctld(backup) at two is UP\n"
    )
    data = collected("24.11", config=text)
    assert data["private"] == ["jobs", "usage"]
    assert data["controllers"] == [
        {"name": "one", "place": 0, "answers": False, "serves": False},
        {"name": "two", "place": 1, "answers": True, "serves": True},
    ]


# -- names that users give ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "two\nlines",
        "a|b,c:0",
        "x\x1f99\x1fN/A\x1froot",
        "x\x1e\n99\x1fN/A\x1froot\x1f\x1fall\x1fRUNNING" + "\x1f" * 13,
        "<script>alert(1)</script>",
        "\x1b[31mred",
    ],
)
def test_a_name_of_a_job_makes_no_other_job(collected: Collect, name: str) -> None:
    rows = [{**row, "Name": name} for row in jobs("24.11")]
    found = collected("24.11", squeue=json.dumps(rows))["jobs"]
    assert [row["name"] for row in found] == [name] * len(rows)
    assert {row["user"] for row in found} == {row["UserName"] for row in rows}


def test_a_reason_makes_no_other_node(collected: Collect) -> None:
    reason = "State=IDLE NodeName=fake Gres=gpu:8 [root@1795819491]\nsecond line\n NodeName=n9 State=DOWN"
    data = collected("24.11", nodes=node("n1", "IDLE+DRAIN", reason))
    assert [row["name"] for row in data["nodes"]] == ["n1"]
    assert data["nodes"][0]["gpus"] == []
    assert data["drains"][0]["reason"] == "State=IDLE NodeName=fake Gres=gpu:8"


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alloc", "asked", "gpus"),
    [
        ("cpu=1", "N/A", {}),
        ("cpu=1,gres/gpu=4,gres/gpu:h100=4", "N/A", {"h100": 4}),
        ("cpu=1,gres/gpu=4,gres/gpu:h100=3", "N/A", {"h100": 3, "": 1}),
        ("cpu=1,gres/gpu=4", "gres/gpu:h100:2", {"h100": 4}),
        ("cpu=1,gres/gpu=4", "gres/gpu:h100:2,gres/gpu:t4:2", {"": 4}),
        ("cpu=1,gres/gpu=4", "gres/gpu:4", {"": 4}),
    ],
)
def test_gpus_of_a_job(alloc: str, asked: str, gpus: dict[str, int]) -> None:
    fields = dict.fromkeys(program().JOB_FIELDS, "N/A") | {"tres-alloc": alloc, "tres-per-node": asked}
    assert {row["type"]: row["count"] for row in program().gpus_of_job(fields)} == gpus


def test_long_ids_are_shortened() -> None:
    long = f"12_[{','.join(map(str, range(1, 200, 2)))}]"
    assert program().shorten_id("12_[3-9]") == "12_[3-9]"
    assert len(program().shorten_id(long)) < 70
    assert program().shorten_id(long).endswith(",...]")


BEGINNINGS = [*drains.OWNERS, *drains.OF_SLURM, "reboot timed out", "reboot requested", "reboot complete", "bad fan"]


@pytest.mark.parametrize("user", ["root", "slurm", "alice"])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_causes_are_those_of_doctor(beginning: str, user: str) -> None:
    reason = f"{beginning}: more"
    expected = causes.by_reason(reason, drains.owner(reason, user))
    found = program().find_cause(reason, user, causes.reason_table())
    assert found == {"cause": expected.name, "meaning": expected.means, "remedy": expected.remedy}


def test_without_the_words_of_doctor() -> None:
    assert program().find_cause("bad fan", "root", {}) == {"cause": "", "meaning": "", "remedy": ""}


# -- commands that fail ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("collected")
def test_slurmctld_does_not_answer(stand_in: StandIn, report: ModuleType, tmp_path: Path) -> None:
    put_commands(stand_in, tmp_path, "24.11")
    error = "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"
    stand_in("scontrol", f"echo '{error}' >&2; exit 1")
    stand_in("squeue", f"touch {tmp_path}/asked")
    data = report.collect({})
    why = f"slurmctld does not answer: scontrol: {error}"
    for part in (*report.OF_SLURMCTLD, "usage"):
        assert data[part] is None
        assert {"part": part, "why": why} in data["missing"]
    assert not (tmp_path / "asked").exists()


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(
    ("command", "part"),
    [("squeue", "jobs"), ("sreport", "usage"), ("sshare", "usage.fairshare")],
)
@pytest.mark.parametrize("script", ["exit 1", "sleep 100", "exec sleep 100 & sleep 100", ""])
def test_a_command_fails_or_hangs(
    stand_in: StandIn,
    report: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    part: str,
    script: str,
) -> None:
    put_commands(stand_in, tmp_path, "24.11")
    if script:
        stand_in(command, script)
    else:
        (tmp_path / "stand-ins" / command).unlink()
    monkeypatch.setattr(commands, "SECONDS", 2)
    path = f"{tmp_path}/stand-ins:/bin" if script else f"{tmp_path}/stand-ins"
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", path)
    if not script:  # Slurm's own commands may be on this machine
        for name in ("sleep", "cat"):
            stand_in(name, f'exec /bin/{name} "$@"')
    start = time.monotonic()
    data = report.collect({})
    assert time.monotonic() - start < 20
    lacking = {row["part"] for row in data["missing"]} - {"hosts", "validation", "usage.idle_gpu_hours"}
    assert lacking == {part}
    if command == "sshare":
        assert data["usage"]["users"][0]["fairshare"] is None
    else:
        assert data[part] is None
    assert data["nodes"]


def test_an_answer_that_is_no_answer(collected: Collect) -> None:
    data = collected("24.11", nodes="NodeName=n1 strange\n")
    assert data["nodes"] is None
    assert data["drains"] is None
    assert "an answer was not understood: KeyError" in data["missing"][0]["why"]


# -- files -------------------------------------------------------------------------------------------------------------


def test_what_others_have_left(collected: Collect, report: ModuleType) -> None:
    hosts = {"checked": "2026-11-27T10:00:00+01:00", "hosts": [{"name": "n1", "reached": False, "differences": []}]}
    left = {"hosts": hosts, "versions": [], "updates": [], "backup": [{"host": "head", "ok": False}, {"host": "db"}]}
    (report.STATE / "hosts.json").write_text(json.dumps(left))
    validation = {"finished": "2026-11-27T10:00:00+01:00", "ok": True, "passed": 4, "failed": 0, "waiting": 0}
    (report.STATE / "validation.json").write_text(json.dumps(validation | {"more": 1}))
    report.BACKUP.write_text(json.dumps({"succeeded": 1795819491, "tried": 1795819491, "error": ""}))
    data = collected("24.11", {"host": "head", "interval": 300})
    assert data["interval"] == 300
    assert [row["part"] for row in data["missing"]] == ["usage.idle_gpu_hours"]
    assert data["hosts"] == hosts
    assert data["validation"] == validation
    own = {"host": "head", "finished": iso(1795819491), "ok": True, "text": ""}
    assert data["backup"] == [{"host": "db"}, own]


def runs(*days: int) -> list[Data]:
    """Runs of accept.yml on these days of a month."""
    return [{"finished": f"2026-11-{day:02}T10:00:00+00:00", "ok": True, "values": []} for day in days]


def test_runs_of_accept(collected: Collect, report: ModuleType) -> None:
    # Without a run there is none: nothing is missing.
    data = collected("24.11")
    assert data["acceptance"] == []
    assert "acceptance" not in [row["part"] for row in data["missing"]]
    (report.STATE / "acceptance.json").write_text(json.dumps({"runs": runs(27, 25)}))
    assert collected("24.11")["acceptance"] == runs(27, 25)
    # Other control hosts know other runs.
    (report.STATE / "hosts.json").write_text(json.dumps({"acceptance": runs(26, 25)}))
    assert collected("24.11")["acceptance"] == runs(27, 26, 25)
    (report.STATE / "acceptance.json").write_text(json.dumps({"runs": runs(*range(1, 29)) * 9}))
    assert collected("24.11")["acceptance"] == runs(*range(28, 0, -1))


def test_the_newest_runs_of_several_lists() -> None:
    module = program()
    many = [{"finished": f"2026-11-28T10:{minute:02}:00+00:00"} for minute in range(60)]
    assert module.newest_runs(many[:40], None, many[30:], ["x", None]) == many[::-1][:50]
    assert module.newest_runs("x", [{}]) == [{}]


@pytest.mark.parametrize("text", ["[]", '{"more": 1}', "7"])
def test_runs_of_another_form_are_missing(collected: Collect, report: ModuleType, text: str) -> None:
    (report.STATE / "acceptance.json").write_text(text)
    data = collected("24.11")
    if text == "[]":  # as a file without content
        assert data["acceptance"] == []
    else:
        assert data["acceptance"] is None
        assert "acceptance" in [row["part"] for row in data["missing"]]


@pytest.mark.parametrize(
    ("status", "ok", "text"),
    [
        ({"succeeded": 1, "tried": 2, "error": "disk full"}, False, "disk full"),
        ({"tried": 2, "error": ""}, False, "there is no backup yet"),
        ({"succeeded": 2.7, "tried": 2.7}, True, ""),
    ],
)
def test_backups(status: Data, ok: bool, text: str) -> None:
    found = program().read_backup(status, "db")
    assert (found["ok"], found["text"], found["finished"]) == (ok, text, iso(2))


@pytest.mark.parametrize("name", ["hosts.json", "validation.json", "acceptance.json", "usage.json"])
def test_a_file_that_is_no_json(collected: Collect, report: ModuleType, name: str) -> None:
    (report.STATE / name).write_text("{")
    data = collected("24.11", {"keep": True})
    why = [row["why"] for row in data["missing"] if row["part"] == name.removesuffix(".json")]
    assert any(text.startswith(f"{report.STATE / name} cannot be read: ") for text in why)


def test_the_use_is_asked_once_an_hour(collected: Collect, report: ModuleType, stand_in: StandIn) -> None:
    first = collected("24.11", {"keep": True})
    kept = report.STATE / "usage.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    stand_in("sreport", "exit 1")
    again = report.collect({"keep": True})
    assert again["usage"] == first["usage"]
    old = json.loads(kept.read_text())
    kept.write_text(json.dumps(old | {"asked": old["asked"] - 4000}))
    assert report.collect({"keep": True})["usage"] is None
    kept.write_text(json.dumps(old | {"of": ["other", *old["of"][1:]]}))
    assert report.collect({"keep": True})["usage"] is None


# -- size and ways to run it -------------------------------------------------------------------------------------------


def test_50000_jobs_take_seconds(collected: Collect) -> None:
    rows = (jobs("24.11") * 3000)[:50000]
    nodes = "".join(node(f"n{number:04}", "IDLE", "(null)") for number in range(2000))
    texts = {"squeue": json.dumps(rows), "nodes": nodes}
    start = time.monotonic()
    data = collected("24.11", **texts)
    assert len(data["jobs"]) == 50000
    assert len(data["nodes"]) == 2000
    assert time.monotonic() - start < 30
    packed = program().pack(data)
    assert len(packed) < 2**22  # what a host may answer


def test_it_runs_from_standard_input(tmp_path: Path, stand_in: StandIn) -> None:
    """As report.yml runs it on a controller."""
    path = '"PATH": "/usr/local/sbin'
    text = sent("programs.report_collector")
    assert path in text
    text = text.replace(path, f'"PATH": "{tmp_path}/stand-ins:/usr/local/sbin')
    put_commands(stand_in, tmp_path, "24.11")
    settings = json.dumps({"causes": causes.reason_table()})
    command = ["/usr/bin/python3", "-I", "-", "--packed", "--settings", settings]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    data = json.loads(gzip.decompress(base64.b64decode(done.stdout)))
    assert data["cluster"] == "release-24"


@pytest.fixture(name="command")
def with_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The command slurm-report, with pages that show the data as they are."""
    module: ModuleType = program("slurm_report")

    def write_pages(data: Data, directory: Path) -> None:
        for name in ("index.html", "admin.html"):
            (directory / name).write_text(f"{name} {data['cluster']} {data['missing']}")

    monkeypatch.setattr(module, "write_pages", write_pages)
    pages = tmp_path / "pages"
    (pages / "admin").mkdir(parents=True)
    monkeypatch.setattr(module, "PAGES", pages)
    return module


@pytest.mark.usefixtures("collected")
def test_update(command: ModuleType, stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_commands(stand_in, tmp_path, "24.11")
    old = tmp_path / "pages/admin/.index.html.new"
    old.write_text("of a killed run")
    assert command.main(["update"]) == 0
    index, admin = tmp_path / "pages/index.html", tmp_path / "pages/admin/index.html"
    assert index.read_text().startswith("index.html release-24")
    assert admin.read_text().startswith("admin.html release-24")
    assert not old.exists()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (index, admin)} == {0o640}
    assert "validation: no run of validate has left its result here" in capsys.readouterr().out
    with command.alone() as first:
        assert first
        assert command.main(["update"]) == 0
    assert "another run makes the pages" in capsys.readouterr().out


@pytest.mark.usefixtures("collected")
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file another group")
def test_an_update_by_hand_leaves_the_pages_to_nginx(command: ModuleType, stand_in: StandIn, tmp_path: Path) -> None:
    put_commands(stand_in, tmp_path, "24.11")
    index = tmp_path / "pages/index.html"
    index.write_text("of the timer")
    os.chown(index, 0, 12345)
    before = os.umask(0o077)
    try:
        assert command.main(["update"]) == 0
    finally:
        os.umask(before)
    assert (index.stat().st_gid, stat.S_IMODE(index.stat().st_mode)) == (12345, 0o640)


@pytest.mark.usefixtures("collected")
def test_pages(command: ModuleType, report: ModuleType, stand_in: StandIn, tmp_path: Path) -> None:
    put_commands(stand_in, tmp_path, "24.11")
    data = report.collect({})
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps({"hosts": {"checked": "now", "hosts": []}, "backup": [], "acceptance": runs(27)}))
    for name, text in {"plain": json.dumps(data), "packed": report.pack(data)}.items():
        (tmp_path / name).write_text(text + "\n")
        arguments = ["pages", "--data", str(tmp_path / name), "--hosts", str(hosts), "--output", str(tmp_path)]
        assert command.main(arguments) == 0
        text = (tmp_path / "index.html").read_text()
        assert "'part': 'validation'" in text
        assert "'part': 'hosts'" not in text  # it is there now


@pytest.mark.parametrize("release", RELEASES)
def test_from_answers_to_pages(collected: Collect, release: str, tmp_path: Path) -> None:
    """With the real pages."""
    page = program("report_pages.report_page")
    rows = [{**row, "Name": "<b>two</b>\nlines"} for row in jobs(release)]
    page.write_pages(collected(release, squeue=json.dumps(rows)), tmp_path)
    for name in ("index.html", "admin.html"):
        text = (tmp_path / name).read_text()
        assert "gpu05" in text
        assert "<b>two" not in text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "the data are incomplete"),
        ("{", "Expecting property name"),
        ("[]", "neither JSON nor packed data"),
        ('{"version": 2}', "the version is 2, allowed: 1"),
        (base64.b64encode(gzip.compress(b"{}" * 50)[:-9]).decode(), "the data are incomplete"),
        (base64.b64encode(gzip.compress(b"x" * 5000)).decode(), "the data are incomplete, or more than"),
    ],
)
def test_pages_of_something_else(
    command: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    error: str,
) -> None:
    monkeypatch.setattr(command, "MOST_BYTES", 1000)
    (tmp_path / "data").write_text(text)
    assert command.main(["pages", "--data", str(tmp_path / "data"), "--output", str(tmp_path)]) == 1
    assert error in capsys.readouterr().err


def test_collect_prints_json(command: ModuleType, report: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "collect", lambda settings, hosts: {"settings": dict(settings), "hosts": str(hosts)})
    monkeypatch.setattr(sys, "stdout", output := io.StringIO())
    assert command.main(["collect", "--hosts", "h", "--settings", '{"host": "head"}']) == 0
    assert json.loads(output.getvalue()) == {"settings": {"host": "head"}, "hosts": "h"}


def test_settings_that_are_no_json(command: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["collect", "--settings", "{"]) == 1
    assert capsys.readouterr().err.startswith("slurm-report: --settings: ")
