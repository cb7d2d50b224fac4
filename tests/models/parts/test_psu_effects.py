"""Effects of PSUs: sums by PSU against plain loops over records, the likelihood with the effects
integrated out and the conditional of the effects against the dense normal distribution of all
records at once, and the Gibbs block by Geweke's joint test (see ``test_blocks.py``).
"""

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.base import stacked
from surveysynth.models.parts.gaussian import GaussianRecords, GaussianStats, PsuStats, compress
from surveysynth.models.parts.psu_effects import JointCoordinates, PsuBlock, marginal_likelihood
from surveysynth.sampling.sweeps import Streams
from surveysynth.survey.survey import PublicDesign
from tests.long_runs import sbc
from tests.models.model_designs import continuous_design, group_design, rows_of

N, Q, C = 60, 2, 7
RNG = np.random.default_rng(70)
ALPHA = np.clip(RNG.uniform(-0.2, 1.2, N), 0.0, 1.0)
Z = RNG.normal(size=(N, Q)) @ RNG.normal(size=(Q, Q)) + np.array([11.0, -3.0])
# The last PSU has records of weight zero only, the one before a single record.
PSU: IntArray = RNG.integers(0, C - 2, N)
PSU[:3] = [C - 2, C - 1, C - 1]
ALPHA[1:3] = 0.0
DESIGNS = {"groups": group_design(N), "continuous": continuous_design(N)}
each_design = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())

GEWEKE = 2500
LEVEL = 1e-4
PRIORS = {"psu_scale": 2.0, "lkj": 6.0}


def records(design: PublicDesign, order: IntArray | None = None) -> GaussianRecords:
    rows = np.arange(N) if order is None else order
    cell = design.matrix.cell[rows]
    return GaussianRecords(design.matrix.x_cells, cell, Z[rows], PSU[rows])


@each_design
def test_sums_by_psu_are_sums_over_its_records(design: PublicDesign) -> None:
    whole = compress(records(design), ALPHA)
    x = rows_of(design)
    residual = Z - x @ whole.fit[0]
    assert whole.psu is not None
    for c in range(C):
        of_psu = np.flatnonzero(c == PSU)
        np.testing.assert_allclose(whole.psu.total[0, c], ALPHA[of_psu].sum(), atol=1e-14)
        x_sum = sum((ALPHA[i] * x[i] for i in of_psu), np.zeros(x.shape[1]))
        np.testing.assert_allclose(whole.psu.x_sum[0, c], x_sum, atol=1e-12)
        sums = sum((ALPHA[i] * residual[i] for i in of_psu), np.zeros(Q))
        np.testing.assert_allclose(whole.psu.residual[0, c], sums, atol=1e-11)
    plain = compress(GaussianRecords(design.matrix.x_cells, design.matrix.cell, Z), ALPHA)
    for name in ("total", "x_sum", "gram", "fit", "residual"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(plain, name))


@each_design
def test_blocks_of_records_share_cell_and_psu(design: PublicDesign) -> None:
    made = records(design)
    assert made.block_psu is not None
    assert sorted(made.order) == list(range(N))
    pairs = set()
    for block, (begin, end) in enumerate(zip(made.starts[:-1], made.starts[1:], strict=True)):
        rows = made.order[begin:end]
        pair = made.block_cell[block], made.block_psu[block]
        assert set(zip(made.cell[rows], PSU[rows], strict=True)) == {pair}
        pairs.add(pair)
    assert len(pairs) == made.block_cell.size


def test_batches_have_as_many_psus_each() -> None:
    design = DESIGNS["groups"]
    with_psus = compress(records(design), ALPHA)
    without = compress(GaussianRecords(design.matrix.x_cells, design.matrix.cell, Z), ALPHA)
    merged = GaussianRecords(design.matrix.x_cells, design.matrix.cell, Z, PSU // 2)
    both: GaussianStats = stacked([with_psus, with_psus])
    assert both.psu is not None
    assert both.psu.x_sum.shape == (2, C, 3)
    repeated = with_psus.repeated(2)
    assert repeated.psu is not None
    np.testing.assert_array_equal(repeated.psu.residual, both.psu.residual)
    for other in (without, compress(merged, ALPHA)):
        with pytest.raises(ValueError, match="databases of one batch"):
            stacked([with_psus, other])


def covariances(seed: int, size: float = 1.0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2, Q, Q))
    both = root @ root.swapaxes(-1, -2) + 0.05 * np.eye(Q)
    return both[0], size * both[1]


