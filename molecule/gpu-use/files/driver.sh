#!/bin/sh
# Makes what the driver of four GPUs makes. usage: driver.sh whole|mig
set -eu
printf '#!/bin/sh\nexec python3 -I -S /usr/local/lib/nvidia_smi.py "$@"\n' >/usr/local/bin/nvidia-smi
chmod 0755 /usr/local/bin/nvidia-smi
mountpoint --quiet /proc/driver || mount -t tmpfs driver-stand-in /proc/driver
mkdir -p /proc/driver/nvidia-caps /dev/nvidia-caps
: >/etc/nvml-stand-in
: >/proc/driver/nvidia-caps/mig-minors
# nvidia-smi's GPUs 0 to 3, and the numbers of their device files.
for pair in 0:1 1:0 2:3 3:2; do
    index=${pair%:*} minor=${pair#*:}
    directory=/proc/driver/nvidia/gpus/0000:0$((index + 1)):00.0
    mkdir -p "$directory"
    printf 'Model: \t\t stand-in\nDevice Minor: \t %s\n' "$minor" >"$directory/information"
    if [ "$1" = whole ]; then
        echo "NVIDIA H100 80GB HBM3" >>/etc/nvml-stand-in
    elif [ "$index" -lt 2 ]; then
        echo "NVIDIA A100-SXM4-40GB" >>/etc/nvml-stand-in
    else
        echo "NVIDIA A100-SXM4-40GB|1g.5gb 1g.5gb" >>/etc/nvml-stand-in
        for instance in 1 2; do
            first=$((minor * 10 - 10 + 2 * instance))
            printf 'gpu%s/gi%s/access %s\ngpu%s/gi%s/ci0/access %s\n' \
                "$minor" "$instance" "$first" "$minor" "$instance" $((first + 1)) >>/proc/driver/nvidia-caps/mig-minors
            for number in "$first" $((first + 1)); do
                file=/dev/nvidia-caps/nvidia-cap$number
                test -e "$file" || mknod -m 0666 "$file" c 236 "$number"
            done
        done
    fi
done
