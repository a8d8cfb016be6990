# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of cases: for each a file of its state and one of its evidence, for root alone.

They are in a directory that all controllers see, so that the one that takes over goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..host import replacing
from ..host.json_files import SettingsError, read_settings
from ..language.errors import CollectionError
from .case_evidence import SavedEvidence, saved_from
from .cases import NodeCase, from_json, to_json
from .measured_node import NodeMeasuring, SentResult, measuring_from_json, measuring_to_json
from .node_views import NodeReport, NodeReportError, parse_report

KINDS = CASES, EVIDENCE, REPORTS, MEASUREMENTS, RESULTS = "cases", "evidence", "reports", "measurements", "results"
STOPPED = "stopped"
"""The file with the name of the person who has stopped everything."""


class CaseFileError(CollectionError):
    """A file of a case that cannot be read, in one line."""


class CaseFiles:
    """The cases in a directory."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def make(self) -> None:
        """Make the directories. Raises OSError."""
        for path in (
            self.directory,
            *(self.directory / name for name in KINDS),
        ):
            path.mkdir(mode=0o700, exist_ok=True)

    def read(self) -> list[NodeCase]:
        """All cases, the oldest first. Raises CaseFileError: a round without one of them could treat its node anew."""
        return [self._case(path) for path in sorted((self.directory / CASES).glob("*.json"), key=_number)]

    def write(self, case: NodeCase) -> None:
        """Keep a case. Raises OSError."""
        self._write(CASES, case.number, to_json(case))

    def write_evidence(self, number: int, evidence: SavedEvidence) -> None:
        """Keep the evidence of a case. Raises OSError."""
        self._write(EVIDENCE, number, asdict(evidence))

    def has_evidence(self, number: int) -> bool:
        """Whether the evidence of a case is kept."""
        return self._path(EVIDENCE, number).exists()

    def evidence(self, number: int) -> SavedEvidence | None:
        """The evidence of a case; None without it. Raises CaseFileError."""
        path = self._path(EVIDENCE, number)
        if not self.has_evidence(number):
            return None
        try:
            return saved_from(read_settings(str(path)))
        except (SettingsError, TypeError, KeyError) as error:
            raise CaseFileError(f"{path}: no evidence of a case: {error}") from error

    def write_report(self, report: NodeReport) -> None:
        """Keep the report of a node, which replaces the one before. Raises OSError."""
        evidence = asdict(report.evidence) if report.evidence else None
        treated = report.treated._asdict() if report.treated else None
        content = {**report._asdict(), "evidence": evidence, "treated": treated}
        self._replace(REPORTS, report.node, json.dumps(content))

    def report(self, node: str) -> NodeReport | None:
        """The last report of a node; None without one that can be read. It is not trusted, and stops no round."""
        path = self.directory / REPORTS / f"{node}.json"
        with suppress(OSError, NodeReportError):
            return parse_report(path.read_text(encoding="utf-8"), node)
        return None

    def reports(self) -> Iterator[NodeReport]:
        """The last reports of all nodes."""
        for path in (self.directory / REPORTS).glob("*.json"):
            if report := self.report(path.stem):
                yield report

    def write_measuring(self, measuring: NodeMeasuring) -> None:
        """Keep the record of a measurement, which replaces that of the node before. Raises OSError."""
        text = f"{json.dumps(measuring_to_json(measuring), indent=1)}\n"
        self._replace(MEASUREMENTS, measuring.node, text)

    def measurings(self) -> list[NodeMeasuring]:
        """The last measurement of each node that was measured. Raises CaseFileError."""
        return [self._measuring(path) for path in sorted((self.directory / MEASUREMENTS).glob("*.json"))]

    def write_result(self, result: SentResult) -> None:
        """Keep what a job has sent, which replaces what its node has sent before. Raises OSError."""
        self._replace(RESULTS, result.node, json.dumps(result._asdict()))

    def result(self, node: str) -> SentResult | None:
        """What the last job of a node has sent; None without any."""
        with suppress(SettingsError, TypeError):
            return SentResult(**read_settings(str(self.directory / RESULTS / f"{node}.json")))
        return None

    def stop(self, who: str) -> None:
        """Let nothing begin. Raises OSError."""
        replacing.replace(str(self.directory / STOPPED), f"{who}\n".encode(), 0o600, synced=True)

    def start(self) -> None:
        """Let steps begin again."""
        replacing.remove(str(self.directory / STOPPED))

    def stopped(self) -> str:
        """Who has stopped everything; empty if nobody has. Raises OSError."""
        try:
            return (self.directory / STOPPED).read_text(encoding="utf-8").strip() or "somebody"
        except FileNotFoundError:
            return ""

    def forget(self, before: float) -> list[int]:
        """Remove the cases that ended before a time, and their evidence. Returns their numbers.

        The last case stays, so that its number is not given again.
        """
        old = [case.number for case in self.read()[:-1] if not case.is_open and case.since < before]
        for number in old:
            # In this order: evidence without its case would never be removed.
            replacing.remove(str(self._path(EVIDENCE, number)))
            replacing.remove(str(self._path(CASES, number)))
        return old

    def _path(self, kind: str, number: int) -> Path:
        return self.directory / kind / f"{number}.json"

    def _write(self, kind: str, number: int, content: Mapping[str, Any]) -> None:
        self._replace(kind, str(number), f"{json.dumps(content, indent=1)}\n")

    def _replace(self, kind: str, name: str, text: str) -> None:
        path = self.directory / kind / f"{name}.json"
        replacing.replace(str(path), text.encode(), 0o600, synced=True)

    @staticmethod
    def _case(path: Path) -> NodeCase:
        try:
            case = from_json(read_settings(str(path)))
        except (SettingsError, TypeError, ValueError) as error:
            raise CaseFileError(f"{path}: no case: {error}") from error
        if case.number != _number(path):
            raise CaseFileError(f"{path}: found the case {case.number}")
        return case

    @staticmethod
    def _measuring(path: Path) -> NodeMeasuring:
        try:
            return measuring_from_json(read_settings(str(path)))
        except (SettingsError, TypeError) as error:
            raise CaseFileError(f"{path}: no measurement: {error}") from error


def _number(path: Path) -> int:
    """The number of a case, by the name of its file."""
    try:
        return int(path.stem)
    except ValueError as error:
        raise CaseFileError(f"{path}: found {path.stem}, allowed: the number of a case") from error
