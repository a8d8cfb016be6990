# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user's program does with a client that openapi-python-client has generated from slurmrestd's document.

The package `slurm_client` is in PYTHONPATH. Prints what was answered to each request, by its name, as JSON.

usage: client.py URL CERTIFICATE VERSION <TOKENS    TOKENS: {"alice": ..., "bob": ..., any name for one that is refused}
"""

from __future__ import annotations

import json
import ssl
import sys
import time
from importlib import import_module
from typing import Any


class Client:
    """The generated client with a token."""

    def __init__(self, url: str, certificate: str, version: str, token: str) -> None:
        generated = import_module("slurm_client")
        context = ssl.create_default_context(cafile=certificate)
        self.client = generated.AuthenticatedClient(base_url=url, token=token, verify_ssl=context, timeout=60)
        self.version = version.replace(".", "")

    def ask(self, function: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Call a generated function, such as `slurm.get_jobs`; return the status and what the classes understood."""
        interface, name = function.split(".")
        module = import_module(f"slurm_client.api.{interface}.{interface}_{self.version}_{name}")
        answer = module.sync_detailed(*arguments, client=self.client, **options)
        return {"http": int(answer.status_code), **answer.parsed.to_dict()}

    def submit(self, job: dict[str, Any]) -> dict[str, Any]:
        """Submit a job, as an object of the generated class."""
        models = import_module("slurm_client.models")
        request = getattr(models, f"{self.version.capitalize()}JobSubmitReq").from_dict({"job": job})
        return self.ask("slurm.post_job_submit", body=request)


def main(url: str, certificate: str, version: str) -> None:
    """Ask."""
    tokens = json.load(sys.stdin)
    clients = {name: Client(url, certificate, version, token) for name, token in tokens.items()}
    alice, bob = clients.pop("alice"), clients.pop("bob")
    job = {"name": "generated", "current_working_directory": "/tmp", "environment": ["PATH=/usr/bin:/bin"]}
    said = {"submit": alice.submit({**job, "script": "#!/bin/sh\nsleep 600\n", "standard_output": "/dev/null"})}
    number = str(said["submit"]["job_id"])
    said["read"] = alice.ask("slurm.get_job", number)
    said["jobs of bob"] = bob.ask("slurm.get_jobs")
    said["cancel by bob"] = bob.ask("slurm.delete_job", number)
    said["read again"] = alice.ask("slurm.get_job", number)
    said["cancel"] = alice.ask("slurm.delete_job", number)
    said["nodes"] = alice.ask("slurm.get_nodes")
    said["associations"] = alice.ask("slurmdb.get_associations")
    end = time.monotonic() + 60
    # slurmctld sends slurmdbd the end of a job a moment later.
    while time.monotonic() < end:
        said["accounting"] = alice.ask("slurmdb.get_job", number)
        if said["accounting"]["jobs"] and said["accounting"]["jobs"][0]["state"]["current"] == ["CANCELLED"]:
            break
        time.sleep(1)
    for name, client in clients.items():
        said[name] = client.ask("slurm.get_jobs")
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
