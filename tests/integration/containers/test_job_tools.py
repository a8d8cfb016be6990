# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job tools as a normal user runs them, over stand-ins for enroot, pyxis and NVIDIA's registry.

The stand-in for pyxis runs a task on the host. What was asked for is in variables PYXIS_*: that is what is checked.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import pytest
from debs import as_user
from lab import Lab

KEY = "nvapi-first_KEY"


pytestmark = pytest.mark.usefixtures("equipped")


@pytest.fixture(autouse=True)
def work(lab: Lab) -> Iterator[None]:
    """A directory of alice, /home/alice/work/vision, and nothing that the tools remember."""
    forget = "rm -rf work .local/share/enroot .local/share/job-tools .config .apptainer"
    as_user(lab, f"{forget}; mkdir -p work/vision")
    yield
    as_user(lab, forget)


def tool(lab: Lab, command: str, rc: int = 0, directory: str = "work/vision", language: str = "C.UTF-8") -> str:
    """What a tool says in a directory."""
    script = f"cd {directory} && export LANG={language} LC_ALL={language} && timeout 180 {command} 2>&1"
    result = lab.host("front").run(f"runuser -l alice -c {shlex.quote(script)}")
    assert result.rc == rc, result.stdout + result.stderr
    return str(result.stdout).strip()


def test_a_container_has_the_name_of_its_directory_and_commands_run_in_it(lab: Lab) -> None:
    assert "made vision in" in tool(lab, "sbuild.sh ubuntu:24.04")
    assert as_user(lab, "enroot list") == "pyxis_vision"
    found = dict(line.split("=", 1) for line in tool(lab, "srun.sh env | grep ^PYXIS").splitlines())
    assert found == {
        "PYXIS_container_name": "vision",
        "PYXIS_container_mounts": "/home/alice/work/vision:/workspace",
        "PYXIS_container_workdir": "/workspace",
        "PYXIS_container_remap_root": "yes",
    }


@pytest.fixture(scope="module")
def languages(lab: Lab) -> None:
    """Languages, with the messages of the C library in them, on the login host."""
    lab.script("front", "apt-get -qq install --yes --no-install-recommends locales >&2", b"")
    for language in ("de_DE", "ja_JP", "ko_KR"):
        lab.command("front", f"localedef -i {language} -f UTF-8 {language}.UTF-8")
    assert "Datei" in tool(lab, "cat /none", 1, "/", "de_DE.UTF-8")


@pytest.mark.usefixtures("languages")
@pytest.mark.parametrize("language", ["de_DE.UTF-8", "ja_JP.UTF-8", "ko_KR.UTF-8", "C"])
def test_the_language_changes_nothing(lab: Lab, language: str) -> None:
    assert "made vision in" in tool(lab, "sbuild.sh ubuntu:24.04", language=language)
    assert "the container vision exists" in tool(lab, "sbuild.sh ubuntu:24.04", 1, language=language)


def test_a_script_of_the_directory_is_a_command(lab: Lab) -> None:
    tool(lab, "sbuild.sh ubuntu:24.04")
    as_user(lab, "cd work/vision; printf '#!/bin/sh\necho set up: $*\n' >setup.sh; chmod +x setup.sh")
    assert tool(lab, "srun.sh setup.sh 'two words' more") == "set up: two words more"
    assert tool(lab, "srun.sh sh -c 'exit 7'", 7).endswith("Exited with exit code 7")


def test_a_command_does_not_run_on_the_host_where_its_container_does_not_start(lab: Lab) -> None:
    """Slurm would run it, because pyxis is optional here."""
    tool(lab, "sbuild.sh ubuntu:24.04")
    plugin, nodes = "/usr/local/lib/gpucluster-slurm/spank_pyxis.so", ("box01", "box02")
    with lab.configuration_kept():
        lab.command("front", "sed -i 's/^required/optional/' /etc/slurm/plugstack.conf && scontrol reconfigure")
        for host in nodes:
            lab.wait_for(host, "cat /run/slurm/conf/plugstack.conf", f"optional {plugin}")
            lab.command(host, f"mv {plugin} {plugin}.away")
        try:
            said = tool(lab, "srun.sh touch escaped", 125)
            assert "the container has not started, so the command has not run" in said
            assert as_user(lab, "ls work/vision") == ""
        finally:
            for host in nodes:
                lab.command(host, f"mv {plugin}.away {plugin}")
    for host in nodes:
        lab.wait_for(host, "cat /run/slurm/conf/plugstack.conf", f"required {plugin}")


