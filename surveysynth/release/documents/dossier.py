"""The dossier of a release for a review board, as Markdown and as a page.

``templates/dossier/`` has its text. Its values are public facts alone, which before debiasing are
the same for every survey file with the same public columns.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from surveysynth._support.page import whole_page
from surveysynth._support.templates import render
from surveysynth.mechanisms import adversary_odds as odds
from surveysynth.release.documents.codebook import public_roles
from surveysynth.release.documents.render import outside_sentence, render_markdown, shared_context
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.microdata import base_weight_column, public_column_names
from surveysynth.release.tables.labels import listed
from surveysynth.survey.records import LEAST_RECORDS

if TYPE_CHECKING:
    from markdown_it.token import Token

    from surveysynth.survey.outcome import Outcome

_BOX = "[ ] "


def page_of(markdown: str, title: str, mark: str) -> str:
    """Return Markdown as an HTML page that needs nothing else.

    ``mark`` stands at its top and end. HTML in the Markdown is shown as text. A line in italics
    just above a table becomes its caption, a list of ``[ ]`` a list of boxes; the first column of
    a table names its rows. A table whose columns are aligned to the right holds numbers.
    """
    # Imported here: it takes 0.05 s, which only a release should wait for.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = _with_captions(parser.parse(markdown))
    for start, token in enumerate(tokens):
        if token.type == "table_open":
            _mark_table(tokens[start : _end(tokens, start)])
        elif token.type == "bullet_list_open":
            _mark_boxes(tokens[start : _end(tokens, start)])
    body: str = parser.renderer.render(tokens, parser.options, {})
    # Text in the page has no "<" of its own.
    body = body.replace("<table", '<div class="scroll"><table')
    body = body.replace("</table>", "</table></div>")
    style = render(__package__, "templates/dossier/dossier.css")
    return whole_page(title, mark, [body], style)


def _end(tokens: "list[Token]", start: int) -> int:
    """Return where the block ends that opens at ``start``."""
    level = tokens[start].level
    return next(
        place + 1
        for place in range(start + 1, len(tokens))
        if tokens[place].level == level and tokens[place].nesting == -1
    )


def _with_captions(tokens: "list[Token]") -> "list[Token]":
    """Return the tokens with a paragraph in italics just above a table moved into the table."""
    found = list(tokens)
    for place in range(len(found) - 3):
        paragraph, inline, end, table = found[place : place + 4]
        kinds = [child.type for child in inline.children or ()]
        if table.type != "table_open" or paragraph.type != "paragraph_open":
            continue
        if kinds[:1] != ["em_open"] or kinds.index("em_close") != len(kinds) - 1:
            continue
        paragraph.tag = end.tag = "caption"
        paragraph.type, end.type = "caption_open", "caption_close"
        paragraph.level = end.level = table.level + 1
        inline.children = (inline.children or [])[1:-1]
        found[place : place + 4] = [table, paragraph, inline, end]
    return found


def _mark_boxes(tokens: "list[Token]") -> None:
    """Make boxes of the ``[ ]`` of a list, which the style sheet draws."""
    texts = [token.children[0] for token in tokens if token.type == "inline" and token.children]
    if texts and all(text.content.startswith(_BOX) for text in texts):
        tokens[0].attrSet("class", "boxes")
        for text in texts:
            text.content = text.content.removeprefix(_BOX)


def _mark_table(tokens: "list[Token]") -> None:
    """Say what every cell of a table is, for those who hear it and for narrow screens.

    Roles: a table that a narrow screen shows as blocks stays one for those who hear it.
    """
    cells = [place for place, token in enumerate(tokens) if token.type in ("th_open", "td_open")]
    head = [tokens[place + 1].content for place in cells if tokens[place].type == "th_open"]
    texts = [tokens[place + 1].content for place in cells[len(head) :]]
    kind = "words" if tokens[cells[0]].attrGet("style") is None else "numbers"
    tokens[0].attrs = {"role": "table", "class": kind if any(texts) else "words blank"}
    roles = {"thead_open": "rowgroup", "tbody_open": "rowgroup", "tr_open": "row"}
    for token in tokens:
        if token.type in roles:
            token.attrSet("role", roles[token.type])
    for number, place in enumerate(cells):
        token, column = tokens[place], number % len(head)
        named = {"data-head": head[column]}
        if token.type == "th_open":
            token.attrs = {"scope": "col", "role": "columnheader"}
        elif column == 0:
            token.attrs = {"scope": "row", "role": "rowheader", **named}
            token.tag = tokens[place + 2].tag = "th"
        else:
            token.attrs = {"role": "cell", **named}


TEMPLATE = "dossier/dossier.md.j2"
#: Beliefs, rates of false alarms, and numbers of records of one person in the worked examples.
PRIORS = (0.01, 0.1, 0.5)
FALSE_ALARMS = (0.01, 0.05, 0.1)
SEVERAL = (1, 2, 3, 5)
#: The adversary's belief whose limit respondents read.
TOLD_PRIOR = 0.1
#: Levels of a column, and cells, that are listed one by one.
MOST_LEVELS, MOST_CELLS = 30, 60


def make_dossier(facts: ReleaseFacts) -> tuple[str, str]:
    """Return the dossier as Markdown and as a page that needs nothing else.

    Without a guarantee there is nothing to work out and nothing to sign: those parts are left out.
    """
    context = dossier_context(facts)
    body = render_markdown(TEMPLATE, {**context, "warnings": ()})  # a page has them in its banner
    page = page_of(body, f"Dossier for review: {facts.title}", " ".join(facts.warnings))
    return render_markdown(TEMPLATE, context), page


def dossier_context(facts: ReleaseFacts) -> dict[str, Any]:
    """Return the values in ``templates/dossier/``."""
    shared, described = shared_context(facts), facts.mechanism.described(facts.design)
    titles = facts.labels.title
    return {
        **shared,
        "budget": _budget(shared),
        "outside_sentence": outside_sentence(facts),
        **(_examples(shared) if shared["private"] else {}),
        "statement": {
            "first": facts.statement.paragraphs[0],
            "guarantee": facts.statement.guarantee,
            "assumptions": facts.statement.assumptions,
            "not_covered": facts.statement.not_covered,
        },
        "debiasing": facts.debias is not None and facts.debias.status != "not asked for",
        "debias_reason": "" if facts.debias is None else facts.debias.reason,
        "outcomes": listed([titles(name) for name in facts.design.outcome_names]),
        "seen": listed([titles(name) for name in shared["frame_columns"]]),
        "discrete": any(outcome.is_discrete for outcome in facts.design.outcomes),
        "radius": described.get("radius"),
        "risk": facts.mechanism.risk,
        "lipschitz_bound": facts.settings.lipschitz_bound,
        "pooling": facts.design.pooling,
        "public_columns": list(_public_columns(facts, shared["protected"])),
        "confidential_columns": list(_confidential_columns(facts)),
        "cells": _cells(facts) if shared["by"] else None,
        "least_records": LEAST_RECORDS,
    }


def _budget(shared: dict[str, Any]) -> str:
    """Return the guarantee as a clause."""
    epsilon, outside = shared["epsilon"], shared["outside"]
    if shared["proved"]:
        return (
            f"zero-concentrated differential privacy with rho = {shared['rho']:.4g}, and hence "
            f"differential privacy with epsilon = {epsilon:.4g} at delta = {shared['delta']:.3g}"
        )
    said = f"asymptotic differential privacy with epsilon at most {epsilon:.4g}"
    return f"{said}, {outside}" if outside else said


def _examples(shared: dict[str, Any]) -> dict[str, Any]:
    """Return the worked examples, which follow from the declared budget alone.

    ``log_factor`` is the log of the largest factor on the odds of a suspicion: under noisy
    statistics except for a probability delta, otherwise as far as the guarantee holds.
    """
    epsilon, rho, delta = shared["epsilon"], shared["rho"], shared["delta"]

    def log_factor(records: int) -> float:
        """Return it for a person with so many records or units, all of them unknown."""
        if rho is None:
            return float(epsilon * records)
        return odds.zcdp_log_factor(rho * records**2, delta)

    def powers(rate: float) -> tuple[float, ...]:
        """Return the largest power of any test, and against normal noise."""
        if rho is None:
            return rate, odds.pure_power(epsilon, rate), math.nan
        return rate, odds.zcdp_power(rho, rate), odds.gaussian_power(rho, rate)

    single = log_factor(1)
    average = single if rho is None else rho
    return {
        "log_factor": single,
        "told_prior": TOLD_PRIOR,
        "told_limit": odds.posterior(TOLD_PRIOR, single),
        "beliefs": [
            (each, odds.posterior(each, average), odds.posterior(each, single))
            for each in PRIORS
        ],
        "powers": list(map(powers, FALSE_ALARMS)),
        "of_several": [
            (
                each,
                epsilon * each if rho is None else rho * each**2,
                odds.posterior(TOLD_PRIOR, log_factor(each)),
            )
            for each in SEVERAL
        ],
    }


def _public_columns(facts: ReleaseFacts, protected: str | None) -> Iterator[dict[str, Any]]:
    for name in public_column_names(facts.design):
        part = listed(list(public_roles(facts.design, name).values()))
        if name == protected:
            part = f"{part}; its units are protected as a whole"
        yield {"name": _named(facts, name), "part": part, "known": _values_of(facts, name)}


def _values_of(facts: ReleaseFacts, name: str) -> dict[str, Any]:
    """Return the values of a public column, with how many records have each where there are few."""
    design, labels = facts.design, facts.labels
    if name not in design.frame:
        return {"kind": "fraction"}
    column = design.frame[name]
    counts = column.value_counts(dropna=False)
    if pd.api.types.is_numeric_dtype(column) and name not in design.levels:
        return {"kind": "numbers", "different": len(counts)}
    known = design.levels.get(name)
    codes = list(known) if known is not None else sorted(map(str, counts.index))
    if len(codes) > MOST_LEVELS:
        least, most = int(counts.min()), int(counts.max())
        return {"kind": "many", "different": len(codes), "least": least, "most": most}
    sizes = column.astype("str").value_counts()
    shown = [(labels.level(name, code), int(sizes.get(code, 0))) for code in codes]
    rare = sum(0 < size < LEAST_RECORDS for _, size in shown)
    return {"kind": "levels", "sizes": shown, "rare": rare}


def _confidential_columns(facts: ReleaseFacts) -> Iterator[dict[str, Any]]:
    design = facts.design
    for outcome in design.outcomes:
        part = "outcome"
        if outcome.name in facts.spec.by:
            part = "outcome; classifies the tables by synthetic values"
        declared = list(_declared(facts, outcome))
        yield {"name": _named(facts, outcome.name), "part": part, "declared": declared}
    if design.weight_name is not None:
        size = design.population_size
        total = [] if size is None else [f"that synthetic weights are scaled to {size:,.10g}"]
        if facts.calibration is not None:
            total.append(f"that synthetic weights are calibrated by {facts.calibration.words}")
        declared = ["its name", *total, *_weight_scale(facts)]
        name = base_weight_column(design)
        yield {"name": name, "part": "sampling weight", "declared": declared}


def _weight_scale(facts: ReleaseFacts) -> Iterator[str]:
    """Yield a learned transform of the weight, and for noisy statistics its constants."""
    if facts.design.learns_weight:
        yield f"the transform {facts.design.modelled[-1].formulas}"
    yield from _scales(facts, [facts.design.weight_words])


def _declared(facts: ReleaseFacts, outcome: "Outcome") -> Iterator[str]:
    """Yield kind, levels, spikes, bounds, transform, and for noisy statistics centre and spread."""
    labels = facts.labels
    yield "its name and that it is " + (outcome.public_words or outcome.kind)
    if outcome.is_labelled and labels.of(outcome.name).levels:
        yield "labels " + ", ".join(labels.level(outcome.name, each) for each in outcome.levels)
    if outcome.is_amount:
        yield f"the transform {outcome.formulas}"
        sides = [outcome.side_name(side) for side in outcome.sides]
        yield from _scales(facts, [f"{outcome.name} {side}".strip() for side in sides])


def _scales(facts: ReleaseFacts, columns: list[str]) -> Iterator[str]:
    """Yield the declared centres and spreads of columns of the model."""
    described = facts.mechanism.described(facts.design)
    centres, spreads = described.get("centres", {}), described.get("spreads", {})
    for name in columns:
        if name in centres:
            yield (
                f"centre {centres[name]:.6g} and spread {spreads[name]:.6g} of {name} on the scale "
                "of the model"
            )


def _cells(facts: ReleaseFacts) -> dict[str, Any]:
    """Return how many sample records each cell of the by columns has, the smallest first."""
    design, labels = facts.design, facts.labels
    by = list(design.by)
    total = math.prod(len(design.levels[name]) for name in by)
    # Ties in the order of their levels: that of the records may depend on confidential values.
    sizes = design.frame[by].value_counts().sort_index().sort_values(kind="stable")
    shown = sizes.iloc[:MOST_CELLS]
    return {
        "total": total,
        "empty": total - len(sizes),
        "few": int((sizes < LEAST_RECORDS).sum()),
        "found": len(sizes),
        "rows": [
            (", ".join(map(labels.level, by, map(str, key))), int(size))
            for key, size in zip(shown.index, shown, strict=True)
        ],
    }


def _named(facts: ReleaseFacts, name: str) -> str:
    title = facts.labels.titled_with_unit(name)
    return name if title == name else f"{name} ({title})"
