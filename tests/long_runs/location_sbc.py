"""Simulation-based calibration of posteriors under noise, outcomes of every kind:
``python -m tests.long_runs.location_sbc``.

Parameters are drawn from the prior, records from the parameters one by one, sums are added up by
hand, noise is added, and the parameters' ranks among draws given the noisy numbers alone are
uniform if and only if the law of these is right. Wrong laws are rejected: products with half of
their noise, sums taken for known, counts taken for known once they have been noisy (without C), C
without its term of rank one, groups without what levels have in common, a wide ridge, levels that
do not deviate by group, and centers of groups that are forgotten.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.linalg import helmert, null_space

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.category_law import CategoryLaw, CountLaw
from surveysynth.mechanisms.noisy_statistics.posterior.draws import ITERATIONS, theta_of
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import (
    Parameters,
)
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    Centring,
    GroupSums,
    LocationDesign,
    LocationStatistics,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.models.general_location.layout import Layout, RegressionPart
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.sampling.hmc import HamiltonianChains, find_mode, whitening_at
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform
from tests.long_runs import sbc

GOLDEN = Path(__file__).parents[1] / "golden" / "location_sbc.json"
X = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
PLAIN = Transform("identity")
AMOUNT = Outcome("c", transform=PLAIN)
ZEROS = Outcome("b", "semicontinuous", PLAIN, spikes=(0.0,))
YES = Outcome("a", "binary")
KINDS = {
    "amount": (AMOUNT,),
    "amount with zeros": (ZEROS,),
    "yes or no": (YES,),
    "four levels": (Outcome("a", "categorical", levels=("w", "x", "y", "z")),),
    "split": (Outcome("b", "semicontinuous", PLAIN, spikes=(0.0,), split=0.0),),
    "several": (YES, ZEROS, AMOUNT),
}
HALVED, SUMS_KNOWN, WITHOUT_C = "half the noise of products", "sums known", "without C"
RANK_ONE, NO_LEVELS, WIDE = "without the term of rank one", "levels forgotten", "wide ridge"
ALIKE, FORGOTTEN = "no deviations", "centers forgotten"
#: Chains, each of which gives one draw after so many rounds that are kept nowhere, and others.
DRAWS, WARMUP, ROUNDS = 31, 80, 30


@dataclass(frozen=True)
class Case:
    """Outcomes, groups of the three cells, records of each or of all alike, and the noise.

    sigma: SD of the noise of T; count_sd: of counts; squares_sd: of the diagonal of Q, over
    sqrt(2) of the rest; all columns have one spread, their center is zero. ``rejects``: wrong laws;
    ridged: shrunken columns of X; first: SD of the noise of first sums, from which groups have
    centers of their own, 0 for one stage; level: of groups in each factor. crossed: numbers of
    levels of two factors, whose cells take the place of the three: a column of X for each, those of
    interactions orthonormal and to main effects. Left out, as the posterior knows, are databases
    with a noisy square above ``most`` times the number of its records and four SDs of its noise,
    which clipping would leave none of; and, where ``rare`` is above zero, those where the noisy
    count of later categories is above this share of a cell.
    """

    outcomes: str
    groups: tuple[int, ...] = (0, 0, 0)
    records: int | tuple[int, ...] = 40
    sigma: float = 4.0
    count_sd: float = 3.0
    squares_sd: float = 16.0
    spread: float = 0.7
    priors: Mapping[str, float] = field(default_factory=dict)
    replications: int = 128
    rejects: tuple[str, ...] = ()
    ridged: tuple[int, ...] = ()
    first: float = 0.0
    level: tuple[tuple[int, ...], ...] = ()
    crossed: tuple[int, ...] = ()
    most: float = 6.0
    rare: float = 0.0
    draws: int = DRAWS

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

    @cached_property
    def shape(self) -> LocationShape:
        """The public table."""
        group, level = np.array(self.groups), np.array(self.level) if self.level else None
        return LocationShape(self.x, group, KINDS[self.outcomes], weighted=True, level=level)

    @property
    def layout(self) -> Layout:
        """Of the model."""
        return replace(self.shape.layout, ridged=self.ridged)

    @property
    def all_priors(self) -> Mapping[str, float]:
        """Scales of a few spreads at most, and groups that differ by a few times at most."""
        narrow = {
            "coefficient_scale": 0.7, "residual_scale": 0.4, "logit_sd": 1.0, "slope_scale": 0.3,
            "pooling_df": 30.0,
        }  # fmt: skip
        return {**GeneralLocation.default_priors, **narrow, **self.priors}


def crossed(*sizes: int) -> Case:
    """A mean of its own for every cell of two factors, each cell a group."""
    cells, main = int(np.prod(sizes)), sum(sizes) - 1
    return Case(
        "amount", groups=tuple(range(cells)), records=15, rejects=(WIDE,),
        ridged=tuple(range(main, cells)), crossed=sizes,
        level=tuple(map(tuple, np.indices(sizes).reshape(2, -1).tolist())),
    )  # fmt: skip


CASES = {
    "Amount": Case(
        "amount", groups=(0, 1, 2), records=60, squares_sd=8.0, rejects=(HALVED, SUMS_KNOWN),
        replications=256,
    ),
    "Amount with zeros": Case(
        "amount with zeros", groups=(0, 0, 1), records=60
    ),
    "Yes or no": Case("yes or no"),
    # Sums about a distant center: what noise hides of counts shows in them.
    "Distant center": Case(
        "yes or no", records=60, sigma=1.0, count_sd=6.0, rejects=(WITHOUT_C, RANK_ONE),
        priors={"coefficient_scale": 2.0}, most=40.0, replications=512,
    ),
    "Four levels": Case("four levels", groups=(0, 1, 1), records=60),
    "Split": Case("split", groups=(0, 0, 1), records=80),
    "Several": Case("several", groups=(0, 1, 1), records=80),
    "Few records": Case("amount", groups=(0, 1, 2), records=(2, 8, 30), rejects=(SUMS_KNOWN,)),
    "Rare category": Case(
        "yes or no", groups=(0, 1, 2), records=(40, 60, 100), rare=0.08,
        priors={"logit_sd": 2.0},
    ),
    "Deviations": Case(
        "four levels", groups=(0, 1, 2), records=80, sigma=2.0, rejects=(ALIKE,),
        priors={"interaction_scale": 0.6},
    ),
    "Interactions": Case(
        "amount with zeros", groups=(0, 1, 1), records=60, rejects=(WIDE,), ridged=(2,),
    ),
    "Levels": Case(
        "amount", groups=(0, 1, 2, 3, 4, 5), crossed=(3, 2), records=40, sigma=2.0, squares_sd=8.0,
        level=((0, 0, 1, 1, 2, 2), (0, 1, 0, 1, 0, 1)), rejects=(NO_LEVELS,),
        priors={"interaction_scale": 0.6},
    ),
    "Own centers": Case(
        "amount", groups=(0, 0, 1), records=(6, 20, 40), rejects=(FORGOTTEN,), first=4.0
    ),
    "Crossed": crossed(4, 5),
}  # fmt: skip


# --- prior and records ------------------------------------------------------------------------


def half_t(
    scale: float, count: int, rng: np.random.Generator, least: float = 0.0
) -> FloatArray:
    """Draws of a half-t3 above its least value."""
    tail = stats.t.sf(least / scale, 3) * rng.random(count)
    return np.asarray(scale * stats.t.isf(tail, 3))


def pooling_df(scale: float, count: int, rng: np.random.Generator) -> FloatArray:
    """Draws of nu: half-Cauchy, each kept with the chance exp(-nu / 10,000)."""
    drawn = scale * np.abs(rng.standard_cauchy(2 * count + 20))
    return np.asarray(drawn[rng.random(drawn.size) < np.exp(-drawn / 1e4)][:count])


def prior(case: Case, count: int, rng: np.random.Generator) -> Theta:
    """Draws of the parameters, leading axis ``count``; scales are ``s``, ``tau``, ``nu``, ``t``."""
    priors, layout, groups = case.all_priors, case.layout, max(case.groups) + 1
    theta: Theta = {}
    for part in layout.logits:
        shape = count, part.columns.size, part.own.size
        sd = np.full((part.columns.size, 1), priors["logit_sd"])
        sd[list(case.ridged)] = 2.0 * priors["interaction_scale"]
        theta[f"logit_{part.name}"] = sd * rng.standard_normal(shape)
    for part in layout.regressions:
        name, width = part.name, part.width
        least = case.spread * (0.05 if part.outcome is None else 1.0)
        tau = half_t(priors["coefficient_scale"], count, rng, least)
        s_0 = half_t(priors["residual_scale"], count, rng)
        theta |= {f"tau_{name}": tau, f"s_{name}": s_0}
        # Slopes are in units of the spreads, which all columns share.
        sd = np.where(np.arange(width) < part.columns.size, tau[:, None], 1.0)
        theta[f"coefficients_{name}"] = sd * rng.standard_normal((count, width))
        if not layout.grouped:
            theta[f"variance_{name}"] = s_0[:, None] ** 2
            continue
        nu = pooling_df(priors["pooling_df"], count, rng)
        gamma = np.maximum(rng.gamma(0.5 * nu[:, None], size=(count, groups)), 1e-300)
        theta[f"nu_{name}"] = nu
        theta[f"variance_{name}"] = (0.5 * nu * s_0**2)[:, None] / gamma
        if part.earlier.size:
            t = half_t(priors["slope_scale"], count, rng)
            noise = rng.standard_normal((count, groups, part.earlier.size))
            theta |= {f"t_{name}": t, f"slopes_{name}": t[:, None, None] * noise}
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
    contrasts = []
    for own in map(np.array, case.level):
        count = own.max() + 1
        # The log of a residual SD has half of the effect; slopes are in units of the spreads.
        normal = 2.0 * kappa * rng.standard_normal((len(log_variance), count))
        log_variance = log_variance + (normal - normal.mean(1, keepdims=True))[:, own]
        contrasts.append(normal @ helmert(count).T)
        if slopes is not None:
            normal = kappa * rng.standard_normal((len(slopes), count, slopes.shape[-1]))
            slopes = slopes + (normal - normal.mean(1, keepdims=True))[:, own]
    theta[f"levels_{name}"] = np.concatenate(contrasts, axis=1)
    theta[f"variance_{name}"] = np.exp(log_variance)
    if slopes is not None:
        theta[f"slopes_{name}"] = slopes


def _shrunken(case: Case, theta: Theta, rng: np.random.Generator) -> Theta:
    """Interactions, and deviations of levels by group, whose covariance is that of the columns,
    times a constant, column by column."""
    kappa, layout, left = case.all_priors["interaction_scale"], case.layout, list[FloatArray]()
    groups, ridged = max(case.groups) + 1, list(case.ridged)
    for part in layout.regressions:
        core = theta[f"coefficients_{part.name}"]
        levels = np.isin(np.arange(layout.columns, layout.width), part.columns)
        used = np.concatenate([np.ones(len(ridged)), np.tile(levels * layout.grouped, groups)])
        log_variance = np.log(theta[f"variance_{part.name}"])
        typical = np.exp(0.5 * log_variance.reshape(len(core), -1).mean(1))  # of groups
        scale = kappa * typical[:, None]
        value = scale * rng.standard_normal((len(core), used.size))
        for place, position in enumerate(part.earlier):
            value = value + core[:, part.columns.size + place, None] * left[position]
        left.append(value * used)
        core[:, ridged] = left[-1][:, : len(ridged)]
        if layout.grouped and levels.size:
            deviations = left[-1][:, len(ridged) :].reshape(len(core), groups, -1)
            theta[f"deviations_{part.name}"] = deviations
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
        if f"deviations_{part.name}" in theta:
            by_group = theta[f"deviations_{part.name}"][group]
            about = about + (by_group * tilde[:, layout.columns :]).sum(1)
        slopes = np.broadcast_to(core[part.columns.size :], (cell.size, part.earlier.size))
        if f"slopes_{part.name}" in theta:
            slopes = slopes + theta[f"slopes_{part.name}"][group]
        mean = about + (slopes * residual[:, part.earlier]).sum(1)
        sd = np.sqrt(theta[f"variance_{part.name}"][group])
        z[:, own] = (mean + sd * rng.standard_normal(cell.size)) * here
        residual[:, own] = (z[:, own] - about) * here
    return shape.combination_of(category), z


# --- noisy numbers ----------------------------------------------------------------------------


def noisy_statistics(
    case: Case, cell: IntArray, combination: IntArray, z: FloatArray, rng: np.random.Generator
) -> LocationStatistics:
    """Sums of records that nothing is clipped of, with noise of the case's size."""
    shape = case.shape
    spread, design = np.full(shape.q, case.spread), _design(case)
    table = np.zeros((len(case.x), len(shape.combinations)))
    np.add.at(table, (cell, combination), 1.0)
    tilde = np.hstack([case.x[cell], shape.indicators[combination]])
    cross, squares, early = [], [], []
    for block in design.blocks if case.first else ():  # all records are in blocks of their groups
        own = shape.group[cell] == block.group
        exact = (case.x[cell[own]] @ block.noise.basis).T @ (z[own] / spread)
        early.append(exact + case.first * rng.standard_normal(exact.shape))
    centres = design.centres(early, case.first) if case.first else np.zeros((len(design.blocks), 1))
    off = case.squares_sd / np.sqrt(2.0)
    for block, middle in zip(design.blocks, centres, strict=True):
        own = (shape.pattern[combination] == block.pattern) & (shape.group[cell] == block.group)
        there = np.flatnonzero(shape.patterns[block.pattern])
        u = z[own][:, there] / spread[there] - middle
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
        centre=np.zeros(shape.q), spread=spread, radius=3.0, share=1.0, rho=1.0, epsilon=1.0,
        delta=1e-6, records=1, noise="approximate",
        first=GroupSums(tuple(early), centres, case.first, 3.0, 0.2) if case.first else None,
    )  # fmt: skip


