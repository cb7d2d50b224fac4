"""index.html: the page of a release that opens on its tables and links every other file."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from surveysynth.release.facts import curve_files, files_of

if TYPE_CHECKING:
    from surveysynth.release.facts import ReleaseFacts

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
padding: 0 1rem; color: #1b1b1b; }} a {{ color: #0b4f8a; }}</style></head>
<body>
<h1>{title}</h1>
{banner}<h2>Tables and figures</h2>
<ul>
{tables}
</ul>
<h2>About this release</h2>
<ul>
{others}
</ul>
</body>
</html>
"""

#: What readers find in a file, by its name without the ending.
_ABOUT = {
    "README": ": how the tables were made, and programs that compute them from the microdata",
    "codebook": ": columns and codes of the microdata",
    "dossier": ": the privacy statement, for a review board",
    "microdata": ": synthetic records",
    "privacy": ": the guarantee and all settings, for programs",
    "statistics": ": the noisy sums that everything follows from",
}


def make_index(facts: "ReleaseFacts", folder: Path) -> str:
    """Return the page; ``folder``: the release, with all other files written."""
    by_name: dict[str, list[str]] = {}
    for section in facts.spec.each_table:
        for place, name, _ in files_of(section):
            by_name.setdefault(Path(name).stem, []).append(f"{place}/{name}")
    for path in curve_files(facts.spec):
        by_name.setdefault(Path(path).stem, []).append(path)
    tables = [_item(stem.replace("_", " ").capitalize(), paths) for stem, paths in by_name.items()]
    others = [
        f'<li><a href="{each.name}">{each.name}</a>{_ABOUT.get(each.stem, "")}</li>'
        for each in sorted(folder.iterdir())
        if each.name not in {"tables", "figures"}
    ]
    return _PAGE.format(
        title=escape(facts.spec.all_tables.title or "Survey tables"),
        banner="".join(f"<p><strong>{escape(each)}</strong></p>\n" for each in facts.warnings),
        tables="\n".join(tables),
        others="\n".join(others),
    )


def _item(title: str, paths: list[str]) -> str:
    """Link a title to the page of a table, if there is one, and other formats by name."""
    shown, links = f"<strong>{escape(title)}</strong>", []
    for path in paths:
        if path.endswith(".html"):
            shown = f'<a href="{escape(path)}">{shown}</a>'
        else:
            links.append(f'<a href="{escape(path)}">{Path(path).suffix[1:]}</a>')
    more = f" ({', '.join(links)})" if links else ""
    return f"<li>{shown}{more}</li>"
