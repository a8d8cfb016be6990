# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of hosts that somebody else controls: each one is refused with one short line, or becomes harmless."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict
from unittest.mock import Mock

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.variable_names import OWN_FACTS, ROLES
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import measurement, probe
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.formatting import visible
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.records import (
    CORES,
    Form,
    Pattern,
    Range,
    check_of,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.discovery import discover
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.answers import (
    DEPTH,
    FACTS_OF,
    NAMES,
    RECORDS,
    RESULTS,
    SOMETIMES,
    TEXT,
    checked,
    fact_problems,
    printed,
)
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.results.fact_records import GpuFact, HardwareFact
from registration_texts import check_registration
from strange_input import limits
from sysfs import Gpu, Machine

MODULES = Path(__file__).parents[4] / "plugins/modules"
Path_ = tuple[Any, ...]
TEMPLATE = "{{ lookup('pipe', 'touch /tmp/owned') }}"


def replaced(answer: Any, place: Path_, value: Any) -> Any:
    """The answer with another value at a place."""
    target = answer
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    return answer


def refusal(module: str, answer: Any, arguments: dict[str, Any] | None = None) -> str:
    """What is said of an answer that is refused, of which nothing else is taken."""
    taken = checked(module, answer, arguments)
    assert taken.keys() == {"failed", "msg"}
    assert taken["failed"] is True
    assert taken["msg"].isprintable()
    assert len(taken["msg"]) < 600
    message: str = taken["msg"].partition("Has somebody taken it over? ")[2]
    return message


# -- facts -----------------------------------------------------------------------------------------------------------


def honest(directory: Path) -> dict[str, Any]:
    """The facts of a host with a GPU, as the modules return them."""
    root = Machine(packages=2, memory_kb=4_194_304, gpus=(Gpu("0000:07:00.0", minor=0),)).write(directory)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/os-release").write_text("ID=debian\nVERSION_ID=13\nVERSION_CODENAME=trixie\n")
    hardware, _differences = measurement.measure(Mock(), sysroot=str(root))
    questions = probe.Questions(paths=["/etc"], files=["/etc/os-release"], users=["root"])
    host = probe.gather_facts(Tree(str(root)), lambda _command: "", questions)
    host["packages"] = {"munge": "0.5.16-1", "libpmix2t64": "5.0.7-1+b1"}
    return {"slurm_host": host, "slurm_hardware": hardware, "discovered_interpreter_python": "/usr/bin/python3"}


FACTS: list[tuple[str, Path_, Any]] = [
    ("a type that ends the file", ("slurm_hardware", "gpus", 0, "type"), "h100: {}\nnodes: []"),
    ("a type that is a template", ("slurm_hardware", "gpus", 0, "type"), "{{ lookup('pipe', 'id') }}"),
    ("a type in capital letters", ("slurm_hardware", "gpus", 0, "type"), "H100"),
    ("an empty type", ("slurm_hardware", "gpus", 0, "type"), ""),
    ("a type that is a list", ("slurm_hardware", "gpus", 0, "type"), ["h100"]),
    ("a model with an escape of the terminal", ("slurm_hardware", "gpus", 0, "model"), "\x1b]0;x\x07\x1b[2J"),
    ("a model of several lines", ("slurm_hardware", "gpus", 0, "model"), "H100\n# - {hosts: all}"),
    ("a model with a line separator", ("slurm_hardware", "gpus", 0, "model"), "H100\u2028x"),
    ("a very long model", ("slurm_hardware", "gpus", 0, "model"), "x" * 100_000),
    ("cores that are no list", ("slurm_hardware", "gpus", 0, "cores"), "0-3; reboot"),
    ("a PCI address with a path", ("slurm_hardware", "gpus", 0, "pci_address"), "../../etc/shadow"),
    ("a MIG profile with a quote", ("slurm_hardware", "gpus", 0, "mig"), [{"profile": "1g.10gb'", "uuid": "MIG-1"}]),
    ("a MIG instance without a profile", ("slurm_hardware", "gpus", 0, "mig"), [{"uuid": "MIG-1"}]),
    ("a GPU that is a text", ("slurm_hardware", "gpus", 0), "gpu"),
    ("GPUs that are a mapping", ("slurm_hardware", "gpus"), {"0": {}}),
    ("a hundred thousand GPUs", ("slurm_hardware", "gpus"), [{}] * 100_000),
    ("negative CPUs", ("slurm_hardware", "cpus"), -1),
    ("no CPUs", ("slurm_hardware", "cpus"), 0),
    ("more CPUs than there can be", ("slurm_hardware", "cpus"), 10**30),
    ("CPUs that are true", ("slurm_hardware", "cpus"), True),
    ("CPUs that are a text", ("slurm_hardware", "cpus"), "64"),
    ("half a CPU", ("slurm_hardware", "cpus"), 0.5),
    ("CPUs that are nested", ("slurm_hardware", "cpus"), {"cpus": {"cpus": 1}}),
    ("memory that is not a number", ("slurm_hardware", "real_memory"), float("nan")),
    ("memory without end", ("slurm_hardware", "real_memory"), float("inf")),
    ("negative memory", ("slurm_hardware", "real_memory"), -(2**63)),
    ("a device file with a newline", ("slurm_hardware", "device_files"), ["/dev/nvidia0\nGresTypes=x"]),
    ("a device file that is none", ("slurm_hardware", "device_files"), [None]),
    ("a fact that there is not", ("slurm_hardware", "owner"), "root"),
    ("many places at which a password could be", ("slurm_hardware", "cpus"), ["//" + ":" * 200_000]),
    ("hardware that is a text", ("slurm_hardware",), "none"),
    ("hardware that is null", ("slurm_hardware",), None),
    ("a host name with a command", ("slurm_host", "hostname"), "n1$(reboot)"),
    ("a host name of several lines", ("slurm_host", "hostname"), "n1\nfatal: [head]: FAILED!"),
    ("a distribution that is a template", ("slurm_host", "distribution"), "{{ 7 * 7 }}"),
    ("a release with an escape", ("slurm_host", "slurm_version"), "24.11\x1b[1A"),
    ("a mirror with an option of apt", ("slurm_host", "mirror"), "http://a/ [trusted=yes]"),
    ("a host key of several lines", ("slurm_host", "host_key"), "ssh-ed25519 AAAA\nhead ssh-ed25519 BBBB"),
    ("a known host with a command", ("slurm_host", "known_hosts"), ["head ssh-ed25519 AAAA $(reboot)"]),
    ("a way into sshd that there is not", ("slurm_host", "sshd"), "nobody"),
    ("a package that is a path", ("slurm_host", "packages"), {"../../x": "1"}),
    ("a user id that is a text", ("slurm_host", "users"), {"slurm": "0"}),
    ("a checksum that is short", ("slurm_host", "files"), {"/etc/x": "abc"}),
    ("clocks that are a list", ("slurm_host", "clocks"), ["chrony"]),
    ("a setting of the kernel that is a text", ("slurm_host", "namespaces", "max_user_namespaces"), "many"),
    ("an interrupted installation that is a text", ("slurm_host", "interrupted"), "no"),
    ("a variable of a role", ("munge_key_file",), "/root/.ssh/id_rsa"),
    ("a variable of Ansible", ("ansible_connection",), "local"),
    ("a name with an escape", ("\x1b[2J",), 1),
    ("cores that fill the memory", ("slurm_hardware", "gpus", 0, "cores"), "0-9999999999999"),
    ("cores without end", ("slurm_hardware", "gpus", 0, "cores"), "9" * 4000),
    ("more sockets than there can be", ("slurm_hardware", "sockets_per_board"), 65_536),
]


CLOCK = {"time": 1795525200.5, "clock_offset": 0.0}
"""What slurm_host_facts returns in addition to the facts."""


@pytest.fixture(scope="module")
def facts_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The facts of an honest host, as JSON: measuring takes a while."""
    return json.dumps(honest(tmp_path_factory.mktemp("host")))


@pytest.fixture
def facts(facts_text: str) -> Any:
    return json.loads(facts_text)


def test_an_honest_host_is_taken(facts: Any) -> None:
    answer = {"changed": False, "ansible_facts": facts, "differences": [], **CLOCK}
    assert checked("slurm_host_facts", answer, {"hardware": True}) == answer


@pytest.mark.parametrize(("place", "value"), [case[1:] for case in FACTS], ids=[case[0] for case in FACTS])
def test_hostile_facts_are_refused(place: Path_, value: Any, facts: Any) -> None:
    assert refusal("slurm_host_facts", {"ansible_facts": replaced(facts, place, value), **CLOCK})


@pytest.mark.parametrize("facts", [[], "text", 7, True])
def test_facts_that_are_no_mapping_are_refused(facts: Any) -> None:
    assert "allowed: a mapping" in refusal("slurm_host_facts", {"ansible_facts": facts})


def test_a_missing_fact_is_named(facts: Any) -> None:
    del facts["slurm_host"]["hostname"]
    del facts["slurm_hardware"]
    said = refusal("slurm_host_facts", {"ansible_facts": facts, **CLOCK}, {"hardware": "yes"})
    assert said == "slurm_hardware: is missing; slurm_host: hostname: is missing"
    assert refusal("slurm_hardware_facts", {"differences": []}) == "slurm_hardware: is missing"


def test_hardware_is_missing_only_where_it_was_asked_for(facts: Any) -> None:
    del facts["slurm_hardware"]
    assert "failed" not in checked("slurm_host_facts", {"ansible_facts": facts, **CLOCK}, {"hardware": "no"})


CLUSTER: dict[str, Any] = {
    "plugin": "gpucluster.slurm.cluster",
    "name": "x",
    "controllers": "head",
    "nodes": [{"hosts": "n[1-2]", "hardware": "detected", "CoreSpecCount": 1, "MemSpecLimit": 100}],
    "partitions": [{"name": "all", "nodes": "ALL"}],
}


def test_no_facts_that_are_taken_stop_the_control_host(facts: Any) -> None:
    """Whatever is allowed, discover and the check of all nodes end soon, and the cluster file can be read."""
    gpu = facts["slurm_hardware"]["gpus"][0]
    numbers: dict[str, list[Any]] = {
        "cpus": [2**20],
        "boards": [0, 3, 2**10],
        "sockets_per_board": [0, 2**10],
        "cores_per_socket": [0, 1, CORES],
        "threads_per_core": [0, 2**10],
        "real_memory": [None, 1, 2**43],
        "gpus": [
            [],
            [
                {**gpu, "minor": minor, "model": model, "type": kind, "cores": cores, "mig": mig}
                for minor, model, kind, cores, mig in itertools.product(
                    [None, 0, 2**20],
                    [None, "", "-", 'x: {{ 4 }} #"'],
                    [None, "gpu", "0"],
                    ["", f"0-{CORES - 1}", f"{CORES - 1}-0", f"{CORES - 1}"],
                    [[], [{"profile": "1g.10gb", "uuid": "MIG-1"}]],
                )
            ][:256],
        ],
    }
    declared = {"a": {"sockets": 1, "cores_per_socket": 1, "threads_per_core": 1, "real_memory": 1000,
                      "gres": [{"name": "gpu", "type": "h100", "count": 8, "autodetect": "nvml"}]}}  # fmt: skip
    for values in itertools.product(*numbers.values()):
        hardware = facts["slurm_hardware"] | dict(zip(numbers, values))
        taken = checked("slurm_hardware_facts", {"ansible_facts": {"slurm_hardware": hardware}, "differences": []})
        if "failed" in taken:
            continue
        measured = {"n1": hardware, "n2": facts["slurm_hardware"]}
        found = discover(measured, {}, ["n1", "n2"], [], CLUSTER["nodes"])
        assert all(text.isprintable() for text in found["notes"])
        assert found["nodes"][-1]["hosts"] in ("n2", "n[1-2]")
        nodes = [{key: node[key] for key in ("hosts", "hardware")} for node in found["nodes"]]
        load(Document("x.cluster.yml", CLUSTER), Document("x.hardware.yml", {**found, "notes": None, "nodes": nodes}))
        check_registration(measured, [{"hosts": "n[1-2]", "hardware": "a"}], declared, {})


@pytest.mark.parametrize(
    "name",
    [
        *("munge_key_file", "slurm_controllers", "slurm_hardware_file", "slurmd_x", "__slurm_controller"),
        *("pyxis_packages", "sftp_executable", "ansible_scp_executable", "control_path", "remote_tmp", "sudo_exe"),
    ],
)
def test_a_fact_that_is_a_variable_is_named(name: str, facts: Any) -> None:
    said = fact_problems("n1", {**facts, name: "/etc/shadow"})
    assert said.startswith(f"n1 returned a fact named {name}, which is a variable of this collection or of")


def test_a_fact_of_this_collection_that_another_module_has_replaced_is_refused(facts: Any) -> None:
    assert fact_problems("n1", facts) == ""
    said = fact_problems("n1", replaced(facts, ("slurm_host", "hostname"), "../x"))
    assert "n1 returned a wrong fact, slurm_host: hostname: found '../x'" in said


def test_facts_of_ansible_itself_are_taken() -> None:
    names = ["distribution", "hostname", "local", "packages", "services", "machine", "kernel", "user_id"]
    assert fact_problems("n1", dict.fromkeys(names, "x")) == ""


def test_a_fact_whose_name_is_not_printable_is_shown_as_one_line() -> None:
    assert fact_problems("n1", {"slurm_\x1b[2J\n": 1}).isprintable()


def test_the_prefixes_of_variables_are_those_of_the_roles() -> None:
    assert sorted(ROLES) == sorted(path.name for path in (MODULES.parents[1] / "roles").iterdir())
    assert {*OWN_FACTS} == {name for names in FACTS_OF.values() for name in names}


# -- results of this collection's modules ----------------------------------------------------------------------------


def returned(module: str) -> dict[str, Any]:
    """What the documentation of a module says that it returns; nothing of an internal one (stability.md)."""
    text = (MODULES / f"{module}.py").read_text().partition('RETURN = r"""')[2].partition('"""')[0]
    return yaml.safe_load(text) or {}


TEXTS = (
    *("n1", "/etc/x", "0", "0" * 64, "0644", "", "IDLE", "0000:01:00.0", "root:root 0644", "a: b", "h ssh-rsa AA=="),
    *("a=1", "passed", "amd", "open", "missing", "job", "no", "v2", "none"),
)
"""A text for each pattern of a type."""

FORMS = {Form.CORES: "0-3"}


def hints_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, localns=dict(NAMES), include_extras=True)


def allowed(kind: Any) -> Any:
    """A value that a type allows."""
    bounds = getattr(kind, "__metadata__", ())
    kind = kind.__origin__ if bounds else kind
    inner = get_args(kind)
    if is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return {name: allowed(hint) for name, hint in hints_of(kind).items()}
    if get_origin(kind) in (list, tuple, Sequence):
        return [allowed(inner[0])]
    if get_origin(kind) in (dict, Mapping):
        return {allowed(inner[0]): allowed(inner[1])}
    if inner:  # or null, or empty
        return allowed(inner[0])
    for bound in bounds:
        if isinstance(bound, Range):
            return bound.least
        if isinstance(bound, Pattern):
            return next(text for text in TEXTS if re.fullmatch(bound.pattern, text, re.ASCII))
        if isinstance(bound, Form):
            return FORMS.get(bound, "x")
    return kind is bool


def answer_of(module: str) -> dict[str, Any]:
    """An answer that the type of the module's result allows."""
    answer = {"changed": True} | {name: value for each in RECORDS[module] for name, value in allowed(each).items()}
    return {name: value for name, value in answer.items() if name in {"changed", *RESULTS[module]}}


def test_every_module_is_known() -> None:
    assert sorted(RESULTS) == sorted(path.stem for path in MODULES.glob("*.py"))


def test_every_module_has_an_action_that_checks_its_answer() -> None:
    modules = [path.stem for path in sorted(MODULES.glob("*.py"))]
    own = ("slurm_acceptance", "slurm_access", "slurm_host_facts", "slurm_removal", "slurm_rolling", "slurm_run")
    actions = dict.fromkeys(modules, "checked_answers") | {name: name for name in own}
    actions |= dict.fromkeys(("slurm_doctor_info", "slurm_doctor_node_info"), "host_clock")
    actions |= {"slurm_firewall": "slurm_access"}
    actions |= dict.fromkeys(("nvidia_driver", "slurm_packages", "slurm_service", "slurm_storage"), "image_options")
    routing = yaml.safe_load((MODULES.parents[1] / "meta/runtime.yml").read_text())["plugin_routing"]
    names = {old: {"redirect": f"gpucluster.slurm.{old}_info"} for old in ("slurm_doctor", "slurm_doctor_node")}
    assert routing == {
        "modules": names | {module: {"action_plugin": f"gpucluster.slurm.{actions[module]}"} for module in modules}
    }
    assert {*actions.values()} == {path.stem for path in MODULES.parent.glob("action/*.py")}
    for path in MODULES.parent.glob("action/*.py"):
        checks = re.search(r"class \w+\((Checked|Waiting)\):|import WithRun|as WithClock", path.read_text())
        assert path.stem == "checked_answers" or checks


@pytest.mark.parametrize("module", [module for module in RESULTS if returned(module)])
def test_what_is_documented_is_what_is_checked(module: str) -> None:
    documented = {name: value for name, value in returned(module).items() if name != "ansible_facts"}
    assert documented.keys() == RESULTS[module].keys()
    sometimes = {name for name, value in documented.items() if value["returned"] not in ("always", "success")}
    assert sometimes == SOMETIMES.get(module, set())


def test_the_documented_fields_of_the_hardware_are_those_of_its_record() -> None:
    documented = returned("slurm_hardware_facts")["ansible_facts"]["contains"]["slurm_hardware"]["contains"]
    assert documented.keys() == get_type_hints(HardwareFact).keys()
    assert documented["gpus"]["contains"].keys() <= get_type_hints(GpuFact).keys()


@pytest.mark.parametrize("kind", [int, str, Annotated[float, "of any size"], list[str], set[bool]])
def test_a_field_without_bounds_is_an_error_of_the_code(kind: Any) -> None:
    with pytest.raises(TypeError, match="has no bounds"):
        check_of(kind)


@pytest.mark.parametrize("module", RESULTS)
def test_an_honest_answer_is_taken(module: str, facts: Any) -> None:
    answer = answer_of(module)
    if module in ("slurm_host_facts", "slurm_hardware_facts"):
        answer["ansible_facts"] = {"slurm_hardware": facts["slurm_hardware"]}
        if module == "slurm_host_facts":
            answer["ansible_facts"]["slurm_host"] = facts["slurm_host"]
    assert checked(module, answer) == answer


@pytest.mark.parametrize(
    "module", [*RESULTS, "ansible.builtin.command", "ansible.builtin.stat", "ansible.builtin.copy"]
)
@pytest.mark.parametrize(
    "key",
    ["munge_key_file", "slurm_nodes", "ansible_sftp_executable", "ansible_control_path", "ansible_host", "groups"],
)
def test_no_module_makes_variables(module: str, key: str) -> None:
    """Also where it says that it has failed, or has done nothing: a task may go on all the same."""
    for more in ({}, {"failed": True}, {"skipped": True}, {"changed": False, "unreachable": True}):
        said = refusal(
            module, {**(answer_of(module) if module in RESULTS else {}), **more, "ansible_facts": {key: "x"}}
        )
        assert f"'{key}': is no fact of this module" in said


def test_only_the_modules_that_measure_return_facts(facts: Any) -> None:
    for module in RESULTS.keys() - {"slurm_host_facts", "slurm_hardware_facts"}:
        measured = {"slurm_hardware": facts["slurm_hardware"]}
        assert "is no fact of this module" in refusal(module, {**answer_of(module), "ansible_facts": measured})


RESULT: list[tuple[str, str, Path_, Any]] = [
    # Joined, grouped and sorted for all hosts of a play at once: the wrong type would be the failure of all.
    ("a reason that is a list", "nvidia_driver", ("reason",), ["no GPU"]),
    ("a reason that is a mapping", "nvidia_driver", ("reason",), {"x": 1}),
    ("a reason that is null", "nvidia_driver", ("reason",), None),
    ("a reason of several lines", "nvidia_driver", ("reason",), "x\nok: [head]"),
    ("a reason without end", "nvidia_driver", ("reason",), "x" * 10_000),
    ("remarks that are a text", "nvidia_driver", ("remarks",), "x"),
    ("a reboot that is true", "nvidia_driver", ("reboot",), True),
    ("packages with a number", "nvidia_driver", ("packages",), [7]),
    ("a choice that is a text", "nvidia_driver", ("disruptive",), "no"),
    ("a generation that is a path", "nvidia_driver", ("generations",), ["../../x"]),
    ("GPUs that are a list", "nvidia_mig", ("gpus",), ["0"]),
    ("a GPU that is negative", "nvidia_mig", ("gpus",), {"-1": "x"}),
    ("a GPU with a mapping", "nvidia_mig", ("gpus",), {"0": {}}),
    ("a driver that is a text", "nvidia_mig", ("driver",), "yes"),
    ("commands that are a text", "nvidia_mig", ("commands",), "reboot"),
    # Files of standby controllers.
    ("a file elsewhere", "slurm_config", ("in_force",), {"../../root/.ssh/authorized_keys": "x"}),
    ("a file with a path", "slurm_config", ("in_force",), {"/etc/cron.d/x": "x"}),
    ("a file with a newline in its name", "slurm_config", ("in_force",), {"slurm.conf\n/etc/x": "x"}),
    ("a hidden file", "slurm_config", ("in_force",), {".bashrc": "x"}),
    ("a file that is a mapping", "slurm_config", ("in_force",), {"slurm.conf": {"x": 1}}),
    ("files that are a list", "slurm_config", ("in_force",), ["slurm.conf"]),
    ("lines that are a list", "slurm_config", ("read_at_start",), ["x"]),
    ("an action that is a command", "slurm_config", ("actions",), ["start; reboot"]),
    ("a plan that is a text", "slurm_config", ("plan",), "nothing"),
    ("a change without a name", "slurm_config", ("plan",), [{"before": None, "after": None, "needs": "x", "ends": []}]),
    ("a change with more", "slurm_node", ("plan", 0, "run"), "x"),
    # Shown, and written into reports.
    ("nodes with a blank", "slurm_job", ("jobs", 0, "nodes"), "n1 -o ProxyCommand=x"),
    ("nodes that are a template", "slurm_job", ("jobs", 0, "nodes"), TEMPLATE),
    ("nodes that are a list", "slurm_job", ("jobs", 0, "nodes"), ["localhost"]),
    ("a state that there is not", "slurm_job", ("jobs", 0, "state"), "<b>"),
    ("a status that there is not", "slurm_job", ("jobs", 0, "status"), "skipped"),
    ("a job that is ok as a text", "slurm_job", ("jobs", 0, "ok"), "false"),
    ("a negative job", "slurm_job", ("jobs", 0, "job_id"), -1),
    ("a job that ran for ever", "slurm_job", ("jobs", 0, "elapsed"), float("inf")),
    ("a job that is a text", "slurm_job", ("jobs", 0), "x"),
    ("a name of several lines", "slurm_job", ("jobs", 0, "name"), "x\nPLAY RECAP"),
    ("a job without its message", "slurm_job", ("jobs",), [{"name": "x"}]),
    ("jobs that are a mapping", "slurm_job", ("jobs",), {"0": {}}),
    ("accounting that is a number", "slurm_job", ("accounting",), 1),
    ("a proof that is a mapping", "slurm_service", ("proof",), {"x": 1}),
    ("a proof that is a number", "slurm_service", ("proof",), 7),
    ("an action with a blank", "slurm_service", ("actions",), ["restart munge"]),
    ("a change that is a text", "slurm_service", ("changed",), "yes"),
    ("a failure that is a text", "slurm_service", ("failed",), "no"),
    ("files that are a text", "slurm_packages", ("files",), "/etc/x"),
    ("plugins that are numbers", "slurm_packages", ("plugins",), [1]),
    ("a plugin that is a template", "slurm_packages", ("plugins", 0, "path"), TEMPLATE),
    ("a mount without a guard", "slurm_state_directory", ("mount",), {"point": "/"}),
    ("a file with a blank", "slurm_state_directory", ("file",), "-rf /"),
    ("a line that is a list", "slurm_spank_plugin", ("former_line",), ["x"]),
    ("two lines", "slurm_spank_plugin", ("former_line",), "x\ny"),
    ("a package that is a mapping", "slurm_packages", ("installed",), [{}]),
    ("files that are null", "slurm_files", ("files",), None),
    ("a difference that is a text", "slurm_hardware_facts", ("differences",), ["x"]),
    ("a difference as a text", "slurm_hardware_facts", ("differences", 0, "measured"), "many"),
    ("a table that is a text", "slurm_accounting", ("table",), "x"),
    ("what is kept, as a number", "slurm_accounting", ("kept",), 3),
    ("a policy that is a list", "slurm_accounting_info", ("policy",), []),
    ("an exit status that is a text", "ansible.builtin.command", ("rc",), "0"),
    ("output that is a list", "ansible.builtin.command", ("stdout",), ["x"]),
    ("output that is a number", "ansible.builtin.command", ("stdout",), 7),
    ("errors that are a mapping", "ansible.builtin.shell", ("stderr",), {}),
    ("warnings that are a text", "ansible.builtin.command", ("warnings",), "x"),
    # What Ansible takes from any module.
    ("statistics that end the run", "ansible.builtin.command", ("ansible_stats",), "data"),
    ("statistics of another", "slurm_service", ("ansible_stats",), {"data": {"slurm_validation": {"ok": True}}}),
    ("facts that are a list", "ansible.builtin.stat", ("ansible_facts",), ["x"]),
    ("facts with a number as name", "ansible.builtin.stat", ("ansible_facts",), {7: 1}),
    ("a number as key", "ansible.builtin.stat", (7,), 1),
    ("what is no JSON", "ansible.builtin.stat", ("stat",), {1, 2}),
    ("too much text", "ansible.builtin.command", ("stdout",), "x" * (TEXT + 1)),
    ("too many numbers", "ansible.builtin.command", ("more",), [0] * (TEXT // 16)),
]


@pytest.mark.parametrize(("module", "place", "value"), [case[1:] for case in RESULT], ids=[case[0] for case in RESULT])
def test_hostile_results_are_refused(module: str, place: Path_, value: Any) -> None:
    assert refusal(module, replaced(answer_of(module) if module in RESULTS else {}, place, value))


@pytest.mark.parametrize("answer", [None, [], "text", 7, True])
def test_answers_that_are_no_mapping_are_refused(answer: Any) -> None:
    assert "allowed: a mapping" in refusal("slurm_files", answer)


@pytest.mark.parametrize("module", [name for name in RESULTS if RESULTS[name]])
def test_a_missing_key_is_named_unless_the_module_failed(module: str) -> None:
    missing = (
        next(name for name in RESULTS[module] if name not in SOMETIMES.get(module, ()))
        if module != "slurm_host_facts"
        else "slurm_host"
    )
    answer = answer_of(module)
    answer.pop(missing, None)
    assert f"{missing}: is missing" in refusal(module, answer)
    assert checked(module, {"failed": True, "msg": "x"}) == {"failed": True, "msg": "x"}


def test_what_is_nested_too_deep_is_refused() -> None:
    answer: Any = "x"
    for _level in range(DEPTH + 1):
        answer = [answer]
    assert "nested" in refusal("ansible.builtin.stat", {"stat": answer})


def test_what_is_not_documented_is_left_out() -> None:
    answer = answer_of("slurm_files")
    assert checked("slurm_files", {**answer, "add_host": {"host_name": "x"}, "other": TEMPLATE}) == answer


# -- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b[H", r"\x1b[2J\x1b[H"),
        ("\x1b]52;c;ZWNobyBvd25lZA==\x07", r"\x1b]52;c;ZWNobyBvd25lZA==\x07"),
        ("\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\", "\\x1b]8;;http://x\\x1b\\here\\x1b]8;;\\x1b\\"),
        ("\x9b2J", r"\x9b2J"),
        ("right\rwrong\b", r"right\rwrong\x08"),
        ("a\x00b\x7f", r"a\x00b\x7f"),
        ("\u202emoc.elpmaxe\u2066", r"\u202emoc.elpmaxe\u2066"),
        ("a\u2028b\x85c\x0bd\x0ce", r"a\u2028b\x85c\x0bd\x0ce"),
        ("\ud800", r"\ud800"),
        ("gr\u00fcn \u2713\t1\n", "gr\u00fcn \u2713\t1\n"),
    ],
)
def test_a_terminal_obeys_nothing(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "advice",
    [
        "start with '-i' to ignore this. Warning: using -i will lose the data that can't be recovered.",
        "start with '-i' to ignore this",
        "Start with '-i' to ignore this error and kill the afflicted jobs.",
        "Remove /var/lib/slurm/clustername to override this safety check if this is intentional (e.g., the ClusterName "
        "has changed).",
    ],
)
def test_advice_that_loses_jobs_is_not_repeated(advice: str) -> None:
    """A message of slurmctld's log, in any answer of any host; the content of a file stays as it is."""
    said = f"fatal: Can not recover job state, incompatible version, got 11520 need <= 10752, {advice}\nnext line"
    answer = {"changed": False, "failed": True, "msg": said, "table": [said]}
    found = checked("slurm_config", answer)
    for text in (found["msg"], found["table"][0]):
        assert "got 11520 need <= 10752, [Slurm's advice is left out: it loses jobs]" in text
        assert "-i" not in text
        assert "Remove" not in text
        assert "next line" in text
    assert checked("slurm_config", {**answer, "in_force": {"a.conf": said}})["in_force"] == {"a.conf": said}


def test_texts_are_visible_wherever_they_are() -> None:
    answer = {"failed": True, "msg": "\x1b[1m", "stat": {"\x1b[2m": ["\x1b[3m"]}, "stdout": "a\x85b\u2028c\nd\x1b[4m"}
    taken = checked("ansible.builtin.stat", {**answer, "stdout_lines": {"x": 1}, "stderr_lines": ["x"]})
    assert "\x1b" not in str(taken).replace("\\x1b", "")
    assert taken["stdout_lines"] == [r"a\x85b\u2028c", r"d\x1b[4m"]
    assert taken["stat"] == {r"\x1b[2m": [r"\x1b[3m"]}


def test_what_is_printed_is_visible_before_ansible_reads_it() -> None:
    answer = {"msg": "a\x1b[2J\nok: [head]", "warnings": [{"event": {"msg": "x\r\nok: [head]"}}], "stdout": "1\n2\x1b"}
    text = printed(f"banner \x1b[2J\n  {json.dumps(answer)}\nafter\nok: [head]\x1b[2J\n")
    before, result, after, nothing = text.splitlines() + [""] * (3 - text.count("\n"))
    assert (before, after, nothing) == (r"banner \x1b[2J", r"after ok: [head]\x1b[2J", "")
    assert json.loads(result) == {
        "msg": "a\\x1b[2J\n  ok: [head]",
        "warnings": [{"event": {"msg": "x\\r\n  ok: [head]"}}],
        "stdout": "1\n2\\x1b",
    }


@pytest.mark.parametrize("text", ["{", "x\n{'a': 1}\x1b", "[" * 5000, '{"a": ' * 5000, "\x1b\n/tmp/x\n", ""])
def test_what_is_printed_and_no_result_is_visible(text: str) -> None:
    assert printed(text) == visible(text)


@pytest.mark.parametrize("text", ["\n", " \n", " ", "\r", "\t\n\n", "{\n", "}\n", '"', "\\", "\x1b[", "9"], ids=ascii)
def test_much_of_one_text_is_read_once(text: str) -> None:
    """A search that begins again at each line would take hours for it."""
    with limits():
        printed(text * 2**17)


def test_what_is_printed_without_end_is_not_read() -> None:
    said = "An answer with more than 16777216 characters or 1048576 values"
    assert printed("{" + " " * TEXT + "}") == said
    # These would take 14 times as much memory as their text.
    assert printed('{"x": [' + "[]," * (1 << 20) + "0]}") == said


def test_a_long_text_of_a_host_does_not_fill_the_output() -> None:
    taken = checked("slurm_files", {"failed": True, "msg": "x" * 200_000, "module_stdout": "y" * 200_000})
    assert taken["msg"] == "x" * 100_000 + " ... (200000 characters)"
    assert len(taken["module_stdout"]) < 101_000


def test_messages_cannot_look_like_the_lines_of_a_run() -> None:
    """With the types of Ansible's own messages, which are data classes."""

    @dataclasses.dataclass(frozen=True)
    class Event:
        msg: str
        events: tuple[Any, ...] = ()

    @dataclasses.dataclass(frozen=True)
    class Warned:
        event: Event

    said = "x\r\nok: [head]\nPLAY RECAP ****"
    shown = "x\\r\n  ok: [head]\n  PLAY RECAP ****"
    warned = Warned(Event(said, (Event(said),)))
    taken = checked("slurm_files", {"failed": True, "msg": said, "warnings": [said, warned], "exception": warned})
    harmless = Warned(Event(shown, (Event(shown),)))
    assert taken == {"failed": True, "msg": shown, "warnings": [shown, harmless], "exception": harmless}


def test_of_a_diff_only_that_is_taken_which_is_shown_as_one() -> None:
    answer = answer_of("slurm_files")
    diff = [{"before": "a\x1b[2J\n", "after": "", "before_header": "x", "prepared": "ok: [head]\n"}, "text", None]
    taken = checked("slurm_files", {**answer, "diff": diff})
    assert taken["diff"] == [{"before": "a\\x1b[2J\n", "after": "", "before_header": "x"}]
    assert checked("slurm_files", {**answer, "diff": "\x1b[2J"})["diff"] == []


def test_templates_stay_texts() -> None:
    """Ansible evaluates none that come from a module; here they are not even another type."""
    taken = checked("ansible.builtin.command", {"changed": False, "stdout": TEMPLATE, "rc": 0})
    assert taken["stdout"] == TEMPLATE
    assert taken["stdout_lines"] == [TEMPLATE]