def test_a_command_reads_what_it_is_given(lab: Lab) -> None:
    tool(lab, "sbuild.sh ubuntu:24.04")
    assert tool(lab, "echo given | srun.sh cat") == "given"


def test_without_a_command_there_is_a_shell(lab: Lab) -> None:
    tool(lab, "sbuild.sh ubuntu:24.04")
    typed = "printf 'echo in $PYXIS_container_name\nexit\n' | script -qec 'timeout 180 srun.sh' /dev/null"
    assert "in vision" in tool(lab, typed)


def test_options_and_defaults_of_the_user(lab: Lab) -> None:
    tool(lab, "sbuild.sh --name other ubuntu:24.04")
    # The container of a directory is the one that was made in it, whatever its name.
    assert tool(lab, "srun.sh --user --home env | grep ^PYXIS_ | sort").splitlines() == [
        "PYXIS_container_mount_home=yes",
        "PYXIS_container_mounts=/home/alice/work/vision:/workspace",
        "PYXIS_container_name=other",
        "PYXIS_container_workdir=/workspace",
        "PYXIS_no_container_remap_root=yes",
    ]
    as_user(lab, "mkdir -p .config; echo PARTITION=nowhere >.config/job-tools.conf")
    assert "nowhere" in tool(lab, "srun.sh true", 1)
    assert tool(lab, "srun.sh --partition cpu printenv SLURM_JOB_PARTITION") == "cpu"
    assert "Requested node configuration" in tool(lab, "srun.sh --partition cpu --gpus 99 true", 1)


def test_of_several_containers_one_that_is_there_and_has_the_name_of_the_directory_is_taken(lab: Lab) -> None:
    for name in ("another", "vision", "zebra"):
        tool(lab, f"sbuild.sh --name {name} ubuntu:24.04")
    for name in ("vision", "another", "zebra"):
        assert tool(lab, "srun.sh printenv PYXIS_container_name") == name
        as_user(lab, f"enroot remove -f pyxis_{name}")
    assert "there is no container vision yet" in tool(lab, "srun.sh true", 1)


def test_a_container_is_found_among_many(lab: Lab) -> None:
    """More names than a pipe holds, after the one that is looked for."""
    tool(lab, "sbuild.sh --name a ubuntu:24.04")
    as_user(lab, "cd .local/share/enroot && seq -f pyxis_b_%0200.0f 1000 | xargs mkdir")
    assert tool(lab, "srun.sh printenv PYXIS_container_name") == "a"


def test_names_are_unique(lab: Lab) -> None:
    tool(lab, "sbuild.sh ubuntu:24.04")
    assert "the container vision exists: srun.sh runs in it" in tool(lab, "sbuild.sh ubuntu:24.04", 1)
    assert "made vision" in tool(lab, "sbuild.sh --force ubuntu:24.04")
    as_user(lab, "mkdir -p work/old/vision")
    said = tool(lab, "sbuild.sh --force ubuntu:24.04", 1, "work/old/vision")
    assert "/home/alice/work/vision has the container vision already" in said


def test_a_container_that_does_not_start_is_not_kept(lab: Lab) -> None:
    """Its directory is there when it fails."""
    assert "no container: see above what Slurm says" in tool(lab, "sbuild.sh broken", 1)
    assert as_user(lab, "ls -A .local/share/enroot") == ""


@pytest.mark.parametrize(("signal", "status"), [("HUP", 129), ("INT", 130), ("TERM", 143)])
def test_a_signal_ends_the_job_and_removes_what_it_has_made(lab: Lab, signal: str, status: int) -> None:
    made = "until test -d ~/.local/share/enroot/pyxis_vision; do sleep 0.1; done"
    stop = f"({made}; kill -{signal} $$) & exec sbuild.sh slow"
    assert "stopped; the container vision is removed" in tool(lab, f"bash -c {shlex.quote(stop)}", status)
    assert as_user(lab, "enroot list; squeue --noheader --me") == ""