def _design(case: Case) -> LocationDesign:
    q, sizes = case.shape.q, np.bincount(case.cell, minlength=len(case.x))
    centring = Centring(3.0, sizes, np.ones(case.x.shape[1])) if case.first else None
    return LocationDesign.optimal(case.shape, Clipping(np.zeros(q), np.ones(q)), centring)


def _kept(case: Case, noisy: LocationStatistics) -> bool:
    sizes = np.bincount(np.array(case.groups)[case.cell])
    for group, square in zip(noisy.block_group, noisy.squares, strict=True):
        limit = case.most * sizes[group] + 4.0 * case.squares_sd
        if np.abs(square).max(initial=0.0) > limit:
            return False
    if not case.rare:
        return True
    counts = noisy.counts.reshape(len(case.x), -1)
    cells = np.bincount(case.cell)[:, None]
    return bool((counts[:, 1:] < case.rare * cells).all())


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
            if _kept(case, found):
                kept.append(each)
                noisy.append(found)
    return {name: np.stack([each[name] for each in kept[:count]]) for name in truth}, noisy[:count]


# --- draws ------------------------------------------------------------------------------------


class CountsKnown(CountLaw):
    """A wrong law: as if noisy counts told the true ones, or C were diagonal."""

    rank_one_alone = False

    def moments(self, log_p: FloatArray) -> Any:
        """As those of counts that are known once the noisy ones are."""
        value, counts = super().moments(log_p)
        variance = counts.variance if self.rank_one_alone else 0.0 * counts.variance
        return value, replace(counts, variance=variance, factor=0.0 * counts.factor)


