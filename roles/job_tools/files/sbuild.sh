#!/usr/bin/env bash
# shellcheck source=roles/job_tools/files/job-tools.sh
source /usr/local/lib/gpucluster-slurm/job-tools.sh

usage() {
    cat <<END
usage: sbuild.sh [OPTIONS] [IMAGE]

Makes a container from an image, in a job. Its name is that of the current directory; srun.sh runs commands in it.

IMAGE is ubuntu:24.04, nvcr.io#nvidia/pytorch:24.12-py3, a file of enroot (image.sqsh); by default ${IMAGE:-the newest
tf2-py3 of nvidia/tensorflow on $REGISTRY}.

  -n, --name NAME        another name
  -f, --force            remove the container of this name first
  -g, --gpus N           GPUs of the job that makes it (${GPUS:-0})
  -p, --partition NAME   partition of that job (${PARTITION:-that of the cluster})
  -h, --help             this text

Defaults are in /etc/gpucluster-slurm/job-tools.conf and ~/.config/job-tools.conf: IMAGE, GPUS, PARTITION.
END
}

# The newest image, by the tags that the registry has.
newest() {
    local ask=(curl -fsS --max-time 20) token tag
    if ! token=$("${ask[@]}" "$REGISTRY/proxy_auth?scope=repository:nvidia/tensorflow:pull" | jq -r .token) ||
        ! tag=$("${ask[@]}" -H "Authorization: Bearer $token" "$REGISTRY/v2/nvidia/tensorflow/tags/list" |
            jq -r '.tags[]' | grep -xE '[0-9]+\.[0-9]+-tf2-py3' | sort -V | tail -n 1); then
        die "$REGISTRY does not tell which image is the newest: name one, such as sbuild.sh ubuntu:24.04"
    fi
    echo "${REGISTRY#*://}#nvidia/tensorflow:$tag"
}

# Prints the elapsed time every ten seconds on a terminal, since large images take minutes.
progress() {
    [[ -t 2 ]] || return 0
    while sleep 10; do say "still running, $SECONDS s"; done
}

name='' force=''
while (($#)); do
    case $1 in
        -h | --help) usage; exit ;;
        -f | --force) force=1 ;;
        -n | --name) name=$(value "$@"); shift ;;
        -g | --gpus) GPUS=$(value "$@"); shift ;;
        -p | --partition) PARTITION=$(value "$@"); shift ;;
        -*) misuse "there is no option $1" ;;
        *) break ;;
    esac
    shift
done
(($# <= 1)) || misuse "one image, found: $*"
name=${name:-$(basename "$PWD")}
check_name "$name"
other=$(directory_of "$name")
if exists "$name"; then
    [[ -z $other || $other == "$PWD" ]] ||
        die "$other has the container $name already: choose another name with --name"
    [[ -n $force ]] || die "the container $name exists: srun.sh runs in it, sbuild.sh --force makes it anew"
    enroot remove -f "pyxis_$name"
fi
# What this run makes is removed if it fails, so no other run may make a container of this name at the same time.
[[ -z $(squeue --noheader --me --name="sbuild-$name" --states=pending,configuring,running) ]] ||
    die "a job makes the container $name: see squeue --me"
image=${1:-${IMAGE:-$(newest)}}
[[ $image != *.sqsh || $image == */* ]] || image=./$image
check_directory
mapfile -t options < <(resources)

# Removes what the job has made. A node may write until the job is gone.
undo() {
    local second
    for ((second = 0; second < 60; second++)); do
        ! exists "$name" || enroot remove -f "pyxis_$name" || :
        if ! exists "$name" && [[ -z $(squeue --noheader --me --name="sbuild-$name") ]]; then break; fi
        sleep 1
    done >/dev/null 2>&1
}

# Ends the job, or its step in an allocation, and the tool.
stop() {
    trap '' INT TERM HUP
    { kill "$job" || :; scancel --quiet --me --name="sbuild-$name" || :; wait "$job" || :; } 2>/dev/null
    undo
    say "stopped; the container $name is removed"
    exit "$1"
}

say "making $name from $image"
progress &
ticker=$! node=$(mktemp) job=
trap 'kill "$ticker" 2>/dev/null || :; rm -f "$node"' EXIT
trap 'stop 129' HUP
trap 'stop 130' INT
trap 'stop 143' TERM
# srun runs in the background, so that a signal is handled at once. The container tells the name of its node: srun can
# succeed without the command, if the job is cancelled before.
# shellcheck disable=SC2016 # for the shell in the container
srun --job-name="sbuild-$name" "${options[@]}" --container-image="$image" --container-name="$name" \
    "${inside[@]}" sh -c 'echo "$SLURMD_NODENAME"' </dev/null >"$node" &
job=$!
if ! wait "$job" || [[ ! -s $node ]]; then
    undo
    die "no container: see above what Slurm says. An image of nvcr.io needs a key, see nvcrlogin --help"
fi
if ! exists "$name"; then
    srun "${options[@]}" --nodelist="$(<"$node")" enroot remove -f "pyxis_$name" </dev/null >/dev/null 2>&1 || :
    die "the container $name was on $(<"$node") only: this host does not share enroot_data_dir with the nodes," \
        "or pyxis removes containers after their job (container_scope=job)"
fi
mkdir -p "$state"
echo "$PWD" >"$state/$name"
say "made $name in $SECONDS s"
