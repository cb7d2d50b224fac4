"""The public half of a survey: who is in the sample and how it was drawn, but no answers.

Public weights are a column of the file or follow from population counts by stratum. They are
published unchanged, are not part of the confidential half, and no mechanism changes them. Where
records with the same row of X have different weights, the log weight becomes a predictor: otherwise
weighted means of synthetic outcomes would be biased.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing, nearest, raise_problems
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.columns import TextColumn, encode
from surveysynth.survey.declaration import UNKNOWN, Declaration, Facts
from surveysynth.survey.design_matrix import DesignMatrix, build_design_matrix
from surveysynth.survey.formula import parse_formula, quote
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.pooling import Pooling, pool
from surveysynth.survey.records import (
    Records,
    level_problems,
    public_problems,
    read_records,
    undeclared_levels,
    weight_value_problem,
)
from surveysynth.survey.transforms import LearnedTransform, Transform

#: Names for the columns computed from stratum sizes; the first that no other column has.
WEIGHT_NAMES = ("weight", "sampling_weight", "design_weight", "stratum_weight")
FRACTION_NAMES = ("sampling_fraction", "stratum_fraction", "design_fraction", "fraction_sampled")
#: SD of log weights within cells of X at or below which X determines the weight.
WEIGHT_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PublicDesign(Facts):
    """All that is public about a sample of n records: no outcome and no confidential weight.

    ``Survey.from_frame`` makes it. Its ``repr`` shows the sample size and the role of each column.
    It has the declared ``Facts`` too.

    Attributes
    ----------
    frame
        n rows in file order, public columns only; by, strata and psu columns as text, numeric
        predictors as numbers, everything else as text.
    by
        Columns by which tables are made.
    levels
        Levels of each by column in table order (a labeled level may have no record).
    matrix
        The model matrix X (n, k) and its formula.
    strata
        Codes (n,) from 0 to H - 1; None if there are no strata.
    psu
        Codes (n,) unique across strata (a label in two strata is two PSUs, as with R's
        ``nest = TRUE``); None if records were drawn directly.
    fpc
        Sampling fractions (H,), n_h / N_h of PSUs, or of records if there are no PSUs; or None.
    weight_name
        Column of the confidential sampling weight, whose name is public; None if the weight is
        public or there is none.
    public_columns
        Columns in the microdata besides those with a role.
    predictors
        Raw columns used by the formula.
    dropped, shift
        Records left out (``missing = "drop"``), and what this does to counts, in words.
    strata_name, psu_name, fpc_name
        Columns of the sampling design, or None.
    public_weight, public_weight_name
        Public sampling weights (n,), published unchanged, and their column; or None.
    pooling
        The parts that ``matrix`` pools because they have few records; None for nothing.
    calibrated_by
        Public columns by which synthetic weights are calibrated; None without calibration.
    pseudo
        Records that the prior of a count is worth, where risk weights protect; else None.
    dispersion
        Variance over the model's that the least number of records allows for.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.example_survey(n=200).design
    PublicDesign of 200 records, population 100,000
      by        field (8 levels), gender (2)
      strata    field (8)
      outcome   salary, as log(salary)
      weight    weight
      model     ~ field + gender + field:gender
      shrunken  field:gender (kappa 0.3, worth 11 records)
    """

    frame: pd.DataFrame
    by: tuple[str, ...]
    levels: dict[str, tuple[str, ...]]
    matrix: DesignMatrix
    strata: IntArray | None
    psu: IntArray | None
    fpc: FloatArray | None
    weight_name: str | None
    public_columns: tuple[str, ...]
    predictors: tuple[str, ...]
    dropped: int
    strata_name: str | None = None
    psu_name: str | None = None
    fpc_name: str | None = None
    public_weight: FloatArray | None = None
    public_weight_name: str | None = None
    pooling: Pooling | None = None
    calibrated_by: tuple[str, ...] | None = None
    pseudo: float | None = None
    dispersion: float = 1.0
    shift: str = ""

    def __post_init__(self) -> None:
        if self.public_weight is not None:
            self.public_weight.setflags(write=False)

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.frame)

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """Columns of the outcomes."""
        return tuple(outcome.name for outcome in self.outcomes)

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """Transform of each outcome."""
        return tuple(outcome.transform for outcome in self.outcomes)

    @property
    def modelled(self) -> tuple[Outcome, ...]:
        """The columns of a model: the outcomes, then the confidential weight as an amount."""
        if self.weight_name is None:
            return self.outcomes
        return (*self.outcomes, Outcome(self.weight_name, transform=self.weight_transform))

    @property
    def learns_weight(self) -> bool:
        """True if the transform of the confidential weight is learned."""
        return self.weight_name is not None and self.weight_transform.kind == "learned"

    def require_log_weight(self, model: str) -> None:
        """Raise ``InputError`` if the transform of the weight is learned."""
        if self.learns_weight:
            raise InputError(
                f"The model {model!r} needs the logarithm of the weight, whose transform cannot be "
                "learned: leave out the range of the weight, or use the model 'fbs'."
            )

    @property
    def weight_words(self) -> str:
        """The weight as a column of a model, in words."""
        return "learned weight" if self.learns_weight else "log weight"

    @property
    def confidential_sources(self) -> tuple[str, ...]:
        """Columns that the weights were computed from and that are not among the public ones."""
        declared = self.weights_from
        known = {*map(str, self.frame.columns), self.fpc_name}
        return () if declared is None or declared == UNKNOWN else tuple(
            name for name in declared if name not in known
        )

    def __repr__(self) -> str:
        size = self.population_size
        population = "" if size is None else f", population {size:,.10g}"
        dropped = f" ({self.dropped:,} more left out)" if self.dropped else ""
        first = f"PublicDesign of {self.n:,} records{dropped}{population}"
        return "\n".join([first, *self.lines()])

    def lines(self) -> list[str]:
        """Return one line per role, for ``repr``."""
        by = [
            f"{name} ({len(self.levels[name])}{' levels' * (place == 0)})"
            for place, name in enumerate(self.by)
        ]
        strata, units = (
            name and f"{name} ({0 if codes is None else int(codes.max()) + 1:,})"
            for name, codes in ((self.strata_name, self.strata), (self.psu_name, self.psu))
        )
        effect = f", design effect {self.design_effect:g}" if self.design_effect else ""
        public = self.public_weight_name
        parts = {
            "by": ", ".join(by),
            "strata": strata,
            "PSUs": units and units + effect,
            "fpc": self.fpc_name,
            "outcome": "; ".join(outcome.words for outcome in self.outcomes),
            "weight": self.weight_name if public is None else f"{public}, public",
            "model": f"~ {self.matrix.formula}",
            "shrunken": self.matrix.shrunken_words,
            "pooled": self.pooling and self.pooling.words,
            "public": ", ".join(self.public_columns),
        }
        return [f"  {part:<9} {text}" for part, text in parts.items() if text]

    def with_by(
        self,
        by: Sequence[str],
        orders: Mapping[str, Sequence[str]] | None = None,
        margins: Mapping[str, str] | None = None,
    ) -> "PublicDesign":
        """Return the same design for tables by other columns that the model has.

        Parameters
        ----------
        by
            Columns of the frame that are by columns of the survey or are in the formula.
        orders
            Levels in table order (all that occur), of columns with an order of their own.
        margins
            Names of margins, "All" by default.

        Raises
        ------
        InputError
            For a column that is not public, that X lacks or treats as a number, and for levels that
            cannot make a table.
        """
        source, orders = "tables of this survey", {**self.levels, **(orders or {})}
        raise_problems(source, [text for name in by if (text := self._problem_of(name))])
        columns = {name: TextColumn(*encode(self.frame[name].astype("str"))) for name in by}
        raise_problems(source, level_problems(columns, by, orders, margins or {}))
        levels = {name: tuple(orders.get(name) or columns[name].levels) for name in by}
        return replace(self, by=tuple(by), levels=levels)

    def _problem_of(self, name: str) -> str:
        """Return why tables cannot be made by a column; empty if they can."""
        again = f"Create the survey again with {name!r} in by."
        if name in (*self.outcome_names, self.weight_name):
            return f"by: {name!r} is confidential; name a public column."
        if name not in self.frame:
            known = tuple(map(str, self.frame))
            return (
                f"by: {name!r} is not among the public columns of the survey "
                f"({listing(known) or 'none'}).{nearest(name, known)} {again}"
            )
        if name in self.by:
            return ""
        if name not in self.predictors:
            return (
                f"by: {name!r} is not in the model ({self.matrix.formula}), so synthetic records "
                f"would not differ by it. {again} A formula of your own must contain it."
            )
        if pd.api.types.is_numeric_dtype(self.frame[name]):
            return f"by: {name!r} is a number in the model, not a classification. {again}"
        return ""

    @cached_property
    def strata_in_cells(self) -> bool:
        """True if records with equal rows of X are of one stratum."""
        return self.strata is None or self.matrix.by_cell(self.strata) is not None

    def pooled(self, least: float) -> "PublicDesign":
        """Return the design with a model matrix of which every row rests on ``least`` records.

        As little as possible is pooled. Raises ``RefusedError`` if no pooling is enough.
        """
        columns = dict.fromkeys([*filter(None, [self.strata_name]), *self.by])
        matrix, pooling = pool(self.frame, self.matrix, tuple(columns), least)
        return self if pooling is None else replace(self, matrix=matrix, pooling=pooling)

    def with_interaction_scale(self, scale: float) -> "PublicDesign":
        """Return the design for a model that shrinks interactions by this prior SD."""
        if scale == self.matrix.interaction_scale:
            return self
        return replace(self, matrix=replace(self.matrix, interaction_scale=scale))

    def in_order(self, order: IntArray) -> "PublicDesign":
        """Return the design with its records in another order (n,), and cells of X renumbered."""
        if self.pooling is not None:
            raise InputError(
                "the records of a pooled design cannot be reordered; reorder them before pooling."
            )
        frame = self.frame.iloc[order].reset_index(drop=True)
        matrix = replace(
            build_design_matrix(
                frame, self.matrix.formula, by=self.by, strata=self.strata_name,
                unit_effects=True,  # what X contains was checked when it was built
            ),
            interaction_scale=self.matrix.interaction_scale,
            left_out=self.matrix.left_out,
        )
        return replace(
            self,
            frame=frame,
            matrix=matrix,
            strata=None if self.strata is None else self.strata[order],
            psu=None if self.psu is None else self.psu[order],
            public_weight=None if self.public_weight is None else self.public_weight[order],
        )


def public_design(frame: pd.DataFrame, declaration: Declaration) -> PublicDesign:
    """Return the public half alone, from a frame with the public columns.

    Outcomes and the confidential weight are names, and the frame need not have them. The result
    equals that of ``Survey.from_frame``. Raises ``InputError`` as it does for public columns.
    """
    records = read_records(frame, declaration.public_part())
    return build_public_design(records, declaration, public_problems(records, declaration))


def build_public_design(
    records: Records, declaration: Declaration, problems: list[str]
) -> PublicDesign:
    """Return codes and the model matrix; the log of a public weight may join the predictors.

    Raises ``InputError`` with ``problems``, which other checks found, and those of the design.
    """
    roles = declaration.roles
    design = design_columns(records, declaration, problems)
    problems += _range_problems(declaration, records.n)
    raise_problems(declaration.source, problems)
    size, weight_transform = declaration.population_size, declaration.weight_transform
    if isinstance(weight_transform, LearnedTransform) and size is not None:
        weight_transform = weight_transform.of_weights(size / records.n)
    frame = records.public_frame(roles)
    if design.weight_name is not None and design.weight_name not in frame:
        frame[design.weight_name] = design.weight
    build = partial(
        build_design_matrix, frame, by=roles.by, strata=roles.strata,
        outcome_names=roles.outcomes, weight_name=roles.weight,
        unit_effects=design.psu is not None and declaration.design_effect is None,
    )  # fmt: skip
    matrix = build(declaration.predictors)
    if longer := with_log_weight(matrix.formula, design, matrix.cell):
        matrix = replace(build(longer), by_default=matrix.by_default, left_out=matrix.left_out)
    orders = declaration.orders
    facts = {**declaration.facts, "weight_transform": weight_transform}
    for name in ("population_size", "design_effect"):
        facts[name] = facts[name] and float(facts[name])
    return PublicDesign(
        **facts,
        frame=frame,
        by=roles.by,
        levels={name: tuple(orders.get(name) or records.text[name].levels) for name in roles.by},
        matrix=matrix,
        strata=design.strata,
        psu=design.psu,
        fpc=design.fractions,
        weight_name=roles.weight,
        public_columns=roles.public_columns,
        predictors=parse_formula(matrix.formula).variables,
        dropped=records.dropped,
        shift=records.shift,
        strata_name=roles.strata,
        psu_name=roles.psu,
        fpc_name=design.fraction_name,
        public_weight=design.weight,
        public_weight_name=design.weight_name,
    )


def _range_problems(declaration: Declaration, n: int) -> list[str]:
    """Return why no weights within the public range of the weight can add up to N."""
    given, size = declaration.weight_transform, declaration.population_size
    if not isinstance(given, LearnedTransform):
        return []
    if given.relative:
        return [] if size is not None else [
            "the range of the weight is in mean weights N/n: population_size is missing."
        ]  # fmt: skip
    if declaration.weights == "public":
        return ["weight_transform: public weights are not modeled; leave it out."]
    if given.low <= 0:
        return [f"the range of the weight must start above zero, got {given.low!r}."]
    if size is None or not n or given.low < size / n < given.high:
        return []
    return [
        f"the range of the weight, {given.low:,.10g} to {given.high:,.10g}, does not contain the "
        f"mean weight, population_size over records, {size / n:.6g}: correct one of them."
    ]


@dataclass(frozen=True)
class DesignColumns:
    """Codes of strata and of nested PSUs, weight (n,), and sampling fractions n_h/N_h (H,)."""

    strata: IntArray | None
    psu: IntArray | None
    weight: FloatArray | None = None
    weight_name: str | None = None
    fractions: FloatArray | None = None
    fraction_name: str | None = None


def design_columns(
    records: Records, declaration: Declaration, problems: list[str]
) -> DesignColumns:
    """Return the columns of the sample design; what is wrong with them joins ``problems``."""
    roles, stratum_sizes = declaration.roles, declaration.stratum_sizes
    strata = records.text[roles.strata].codes if roles.strata is not None else None
    stratum = np.zeros(records.n, dtype=np.int64) if strata is None else strata
    psu, of_unit = None, stratum
    if roles.psu is not None:
        label = records.text[roles.psu].codes  # a label in two strata names two PSUs
        nested = stratum * (int(label.max(initial=0)) + 1) + label
        _, first, psu = np.unique(nested, return_index=True, return_inverse=True)
        psu, of_unit = psu.astype(np.int64), stratum[first]
    units = np.bincount(of_unit).astype(np.int64)
    lonely = int(np.count_nonzero(units == 1))
    if lonely and declaration.lonely_psu == "fail":
        has = f"{lonely:,} of {units.size:,} strata {'has' if lonely == 1 else 'have'}"
        problems.append(
            f"{'the sample has' if strata is None else has} one "
            f"{'record' if psu is None else 'PSU'}, so the variance within the stratum cannot be "
            "estimated; merge strata, or set lonely_psu to 'adjust', 'average', 'remove', or "
            "'certainty'."
        )
    weight = fractions = None
    if stratum_sizes is not None and roles.strata is not None:
        of_strata = records.text[roles.strata]
        if of_sizes := _size_problems(of_strata, units, stratum_sizes):
            problems += of_sizes
            return DesignColumns(strata, psu)
        sizes = np.array([stratum_sizes[level] for level in of_strata.levels])
        counts = units.astype(np.float64)
        weight_name, fraction_name = (
            next(name for name in (*names, f"{names[0]}_") if name not in roles.needed)
            for names in (WEIGHT_NAMES, FRACTION_NAMES)
        )
        return DesignColumns(
            strata, psu, (sizes / counts)[of_strata.codes], weight_name, counts / sizes,
            fraction_name,
        )  # fmt: skip
    if roles.public_weight is not None:
        # A copy: the column may be a view of the caller's frame.
        weight = records.numbers[roles.public_weight].copy()
        if wrong := weight_value_problem(weight, roles.public_weight):
            problems.append(wrong)
    if roles.fpc is not None:
        fpc = records.numbers[roles.fpc]
        fractions = _sampling_fractions(fpc, stratum, units, roles.fpc, problems)
    return DesignColumns(strata, psu, weight, roles.public_weight, fractions, roles.fpc)


def _sampling_fractions(
    fpc: FloatArray, stratum: IntArray, units: IntArray, name: str, problems: list[str]
) -> FloatArray:
    """Return the sampling fraction n_h/N_h of each stratum (H,) from a column (n,).

    The column has fractions if no value is above 1, otherwise population sizes counted in sampling
    units (PSUs, or records).
    """
    if not np.isfinite(fpc).all() or (fpc < 0).any():
        problems.append(f"fpc {name!r}: expected finite numbers, none negative.")
        return fpc
    by_stratum = np.zeros(units.size)
    by_stratum[stratum] = fpc
    varying = np.unique(stratum[by_stratum[stratum] != fpc]).size
    if varying:
        problems.append(
            f"fpc {name!r}: expected one value per stratum; it varies within {varying:,} of "
            f"{units.size:,} strata."
        )
    if varying or (by_stratum <= 1).all():
        return by_stratum
    if too_small := int(np.count_nonzero(by_stratum < units)):
        problems.append(
            f"fpc {name!r}: {too_small:,} of {units.size:,} strata have a population size below "
            "the number of sampling units in the sample. Give either population sizes or sampling "
            "fractions of at most 1 for all strata."
        )
        return by_stratum
    return np.asarray(units / by_stratum, dtype=np.float64)


def _size_problems(
    strata: TextColumn, counts: IntArray, stratum_sizes: Mapping[str, float]
) -> list[str]:
    """List stratum sizes that do not fit the strata of the records."""
    problems = []
    if undeclared := undeclared_levels(strata, tuple(stratum_sizes)):
        problems.append(f"population_size: {undeclared}")
    if unknown := [name for name in stratum_sizes if name not in strata.levels]:
        problems.append(
            f"population_size: no record lies in {listing(unknown)}. No weight represents a "
            "stratum without records: merge it with another, or remove it from the population."
        )
    small = [
        level
        for level, count in zip(strata.levels, counts, strict=True)
        if stratum_sizes.get(level, np.inf) < count
    ]
    if small:
        problems.append(
            f"population_size: below the number of sample records in {listing(small)}; give the "
            "number of units in the population."
        )
    return problems


def with_log_weight(formula: str, columns: DesignColumns, cell: IntArray) -> str | None:
    """Return the formula with the log weight added, or None where X determines the weight.

    ``cell``: (n,) cells of X. Weights are divided by a typical one: far from zero, the coefficient
    would depend on the intercept and samplers that draw one coefficient at a time would be slow.
    """
    if columns.weight is None or columns.weight_name is None:
        return None
    log_weight = np.log(columns.weight)
    count = np.bincount(cell)
    mean = np.bincount(cell, log_weight) / count
    if np.sqrt(np.mean((log_weight - mean[cell]) ** 2)) <= WEIGHT_TOLERANCE:
        return None
    typical = float(f"{np.exp(log_weight.mean()):.2g}")
    return f"{formula} + log({quote(columns.weight_name)} / {typical:.10g})"
