# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role preflight."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import deprecated_names
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preflight
from plain_host import CLUSTER, DATABASE_SERVER, PlainHost, cluster

STORAGE_PASS = "/cluster/secrets/x/slurmdbd_storage_pass"
MAIL_PASS = "/cluster/secrets/x/mail_password"
ANSIBLE = {"full": "2.19.4", "major": 2, "minor": 19, "revision": 4}
SUSPENDED = {
    "groups": [],
    "users": [
        {"name": "ann", "state": "present", "home": "/home/ann"},
        {"name": "bob", "state": "suspended", "home": "/home/bob"},
        {"name": "eve", "state": "suspended", "home": "/home/eve"},
    ],
}


def head(files: dict[str, bytes] | None = None, **variables: Any) -> PlainHost:
    """The controller of a small cluster with these variables."""
    return cluster(files, **{"ansible_version": ANSIBLE, "slurm_secrets_dir": "/cluster/secrets/x", **variables})[
        "head"
    ]


def test_an_inventory_without_its_controllers_is_a_part() -> None:
    """Of two of them, the run may have lost one: other rules say that. A role that is used alone names none."""
    groups = {"all": ["n1"], "slurm_cluster": ["n1"], "slurm_compute": ["n1"], "slurm_controller": []}
    assert preflight.partial_inventory(head()) == ""
    assert preflight.partial_inventory(head(slurm_controllers=["head", "other"])) == ""
    assert preflight.partial_inventory(head(groups=groups, slurm_controllers=[])) == ""
    assert preflight.partial_inventory(head(groups=groups)).startswith("The inventory lacks head (slurm_controllers)")


def test_a_right_cluster_has_no_errors_and_no_objections() -> None:
    assert preflight.variable_errors(head()) == []
    assert preflight.objections(head()) == []
    assert preflight.warnings(head()) == []


def test_jobs_that_a_valid_policy_refuses_are_named() -> None:
    policy: dict[str, Any] = {
        "slurm_accounting_qos": [{"name": "gpuq"}, {"name": "datamover"}],
        "slurm_accounting_accounts": [{"name": "vision", "QOS": ["datamover", "gpuq"]}],
        "slurm_accounting_users": [{"name": "alice", "DefaultAccount": "vision"}],
    }
    assert preflight.warnings(head(**policy)) == [
        "accounting: account vision: it has several QOS and no DefaultQOS (datamover, gpuq), so slurmctld refuses its "
        "jobs without --qos: set DefaultQOS to one of them"
    ]
    assert preflight.warnings(head(**policy, slurm_conf={"AccountingStorageEnforce": "associations"})) == []
    assert preflight.warnings(head(**policy, slurm_conf={"accountingstorageenforce": ["QOS"]})) != []
    unknown = head(**policy, slurm_nodes=[{"hosts": "n[1-2]", "hardware": "detected"}])
    assert preflight.warnings(unknown) == [], "slurm.conf has no values yet"
    assert "is not known yet" in str(preflight.objections(unknown))


def test_errors_of_roles_precede_those_of_the_cluster_file() -> None:
    hosts = cluster(ansible_version=ANSIBLE, slurm_nodes=[{"hosts": "n[1-2]", "hardware": "a"}])
    for name in ("n1", "n2"):
        hosts[name].set(slurm_health_limit="x")
    first, second, *others = preflight.variable_errors(hosts["head"])
    assert first.startswith("n[1-2]: argument 'slurm_health_limit' is of type")
    assert second.startswith("n[1-2]: slurm_health_limit: found 'x', allowed: seconds")
    assert others == ["slurm_nodes[0].hardware: found 'a', unknown machine type, allowed: m, detected"]


def test_the_policy_is_that_of_the_first_controller() -> None:
    hosts = cluster(ansible_version=ANSIBLE)
    hosts["n1"].set(slurm_accounting_users=[{"name": "ann"}])
    assert preflight.model(hosts["login"])["slurm_accounting_users"] == []
    hosts["head"].set(slurm_accounting_users=[{"name": "bob"}])
    assert preflight.model(hosts["login"])["slurm_accounting_users"] == [{"name": "bob"}]


