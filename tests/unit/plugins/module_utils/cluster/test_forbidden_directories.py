# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories that two parts of a cluster file would share, paths of daemons, and the system's directories."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    Document,
    ModelError,
    load,
    model_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.role_values import home_problems, value_problems
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.directory_purposes import (
    PURPOSES,
    directory_error,
)

CLUSTER: dict[str, Any] = {
    "plugin": "gpucluster.slurm.cluster",
    "name": "x",
    "controllers": "head",
    "login": "login",
    "hardware": {"a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}},
    "nodes": [{"hosts": "gpu[1-2]", "hardware": "a"}],
    "partitions": [{"name": "p", "nodes": "ALL"}],
}


def problems(**keys: Any) -> list[str]:
    """What is wrong with a cluster file that has these keys."""
    try:
        load(Document("x.cluster.yml", {**CLUSTER, **keys}))
    except ModelError as error:
        return error.problems
    return []


# -- the system ------------------------------------------------------------------------------------------------------

SYSTEM = [
    *("/etc", "/usr/lib", "/lib64", "/boot", "/proc/1", "/sys", "/dev/sda", "/run/systemd", "/root", "/snap/core"),
    *("/var/lib/munge", "/var/lib/systemd", "/var/lib/dpkg", "/var/lib/apt", "/var/lib/sudo", "/var/lib/chrony"),
    *("/var/lib/NetworkManager", "/var/lib/apparmor", "/var/lib/dhcp", "/var/lib/cloud", "/var/lib/rpm"),
    *("/var/lib/slurmdbd/x", "/var/lib/postfix", "/var/lib/samba/private", "/var/lib/ldap", "/var/lib/krb5kdc"),
    *("/var/log/munge", "/var/log/apt/x", "/var/log/audit", "/var/log/private", "/var/spool/anacron"),
    *("/var/spool/postfix", "/var/spool/rsyslog", "/var/cache/ldconfig", "/var/cache/private", "/var/cache/man"),
    *("/var/empty/x", "/var/db/x", "/nonexistent/x", "/selinux/x", "/sysroot/x", "/cgroup/x"),
]
SPELLINGS = ["/{}", "{}/.", "{}/", "{}/../etc", ".{}", "~{}", "{}\n", " {}", "{}//x", "$HOME{}", "{}\0"]


@pytest.mark.parametrize("purpose", [*PURPOSES])
def test_no_purpose_has_other_spellings_of_a_directory(purpose: str) -> None:
    for path in ("/data/own", "/etc", "/"):
        for spelling in SPELLINGS:
            assert directory_error(spelling.format(path), purpose), spelling.format(path)
    for path in ("/" + "a" * 5000, "/a" * 3000, "/a\u2028b", "/a\x1b[2Jb", "/a\udcffb", "", "-x", "a/b", "."):
        assert directory_error(path, purpose), path[:20]


@pytest.mark.parametrize("purpose", sorted({*PURPOSES} - {"shell", "secrets", "local", "cgroups"}))
def test_no_purpose_has_a_directory_of_the_system(purpose: str) -> None:
    for path in SYSTEM:
        place = f"{path}/%U" if purpose == "one_user" else path
        assert directory_error(place, purpose), place


# -- paths of daemons ------------------------------------------------------------------------------------------------

OF_SITES = ("/home", "/srv", "/opt", "/mnt", "/media")


@pytest.mark.parametrize("path", OF_SITES)
def test_no_daemon_has_a_directory_that_is_for_others_as_well(path: str) -> None:
    for name in ("StateSaveLocation", "SlurmdSpoolDir"):
        (found,) = problems(slurm_conf={name: path})
        assert found.startswith(f"x.cluster.yml: slurm_conf.{name}: found {path!r}, which is for others as well, ")
        assert problems(slurm_conf={name: f"{path}/slurm"}) == []
    variables = {"slurm_cluster_name": "x", "slurm_controllers": ["head"]}
    (error,) = model_errors({**variables, "slurmdbd_conf": {"ArchiveDir": path}}, ["head"])
    assert error.startswith(f"slurmdbd_conf.ArchiveDir: found {path!r}, which is for others as well, ")


@pytest.mark.parametrize("name", ["StateSaveLocation", "SlurmdSpoolDir", "TmpFS", "SlurmdLogFile", "SlurmctldPidFile"])
@pytest.mark.parametrize("value", [True, "/srv/x\n", "/srv/x\ny"])
def test_a_wrong_path_is_one_error(name: str, value: Any) -> None:
    (found,) = problems(slurm_conf={name: value})
    assert found.startswith(f"x.cluster.yml: slurm_conf.{name}: found {value!r}, ")
    log = {"JobCompType": "jobcomp/filetxt", "JobCompLoc": value}
    assert len(problems(slurm_conf=log)) == 1


LOGS = ("SlurmctldLogFile", "SlurmdLogFile", "SlurmSchedLogFile")
PIDS = ("SlurmctldPidFile", "SlurmdPidFile")
NO_FILES = [
    *("/etc/shadow", "/etc/slurm/x", "/dev/sda", "/usr/bin/x", "/root/.ssh/authorized_keys", "/proc/1/mem", "/var/log"),
    *("/", "/boot/x", "/home/alice/.ssh/authorized_keys", "/var/spool/cron/crontabs/root", "/var/lib/dpkg/status"),
    *("relative.log", "../x", "~/x", "-x", "$(id)", "/x/../etc/passwd", "/x/", "//x", "/run/systemd/x", "/run/munge/x"),
    *("/run/sudo/ts/x", "/var/run/dbus/x", "/sys/x", "/lib/x", "/var/mail/root", "/var/cache/apt/x", "/run", "/tmp/x"),
]


@pytest.mark.parametrize("path", NO_FILES)
def test_daemons_write_no_files_of_the_system(path: str) -> None:
    for name in (*LOGS, *PIDS):
        found = problems(slurm_conf={name: path})
        assert len(found) == 1, (name, found)
        assert found[0].startswith(f"x.cluster.yml: slurm_conf.{name}: found {path!r}, ")
        assert "allowed: " in found[0]
    assert len(problems(slurm_conf={"JobCompType": "jobcomp/filetxt", "JobCompLoc": path})) == 1
    variables = {"slurm_cluster_name": "x", "slurm_controllers": ["head"]}
    for name in ("LogFile", "PidFile", "ArchiveDir"):
        if (name, path) != ("ArchiveDir", "/tmp/x"):
            (error,) = model_errors({**variables, "slurmdbd_conf": {name: path}}, ["head"])
            assert error.startswith(f"slurmdbd_conf.{name}: found ")


def test_files_that_daemons_have() -> None:
    for path in ("/var/log/slurm/slurmd.log", "/var/log/slurmd.log", "/var/log/slurm-llnl/%n.log", "/data/log/slurmd"):
        assert problems(slurm_conf=dict.fromkeys(LOGS, path)) == []
    assert problems(slurm_conf={"SlurmSchedLogFile": "/dev/null"}) == []
    for path in ("/run/slurmctld.pid", "/var/run/slurm/slurmd.pid", "/run/slurm/%n.pid", "/var/lib/slurm/x.pid"):
        assert problems(slurm_conf=dict.fromkeys(PIDS, path)) == []
    assert problems(slurm_conf={"TmpFS": "/tmp"}, cgroup_conf={"CgroupMountpoint": "/sys/fs/cgroup"}) == []
    assert problems(slurm_conf={"JobCompType": "jobcomp/script", "JobCompLoc": "/usr/local/bin/done"}) == []


@pytest.mark.parametrize("path", ["/etc", "/", "/proc", "cgroup", "/sys/kernel", "/home", "/sys/fs/../x"])
def test_cgroups_are_where_the_kernel_has_them(path: str) -> None:
    (found,) = problems(cgroup_conf={"CgroupMountpoint": path})
    assert found.startswith("x.cluster.yml: cgroup_conf.CgroupMountpoint: found ")
    for right in ("/sys/fs/cgroup", "/cgroup", "/dev/cgroup"):
        assert problems(cgroup_conf={"CgroupMountpoint": right}) == []


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("slurm_conf.StateSaveLocatoin", "found 'slurm_conf.StateSaveLocatoin', unknown key, did you mean "),
        ("slurm_conf.SlurmdPort", "found 'slurm_conf.SlurmdPort', unknown key"),
        ({"a": 1}, "found {'a': 1}, unknown key"),
    ],
)
def test_only_values_that_lose_nothing_can_be_taken_over(key: Any, what: str) -> None:
    (found,) = problems(taken_over=[key])
    assert found.startswith(f"x.cluster.yml: taken_over[0]: {what}")
    assert "allowed: slurm_conf.StateSaveLocation, " in found


