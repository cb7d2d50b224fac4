"""The law of total variance: simulations where the truth is known, formulas written out row by row.

A posterior known in closed form (cell means of normal outcomes and log weights, from sums with
noise) makes the datasets; the estimates' errors over repeated samples are found by plain NumPy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr, ndtri

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import (
    Combined,
    CombiningRule,
    PartialSynthesis,
    Stack,
    combine,
)
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import Linearisation, LinearisedTable, linearise_domains
from surveysynth.estimation.total_variance import (
    Composition,
    TotalVariance,
    combine_draws,
    public_rows,
    saved_by_law,
    without_fpc,
)
from surveysynth.inference.synthesis import SyntheticDataset

M, R, N = 20, 4, 300


class CompositionVariance:
    """V_X of datasets given as weights and outcomes."""

    def __init__(
        self,
        domains: Domains,
        design: SampleDesign,
        group: IntArray,
        *,
        statistic: str,
        linearisation: Linearisation,
        population_size: float | None = None,
    ) -> None:
        self.domains, self.design, self.group = domains, without_fpc(design), group
        self.settings = (statistic, linearisation, population_size)
        self.composition: Composition | None = None

    def linearised(self, weight: FloatArray, outcome: FloatArray) -> LinearisedTable:
        statistic, linearisation, population_size = self.settings
        return linearise_domains(
            self.domains, weight=weight, outcome=outcome, statistic=statistic,
            linearisation=linearisation, population_size=population_size,
        )  # fmt: skip

    def add(self, weight: FloatArray, outcome: FloatArray) -> None:
        table = self.linearised(weight, outcome)
        self.composition = self.composition or Composition(table, self.group)
        self.composition.add(table)

    def variance(self) -> FloatArray:
        assert self.composition is not None
        return self.composition.variance(self.design)


SHARE = np.array([0.25, 0.15, 0.2, 0.1, 0.1, 0.2])  # of cells (a, b), a the table's variable
MEAN = np.array([[1.0, 0.3], [2.0, 0.9], [1.5, 0.1], [3.0, 0.6], [0.5, 0.2], [2.2, 0.8]])
SD = np.array([1.0, 0.3])  # of outcomes and log weights within cells
NOISE = np.array([15.0, 6.0])  # of the sums by cell
ROW_CELLS = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=float)


def datasets(rng: np.random.Generator, alike: int = 1) -> tuple[IntArray, FloatArray, FloatArray]:
    """Cells (n,), and outcomes and weights (m r, n) of a release of a new sample.

    alike: records of a unit, all equal, of which the release knows nothing."""
    cell = rng.choice(6, N // alike, p=SHARE)
    z = rng.normal(MEAN[cell], SD).repeat(alike, axis=0)
    cell = cell.repeat(alike)
    size = np.bincount(cell, minlength=6)[:, None]
    sums = np.array([np.bincount(cell, column, minlength=6) for column in z.T]).T
    noisy = sums + rng.normal(size=(6, 2)) * NOISE
    sd = np.sqrt(SD**2 * size + NOISE**2) / size
    draws = rng.normal(noisy / size, sd, (M, 6, 2)).repeat(R, axis=0)
    synthetic = rng.normal(draws[:, cell], SD)
    return cell, synthetic[..., 0], np.exp(synthetic[..., 1])


def stacked_estimates(
    cell: IntArray, y: FloatArray, w: FloatArray, statistic: str, known: float | None
) -> FloatArray:
    """Estimates of the three rows, (3,), from all datasets in one file."""
    member = ROW_CELLS[:, cell].T
    count, total = w @ member, (w * y) @ member
    if statistic == "mean":
        return np.asarray(total.sum(axis=0) / count.sum(axis=0))
    return np.asarray(count if known is None else count * known / count[:, :1]).mean(axis=0)


def truth(statistic: str, known: float | None) -> FloatArray:
    weight = SHARE * np.exp(MEAN[:, 1] + SD[1] ** 2 / 2)
    count, total = ROW_CELLS @ weight, ROW_CELLS @ (weight * MEAN[:, 0])
    if statistic == "mean":
        return np.asarray(total / count)
    return np.asarray(N * count if known is None else known * count / count[0])


def domains_of(cell: IntArray) -> Domains:
    frame = pd.DataFrame({"a": np.where(cell < 3, "1", "2")})
    return build_domains(frame, ["a"], {"a": ["1", "2"]})


@dataclass(frozen=True)
class Parts:
    estimates: FloatArray
    variances: FloatArray
    composition: FloatArray

    def combined(self, design_effect: float = 1.0) -> Combined:
        return combine_draws(
            self.estimates, self.variances, self.composition, N - 1, design_effect=design_effect
        )


def release(
    rng: np.random.Generator, statistic: str, linearisation: Linearisation, alike: int = 1
) -> Parts:
    cell, y, w = datasets(rng, alike)
    domains, design = domains_of(cell), SampleDesign(np.zeros(N, dtype=np.int64))
    known = 1000.0 if linearisation == "ratio" else None
    composition = CompositionVariance(
        domains, design, cell,
        statistic=statistic, linearisation=linearisation, population_size=known,
    )  # fmt: skip
    stack, variances = Stack(M, R), []
    for place, (outcome, weight) in enumerate(zip(y, w, strict=True)):
        composition.add(weight, outcome)
        table = composition.linearised(weight, outcome)
        stack.add(1 + place // R, 1 + place % R, table)
        variances.append(table.variance(design))
    made = np.array(variances).reshape(M, R, -1)
    return Parts(stack.values, made, composition.variance())


@pytest.mark.parametrize(
    ("statistic", "linearisation"), [("count", "plain"), ("count", "ratio"), ("mean", "plain")]
)
def test_the_variance_is_that_of_the_estimate(
    statistic: str, linearisation: Linearisation
) -> None:
    known = 1000.0 if linearisation == "ratio" else None
    rows = slice(1, 3) if linearisation == "ratio" else slice(0, 3)  # the whole is known
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(500):
        errors.append(stacked_estimates(*datasets(rng), statistic, known) - truth(statistic, known))
    mse = (np.array(errors) ** 2).mean(axis=0)[rows]
    parts = [release(rng, statistic, linearisation) for _ in range(20)]
    stated = np.mean([each.combined().standard_error ** 2 for each in parts], axis=0)[rows]
    composition = np.mean([each.composition for each in parts], axis=0)[rows]
    partial = np.mean(
        [combine(each.estimates, each.variances, N - 1).standard_error ** 2 for each in parts],
        axis=0,
    )[rows]
    assert stated / mse == pytest.approx(1.0, abs=0.25)
    assert (stated / mse).mean() == pytest.approx(1.0, abs=0.15)
    # Partial synthesis leaves the posterior out; without V_X a count forgets who was sampled.
    assert (partial / mse).max() < 0.7
    if statistic == "count":
        assert ((stated - composition) / mse).max() < 0.8


@pytest.mark.parametrize("statistic", ["count", "mean"])
def test_a_declared_design_effect_is_that_of_the_sample(statistic: str) -> None:
    """Units of four equal records: sampling varies four times as much, noise as before."""
    rng, effect = np.random.default_rng(3), 4
    errors = [
        stacked_estimates(*datasets(rng, effect), statistic, None) - truth(statistic, None)
        for _ in range(500)
    ]
    mse = (np.array(errors) ** 2).mean(axis=0)
    parts = [release(rng, statistic, "plain", effect) for _ in range(20)]
    stated = np.mean([each.combined(effect).standard_error ** 2 for each in parts], axis=0)
    without = np.mean([each.combined().standard_error ** 2 for each in parts], axis=0)
    # In the parts it would take off V what b does not hold.
    scaled = np.mean(
        [
            combine_draws(each.estimates, effect * each.variances, effect * each.composition, N - 1)
            .standard_error ** 2
            for each in parts
        ],
        axis=0,
    )  # fmt: skip
    # A little too large where the model knows more of a row than a dataset's formula does.
    assert 0.85 < (stated / mse).min() < (stated / mse).max() < 1.4
    assert (without / mse).max() < 0.75
    if statistic == "mean":  # of which composition is the smaller part, and noise the larger
        assert (scaled / mse).max() < 0.75
        assert (effect * without / mse).min() > 1.6


def test_degrees_of_freedom_match_the_spread_of_the_variance() -> None:
    """2 V^2 / df is the variance of V over repeated draws of its parts."""
    rng = np.random.default_rng(2)
    size, design_df = 40_000, 60
    for beta, given_x, fixed in ((1.0, 0.2, 3.0), (1.0, 1.5, 0.1), (0.05, 0.02, 2.0)):
        drawn = (1 + 1 / M) * beta * rng.chisquare(M - 1, size) / (M - 1)
        inner = given_x / R * rng.chisquare(design_df, size) / design_df
        composed = fixed * rng.chisquare(design_df, size) / design_df
        simulated = (drawn - inner + composed).var()
        # Datasets with exactly these moments.
        by_draw = np.resize([1.0, -1.0], M) * np.sqrt(beta * (M - 1) / M)
        estimates = np.repeat(by_draw[:, None, None], R, axis=1)
        variances = np.full((M, R, 1), given_x + fixed)
        found = combine_draws(estimates, variances, np.array([fixed]), design_df)
        total = float(found.standard_error[0] ** 2)
        assert total == pytest.approx((1 + 1 / M) * beta - given_x / R + fixed)
        df = float(found.df[0])
        assert 2 * total**2 / df == pytest.approx(simulated, rel=0.05)
        assert 2 * total**2 / (M - 1) != pytest.approx(simulated, rel=0.2)


def test_the_parts_of_the_rule_by_hand() -> None:
    by_draw = np.array([1.0, 2.0, 3.0])  # b = 1
    estimates = np.stack([by_draw - 0.5, by_draw + 0.5], axis=1)[:, :, None]
    variances = np.full((3, 2, 1), 2.0)
    found = combine_draws(estimates, variances, np.array([1.5]), 10)
    assert found.estimate == pytest.approx([2.0])
    assert found.standard_error**2 == pytest.approx(1.5 + 4 / 3 - 0.25)
    expected = (1.5 + 4 / 3 - 0.25) ** 2 / ((4 / 3) ** 2 / 2 + 0.25**2 / 10 + 1.5**2 / 10)
    assert found.df == pytest.approx(expected)
    # A variance given X that explains all between draws leaves a fifth of it.
    floor = combine_draws(estimates, variances + 10.0, np.array([9.5]), 10)
    assert floor.standard_error**2 == pytest.approx(9.5 + 0.2)
    # With a degree of freedom or two left nothing is taken off.
    few = combine_draws(estimates, variances + 10.0, np.array([1.5]), 10)
    assert few.standard_error**2 == pytest.approx(1.5 + 4 / 3)
    assert few.df == pytest.approx((1.5 + 4 / 3) ** 2 / ((4 / 3) ** 2 / 2 + 1.5**2 / 10))
    # More composition than variance: noise of estimation, taken as none.
    assert combine_draws(
        estimates, variances, np.array([5.0]), 10
    ).standard_error ** 2 == pytest.approx(5 + 4 / 3)
    finite = combine_draws(
        estimates, variances, np.array([1.5]), 10, finite_variances=np.array([1.2])
    )
    assert finite.standard_error**2 == pytest.approx(1.5 + 4 / 3 - 0.25 - 0.8)
    assert finite.df == pytest.approx(expected)
    # Of what sampling adds, u or V if that is smaller, a design effect of 3 adds two more.
    effect = combine_draws(
        estimates, variances, np.array([1.5]), 10, finite_variances=np.array([1.2]),
        design_effect=3.0,
    )  # fmt: skip
    assert effect.standard_error**2 == pytest.approx(1.5 + 4 / 3 - 0.25 - 0.8 + 2 * 1.2)
    assert effect.df == pytest.approx(expected)


def test_what_never_varies_has_no_error_and_what_is_missing_stays_so() -> None:
    estimates = np.full((12, 2, 2), 100.0)
    variances = np.zeros((12, 2, 2))
    variances[:, :, 1] = np.nan
    found = combine_draws(estimates, variances, np.array([0.0, np.nan]), 30)
    assert found.standard_error[0] == 0
    assert found.df[0] == 30
    assert np.isnan(found.standard_error[1])
    assert np.isnan(found.df[1])


def designs(rng: np.random.Generator) -> tuple[pd.DataFrame, list[SampleDesign]]:
    n = 200
    frame = pd.DataFrame({"a": rng.choice(list("xyz"), n), "b": rng.choice(list("uv"), n)})
    strata = np.sort(rng.integers(0, 4, n))
    psu, _ = pd.factorize(strata * 8 + rng.integers(0, 5, n))
    one_stage = SampleDesign(strata)
    return frame, [
        one_stage,
        SampleDesign(strata, psu),
        SampleDesign(strata, psu, fpc=np.array([0.1, 0.2, 0.3, 0.5])),
        SampleDesign(strata, psu, design_effect=1.7),
    ]


def written_out(design: SampleDesign, u: FloatArray) -> float:
    """sum_h n_h/(n_h - 1) sum_c (u_hc - mean)^2 of a variable (n,)."""
    psu = np.arange(design.n) if design.psu is None else design.psu
    total = 0.0
    for stratum in range(design.n_strata):
        inside = design.strata == stratum
        sums = pd.Series(u[inside]).groupby(psu[inside]).sum().to_numpy()
        total += sums.size / (sums.size - 1) * float(((sums - sums.mean()) ** 2).sum())
    return total


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize(
    ("statistic", "linearisation"),
    [("count", "plain"), ("total", "plain"), ("mean", "ratio"), ("count", "ratio"),
     ("total", "ratio")],
)  # fmt: skip
def test_the_composition_written_out(
    kind: int, statistic: str, linearisation: Linearisation
) -> None:
    """The averages of all datasets' linearised variables, held at once."""
    rng = np.random.default_rng(3)
    frame, all_designs = designs(rng)
    design, n = all_designs[kind], len(frame)
    domains = build_domains(frame, ["a", "b"], {"a": list("xyz"), "b": list("uv")})
    extra = rng.integers(0, 2, n)
    columns = [frame["a"], frame["b"], extra, design.strata]
    psu = None if design.design_effect is not None else design.psu
    group = public_rows(*(np.asarray(c) for c in columns), *([] if psu is None else [psu]))
    known = 5000.0 if linearisation == "ratio" else None
    composition = CompositionVariance(
        domains, design, group,
        statistic=statistic, linearisation=linearisation, population_size=known,
    )  # fmt: skip
    mean = np.zeros((domains.n_rows, n))
    rounds = 30
    for _ in range(rounds):
        w, y = rng.lognormal(1, 0.5, n), rng.lognormal(0, 0.6, n)
        composition.add(w, y)
        w = w if known is None else w * known / w.sum()
        value = np.ones(n) if statistic == "count" else y
        for row in range(domains.n_rows):
            inside = (domains.codes == row).any(axis=0)
            if statistic == "mean":
                centre = (w * y)[inside].sum() / w[inside].sum()
                u = inside * w * (y - centre) / w[inside].sum()
            else:
                u = w * value * inside
                u = u if known is None else u - w * u.sum() / w.sum()
            mean[row] += u / rounds
    averaged = np.array([pd.Series(u).groupby(group).transform("mean").to_numpy() for u in mean])
    effect = design.design_effect or 1.0
    taken = without_fpc(design if design.design_effect is None else design.one_stage)
    expected = effect * np.array([written_out(taken, u) for u in averaged])
    found = composition.variance()
    # Under "ratio" the product of means stands for the mean of products, for counts and totals.
    if linearisation == "plain" or statistic == "mean":
        assert found == pytest.approx(expected, rel=1e-9)
    else:
        floor = 1e-3 * expected.max()
        assert found == pytest.approx(expected, rel=0.02, abs=floor)
    if kind == 0 and statistic != "count":  # by record there is more; PSUs' sums are the same
        unaveraged = np.array([written_out(taken, u) for u in mean])
        assert (unaveraged > expected).all()


