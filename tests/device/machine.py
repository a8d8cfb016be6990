# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine has for its GPUs: NVIDIA's programs, libraries and device files, the compiler, and its cgroups."""

from __future__ import annotations

import glob
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("/usr/local/nvidia/bin", "/usr/local/cuda*/bin", "/opt/cuda*/bin", "/usr/bin", "/usr/local/bin", "/opt/bin")
LIBRARIES = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")
DRIVER = r"lib(cuda|nvidia-(ml|ptxjitcompiler|nvvm|gpucomp|cfg|nscq|sandboxutils)[\w-]*)\.so.*"
"""The libraries of the driver that Slurm, nvidia-smi and CUDA programs load."""
CGROUPS = "/sys/fs/cgroup"


@dataclass
class Machine:
    """What was found. An empty path was not found."""

    nvidia_smi: str = ""
    libraries: list[str] = field(default_factory=list)
    """Files of the driver, by the names under which programs load them."""
    devices: list[str] = field(default_factory=list)
    """Character devices, such as /dev/nvidia0 and /dev/nvidiactl."""
    nvcc: str = ""
    cublas: str = ""
    """Directory of libcublas.so."""
    torch: str = ""
    """The release of PyTorch in the Python environment of `check`."""
    driver_files: str = ""
    """Directory in place of /proc/driver, for stand-ins only."""
    stand_ins: bool = False

    def has(self, name: str) -> bool:
        """Whether a library of the driver was found."""
        return any(Path(path).name.startswith(name) for path in self.libraries)


def program(name: str) -> str:
    """The path of a program, in PATH or where NVIDIA's programs lie; empty if there is none."""
    found = shutil.which(name)
    places = [*PROGRAMS, f"{sys.prefix}/lib/python3*/site-packages/nvidia/cu*/bin", f"{sys.prefix}/bin"]
    paths = [path for place in places for path in sorted(glob.glob(f"{place}/{name}"), reverse=True)]
    return found or next((path for path in paths if os.access(path, os.X_OK)), "")


def cached_libraries() -> dict[str, str]:
    """The libraries that the loader knows: path by name."""
    try:
        listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(re.findall(r"^\s+(\S+) \(.*x86-64.*\) => (\S+)$", listed, re.MULTILINE))


def library_places(cached: dict[str, str]) -> list[str]:
    """The directories that may have the driver's libraries."""
    known = [os.path.dirname(path) for name, path in cached.items() if re.fullmatch(DRIVER, name)]
    own = [place for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place]
    return list(dict.fromkeys([*own, *LIBRARIES, *known]))


def driver_libraries(places: Iterable[str]) -> list[str]:
    """The files of the driver's libraries, each name once."""
    found: dict[str, str] = {}
    for place in places:
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else []:
            path = f"{place}/{name}"
            # A stub of the toolkit has the functions without their work.
            if re.fullmatch(DRIVER, name) and os.path.isfile(path) and "/stubs" not in place:
                found.setdefault(name, path)
    return list(found.values())


def cublas_place(cached: dict[str, str]) -> str:
    """The directory of libcublas.so, of the toolkit or of the Python environment; empty if there is none."""
    patterns = [
        f"{sys.prefix}/lib/python3*/site-packages/nvidia/c*/lib/libcublas.so.*",
        "/usr/local/cuda*/lib64/libcublas.so.*",
        "/usr/local/cuda*/targets/x86_64-linux/lib/libcublas.so.*",
    ]
    paths = [path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)]
    paths += [path for name, path in cached.items() if name.startswith("libcublas.so.")]
    return os.path.dirname(paths[0]) if paths else ""


def torch_release() -> str:
    """The release of PyTorch in this Python environment, such as 2.11.0+cu130; empty without it."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def device_files() -> list[str]:
    """NVIDIA's device files, those of MIG included."""
    found = glob.glob("/dev/nvidia*") + glob.glob("/dev/nvidia-caps/*") + glob.glob("/dev/nvidia-caps-imex-channels/*")
    return sorted(path for path in found if Path(path).is_char_device())


def find() -> Machine:
    """What this machine has."""
    cached = cached_libraries()
    return Machine(
        nvidia_smi=program("nvidia-smi"),
        libraries=driver_libraries(library_places(cached)),
        devices=device_files(),
        nvcc=program("nvcc"),
        cublas=cublas_place(cached),
        torch=torch_release(),
    )


def cgroup_kind(mounts: str) -> str:
    """The kind of cgroups that Slurm would use on a machine: "v1", "v2" or "" for none.

    Args:
        mounts: the content of /proc/self/mounts. Slurm takes v2 if /sys/fs/cgroup itself is cgroup2 (`autodetect`).
    """
    kinds = dict(re.findall(rf"^\S+ ({CGROUPS}\S*) (\S+)", mounts, re.MULTILINE))
    if kinds.get(CGROUPS) == "cgroup2":
        return "v2"
    needed = {f"{CGROUPS}/{name}" for name in ("devices", "freezer", "memory", "cpuset")}
    return "v1" if all(kinds.get(path) == "cgroup" for path in needed) else ""


def cgroups() -> tuple[str, str]:
    """The kind of cgroups that can be written here, and why there is none."""
    kind = cgroup_kind(Path("/proc/self/mounts").read_text())
    if not kind:
        return "", f"neither cgroup2 at {CGROUPS} nor all v1 hierarchies that Slurm needs"
    probe = Path(CGROUPS, *(["devices"] if kind == "v1" else []), f"gpucluster-check-{os.getpid()}")
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return "", f"{kind} is there, but {error.strerror}: {probe}"
    return kind, ""


def enter_cgroup() -> None:
    """Move this process into a cgroup of its own, on a machine with v2.

    slurmd refuses a cgroup with processes of another PID namespace, and it makes the cgroups of jobs next to the one of
    process 1, below a cgroup without processes (cgroup_v2.c: cgroup_p_setup_scope, _get_init_cg_path). This process is
    number 1 of its namespace.
    """
    if cgroup_kind(Path("/proc/self/mounts").read_text()) != "v2":
        return
    own = Path(CGROUPS, f"slurm-check-{os.getpid()}", "init")
    with suppress(OSError):  # `cgroups` says why they cannot be written
        own.mkdir(parents=True)
        (own / "cgroup.procs").write_text("0")


def slurm_cgroups() -> set[Path]:
    """The cgroups that Slurm makes at the top of each hierarchy."""
    patterns = ("slurm*", "*/slurm*", "system.slice/*slurm*")
    return {Path(path) for pattern in patterns for path in glob.glob(f"{CGROUPS}/{pattern}") if os.path.isdir(path)}


def remove_cgroups(tops: Iterable[Path]) -> None:
    """Remove cgroups that have no processes, the innermost first."""
    for top in tops:
        for place, _directories, _files in os.walk(top, topdown=False):
            with suppress(OSError):
                os.rmdir(place)
