# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles enroot and pyxis with packages that stand in for the real ones: how they come to the hosts, what is refused,
and what Slurm does with them. No container runs here but one that shows that containers do.

The tests run in this order.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from debs import HOSTS, PLUGIN, Site, Workshop, as_user
from lab import Lab

URL = "http://10.213.7.70:8070"


@pytest.fixture(scope="module", autouse=True)
def server(lab: Lab, workshop: Workshop) -> None:
    """Packages of URL, which the login host serves."""
    lab.command("front", "mkdir -p /srv/packages")
    serve = "systemd-run --unit=packages python3 -m http.server --directory /srv/packages 8070 2>&1"
    lab.command("front", f"systemctl is-active --quiet packages || {serve}")
    lab.wait_for("front", "ss -Htln sport = :8070", "8070")
    for name, version in {"enroot.deb": "4.1.2-1", "newer.deb": "4.3.0-1"}.items():
        lab.script("front", f"cat >/srv/packages/{name}", workshop.enroot(version).read_bytes())


def copied(lab: Lab, package: Path) -> dict[str, str]:
    """A package as the module takes it that has been copied to a host."""
    cache = "/var/cache/gpucluster-slurm"
    lab.script("box01", f"mkdir -p {cache}; cat >{cache}/{package.name}", package.read_bytes())
    return {"file": package.name}


def test_packages_that_are_not_what_they_should_be(lab: Lab, site: Site, workshop: Workshop) -> None:
    good = workshop.enroot()
    found, other = hashlib.sha256(good.read_bytes()).hexdigest(), "0" * 64
    assert f"found sha256 {found}, allowed {other}" in site.refusal({"url": f"{URL}/enroot.deb", "sha256": other})
    assert "none.deb: HTTP Error 404" in site.refusal({"url": f"{URL}/none.deb", "sha256": found})
    assert "refused" in site.refusal({"url": "http://10.213.7.70:1/enroot.deb", "sha256": found})
    foreign = copied(lab, workshop.enroot(architecture="s390x"))
    assert "found architecture s390x, allowed " in site.refusal(foreign)
    assert f"{good.name}: it holds no plugin of Slurm" in site.refusal(copied(lab, good), slurm_release="24.11")
    assert lab.command("box01", "ls -A /var/cache/gpucluster-slurm | grep fetch || :") == ""


def test_a_full_disk_is_told(lab: Lab, site: Site) -> None:
    lab.command(
        "box01", "mkdir -p /var/cache/gpucluster-slurm && mount -t tmpfs -o size=4k small /var/cache/gpucluster-slurm"
    )
    try:
        package = {"url": "http://10.213.7.70:8070/large.deb", "sha256": "0" * 64}
        lab.command("front", "head -c 100000 /dev/zero >/srv/packages/large.deb")
        assert "No space left on device" in site.refusal(package)
    finally:
        lab.command("box01", "umount /var/cache/gpucluster-slurm")


def refused(site: Site, **variables: Any) -> str:
    """Why site.yml stops with other variables, on the login host."""
    run = site.run("--limit=front", tags="containers", **variables)
    assert run.rc != 0
    return str(run.failed)


def test_plugins_for_another_release_are_refused(lab: Lab, site: Site, workshop: Workshop) -> None:
    good = workshop.everything()
    said = refused(site, **(good | {"pyxis_packages": {"22.05": {}, "26.05": {}}}))
    assert "front has Slurm 24.11, and there are packages for 22.05, 26.05; one of another release" in said
    other = {"24.11": {"file": str(workshop.pyxis("0.1-1", "-DRELEASE=0x160508"))}}
    said = refused(site, **(good | {"pyxis_packages": other}))
    assert "spank_pyxis.so is for Slurm 22.05, and the host has Slurm 24.11" in said
    assert "nvslurm" not in lab.command("front", "dpkg-query -W -f '${Package} '")


def test_directories_that_users_would_share_are_refused(site: Site, workshop: Workshop) -> None:
    said = refused(site, **(workshop.everything() | {"enroot_temp_dir": "/tmp/enroot"}))
    assert "enroot's directories: found /tmp/enroot, allowed" in said


def test_pyxis_without_enroot_is_refused(site: Site) -> None:
    run = site.run(slurm_containers=["pyxis"])
    assert "slurm_containers has pyxis without enroot" in str(run.failed)


def broken(workshop: Workshop, required: bool = True) -> dict[str, Any]:
    """A cluster on which pyxis never starts, and no job without it where it is required."""
    package = {"file": str(workshop.pyxis("0.25.0-1", "-DBROKEN"))}
    return {**workshop.everything(), "pyxis_packages": {"24.11": package}, "pyxis_required": required}


