# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin inside Ansible: its groups and variables, and what a user sees of a wrong file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import ExitCode
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible.plugins.loader import inventory_loader
from ansible.vars.manager import VariableManager
from ansible_collections.gpucluster.slurm.plugins.inventory import cluster
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import deprecated_names
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.keys import KEYS
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import SLURM_GROUPS
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.script_checks import content_of

COLLECTION = Path(__file__).parents[4]
CLUSTER_FILES = sorted(COLLECTION.glob("inventory/*/*.cluster.yml"))
GUIDE = COLLECTION / "inventory/guide/guide.cluster.yml"


def variables_of(host: str, path: Path) -> dict[str, object]:
    """All variables of a host, as a play has them."""
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=[str(path)])
    variables: dict[str, object] = VariableManager(loader, inventory).get_vars(host=inventory.get_host(host))
    return variables


def refusal(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a user sees of a wrong file, which ends Ansible. Some tests below start Ansible itself, which takes long."""
    with pytest.raises(SystemExit) as ended:
        InventoryManager(DataLoader(), sources=[str(path)])
    assert ended.value.code == ExitCode.PARSER_ERROR
    return "".join(capsys.readouterr())


def test_variables_are_on_the_group_of_all_hosts() -> None:
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=[str(GUIDE)])
    of_keys = {key.variable.name for key in KEYS if key.variable and not key.variable.of_site}
    others = {"slurm_accounting_accounts", "slurm_accounting_users", "slurm_cluster_dir", "slurm_hardware_file"}
    assert {*inventory.groups["slurm_cluster"].vars} == of_keys | others
    children = sorted(group.name for group in inventory.groups["slurm_cluster"].child_groups)
    assert children == sorted(SLURM_GROUPS)
    own = {"inventory_file", "inventory_dir"}
    assert {host.name: {k: v for k, v in host.vars.items() if k not in own} for host in inventory.get_hosts()} == {
        "head": {"ansible_host": "10.182.0.4"},
        "compute01": {"ansible_host": "10.182.0.2"},
        "compute02": {"ansible_host": "10.182.0.3"},
    }


def test_group_vars_and_host_vars_beside_the_file_win(tmp_path: Path) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text(GUIDE.read_text())
    for name, text in {
        "group_vars/slurm_cluster.yml": "slurm_conf: {KillWait: 1}",
        "host_vars/head.yml": "ansible_host: 192.0.2.1",
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    variables = variables_of("head", path)
    assert variables["slurm_conf"] == {"KillWait": 1}
    assert variables["ansible_host"] == "192.0.2.1"
    assert variables["slurm_database"] == "head"


def test_measured_hardware_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text(GUIDE.read_text().replace("hardware: n1-t4", "hardware: detected"))
    assert variables_of("head", path)["slurm_nodes"][1]["hardware"] == "detected"  # type: ignore[index]
    (tmp_path / "my.hardware.yml").write_text(
        "hardware: {new: {sockets: 1, cores_per_socket: 1, threads_per_core: 1, real_memory: 3000}}\n"
        "nodes: [{hosts: 'compute[01-02]', hardware: new}]\n"
    )
    assert variables_of("head", path)["slurm_nodes"][1]["hardware"] == "new"  # type: ignore[index]


def test_old_names_of_keys_warn_and_later_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a table of the test's own. A refused name is reported with the other problems of the file."""
    old = deprecated_names.OldName("key", "nodes.type", "hardware", "0.1.0", "0.2.0")
    monkeypatch.setattr(deprecated_names, "OLD_NAMES", (old,))
    path = tmp_path / "my.cluster.yml"
    path.write_text(GUIDE.read_text().replace("hardware: n1-t4", "type: n1-t4"))
    monkeypatch.setattr(deprecated_names, "collection_version", lambda: "0.1.5")
    assert variables_of("head", path)["slurm_nodes"][1]["hardware"] == "n1-t4"  # type: ignore[index]
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "my.cluster.yml: nodes[1].type: is called hardware since 0.1.0, and the old name is refused from 0.2.0" in said
    )
    monkeypatch.setattr(deprecated_names, "collection_version", lambda: "0.2.0")
    with pytest.raises(SystemExit):
        variables_of("head", path)
    said = capsys.readouterr().err
    assert "my.cluster.yml: line 21: nodes[1].type: unknown key since 0.2.0, did you mean 'hardware'?" in said
    assert "my.cluster.yml: line 21: nodes[1].hardware: missing" in said


