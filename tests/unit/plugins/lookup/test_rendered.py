# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup `rendered` returns the texts that Ansible's own lookup `template` returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
TEMPLATES = {
    "lines.j2": "{# {{ own }} #}\n{% for word in words %}\n  {{ word }}{{ ' x' if loop.last }}\n{% endfor %}\n\nend",
    "ends.j2": "{% if nested.deep %}\na\\nb \\d {{ nested.deep | regex_replace('(?m)^', '# ') }}\n{% endif %}\n \n\n",
    "more.j2": "{{ further }}{{ own | regex_replace('(.)$', '\\\\1\\\\1') }}\n",
    "list.j2": "[1, 2]",
    "empty.j2": "",
}
LINES = "  a\n  x1 x\n\nend"
CALL = "lookup('{}', '{}', template_vars={{'further': words[1] ~ '-'}})"


def test_texts_are_those_of_ansible(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    conditions = []
    for name, text in TEMPLATES.items():
        (tmp_path / "templates" / name).write_text(text)
        ours, theirs = (
            CALL.format(plugin, name) for plugin in ("gpucluster.slurm.rendered", "ansible.builtin.template")
        )
        conditions.append(f"{ours} == {theirs}")
    conditions.append(f"{CALL.format('gpucluster.slurm.rendered', 'lines.j2')} == lines")
    tasks = [{"ansible.builtin.assert": {"that": condition}} for condition in conditions]
    gone = {"ansible.builtin.debug": {"msg": "{{ lookup('gpucluster.slurm.rendered', 'gone.j2') }}"}}
    variables = {
        "own": "x{{ 1 }}",
        "words": ["a", "{{ own }}"],
        "nested": {"deep": "{{ words[0] }}\n2"},
        "lines": LINES,
    }
    play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": [*tasks, gone]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    run = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), tmp_path / "play.yml", "-i", "localhost,", "-c", "local"],
        env=os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.count("All assertions passed") == len(conditions), run.stdout + run.stderr
    assert "gone.j2: there is no such template" in run.stdout + run.stderr
