# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the part of slurmrestd's OpenAPI document that openapi-python-client can use (docs/admin/rest.md).

usage: one_version.py VERSION < document > part
"""

from __future__ import annotations

import json
import sys

version, document = sys.argv[1], json.load(sys.stdin)
schemas = document["components"]["schemas"]
schemas = {name: entry for name, entry in schemas.items() if name.startswith(version)}
for entry in schemas.values():
    entry.pop("required", None)
    for name, schema in entry.setdefault("properties", {}).items():
        if schema.get("type") == "boolean":
            schema.pop("default", None)  # 0, where OpenAPI wants false
        elif "$ref" in schema:
            entry["properties"][name] = {"nullable": True, "allOf": [schema]}
document["components"]["schemas"] = schemas
document["paths"] = {path: entry for path, entry in document["paths"].items() if f"/{version}/" in path}
json.dump(document, sys.stdout)
