# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `storage` of the cluster file: what it may be, and what each host does for it."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall_key import firewall_warning
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    Document,
    ModelError,
    load,
    model_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.storage_key import (
    EXPORTS,
    NFS_CONF_FILE,
    RETRY,
    storage_plans,
    storage_warning,
    unit_name,
)

HOME = {"path": "/home", "type": "nfs", "server": "files", "export": "/srv/home", "options": ["hard", "noatime"]}
MEMBERS: dict[str, Any] = {
    "all": ["head", "files", "gpu1", "gpu2"],
    "login": ["head"],
    "compute": ["gpu1", "gpu2"],
    "controllers": ["head"],
}
ADDRESSES = [{"hosts": "head", "address": "10.0.0.4"}, {"hosts": "gpu[1-2]", "address": "10.0.0.[2-3]"}]
SHA = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"


def cluster(storage: Any, **more: Any) -> dict[str, Any]:
    """A cluster file with this storage."""
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "x",
        "controllers": "head",
        "registry": "files",
        "login": "head",
        "hardware": {"a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}},
        "nodes": [{"hosts": "gpu[1-2]", "hardware": "a"}],
        "partitions": [{"name": "p", "nodes": "ALL"}],
        "storage": storage,
        **more,
    }


def problems(*storage: Any, **more: Any) -> list[str]:
    """What is wrong with it."""
    try:
        load(Document("x.cluster.yml", cluster([*storage], **more)))
    except ModelError as error:
        return error.problems
    return []


def mount(**keys: Any) -> dict[str, Any]:
    """A mount from a server outside, with other keys."""
    return {"path": "/data", "type": "nfs", "source": "nas:/vol/data", **keys}


@pytest.mark.parametrize(
    "entry",
    [
        HOME,
        {"path": "/home", "type": "nfs", "server": "files"},
        mount(),
        mount(source="[fd00::1]:/vol/data", options="vers=4.2,hard"),
        mount(options=["soft", "ro"]),
        mount(hosts="login,gpu1"),
        {"path": "/lustre", "type": "lustre", "source": "10.0.0.1@tcp:/fs", "hosts": "compute", "packages": [
            {"url": "https://packages.example.org/lustre-client.deb", "sha256": SHA}, {"file": "utils.deb"}]},
        {"path": "/bucket", "type": "gcsfuse", "source": "training-data", "packages": [{"name": "gcsfuse"}]},
        {"path": "/scratch", "type": "tmpfs", "hosts": "compute", "scratch": True},
        {"path": "/scratch", "type": "xfs", "source": "/dev/nvme0n1", "hosts": "compute"},
        {"path": "/data/a-b", "type": "none", "source": "/srv/b", "options": ["bind"]},
        {"path": "/home", "type": "autofs"},
        {"path": "/home", "type": "autofs", "hosts": "login,compute"},
    ],
)  # fmt: skip
def test_what_may_be_mounted(entry: dict[str, Any]) -> None:
    assert problems(entry) == []


