# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role pyxis."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...configuration.spank import plugstack_lines
from ...jobs.validation import container_jobs
from ..known import registered
from ..known.host_paths import JOB_DIR, PYXIS_DIR, PYXIS_PLUGIN
from ..known.packages import MANAGED
from ..known.platform import platform, slurm_release
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, plain_file
from ..known.whole_cluster import profile, serving_controller

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import Command

OPTION = "--container-image"
"""The option of srun that the plugin adds."""

OF_PYXIS = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY")
"""States of a job that has run in a container in vain. A job that was refused, waits or still runs tells nothing."""


# -- the package -----------------------------------------------------------------------------------------------------


ANY_LINE = rf"^(optional|required) {re.escape(PYXIS_PLUGIN)}( .*)?$"
"""A regular expression for any line of the plugin in plugstack.conf."""


@dataclass(frozen=True)
class PyxisPackage:
    """Parameters of the tasks `packages` of role slurm."""

    packages: list[dict[str, str]]
    files: list[HostFile]
    release: str
    """The release of Slurm that the plugin in the package must be for."""


def package(host: RunHost) -> PyxisPackage:
    """The package for the host's release of Slurm."""
    release = slurm_release(host)
    return PyxisPackage([host["pyxis_packages"][release]], boot_files(), release)


def boot_files() -> list[HostFile]:
    """The runtime directory of pyxis at each boot.

    slurmd makes the directory only when it starts. What a node that was reset has left there is removed at its boot.
    """
    text = f"{MANAGED} See tmpfiles.d(5).\nd {PYXIS_DIR} 0755 root root -\nR! {PYXIS_DIR}/*\n"
    return [plain_file("/etc/tmpfiles.d/gpucluster-pyxis.conf", text)]


def package_objections(host: RunHost) -> list[str]:
    """Why a host has no package: there is none for its release of Slurm."""
    release, packages = slurm_release(host), host["pyxis_packages"]
    if release in packages:
        return []
    return [
        f"pyxis_packages: {host.name} has Slurm {release}, and there are packages for "
        f"{', '.join(map(str, packages)) or 'no release'}; one of another release would not be loaded"
    ]


# -- the line of plugstack.conf --------------------------------------------------------------------------------------


def plugin_arguments(host: RunHost) -> list[str]:
    """The arguments of the plugin.

    pyxis imports images as files in its runtime path, which is in memory by default: an image of several GB would count
    as memory of its job, which Slurm would end, or fill /run.
    """
    wanted = list(host.option("pyxis", "pyxis_arguments"))
    own = [] if any(str(argument).startswith("runtime_path=") for argument in wanted) else [f"runtime_path={PYXIS_DIR}"]
    return own + wanted


def line(host: RunHost) -> str:
    """The line of plugstack.conf as soon as a container has run with the plugin."""
    required = host.flag("pyxis", "pyxis_required")
    return plugstack_lines([{"plugin": PYXIS_PLUGIN, "arguments": plugin_arguments(host), "required": required}])


def conf_with_line(host: RunHost, in_force: str) -> str:
    """plugstack.conf as it was read, with this line of the plugin instead of the present one."""
    text = base64.b64decode(registered.PYXIS_CONF.of(host)["content"]).decode()
    return re.sub(ANY_LINE, in_force, text, flags=re.MULTILINE)


def conf_copies(host: RunHost) -> list[str]:
    """The hosts with a copy of plugstack.conf, in addition to the controller that is asked.

    sackd fetches the configuration anew by itself.
    """
    others = [name for name in host["slurm_controllers"] if name != serving_controller(host)]
    return list(dict.fromkeys(others)) + ([] if platform(host).sackd else host.members("slurm_login"))


def replaces_plugin(host: RunHost) -> bool:
    """Whether jobs of a host get another plugin than the one that they have.

    A host without a plugin has no jobs yet.
    """
    hosts = [host.of(name) for name in host.play_hosts]
    packaged = {registered.SLURM_PACKAGES_RUN.of(other)["plugins"][0]["sha256"] for other in hosts}
    found = {other.facts["files"][PYXIS_PLUGIN] for other in hosts if PYXIS_PLUGIN in other.facts["files"]}
    return not found <= packaged


def optional_line(host: RunHost) -> str:
    """The previous line as it is until a container has run with another plugin; empty if it stays as it is.

    slurmd does not start with a required plugin that fails, and a batch job there drains its node.
    """
    previous = registered.PYXIS_RECORD.of(host)["former_line"]
    makes_optional = not host.check_mode and previous.startswith("required") and replaces_plugin(host)
    return re.sub("^required", "optional", previous) if makes_optional else ""


# -- the check -------------------------------------------------------------------------------------------------------


