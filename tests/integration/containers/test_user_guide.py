# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/user/guide.md, word for word: its files are written, its commands are run by a normal user, and what it shows
after a command is what the command prints. Sections with enroot and pyxis need their packages (fixture real).

The tests run in this order. nvidia-smi is a stand-in, and so are the GPUs (gpus.py).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from debs import as_user
from lab import ROOT, Lab

pytestmark = pytest.mark.usefixtures("images")

BLOCK = re.compile(r"^```(\S+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS_PACKAGES = re.compile(r"enroot |--container-|sbuild[.]sh|nvcrlogin")
# What depends on the host: srun waits where nodes are not free at once, apptainer tells which tools there are not.
NOISE = re.compile(
    r"^(srun: job \d+ (queued and waiting for|has been allocated) resources|INFO: +\S+ not found, will not .*)\n",
    re.MULTILINE,
)


@dataclass
class Step:
    """A command of the text; the lines typed into it, where it is a shell; and the lines that are shown after it."""

    command: str
    typed: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    @property
    def script(self) -> str:
        """What a shell runs: the command, with a terminal where it asks for one."""
        if not self.typed:
            return self.command
        lines = " ".join(map(shlex.quote, self.typed))
        return f"printf '%s\\n' {lines} | script --quiet --return --command {shlex.quote(self.command)} /dev/null"

    def matches(self, printed: str) -> bool:
        """Whether that is what the text shows. A terminal also has prompts and what is typed: lines are looked for."""
        if self.typed:
            return set(self.shown) <= set(printed.replace("\r", "").splitlines())
        lines = (re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in self.shown)
        pattern = "".join("(.*\n)*" if line == ".*\n" else line for line in lines)
        return re.fullmatch(pattern, NOISE.sub("", printed)) is not None


@dataclass(frozen=True)
class Section:
    """A part of the text with commands: its title, its files by their names and its commands, and whether it needs the
    packages of enroot and pyxis."""

    title: str
    files: dict[str, str]
    steps: list[Step]
    needs_packages: bool


def read_steps(block: str) -> Iterator[Step]:
    """The commands of a block of the text. A line after a command that begins with another prompt is typed into it."""
    step: Step | None = None
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            if step:
                yield step
            step = Step(line[2:])
        elif step and "--pty" in step.command and (typed := re.fullmatch(r"\S+[$#] (.*)", line)):
            step.typed.append(typed[1])
        else:
            assert step, f"no command before {line!r}"
            step.shown.append(line)
    if step:
        yield step


def read_guide(text: str) -> Iterator[Section]:
    """The sections of the text that have commands."""
    for part in text.split("\n## ")[1:]:
        blocks = BLOCK.findall(part)
        files = {name: body for _language, name, body in blocks if name}
        steps = [step for _language, name, body in blocks if not name for step in read_steps(body)]
        if steps:
            everything = "".join([*files.values(), *(step.command + "\n" for step in steps)])
            yield Section(part.partition("\n")[0], files, steps, bool(NEEDS_PACKAGES.search(everything)))


GUIDE = list(read_guide((ROOT / "docs/user/guide.md").read_text()))


@pytest.fixture(scope="module", autouse=True)
def user(lab: Lab) -> Iterator[None]:
    """A directory of alice with the files of the text, and a key."""
    as_user(lab, "mkdir guide; umask 077; echo nvapi-not-a-real-key >ngc-key")
    for section in GUIDE:
        for name, text in section.files.items():
            lab.script("front", f"runuser -u alice tee /home/alice/guide/{name} >/dev/null", text.encode())
    yield
    as_user(lab, "rm -rf guide ngc-key .cache .config .local .apptainer .parallel")


def follow(lab: Lab, section: Section) -> None:
    """Do what a section says, and check what is printed."""
    script = "".join(f"printf '\\002'; {step.script}\nprintf '\\003%s' $?\n" for step in section.steps)
    said = as_user(lab, f"exec 2>&1; cd guide; timeout 300 bash -c {shlex.quote(script)}")
    for step, printed in zip(section.steps, said.split("\002")[1:], strict=True):
        output, status = printed.rsplit("\003", 1)
        assert (status, step.matches(output)) == ("0", True), f"$ {step.command}\n{output}"


@pytest.mark.parametrize("section", [s for s in GUIDE if not s.needs_packages], ids=lambda section: section.title)
def test_the_guide(lab: Lab, section: Section) -> None:
    follow(lab, section)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("section", [s for s in GUIDE if s.needs_packages], ids=lambda section: section.title)
def test_the_guide_to_enroot(lab: Lab, section: Section) -> None:
    follow(lab, section)


def test_the_guide_is_read_as_a_whole() -> None:
    """A block that the tests do not know would not be run."""
    text = (ROOT / "docs/user/guide.md").read_text()
    kinds = [(language, bool(name)) for language, name, _body in BLOCK.findall(text)]
    assert len(kinds) == text.count("\n```") / 2
    assert set(kinds) == {("console", False), ("bash", True)}
