# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_report."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import program_files
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.packages import MANAGED
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.shipped_files import HostFile
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preflight, preparation
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run.stages import STAGES
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import nginx, report_server
from certificates import pair, write_pair
from plain_host import GROUPS, ROLES, PlainHost, cluster

PLAIN: dict[str, Any] = {"host": "login", "readers": [], "password_file": "", "proxy": {}, "administrators": []}
USERS = {**PLAIN, "password_file": "report.users", "administrators": ["alice"]}
PROXY = {**PLAIN, "proxy": {"address": "10.0.0.5", "header": "X-Remote-User"}, "administrators": ["alice", "b.c@d"]}
HASHES = b"# our users\nalice:$apr1$salt$hash\n\nbob:$2y$05$hash\n"
FILES = {"/tls.crt": pair()[0], "/tls.key": pair()[1], "/cluster/report.users": HASHES}
TLS = {"slurm_report_certificate": "/tls.crt", "slurm_report_key": "/tls.key"}


def hosts(key: dict[str, Any] | None, files: dict[str, bytes] | None = None, **variables: Any) -> dict[str, PlainHost]:
    """The hosts of a cluster whose login host has the key."""
    groups = {**GROUPS, "slurm_report": [key["host"]] if key else []}
    found: dict[str, PlainHost] = cluster(
        FILES if files is None else files, groups=groups, slurm_report=key or {}, **{**TLS, **variables}
    )
    return found


def login(key: dict[str, Any] | None = None, **variables: Any) -> PlainHost:
    """The host of the page."""
    return hosts(key or PLAIN, **variables)["login"]


# -- preflight ---------------------------------------------------------------------------------------------------------


def test_the_variables_of_the_role_are_checked() -> None:
    found = hosts(PLAIN, ansible_version={"major": 2, "minor": 19, "full": "2.19.0"})
    found["login"].set(slurm_report_port="many", slurm_report_tls="perhaps")
    errors = "\n".join(preflight.variable_errors(found["head"]))
    assert "slurm_report_port" in errors
    assert "slurm_report_tls" in errors


def test_the_host_has_the_commands_of_slurm() -> None:
    key = {**PLAIN, "host": "n1"}
    (objection,) = report_server.SERVER_ROLE.objections(hosts(key, slurm_report_tls=False)["n1"])
    assert objection.startswith("slurm_report.host: found n1, allowed: a controller or a login host")
    assert report_server.SERVER_ROLE.objections(hosts({**PLAIN, "host": "head"}, slurm_report_tls=False)["head"]) == []


def test_a_run_ends_with_the_addresses_of_page_and_prometheus() -> None:
    host = login(slurm_monitoring={"host": "head"}, slurm_report_tls=False, slurm_report_port="8080")
    assert report_server.url_lines(host) == [
        "The page of the cluster: http://login:8080/",
        "Prometheus: http://head:9090",
    ]
    assert report_server.url_lines(login())[0] == "The page of the cluster: https://login/"
    assert report_server.url_lines(hosts(None)["login"]) == []


