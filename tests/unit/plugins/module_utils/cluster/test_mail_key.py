# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `mail` of the cluster file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import mail_key
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker

LEAST = {"relay": "mail.x.org", "sender": "slurm@hpc.x.org"}


def checked(found: Any, **slurm_conf: Any) -> tuple[mail_key.MailKey, list[str]]:
    """The valid part, and the problems."""
    problems: list[str] = []
    return mail_key.check(Checker("my.cluster.yml", problems), found, slurm_conf), problems


@pytest.mark.parametrize(
    ("found", "value"),
    [
        ({}, {"relay": "mail.x.org:25", "tls": "none", "domain": "hpc.x.org"}),
        ({"user": "u"}, {"relay": "mail.x.org:587", "tls": "starttls", "domain": "hpc.x.org", "user": "u"}),
        ({"tls": "tls", "domain": "x.org"}, {"relay": "mail.x.org:465", "tls": "tls", "domain": "x.org"}),
        ({"relay": "[2001:db8::1]"}, {"relay": "[2001:db8::1]:25", "tls": "none", "domain": "hpc.x.org"}),
        ({"relay": "10.0.0.1:2525"}, {"relay": "10.0.0.1:2525", "tls": "none", "domain": "hpc.x.org"}),
    ],
)
def test_defaults(found: dict[str, Any], value: dict[str, Any]) -> None:
    assert checked(LEAST | found) == (LEAST | value, [])
    assert checked(LEAST | value) == (LEAST | value, [])  # as the variable has it


def test_a_site_without_the_key_has_no_mail() -> None:
    assert checked({}, MailProg="/usr/bin/mail") == ({}, [])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"relay": "m"}, "my.cluster.yml: mail.sender: missing"),
        (LEAST | {"sendr": "x"}, "mail.sendr: unknown key, did you mean 'sender'? allowed: relay, sender, domain, tls"),
        (LEAST | {"relay": "m:99999"}, "mail.relay: found 'm:99999', allowed: a mail server, optionally with its port"),
        (LEAST | {"relay": "m; rm"}, "mail.relay: found 'm; rm', allowed"),
        (LEAST | {"sender": "slurm"}, "mail.sender: found 'slurm', allowed: a mail address such as slurm@example.org"),
        (LEAST | {"tls": "startls"}, "mail.tls: found 'startls', unknown value, did you mean 'starttls'?"),
        (LEAST | {"user": "u", "tls": "none"}, "mail.tls: found 'none', allowed: starttls or tls"),
        (LEAST | {"user": 'u"'}, "mail.user: found"),
        (LEAST | {"password": "secret"}, "mail.password: is not a key of the cluster file: put it into the file"),
        ("mail.x.org", "mail: found 'mail.x.org', allowed: a mapping with relay"),
    ],
)
def test_each_mistake_is_one_error_with_what_is_allowed(found: Any, problem: str) -> None:
    (message,) = checked(found)[1]
    assert problem in message
    assert "secret" not in message.replace("slurm_secrets_dir", "")


@pytest.mark.parametrize(("parameter", "key"), [("MailProg", "mail"), ("MailDomain", "mail.domain")])
def test_slurm_s_own_parameters_and_the_key_exclude_each_other(parameter: str, key: str) -> None:
    (message,) = checked(LEAST, **{parameter: "x.org"})[1]
    assert message == f"my.cluster.yml: slurm_conf.{parameter}: is derived from {key}: remove one of them"
