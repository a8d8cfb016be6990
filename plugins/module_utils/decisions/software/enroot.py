# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role enroot."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from ...formats.characters import one_line
from ...language.spelling import nearest
from ..known import registered
from ..known.host_paths import ENROOT_EPILOG, ENROOT_PROLOG, SCRIPTS_DIR
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, plain_file, program, role_file

SETTINGS = (
    "ENROOT_ALLOW_HTTP",
    "ENROOT_ALLOW_SUPERUSER",
    "ENROOT_BUNDLE_ALL",
    "ENROOT_BUNDLE_CHECKSUM",
    "ENROOT_CACHE_PATH",
    "ENROOT_CONFIG_PATH",
    "ENROOT_CONNECT_TIMEOUT",
    "ENROOT_DATA_PATH",
    "ENROOT_FORCE_OVERRIDE",
    "ENROOT_GZIP_PROGRAM",
    "ENROOT_LIBRARY_PATH",
    "ENROOT_LOGIN_SHELL",
    "ENROOT_MAX_CONNECTIONS",
    "ENROOT_MAX_PROCESSORS",
    "ENROOT_MOUNT_HOME",
    "ENROOT_NATIVE_OVERLAYFS",
    "ENROOT_REMAP_ROOT",
    "ENROOT_RESTRICT_DEV",
    "ENROOT_ROOTFS_WRITABLE",
    "ENROOT_RUNTIME_PATH",
    "ENROOT_SET_USER_XATTRS",
    "ENROOT_SQUASH_OPTIONS",
    "ENROOT_SYSCONF_PATH",
    "ENROOT_TEMP_PATH",
    "ENROOT_TRANSFER_RETRIES",
    "ENROOT_TRANSFER_TIMEOUT",
    "ENROOT_UNSHARE_IPC",
    "ENROOT_UNSHARE_NET",
    "ENROOT_UNSHARE_PID",
    "ENROOT_UNSHARE_UTS",
    "ENROOT_ZSTD_OPTIONS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""Keys of enroot.conf in enroot 4.1 and in the release after it (ENROOT_UNSHARE_*). enroot ignores other keys."""

FOREIGN = ("NVIDIA_", "MELLANOX_")
"""Keys of other tools, which the hooks read, begin so."""

OF_A_USER = re.compile(r"/[^%]+/([^/]*-)?%[uU]$")
"""A directory that is one user's own."""

ENVIRONMENT_NAME = re.compile(r"(?!ENROOT_)[A-Za-z_][A-Za-z0-9_]*$")
"""enroot removes other lines of environ.d."""


# -- directories -----------------------------------------------------------------------------------------------------


def directories(host: RunHost) -> dict[str, str]:
    """The directories of users by kind. `%h`, `%U` and `%u` stand for the user's home, id and name."""
    return {kind: str(host[f"enroot_{kind}_dir"]) for kind in ("runtime", "cache", "data", "config", "temp")}


def created_directories(host: RunHost) -> list[str]:
    """Directories that the prolog makes.

    It makes none in homes, because root may have no right to write to a file server.
    """
    return unique(path for path in directories(host).values() if not path.startswith("%h"))


def cleaned(host: RunHost) -> list[str]:
    """Directories that the epilog removes. A directory that is also the one of a kind to keep stays."""
    if is_login(host):
        return []
    kept = [path for kind, path in directories(host).items() if kind not in host["enroot_clean"]]
    return [path for path in created_directories(host) if path not in kept]


def is_login(host: RunHost) -> bool:
    """Whether users need these directories without a job and without a time limit, and make them in the parents."""
    return host.within("slurm_login")


def parents(host: RunHost) -> list[str]:
    """The parents of the directories that the prolog makes."""
    return unique(os.path.dirname(path) for path in created_directories(host))


def parent_mode(host: RunHost) -> str:
    """The mode of a parent."""
    return "1777" if is_login(host) else "0755"


def parent_directories(host: RunHost) -> list[dict[str, str]]:
    """The parents for slurm_files: those that exist with the right mode keep their owner and mode."""
    mode = parent_mode(host)
    states = registered.ENROOT_FACTS.of(host)["ansible_facts"]["slurm_host"]["paths"]
    there = [path for path, state in states.items() if state.endswith((f" {mode}", " 1777"))]
    new = [{"path": path, "owner": "root", "mode": mode} for path in parents(host) if path not in there]
    return new + [{"path": path, "owner": ""} for path in there]


def unique(paths: Iterable[str]) -> list[str]:
    """Each path once."""
    return list(dict.fromkeys(paths))


def for_root(path: str) -> str:
    """A directory for a shell of root that has `uid` and `user`, such as that of the prolog."""
    return path.replace("%U", "$uid").replace("%u", "$user")


def for_user(path: str) -> str:
    """A directory for a shell of the user that has `uid` and `user`, that of enroot-clean."""
    return path.replace("%h", "${HOME}").replace("%U", "${uid}").replace("%u", "${user}")


# -- refusals --------------------------------------------------------------------------------------------------------


def objections(host: RunHost) -> list[str]:
    """Why settings do not work."""
    found = []
    if wrong := [path for path in created_directories(host) if not OF_A_USER.match(path)]:
        found.append(
            f"enroot's directories: found {', '.join(wrong)}, allowed: below %h, or a path that ends in a part with %U "
            "or %u, such as /run/enroot/%U"
        )
    if unknown := unknown_settings(host):
        meant = unique(name for name in (nearest(name, SETTINGS) for name in unknown) if name)
        found.append(
            f"enroot_conf: found {', '.join(unknown)}, nearest: {', '.join(meant) or 'none'}, "
            f"allowed: {', '.join(SETTINGS)}, NVIDIA_*, MELLANOX_*"
        )
    names = [str(name) for name in host["enroot_environment"]]
    if no_names := sorted((name for name in names if not ENVIRONMENT_NAME.match(name)), key=str.lower):
        found.append(
            f"enroot_environment: found {', '.join(no_names)}, allowed: letters, digits and _; settings of enroot "
            "itself belong in enroot_conf"
        )
    return found


def unknown_settings(host: RunHost) -> list[str]:
    """Keys of enroot_conf that enroot does not have."""
    names = [str(name) for name in host["enroot_conf"]]
    unknown = (name for name in names if name not in SETTINGS and not name.startswith(FOREIGN))
    return sorted(unknown, key=str.lower)


# -- files -----------------------------------------------------------------------------------------------------------


def settings(host: RunHost) -> dict[str, str]:
    """The settings of enroot.conf: expressions of the shell, which enroot evaluates each time that it runs.

    enroot's own paths work for root only, and compressing images takes longer than reading them. The program
    enroot-data has the reason for two directories of containers; $$ is the process id of enroot. A setting of the site
    that is None removes the collection's own.
    """
    paths = {
        kind: path if path.startswith("%h") else f"$({SCRIPTS_DIR}/enroot-dir {path})"
        for kind, path in directories(host).items()
    }
    own = {
        "ENROOT_RUNTIME_PATH": paths["runtime"],
        "ENROOT_CACHE_PATH": paths["cache"],
        "ENROOT_DATA_PATH": f"$({SCRIPTS_DIR}/enroot-data $$ {paths['data']} {paths['temp']})",
        "ENROOT_CONFIG_PATH": paths["config"],
        "ENROOT_TEMP_PATH": paths["temp"],
        "ENROOT_SQUASH_OPTIONS": "-noI -noD -noF -noX -no-duplicates",
        "ENROOT_MOUNT_HOME": False,
        "ENROOT_RESTRICT_DEV": True,
        "ENROOT_ROOTFS_WRITABLE": True,
    }
    values = {**own, **host["enroot_conf"]}
    return {name: setting_text(value) for name, value in values.items() if value is not None}


def setting_text(value: Any) -> str:
    """A value in enroot.conf.

    Raises:
        ValueError: it is more than one line.
    """
    if isinstance(value, bool):
        return "y" if value else "n"
    return one_line(value).replace("%h", "${HOME}").replace("%U", "$(id -u)").replace("%u", "$(id -un)")


def files(host: RunHost) -> list[HostFile]:
    """The settings, hooks and programs of enroot on this host."""
    return [*setting_files(host), *hook_files(host), *program_files(host)]


def setting_files(host: RunHost) -> list[HostFile]:
    """The settings of enroot, and the parents of directories at each boot."""
    environment = {name: one_line(value) for name, value in host["enroot_environment"].items()}
    mounts = [one_line(line) for line in host["enroot_mounts"]]
    infiniband = host.flag("enroot", "enroot_infiniband")
    conf = host.text("enroot", "enroot.conf.j2", settings=settings(host))
    environ = host.text("enroot", "environ.env.j2", environment=environment)
    fstab = host.text("enroot", "mounts.fstab.j2", mounts=mounts, infiniband=infiniband)
    boot = host.text("enroot", "tmpfiles.conf.j2", parents=parents(host), mode=parent_mode(host))
    return [
        plain_file("/etc/enroot/enroot.conf.d/00-gpucluster.conf", conf),
        plain_file("/etc/enroot/environ.d/50-gpucluster.env", environ),
        plain_file("/etc/enroot/mounts.d/50-gpucluster.fstab", fstab),
        plain_file("/etc/tmpfiles.d/gpucluster-enroot.conf", boot),
    ]


def hook_files(host: RunHost) -> list[HostFile]:
    """The collection's own hooks."""
    extra = host.text("enroot", "extra-hooks.sh.j2")
    return [
        program("/etc/enroot/hooks.d/50-gpucluster-gpus.sh", role_file("enroot", "gpus.sh")),
        program("/etc/enroot/hooks.d/50-gpucluster-extra.sh", extra),
    ]


def program_files(host: RunHost) -> list[HostFile]:
    """The wrapper of enroot, the programs that it uses, the importer, the prolog and the epilog."""
    return [
        program("/usr/local/bin/enroot", role_file("enroot", "enroot.sh")),
        plain_file(f"{SCRIPTS_DIR}/enroot-full-disk", role_file("enroot", "full-disk.sh")),
        plain_file(f"{SCRIPTS_DIR}/enroot-export", role_file("enroot", "export.sh")),
        plain_file(f"{SCRIPTS_DIR}/enroot-list", role_file("enroot", "list.sh")),
        program(f"{SCRIPTS_DIR}/enroot-data", role_file("enroot", "enroot-data.sh")),
        program(f"{SCRIPTS_DIR}/enroot-dir", role_file("enroot", "enroot-dir.sh")),
        program(f"{SCRIPTS_DIR}/enroot-clean", clean_text(host)),
        program(f"{SCRIPTS_DIR}/enroot-import-once", role_file("enroot", "import-once.sh")),
        program(ENROOT_PROLOG, prolog_text(host)),
        program(ENROOT_EPILOG, epilog_text(host)),
    ]


def clean_text(host: RunHost) -> str:
    """The program that removes, as the user, what jobs leave."""
    paths = {kind: for_user(path) for kind, path in directories(host).items()}
    days = int(host["enroot_cache_days"])
    return host.text("enroot", "clean.sh.j2", data=paths["data"], cache=paths["cache"], days=days)


def prolog_text(host: RunHost) -> str:
    """The prolog, which makes the directories of a job's user."""
    paths = [for_root(path) for path in created_directories(host)]
    return host.text("enroot", "prolog.sh.j2", lock=lock(), directories=paths)


def epilog_text(host: RunHost) -> str:
    """The epilog, which removes directories after the last job of a user."""
    paths = [for_root(path) for path in cleaned(host)]
    temp = for_root(directories(host)["temp"])
    return host.text("enroot", "epilog.sh.j2", lock=lock(), temp=temp, cleaned=paths, scripts_dir=SCRIPTS_DIR)


def lock() -> str:
    """The function with which prologs and epilogs of a user wait for each other."""
    return role_file("enroot", "lock.sh").rstrip()
