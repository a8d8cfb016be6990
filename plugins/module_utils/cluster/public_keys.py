# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public SSH keys of users, as lines of authorized_keys, and private keys, which no message shows."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

from ..language.formatting import shown
from .schema import any_text, unknown

PRIVATE = re.compile(r"PRIVATE KEY|\bb3BlbnNzaC1rZXktdjE")
"""Any private key in PEM, and OpenSSH's own format in base64 (PROTOCOL.key of its source)."""

_FIELDS = {
    "ssh-ed25519": 2,
    "ssh-rsa": 3,
    "ecdsa-sha2-nistp256": 3,
    "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3,
    "sk-ssh-ed25519@openssh.com": 3,
    "sk-ecdsa-sha2-nistp256@openssh.com": 4,
}
"""The types of public keys that OpenSSH 10 takes, and the number of fields in their data (RFC 4253, PROTOCOL.u2f)."""

_OPTIONS = (
    *("agent-forwarding", "command", "environment", "expiry-time", "from", "no-agent-forwarding"),
    *("no-port-forwarding", "no-pty", "no-touch-required", "no-user-rc", "no-X11-forwarding", "permitlisten"),
    *("permitopen", "port-forwarding", "pty", "restrict", "tunnel", "user-rc", "verify-required", "X11-forwarding"),
)
"""Options of a key in authorized_keys (sshd(8)), without those of certificates. sshd ignores a key with another one."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_KEY = re.compile(
    r'(?:(?P<options>(?:[^\s"]|"(?:[^"\\]|\\.)*")+)[ \t]+)?'
    rf"(?P<type>{'|'.join(map(re.escape, _FIELDS))})[ \t]+(?P<data>[A-Za-z0-9+/]+={{0,2}})(?:[ \t]+(?P<comment>.*))?"
)
_OPTION = re.compile(r'(?P<name>[^=,"]+)(?:="(?:[^"\\]|\\.)*")?(?:,|$)')


def public_key(value: Any) -> str:
    """A public SSH key, as a line of authorized_keys."""
    line = any_text(value).strip()
    match = _KEY.fullmatch(line)
    if not match or _CONTROL.search(line):
        types = ", ".join(_FIELDS)
        raise ValueError(f"allowed: one line TYPE DATA COMMENT of a public key, perhaps after options; types: {types}")
    kind, fields = match["type"], _fields(match["data"])
    if fields[:1] != [kind.encode()] or len(fields) != _FIELDS[kind]:
        inner = fields[0].decode(errors="replace") if fields else kind
        what = "are incomplete" if inner == kind else f"are those of {shown(inner)}"
        raise ValueError(f"whose data {what}, allowed: all data of a key of type {kind}")
    place, options = 0, match["options"] or ""
    while place < len(options):
        option = _OPTION.match(options, place)
        names = {name.lower(): name for name in _OPTIONS}
        if not option or option["name"].lower() not in names:
            name = option["name"] if option else options[place:]
            raise ValueError(unknown("option", name, _OPTIONS, ", ".join(_OPTIONS)))
        place = option.end()
    if options.endswith(","):
        raise ValueError("allowed: no ',' after the last option")
    return line


def _fields(data: str) -> list[bytes]:
    """The fields in the data of a public key; none if they do not end with the data."""
    try:
        rest = b64decode(data, validate=True)
    except ValueError:
        return []
    fields = []
    while rest:
        length = int.from_bytes(rest[:4], "big")
        fields.append(rest[4 : 4 + length])
        if len(rest) < 4 + length:
            return fields[:1]
        rest = rest[4 + length :]
    return fields


def data_of(key: str) -> str:
    """Type and data of a right key, which are the same for all spellings of it."""
    match = _KEY.fullmatch(key)
    return f"{match['type']} {match['data'].rstrip('=')}" if match else key


def found_value(value: Any) -> str:
    """A value as messages name it; a private key is never shown."""
    return "found a private key" if PRIVATE.search(str(value)) else f"found {shown(value)}"
