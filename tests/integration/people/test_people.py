# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users of a CSV file on every host: made, compared, repaired, suspended, taken back and removed.

The tests depend on each other and run in this order. Each run of site.yml has the tag `people`, and `policy` where
Slurm has to know the users.
"""

from __future__ import annotations

import csv
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from lab import Lab, Run, with_cluster

APPLY = "Create the users of the plan"
PASSWORD = "a-password-of-a-user"
FILES = "/etc/passwd /etc/shadow /etc/group /etc/gshadow"
COLUMNS = ["name", "uid", "gid", "full_name", "groups", "keys", "state", "jobs", "account"]
REFUSED = "Job violates accounting/QOS policy"


@dataclass
class Site:
    """The lab with a plan of people."""

    lab: Lab
    directory: Path
    plan: dict[str, Any]

    @property
    def hosts(self) -> list[str]:
        """All hosts."""
        return list(dict.fromkeys([self.lab.controller, *self.others]))

    @property
    def others(self) -> list[str]:
        """A login host and two nodes."""
        return [self.logins[-1], *self.lab.nodes[-2:]]

    @property
    def logins(self) -> list[str]:
        return str(self.lab.cluster["login"]).split(",")

    def key(self, name: str) -> Path:
        """The private key of a user."""
        return self.directory / name

    def user(self, name: str) -> dict[str, Any]:
        """A user in the plan."""
        (user,) = [user for user in self.plan["users"] if user["name"] == name]
        return dict[str, Any](user)

    def set(self, name: str, **values: Any) -> None:
        """Change a user in the plan."""
        for user in self.plan["users"]:
            if user["name"] == name:
                user.update(values)

    @property
    def planned(self) -> Lab:
        """The lab with the plan: a cluster file with the groups, which names a CSV file with the users."""
        with (self.directory / "people.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            for user in self.plan["users"]:
                values = {key: ";".join(value) if isinstance(value, list) else value for key, value in user.items()}
                table.writerow(values)
        cluster = {**self.lab.cluster, "groups": self.plan["groups"], "people": "people.csv"}
        return with_cluster(self.lab, self.directory, cluster)

    def run(self, *arguments: str, tags: str = "people") -> Run:
        """Put the plan into force."""
        return self.planned.playbook("site", f"--tags={tags}", *arguments)

    def applied(self, tags: str = "people") -> Run:
        """Put the plan into force without an error."""
        run = self.run(tags=tags)
        assert (run.rc, run.failed, run.warnings) == (0, {}, [])
        return run

    def ssh(self, user: str, host: str, command: str, key: str = "") -> subprocess.CompletedProcess[str]:
        """A command of a user over a new connection, with the user's own key or that of another one."""
        return subprocess.run([*self.connection(user, host, key or user), command], **TEXT, check=False)

    def connection(self, user: str, host: str, key: str, seconds: int = 60) -> list[str]:
        """A command that connects a user."""
        own = ["-o", "BatchMode=yes", "-o", f"IdentityFile={self.key(key)}"]
        return ["timeout", str(seconds), "ssh", "-F", str(self.lab.ssh_config), *own, f"{user}@{host}"]


TEXT: dict[str, Any] = {"capture_output": True, "text": True}


def shown(run: Run, task: str, key: str) -> dict[str, Any]:
    """What a task returned, by host."""
    return {host: result.get(key) for host, name, result in run.results if name.endswith(task)}


def tasks(run: Run) -> set[str]:
    """The names of all tasks that a host has ended."""
    return {name for _host, name, _result in run.results}


