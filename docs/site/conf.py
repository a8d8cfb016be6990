# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of Sphinx for the documentation site (docs/design/site.md)."""

from pathlib import Path

project = "gpucluster.slurm"
project_copyright = "gpucluster.slurm contributors"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
exclude_patterns = ["**/requirements.*"]
nitpicky = True
# Pages of Ansible itself, which the site does not have.
nitpick_ignore_regex = [
    ("std:ref", r"ansible_collections\.ansible\..*|common_return_values|ansible_configuration_settings|\w+_plugins"),
    ("std:envvar", r"ANSIBLE_.*"),
    ("envvar", r"ANSIBLE_.*"),
]

myst_heading_anchors = 6
suppress_warnings = [
    "misc.highlighting_failure",  # an excerpt need not be a whole program
    "myst.header",  # some pages leave out a level
]

html_theme = "furo"
html_title = "gpucluster.slurm"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
