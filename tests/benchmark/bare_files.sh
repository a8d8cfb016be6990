#!/usr/bin/env bash
# Write the configuration of the benchmark's cluster, and a new key of munge, as a tree.
# usage: bare_files.sh DIRECTORY
set -euo pipefail
cd "$1"

mkdir -p etc/{munge,slurm}
head -c 1024 /dev/urandom >etc/munge/munge.key
cat >etc/slurm/slurm.conf <<CONF
ClusterName=bare
SlurmctldHost=head(10.213.7.10)
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/affinity,task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=1
GresTypes=gpu
NodeName=compute[01-02] NodeAddr=10.213.7.[21-22] Sockets=1 CoresPerSocket=2 RealMemory=2000 Gres=gpu:h100:2
PartitionName=gpu Nodes=compute[01-02] Default=YES
CONF
echo 'NodeName=compute[01-02] Name=gpu Type=h100 File=/dev/nvidia[0-1]' >etc/slurm/gres.conf
printf 'Constrain%s=yes\n' Cores Devices RAMSpace >etc/slurm/cgroup.conf