@pytest.fixture(name="site", scope="module")
def site_with_a_plan(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Users of all kinds; alice is in the lab's image, with the id of the plan."""
    directory = tmp_path_factory.mktemp("people")
    users: list[dict[str, Any]] = [
        {"name": "alice", "uid": 2001, "full_name": "Alice Example", "groups": ["vision"]},
        {"name": "carl", "uid": 5001, "groups": ["vision", "speech"]},
        {"name": "dana", "uid": 5002, "gid": 6001},
        {"name": "erin", "uid": 5003},
        {"name": "finn", "uid": 5004},
    ]
    (account,) = lab.cluster["accounting"]["accounts"]
    for user in users:
        path = directory / user["name"]
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", user["name"], "-f", path], check=True)
        user |= {"keys": [path.with_suffix(".pub").read_text().strip()], "account": account["name"]}
    return Site(
        lab, directory, {"groups": [{"name": "vision", "gid": 6001}, {"name": "speech", "gid": 6002}], "users": users}
    )


def checksums(site: Site, hosts: Sequence[str]) -> list[str]:
    """The account files of hosts."""
    return [site.lab.command(host, f"sha256sum {FILES}; ls /etc/ssh /etc/ssh/sshd_config.d") for host in hosts]


def test_conflicts_are_named_together_and_nothing_is_changed(site: Site) -> None:
    _login, *nodes = site.others
    for host in nodes:
        site.lab.command(host, "useradd --uid 5001 --no-create-home mallory")
    site.lab.command(nodes[0], "useradd --uid 6999 --no-create-home dana")
    site.lab.command(nodes[1], "useradd --system --uid 450 --gid nogroup finn")
    site.lab.command(site.lab.controller, "groupadd --gid 7777 speech")
    site.lab.command(site.lab.controller, "install -d -o 4444 /home/erin")  # the lab's hosts share it
    before = checksums(site, site.hosts)
    run = site.run()
    assert run.rc != 0
    ((_host, (said,)),) = run.failed.items()
    *lines, last = said.partition("contradicts the plan: ")[2].split("\n")
    texts = {text: {*expand(hosts)} for hosts, _colon, text in (line.partition(": ") for line in lines)}
    assert texts == {
        "home /home/erin of user erin belongs to uid 4444 here": {*site.hosts},
        "uid 5001 of user carl belongs to user mallory here": {*nodes},
        "gid 5001 of group carl belongs to group mallory here": {*nodes},
        "user dana has uid 6999 here, and 5002 in the plan": {nodes[0]},
        "user finn is a system user here, with uid 450": {nodes[1]},
        "group speech has gid 7777 here, and 6002 in the plan": {site.lab.controller},
    }
    assert last == "Nothing was changed. Correct the plan (users and groups), or the accounts on these hosts."
    assert APPLY not in " ".join(tasks(run))
    assert checksums(site, site.hosts) == before
    for host in nodes:
        site.lab.command(host, "userdel mallory")
    site.lab.command(nodes[0], "userdel dana")
    site.lab.command(nodes[1], "userdel finn")
    site.lab.command(site.lab.controller, "groupdel speech; rmdir /home/erin")


def test_a_check_predicts_what_the_run_does(site: Site) -> None:
    others = site.lab.command(
        site.hosts[0], "grep -vE '^(alice|people)' /etc/passwd /etc/shadow /etc/group /etc/gshadow"
    )
    before = checksums(site, site.hosts)
    predicted = site.run("--check", "--diff")
    assert (predicted.rc, predicted.failed) == (0, {})
    assert checksums(site, site.hosts) == before
    run = site.run("--diff")
    assert (run.rc, run.failed, run.warnings) == (0, {}, [])
    assert run.changed == predicted.changed
    assert {*run.changed} == {*site.hosts}
    assert shown(run, APPLY, "diff") == shown(predicted, APPLY, "diff")
    now = site.lab.command(site.hosts[0], "grep -vE '^(alice|people)' /etc/passwd /etc/shadow /etc/group /etc/gshadow")
    assert {*others.split("\n")} <= {*now.split("\n")}


def test_people_are_the_same_everywhere(site: Site) -> None:
    show = "getent passwd alice carl dana erin finn; getent group vision speech people; id carl; id dana"
    (found,) = {site.lab.command(host, show) for host in site.hosts}
    lines = found.split("\n")
    assert lines[:3] == [
        "alice:x:2001:2001:Alice Example:/home/alice:/bin/bash",
        "carl:x:5001:5001::/home/carl:/bin/bash",
        "dana:x:5002:6001::/home/dana:/bin/bash",
    ]
    assert "vision:x:6001:alice,carl" in lines
    assert "people:x:967:alice,carl,dana,erin,finn" in lines
    assert lines[-2] == "uid=5001(carl) gid=5001(carl) groups=5001(carl),6001(vision),6002(speech),967(people)"
    for host in site.hosts:
        assert site.lab.command(host, "getent shadow carl") == "carl:*:::::::"
        assert site.lab.command(host, "pwck --read-only --quiet; grpck --read-only") == ""


def test_only_the_keys_of_the_plan_count(site: Site) -> None:
    host = site.logins[-1]
    site.lab.command(host, "install -d -o carl -g carl -m 0700 /home/carl /home/carl/.ssh")
    own = shlex.quote(site.key("dana").with_suffix(".pub").read_text())
    site.lab.command(
        host, f"echo {own} >/home/carl/.ssh/authorized_keys && chown carl: /home/carl/.ssh/authorized_keys"
    )
    for name in site.hosts:
        assert site.ssh("carl", name, "id -un").stdout == "carl\n"
    refused = site.ssh("carl", host, "id -un", key="dana")
    assert (refused.returncode, "Permission denied" in refused.stderr) == (255, True)


def test_a_lost_key_is_one_changed_line(site: Site) -> None:
    new = site.key("erin-new")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "erin", "-f", new], check=True)
    site.set("erin", keys=[new.with_suffix(".pub").read_text().strip()])
    run = site.applied()
    assert {host: len(tasks) for host, tasks in run.changed.items()} == dict.fromkeys(site.hosts, 1)
    for host in site.hosts:
        assert site.ssh("erin", host, "true").returncode == 255
        assert site.ssh("erin", host, "id -un", key="erin-new").stdout == "erin\n"


