"""Each way in which a confidential value has left by mistake, planted and looked for.

Truth: canaries, searched for in all that a user's terminal, folders and messages get to see.
"""

import copy
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth import cli
from surveysynth.errors import InputError
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.models import get_model
from surveysynth.release.atomic import make_private
from surveysynth.release.pipeline import release
from surveysynth.sampling.stan.backends import CmdStanBackend, StanEngine
from surveysynth.survey.columns import is_header
from surveysynth.survey.declaration import Declaration, make_roles
from surveysynth.survey.records import LEAST_RECORDS, read_records
from tests.release.fuzzing import CANARIES, CANARY_LEVEL, CANARY_OUTCOME, CANARY_WEIGHT
from tests.surveys import MakeSpec, make_survey, small_survey

LEVELS = (
    '[labels.field]\nlevels = {a = "A", b = "B", c = "C"}\n'
    '[labels.gender]\nlevels = {f = "Women", m = "Men"}'
)


def planted() -> pd.DataFrame:
    frame = small_survey(60)
    frame.loc[0, ["salary", "weight"]] = [CANARY_OUTCOME, CANARY_WEIGHT]
    return frame


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """A command's exit code and all that it said."""

    def command(*arguments: Any) -> tuple[int, str]:
        code = cli.main([str(each) for each in arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    return command


def assert_no_canary(text: str) -> None:
    for canary in CANARIES:
        assert canary not in text


# --- names of columns that are a record ------------------------------------------------------


@pytest.mark.parametrize("action", ["check", "release"])
@pytest.mark.parametrize("words_only", [False, True])
def test_a_file_without_header_shows_no_record(
    make_spec: MakeSpec, run: Any, tmp_path: Path, action: str, words_only: bool
) -> None:
    """Of numbers, which look like none, and of words, which look like names of columns."""
    frame = planted()
    if words_only:
        frame = frame.astype(str)
        frame.loc[0] = [f"{CANARY_LEVEL}{number}" for number in range(frame.shape[1])]
    spec = make_spec(frame)
    data = spec.parent / "survey.csv"
    data.write_text("".join(data.read_text().splitlines(keepends=True)[1:]))
    out = ["--out", tmp_path / "out"] if action == "release" else []
    code, said = run(action, spec, *out)
    assert code == 2
    assert "names are not shown" in said
    assert "may be a record instead of a header" in said
    assert_no_canary(said)


def test_a_record_with_the_same_value_twice_shows_none(make_spec: MakeSpec, run: Any) -> None:
    frame = planted().assign(salary=CANARY_OUTCOME, weight=CANARY_OUTCOME)
    spec = make_spec(frame)
    data = spec.parent / "survey.csv"
    data.write_text("".join(data.read_text().splitlines(keepends=True)[1:]))
    code, said = run("check", spec)
    assert code == 2
    assert "columns 3 and 4 have the same name" in said
    assert_no_canary(said)


def test_a_frame_read_without_its_header_shows_no_record() -> None:
    frame = planted()
    frame.columns = pd.Index([f"{value}" for value in frame.iloc[0]])
    with pytest.raises(InputError) as caught:
        make_survey(frame)
    assert_no_canary(str(caught.value))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(["field", "salary", "x"], True), (["FIELD ", "salary", "x"], True),
     (["field", "x", "y", "z"], False), (["field", "salary", "12.5"], False),
     (["field", "salary", "1e5"], False), (["field", "salary", "2024-05-01"], False),
     (["field", "salary", "€ 1.200,50"], False), (["field", "salary", "nan"], False),
     (["field", "salary", ""], True), (["field", "salary", "q12a"], True), ([], False)],
)  # fmt: skip
def test_a_header_is_known_by_what_is_sought(columns: list[str], expected: bool) -> None:
    assert is_header(columns, ["field", "salary", "weight", "gender"]) == expected