SECRET = "which is a secret, which all users of a host could read, allowed: a file of the hosts with it"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("x", "storage[0]: found 'x', allowed: a mapping with path, type, "),
        ({"type": "nfs", "source": "a:/b"}, "storage[0].path: missing"),
        (mount(sorce="x"), "storage[0].sorce: unknown key, did you mean 'source'? allowed: "),
        (mount(path="data"), "storage[0].path: found 'data', allowed: an absolute path of letters"),
        (mount(path="/data/../etc"), "storage[0].path: found '/data/../etc', allowed: an absolute path"),
        (mount(path="/data/"), "storage[0].path: found '/data/', allowed: an absolute path"),
        (mount(path="/"), "storage[0].path: found '/', allowed: an absolute path"),
        *(
            (mount(path=path), f"storage[0].path: found '{path}', which the system needs, allowed: another directory")
            for path in ("/etc", "/usr", "/usr/local", "/var", "/run", "/run/x", "/proc", "/sys", "/boot", "/root")
        ),
        (mount(type="n f s"), "storage[0].type: found 'n f s', allowed: a type of mount(8)"),
        (mount(source="nas"), "storage[0].source: found 'nas', allowed: SERVER:/PATH"),
        (mount(source=None), "storage[0].source: missing: say what is mounted"),
        (mount(server="files"), "storage[0]: found source and server, allowed: source, or server with export"),
        (mount(export="/srv"), "storage[0].export: found without server"),
        ({**HOME, "type": "lustre"}, "storage[0].type: found 'lustre' with server, allowed: nfs"),
        ({**HOME, "export": "/home/old"}, "storage[0].export: found '/home/old' below /home, which its mount"),
        ({**HOME, "server": "file"}, "storage[0].server: found 'file', unknown host, did you mean 'files'? allowed: "),
        (mount(hosts="gpu[1-3]"), "storage[0].hosts: found 'gpu3', unknown host, did you mean 'gpu2'? allowed: all, "),
        (mount(hosts="controler"), "did you mean 'controllers'?"),
        (mount(hosts=""), "storage[0].hosts: found '', allowed: a hostlist"),
        (mount(options=["soft"]), "storage[0].options: found 'soft': after the time limit a program loses what"),
        (mount(options=["softerr", "timeo=100"]), "allowed: hard (the default), or softerr with ro"),
        (mount(options=["ro"], homes=True), "storage[0].options: found 'ro' with homes, where users write"),
        (mount(options=["a b"]), "storage[0].options: found ['a b'], 'a b' is no option"),
        (mount(options="noauto"), "'noauto' is for fstab(5)"),
        (mount(options=["x-systemd.automount"]), "'x-systemd.automount' is for fstab(5)"),
        (mount(packages=[{"nam": "x"}]), "storage[0].packages[0].nam: unknown key, did you mean 'name'?"),
        (mount(packages=[{"name": "x", "file": "y"}]), "storage[0].packages[0]: found ['file', 'name'], allowed: name"),
        (mount(packages=[{"url": "https://x.org/y.deb"}]), "storage[0].packages[0].sha256: missing"),
        ({"path": "/data", "type": "none", "source": "/srv"}, "storage[0].type: found 'none', allowed: with option"),
        *(
            ({"path": "/home", "type": "autofs", **key}, f"storage[0].{name}: found {value!r} with autofs, allowed: ")
            for name, value in (("source", "nas:/x"), ("server", "files"), ("options", ["ro"]), ("homes", True))
            for key in [{name: value}]
        ),
        ({"path": "/home", "type": "autofs", "hosts": "gpu9"}, "storage[0].hosts: found 'gpu9', unknown host"),
        (mount(homes="yes"), "storage[0].homes: found 'yes', allowed: true or false"),
        *(
            (mount(type=kind, source=source, options=[option]), f"storage[0].type: found '{kind}' with option {option}")
            for kind, source in (("xfs", "/etc"), ("auto", "/etc"), ("nfs", "nas:/x"), ("tmpfs", "/root"))
            for option in ("bind", "rbind")
        ),
        *(
            (mount(options=[option]), f"{option!r} changes a mount that is there, allowed: options of the file system")
            for option in ("remount", "move")
        ),
        (mount(type="bind", source="/srv"), "storage[0].type: found 'bind', allowed: none, with option bind"),
        (mount(type="cifs", source="//nas/x", options=["username=a", "password=no-secret"]), SECRET),
        (mount(type="cifs", source="//nas/x", options="pass=no-secret"), SECRET),
        (mount(type="cifs", source="//nas/x", options=["password=no-secret", "a b"]), "'a b' is no option"),
        (mount(type="cifs", source="//nas/x", options=["password=no-secret\n"]), "storage[0].options: found"),
        (mount(type="cifs", source="//nas/x", options={"password=no-secret": 1}), "storage[0].options: found"),
        (mount(type="ceph", source="10.0.0.1:/", options=["name=x", "secret=no-secret"]), SECRET),
        (mount(type="davfs", source="https://u:no-secret@nas/"), "allowed: a source without a password"),
    ],
)  # fmt: skip
def test_what_is_refused(entry: Any, message: str) -> None:
    found = problems(entry)
    assert any(message in problem for problem in found), found
    assert "no-secret" not in str(found)


