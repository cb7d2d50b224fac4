"""The dossier of a release for a review board, as Markdown and as a page.

``templates/dossier/`` has its text. Its values are public facts alone, which before debiasing are
the same for every survey file with the same public columns.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from surveysynth.mechanisms.noisy_statistics import accounting as odds
from surveysynth.release.documents.codebook import public_roles
from surveysynth.release.documents.render import page_of, render_markdown
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.microdata import base_weight_column, public_column_names
from surveysynth.release.tables.layout import listed
from surveysynth.survey.records import LEAST_RECORDS

TEMPLATE = "dossier/dossier.md.j2"
#: Beliefs, rates of false alarms, and numbers of records of one person in the worked examples.
PRIORS = (0.01, 0.1, 0.5)
FALSE_ALARMS = (0.01, 0.05, 0.1)
SEVERAL = (1, 2, 3, 5)
#: The adversary's belief whose limit respondents read.
TOLD_PRIOR = 0.1
#: Levels of a column, and cells, that are listed one by one.
MOST_LEVELS, MOST_CELLS = 30, 60


def make_dossier(facts: ReleaseFacts, shared: dict[str, Any]) -> tuple[str, str]:
    """Return the dossier as Markdown and as a page that is self-contained.

    ``shared``: by ``shared_context``. Without a guarantee there is nothing to work out and nothing
    to sign: those parts are left out.
    """
    titles = facts.labels.title
    context = {
        **shared,
        **(_examples(shared) if shared["private"] else {}),
        "debiasing": facts.debias is not None and facts.debias.status != "not asked for",
        "debias_reason": "" if facts.debias is None else facts.debias.reason,
        "outcomes": listed([titles(name) for name in facts.design.outcome_names]),
        "seen": listed([titles(name) for name in shared["frame_columns"]]),
        "discrete": any(outcome.is_discrete for outcome in facts.design.outcomes),
        "radius": shared["described"].get("radius"),
        "risk": facts.mechanism.risk,
        "lipschitz_bound": facts.mechanism.guarantee().get("lipschitz_bound"),
        "pooling": facts.design.pooling,
        "public_columns": [
            {
                "name": _named(facts, name),
                "part": listed(list(public_roles(facts.design, name).values()))
                + ("; its units are protected as a whole" * (name == shared["protected"])),
                "known": _values_of(facts, name),
            }
            for name in public_column_names(facts.design)
        ],
        "confidential_columns": list(_confidential_columns(facts, shared["described"])),
        "cells": _cells(facts) if shared["by"] else None,
        "least_records": LEAST_RECORDS,
    }
    body = render_markdown(TEMPLATE, {**context, "warnings": ()})  # a page has them in its banner
    page = page_of(body, f"Dossier for review: {facts.title}", " ".join(facts.warnings))
    return render_markdown(TEMPLATE, context), page


def _examples(shared: dict[str, Any]) -> dict[str, Any]:
    """Return the worked examples, which follow from the declared budget alone."""
    epsilon, rho, delta = shared["epsilon"], shared["rho"], shared["delta"]

    def log_factor(records: int) -> float:
        """Return the log of the largest factor on the odds, for a person with so many records."""
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


def _confidential_columns(
    facts: ReleaseFacts, described: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the columns with what is declared of them; ``described``: by the mechanism."""
    design, labels = facts.design, facts.labels
    for outcome in design.outcomes:
        part = "outcome"
        if outcome.name in facts.spec.by:
            part = "outcome; classifies the tables by synthetic values"
        declared = ["its name and that it is " + (outcome.public_words or outcome.kind)]
        if outcome.is_labelled and labels.of(outcome.name).levels:
            named = ", ".join(labels.level(outcome.name, each) for each in outcome.levels)
            declared.append(f"labels {named}")
        if outcome.is_amount:
            declared.append(f"the transform {outcome.formulas}")
            sides = [f"{outcome.name} {outcome.side_name(side)}" for side in outcome.sides]
            declared += _scales(described, map(str.strip, sides))
        yield {"name": _named(facts, outcome.name), "part": part, "declared": declared}
    if design.weight_name is not None:
        declared = ["its name"]
        if design.population_size is not None:
            size = f"{design.population_size:,.10g}"
            declared.append(f"that synthetic weights are scaled to {size}")
        if facts.calibration is not None:
            declared.append(f"that synthetic weights are calibrated by {facts.calibration.words}")
        if design.learns_weight:
            declared.append(f"the transform {design.modelled[-1].formulas}")
        declared += _scales(described, [design.weight_words])
        name = base_weight_column(design)
        yield {"name": name, "part": "sampling weight", "declared": declared}


def _scales(described: dict[str, Any], columns: Iterable[str]) -> list[str]:
    """Return the centers and spreads of columns of the model, declared for noisy statistics."""
    centres, spreads = described.get("centres", {}), described.get("spreads", {})
    return [
        f"center {centres[name]:.6g} and spread {spreads[name]:.6g} of {name} on the scale of the "
        "model"
        for name in columns
        if name in centres
    ]


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
