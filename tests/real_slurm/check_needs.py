# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check with a real Slurm whether a change of a parameter needs a reconfigure or a restart.

A go is a small cluster on one host: a munged, a slurmctld and a slurmd of its own, on which a job runs all the time.
It starts with one value of each of its parameters. Then their second values are written, Slurm is asked to reconfigure,
and the daemons are restarted one after the other. After each stage the script records the state of Slurm: the output of
scontrol, the environment of a job, the programs that ran, and the plugins, files and ports of each daemon. A parameter
is in force at the first stage whose record is the same as that of the last stage. A case whose first and last stages
have the same record shows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import (
    FILES,
    needs,
    problems,
    release_of,
)
from real_slurm import Runner, archive

# A job: what it finds.
JOB = r"""
echo "job|nofile $(ulimit -n)"
echo "job|nice $(nice)"
echo "job|topology $SLURM_TOPOLOGY_ADDR"
while IFS=: read -r _id controller path; do
    for up in . .. ../..; do
        for file in memory.limit_in_bytes memory.memsw.limit_in_bytes memory.swappiness cpuset.cpus; do
            limit=/sys/fs/cgroup/$controller$path/$up/$file
            [ ! -e "$limit" ] || sed "s/^/cgroup|$file /" "$limit"
        done
    done
done </proc/self/cgroup
echo "job|pmi $(env | grep -c ^PMI_)"
sed -n 's:.*/\([^/]*\)\.so$:stepd|plugin \1:p' /proc/$PPID/maps | sort -u
echo "job|ended"
"""
SCRIPT = r"""\
set -u
directory=$(mktemp -d)
# By their command line or, as a slurmstepd whose job was lost, by where they are.
trap 'kill -9 $({
        grep -lsF "$directory/" /proc/[0-9]*/cmdline
        find /proc/[0-9]*/cwd -lname "$directory/*"
    } 2>/dev/null | cut -d/ -f3 | grep -vx $$) 2>/dev/null
    sleep 1
    find /sys/fs/cgroup -depth -type d -path "*slurm_needs*" -exec rmdir {} + 2>/dev/null
    rm -rf "$directory"' EXIT
chmod 755 "$directory"
cd "$directory"
tar -x
chmod -R a+rX .
if [ -d bin ]; then chmod 755 bin/*; fi
PATH=$directory/bin:$PATH:/usr/sbin:/sbin
plugins=$(dirname "$(find /usr/lib /usr/lib64 -name auth_munge.so 2>/dev/null | head -n 1)")
stepd=$(command -v slurmstepd || echo /usr/sbin/slurmstepd)

# The daemons of the go whose directory this is: their process ids.
pids() {
    for one in $(grep -lsF "$PWD/etc/slurm.conf" /proc/[0-9]*/cmdline); do
        case $(tr '\0' ' ' <"$one") in "$1 "* | */"$1 "*) basename "${one%/cmdline}" ;; esac
    done
}

# within SECONDS COMMAND ...: repeat a command until it succeeds.
within() {
    deadline=$(($(date +%s) + $1))
    shift
    until "$@" || [ "$(date +%s)" -ge "$deadline" ]; do sleep 0.2; done
}

gone() { [ -z "$(pids "$1")" ]; }

# Slurm's commands as they were configured when slurmctld started: they reach it.
asks_within() {
    limit=$1
    shift
    SLURM_CONF=$PWD/talk/slurm.conf timeout "$limit" "$@" 2>&1
}
asks() { asks_within 5 "$@"; }

# When the slurmd started that have registered, and whether it is another time than this.
starts() { asks scontrol -o show node | grep -o 'SlurmdStartTime=[^ ]*'; }
registered() { [ "$(starts)" != "$1" ]; }

# Before the first slurmd starts no node comes up: that slurmctld answers is enough.
up() {
    gone slurmctld && return
    states=$(asks sinfo -h -N -n "$(paste -sd, nodes)" -o %T) || return 1
    gone slurmd || ! echo "$states" | grep -qE '\*|unk|down|nable'
}

running() { [ "$(asks squeue -h -t R | wc -l)" -ge "$(wc -l <nodes)" ]; }
ended() { jobs=$(asks squeue -h) && [ -z "$jobs" ]; }

# answers SOURCE COMMAND ...: what slurmctld answers; a slow one is asked again.
answers() {
    source=$1
    shift
    for _try in 1 2; do
        asks "$@" >answer && break
        ! gone slurmctld || break
    done
    sed "s/^/$source|/" answer
}

start() {
    if [ "$1" = slurmctld ]; then
        cp etc/* talk/
        slurmctld -f "$PWD/etc/slurm.conf" 2>>errors
    else
        since=$(starts)
        for node in $(cat nodes); do slurmd -N "$node" -d "$stepd" -f "$PWD/etc/slurm.conf" 2>>errors; done
        within 5 registered "$since"
    fi
    within 10 up
}

stop() {
    kill $(pids "$1") 2>/dev/null
    within 10 gone "$1"
    kill -9 $(pids "$1") 2>/dev/null
}

# What a daemon is: its user, open files, ports, plugins.
process() {
    for pid in $(pids "$1"); do
        sed -n "s/^Uid:\t\([0-9]*\).*/$1|user \1/p" "/proc/$pid/status"
        sed -n "s:.* \(/.*\)/\([^/]*\)\.so\$:$1|plugin \2 of \1:p" "/proc/$pid/maps" |
            grep -F -e "$plugins" -e "$directory" | sort -u
        files=$(for file in /proc/$pid/fd/*; do readlink "$file"; done)
        echo "$files" | sed -n "s:^\(/.*log.*\):$1|file \1:p" | sort -u
        sockets=$(echo "$files" | sed -n 's/^socket:\[\(.*\)\]/\1/p')
        awk -v name="$1" -v sockets="$sockets" '
            BEGIN { n = split(sockets, list, "\n"); for (i = 1; i <= n; i++) mine[list[i]] = 1 }
            $4 == "0A" && $10 in mine { print name "|port " $2 }' /proc/net/tcp /proc/net/tcp6 | sort -u
        for file in *.pid; do
            if [ "$(cat "$file")" = "$pid" ]; then echo "$1|pidfile $file"; fi
        done
    done
}

# New lines of a log: which levels and texts they have, and how they begin.
log() {
    tail -c "+$(($2 + 1))" "$1.log" | grep -a '^\[' >lines || true
    tail -n 1 lines | sed -n 's/^\(\[[^]]*\]\) .*/\1/p' | sed 's/[0-9]/N/g; s/[A-Z][a-z][a-z]/W/g' |
        sed "s/^/$1-log|time /"
    grep -aoE ' debug[0-9]?: ' lines | sort -u | sed "s/^/$1-log|level/"
    grep -aoE ' [A-Z_]{4,}: ' lines | sort -u | sed "s/^/$1-log|flag/"
    sed -nE 's/.*debug3: +([A-Za-z ]*[A-Za-z]) += (.*)/\1 \2/p' "$1.log" |
        awk '{ last[$1] = $0 } END { for (key in last) print last[key] }' | sed "s/^/$1-log|says /"
}

# How the jobs are that run all the time.
long_jobs() { for job in $(cat long); do answers long scontrol -o show job "$job"; done; }

observe() {
    : >ran
    ctld=$(wc -c <slurmctld.log) slurmd=$(wc -c <slurmd.log)
    if [ -s probe ]; then . ./probe 2>&1; fi
    answers config scontrol show config
    answers node scontrol -o show node
    answers partition scontrol -o show partition
    answers topology scontrol -o show topology
    long_jobs
    process slurmctld
    process slurmd
    log slurmctld "$ctld"
    log slurmd "$slurmd"
    for used in state-*; do [ -z "$(ls -A "$used")" ] || echo "used|$used"; done
    for file in slurmd-*.log; do grep -a 'Gres Name=' "$file" | tail -n 1 | sed "s/^/gres|$file:/"; done 2>/dev/null
    sort -u ran | sed 's/^/ran|/'
}

stage() {
    echo "=== $go $1"
    observe >now 2>&1
    cat now
}

go() {
    cd "$directory/$go"
    sed -i "s|@go@|$PWD|g; s|@host@|$(uname -n)|; s|@plugins@|$plugins|; s|@munge@|$directory/munge|g" before/* after/*
    mkdir -p etc talk state-1 state-2 spool-1 spool-2
    chmod 777 . state-1 state-2 spool-1 spool-2
    touch ran slurmctld.log slurmd.log sched.log sched-2.log slurmctld-2.log jobcomp.log jobcomp-2.log
    if grep -q "$PWD/plugins" after/slurm.conf; then cp -a "$plugins" plugins; fi
    chmod 777 ran ./*.log
    for name in $(cat programs); do
        echo "echo $name >>$PWD/ran" | cat "$directory/sh" - >"$name"
        chmod 755 "$name"
    done
    export SLURM_CONF="$PWD/etc/slurm.conf"
    cp before/* etc/
    start slurmctld
    start slurmd
    : >long
    for node in $(cat nodes); do
        timeout 20 sbatch -p p1 -w "$node" --mem=10 $(cat wants) -o /dev/null --parsable \
            --wrap "while [ ! -e $PWD/end ]; do sleep 0.5; done" >>long
    done
    within 30 running
    stage started
    cp after/* etc/
    stage written
    since=$(starts)
    asks_within 60 scontrol reconfigure | sed 's/^/reconfigure|/'
    # Since 23.11 each slurmd registers anew.
    within 4 registered "$since"
    sleep 2
    within 10 up
    stage reconfigured
    for daemon in $(cat order); do
        stop "$daemon"
        start "$daemon"
        stage "$daemon"
    done
    touch end
    within 30 ended
    echo "=== $go end"
    long_jobs
    stop slurmd
    stop slurmctld
    cat errors | sed 's/^/errors|/'
}

printf '#!/bin/sh\n' >sh
dd if=/dev/urandom of=key bs=1024 count=1 2>/dev/null
chmod 600 key
if command -v munged >/dev/null; then
munged --force --key-file="$directory/key" --socket="$directory/munge" --pid-file="$directory/munged.pid" \
    --log-file="$directory/munged.log" --seed-file="$directory/seed" 2>/dev/null
fi
# As many at a time as there are quick ones: they wait more than they work. Ten of them, where some have many slurmd,
# need more threads than the 2,048 that podman lets a container have.
for worker in 0 1 2 3 4 5 6; do
    for go in [0-9][0-9]; do
        [ $((1$go % 7)) = $worker ] || continue
        ( go ) >"$go.out" 2>&1 </dev/null
    done &
done
wait
cat ./*.out
"""


