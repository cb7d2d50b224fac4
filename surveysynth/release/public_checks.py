"""Checks of a specification and its public columns, made before anything is spent.

A by column is public, and its levels are published as they stand in the file. A level of one record
may be an amount that was typed into the wrong column. Where levels are declared
([labels.COLUMN] levels) such a record is refused; where they are not, a warning counts them, and
``surveysynth check`` does not print them.

A ``Warned`` says what a warning is about, and ``Kind`` where it is shown. All are public.
"""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

import pandas as pd

from surveysynth.config.spec import Spec
from surveysynth.errors import (
    DroppedRecordsWarning,
    FewRecordsWarning,
    FormulaCutWarning,
    InputError,
    PublicWarning,
)
from surveysynth.mechanisms.base import gap_of_weights
from surveysynth.release.microdata import (
    check_names,
    format_of,
    public_column_names,
    synthetic_column_names,
    weight_column,
)
from surveysynth.release.tables.labels import Labels
from surveysynth.survey.declaration import RHO_FACTORS
from surveysynth.survey.records import LEAST_RECORDS, MAX_LEVELS
from surveysynth.survey.survey import PublicDesign


class Kind(Enum):
    """What a warning is about."""

    UNPUBLISHABLE = auto()
    GUARANTEE = auto()
    QUESTION = auto()
    RARE_LEVELS = auto()
    LEFT_OUT = auto()
    FORMULA = auto()
    FEW_RECORDS = auto()
    ACCURACY = auto()


#: Kinds that ``release`` shows with its last lines; ``check`` shows all of them.
LAST = frozenset({Kind.UNPUBLISHABLE, Kind.GUARANTEE, Kind.RARE_LEVELS, Kind.LEFT_OUT})
#: Kinds that ``release`` shows as Python warnings, before anything is spent.
BEFORE: Mapping[Kind, type[PublicWarning]] = {
    Kind.LEFT_OUT: DroppedRecordsWarning,
    Kind.FORMULA: FormulaCutWarning,
    Kind.FEW_RECORDS: FewRecordsWarning,
}


