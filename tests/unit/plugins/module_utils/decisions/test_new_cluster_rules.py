# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role new_cluster: refusals before any host is reached, and what is taken from the hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import new_cluster
from plain_host import PlainHost
from standing_hosts import honest


def control_host(directory: Path, names: tuple[str, ...] = ("a", "b"), **variables: Any) -> PlainHost:
    """The control host, and hosts of a plain inventory, which have no variables of a cluster."""
    own = {
        "inventory_hostname": "localhost",
        "groups": {"all": ["localhost", *names]},
        "new_cluster_name": "x",
        "new_cluster_dir": str(directory),
        "new_cluster_controllers": "",
        "new_cluster_database": "",
        "new_cluster_login": "",
        "new_cluster_compute": "",
        "new_cluster_state_directory": "",
    }
    host = PlainHost(own | variables)
    host.hosts = {"localhost": host, **{name: PlainHost({"inventory_hostname": name}) for name in names}}
    return host


def reached(host: PlainHost, name: str) -> None:
    """Let a host have answered."""
    result = honest(name)["slurm_host_facts"]
    facts = result["ansible_facts"]["slurm_host"]
    facts |= {"slurm_version": "", "free_mib": {"/var/lib": 50000, "/var/log": 60000}}
    host.of(name).set(
        __new_cluster_facts=result,
        __new_cluster_processes={"rc": 1, "stdout": ""},
        __new_cluster_addresses={"rc": 0, "stdout": f"10.0.0.{ord(name) - 96}"},
    )


def test_a_correct_choice_is_not_refused(tmp_path: Path) -> None:
    assert new_cluster.objections(control_host(tmp_path, new_cluster_login="b")) == []


def test_variables_of_connections_have_a_place(tmp_path: Path) -> None:
    """The inventory of the hosts has them, and the next commands do without it."""
    host = control_host(tmp_path)
    path = f"{tmp_path}/x.cluster.yml"
    commands = [f"ansible-playbook gpucluster.slurm.site -i {path}{end}" for end in (" --check --diff", "")]
    assert new_cluster.next_commands(host) == [f"Read {path}, then:", *commands]
    host.of("a").set(ansible_user="admin", ansible_host="10.0.0.1", ansible_ssh_host_key_rsa_public="x")
    host.of("b").set(ansible_ssh_private_key_file="~/.ssh/id_ed25519", ansible_version={})
    assert new_cluster.next_commands(host) == [
        f"Read {path}, then:",
        f"Write ansible_ssh_private_key_file, ansible_user of your inventory into {tmp_path}/group_vars/"
        "slurm_cluster.yml: the cluster file has none of them.",
        *commands,
    ]


def test_names_by_which_ssh_reached_hosts_are_told(tmp_path: Path) -> None:
    """Runs connect to addresses, under which ssh may not know the hosts' keys."""
    host = control_host(tmp_path, ("a1", "a2", "b", "c", "10.0.0.9"))
    for name in ("a1", "a2", "b", "c", "10.0.0.9"):
        host.of(name).set(__new_cluster_addresses={"stdout": "10.0.0.1"})
    host.of("a2").set(ansible_host="a2.example.org")
    host.of("b").set(ansible_host="10.0.0.2")
    host.of("c").set(ansible_connection="local")
    assert new_cluster.reached_by_name(host) == ["a1", "a2"]
    (told,) = (line for line in new_cluster.next_commands(host) if line.startswith("See that ssh knows "))
    assert told.startswith("See that ssh knows a[1-2] by address too")
    for name in ("a1", "a2"):
        host.of(name).set(ansible_connection="local")
    assert not any("See that ssh" in line for line in new_cluster.next_commands(host))


def variables(host: PlainHost) -> str:
    """The lines of the variables that are written, without the comment."""
    return new_cluster.settings(host)["group_vars/slurm_cluster.yml"].partition("hosts.\n")[2]


def test_what_is_alike_for_all_hosts_is_written(tmp_path: Path) -> None:
    host = control_host(tmp_path)
    for name in ("a", "b"):
        host.of(name).set(ansible_port=2222, ansible_become_password="x", __new_cluster_user={"stdout": "admin"})
    host.of("a").set(ansible_ssh_private_key_file="a.key")
    assert variables(host) == 'ansible_port: 2222\nansible_user: "admin"\n'
    left = "Write ansible_become_password, ansible_ssh_private_key_file of your inventory into "
    assert new_cluster.next_commands(host)[1].startswith(left)
    assert {"ansible.cfg", ".gitignore"} < {*new_cluster.settings(host)}


def test_the_inventorys_user_wins_and_no_text_of_a_host_is_a_template(tmp_path: Path) -> None:
    host = control_host(tmp_path, ("a",))
    host.of("a").set(__new_cluster_user={"stdout": "{{ lookup('pipe', 'id') }}"}, ansible_ssh_common_args="{{ x }}")
    assert variables(host) == ""
    host.of("a").set(__new_cluster_user={"stdout": "admin"}, ansible_user="root")
    assert variables(host) == 'ansible_user: "root"\n'


def test_a_cluster_file_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "x.cluster.yml").write_text("")
    (line,) = new_cluster.objections(control_host(tmp_path))
    way = "set another new_cluster_name or new_cluster_dir"
    assert line == f"{tmp_path}/x.cluster.yml exists already and is not overwritten; {way}"


def test_a_missing_directory_is_named_after_the_wrong_choices(tmp_path: Path) -> None:
    host = control_host(tmp_path / "no", ("a",), new_cluster_login="c", new_cluster_logins="c")
    variable, login, directory = new_cluster.objections(host)
    assert variable.startswith("new_cluster_logins: unknown variable, did you mean 'new_cluster_login'?")
    assert login.startswith("new_cluster_login: found 'c', unknown host")
    assert directory == f"new_cluster_dir: {tmp_path}/no is not a directory"


def test_the_control_host_is_no_host_of_the_cluster(tmp_path: Path) -> None:
    (line,) = new_cluster.objections(control_host(tmp_path, ()))
    assert line == "the inventory has no hosts, allowed: -i host1,host2, or -i FILE"


def test_a_host_that_no_task_has_reached_is_left_out(tmp_path: Path) -> None:
    host = control_host(tmp_path)
    reached(host, "a")
    host.of("b").set(
        __new_cluster_facts={"no_answer": {"unreachable": True, "msg": "No route"}}, ansible_host="10.0.0.7"
    )
    found = new_cluster.result(host)
    assert found["errors"] == []
    assert found["cluster"]["controllers"] == "a"
    assert found["remarks"][0] == "b is left out: unreachable: No route"


def test_the_schema_is_a_file() -> None:
    assert Path(new_cluster.SCHEMA).is_file()
