#!/usr/bin/env bash
# An epilog for GPUDirect-TCPXO: removes the receive daemon of this job, and no other one.
set -euo pipefail
"$TCPXO_RUNTIME" rm --force "tcpxo-$SLURM_JOB_ID" || true
left=$("$TCPXO_RUNTIME" ps --quiet --filter "name=^tcpxo-$SLURM_JOB_ID\$")
[[ ! $left ]] || { echo "the receive daemon of the job still runs"; exit 1; }
