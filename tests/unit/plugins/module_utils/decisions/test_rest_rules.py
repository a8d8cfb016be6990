# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurmrestd."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import slurm_conf
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import (
    host_packages,
    slurmctld,
    slurmdbd,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preflight, preparation, questions
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run.stages import STAGES
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import (
    all_servers,
    exporters,
    nginx,
    prometheus,
    report_server,
    rest,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import slurm_conf_values
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.package_names import INSTALLED
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import program_library
from certificates import pair, write_pair
from plain_host import GROUPS, ROLES, PlainHost, cluster

REST: dict[str, Any] = {"host": "login", "clients": [], "max_token_lifespan": 3600}
KEY = "/cluster/secrets/x/jwt_hs256.key"
FILES = {"/tls.crt": pair()[0], "/tls.key": pair()[1], KEY: b"\xff" * 64}
ON_HOST = "/etc/gpucluster-slurm/jwt_hs256.key"
PLUGIN = "slurm-wlm-jwt-plugin"
JWT = "python3-jwt"
MONITORING: dict[str, Any] = {
    "host": "login",
    "retention": "30d",
    "readers": [],
    "receivers": "",
    "users_and_accounts": False,
    "targets_only": False,
}


def hosts(key: dict[str, Any] | None, files: dict[str, bytes] | None = None, **variables: Any) -> dict[str, PlainHost]:
    """The hosts of a cluster whose login host has the key."""
    groups = {**GROUPS, "slurm_rest": [key["host"]] if key else []}
    given = {"slurmrestd_certificate": "/tls.crt", "slurmrestd_key": "/tls.key", **variables}
    found: dict[str, PlainHost] = cluster(
        FILES if files is None else files, groups=groups, slurm_rest=key or {}, **given
    )
    return found


def with_base(host: PlainHost) -> PlainHost:
    """The host with the variables of role base."""
    return host.set(base_packages=[], base_extra_packages=[], base_time_service="")


def with_group(host: PlainHost) -> PlainHost:
    """The host with the group of the key, as the inventory gives it."""
    return host.set(group_names=[*host["group_names"], "slurm_rest"])


# -- preflight ---------------------------------------------------------------------------------------------------------


def test_the_variables_of_the_role_are_checked() -> None:
    found = hosts(REST)
    found["login"].set(slurmrestd_port="many", slurmrestd_tls="perhaps")
    errors = "\n".join(preflight.variable_errors(found["head"]))
    assert "slurmrestd_port" in errors
    assert "slurmrestd_tls" in errors


def test_slurmrestd_runs_where_slurm_conf_is() -> None:
    found = hosts({**REST, "host": "n1"}, slurmrestd_tls=False)["n1"]
    (objection,) = rest.SERVER_ROLE.objections(found)
    assert objection.startswith("slurm_rest.host: found n1, allowed: a controller or a login host")
    assert rest.SERVER_ROLE.objections(hosts({**REST, "host": "head"}, slurmrestd_tls=False)["head"]) == []


def test_the_certificate_is_there_unless_tls_is_off(tmp_path: Path) -> None:
    assert [text.partition(",")[0] for text in rest.SERVER_ROLE.objections(hosts(REST)["login"])] == [
        "slurmrestd_certificate: found /tls.crt",
        "slurmrestd_key: found /tls.key",
    ]
    for off in (False, "false", "no"):
        assert rest.SERVER_ROLE.objections(hosts(REST, slurmrestd_tls=off)["login"]) == []
    write_pair(tmp_path)
    (tmp_path / "tls.key").chmod(0o640)
    paths: dict[str, Any] = {"slurmrestd_certificate": f"{tmp_path}/tls.crt", "slurmrestd_key": f"{tmp_path}/tls.key"}
    (objection,) = rest.SERVER_ROLE.objections(hosts(REST, **paths)["login"])
    assert objection == f"slurmrestd_key: found {tmp_path}/tls.key with mode 640, allowed: 600 or 400"


def test_suspended_users_are_named() -> None:
    people = {"source": "list", "users": [{"name": "carol", "state": "suspended"}], "groups": []}
    found = hosts(REST, slurm_people=people, slurm_accounting_qos=[{"name": "high"}])["head"]
    (warning,) = preflight.suspended_warnings(found)
    assert warning.startswith("rest: slurmrestd refuses suspended users")
    assert warning.endswith(": carol")


# -- the key and slurm.conf --------------------------------------------------------------------------------------------


def parameters(host: PlainHost) -> dict[str, str]:
    """The parameters of slurm.conf about tokens."""
    lines = slurm_conf(*slurm_conf_values.layers(host, "24.11")).split("\n")
    return {key: value for key, _equals, value in (line.partition("=") for line in lines) if key.startswith("AuthAlt")}


def test_slurmctld_and_slurmdbd_take_tokens() -> None:
    found = hosts(REST, slurm_database="head")["head"]
    assert parameters(found) == {
        "AuthAltTypes": "auth/jwt",
        "AuthAltParameters": f"jwt_key={ON_HOST},max_token_lifespan=3600",
    }
    values = slurmdbd.default_values(found, "24.11")
    assert (values["AuthAltTypes"], values["AuthAltParameters"]) == ("auth/jwt", f"jwt_key={ON_HOST}")
    assert parameters(hosts(None)["head"]) == {}
    assert "AuthAltTypes" not in slurmdbd.default_values(hosts(None, slurm_database="head")["head"], "24.11")


def test_the_key_of_the_pages_of_slurmctld_stays_another_one() -> None:
    found = hosts(REST, slurm_monitoring=MONITORING, slurm_profile="strict")["head"]
    lines = slurm_conf(*slurm_conf_values.layers(found, "26.05")).split("\n")
    assert "SlurmctldHttpAuthParameters=jwt_key=/etc/gpucluster-slurm/slurmctld_http.key" in lines
    assert f"AuthAltParameters=jwt_key={ON_HOST},max_token_lifespan=3600" in lines


def test_only_hosts_that_check_tokens_have_their_key() -> None:
    found = hosts(REST, slurm_database="n2")
    assert [name for name, host in found.items() if rest.has_key(host)] == ["head", "login", "n2"]
    assert not any(rest.has_key(host) for host in hosts(None).values())
    wanted = {"path": ON_HOST, "owner": "slurm", "mode": "0400", "restart": True}
    for files in (slurmctld.service_files(found["head"]), slurmdbd.unit_files(found["n2"])):
        (file,) = (file for file in files if file["path"] == ON_HOST)
        assert base64.b64decode(file["secret"]) == FILES[KEY]
        assert wanted.items() <= file.items()
    assert not any(file["path"] == ON_HOST for file in slurmctld.service_files(hosts(None)["head"]))


def test_a_host_that_has_the_key_needs_no_task_for_it() -> None:
    assert not rest.knows_key(hosts(REST)["head"])
    assert rest.knows_key(hosts(REST)["head"].say(files={ON_HOST: "0" * 64}))
    assert not rest.knows_key(hosts(REST, files={})["head"].say(files={ON_HOST: "0" * 64}))


def test_a_run_without_the_controllers_has_no_key() -> None:
    with pytest.raises(ValueError, match=r"slurm_rest: .*jwt_hs256\.key is missing; run site\.yml without --limit"):
        rest.check_files(hosts(REST, files={})["login"])
    rest.check_files(hosts(REST, files={}, ansible_check_mode=True)["login"])


# -- the host of the key -----------------------------------------------------------------------------------------------


def test_packages_of_each_host() -> None:
    found = hosts(REST)
    assert "slurmrestd" in preparation.role_packages(with_group(found["login"]))
    assert rest.packages(found["login"]) == [PLUGIN, "nginx", JWT]
    assert rest.packages(found["head"]) == [PLUGIN]
    assert rest.packages(found["n1"]) == []
    assert {*rest.packages(found["login"])} <= {*host_packages.wanted_packages(with_base(found["login"]))}
    schedmd = hosts(REST, slurm_packages={"repository": "x"})["login"]
    assert "slurm-smd-slurmrestd" in preparation.role_packages(with_group(schedmd))


def test_what_this_run_installs_is_noted() -> None:
    def noted(host: PlainHost) -> list[str]:
        return [file["path"].rpartition("/")[2] for file in all_servers.package_records(host)]

    assert noted(hosts(REST)["login"]) == ["slurmrestd", PLUGIN, JWT, "nginx"]
    assert noted(hosts(REST)["head"]) == [PLUGIN]
    assert noted(hosts(REST)["head"].say(packages={PLUGIN: "1"})) == []
    assert noted(hosts(None)["head"]) == []
    assert noted(hosts(REST, slurm_packages={"repository": "x"})["login"]) == [*("slurm-smd-slurmrestd", JWT, "nginx")]


def test_check_mode_has_nothing_to_compare_without_the_packages() -> None:
    assert host_packages.lacks_package(hosts(REST)["login"], "slurmrestd")
    there = dict.fromkeys(("slurmrestd", "nginx", PLUGIN, JWT), "1")
    assert not host_packages.lacks_package(hosts(REST)["login"].say(packages=there), "slurmrestd")


def test_the_unit_has_no_port_and_no_user_of_others() -> None:
    (file,) = rest.daemon_files(hosts(REST)["login"])
    assert file["path"] == "/etc/systemd/system/slurmrestd.service"
    unit = (ROLES / "slurmrestd/templates/slurmrestd.service.j2").read_text()
    assert "ExecStart=/usr/sbin/slurmrestd -a rest_auth/jwt unix:/run/slurmrestd/socket\n" in unit
    assert "DynamicUser=true\n" in unit
    assert "EnvironmentFile" not in unit
    assert "6820" not in unit


@pytest.mark.once
def test_the_program_on_the_host_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_library, "LIBRARY", f"{tmp_path}/library")
    monkeypatch.setattr(rest, "PROGRAM", f"{tmp_path}/program")
    program, *modules = (
        file for file in reversed(rest.check_files(hosts(REST)["login"])) if file["path"].startswith(str(tmp_path))
    )
    for file in (program, *modules):
        Path(file["path"]).parent.mkdir(parents=True, exist_ok=True)
        Path(file["path"]).write_text(file["content"])
    command = [sys.executable, "-I", program["path"], f"{tmp_path}/socket", "slurm"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "slurm-rest-auth: the key has 0 bytes, allowed: 32 or more\n")
    assert program["mode"] == "0755"


def test_tokens_go_over_the_network_with_tls_alone() -> None:
    def files(**variables: Any) -> list[str]:
        return [file["path"].rpartition("/")[2] for file in rest.front_files(hosts(REST, **variables)["login"])]

    assert files() == ["tls.crt", "tls.key", "gpucluster-rest.conf"]
    assert files(slurmrestd_tls=False) == ["gpucluster-rest.conf"]
    host = hosts(REST, slurmrestd_tls=False, slurmrestd_port=7000)["login"]
    assert rest.listening(host) == "127.0.0.1:7000"
    assert rest.listening(hosts(REST)["login"]) == "6820"


def rendered(tls: bool) -> str:
    """The configuration of nginx."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROLES / "slurmrestd/templates"),
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    return environment.get_template("front.conf.j2").render(
        server="    listen 6820 ssl;\n" if tls else "    listen 6820;\n"
    )


def test_slurmrestd_gets_the_checked_token_and_no_other() -> None:
    (place,) = rendered(True).partition("location / {")[2:]
    place = place.partition("\n    }\n")[0]
    assert "auth_request /check;" in place
    assert 'proxy_set_header Authorization "";' in place
    assert "proxy_set_header X-SLURM-USER-TOKEN $gpucluster_rest_token;" in place
    assert "proxy_set_header X-SLURM-USER-NAME $gpucluster_rest_name;" in place


@pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx")
def test_nginx_reads_it(tmp_path: Path) -> None:
    (tmp_path / "rest.conf").write_text(rendered(False))
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/rest.conf; }}")
    done = subprocess.run(["nginx", "-t", "-c", f"{tmp_path}/nginx.conf"], capture_output=True, text=True, check=False)
    assert "syntax is ok" in done.stderr


# -- removal -----------------------------------------------------------------------------------------------------------


def test_a_run_asks_for_what_a_host_may_have_of_the_key() -> None:
    assert {ON_HOST, rest.FRONT_CONF, nginx.RECORD} <= {*questions.files(hosts(None)["n1"])}


def test_hosts_with_work() -> None:
    assert {name for name, host in hosts(REST).items() if STAGES["rest"](host)} == {"login"}
    held = {ON_HOST: "0" * 64}
    found = hosts(REST)
    for name in ("head", "n1"):
        found[name].say(files=held)
    assert {name for name, host in found.items() if STAGES["rest"](host)} == {"login", "n1"}, "n1 had the key"
    left = hosts(None)
    left["head"].say(files=held)
    assert {name for name, host in left.items() if STAGES["rest"](host)} == {"head"}


def test_without_the_key_everything_goes() -> None:
    found = hosts(None)["login"].say(files={rest.FRONT_CONF: "0" * 64, nginx.RECORD: "0" * 64})
    removal = rest.removal(found)
    assert removal.services == ["slurmrestd", "slurm-rest-auth"]
    assert removal.packages == ["slurmrestd", PLUGIN, JWT, "nginx"]
    assert removal.secrets == [ON_HOST]
    assert rest.FRONT_CONF in removal.files


def test_a_controller_that_had_slurmrestd_keeps_key_and_plugin() -> None:
    found = hosts(REST)["head"].say(files={rest.FRONT_CONF: "0" * 64})
    removal = rest.removal(found)
    assert (removal.packages, removal.secrets) == (["slurmrestd", JWT], [])


def test_what_the_page_and_the_metrics_need_stays() -> None:
    page = {"host": "login", "readers": [], "password_file": "", "proxy": {}, "administrators": []}
    record = {rest.FRONT_CONF: "0" * 64, nginx.RECORD: "0" * 64}
    assert "nginx" not in rest.removal(hosts(None, slurm_report=page)["login"].say(files=record)).packages
    assert "nginx" not in report_server.removal(hosts(REST)["login"].say(files=record)).packages
    measured = hosts(None, slurm_monitoring=MONITORING, slurm_profile="strict")["head"]
    measured.say(slurm_version="26.05.3")
    assert PLUGIN in exporters.packages(measured)
    assert PLUGIN not in rest.removal(measured).packages
    noted = {f"{INSTALLED}/{name}": "0" * 64 for name in (PLUGIN, JWT)}
    assert not prometheus.SERVER_ROLE.lost(hosts(REST)["login"].say(files=noted))


def test_daemons_of_the_host_are_measured() -> None:
    found = exporters.measured_cluster(hosts(REST, slurm_monitoring=MONITORING)["head"])
    assert [*exporters.daemons(found, "login")][-5:-2] == ["nginx", "slurmrestd", "slurm-rest-auth"]
