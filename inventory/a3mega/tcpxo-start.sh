#!/usr/bin/env bash
# A prolog for GPUDirect-TCPXO: installs NCCL's plugin, writes the profile for users, and starts the receive daemon of
# the job. The first job on a node downloads both images, which takes minutes (playbook warm_up does it beforehand).
# Variables: TCPXO_RUNTIME (docker or a program with its options), TCPXO_DIRECTORY, TCPXO_PLUGIN_IMAGE,
# TCPXO_DAEMON_IMAGE, TCPXO_DAEMON_ARGUMENTS, and those with NCCL_ of the profile.
set -euo pipefail
libraries=$TCPXO_DIRECTORY/lib64

# The image by which the plugin was installed; another one replaces it.
installed=$TCPXO_DIRECTORY/installed-image
if [[ ! -e $installed || $(<"$installed") != "$TCPXO_PLUGIN_IMAGE" ]]; then
    "$TCPXO_RUNTIME" run --rm --network=host --volume="${TCPXO_DIRECTORY%/*}:/var/lib" "$TCPXO_PLUGIN_IMAGE" \
        install --install-nccl
    echo "$TCPXO_PLUGIN_IMAGE" >"$installed"
fi

# Users source this file in a job, and mount the directory into their container.
profile=$(mktemp "$TCPXO_DIRECTORY/.profile.XXXXXX")
{
    echo "# Written by the prolog tcpxo: changes here are overwritten."
    echo "NCCL_LIB_DIR=$libraries . $libraries/nccl-env-profile.sh"
    for name in "${!NCCL_@}"; do
        printf 'export %s=%q\n' "$name" "${!name}"
    done
    echo "export LD_LIBRARY_PATH=$libraries:/usr/lib/x86_64-linux-gnu:\${LD_LIBRARY_PATH:-}"
} >"$profile"
chmod 0644 "$profile"
mv "$profile" "$TCPXO_DIRECTORY/profile.sh"

# The name has the job, so that the epilog of another job leaves it alone. A job that was requeued may have left one.
"$TCPXO_RUNTIME" rm --force "tcpxo-$SLURM_JOB_ID" >/dev/null 2>&1 || true
read -ra arguments <<<"$TCPXO_DAEMON_ARGUMENTS"
"$TCPXO_RUNTIME" run --detach --rm --name "tcpxo-$SLURM_JOB_ID" --network=host --privileged --gpus=all \
    --cap-add=NET_ADMIN "$TCPXO_DAEMON_IMAGE" "${arguments[@]}"
