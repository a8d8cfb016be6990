# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees for images of the lab: containers of its bare hosts, without an init and without a network of the lab."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lab import Lab, LiveRun, Run, container, podman


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
    try:
        yield Tree(lab, host, name)
    finally:
        podman("rm", "--force", "--time=0", name)
