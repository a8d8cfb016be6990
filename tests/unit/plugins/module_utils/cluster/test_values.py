# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of a cluster file that would become commands or options of other programs, or directories of the system."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    Document,
    ModelError,
    load,
    model_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.role_values import value_problems

COLLECTION = Path(__file__).parents[5]
STATE = "/shared/state"
MOUNT = {"path": "/data", "type": "nfs", "source": "nas:/vol/data"}
SERVED = {"path": "/data", "type": "nfs", "server": "head"}


def cluster(**keys: Any) -> dict[str, Any]:
    """A cluster file with these keys."""
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "x",
        "controllers": "head",
        "hardware": {"a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}},
        "nodes": [{"hosts": "gpu[1-2]", "hardware": "a"}],
        "partitions": [{"name": "p", "nodes": "ALL"}],
        **keys,
    }


def problems(**keys: Any) -> list[str]:
    """What is wrong with it."""
    try:
        load(Document("x.cluster.yml", cluster(**keys)))
    except ModelError as error:
        return error.problems
    return []


def the_problem(key: str, **keys: Any) -> str:
    """The only problem, which is that of a key."""
    (found,) = problems(**keys)
    assert found.startswith(f"x.cluster.yml: {key}: "), found
    assert "allowed: " in found
    return found


# -- packages --------------------------------------------------------------------------------------------------------

OPTIONS_OF_APT = [
    *("at-", "bash-", "libc6-", "g++-", "at:amd64-", "at=3.2.5-", "at/stable-", "at--"),
    *("-y", "--purge", "--allow-remove-essential", "-oAPT::Get::AllowUnauthenticated=true", "-t=sid", "--", "-"),
    *("-oDPkg::Pre-Invoke::=/bin/sh", "--option=Dir::Etc=/tmp", "-c/tmp/apt.conf", "+at", "/tmp/own.deb", "./own.deb"),
    *("; rm", "at; rm -rf /", "at && id", "at|id", "$(id)", "`id`", "at\nbash-", "at bash-", " at", "at ", "at\t"),
    *("At", "a", "", ".at", "~nat", "?installed", "at*", "^at", "at$", "at?", "at^", "a_b", "ät", "at\0", "{{ x }}"),
    *("at=", "at=abc", "at=1 2", "at:", "at:AMD64", "at/", "at/a/b", "at=1/stable", "at@", "at!", "a" * 129),
    *(
        "at=1*",
        "at=" + "1" * 200,
        "https://example.org/a.deb",
        "a" * 100_000,
        "at%2d",
        "at\\-",
        "at\u2010",
        "at-\u200b",
    ),
]
NAMES = [
    *("at", "g++", "libstdc++6", "libdb5.3++", "fact++", "0ad", "7zip", "python3.13", "lustre-client", "enroot+caps"),
    *("bash:amd64", "bash=5.2.15-2+b13", "slurmd=1:24.11.5-4~bpo12+1", "apptainer/trixie-backports"),
    *("at:any=3.2.5", "linux-image-6.12.0-1-amd64", "a" * 128, "slurm-smd=25.11.2-1+"),
]


@pytest.mark.parametrize("name", OPTIONS_OF_APT)
def test_no_name_of_a_package_is_an_option_or_an_action_of_apt(name: str) -> None:
    found = problems(storage=[{**MOUNT, "packages": [{"name": name}]}])
    assert len(found) == 1, found
    assert found[0].startswith("x.cluster.yml: storage[0].packages[0].name: found ")
    for variable, value in (
        ("base_packages", [name]),
        ("base_extra_packages", [name]),
        ("rolling_packages", [name]),
        ("apptainer_packages", [{"name": name}]),
        ("enroot_packages", [{"name": name}]),
        ("pyxis_packages", {"24.11": {"name": name}}),
    ):
        (error,) = value_problems({variable: value})
        assert error.startswith(variable)
        assert "allowed: " in error


@pytest.mark.parametrize("name", NAMES)
def test_names_of_packages(name: str) -> None:
    assert problems(storage=[{**MOUNT, "packages": [{"name": name}]}]) == []
    assert [*value_problems({"base_extra_packages": [name], "apptainer_packages": [{"name": name}]})] == []


