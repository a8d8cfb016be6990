#!/bin/sh
# The first and only program of the virtual machine (test_soft_roce.py): runs the health check on a port of soft-RoCE
# that goes down, comes back, loses packets and disappears. Its output goes to the console.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mount -t tmpfs lib /var/lib
exec > /dev/ttyS0 2>&1

# The health check of a role, without Slurm: it says that it cannot tell slurmctld.
health() {
  python3 -c 'import sys
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.health_check import main
sys.exit(main(sys.argv[1:]))' "$@"
  echo "$step: status $?"
}

step=setup
modprobe -a rdma_rxe sch_netem
ip link add left type veth peer name right
ip link set left up
ip link set right up
rdma link add rxe0 type rxe netdev left
for file in link_layer state phys_state rate; do
  echo "$step: $file $(cat "/sys/class/infiniband/rxe0/ports/1/$file")"
done
step=up
health
step=loss
tc qdisc add dev left root netem loss 50%
health
health
step=down
ip link set right down
sleep 2
health
health
step=again
ip link set right up
sleep 2
health
step=gone
rdma link delete rxe0
health
health
step=list
health --list
echo "the end"
echo o > /proc/sysrq-trigger
sleep 60
