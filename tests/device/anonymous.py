# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replaces what identifies a machine by made-up values of the same form, equal ones by equal ones."""

from __future__ import annotations

import hashlib
import re
import secrets
import xml.etree.ElementTree as ElementTree

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
PATTERNS = (
    rf"\b{UUID}\b",
    r"\b(?!00:00:00:00:00:00|ff:ff:ff:ff:ff:ff)(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b",  # the address of a network card
)
"""Identifiers that show what they are, without regard to case."""
TAGS = ("serial", "uuid", "pdi", "chassis_serial_number", "gpu_fabric_guid", "ibguid", "cluster_uuid")
"""Elements of `nvidia-smi -q -x` that hold an identifier."""
UNKNOWN = {"", "n/a", "none", "0", "0x0", "unknown"}
"""What nvidia-smi and the kernel write in place of one."""
LEAST = 6
"""Shorter texts are no identifiers, and would be replaced inside of others."""

SALT = secrets.token_bytes(16)
"""Of one run. Without it, a serial number could be found by trying them all."""


def made_up(identifier: str) -> str:
    """Another value of the same form: digits stay digits, hexadecimal letters stay such letters.

    Zeros stay, since they are most often padding, and so does the prefix 0x.
    """
    prefix, rest = re.fullmatch(r"(0[xX])?(.*)", identifier, re.DOTALL).groups("")  # type: ignore[union-attr]
    digest = hashlib.sha256(SALT + rest.lower().encode()).digest()
    result = []
    for place, character in enumerate(rest):
        number = digest[place % len(digest)]
        if character in "123456789":
            result.append(str(1 + number % 9))
        elif character in "abcdef":
            result.append("abcdef"[number % 6])
        elif character in "ABCDEF":
            result.append("ABCDEF"[number % 6])
        elif character.isascii() and character.isupper():
            result.append("GHJKLMNPQRSTUVWXYZ"[number % 18])
        elif character.isascii() and character.islower():
            result.append("ghjkmnpqrstuvwxyz"[number % 17])
        else:
            result.append(character)
    return prefix + "".join(result)


def identifiers(xml: str) -> set[str]:
    """The identifiers in the output of `nvidia-smi -q -x`; none if it is no XML."""
    try:
        tree = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return set()
    found = {(element.text or "").strip() for element in tree.iter() if element.tag in TAGS}
    return {text for text in found if len(text) >= LEAST and text.lower() not in UNKNOWN}


class Names:
    """The identifiers of this machine, which `replaced` replaces."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def learn(self, names: set[str]) -> None:
        """Know more names as identifiers, such as a serial number or a host name."""
        for name in names:
            if len(name) >= LEAST and name.lower() not in UNKNOWN:
                self._known[name] = made_up(name)

    def replaced(self, text: str) -> str:
        """A text in which each identifier is replaced."""
        # Those with a form first: a known word may be part of one.
        for pattern in PATTERNS:
            text = re.sub(pattern, lambda found: made_up(found[0]), text, flags=re.IGNORECASE)
        for word in sorted(self._known, key=len, reverse=True):
            text = text.replace(word, self._known[word])
        return text
