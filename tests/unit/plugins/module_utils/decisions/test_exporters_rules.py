# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of the key monitoring: what each host gets, where values of slurmctld come from, and what is removed."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall_plans import firewall_plans
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.monitoring_key import MonitoringKey, check
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages, slurmctld
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.platform_tables import RELEASES
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.shipped_files import HostFile
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import remove_nodes
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import comparison, questions
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import (
    all_servers,
    exporters,
    prometheus,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import (
    default_values,
    defaults,
    jwt_keys,
    slurmctld_metrics,
)
from jinja2 import Environment, StrictUndefined
from plain_host import DATABASE_SERVER, GROUPS, PlainHost, cluster

ROOT = Path(__file__).parents[5]
KEY = "/cluster/secrets/x/slurmctld_http.key"
MUNGE = "/cluster/secrets/x/munge.key"
ADDRESSES = [{"hosts": "head,login,n[1-2]", "address": "10.0.0.[1-4]"}]
SECRET = b"route: {receiver: a}\nreceivers: [{name: a, webhook_configs: [{url: http://x/password}]}]\n"
FILES = {KEY: b"\xff" * 64, MUNGE: b"m", "/cluster/receivers.yml": SECRET}


def monitoring(found: Any) -> MonitoringKey:
    """The variable for a value of the key."""
    problems: list[str] = []
    value = check(Checker("", problems), found, {})
    assert problems == []
    return value


def hosts(found: Any = "login", version: str = "24.11.5-4", **variables: Any) -> dict[str, PlainHost]:
    """The hosts of a cluster with the key, and with a release of Slurm."""
    value = monitoring(found)
    groups = {**GROUPS, "slurm_monitoring": [value["host"]] if value.get("host") else []}
    given = {
        "groups": groups,
        "slurm_monitoring": value,
        "slurm_addresses": ADDRESSES,
        "slurm_hardware_file": "/cluster/my.hardware.yml",
    }
    result: dict[str, PlainHost] = cluster(FILES, **{**given, **variables})
    for host in result.values():
        host.say(slurm_version=version)
    return result


def work(all_hosts: dict[str, PlainHost]) -> list[str]:
    """The hosts with work."""
    facts = {name: host.facts for name, host in all_hosts.items()}
    return prometheus.hosts_with_work(all_hosts["head"], facts)


def converge(all_hosts: dict[str, PlainHost]) -> None:
    """Let each host say what a run leaves there."""
    for host in all_hosts.values():
        services = {name: service() for name, service in prometheus.services(host).items()}
        applied = {name: service.digest for name, service in services.items()}
        paths = [file["path"] for service in services.values() for file in service.files]
        paths += [file["path"] for file in all_servers.package_records(host)]
        host.say(
            applied=applied, files=dict.fromkeys(paths, "x"), packages=dict.fromkeys(exporters.packages(host), "1")
        )


# -- where the values of slurmctld come from --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "private", "found", "source"),
    [
        ("22.05.8", False, "login", "program"),
        ("25.05.1", False, "login", "program"),
        ("25.11.2", False, "login", "pages"),
        ("25.11.2", True, "login", "program"),
        ("25.11.2", False, {"targets_only": True}, "pages"),
        ("26.05.3", False, "login", "pages"),
        ("26.05.3", True, "login", "pages with tokens"),
        ("26.05.3", True, {"targets_only": True}, "program"),
        ("26.05.3", False, None, "program"),
    ],
)
def test_the_source_follows_from_release_and_private_data(version: str, private: bool, found: Any, source: str) -> None:
    profile = "strict" if private else "standard"
    host = hosts(found, version, slurm_profile=profile)["n1"]
    assert slurmctld_metrics.cluster_source(host) == source
    by_site: dict[str, Any] = {"slurm_conf": {"privatedata": "jobs" if private else None}, "slurm_profile": "strict"}
    assert slurmctld_metrics.cluster_source(hosts(found, version, **by_site)["n1"]) == source


def test_an_upgrade_starts_slurmctld_without_pages() -> None:
    assert slurmctld_metrics.cluster_source(hosts(version="26.05.3", __slurm_upgrades=True)["head"]) == "program"


def test_releases_have_pages_from_25_11_on() -> None:
    assert {name for name, release in RELEASES.items() if release.metrics} == {"25.11", "26.05"}


