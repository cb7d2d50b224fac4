"""Check on the records that a user's Stan program keeps the contract of the mechanism.

Four short fits from one seed decide exactly, without statistics, because a sampler repeats itself
where its density is the same:

- alpha = 1 and alpha = 1/2 must give different draws, or the risk weights are not used;
- at alpha = 0 the density is the prior, so two different databases must give the same draws of
  everything that may be released. If not, outcomes or weights bypass the risk weights: in an
  unweighted term, a prior that uses the data, or generated quantities that copy records;
- log_lik must exist at alpha = 0 (it is unweighted) and differ between the two databases.

Messages name variables and show no value.
"""

from typing import Protocol

import numpy as np

from surveysynth._support.messages import listing
from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.own_stan.data import LOG_LIK, ProgramRecords, ProgramStats
from surveysynth.models.own_stan.file import ProgramFile
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import MIN_WARMUP

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
