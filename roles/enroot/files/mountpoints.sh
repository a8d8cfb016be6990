#!/bin/sh
# Managed by gpucluster.slurm: changes here are overwritten. A hook of enroot.
# A mount on a path that the image lacks leaves a directory that nobody can read, and such a container cannot be saved.
cd "$ENROOT_ROOTFS" || exit # the job's own directory may be one that find cannot come back to
find . -maxdepth 3 -xdev -type d -perm 0000 -exec chmod 0755 {} +
