# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of what was seen on a node. It lasts until a boot or a repair has mended it, or a person has closed it.

The messages of the kernel go away, by other messages, a rotation or a full disk; what was seen in them does not. A
finding of the driver, or of the state of a port, lasts as long as it is seen.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..hardware.network_ports import ConnectedPort, Port
from ..host.json_files import Record, read_record
from ..host.kernel_messages import read_boot_id, read_kernel_messages
from ..host.replacing import replace as replace_file
from ..host.timeout_call import TimeoutCallError, call_with_timeout
from .error_samples import Counters, Sample, Samples, after, with_samples
from .finding_table import AFTER, NODE, NONE, OTHERS, POWER_CYCLE, REBOOT, RESET, NodeFinding, drains
from .gpu_findings import LASTING, DriverReport, GpuIdentity
from .kernel_findings import KernelFinding, find_in
from .nvlink_findings import link_errors
from .port_findings import OF_STATE, counters_of, port_findings

LASTING_FILE = "/var/lib/gpucluster-slurm/findings.json"
VOLATILE_FILE = "/run/gpucluster-slurm/findings.json"
"""Has the record as well, since the disk may be full, read-only or lost."""

FIRST_RUN_SECONDS = 3600
"""Messages that are older count for nothing in the first run on a host, apart from those of GPUs."""

DISK_SECONDS = 5
"""Until a disk that does not answer is given up on."""

KERNEL, DRIVER, PORT_STATE, PORT_COUNTERS, LINKS = "kernel", "driver", "port state", "port counters", "links"
"""Where a finding was seen."""
STATES: Mapping[str, str] = {DRIVER: "the driver no longer says it", PORT_STATE: "the port is as it should be"}
"""Sources whose findings last as long as they are seen, with the reason for their end."""

OF_PORTS = "port-"
"""How the names of findings of network ports begin."""

OF_GPUS = ("xid-", "gpu-", "nvlink-", "nvswitch-", "amd-gpu-")
"""How the names of findings of GPUs, and of what connects them, begin."""

NOT_LISTED = ("nvswitch-", "amd-gpu-")
"""Those of which `nvidia-smi` says nothing."""

LINES = 4
"""Messages that are kept of a finding: the first ones."""
CLOSED = 50
"""Closed findings that are kept."""

MENDED_BY_BOOT = frozenset((NONE, RESET, REBOOT, POWER_CYCLE))
"""Actions that a boot does, or makes needless."""
MENDED_BY_RESET = frozenset((NONE, RESET, REBOOT))


@dataclass(frozen=True)
class Seen:
    """A finding on this node."""

    name: str
    subject: str
    """The device, such as a PCI address or `nvme0n1`."""
    kind: str
    severity: str
    action: str
    source: str
    site: bool
    """Whether it drains the node because the site says so."""
    boot: str
    """The boot in which it was seen last (/proc/sys/kernel/random/boot_id)."""
    first: float
    """When it was seen first, in seconds since 1970."""
    last: float
    until: int = 0
    """The time of the last message that was read, in microseconds since boot."""
    uuid: str = ""
    serial: str = ""
    """Of the GPU, as far as the driver has said; a replaced one has others."""
    runs: int = 1
    """Runs in a row that have seen it."""
    count: int = 1
    """Messages."""
    lines: tuple[str, ...] = ()
    closed: str = ""
    """Why it no longer counts; empty while it does."""

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.subject

    @property
    def of_gpu(self) -> bool:
        """Whether it is of a GPU or of what connects GPUs."""
        return self.name.startswith(OF_GPUS)

    @property
    def counts(self) -> bool:
        """Whether it drains the node."""
        lasting = self.name not in LASTING | OF_STATE or self.runs > 1
        return not self.closed and drains(self.kind, self.severity) and lasting

    @property
    def text(self) -> str:
        """What was said first."""
        return self.lines[0] if self.lines else self.name