def test_hosts_that_a_first_run_leaves_out_are_named(lab: Lab, site: Site, workshop: Workshop) -> None:
    # In one with the login host alone, compute nodes have no prolog, and would be drained for it.
    for limit, left_out in {"front,box01": "box02", "front": "box[01-02]"}.items():
        run = site.run(f"--limit={limit}", **workshop.everything())
        assert f"would name enroot and pyxis for all hosts, and this run leaves out {left_out}" in str(run.failed)
    assert "enroot-prolog" not in lab.command("front", "cat /etc/slurm/slurm.conf")


def test_settings_that_enroot_would_ignore_are_refused(site: Site, workshop: Workshop) -> None:
    said = refused(site, **(workshop.everything() | {"enroot_conf": {"ENROOT_ALOW_HTTP": True}}))
    assert "enroot_conf: found ENROOT_ALOW_HTTP, nearest: ENROOT_ALLOW_HTTP, allowed: " in said


def test_a_plugin_with_which_no_container_runs_is_not_left_to_jobs(lab: Lab, site: Site, workshop: Workshop) -> None:
    run = site.run(**broken(workshop))
    assert "srun --help lacks --container-image" in str(run.failed)
    assert "spank_pyxis" not in lab.command("front", "cat /etc/slurm/plugstack.conf")
    for host in HOSTS:
        assert lab.command(host, f"ls {PLUGIN}* 2>/dev/null", 2) == ""
    assert as_user(lab, "timeout 180 srun -N2 echo plain") == "plain\nplain"


def test_packages_come_from_files_and_are_not_installed_again(lab: Lab, equipped: Site) -> None:
    for host in HOSTS:
        assert "nvslurm-plugin-pyxis=0.24.0-1" in lab.command(
            host, "dpkg-query -W -f '${Package}=${Version} ' enroot nvslurm-plugin-pyxis"
        )
    run = equipped.run()
    assert (run.rc, run.changed) == (0, {})


def test_check_mode_tells_of_another_version(equipped: Site, workshop: Workshop) -> None:
    newer = {"enroot_packages": [{"file": str(workshop.enroot("4.2.0-1"))}]}
    run = equipped.run("--check", "--diff", "--limit=box02", tags="containers", **newer)
    assert run.rc == 0
    diffs = [result.get("diff") for _host, task, result in run.results if "Install packages" in task]
    assert "enroot=4.2.0-1" in str(diffs)


def test_a_package_comes_from_a_url(lab: Lab, equipped: Site, workshop: Workshop) -> None:
    package = workshop.enroot("4.3.0-1")
    url = {"url": f"{URL}/newer.deb", "sha256": hashlib.sha256(package.read_bytes()).hexdigest()}
    run = equipped.run("--limit=box02", tags="containers", enroot_packages=[url])
    assert run.rc == 0, run.failed
    assert lab.command("box02", "dpkg-query -W -f '${Version}' enroot") == "4.3.0-1"


@pytest.mark.usefixtures("equipped")
def test_jobs_have_the_options_of_containers(lab: Lab) -> None:
    assert "--container-image=IMAGE" in lab.command("front", "srun --help")
    job = "timeout 180 srun -N2 --container-image=ubuntu:24.04 env | grep ^PYXIS"
    assert as_user(lab, job).splitlines() == ["PYXIS_container_image=ubuntu:24.04"] * 2


@pytest.mark.parametrize("required", [True, False], ids=["package-and-line", "package"])
def test_after_a_change_for_the_worse_jobs_have_what_they_had(
    lab: Lab, equipped: Site, workshop: Workshop, required: bool
) -> None:
    had = {host: lab.command(host, f"sha256sum {PLUGIN}") for host in HOSTS}
    line = lab.command("front", "grep spank_pyxis /etc/slurm/plugstack.conf")
    run = equipped.run(**broken(workshop, required))
    assert "again those from before" in str(run.failed)
    assert lab.command("front", "grep spank_pyxis /etc/slurm/plugstack.conf") == line
    assert {host: lab.command(host, f"sha256sum {PLUGIN}") for host in HOSTS} == had
    assert as_user(lab, "timeout 180 srun -N2 --container-image=any sh -c 'echo $PYXIS_container_image'") == "any\nany"


def test_a_plugin_is_not_judged_by_a_job_that_slurm_does_not_run(lab: Lab, equipped: Site, workshop: Workshop) -> None:
    newer = {"pyxis_packages": {"24.11": {"file": str(workshop.pyxis("0.26.0-1", "-g"))}}}
    run = equipped.run(validate_options={"account": "nobodys"}, **newer)
    said = [result.get("msg", "") for _host, task, result in run.results if "no container could be tried" in task]
    assert (run.rc, "pyxis is not proven: the job REFUSED" in str(said)) == (0, True), run.output
    assert lab.command("box01", f"test -e {PLUGIN}.before && dpkg-query -W -f '${{Version}}' nvslurm*") == "0.26.0-1"
    again = equipped.run(**newer)
    assert again.rc == 0, again.failed
    assert lab.command("box01", f"ls {PLUGIN}*") == PLUGIN
