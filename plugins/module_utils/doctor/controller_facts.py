# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about a controller or the database host: its daemons, and, if it serves, the nodes that are not well."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from ..client import scontrol, slurm_records
from ..client.commands import output, run
from ..configuration import conf_file
from ..controller.sockets import connection_error
from ..language.hostlist import expand
from . import daemon_facts, slurmdbd_queue
from .ended_reservations import find_held_jobs
from .evidence import ClusterFacts, ServerAnswer, SlurmNode, complete
from .runaway_jobs import find_runaway_jobs
from .slurmd_question import ask_slurmds

if TYPE_CHECKING:
    from ...plugin_utils.results.fact_records import Empty, NodeOptions

THREADS = 128
CONNECT = 3
"""Seconds for a connection to a slurmd."""
TTL = 900
"""Seconds for which the credential is valid, with which the nodes check munge."""
OF_A_NODE = 6
"""Lines of slurmctld's log that are kept for a node."""

DIRECTORIES = ("/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc/slurm", "/opt/slurm/etc")
"""Where slurm.conf is if nobody says where."""

DEFAULTS = {
    "slurmuser": "root",
    "slurmctldport": "6817",
    "slurmdport": "6818",
    "slurmdspooldir": "/var/spool/slurmd",
    "tmpfs": "/tmp",
}
OTHER_CONF = "appears to have a different slurm.conf"
"""Message of slurmctld about a node that may be in service (`_slurm_rpc_node_registration` in proc_req.c)."""

REBOOTED = "unexpectedly rebooted"
"""Message of slurmctld about a node that it sets down, in a line that is no error (`validate_node_specs`)."""

Settings = Mapping[str, str]
"""Parameters by their names in small letters."""


def read_settings(text: str) -> dict[str, str]:
    """The parameters in a file of `Key=value`, or in the output of `scontrol show config`; `(null)` is left out."""
    found: dict[str, str] = {}
    for key, value in re.findall(r"^[ \t]*([\w\[\]]+)[ \t]*=[ \t]*([^#\n]*)", text, re.MULTILINE):
        name, word = re.sub(r"\[\d+\]", "", key).lower(), value.strip().strip('"')
        if word and word != "(null)":
            # Each controller has a line of its own.
            found[name] = f"{found[name]} {word}" if name == "slurmctldhost" and name in found else word
    return found


def find_conf(shown: Settings) -> str:
    """The slurm.conf of this host."""
    places = [shown.get("slurm_conf", ""), *(f"{directory}/slurm.conf" for directory in DIRECTORIES)]
    return next(filter(os.path.isfile, places), "")


