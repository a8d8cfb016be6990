# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another key of tokens, with two controllers: for how long no token is good, and that the daemons restart together.

With Slurm 26.05, Prometheus reads pages of slurmctld with tokens of another key, which changes as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from lab import Lab, with_cluster

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
    status=$?
    echo "$(date +%s.%N) $3 $1 $status" >>answers
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


@pytest.fixture(name="site", scope="module")
def with_prometheus(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, with Prometheus if it reads pages with tokens."""
    if lab.release < "26.05":
        yield lab
        return
    cluster = {**lab.cluster, "monitoring": {"host": LOGIN}}
    site = with_cluster(lab, tmp_path_factory.mktemp("site"), cluster, slurmrestd_tls=False)
    run = site.playbook("site", "--skip-tags=validate")
    assert run.rc == 0, run.failed or run.output[-3000:]
    yield site
    run = lab.playbook("site", "--skip-tags=validate")
    assert run.rc == 0, run.failed or run.output[-3000:]


def scrapes(lab: Lab, since: float) -> list[tuple[float, str, bool]]:
    """Prometheus' requests of pages of slurmctld: when, which page of which controller, and whether it had it."""
    query = quote('up{job=~"slurm_(jobs|nodes|partitions|scheduler)"}[10m]')
    url = f"http://10.213.7.217:9090/api/v1/query?query={query}"
    program = f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=30).read().decode())"
    found = json.loads(lab.command(LOGIN, f'python3 -c "{program}"'))["data"]["result"]
    return sorted(
        (float(at), f"{one['metric']['job']} {one['metric']['instance']}", value == "1")
        for one in found
        for at, value in one["values"]
        if float(at) > since
    )


def wait_for_pages(lab: Lab, since: float) -> set[str]:
    """The pages that Prometheus has had since then, once these are all of one controller."""
    deadline, pages = time.monotonic() + 300, set[str]()
    while len(pages) < 4 and time.monotonic() < deadline:
        time.sleep(5)
        pages = {name for _at, name, good in scrapes(lab, since) if good}
    return pages


def test_prometheus_gets_a_new_token(site: Lab) -> None:
    if site.release < "26.05":
        pytest.skip("slurmctld's pages need no token")
    pages = wait_for_pages(site, 0)
    key = Path(Lab(site.scenario).inventory.parent, "secrets/rotation/slurmctld_http.key")
    before, begin = key.read_bytes(), time.time()
    run = site.playbook("rotate_keys", "--extra-vars=rotate=jwt")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    ended = time.time()
    assert key.read_bytes() != before
    assert wait_for_pages(site, ended) == pages
    found = scrapes(site, begin)
    for page in sorted(pages):
        tries = [good for _at, name, good in found if name == page]
        print(f"measured: {page}: {tries.count(False)} of {len(tries)} scrapes failed")
    assert not [name for at, name, good in found if name in pages and not good and at > ended + 60]


def test_tokens_are_refused_for_seconds(site: Lab) -> None:
    key = Path(Lab(site.scenario).inventory.parent, "secrets/rotation/jwt_hs256.key")
    before, begin = key.read_bytes(), min(restarts(site))
    site.command(LOGIN, f"rm -rf {WORK}; install -d -o alice -g alice {WORK}")
    site.script(LOGIN, f"cat >{WORK}/ask", ASK.format(work=WORK).encode())
    site.command(LOGIN, f"runuser -u alice -- scontrol token lifespan=3600 | sed s/SLURM_JWT=// >{WORK}/first")
    site.command(
        LOGIN, f"chown alice {WORK}/*; systemd-run --quiet --collect --uid=alice --unit=ask-tokens bash {WORK}/ask"
    )
    site.wait_for(LOGIN, f"grep -c ' sacctmgr old 0$' {WORK}/answers", "3")
    run = site.playbook("rotate_keys", "--extra-vars=rotate=jwt")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    site.command(LOGIN, f"sleep 5; touch {WORK}/stop; while systemctl is-active ask-tokens; do sleep 1; done")
    assert key.read_bytes() != before
    started = restarts(site)
    assert min(started) > begin
    print(f"measured: {max(started) - min(started):.0f} s between the first and the last daemon's start")

    rows = [line.split() for line in site.command(LOGIN, f"cat {WORK}/answers").splitlines()]
    for command in ("sinfo", "sacctmgr"):
        old = [(float(at), status) for at, name, token, status in rows if (name, token) == (command, "old")]
        new = [(float(at), status) for at, name, token, status in rows if (name, token) == (command, "new")]
        ended = max(at for at, status in old if status == "0")
        assert (new[-1][1], old[-1][1] != "0") == ("0", True), command
        bad = [at for at, status in new if status != "0"]
        good = min((at for at, status in new if status == "0" and at > max(bad)), default=ended) if bad else ended
        print(f"measured: {command}: no token was good for {max(0.0, good - ended):.1f} s")

    second = site.playbook("site", "--skip-tags=validate")
    assert (second.rc, second.changed) == (0, {}), second.changed
    assert restarts(site) == started
