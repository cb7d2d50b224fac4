"""The comparison of methods: its tables against their formulas, its files, its marks."""

import base64
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth import cli
from surveysynth.api.commands import adequacy
from surveysynth.config.build import read_survey
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError, RefusedError
from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import REPORT_COLUMNS, TABLE_COLUMNS
from surveysynth.estimation.taylor import estimate_domains
from surveysynth.evaluation.compare import folder as plots
from surveysynth.evaluation.compare.adequacy import FAR, verdict
from surveysynth.evaluation.compare.comparison import Comparison, compare
from surveysynth.evaluation.compare.folder import compare as write_comparison
from surveysynth.evaluation.compare.folder import facts_record, render_report
from surveysynth.evaluation.methods import color_of
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit
from surveysynth.release.figure_style import MARK, draw, outcome_ticks
from surveysynth.release.ledger import read_ledger, summarize
from surveysynth.release.pipeline import release as write_release
from surveysynth.survey.transforms import Transform
from tests.guesses import guessed_theta
from tests.release.test_adequacy_files import Page
from tests.surveys import pseudo_example

COMPARE = "surveysynth.evaluation.compare"
FILES = {"comparison.csv", "summary.csv", "comparison.json", "report.html",
         "ledger.jsonl", "figures"}  # fmt: skip
MODEL = 'model = "fbs"                  # fbs or fbp'


#: Debiasing runs the mechanism many times and has tests of its own.
PAPER = ("[synthesizer]", '[synthesizer]\ninference = "paper"')


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """The example's specification, two datasets a draw."""
    path = pseudo_example(tmp_path / "in", n=300)
    changed(path, ("m = 3", "m = 2\nreplicates_per_draw = 1"), PAPER)
    return path


def changed(spec: Path, *changes: tuple[str, str]) -> Path:
    text = spec.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    spec.write_text(text)
    return spec


