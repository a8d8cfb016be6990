# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines about GPUs of jobs on this release of Slurm: slurmdbd keeps each in the record of its job.

The GPU is the stand-in of the scenario. The cluster has no key `monitoring`, so that a stand-in for Prometheus answers
that it has no values; tests/unit/test_gpu_hours.py has a real one. What counts here is which record gets a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from lab import ROOT, Lab
from sent_programs import sent

# A minute; slurmdbd changes little here from release to release.
pytestmark = pytest.mark.rare

HOURS = "programs.metrics.slurm_gpu_hours"
PLACE, PORT, UNIT = "/run/test-gpu-lines", 8079, "stand-in-prometheus"
PLACES = {"SETTINGS": f"{PLACE}/metrics.json", "STATE": f"{PLACE}/state.json", "TEXTFILES": PLACE}
STAND_IN = f"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{{"status": "success", "data": {{"result": []}}}}')
http.server.HTTPServer(("127.0.0.1", {PORT}), Handler).serve_forever()
"""


@pytest.fixture(scope="module", name="head")
def controller(lab: Lab) -> Iterator[str]:
    """The controller, with the programs and the stand-in for Prometheus."""
    host = lab.controller
    lab.script(host, f"mkdir -p {PLACE}", b"")
    program = sent(HOURS, {f"{HOURS}.{name}": value for name, value in {**PLACES, "DELAY": 0}.items()})
    texts = {"program": program, "stand_in.py": STAND_IN.encode()}
    texts["jobstats.py"] = (ROOT / "roles/job_tools/files/jobstats.py").read_bytes()
    texts["metrics.json"] = json.dumps({"prometheus": f"http://127.0.0.1:{PORT}"}).encode()
    for name, text in texts.items():
        lab.script(host, f"cat >{PLACE}/{name}", text)
    lab.command(host, f"systemd-run --quiet --unit={UNIT} python3 {PLACE}/stand_in.py")
    lab.wait_for(host, f"ss -Hltn sport = :{PORT}", str(PORT))
    yield host
    lab.command(host, f"systemctl stop {UNIT}; rm -r {PLACE}")


def submit(lab: Lab, head: str, options: str, command: str) -> str:
    """Submit a job with a GPU, and return its number."""
    job = f"sbatch --parsable --gres=gpu:1 --output=/dev/null {options} --wrap '{command}'"
    return str(lab.command(head, job).partition(";")[0])


def records(lab: Lab, head: str, job: str) -> dict[str, list[str]]:
    """What AdminComment is in each record of a job, by the name and the state."""
    answer = lab.command(head, f"sacct -j {job} --duplicates -X -n -P -o JobID,State,AdminComment")
    found: dict[str, list[str]] = {}
    for line in answer.splitlines():
        name, state, comment = line.split("|", 2)
        found.setdefault(f"{name} {state.split()[0]}", []).append(comment)
    return found


def wait_for_states(lab: Lab, head: str, job: str, states: str) -> None:
    """Wait until slurmdbd has these states of the records of a job."""
    lab.wait_for(head, f"sacct -j {job} --duplicates -X -n -P -o State | sort | cut -d ' ' -f 1 | paste -s -d,", states)


def write_lines(lab: Lab, head: str) -> None:
    """What the timer does."""
    lab.command(head, f"echo slurm_controller_serving 1 >{PLACE}/slurm.prom; python3 {PLACE}/program lines")


def test_each_job_has_its_line(lab: Lab, head: str) -> None:
    single = submit(lab, head, "", "sleep 2")
    array = submit(lab, head, "--array=1-2", "sleep 2")
    wait_for_states(lab, head, single, "COMPLETED")
    wait_for_states(lab, head, array, "COMPLETED,COMPLETED")
    # What an administrator has written stays.
    lab.command(head, f"sacctmgr -i modify job where jobid={array}_1 set AdminComment=ours")
    write_lines(lab, head)
    short = "gpus: too short for a sample, "
    (line,) = records(lab, head, single)[f"{single} COMPLETED"]
    assert line.lower().startswith(short)
    found = records(lab, head, array)
    assert found[f"{array}_1 COMPLETED"] == ["ours"]
    assert found[f"{array}_2 COMPLETED"][0].lower().startswith(short)
    shown = lab.command(head, f"python3 {PLACE}/jobstats.py {single}")
    assert f"GPUs     {line.partition(': ')[2]}" in shown
    # A second run has nothing to do.
    write_lines(lab, head)
    assert records(lab, head, array) == found


def test_a_requeued_job_gets_no_line_for_the_run_that_comes(lab: Lab, head: str) -> None:
    job = submit(lab, head, "--requeue", "sleep 300")
    try:
        lab.wait_for(head, f"squeue -h -j {job} -o %T", "RUNNING")
        lab.command(head, f"sleep 2; scontrol requeuehold {job}")
        wait_for_states(lab, head, job, "REQUEUED")
        write_lines(lab, head)
        comments = records(lab, head, job)
        assert f"{job} REQUEUED" in comments
        assert [comment for found in comments.values() for comment in found if comment] == []
    finally:
        lab.command(head, f"scancel {job}")


def test_the_report_has_the_hours_of_the_day(lab: Lab, head: str) -> None:
    day = lab.command(head, "date +%F")
    answer = lab.command(head, f"python3 {PLACE}/program report --from {day} --to {day} --by day --json")
    (row,) = json.loads(answer)["rows"]
    assert row["allocated_hours"] > 0
    assert row["unmeasured_hours"] == row["allocated_hours"]