def test_completely_sampled_strata_of_one_psu() -> None:
    strata = np.array([0, 0, 0, 1])
    design = SampleDesign(strata, fpc=np.array([0.5, 1.0]))
    assert without_fpc(design).multiplier.tolist() == [1.5, 0.0]


def test_public_rows() -> None:
    codes = public_rows(np.array(["x", "y", "x", "x"]), np.array([0.5, 0.5, 0.5, 0.25]))
    assert codes.tolist() == [0, 1, 0, 2]


def test_a_single_draw_has_no_variance_between_draws() -> None:
    with pytest.raises(InputError, match="two draws, but got 1"):
        combine_draws(np.ones((1, 2, 3)), np.ones((1, 2, 3)), np.ones(3), 5)


def test_what_a_normal_law_saves_of_a_share() -> None:
    """The variances of both estimates of a share, over many samples of one normal cell."""
    z = np.random.default_rng(4).normal(size=(20_000, 100))
    for p in (0.1, 0.5, 0.75):
        at = ndtri(p)
        by_law = ndtr((at - z.mean(axis=1)) / z.std(axis=1, ddof=1))
        ratio = by_law.var() / (z <= at).mean(axis=1).var()
        assert 1 - saved_by_law(p) == pytest.approx(ratio, rel=0.04)
    assert 1 - saved_by_law(0.5) == pytest.approx(2 / np.pi)


