#!/usr/bin/env bash
# Managed by gpucluster.slurm: changes here are overwritten. An importer of pyxis: the nodes of a job, and later jobs,
# share one import of an image, which is a file in the user's cache. usage: enroot-import-once get URI | release
set -euo pipefail
[[ $1 == get ]] || exit 0 # the image stays for others
uri=$2
images=$(enroot info | sed -n 's/^  ENROOT_CACHE_PATH=//p')/images
digest=$(enroot digest "$uri")
image=$images/${digest#*:}
(umask 077 && mkdir -p "$images")

# The first one imports, the others wait. A name with a suffix is a part, as in enroot's cache of layers.
# The home can be that of several nodes, so the one that imports writes its place into the lock.
exec 9>>"$image.lock"
if ! flock -w 3600 9; then
    echo "$uri: $(<"$image.lock") has imported it for more than an hour" >&2
    exit 1
fi
echo "process $$ of node $(</proc/sys/kernel/hostname), job ${SLURM_JOB_ID:-none}" >"$image.lock"
if [[ ! -e $image ]]; then
    rm -f "$image.part"
    # Compressed, since it stays.
    ENROOT_SQUASH_OPTIONS='-comp zstd -Xcompression-level 3 -b 1M' \
        enroot import --output "$image.part" "${uri%@sha256:*}@$digest" >&2
    mv "$image.part" "$image"
fi
touch -a "$image" # enroot-clean removes images that nobody uses
echo "$image"
