# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for hosts: to Ansible they are this machine with another Python, which runs no module but says its answer.

So real playbooks run against hosts that answer whatever a test wants, and nothing of this machine is read or changed.
Only the hosts are stand-ins: Ansible, the playbooks and the control host's side of the modules are real.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from programs import environment

Answers = Mapping[str, Any]
"""What a host says, by the last part of a module's name: an answer, or the text itself."""

PYTHON = """\
#!/bin/sh
# In the place of a host's Python, which is given a module as Ansible has packed it.
cd "${0%/*}" || exit
cat "$@" >asked
module=$(sed -n "s/^module_fqn='.*[.]\\(.*\\)',$/\\1/p" asked)
mv asked "asked-$module"
# The time of an answer is how far the clock of the host is ahead.
exec awk -v now="$(date +%s)" -F '"time": ' 'NF == 2 { sub(/^-?[0-9]+/, now + $2, $2); $0 = $1 FS $2 } 1' "$module.json"
"""

HARDWARE = {
    "cpus": 2,
    "boards": 1,
    "sockets_per_board": 1,
    "cores_per_socket": 2,
    "threads_per_core": 1,
    "real_memory": 2000,
    "cpuless_memory": 0,
    "tmp_disk": 1000,
    "device_files": [],
    "ports": [],
    "gpus": [
        {
            "minor": 0,
            "pci_address": "0000:07:00.0",
            "model": "NVIDIA H100 80GB HBM3",
            "type": "h100",
            "memory_mb": 81559,
            "numa_node": None,
            "cores": "0-1",
            "mig": [{"profile": "1g.10gb", "uuid": f"MIG-{number}"} for number in range(7)],
        }
    ],
}
GRES = {"name": "gpu", "type": "h100_80gb_hbm3", "count": 1, "autodetect": "nvml", "mig": {"1g.10gb": 7}}


def honest(name: str) -> dict[str, Any]:
    """What a host says that has a platform of the collection and GPUs with MIG, and lacks everything else."""
    host = {
        "distribution": "debian 13",
        "codename": "trixie",
        "hostname": name,
        "container": "none",
        "memory_mib": 2000,
        "nvidia_gpus": 1,
        "imex_channels": None,
        "slurm_version": "24.11.5-4",
        "slurm": {"installed": "", "candidate": "24.11.5-4", "state_protocol": 0},
        "packages": {},
        "unheld": [],
        "candidates": {"apptainer": "1.4.5-3"},
        "mirror": "http://mirror.example.org/debian/",
        "interrupted": False,
        "serving_controller": "",
        "jobs": {},
        "out_of_service": None,
        "host_key": "",
        "sshd": "",
        "known_hosts": [],
        "people": "",
        "directory": {"checksum": "", "unknown": 0},
        "hidden": {},
        "lacks_filesystems": [],
        "storage": "",
        "firewall": "",
        "backup": "",
        "clocks": {},
        "applied": {},
        "users": {},
        "taken_ids": {},
        "paths": {},
        "directories": {"differ": {}, "refused": []},
        "free_mib": {},
        "read_only": [],
        "other_addresses": {},
        "files": {},
        "programs": {},
        "scripts": {},
        "part": "",
        "clusters": {"found": [], "daemons": []},
        "state_version": 0,
        "cloud_init": {"writes_hosts": "", "own_name": False},
        "ufw": None,
        "profiles": {},
        "kernel": {},
        "namespaces": {
            "max_user_namespaces": 65536,
            "unprivileged_userns_clone": 1,
            "apparmor_restrict_unprivileged_userns": 1,
        },
    }
    said = {"rc": 0, "stdout": "", "stderr": ""}
    return {
        "slurm_host_facts": {
            "ansible_facts": {"slurm_host": host, "slurm_hardware": HARDWARE},
            "differences": [],
            "time": 0,
            "clock_offset": 0.0,
        },
        "slurm_hardware_facts": {"ansible_facts": {"slurm_hardware": HARDWARE}, "differences": []},
        "slurm_packages": {
            "installed": [],
            "held": {},
            "files": [],
            "plugins": [{"path": "/usr/lib/spank_pyxis.so", "sha256": "0" * 64}],
            "diff": [],
        },
        "slurm_service": {"files": [], "actions": [], "reason": "", "proof": "MUNGE:AwQFAAA=:", "diff": []},
        "slurm_files": {"files": [], "diff": []},
        "slurm_run": {"others": [], "shared": False, "controllers": {}},
        "slurm_config": {
            "plan": [],
            "table": [],
            "actions": ["start"],
            "read_at_start": "SlurmdPort=6818",
            "unproven": [],
            "in_force": {"slurm.conf": "ClusterName=x\n"},
            "in_force_bytes": {},
            "listed": "",
            "serial": "",
            "kept_hosts": [],
            "absent": [],
            "remarks": [],
            "diff": [],
        },
        "slurm_job": {"jobs": [], "accounting": False},
        "slurm_node": {"plan": [], "diff": {"before": "", "after": ""}},
        "nvidia_mig": {"driver": True, "commands": [], "gpus": {}, "diff": {"before": "", "after": ""}},
        "nvidia_driver": {
            "reason": "",
            "generations": ["hopper"],
            "branch": "550",
            "modules": "open",
            "version": "550.163.01",
            "packages": [],
            "pending": False,
            "disruptive": False,
            "reboot": [],
            "remarks": [],
            "diff": [],
        },
        "command": said,
    }


class Hosts:
    """Hosts in a directory, with a cluster file beside them."""

    def __init__(self, directory: Path, cluster: dict[str, Any], hosts: Mapping[str, Answers]) -> None:
        self.directory = directory
        directory.mkdir()
        self.file = directory / "x.cluster.yml"
        self.file.write_text(yaml.safe_dump(cluster))
        for name, answers in hosts.items():
            place = directory / "hosts" / name
            place.mkdir(parents=True)
            (place / "python").write_text(PYTHON)
            (place / "python").chmod(0o755)
            for module, answer in answers.items():
                text = answer if isinstance(answer, str) else json.dumps({"changed": False, **answer})
                (place / f"{module}.json").write_text(text)
        variables = {
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": f"{directory}/hosts/{{{{ inventory_hostname }}}}/python",
        }
        (directory / "group_vars").mkdir()
        (directory / "group_vars/slurm_cluster.yml").write_text(yaml.safe_dump(variables))
        # Ansible's own defaults: not those of this checkout, with which no fact becomes a variable.
        (directory / "ansible.cfg").write_text("")

    def run(self, playbook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook on them."""
        with self.start(playbook, *arguments) as process:
            try:
                output, errors = process.communicate(timeout=900)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def start(self, playbook: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a run of a playbook on them."""
        return subprocess.Popen(
            [str(Path(sys.executable).parent / "ansible-playbook"), playbook, "-i", str(self.file), *arguments],
            env=environment(
                ANSIBLE_CONFIG=str(self.directory / "ansible.cfg"),
                ANSIBLE_CALLBACKS_ENABLED="gpucluster.slurm.packed_modules",  # two thirds of the time
                ANSIBLE_FORKS="6",
                ANSIBLE_PIPELINING="True",  # half of the time
                NO_COLOR="1",
            ),
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def asked(self, name: str, module: str) -> str:
        """The module that a host was given last, with its arguments; empty if it was not asked."""
        path = self.directory / "hosts" / name / f"asked-{module}"
        return path.read_text() if path.exists() else ""