def test_a_value_is_taken_over_by_its_name() -> None:
    conf = {"StateSaveLocation": "/tmp/x", "SlurmdSpoolDir": "relative", "SlurmdLogFile": "/etc/x"}
    keys = [f"slurm_conf.{name}" for name in ("StateSaveLocation", "SlurmdSpoolDir")]
    relative, log = problems(slurm_conf=conf, taken_over=keys)
    assert relative.startswith("x.cluster.yml: slurm_conf.SlurmdSpoolDir: found 'relative', allowed: an absolute path")
    assert log.startswith("x.cluster.yml: slurm_conf.SlurmdLogFile: found '/etc/x', which the system needs, allowed: ")


# -- two uses --------------------------------------------------------------------------------------------------------

USES: dict[str, Any] = {
    "slurm_conf.StateSaveLocation": lambda path: {"slurm_conf": {"StateSaveLocation": path}},
    "slurm_conf.SlurmdSpoolDir": lambda path: {"slurm_conf": {"SlurmdSpoolDir": path}},
    "private_tmp": lambda path: {"private_tmp": path},
    "backup.target": lambda path: {"backup": {"target": path}},
    "users[0].home": lambda path: {"users": [{"name": "alice", "uid": 5001, "home": path}]},
    "storage[0].export": lambda path: {"storage": [{"path": "/d", "type": "nfs", "server": "head", "export": path}]},
}
PAIRS = [(one, other) for i, one in enumerate(USES) for other in [*USES][i + 1 :]]
FREE = [
    # Slurm's defaults are in each other, and only the controllers mount the state.
    ("slurm_conf.StateSaveLocation", "slurm_conf.SlurmdSpoolDir"),
    ("slurm_conf.StateSaveLocation", "storage[0].export"),
    ("users[0].home", "storage[0].export"),
]


