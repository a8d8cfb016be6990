# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/admin/alerts.md from the rules of alerts.    usage: python tests/tools/alerts_page.py [--check]

With --check nothing is written, and the exit status is 1 if the page is not current.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from generated_files import run

ROOT = Path(__file__).parents[2]
RULES = ROOT / "roles/slurm_metrics/files/rules/alerts.yml"
PAGE = ROOT / "docs/admin/alerts.md"

HEAD = """# Alerts

<!-- `make docs` writes this page from roles/slurm_metrics/files/rules/alerts.yml -->

The key [`monitoring`](monitoring.md) brings these alerts. Each has a severity: `page` if a person is needed at night,
`ticket` for the next working day. With the key's [receivers](monitoring.md#receivers), one notification tells all
alerts of a name and a cause together. Without them, alerts are on the pages of Prometheus and alertmanager alone.

Nodes that power up or down, are powered off, reboot by Slurm's order or are in a maintenance raise no alert that they
are down, silent, drained or lack a daemon, nor one about clocks, metrics and nvidia-smi. A notification tells within
four minutes that an alert is over; of daemons, updates and backups, which are read each 15 minutes, after the next
reading.

If the host of the key is down, no alert tells it. Let another system of the site ask http://mon1:9093/-/ready.

## Silence

The label `cause` is the word of [doctor](doctor.md), if it has one. On the host of the key, for example:

    amtool --alertmanager.url http://mon1:9093 silence add cause=health-check -d 4h -c "the file server is replaced"
    amtool --alertmanager.url http://mon1:9093 silence add cause=person node=gpu007 -d 14d -c "waits for a DIMM"
    amtool --alertmanager.url http://mon1:9093 silence query
    amtool --alertmanager.url http://mon1:9093 silence expire ID

## What says nothing while another alert fires

| Fires | Then these do not notify |
|---|---|
"""

TITLES = {
    "nodes": "Nodes",
    "controllers": "Controllers and the queue",
    "accounting": "Accounting",
    "servers": "Disks and backups",
    "hosts": "Hosts",
    "gpus": "GPUs",
    "metrics": "The metrics themselves",
}
"""The headings by the name of the group."""

OTHER_CAUSES = {
    "not-responding": "doctor names why: `host-down`, `slurmd-stopped`, `munged`, `silent` and others",
    "fail": "doctor names the reason that somebody has given",
    "many-nodes": "doctor names the cause of each node",
    "slurmctld-slow": "doctor asks once, and waits for the answer",
    "queue": "doctor does not judge what the scheduler does",
    "daemon-down": "doctor has a cause for each daemon: `slurmd-stopped`, `munged`, `slurmctld-down`",
    "backup": "doctor does not check backups; site.yml warns of an old one",
    "updates": "doctor has a [section](doctor.md#updates) of its own",
    "metrics": "doctor needs no metrics",
    "gpu-idle": "doctor does not judge what jobs do",
    "gpu-memory": "the health check drains the node, and doctor shows its reason",
    "gpu-hot": "doctor does not measure",
    "gpu-slowed": "doctor does not measure",
    "gpu-query": "the health check drains the node, and doctor shows its reason",
}
"""The causes that doctor does not have, each with the reason."""

OF_NODES = "by (node, cause)"
"""Keeps the label `cause` of a series of nodes, which is doctor's word for the reason."""


def groups() -> list[dict[str, Any]]:
    """The groups of the rules."""
    return list(yaml.safe_load(RULES.read_text())["groups"])


def inhibitions() -> list[dict[str, Any]]:
    """The rules of alertmanager about alerts that say nothing while another one fires."""
    return list(yaml.safe_load((RULES.parents[1] / "alertmanager.yml").read_text())["inhibit_rules"])


def cause(rule: Mapping[str, Any]) -> str:
    """The cause of an alert; empty if a series has it."""
    return str(rule["labels"].get("cause", ""))


def section(rule: Mapping[str, Any]) -> str:
    """The part of the page about an alert."""
    labels, notes = rule["labels"], rule["annotations"]
    of_series = "that of the reason" if OF_NODES in rule["expr"] else ""
    word = f"`{cause(rule)}`" if cause(rule) else of_series
    facts = f"Severity `{labels['severity']}`, cause {word}, after {rule['for']}."
    parts = [textwrap.fill(text, 120) for text in (notes["meaning"], notes["remedy"], facts)]
    return "\n\n".join([f"### {rule['alert']}", *parts]) + "\n"


def names(matcher: str) -> list[str]:
    """The alerts that a matcher of alertmanager for `alertname` names, such as `alertname=~"A|B"`."""
    return matcher.partition('"')[2].rstrip('"').split("|")


def inhibition(rule: Mapping[str, Any]) -> str:
    """A row of the table of alerts that say nothing."""
    (source,), (target,) = rule["source_matchers"], rule["target_matchers"]
    same = f", of the same {' and '.join(rule['equal'])}" if "equal" in rule else ""
    return f"| `{names(source)[0]}` | {', '.join(f'`{name}`' for name in names(target))}{same} |"


def lines() -> Iterator[str]:
    """The parts of the page."""
    yield HEAD + "\n".join(map(inhibition, inhibitions())) + "\n"
    for group in groups():
        yield f"## {TITLES[group['name']]}\n"
        yield from map(section, group["rules"])
    yield "## Causes that doctor does not have\n"
    yield "\n".join(["| Cause | Why |", "|---|---|", *(f"| `{name}` | {why} |" for name, why in OTHER_CAUSES.items())])


def page() -> str:
    """The text of the page."""
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    run({PAGE: page()})
