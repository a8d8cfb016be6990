# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user can do against a suspension: processes that want to stay, and jobs that want to start.

kim starts each of them with her own id, has a job that stays, and is suspended. lea is a friend.
The tests depend on each other and run in this order.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from lab import Lab, Run, with_cluster

RACER = """import os, time
end = time.monotonic() + 300
while time.monotonic() < end:
    if os.fork(): os._exit(0)
    time.sleep(0.002)
"""
TRACED = """import ctypes, os, sys, time
child = os.fork()
if child == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os.execv("/usr/bin/sleep", ["sleep", sys.argv[1]])
time.sleep(900)
"""
FIRST_THREAD_ENDS = """import ctypes, sys, threading, time
threading.Thread(target=time.sleep, args=(900,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
WAITS = "import socket, sys; s = socket.socket(); s.bind(('', 0)); s.listen(); s.accept()"
OWN_CGROUP = "user.slice/user-$(id -u).slice/user@$(id -u).service/slurm/uid_$(id -u)/job_7/step_0"

PROCESSES: dict[str, str] = {
    "nohup": "nohup sleep {n} >/dev/null 2>&1 & true",
    "setsid": "setsid --fork sleep {n}",
    "double fork": "(setsid sh -c 'sleep {n} & exit' &)",
    "stopped": "setsid --fork sh -c 'kill -STOP $$; exec sleep {n}' x {n}",
    "ignores signals": "setsid --fork sh -c 'trap \"\" TERM HUP INT QUIT; while :; do sleep 1; done' x {n}",
    "restarts itself": 'setsid --fork sh -c \'trap "exec setsid --fork sleep {n}" TERM;'
    " while :; do sleep 1; done' x {n}",
    "title of slurmstepd": "setsid --fork bash -c 'exec -a \"slurmstepd: [7.0]\" sleep {n}'",
    "title of a daemon": "setsid --fork bash -c 'exec -a /usr/sbin/slurmd sleep {n}'",
    "title of the kernel": "setsid --fork bash -c 'exec -a \"[kworker/0:1]\" sleep {n}'",
    "copy called slurmstepd": "cp /usr/bin/sleep slurmstepd && setsid --fork ./slurmstepd {n}",
    "link called slurmstepd": "mkdir -p l && ln -sf /usr/bin/sleep l/slurmstepd && setsid --fork l/slurmstepd {n}",
    "script called slurmstepd": "printf '#!/bin/sh\\nsleep {n}\\n' >s-slurmstepd;"
    " chmod +x s-*; setsid --fork ./s-slurmstepd {n}",
    "root of a namespace": "setsid --fork unshare --user --map-root-user sleep {n}",
    "namespace of processes": "setsid --fork unshare --user --map-root-user --pid --fork --mount-proc sleep {n}",
    "namespace of cgroups": "setsid --fork unshare --user --map-root-user --cgroup sleep {n}",
    "subordinate id": "setsid --fork unshare --user --map-auto --map-root-user --setuid 7 --setgid 7 sleep {n}",
    "traced": f"echo {shlex.quote(TRACED)} >t.py; setsid --fork python3 t.py {{n}}",
    "first thread ends": f"echo {shlex.quote(FIRST_THREAD_ENDS)} >f.py; setsid --fork python3 f.py {{n}}",
    "always another one": f"echo {shlex.quote(RACER)} >r.py; setsid --fork python3 r.py {{n}}",
    "waits for a connection": f"setsid --fork python3 -c {shlex.quote(WAITS)} {{n}}",
    "waits for a file": "mkfifo -m 600 p{n}; setsid --fork sh -c 'read x <p{n}' x {n}",
    "another directory": "cd / && setsid --fork sleep {n}",
    "lowest priority": "setsid --fork nice -n 19 sleep {n}",
    "no dump": "setsid --fork prlimit --core=0 sleep {n}",
    "real slurmstepd": 'setsid --fork "$(command -v slurmstepd || echo /usr/sbin/slurmstepd-wlm)" infinity {n}',
    "password of su": "setsid --fork script -qc 'su root -c \"sleep {n}\"' /dev/null",
}
"""Commands of a login, each with a number by which its processes are found."""

ON_LOGIN: dict[str, str] = {
    "unit": "systemd-run --user --quiet sleep {n}",
    "unit in a slice": "systemd-run --user --quiet --slice=slurmstepd sleep {n}",
    "unit that restarts": "systemd-run --user --quiet --property=Restart=always --property=RestartSec=0 sleep {n}",
    "timer": "systemd-run --user --quiet --on-active=1 --on-unit-active=1 sleep {n}; sleep 3",
    "scope": "setsid --fork systemd-run --user --quiet --scope sleep {n}",
    "cgroup of a job": f"mkdir -p /sys/fs/cgroup/systemd/{OWN_CGROUP} && setsid --fork sh -c"
    f" 'echo $$ >/sys/fs/cgroup/systemd/{OWN_CGROUP}/cgroup.procs; exec sleep {{n}}' x {{n}}",
    "at": "echo 'sleep {n}' | at now",
}
"""Those that need systemd's session of the user, or atd."""