def test_without_files_the_host_makes_a_certificate(tmp_path: Path) -> None:
    """`report: login` is enough. The key is made where it stays, and nothing is made again."""
    host = login(slurm_report_certificate="", slurm_report_key="")
    assert report_server.SERVER_ROLE.objections(host) == []
    assert {file["path"] for file in report_server.front_files(host)} == {report_server.FRONT_CONF}
    *command, _directory, name, names = report_server.SERVER_ROLE.certificate(host)
    subprocess.run([*command, str(tmp_path), name, names], check=True, capture_output=True)
    shown = subprocess.run(
        ["openssl", "x509", "-in", tmp_path / "tls.crt", "-noout", "-ext", "subjectAltName", "-checkend", "300000000"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "DNS:login" in shown.stdout
    assert [oct((tmp_path / file).stat().st_mode)[-3:] for file in ("tls.crt", "tls.key")] == ["644", "600"]
    assert report_server.SERVER_ROLE.certificate(login()) == []
    assert report_server.SERVER_ROLE.certificate(login(slurm_report_tls="false")) == []
    (half,) = report_server.SERVER_ROLE.objections(
        login(slurm_report_key="", slurm_report_certificate=str(tmp_path / "tls.crt"))
    )
    assert half.startswith("slurm_report_key: found nothing")


def test_a_page_with_tls_needs_its_files(tmp_path: Path) -> None:
    assert [text.partition(", ")[0] for text in report_server.SERVER_ROLE.objections(login())] == [
        "slurm_report_certificate: found /tls.crt",
        "slurm_report_key: found /tls.key",
    ]
    for off in (False, "false", "no"):
        assert report_server.SERVER_ROLE.objections(login(slurm_report_tls=off)) == []
    write_pair(tmp_path, 0o640)
    own: dict[str, Any] = {
        "slurm_report_certificate": str(tmp_path / "tls.crt"),
        "slurm_report_key": str(tmp_path / "tls.key"),
    }
    assert report_server.SERVER_ROLE.objections(login(**own)) == [
        f"slurm_report_key: found {tmp_path}/tls.key with mode 640, allowed: 600 or 400"
    ]
    (tmp_path / "tls.key").chmod(0o600)
    assert report_server.SERVER_ROLE.objections(login(**own)) == []


def with_users(tmp_path: Path, text: str, mode: int = 0o600, key: dict[str, Any] = USERS) -> list[str]:
    """The objections to a password file, on a host with a certificate."""
    write_pair(tmp_path)
    (tmp_path / "report.users").touch()
    (tmp_path / "report.users").chmod(mode)
    found = hosts(
        key,
        {f"{tmp_path}/report.users": text.encode()},
        slurm_cluster_dir=str(tmp_path),
        slurm_report_certificate=str(tmp_path / "tls.crt"),
        slurm_report_key=str(tmp_path / "tls.key"),
    )
    return report_server.SERVER_ROLE.objections(found["login"])


@pytest.mark.parametrize("hashed", ["$apr1$s$h", "$2y$05$h", "$5$s$h", "$6$s$h", "$y$j9T$h", "{SHA}h=", "{SSHA}h="])
def test_hashes_that_nginx_knows(tmp_path: Path, hashed: str) -> None:
    assert with_users(tmp_path, f"alice:{hashed}\n") == []


@pytest.mark.parametrize("line", ["alice", "alice:", ":$apr1$s$h", "alice:secret", "alice:{PLAIN}secret", "a b:$6$s$h"])
def test_a_line_that_is_no_user_is_named_without_its_text(tmp_path: Path, line: str) -> None:
    found = with_users(tmp_path, f"# users\nalice:$apr1$s$h\n{line}\n")
    assert found == [
        f"slurm_report.password_file: line 3 of {tmp_path}/report.users is no user with the hash of a password, as "
        "htpasswd(1) writes it"
    ]


def test_the_password_file_is_for_its_owner(tmp_path: Path) -> None:
    (objection,) = with_users(tmp_path, "alice:$apr1$s$h\n", 0o644)
    assert objection == f"slurm_report.password_file: found {tmp_path}/report.users with mode 644, allowed: 600 or 400"


def test_administrators_are_users(tmp_path: Path) -> None:
    key = {**USERS, "administrators": ["alice", "carol", "dave"]}
    (objection,) = with_users(tmp_path, "alice:$apr1$s$h\n", key=key)
    assert objection == f"slurm_report.administrators: carol, dave is not in {tmp_path}/report.users"


def test_passwords_need_tls() -> None:
    (objection,) = report_server.SERVER_ROLE.objections(login(USERS, slurm_report_tls=False))
    assert objection.startswith("slurm_report.password_file: without slurm_report_tls everybody on the network")


# -- the program -------------------------------------------------------------------------------------------------------


def test_the_timer_has_the_program_and_the_words_of_doctor() -> None:
    found = {file["path"]: file for file in report_server.files(login())}
    assert {
        "/etc/systemd/system/slurm-report.timer",
        "/etc/systemd/system/slurm-report.service",
        "/usr/local/sbin/slurm-report",
        "/etc/gpucluster-slurm/report.json",
    } <= {*found}
    settings = json.loads(found["/etc/gpucluster-slurm/report.json"]["content"])
    assert (settings["host"], settings["interval"]) == ("login", 300)
    assert settings["causes"]["words"]["person"]["remedy"] == "Ask who has drained it."


@pytest.mark.parametrize(
    ("name", "key", "shown"),
    [("head", {"mode": "observe"}, True), ("login", {"mode": "observe"}, False), ("head", {}, False)],
)
def test_a_controller_with_the_key_repair_shows_its_cases(name: str, key: dict[str, str], shown: bool) -> None:
    """slurm-repair needs two capabilities to go on as their owner."""
    host = hosts({**PLAIN, "host": name}, slurm_repair=key)[name]
    found = {file["path"]: file for file in report_server.files(host)}
    assert json.loads(found["/etc/gpucluster-slurm/report.json"]["content"])["cases"] == shown
    template = (ROLES / "slurm_report/templates/service.j2").read_text()
    values = {"cases": shown, "program": "p", "group": "g", "state": "s", "pages": "d"}
    unit = jinja2.Template(template, trim_blocks=True, undefined=jinja2.StrictUndefined).render(values)
    (line,) = (line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    assert line == f"CapabilityBoundingSet={'CAP_SETUID CAP_SETGID' if shown else ''}"


@pytest.mark.once
def test_the_program_runs(tmp_path: Path) -> None:
    """With the files that the timer has, its templates as well."""
    files = program_files.library(report_server.LIBRARY, {report_server.PROGRAM: "programs.slurm_report"})
    for file in files:
        path = Path(f"{tmp_path}{file['path']}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"].replace('path.insert(0, "', f'path.insert(0, "{tmp_path}'))
    kinds = {Path(file["path"]).suffix for file in files if "/report_pages/" in file["path"]}
    assert kinds == {".py", ".j2", ".js", ".css"}
    (tmp_path / "data").write_text('{"version": 1, "made": "2026-11-27T10:00:00+01:00"}')
    command = [sys.executable, "-I", f"{tmp_path}{report_server.PROGRAM}", "pages", "--output", str(tmp_path), "--data"]
    subprocess.run([*command, str(tmp_path / "data")], check=True)
    assert "<html" in (tmp_path / "index.html").read_text()
    done = subprocess.run([*command, "/missing"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "slurm-report: /missing: [Errno 2] No such file or directory: '/missing'\n",
    )


def test_check_mode_has_nothing_to_compare_without_nginx() -> None:
    assert host_packages.lacks_package(login(), "slurm_report")
    there = {"nginx": "1", "openssl": "3", "python3-jinja2": "3"}
    assert not host_packages.lacks_package(login().say(packages=there), "slurm_report")


def test_the_host_gets_the_packages() -> None:
    assert {"nginx", "python3-jinja2"} <= {*preparation.role_packages(with_group(login()))}


def with_group(host: PlainHost) -> PlainHost:
    """The host with the group of the key, as the inventory gives it."""
    return host.set(group_names=[*host["group_names"], "slurm_report"])


# -- nginx -------------------------------------------------------------------------------------------------------------


def decoded(files: list[HostFile]) -> dict[str, str]:
    """The secret files by name."""
    secrets = ((file["path"], file["secret"]) for file in files if "secret" in file)
    return {path.rpartition("/")[2]: base64.b64decode(text).decode() for path, text in secrets}


def test_passwords_are_secrets_of_nginx() -> None:
    files = report_server.front_files(login(USERS))
    assert decoded(files) == {
        "users": "alice:$apr1$salt$hash\nbob:$2y$05$hash\n",
        "administrators": "alice:$apr1$salt$hash\n",
        "tls.key": FILES["/tls.key"].decode(),
    }
    for file in files:
        if file["path"].endswith(("users", "administrators")):
            assert (file["owner"], file["mode"]) == ("www-data", "0400")
    assert report_server.services(login(USERS))["nginx"]().absent == ["/etc/nginx/sites-enabled/default"]
    assert report_server.services(login(PROXY))["nginx"]().absent[1:] == [
        "/etc/gpucluster-slurm/report/users",
        "/etc/gpucluster-slurm/report/administrators",
    ]


def test_the_configuration_is_the_last_file_since_it_names_the_others() -> None:
    assert report_server.front_files(login(USERS))[-1]["path"] == report_server.FRONT_CONF


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"slurm_report_certificate: /tls\.crt is missing"):
        report_server.front_files(login(files={}))


def rendered(key: dict[str, Any], tls: bool = True) -> str:
    """The configuration of nginx."""
    directory = ROLES / "slurm_report/templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(directory), trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False
    )
    environment.filters["to_json"] = json.dumps
    return environment.get_template("front.conf.j2").render(
        access=asdict(report_server.access(login(key))),
        cluster="x",
        directory=report_server.ACCESS,
        pages=report_server.PAGES,
        server="    listen 443 ssl;\n" if tls else "    listen 443;\n",
    )


def place(text: str, name: str) -> str:
    """The block of a location."""
    return text.partition(f"location = {name} {{")[2].partition("\n    }\n")[0]


def test_without_users_nobody_gets_the_page_for_administrators() -> None:
    text = rendered(PLAIN)
    assert place(text, "/admin/").split() == ["return", "403;"]
    assert "auth_basic" not in text
    assert "try_files /index.html" in place(text, "/")


def test_users_log_in_and_administrators_have_a_file_of_their_own() -> None:
    text = rendered(USERS)
    assert "    auth_basic_user_file /etc/gpucluster-slurm/report/users;\n" in text
    assert "auth_basic_user_file /etc/gpucluster-slurm/report/administrators;" in place(text, "/admin/")
    assert place(rendered({**USERS, "administrators": []}), "/admin/").split() == ["return", "403;"]


def test_a_proxy_names_the_users() -> None:
    text = rendered(PROXY, tls=False)
    assert "allow 10.0.0.5;\n    deny all;" in text
    assert 'if ($http_x_remote_user = "") {' in text
    assert 'map $http_x_remote_user $gpucluster_report_administrator {\n    default 0;\n    "~^alice$" 1;' in text
    assert '"~^b\\\\.c@d$" 1;' in text
    assert "if ($gpucluster_report_administrator = 0) {" in place(text, "/admin/")
    assert "ssl" not in text


@pytest.mark.parametrize("key", [PLAIN, USERS, PROXY, {**PROXY, "administrators": []}])
@pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx")
def test_nginx_reads_it(tmp_path: Path, key: dict[str, Any]) -> None:
    (tmp_path / "page.conf").write_text(rendered(key, tls=False))
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/page.conf; }}")
    done = subprocess.run(["nginx", "-t", "-c", f"{tmp_path}/nginx.conf"], capture_output=True, text=True, check=False)
    assert "syntax is ok" in done.stderr


