"""Synthetic survey data from private draws: post-processing, free of confidential data.

Takes PublicDesign and PrivateDraws only; any number of datasets from a paid-for draw costs no
further epsilon (methods 5, ``replicates_per_draw``). Weights are scaled to a population size here,
and calibrated to totals later, in ``estimation/calibration.py``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, Theta
from surveysynth.errors import InputError, RefusedError
from surveysynth.inference.debias import Debiased, DebiasRecord, debias_draws
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.learned.histogram import redrawn_designs
from surveysynth.models.base import Model, Simulated, SimulationKind
from surveysynth.models.general_location.completion import missing_answers
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.survey.survey import PublicDesign

#: Where variances are taken from (methods 8): from a dataset as the sample would have been, or, as
#: in the papers, from the released data with their smoothed weights.
VariancePair = Literal["sample", "release"]

#: Steps in which the factor of weights with limits is found, to all digits of a double.
HALVINGS = 80

Inference: TypeAlias = Literal["debiased", "paper"]
"""Draws debiased and variances as the sample would have them, or both as in the papers."""


@dataclass(frozen=True, repr=False)
class SyntheticDataset:
    """One synthetic survey of the design's n records, in file order.

    Attributes
    ----------
    draw, replicate
        Both count from 1.
    outcome
        (n, p) in original units.
    weight
        (n,) smoothed and, with a public N, scaled to it; public weights as they are.
    variance_outcome, variance_weight
        The pair (n, p) and (n,) that the variance is taken from; the same arrays where that is the
        released pair.
    base_weight, variance_base_weight
        Both weights (n,) before they were calibrated; None for weights that are not calibrated.
    missing
        Which entries (n, p) of ``variance_outcome`` are imputed; None for a model without missing
        answers.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> outcome, weight = np.array([[1.0], [2.0]]), np.array([10.0, 20.0])
    >>> ss.SyntheticDataset(1, 1, outcome, weight, outcome, weight).separate_pair
    False
    """

    draw: int
    replicate: int
    outcome: FloatArray
    weight: FloatArray
    variance_outcome: FloatArray
    variance_weight: FloatArray
    base_weight: FloatArray | None = None
    variance_base_weight: FloatArray | None = None
    missing: BoolArray | None = None

    @property
    def separate_pair(self) -> bool:
        """True if variances are computed from other values than estimates."""
        return not (
            self.variance_outcome is self.outcome and self.variance_weight is self.weight
        )


def synthesize(
    model: Model,
    design: PublicDesign,
    private_draws: PrivateDraws,
    *,
    replicates_per_draw: int,
    rng: np.random.Generator,
    scale_to: float | None,
    variance: VariancePair = "sample",
) -> Iterator[SyntheticDataset]:
    """Stream m x replicates_per_draw datasets, one at a time (methods 3, 5 and 8).

    Smoothed weights vary less than the survey's own did, and their Taylor variance is too small;
    with variance "sample" it comes from a dataset as the sample would have been: the drawn
    weights and, where selection has tilted the sample, outcomes drawn from its distribution.

    Parameters
    ----------
    model, design, private_draws
        Of the release.
    replicates_per_draw
        Datasets of each draw.
    rng
        For the datasets.
    scale_to
        The public population size that the weights of every dataset sum to, or None.
    variance
        "sample", or "release" as in the papers.

    Yields
    ------
    SyntheticDataset
        Datasets in the order of draws and replicates.

    Raises
    ------
    InputError
        For replicates_per_draw < 1, or more than the model can make.
    RefusedError
        If a synthetic value is too large for a number (a transform that does not suit the outcome).

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> survey, model = ss.example_survey(n=400), ss.get_model("fbs")
    >>> settings = ss.MechanismSettings(epsilon=10.8, m=1)
    >>> design, rng = settings.prepared(survey.design), np.random.default_rng(1)
    >>> private, _ = ss.run_mechanism(model, design, survey.confidential, settings, rng)
    >>> for data in ss.synthesize(
    ...     model, design, private, replicates_per_draw=2, rng=rng, scale_to=100_000
    ... ):
    ...     print(data.draw, data.replicate, data.outcome.shape, round(data.weight.sum()))
    1 1 (400, 1) 100000
    1 2 (400, 1) 100000
    """
    model = model.of(design)
    check_replicates(model, replicates_per_draw)
    steadied = private_draws
    if isinstance(model, GeneralLocation):
        steadied = replace(private_draws, theta=model.steadied(private_draws.theta, design))
    m = private_draws.settings.m
    for draw, redrawn in enumerate(redrawn_designs(design, m, rng)):
        theta = steadied.draw(draw)
        for replicate in range(replicates_per_draw):
            arrays, missing = _dataset(model, design, redrawn, theta, rng, scale_to, variance)
            yield SyntheticDataset(draw + 1, replicate + 1, *arrays, missing=missing)


def check_replicates(model: Model, replicates_per_draw: int) -> None:
    """Raise ``InputError`` for fewer than one dataset per draw, or more than the model can make."""
    if replicates_per_draw < 1:
        raise InputError(f"replicates_per_draw must be at least 1, got {replicates_per_draw}.")
    limit = model.datasets_per_draw
    if limit is not None and replicates_per_draw > limit:
        raise InputError(
            f"The model {model.name!r} makes one dataset a draw, its generated quantities, and "
            f"replicates_per_draw is {replicates_per_draw}: set replicates_per_draw = 1 in "
            "[privacy], or declare a Python function as simulate, which makes as many as wanted."
        )


def _dataset(
    model: Model,
    design: PublicDesign,
    redrawn: PublicDesign,
    theta: Theta,
    rng: np.random.Generator,
    scale_to: float | None,
    variance: VariancePair,
) -> tuple[tuple[FloatArray, FloatArray, FloatArray, FloatArray], BoolArray | None]:
    """Return outcomes (n, p) in original units and smoothed weights (n,), twice.

    The second pair is what the variance is computed from; then which of its outcomes are imputed.
    redrawn: the design with the curves of this draw, where transforms are learned.
    """
    given = design.modelled[-1].learned if design.learns_weight else None
    limits = None if given is None else (given.low, given.high)
    with np.errstate(over="ignore", invalid="ignore"):
        simulated, missing = _simulated(model, design, theta, rng, "release")
        outcome = simulated.outcomes(redrawn)
        if design.public_weight is not None:
            # Nothing of it is drawn, smoothed or scaled.
            weight = design.public_weight
        else:
            weight = scaled(model.smooth_weight(theta, redrawn, simulated), scale_to, limits)
        pair = outcome, weight
        if variance == "sample" and design.public_weight is None:
            sample = simulated
            if model.tilted:
                sample, missing = _simulated(model, design, theta, rng, "sample")
            drawn = scaled(model.drawn_weight(redrawn, sample), scale_to, limits)
            pair = sample.outcomes(redrawn) if model.tilted else outcome, drawn
    if not all(np.isfinite(values).all() for values in (outcome, weight, *pair)):
        raise RefusedError(
            "Synthetic values are too large to be numbers: the transform does not suit "
            "the outcome, or epsilon is too small for so few records. Choose another "
            "transform (asinh with a public scale), fewer predictors or a larger epsilon."
        )
    return (outcome, weight, *pair), missing


def _simulated(
    model: Model,
    design: PublicDesign,
    theta: Theta,
    rng: np.random.Generator,
    kind: SimulationKind,
) -> tuple[Simulated, BoolArray | None]:
    """Simulate a dataset and fill its missing answers; return also which (n, p) these were."""
    simulated = model.simulate(theta, design, rng, kind)
    if not isinstance(model, GeneralLocation) or simulated.category is None:
        return simulated, None  # no other model has missing answers
    missing = missing_answers(design.outcomes, simulated.category)
    return model.completed(theta, design, simulated, rng, kind), missing


def scaled(
    weight: FloatArray, scale_to: float | None, limits: tuple[float, float] | None = None
) -> FloatArray:
    """Return weights (n,) times a factor by which they sum to ``scale_to``, cut at the limits.

    NaN where they have no positive finite sum. The mean of the result must lie within the limits.
    """
    total = float(weight.sum())
    if not (np.isfinite(total) and total > 0):
        return np.full_like(weight, np.nan)
    if scale_to is None:
        return weight
    result = weight * (scale_to / total)
    if limits is None or (result.min() >= limits[0] and result.max() <= limits[1]):
        return result
    low, high = limits[0] / float(weight.max()), limits[1] / float(weight.min())
    for _ in range(HALVINGS):
        factor = np.sqrt(low * high)
        below = np.clip(factor * weight, *limits).sum() < scale_to
        low, high = (factor, high) if below else (low, factor)
    return np.asarray(np.clip(high * weight, *limits), dtype=np.float64)


def published_draws(
    model: Model,
    design: PublicDesign,
    private: PrivateDraws,
    rng: np.random.Generator,
    *,
    inference: Inference,
    progress: Callable[[str], None] | None = None,
) -> Debiased:
    """Return the draws that synthetic data come from: debiased if requested.

    Raises ``RefusedError`` where debiasing has not converged.
    """
    if inference == "paper":
        return Debiased(private, DebiasRecord("not asked for"))
    return debias_draws(model, design, private, rng, progress=progress)


def datasets_of(
    model: Model,
    design: PublicDesign,
    draws: PrivateDraws,
    rng: np.random.Generator,
    *,
    inference: Inference,
    replicates_per_draw: int,
) -> Iterator[SyntheticDataset]:
    """Return the synthetic datasets of a release of ``published_draws``, one at a time.

    Raises as ``synthesize`` does.
    """
    return synthesize(
        model,
        design,
        draws,
        replicates_per_draw=replicates_per_draw,
        rng=rng,
        scale_to=design.population_size,
        variance="release" if inference == "paper" else "sample",
    )