@dataclass(frozen=True)
class Case:
    """A parameter with two values."""

    file: str
    key: str
    before: str
    after: str
    seen: str
    """A regular expression that finds the value in force in the script's output, in whole lines `SOURCE|TEXT`."""
    node: int = 0
    """The number of the node whose parameter this is; 0 if it belongs to no node."""


@dataclass(frozen=True)
class Go:
    """A cluster, and the parameters that change together in it."""

    cases: list[Case]
    order: tuple[str, str] = ("slurmctld", "slurmd")
    """The daemons, in the order of their restarts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further parameters in slurm.conf."""
    nodes: int = 1
    """Number of nodes with a slurmd."""
    probe: str = ""
    """Further commands of the script that record the state."""
    files: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Further text of a file, before and after the change."""
    wants: str = ""
    """The options of the job that runs all the time."""
    quick: bool = False
    """Whether every run of the tests has this go."""


# The parameters in every slurm.conf; for @...@ see the script.
BASE = {
    "ClusterName": "needs",
    "SlurmctldHost": "@host@(127.0.0.1)",
    "AuthType": "auth/munge",
    "AuthInfo": "socket=@munge@",
    "SlurmUser": "slurm",
    "StateSaveLocation": "@go@/state-1",
    "SlurmdSpoolDir": "@go@/spool-1/%n",
    "SlurmctldPidFile": "@go@/slurmctld-1.pid",
    "SlurmdPidFile": "@go@/slurmd-%n-1.pid",
    "SlurmctldLogFile": "@go@/slurmctld.log",
    "SlurmdLogFile": "@go@/slurmd.log",
    "SlurmdDebug": "debug3",
    "ProctrackType": "proctrack/linuxproc",
    "SelectType": "select/cons_tres",
    "MailProg": "/bin/true",
    "SlurmdParameters": "config_overrides",
    "ReturnToService": "2",
    "PriorityType": "priority/multifactor",
    # A slurmctld that was restarted does not use its nodes until they have registered. Until then a job waits for the
    # next scheduling cycle, which can begin 30 s later.
    "SchedulerParameters": "sched_interval=1",
}

# Two values of a kind that are not Slurm's defaults.
KINDS = {
    **dict.fromkeys(("u16", "u32", "u64", "minutes", "seconds"), ("41", "42")),
    "bool": ("NO", "YES"),
}
# Parameters whose values mean something beyond their kind.
VALUES = {
    "HealthCheckInterval": ("1", "2"),
    "MaxDBDMsgs": ("20000", "20001"),
    "MaxJobId": ("500000", "500001"),
    "MaxMemPerNode": ("400", "401"),
    "MessageTimeout": ("5", "6"),
    "SlurmSchedLogLevel": ("0", "1"),
    "UnkillableStepTimeout": ("300", "301"),
}

# slurmctld reads these, but other programs obey them: its output about them shows nothing.
ELSEWHERE = {
    *("AccountingStoragePort", "BcastExclude", "EioTimeout", "EpilogMsgTime", "FastSchedule", "GetEnvTimeout"),
    *("JobCompPort", "JobFileAppend", "KeepAliveTime", "KillOnBadExit", "PropagatePrioProcess", "TCPTimeout"),
    *("UnkillableStepTimeout", "UsePAM", "VSizeFactor", "WaitTime"),
}
# These have cases of their own, or none with others.
OWN = {
    *("AllowSpecResourcesUsage", "DefCPUPerGPU", "DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode", "Default"),
    *("DisableRootJobs", "FirstJobId", "JobRequeue", "MaxArraySize", "MaxJobCount", "MaxMemPerCPU", "MaxNodeCount"),
    *(
        "PowerDownOnIdle",
        "Priority",
        "PriorityFavorSmall",
        "PriorityWeightJobSize",
        "PriorityWeightPartition",
        "SlurmdPort",
    ),
}

CONFIG = r"(?i)^config\|{key}\s*= (.*)"
NODE = r"(?i)^node\|NodeName=n2 .*?\b{key}=(\S*)"
PARTITION = r"(?i)^partition\|PartitionName=p2 .*?\b{key}=(\S*)"


def _scalars(file: str, seen: str) -> Iterator[Case]:
    """Numbers, times and switches that slurmctld obeys."""
    for parameter in FILES[file].values():
        kind = parameter.value.partition(" ")[0]
        if parameter.name not in ELSEWHERE | OWN and kind in KINDS:
            values = VALUES.get(parameter.name, KINDS[kind])
            yield Case(file, parameter.name, *values, seen.format(key=parameter.name))


def _cases(file: str, seen: str, text: str) -> Iterator[Case]:
    """The cases of a text. Each line has a key, its two values and, if it is not `seen`, its own regular expression;
    two blanks or more separate them.
    """
    for line in text.strip().splitlines():
        key, before, after, *own = re.split(r"\s{2,}", line.strip())
        yield Case(file, key, before, after, own[0] if own else seen.format(key=key))


def _programs(*keys: str) -> Iterator[Case]:
    """Programs that say that they ran."""
    for key in keys:
        yield Case("slurm.conf", key, f"@go@/{key}-1", f"@go@/{key}-2", rf"^ran\|({key}-\d)")


MAIN = Go(
    [
        *_scalars("slurm.conf", CONFIG),
        *_scalars("PartitionName", PARTITION),
        *_programs("Prolog", "Epilog", "TaskProlog", "TaskEpilog", "PrologSlurmctld", "EpilogSlurmctld"),
        *_programs("SrunProlog", "SrunEpilog", "MailProg", "HealthCheckProgram"),
        *_cases(
            "slurm.conf",
            CONFIG,
            r"""
            AccountingStoreFlags      job_comment         job_script
            DependencyParameters      disable_remote_singleton  kill_invalid_depend
            HealthCheckNodeState      IDLE,MIXED          ALLOC,MIXED
            MailDomain                a.example           b.example
            PreemptParameters         reorder_count=2     reorder_count=3
            PriorityFlags             CALCULATE_RUNNING   ACCRUE_ALWAYS
            PriorityUsageResetPeriod  DAILY               WEEKLY
            PrologFlags               Alloc               Alloc,NoHold
            RequeueExit               3                   4
            RequeueExitHold           5                   6
            ResumeFailProgram         /bin/true           /bin/false
            ResvEpilog                /bin/true           /bin/false
            ResvProlog                /bin/true           /bin/false
            ScronParameters           enable              enable,explicit_scancel
            SlurmctldPrimaryOffProg   /bin/true           /bin/false
            SlurmctldPrimaryOnProg    /bin/true           /bin/false
            SlurmctldSyslogDebug      error               info
            SuspendExcParts           p1                  p1,p2
            SuspendExcStates          DOWN                DRAIN
            TopologyParam             TopoOptional        dragonfly
            DebugFlags                NO_CONF_HASH        NO_CONF_HASH,Steps  ^slurmctld-log\|flag +(STEPS)
            DefMemPerCPU              50                  60                  ^submit\|.*MinMemoryCPU=(\S+)
            FirstJobId                1                   90000               ^submit\|JobId=(\d)\d{4}\b
            JobRequeue                0                   1                   ^submit\|.*Requeue=(\d)
            Licenses                  matlab:2            matlab:3            ^license\|.*Total=(\d)
            LogTimeFormat             iso8601_ms          short               ^slurmctld-log\|time (.*)
            MaxArraySize              11                  21                  ^array\|(.*)
            MpiDefault                none                pmi2                ^job\|pmi (.*)
            PriorityWeightJobSize     1000                2000                ^prio\|.*J(\d+)
            PriorityWeightPartition   1000                2000                ^prio\|.*P(\d+)
            PriorityWeightTRES        CPU=1000            CPU=2000            ^prio\|.*T(\S+)
            PrivateData               accounts            jobs                ^nobody\|(\d+)
            PropagateResourceLimits   NONE                ALL                 ^job\|nofile (.*)
            PropagatePrioProcess      0                   1                   ^job\|nice (.*)
            SlurmctldDebug            info                debug2              ^slurmctld-log\|level +(.*):
            TaskPluginParam           Verbose             Autobind=threads    ^slurmd-log\|says TaskPluginParam (.*)
            TmpFS                     /tmp                /var/tmp            ^slurmd-log\|says TmpFS (.*)
            UsePAM                    NO                  YES                 ^slurmd-log\|says UsePAM (.*)
        """,
        ),
        *_cases(
            "NodeName",
            NODE,
            r"""
            BcastAddr     127.0.0.2  127.0.0.3
            CpuBind       core       socket
            Feature       a          b          ^node\|NodeName=n2 .*AvailableFeatures=(\S+)
            MemSpecLimit  10         20
            NodeAddr      127.0.0.1  127.0.0.2
            NodeHostname  here       there
            RealMemory    500        501
            State         UNKNOWN    DOWN       ^node\|NodeName=n2 .*State=(\w+)
            TmpDisk       10         11
            Weight        2          3
            SuspendTime   600        700
        """,
        ),
        *_cases(
            "PartitionName",
            PARTITION,
            r"""
            AllocNodes            a          b
            AllowAccounts         a          b
            AllowGroups           root       slurm
            Alternate             p1         p3
            CpuBind               core       socket   ^partition\|PartitionName=p2 .*CpuBind=(\S+)
            Nodes                 n2         n2,n3
            OverSubscribe         FORCE:2    FORCE:3
            OverTimeLimit         41         42
            PreemptMode           OFF        REQUEUE
            SelectTypeParameters  CR_Core    CR_Socket
            State                 UP         DRAIN
            TRESBillingWeights    CPU=1.0    CPU=2.0
        """,
        ),
        Case("PartitionName", "PartitionName", "p4", "p5", r"^partition\|PartitionName=(p[45])"),
        *_cases(
            "NodeSet",
            "",
            r"""
            Nodes  n2  n3  ^partition\|PartitionName=p3 .*\bNodes=(\S+)
        """,
        ),
    ],
    settings={"HealthCheckInterval": "1", "SlurmSchedLogFile": "@go@/sched.log"},
    probe="""\
