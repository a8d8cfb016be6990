# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `gpus --quota` makes of limits that three releases of Slurm have shown (recorded/README.md)."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.program_files import sent
from programs import ROLES, StandIn, load

pytestmark = pytest.mark.once

RECORDED = Path(__file__).parent / "recorded/gpus"
RELEASES = ("22.05", "24.11", "26.05")
ASSOCIATIONS = "other|far|||\nlab|chemistry||normal|normal\n"
QOS = {"normal": {"GrpTRES": "gres/gpu=40", "MaxTRESPU": "cpu=99,gres/gpu=12"}}
COLUMNS = (
    *("Name", "Flags", "LimitFactor", "GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRES", "MaxTRESPerNode"),
    *("MaxTRESMins", "MaxTRESPA", "MaxTRESRunMinsPA", "MaxTRESPU", "MaxTRESRunMinsPU"),
)


@pytest.fixture(scope="module", name="gpus")
def program() -> SimpleNamespace:
    """The names of the program and of its parts."""
    parts = ("gpus_command.gpu_answers", "gpus_command.gpu_quotas", "gpus_command.gpu_tables", "gpus")
    return SimpleNamespace(**{name: value for part in parts for name, value in vars(load(part)).items()})


def qos_rows(qos: dict[str, dict[str, str]]) -> str:
    """What sacctmgr says of these QOS."""
    rows = ({"Name": name, **columns} for name, columns in qos.items())
    return "".join("|".join(row.get(column, "") for column in COLUMNS) + "\n" for row in rows)


def recorded(release: str, name: str) -> str:
    """An answer of Slurm."""
    return (RECORDED / release / name).read_text()


def free_qos(text: str) -> str:
    """Limits without that of the QOS on all of its jobs, which replaces the one of an account."""
    return text.replace("gres/gpu=40(", "gres/gpu=N(")


def report(
    gpus: SimpleNamespace,
    wanted: str = "",
    *,
    release: str = "26.05",
    associations: str = ASSOCIATIONS,
    qos: dict[str, dict[str, str]] | None = None,
    edit: Callable[[str], str] = str,
    partitions: Callable[[str], str] = str,
    private: str = "",
) -> Any:
    """The quotas of bob, for a cluster whose limits differ from the recorded one in what `edit` does."""
    limits = gpus.read_user_limits(
        ("bob", "2002"),
        gpus.read_associations(associations),
        gpus.read_qos(qos_rows(QOS if qos is None else qos)),
        gpus.read_partitions(partitions(recorded(release, "partitions"))),
        edit(recorded(release, "associations") + recorded(release, "qos")),
    )
    request = gpus.read_request(wanted) if wanted else {}
    return gpus.report_quota(limits, request, gpus.read_jobs(recorded(release, f"{private}jobs")), 0)


def rows(found: Any) -> list[tuple[Any, ...]]:
    """The quotas of a report."""
    return [tuple(quota.values()) for quota in found["quotas"]]


@pytest.mark.parametrize("release", RELEASES)
def test_limits_of_the_account_and_of_its_qos_are_shown(gpus: SimpleNamespace, release: str) -> None:
    of_qos, of_user = rows(report(gpus, release=release))
    assert of_qos[:4] == ("QOS normal", "GrpTRES", "gres/gpu", 40)
    assert of_user == ("QOS normal, bob", "MaxTRESPU", "gres/gpu", 12, 2, 10)
    of_user, account = rows(report(gpus, release=release, edit=free_qos))
    assert of_user[0] == "QOS normal, bob"
    assert account == ("account chemistry", "GrpTRES", "gres/gpu", 4, 2, 2)


def test_who_has_had_no_job_has_used_nothing(gpus: SimpleNamespace) -> None:
    def forget(text: str) -> str:
        return text.replace(" bob(2002)={", " eve(2009)={")

    assert rows(report(gpus, edit=forget))[-1] == ("QOS normal, bob", "MaxTRESPU", "gres/gpu", 12, 0, 12)
    relative = {"normal": {**QOS["normal"], "Flags": "Relative"}}
    assert len(rows(report(gpus, edit=forget, qos=relative))) == 1, "12 would be a percentage"


