# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Series in Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats/)."""

from __future__ import annotations

from collections.abc import Mapping

Labels = tuple[tuple[str, str], ...]


class Series:
    """Series with their labels and values, in the order in which they were added.

    A counter is one whose name ends with `_total`; others are gauges.
    """

    def __init__(self, meanings: Mapping[str, str] | None = None) -> None:
        """meanings: what series mean, by name, for the lines HELP."""
        self.samples: dict[str, dict[Labels, float]] = {}
        self._meanings = meanings or {}

    def add(self, name: str, value: float | None, **labels: str) -> None:
        """Set the value of a series; None is left out. A file must not have two of the same name and labels."""
        if value is not None:
            self.samples.setdefault(name, {})[tuple(labels.items())] = value

    def add_all(self, prefix: str, values: Mapping[str, float], **labels: str) -> None:
        """Set the values of several series with the same labels."""
        for name, value in values.items():
            self.add(f"{prefix}{name}", value, **labels)

    def text(self) -> str:
        """The file."""
        lines = []
        for name, samples in self.samples.items():
            if name in self._meanings:
                lines.append(f"# HELP {name} {self._meanings[name]}")
            lines.append(f"# TYPE {name} {'counter' if name.lower().endswith('_total') else 'gauge'}")
            lines += [f"{name}{_show_labels(labels)} {_show_number(value)}" for labels, value in samples.items()]
        return "".join(f"{line}\n" for line in lines)


def _show_labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}" if labels else ""


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _show_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
