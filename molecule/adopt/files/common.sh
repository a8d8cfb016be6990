#!/usr/bin/env bash
# Runs on each host of a cluster. A key that everybody can read in the sources protects nothing: it is for the lab.
set -euo pipefail
cat >>/etc/hosts <<'HOSTS'
10.213.7.240 ad-head
10.213.7.241 ad-n1
10.213.7.242 ad-n2
10.213.7.245 ad-ctl
10.213.7.246 ad-w1
10.213.7.247 ad-ctl2
10.213.7.248 cloud01 cloud02
10.213.7.249 ad-one
HOSTS
run() { # run UNIT...
  systemctl unmask "$@" >/dev/null 2>&1 || true
  systemctl enable --quiet "$@"
  systemctl restart "$@"
}
wait_for() { # wait_for COMMAND...
  for _ in $(seq 120); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.5
  done
  "$@"
}
munge_key() { # munge_key TEXT
  head -c 1024 < <(yes "$1") >/etc/munge/munge.key
  chown munge:munge /etc/munge/munge.key
  chmod 0400 /etc/munge/munge.key
  run munge
}
id alice >/dev/null 2>&1 || useradd --uid 2001 --no-create-home alice
