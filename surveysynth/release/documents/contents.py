"""index.html of a release with several tables: what there is, and where."""

from collections.abc import Mapping
from html import escape

from surveysynth._support.page import scrolled, whole_page
from surveysynth.estimation.statistics import statistic_of
from surveysynth.release.facts import ReleaseFacts, files_of
from surveysynth.release.tables.labels import listed, span, where_words
from surveysynth.release.tables.table import ReleaseTable
from surveysynth.release.tables.table_builder import Tables
from surveysynth.spec.formats import FORMATS, folder_of

CONTENTS_NAME = "index.html"

_STYLE = """
table.contents td, table.contents tbody th { text-align: left; vertical-align: top;
  white-space: normal; }
table.contents tbody th { font-weight: 600; max-width: 34rem; }
table.contents th span { display: block; font-weight: 400; color: var(--faint); }
table.contents thead th { text-align: left; }
table.contents td.number { text-align: right; }
table.contents ul { margin: 0; padding: 0; list-style: none; }
table.contents li { white-space: nowrap; }
a { color: #0b4f8a; }
.warning { color: var(--warning); font-weight: 600; }
"""


def contents_page(facts: ReleaseFacts, tables: Mapping[str, Tables]) -> str:
    """The page as text, without a script; every label is escaped. ``tables``: by name."""
    head = "".join(f"<th>{words}</th>" for words in ("Table", "Rows", "Files"))
    lines = [_line(each, tables[name]) for name, each in facts.each_table.items()]
    several = len(lines)
    source = facts.spec.all_tables.source
    body = [
        f"<h1>{escape(facts.title)}</h1>",
        *(f'<p class="warning">{escape(warning)}</p>' for warning in facts.warnings),
        f"<p>{several} table{'s' if several > 1 else ''} of one release: one fit of one model to "
        f"{facts.design.n:,} sample records, and one epsilon for all of them together.</p>",
        scrolled("Tables and their files", [f"<tr>{head}</tr>"], lines, "contents"),
        *([f"<p>Source: {escape(source)}</p>"] if source else []),
        f"<p>{escape(facts.privacy_note)}</p>",
        '<p>Beside the tables: <a href="README.md">README.md</a> (how to use them, and the '
        'guarantee), <a href="dossier.html">dossier.html</a> (the guarantee for a review board), '
        '<a href="codebook.json">codebook.json</a> and '
        '<a href="privacy.json">privacy.json</a>.</p>',
    ]
    return whole_page(facts.title, "", body, _STYLE)


def _line(facts: ReleaseFacts, table: Tables) -> str:
    """One table: its title, what it shows, its rows and its files."""
    made = [each for of_outcomes in table.values() for each in of_outcomes]
    title = _title(facts, made)
    page = next((path for path, ending in _pages(facts) if ending == "html"), None)
    shown = escape(title) if page is None else _link(page, title, title)
    rows = span(each.rows for each in made)
    return (
        f'<tr><th>{shown}{_shows(facts)}</th><td class="number">{rows}</td>'
        f"<td>{_files(facts)}</td></tr>"
    )


def _title(facts: ReleaseFacts, made: list[ReleaseTable]) -> str:
    """The table's own title, or what it is by."""
    if facts.spec.all_tables.title:
        return facts.spec.all_tables.title
    by = [facts.labels.title(name) for name in facts.spec.table.by]
    outcomes = dict.fromkeys(facts.labels.title(t.outcome) for t in made if t.outcome is not None)
    words = listed(list(outcomes)) or "Counts"
    return f"{words} by {listed(by)}" if by else words


def _pages(facts: ReleaseFacts) -> list[tuple[str, str]]:
    """Path and ending of every file of a table."""
    return [(f"{folder}/{file}", made.ending) for folder, file, made in files_of(facts.spec)]


def _shows(facts: ReleaseFacts) -> str:
    """Statistics, columns and subpopulation."""
    section, labels = facts.spec.table, facts.labels
    parts = [listed([statistic_of(name).title for name in section.statistics])]
    if section.by:
        parts.append(f"by {listed([labels.title(name) for name in section.by])}")
    if section.where is not None:
        parts.append(f"of records with {where_words(section.where, labels)}")
    return "".join(f"<span>{escape(part)}</span>" for part in parts)


def _files(facts: ReleaseFacts) -> str:
    """A line a statistic, with a link to each of its files, then files of all of them."""
    section, name = facts.spec.table, facts.spec.table.name or ""
    formats = [FORMATS[each] for each in (*section.formats, *section.figures)]
    lines = []
    for statistic in section.statistics:
        links = [
            _link(
                f"{folder_of(made, name)}/{made.file_of(statistic)}", made.ending,
                f"{statistic_of(statistic).title}, {made.ending}, table {name}",
            )
            for made in formats
            if made.file_each
        ]
        if links:
            lines.append(f"{escape(statistic_of(statistic).title)}: {' '.join(links)}")
    lines += [
        "All: " + _link(
            f"{folder_of(made, name)}/{made.one_file}", made.one_file,
            f"{made.one_file} of table {name}",
        )
        for made in formats
        if made.one_file
    ]
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"


def _link(path: str, words: str, said: str) -> str:
    """``said``: what tells it from other links for those who hear them one by one."""
    return f'<a href="{escape(path)}" aria-label="{escape(said)}">{escape(words)}</a>'
