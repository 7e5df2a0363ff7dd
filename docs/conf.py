"""The configuration of Sphinx, for `make docs`."""

from __future__ import annotations

from tfod.version import __version__

project = "tfod"
author = "the authors of tfod"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

html_theme = "furo"
html_title = f"tfod {version}"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

# Links to headings (`checker.md#datasets`) use the same anchors as on GitHub.
myst_heading_anchors = 3

napoleon_use_ivar = True
highlight_language = "text"  # for blocks without a language: commands and their output
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autodoc_mock_imports = ["tensorflow", "torch"]
