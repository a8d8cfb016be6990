# shellcheck shell=bash
# Managed by gpucluster.slurm: changes here are overwritten. Functions for enroot (/usr/local/bin/enroot).
# On a full disk, tar and unsquashfs report each file of an image. These functions report the directory instead.
gpucluster_brief() {
    local directory=$1 status=0 messages
    shift
    exec {messages}> >(awk -v directory="$directory" '
        /No space left on device|[Qq]uota exceeded|Wrote only/ && !full++ {
            print "enroot: no space is left in " directory ", or your quota is used up"
        }
        !full { print }' >&2)
    command "$@" 2>&"$messages" || status=$?
    exec {messages}>&-
    wait $!
    return "$status"
}
tar() { gpucluster_brief "$ENROOT_TEMP_PATH" tar "$@"; }
unsquashfs() { gpucluster_brief "$ENROOT_DATA_PATH" unsquashfs "$@"; }
# Layers that come after one that has failed are of no use.
parallel() { command parallel --halt now,fail=1 "$@"; }