def test_the_registry_has_its_default_directory_and_port() -> None:
    found = preflight.model(head(slurm_registry="login"))
    assert (found["registry_dir"], found["registry_port"]) == ("/var/lib/docker-registry", 5000)
    hosts = cluster(ansible_version=ANSIBLE, slurm_registry="login")
    hosts["login"].set(registry_dir="/images", registry_port=443)
    found = preflight.model(hosts["head"])
    assert (found["registry_dir"], found["registry_port"]) == ("/images", 443)
    assert preflight.model(head())["registry_dir"] == ""


@pytest.mark.parametrize(
    ("variables", "objection"),
    [
        (
            {"ansible_version": {"full": "2.18.1", "major": 2, "minor": 18, "revision": 1}},
            "ansible-core 2.18.1 is too old; this collection needs 2.19 or later",
        ),
        (
            {"slurm_controllers": ["head", "other", "another"]},
            "slurm_controllers has other, another, which is no host of the inventory",
        ),
        ({"slurm_database": "other"}, "slurm_database is other, which is no host of the inventory"),
        ({"slurm_registry": "other"}, "slurm_registry is other, which is no host of the inventory"),
        (
            {"slurm_containers": ["pyxis"]},
            "slurm_containers has pyxis without enroot, which runs its containers",
        ),
        (
            {"slurm_mail": {"relay": "mail:25", "user": "slurm"}},
            f"slurm_mail has user slurm, and {MAIL_PASS} is missing: put the password of the relay there (mode 0600; "
            "ansible-vault may encrypt it)",
        ),
        (
            {"slurm_database_server": DATABASE_SERVER, "slurmdbd_storage_pass_file": "/cluster/missing"},
            "slurm_database_server has user slurm, and /cluster/missing is missing: put the password of the database "
            "server there (mode 0600; ansible-vault may encrypt it)",
        ),
        (
            {"slurm_prologs": [{"name": "a", "script": "#!/bin/sh\r\n"}]},
            "prologs: a: line 1: found '#!/bin/sh\\r', which ends with a carriage return",
        ),
        (
            {"slurm_partitions": []},
            "slurm_partitions is empty, and a job needs a partition to run in (cluster file, partitions)",
        ),
        (
            {"slurm_nodes": [{"hosts": "n2", "hardware": "m"}]},
            "slurm_nodes has no entry for these hosts of the group slurm_compute: n1",
        ),
    ],
)
def test_objections_name_the_way_out(variables: dict[str, Any], objection: str) -> None:
    (found,) = preflight.objections(head(**variables))
    assert found.startswith(objection)


def test_the_certificate_of_a_database_server_has_to_be_there() -> None:
    found = preflight.objections(head(slurm_database_server={**DATABASE_SERVER, "ca": "ca.pem"}))
    assert found[0].startswith("slurm_database_server.ca: found 'ca.pem', which does not exist")


def test_a_limit_on_what_slurmctld_does_not_track_is_an_objection() -> None:
    accounts = [{"name": "physics", "GrpTRES": {"gres/gpu:t4": 1, "gres/gpu": 1, "cpu": 4}}]
    machines = {
        "m": {**CLUSTER["slurm_hardware_types"]["m"], "gres": [{"name": "gpu", "type": "t4", "file": "/dev/g0"}]}
    }
    given: dict[str, Any] = {
        "slurm_database": "head",
        "slurm_accounting_accounts": accounts,
        "slurm_hardware_types": machines,
    }
    (objection,) = preflight.objections(head(**given))
    assert objection == (
        "account physics: GrpTRES: slurm.conf does not track gres/gpu:t4, so slurmctld would not enforce the limit: "
        "add it to AccountingStorageTRES in slurm_conf, or set `defaults: 2`, which tracks each type of GPU"
    )
    assert preflight.objections(head(**given, slurm_defaults=2)) == []
    own = {"AccountingStorageTRES": ["gres/gpu", "gres/gpu:t4"]}
    assert preflight.objections(head(**given, slurm_conf=own)) == []
    assert preflight.objections(head(**given | {"slurm_database": ""})) == []


