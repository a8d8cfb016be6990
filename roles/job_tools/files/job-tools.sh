# shellcheck shell=bash
# Functions for sbuild.sh and srun.sh. They read messages of Slurm and enroot, which must be in one language.
export LC_ALL=C.UTF-8
# The user's own would change which jobs are found.
unset "${!SQUEUE_@}" "${!SCANCEL_@}"
set -euo pipefail

tool=$(basename "$0")
state=${XDG_DATA_HOME:-$HOME/.local/share}/job-tools

# The site's defaults, the user's own, and then the options.
# shellcheck disable=SC2034 # used by sbuild.sh
IMAGE='' GPUS='' PARTITION='' REGISTRY=https://nvcr.io
for file in /etc/gpucluster-slurm/job-tools.conf "${XDG_CONFIG_HOME:-$HOME/.config}/job-tools.conf"; do
    # shellcheck source=/dev/null
    [[ ! -r $file ]] || source "$file"
done

say() { echo "$tool: $*" >&2; }
die() { say "$@"; exit 1; }
misuse() { say "$@"; say "try $tool --help"; exit 2; }

# The value of an option that needs one.
value() { [[ -n ${2:-} ]] || misuse "$1 needs a value"; echo "$2"; }

# The container of this directory: one that sbuild.sh has made here and that still exists. A container with the name of
# the directory comes first. If there is none, the name of the directory.
name_here() {
    local own there file
    own=$(basename "$PWD") there=$(enroot list)
    for file in "$state/$own" "$state"/*; do
        if [[ -f $file && $(<"$file") == "$PWD" && $'\n'$there$'\n' == *$'\n'"pyxis_${file##*/}"$'\n'* ]]; then
            own=${file##*/}
            break
        fi
    done
    echo "$own"
}

check_name() {
    [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] ||
        die "'$1' is no name of a container, allowed: letters, digits, '.', '-' and '_'; choose one with --name"
}

# The directory in which a container was made; nothing if it is not known.
directory_of() { [[ ! -f $state/$1 ]] || cat "$state/$1"; }

# Not -q: grep would end before enroot, which counts as a failure with pipefail.
exists() { enroot list | grep -xF -- "pyxis_$1" >/dev/null; }

# Options of srun for the resources of a job.
resources() {
    [[ ! $GPUS =~ ^0*$ ]] || GPUS=
    [[ -z $GPUS ]] || printf '%s\n' "--gres=gpu:$GPUS"
    [[ -z $PARTITION ]] || printf '%s\n' "--partition=$PARTITION"
}

check_directory() {
    [[ $PWD != *[,:]* ]] || die "a directory with ',' or ':' in its name cannot be mounted: $PWD"
}

# Options of srun, and the command before the user's own, for a container with this directory as /workspace. If pyxis is
# an optional plugin and cannot start the container, Slurm would run the command on the host.
# shellcheck disable=SC2016,SC2034 # for the shell in the container; used by the tools
inside=(
    --container-mounts="$PWD:/workspace" --container-workdir=/workspace
    sh -c 'here=
    while read -r _ _ _ _ where _; do test "$where" != /workspace || here=1; done </proc/self/mountinfo
    test -z "$here" || exec "$@"
    echo "$0: the container has not started, so the command has not run" >&2
    exit 125' "$tool"
)
