# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The relay of the scenario: a real mail server on another host, whose mailbox the tests read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import Lab

CONTROLLER, RELAY = "prep-ctl", "prep-node2"
MAILDIR = "/srv/mail"
PASSWORD = "correct horse 4711"
SERVER = Path(__file__).parent / "mail_server.py"


@contextmanager
def mail_server(lab: Lab) -> Iterator[None]:
    """The mail server. Its certificate is one that the controller trusts."""
    lab.command(RELAY, "apt-get install -qy python3-aiosmtpd openssl >/dev/null && mkdir -p /srv")
    lab.script(RELAY, "cat >/srv/server.py", SERVER.read_bytes())
    lab.script(RELAY, "cat >/srv/password", PASSWORD.encode())
    certificate = (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={RELAY} -addext subjectAltName=DNS:{RELAY} "
        "-keyout /srv/key.pem -out /srv/certificate.pem 2>/dev/null"
    )
    lab.command(RELAY, certificate)
    lab.command(
        RELAY,
        "systemd-run --quiet --unit=mail-server python3 /srv/server.py "
        f"{MAILDIR} /srv/certificate.pem /srv/key.pem cluster /srv/password",
    )
    lab.script(
        CONTROLLER,
        "cat >/usr/local/share/ca-certificates/relay.crt && update-ca-certificates >/dev/null 2>&1",
        lab.command(RELAY, "cat /srv/certificate.pem").encode(),
    )
    lab.wait_for(RELAY, "ss -tln", ":587", 30)
    yield
    lab.command(RELAY, "systemctl stop mail-server")
