#!/bin/sh
# Notes the job on its node.
echo "$SLURM_JOB_ID" >>/run/noted-jobs
