"""``python -m tests.audit``: its files, its exit codes, and that it reads public inputs alone."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.config.spec import load_spec
from surveysynth.mechanisms.noisy_statistics.release import location_statistics
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import noise_variances
from tests.audit.__main__ import main
from tests.audit.cases import specified_case
from tests.audit.lines import Line, frame_of, worst
from tests.audit.posterior import posterior_lines
from tests.audit.report import page_of, ratio_words, sentence
from tests.audit.runs import audited, examples, of_specification
from tests.surveys import CANARIES, good, spec_text, write_survey

CASE = "normal, noisy statistics"
STRICT = spec_text(
    survey='population_size = 100000\nstrata = "field"',
    synthesizer='model = "fbs"\n[outcomes.salary]\ncentre = 22000\nspread = 0.5',
    privacy='mechanism = "noisy_statistics"\nepsilon = 3\ndelta = 1e-6',
)
ASYMPTOTIC = spec_text(survey="population_size = 100000", synthesizer='model = "fbs"')


@pytest.fixture(scope="module")
def frame():
    return good(n=400)


def test_the_folder_of_examples(tmp_path, capsys):
    out = tmp_path / "audit"
    assert main(["--out", str(out), "--case", CASE, "--n", "200", "--seed", "3"]) == 0
    assert f"{CASE}, n = 200: 0.999 of the stated bound, holds" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {"audit.csv", "audit.md"}
    table = pd.read_csv(out / "audit.csv")
    assert set(table["verdict"]) == {"holds"}
    page = (out / "audit.md").read_text()
    assert "no confidential record was read" in page
    assert f"{len(table)} holds" in page
    assert f"surveysynth {ss.__version__}" in page
    assert f"| {CASE} |" in page


def test_a_mechanism_that_fails_is_exit_code_3(tmp_path, capsys, monkeypatch):
    def wrong(clipping, rho, *arguments, **named):
        return noise_variances(clipping, 2.0 * rho, *arguments, **named)

    monkeypatch.setattr(location_statistics, "noise_variances", wrong)
    out = tmp_path / "audit"
    assert main(["--out", str(out), "--case", CASE, "--n", "200"]) == 3
    told = capsys.readouterr()
    assert "1.415 of the stated bound, passed" in told.out
    assert "moved more than is stated" in told.err
    assert f"| **{CASE}** |" in (out / "audit.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--case", "fbz"], "There is no audit case 'fbz'"),
        (["--spec", "nothing.toml"], "nothing.toml"),
    ],
)
def test_bad_input(tmp_path, capsys, arguments, told):
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def others(frame):
    """The same public columns, with cells of outcome and weight that are no numbers at all."""
    text = [f"canary{CANARIES[0]}"] * len(frame)
    return frame.assign(salary=text, weight=text)


@pytest.mark.parametrize("text", [STRICT, ASYMPTOTIC], ids=["strict", "asymptotic"])
def test_a_case_comes_from_public_columns_alone(tmp_path, frame, text):
    """Surveys with other outcomes and weights, not even numbers, give the same simulated one."""
    specs = [
        write_survey(tmp_path / name, each, text)
        for name, each in (("one", frame), ("other", others(frame)))
    ]
    one, other = (specified_case(load_spec(each), 5).survey for each in specs)
    assert np.array_equal(one.confidential.outcome, other.confidential.outcome)
    assert np.array_equal(one.confidential.sampling_weight, other.confidential.sampling_weight)
    assert one.design.frame.equals(other.design.frame)
    assert not set(one.confidential.outcome.ravel()) & set(frame["salary"])
    assert not set(one.confidential.sampling_weight) & set(frame["weight"])


def test_nothing_confidential_is_in_the_folder(tmp_path, frame, capsys):
    """The same bytes from a survey with other confidential cells; no canary anywhere."""
    found = {}
    for name, each in (("one", frame), ("other", others(frame))):
        spec = write_survey(tmp_path / name, each, STRICT)
        assert main(["--spec", str(spec), "--out", str(tmp_path / f"{name}_out")]) == 0
        found[name] = {
            path.name: path.read_bytes() for path in sorted((tmp_path / f"{name}_out").iterdir())
        }
    assert found["one"] == found["other"]
    told = capsys.readouterr()
    everything = told.out + told.err + b"".join(found["other"].values()).decode()
    assert not [canary for canary in CANARIES if canary in everything]
    assert "spec.toml, n = 400: 0.997 of the stated bound" in told.out


def test_simulated_strict_surveys_are_as_declared(tmp_path, frame):
    declared = STRICT.replace("spread = 0.5", "spread = 0.5\n[outcomes.weight]\nspread = 0.5")
    spec = load_spec(write_survey(tmp_path / "in", frame, declared))
    made = specified_case(spec, 5).survey.confidential
    log = np.log(made.outcome[:, 0])
    assert log.mean() == pytest.approx(math.log(22_000), abs=4 * 0.5 / 20)
    assert log.std() == pytest.approx(0.5, abs=0.1)
    assert np.log(made.sampling_weight).mean() == pytest.approx(math.log(100_000 / 400), abs=0.12)


def test_kinds_and_bounds_of_a_specification_are_kept(tmp_path, frame):
    text = spec_text(
        survey="population_size = 100000",
        synthesizer='model = "fbs"\noutcome = ["salary", "employed"]\n'
        '[outcomes.salary]\nkind = "semicontinuous"\nspikes = [0]\nbounds = [0, 30000]\n'
        'transform = { kind = "asinh", scale = 10000 }\ncentre = 22000\nspread = 0.5\n'
        '[outcomes.employed]\nkind = "binary"',
        privacy='mechanism = "noisy_statistics"\nepsilon = 3\ndelta = 1e-6',
    )
    spec = load_spec(write_survey(tmp_path / "in", frame.assign(employed=1), text))
    salary, employed = specified_case(spec, 5).survey.confidential.outcome.T
    assert set(employed) == {0.0, 1.0}
    assert 0.3 < np.mean(salary == 0) < 0.7
    assert salary.min() >= 0
    assert salary.max() <= 30_000


def test_without_protection_there_is_nothing_to_test(tmp_path, frame):
    text = spec_text(survey="population_size = 100000", privacy='risk = "none"')
    spec = write_survey(tmp_path / "in", frame, text)
    ((line,),) = audited(of_specification(spec, 0), 0, 0)
    assert line.verdict == "skipped"
    assert "claims nothing" in line.reason


def test_a_model_without_a_guess_has_the_survey_of_fbs(tmp_path, frame, monkeypatch):
    """As programs of the caller's own, which have none."""
    monkeypatch.setattr("tests.audit.cases.has_guess", lambda model: model.name == "fbs")
    made = {}
    for name in ("normal", "fbs"):
        text = ASYMPTOTIC if name == "fbs" else ASYMPTOTIC.replace('"fbs"', '"normal"')
        text = text if name == "fbs" else text.replace("covariance_by = []", "")
        spec = load_spec(write_survey(tmp_path / name, frame, text))
        made[name] = specified_case(spec, 1).survey.confidential.outcome
    assert np.array_equal(made["normal"], made["fbs"])


