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
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from lab import Lab, with_cluster

LOGIN, FIRST, SECOND = "rot-login", "rot-ctl1", "rot-ctl2"
WORK = "/home/alice/tokens"
DAEMONS = {"slurmdbd": [FIRST], "slurmctld": [FIRST, SECOND], "slurm-rest-auth": [LOGIN]}

# Each loop asks with the first token, or with one that is made in this moment. It writes when it began and ended, what
# it asked, with which token, and the exit status.
ASK = """\
#!/bin/bash
cd {work}
again() {{
    while ! [ -e stop ]; do
        begin=$(date +%s.%N) token=$(cat first)
        [ $1 = old ] || token=$(timeout 100 scontrol token lifespan=600 2>/dev/null)
        SLURM_JWT=${{token#SLURM_JWT=}} timeout 100 "${{@:2}}" >/dev/null 2>&1
        status=$?
        echo "$begin $(date +%s.%N) $2 $1 $status" >>answers
        sleep 0.2
    done
}}
for token in old new; do
    again $token sinfo --noheader &
    again $token sacctmgr --noheader show cluster &
done
wait
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
    cluster = {**lab.cluster, "monitoring": {"host": LOGIN, "readers": ["10.213.7.1"]}}
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
    before, last_start = key.read_bytes(), max(restarts(site))
    site.command(LOGIN, f"rm -rf {WORK}; install -d -o alice -g alice {WORK}")
    site.script(LOGIN, f"cat >{WORK}/ask", ASK.format(work=WORK).encode())
    site.command(LOGIN, f"runuser -u alice -- scontrol token lifespan=3600 >{WORK}/first")
    site.command(
        LOGIN, f"chown alice {WORK}/*; systemd-run --quiet --collect --uid=alice --unit=ask-tokens bash {WORK}/ask"
    )
    site.wait_for(LOGIN, f"grep -c ' sacctmgr old 0$' {WORK}/answers", "3")
    run = site.playbook("rotate_keys", "--extra-vars=rotate=jwt")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert key.read_bytes() != before
    started = restarts(site)
    assert min(started) > last_start
    print(f"measured: {max(started) - min(started):.0f} s between the first and the last daemon's start")

    # From now on new tokens alone are good.
    asked = f"awk '$1 > {time.time()} {{ print $3, $4, $5 != 0 }}' {WORK}/answers | sort -u"
    site.wait_for(LOGIN, asked, "sacctmgr new 0\nsacctmgr old 1\nsinfo new 0\nsinfo old 1", 150)
    site.command(LOGIN, f"touch {WORK}/stop; while systemctl is-active ask-tokens; do sleep 1; done")
    rows = [line.split() for line in site.command(LOGIN, f"cat {WORK}/answers").splitlines()]
    for command in ("sinfo", "sacctmgr"):
        good = sorted(float(end) for _begin, end, name, _token, status in rows if (name, status) == (command, "0"))
        refused = sum((name, token) == (command, "new") and status != "0" for *_times, name, token, status in rows)
        gap = max(later - earlier for earlier, later in pairwise(good))
        longest = max(float(end) - float(begin) for begin, end, name, *_others in rows if name == command)
        print(f"measured: {command}: {gap:.1f} s between two answers; a new token was refused {refused} times")
        print(f"measured: {command}: the longest command took {longest:.1f} s")

    second = site.playbook("site", "--skip-tags=validate")
    assert (second.rc, second.changed) == (0, {}), second.changed
    assert restarts(site) == started