priorities() { sprio -h -o 'prio|J%J P%P T%T' 2>/dev/null | sort -u | grep .; }
all_ran() { grep -q Health ran && grep -q Mail ran && [ -z "$(squeue -h -n probe)" ]; }
(ulimit -Sn 999; nice -n 7 timeout 30 srun -p p1 --mem=10 --mail-type=END -J probe sh ../job)
held=$(sbatch -p p1 -H --parsable --wrap true)
scontrol -o show job "$held" | sed 's/^/submit|/'
scontrol -o show license | sed 's/^/license|/'
sbatch -p p1 -H --mem=10 --array=0-15 --wrap true >array 2>&1 && echo 'array|taken' || echo 'array|refused'
sbatch -p p1 --mem=10 --exclusive --wrap true >/dev/null
within 10 priorities
echo "nobody|$(runuser -u nobody -- squeue -h | wc -l)"
scancel -t PD
within 20 all_ran
""",
    quick=True,
)

CONTROLLER = Go(
    [
        *_cases(
            "slurm.conf",
            CONFIG,
            r"""
            GresTypes         gpu                      gpu,nic                    ^slurm\w+\|plugin (gres_\w+)
            JobCompType       jobcomp/script           jobcomp/filetxt            ^slurmctld\|plugin (jobcomp_\w+)
            JobSubmitPlugins  job_submit/logging       job_submit/all_partitions  ^slurmctld\|plugin (job_submit_\w+)
            MCSPlugin         mcs/user                 mcs/account                ^slurmctld\|plugin (mcs_\w+)
            PreemptType       preempt/none             preempt/partition_prio     ^slurmctld\|plugin (preempt_\w+)
            PriorityType      priority/basic           priority/multifactor       ^slurmctld\|plugin (priority_\w+)
            SchedulerType     sched/builtin            sched/backfill             ^slurmctld\|plugin (sched_\w+)
            PreemptMode       OFF                      REQUEUE
            MaxJobCount       8                        1000                       ^array\|(.*)
            SlurmctldParameters  idle_on_node_suspend  user_resv_delete           ^delete\|(.*)
            SelectTypeParameters  CR_Core              CR_Core_Memory             ^alloc\|NodeName=needs.*AllocMem=(\d+)
        """,
        ),
        *_cases(
            "DownNodes",
            "",
            r"""
            State  FAIL  DOWN  ^node\|NodeName=n3 .*State=(\w+)
        """,
        ),
    ],
    settings={"JobCompLoc": "@go@/jobcomp.log"},
    probe="""\