def parameters_of(case: Case, noisy: LocationStatistics, law: str = "sound") -> Parameters:
    """The posterior of one database, by the right law or a wrong one."""
    if law == FORGOTTEN:
        noisy = replace(noisy, first=None)
    shape = replace(case.shape, level=None) if law == NO_LEVELS else case.shape
    table = NoisyTable.of(shape, case.cell, noisy, np.eye(case.x.shape[1]))
    if law == HALVED:
        table = replace(table, square_variance=0.25 * table.square_variance)
    if law == SUMS_KNOWN:
        table = replace(table, sum_variance=0.01 * table.sum_variance)
    priors = dict(case.all_priors)
    if law == WIDE:
        priors["interaction_scale"] *= 3.0
    result = Parameters(case.layout, table, priors, deviating=law != ALIKE)
    if law in (WITHOUT_C, RANK_ONE):
        assert isinstance(result.law, CategoryLaw)
        result.law.counts = CountsKnown(table)
        result.law.counts.rank_one_alone = law == RANK_ONE
    return result


def drawn(case: Case, parameters: Parameters, rng: np.random.Generator) -> Theta:
    """One draw (DRAWS, ...) of each chain, by the names of ``prior``."""
    held, curvature = parameters.held()
    mode = find_mode(parameters, parameters.start(), held, ITERATIONS)
    whitening = whitening_at(parameters, mode, held, curvature)
    chains = HamiltonianChains(parameters, whitening, DRAWS, rng, parameters.redraw_scales)
    chains.warm_up(WARMUP)
    points = chains.sample(ROUNDS)[:, -1]
    theta = theta_of(parameters, points, np.eye(case.x.shape[1]))
    point = parameters.point(points)
    for part in case.layout.regressions:
        j, name = part.position, part.name
        theta |= {f"tau_{name}": point.log_tau[:, j], f"s_{name}": point.log_s[:, j]}
        if case.layout.grouped:
            theta[f"nu_{name}"] = point.log_nu[:, j]
            theta[f"levels_{name}"] = point.of_levels[:, j]
            theta[f"t_{name}"] = point.log_t[:, j]
    for name in list(theta):
        if name.startswith(("tau_", "s_", "nu_", "t_")):
            theta[name] = np.exp(theta[name])
    return theta


