"""A short simulation-based calibration of posteriors under noise: ranks of true parameters.
"""

from dataclasses import replace

import pytest

from tests.long_runs import location_sbc, sbc


@pytest.mark.slow
def test_ranks_are_uniform_and_half_of_the_noise_is_rejected() -> None:
    case = replace(location_sbc.CASES["Yes or no"], replications=64)
    assert sbc.smallest(location_sbc.calibrate(case, seed=91)) > 1e-4
    wrong = location_sbc.calibrate(case, seed=91, law=location_sbc.WITHOUT_C)
    assert sbc.smallest(wrong) < 1e-5
