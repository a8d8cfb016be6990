# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that slurm_files removes; the tests of host/files.py and tests/integration show how it writes files."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gpucluster.slurm.plugins.modules.slurm_files import unwanted

MARK = "Managed by gpucluster.slurm"


def test_only_files_with_the_mark_are_removed(tmp_path: Path) -> None:
    files = {
        "end": "x" * 1024 + MARK,
        "old": f"#!/bin/sh\n# {MARK}\n",
        "kept": f"# {MARK}\n",
        "own": "#!/bin/sh\n",
        "empty": "",
        "within": "x" * 1024 + MARK + "x" * 1024,
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / MARK).mkdir()
    assert unwanted(str(tmp_path), {str(tmp_path / "kept")}) == [str(tmp_path / "end"), str(tmp_path / "old")]
    assert unwanted(str(tmp_path / "missing"), set()) == []
    assert unwanted(None, set()) == []
