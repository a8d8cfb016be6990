# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""sacctmgr: read slurmdbd's data in a constant number of calls, and run many commands in one process.

The output of `-nP` with named columns is the same in Slurm 22.05, 24.11 and 26.05; 22.05 has no `--json`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from ..client.commands import run
from ..configuration.conf_file import Configuration, value_text
from ..configuration.parameters import release_of
from ..host.files import temporary_file
from ..host.options import option
from ..language.errors import CollectionError
from .coordinators import named_coordinators
from .entities import Entity, JobAssociation, QueuedJob, Settings, State
from .limits import LIMITS, NAME, Limit, meaning, of_all_clusters
from .other_clusters import OtherClusters, name_clusters

CLUSTER = option("Name of the cluster in the database. Not needed if the database has no other cluster.")
"""The option of modules for accounting."""

TIMEOUT = 3600
"""Seconds that all commands of a run may take."""


class AccountingError(CollectionError):
    """The accounting could not be changed as wanted; with the message of Slurm's command."""


class UnreachedError(AccountingError):
    """Nothing answers where slurmdbd should be."""


# -- questions and answers -------------------------------------------------------------------------------------------

Row = Mapping[str, str]
"""Values by column."""


def _columns(kind: str) -> tuple[str, ...]:
    """The columns for the limits of a kind of entity; text, which may have bars in it, comes last."""
    return tuple(limit.column for limit in sorted(LIMITS[kind].values(), key=lambda limit: limit.kind == "text"))


_Questions = Mapping[str, tuple[Sequence[str], Sequence[str]]]

_QUESTIONS: _Questions = {
    "tres": (["tres"], ("Type", "Name")),
    "qos": (["qos"], ("Name", *_columns("qos"))),
    "accounts": (["account"], ("Account", "Organization", "Description")),
    "users": (["user"], ("User", "Admin")),
    "defaults": (["associations", "cluster={}", "onlydefaults"], ("User", "Account")),
    # What is set where: not what children have of their parents.
    "associations": (
        ["associations", "cluster={}", "wopl", "withraw"],
        ("Account", "User", "Partition", "ParentName", *_columns("association")),
    ),
    "coordinators": (["accounts", "withcoord"], ("Account", "Coordinators")),
    "flagged": (["accounts", "flags=UsersAreCoords"], ("Account",)),
    "wckeys": (["wckeys", "cluster={}"], ("User", "WCKey")),
}
"""Arguments of `sacctmgr show` and columns, by the name that `state` knows the answer by."""

_NEWER = "flagged"
"""The question that the oldest releases do not know: there, no account has flags."""

_ABOUT_OTHER_CLUSTERS: _Questions = {
    "places": (["associations", "cluster={}", "wopl"], ("Cluster", "Account", "User", "QOS", "DefaultQOS")),
    "coordinators": _QUESTIONS["coordinators"],
    "wckeys": (["wckeys", "cluster={}"], ("Cluster", "User")),
}
"""The same for other clusters, by the name that `other_clusters` knows the answer by."""


def _command(question: tuple[Sequence[str], Sequence[str]], cluster: str) -> list[str]:
    """The command that asks a question. cluster: its name, or several with commas."""
    arguments, columns = question
    return ["sacctmgr", "-nP", "show", *(text.format(cluster) for text in arguments), f"format={','.join(columns)}"]


def questions(cluster: str) -> dict[str, list[str]]:
    """The commands that show all of a cluster."""
    return {name: _command(question, cluster) for name, question in _QUESTIONS.items()}


def _rows(question: tuple[Sequence[str], Sequence[str]], text: str) -> list[Row]:
    """The lines of an answer."""
    _arguments, columns = question
    return [dict(zip(columns, line.split("|", len(columns) - 1))) for line in text.split("\n") if line]


def _shown(limit: Limit, value: str) -> str:
    """The meaning of a value that Slurm shows. A value that cannot be set here, such as `QOS=+high`, is not changed."""
    try:
        return meaning(limit, value)
    except ValueError:
        return value


def _settings(kind: str, row: Row) -> dict[str, str]:
    """The limits of a kind of entity that a row has."""
    return {name: _shown(limit, row[limit.column]) for name, limit in LIMITS[kind].items() if limit.column in row}


