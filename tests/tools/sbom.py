# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of what the collection needs (SBOM), in CycloneDX's JSON.

The tarball has files of this collection alone, so the components are what it needs from elsewhere. They have no
version, since a site chooses it: a property has the range that the collection accepts.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import tarball
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.platform_tables import (
    DISTRIBUTION_PACKAGES,
    SOURCES,
)
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

LICENCE = "GPL-3.0-or-later"


def needed(kind: str, name: str, accepted: str = "", scope: ComponentScope = ComponentScope.REQUIRED) -> Component:
    """Something that the collection needs, of a kind of package URL ("deb/debian"), with the versions it accepts."""
    type_, _slash, namespace = kind.partition("/")
    address = PackageURL(type_, namespace or None, name)
    properties = [Property(name="gpucluster:accepted", value=accepted)] if accepted else []
    return Component(name=name, bom_ref=str(address), purl=address, scope=scope, properties=properties)


def of_the_control_host(files: dict[str, bytes]) -> Iterator[Component]:
    """ansible-core, other collections, and the Python packages that plugins import."""
    yield needed("pypi", "ansible-core", yaml.safe_load(files["meta/runtime.yml"])["requires_ansible"])
    for name, accepted in json.loads(files[tarball.MANIFEST])["collection_info"]["dependencies"].items():
        yield needed("generic/ansible-collection", name, accepted)
    for name in re.findall(r"^\w+", files["requirements.txt"].decode(), re.MULTILINE):
        yield needed("pypi", name)


def of_hosts() -> Iterator[Component]:
    """Packages that roles install on hosts, by the keys of the cluster file: those of Debian, and of Ubuntu."""
    source = SOURCES["distribution"]
    tables = (DISTRIBUTION_PACKAGES, source.packages, source.plugins)
    for name in sorted({name for table in tables for names in table.values() for name in names}):
        yield needed("deb/debian", name, scope=ComponentScope.OPTIONAL)


def sbom(path: Path) -> str:
    """The SBOM of a tarball. It depends on nothing but the tarball and this collection."""
    content = path.read_bytes()
    members = tarball.read(path)
    files = {name: text for name, (_member, text) in members.items()}
    about = json.loads(files[tarball.MANIFEST])["collection_info"]
    checksum = hashlib.sha256(content).hexdigest()
    name = f"{about['namespace']}.{about['name']}"
    address = PackageURL("generic", "ansible-collection", name, about["version"])
    collection = Component(
        name=name,
        version=about["version"],
        type=ComponentType.APPLICATION,
        description=about["description"],
        bom_ref=str(address),
        purl=address,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)],
        licenses=[LicenseExpression(LICENCE)],
        external_references=[ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(about["repository"]))],
    )
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"sha256:{checksum}"),
        metadata=BomMetaData(
            component=collection,
            timestamp=datetime.fromtimestamp(members[tarball.MANIFEST][0].mtime, timezone.utc),
        ),
        components=[*of_the_control_host(files), *of_hosts()],
    )
    bom.register_dependency(collection, bom.components)
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"