def test_slurm_conf_has_the_parameters_of_the_source() -> None:
    def parameters(**given: Any) -> dict[str, Any]:
        host = hosts(**given)["head"]
        target = defaults.target(host, given["version"][:5])
        found = defaults.values(defaults.SLURM, target)
        return {key: value for key, value in found.items() if "etrics" in key or "Http" in key or "AuthAlt" in key}

    assert parameters(version="24.11.5") == {}
    assert parameters(version="26.05.3", found=None) == {}
    assert parameters(version="25.11.2") == {"MetricsType": "metrics/openmetrics"}
    assert parameters(version="26.05.3", slurm_profile="strict") == {
        "MetricsType": "metrics/openmetrics",
        "MetricsAuthUsers": "prometheus",
        "SlurmctldHttpAuthParameters": "jwt_key=/etc/gpucluster-slurm/slurmctld_http.key",
        "AuthAltParameters": "jwt_key=/etc/gpucluster-slurm/slurmctld_http.key",
    }
    site = {"AuthAltTypes": ["auth/jwt"]}
    assert "AuthAltParameters" not in parameters(version="26.05.3", slurm_profile="strict", slurm_conf=site)
    assert default_values.METRICS.text != default_values.METRICS_TOKENS.text


def test_the_key_is_on_controllers_and_on_the_host_of_prometheus_alone() -> None:
    strict = hosts(version="26.05.3", slurm_profile="strict")
    assert [name for name, host in strict.items() if slurmctld_metrics.has_key(host)] == ["head", "login"]
    (file,) = slurmctld_metrics.key_files(strict["head"])
    assert file == {
        "path": "/etc/gpucluster-slurm/slurmctld_http.key",
        "secret": base64.b64encode(FILES[KEY]).decode(),
        "owner": "slurm",
        "mode": "0400",
    }
    assert file in slurmctld.service_files(strict["head"])
    assert file["path"] not in slurmctld.absent_files(strict["head"])
    plain = hosts(version="26.05.3")["head"]
    assert slurmctld_metrics.key_files(plain) == []
    assert file["path"] in slurmctld.absent_files(plain)


def test_the_key_is_made_after_it_is_known_which_hosts_have_work() -> None:
    """A cluster gets PrivateData, or the key `monitoring` with it."""
    found = hosts(version="26.05.3", slurm_profile="strict")
    for host in found.values():
        host.files = {MUNGE: b"m"}
    assert "login" in work(found)
    assert slurmctld.service_digest(found["head"])
    with pytest.raises(ValueError, match=f"{KEY} is missing; run site.yml without --limit"):
        prometheus.services(found["login"])[prometheus.TOKEN_TIMER]()
    assert prometheus.services(found["login"].set(ansible_check_mode=True))[prometheus.TOKEN_TIMER]()


def test_a_control_host_without_the_key_gets_that_of_a_controller() -> None:
    found = hosts()
    assert jwt_keys.known(found["head"]) == ""
    found["login"].set(__slurm_token_key_present={"content": "a2V5"})
    found["head"].set(__slurm_token_key_present={"failed": True})
    assert jwt_keys.known(found["head"]) == "a2V5"


# -- what each host has -----------------------------------------------------------------------------------------------


def test_services_by_host() -> None:
    services = {name: [*prometheus.services(host)] for name, host in hosts().items()}
    host_services = ["prometheus-node-exporter", "slurm-metrics-host.timer"]
    assert services == {
        "head": [*host_services, "slurm-metrics-cluster.timer"],
        "login": ["prometheus-node-exporter", "prometheus-alertmanager", "prometheus", "slurm-metrics-host.timer"],
        "n1": host_services,
        "n2": host_services,
    }
    strict = hosts(version="26.05.3", slurm_profile="strict")["login"]
    assert [*prometheus.services(strict)][1:4] == [
        "prometheus-alertmanager",
        "slurm-metrics-token.timer",
        "prometheus",
    ]
    assert [*prometheus.services(hosts({"targets_only": True})["login"])] == host_services
    assert [*prometheus.services(hosts(None)["head"])] == []


