"""Records of a user's Stan program, and the check that it keeps the contract of the mechanism.

Four short fits from one seed decide exactly, without statistics, because a sampler repeats itself
where its density is the same:

- alpha = 1 and alpha = 1/2 must give different draws, or the risk weights are not used;
- at alpha = 0 the density is the prior, so two different databases must give the same draws of
  everything that may be released. If not, outcomes or weights bypass the risk weights: in an
  unweighted term, a prior that uses the data, or generated quantities that copy records;
- log_lik must exist at alpha = 0 (it is unweighted) and differ between the two databases.

Messages name variables and show no value.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import INTERNAL_SUFFIX, FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.own_stan.file import ProgramFile
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import MIN_WARMUP
from surveysynth.survey.columns import encode
from surveysynth.survey.survey import Confidential, PublicDesign

#: Log-likelihoods of the records among the draws: they never leave the mechanism.
LOG_LIK = "log_lik" + INTERNAL_SUFFIX
#: Sources of data that are confidential.
CONFIDENTIAL = ("outcome", "integer_outcome", "outcomes", "log_weight", "risk_weights")


@dataclass(frozen=True, repr=False)
class ProgramRecords(Unpickled):
    """Records on the program's scale: z (n, p + 1), the log weight last; and the public data."""

    z: FloatArray
    public: Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class ProgramStats(Unpickled):
    """Records and their risk weights alpha (n,): a user's program sees every record."""

    records: ProgramRecords
    risk_weights: FloatArray


def with_weight(design: PublicDesign, confidential: Confidential) -> Confidential:
    """Return the confidential half with the design's public weight, if any, as its weight."""
    if design.public_weight is None:
        return confidential
    return Confidential(confidential.outcome, design.public_weight)


def confidential_data(source: str, z: FloatArray, risk_weights: FloatArray) -> Any:
    """Return the data of a confidential source from z (n, p + 1) and alpha (n,)."""
    if source == "risk_weights":
        return risk_weights
    if source == "log_weight":
        return z[:, -1]
    if source == "outcomes":
        return z[:, :-1]
    if source == "outcome":
        return z[:, 0]
    whole = np.rint(z[:, 0])
    different = int(np.count_nonzero(whole != z[:, 0]))
    if different:
        raise InputError(
            f"integer_outcome: {different:,} records have an outcome that is not a whole number; "
            "use transform = 'identity' and an outcome of whole numbers, or the source 'outcome'."
        )
    return whole.astype(np.int64)


def public_data(source: str, design: PublicDesign) -> Any:
    """Return the data of a public source from a design."""
    matrix = design.matrix
    kind, _, column = source.partition(" ")
    if column:
        return _column_data(kind, column.strip(), design)
    made: dict[str, Callable[[], Any]] = {
        "records": lambda: design.n,
        "columns": lambda: matrix.n_columns,
        "matrix": lambda: matrix.x_cells[matrix.cell],
        "n_outcomes": lambda: len(design.outcome_names),
        "population_size": lambda: design.population_size,
    }
    return made[kind]()


def _column_data(kind: str, column: str, design: PublicDesign) -> Any:
    if column not in design.frame:
        known = [str(name) for name in design.frame.columns]
        raise InputError(
            f"data: there is no public column {column!r} in the design.{nearest(column, known)} "
            "Name it in by, predictors or public_columns."
        )
    values = design.frame[column]
    if kind == "column":
        try:
            return np.asarray(values, dtype=np.float64)
        except ValueError:
            raise InputError(
                f"data: the column {column!r} does not hold numbers; use 'codes'."
            ) from None
    codes, levels = encode(values.astype("str"))
    return len(levels) if kind == "levels" else codes + 1


_PLAN = SamplingPlan(chains=1, warmup=MIN_WARMUP, draws=8)
_SEED = 1


class Program(Protocol):
    """A declared program with a sampler."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def declared(self) -> ProgramFile:
        """Declaration of the program."""

    def compress(self, records: ProgramRecords, risk_weights: FloatArray) -> ProgramStats:
        """Return the records with their risk weights alpha (n,)."""

    def sample(self, stats: ProgramStats, plan: SamplingPlan, rng: np.random.Generator) -> Theta:
        """Return draws, and ``LOG_LIK`` of every record."""


def check_contract(program: Program, records: ProgramRecords) -> None:
    """Raise ``InputError`` where the program breaks the contract on these records."""
    full = _fit(program, records, 1.0)
    _check_finite(program, full)
    half = _fit(program, records, 0.5)
    parameters = program.declared.output.parameters
    if not _differing(full, half, parameters):
        raise InputError(
            f"{program.name}: the risk weights are not used: weights of 1 and of 0.5 give the same "
            "draws. Multiply each record's log-likelihood by its weight: 'target += alpha[i] * ..'."
        )
    prior = _fit(program, records, 0.0)
    other = _fit(program, _other_database(records), 0.0)
    if not np.any(prior[LOG_LIK]):
        raise InputError(
            f"{program.name}: {program.declared.output.log_lik!r} is zero for every record when "
            "the risk weights are. It must be the unweighted log-likelihood: leave the weights out."
        )
    dependent = _differing(prior, other, program.declared.output.released)
    if dependent:
        raise InputError(
            f"{program.name}: with every risk weight at 0 the draws of {listing(dependent)} still "
            "depend on outcomes or sampling weights. Every term with them must be multiplied by "
            "the record's risk weight, priors must be proper and not look at them, and generated "
            "quantities other than log_lik must use parameters and public data alone."
        )
    if np.array_equal(prior[LOG_LIK], other[LOG_LIK]):
        raise InputError(
            f"{program.name}: {program.declared.output.log_lik!r} does not depend on outcomes and "
            "sampling weights. It must be the log-likelihood of each record."
        )


def _fit(program: Program, records: ProgramRecords, risk_weight: float) -> Theta:
    weights = np.full(records.z.shape[0], risk_weight)
    stats = program.compress(records, weights)
    try:
        return program.sample(stats, _PLAN, np.random.default_rng(_SEED))
    except InputError as error:
        raise InputError(f"{error} (A trial with every risk weight at {risk_weight:g}.)") from None


def _other_database(records: ProgramRecords) -> ProgramRecords:
    """Return another database with other means whose values fit the program's constraints.

    It has the records of the lower half of the first outcome, each twice.
    """
    order = np.argsort(records.z[:, 0], kind="stable")
    z: FloatArray = records.z[order[np.arange(order.size) // 2]]
    return ProgramRecords(z, records.public)


def _check_finite(program: Program, theta: Theta) -> None:
    """Raise ``InputError`` for NaN anywhere and for infinite parameters.

    An infinite log_lik takes its record out later.
    """
    bad = [name for name in program.declared.output.released if not np.isfinite(theta[name]).all()]
    if np.isnan(theta[LOG_LIK]).any():
        bad.append(program.declared.output.log_lik)
    if bad:
        raise InputError(
            f"{program.name}: {listing(bad)} holds values that are not finite numbers. A "
            "variable that is declared but not filled is one reason."
        )


def _differing(one: Theta, two: Theta, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not np.array_equal(one[name], two[name], equal_nan=True)]
