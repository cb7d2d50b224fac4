"""Problems of the values of outcomes and weights, in words, as counts without a value."""

import numpy as np

from surveysynth._support.messages import records
from surveysynth._support.types import FloatArray
from surveysynth.survey.outcome import Outcome


def weight_value_problem(weight: FloatArray, name: str) -> str:
    """Return what is wrong with weights that are not finite and positive (none is NaN here)."""
    found = [
        f"{records(int(count))} {words}"
        for count, words in (
            (np.count_nonzero(np.isinf(weight)), "with an infinite value"),
            (np.count_nonzero(weight < 0), "with a negative value"),
            (np.count_nonzero(weight == 0), "with a value of zero"),
        )
        if count
    ]
    return "" if not found else (
        f"weight {name!r}: {', '.join(found)}; expected finite numbers above zero. Correct these "
        "records or remove them from the file."
    )


def outcome_problem(values: FloatArray, outcome: Outcome) -> str:
    """Return what is wrong with amounts: infinite, out of bounds, not whole, not in T's domain.

    T is the transform. Levels are checked where they are read.
    """
    if not outcome.is_amount:
        return ""
    what = f"outcome {outcome.name!r}:"
    if infinite := int(np.count_nonzero(np.isinf(values))):
        return f"{what} {records(infinite)} with an infinite value; expected finite numbers."
    if beyond := int(np.count_nonzero(outcome.outside(values))):
        return (
            f"{what} {records(beyond)} outside the declared range ({outcome.public_words}); "
            "correct them, or declare bounds that hold for everyone (a top code is a spike)."
        )
    if outcome.kind == "count":
        other = outcome.violations(values)
        return "" if not other else (
            f"{what} {records(other)} with a value that is not a whole number; kind 'count' "
            "expects whole numbers. Correct these records, or declare kind = 'continuous'."
        )
    return _domain_problem(values, outcome)


def _domain_problem(values: FloatArray, outcome: Outcome) -> str:
    """Return what is wrong with amounts that the transform does not take."""
    what = f"outcome {outcome.name!r}:"
    category = outcome.category(values)
    for side in outcome.sides:
        regular, formula = values[category == side], outcome.formula(side)
        if outside := outcome.violations(regular, side):
            return (
                f"{what} {records(outside)} where {formula} does not exist (the argument is zero "
                "or negative); set a public transform_shift large enough, transform = 'asinh' or "
                "'yeo_johnson' with a public scale, or, where values pile up at zero, "
                "kind = 'semicontinuous' with spikes = [0]."
            )
        with np.errstate(over="ignore"):
            transformed = outcome.forward(regular, side)
        if not np.isfinite(transformed).all():
            return f"{what} values become infinite under {formula}; set another transform_scale."
    return ""


def constant_problem(values: FloatArray, outcome: Outcome) -> str:
    """Return why a valid outcome is constant, so that nothing can be learned from it; else "".

    A level or a spike without records is fine: its coefficients keep their prior.
    """
    what = f"outcome {outcome.name!r}"
    values = values[~np.isnan(values)]
    if not outcome.is_amount:
        return "" if values.size and np.ptp(values) else (
            f"{what} has the same level in every record, so it cannot be modelled. Choose another "
            "outcome."
        )
    category = outcome.category(values)
    for side in outcome.sides:
        regular, where = values[category == side], outcome.side_name(side)
        if regular.size == 0:
            return (
                f"{what} has no record {where}, so amounts there cannot be modelled. Remove split, "
                "or declare another."
                if where
                else f"{what} lies at its spikes in every record, so amounts cannot be modelled. "
                "Declare other spikes, or make the outcome binary."
            )
        transformed = outcome.forward(regular, side)
        spread = float(np.ptp(transformed))
        if spread <= 1e-9 * max(1.0, float(np.abs(transformed).max())):
            but = f" {where}" if where else " except at its spikes" * bool(outcome.spikes)
            return (
                f"{what} is constant after its transform{but}, so it cannot be modelled. Choose "
                "another outcome (or another transform_scale)."
            )
    return ""


def binary_problems(values: FloatArray, outcome: Outcome, statistic: str) -> list[str]:
    """List why a statistic of 0 and 1 cannot be computed from an outcome."""
    if outcome.kind == "binary":  # whose levels are checked where they are read
        return []
    problems, what = [], f"the statistic {statistic!r} needs"
    if other := int(np.count_nonzero((values != 0) & (values != 1) & ~np.isnan(values))):
        problems.append(
            f"{what} an outcome of 0 and 1; {outcome.name!r} has {records(other)} with another "
            "value."
        )
    if outcome.transform.kind != "identity":
        problems.append(
            f"{what} transform = 'identity' for {outcome.name!r}, got {outcome.transform.kind!r}."
        )
    return problems