def test_nginx_listens_with_ipv6_where_the_host_has_such_an_address() -> None:
    assert nginx.listening(login(), "slurm_report") == "443"
    addresses = [{"hosts": "login", "address": "fd00::1"}]
    assert (
        nginx.listening(login(slurm_addresses=addresses, slurm_report_port=8443), "slurm_report")
        == "[::]:8443 ipv6only=off"
    )


# -- removal -----------------------------------------------------------------------------------------------------------


def test_only_hosts_with_something_of_the_key_have_work() -> None:
    found = hosts(PLAIN)
    assert {name for name, host in found.items() if STAGES["report"](host)} == {"login"}
    left = hosts(None)
    left["n1"].say(files={report_server.SETTINGS: "0" * 64})
    assert {name for name, host in left.items() if STAGES["report"](host)} == {"n1"}
    assert report_server.SERVER_ROLE.lost(left["n1"])
    assert not report_server.SERVER_ROLE.lost(hosts(PLAIN)["login"].say(files={report_server.SETTINGS: "0" * 64}))


def test_nginx_goes_if_the_key_has_brought_it() -> None:
    new = login()
    assert nginx.package_records(new) == [
        {"path": nginx.RECORD, "content": f"{MANAGED} Removed with the last of the keys report and rest.\n"}
    ]
    assert nginx.package_records(login().say(packages={"nginx": "1"})) == []
    assert nginx.package_records(login(slurm_registry="login")) == []
    own = hosts(None)["login"].say(files={report_server.FRONT_CONF: "0" * 64})
    assert nginx.stays(own)
    assert report_server.removal(own).packages == []
    brought = hosts(None)["login"].say(files={nginx.RECORD: "0" * 64})
    assert report_server.removal(brought).packages == ["nginx"]
    needed = hosts(None, slurm_registry="login")["login"].say(files={nginx.RECORD: "0" * 64})
    assert report_server.removal(needed).packages == []
    assert nginx.RECORD in report_server.removal(needed).secrets


