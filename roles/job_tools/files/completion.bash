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
complete -o default -F _gpucluster_job_tools sbuild.sh srun.sh
complete -W '--help --remove' nvcrlogin