def test_packages_by_host() -> None:
    packages = {name: exporters.packages(host) for name, host in hosts().items()}
    assert packages == {
        "head": ["prometheus-node-exporter"],
        "login": ["prometheus-node-exporter", "prometheus", "prometheus-alertmanager"],
        "n1": ["prometheus-node-exporter"],
        "n2": ["prometheus-node-exporter"],
    }
    strict = hosts(version="26.05.3", slurm_profile="strict")
    assert exporters.packages(strict["head"]) == ["prometheus-node-exporter", "slurm-wlm-jwt-plugin"]
    assert exporters.packages(strict["login"])[-1] == "python3-jwt"
    schedmd = hosts(version="26.05.3", slurm_profile="strict", slurm_packages="schedmd")
    assert exporters.packages(schedmd["head"]) == ["prometheus-node-exporter", "slurm-smd"]
    assert exporters.packages(hosts(None)["head"]) == []
    assert {*exporters.packages(strict["head"]), *exporters.packages(strict["login"])} == {*exporters.all_packages()}


def test_only_packages_that_the_run_installs_are_recorded() -> None:
    host = hosts()["login"].say(packages={"prometheus": "2.42"})
    records = [file["path"] for file in all_servers.package_records(host)]
    assert records == [
        "/var/lib/gpucluster-slurm/installed/prometheus-node-exporter",
        "/var/lib/gpucluster-slurm/installed/prometheus-alertmanager",
    ]
    schedmd = hosts(version="26.05.3", slurm_profile="strict", slurm_packages="schedmd")["head"]
    assert "slurm-smd" not in str(all_servers.package_records(schedmd))


def test_the_packages_are_installed_with_all_others() -> None:
    assert "prometheus-node-exporter" in host_packages.wanted_packages(
        hosts()["n1"].set(base_packages=[]).set(base_extra_packages=[], base_time_service="")
    )


STORAGE, PASSWORD = "/etc/slurm/slurmdbd_storage.conf", "/etc/gpucluster-slurm/backup/password"


def settings(host: PlainHost) -> dict[str, Any]:
    """What slurm-metrics knows of a host."""
    found = prometheus.services(host)["slurm-metrics-host.timer"]().files
    return dict(json.loads(next(file["content"] for file in found if file["path"] == exporters.SETTINGS)))


def test_settings_of_the_program() -> None:
    given: dict[str, Any] = {
        "slurm_backup": {"target": "/b", "max_age": 30},
        "slurm_conf": {"StateSaveLocation": "/home/s"},
    }
    found = hosts(slurm_controllers=["head.site.org"], **given, groups={**GROUPS, "slurm_controller": ["head"]})
    assert settings(found["head"]) == {
        "controllers": ["head"],
        "state_directory": "",
        "all": False,
        "repair": False,
        "users_and_accounts": False,
        "daemons": ["munge", "mariadb", "slurmdbd"],
        "keys": {"munge": "/etc/munge/munge.key", "database": STORAGE, "backup": PASSWORD},
        "key_max_age_days": 365,
        "backup": {"max_age_hours": 30},
        "prometheus": "",
    }
    others = hosts(**given, slurm_database_server=DATABASE_SERVER)["head"]
    assert "mariadb" not in settings(others)["daemons"]
    given["slurm_repair"] = "observe"
    found = hosts({"host": "login", "users_and_accounts": True}, **given, slurm_registry="n1")
    assert settings(found["head"]) | {"daemons": []} == {
        "controllers": ["head"],
        "state_directory": "/home/s",
        "all": True,
        "repair": True,
        "users_and_accounts": True,
        "daemons": [],
        "keys": {"munge": "/etc/munge/munge.key", "database": STORAGE, "backup": PASSWORD},
        "key_max_age_days": 365,
        "backup": {"max_age_hours": 30},
        "prometheus": "http://10.0.0.2:9090",
    }
    assert settings(found["n1"])["daemons"] == ["munge", "slurmd", "docker-registry", "slurm-registry-auth", "nginx"]
    assert settings(found["login"])["daemons"] == ["munge", "sackd", "prometheus", "prometheus-alertmanager"]
    assert settings(found["login"])["backup"] is None
    assert settings(hosts(version="22.05.8")["login"])["daemons"][1] == "prometheus"
    assert settings(hosts(version="26.05.3")["head"])["all"] is False
    strict = hosts(version="26.05.3", slurm_profile="strict")
    assert settings(strict["login"])["keys"]["slurmctld_http"] == slurmctld_metrics.HTTP_KEY
    assert settings(strict["n1"])["keys"] == {"munge": "/etc/munge/munge.key"}


