#!/usr/bin/env bash
# Managed by gpucluster.slurm: changes here are overwritten. Prints the data directory of one run of enroot.
# usage: enroot-data PID DATA TEMP: the process id of enroot, the directory of containers with a name, and a directory
# on the node's own disk.
# pyxis calls a container without a name pyxis_JOB.STEP on each node of the job. It is in TEMP/containers, since with
# shared homes the nodes would overwrite each other's containers. enroot's command line has the container's name, except
# for `enroot list`, which pyxis runs to find a container to attach to. While the user has a container without a name
# on this node, that command gets TEMP/containers with links to the containers that have names.
data=$2 own=$3/containers
mapfile -d '' -t words </proc/"$1"/cmdline
for word in "${words[@]}"; do
    [[ $word =~ ^pyxis_([0-9]+_)?[0-9]+[.][0-9]+$ ]] && echo "$own" && exit
done
if [[ ${words[2]-} == list && -d $own ]]; then
    find "$own" -maxdepth 1 -type l -delete
    shopt -s nullglob
    containers=("$own"/*/)
    if ((${#containers[@]})); then
        for container in "$data"/*/; do ln -s "${container%/}" "$own" 2>/dev/null; done
        data=$own
    fi
fi
echo "$data"
