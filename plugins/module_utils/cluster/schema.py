# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The structure of the cluster file: the keys of each mapping, and the types of their values.

Structure, types and unknown keys are checked by Ansible's own ArgumentSpecValidator; a Checker turns its errors into
messages with the file, the key, the found value and the allowed values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from typing import Annotated, Any, Generic, TypedDict, TypeVar, cast, get_type_hints
from urllib.parse import urlsplit

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.errors import AnsibleValidationError, ArgumentTypeError, RequiredError, UnsupportedError

from ..configuration import node_sets, parameters
from ..configuration.conf_file import lines, value_text
from ..configuration.parameter_values import LIMITS
from ..formats.directory_purposes import OF_SLURM
from ..gpu.devices import REFUSED_METHODS
from ..language import spelling
from ..language.formatting import AS_BOOLEAN, KEY, message, short, shown
from ..language.hostlist import expand
from .keys import KEYS, NEWEST_GENERATION, ClusterKey, Value
from .named_files import name_error
from .variable_names import is_variable

AUTO = "auto"
"""The value of a Slurm parameter that follows from the hardware."""

# slurmdbd keeps names of up to 255 characters (TINYTEXT in `src/plugins/accounting_storage/mysql`).
CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{,254}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{,254}")
PARTITION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{,254}")
_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9:._-]{0,252}")
_IP = re.compile(r"[0-9.]+|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")  # no name: all digits, or with a colon
_INDEXES = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")
_ADAPTER = re.compile(r"[A-Za-z0-9_.-]+")
_PROFILE = re.compile(r"([1-7]c\.)?[1-7]g\.[0-9]+gb([+-][a-z]+(\.[a-z]+)*)?")
_NO_HOSTS = ("all", "default")  # they mean something else where Slurm and Ansible expect hosts


AUTODETECT = ("nvml", "nvidia", "rsmi", "nrt")
"""The values of AutoDetect; `off` only undoes a line for all nodes, which is never written."""

GPU_ENVIRONMENT = ("nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env", "opencl_env")
SHARING = ("one_sharing", "all_sharing")
GRES_FLAGS = ("CountOnly", "explicit", *SHARING, *GPU_ENVIRONMENT, "no_gpu_env")
"""The values of Flags in gres.conf; Slurm ignores any other one (`gres_flags_parse` in `src/interfaces/gres.c`)."""


LONGEST_NAME = 255
"""Characters of a name, as slurmdbd keeps it."""

LONGEST_VALUE = 4096
"""Characters of a text that is no list of names and no file."""

LONGEST_KEY = 2**16
"""Characters of a key; those of `addresses` are hostlists."""

LONGEST_TEXT = 2**22
"""Characters of any text, also of a file of Slurm or a script."""

TAKEN_OVER = (
    *(f"slurm_conf.{name}" for name in (*OF_SLURM, "JobCompLoc", "SrunPortRange")),
    "cgroup_conf.CgroupMountpoint",
    "nodes.address",
)
"""Keys whose values in a running cluster are kept where a new cluster could not have them (key `taken_over`)."""

PACKAGE_SOURCES = ("distribution", "schedmd")
"""The package sources that have a name. SchedMD's packages can also come from a repository, or be files."""


# The types. Each is a callable, as Ansible's argument specs allow: it returns the value, or raises ValueError with the
# allowed values or the problem.


def any_text(value: Any) -> str:
    """A string, or a number that is meant as one. Templates are refused, since nothing would evaluate them."""
    if isinstance(value, bool):
        raise ValueError(f"allowed: a text; {AS_BOOLEAN}")
    if not isinstance(value, (str, int, float)):
        raise ValueError("allowed: a text")
    if "{{" in str(value):
        raise ValueError("templates are not evaluated here; set the variable in group_vars instead")
    return str(value)


def text(value: Any) -> str:
    """As any_text, with a limit for its length."""
    if len(any_text(value)) > LONGEST_VALUE:
        raise ValueError(f"of {len(any_text(value))} characters, allowed: up to {LONGEST_VALUE}")
    return any_text(value)


def too_long(data: Any) -> Iterator[tuple[str, str]]:
    """The keys and texts that are longer than any needs to be, as (key, problem).

    data: that of YAML, whose depth is limited, or variables.
    """
    left: list[tuple[str, Any]] = [("", data)]
    while left:
        place, value = left.pop()
        if isinstance(value, str):
            if len(value) > LONGEST_TEXT:
                yield place, f"found a text of {len(value)} characters, allowed: up to {LONGEST_TEXT}"
        elif isinstance(value, Mapping):
            for key, element in value.items():
                if isinstance(key, str) and len(key) > LONGEST_KEY:
                    yield place, f"found a key of {len(key)} characters, {shown(key)}, allowed: up to {LONGEST_KEY}"
                elif isinstance(element, (str, Mapping, list)):
                    left.append((_join(place, str(key)), element))
        elif isinstance(value, list):
            left += [
                (f"{place}[{i}]", element)
                for i, element in enumerate(value)
                if isinstance(element, (str, Mapping, list))
            ]