# --- levels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [CANARY_LEVEL, CANARY_OUTCOME])
def test_a_value_among_declared_levels_is_refused_unquoted(
    make_spec: MakeSpec, run: Any, tmp_path: Path, value: object
) -> None:
    frame = planted().astype({"gender": object})
    frame.loc[0, "gender"] = value
    spec = make_spec(frame, labels=LEVELS)
    for command in (["check", spec], ["release", spec, "--out", tmp_path / "out"]):
        code, said = run(*command)
        assert code == 2
        assert "labels.gender.levels: 1 record has a level that is not listed" in said
        assert_no_canary(said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("part", ["predictors", "public_columns"])
def test_declared_levels_hold_for_every_public_column(
    make_spec: MakeSpec, run: Any, part: str
) -> None:
    frame = planted().assign(region=np.array(["n", "s"])[np.arange(60) % 2])
    frame.loc[0, "region"] = CANARY_LEVEL
    lines = {"survey": 'public_columns = ["region"]'}
    if part == "predictors":
        lines = {"synthesizer": 'predictors = "field + gender + region"'}
    spec = make_spec(frame, labels='[labels.region]\nlevels = {n = "North", s = "South"}', **lines)
    code, said = run("check", spec)
    assert code == 2
    assert "labels.region.levels: 1 record" in said
    assert_no_canary(said)


def test_undeclared_rare_levels_are_warned_of_and_not_printed(
    make_spec: MakeSpec, run: Any, tmp_path: Path, stand_in_mechanism: None
) -> None:
    frame = planted()
    frame.loc[0, "gender"] = CANARY_LEVEL
    spec = make_spec(
        frame, survey="population_size = 30000", privacy='allow = ["small_strata"]'
    )
    code, said = run("release", spec, "--out", tmp_path / "out")
    assert code == 0
    assert f"WARNING: 'gender' has 1 level of fewer than {LEAST_RECORDS} records" in said
    assert_no_canary(said)
    often = planted()
    often.loc[: LEAST_RECORDS - 1, "gender"] = "other"
    code, said = run(
        "release", make_spec(often, privacy='allow = ["small_strata"]'), "--out", tmp_path / "often"
    )
    assert code == 0
    assert "WARNING" not in said


def test_check_lists_cells_without_rare_levels(
    make_spec: MakeSpec, run: Any
) -> None:
    frame = planted()
    frame.loc[0, "gender"] = CANARY_LEVEL
    spec = make_spec(frame, privacy='allow = ["small_strata"]')
    code, said = run("check", spec, "--quick", "--verbose")
    assert code == 0
    assert "WARNING: 'gender' has 1 level" in said
    assert "(rare level, not shown)" in said
    assert_no_canary(said)


def test_formula_errors_name_terms_and_no_level(make_spec: MakeSpec, run: Any) -> None:
    frame = planted()
    frame.loc[0, "gender"] = CANARY_LEVEL
    formula = "field * gender + C(gender)"
    code, said = run("check", make_spec(frame, synthesizer=f'predictors = "{formula}"'))
    assert code == 2
    assert "a column of 'C(gender)'" in said
    assert_no_canary(said)


def test_stratum_sizes_quote_no_level_of_the_data() -> None:
    frame = planted()
    frame.loc[0, "field"] = CANARY_LEVEL
    with pytest.raises(InputError, match="1 record has a level that is not listed") as caught:
        make_survey(
            frame, weight=None, weights="public", population_size={"a": 100, "b": 100, "c": 100},
            lonely_psu="adjust",
        )  # fmt: skip
    assert_no_canary(str(caught.value))


# --- files -----------------------------------------------------------------------------------


def test_confidential_files_are_of_their_owner_alone(
    make_spec: MakeSpec, tmp_path: Path, stand_in_mechanism: None
) -> None:
    """Also those of an earlier run, whatever the mask and the version that wrote them."""
    spec, before = make_spec(survey="population_size = 30000"), os.umask(0)
    try:
        first = release(spec, tmp_path / "out")
        for path in first.confidential.iterdir():
            path.chmod(0o644)
        made = release(spec, tmp_path / "out", overwrite=True)
    finally:
        os.umask(before)
    assert list(made.confidential.glob("earlier_runs/0001/realised.json"))
    for path, mode in _modes(made.confidential):
        assert mode == (0o700 if path.is_dir() else 0o600), path
    published = {mode for path, mode in _modes(made.out / "release") if path.is_file()}
    assert published == {0o666}  # what is public is as the mask says


def _modes(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in [folder, *folder.rglob("*")]:
        yield path, stat.S_IMODE(path.stat().st_mode)


def test_private_is_private_through_and_through(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch(mode=0o644)
    make_private(tmp_path / "a")
    assert {mode for path, mode in _modes(tmp_path / "a") if path.is_dir()} == {0o700}
    assert stat.S_IMODE((tmp_path / "a" / "b" / "c").stat().st_mode) == 0o600


# --- objects ---------------------------------------------------------------------------------


def confidential_objects() -> Iterator[Any]:
    """Fits, and records and statistics of every kind of model."""
    survey = ss.example_survey(n=200)
    settings = ss.MechanismSettings(epsilon=30.0, m=1, plan=ss.SamplingPlan(4, 60, 150))
    model = get_model("normal").of(survey.design)
    design = settings.prepared(survey.design)
    yield ss.run_mechanism(
        model, design, survey.confidential, settings, np.random.default_rng(1)
    )[1]
    yield survey
    for name in ("fbs", "fbp", "normal", "normal_mixture"):
        model = get_model(name).of(survey.design)
        records = model.records(survey.design, survey.confidential)
        yield records
        yield model.compress(records, np.ones(survey.design.n))
        yield Database(records, survey.design.n)
    frame = small_survey().assign(kids=lambda each: each.index % 5)
    counts = ss.Survey.from_frame(
        frame, outcome="kids", weight="weight", by="field", transforms=ss.Transform("identity")
    )
    model = get_model("poisson").of(counts.design)
    records = model.records(counts.design, counts.confidential)
    yield records
    yield model.compress(records, np.ones(counts.design.n))
    kinds = _kinds(frame)
    yield get_model("fbs").under_noise().of(kinds.design).records(kinds.design, kinds.confidential)
    roles = make_roles(("salary",), "weight", ("field",), None, None, None, None, ())
    yield read_records(frame, Declaration(roles=roles, source="the data frame"))


def _kinds(frame: pd.DataFrame) -> ss.Survey:
    return ss.Survey.from_frame(
        frame, outcomes=[ss.Outcome("employed", "binary"), ss.Outcome("salary")],
        weight="weight", by="field",
    )  # fmt: skip


def test_nothing_confidential_is_pickled_copied_or_printed() -> None:
    seen = 0
    for each in confidential_objects():
        seen += 1
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                pickle.dumps(each, protocol)
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copy.deepcopy(each)
        assert "array(" not in repr(each), type(each)
    assert seen >= 15


# --- what check and release say --------------------------------------------------------------


@pytest.mark.parametrize(("size", "said"), [(5e6, "less than half"), (2e5, ""), (61, "more than")])
def test_weights_far_from_the_population_size_are_told_to_the_runner_alone(
    make_spec: MakeSpec, run: Any, tmp_path: Path, stand_in_mechanism: None, size: float, said: str
) -> None:
    frame = planted()
    frame["weight"] *= 2e5 / frame["weight"].sum()
    privacy = "epsilon = 10.8\nallow = ['small_strata']"
    spec = make_spec(frame, survey=f"population_size = {size}", privacy=privacy)
    code, told = run("release", spec, "--out", tmp_path / "out")
    assert code == 0
    assert ("CONFIDENTIAL: the weights add up" in told) == bool(said)
    assert said in told
    for path in (tmp_path / "out" / "release").rglob("*"):
        assert path.is_dir() or b"the weights add up" not in path.read_bytes()
    survey = ss.read_survey(ss.load_spec(spec))
    assert bool(survey.population_warning()) == bool(said)


def test_check_says_that_there_is_no_cmdstan(
    make_spec: MakeSpec, run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CMDSTAN", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    code, said = run("check", make_spec(synthesizer='engine = "cmdstan"'))
    assert code == 2
    assert "needs CmdStan, which is not installed" in said


def test_the_statement_tells_of_the_seeds_of_stan() -> None:
    design, settings = ss.example_survey(n=100).design, ss.MechanismSettings(epsilon=10.8)
    model = get_model("normal")
    engine = StanEngine(CmdStanBackend())
    by_stan = ss.privacy_statement(design, settings, model.with_engine(engine))
    told = [item for item in by_stan.not_covered if "31 bits" in item]
    assert len(told) == 1
    assert "command line" in told[0]
    embedded = ss.privacy_statement(design, settings, model)
    assert not [item for item in embedded.not_covered if "seed" in item]
