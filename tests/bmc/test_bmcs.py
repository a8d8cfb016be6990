# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm-machine with BMCs that speak IPMI and Redfish: OpenIPMI's ipmi_sim, and the emulator of sushy-tools.

slurm-machine runs as site.yml installs it, with the packages of each release of Debian, in a container that has the
network of this machine. scontrol and squeue are stand-ins there. `make bmc` makes the environment of the emulator.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import machines
from ansible_collections.gpucluster.slurm.plugins.module_utils.machines import machine_settings
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from plain_host import cluster

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".cache/bmc/environment/bin"
PACKAGES = "python3,ipmitool,openipmi,python3-sushy,ca-certificates"
RELEASES = ("bookworm", "trixie")

USER, PASSWORD = "operator", "s3cret#w0rd-123"

DRAINED, IN_SERVICE = "IDLE+DRAIN", "IDLE"
PATIENCE = 60.0
"""Seconds until a machine has changed its state. The emulator takes up to 11 s."""
LIMIT = 2 * machine_settings.SECONDS
"""Seconds of a command at most, with the start of the program, for which a busy machine takes long."""

SCONTROL = """#!/bin/sh
echo "NodeName=n1 State=$(cat /state) Reason=broken [root@2026-01-01T00:00:00]"
"""
SQUEUE = """#!/bin/sh
cat /jobs
"""

LAN = """name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "/bmc/chassis 0x20"
  user 2 true "{user}" "{password}" operator 10 none md2 md5 straight
"""
MCS = """mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""
CHASSIS = """#!/bin/sh
# ipmi_sim calls it with `ADDRESS get NAME...` or `ADDRESS set NAME VALUE...`.
shift
order=$1
shift
while [ $# -gt 0 ]; do
  case $order in
    get)
      if [ "$1" = power ]; then echo "power:$(cat /bmc/power)"; else echo "$1:0"; fi
      shift ;;
    set)
      echo "$1 $2" >> /bmc/orders
      if [ "$1" = power ]; then echo "$2" > /bmc/power; fi
      if [ "$1" = shutdown ]; then echo 0 > /bmc/power; fi
      shift 2 ;;
  esac
done
"""

HASH = "import bcrypt, sys; print(bcrypt.hashpw(sys.argv[1].encode(), bcrypt.gensalt(4)).decode())"
"""Prints what the emulator keeps of a password."""


@dataclass(frozen=True)
class Controller:
    """A container with slurm-machine."""

    root: Path

    def command(self, *command: str) -> list[str]:
        """A command that runs there, with all that it starts."""
        proc = f"--mount-proc={self.root}/proc"
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", proc, "chroot", str(self.root), *command]

    def machine(self, *words: str) -> tuple[int, str, str]:
        """The exit status, the output and the errors of slurm-machine."""
        variables = {
            "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "https_proxy": "http://127.0.0.1:9",
        }
        command = self.command("/usr/local/sbin/slurm-machine", *words)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def wait(self, state: str) -> None:
        """Wait until the machine has a state."""
        end = time.monotonic() + PATIENCE
        while (said := self.machine("state", "n1")) != (0, state, "") and time.monotonic() < end:
            time.sleep(1)
        assert said == (0, state, "")

    def slurm(self, state: str, jobs: Sequence[int] = ()) -> None:
        """What slurmctld says of the node."""
        self.write("/state", state)
        self.write("/jobs", "".join(f"{job}\x1fRUNNING\x1fn1\x1f1\x1f1\x1fanna\x1e\n" for job in jobs))

    def write(self, path: str, text: str | bytes, mode: int = 0o644, owner: str = "root") -> None:
        """Write a file."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        number = int(subprocess.check_output(["chroot", self.root, "id", "-u", owner]))
        os.chown(file, number, 0)
        file.chmod(mode)

    def install(self, key: dict[str, Any], password: str = PASSWORD, ca: bytes = b"") -> None:
        """Install slurm-machine as site.yml does with a value of the key `machines`. ca: the file ca.pem."""
        contents = {"/cluster/ca.pem": ca}
        contents["/cluster/secrets/x/machines_password"] = f"{password}\n".encode()
        host = cluster(contents, slurm_machines=key)["head"]
        shutil.rmtree(self.root / machine_settings.DIRECTORY.lstrip("/"), ignore_errors=True)
        for file in machines.files(host):
            content = base64.b64decode(file["secret"]) if "secret" in file else file["content"].encode()
            self.write(file["path"], content, int(file.get("mode", "0644"), 8), file.get("owner", "root"))


