"""index.html: the page of a release that opens on its tables and links every other file."""

from pathlib import Path
from typing import TYPE_CHECKING

from surveysynth._support.resources import render
from surveysynth.release.facts import files_of

if TYPE_CHECKING:
    from surveysynth.release.facts import ReleaseFacts


def make_index(facts: "ReleaseFacts", folder: Path) -> str:
    """Return the page; ``folder``: the release, with all other files written."""
    by_name: dict[str, list[str]] = {}
    for path in files_of(facts.spec):
        by_name.setdefault(Path(path).stem, []).append(path)
    tables = []
    for stem, paths in by_name.items():
        pages = [each for each in paths if each.endswith(".html")]
        others = [each for each in paths if each not in pages]
        tables.append((stem.replace("_", " ").capitalize(), pages, others))
    files = [each for each in sorted(folder.iterdir()) if each.name not in {"tables", "figures"}]
    return render(
        __package__, "templates/index.html.j2",
        title=facts.spec.all_tables.title or "Survey tables", warnings=facts.warnings,
        tables=tables, files=files,
    )  # fmt: skip