MAY_FAIL = {
    *(
        "real slurmstepd",
        "password of su",
        "cgroup of a job",
        "subordinate id",
        "namespace of processes",
        "timer",
        "at",
    ),
    *("always another one", "first thread ends", "unit that restarts"),
}
"""Attempts that the host itself may refuse, or whose arguments are not always seen. None may stay."""


@dataclass
class Site:
    """The lab with kim, who has a key, and lea."""

    lab: Lab
    directory: Path
    users: list[dict[str, Any]]

    @property
    def login(self) -> str:
        """A host that is a login host only."""
        return expand(self.lab.cluster["login"])[-1]

    @property
    def nodes(self) -> list[str]:
        """Two hosts that are compute nodes only."""
        return list(self.lab.nodes[-2:])

    def apply(self) -> Run:
        """Put the plan into force."""
        run = with_cluster(self.lab, self.directory, {**self.lab.cluster, "users": self.users}).playbook(
            "site", "--tags=people,policy"
        )
        assert (run.rc, run.failed) == (0, {})
        return run

    def ssh(self, host: str, command: str) -> subprocess.CompletedProcess[str]:
        """A command of kim over a new connection."""
        key = ["-o", "BatchMode=yes", "-o", f"IdentityFile={self.directory / 'kim'}"]
        argv = ["timeout", "60", "ssh", "-F", str(self.lab.ssh_config), *key, f"kim@{host}", command]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def as_kim(self, host: str, command: str) -> tuple[int, str]:
        """A command with kim's id, for which PAM is not asked."""
        remote = f"cd /tmp/kim && runuser -u kim -- timeout 40 sh -c {shlex.quote(command)} 2>&1 || exit 1"
        found = self.lab.host(host).run(remote)
        return found.rc, str(found.stdout).strip()

    def jobs(self, states: str) -> set[str]:
        """The jobs of kim in some states."""
        return {*self.lab.command(self.lab.controller, f"squeue -h -r -u kim -t {states} -o %A").split()}


@pytest.fixture(name="site", scope="module")
def site_with_kim(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("suspended")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "kim", "-f", directory / "kim"], check=True)
    (account,) = lab.cluster["accounting"]["accounts"]
    kim = {"name": "kim", "uid": 5301, "keys": [(directory / "kim.pub").read_text().strip()]}
    users = [{**kim, "account": account["name"]}, {"name": "lea", "uid": 5302, "account": account["name"]}]
    site = Site(lab, directory, users)
    site.apply()
    for host in (site.login, site.nodes[0]):
        lab.command(host, "install -d -o kim -m 755 /tmp/kim; echo kim:400000:65536 | tee -a /etc/subuid >>/etc/subgid")
    lab.command(site.login, "apt-get install --quiet=2 --yes --no-install-recommends uidmap at >/dev/null")
    lab.command(site.login, "loginctl enable-linger kim")
    yield site
    for host in (site.login, site.nodes[0]):
        lab.command(host, "sed -i /^kim:/d /etc/subuid /etc/subgid; rm -rf /tmp/kim /var/opt/kim-setuid")
    lab.command(lab.controller, "scancel -u kim; scancel -u lea; sleep 3; sacctmgr -i delete account legacy; true")


