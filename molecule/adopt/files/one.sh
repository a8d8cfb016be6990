#!/usr/bin/env bash
# A cluster of one machine, with values that a new cluster could not have.
by_hand=/root/by_hand
. "$by_hand/common.sh"
munge_key "a third key of the lab, by hand"
install -d -o slurm -g slurm /var/log/slurm
install -d -o slurm -g adm /tmp/one
rm -f /etc/slurm/*.conf
cp "$by_hand"/one/*.conf /etc/slurm/
run slurmctld
run slurmd
