#!/usr/bin/env bash
# Managed by gpucluster.slurm: changes here are overwritten.
# take-control HEARTBEAT HOST:PORT...: for the first controller, before its slurmctld starts. If one of the others
# serves, it is stopped, which takes a second; its systemd starts it again, as a standby.
#
# Otherwise slurmctld asks it for control. The one that is asked then waits for itself for 29 s, in which commands end
# with "Socket timed out", and may write its state after the other one has read it (_slurm_rpc_request_control in
# src/slurmctld/proc_req.c, Slurm 24.11 to 26.05).

# The place of the controller that served last (src/slurmctld/heartbeat.c).
place=$(od -An -tu1 -j15 -N1 "$1" 2>/dev/null)
place=$((place))
shift
[ "$place" -ge 1 ] && [ "$place" -le $# ] || exit 0
address=${!place}

listens() {
    timeout 2 bash -c ": <'/dev/tcp/${address%:*}/${address##*:}'" 2>/dev/null
}

listens || exit 0
# Its exit status is that of this host, where nobody listens.
timeout 20 scontrol shutdown slurmctld >/dev/null 2>&1
for _try in {1..150}; do # half a minute, since the state of many jobs is written
    listens || exit 0
    sleep 0.2
done
# Both would write the state, and this one would refuse what the nodes report.
if timeout 20 sinfo --noheader 2>&1 | grep -qi authentication; then
    echo "slurmctld is not started: $address serves with another munge key. Run gpucluster.slurm.rotate_keys if its" \
        "last run has not ended, then gpucluster.slurm.site." >&2
    exit 1
fi