@pytest.fixture(scope="module", params=RELEASES, name="controller")
def a_controller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """A controller with the packages of a release of Debian."""
    root = tmp_path_factory.mktemp(request.param) / "root"
    paths = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
    options = ["--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io", *paths, f"--include={PACKAGES}"]
    subprocess.run(["mmdebstrap", *options, request.param, root], check=True)
    subprocess.run(["chroot", root, "useradd", "--system", "slurm"], check=True)
    found = Controller(root)
    for name, text in (("scontrol", SCONTROL), ("squeue", SQUEUE)):
        found.write(f"/usr/local/bin/{name}", text, 0o755)
    found.slurm(DRAINED)
    yield found
    shutil.rmtree(root)


def free_port(kind: socket.SocketKind) -> int:
    """A port on which nothing listens now."""
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(command: Sequence[str | Path]) -> Iterator[None]:
    """A program runs meanwhile."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()  # unshare ignores SIGTERM, and ends its children with itself


# -- IPMI ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="ipmi")
def a_bmc_with_ipmi(controller: Controller) -> Iterator[dict[str, Any]]:
    """The value of the key for a BMC that speaks IPMI."""
    port = free_port(socket.SOCK_DGRAM)
    controller.write("/bmc/lan.conf", LAN.format(port=port, user=USER, password=PASSWORD))
    controller.write("/bmc/mcs", MCS)
    controller.write("/bmc/chassis", CHASSIS, 0o755)
    controller.write("/bmc/power", "0\n")
    (controller.root / "bmc/state").mkdir()
    options = ["-n", "-c", "/bmc/lan.conf", "-f", "/bmc/mcs", "-s", "/bmc/state"]
    with running(controller.command("ipmi_sim", *options)):
        yield {"by": "ipmi", "address": "{host}-bmc", "addresses": {"n1": f"127.0.0.1:{port}"}, "user": USER}


def orders(controller: Controller) -> list[str]:
    """What the BMC was told since the last call."""
    file = controller.root / "bmc/orders"
    said = file.read_text().split("\n")[:-1] if file.exists() else []
    file.unlink(missing_ok=True)
    return said


def test_ipmi_starts_and_stops_a_machine(controller: Controller, ipmi: dict[str, Any]) -> None:
    """ipmi_sim does not tell its cipher suites, for which ipmitool waits 10 s in each command."""
    controller.install(ipmi)
    for order, told, state in (
        ("start", ["power 1"], "on"),
        ("start", [], "on"),
        ("stop", ["shutdown 1"], "off"),
        ("off", [], "off"),
    ):
        assert controller.machine(order, "n1") == (0, "", "")
        assert orders(controller) == told
        assert controller.machine("state", "n1") == (0, state, "")
    controller.write("/bmc/power", "1\n")
    assert controller.machine("off", "n1") == (0, "", "")
    assert orders(controller) == ["power 0"]


def test_a_node_that_serves_is_not_stopped(controller: Controller, ipmi: dict[str, Any]) -> None:
    controller.install(ipmi)
    controller.write("/bmc/power", "1\n")
    for order in ("stop", "off"):
        controller.slurm(IN_SERVICE)
        assert controller.machine(order, "n1") == (1, "", "slurm-machine: n1: it is in service: drain it first")
        controller.slurm(DRAINED, [7])
        assert controller.machine(order, "n1") == (1, "", "slurm-machine: n1: it has 1 jobs: 7")
        controller.slurm(DRAINED)
    assert orders(controller) == []


def test_ipmi_with_another_password(controller: Controller, ipmi: dict[str, Any]) -> None:
    controller.install(ipmi, "another")
    status, output, errors = controller.machine("state", "n1")
    assert (status, output) == (1, "")
    assert errors.startswith("slurm-machine: n1: ipmitool: Error: Unable to establish IPMI v2 / RMCP+ session")
    assert "another" not in errors


def test_a_silent_bmc_with_ipmi(controller: Controller, ipmi: dict[str, Any]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        controller.install({**ipmi, "addresses": {"n1": address}})
        begin = time.monotonic()
        status, _output, errors = controller.machine("start", "n1")
        assert status == 1
        assert errors.startswith("slurm-machine: n1: ipmitool: ")
        assert time.monotonic() - begin < LIMIT


# -- Redfish ---------------------------------------------------------------------------------------------------------


def certificate() -> tuple[bytes, bytes]:
    """A certificate of this machine's own address, signed by itself, and its key, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bmc")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    signed = made.add_extension(address, False).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return signed.public_bytes(serialization.Encoding.PEM), private


@dataclass(frozen=True)
class RedfishBmc:
    """A BMC that runs."""

    key: dict[str, Any]
    """The value of the key for it."""
    ca: bytes