timeout 30 srun -p p1 --mem=10 sh -c "sh ../job; scontrol -o show node | sed 's/^/alloc|/'"
timeout 3 sbatch -p p1 -H --mem=10 --array=0-15 --wrap true >array 2>&1 && echo 'array|taken' || echo 'array|refused'
scontrol create reservation=r1 users=nobody nodes=n2 starttime=now duration=1 >/dev/null 2>&1
runuser -u nobody -- scontrol delete reservation=r1 >/dev/null 2>&1 && echo 'delete|taken' || echo 'delete|refused'
scontrol delete reservation=r1 >/dev/null 2>&1
scancel -t PD
""",
    quick=True,
)

NODES = Go(
    [
        *_cases(
            "slurm.conf",
            CONFIG,
            r"""
            AcctGatherEnergyType  acct_gather_energy/none  acct_gather_energy/pm_counters  ^slurmd\|.* (\w+_counters)
            SlurmdDebug           info                     debug3                          ^slurmd-log\|level +(.*):
            TaskPlugin            task/none                task/affinity                   ^stepd\|plugin (task_a\w+)
        """,
        ),
        Case(
            "slurm.conf",
            "AcctGatherInterconnectType",
            "acct_gather_interconnect/none",
            "acct_gather_interconnect/sysfs",
            r"^slurmd\|plugin (\w+_sysfs)",
        ),
        Case("plugstack.conf", "optional", "spank_no.so", "spank_pbs.so", r"^(?:stepd|slurmd)\|plugin (spank_\w+)"),
    ],
    order=("slurmd", "slurmctld"),
    probe="timeout 30 srun -p p1 --mem=10 sh ../job\n",
    files={"plugstack.conf": ("", "optional spank_pbs.so\n")},
    quick=True,
)

OWN_FILES = Go(
    [
        *_cases(
            "slurm.conf",
            CONFIG,
            r"""
            SlurmctldPidFile   @go@/slurmctld-1.pid  @go@/slurmctld-2.pid  ^slurmctld\|pidfile (.*)
            SlurmdPidFile      @go@/slurmd-1.pid     @go@/slurmd-2.pid     ^slurmd\|pidfile (.*)
            SlurmctldLogFile   @go@/slurmctld.log    @go@/slurmctld-2.log  ^slurmctld\|file .*/(slurmctld.*)
            SlurmdLogFile      @go@/slurmd.log       @go@/slurmd-2.log     ^slurmd\|file .*/(slurmd.*)
            SlurmSchedLogFile  @go@/sched.log        @go@/sched-2.log      ^slurmctld\|file .*/(sched.*)
            JobCompLoc         @go@/jobcomp.log      @go@/jobcomp-2.log    ^slurmctld\|file .*/(jobcomp.*)
            PluginDir          @plugins@             @go@/plugins          ^slurm\w+\|plugin cred_\w+ of (.*)
        """,
        ),
    ],
    settings={"SlurmSchedLogLevel": "1", "JobCompType": "jobcomp/filetxt"},
    quick=True,
)

PORTS = [
    Go([case], quick=True)
    for case in (
        Case("slurm.conf", "SlurmctldPort", "21990", "21991", r"^slurmctld\|port \w+:(\w+)"),
        Case("NodeName", "Port", "21992", "21993", r"^slurmd\|port \w+:(\w+)", 1),
    )
]

USER = Go([*_cases("slurm.conf", "", r"SlurmUser  slurm  root  ^slurmctld\|user (\d+)")])

JOB_PROBE = "timeout 30 srun -p p1 --mem=10 sh ../job\n"

SHAPE = Go(
    [
        Case("NodeName", "CPUs", "4", "2", r"^node\|NodeName=needs\d+x1 .*CPUTot=(\d+)", 1),
        Case("NodeName", "Sockets", "4", "2", r"^node\|NodeName=needs\d+x2 .*Sockets=(\d+)", 2),
        Case("NodeName", "CoresPerSocket", "4", "2", r"^node\|NodeName=needs\d+x3 .*CoresPerSocket=(\d+)", 3),
        Case("NodeName", "ThreadsPerCore", "4", "2", r"^node\|NodeName=needs\d+x4 .*ThreadsPerCore=(\d+)", 4),
        Case("NodeName", "SocketsPerBoard", "4", "2", r"^node\|NodeName=needs\d+x5 .*Sockets=(\d+)", 5),
        Case(
            "NodeName",
            "Boards",
            "1 SocketsPerBoard=2",
            "2 SocketsPerBoard=2",
            r"^node\|NodeName=needs\d+x6 .*Boards=(\d+)",
            6,
        ),
        Case(
            "NodeName", "CoreSpecCount", "1 CPUs=4", "2 CPUs=4", r"^node\|NodeName=needs\d+x7 .*CoreSpecCount=(\d+)", 7
        ),
        Case("NodeName", "CPUSpecList", "0 CPUs=4", "1 CPUs=4", r"^node\|NodeName=needs\d+x8 .*CPUSpecList=(\S+)", 8),
        Case("NodeName", "MemSpecLimit", "10", "20", r"^node\|NodeName=needs\d+x9 .*MemSpecLimit=(\d+)", 9),
        Case("NodeName", "RealMemory", "400", "410", r"^node\|NodeName=needs\d+x10 .*RealMemory=(\d+)", 10),
    ],
    nodes=10,
    settings={"SlurmdLogFile": "@go@/slurmd-%n.log"},
)

GRES = (
    ("File", "File=/dev/null", "File=/dev/zero", r"File=(\S+)"),
    ("Cores", "File=/dev/null Cores=0", "File=/dev/null Cores=1", r"Cores=(\S+)"),
    ("Links", "File=/dev/null Links=-1", "File=/dev/null Links=0", r"Links=(\S+)"),
    ("MultipleFiles", "MultipleFiles=/dev/null,/dev/full", "MultipleFiles=/dev/zero,/dev/full", r"File=(\S+)"),
)
DEVICES = Go(
    [
        *(
            Case("gres.conf", key, before, after, rf"^gres\|\S+x{number}.log:.*{seen}", number)
            for number, (key, before, after, seen) in enumerate(GRES, 1)
        ),
        Case("NodeName", "Gres", "gpu:2", "gpu:3", r"^node\|NodeName=needs\d+x5 .*Gres=(\S+)", 5),
    ],
    nodes=5,
    settings={"SlurmdLogFile": "@go@/slurmd-%n.log", "GresTypes": "gpu", "DebugFlags": "Gres"},
    wants="--gres=gpu:1",
)

TREE = Go(
    [
        *_cases(
            "topology.conf",
            "",
            r"""
            SwitchName  s1  t1   ^job\|topology top.([st]1)
            Nodes       n2  n3   ^topology\|SwitchName=s2 .*Nodes=(\S+)
            LinkSpeed   1   2    ^topology\|SwitchName=s2 .*LinkSpeed=(\S+)
            Switches    s2  s2,s3  ^topology\|SwitchName=top .*Switches=(\S+)
        """,
        ),
    ],
    settings={"TopologyPlugin": "topology/tree"},
    files={
        "topology.conf": (
            "SwitchName=s1 Nodes=@node@\nSwitchName=s2 Nodes=n2 LinkSpeed=1\nSwitchName=s3 Nodes=n3\n"
            "SwitchName=top Switches=s1,s2,s3\n",
            "SwitchName=t1 Nodes=@node@\nSwitchName=s2 Nodes=n2,n3 LinkSpeed=2\nSwitchName=top Switches=t1,s2\n",
        )
    },
    probe=JOB_PROBE,
    quick=True,
)

BLOCK = Go(
    [
        *_cases(
            "topology.conf",
            "",
            r"""
            BlockName   b1  c1   ^topology\|BlockName=([bc]1)
            BlockSizes  1   2    ^topology\|BlockName.*BlockSize=(\d+)
        """,
        ),
    ],
    settings={"TopologyPlugin": "topology/block"},
    files={
        "topology.conf": (
            "BlockName=b1 Nodes=@node@,n2\nBlockSizes=1\n",
            "BlockName=c1 Nodes=@node@,n2\nBlockSizes=2\n",
        )
    },
)

CGROUP = {"TaskPlugin": "task/cgroup", "ProctrackType": "proctrack/cgroup"}
CONSTRAIN = Go(
    [
        *_cases(
            "cgroup.conf",
            "",
            r"""
            ConstrainCores      no  yes  ^cgroup\|cpuset.cpus (\S+)
            ConstrainRAMSpace   no  yes  ^cgroup\|memory.limit_in_bytes (\S+)
            ConstrainSwapSpace  no  yes  ^cgroup\|memory.memsw.limit_in_bytes (\S+)
        """,
        ),
    ],
    settings=CGROUP,
    probe=JOB_PROBE,
)
SPACE = Go(
    [
        *_cases(
            "cgroup.conf",
            "",
            r"""
            AllowedRAMSpace   100  80  ^cgroup\|memory.limit_in_bytes (\S+)
            AllowedSwapSpace  10   50  ^cgroup\|memory.memsw.limit_in_bytes (\S+)
            MemorySwappiness  10   20  ^cgroup\|memory.swappiness (\S+)
        """,
        ),
    ],
    settings=CGROUP,
    files={"cgroup.conf": ("ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n",) * 2},
    probe=JOB_PROBE.replace("=10", "=200"),
)
SMALL = Go(
    [*_cases("cgroup.conf", "", r"MinRAMSpace  50  60  ^cgroup\|memory.limit_in_bytes (\S+)")],
    settings=CGROUP,
    files={"cgroup.conf": ("ConstrainRAMSpace=yes\n",) * 2},
    probe=JOB_PROBE,
)

ALONE = r"""
    AuthType           auth/munge            auth/none                  ^slurm\w+\|plugin (auth_\w+)
    ClusterName        needs                 other                      (?i)^config\|ClusterName\s*= (.*)
    CredType           cred/munge            cred/none                  ^slurm\w+\|plugin (cred_\w+)
    JobAcctGatherType  jobacct_gather/none   jobacct_gather/linux       ^stepd\|plugin (jobacct_gather_l\w+)
    JobContainerType   job_container/none    job_container/tmpfs        ^slurmd\|plugin (job_container_t\w+)
    NamespaceType      namespace/none        namespace/tmpfs            ^slurmd\|plugin (namespace_t\w+)
    MaxNodeCount       100                   101                        (?i)^config\|MaxNodeCount\s*= (.*)
    ProctrackType      proctrack/linuxproc   proctrack/pgid             ^stepd\|plugin (proctrack_\w+)
    SelectType         select/cons_tres      select/linear              (?i)^config\|SelectType\s*= (.*)
    SlurmdSpoolDir     @go@/spool-1          @go@/spool-2               ^slurmd-log\|says Spool Dir (.*)
    StateSaveLocation  @go@/state-1          @go@/state-2               ^used\|(state-2)
    TopologyPlugin     topology/none         topology/tree              ^slurm\w+\|plugin (topology_\w+)
    TopologyPlugin     topology/default      topology/tree              ^slurm\w+\|plugin (topology_\w+)
    TopologyPlugin     topology/flat         topology/tree              ^slurm\w+\|plugin (topology_\w+)
