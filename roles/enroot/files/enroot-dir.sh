#!/bin/sh
# Managed by gpucluster.slurm: changes here are overwritten. Prints a directory that enroot.conf names, if the user owns
# it. Makes the directory if no prolog has made it, as on login hosts.
mkdir -m 0700 "$1" 2>/dev/null
test -d "$1" && test ! -L "$1" && test -O "$1" && echo "$1" && exit
echo "$1 is not a directory of $(id -un): enroot takes another one, or fails" >&2
