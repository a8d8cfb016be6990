#!/usr/bin/env bash
# A cluster whose node fetches its configuration from slurmctld.
by_hand=/root/by_hand
. "$by_hand/common.sh"
munge_key "another key of the lab, by hand"
install -d -o slurm -g slurm /var/log/slurm /var/lib/slurm /var/lib/slurm/slurmctld
case $(hostname) in
ad-ctl)
  cp "$by_hand"/fetched/*.conf /etc/slurm/
  run slurmctld
  ;;
*)
  rm -f /etc/slurm/*.conf
  # Files of earlier days, which slurmd does not read.
  echo 'ConstrainCores=yes' >/etc/slurm/cgroup.conf
  echo 'required /opt/gone.so' >/etc/slurm/plugstack.conf
  install -d /etc/systemd/system/slurmd.service.d
  printf '[Unit]\nConditionPathExists=\n' >/etc/systemd/system/slurmd.service.d/fetched.conf
  echo 'SLURMD_OPTIONS="--conf-server ad-ctl"' >/etc/default/slurmd
  systemctl daemon-reload
  run slurmd
  ;;
esac
