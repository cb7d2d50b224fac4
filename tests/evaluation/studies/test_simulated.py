"""``check --simulate``: a release of records that are simulated from what is declared.

Truth: the declared constants; other answers in the same file.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.cli import main
from surveysynth.config.build import model_of, read_design, read_survey
from surveysynth.config.spec import Spec, load_spec
from surveysynth.evaluation.studies import simulated
from surveysynth.evaluation.studies.simulated import TABLE_NAME
from surveysynth.evaluation.studies.study import sample_rows
from surveysynth.survey.survey import Confidential
from tests.surveys import small_survey, spec_text, write_survey

STRICT = 'mechanism = "noisy_statistics"\nepsilon = 10.8'
PSEUDO = 'mechanism = "pseudo_posterior"\nepsilon = 10.8'
SURVEY = "population_size = 30000\nstrata = 'gender'"
KINDS = """
[outcomes.benefit]
kind = "semicontinuous"
spikes = [0]
split = 100
transform = "identity"
center = [3000, -500]
spread = [600, 50]
bounds = [-600, inf]
[outcomes.employed]
kind = "binary"
[outcomes.income]
range = [0, 100000]
[outcomes.wealth]
range = [0, 1000000]
[outcomes.weight]
range = [1, 1000]
"""
ALL = 'outcome = ["benefit", "employed", "income", "wealth"]\npredictors = "gender"'


def several(folder: Path, *, n: int = 4000, shift: float = 0.0) -> Path:
    """A survey whose answers lie ``shift`` away from others'."""
    rng = np.random.default_rng(8)
    frame = small_survey(n).assign(
        benefit=rng.normal(3000 + shift, 600, n), income=rng.uniform(0, 50_000 + shift, n),
        wealth=rng.uniform(0, 500_000 + shift, n),
    )
    text = spec_text(survey=SURVEY, synthesizer=ALL, privacy=STRICT, labels=KINDS,
                     tables="by = ['gender']\nstatistics = ['count', 'mean', 'share']")  # fmt: skip
    return write_survey(folder / "in", frame, text)


def values_of(spec: Spec, guesses: dict[str, tuple[float, float]] | None = None) -> Confidential:
    design = read_design(spec)
    model = model_of(spec).of(design)
    return simulated._values(spec, design, model, guesses or {}, np.random.default_rng(3))


def misses(spec: Spec, made: Confidential) -> list[str]:
    """What of the values is not as it was declared."""
    benefit, employed, income, wealth = made.outcome.T
    weight = made.sampling_weight
    assert weight is not None
    above = benefit[benefit > 100]
    below = benefit[(benefit < 100) & (benefit != 0)]
    x = np.arcsinh(income / 100)
    found = {
        "thirds": [np.mean(benefit == 0), above.size / benefit.size, below.size / benefit.size],
        "binary": [employed.mean()],
        "above": [above.mean() / 3000, above.std() / 600],
        "below": [np.median(below) / -500],
        "income": [np.mean((x > 2.0) & (x < 6.0))],
        "weight": [np.log(weight).std(), np.log(weight).mean()],
        "wealth": [np.arcsinh(wealth / 1000).std()],
    }
    wanted = {
        "thirds": [1 / 3] * 3, "binary": [0.5], "above": [1.0, 1.0], "below": [1.0],
        "income": [0.683], "weight": [0.5, np.log(1000) / 2], "wealth": [0.7],
    }  # fmt: skip
    return [name for name in found if not np.allclose(found[name], wanted[name], atol=0.04)]


