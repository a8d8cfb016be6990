# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controllers get for the key `machines`."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages, slurmctld
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import secret_checks
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import machines
from ansible_collections.gpucluster.slurm.plugins.module_utils.machines.machine_settings import (
    CA,
    PASSWORD,
    PROGRAM,
    SETTINGS,
    settings_from_json,
)
from certificates import pair
from plain_host import PlainHost, cluster

SECRETS = "/cluster/secrets/x"
SECRET = f"{SECRETS}/machines_password"
IPMI = {"by": "ipmi", "address": "{host}-bmc", "addresses": {"n1": "10.1.0.7:6230"}, "user": "operator"}
REDFISH = {**IPMI, "by": "redfish"}
SCRIPT = b"#!/bin/sh\necho on\n"


def head(key: dict[str, Any], files: dict[str, bytes] | None = None) -> PlainHost:
    found: PlainHost = cluster({SECRET: b"word\n", **(files or {})}, slurm_machines=key)["head"]
    return found


def by_path(host: PlainHost) -> dict[str, Any]:
    """The files without the library."""
    return {file["path"]: file for file in machines.files(host) if "/library/" not in file["path"]}


def test_a_cluster_without_the_key_has_no_files() -> None:
    assert machines.files(head({})) == []
    assert machines.absent(head({})) == [machines.COMMAND, SETTINGS, PASSWORD, CA, PROGRAM]


def test_ipmi() -> None:
    host = head(IPMI)
    files = by_path(host)
    assert [*files] == [machines.COMMAND, SETTINGS, PASSWORD]
    assert machines.absent(host) == [CA, PROGRAM]
    found = settings_from_json(json.loads(files[SETTINGS]["content"]))
    assert found.address_of("n1") == ("10.1.0.7", 6230)
    assert found.address_of("n2") == ("n2-bmc", None)
    assert (found.by, found.user, found.slurm_user, found.verify) == ("ipmi", "operator", "slurm", True)
    assert files[PASSWORD] == {
        "path": PASSWORD,
        "secret": base64.b64encode(b"word\n").decode(),
        "owner": "slurm",
        "mode": "0400",
        "loaded": False,
    }
    assert "word" not in files[SETTINGS]["content"]
    assert all(file["loaded"] is False for file in machines.files(host))


def test_redfish_with_certificates() -> None:
    certificate = pair()[0]
    host = head({**REDFISH, "ca": "ca.pem"}, {"/cluster/ca.pem": certificate})
    assert by_path(host)[CA]["content"].encode() == certificate
    assert machines.settings(host)["has_ca"] is True
    assert machines.absent(host) == [PROGRAM]
    assert machines.settings(head({**REDFISH, "verify": False}))["verify"] is False
    with pytest.raises(ValueError, match=r"slurm_machines.ca: found /cluster/ca.pem, which is no certificate"):
        machines.files(head({**REDFISH, "ca": "ca.pem"}, {"/cluster/ca.pem": b"x"}))


def test_a_program_of_the_site() -> None:
    host = head({"by": "program", "program": "machine"}, {"/cluster/machine": SCRIPT})
    assert by_path(host)[PROGRAM] == {"path": PROGRAM, "content": SCRIPT.decode(), "mode": "0755", "loaded": False}
    assert machines.absent(host) == [PASSWORD, CA]
    for content, why in ((b"echo on\n", "which cannot run"), (b"\x7fELF", "which is no text")):
        with pytest.raises(ValueError, match=f"slurm_machines.program: found /cluster/machine, {why}"):
            machines.files(head({"by": "program", "program": "machine"}, {"/cluster/machine": content}))


def test_controllers_have_the_packages() -> None:
    for key, packages in ((IPMI, {"ipmitool"}), (REDFISH, {"python3-sushy"}), ({"by": "program"}, set())):
        hosts = cluster(slurm_machines=key)
        both = {"ipmitool", "python3-sushy"}
        assert both.intersection(machines.packages(hosts["head"])) == packages
        assert machines.packages(hosts["n1"]) == []
    assert "ipmitool" in host_packages.wanted_packages(head({**IPMI}).set(base_packages=[], base_time_service=""))


def test_slurmctld_brings_the_files() -> None:
    paths = [file["path"] for file in slurmctld.service_files(head(IPMI))]
    assert {machines.COMMAND, SETTINGS, PASSWORD} <= {*paths}
    assert machines.COMMAND in slurmctld.absent_files(head({}))
    assert {*machines.EVERY_FILE} <= {*slurmctld.stopped_files(head({}))}


def test_the_checksum_of_the_password_has_a_salt() -> None:
    keys = [{f"{SECRETS}/munge.key": key} for key in (b"one", b"two")]
    assert len({slurmctld.service_digest(head(IPMI, key)) for key in keys}) == 2


def test_the_password_has_to_be_there() -> None:
    host = cluster(slurm_machines=IPMI)["head"]
    with pytest.raises(ValueError, match=f"slurm_machines: {SECRET} is missing"):
        machines.files(host)
    said = [*secret_checks.file_errors(host)]
    assert f"slurm_machines has user operator, and {SECRET} is missing: put the password of the machines" in said[-1]
    assert "machines_password" not in secret_checks.needed(head({"by": "program", "program": "x"}))


@pytest.mark.parametrize(
    ("key", "password", "why"),
    [
        (IPMI, b"x" * 20, ""),
        (IPMI, b"x" * 21, "found a password of 21 bytes, allowed: up to 20, as IPMI has them"),
        (IPMI, "ü".encode() * 11, "found a password of 22 bytes"),
        (REDFISH, b"x" * 21, ""),
        (REDFISH, b"one\ntwo", "found a newline"),
        (IPMI, b"\n", "found nothing, allowed: a password"),
    ],
)
def test_the_password_is_one_that_the_protocol_has(key: dict[str, Any], password: bytes, why: str) -> None:
    keys = {f"{SECRETS}/slurmdbd_storage_pass": b"word"}
    said = [*secret_checks.file_errors(head(key, {**keys, SECRET: password}))]
    assert why in said[0] if why else not said, said
    assert not [text for text in said if password.decode().strip() and password.decode().strip() in text]
