# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that nvcrlogin of role job_tools changes: entries for other servers stay, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from programs import load

pytestmark = pytest.mark.once

OWN = "".join(f"machine {name} login $oauthtoken password NEW\n" for name in ("nvcr.io", "authn.nvidia.com"))


@pytest.fixture(scope="module", name="nvcrlogin")
def program() -> ModuleType:
    """The program."""
    module: ModuleType = load("nvcrlogin")
    return module


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("", "", id="empty"),
        pytest.param(OWN, "", id="its-own"),
        pytest.param(
            "machine quay.io login me password mine\nmachine nvcr.io\n  login $oauthtoken\n\n  password OLD\n"
            "machine authn.nvidia.com\n\tlogin $oauthtoken\n\tpassword OLD\n# other\nmachine ghcr.io\n  login me\n",
            "machine quay.io login me password mine\n# other\nmachine ghcr.io\n  login me\n",
            id="several-lines",
        ),
        pytest.param(
            "machine\n nvcr.io login a\n# mine\n password OLD # old\ndefault login b", "default login b", id="a-comment"
        ),
        pytest.param(
            "machine a login b password c machine nvcr.io login d password OLD machine e login f\n",
            "machine a login b password c  machine e login f\n",
            id="one-line",
        ),
        pytest.param(
            "  machine nvcr.io password OLD\r\nmachine a\r\n\r\n", "machine a\r\n\r\n", id="other-ends-of-lines"
        ),
        pytest.param(
            "# machine nvcr.io login a\nmachine a login machine password nvcr.io\nmachine nvcr.io.example.org login b\n"
            "machine b password default\nmacdef init\nmachine nvcr.io\nput this\n\n",
            None,
            id="what-only-looks-like-it",
        ),
        pytest.param(
            "machine nvcr.io\npassword OLD\nmacdef init\nput machine\n\nmachine a\n",
            "macdef init\nput machine\n\nmachine a\n",
            id="a-macro",
        ),
        pytest.param("machine a password \udcff\n\n\nmachine b", None, id="bytes-that-are-no-text"),
    ],
)
def test_credentials_of_enroot(nvcrlogin: ModuleType, text: str, kept: str | None) -> None:
    kept = text if kept is None else kept
    assert nvcrlogin.netrc(text, "NEW") == OWN + kept
    assert nvcrlogin.netrc(OWN + kept, "NEW") == OWN + kept
    assert nvcrlogin.netrc(text, "") == kept


def test_credentials_of_apptainer(nvcrlogin: ModuleType) -> None:
    others: dict[str, Any] = {"auths": {"quay.io": {"auth": "mine"}}, "credsStore": "pass"}
    saved = nvcrlogin.docker(json.dumps(others), "NEW")
    assert json.loads(saved)["auths"] == others["auths"] | {"nvcr.io": {"auth": "JG9hdXRodG9rZW46TkVX"}}
    assert json.loads(nvcrlogin.docker(saved, "")) == others


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"auths": null}', '"auths": found nothing, allowed: an object'),
        ('{"auths": ["secret"]}', '"auths": found list, allowed: an object'),
        ('["secret"]', "the file: found list, allowed: an object"),
        ("null", "the file: found nothing, allowed: an object"),
        ("{", "Expecting property name"),
    ],
)
def test_what_apptainer_could_not_read_either(
    nvcrlogin: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, wrong: str
) -> None:
    """One error names the file and nothing of its content, and both files are unchanged."""
    enroot, apptainer = tmp_path / ".credentials", tmp_path / "docker-config.json"
    enroot.write_text("machine a\r\n")
    apptainer.write_text(text)
    monkeypatch.setattr(nvcrlogin, "enroot_file", lambda: enroot)
    monkeypatch.setattr(nvcrlogin, "apptainer_file", lambda: apptainer)
    monkeypatch.setattr("sys.argv", ["nvcrlogin", "--remove"])
    said = nvcrlogin.changed()
    assert said.startswith(f"{apptainer}: {wrong}")
    assert "secret" not in said
    assert (enroot.read_bytes(), apptainer.read_text()) == (b"machine a\r\n", text)


def test_files_are_kept_byte_for_byte(nvcrlogin: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    enroot = tmp_path / ".credentials"
    enroot.write_bytes(b"machine a\r\n  password \xff\r\n")
    monkeypatch.setattr(nvcrlogin, "enroot_file", lambda: enroot)
    monkeypatch.setattr(nvcrlogin, "apptainer_file", lambda: tmp_path / "docker-config.json")
    nvcrlogin.save("NEW")
    assert enroot.read_bytes() == OWN.encode() + b"machine a\r\n  password \xff\r\n"
    nvcrlogin.save("")
    assert enroot.read_bytes() == b"machine a\r\n  password \xff\r\n"
