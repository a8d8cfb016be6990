# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs in real jobs: box01 has two of a type, box02 two of each of two types.

The GPUs are stand-ins, device nodes without a driver behind them: opening one that a job may use gives ENXIO ("No such
device"), any other one EPERM ("Operation not permitted").
"""

from __future__ import annotations

import pytest
from lab import Lab

# Tells which device files may be opened, and that the others are refused.
PROBE = """for n in 0 1 2 3; do
    test -e /dev/nvidia$n || continue
    case $(head -c1 /dev/nvidia$n 2>&1) in
        *"No such device"*) may="$may$n" ;;
        *"Operation not permitted"*) ;;
        *) may="$may?" ;;
    esac
done
"""


def run(lab: Lab, arguments: str, script: str) -> str:
    """What a user's job prints, that runs a shell script."""
    lab.script("front", "cat >/home/alice/script && chown alice /home/alice/script", script.encode())
    return str(lab.command("front", f"runuser -u alice -- timeout 180 srun {arguments} sh /home/alice/script"))


@pytest.mark.parametrize(
    ("arguments", "host", "visible", "may_open"),
    [
        pytest.param("-w box01 --gres=gpu:1", "box01", "0", ("0",), id="one"),
        pytest.param("-w box01 --gres=gpu:2", "box01", "0,1", ("01",), id="two"),
        pytest.param("-w box01", "box01", "", ("",), id="none"),
        pytest.param("--gres=gpu:t4:1", "box02", "0", ("2", "3"), id="of-a-type"),
        pytest.param("--gpus=t4:2", "box02", "0,1", ("23",), id="two-of-a-type"),
        pytest.param("--gres=gpu:a100:1,gpu:t4:1", "box02", "0,1", ("02",), id="of-both-types"),
    ],
)
def test_a_job_gets_the_gpus_that_it_asked_for_and_no_others(
    lab: Lab, arguments: str, host: str, visible: str, may_open: tuple[str, ...]
) -> None:
    output = run(lab, arguments, f'{PROBE} echo "$(hostname);$CUDA_VISIBLE_DEVICES;$may"')
    assert output in [f"{host};{visible};{may}" for may in may_open]


def test_each_task_has_a_gpu_of_its_own(lab: Lab) -> None:
    output = run(lab, "-w box01 --ntasks=2 --gpus-per-task=1", f'{PROBE} echo "$CUDA_VISIBLE_DEVICES;$may"')
    assert sorted(output.split()) == ["0;0", "0;1"]


def test_jobs_on_one_node_do_not_share_a_gpu(lab: Lab) -> None:
    # Each waits until the other runs as well (/home is shared), then names the devices that it may open. Not
    # CUDA_VISIBLE_DEVICES: it counts within a job's own devices and is 0 in both.
    meet = "touch $HOME/$SLURM_JOB_ID.meet; until test $(ls $HOME/*.meet | wc -l) = 2; do sleep 0.2; done"
    lab.script("front", "cat >/home/alice/pair", f"{meet}\n{PROBE}\necho $may".encode())
    job = "runuser -l alice -c 'timeout 180 srun -w box01 --gres=gpu:1 sh pair'"
    assert sorted(lab.command("front", f"{job} & {job} & wait; rm /home/alice/*.meet").split()) == ["0", "1"]


def test_a_job_gets_the_share_of_its_gpu_and_cpu_jobs_leave_room_for_it(lab: Lab) -> None:
    """Partition batch has one of the two CPUs of box01, so its second job waits, although a CPU is idle."""
    wrap = "sbatch --parsable --partition=batch --output=/dev/null --mem=100 --wrap='sleep 120'"
    jobs = [str(lab.command("front", f"runuser -u alice -- {wrap}")) for _ in range(2)]
    try:
        lab.wait_for("front", f"squeue --noheader --jobs={jobs[0]} --format=%T", "RUNNING")
        show = "scontrol show job $SLURM_JOB_ID | grep -o 'AllocTRES=.*'"
        output = run(lab, "--partition=gpu --gres=gpu:1 --immediate=30", show)
        assert output == "AllocTRES=cpu=1,mem=1000M,node=1,billing=1,gres/gpu=1,gres/gpu:h100=1"
        assert lab.command("front", f"squeue --noheader --jobs={jobs[1]} --format=%T") == "PENDING"
    finally:
        lab.command("front", f"scancel {' '.join(jobs)}")


@pytest.mark.parametrize("gres", ["gpu:3", "gpu:t4:3", "gpu:v100:1"])
def test_what_no_node_has_is_refused(lab: Lab, gres: str) -> None:
    refused = lab.host("front").run(f"timeout 180 srun -w box01 --gres={gres} true")
    assert refused.rc != 0
    assert "Requested node configuration is not available" in refused.stderr
