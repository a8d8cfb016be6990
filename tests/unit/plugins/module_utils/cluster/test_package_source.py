# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `packages` of the cluster file: what it may be, and the entries of the module that follow from it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    Document,
    ModelError,
    load,
    model_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.package_source import (
    files_version,
    package_entries,
    package_file,
)

SHA = "5F70BF18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
SMD = "slurm-smd_25.11.2-1_amd64.deb"
SLURMD = "slurm-smd-slurmd_25.11.2-1_amd64.deb"
URL = f"https://packages.example.org/slurm/{SMD}?token=x"
REPOSITORY = "https://packages.example.org/slurm noble main"
SOURCES = "allowed: distribution, schedmd, or a mapping with repository and key, or with files"


def cluster(packages: Any) -> dict[str, Any]:
    """A cluster file with these packages."""
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "x",
        "controllers": "head",
        "hardware": {"a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}},
        "nodes": [{"hosts": "n1", "hardware": "a"}],
        "partitions": [{"name": "p", "nodes": "ALL"}],
        "packages": packages,
    }


def problems(packages: Any) -> list[str]:
    """What is wrong with them."""
    try:
        load(Document("x.cluster.yml", cluster(packages)))
    except ModelError as error:
        return error.problems
    return []


def url(**changes: str) -> dict[str, str]:
    """A file by URL."""
    return {"url": URL, "sha256": SHA, **changes}


@pytest.mark.parametrize(
    "packages",
    [
        "distribution",
        "schedmd",
        {"repository": REPOSITORY, "key": "schedmd.asc"},
        {"repository": "https://packages.example.org/slurm ./", "key": url(url="https://packages.example.org/key.gpg")},
        {"files": [url(), {"file": f"packages/{SLURMD}"}]},
    ],
    ids=["distribution", "schedmd", "repository", "flat repository", "files"],
)
def test_package_sources(packages: Any) -> None:
    variables = load(Document("x.cluster.yml", cluster(packages))).variables
    assert model_errors(variables, ["head", "n1"]) == []
    if isinstance(packages, str):
        assert variables["slurm_packages"] == packages


def test_without_the_key_packages_are_those_of_the_distribution() -> None:
    assert load(Document("x.cluster.yml", cluster(None))).variables["slurm_packages"] == "distribution"