"""

SINGLE = [
    Go(
        [case],
        settings={"PrologFlags": "Contain"} if "tmpfs" in case.after else {},
        probe=JOB_PROBE if case.seen.startswith("^stepd") else "",
        files={
            "topology.conf": ("SwitchName=s1 Nodes=@node@,n[2-4]\n",) * 2,
            "job_container.conf": ("AutoBasePath=true\nBasePath=@go@/base\n",) * 2,
        },
    )
    for case in _cases("slurm.conf", CONFIG, ALONE)
]
GROWN = Go([Case("NodeName", "NodeName", "n4", "n[4-5]", r"^node\|NodeName=(n[45])")])


GOES = [
    *(MAIN, CONTROLLER, NODES, OWN_FILES, *PORTS, USER, SHAPE, DEVICES, TREE, BLOCK, CONSTRAIN, SPACE, SMALL),
    *SINGLE,
    GROWN,
]

# The values of a parameter whose value is a program that the script makes.
PROGRAM = r"@go@/[A-Z]\w+-[12]"


def _line(values: Mapping[str, str]) -> str:
    """A line of several parameters."""
    return " ".join(f"{key}={value}" for key, value in values.items())


def _names(index: int, go: Go) -> list[str]:
    """The nodes of a go that have a slurmd."""
    return [f"needs{index}x{number}" for number in range(1, go.nodes + 1)]


def _files(index: int, go: Go, after: bool) -> dict[str, str]:
    """The configuration of a go."""
    port = 21000 + 20 * index
    settings = {**BASE, "SlurmctldPort": str(port), **go.settings}
    names = _names(index, go)
    real = [
        {
            "NodeName": name,
            "NodeHostname": "@host@",
            "NodeAddr": "127.0.0.1",
            "Port": str(port + number),
            "RealMemory": "500",
            **({"Gres": "gpu:1"} if go.wants else {}),
        }
        for number, name in enumerate(names, 1)
    ]
    lines = {
        "NodeName": {"NodeName": "n2", "NodeAddr": "127.0.0.1", "RealMemory": "500"},
        "PartitionName": {"PartitionName": "p2", "Nodes": "n2"},
        "DownNodes": {"DownNodes": "n3"},
        "NodeSet": {"NodeSet": "s1", "Nodes": "n2"},
    }
    grown, fourth = "n4", "p4"
    own = {name: [text[after]] for name, text in go.files.items()}
    for case in go.cases:
        value = case.after if after else case.before
        if case.file == "slurm.conf":
            settings[case.key] = value
        elif case.file == "gres.conf":
            own.setdefault("gres.conf", []).append(f"NodeName={names[case.node - 1]} Name=gpu {value}\n")
        elif case.key == "NodeName":
            grown = value
        elif case.key == "PartitionName":
            fourth = value
        elif case.node:
            real[case.node - 1][case.key] = value
        elif case.file in lines:
            lines[case.file][case.key] = value
        elif case.file not in go.files or case.file == "cgroup.conf":
            own.setdefault(case.file, []).append(f"{case.key}={value}\n")
    for node in real:
        if not {"CPUs", "Sockets", "CoresPerSocket", "ThreadsPerCore", "SocketsPerBoard", "Boards"} & {
            *node
        } and "CPUs=" not in str(node):
            node["CPUs"] = "4"
    if "State" not in lines["DownNodes"]:
        del lines["DownNodes"]
    conf = [
        *(f"{key}={value}" for key, value in settings.items()),
        *map(_line, real),
        _line(lines.pop("NodeName")),
        "NodeName=n3 NodeAddr=127.0.0.1",
        f"NodeName={grown} NodeAddr=127.0.0.1",
        *map(_line, lines.values()),
        f"PartitionName=p1 Nodes={','.join(names)} Default=YES",
        "PartitionName=p3 Nodes=s1",
        f"PartitionName={fourth} Nodes=n2",
    ]
    own.setdefault("cgroup.conf", []).append("CgroupPlugin=cgroup/v1\n")
    for number in range(1, go.nodes + 1) if go.wants else ():
        if not any(case.node == number and case.file == "gres.conf" for case in go.cases):
            own["gres.conf"].append(f"NodeName={names[number - 1]} Name=gpu File=/dev/null,/dev/zero,/dev/full\n")
    return {
        "slurm.conf": "\n".join([*conf, ""]),
        **{name: "".join(text).replace("@node@", names[0]) for name, text in own.items()},
    }


def _packed(index: int, go: Go) -> dict[str, str | bytes]:
    """The files of a go by their path."""
    found = {
        f"{when}/{name}": text
        for when, after in (("before", False), ("after", True))
        for name, text in _files(index, go, after).items()
    }
    values = [value for case in go.cases for value in (case.before, case.after)]
    found |= {
        "order": " ".join(go.order),
        "nodes": "".join(f"{name}\n" for name in _names(index, go)),
        "programs": "\n".join(value.removeprefix("@go@/") for value in values if re.fullmatch(PROGRAM, value)),
        "wants": go.wants,
        "probe": go.probe,
    }
    return {f"{index:02}/{name}": text for name, text in found.items()}


EFFECT, SAID, READ = "by its effect", "by what the daemon says", "only as read"
# Sources of the script's output about slurmctld only.
SEES = {
    *("config", "node", "partition", "topology", "license", "submit", "array", "prio", "nobody", "delete", "alloc"),
    *("slurmctld", "slurmctld-log"),
}
# Sources of the script's output about a job of the stage.
OF_JOBS = {"ran", "job", "cgroup", "stepd", "(?:stepd|slurmd)", "slurmctld-log", "slurmd-log"}


@dataclass(frozen=True)
class Finding:
    """The need of a change of a parameter, by the tables and by the behaviour of Slurm."""

    case: Case
    evidence: str
    """EFFECT, SAID or READ."""
    expected: str
    """The stage after which the change is in force, by the tables."""
    found: str
    """The stage after which the change was in force; empty if the two values could not be told apart."""
    excess: int
    """Number of stages between the one in the tables and the one that was found; negative if it was earlier."""
    idle: str
    """The part of the cluster that must have no job, by the tables."""
    survived: bool
    """Whether the job that ran all the time completed without a restart."""
    shown: str
    """The values seen at each stage."""

    @property
    def checked(self) -> bool:
        """Whether Slurm's behaviour has shown the need."""
        return bool(self.found) and self.evidence != READ

    @property
    def wrong(self) -> bool:
        """Whether Slurm needed more than the tables say."""
        return self.checked and (self.excess > 0 or not (self.survived or self.idle))

    @property
    def careful(self) -> bool:
        """Whether Slurm needed less than the tables say."""
        return self.checked and not self.wrong and (self.excess < 0 or (self.survived and bool(self.idle)))

    def __str__(self) -> str:
        case, slurm = self.case, self.found or "no difference seen, or no job ran"
        wanted = f" (wanted: none on {self.idle})" if self.idle else ""
        return (
            f"{case.file}: {case.key}={case.before} -> {case.after}\n"
            f"  tables: {self.expected}, Slurm: {slurm} ({self.evidence})\n"
            f"  the job{wanted} {'survived' if self.survived else 'was lost'}\n"
            f"    {self.shown}"
        )


