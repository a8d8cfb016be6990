#!/usr/bin/env bash
# The shortest way from three bare hosts to a cluster: packages in parallel, files, daemons, a job on both nodes.
# usage: bare.sh SSH_CONFIG
set -euo pipefail
ssh_config=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

mkdir -p "$tree"/etc/{munge,slurm}
head -c 1024 /dev/urandom >"$tree/etc/munge/munge.key"
cat >"$tree/etc/slurm/slurm.conf" <<CONF
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
echo 'NodeName=compute[01-02] Name=gpu Type=h100 File=/dev/nvidia[0-1]' >"$tree/etc/slurm/gres.conf"
printf 'Constrain%s=yes\n' Cores Devices RAMSpace >"$tree/etc/slurm/cgroup.conf"

# HOST PACKAGE: the configuration is there before the package, so that its daemon finds it.
host() {
  tar -C "$tree" -c etc | ssh -F "$ssh_config" "$1" "sudo sh -euc '
    tar -C / --no-same-owner -x
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends munge $2 slurm-client logrotate \
      systemd-timesyncd
    systemctl restart munge $2'" >/dev/null
}
host head slurmctld & host compute01 slurmd & host compute02 slurmd &
wait
for _ in $(seq 100); do
  if ssh -F "$ssh_config" head sudo timeout 5 srun -N2 hostname >/dev/null 2>&1; then exit 0; fi
  sleep 0.2
done
exit 1
