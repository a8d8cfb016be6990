# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a host, from its files and the output of its commands."""

from __future__ import annotations

import getpass
import grp
import os
import pwd
import re
import struct
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import probe
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.probe import Questions
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import applied_state
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.results.fact_records import HostFact
from programs import StandIn

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\n'
BARE = "slurm-wlm-basic-plugins:\n  Installed: (none)\n  Candidate: 24.11.5-4\n  Version table:\n     24.11.5-4 500\n"
POLICY = f"apptainer:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n{BARE}"
CLOCKS = """Id=systemd-timesyncd.service
ActiveState=active
UnitFileState=enabled

Id=chrony.service
ActiveState=inactive
UnitFileState=enabled

Id=ntpsec.service
ActiveState=inactive
UnitFileState=disabled

Id=openntpd.service
ActiveState=inactive
UnitFileState=
"""


class Commands:
    """Answers by the name of a command; it records the commands."""

    def __init__(self, **answers: str) -> None:
        self.answers, self.asked = answers, list[str]()

    def __call__(self, command: Sequence[str]) -> str:
        self.asked.append(" ".join(command))
        return self.answers.get(command[0].replace("-", "_"), "")


def host(directory: Path, **files: str) -> Tree:
    """A host with these files, each by its path with two underscores for a slash."""
    for name, text in {"etc__os-release": DEBIAN, **files}.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(str(directory))


def gather(tree: Tree, questions: Questions | None = None, **answers: str) -> HostFact:
    return probe.gather_facts(tree, Commands(**answers), questions or Questions())


@pytest.mark.parametrize(
    ("os_release", "name", "codename"),
    [
        (DEBIAN, "debian 13", "trixie"),
        ("ID=ubuntu\nVERSION_ID='24.04'\nVERSION_CODENAME=noble", "ubuntu 24.04", "noble"),
        ("ID=arch\n", "arch", ""),
        ("", "unknown", ""),
    ],
)
def test_distribution(os_release: str, name: str, codename: str) -> None:
    assert probe.distribution(os_release) == {"distribution": name, "codename": codename}


def test_each_fact_is_used() -> None:
    """By its name in brackets, in what runs on the control host."""
    rooms = [Path(probe.__file__).parents[1] / name for name in ("cluster", "decisions", "nodes")]
    texts = "".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    used = {*re.findall(r"""\[["'](\w+)["']\]""", texts)}
    assert HostFact.__annotations__.keys() - used == set()


def test_a_bare_host(tmp_path: Path) -> None:
    files = {"proc__sys__kernel__hostname": "n1\n", "proc__meminfo": "MemTotal:       16384000 kB\n"}
    asked = Questions(packages=["munge"], slurm_package="slurm-wlm-basic-plugins")
    found = gather(host(tmp_path, **files), asked, apt_cache=BARE, systemd_detect_virt="podman\n")
    assert found["hostname"] == "n1"
    assert found["container"] == "podman"
    assert found["memory_mib"] == 16000
    assert found["slurm_version"] == "24.11.5-4"
    assert (found["packages"], found["clocks"], found["interrupted"]) == ({}, {}, False)
    assert set(found["namespaces"].values()) == {None}


class Told(Commands):
    """Also answers whole commands, by the name of the program without its directory."""

    def __call__(self, command: Sequence[str]) -> str:
        if command[0] == "env":
            self.asked.append(" ".join(command))
            conf = Path(command[1].removeprefix("SLURM_CONF=")).read_text()
            return self.answers.get("sinfo", "") if conf == probe.LEAST_CONF and command[2:] == SINFO else ""
        return super().__call__([command[0].rpartition("/")[2], *command[1:]])