def test_programs_listen_at_the_address_of_the_cluster() -> None:
    def exporter(**given: Any) -> str:
        (file,) = prometheus.services(hosts(**given)["n1"])["prometheus-node-exporter"]().files
        return str(file["content"])

    assert "('listen', '10.0.0.3:9100')" in exporter()
    assert "('listen', '[fd00::3]:9100')" in exporter(slurm_addresses=[{"hosts": "n1", "address": "fd00::3"}])
    assert "('listen', ':9100')" in exporter(slurm_addresses=[])


def test_a_program_is_known_by_its_mark() -> None:
    for name in ("slurm-metrics", "slurm-metrics-token"):
        *modules, program = exporters.program_files(name)
        assert program["path"] == f"/usr/local/sbin/{name}"
        assert program["content"].startswith("#!/usr/bin/python3 -IB\n# Managed by gpucluster.slurm")
        assert {file["path"].split("/")[6] for file in modules} == {name}
        assert {file["loaded"] for file in (*modules, program)} == {False}


# -- Prometheus -------------------------------------------------------------------------------------------------------


def files_of(host: PlainHost) -> dict[str, HostFile]:
    """All files of a host, by path."""
    return {file["path"]: file for service in prometheus.services(host).values() for file in service().files}


def test_targets_are_all_hosts_by_name() -> None:
    found = files_of(hosts()["login"])
    lines = found["/etc/gpucluster-slurm/prometheus/targets/nodes.yml"]["content"].split("\n")
    assert [json.loads(line.removeprefix("- ")) for line in lines[1:-1]] == [
        {"targets": [f"10.0.0.{number}:9100"], "labels": {"instance": name}}
        for number, name in enumerate(["head", "login", "n1", "n2"], 1)
    ]
    slurmctld_targets = found["/etc/gpucluster-slurm/prometheus/targets/slurmctld.yml"]["content"]
    assert json.loads(slurmctld_targets.split("\n")[1].removeprefix("- ")) == {
        "targets": ["10.0.0.1:6817"],
        "labels": {"instance": "head"},
    }
    assert "head:6900" in str(files_of(hosts(slurm_addresses=[], slurm_conf={"SlurmctldPort": "6900-6903"})["login"]))


def test_files_are_checked_by_their_programs() -> None:
    found = files_of(hosts()["login"])
    checked = {path.rpartition("/")[2]: file["validate"][:2] for path, file in found.items() if "validate" in file}
    assert checked == {
        "prometheus.yml": ["promtool", "check"],
        "names.yml": ["promtool", "check"],
        "gpus.yml": ["promtool", "check"],
        "alerts.yml": ["promtool", "check"],
        "alertmanager.yml": ["amtool", "check-config"],
    }


def test_settings_of_units_need_a_restart_and_other_files_a_reload() -> None:
    host = hosts()["login"]
    service = prometheus.services(host)["prometheus"]()
    assert [file["path"] for file in service.files if file.get("restart")] == [prometheus.DROP_INS["prometheus"]]
    assert service.reload == ["systemctl", "reload", "prometheus"]


def test_only_the_host_of_prometheus_is_asked_whether_it_works() -> None:
    found = hosts()
    urls = ["http://10.0.0.2:9090/-/ready", "http://10.0.0.2:9093/-/ready"]
    assert prometheus.ready_urls(found["login"]) == urls
    assert prometheus.ready_urls(found["n1"]) == prometheus.ready_urls(hosts(None)["login"]) == []


def test_receivers_are_a_secret() -> None:
    host = hosts({"host": "login", "receivers": "receivers.yml"})["login"]
    file = files_of(host)[prometheus.RECEIVERS]
    assert (file["mode"], file["owner"]) == ("0400", "prometheus")
    assert "content" not in file
    assert "password" not in str(file)
    assert b"x/password" in base64.b64decode(file["secret"])
    host.files = {MUNGE: b"m"}
    with pytest.raises(ValueError, match=r"slurm_monitoring\.receivers: receivers\.yml is missing in /cluster"):
        files_of(host)


