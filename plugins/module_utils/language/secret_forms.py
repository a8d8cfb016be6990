# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets in texts that all users of a host are to read, by their forms. No message shows one."""

from __future__ import annotations

import re

_BASE64 = "[A-Za-z0-9+/=_-]"

FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        # The heading alone is in programs that search for keys. JSON has `\n` for the end of a line.
        re.compile(
            rf"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\s|\\n|\\r|[A-Za-z-]+: [^\n]*\n)*{_BASE64}{{40}}"
        ),
        "a private key",
    ),
    (re.compile(r"\bb3BlbnNzaC1rZXktdjE"), "a private key"),  # openssh-key-v1 in base64 (PROTOCOL.key of OpenSSH)
    (re.compile(r":\$(?:1|2[abxy]|5|6|7|y|gy|sm3)\$[^\s:]{20,}"), "a hash of a password"),  # crypt(5), shadow(5)
    (re.compile(r"\baws_secret_access_key\s*[=:]\s*[\"']?[A-Za-z0-9/+]{40}\b", re.IGNORECASE), "a key of a cloud"),
    (re.compile(r"^[ \t]*StoragePass[ \t]*=[ \t]*[^\s$]", re.MULTILINE | re.IGNORECASE), "a password of the database"),
    (re.compile(r'"auth"\s*:\s*"[A-Za-z0-9+/=]{8,}"'), "credentials of a registry"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@'\"$]+:[^\s/@'\"$]+@"), "a password in a URL"),
    (re.compile(rf"\beyJ{_BASE64}{{10,}}\.eyJ{_BASE64}{{10,}}\.{_BASE64}{{16,}}"), "a token"),  # RFC 7519
)
"""What a secret looks like, and its name in messages. A variable of a shell in its place is none."""

ALLOWED = "which all users of a host could read, allowed: a text without secrets"


def secret_in(text: str) -> str:
    """What secret a text has, such as `a private key`; empty without one."""
    return next((name for form, name in FORMS if form.search(text)), "")


def public_error(text: str) -> str:
    """Why all users must not read a text, as `with ..., allowed: ...`; empty if they may."""
    found = secret_in(text)
    return f"with {found}, {ALLOWED}" if found else ""
