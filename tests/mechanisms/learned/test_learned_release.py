"""Releases with learned transforms: their parts run by hand, files read again, noise kept and read.

The statistics of the second stage are computed from curves that SciPy's normal scores give.
"""

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surveysynth as ss
from surveysynth.config.build import mechanism_of
from surveysynth.config.spec import spec_of_survey
from surveysynth.errors import InputError
from surveysynth.mechanisms.learned.histogram import first_stage
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.release.pipeline import rebuild
from surveysynth.survey.transforms import LearnedTransform
from tests.mechanisms.learned.learned_cases import SHORT, frame_of, survey_of

RANGE = "range = [0, 5000000]\ntransform = { by = 'strata' }"
SPEC = """
spec_version = 1
[survey]
data = "survey.csv"
weight = "weight"
strata = "region"
population_size = 60000
[synthesizer]
outcome = "income"
{synthesizer}
[outcomes.income]
{income}
[privacy]
mechanism = "{mechanism}"
epsilon = 10.8
{privacy}
[tables]
by = ["region"]
statistics = ["count", "mean"]
"""


def written(folder: Path, mechanism: str, n: int = 500, **more: str) -> Path:
    """A survey file with its specification."""
    frame_of(n).to_csv(folder / "survey.csv", index=False)
    parts = {"synthesizer": "", "income": RANGE, "privacy": ""} | more
    (folder / "spec.toml").write_text(SPEC.format(mechanism=mechanism, **parts))
    return folder / "spec.toml"


def content(path: Path) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return given


class Kept:
    """A keeper that notes what it gets, and may have something from an earlier run."""

    def __init__(self, before: Mapping[str, Any] | None = None) -> None:
        self.before, self.noted = before, list[Mapping[str, Any]]()

    def earlier(self) -> Mapping[str, Any] | None:
        return self.before

    def keep(self, statistics: Mapping[str, Any]) -> None:
        self.noted.append(statistics)


def test_a_release_by_noisy_statistics_is_rebuilt_from_its_histograms(tmp_path: Path) -> None:
    given = {"privacy": "m = 10\nreplicates_per_draw = 2", "synthesizer": SHORT}
    spec = written(tmp_path, "noisy_statistics", **given)
    spec.write_text(f"{spec.read_text()}formats = ['csv']\n")
    ss.release(spec, tmp_path / "out", ledger=tmp_path / "ledger.jsonl")
    release = tmp_path / "out" / "release"
    statistics, privacy = content(release / "statistics.json"), content(release / "privacy.json")
    histogram, of_weight = statistics["learned"]
    assert of_weight["outcome"] == "weight"
    assert np.shape(histogram["counts"]) == (1, 3, 64)
    # 0.05 of rho for each histogram, and 0.9 for sums: all of the ledger's.
    rho = Budget.of_epsilon(10.8, 1e-6).rho
    for each in (histogram, of_weight):
        spent = 2 / (2 * float(Fraction(each["sigma^2"])))
        assert spent == pytest.approx(0.05 * rho, rel=1e-4)
    assert statistics["statistics"]["rho"] == pytest.approx(0.9 * rho)
    entry = json.loads((tmp_path / "ledger.jsonl").read_text().splitlines()[-1])
    assert entry["rho"] == privacy["rho"] == rho
    assert privacy["settings"]["learned"]["income"]["range"] == [0, 5000000]
    assert privacy["settings"]["learned"]["income"]["rho"] == pytest.approx(0.05 * rho)
    words = (release / "README.md").read_text()
    dossier = (release / "dossier.md").read_text()
    assert "a noisy histogram by public bins" in dossier
    assert "do not heap at round numbers" in words
    # The clipped are counted where nobody else reads it.
    realised = content(tmp_path / "out" / "confidential" / "realised.json")
    assert realised["amounts_outside_range"] == {"income": 0, "weight": 0}
    assert set(realised["amounts_at_round_numbers"]) == {"income", "weight"}
    for name in ("privacy.json", "statistics.json", "README.md", "codebook.json"):
        text = (release / name).read_text()
        assert "outside_range" not in text
        assert "round_numbers" not in text
    again = rebuild(release, tmp_path / "again")
    assert again.different == ()
    # A histogram that was tampered with gives other tables.
    histogram["counts"][0][0][30] += 400
    (release / "statistics.json").write_text(json.dumps(statistics))
    planted = rebuild(release, tmp_path / "planted").different
    assert "tables/means.csv" in planted


def test_noise_is_kept_before_anything_follows_and_is_continued_from(tmp_path: Path) -> None:
    given = {"privacy": "m = 10", "synthesizer": SHORT}
    spec = ss.load_spec(written(tmp_path, "noisy_statistics", **given))
    survey, mechanism = ss.read_survey(spec), mechanism_of(spec)
    model = ss.get_model("fbs").under_noise().of(survey.design)
    first = Kept()
    made = mechanism.run(
        model, survey.design, survey.confidential, np.random.default_rng(1), keeper=first
    )
    assert [set(each) - {"learned"} == set() for each in first.noted] == [True, False]
    assert first.noted[0]["learned"] == first.noted[1]["learned"]
    # From the histogram alone: the same curves, new sums. From all of it: the same draws.
    for before, same in ((first.noted[0], False), (first.noted[1], True)):
        again = Kept(before)
        other = mechanism.run(
            model, survey.design, survey.confidential, np.random.default_rng(1), keeper=again
        )
        assert len(again.noted) == (0 if same else 1)
        assert other.design is not None
        assert made.design is not None
        transforms = [each.transform for each in made.design.outcomes]
        assert [each.transform for each in other.design.outcomes] == transforms
        theta, others = made.draws.theta, other.draws.theta
        assert all((theta[key] == others[key]).all() for key in theta) == same


