# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each alert is caused on the cluster, fires in Prometheus' API, and clears when its cause is gone.

So that this takes minutes, Prometheus gets a copy of the rules in which each `for` is ten seconds and two ages are
shorter (AGES), and a copy of its configuration with shorter intervals. Expressions are the same otherwise. A run of
site.yml puts both back.

Four faults have stand-ins, which their names say: nodes that do not exist, since the lab has one, and their cases; an
exporter with another clock, since all containers have that of the machine; a squeue that hangs, while slurmctld answers
others; and series of a GPU, since the lab has none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from lab import Lab, container, podman
from security_updates import OFFER, SHOW, SOURCES

FIRST, SECOND, SERVER, NODE = "met-ctl1", "met-ctl2", "met-mon", "met-node1"
HOSTS = (FIRST, SECOND, SERVER, NODE)
PROMETHEUS, ALERTMANAGER = 9090, 9093
TEXTFILES = "/var/lib/prometheus/node-exporter"
CONFIGURATION = "/etc/gpucluster-slurm/prometheus/prometheus.yml"
CONF = "/etc/slurm/slurm.conf"
STATUS = "/var/lib/gpucluster-slurm/backup/status.json"
KEY = "/etc/munge/munge.key"
CLOCK = "/run/stand-in-clock"

AGES = {
    "GpuclusterDiskFullSoon": ("offset 6h", "offset 20s"),
    "GpuclusterGpusIdle": ("4h", "40s"),
    "SlurmNodeDrained": ("3 * 3600", "10"),
    "SlurmQueueStuck": ("5 * 60", "10"),
}
"""Ages in the expressions of alerts, and shorter ones."""

INTERVALS = {
    "scrape_interval: 60s": "scrape_interval: 10s",
    "scrape_timeout: 30s": "scrape_timeout: 10s",
    "evaluation_interval: 60s": "evaluation_interval: 5s",
}
"""Lines of Prometheus' configuration, and what the tests have in their place."""

SECONDS = 400
"""For an alert to fire or clear: slurmctld asks its nodes each 100 s."""

OTHER_CLOCK = f"""
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        offset, synced = open("{CLOCK}").read().split()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(f"node_time_seconds {{time.time() + float(offset)}}\\n".encode())
        self.wfile.write(f"node_timex_sync_status {{synced}}\\n".encode())
http.server.HTTPServer(("", 9100), Handler).serve_forever()
"""
"""An exporter whose clock differs by what a file says."""

Commands = Mapping[str, str]
"""Shell scripts by the host on which root runs them, in their order."""


@dataclass(frozen=True)
class Fault:
    """What causes an alert.

    labels: some of those that the alert has. make, undo: scripts that cause it, and take it back. after: scripts for
    when the alert has cleared.
    """

    alert: str
    labels: Mapping[str, str] = field(default_factory=dict)
    make: Commands = field(default_factory=dict)
    undo: Commands = field(default_factory=dict)
    after: Commands = field(default_factory=dict)


def node_state(state: str, reason: str = "test of the alerts") -> Commands:
    """Give the node a state."""
    return {FIRST: f"scontrol update NodeName={NODE} State={state} Reason='{reason}'"}


RESUMED = {FIRST: f"scontrol update NodeName={NODE} State=RESUME"}

RELOAD = "systemctl reload prometheus"
FULL = "/srv/alerts"
DEVICE = f"none {FULL}"
MOUNT = f"mkdir -p {FULL}; mountpoint -q {FULL} || mount -t tmpfs -o size=200m none {FULL}"

STAND_INS = "\n".join(
    [
        *(f'slurm_node_drain_since_seconds{{cause="health-check",node="stand-in-{number}"}} 1' for number in (1, 2, 3)),
        *(f'slurm_repair_cases{{state="{state}"}} 1' for state in ("saved", "person")),
    ]
)


