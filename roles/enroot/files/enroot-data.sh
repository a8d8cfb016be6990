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
command=${words[2]-} container=
for word in "${words[@]:3}"; do
    [[ $word =~ ^pyxis_([0-9]+_)?[0-9]+[.][0-9]+$ ]] && echo "$own" && exit
    [[ $word != pyxis_* ]] || container=${container:-$word}
done
if [[ $command == list && $(find "$own" -mindepth 1 -maxdepth 1 -type d -print -quit 2>/dev/null) ]]; then
    # Links that are right stay: another list may be reading them.
    find "$own" -maxdepth 1 -xtype l -delete
    shopt -s nullglob
    ln -s -t "$own" "$data"/*/ 2>/dev/null
    data=$own
fi

# The epilog runs enroot-clean for jobs that have made something. A link beside a container tells which job of which
# node makes it, and only one job can have made this link. enroot-clean removes containers that pyxis has not completed;
# containers that users make with enroot itself are not pyxis'.
if [[ ${SLURM_JOB_ID-} && $command =~ ^(create|import|load)$ ]]; then
    : 2>/dev/null >"$3/made"
    read -r _ _ _ parent _ <"/proc/$1/stat"
    if [[ $container && ! -e $data/$container && $(<"/proc/$parent/comm") == slurmstepd ]]; then
        (umask 077 && mkdir -p "$data")
        ln -s "$(</proc/sys/kernel/hostname):$SLURM_JOB_ID" "$data/.making-$container" 2>/dev/null
    fi
fi
echo "$data"
