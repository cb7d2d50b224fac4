"""A survey as two separate objects: its public and its confidential half.

Everything is validated once, here. ``PublicDesign`` has no outcome and no confidential weight, so
code that takes only a ``PublicDesign`` cannot publish one (methods 1).
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import listing, raise_problems
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import ConfidentialWarning, InputError
from surveysynth.survey.columns import repeated_positions
from surveysynth.survey.declaration import (
    Declaration,
    declared_outcomes,
    declared_sizes,
    given_weights_from,
    make_roles,
)
from surveysynth.survey.design_matrix import DesignMatrix
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.public_design import PublicDesign, build_public_design, public_design
from surveysynth.survey.records import (
    confidential_problems,
    public_problems,
    read_records,
)
from surveysynth.survey.transforms import LearnedTransform, Transform

#: Residual standard deviation of log weight given X at or below which X determines the weight.
MIN_WEIGHT_SD = 0.01
#: The same for an outcome, as a share of its standard deviation (and absolute on a log scale).
MIN_OUTCOME_SHARE = 0.01
#: The same for its range on the model's scale, where it is constant.
_CONSTANT = 1e-9


def determined_problems(
    design: PublicDesign, outcome: FloatArray, weight: FloatArray | None
) -> list[str]:
    """List confidential columns that are constant, or (nearly) functions of X or of each other.

    Where a residual spread is near zero the density has no limit, so no bound of the
    pseudo-posterior holds (methods 1). ``outcome``: (n, p) plain amounts in original units;
    ``weight``: (n,), or None if it is not confidential. Residual spreads are those of least squares
    on X. Messages contain names, never a value.
    """
    matrix, names = design.matrix, list(design.outcome_names)
    values = np.stack(
        [each.transform.forward(own) for each, own in zip(design.outcomes, outcome.T, strict=True)],
        axis=1,
    )
    size = np.maximum(1.0, np.abs(values).max(axis=0))
    constant = np.ptp(values, axis=0) <= _CONSTANT * size
    if constant.any():
        return [
            f"outcome {name!r} is constant after its transform, so it cannot be modeled. Choose "
            "another outcome (or another scale)."
            for name, same in zip(names, constant, strict=True)
            if same
        ]
    freedom = matrix.n - matrix.n_columns
    if freedom <= 0:
        return [
            f"the predictors {matrix.formula!r} have as many columns as there are records "
            f"({matrix.n:,}), so nothing is left to model; use fewer predictors."
        ]
    # On a log scale the share of the spread is a share of one, too.
    floor = [1.0 if each.transform.kind == "log" else 0.0 for each in design.outcomes]
    least = MIN_OUTCOME_SHARE * np.maximum(values.std(axis=0), floor)
    if weight is not None:
        names.append(str(design.weight_name))
        values = np.column_stack([values, np.log(weight)])
        least = np.append(least, MIN_WEIGHT_SD)
    residuals = least_squares_residuals(matrix, values)
    known = np.sqrt((residuals**2).sum(axis=0) / freedom) < least
    why = (
        f"is (nearly) a function of the predictors {matrix.formula!r}: nothing of it is left to "
        "model."
    )
    problems = [
        f"outcome {name!r} {why} Remove the predictors that determine it."
        for name, determined in zip(design.outcome_names, known, strict=False)
        if determined
    ]
    if weight is not None and known[-1]:
        problems.append(
            f"weight {names[-1]!r} {why} If the weight is a constant of the sample design, set "
            "weights = 'public', which publishes it unchanged and without protection. Otherwise "
            "remove the predictors that determine it."
        )
    return problems or _problems_among(residuals, names)


def _problems_among(residuals: FloatArray, names: list[str]) -> list[str]:
    """Return a problem if one column of residuals is (nearly) a combination of the others."""
    length = np.sqrt((residuals**2).sum(axis=0))
    unit = residuals / length
    correlation = unit.T @ unit
    singular = bool(np.linalg.eigvalsh(correlation).min() < 1e-10)
    # 1 / diag(inverse) is the share of a column's variance that the others leave unexplained.
    if not singular and (
        1.0 / np.diag(np.linalg.inv(correlation)).max() >= MIN_OUTCOME_SHARE**2
    ):
        return []
    return [
        f"one column of {listing(names)} is (nearly) a function of the others and the predictors; "
        "remove an outcome, since it adds nothing."
    ]


def least_squares_residuals(matrix: DesignMatrix, values: FloatArray) -> FloatArray:
    """Return residuals (n, q) of the least-squares regressions of ``values`` (n, q) on X.

    Only the mean of each distinct row matters for the coefficients, so this takes O(G K^2).
    """
    count = np.bincount(matrix.cell, minlength=matrix.x_cells.shape[0]).astype(np.float64)
    sums = np.stack(
        [np.bincount(matrix.cell, weights=v, minlength=count.size) for v in values.T], axis=1
    )
    root = np.sqrt(count)[:, None]
    length = np.sqrt(np.einsum("ij,ij->j", root * matrix.x_cells, root * matrix.x_cells))
    scaled = root * matrix.x_cells / length
    coefficients = np.linalg.lstsq(scaled, sums / root, rcond=None)[0]
    fitted = (matrix.x_cells / length) @ coefficients
    return np.asarray(values - fitted[matrix.cell], dtype=np.float64)


__all__ = ["Confidential", "PublicDesign", "Survey", "public_design"]


@dataclass(frozen=True, eq=False, repr=False)
class Confidential(Unpickled):
    """The values that no release may show: outcomes and, unless public, sampling weights.

    To keep them out of logs and files, ``repr`` shows only sizes and pickling raises an error. The
    arrays are read-only.

    Parameters
    ----------
    outcome
        (n, p) in original units; for binary and categorical outcomes the position of the level.
    sampling_weight
        (n,), or None for a survey without confidential weights.
    replicate_weights
        (n, R), unchecked: no release depends on them; or None.
    replicate_names
        Their columns.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.example_survey(n=200).confidential
    Confidential(outcome: 200 x 1 values, sampling_weight: 200 values)
    """

    outcome: FloatArray
    sampling_weight: FloatArray | None
    replicate_weights: FloatArray | None = None
    replicate_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for values in (self.outcome, self.sampling_weight, self.replicate_weights):
            if values is not None:
                values.setflags(write=False)

    def __repr__(self) -> str:
        n, p = self.outcome.shape
        weight = "none" if self.sampling_weight is None else f"{n} values"
        return f"Confidential(outcome: {n} x {p} values, sampling_weight: {weight})"


@dataclass(frozen=True, eq=False, repr=False)
class Survey:
    """A validated survey: its public design and its confidential values, row by row the same.

    ``Survey.from_frame`` makes one from a data frame, ``read_survey`` from a file. ``repr`` shows
    only public facts.

    Parameters
    ----------
    design
        The public half.
    confidential
        The confidential half, which only a mechanism may see.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.example_survey(n=200)
    Survey of 200 records, population 100,000
      by        field (8 levels), gender (2)
      strata    field (8)
      outcome   salary, as log(salary)
      weight    weight
      model     ~ field + gender + field:gender
      shrunken  field:gender (kappa 0.3, worth 11 records)
    """

    design: PublicDesign
    confidential: Confidential

    def __repr__(self) -> str:
        return f"Survey{repr(self.design).removeprefix('PublicDesign')}"

    @property
    def sampling_weight(self) -> FloatArray | None:
        """(n,), confidential or public; None for a survey without weights."""
        public = self.design.public_weight
        return self.confidential.sampling_weight if public is None else public

    def warn(self, stacklevel: int = 1) -> None:
        """Issue ``confidential_warning`` as a Python warning, for the user only."""
        if text := self.confidential_warning():
            warnings.warn(text, ConfidentialWarning, stacklevel=stacklevel + 1)

    def confidential_warning(self) -> str:
        """Return the warnings that follow from confidential values, one line each."""
        return "\n".join(filter(None, [self.population_warning(), *self._range_warnings()]))

    def _range_warnings(self) -> Iterator[str]:
        """Yield how many amounts and weights are outside the ranges of learned transforms."""
        own, design = self.confidential, self.design
        weight = [] if own.sampling_weight is None else [own.sampling_weight]
        for outcome, values in zip(design.modelled, [*own.outcome.T, *weight], strict=True):
            given = outcome.learned
            if given is not None and (outside := given.outside(values)):
                yield (
                    f"CONFIDENTIAL: {outside:,} of {np.count_nonzero(~np.isnan(values)):,} values "
                    f"of {outcome.name!r} lie outside its declared range, {given.low:,.10g} to "
                    f"{given.high:,.10g}, and count as its ends. If they are codes for missing "
                    "answers, name them in missing_codes of its section."
                )

    def population_warning(self) -> str:
        """Return a confidential warning if weights and population size differ by a factor of two.

        One of them is then probably in other units. Empty if they agree.
        """
        weight, size = self.confidential.sampling_weight, self.design.population_size
        if weight is None or size is None:
            return ""
        with np.errstate(over="ignore"):  # A weight may be any number.
            total = weight.sum()
        if 0.5 * size <= total <= 2.0 * size:
            return ""
        return (
            f"CONFIDENTIAL: the weights add up to {'less' if total < size else 'more'} than "
            f"{'half' if total < size else 'twice'} population_size, to which tables are "
            "scaled. Check that both count the same units. If the weights are public, set "
            "weights = 'public'."
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        outcome: str | Sequence[str] | None = None,
        outcomes: Outcome | Sequence[Outcome] | None = None,
        weight: str | None = None,
        by: str | Sequence[str] = (),
        strata: str | None = None,
        psu: str | None = None,
        fpc: str | None = None,
        lonely_psu: str = "fail",
        design_effect: float | None = None,
        population_size: float | Mapping[str, float] | None = None,
        predictors: str | None = None,
        transforms: Transform | Sequence[Transform] | None = None,
        public_columns: Sequence[str] = (),
        missing: str = "fail",
        level_order: Mapping[str, Sequence[str]] | None = None,
        margin_labels: Mapping[str, str] | None = None,
        statistics: Sequence[str] = (),
        binary_for: Sequence[str] = (),
        weights: str = "confidential",
        weights_from: str | Sequence[str] | None = None,
        weight_transform: LearnedTransform | None = None,
        source: str = "the data frame",
    ) -> "Survey":
        """Validate a frame of records and split it into its public and confidential parts.

        Parameters
        ----------
        frame
            One row per record: a pandas DataFrame, or data with the Arrow interface, such as a
            Polars DataFrame, a DuckDB relation, a pyarrow table or dataset, of which only the
            columns named here are copied. Codes may be text, numbers, or categories, and are read
            as text.
        outcome
            Confidential column of numbers, or several: continuous outcomes, with ``transforms``.
        outcomes
            Instead of ``outcome``, declarations: kind, transform, spikes, bounds, levels.
        weight
            Confidential column of sampling weights; tables need one, or public weights.
        by
            Public columns to make tables by.
        strata, psu
            Public columns of strata and primary sampling units (PSUs); a PSU label that occurs in
            two strata is two PSUs.
        fpc
            Public column of the number of PSUs (or records) in the population of each stratum, or
            of the sampling fraction.
        lonely_psu
            For a stratum with one PSU: "fail", "remove", "certainty", "adjust" or "average".
        design_effect
            Public factor by which PSUs raise variances, for models without effects of PSUs.
        population_size
            The public N, from a frame or a published source. Or numbers of units by level of the
            strata, instead of public weights, for simple random samples within strata: the weight
            is N_h/n_h, and n_h/N_h is the sampling fraction (omit fpc then).
        predictors
            Formula over public columns; None for the default of methods 3: strata, by columns,
            and all interactions of two of them, which the models shrink.
        transforms
            Transform of each outcome, or one for all; the log by default.
        public_columns
            More columns to publish with the synthetic data.
        missing
            "fail"; "drop" to leave out records with blank cells, whose number is then public; or
            "model" for missing answers as a category of every outcome, protected as answers are.
        level_order
            Levels of by columns in table order (all that occur).
        margin_labels
            Name of the margin of a by column, "All" by default.
        statistics
            Statistics of the tables, which need a weight.
        binary_for
            Statistics that need an untransformed outcome of 0 and 1 ("proportion").
        weights
            "confidential", or "public" for weights that are constants of the sample design: these
            are published unchanged, and counts have only the error of the design.
        weights_from
            Columns that the weights were computed from besides the design, () for design weights,
            or "unknown"; None assumes that no weight depends on the answers of others. Tables by
            weights from a column that is not public are refused.
        weight_transform
            A learned transform with a public range of the weight, instead of its logarithm.
        source
            Name of the data in messages.

        Returns
        -------
        Survey
            Both halves, without records with blank cells.

        Raises
        ------
        InputError
            For data and settings that the methods cannot use, all listed together; the message
            counts confidential cells and never shows one.

        Examples
        --------
        >>> import pandas as pd
        >>> import surveysynth as ss
        >>> frame = pd.DataFrame({
        ...     "region": ["North", "South"] * 20,
        ...     "income": [20_000 + 700 * (i * i % 37) for i in range(40)],
        ...     "weight": [10 + i * i % 7 for i in range(40)],
        ... })
        >>> ss.Survey.from_frame(
        ...     frame, outcome="income", weight="weight", by="region", population_size=500,
        ...     transforms=ss.Transform("log"),
        ... )
        Survey of 40 records, population 500
          by        region (2 levels)
          outcome   income, as log(income)
          weight    weight
          model     ~ region
        """
        declared = declared_outcomes(outcome, outcomes, transforms)
        if missing == "model":
            declared = tuple(replace(each, missing=True) for each in declared)
        columns = (by,) if isinstance(by, str) else tuple(by)
        roles = make_roles(
            tuple(each.name for each in declared), weight, columns, strata, psu, fpc, predictors,
            tuple(public_columns), weights=weights,
        )  # fmt: skip
        declaration = Declaration(
            **declared_sizes(population_size), roles=roles, outcomes=declared, source=source,
            predictors=predictors, lonely_psu=lonely_psu, missing=missing,
            design_effect=design_effect, weights_from=given_weights_from(weights_from),
            weight_transform=weight_transform or Transform(), weights=weights,
            orders={name: tuple(order) for name, order in (level_order or {}).items() if order},
            margins=margin_labels or {}, statistics=statistics, binary_for=binary_for,
        )  # fmt: skip
        return survey_of(_frame_of(frame, declaration), declaration)

    def in_order(self, order: IntArray) -> "Survey":
        """Return the survey with its records in another order (n,)."""
        own = self.confidential
        weight, replicates = (
            None if each is None else each[order]
            for each in (own.sampling_weight, own.replicate_weights)
        )
        taken = Confidential(own.outcome[order], weight, replicates, own.replicate_names)
        return replace(self, design=self.design.in_order(order), confidential=taken)


def survey_of(frame: pd.DataFrame, declaration: Declaration) -> Survey:
    """Return the survey of a frame that has the declared columns.

    Raises ``InputError`` as ``Survey.from_frame`` does for the values of the columns.
    """
    records = read_records(frame, declaration)
    found = confidential_problems(records, declaration) + public_problems(records, declaration)
    design = build_public_design(records, declaration, found)
    roles, numbers = declaration.roles, records.numbers
    confidential = Confidential(
        np.stack([numbers[name] for name in roles.outcomes], axis=1),
        # A copy: the column may be a view of the caller's frame.
        None if roles.weight is None else numbers[roles.weight].copy(),
        records.replicates,
        declaration.replicates,
    )
    if declaration.refuse_degenerate:
        require_variation(design, confidential, declaration.source)
    return Survey(design, confidential)


def require_variation(
    design: PublicDesign, confidential: Confidential, source: str = "the survey"
) -> None:
    """Raise ``InputError`` for outcomes and weights that do not vary or that X determines.

    The pseudo-posterior needs this, whose models refuse outcomes that are not plain amounts; a
    mechanism that answers every survey may not ask (strict 1).
    """
    if all(each.is_plain for each in design.outcomes):
        values = confidential.outcome, confidential.sampling_weight
        raise_problems(source, determined_problems(design, *values))


def require_survey(given: object, function: str) -> None:
    """Raise ``InputError`` for anything but a ``Survey``, such as the data frame of one."""
    if not isinstance(given, Survey):
        raise InputError(
            f"{function}: expected a Survey, got {type(given).__name__}. Make one from a data "
            "frame by Survey.from_frame(frame, outcome=.., weight=.., by=..), or from a file by "
            "read_survey(load_spec('spec.toml'))."
        )


def _frame_of(given: Any, declaration: Declaration) -> pd.DataFrame:
    """Return a data frame that has the declared columns; of Arrow data, those columns alone."""
    source = declaration.source
    # A pandas DataFrame may have columns that Arrow has no type for.
    table = given if isinstance(given, pd.DataFrame) else _arrow_table(given, source)
    names = list(table.columns) if isinstance(table, pd.DataFrame) else table.column_names
    if repeated := repeated_positions([str(name) for name in names]):
        raise InputError(f"{source}: {repeated} have the same name.")
    raise_problems(source, declaration.problems([n for n in names if isinstance(n, str)]))
    if isinstance(table, pd.DataFrame):
        return pd.DataFrame(table)
    chosen = {}
    for name in declaration.columns:
        column = table.column(name)
        try:
            chosen[name] = column.to_pandas()
        except (pa.ArrowException, TypeError, ValueError):
            raise InputError(
                f"{source}: column {name!r} has the type {column.type}, which cannot be read; make "
                "it text, a number, or categories."
            ) from None
    return pd.DataFrame(chosen)


def _arrow_table(given: Any, source: str) -> pa.Table:
    """Return data of Polars, DuckDB, pyarrow and the like, read in their own memory.

    A pyarrow dataset, which has files instead, is scanned. Raises ``InputError`` for data without
    the Arrow interface, and for a stream that cannot be read; its own message may quote a value.
    """
    stream = hasattr(given, "__arrow_c_stream__")
    dataset = type(given).__module__.partition(".")[0] == "pyarrow" and hasattr(given, "to_table")
    if not (stream or dataset):
        raise InputError(
            f"{source}: expected a pandas DataFrame, or data with the Arrow interface (Polars, "
            f"DuckDB, pyarrow), got {type(given).__name__}. Read files with ss.read_survey."
        )
    try:
        return pa.RecordBatchReader.from_stream(given).read_all() if stream else given.to_table()
    except (pa.ArrowException, OSError, TypeError, ValueError):
        raise InputError(
            f"{source}: this {type(given).__name__} cannot be read as an Arrow table; collect it "
            "first, or pass a pandas DataFrame."
        ) from None
