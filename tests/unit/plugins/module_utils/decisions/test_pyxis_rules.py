# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role pyxis."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.software import pyxis
from plain_host import PlainHost, cluster

PLUGIN = "/usr/local/lib/gpucluster-slurm/spank_pyxis.so"
OPTIONS: dict[str, Any] = {
    "pyxis_packages": {"24.11": {"file": "p.deb"}},
    "pyxis_arguments": [],
    "pyxis_required": True,
}
LINE = f"required {PLUGIN} runtime_path=/var/lib/pyxis"
OTHER = {"name": "pyxis/m", "nodes": "n1", "ok": False}


def hosts(**variables: Any) -> dict[str, PlainHost]:
    """A cluster whose hosts have the package of pyxis."""
    found: dict[str, PlainHost] = cluster(**OPTIONS | variables)
    for host in found.values():
        host.set(__slurm_packages_run={"plugins": [{"path": "/usr/lib/spank_pyxis.so", "sha256": "new"}]})
    return found


@pytest.mark.parametrize(
    ("arguments", "required", "line"),
    [
        ([], True, LINE),
        (["container_scope=job"], "yes", f"{LINE} container_scope=job"),
        (["runtime_path=/run/pyxis"], False, f"optional {PLUGIN} runtime_path=/run/pyxis"),
    ],
)
def test_images_are_on_the_disk_unless_the_site_says_otherwise(
    arguments: list[str], required: bool | str, line: str
) -> None:
    assert pyxis.line(hosts(pyxis_arguments=arguments, pyxis_required=required)["n1"]) == line


def test_an_argument_that_slurm_would_not_read_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed: a word without blanks"):
        pyxis.line(hosts(pyxis_arguments=["a b"])["n1"])


def test_a_host_without_a_package_for_its_release_is_refused() -> None:
    assert pyxis.package_objections(hosts()["n1"]) == []
    assert pyxis.package_objections(hosts(pyxis_packages={"25.05": {}, "25.11": {}})["n1"]) == [
        "pyxis_packages: n1 has Slurm 24.11, and there are packages for 25.05, 25.11; one of another release would not "
        "be loaded"
    ]
    assert "there are packages for no release;" in pyxis.package_objections(hosts(pyxis_packages={})["n1"])[0]
    assert pyxis.package(hosts()["n1"]).packages == [{"file": "p.deb"}]


@pytest.mark.parametrize(
    ("present", "replaces"),
    [
        pytest.param({}, False, id="no plugin, no jobs"),
        pytest.param({"n1": "new"}, False, id="the same plugin"),
        pytest.param({"n1": "new", "n2": "old"}, True, id="another one on one host"),
    ],
)
def test_the_line_is_optional_while_jobs_get_another_plugin(present: dict[str, str], replaces: bool) -> None:
    found = hosts()
    for name, digest in present.items():
        found[name].say(files={PLUGIN: digest})
    host = found["n1"].set(__pyxis_record={"former_line": LINE})
    assert pyxis.replaces_plugin(host) == replaces
    assert pyxis.optional_line(host) == (LINE.replace("required", "optional") if replaces else "")
    assert not pyxis.optional_line(host.set(__pyxis_record={"former_line": f"optional {PLUGIN}"}))
    assert not pyxis.optional_line(host.set(__pyxis_record={"former_line": LINE}, ansible_check_mode=True))


def test_only_the_line_of_the_plugin_changes() -> None:
    conf = f"# a\noptional /usr/lib/other.so\n{LINE} a=1\nrequired {PLUGIN}x\n"
    host = hosts()["n1"].set(__pyxis_conf={"content": base64.b64encode(conf.encode()).decode()})
    expected = f"# a\noptional /usr/lib/other.so\noptional {PLUGIN}\nrequired {PLUGIN}x\n"
    assert pyxis.conf_with_line(host, f"optional {PLUGIN}") == expected


def test_copies_of_the_configuration_are_on_controllers_and_on_login_hosts_without_sackd() -> None:
    found = hosts(slurm_controllers=["head", "second"])
    assert pyxis.conf_copies(found["n1"]) == ["second"]
    assert pyxis.conf_copies(found["n1"].say(slurm_version="23.02.1")) == ["second", "login"]


def test_the_check_runs_on_the_nodes_of_the_play() -> None:
    (job,) = pyxis.check_job(hosts(ansible_play_hosts=["login", "n2"])["login"]).jobs
    assert job["options"] == {"exclude": "n1"}
    (job,) = pyxis.check_job(hosts(ansible_play_hosts=["login"])["login"]).jobs
    assert "options" not in job


