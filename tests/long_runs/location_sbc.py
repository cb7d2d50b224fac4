"""Simulation-based calibration of noisy counts and moments by block, outcomes of several kinds:
``python -m tests.long_runs.location_sbc``.

As ``tests.long_runs.noisy_sbc``: parameters from the priors, records from the parameters by
``location_cases``, sums by hand, noise, draws given the noisy numbers alone. Wrong posteriors are
rejected: counts, or moments, taken for known to a tenth of their noise; a wide ridge; moments about
centers of groups taken for such about the common one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.linalg import helmert, null_space
from surveysynth.mechanisms.noisy_statistics.posterior.location.location_sweeps import sample_noisy
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import FARTHEST
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.release.group_centres import GroupSums
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    Centring,
    LocationDesign,
    LocationStatistics,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.models.general_location.layout import Layout, RegressionPart
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform
from tests.long_runs import noisy_calibration, sbc

GOLDEN = Path(__file__).parents[1] / "golden" / "location_sbc.json"
WRONG = ("counts known", "moments known")
#: Ridges of three times the width, for cases with shrunken columns.
WIDE = "wide ridge"
#: Centers of groups that are forgotten, for cases with two stages.
FORGOTTEN = "centers forgotten"
#: Groups without what levels have in common, for cases with levels.
NO_LEVELS = "levels forgotten"
X = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
PLAIN = Transform("identity")
KINDS = {
    "binary": (Outcome("a", "binary"),),
    "categorical": (Outcome("a", "categorical", levels=("x", "y", "z")),),
    "semicontinuous": (Outcome("b", "semicontinuous", PLAIN, spikes=(0.0,)),),
    "several": (
        Outcome("a", "binary"),
        Outcome("b", "semicontinuous", PLAIN, spikes=(0.0,)),
        Outcome("c", transform=PLAIN),
    ),
    "continuous": (Outcome("c", transform=PLAIN),),
    "two sides": (Outcome("b", "semicontinuous", PLAIN, spikes=(0.0,), split=0.0),),
}


@dataclass(frozen=True)
class Case:
    """Outcomes, groups of the three cells, records of each or of all alike, and the noise.

    sigma: SD of the noise of T; count_sd: of counts; squares_sd: of the diagonal of Q, over
    sqrt(2) of the rest; centres are one spread off. ``rejects``: of ``WRONG``, ``WIDE``,
    ``FORGOTTEN`` and ``NO_LEVELS``; ridged: shrunken columns of X; first: SD of the noise of first
    sums, from which groups have centres of their own, 0 for one stage; level: of groups in each
    factor. crossed: numbers of levels of two factors, whose cells take the place of the three: a
    column of X for each, those of interactions orthonormal and to main effects. most: databases
    with a larger noisy square are left out, as the posterior knows; clipping would leave none of
    them, and chains stay there where they begin.
    """

    outcomes: str
    groups: tuple[int, ...] = (0, 0, 0)
    records: int | tuple[int, ...] = 40
    sigma: float = 3.0
    count_sd: float = 3.0
    squares_sd: float = 12.0
    spread: float = 0.7
    priors: Mapping[str, float] = field(
        default_factory=lambda: {
            "coefficient_scale": 0.7, "residual_scale": 0.5, "logit_sd": 1.0, "slope_scale": 0.3,
        }
    )  # fmt: skip
    replications: int = 160
    draws: int = 31
    thin: int = 8
    warmup: int = 300
    rejects: tuple[str, ...] = WRONG
    ridged: tuple[int, ...] = ()
    first: float = 0.0
    level: tuple[tuple[int, ...], ...] = ()
    crossed: tuple[int, ...] = ()
    most: float = 0.0

    @cached_property
    def x(self) -> FloatArray:
        """Rows of X (cells, K)."""
        if not self.crossed:
            return X
        first, second = np.indices(self.crossed).reshape(2, -1)
        effects = [code[:, None] == np.arange(1, code.max() + 1) for code in (first, second)]
        main = np.hstack([np.ones((first.size, 1)), *effects])
        return np.hstack([main, null_space(main.T)])

    @property
    def cell(self) -> IntArray:
        """Cells (n,) of the records."""
        return np.repeat(np.arange(len(self.x)), self.records)

    @property
    def shape(self) -> LocationShape:
        """The public table."""
        group, level = np.array(self.groups), np.array(self.level) if self.level else None
        return LocationShape(self.x, group, KINDS[self.outcomes], weighted=True, level=level)

    @property
    def layout(self) -> Layout:
        """Of the model."""
        plain = Layout.of_outcomes(
            self.x.shape[1], KINDS[self.outcomes], weighted=True, grouped=max(self.groups) > 0
        )
        return replace(plain, ridged=self.ridged)

    @property
    def all_priors(self) -> Mapping[str, float]:
        """With those of the model's defaults."""
        return {**GeneralLocation.default_priors, **self.priors}