# -- a proxy that is trusted by its address ----------------------------------------------------------------------------

ADDRESSES = [
    {"hosts": "head", "address": "10.0.0.1"},
    {"hosts": "login", "address": "10.0.0.2"},
    {"hosts": "n[1-2]", "address": "10.0.1.[1-2]"},
]
NO_HOST = ("0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1", "240.0.0.1", "::ffff:0.0.0.0")
LOOPBACK = ("127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1")
OF_USERS = ("10.0.0.2", "10.0.1.1", "10.0.1.2", "::ffff:10.0.0.2", "::ffff:10.0.1.1", "0:0:0:0:0:ffff:10.0.1.2")
OTHERS = ("10.0.0.5", "10.0.0.1", "192.0.2.7", "2001:db8::5", "10.0.1.3")


def proxy_errors(address: str, host: str = "login", **variables: Any) -> str:
    """What preflight says of a proxy with this address."""
    key = {**PROXY, "host": host, "proxy": {"address": address, "header": "X-Remote-User"}}
    given = {"slurm_addresses": ADDRESSES, "slurm_report_tls": False, **variables}
    return "\n".join(report_server.SERVER_ROLE.objections(hosts(key, **given)[host]))


@pytest.mark.parametrize("host", ["login", "head"])
@pytest.mark.parametrize("address", [*NO_HOST, *OF_USERS])
def test_a_proxy_is_no_host_on_which_users_open_connections(address: str, host: str) -> None:
    found = proxy_errors(address, host)
    assert found.startswith(f"slurm_report.proxy.address: found {address}, ")
    assert "allowed: the address of a host" in found


