# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of roles whose values become parts of files on the hosts, and what each of these files can express.

Ansible's argument specs know types only. A value that the file of a program cannot express would fail on a host, in the
middle of a run, or would mean something else to the program. docs/design/formats.md has the formats.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..configuration.conf_file import value_text
from ..formats import file_values, mariadb_values, systemd
from ..formats.characters import one_line
from ..formats.directory_purposes import directory_for, within
from ..formats.package_names import package, package_source
from ..language.formatting import short, shown
from .keys import KEYS
from .named_files import name_error
from .schema import url

Check = Callable[[Any], object]
"""Raises ValueError for a value that cannot be written, with what is allowed."""

_DATABASE = re.compile(r"\w{1,64}", re.ASCII)
_DATABASE_USER = re.compile(r"[\w.-]{1,80}", re.ASCII)
_BRANCH = re.compile(r"[0-9]{3,4}")
_DRIVER_VERSION = re.compile(r"[0-9]{3,4}(\.[0-9]{1,4}){0,3}")
_IDS = re.compile(r"[1-9][0-9]{0,9}(-[1-9][0-9]{0,9})?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,254}")
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CHECK = re.compile(r"[A-Za-z0-9_-]{1,100}")
_VARIABLE = re.compile(r"(?!ENROOT_)[A-Za-z_][A-Za-z0-9_]*")
_PROGRAM = re.compile(r"(?:/[^/\s]+)+|[^/\s]+")
_ACCEPTED = re.compile(r"(?:/[^/*?\[\]]+)+|(?:/[^/*?\[\]]+){2}/.*[^/].*")
_SETTING = re.compile(r"[a-z0-9_][a-z0-9_./-]*")


def _optional(check: Check) -> Check:
    """A check of a value that may be empty."""
    return lambda value: value in (None, "") or check(value)


def _kernel_setting(value: Any) -> str:
    """The name of a setting of the kernel, in sysctl.d(5)."""
    if not _SETTING.fullmatch(str(value)):
        raise ValueError("allowed: names as sysctl has them, such as net.core.somaxconn")
    return str(value)


def _login(value: Any) -> str:
    """A host as `ssh -J` takes it."""
    if not _LOGIN.fullmatch(str(value)):
        raise ValueError("allowed: a name or address, or one with a port, such as login.example.org:2222")
    return str(value)


def _number(value: Any) -> int:
    """A whole number from 0, which programs keep in 64 bits."""
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,19}", str(value)) or int(value) >= 2**63:
        raise ValueError("allowed: a whole number")
    return int(value)


def _from_to(least: int, most: int, allowed: str) -> Check:
    """A check of a whole number."""

    def check(value: Any) -> None:
        if isinstance(value, bool) or not re.fullmatch("[0-9]{1,10}", str(value)) or not least <= int(value) <= most:
            raise ValueError(f"allowed: {allowed}")

    return check


def _system_id(value: Any) -> None:
    """The id of a user of a program, who is not root. 65534 is nobody, and two numbers mean that there is none."""
    allowed = "an id from 1 to 65533, or from 65536 to 4294967293"
    _from_to(1, 2**32 - 3, allowed)(value)
    if int(value) in (65534, 65535):
        raise ValueError(f"allowed: {allowed}")


def _mount_point(value: Any) -> None:
    """A directory on which something is mounted, in a list with blanks."""
    if not _without_blanks(value).startswith("/") or ".." in str(value).split("/"):
        raise ValueError("allowed: an absolute path without blanks, '#' and '..', such as /opt/software")


def _variable(value: Any) -> None:
    """The name of an environment variable that is no setting of enroot."""
    if not _VARIABLE.fullmatch(str(value)):
        raise ValueError("allowed: letters, digits and '_'; settings of enroot belong in enroot_conf")


def _without_blanks(value: Any) -> str:
    """A text in plugstack.conf or in a list with blanks, which have no quotes."""
    text = one_line(value)
    if not text or "#" in text or text.split() != [text]:
        raise ValueError("allowed: a word without blanks and '#'")
    return text


def _database(value: Any) -> str:
    """The name of a database, in SQL and in commands."""
    if not _DATABASE.fullmatch(str(value)):
        raise ValueError("allowed: up to 64 letters, digits and '_'")
    return str(value)


def _database_user(value: Any) -> str:
    """The name of a user of MariaDB."""
    if not _DATABASE_USER.fullmatch(str(value)):
        raise ValueError("allowed: up to 80 letters, digits, '_', '.' and '-'")
    return str(value)


def _branch(value: Any) -> str:
    """A branch of NVIDIA's driver, which the names of its packages have."""
    if not _BRANCH.fullmatch(str(value)):
        raise ValueError("allowed: a branch of the driver, such as 550")
    return str(value)


def _driver_version(value: Any) -> str:
    """A version of NVIDIA's driver."""
    if not _DRIVER_VERSION.fullmatch(str(value)):
        raise ValueError("allowed: a version of the driver, such as 550.163.01")
    return str(value)