@dataclass(frozen=True)
class FindingRecord:
    """All findings of a node."""

    boot: str = ""
    cursor: str = ""
    """The place in the journal after which messages are new."""
    written: float = 0.0
    seen: tuple[Seen, ...] = ()
    samples: Samples = field(default_factory=dict)
    """The counters of ports, and of the NVLinks of GPUs by UUID, in the last hour."""

    @property
    def counting(self) -> list[Seen]:
        """What drains the node, the first finding first."""
        return sorted((one for one in self.seen if one.counts), key=lambda one: one.first)


@dataclass(frozen=True)
class HealthEvidence:
    """What a run has read."""

    boot: str
    now: float
    kernel: Sequence[KernelFinding] = ()
    report: DriverReport | None = None
    """None if the driver has not answered, or was not asked."""
    ports: Sequence[Port] | None = None
    """None if they were not read, or reading them has not ended."""
    wanted: Sequence[ConnectedPort] = ()
    """The ports of the machine type."""
    links: Mapping[str, Counters] = field(default_factory=dict)
    """The errors of the NVLinks of each GPU, by UUID, as far as they were read."""
    cursor: str = ""
    uptime: float = 0.0
    """Seconds since boot."""
    xids: frozenset[str] = frozenset()
    """Further findings that drain the node, such as `xid-13` (`slurm_health_xids`)."""


def load() -> FindingRecord:
    """The record, after a boot that of the disk."""
    return from_json(read_record(VOLATILE_FILE) or _read_lasting())


def _read_lasting() -> Record:
    """What the disk has; nothing if it does not answer."""
    try:
        found: Record = call_with_timeout(partial(read_record, LASTING_FILE), DISK_SECONDS)
    except TimeoutCallError:
        return {}
    return found


def from_json(content: Mapping[str, Any]) -> FindingRecord:
    """A record from its file. What is not understood is left out."""
    names = {each.name for each in fields(Seen)}
    seen = []
    for entry in content.get("seen", ()):
        with suppress(TypeError, AttributeError):
            known = {name: value for name, value in entry.items() if name in names}
            seen.append(Seen(**{**known, "lines": tuple(known.get("lines", ()))}))
    samples: dict[str, list[Sample]] = {}
    with suppress(TypeError, ValueError, AttributeError):
        samples = {name: [Sample(*each) for each in given] for name, given in content.get("samples", {}).items()}
    with suppress(TypeError, ValueError):
        return FindingRecord(
            str(content.get("boot", "")),
            str(content.get("cursor", "")),
            float(content.get("written", 0)),
            tuple(seen),
            samples,
        )
    return FindingRecord(seen=tuple(seen))


def current(report: DriverReport | None = None, xids: Iterable[int] = ()) -> list[Seen]:
    """What counts now of the GPUs, from the record and from messages after it. The record stays as it is.

    Raises KernelMessagesError if the messages cannot be read.
    """
    kernel = [*find_in(read_kernel_messages())]
    evidence = HealthEvidence(read_boot_id(), time.time(), kernel, report, xids=names_of(xids))
    return [one for one in updated(load(), evidence).counting if one.of_gpu]


def names_of(xids: Iterable[int]) -> frozenset[str]:
    """The names of the findings of Xids."""
    return frozenset(f"xid-{number}" for number in xids)


def remember(record: FindingRecord) -> str:
    """Write the record for the next run. Returns why it could not be written."""
    return _written(VOLATILE_FILE, record)


def keep(record: FindingRecord) -> str:
    """Write the record for the time after a boot. Returns why it could not be written: the disk may not answer."""
    try:
        return str(call_with_timeout(partial(_written, LASTING_FILE, record), DISK_SECONDS))
    except TimeoutCallError as error:
        return f"{LASTING_FILE}: {error}"


def differ(one: FindingRecord, other: FindingRecord) -> bool:
    """Whether two records have other findings, apart from when they were seen last."""
    return {(each.key, each.closed, each.boot) for each in one.seen} != {
        (each.key, each.closed, each.boot) for each in other.seen
    }


