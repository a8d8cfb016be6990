# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of BMCs."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.bmc_address import BmcAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address", "in_url"),
    [
        ("gpu07-bmc", ("gpu07-bmc", None), "gpu07-bmc"),
        ("10.1.0.7:8443", ("10.1.0.7", 8443), "10.1.0.7:8443"),
        ("2001:db8::7", ("2001:db8::7", None), "[2001:db8::7]"),
        ("[2001:db8::7]", ("2001:db8::7", None), "[2001:db8::7]"),
        ("[2001:db8::7]:623", ("2001:db8::7", 623), "[2001:db8::7]:623"),
    ],
)
def test_an_address_has_a_name_and_perhaps_a_port(text: str, address: BmcAddress, in_url: str) -> None:
    assert parse_address(text) == address
    assert parse_address(text).in_url == in_url


@pytest.mark.parametrize(
    "text", ["", "-H", "a b", "a:0", "a:65536", "a:x", "a:", "a/b", "[a]", "1::2::3", "[::1]x", "a\n"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        parse_address(text)
