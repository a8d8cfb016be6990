# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what it costs a node to say which job uses which GPU: the timer, and the prolog and the epilog of a job.

The node is that of scenario gpu-use after converge, without jobs. Its nvidia-smi is a stand-in, whose own time is shown
as well.    usage: python gpu_use.py [SSH_CONFIG HOST]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def main() -> None:
    """Run gpu_use_host.py on the node, and show what it prints."""
    ssh_config, host = sys.argv[1:] or [str(ROOT / ".lab/gpu-use/ssh_config"), "gpu-node1"]
    script = (HERE / "gpu_use_host.py").read_bytes()
    subprocess.run(["ssh", "-F", ssh_config, host, "sudo", "python3", "-"], input=script, check=True)


if __name__ == "__main__":
    main()