def test_a_limit_on_a_type_that_jobs_pass_is_an_objection() -> None:
    given: dict[str, Any] = {
        "slurm_database": "head",
        "slurm_accounting_accounts": [{"name": "vision", "GrpTRES": {"gres/gpu:h100": 8}}],
    }
    tracked = {"AccountingStorageTRES": ["gres/gpu", "gres/gpu:h100"]}
    (objection,) = preflight.objections(head(**given, slurm_conf=tracked))
    assert objection == (
        "account vision: GrpTRES: found gres/gpu:h100 without gres/gpu, so jobs that name no type (--gres=gpu:1) pass "
        "it: add gres/gpu (GPUs of all types together), name gres/gpu alone, or set JobSubmitPlugins in slurm_conf "
        "with a script that makes jobs name a type"
    )
    assert preflight.objections(head(**given, slurm_conf={**tracked, "JobSubmitPlugins": "lua"})) == []
    assert preflight.objections(head(**given, slurm_conf={**tracked, "JobSubmitPlugins": "require_timelimit"})) != []
    assert preflight.objections(head(**given | {"slurm_database": ""}, slurm_conf=tracked)) == []
    none = {**given, "slurm_accounting_accounts": [{"name": "vision", "GrpTRES": {"gres/gpu:h100": 0}}]}
    assert preflight.objections(head(**none, slurm_conf=tracked)) == []
    (warning,) = preflight.warnings(head(**none, slurm_conf=tracked))
    assert warning.startswith("accounting: account vision: GrpTRES: found gres/gpu:h100 without gres/gpu, so jobs")
    assert "AllowAccounts" in warning


def test_all_objections_are_named_at_once() -> None:
    found = preflight.objections(head(slurm_controllers=["x"], slurm_database="y", slurm_partitions=[]))
    assert [text.partition(" ")[0] for text in found] == ["slurm_controllers", "slurm_database", "slurm_partitions"]


def test_lines_that_slurm_would_refuse_are_an_objection() -> None:
    (found,) = preflight.objections(head(slurm_hardware_types={}))
    assert found == "n[1-2]: unknown hardware 'm', known: none"


def test_passwords_are_not_shown() -> None:
    found = preflight.objections(
        head(
            {STORAGE_PASS: b"geheim\n#2\n", MAIL_PASS: b"geheim\nzwei"},
            slurm_mail={"relay": "mail:25", "user": "slurm"},
        )
    )
    assert found[0].startswith(f"{STORAGE_PASS}: found a newline")
    assert f"; {MAIL_PASS}: found a newline" in found[0]
    assert "geheim" not in found[0]
    assert preflight.objections(head({STORAGE_PASS: b"right\n"})) == []


def test_the_password_of_the_database_may_be_in_another_file() -> None:
    hosts = cluster({"/other": b""}, ansible_version=ANSIBLE, slurm_secrets_dir="/cluster/secrets/x")
    hosts["head"].set(slurmdbd_storage_pass_file="/other")
    assert preflight.objections(hosts["n1"]) == ["/other: found nothing, allowed: a password"]


def test_packages_that_are_files_must_be_those_that_the_cluster_needs() -> None:
    names = ["slurm-smd", "slurm-smd-client", "slurm-smd-slurmctld", "slurm-smd-slurmd"]
    packages = {"files": [{"file": f"{name}_25.05.4-1_amd64.deb"} for name in names]}
    own = head(slurm_packages=packages)
    own["groups"]["slurm_rest"] = []  # as the inventory plugin makes it without the key
    assert preflight.lacking_packages(own) == ["slurm-smd-slurmdbd", "slurm-smd-sackd"]
    found = preflight.lacking_packages(head(slurm_packages=packages, slurm_access={"login": "all"}))
    assert found[-1] == "slurm-smd-libpam-slurm-adopt"
    found = preflight.lacking_packages(head(slurm_packages=packages, slurm_access={"compute": "all"}))
    assert found == ["slurm-smd-slurmdbd", "slurm-smd-sackd"]
    assert preflight.lacking_packages(head()) == []


def test_slurm_takes_jobs_of_suspended_users_without_a_policy() -> None:
    shared = [{"path": "/home", "type": "nfs", "server": "head", "homes": True}]
    host = head(slurm_people=SUSPENDED, slurm_storage=shared)
    assert preflight.warnings(host) == [
        "Slurm cannot refuse jobs of suspended users, since it has no policy for accounting: bob, eve"
    ]
    assert preflight.warnings(host.set(slurm_accounting_qos=[{"name": "high"}])) == []


