# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The relay of the lab: a mail server (aiosmtpd) with one mailbox, a Maildir.

Port 25 takes every mail. Port 587 takes a mail after STARTTLS and a login only.

usage: mail_server.py MAILDIR CERTIFICATE KEY USER PASSWORD_FILE
"""

from __future__ import annotations

import ssl
import sys
import threading
from pathlib import Path

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Mailbox
from aiosmtpd.smtp import AuthResult, LoginPassword


def main() -> None:
    """Serve for ever."""
    maildir, certificate, key, user, password_file = sys.argv[1:]
    known = (user.encode(), Path(password_file).read_bytes().strip())

    def authenticator(*given: object) -> AuthResult:
        data = given[-1]
        right = isinstance(data, LoginPassword) and (data.login, data.password) == known
        return AuthResult(success=right)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    Controller(Mailbox(maildir), hostname="0.0.0.0", port=25).start()
    Controller(
        Mailbox(maildir),
        hostname="0.0.0.0",
        port=587,
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=authenticator,
    ).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