def test_accounts_that_slurm_hides_are_named(gpus: SimpleNamespace) -> None:
    """With PrivateData=usage."""

    def hide(text: str) -> str:
        return "\n".join(line for line in text.split("\n") if "UserName= " not in line)

    found = report(gpus, "3", edit=hide)
    assert found["hidden"] == ["chemistry"]
    assert "Slurm does not show you the limits of account chemistry." in gpus.show_quota(found, 80)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("1", "could start now, as far as limits on GPUs go"),
        ("2", "could start now, as far as limits on GPUs go"),
        (
            "3",
            "waits for account chemistry: 2 of 4 GPUs are in use by 2 jobs (GrpTRES gres/gpu); by the jobs' time "
            "limits, enough are free in 0:09:41",
        ),
        (
            "4",
            "waits for account chemistry: 2 of 4 GPUs are in use by 2 jobs (GrpTRES gres/gpu); by the jobs' time "
            "limits, enough are free in 0:59:39",
        ),
        ("5", "never starts: account chemistry has GrpTRES gres/gpu=4"),
        # A limit that keeps it for ever comes before one that it would wait for.
        ("13", "never starts: QOS normal, bob has MaxTRESPU gres/gpu=12"),
    ],
)
def test_what_the_next_job_waits_for(gpus: SimpleNamespace, wanted: str, said: str) -> None:
    (job,) = report(gpus, wanted, edit=free_qos)["next"]
    assert (job["account"], job["qos"], job["partition"]) == ("chemistry", "normal", "main")
    assert gpus.show_next(job) == said


def test_jobs_that_slurm_hides_are_others(gpus: SimpleNamespace) -> None:
    def fill(text: str) -> str:
        return free_qos(text).replace("gres/gpu=4(2)", "gres/gpu=4(4)")

    (job,) = report(gpus, "4", edit=fill, private="private-")["next"]
    assert (job["used_by"], job["unseen"], job["wait"]) == (2, 2, None)
    assert "in use by 2 jobs and jobs of others" in gpus.show_next(job)


def test_a_job_without_a_type_passes_the_limit_of_a_type(gpus: SimpleNamespace) -> None:
    def limit_type(text: str) -> str:
        return free_qos(text).replace("gres/gpu=4(2)", "gres/gpu=N(2),gres/gpu:h100=2(0)")

    def next_limit(wanted: str) -> Any:
        return report(gpus, wanted, edit=limit_type)["next"][0]["limit"]

    assert next_limit("4") is None
    assert next_limit("h100:2") is None
    assert next_limit("h100:3")["resource"] == "gres/gpu:h100"


def test_minutes_that_are_used_up(gpus: SimpleNamespace) -> None:
    def use(text: str) -> str:
        return text.replace("pages=N(0),gres/gpu=N(0)", "pages=N(0),gres/gpu=60(61)")

    (job,) = report(gpus, "1", edit=use)["next"]
    said = "waits for QOS normal: 61 of 60 GPU minutes are used (GrpTRESMins gres/gpu)"
    assert gpus.show_next(job) == said


def test_what_a_qos_limits_an_account_does_not(gpus: SimpleNamespace) -> None:
    """The QOS of the partition comes first, then that of the job, then associations."""

    def add_partition_qos(text: str) -> str:
        return text.replace("QoS=N/A", "QoS=of-main", 1)

    def add_record(text: str) -> str:
        return f"{text}\nQOS=of-main(7) GrpTRES=gres/gpu=3(0) MaxTRESPJ=gres/gpu=2 Account Limits=No Accounts User"

    qos = {**QOS, "of-main": {}}

    def next_limit(wanted: str, **more: Any) -> Any:
        found = report(gpus, wanted, partitions=add_partition_qos, edit=add_record, **more)["next"][0]["limit"]
        return found and (found["of"], found["name"])

    assert report(gpus, "5")["next"][0]["limit"] is None, "job 11 of the record waited for Priority, with 8 GPUs"
    assert next_limit("2", qos=qos) is None
    assert next_limit("3", qos=qos) == ("QOS of-main", "MaxTRESPJ")
    first = {**qos, "normal": {**QOS["normal"], "Flags": "OverPartQOS"}}
    assert next_limit("4", qos={**first, "of-main": {}}) == ("QOS of-main", "MaxTRESPJ")
    # Without a QOS that has GrpTRES, the account's limit holds, times the factor of the QOS.
    plain = {"normal": {"LimitFactor": "2.000000"}}
    assert report(gpus, "6", qos=plain, edit=free_qos)["next"][0]["limit"] is None
    assert report(gpus, "7", qos=plain, edit=free_qos)["next"][0]["limit"]["limit"] == 8


