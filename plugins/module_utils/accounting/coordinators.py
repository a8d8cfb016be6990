# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The coordinators of an account who were named for it, without those who follow from something else.

slurmdbd answers with both (`as_mysql_user_create_user_coords_list` in `src/plugins/accounting_storage/mysql`; 22.05:
`_get_account_coords`): a coordinator of an account is one of all accounts in it, and since 24.05 all users of an
account with the flag UsersAreCoords are. Only those who were named can be removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Set


def named_coordinators(
    shown: Mapping[str, Set[str]], parents: Mapping[str, str], members: Mapping[str, Set[str]]
) -> dict[str, set[str]]:
    """Those who were named, by account. Somebody who was named for an account above as well counts for that alone.

    Args:
        shown: all coordinators by account, as slurmdbd has them.
        parents: the account that each account is in.
        members: the users of the accounts in which all users are coordinators.
    """
    found = {}
    for account, names in shown.items():
        following = {*members.get(account, ())}
        for above in _accounts_above(account, parents):
            following |= shown.get(above, set()) | members.get(above, set())
        found[account] = {*names} - following
    return found


def _accounts_above(account: str, parents: Mapping[str, str]) -> list[str]:
    """The accounts that an account is in."""
    above: list[str] = []
    while (account := parents.get(account, "")) and account not in above:
        above.append(account)
    return above
