# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's registry with TLS, by the name `registry` as well as its host's, and an image in OCI's format in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from debs import HOSTS
from lab import Lab

HOST = "front"
NAME = "registry"
KEPT = "export REGISTRY_AUTH_FILE=~/registry.json"
"""Where skopeo keeps a login; its own place is a directory of the user's session, which runuser may not make."""
IMAGE = f"{NAME}:5000#debian:13"
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    f" -subj /CN={NAME} -addext subjectAltName=DNS:{NAME},DNS:{HOST} -keyout /dev/stdout 2>/dev/null"
)
FORGET = (
    "rm -f /usr/local/share/ca-certificates/gpucluster-registry.crt; update-ca-certificates --fresh >/dev/null;"
    f" sed -i '/ {NAME}$/d' /etc/hosts"
)


def login(registry: str, options: str = "", name: str = "") -> str:
    """Commands by which a user logs in at a registry, with a credential for the name that it has."""
    skopeo = f"skopeo login {options} --username $(id -un) --password-stdin {registry} >/dev/null"
    return f"{KEPT}; munge -s {name or registry} | {skopeo}"


# Commands that write a Debian 13: one that can install packages, or with the few programs that tests need, as the login
# host has them.
COMPLETE = """
apt-get -qq install --yes --no-install-recommends mmdebstrap
mmdebstrap --variant=minbase trixie /root/debian.tar
"""
SMALL = """
set -- base-files bash coreutils grep libacl1 libattr1 libc6 libcap2 libpcre2-8-0 libselinux1 libtinfo6
{ dpkg --listfiles "$@"; ls /etc/passwd /etc/group; } | sort -u |
    tar --create --file /root/debian.tar --no-recursion --files-from -
"""
PUSH = f"""
apt-get -qq install --yes --no-install-recommends skopeo
{login(f"{NAME}:5000")}
skopeo copy --retry-times 5 --format oci tarball:/root/debian.tar docker://{NAME}:5000/debian:13
rm /root/debian.tar
"""


def tls_variables(lab: Lab, directory: Path) -> dict[str, Any]:
    """Variables of a registry with TLS. The certificate is its own authority; each host knows the registry's name."""
    key, begin, certificate = lab.command(HOST, CERTIFICATE).partition("-----BEGIN CERTIFICATE-----")
    (directory / "key.pem").write_text(key)
    (directory / "key.pem").chmod(0o600)
    (directory / "certificate.pem").write_text(f"{begin}{certificate}\n")
    for host in HOSTS:
        lab.command(host, f"echo 10.213.7.70 {NAME} >>/etc/hosts")
    return {
        "registry_name": NAME,
        "registry_tls": True,
        "registry_key": str(directory / "key.pem"),
        "registry_certificate": str(directory / "certificate.pem"),
        "registry_ca": str(directory / "certificate.pem"),
    }


def push_image(lab: Lab, made: str) -> None:
    """Have an image debian:13 in the registry, made by COMPLETE or SMALL."""
    lab.script(HOST, f"set -e; exec >&2; {made}{PUSH}", b"")
