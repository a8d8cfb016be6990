# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster of the Slurm Setup Guide, and the commands that the guide runs on it (docs/design/guides.md).

The hosts are stand-ins for Ubuntu 24.04: Debian hosts that answer as Ubuntu does, with Debian's packages of Slurm under
Ubuntu's version. The GPUs and nvidia-smi are stand-ins, too. The tests run in this order.
"""

from __future__ import annotations

import shlex
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from lab import ROOT, Lab, with_cluster

LOGIN = "hpc-node-login"
GPU_NODES = ("hpc-node-compute01", "hpc-node-compute02")
HOSTS = (LOGIN, *GPU_NODES)

# The guide's script without its comments.
JOB_SCRIPT = """#!/bin/bash
#SBATCH --job-name=hello_world
#SBATCH --output=hello_world.out
#SBATCH --error=hello_world.err
#SBATCH --time=00:05:00
#SBATCH --partition=cpu
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G

echo "Running in cpu partition"
"""
# It lists the GPUs whose device files it may open: a device without a driver gives ENXIO, or EPERM where a cgroup
# denies it.
NVIDIA_SMI = """#!/bin/sh
for n in 0 1; do
    case $(head -c1 /dev/nvidia$n 2>&1) in *'No such device or address'*) echo "GPU $n: Tesla T4" ;; esac
