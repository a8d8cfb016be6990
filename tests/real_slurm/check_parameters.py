# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the collection's tables of Slurm's parameters against a real Slurm.

A case is one parameter with one value in otherwise good files. The daemon that reads them is started on each, in one
shell script. No start goes far: the files end with a mistake that is found after all parameters are read, so that a
daemon that complains of that mistake has accepted the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.choices import (
    CHOICES,
    FLAGS,
    HINTS,
    LEVELS,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_values import LIMITS, TEXTS
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import (
    FILES,
    REFUSED,
    Parameter,
    problems,
    release_of,
)
from real_slurm import Runner, archive

ACCEPTED, WARNED = "accepted", "accepted with a warning"

# Further parameters that are needed to check a parameter, or a parameter with this value, alone.
NEEDED = {
    "CR_Memory": {"SelectType": "select/linear"},
    "MaxNodeCount": {"SelectType": "select/cons_tres"},
    "OOMKillStep": {"TaskPlugin": "task/cgroup"},
    "SlurmdSpecOverride": {"TaskPlugin": "task/cgroup", "SelectType": "select/cons_tres"},
    "PreemptMode": {"PreemptType": "preempt/qos", "PreemptMode": "cancel"},
    "SelectTypeParameters": {"SelectType": "select/cons_tres"},
    "SlurmSchedLogLevel": {"SlurmSchedLogFile": "/dev/null"},
    "X11": {"ProctrackType": "proctrack/cgroup"},
    "gang": {},
    "cluster": {},
    "off": {},
}

# Parameters whose values mean something beyond their kind.
SAMPLES = {
    **dict.fromkeys(("Boards", "CPUs", "Procs", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore"), "1"),
    "CoreSpecCount": "0",
    "AccountingStorageTRES": "CPU",
    "AutoDetect": "off",
    "AuthType": "auth/none",
    "BcastExclude": "/lib",
    "ClusterName": "check",
    "CredType": "cred/none",
    "CryptoType": "crypto/none",
    "DownNodes": "n1",
    "JobCredentialPrivateKey": "/dev/null",
    "JobCredentialPublicCertificate": "/dev/null",
    "Licenses": "matlab:2",
    "MaxNodeCount": "100",
    "MCSPlugin": "mcs/mistake",
    "Nodes": "n1",
    "PidFile": "@state@/pid",
    "PluginDir": "@plugins@",
    "Port": "7000",
    "TopologyPlugin": "topology/none",
    "PriorityWeightTRES": "CPU=1",
    "Program": "/bin/true",
    "SlurmSchedLogFile": "/dev/null",
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "StateSaveLocation": "@state@",
    "StorageType": "accounting_storage/mistake",
    "TRESBillingWeights": "CPU=1.0",
    "TRESWeights": "CPU=1.0",
}

# Values that Slurm accepts only together with others.
WITH = {
    **{word: f"{word},gang" for word in ("on", "suspend")},
    **{word: f"cancel,{word}" for word in ("priority", "within")},
    **{
        word: f"CR_Core,{word}"
        for word in (
            "CR_ALLOCATE_FULL_SOCKET",
            "CR_CORE_DEFAULT_DIST_BLOCK",
            "CR_LLN",
            "CR_NO_DIST_TOPO_BLOCK",
            "CR_ONE_TASK_PER_CORE",
            "CR_PACK_NODES",
            "ENFORCE_BINDING_GRES",
            "LL_SHARED_GRES",
            "MULTIPLE_SHARING_GRES_PJ",
            "ONE_TASK_PER_SHARING_GRES",
            "other_cons_res",
            "other_cons_tres",
        )
    },
}

# Only a Slurm that is built for front ends reads these.
LEFT_OUT = ("FrontendName",)

# Numbers that no narrower kind has.
WIDE = {"u16": (), "u32": ("65536",), "u64": ("4294967296",)}

# With these, slurmctld prints nothing at all.
SILENT = ("quiet", "0")

# A cluster that has all to itself.
CLUSTER = {
    "ClusterName": "check",
    "SlurmctldHost": "localhost(127.0.0.1)",
    "SlurmctldPort": "7817",
    "AuthType": "auth/none",
    "CredType": "cred/none",
    "ProctrackType": "proctrack/linuxproc",
    "SlurmUser": "root",
    "StateSaveLocation": "@state@",
    "SlurmdSpoolDir": "@state@",
    "SlurmctldPidFile": "@state@/pid",
    "SlurmdPidFile": "@state@/pid",
    "MailProg": "/bin/true",
}

# The mistake: slurmctld loads this plugin after it has read all files.
SLURM_CONF = {**CLUSTER, "MCSPlugin": "mcs/mistake"}

# The lines that have parameters of their own.
LINES = {
    "NodeName": "NodeName=n1 NodeAddr=127.0.0.1",
    "PartitionName": "PartitionName=p1 Nodes=n1 Default=YES",
    "DownNodes": "DownNodes=n1",
    "NodeSet": "NodeSet=s1",
    "PowerAction": "PowerAction=a1 Location=slurmctld Program=/bin/true",
}

# The file of a parameter of gres.conf, and of topology.conf, with the plugin that reads it.
GRES = {
    "Cores": "Name=gpu File=/dev/zero Cores=0",
    "CPUs": "Name=gpu File=/dev/zero CPUs=0",
    "Count": "Name=gpu File=/dev/zero Count=1",
    "File": "Name=gpu File=/dev/zero",
    "Files": "Name=gpu Files=/dev/zero",
    "Flags": "Name=gpu File=/dev/zero Flags=CountOnly",
    "Link": "Name=gpu File=/dev/zero Link=-1",
    "Links": "Name=gpu File=/dev/zero Links=-1",
    "MultipleFiles": "Name=gpu MultipleFiles=/dev/zero,/dev/null",
    "Name": "Name=gpu File=/dev/zero",
    "NodeName": "NodeName=n1 Name=gpu File=/dev/zero",
    "Type": "Name=gpu File=/dev/zero Type=a",
    "AutoDetect": "AutoDetect=off\nName=gpu File=/dev/zero",
}
TOPOLOGY = {
    "SwitchName": ("tree", "SwitchName=s1 Nodes=n1"),
    "Nodes": ("tree", "SwitchName=s1 Nodes=n1"),
    "Switches": ("tree", "SwitchName=s1 Nodes=n1\nSwitchName=s2 Switches=s1"),
    "LinkSpeed": ("tree", "SwitchName=s1 Nodes=n1 LinkSpeed=VALUE"),
    "BlockName": ("block", "BlockName=b1 Nodes=n1"),
    "BlockSizes": ("block", "BlockName=b1 Nodes=n1\nBlockSizes=1"),
    "BlockLevels": ("block", "BlockName=b1 Nodes=n1\nBlockLevels=1"),
    "RingName": ("ring", "RingName=r1 Nodes=n1"),
}

# Output of a daemon that has read everything, and then misses a plugin, an account or a topology; slurmd prints GRES.
READ = (
    r"failed to initialize (?!topo)\w+ plugin|cannot find (?!topo)\w+ plugin|can't find plugin"
    r"|cannot create (?!topo)\w+ context|authentication plugins failed|Gres Name="
    r"|StorageType must be specified|no QOS on the system|invalid qos|invalid (node|partition) topology"
)

SCRIPT = """\
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
tar -x
plugins=$(dirname "$(find /usr/lib /usr/lib64 -name auth_none.so | head -n 1)")
sed -i "s|@state@|$directory/state|; s|@plugins@|$plugins|" */*.conf 2>/dev/null || true
version=$({ slurmctld -V || slurmd -V; } 2>/dev/null)
for daemon in slurmctld slurmdbd slurmd; do
    if command -v $daemon >/dev/null; then echo "$version $daemon"; fi
done
# Their plugin for cgroups cannot be disabled, and does not have to be.
case $version in *22.05* | *23.02* | *23.11*) rm -f */cgroup.disabled ;; esac
for file in */cgroup.disabled; do [ ! -e "$file" ] || mv "$file" "${file%disabled}conf"; done
for case in [0-9]*; do
    [ -e "$case" ] || continue
    rm -rf state && mkdir state
    export SLURM_CONF="$directory/$case/slurm.conf"
    status=0
    timeout 10 $(cat "$case/command") >output 2>&1 </dev/null || status=$?
    echo "=== $case $status"
    grep -aE 'error|fatal|warning|Gres' output || true
done
"""


@dataclass(frozen=True)
class Case:
    """A parameter with a value."""

    file: str
    parameter: Parameter
    value: str
    apart: bool = False
    """Whether it has a line of its own, because it is expected to be refused."""

    @property
    def daemon(self) -> str:
        """The daemon that reads the parameter."""
        return {"slurmdbd.conf": "slurmdbd", "gres.conf": "slurmd"}.get(self.file, "slurmctld")

    @property
    def pair(self) -> str:
        """The parameter as it is written in the file."""
        return f"{self.parameter.name}={self.value}"

    def __str__(self) -> str:
        return f"{self.file}: {self.pair}"


def good(parameter: Parameter) -> Iterator[str]:
    """Values that are good by the parameter's kind; of sets that are closed, each of them."""
    kind, _blank, rest = parameter.value.partition(" ")
    if parameter.name in SAMPLES:
        yield SAMPLES[parameter.name]
    elif kind in LIMITS:
        low, dots, _high = rest.partition("..")
        yield from (low,) if dots else ("7", "0x10", "INFINITE", *WIDE[kind])
    elif kind == "bool":
        yield from ("YES", "down")
    elif kind == "float":
        yield "50.5"
    elif kind in ("minutes", "seconds"):
        yield from ("90", "1-02:03:04", *([] if rest else ["UNLIMITED"]))
    elif kind == "ports":
        yield from ("7817",) if rest else ("7817", "7817-7818")
    elif kind == "purge":
        yield "12months"
    elif kind in ("one", "word"):
        words = [word.partition("{")[0].rstrip("*") for word in CHOICES[rest].split()]
        yield from (f"{word}2" if word.endswith(":") else word for word in words)
    elif kind == "level":
        yield from (word for word in (*LEVELS, "0", "9") if parameter.name != "SlurmctldDebug" or word not in SILENT)
    elif kind == "flags":
        words = [word.partition("{")[0] for word in FLAGS[rest].split()]
        yield from (WITH.get(word, word) for word in words)
    elif kind == "hints":
        yield HINTS[rest].split()[0].partition("{")[0]
    elif kind in ("plugin", "plugins"):
        yield "none"
    elif kind in ("path", "dir"):
        yield "/tmp"
    elif kind == "program":
        yield "/bin/true"
    elif kind in ("host", "hosts"):
        yield "localhost"
    elif kind in TEXTS:
        yield "text"


def _bad(parameter: Parameter) -> Iterator[str]:
    """Values that are bad by the parameter's kind."""
    kind, _blank, rest = parameter.value.partition(" ")
    if kind in LIMITS:
        yield from ("x7", "-1", str(LIMITS[kind] + 1), "7k" if kind == "u16" else "7m")
        low, dots, high = rest.partition("..")
        yield from [str(int(low) - 1)] if dots and int(low) else []
        yield from [str(int(high) + 1)] if high else []
    elif parameter.value == "minutes 1..":
        yield from ("0", "UNLIMITED")
    elif kind in ("bool", "float", "minutes", "seconds", "ports", "purge", "level", "one", "flags"):
        yield "nonsense"


def cases() -> list[Case]:
    """All cases, the same for every release."""
    return [
        Case(file, parameter, value)
        for file, table in FILES.items()
        if file in (*LINES, "slurm.conf", "cgroup.conf", "slurmdbd.conf", "gres.conf", "topology.conf")
        for name, parameter in table.items()
        if not (file in LINES and name == file.lower())
        and parameter.name not in LEFT_OUT
        and not (file == "slurm.conf" and parameter.name in LINES)
        for value in [*good(parameter), *(_bad(parameter) if file != "gres.conf" else ())]
    ]


def _files(together: list[Case]) -> dict[str, str]:
    """The files that have these parameters, and the command that reads them.

    Good parameters of one kind of line share a line. Each bad one has its own, because Slurm reads none after it.
    """
    settings, lines, own, bad = dict(SLURM_CONF), dict(LINES), [], []
    for case in together:
        name = case.parameter.name
        if case.file in LINES and case.apart:
            bad.append(f"{LINES[case.file].split()[0]} {case.pair}")
        elif case.file in LINES:
            base = [word for word in lines[case.file].split() if not word.startswith(f"{name}=")]
            lines[case.file] = " ".join([*base, case.pair])
        elif case.file == "slurm.conf":
            settings = {key: value for key, value in settings.items() if key.lower() != name.lower()}
        else:
            own.append(case.pair)
        settings = {
            **settings,
            **NEEDED.get(case.value, NEEDED.get(name, {})),
            **({name: case.value} if case.file == "slurm.conf" else {}),
        }
    used = ["NodeName", "PartitionName", *(file for file in LINES if any(case.file == file for case in together))]
    first = together[0]
    if first.file == "slurmdbd.conf":
        names = {case.parameter.name for case in together}
        own += [line for line in ("AuthType=auth/none", "PidFile=@state@/pid") if line.partition("=")[0] not in names]
    elif first.file == "gres.conf":
        own, settings["GresTypes"], lines["NodeName"] = [GRES[first.parameter.name]], "gpu", "NodeName=n1 Gres=gpu:1"
    elif first.file == "topology.conf":
        plugin, text = TOPOLOGY[first.parameter.name]
        own, settings["TopologyPlugin"] = [text.replace("VALUE", first.value)], f"topology/{plugin}"
    conf = [
        *(f"{key}={value}" for key, value in settings.items()),
        *(lines[file] for file in dict.fromkeys(used)),
        *bad,
    ]
    commands = {"slurmdbd": "slurmdbd -D", "slurmd": "slurmd -G -N n1", "slurmctld": "slurmctld -D -c"}
    files = {"command": commands[first.daemon], "slurm.conf": "\n".join([*conf, ""])}
    files.update({"cgroup.disabled": "CgroupPlugin=disabled\n"} if first.daemon == "slurmd" else {})
    return {**files, first.file: "\n".join([*own, ""])} if own else files


def slurm_says(asked: list[list[Case]], run: Runner) -> tuple[dict[str, str], list[str]]:
    """The versions of the installed daemons of Slurm, and their output for the cases of each start."""
    files = {f"{number:05}/{name}": text for number, case in enumerate(asked) for name, text in _files(case).items()}
    versions, *answers = re.split(r"^=== \d+ \d+\n", run(SCRIPT, archive(files)), flags=re.M)
    assert len(answers) == len(asked)
    return {line.split()[2]: line.split()[1] for line in versions.splitlines()}, answers


def _verdict(case: Case, answer: str) -> str:
    """The verdict in a daemon's output. It complains of a missing plugin only after it has accepted all parameters."""
    name = re.escape(case.parameter.name)
    if re.search(rf'option "{name}" is defunct|{name} option is obsolete', answer):
        return WARNED
    return ACCEPTED if re.search(READ, answer, re.I) else REFUSED


def _named(case: Case, answer: str) -> bool:
    """Whether the parser names a parameter among several as wrong."""
    name = re.escape(case.parameter.name)
    return bool(re.search(rf'unrecognized key: {name}$|: {name} value |option for "{name}"', answer, re.M))


def collection_says(case: Case, version: str) -> str:
    """The verdict of the collection on a case."""
    found = problems(case.file, [(case.parameter.name, case.value)], version)
    if any(problem.effect == REFUSED for problem in found):
        return REFUSED
    defunct = case.parameter.defunct
    return WARNED if defunct and release_of(version) in defunct else ACCEPTED


@dataclass(frozen=True)
class Comparison:
    """The results of the collection and of a real Slurm for the parameters."""

    version: str
    keys: int
    cases: int
    differences: list[str]
    differing_keys: int


def _together(good: Iterable[Case]) -> list[list[Case]]:
    """The cases in as few starts as possible: one case of each parameter, those of a daemon together."""
    starts: dict[tuple[str, int], list[Case]] = {}
    counts: dict[tuple[str, str], int] = {}
    for case in good:
        key = (case.file, case.parameter.name)
        counts[key] = counts.get(key, 0) + 1
        alone = case.parameter.name if case.file in ("gres.conf", "topology.conf") else ""
        file = case.file if case.file in ("slurmdbd.conf", "cgroup.conf") or alone else "slurm.conf"
        starts.setdefault((f"{file} {alone}", counts[key]), []).append(case)
    return list(starts.values())


def compare(run: Runner) -> Comparison:
    """Check all cases with a real Slurm.

    Many cases share a start: those that should be accepted, and those that the parser should refuse and name. A case
    with another answer is checked again in a start of its own.
    """
    versions, _none = slurm_says([], run)
    (version,) = {*versions.values()}
    asked = [case for case in cases() if case.daemon in versions]
    expected = {case: collection_says(case, version) for case in asked}
    apart = {case: replace(case, apart=expected[case] == REFUSED) for case in asked}
    starts = [
        *_together(apart[case] for case in asked if expected[case] != REFUSED),
        *_together(apart[case] for case in asked if expected[case] == REFUSED),
    ]
    said = {}
    for start, answer in zip(starts, slurm_says(starts, run)[1]):
        for case in start:
            one = replace(case, apart=False)
            if _verdict(case, answer) == expected[one] and (not case.apart or _named(case, answer)):
                said[one] = answer
    alone = [[case] for case in asked if case not in said]
    said.update({start[0]: answer for start, answer in zip(alone, slurm_says(alone, run)[1])})
    wrong = {}
    for case in asked:
        verdict = _verdict(case, said[case])
        if verdict != expected[case]:
            shown = "\n    ".join(said[case].splitlines()[-4:])
            wrong[case] = f"{case}\n  collection: {expected[case]}\n  Slurm:      {verdict}\n    {shown}"
    keys = {(case.file, case.parameter.name) for case in asked}
    differing = {(case.file, case.parameter.name) for case in wrong}
    return Comparison(version, len(keys), len(asked), list(wrong.values()), len(differing))