def test_a_job_that_somebody_cancels_leaves_no_container(lab: Lab) -> None:
    made = "until test -d ~/.local/share/enroot/pyxis_vision; do sleep 0.1; done"
    stop = f"({made}; scancel --name=sbuild-vision) & exec sbuild.sh slow"
    assert "no container: see above what Slurm says" in tool(lab, f"bash -c {shlex.quote(stop)}", 1)
    assert as_user(lab, "enroot list; squeue --noheader --me") == ""


def test_two_jobs_do_not_make_the_same_container(lab: Lab) -> None:
    job = as_user(lab, "sbatch --parsable --job-name=sbuild-vision --output=/dev/null --wrap='sleep 60'")
    assert "a job makes the container vision: see squeue --me" in tool(lab, "sbuild.sh ubuntu:24.04", 1)
    as_user(lab, f"scancel {job}")


def test_a_container_that_other_hosts_do_not_see_is_told(lab: Lab) -> None:
    """The job runs on either node, since the job of the test before may not have left its own yet."""
    said = tool(lab, "sbuild.sh elsewhere", 1)
    assert re.search(
        r"the container vision was on box0[12] only: this host does not share enroot_data_dir with the nodes", said
    ), said


def test_what_cannot_be_done_is_told(lab: Lab) -> None:
    said = tool(lab, "sbuild.sh missing", 1)
    assert "failed to import docker image" in said
    assert "no container: see above what Slurm says" in said
    assert "there is no container vision yet: sbuild.sh makes it" in tool(lab, "srun.sh true", 1)
    assert "there is no option --gpu" in tool(lab, "srun.sh --gpu 1 true", 2)
    assert "--gpus needs a value" in tool(lab, "sbuild.sh --gpus", 2)
    assert "one image, found: a b" in tool(lab, "sbuild.sh a b", 2)
    as_user(lab, "mkdir 'work/two words'")
    assert "'two words' is no name of a container" in tool(lab, "sbuild.sh a", 1, "'work/two words'")


@pytest.mark.parametrize("name", ["sbuild.sh", "srun.sh", "nvcrlogin", "gpus", "jobstats"])
def test_help_comes_without_a_cluster(lab: Lab, name: str) -> None:
    assert tool(lab, f"env SLURM_CONF=/nowhere {name} --help").startswith(
        ("usage: ", "Save an API key", "Show GPUs", "Show what a job used")
    )


def test_the_newest_image_is_asked_from_the_registry(lab: Lab) -> None:
    """The registry is a stand-in, files that python3 serves."""
    tags = ["22.02-tf2-py3", "24.12-tf1-py3", "9.9-tf2-py3", "25.02-tf2-py3-igpu", "24.11-tf2-py3"]
    as_user(lab, "mkdir -p work/ngc/v2/nvidia/tensorflow/tags .config")
    lab.script("front", "cat >/home/alice/work/ngc/proxy_auth", json.dumps({"token": "t"}).encode())
    lab.script("front", "cat >/home/alice/work/ngc/v2/nvidia/tensorflow/tags/list", json.dumps({"tags": tags}).encode())
    as_user(lab, "echo REGISTRY=http://10.213.7.70:8071 >.config/job-tools.conf")
    serve = "systemd-run --unit=ngc python3 -m http.server --directory /home/alice/work/ngc 8071 2>&1"
    lab.command("front", serve)
    try:
        lab.wait_for("front", "ss -Hltn sport = :8071", "8071")
        said = tool(lab, "sbuild.sh")
    finally:
        lab.command("front", "systemctl stop ngc")
    assert "making vision from 10.213.7.70:8071#nvidia/tensorflow:24.11-tf2-py3" in said
    as_user(lab, "enroot remove -f pyxis_vision")
    assert "does not tell which image is the newest: name one" in tool(lab, "sbuild.sh", 1)


def login(lab: Lab, key: str, rc: int = 0) -> str:
    """What nvcrlogin says when it reads a key from a file."""
    return tool(lab, f"sh -c {shlex.quote(f'printf %s {shlex.quote(key)} | nvcrlogin')}", rc)