@pytest.mark.parametrize("wanted", ["0", "-1", "h100", "h100:0", "8:h100", "a b:1", "1e9"])
def test_a_request_is_a_number(gpus: SimpleNamespace, wanted: str) -> None:
    with pytest.raises(ValueError, match="such as 8 or h100:8"):
        gpus.read_request(wanted)


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(name="run")
def runner(stand_in: StandIn, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the program as bob is recorded, whoever runs the test."""
    me = pwd.getpwuid(os.getuid()).pw_name

    def run(*arguments: str, sacctmgr: str = "", release: str = "26.05") -> subprocess.CompletedProcess[str]:
        answers = RECORDED / release
        (tmp_path / "associations").write_text(ASSOCIATIONS)
        (tmp_path / "qos").write_text(qos_rows(QOS))
        limits = f"cat {answers}/associations {answers}/qos | sed 's/=bob(2002)/={me}(0)/;s/ bob(2002)=/ {me}(0)=/'"
        wanted = f"*'assoc_mgr users={me} qos=normal flags=assoc,qos'"
        stand_in(
            "scontrol", f'case "$*" in *partition) cat {answers}/partitions;; {wanted}) {limits};; *) exit 9;; esac'
        )
        stand_in("squeue", f"sed 's/|bob  /|{me}  /' {answers}/jobs")
        own = f'case "$*" in *associations*user={me}*) cat {tmp_path}/associations;; *) cat {tmp_path}/qos;; esac'
        stand_in("sacctmgr", sacctmgr or own)
        return subprocess.run(
            [sys.executable, "-I", "-", *arguments],
            input=sent("programs.gpus"),
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"COLUMNS": "80"},
        )

    return run


@pytest.mark.parametrize("release", RELEASES)
def test_what_people_read(run: Callable[..., subprocess.CompletedProcess[str]], release: str) -> None:
    done = run("--quota", "13", release=release)
    assert (done.returncode, done.stderr) == (0, "")
    header, of_qos, *_others = done.stdout.splitlines()
    assert header.split() == ["OF", "LIMIT", "MAX", "USED", "LEFT"]
    assert of_qos.split()[:5] == ["QOS", "normal", "GrpTRES", "gres/gpu", "40"]
    assert done.stdout.endswith(
        "\n\nA job of 13 GPUs in account chemistry, QOS normal, partition main:\n"
        f"  never starts: QOS normal, {pwd.getpwuid(os.getuid()).pw_name} has MaxTRESPU gres/gpu=12\n"
    )
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "A job of" not in run("--quota", release=release).stdout


def test_json_is_what_the_documents_say(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    text = (ROLES / "job_tools/README.md").read_text()
    found = json.loads(run("--json", "--quota=4").stdout)
    keys = {*found, *found["quotas"][0], *found["next"][0]}
    assert {key for key in keys if f"`{key}`" not in text} == set()


@pytest.mark.parametrize(
    ("arguments", "sacctmgr", "problem"),
    [
        (("--quota", "x"), "", "--quota takes a number of GPUs, such as 8 or h100:8"),
        (
            ("--quota",),
            "echo \"Only 'accounting_storage/slurmdbd' is supported.\" >&2; exit 1",
            "limits are those of slurmdbd, which does not answer: Only 'accounting_storage/slurmdbd' is supported.",
        ),
        (("--quota",), "exit 0", "{me} has no account in Slurm, so no limits"),
    ],
)
def test_what_cannot_be_answered(
    run: Callable[..., subprocess.CompletedProcess[str]], arguments: tuple[str, ...], sacctmgr: str, problem: str
) -> None:
    done = run(*arguments, sacctmgr=sacctmgr)
    me = pwd.getpwuid(os.getuid()).pw_name
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"gpus: {problem.format(me=me)}\n")