def cluster_name(value: Any) -> str:
    """The name of a cluster. Slurm lowers it, so that upper case would have two spellings."""
    if not CLUSTER_NAME.fullmatch(text(value)):
        raise ValueError("allowed: lower case letters, digits, '.', '-' and '_', such as hpc-demo")
    return text(value)


def name(value: Any) -> str:
    """The name of a machine type or a generic resource."""
    if not NAME.fullmatch(text(value)):
        raise ValueError("allowed: letters, digits, '.', '-' and '_'")
    return text(value)


def partition_name(value: Any) -> str:
    """The name of a partition. PartitionName=DEFAULT gives defaults to the lines below it."""
    if not PARTITION_NAME.fullmatch(text(value)):
        raise ValueError("allowed: letters, digits, '.', '+', '-' and '_'")
    if text(value).lower() == "default":
        raise ValueError("allowed: any other name, since this one means something else to Slurm")
    return text(value)


def _hostlist(value: Any, pattern: re.Pattern[str], allowed: str, *, repeated: bool = False) -> str:
    """A hostlist with at least one name, all of a pattern, none twice unless they may be repeated."""
    seen = set()
    for host in expand(any_text(value)):
        if not pattern.fullmatch(host) or host.lower() in _NO_HOSTS:
            raise ValueError(f"{shown(host)} is not a host name, allowed: {allowed}")
        if host in seen and not repeated:
            raise ValueError(f"{short(host)} is listed twice")
        seen.add(host)
    if not seen:
        raise ValueError(f"allowed: {allowed}")
    return str(value)


def hostlist(value: Any) -> str:
    """A hostlist of hosts, none twice."""
    return _hostlist(value, NAME, "a hostlist such as compute[01-16]")


def host(value: Any) -> str:
    """One host."""
    if expand(hostlist(value)) != [str(value)]:
        raise ValueError("allowed: the name of one host")
    return str(value)


def addresses(value: Any) -> str:
    """A hostlist of addresses: IP addresses, or names that resolve. The model checks whether one may be repeated."""
    for address in expand(_hostlist(value, _ADDRESS, "a list of addresses such as 10.1.0.[1-16]", repeated=True)):
        ip_version(address)
    return str(value)


def ip_version(address: str) -> int | None:
    """4 or 6 for an IP address; None for a name. Raises ValueError for digits and colons that are no address."""
    return ip_address(address).version if _IP.fullmatch(address) else None


def partition_nodes(value: Any) -> str:
    """A hostlist of nodes and node sets, functions of the topology, ALL, or nothing."""
    nodes = any_text(value)
    if node_sets.is_all(nodes):
        return "ALL"
    for function, _argument in node_sets.functions(nodes):
        if function not in node_sets.FUNCTIONS:
            allowed = ", ".join(node_sets.FUNCTIONS)
            raise ValueError(unknown("function", function, node_sets.FUNCTIONS, allowed))
    names = ",".join(node_sets.names_in(nodes))
    if names:
        hostlist(names)
    return nodes


def files(value: Any) -> str:
    """A hostlist of device files, none twice."""
    return _hostlist(value, re.compile(r"/\S+"), "device files such as /dev/nvidia[0-7]")


def adapters(value: Any) -> str:
    """A hostlist of network adapters, none twice."""
    if not all(map(_ADAPTER.fullmatch, expand(any_text(value)))):
        raise ValueError("allowed: adapters in /sys/class/infiniband such as mlx5_[0-3]")
    return _hostlist(value, _ADAPTER, "")


def autodetect(value: Any) -> str:
    """A mechanism of Slurm that finds GPUs."""
    if isinstance(value, str) and value in REFUSED_METHODS:
        raise ValueError(f"refused: {REFUSED_METHODS[value]}")
    if value not in AUTODETECT:
        raise ValueError(f"allowed: {', '.join(AUTODETECT)}")
    return str(value)


def word(allowed: Sequence[str]) -> Callable[[Any], str]:
    """The type of one word out of some."""

    def typed(value: Any) -> str:
        """The word."""
        if value not in allowed:
            raise ValueError(f"allowed: {', '.join(allowed)}")
        return str(value)

    return typed


