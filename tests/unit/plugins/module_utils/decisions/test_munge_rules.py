# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role munge."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.munge_credentials import DECODE, ENCODE
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import munge
from plain_host import cluster

KEY = "/cluster/secrets/x/munge.key"


def test_other_hosts_decode_a_credential_of_the_controller() -> None:
    hosts = cluster({KEY: b"\xffkey"}, munge_key_file=KEY)
    assert munge.service(hosts["head"]).proof == {"command": ENCODE}
    assert munge.service(hosts["n1"]).proof is None
    hosts["head"].set(__munge_encoded={"proof": "MUNGE:x:"})
    assert munge.service(hosts["n1"]).proof == {"command": DECODE, "stdin": "MUNGE:x:"}


def test_a_controller_outside_of_the_run_has_made_a_credential_before() -> None:
    hosts = cluster({KEY: b"key"}, munge_key_file=KEY, ansible_play_hosts_all=["n1"])
    hosts["n1"].set(__munge_credential={"stdout": "MUNGE:y:"})
    assert munge.service(hosts["n1"]).proof == {"command": DECODE, "stdin": "MUNGE:y:"}


def test_a_key_may_be_missing_in_check_mode_only() -> None:
    hosts = cluster(munge_key_file=KEY)
    with pytest.raises(ValueError, match=r"munge\.key is missing"):
        munge.service(hosts["n1"])
    assert munge.service(hosts["n1"].set(ansible_check_mode=True)).files[0]["secret"] == ""


def test_a_cluster_runs_if_the_controller_has_its_mark() -> None:
    hosts = cluster(munge_key_file=KEY)
    assert not munge.cluster_runs(hosts["n1"])
    hosts["head"].say(files={"/var/lib/slurm/slurmctld/clustername": "0" * 64})
    assert munge.cluster_runs(hosts["n1"])
    assert not munge.cluster_runs(hosts["n1"].set(__munge_cluster={"stat": {"exists": False}}))
