# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three clusters that were made by hand are taken over while jobs run, and two are given back.

The second one has two controllers, and its node fetches the files from them. The third one has one host, with values
that a new cluster could not have.

The tests run in their order. The GPUs are stand-ins: device nodes of character devices.
"""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import read
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.drift import differences
from documents import commands, run_as_typed
from lab import Lab, Run

COPIED = ("ad-head", "ad-n1", "ad-n2")
FETCHED = ("ad-ctl", "ad-ctl2", "ad-w1")
ONE = ("ad-one",)
BOTH = "Slurmctld(primary) at ad-ctl is UP\nSlurmctld(backup) at ad-ctl2 is UP"
DAEMONS = ("munge", "slurmctld", "slurmd", "slurmdbd")

Started = dict[str, str]
"""What tells one start of a service from another, by host and service. A reconfigure makes no new one."""


def hosts_of(hosts: tuple[str, ...]) -> Lab:
    """The hosts as an inventory without a cluster file."""
    return Lab("adopt", Path(",".join(hosts) + ","))


def started(hosts: tuple[str, ...]) -> Started:
    """The starts of the daemons."""
    lab = hosts_of(hosts)
    found = {}
    for host in hosts:
        for daemon in DAEMONS:
            found[f"{host} {daemon}"] = lab.command(host, f"systemctl show --value --property=InvocationID {daemon}")
    return found


def files_on(hosts: tuple[str, ...]) -> dict[str, str]:
    """Checksums of all that the collection could change, by host."""
    lab = hosts_of(hosts)
    places = "/etc /opt /usr/local /var/lib/gpucluster-slurm"
    find = f"find {places} -type f -not -path '/etc/machine-id' 2>/dev/null | sort | xargs sha256sum | sha256sum"
    return {host: lab.command(host, f'sh -c "{find}"') for host in hosts}


def files_of_slurm(hosts: tuple[str, ...]) -> dict[str, str]:
    """Slurm's files with their owners and modes, by host."""
    lab = hosts_of(hosts)
    listing = "cd /etc/slurm; find . -printf '%p %U:%G %m %l\\n' | sort; find . -type f | sort | xargs sha256sum"
    return {host: lab.script(host, listing, b"").decode() for host in hosts}


def in_force(lab: Lab) -> list[str]:
    """What slurmctld shows of its nodes, partitions and parameters, without what changes by itself.

    Nor cgroup.conf, which it shows and does not use: in one cluster it is that of the nodes from the first run on.
    """
    nodes, partitions, config = (
        lab.command(lab.controller, f"scontrol --oneliner show {what}").split("\n")
        for what in ("node", "partition", "config")
    )
    kept = r"\b(?:NodeName|NodeAddr|NodeHostName|CPUTot|CoresPerSocket|Sockets|Boards|ThreadsPerCore|RealMemory|TmpDisk"
    kept += r"|Weight|AvailableFeatures|Gres|Partitions)=\S*"
    settings = [
        line
        for line in config
        if not re.match(r"Configuration data|BOOT_TIME|HASH_VAL|NEXT_JOB_ID|Slurmctld\(|Constrain", line)
    ]
    return [
        *(" ".join(re.findall(kept, line)) for line in sorted(nodes)),
        *partitions,
        *(line.replace("//", "/").rstrip("/") for line in settings if not line.startswith("SlurmctldParameters")),
    ]


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """Slurm's files on the hosts with copied files, before anything else."""
    return files_of_slurm(COPIED)


