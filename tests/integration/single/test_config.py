# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of Slurm's configuration while a job runs: planned, refused, applied, verified, rolled back.

Most tests give the module the host's own files with a change; those of site.yml let it render files with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Run, with_cluster
from plays import Results, Task, configuration, each_mode, modes, play, shell, task, write

HOST = "single"
FILES = "cat /etc/slurm/slurm.conf /etc/slurm/gres.conf /etc/slurm/cgroup.conf"
CONFIG = "gpucluster.slurm.slurmctld : Apply Slurm's configuration"
SLURMCTLD = "gpucluster.slurm.slurmctld : Run slurmctld"
SLURMD = "gpucluster.slurm.slurmd : Run slurmd with its settings"
UNIT = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"

Files = dict[str, str]
"""The text of each file by its name."""


@pytest.fixture(scope="module", name="files")
def files_before(lab: Lab) -> Files:
    """The host's files as site.yml has left them."""
    return dict(configuration(lab, HOST))


@pytest.fixture(scope="module", name="job")
def job_that_runs_all_the_time(lab: Lab, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The number of a job with a GPU; no test here must end it."""
    job = lab.command(HOST, "sbatch --parsable --gres=gpu:1 --output=/dev/null --wrap 'sleep 3600'")
    lab.wait_for(HOST, f"squeue -h -j {job} -o %T", "RUNNING")
    yield job
    state = lab.host(HOST).run(f"squeue -h -j {job} -o '%T %r'").stdout.strip()
    booked = lab.host(HOST).run(f"sacct -nPX -j {job} -o State").stdout.strip()
    restored = play(lab, tmp_path_factory.mktemp("restored"), change("restored", files))
    lab.host(HOST).run(f"scancel {job}")
    assert (state, booked, restored["restored"].get("msg")) == ("RUNNING None", "RUNNING", None)


def edited(files: Files, replaced: dict[str, str]) -> Files:
    """The files with some texts replaced."""
    for old, new in replaced.items():
        assert any(old in text for text in files.values()), old
        files = {name: text.replace(old, new) for name, text in files.items()}
    return files


def change(name: str, files: Files, **keywords: Any) -> Task:
    """A task that applies files."""
    return task(name, "slurm_config", {"files": files}, **keywords)


# -- the module ------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "unknown key": ({"KillWait=30": "KilWait=30"}, "slurm.conf: KilWait: unknown to Slurm, did you mean 'KillWait'?"),
    "wrong value": ({"KillWait=30": "KillWait=soon"}, "slurm.conf: KillWait: found 'soon'"),
    "no such plugin": (
        {"sched/backfill": "sched/none"},
        "slurm.conf: SchedulerType: found 'sched/none', which is not installed, allowed: backfill, builtin",
    ),
    "plugin of commands": (
        {"KillWait=30": "KillWait=30\nMpiDefault=pmix_v9"},
        "slurm.conf: MpiDefault: found 'pmix_v9'",
    ),
    "another user": ({"SlurmUser=slurm": "SlurmUser=munge"}, "slurm.conf: SlurmUser: found 'munge', allowed: slurm"),
    "no time": (
        {"Default=YES": "Default=YES MaxTime=0"},
        "slurm.conf: PartitionName=main: MaxTime: found '0', allowed: ",
    ),
    # Only a second slurmctld can find these; the line that ends it comes first.
    "no file of the plugin": (
        {"KillWait=30": "KillWait=30\nTopologyPlugin=topology/tree"},
        "slurmctld does not start with these files: error: s_p_parse_file: cannot stat file topology.conf",
    ),
    "no number": (
        {"KillWait=30": "KillWait=30\nLicenses=a:x"},
        "slurmctld does not start with these files: fatal: Invalid configured licenses: a:x",
    ),
    "the job's GPU": ({" Gres=gpu:h100:1": "", "NodeName=single Name=gpu Type=h100": "#"}, "ENDS JOBS {job}"),
    "a node is lost at once": ({"SlurmdTimeout=300": "SlurmdTimeout=1"}, "ENDS JOBS {job}"),
    "the job's cores": ({"CoresPerSocket=2": "CoresPerSocket=1"}, "ENDS JOBS {job}"),
}
"""Words of the files and their replacements, and the message of the module."""

# The files of the tests have a list of jobs, and none of the scheduler's parameters.
LIST_OF_JOBS = "JobCompType=jobcomp/filetxt\nJobCompLoc=/var/log/slurm/job_completions"
BASE = {
    "SchedulerParameters=bf_window=10080,bf_resolution=420,nohold_on_prolog_fail\n": "",
    "KillWait=30": f"KillWait=30\n{LIST_OF_JOBS}",
}

# The second slurmctld must not write to the files of the first one, so it cannot find that this directory is missing.
NOWHERE = {"KillWait=30": "KillWait=79", "/var/log/slurm/job_completions": "/nowhere/log"}
OTHER_PID = {"/run/slurmctld/slurmctld.pid": "/run/slurmctld/other.pid"}
ROLLED_BACK: dict[str, tuple[dict[str, str], str]] = {
    "reconfigure": (NOWHERE, "scontrol reconfigure failed: "),
    "restart": ({**NOWHERE, **OTHER_PID}, "fatal: open /nowhere/log: No such file"),
}

RECONFIGURED = {"KillWait=30": "KillWait=77\nSchedulerParameters=bf_interval=20\nSrunProlog=/bin/true"}
NEEDS: dict[str, tuple[dict[str, str], str, str]] = {
    "nothing": ({"KillWait=30": "KillWait=30\nSrunProlog=/bin/true"}, "nothing", "reconfigure"),
    "reconfigure": (RECONFIGURED, "reconfigure", "reconfigure"),
    "slurmctld": ({**RECONFIGURED, **OTHER_PID}, "restart slurmctld", "restart"),
}
"""Successive changes without a restart of slurmd: the change, the need in the plan, and the action for slurmctld."""


SITE_FILES = {
    "topology.conf": f"SwitchName=s1 Nodes={HOST}\n",
    "job_submit.lua": """
        function slurm_job_submit(job, partitions, user)
            if job.comment == "refused" then slurm.log_user("not this one") return slurm.ERROR end
            return slurm.SUCCESS
        end
        function slurm_job_modify(job, record, partitions, user) return slurm.SUCCESS end
    """,
}
# slurmctld 24.11 before 24.11.6 can stop to answer when it reconfigures. Here its new process is halted.
PROCESS = "$(systemctl show -P MainPID slurmctld)"
HALT = (
    f"systemd-run --collect --quiet sh -c 'old={PROCESS}; while new={PROCESS}; [ $new = $old ]; do :; done; "
    "kill -STOP $new'"
)


WITH_SITE_FILES = {"KillWait=30": "KillWait=30\nTopologyPlugin=topology/tree\nJobSubmitPlugins=lua"}


def refusals(files: Files) -> Iterator[Task]:
    """Tasks with changes that are refused or rolled back."""
    for name, (replaced, _message) in REFUSED.items():
        yield change(f"refused: {name}", edited(files, replaced))
        yield shell(f"files after {name}", FILES)

    fill = "mount -t tmpfs -o size=64k,mode=755 full /etc/slurm && cp -a /run/slurm-copy/. /etc/slurm/"
    ballast = "dd if=/dev/zero of=/etc/slurm/ballast bs=4k status=none; true"
    yield shell("fill the disk", f"cp -a /etc/slurm /run/slurm-copy && {fill} && {ballast}")
    yield change("full disk", edited(files, {"KillWait=30": "KillWait=78"}))
    yield shell("files on the full disk", FILES)
    yield shell("listed on the full disk", "ls -A /etc/slurm")
    yield shell("empty the disk", "umount /etc/slurm && rm -r /run/slurm-copy")

    for name, (replaced, _message) in ROLLED_BACK.items():
        yield change(f"rolled back: {name}", edited(files, replaced))
        yield shell(f"files after rolled back {name}", FILES)
        yield shell(f"in force after rolled back {name}", "scontrol show config")

    lock = "/run/gpucluster-slurm/locks/slurm_config"
    hold = f"systemd-run --collect --quiet --unit=other-run flock {lock} sleep infinity"
    yield shell("another run", f"{hold} && while flock --nonblock {lock} true; do sleep 0.1; done")
    yield change("second run", edited(files, {"KillWait=30": "KillWait=81"}))
    yield shell("end the other run", "systemctl stop other-run")


def changes(files: Files, job: str) -> Iterator[Task]:
    """Tasks with changes that are applied. After each: a new job, the running job, and a value in force."""
    then = f"timeout 180 srun hostname; squeue -h -j {job} -o '%T %r'; scontrol show config | grep KillWait"
    yield shell("halt the next slurmctld", HALT)
    silent = {"files": edited(files, {"KillWait=30": "KillWait=83"}), "patience": 20}
    yield task("silent", "slurm_config", silent)
    yield shell("silent, then", then)
    yield change("after the silent one", files)
    for name, (replaced, _needs, _action) in NEEDS.items():
        yield from each_mode(name, "slurm_config", {"files": edited(files, replaced)})
        yield shell(f"{name}, then", then)
    site = edited(files, WITH_SITE_FILES) | SITE_FILES
    broken = {"job_submit.lua": SITE_FILES["job_submit.lua"].replace("end", "", 1)}
    yield change("a script with an error", site | broken)
    yield shell("after the script", "ls /etc/slurm")
    yield from each_mode("site", "slurm_config", {"files": site})
    yield shell("site, then", then)
    yield shell("topology", "scontrol show topology")
    yield shell("submitted", "sbatch --comment=refused --output=/dev/null --wrap true")
    yield change("back", files)
    yield shell("after all", f"ls /etc/slurm; squeue -h -j {job} -o '%T %r'")


@pytest.fixture(scope="module", name="results")
def results_of_one_play(lab: Lab, files: Files, job: str, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of all tasks here."""
    base = edited(files, BASE)
    before = [change("base", base), shell("files before", FILES)]
    tasks = [*before, *refusals(base), *changes(base, job), change("as before", files)]
    return play(lab, tmp_path_factory.mktemp("config"), *tasks)


@pytest.mark.parametrize("name", REFUSED)
def test_what_slurm_would_refuse_and_what_would_end_the_job_is_not_written(
    results: Results, job: str, name: str
) -> None:
    _words, message = REFUSED[name]
    assert message.format(job=job) in results[f"refused: {name}"]["msg"]
    assert results[f"files after {name}"]["stdout"] == results["files before"]["stdout"]


def test_a_full_disk_changes_nothing(results: Results) -> None:
    assert "No space left" in results["full disk"]["msg"]
    assert results["files on the full disk"]["stdout"] == results["files before"]["stdout"]
    assert "ballast" in results["listed on the full disk"]["stdout"]
    assert ".tmp" not in results["listed on the full disk"]["stdout"]


@pytest.mark.parametrize("name", ROLLED_BACK)
def test_a_slurmctld_that_does_not_come_back_is_rolled_back(results: Results, name: str) -> None:
    _words, message = ROLLED_BACK[name]
    assert message in results[f"rolled back: {name}"]["msg"]
    assert "Rolled back: the old files are in force again." in results[f"rolled back: {name}"]["msg"]
    assert results[f"files after rolled back {name}"]["stdout"] == results["files before"]["stdout"]
    assert "KillWait                = 30 sec" in results[f"in force after rolled back {name}"]["stdout"]


def test_two_runs_at_once_do_not_meet(results: Results) -> None:
    assert "lock slurm_config: held by process" in results["second run"]["msg"]


def test_a_change_is_planned_then_applied(results: Results) -> None:
    kill_wait = {"what": "slurm.conf KillWait", "before": "30", "after": "77", "needs": "reconfigure", "ends": []}
    scheduler = {"what": "slurm.conf SchedulerParameters", "before": None, "after": "bf_interval=20"}
    assert results["reconfigure, checked"]["plan"] == [kill_wait, {**kill_wait, **scheduler}]
    assert results["nothing, then"]["stdout_lines"][2:] == ["KillWait                = 30 sec"]
    assert results["reconfigure, then"]["stdout_lines"][2:] == ["KillWait                = 77 sec"]


@pytest.mark.parametrize("name", NEEDS)
def test_a_change_of_each_class(results: Results, name: str) -> None:
    _words, needs, action = NEEDS[name]
    check, done, again = modes(results, name)
    assert [result["changed"] for result in (check, done, again)] == [True, True, False]
    assert {step["needs"] for step in done["plan"]} == {needs}
    assert (check["plan"], check["actions"], again["plan"]) == (done["plan"], done["actions"], [])
    assert done["actions"] == [action]
    # Role slurmd restarts its daemon when that changes.
    assert done["read_at_start"] == results["back"]["read_at_start"]
    assert results[f"{name}, then"]["stdout_lines"][:2] == [HOST, "RUNNING None"]


def test_a_slurmctld_that_is_silent_after_its_reconfigure_is_restarted(results: Results) -> None:
    silent = results["silent"]
    assert silent.get("actions") == ["reconfigure"], silent["msg"]
    assert "slurmctld did not answer after scontrol reconfigure, so it was restarted" in str(silent["remarks"])
    assert results["silent, then"]["stdout_lines"] == [HOST, "RUNNING None", "KillWait                = 83 sec"]


def test_files_of_the_site_come_and_go(results: Results) -> None:
    assert "job_submit.lua: " in results["a script with an error"]["msg"]
    assert not {*SITE_FILES} & {*results["after the script"]["stdout_lines"]}
    check, done, again = modes(results, "site")
    assert [result["changed"] for result in (check, done, again)] == [True, True, False]
    # The plan also takes back the change before.
    planned = {"slurm.conf TopologyPlugin", "slurm.conf JobSubmitPlugins", "topology.conf SwitchName=s1"}
    assert {*planned, "job_submit.lua"} <= {step["what"] for step in done["plan"]}
    assert check["plan"] == done["plan"]
    assert results["site, then"]["stdout_lines"][:2] == [HOST, "RUNNING None"]
    assert results["topology"]["stdout"].startswith("SwitchName=s1 Level=0 ")
    assert "not this one" in results["submitted"]["stderr"]
    assert {*SITE_FILES} <= {*results["back"]["absent"]}
    assert not {*SITE_FILES} & {*results["after all"]["stdout_lines"]}
    assert results["after all"]["stdout_lines"][-1] == "RUNNING None"


# -- site.yml --------------------------------------------------------------------------------------------------------


def changed(lab: Lab, directory: Path, slurm_conf: dict[str, Any]) -> Lab:
    """The lab with other parameters. They are set in a variable, since the cluster file itself refuses wrong ones."""
    return with_cluster(lab, directory, lab.cluster, slurm_conf=slurm_conf)


def result(run: Run) -> dict[str, Any]:
    """The return values of the module."""
    return next(result for _host, name, result in run.results if name == CONFIG)


def test_what_needs_a_cluster_without_jobs_is_refused_and_names_the_job(lab: Lab, job: str, tmp_path: Path) -> None:
    before = lab.command(HOST, FILES)
    other = changed(lab, tmp_path, {"JobAcctGatherType": "jobacct_gather/linux"})
    run = other.playbook("site", "--tags=controller")
    assert run.rc == 2
    assert f"no job at all  ENDS JOBS {job}" in str(run.failed[HOST])
    assert lab.command(HOST, FILES) == before


def test_a_change_for_which_slurmd_is_restarted(lab: Lab, files: Files, job: str, tmp_path: Path) -> None:
    """Planned, applied, and applied again, where only a stopped slurmctld is started. The module takes it back."""
    before = lab.command(HOST, FILES)
    lab.command(HOST, f"cp -p {UNIT} /root/slurmd-unit")
    site = changed(lab, tmp_path, {"SlurmdPort": 6918})
    plan = site.playbook("site", "--tags=controller,compute", "--check", "--diff")
    assert (plan.rc, plan.failed) == (0, {})
    assert lab.command(HOST, FILES) == before
    done = site.playbook("site", "--tags=controller,compute", "--diff")
    assert (plan.changed, result(plan)["plan"]) == (done.changed, result(done)["plan"])
    assert (done.rc, done.changed, done.failed) == (0, {HOST: [CONFIG, SLURMD]}, {})
    assert "restart slurmctld, slurmd" in [step["needs"] for step in result(done)["plan"]]
    assert lab.command(HOST, "timeout 180 srun hostname") == HOST
    assert lab.command(HOST, f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"

    lab.command(HOST, "systemctl stop slurmctld")
    again = site.playbook("site", "--tags=controller,compute")
    assert (again.rc, again.changed, again.failed) == (0, {HOST: [SLURMCTLD]}, {})

    restart = f"mv /root/slurmd-unit {UNIT} && systemctl daemon-reload && systemctl restart slurmd"
    end = task("proven", "slurm_config", {"state": "proven"})
    back = play(lab, tmp_path, change("back", files), shell("slurmd", restart), end)
    assert "restart slurmctld, slurmd" in [step["needs"] for step in back["back"]["plan"]]
    assert configuration(lab, HOST) == files
    assert lab.command(HOST, "timeout 180 srun hostname") == HOST
    assert lab.command(HOST, f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"


# -- runs that end in the middle -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("job")
def test_a_connection_that_is_lost_does_not_leave_half_a_change(lab: Lab, files: Files, tmp_path: Path) -> None:
    wanted = edited(files, {"KillWait=30": "KillWait=82"})
    lost = "until grep -q KillWait=82 /etc/slurm/slurm.conf; do sleep 0.02; done; pkill -KILL sshd-session"
    in_force = "until scontrol show config | grep 'KillWait  *= 82 sec'; do sleep 0.5; done"
    found = play(
        lab,
        tmp_path,
        shell("lose the connection", f"systemd-run --collect --quiet sh -c '{lost}'"),
        change("lost", wanted),
        shell("in force", f'timeout 120 sh -c "{in_force}"'),
        after_another("again", wanted),
    )
    assert "Data could not be sent to remote host" in found["lost"]["msg"]
    assert found["in force"]["rc"] == 0
    assert (found["again"]["changed"], found["again"]["plan"]) == (False, [])


@pytest.mark.usefixtures("job")
def test_a_run_that_was_killed_is_finished_by_the_next(lab: Lab, files: Files, tmp_path: Path) -> None:
    wanted = edited(files, {"KillWait=30": "KillWait=80"})
    live = lab.start(write(tmp_path, change("killed", wanted)))
    live.wait_for_task("killed")
    live.kill()
    found = play(
        lab,
        tmp_path,
        after_another("next", wanted),
        change("again", wanted),
        shell("in force", "scontrol show config"),
    )
    assert found["next"].get("msg") is None
    assert (found["again"]["changed"], found["again"]["plan"]) == (False, [])
    assert "KillWait                = 80 sec" in found["in force"]["stdout"]


def after_another(name: str, files: Files) -> Task:
    """A task that applies files after another run, still active on the host, has ended."""
    return change(
        name, files, register="outcome", until="'another run' not in outcome.msg | default('')", retries=60, delay=1
    )