def state(cluster: str, answers: Mapping[str, str], clusters: Sequence[str]) -> State:
    """The state in the answers to `questions`. Accounts and users that have no part in the cluster are left out.

    The database may spell one name in two ways: it takes `cafe` and `caf\u00e9` for one.
    """
    rows = {name: _rows(question, answers.get(name, "")) for name, question in _QUESTIONS.items()}
    accounts = {row["Account"]: row for row in rows["accounts"]}
    users = {row["User"]: row for row in rows["users"]}
    coordinators = {row["Account"]: {*filter(None, row["Coordinators"].split(","))} for row in rows["coordinators"]}
    named = _named_coordinators(rows, coordinators)
    accounts = {name: {**row, "Coordinators": named.get(name, "")} for name, row in accounts.items()}
    keys: dict[str, list[str]] = {}
    for row in rows["wckeys"]:
        # Slurm marks those of jobs that named none (`sacctmgr dump` leaves the same ones out, file_functions.c).
        if not row["WCKey"].startswith("*"):
            keys.setdefault(row["User"], []).append(row["WCKey"])
    defaults = {row["User"]: row["Account"] for row in rows["defaults"]}
    found: dict[Entity, Settings] = {Entity("qos", row["Name"]): _settings("qos", row) for row in rows["qos"]}
    for row in rows["associations"]:
        account, user = row["Account"], row["User"]
        if user:
            own = {"DefaultAccount": defaults.get(user, ""), "WCKeys": ",".join(keys.get(user, ()))}
            found[Entity("user", user)] = _settings("user", {**users.get(user, {}), **own})
            found[Entity("association", user, account, row["Partition"])] = _settings("association", row)
        elif account == "root":
            found[Entity("cluster", cluster)] = _settings("cluster", row)
        else:
            found[Entity("account", account)] = _settings("account", {**row, **accounts.get(account, {})})
    everywhere = {Entity("account", name): _global_settings("account", row) for name, row in accounts.items()}
    everywhere |= {Entity("user", name): _global_settings("user", row) for name, row in users.items()}
    return State(
        found,
        [*clusters],
        ["/".join(filter(None, row.values())) for row in rows["tres"]],
        elsewhere={entity: settings for entity, settings in everywhere.items() if entity not in found},
        all_coordinators=coordinators,
    )


def _named_coordinators(rows: Mapping[str, Sequence[Row]], shown: Mapping[str, set[str]]) -> dict[str, str]:
    """The coordinators who were named for an account, as sacctmgr would show them."""
    parents = {row["Account"]: row["ParentName"] for row in rows["associations"] if not row["User"]}
    members: dict[str, set[str]] = {row["Account"]: set() for row in rows["flagged"]}
    for row in rows["associations"]:
        if row["User"] and row["Account"] in members:
            members[row["Account"]].add(row["User"])
    return {name: ",".join(sorted(names)) for name, names in named_coordinators(shown, parents, members).items()}


def _global_settings(kind: str, row: Row) -> dict[str, str]:
    """The settings of an account or user in all clusters."""
    return {name: value for name, value in _settings(kind, row).items() if of_all_clusters(kind, name)}


def other_clusters(clusters: Sequence[str], answers: Mapping[str, str], jobs: str = "") -> OtherClusters:
    """What other clusters have, by the answers to `_ABOUT_OTHER_CLUSTERS`, of which some may be missing.

    jobs: their jobs with a QOS that have not ended, from sacct.
    """
    rows = {name: _rows(_ABOUT_OTHER_CLUSTERS[name], text) for name, text in answers.items()}
    others = OtherClusters(clusters)
    used_in: dict[str, dict[str, str]] = {}
    for row in rows["places"]:
        cluster, account, user = row["Cluster"], row["Account"], row["User"]
        place = Entity("association", user, account) if user else Entity("account", account)
        for name in f"{row['QOS']},{row['DefaultQOS']}".split(","):
            # One place for each cluster is enough to say.
            used_in.setdefault(name.lstrip("+-"), {}).setdefault(cluster, f"{place.text} of cluster {cluster} has it")
        for member in [Entity("account", account), *([Entity("user", user)] if user else [])]:
            places = others.members.setdefault(member, [])
            if cluster not in places:
                places.append(cluster)
    for line in filter(None, jobs.split("\n")):
        cluster, number, qos = line.split("|")
        used_in.setdefault(qos, {}).setdefault(cluster, f"job {number} of cluster {cluster} has it")
    others.qos = {name: [*uses.values()] for name, uses in used_in.items()}
    for row in rows.get("coordinators", []):
        places = others.members.get(Entity("account", row["Account"]), [])
        for user in filter(None, row["Coordinators"].split(",") if places else []):
            reason = f"is coordinator of account {row['Account']}, which is in {name_clusters(places)}"
            others.without_association.setdefault(user, []).append(reason)
    for row in rows.get("wckeys", []):
        reason = f"has WCKeys in cluster {row['Cluster']}"
        reasons = others.without_association.setdefault(row["User"], [])
        if reason not in reasons:
            reasons.append(reason)
    return others


