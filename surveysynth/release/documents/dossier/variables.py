"""What is public by assumption, variable by variable: columns, levels, constants, cell sizes."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from surveysynth.release.documents.codebook import public_roles
from surveysynth.release.documents.dossier.blocks import Block, Grid, Items, Section, Text
from surveysynth.release.documents.dossier.terms import Terms
from surveysynth.release.folder.microdata import public_column_names, weight_column
from surveysynth.release.tables.labels import listed
from surveysynth.survey.records import LEAST_RECORDS

if TYPE_CHECKING:
    from surveysynth.survey.outcome import Outcome

#: Levels of a column, and cells, that are listed one by one.
MOST_LEVELS, MOST_CELLS = 30, 60


def public_by_assumption(terms: Terms) -> Section:
    """Every column of the specification, and every cell size."""
    facts = terms.facts
    blocks: list[Block] = [
        Text(
            "The guarantee holds for the confidential columns alone. Everything that this table "
            "calls public is treated as known to everybody, is published as it stands (population "
            "sizes of a finite population correction as sampling fractions), and is "
            "protected by nothing. Columns of the survey file that are not listed have no part in "
            "the release."
        ),
        Grid(
            "Columns, and what is taken as public of them",
            ("Column", "Part", "Status", "Public of it by assumption"),
            (*_public_columns(terms), *_confidential_columns(terms)),
            words=True,
        ),
        *_cells(terms),
        Text("Public besides, as the statement has it:"),
        Items(facts.statement.assumptions),
    ]
    return Section("What is public by assumption", tuple(blocks))


def _public_columns(terms: Terms) -> Iterator[tuple[str, str, str, str]]:
    design = terms.facts.design
    for name in public_column_names(design):
        part = listed(list(public_roles(design, name).values()))
        if name == terms.protected:
            part = f"{part}; its units are protected as a whole"
        yield _named(terms, name), part, "public", _values_of(terms, name)


def _values_of(terms: Terms, name: str) -> str:
    """The values of a public column, with how many records have each where these are few."""
    design, labels = terms.facts.design, terms.facts.labels
    if name not in design.frame:
        return "one value a stratum, published as its sampling fraction"
    column = design.frame[name]
    counts = column.value_counts(dropna=False)
    if pd.api.types.is_numeric_dtype(column) and name not in design.levels:
        return f"the number of every record ({len(counts):,} different ones)"
    known = design.levels.get(name)
    codes = list(known) if known is not None else sorted(map(str, counts.index))
    if len(codes) > MOST_LEVELS:
        least, most = int(counts.min()), int(counts.max())
        held = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        return (
            f"the value of every record: {len(codes):,} different ones, with {held} "
            f"record{'s' if most > 1 else ''} each"
        )
    sizes = column.astype("str").value_counts()
    shown = [f"{labels.level(name, code)} ({int(sizes.get(code, 0)):,})" for code in codes]
    rare = sum(0 < int(sizes.get(code, 0)) < LEAST_RECORDS for code in codes)
    warned = (
        f". {rare:,} of them have fewer than {LEAST_RECORDS} records: see that they are no slips"
        if rare
        else ""
    )
    return f"the value of every record. Records by value: {', '.join(shown)}{warned}"


def _confidential_columns(terms: Terms) -> Iterator[tuple[str, str, str, str]]:
    design = terms.facts.design
    for outcome in design.outcomes:
        part = "outcome"
        if outcome.name in terms.facts.spec.by:
            part = "outcome; classifies the tables by synthetic values"
        public = "; ".join(_declared(terms, outcome))
        yield _named(terms, outcome.name), part, "confidential", public
    if design.weight_name is not None:
        size = design.population_size
        total = "" if size is None else f"; that synthetic weights are scaled to {size:,.10g}"
        public = f"its name{total}{_scales(terms, ['log weight'])}"
        yield weight_column(design), "sampling weight", "confidential", public


def _declared(terms: Terms, outcome: "Outcome") -> Iterator[str]:
    """Kind, levels, spikes, bounds, transform, and for noisy statistics centre and spread."""
    labels = terms.facts.labels
    yield "its name and that it is " + (outcome.public_words or outcome.kind)
    if outcome.is_labelled and labels.of(outcome.name).levels:
        yield "labels " + ", ".join(labels.level(outcome.name, each) for each in outcome.levels)
    if outcome.is_amount:
        yield f"the transform {outcome.formulas}"
        sides = [outcome.side_name(side) for side in outcome.sides]
        scales = _scales(terms, [f"{outcome.name} {side}".strip() for side in sides])
        if scales:
            yield scales.removeprefix("; ")


def _scales(terms: Terms, columns: list[str]) -> str:
    """Declared centres and spreads of columns of the model."""
    described = terms.facts.mechanism.described(terms.facts.design)
    centres, spreads = described.get("centres", {}), described.get("spreads", {})
    return "".join(
        f"; centre {centres[name]:.6g} and spread {spreads[name]:.6g} of {name} on the scale of "
        "the model"
        for name in columns
        if name in centres
    )


def _cells(terms: Terms) -> Iterator[Block]:
    """How many sample records each cell of the by columns has, the smallest first."""
    design, labels = terms.facts.design, terms.facts.labels
    by = list(design.by)
    if not by:
        return
    total = math.prod(len(design.levels[name]) for name in by)
    # Ties in the order of their levels: that of the records may depend on confidential values.
    sizes = design.frame[by].value_counts().sort_index().sort_values(kind="stable")
    few = int((sizes < LEAST_RECORDS).sum())
    yield Text(
        f"Cells by {listed(by)}: {total:,}; without a record: {total - len(sizes):,}; with 1 to "
        f"{LEAST_RECORDS - 1} records: {few:,}. Numbers of sample records are public: they follow "
        "from the public columns."
    )
    shown = sizes.iloc[:MOST_CELLS]
    left = "" if len(shown) == len(sizes) else f", the {MOST_CELLS} smallest of {len(sizes):,}"
    rows = [
        (", ".join(map(labels.level, by, map(str, key))), f"{int(size):,}")
        for key, size in zip(shown.index, shown, strict=True)
    ]
    yield Grid(f"Sample records by {listed(by)}{left}", ("Cell", "Records"), tuple(rows))


def _named(terms: Terms, name: str) -> str:
    title = terms.facts.labels.titled_with_unit(name)
    return name if title == name else f"{name} ({title})"
