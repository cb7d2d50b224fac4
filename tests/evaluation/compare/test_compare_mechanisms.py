"""Both mechanisms in one comparison: the tables of a release with the same streams; noise that
vanishes; what is left out and why."""

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import pytest

from surveysynth import cli
from surveysynth.config.build import read_survey, with_noisy_statistics, with_pseudo_posterior
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError, RefusedError
from surveysynth.evaluation.compare import folder as plots
from surveysynth.evaluation.compare.comparison import Comparison, compare, run_synthesizer
from surveysynth.evaluation.compare.folder import compare as write_comparison
from surveysynth.evaluation.compare.folder import facts_record, make_pictures
from surveysynth.evaluation.methods import color_of, synthesizers, two_currencies
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.release.ledger import read_ledger
from surveysynth.release.pipeline import release
from tests.surveys import pseudo_example

OUTCOMES = "\n[outcomes.salary]\ncenter = 100000\nspread = 0.45\n"
STRICT = (("pseudo_posterior", "noisy_statistics"), ("m = 3", "m = 10\nreplicates_per_draw = 2"))
SMALL = ("[synthesizer]", '[synthesizer]\npredictors = "field + gender"\n'
         "covariance_by = []\nchains = 2\ndraws = 120\nwarmup = 100")  # fmt: skip


def written(folder: Path, *changes: tuple[str, str], outcomes: str = OUTCOMES) -> Path:
    path = pseudo_example(folder / "in", n=300)
    text = path.read_text()
    for old, new in (SMALL, *changes):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text + outcomes)
    return path


def made(path: Path, **options: Any) -> Comparison:
    spec = load_spec(path)
    return compare(spec, read_survey(spec), **{"seed": 3, **options})


def refused(*arguments: Any, **options: Any) -> Any:
    raise RefusedError("The target epsilon was not reached.")