PEOPLE = {
    "people.csv": "name,uid,account\nzoe,5001,vision\n",
    "people.yml": "users: [{name: zoe, uid: 5001, account: vision}]\n",
}


@pytest.mark.parametrize("file", [*PEOPLE])
def test_people_beside_the_file(tmp_path: Path, file: str) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text(f"{GUIDE.read_text()}people: {file}\n")
    (tmp_path / file).write_text(PEOPLE[file])
    variables = variables_of("head", path)
    assert [user["home"] for user in variables["slurm_people"]["users"]] == ["/home/zoe"]  # type: ignore[index]
    assert [user["name"] for user in variables["slurm_accounting_users"]] == ["alice", "bob", "zoe"]  # type: ignore[attr-defined]


POLICY = "accounts: [{name: vision, gpu_hours: 5}]\nreservations: [{name: r, Nodes: compute01, Duration: 5}]\n"


def with_policy(tmp_path: Path, text: str, file: str = "accounting.yml") -> Path:
    """The cluster file of the guide with its policy in a file, which has this text."""
    data = {**yaml.safe_load(GUIDE.read_text()), "accounting": file}
    data["partitions"] = [{key: part[key] for key in part if key != "AllowAccounts"} for part in data["partitions"]]
    path = tmp_path / "my.cluster.yml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    (tmp_path / "accounting.yml").write_text(text)
    return path


def test_accounting_beside_the_file(tmp_path: Path) -> None:
    variables = variables_of("head", with_policy(tmp_path, POLICY))
    assert variables["slurm_accounting_accounts"] == [{"name": "vision", "gpu_hours": 5}]
    assert variables["slurm_accounting_reservations"] == yaml.safe_load(POLICY)["reservations"]
    assert "slurm_accounting_users" not in variables


def test_accounting_beside_the_file_is_decrypted(tmp_path: Path) -> None:
    path = with_policy(tmp_path, POLICY)
    secret = VaultSecret(b"x")
    (tmp_path / "accounting.yml").write_bytes(VaultLib().encrypt(POLICY, secret))
    loader = DataLoader()
    loader.set_vault_secrets([("default", secret)])
    inventory = InventoryManager(loader, sources=[str(path)])
    assert inventory.groups["slurm_controller"].vars["slurm_accounting_accounts"] == yaml.safe_load(POLICY)["accounts"]


@pytest.mark.parametrize(
    ("text", "file", "expected"),
    [
        (
            "purge: 7\nlimits: {MaxWall: 1:00}\naccounts:\n- name: A\n- name: b\n  accounts: [{name: C, GpuHours: 1}]\n"
            "reservations:\n- {name: r, Node: c1}\n",
            "accounting.yml",
            [
                "accounting.yml: line 2: limits.MaxWall: found 1:00, which YAML reads as a number to the base 60: ",
                "accounting.yml: line 1: purge: found 7, allowed: true or false",
                "accounting.yml: line 6: account c: GpuHours: unknown to Slurm, did you mean 'gpu_hours'?",
                "accounting.yml: line 8: reservations[0]: Node: unknown to Slurm, did you mean 'Nodes'?",
            ],
        ),
        ("[", "accounting.yml", ["accounting.yml: line 2: cannot be read as YAML: "]),
        ("[a]", "accounting.yml", ["accounting.yml: found ['a'], allowed: a mapping, key: value, or a YAML file"]),
        (
            "accounting: {qos: [a]}",
            "accounting.yml",
            ["accounting.yml: line 1: accounting: unknown key: all of this is accounting: write its keys without it"],
        ),
        ("", "gone.yml", ["my.cluster.yml: line 36: accounting: found 'gone.yml', which does not exist, allowed: a "]),
        (
            "",
            "policy",
            ["my.cluster.yml: line 36: accounting: found 'policy', allowed: a mapping, key: value, or a YA"],
        ),
    ],
)
def test_accounting_beside_the_file_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, file: str, expected: list[str]
) -> None:
    with pytest.raises(SystemExit):
        variables_of("head", with_policy(tmp_path, text, file))
    said = [line for line in capsys.readouterr().err.splitlines() if ".yml: " in line]
    assert [line[: len(start)] for line, start in zip(said, expected)] == expected
    assert len(said) == len(expected)


