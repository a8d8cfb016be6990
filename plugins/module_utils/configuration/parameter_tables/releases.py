# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases that the tables of this folder are about, and those since which something is otherwise.

A new release of Slurm is added here, in the tables next to this file, and in `docs/design/parameters.md`.
"""

from __future__ import annotations

RELEASES = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
"""The releases that the tables are about, in order. A later one is taken for the last of them."""

SCRIPTS_REPEATED = "24.05"
"""The first release that takes several Prolog, Epilog and the like, and runs all of them."""

SCRIPTS_SENT = "23.11"
"""The first release whose slurmctld sends the nodes a Prolog or Epilog (`new_config_response`)."""

RECONFIGURE_RESTARTS = "23.11"
"""The first release whose reconfigure starts the daemons anew (`parameters.py`)."""

NONE_IN_ANY_CASE = "23.11"
"""The first release that takes `None` for the plugin `none` (`choices.py` has the parameters)."""

GRES_SOCKETS = "24.11"
"""The first release that sets nodes down if the Cores of gres.conf are a part of a socket."""

GRES_ONE_SOCKET = "25.11"
"""The first release that sets nodes down if they are neither one socket nor all cores."""

CONFIGLESS_IPV6 = "24.11"
"""The first release whose hosts get their files from a controller by IPv6 (`_init_minimal_conf_server_config`)."""

FUNCTIONS_OF_NODES = "24.11"
"""The first release with functions in lists of nodes, such as `switch{s1}`."""

NO_NORMAL_APART = "25.11.1"
"""The first patch release that shows which of the PriorityFlags NO_NORMAL_... are set; those before show one as all
(`priority_flags_string`)."""

TAKES_THREE_BEFORE = "24.11"
"""The first release that takes the state, the database and the daemons of the three releases before it; earlier ones
take those of the two before (RELEASE_NOTES of each release, and https://slurm.schedmd.com/upgrades.html)."""

CONVERTS_WITHIN = {"23.11": 5}
"""The first patch release that converts the database of earlier ones of its release (CONVERT_VERSION in
src/plugins/accounting_storage/mysql/as_mysql_convert.c of all patch releases up to 26.05.3; the tables' fields are the
same within a release)."""

DATABASE_COLUMNS = {
    "23.02": "failed_node",
    "23.11": "lineage",
    "24.05": "std_err",
    "24.11": "qos_req",
    "25.05": "segment_size",
    "26.05": "sluid",
}
"""A column that the tables of jobs or of associations have since a release, for each release that changes them, which
25.11 does not (job_table_fields and assoc_table_fields in
src/plugins/accounting_storage/mysql/accounting_storage_mysql.c). slurmdbd adds and removes columns when it starts; the
number in convert_version_table is the same from 24.11 to 26.05."""

FIRST_PROTOCOL = 38
"""The upper byte of the protocol version of the first of RELEASES. Each later release has the next number
(SLURM_22_05_PROTOCOL_VERSION and the following ones in src/common/slurm_protocol_common.h)."""