_NEEDED = (
    "AccountingStorageBackupHost",
    "AccountingStorageHost",
    "AccountingStoragePort",
    "AccountingStorageType",
    "AuthAltParameters",
    "AuthAltTypes",
    "AuthInfo",
    "AuthType",
    "ClusterName",
    "CommunicationParameters",
    "PluginDir",
    "SlurmctldHost",
    "SlurmUser",
    "TLSParameters",
    "TLSType",
)
"""Parameters of slurm.conf that lead to slurmdbd. What else may be wrong with a new one is not for sacctmgr to say."""


def conf_for_sacctmgr(wanted: Configuration) -> str:
    """The part of a slurm.conf that sacctmgr needs."""
    needed = {key.lower() for key in _NEEDED}
    return "".join(
        f"{name}={value_text(part)}\n"
        for (_file, key), (name, value) in wanted.settings.items()
        if key in needed
        for part in value.split()  # several hosts of slurmctld have a line each
    )


_UNREACHED = re.compile(r"failed to open persistent connection to host:(\S+:\d+): (.+)")
"""The error of commands that do not reach slurmdbd (`slurm_persist_conn_open_without_init` in `persist_conn.c`)."""

# -- the command -----------------------------------------------------------------------------------------------------


_NEW = (
    ". It is new, and slurmctld has not registered its cluster there. Do not restart slurmctld, which would end if its "
    "state has the number of a former database: run touch /etc/slurm/slurm.conf on its host, and then site.yml"
)
"""A run that ends after it has made the database. The touched file is compared, and slurm_config sees to the number."""