def needs_check(host: RunHost) -> bool:
    """Whether a container has to run, because a host of the play has another plugin, or plugstack.conf another line."""
    plugins = registered.PYXIS_PLUGIN.by_host(host, host.play_hosts).values()
    results = [registered.PYXIS_RECORD.seen(host), *plugins]
    return not host.check_mode and any(result.get("unproven") for result in results)


def has_options(host: RunHost) -> bool:
    """Whether srun of this host has the options of containers.

    Where another plugin is to be checked, it may lack them: then the role restores the previous one and fails.
    """
    return OPTION in registered.PYXIS_HELP.of(host)["stdout"] or needs_check(host)


@dataclass(frozen=True)
class CheckJob:
    """Options of slurm_job for a container on a node of each machine type."""

    jobs: list[dict[str, Any]]
    output: str
    """A job of root writes no file into the directory of the logs: user slurm, who owns it, could put a link there."""
    user: str


def check_job(host: RunHost) -> CheckJob:
    """The job on the nodes of the play, or on all nodes if it has none."""
    compute, user = host.members("slurm_compute"), profile(host).job_user
    jobs = container_jobs(
        host["slurm_partitions"],
        host["slurm_nodes"],
        host["slurm_hardware_types"],
        host["slurm_conf"],
        [name for name in compute if name in host.play_hosts] or compute,
    )
    return CheckJob(jobs, f"{'/run/gpucluster-slurm-pyxis' if user == 'root' else f'{JOB_DIR}/pyxis'}.log", user)


@dataclass(frozen=True)
class ContainerCheck:
    """What the jobs and srun's options have shown, for the whole play."""

    needed: bool
    broken: bool
    """Whether the previous plugin and line are restored."""
    proven: bool
    """Whether a container has run."""
    remark: str
    """Why no container has run on a machine type; empty if one has on each."""
    log_host: str
    """The compute node that has the output of the failed job; empty without one. The host that ran the job names it."""


def check_result(host: RunHost) -> ContainerCheck:
    """What is known after the jobs."""
    jobs, needed = check_jobs(host), needs_check(host)
    broken = lacks_options(host) or any(job["state"] in OF_PYXIS for job in jobs)
    proven = not broken and any(job["ok"] for job in jobs)
    waiting = "; ".join(f"the job {job['message']}" for job in jobs if not job["ok"])
    node = failed_job(host)["nodes"]
    return ContainerCheck(
        needed=needed,
        broken=broken,
        proven=proven,
        remark=unverified_message(host, waiting, proven) if needed and waiting and not broken else "",
        log_host=node if node in host.members("slurm_compute") else "",
    )


def unverified_message(host: RunHost, waiting: str, proven: bool) -> str:
    """The message about jobs that have not run in a container."""
    if proven:
        return f"pyxis is not verified on all machine types: {waiting}."
    if host.flag("pyxis", "pyxis_required"):
        return (
            f"pyxis is not verified: {waiting}. The next run tries again. Until then the plugin is optional: the "
            "command of a container that does not start runs on the host."
        )
    return f"pyxis is not verified: {waiting}. The next run tries again."


def check_jobs(host: RunHost) -> Sequence[Mapping[str, Any]]:
    """The jobs of the check; one that has not run if there is none."""
    run = registered.PYXIS_RUN.seen(host)
    message = run.get("msg", "has not run")
    return run.get("jobs") or [{"name": "pyxis", "state": "", "ok": False, "nodes": "", "message": message}]


def failed_job(host: RunHost) -> Mapping[str, Any]:
    """The first job that has failed, or else the first one."""
    jobs = check_jobs(host)
    return next((job for job in jobs if job["state"] in OF_PYXIS), jobs[0])


def answers_of_srun(host: RunHost) -> list[Command]:
    """What `srun --help` has said on each host of the play that was asked."""
    answers = registered.PYXIS_HELP.by_host(host, host.play_hosts).values()
    return [answer for answer in answers if "stdout" in answer]


def lacks_options(host: RunHost) -> bool:
    """Whether srun of a host lacks the options of containers."""
    return any(OPTION not in answer["stdout"] for answer in answers_of_srun(host))


def failure(host: RunHost) -> str:
    """Why the role fails, after it has restored the previous plugin and line."""
    if lacks_options(host):
        errors = (answer["stderr"] for answer in answers_of_srun(host) if answer["stderr"])
        reason = f"srun --help lacks --container-image: {next(errors, '')}"
    else:
        job = failed_job(host)
        reason = f"The job {job['name']} {job['message']}"
    said = registered.PYXIS_OUTPUT.seen(host).get("stdout", "")
    if registered.PYXIS_RESTORED.of(host)["unproven"]:
        return (
            "pyxis: no container has run after the change. The new plugin stays, since the previous one is for another "
            f"release of Slurm. {reason} {said}"
        )
    return (
        "pyxis: no container has run after the change. The previous line of plugstack.conf and the previous plugin are "
        f"restored, or removed if there were none. {reason} {said}"
    )
