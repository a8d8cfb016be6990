#!/bin/sh
# Managed by gpucluster.slurm: changes here are overwritten. enroot, with one sentence about a full disk. enroot is a
# script of bash, which first reads the file in BASH_ENV. pyxis and users find this program before /usr/bin/enroot.
case ${1-} in create | import | load) export BASH_ENV=/usr/local/lib/gpucluster-slurm/enroot-full-disk ;; esac
exec /usr/bin/enroot "$@"
