#!/usr/bin/env bash
#SBATCH --partition=a3mega
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --mem=0
# all_gather of nccl-tests on two nodes by GPUDirect-TCPXO, after build-nccl-tests.sh (docs/admin/acceptance.md). The
# variables are those of Google's guide for Slurm with A3 Mega; /var/lib/tcpxo/profile.sh sets the same.
# shellcheck source=/dev/null
NCCL_LIB_DIR="/var/lib/tcpxo/lib64" source /var/lib/tcpxo/lib64/nccl-env-profile.sh
export NCCL_FASTRAK_CTRL_DEV=enp0s12
export NCCL_FASTRAK_IFNAME=enp6s0,enp7s0,enp13s0,enp14s0,enp134s0,enp135s0,enp141s0,enp142s0
export NCCL_SOCKET_IFNAME=enp0s12
export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices

# The container has these variables from the job, also where its image sets them.
names=$(printf '%s,' "${!NCCL_@}")
srun --label --mpi=pmi2 --ntasks-per-node=8 \
    --container-image=./nvidia+pytorch+24.04-py3.sqsh \
    --container-env="${names%,}" \
    --container-mounts="/var/lib/tcpxo/lib64:/var/lib/tcpxo/lib64,$PWD:/nccl" \
    sh -c "
        export LD_LIBRARY_PATH=/var/lib/tcpxo/lib64:/usr/lib/x86_64-linux-gnu:\$LD_LIBRARY_PATH;
        /nccl/nccl-tests/build/all_gather_perf -b 8M -e 8G -f 2 -g 1 -w 5 --iters 200
    "