def test_no_host_has_two_mounts_on_a_path() -> None:
    assert problems(mount(hosts="login"), mount(hosts="compute")) == []
    assert problems(mount(hosts="login"), mount(hosts="compute,head")) == [
        "x.cluster.yml: storage[1].path: found '/data' on head, where storage[0] mounts it already"
    ]


def test_scratch_has_one_path() -> None:
    nodes = [{"path": f"/{name}", "type": "tmpfs", "hosts": name, "scratch": True} for name in ("gpu1", "gpu2")]
    assert problems(*nodes) == [
        "x.cluster.yml: storage[1].scratch: found '/gpu2' and '/gpu1', allowed: one path, Slurm's TmpFS"
    ]
    assert problems(nodes[0], slurm_conf={"TmpFS": "/tmp"}) == [
        "x.cluster.yml: slurm_conf.TmpFS: found '/tmp', allowed: '/gpu1', which is scratch"
    ]


def test_the_port_of_a_file_server_is_its_own() -> None:
    assert problems({**HOME, "server": "head"}, slurm_conf={"SlurmctldPort": 2049}) == [
        "x.cluster.yml: NFS: found '2049' on head, where SlurmctldPort is 2049, allowed: another port"
    ]


def test_the_firewall_of_a_file_server() -> None:
    variables = {
        "slurm_controllers": ["head"],
        "slurm_database": "",
        "slurm_registry": "",
        "slurm_nodes": [],
        "slurm_conf": {},
        "slurm_addresses": ADDRESSES,
        "slurm_storage": [HOME],
    }
    assert "files: ufw allow proto tcp from 10.0.0.0/29 to any port 2049" in firewall_warning(
        {"files": ["22"]}, variables
    )


def test_variables_of_a_plain_inventory() -> None:
    variables = {
        "slurm_cluster_name": "x",
        "slurm_controllers": ["head"],
        "slurm_hardware_types": cluster([])["hardware"],
        "slurm_nodes": cluster([])["nodes"],
        "slurm_partitions": cluster([])["partitions"],
        "slurm_storage": [mount(), mount(path="/proc")],
    }
    found = model_errors(variables, ["head"])
    assert found == [
        "slurm_storage[1].path: found '/proc', which the system needs, allowed: another directory such as /home, /data"
        " or /srv/home"
    ]


# -- units -----------------------------------------------------------------------------------------------------------

PATHS = ["/home", "/data/a-b", "/.x/.y", "/a.b/c_d:e", "/a//b", "/a+b@c~d", "/ä/x y", "/a\\b", "/", "/9/-"]


@pytest.mark.parametrize(
    ("path", "name"), [("/home", "home.mount"), ("/data/a-b", "data-a\\x2db.mount"), ("/", "-.mount")]
)
def test_names_of_units(path: str, name: str) -> None:
    assert unit_name(path) == name


@pytest.mark.skipif(not shutil.which("systemd-escape"), reason="no systemd here")
@pytest.mark.parametrize("path", PATHS)
def test_names_of_units_are_those_of_systemd(path: str) -> None:
    command = ["systemd-escape", "--path", "--suffix=mount", path]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stdout.rstrip("\n")
    assert unit_name(path) == said


