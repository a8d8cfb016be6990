# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another key of tokens, with two controllers: for how long no token is good, and that the daemons restart together."""

from __future__ import annotations

from pathlib import Path

from lab import Lab

LOGIN, FIRST, SECOND = "rot-login", "rot-ctl1", "rot-ctl2"
WORK = "/home/alice/tokens"
DAEMONS = {"slurmdbd": [FIRST], "slurmctld": [FIRST, SECOND], "slurm-rest-auth": [LOGIN]}

# Writes the time, what was asked, whose token it had, and the exit status: with the first token, and with one that is
# made in this moment.
ASK = """\
#!/bin/bash
cd {work}
ask() {{
    SLURM_JWT=$2 timeout 20 "${{@:3}}" >/dev/null 2>&1
    echo "$(date +%s.%N) $3 $1 $?" >>answers
}}
while ! [ -e stop ]; do
    new=$(unset SLURM_JWT; timeout 20 scontrol token lifespan=600 2>/dev/null)
    for command in sinfo sacctmgr; do
        options=(--noheader); [ $command = sinfo ] || options+=(show cluster)
        ask old "$(cat first)" $command "${{options[@]}}"
        ask new "${{new#SLURM_JWT=}}" $command "${{options[@]}}"
    done
    sleep 0.2
done
"""


def restarts(lab: Lab) -> list[float]:
    """When the daemons that check tokens were started, in seconds since the epoch, whatever their hosts."""
    return [
        float(lab.command(host, f'date -d "$(systemctl show -P ExecMainStartTimestamp {unit})" +%s'))
        for unit, hosts in DAEMONS.items()
        for host in hosts
    ]


def test_tokens_are_refused_for_seconds(lab: Lab) -> None:
    key = Path(lab.inventory.parent, "secrets/rotation/jwt_hs256.key")
    before, begin = key.read_bytes(), min(restarts(lab))
    lab.command(LOGIN, f"rm -rf {WORK}; install -d -o alice -g alice {WORK}")
    lab.script(LOGIN, f"cat >{WORK}/ask", ASK.format(work=WORK).encode())
    lab.command(LOGIN, f"runuser -u alice -- scontrol token lifespan=3600 | sed s/SLURM_JWT=// >{WORK}/first")
    lab.command(LOGIN, f"chown alice {WORK}/*; systemd-run --quiet --collect --uid=alice --unit=tokens bash {WORK}/ask")
    lab.wait_for(LOGIN, f"grep -c ' sacctmgr old 0$' {WORK}/answers", "3")
    run = lab.playbook("rotate_keys", "--extra-vars=rotate=jwt")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    lab.command(LOGIN, f"sleep 5; touch {WORK}/stop; while systemctl is-active tokens; do sleep 1; done")
    assert key.read_bytes() != before
    started = restarts(lab)
    assert min(started) > begin
    print(f"measured: {max(started) - min(started):.0f} s between the first and the last daemon's start")

    rows = [line.split() for line in lab.command(LOGIN, f"cat {WORK}/answers").splitlines()]
    for command in ("sinfo", "sacctmgr"):
        old = [(float(at), status) for at, name, token, status in rows if (name, token) == (command, "old")]
        new = [(float(at), status) for at, name, token, status in rows if (name, token) == (command, "new")]
        ended = max(at for at, status in old if status == "0")
        assert (new[-1][1], old[-1][1] != "0") == ("0", True), command
        bad = [at for at, status in new if status != "0"]
        good = min((at for at, status in new if status == "0" and at > max(bad)), default=ended) if bad else ended
        print(f"measured: {command}: no token was good for {max(0.0, good - ended):.1f} s")

    second = lab.playbook("site", "--skip-tags=validate")
    assert (second.rc, second.changed) == (0, {}), second.changed
    assert restarts(lab) == started