def _ids(value: Any) -> str:
    """A user id, or the first and the last one of several."""
    if not _IDS.fullmatch(str(value)):
        raise ValueError("allowed: an id such as 5001, or several such as 5001-5100")
    return str(value)


def _user(value: Any) -> str:
    """A user of a host, who may be one of a directory."""
    if not _USER.fullmatch(str(value)):
        raise ValueError("allowed: the name of a user: letters, digits, '.', '_', '@' and '-'")
    return str(value)


def _file(value: Any) -> str:
    """The name of a file in a directory of a host."""
    if not _FILE.fullmatch(str(value)):
        raise ValueError("allowed: up to 100 letters, digits, '.', '_' and '-', a letter or digit first")
    return str(value)


def _check_name(value: Any) -> str:
    """The name of a health check of the site."""
    if not _CHECK.fullmatch(str(value)):
        raise ValueError("allowed: up to 100 letters, digits, '_' and '-'")
    return str(value)


def _script(value: Any) -> None:
    """The text of a script."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("allowed: the text of a script")


def _slurmdbd(value: Any) -> None:
    """A value in slurmdbd.conf; None removes the parameter."""
    if value is not None:
        value_text(value)


def _directive(value: Any) -> None:
    """A value in apptainer.conf; a list is several lines."""
    for line in value if isinstance(value, list) else [value]:
        one_line(line)


def _control_directory(value: Any) -> None:
    """A directory of the control host that a run fills. A relative one is below that of the cluster file or the run."""
    path = os.path.expanduser(one_line(value))
    parts = path.split("/")
    if not path or ".." in parts:
        raise ValueError("allowed: a directory without '..'")
    if path.startswith("/"):
        directory_for("report")(path)


def _path(value: Any) -> None:
    """A file or a directory of a host."""
    path = one_line(value)
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError("allowed: an absolute path without '..'")


def _measured(value: Any) -> None:
    """A directory of hosts in which fio writes."""
    if directory_for("local")(value) == "/":
        raise ValueError("allowed: a directory below /")


def _json_file(value: Any) -> None:
    """A file of the control host that a run replaces, so it cannot be one of others."""
    if name_error(value) or not str(value).endswith(".json"):
        raise ValueError("allowed: a file .json next to the cluster file or below its directory, or an absolute path")


def _command(value: Any) -> None:
    """A command as a list of arguments, which have been checked before."""
    if value and not _PROGRAM.fullmatch(str(value[0])):
        raise ValueError("allowed: a program, by its name or an absolute path, and its arguments")


def _accepted(value: Any) -> None:
    """A path or a pattern of paths, which is not that of most files."""
    if not _ACCEPTED.fullmatch(one_line(value)) or ".." in str(value).split("/"):
        raise ValueError(
            "allowed: an absolute path, or a pattern in a directory below another one, such as /etc/site/*.key"
        )


def _reason(value: Any) -> None:
    """A sentence for people."""
    if not one_line(value).strip():
        raise ValueError("allowed: why the secret has to stay")


def _image(value: Any) -> str:
    """A container image, as results of acceptance runs name it (`IMAGE` in acceptance/measurements.py)."""
    if not re.fullmatch(r"[A-Za-z0-9._/@:#+-]{0,255}", str(value)):
        raise ValueError("allowed: the name of an image, of letters, digits and ./@:#+_-")
    return str(value)


VALUES: dict[str, Check] = {
    "accept_container": _image,
    "accept_disk": _measured,
    "accept_nccl_tests": _optional(_path),
    "accept_profile": _optional(_path),
    "accept_report_dir": _control_directory,
    "accept_shared": _optional(_measured),
    "accept_user": _user,
    "adopt_conf": _optional(_path),
    "apptainer_bind_paths": one_line,
    "apptainer_cache_dir": _optional(directory_for("user")),
    "apptainer_conf": _directive,
    "apptainer_fakeroot_uids": _ids,
    "apptainer_packages": package_source,
    "apptainer_suite": file_values.suite,
    "apptainer_tmp_dir": _optional(directory_for("user")),
    "base_extra_packages": package,
    "base_kernel_settings": _number,
    "base_munge_user_id": _system_id,
    "base_packages": package,
    "doctor_report": _optional(_json_file),
    "enroot_cache_days": _number,
    "enroot_cache_dir": directory_for("one_user"),
    "enroot_conf": one_line,
    "enroot_config_dir": directory_for("one_user"),
    "enroot_data_dir": directory_for("one_user"),
    "enroot_environment": one_line,
    "enroot_hooks": _script,
    "enroot_mounts": one_line,
    "enroot_packages": package_source,
    "enroot_runtime_dir": directory_for("one_user"),
    "enroot_temp_dir": directory_for("one_user"),
    "first_boot_key_command": one_line,
    "image_accepted": _reason,
    "job_tools_image": one_line,
    "job_tools_login": _optional(_login),
    "job_tools_partition": one_line,
    "job_tools_registry": one_line,
    "mariadb_settings": mariadb_values.option_value,
    "new_cluster_state_directory": _optional(directory_for("state")),
    "nvidia_driver_kernel_modules": file_values.module_name,
    "nvidia_driver_module_options": file_values.module_options,
    "nvidia_driver_branch": _optional(_branch),
    "nvidia_driver_repository": _optional(url),
    "nvidia_driver_version": _optional(_driver_version),
    "pyxis_arguments": _without_blanks,
    "pyxis_packages": package_source,
    "registry_clean": _optional(systemd.calendar),
    "registry_dir": directory_for("registry"),
    **{key.port.variable: _from_to(1, 65535, "a port, from 1 to 65535") for key in KEYS if key.port},
    "registry_upstream": _optional(url),
    "registry_upstream_password": one_line,
    "registry_upstream_username": one_line,
    "rolling_packages": package,
    "rolling_user": _user,
    "slurm_health_disk_free": _number,
    "slurm_health_limit": _from_to(1, 50, "seconds from 1 to 50, since slurmd ends the program after 60"),
    "slurm_health_mounts": _mount_point,
    "slurm_health_own_checks": one_line,
    "slurm_report_dir": _control_directory,
    "slurm_job_user_id": _system_id,
    "slurm_secret_max_age": _number,
    "slurm_user_id": _system_id,
    "slurmdbd_conf": _slurmdbd,
    "validate_mpi": one_line,
    "validate_report_dir": _control_directory,
    "validate_user": _user,
}
"""The check of a value, or of each value in a list or a mapping."""

NAMES: dict[str, Check] = {
    "apptainer_conf": one_line,
    "base_kernel_settings": _kernel_setting,
    "enroot_environment": _variable,
    "enroot_hooks": _file,
    "image_accepted": _accepted,
    "slurm_health_own_checks": _check_name,
    "mariadb_settings": mariadb_values.option_name,
    "nvidia_driver_module_options": file_values.module_name,
}
"""The check of the names in a mapping."""

OF_NAME: dict[str, dict[str, Check]] = {"slurmdbd_conf": {"StorageLoc": _database, "StorageUser": _database_user}}
"""The check of the value of one name in a mapping."""

WHOLE: dict[str, Check] = {"first_boot_key_command": _command}
"""The check of a list whose values are right."""

SECRET = frozenset({"registry_upstream_password"})
"""Variables whose values are not shown."""


def value_problems(variables: Mapping[str, Any]) -> Iterator[str]:
    """The values that cannot be written into a file, as `VARIABLE: found VALUE, allowed: VALUES`.

    variables: by name; others than those of VALUES are not checked.
    """
    for name, check in VALUES.items():
        found = variables.get(name)
        if isinstance(found, Mapping):
            own = OF_NAME.get(name, {})
            for key, value in found.items():
                if name in NAMES:
                    yield from _problems(f"{name}: the name {short(shown(key))}", key, NAMES[name], False)
                yield from _problems(f"{name}.{short(str(key))}", value, own.get(str(key), check), name in SECRET)
        elif isinstance(found, list):
            wrong = [
                problem
                for i, value in enumerate(found)
                for problem in _problems(f"{name}[{i}]", value, check, name in SECRET)
            ]
            yield from wrong or (_problems(name, found, WHOLE[name], name in SECRET) if name in WHOLE else ())
        elif found is not None:
            yield from _problems(name, found, check, name in SECRET)


def home_problems(variables: Mapping[str, Any], people: Callable[[], Any]) -> Iterator[str]:
    """The directories of users that the epilog of enroot would remove with a home, as `VARIABLE: found ..., allowed`.

    variables: by name. people: returns the variable slurm_people, which is read only if a variable needs it.
    """
    own = {name: str(path) for name, path in variables.items() if re.fullmatch("enroot_[a-z]+_dir", name)}
    own = {name: path for name, path in own.items() if path.startswith("/")}
    found = people() if own else None
    users = found.get("users") if isinstance(found, Mapping) else None
    for name, path in own.items():
        for user in users if isinstance(users, list) else []:
            home = str(user.get("home") or "") if isinstance(user, Mapping) else ""
            if home and within(home, path.replace("%U", str(user.get("uid"))).replace("%u", str(user.get("name")))):
                what = f"found {shown(path)}, which has the home {short(home)}"
                yield f"{name}: {what}, allowed: a directory without homes"
                break


def _problems(place: str, value: Any, check: Check, secret: bool) -> Iterator[str]:
    """The problem of a value, if it has one."""
    try:
        check(value)
    except ValueError as error:
        reason = str(error)
        found = "" if secret or reason.startswith("found") else f"found {shown(value)}, "
        yield f"{place}: {found}{reason}"