def _finding(case: Case, go: Go, names: list[str], said: Mapping[str, str], version: str) -> Finding:
    """The result of a case, from the output of Slurm."""
    source = case.seen.removeprefix("(?i)").lstrip("^").partition("\\|")[0]
    every = ["started", "written", "reconfigured", *go.order]

    def silent(stage: str) -> bool:
        """Whether a stage shows nothing: a job did not start in time, or a daemon that runs did not answer."""
        text = said.get(stage, "")
        jobless = source in OF_JOBS and bool(go.probe) and not re.search(r"^job\|ended", text, re.M)
        alive = re.search(r"^slurmctld\|user", text, re.M)
        return jobless or bool(alive and not re.search(rf"^{source}\|", text, re.M))

    stages = [stage for stage in every if not silent(stage)]
    seen = [sorted({*re.findall(case.seen, said.get(stage, ""), re.M)}) for stage in stages]
    # The first stage after which nothing changes any more.
    same = next((number for number in range(len(stages)) if all(values == seen[-1] for values in seen[number:])), 0)
    need = needs(case.file, case.key, version)
    daemons = ("slurmctld",) if source in SEES else ("slurmctld", "slurmd") if "slurm\\w" in source else ("slurmd",)
    restarts = [go.order.index(name) for name in need.restart if name in daemons] or [
        go.order.index(name) for name in need.restart if name in go.order
    ]
    expected = "reconfigured" if need.reconfigure else go.order[max(restarts)] if restarts else "written"
    found = stages[same] if same else ""
    excess = every.index(found) - every.index(expected) if found else 0
    if excess > 0 and silent(every[every.index(found) - 1]):
        found, excess = "", 0
    evidence = (
        SAID
        if source in ("config", "node", "partition", "topology", "license", "gres") or "says" in case.seen
        else EFFECT
    )
    if source == "config" and release_of(version) < "23.11":
        evidence = READ
    job = rf"^long\|.*JobState=(\w+) .*Restarts=(\d+) .*ReqNodeList={names[max(case.node, 1) - 1]} "
    ran, ended = (re.search(job, said.get(stage, ""), re.M) for stage in ("started", "end"))
    if not ran or ran[1] != "RUNNING":
        found = ""
    return Finding(
        case,
        evidence,
        expected,
        found,
        excess,
        need.idle,
        bool(ended and ended.groups() == ("COMPLETED", "0")),
        " | ".join(",".join(values) or "-" for values in seen),
    )