def error_of(
    statistic: str, cell: IntArray, rule: CombiningRule | None, made: Sequence[FloatArray]
) -> FloatArray:
    """Standard errors of a statistic, from a dataset of each draw."""
    design, key = SampleDesign(np.zeros(cell.size, dtype=np.int64)), (statistic, 0)
    table = Estimates(
        domains_of(cell), design, [key], linearisation="plain", population_size=None,
        draws=len(made), rule=rule,
    )  # fmt: skip
    one = np.ones(cell.size)
    for number, outcome in enumerate(made, start=1):
        y = outcome[:, None]
        table.add(SyntheticDataset(number, 1, y, one, y, one))
    return table.combined(key).standard_error


@pytest.mark.parametrize("statistic", ["median", "quantile(0.75)", "difference(median, a: 1 - 2)"])
def test_without_noise_the_error_of_a_quantile_is_the_samples_own(statistic: str) -> None:
    """Draws know mean and spread of every cell as a sample without noise tells them."""
    rng, ratios, unsaved = np.random.default_rng(6), [], []
    for _ in range(16):
        cell = rng.choice(6, 4 * N, p=SHARE)
        y = rng.normal(MEAN[cell, 0])
        size = np.bincount(cell, minlength=6)
        middle = np.bincount(cell, y) / size
        squares = np.bincount(cell, (y - middle[cell]) ** 2)
        made = []
        for _ in range(40):
            sd = np.sqrt(squares / rng.chisquare(size - 1))
            mean = rng.normal(middle, sd / np.sqrt(size))
            made.append(rng.normal(mean[cell], sd[cell]))
        own = error_of(statistic, cell, None, [y])
        ratios.append(error_of(statistic, cell, TotalVariance(cell), made) / own)
        unsaved.append(error_of(statistic, cell, Certain(cell), made) / own)
    assert np.nanmean(ratios) == pytest.approx(1.0, abs=0.08)
    # The posterior as it is claims what only a normal law gives.
    assert np.nanmean(unsaved) < 0.9


class Certain(TotalVariance):
    """The rule of before: the law of residuals is known."""

    def of_quantile(self, p: float) -> TotalVariance:
        return self


def test_partial_synthesis_adds_nothing_for_the_shape() -> None:
    rule = PartialSynthesis()
    assert rule.of_quantile(0.5) is rule


def test_what_the_law_saves_is_part_of_what_draws_do_not_show() -> None:
    by_draw = np.array([1.0, 2.0, 3.0])
    estimates = np.stack([by_draw - 0.5, by_draw + 0.5], axis=1)[:, :, None]
    variances = np.full((3, 2, 1), 2.0)
    found = combine_draws(estimates, variances, np.array([1.5]), 10, saved=0.4)
    total = 1.5 + 0.4 * 0.5 + 4 / 3 - 0.25
    assert found.standard_error**2 == pytest.approx(total)
    spread = (4 / 3) ** 2 / 2 + 0.25**2 / 10 + 1.7**2 / 10
    assert found.df == pytest.approx(total**2 / spread)
    floor = combine_draws(estimates, variances + 10.0, np.array([1.5]), 10, saved=0.4)
    assert floor.standard_error**2 == pytest.approx(1.5 + 0.4 * 10.5 + 0.2)
