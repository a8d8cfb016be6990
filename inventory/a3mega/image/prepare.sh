#!/usr/bin/env bash
# What a virtual machine needs before Ansible runs on it: ansible-core in an environment of its own, and the
# collection. The site adds here what its packages need, such as repositories of apt.
# It runs in a directory in memory, which has the file COLLECTION. ANSIBLE_CORE is a release.
set -euo pipefail
umask 022

# cloud-init and the agents of the cloud install packages at the first boot.
if command -v cloud-init >/dev/null; then cloud-init status --wait >/dev/null || true; fi
sudo apt-get -o DPkg::Lock::Timeout=600 update --quiet=2
sudo DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install --yes --quiet=2 \
    --no-install-recommends python3-venv

python3 -m venv ansible
ansible/bin/pip install --quiet --no-cache-dir --disable-pip-version-check "ansible-core==$ANSIBLE_CORE"
# The other collection that this one depends on is for the database, which no image has.
ansible/bin/ansible-galaxy collection install --no-deps "$COLLECTION"