def both(one: str, first: str, other: str, second: str) -> list[str]:
    """What is wrong with a cluster file with two directories."""
    keys = {**USES[one](first), "nodes": [{"hosts": "head,gpu[1-2]", "hardware": "a"}]}
    for key, value in USES[other](second).items():
        keys[key] = {**keys[key], **value} if key in keys else value
    return problems(**keys)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_no_two_uses_have_one_directory(one: str, other: str) -> None:
    for first, second in (("/data/x", "/data/x"), ("/data/x", "/data/x/y"), ("/data/x/y", "/data/x")):
        above = other.endswith("export") and second == "/data/x" and first != second
        wanted = 0 if above or ((one, other) in FREE and (first != second or other.endswith("export"))) else 1
        if (one, other) == ("slurm_conf.StateSaveLocation", "storage[0].export") and first != "/data/x/y":
            wanted = 1  # the rule about the state
        found = both(one, first, other, second)
        assert len(found) == wanted, (first, second, found)
        assert all("allowed: " in text for text in found)
    assert both(one, "/data/x", other, "/data/xy") == []


def test_slurmctld_and_slurmd_of_different_hosts_can_have_one_directory() -> None:
    """As clusters have it that run: its change would end their jobs."""
    keys: dict[str, Any] = {"slurm_conf": dict.fromkeys(("StateSaveLocation", "SlurmdSpoolDir"), "/var/spool/slurm")}
    assert problems(**keys) == []
    (found,) = problems(**keys, nodes=[{"hosts": "head,gpu[1-2]", "hardware": "a"}])
    assert found.startswith("x.cluster.yml: slurm_conf.SlurmdSpoolDir: found '/var/spool/slurm', with Slurm's State")


