# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that name a directory, a file, a command or a receiver: values that cannot be meant are refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.role_values import value_problems
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import alertmanager

REPORTS = ("slurm_report_dir", "accept_report_dir", "validate_report_dir")
SYSTEM = ("/", "/etc", "/usr", "/bin", "/boot/pages", "/dev/shm/x", "/proc/1", "/var", "/var/lib", "/var/log", "/home")
OTHERS = ("/etc/ssh", "/etc/systemd/system", "/etc/sudoers.d/x", "/var/lib/dpkg", "/var/lib/mysql", "/run/systemd/x")
ODD = ("", "/srv/../etc", "/srv//x/../../etc", "/srv/a\nb", "/root/.ssh", "/home/alice/.ssh/x")

WRONG: list[tuple[str, Any]] = [
    *((name, path) for name in REPORTS for path in (*SYSTEM, *OTHERS, *ODD)),
    *(
        (name, path)
        for name in ("accept_disk", "accept_shared")
        for path in (*SYSTEM, *OTHERS, *ODD[1:], "local", "~/x")
        if path not in ("/home", "/dev/shm/x")
    ),
    *(("doctor_report", name) for name in ("/etc/passwd", "/etc", "../inventory.yml", "x.cluster.yml", "a\nb.json")),
    *(("accept_nccl_tests", path) for path in ("build", "~/build", "/a/../b", "/a\nb")),
    *(("accept_profile", path) for path in ("profile.sh", "~/profile.sh", "/a/../b", "/a\nb")),
    *(("adopt_conf", path) for path in ("slurm.conf", "~/slurm.conf", "/etc/../x", "/etc/slurm\n.conf")),
    *(("new_cluster_state_directory", path) for path in ("/etc", "/", "state", "/tmp/x", "/root/x")),
    *(("first_boot_key_command", command) for command in ([""], ["  "], ["", "x"], ["a\nb"], ["get key"], ["./get"])),
    *(("image_accepted", accepted) for accepted in ({"*": "x"}, {"/*": "x"}, {"**": "x"}, {"/**/*": "x"}, {"/": "x"})),
    *(("image_accepted", accepted) for accepted in ({"?*": "x"}, {"[!x]*": "x"}, {"etc/x": "x"}, {"/etc/x": ""})),
    *(("image_accepted", accepted) for accepted in ({"/etc/*": "x"}, {"/etc/munge/munge.key": " "}, {"/a/../*": "x"})),
]
RIGHT: list[tuple[str, Any]] = [
    *((name, path) for name in REPORTS for path in ("/root/x/report/x", "/srv/www/x", "/var/www/html/x", "/tmp/x")),
    *((name, path) for name in REPORTS for path in ("report", "~/cluster/report", "/etc/ansible/report/x", "/opt/x/r")),
    *(
        (name, path)
        for name in ("accept_disk", "accept_shared")
        for path in ("/tmp", "/local", "/home", "/scratch/a b")
    ),
    ("accept_shared", ""),
    ("doctor_report", "report/doctor.json"),
    ("doctor_report", "/srv/doctor.json"),
    ("doctor_report", ""),
    ("accept_nccl_tests", "/shared/nccl-tests/build"),
    ("accept_profile", "/var/lib/tcpxo/profile.sh"),
    ("adopt_conf", "/usr/local/etc/slurm.conf"),
    ("new_cluster_state_directory", "/shared/slurm"),
    ("new_cluster_state_directory", ""),
    ("first_boot_key_command", []),
    ("first_boot_key_command", ["/usr/bin/get-key", "--cluster", "x"]),
    ("first_boot_key_command", ["vault", "kv", "get", "munge"]),
    ("image_accepted", {"/etc/site/*.key": "of a test", "/etc/ssl/private/ssl-cert-snakeoil.key": "of Debian"}),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_what_cannot_be_meant_is_refused(name: str, value: Any) -> None:
    (problem,) = value_problems({name: value})
    assert problem.startswith(name)
    assert "allowed: " in problem


@pytest.mark.parametrize(("name", "value"), RIGHT)
def test_what_sites_have_is_taken(name: str, value: Any) -> None:
    assert list(value_problems({name: value})) == []


RECEIVERS = "receivers: [{name: mail}, {name: pager}]\n"
ROUTES_WRONG = {
    "none": "route: {}\n" + RECEIVERS,
    "another": "route: {receiver: mial}\n" + RECEIVERS,
    "of no name": "route: {receiver: ''}\n" + RECEIVERS,
    "below": "route: {receiver: mail, routes: [{receiver: page, matchers: [severity=critical]}]}\n" + RECEIVERS,
    "far below": "route: {receiver: mail, routes: [{routes: [{receiver: page}]}]}\n" + RECEIVERS,
    "no receivers": "route: {receiver: mail}\nreceivers: []\n",
    "a receiver without a name": "route: {receiver: mail}\nreceivers: [{email_configs: []}]\n",
    "two of a name": "route: {receiver: mail}\nreceivers: [{name: mail}, {name: mail}]\n",
    "texts": "route: {receiver: mail}\nreceivers: [mail]\n",
    "a time that is not there": "route: {receiver: mail, routes: [{mute_time_intervals: [night]}]}\n" + RECEIVERS,
}


@pytest.mark.parametrize("name", ROUTES_WRONG)
def test_a_route_leads_to_a_receiver(name: str) -> None:
    with pytest.raises(ValueError, match=r"^slurm_monitoring\.receivers: .*allowed: "):
        alertmanager.configuration(ROUTES_WRONG[name])


def test_right_routes_are_taken() -> None:
    text = "route: {receiver: mail, routes: [{receiver: pager, mute_time_intervals: [night]}]}\n" + RECEIVERS
    assert "pager" in alertmanager.configuration(text + "time_intervals: [{name: night, time_intervals: []}]\n")
