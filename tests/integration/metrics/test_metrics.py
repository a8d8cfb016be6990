# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key monitoring: targets, ports, changes, secrets, a node that comes and leaves, removal, a site's own Prometheus.

The tests depend on each other and run in this order. The scenario has installed the cluster with the key. The last test
puts everything back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from lab import Lab, Run, with_cluster

CONTROLLERS, SERVER, NODE, FURTHER = ("met-ctl1", "met-ctl2"), "met-mon", "met-node1", "met-node2"
HOSTS = (*CONTROLLERS, SERVER, NODE)
ADDRESSES = {host: f"10.213.7.{210 + number}" for number, host in enumerate((*HOSTS, FURTHER))}
ROLE = "gpucluster.slurm.slurm_metrics"
TASK = f"{ROLE} : Run the services"
REMOVE = f"{ROLE} : Remove what the host does not need any more"
WRITE = f"{ROLE} : Write the files on the control host"
PROMETHEUS = f"http://{ADDRESSES[SERVER]}:9090"
PACKAGES = ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter")
PASSWORD = "pass-word-of-a-receiver"
RECEIVERS = {
    "route": {"receiver": "nobody"},
    "receivers": [
        {"name": "nobody", "webhook_configs": [{"url": f"http://127.0.0.1:1/{PASSWORD}", "send_resolved": False}]}
    ],
}

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
"""Ends with an error if there is no connection."""


@pytest.fixture(scope="module")
def site(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Lab]:
    """The lab with another value of the key, and further keys of the cluster file."""
    directory = tmp_path_factory.mktemp("site")
    (directory / "receivers.yml").write_text(yaml.safe_dump(RECEIVERS))

    def changed(monitoring: Any, **keys: Any) -> Lab:
        cluster = yaml.safe_load(lab.inventory.read_text()) | keys
        if monitoring is None:
            del cluster["monitoring"]
        else:
            cluster["monitoring"] = monitoring
        return with_cluster(lab, directory, cluster)

    return changed


def run(lab: Lab, *arguments: str) -> Run:
    """Run site.yml without the jobs at its end; it must succeed."""
    done = lab.playbook("site", "--skip-tags=validate,backup", *arguments)
    assert done.rc == 0, done.failed or done.output[-3000:]
    return done