@pytest.fixture(scope="module")
def copied(found: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The cluster with copied files, taken into a cluster file."""
    assert {*found} == {*COPIED}
    return adopted(COPIED, tmp_path_factory.mktemp("copied"), "lab-one")


@pytest.fixture(scope="module")
def found_on_controllers() -> dict[str, str]:
    """The same on the two controllers of the other cluster."""
    return files_of_slurm(FETCHED[:2])


@pytest.fixture(scope="module")
def fetched(found_on_controllers: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The cluster with two controllers, whose node fetches its files."""
    assert {*found_on_controllers} == {*FETCHED[:2]}
    return adopted(FETCHED, tmp_path_factory.mktemp("fetched"), "two")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The cluster of one host."""
    return adopted(ONE, tmp_path_factory.mktemp("one"), "one")


def adopt(hosts: tuple[str, ...], directory: Path, *arguments: str) -> Run:
    """Run the playbook."""
    return hosts_of(hosts).playbook("adopt", f"--extra-vars=adopt_dir={directory}", *arguments)


def adopted(hosts: tuple[str, ...], directory: Path, name: str) -> Lab:
    """A cluster file, of a run that has changed nothing on any host."""
    before = files_on(hosts), started(hosts)
    run = adopt(hosts, directory)
    assert (run.rc, run.failed, run.warnings) == (0, {}, [])
    assert (files_on(hosts), started(hosts)) == before
    assert "a key of the lab" not in run.output
    return Lab("adopt", directory / f"{name}.cluster.yml")


def plan_of(run: Run) -> list[str]:
    """The lines of the plan of the configuration."""
    texts = [
        result["msg"] for _host, task, result in run.results if task.endswith("Show the changes") and "msg" in result
    ]
    return [line for text in texts for line in text.split("\n") if re.match(r"\S+ .*(->| a new file )", line)]


def start_job(lab: Lab, host: str, user: str, options: str, seconds: int) -> str:
    """Submit a job, and return its number when it runs."""
    command = f"cd /tmp; sbatch --parsable --output=/dev/null {options} --wrap 'srun sleep {seconds}'"
    job = str(lab.command(host, f'runuser -u {user} -- sh -c "{command}"'))
    lab.wait_for(host, f"squeue --noheader --jobs={job} --format=%T", "RUNNING", 120)
    return job


def state_of(lab: Lab, host: str, job: str) -> str:
    """The state of a job that has ended, once slurmctld shows it."""
    return str(lab.wait_for(host, f"scontrol show job {job}", "JobState=COMPLETED", 400))


def test_the_cluster_file_says_what_was_found(copied: Lab) -> None:
    cluster = copied.cluster
    assert (cluster["name"], cluster["controllers"]) == ("lab-one", "ad-head")
    assert cluster["unmanaged"] == "ad-n[1-2]"
    assert [(node["hosts"], node["address"]) for node in cluster["nodes"]] == [
        ("ad-n1", "10.213.7.241"),
        ("ad-n2", "10.213.7.242"),
    ]
    assert [partition["MaxTime"] for partition in cluster["partitions"]] == ["1-00:00:00", "2-00:00:00"]
    assert cluster["slurm_conf"]["NodeSet"] == {"NodeSet": "gpunodes", "Feature": "gpu"}
    assert cluster["slurm_conf"]["EnforcePartLimits"] is None
    assert "SwitchName=leaf1" in cluster["slurm_files"]["topology.conf"]
    assert [user["name"] for user in cluster["accounting"]["users"]] == ["alice"]
    assert [qos["name"] for qos in cluster["accounting"]["qos"]] == ["long"]
    accounts = {account["name"]: account for account in cluster["accounting"]["accounts"]}
    assert (accounts["physics"]["Coordinators"], accounts["optics"].get("QOS")) == ("alice", None)
    text = copied.inventory.read_text()
    for line in (
        "account phys lab: has a name that a policy cannot have",
        "account optics: QOS='+long' cannot be in a policy",
    ):
        assert f"# accounting: left out, and no run changes it: {line}" in text
    assert stat.S_IMODE(copied.inventory.stat().st_mode) == 0o600
    key = copied.inventory.parent / "secrets/lab-one/munge.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_bytes() == copied.script("ad-head", "cat /etc/munge/munge.key", b"")
    assert "AccountingStorageType: kept" in text
    for line in (
        "nodes.conf:3: NodeName=ad-n1 Procs: left out: Slurm uses CPUs",
        "nodes.conf:3: NodeName=ad-n1 Features: left out: Slurm uses Feature",
        "partitions-lab-one.conf:2: PartitionName=work Shared: left out: Slurm uses OverSubscribe",
        "partitions-lab-one.conf:2: PartitionName=work PriorityTier: left out: Slurm uses Priority",
        "slurm.conf: SlurmdSpoolDir: kept: StateSaveLocation is the same directory",
    ):
        assert f"# {line}" in text
    assert cluster["slurm_conf"]["StateSaveLocation"] == "/var/spool/slurm"
    # slurmctld has the same reading.
    assert "slurmctld has something else in force" not in text


NAMES = """NodeName=DEFAULT Port=1 RealMemory=1000
NodeName=a1 CPUs=96 Sockets=2 CoresPerSocket=24 ThreadsPerCore=2 Procs=48 Feature=d Features=e NodeAddr=127.0.0.1
NodeName=a2 Procs=48 Sockets=2 CoresPerSocket=24 ThreadsPerCore=2 CPUs=96 NodeAddr=127.0.0.1
NodeName=DEFAULT CPUs=96 Sockets=2 CoresPerSocket=24 ThreadsPerCore=2 Feature=f
NodeName=a3 Procs=48 NodeAddr=127.0.0.1
NodeName=DEFAULT Features=g
NodeName=a4 NodeAddr=127.0.0.1
NodeName=a5 Features=h NodeAddr=127.0.0.1
NodeName=a6 Sockets=1 SocketsPerBoard=2 NodeAddr=127.0.0.1
PartitionName=DEFAULT OverSubscribe=NO Priority=3
PartitionName=p1 Nodes=a1 Shared=FORCE:2 PriorityTier=7 PriorityJobFactor=9
PartitionName=p2 Nodes=a2 DefMemPerCPU=10 DefMemPerNode=20
"""
SECOND = """set -eu
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
cat >"$d/slurm.conf" <<END
ClusterName=names
SlurmctldHost=$(hostname)
SlurmctldPort=17817
SlurmctldPidFile=$d/pid
SlurmUser=root
StateSaveLocation=$d
SelectType=select/cons_tres
END
cat >>"$d/slurm.conf"
export SLURM_CONF="$d/slurm.conf"
timeout 60 slurmctld -D -c >"$d/log" 2>&1 </dev/null & daemon=$!
for _ in $(seq 100); do timeout 5 scontrol show config >"$d/config" 2>/dev/null && break; sleep 0.5; done
for part in "$d/slurm.conf" "$d/config"; do cat "$part"; printf '\\0'; done
timeout 9 scontrol --all --future --oneliner show node 2>/dev/null; printf '\\0'
timeout 9 scontrol --all --oneliner show partition 2>/dev/null
kill $daemon; wait $daemon || true
"""
"""A second slurmctld with lines of its standard input: its file and what it shows, apart by null bytes."""


def test_of_two_names_slurmctld_reads_the_one_that_the_collection_reads(copied: Lab) -> None:
    conf, config, nodes, partitions = copied.script("ad-head", SECOND, NAMES.encode()).decode().split("\0")
    says = read({"slurm.conf": conf})
    assert len(says.nodes) == 6
    assert differences(says, config, nodes, partitions, "24.11.5") == []
    other = read({"slurm.conf": conf.replace(" CPUs=96", "")})
    assert "NodeName=a[1-3] CPUs: the file has 48, slurmctld 96" in differences(
        other, config, nodes, partitions, "24.11.5"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "ad-head: cluster lab-one: slurmctld runs with /etc/slurm/slurm.conf"),
        # Only playbook adopt takes the key.
        ("lab-one", "ad-head: slurmctld of a cluster of the same name, lab-one, that was installed by other means"),
    ],
)
def test_a_cluster_file_that_was_not_adopted_changes_nothing(
    copied: Lab, tmp_path: Path, name: str, message: str
) -> None:
    path = tmp_path / "written.cluster.yml"
    cluster = {key: value for key, value in copied.cluster.items() if key != "unmanaged"}
    path.write_text(yaml.safe_dump({**cluster, "name": name}, sort_keys=False))
    before = files_on(COPIED), started(COPIED)
    for arguments in ((), ("--check",)):
        run = Lab("adopt", path).playbook("site", *arguments)
        assert (run.rc != 0, run.changed) == (True, {})
        assert message in str(run.failed)
        assert "gpucluster.slurm.adopt" in str(run.failed)
    assert (files_on(COPIED), started(COPIED)) == before
    assert not (tmp_path / "secrets").exists()


def test_what_only_nodes_have_is_in_the_cluster_file_or_named(copied: Lab, fetched: Lab) -> None:
    """cgroup.conf is the same on all nodes, gres.conf is on the node with GPUs, plugstack.conf on one node of two."""
    hardware = {node["hosts"]: copied.cluster["hardware"][node["hardware"]] for node in copied.cluster["nodes"]}
    assert hardware["ad-n2"]["gres"] == [{"name": "gpu", "type": "t4", "file": "/dev/nvidia[0-1]"}]
    assert "gres" not in hardware["ad-n1"]
    confined = {key: value for key, value in copied.cluster["cgroup_conf"].items() if value is not None}
    assert confined == dict.fromkeys(("ConstrainCores", "ConstrainDevices", "ConstrainRAMSpace"), "yes")
    assert "plugstack" not in copied.cluster
    text = copied.inventory.read_text()
    assert "# cgroup.conf: changed: it comes from ad-n[1-2]; the controller has none" in text
    assert "# gres.conf: changed: the lines of ad-n2 come from the nodes' own files" in text
    assert "# ad-n1:/etc/slurm/plugstack.conf: left out: /opt/site/spank_site.so: found 'optional" in text
    # slurmd of the other cluster does not read the files that lie on its node.
    assert "ad-w1:/etc/slurm" not in fetched.inventory.read_text()
    assert "plugstack" not in fetched.cluster


def test_what_is_there_stays(copied: Lab, tmp_path: Path) -> None:
    """A second run keeps the file, one with another key keeps the key, and without a controller there is one error."""
    again = adopt(COPIED, copied.inventory.parent)
    assert "exists already and is not overwritten; set another adopt_dir" in str(again.failed["ad-head"])
    (tmp_path / "secrets/lab-one").mkdir(parents=True)
    (tmp_path / "secrets/lab-one/munge.key").write_bytes(b"another")
    other = adopt(COPIED, tmp_path)
    assert "already has another key and is unchanged" in str(other.failed["ad-head"])
    assert not (tmp_path / "lab-one.cluster.yml").exists()
    lost = adopt(("ad-n1",), tmp_path)
    assert "slurmctld runs on none of these hosts" in str(lost.failed["localhost"])
    away = adopt(("ad-n1", "ad-away"), tmp_path)
    assert "ad-away was not read: unreachable: " in str(away.failed["localhost"])
    wrong = adopt(COPIED, tmp_path, "--extra-vars=adopt_controler=ad-n1")
    assert "adopt_controler: unknown variable, did you mean 'adopt_controller'?" in str(wrong.failed["localhost"])


def test_a_check_writes_nothing_and_a_run_that_was_killed_is_completed(copied: Lab, tmp_path: Path) -> None:
    check = adopt(COPIED, tmp_path, "--check")
    assert (check.rc, check.failed, check.warnings) == (0, {}, [])
    assert "Write the cluster file" in str(check.changed)
    assert [*tmp_path.iterdir()] == []
    # The run was killed when it had taken the key.
    key = copied.inventory.parent / "secrets/lab-one/munge.key"
    taken = tmp_path / "secrets/lab-one/munge.key"
    taken.parent.mkdir(parents=True)
    taken.write_bytes(key.read_bytes())
    run = adopt(COPIED, tmp_path)
    assert (run.rc, run.failed) == (0, {})
    assert (tmp_path / "lab-one.cluster.yml").read_bytes() == copied.inventory.read_bytes()
    assert taken.read_bytes() == key.read_bytes()


def test_a_backup_controller_is_in_the_cluster_file_and_named(fetched: Lab, tmp_path: Path) -> None:
    assert fetched.cluster["controllers"] == "ad-ctl,ad-ctl2"
    both = adopt(FETCHED, tmp_path, "--check")
    assert "slurmctld runs on ad-ctl,ad-ctl2, and the files of ad-ctl were read" in both.output
    one = adopt(("ad-ctl", "ad-w1"), tmp_path, "--check")
    assert "ad-ctl2 is a controller, and is not in the inventory of this run: site.yml needs it" in one.output


def test_the_plan_has_nothing_without_a_reason(copied: Lab, fetched: Lab) -> None:
    plans = {lab.controller: lab.playbook("site", "--check", "--diff") for lab in (copied, fetched)}
    assert {name: (run.rc, run.failed) for name, run in plans.items()} == dict.fromkeys(plans, (0, {}))
    plan = [line.split() for line in plan_of(plans["ad-head"])]
    # Only the nodes had the first two.
    assert sorted((line[0], line[1], line[-1]) for line in plan) == [
        ("cgroup.conf", "a", "reconfigure"),
        ("gres.conf", "a", "reconfigure"),
        ("slurm.conf", "SlurmctldParameters", "reconfigure"),
    ]
    assert plan_of(plans["ad-ctl"]) == []


def test_the_first_run_restarts_nothing_that_serves_and_no_job_ends(copied: Lab, fetched: Lab) -> None:
    jobs = {
        "ad-head": start_job(copied, "ad-head", "alice", "--nodes=2 --ntasks=2 --mem=50", 60),
        "ad-ctl": start_job(fetched, "ad-ctl", "root", "", 60),
    }
    gpu = start_job(copied, "ad-head", "alice", "--partition=gpu --qos=long --gres=gpu:1 --mem=50", 60)
    for lab, hosts in ((copied, COPIED), (fetched, FETCHED)):
        before, shown = started(hosts), in_force(lab)
        run = lab.playbook("site")
        assert (run.rc, run.failed) == (0, {})
        after = started(hosts)
        # The backup controller gets the files of the one that serves, and reads them at its start.
        restarted = {"ad-ctl2 slurmctld"} if lab is fetched else set()
        assert {daemon for daemon in before if after[daemon] != before[daemon]} == restarted
        assert in_force(lab) == shown
        state_of(lab, lab.controller, jobs[lab.controller])
        again = lab.playbook("site")
        assert (again.rc, again.failed, again.changed) == (0, {}, {})
    state_of(copied, "ad-head", gpu)


def test_the_backup_controller_of_an_adopted_cluster_takes_over(fetched: Lab) -> None:
    job = start_job(fetched, "ad-ctl", "root", "", 600)
    # srun ends with an error if slurmctld is away when it asks for its step.
    fetched.wait_for("ad-ctl", f"squeue --steps --noheader --jobs={job} --format=%i", f"{job}.0", 30)
    fetched.command("ad-ctl", "systemctl stop slurmctld")
    fetched.command("ad-ctl2", "timeout 100 scontrol takeover")
    # One that finds no controller waits for half of SlurmctldTimeout before it asks again.
    fetched.wait_for("ad-ctl2", f"timeout 10 squeue --noheader --jobs={job} --format=%T", "RUNNING", 120)
    run = fetched.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert "The controller ad-ctl serves; ad-ctl2 stands by." in run.output
    assert fetched.command("ad-w1", "timeout 60 scontrol ping") == BOTH
    fetched.wait_for("ad-ctl", f"timeout 60 squeue --noheader --jobs={job} --format=%T", "RUNNING", 60)
    fetched.command("ad-ctl", f"scancel {job}")


def test_nodes_of_the_cloud_are_left_to_slurm(fetched: Lab) -> None:
    assert "cloud" not in json.dumps(fetched.playbook("site", "--check").stats)
    listed = fetched.playbook("validate")
    assert listed.rc == 0
    assert "cloud01" not in listed.output


def test_a_node_is_not_taken_over_if_its_own_files_would_be_lost(copied: Lab) -> None:
    text = copied.inventory.read_text()
    copied.inventory.write_text(text.replace('unmanaged: "ad-n[1-2]"', 'unmanaged: "ad-n2"'))
    before = files_on(COPIED), started(COPIED)
    for arguments in ((), ("--check",)):
        run = copied.playbook("site", *arguments)
        assert {*run.failed} == {"ad-n1"}, run.failed
        (error,) = run.failed["ad-n1"]
        assert "ad-n1: /etc/slurm/plugstack.conf: /opt/site/spank_site.so: found 'optional" in error
        assert "in the cluster file (plugstack)" in error
        after = files_on(COPIED), started(COPIED)
        assert (after[0]["ad-n1"], after[1]) == (before[0]["ad-n1"], before[1])


def test_one_node_is_taken_over_at_a_time(copied: Lab) -> None:
    """The check shows the restart of slurmd, though a package is missing on the node."""
    text = copied.inventory.read_text()
    plugin = "plugstack: [{plugin: /opt/site/spank_site.so, arguments: [level=2]}]\n"
    copied.inventory.write_text(f"{text}\n{plugin}")
    assert copied.playbook("site", "--limit=ad-head").rc == 0
    before = started(COPIED)
    check = copied.playbook("site", "--check", "--diff", "--limit=ad-head,ad-n1")
    assert check.rc == 0
    # The play of the first nodes shows it; that of all nodes skips the task for a first node.
    mine = [result for host, task, result in check.results if host == "ad-n1" and "Run slurmd" in task]
    assert [result["actions"] for result in mine if not result.get("skipped")] == [["daemon-reload", "restart"]]
    job = start_job(copied, "ad-head", "alice", "--nodelist=ad-n1 --mem=50", 100)
    run = copied.playbook("site", "--limit=ad-head,ad-n1")
    assert (run.rc, run.failed) == (0, {})
    after = started(COPIED)
    assert {key for key in before if before[key] != after[key]} == {"ad-n1 slurmd"}
    assert "JobState=RUNNING" in copied.command("ad-head", f"scontrol show job {job}")
    copied.command("ad-n1", "test ! -e /etc/slurm/slurm.conf")
    assert "--conf-server" in copied.command("ad-n1", "pgrep --list-full --exact slurmd")
    state_of(copied, "ad-head", job)
    again = copied.playbook("site")
    assert (again.rc, again.failed, again.changed) == (0, {}, {})


def test_a_cluster_is_given_back(copied: Lab, found: dict[str, str]) -> None:
    """Every file of Slurm is as it was, and jobs go on."""
    job = start_job(copied, "ad-head", "alice", "--nodelist=ad-n1 --mem=50", 60)
    check = copied.playbook("give_back", "--check")
    assert (check.rc, {*check.changed}) == (0, {"ad-head", "ad-n1"})
    run = copied.playbook("give_back")
    assert (run.rc, run.failed) == (0, {})
    assert files_of_slurm(COPIED) == found
    for host in ("ad-head", "ad-n1"):
        for path in ("/etc/gpucluster-slurm", "/usr/local/sbin/slurm-health", "/var/lib/gpucluster-slurm"):
            copied.command(host, f"test ! -e {path}")
        assert copied.command(host, "grep -rlE '(Managed by|BEGIN) gpucluster' /etc || true") == ""
    assert copied.command("ad-head", "stat --format='%U %a' /etc/slurm/slurmdbd.conf") == "slurm 600"
    assert "--conf-server" not in copied.command("ad-n1", "pgrep --list-full --exact slurmd")
    copied.wait_until_idle("ad-head", "ad-n2")
    state_of(copied, "ad-head", job)
    refused = copied.playbook("give_back")
    assert "or it has its previous files already" in str(refused.failed["ad-head"])
    assert yaml.safe_load(copied.inventory.read_text())["name"] == "lab-one"


def test_two_controllers_are_given_back(fetched: Lab, found_on_controllers: dict[str, str]) -> None:
    job = start_job(fetched, "ad-ctl", "root", "", 60)
    run = fetched.playbook("give_back")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert files_of_slurm(FETCHED[:2]) == found_on_controllers
    fetched.wait_for("ad-w1", "timeout 60 scontrol ping", BOTH, 60)
    state_of(fetched, "ad-ctl", job)
    for host in FETCHED[:2]:
        fetched.command(host, "systemctl restart slurmctld")
        fetched.wait_for("ad-w1", "timeout 60 scontrol ping", BOTH, 120)


KEPT = {
    "slurm_conf.StateSaveLocation": "slurm.conf:6: StateSaveLocation: kept: found '/tmp/one', which all programs of",
    "slurm_conf.SlurmdSpoolDir": "slurm.conf:7: SlurmdSpoolDir: kept: found '/tmp/one', which all programs of ",
    "slurm_conf.SlurmdLogFile": "slurm.conf:9: SlurmdLogFile: kept: found '/var/log/../log/slurm/slurmd.log'; a new ",
    "slurm_conf.SrunPortRange": "slurm.conf:11: SrunPortRange: kept: found '6800-9000' on ad-one, where Slurmctld",
}
STATE = "stat --format='%U %G' /tmp/one; test -s /tmp/one/job_state; test -s /tmp/one/cred_state"


def test_values_that_a_new_cluster_could_not_have_stay(one: Lab) -> None:
    """State and spool in one directory of /tmp, on a controller that is a node. No job ends, and nothing is moved."""
    assert one.cluster["taken_over"] == [*KEPT]
    for comment in KEPT.values():
        assert f"# {comment}" in one.inventory.read_text()
    job = start_job(one, "ad-one", "root", "", 400)
    before, shown, state = started(ONE), in_force(one), one.script("ad-one", f"set -eu; {STATE}", b"")
    assert state == b"slurm adm\n"
    run = one.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert (started(ONE), in_force(one)) == (before, shown)
    for key in KEPT:
        assert f"{key}: found " in run.output
    one.inventory.write_text(one.inventory.read_text().replace('unmanaged: "ad-one"\n', ""))
    taken = one.playbook("site", "--skip-tags=validate")
    assert (taken.rc, taken.failed) == (0, {}), taken.output[-3000:]
    assert {daemon for daemon, start in started(ONE).items() if start != before[daemon]} == {"ad-one slurmd"}
    assert one.script("ad-one", f"set -eu; {STATE}", b"") == state
    assert "JobState=RUNNING" in one.command("ad-one", f"scontrol show job {job}")
    one.command("ad-one", f"scancel {job}")
    again = one.playbook("site")
    assert (again.rc, again.failed, again.changed) == (0, {}, {})


def test_the_commands_of_the_handbook_run_as_they_stand(found: dict[str, str], tmp_path: Path) -> None:
    """With the names of this cluster. The key `unmanaged` and the node's own file change as the page says."""
    names = {"NAME": "lab-one", "ctl": "ad-head", "node01": "ad-n1", "node02": "ad-n2"}
    page = "docs/admin/adopt.md"
    lab = Lab("adopt", tmp_path / "lab-one.cluster.yml")
    for command in commands(page):
        if "--limit ctl,node01 --check" in command:
            assert yaml.safe_load(lab.inventory.read_text())["unmanaged"] == "ad-n[1-2]"
            text = re.sub("(?m)^unmanaged: .*$", "unmanaged: ad-n2", lab.inventory.read_text())
            plugin = "plugstack: [{plugin: /opt/site/spank_site.so, arguments: [level=2]}]\n"
            lab.inventory.write_text(f"{text}\n{plugin}")
            assert lab.playbook("site", "--limit=ad-head").rc == 0
        run_as_typed(lab, re.sub(r"\b(NAME|ctl|node0[12])\b", lambda match: names[match[0]], command), tmp_path)
    assert len(commands(page)) == 7
    assert files_of_slurm(COPIED) == found


def test_a_reset_leaves_slurm_with_its_files_of_before(one: Lab) -> None:
    kept = one.command("ad-one", "cd /var/lib/gpucluster-slurm/found && find . -type f -exec sha256sum {} +")
    run = one.playbook("reset", "-e", "reset_hosts=all")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    one.script("ad-one", "cd /etc/slurm && sha256sum --check --quiet", kept.encode())
    assert one.command("ad-one", "grep -rlE '(Managed by|BEGIN) gpucluster' /etc || true") == ""
    one.command("ad-one", "test ! -e /var/lib/gpucluster-slurm")
    assert one.command("ad-one", "timeout 120 srun hostname") == "ad-one"
