"""When debiasing gives up. Truth: results made by hand, one on either side of each gate; the
standard error of a mean of differences written out."""

from types import SimpleNamespace

import numpy as np
import pytest

from surveysynth.errors import RefusedError
from surveysynth.inference.debias import _Work
from surveysynth.models import get_model
from tests.inference.test_debias import design_of, draws_of

N = 9
LEVEL = 5.0


def work() -> _Work:
    model, design = get_model("fbs"), design_of().design
    return _Work(model, design, draws_of(model, design), N, np.random.default_rng(1))


def results(bias, spread=0.0, failed=0):
    """Runs whose weighted log scales lie ``bias`` off the unweighted ones, wherever those are; the
    biases of the runs differ by ``spread`` in turns, their levels by much more."""
    made = []
    for i in range(N - failed):
        level = LEVEL + 10.0 * (i % 3)
        off = np.array([bias, bias]) + spread * (-1) ** i
        made.append((None, SimpleNamespace(mean_logs=level + off, unweighted_mean_logs=level)))
    return made + [RefusedError("no")] * failed


def test_three_of_four_runs_must_succeed():
    enough, too_few = work(), work()
    enough.receive(results(-0.1, failed=2), last=True)  # 7 of 9: 78%
    assert enough.finish(1).record.status == "debiased"
    too_few.receive(results(-0.1, failed=3), last=True)  # 6 of 9: 67%
    done = too_few.finish(1)
    assert done.record.status == "not converged"
    assert "did not reach the target" in done.record.reason
    assert done.draws is too_few.draws


def test_the_bias_is_the_mean_of_differences_with_their_standard_error():
    one = work()
    one.receive(results(-0.1, spread=0.03), last=True)
    differences = -0.1 + 0.03 * (-1.0) ** np.arange(N)
    record = one.finish(1).record
    np.testing.assert_allclose(record.log_shift, -differences.mean(), rtol=1e-12)
    error = differences.std(ddof=1) / np.sqrt(N)
    np.testing.assert_allclose(record.standard_error, error, rtol=1e-9)


@pytest.mark.parametrize(("second", "settles"), [(-0.31, True), (-0.33, False)])
def test_the_last_round_moves_the_shift_by_half_at_most(second, settles):
    # |moved| <= 0.5 x 0.2 + 4 x 0 + 0.02.
    two = work()
    two.receive(results(-0.2), last=False)
    two.receive(results(second), last=True)
    record = two.finish(2).record
    assert (record.status == "debiased") == settles
    assert settles or "did not settle" in record.reason


@pytest.mark.parametrize(("factor", "passes"), [(1.95, True), (2.05, False), (0.49, False)])
def test_no_scale_changes_by_more_than_a_factor_of_two(factor, passes):
    one = work()
    one.receive(results(-np.log(factor)), last=True)
    record = one.finish(1).record
    assert (record.status == "debiased") == passes
    assert passes or "more than a factor 2" in record.reason


def test_simulated_databases_are_all_different():
    made = work().simulate()
    sums = {round(float(each.records.z.sum()), 9) for each in made}
    assert len(sums) == len(made) == N
