"""index.html of a release with several tables: a page of contents with links to all files."""

from collections.abc import Mapping
from typing import Any

from surveysynth._support.page import whole_page
from surveysynth._support.templates import render
from surveysynth.estimation.statistics import statistic_of
from surveysynth.release.facts import ReleaseFacts, files_of
from surveysynth.release.tables.labels import listed, span, where_words
from surveysynth.release.tables.table import ReleaseTable
from surveysynth.release.tables.table_builder import Tables
from surveysynth.spec.formats import FORMATS, folder_of

CONTENTS_NAME = "index.html"


def contents_page(facts: ReleaseFacts, tables: Mapping[str, Tables]) -> str:
    """Return the page, which has no script; ``tables``: by name."""
    body = render(
        __package__,
        "templates/contents.html.j2",
        title=facts.title,
        warnings=facts.warnings,
        n=f"{facts.design.n:,}",
        tables=[_table(each, tables[name]) for name, each in facts.each_table.items()],
        source=facts.spec.all_tables.source,
        privacy_note=facts.privacy_note,
    )
    return whole_page(facts.title, "", [body], render(__package__, "templates/contents.css"))


def _table(facts: ReleaseFacts, table: Tables) -> dict[str, Any]:
    """Return what the page says of a table: its title, what it shows, its rows and its files."""
    outcomes = [each for of_outcomes in table.values() for each in of_outcomes]
    section, labels, name = facts.spec.table, facts.labels, facts.spec.table.name or ""
    by = listed([labels.title(each) for each in section.by])
    where = "" if section.where is None else where_words(section.where, labels)
    formats = [
        (folder_of(FORMATS[each], name), FORMATS[each])
        for each in (*section.formats, *section.figures)
    ]
    titles = {each: statistic_of(each).title for each in section.statistics}
    of_each = [
        (title, [(f"{f}/{m.file_of(each)}", m.ending) for f, m in formats if m.file_each])
        for each, title in titles.items()
    ]
    pages = [f"{folder}/{file}" for folder, file, m in files_of(facts.spec) if m.ending == "html"]
    return {
        "name": name,
        "title": _title(facts, outcomes, by),
        "page": pages[0] if pages else "",
        "shows": [
            listed(list(titles.values())),
            *([f"by {by}"] if by else []),
            *([f"of records with {where}"] if where else []),
        ],
        "rows": span(each.rows for each in outcomes),
        "statistics": [(title, found) for title, found in of_each if found],
        "files": [(f"{folder}/{m.one_file}", m.one_file) for folder, m in formats if m.one_file],
    }


def _title(facts: ReleaseFacts, made: list[ReleaseTable], by: str) -> str:
    """Return the table's own title, otherwise its outcomes and the columns it is by."""
    if facts.spec.all_tables.title:
        return facts.spec.all_tables.title
    outcomes = dict.fromkeys(facts.labels.title(t.outcome) for t in made if t.outcome is not None)
    words = listed(list(outcomes)) or "Counts"
    return f"{words} by {by}" if by else words
