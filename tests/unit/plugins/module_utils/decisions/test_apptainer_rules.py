# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role apptainer, and of containers that users make on a host."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import containers
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.software import apptainer
from plain_host import PlainHost, cluster

OPTIONS: dict[str, Any] = {
    "apptainer_packages": [{"name": "apptainer"}],
    "apptainer_suite": "sid",
    "apptainer_setuid": False,
    "apptainer_bind_paths": [],
    "apptainer_conf": {},
    "apptainer_cache_dir": "",
    "apptainer_tmp_dir": "",
    "apptainer_fakeroot_uids": [],
}
SOURCE = "/etc/apt/sources.list.d/gpucluster-apptainer.list"


def node(**variables: Any) -> PlainHost:
    """The node n1 with these variables."""
    return cluster(**OPTIONS | variables)["n1"]


@pytest.mark.parametrize(
    ("uids", "wrong"),
    [
        (["1000", "1000-1999", 5], []),
        (["0", "x", "1000-", "70000", "1-65535"], ["0", "x", "1000-", "70000", "65535"]),
    ],
)
def test_ids_have_room_for_subordinate_ids(uids: list[Any], wrong: list[str]) -> None:
    assert apptainer.wrong_user_ids(uids) == wrong


def test_the_subordinate_ids_of_a_user_are_the_same_everywhere() -> None:
    text = apptainer.subordinate_ids(node(apptainer_fakeroot_uids=["5", "1000-1001"]))
    assert text == "5:327680:65536\n1000:65536000:65536\n1001:65601536:65536\n"
    assert apptainer.subordinate_ids(node()) == ""


@pytest.mark.parametrize("suite", ["stable", "oldstable", "testing", "unstable", "experimental", "proposed-updates"])
def test_apt_knows_a_suite_by_its_codename(suite: str) -> None:
    (objection,) = apptainer.objections(node(apptainer_suite=suite))
    assert objection.startswith(f"apptainer_suite: found {suite}, allowed: a codename")


@pytest.mark.parametrize("suite", ["", "sid", "rc-buggy", "trixie-backports"])
def test_a_codename_is_taken(suite: str) -> None:
    assert apptainer.objections(node(apptainer_suite=suite)) == []


@pytest.mark.parametrize(
    ("variables", "facts", "expected"),
    [
        pytest.param({}, {"candidates": {}}, True, id="nowhere else"),
        pytest.param({}, {"candidates": {"apptainer": "1"}}, False, id="in a repository of the host"),
        pytest.param({}, {"candidates": {"apptainer": "1"}, "files": {SOURCE: "0"}}, True, id="in the suite"),
        pytest.param({"apptainer_suite": ""}, {"candidates": {}}, False, id="no suite"),
        pytest.param({"apptainer_packages": [{"file": "a.deb"}]}, {"candidates": {}}, False, id="a file"),
    ],
)
def test_the_suite_is_added_only_if_apptainer_comes_from_it(
    variables: dict[str, Any], facts: dict[str, Any], expected: bool
) -> None:
    host = node(**variables).say(**facts)
    paths = [entry["path"] for entry in apptainer.files(host)]
    assert apptainer.from_suite(host) == (SOURCE in paths) == expected
    objections = apptainer.mirror_objections(host.say(mirror=""))
    assert bool(objections) == (expected and SOURCE not in facts.get("files", {}))
    assert apptainer.mirror_objections(host.say(mirror="http://mirror.example.org/")) == []


def test_apts_files_for_the_suite_stay_where_apt_has_no_lists() -> None:
    """A host from an image has none, and apptainer is there."""
    host = node().say(candidates={"apptainer": "1"}, files={SOURCE: "0"}, mirror="")
    assert apptainer.mirror_objections(host) == []
    assert [entry["path"] for entry in apptainer.files(host) if entry["path"].startswith("/etc/apt/")] == []


def test_the_values_of_the_site_win_and_paths_of_apptainer_stay() -> None:
    host = node(
        apptainer_bind_paths=["/data"],
        apptainer_conf={"always use nv": True, "mount dev": ["a", ["b", None]], "allow setuid": True},
    )
    lines = [
        *[
            ("allow setuid", "yes"),
            ("bind path", "/etc/localtime"),
            ("bind path", "/etc/hosts"),
            ("bind path", "/data"),
        ],
        *[("always use nv", "yes"), ("mount dev", "a"), ("mount dev", "b")],
    ]
    assert apptainer.conf_text(host) == f"apptainer/apptainer.conf.j2 {[('directives', lines)]}"


def test_a_value_of_two_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="found a newline"):
        apptainer.conf_text(node(apptainer_conf={"a": "b\nc"}))


def test_directories_of_users_are_expressions_of_the_shell() -> None:
    text = apptainer.profile_text(node(apptainer_cache_dir="/cache/%U-%u"))
    assert "{'CACHEDIR': '/cache/$(id -u)-$(id -un)'}" in text


@pytest.mark.parametrize(
    ("namespaces", "message"),
    [
        ({"max_user_namespaces": 0}, "user.max_user_namespaces is 0, allowed: more than 0"),
        ({"max_user_namespaces": None}, "user.max_user_namespaces is missing"),
        ({"unprivileged_userns_clone": 0}, "kernel.unprivileged_userns_clone is 0, allowed: 1"),
    ],
)
def test_a_kernel_that_does_not_let_users_make_containers(namespaces: dict[str, Any], message: str) -> None:
    honest = {"max_user_namespaces": 1, "unprivileged_userns_clone": None, "apparmor_restrict_unprivileged_userns": 1}
    (objection,) = containers.kernel_objections(node().say(namespaces=honest | namespaces))
    assert message in objection
    assert containers.kernel_objections(node().say(namespaces=honest)) == []


def test_a_profile_of_apparmor_is_needed_where_it_restricts_namespaces() -> None:
    host = node().say(profiles={})
    assert apptainer.needs_profile(host)
    assert not apptainer.needs_profile(node(apptainer_setuid="yes").say(profiles={}))
    assert not apptainer.needs_profile(node(ansible_check_mode=True).say(profiles={}))
    assert not apptainer.needs_profile(host.say(profiles={"apptainer": "loaded"}))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("loaded", ""),
        ("missing", "the packages have no profile /etc/apparmor.d/enroot."),
        ("no userns", "has no rule userns"),
        ("not loaded", "(apparmor_parser --replace /etc/apparmor.d/enroot), or set"),
    ],
)
def test_a_profile_that_does_not_let_a_program_make_containers(state: str, message: str) -> None:
    result = {"ansible_facts": {"slurm_host": {"profiles": {"enroot": state}}}}
    objections = containers.profile_objections(node().set(__slurm_apparmor_facts=result), "enroot")
    assert [message in objection for objection in objections] == ([True] if message else [])