def with_parameter(name: str, value: str) -> str:
    """A script that gives slurmctld another value of a parameter."""
    return (
        f"cp -p {CONF} /root/kept.conf; sed -i -e '/^{name}=/Id' -e '$a {name}={value}' {CONF}; "
        "scontrol reconfigure; sleep 2"
    )


AS_BEFORE = f"cp -p /root/kept.conf {CONF}; rm /root/kept.conf; scontrol reconfigure; scancel --user=root"

FLOOD = f"""
{with_parameter("MaxDBDMsgs", "10000")}
job=$(sbatch --parsable --hold --ntasks=1 --mem=100 --output=/dev/null --wrap true)
for number in $(seq 5500); do echo "update JobId=$job TimeLimit=$((5 + number % 2))"; done |
  timeout 300 scontrol >/dev/null
"""
"""More messages for slurmdbd than half of Slurm's least MaxDBDMsgs: each is a change of one held job."""

ALL_SENT = "timeout 120 sh -c 'until sdiag | grep -q \"DBD Agent queue size: *0$\"; do sleep 1; done'"

STUCK = f"""
sbatch --ntasks=1 --mem=1500 --output=/dev/null --wrap 'sleep 900'
timeout 60 sh -c 'until squeue -h -t R -o %i | grep -q .; do sleep 1; done'
sbatch --ntasks=1 --mem=1500 --output=/dev/null --wrap true
timeout 90 sh -c 'until squeue -h -t PD -o %r | grep -qE "Resources|Priority"; do sleep 1; done'
{with_parameter("SchedulerParameters", "defer,sched_interval=-1,bf_interval=-1")}
scancel -t R --user=root
"""
"""A job waits for resources, then the scheduler stops, then the node becomes idle."""

JOB = 'gpu="0",slurmjobid="7",user="ann",account="physics",partition="gpu"'
GPU_SERIES = "\n".join(
    [
        f"gpucluster_job_gpu_share{{{JOB}}} 1",
        f"gpucluster_job_gpu_busy_seconds_total{{{JOB}}} 3",
        f"gpucluster_job_gpu_measured_seconds_total{{{JOB}}} MEASURED",
        'DCGM_FI_DEV_XID_ERRORS{gpu="0"} 79',
        'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0"} 2',
        'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 95',
        'gpucluster_gpu_slowed{gpu="0",reason="hw_thermal_slowdown"} 1',
        "gpucluster_gpu_query_hanging 1",
        'node_infiniband_link_downed_total{device="mlx5_0",port="1"} MEASURED',
    ]
)
"""What slurm-gpu-metrics would write on a node with a GPU in trouble, where each second is an hour of samples, and what
the exporter writes of a port that loses its link.
"""

GPU_LOOP = f"""
cat >/run/stand-in-gpu <<'END'
{GPU_SERIES}
END
systemd-run --quiet --unit=stand-in-gpu sh -c 'while sleep 2; do
    sed "s/MEASURED/$(date +%s)000/" /run/stand-in-gpu >/run/new-gpu
    mv /run/new-gpu {TEXTFILES}/stand-in-gpu.prom; done'
"""

