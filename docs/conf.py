"""How Sphinx builds these pages: ``./dev docs``."""
# ruff: noqa: INP001 - Sphinx reads it; it is part of no package

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# Operators are imported for their docstrings; Airflow then writes a configuration file into its home.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="checkpoint-docs-")
atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

from airflow_provider_checkpoint import __version__  # noqa: E402 - its parts import Airflow later

project = "airflow-provider-checkpoint"
author = "the authors of airflow-provider-checkpoint"
project_copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns: list[str] = []

html_theme = "furo"
html_title = project
html_show_copyright = False
html_show_sphinx = False

myst_enable_extensions = ["colon_fence"]
# Links such as page.md#a-heading.
myst_heading_anchors = 3

# Commands are copied without their prompt and without what they answer.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "member-order": "bysource",
    "exclude-members": "model_config",
}
autodoc_inherit_docstrings = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
