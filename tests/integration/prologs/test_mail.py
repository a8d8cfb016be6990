# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mails about jobs, in a mailbox of a real mail server on another host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email import message_from_string, policy
from email.message import EmailMessage
from pathlib import Path

import pytest
from lab import Lab, with_cluster
from relay import CONTROLLER, MAILDIR, PASSWORD, RELAY, mail_server

SUBMIT = "runuser -u alice -- timeout 60 sbatch --parsable --output=/dev/null"


@pytest.fixture(scope="module", autouse=True)
def _relay(lab: Lab) -> Iterator[None]:
    with mail_server(lab):
        yield


@pytest.fixture(autouse=True)
def _empty_mailbox(lab: Lab) -> None:
    lab.command(RELAY, f"rm -f {MAILDIR}/new/*")


def mail_of(lab: Lab, options: str, command: str = "true") -> EmailMessage:
    """Run a job of alice to its end, and return the one mail about it."""
    lab.command(CONTROLLER, f"cd /tmp && {SUBMIT} {options} --wrap '{command}'")
    text = lab.wait_for(RELAY, f"cat {MAILDIR}/new/*", "State:", 60)
    assert lab.command(RELAY, f"ls {MAILDIR}/new | wc -l") == "1"
    message = message_from_string(text, policy=policy.default)
    assert isinstance(message, EmailMessage)
    return message


def test_the_mail_of_a_job_arrives(lab: Lab) -> None:
    """With a name that is no ASCII, and one that would begin another header."""
    name = "学習\\nBcc: other@cluster.example"
    mail = mail_of(lab, f"--mail-type=END --job-name=\"$(printf '{name}')\"")
    assert (mail["From"], mail["To"]) == ("slurm@cluster.example", "alice@cluster.example")
    assert "学習" in mail["Subject"]
    assert "COMPLETED" in mail["Subject"]
    assert mail["Bcc"] is None
    assert "State:       COMPLETED" in mail.get_content()


def test_a_failed_job_is_told_to_the_address_that_it_has(lab: Lab) -> None:
    mail = mail_of(lab, "--mail-type=FAIL --mail-user=boss@elsewhere.example", "exit 3")
    assert mail["To"] == "boss@elsewhere.example"
    assert "FAILED" in mail["Subject"]
    assert "State:       FAILED" in mail.get_content()


def test_a_relay_with_a_password(lab: Lab, tmp_path: Path) -> None:
    """A missing password is named before a change. The password is in one file only, and the relay gets it by TLS."""
    secret = lab.inventory.parent / "secrets/prologs/mail_password"
    own = {key: value for key, value in lab.cluster.items() if key not in ("prologs", "epilogs")}
    wanted = own | {"mail": {"relay": RELAY, "sender": "slurm@cluster.example", "user": "cluster"}}
    site = with_cluster(lab, tmp_path, wanted)
    secret.unlink(missing_ok=True)
    run = site.playbook("site", "--check")
    assert run.rc != 0
    assert f"slurm_mail has user cluster, and {secret} is missing" in run.output
    secret.write_text(f"{PASSWORD}\n")
    secret.chmod(0o600)
    try:
        runs = [site.playbook("site", "--tags=controller", "--diff", "-vvv")]
        runs.append(site.playbook("site", "--tags=controller", "--diff", "-vvv"))
        assert [run.rc for run in runs] == [0, 0], runs[0].failed
        assert runs[1].changed == {}
        for run in runs:
            assert PASSWORD not in run.output
        mail = mail_of(lab, "--mail-type=END")
        assert mail["To"] == "alice@cluster.example"
        assert lab.command(CONTROLLER, "stat -c '%U %a' /etc/gpucluster-slurm/mail/password") == "slurm 400"
        # The journal has the command of this test.
        found = lab.command(CONTROLLER, f"grep -rl --exclude=*.journal '{PASSWORD}' /etc /var/log /var/lib /run /tmp")
        assert found == "/etc/gpucluster-slurm/mail/password"
    finally:
        secret.unlink()


def test_a_cluster_without_mail_says_so_once(lab: Lab, tmp_path: Path) -> None:
    own = {key: value for key, value in lab.cluster.items() if key not in ("mail", "prologs", "epilogs")}
    site = with_cluster(lab, tmp_path, own)
    runs = [site.playbook("site", "--tags=controller", *check) for check in (["--check"], [], [])]
    assert [run.rc for run in runs] == [0, 0, 0]
    said = ["Slurm sends no mail" in json.dumps([result for *_of, result in run.results]) for run in runs]
    assert said == [True, True, False]
    assert runs[2].changed == {}
    assert lab.command(CONTROLLER, "ls /etc/gpucluster-slurm/mail") == ""
    # The cluster of the other tests again.
    assert lab.playbook("site", "--skip-tags=validate").rc == 0
