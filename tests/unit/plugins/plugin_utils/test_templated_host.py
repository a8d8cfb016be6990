# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host as decisions see it, from Ansible's variables."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from ansible import constants
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar, trust_as_template
from ansible_collections.gpucluster.slurm.plugins.plugin_utils import templated_host
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.templated_host import Run, TemplatedHost, once

TEMPLATES = {
    "lines.j2": "{# {{ own }} #}\n{% for word in words %}\n  {{ word }}{{ ' x' if loop.last }}\n{% endfor %}\n\nend",
    "ends.j2": "{% if nested.deep %}\na\\nb \\d {{ nested.deep | regex_replace('(?m)^', '# ') }}\n{% endif %}\n \n\n",
    "more.j2": "{{ further }}{{ own | regex_replace('(.)$', '\\\\1\\\\1') }}\n",
    "list.j2": "[1, 2]",
    "empty.j2": "",
}


def host(**variables: Any) -> TemplatedHost:
    """A host with these variables."""
    loader = DataLoader()
    return TemplatedHost({"inventory_hostname": "n1", **variables}, Templar(loader), loader)


def test_a_variable_is_templated_and_plain() -> None:
    found = host(a=trust_as_template("{{ b }}"), b=[1, {"c": trust_as_template("{{ d }}")}], d="x{{ y }}")["a"]
    assert found == [1, {"c": "x{{ y }}"}]
    assert (type(found), type(found[1])) == (list, dict)


def test_what_a_host_has_said_is_no_template() -> None:
    answer = {"ansible_facts": {"slurm_host": {"hostname": trust_as_template("{{ 1 + 1 }}")}}}
    assert host(__slurm_facts=answer).facts["hostname"] == "{{ 1 + 1 }}"
    assert host(__slurm_facts=trust_as_template("{{ own }}"), own=answer).facts["hostname"]


def test_shared_variables_have_the_defaults_of_role_slurm() -> None:
    assert host()["slurm_packages"] == "distribution"
    assert host(slurm_profile="strict")["slurm_no_new_privileges"] is True
    with pytest.raises(KeyError):
        host()["slurm_nothing"]


@pytest.mark.parametrize(("value", "expected"), [(True, True), ("yes", True), ("False", False), ("no", False)])
def test_an_option_that_is_on_or_off_may_be_a_text(value: Any, expected: bool) -> None:
    assert host(base_manage_hosts_file=value).flag("base", "base_manage_hosts_file") is expected
    assert host().flag("base", "base_manage_hosts_file") is True


def test_a_relative_path_is_searched_as_by_lookups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/ib").write_text("check")
    found = host(ansible_search_path=["/nowhere", str(tmp_path)])
    monkeypatch.setenv("PLACE", str(tmp_path))
    assert found.content("ib") == b"check"
    assert found.content("$PLACE/files/ib") == b"check"
    assert found.content("other") is None


def test_a_name_has_the_addresses_that_the_control_host_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(name: str, _port: None, **_options: Any) -> list[tuple[Any, ...]]:
        if name == "a.example.org":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (address, 0)) for address in ("2001:db8::1", "10.0.0.2", "10.0.0.2")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert host().resolve(["b", "a.example.org"]) == {"b": ["10.0.0.2", "2001:db8::1"], "a.example.org": []}
    assert host().resolve([]) == {}


def test_a_result_for_all_hosts_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    calls: list[int] = []

    def compute() -> dict[str, int]:
        calls.append(1)
        return {"a": len(calls)}

    assert [once("x", compute), once("x", compute), once("y", compute)] == [{"a": 1}, {"a": 1}, {"a": 2}]


def test_another_case_of_the_cluster_has_results_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(Run, "of_collection", True)
    monkeypatch.setattr(TemplatedHost, "of", lambda self, _name: self)
    now = host(ansible_play_hosts_all=["n1"], slurm_people={"source": "directory"})
    before = now.extended(__slurm_case="_before", slurm_people={"source": "list"})
    for _again in range(2):
        assert (now.shared("uses_directory"), before.shared("uses_directory")) == (True, False)
    assert now.extended(slurm_people={}).shared("uses_directory")


@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_are_those_of_ansible(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r/templates").mkdir(parents=True)
    file = tmp_path / "r/templates" / name
    file.write_text(TEMPLATES[name])
    monkeypatch.setattr(templated_host, "ROLES", tmp_path)
    texts = {"own": "x{{ 1 }}", "words": ["a", "{{ own }}"], "nested": {"deep": "{{ words[0] }}\n2"}}
    variables = templated_host.trusted(texts)
    loader = DataLoader()
    templar = Templar(loader, variables={**variables, "further": "a-"})
    (theirs,) = lookup_loader.get("ansible.builtin.template", loader=loader, templar=templar).run(
        [str(file)], variables={**variables, "further": "a-"}
    )
    assert host(**variables).text("r", name, further="a-") == theirs
    if name == "lines.j2":
        assert theirs == "  a\n  x1 x\n\nend"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),  # ansible.cfg of the checkout
        ({"ansible_pipelining": False}, True),
        ({"ansible_ssh_pipelining": trust_as_template("{{ 1 == 2 }}")}, True),
        ({"ansible_become_method": "su"}, True),
        ({"ansible_connection": "local"}, True),
        ({"ansible_connection": "local", "ansible_pipelining": True}, False),
    ],
)
def test_without_pipelining_arguments_of_modules_become_files(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], expected: bool
) -> None:
    monkeypatch.setattr(TemplatedHost, "of", lambda _self, _name: host(**variables))
    assert host(ansible_pipelining=False).writes_arguments is expected
    monkeypatch.setattr(constants, "DEFAULT_KEEP_REMOTE_FILES", True)
    assert host().writes_arguments


DROP_IN = {"servers": "head:6817", "read_at_start": "", "automounts": False}


def test_texts_of_a_host_have_the_defaults_of_role_slurm() -> None:
    """Another host of the inventory has no variables of the role that runs."""
    assert "NoNewPrivileges" not in host().text("slurmd", "slurmd.service.j2", **DROP_IN)
    own = host(slurm_no_new_privileges=True).text("slurmd", "slurmd.service.j2", **DROP_IN)
    assert "NoNewPrivileges" in own
    assert "After=" not in own
    assert "\nAfter=autofs.service\n" in host().text("slurmd", "slurmd.service.j2", **{**DROP_IN, "automounts": True})