@pytest.mark.parametrize(
    ("found", "version", "profile", "pages", "token"),
    [
        ("login", "24.11.5", "standard", [], False),
        ("login", "26.05.3", "standard", ["jobs", "nodes", "partitions", "scheduler"], False),
        ("login", "26.05.3", "strict", ["jobs", "nodes", "partitions", "scheduler"], True),
        (
            {"host": "login", "users_and_accounts": True},
            "25.11.2",
            "standard",
            ["jobs", "nodes", "partitions", "scheduler"],
            False,
        ),
    ],
)
def test_pages_that_prometheus_reads(found: Any, version: str, profile: str, pages: list[str], token: bool) -> None:
    host = hosts(found, version, slurm_profile=profile)["login"]
    text = prometheus.configuration(host, exporters.measured_cluster(host))
    assert [page for page in (*prometheus.PAGES.values(), "jobs-users-accts") if f": '{page}'" in text] == pages
    assert ("slurmctld.token" in text) is token


class RenderedHost:
    """A host whose templates are rendered, without the variables of Ansible."""

    def __init__(self, host: PlainHost) -> None:
        self.host = host

    def __getitem__(self, name: str) -> Any:
        return self.host[name]

    def text(self, role: str, template: str, **variables: Any) -> str:
        """The text of a template of a role."""
        environment = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
        environment.filters["to_json"] = json.dumps
        found = environment.from_string((ROOT / "roles" / role / "templates" / template).read_text())
        return found.render(**variables)


@pytest.mark.parametrize("found", ["login", {"host": "login", "users_and_accounts": True}, {"targets_only": True}])
@pytest.mark.parametrize(
    ("version", "profile"), [("24.11.5", "standard"), ("26.05.3", "standard"), ("26.05.3", "strict")]
)
def test_prometheus_takes_the_configuration(tmp_path: Path, found: Any, version: str, profile: str) -> None:
    host = hosts(found, version, slurm_profile=profile)["login"]
    cluster_of_host = exporters.measured_cluster(host)
    text = prometheus.configuration(RenderedHost(host), cluster_of_host)  # type: ignore[arg-type]
    token = tmp_path / "token"
    token.touch()
    (tmp_path / "targets").mkdir()
    for file in prometheus.target_files(host, cluster_of_host):
        (tmp_path / "targets" / file["path"].rpartition("/")[2]).write_text(file["content"])
    (tmp_path / "prometheus.yml").write_text(text.replace(prometheus.TOKEN, str(token)))
    command = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "WARNING" in done.stdout) == (0, False), done.stderr
    jobs = {entry["job_name"]: entry for entry in yaml.safe_load(text)["scrape_configs"]}
    assert "node" in jobs
    # A node that is drained is idle in these series of slurmctld.
    dropping = [name for name, job in jobs.items() if "metric_relabel_configs" in job]
    assert dropping == [name for name in jobs if name == "slurm_nodes"]
    assert ("prometheus" in jobs) is bool(cluster_of_host.server)


# -- which hosts have work --------------------------------------------------------------------------------------------


def test_a_site_without_the_key_asks_for_nothing_and_has_no_work() -> None:
    found = hosts(None)
    assert work(found) == []
    assert prometheus.asked_records(found["head"]) == []
    assert prometheus.needs_control_files(found["head"]) is False


def test_a_converged_cluster_has_no_work() -> None:
    for version, profile in (("24.11.5", "standard"), ("26.05.3", "strict")):
        found = hosts(version=version, slurm_profile=profile)
        assert work(found) == ["head", "login", "n1", "n2"]
        converge(found)
        assert work(found) == []


def test_a_change_of_one_host_is_work_for_it() -> None:
    found = hosts()
    converge(found)
    found["n1"].facts["applied"].pop("slurm-metrics-host.timer")
    assert work(found) == ["n1"]
    converge(found)
    applied = {name: dict(host.facts["applied"]) for name, host in found.items()}
    fewer = hosts(groups={**GROUPS, "slurm_cluster": ["head", "login", "n1"]})
    for name, host in fewer.items():
        host.say(applied=applied[name], files=found[name].facts["files"])
    assert work({name: fewer[name] for name in ("head", "login", "n1")}) == ["login"]  # its targets


