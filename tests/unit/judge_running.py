# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets a real slurmctld judge how the running configuration is compared with the files.

A slurmctld reads files with good values of all parameters, many in one start, and says what it has in force. What it
shows for two values of a parameter decides: where it shows the same, no difference may be found between the one value
in the file and the other one in force; where it shows something else, a difference must be found.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import read
from ansible_collections.gpucluster.slurm.plugins.module_utils.parameter_tables.words import FLAGS
from ansible_collections.gpucluster.slurm.plugins.module_utils.parameter_values import LIMITS, TEXTS, words
from ansible_collections.gpucluster.slurm.plugins.module_utils.parameters import FILES, Parameter, problems, release_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.running import (
    NOT_COMPARED,
    RIVALS,
    SHOWN_AS,
    differences,
    shown_config,
    shown_lines,
)
from judge_parameters import BESIDE, Case, Runner, good

KINDS = ("slurm.conf", "NodeName", "PartitionName")

SLURM_CONF = {
    "ClusterName": "judge",
    "SlurmctldHost": "localhost(127.0.0.1)",
    "SlurmctldPort": "7817",
    "AuthType": "auth/none",
    "CredType": "cred/none",
    "PriorityType": "priority/multifactor",
    "ProctrackType": "proctrack/linuxproc",
    "SlurmUser": "root",
    "StateSaveLocation": "@state@",
    "SlurmdSpoolDir": "@state@",
    "SlurmctldPidFile": "@state@/pid",
    "SlurmdPidFile": "@state@/slurmd-pid",
    "MailProg": "/bin/true",
    "GresTypes": "gpu",
}

