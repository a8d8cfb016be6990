# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inventory/a3mega: the template of Packer, the blueprint of Cluster Toolkit and the user data of cloud-init.

None of them can run here, since they make machines in a cloud. Packer itself checks the template, where it is
installed; the rest is compared with the grammar of the two others (recorded/README.md), with the cluster file, and with
the collection. tests/integration/image/test_packer.py runs the template on a host of the lab.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import hcl2
import jsonschema
import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from hcl2.utils import SerializationOptions

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
A3MEGA = ROOT / "inventory/a3mega"
TEMPLATE = A3MEGA / "image/a3mega.pkr.hcl"
RECORDED = ROOT / "tests/unit/recorded/cloud"
USER_DATA = sorted(A3MEGA.glob("cloud-init/*.cfg"))
VARIABLES = sorted(A3MEGA.glob("group_vars/*.yml"))
REFERENCE = re.compile(r"\b([a-z]\w*)\.([a-z]\w*)")


@cache
def hcl(path: Path) -> dict[str, Any]:
    """A file of Packer, with plain texts for what is no expression."""
    options = SerializationOptions(with_comments=False, explicit_blocks=False, strip_string_quotes=True)
    with path.open() as file:
        content: dict[str, Any] = hcl2.load(file, serialization_options=options)
    return content


def template_variables() -> dict[str, dict[str, Any]]:
    """The variables of the template by name."""
    return dict(chain.from_iterable(block.items() for block in hcl(TEMPLATE)["variable"]))


def provisioners() -> list[tuple[str, dict[str, Any]]]:
    """The provisioners of the template, in order, as type and content."""
    (build,) = hcl(TEMPLATE)["build"]
    return list(chain.from_iterable(block.items() for block in build["provisioner"]))


@cache
def read(path: Path) -> dict[str, Any]:
    """A file in YAML."""
    return dict(yaml.safe_load(path.read_text()))


def cluster() -> dict[str, Any]:
    """The cluster file."""
    return read(A3MEGA / "a3mega.cluster.yml")


def blueprint() -> dict[str, Any]:
    """The blueprint."""
    return read(A3MEGA / "a3mega.blueprint.yaml")


def modules() -> dict[str, dict[str, Any]]:
    """The modules of the blueprint by id."""
    return {module["id"]: module for group in blueprint()["deployment_groups"] for module in group["modules"]}


def toolkit() -> dict[str, dict[str, list[str]]]:
    """Variables and outputs of Cluster Toolkit's modules by source; of the template as well."""
    known: dict[str, dict[str, list[str]]] = json.loads((RECORDED / "cluster_toolkit.json").read_text())
    variables = template_variables()
    required = [name for name, content in variables.items() if "default" not in content]
    optional = [name for name in variables if name not in required]
    return known | {"./image": {"required": required, "optional": optional, "outputs": []}}


def instances(name: str) -> list[str]:
    """The names of a module's virtual machines, as the toolkit makes them (modules/compute/vm-instance/main.tf)."""
    settings = modules()[name]["settings"]
    count = settings.get("instance_count", 1)
    number = blueprint()["vars"]["nodes"] if count == "$(vars.nodes)" else count
    return [f"{settings['name_prefix']}-{index}" for index in range(number)]


def files_in(value: Any) -> list[str]:
    """The files of the site that a value names with the key `file`."""
    if isinstance(value, dict):
        own = [value["file"]] if isinstance(value.get("file"), str) and not value["file"].startswith("/dev/") else []
        return own + list(chain.from_iterable(files_in(item) for item in value.values()))
    if isinstance(value, list):
        return list(chain.from_iterable(files_in(item) for item in value))
    return []


