"""The frame of a study: a whole public population, and specifications for samples of it.

A frame has every unit once, with the outcomes. It must be public, or of an earlier year: what a
study says about it costs no budget of the survey. The survey's own file is refused.
"""

import filecmp
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing, raise_problems
from surveysynth.config.spec import Spec
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import (
    LEVEL,
    REPORT_COLUMNS,
    STUDY_COLUMNS,
    TABLE,
    TABLE_COLUMNS,
)
from surveysynth.evaluation.studies.population import Allocation, Population, SamplingDesign
from surveysynth.survey.columns import missing_column, repeated_positions
from surveysynth.survey.declaration import Declaration, Roles, make_roles
from surveysynth.survey.files import open_table
from surveysynth.survey.outcome import zero_one
from surveysynth.survey.records import (
    Records,
    binary_problems,
    outcome_problem,
    predictor_problems,
    read_records,
)

#: Columns of a study's files, which no by column may be named like.
OWN_COLUMNS = (*TABLE_COLUMNS, *REPORT_COLUMNS, *STUDY_COLUMNS, TABLE, LEVEL)


def allocation_of(given: str, columns: Sequence[str]) -> tuple[Allocation, str | None]:
    """Return the rule of an allocation, and the column of the sample sizes if it names one.

    Raises ``InputError`` for a word that is neither.
    """
    for word in get_args(Allocation):
        if word == given:
            return word, None
    if given in columns:
        return "proportional", given
    raise InputError(
        f"allocation: expected one of {listing(get_args(Allocation))}, or a column of the frame "
        f"with the sample size of each stratum, got {given!r}."
    )


def columns_of(frame: "pd.DataFrame | Path") -> tuple[str, ...]:
    """Return the names of the columns of a frame, in memory or a file.

    Raises ``InputError`` for another object, a file that cannot be read, and repeated names.
    """
    if isinstance(frame, Path):
        return open_table(frame).columns
    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            f"frame: expected a data frame or a path, got {type(frame).__name__}."
        )
    names = tuple(map(str, frame.columns))
    if repeated := repeated_positions(names):
        raise InputError(f"the frame: {repeated} have the same name.")
    return names


def refuse_survey_file(frame: Path, spec: Spec) -> None:
    """Raise ``InputError`` if the frame is the confidential data file of the survey, or a copy."""
    data = spec.data_path
    if not (frame.is_file() and data.is_file()):
        return
    if frame.samefile(data) or filecmp.cmp(frame, data, shallow=False):
        raise InputError(
            f"--population: {frame} is the data file of the survey itself ({spec.path}: "
            "survey.data). A study reports what it finds without protection, so its frame must be "
            "public: name a register, a census or an earlier year's file."
        )


def read_frame(
    frame: "pd.DataFrame | Path", spec: Spec, *, size: str | None, drawn: str | None,
    source: str = "the frame",
) -> Population:
    """Return a frame as the population of a study.

    ``frame``: one row per unit, in memory or a file. ``size``, ``drawn``: columns of the measure of
    size and of the sample size of each stratum. ``source``: of a frame in memory. Raises
    ``InputError`` for missing columns, blank cells, values that the declared outcomes cannot have,
    and sizes that are not positive.
    """
    source = str(frame) if isinstance(frame, Path) else source
    survey, synthesizer = spec.survey, spec.synthesizer
    roles = make_roles(
        synthesizer.outcome, None, spec.public_by, survey.strata, survey.psu, None,
        synthesizer.predictors, survey.public_columns,
    )  # fmt: skip
    columns = columns_of(frame)
    wanted = {"size": size, "allocation": drawn}
    raise_problems(source, [
        *roles.problems(columns),
        *(f"{role}: {missing_column(name, columns, (*roles.needed, name))}"
          for role, name in wanted.items() if name is not None and name not in columns),
        *(f"tables.by: the files of a study already have a column {name!r}; rename the one in the "
          "data." for name in spec.by if name in OWN_COLUMNS),
    ])  # fmt: skip
    numbers = dict.fromkeys((*roles.outcomes, *(name for name in wanted.values() if name)))
    reading = replace(roles, outcomes=tuple(numbers))
    table = open_table(frame) if isinstance(frame, Path) else None
    raw = frame if table is None else table.read(reading.needed)
    assert isinstance(raw, pd.DataFrame)
    records = read_records(raw, Declaration(
        roles=reading, outcomes=spec.declared, source=source, missing="drop"
    ))
    raise_problems(source, list(_problems(spec, raw, records, reading, size)))
    amounts = {each.name for each in spec.declared if each.is_amount} | {size, drawn}
    data: dict[str, pd.Series] = {}
    for name in reading.needed:  # levels of outcomes stay as in the file
        if name in records.text:
            data[name] = records.text[name].values()
        elif name in amounts:
            data[name] = pd.Series(records.numbers[name])
        else:
            data[name] = raw[name].reset_index(drop=True)
    return Population(
        pd.DataFrame(data, index=pd.RangeIndex(records.n)), roles.outcomes, roles.by, roles.strata,
        size, roles.psu, drawn,
    )  # fmt: skip


