"""Selection of samples against samplics, and why samplics does not draw the samples of studies."""

import warnings

import numpy as np
import pytest

from surveysynth.evaluation.studies.designs import inclusion_probabilities, select_pps_systematic

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="samplics is archived", category=FutureWarning)
    from samplics.sampling import SampleSelection
    from samplics.utils.types import SelectMethod

SIZE = np.random.default_rng(3).lognormal(0.0, 0.5, 300)
UNITS = np.arange(SIZE.size)


class Scripted(np.random.Generator):
    """A generator whose permutation and uniform are given."""

    def __init__(self, order, uniform):
        super().__init__(np.random.PCG64(0))
        self._order, self._uniform = order, uniform

    def permutation(self, *_args, **_kwargs):
        """Return the given order."""
        return self._order

    def random(self, *_args, **_kwargs):
        """Return the given number."""
        return self._uniform


def by_samplics(method, seed, **given):
    """Return the units that samplics selects with NumPy's global stream at ``seed``."""
    np.random.seed(seed)  # noqa: NPY002
    return SampleSelection(method, wr=False).select(UNITS, 25, **given)


def test_inclusion_probabilities_are_those_of_samplics():
    theirs = by_samplics(SelectMethod.pps_sys, 1, mos=SIZE)[2]
    np.testing.assert_allclose(inclusion_probabilities(SIZE, 25), theirs, rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_systematic_selection_is_that_of_samplics_in_the_same_order(seed):
    order = np.random.default_rng(seed).permutation(SIZE.size)
    sample, _, probability = by_samplics(SelectMethod.pps_sys, seed, mos=SIZE[order])
    np.random.seed(seed)  # noqa: NPY002
    start = np.random.random_sample()  # noqa: NPY002
    index, weight = select_pps_systematic(SIZE, 25, Scripted(order, start))
    assert index.tolist() == sorted(order[sample.astype(bool)])
    np.testing.assert_allclose(weight, 1 / probability[np.argsort(order)][index], rtol=1e-12)
    shifted, _ = select_pps_systematic(SIZE, 25, Scripted(order, (start + 0.5) % 1))
    assert shifted.tolist() != index.tolist()


def test_samplics_draws_from_the_stream_that_all_code_of_a_process_shares():
    """Its samples repeat only with the global seed, which threads and libraries move."""
    first, again = (by_samplics(SelectMethod.srs_wor, 1)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.random.seed(1)  # noqa: NPY002
    np.random.random_sample()  # noqa: NPY002
    moved = SampleSelection(SelectMethod.srs_wor, wr=False).select(UNITS, 25)[0]
    assert (moved != first).any()


def test_samplics_cannot_draw_by_size_with_replacement():
    """The default design of a study; an argument of its own method is not known."""
    with pytest.raises(TypeError, match="samp_rate"):
        by_samplics(SelectMethod.pps_wr, 1, mos=SIZE)


def test_samplics_in_random_order_selects_other_units_than_it_drew():
    """It applies the order a second time instead of undoing it, so that sizes no longer count."""
    size = np.where(np.arange(60) < 50, 1.0, 40.0)  # large units: in 5 x 40 / 450 of the samples
    np.random.seed(5)  # noqa: NPY002
    selection = SampleSelection(SelectMethod.pps_sys, wr=False)
    hits = np.zeros(60)
    for _ in range(400):
        hits += selection.select(np.arange(60), 5, mos=size, shuffle=True)[0].astype(int)
    assert abs(hits[50:].mean() / 400 - 5 * 40 / 450) > 0.2
    rng, ours = np.random.default_rng(5), np.zeros(60)
    for _ in range(400):
        ours[select_pps_systematic(size, 5, rng)[0]] += 1
    assert abs(ours[50:].mean() / 400 - 5 * 40 / 450) < 0.02