def ask(path: str) -> Any:
    """What the API of Prometheus says."""
    with urlopen(f"{PROMETHEUS}/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)["data"]


def wait_for(condition: Callable[[], bool], seconds: int) -> None:
    """Return when a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s"
        time.sleep(1)


def targets(job: str) -> dict[str, str]:
    """The health of the targets of a job, by the name of the host."""
    found = ask("targets?state=active")["activeTargets"]
    return {target["labels"]["instance"]: target["health"] for target in found if target["labels"]["job"] == job}


def started(lab: Lab, service: str) -> str:
    """When a service of the host of Prometheus was started."""
    return str(lab.command(SERVER, f"systemctl show --property=InvocationID --value {service}"))


def tasks(done: Run) -> dict[str, set[str]]:
    """The hosts of each task of the role that was run and not skipped."""
    found: dict[str, set[str]] = {}
    for host, task, result in done.results:
        if not result.get("skipped"):
            found.setdefault(task, set()).add(host)
    return found


def test_prometheus_reads_every_host_by_its_name() -> None:
    # Each target is unknown until Prometheus has read it once.
    wait_for(lambda: targets("node") == dict.fromkeys(HOSTS, "up"), 130)
    wait_for(lambda: targets("prometheus") == targets("alertmanager") == {SERVER: "up"}, 130)
    serving = ask("query?query=slurm_controller_serving==1")["result"]
    assert [series["metric"]["instance"] for series in serving] == ["met-ctl1"]


def test_a_second_run_has_no_task_of_the_stage(lab: Lab) -> None:
    done = run(lab)
    assert done.changed == {}
    assert TASK not in tasks(done)
    assert run(lab, "--check", "--diff").changed == {}


def test_programs_listen_at_the_addresses_of_the_cluster_file_alone(lab: Lab) -> None:
    for host in HOSTS:
        listening = lab.command(host, "ss --no-header --listening --tcp --numeric").split("\n")
        own = {line.split()[3] for line in listening if line.split()[3].endswith((":9090", ":9093", ":9094", ":9100"))}
        ports = (9090, 9093, 9100) if host == SERVER else (9100,)
        assert own == {f"{ADDRESSES[host]}:{port}" for port in ports}


def test_only_prometheus_and_readers_reach_exporters_and_only_readers_reach_alertmanager(lab: Lab) -> None:
    def connects(host: str, target: str, port: int) -> bool:
        return bool(lab.host(host).run(f"python3 -c '{CONNECT}' {ADDRESSES[target]} {port}").rc == 0)

    assert all(connects(SERVER, host, 9100) for host in HOSTS)
    assert not connects(NODE, CONTROLLERS[0], 9100)
    assert not connects(CONTROLLERS[0], NODE, 9100)
    assert not any(connects(NODE, SERVER, port) for port in (9090, 9093))
    assert [connects(CONTROLLERS[0], SERVER, port) for port in (9090, 9093)] == [True, False]
    # This machine is a reader.
    for page in (f"{SERVER}:9090/-/ready", f"{SERVER}:9093/-/ready", f"{NODE}:9100/metrics"):
        host, _colon, rest = page.partition(":")
        with urlopen(f"http://{ADDRESSES[host]}:{rest}", timeout=5) as answer:
            assert answer.status == 200


def test_a_changed_rule_is_repaired_by_a_reload_of_this_host_alone(lab: Lab) -> None:
    before = started(lab, "prometheus")
    lab.command(SERVER, "sh -c 'echo >> /etc/gpucluster-slurm/prometheus/rules/names.yml'")
    done = run(lab)
    assert done.changed == {SERVER: [TASK]}
    assert tasks(done)[TASK] == {SERVER}
    assert started(lab, "prometheus") == before


def test_another_retention_restarts_prometheus_alone(lab: Lab, site: Callable[..., Lab]) -> None:
    before = {name: started(lab, name) for name in PACKAGES}
    given = {**lab.cluster["monitoring"], "retention": "40d"}
    run(site(given))
    after = {name: started(lab, name) for name in PACKAGES}
    assert {name for name in PACKAGES if before[name] != after[name]} == {"prometheus"}
    assert ask("status/flags")["storage.tsdb.retention.time"] in ("40d", "5w5d")


def test_receivers_are_reloaded_and_never_shown(lab: Lab, site: Callable[..., Lab]) -> None:
    before = started(lab, "prometheus-alertmanager")
    done = run(site({**lab.cluster["monitoring"], "receivers": "receivers.yml"}), "--diff", "-vvv")
    assert PASSWORD not in done.output
    assert started(lab, "prometheus-alertmanager") == before
    file = lab.host(SERVER).file("/etc/gpucluster-slurm/prometheus/alertmanager.yml")
    assert (PASSWORD in file.content_string, file.user, file.mode) == (True, "prometheus", 0o400)
    assert lab.command(SERVER, "runuser -u alice -- cat /etc/gpucluster-slurm/prometheus/alertmanager.yml", 1) == ""


def test_a_killed_run_is_completed(lab: Lab, site: Callable[..., Lab]) -> None:
    before = started(lab, "prometheus")
    other = site({**lab.cluster["monitoring"], "retention": "41d"})
    live = other.start("site", "--skip-tags=validate,backup")
    live.wait_for_task(TASK)
    time.sleep(1)
    live.kill()
    run(other)
    assert started(lab, "prometheus") != before
    wait_for(lambda: targets("node") == dict.fromkeys(HOSTS, "up"), 130)
    assert run(other).changed == {}


def test_a_node_comes_and_leaves(lab: Lab, site: Callable[..., Lab]) -> None:
    nodes = [{"hosts": "met-node[1-2]", "hardware": "container", "address": "10.213.7.[213-214]"}]
    partitions = [{"name": "all", "nodes": "met-node[1-2]", "default": True}]
    larger = site(lab.cluster["monitoring"], nodes=nodes, partitions=partitions)
    run(larger)
    wait_for(lambda: targets("node") == dict.fromkeys((*HOSTS, FURTHER), "up"), 130)
    done = larger.playbook("remove_nodes", "-e", f"remove_nodes={FURTHER}")
    assert done.rc == 0, done.failed
    wait_for(lambda: FURTHER not in targets("node"), 30)
    assert lab.command(FURTHER, "sh -c 'dpkg -l prometheus-node-exporter | grep -c ^ii'", 1) == "0"
    left = "/usr/local/sbin/slurm-metrics /var/lib/prometheus/node-exporter/gpucluster.prom"
    assert lab.command(FURTHER, f"sh -c 'ls -d {left} /etc/systemd/system/slurm-metrics* 2>/dev/null'", 2) == ""
    assert run(lab).rc == 0


def test_the_removal_takes_everything(lab: Lab, site: Callable[..., Lab]) -> None:
    without = site(None)
    predicted = run(without, "--check")
    assert tasks(predicted)[REMOVE] == {*HOSTS} == {*predicted.changed}
    assert targets("node")
    run(without)
    installed = " ".join(PACKAGES)
    for host in HOSTS:
        # A name that another package recommends is known, and is not installed.
        states = lab.command(host, f"dpkg-query --show --showformat='${{db:Status-Status}}\\n' {installed} || true")
        assert {*states.split()} <= {"not-installed"}
        paths = "/etc/gpucluster-slurm/metrics.json /etc/gpucluster-slurm/prometheus /usr/local/sbin/slurm-metrics*"
        paths += " /etc/systemd/system/*metrics* /etc/systemd/system/prometheus* /var/lib/prometheus/node-exporter"
        paths += " /var/lib/prometheus/metrics2 /var/lib/gpucluster-slurm/installed/*"
        assert lab.command(host, f"sh -c 'ls -d {paths} 2>/dev/null || true'") == ""
        assert lab.command(host, 'sh -c \'systemctl list-units --all --no-legend "*metrics*" "prometheus*"\'') == ""
        assert "9100" not in lab.command(host, "nft list table inet gpucluster_slurm")
    done = run(without)
    assert done.changed == {}
    assert REMOVE not in tasks(done)


def test_check_mode_predicts_an_installation(lab: Lab) -> None:
    done = run(lab, "--check")
    assert {*done.changed} == {*HOSTS}
    assert lab.command(SERVER, "ls /etc/gpucluster-slurm/prometheus", 2) == ""


def test_a_site_with_its_own_prometheus_gets_files(lab: Lab, site: Callable[..., Lab]) -> None:
    own = site({"targets_only": True})
    run(own)
    directory = own.inventory.parent / "metrics.monitoring"
    nodes = yaml.safe_load((directory / "targets/nodes.yml").read_text())
    assert {entry["labels"]["instance"]: entry["targets"] for entry in nodes} == {
        host: [f"{ADDRESSES[host]}:9100"] for host in HOSTS
    }
    names = {str(path.relative_to(directory)) for path in directory.rglob("*.yml")}
    assert names == {
        "prometheus.yml",
        "targets/nodes.yml",
        "targets/slurmctld.yml",
        "rules/names.yml",
        "rules/alerts.yml",
        "rules/gpus.yml",
    }
    states = lab.host(SERVER).run("systemctl is-active prometheus-node-exporter prometheus").stdout
    assert states.split() == ["active", "inactive"]
    done = run(own)
    assert done.changed == {}
    assert WRITE not in tasks(done)
    (directory / "rules/names.yml").unlink()
    assert [*run(own).changed.values()] == [[WRITE]]


def test_the_key_comes_back(lab: Lab) -> None:
    run(lab)
    wait_for(lambda: targets("node") == dict.fromkeys(HOSTS, "up"), 130)
    assert run(lab).changed == {}
