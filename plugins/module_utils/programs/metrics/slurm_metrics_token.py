# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm-metrics-token: writes a token with which Prometheus reads the metrics of slurmctld for a day.

slurmctld accepts it on its pages alone, by the key of SlurmctldHttpAuthParameters. A timer writes a new one each hour.
"""

from __future__ import annotations

import pwd
import time

try:
    import jwt
except ImportError:  # The host of Prometheus has it; a host that lacks it only stores this file.
    jwt = None  # type: ignore[assignment]

from ...host.replacing import replace

KEY = "/etc/gpucluster-slurm/slurmctld_http.key"
TOKEN = "/etc/gpucluster-slurm/prometheus/slurmctld.token"
USER = "prometheus"
DAY = 86400


def make_token(key: bytes, now: float) -> str:
    """A token for the user, valid for a day."""
    claims = {"sun": USER, "iat": int(now), "exp": int(now) + DAY}
    return str(jwt.encode(claims, key, algorithm="HS256"))


def main() -> int:
    """Write the token, which its user alone can read."""
    account = pwd.getpwnam(USER)
    with open(KEY, "rb") as file:
        token = make_token(file.read(), time.time())
    replace(TOKEN, token.encode(), 0o400, (account.pw_uid, account.pw_gid))
    return 0
