#!/usr/bin/env bash
# The shortest way from three bare hosts to a cluster: packages in parallel, files, daemons, a job on both nodes.
# usage: bare.sh SSH_CONFIG
set -euo pipefail
ssh_config=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
"${0%/*}/bare_files.sh" "$tree"

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