def test_a_key_is_saved_for_enroot_and_apptainer(lab: Lab) -> None:
    as_user(lab, "mkdir -p .config/enroot; echo 'machine quay.io login me password mine' >.config/enroot/.credentials")
    as_user(lab, "chmod 644 .config/enroot/.credentials")
    for key in (KEY, "nvapi-second"):
        assert login(lab, key) == "The key is saved."
        assert as_user(lab, "cat .config/enroot/.credentials").splitlines() == [
            f"machine nvcr.io login $oauthtoken password {key}",
            f"machine authn.nvidia.com login $oauthtoken password {key}",
            "machine quay.io login me password mine",
        ]
    auth = "jq -r '.auths[\"nvcr.io\"].auth' .apptainer/docker-config.json | base64 -d"
    assert as_user(lab, auth) == "$oauthtoken:nvapi-second"
    modes = "stat -c %a .config/enroot/.credentials .apptainer/docker-config.json"
    assert as_user(lab, modes).split() == ["600", "600"]
    assert tool(lab, "nvcrlogin --remove") == "The key is forgotten."
    assert "nvcr.io" not in as_user(lab, "cat .config/enroot/.credentials .apptainer/docker-config.json")


def test_a_key_is_asked_for_without_an_echo(lab: Lab) -> None:
    # What is typed before the tool asks is lost.
    typed = f"until grep -qs 'API key' shown; do sleep 0.1; done; echo {KEY}"
    terminal = 'script -qefc "stty echo; nvcrlogin" shown'
    said = tool(lab, f"sh -c {shlex.quote(f'({typed}) | {terminal}')}")
    assert "API key (not shown):" in said
    assert "The key is saved." in said
    assert f"password {KEY}" in as_user(lab, "cat .config/enroot/.credentials")
    # What the terminal shows before the tool has asked is not its own.
    assert KEY not in said.partition("API key")[2]


def test_keys_that_are_none(lab: Lab) -> None:
    assert "not given on the command line" in tool(lab, f"nvcrlogin {KEY}", 1)
    assert "found nothing" in login(lab, "", 1)
    assert "found blanks" in login(lab, "two words", 1)
    as_user(lab, "mkdir -p .apptainer; echo '{' >.apptainer/docker-config.json")
    assert "/home/alice/.apptainer/docker-config.json: " in login(lab, KEY, 1)


def test_a_file_of_a_key_that_others_may_read_is_refused(lab: Lab) -> None:
    as_user(lab, f"echo {KEY} >work/key; chmod 644 work/key")
    said = tool(lab, "nvcrlogin <../key", 1)
    assert "others can read the file of the key: found mode 644, allowed: 600 or 400" in said
    as_user(lab, "chmod 600 work/key")
    assert tool(lab, "nvcrlogin <../key") == "The key is saved."


def test_a_key_is_in_no_list_of_processes(lab: Lab) -> None:
    as_user(lab, "umask 077; mkfifo work/pipe")
    lab.script("front", "install -o alice -m 600 /dev/stdin /home/alice/work/key", KEY.encode())
    # The brackets: this text is in a list of processes itself.
    runs = "tr '\\0' ' ' </proc/$!/cmdline | grep -q bin/[n]vcrlogin"
    lists = "cat /proc/*/cmdline | tr '\\0' '\\n'"
    watched = f"nvcrlogin <../pipe & exec 3>../pipe; cat ../key >&3; until {runs}; do sleep 0.1; done; {lists}"
    seen = tool(lab, f"bash -c {shlex.quote(f'{watched}; exec 3>&-; wait')}")
    assert "/usr/local/bin/nvcrlogin" in seen.splitlines()
    assert seen.endswith("The key is saved.")
    assert KEY not in seen


def test_completion(lab: Lab) -> None:
    tool(lab, "sbuild.sh ubuntu:24.04")
    function = "_gpucluster_job_tools srun.sh {} {}; echo ${{COMPREPLY[@]}}"
    ask = f"source /etc/bash_completion.d/gpucluster-job-tools; {function}"
    assert as_user(lab, ask.format("--ho", "srun.sh")) == "--home"
    assert as_user(lab, ask.format("''", "--name")) == "vision"
    assert as_user(lab, ask.format("''", "--partition")) == "cpu gpu batch"