def texts(value: Any) -> list[str]:
    """A list of texts."""
    return [text(element) for element in sequence(value)]


def generation(value: Any) -> int:
    """A generation of the defaults."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= NEWEST_GENERATION:
        raise ValueError(f"allowed: a generation of the defaults, 1 to {NEWEST_GENERATION}")
    return value


def gres_flags(value: Any) -> list[str]:
    """Flags of a generic resource: a list, or a text with commas."""
    flags = [text(flag).strip() for flag in (value if isinstance(value, list) else text(value).split(","))]
    if not flags or not {*flags} <= {*GRES_FLAGS}:
        raise ValueError(f"allowed: {', '.join(GRES_FLAGS)}")
    return flags


def gres_conf(value: Any) -> list[str]:
    """Lines of gres.conf as they are, for the nodes of a machine type."""
    allowed = "allowed: a list of lines such as Name=nic Count=2, without NodeName"
    if not isinstance(value, list) or not value:
        raise ValueError(allowed)
    for line in value:
        (pairs, *more) = [*lines("gres.conf", text(line))] or [()]
        names = [key for key, _value in pairs]
        if not pairs or more or "include" in (name.lower() for name in names):
            raise ValueError(f"{shown(line)} is not one line of gres.conf, {allowed}")
        for name in names:
            if name.lower() == "nodename" or parameters.find("gres.conf", name) is None:
                known = sorted(parameter.name for parameter in parameters.FILES["gres.conf"].values())
                raise ValueError(f"{shown(line)}: {unknown('key', name, known, allowed.removeprefix('allowed: '))}")
    return value


def cores(value: Any) -> str:
    """Slurm's indexes of cores: a number, a text such as 0-3,8-11, or a list of them."""
    indexes = ",".join(map(text, value)) if isinstance(value, list) else text(value)
    if not _INDEXES.fullmatch(indexes):
        raise ValueError("allowed: indexes of cores such as 0-3,8-11")
    expand(f"[{indexes}]")  # its ValueError names the problem
    return indexes


def links(value: Any) -> str:
    """The connections of a device to all devices, a list or a text with commas (`gres_links_validate` in Slurm)."""
    joined = ",".join(map(text, value)) if isinstance(value, list) else text(value)
    numbers = joined.split(",")
    if numbers.count("-1") != 1 or not all(re.fullmatch("-1|[0-9]+", number) for number in numbers):
        raise ValueError("allowed: a number from 0 for each device, and -1 for the device itself, such as -1,16,16")
    return joined


def mig(value: Any) -> dict[str, int]:
    """The layout of a GPU, the number of instances by profile; a GPU has seven compute slices at most.

    Without any instance it is a whole GPU, whose MIG is off.
    """
    for profile, instances in mapping(value).items():
        if not _PROFILE.fullmatch(str(profile)):
            raise ValueError(f"{shown(profile)} is not a profile, allowed: profiles of nvidia-smi such as 1g.10gb")
        count(instances)
    slices = sum(int(str(profile)[0]) * instances for profile, instances in value.items())
    if slices > 7:
        raise ValueError(f"allowed: instances of up to 7 compute slices on each GPU, these have {slices}")
    return dict(value)