SINFO = ["/usr/bin/sinfo", "-V"]


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ({"slurmd": "slurm-wlm 24.11.5\n"}, "24.11.5"),
        ({"slurmctld": "slurm 25.11.2\n", "slurmd": "slurm 26.05.0\n"}, "25.11.2"),
        ({"slurmctld": "slurm 26.05.0-0rc1\n", "sinfo": "slurm 23.11.4\n"}, "26.05.0-0rc1"),
        ({"sinfo": "sinfo: error: no plugin\nslurm-wlm 22.05.8\n"}, "22.05.8"),
        ({"slurmd": "slurmd: error while loading shared libraries\n"}, "23.11.4-1.2ubuntu5"),
        ({}, "23.11.4-1.2ubuntu5"),
    ],
    ids=["a daemon", "several", "a controller", "a login host", "a broken one", "none"],
)
def test_the_version_of_slurm_is_what_its_programs_tell(tmp_path: Path, told: dict[str, str], version: str) -> None:
    """The package can have another version than the programs in it."""
    commands = Told(**told, apt_cache=BARE.replace("24.11.5-4", "23.11.4-1.2ubuntu5"))
    questions = Questions(slurm_package="slurm-wlm-basic-plugins")
    assert probe.gather_facts(host(tmp_path), commands, questions)["slurm_version"] == version
    assert any(command.startswith("apt") for command in commands.asked) == version.endswith("ubuntu5")


def test_apt_is_asked_only_if_it_has_to_be(tmp_path: Path) -> None:
    commands = Commands()
    assert probe.gather_facts(host(tmp_path), commands, Questions())["slurm_version"] == ""
    assert not [command for command in commands.asked if command.startswith("apt")]


LISTING = """\
slurmd installed hold slurm-wlm 22.05.8-4
slurmctld installed install slurm-wlm 22.05.8-4
slurm-wlm-nvml-plugin installed install slurm-wlm-contrib 22.05.8-1
slurmdbd config-files hold slurm-wlm 22.05.8-4
munge installed install munge 0.5
half half-installed install slurm-wlm
"""


def test_packages_and_those_that_are_not_held(tmp_path: Path) -> None:
    names = ["munge", "slurmd", "slurmdbd", "bash"]
    asked = Questions(packages=names, hold=["slurm-wlm", "slurm-wlm-contrib"])
    found = gather(host(tmp_path), asked, dpkg_query=LISTING)
    assert found["packages"] == {"munge": "0.5", "slurmd": "22.05.8-4"}
    assert found["unheld"] == ["slurm-wlm-nvml-plugin", "slurmctld"]
    assert gather(host(tmp_path), Questions(), dpkg_query=LISTING)["unheld"] == []


def test_apts_lists_are_fetched_where_there_are_none(tmp_path: Path) -> None:
    commands = Commands()
    questions = Questions(slurm_package="slurm-smd")
    assert probe.gather_facts(host(tmp_path), commands, questions)["slurm_version"] == ""
    asked = [command.partition(" ")[0] for command in commands.asked if command.startswith("apt")]
    assert asked == ["apt-cache", "apt-get", "apt-cache"]


def test_candidates(tmp_path: Path) -> None:
    assert probe.candidates(POLICY) == {"slurm-wlm-basic-plugins": "24.11.5-4"}
    commands = Commands(apt_cache=POLICY, apt_get="http://mirror/debian/\nhttp://other/debian/\n")
    found = probe.gather_facts(host(tmp_path), commands, Questions(candidates=["apptainer"]))
    assert (found["candidates"], found["mirror"]) == ({}, "http://mirror/debian/")
    assert any("Codename: trixie" in command for command in commands.asked)


def test_services_that_start_with_the_host_keep_its_clock() -> None:
    assert probe.clocks(applied_state.units(CLOCKS)) == {"systemd-timesyncd": True, "chrony": False}
    assert probe.clocks(applied_state.units("")) == {}


def test_a_clock_of_an_image_does_not_run() -> None:
    states = {"chrony": "enabled\n", "ntpsec": "disabled\n"}
    assert probe.enabled_clocks(lambda command: states.get(command[-1], "")) == {"chrony": False}


SLURMCTLD = """Id=slurmctld.service
ActiveState=active
UnitFileState=enabled
NeedDaemonReload=no
InvocationID=5a11
"""
NODES = """n[1-4] mixed
n5 idle*
n6 down
n[7-8] drained
n5 idle*
n9 planned
"""


def test_nodes_that_are_not_in_service(tmp_path: Path) -> None:
    """Slurm has a line for each partition and state. Without a running slurmctld, sinfo would wait for it."""
    asked = Questions(nodes=True, applied=["slurmctld"])
    assert gather(host(tmp_path), asked, systemctl=SLURMCTLD, timeout=NODES)["out_of_service"] == "n5,n6,n[7-8]"
    assert gather(host(tmp_path), asked, systemctl=SLURMCTLD, timeout="n1 idle\n")["out_of_service"] == ""
    assert gather(host(tmp_path), asked, systemctl=SLURMCTLD)["out_of_service"] is None
    assert gather(host(tmp_path), asked, timeout=NODES)["out_of_service"] is None
    assert gather(host(tmp_path), systemctl=SLURMCTLD, timeout=NODES)["out_of_service"] is None


