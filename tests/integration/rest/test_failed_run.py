# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run has left whose change slurmctld has refused is removed by the next run without the key."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml
from lab import Lab, with_cluster

HEAD, LOGIN = "rest-ctl", "rest-login"
LEFT = (
    "ls /etc/gpucluster-slurm/jwt_hs256.key; grep -h AuthAlt /etc/slurm/slurmdbd.conf /etc/slurm/slurm.conf; "
    "dpkg-query -W -f '${db:Status-Status}' slurm-wlm-jwt-plugin | grep -w installed"
)
DROP_IN = "/run/systemd/system/slurmctld.service.d/refusal.conf"


def left(lab: Lab, host: str) -> list[str]:
    """What a host has of the key of tokens."""
    return str(lab.command(host, f"sh -c {shlex.quote(LEFT)} 2>/dev/null || true")).split()


def test_the_next_run_without_the_key_removes_what_a_refused_change_has_left(lab: Lab, tmp_path: Path) -> None:
    """A stand-in for a refusal that no check foresees: slurmctld does not start."""
    cluster = yaml.safe_load(lab.inventory.read_text())
    site = with_cluster(lab, tmp_path, {**cluster, "rest": {"host": LOGIN}}, slurmrestd_tls=False)
    lab.script(HEAD, f"mkdir -p $(dirname {DROP_IN}); cat >{DROP_IN}", b"[Service]\nExecStartPre=/bin/false\n")
    lab.command(HEAD, "systemctl daemon-reload")
    try:
        refused = site.playbook("site", "--skip-tags=validate")
    finally:
        lab.command(HEAD, f"rm {DROP_IN}; systemctl daemon-reload; systemctl reset-failed slurmctld")
    assert refused.rc != 0
    found = left(lab, HEAD)
    assert "/etc/gpucluster-slurm/jwt_hs256.key" in found, (found, refused.failed)
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert (left(lab, HEAD), left(lab, LOGIN)) == ([], [])
    # The control host keeps its key. The next tests begin without it.
    (lab.inventory.parent / "secrets" / str(cluster["name"]) / "jwt_hs256.key").unlink()
