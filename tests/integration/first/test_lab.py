# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab of five hosts and 20 people, with containers and the page, as the documents say: no step fails.

It goes on with the cluster of test_first.py. What is typed stands in the pages that each test names. Directories that
are made by hand stand in for homes on a file server: containers have no kernel of their own to serve NFS. Scenario
machines has one.
"""

from __future__ import annotations

import pytest
from lab import ROOT, Lab
from test_first import DESK, GPUS, ssh

HEAD, NODES = "first-head", [f"first-gpu{number}" for number in (1, 2, 3, 4)]
PEOPLE = [f"user{number:02}" for number in range(1, 21)]
SITE = "ansible-playbook gpucluster.slurm.site -i my.cluster.yml"

SEE_THE_PAGE = """python3 -c '
import ssl, urllib.request
unchecked = ssl._create_unverified_context()
print(urllib.request.urlopen("https://localhost/", context=unchecked).read().decode())
'"""
"""Prints the page; its certificate is of its own host."""


def documented(page: str, *texts: str) -> None:
    """The page has what the reader types here."""
    content = (ROOT / "docs" / page).read_text()
    assert not [text for text in texts if text not in content]


def typed(lab: Lab, script: str) -> str:
    """Run commands of the reader in the directory of the cluster file; the output."""
    output: str = ssh(lab, f"set -eu\n. ~/ansible/bin/activate\ncd ~/my\n{script}")
    assert "[ERROR]" not in output
    return output


@pytest.fixture(scope="module", autouse=True)
def machines(lab: Lab) -> None:
    """Two more machines, whose keys the reader trusts, and the stand-ins for homes."""
    for node in NODES[2:]:
        lab.script(node, GPUS, b"")
    trust = "ssh-keyscan -t ed25519 10.213.7.27 10.213.7.28 >>/srv/reader/.ssh/known_hosts 2>/dev/null"
    lab.command(DESK, trust)
    # Unstable is published several times a day; a mirror of the lab's can be weeks behind.
    for host in (HEAD, *NODES):
        lab.command(host, "echo 'Acquire::Check-Valid-Until \"false\";' >/etc/apt/apt.conf.d/lab-unstable")
    for number, name in enumerate(PEOPLE, 5101):
        lab.command(HEAD, f"mkdir -p /home/{name} && chown {number} /home/{name}")


def test_two_nodes_join(lab: Lab) -> None:
    documented("recipes/add-node.md", "hardware: detected", "gpucluster.slurm.discover -i my.cluster.yml")
    typed(
        lab,
        r"""
        new='{hosts: "first-gpu[3-4]", hardware: detected, address: "10.213.7.[27-28]"}'
        sed -i "/^nodes:/a\  - $new" my.cluster.yml
        sed -i 's/first-gpu\[1-2\]\(.*default\)/ALL\1/' my.cluster.yml
        ansible-playbook gpucluster.slurm.discover -i my.cluster.yml
        """
        + SITE,
    )
    assert lab.command(HEAD, "sinfo -h -N -o %N | sort -u").split() == NODES


def test_people_come_from_a_list(lab: Lab) -> None:
    documented("admin/people.md", "people: people.csv", "name,uid,full_name,groups,keys,state,account,limits.MaxJobs")
    documented("recipes/add-user.md", "accounts: [{name: vision}, {name: ocean}]")
    typed(
        lab,
        r"""
        sed -i '/^users:/,$d' my.cluster.yml
        cat >>my.cluster.yml <<END
people: people.csv
accounting:
  accounts: [{name: vision}, {name: ocean}]
END
        echo name,uid,full_name,keys,account,limits.MaxJobs >people.csv
        for n in $(seq -w 20); do
          ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/user$n
          echo "user$n,51$n,User $n,$(cat ~/.ssh/user$n.pub),vision,10" >>people.csv
        done
        """
        + SITE,
    )
    output = ssh(lab, "ssh -i ~/.ssh/user20 user20@10.213.7.24 'srun --nodes=4 id -un'")
    assert output.split() == ["user20"] * 4


def test_containers_and_the_page(lab: Lab) -> None:
    documented("admin/containers.md", "slurm_containers: [apptainer", "begins with `[apptainer]` alone")
    documented("admin/report.md", "report: login1 ")
    output = typed(
        lab,
        f"""
        echo 'slurm_containers: [apptainer]' >>group_vars/slurm_cluster.yml
        echo 'report: {HEAD}' >>my.cluster.yml
        """
        + SITE,
    )
    assert f"https://{HEAD}/" in output or "https://10.213.7.24/" in output
    box = "mkdir -p box/bin && cp /bin/busybox box/bin/ && apptainer build box.sif box >/dev/null 2>&1"
    run = "srun --nodes=4 --gres=gpu:1 apptainer exec ~/box.sif /bin/busybox echo in a container"
    lab.command(HEAD, "apt-get install --yes --quiet=2 busybox-static")
    person = "ssh -i ~/.ssh/user01 user01@10.213.7.24"
    said = ssh(lab, f"{person} {box!r} && {person} {run!r}")
    assert said.splitlines().count("in a container") == 4  # apptainer warns of what it does not find
    lab.wait_for(HEAD, SEE_THE_PAGE, "first-gpu4")


def test_nothing_is_left_to_change(lab: Lab) -> None:
    assert "Nothing was changed" in typed(lab, SITE) or "Nothing to change" in typed(lab, SITE)