def count(value: Any) -> int:
    """A whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("allowed: a whole number from 1")
    return value


def up_to(highest: int) -> Callable[[Any], int]:
    """The type of a whole number from 1 that Slurm keeps in so many bits."""

    def typed(value: Any) -> int:
        """The number."""
        if count(value) > highest:
            raise ValueError(f"allowed: a whole number from 1 to {highest}")
        return count(value)

    return typed


def number_of(key: str) -> Callable[[Any], int]:
    """The type of a number that becomes a parameter of a NodeName line."""
    return up_to(LIMITS[parameters.FILES["NodeName"][key.lower()].value.partition(" ")[0]])


def flag(value: Any) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise ValueError("allowed: true or false")
    return value


def mapping(value: Any) -> dict[Any, Any]:
    """A mapping."""
    if not isinstance(value, dict):
        raise ValueError("allowed: a mapping, key: value")
    return value


def mapping_or_file(value: Any) -> dict[Any, Any]:
    """A mapping that can be in a file of its own, from which it has been read."""
    if not isinstance(value, dict):
        raise ValueError("allowed: a mapping, key: value, or a YAML file next to this file, such as accounting.yml")
    return value


def groups(value: Any) -> Any:
    """Groups of people, or of hosts."""
    if not isinstance(value, (dict, list)):
        raise ValueError("allowed: a list of groups with name and gid, or Ansible's mapping of groups of hosts")
    return value


def sequence(value: Any) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise ValueError("allowed: a list")
    return value


def parameter(value: Any) -> Any:
    """The value of a Slurm parameter: a scalar, or a list of scalars."""
    for element in value if isinstance(value, list) else [value]:
        if isinstance(element, (dict, list)):
            raise ValueError("allowed: a value, or a list of values")
        if not isinstance(element, bool):
            any_text(element)
    value_text(value)
    return value


def parameter_of(table: str, key: str) -> Callable[[Any], Any]:
    """The type of a Slurm parameter: values that no release accepts are refused.

    The cluster's release is unknown here.
    """

    def typed(value: Any) -> Any:
        """The value, as it was given."""
        if isinstance(value, bool) and (allowed := parameters.refused_boolean(table, key, value_text(value))):
            raise ValueError(allowed)
        repeated = isinstance(parameter(value), list) and key in parameters.REPEATED
        for element in value if repeated else [value]:
            allowed = parameters.refused_everywhere(table, key, value_text(element).strip('"'))
            if allowed:
                raise ValueError(allowed)
        return value

    return typed


def parameter_lines(key: str) -> Callable[[Any], Any]:
    """The type of a Slurm parameter whose lines have parameters of their own: mappings, a line each."""
    names = {parameter.name: parameter_of(key, parameter.name) for parameter in parameters.FILES[key].values()}

    def typed(value: Any) -> Any:
        """The value, as it was given."""
        for line in value if isinstance(value, list) else [value]:
            if not isinstance(line, dict) or next(iter(line), None) != key:
                others = " and ".join(sorted(names.keys() - {key}))
                raise ValueError(f"allowed: a mapping that starts with {key}, and has {others}")
            for name, element in line.items():
                if name not in names:
                    raise ValueError(unknown("key", str(name), names, ", ".join(sorted(names))))
                try:
                    names[name](element)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        return value

    return typed


WITHOUT_PASSWORD = "allowed: a URL without a password, which all users of a host could read"


def url(value: Any) -> str:
    """A URL from which hosts download something."""
    if not re.fullmatch(r"(https?|ftp|file)://[!-~]+", text(value)):
        raise ValueError("allowed: a URL such as https://packages.example.org/slurm-smd_25.11.2-1_amd64.deb")
    if urlsplit(str(value)).password is not None:  # its ValueError names the problem
        raise ValueError(WITHOUT_PASSWORD)
    return str(value)


def sha256(value: Any) -> str:
    """A SHA-256 checksum."""
    if not isinstance(value, str) or not re.fullmatch("[0-9A-Fa-f]{64}", value):
        raise ValueError("allowed: a SHA-256 checksum, 64 hexadecimal digits")
    return value.lower()


def file_name(value: Any) -> str:
    """The name of a file on the control host."""
    if error := name_error(text(value)):
        raise ValueError(error)
    return text(value)


def repository(value: Any) -> str:
    """A repository of apt: URL, suite and components, as in sources.list(5); a suite that ends in / has none."""
    parts = text(value).split()
    if not parts or not re.fullmatch(r"(https?|ftp|file|mirror|tor\+https?)://?[!-~]+", parts[0]) or len(parts) < 2:
        raise ValueError("allowed: URL, suite and components, such as https://packages.example.org/slurm noble main")
    if urlsplit(parts[0]).password is not None:
        raise ValueError(WITHOUT_PASSWORD.replace("a password", "a password; apt_auth.conf(5) has its place"))
    if parts[1].endswith("/") != (len(parts) == 2):
        raise ValueError(f"{shown(parts[1])} needs {'no component' if len(parts) > 2 else 'a component such as main'}")
    if not all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/+-]*|\.?/", part) for part in parts[1:]):
        raise ValueError("allowed: a suite and components of letters, digits, '.', '-', '+', '_' and '/'")
    return " ".join(parts)


def plain(value: Any) -> Any:
    """A value in containers and texts of Python.

    A copy of those of a template would copy Ansible's template engine, or the tags with its origin, with each.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(element) for key, element in value.items()}
    return [plain(element) for element in value] if isinstance(value, list) else value


def anything(value: Any) -> Any:
    """A value that a rule of its own checks."""
    return value


def key_of_repository(value: Any) -> Any:
    """The key of a repository: a file on the control host, or a URL with its checksum."""
    if not isinstance(value, (str, Mapping)):
        raise ValueError("allowed: a file with an ASCII-armored key, or a mapping with url and sha256")
    return file_name(value) if isinstance(value, str) else value