def test_designs_that_the_mechanism_refuses_are_told(tmp_path, frame):
    """A model that lacks something of the design is skipped with the reason."""
    case = specified_case(load_spec(write_survey(tmp_path / "in", frame, ASYMPTOTIC)), 1)
    design = replace(case.survey.design, population_size=None)
    survey = replace(case.survey, design=design)
    (line,) = posterior_lines(replace(case, survey=survey, model=ss.get_model("fbp")), (), 1)
    assert (line.verdict, line.ratio) == ("skipped", None)
    assert "population_size" in line.reason


LINES = [
    Line("a", "pseudo_posterior", "fbs", 10, 3.0, "typical", "weight x 50", "common", 0.2,
         verdict="holds"),
    Line("a", "pseudo_posterior", "fbs", 10, 3.0, "typical", "<b>", "common", 1.0004, 0.01,
         "passed"),
    Line("a", "pseudo_posterior", "fbs", 10, 3.0, "typical", "two", "fresh", 0.3, verdict="holds"),
    Line("b", "", "", 10, 0.0, "", "", verdict="refused", reason="too small"),
]  # fmt: skip


def test_the_worst_of_each_kind_is_shown():
    assert worst(LINES) == LINES[1:]
    assert worst(LINES[::-1]) == [LINES[3], LINES[2], LINES[1]]
    assert sentence(LINES[1]) == (
        "a, n = 10: 1.001 of the stated bound, passed; typical: <b> (common random numbers)"
    )
    assert sentence(LINES[3]) == "b, n = 10: refused: too small"
    page = page_of(LINES, "the examples", 1)
    assert "2 holds, 1 passed, 1 refused." in page
    assert "| **1.001** | **passed** | **typical** | **<b>** |" in page
    assert "| weight x 50 |" not in page
    assert frame_of(LINES)["ratio"].isna().tolist() == [False, False, False, True]


def test_no_ratio_is_rounded_to_the_other_side_of_one():
    shown = {0.99999: "0.999", 1.0: "1.000", 1.0000001: "1.001", 15.06: "15.1"}
    assert {ratio: ratio_words(ratio) for ratio in shown} == shown
    assert (ratio_words(None), ratio_words(math.inf)) == ("", "infinite")


def test_examples_that_cannot_be_made_are_told():
    ((line,),) = audited(examples(10, 0, ["fbs"]), 0, 10)
    assert line.verdict == "refused"
