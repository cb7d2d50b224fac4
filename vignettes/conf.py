"""How Sphinx builds the documentation (`python -m vignettes.build`); nothing is fetched."""

import sys
import warnings
from pathlib import Path

from surveysynth import __version__

# Extensions of our own.
sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "surveysynth"
author = "surveysynth developers"
copyright = "surveysynth developers, Apache License 2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "outside",
    "links",
    "report",
]
root_doc = "index"
# Sources of the gallery, and what is beside the pages.
exclude_patterns = ["gallery/*.rst", "gallery/*.py", "_site", "**/*.ipynb"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
#: "outside" links files of the checkout that are no pages: the address is made there.
myst_url_schemes = {"http": None, "https": None, "mailto": None, "outside": "{{path}}"}

html_theme = "furo"
html_title = f"surveysynth {version}"
pygments_dark_style = "github-dark"
html_math_renderer = "mathml"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
templates_path = ["_site/templates"]
highlight_language = "python"

autosummary_generate = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
python_use_unqualified_type_names = True

sphinx_gallery_conf = {
    "examples_dirs": ["gallery"],
    "gallery_dirs": ["built/gallery"],
    "filename_pattern": "/plot_",
    "image_scrapers": ("figures.scraper",),
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "write_computation_times": False,
    "remove_config_comments": True,
    "copyfile_regex": "",
}

# Of the gallery's scripts as of the tests.
warnings.filterwarnings("ignore", message="samplics is archived", category=FutureWarning)
