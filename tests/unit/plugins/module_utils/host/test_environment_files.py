# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables in files such as /etc/default/slurmd make a daemon read another configuration."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import environment_files

SLURMD = '[Service]\nEnvironment="SLURMD_OPTIONS=--conf-server ctl:6817"\nRestart=on-failure\n'
SAME = (("--conf-server", "ctl:6817"), ("--conf-server", "ctl"), ("--conf-server=ctl",))


@pytest.mark.parametrize(
    ("text", "drop_in", "found"),
    [
        ("", SLURMD, None),
        ("# SLURMD_OPTIONS=-v\n;SLURMD_OPTIONS=-v\nOTHER=1\n", SLURMD, None),
        ('SLURMD_OPTIONS="--conf-server elsewhere"\n', SLURMD, ("SLURMD_OPTIONS", "--conf-server elsewhere")),
        ("SLURMD_OPTIONS=--conf-server ctl2\n", SLURMD, ("SLURMD_OPTIONS", "--conf-server ctl2")),
        # Without the server, slurmd reads a file of its own.
        ("SLURMD_OPTIONS=-v\n", SLURMD, ("SLURMD_OPTIONS", "-v")),
        ("SLURMD_OPTIONS=\n", SLURMD, ("SLURMD_OPTIONS", "")),
        # An administrator's own options, of a cluster that was taken over.
        ("SLURMD_OPTIONS='--conf-server ctl -M'\n", SLURMD, None),
        ("SLURMD_OPTIONS=-M \\\n --conf-server=ctl\n", SLURMD, None),
        ("SLURM_CONF=/old\n", SLURMD, None),
        ("SLURMCTLD_OPTIONS='-v -f /old/slurm.conf'\n", "", ("SLURMCTLD_OPTIONS", "-v -f /old/slurm.conf")),
        ("SLURMCTLD_OPTIONS=-f/old/slurm.conf\n", "", ("SLURMCTLD_OPTIONS", "-f/old/slurm.conf")),
        ("SLURMCTLD_OPTIONS='-v -f /etc/slurm/slurm.conf'\n", "[Service]\nRestart=always\n", None),
        ("SLURMCTLD_OPTIONS=-v\nSLURMDBD_OPTIONS=-v\n", "", None),
        ("SLURM_CONF=/old/slurm.conf\n", "", ("SLURM_CONF", "/old/slurm.conf")),
        ("SLURM_CONF=\n", "", None),
        ('OPTIONS="--key-file=/old/key"\n', "", ("OPTIONS", "--key-file=/old/key")),
        ('OPTIONS="--key-file /etc/munge/munge.key --num-threads 4"\n', "", None),
        ('OPTIONS="--syslog"\n', "", None),
    ],
)
def test_a_variable_that_leads_elsewhere(text: str, drop_in: str, found: tuple[str, str] | None) -> None:
    other = environment_files.find_other({"/etc/default/x": text}, [drop_in], SAME)
    assert (other and (other.file, other.name, other.value)) == (found and ("/etc/default/x", *found))


def test_the_last_file_counts() -> None:
    texts = {"/etc/sysconfig/slurmd": "SLURMD_OPTIONS=--conf-server elsewhere\n", "/etc/default/slurmd": ""}
    assert environment_files.find_other(texts, [SLURMD], SAME) == (
        "/etc/sysconfig/slurmd",
        "SLURMD_OPTIONS",
        "--conf-server elsewhere",
        "--conf-server ctl:6817",
    )
    texts["/etc/default/slurmd"] = "SLURMD_OPTIONS=--conf-server ctl\n"
    assert environment_files.find_other(texts, [SLURMD], SAME) is None


def test_the_files_of_a_unit() -> None:
    shown = (
        "LoadState=loaded\nEnvironmentFiles=/etc/default/slurmd (ignore_errors=yes)\n"
        "EnvironmentFiles=/run/gpucluster-slurm/first-boot.env (ignore_errors=yes)\n"
    )
    assert environment_files.files_of_unit(shown) == ["/etc/default/slurmd"]
