# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a playbook with ansible-runner.    usage: python runner/run.py PRIVATE_DATA_DIR PLAYBOOK [OPTION...]"""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from pathlib import Path

import ansible_runner


def main(directory: str, playbook: str, *options: str) -> int:
    """Show the progress and the result of a run; the exit status."""
    cancel, shown, result = threading.Event(), "", None
    signal.signal(signal.SIGINT, lambda *_: cancel.set())
    thread, run = ansible_runner.run_async(
        private_data_dir=directory,
        playbook=playbook,
        cmdline=shlex.join(options) or None,
        cancel_callback=cancel.is_set,
        quiet=True,
    )
    file, running = Path(run.config.artifact_dir, "slurm_result.json"), True
    while running:
        thread.join(0.5)
        running = thread.is_alive()
        result = json.loads(file.read_text())["slurm_result"] if file.exists() else None
        if result and result["progress"]["stage"] not in ("", shown):
            shown = result["progress"]["stage"]
            print(f"{result['progress']['percent']:3} %  {shown}", flush=True)
    print(f"{result['playbook']}: {result['state']}" if result else run.stdout.read()[-2000:])
    for change in result["changes"] if result else []:
        print(f"  changed {', '.join(change['hosts'])}: {change['stage']}")
    for failure in result["failed"] if result else []:
        print(f"  failed  {failure['host']}: {failure['task']}: {failure['message']}")
    print(f"ansible-runner: {run.status}")
    return 0 if run.status == "successful" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