# Values with which a slurmctld serves, where those for its parser do not do, or are too few.
SERVING = {
    "AccountingStorageTRES": ("CPU",),
    "AccountingStorageType": ("accounting_storage/none",),
    "AcctGatherEnergyType": ("acct_gather_energy/none",),
    "AcctGatherFilesystemType": ("acct_gather_filesystem/none",),
    "AcctGatherInfinibandType": ("acct_gather_interconnect/none",),
    "AcctGatherInterconnectType": ("acct_gather_interconnect/none", "acct_gather_interconnect/sysfs"),
    "AcctGatherProfileType": ("acct_gather_profile/none",),
    "AllowQos": ("ALL",),
    "AuthAltTypes": (),
    "AuthType": ("auth/none",),
    **dict.fromkeys(("Boards", "CPUs", "Procs", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore"), ("1", "2")),
    "BcastExclude": ("/lib", "/opt,/lib"),
    "BcastAddr": ("127.0.0.1", "127.0.0.2"),
    "BackupAddr": (),
    "BackupController": (),
    "BurstBufferType": (),
    "CertgenType": (),
    "CertmgrType": (),
    "CliFilterPlugins": ("cli_filter/syslog", "cli_filter/syslog,cli_filter/user_defaults"),
    "ClusterName": ("judge",),
    "ControlAddr": (),
    "ControlMachine": (),
    "CpuFreqDef": ("High", "Performance"),
    "CpuFreqGovernors": ("OnDemand", "Performance,UserSpace"),
    "CredType": ("cred/none",),
    "CryptoType": ("crypto/none",),
    "FirstJobId": ("1", "5"),
    "MaxJobId": ("1000", "0x1000"),
    "MaxArraySize": ("7", "1000"),
    "ExtSensorsType": ("ext_sensors/none",),
    "FrontendName": (),
    "DenyQos": (),
    "Gres": ("gpu:2", "gpu:a:2,gpu:b:1"),
    "GresTypes": ("gpu", "gpu,nic"),
    "HashPlugin": ("hash/k12", "hash/sha3"),
    "HttpParserType": (),
    "JobAcctGatherType": ("jobacct_gather/none", "jobacct_gather/linux"),
    "JobCompType": ("jobcomp/none",),
    "JobContainerType": ("job_container/none",),
    "JobSubmitPlugins": ("all_partitions", "defaults,job_submit/all_partitions"),
    "LaunchType": ("launch/slurm",),
    "MCSPlugin": ("mcs/none", "mcs/user"),
    "MetricsType": (),
    "MpiDefault": ("none", "pmi2"),
    "NamespaceType": ("namespace/none",),
    "MemSpecLimit": ("512", "1k"),
    "MessageTimeout": ("7", "16"),
    "NodeAddr": ("127.0.0.1", "127.0.0.2"),
    "NodeFeaturesPlugins": (),
    "Nodes": ("n1", "ALL"),
    "PreemptType": ("preempt/none",),
    "PrEpPlugins": ("prep/script",),
    **{f"PriorityWeight{word}": ("7", "0x10") for word in ("Age", "Assoc", "Fairshare", "JobSize", "Partition", "QOS")},
    "PriorityType": ("priority/multifactor", "priority/basic"),
    "PriorityWeightTRES": ("CPU=1", "CPU=2,Mem=1"),
    "TRESBillingWeights": ("CPU=1.0", "CPU=2.0"),
    "TRESWeights": ("CPU=1.0", "CPU=2.0"),
    "PrioritySiteFactorPlugin": ("site_factor/none",),
    "ProctrackType": ("proctrack/linuxproc", "proctrack/pgid"),
    "QOS": (),
    "RealMemory": ("4096", "8k"),
    "SchedulerType": ("sched/backfill", "sched/builtin"),
    "SelectType": ("select/cons_tres", "select/linear"),
    "SlurmctldAddr": (),
    "SlurmctldHost": ("localhost(127.0.0.1)",),
    "SlurmctldHttpAuthParameters": (),
    "SlurmdHttpAuthParameters": (),
    "SlurmctldPlugstack": (),
    "SlurmUser": ("root", "0"),
    "SlurmdUser": ("root",),
    "SlurmdPort": ("6818", "6819"),
    "EpilogMsgTime": ("7", "0x10"),
    "SrunPortRange": ("60001-60010",),
    "SuspendTime": ("INFINITE", "-1", "300"),
    "OverTimeLimit": ("7", "UNLIMITED"),
    "SwitchType": ("switch/none",),
    "TaskPlugin": ("task/none", "task/affinity", "affinity,cgroup"),
    "TLSType": ("tls/none",),
    "Topology": (),
    "TopologyPlugin": ("topology/none",),
    "UrlParserType": (),
}

# What is in no file of a start of these, and yet good: a slurmctld alone has one value only. Of plugins it is another one.
NEVER_SERVED = {
    "AccountingStorageTRES": "gres/gpu",
    "ClusterName": "another",
    "PluginDir": "/another",
    "SlurmctldHost": "another(127.0.0.1)",
    "SlurmdUser": "daemon",
    "SrunPortRange": "60001-60020",
    "StateSaveLocation": "/another",
}

# Of these and others Slurm obeys, shows or takes one: in which start the first of their values is.
LATER = {
    "Boards": 16,
    "CPUs": 14,
    "CPUSpecList": 14,
    "DefMemPerCPU": 14,
    "DenyAccounts": 14,
    "DenyQos": 14,
    "EpilogTimeout": 17,
    "Exclusive": 25,
    "ExclusiveTopo": 31,
    "ExclusiveUser": 33,
    "Feature": 14,
    "MaxMemPerCPU": 14,
    "MaxNodeCount": 20,
    "PreemptType": 23,
    "Priority": 14,
    "PriorityType": 18,
    "Procs": 19,
    "PrologTimeout": 14,
    "PropagateResourceLimitsExcept": 13,
    "SelectType": 22,
    "Shared": 35,
    "SocketsPerBoard": 16,
}

LINES = {
    "NodeName": "NodeName=n1 NodeAddr=127.0.0.1 RealMemory=10000",
    "PartitionName": "PartitionName=p1 Nodes=n1 Default=YES",
}

SCRIPT = """\
set -eu
directory=$(mktemp -d /root/judge.XXXX)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
tar -x
plugins=$(dirname "$(find /usr/lib /usr/lib64 -name auth_none.so | head -n 1)")
slurmctld -V
for case in [0-9]*; do
    [ -e "$case" ] || continue
    rm -rf state && mkdir state
    sed -i "s|@state@|$directory/state|; s|@plugins@|$plugins|" "$case/slurm.conf"
    export SLURM_CONF="$directory/$case/slurm.conf"
    timeout 20 slurmctld -D -c >log 2>&1 </dev/null &
    daemon=$!
    : >config
    for _ in $(seq 100); do
        sleep 0.2
        [ -e /proc/$daemon/exe ] || break
        if scontrol show config >config 2>/dev/null; then break; fi
        : >config
    done
    echo "=== $case"
    if [ -s config ]; then
        cat config
        echo "--- nodes"
        scontrol --all --future --oneliner show node
        echo "--- partitions"
        scontrol --all --oneliner show partition
    else
        grep -aE 'error|fatal' log | tail -n 3
    fi
    echo "--- file"
    cat "$case/slurm.conf"
    kill $daemon 2>/dev/null || true
    wait $daemon || true
done
"""


@dataclass(frozen=True)
class Running:
    """What a slurmctld reads, and what it shows then."""

    cases: tuple[Case, ...]
    file: str
    config: str
    nodes: str
    partitions: str

    def differences(self, file: str, version: str) -> list[str]:
        """In what it differs from a file."""
        return differences(read({"slurm.conf": file}), self.config, self.nodes, self.partitions, version)

    def shown(self, case: Case) -> tuple[str | None, ...]:
        """What is shown of a parameter, or of the one that Slurm has instead."""
        key = case.parameter.name.lower()
        key = {"priority": "prioritytier", "socketsperboard": "sockets"}.get(key, key)
        key = SHOWN_AS[case.file].get(key, key)
        rivals = {strong for strong, weak in RIVALS.items() if weak == key}
        if case.file == "slurm.conf":
            found = shown_config(self.config)
        elif case.file == "NodeName":
            found = shown_lines("NodeName", self.nodes)["n1"]
        else:
            found = shown_lines("PartitionName", self.partitions)["p1"]
        also = {"prologepilogtimeout"} if key in ("prologtimeout", "epilogtimeout") else set()
        also |= {"namespacetype"} if key == "jobcontainertype" else set()
        also |= {"exclusive"} if key in ("exclusiveuser", "exclusivetopo", "oversubscribe") else set()
        return tuple(found.get(name) for name in (key, RIVALS.get(key, key), *sorted(rivals | also)))


def _values(case_file: str, parameter: Parameter, release: str) -> list[str]:
    """Good values of a parameter for a slurmctld that serves."""
    if parameter.name in SERVING:
        values = [*SERVING[parameter.name]]
    elif parameter.name == "DebugFlags":  # all of them in a few values
        known = [word for word, span in words(FLAGS["DebugFlags"]).items() if release in span]
        values = [",".join(known[start::8]) for start in range(8)]
    else:
        values = [*good(parameter)]
        values += _others(parameter) if len(values) == 1 else []
    return [
        value for value in dict.fromkeys(values) if not problems(case_file, [(parameter.name, value)], release)
    ]


def _others(parameter: Parameter) -> list[str]:
    """A value that is good, and in no file of a start of its first value."""
    kind = parameter.value.partition(" ")[0]
    if kind in LIMITS:
        return ["77"]
    return {"path": ["/var"], "dir": [], "program": ["/bin/false"]}.get(kind, ["another"] if kind in TEXTS else [])


def _never(case: Case) -> str:
    """A value that no start has, of a parameter that has one value there; nothing for other parameters."""
    name, kind = case.parameter.name, case.parameter.value.partition(" ")[0]
    if len(SERVING.get(name, ())) == 1 and kind in ("plugin", "plugins"):
        return f"{case.value.partition('/')[0]}/another"
    return NEVER_SERVED.get(name, "")


def _cases(release: str) -> list[Case]:
    """All of them."""
    return [
        Case(file, parameter, value)
        for file in KINDS
        for name, parameter in FILES[file].items()
        if release in parameter.releases
        and not (parameter.refused and release in parameter.refused)
        and not (parameter.defunct and release in parameter.defunct)
        and name not in ("nodename", "partitionname", "downnodes", "nodeset", "frontendname", "poweraction")
        for value in _values(file, parameter, release)
    ]


def _starts(cases: list[Case]) -> list[list[Case]]:
    """Cases in as few starts as can be."""
    starts: dict[int, list[Case]] = {}
    counts: dict[tuple[str, str], int] = {}
    for case in cases:
        key = (case.file, case.parameter.name)
        number = counts.setdefault(key, LATER.get(case.parameter.name, 0))
        counts[key] += 1
        starts.setdefault(number, []).append(case)
    return [*starts.values()]


def _text(cases: list[Case]) -> str:
    """slurm.conf with these."""
    settings, lines = dict(SLURM_CONF), dict(LINES)
    for case in cases:
        name = case.parameter.name
        if case.file in LINES:
            base = [word for word in lines[case.file].split() if not word.startswith(f"{name}=")]
            lines[case.file] = " ".join([*base, case.pair])
        else:
            settings = {key: value for key, value in settings.items() if key.lower() != name.lower()}
            settings = {**settings, **BESIDE.get(case.value, BESIDE.get(name, {})), name: case.value}
    return "\n".join([*(f"{key}={value}" for key, value in settings.items()), *lines.values(), ""])


def _run(starts: list[list[Case]], run: Runner) -> tuple[str, list[Running], list[str]]:
    """The version of slurmctld, and what it shows with the cases of each start."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for number, cases in enumerate(starts):
            text = _text(cases).encode()
            member = tarfile.TarInfo(f"{number:05}/slurm.conf")
            member.size, member.mode = len(text), 0o600
            tar.addfile(member, io.BytesIO(text))
    version, *answers = re.split(r"^=== \d+\n", run(SCRIPT, archive.getvalue()), flags=re.M)
    found, failed = [], []
    for cases, answer in zip(starts, answers):
        parts = re.split(r"^--- \w+\n", answer, flags=re.M)
        if len(parts) == 4:
            config, nodes, partitions, file = parts
            found.append(Running(tuple(cases), file, config, nodes, partitions))
        else:
            failed.append(f"slurmctld does not start: {parts[0]}")
    return version.split()[1], found, failed


def _with(file: str, case: Case, value: str) -> str:
    """The file with another value of a parameter."""
    line = rf"(?m)^({case.file}=.*\s)" if case.file in LINES else "(?m)^()"
    return re.sub(rf"{line}{case.parameter.name}=\S*", rf"\g<1>{case.parameter.name}={value}", file)


@dataclass(frozen=True)
class Comparison:
    """How the comparison does with a real slurmctld."""

    version: str
    compared: list[str]
    """Parameters of which a difference is found."""
    left_out: list[str]
    """Those of which none is."""
    not_asked: list[str]
    """Those for which a slurmctld alone has no two values."""
    pairs: int
    """How many pairs of a value in the file and another one in force there were."""
    wrong: list[str]


def compare_running(run: Runner) -> Comparison:
    """Ask a real slurmctld."""
    version = _run([], run)[0]
    release = release_of(version)
    cases = _cases(release)
    _version, found, wrong = _run(_starts(cases), run)
    pairs = 0
    seen: dict[tuple[str, str], set[bool]] = {}
    by_case = {case: running for running in found for case in running.cases}
    for running in found:
        wrong += [f"its own file: {line}" for line in running.differences(running.file, version)]
    for case, running in by_case.items():
        name = case.parameter.name
        own = {*running.differences(running.file, version)}
        if never := _never(case):
            seen[case.file, name] = {bool({*running.differences(_with(running.file, case, never), version)} - own)}
        for other, elsewhere in by_case.items():
            if (other.file, other.parameter.name) != (case.file, name) or other == case:
                continue
            told = bool({*running.differences(_with(running.file, case, other.value), version)} - own)
            expected = any(running.shown(case)) and running.shown(case) != elsewhere.shown(other)
            pairs += 1
            seen.setdefault((case.file, name), set()).add(told)
            if told != expected and name.lower() not in NOT_COMPARED[case.file]:
                shown = f"{running.shown(case)} and {elsewhere.shown(other)}"
                wrong.append(f"{case} and {other.value}, shown {shown}: {'a' if told else 'no'} difference is found")
    asked = {(case.file, case.parameter.name) for case in cases}
    return Comparison(
        version,
        sorted(f"{file} {name}" for (file, name), told in seen.items() if True in told),
        sorted(f"{file} {name}" for (file, name), told in seen.items() if True not in told),
        sorted(f"{file} {name}" for file, name in asked - seen.keys()),
        pairs,
        wrong,
    )