@pytest.mark.parametrize("size", [1.0, 1e-3, 30.0])
def test_joint_coordinates_make_both_covariances_diagonal(size: float) -> None:
    sigma, t = covariances(71, size)
    made = JointCoordinates.of(sigma[None], t[None])
    matrix = made.matrix[0]
    np.testing.assert_allclose(matrix.T @ sigma @ matrix, np.eye(Q), atol=1e-12)
    diagonal = np.diag(made.variance[0])
    np.testing.assert_allclose(matrix.T @ t @ matrix, diagonal, atol=1e-11 * size)
    np.testing.assert_allclose(matrix @ made.inverse[0], np.eye(Q), atol=1e-12)


def dense(design: PublicDesign, sigma: FloatArray, t: FloatArray) -> tuple[FloatArray, ...]:
    """All records with weight as one normal vector: matrix of vec(beta), the covariance with
    effects, and that of the effects (C Q) with the records. Weights of the records are those of
    their precision."""
    used = np.flatnonzero(ALPHA > 0)
    x = np.kron(rows_of(design)[used], np.eye(Q))  # records by columns of z
    member = np.kron(np.eye(C)[PSU[used]], np.eye(Q))
    noise = np.kron(np.diag(1.0 / ALPHA[used]), sigma)
    prior = np.kron(np.eye(C), t)
    return x, noise + member @ prior @ member.T, prior @ member.T, prior, Z[used].ravel()


@each_design
@pytest.mark.parametrize("size", [1.0, 1e-4, 30.0])
def test_marginal_likelihood_is_that_of_the_dense_normal(
    design: PublicDesign, size: float
) -> None:
    sigma, t = covariances(72, size)
    whole = compress(records(design), ALPHA)
    assert whole.psu is not None
    coordinates = JointCoordinates.of(sigma[None], t[None])
    precision, linear = marginal_likelihood(whole.psu, whole.gram, whole.fit, coordinates)
    x, covariance, _, _, z = dense(design, sigma, t)
    k = whole.shape[0]
    # vec(beta) by column of z in the sampler, by column of X here.
    truth = (x.T @ np.linalg.solve(covariance, x)).reshape(k, Q, k, Q).transpose(1, 0, 3, 2)
    np.testing.assert_allclose(precision[0], truth, rtol=1e-8, atol=1e-8)
    truth = (x.T @ np.linalg.solve(covariance, z)).reshape(k, Q).T
    np.testing.assert_allclose(linear[0], truth, rtol=1e-7, atol=1e-7)


def with_draws(count: int, sigma: FloatArray, t: FloatArray, normals: FloatArray) -> PsuBlock:
    design = DESIGNS["groups"]
    whole = compress(records(design), ALPHA).repeated(count)
    assert whole.psu is not None
    rng = np.random.default_rng(73)
    start = np.broadcast_to(t, (count, Q, Q))
    block = PsuBlock(whole.psu, start, PRIORS, Streams((rng,), count))
    block.draw_random_numbers(1)
    block.normals[0, 0] = normals
    residual = whole.psu.residual_at(np.full((count, 3, Q), 0.1))
    block.draw_effects(0, JointCoordinates.of(np.tile(sigma, (count, 1, 1)), start), residual)
    return block


def test_effects_are_drawn_from_their_conditional() -> None:
    """Mean and covariance, exactly: the draws are linear in their normals."""
    sigma, t = covariances(74, 0.3)
    unit = np.concatenate([np.zeros((1, C * Q)), np.eye(C * Q)]).reshape(-1, C, Q)
    drawn = with_draws(unit.shape[0], sigma, t, unit).effects.reshape(-1, C * Q)
    mean, root = drawn[0], drawn[1:] - drawn[0]
    design = DESIGNS["groups"]
    fit = compress(records(design), ALPHA).fit[0] + 0.1
    x, covariance, with_records, prior, z = dense(design, sigma, t)
    gain = np.linalg.solve(covariance, with_records.T).T
    np.testing.assert_allclose(mean, gain @ (z - x @ fit.ravel()), rtol=1e-8, atol=1e-10)
    truth = prior - gain @ with_records.T
    np.testing.assert_allclose(root.T @ root, truth, rtol=1e-8, atol=1e-10)


def test_sum_of_squares_given_the_effects() -> None:
    sigma, t = covariances(75)
    block = with_draws(1, sigma, t, np.random.default_rng(76).normal(size=(1, C, Q)))
    design = DESIGNS["groups"]
    whole = compress(records(design), ALPHA)
    beta = whole.fit + 0.1
    assert whole.psu is not None
    residual = whole.psu.residual_at(beta - whole.fit)
    squares = block.sum_of_squares(whole.sum_of_squares(beta), residual)
    left = Z - rows_of(design) @ beta[0] - block.effects[0, PSU]
    np.testing.assert_allclose(squares[0], (left * ALPHA[:, None]).T @ left, rtol=1e-9)


