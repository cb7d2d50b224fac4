"""Laplace noise of a comparison is that of the specification's epsilon. Truth: the noise drawn by a
direct call, and its mean size at twice the epsilon, by hand."""

from pathlib import Path

import numpy as np

from surveysynth.config.build import read_survey
from surveysynth.config.spec import load_spec
from surveysynth.evaluation.compare.tables import sample_weight
from surveysynth.evaluation.laplace import Noise, laplace_tables
from surveysynth.release.tables.table_builder import estimates_for
from tests.surveys import small_survey, spec_text, write_survey


def noise_of(folder: Path, epsilon: float) -> Noise:
    text = spec_text(privacy=f"epsilon = {epsilon}")
    spec = load_spec(write_survey(folder, small_survey(), text))
    return Noise(spec, read_survey(spec))


def test_it_is_that_of_a_direct_call_at_the_epsilon_of_the_specification(tmp_path: Path) -> None:
    noise = noise_of(tmp_path, 10.8)
    made = noise.laplace("honest", np.random.default_rng(1))
    estimates = estimates_for(noise.spec, noise.survey.design)
    direct = laplace_tables(
        estimates.domains, estimates.sample_design, weight=sample_weight(noise.survey),
        outcomes=noise.survey.confidential.outcome,
        keys=[("count", None), ("mean", 0)], epsilon=10.8,
        rng=np.random.default_rng(1), sensitivity="honest",
        linearisation=noise.spec.linearisation, population_size=None,
    )  # fmt: skip
    assert len(made) == len(direct) == 2
    for table, expected in zip(made.values(), direct, strict=True):
        np.testing.assert_allclose(table["estimate"], expected.estimate, rtol=1e-12)


def test_twice_the_epsilon_is_half_the_noise(tmp_path: Path) -> None:
    sizes = []
    for epsilon in (5.0, 10.0):
        noise = noise_of(tmp_path, epsilon)
        (key,) = [key for key in noise.sample if key[0] == "count"]
        noisy = [
            noise.laplace("honest", np.random.default_rng(i))[key]["estimate"]
            for i in range(3)
        ]
        sizes.append(np.mean([np.abs(n - noise.sample[key]["estimate"]) for n in noisy]))
    np.testing.assert_allclose(sizes[0], 2.0 * sizes[1], rtol=1e-9)
