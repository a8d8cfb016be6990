# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures nodes inside a job of Slurm, and prints a line with a JSON object for each result.

A test for which there is no result has a line `not measured: TEST: why`. `slurm-accept node` measures this node,
`slurm-accept pair` two nodes, `slurm-accept many` collectives of several; `gpus` and `ranks` are what these run in a
container with PyTorch. `slurm-accept send` sends what it reads to the controllers.
docs/design/acceptance.md has the results.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys

from .accept_results import MeasureError, Results, run
from .gpu_measurements import (
    Container,
    check_gpus,
    diagnose,
    measure_collectives,
    measure_gpus,
    this_program,
    torch_collective,
    torch_gpus,
)
from .node_speed import measure_cpus, measure_files, measure_network, measure_rdma
from .result_sender import send_result


def measure_node(results: Results, options: argparse.Namespace, container: Container) -> None:
    """What is wanted of one node."""
    if options.gpus:
        check_gpus(results, options.gpus, [int(xid) for xid in options.xids.split(",") if xid])
        diagnose(results)
        measure_gpus(results, options.gpus, container, options.nccl_tests)
    measure_cpus(results)
    measure_files(results, "local", options.disk)
    measure_files(results, "shared", options.shared)


def measure_nodes(results: Results, options: argparse.Namespace, container: Container) -> None:
    """What is wanted of two nodes, or more."""
    if options.gpus:
        with contextlib.suppress(MeasureError):
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            results.driver = run(query, 60).split("\n")[0].strip()
    if options.what == "pair":
        measure_network(results)
        measure_rdma(results)
    measure_collectives(results, options.gpus, options.what, container, options.nccl_tests)


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="slurm-accept", description="Measure nodes inside a job of Slurm.")
    parser.add_argument("what", choices=["node", "pair", "many", "gpus", "ranks"])
    parser.add_argument("--tests", required=True, help="names, with commas between")
    parser.add_argument("--nodes", default=socket.gethostname().partition(".")[0], help="names, with commas between")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of a node in Slurm's configuration")
    parser.add_argument("--hardware", default="", help="machine type, for the results")
    parser.add_argument("--xids", default="", help="further errors of the driver that are faults, with commas")
    parser.add_argument("--disk", default="", help="directory on a local disk")
    parser.add_argument("--shared", default="", help="directory on a shared file system")
    parser.add_argument("--image", default="", help="image with PyTorch")
    parser.add_argument("--runtime", choices=["", "apptainer", "pyxis"], default="", help="what runs the image")
    parser.add_argument("--nccl-tests", default="", help="directory with all_reduce_perf")
    return parser.parse_args()


def main() -> int:
    """Run the program. Its exit status is 0 also if something is missing: that is a result."""
    if sys.argv[1:2] == ["send"]:
        return send_result(sys.argv[2:])
    options = arguments()
    nodes = options.nodes.split(",")
    results = Results(nodes, frozenset(options.tests.split(",")), options.hardware, options.image)
    if options.what == "gpus":
        torch_gpus(results)
    elif options.what == "ranks":
        torch_collective(options.tests, nodes)
    else:
        mounts = [os.path.dirname(this_program()), *([options.nccl_tests] if options.nccl_tests else [])]
        container = Container(options.image, options.runtime if options.image else "", mounts)
        measure = measure_node if options.what == "node" else measure_nodes
        measure(results, options, container)
    return 0