done
"""
# What needrestart does with services, by its own configuration: the first pattern that matches decides. 0: no restart.
OVERRIDES = r"""
my %nrconf;
eval do { local (@ARGV, $/) = "/etc/needrestart/needrestart.conf"; <> };
die $@ if $@;
for my $unit (@ARGV) {
    my @values = map { $nrconf{override_rc}->{$_} } grep { $unit =~ $_ } keys %{$nrconf{override_rc}};
    print "$unit @values\n";
}
"""
# A repository with a newer version of Slurm's packages, and `apt upgrade` with this repository alone.
UPGRADE = """set -eu
rm -rf /root/newer
mkdir /root/newer
cd /root/newer
for deb in /srv/stand-in/*.deb; do
    dpkg-deb --raw-extract $deb package
    sed -i 's/ubuntu5/ubuntu6/g' package/DEBIAN/control
    dpkg-deb -Znone --build package . >&2
    rm -r package
done
for deb in *.deb; do
    dpkg-deb --field $deb
    printf 'Filename: ./%s\\nSize: %s\\nSHA256: %s\\n\\n' $deb $(stat --format=%s $deb) $(sha256sum <$deb | cut -c1-64)
done >Packages
echo 'deb [trusted=yes] file:/root/newer ./' >list
alone="-o Dir::Etc::SourceList=/root/newer/list -o Dir::Etc::SourceParts=- -o APT::Get::List-Cleanup=0"
apt-get $alone update >&2
apt-get $alone --yes upgrade
"""
# Directories with files of packages and of the collection, and what only its owner may read there. It is the same on
# hosts whose logins have umask 022.
TREES = "$(ls -d /etc /usr /var/lib/apt /var/lib/dpkg /var/lib/gpucluster-slurm /run/gpucluster-slurm 2>/dev/null)"
PRIVATE = (
    "/etc/.pwd.lock",
    "/etc/credstore*",
    "/etc/munge*",
    "/etc/mysql/debian.cnf",
    "/etc/security/opasswd",
    "/etc/slurm/slurmdbd*.conf",
    "/etc/ssh/ssh_host_*_key",
    "/etc/ssl/private",
    "/etc/tmpfiles.d/lab.conf",
    "/run/gpucluster-slurm/locks*",
    "/run/gpucluster-slurm/findings.json",
    "/run/gpucluster-slurm/health.json",
    "/run/gpucluster-slurm/made/*",
    "/usr/lib/mysql/plugin/auth_pam_tool_dir",
    "/var/lib/apt/lists/partial",
    "/var/lib/dpkg/triggers/Lock",
    "/var/lib/gpucluster-slurm/findings.json",
    "/var/lib/gpucluster-slurm/good*",
)


def as_alice(lab: Lab, script: str) -> str:
    """What a script prints on the login host, in a login shell of a user."""
    return str(lab.command(LOGIN, f"runuser -l alice -c {shlex.quote(script)}"))


def test_this_is_the_cluster_of_the_example(lab: Lab) -> None:
    """But for names of hosts, addresses, and the hardware of the lab."""
    example = yaml.safe_load((ROOT / "inventory/guide/guide.cluster.yml").read_text())
    text = yaml.safe_dump(example).replace("head", LOGIN).replace("compute[", "hpc-node-compute[")
    renamed, own = yaml.safe_load(text), lab.cluster
    for cluster in (renamed, own):
        for machine in cluster["hardware"].values():
            del machine["cores_per_socket"], machine["threads_per_core"], machine["real_memory"]
        for entry in cluster["nodes"]:
            del entry["address"]
    assert own == renamed


def test_the_host_names_of_the_guide_are_refused(lab: Lab, tmp_path: Path) -> None:
    text = yaml.safe_dump(lab.cluster).replace("hpc-node-", "slurm-demo.hpc-node-")
    run = with_cluster(lab, tmp_path, yaml.safe_load(text)).playbook("site", "--check")
    assert run.rc != 0
    why = (
        "Slurm calls both hosts 'slurm-demo', the part before the first dot, allowed: host names that differ before it"
    )
    assert why in " ".join(run.output.split())


def test_a_second_run_changes_nothing_and_warns_of_nothing(lab: Lab) -> None:
    """The first run has shown the jobs of stage validate."""
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.changed, run.failed, run.warnings) == (0, {}, {}, [])


@pytest.mark.parametrize("host", HOSTS)
def test_no_mode_follows_from_the_umask_of_the_login(lab: Lab, host: str) -> None:
    assert lab.command(host, "umask") == "0077"
    private = lab.command(host, f"find {TREES} ! -type l ! -perm /077").split("\n")
    assert "/etc/munge/munge.key" in private
    assert [path for path in private if not any(fnmatch(path, known) for known in PRIVATE)] == []
    assert lab.command(host, f"find {TREES} ! -type l -perm /o=w") == ""


@pytest.mark.parametrize("host", HOSTS)
def test_the_host_answers_as_ubuntu(lab: Lab, host: str) -> None:
    asked = ". /etc/os-release; echo $ID $VERSION_ID $(hostname) $(dpkg-query -W -f '${Version}' slurmd)"
    assert lab.command(host, asked) == f"ubuntu 24.04 {host} 23.11.4-1.2ubuntu5"


@pytest.mark.parametrize("host", HOSTS)
def test_neither_needrestart_nor_unattended_upgrades_touch_jobs(lab: Lab, host: str) -> None:
    """Both programs are there, and take the collection's files. A host's own needrestart would restart daemons."""
    units = ("slurmctld.service", "slurmd.service", "slurmdbd.service", "nvidia-fabricmanager.service")
    overrides = lab.command(host, f"perl -e {shlex.quote(OVERRIDES)} {' '.join(units)} mariadb.service")
    assert overrides.splitlines() == [*(f"{unit} 0" for unit in units), "mariadb.service"]
    assert 'Unattended-Upgrade::Automatic-Reboot "false";' in lab.command(host, "apt-config dump").splitlines()


def test_munge(lab: Lab) -> None:
    credential = as_alice(lab, "munge -n")
    for host in HOSTS:
        assert "Success" in lab.command(host, f"echo {credential} | unmunge")


def test_sinfo_and_scontrol_show_nodes(lab: Lab) -> None:
    assert as_alice(lab, "sinfo -h").split() == [
        *("cpu*", "up", "infinite", "1", "idle", LOGIN),
        *("gpu", "up", "2-00:00:00", "2", "idle", "hpc-node-compute[01-02]"),
    ]
    shown = as_alice(lab, "scontrol show nodes").split()
    for host in HOSTS:
        assert {f"NodeName={host}", f"NodeHostName={host}"} <= {*shown}
    assert shown.count("Gres=gpu:t4:2") == 2


def test_sacctmgr(lab: Lab) -> None:
    assert "hpc-demo-cluster" in lab.command(LOGIN, "sacctmgr -nP show clusters format=Cluster")
    added = lab.host(LOGIN).run("sacctmgr -i add cluster hpc-demo-cluster")
    assert "already exists" in added.stdout + added.stderr
    assert lab.command(LOGIN, "sacctmgr -nP show account format=Account,Descr,Org").splitlines() == [
        "research|research|example university",
        "root|default root account|root",
        "speech|speech recognition|research",
        "vision|computer vision|research",
    ]
    # root has a further one, from the validation jobs of site.yml.
    users = lab.command(LOGIN, "sacctmgr -nP show user -s format=User,DefaultAccount,Account").splitlines()
    assert {"alice|vision|speech", "alice|vision|vision", "bob|speech|speech"} <= {*users}


def test_srun_and_sacct(lab: Lab) -> None:
    assert as_alice(lab, 'srun -p cpu echo "Running in cpu partition"') == "Running in cpu partition"
    # With a state and without both times, sacct shows only jobs of this second.
    times = "--starttime=now-1hour --endtime=now"
    lab.wait_for(LOGIN, f"sacct -nX --user=alice --state=COMPLETED {times} --format=JobName,Partition,User", "alice")
    assert "COMPLETED" in as_alice(lab, "sacct")
    assert "COMPLETED" in as_alice(lab, "sacct --starttime=$(date +%F) --endtime=now+1day")
    assert "COMPLETED" not in as_alice(lab, "sacct --starttime=2023-05-01 --endtime=2023-05-02")
    assert "COMPLETED" not in as_alice(lab, "sacct --user=bob")


def test_sbatch(lab: Lab) -> None:
    lab.script(LOGIN, "runuser -u alice tee /home/alice/job_script.sh", JOB_SCRIPT.encode())
    job = as_alice(lab, "rm -f hello_world.*; sbatch job_script.sh").removeprefix("Submitted batch job ")
    lab.wait_for(LOGIN, f"scontrol show job {job}", "JobState=COMPLETED")
    assert as_alice(lab, "cat hello_world.out hello_world.err") == "Running in cpu partition"


def test_squeue_and_scancel(lab: Lab) -> None:
    job = as_alice(lab, "sbatch --parsable --job-name=hello_world --output=/dev/null --wrap 'sleep 900'")
    lab.wait_for(LOGIN, f"squeue -h -j {job}", " R ")
    assert LOGIN in as_alice(lab, "squeue")
    as_alice(lab, f"scancel {job}")
    lab.wait_for(LOGIN, "echo left: $(squeue -h -t running | wc -l)", "left: 0")


@pytest.mark.parametrize(("asked", "seen"), [("--gres=gpu:2", [0, 1]), ("--gres=gpu:1", [0]), ("", [])])
def test_nvidia_smi_in_a_job(lab: Lab, asked: str, seen: list[int]) -> None:
    # In a directory of the user, whose home all hosts share: the health check of the nodes must not find it.
    lab.script(LOGIN, "install -D --mode=0755 /dev/stdin /home/alice/bin/nvidia-smi", NVIDIA_SMI.encode())
    said = as_alice(lab, f"timeout 180 srun --nodes=1 --ntasks=1 --partition=gpu {asked} nvidia-smi")
    assert said.splitlines() == [f"GPU {number}: Tesla T4" for number in seen]


def test_a_job_runs_on_both_gpu_nodes(lab: Lab) -> None:
    said = as_alice(lab, "timeout 180 srun --nodes=2 --partition=gpu sh -c 'echo $SLURMD_NODENAME $(hostname)'")
    assert sorted(said.splitlines()) == [f"{node} {node}" for node in GPU_NODES]


def test_scontrol_takes_a_drained_node_back(lab: Lab) -> None:
    node = GPU_NODES[0]
    lab.command(LOGIN, f'scontrol update NodeName={node} State=DOWN Reason="undraining"')
    assert as_alice(lab, f"sinfo -h -n {node} -o '%T %E'") == "down undraining"
    lab.command(LOGIN, f"scontrol update NodeName={node} State=RESUME")
    lab.wait_until_idle(LOGIN, node)


def test_an_upgrade_of_the_host_changes_no_daemon(lab: Lab) -> None:
    """The guide begins with `apt upgrade`."""
    running = "pidof slurmctld slurmd slurmdbd"
    before = lab.command(LOGIN, running)
    upgraded = lab.command(LOGIN, f"sh -c {shlex.quote(UPGRADE)}")
    held = upgraded.partition("kept back:")[2].split("0 upgraded")[0].split()
    assert {"slurm-client", "slurm-wlm-basic-plugins", "slurmctld", "slurmd", "slurmdbd"} <= {*held}
    assert lab.command(LOGIN, running) == before


def test_the_configuration_is_changed(lab: Lab, tmp_path: Path) -> None:
    """slurmctld tries the new files as user slurm, and all users read them, although the login has umask 077."""
    cluster = yaml.safe_load(lab.inventory.read_text())
    cluster["slurm_conf"]["KillWait"] = 45
    run = with_cluster(lab, tmp_path, cluster).playbook("site", "--tags=controller")
    assert (run.rc, run.failed, run.warnings) == (0, {}, [])
    assert "45 sec" in as_alice(lab, "scontrol show config | grep KillWait")
    assert as_alice(lab, "srun -p cpu hostname") == LOGIN
