# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an administrator may have got wrong: one clear error, nothing has changed, and jobs go on.

Roles and modules are tried by themselves. That site.yml stops is shown on the control host, and on three hosts of which
each has a reason of its own. Settings of the kernel are the machine's: the tests hide them behind files of a host.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from debs import URL, Site, Workshop, as_user, sha256
from lab import Lab, Run
from plays import Case, Task, role, shell

NODE = "box02"
CACHE = "/var/cache/gpucluster-slurm"
LISTS = "/var/lib/apt/lists"
OTHER = "0" * 64


class Circumstance(NamedTuple):
    """Commands that change a host for one case, and commands that change it back."""

    make: str
    undo: str


def settings(directory: str, **values: int) -> Circumstance:
    """Other values for settings of the kernel in a directory of /proc/sys, as programs on a host read them."""
    copy = f"/run/settings/{directory.replace('/', '-')}"
    write = " ".join(f"&& echo {value} >{copy}/{name}" for name, value in values.items())
    copy_all = f"mkdir -p {copy} && {{ cp -r {directory}/. {copy} 2>/dev/null || :; }}"
    return Circumstance(f"{copy_all} {write} && mount --bind {copy} {directory}", f"umount {directory} && rm -r {copy}")


RESTRICTED = settings("/proc/sys/kernel", apparmor_restrict_unprivileged_userns=1)
PROFILES = "/etc/apparmor.d"
KERNELS_PROFILES = "/sys/kernel/security/apparmor"


def profile(rule: str, loaded: str = "", name: str = "apptainer") -> Circumstance:
    """A file of AppArmor with a profile for a program, and a stand-in for the list of those that the kernel has."""
    make = f"""{RESTRICTED.make} && mkdir -p {PROFILES} &&
    printf 'profile {name} /usr/bin/{name} flags=(unconfined) {{\\n {rule}\\n}}\\n' >{PROFILES}/{name} &&
    mount -t tmpfs tmpfs /sys/kernel/security && mkdir {KERNELS_PROFILES} &&
    echo '{loaded or f"{name} (unconfined)"}' >{KERNELS_PROFILES}/profiles"""
    return Circumstance(make, f"umount /sys/kernel/security; rm {PROFILES}/{name}; {RESTRICTED.undo}")


NO_LISTS = Circumstance(f"mount -t tmpfs tmpfs {LISTS}", f"umount {LISTS}")
FULL_DISK = Circumstance(f"mkdir -p {CACHE} && mount -t tmpfs -o size=4k small {CACHE}", f"umount {CACHE}")
# A repository that comes first, and has the name of Debian's release without being Debian's.
FOREIGN = Circumstance(
    f"""set -e
    . /etc/os-release
    cp -p /etc/apt/sources.list /run/sources.list
    sed -i "1i deb [trusted=yes] file:/nowhere $VERSION_CODENAME main" /etc/apt/sources.list
    lists={LISTS}/_nowhere_dists_$VERSION_CODENAME
    printf "Origin: Elsewhere\\nSuite: stable\\nCodename: $VERSION_CODENAME\\nComponents: main\\n" >${{lists}}_Release
    : >${{lists}}_main_binary-$(dpkg --print-architecture)_Packages
    apt-get indextargets --format '$(REPO_URI)' | head -n 1 | grep /nowhere""",
    f"mv /run/sources.list /etc/apt/sources.list; rm {LISTS}/_nowhere_*",
)


def on_node(*tasks: Task, where: Circumstance | None = None, **variables: Any) -> Case:
    """Tasks on a compute node, with variables."""
    if where:
        return Case(NODE, [shell(where.make), *tasks], variables, [shell(where.undo)])
    return Case(NODE, [*tasks], variables)


def apptainer(where: Circumstance | None = None, **variables: Any) -> Case:
    """The role apptainer."""
    return on_node(role("slurm", "gather"), role("apptainer"), where=where, **variables)


def packages(package: dict[str, str], where: Circumstance | None = None, **options: str) -> Case:
    """The module that installs packages."""
    return on_node({"gpucluster.slurm.slurm_packages": {"packages": [package], **options}}, where=where)


