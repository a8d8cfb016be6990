# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On hosts of the lab: Python keeps the compiled sources of zip archives, which hold Ansible's modules.

Python keeps none itself (zipimport). The hosts of a site have nothing like this, so the benchmark removes this file.
"""

from __future__ import annotations

import marshal
import os
import sys
import zipimport
from hashlib import sha256
from types import CodeType

KEPT = "/var/cache/lab-bytecode"

compile_source = zipimport._compile_source  # type: ignore[attr-defined]


def compile_once(path: str, source: bytes) -> CodeType:
    """The code of a source, from an earlier process if there was one. Its name in tracebacks is the first path."""
    file = f"{KEPT}/{sys.implementation.cache_tag}-{sha256(source).hexdigest()}"
    try:
        with open(file, "rb") as stream:
            code: CodeType = marshal.loads(stream.read())
            return code
    except (OSError, ValueError, EOFError):
        code = compile_source(path, source)
    try:
        with open(f"{file}.{os.getpid()}-{os.uname().nodename}", "wb") as stream:
            stream.write(marshal.dumps(code))
        os.rename(stream.name, file)
    except OSError:
        pass  # a user may not write there
    return code


zipimport._compile_source = compile_once  # type: ignore[attr-defined]
