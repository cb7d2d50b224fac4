"""The notes below the tables of a release: what its estimates, errors and intervals are."""

from typing import TYPE_CHECKING

from surveysynth.estimation.estimates import Key
from surveysynth.estimation.linearised import Contrast
from surveysynth.estimation.sample_design import clusters_of
from surveysynth.estimation.statistics import Statistic, statistic_of
from surveysynth.mechanisms.base import COMBINING_RULES
from surveysynth.release.tables.labels import listed
from surveysynth.survey.where import columns_of, parse_where

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.survey.survey import PublicDesign


def by_korn_graubard(spec: "Spec", kind: Statistic) -> bool:
    """Return whether a statistic has the intervals of the NCHS standards, which judge by them."""
    nchs = spec.table.flags == "nchs" and spec.table.interval == "auto"
    return nchs and kind.standard == "proportion"


def level_note(spec: "Spec", design: "PublicDesign", key: Key) -> list[str]:
    """Name the level that a proportion counts, where levels have names."""
    statistic, column = key
    if column is None or not statistic_of(statistic).binary:
        return []
    outcome = design.outcomes[column]
    if not outcome.is_labelled:
        return []
    level = outcome.levels[-1]
    label = spec.labels[outcome.name].levels.get(level, level) if outcome.name in spec.labels else (
        level
    )
    return [f"Of all with a value of {outcome.name}, the share of {label!r}."]


def table_notes(spec: "Spec", design: "PublicDesign", statistic: str) -> list[str]:
    """Return what readers of a table must know of its estimates and intervals."""
    m = spec.privacy.m
    noise = " and the noise that protects privacy" if m > 1 else ""
    notes = [f"Standard errors and intervals include sampling error{noise}."]
    kind = statistic_of(statistic)
    notes += _known_totals(spec, kind)
    if kind.share_below is not None and spec.table.interval == "auto":
        notes.append("Intervals are those of the distribution function, inverted.")
    if kind.contrast is not None:
        notes.append(
            f"{_contrasted(spec, kind.contrast)}; standard errors are those of the contrast "
            "itself. Sample records are those of the row with fewer."
        )
    if kind.by_level and kind.contrast is None:
        notes.append("The percentages of a row add up to 100 over the levels.")
    if spec.table.interval == "t":
        notes.append("Intervals are estimate ± t · standard error.")
    elif by_korn_graubard(spec, kind):
        notes.append(
            "Intervals are Korn and Graubard's: Clopper and Pearson's at the effective sample size."
        )
    elif kind.interval == "logit":
        notes.append(
            "Intervals are computed on the logit scale, so that they stay between 0% and 100%."
        )
    if spec.table.where is not None:
        notes.append(_DOMAIN)
    if synthetic := synthetic_columns(spec):
        titles = listed([_title(spec, name) for name in synthetic])
        notes.append(
            f"Rows by {titles} contain different synthetic records in every dataset, so that no "
            "number of sample records is published for them; flags use the dataset with the fewest."
        )
    if clusters := clusters_of(design):
        notes.append(clusters.note)
    if m == 1:
        notes.append(
            "With a single draw (m = 1) the variance of the synthesis cannot be estimated: "
            "the standard errors leave it out."
        )
    if design.dropped:
        left_out = f"{design.dropped:,} survey records with missing values were left out."
        notes.append(f"{left_out} {design.shift}".strip())
    return notes


def method_note(spec: "Spec") -> str:
    """Return how estimates and standard errors were made."""
    m, replicates = spec.privacy.m, spec.privacy.replicates_per_draw
    datasets = f"{m * replicates} synthetic dataset{'s' if m * replicates > 1 else ''}"
    draws = f"m = {m} released draw{'s' if m > 1 else ''}"
    rule = COMBINING_RULES[spec.privacy.combining]
    return (
        f"Method: estimates from {datasets} ({draws}), stacked; standard errors by Taylor "
        f"linearization, combined by the {rule}."
    )


def _known_totals(spec: "Spec", kind: Statistic) -> list[str]:
    """Name the totals that weights add up to, where estimates show them."""
    if spec.calibration:
        margins = "; ".join(each.words for each in spec.calibration)
        return [
            f"Weights are calibrated to published totals of {margins}; standard errors allow for "
            "that, and estimates that are such totals have none."
        ]
    if kind.is_count and spec.linearisation == "ratio":
        part = "" if spec.table.where is None else " of all records, of which these are a part,"
        return [
            f"{kind.title}{part} add up to the public population size, which has no sampling error."
        ]
    return []


def _contrasted(spec: "Spec", contrast: Contrast) -> str:
    """Name the rows that are compared, in words."""

    def named(level: str | None) -> str:
        if level is None:
            return f"all of {_title(spec, contrast.column)}"
        return _level(spec, contrast.column, level)

    second = named(contrast.second)
    if contrast.first is None:
        words = {"difference": "Each row less", "ratio": "Each row over"}[contrast.kind]
        return f"{words} {second}"
    return f"{named(contrast.first)} {_BETWEEN[contrast.kind]} {second}"


def synthetic_columns(spec: "Spec") -> tuple[str, ...]:
    """Return the outcomes that decide in which row of a table a record is.

    These are outcomes among the by columns or in the condition of the subpopulation.
    """
    where = spec.table.where
    named = spec.table.by if where is None else (*spec.table.by, *columns_of(parse_where(where)))
    return tuple(name for name in spec.synthesizer.outcome if name in named)


_DOMAIN = (
    "Estimates for a subpopulation: standard errors are those of domain estimation, in which all "
    "records of the sample enter, inside or outside."
)
_BETWEEN = {"difference": "less", "ratio": "over"}


def _level(spec: "Spec", column: str, level: str) -> str:
    """Return the label of a level, or the level."""
    label = spec.labels.get(column)
    return (label and label.levels.get(level)) or level


def _title(spec: "Spec", column: str) -> str:
    """Return the title of a column, or its name."""
    label = spec.labels.get(column)
    return (label and label.title) or column
