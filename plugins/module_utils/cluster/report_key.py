# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `report` of the cluster file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from ..language.formatting import shown
from .firewall_plans import networks
from .schema import Checker, Kind, file_name, host, ip_version, kind_of, mapping, sequence, text

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{,63}")
_WEB_ADDRESS = re.compile(r"https?://[A-Za-z0-9\[][!-~]{,299}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{,254}")


def header(value: Any) -> str:
    """The name of a header of HTTP. nginx ignores those with other characters, and has `-` and `_` as the same."""
    if not _HEADER.fullmatch(text(value)):
        raise ValueError("allowed: the name of a header such as X-Remote-User: letters, digits and '-'")
    return text(value)


def address(value: Any) -> str:
    """One IP address."""
    if not ip_version(text(value)):
        raise ValueError("allowed: one IP address")
    return text(value)


def web_address(value: Any) -> str:
    """The address of a page of the site."""
    if not _WEB_ADDRESS.fullmatch(text(value)):
        raise ValueError("allowed: an address such as https://grafana.example.org/dashboards")
    return text(value)


def users(value: Any) -> list[str]:
    """Names of users, as the password file or the proxy has them."""
    for entry in sequence(value):
        if not isinstance(entry, str) or not _USER.fullmatch(entry):
            raise ValueError(f"{shown(entry)} is no name of a user: letters, digits, '_', '.', '@', '+' and '-'")
    return list(dict.fromkeys(value))


class ReportKey(TypedDict, total=False):
    """The value of the key; the variable has all of it, or is empty."""

    host: Annotated[str, host, "required"]
    readers: Annotated[list[str], networks]
    password_file: Annotated[str, file_name]
    proxy: Annotated[dict[str, str], mapping]
    administrators: Annotated[list[str], users]
    dashboards: Annotated[str, web_address]


REPORT = kind_of(ReportKey)

PROXY: Kind[dict[str, str]] = Kind(
    own={"address": {"type": address, "required": True}, "header": {"type": header, "required": True}}
)


def check(checker: Checker, found: Any) -> ReportKey:
    """The checked value of the key `report`, with all defaults; empty without the key."""
    problems = len(checker.problems)
    found = checker.host_or_mapping(REPORT, "report", found)
    if not found:
        return {}
    # The variable has every key, without a value where the cluster file has none.
    found = {key: value for key, value in found.items() if value not in (None, "", [], {})}
    report = checker.check(REPORT, "report", found)
    proxy = checker.check(PROXY, "report.proxy", report["proxy"]) if report.get("proxy") else {}
    if len(checker.problems) == problems:
        _check_together(checker, report, proxy)
    if len(checker.problems) > problems:
        return {}
    defaults: ReportKey = {"readers": [], "password_file": "", "administrators": [], "dashboards": ""}
    return {**defaults, **report, "proxy": proxy}


def _check_together(checker: Checker, report: Mapping[str, Any], proxy: Mapping[str, Any]) -> None:
    """Name its keys that contradict each other."""
    if proxy and report.get("password_file"):
        checker.problem("report.proxy", "the proxy knows the users, and so does password_file: remove one of them")
    if report.get("administrators") and not proxy and not report.get("password_file"):
        what = f"found {shown(report['administrators'])}, but nobody is known by name without password_file or proxy"
        checker.problem("report.administrators", what)