def test_a_prepared_host_is_compared() -> None:
    found = hosts(groups={**GROUPS, "slurm_needs_preparation": ["n2"]})
    converge(found)
    assert work(found) == ["n2"]


def test_without_a_controller_prometheus_stays_as_it_is() -> None:
    found = hosts()
    converge(found)
    found["login"].facts["applied"].pop("prometheus")
    assert work(found) == ["login"]
    found["head"].set(__slurm_facts={})
    facts = {name: found[name].facts for name in ("login", "n1")}
    assert "n1" not in prometheus.hosts_with_work(found["n1"], facts)


def test_other_options_are_told_from_ended_records() -> None:
    """A removal of nodes may repeat what the last run has made, and change nothing else."""
    found = hosts()
    converge(found)
    assert not any(prometheus.has_other_options(host) for host in found.values())
    found["n1"].say(applied={})
    assert not prometheus.has_other_options(found["n1"])
    found["n1"].say(applied=dict.fromkeys(prometheus.services(found["n1"]), "others"))
    assert prometheus.has_other_options(found["n1"])
    assert prometheus.has_other_options(without(found, None)["head"])


def test_the_comparison_has_the_stage() -> None:
    found = hosts(base_packages=[])
    answers = comparison.all_answers(found["head"])
    stages = [stage for _name, stage in comparison._find_work(found["head"], answers, {})]
    assert "metrics" in stages


def test_the_questions_have_the_records_and_files() -> None:
    host = hosts(base_packages=[], base_extra_packages=[])["head"]
    asked = questions.role_questions(host)["files"]
    assert {*prometheus.ASKED_FILES} <= {*asked}
    assert prometheus.asked_records(host) == [*prometheus.RECORDS]


# -- removal ----------------------------------------------------------------------------------------------------------


def without(found: dict[str, PlainHost], key: Any) -> dict[str, PlainHost]:
    """The same hosts with another value of the key."""
    value = monitoring(key)
    for host in found.values():
        host.set(slurm_monitoring=value)
    return found


def test_without_the_key_everything_is_removed() -> None:
    found = hosts(version="26.05.3", slurm_profile="strict")
    converge(found)
    without(found, None)
    assert work(found) == ["head", "login", "n1", "n2"]
    for name, services, packages in (
        ("n1", ["slurm-metrics-host.timer"], ["prometheus-node-exporter"]),
        ("head", ["slurm-metrics-cluster.timer"], ["prometheus-node-exporter", "slurm-wlm-jwt-plugin"]),
        (
            "login",
            ["slurm-metrics-token.timer"],
            ["prometheus-node-exporter", "prometheus", "prometheus-alertmanager", "python3-jwt"],
        ),
    ):
        removal = prometheus.removal(found[name])
        assert {*services} <= {*removal.services}
        assert removal.packages == packages
        assert removal.kept == {}
        left = {
            path
            for path in files_of_before(name)
            if path not in (*removal.secrets, *removal.files) and not path.startswith((*removal.directories,))
        }
        assert left == set()
    found["n1"].say(files={})
    assert "n1" not in work(found)


def files_of_before(name: str) -> list[str]:
    """The files of a host with the key, on a strict cluster with tokens."""
    return [*files_of(hosts(version="26.05.3", slurm_profile="strict")[name])]


def test_packages_of_the_site_stay_with_their_own_settings() -> None:
    found = hosts()
    converge(found)
    host = without(found, None)["login"]
    others = ("installed/prometheus-node-exporter", "installed/prometheus-alertmanager")
    host.say(files={path: "x" for path in host.facts["files"] if not path.endswith(others)})
    removal = prometheus.removal(host)
    assert removal.packages == ["prometheus"]
    assert removal.kept == {
        name: prometheus.DROP_INS[name] for name in ("prometheus-node-exporter", "prometheus-alertmanager")
    }


def test_another_host_of_prometheus() -> None:
    found = hosts()
    converge(found)
    moved = without(found, "n2")
    removal = prometheus.removal(moved["login"])
    assert prometheus.DIRECTORY in removal.directories
    assert "/usr/local/sbin/slurm-metrics" not in removal.files
    assert exporters.SETTINGS not in removal.secrets
    assert "slurm-metrics-host.timer" not in removal.services
    assert prometheus.SERVER_ROLE.lost(moved["login"])
    assert not prometheus.SERVER_ROLE.lost(moved["n1"])


