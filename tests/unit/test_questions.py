# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What newcomers and planners ask: each answer stands on its page, at most three links from the first pages."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from test_docs import LINK, ROOT

pytestmark = pytest.mark.once

FIRST = ("README.md", "docs/site/index.md")
CLICKS = 3


class Answer(NamedTuple):
    """Where the answer to a question is: its page, and words that stand there, wherever lines end."""

    question: str
    page: str
    words: str


ANSWERS = [
    Answer(*row)
    for row in (
        # A newcomer with a machine.
        ("Is my system supported, and which Slurm?", "README.md", "| Distributions | Debian 12 and 13, Ubuntu 24.04"),
        ("Do I need a second machine?", "docs/admin/getting-started.md", "It is its own control host, without ssh."),
        ("What is the smallest cluster file?", "docs/admin/cluster-file.md", "and writes `my.cluster.yml`"),
        ("Is there a release?", "README.md", 'gpucluster.slurm    # no release yet: "install ." in a clone'),
        ("How do I install without one?", "docs/admin/getting-started.md", "`ansible-galaxy collection install .`"),
        ("Driver first or later?", "docs/recipes/install-driver.md", "driver, new, site"),
        ("How many GPUs were found?", "docs/admin/getting-started.md", "`hardware` has the measured CPUs"),
        ("My desktop needs the GPU, too", "docs/recipes/workstation.md", "CoreSpecCount"),
        ("What changes outside Slurm?", "docs/recipes/changes-on-a-host.md", "base_manage_hosts_file"),
        ("How do I undo it?", "docs/recipes/uninstall.md", "apt-get purge"),
        ("Which is the first GPU job?", "docs/admin/getting-started.md", "srun --gres=gpu:1 nvidia-smi"),
        # A newcomer with a few hosts and twenty people.
        ("What is the first inventory?", "docs/admin/getting-started.md", "new -i 192.0.2.10,192.0.2.11"),
        ("How do twenty people get in?", "docs/admin/people.md", "name,uid,full_name,groups,keys,state,account"),
        ("How do homes come from NFS?", "docs/admin/storage.md", "Before the first mount"),
        ("Which containers first?", "docs/admin/containers.md", "begins with `[apptainer]` alone"),
        ("What does sshare show?", "docs/user/guide.md", "`FairShare` lies between 0 and 1"),
        ("Which monitoring?", "docs/recipes/monitoring.md", "gpucluster.slurm.report -i my.cluster.yml"),
        ("How do I add a node?", "docs/recipes/add-node.md", "hardware: detected"),
        ("How do I replace a node?", "docs/recipes/replace-node.md", "State=RESUME"),
        ("A person leaves", "docs/recipes/remove-user.md", "state: suspended, jobs: end"),
        ("A GPU breaks", "docs/recipes/broken-gpu.md", "gpucluster.slurm.accept"),
        ("How do I update packages?", "docs/recipes/update-packages.md", "rolling_packages=security"),
        # The planner of 300 nodes.
        ("How many controllers?", "docs/recipes/plan.md", "While the only one is down, jobs continue"),
        ("Where is the state directory?", "docs/admin/controllers.md", "StateSaveLocation: /shared/slurm"),
        ("How long is a run?", "docs/recipes/plan.md", "minutes of the control host's processor"),
        ("How many nodes has one control host?", "docs/recipes/plan.md", "`forks = 50`"),
        ("How do I install in steps?", "docs/recipes/plan.md", "--limit head,gpu001 --skip-tags validate"),
        ("How do I reboot while jobs run?", "docs/admin/rolling.md", "rolling_reboot=true"),
        ("Two machine types?", "docs/admin/hardware.md", "8xh100-224c-1897g"),
        ("How many GPUs may a team have?", "docs/admin/accounting.md", "GrpTRES: {gres/gpu: 16}"),
        ("How much disk may a user have?", "docs/admin/storage.md", "xfs_quota -x -c"),
        ("Does it work without Internet?", "docs/recipes/plan.md", "No Internet?"),
        ("Which ports?", "docs/admin/firewall.md", "| compute nodes | `SlurmdPort`"),
        ("Who sees what?", "docs/admin/strict.md", "Users see their own jobs and accounts only"),
        ("What does the page show to everybody?", "docs/admin/report.md", "## What everybody sees"),
        ("How do I upgrade Slurm?", "docs/admin/upgrade.md", "gpucluster.slurm.upgrade -i my.cluster.yml --check"),
        ("How do I make backups?", "docs/admin/recovery.md", "target: sftp:"),
        ("What load is the monitoring?", "docs/admin/monitoring.md", "2,000 hosts with 64 CPUs"),
        ("Are InfiniBand and NCCL measured?", "docs/admin/acceptance.md", "`all_reduce_perf`, `all_gather_perf`"),
        ("Were they tested?", "docs/admin/tested.md", "| InfiniBand, MPI |"),
    )
]


def links(page: str) -> set[str]:
    """The pages to which a page leads."""
    text = (ROOT / page).read_text()
    targets = {target.partition("#")[0] for target in LINK.findall(text)}
    paths = ((ROOT / page).parent / target for target in targets if target.endswith(".md") and "://" not in target)
    return {str(path.resolve().relative_to(ROOT)) for path in paths if path.exists()}


def within_reach() -> set[str]:
    """The pages that are at most CLICKS links from the first ones."""
    reached = new = {*FIRST}
    for _click in range(CLICKS):
        new = {target for page in new for target in links(page)} - reached
        reached = reached | new
    return reached


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.question)
def test_a_question_has_its_answer(answer: Answer) -> None:
    text = " ".join((ROOT / answer.page).read_text().split())
    assert " ".join(answer.words.split()) in text


def test_answers_are_few_clicks_away() -> None:
    assert {answer.page for answer in ANSWERS} - within_reach() == set()