ROUNDS: dict[str, tuple[Fault, ...]] = {
    "a stand-in for series of a GPU": (
        Fault(
            "GpuclusterGpusIdle",
            {"slurmjobid": "7", "user": "ann"},
            {NODE: GPU_LOOP},
            {NODE: f"systemctl stop stand-in-gpu; rm {TEXTFILES}/stand-in-gpu.prom"},
        ),
        Fault("GpuclusterGpuXid", {"instance": NODE, "gpu": "0"}),
        Fault("GpuclusterGpuMemoryErrors", {"instance": NODE}),
        Fault("GpuclusterGpuHot", {"instance": NODE}),
        Fault("GpuclusterGpuSlowed", {"instance": NODE, "reason": "hw_thermal_slowdown"}),
        Fault("GpuclusterGpuQueryFails", {"instance": NODE}),
        Fault("GpuclusterPortErrors", {"instance": NODE, "device": "mlx5_0", "port": "1"}),
    ),
    "a drained node, old files, updates": (
        Fault("SlurmNodeDrained", {"node": NODE, "cause": "person"}, node_state("DRAIN"), RESUMED),
        Fault(
            "GpuclusterKeyOld",
            {"key": "munge"},
            {NODE: f"touch -r {KEY} /root/kept-time; touch -d '400 days ago' {KEY}"},
            {NODE: f"touch -r /root/kept-time {KEY}"},
        ),
        Fault(
            "GpuclusterBackupOld",
            {"instance": FIRST},
            {FIRST: f"mv {STATUS} /root/kept-status"},
            {FIRST: f"mv /root/kept-status {STATUS}"},
        ),
        Fault(
            "GpuclusterSecurityUpdates",
            {"instance": NODE},
            {NODE: f"SOURCE=munge\n{OFFER}"},
            # The archive of the distribution may have updates as well.
            {NODE: f"rm -f {SOURCES}; apt-get --quiet=2 update"},
            {NODE: SHOW},
        ),
        Fault(
            "GpuclusterMetricsFailing",
            {"instance": SECOND},
            {SECOND: f"echo 'no series {{' >{TEXTFILES}/broken.prom"},
            {SECOND: f"rm {TEXTFILES}/broken.prom"},
        ),
        Fault(
            "GpuclusterDiskFullSoon",
            {"instance": SERVER, "device": DEVICE, "severity": "ticket"},
            {SERVER: f"{MOUNT}; sleep 25; fallocate -l 150m {FULL}/fill"},
            {SERVER: f"rm {FULL}/fill"},
        ),
    ),
    "a node that is down, no database": (
        Fault("SlurmNodesDown", {"cause": "person"}, node_state("DOWN"), RESUMED),
        Fault(
            "SlurmdbdDown",
            {"instance": SERVER},
            {SERVER: "systemctl stop slurmdbd", FIRST: FLOOD},
            {SERVER: "systemctl start mariadb slurmdbd", FIRST: f"{ALL_SENT}; {AS_BEFORE}"},
        ),
        Fault("SlurmDatabaseDown", {"instance": SERVER}, {SERVER: "systemctl stop mariadb"}),
        Fault("SlurmdbdMessagesWaiting", {"severity": "ticket"}),
        Fault("SlurmdbdQueueFullSoon", {"severity": "page"}),
    ),
    "a node that fails, a full disk, no alertmanager": (
        Fault("SlurmNodesFailing", {"cause": "fail"}, node_state("FAIL"), RESUMED),
        Fault(
            "GpuclusterDiskFull",
            {"instance": SERVER, "device": DEVICE, "severity": "page"},
            {SERVER: f"{MOUNT}; fallocate -l 195m {FULL}/fill"},
            {SERVER: f"rm {FULL}/fill"},
            {SERVER: f"umount {FULL}; rmdir {FULL}"},
        ),
        Fault(
            "GpuclusterScrapeFails",
            {"job": "alertmanager"},
            {SERVER: "systemctl stop prometheus-alertmanager"},
            {SERVER: "systemctl start prometheus-alertmanager"},
        ),
    ),
    "stand-ins for nodes, cases and a clock": (
        Fault(
            "SlurmHealthCheckFailing",
            {"cause": "health-check"},
            {SERVER: f"echo '{STAND_INS}' >{TEXTFILES}/stand-in.prom"},
            {SERVER: f"rm {TEXTFILES}/stand-in.prom"},
        ),
        Fault("SlurmCaseNeedsPerson", {"cause": "repair"}),
        Fault("SlurmCaseOpen", {"cause": "repair"}),
        Fault(
            "GpuclusterClockOff",
            {"instance": NODE},
            {
                NODE: f"echo -120 0 >{CLOCK}; printf %s '{OTHER_CLOCK}' >/root/other_clock.py; "
                "systemctl stop prometheus-node-exporter; "
                "systemd-run --quiet --unit=other-clock python3 /root/other_clock.py"
            },
            {NODE: f"echo 0 1 >{CLOCK}"},
            {NODE: f"systemctl stop other-clock; systemctl start prometheus-node-exporter; rm {CLOCK}"},
        ),
        Fault("GpuclusterClockNotSynced", {"instance": NODE}),
    ),
    "no controller": (
        Fault(
            "SlurmNoControllerServes",
            {"severity": "page"},
            {SECOND: "systemctl stop slurmctld", FIRST: "systemctl stop slurmctld"},
            {
                FIRST: "systemctl start slurmctld; timeout 60 sh -c 'until sinfo -h; do sleep 1; done'",
                SECOND: "systemctl start slurmctld",
            },
        ),
        Fault("GpuclusterDaemonDown", {"instance": FIRST, "daemon": "slurmctld"}),
    ),
    "the standby": (
        Fault(
            "SlurmStandbyServes",
            {"controller": SECOND},
            {FIRST: "systemctl stop slurmctld", SECOND: "timeout 60 scontrol takeover"},
            {FIRST: "systemctl start slurmctld"},
        ),
    ),
    "a queue that does not move, a wrong file": (
        Fault(
            "SlurmQueueStuck",
            {"cause": "queue", "partition": "all"},
            {FIRST: STUCK},
            {FIRST: AS_BEFORE},
        ),
        Fault(
            "GpuclusterPrometheusFailing",
            {"job": "prometheus"},
            {SERVER: f"cp -p {CONFIGURATION} /root/kept.yml; echo 'no: key' >>{CONFIGURATION}; {RELOAD}"},
            {SERVER: f"mv /root/kept.yml {CONFIGURATION}; {RELOAD}"},
        ),
    ),
}
"""Faults that are there at the same time."""