def crossed(*sizes: int) -> Case:
    """A mean of its own for every cell of two factors, each cell a group."""
    cells, main = int(np.prod(sizes)), sum(sizes) - 1
    return Case(
        "continuous", groups=tuple(range(cells)), records=12, rejects=(WRONG[1], WIDE),
        replications=240, ridged=tuple(range(main, cells)), crossed=sizes, most=400.0,
        level=tuple(map(tuple, np.indices(sizes).reshape(2, -1).tolist())),
    )  # fmt: skip


CASES = {
    "Binary": Case("binary", replications=240),
    "Categorical, two groups": Case(
        "categorical", groups=(0, 0, 1), records=60, replications=320
    ),
    "Semicontinuous": Case("semicontinuous", replications=320),
    # Effects of rare categories on amounts move slowly in a tenth of the databases.
    "Several, two groups": Case(
        "several", groups=(0, 1, 1), records=80, thin=144, warmup=1200
    ),
    "Continuous, three groups": Case("continuous", groups=(0, 1, 2), rejects=WRONG[1:]),
    "Two sides": Case("two sides", records=80, count_sd=5.0, thin=48, warmup=1200),
    "Few records": Case(
        "continuous", groups=(0, 1, 2), records=(2, 6, 20), rejects=WRONG[1:], replications=320
    ),
    "Interactions": Case(
        "categorical", records=(60, 60, 20), ridged=(1, 2), rejects=(WIDE,), replications=320,
        thin=24, warmup=600,
    ),
    "Shrunken": Case(
        "continuous", groups=(0, 1, 2), records=(3, 20, 40), rejects=WRONG[1:], ridged=(1, 2)
    ),
    "Own centers": Case(
        "continuous", groups=(0, 1, 2), records=(6, 20, 40), rejects=(WRONG[1], FORGOTTEN),
        ridged=(2,), first=6.0,
    ),
    "Own centers, two groups": Case(
        "continuous", groups=(0, 0, 1), records=(20, 20, 40), rejects=(WRONG[1], FORGOTTEN),
        first=4.0,
    ),
    "Levels": Case(
        "continuous", groups=(0, 1, 2), rejects=(WRONG[1], NO_LEVELS), replications=320,
        level=((0, 0, 1), (0, 1, 2)),
    ),
    "Crossed": crossed(5, 6),
}


def half_t(
    scale: float, count: int, rng: np.random.Generator, least: float = 0.0
) -> FloatArray:
    """Draws of a half-t3 above its least value."""
    tail = stats.t.sf(least / scale, 3) * rng.random(count)
    return np.asarray(scale * stats.t.isf(tail, 3))


def prior(case: Case, count: int, rng: np.random.Generator) -> Theta:
    """Draws of the parameters, leading axis ``count``, by the sampler's names.

    Those with a variance beyond what chains are kept within are left out: with few degrees of
    freedom of the pooling there are some of 10^100, of which no sum has digits."""
    theta = _prior(case, 2 * count, rng)
    square = case.spread**2
    sound = np.ones(2 * count, dtype=bool)
    for name, values in theta.items():
        if name.startswith("variance"):
            sound &= ((values > square / FARTHEST) & (values < square * FARTHEST)).all(axis=1)
    kept = np.flatnonzero(sound)[:count]
    return {name: values[kept] for name, values in theta.items()}


