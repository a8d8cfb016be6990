# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `mail` of the cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from .schema import Checker, choice, kind_of, text

TLS = {"none": 25, "starttls": 587, "tls": 465}
"""How the connection to the relay is protected, with the usual port: not at all, after a plain beginning, at once."""

_RELAY = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:([0-9]{1,5}))?")
_DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9][A-Za-z0-9-]*)*")
_SENDER = re.compile(rf"[A-Za-z0-9][A-Za-z0-9.+_-]*@{_DOMAIN.pattern}")


def relay(value: Any) -> str:
    """A mail server, optionally with its port."""
    match = _RELAY.fullmatch(text(value))
    if not match or not 0 < int(match[3] or 1) < 2**16:
        raise ValueError("allowed: a mail server, optionally with its port, such as mail.example.org:587")
    return text(value)


def sender(value: Any) -> str:
    """The address that mails come from."""
    if not _SENDER.fullmatch(text(value)):
        raise ValueError("allowed: a mail address such as slurm@example.org")
    return text(value)


def domain(value: Any) -> str:
    """The domain of users without one."""
    if not _DOMAIN.fullmatch(text(value)):
        raise ValueError("allowed: a domain such as example.org")
    return text(value)


def user(value: Any) -> str:
    """The name with which the controllers log in to the relay."""
    if not re.fullmatch(r"[!#-\[\]-~]+", text(value)):
        raise ValueError("allowed: a name without blanks, quotes and backslashes")
    return text(value)


class MailKey(TypedDict, total=False):
    """The value of the key; the variable has all of it but the user, or is empty."""

    relay: Annotated[str, relay, "required"]
    sender: Annotated[str, sender, "required"]
    domain: Annotated[str, domain]
    tls: Annotated[str, choice([*TLS])]
    user: Annotated[str, user]


MAIL = kind_of(MailKey)


def check(checker: Checker, found: Any, slurm_conf: Mapping[str, Any]) -> MailKey:
    """The checked value of the key `mail`, with every default except `user`."""
    if not found:
        return {}
    mail = checker.check(MAIL, "mail", checker.without_password("mail", found, "mail_password"))
    checker.refuse_derived("mail", ["MailProg"], slurm_conf)
    checker.refuse_derived("mail.domain", ["MailDomain"], slurm_conf)
    if "user" in mail and mail.get("tls") == "none":
        checker.problem("mail.tls", "found 'none', allowed: starttls or tls, since user has a password")
    if not {"relay", "sender"} <= mail.keys():
        return mail
    mail.setdefault("tls", "starttls" if "user" in mail else "none")
    mail.setdefault("domain", mail["sender"].rpartition("@")[2])
    if not re.search(r":[0-9]+$", mail["relay"]) or mail["relay"].endswith("]"):
        mail["relay"] += f":{TLS[mail['tls']]}"
    return mail
