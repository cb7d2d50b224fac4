"""Specifications of releases, for samples of a frame."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from surveysynth.config.spec import Spec
from surveysynth.errors import InputError

if TYPE_CHECKING:
    from surveysynth.evaluation.studies.population import Population


def drawn_spec(spec: Spec, population: "Population") -> Spec:
    """Return a specification for samples of the frame, with its public sizes and totals.

    Rows that a release would withhold are kept, so that all are judged.
    """
    survey = spec.survey
    # The samples of a study have design weights.
    changes: dict[str, Any] = {"weights_from": None}
    if survey.population_size is not None:
        changes["population_size"] = float(population.n_units)
    if survey.stratum_sizes is not None:
        counts = population.frame[survey.strata].value_counts()
        changes["stratum_sizes"] = {str(name): float(size) for name, size in counts.items()}
    unwithheld = {
        "calibration": tuple(
            each.model_copy(update={"totals": _totals(each.by, each.amount, population)})
            for each in spec.calibration
        ),
        "tables": tuple(_unwithheld(each) for each in spec.tables),
        "shared": None if spec.shared is None else _unwithheld(spec.shared),
    }
    return spec.model_copy(update={"survey": survey.model_copy(update=changes), **unwithheld})


def _totals(by: tuple[str, ...], amount: str | None, population: "Population") -> Any:
    """Return the totals of a margin in the frame, nested by level."""
    frame = population.frame
    values = pd.Series(1.0, index=frame.index) if amount is None else frame[amount].astype(float)
    if not by:
        return float(values.sum())
    totals: dict[str, Any] = {}
    classes = [frame[name].astype(str).to_numpy() for name in by]
    for levels, total in values.groupby(classes).sum().items():
        *outer, last = levels if isinstance(levels, tuple) else (levels,)
        inner = totals
        for level in outer:
            inner = inner.setdefault(str(level), {})
        inner[str(last)] = float(total)
    return totals


def _unwithheld(tables: Any) -> Any:
    if tables.flags == "none":
        return tables
    return tables.model_copy(update={"flag_action": "mark"})


def plain_estimates(spec: Spec) -> Spec:
    """Return a specification of tables without scaling, calibration, or flags."""
    def plain(tables: Any) -> Any:
        return tables.model_copy(update={"linearisation": "plain", "flags": "none"})

    shared = None if spec.shared is None else plain(spec.shared)
    tables = tuple(map(plain, spec.tables))
    return spec.model_copy(update={"tables": tables, "shared": shared, "calibration": ()})


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that no column has."""
    known = set(taken)
    while name in known:
        name += "_"
    return name


def require_same_tables(name: str, spec: Spec, first: Spec) -> None:
    """Raise ``InputError`` if a specification makes other tables than the first."""
    def tables(each: Spec) -> list[tuple[Any, ...]]:
        own = (one.table for one in each.each_table)
        return [(t.name, t.by, t.statistics, t.where, t.level) for t in own]

    def columns(each: Spec) -> tuple[Any, ...]:
        survey = each.survey
        return (survey.strata, survey.psu, survey.fpc, survey.weight, survey.weights,
                each.synthesizer.outcome, set(each.public_names))  # fmt: skip

    for what, of in (("tables", tables), ("columns of the survey", columns)):
        if of(spec) != of(first):
            raise InputError(
                f"{name}: the {what} differ from those of the first specification. Specifications "
                "of one study may differ in model, formula and [privacy] alone."
            )