@pytest.mark.parametrize(
    ("profile", "user", "output"),
    [
        ("standard", "root", "/run/gpucluster-slurm-pyxis.log"),
        ("strict", "slurm-check", "/var/lib/slurm-check/pyxis.log"),
    ],
)
def test_nobody_else_can_put_a_link_where_the_job_writes(profile: str, user: str, output: str) -> None:
    job = pyxis.check_job(hosts(slurm_profile=profile)["login"])
    assert (job.user, job.output) == (user, output)


def proven(run: dict[str, Any], help_text: str = "--container-image", **variables: Any) -> pyxis.ContainerCheck:
    """What is known after this answer of slurm_job, on a cluster with a new plugin."""
    found = hosts(**variables)
    found["login"].set(__pyxis_help={"stdout": help_text, "stderr": ""})
    found["n1"].set(__pyxis_plugin={"unproven": True})
    return pyxis.check_result(found["n2"].set(__pyxis_run=run))


def test_a_container_has_run() -> None:
    run = {"jobs": [OTHER | {"ok": True, "state": "COMPLETED", "message": "has ended"}]}
    proof = proven(run)
    assert (proof.needed, proof.broken, proof.proven, proof.remark) == (True, False, True, "")
    assert not proven(run, ansible_check_mode=True).needed


@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "OUT_OF_MEMORY"])
def test_a_container_has_failed(state: str) -> None:
    waiting = OTHER | {"state": "PENDING", "nodes": "", "message": "waits"}
    proof = proven({"jobs": [waiting, OTHER | {"state": state, "message": "has failed"}]})
    assert (proof.broken, proof.proven, proof.remark, proof.log_host) == (True, False, "", "n1")


def test_srun_without_the_options_is_broken_whatever_the_jobs_say() -> None:
    run = {"jobs": [OTHER | {"ok": True, "state": "COMPLETED", "message": "has ended"}]}
    proof = proven(run, help_text="usage: srun")
    assert (proof.broken, proof.proven) == (True, False)


@pytest.mark.parametrize(
    ("run", "required", "remark"),
    [
        (
            {"jobs": [OTHER | {"state": "PENDING", "message": "waits"}]},
            True,
            "pyxis is not verified: the job waits. The next run tries again. Until then the plugin is optional: the "
            "command of a container that does not start runs on the host.",
        ),
        ({"msg": "no sbatch"}, False, "pyxis is not verified: the job no sbatch. The next run tries again."),
        ({}, False, "pyxis is not verified: the job has not run. The next run tries again."),
    ],
)
def test_a_job_that_has_not_run_confirms_nothing(run: dict[str, Any], required: bool, remark: str) -> None:
    proof = proven(run, pyxis_required=required)
    assert (proof.needed, proof.broken, proof.proven, proof.remark) == (True, False, False, remark)


def test_only_a_compute_node_is_asked_for_the_output() -> None:
    run = {"jobs": [OTHER | {"state": "FAILED", "nodes": "/etc/shadow", "message": "has failed"}]}
    assert proven(run).log_host == ""


@pytest.mark.parametrize(
    ("help_text", "unproven", "expected"),
    [
        (
            "--container-image",
            False,
            "pyxis: no container has run after the change. The previous line of plugstack.conf and the previous "
            "plugin are restored, or removed if there were none. The job pyxis/m has failed the output",
        ),
        (
            "usage",
            True,
            "pyxis: no container has run after the change. The new plugin stays, since the previous one is for "
            "another release of Slurm. srun --help lacks --container-image: wrong the output",
        ),
    ],
)
def test_the_role_fails_with_the_reason(help_text: str, unproven: bool, expected: str) -> None:
    found = hosts()
    found["login"].set(__pyxis_help={"stdout": help_text, "stderr": "wrong"})
    host = found["n1"].set(
        __pyxis_run={"jobs": [OTHER | {"state": "FAILED", "message": "has failed"}]},
        __pyxis_restored={"unproven": unproven},
        __pyxis_output={"stdout": "the output"},
    )
    assert pyxis.failure(host) == expected


def test_srun_without_the_options_fails_at_once_only_if_nothing_can_be_restored() -> None:
    host = hosts()["login"].set(__pyxis_help={"stdout": ""})
    assert pyxis.has_options(host.set(__pyxis_record={"unproven": True}))
    assert not pyxis.has_options(host.set(__pyxis_record={"unproven": False}))
    assert pyxis.has_options(host.set(__pyxis_help={"stdout": "--container-image"}))
