#!/bin/sh
# Notes that it has run, and for which job.
echo "$SLURM_SCRIPT_CONTEXT $(basename "$0") $SLURM_JOB_ID ${WORDS-}" >>/run/notes