def read_text(path: str) -> str:
    """A text file; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def checksum(content: str) -> str:
    """The checksum of a configuration; empty if there is none. Blanks at its end do not matter."""
    return hashlib.sha256(content.strip().encode()).hexdigest() if content.strip() else ""


def find_uid(user: str) -> int | None:
    """The id of a user, given by name or number; None without one."""
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


# -- nodes -----------------------------------------------------------------------------------------------------------


def read_node(record: scontrol.Record, conf: Settings) -> SlurmNode:
    """A node from a record of `scontrol show node`, without what `find_sick_nodes` finds out."""
    reason = scontrol.reason_of(record)
    checked = "config_override" not in conf.get("slurmdparameters", "").lower()
    return complete(
        SlurmNode,
        name=record["NodeName"],
        states=slurm_records.states(record.get("State", "UNKNOWN")),
        reason=reason.text,
        user=reason.user,
        since=reason.since,
        address=record.get("NodeAddr") or record["NodeName"],
        port=int(record.get("Port") or first_port(conf.get("slurmdport", "6818"))),
        cpus=int(record.get("CPUTot") or 1) if checked else 1,
        real_memory=int(int(record.get("RealMemory") or 1) * memory_share(conf) / 100) if checked else 1,
        gpus=count_gpus(record.get("Gres", "")),
        **dict.fromkeys(("addresses", "device_files", "jobs", "log"), ()),
        **dict.fromkeys(("closed", "unanswered"), ""),
    )


def first_port(ports: str) -> int:
    """The first of a range of ports."""
    return int(ports.partition("-")[0])


def memory_share(conf: Settings) -> float:
    """The part of RealMemory with which a node must register, in percent (slurm.conf(5), node_reg_mem_percent)."""
    found = re.search(r"node_reg_mem_percent=([\d.]+)", conf.get("slurmctldparameters", ""), re.IGNORECASE)
    return float(found[1]) if found else 100


def count_gpus(gres: str) -> int:
    """The GPUs of a node, from its Gres, without MIG instances."""
    return sum(number for kind, number in slurm_records.gpus(gres).items() if not re.search(r"\d+g\.\d", kind))


def find_device_files(gres_conf: str, name: str) -> tuple[str, ...]:
    """The device files of a node in gres.conf; none if the file cannot be read."""
    try:
        found = conf_file.read({"gres.conf": gres_conf}).gres
        files = [re.findall(r"\bFile=(\S+)", line) for line in (*found.get("", ()), *found.get(name, ()))]
        return tuple(path for hostlists in files for hostlist in hostlists for path in expand(hostlist))
    except ValueError:
        return ()


def group_jobs_by_node(listing: str) -> dict[str, list[str]]:
    """The numbers of jobs by the nodes that they run on, from lines of `squeue --format=%A|%N`."""
    found: dict[str, list[str]] = {}
    for line in filter(None, listing.split("\n")):
        job, _bar, nodes = line.partition("|")
        for name in expand(nodes):
            found.setdefault(name, []).append(job)
    return found


def group_log_by_node(log: str, started: Mapping[str, str]) -> dict[str, list[str]]:
    """The errors of slurmctld's log since its start, by the nodes that they name.

    started: when the slurmd of each node has started. An older line about its slurm.conf does not count any more.
    """
    lines = log.split("\n")
    starts = [number for number, line in enumerate(lines) if daemon_facts.STARTED.search(line)]
    found: dict[str, list[str]] = {}
    for line in lines[starts[-1] :] if starts else lines:
        named = re.search(r"\b(?:nodes?|host)[ =]([\w.,\[\]-]+)", line, re.IGNORECASE)
        if not named or not (daemon_facts.ERROR.search(line) or OTHER_CONF in line or REBOOTED in line):
            continue
        try:
            names = expand(named[1].rstrip(".,:"))
        except ValueError:
            continue
        for name in names:
            if OTHER_CONF not in line or line[1:20] >= started.get(name, ""):
                found.setdefault(name, []).append(daemon_facts.strip_prefixes(line)[: daemon_facts.LENGTH])
    return {name: [*dict.fromkeys(lines)][-OF_A_NODE:] for name, lines in found.items()}


def resolve_addresses(name: str) -> tuple[str, ...]:
    """The IP addresses of a name; none if it cannot be resolved."""
    try:
        return tuple(sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}))
    except OSError:
        return ()


Connect = Callable[[str, int, float], str]
Ask = Callable[[Sequence[SlurmNode], Settings], Mapping[str, str]]


def find_sick_nodes(
    records: Iterable[scontrol.Record],
    conf: Settings,
    gres_conf: str,
    log: Mapping[str, Sequence[str]],
    connect: Connect = connection_error,
    ask: Ask = ask_slurmds,
) -> list[SlurmNode]:
    """The nodes that are to be examined.

    The slurmds of nodes in service are asked, since a node without a slurmd or munged that works may still be IDLE.
    Only the ports of the other nodes are tried. slurmd looks up the name of an address for each connection that ends
    without a message: if a name server is slow, or hundreds of slurmds ask it at once, they answer nobody for seconds.

    log: the lines of slurmctld's log by node. Those of a node in service count only if they are about its slurm.conf.
    """
    awake = [each for each in (read_node(record, conf) for record in records) if not each.asleep]
    asked = [each for each in awake if not each.sick]
    silent = ask(asked, conf)
    tried = [each for each in awake if each.sick or each.name in silent]
    with ThreadPoolExecutor(THREADS) as pool:
        reasons = pool.map(lambda each: connect(each.address, each.port, CONNECT), tried)
        closed = dict(zip((each.name for each in tried), reasons))
        # If none of them answers, the question is taken to be at fault, and nothing is known.
        unanswered = silent if len(silent) < len(asked) else {}
        awake = [_with_findings(each, closed.get(each.name, ""), unanswered, log) for each in awake]
        sick = [each for each in awake if each.sick]
        found = pool.map(resolve_addresses, (each.address for each in sick))
        return [
            replace(each, addresses=own, device_files=find_device_files(gres_conf, each.name))
            for each, own in zip(sick, found)
        ]


def _with_findings(
    node: SlurmNode, closed: str, unanswered: Mapping[str, str], log: Mapping[str, Sequence[str]]
) -> SlurmNode:
    """A node with why its port is closed, or else why its slurmd does not answer, and its lines of the log."""
    node = replace(node, closed=closed, unanswered="" if closed else unanswered.get(node.name, ""))
    lines = tuple(log.get(node.name, ()))
    return replace(node, log=lines if node.sick else tuple(_about_conf(lines)))


def _about_conf(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if OTHER_CONF in line]


SQUEUE = ["squeue", "--noheader", "--all", "--array", "--format=%A|%N"]
SQUEUE += ["--states=RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT"]


# -- all facts -------------------------------------------------------------------------------------------------------


def gather(of_nodes: bool, keys: Mapping[str, str], max_key_age: int) -> ServerAnswer:
    """The facts about this host.

    Args:
        of_nodes: whether it may be the serving controller, which then also names the nodes that are not well.
        keys: its files with secrets, by name.
        max_key_age: the days after which they are old; 0 is no limit.
    """
    ping = run(["scontrol", "ping"], seconds=30) if of_nodes else None
    controllers = scontrol.controllers(ping.output) if ping else {}
    own = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    serving = scontrol.serving() if any(controllers.values()) else ""
    shown = read_settings(run(["scontrol", "show", "config"]).output) if serving else {}
    path = find_conf(shown)
    written = read_text(path)
    conf = {**DEFAULTS, **read_settings(written), **shown}
    slurmdbd = read_settings(read_text(f"{os.path.dirname(path) or DIRECTORIES[0]}/slurmdbd.conf"))
    daemons = daemon_facts.read_daemons(
        {
            "slurmctld": conf.get("slurmctldlogfile", ""),
            "slurmdbd": slurmdbd.get("logfile", ""),
            "mariadb": "",
            "mysql": "",
            "munge": "",
        }
    )
    log_file = conf.get("slurmctldlogfile", "")
    serves = bool(serving) and serving in own
    log = "" if not serves else daemon_facts.read_tail(log_file) if log_file else daemon_facts.read_journal("slurmctld")
    accounted = serves and _has_slurmdbd(conf)
    waiting = slurmdbd_queue.count_waiting() if accounted else None
    slurmdbd_error = _check_slurmdbd(conf) if serving else ""
    user = re.sub(r"\(.*", "", conf["slurmuser"])
    cluster = complete(
        ClusterFacts,
        answers=serves,
        serving=serving,
        controllers=controllers,
        version=re.sub(r"^slurm\S* ", "", run(["scontrol", "--version"]).output.strip()),
        slurm_user=user,
        slurm_uid=find_uid(user),
        slurm_conf=checksum(written),
        cgroup_plugin=conf.get("cgroupplugin", ""),
        proctrack=conf.get("proctracktype", "proctrack/cgroup"),
        return_to_service=conf.get("returntoservice", "0"),
        slurmdbd_error=slurmdbd_error,
        messages_waiting=waiting or 0,
        messages_limit=slurmdbd_queue.read_limit(conf),
        messages_discarded=slurmdbd_queue.find_discarded(log) if accounted else "",
        full_queue_ends_slurmctld=slurmdbd_queue.ends_slurmctld(conf),
        runaway_jobs=find_runaway_jobs(waiting) if accounted and not slurmdbd_error else (),
        ended_reservations=find_held_jobs() if serves else {},
    )
    nodes: list[SlurmNode] = []
    options: NodeOptions | Empty = {}
    if serves:
        nodes, options = _read_nodes(path, conf, [*controllers], log)
    return complete(
        ServerAnswer,
        daemons=daemons,
        full=daemon_facts.find_full(_list_directories(conf, slurmdbd)),
        old_keys=daemon_facts.find_old(keys, max_key_age),
        cluster=cluster,
        nodes=nodes,
        node_options=options,
    )


def _list_directories(conf: Settings, slurmdbd: Settings) -> list[str]:
    paths = [conf.get("statesavelocation", ""), "/var/lib/mysql"]
    paths += [os.path.dirname(log.get(key, "")) for log, key in ((conf, "slurmctldlogfile"), (slurmdbd, "logfile"))]
    return [*dict.fromkeys(filter(os.path.isdir, paths))]


def _has_slurmdbd(conf: Settings) -> bool:
    return conf.get("accountingstoragetype", "").endswith("slurmdbd")


def _check_slurmdbd(conf: Settings) -> str:
    """Why slurmdbd does not answer; empty if it does, or if there is none."""
    if not _has_slurmdbd(conf):
        return ""
    answer = run(["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster"], seconds=20)
    return " ".join(answer.message.split()) if answer.status or not answer.output.strip() else ""


def _read_nodes(path: str, conf: Settings, controllers: Sequence[str], log: str) -> tuple[list[SlurmNode], NodeOptions]:
    """The nodes that are not well, and the options of slurm_doctor_node_info. Raises CommandError.

    log: the end of slurmctld's log.
    """
    records = scontrol.show("node")
    started = {record["NodeName"]: record.get("SlurmdStartTime", "") for record in records}
    lines = group_log_by_node(log, started)
    sick = find_sick_nodes(records, conf, read_text(f"{os.path.dirname(path)}/gres.conf"), lines)
    jobs = group_jobs_by_node(output(SQUEUE)) if sick else {}
    sick = [replace(each, jobs=tuple(jobs.get(each.name, ()))) for each in sick]
    options: NodeOptions = {
        "controllers": [*controllers],
        "controller_port": first_port(conf["slurmctldport"]),
        "slurm_user": re.sub(r"\(.*", "", conf["slurmuser"]),
        "spool_dir": conf["slurmdspooldir"],
        "log_file": conf.get("slurmdlogfile", ""),
        "tmp_fs": conf["tmpfs"],
        # Of a user who can do nothing in Slurm: root's would be a way in while it is valid.
        "credential": _encode_credential() if sick else "",
    }
    return sick, options


def _encode_credential() -> str:
    answer = run(["runuser", "--user=nobody", "--", "munge", "--no-input", f"--ttl={TTL}"], seconds=10)
    return answer.output.strip() if not answer.status else ""