def quantities(case: Case, theta: Theta) -> dict[str, FloatArray]:
    """What is ranked, (draws, d) by name: the sizes of shrunken coefficients and of deviations
    too, and slopes whole."""
    draws = len(next(iter(theta.values())))
    result = {name: values.reshape(draws, -1) for name, values in theta.items()}
    for part in case.layout.regressions:
        name, core = part.name, theta[f"coefficients_{part.name}"]
        if case.ridged:
            result[f"interactions_{name}"] = (core[:, list(case.ridged)] ** 2).sum(1)[:, None]
        if f"deviations_{name}" in theta:
            own = theta[f"deviations_{name}"].reshape(draws, -1)
            result[f"deviations_{name}"] = used = own[:, own.any(0)]
            if used.size:
                result[f"size of deviations_{name}"] = (used**2).sum(1)[:, None]
        if f"slopes_{name}" in theta:
            whole = core[:, None, part.columns.size :] + theta[f"slopes_{name}"]
            result[f"slopes_{name}"] = whole.reshape(draws, -1)
    return result


def ranks_of_batch(
    case: Case, law: str, count: int, rng: np.random.Generator
) -> tuple[dict[str, Any]]:
    """Ranks (count,) of each true quantity among its draws."""
    truth, noisy = databases(case, count, rng)
    true = quantities(case, truth)
    found = list[dict[str, FloatArray]]()
    for each, own in zip(noisy, rng.spawn(count), strict=True):
        found.append(quantities(case, drawn(case, parameters_of(case, each, law), own)))
    names = [name for name in true if name in found[0] and found[0][name].size]
    return ({
        f"{name}[{j}]": np.array([
            int((draws[name][:, j] < value).sum())
            for draws, value in zip(found, true[name][:, j], strict=True)
        ])
        for name in names for j in range(found[0][name].shape[1])
    },)  # fmt: skip


