# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a token with which Prometheus reads the metrics of slurmctld for a day.

usage: slurm-metrics-token

slurmctld accepts it on its pages alone, by the key of SlurmctldHttpAuthParameters. A timer writes a new one each hour.
"""

from __future__ import annotations

import os
import pwd
import time

import jwt

KEY = "/etc/gpucluster-slurm/slurmctld_http.key"
TOKEN = "/etc/gpucluster-slurm/prometheus/slurmctld.token"
USER = "prometheus"
DAY = 86400


def make_token(key: bytes, now: float) -> str:
    """A token for the user, valid for a day."""
    claims = {"sun": USER, "iat": int(now), "exp": int(now) + DAY}
    return str(jwt.encode(claims, key, algorithm="HS256"))


def write(path: str, text: str, owner: str) -> None:
    """Replace a file that its owner alone can read."""
    account = pwd.getpwnam(owner)
    new = f"{path}.new"
    if os.path.lexists(new):
        os.unlink(new)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    try:
        os.write(file, text.encode())
        os.fchown(file, account.pw_uid, account.pw_gid)
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(new, path)


def main() -> None:
    with open(KEY, "rb") as file:
        key = file.read()
    write(TOKEN, make_token(key, time.time()), USER)


if __name__ == "__main__":
    main()
