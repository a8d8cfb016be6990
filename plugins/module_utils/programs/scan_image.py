# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Searches a tree for secrets and identities, which must not be in an image. It shows paths and kinds, no content."""

from __future__ import annotations

import argparse

from ..host.image_scan import scan, without


def main() -> int:
    """Print what a tree has. Returns 1 if an image must not have it."""
    parser = argparse.ArgumentParser(prog="slurm-image-scan", description=__doc__)
    parser.add_argument("tree", nargs="?", default="/", help="the directory of the tree (default: /)")
    parser.add_argument("--accept", action="append", default=[], metavar="PATH", help="a path that is accepted")
    options = parser.parse_args()
    try:
        findings = without(scan(options.tree), options.accept)
    except OSError as error:
        parser.error(str(error))
    for found in findings:
        print(f"{'remark' if found.is_remark else 'found'}  {found}")
    return 1 if any(not found.is_remark for found in findings) else 0