@pytest.mark.parametrize("address", LOOPBACK)
def test_a_proxy_on_the_host_of_the_page_needs_one_without_users(address: str) -> None:
    assert proxy_errors(address).startswith(f"slurm_report.proxy.address: found {address}, ")
    assert proxy_errors(address, "head") == ""


@pytest.mark.parametrize("host", ["login", "head"])
@pytest.mark.parametrize("address", OTHERS)
def test_another_host_is_trusted(address: str, host: str) -> None:
    assert proxy_errors(address, host) == ""


def test_the_address_to_which_the_control_host_connects_is_one_of_the_host() -> None:
    found = hosts({**PROXY, "proxy": {"address": "192.0.2.9", "header": "X-Remote-User"}}, slurm_report_tls=False)
    assert report_server.SERVER_ROLE.objections(found["login"]) == []
    found["n2"].set(ansible_host="192.0.2.9")
    assert "n2" in "\n".join(report_server.SERVER_ROLE.objections(found["login"]))


def test_a_controller_with_users_is_a_host_of_users() -> None:
    groups = {**GROUPS, "slurm_login": ["login", "head"]}
    for address in ("127.0.0.1", "10.0.0.1"):
        key = {**PROXY, "host": "head", "proxy": {"address": address, "header": "X-Remote-User"}}
        found = cluster(
            FILES, groups=groups, slurm_report=key, slurm_report_tls=False, slurm_addresses=ADDRESSES, **TLS
        )
        assert "slurm_report.proxy.address" in "\n".join(report_server.SERVER_ROLE.objections(found["head"]))