@pytest.fixture(name="job", scope="module")
def job_that_stays(site: Site) -> str:
    """A job of kim on the first node, whose processes are a loop and a step."""
    script = "srun --overlap sleep 8000 & until test -e /tmp/kim/end; do sleep 0.2; done"
    submit = f"sbatch --parsable -w {site.nodes[0]} --mem=100 --output=/dev/null --wrap {shlex.quote(script)}"
    rc, job = site.as_kim(site.login, submit)
    assert rc == 0, job
    site.lab.wait_for(site.lab.controller, f"squeue -h -j {job} -o %T", "RUNNING", 60)
    return job


def found(site: Site, host: str, number: int) -> bool:
    """Whether a process has this number as an argument; its own one has it as a pattern."""
    return bool(site.lab.host(host).run(f"pgrep --full '[{str(number)[0]}]{str(number)[1:]}'").rc == 0)


def test_no_process_outside_of_a_job_survives(site: Site, job: str) -> None:
    started: dict[tuple[str, str], int] = {}
    number = 70001
    for host, commands in ((site.login, {**PROCESSES, **ON_LOGIN}), (site.nodes[0], PROCESSES)):
        for name, command in commands.items():
            number += 1
            line = command.replace("{n}", str(number))
            site.ssh(host, f"cd /tmp/kim; {{ {line}; }} </dev/null >/dev/null 2>&1")
            started[host, name] = number
    friend = number + 1
    site.lab.command(site.login, "install -o kim -m 4755 /usr/bin/sleep /var/opt/kim-setuid")
    site.lab.command(
        site.login, f"setsid --fork runuser -u lea -- /var/opt/kim-setuid {friend} </dev/null >/dev/null 2>&1"
    )
    own = friend + 1
    site.lab.command(site.login, f"setsid --fork runuser -u lea -- sleep {own} </dev/null >/dev/null 2>&1")
    site.lab.command(site.login, "sleep 2")
    runs = {key for key, value in started.items() if found(site, key[0], value)}
    assert {name for host, name in started if (host, name) not in runs} <= MAY_FAIL

    held = {"srun": "srun --mem=100 sleep 9000", "salloc": "salloc --mem=100 sleep 9001"}
    for command in held.values():
        site.ssh(site.login, f"cd /tmp/kim; setsid {command} </dev/null >/dev/null 2>&1 &")
    site.lab.wait_for(site.lab.controller, "squeue -h -u kim -t R -o %A | wc -l", str(1 + len(held)), 60)

    site.users[0]["state"] = "suspended"
    site.apply()
    # Slurm would keep the allocation of a command that was killed.
    alone = f'test "$(squeue -h -u kim -o %A | xargs)" = {job} && echo alone'
    site.lab.wait_for(site.lab.controller, alone, "alone", 60)
    left = {key for key, value in started.items() if found(site, key[0], value)}
    assert left == set()
    assert not found(site, site.login, friend)
    assert found(site, site.login, own), "lea's own process"
    assert site.lab.host(site.login).run("pgrep -u kim || ps -eo uid= | grep -E '^ *4[0-9]{5}$'").rc == 1
    assert not site.lab.host(site.login).file("/var/lib/systemd/linger/kim").exists
    assert found(site, site.nodes[0], 8000), "the step of the job"
    assert job in site.jobs("RUNNING")
    states = site.lab.command(site.nodes[0], "ps -u kim -o stat=").split()
    assert states
    assert not [state for state in states if state.startswith("T")], "the processes of the job go on"
    site.lab.command(site.login, f"pkill --full '[{str(own)[0]}]{str(own)[1:]}'")