def test_files_owners_users_and_an_interrupted_installation(tmp_path: Path) -> None:
    tree = host(tmp_path, etc__a="a\n", var__lib__dpkg__updates__0001="x")
    os.chmod(tmp_path / "etc", 0o1777)
    user = getpass.getuser()
    questions = Questions(files=["/etc/a", "/etc/b"], paths=["/etc", "/etc/a", "/opt"], users=[user, "no-such"])
    found = gather(tree, questions)
    assert found["files"] == {"/etc/a": sha256(b"a\n").hexdigest()}
    group = grp.getgrgid((tmp_path / "etc").stat().st_gid).gr_name
    mode = (tmp_path / "etc/a").stat().st_mode & 0o7777
    assert found["paths"] == {"/etc": f"{user}:{group} 1777", "/etc/a": f"{user}:{group} {mode:04o}"}
    assert found["users"] == {user: os.getuid()}
    assert found["interrupted"]


def test_ids_that_a_new_user_would_not_get() -> None:
    """systemd-sysusers gives a user another id if his own one is taken, without an error."""
    root = {"new-user": 0}
    assert probe.taken_ids(root) == {"new-user": ["the user root has id 0", "the group root has id 0"]}
    assert probe.taken_ids({"new-user": 64031}) == {}
    assert probe.taken_ids({"root": 64031}) == {}, "he exists, so his id is in `users`"
    group = next(entry for entry in grp.getgrall() if entry.gr_name not in {user.pw_name for user in pwd.getpwall()})
    assert probe.taken_ids({group.gr_name: 64031}) == {
        group.gr_name: [f"the group {group.gr_name} has id {group.gr_gid}"]
    }


def test_programs_that_cannot_run(tmp_path: Path) -> None:
    sh = "#!/bin/sh\n"
    tree = host(
        tmp_path,
        bin__sh="\x7fELF",
        opt__run=sh,
        opt__text=sh,
        opt__all__a=sh,
        opt__all__b=sh,
        opt__none__text=sh,
        opt__zsh="#!/bin/zsh\n",
        opt__line="#!/bin/\u0161h\r\n",
        opt__some__a=sh,
        opt__some__b="#!/bin/sh\nfi\n",
    )
    for name in ("../bin/sh", "run", "all/a", "all/b", "zsh", "line", "some/a", "some/b"):
        os.chmod(tmp_path / "opt" / name, 0o700)
    asked = ["run", "text", "all", "all/*", "none/*", "empty/*", "gone", "zsh", "line", "some/*"]
    found = gather(tree, Questions(programs=["sh", "zsh", *(f"/opt/{name}" for name in asked)]))["programs"]
    assert found.pop("/opt/line").startswith("line 1: found '#!/bin/\\u0161h\\r', which ends with a carriage return")
    assert found == {
        "zsh": "is missing",
        "/opt/zsh": "needs /bin/zsh, which is missing",
        "/opt/some/*": 'line 2: sh -n: Syntax error: "fi" unexpected',
        "/opt/text": "is not executable",
        "/opt/all": "is no file",
        "/opt/none/*": "is not executable",
        "/opt/empty/*": "is missing",
        "/opt/gone": "is missing",
    }


def test_scripts_that_nodes_could_not_run(tmp_path: Path) -> None:
    scripts = {"a": "#!/usr/bin/python3\nif True\n", "b": "#!/bin/bash\n# \udcfc\n", "c": "#!/opt/none\n"}
    assert gather(host(tmp_path), Questions(scripts=scripts))["scripts"] == {"a": "line 2: python3: expected ':'"}


def test_a_part_of_a_file(tmp_path: Path) -> None:
    tree, asked = host(tmp_path, etc__hosts="x\n# BEGIN\na\n# END\ny\n"), Questions(part=("/etc/hosts", "# {mark}"))
    assert gather(tree, asked)["part"] == sha256(b"a\n").hexdigest()
    assert gather(host(tmp_path, etc__hosts="x\n"), asked)["part"] == ""
    assert gather(host(tmp_path), Questions(part=("/etc/missing", "# {mark}")))["part"] == ""


