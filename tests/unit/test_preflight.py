# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight on an inventory without a cluster file: it contacts no host, and has the rules of the cluster file."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.named_files import DEB

ROOT = Path(__file__).parents[2]
# Scenario guide runs preflight with the newest ansible-core.
pytestmark = pytest.mark.once

INVENTORY = """
[slurm_controller]
head
[slurm_database]
head
[slurm_compute]
head
compute[01:02]
[slurm_cluster:children]
slurm_controller
slurm_database
slurm_compute
"""
VARIABLES = """
slurm_cluster_name: plain
slurm_hardware_types:
  one: {sockets: 1, cores_per_socket: 2, threads_per_core: 2, real_memory: 15990}
  gpus: {sockets: 1, cores_per_socket: 1, threads_per_core: 1, real_memory: 3661,
         gres: [{name: gpu, type: a100, count: 2, autodetect: nvml, mig: {1g.5gb: 7}}]}
slurm_nodes:
  - {hosts: head, hardware: one, address: 10.182.0.4}
  - {hosts: "compute[01-02]", hardware: gpus, address: "10.182.0.[2-3]"}
slurm_addresses: [{hosts: head, address: 10.182.0.4}]
slurm_partitions: [{name: all, nodes: ALL, default: true, MaxTime: "{{ hours }}:00:00"}]
slurm_conf: {KillWait: 60, PreemptMode: null}
hours: 2
"""
POLICY = """
slurm_accounting_accounts: [{name: vision}]
slurm_accounting_users: [{name: alice, DefaultAccount: vision}]
"""