def calibrate(case: Case, seed: int, law: str = "sound") -> dict[str, Any]:
    """Uniformity by parameter."""
    (found,) = sbc.of_batches(partial(ranks_of_batch, case, law), case, seed)
    return found


def run(case: Case, seed: int) -> dict[str, Any]:
    """One case as written to the golden file."""
    sound = calibrate(case, seed)
    wrong = {law: sbc.smallest(calibrate(case, seed, law)) for law in case.rejects}
    return {
        "settings": {**asdict(case), "seed": seed},
        "smallest_p": sbc.smallest(sound),
        "tests": 2 * len(sound),
        "smallest_p_of_wrong_laws": wrong,
        "parameters": {
            name: {key: values[key] for key in ("chi_square_p", "ks_p")}
            for name, values in sound.items()
        },
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    parser.add_argument("--commit", default="", help="that the results are of")
    parser.add_argument("--case", action="append", choices=list(CASES))
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    if arguments.out.exists():
        found = json.loads(arguments.out.read_text(encoding="utf-8"))["cases"]
    for offset, (name, case) in enumerate(CASES.items()):
        if not arguments.case or name in arguments.case:
            found[name] = {"commit": arguments.commit, **run(case, arguments.seed + offset)}
            row = found[name]
            print(
                f"{name:20s} {row['tests']} tests: smallest p {row['smallest_p']:.3g}; wrong: "
                f"{row['smallest_p_of_wrong_laws']}", flush=True
            )  # fmt: skip
            ordered = {each: found[each] for each in CASES if each in found}
            text = json.dumps({"cases": ordered}, indent=1) + "\n"
            arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
