#!/bin/sh
# Managed by gpucluster.slurm: changes here are overwritten. A hook of enroot, which runs before its hook 98-nvidia.sh.
# That hook takes the last NVIDIA_... lines of the container's environment, and a variable of the job before all of them.
set -e

# Images of NVIDIA request all GPUs, and could not start on a host that has none. Without nvidia-container-cli, only a job
# with GPUs fails.
unable() { test -z "${CUDA_VISIBLE_DEVICES-}" && ! command -v nvidia-container-cli >/dev/null; }
if { test ! -e /dev/nvidiactl && test ! -e /dev/nvidia0; } || unable; then
    echo NVIDIA_VISIBLE_DEVICES=void >>"$ENROOT_ENVIRON"
    exit
fi

# In a job with GPUs, a plain image has these GPUs and the driver. A step without GPUs has SLURM_JOB_GPUS as well.
test -n "${SLURM_JOB_ID-}" && test -n "${CUDA_VISIBLE_DEVICES-}" || exit 0
given() { grep -q "^$1=" "$ENROOT_ENVIRON"; }
given NVIDIA_VISIBLE_DEVICES || echo NVIDIA_VISIBLE_DEVICES=all >>"$ENROOT_ENVIRON"
given NVIDIA_DRIVER_CAPABILITIES || echo NVIDIA_DRIVER_CAPABILITIES=compute,utility >>"$ENROOT_ENVIRON"