def test_a_user_of_the_policy_whom_no_host_knows_is_named_in_preflight(site: Site) -> None:
    (account,) = site.lab.cluster["accounting"]["accounts"]
    users = [{"name": "nobody-knows", "DefaultAccount": account["name"]}]
    planned = site.planned
    cluster = {**planned.cluster, "accounting": {**planned.cluster["accounting"], "users": users}}
    run = with_cluster(site.lab, site.directory, cluster).playbook("site", "--tags=preflight")
    assert (run.rc, run.changed) == (0, {})
    assert {text.partition(": ")[2] for text in run.warnings} == {"users of the policy who do not exist: nobody-knows"}


def test_a_second_run_has_no_task_of_people(site: Site) -> None:
    run = site.applied()
    assert run.changed == {}
    assert not [name for name in tasks(run) if "plan" in name]


def test_drift_of_each_kind_is_repaired(site: Site) -> None:
    head, (login, one, two) = site.lab.controller, site.others
    before = checksums(site, site.hosts)
    foreign = shlex.quote(site.key("dana").with_suffix(".pub").read_text())
    site.lab.command(head, "usermod --append --groups speech alice; chsh --shell /bin/sh carl")
    site.lab.command(login, f"echo {foreign} >>/etc/ssh/people.keys.d/carl")
    site.lab.command(one, f"sed -i s/^carl:x:5001:/carl:x:6666:/ /etc/passwd; echo erin:{PASSWORD} | chpasswd")
    site.lab.command(
        two, "gpasswd --delete carl vision; userdel finn; rm /etc/ssh/sshd_config.d/gpucluster-people.conf"
    )
    hashed = site.lab.command(one, "getent shadow erin")
    run = site.run("--diff")
    assert (run.rc, run.failed) == (0, {})
    assert {*run.changed} == {*site.hosts}
    assert hashed.split(":")[1] not in run.output
    assert site.lab.command(one, "getent shadow erin") == hashed, "a password of a user stays"
    site.lab.command(one, r"sed -i 's/^erin:.*/erin:*:::::::/' /etc/shadow")
    site.lab.command(two, "sed -i '/^finn:/d' /etc/subuid /etc/subgid")
    (repaired,) = {site.lab.command(host, "getent passwd carl finn; id carl; id alice; id finn") for host in site.hosts}
    assert "carl:x:5001:5001::/home/carl:/bin/bash" in repaired
    assert checksums(site, [head, login]) == before[:2]
    assert site.ssh("carl", login, "true", key="dana").returncode == 255
    assert site.ssh("carl", two, "id -Gn").stdout == "carl people vision speech\n"


@pytest.fixture(name="jobs", scope="module")
def jobs_of_carl_and_dana(site: Site) -> dict[str, str]:
    """A job of each, which runs until a file is there, and then submits another one."""
    head = site.lab.controller
    site.applied(tags="people,policy")
    script = "until test -e /tmp/end; do sleep 0.2; done; timeout 60 sbatch --wrap true; true"
    jobs = {}
    for user, node in zip(("carl", "dana"), site.lab.nodes[-2:]):
        submit = f"cd /tmp && sbatch --parsable -w {node} --mem=100 --output=/tmp/said-%u --wrap {shlex.quote(script)}"
        jobs[user] = site.lab.command(head, f"runuser -u {user} -- sh -c {shlex.quote(submit)}")
    for job in jobs.values():
        site.lab.wait_for(head, f"squeue -h -j {job} -o %T", "RUNNING", 60)
    return jobs


