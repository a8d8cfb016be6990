# shellcheck shell=sh
# Waits until no other prolog or epilog of enroot works on this node, for 20 s at most. usage: alone PROGRAM
# Fails without the lock, and names its holder. The lock is in a directory that root alone can enter, because who can
# open a lock can hold it.
alone() {
    directory=/run/gpucluster-slurm/locks lock=/run/gpucluster-slurm/locks/enroot
    mkdir -m 0700 "$directory" 2>/dev/null
    if test "$(stat -c '%u %F' "$directory")" != "$(id -u) directory"; then
        logger -t "$1" "job $SLURM_JOB_ID: $directory is not a directory of root; remove it"
        return 1
    fi
    chmod 0700 "$directory"
    # exec alone would end the shell where /run is full.
    (umask 077 && true >>"$lock") && command exec 9>>"$lock" || return 1
    flock -w 20 9 && return
    held="^lock:.*:$(stat -c %i "$lock") "
    holder=$(find /proc/[0-9]*/fdinfo -type f -exec grep -ls "$held" {} + 2>/dev/null | while read -r info; do
        process=${info#/proc/} process=${process%%/*}
        test "$(readlink "/proc/$process/fd/${info##*/}")" = "$lock" || continue
        echo "process $process ($(tr '\0' ' ' <"/proc/$process/cmdline"))"
    done)
    logger -t "$1" "job $SLURM_JOB_ID: ${holder:-another process} has held the lock $lock for 20 s"
    return 1
}