def ask(lab: Lab, port: int, path: str) -> Any:
    """The answer of Prometheus or alertmanager. The machine of the tests is one of the readers."""
    with urlopen(f"http://{lab.cluster['addresses'][SERVER]}:{port}{path}", timeout=30) as answer:
        return json.load(answer)


def alerts(lab: Lab) -> list[dict[str, Any]]:
    """All alerts that Prometheus has, pending ones included."""
    return list(ask(lab, PROMETHEUS, "/api/v1/alerts")["data"]["alerts"])


def find(found: Sequence[Mapping[str, Any]], fault: Fault) -> list[Mapping[str, Any]]:
    """Those that a fault causes."""
    wanted = {"alertname": fault.alert, **fault.labels}
    return [alert for alert in found if wanted.items() <= alert["labels"].items()]


def run_scripts(lab: Lab, commands: Commands) -> None:
    """Run scripts on their hosts."""
    for host, script in commands.items():
        lab.script(host, script, b"")


def measure(lab: Lab, hosts: Sequence[str]) -> None:
    """Write the series of hosts now; the timers do it later. The program fails where a fault is."""
    for host in hosts:
        lab.host(host).run("slurm-metrics host")
        if host in (FIRST, SECOND):
            lab.host(host).run("slurm-metrics cluster")


def wait_until(lab: Lab, what: str, reached: Callable[[list[dict[str, Any]]], bool], hosts: Sequence[str]) -> None:
    """Return when the alerts of Prometheus are as wanted; AssertionError after SECONDS."""
    deadline = time.monotonic() + SECONDS
    while not reached(found := alerts(lab)):
        names = [(alert["labels"]["alertname"], alert["state"]) for alert in found]
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}; there are {names}"
        measure(lab, hosts)
        time.sleep(5)


def fires(fault: Fault) -> Callable[[list[dict[str, Any]]], bool]:
    """Whether the alert of a fault is firing."""
    return lambda found: any(alert["state"] == "firing" for alert in find(found, fault))