@pytest.fixture
def no_pseudo_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes time and has tests of its own: every one is refused."""
    monkeypatch.setattr("surveysynth.mechanisms.pseudo_posterior.weighted_fits.run", refused)


def test_its_tables_are_those_of_a_release_with_the_same_streams(tmp_path: Path) -> None:
    path = written(tmp_path, *STRICT, ('flags = "nchs"', 'flags = "none"'))
    release(path, tmp_path / "out", seed=7)
    spec = load_spec(path)
    survey = read_survey(spec)
    _, tables = run_synthesizer(spec, survey, np.random.SeedSequence(7), seeded=True)
    for (statistic, outcome), name in ((("count", None), "counts"), (("mean", "salary"), "means")):
        published = pd.read_csv(tmp_path / "out" / "release" / "tables" / f"{name}.csv")
        table = tables[statistic, outcome]
        for column in ("estimate", "se", "ci_lower", "ci_upper"):
            np.testing.assert_allclose(table[column], published[column], rtol=1e-12)
    # In a comparison its stream goes by its name, whatever else is compared.
    own = np.random.SeedSequence(3, spawn_key=(crc32(b"fbs_noisy"),))
    _, tables = run_synthesizer(
        spec.model_copy(update={"tables": spec.tables}), survey, own, seeded=True
    )
    comparison = made(path, methods=["fbs_noisy"])
    assert comparison.methods == ("sample", "fbs_noisy")
    for key, table in tables.items():
        beside = comparison.tables[key]["fbs_noisy"]
        pd.testing.assert_series_equal(beside["se"], table["se"])
        pd.testing.assert_series_equal(beside["estimate"], table["estimate"])


@pytest.mark.usefixtures("no_pseudo_posterior")
def test_a_specification_of_either_mechanism_has_both_at_one_number(tmp_path: Path) -> None:
    usual, strict = load_spec(written(tmp_path / "a")), load_spec(written(tmp_path / "b", *STRICT))
    noisy = with_noisy_statistics(usual).privacy
    assert (noisy.m, noisy.replicates_per_draw, noisy.delta) == (20, 10, 1e-6)
    assert noisy.cost == Budget.of_epsilon(10.8, 1e-6)
    assert with_noisy_statistics(strict) is strict
    assert with_pseudo_posterior(usual).privacy is usual.privacy
    pseudo = with_pseudo_posterior(strict).privacy
    assert (pseudo.mechanism, pseudo.m, pseudo.replicates_per_draw) == ("pseudo_posterior", 3, 4)
    assert pseudo.epsilon == 10.8
    by_rho = written(tmp_path / "c", *STRICT, ("epsilon = 10.8", "rho = 0.257"))
    assert with_pseudo_posterior(load_spec(by_rho)).privacy.epsilon == pytest.approx(3.6, rel=1e-2)


@pytest.mark.usefixtures("no_pseudo_posterior")
def test_what_is_not_declared_leaves_methods_out_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, outcomes="")
    methods = "sample,fbs_noisy"
    arguments = ["compare", str(path), "--out", str(tmp_path / "out"), "--methods", methods]
    assert cli.main(arguments) == 3
    told = capsys.readouterr().err
    assert "no synthesizer could be compared" in told
    assert "outcomes.salary: center and spread missing" in told
    assert "last year's publication" in told


def test_words_of_methods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = load_spec(written(tmp_path))
    chosen, order = synthesizers(spec)
    assert [each.name for each in chosen] == ["fbs", "fbp", "fbs_noisy", "fbp_noisy"]
    assert order == ["fbs", "fbp"]
    chosen, order = synthesizers(spec, methods=["fbp", "normal", "normal_noisy", "laplace"])
    assert [each.name for each in chosen] == ["fbp", "normal", "normal_noisy"]
    assert order == ["fbs", "fbp", "normal"]  # fbp has the random numbers that it has in the whole
    chosen, _ = synthesizers(spec, ["poisson"], ["fbs_noisy"])
    assert [each.name for each in chosen] == ["poisson", "fbs_noisy"]
    with pytest.raises(InputError, match=r"no method 'fbs_nosy'\. Did you mean 'fbs_noisy'"):
        synthesizers(spec, methods=["fbs_nosy"])
    with pytest.raises(InputError, match="no method 'poisson_noisy'"):  # it has no such statistics
        synthesizers(spec, methods=["poisson_noisy"])
    out = tmp_path / "out"
    assert cli.main(["compare", str(spec.path), "--out", str(out), "--methods", "fbs,laplase"]) == 2
    assert "Did you mean 'laplace'" in capsys.readouterr().err
    assert not out.exists()


def test_two_currencies_are_told_apart_wherever_they_stand_side_by_side(tmp_path: Path) -> None:
    path = written(
        tmp_path, ("epsilon = 10.8", "epsilon = 30"), ("m = 3", "m = 2"),
        ('draws = 120\nwarmup = 100', 'draws = 120\nwarmup = 100\ninference = "paper"'),
    )  # fmt: skip
    methods = ["laplace", "fbs", "fbs_noisy"]
    result = write_comparison(path, tmp_path / "out", seed=1, methods=methods)
    comparison, budget = result.comparison, Budget.of_epsilon(30.0, 1e-6)
    assert comparison.methods == ("sample", *methods)
    facts = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert facts["two_currencies"] == two_currencies(budget)
    promises = facts["promises"]
    assert promises["fbs"]["guarantee"] == "asymptotic differential privacy"
    assert (promises["fbs"]["epsilon"], promises["fbs"]["m"]) == (30, 2)
    noisy = promises["fbs_noisy"]
    assert noisy["guarantee"] == "zero-concentrated differential privacy"
    assert noisy["rho"] == pytest.approx(budget.rho)
    assert (noisy["epsilon"], noisy["delta"]) == (30, 1e-6)
    assert promises["laplace"]["guarantee"].startswith("none")
    page = (tmp_path / "out" / "report.html").read_text()
    assert two_currencies(budget) in page.replace("&#39;", "'")
    for words in ("FBS, noisy statistics", "law of total variance",
                  "m = 2 draws for data synthesized by the pseudo-posterior and m = 20"
                  ):  # fmt: skip
        assert words in page
    # Expected errors are those of each mechanism.
    assert len(plots.differences(comparison).axes) == 2
    entries = read_ledger(tmp_path / "out" / "ledger.jsonl")
    assert sorted((entry.model, entry.rho is None, entry.released) for entry in entries) == [
        ("fbs", False, False), ("fbs", True, False),
    ]  # fmt: skip
    assert [entry.rho for entry in entries if entry.rho] == [pytest.approx(budget.rho)]
    colors = {color_of(name, comparison.methods) for name in comparison.methods}
    assert len(colors) == len(comparison.methods)


def test_noise_alone_needs_no_synthesizer(tmp_path: Path) -> None:
    result = write_comparison(written(tmp_path), tmp_path / "out", methods=["laplace"], seed=1)
    assert result.comparison.methods == ("sample", "laplace")
    assert [each.name for each in make_pictures(result.comparison)] == ["rmse"]
    assert result.ledger.comparisons == 0
    facts = facts_record(result.comparison, test=True)
    assert facts["two_currencies"] is None
    assert "not the same" not in (tmp_path / "out" / "report.html").read_text()
