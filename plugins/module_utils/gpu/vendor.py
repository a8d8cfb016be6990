# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection asks about the GPUs of a vendor, and has to know of them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..hardware.sysfs import Tree

if TYPE_CHECKING:
    from ...plugin_utils.results.fact_records import GpuFact

Ask = Callable[..., "str | None"]
"""Runs a program with arguments; its output, or None if it is not installed or fails."""
Warn = Callable[[str], None]


class GpuVendor(ABC):
    """A vendor of GPUs: how a machine with its GPUs is measured, and what Slurm makes of them."""

    name: ClassVar[str]
    file_prefix: ClassVar[str]
    """The device file of a GPU, which a number follows."""
    first_number: ClassVar[int]
    """The lowest of these numbers."""
    methods: ClassVar[tuple[str, ...]]
    """Values of AutoDetect that find these GPUs."""
    types_are_known: ClassVar[bool]
    """Whether the type that AutoDetect gives a GPU follows from its model."""
    environment: ClassVar[str]
    """The variable by which a job knows its GPUs."""
    environment_flag: ClassVar[str]
    """The flag in gres.conf that sets this variable."""
    file_flags: ClassVar[tuple[str, ...]] = ()
    """Flags of measured GPUs that are given by their files."""
    list_command: ClassVar[tuple[str, ...]] = ()
    """The command that lists the GPUs which work; without one, the health of these GPUs is not checked."""

    screens: ClassVar[str] = "(?!)"
    """A pattern of the models of adapters that are for a screen alone."""

    @abstractmethod
    def find(self, tree: Tree) -> list[str]:
        """The PCI addresses of the machine's GPUs."""

    @abstractmethod
    def read(self, tree: Tree, cores: Sequence[int], ask: Ask | None, warn: Warn, /) -> list[GpuFact]:
        """The machine's GPUs in the order of their device files.

        Args:
            tree: the machine's files.
            cores: the CPUs of each core, in the order of Slurm's core indexes.
            ask: asks the vendor's programs; None where the files are not those of this host.
            warn: takes what is odd about an answer.
        """

    def detected_names(self, gpu: Mapping[str, Any]) -> list[str]:
        """The types that AutoDetect gives what it finds of a GPU of a known model."""
        return [detected_name(gpu["model"])]

    def read_list(self, status: int, output: str) -> tuple[str, int]:
        """The error of `list_command`, empty without one, and the GPUs that it lists."""
        raise NotImplementedError(f"{self.name}: no list_command")

    def is_for_screens(self, model: str) -> bool:
        """Whether a GPU of this model is for a screen alone."""
        return re.fullmatch(self.screens, model) is not None

    def file_of(self, number: int) -> str:
        """The device file of the GPU with this number, the fact `minor`."""
        return f"{self.file_prefix}{number}"

    def has_file(self, path: str) -> bool:
        """Whether a device file is that of a GPU."""
        return re.fullmatch(rf"{re.escape(self.file_prefix)}[0-9]+", path) is not None

    def has_entry(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry of gres names these GPUs, by its AutoDetect or its files."""
        if "autodetect" in entry:
            return entry["autodetect"] in self.methods
        return str(entry.get("file", "")).startswith(self.file_prefix)


def gres_type(model: str, plain: Collection[str], variants: Collection[str]) -> str:
    """The name for Gres that a model gives: "NVIDIA A100-SXM4-80GB" is a100, "NVIDIA GeForce RTX 4090" is rtx4090.

    It is the first word with a digit. A number alone takes the words before it that do not name the maker or a line of
    products (rtx4090, rtxpro6000), and then the words after it that make another model (rtx3080ti, rtx6000ada). A
    model without a digit is all its words (titanv); one that says nothing is a gpu.

    Args:
        model: the name that the driver or PCI gives.
        plain: words that name the maker, a line of products or nothing.
        variants: words after the number that tell two models apart, in any place ("PRO 4000 Blackwell SFF").
    """
    words = [word for word in re.split(r"[\s_-]+", model.lower()) if word and word not in plain]
    words = [re.sub(r"[^a-z0-9]", "", word) for word in words]
    place = next((i for i, word in enumerate(words) if re.search(r"\d", word)), None)
    if place is None:
        return "".join(words) or "gpu"
    if not words[place].isdigit():
        return words[place]
    return "".join([*words[: place + 1], *(word for word in words[place + 1 :] if word in variants)])


def detected_name(model: str) -> str:
    """The name that AutoDetect gives a model (`gpu_common_underscorify_tolower`): nvidia_h100_80gb_hbm3."""
    return model.lower().replace(" ", "_")