# -- the template of Packer ------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("packer") is None, reason="no packer on this machine")
def test_packer_takes_the_template(tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(A3MEGA, site)
    (site / "packages").mkdir()
    (site / "collection.tar.gz").touch()
    given = {"cluster_file": f"{site}/a3mega.cluster.yml", "collection": f"{site}/collection.tar.gz"}
    given |= dict.fromkeys(("project_id", "zone", "subnetwork_name"), "given")
    options = [word for name, value in given.items() for word in ("-var", f"{name}={value}")]
    result = subprocess.run(
        ["packer", "validate", *options, TEMPLATE.name],
        cwd=site / "image",
        env={**os.environ, "CHECKPOINT_DISABLE": "1", "PACKER_CONFIG_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_plugins_are_those_of_the_template() -> None:
    """The block is in a file of its own: Packer before 1.7, which Debian and Ubuntu have, refuses it."""
    (packer,) = hcl(A3MEGA / "image/plugins.pkr.hcl")["packer"]
    (plugins,) = packer["required_plugins"]
    assert sorted(plugins) == ["ansible", "googlecompute"]
    assert [source for block in hcl(TEMPLATE)["source"] for source in block] == ["googlecompute"]
    assert {kind for kind, _content in provisioners()} == {"shell", "file", "ansible-local"}


def test_the_provisioner_runs_a_playbook_of_the_collection() -> None:
    (called,) = (content for kind, content in provisioners() if kind == "ansible-local")
    assert called["playbook_file"] == "${path.root}/image.yml"
    (play,) = yaml.safe_load((A3MEGA / "image/image.yml").read_text())
    playbook = ROOT / f"playbooks/{play['import_playbook'].removeprefix('gpucluster.slurm.')}.yml"
    assert playbook.exists()
    variables = dict(word.split("=") for word in called["extra_arguments"] if word != "-e")
    assert variables == {"image_of": "${var.image_of}", "ansible_connection": "local"}
    assert "image_of" in playbook.read_text()


def test_the_collection_and_ansible_are_in_memory() -> None:
    """The scan for secrets would find examples in the tests of the collection, and the image would have them."""
    (called,) = (content for kind, content in provisioners() if kind == "ansible-local")
    (where,) = (block["staging"] for block in hcl(TEMPLATE)["locals"])
    assert where.startswith("/run/")
    assert provisioners()[0][1]["inline"][-1].endswith(" tmpfs ${local.staging}")
    assert called["staging_directory"] == "${local.staging}"
    assert called["command"].split()[-1] == "${local.staging}/ansible/bin/ansible-playbook"
    (copied,) = (content for kind, content in provisioners() if kind == "file")
    assert copied["destination"] == "${local.staging}/"
    assert '"${path.root}/ansible.cfg"' in copied["sources"]
    settings = configparser.ConfigParser()
    settings.read(A3MEGA / "image/ansible.cfg")
    assert not any(settings["defaults"][name].startswith(("/", "~")) for name in ("home", "collections_path"))


def test_the_release_of_ansible_is_one_that_is_tested() -> None:
    """The oldest one, which has the Python of Debian 12 and later and of Ubuntu 24.04."""
    locked = re.findall(r"^ansible-core==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert template_variables()["ansible_core"]["default"] == min(locked)


def test_all_files_of_the_site_are_copied_and_no_secret() -> None:
    copied = template_variables()["files"]["default"]
    named = files_in(cluster()) + list(chain.from_iterable(files_in(read(path)) for path in VARIABLES))
    assert [name for name in named if name not in copied and name.split("/")[0] not in copied] == []
    assert sorted(name for name in copied if not (A3MEGA / name).exists()) == ["packages"]
    assert not {"secrets", ".", "report"} & set(copied)


def test_the_variables_are_options_of_roles() -> None:
    specs = [yaml.safe_load(path.read_text()) for path in ROOT.glob("roles/*/meta/argument_specs.yml")]
    options = {name for spec in specs for entry in spec["argument_specs"].values() for name in entry.get("options", {})}
    given = [name for path in VARIABLES for name in read(path) if not name.startswith("ansible_")]
    assert [name for name in given if name not in options] == []


# -- the blueprint of Cluster Toolkit --------------------------------------------------------------------------------


def test_the_blueprint_has_the_grammar_of_the_toolkit() -> None:
    jsonschema.validate(blueprint(), json.loads((RECORDED / "blueprint.schema.json").read_text()))
    assert sum(len(group["modules"]) for group in blueprint()["deployment_groups"]) == len(modules())


@pytest.mark.parametrize("name", modules())
def test_each_setting_is_a_variable_of_its_module(name: str) -> None:
    """What is required comes from settings, `vars`, or outputs of modules in `use`; labels from the toolkit."""
    module = modules()[name]
    known = toolkit()[module["source"]]
    settings = set(module.get("settings", {}))
    assert settings - {*known["required"], *known["optional"]} == set()
    used = chain.from_iterable(toolkit()[modules()[other]["source"]]["outputs"] for other in module.get("use", []))
    assert {*known["required"]} - settings - {*blueprint()["vars"]} - {*used} - {"labels"} == set()
    assert {*module.get("outputs", [])} - {*known["outputs"]} == set()


def test_each_reference_of_the_blueprint_leads_somewhere() -> None:
    earlier: dict[str, list[str]] = {"vars": list(blueprint()["vars"])}
    for name, module in modules().items():
        text = yaml.safe_dump(module.get("settings", {}), width=10000)
        expressions = re.findall(r"\$\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)", text)
        assert text.count("$(") == len(expressions)
        found = [pair for part in expressions for pair in REFERENCE.findall(re.sub(r'"[^"]*"', "", part))]
        assert [pair for pair in found if pair[1] not in earlier.get(pair[0], [])] == [], name
        assert [other for other in module.get("use", []) if other not in earlier] == []
        staged = re.findall(r'ghpc_stage\("([^"]+)"\)', text)
        assert [path for path in staged if not (A3MEGA / path).exists()] == []
        earlier[name] = toolkit()[module["source"]]["outputs"]


def test_no_variable_of_the_blueprint_is_unused() -> None:
    """The toolkit refuses one that no module takes (validator test_deployment_variable_not_used)."""
    taken = {name for known in toolkit().values() for name in (*known["required"], *known["optional"])}
    text = yaml.safe_dump(blueprint()["deployment_groups"])
    assert [name for name in blueprint()["vars"] if f"vars.{name})" not in text and name not in taken] == []


def test_the_instances_are_the_hosts_of_the_cluster_file() -> None:
    assert instances("controller") == expand(cluster()["controllers"]) == [cluster()["database"]]
    assert instances("login") == expand(cluster()["login"])
    assert instances("nodes") == [host for entry in cluster()["nodes"] for host in expand(entry["hosts"])]
    assert modules()["nodes"]["settings"]["machine_type"] in cluster()["hardware"]


def test_instances_start_from_the_images_of_their_kind() -> None:
    made = {
        settings["image_family"]: settings["image_of"]
        for settings in (module["settings"] for module in modules().values() if module.get("kind") == "packer")
    }
    for name in ("login", "nodes"):
        assert made.pop(modules()[name]["settings"]["instance_image"]["family"]) == instances(name)[0]
    assert made == {}


# -- the user data of cloud-init -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", USER_DATA, ids=[path.stem for path in USER_DATA])
def test_cloud_init_takes_the_user_data(path: Path) -> None:
    parts = json.loads((RECORDED / "cloud_init.json").read_text())
    modules_of_cloud_init = {name: part for name, part in parts["$defs"].items() if name.startswith("cc_")}
    assert path.read_text().startswith("#cloud-config\n")
    assert {*read(path)} - {key for part in modules_of_cloud_init.values() for key in part["properties"]} == set()
    for name in modules_of_cloud_init:
        jsonschema.validate(read(path), parts | {"$ref": f"#/$defs/{name}"})


def test_user_data_has_no_secret_and_the_controllers() -> None:
    by_name = {path.stem: read(path) for path in USER_DATA}
    assert sorted(by_name) == ["controller", "login", "node"]
    assert "write_files" not in by_name["controller"]
    for content in by_name.values():
        (user,) = content["users"]
        assert user["name"] == read(A3MEGA / "group_vars/slurm_cluster.yml")["ansible_user"]
        assert not user["homedir"].startswith("/home")
    for name in ("login", "node"):
        (file,) = by_name[name]["write_files"]
        assert file["path"] == "/etc/gpucluster-slurm/first-boot.conf"
        assert file["content"] == f"controllers={cluster()['controllers']}\n"


def test_user_data_makes_the_file_systems_that_hosts_mount() -> None:
    sources = {entry["path"]: entry["source"] for entry in cluster()["storage"] if "source" in entry}
    (home,) = read(A3MEGA / "cloud-init/controller.cfg")["fs_setup"]
    assert sources["/srv/home"] == f"LABEL={home['label']}"
    assert home["overwrite"] is False
    assert f"mkfs.ext4 -q -L {sources['/local'].removeprefix('LABEL=')} " in first_commands()[0]


def first_commands() -> list[str]:
    """What a node runs at the beginning of each boot: the RAID, and the directory for TCPXO."""
    commands: list[str] = read(A3MEGA / "cloud-init/node.cfg")["bootcmd"]
    return commands


def run(command: str, tmp_path: Path, **programs: str) -> list[str]:
    """Run a command of the user data with /dev and /sys in a directory; the calls of `programs`, scripts by name."""
    bin_path, log = tmp_path / "bin", tmp_path / "log"
    bin_path.mkdir(exist_ok=True)
    log.write_text("")
    for name, script in programs.items():
        (bin_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n{script}\n')
        (bin_path / name).chmod(0o755)
    elsewhere = re.sub(r"(?<=[ \"=])/(?=dev/|sys/)(?!dev/null)", f"{tmp_path}/", command)
    environment = {**os.environ, "PATH": f"{bin_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-ec", elsewhere], env=environment, check=True)
    return [line.replace(str(tmp_path), "") for line in log.read_text().splitlines()]


def test_a_node_makes_its_raid_once(tmp_path: Path) -> None:
    disks = tmp_path / "dev/disk/by-id"
    disks.mkdir(parents=True)
    for number in range(3):
        (disks / f"google-local-nvme-ssd-{number}").touch()
    programs = {"mdadm": "", "mkfs.ext4": ""}
    names = " ".join(f"/dev/disk/by-id/google-local-nvme-ssd-{number}" for number in range(3))
    assert run(first_commands()[0], tmp_path, blkid="exit 2", **programs) == [
        "blkid --label local",
        f"mdadm --create /dev/md/local --run --level=0 --raid-devices=3 {names}",
        "mkfs.ext4 -q -L local /dev/md/local",
    ]
    assert run(first_commands()[0], tmp_path, blkid="exit 0", **programs) == ["blkid --label local"]


def test_a_node_shows_the_devices_of_tcpxo(tmp_path: Path) -> None:
    (tmp_path / "dev/aperture_devices/0000:0a:00.0").mkdir(parents=True)
    (tmp_path / "dev/aperture_devices/0000:0a:00.0/resource0").touch(0o600)
    lspci = "echo '0000:0a:00.0 0880: 1ae0:0084'"
    called = run(first_commands()[1], tmp_path, lspci=lspci, mountpoint="exit 1", mount="")
    mounted = "mount --bind /sys/bus/pci/devices/0000:0a:00.0 /dev/aperture_devices/0000:0a:00.0"
    assert called[2:] == [mounted]
    assert (tmp_path / "dev/aperture_devices/0000:0a:00.0/resource0").stat().st_mode & 0o777 == 0o666
    assert len(run(first_commands()[1], tmp_path, lspci=lspci, mountpoint="exit 0", mount="")) == 2