def test_a_host_that_is_no_controller_any_more() -> None:
    found = hosts()
    converge(found)
    for host in found.values():
        host.set(slurm_controllers=["n1"])
    assert prometheus.SERVER_ROLE.lost(found["head"])
    assert "slurm-metrics-cluster.timer" in prometheus.removal(found["head"]).services
    assert "slurm-metrics-cluster.timer" not in prometheus.removal(found["n1"]).services


# -- GPUs -------------------------------------------------------------------------------------------------------------

MACHINES: dict[str, Any] = {
    "slurm_hardware_types": {
        "m": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000},
        "g": {
            "sockets": 1,
            "cores_per_socket": 2,
            "threads_per_core": 1,
            "real_memory": 2000,
            "gres": [{"name": "gpu", "type": "h100", "file": "/dev/nvidia[0-1]"}],
        },
    },
    "slurm_nodes": [{"hosts": "n1", "hardware": "g"}, {"hosts": "n2", "hardware": "m"}],
}
GPU_TIMER, LINES_TIMER = "slurm-gpu-metrics.timer", "slurm-gpu-hours.timer"


def gpu_timers(**given: Any) -> dict[str, list[str]]:
    """The timers about GPUs of each host that has one."""
    found = {name: [*prometheus.services(host)] for name, host in hosts(**{**MACHINES, **given}).items()}
    chosen = {name: [timer for timer in names if timer in (GPU_TIMER, LINES_TIMER)] for name, names in found.items()}
    return {name: names for name, names in chosen.items() if names}


def test_nodes_with_gpus_say_who_uses_them_and_controllers_write_lines() -> None:
    assert gpu_timers() == {"head": [LINES_TIMER], "n1": [GPU_TIMER]}
    assert gpu_timers(version="23.02.7") == {}  # no map
    assert gpu_timers(found=None) == {}
    assert gpu_timers(slurm_nodes=[{"hosts": "n[1-2]", "hardware": "m"}]) == {}
    # No slurmdbd keeps a line, and the Prometheus of a site is not known.
    assert gpu_timers(slurm_database="") == {"n1": [GPU_TIMER]}
    assert gpu_timers(found={"targets_only": True}) == {"n1": [GPU_TIMER]}


def test_the_timers_about_gpus() -> None:
    found = hosts(**MACHINES)
    of_node = prometheus.services(found["n1"])[GPU_TIMER]()
    texts = {file["path"]: file["content"] for file in of_node.files}
    assert "('calendar', '*:*:0/30')" in texts[f"/etc/systemd/system/{GPU_TIMER}"]
    service = texts["/etc/systemd/system/slurm-gpu-metrics.service"]
    assert "('command', '/usr/local/sbin/slurm-gpu-metrics')" in service
    assert "('leaves', True)" in service
    assert "('sampler', 'slurm-gpu-use.service')" in service
    sampler = texts["/etc/systemd/system/slurm-gpu-use.service"]
    assert f"('timer', '{GPU_TIMER}')" in sampler
    assert texts["/usr/local/sbin/slurm-gpu-metrics"].startswith("#!/usr/bin/python3 -IB\n# Managed by gpucluster")
    assert of_node.proof == {"command": ["systemctl", "start", "slurm-gpu-metrics.service"]}
    of_controller = prometheus.services(found["head"])[LINES_TIMER]()
    assert "('command', '/usr/local/sbin/slurm-gpu-hours lines')" in str(of_controller.files)
    assert of_controller.proof is None  # Prometheus may start later


def test_a_node_whose_gpus_are_gone_loses_what_measures_them() -> None:
    found = hosts(**MACHINES)
    converge(found)
    assert work(found) == []
    for host in found.values():
        host.set(slurm_nodes=[{"hosts": "n[1-2]", "hardware": "m"}])
    assert {"head", "n1"} <= {*work(found)}
    removal = prometheus.removal(found["n1"])
    assert removal.services[:2] == ["slurm-metrics-cluster.timer", GPU_TIMER]
    assert "/var/lib/prometheus/node-exporter/gpu.prom" in removal.secrets
    assert "/usr/local/sbin/slurm-gpu-metrics" in removal.files
    assert "/etc/systemd/system/slurm-gpu-use.service" in removal.files
    assert "/usr/local/sbin/slurm-metrics" not in removal.files
    assert "/var/lib/prometheus/node-exporter/gpucluster.prom" not in removal.secrets