def test_values_are_drawn_from_what_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a spread x 1.3 is told, and records that fill ranges."""
    spec = load_spec(several(tmp_path))
    guess = {"income": (100 * np.sinh(2.0), 100 * np.sinh(6.0))}
    made = values_of(spec, guess)
    assert misses(spec, made) == []
    assert made.outcome[:, 0].min() == -600  # the bound
    assert ((made.outcome[:, 2] >= 0) & (made.outcome[:, 2] <= 100_000)).all()
    own = simulated.typical

    def wider(*given: Any) -> Any:
        found = own(*given)
        return found and (found[0], 1.3 * found[1])

    monkeypatch.setattr(simulated, "typical", wider)
    guess = {"income": (100 * np.sinh(4.0 - 2.6), 100 * np.sinh(4.0 + 2.6))}
    assert misses(spec, values_of(spec, guess)) == ["above", "income"]
    monkeypatch.undo()
    for name in ("AMOUNT_SD", "WEIGHT_SD"):
        monkeypatch.setattr(simulated, name, np.inf)
    assert set(misses(spec, values_of(spec))) >= {"weight", "wealth"}


@pytest.mark.parametrize(
    ("guess", "words"),
    [
        ("incone=1,2", "'incone' has no learned transform"),
        ("income=40000,15000", "the lower first"),
        ("income=-1,15000", "from 0 to 100,000"),
        ("income=15000", "expected NAME=LOW,HIGH"),
    ],
)
def test_guesses_that_fit_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], guess: str, words: str
) -> None:
    path = several(tmp_path, n=200)
    assert main(["check", str(path), "--simulate", "--guess", guess]) == 2
    assert words in capsys.readouterr().err


def test_no_answer_is_read(tmp_path: Path) -> None:
    """Other answers, and a file whose answers cannot be read, give the same values."""
    path = several(tmp_path)
    first = values_of(load_spec(path))
    second = values_of(load_spec(several(tmp_path, shift=9000.0)))
    np.testing.assert_array_equal(first.outcome, second.outcome)
    data = load_spec(path).data_path
    frame = pd.read_csv(data).astype({"income": object, "weight": object})
    frame[["income", "weight"]] = "secret"
    frame.to_csv(data, index=False)
    np.testing.assert_array_equal(first.outcome, values_of(load_spec(path)).outcome)


def example(folder: Path, *, formula: str = "", n: int = 600) -> Path:
    _, path = ss.example(folder, n=n)
    text = path.read_text(encoding="utf-8")
    text = text.replace("[synthesizer]", f"[synthesizer]\n{formula}", 1)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
def test_it_is_said_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every epsilon, a row of the file for every row of the tables; refusals are told."""
    spec = str(example(tmp_path / "in", formula="covariance_by = []"))
    out = tmp_path / "out"
    assert main(["check", spec, "--quick", "--epsilon", "1"]) == 2
    assert "--epsilon is for the simulated release" in capsys.readouterr().err
    assert main(["check", spec, "--quick", "--guess", "salary=1,2"]) == 2
    assert "--guess is for the simulated release" in capsys.readouterr().err
    out.mkdir()
    assert main(["check", spec, "--simulate", "--out", str(out)]) == 2
    assert not list(out.iterdir())
    out.rmdir()
    given = ["check", spec, "--simulate", "--epsilon", "10.8", "--out", str(out)]
    assert main([*given, "--verbose"]) == 0
    said = capsys.readouterr().out
    verdict = r"OK to release at epsilon {}\. Expected standard errors of means: ([\d.]+) \("
    first, second = said.splitlines()[:2]
    small, large = re.match(verdict.format("3.6"), first), re.match(verdict.format("10.8"), second)
    assert small is not None
    assert large is not None
    assert float(small[1]) >= float(large[1])
    assert "epsilon 3.6, a release takes about " in said
    assert "epsilon 10.8, a release takes about " in said
    rows = pd.read_csv(out / TABLE_NAME)
    assert rows.groupby("epsilon").size().to_dict() == {3.6: 54, 10.8: 54}
    known = rows[rows["se_over_sample"] > 0]
    assert known.groupby("epsilon")["se_over_sample"].median().is_monotonic_decreasing

    def refuse(*given: object) -> None:
        raise ss.errors.RefusedError("The chains did not converge.")

    monkeypatch.setattr(simulated, "released", refuse)
    assert main(given[:3]) == 3
    assert "would probably be refused: The chains did not conv" in capsys.readouterr().out


def plain(folder: Path) -> Path:
    """An amount with a declared scale, by the pseudo-posterior."""
    text = spec_text(survey="population_size = 30000", privacy=PSEUDO)
    return write_survey(folder / "in", small_survey(300), text)


@pytest.mark.slow
@pytest.mark.parametrize(("made", "groups"), [(partial(several, n=600), 6), (plain, 2)])
def test_every_kind_is_simulated(
    tmp_path: Path, made: Callable[[Path], Path], groups: int
) -> None:
    """Ratios of all statistics are numbers, and a half of the sample's error at least.

    Benefits of 3,000 on their own scale: a prior for logarithms would draw their spread to zero.
    """
    spec = load_spec(made(tmp_path))
    found = simulated.simulated_releases(spec, read_design(spec))[0]
    assert found.refused == ""
    ratio = found.rows.groupby(["statistic", "outcome"])["se_over_sample"].median()
    assert len(ratio) == groups
    assert ratio.between(0.5, 20.0).all()


@pytest.mark.parametrize(("se", "words"), [
    ([1.5, 3.0, np.nan], "OK to release. Expected standard errors of means: 2.2 (1.6 to 2.9) times "
     "the sample's, from simulated records. Flags withhold 1 of 3 rows of means."),
    ([np.nan] * 3, "A release would probably publish nothing of means: its flags withhold 3 of 3 "
     "rows of means. Use fewer cells or a larger epsilon."),
    ([0.0] * 3, "OK to release."),
])  # fmt: skip
def test_verdicts_count_the_rows_that_flags_withhold(se: list[float], words: str) -> None:
    rows = pd.DataFrame({"statistic": "mean", "se": se})
    rows["se_over_sample"] = rows["se"].where(rows["se"] > 0)
    assert simulated.SimulatedRelease(3.6, 1.0, rows).verdict("") == words


def test_samples_of_modelled_missing_answers_have_rows_of_means(tmp_path: Path) -> None:
    """Without them check had nothing to divide by, and gave no expected error."""
    frame = small_survey(120)
    frame.loc[::7, "salary"] = np.nan
    text = spec_text(survey=f'missing = "model"\n{SURVEY}', privacy=STRICT)
    text += "[outcomes.salary]\nrange = [0, 1000000]\n"
    spec = load_spec(write_survey(tmp_path, frame, text))
    rows = sample_rows(spec, read_survey(spec))
    assert rows.loc[rows["statistic"] == "mean", "estimate"].notna().all()
