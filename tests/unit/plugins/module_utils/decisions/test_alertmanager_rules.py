# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of alertmanager."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import alertmanager

SITE = """\
# of the site
route:
  receiver: admins
  group_by: [cause]
  routes:
    - {matchers: ['severity="page"'], receiver: duty}
    - {matchers: ['severity="ticket"'], receiver: admins, active_time_intervals: [work]}
receivers:
  - name: admins
    email_configs: &mail
      - to: admins@example.org
        from: slurm@example.org
        smarthost: mail.example.org:25
        require_tls: no
        auth_password: "010"
  - name: duty
    email_configs: *mail
time_intervals:
  - name: work
    time_intervals:
      - times: [{start_time: 08:00, end_time: 18:00}]
        weekdays: ['monday:friday']
"""


def accepted(directory: Path, text: str) -> str:
    """What alertmanager's own program says of a configuration. AssertionError if it does not accept it."""
    path = directory / "alertmanager.yml"
    path.write_text(text)
    done = subprocess.run(["amtool", "check-config", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_receivers_alerts_go_nowhere(tmp_path: Path) -> None:
    text = alertmanager.configuration(None)
    read = yaml.safe_load(text)
    assert text.startswith("# Managed by gpucluster.slurm")
    assert read["receivers"] == [{"name": read["route"]["receiver"]}]
    assert read["route"]["group_by"] == ["alertname", "cause"]
    assert " - 1 receivers" in accepted(tmp_path, text)


def test_the_site_decides_who_gets_alerts_and_the_collection_which_say_nothing(tmp_path: Path) -> None:
    own = yaml.safe_load(alertmanager.configuration(None))
    text = alertmanager.configuration(SITE)
    read = yaml.safe_load(text)
    assert text.startswith("# Managed by gpucluster.slurm")
    assert read["inhibit_rules"] == own["inhibit_rules"]
    assert read["route"]["receiver"] == "admins"
    assert read["route"]["group_by"] == ["cause"]
    assert read["route"]["repeat_interval"] == own["route"]["repeat_interval"]
    assert [receiver["name"] for receiver in read["receivers"]] == ["admins", "duty"]
    assert " - 2 receivers" in accepted(tmp_path, text)


def test_values_stay_as_they_are_written() -> None:
    """For YAML, 18:00 is a number; as one, alertmanager would refuse it."""
    text = alertmanager.configuration(SITE)
    assert 'auth_password: "010"' in text
    assert "require_tls: no\n" in text
    assert "{start_time: '08:00', end_time: '18:00'}" in text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("route: [", "line 1: cannot be read as YAML: expected the node content, but found '<stream end>'"),
        ("route: {}\nreceivers: *other\n", "line 2: cannot be read as YAML: found undefined alias 'other'"),
        ("route: {}\n---\nreceivers: []\n", "line 2: cannot be read as YAML: but found another document"),
        ("route: " + "[" * 5000, "values are nested too deep"),
        ("route: \x07", "cannot be read as YAML: a character that YAML does not have"),
        ("", "found the keys none; needed: route and receivers, allowed: time_intervals"),
        ("- route", "found the keys none; needed: route and receivers, allowed: time_intervals"),
        ("receivers: []", "found the keys 'receivers'; needed: route and receivers, allowed: time_intervals"),
        (
            "route: {}\nreceivers: []\nglobal: {smtp_auth_password: s3cret}",
            "found the keys 'route', 'receivers', 'global'; needed: route and receivers, allowed: time_intervals",
        ),
        (
            "route: s3cret\nreceivers: []",
            "found the keys 'route', 'receivers'; needed: route and receivers, allowed: time_intervals",
        ),
    ],
)
def test_another_file_is_one_clear_error_without_its_values(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^slurm_monitoring.receivers: {re.escape(error)}$"):
        alertmanager.configuration(text)