def plan(host: str, *storage: dict[str, Any], users: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """What a host does."""
    found = storage_plans(storage, MEMBERS, {"users": [*users]}, ADDRESSES)
    of_host: dict[str, Any] = found["plans"][found["hosts"][host]]
    return of_host


def settings(content: str) -> dict[str, str]:
    """The settings of a unit."""
    return dict(line.split("=", 1) for line in content.split("\n") if "=" in line and not line.startswith("#"))


def test_the_unit_of_a_network_file_system() -> None:
    (unit,) = plan("gpu1", HOME)["mounts"]
    found = settings(unit["content"])
    assert (unit["unit"], found["What"], found["Where"], found["Type"]) == (
        "home.mount",
        "files:/srv/home",
        "/home",
        "nfs",
    )
    assert found["Options"] == "hard,noatime,_netdev,nofail"
    assert found["WantedBy"] == "remote-fs.target"
    assert "slurmd.service" in found["Before"]


def test_the_unit_of_a_file_system_of_the_host() -> None:
    (unit,) = plan("gpu1", {"path": "/scratch", "type": "xfs", "source": "LABEL=50%"})["mounts"]
    found = settings(unit["content"])
    assert (found["What"], found["Options"], found["WantedBy"]) == ("LABEL=50%%", "nofail", "local-fs.target")


def test_mounts_are_in_order() -> None:
    entries = [mount(path=path) for path in ("/data/a/b", "/home", "/data", "/data/a")]
    assert [each["path"] for each in plan("gpu1", *entries)["mounts"]] == ["/data", "/data/a", "/data/a/b", "/home"]


def test_equal_hosts_share_a_plan() -> None:
    found = storage_plans([HOME, mount(hosts="compute")], MEMBERS, {}, ADDRESSES)
    assert found["hosts"] == {"files": 0, "head": 1, "gpu1": 2, "gpu2": 2}
    assert storage_plans([], MEMBERS, {}, ADDRESSES) == {"plans": [], "hosts": {}}


def test_two_mounts_on_a_path_are_no_plan() -> None:
    with pytest.raises(ValueError, match=r"slurm_storage\[1\].path: found '/data' twice on head"):
        plan("head", mount(), mount(hosts="login"))


# -- the server ------------------------------------------------------------------------------------------------------


def test_the_server_exports_to_the_hosts_that_mount() -> None:
    found = plan("files", HOME, {**HOME, "path": "/sw", "export": "/srv/sw", "hosts": "login"})
    assert found["exports"] == ["/srv/home", "/srv/sw"]
    options = "(rw,sync,no_subtree_check,root_squash)"
    assert found["files"][EXPORTS].split("\n")[1:] == [
        f"/srv/home 10.0.0.2/31{options} 10.0.0.4{options}",
        f"/srv/sw 10.0.0.4{options}",
        "",
    ]
    assert "vers3=n" in found["files"][NFS_CONF_FILE]
    assert {"name": "nfs-kernel-server"} in found["packages"]


def test_a_directory_without_clients_is_not_exported() -> None:
    found = plan("files", {**HOME, "hosts": "files"})
    assert (found["exports"], [each["type"] for each in found["mounts"]]) == ([], ["none"])


def test_clients_without_an_address_are_names() -> None:
    (line,) = storage_plans([HOME], MEMBERS, {}, [])["plans"][0]["files"][EXPORTS].split("\n")[1:2]
    assert [client.partition("(")[0] for client in line.split()[1:]] == ["head", "gpu1", "gpu2"]


def test_the_server_sees_its_own_export_by_a_bind_mount() -> None:
    (unit,) = plan("files", HOME)["mounts"]
    found = settings(unit["content"])
    assert (found["What"], found["Type"], found["Options"]) == ("/srv/home", "none", "bind,noatime,nofail")
    same = plan("files", {**HOME, "export": "/home"})
    assert (same["mounts"], RETRY in same["files"]) == ([], False)


def test_packages_of_a_type() -> None:
    lustre = {"path": "/l", "type": "lustre", "source": "a@tcp:/fs", "packages": [{"file": "l.deb"}, {"file": "l.deb"}]}
    assert plan("gpu1", HOME, mount(), lustre)["packages"] == [{"name": "nfs-common"}, {"file": "l.deb"}]


# -- homes -----------------------------------------------------------------------------------------------------------

ALICE = {"name": "alice", "uid": 5001, "gid": 6001, "home": "/home/alice", "state": "present"}
GONE = {"name": "gone", "uid": 5002, "gid": 5002, "home": "/home/gone", "state": "absent"}
ELSEWHERE = {"name": "bob", "uid": 5003, "gid": 5003, "home": "/opt/bob", "state": "present"}
USERS = (ALICE, GONE, ELSEWHERE)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param({**HOME, "homes": True}, {"files": ["/srv/home/alice"]}, id="server"),
        pytest.param({**mount(path="/home"), "homes": True}, {"head": ["/home/alice"]}, id="outside"),
        pytest.param(
            {"path": "/home", "type": "xfs", "source": "/dev/sdb", "hosts": "compute", "homes": True},
            {"gpu1": ["/home/alice"], "gpu2": ["/home/alice"]},
            id="local",
        ),
        pytest.param(HOME, {}, id="no-homes"),
    ],
)
def test_where_homes_are_made(entry: dict[str, Any], expected: dict[str, list[str]]) -> None:
    homes_of = {
        host: plan(host, entry, users=USERS)["homes"]
        for host in ("files", "head", "gpu1", "gpu2")
        if host in storage_plans([entry], MEMBERS, {"users": USERS}, ADDRESSES)["hosts"]
    }
    assert {host: [home["path"] for home in homes] for host, homes in homes_of.items() if homes} == expected
    assert all((home["uid"], home["gid"]) == (5001, 6001) for homes in homes_of.values() for home in homes)


