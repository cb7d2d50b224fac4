"""Small surveys and a mechanism that costs nothing, for tests of what is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit
from tests.release.release_surveys import small_survey

SPEC = """
spec_version = 1
[survey]
data = "{data}"
weight = "weight"
strata = "field"
{survey}
[synthesizer]
outcome = "salary"
{synthesizer}
[privacy]
{privacy}
[tables]
by = ["field", "gender"]
{tables}
{labels}
"""


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., Path]:
    """Writes a survey file and a specification; sections take further lines."""

    def make(frame: pd.DataFrame | None = None, *, data: str = "survey.csv", **lines: str) -> Path:
        folder = tmp_path / "in"
        folder.mkdir(exist_ok=True)
        frame = small_survey() if frame is None else frame
        if data.endswith(".parquet"):
            frame.to_parquet(folder / data)
        else:
            frame.to_csv(folder / data, index=False)
        given = dict.fromkeys(["survey", "synthesizer", "privacy", "tables", "labels"], "")
        given |= lines
        if "inference" not in given["synthesizer"]:
            # Debiasing runs the mechanism many times: it has tests of its own.
            given["synthesizer"] += '\ninference = "paper"'
        path = folder / "spec.toml"
        path.write_text(SPEC.format(data=data, **given), encoding="utf-8")
        return path

    return make


@pytest.fixture
def stand_in_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws around a guess that no data enter, in place of the mechanism."""

    def run(
        model: Any, design: Any, confidential: Any, settings: Any, rng: Any, progress: Any = None
    ) -> tuple[PrivateDraws, ConfidentialFit]:
        guess = model.prior_guess(design, 0.5)
        theta = {name: np.repeat(value[None], settings.m, axis=0) for name, value in guess.items()}
        theta["beta"] = theta["beta"] + 0.1 * rng.standard_normal(theta["beta"].shape)
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

    monkeypatch.setattr("surveysynth.mechanisms.pseudo_posterior.run.run", run)
