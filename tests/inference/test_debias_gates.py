"""When debiasing gives up. Truth: results made by hand, one on either side of each gate; the
standard error of a mean of differences written out."""

from types import SimpleNamespace

import numpy as np
import pytest

from surveysynth.errors import RefusedError
from surveysynth.inference.debias import MOST_BATCHES, BiasSearch
from surveysynth.models import get_model
from tests.inference.test_debias import design_of, draws_of

N = 9
LEVEL = 5.0


def work() -> BiasSearch:
    model, design = get_model("fbs"), design_of().design
    return BiasSearch(model, design, draws_of(model, design), N, np.random.default_rng(1))


def results(bias, spread=0.0, failed=0):
    """Runs whose weighted log scales lie ``bias`` off the unweighted ones, wherever those are; the
    biases of the runs differ by ``spread`` in turns, their levels by much more."""
    made = []
    for i in range(N - failed):
        level = LEVEL + 10.0 * (i % 3)
        off = bias * np.ones(2) + spread * (-1) ** i
        made.append((None, SimpleNamespace(
            means=level + off, unweighted_means=level, risk_weights=np.full(3, float(i))
        )))  # fmt: skip
    return made + [RefusedError("no")] * failed


def after(*rounds, kinds=("scale", "scale")) -> BiasSearch:
    """The search after these rounds, each the results of one or more batches."""
    search = work()
    search.kinds = kinds
    for number, batches in enumerate(rounds, 1):
        for batch in batches:
            search.receive(batch)
        search.conclude(last=number == len(rounds))
    return search


def test_three_of_four_runs_must_succeed():
    enough = work()
    enough.receive(results(-0.1, failed=2))  # 7 of 9: 78%
    assert not enough.short
    assert enough.conclude(last=True)
    assert enough.finish()[1].status == "debiased"
    too_few = work()
    too_few.receive(results(-0.1, failed=3))  # 6 of 9: 67%
    assert too_few.short
    too_few.conclude(last=True)
    draws, record = too_few.finish()
    assert record.status == "not converged"
    assert "did not reach the target" in record.reason
    assert draws is too_few.draws


def test_where_too_few_runs_succeed_there_are_more_of_them_until_half_have():
    search, firsts = work(), set()
    for batch in range(MOST_BATCHES):  # 4 of 9, 8 of 18, 12 of 27
        assert batch == 0 or search.short
        firsts.add(float(search.simulate()[0].records.z[0, 0]))
        search.receive(results(-0.1, failed=5))
    assert len(firsts) == MOST_BATCHES
    assert not search.short  # nothing is left to try
    search.conclude(last=True)
    assert search.finish()[1].status == "not converged"
    assert after([results(-0.1, failed=3), results(-0.1)]).finish()[1].debiased  # 15 of 18
    assert after([results(-0.1, failed=4)] * 3).finish()[1].debiased  # 15 of 27


def test_a_round_begins_from_the_weights_that_each_database_had_in_the_last() -> None:
    search = work()
    assert all(each.begin is None for each in search.simulate())
    search.receive(results(-0.1, failed=1))
    search.conclude(last=False)
    begins = [each.begin for each in search.simulate()]
    assert begins.pop() is None  # its run failed
    assert [float(each[0]) for each in begins] == list(range(N - 1))


def test_the_bias_is_the_mean_of_differences_with_their_standard_error():
    record = after([results(-0.1, spread=0.03)]).finish()[1]
    differences = -0.1 + 0.03 * (-1.0) ** np.arange(N)
    np.testing.assert_allclose(record.shift, -differences.mean(), rtol=1e-12)
    error = differences.std(ddof=1) / np.sqrt(N)
    np.testing.assert_allclose(record.standard_error, error, rtol=1e-9)


@pytest.mark.parametrize(("second", "settles"), [(-0.31, True), (-0.33, False)])
def test_the_last_round_moves_the_shift_by_half_at_most(second, settles):
    # |moved| <= 0.5 x 0.2 + 4 x 0 + 0.02.
    record = after([results(-0.2)], [results(second)]).finish()[1]
    assert (record.status == "debiased") == settles
    assert settles or "did not settle" in record.reason


@pytest.mark.parametrize(("second", "ends"), [(-0.224, True), (-0.226, False)])
def test_a_round_that_changes_next_to_nothing_is_the_last(second, ends):
    # |moved| <= 0.1 x 0.2 + 0 + 0.02 / 4.
    search = work()
    search.receive(results(-0.2))
    assert not search.conclude(last=False)
    search.receive(results(second))
    assert search.conclude(last=False) == ends
    assert not ends or search.finish()[1].rounds == 2


@pytest.mark.parametrize(
    ("first", "kinds", "ends"),
    [
        (0.071, ("scale", "scale"), True),  # 0.05 and 2 errors of 0.01054
        (0.072, ("scale", "scale"), False),
        (0.042, ("scale", "location"), True),  # 4 errors
        (0.043, ("scale", "location"), False),
        (0.043, ("scale", "scale"), True),
    ],
)
def test_a_small_first_round_is_the_last(first, kinds, ends):
    search = work()
    search.kinds = kinds
    search.receive(results(-first - 0.03 / N, spread=0.03))  # one of nine turns is left over
    assert search.conclude(last=False) == ends
    assert not ends or search.finish()[1].debiased


def test_one_large_shift_among_small_ones_takes_another_round():
    search = work()
    search.kinds = ("scale",) * 20
    for each in (made := results(0.0)):
        each[1].means = each[1].means[0] - np.where(np.arange(20) == 3, 0.06, 0.001)
    search.bias = search.error = np.zeros(20)
    search.receive(made)
    assert not search.conclude(last=False)


@pytest.mark.parametrize(("factor", "passes"), [(1.95, True), (2.05, False), (0.49, False)])
def test_no_scale_changes_by_more_than_a_factor_of_two(factor, passes):
    record = after([results(-np.log(factor))]).finish()[1]
    assert (record.status == "debiased") == passes
    assert passes or "more than a factor 2" in record.reason


@pytest.mark.parametrize(
    ("kinds", "second", "settles"),
    [
        # Of a location 0.5 x 0.2, of a scale 0.02 more.
        (("location", "scale"), (-0.299, -0.319), True),
        (("location", "scale"), (-0.303, -0.31), False),
        (("location", "scale"), (-0.29, -0.323), False),
        # In root mean square over a kind, sqrt((0.105^2 + 0.08^2) / 2) = 0.093.
        (("location", "location"), (-0.305, -0.28), True),
        (("location", "location"), (-0.305, -0.30), False),
    ],
)
def test_kinds_settle_apart_each_in_root_mean_square(kinds, second, settles):
    rounds = [results(np.array([-0.2, -0.2]))], [results(np.array(second))]
    assert after(*rounds, kinds=kinds).finish()[1].debiased == settles


def test_simulated_databases_are_all_different():
    made = work().simulate()
    sums = {round(float(each.records.z.sum()), 9) for each in made}
    assert len(sums) == len(made) == N