def test_a_node_that_a_reservation_beside_the_file_names_cannot_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster.InventoryModule, "_leaving", lambda _self: ["compute01"])
    with pytest.raises(SystemExit):
        variables_of("head", with_policy(tmp_path, POLICY))
    said = capsys.readouterr().err
    what = "compute01 is named here: change this first, and run site.yml"
    assert f"accounting.yml: line 2: reservations[0].Nodes: {what}" in said


@pytest.mark.parametrize(
    ("people", "problem"),
    [
        *((name, "which does not exist, allowed: a file next to") for name in ("people.csv", "/nowhere/people.yml")),
        ("d.csv", "which is no regular file, allowed: a regular file"),
    ],
)
def test_a_file_of_people_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], people: str, problem: str
) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text(f"{GUIDE.read_text()}people: {people}\n")
    (tmp_path / "d.csv").mkdir()
    line = f"my.cluster.yml: line 37: people: found '{people}', {problem}"
    assert refusal(path, capsys).count(line) == 1


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_that_is_not_in_utf_8(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_bytes(f"# J\u00f6rg's cluster\n{GUIDE.read_text()}".encode(encoding))
    result = playbook(path)
    line = "my.cluster.yml: line 1: is not in UTF-8, allowed: a file in UTF-8"
    assert (result.returncode != 0, result.stderr.count(line)) == (True, 1), result.stderr


def test_a_wrong_line_and_a_private_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No output has the private key."""
    path = tmp_path / "my.cluster.yml"
    path.write_text(f"{GUIDE.read_text()}people: people.csv\n")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True)
    private = (tmp_path / "id").read_text()
    (tmp_path / "people.csv").write_text(f'name,uid,keys\nzoe,99,\nyann,5002,"{private}"\n')
    said = refusal(path, capsys)
    for line in (
        "people.csv: line 2: uid: found 99, allowed: 1000 to 60000 and 65536 to 4294967293",
        "people.csv: line 3: has a private key, which is not shown here",
    ):
        assert said.count(line) == 1, said
    assert not [line for line in private.splitlines() if line in said]


def test_constructed(tmp_path: Path) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text(
        GUIDE.read_text()
        + "compose: {where: inventory_hostname ~ '.' ~ slurm_cluster_name}\n"
        + "groups: {gpus: \"'hardware_n1_t4' in group_names\"}\n"
        + "keyed_groups: [{prefix: at, key: 'where[:4]'}]\n"
    )
    inventory = InventoryManager(DataLoader(), sources=[str(path)])
    assert inventory.get_host("head").vars["where"] == "head.hpc-demo-cluster"
    assert inventory.get_groups_dict()["gpus"] == ["compute01", "compute02"]
    assert inventory.get_groups_dict()["at_comp"] == ["compute01", "compute02"]


def test_groups_of_people_beside_templates(tmp_path: Path) -> None:
    file = tmp_path / "my.cluster.yml"
    people = "groups: [{name: vision, gid: 6001}]\nusers: [{name: carol, uid: 5003, groups: [vision]}]\n"
    file.write_text(GUIDE.read_text() + people + "compose: {where: inventory_hostname}\n")
    inventory = InventoryManager(DataLoader(), sources=[str(file)])
    assert inventory.groups["slurm_controller"].vars["slurm_people"]["groups"] == [{"name": "vision", "gid": 6001}]
    assert inventory.get_host("head").get_vars()["where"] == "head"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("my.cluster.yml", True), ("cluster.yaml", True), ("hosts.yml", False), ("my.cluster.yml.j2", False)],
)
def test_verify_file(tmp_path: Path, name: str, wanted: bool) -> None:
    (tmp_path / name).write_text("")
    plugin = inventory_loader.get("gpucluster.slurm.cluster")
    assert plugin.verify_file(str(tmp_path / name)) is wanted


@pytest.mark.parametrize("path", CLUSTER_FILES, ids=[path.parent.name for path in CLUSTER_FILES])
def test_examples(path: Path) -> None:
    inventory = InventoryManager(DataLoader(), sources=[str(path)])
    groups = inventory.get_groups_dict()
    assert groups["slurm_controller"]
    assert groups["slurm_compute"]
    # The names of a3mega are in the DNS of its network.
    assert all(("ansible_host" in host.vars) is (path.parent.name != "a3mega") for host in inventory.get_hosts())


def test_there_are_examples() -> None:
    assert [path.parent.name for path in CLUSTER_FILES] == ["a3mega", "demo", "guide", "large", "single"]


def playbook(path: Path, *that: str) -> subprocess.CompletedProcess[str]:
    """Run a play on a cluster file, with the collection's own ansible.cfg; it asserts expressions on every host."""
    play = path.parent / "play.yml"
    task = {"ansible.builtin.assert": {"that": list(that)}}
    play.write_text(yaml.dump([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    return subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(path), str(play)],
        env={**os.environ, "ANSIBLE_CONFIG": str(COLLECTION / "ansible.cfg"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_wrong_file_stops_the_run_and_each_problem_is_shown_once(tmp_path: Path) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text(GUIDE.read_text().replace("hardware: n1-t4", "hardwear: n1-t4").replace("default:", "defalt:"))
    result = playbook(path)
    assert result.returncode == 4
    for line in (
        "my.cluster.yml: line 21: nodes[1].hardwear: unknown key, did you mean 'hardware'? "
        "allowed: hosts, hardware, address and the parameters of a NodeName line",
        "my.cluster.yml: line 21: nodes[1].hardware: missing",
        "my.cluster.yml: line 23: partitions[0].defalt: unknown key, did you mean 'default'? "
        "allowed: name, nodes, default and the parameters of a PartitionName line",
    ):
        assert result.stderr.count(line) == 1, result.stderr
    assert len(result.stderr.splitlines()) == 5, "Ansible's other plugins have errors, too"
    assert result.stdout == ""


@pytest.mark.once
def test_an_inventory_of_another_plugin_may_have_such_a_name(tmp_path: Path) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text("all: {hosts: {a: {ansible_connection: local}}}\n")
    assert playbook(path, "inventory_hostname == 'a'").returncode == 0


def test_a_value_that_yaml_refuses_is_named(tmp_path: Path) -> None:
    """Ansible's own plugins read the file as well, and name neither the key nor the line."""
    path = tmp_path / "my.cluster.yml"
    path.write_text(GUIDE.read_text().replace("controllers: head", "controllers: 2026-13-45"))
    line = path.read_text().splitlines().index("controllers: 2026-13-45") + 1
    found = f"my.cluster.yml: line {line}: controllers: found '2026-13-45', which YAML takes for a date and cannot read"
    assert playbook(path).stderr.count(found) == 1


def test_what_a_host_has_does_not_grow_with_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "my.cluster.yml"
    hosts = set()
    for nodes in ("compute[01-02]", "compute[01-02,03,05,07,09,11,13,15]"):
        path.write_text(GUIDE.read_text().replace("compute[01-02]", nodes).replace(', address: "10.182.0.[2-3]"', ""))
        assert variables_of("head", path)["slurm_nodes"][1]["hosts"] == nodes  # type: ignore[index]
        variables = variables_of("compute01", path)
        hosts.add(str([variables[name] for name in sorted(variables) if name.startswith("slurm_")]))
    assert len(hosts) == 1


def test_every_host_reads_the_long_variables(tmp_path: Path) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text(GUIDE.read_text())
    names = [*cluster.GROWING, "slurm_accounting_accounts", "slurm_accounting_users"]
    result = playbook(path, *(f"{name} == hostvars.head.{name} and {name} is not string" for name in names))
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("ok=1 ") == 3


def inventory_without(path: Path, nodes: str) -> subprocess.CompletedProcess[str]:
    """The inventory as the playbook remove_nodes has it."""
    program = str(Path(sys.executable).parent / "ansible-inventory")
    command = [program, "-i", str(path), "--list", "-e", f"remove_nodes={nodes}"]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(COLLECTION / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )


@pytest.mark.once
def test_nodes_that_leave_are_no_hosts_of_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text(GUIDE.read_text())
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/slurm_cluster.yml").write_text("ansible_user: ops")
    found = json.loads(inventory_without(path, "compute02").stdout)
    assert [group for group, content in found.items() if "compute02" in content.get("hosts", [])] == ["slurm_leaving"]
    assert found["slurm_compute"]["hosts"] == ["head", "compute01"]
    of_host = found["_meta"]["hostvars"]["compute02"]
    assert "10.182.0.3" in str(of_host["ansible_host"])
    assert "ops" in str(of_host["ansible_user"])
    assert str(path) in str(of_host["slurm_cluster_file"])
    whole = InventoryManager(DataLoader(), [str(path)]).get_groups_dict()
    for name, hosts in of_host["slurm_groups_before"].items():
        assert [host["__ansible_unsafe"] for host in hosts] == whole[name]
    assert "compute02" not in json.dumps(found["_meta"]["hostvars"]["head"]["slurm_nodes"])
    assert path.read_text() == GUIDE.read_text()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            "compute[01-02]",
            "my.cluster.yml: line 24: partitions[1]: partition gpu would have no node without compute[01-02]",
        ),
        ("compute1", "remove_nodes: found 'compute1', unknown node, did you mean 'compute01'?"),
        ("compute[1", "remove_nodes: bad hostlist 'compute[1'"),
        ("head", "my.cluster.yml: line 8: controllers: head cannot leave the cluster"),
    ],
)
@pytest.mark.once
def test_nodes_that_cannot_leave_stop_the_run(tmp_path: Path, nodes: str, message: str) -> None:
    path = tmp_path / "my.cluster.yml"
    path.write_text(GUIDE.read_text())
    assert message in inventory_without(path, nodes).stderr


def test_the_files_of_prologs_become_their_texts(tmp_path: Path) -> None:
    """Beside the cluster file. A template in a script is text of the script."""
    text = "#!/bin/sh\necho {{ nobody }}\n"
    (tmp_path / "own.sh").write_text(text)
    entry = {"name": "own", "file": "own.sh", "min_nodes": 2}
    path = tmp_path / "my.cluster.yml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(GUIDE.read_text()), "prologs": [entry]}))
    assert variables_of("head", path)["slurm_prologs"] == [{"name": "own", "script": text, "min_nodes": 2}]


def test_bytes_of_a_script_that_are_not_utf_8_stay(tmp_path: Path) -> None:
    """As Latin-1 has them. Shells run such a script; its text is for `scripts.content_of`."""
    script = b"#!/bin/bash\n# gr\xfc\xdfe\n"
    (tmp_path / "own.sh").write_bytes(script)
    path = tmp_path / "my.cluster.yml"
    entry = {"name": "own", "file": "own.sh"}
    path.write_text(yaml.safe_dump({**yaml.safe_load(GUIDE.read_text()), "prologs": [entry]}))
    found: Any = variables_of("head", path)["slurm_prologs"]
    assert content_of(found[0]["script"]) == script


def test_a_script_that_cannot_run_is_an_error_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With carriage returns, as an editor of Windows leaves them, and with an open `if`. All are named at once."""
    (tmp_path / "returned.sh").write_bytes(b"#!/bin/bash\r\nexit 0\r\n")
    (tmp_path / "open.sh").write_bytes(b"#!/bin/bash\nif true; then\n")
    path = tmp_path / "my.cluster.yml"
    entries = [{"name": name, "file": f"{name}.sh"} for name in ("returned", "open")]
    path.write_text(yaml.safe_dump({**yaml.safe_load(GUIDE.read_text()), "prologs": entries}))
    errors = refusal(path, capsys)
    assert (
        "my.cluster.yml: line 57: prologs[0].file: 'returned.sh': line 1: found '#!/bin/bash\\r', which ends with a"
        in errors
    )
    assert (
        "my.cluster.yml: line 59: prologs[1].file: 'open.sh': line 3: bash -n: syntax error: unexpected end of file"
        in errors
    )


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("people", "own.csv", "own.csv"),
        ("people", "own.yml", "own.yml"),
        ("prologs", [{"name": "own", "file": "own.sh"}], "own.sh"),
        ("hardware", None, "my.hardware.yml"),
    ],
)
def test_a_file_that_has_no_end_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: Any, name: str
) -> None:
    """It would let the inventory wait without an end; test_named_files.py has other kinds of files."""
    os.mkfifo(tmp_path / name)
    path = tmp_path / "my.cluster.yml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(GUIDE.read_text()), **({key: value} if value else {})}))
    place = {
        "people": "people: found 'own",
        "prologs": "prologs[0].file: found 'own.sh",
        "hardware": "my.hardware.yml: ",
    }
    errors = refusal(path, capsys)
    assert place[key] in errors, errors
    assert "allowed: a regular file" in errors


def test_a_script_stays_below_the_directory_of_the_cluster_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.sh").write_text("#!/bin/sh\n")
    path = tmp_path / "site/my.cluster.yml"
    path.parent.mkdir()
    prologs = [{"name": "own", "file": "../own.sh"}]
    path.write_text(yaml.safe_dump({**yaml.safe_load(GUIDE.read_text()), "prologs": prologs}))
    errors = refusal(path, capsys)
    assert (
        "prologs[0].file: found '../own.sh', allowed: a file next to the cluster file or below its directory" in errors
    )
