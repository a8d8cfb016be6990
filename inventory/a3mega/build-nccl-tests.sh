#!/usr/bin/env bash
#SBATCH --partition=a3mega
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=8
# Builds NVIDIA's nccl-tests with MPI, in the container. The directory nccl-tests is where this was submitted
# (docs/admin/acceptance.md).
srun --container-image=./nvidia+pytorch+24.04-py3.sqsh --container-mounts="$PWD:/nccl" \
    sh -c "cd /nccl/nccl-tests && MPI=1 CC=mpicc CXX=mpicxx make -j"
