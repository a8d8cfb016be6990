# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that a site has set for a whole host, such as SQUEUE_STATES in /etc/environment, and the commands we run.

Each place that runs a command runs a stand-in, which writes its environment to a file. The tests of scenario faults
show what the variables do to a real cluster.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jinja2
import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import commands, environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import conversion, trial_start
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.whole_cluster import (
    ASKING,
    ASKING_ARCHIVE,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor import controller_facts
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import access_change, file_checks
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.module_run import run_module
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.series import Series
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics import gpu_calls
from programs import ROLES, StandIn, load

OF_THE_HOST = {
    "SQUEUE_STATES": "PENDING",
    "SQUEUE_PARTITION": "nosuch",
    "SINFO_PARTITION": "nosuch",
    "SACCT_FORMAT": "jobid",
    "SCANCEL_STATE": "PENDING",
    "SBATCH_ACCOUNT": "nobody",
    "SLURM_CONF": "/old/slurm.conf",
    "SLURM_JWT": "expired",
    "SLURM_BITSTR_LEN": "3",
    "SYSTEMD_OFFLINE": "1",
    "SYSTEMD_UNIT_PATH": "/nowhere",
    "DPKG_ADMINDIR": "/nowhere",
    "APT_CONFIG": "/nowhere",
    "MYSQL_UNIX_PORT": "/nowhere",
    "RESTIC_PASSWORD_COMMAND": "false",
    "HWLOC_XMLFILE": "/nowhere",
    "TAR_OPTIONS": "--exclude=*",
}
"""Variables that change what a command answers or does."""

OF_A_SITE = {"https_proxy": "http://proxy:3128", "NO_PROXY": "localhost, a", "SSL_CERT_FILE": "/etc/site.pem"}
"""Variables that a site may need, such as for downloads."""

PROGRAMS = (
    "squeue",
    "sinfo",
    "scontrol",
    "scancel",
    "sacct",
    "sacctmgr",
    "slurmctld",
    "mariadb",
    "restic",
    "systemctl",
)


PATH_OF_WORDS = environment.ENVIRONMENT["PATH"]


@pytest.fixture(name="seen")
def environment_of_commands(stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """The environment of the command that ran last, as a mapping."""
    file = tmp_path / "environment"
    for name in (*PROGRAMS, "nvidia-smi", "systemd-run", "tar", "srun", "show"):
        stand_in(name, f"env >{file}; echo SLURM_VERSION = 24.11.5")
    for name, value in {**OF_THE_HOST, **OF_A_SITE}.items():
        monkeypatch.setenv(name, value)
    # A stand-in is found where the program has a PATH of its own.
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", os.environ["PATH"])

    def read() -> Any:
        lines = file.read_text().splitlines()
        return dict(line.partition("=")[::2] for line in lines)

    return read


def program(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A program of a role whose commands are found among the stand-ins."""
    module: ModuleType = load(path)
    for name in ("ENVIRONMENT", "VARIABLES"):
        if isinstance(own := getattr(module, name, None), dict):
            monkeypatch.setitem(own, "PATH", os.environ["PATH"])
    if hasattr(module, "PATH"):
        monkeypatch.setattr(module, "PATH", os.environ["PATH"])
    return module


def in_module(work: Callable[[AnsibleModule], object]) -> None:
    """Do this work as a module does."""

    def run(module: AnsibleModule) -> Mapping[str, Any]:
        work(module)
        return {}

    with patch_module_args({}), pytest.raises(SystemExit):
        run_module(run, {})


def trial(directory: Path) -> None:
    (directory / "slurm.conf").write_text("ClusterName=c\n")
    with pytest.raises(trial_start.TrialError):
        trial_start.start_on_trial(str(directory), "root")


PLACES: dict[str, Callable[..., object]] = {
    # What modules run.
    "commands.run": lambda _program, _path: commands.run(["squeue"]),
    "file_checks.run_check": lambda _program, _path: file_checks.run_check(["show"]),
    "run_command": lambda _program, _path: in_module(lambda module: module.run_command(["show"])),
    "run_command with variables": lambda _program, _path: in_module(
        lambda module: module.run_command(["show"], environ_update={"LC_ALL": "C"})
    ),
    "the timer of an access change": lambda _program, _path: in_module(lambda _module: access_change.stop_timer("x")),
    "the trial start of slurmctld": lambda _program, path: in_module(lambda _module: trial(path)),
    "the conversion of a database": lambda _program, _path: in_module(lambda _module: conversion.end_conversion()),
    # Programs of roles.
    "slurm-backup: jobs": lambda program, _path: program("slurm_backup.saved_state").listed_jobs(),
    "slurm-backup: who serves": lambda program, _path: program("slurm_backup.save_parts").serves(
        {"state": "/x", "controllers": ["a", "b"], "host": "a"}
    ),
    "slurm-backup: rows": lambda program, _path: program("slurm_backup.saved_database").sql("SELECT 1"),
    "slurm-backup: restic": lambda program, _path: (
        program("slurm_backup.restic_repository").Repository({"target": "/x", "cluster": "c"}).run("snapshots")
    ),
    "slurm-backup: a dump": lambda program, _path: dump(program("slurm_backup.restic_repository")),
    "the switch of munge": lambda program, _path: program("munge_switch").answer(),
    "the first boot": lambda program, _path: program("image_first_boot").is_joined(SimpleNamespace(daemon="sackd"), []),
    "the health check": lambda program, _path: program("health_check").scontrol("ping"),
    "the series of GPUs": lambda _program, _path: gpu_calls.DriverCalls(gpu_calls.GpuState(), Series()).run(
        "use", ["nvidia-smi"], 5
    ),
}
"""What runs a command of ours; it gets the fixture `program` and an empty directory."""


def dump(backup: ModuleType) -> None:
    repository = backup.Repository({"target": "/x", "cluster": "c"})
    with pytest.raises(backup.BackupError):
        backup.piped(["mariadb"], ["show"], repository.environment)


@pytest.mark.parametrize("name", PLACES)
def test_a_command_of_ours_has_no_variable_of_the_host(
    name: str, seen: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLACES[name](lambda path: program(path, monkeypatch), tmp_path)
    found = {key: value for key, value in seen().items() if key in OF_THE_HOST and OF_THE_HOST[key] == value}
    assert not found


@pytest.mark.parametrize("name", ["commands.run", "run_command", "slurm-backup: restic"])
def test_a_command_has_what_a_site_needs(
    name: str, seen: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLACES[name](lambda path: program(path, monkeypatch), tmp_path)
    assert OF_A_SITE.items() <= seen().items()


def test_the_doctor_takes_no_configuration_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "slurm.conf"
    old.touch()
    monkeypatch.setenv("SLURM_CONF", str(old))
    monkeypatch.setattr(controller_facts, "DIRECTORIES", ())
    found: list[str] = []
    in_module(lambda _module: found.append(controller_facts.find_conf({})))
    assert found == [""]


# -- what belongs to a user ------------------------------------------------------------------------------------------


def ask_jobstats(load_program: Callable[[str], ModuleType]) -> None:
    """Ask sacct as jobstats does, which refuses the answer of the stand-in: it is none of sacct."""
    jobstats = load_program("jobstats")
    with pytest.raises(jobstats.SlurmError, match="an answer that is not understood"):
        jobstats.ask("1")


USERS: dict[str, tuple[Callable[..., object], tuple[str, ...]]] = {
    "gpus": (lambda program: program("gpus_command.gpu_answers").run(["squeue"], 9), ("SQUEUE_", "SCONTROL_")),
    "jobstats": (ask_jobstats, ("SACCT_",)),
    "notebook": (lambda program: program("notebook").output(["scancel"]), ("SQUEUE_", "SCANCEL_")),
}
"""What runs a command, and the beginnings of the variables of its commands."""


@pytest.mark.parametrize("name", USERS)
def test_a_tool_of_users_has_their_environment_except_what_changes_an_answer(
    name: str, seen: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    ask, changing = USERS[name]
    ask(lambda path: program(path, monkeypatch))
    environment = seen()
    kept = {"SLURM_CLUSTERS": "other", "SLURM_CONF": OF_THE_HOST["SLURM_CONF"], "SBATCH_ACCOUNT": "nobody"}
    assert kept.items() <= environment.items()
    assert not [key for key in environment if key.startswith((*changing, "SLURM_BITSTR_LEN"))]


def test_the_jobs_of_the_login_message(seen: Callable[[], Any]) -> None:
    text = (ROLES / "access/templates/login-message.sh.j2").read_text()
    environment = jinja2.Environment(trim_blocks=True)
    environment.filters["quote"] = shlex.quote
    script = environment.from_string(text).render(slurm_cluster_name="c")
    subprocess.run(["sh", "-c", script], env={**os.environ, "HOME": "/nonexistent"}, check=True, capture_output=True)
    assert "SQUEUE_STATES" not in seen()


def test_the_jobs_of_sbuild(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs for one name: the second one is refused while the job of the first one waits or runs."""
    tools = (ROLES / "job_tools/files/job-tools.sh").as_posix()
    monkeypatch.setenv("SQUEUE_PARTITION", "nosuch")
    stand_in("squeue", 'test -n "${SQUEUE_PARTITION:-}" || echo 7')
    command = f"set -- x; source {tools}; squeue --noheader --me --name=sbuild-x"
    done = subprocess.run(["bash", "-c", command], env=os.environ, check=True, capture_output=True, text=True)
    assert done.stdout == "7\n"


# -- tasks of playbooks ----------------------------------------------------------------------------------------------

BUILTIN = "ansible.builtin."

HARMLESS = {
    *("assert", "debug", "fail", "meta", "ping", "set_fact", "set_stats"),
    *("add_host", "group_by", "import_playbook", "import_role", "import_tasks", "include_role", "include_tasks"),
    *("blockinfile", "copy", "fetch", "file", "replace", "slurp", "stat", "template"),
    "reboot",  # shutdown(8) of systemd 257 reboots also with SYSTEMD_OFFLINE=1 and a wrong DBUS_SYSTEM_BUS_ADDRESS
    *("command", "shell", "uri"),  # see below
}
"""Builtin modules that run no command, or one whose work no variable changes. With SYSTEMD_OFFLINE=1, systemd_service
reports that it has stopped a service that still runs, and with APT_CONFIG apt reads other lists."""

INDEPENDENT = ("cat", "grep", "hostname", "id", "mv", "pgrep", "rm")
"""Programs whose answers no variable changes."""

OWN = ("/usr/local/sbin/slurm-backup", "'/usr/bin/python3', '-I'", "restore.", "rotation_secrets.registry_proof")
"""Programs of the collection, which give their commands an environment, and the rules that name them."""


def tasks_of_hosts() -> dict[str, Any]:
    """The tasks that run on a host of a cluster, by file and name."""
    found: dict[str, Any] = {}

    def search(tasks: Any, file: str) -> None:
        for task in tasks if isinstance(tasks, list) else []:
            for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
                search(task.get(part), file)
            if task.get("delegate_to") != "localhost":
                found[f"{file}: {task.get('name')}"] = task

    for path in sorted([*ROLES.glob("*/tasks/*.yml"), *ROLES.glob("../playbooks/**/*.yml")]):
        search(yaml.safe_load(path.read_text()), f"{path.parents[1].name}/{path.name}")
    return found


TASKS = tasks_of_hosts()


def commands_of_tasks() -> dict[str, str]:
    """The commands of these tasks."""
    given = {
        name: task.get(f"{BUILTIN}command") or task.get(f"{BUILTIN}shell")
        for name, task in TASKS.items()
        if {f"{BUILTIN}command", f"{BUILTIN}shell"} & task.keys()
    }
    return {name: str(words.get("argv") or words.get("cmd")) for name, words in given.items()}


COMMANDS = commands_of_tasks()


def test_a_task_runs_no_builtin_module_whose_work_a_variable_of_the_host_changes() -> None:
    """A builtin module has the environment of the login, and `environment:` can take no variable away."""
    found = {
        name: key
        for name, task in TASKS.items()
        for key in task
        if key.startswith(BUILTIN) and key.removeprefix(BUILTIN) not in HARMLESS
    }
    assert not found, "use a module of the collection, or a command with __slurm_ask"


def test_no_play_gathers_facts_with_variables_of_the_host() -> None:
    assert not [name for name, play in TASKS.items() if "hosts" in play and play.get("gather_facts") is not False]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_task_that_runs_a_command_does_so_without_variables_of_the_host(name: str) -> None:
    words = COMMANDS[name]
    first = words.removeprefix("[").strip("'").partition("'")[0]
    assert "__slurm_ask" in words or first in INDEPENDENT or any(program in words for program in OWN), words


def test_a_host_of_the_cluster_is_asked_without_a_proxy_of_the_site() -> None:
    asked = {name: task[f"{BUILTIN}uri"] for name, task in TASKS.items() if f"{BUILTIN}uri" in task}
    assert asked
    assert not [name for name, options in asked.items() if options.get("use_proxy") is not False]


@pytest.mark.parametrize("archive", [False, True])
def test_the_words_before_a_command(archive: bool, seen: Callable[[], Any]) -> None:
    # A stand-in is found where the words have a PATH of their own.
    words = [word.replace(PATH_OF_WORDS, os.environ["PATH"]) for word in (ASKING_ARCHIVE if archive else ASKING)]
    subprocess.run([*words, "show", "a b"], check=True, capture_output=True)
    kept = OF_A_SITE if archive else {}
    assert {key: value for key, value in seen().items() if key in {**OF_THE_HOST, **OF_A_SITE}} == kept


# -- what a new place needs ------------------------------------------------------------------------------------------

OF_OTHERS = {
    "accept_results.py": 1,  # a job's, which belong to its allocation
}
"""Calls in programs of roles whose environment is not ours, except in the tools of users."""


def calls_without_environment(path: Path) -> list[int]:
    """The lines that start a process with the environment of the program."""
    text = path.read_text()
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("subprocess.run", "subprocess.Popen"):
            given = next((ast.unparse(word.value) for word in node.keywords if word.arg == "env"), "os.environ")
            if "os.environ" in given or given.endswith("None"):
                found.append(node.lineno)
    return found


def test_each_program_of_a_role_gives_its_commands_an_environment() -> None:
    files = [path for path in ROLES.glob("*/files/**/*") if path.is_file() and "job_tools" not in path.parts]
    files += (ROLES.parent / "plugins/module_utils/programs").rglob("*.py")
    programs = [path for path in files if b"\nfrom __future__ import" in path.read_bytes()]
    found = {path.name: lines for path in programs if (lines := calls_without_environment(path))}
    assert {name: len(lines) for name, lines in found.items()} == OF_OTHERS, found