def is_gone(fault: Fault) -> Callable[[list[dict[str, Any]]], bool]:
    """Whether the alert of a fault is not there any more."""
    return lambda found: not find(found, fault)


def check_fires(lab: Lab, faults: Sequence[Fault], hosts: Sequence[str]) -> None:
    """Wait until the alerts of faults are firing, and check what they say."""
    for fault in faults:
        wait_until(lab, f"{fault.alert} fires", fires(fault), hosts)
    found = alerts(lab)
    for alert in (alert for fault in faults for alert in find(found, fault)):
        summary = alert["annotations"]["summary"]
        print(f"fires: {alert['labels']['alertname']}: {summary}")
        assert "<" not in summary, "a template could not be expanded"


def check_clears(lab: Lab, faults: Sequence[Fault], hosts: Sequence[str]) -> None:
    """Wait until the alerts of faults are gone."""
    for fault in faults:
        wait_until(lab, f"{fault.alert} clears", is_gone(fault), hosts)


def shortened(text: str) -> str:
    """A copy of the rules in which each `for` is ten seconds, and AGES are shorter."""
    content = yaml.safe_load(text)
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        rule["for"] = "10s"
        if rule["alert"] in AGES:
            age, shorter = AGES[rule["alert"]]
            assert age in rule["expr"]
            rule["expr"] = rule["expr"].replace(age, shorter)
    return str(yaml.safe_dump(content))


def fast(text: str) -> str:
    """A copy of Prometheus' configuration with the INTERVALS of the tests."""
    for line, faster in INTERVALS.items():
        assert line in text
        text = text.replace(line, faster)
    return text


def change(lab: Lab, path: str, changed: Callable[[str], str]) -> None:
    """Write another text into a file of Prometheus, whose owner and mode stay as they are."""
    text = lab.script(SERVER, f"cat {path}", b"").decode()
    lab.script(SERVER, f"cat >{path}", changed(text).encode())


def groups_of_alerts(lab: Lab) -> list[dict[str, Any]]:
    """The groups of rules that Prometheus has, those with alerts alone."""
    return [group for group in ask(lab, PROMETHEUS, "/api/v1/rules?type=alert")["data"]["groups"] if group["rules"]]


@pytest.fixture(scope="module", autouse=True)
def short_times(lab: Lab) -> Iterator[None]:
    """Prometheus with shorter times. A run of site.yml puts its files back."""
    before = groups_of_alerts(lab)
    (path,) = {group["file"] for group in before}
    try:
        change(lab, path, shortened)
        change(lab, CONFIGURATION, fast)
        lab.command(SERVER, RELOAD)
        yield
    finally:
        run = lab.playbook("site", "--skip-tags=validate,backup")
    assert run.rc == 0, run.failed or run.output[-3000:]
    assert durations(groups_of_alerts(lab)) == durations(before)


