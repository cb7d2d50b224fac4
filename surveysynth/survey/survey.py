"""A survey as two objects that never mix: what is public, and what is confidential.

Everything is validated once, here. ``PublicDesign`` holds no outcome and no weight, so whatever
takes only a ``PublicDesign`` cannot publish one (methods 1).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.checks import (
    EFFECT_WITHOUT_PSU,
    LONELY_RULES,
    MAX_DESIGN_EFFECT,
    Roles,
    check_binary,
    check_by_levels,
    check_not_determined,
    check_not_determined_within,
    check_outcome,
    check_roles,
    check_strata,
    check_varying,
    check_weight,
    sampling_fractions,
)
from surveysynth.survey.columns import TextColumn
from surveysynth.survey.design_matrix import DesignMatrix, build_design_matrix
from surveysynth.survey.formula import parse_formula
from surveysynth.survey.records import Records, read_records
from surveysynth.survey.transforms import Transform


@dataclass(frozen=True, eq=False)
class PublicDesign:
    """All that is public about a sample of n records: never an outcome, never a weight.

    - ``frame``: n rows in file order, public columns only; by, strata and psu columns as text,
      numeric predictors as numbers, everything else as text.
    - ``levels``: levels of each by column in table order (a labelled level may have no record).
    - ``strata``: (n,) codes 0..H-1; ``psu``: (n,) codes unique across strata (a label in two
      strata is two PSUs, as R's ``nest = TRUE``); ``fpc``: (H,) sampling fractions n_h/N_h of
      PSUs, or of records where there are none; each ``None`` when not given.
    - ``design_effect``: the declared factor by which clustering raises variances, or ``None``.
    - ``population_size``: the public N or ``None``; ``transforms``: one per outcome.
    - ``predictors``: raw columns used by the formula; ``public_columns``: shipped besides.
    - ``dropped``: records left out because a cell was blank (``missing = "drop"``).
    """

    frame: pd.DataFrame
    by: tuple[str, ...]
    levels: dict[str, tuple[str, ...]]
    matrix: DesignMatrix
    strata: IntArray | None
    psu: IntArray | None
    fpc: FloatArray | None
    lonely_psu: str
    population_size: float | None
    transforms: tuple[Transform, ...]
    outcome_names: tuple[str, ...]
    weight_name: str | None
    public_columns: tuple[str, ...]
    predictors: tuple[str, ...]
    dropped: int
    strata_name: str | None = None
    psu_name: str | None = None
    fpc_name: str | None = None
    design_effect: float | None = None

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.frame)

    def in_order(self, order: IntArray) -> "PublicDesign":
        """The same design with its records in another order (n,), cells of X numbered anew."""
        frame = self.frame.iloc[order].reset_index(drop=True)
        matrix = build_design_matrix(
            frame, self.matrix.formula, by=self.by, strata=self.strata_name
        )
        return replace(
            self,
            frame=frame,
            matrix=matrix,
            strata=None if self.strata is None else self.strata[order],
            psu=None if self.psu is None else self.psu[order],
        )


@dataclass(frozen=True, eq=False, repr=False)
class Confidential:
    """Outcomes (n, p) in original units and sampling weights (n,) or ``None``.

    Its text shows sizes only, and it refuses to be pickled, so that it lands in no log and no file
    by accident. The arrays are read-only.
    """

    outcome: FloatArray
    sampling_weight: FloatArray | None

    def __post_init__(self) -> None:
        for values in (self.outcome, self.sampling_weight):
            if values is not None:
                values.setflags(write=False)

    def __repr__(self) -> str:
        n, p = self.outcome.shape
        weight = "none" if self.sampling_weight is None else f"{n} values"
        return f"Confidential(outcome: {n} x {p} values, sampling_weight: {weight})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Confidential holds confidential values and is not pickled or copied.")


@dataclass(frozen=True, eq=False)
class Survey:
    """A validated survey: its public design and its confidential values, row by row the same."""

    design: PublicDesign
    confidential: Confidential

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        outcome: str | Sequence[str],
        weight: str | None = None,
        by: Sequence[str] = (),
        strata: str | None = None,
        psu: str | None = None,
        fpc: str | None = None,
        lonely_psu: str = "fail",
        design_effect: float | None = None,
        population_size: float | None = None,
        predictors: str | None = None,
        transforms: Transform | Sequence[Transform] = Transform(),  # noqa: B008  (frozen)
        public_columns: Sequence[str] = (),
        missing: str = "fail",
        level_order: Mapping[str, Sequence[str]] | None = None,
        margin_labels: Mapping[str, str] | None = None,
        statistics: Sequence[str] = (),
        refuse_degenerate: bool = True,
        binary_for: Sequence[str] = (),
        source: str = "the data frame",
    ) -> "Survey":
        """Validate a frame of records and split it into its public and confidential parts.

        ``predictors``: formula over public columns, or ``None`` for the default of methods 3.
        ``level_order``: levels of by columns in table order (all that occur). ``margin_labels``:
        name of the margin of a by column, "All" unless given. ``statistics``: tables to be made,
        which need a weight; ``binary_for``: those of them that need an outcome of 0 and 1 as it is
        ("proportion"). ``design_effect``: public factor by which the PSUs raise variances, for
        models without effects of PSUs (methods 3). ``refuse_degenerate``: False takes outcomes and
        weights that do not vary or that X determines as well, for a mechanism that may refuse
        nothing by what the values are (strict 1). ``source``: what messages call the data.

        Raises ``InputError`` for anything that the methods cannot take; the message counts
        confidential cells and never shows one.
        """
        outcomes = (outcome,) if isinstance(outcome, str) else tuple(outcome)
        roles = make_roles(
            outcomes, weight, tuple(by), strata, psu, fpc, predictors, tuple(public_columns)
        )
        each = (transforms,) * len(outcomes) if isinstance(transforms, Transform) else transforms
        _check_settings(roles, tuple(each), lonely_psu, missing, statistics, source)
        check_roles(roles, _column_names(frame, source), source)
        records = read_records(frame, roles, missing, source)
        orders = {name: tuple(order) for name, order in (level_order or {}).items() if order}
        check_by_levels(records.text, roles.by, orders, margin_labels or {}, source)
        _check_values(records, roles, tuple(each), binary_for, source)
        if refuse_degenerate:
            _check_varying(records, roles, tuple(each), source)
        n_public = _population_size(population_size, records.n, source)
        _check_design_effect(design_effect, psu)
        design = _public_design(
            records, roles, tuple(each), predictors, lonely_psu, n_public, orders, source,
            design_effect,
        )  # fmt: skip
        confidential = _confidential(records, roles)
        if refuse_degenerate:
            _check_determined(design, confidential, roles, source)
        return cls(design, confidential)

    def in_order(self, order: IntArray) -> "Survey":
        """The same records in another order (n,)."""
        weight = self.confidential.sampling_weight
        outcome = self.confidential.outcome[order]
        taken = Confidential(outcome, None if weight is None else weight[order])
        return Survey(self.design.in_order(order), taken)


def public_design(
    frame: pd.DataFrame,
    roles: Roles,
    transforms: tuple[Transform, ...],
    *,
    predictors: str | None,
    lonely_psu: str,
    population_size: float | None,
    orders: Mapping[str, Sequence[str]],
    design_effect: float | None,
    source: str,
    missing: str = "fail",
) -> PublicDesign:
    """The public half alone, of a frame with public columns: ``Survey.from_frame`` makes the same
    of these and more. Outcomes and the weight of ``roles`` are names, and are not looked for;
    ``missing`` is about public columns. Raises ``InputError`` as it does."""
    records = read_records(frame, replace(roles, outcomes=(), weight=None), missing, source)
    size = _population_size(population_size, records.n, source)
    return _public_design(
        records, roles, transforms, predictors, lonely_psu, size, orders, source, design_effect
    )


def make_roles(
    outcomes: tuple[str, ...],
    weight: str | None,
    by: tuple[str, ...],
    strata: str | None,
    psu: str | None,
    fpc: str | None,
    formula: str | None,
    public_columns: tuple[str, ...],
) -> Roles:
    """Which column plays which part; raises ``InputError`` for a formula that cannot be parsed."""
    predictors = () if formula is None else parse_formula(formula).variables
    return Roles(outcomes, weight, by, strata, psu, fpc, predictors, public_columns)


def _column_names(frame: Any, source: str) -> tuple[str, ...]:
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"{source}: expected a pandas DataFrame, got {type(frame).__name__}.")
    names = [str(name) for name in frame.columns]
    repeated = sorted({name for name in names if name.strip() and names.count(name) > 1})
    if repeated:
        raise InputError(f"{source}: the column name {repeated[0]!r} occurs more than once.")
    return tuple(name for name in frame.columns if isinstance(name, str))


def _check_settings(
    roles: Roles,
    transforms: tuple[Transform, ...],
    lonely_psu: str,
    missing: str,
    statistics: Sequence[str],
    source: str,
) -> None:
    """Raise ``InputError`` for settings that are wrong whatever the data."""
    if lonely_psu not in LONELY_RULES:
        raise InputError(
            f"lonely_psu must be one of {', '.join(LONELY_RULES)}, got {lonely_psu!r}."
        )
    if missing not in ("fail", "drop"):
        raise InputError(f"missing must be 'fail' or 'drop', got {missing!r}.")
    if len(transforms) != len(roles.outcomes):
        raise InputError(
            f"transforms: expected one or as many as outcomes ({len(roles.outcomes)}), got "
            f"{len(transforms)}."
        )
    if statistics and roles.weight is None:
        raise InputError(
            f"{source}: the tables of a survey need the column of sampling weights; give weight."
        )


def _check_values(
    records: Records,
    roles: Roles,
    transforms: tuple[Transform, ...],
    binary_for: Sequence[str],
    source: str,
) -> None:
    """Raise ``InputError`` for outcome or weight values that the methods cannot take."""
    if roles.weight is not None:
        check_weight(records.numbers[roles.weight], roles.weight, source)
    for name, transform in zip(roles.outcomes, transforms, strict=True):
        check_outcome(records.numbers[name], name, transform, source)
        for statistic in binary_for:
            check_binary(records.numbers[name], name, transform, statistic, source)


def _check_varying(
    records: Records, roles: Roles, transforms: tuple[Transform, ...], source: str
) -> None:
    for name, transform in zip(roles.outcomes, transforms, strict=True):
        check_varying(records.numbers[name], name, transform, source)


def _population_size(size: float | None, n: int, source: str) -> float | None:
    if size is None:
        return None
    if not (math.isfinite(size) and size > 0):
        raise InputError(f"population_size must be a finite number above zero, got {size!r}.")
    if size < n:
        raise InputError(
            f"{source}: population_size is {size:,.0f}, below the {n:,} records of the sample; "
            "expected the number of units in the population."
        )
    return float(size)


def _check_design_effect(design_effect: float | None, psu: str | None) -> None:
    if design_effect is None:
        return
    if psu is None:
        raise InputError(EFFECT_WITHOUT_PSU)
    if not 1.0 <= design_effect <= MAX_DESIGN_EFFECT:
        raise InputError(
            f"design_effect must lie between 1 and {MAX_DESIGN_EFFECT}, got {design_effect!r}."
        )


def _public_design(
    records: Records,
    roles: Roles,
    transforms: tuple[Transform, ...],
    formula: str | None,
    lonely_psu: str,
    population_size: float | None,
    orders: Mapping[str, Sequence[str]],
    source: str,
    design_effect: float | None,
) -> PublicDesign:
    """Codes and the model matrix."""
    strata, psu, fpc = _sample_codes(records, roles, lonely_psu, source)
    frame = records.public_frame(roles)
    matrix = build_design_matrix(
        frame,
        formula,
        by=roles.by,
        strata=roles.strata,
        outcome_names=roles.outcomes,
        weight_name=roles.weight,
    )
    return PublicDesign(
        frame=frame,
        by=roles.by,
        levels={name: _levels(records.text[name], orders.get(name)) for name in roles.by},
        matrix=matrix,
        strata=strata,
        psu=psu,
        fpc=fpc,
        lonely_psu=lonely_psu,
        population_size=population_size,
        transforms=transforms,
        outcome_names=roles.outcomes,
        weight_name=roles.weight,
        public_columns=roles.public_columns,
        predictors=parse_formula(matrix.formula).variables,
        dropped=records.dropped,
        strata_name=roles.strata,
        psu_name=roles.psu,
        fpc_name=roles.fpc,
        design_effect=None if design_effect is None else float(design_effect),
    )


def _confidential(records: Records, roles: Roles) -> Confidential:
    outcome = np.stack([records.numbers[name] for name in roles.outcomes], axis=1)
    # A copy: the column may be a view of the caller's frame.
    weight = None if roles.weight is None else records.numbers[roles.weight].copy()
    return Confidential(outcome, weight)


def _check_determined(
    design: PublicDesign, confidential: Confidential, roles: Roles, source: str
) -> None:
    """Raise ``InputError`` where X or the PSUs tell an outcome or the weight."""
    pairs = zip(design.transforms, confidential.outcome.T, strict=True)
    transformed = np.stack([transform.forward(values) for transform, values in pairs], axis=1)
    kinds = [transform.kind for transform in design.transforms]
    weight = confidential.sampling_weight
    log_weight = None if weight is None else np.log(weight)
    check_not_determined(design.matrix, transformed, log_weight, roles, kinds, source)
    if design.psu is not None and design.design_effect is None:
        # The model is to have effects of the units.
        check_not_determined_within(
            design.matrix, design.psu, transformed, log_weight, roles, source
        )


def _sample_codes(
    records: Records, roles: Roles, lonely_psu: str, source: str
) -> tuple[IntArray | None, IntArray | None, FloatArray | None]:
    """Codes of strata (n,) and of nested PSUs (n,), and sampling fractions (H,)."""
    strata = records.text[roles.strata].codes if roles.strata is not None else None
    psu = _nested_codes(records.text[roles.psu].codes, strata) if roles.psu is not None else None
    sizes = check_strata(strata, psu, records.n, lonely_psu, source)
    if roles.fpc is None:
        return strata, psu, None
    fpc = sampling_fractions(records.numbers[roles.fpc], strata, sizes, roles.fpc, source)
    return strata, psu, fpc


def _levels(column: TextColumn, order: Sequence[str] | None) -> tuple[str, ...]:
    return column.levels if order is None else tuple(order)


def _nested_codes(psu: IntArray, strata: IntArray | None) -> IntArray:
    """PSU codes unique across strata: a label in two strata names two PSUs."""
    pairs = psu if strata is None else strata * (int(psu.max(initial=0)) + 1) + psu
    return np.asarray(np.unique(pairs, return_inverse=True)[1], dtype=np.int64)
