# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the comparison of the running configuration with the files against a real slurmctld.

A slurmctld reads files with good values of all parameters, many in one start, and shows the values in force. For two
values of a parameter its output decides: if it shows the same for both, the comparison of one value in the file with
the other value in force must find no difference; if the output differs, it must find a difference.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import read
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.choices import (
    FLAGS,
    HINTS,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.display import (
    NOT_COMPARED,
    PARSED,
    RIVALS,
    SHOWN_AS,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_values import (
    LIMITS,
    TEXTS,
    words,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import (
    FILES,
    IGNORED,
    Parameter,
    problems,
    release_of,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.drift import (
    differences,
    shown_config,
    shown_lines,
)
from check_parameters import CLUSTER, NEEDED, Case, Runner, good

# These lines have parameters of their own, and are checked with those.
OWN_LINES = ("nodename", "partitionname", "downnodes", "nodeset", "frontendname", "poweraction")

# Parameters that no slurmctld shows, or that it shows under a name from which the parameter cannot be derived.
NOT_SHOWN = {
    "slurm.conf": (
        "AccountingStoragePass",
        "BackupAddr",
        "BackupController",
        "BurstBufferParameters",
        "CertgenParameters",
        "CertmgrParameters",
        "ControlAddr",
        "ControlMachine",
        "FastSchedule",
        "JobCompParams",
        "JobCompPassScript",
        "KeepAliveTime",
        "LaunchType",
        "PrioritySiteFactorParameters",
        "RoutePlugin",
        "TLSParameters",
    ),
    "NodeName": ("GresConf", "TRESWeights"),
    "PartitionName": (),
}

KINDS = ("slurm.conf", "NodeName", "PartitionName")

SLURM_CONF = {
    **CLUSTER,
    "PriorityType": "priority/multifactor",
    "SlurmdPidFile": "@state@/slurmd-pid",
    "GresTypes": "gpu",
}

# Values with which a slurmctld runs, for parameters whose values for the parser do not suffice.
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
    **dict.fromkeys(("Boards", "CoresPerSocket", "CPUs", "Procs"), ("1", "2")),
    **dict.fromkeys(("Sockets", "SocketsPerBoard", "ThreadsPerCore"), ("1", "2")),
    "BcastExclude": ("/lib", "/opt,/lib"),
    "BcastAddr": ("127.0.0.1", "127.0.0.2"),
    "BackupAddr": (),
    "BackupController": (),
    "BurstBufferType": (),
    "CertgenType": (),
    "CertmgrType": (),
    "CoreSpecCount": ("0", "1"),
    "JobRequeue": ("0", "1"),
    "CliFilterPlugins": ("cli_filter/syslog", "cli_filter/syslog,cli_filter/user_defaults"),
    "ClusterName": ("check",),
    "ControlAddr": (),
    "ControlMachine": (),
    "CpuFreqDef": ("OnDemand", "Performance"),
    "CpuFreqGovernors": ("OnDemand", "Performance,UserSpace"),
    "CredType": ("cred/none",),
    "CryptoType": ("crypto/none",),
    "FirstJobId": ("1", "5"),
    "MaxJobId": ("1000", "0x1000"),
    "MaxDBDMsgs": ("10000", "20000"),
    "PropagatePrioProcess": ("0", "1"),
    "TopologyParam": ("Dragonfly", "TopoOptional"),
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
    "MaxNodeCount": ("100", "200"),
    "NodeFeaturesPlugins": (),
    "Nodes": ("n1", "ALL"),
    "PreemptType": ("preempt/none",),
    "PrEpPlugins": ("prep/script",),
    # Without accounting, slurmctld 24.11 dies of those that are about shares.
    "PriorityFlags": ("ACCRUE_ALWAYS", "INCR_ONLY", "NO_NORMAL_ALL", "NO_NORMAL_TRES", "INCR_ONLY,MAX_TRES"),
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
    "CommunicationParameters": ("NoAddrCache", "NoAddrCache,block_null_hash"),
    "SlurmSchedLogFile": ("/dev/null",),
    "SlurmctldPlugstack": (),
    "SlurmUser": ("root",),
    "SlurmdUser": ("root",),
    "SlurmdPort": ("6818", "6819"),
    "EpilogMsgTime": ("7", "0x10", "INFINITE"),
    "MinJobAge": ("7", "0x10", "1"),
    "SchedulerTimeSlice": ("7", "0x10", "4"),
    "SrunPortRange": ("60001-60010",),
    "Port": ("7000", "7001"),
    "State": ("DOWN", "UNKNOWN"),
    "SuspendTime": ("INFINITE", "-1", "300"),
    "OverTimeLimit": ("7", "UNLIMITED"),
    "SwitchType": ("switch/none",),
    "TaskPlugin": ("task/none", "task/affinity", "affinity,cgroup"),
    "TLSType": ("tls/none",),
    "Topology": (),
    "TopologyPlugin": ("topology/none",),
    "UrlParserType": (),
}

# Slurm uses another number instead: no difference is found, whatever is in force.
CORRECTED = ("EpilogMsgTime=INFINITE", "MinJobAge=1", "SchedulerTimeSlice=4")

# Values that are in no file of a start, for parameters that have one value in all starts; for others it is `another`.
NEVER_SERVED = {
    "AccountingStorageTRES": "gres/gpu",
    "ClusterName": "another",
    "PluginDir": "/another",
    "SlurmctldHost": "another(127.0.0.1)",
    "AllowQos": "another",
    "SlurmSchedLogFile": "/var/log/another",
    "SlurmUser": "daemon",
    "SlurmdUser": "daemon",
    "SrunPortRange": "60001-60020",
    "StateSaveLocation": "/another",
}

# Parameters that exclude others in Slurm, and the number of the start with the first of their values.
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
    "ReconfigFlags": 41,
    "SbcastParameters": 13,
    "SelectType": 22,
    "Shared": 35,
    "SocketsPerBoard": 16,
}

LINES = {
    "NodeName": "NodeName=n1 NodeAddr=127.0.0.1 RealMemory=10000",
    "PartitionName": "PartitionName=p1 Nodes=n1 Default=YES",
}

OTHER_NODE = "NodeName=n2 NodeAddr=127.0.0.3"

SCRIPT = """\
set -eu
directory=$(mktemp -d /root/check.XXXX)
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
        scontrol --all --future --oneliner show node 2>/dev/null || true
        echo "--- partitions"
        scontrol --all --oneliner show partition 2>/dev/null || true
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
    """The file that a slurmctld has read, and its output."""

    cases: tuple[Case, ...]
    file: str
    config: str
    nodes: str
    partitions: str

    def differences(self, file: str, version: str) -> list[str]:
        """Its differences from a file."""
        return differences(read({"slurm.conf": file}), self.config, self.nodes, self.partitions, version)

    def shown(self, case: Case) -> tuple[str | None, ...]:
        """The values shown for a parameter, or for the parameter that Slurm uses instead."""
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
    """Good values of a parameter for a slurmctld that runs."""
    if parameter.name in SERVING:
        values = [*SERVING[parameter.name]]
    elif parameter.name == "DebugFlags":  # all of them in a few values
        known = [word for word, span in words(FLAGS["DebugFlags"]).items() if release in span]
        values = [",".join(known[start::8]) for start in range(8)]
    elif parameter.value.startswith("hints"):
        name = parameter.value.partition(" ")[2]
        known = [word for word, span in words(HINTS[name]).items() if release in span]
        values = known if name in PARSED else known[:2]
        if name not in ("CpuBind", "LogTimeFormat", "PartitionPreemptMode"):  # these have one word
            values += [",".join(known[:2]), *([] if known[1:] else ["another"])]
    else:
        values = [*good(parameter)]
        values += _others(parameter) if len(values) == 1 else []
    return [
        value
        for value in dict.fromkeys(values)
        if all(problem.effect == IGNORED for problem in problems(case_file, [(parameter.name, value)], release))
    ]


def _others(parameter: Parameter) -> list[str]:
    """A good value that is in no file of the start with the first value."""
    kind = parameter.value.partition(" ")[0]
    if kind in LIMITS:
        return ["77"]
    return {"path": ["/var"], "dir": [], "program": ["/bin/false"]}.get(kind, ["another"] if kind in TEXTS else [])


def _never(case: Case) -> str:
    """A value that is in no start, for a parameter with one value there, or none."""
    name, kind = case.parameter.name, case.parameter.value.partition(" ")[0]
    prefix = case.value.partition("/")[0] if kind in ("plugin", "plugins") and case.value else ""
    return NEVER_SERVED.get(name, f"{prefix}/another" if prefix else "another")


def _parameters(release: str) -> Iterator[tuple[str, Parameter]]:
    """The parameters to check: all that a release obeys, except the lines that have parameters of their own."""
    for file in KINDS:
        for name, parameter in FILES[file].items():
            ignored = any(span and release in span for span in (parameter.refused, parameter.defunct))
            if release in parameter.releases and not ignored and name not in OWN_LINES:
                yield file, parameter


def _cases(release: str) -> list[Case]:
    """The cases of all parameters."""
    return [
        Case(file, parameter, value)
        for file, parameter in _parameters(release)
        for value in _values(file, parameter, release)
    ]


def _starts(cases: list[Case]) -> list[list[Case]]:
    """The cases in as few starts as possible."""
    starts: dict[int, list[Case]] = {}
    counts: dict[tuple[str, str], int] = {}
    for case in cases:
        key = (case.file, case.parameter.name)
        number = counts.setdefault(key, LATER.get(case.parameter.name, 0))
        counts[key] += 1
        starts.setdefault(number, []).append(case)
    return [*starts.values()]


def _text(cases: list[Case]) -> str:
    """slurm.conf with the parameters of these cases."""
    settings, lines = dict(SLURM_CONF), dict(LINES)
    for case in cases:
        name = case.parameter.name
        if case.file in LINES:
            base = [word for word in lines[case.file].split() if not word.startswith(f"{name}=")]
            lines[case.file] = " ".join([*base, case.pair])
        else:
            settings = {key: value for key, value in settings.items() if key.lower() != name.lower()}
            settings = {**settings, **NEEDED.get(case.value, NEEDED.get(name, {})), name: case.value}
    return "\n".join([*(f"{key}={value}" for key, value in settings.items()), *lines.values(), OTHER_NODE, ""])


def _run(starts: list[list[Case]], run: Runner) -> tuple[str, list[Running], list[str]]:
    """The version of slurmctld, and its output with the cases of each start."""
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
    name, pair = case.parameter.name, f"{case.parameter.name}={value}"
    line = LINES[case.file].split()[0] if case.file in LINES else ""
    start = rf"^({line} (?:.*\s)?)" if line else "^()"
    found, count = re.subn(rf"{start}{name}=\S*", rf"\g<1>{pair}", file, flags=re.M)
    if count:
        return found
    return re.sub(rf"^{line} .*", rf"\g<0> {pair}", file, flags=re.M) if line else f"{pair}\n{file}"


@dataclass(frozen=True)
class Comparison:
    """The results of the comparison with a real slurmctld."""

    version: str
    compared: int
    """Number of parameters whose differences are found."""
    left_out: list[str]
    """Parameters whose differences are not found."""
    pairs: int
    """Number of pairs of a value in force and another value in the file."""
    wrong: list[str]


def compare_drift(run: Runner) -> Comparison:
    """Check the comparison with a real slurmctld."""
    version = _run([], run)[0]
    release = release_of(version)
    cases = _cases(release)
    starts, wrong = _run(_starts(cases), run)[1:]
    served = {case: running for running in starts for case in running.cases}
    told: dict[tuple[str, str], list[bool]] = {}

    def tells(running: Running, case: Case, value: str) -> bool:
        """Whether a difference is found with another value of a parameter in the file, as it should be."""
        more = {*running.differences(_with(running.file, case, value), version)} - own[running]
        told.setdefault((case.file, case.parameter.name), []).append(bool(more))
        return bool(more)

    own = {running: {*running.differences(running.file, version)} for running in starts}
    wrong += [f"its own file: {line}" for lines in own.values() for line in lines]
    for case, running in served.items():
        for other, elsewhere in served.items():
            same = (other.file, other.parameter) == (case.file, case.parameter)
            if same and other != case and other.pair not in CORRECTED:
                here, there = running.shown(case), elsewhere.shown(other)
                if tells(running, case, other.value) != (any(here) and here != there) and not _left_out(
                    case.file, case.parameter.name
                ):
                    wrong.append(f"{case} in force, {other.value} in the file: shown as {here} and {there}")
    for file, parameter in _parameters(release):
        mine = [case for case in served if (case.file, case.parameter) == (file, parameter)]
        if len(mine) < 2 and starts:
            case = mine[0] if mine else Case(file, parameter, "")
            if not tells(served.get(case, starts[0]), case, _never(case)) and not _left_out(
                case.file, case.parameter.name
            ):
                wrong.append(f"{case} in force, {_never(case)} in the file: no difference is found")
    left_out = [(file, name) for (file, name), answers in told.items() if not any(answers)]
    wrong += [f"{file} {name}: no difference is found" for file, name in left_out if not _left_out(file, name)]
    shown = [f"{file} {name}" for file, name in left_out]
    return Comparison(version, len(told) - len(left_out), shown, sum(map(len, told.values())), wrong)


def _left_out(file: str, name: str) -> bool:
    """Whether a parameter is not compared on purpose."""
    return name in NOT_SHOWN[file] or name.lower() in NOT_COMPARED[file]