def _written(path: str, record: FindingRecord) -> str:
    """Write a file. Returns why it could not be written."""
    try:
        Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(path, json.dumps(asdict(record)).encode(), 0o600, synced=path == LASTING_FILE)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def updated(record: FindingRecord, evidence: HealthEvidence) -> FindingRecord:
    """The record after a run."""
    entries = {one.key: one for one in record.seen}
    for found in evidence.kernel:
        key = found.finding.name, found.subject
        entries[key] = _of_message(entries.get(key), found, evidence)
    if not record.written:
        entries = {key: _closed_if_old(one, evidence) for key, one in entries.items()}
    if evidence.report:
        _add_report(entries, evidence.report, evidence)
    counters = {**counters_of(evidence.ports or ()), **evidence.links}
    samples = with_samples(record.samples if record.boot == evidence.boot else {}, counters, evidence.now)
    if evidence.ports is not None:
        _add_ports(entries, evidence.ports, samples, evidence)
    if evidence.report:
        _add_links(entries, evidence.report, samples, evidence)
    closed = [_mended(one, evidence) for one in entries.values()]
    return FindingRecord(evidence.boot, evidence.cursor, evidence.now, _kept(closed, evidence.boot), samples)


def close(
    record: FindingRecord, names: Iterable[str], who: str, now: float, until: float | None = None
) -> tuple[FindingRecord, list[Seen]]:
    """Close findings by name, or all of them with `all`.

    Args:
        record: all findings.
        names: what is closed.
        who: the person, or the program that has heard of one.
        now: the time.
        until: what has come after this time stays open: nobody has mended it yet. None: nothing has.

    Returns: the record, and what was closed.
    """
    wanted, end = {*names}, now if until is None else until
    closed = {
        one.key: replace(one, closed=f"by {who}", last=now)
        for one in record.seen
        # A message can come again; what is counted or a state is seen in each run.
        if not one.closed
        and ("all" in wanted or one.name in wanted)
        and (one.last if one.source == KERNEL else one.first) <= end
    }
    seen = tuple(closed.get(one.key, one) for one in record.seen)
    return replace(record, seen=seen, written=now), [*closed.values()]


def _of_message(before: Seen | None, found: KernelFinding, evidence: HealthEvidence) -> Seen:
    """The entry of a message, which may have been read before."""
    if before and before.boot == evidence.boot and found.microseconds <= before.until:
        return before
    gpu = _gpu_at(evidence.report, found.subject)
    new = Seen(
        found.finding.name,
        found.subject,
        *_weight(found.finding, evidence.xids),
        source=KERNEL,
        site=found.finding.name in evidence.xids,
        boot=evidence.boot,
        first=evidence.now,
        last=evidence.now,
        until=found.microseconds,
        uuid=gpu.uuid if gpu else "",
        serial=gpu.serial if gpu else "",
        lines=(found.line,),
    )
    if not before or before.closed:
        return new
    return replace(
        new,
        first=before.first,
        uuid=new.uuid or before.uuid,
        serial=new.serial or before.serial,
        count=before.count + 1,
        lines=(*before.lines, found.line)[:LINES],
    )


def _closed_if_old(one: Seen, evidence: HealthEvidence) -> Seen:
    """An entry of the first run on a host. What has long been in the messages of a host in use drains nothing.

    Errors of GPUs count, as without a record.
    """
    old = evidence.uptime - one.until / 1e6 > FIRST_RUN_SECONDS
    return replace(one, closed="older than the first check") if old and not one.of_gpu else one


def _weight(finding: NodeFinding, xids: frozenset[str]) -> tuple[str, str, str]:
    """Kind, severity and action. An Xid that the site has named drains the node."""
    if finding.name in xids and not finding.drains:
        return NODE, AFTER, RESET
    return finding.kind, finding.severity, finding.action


def _gpu_at(report: DriverReport | None, address: str) -> GpuIdentity | None:
    return next((gpu for gpu in report.gpus if gpu.address == address), None) if report else None


def _add_report(entries: dict[tuple[str, str], Seen], report: DriverReport, evidence: HealthEvidence) -> None:
    """Add what the driver says now. What it no longer says is closed."""
    said = [
        _seen_now(entries, DRIVER, (one.finding, one.gpu.address, one.said), evidence, one.gpu)
        for one in report.findings
    ]
    _replace_states(entries, DRIVER, said)