class Sacctmgr:
    """sacctmgr on this host, for one cluster."""

    def __init__(self, cluster: str | None, new: bool = False, conf: str = "") -> None:
        """`new`: whether the database need not know the cluster. `conf`: path of a slurm.conf instead of the host's.

        Raises AccountingError.
        """
        self.conf = conf
        self.clusters = self._ask(["sacctmgr", "-nP", "show", "cluster", "format=Cluster"]).split()
        known = ", ".join(self.clusters) or "none"
        if cluster is None and len(self.clusters) != 1:
            raise AccountingError(f"cluster: name one, the database has {known}")
        self.cluster = (self.clusters[0] if cluster is None else cluster).lower()
        if self.cluster not in self.clusters and not (new and NAME.fullmatch(self.cluster)):
            raise AccountingError(
                f"cluster: found {cluster!r}, the database has {known}{'' if self.clusters else _NEW}"
            )

    def _ask(self, command: Sequence[str]) -> str:
        """A command's answer. Raises AccountingError with its message, UnreachedError where nothing answered."""
        answer = run(command, conf=self.conf)
        if answer.status and (unreached := _UNREACHED.search(answer.message)):
            place = "AccountingStorageHost and AccountingStoragePort of slurm.conf"
            raise UnreachedError(f"slurmdbd does not answer at {unreached[1]} ({place}): {unreached[2]}")
        if answer.status:
            raise AccountingError(f"{' '.join(command[:4])} failed: {answer.message}")
        return answer.output

    def state(self) -> State:
        """The data of slurmdbd. Raises AccountingError."""
        asked = questions(self.cluster)
        newer = run(asked.pop(_NEWER), conf=self.conf)
        answers = {name: self._ask(command) for name, command in asked.items()}
        return state(self.cluster, {**answers, _NEWER: "" if newer.status else newer.output}, self.clusters)

    def coordinators(self, users: Collection[str]) -> list[Entity]:
        """Those of these users who coordinate accounts, with which they can change limits. Raises AccountingError.

        Without users nothing is asked.
        """
        question = _ABOUT_OTHER_CLUSTERS["coordinators"]
        rows = _rows(question, self._ask(_command(question, ""))) if users else []
        return [
            Entity("coordinator", user, row["Account"])
            for row in rows
            for user in row["Coordinators"].split(",")
            if user in users
        ]

    def jobs(self) -> list[JobAssociation]:
        """The cluster's jobs that have not ended. Raises AccountingError."""
        elsewhere = [f"--clusters={self.cluster}"] if len(self.clusters) > 1 else []
        answer = self._ask(["squeue", *elsewhere, "--all", "--noheader", "--format=%A|%u|%a|%q"])
        # With --clusters there is a line that names the cluster.
        return [JobAssociation(*line.split("|")) for line in dict.fromkeys(answer.split("\n")) if "|" in line]

    def queued_jobs(self) -> list[QueuedJob]:
        """The cluster's jobs that have not ended, with their partitions; none while slurmctld does not answer."""
        elsewhere = [f"--clusters={self.cluster}"] if len(self.clusters) > 1 else []
        answer = run(["squeue", *elsewhere, "--all", "--noheader", "--format=%A|%u|%a|%P|%q"], conf=self.conf)
        lines = dict.fromkeys(answer.output.split("\n") if not answer.status else ())
        return [QueuedJob(*line.split("|")) for line in lines if line.count("|") == 4]

    def release(self) -> str:
        """The release of Slurm on this host."""
        return release_of(run(["sacctmgr", "--version"]).output.strip().rpartition(" ")[2])

    def others(self, removed: Sequence[Entity], purge: bool) -> OtherClusters:
        """What the other clusters have that has to do with what may be removed. Raises AccountingError.

        Without other clusters there is no question, for QOS and accounts there is one, and for users there are three.
        """
        clusters = [cluster for cluster in self.clusters if cluster != self.cluster]
        kinds = {entity.kind for entity in removed} - {"cluster"}
        if not clusters or not kinds:
            return OtherClusters(clusters)
        needed = [*_ABOUT_OTHER_CLUSTERS] if kinds & {"user", "association"} else ["places"]
        answers = {name: self._ask(_command(_ABOUT_OTHER_CLUSTERS[name], ",".join(clusters))) for name in needed}
        qos = [entity.name for entity in removed if entity.kind == "qos"]
        # With purge all QOS stay.
        return other_clusters(clusters, answers, "" if purge or not qos else self._jobs_with(qos, clusters))

    def _jobs_with(self, qos: Sequence[str], clusters: Sequence[str]) -> str:
        """Lines `CLUSTER|JOB|QOS` for jobs of clusters with a QOS, by the records of slurmdbd that have no end."""
        where = [f"--clusters={','.join(clusters)}", f"--qos={','.join(qos)}", "--state=PENDING,RUNNING,SUSPENDED"]
        shape = ["--allusers", "--allocations", "--noheader", "--parsable2", "--format=Cluster,JobIDRaw,QOS"]
        return self._ask(["sacct", *where, *shape])

    def run(self, lines: Sequence[str], load: bool = False) -> tuple[bool, str]:
        """Give one process commands, or a file to load. Whether one has failed, which ends no other, and what it says.

        22.05 says of some that it does not take them, and does not fail.
        """
        text = "\n".join(lines) + "\n"
        if load:
            with temporary_file(text.encode()) as path:
                answer = run(["sacctmgr", "-i", "load", path], seconds=TIMEOUT, conf=self.conf)
        else:
            answer = run(["sacctmgr", "-iQ"], text, TIMEOUT, self.conf)
        # It repeats the commands that it reads.
        messages = [
            line.strip()
            for line in f"{answer.errors}{answer.output}".split("\n")
            if not line.startswith("sacctmgr: ") or "error" in line
        ]
        return bool(
            answer.status
        ), f"sacctmgr {'load' if load else shortened(lines[0])}: {'; '.join(filter(None, messages))}"


def shortened(command: str) -> str:
    """A command without most of a long list of names."""
    return re.sub(r"(=[^\s,]+(?:,[^\s,]+){2})(?:,[^\s,]+){3,}", r"\1,...", command)
