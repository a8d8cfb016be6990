# shellcheck shell=bash
# Managed by gpucluster.slurm: changes here are overwritten. A function for `enroot list -f` (/usr/local/bin/enroot).
# enroot finds the name of a running container by a path that awk reads from /proc/PID/mountinfo. That path has no name
# on NFS, has more parts on btrfs and on a bind mount of a directory, and is not that of a link, which enroot-data makes.
# pyxis would then start a second container instead of attaching to the running one. This function finds the name by
# the directory itself. In a job, a container of another job has no name: it has other GPUs and other mounts.
awk() {
    local name job found='<unknown>' process=${2-}
    [[ $process == /proc/*/mountinfo ]] || {
        command awk "$@"
        return
    }
    job=$(sed -zn 's/^SLURM_JOB_ID=//p' "${process%/*}/environ" 2>/dev/null | tr -d '\0')
    if [[ ! $job || ! ${SLURM_JOB_ID-} || $job == "$SLURM_JOB_ID" ]]; then
        for name in */; do
            [[ ! $name -ef ${process%/*}/root ]] || found=${name%/}
        done
    fi
    echo "$found"
}
