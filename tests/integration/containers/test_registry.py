# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's registry, as users push to it and pull from it in jobs. An image is made of one program, busybox.

The tests run in this order: the registry is plain at first, has TLS then, and is a cache in the end.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from debs import Site, as_user
from images import HOST, KEPT, NAME, login
from lab import Lab, Run
from plays import Case, role

ADDRESS = f"{HOST}:5000"


def tarball(files: dict[str, bytes]) -> bytes:
    """A tar archive of programs."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def image(greeting: str, busybox: bytes) -> bytes:
    """An image with a file /greeting, as a tar archive of the Open Container Initiative's image-layout."""
    blobs: dict[str, bytes] = {}

    def described(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        kind = f"application/vnd.oci.image.{kind}"
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    layer = described(tarball({"bin/cat": busybox, "bin/sh": busybox, "greeting": greeting.encode()}), "layer.v1.tar")
    system = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    config = described(json.dumps(system).encode(), "config.v1+json")
    manifest = {"schemaVersion": 2, "config": config, "layers": [layer]}
    index = {"schemaVersion": 2, "manifests": [described(json.dumps(manifest).encode(), "manifest.v1+json")]}
    return tarball(blobs | {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()})


def push(lab: Lab, greeting: str, address: str = ADDRESS, options: str = "--dest-tls-verify=false") -> None:
    """Push the image that has this greeting, and the name, below the name of alice."""
    busybox = lab.script(HOST, "cat /usr/bin/busybox", b"")
    unpack = "rm -rf image && mkdir image && tar -x -C image"
    lab.script(HOST, f"runuser -l alice -c '{unpack}'", image(greeting, busybox))
    as_user(lab, f"{KEPT}; skopeo copy {options} oci:image docker://{address}/alice/{greeting}:1 2>&1 && rm -r image")


def pulled(lab: Lab, greeting: str, options: str = "", node: str = "box01") -> str:
    """What a job says of an image that it has pulled, not found in the user's cache."""
    job = (
        f"timeout 180 srun -w {node} apptainer exec {options} docker://{ADDRESS}/alice/{greeting}:1 cat /greeting 2>&1"
    )
    return str(as_user(lab, f"apptainer cache clean --force >/dev/null 2>&1; {job} || echo failed"))


def secrets(tls: dict[str, Any]) -> list[str]:
    """The lines of the registry's key."""
    return Path(tls["registry_key"]).read_text().splitlines()[1:-1]


@pytest.fixture(scope="session", autouse=True)
def tools(lab: Lab) -> None:
    """skopeo and busybox."""
    lab.script(HOST, "apt-get -qq install --yes --no-install-recommends skopeo busybox-static >&2", b"")


def test_a_job_pulls_what_a_user_has_pushed(lab: Lab) -> None:
    as_user(lab, login(ADDRESS, "--tls-verify=false"))
    push(lab, "hello")
    assert pulled(lab, "hello", "--no-https").endswith("hello")
    lab.command(HOST, "systemctl restart docker-registry")
    lab.wait_for(HOST, f"skopeo list-tags --tls-verify=false docker://{ADDRESS}/alice/hello", '"1"')
    assert pulled(lab, "hello", "--no-https", "box02").endswith("hello")


def test_check_mode_tells_of_tls_and_keeps_the_key_secret(lab: Lab, tls: dict[str, Any], planned: Run) -> None:
    services = [result for _host, task, result in planned.results if task.endswith("registry : Run the services")]
    assert "nginx" in [item["item"] for result in services for item in result["results"] if item["changed"]]
    assert lab.command(HOST, "ls /usr/local/share/ca-certificates") == ""
    assert [secret for secret in secrets(tls) if secret in planned.output] == []


@pytest.mark.usefixtures("equipped")
def test_a_registry_with_tls_needs_nothing_of_its_users(lab: Lab, tls: dict[str, Any], equipping: Run) -> None:
    assert [secret for secret in secrets(tls) if secret in equipping.output] == []
    assert lab.command(HOST, "stat -c '%U %a' /etc/docker/registry/tls.key") == "root 400"
    assert pulled(lab, "hello", node="box02").endswith("hello")
    as_user(lab, login(ADDRESS, name=f"{NAME}:5000"))
    push(lab, "bonjour", options="")


@pytest.mark.usefixtures("equipped")
def test_apptainer_pushes_over_tls_after_a_login(lab: Lab) -> None:
    registry = f"{NAME}:5000"
    apptainer = f"munge -s {registry} | apptainer registry login --username $USER --password-stdin oras://{registry}"
    build = "mkdir -p box && cp /usr/bin/busybox box/ && apptainer build --force box.sif box >/dev/null 2>&1"
    as_user(lab, f"{build} && {apptainer} 2>&1")
    as_user(lab, f"apptainer push box.sif oras://{registry}/alice/box:1 2>&1")
    assert "DENIED" in as_user(lab, f"apptainer push box.sif oras://{registry}/site/box:1 2>&1 || :")
    as_user(lab, f"apptainer pull --force pulled.sif oras://{registry}/alice/box:1", "bob")
    as_user(lab, f"apptainer registry logout oras://{registry}; rm -r box box.sif")


@pytest.mark.usefixtures("equipped")
def test_deleted_images_leave_the_disk(lab: Lab) -> None:
    layers = "find /var/lib/docker-registry/docker/registry/v2/blobs -name data -size +100k | wc -l"
    before = int(lab.command(HOST, layers))
    as_user(lab, f"{KEPT}; skopeo delete docker://{ADDRESS}/alice/hello:1")
    lab.command(HOST, "systemctl start gpucluster-registry-clean")
    assert int(lab.command(HOST, layers)) == before - 1
    lab.wait_for(HOST, f"skopeo list-tags docker://{ADDRESS}/alice/bonjour", '"1"')
    assert "manifest unknown" in pulled(lab, "hello")
    assert pulled(lab, "bonjour").endswith("bonjour")


@pytest.mark.usefixtures("equipped")
def test_a_registry_that_is_away_is_told_and_plain_jobs_go_on(lab: Lab) -> None:
    lab.command(HOST, "systemctl stop nginx")
    try:
        assert "connection refused" in pulled(lab, "bonjour")
        assert as_user(lab, "timeout 180 srun -w box01 hostname") == "box01"
    finally:
        lab.command(HOST, "systemctl start nginx")


@pytest.mark.usefixtures("equipped")
def test_a_full_disk_of_the_registry_is_told_and_plain_jobs_go_on(lab: Lab) -> None:
    uploads = "/var/lib/docker-registry/docker/registry/v2/repositories/alice/small"
    lab.command(HOST, f"mkdir -p {uploads} && mount -t tmpfs -o size=64k,uid=$(id -u docker-registry) small {uploads}")
    try:
        # Root, since skopeo remembers where a user has pushed a layer, and the registry would only link it.
        copy = f"skopeo copy docker://{ADDRESS}/alice/bonjour:1 docker://{ADDRESS}/alice/small:1"
        lab.command(HOST, f"{login(ADDRESS, name=f'{NAME}:5000')}; {copy}", rc=1)
        lab.wait_for(HOST, "journalctl -u docker-registry -n 50", "no space left on device")
        assert as_user(lab, "timeout 180 srun -w box01 hostname") == "box01"
        assert pulled(lab, "bonjour").endswith("bonjour")
    finally:
        lab.command(HOST, f"umount {uploads}; rmdir {uploads}")


@pytest.mark.usefixtures("equipped")
def test_a_full_disk_under_the_users_cache_is_told_and_plain_jobs_go_on(lab: Lab) -> None:
    cache = "/home/alice/.cache/images"
    as_user(lab, f"mkdir -p {cache}")
    lab.command("box01", f"mount -t tmpfs -o size=64k,uid=2001,mode=0700 small {cache}")
    try:
        assert "no space left on device" in pulled(lab, "bonjour")
        assert as_user(lab, "timeout 180 srun -w box01 hostname") == "box01"
    finally:
        lab.command("box01", f"umount {cache}")


def answer(lab: Lab, greeting: str, accept: str) -> str:
    """The registry's answer to a request for a manifest, as enroot and curl make their first one."""
    request = f"u.Request('https://{ADDRESS}/v2/alice/{greeting}/manifests/1', method='HEAD', headers={accept})"
    status = f'python3 -c "import urllib.request as u; print(u.urlopen({request}).status)"'
    return str(lab.command("box01", status))


UPSTREAM = f"{HOST}:5001"


@contextmanager
def upstream(lab: Lab) -> Iterator[Case]:
    """Another registry, on a port of its own, and how the role makes the cluster's registry a cache of it.

    Neither has an image.
    """
    setting = "-E REGISTRY_HTTP_NET=tcp -E REGISTRY_HTTP_ADDR=:5001"
    store = "-E REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY=/tmp/upstream"
    serve = "docker-registry serve /etc/docker/registry/config.yml"
    lab.command(HOST, f"systemd-run --unit=upstream {setting} {store} {serve} 2>&1")
    lab.wait_for(HOST, "ss -Hltn sport = :5001", "5001")
    variables = {"registry_upstream": f"http://{UPSTREAM}", "registry_dir": "/var/lib/images"}
    try:
        yield Case(HOST, [role("slurm", "gather"), role("registry")], variables)
    finally:
        lab.command(HOST, "systemctl stop upstream docker-registry nginx; rm -rf /tmp/upstream /var/lib/images")


@pytest.fixture(scope="module")
def cache(lab: Lab, equipped: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """The registry is a cache of another one, as the role makes it, and has none of its images any more."""
    other = Case("box01", [role("registry", "clients")], {"registry_name": "10.213.7.70"})
    with upstream(lab) as of_upstream:
        yield equipped.cases(tmp_path_factory.mktemp("cache"), {"another name": other, "cache": of_upstream})


def test_a_name_that_is_not_in_the_certificate_is_told(cache: dict[str, Run]) -> None:
    assert "Check that the registry answers" in str(cache["another name"].failed["box01"])
    assert "certificate" in str(cache["another name"].failed["box01"])


def test_a_cache_has_what_another_registry_had(lab: Lab, cache: dict[str, Run]) -> None:
    assert cache["cache"].failed == {}
    push(lab, "hola", UPSTREAM)
    assert pulled(lab, "hola").endswith("hola")
    # The image is in the format of the Open Container Initiative; enroot's first request names no format.
    assert [answer(lab, "hola", accept) for accept in ("{}", "{'Accept': '*/*'}")] == ["200", "200"]
    lab.command(HOST, "systemctl stop upstream")
    assert pulled(lab, "hola", node="box02").endswith("hola")


def test_enroot_and_apptainer_pull_an_image_through_the_cache(lab: Lab, real: Site, tmp_path: Path) -> None:
    """The same with the real enroot. The cluster has its own registry again in the end."""
    with upstream(lab) as of_upstream:
        assert real.cases(tmp_path, {"cache": of_upstream})["cache"].failed == {}
        push(lab, "ciao", UPSTREAM)
        image_name = f"{NAME}:5000#alice/ciao:1"
        said = as_user(lab, f"timeout 180 srun -w box01 --container-image={image_name} /bin/cat /greeting 2>&1")
        assert said.splitlines()[-1] == "ciao"
        assert pulled(lab, "ciao").endswith("ciao")
    back = real.cases(tmp_path, {"back": replace(of_upstream, variables={})})
    assert back["back"].failed == {}