@contextmanager
def redfish_bmc(directory: Path, systems: int = 1) -> Iterator[RedfishBmc]:
    """A BMC that speaks Redfish."""
    port = free_port(socket.SOCK_STREAM)
    public, private = certificate()
    (directory / "tls.crt").write_bytes(public)
    (directory / "tls.key").write_bytes(private)
    password = subprocess.check_output([ENVIRONMENT / "python", "-c", HASH, PASSWORD], text=True)
    (directory / "users").write_text(f"{USER}:{password}")
    found = [
        {"uuid": f"27946b59-9e44-4fa7-8e91-f3527a1ef09{number}", "name": f"s{number}", "power_state": "Off", "nics": []}
        for number in range(systems)
    ]
    settings = {
        "SUSHY_EMULATOR_LISTEN_IP": "127.0.0.1",
        "SUSHY_EMULATOR_LISTEN_PORT": port,
        "SUSHY_EMULATOR_SSL_CERT": str(directory / "tls.crt"),
        "SUSHY_EMULATOR_SSL_KEY": str(directory / "tls.key"),
        "SUSHY_EMULATOR_AUTH_FILE": str(directory / "users"),
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_FAKE_SYSTEMS": found,
        "SUSHY_EMULATOR_STATE_DIR": str(directory),
    }
    (directory / "settings.py").write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    with running([ENVIRONMENT / "sushy-emulator", "--config", directory / "settings.py"]):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        address = {"address": "{host}-bmc", "addresses": {"n1": f"127.0.0.1:{port}"}, "user": USER}
        yield RedfishBmc({"by": "redfish", **address}, public)


@pytest.fixture(scope="module", name="redfish")
def a_bmc_with_redfish(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedfishBmc]:
    """A BMC with one system."""
    with redfish_bmc(tmp_path_factory.mktemp("redfish")) as bmc:
        yield bmc


def test_redfish_starts_and_stops_a_machine(controller: Controller, redfish: RedfishBmc) -> None:
    controller.install({**redfish.key, "ca": "ca.pem"}, ca=redfish.ca)
    controller.wait("off")
    for order in ("stop", "off"):
        assert controller.machine("start", "n1") == (0, "", "")
        controller.wait("on")
        assert controller.machine("start", "n1") == (0, "", "")
        assert controller.machine(order, "n1") == (0, "", "")
        controller.wait("off")
        assert controller.machine(order, "n1") == (0, "", "")


def test_a_certificate_that_nobody_has_signed(controller: Controller, redfish: RedfishBmc) -> None:
    controller.install(redfish.key)
    status, output, errors = controller.machine("state", "n1")
    assert (status, output) == (1, "")
    assert "CERTIFICATE_VERIFY_FAILED" in errors
    assert len(errors.split("\n")) == 1
    controller.install({**redfish.key, "ca": "ca.pem"}, ca=certificate()[0])
    assert "CERTIFICATE_VERIFY_FAILED" in controller.machine("state", "n1")[2]
    controller.install({**redfish.key, "verify": False})
    assert controller.machine("state", "n1") == (0, "off", "")


def test_redfish_with_another_password(controller: Controller, redfish: RedfishBmc) -> None:
    controller.install({**redfish.key, "verify": False}, "another")
    status, output, errors = controller.machine("state", "n1")
    assert (status, output) == (1, "")
    assert "401" in errors
    assert "another" not in errors
    assert len(errors.split("\n")) == 1


def test_a_bmc_with_several_systems(controller: Controller, tmp_path: Path) -> None:
    with redfish_bmc(tmp_path, systems=2) as bmc:
        controller.install({**bmc.key, "verify": False})
        said = "slurm-machine: n1: the BMC has 2 systems, allowed: one; with several use by: program"
        assert controller.machine("state", "n1") == (1, "", said)


def test_a_silent_bmc_with_redfish(controller: Controller, redfish: RedfishBmc) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        controller.install({**redfish.key, "addresses": {"n1": f"127.0.0.1:{silent.getsockname()[1]}"}})
        begin = time.monotonic()
        assert controller.machine("state", "n1") == (1, "", "slurm-machine: n1: no answer within 60 s")
        assert time.monotonic() - begin < LIMIT


# -- what others see -------------------------------------------------------------------------------------------------


def test_nobody_else_reads_the_password(controller: Controller, ipmi: dict[str, Any]) -> None:
    controller.install(ipmi)
    password = f"stat --format='%U %a' {machine_settings.PASSWORD}"
    assert subprocess.check_output(["chroot", controller.root, "sh", "-c", password], text=True).strip() == "slurm 400"
    settings = (controller.root / machine_settings.SETTINGS.lstrip("/")).read_text()
    assert json.loads(settings)["user"] == USER
    assert PASSWORD not in settings
    for user, status in (("nobody", 1), ("slurm", 0)):
        as_user = ["setpriv", f"--reuid={user}", "--regid=65534", "--clear-groups"]
        command = controller.command(*as_user, "/usr/local/sbin/slurm-machine", "state", "n1")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, PASSWORD in done.stderr) == (status, False)
