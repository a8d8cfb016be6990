# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clusters that a host belongs to, by its files and processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import clusters
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.clusters import confs_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.records import check_of
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.results.fact_records import Clusters

CONF = "etc/slurm/slurm.conf"
CACHE = "run/slurm/conf/slurm.conf"
STATE = "var/lib/slurm/slurmctld/clustername"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def start(root: Path, command: str, number: int = 100, environment: str = "", program: str = "") -> None:
    """A process of a daemon, by its command line."""
    arguments = command.split()
    name = os.path.basename(arguments[0])
    files = {"comm": f"{name}\n", "cmdline": "\0".join([*arguments, ""]), "environ": environment.replace(" ", "\0")}
    write(root, {f"proc/{number}/{file}": text for file, text in files.items()})
    (root / f"proc/{number}/exe").symlink_to(program or f"/usr/sbin/{name}")


def found(root: Path, hosts: str = "", enabled: str = "", state_directory: str = "") -> list[tuple[str, str, str]]:
    return [
        (entry["name"], entry["file"], entry["by"]) for entry in find(root, hosts, enabled, state_directory)["found"]
    ]


def find(root: Path, hosts: str = "", enabled: str = "", state_directory: str = "") -> Clusters:
    units = {name: {"UnitFileState": "enabled"} for name in enabled.split()}
    fact = clusters.find_clusters(Tree(str(root)), hosts, units, state_directory)
    assert check_of(Clusters)(fact) == ""
    return fact


def test_a_bare_host_has_no_cluster(tmp_path: Path) -> None:
    assert find(tmp_path) == {"found": [], "daemons": []}
    assert found(tmp_path, "127.0.0.1 localhost\n", "slurmd sackd") == []


def test_a_controller_with_its_database(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            CONF: "# ClusterName=old\nSlurmctldHost=ctl\nClusterName=Release-26 # the name\n",
            STATE: "release-26|588",
            "var/lib/mysql/slurm_acct_db/release@002d26_job_table.frm": "",
            "var/lib/mysql/slurm_acct_db/release@002d26_job_table.ibd": "",
            "var/lib/mysql/slurm_acct_db/user_table.ibd": "",
            "var/lib/mysql/mysql/proc.frm": "",
        },
    )
    start(tmp_path, "/usr/sbin/slurmctld --systemd", 101)
    start(tmp_path, "/usr/sbin/slurmdbd -D -s", 100)
    assert found(tmp_path) == [
        ("release-26", "/etc/slurm/slurm.conf", "slurmctld"),
        ("release-26", "/var/lib/slurm/slurmctld/clustername", "state"),
        ("release-26", "/var/lib/mysql/slurm_acct_db/release@002d26_job_table.ibd", "database"),
    ]
    assert find(tmp_path)["daemons"] == ["slurmctld", "slurmdbd"]


def test_daemons_of_this_collection(tmp_path: Path) -> None:
    """By the drop-in of the unit or, before a run that was killed has written one, by the configuration."""
    write(
        tmp_path,
        {
            "etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf": "",
            "etc/systemd/system/sackd.service.d/site.conf": "",
            "etc/slurm/slurmdbd.conf": "# Managed by gpucluster.slurm: changes here are overwritten.\n",
        },
    )
    for number, daemon in enumerate(("slurmd", "slurmdbd", "sackd"), 100):
        start(tmp_path, f"/usr/sbin/{daemon}", number)
    assert find(tmp_path)["daemons"] == ["sackd"]


@pytest.mark.parametrize(
    ("command", "environment", "program", "file"),
    [
        ("/usr/sbin/slurmctld -f /srv/b.conf", "SLURM_CONF=/srv/c.conf", "", "/srv/b.conf"),
        ("/usr/sbin/slurmctld -Df/srv/b.conf", "", "", "/srv/b.conf"),
        ("/usr/sbin/slurmctld -D", "A=b SLURM_CONF=/srv/b.conf", "", "/srv/b.conf"),
        ("/usr/sbin/slurmctld -f b.conf", "", "", "/b.conf"),
        ("/usr/sbin/slurmctld -f", "", "", "/"),
        ("/usr/sbin/slurmctld", "", "", "/etc/slurm/slurm.conf"),
        ("/opt/slurm-26/sbin/slurmctld", "", "/opt/slurm-26/sbin/slurmctld", "/opt/slurm-26/etc/slurm.conf"),
        ("/usr/sbin/slurmd -Nf01", "", "", "/etc/slurm/slurm.conf"),
        ("/usr/sbin/slurmd --conf-server ctl:6817", "", "", "/run/slurm/conf/slurm.conf"),
        ("/usr/sbin/sackd --conf-server=ctl", "", "", "/run/slurm/conf/slurm.conf"),
    ],
)
def test_the_configuration_of_a_daemon(command: str, environment: str, program: str, file: str, tmp_path: Path) -> None:
    start(tmp_path, command, environment=environment, program=program)
    (daemon,) = clusters.daemons(Tree(str(tmp_path)))
    assert confs_of(daemon)[0] == file