# What is tried, and parts of the message; a value of the fixture `found` may be in both.
REFUSED = {
    "another architecture": (
        apptainer(apptainer_packages=[{"file": "{{ foreign }}"}]),
        "apptainer_9.9-1_s390x.deb: found architecture s390x, allowed ",
    ),
    "a suite that is no codename": (
        apptainer(apptainer_suite="unstable"),
        "apptainer_suite: found unstable, allowed: a codename, such as sid",
    ),
    "apparmor and no profile": (
        apptainer(RESTRICTED),
        "kernel.apparmor_restrict_unprivileged_userns is 1, and the packages have no profile",
    ),
    "apparmor and a profile for another distribution": (
        apptainer(profile("")),
        "the profile /etc/apparmor.d/apptainer has no rule userns",
    ),
    "apparmor and a profile that is not loaded": (
        apptainer(profile("userns,", loaded="unprivileged_userns (enforce)")),
        "the kernel does not have the profile in /etc/apparmor.d/apptainer. Load it (apparmor_parser --replace",
    ),
    "package: another checksum": (
        packages({"url": f"{URL}/enroot.deb", "sha256": OTHER}),
        "found sha256 {sha256}, allowed " + OTHER,
    ),
    "package: not there": (packages({"url": f"{URL}/none.deb", "sha256": OTHER}), "none.deb: HTTP Error 404"),
    "package: no server": (packages({"url": "http://10.213.7.70:1/enroot.deb", "sha256": OTHER}), "refused"),
    "package: another architecture": (
        packages({"file": "enroot_4.1.2-1_s390x.deb"}),
        "found architecture s390x, allowed ",
    ),
    "package: no plugin": (
        packages({"file": "enroot_4.1.2-1_all.deb"}, slurm_release="24.11"),
        "enroot_4.1.2-1_all.deb: it contains no Slurm plugin",
    ),
    "package: a plugin for another release": (
        packages({"file": "nvslurm-plugin-pyxis_0.22.0-1_all.deb"}, slurm_release="24.11"),
        "spank_pyxis.so is for Slurm 22.05, which Slurm 24.11 does not load",
    ),
    "package: full disk": (
        packages({"url": f"{URL}/large.deb", "sha256": OTHER}, FULL_DISK),
        "No space left on device",
    ),
    "enroot: directories that users would share": (
        on_node(role("enroot"), enroot_temp_dir="/tmp/enroot"),
        "enroot's directories: found /tmp/enroot, allowed",
    ),
    "enroot: settings that it would ignore": (
        on_node(role("enroot"), enroot_conf={"ENROOT_ALOW_HTTP": True}),
        "enroot_conf: found ENROOT_ALOW_HTTP, nearest: ENROOT_ALLOW_HTTP, allowed: ",
    ),
    "enroot: variables that it would ignore": (
        on_node(role("enroot"), enroot_environment={"ENROOT_DATA_PATH": "/", "A B": 1, "TZ": "Asia/Tokyo"}),
        "enroot_environment: found A B, ENROOT_DATA_PATH, allowed: letters, digits and _; settings of enroot itself"
        " belong in enroot_conf",
    ),
    "pyxis: packages for other releases": (
        on_node(role("slurm", "gather"), role("pyxis"), pyxis_packages={"22.05": {}, "26.05": {}}),
        f"{NODE} has Slurm 24.11, and there are packages for 22.05, 26.05; one of another release would not be loaded",
    ),
}
TAKEN = {
    "no lists of apt, as on a host from an image": apptainer(NO_LISTS),
    "apparmor and a profile": apptainer(profile("userns,")),
    "a mirror that is not Debian's comes first": apptainer(FOREIGN),
}


@pytest.fixture(scope="module", name="found")
def values_in_the_answers(workshop: Workshop) -> dict[str, str]:
    """Where there is a package for another machine, and the checksum of one that is served."""
    foreign = workshop.package("apptainer", "9.9-1", {}, "s390x")
    return {"foreign": str(foreign), "sha256": sha256(workshop.enroot())}