@pytest.mark.parametrize(
    ("storage", "named"),
    [
        ([{**HOME, "homes": True}], "bob"),
        ([], "alice, bob"),
        ([{**HOME, "hosts": "compute"}], "alice, bob"),
        ([{**HOME, "path": "/opt"}, HOME], ""),
    ],
)
def test_users_whose_homes_are_not_shared_are_named(storage: list[dict[str, Any]], named: str) -> None:
    warning = storage_warning(storage, MEMBERS, {"users": USERS})
    assert warning.startswith(f"The homes of {named} are not on storage") if named else warning == ""


BIND = {"path": "/home", "source": "/lustre/home", "type": "none", "options": ["bind"], "hosts": "all", "homes": True}
LUSTRE = {"path": "/lustre", "source": "mgs@tcp:/fs", "type": "lustre", "hosts": "all"}


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        ([BIND, LUSTRE], ""),
        (
            [BIND],
            "on /home, a bind mount of /lustre/home, which is in no storage of the cluster file. If that is a directory"
            " of each host itself, the output of a job stays on the node where it ran",
        ),
        ([BIND, {**LUSTRE, "hosts": "login"}], "The storage at /lustre needs gpu[1-2] among its hosts"),
        ([BIND, {**LUSTRE, "type": "xfs"}], "The storage at /lustre is a file system of each host itself"),
    ],
)
def test_the_homes_of_a_bind_mount_are_where_it_leads(storage: list[dict[str, Any]], reason: str) -> None:
    """No advice to give the cluster file what it has."""
    warning = storage_warning(storage, MEMBERS, {"users": [{"name": "alice", "uid": 5001}]})
    assert warning.endswith(reason)
    assert bool(warning) == bool(reason)
    assert "homes: true" not in warning


def test_the_automounter_of_the_site_mounts() -> None:
    """The collection mounts and makes nothing there, and does not ask for shared homes, which the site has."""
    storage = [{"path": "/home", "type": "autofs"}]
    alice = {"users": [{"name": "alice", "uid": 5001}]}
    assert storage_plans(storage, MEMBERS, alice, ADDRESSES) == {"plans": [], "hosts": {}}
    assert storage_warning(storage, MEMBERS, alice) == ""
    assert "needs gpu[1-2] among its hosts" in storage_warning([{**storage[0], "hosts": "login"}], MEMBERS, alice)
    assert problems(*storage, {**mount(), "path": "/home", "hosts": "gpu1"}) == [
        "x.cluster.yml: storage[1].path: found '/home' on gpu1, where storage[0] mounts it already"
    ]


def test_one_host_shares_with_nobody() -> None:
    assert storage_warning([], {**MEMBERS, "login": ["gpu1"], "compute": ["gpu1"]}, {"users": USERS}) == ""
    assert storage_warning([], MEMBERS, {"users": [{"name": f"u{i}", "uid": 5000 + i} for i in range(9)]}).startswith(
        "The homes of u0, u1, u2, u3, u4 and 4 more are"
    )