def or_automatic(typed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The type of a parameter that can be AUTO as well."""

    def either(value: Any) -> Any:
        """The value."""
        try:
            return value if value == AUTO else typed(value)
        except ValueError as error:
            raise ValueError(f"{error}, or {AUTO}") from None

    return either


Content = TypeVar("Content")
"""The type of the checked content of a mapping, in which any key can be missing."""

ArgumentSpec = dict[str, dict[str, Any]]

Raw = dict[str, Any]
"""A mapping whose values have rules of their own."""

# Mappings with parameters of Slurm, which types cannot express.
Settings = dict[str, Any]
MachineType = dict[str, Any]
NodeEntry = dict[str, Any]
Partition = dict[str, Any]


@dataclass(frozen=True)
class Kind(Generic[Content]):
    """The allowed content of a kind of mapping."""

    own: ArgumentSpec
    """The keys of the cluster file itself."""
    slurm: frozenset[str] = frozenset()
    """Slurm's parameters that are also allowed."""
    slurm_file: str = ""
    """The name of the parameters in messages."""
    table: str = ""
    """Their key in `parameters.FILES`."""
    derived: dict[str, str] = field(default_factory=dict)
    """Slurm's parameters that are derived from other keys, with these keys. They are refused."""
    automatic: tuple[str, ...] = ()
    """Slurm's parameters that follow from the hardware with the value AUTO."""
    of_ansible: tuple[str, ...] = ()
    """Keys of Ansible, which messages do not offer."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Where something stands that looks like a key, and is none."""

    @cached_property
    def spec(self) -> ArgumentSpec:
        """All of it."""
        slurm = {
            key: {"type": parameter_lines(key) if key in parameters.LINES else parameter_of(self.table, key)}
            for key in sorted(self.slurm - set(self.derived))
        }
        for key in self.automatic:
            slurm[key] = {"type": or_automatic(slurm[key]["type"])}
        return {**slurm, **self.own}

    @cached_property
    def types(self) -> dict[str, Callable[[Any], Any]]:
        """The type of each key."""
        return {key: spec["type"] for key, spec in self.spec.items()}

    @cached_property
    def required(self) -> set[str]:
        """The keys that a mapping must have."""
        return {key for key, spec in self.own.items() if spec.get("required")}

    @cached_property
    def validator(self) -> ArgumentSpecValidator:
        """Its validator."""
        return ArgumentSpecValidator(self.spec)

    @cached_property
    def allowed(self) -> str:
        """The allowed keys, for messages."""
        slurm = [f"the parameters of {self.slurm_file}"] if self.slurm_file else []
        own = ", ".join(key for key in self.own if key not in self.of_ansible)
        return " and ".join([*([own] if own else []), *slurm])


def kind_of(content: type[Content]) -> Kind[Content]:
    """The kind of mapping that a TypedDict describes. Each key has its type, its check, and perhaps "required"."""
    hints = get_type_hints(content, include_extras=True)
    checks = {name: hint.__metadata__ for name, hint in hints.items()}
    return Kind(own={name: {"type": check, "required": bool(more)} for name, (check, *more) in checks.items()})


_TYPES: Mapping[Value, Callable[[Any], Any]] = {
    "text": text,
    "number": up_to(2**31 - 1),
    "flag": flag,
    "texts": texts,
    "cluster_name": cluster_name,
    "generation": generation,
    "host": host,
    "hostlist": hostlist,
    "mapping": mapping,
    "mapping_or_file": mapping_or_file,
    "list": sequence,
    "any": anything,
}


def type_of(key: ClusterKey) -> Callable[[Any], Any]:
    """The type of a key of the cluster file."""
    return word(key.choices) if key.value == "choice" else _TYPES[key.value]


CLUSTER: Kind[Raw] = Kind(
    own={
        **{key.name: {"type": type_of(key), "required": key.required} for key in KEYS},
        # Those of Ansible's fragment `constructed`; Ansible checks them further. A list of groups is one of people.
        "strict": {"type": flag},
        "compose": {"type": mapping},
        "groups": {"type": groups},
        "keyed_groups": {"type": sequence},
        "leading_separator": {"type": flag},
        "use_extra_vars": {"type": flag},
    },
    of_ansible=("strict", "compose", "groups", "keyed_groups", "leading_separator", "use_extra_vars"),
    elsewhere={
        "topology": "write the text of topology.conf or topology.yaml in slurm_files",
        **dict.fromkeys(("gpu", "gpus", "gres"), "a machine type has them, such as hardware.NAME.gres"),
        **{name: f"it is in accounting: accounting.{name}" for name in ("accounts", "limits", "qos", "reservations")},
        "vars": "variables stand in group_vars/slurm_cluster.yml, in the directory of this file",
    },
)

DETECTED_FILE: Kind[Raw] = Kind(
    own={"hardware": {"type": mapping}, "nodes": {"type": sequence}},
)

HARDWARE: Kind[MachineType] = Kind(
    own={
        "sockets": {"type": number_of("Sockets"), "required": True},
        "cores_per_socket": {"type": number_of("CoresPerSocket"), "required": True},
        "threads_per_core": {"type": number_of("ThreadsPerCore"), "required": True},
        "real_memory": {"type": number_of("RealMemory"), "required": True},
        "boards": {"type": number_of("Boards")},
        "cpus": {"type": number_of("CPUs")},
        "tmp_disk": {"type": number_of("TmpDisk")},
        "gres": {"type": sequence},
        "gres_conf": {"type": gres_conf},
        "fabric": {"type": mapping},
    },
    slurm=parameters.NODE,
    slurm_file="a NodeName line",
    table="NodeName",
    derived={
        "Boards": "boards",
        "CPUs": "cpus, or sockets, cores_per_socket and threads_per_core",
        "CoresPerSocket": "cores_per_socket",
        "NodeAddr": "address of a node",
        "NodeHostname": "hosts of a node",
        "Procs": "cpus, or sockets, cores_per_socket and threads_per_core",
        "RealMemory": "real_memory",
        "Sockets": "sockets",
        "SocketsPerBoard": "sockets and boards",
        "ThreadsPerCore": "threads_per_core",
        "TmpDisk": "tmp_disk",
    },
)


class GresEntry(TypedDict, total=False):
    """A generic resource of a machine type."""

    name: Annotated[str, name, "required"]
    type: Annotated[str, name]
    file: Annotated[str, files]
    count: Annotated[int, up_to(2**63 - 2)]  # a long, whose highest value is an error (gres.c)
    cores: Annotated[str, cores]
    links: Annotated[str, links]
    flags: Annotated[list[str], gres_flags]
    autodetect: Annotated[str, autodetect]
    mig: Annotated[dict[str, int], mig]


GRES = kind_of(GresEntry)

LINKS = ("InfiniBand", "Ethernet")
"""What a port of an adapter can be, in the kernel's words (/sys/class/infiniband/*/ports/*/link_layer)."""


class Fabric(TypedDict, total=False):
    """What connects a machine to others."""

    ports: Annotated[list[Any], sequence, "required"]


class FabricPort(TypedDict, total=False):
    """Ports of adapters that are connected."""

    device: Annotated[str, adapters, "required"]
    port: Annotated[int, up_to(255)]
    link: Annotated[str, word(LINKS), "required"]
    rate: Annotated[int, up_to(10**5), "required"]


FABRIC = kind_of(Fabric)
FABRIC_PORT = kind_of(FabricPort)

NODE: Kind[NodeEntry] = Kind(
    own={
        "hosts": {"type": hostlist, "required": True},
        "hardware": {"type": name, "required": True},
        "address": {"type": addresses},
    },
    slurm=parameters.NODE,
    slurm_file="a NodeName line",
    table="NodeName",
    derived={
        **{key: f"{keys} of its hardware" for key, keys in HARDWARE.derived.items()},
        "Gres": "gres of its hardware",
        "NodeAddr": "address",
        "NodeHostname": "hosts",
    },
)

DETECTED_NODE: Kind[NodeEntry] = Kind(own={key: NODE.own[key] for key in ("hosts", "hardware")})

PARTITION: Kind[Partition] = Kind(
    own={
        "name": {"type": partition_name, "required": True},
        "nodes": {"type": partition_nodes, "required": True},
        "default": {"type": flag},
    },
    slurm=parameters.PARTITION,
    slurm_file="a PartitionName line",
    table="PartitionName",
    derived={"Default": "default", "Nodes": "nodes"},
    automatic=("DefCPUPerGPU", "DefMemPerGPU"),
)

SLURM_CONF: Kind[Settings] = Kind(
    own={},
    slurm=parameters.SLURM_CONF,
    slurm_file="slurm.conf",
    table="slurm.conf",
    derived={
        "BackupAddr": "controllers and addresses",
        "BackupController": "controllers",
        "ClusterName": "name",
        "ControlAddr": "controllers and addresses",
        "ControlMachine": "controllers",
        "NodeName": "nodes",
        "PartitionName": "partitions",
        "SlurmctldHost": "controllers",
    },
)


class PlugstackEntry(TypedDict, total=False):
    """A line of plugstack.conf."""

    plugin: Annotated[str, text, "required"]
    arguments: Annotated[list[Any], sequence]
    required: Annotated[bool, flag]


PLUGSTACK = kind_of(PlugstackEntry)

PACKAGES: Kind[Raw] = Kind(
    own={"repository": {"type": repository}, "key": {"type": key_of_repository}, "files": {"type": sequence}}
)

REPOSITORY_KEY: Kind[dict[str, str]] = Kind(
    own={"url": {"type": url, "required": True}, "sha256": {"type": sha256, "required": True}}
)

PACKAGE_FILE: Kind[dict[str, str]] = Kind(
    own={"url": {"type": url}, "sha256": {"type": sha256}, "file": {"type": file_name}}
)

OWN_FILES = {
    "cgroup.conf": "cgroup_conf",
    "gres.conf": "gres of hardware",
    "plugstack.conf": "plugstack",
    "slurm.conf": "slurm_conf",
    "slurmdbd.conf": "slurmdbd_conf",
}
"""The files that the collection writes, with the keys and variables from which they follow."""

ACCOUNTING: Kind[Raw] = Kind(
    own={
        "limits": {"type": mapping},
        "qos": {"type": sequence},
        "accounts": {"type": sequence},
        "users": {"type": sequence},
        "reservations": {"type": sequence},
        "purge": {"type": flag},
    },
    elsewhere={"accounting": "all of this is accounting: write its keys without it"},
)

CGROUP_CONF: Kind[Settings] = Kind(own={}, slurm=parameters.CGROUP_CONF, slurm_file="cgroup.conf", table="cgroup.conf")

VARIABLES = {
    **{key.name: key.variable.name if key.variable else key.group for key in KEYS if key.variable or key.group},
    "accounting": "slurm_accounting_*",
    **{f"accounting.{key}": f"slurm_accounting_{key}" for key in ACCOUNTING.own},
}
"""The shared variable (role slurm) that a key of the cluster file becomes, or else its group."""

_FIRST = re.compile(r"^(accounting\.)?\w+")
"""The part of a key for which there is a variable."""

_WORD = re.compile(r"\w+")
_INDEX = re.compile(r"\[[0-9]+\]")

_TYPE_MESSAGE = re.compile(r"argument '(.*?)' is of type .*? and we were unable to convert to \w+: (.*)", re.DOTALL)
"""The validator's message for an ArgumentTypeError: the key, and the message of the type."""


def choice(allowed: Sequence[str], what: str = "value") -> Callable[[Any], str]:
    """The type of one value out of some; the nearest one is offered instead of another one."""

    def typed(value: Any) -> str:
        """The value."""
        if value not in allowed:
            raise ValueError(unknown(what, str(value), allowed, ", ".join(allowed)))
        return str(value)

    return typed


def unknown(what: str, found: str, names: Iterable[str], allowed: str) -> str:
    """The message for an unknown name: the nearest known one, and the allowed names."""
    match = spelling.nearest(found, names)
    return f"unknown {what}, {f'did you mean {match!r}? ' if match else ''}allowed: {allowed}"


class Checker:
    """Collects the problems of one file, or of the variables of an inventory; several checkers may share the list.

    file: its name; empty for variables. Rules name the keys of the cluster file, which messages about variables
    replace by the names of the variables.
    """

    def __init__(self, file: str, problems: list[str]) -> None:
        self.file = file
        self.problems = problems
        self.taken_over: frozenset[str] = frozenset()
        """The keys of TAKEN_OVER that the cluster names."""
        self.warnings: list[tuple[str, str]] = []
        """Values of these keys that a new cluster could not have, as (key, what)."""
        self.files: dict[str, str] = {}
        """The names of the files in which the values of some keys are."""
        self._names: Mapping[str, str] = {} if file else VARIABLES

    def problem(self, key: str, what: str) -> None:
        """Record a problem with a key, such as `nodes[1].hosts`."""
        file, first = self.file, _WORD.match(key)
        if first and first[0] in self.files:
            file, key = self.files[first[0]], key[first.end() :].removeprefix(".")
        self.problems.append(message(": ".join(part for part in (file, short(self.key(key), KEY), what) if part)))

    def problem_of_new(self, key: str, what: str) -> None:
        """Record a value that a new cluster cannot have: a warning if this one was taken over with it."""
        of_all = _INDEX.sub("", key)
        if of_all in self.taken_over:
            found, _comma, allowed = what.partition(", allowed: ")
            self.warnings.append((of_all, f"{found}; a new cluster would have {allowed}"))
        else:
            self.problem(key, what)

    def take_over(self, found: list[Any]) -> None:
        """Check the keys of TAKEN_OVER that a cluster names, and keep their values from now on."""
        for i, key in enumerate(found):
            if key not in TAKEN_OVER:
                what = unknown("key", str(key), TAKEN_OVER, ", ".join(TAKEN_OVER))
                self.problem(f"taken_over[{i}]", f"found {shown(key)}, {what}")
        self.taken_over = frozenset(key for key in TAKEN_OVER if key in found)

    def key(self, key: str) -> str:
        """A key of the cluster file by the name that the user gave it: `nodes[1]`, or `slurm_nodes[1]`."""
        return _FIRST.sub(lambda match: self._names.get(match[0], match[0]), key, count=1)

    def host_or_mapping(self, kind: Kind[Any], key: str, found: Any) -> Mapping[str, Any]:
        """The value of a key that is a host or a mapping with a host, as a mapping; empty if it is neither, or none."""
        if found in (None, ""):
            return {}
        if isinstance(found, str):
            return {"host": found}
        if isinstance(found, Mapping):
            return found
        self.problem(key, f"found {shown(found)}, allowed: a host, or a mapping with {kind.allowed}")
        return {}

    def refuse_derived(self, key: str, names: Iterable[str], slurm_conf: Mapping[str, Any]) -> None:
        """Refuse parameters of slurm.conf that follow from a key."""
        given = {str(name).lower() for name, value in slurm_conf.items() if value is not None}
        for name in names:
            if name.lower() in given:
                self.problem(f"slurm_conf.{name}", f"is derived from {self.key(key)}: remove one of them")

    def without_password(self, key: str, found: Any, file: str) -> Any:
        """The value of a key without a password, which is refused. file: the name of the secret that has it."""
        if not isinstance(found, Mapping) or "password" not in found:
            return found
        what = f"is not a key of the cluster file: put it into the file {file} of slurm_secrets_dir"
        self.problem(f"{key}.password", what)
        return {name: value for name, value in found.items() if name != "password"}

    def check(self, kind: Kind[Content], key: str, found: Any) -> Content:
        """Check a mapping and return its valid part. Keys without a value are treated as missing."""
        if not isinstance(found, Mapping):
            self.problem(key, f"found {shown(found)}, allowed: a mapping with {kind.allowed}")
            return cast("Content", {})
        given = {str(name): value for name, value in found.items() if value is not None}
        with suppress(KeyError, TypeError, ValueError):
            right = {name: kind.types[name](value) for name, value in given.items()}
            if kind.required <= right.keys():
                return cast("Content", right)
        # Something is wrong. The validator knows what, but it copies each value, of which there may be thousands.
        result = kind.validator.validate(given)
        wrong = {*result.unsupported_parameters}
        for name in sorted(wrong):
            self.problem(_join(key, name), self._unknown(kind, name))
        wrong |= self._report_errors(key, given, result.errors.errors)
        valid = result.validated_parameters.items()
        return cast("Content", {name: value for name, value in valid if value is not None and name not in wrong})

    def _report_errors(self, key: str, given: Mapping[str, Any], errors: Iterable[AnsibleValidationError]) -> set[str]:
        """Report the validator's errors in a mapping, without those of unknown keys; the keys with a wrong value."""
        wrong = set()
        for error in errors:
            typed = _TYPE_MESSAGE.fullmatch(error.msg)
            if isinstance(error, ArgumentTypeError) and typed:
                wrong.add(typed[1])
                self.problem(_join(key, typed[1]), f"found {shown(given[typed[1]])}, {typed[2]}")
            elif isinstance(error, RequiredError):
                for name in error.msg.rpartition(": ")[2].split(", "):
                    self.problem(_join(key, name), "missing")
            elif not isinstance(error, UnsupportedError):
                self.problem(key, error.msg)
        return wrong

    def _unknown(self, kind: Kind[Any], key: str) -> str:
        """The message for a key that a kind does not have."""
        derived = {parameter.lower(): keys for parameter, keys in kind.derived.items()}
        if key.lower() in derived:
            keys = " ".join(map(self.key, derived[key.lower()].split(" ")))
            return f"Slurm's {key} is derived from {keys}: set that"
        if key in kind.elsewhere:
            return f"unknown key: {kind.elsewhere[key]}"
        if kind is CLUSTER and is_variable(key) and not spelling.misspelt(key, kind.spec):
            return "is a variable, no key: set it in group_vars/slurm_cluster.yml, in the directory of this file"
        return unknown("key", key, [name for name in kind.spec if name not in kind.of_ansible], kind.allowed)


def _join(key: str, name: str) -> str:
    """The key of a key."""
    return f"{key}.{name}" if key else name