@pytest.mark.parametrize("name", ["nvidia_driver_branch", "nvidia_driver_version"])
@pytest.mark.parametrize("value", ["550-", "-550", "550;id", "550 ", "550/", "$(id)", "550\n", "55*"])
def test_the_driver_has_a_plain_version(name: str, value: str) -> None:
    (error,) = value_problems({name: value})
    assert error.startswith(f"{name}: found ")
    assert [*value_problems({"nvidia_driver_branch": "550", "nvidia_driver_version": "550.163.01"})] == []


@pytest.mark.parametrize("name", ["../../../etc/shadow", "a/../../x.deb", "x.deb\n", "~/x.deb", "packages/", "x\0.deb"])
def test_files_stay_below_the_directory_of_the_cluster_file(name: str) -> None:
    the_problem("storage[0].packages[0].file", storage=[{**MOUNT, "packages": [{"file": name}]}])
    the_problem("packages.key", packages={"repository": "https://x.org/slurm noble main", "key": name})
    found = problems(packages={"files": [{"file": name}]})
    assert any(problem.startswith("x.cluster.yml: packages.files[0].file: found") for problem in found)


# -- directories -----------------------------------------------------------------------------------------------------

SYSTEM = [
    *("/", "/etc", "/etc/ssh", "/etc/slurm", "/usr", "/usr/local/x", "/bin", "/sbin/x", "/lib/x", "/lib64", "/boot/x"),
    *("/dev", "/dev/shm/x", "/proc/1", "/sys/fs", "/run/slurm", "/var/run/x", "/var/lock/x", "/root", "/root/.ssh"),
    *("/var", "/var/lib", "/var/log", "/var/spool", "/var/cache", "/var/lib/mysql", "/var/lib/mysql/x"),
    *("/var/lib/dpkg", "/var/lib/apt/x", "/var/lib/systemd", "/var/lib/munge", "/var/lib/private/x", "/var/mail"),
    *("/var/lib/gpucluster-slurm", "/var/cache/gpucluster-slurm", "/var/spool/cron/x", "/var/log/journal"),
    *("/tmp", "/tmp/x", "/var/tmp", "/var/tmp/x", "/home/alice/.ssh", "/home/alice/.gnupg/x", "/data/.ssh/x"),
    *("/data/", "/data//x", "//data", "/data/.", "/data/./x", "/data/..", "/srv/backup/../../etc", "data", "./data"),
    *(" /data", "/data ", "/data/x ", "/data\n", "/da\nta", "/data/a b", "/data/$(id)", "/data/`id`", "/data;id"),
    *("/data/*", "/data/%H", "/data/é\u202e", "/data\0", "/data/'x'", '/data/"x"', "/data\\x", "/data/#x", "~/data"),
    *("/" + "a" * 300, "/a" * 600, "/" + "a" * 100_000, ""),
]
PLACES: dict[str, Any] = {
    "storage[0].path": lambda path: {"storage": [{**MOUNT, "path": path}]},
    "storage[0].export": lambda path: {"storage": [{**SERVED, "export": path}]},
    "private_tmp": lambda path: {"private_tmp": path},
    "backup.target": lambda path: {"backup": {"target": path}},
    "users[0].home": lambda path: {"users": [{"name": "alice", "uid": 5001, "home": path}]},
}


@pytest.mark.parametrize("path", SYSTEM)
@pytest.mark.parametrize("key", [*PLACES])
def test_directories_of_the_system_have_no_other_use(key: str, path: str) -> None:
    if key == "private_tmp" and not path:
        return  # no key
    the_problem(key, **PLACES[key](path))


@pytest.mark.parametrize(
    ("key", "path"),
    [
        *(
            ("storage[0].path", path)
            for path in ("/home", "/srv", "/opt", "/mnt/x", "/scratch", "/var/lib/slurm", "/a-b")
        ),
        *(("storage[0].path", path) for path in ("/var/spool/slurmctld", "/var/lib/docker", "/data/a.b_c:d+e@f~g")),
        *(("storage[0].export", path) for path in ("/srv/home", "/export", "/var/nfs/home")),
        *(("private_tmp", path) for path in ("/local/jobs", "/scratch/tmp", "/var/lib/jobs")),
        *(("backup.target", path) for path in ("/srv/backup", "/home/backup", "/var/backups/slurm", "/b")),
        *(("users[0].home", path) for path in ("/home/alice", "/data/home/alice", "/users/a/alice")),
    ],
)
def test_directories_of_the_site(key: str, path: str) -> None:
    assert problems(**PLACES[key](path)) == []


