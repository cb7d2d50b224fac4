"""Figures of the package, which do not pass through pyplot, for the gallery."""

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def scraper(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures that are among the names of an example, each once."""
    names = block_vars["example_globals"]
    shown = names.setdefault("__shown__", [])
    paths = []
    for value in list(names.values()):
        if isinstance(value, Figure) and value not in shown:
            shown.append(value)
            path = next(block_vars["image_path_iterator"])
            value.savefig(path, dpi=120)
            paths.append(path)
    return figure_rst(paths, gallery_conf["src_dir"])
