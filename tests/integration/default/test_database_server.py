# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A database server of others: MariaDB with TLS on the login host, which no playbook installs.

The last test gives the cluster its own MariaDB again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from lab import Lab, with_cluster

pytestmark = pytest.mark.rare

SERVER = "10.213.7.11"
PASSWORD = "right-password"
INSTALL = f"""
set -eu; export DEBIAN_FRONTEND=noninteractive
apt-get update -qq; apt-get install -y -qq mariadb-server openssl >/dev/null
mkdir -p /etc/mysql/tls; cd /etc/mysql/tls
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout ca.key -out ca.pem -subj "/CN=CA of the site"
openssl req -newkey rsa:2048 -nodes -keyout key.pem -out server.csr -subj "/CN=db"
printf 'subjectAltName=IP:{SERVER}\\n' >ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile ext -out server.pem
chown -R mysql .
printf '[mariadbd]\\nbind-address=0.0.0.0\\ninnodb_snapshot_isolation=OFF\\nssl_ca=%s\\nssl_cert=%s\\nssl_key=%s\\n' \
    $PWD/ca.pem $PWD/server.pem $PWD/key.pem >/etc/mysql/mariadb.conf.d/99-site.cnf
systemctl restart mariadb
"""
REMOVE = """
export DEBIAN_FRONTEND=noninteractive
apt-get purge -y -qq mariadb-server mariadb-server-core >/dev/null
rm -rf /etc/mysql/tls /etc/mysql/mariadb.conf.d/99-site.cnf /var/lib/mysql
"""


@pytest.fixture(name="other", scope="module")
def lab_with_a_server_of_others(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("server")
    lab.command("login1", INSTALL)
    (directory / "ca.pem").write_text(lab.command("login1", "cat /etc/mysql/tls/ca.pem"))
    secrets = directory / "secrets"
    shutil.copytree(lab.inventory.parent / "secrets/demo", secrets)
    server = {"host": SERVER, "user": "slurm_site", "name": "site_db", "ca": "ca.pem"}
    cluster = lab.cluster | {"database_server": server}
    yield with_cluster(lab, directory, cluster, slurm_secrets_dir=str(secrets))
    lab.command("login1", REMOVE)


def set_password(other: Lab, password: str) -> None:
    """Give the control host the password of the server."""
    (other.inventory.parent / "secrets/slurmdbd_storage_pass").write_text(f"{password}\n")


def refusal(other: Lab) -> str:
    """Why a run stops, on the database host, before anything changes."""
    run = other.playbook("site")
    assert run.rc != 0
    assert run.changed == {}
    ((host, (message,)),) = run.failed.items()
    assert host == "head"
    assert f"database server {SERVER}, port 3306, user slurm_site: " in message
    return str(message)


def test_a_refusal_has_the_statements_that_make_the_user(other: Lab) -> None:
    set_password(other, PASSWORD)
    message = refusal(other)
    assert "Host 'head' is not allowed to connect" in message  # the server knows the name of this address
    assert "GRANT ALL PRIVILEGES ON `site_db`.* TO 'slurm_site'@'head';" in message
    assert PASSWORD not in message
    statements = "\n".join(line for line in message.split("\n") if line.endswith(";"))
    other.command("login1", f"mariadb <<'SQL'\n{statements.replace('PASSWORD', PASSWORD)}\nSQL")


def test_a_wrong_password_is_refused_before_anything_changes(other: Lab) -> None:
    set_password(other, "wrong-password")
    message = refusal(other)
    assert "Access denied for user 'slurm_site'@'head' (using password: YES)" in message
    assert "wrong-password" not in message


def test_jobs_are_in_this_database(other: Lab) -> None:
    set_password(other, PASSWORD)
    run = other.playbook("site")
    assert (run.rc, run.failed) == (0, {})
    number = other.command("login1", "timeout 60 sbatch --parsable --wait --wrap=true").strip()
    found = "SELECT COUNT(*) FROM site_db.demo_job_table WHERE id_job ="
    other.wait_for("login1", f"mariadb --skip-column-names --execute='{found} {number}'", "1", 60)
    assert f"{number}|COMPLETED" in other.command("login1", "timeout 60 sacct -a -X -n -P -o jobid,state")
    run = other.playbook("site", "--skip-tags", "validate")
    assert (run.rc, run.failed, run.changed) == (0, {}, {})


def test_the_cluster_gets_its_own_database_again(lab: Lab, other: Lab) -> None:
    assert other.inventory != lab.inventory
    run = lab.playbook("site")
    assert (run.rc, run.failed) == (0, {})
    assert "StorageHost=localhost" in lab.command("head", "cat /etc/slurm/slurmdbd.conf")
