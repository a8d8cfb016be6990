# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees for images of the lab: containers of its bare hosts, without an init and without a network of the lab."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from lab import ROOT, Lab, LiveRun, Run, container, podman

# The ssh configuration of the lab has its own hosts only.
SSH_OPTIONS = (
    "--user=admin",
    f"--private-key={ROOT}/.lab/id_ed25519",
    "--ssh-common-args=-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
)
"""Options of ansible-playbook for hosts that the tests make."""

IMAGE = "localhost/gpucluster-lab-node-image"
KERNEL = "linux-image-cloud-amd64 initramfs-tools busybox e2fsprogs overlayroot"
"""Packages of an image that a machine boots."""
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=img-ctl"
    " -addext subjectAltName=DNS:img-ctl -keyout key.pem -out certificate.pem"
)
"""The command that makes the certificate of the registry, which is its own authority, and its key."""
GPU = b"c /dev/nvidia0 0666 - - - 195:0\n"
"""A file of tmpfiles.d for a stand-in of a GPU: a device file without a driver."""


@dataclass(frozen=True)
class Tree:
    """A container in which the image of a host is built, by its name."""

    lab: Lab
    host: str
    name: str
    builds: list[Run] = field(default_factory=list)
    """The runs of `build`, in order."""

    def start(self, *arguments: str) -> LiveRun:
        """Start image.yml for the host, on this tree."""
        options = {"image_of": self.host, "ansible_connection": "containers.podman.podman", "ansible_host": self.name}
        options["ansible_user"] = "root"
        given = [f"--extra-vars={key}={value}" for key, value in options.items()]
        return self.lab.start("image", *given, *arguments)

    def build(self, *arguments: str) -> Run:
        """Run image.yml to its end."""
        self.builds.append(self.start(*arguments).finish())
        return self.builds[-1]

    def command(self, command: str) -> str:
        """The output of a shell command in the tree. CalledProcessError if it fails."""
        return str(podman("exec", self.name, "sh", "-c", command).strip())

    def commit(self, image: str) -> str:
        """Make the tree an image of the container engine, whose hosts boot with systemd; return its name."""
        changes = ['CMD ["/sbin/init"]', "STOPSIGNAL SIGRTMIN+3"]
        podman("commit", "--quiet", *(f"--change={change}" for change in changes), self.name, image)
        return image


@contextmanager
def bare_tree(lab: Lab, host: str) -> Iterator[Tree]:
    """A tree with nothing of Slurm, from the image of the controller. It is removed at the end.

    No init runs in it, as in a chroot. The engine shows no hosts file of its own there.
    """
    name = container(f"build-{host}")
    podman("rm", "--force", "--ignore", "--time=0", name)
    runtime, image = podman("inspect", "--format={{.OCIRuntime}} {{.ImageName}}", container(lab.controller)).split()
    limits = ["--ulimit=nofile=20000:20000", "--ulimit=nproc=32768:32768"]
    options = ["--detach", "--no-hosts", f"--runtime={runtime}", *limits, f"--name={name}"]
    podman("run", *options, image, "sleep", "infinity")
    # For apptainer: a mirror of unstable may be a week behind.
    podman("exec", name, "sh", "-c", """echo 'Acquire::Check-Valid-Until "false";' >/etc/apt/apt.conf.d/lab-unstable""")
    try:
        yield Tree(lab, host, name)
    finally:
        podman("rm", "--force", "--time=0", name)


def bare_image(lab: Lab) -> str:
    """The image of the lab's bare hosts."""
    return str(podman("inspect", "--format={{.ImageName}}", container(lab.controller)).strip())


def cluster_key(lab: Lab) -> bytes:
    """The munge key of the cluster."""
    return Path(ROOT, "molecule", lab.scenario, "inventory/secrets", lab.cluster["name"], "munge.key").read_bytes()


def addresses(lab: Lab) -> dict[str, str]:
    """The addresses of the nodes in the cluster file."""
    return dict(zip(lab.nodes, expand(lab.cluster["nodes"][0]["address"])))


def boot_files(key: bytes) -> dict[str, tuple[bytes, int]]:
    """What cloud-init would write below /etc: the key of the administrator, and the munge key if one is given.

    The GPU is there as well.
    """
    files = {
        "ssh/authorized_keys.d/admin": ((ROOT / ".lab/id_ed25519.pub").read_bytes(), 0o644),
        "tmpfiles.d/lab-gpu.conf": (GPU, 0o644),
    }
    return {**files, "munge/munge.key": (key, 0o400)} if key else files


def boot(lab: Lab, image: str, host: str, key: bytes, address: str = "") -> str:
    """Start a host of the cluster file, or another one, from an image.

    What cloud-init would write is there before its first boot: its name, its address, and `boot_files`. Returns the
    name of its container.
    """
    name = create(lab, host, address or addresses(lab)[host], image)
    subprocess.run(["podman", "cp", "-", f"{name}:/etc"], input=archive(boot_files(key)), check=True)
    podman("start", name)
    return name


def boot_read_only(lab: Lab, host: str, tmpfiles: str, writable: Iterable[str], directory: Path) -> None:
    """Start a node from IMAGE whose root cannot be written.

    It has a tmpfs on the directories `writable`, and `tmpfiles` in tmpfiles.d. The command for the key reads a file
    that is mounted. `directory` is for these files.
    """
    files = {"/etc/site/munge.key": cluster_key(lab), "/etc/tmpfiles.d/lab.conf": tmpfiles.encode() + GPU}
    options = [f"--tmpfs={path}:mode=755" for path in writable if path not in ("/run", "/tmp")]  # as each host has them
    for path, content in files.items():
        (directory / Path(path).name).write_bytes(content)
        options.append(f"--volume={directory / Path(path).name}:{path}:ro")
    podman("start", create(lab, host, addresses(lab)[host], IMAGE, "--read-only", "--read-only-tmpfs=false", *options))


def create(lab: Lab, host: str, address: str, image: str, *options: str) -> str:
    """Make a host that does not run yet, with the flags of the lab's hosts and others; the name of its container."""
    given = json.loads(podman("inspect", container(lab.controller)))[0]["Config"]["CreateCommand"]
    own = ("--name", "--hostname", "--ip", "--mac-address", "--label", "--volume", "--detach")
    kept = [word for word in given[2:-1] if not word.startswith(own)]
    name = str(container(host))
    podman("create", *kept, *options, "--no-hosts", f"--name={name}", f"--hostname={host}", f"--ip={address}", image)
    return name


def power_off(*hosts: str) -> None:
    """End hosts at once, and remove them."""
    podman("rm", "--force", "--ignore", "--time=0", *(container(host) for host in hosts))


def archive(files: dict[str, tuple[bytes, int]]) -> bytes:
    """A tar archive with files of root: content and mode by path."""
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w") as tar:
        for path, (content, mode) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return result.getvalue()
