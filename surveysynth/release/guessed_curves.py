"""The curves that a guess of an amount would give under the noise, for ``surveysynth check``.

Public: a guess is two values between which about two thirds of the population lie. Amounts of all
records are simulated from a normal law on the axis of the grid, with its mean between both values
and half of their distance as its SD. They pass the histograms, noise and smoother of a release.
No outcome and no weight is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.learned.histogram import (
    NoiseKind,
    curve_rows,
    learned_outcomes,
    learned_shares,
    noise_variance,
    noisy_histogram,
    side_of,
    true_counts,
)
from surveysynth.mechanisms.noisy_statistics.release.noise import ApproximateNoise
from surveysynth.survey.learned import LearnedTransform
from surveysynth.survey.outcome import ABOVE, Outcome

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign

#: Simulated releases of a guess, fewer where there are many strata.
MOST_RUNS, FEWEST_RUNS, MOST_CURVES = 20, 4, 200
#: Of the simulation, which protects nobody: a check says the same whenever it is run.
SEED = 0
#: Shares of records below the values that are compared.
SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
_BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"

Guesses = Mapping[str, tuple[float, float]]
"""Two values of an amount by the name of its column, the lower first."""


@dataclass(frozen=True)
class GuessedCurve:
    """What a guess gives: counts of bins (J,) as guessed, with noise, and by the learned curve.

    quantiles: by the guess and in every run, (runs + 1, len(SHARES)), in units of the outcome.
    """

    guessed: FloatArray
    noisy: FloatArray
    learned: FloatArray
    quantiles: FloatArray


def guessed_curve(
    outcome: Outcome,
    rows: IntArray,
    guess: tuple[float, float],
    budget: Fraction | None,
    noise: NoiseKind,
    records: int = 1,
) -> GuessedCurve:
    """Return the curve of amounts of n records in strata ``rows`` (n,), without spikes.

    budget: of the histogram, None for no noise; records: of a unit of protection. Counts are those
    of the first run; of an outcome with a split, those above it.
    """
    transform = side_of(outcome, ABOVE)
    ends = transform.ends
    low, high = np.arcsinh(outcome.distance(np.array(guess)) / transform.divisor)
    below = ndtr((ends - 0.5 * (low + high)) / (0.5 * (high - low)))
    below = (below - below[0]) / (below[-1] - below[0])
    strata = int(rows.max()) + 1
    shown, quantiles = [], [_quantiles(below, transform)]
    runs = max(FEWEST_RUNS, min(MOST_RUNS, MOST_CURVES // strata))
    for rng in np.random.default_rng(SEED).spawn(runs):
        amounts = _amounts(np.interp(rng.random(rows.size), below, ends), transform)
        counts = true_counts(outcome, amounts + (outcome.split or 0.0), rows)
        source = None if budget is None else ApproximateNoise(rng)
        made = noisy_histogram(
            outcome.name, counts, budget or Fraction(0), noise, source, records
        )
        curves = made.learned(outcome).of_side(outcome.split, ABOVE)
        chances = np.diff(ndtr(curves.knots[:, :: curves.parts]))
        chances /= chances.sum(axis=1, keepdims=True)
        learned = np.bincount(rows, minlength=strata) @ chances
        shown.append((made.counts[ABOVE].sum(axis=0).astype(np.float64), learned))
        quantiles.append(_quantiles(np.append(0.0, np.cumsum(learned / learned.sum())), transform))
    values = np.stack(quantiles) + (outcome.split or 0.0)
    return GuessedCurve(np.diff(below) * rows.size, *shown[0], values)


def _quantiles(below: FloatArray, transform: LearnedTransform) -> FloatArray:
    """Return the values (len(SHARES),) for chances (J + 1,) to lie below the ends of bins."""
    return _amounts(np.interp(SHARES, below, transform.ends), transform)


def _amounts(x: FloatArray, transform: LearnedTransform) -> FloatArray:
    """Return amounts, or counts, at places on the axis of the grid."""
    made = transform.divisor * np.sinh(x)
    return np.asarray(np.floor(made) if transform.whole else made, dtype=np.float64)


def guess_lines(spec: "Spec", design: "PublicDesign", guesses: Guesses) -> list[str]:
    """Return what ``check`` says of learned transforms: their noise, and the curves of guesses.

    Raises ``InputError`` for a guess that names no learned column or lies outside its range.
    """
    columns = learned_outcomes(design.modelled)
    _check_guesses(columns, guesses)
    noise, budget, records = _budget(spec, design)
    lines = []
    for outcome, share in zip(columns, learned_shares(design.modelled), strict=True):
        rows = curve_rows(outcome, design)
        part = None if budget is None else share * budget
        if (guess := guesses.get(outcome.name)) is not None:
            made = guessed_curve(outcome, rows, guess, part, noise, records)
            lines += _drawn(outcome, guess, made, design.n)
            continue
        given = side_of(outcome, ABOVE)
        sd = 0.0 if part is None else noise_variance(part, noise, records) ** 0.5
        count = int(rows.max()) + 1
        where = "one histogram" if count == 1 else f"each of {count:,} histograms"
        lines.append(
            f"{outcome.name}: learned from {given.bins} counts in {where}, with noise of SD "
            f"{sd:.3g} each. --guess {outcome.name}=LOW,HIGH draws the curve of a guess: two "
            "values between which about two thirds of the population lie."
        )
    return lines


def _budget(spec: "Spec", design: "PublicDesign") -> tuple[NoiseKind, Fraction | None, int]:
    """Return the noise of histograms, the whole budget, and the records of a unit."""
    from surveysynth.spec.build import noisy_settings_of, settings_of

    if spec.privacy.down_weights:
        settings = settings_of(spec)
        return "laplace", Fraction(settings.epsilon) if settings.private else None, 1
    noisy = noisy_settings_of(spec.for_records(design.n))
    return "gaussian", Fraction(noisy.budget.rho), noisy.unit_size(design)


def _check_guesses(columns: Sequence[Outcome], guesses: Guesses) -> None:
    known = {each.name: each for each in columns}
    for name, (low, high) in guesses.items():
        if name not in known:
            names = tuple(known)
            raise InputError(
                f"--guess: {name!r} has no learned transform.{nearest(name, names)} Learned: "
                f"{listing(names) if names else 'none'}."
            )
        transform, split = known[name].learned, known[name].split
        assert transform is not None  # these are learned
        least = transform.low if split is None else split
        if not least <= low < high <= transform.high:
            raise InputError(
                f"--guess: expected two values of {name!r} from {least:,.10g} to "
                f"{transform.high:,.10g}, the lower first, got {low:,.10g} and {high:,.10g}."
            )


def _drawn(
    outcome: Outcome, guess: tuple[float, float], made: GuessedCurve, n: int
) -> list[str]:
    """Return the curve as text: counts as blocks, and quantiles."""
    transform = side_of(outcome, ABOVE)
    low, high = (end + (outcome.split or 0.0) for end in (transform.low, transform.high))
    top = max(float(each.max()) for each in (made.guessed, made.noisy, made.learned))
    runs, bins = made.quantiles[1:], transform.bins
    table = {
        "records below": [f"{share:.0%}" for share in SHARES],
        "by the guess": _numbers(made.quantiles[0]),
        "learned, median": _numbers(np.median(runs, axis=0)),
        "smallest": _numbers(runs.min(axis=0)),
        "largest": _numbers(runs.max(axis=0)),
    }
    return [
        f"{outcome.name}: the curve of a guess, simulated: all {n:,} records are amounts, and two "
        f"thirds lie between {guess[0]:,.10g} and {guess[1]:,.10g}.",
        *(
            f"  {name:<8}|{_blocks(counts / top)}|"
            for name, counts in (
                ("guess", made.guessed), ("noisy", made.noisy), ("learned", made.learned)
            )
        ),
        f"  {'':<8} {f'{low:,.10g}':<{bins // 2}}{f'{high:,.10g}':>{bins - bins // 2}}",
        f"  Amounts below which these shares lie, learned in {len(runs)} releases:",
        *(f"  {name:<16}{''.join(f'{each:>12}' for each in row)}" for name, row in table.items()),
    ]  # fmt: skip


def _blocks(heights: FloatArray) -> str:
    """Return a character for each height from 0 to 1; whatever is above zero is seen."""
    steps = np.ceil(np.clip(heights, 0.0, 1.0) * (len(_BLOCKS) - 1) - 1e-9).astype(np.int64)
    steps[heights < 0.25 / (len(_BLOCKS) - 1)] = 0
    return "".join(_BLOCKS[step] for step in steps)


def _numbers(values: FloatArray) -> list[str]:
    return [f"{float(f'{value:.3g}'):,.10g}" for value in values]