def test_the_second_stage_takes_scores_of_the_first() -> None:
    """Records of a stratum have the scores of its own curve, at no spike and by side."""
    survey = survey_of(2000)
    first = first_stage(
        survey.design, survey.confidential, budget=1.0,
        source=SeededNoise(np.random.default_rng(2)),
    )  # fmt: skip
    model = ss.get_model("fbs").under_noise().of(first.design)
    records = model.records(first.design, survey.confidential)
    strata, tax = survey.design.strata, survey.confidential.outcome[:, 1]
    assert strata is not None
    for side, there in ((0, tax > 0), (1, tax < 0)):
        for stratum in range(3):
            rows = there & (strata == stratum)
            curve = first.design.outcomes[1].learned
            assert curve is not None
            low, high = (0.0, 100_000.0) if side == 0 else (0.0, 5000.0)
            s = high / 1000
            x = np.arcsinh(np.abs(tax[rows]) / s)
            ends = np.linspace(0.0, np.arcsinh(high / s), 257)
            expected = np.interp(x, ends, np.array(curve.curves[side][stratum]))
            assert records.z[rows, 1 + side] == pytest.approx(expected, abs=1e-9)
            assert low == 0.0
    # Nearly standard normal: nothing to declare.
    assert np.abs(records.z[:, 0].mean()) < 0.2
    assert np.abs(records.z[:, 0].std() - 1.0) < 0.2


@pytest.mark.parametrize(
    ("income", "words"),
    [
        ("transform = { scale = 3 }", "outcomes.income.transform.scale: a learned transform needs"),
        ("center = 3", "outcomes.income.center: a learned transform needs a range alone"),
        ("bounds = [0, inf]", "outcomes.income.bounds: a learned transform has a range in the"),
        ('transform = "log"', "outcomes.income.range: this key is for transform = 'learned'"),
        ("transform = { share = 1.5 }", "outcomes.income.transform.share"),
    ],
)
def test_keys_that_do_not_belong_together(tmp_path: Path, income: str, words: str) -> None:
    spec = written(tmp_path, "noisy_statistics", income=f"range = [0, 5000000]\n{income}")
    with pytest.raises(InputError) as error:
        mechanism_of(ss.load_spec(spec))
    assert words in str(error.value)


def test_a_learned_transform_without_a_range_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "noisy_statistics", income='transform = "learned"')
    with pytest.raises(InputError, match=r"outcomes\.income\.range: missing"):
        ss.load_spec(path)


def test_tables_in_memory_learn_as_a_file_does(tmp_path: Path) -> None:
    """The two outcomes of a survey in memory reach the statement with the shares that they have."""
    design = survey_of(200).design
    spec = spec_of_survey(design, {
        "privacy": {"mechanism": "noisy_statistics", "epsilon": 10.8},
        "tables": {"by": ["region"], "statistics": ["mean"]},
    })  # fmt: skip
    assert spec.declared == design.outcomes
    statement = mechanism_of(spec).statement(ss.get_model("fbs").under_noise().of(design), design)
    words = " ".join(statement.guarantee)
    assert "income (0.07 of the budget); tax (0.03 of the budget)" in words
    file = ss.load_spec(written(tmp_path, "noisy_statistics"))
    (income,) = file.declared
    assert income.learned == LearnedTransform(low=0.0, high=5e6, share=0.05, by="strata")


def test_shares_of_outcomes_that_declare_none_are_equal_parts_of_a_tenth(tmp_path: Path) -> None:
    path = written(tmp_path, "noisy_statistics", income=f"{RANGE}\n[outcomes.tax]\n{RANGE}")
    path.write_text(path.read_text().replace('outcome = "income"', 'outcome = ["income", "tax"]'))

    def shares() -> list[float]:
        return [each.learned.share for each in ss.load_spec(path).declared if each.learned]

    # Noisy statistics learn the weight as well, unless its spread is declared.
    assert shares() == pytest.approx([0.1 / 3, 0.1 / 3])
    path.write_text(f"{path.read_text()}[outcomes.weight]\nspread = 0.5\n")
    assert shares() == [0.05, 0.05]


def test_noisy_statistics_without_any_constant_propose_a_range(tmp_path: Path) -> None:
    path = written(tmp_path, "noisy_statistics", income="")
    with pytest.raises(InputError, match=r"Declare the public range of the outcome, range = \[low"):
        ss.load_spec(path)


def test_init_leaves_amounts_on_both_sides_of_zero_together(tmp_path: Path) -> None:
    frame_of(60).to_csv(tmp_path / "survey.csv", index=False)
    ss.init(
        tmp_path / "survey.csv", tmp_path / "spec.toml", mechanism="noisy_statistics", epsilon=3.6,
        outcomes={"tax": {"kind": "semicontinuous", "range": [-5000, 100_000]}}, weight="weight",
        strata="region", by=["region"], population_size=60_000,
    )  # fmt: skip
    (tax,) = ss.load_spec(tmp_path / "spec.toml").declared
    assert tax.split is None
    assert tax.spikes == (0.0,)
    assert tax.learned is not None