def pretend(site: Site, login: str, node: str) -> None:
    """Start processes of carl with the name slurmstepd: by ssh, at, cron, a unit, and as root of a namespace."""
    start = "/tmp/carl/slurmstepd -c 'sleep 900; true'"
    for host in (login, node):
        site.lab.command(host, "install -d -o carl /tmp/carl && cp /bin/bash /tmp/carl/slurmstepd")
        for before in ("", "unshare --user --map-root-user "):
            begun = site.ssh("carl", host, f"setsid --fork {before}{start} </dev/null >/dev/null 2>&1")
            assert begun.returncode == 0, begun
    unit = site.ssh("carl", login, f"systemd-run --user --quiet --slice=slurmstepd {start}")
    assert unit.returncode == 0, unit
    site.lab.command(login, f"cd /tmp && echo {shlex.quote(start)} | runuser -u carl -- at now")
    site.lab.command(login, f"echo {shlex.quote(f'@reboot {start}')} | crontab -u carl -; {REBOOT}")
    for host, count in ((login, "5"), (node, "2")):
        site.lab.wait_for(host, f"echo {COUNT}: $({COUNT})", f": {count}", 60)


COUNT = "pgrep --count --uid carl --exact slurmstepd"
REBOOT = "rm -f /run/crond.reboot; systemctl restart cron"
"""cron runs the lines of @reboot when it starts, if this file is not there."""


def test_suspended_users_are_out_and_their_jobs_stay_or_end(site: Site, jobs: dict[str, str]) -> None:
    head, login = site.lab.controller, site.logins[-1]
    there = "dpkg --status cron at >/dev/null 2>&1"
    site.lab.command(login, f"{there} || apt-get install --quiet=2 --yes --no-install-recommends cron at")
    pretend(site, login, site.lab.nodes[-2])
    site.lab.command(login, "rm -f /tmp/cron-* /tmp/at-*")
    line = "@reboot touch /tmp/cron-$(id -un)"
    for user in ("alice", "carl"):
        site.lab.command(login, f"echo {shlex.quote(line)} | crontab -u {user} -")
    site.lab.command(login, f"echo carl:{PASSWORD} | chpasswd")
    password = site.lab.command(login, "getent shadow carl")
    session = subprocess.Popen([*site.connection("carl", login, "carl", 900), "echo in; exec sleep 900"], stdout=-1)
    assert session.stdout
    assert session.stdout.readline() == b"in\n"

    site.set("carl", state="suspended")
    site.set("dana", state="suspended", jobs="end")
    run = site.applied(tags="people,policy")

    assert session.wait(timeout=60) == 255
    assert f"{jobs['dana']} of dana" in run.output
    assert f"{jobs['carl']} of carl" not in run.output
    site.lab.wait_for(head, f"sacct -nX -j {jobs['dana']} -o state%20", "CANCELLED", 60)
    assert site.lab.command(head, f"squeue -h -j {jobs['carl']} -o %T") == "RUNNING"
    for host in site.hosts:
        refused = site.ssh("carl", host, "sbatch --wrap true")
        assert (refused.returncode, refused.stdout) == (255, "")
        assert site.lab.host(host).run("su carl --command 'sbatch --wrap true'").rc == 1
        assert site.lab.command(host, f"{COUNT} || true") == "0"
        assert site.lab.host(host).run("pgrep --uid carl --full 'sleep 900'").rc == 1
        own = site.lab.command(host, "pgrep --uid carl || echo none")
        assert (own == "none") == (host != site.lab.nodes[-2]), own
    # runuser asks PAM nothing, so this is Slurm's own word.
    refused = site.lab.host(login).run("cd /tmp && runuser -u carl -- timeout 60 sbatch --wrap true")
    assert (refused.rc, REFUSED in refused.stderr) == (1, True), refused
    for user in ("carl", "alice"):
        site.lab.command(login, f"cd /tmp && echo 'touch /tmp/at-{user}' | runuser -u {user} -- at now")
    site.lab.command(login, REBOOT)
    for program in ("cron", "at"):
        site.lab.wait_for(login, "ls /tmp", f"{program}-alice", 60)
        assert not site.lab.host(login).file(f"/tmp/{program}-carl").exists
    assert password.split(":")[1] not in run.output

    assert site.applied(tags="people,policy").changed == {}
    site.lab.command(site.lab.nodes[-2], "touch /tmp/end")
    site.lab.wait_for(head, f"sacct -nX -j {jobs['carl']} -o state%20", "COMPLETED", 60)
    assert REFUSED in site.lab.command(site.lab.nodes[-2], "cat /tmp/said-carl")

    site.set("carl", state="present")
    site.applied(tags="people,policy")
    site.lab.command(login, "cd /tmp && runuser -u carl -- timeout 60 sbatch --wait --output=/dev/null --wrap true")
    assert site.ssh("carl", login, "id -un").stdout == "carl\n"
    assert site.lab.command(login, "getent shadow carl") == password
    site.lab.command(login, f"rm /tmp/cron-alice; {REBOOT}")
    site.lab.wait_for(login, "ls /tmp", "cron-carl", 60)


