"""The documentation as a site: `make docs` builds it, and stops at any warning."""

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

# Links to headings (`checker.md#datasets`) go by the anchors that GitHub gives them.
myst_heading_anchors = 3

napoleon_use_ivar = True
highlight_language = "text"  # blocks without a language: commands, and what they print
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autodoc_mock_imports = ["tensorflow", "torch"]