def preflight(
    directory: Path,
    variables: dict[str, Any],
    policy: dict[str, Any],
    *arguments: str,
    playbook: str = "stages/preflight",
) -> subprocess.CompletedProcess[str]:
    """Run preflight on an inventory in the format of INI, with the policy on the controllers alone."""
    (directory / "hosts.ini").write_text(INVENTORY)
    (directory / "group_vars").mkdir()
    (directory / "group_vars/slurm_cluster.yml").write_text(yaml.safe_dump(variables))
    (directory / "group_vars/slurm_controller.yml").write_text(yaml.safe_dump(policy))
    program = Path(sys.executable).with_name("ansible-playbook")
    return subprocess.run(
        [program, ROOT / f"playbooks/{playbook}.yml", "-i", directory / "hosts.ini", *arguments],
        # The repository's own setting names no plugin for INI.
        env=os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_INVENTORY_ENABLED": "ini"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_right_inventory_is_taken(tmp_path: Path) -> None:
    run = preflight(tmp_path, yaml.safe_load(VARIABLES), yaml.safe_load(POLICY))
    assert (run.returncode, "DEPRECATION" in run.stdout + run.stderr) == (0, False), run.stdout


@pytest.mark.parametrize("playbook", ["doctor", "validate"])
def test_a_limit_without_the_hosts_of_a_playbook_is_refused(tmp_path: Path, playbook: str) -> None:
    """Without this, each play was skipped, and the run ended well."""
    run = preflight(tmp_path, yaml.safe_load(VARIABLES), yaml.safe_load(POLICY), "--limit=compute01", playbook=playbook)
    assert run.returncode != 0, run.stdout
    assert f"--limit: leaves out head, and {playbook}.yml would do nothing without it." in run.stdout
    assert "--limit 'compute01,head'" in run.stdout


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    variables, policy = yaml.safe_load(VARIABLES), yaml.safe_load(POLICY)
    (gpu,) = variables["slurm_hardware_types"]["gpus"]["gres"]
    gpu["mig"] = {"1g.5gb": 8}
    variables["slurm_nodes"].append({"hosts": "compute02", "hardware": "one"})
    del variables["slurm_nodes"][0]["hosts"]
    (partition,) = variables["slurm_partitions"]
    variables["slurm_partitions"] += [copy.copy(partition), {"name": "b", "nodes": "ALL", "x": 1}]
    variables["slurm_conf"]["KilWait"] = 3
    variables["slurm_controllers"] = ["head", "compute01"]
    variables["slurmdbd_conf"] = {"DbdPort": 6817}
    variables["enroot_extra_hooks"] = ["50-slurm-pmi.sh", "50-slurm-pmx.sh"]
    variables["mariadb_settings"] = {"max_connections": "10\n[client]", "a b": 1}
    policy["slurm_accounting_users"].append({"name": "bob", "GrpTRS": 1})
    run = preflight(tmp_path, variables, policy)
    assert run.returncode == 2
    for expected in (
        "slurm_hardware_types.gpus.gres[0].mig: found {'1g.5gb': 8}, allowed: instances of up to 7 compute slices",
        "slurm_nodes[0].hosts: missing",
        "slurm_nodes[2].hosts: compute02 is defined twice, first in slurm_nodes[1]",
        "slurm_partitions[1].name: 'all' is defined twice, first in slurm_partitions[0]",
        "slurm_partitions[1].default: slurm_partitions[0] is the default already, allowed: one",
        "slurm_partitions[2].x: unknown key, allowed: name, nodes, default",
        "slurm_conf.KilWait: unknown key, did you mean 'KillWait'?",
        "slurm_conf.StateSaveLocation: missing: 2 controllers share their state",
        "slurmdbd_conf.DbdPort: found '6817' on head, where SlurmctldPort is 6817, allowed: another port",
        "slurmdbd_conf.DbdPort: found '6817', where slurm_conf.AccountingStoragePort is 6819, allowed: the same port",
        "slurm_accounting_*: user bob: GrpTRS: unknown to Slurm, did you mean 'GrpTRES'?",
        "value of enroot_extra_hooks must be one or more of: 50-mig-config.sh, 50-sharp.sh, 50-slurm-pmi.sh, "
        "50-slurm-pytorch.sh. Got no match for: 50-slurm-pmx.sh",
        "head: mariadb_settings.max_connections: found a newline (character 3), allowed: one line",
        "head: mariadb_settings: the name 'a b': found 'a b', allowed: names of MariaDB's options",
    ):
        assert expected in run.stdout + run.stderr, run.stdout + run.stderr


def test_files_that_do_not_have_what_the_cluster_needs(tmp_path: Path) -> None:
    """Packages that are lacking or not there, and a password that slurmdbd could not read, which is not shown."""
    password = tmp_path / "secrets/plain/slurmdbd_storage_pass"
    password.parent.mkdir(parents=True)
    password.write_text("geheim\n#2\n")
    variables = yaml.safe_load(VARIABLES)
    names = ["slurm-smd", "slurm-smd-slurmctld", "slurm-smd-slurmd", "slurm-smd-client", "slurm-smd-slurmdbd"]
    files = [{"file": f"packages/{name}_25.11.2-1_amd64.deb"} for name in names]
    variables["slurm_packages"] = {"files": [files[0], *files[2:4]]}
    (tmp_path / "packages").mkdir()
    (tmp_path / files[0]["file"]).write_text("")
    run = preflight(tmp_path, variables, yaml.safe_load(POLICY))
    assert run.returncode == 2
    lacking = "slurm_packages.files lacks packages that this cluster needs: slurm-smd-slurmdbd, slurm-smd-slurmctld"
    words = "slurm_packages.files[{}].file: found '{}', which {}, allowed: "
    for expected in (
        f"{lacking};",
        words.format(0, files[0]["file"], "is no package"),
        words.format(2, files[3]["file"], "does not exist"),
        f"{password}: found a newline (character 7), allowed: one line without tabs and control characters",
    ):
        assert expected in " ".join(run.stdout.split()).replace("''", "'"), run.stdout
    assert "geheim" not in run.stdout + run.stderr


def test_secrets_from_a_command_that_fails(tmp_path: Path) -> None:
    """It runs next to the inventory, once for each secret, and its output is not shown."""
    program = tmp_path / "give"
    program.write_text('#!/bin/sh\necho "$1" >>asked\necho geheim\necho "no $1" >&2\nexit 3\n')
    program.chmod(0o700)
    variables = yaml.safe_load(VARIABLES) | {"slurm_secrets_command": ["./give", "{cluster}/{secret}"]}
    run = preflight(tmp_path, variables, yaml.safe_load(POLICY), "-vvv")
    assert run.returncode == 2
    for name in ("munge.key", "slurmdbd_storage_pass"):
        assert f"{name}: ./give plain/{name}: ended with 3: no plain/{name}" in " ".join(run.stdout.split()), run.stdout
    assert "geheim" not in run.stdout + run.stderr
    assert (tmp_path / "asked").read_text() == "plain/munge.key\nplain/slurmdbd_storage_pass\n"


PEOPLE = """\
{{ {'groups': [{'name': 'vision', 'gid': 6001}],
    'users': [{'name': 'alice', 'uid': 5001}, {'name': 'carol', 'uid': 5003, 'state': 'suspended'}]}
   | gpucluster.slurm.people }}"""


def test_suspended_users_whose_jobs_slurm_takes_are_named(tmp_path: Path) -> None:
    for name, policy in (("without", "{}"), ("with", POLICY)):
        (tmp_path / name).mkdir()
        run = preflight(tmp_path / name, {**yaml.safe_load(VARIABLES), "slurm_people": PEOPLE}, yaml.safe_load(policy))
        output = " ".join(run.stdout.split())
        sentence = "Slurm cannot refuse jobs of suspended users, since it has no policy for accounting: carol"
        assert (run.returncode, sentence in output) == (0, name == "without"), run.stdout


def test_tokens_of_suspended_users_are_named(tmp_path: Path) -> None:
    variables = {**yaml.safe_load(VARIABLES), "slurm_people": PEOPLE}
    variables["slurm_conf"] |= {"AuthAltTypes": ["auth/slurm", "auth/jwt"]}
    run = preflight(tmp_path, variables, yaml.safe_load(POLICY))
    sentence = "tokens of suspended users are valid until they expire, or until jwt_key is replaced: carol"
    assert (run.returncode, sentence in " ".join(run.stdout.split())) == (0, True), run.stdout


def test_people_of_a_plain_inventory_have_the_rules_of_the_cluster_file(tmp_path: Path) -> None:
    people = {"source": "list", "groups": [], "users": [{"name": "Alice", "uid": 5001, "keys": []}]}
    run = preflight(tmp_path, {**yaml.safe_load(VARIABLES), "slurm_people": people}, {})
    assert run.returncode == 2
    for expected in (
        "slurm_people.users[0].name: found 'Alice', allowed: up to 32",
        "slurm_people.users[0].gid: missing",
    ):
        assert expected in run.stdout + run.stderr, run.stdout + run.stderr


def test_storage_whose_package_does_not_exist_and_homes_that_are_not_shared(tmp_path: Path) -> None:
    variables = yaml.safe_load(VARIABLES)
    package = tmp_path / "lustre.deb"
    lustre = {"path": "/home", "type": "lustre", "source": "a@tcp:/fs", "packages": [{"file": str(package)}]}
    variables |= {"slurm_storage": [lustre], "slurm_people": PEOPLE}

    def said(name: str) -> tuple[int, str]:
        (tmp_path / name).mkdir()
        run = preflight(tmp_path / name, variables, yaml.safe_load(POLICY))
        return run.returncode, " ".join(run.stdout.split()).replace("''", "'")

    status, words = said("without the package")
    assert (status, f"slurm_storage[0].packages[0].file: found '{package}', which does not exist" in words) == (2, True)
    package.write_bytes(DEB)
    status, words = said("shared")
    assert (status, "The homes of" in words) == (0, False)
    lustre["path"] = "/lustre"
    status, words = said("not shared")
    assert (status, "The homes of alice" in words) == (0, True)


def words_of(run: subprocess.CompletedProcess[str]) -> str:
    """The output of a run, without the breaks of lines and the quotes of YAML."""
    return " ".join(run.stdout.split()).replace("''", "'")


def test_scripts_that_cannot_run_are_refused_before_any_host_is_contacted(tmp_path: Path) -> None:
    """With carriage returns, with an open `if`, and without an interpreter."""
    variables = yaml.safe_load(VARIABLES)
    variables["slurm_prologs"] = [{"name": "returned", "script": "#!/bin/bash\r\nexit 0\r\n"}]
    variables["slurm_epilogs"] = [{"name": "open", "script": "#!/bin/bash\nif true; then\n"}]
    variables["slurm_conf"]["Prolog"] = ["first.sh"]
    variables["slurm_files"] = {"first.sh": "systemctl start x\n"}
    run = preflight(tmp_path, variables, {})
    assert run.returncode == 2
    for expected in (
        "slurm_prologs[0].script: found '#!/bin/bash\\r\\nexit 0\\r\\n', line 1: found '#!/bin/bash\\r', which",
        "slurm_epilogs[0].script: found '#!/bin/bash\\nif true; then\\n', line 3: bash -n: syntax error",
        "slurm_files.first.sh: line 1: found 'systemctl start x', which names no interpreter, allowed: #! and the path",
    ):
        assert expected in words_of(run), run.stdout


def test_health_checks_of_the_site(tmp_path: Path) -> None:
    """One that no node could run is refused. A check can be any text that its shell runs, and any program."""
    checks = {
        "returned": b"#!/bin/sh\r\ntrue\r\n",
        "latin": b"#!/bin/bash\necho 'gr\xfc\xdfe'\n",
        "elf": b"\x7fELF\x02\0",
    }
    for name, content in checks.items():
        (tmp_path / name).write_bytes(content)

    def run(*names: str) -> subprocess.CompletedProcess[str]:
        directory = tmp_path / f"with {len(names)}"
        directory.mkdir()
        own = {name: f"{tmp_path}/{name}" for name in names}
        return preflight(directory, {**yaml.safe_load(VARIABLES), "slurm_health_own_checks": own}, {})

    assert run("latin", "elf").returncode == 0
    refused = run("returned", "latin", "elf")
    assert refused.returncode == 2
    assert "msg: 'slurm_health_own_checks.returned: line 1: found '#!/bin/sh\\r', which ends with" in words_of(refused)
    assert "checks.latin" not in refused.stdout
    assert "checks.elf" not in refused.stdout