def test_a_token_of_a_suspended_user_is_good_for_no_job(site: Site) -> None:
    """No command of Slurm takes a token back, so that Slurm's limits have to refuse. dana is still suspended."""
    head, login = site.lab.controller, site.logins[-1]
    for host in (head, login):
        site.lab.command(host, "apt-get install --quiet=2 --yes --no-install-recommends slurm-wlm-jwt-plugin")
    key = "/var/lib/slurm/slurmctld/test.key"
    settings = f"AuthAltTypes=auth/jwt\\nAuthAltParameters=jwt_key={key}\\n"
    with site.lab.configuration_kept():
        site.lab.command(head, f"head -c 32 /dev/urandom | install -o slurm -g slurm -m 0600 /dev/stdin {key}")
        site.lab.command(head, f"printf '{settings}' >>/etc/slurm/slurm.conf && systemctl restart slurmctld")
        site.lab.wait_for(head, "timeout 60 scontrol ping", "UP", 60)
        (token,) = site.lab.command(head, "timeout 60 scontrol token username=dana lifespan=600").split()

        def with_token(command: str, token: str = token) -> tuple[int, str]:
            found = site.lab.host(login).run(f"cd /tmp && env {token} runuser -u dana -- timeout 60 {command}")
            return found.rc, found.stdout + found.stderr

        status, said = with_token("squeue --me")
        assert (status, "JOBID" in said) == (0, True), said
        assert with_token("squeue --me", "SLURM_JWT=none")[0] == 1, "Slurm reads the token"
        status, said = with_token("sbatch --wrap true")
        assert (status, REFUSED in said) == (1, True), said
    site.lab.command(head, f"rm {key}")


def test_users_who_are_absent_or_left_out_keep_their_homes_and_are_named(site: Site) -> None:
    site.lab.command(site.lab.controller, "install -d -o erin -g erin /home/erin")
    site.set("erin", state="absent")
    site.plan["users"] = [user for user in site.plan["users"] if user["name"] != "finn"]
    run = site.applied()
    said = shown(run, "Show users who leave, and what stays of them", "msg").values()
    in_slurm, on_hosts = sorted({text for texts in said for text in texts if "erin" in text})
    assert in_slurm.startswith("What Slurm has of erin stays"), "its policy does not purge"
    assert on_hosts.endswith(": user erin is removed, and the home /home/erin stays")
    assert "user finn is not in the plan and keeps the account" in run.output
    for host in site.hosts:
        assert site.lab.host(host).run(f"grep erin {FILES}").stdout == ""
        assert site.ssh("finn", host, "id -Gn").stdout == "finn people\n"
    assert site.lab.command(site.lab.controller, "stat --format=%u /home/erin") == "5003"
    assert site.applied().changed == {}


def test_a_run_that_was_killed_is_completed_by_the_next_one(site: Site) -> None:
    gina = {**site.user("alice"), "name": "gina", "uid": 5006, "keys": []}
    site.plan["users"].append(gina)
    run = site.planned.start("site", "--tags=people")
    run.wait_for_task(APPLY)
    run.kill()
    for host in site.hosts:
        site.lab.wait_for(host, "pgrep --full '[A]nsiballZ_slurm_people' || echo ended", "ended", 60)
    # As if it had written some of the files there.
    site.lab.command(site.others[0], "sed -i /^gina:/d /etc/passwd; rm -f /var/lib/gpucluster-slurm/people")
    site.applied()
    (found,) = {site.lab.command(host, "id gina; getent shadow gina; id alice") for host in site.hosts}
    assert found.startswith("uid=5006(gina) gid=5006(gina) groups=5006(gina),6001(vision),967(people)")
    assert site.applied().changed == {}