@pytest.mark.parametrize("key", ["private_tmp", "backup.target", "users[0].home", "storage[0].export"])
@pytest.mark.parametrize("path", [STATE, f"{STATE}/x", "/local/slurmd", "/local/slurmd/x"])
def test_no_directory_of_a_daemon_has_another_use(key: str, path: str) -> None:
    conf = {"StateSaveLocation": STATE, "SlurmdSpoolDir": "/local/slurmd/%n"}
    if key == "storage[0].export" and path.startswith("/local"):
        return  # only the state is on servers
    the_problem(key, slurm_conf=conf, **PLACES[key](path))


def test_controllers_may_share_their_state_by_a_server_of_the_cluster() -> None:
    conf = {"StateSaveLocation": STATE}
    assert problems(slurm_conf=conf, storage=[{**SERVED, "path": STATE, "hosts": "controllers"}]) == []
    assert problems(slurm_conf=conf, storage=[{**MOUNT, "path": STATE}]) == []
    assert problems(slurm_conf=conf, private_tmp="/local/jobs") == []


@pytest.mark.parametrize("path", ["/etc/slurm/state", "/tmp", "/root/x", "/shared/../etc", "/shared//x", "/x/", "/x "])
@pytest.mark.parametrize("key", ["StateSaveLocation", "SlurmdSpoolDir"])
def test_directories_of_daemons(key: str, path: str) -> None:
    the_problem(f"slurm_conf.{key}", slurm_conf={key: path})


@pytest.mark.parametrize(
    "conf",
    [
        *({"StateSaveLocation": path} for path in ("/var/lib/slurm/slurmctld", "/var/spool/slurmctld", "/var/spool")),
        *({"SlurmdSpoolDir": path} for path in ("/var/spool/slurmd", "/var/spool/slurmd/%n", "/run/slurmd", "/x/%h")),
    ],
)
def test_directories_that_daemons_have(conf: dict[str, str]) -> None:
    assert problems(slurm_conf=conf) == []


SHELLS = [
    *("/bin/false;id", "/etc/x", "/etc/passwd", "/bin/bash -c id", "/bin/$(id)", "/bin/`id`", "/bin/a|b", "/bin/a&b"),
    *("/bin/../etc/x", "/bin//bash", "/bin/bash/", "/bin/bash\n", "/bin/bash:x", "bash", "./bash", "/bash", "/", ""),
    *("/tmp/sh", "/var/tmp/sh", "/dev/shm/sh", "/proc/self/exe", "/sys/sh", "/run/sh", "/root/sh", "/boot/sh"),
    *(
        "/bin/'sh'",
        '/bin/"sh"',
        "/bin/sh\\",
        "/bin/sh*",
        "/bin/{a,b}",
        "/bin/sh>x",
        "/bin/sh#",
        "/bin",
        "/usr",
        "/b/\u202e",
    ),
]


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_no_shell(shell: str) -> None:
    the_problem("users[0].shell", users=[{"name": "alice", "uid": 5001, "shell": shell}])


@pytest.mark.parametrize(
    "shell", ["/bin/bash", "/usr/bin/zsh", "/usr/sbin/nologin", "/bin/false", "/opt/site/bin/sh-1.0"]
)
def test_shells(shell: str) -> None:
    assert problems(users=[{"name": "alice", "uid": 5001, "shell": shell}]) == []


