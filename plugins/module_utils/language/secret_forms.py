# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets in texts that all users of a host are to read, by their forms. No message shows one."""

from __future__ import annotations

import re

ANYWHERE: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("private key",),
        # The heading alone is in programs that search for keys. It may have headings of its own after it, such as that
        # of an encrypted key. JSON has `\n` for the end of a line, YAML has blanks before it, and a comment its sign.
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[ \t#\r\n]|\\[nr]|[A-Za-z-]+: [^\n]*\n)*"
        r"[A-Za-z0-9+/=]{40}",
        "private key",
    ),
    (("b3blbnnzac1rzxktdje",), r"\bb3BlbnNzaC1rZXktdjE", "private key"),  # openssh-key-v1 (PROTOCOL.key of OpenSSH)
    (('"auth"',), r'"auth"\s*:\s*"[A-Za-z0-9+/=]{8,}"', "credentials of a registry"),
    (("://",), r"[a-z]://[^\s/:@'\"$<{]{1,100}:[^\s/@'\"$<{]{1,200}@[\w.-]", "password in a URL"),
    ((".eyj",), r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{16,}", "token"),  # RFC 7519
)
"""Secrets, wherever they are: words in small letters, one of which a text with it has, the form, and the name."""

FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    *((re.compile(form), name) for _words, form, name in ANYWHERE),
    (re.compile(r":\$(?:1|2[abxy]|5|6|7|y|gy|sm3)\$[^\s:]{20,}"), "hash of a password"),  # crypt(5), shadow(5)
    (re.compile(r"\baws_secret_access_key\s*[=:]\s*[\"']?[A-Za-z0-9/+]{40}\b", re.IGNORECASE), "key of a cloud"),
    (re.compile(r"^[ \t]*StoragePass[ \t]*=[ \t]*[^\s$]", re.MULTILINE | re.IGNORECASE), "password of the database"),
)
"""The secrets of a script or a configuration. A variable of a shell in the place of one is none."""

ALLOWED = "which all users of a host could read, allowed: a text without secrets"


def secret_in(text: str) -> str:
    """What secret a text has, such as `a private key`; empty without one."""
    name = next((name for form, name in FORMS if form.search(text)), "")
    return f"a {name}" if name and not name.startswith("credentials") else name


def public_error(text: str) -> str:
    """Why all users must not read a text, as `with ..., allowed: ...`; empty if they may."""
    found = secret_in(text)
    return f"with {found}, {ALLOWED}" if found else ""
