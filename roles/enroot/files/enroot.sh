#!/bin/sh
# Managed by gpucluster.slurm: changes here are overwritten. enroot, which reports a full disk in one sentence, saves
# containers with new mount points, and knows which container runs. enroot is a script of bash, which first reads the
# file in BASH_ENV. pyxis and users find this program before /usr/bin/enroot.
own=/usr/local/lib/gpucluster-slurm/enroot
case ${1-} in
    create | import | load) export BASH_ENV=$own-full-disk ;;
    export) export BASH_ENV=$own-export ;;
    list) export BASH_ENV=$own-list ;;
esac
exec /usr/bin/enroot "$@"