SUBMISSIONS: dict[str, str] = {
    "sbatch": "sbatch --wrap 'sleep 60'",
    "sbatch of an array": "sbatch --array=1-3 --wrap 'sleep 60'",
    "sbatch, held": "sbatch --hold --wrap 'sleep 60'",
    "sbatch, later": "sbatch --begin=now+1 --wrap 'sleep 60'",
    "sbatch with a dependency": "sbatch --dependency=singleton --wrap 'sleep 60'",
    "sbatch of several parts": "sbatch --wrap 'sleep 60' : --wrap 'sleep 60'",
    "sbatch in another account": "sbatch --account=legacy --wrap 'sleep 60'",
    "sbatch of a friend's id": "sbatch --uid=lea --wrap 'sleep 60'",
    "srun": "srun --immediate=5 sleep 60",
    "srun in another account": "srun --account=legacy --immediate=5 sleep 60",
    "salloc": "salloc --immediate=5 sleep 60",
    "salloc without a shell": "salloc --no-shell --immediate=5",
    "scrontab": "echo '* * * * * sleep 60' | scrontab -",
    "strigger": "strigger --set --node --idle --program=/usr/bin/true",
    "more with sacctmgr": "sacctmgr -i modify user where name=kim set maxjobs=9 maxsubmitjobs=9 grpsubmitjobs=9",
    "another account": "sacctmgr -i add user kim account=science partition=all",
    "a level": "sacctmgr -i modify user kim set adminlevel=admin",
    "a reservation": "scontrol create reservation users=kim nodes=ALL starttime=now duration=9",
    "a partition": "scontrol update partitionname=all state=up",
    "reboot": "scontrol reboot ALL",
}
CHANGES: dict[str, str] = {
    "release": "scontrol release {job}",
    "another account": "scontrol update jobid={job} account=legacy",
    "another name": "scontrol update jobid={job} name=x",
    "start now": "scontrol update jobid={job} starttime=now",
    "no dependency": "scontrol update jobid={job} dependency=",
    "priority": "scontrol update jobid={job} nice=-100",
    "top": "scontrol top {job}",
    "hold and release": "scontrol hold {job}; scontrol release {job}",
    "requeue": "scontrol requeue {job}",
}


def test_no_job_of_a_suspended_user_starts(site: Site, job: str) -> None:
    """kim has made jobs that wait, an account by hand, and is its coordinator, before she is suspended again."""
    head, node = site.lab.controller, site.nodes[0]
    site.users[0]["state"] = "present"
    site.apply()
    site.lab.command(head, "sacctmgr -i add account legacy; sacctmgr -i add user kim account=legacy")
    site.lab.command(head, "sacctmgr -i add coordinator account=legacy,science names=kim")
    waiting = []
    kinds = ("--hold", "--begin=now+3600", f"--dependency=afterany:{job}", "--array=1-2 --hold", "-A legacy --hold")
    for options in kinds:
        submit = f"sbatch --parsable --mem=10 --output=/dev/null {options} --wrap 'sleep 60'"
        rc, number = site.as_kim(site.login, submit)
        assert rc == 0, number
        waiting.append(number)
    site.users[0]["state"] = "suspended"
    site.apply()
    before = site.jobs("all")
    ran = {}
    for host in (site.login, node):
        for name, command in SUBMISSIONS.items():
            ran[host, name] = site.as_kim(host, f"timeout 20 {command}" if "|" not in command else command)
    for number in waiting:
        for name, command in CHANGES.items():
            ran[number, name] = site.as_kim(node, command.replace("{job}", number))
    site.lab.command(head, "sleep 8")
    assert site.jobs("RUNNING,COMPLETING,CONFIGURING") == {job}
    new = site.jobs("all") - before
    hosts = (site.login, node)
    succeeded = {key: said for key, (status, said) in ran.items() if status == 0 and key[0] in hosts}
    assert (new, succeeded) == (set(), {})
    site.lab.command(node, "touch /tmp/kim/end")
    site.lab.wait_for(head, f"sacct -nX -j {job} -o state%20", "COMPLETED", 60)
    site.lab.command(head, "sleep 5")
    assert site.jobs("RUNNING,COMPLETING,CONFIGURING") == set(), "the job that waited for this one"
