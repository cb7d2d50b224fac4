"""Truth: pandas on the frame, tables of the public interface with the same seed, planted faults."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surveysynth as ss
from surveysynth import cli
from surveysynth.config.spec import validate_spec
from surveysynth.errors import InputError, RefusedError
from surveysynth.evaluation.compare.tables import sample_weight
from surveysynth.evaluation.studies import study as frame_study
from surveysynth.evaluation.studies.frame import check_design, read_frame
from surveysynth.evaluation.studies.population import SamplingDesign, published_cells
from surveysynth.evaluation.studies.report import CLASSES, run_frame_study, size_class
from surveysynth.evaluation.studies.study import FrameStudy, released, sample_rows
from surveysynth.evaluation.studies.tasks import Task
from surveysynth.release.tables.table_builder import estimates_by_table

QUICK = {"model": "fbs", "inference": "paper", "chains": 2}
SECTIONS = {
    "survey": {"data": "survey.csv", "weight": "w", "strata": "region", "population_size": 9},
    "synthesizer": {
        **QUICK, "outcome": ["income", "tax"], "covariance_by": [],
    },
    "privacy": {"mechanism": "pseudo_posterior", "epsilon": 10.8, "m": 1},
    "tables": {"by": ["region", "sex"], "statistics": ["count", "mean"]},
}
#: What needs the mechanism that takes every kind of outcome, and units.
NOISY = {
    **SECTIONS, "synthesizer": {},
    "privacy": {"mechanism": "noisy_statistics", "epsilon": 10.8},
    "outcomes": {name: {"kind": "continuous", "range": [0, 1e6]} for name in ("income", "tax")},
}  # fmt: skip


def frame_of(n=1200, seed=1):
    """Units of two regions and sexes, whose cells differ by their interaction."""
    rng = np.random.default_rng(seed)
    region = np.where(np.arange(n) < 0.6 * n, "north", "south")
    sex = np.where(rng.random(n) < 0.5, "f", "m")
    high = (region == "north") == (sex == "f")
    income = np.exp(10 + 0.8 * high + 0.3 * rng.normal(size=n))
    return pd.DataFrame({
        "region": region, "sex": sex, "income": income,
        "tax": income * np.exp(0.2 * rng.normal(size=n) - 1.5),
        "owner": np.where(rng.random(n) < 0.4, "yes", "no"),
        "heat": rng.choice(["gas", "oil", "wood"], n, p=[0.5, 0.3, 0.2]),
        "size": income**0.3 * np.exp(0.3 * rng.normal(size=n)),
        "take": np.where(region == "north", 40, 25),
    })  # fmt: skip


FRAME = frame_of()


def spec_of(sections=SECTIONS, **changes):
    made = {name: {**keys, **changes.pop(name, {})} for name, keys in sections.items()}
    return validate_spec({**made, **changes, "path": Path("spec.toml")}, "spec")


def study_of(spec=None, frame=FRAME, samples=30, n=120, kind="pps", **changes):
    spec = spec_of() if spec is None else spec
    specs = spec if isinstance(spec, dict) else {"spec": spec}
    size = None if kind == "srs" else "size"
    population = read_frame(frame, next(iter(specs.values())), size=size, drawn=None)
    return FrameStudy(population, SamplingDesign(kind, n=n), specs, samples, **changes)


def as_the_sample(change=lambda frame: frame):
    """Return a release that has the tables of the sample itself, changed."""

    def made(spec, survey, stream):
        return change(sample_rows(spec, survey)), {}

    return made


@pytest.fixture
def quick(monkeypatch):
    """Releases that take no time: those of the sample itself."""
    monkeypatch.setattr(frame_study, "released", as_the_sample())


def value(truth, **labels):
    found = truth
    for name, label in labels.items():
        found = found[found[name] == label]
    (number,) = found["truth"]
    return number


def smallest_reaching(values, p):
    ordered = np.sort(values.to_numpy())
    return ordered[int(np.ceil(p * ordered.size)) - 1]


def test_the_truth_is_that_of_the_frame():
    tables = [
        {"name": "plain", "by": ["region", "sex"], "statistics": [
            "count", "mean", "total", "median", "quantile(0.9)", "ratio(tax, income)",
            "difference(mean, sex: f - m)", "share"]},
        {"name": "owners", "by": ["region"], "statistics": ["count", "mean"],
         "where": 'owner == "yes" and sex == "f"'},
        {"name": "by_heat", "by": ["heat"], "statistics": ["count", "median"]},
    ]  # fmt: skip
    sections = {**NOISY, "tables": tables, "outcomes": {
        **NOISY["outcomes"],
        "owner": {"kind": "binary", "levels": ["no", "yes"]},
        "heat": {"kind": "categorical", "levels": ["gas", "oil", "wood"]},
    }}  # fmt: skip
    spec = validate_spec({**sections, "path": Path("spec.toml")}, "spec")
    study = study_of(spec, samples=1)
    truth = study.truth
    plain = truth[truth["table"] == "plain"]
    for (region, sex), cell in FRAME.groupby(["region", "sex"]):
        at = {"region": region, "sex": sex}
        of = {**at, "outcome": "income"}
        assert value(plain, statistic="count", **at) == len(cell)
        assert value(plain, statistic="mean", **of) == pytest.approx(cell["income"].mean())
        assert value(plain, statistic="total", **of) == pytest.approx(cell["income"].sum())
        assert value(plain, statistic="median", **of) == smallest_reaching(cell["income"], 0.5)
        assert value(plain, statistic="quantile(0.9)", **of) == smallest_reaching(
            cell["income"], 0.9
        )
        ratio = plain[plain["statistic"].str.startswith("ratio")]
        assert value(ratio, **at) == pytest.approx(cell["tax"].sum() / cell["income"].sum())
        shares = cell["heat"].value_counts(normalize=True)
        for level in ("gas", "oil", "wood"):
            share = value(plain, statistic="share", outcome="heat", level=level, **at)
            assert share == pytest.approx(shares[level])
    north = FRAME[FRAME["region"] == "north"]
    means = north.groupby("sex")["income"].mean()
    contrast = plain[plain["statistic"].str.startswith("difference") & (plain["region"] == "north")]
    assert value(contrast, outcome="income") == pytest.approx(means["f"] - means["m"])
    owners = FRAME[(FRAME["owner"] == "yes") & (FRAME["sex"] == "f")]
    part = truth[truth["table"] == "owners"]
    assert value(part, statistic="count", region="All") == len(owners)
    assert value(part, statistic="mean", outcome="tax", region="south") == pytest.approx(
        owners[owners["region"] == "south"]["tax"].mean()
    )
    oil = FRAME[FRAME["heat"] == "oil"]
    by_heat = truth[(truth["table"] == "by_heat") & (truth["heat"] == "oil")]
    assert value(by_heat, statistic="count") == len(oil)
    assert value(by_heat, statistic="median", outcome="tax") == smallest_reaching(oil["tax"], 0.5)
    own = study.run(Task(0, "own")).replicates
    assert set(own["row"]) <= set(truth["row"])
    assert len(own) > 0.95 * len(truth)  # a level may lack a record in one sample


def test_one_release_is_that_of_the_public_interface():
    spec = spec_of()
    study = study_of(spec, samples=1)
    survey = study.survey(0, study.spec)
    made = released(study.spec, survey, np.random.SeedSequence(7))[0]
    assert survey.design.population_size == len(FRAME)  # not that of the survey
    public = ss.tables(
        survey, "fbs", 10.8, statistics=("count", "mean"), m=1, inference="paper",
        options={"chains": 2, "covariance_by": []}, seed=7,
        sections={"privacy": {"mechanism": "pseudo_posterior"}},
    ).frame  # fmt: skip
    for name in ("estimate", "se", "ci_lower", "ci_upper"):
        np.testing.assert_array_equal(made[name], public[name])


@pytest.mark.usefixtures("quick")
def test_the_sample_covers_and_its_copy_is_its_equal():
    result = run_frame_study(study_of(samples=30), None, workers=1)
    copy = result.summary[result.summary["method"] == "spec"]
    np.testing.assert_array_equal(copy["gap"], 0.0)
    np.testing.assert_array_equal(copy["rmse_ratio"], 1.0)
    np.testing.assert_array_equal(copy["length_ratio"], 1.0)
    # t intervals of means of 30 log-normal records and more: nominal to a few percent.
    means = copy[copy["statistic"] == "mean"]
    assert means["coverage"].between(0.88, 0.99).all()
    assert (copy["bias"].abs() < 0.25).all()
    # The count of all is the population size, without error.
    whole = result.rows[(result.rows["statistic"] == "count") & (result.rows["row"] == 0)]
    assert not whole["has_error"].any()
    assert set(result.by_size["size"]) <= {"<30", "30-100", "100-300"}


def in_one_margin(frame):
    frame["estimate"] += 2 * frame["se"] * (frame["sex"] == "f")
    for name in ("ci_lower", "ci_upper"):
        frame[name] += 2 * frame["se"] * (frame["sex"] == "f")
    return frame


def half_as_long(frame):
    middle = (frame["ci_lower"] + frame["ci_upper"]) / 2
    for name in ("ci_lower", "ci_upper"):
        frame[name] = (frame[name] + middle) / 2
    return frame


def test_classes_of_size():
    classes = size_class(np.array([0.0, 29.9, 30.0, 99.9, 100.0, 299.9, 300.0, 9e9]))
    assert [CLASSES.index(each) for each in classes] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_planted_faults_are_seen(monkeypatch):
    study = study_of(samples=15)
    monkeypatch.setattr(frame_study, "released", as_the_sample(in_one_margin))
    result = run_frame_study(study, None, workers=1)
    rows = result.rows[(result.rows["method"] == "spec") & (result.rows["statistic"] == "mean")]
    shifted = rows["sex"] == "f"
    assert rows.loc[shifted, "bias_ratio"].between(1.5, 2.6).all()
    assert rows.loc[~shifted, "bias_ratio"].abs().max() < 0.8
    assert rows.loc[shifted, "coverage"].max() < 0.75 < rows.loc[~shifted, "coverage"].min()
    monkeypatch.setattr(frame_study, "released", as_the_sample(half_as_long))
    made = run_frame_study(study, None, workers=1).summary
    means = made[(made["statistic"] == "mean") & (made["method"] == "spec")]
    np.testing.assert_allclose(means["length_ratio"], 0.5, rtol=1e-6)
    assert (means["gap"] < -4 * means["gap_mcse"]).all()
    assert means["coverage"].between(0.5, 0.8).all()


def test_a_wrong_formula_is_seen():
    """Main effects cannot express cells that differ by their interaction."""
    specs = {
        name: spec_of(
            synthesizer={"outcome": ["income"], "predictors": formula},
            tables={"statistics": ["mean"]},
        )
        for name, formula in (("right", "region * sex"), ("wrong", "region + sex"))
    }
    study = study_of(specs, samples=3, n=400, kind="pps")
    rows = run_frame_study(study, None, workers=1).rows
    cells = rows[~rows["is_margin"]].set_index("method")["bias_ratio"].abs()
    assert cells["wrong"].min() > 5
    # Interactions are shrunk, which a strong one shows, but far less than its absence.
    assert cells["wrong"].median() > 4 * cells["right"].median()


@pytest.mark.usefixtures("quick")
def test_a_resumed_study_ends_with_the_same_files(tmp_path, monkeypatch):
    study = study_of(samples=2, laplace=True)
    whole = run_frame_study(study, tmp_path / "whole", workers=1)
    assert set(whole.summary["method"]) == {"sample", "laplace", "spec"}
    as_ever, calls = FrameStudy.run, []

    def stopped(self, task):
        calls.append(task)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return as_ever(self, task)

    monkeypatch.setattr(FrameStudy, "run", stopped)
    with pytest.raises(ss.errors.StoppedError, match="--resume"):
        run_frame_study(study, tmp_path / "out", workers=1)
    monkeypatch.setattr(FrameStudy, "run", as_ever)
    with pytest.raises(InputError, match="exists"):
        run_frame_study(study, tmp_path / "out", workers=1)
    with pytest.raises(InputError, match=r"other settings \(seed"):
        run_frame_study(replace(study, seed=1), tmp_path / "out", resume=True, workers=1)
    run_frame_study(study, tmp_path / "out", resume=True, workers=1)
    names = sorted(each.name for each in (tmp_path / "whole").glob("*.*"))
    assert {"rows.csv", "summary.csv", "by_size.csv", "summary.json", "report.html",
            "refusals.csv", "replicates.parquet", "study.json"} == set(names)  # fmt: skip
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    said = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (said["units"], said["samples"], said["records"]) == (1200, 2, 120)
    assert {each["method"] for each in said["tables"]} == set(study.methods)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "costs none of its privacy budget" in page
    assert page.count("data:image/png") == 2


@pytest.mark.usefixtures("quick")
def test_a_study_grows_without_drawing_its_samples_again(tmp_path, monkeypatch):
    run_frame_study(study_of(samples=2), tmp_path / "whole", workers=1)
    run_frame_study(study_of(samples=1), tmp_path / "out", workers=1)
    as_ever, calls = FrameStudy.run, []

    def counted(self, task):
        calls.append(task.sample)
        return as_ever(self, task)

    monkeypatch.setattr(FrameStudy, "run", counted)
    run_frame_study(study_of(samples=2), tmp_path / "out", resume=True, workers=1)
    assert set(calls) == {1}
    for name in sorted(each.name for each in (tmp_path / "whole").glob("*.*")):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    # Fewer samples than there are would leave some out.
    with pytest.raises(InputError, match=r"other settings \(replicates\)"):
        run_frame_study(study_of(samples=1), tmp_path / "out", resume=True, workers=1)


def test_refused_samples_are_counted(monkeypatch):
    made, seen = as_the_sample(), []

    def sometimes(spec, survey, stream):
        seen.append(stream)
        if len(seen) % 4 == 0:
            raise RefusedError("the fit has not converged")
        return made(spec, survey, stream)

    monkeypatch.setattr(frame_study, "released", sometimes)
    result = run_frame_study(study_of(samples=8), None, workers=1)
    assert list(result.refusals["sample"]) == [3, 7]
    assert result.refusals["reason"].str.contains("RefusedError: the fit has not converged").all()
    assert set(result.summary.loc[result.summary["method"] == "spec", "refused"]) == {0.25}
    assert set(result.rows.loc[result.rows["method"] == "spec", "replicates"]) == {6}
    by_method = result.summary.groupby("method")["rows"].sum()
    assert by_method["spec"] == by_method["sample"] > 0
    assert set(result.rows.loc[result.rows["method"] == "sample", "replicates"]) == {8}


def test_a_release_that_is_always_refused_is_in_the_summary(tmp_path, monkeypatch):
    def never(spec, survey, stream):
        raise RefusedError("the target was not reached")

    monkeypatch.setattr(frame_study, "released", never)
    spec = spec_of(tables={"statistics": ["mean", "median"]})
    study = study_of(spec, samples=2, laplace=True)
    made = run_frame_study(study, tmp_path / "out", workers=1).summary
    assert "spec: 2 of 2" in (tmp_path / "out" / "report.html").read_text()
    refused = made[made["method"] == "spec"]
    assert (refused["rows"] == 0).all()
    assert (refused["refused"] == 1).all()
    assert refused["coverage"].isna().all()
    # Noise cannot be scaled to medians.
    assert set(made.loc[made["method"] == "laplace", "statistic"]) == {"mean"}
    assert set(made["statistic"]) == {"mean", "median"}


def test_weights_are_those_of_the_design():
    study = study_of(samples=1, n=200)
    totals = []
    for sample in range(60):
        survey = study.survey(sample, study.spec)
        weight = survey.sampling_weight
        totals.append(weight @ survey.confidential.outcome[:, 0])
        assert weight.sum() == pytest.approx(len(FRAME), rel=0.2)
    error = np.std(totals, ddof=1) / np.sqrt(60)
    assert abs(np.mean(totals) - FRAME["income"].sum()) < 4 * error
    once, again = (study.survey(3, study.spec).sampling_weight for _ in range(2))
    np.testing.assert_array_equal(once, again)


def test_numbers_do_not_depend_on_the_workers():
    study = study_of(samples=1, laplace=True)
    one, two = (run_frame_study(study, None, workers=workers) for workers in (1, 2))
    pd.testing.assert_frame_equal(one.replicates, two.replicates)
    pd.testing.assert_frame_equal(one.rows, two.rows)
    other = replace(study, seed=1).run(Task(0, "own")).replicates
    first = one.replicates[(one.replicates["sample"] == 0) & (one.replicates["method"] == "sample")]
    assert not np.isclose(other["estimate"].iloc[5], first["estimate"].iloc[5])


def test_clusters_are_drawn_and_numbered_anew():
    frame = FRAME.assign(village=np.arange(len(FRAME)) // 10)
    spec = spec_of(NOISY, survey={"psu": "village"})
    population = read_frame(frame, spec, size="size", drawn=None)
    design = SamplingDesign("two_stage", n=120, per_cluster=4, clusters="size", within="pps")
    check_design(design, population, spec)
    study = FrameStudy(population, design, {"spec": spec}, 1)
    survey = study.survey(0, study.spec)
    assert np.bincount(survey.design.psu).tolist() == [4] * 30
    assert survey.sampling_weight.sum() == pytest.approx(len(frame), rel=0.3)
    with pytest.raises(InputError, match="draws no clusters"):
        check_design(SamplingDesign("pps", n=120), population, spec)


def test_public_weights_and_fractions_are_those_of_the_frame():
    sizes = {"north": 5.0, "south": 5.0}
    public = {"data": "x.csv", "strata": "region", "weights": "public"}
    made = {**SECTIONS, "survey": {**public, "population_size": sizes}}
    study = study_of(spec_of(made), samples=1, kind="srs", n=100)
    weight = study.survey(0, study.spec).sampling_weight
    assert sorted({round(each, 9) for each in weight}) == [12.0]  # 1,200 units, proportional
    made = {**SECTIONS, "survey": {**public, "weight": "w", "fpc": "f"}}
    survey = study_of(spec_of(made), samples=1, kind="srs", n=100).survey(0, spec_of(made))
    assert survey.design.frame["w"].eq(12.0).all()
    estimates = estimates_by_table(spec_of(made), survey.design)[""]
    estimates.add_alone(survey.confidential.outcome, sample_weight(survey))
    whole = estimates.combined(("mean", 0)).standard_error[0]
    values, region = survey.confidential.outcome[:, 0], survey.design.frame["region"]
    variances = [values[region == h].var(ddof=1) / (region == h).sum() for h in sizes]
    by_hand = 0.6**2 * variances[0] + 0.4**2 * variances[1]
    assert whole**2 == pytest.approx((1 - 1 / 12) * by_hand)
    for kind, words in (("pps_wr", "no finite-population"), ("pps", "by stratum is for")):
        spec = spec_of({**SECTIONS, "survey": {**public, **(
            {"weight": "w", "fpc": "f"} if kind == "pps_wr" else {"population_size": sizes}
        )}})  # fmt: skip
        with pytest.raises(InputError, match=words):
            check_design(SamplingDesign(kind, n=100), study.population, spec)


@pytest.mark.usefixtures("quick")
def test_a_column_allocates():
    result = ss.coverage(
        FRAME, spec_of(), samples=2, size="size", allocation="take", design="pps"
    )
    whole = result.rows[(result.rows["region"] != "All") & (result.rows["sex"] == "All")]
    assert dict(zip(whole["region"], whole["records"], strict=False)) == {"north": 40, "south": 25}


def with_csv(tmp_path, frame=FRAME):
    frame.to_csv(tmp_path / "frame.csv", index=False)
    text = "spec_version = 1\n" + "".join(
        f"[{section}]\n" + "".join(f"{key} = {json.dumps(each)}\n" for key, each in keys.items())
        for section, keys in SECTIONS.items()
    )
    (tmp_path / "spec.toml").write_text(text)
    (tmp_path / "second.toml").write_text(text.replace("10.8", "3.6"))
    return tmp_path / "frame.csv", tmp_path / "spec.toml"


@pytest.mark.usefixtures("quick")
def test_the_command(tmp_path, capsys):
    frame, spec = with_csv(tmp_path)
    code = cli.main([
        "study", str(spec), "--population", str(frame), "--samples", "2", "--n", "100",
        "--size-column", "size", "--also", str(tmp_path / "second.toml"), "--workers", "1",
        "--allocation", "power", "--out", str(tmp_path / "out"),
    ])  # fmt: skip
    shown = capsys.readouterr().out
    assert code == 0
    assert "costs none of the survey's privacy budget" in shown
    said = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert {name: each["epsilon"] for name, each in said["specifications"].items()} == {
        "spec": 10.8, "second": 3.6,
    }  # fmt: skip
    assert said["design"] == {"kind": "pps", "allocation": "power", "size": "size"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "n: missing; a study needs the number of records"),
        (["--n", "100", "--allocation", "take"], "leave n out"),
        (["--n", "100", "--allocation", "half"], "allocation: expected one of 'proportional'"),
        (["--n", "100", "--design", "pps"], "needs a measure of size"),
        (["--n", "100", "--size-column", "sizes"], "Did you mean 'size'?"),
        (["--n", "100", "--design", "two_stage"], "survey.psu"),
        (["--n", "1100", "--design", "srs", "--allocation", "equal"], "distinct records"),
        (["--n", "2", "--size-column", "size"], "at least 4"),
    ],
)
def test_mistakes_write_nothing(tmp_path, capsys, options, words):
    frame, spec = with_csv(tmp_path)
    code = cli.main([
        "study", str(spec), "--population", str(frame), "--out", str(tmp_path / "out"), *options
    ])  # fmt: skip
    assert code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_frame_needs_a_specification(tmp_path, capsys):
    frame, _ = with_csv(tmp_path)
    assert cli.main(["study", "--population", str(frame), "--out", str(tmp_path / "out")]) == 2
    assert "name the specification of a release" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_without_a_frame_it_is_the_published_simulation(tmp_path, capsys):
    """Truth: the sizes and mean salaries printed in Tables 4 and 5 of the paper."""
    arguments = ["study", "--samples", "1", "--workers", "1", "--out"]
    assert cli.main([*arguments, str(tmp_path / "out"), "--laplace"]) == 0
    said = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (said["units"], said["records"], said["design"]["kind"]) == (100_000, 1000, "pps_wr")
    methods = ["fbs_paper", "fbs", "fbp_paper", "fbp", "fbs_noisy"]
    assert list(said["specifications"]) == methods
    assert {each["method"] for each in said["tables"]} == {"sample", "laplace", *methods}
    rows = pd.read_csv(tmp_path / "out" / "rows.csv", dtype={"field": str})
    rows = rows[rows["method"] == "sample"].set_index(["statistic", "field", "gender"])["truth"]
    cells = published_cells().set_index(["field", "gender"])
    for key, cell in cells.iterrows():
        assert rows["count", *key] == cell["size"]
        assert rows["mean", *key] == pytest.approx(cell["mean"], rel=0.06)
    _, spec = with_csv(tmp_path)
    assert cli.main([*arguments, str(tmp_path / "no"), str(spec)]) == 2
    assert "published simulation" in capsys.readouterr().err


def test_the_survey_itself_is_no_frame(tmp_path):
    frame, spec = with_csv(tmp_path)
    survey = tmp_path / "survey.csv"
    for make in (lambda: survey.hardlink_to(frame), lambda: survey.write_bytes(frame.read_bytes())):
        make()
        with pytest.raises(InputError, match=r"is the data file of the survey itself"):
            ss.coverage(frame, spec, n=100, size="size")
        with pytest.raises(InputError, match=r"is the data file of the survey itself"):
            ss.coverage(survey, spec, n=100, size="size")
        survey.unlink()
    spec.with_name("survey.csv").write_text("another file\n")
    assert ss.coverage(frame, spec, samples=1, n=100, size="size").summary["rows"].min() > 0


def test_specifications_must_make_the_same_tables():
    for changes, words in (
        ({"tables": {"by": ["region"]}}, "the tables differ"),
        ({"survey": {"weight": "v"}}, "the columns of the survey differ"),
        ({"tables": {"level": 0.9}}, "the tables differ"),
    ):
        with pytest.raises(InputError, match=words):
            study_of({"one": spec_of(), "two": spec_of(**changes)})


CELLS = st.sampled_from([np.nan, 0.0, -1.0, np.inf, 3.0])


@settings(max_examples=25, deadline=None)
@given(
    dropped=st.sets(st.sampled_from(["region", "sex", "income", "tax", "size"]), max_size=2),
    bad=st.dictionaries(
        st.tuples(st.sampled_from(["income", "tax", "size"]), st.integers(0, 59)), CELLS, max_size=3
    ),
    blank=st.sets(st.tuples(st.sampled_from(["region", "sex"]), st.integers(0, 59)), max_size=2),
    lone=st.booleans(),
    n=st.integers(2, 60),
)
def test_any_frame_gives_a_study_or_a_plain_error(dropped, bad, blank, lone, n):
    frame = frame_of(60, seed=3)
    for (name, row), cell in bad.items():
        frame.loc[row, name] = cell
    for name, row in blank:
        frame.loc[row, name] = None
    if lone:
        frame.loc[0, "region"] = "west"
        blank = blank - {("region", 0)}
    right = not (dropped or blank or lone) and all(cell == 3.0 for cell in bad.values())
    spec = spec_of(privacy={"mechanism": "pseudo_posterior"})
    words = ""
    try:
        population = read_frame(frame.drop(columns=list(dropped)), spec, size="size", drawn=None)
        study = FrameStudy(population, SamplingDesign("pps_wr", n=n), {"spec": spec}, 1)
    except InputError as error:
        words = str(error)
    if words:
        assert not right or n < 40  # few records determine the weights of a cell
        assert all(name in words for name in dropped)
    else:
        assert not dropped
        assert not blank
        assert all(cell == 3.0 for (name, _), cell in bad.items())
        assert study.survey(0, study.spec).design.n == n
