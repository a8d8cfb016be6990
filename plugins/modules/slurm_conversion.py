#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_conversion
short_description: Convert slurmdbd's database to another release of Slurm, save it before, or take the conversion back
description:
  - Runs on the host of slurmdbd and MariaDB. With V(saved), slurmdbd is installed and is about to start. With the other
    states, the slurmdbd of the new release is not installed yet. It is unpacked in O(unpacked), and runs in the
    foreground with a network of its own, where slurmctld cannot reach it.
  - While the database is between two releases, slurmdbd is masked, so that nothing starts it. The module records
    what it has done in C(/var/lib/gpucluster-slurm/upgrade/state.json). With this record, the next run repairs what a
    run that was killed has left.
  - Until O(state=open), every failure restores the database from its dump and starts the previous slurmdbd.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_conversion]
"""

EXAMPLES = r"""
- name: Refuse a slurmdbd that would convert the database
  gpucluster.slurm.slurm_conversion: {state: saved, conf: "{{ text }}"}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import json
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import run
from ..module_utils.configuration.conf_file import Configuration, read
from ..module_utils.configuration.parameter_values import LOCAL
from ..module_utils.configuration.release_order import PACKAGE_SOURCE
from ..module_utils.configuration.upgrade import parts, tables_release
from ..module_utils.controller.conversion import ConversionError, Database, convert, end_conversion
from ..module_utils.controller.daemons import ConfigError, Slurmdbd, check_database
from ..module_utils.controller.release_overlay import OverlayError
from ..module_utils.host.files import File, FileError, write
from ..module_utils.host.journal import read_start_failure
from ..module_utils.host.json_files import Record
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option, switch

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import ConversionResult

KEPT = "/var/lib/gpucluster-slurm/upgrade"
RECORD = f"{KEPT}/state.json"
LOCK_SECONDS = 600
"""The time limit for a conversion of a killed run. A longer one is named, because it can take hours."""

MIB_PER_SECOND = 10
"""How much of a database a second converts (docs/admin/upgrade.md has a measurement)."""

# What a conversion has reached, in order (`step` of the record).
DUMPING = "dumping"
CONVERTING = "converting"
CONVERTED = "converted"
OPEN = "open"


