#!/usr/bin/env bash
# shellcheck source=roles/job_tools/files/job-tools.sh
source /usr/local/lib/gpucluster-slurm/job-tools.sh

usage() {
    cat <<END
usage: srun.sh [OPTIONS] [COMMAND...]

Runs a command in the container that sbuild.sh has made of this directory, in a job; without a command, bash. The current
directory is /workspace inside. What the command installs in the container stays.

  -n, --name NAME        another container
  -g, --gpus N           GPUs of the job (${GPUS:-0})
  -p, --partition NAME   partition of the job (${PARTITION:-that of the cluster})
  -u, --user             have your own user id inside; without it you are root inside, and yourself outside
  -H, --home             have the home directory inside
  -h, --help             this text

Defaults are in /etc/gpucluster-slurm/job-tools.conf and ~/.config/job-tools.conf: GPUS, PARTITION. Variables such as
SLURM_TIMELIMIT, see srun(1), do as always.
END
}

name='' as=(--container-remap-root) home=()
while (($#)); do
    case $1 in
        -h | --help) usage; exit ;;
        -n | --name) name=$(value "$@"); shift ;;
        -g | --gpus) GPUS=$(value "$@"); shift ;;
        -p | --partition) PARTITION=$(value "$@"); shift ;;
        -u | --user) as=(--no-container-remap-root) ;;
        -H | --home) home=(--container-mount-home) ;;
        --) shift; break ;;
        -*) misuse "there is no option $1" ;;
        *) break ;;
    esac
    shift
done
name=${name:-$(name_here)}
check_name "$name"
exists "$name" || die "there is no container $name yet: sbuild.sh makes it, enroot list shows those that there are"
other=$(directory_of "$name")
[[ -z $other || $other == "$PWD" ]] || say "the container $name is that of $other"
check_directory
mapfile -t options < <(resources)

# A script in this directory can be given as script instead of ./script.
if (($#)); then
    [[ $1 == */* || ! -f $1 || ! -x $1 ]] || set -- "./$1" "${@:2}"
else
    set -- bash -i
    options+=(--pty)
fi
exec srun "${options[@]}" "${as[@]}" "${home[@]}" --container-name="$name" "${inside[@]}" "$@"
