# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a cluster as they are found on its controller."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.sources import (
    SourceError,
    configuration_of,
    read_files,
    source_lines,
    whole_text,
)


def test_all_files_that_slurm_reads_are_found(tmp_path: Path) -> None:
    here = tmp_path / "slurm"
    (here / "plugstack.conf.d").mkdir(parents=True)
    texts = {
        "slurm.conf": "ClusterName=Xy\nInclude nodes.conf\ninclude parts-%c.conf\nProlog=pro\nEpilog=/opt/epilog\n",
        "nodes.conf": f"# caf\u00e9\nInclude {tmp_path}/more.conf\n",
        "parts-xy.conf": "PartitionName=p Nodes=ALL\n",
        "topology.conf": "SwitchName=s Nodes=n1\n",
        "pro": "#!/bin/sh\n",
        "plugstack.conf": "include plugstack.conf.d/*.conf\n",
        "plugstack.conf.d/a.conf": "optional a.so\n",
        "slurmdbd.conf": "StoragePass=secret\n",
        "notes.txt": "of somebody\n",
    }
    for name, text in texts.items():
        (here / name).write_text(text, encoding="latin-1")
    (tmp_path / "more.conf").write_text("NodeName=n1 CPUs=2\n")
    found = read_files(here / "slurm.conf")
    assert {*found} == {*texts, f"{tmp_path}/more.conf"} - {"slurmdbd.conf", "notes.txt"}
    assert found["nodes.conf"].startswith("# caf\u00e9\n")
    says = configuration_of({name: source_lines(found, name) for name in ("slurm.conf", "plugstack.conf")})
    assert [*says.nodes] == ["n1"]
    assert [*says.partitions] == ["p"]
    assert ("plugstack.conf", "a.so") in says.settings


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Include gone.conf\n", "slurm.conf: line 1: Include: found 'gone.conf', which was not found"),
        ("Include slurm.conf\n", "slurm.conf: line 1: Include: found 'slurm.conf', which includes itself"),
    ],
)
def test_a_file_that_slurm_would_not_read_is_named(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "slurm.conf").write_text(text)
    with pytest.raises(SourceError, match=error):
        read_files(tmp_path / "slurm.conf")


def test_a_text_has_all_that_it_includes() -> None:
    """Also what an included file includes in its turn."""
    files = {
        "plugstack.conf": "include a.d/*.conf\nrequired /c.so\n",
        "a.d/x.conf": "include b.d/*.conf\n",
        "b.d/y.conf": "optional /y.so\n",
        "cgroup.conf": "Include more.conf\nConstrainCores=yes\n",
        "more.conf": "Include rest.conf\n",
        "rest.conf": "ConstrainDevices=yes\n",
    }
    assert whole_text(files, "plugstack.conf") == "optional /y.so\nrequired /c.so\n"
    assert whole_text(files, "cgroup.conf") == "ConstrainDevices=yes\nConstrainCores=yes\n"