KERNEL = [
    *("proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "tracefs", "debugfs", "securityfs", "bpf", "pstore"),
    *("efivarfs", "configfs", "mqueue", "hugetlbfs", "fusectl", "binfmt_misc", "rpc_pipefs", "nfsd"),
    *("selinuxfs", "smackfs", "rootfs", "sockfs", "pipefs", "nsfs", "bdev", "cpuset", "resctrl", "swap", "Proc", "n;f"),
]


@pytest.mark.parametrize("kind", KERNEL)
def test_file_systems_of_the_kernel_are_not_mounted(kind: str) -> None:
    the_problem("storage[0].type", storage=[{"path": "/data", "type": kind, "source": "x"}])


@pytest.mark.parametrize("source", ["/etc", "/root/.ssh", "/proc", "/var/lib/mysql", "/srv/../etc", "/srv//x", "srv"])
def test_no_directory_of_the_system_is_shown_elsewhere(source: str) -> None:
    the_problem("storage[0].source", storage=[{"path": "/d", "type": "none", "source": source, "options": ["bind"]}])


TARGETS = [
    *(
        "sftp:h:/x\n",
        "sftp:h:/x\nExecStart=id",
        "sftp:h:/a b",
        "sftp:h\t:/x",
        "sftp:h:/x\r",
        "sftp:h:/\x1b[2J",
        "s3:\0",
    ),
    *("sftp:-oProxyCommand=id:/x", "sftp:u@-oProxyCommand=id:/x", "sftp://-oProxyCommand=id/x", "rclone:-x", "rest:-x"),
    *("sftp:h:/srv/../etc", "sftp://h/../x", "rclone:a:../x", "sftp:" + "a" * 5000, "s3:" + "a" * 100_000, "rest: x"),
    *("local:/srv", "exec:id", "file:///srv", "sh:id", "srv/backup", "backup", "-x", "--repo=/x", "/srv/$(id)", "~/x"),
    *("/srv/backup/../../etc", "/srv/backup/", "/srv//backup", "/etc", "sftp:", "sftp:u:\u2028/x", "/b;id"),
]


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_no_target_of_a_backup(target: str) -> None:
    the_problem("backup.target", backup={"target": target})


OF_ROLES = [
    *("/etc/x", "/root/x", "%h/.ssh", "%h/.gnupg/x", "/home/%u/.ssh", "/run/systemd/x", "/run/munge", "/var/lib/mysql"),
    *(
        "/proc/x",
        "/scratch/%U/",
        "/scratch//%U",
        "/scratch/../etc",
        "/usr/x/%U",
        "/var/spool/cron/%u",
        "/dev/x",
        "/run",
    ),
    *("/tmp", "/a b", "$HOME/x", "/x/%n", "%hx", "/x;id", "/x\n", "/bin/x", "/boot/%U", "/var/lib/dpkg/%U", "/sys/%U"),
    *("/lib/%U", "/var/cache/apt/%U", "/var/log", "/var", "/"),
]


@pytest.mark.parametrize("path", OF_ROLES)
def test_directories_of_users_are_their_own(path: str) -> None:
    for name in (
        "enroot_temp_dir",
        "enroot_runtime_dir",
        "enroot_data_dir",
        "apptainer_tmp_dir",
        "apptainer_cache_dir",
    ):
        (error,) = value_problems({name: path})
        assert error.startswith(f"{name}: found ")
        assert "allowed: " in error
    (error,) = value_problems({"registry_dir": path})
    assert error.startswith("registry_dir: found ")


def test_directories_that_users_and_the_registry_have() -> None:
    for path in ("/run/enroot/%U", "%h/.cache/enroot", "/tmp/%U", "/dev/shm/%U", "/scratch/%u"):
        assert [*value_problems({"enroot_temp_dir": path, "apptainer_tmp_dir": path})] == []
    assert [*value_problems({"registry_dir": "/var/lib/docker-registry"})] == []


@pytest.mark.parametrize("path", ["/", "/etc/ssh", "/proc/x", "/usr/bin", "/x/../etc/ssh/y", "/root/.ssh", "/dev/shm"])
def test_secrets_are_not_kept_with_the_system(path: str) -> None:
    variables = {"slurm_cluster_name": "x", "slurm_controllers": ["head"], "slurm_secrets_dir": path}
    (error,) = [error for error in model_errors(variables, ["head"]) if "secrets" in error]
    assert error.startswith("slurm_secrets_dir: found ")
    assert "allowed: " in error
    for right in ("/home/a b/secrets", "/etc/cluster/secrets", "/root/secrets", "/x/../y", "/tmp/x/secrets"):
        assert model_errors({**variables, "slurm_secrets_dir": right}, ["head"]) == []


# -- lengths ---------------------------------------------------------------------------------------------------------

LONG = "a" * 100_000
VERY_LONG = "a" * 1_000_000
LENGTHS: dict[str, dict[str, Any]] = {
    "name": {"name": LONG},
    "controllers": {"controllers": LONG},
    "database": {"database": LONG},
    "login": {"login": LONG},
    "registry": {"registry": LONG},
    "hardware": {"hardware": {VERY_LONG: {}}},
    "addresses": {"addresses": {VERY_LONG: "10.0.0.1"}},
    "accounting": {"accounting": {VERY_LONG: 1}},
    "slurm_files": {"slurm_files": {VERY_LONG: "x"}},
    "slurm_conf": {"slurm_conf": {VERY_LONG: 1}},
    "packages": {"packages": {VERY_LONG: 1}},
    "private_tmp": {"private_tmp": f"/local/{LONG}"},
    "partitions[0].name": {"partitions": [{"name": LONG, "nodes": "ALL"}]},
    "prologs[0].name": {"prologs": [{"name": LONG, "script": "#!/bin/sh\n"}]},
    "prologs[0].environment": {
        "prologs": [{"name": "a", "script": "#!/bin/sh\n", "environment": {LONG: "x"}}],
    },
    "storage[0].source": {"storage": [{"path": "/d", "type": "lustre", "source": LONG}]},
    "storage[0].options": {"storage": [{**MOUNT, "options": [LONG]}]},
    "storage[0].type": {"storage": [{**MOUNT, "type": LONG}]},
    "storage[0].packages[0].name": {"storage": [{**MOUNT, "packages": [{"name": LONG}]}]},
    "storage[0].packages[0].file": {"storage": [{**MOUNT, "packages": [{"file": LONG}]}]},
    "users[0].name": {"users": [{"name": LONG, "uid": 5001}]},
    "users[0].full_name": {"users": [{"name": "alice", "uid": 5001, "full_name": LONG}]},
    "users[0].home": {"users": [{"name": "alice", "uid": 5001, "home": f"/home/{LONG}"}]},
    "users[0].keys": {"users": [{"name": "alice", "uid": 5001, "keys": [LONG]}]},
    "groups[0].name": {"groups": [{"name": LONG, "gid": 5001}], "users": []},
    "backup.target": {"backup": {"target": f"sftp:h:/{LONG}"}},
    "backup.times": {"backup": {"target": "/srv/b", "times": f"daily {LONG}"}},
    "mail.relay": {"mail": {"relay": LONG}},
    "access.administrators": {"access": {"administrators": [LONG]}},
    "plugstack[0].plugin": {"plugstack": [{"plugin": LONG}]},
    "nodes[0].address": {"nodes": [{"hosts": "gpu1", "hardware": "a", "address": LONG}]},
    "slurm_files.cgroup": {"slurm_files": {"topology.conf": "#" * 5_000_000}},
}


@pytest.mark.parametrize("key", [*LENGTHS])
def test_what_is_very_long_is_one_short_message(key: str) -> None:
    started = time.monotonic()
    found = [problem for problem in problems(**LENGTHS[key]) if problem.startswith(f"x.cluster.yml: {key[:11]}")]
    assert len(found) == 1, found
    assert len(found[0]) < 700
    assert time.monotonic() - started < 10


def test_a_key_of_a_megabyte_is_one_short_message() -> None:
    (found,) = problems(**{VERY_LONG: 1})
    assert found == f"x.cluster.yml: found a key of 1000000 characters, '{'a' * 76}..., allowed: up to 65536"
    (found,) = model_errors({"slurm_conf": {VERY_LONG: 1}}, ["head"])
    assert found.startswith("slurm_conf: found a key of 1000000 characters")
    assert len(found) < 300


# -- examples --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(COLLECTION.glob("inventory/*/*.cluster.yml")), ids=lambda path: path.stem)
def test_the_examples_stay_valid(path: Path) -> None:
    data = yaml.safe_load(path.read_text())
    files = {entry["file"] for key in ("prologs", "epilogs") for entry in data.get(key, []) if "file" in entry}
    assert load(Document(path.name, data), scripts={name: (path.parent / name).read_text() for name in files})


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["pass", "show", "x/{secret}"], ""),
        ([], ""),
        (["pass", "show", "x"], "found ['pass', 'show', 'x'], allowed: a list of arguments, one of which has {secret}"),
        ("pass show {secret}", "found 'pass show {secret}', allowed: a list of arguments, one of which has {secret}"),
        (["a", 1, "{secret}"], "found ['a', 1, '{secret}'], allowed: a list of arguments"),
        (["", "{secret}"], "found ['', '{secret}'], allowed: arguments of one line, the first of which is a program"),
        (["a", "b\n{secret}"], "found ['a', 'b\\n{secret}'], allowed: arguments of one line"),
    ],
)
def test_the_command_for_secrets(command: Any, error: str) -> None:
    variables = {"slurm_cluster_name": "x", "slurm_controllers": ["head"], "slurm_secrets_command": command}
    found = model_errors(variables, ["head"])
    assert len(found) == bool(error)
    assert not error or found[0].startswith(f"slurm_secrets_command: {error}")
