# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether AppArmor lets programs make user namespaces, by files as packages have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import apparmor
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree

HEAD = "# Permit userns for the starter\nabi <abi/4.0>,\ninclude <tunables/global>\n\n"
APPTAINER = "profile apptainer /usr/libexec/apptainer/bin/starter{,-suid} flags=(unconfined) {\n%s}\n"
BY_PATH = "/usr/bin/enroot-nsenter flags=(unconfined) {\n    allow userns create,\n}\n"
OTHERS = "unprivileged_userns (enforce)\nlsb_release (enforce)"


@pytest.mark.parametrize(
    ("profile", "loaded", "state"),
    [
        (None, OTHERS, "missing"),
        (HEAD + APPTAINER % "  userns,\n", f"{OTHERS}\napptainer (unconfined)", "loaded"),
        (HEAD + APPTAINER.replace(" flags", "\n    flags") % "  userns,\n", "apptainer (unconfined)", "loaded"),
        (HEAD + APPTAINER % "  userns,\n", OTHERS, "not loaded"),
        (HEAD + APPTAINER % "  userns,\n", "apptainer//child (enforce)", "not loaded"),
        (HEAD + APPTAINER % "  userns,\n", "", "not loaded"),
        # The kernel of a container's host does not show its profiles in the container.
        (HEAD + APPTAINER % "  userns,\n", None, "loaded"),
        # Upstream's package of apptainer for other distributions than Ubuntu.
        (HEAD + APPTAINER % "", "apptainer (unconfined)", "no userns"),
        (HEAD + APPTAINER % "  # userns,\n", "apptainer (unconfined)", "no userns"),
        (HEAD + BY_PATH, "/usr/bin/enroot-nsenter (unconfined)", "loaded"),
        (HEAD + BY_PATH, OTHERS, "not loaded"),
    ],
)
def test_states_of_a_profile(tmp_path: Path, profile: str | None, loaded: str | None, state: str) -> None:
    for path, text in ((f"{apparmor.PROFILES}/program", profile), (apparmor.LOADED, loaded)):
        if text is not None:
            file = tmp_path / path.lstrip("/")
            file.parent.mkdir(parents=True)
            file.write_text(text)
    assert apparmor.profile_state(Tree(str(tmp_path)), "program") == state