def lowest_p(ours: dict[str, FloatArray], truth: dict[str, FloatArray]) -> float:
    return min(float(stats.ks_2samp(ours[name], truth[name]).pvalue) for name in truth)


def summaries(t: FloatArray, effects: FloatArray, data: FloatArray) -> dict[str, FloatArray]:
    sd = np.sqrt(np.einsum("bkk->bk", t))
    white = np.linalg.solve(np.linalg.cholesky(t), effects.swapaxes(-1, -2))
    return {
        "first sd": sd[:, 0],
        "last sd": sd[:, -1],
        "correlation": t[:, 1, 0] / (sd[:, 0] * sd[:, 1]),
        "size of effects": (white**2).sum((1, 2)),
        "an effect": effects[:, 0, 0],
        "with data": (effects[:, :, 0] * data[:, :, 0]).sum(1),
        "across": (effects[:, 0, 1] * data[:, 0, 0]),
    }


def from_prior(
    psus: int, total: FloatArray, sigma: FloatArray, seed: int, tilt: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """T from its prior, effects from N(0, T), sums of residuals by PSU given them; with a tilt T is
    from the prior times N(log of the first SD | 0, 1/tilt), by rejection."""
    rng = np.random.default_rng(seed)
    case = sbc.Case("fbs", priors={"residual_scale": PRIORS["psu_scale"]})
    parts = []
    while sum(len(part) for part in parts) < GEWEKE:
        part = sbc.fbs_prior(case, GEWEKE, rng)["covariance"]
        log_sd = 0.5 * np.log(part[:, 0, 0])
        parts.append(part[rng.random(GEWEKE) < np.exp(-0.5 * tilt * log_sd**2)])
    t = np.concatenate(parts)[:GEWEKE]
    effects = rng.normal(size=(GEWEKE, psus, Q)) @ np.linalg.cholesky(t).swapaxes(-1, -2)
    noise = rng.normal(size=effects.shape) @ np.linalg.cholesky(sigma).T
    return t, effects, total[..., None] * effects + np.sqrt(total)[..., None] * noise


def after_updates(psus: int, records_each: float, wrong: str = "", tilt: float = 0.0) -> float:
    """Smallest p-value of the joint distribution of T, effects and data after some updates."""
    sigma, _ = covariances(77)
    total = np.full((GEWEKE, psus), records_each)
    total[:, 0] = 0.0
    t, effects, data = from_prior(psus, total, sigma, 78, tilt)
    x_sum = np.zeros((GEWEKE, psus, 1))
    rng = np.random.default_rng(79)
    streams = Streams((rng,), GEWEKE)
    block = PsuBlock(PsuStats(total, x_sum, data), t, PRIORS, streams, tied=tilt > 0)
    block.effects = effects
    sigmas = np.broadcast_to(sigma, t.shape)

    def log_tie(covariance: FloatArray) -> FloatArray:
        return np.asarray(-0.5 * tilt * (0.5 * np.log(covariance[..., 0, 0])) ** 2)

    steps = 8
    block.draw_random_numbers(steps)
    for i in range(steps):
        if wrong == "prior of effects down-weighted":
            block.block.total = np.full(GEWEKE, 0.7 * psus)
        block.draw_effects(i, JointCoordinates.of(sigmas, block.covariance), data)
        block.update(i, sigmas, data, log_tie if tilt and wrong != "tie forgotten" else None)
        if wrong == "effects left behind by their scale":
            before = block.effects
            uniforms = rng.random((2, Q, GEWEKE))
            block._rescale(uniforms, np.linalg.inv(sigmas), data, None)
            block.effects = before
    assert np.mean(block.covariance[:, 0, 0] != t[:, 0, 0]) > 0.9
    other = from_prior(psus, total, sigma, 80, tilt)
    return lowest_p(summaries(block.covariance, block.effects, data), summaries(*other))


@pytest.mark.parametrize(
    ("psus", "records_each", "tilt"),
    [(1, 3.0, 0.0), (2, 0.0, 0.0), (3, 1e-3, 0.0), (6, 5.0, 0.0), (9, 0.3, 0.0), (2, 4.0, 2.0),
     (8, 1.0, 2.0)],
)  # fmt: skip
def test_updates_keep_the_joint_distribution(
    psus: int, records_each: float, tilt: float
) -> None:
    assert after_updates(psus, records_each, tilt=tilt) > LEVEL


@pytest.mark.parametrize(
    ("wrong", "tilt"),
    [
        ("prior of effects down-weighted", 0.0),
        ("effects left behind by their scale", 0.0),
        ("tie forgotten", 2.0),
    ],
)
def test_wrong_updates_are_rejected(wrong: str, tilt: float) -> None:
    assert after_updates(6, 5.0, wrong, tilt) < 1e-6
