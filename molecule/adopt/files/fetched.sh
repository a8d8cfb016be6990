#!/usr/bin/env bash
# A cluster with two controllers, whose node fetches its configuration from slurmctld.
by_hand=/root/by_hand
. "$by_hand/common.sh"
munge_key "another key of the lab, by hand"
install -d -o slurm -g slurm /var/log/slurm /var/lib/slurm
case $(hostname) in
ad-ctl)
  install -d -o slurm -g slurm -m 0700 /home/two-state
  cp "$by_hand"/fetched/*.conf /etc/slurm/
  run slurmctld
  ;;
ad-ctl2)
  cp "$by_hand"/fetched/*.conf /etc/slurm/
  wait_for test -e /home/two-state/clustername
  run slurmctld
  ;;
*)
  rm -f /etc/slurm/*.conf
  # Files of earlier days, which slurmd does not read.
  echo 'ConstrainCores=yes' >/etc/slurm/cgroup.conf
  echo 'required /opt/gone.so' >/etc/slurm/plugstack.conf
  install -d /etc/systemd/system/slurmd.service.d
  printf '[Unit]\nConditionPathExists=\n' >/etc/systemd/system/slurmd.service.d/fetched.conf
  echo 'SLURMD_OPTIONS="--conf-server ad-ctl,ad-ctl2"' >/etc/default/slurmd
  systemctl daemon-reload
  run slurmd
  ;;
esac