def test_a_daemon_without_a_file_has_fetched_its_configuration(tmp_path: Path) -> None:
    """slurmd asks the name server for slurmctld then."""
    start(tmp_path, "/usr/sbin/slurmd -D")
    write(tmp_path, {"var/spool/slurmd/conf-cache/slurm.conf": "clustername = B"})
    assert found(tmp_path) == [("b", "/var/spool/slurmd/conf-cache/slurm.conf", "slurmd")]


def test_processes_that_are_no_daemons_of_the_host(tmp_path: Path) -> None:
    start(tmp_path, "/usr/sbin/slurmctld", 100)
    write(tmp_path, {"proc/101/comm": "slurmctld\n", "proc/101/cmdline": "slurmctld: slurmscriptd\0"})
    start(tmp_path, "/usr/sbin/slurmd", 102)
    for process, namespace in (("self", 1), (100, 1), (102, 2)):
        (tmp_path / f"proc/{process}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{process}/ns/pid").symlink_to(f"pid:[{namespace}]")
    assert [daemon.name for daemon in clusters.daemons(Tree(str(tmp_path)))] == ["slurmctld"]


def test_files_that_were_fetched_count_while_their_daemon_starts_with_the_host(tmp_path: Path) -> None:
    """remove_nodes switches slurmd off, and leaves these files."""
    write(tmp_path, {CACHE: "ClusterName=b\n"})
    assert found(tmp_path) == []
    assert found(tmp_path, enabled="slurmd") == [("b", "/run/slurm/conf/slurm.conf", "conf")]


def test_several_clusters(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            CONF: 'ClusterName="c" StateSaveLocation=/srv/state\n',
            "opt/slurm/etc/slurm.conf": "ClusterName=d",
            "srv/state/clustername": "c\n",
            "srv/other/clustername": "e",
            STATE: "old",
        },
    )
    start(tmp_path, "/usr/sbin/slurmctld -f /srv/b.conf")
    write(tmp_path, {"srv/b.conf": "ClusterName=b\nStateSaveLocation=/srv/b\n", "srv/b/clustername": "b"})
    hosts = "# BEGIN gpucluster.slurm f\n10.0.0.1 a\n# END gpucluster.slurm f\n"
    assert found(tmp_path, hosts, state_directory="/srv/other") == [
        ("b", "/srv/b.conf", "slurmctld"),
        ("c", "/etc/slurm/slurm.conf", "conf"),
        ("d", "/opt/slurm/etc/slurm.conf", "conf"),
        ("e", "/srv/other/clustername", "state"),
        ("b", "/srv/b/clustername", "state"),
        ("c", "/srv/state/clustername", "state"),
        ("old", "/var/lib/slurm/slurmctld/clustername", "state"),
        ("f", "/etc/hosts", "mark"),
    ]


def test_included_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            CONF: "ClusterName=a\nInclude names.conf\nInclude missing.conf\ninclude /etc/slurm/slurm.conf\n",
            "etc/slurm/names.conf": "ClusterName=B\nInclude state-%c.conf\n",
            "etc/slurm/state-b.conf": "StateSaveLocation=/srv/b\n",
        },
    )
    assert clusters.settings(Tree(str(tmp_path)), f"/{CONF}") == {"clustername": "B", "statesavelocation": "/srv/b"}


@pytest.mark.parametrize(
    "text",
    [
        "\0\xff\x1b" * 1000,
        "ClusterName",
        "ClusterName=\n",
        "ClusterName=\\\n",
        "include " * 100_000,
        "ClusterName " + "x" * 3_000_000,
        "\\" * 300_000 + "ClusterName",
        "StateSaveLocation=relative\n",
        "Include \0\n",
    ],
    ids=str.__len__,
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str) -> None:
    write(tmp_path, {CONF: text, STATE: text[:1]})
    begin = time.monotonic()
    names = {name for name, _file, by in found(tmp_path) if by != "state"}
    assert names == set()
    assert time.monotonic() - begin < 5


def test_what_is_no_file_and_what_is_huge(tmp_path: Path) -> None:
    (tmp_path / "etc/slurm").mkdir(parents=True)
    os.mkfifo(tmp_path / CONF)
    (tmp_path / STATE).mkdir(parents=True)
    (tmp_path / "usr/local/etc").mkdir(parents=True)
    with open(tmp_path / "usr/local/etc/slurm.conf", "wb") as file:
        file.write(b"ClusterName=b\xc3\xa9\n")
        file.truncate(1 << 40)
    assert found(tmp_path) == [("b?", "/usr/local/etc/slurm.conf", "conf")]


def test_the_answer_has_its_form(tmp_path: Path) -> None:
    write(tmp_path, {CONF: "ClusterName=b\x1b[2J" + "x" * 500, STATE: "b c\x07"})
    for number in range(100):
        write(tmp_path, {f"var/lib/mysql/db\x1b/c{number}_job_table.frm": ""})
    assert len(find(tmp_path)["found"]) == clusters.MOST_FOUND