def _problems(
    spec: Spec, raw: pd.DataFrame, records: Records, roles: Roles, size: str | None
) -> Iterator[str]:
    if records.dropped:
        counts = {name: int(raw[name].isna().sum()) for name in roles.needed}
        cells = "; ".join(f"{name!r}: {count:,}" for name, count in counts.items() if count)
        yield (
            f"{records.dropped:,} units have blank or missing cells{f' ({cells})' if cells else ''}"
            ". The truth needs every value: fill them in, or take these units out of the frame."
        )
    yield from predictor_problems(records, roles)
    outcomes = spec.declared
    for outcome in outcomes:
        if wrong := outcome_problem(records.numbers[outcome.name], outcome):
            yield wrong
    for statistic in spec.binary_statistics:
        for position in zero_one(outcomes) or range(len(outcomes)):
            outcome = outcomes[position]
            yield from binary_problems(records.numbers[outcome.name], outcome, statistic)
    sizes = np.ones(1) if size is None else records.numbers[size]
    if beyond := int((~np.isfinite(sizes) | (sizes <= 0)).sum()):
        yield (
            f"size: {beyond:,} units have a size of {size!r} that is not a finite number above "
            "zero; they could not be drawn. Correct them, or take them out of the frame."
        )


def check_design(design: SamplingDesign, population: Population, spec: Spec) -> None:
    """Raise ``InputError`` if the design does not fit the frame or the specification."""
    survey = spec.survey
    if design.two_stage and survey.psu is None:
        raise InputError("design 'two_stage' needs clusters: name their column in survey.psu.")
    if not design.two_stage and survey.psu is not None:
        raise InputError(
            f"design {design.kind!r} draws no clusters, but survey.psu names some; use 'two_stage'."
        )
    with_replacement = design.kind == "pps_wr" or (design.two_stage and design.clusters != "srs")
    if survey.fpc is not None and with_replacement:
        raise InputError(
            "survey.fpc: a sample with replacement has no finite-population correction; choose "
            "another design, or leave fpc out of the specification."
        )
    if survey.stratum_sizes is not None and design.kind != "srs":
        raise InputError(
            "survey.population_size by stratum is for simple random samples within strata; use "
            f"design 'srs', not {design.kind!r}."
        )
    if design.n > population.n_units:
        raise InputError(
            f"n: samples of {design.n:,} records from a frame of {population.n_units:,} units; "
            "lower n."
        )
    few = [rows for rows in population.stratum_rows if rows.size < 2]
    if few and design.kind in ("pps", "srs"):
        label = population.frame[population.strata].iloc[few[0][0]]
        raise InputError(
            f"{len(few):,} strata of the frame have one unit, such as {str(label)!r}; every "
            "stratum needs two. Combine strata."
        )
    design.check(population)


def sample_spec(spec: Spec, population: Population) -> Spec:
    """Return a specification for samples of the frame, with its public sizes and totals.

    Rows that a release would withhold are kept, so that all are judged.
    """
    survey = spec.survey
    # The samples of a study have design weights.
    changes: dict[str, Any] = {"weights_from": None}
    if survey.stratum_sizes is not None:
        counts = population.frame[survey.strata].value_counts()
        changes["population_size"] = {str(name): float(size) for name, size in counts.items()}
    elif survey.population_size is not None:
        changes["population_size"] = float(population.n_units)
    unwithheld = {
        "calibration": tuple(
            each.model_copy(update={"totals": _totals(each.by, each.amount, population)})
            for each in spec.calibration
        ),
        "tables": tuple(_unwithheld(each) for each in spec.tables),
        "shared": None if spec.shared is None else _unwithheld(spec.shared),
    }
    return spec.model_copy(update={"survey": survey.model_copy(update=changes), **unwithheld})


def _totals(by: tuple[str, ...], amount: str | None, population: Population) -> Any:
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
    rules = tables.flags.removesuffix("_marked") if isinstance(tables.flags, str) else "none"
    flags = rules if rules == "none" else f"{rules}_marked"
    return tables.model_copy(update={"flags": flags})


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