def _prior(case: Case, count: int, rng: np.random.Generator) -> Theta:
    priors, layout, groups = case.all_priors, case.layout, max(case.groups) + 1
    theta: Theta = {}
    for part in layout.logits:
        shape = count, part.columns.size, part.own.size
        sd = np.full((part.columns.size, 1), priors["logit_sd"])
        sd[list(case.ridged)] = 2.0 * priors["interaction_scale"]
        theta[f"logit_{part.name}"] = sd * rng.standard_normal(shape)
    for part in layout.regressions:
        name, width = part.name, part.width
        least = 0.0 if part.outcome is None else case.spread
        tau = half_t(priors["coefficient_scale"], count, rng, least)
        theta[f"coefficient_scale_{name}"] = tau
        s_0 = half_t(priors["residual_scale"], count, rng)
        # Slopes are in units of the spreads, which all columns share.
        sd = np.where(np.arange(width) < part.columns.size, tau[:, None], 1.0)
        theta[f"coefficients_{name}"] = sd * rng.standard_normal((count, width))
        if not layout.grouped:
            theta[f"variance_{name}"] = s_0[:, None] ** 2
            continue
        nu = priors["pooling_df"] * np.abs(rng.standard_cauchy(count))
        gamma = rng.gamma(0.5 * nu[:, None], size=(count, groups))
        theta[f"pooled_scale_{name}"], theta[f"pooled_df_{name}"] = s_0, nu
        theta[f"variance_{name}"] = (0.5 * nu * s_0**2)[:, None] / np.maximum(gamma, 1e-300)
        if part.earlier.size:
            t = half_t(priors["slope_scale"], count, rng)
            noise = rng.standard_normal((count, groups, part.earlier.size))
            theta[f"slope_scale_{name}"] = t
            theta[f"slopes_{name}"] = t[:, None, None] * noise
        if case.level:
            _add_levels(case, theta, part, rng)
    return _shrunken(case, theta, rng)


def _add_levels(
    case: Case, theta: Theta, part: RegressionPart, rng: np.random.Generator
) -> None:
    """What groups of a level have in common: on log variances, and on slopes.

    Effects are independent but for their mean, which is taken off; theta has their contrasts."""
    name, kappa = part.name, case.all_priors["interaction_scale"]
    log_variance, slopes = np.log(theta[f"variance_{name}"]), theta.get(f"slopes_{name}")
    in_variances, in_slopes = [], []
    for own in map(np.array, case.level):
        count = own.max() + 1
        # The log of a residual SD has half of the effect; slopes are in units of the spreads.
        normal = 2.0 * kappa * rng.standard_normal((len(log_variance), count))
        log_variance = log_variance + (normal - normal.mean(1, keepdims=True))[:, own]
        in_variances.append(normal @ helmert(count).T)
        if slopes is not None:
            normal = kappa * rng.standard_normal((len(slopes), count, slopes.shape[-1]))
            slopes = slopes + (normal - normal.mean(1, keepdims=True))[:, own]
            in_slopes.append(helmert(count) @ normal)
    theta[f"level_variances_{name}"] = np.concatenate(in_variances, axis=1)
    theta[f"variance_{name}"] = np.exp(log_variance)
    if slopes is not None:
        theta[f"level_slopes_{name}"] = np.concatenate(in_slopes, axis=1)
        theta[f"slopes_{name}"] = slopes


def _shrunken(case: Case, theta: Theta, rng: np.random.Generator) -> Theta:
    """Interactions whose covariance is that of the columns, times a constant, column by column."""
    kappa, left = case.all_priors["interaction_scale"], {}
    for part in case.layout.regressions:
        core = theta[f"coefficients_{part.name}"]
        slopes = core[:, part.columns.size :]
        grouped = max(case.groups) > 0
        size = (
            theta[f"pooled_scale_{part.name}"] if grouped
            else np.sqrt(theta[f"variance_{part.name}"][:, 0])
        )  # fmt: skip
        for k in case.ridged:
            value = kappa * size * rng.standard_normal(len(core))
            for place, position in enumerate(part.earlier):
                value = value + slopes[:, place] * left[position, k]
            left[part.position, k] = core[:, k] = value
    return theta


