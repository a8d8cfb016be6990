# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for docker: images whose name has `plugin` install a file, other ones are a process that runs.

It records its commands in /var/log/stand-in-docker, and fails while /run/docker-is-down exists. The containers are the
units docker-NAME.service, so that systemd knows which of them run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

UNIT = "docker-{}.service"


def run(arguments: list[str]) -> int:
    """docker run: options, image, command."""
    options = [argument for argument in arguments if argument.startswith("--")]
    values = dict(option.partition("=")[::2] for option in options)
    name = arguments[arguments.index("--name") + 1] if "--name" in arguments else ""
    image = next(word for word in arguments if "/" in word and not word.startswith("-"))
    if "plugin" in image:
        libraries = Path(values["--volume"].partition(":")[0]) / "tcpxo/lib64"
        libraries.mkdir(parents=True, exist_ok=True)
        (libraries / "libnccl-net.so").write_text(image)
        (libraries / "nccl-env-profile.sh").write_text('export NCCL_PROFILE_OF="$NCCL_LIB_DIR"\n')
        return 0
    return subprocess.run(["systemd-run", "--quiet", f"--unit={UNIT.format(name)}", "sleep", "1000"]).returncode


def names() -> list[str]:
    """The containers that run."""
    command = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active", UNIT.format("*")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[0].removeprefix("docker-").removesuffix(".service") for line in lines]


def main() -> int:
    """Do as docker does."""
    command, *arguments = sys.argv[1:]
    with open("/var/log/stand-in-docker", "a", encoding="utf-8") as log:
        log.write(json.dumps([command, *arguments]) + "\n")
    if Path("/run/docker-is-down").exists():
        print("Cannot connect to the Docker daemon", file=sys.stderr)
        return 1
    if command == "run":
        return run(arguments)
    if command == "rm":
        if arguments[-1] not in names():
            print(f"Error response from daemon: No such container: {arguments[-1]}", file=sys.stderr)
            return 1
        return subprocess.run(["systemctl", "stop", UNIT.format(arguments[-1])]).returncode
    if command == "ps":
        wanted = arguments[-1].removeprefix("name=^").removesuffix("$")
        print("".join(f"{name}\n" for name in names() if name == wanted), end="")
        return 0
    return 125


if __name__ == "__main__":
    sys.exit(main())