@pytest.mark.parametrize("kinds", ["auth/jwt", ["auth/jwt"], "AUTH/JWT,auth/x"])
def test_a_token_of_a_suspended_user_stays_valid(kinds: Any) -> None:
    host = head(slurm_people=SUSPENDED, slurm_conf={"AuthAltTypes": kinds}, slurm_accounting_qos=[{"name": "high"}])
    assert [*preflight.suspended_warnings(host)] == [
        "AuthAltTypes has auth/jwt: tokens of suspended users are valid until they expire, or until jwt_key is "
        "replaced: bob, eve"
    ]
    assert [*preflight.suspended_warnings(host.set(slurm_conf={"AuthAltTypes": None}))] == []


def test_old_names_of_variables_warn_and_later_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a table of the test's own: a variable of a playbook, as `-e` sets it on all hosts."""
    old = deprecated_names.OldName("variable", "rolling_size", "rolling_batch", "0.1.0", "0.2.0")
    monkeypatch.setattr(deprecated_names, "OLD_NAMES", (old,))
    host = head(rolling_size=2)
    monkeypatch.setattr(deprecated_names, "collection_version", lambda: "0.1.0")
    (line,) = preflight.warnings(host)
    assert line.startswith("head,login,n[1-2]: rolling_size: is called rolling_batch since 0.1.0")
    assert preflight.variable_errors(host) == []
    monkeypatch.setattr(deprecated_names, "collection_version", lambda: "0.2.0")
    (line,) = preflight.variable_errors(host)
    assert line.endswith("rolling_size: unknown variable since 0.2.0, did you mean 'rolling_batch'?")


def test_a_value_with_which_a_cluster_was_taken_over_is_a_warning() -> None:
    conf = {"StateSaveLocation": "/tmp/slurm", "SlurmdSpoolDir": "/etc/slurm/d"}
    taken_over = ["slurm_conf.StateSaveLocation"]
    host = head(slurm_conf=conf, slurm_taken_over=taken_over)
    (error,) = preflight.variable_errors(host)
    assert error.startswith("slurm_conf.SlurmdSpoolDir: found '/etc/slurm/d', which the system needs, allowed: another")
    (warning,) = preflight.warnings(host.set(slurm_conf={"StateSaveLocation": "/tmp/slurm"}))
    assert warning == (
        "slurm_conf.StateSaveLocation: found '/tmp/slurm', which all programs of a host have, and which is emptied; a "
        "new cluster would have another directory such as /shared/slurm. It stays, since the cluster was taken over "
        "with it (taken_over; docs/admin/adopt.md)."
    )


def test_warnings_about_storage_backups_and_scripts_follow() -> None:
    people = {"groups": [], "users": [{"name": "ann", "state": "present", "home": "/home/ann"}]}
    found = preflight.warnings(
        head(
            slurm_people=people,
            slurm_backup={"target": "/backup"},
            slurm_database="login",
            slurm_prologs=[{"name": "a", "script": "#!/bin/sh\nsqueue\n"}],
        )
    )
    assert found[0].startswith("The homes of ann are not on storage")
    assert found[1] == (
        "slurm_backup.target is the directory /backup: login,head need the same file system there, which must not be "
        "lost with any of them"
    )
    assert found[2].startswith("prologs: the script a names squeue.")


def test_a_backup_elsewhere_needs_no_file_system() -> None:
    assert preflight.warnings(head(slurm_backup={"target": "s3:x"}, slurm_database="login")) == []
    assert preflight.warnings(head(slurm_backup={"target": "/backup"})) == []


def test_closed_ports_are_those_of_hosts_with_an_active_firewall() -> None:
    hosts = cluster(ansible_version=ANSIBLE)
    assert preflight.closed_ports(hosts["head"]) == []
    hosts["n1"].say(ufw=["22"])
    found = preflight.closed_ports(hosts["head"])
    assert found[0].startswith("The firewall ufw is active")
    assert found[1] == "n1: ufw allow proto tcp from NETWORK to any port 6818,60001:63000"
    hosts["n1"].set(slurm_conf={"SrunPortRange": "50000-50100"})
    assert preflight.closed_ports(hosts["n1"])[1].endswith(" 6818,50000:50100")
