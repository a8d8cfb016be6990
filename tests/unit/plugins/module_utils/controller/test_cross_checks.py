# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of all rules together: the files that the collection writes, and included files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import ConfigurationError
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.configured_cluster import Host
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.cross_checks import cross_check
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import slurm_files
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.templated_host import TemplatedHost
from ansible_collections.gpucluster.slurm.tests.benchmark.large import cluster
from cross_check_verdicts import INSTALLED, NODES, PARTITION, right, verdict

ROOT = Path(__file__).parents[5]
EXAMPLES = sorted(ROOT.glob("inventory/*/*.cluster.yml"))


# -- what the collection itself writes -------------------------------------------------------------------------------


def written(path: Path) -> dict[str, str]:
    """The files that the role slurmctld writes for a cluster file."""
    loader = DataLoader()
    inventory = InventoryManager(loader, sources=[str(path)])
    manager = VariableManager(loader, inventory)
    variables = manager.get_vars(host=inventory.get_host(inventory.groups["slurm_controller"].get_hosts()[0].name))
    variables["hostvars"] = HostVars(inventory, manager, loader)
    defaults = loader.load_from_file(str(ROOT / "roles/slurm/defaults/main.yml"), trusted_as_template=True)
    variables = {**defaults, **variables, "__slurm_facts": {"ansible_facts": {"slurm_host": {"files": {}}}}}
    host = TemplatedHost(variables, Templar(loader, variables=variables), loader)
    return slurm_files.files(host, "24.11") | dict.fromkeys(("slurm-prolog", "slurm-epilog"), "#!/bin/bash\n")


def quiet(files: dict[str, str]) -> bool:
    """Whether nothing is refused or ignored on a host that has exactly the plugins and files that are named."""
    return cross_check(files, Host(files.get, lambda _plugin_dir: INSTALLED, set[str]().intersection), "24.11.5") == (
        [],
        [],
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.parent.name for path in EXAMPLES])
def test_nothing_is_wrong_with_the_files_of_the_collection(path: Path) -> None:
    assert quiet(written(path))


def test_ten_thousand_nodes(tmp_path: Path) -> None:
    path = tmp_path / "large.cluster.yml"
    path.write_text(yaml.safe_dump(cluster(10000)))
    files = written(path)
    assert quiet(files)
    wrong = files["slurm.conf"].replace("Nodes=t4-[0000-", "Nodes=t4-9999,t4-[0000-")
    assert not quiet({**files, "slurm.conf": wrong})


# -- includes --------------------------------------------------------------------------------------------------------


def test_included_files_are_part_of_the_file() -> None:
    conf = "ClusterName=Demo\nInclude nodes.conf\ninclude %c.conf # partitions\n"
    there = {"nodes.conf": NODES, "demo.conf": "PartitionName=p Nodes=n3\n"}
    assert [text.partition(", ")[0] for text in verdict(conf, there)[0]] == [
        "slurm.conf: PartitionName=p: Nodes: found 'n3'"
    ]
    assert verdict(conf, {**there, "demo.conf": PARTITION}) == ([], [])
    assert right(conf, nodes_conf=NODES, demo_conf=PARTITION)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        # error: cannot stat file, retrying in 1sec up to 60sec
        ("nodes.conf", "which does not exist or includes itself"),
        ("slurm.conf", "which does not exist or includes itself"),
        # fatal: Unable to process configuration file
        ("conf.d/*.conf", "Slurm knows no wildcards"),
    ],
)
def test_includes_that_slurm_does_not_read(name: str, why: str) -> None:
    found = verdict(f"Include {name}\nPartitionName=p Nodes=n1\n", {"slurm.conf": ""})
    assert found == ([f"slurm.conf: Include: found '{name}', {why}, allowed: one file next to it"], [])


def test_configless_hosts_do_not_get_included_files_with_a_path() -> None:
    conf = "SlurmctldParameters=enable_configless\nInclude /srv/nodes.conf\n"
    what = "which configless hosts do not get, allowed: the name of a file next to slurm.conf"
    assert verdict(conf, {"/srv/nodes.conf": NODES}) == (
        [],
        [f"slurm.conf: Include: found '/srv/nodes.conf', {what}"],
    )


def test_an_included_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nodes\.conf: line 2: found 'rubbish'"):
        verdict("Include nodes.conf\n", {"nodes.conf": f"{NODES}rubbish\n"})
