# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For all unit tests: the collection is imported as Ansible imports it."""

from __future__ import annotations

from ansible.plugins.loader import init_plugin_loader

# Before anything of ansible_collections is imported: afterwards Ansible's own importer would not be asked any more.
init_plugin_loader()