WITHOUT_SIZE = ("population_size = 100000", "# population_size = 100000")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws around a public guess in the place of the mechanism, and bounds that vary."""

    def run(
        model: Any, design: Any, confidential: Any, settings: Any, rng: Any, progress: Any = None
    ) -> tuple[PrivateDraws, ConfidentialFit]:
        guess = guessed_theta(model, design, 0.5)
        theta = {name: np.repeat(value[None], settings.m, axis=0) for name, value in guess.items()}
        bounds = np.linspace(0.2, 6.0, design.n)
        alpha = np.minimum(1.0, 1.8 / bounds)
        fit = ConfidentialFit(
            risk_weights=alpha, lipschitz_by_record=alpha * bounds,
            oscillation_by_record=bounds, unweighted_lipschitz_by_record=bounds,
            unweighted_bound=6.0, realised_bound=1.8, realised_epsilon=7.2, papers_epsilon=7.2,
            search=(), r_hat={}, ess={}, kept_draws=settings.plan.kept,
        )  # fmt: skip
        return PrivateDraws(model.name, theta, settings), fit

    monkeypatch.setattr("surveysynth.mechanisms.pseudo_posterior.weighted_fits.run", run)


def rows(frame: pd.DataFrame, statistic: str, method: str) -> pd.DataFrame:
    chosen = (frame["statistic"] == statistic) & (frame["method"] == method)
    return frame[chosen].reset_index(drop=True)


def test_a_whole_comparison(tmp_path: Path) -> None:
    """With the real mechanism: what the tables say, and the ordering of the paper."""
    spec = pseudo_example(tmp_path / "in", n=600)
    changed(spec, ("m = 3", "m = 2\nreplicates_per_draw = 2"), ("epsilon = 10.8", "epsilon = 16"),
            ("[synthesizer]", '[synthesizer]\npredictors = "field + gender"\n'
             'inference = "paper"'))  # fmt: skip
    result = write_comparison(spec, tmp_path / "out", seed=5)
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == FILES
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    frame = pd.read_csv(out / "comparison.csv", dtype={"field": str}, keep_default_na=True)
    assert list(frame) == [
        "statistic", "field", "gender", "is_margin", "n", "method", "estimate", "se",
        "ci_lower", "ci_upper", "flag", "rmse",
    ]  # fmt: skip
    assert list(dict.fromkeys(frame["method"])) == [
        "sample", "laplace", "fbs", "fbp",
    ]  # fmt: skip
    survey = pd.read_csv(spec.parent / "survey.csv", dtype={"field": str})
    levels = {"field": list("12345678"), "gender": ["Male", "Female"]}
    domains = build_domains(survey, ["field", "gender"], levels)
    design = SampleDesign(pd.factorize(survey["field"])[0])
    for statistic in ("count", "mean"):
        expected = estimate_domains(
            domains, design, weight=survey["weight"].to_numpy(),
            outcome=survey["salary"].to_numpy(), statistic=statistic,  # type: ignore[arg-type]
            linearisation="ratio", population_size=1e5,
        )  # fmt: skip
        sample = rows(frame, statistic, "sample")
        np.testing.assert_allclose(sample["estimate"], expected.estimate, rtol=1e-12)
        np.testing.assert_allclose(sample["se"], np.sqrt(expected.variance), rtol=1e-9, atol=1e-9)
        for method in set(frame["method"]):
            table = rows(frame, statistic, method)
            squared = (table["estimate"] - sample["estimate"]) ** 2 + table["se"] ** 2
            np.testing.assert_allclose(table["rmse"], np.sqrt(squared), rtol=1e-9)
            assert (table["ci_lower"] <= table["estimate"]).all()
    summary = result.comparison.summary().set_index(["statistic", "method"])["rmse_ratio"]
    for model in ("fbs", "fbp"):
        assert summary["mean", model] < 4
        assert summary["mean", model] < 0.1 * summary["mean", "laplace"]
        assert summary["count", model] < 0.5 * summary["count", "laplace"]
    assert json.loads((out / "comparison.json").read_text())["test"] is True


def test_with_a_declared_design_effect_the_sample_alone_is_by_unit(
    tmp_path: Path, stand_in: None
) -> None:
    path = pseudo_example(tmp_path / "in", n=300)
    changed(path, ("m = 3", "m = 2\nreplicates_per_draw = 1"), PAPER,
            ("[survey]", '[survey]\npsu = "unit"\ndesign_effect = 4'))  # fmt: skip
    file = tmp_path / "in" / "survey.csv"
    frame = pd.read_csv(file)
    frame["unit"] = frame.groupby("field")["salary"].rank(pct=True).mul(2.99).astype(int)
    frame.to_csv(file, index=False)

    def run() -> Comparison:
        spec = load_spec(path)
        return compare(spec, read_survey(spec), seed=5)

    made = run()
    design = made.survey.design
    strata = pd.factorize(frame["field"])[0]
    units = frame.groupby(["field", "unit"]).ngroup().to_numpy()
    domains = build_domains(design.frame, design.by, design.levels)
    salary, weight = frame["salary"].to_numpy(), frame["weight"].to_numpy()
    by_unit, one_stage = (
        estimate_domains(domains, plan, weight=weight, outcome=salary, statistic="mean",
                         linearisation="ratio", population_size=1e5).variance
        for plan in (SampleDesign(strata, units), SampleDesign(strata))
    )  # fmt: skip
    sample = made.tables["mean", "salary"]["sample"]
    np.testing.assert_allclose(sample["se"], np.sqrt(by_unit), rtol=1e-9)
    assert not np.allclose(by_unit, 4 * one_stage, rtol=0.05)
    report = render_report(made, [], test=True)
    assert f"{len(set(units))} primary sampling units (unit)" in report
    assert "declared design effect of 4" in report
    facts = facts_record(made, test=True)
    assert facts["primary_sampling_units"] == len(set(units))
    assert facts["degrees_of_freedom_by_unit"] == len(set(units)) - len(set(strata))
    # Of the model: one-stage, times the factor. Without the factor it is half as large.
    changed(path, ("design_effect = 4", "design_effect = 1"))
    table, without = (each.tables["count", None]["fbs"] for each in (made, run()))
    np.testing.assert_array_equal(table["estimate"], without["estimate"])
    inner = ~table["is_margin"]
    assert (table["se"][inner] / without["se"][inner]).median() > 1.6


@pytest.mark.usefixtures("stand_in")
def test_the_report_needs_nothing_else_and_says_what_it_is(spec: Path, tmp_path: Path) -> None:
    title = "<script>alert('x')</script> & more"
    given = "Survey of doctorate holders"
    changed(spec, (given, title), ('"1" = "Field 1"', '"1" = "<b>One</b>"'))
    write_comparison(spec, tmp_path / "out", models=["normal"])
    page = Page((tmp_path / "out" / "report.html").read_text())
    tags = [tag for tag, _ in page.tags]
    assert "script" not in tags
    assert "link" not in tags
    assert "b" not in tags
    for tag, attributes in page.tags:
        for name in ("src", "href"):
            assert name not in attributes or tag == "img"
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == 3
    for attributes in images:
        assert MARK in str(attributes["alt"])
        data = base64.b64decode(str(attributes["src"]).removeprefix("data:image/png;base64,"))
        assert data.startswith(b"\x89PNG")
    text = " ".join(page.text)
    assert text.count(MARK) >= 2
    assert title in text
    for words in ("Nothing here is a release", "Laplace", "FBS", "FBP", "Normal", "<b>One</b>",
                  "epsilon of 10.8 of its own (m = 2"):  # fmt: skip
        assert words in text
    for style in ("position: sticky", "@media print", "table-header-group", "max-width: 640px"):
        assert style in (tmp_path / "out" / "report.html").read_text()
    figures = sorted(path.name for path in (tmp_path / "out" / "figures").iterdir())
    assert figures == ["densities.png", "differences.png", "rmse.png"]


def made(spec: Path, **options: Any) -> Comparison:
    loaded = load_spec(spec)
    return compare(loaded, read_survey(loaded), **{"seed": 3, **options})


@pytest.mark.usefixtures("stand_in")
def test_every_figure_is_marked_and_its_axes_have_units(spec: Path) -> None:
    comparison = made(spec, models=["normal"])
    figures = [
        draw(each, comparison) for each in (plots.rmse_violins, plots.differences, plots.densities)
    ]
    labels = []
    for figure in figures:
        assert figure.get_suptitle() == MARK
        labels.append(" ".join(panel.get_xlabel() for panel in figure.axes))
    assert "(US dollars)" in labels[0]
    assert "units of the population" in labels[0]
    assert "expected errors" in labels[1]
    assert "US dollars" in labels[2]
    colors = {color_of(method, comparison.methods) for method in comparison.methods}
    assert len(colors) == len(comparison.methods) == 5
    # The dots of a violin are the rows of the table; the public total has no error to show.
    (line,) = [each for each in figures[0].axes[0].get_lines() if each.get_color() == "#0072B2"
               and each.get_marker() == "."]  # fmt: skip
    shown = np.sort(10 ** np.asarray(line.get_xdata(), dtype=float))
    table = comparison.tables["count", None]["fbs"]
    np.testing.assert_allclose(shown, np.sort(table["rmse"])[1:], rtol=1e-9)


@given(
    st.sampled_from([Transform("log"), Transform("log", shift=40.0), Transform("asinh", 50.0),
                     Transform("identity", 3.0)]),
    st.floats(-3, 6), st.floats(0.7, 8),
)  # fmt: skip
def test_ticks_are_round_numbers_apart_from_each_other(
    transform: Transform, low: float, width: float
) -> None:
    ticks = outcome_ticks(transform, low, low + width)
    places = transform.forward(np.array(ticks))
    assert (places >= low).all()
    assert (places <= low + width).all()
    assert (np.diff(places) >= 0.129 * width).all()
    for value in ticks:
        assert f"{abs(value):.0e}"[0] in "0125"


@pytest.mark.usefixtures("stand_in")
def test_a_model_that_does_not_fit_is_left_out_and_that_is_said(
    spec: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{COMPARE}.folder.make_pictures", lambda comparison: [])
    changed(spec, WITHOUT_SIZE)
    assert cli.main(["compare", str(spec), "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert "Left out: fbp: " in told
    assert "population_size" in told
    assert "CONFIDENTIAL" in told
    assert "Nothing was released" in told
    assert "1 run for comparisons not counted" in told
    frame = pd.read_csv(tmp_path / "out" / "comparison.csv")
    assert set(frame["method"]) == {"sample", "laplace", "fbs"}
    assert "FBP was left out" in (tmp_path / "out" / "report.html").read_text()
    assert (frame["method"] == "laplace").sum() == 54
    plain = rows(frame, "count", "sample")
    assert plain["se"][0] > 0  # no public total


@pytest.mark.usefixtures("stand_in")
def test_rows_far_from_the_sample_are_those_of_adequacy(spec: Path, tmp_path: Path) -> None:
    """Of one method a comparison says what ``adequacy`` says of a release of the same draws."""
    changed(spec, ('flags = "nchs"', 'flags = "none"'))  # a release is compared as published
    compared = write_comparison(spec, tmp_path / "out", seed=3, methods=["fbs"]).comparison
    summary = compared.summary().set_index(["statistic", "method"])
    found = compared.runs["fbs"].found
    assert found is not None
    report = (tmp_path / "out" / "report.html").read_text()
    for (statistic, _), table in found.rows.items():
        line = summary.loc[statistic, "fbs"]
        apart = (table["predicted"] - table["sample"]) / table["expected_error"]
        known = table["difference"].notna()
        np.testing.assert_allclose(table["difference"][known], apart[known])
        assert (line["compared"], line["beyond"]) == (known.sum(), (apart[known].abs() > FAR).sum())
        assert f"<td>{line['beyond']} of {line['compared']}</td>" in report
    # A stand-in knows nothing of the data: the test for all rows finds it.
    assert found.p_value < 0.01
    assert verdict(found.compared, found.beyond, found.p_value) in report
    result = write_release(spec, tmp_path / "released", seed=3)
    looked = adequacy(result.out)
    assert (looked.rows, looked.p_value < 0.01) == (found.compared, True)


@pytest.mark.usefixtures("stand_in")
def test_impossible_values_are_flagged(spec: Path) -> None:
    changed(spec, ("epsilon = 10.8", "epsilon = 0.1\nallow = ['small_strata']"))
    frame = made(spec).frame()
    # A by column of one of these names would be lost, and is refused.
    assert set(frame) <= {*TABLE_COLUMNS, *REPORT_COLUMNS, "field", "gender"}
    noisy = frame[frame["method"].str.startswith("laplace")]
    negative = noisy["estimate"] < 0
    assert negative.any()
    assert (noisy.loc[negative, "flag"] == "impossible").all()
    assert (frame.loc[~frame.index.isin(noisy.index[negative]), "flag"] != "impossible").all()


@pytest.mark.usefixtures("stand_in")
def test_odd_specifications_are_compared_and_drawn(spec: Path, tmp_path: Path) -> None:
    """No by variable and no protection; two outcomes, one of them with zeros; three statistics."""
    whole = tmp_path / "whole.toml"
    whole.write_text(spec.read_text())
    changed(whole, ('by = ["field", "gender"]', "by = []"), ('data = "', 'data = "in/'),
            ("epsilon = 10.8", 'risk = "none"\nepsilon = 10.8'))  # fmt: skip
    changed(whole, ("[labels.field]", "[labels.unused]"))
    text = whole.read_text()
    whole.write_text(text[: text.index("[labels.unused]")])
    result = write_comparison(whole, tmp_path / "out")
    assert result.comparison.tables["mean", "salary"]["fbs"].shape[0] == 1
    assert "no protection at all" in (tmp_path / "out" / "report.html").read_text()

    survey = pd.read_csv(spec.parent / "survey.csv")
    survey["grants"] = np.where(survey["salary"] > 90_000, survey["salary"] / 20, 0.0)
    survey.to_csv(spec.parent / "survey.csv", index=False)
    changed(spec, ('outcome = "salary"', 'outcome = ["salary", "grants"]'),
            ("[privacy]",
             "[outcomes.grants]\ntransform = { kind = 'asinh', scale = 1000 }\n[privacy]"),
            ('["count", "mean"]', '["count", "total", "mean"]'))  # fmt: skip
    comparison = write_comparison(spec, tmp_path / "two").comparison
    assert list(comparison.tables) == [
        ("count", None), ("total", "salary"), ("total", "grants"), ("mean", "salary"),
        ("mean", "grants"),
    ]  # fmt: skip
    assert "takes one outcome" in comparison.left_out["fbp"]
    frame = pd.read_csv(tmp_path / "two" / "comparison.csv")
    assert list(frame)[:3] == ["statistic", "outcome", "field"]
    assert (tmp_path / "two" / "figures" / "densities.png").is_file()


def refused(*arguments: Any, **options: Any) -> Any:
    raise RefusedError("The target epsilon was not reached.")


def test_nothing_is_written_when_every_synthesizer_is_refused(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surveysynth.mechanisms.pseudo_posterior.weighted_fits.run", refused)
    refusal = r"no synthesizer could be compared\. .*fbs, fbp: The target"
    with pytest.raises(RefusedError, match=refusal):
        write_comparison(spec, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt(), OSError(28, "full")])
def test_whole_or_not_at_all(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(f"{COMPARE}.folder.make_pictures", lambda comparison: [])
    monkeypatch.setattr(f"{COMPARE}.folder.render_report", fail)  # after the tables
    expected = InputError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        write_comparison(spec, tmp_path / "new" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.usefixtures("stand_in")
def test_overwriting_keeps_the_ledger_and_spares_other_folders(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{COMPARE}.folder.make_pictures", lambda comparison: [])
    out = tmp_path / "out"
    write_comparison(spec, out, seed=1)
    with pytest.raises(InputError, match="exists; name another or replace it with --overwrite"):
        write_comparison(spec, out)
    result = write_comparison(spec, out, overwrite=True)
    entries = read_ledger(out / "ledger.jsonl")
    assert sorted((entry.model, entry.released, entry.test) for entry in entries) == [
        ("fbp", False, False), ("fbp", False, True), ("fbs", False, False), ("fbs", False, True),
    ]  # fmt: skip
    assert result.ledger == summarize(entries, entries[0].survey)
    assert (result.ledger.epsilon, result.ledger.runs, result.ledger.comparisons) == (0.0, 0, 4)
    for foreign in (tmp_path / "in", spec):
        with pytest.raises(InputError, match="other files than a comparison"):
            write_comparison(spec, foreign, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_errors_name_what_is_wrong(spec: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no model 'fbx'; known: fbs"):
        made(spec, models=["fbx"])
    with pytest.raises(InputError, match="sensitivity must be one of paper, honest, got 'none'"):
        write_comparison(spec, tmp_path / "none", sensitivity="none")
    with pytest.raises(InputError, match="positive whole number, got -1"):
        made(spec, seed=-1)