@pytest.mark.parametrize("key", ["slurm_conf.SlurmdSpoolDir", "private_tmp", "backup.target"])
def test_no_file_system_is_mounted_in_a_directory_of_others(key: str) -> None:
    keys = {**USES[key]("/data/x"), "storage": [{"path": "/data/x/y", "type": "xfs", "source": "/dev/sdb"}]}
    (found,) = problems(**keys)
    assert found.startswith("x.cluster.yml: storage[0].path: found '/data/x/y', with ")
    assert problems(**{**keys, "storage": [{"path": "/data/x", "type": "xfs", "source": "/dev/sdb"}]}) == []


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
@pytest.mark.parametrize("key", ["slurm_conf.StateSaveLocation", "backup.target"])
def test_what_must_last_is_on_a_disk(key: str, kind: str) -> None:
    keys = USES[key]("/data/x")
    (found,) = problems(**keys, storage=[{"path": "/data", "type": kind}])
    assert found == (
        f"x.cluster.yml: {key}: found '/data/x' on '/data', which a reboot empties, allowed: a file system on a disk"
    )
    nearer = {"path": "/data/x", "type": "nfs", "source": "nas:/x"}
    assert problems(**keys, storage=[{"path": "/data", "type": kind}, nearer]) == []


@pytest.mark.parametrize("key", ["slurm_conf.SlurmdSpoolDir", "private_tmp"])
@pytest.mark.parametrize("kind", ["nfs", "lustre", "ceph"])
def test_what_each_node_needs_is_on_no_file_server(key: str, kind: str) -> None:
    mount = {"path": "/data", "type": kind, "source": "nas:/x"}
    (found,) = problems(**USES[key]("/data/x"), storage=[mount])
    assert found.startswith(f"x.cluster.yml: {key}: found '/data/x' on '/data', where all nodes would have one ")
    assert problems(**USES[key]("/data/x"), storage=[{**mount, "hosts": "login"}]) == []
    assert problems(slurm_conf={"SlurmdSpoolDir": "/data/spool/%n"}, storage=[mount]) == []


def test_the_registry_has_a_directory_of_its_own() -> None:
    variables = {"slurm_cluster_name": "x", "slurm_controllers": ["head"], "registry_dir": "/srv/images"}
    assert model_errors(variables, ["head"]) == []
    for more in (
        {"slurm_conf": {"StateSaveLocation": "/srv/images"}},
        {"slurm_conf": {"SlurmdSpoolDir": "/srv/images/x"}},
        {"slurm_private_tmp": "/srv/images/x"},
        {"slurm_backup": {"target": "/srv/images"}},
        {"slurm_storage": [{"path": "/srv", "type": "tmpfs"}]},
    ):
        (error,) = model_errors({**variables, **more}, ["head"])
        assert error.startswith("registry_dir: found '/srv/images', ") or "registry_dir" in error
    for path in ("/home", "/srv", "/opt", "/mnt", "/media"):
        assert [*value_problems({"registry_dir": path})]
        assert problems(backup={"target": path})


# -- directories of users --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("/home", "/opt", "/scratch", "/%u", "%u", "/home/%u", "/home/%U", "/opt/%u", "/srv/%U", "/mnt/%u", "/run/%U"),
        *(
            "/var/lib/%U",
            "/var/%u",
            "/var/log/%U",
            "/run/sudo/%U",
            "/data/%u/x",
            "/data/%ux",
            "/data/%h",
            "%h",
            "%h/..",
        ),
    ],
)
def test_enroot_removes_only_directories_that_it_has_made(path: str) -> None:
    """A role's epilog removes them as root after a job, and their parent is given to all users of a login host."""
    for name in ("enroot_temp_dir", "enroot_data_dir", "enroot_runtime_dir", "enroot_cache_dir", "enroot_config_dir"):
        (error,) = value_problems({name: path})
        assert error.startswith(f"{name}: found {path!r}, ")


def test_enroot_removes_no_home() -> None:
    people = {"users": [{"name": "alice", "uid": 5001, "home": "/data/home/alice"}, {"name": "b", "home": "/u/5002/b"}]}
    (error,) = home_problems({"enroot_temp_dir": "/data/home/%u"}, lambda: people)
    assert error == (
        "enroot_temp_dir: found '/data/home/%u', which has the home /data/home/alice, "
        "allowed: a directory without homes"
    )
    assert [*home_problems({"enroot_temp_dir": "/data/enroot/%u", "enroot_data_dir": "%h/x"}, lambda: people)] == []
    assert [*home_problems({"enroot_data_dir": "/data/home/%u"}, lambda: {"source": "directory"})] == []