def records(
    case: Case, theta: Theta, cell: IntArray, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Combinations (n,) and z (n, q) of one draw, part by part from the definition of the model."""
    layout, shape = case.layout, case.shape
    group = np.array(case.groups)[cell]
    category = np.zeros((cell.size, len(layout.categories)), dtype=np.int64)
    for part in layout.logits:
        x = layout.tilde(case.x[cell], category)[:, part.columns]
        eta = np.hstack([np.zeros((cell.size, 1)), x @ theta[f"logit_{part.name}"]])
        gumbel = -np.log(-np.log(rng.random(eta.shape)))
        category[:, part.outcome] = (eta + gumbel).argmax(1)
    tilde, there = layout.tilde(case.x[cell], category), layout.present(category)
    z, residual = np.zeros((2, cell.size, layout.q))
    for part in layout.regressions:
        own, here = part.position, there[:, part.position]
        core = theta[f"coefficients_{part.name}"]
        about = tilde[:, part.columns] @ core[: part.columns.size]
        slopes = np.broadcast_to(core[part.columns.size :], (cell.size, part.earlier.size))
        if f"slopes_{part.name}" in theta:
            slopes = slopes + theta[f"slopes_{part.name}"][group]
        mean = about + (slopes * residual[:, part.earlier]).sum(1)
        sd = np.sqrt(theta[f"variance_{part.name}"][group])
        z[:, own] = (mean + sd * rng.standard_normal(cell.size)) * here
        residual[:, own] = (z[:, own] - about) * here
    return shape.combination_of(category), z


def noisy_statistics(
    case: Case, cell: IntArray, combination: IntArray, z: FloatArray, rng: np.random.Generator
) -> LocationStatistics:
    """Sums of records that nothing is clipped of, with noise of the case's size."""
    shape = case.shape
    centre, spread = np.full(shape.q, case.spread), np.full(shape.q, case.spread)
    design = _designs(case)
    table = np.zeros((len(case.x), len(shape.combinations)))
    np.add.at(table, (cell, combination), 1.0)
    tilde = np.hstack([case.x[cell], shape.indicators[combination]])
    cross, squares, early = [], [], []
    for block in design.blocks if case.first else ():  # all records are in blocks of their groups
        own = shape.group[cell] == block.group
        exact = (case.x[cell[own]] @ block.noise.basis).T @ ((z[own] - centre) / spread)
        early.append(exact + case.first * rng.standard_normal(exact.shape))
    centres = design.centres(early, case.first) if case.first else np.zeros((len(design.blocks), 1))
    off = case.squares_sd / np.sqrt(2.0)
    for block, middle in zip(design.blocks, centres, strict=True):
        own = (shape.pattern[combination] == block.pattern) & (shape.group[cell] == block.group)
        there = np.flatnonzero(shape.patterns[block.pattern])
        u = (z[own][:, there] - centre[there]) / spread[there] - middle
        exact = (tilde[own] @ block.noise.basis).T @ u
        cross.append(exact + case.sigma * rng.standard_normal(exact.shape))
        noise = off * rng.standard_normal((there.size, there.size))
        noise = np.tril(noise, -1) + np.tril(noise, -1).T
        noise += np.diag(case.squares_sd * rng.standard_normal(there.size))
        squares.append(u.T @ u + noise)
    # Counts are whole numbers, and so is their noise: rounded normals stand for it.
    noise = np.rint(case.count_sd * rng.standard_normal(table.size))
    return LocationStatistics(
        n=cell.size, counts=table.ravel() + noise, cross=tuple(cross), squares=tuple(squares),
        basis=tuple(block.noise.basis for block in design.blocks), present=shape.patterns,
        block_pattern=np.array([block.pattern for block in design.blocks]),
        block_group=np.array([block.group for block in design.blocks]),
        sigma=case.sigma, squares_sd=(case.squares_sd, off), count_sd=case.count_sd,
        centre=centre, spread=spread, radius=3.0, share=1.0, rho=1.0, epsilon=1.0, delta=1e-6,
        records=1, noise="approximate",
        first=GroupSums(tuple(early), centres, case.first, 3.0, 0.2) if case.first else None,
    )  # fmt: skip


def _designs(case: Case) -> LocationDesign:
    q, sizes = case.shape.q, np.bincount(case.cell, minlength=len(case.x))
    centring = Centring(3.0, sizes, np.ones(case.x.shape[1])) if case.first else None
    return LocationDesign.optimal(case.shape, Clipping(np.zeros(q), np.ones(q)), centring)


def one_target(case: Case, chains: int, rng: np.random.Generator) -> LocationTarget:
    """The target of one database of the case."""
    truth = {name: values[0] for name, values in prior(case, 1, rng).items()}
    noisy = noisy_statistics(case, case.cell, *records(case, truth, case.cell, rng), rng)
    return LocationTarget.of(case.shape, case.cell, [noisy], chains)


def databases(
    case: Case, count: int, rng: np.random.Generator
) -> tuple[Theta, list[LocationStatistics]]:
    """Parameters (count, ...) and the noisy statistics of their records."""
    kept: list[Theta] = []
    noisy: list[LocationStatistics] = []
    while len(noisy) < count:
        truth = prior(case, count, rng)
        for d in range(count):
            each = {name: values[d] for name, values in truth.items()}
            found = noisy_statistics(case, case.cell, *records(case, each, case.cell, rng), rng)
            largest = max(square.max(initial=0.0) for square in found.squares)
            if not case.most or largest < case.most:
                kept.append(each)
                noisy.append(found)
    return {name: np.stack([each[name] for each in kept[:count]]) for name in truth}, noisy[:count]


def quantities(case: Case, theta: Theta) -> dict[str, FloatArray]:
    """What is ranked, (count, draws, d) by name; the sizes of shrunken coefficients too."""
    result = {name: values.reshape(*values.shape[:2], -1) for name, values in theta.items()}
    ridged = list(case.ridged)
    for name, values in theta.items() if ridged else ():
        if name.startswith("logit_"):
            size = (values[:, :, ridged] ** 2).sum((-2, -1))
            result[f"interactions_{name}"] = size[..., None]
    return result


def ranks_of_batch(
    case: Case, sampler: str, count: int, rng: np.random.Generator
) -> tuple[dict[str, Any]]:
    """Ranks (count,) of each true quantity among its draws."""
    truth, noisy = databases(case, count, rng)
    if sampler == "counts known":
        noisy = [replace(each, count_sd=0.1 * each.count_sd) for each in noisy]
    if sampler == "moments known":
        noisy = [
            replace(
                each, sigma=0.1 * each.sigma, first=None if each.first is None
                else replace(each.first, sigma=0.1 * each.first.sigma),
                squares_sd=(0.1 * each.squares_sd[0], 0.1 * each.squares_sd[1]),
            )
            for each in noisy
        ]  # fmt: skip
    if sampler == FORGOTTEN:
        noisy = [replace(each, first=None) for each in noisy]
    shape = replace(case.shape, level=None) if sampler == NO_LEVELS else case.shape
    target = LocationTarget.of(shape, case.cell, noisy, 1)
    plan = SamplingPlan(1, -(-case.warmup // case.thin), case.draws)
    priors = dict(case.all_priors)
    if sampler == WIDE:
        priors["interaction_scale"] *= 3.0
    theta = sample_noisy(case.layout, target, priors, plan, rng.spawn(count), case.thin)
    true = quantities(case, {name: values[:, None] for name, values in truth.items()})
    found = quantities(case, {name: values[:, 0] for name, values in theta.items()})
    return (sbc.ranks_of(found, true),)


def calibrate(case: Case, seed: int, sampler: str = "sound") -> dict[str, Any]:
    """Uniformity by parameter."""
    (found,) = sbc.of_batches(partial(ranks_of_batch, case, sampler), case, seed)
    return found


if __name__ == "__main__":
    noisy_calibration.main(__doc__.splitlines()[0], CASES, calibrate, GOLDEN)
