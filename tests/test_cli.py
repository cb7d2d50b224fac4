"""The command line as users meet it: exit codes, one message, no values, quick to start."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

from surveysynth import cli
from surveysynth._support import exits
from surveysynth.api.start import write_example
from tests.help_page import GOLDEN, as_page
from tests.surveys import pseudo_example

ROOT = Path(__file__).parents[1]
#: The files of an example.
EXAMPLE = ["spec.toml", "spec_pseudo_posterior.toml", "survey.csv"]


def _run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "surveysynth", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The specification of a small example, by the pseudo-posterior."""
    return pseudo_example(tmp_path / "ex", n=200)


def test_version_starts_without_the_heavy_libraries() -> None:
    program = (
        "import sys; from surveysynth.cli import main; code = main(['--version']);"
        "heavy = {'numpy', 'pandas', 'scipy', 'great_tables', 'pyarrow', 'pydantic'};"
        "print(sorted(heavy & set(sys.modules))); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    version, modules = done.stdout.splitlines()
    assert version.startswith("surveysynth ")
    assert modules == "[]"


def test_blas_threads_are_pinned_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert cli.main(["--version"]) == 0
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


def test_example_writes_a_survey_and_refuses_a_full_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "ex"
    assert _run("example", folder, "--n", 300).returncode == 0
    frame = pd.read_csv(folder / "survey.csv")
    assert frame.shape == (300, 4)
    assert (frame["weight"] > 0).all()
    assert sorted(path.name for path in folder.iterdir()) == EXAMPLE
    assert os.listdir(folder.parent) == ["ex"]
    again = _run("example", folder)
    assert again.returncode == 2
    assert "not empty" in again.stderr


def test_example_is_repeatable(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_example(tmp_path / name, n=100, seed=seed)
    a, b, c = ((tmp_path / name / "survey.csv").read_bytes() for name in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize("n", [0, 15, -3])
def test_example_too_small_is_bad_input(
    tmp_path: Path, n: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["example", str(tmp_path / "ex"), "--n", str(n)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "at least 16" in told.err
    assert os.listdir(tmp_path) == []


SPECS = sorted([*ROOT.glob("tables/*/spec.toml"), *ROOT.glob("vignettes/technical/*/spec.toml")])


@pytest.mark.parametrize("spec", [None, *SPECS], ids=lambda path: path and path.parent.name)
def test_no_specification_is_released_without_a_mechanism(
    spec: Path | None, example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (spec or example).read_text(encoding="utf-8")
    without = re.sub(r"^mechanism = .*\n", "", text, flags=re.MULTILINE)
    assert without != text
    path = tmp_path / "spec.toml" if spec else example
    path.write_text(without, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    for command in ("check", "release", "compare"):
        out = [] if command == "check" else ["--out", str(tmp_path / "out")]
        assert cli.main([command, str(path), *out]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        for name in ("noisy_statistics", "pseudo_posterior"):
            assert len(re.findall(rf'^ +mechanism = "{name}"  # .+$', told.err, re.M)) == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["release", "no.toml", "--out", "out"], "no specification file"),
        (["release", "no.toml", "--out", "out", "--seed", "-1"], "seed"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == []


def test_exit_code_and_message_are_those_of_the_process(tmp_path: Path) -> None:
    done = _run("check", tmp_path / "no.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no specification file" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    told = capsys.readouterr().out
    for command in ("example", "check", "release", "study"):
        assert command in told


def test_the_help_is_that_of_the_page() -> None:
    """A changed help is read there before it is kept: ``python -m tests.help_page``."""
    assert as_page() == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["example", "init", "check", "release", "adequacy", "compare",
                                     "ledger", "rebuild", "study"])  # fmt: skip
def test_help_is_short_and_ends_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--help"]) == 0
    (summary,) = re.findall(rf"^  {command} +(.+)$", capsys.readouterr().out, re.M)
    assert len(summary) <= 45
    assert not summary.endswith("...")
    assert cli.main([command, "--help"]) == 0
    example, codes = capsys.readouterr().out.strip().splitlines()[-2:]
    assert example.strip().startswith(f"Example: surveysynth {command} ")
    assert "0 done" in codes


@pytest.mark.parametrize(("answer", "code"), [("n\n", 130), ("", 130)])
def test_a_terminal_is_asked_before_anything_is_spent(
    example: Path, answer: str, code: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stdin = io.StringIO(answer)
    monkeypatch.setattr(stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", stdin)
    out = example.parent / "out"
    assert cli.main(["release", str(example), "--out", str(out)]) == code
    assert "This release will spend epsilon 10.8." in capsys.readouterr().out
    assert not out.exists()


def test_refusal_is_exit_code_3(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = re.sub("(?m)^weights_from = .*$", "", example.read_text())
    example.write_text(text.replace("[survey]", '[survey]\nweights_from = ["salary"]'))
    out = example.parent / "out"
    assert cli.main(["release", str(example), "--out", str(out)]) == 3
    assert "weights_from" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(("feasible", "code"), [(True, 0), (False, 3)])
def test_check_tells_what_would_happen(
    example: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    feasible: bool,
    code: int,
) -> None:
    verdict = "OK to release." if feasible else "Refused: too few records."
    monkeypatch.setattr(
        "surveysynth.evaluation.studies.simulated.simulated_report",
        lambda *_, **others: ([verdict], [], not feasible),
    )
    before = sorted(example.parent.iterdir())
    assert cli.main(["check", str(example), "--verbose"]) == code
    told = capsys.readouterr()
    for shown in ("200 records", "8 strata", "Field 8, Female", "counts.csv", "(27 rows each)"):
        assert shown in told.out
    assert told.out.startswith(verdict)
    assert ("refused" in told.err) is not feasible
    assert sorted(example.parent.iterdir()) == before


def test_a_defect_shows_no_value(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise ValueError("salary 123456.789")

    monkeypatch.setattr("surveysynth.mechanisms.pseudo_posterior.weighted_fits.run", fail)
    monkeypatch.delenv(exits.DEBUG_VARIABLE, raising=False)
    assert cli.main(["release", str(example), "--out", str(example.parent / "out")]) == 1
    told = capsys.readouterr()
    assert "123456" not in told.out + told.err
    assert "ValueError at surveysynth/mechanisms/pseudo_posterior/mechanism.py:" in told.err
    assert not (example.parent / "out").exists()
    monkeypatch.setenv(exits.DEBUG_VARIABLE, "1")
    assert cli.main(["release", str(example), "--out", str(example.parent / "out")]) == 1
    told = capsys.readouterr()
    assert "a traceback may show confidential values" in told.err
    assert "123456.789" in told.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_release_leaves_nothing(example: Path, number: int) -> None:
    folder = example.parent
    # A fit that lasts, so that the signal finds it at work.
    text = example.read_text().replace("[privacy]", "draws = 20000\nwarmup = 20000\n\n[privacy]")
    example.write_text(text)
    command = [sys.executable, "-m", "surveysynth", "release", str(example)]


    def heed_interrupts() -> None:
        # Where tests run in the background SIGINT is inherited as ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    process = subprocess.Popen(
        [*command, "--out", str(folder / "out")], stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509  # no other thread is at work
    )  # fmt: skip
    watch = threading.Timer(120, process.kill)
    watch.start()
    assert process.stderr is not None
    for line in process.stderr:
        if "fit" in line:
            break
    time.sleep(0.3)
    process.send_signal(number)
    told = process.stderr.read()
    process.stderr.close()
    code = process.wait(timeout=30)
    watch.cancel()
    assert code == 130
    assert "interrupted" in told
    assert "Traceback" not in told
    assert sorted(path.name for path in folder.iterdir()) == EXAMPLE


def test_progress_names_stages_alone(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from surveysynth._support.progress import RELEASE_STAGES, StageReporter

    with StageReporter() as progress:
        for stage in RELEASE_STAGES:
            progress(stage)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"surveysynth: {stage}" for stage in RELEASE_STAGES]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with StageReporter() as progress:
        progress(RELEASE_STAGES[0])
        progress("a stage that no list knows")