DF = """\
Avail   Inodes    IFree File
69618 18000000 16054279 /var/lib/slurm
    3  1000000      100 /full
 5000     1000        0 /no/inodes
 5000        -        - /fat
 5000        0        0 /btrfs
    -        0        0 /gone
"""


def test_free_space(tmp_path: Path) -> None:
    assert probe.free_mib(DF) == {"/var/lib/slurm": 69618, "/full": 3, "/no/inodes": 0, "/fat": 5000, "/btrfs": 5000}
    commands = Commands(timeout=DF)
    assert probe.gather_facts(host(tmp_path), commands, Questions(free=["/full"]))["free_mib"]["/full"] == 3
    assert [command for command in commands.asked if command.endswith(" /full")]
    assert probe.gather_facts(host(tmp_path), Commands(timeout=DF), Questions())["free_mib"] == {}


def test_lines_of_the_hosts_file_that_are_not_the_clusters(tmp_path: Path) -> None:
    text = """\
127.0.0.1 localhost
::1 localhost n9
127.0.1.1 n1.example.org n1  # Debian's line for the host itself
127.0.1.1 n2
10.0.0.9 n3 n3.example.org
# BEGIN
10.0.0.3 n3
10.0.0.4 n4
# END
10.0.0.8 n3 n5
"""
    files = {"etc__hosts": text, "proc__sys__kernel__hostname": "n1\n"}
    found = gather(host(tmp_path, **files), Questions(part=("/etc/hosts", "# {mark}")))["other_addresses"]
    assert found == {
        "localhost": "127.0.0.1",
        "n2": "127.0.1.1",
        "n3": "10.0.0.9",
        "n3.example.org": "10.0.0.9",
        "n5": "10.0.0.8",
    }
    assert gather(host(tmp_path, etc__other=text), Questions(part=("/etc/other", "# {mark}")))["other_addresses"] == {}


