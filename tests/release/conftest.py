"""Small surveys and a mechanism that costs nothing, for tests of what is written."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.noisy_statistics.posterior import draws as posterior
from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit
from tests.guesses import guessed_theta
from tests.surveys import small_survey, spec_text, write_survey


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., Path]:
    """Writes a survey file and a specification; sections take further lines."""

    def make(frame: pd.DataFrame | None = None, *, data: str = "survey.csv", **lines: str) -> Path:
        noisy = "noisy_statistics" in lines.get("privacy", "")
        if "inference" not in lines.get("synthesizer", "") and not noisy:
            # Debiasing runs the mechanism many times: it has tests of its own.
            lines["synthesizer"] = lines.get("synthesizer", "") + '\ninference = "paper"'
        frame = small_survey() if frame is None else frame
        return write_survey(tmp_path / "in", frame, spec_text(data, **lines), data)

    return make


@contextmanager
def stand_ins() -> Iterator[None]:
    """Draws around a guess in place of those of either mechanism, for what a module shares."""
    with pytest.MonkeyPatch.context() as patch:
        _plant_posterior(patch)
        _plant_mechanism(patch)
        yield


@pytest.fixture
def stand_in_mechanism(monkeypatch: pytest.MonkeyPatch, stand_in_posterior: None) -> None:
    """Draws around a guess in place of those of either mechanism."""
    _plant_mechanism(monkeypatch)


def _plant_mechanism(patch: pytest.MonkeyPatch) -> None:
    def run(
        model: Any, design: Any, confidential: Any, settings: Any, rng: Any, progress: Any = None
    ) -> tuple[PrivateDraws, ConfidentialFit]:
        guess = guessed_theta(model, design, 0.5)
        theta = {name: np.repeat(value[None], settings.m, axis=0) for name, value in guess.items()}
        first = next(iter(theta))  # coefficients of whatever model
        theta[first] = theta[first] + 0.1 * rng.standard_normal(theta[first].shape)
        ones = np.ones(design.n)
        fit = ConfidentialFit(
            risk_weights=ones,
            lipschitz_by_record=ones,
            oscillation_by_record=ones,
            unweighted_lipschitz_by_record=ones,
            unweighted_bound=float("inf"),
            realised_bound=1.0,
            realised_epsilon=2.0 * settings.m,
            papers_epsilon=2.0 * settings.m,
            search=(),
            r_hat={},
            ess={},
            kept_draws=settings.plan.kept,
        )
        return PrivateDraws(model.name, theta, settings), fit

    patch.setattr("surveysynth.mechanisms.pseudo_posterior.weighted_fits.run", run)


@pytest.fixture
def stand_in_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws around a guess in place of those given noisy statistics, for tests of files.

    As those they are a function of the statistics and of the generator, whatever these are.
    """
    _plant_posterior(monkeypatch)


def _plant_posterior(patch: pytest.MonkeyPatch) -> None:
    def posterior_draws(
        model: Any, design: Any, statistics: Any, settings: Any, rng: Any, **_: Any
    ) -> tuple[PrivateDraws, posterior.PosteriorRecord]:
        digest = hashlib.sha256(json.dumps(statistics.to_dict(), sort_keys=True).encode()).digest()
        of_statistics = np.random.default_rng(list(digest))
        theta = {}
        for name, value in guessed_theta(model, design, 0.5).items():
            theta[name] = np.repeat(np.asarray(value)[None], settings.m, axis=0)
        first = next(iter(theta))  # coefficients of whatever model
        for source in (rng, of_statistics):
            theta[first] = theta[first] + 0.1 * source.standard_normal(theta[first].shape)
        return PrivateDraws(model.name, theta, settings), posterior.PosteriorRecord({}, {}, 1, 1)

    patch.setattr(posterior, "posterior_draws", posterior_draws)
