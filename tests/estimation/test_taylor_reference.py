"""Taylor variances on random designs against the formula written out row by row, PSU by PSU.

The reference below follows methods 5 literally in O(records x rows) and shares no code with the
package; it is itself held to R's results, since both are compared with the same functions.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.sample_design import LonelyPsu, SampleDesign
from surveysynth.estimation.statistics import Statistic
from surveysynth.estimation.taylor import Linearisation, estimate_domains

LEVELS = {"a": ["1", "2", "3"], "b": ["1", "2"]}


@dataclass(frozen=True)
class Sample:
    domains: Domains
    design: SampleDesign
    weight: FloatArray
    outcome: FloatArray


def linearised(
    sample: Sample, inside: BoolArray, statistic: str, linearisation: str
) -> tuple[float, FloatArray]:
    """Estimate of a row and the linearised value of every record of the sample."""
    weight, y = sample.weight, sample.outcome
    size, total, whole = weight[inside].sum(), (weight * y)[inside].sum(), weight.sum()
    if statistic in ("mean", "proportion"):
        return total / size, weight * inside * (y - total / size) / size
    value = inside * (np.ones_like(y) if statistic == "count" else y)
    estimate = size if statistic == "count" else total
    centre = estimate / whole if linearisation == "ratio" else 0.0
    return estimate, weight * (value - centre)


def reference(
    sample: Sample, inside: BoolArray, statistic: str, linearisation: str
) -> tuple[float, float]:
    """Estimate and variance of one row."""
    design = sample.design
    estimate, u = linearised(sample, inside, statistic, linearisation)
    variance, n_strata, n_ok = 0.0, 0, 0
    for h in sorted(set(design.strata.tolist())):
        records = [i for i in range(design.n) if design.strata[i] == h]
        sums: dict[int, float] = {}
        for i in records:
            c = i if design.psu is None else int(design.psu[i])
            sums[c] = sums.get(c, 0.0) + u[i]
        n_h, f_h = len(sums), 0.0 if design.fpc is None else design.fpc[h]
        counted = linearisation == "ratio" or any(inside[i] for i in records)
        lonely = n_h == 1 and f_h < 1
        n_strata += counted
        n_ok += counted and not lonely
        mean = 0.0 if lonely and design.lonely_psu == "adjust" else sum(sums.values()) / n_h
        squares = sum((value - mean) ** 2 for value in sums.values())
        variance += (1 - f_h) * (n_h / (n_h - 1) if n_h > 1 else 1.0) * squares
    if design.lonely_psu == "average":
        variance = variance * n_strata / n_ok if n_ok else np.nan
    return estimate, variance


def random_sample(
    seed: int, *, clustered: bool = True, fpc: bool = True, lonely_psu: LonelyPsu = "adjust"
) -> Sample:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 60))
    strata, _ = pd.factorize(rng.integers(0, rng.integers(1, 9), n))
    psu = None
    if clustered:
        psu, _ = pd.factorize(strata * 100 + rng.integers(0, rng.integers(1, 7), n))
    fractions = rng.choice([0.0, 0.3, 0.9, 1.0], strata.max() + 1) if fpc else None
    # Levels go with strata in part, so that rows miss some strata and fill others.
    a = np.where(rng.random(n) < 0.5, strata % 3, rng.integers(0, 3, n)) + 1
    frame = pd.DataFrame({"a": a.astype(str), "b": rng.integers(1, 3, n).astype(str)})
    return Sample(
        build_domains(frame, ["a", "b"], LEVELS),
        SampleDesign(strata, psu, fractions, lonely_psu),
        rng.lognormal(0, 1, n),
        rng.normal(50, 10, n) if seed % 2 else rng.integers(0, 2, n).astype(float),
    )


@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    clustered=st.booleans(),
    fpc=st.booleans(),
    lonely_psu=st.sampled_from(["remove", "certainty", "adjust", "average"]),
    statistic=st.sampled_from(["count", "total", "mean"]),
    linearisation=st.sampled_from(["plain", "ratio"]),
)
def test_equals_the_formula_written_out(
    seed: int,
    clustered: bool,
    fpc: bool,
    lonely_psu: LonelyPsu,
    statistic: Statistic,
    linearisation: Linearisation,
) -> None:
    sample = random_sample(seed, clustered=clustered, fpc=fpc, lonely_psu=lonely_psu)
    got = estimate_domains(
        sample.domains,
        sample.design,
        weight=sample.weight,
        outcome=sample.outcome,
        statistic=statistic,
        linearisation=linearisation,
    )
    for row, n in enumerate(sample.domains.n):
        if n == 0:
            assert np.isnan(got.estimate[row])
            assert np.isnan(got.variance[row])
            continue
        inside = (sample.domains.codes == row).any(axis=0)
        estimate, variance = reference(sample, inside, statistic, linearisation)
        np.testing.assert_allclose(got.estimate[row], estimate, rtol=1e-12)
        if n == 1 and statistic == "mean":
            assert np.isnan(got.variance[row])
            continue
        # A variance that vanishes exactly is rounding in the reference; 1e-12 of the scale is it.
        scale = np.abs(sample.weight * sample.outcome).sum() if statistic == "total" else 1.0
        scale = sample.weight.sum() if statistic == "count" else scale
        np.testing.assert_allclose(
            np.sqrt(got.variance[row]), np.sqrt(variance), rtol=1e-10, atol=1e-12 * scale
        )


def test_rejects_estimates_from_the_records_of_the_domain_alone() -> None:
    """Leaving out the records outside a domain, or a stratum, is a common mistake that shows."""
    sample = random_sample(11, clustered=False, fpc=False)
    inside = (sample.domains.codes == 3).any(axis=0)  # a = 1
    _, right = reference(sample, inside, "count", "plain")
    got = estimate_domains(
        sample.domains,
        sample.design,
        weight=sample.weight,
        outcome=None,
        statistic="count",
        linearisation="plain",
    )
    assert got.variance[3] == pytest.approx(right, rel=1e-10)
    wrong = []
    strata, _ = pd.factorize(sample.design.strata[inside])
    wrong.append((inside[inside], SampleDesign(strata, lonely_psu="adjust"), inside))
    kept = sample.design.strata != sample.design.strata[inside][0]  # a dropped stratum
    strata, _ = pd.factorize(sample.design.strata[kept])
    wrong.append((inside[kept], SampleDesign(strata, lonely_psu="adjust"), kept))
    one = SampleDesign(np.zeros_like(sample.design.strata))  # strata forgotten
    wrong.append((inside, one, np.ones_like(inside)))
    for member, design, records in wrong:
        part = Sample(sample.domains, design, sample.weight[records], sample.outcome[records])
        _, variance = reference(part, member, "count", "plain")
        assert abs(variance / right - 1) > 0.02


def small_design(lonely_psu: LonelyPsu = "fail", fpc: FloatArray | None = None) -> SampleDesign:
    """Three strata of 2, 1 and 1 records."""
    return SampleDesign(np.array([0, 0, 1, 2]), fpc=fpc, lonely_psu=lonely_psu)


def test_lonely_strata_are_refused_by_count() -> None:
    with pytest.raises(InputError, match=r"2 of 3 strata have one; combine strata, or set"):
        small_design()
    with pytest.raises(InputError, match="1 of 3 strata have one"):
        small_design(fpc=np.array([0.1, 1.0, 0.5]))
    complete = small_design(fpc=np.array([0.1, 1.0, 1.0]))  # completely sampled: not lonely
    assert complete.degrees_of_freedom == 1


@pytest.mark.parametrize("statistic", ["count", "total", "mean"])
@pytest.mark.parametrize("linearisation", ["plain", "ratio"])
def test_a_design_effect_multiplies_one_stage_variances(
    statistic: Statistic, linearisation: Linearisation
) -> None:
    sample = random_sample(11, clustered=True, fpc=True, lonely_psu="adjust")
    clustered = sample.design

    def variance(design: SampleDesign) -> FloatArray:
        return estimate_domains(
            sample.domains, design, weight=sample.weight, outcome=sample.outcome,
            statistic=statistic, linearisation=linearisation,
        ).variance  # fmt: skip

    declared = replace(clustered, design_effect=2.25)
    alone = SampleDesign(clustered.strata, None, clustered.fpc, "adjust")
    np.testing.assert_allclose(variance(declared), 2.25 * variance(alone), rtol=1e-12)
    without = replace(declared, design_effect=None)
    np.testing.assert_array_equal(variance(without), variance(clustered))
    # The degrees of freedom are those of the PSUs: with a factor the records are no more numerous.
    assert declared.degrees_of_freedom == clustered.degrees_of_freedom < alone.degrees_of_freedom
    inside = np.isfinite(variance(clustered)) & (sample.domains.n > 1)
    assert not np.allclose(variance(clustered)[inside], variance(alone)[inside], rtol=0.01)


def test_public_design_without_strata_is_one_stratum() -> None:
    public = SimpleNamespace(
        n=5, strata=None, psu=None, fpc=None, lonely_psu="fail", design_effect=None
    )
    design = SampleDesign.from_public(public)  # type: ignore[arg-type]
    assert design.strata.tolist() == [0] * 5
    assert design.degrees_of_freedom == 4
    public = SimpleNamespace(
        n=4, strata=np.array([1, 1, 0, 0]), psu=np.arange(4), fpc=np.zeros(2), lonely_psu="adjust",
        design_effect=1.5,
    )  # fmt: skip
    design = SampleDesign.from_public(public)  # type: ignore[arg-type]
    assert design.strata is public.strata
    assert design.psu is public.psu
    assert design.fpc is public.fpc
    assert (design.lonely_psu, design.design_effect) == ("adjust", 1.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strata": np.array([], dtype=np.int64)}, "at least one record"),
        ({"strata": np.array([0, 0, 2, 2])}, "all in use"),
        (
            {"strata": np.array([0, 0, 1, 1]), "psu": np.array([0, 1, 1, 2])},
            "1 of 3 lie in several",
        ),
        ({"strata": np.array([0, 0]), "psu": np.array([0, 1, 2])}, "2 stratum codes and 3 PSU"),
        ({"strata": np.array([0, 0]), "fpc": np.array([0.1, 0.2])}, "each of the 1 strata"),
        ({"strata": np.array([0, 0]), "fpc": np.array([120.0])}, "between 0 and 1, but 1 of 1"),
        ({"strata": np.array([0, 0]), "fpc": np.array([np.nan])}, "between 0 and 1, but 1 of 1"),
        ({"strata": np.array([0, 0]), "lonely_psu": "ignore"}, "but got 'ignore'"),
        ({"strata": np.array([0, 0]), "design_effect": 0.0}, "positive number, but got 0"),
        ({"strata": np.array([0, 0]), "design_effect": np.inf}, "positive number, but got inf"),
    ],
)
def test_designs_that_do_not_fit_together(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SampleDesign(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outcome": None}, "A mean needs an outcome"),
        ({"statistic": "medians"}, "statistic must be one of count, total"),
        ({"linearisation": "jackknife"}, "linearisation must be one of ratio, plain"),
        ({"weight": np.ones(3)}, r"the weight came with shape \(3,\)"),
        ({"outcome": np.ones((4, 1))}, r"the outcome came with shape \(4, 1\)"),
    ],
)
def test_arguments_that_do_not_fit_together(changes: dict[str, object], message: str) -> None:
    frame = pd.DataFrame({"a": ["1", "2", "1", "2"]})
    arguments: dict[str, object] = {
        "weight": np.ones(4),
        "outcome": np.ones(4),
        "statistic": "mean",
        "linearisation": "plain",
    }
    with pytest.raises(InputError, match=message):
        estimate_domains(
            build_domains(frame, ["a"], LEVELS),
            small_design("remove"),
            **(arguments | changes),  # type: ignore[arg-type]
        )