def test_file_systems_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an error of the disk, or where only a part of the root is an overlay in memory."""
    tree = host(tmp_path, etc__hosts="", usr__local__bin__x="", var__lib__dpkg__status="")
    wanted = {str(tmp_path / name) for name in ("usr", "usr/local")}
    real = os.statvfs

    def asked(path: str) -> Any:
        return SimpleNamespace(f_flag=os.ST_RDONLY) if path in wanted else real(path)

    assert gather(tree)["read_only"] == []
    monkeypatch.setattr(os, "statvfs", asked)
    assert gather(tree)["read_only"] == ["/usr"]


def test_settings_of_the_kernel(tmp_path: Path) -> None:
    files = {"proc__sys__user__max_user_namespaces": "0\n", "proc__sys__kernel__unprivileged_userns_clone": "1\n"}
    found = gather(host(tmp_path, **files))["namespaces"]
    assert found == {
        "max_user_namespaces": 0,
        "unprivileged_userns_clone": 1,
        "apparmor_restrict_unprivileged_userns": None,
    }


def test_numbers_among_the_settings_of_the_kernel(tmp_path: Path) -> None:
    files = {"proc__sys__net__core__somaxconn": "4096\n", "proc__sys__net__ipv4__tcp_rmem": "4096\t131072\t6291456\n"}
    asked = Questions(kernel=("net.core.somaxconn", "net.ipv4.tcp_rmem", "net.core.missing"))
    assert gather(host(tmp_path, **files), asked)["kernel"] == {"net.core.somaxconn": 4096}


@pytest.mark.parametrize(
    ("filesystems", "modules", "container", "lacks"),
    [
        ("nodev\tnfsd\n\text4\n", "", "none", []),
        ("nodev\tnfsd\n\text4\n", "", "podman", []),
        ("\text4\n", "kernel/fs/nfsd/nfsd.ko.xz: kernel/fs/lockd/lockd.ko.xz\n", "none", []),
        ("\text4\n", "kernel/fs/nfsd/nfsd.ko:\n", "none", []),
        # A container cannot load it.
        ("\text4\n", "kernel/fs/nfsd/nfsd.ko.xz:\n", "podman", ["nfsd"]),
        ("\text4\n", "kernel/fs/nfs/nfs.ko: kernel/x/nfsd.ko\nkernel/fs/xnfsd.ko:\n", "none", ["nfsd"]),
        ("nodev\txnfsd\n", "", "none", ["nfsd"]),
    ],
)
def test_a_file_system_that_the_kernel_lacks(
    tmp_path: Path, filesystems: str, modules: str, container: str, lacks: list[str]
) -> None:
    files = {
        "proc__filesystems": filesystems,
        "proc__sys__kernel__osrelease": "6.12.1-amd64\n",
        "lib__modules__6.12.1-amd64__modules.dep": modules,
    }
    asked = Questions(filesystems=["nfsd"])
    found = gather(host(tmp_path, **files), asked, systemd_detect_virt=f"{container}\n")
    assert found["lacks_filesystems"] == lacks


PASSWD = (
    "root:x:0:0:root:/root:/bin/bash\nadmin:x:1000:1000:,,,:/home/admin/:/bin/bash\n"
    "gone:x:1001:1001::/home/gone:/bin/sh\nother:x:1002:1002::/homes/other:/bin/sh\nbad-line\n"
)
ON_HOME = "30 23 0:26 / /home rw - nfs4 files:/home rw\n"


@pytest.mark.parametrize(
    ("files", "hidden"),
    [
        ({}, {"/home": {"names": ["admin", "caf\\xe9"], "more": 0, "homes": {"admin": "/home/admin"}}}),
        ({"proc__self__mountinfo": ON_HOME}, {}),
        # What was there before the first mount of the collection is known.
        ({"etc__systemd__system__home.mount": "# Managed by gpucluster.slurm (key storage): x\n"}, {}),
        ({"etc__systemd__system__home.mount": "[Mount]\n"}, None),
    ],
)
def test_files_that_a_mount_would_hide(tmp_path: Path, files: dict[str, str], hidden: Any) -> None:
    tree = host(tmp_path, home__admin__x="", etc__passwd=PASSWD, **{"home__caf\xe9": "", **files})
    asked = Questions(mounts={"/home": "/etc/systemd/system/home.mount", "/none": "/etc/systemd/system/none.mount"})
    found = gather(tree, asked)["hidden"]
    assert found == hidden if hidden is not None else [*found] == ["/home"]
    assert gather(tree)["hidden"] == {}


def test_a_directory_with_many_files_is_named_in_part(tmp_path: Path) -> None:
    tree = host(tmp_path, **{f"home__{letter * 150}": "" for letter in "abcdefg"})
    found = gather(tree, Questions(mounts={"/home": "/x.mount"}))["hidden"]["/home"]
    assert ([name[0] for name in found["names"]], found["more"]) == (["a", "b", "c", "d", "e"], 2)
    assert {len(name) for name in found["names"]} == {100}


def test_users_are_asked_for_in_one_call(stand_in: StandIn, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    stand_in("getent", f"echo call >>{calls}\nshift 2\necho 'u1:x:1001:1001::/home/u1:/bin/sh'\nexit 2")
    (text,) = probe.unknown_users([f"u{number}" for number in range(1, 3001)])
    assert text.startswith("users of the policy who do not exist: u2, u3, ")
    assert text.endswith("u21 and 2979 more")
    assert calls.read_text() == "call\n"


def test_a_directory_service_that_does_not_answer_is_no_error(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "GETENT_SECONDS", 0.1)
    stand_in("getent", "exec sleep 60")
    assert probe.unknown_users(["u1", "u2"]) == ["getent has not found the 2 users of the policy within 0.1 s"]

    assert probe.directory(["u1", "u2"]) == {"checksum": "", "unknown": None}


def test_a_host_without_getent_knows_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", "/nowhere")
    assert probe.unknown_users(["u1"]) == []
    assert probe.directory(["u1"]) == {"checksum": "", "unknown": None}


def test_equal_ids_of_a_directory_have_one_checksum(stand_in: StandIn, tmp_path: Path) -> None:
    """The order, the home and the full name are no part of it; the ids are."""

    def directory(*lines: str) -> Any:
        stand_in("getent", f"printf '%s\\n' {' '.join(repr(line) for line in lines)}\nexit 2")
        return gather(host(tmp_path), Questions(directory_users=["ulla", "Veit", "wim"]))["directory"]

    ulla, veit = "ulla:*:7001:7001:Ulla:/home/ulla:/bin/bash", "veit:*:7002:7000::/home/veit:/bin/sh"
    found = directory(ulla, veit)
    assert (len(found["checksum"]), found["unknown"]) == (64, 1)
    assert directory("Veit:x:7002:7000:Veit V:/h/veit:/bin/sh", ulla) == found
    assert directory(ulla, veit.replace("7000", "7002"))["checksum"] != found["checksum"]
    assert directory(ulla)["unknown"] == 2
    assert gather(host(tmp_path))["directory"] == {"checksum": "", "unknown": 0}


def test_a_public_key_of_the_host_is_asked_for(tmp_path: Path) -> None:
    ecdsa, ed25519 = (f"etc__ssh__ssh_host_{kind}_key.pub" for kind in ("ecdsa", "ed25519"))
    keys = {ecdsa: "ecdsa-sha2-nistp256 AAAAE2= root@x\n"}
    assert gather(host(tmp_path, **keys), Questions(ssh=True))["host_key"] == "ecdsa-sha2-nistp256 AAAAE2="
    keys[ed25519] = "ssh-ed25519 AAAAC3 root@x\n"
    found = gather(host(tmp_path, **keys), Questions(ssh=True))
    assert (found["host_key"], found["sshd"]) == ("ssh-ed25519 AAAAC3", "all")
    assert gather(host(tmp_path), Questions())["host_key"] == ""
    (tmp_path / ed25519.replace("__", "/")).write_text("no key\n")
    assert gather(host(tmp_path), Questions(ssh=True))["host_key"] == "ecdsa-sha2-nistp256 AAAAE2="


def test_only_lines_that_the_collection_writes_are_known_hosts(tmp_path: Path) -> None:
    lines = ["# Managed", "n1,10.0.0.1 ssh-ed25519 AAAA", "@revoked n2 ssh-rsa AAAA", "n3 ssh-rsa AAAA comment"]
    there = host(tmp_path, etc__ssh__ssh_known_hosts2="\n".join(lines))
    assert gather(there, Questions(known_hosts=True))["known_hosts"] == [lines[1]]
    assert gather(there, Questions())["known_hosts"] == []


def test_the_release_that_a_host_may_run(tmp_path: Path) -> None:
    """What is installed, what apt would install, and which slurmctld wrote the state."""
    head = b"\0\0\0\x11PROTOCOL_VERSION\0" + struct.pack(">HQ", 11520, 1767225600)
    tree = host(tmp_path)
    state = tmp_path / "var/lib/slurm/slurmctld"
    state.mkdir(parents=True)
    (state / "job_state").write_bytes(head)
    asked = Questions(slurm_package="slurm-wlm-basic-plugins", state_directory="/var/lib/slurm/slurmctld")
    bare = gather(tree, asked, apt_cache=BARE)["slurm"]
    assert bare == {"installed": "", "candidate": "24.11.5-4", "state_protocol": 11520}
    commands = Told(slurmd="slurm-wlm 26.05.5\n", apt_cache=BARE)
    found = probe.gather_facts(tree, commands, Questions(slurm_package="slurm-wlm-basic-plugins"))["slurm"]
    assert found == {"installed": "26.05.5", "candidate": "", "state_protocol": 0}


def test_apt_downloads_its_lists_before_it_is_asked_again(tmp_path: Path) -> None:
    commands = Commands(apt_cache=BARE)
    probe.gather_facts(host(tmp_path), commands, Questions(slurm_package="slurm-wlm-basic-plugins", update_lists=True))
    apt = [command for command in commands.asked if command.startswith("apt")]
    assert apt == ["apt-get --quiet=2 update", "apt-cache policy slurm-wlm-basic-plugins"]


def test_imex_channels_are_those_of_a_loaded_driver(tmp_path: Path) -> None:
    assert gather(host(tmp_path))["imex_channels"] is None
    tree = host(tmp_path, proc__driver__nvidia__version="NVRM version: 570", proc__devices="195 nvidia\n")
    assert gather(tree)["imex_channels"] is False
    host(tmp_path, proc__devices="Character devices:\n195 nvidia\n508 nvidia-caps-imex-channels\n")
    assert gather(tree)["imex_channels"] is True