def test_values_become_those_of_apt_and_of_the_module() -> None:
    packages = {"repository": "  https://packages.example.org/slurm  noble   main  extra", "key": "k.asc"}
    found = load(Document("x.cluster.yml", cluster(packages))).variables["slurm_packages"]
    assert found["repository"] == "https://packages.example.org/slurm noble main extra"
    (entry,) = load(Document("x.cluster.yml", cluster({"files": [url()]}))).variables["slurm_packages"]["files"]
    assert entry["sha256"] == SHA.lower()


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ("shedmd", [f"packages: found 'shedmd', unknown package source, did you mean 'schedmd'? {SOURCES}"]),
        (["distribution"], [f"packages: found ['distribution'], {SOURCES}"]),
        (True, [f"packages: found True, {SOURCES}"]),
        ({}, [f"packages: found [], {SOURCES}"]),
        ({"repositry": REPOSITORY},
         ["packages.repositry: unknown key, did you mean 'repository'? allowed: repository, key, files",
          f"packages: found ['repositry'], {SOURCES}"]),
        ({"repository": REPOSITORY}, ["packages.key: missing: apt takes no repository whose key it does not have"]),
        ({"repository": REPOSITORY, "key": "k", "files": [url()]},
         [f"packages: found ['files', 'key', 'repository'], {SOURCES}"]),
        ({"files": [url()], "key": "k"}, ["packages.key: files have no key, allowed: a key with repository"]),
        ({"repository": "noble main", "key": "k"},
         ["packages.repository: found 'noble main', allowed: URL, suite and components, such as "
          "https://packages.example.org/slurm noble main"]),
        ({"repository": "https://x.example.org noble", "key": "k"},
         ["packages.repository: found 'https://x.example.org noble', 'noble' needs a component such as main"]),
        ({"repository": "https://x.example.org ./ main", "key": "k"},
         ["packages.repository: found 'https://x.example.org ./ main', './' needs no component"]),
        ({"repository": "[trusted=yes] https://x.example.org noble main", "key": "k"},
         ["packages.repository: found '[trusted=yes] https://x.example.org noble main', allowed: URL, suite and "
          "components, such as https://packages.example.org/slurm noble main"]),
        ({"repository": REPOSITORY, "key": {"url": URL}}, ["packages.key.sha256: missing"]),
        ({"repository": REPOSITORY, "key": 5},
         ["packages.key: found 5, allowed: a file with an ASCII-armored key, or a mapping with url and sha256"]),
        ({"files": []}, ["packages.files: found [], allowed: a list of files"]),
        ({"files": SMD}, [f"packages.files: found '{SMD}', allowed: a list"]),
        ({"files": [SMD]}, [f"packages.files[0]: found '{SMD}', allowed: a mapping with url, sha256, file"]),
        ({"files": [{"url": URL}]}, ["packages.files[0].sha256: missing"]),
        ({"files": [url(sha256="abc")]},
         ["packages.files[0].sha256: found 'abc', allowed: a SHA-256 checksum, 64 hexadecimal digits"]),
        ({"files": [url(url="https://[x/slurm-smd_1-1_amd64.deb")]},
         ["packages.files[0].url: found 'https://[x/slurm-smd_1-1_amd64.deb', Invalid IPv6 URL"]),
        ({"files": [url(file=SMD)]},
         ["packages.files[0]: found ['file', 'sha256', 'url'], allowed: url and sha256, or file"]),
        ({"files": [{"file": "smd.deb"}]},
         ["packages.files[0]: found 'smd.deb', allowed: a package's own name, NAME_VERSION_ARCHITECTURE.deb, such as "
          "slurm-smd_25.11.2-1_amd64.deb"]),
        ({"files": [{"file": "slurmd_24.11.5-4_amd64.deb"}]},
         ["packages.files[0]: found 'slurmd_24.11.5-4_amd64.deb', allowed: packages of SchedMD, slurm-smd and "
          "slurm-smd-*"]),
        ({"files": [{"file": SMD}, {"file": SLURMD.replace("25.11.2", "25.11.3")}]},
         ["packages.files[1]: found version 25.11.3-1, allowed: 25.11.2-1, that of packages.files[0]"]),
        ({"files": [{"file": SMD}, {"file": SLURMD.replace("amd64", "arm64")}]},
         ["packages.files[1]: found architecture arm64, allowed: amd64, that of packages.files[0]"]),
        ({"files": [{"file": SMD}, url()]},
         ["packages.files[1]: slurm-smd is listed twice, first in packages.files[0]"]),
    ],
)  # fmt: skip
def test_wrong_package_sources(packages: Any, expected: list[str]) -> None:
    assert problems(packages) == [f"x.cluster.yml: {line}" for line in expected]
    variables = load(Document("x.cluster.yml", cluster(None))).variables | {"slurm_packages": packages}
    named = [line.replace("packages.files", "slurm_packages.files") for line in expected]
    named = [line if line.startswith("slurm_") else f"slurm_{line}" for line in named]
    # An empty variable is like a key that the file does not have.
    assert model_errors(variables, ["head", "n1"]) == (named if packages else [])


@pytest.mark.parametrize(
    ("entry", "name", "version"),
    [
        ({"file": f"/srv/{SMD}"}, "slurm-smd", "25.11.2-1"),
        ({"url": "https://x.example.org/a/slurm-smd-client_25.11.2%2Bsite1-1_arm64.deb?a=b_1_c.deb"},
         "slurm-smd-client", "25.11.2+site1-1"),
        ({"file": "slurm-smd.deb"}, None, None),
        ({"file": "Slurm-smd_1_amd64.deb"}, None, None),
    ],
)  # fmt: skip
def test_names_of_files(entry: dict[str, str], name: str | None, version: str | None) -> None:
    found = package_file(entry)
    assert (found.get("name"), found.get("version")) == (name, version)


def test_entries_of_the_module() -> None:
    own = ["slurmd", "slurm-client"]
    assert package_entries(["munge", "slurmd", "munge"], "distribution", own) == [{"name": "munge"}, {"name": "slurmd"}]
    # The other packages of Slurm get the version that the host has.
    assert package_entries(["munge", "slurmd"], "distribution", own, "24.11.5-4") == [
        {"name": "munge"},
        {"name": "slurmd=24.11.5-4"},
    ]
    packages = {"files": [{"url": URL, "sha256": "a", "file": None}, {"file": SLURMD}]}
    assert package_entries(["munge", "slurm-smd", "slurm-smd-slurmd"], packages, ["slurm-smd", "slurm-smd-slurmd"]) == [
        {"name": "munge"},
        {"url": URL, "sha256": "a"},
        {"file": SLURMD},
    ]
    assert [files_version(value) for value in (packages, "schedmd", {"repository": "x"})] == ["25.11.2-1", "", ""]