def compare(run: Runner, programs: Mapping[str, bytes], every: bool) -> tuple[str, list[Finding]]:
    """The version of Slurm, and its results for every case, or for the quick ones only.

    Args:
        run: on a host, as root.
        programs: slurmd and slurmstepd by their path, if the host lacks them.
        every: all cases, not only the quick ones.
    """
    version = run("slurmctld -V", b"").split()[1]

    def takes(case: Case) -> bool:
        values = (
            [("", "")] if case.file in ("gres.conf", "topology.conf") else [case.before.split(), case.after.split()]
        )
        known = release_of(version) in FILES[case.file][case.key.lower()].releases
        return known and not any(problems(case.file, [(case.key, value[0])], version) for value in values if value[0])

    chosen = [replace(go, cases=[case for case in go.cases if takes(case)]) for go in GOES if every or go.quick]
    chosen = [go for go in chosen if go.cases]
    always: dict[str, str | bytes] = {
        "job": JOB,
        **{f"bin/{PurePath(path).name}": data for path, data in programs.items()},
    }

    def checked(indexes: Iterable[int]) -> dict[int, list[Finding]]:
        """The findings of goes by their index."""
        files: dict[str, str | bytes] = {**always}
        said: dict[int, dict[str, str]] = {index: {} for index in indexes}
        for index in said:
            files |= _packed(index, chosen[index])
        parts = re.split(r"^=== (\d+) (\w+)\n", run(SCRIPT, archive(files)), flags=re.M)
        for number, stage, text in zip(parts[1::3], parts[2::3], parts[3::3]):
            said[int(number)][stage] = text
        return {
            index: [_finding(case, go, _names(index, go), stages, version) for case in go.cases]
            for index, stages in said.items()
            for go in [chosen[index]]
        }

    found = checked(range(len(chosen)))
    # On a machine that is busy with other things a daemon or a job may be late: what seems to need more is asked again,
    # and what shows nothing.
    late = [
        index
        for index, findings in found.items()
        if any(one.wrong for one in findings) or not any(one.found for one in findings)
    ]
    found |= checked(late) if late else {}
    return version, [one for findings in found.values() for one in findings]


def summary(version: str, findings: list[Finding]) -> str:
    """A line with the numbers of parameters that were checked, and of the ways of checking."""

    def count(chosen: Iterable[Finding]) -> int:
        return len({(one.case.file, one.case.key) for one in chosen})

    checked = [one for one in findings if one.checked]
    effect, said = ([one for one in checked if one.evidence == kind] for kind in (EFFECT, SAID))
    careful, wrong = [one for one in checked if one.careful], [one for one in checked if one.wrong]
    agree = [one for one in checked if one not in careful and one not in wrong]
    read = [one for one in findings if one.found and one.evidence == READ]
    known = sum(release_of(version) in parameter.releases for table in FILES.values() for parameter in table.values())
    return (
        f"Slurm {version}: {count(checked)} parameters checked, {count(effect)} {EFFECT} and {count(said)} {SAID}:"
        f" {count(agree)} agree, {count(careful)} need less, {count(wrong)} need more;"
        f" {count(read)} seen {READ}, {known - count(checked)} not checked"
    )
