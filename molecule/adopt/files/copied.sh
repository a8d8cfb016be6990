#!/usr/bin/env bash
# A cluster that has grown: slurm.conf is copied to all hosts.
by_hand=/root/by_hand
. "$by_hand/common.sh"
munge_key "a key of the lab, copied by hand"
install -d -o slurm -g slurm /var/log/slurm
install -d /var/spool/slurm /etc/slurm /opt/site
cp "$by_hand"/copied/*.conf /etc/slurm/
install -m 0755 "$by_hand/copied/prolog" /opt/site/prolog
# What concerns the nodes alone was never copied to the head, and each node has its own.
case $(hostname) in
ad-head) rm /etc/slurm/cgroup.conf /etc/slurm/gres.conf ;;
ad-n1)
  rm /etc/slurm/gres.conf
  echo 'include plugstack.conf.d/*.conf' >/etc/slurm/plugstack.conf
  echo 'optional /opt/site/spank_site.so level=2' >/etc/slurm/plugstack.conf.d/site.conf
  dpkg --purge logrotate
  ;;
ad-n2)
  echo 'Name=gpu Type=t4 Files=/dev/nvidia0 File=/dev/nvidia[0-1]' >/etc/slurm/gres.conf
  printf '# in other words\nConstrainDevices=YES\nConstrainCores=YES\nConstrainRAMSpace=YES\n' >/etc/slurm/cgroup.conf
  ;;
esac
case $(hostname) in
ad-head)
  chown slurm:slurm /var/spool/slurm
  systemctl start mariadb
  mariadb -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db; CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED BY 'by-hand-1';
    GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
  install -m 0600 -o slurm -g slurm "$by_hand/copied/slurmdbd.ini" /etc/slurm/slurmdbd.conf
  rm -f /etc/slurm/slurmdbd.ini
  run slurmdbd
  wait_for sacctmgr --immediate show cluster
  sacctmgr --immediate --quiet add cluster lab-one || true
  sacctmgr --immediate --quiet add account physics Fairshare=20 Description=physics Organization=science || true
  sacctmgr --immediate --quiet add qos long Priority=5 MaxWall=2-0 || true
  sacctmgr --immediate --quiet add user alice Account=physics QOS=normal,long DefaultQOS=normal || true
  sacctmgr --immediate --quiet add user root Account=physics || true
  # What no policy can express.
  sacctmgr --immediate --quiet add account 'phys lab' Description=lab Organization=science || true
  sacctmgr --immediate --quiet add user 'EX\bob' Account=physics || true
  sacctmgr --immediate --quiet add account optics Description=optics Organization=science || true
  sacctmgr --immediate --quiet modify account optics set qos+=long || true
  sacctmgr --immediate --quiet add coordinator Account=physics Names=alice || true
  run slurmctld
  ;;
*) run slurmd ;;
esac
