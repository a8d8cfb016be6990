# Completion of the job tools in bash: options, names of containers, and files.
_gpucluster_job_tools() {
    local word=$2 before=$3 words=''
    case $before in
        -n | --name) words=$(enroot list 2>/dev/null | sed -n 's/^pyxis_//p') ;;
        -p | --partition) words=$(sinfo -h -o %R 2>/dev/null) ;;
        *) case $word in
            -*) words=$("$1" --help 2>/dev/null | grep -oE -- '--[a-z]+') ;;
        esac ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _gpucluster_job_tools sbuild.sh srun.sh notebook
complete -W '--help --remove' nvcrlogin
complete -W '--help --json' jobstats

# Completion of gpus: options, names of users, the user's jobs, and types of GPUs.
_gpucluster_gpus() {
    local word=$2 before=$3 words='--free --help --json --user --why'
    case $before in
        --free) words=$(sinfo -h -o %G 2>/dev/null | tr , '\n' | sed -n 's/^gpu:\([^:(]*\):.*/\1/p') ;;
        --user) words=$(compgen -u -- "$word") ;;
        --why) words=$(squeue -h --me -t pending -o %A 2>/dev/null) ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _gpucluster_gpus gpus
