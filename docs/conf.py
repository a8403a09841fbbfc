"""The site of docs/: `make docs` builds it into build/docs. Nothing on it needs the network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import seqloom

project = "seqloom"
author = "the seqloom authors"
project_copyright = author
release = version = seqloom.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "reference"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_ext"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_type_aliases = {name: name for name in ("Data", "RunLike", "PathLike", "ProgressLike", "Change")}
python_maximum_signature_line_length = 90
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
nitpicky = False
suppress_warnings = ["ref.python"]  # a class that two modules offer, such as seqloom.Run and seqloom.run.Run
highlight_language = "text"
python_display_all_type_hints = False

html_theme = "furo"
html_title = "seqloom"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