@pytest.mark.parametrize("leaves", [False, True])
def test_a_service_leaves_a_process_that_does_not_end(leaves: bool) -> None:
    template = Environment(undefined=StrictUndefined, trim_blocks=True).from_string(
        (ROOT / "roles/slurm_metrics/templates/service.j2").read_text()
    )
    text = template.render(description="x", command="/bin/true", limit=60, leaves=leaves, sampler="")
    assert ("KillMode=process" in text) == leaves


def test_a_node_that_leaves_loses_its_exporter() -> None:
    cleanup = remove_nodes.cleanup(hosts()["n1"])
    assert cleanup.packages == exporters.all_packages()
    assert "slurm-metrics-host.timer" in cleanup.services
    assert "slurm-gpu-metrics.timer" in cleanup.services
    assert {path for paths in exporters.WRITTEN.values() for path in paths} <= {*cleanup.secrets}


# -- a site with its own Prometheus -----------------------------------------------------------------------------------


def test_files_for_the_prometheus_of_the_site() -> None:
    host = hosts({"targets_only": True}, "26.05.3")["head"]
    files = prometheus.control_files(host)
    names = [file["path"] for file in files]
    assert {name.partition("/my.monitoring/")[2] for name in names if "dashboards" not in name} == {
        "prometheus.yml",
        "targets/nodes.yml",
        "targets/slurmctld.yml",
        "rules/names.yml",
        "rules/gpus.yml",
        "rules/alerts.yml",
    }
    assert "/cluster/my.monitoring/targets" in prometheus.control_folders(host)
    assert prometheus.needs_control_files(host)
    host.files = {file["path"]: file["content"].encode() for file in files}
    assert not prometheus.needs_control_files(host)
    assert prometheus.control_files(hosts()["head"]) == []


# -- the firewall -----------------------------------------------------------------------------------------------------


def rules(found: Any, host: str) -> dict[str, tuple[list[str], str]]:
    """The rules of a host that the key adds: sources and ports, by name."""
    variables = {
        "slurm_controllers": ["head"],
        "slurm_database": "",
        "slurm_nodes": [{"hosts": "n[1-2]", "hardware": "m"}],
        "slurm_conf": {},
        "slurm_addresses": ADDRESSES,
        "slurm_monitoring": monitoring(found),
    }
    members = {"all": GROUPS["all"], "login": [], "compute": ["n1", "n2"], "controllers": ["head"]}
    plans = firewall_plans({"ssh": ["any"]}, members, variables)
    plan = plans["plans"][plans["hosts"][host]]
    own = ("node-exporter", "metrics of slurmctld", "Prometheus", "alertmanager")
    sets = plan["sets"]
    return {
        rule["what"]: ([place for name in rule["sources"] for place in sets[name]["ip"]], rule["ports"])
        for rule in plan["rules"]
        if rule["what"] in own
    }


def test_the_firewall_opens_what_prometheus_asks_and_what_readers_may_open() -> None:
    found = {"host": "login", "readers": ["10.9.0.0/16"]}
    exporter = {"node-exporter": (["10.0.0.2", "10.9.0.0/16"], "9100")}
    assert rules(found, "n1") == exporter
    assert rules(found, "head") == exporter | {"metrics of slurmctld": (["10.0.0.2"], "6817")}
    # The controllers ask it for the lines of jobs.
    assert rules(found, "login") == exporter | {
        "Prometheus": (["10.0.0.1", "10.9.0.0/16"], "9090"),
        "alertmanager": (["10.9.0.0/16"], "9093"),
    }
    assert rules("login", "login") == {
        "node-exporter": (["10.0.0.2"], "9100"),
        "Prometheus": (["10.0.0.1"], "9090"),
        "alertmanager": ([], "9093"),
    }
    assert rules({"targets_only": True}, "n1") == {"node-exporter": ([], "9100")}
    assert rules(None, "n1") == {}