class Conversion:
    """The work of the module."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.conf: str = module.params["conf"]
        self.daemon = Slurmdbd(module)
        self.version: str = module.params["version"] or self.daemon.version()
        self.configuration: Configuration = read({Slurmdbd.conf: self.conf})
        self.local = self.setting("StorageHost", "localhost") in LOCAL
        if not self.local and module.params["state"] != "saved":
            host = self.setting("StorageHost", "")
            raise ConversionError(f"StorageHost: found '{host}', allowed for an upgrade: localhost, with MariaDB there")
        name, user = self.setting("StorageLoc", "slurm_acct_db"), self.setting("StorageUser", "root")
        self.user = self.setting("SlurmUser", "root")
        self.database = Database(name, user, module.params["socket"])
        self.record = self.read_record()
        self.messages: list[str] = []

    def setting(self, key: str, default: str) -> str:
        """A parameter of slurmdbd.conf."""
        return self.configuration.settings.get((Slurmdbd.conf, key.lower()), ("", default))[1]

    def read_record(self) -> Record:
        """The record; empty if there is none."""
        try:
            with open(RECORD, encoding="utf-8") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {}

    def write_record(self, step: str, **more: Any) -> None:
        """Record that a step is reached."""
        self.record = {"to": self.version, "dump": self.dump, **self.record, **more, "step": step}
        write([File(RECORD, (json.dumps(self.record, indent=1) + "\n").encode(), mode=0o600)])

    @property
    def dump(self) -> str:
        """The path of the dump."""
        return str(self.record.get("dump", f"{KEPT}/{self.database.name}-before-{self.version}.sql"))

    def result(self, changed: bool, size: int = 0) -> ConversionResult:
        """The result of the module."""
        dump = self.dump if os.path.exists(self.dump) else ""
        seconds = self.record.get("seconds", 0)
        return {"changed": changed, "seconds": seconds, "size": size, "dump": dump, "remarks": self.messages}

    def work(self) -> ConversionResult:
        """Reach the wanted state."""
        state = self.module.params["state"]
        if state == "saved":
            return self.save()
        os.makedirs(KEPT, mode=0o700, exist_ok=True)
        if state == "tried":
            return self.convert_copy()
        if self.module.check_mode:
            return self.result(changed=True)
        work = {"converted": self.convert_database, "former": self.go_back, "open": self.unmask, "ended": self.forget}
        return work[state]()

    def save(self) -> ConversionResult:
        """Refuse a conversion by the slurmdbd that is installed, or dump the database before it."""
        if not self.local:
            return self.result(changed=False)
        check_database(self.version, self.configuration)
        release, name = self.database.release(), self.database.name
        if not release or release >= tables_release(parts(self.version)[0]):
            return self.result(changed=False)
        if not self.module.params["convert"]:
            raise ConversionError(
                f"The database {name} was not changed. It is one of Slurm {release}, and slurmdbd {self.version} would "
                "convert it when it starts. Run gpucluster.slurm.upgrade, which saves it before, or, if a restore has "
                "put it back, gpucluster.slurm.restore with -e backup_convert=true. To keep the release: "
                f"{PACKAGE_SOURCE.format(release=release)}"
            )
        os.makedirs(KEPT, mode=0o700, exist_ok=True)
        size = self.database.check_room(KEPT)
        if not self.module.check_mode:
            self.systemctl("stop", "slurmdbd")  # one of the earlier release may still run, and take records
            self.database.dump(self.dump)
        self.messages.append(
            f"slurmdbd {self.version} converts the database {name} of Slurm {release} ({size} MiB) when it starts, in "
            f"about {max(1, size // MIB_PER_SECOND)} s. Its dump before that is {self.dump}"
        )
        return self.result(changed=True, size=size)

    def convert_copy(self) -> ConversionResult:
        """Convert a copy, unless a killed run has already begun to convert the database."""
        if self.record:
            return self.result(changed=False)
        size = self.database.check_room(KEPT)
        scratch, dump = f"{self.database.name}_upgrade", f"{KEPT}/trial.sql"
        try:
            self.database.drop(scratch)
            self.database.dump(dump)
            self.database.load(dump, scratch)
            self.database.allow(scratch, True)
            seconds = self.convert(scratch)
        finally:
            end_conversion()
            self.database.drop(scratch)
            for path in (dump, f"{dump}.new"):
                with suppress(FileNotFoundError):
                    os.unlink(path)
        return {**self.result(changed=False, size=size), "seconds": seconds}

    def convert(self, name: str) -> int:
        """Convert a database; the seconds that it took."""
        return convert(self.module.params["unpacked"], self.conf, name, self.user)

    def convert_database(self) -> ConversionResult:
        """Convert the database, or restore it."""
        step = self.record.get("step")
        if step in (CONVERTED, OPEN):
            return self.result(changed=False)
        end_conversion()
        try:
            if step == CONVERTING:
                self.database.load(self.dump, self.database.name)
                self.messages.append("A conversion had been interrupted; the database was restored from its dump first")
            else:
                self.write_record(DUMPING)
                self.systemctl("stop", "slurmdbd")
                self.systemctl("mask", "slurmdbd")
                self.database.dump(self.dump)
            self.write_record(CONVERTING)
            self.write_record(CONVERTED, seconds=self.convert(self.database.name))
        except (ConversionError, OverlayError, FileError, OSError) as error:
            raise ConversionError(f"{error}\n{self.restore()}") from None
        return self.result(changed=True)

    def go_back(self) -> ConversionResult:
        """Go back, unless the previous release is gone."""
        if not self.record:
            return self.result(changed=False)
        package = run(["dpkg-query", "--search", "/usr/sbin/slurmdbd"]).output.partition(":")[0]
        shown = run(["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", package]).output
        if (
            self.record["step"] == OPEN
            or shown in ("", f"installed {self.version}")
            or not shown.startswith("installed ")
        ):
            raise ConversionError(
                f"slurmdbd cannot go back to the previous release (its package now: {shown or 'none'}), so there is "
                "only the way forward: run the upgrade again"
            )
        self.messages.append(self.restore())
        return self.result(changed=True)

    def restore(self) -> str:
        """Restore the database, and start the previous slurmdbd. Returns the outcome as a message."""
        end_conversion()
        try:
            if self.record.get("step") in (CONVERTING, CONVERTED):
                self.database.load(self.dump, self.database.name)
                self.write_record(DUMPING)  # from now on it has new records, so this dump must not be loaded again
            self.systemctl("unmask", "slurmdbd")
            self.systemctl("start", "slurmdbd")
            self.daemon.wait(self.configuration)
        except (ConversionError, ConfigError, FileError, OSError) as error:
            return (
                f"The database and slurmdbd are not restored: {error}. Its dump is {self.dump}; run the upgrade again."
            )
        self.forget()
        return "The previous slurmdbd serves again, with its own database; no package was changed."

    def unmask(self) -> ConversionResult:
        """Unmask slurmdbd."""
        masked = run(["systemctl", "is-enabled", "slurmdbd"]).output.strip() == "masked"
        if masked:
            self.write_record(OPEN)
            self.systemctl("unmask", "slurmdbd")
        return self.result(changed=masked)

    def forget(self) -> ConversionResult:
        """Remove the record."""
        with suppress(FileNotFoundError):
            os.unlink(RECORD)
        changed, self.record = bool(self.record), {}
        return self.result(changed=changed)

    def systemctl(self, *arguments: str) -> None:
        """Run systemctl. Raises ConversionError."""
        answer = run(["systemctl", *arguments], seconds=900)
        if answer.status:
            log = read_start_failure(arguments[-1], answer.message, 8) if arguments[0] == "start" else ""
            raise ConversionError(f"systemctl {' '.join(arguments)} failed: {answer.message}\n{log}".strip())


ARGUMENTS = {
    "state": option(
        "V(saved) compares the database with the slurmdbd that is installed. If that would convert it when it starts, "
        "the module fails, or with O(convert) stops slurmdbd, dumps the database and keeps the dump. A database on "
        "another host is not looked at.\n"
        "V(tried) dumps the database, loads the dump into a scratch database, and converts that. It is done in check "
        "mode as well. Nothing is stopped, and slurmdbd's own database is only read.\n"
        "V(converted) stops slurmdbd, dumps its database, and converts it. The dump is kept.\n"
        "V(former) restores the database from this dump and starts the previous slurmdbd, if that is still "
        "installed.\n"
        "V(open) lets the new slurmdbd start, after its packages have been installed. There is no way back from then "
        "on.\n"
        "V(ended) removes the record. The dump is kept.",
        choices=["saved", "tried", "converted", "former", "open", "ended"],
        required=True,
    ),
    "version": option(
        "The version of Slurm's packages that is unpacked. It names the dump. V(saved) does not need it."
    ),
    "unpacked": option("Directory with the packages of the new release. V(saved) does not need it.", "path"),
    "convert": switch("Whether the slurmdbd that is installed may convert the database."),
    "conf": option("The text of slurmdbd.conf. It can include a file with the password.", required=True),
    "socket": option("MariaDB's socket.", "path", default="/run/mysqld/mysqld.sock"),
    "patience": option("Seconds to wait for the previous slurmdbd.", "int", default=120),
}


def main() -> None:
    # A connection that is lost must not end the work in the middle.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    unpacked = ["version", "unpacked"]
    run_module(
        lambda module: Conversion(module).work(),
        ARGUMENTS,
        lock=("conversion", LOCK_SECONDS),
        required_if=[("state", state, unpacked) for state in ("tried", "converted", "former", "open", "ended")],
    )


if __name__ == "__main__":
    main()