@dataclass(frozen=True)
class Warned:
    """One warning."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return self.text if self.kind is Kind.QUESTION else f"WARNING: {self.text}"


#: Of a preview: a detail, or a warning.
Line: TypeAlias = str | Warned


def last_messages(warned: Iterable[Warned]) -> tuple[Warned, ...]:
    """Return the warnings that stand with the last lines of a release."""
    return tuple(each for each in warned if each.kind in LAST)


def check_formats(spec: Spec, design: PublicDesign) -> None:
    """Raise ``InputError`` for names of columns that files of the microdata cannot have."""
    pair = spec.privacy.down_weights and spec.synthesizer.inference == "debiased"
    synthetic = synthetic_column_names(design, separate_pair=pair)
    check_names((*public_column_names(design), *synthetic), format_of(spec))


def check_calibrated_name(design: PublicDesign) -> None:
    """Raise ``InputError`` where a column already has the name of the calibrated weight."""
    name = weight_column(design)
    if name in design.frame or name in design.outcome_names:
        raise InputError(
            f"calibration: the microdata name the calibrated weight {name!r}, but the survey has "
            "a column of this name; rename it."
        )


#: A spike or a side of a split with fewer records has a spread and weights of its own that are
#: hardly determined.
LEAST_OF_A_KIND = 50


def public_warnings(spec: Spec, design: PublicDesign) -> tuple[Warned, ...]:
    """Return all that the specification and the public columns say against a release."""
    return (
        *delta_warning(spec, design), *weights_warning(design), *design_warnings(design),
        *rare_level_warnings(rare_levels(spec, design)),
    )  # fmt: skip


def design_warnings(design: PublicDesign) -> tuple[Warned, ...]:
    """Return what the public columns cost in accuracy."""
    return (
        *dropped_records_warning(design), *formula_warnings(design), *few_record_warnings(design)
    )  # fmt: skip


def weights_warning(design: PublicDesign) -> tuple[Warned, ...]:
    """Say which confidential answers may be in the weights, or ask; empty where none are."""
    if not gap_of_weights(design):
        return ()
    few, many = RHO_FACTORS
    if design.weights_from is None:
        return (Warned(
            Kind.QUESTION,
            "Weights: were they calibrated, or adjusted for nonresponse, by columns besides the "
            "sample design? Name these in survey.weights_from; [] means design weights. Until "
            "then the statement assumes that nobody's weight depends on the answers of others.",
        ),)  # fmt: skip
    return (Warned(
        Kind.GUARANTEE,
        f"{gap_of_weights(design)} If confidential answers went into them, the guarantee does not "
        f"hold as stated: on three public files rho was {few:g} to {many:g} times what is stated. "
        "The statement of the release names this gap.",
    ),)  # fmt: skip


def formula_warnings(design: PublicDesign) -> tuple[Warned, ...]:
    """Name the levels, cells, and interactions without coefficients of their own; or nothing."""
    texts = []
    if left_out := design.matrix.left_out:
        texts.append(
            f"The default formula leaves out {', '.join(left_out)}, whose cells have hardly any "
            "records, so these cells are modeled by main effects alone. Make these columns "
            "coarser, or write a formula of your own."
        )
    if design.matrix.by_default and not design.strata_in_cells:
        texts.append(
            f"The strata ({design.strata_name}) are many and their cells have few records, so they "
            "are no predictors: synthetic strata do not differ, and standard errors are a little "
            "larger than they could be. To keep them, write a formula of your own."
        )
    if design.pooling is not None:
        texts.append(
            f"The model's formula was cut, since few records support it: {design.pooling.words}. "
            f"{design.pooling.means} Make these columns coarser to decide yourself what is joined."
        )
    return tuple(Warned(Kind.FORMULA, text) for text in texts)


def few_record_warnings(design: PublicDesign) -> tuple[Warned, ...]:
    """Warn of kinds of values that have few records even if all kinds are equally common.

    How many records are at a spike is confidential; the number of records and of kinds is not.
    """
    return tuple(
        Warned(
            Kind.FEW_RECORDS,
            f"{outcome.name!r} has {kinds} kinds of values "
            f"({', '.join(outcome.category_names)}) and {design.n:,} records: "
            f"{design.n / kinds:,.0f} of each, if all are equally common. Kinds with fewer than "
            f"{LEAST_OF_A_KIND} have a spread and weights that are hardly determined, and their "
            "totals can be far off. Declare fewer spikes, or leave the outcome out.",
        )
        for outcome in design.outcomes
        if outcome.is_amount and (kinds := len(outcome.category_names)) > 1
        and design.n < LEAST_OF_A_KIND * kinds
    )


def dropped_records_warning(design: PublicDesign) -> tuple[Warned, ...]:
    """Warn where leaving out records with missing cells moves counts."""
    return (Warned(
        Kind.LEFT_OUT,
        f"{design.dropped:,} records with missing values are left out. {design.shift} Fill the "
        "cells in, leave the outcome with most blanks for a release of its own, or by noisy "
        "statistics set missing = \"model\".",
    ),) * bool(design.shift)  # fmt: skip


def warn_of_design(design: PublicDesign, stacklevel: int = 2) -> None:
    """Issue a Python warning for each of these reasons; all are public."""
    for each in design_warnings(design):
        if category := BEFORE.get(each.kind):
            warnings.warn(each.text, category, stacklevel=stacklevel + 1)


#: delta times the number of records: where the warning begins, and what it should be.
_LARGE, _SMALL = 0.1, 0.01


def delta_warning(spec: Spec, design: PublicDesign) -> tuple[Warned, ...]:
    """Warn of a delta that is too large, with the remedy; empty where it is not."""
    budget, n = spec.privacy.cost, design.n
    if budget is None or (delta := budget.delta) * n <= _LARGE:
        return ()
    smaller = 10.0 ** math.floor(math.log10(_SMALL / n))
    return (Warned(
        Kind.GUARANTEE,
        f"delta = {delta:.3g}, times the number of records ({n:,}), is {delta * n:.2g}; it should "
        "be far below 1, since delta is the chance that epsilon is exceeded, for each record. Set "
        f"delta = {smaller:.0e} or less in [privacy]: the same epsilon then has more noise, or the "
        "same rho a larger epsilon.",
    ),)  # fmt: skip


#: Shown instead of such a level where cells are listed.
NOT_SHOWN = "(rare level, not shown)"


def rare_levels(spec: Spec, design: PublicDesign) -> dict[str, tuple[str, ...]]:
    """Return undeclared levels with fewer than ``LEAST_RECORDS`` records, by public column.

    Units, columns of numbers, and columns with so many levels that they are names or notes of
    records are left out.
    """
    rare = {}
    for name in map(str, design.frame):
        label = spec.labels.get(name)
        numbers = pd.api.types.is_numeric_dtype(design.frame[name])
        if numbers or name == design.psu_name or (label is not None and label.levels):
            continue
        counts = design.frame[name].astype("str").value_counts()
        counts = counts[counts.index != ""]
        found = tuple(map(str, counts.index[counts < LEAST_RECORDS]))
        if found and len(counts) <= MAX_LEVELS:
            rare[name] = found
    return rare


def rare_level_warnings(rare: Mapping[str, tuple[str, ...]]) -> tuple[Warned, ...]:
    """Return one warning for each column, without a level."""
    return tuple(
        Warned(
            Kind.RARE_LEVELS,
            f"{name!r} has {len(levels):,} level{'s' * (len(levels) > 1)} of fewer than "
            f"{LEAST_RECORDS} records, published as written in the file. They may be values of "
            "another column, entered by mistake: look at the file, and list the valid levels in "
            f"[labels.{name}] levels; others are then refused.",
        )
        for name, levels in rare.items()
    )


def without_rare(labels: Labels, rare: Mapping[str, tuple[str, ...]]) -> Labels:
    """Return labels that show no rare level."""
    columns = dict(labels.columns)
    for name, levels in rare.items():
        given, hidden = labels.of(name), dict.fromkeys(levels, NOT_SHOWN)
        columns[name] = given.model_copy(update={"levels": {**given.levels, **hidden}})
    return Labels(columns)
