"""Private draws of a model's parameters given noisy statistics (strict 2): post-processing.

The noise is in the model: the target is p(theta | N~, T~, Q~, X) under the model's own prior, with
the true sums integrated out (``amount_law``, ``category_law``). It costs no epsilon.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from surveysynth._support.progress import more_rounds
from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import RefusedError
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.noisy_statistics.posterior.between_units import (
    unit_covariances,
    with_effects,
)
from surveysynth.mechanisms.noisy_statistics.posterior.level_spreads import level_spreads
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import Parameters, Point
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    require_general,
    table_of,
)
from surveysynth.mechanisms.noisy_statistics.release.unit_products import UnitProducts
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import Model, psu_codes
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import PSU_PRIORS, GeneralLocation
from surveysynth.models.units import records_by_unit
from surveysynth.sampling.convergence import (
    MAX_R_HAT,
    NotConvergedError,
    check_convergence,
)
from surveysynth.sampling.hmc import HamiltonianChains, find_mode, whitening_at
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.design_matrix import DesignMatrix
from surveysynth.survey.survey import PublicDesign

#: Iterations of the search for a mode, which only has to come near.
ITERATIONS = 200
#: A fit keeps at most about this many times the rounds of the plan. Up to an R-hat of NEAR the
#: rounds so far are kept, and more follow; beyond it there is a further warm-up, and others follow.
LONGEST, NEAR = 32, 1.15
#: Rounds that follow, in rounds so far: what R-hat asks for, and a tenth more, between these.
FEWEST, MOST = 0.25, 1.0
#: A round of many chains takes little longer than one of few while a point fills fewer numbers than
#: BUSY. Beyond that time grows with their number, so there are fewer, but not less than these.
BUSY, LEAST_CHAINS = 2_000, 12
#: Up to so many coordinates one matrix whitens all, which learns in the warm-up also what groups
#: have to do with each other; beyond it groups have matrices of their own, or it would take longer
#: than the chains.
DENSE = 1_000
#: Points whose functionals are computed at once hold so many rows of the table.
ROWS_AT_ONCE = 2**18

Said = Callable[[str], None]


@dataclass(frozen=True)
class PosteriorRecord:
    """The public record of a fit.

    Largest R-hat and smallest effective sample size by group of functionals, the number of rounds
    that were kept, and the number of chains, which may be smaller than the plan's.
    """

    r_hat: Mapping[str, float]
    ess: Mapping[str, float]
    rounds: int
    chains: int


def posterior_draws(
    model: Model,
    design: PublicDesign,
    statistics: LocationStatistics,
    settings: NoisySettings,
    rng: np.random.Generator,
    progress: Said | None = None,
) -> tuple[PrivateDraws, PosteriorRecord]:
    """Return m draws of the parameters given the noisy statistics, and the record of the fit.

    ``progress``: called when chains continue. Raises ``RefusedError`` where they have not
    converged, and ``InputError`` for statistics of another model.
    """
    general = require_general(model)
    layout, shape = Layout.of(design, general.grouped), table_of(general, design)
    root = alike(design.matrix)
    table = NoisyTable.of(shape, design.matrix.cell, statistics, root)
    parameters = Parameters(layout, table, general.priors)
    points, record = fit(parameters, settings, rng, progress)
    m, kept = settings.m, len(points)
    points = points[(np.arange(m) * kept) // m + kept // (2 * m)]  # evenly over all chains
    drawn = PrivateDraws(model.name, theta_of(parameters, points, root), settings)
    drawn = draws_with_effects(drawn, general, design, parameters, points, statistics.units, rng)
    if statistics.levels is not None:
        spreads = level_spreads(parameters, points, statistics.levels, rng)
        drawn = replace(drawn, theta={**drawn.theta, **spreads})
    return drawn, record


def fit(
    parameters: Parameters,
    settings: NoisySettings,
    rng: np.random.Generator,
    progress: Said | None = None,
) -> tuple[FloatArray, PosteriorRecord]:
    """Return points (draws, D) of all chains, one chain after the other, and the record."""
    plan = settings.plan
    held, curvature = parameters.held()
    mode = find_mode(parameters, parameters.start(), held, ITERATIONS)
    if parameters.dimension > DENSE:
        density, apart = parameters.about(mode), parameters.apart()
        whitening = whitening_at(density, mode, held, curvature, apart)
    else:
        whitening = whitening_at(parameters, mode, held, curvature)
    count = chains_side_by_side(parameters.table, plan, settings.m)
    chains = HamiltonianChains(parameters, whitening, count, rng, parameters.redraw_scales)
    chains.warm_up(plan.warmup)
    points = chains.sample(plan.draws)
    while True:
        rounds = points.shape[1]
        try:
            r_hat, ess = check_convergence(functionals_of(parameters, points), None)
        except NotConvergedError as refusal:
            if rounds >= LONGEST * plan.draws:
                raise RefusedError(
                    "The chains given the noise have not converged: R-hat is "
                    f"{refusal.r_hat:.2f} after all stages, and {MAX_R_HAT} is required. Release "
                    "fewer outcomes together, join rare levels or small cells, give all cells one "
                    "spread (covariance_by = [] in [synthesizer]), raise epsilon, or raise warmup "
                    "and draws there; the noise that was drawn is used again."
                ) from None
            more = rounds_to_come(rounds, refusal.r_hat)
            if progress is not None:
                progress(more_rounds(more, refusal.r_hat))
            if refusal.r_hat > NEAR:
                chains.warm_up(more)
                points = chains.sample(2 * more)
            else:
                points = np.concatenate([points, chains.sample(more)], axis=1)
            continue
        record = PosteriorRecord(r_hat, ess, rounds=rounds, chains=len(points))
        return points.reshape(-1, points.shape[-1]), record


def rounds_to_come(rounds: int, r_hat: float) -> int:
    """Return the number of further rounds: R-hat^2 - 1 falls as one over their number."""
    wanted = 1.1 * (r_hat**2 - 1.0) / (MAX_R_HAT**2 - 1.0) - 1.0
    return int(np.ceil(rounds * min(max(wanted, FEWEST), MOST)))


def chains_side_by_side(table: NoisyTable, plan: SamplingPlan, m: int) -> int:
    """Return the number of chains of a fit: that of the plan, or fewer where each costs more."""
    filled = 0
    for pattern in table.patterns:
        groups, cells, combinations, rows = pattern.rows.shape
        moments = rows * pattern.present.size + pattern.pairs[0].size
        filled += groups * moments * (cells * combinations + moments)
    least = max(LEAST_CHAINS, -(-m // plan.draws))
    return min(plan.chains, max(least, plan.chains * BUSY // max(filled, 1)))


def functionals_of(parameters: Parameters, points: FloatArray) -> dict[str, FloatArray]:
    """Return the functionals that tables use, by group, (chains, draws, ..) each.

    points (chains, draws, D). By cell: log expected weights, weighted means and log SDs of amounts
    on the scale of the model, and weighted shares of categories that are worth a record or more
    (without any, shares of the whole).
    """
    flat = points.reshape(-1, points.shape[-1])
    rows = parameters.table.shape.x_cells.shape[0] * len(parameters.table.shape.combinations)
    parts = np.array_split(flat, -(-len(flat) * rows // ROWS_AT_ONCE))
    found = [_functionals(parameters, parameters.point(part)) for part in parts]
    whole = {
        name: np.concatenate([each[name] for each in found]).reshape(*points.shape[:2], -1)
        for name in found[0]
        if found[0][name].size
    }
    if "shares" in whole:
        sizes = parameters.table.sizes
        shares = whole["shares"].reshape(*points.shape[:2], -1, sizes.size)
        worth = shares.mean((0, 1)) * sizes >= 1.0
        # Beside a public weight, a number, each cell may be one record: those of the whole then.
        whole["shares"] = shares[..., worth] if worth.any() else shares @ (sizes / sizes.sum())
    return whole


def _functionals(parameters: Parameters, point: Point) -> dict[str, FloatArray]:
    shape, spread, q = parameters.table.shape, parameters.spread, parameters.q
    log_p, _ = parameters.log_p(point)
    means = parameters.means(point) * spread
    log_weight = np.zeros_like(log_p)
    tilted = np.zeros_like(means)
    pattern_of = [shape.pattern[each.combinations[0]] for each in parameters.table.patterns]
    covariance = np.zeros((len(log_p), *shape.patterns.shape[:1], parameters.groups, q, q))
    for number, there, (root, _, _) in zip(
        pattern_of, parameters.present, parameters.roots_of(point), strict=True
    ):
        own = (root @ root.swapaxes(-1, -2)) * spread[there, None] * spread[there]
        covariance[:, number, :, there[:, None], there] = np.moveaxis(own, (-2, -1), (0, 1))
    of_cells = covariance[:, :, parameters.group]  # (b, P, C, q, q)
    if shape.weighted:
        for number in range(len(shape.patterns)):
            own = shape.pattern == number
            variance = of_cells[:, number, :, -1, -1]
            log_weight[..., own] = means[..., own, -1] + 0.5 * variance[..., None]
            tilted[..., own, :] = of_cells[:, number, :, None, -1]
    mass = log_p + log_weight
    total = np.logaddexp.reduce(mass, axis=-1)
    share = np.exp(mass - total[..., None])
    amounts = q - int(shape.weighted)
    of_amounts, log_sd = list[FloatArray](), list[FloatArray]()
    for j in range(amounts):
        there = share * shape.present_in[:, j]
        weighted = (there * (means + tilted)[..., j]).sum(-1) / there.sum(-1)
        of_amounts.append(weighted)
        number = int(shape.pattern[np.flatnonzero(shape.present_in[:, j])[0]])
        log_sd.append(0.5 * np.log(covariance[:, number, :, j, j]))
    shares = [
        share[..., shape.combinations[:, j] == c].sum(-1)
        for j, outcome in enumerate(shape.outcomes)
        if outcome.is_discrete
        for c in range(outcome.categories)
    ]
    groups = {"counts": [total] * shape.weighted, "means": of_amounts, "spreads": log_sd,
              "shares": shares}  # fmt: skip
    return {
        name: np.concatenate(each, axis=-1) if each else np.empty(0)
        for name, each in groups.items()
    }


def theta_of(parameters: Parameters, points: FloatArray, root: FloatArray) -> Theta:
    """Return the parameters (s, ...) as the model's simulation reads them, at points (s, D).

    root (K, K): of the prior of coefficients, which are on X and of z itself in what is returned.
    """
    point, layout, table = parameters.point(points), parameters.layout, parameters.table
    ones = np.zeros(layout.width)
    cells = table.shape.x_cells
    ones[: layout.columns] = np.linalg.lstsq(cells, np.ones(len(cells)), rcond=None)[0]
    turned = point.coefficients.copy()
    turned[..., : layout.columns] = turned[..., : layout.columns] @ root.T
    turned += table.center[:, None] * ones
    theta: Theta = {}
    for part in layout.regressions:
        name, j = part.name, part.position
        pairs = np.flatnonzero(parameters.row == j)
        own = [turned[:, j, part.columns], point.core[:, pairs]]
        theta[f"coefficients_{name}"] = np.concatenate(own, axis=-1)
        theta[f"variance_{name}"] = np.exp(point.log_variance[:, j])
        if layout.grouped:
            theta[f"deviations_{name}"] = point.deviations[:, j]
            if pairs.size:
                added = point.slopes[:, pairs] - point.core[:, pairs, None]
                theta[f"slopes_{name}"] = added.swapaxes(1, 2)
    for logit, coefficients in zip(layout.logits, point.logits, strict=True):
        theta[f"logit_{logit.name}"] = coefficients
    return theta


def alike(matrix: DesignMatrix) -> FloatArray:
    """Return the root (K, K) of coefficients c = root e on X with e ~ N(0, tau^2) each.

    About a variable that a formula codes by differences from a level the prior has no favorite
    level (strict 9); the identity where there is none."""
    size = matrix.n_columns
    if "Intercept" not in matrix.columns:
        return np.eye(size)
    terms: dict[str, list[int]] = {}
    for k, name in enumerate(matrix.columns):
        if "[T." in name and name.endswith("]") and not matrix.ridged[k]:
            terms.setdefault(name[: name.index("[T.")], []).append(k)
    first, effects = matrix.columns.index("Intercept"), [np.eye(size)]
    for own in terms.values():
        flags = matrix.x_cells[:, own]
        if not np.isin(flags, (0.0, 1.0)).all() or (flags.sum(1) > 1.0).any():
            continue
        reference = np.zeros((size, 1))
        reference[own] = -1.0
        reference[first] = 1.0
        effects.append(reference)
    of_effects = np.hstack(effects)
    return np.asarray(np.linalg.cholesky(of_effects @ of_effects.T), dtype=np.float64)


def draws_with_effects(
    private: PrivateDraws,
    model: GeneralLocation,
    design: PublicDesign,
    parameters: Parameters,
    points: FloatArray,
    units: UnitProducts | None,
    rng: np.random.Generator,
) -> PrivateDraws:
    """Return the draws, at points (m, ..), with a covariance of effects each.

    The same draws where PSUs have no effects.
    """
    psu = psu_codes(model, design)
    if psu is None or units is None:
        return private
    table, layout = parameters.table, parameters.layout
    records = records_by_unit(design.matrix.cell, psu, len(table.sizes))
    thetas = [private.draw(draw) for draw in range(private.settings.m)]
    chosen = {"lkj": model.priors["lkj"]} | {
        name: value for name, value in model.changed_priors.items() if name in PSU_PRIORS
    }
    point = parameters.point(points)
    p, means = np.exp(parameters.log_p(point)[0]), parameters.means(point)
    covariances = [root @ root.swapaxes(-1, -2) for root, _, _ in parameters.roots_of(point)]
    laws = list(zip(p, means, zip(*covariances, strict=True), strict=True))
    seen, others = unit_covariances(thetas, table, records, laws, units, chosen, rng)
    moved = [
        with_effects(theta, own, covariance, design, layout, psu, model.priors, rng)
        for theta, own, covariance in zip(thetas, seen, others, strict=True)
    ]
    return replace(
        private, theta={name: np.stack([each[name] for each in moved]) for name in moved[0]}
    )