def _add_ports(
    entries: dict[tuple[str, str], Seen], ports: Sequence[Port], samples: Samples, evidence: HealthEvidence
) -> None:
    """Add what is wrong with ports now. Errors stay until a person has closed them."""
    mended = {key: entry.last for key, entry in entries.items() if entry.closed}
    found = [
        (PORT_STATE if one.finding.name in OF_STATE else PORT_COUNTERS, one)
        for one in port_findings(evidence.wanted, ports, samples, mended)
    ]
    seen = [_seen_now(entries, source, one, evidence) for source, one in found]
    _replace_states(entries, PORT_STATE, [one for one in seen if one.source == PORT_STATE])
    entries.update({one.key: one for one in seen if one.source == PORT_COUNTERS})


def _add_links(
    entries: dict[tuple[str, str], Seen], report: DriverReport, samples: Samples, evidence: HealthEvidence
) -> None:
    """Add the errors of NVLinks. They stay until a person has closed them, or the GPU is replaced."""
    finding = OTHERS["nvlink-errors"]
    for gpu in report.gpus:
        before = entries.get((finding.name, gpu.address))
        own = after(samples.get(gpu.uuid, ()), before.last if before and before.closed else 0)
        if said := ", ".join(link_errors(own)):
            seen = _seen_now(entries, LINKS, (finding, gpu.address, f"in an hour {said}"), evidence, gpu)
            entries[seen.key] = seen


def _seen_now(
    entries: Mapping[tuple[str, str], Seen],
    source: str,
    found: tuple[NodeFinding, str, str],
    evidence: HealthEvidence,
    gpu: GpuIdentity | None = None,
) -> Seen:
    """The entry of what is seen now. found: the finding, the device, and what is shown of it."""
    finding, subject, said = found
    before = entries.get((finding.name, subject))
    known = before if before and not before.closed and before.source == source else None
    return Seen(
        finding.name,
        subject,
        *_weight(finding, frozenset()),
        source=source,
        site=False,
        boot=evidence.boot,
        first=known.first if known else evidence.now,
        last=evidence.now,
        uuid=gpu.uuid if gpu else "",
        serial=gpu.serial if gpu else "",
        runs=known.runs + 1 if known and known.boot == evidence.boot else 1,
        lines=(said,),
    )


def _replace_states(entries: dict[tuple[str, str], Seen], source: str, seen: Iterable[Seen]) -> None:
    """Put what is seen now of a source into the entries. Its other entries are closed."""
    now = {one.key: one for one in seen}
    for key, entry in entries.items():
        if entry.source == source and not entry.closed and key not in now:
            entries[key] = replace(entry, closed=STATES[source])
    entries.update(now)


def _mended(one: Seen, evidence: HealthEvidence) -> Seen:
    """The entry, closed if what is known now proves that it is mended."""
    if one.closed or one.source in STATES:
        return one
    report, gpu = evidence.report, _gpu_at(evidence.report, one.subject)
    if gpu and (one.uuid, one.serial) not in (("", ""), (gpu.uuid, gpu.serial)):
        return replace(one, closed="the GPU was replaced")
    if one.of_gpu and not one.name.startswith(NOT_LISTED):
        # Without an answer of the driver, nothing is proven.
        booted = gpu and one.boot != evidence.boot and one.action in MENDED_BY_BOOT
        well = report and one.subject in report.well and one.action in MENDED_BY_RESET and not one.site
        reason = "a boot" if booted else "the driver asks for no recovery" if well else ""
    else:
        reason = "a boot" if one.boot != evidence.boot and one.action in MENDED_BY_BOOT else ""
    return replace(one, closed=reason) if reason else one


def _kept(seen: Iterable[Seen], boot: str) -> tuple[Seen, ...]:
    """All open findings, the closed ones of this boot, by which old messages are known, and some of earlier boots."""
    entries = sorted(seen, key=lambda one: one.last)
    old = [one for one in entries if one.closed and one.boot != boot]
    forgotten = {one.key for one in old[:-CLOSED]}
    return tuple(one for one in entries if one.key not in forgotten)
