"""Selection of samples against samplics: the same units in the same order from the same start."""

import warnings

import numpy as np
import pytest

from surveysynth.evaluation.studies.population import inclusion_probabilities, select_pps_systematic

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
