"""Small inputs that went wrong in software of this kind, by case. Truth: totals counted by hand,
what was written to disk and to the ledger, and the texts that the inputs were made from."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import surveysynth as ss
from surveysynth import cli
from surveysynth._support import exits
from surveysynth.errors import InputError
from surveysynth.release import atomic, pipeline
from surveysynth.release import folder as bundle
from surveysynth.release.folder import plan_bundle, reserved
from surveysynth.release.ledger import ledgers_folder
from surveysynth.release.pipeline import rebuild
from surveysynth.survey.files import open_table
from tests.release.test_strict_release import RATIO, SALARY, strict_spec
from tests.surveys import MakeSpec, small_survey

pytestmark = pytest.mark.usefixtures("stand_in_posterior", "own_ledgers")

LEARNED = "[outcomes.salary]\nrange = [1000, 500000]\n[outcomes.weight]\ncenter = 4.0\nspread = 1.0"


@pytest.fixture
def own_ledgers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line; code, stdout and stderr, each on one line."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([str(each) for each in arguments])
        told = capsys.readouterr()
        return code, " ".join(told.out.split()), " ".join(told.err.split())

    return command


def runs_recorded() -> int:
    return sum(len(path.read_text().splitlines()) for path in ledgers_folder().glob("*.jsonl"))


@pytest.mark.parametrize(
    ("column", "cell", "told"),
    [
        ("gender", "", "blank or missing cells in 'gender': 1 record"),
        ("field", "", "blank or missing cells in 'field': 1 record"),
        ("fraction", "1,000", "'fraction': 1 record with text that is not a number"),
    ],
)
def test_case_01_check_says_of_a_blank_public_cell_what_release_says(
    make_spec: MakeSpec, run: Any, tmp_path: Path, column: str, cell: str, told: str
) -> None:
    frame = small_survey().astype({column: object})
    frame.loc[3, column] = cell
    spec = strict_spec(make_spec, frame, survey=f'{RATIO}\nfpc = "fraction"')
    checked, released = run("check", spec), run("release", spec, "--out", tmp_path / "out")
    assert (checked[0], released[0]) == (2, 2)
    assert told in checked[2]
    assert told in released[2]


def test_case_02_output_that_cannot_be_shown_does_not_fail_a_release(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = small_survey()
    frame["gender"] = frame["gender"].map({"f": "Łódź", "m": "Gdańsk"})
    spec, out = strict_spec(make_spec, frame), tmp_path / "Łódź"
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    assert cli.main(["check", str(spec)]) == 0
    assert cli.main(["release", str(spec), "--out", str(out)]) == 0
    assert b"\\u0141\xf3d\\u017a" in written.getvalue()
    assert (out / "release" / "privacy.json").is_file()
    assert runs_recorded() == 1


class _Gone(io.TextIOBase):
    """A stream whose reader has gone, or whose disk is full."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_case_11_the_exit_code_is_that_of_the_work(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str
) -> None:
    monkeypatch.setattr(sys, stream, _Gone())
    assert cli.main(["release", str(strict_spec(make_spec)), "--out", str(tmp_path / "out")]) == 0
    assert cli.main(["check", str(tmp_path / "none.toml")]) == 2
    assert isinstance(getattr(sys, stream), _Gone)


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_case_11_a_closed_pipe() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "surveysynth", "--help"], stdout=write, stderr=subprocess.PIPE,
        check=False, text=True,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_case_02_nothing_is_said_to_be_unpublished(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    """A defect after publication, planted in the last step."""

    def fail(*_: Any) -> None:
        raise ValueError

    monkeypatch.setattr(pipeline, "summarize", fail)
    code, _, told = run("release", strict_spec(make_spec), "--out", tmp_path / "out")
    assert code == exits.DEFECT
    assert (tmp_path / "out" / "release").is_dir()
    assert "published" not in told
    assert "what this one did" in told


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of POSIX")
@pytest.mark.parametrize("moment", ["_swap", "inside_parents"])
def test_ctrl_c_after_publication_stops_nothing(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any, moment: str
) -> None:
    """While the folder is renamed, and when temporary folders are deleted."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    out, own = tmp_path / "a" / "out", getattr(bundle, moment)

    def swapped(*given: Any) -> None:
        own(*given)
        signal.raise_signal(signal.SIGINT)

    class Leaving:
        def __init__(self, target: Path) -> None:
            self.held = own(target)

        def __enter__(self) -> None:
            self.held.__enter__()

        def __exit__(self, *error: Any) -> None:
            self.held.__exit__(*error)
            if (out / "release").is_dir():
                raise KeyboardInterrupt

    monkeypatch.setattr(bundle, moment, swapped if moment == "_swap" else Leaving)
    try:
        code, told, _ = run("release", strict_spec(make_spec), "--out", out)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, runs_recorded()) == (0, 1)
    assert f"Released: {out}" in told


@pytest.mark.filterwarnings("default::surveysynth.errors.PublicWarning")
def test_case_03_dropping_says_what_it_moves_before_the_noise(
    make_spec: MakeSpec, run: Any, tmp_path: Path
) -> None:
    frame = small_survey()
    frame.loc[(frame["field"] == "a") & (frame.index % 2 == 0), "salary"] = np.nan
    spec = strict_spec(make_spec, frame, survey=f'{RATIO}\nmissing = "drop"')
    # 80 records in each of three fields, and then 40 of 200 in field a.
    said = "'field' is 'a' in 20.0% of the records, and was in 33.3% before"
    code, told, progress = run("release", spec, "--out", tmp_path / "out")
    assert code == 0
    assert progress.index(said) < progress.index("noisy statistics")
    assert "WARNING: 40 records with missing values are left out. This moves counts" in told
    release = tmp_path / "out" / "release"
    for name in ("README.md", "dossier.md", "tables/counts.html"):
        assert said in " ".join((release / name).read_text().replace("&#x27;", "'").split()), name
    assert rebuild(release, tmp_path / "again").different == ()
    assert "this moves counts" in run("check", spec)[1]


def test_case_03_records_missing_at_random_move_nothing() -> None:
    frame = small_survey()
    frame.loc[frame.index % 6 < 3, "salary"] = np.nan
    survey = ss.Survey.from_frame(
        frame, outcome="salary", weight="weight", by=["field", "gender"], missing="drop"
    )
    assert (survey.design.dropped, survey.design.shift) == (120, "")


def test_case_04_codes_for_missing_answers_are_counted_before_the_noise(
    make_spec: MakeSpec, run: Any, tmp_path: Path
) -> None:
    frame = small_survey()
    frame.loc[:43, "salary"] = -9.0
    frame.loc[44:82, "salary"] = 999999.0
    spec = strict_spec(make_spec, frame, labels=LEARNED)
    said = "CONFIDENTIAL: 83 of 240 values of 'salary' lie outside its declared range, 1,000 to"
    code, told, progress = run("release", spec, "--out", tmp_path / "out")
    assert code == 0
    assert "CONFIDENTIAL" not in told  # it is said once, while nothing is spent
    assert progress.index(said) < progress.index("noisy statistics")
    for path in (tmp_path / "out" / "release").rglob("*"):
        assert path.is_dir() or b"declared range" not in path.read_bytes()
    survey = ss.read_survey(ss.load_spec(strict_spec(make_spec, labels=LEARNED)))
    assert "declared range" not in survey.confidential_warning()


@pytest.mark.parametrize("length", [230, 250, 300])
def test_case_05_what_cannot_be_written_costs_nothing(
    make_spec: MakeSpec, run: Any, tmp_path: Path, length: int
) -> None:
    spec = strict_spec(make_spec)
    before = sorted(tmp_path.rglob("*"))
    for given in (["--out", tmp_path / ("a" * length)],
                  ["--out", tmp_path / "out", "--confidential", tmp_path / ("c" * length)]):
        code, _, told = run("release", spec, *given)
        assert (code, runs_recorded()) == (2, 0)
        assert "cannot be written: File name too long. Name another folder." in told
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("error", [OSError(28, "No space left"), PermissionError(13, "x")])
def test_case_05_the_disk_is_tried_by_writing(
    make_spec: MakeSpec, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(path: Path) -> None:
        raise error

    spec = strict_spec(make_spec)
    monkeypatch.setattr(atomic, "flush_path", fail)
    code, _, told = run("release", spec, "--out", tmp_path / "a" / "out")
    assert (code, runs_recorded()) == (2, 0)
    assert f"cannot be written: {error.strerror}" in told
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("apart", [False, True])
def test_two_runs_of_one_release_at_the_same_time_are_refused(
    make_spec: MakeSpec, run: Any, tmp_path: Path, apart: bool
) -> None:
    out, secret = tmp_path / "a" / "out", tmp_path / "secret"
    spec = strict_spec(make_spec)
    given = ["--confidential", secret] if apart else []
    with reserved(plan_bundle(out, secret if apart else None, overwrite=False), ()):
        code, _, told = run("release", spec, "--out", out, *given)
        assert (code, runs_recorded()) == (2, 0)
        assert "another run is writing to" in told
        if apart:
            other = run("release", spec, "--out", tmp_path / "other", *given)
            assert other[0] == 2
    assert run("release", spec, "--out", out, *given)[0] == 0


def test_a_run_that_has_just_ended_is_not_replaced(make_spec: MakeSpec, tmp_path: Path) -> None:
    plan = plan_bundle(tmp_path / "out", overwrite=False)
    ss.release(strict_spec(make_spec), tmp_path / "out")
    with pytest.raises(InputError, match="exists"), reserved(plan, ()):
        pytest.fail("the folder is the other run's")


@pytest.mark.parametrize("as_given", [pd.Categorical, "arrow"])
def test_case_06_categories_of_whole_numbers_may_be_missing(as_given: Any) -> None:
    rooms = [None if i % 20 == 0 else i % 5 for i in range(200)]
    frame = pd.DataFrame({"region": ["N", "S"] * 100, "weight": 1.0 + np.arange(200)})
    data: Any = frame.assign(rooms=pd.Categorical(rooms))
    if as_given == "arrow":
        data = pa.Table.from_pandas(frame).append_column(
            "rooms", pa.array(rooms, pa.int64()).dictionary_encode()
        )
    survey = ss.Survey.from_frame(
        data, outcome="rooms", weight="weight", by="region", population_size=5000, missing="drop",
        transforms=ss.Transform("identity"),
    )  # fmt: skip
    assert survey.design.n == 190
    answers = survey.confidential.outcome[:, 0].tolist()
    assert answers == [each for each in rooms if each is not None]


def test_case_07_a_word_for_a_missing_value_is_no_level(make_spec: MakeSpec, run: Any) -> None:
    frame = small_survey()
    frame.loc[:9, "gender"] = "NA"
    for survey in (RATIO, f'{RATIO}\nstrata = "gender"', f'{RATIO}\npsu = "gender"'):
        code, _, told = run("check", strict_spec(make_spec, frame, survey=survey))
        assert code == 2
        assert "blank or missing cells in 'gender': 10 records" in told
        assert "A word such as NA means a missing value ('gender': 10 records), unless" in told
    listed = '[labels.gender.levels]\nf = "Female"\nm = "Male"\nNA = "No answer"'
    assert run("check", strict_spec(make_spec, frame, labels=f"{SALARY}\n{listed}"))[0] == 0


def test_case_08_codes_written_as_1_0(make_spec: MakeSpec, run: Any) -> None:
    frame = small_survey()
    frame["gender"] = frame["gender"].map({"f": "1.0", "m": "2.0"})
    listed = '[labels.gender.levels]\n1 = "Female"\n2 = "Male"'
    labels = f"{SALARY}\n{listed}"
    code, told, _ = run("check", strict_spec(make_spec, frame, labels=labels), "--verbose")
    assert code == 0
    assert "Female" in told
    frame.loc[:9, "gender"] = "1"
    code, _, told = run("check", strict_spec(make_spec, frame))
    assert code == 2
    assert "'gender' has 2 levels that look the same as another" in told
    outcome = ss.Outcome("gender", "binary", levels=("1", "2"))
    survey = ss.Survey.from_frame(
        frame, outcomes=outcome, weight="weight", by="field", binary_for=["proportion"]
    )
    twos = (frame["gender"] == "2.0").to_numpy()
    np.testing.assert_array_equal(survey.confidential.outcome[:, 0], twos)
    with pytest.raises(InputError) as caught:
        ss.Survey.from_frame(
            frame.replace("2.0", "3"), outcomes=outcome, weight="weight", by="field",
            binary_for=["proportion"],
        )  # fmt: skip
    assert "0 and 1" not in str(caught.value)  # one fault is one problem


def replicated(frame: pd.DataFrame, count: int = 20) -> pd.DataFrame:
    """The frame with jackknife weights REPWTP1 .., and a flag REPWTP that is 1."""
    group = np.arange(len(frame)) % count
    weights = {
        f"REPWTP{each + 1}": frame["weight"] * (group != each) * count / (count - 1)
        for each in range(count)
    }
    return frame.assign(**weights, REPWTP=1)


def test_case_09_a_pattern_that_takes_another_column(
    make_spec: MakeSpec, run: Any, tmp_path: Path
) -> None:
    lines = f'{RATIO}\nreplicate_method = "jk1"\nreplicate_weights = '
    frame = replicated(small_survey())
    spec = strict_spec(make_spec, frame, survey=f"{lines}'REPWTP*'")
    told = run("check", spec, "--verbose")[1]
    assert "Replicate weights: 21 columns, 'REPWTP1' to 'REPWTP', jk1." in told
    assert run("release", spec, "--out", tmp_path / "out")[0] == 0
    code, _, told = run("adequacy", tmp_path / "out")
    assert code == 2
    assert "replicate_weights: 1 of 21 columns ('REPWTP')" in told
    spec = strict_spec(make_spec, frame, survey=f"{lines}'REPWTP?*'")
    assert run("release", spec, "--out", tmp_path / "of 20")[0] == 0
    assert run("adequacy", tmp_path / "of 20")[0] == 0
    assert (tmp_path / "of 20" / "confidential" / "adequacy.csv").is_file()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('["R1", "R2", "R2"]', "every entry may occur once; 'R2' is repeated."),
        ("5", "expected a text in quotes, got 5."),
        ('["R1", 2]', "[2]: expected a text in quotes, got 2."),
    ],
)
def test_case_10_a_key_of_two_types_has_one_message(
    make_spec: MakeSpec, run: Any, given: str, told: str
) -> None:
    survey = f'{RATIO}\nreplicate_method = "jk1"\nreplicate_weights = {given}'
    code, _, said = run("check", strict_spec(make_spec, survey=survey))
    assert code == 2
    assert "survey.replicate_weights" in said
    assert told in said
    for inner in ("function-", "constrained", ".str", "tuple"):
        assert inner not in said


@pytest.mark.parametrize("path", [r"C:\Users\me\survey.csv", r"C:\tables\new.csv", r"C:\data.csv"])
def test_case_13_a_path_of_windows_in_double_quotes(tmp_path: Path, run: Any, path: str) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(f'[survey]\ndata = "{path}"\nweight = "w"\npopulation_size = 9\n'
                    '[synthesizer]\noutcome = "y"\n'
                    '[outcomes.y]\nrange = [0, 9]\n[privacy]\nmechanism = "noisy_statistics"\n'
                    "epsilon = 10\n[tables]\nby = ['a']\n")  # fmt: skip
    code, _, told = run("check", spec)
    assert code == 2
    assert "in double quotes a backslash begins an escape" in told
    assert "single quotes" in told


def test_case_15_single_precision_is_read_as_it_is_shown(tmp_path: Path) -> None:
    codes = pd.Series([0.1, 0.2, 0.3] * 20, dtype="float32")
    frame = pd.DataFrame({"region": codes, "weight": 1.0, "tax": codes})
    frame.to_stata(tmp_path / "survey.dta", write_index=False)
    frame.to_parquet(tmp_path / "survey.parquet")
    tables: Iterator[Any] = (
        open_table(tmp_path / name).read(list(frame))
        for name in ("survey.dta", "survey.parquet")
    )
    spikes = ss.Outcome("tax", "semicontinuous", spikes=(0.1,))
    for read in (frame, *tables):
        survey = ss.Survey.from_frame(
            read.assign(weight=range(1, 61)), outcomes=spikes, weight="weight", by="region"
        )
        assert survey.design.levels == {"region": ("0.1", "0.2", "0.3")}
        assert np.count_nonzero(survey.confidential.outcome == 0.1) == 20