@pytest.fixture(scope="module", name="outcomes")
def what_each_has_come_to(
    lab: Lab, workshop: Workshop, found: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """All of it, in one run of Ansible."""
    other_release = workshop.pyxis("0.22.0-1", "-DRELEASE=0x160508")
    for package in (workshop.enroot(), workshop.enroot(architecture="s390x"), other_release):
        lab.script(NODE, f"mkdir -p {CACHE}; cat >{CACHE}/{package.name}", package.read_bytes())
    cases = {name: case for name, (case, _words) in REFUSED.items()} | TAKEN
    outcomes: dict[str, Run] = Site(lab, {**found}).cases(tmp_path_factory.mktemp("refusals"), cases)
    return outcomes


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_told(outcomes: dict[str, Run], found: dict[str, str], name: str) -> None:
    _case, message = REFUSED[name]
    assert message.format(**found) in str(outcomes[name].failed)
    assert outcomes[name].changed == {}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_right_is_taken(outcomes: dict[str, Run], name: str) -> None:
    assert (outcomes[name].failed, outcomes[name].changed) == ({}, {})


@pytest.mark.usefixtures("outcomes")
def test_nothing_of_what_was_refused_stays(lab: Lab) -> None:
    assert lab.command(NODE, f"ls -A {CACHE} | grep fetch || :") == ""
    assert as_user(lab, f"timeout 180 srun -w {NODE} hostname") == NODE


@pytest.fixture(scope="module")
def open_key(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a key that everybody may read."""
    key = tmp_path_factory.mktemp("key") / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\n")
    key.chmod(0o644)
    return str(key)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        pytest.param(
            {"registry_tls": True, "registry_certificate": "/none.pem", "registry_key": "{{ open_key }}"},
            "registry_certificate: found /none.pem, which does not exist, allowed: a file next to the cluster file or "
            "below its directory, or an absolute path; or registry_tls: false for a registry without TLS; "
            "registry_key: found {open_key} with mode 644, allowed: 600 or 400",
            id="certificate and key",
        ),
        pytest.param(
            {"slurm_containers": ["pyxis"]}, "slurm_containers has pyxis without enroot", id="pyxis without enroot"
        ),
        pytest.param(
            {"slurm_plugstack": [{"plugin": "/greet.so", "arguments": ["two words"]}]},
            "found 'two words', allowed: a word",
            id="arguments that Slurm would misread",
        ),
    ],
)
def test_site_stops_before_any_host_is_asked(lab: Lab, open_key: str, variables: dict[str, Any], message: str) -> None:
    run = Site(lab).run(open_key=open_key, **variables)
    assert message.format(open_key=open_key) in str(run.failed)
    assert run.changed == {}
    assert not any("Gather facts" in task for _host, task, _result in run.results)


def test_site_stops_on_each_host_for_its_own_reason(lab: Lab) -> None:
    """The registry's own answer stands in for a package."""
    url = "http://10.213.7.70:5000/"
    package = [{"url": url, "sha256": OTHER}]
    own = {
        "apptainer_packages": f"{{{{ {package} if inventory_hostname == 'front' else [{{'name': 'apptainer'}}] }}}}",
        "apptainer_fakeroot_uids": "{{ ['1000-1999', '70000'] if inventory_hostname == 'box01' else [] }}",
    }
    answers = {
        "front": [f"{url}: found sha256 {hashlib.sha256(b'').hexdigest()}, allowed {OTHER}"],
        "box01": ["apptainer_fakeroot_uids: found 70000, allowed: numbers from 1 to 65534"],
        "box02": [
            "users cannot make containers here: user.max_user_namespaces is 0, allowed: more than 0",
            "kernel.unprivileged_userns_clone is 0, allowed: 1",
        ],
    }
    kernel = [
        settings("/proc/sys/user", max_user_namespaces=0),
        settings("/proc/sys/kernel", unprivileged_userns_clone=0),
    ]
    for setting in kernel:
        lab.command("box02", setting.make)
    try:
        run = Site(lab).run(tags="containers", **own)
    finally:
        for setting in kernel:
            lab.command("box02", setting.undo)
    assert {*run.failed} == {*answers}, run.failed
    for host, message in answers.items():
        assert all(word in str(run.failed[host]) for word in message), run.failed[host]
    assert run.changed == {}
    assert as_user(lab, "timeout 180 srun -N2 hostname | sort").split() == ["box01", "box02"]


def test_enroot_needs_a_profile_where_apparmor_restricts_namespaces(equipped: Site, tmp_path: Path) -> None:
    """The node has enroot, so the role changes nothing there before it looks for the profile."""
    circumstances = {
        "has no profile": RESTRICTED,
        "has another profile": profile("", name="enroot"),
        "has the profile": profile("userns,", name="enroot"),
    }
    cases = {
        name: on_node(role("slurm", "gather"), role("enroot"), where=where) for name, where in circumstances.items()
    }
    outcomes = equipped.cases(tmp_path, cases)
    assert [outcome.changed for outcome in outcomes.values()] == [{}, {}, {}]
    missing, other, right = (str(outcome.failed) for outcome in outcomes.values())
    assert "the packages have no profile /etc/apparmor.d/enroot" in missing
    assert "the profile /etc/apparmor.d/enroot has no rule userns" in other
    assert right == "{}"