def durations(groups: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The seconds of `for` by alert."""
    return {rule["name"]: rule["duration"] for group in groups for rule in group["rules"]}


@pytest.mark.parametrize("name", ROUNDS)
def test_alerts_fire_and_clear(lab: Lab, name: str) -> None:
    faults = ROUNDS[name]
    with ExitStack() as after:
        with ExitStack() as undo:
            for fault in faults:
                after.callback(run_scripts, lab, fault.after)
                undo.callback(run_scripts, lab, fault.undo)
                run_scripts(lab, fault.make)
            check_fires(lab, faults, HOSTS)
        check_clears(lab, faults, HOSTS)


def test_a_controller_that_is_slow_or_answers_in_part(lab: Lab) -> None:
    """slurmctld does not run for four seconds while it is asked. The timer would ask again, so it is stopped."""
    faults = (Fault("SlurmControllerSlow"), Fault("SlurmControllerSilent", {"severity": "page"}))
    stand_in = "printf '#!/bin/sh\\nsleep 100\\n' >/usr/local/bin/squeue; chmod 755 /usr/local/bin/squeue"
    stop = "systemctl stop slurm-metrics-cluster.timer slurm-metrics-cluster.service"
    slow = (
        "p=$(systemctl show -P MainPID slurmctld); kill -STOP $p; (sleep 4; kill -CONT $p) & "
        "slurm-metrics cluster; wait; true"
    )
    lab.script(FIRST, f"{stop}; {stand_in}; {slow}", b"")
    try:
        check_fires(lab, faults, [SERVER])
    finally:
        lab.script(FIRST, "rm /usr/local/bin/squeue; systemctl start slurm-metrics-cluster.timer", b"")
    check_clears(lab, faults, [FIRST])


def test_a_host_that_is_away(lab: Lab) -> None:
    """One notification tells that the host is down; alertmanager sends none for what follows from it."""
    faults = (
        Fault("GpuclusterHostDown", {"instance": NODE, "node": NODE}),
        Fault("SlurmNodeNotResponding", {"node": NODE}),
        Fault("SlurmManyNodesOut", {"severity": "page"}),
    )
    reached = [FIRST, SECOND, SERVER]
    node = ("exec", container(NODE), "sh", "-c")
    podman(*node, "ip route show default >/root/kept-route; ip link set eth0 down")
    try:
        check_fires(lab, faults, reached)
        told = wait_for_alertmanager(lab, "SlurmNodeNotResponding", "suppressed")
        assert told["status"]["inhibitedBy"]
        wait_for_alertmanager(lab, "GpuclusterHostDown", "active")
    finally:
        podman(*node, "ip link set eth0 up; ip route replace $(cat /root/kept-route)")
        lab.wait_for(NODE, "uname -n", NODE, 120)
    check_clears(lab, faults, HOSTS)


def wait_for_alertmanager(lab: Lab, alert: str, state: str, seconds: int = 120) -> dict[str, Any]:
    """The alert in alertmanager, when it is in this state."""
    deadline = time.monotonic() + seconds
    while True:
        found = ask(lab, ALERTMANAGER, "/api/v2/alerts")
        for told in found:
            if told["labels"]["alertname"] == alert and told["status"]["state"] == state:
                return dict(told)
        assert time.monotonic() < deadline, f"{alert} is not {state} within {seconds} s: {found}"
        time.sleep(2)


def test_a_silence_with_the_word_of_doctor(lab: Lab) -> None:
    """As docs/admin/alerts.md has it."""
    amtool = f"amtool --alertmanager.url http://{lab.cluster['addresses'][SERVER]}:{ALERTMANAGER} silence"
    faults = [Fault("SlurmNodeDrained", {"node": NODE, "cause": "person"})]
    run_scripts(lab, node_state("DRAIN", "waits for a DIMM"))
    try:
        check_fires(lab, faults, HOSTS)
        wait_for_alertmanager(lab, "SlurmNodeDrained", "active")
        lab.command(SERVER, f"{amtool} add cause=person node={NODE} -d 1h -c 'waits for a DIMM'")
        told = wait_for_alertmanager(lab, "SlurmNodeDrained", "suppressed")
        assert told["status"]["silencedBy"]
        assert told["annotations"]["page"] == "docs/admin/alerts.md#slurmnodedrained"
        lab.command(SERVER, f"{amtool} expire $({amtool} query -q)")
        wait_for_alertmanager(lab, "SlurmNodeDrained", "active")
    finally:
        run_scripts(lab, RESUMED)
    check_clears(lab, faults, HOSTS)


def test_nobody_is_called_for_a_cluster_that_is_well(lab: Lab) -> None:
    measure(lab, HOSTS)
    wait_until(
        lab, "no page", lambda found: not [alert for alert in found if alert["labels"]["severity"] == "page"], HOSTS
    )
