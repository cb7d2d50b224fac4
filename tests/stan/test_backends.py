"""What runs Stan programs. Truth: the closed posterior of ``means.stan``, listings of the file
system, and planted values searched for in all that is told. The real CmdStanPy and make run, with
a script in the place of the compiled program; marked tests run the real thing."""

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surveysynth
from surveysynth._support.confidential import private_folder
from surveysynth.errors import InputError, RefusedError, SurveySynthError
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan import backends, source
from surveysynth.sampling.stan.backends import (
    BACKEND_VARIABLE,
    CmdStanBackend,
    PyStanBackend,
    StanBackend,
    StanRun,
    default_backend,
)
from surveysynth.sampling.stan.source import (
    StanSource,
    cache_directory,
    compiled_program,
    compiler_message,
)
from tests.stan.fake_cmdstan import MEANS, compilations, fake_program, install_fake_cmdstan

CANARY = 7319.4285174
PLAN = SamplingPlan(chains=3, warmup=200, draws=400)
SETTINGS: dict[str, Any] = {"plan": PLAN, "adapt_delta": 0.9, "seed": 5}
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, which must be empty again at the end."""
    import cmdstanpy  # noqa: F401  (it makes an empty folder of its own when it is imported)

    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def means() -> StanSource:
    return StanSource.read(MEANS)


def data_of(n: int = 30, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    y, log_w = rng.normal(3.0, 1.0, n), rng.normal(-1.0, 1.0, n)
    return {"n": n, "y": y, "log_w": log_w, "alpha": rng.random(n), "prior_sd": 10.0, **more}


def assert_is_the_posterior(run: StanRun, data: dict[str, Any]) -> None:
    """Mean and SD of mu within Monte Carlo error; shapes and order of the rest."""
    z, alpha = np.stack([data["y"], data["log_w"]]), data["alpha"]
    mu, shape = run.draws["mu"], (PLAN.chains, PLAN.draws)
    assert mu.shape == (*shape, 2)
    assert run.divergent.shape == shape
    precision = data["prior_sd"] ** -2 + alpha.sum()
    # NUTS draws of a location are worth about a third of independent ones.
    worth = mu[..., 0].size / 3
    error = (precision * worth) ** -0.5
    np.testing.assert_array_less(abs(mu.mean((0, 1)) - z @ alpha / precision), 4 * error)
    spread = mu.std((0, 1)) * precision**0.5
    np.testing.assert_array_less(abs(spread - 1), 4 / np.sqrt(2 * worth))
    layout = mu[..., :1, None] + np.array([[11.0, 12, 13], [21, 22, 23]])
    np.testing.assert_allclose(run.draws["layout"], layout, rtol=1e-12)
    log_lik = -np.log(2 * np.pi) - 0.5 * ((z - mu[..., None]) ** 2).sum(axis=-2)
    np.testing.assert_allclose(run.draws["log_lik"], log_lik, rtol=1e-12)
    assert len(np.unique(mu)) > mu.size / 2
    assert not run.divergent.any()


def test_a_compiled_program_needs_no_cmdstan(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMDSTAN", str(tmp_path / "nowhere"))
    backend = CmdStanBackend(fake_program(tmp_path / "anything"))
    data = data_of()
    backend.prepare(means())
    run = backend.run(means(), data, **SETTINGS)
    assert_is_the_posterior(run, data)
    again = backend.run(means(), data, **SETTINGS)
    np.testing.assert_array_equal(again.draws["mu"], run.draws["mu"])
    other = backend.run(means(), data, **{**SETTINGS, "seed": 6})
    assert not np.isin(other.draws["mu"], run.draws["mu"]).any()


def test_an_executable_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not executable")
    for name in ("gone", "text"):
        with pytest.raises(InputError, match=f"{name} is not there or may not be executed"):
            CmdStanBackend(tmp_path / name).prepare(means())


def test_without_cmdstan_one_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMDSTAN", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"'python -m cmdstanpy\.install_cmdstan'"):
        CmdStanBackend(cache=tmp_path / "cache").prepare(means())
    assert not (tmp_path / "cache").exists()


@needs_make
def test_compiled_once_under_a_key_of_text_and_cmdstan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cmdstan = install_fake_cmdstan(tmp_path / "cmdstan", monkeypatch)
    cache, before = tmp_path / "cache", sorted(MEANS.parent.iterdir())
    first = compiled_program(means(), cache)
    assert compiled_program(means(), cache) == first
    assert compilations(cmdstan) == 1
    assert first.parent.parent == cache
    assert sorted(MEANS.parent.iterdir()) == before
    changed = StanSource("means", means().code + "// another text\n")
    assert compiled_program(changed, cache) != first
    makefile = cmdstan / "makefile"
    makefile.write_text(makefile.read_text().replace("2.38.0", "2.38.1"))
    assert compiled_program(means(), cache) != first
    assert compilations(cmdstan) == 3
    assert not [path for path in cache.iterdir() if path.name.startswith(".")]


@needs_make
def test_programs_compiled_at_once_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_fake_cmdstan(tmp_path / "cmdstan", monkeypatch)
    together, compile_it = threading.Barrier(2), source._compile

    def slow(source: StanSource, folder: Path) -> None:
        together.wait(timeout=60)  # both are past the look into the cache
        with lock:  # CmdStanPy changes the working directory of the process
            compile_it(source, folder)

    lock = threading.Lock()
    monkeypatch.setattr(source, "_compile", slow)
    found: list[Path] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(compiled_program(means(), tmp_path / "cache"))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [found[0].parent.name]


@needs_make
def test_a_broken_program_shows_the_compiler_s_lines_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install_fake_cmdstan(tmp_path / "cmdstan", monkeypatch)
    with pytest.raises(InputError) as caught:
        compiled_program(StanSource("broken", "data {\n}\nsyntax error here\n"), tmp_path / "cache")
    first, *lines = str(caught.value).splitlines()
    assert "'broken' does not compile" in first
    assert lines == [
        "Syntax error in 'broken.stan', line 3, column 2 to column 8, parsing error:",
        "     3:  syntax error here",
    ]
    assert list((tmp_path / "cache").iterdir()) == []
    assert not caplog.records


def test_the_message_is_cut_and_never_empty() -> None:
    assert (
        compiler_message("make: *** [x] Error 1\n", Path("/t")) == "the compiler gave no message."
    )
    long = "Semantic error\n" + "\n".join(f"/t/x.stan line {i}" for i in range(99))
    assert compiler_message(long, Path("/t")).splitlines()[1] == "x.stan line 0"
    assert len(compiler_message(long, Path("/t")).splitlines()) == source.MESSAGE_LINES


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        ("kill", RefusedError, r"was killed \(signal 9"),
        ("fail", InputError, "failed on these data. Stan names line 19 of it"),
        ("truncate", InputError, "failed on these data"),
    ],
)
def test_a_failure_tells_no_value_and_leaves_no_file(
    tmp_path: Path,
    temporary: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    act: str,
    kind: type[SurveySynthError],
    words: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    data = data_of(act=act)
    data["y"][:3] = CANARY
    with pytest.raises(kind, match=words) as caught:
        CmdStanBackend(fake_program(tmp_path / "program")).run(means(), data, **SETTINGS)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    told = [str(caught.value), *capfd.readouterr(), *(str(r.getMessage()) for r in caplog.records)]
    assert not any("7319" in text for text in told)


def test_data_are_private_while_the_program_runs_and_nothing_is_logged(
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[Path] = []
    run_commands = backends.run_commands

    def spy(commands: Any, folder: Path, **arguments: Any) -> Any:
        failure = run_commands(commands, folder, **arguments)
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o700
        for path in folder.iterdir():
            assert path.stat().st_mode & 0o777 == 0o600, path
            seen.append(path)
        assert not any(str(CANARY) in part for command in commands for part in command)
        return failure

    monkeypatch.setattr(backends, "run_commands", spy)
    data = data_of()
    data["y"][0] = CANARY
    CmdStanBackend(fake_program(tmp_path / "program")).run(means(), data, **SETTINGS)
    assert {"data.json", "draws-1.csv", "console-0.txt"} <= {path.name for path in seen}
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_a_folder_that_stays_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Path] = []

    def use() -> None:
        with private_folder() as folder:
            kept.append(folder)
            monkeypatch.setattr(shutil, "rmtree", lambda *a, **k: None)

    with pytest.raises(RefusedError, match="delete it by hand"):
        use()
    monkeypatch.undo()
    shutil.rmtree(kept[0])


def test_every_draw_that_diverged_is_counted(tmp_path: Path, temporary: Path) -> None:
    backend = CmdStanBackend(fake_program(tmp_path / "program"))
    assert backend.run(means(), data_of(act="diverge"), **SETTINGS).divergent.sum() == 3 * 400


def test_too_little_warmup_is_an_error(tmp_path: Path) -> None:
    backends: list[StanBackend] = [CmdStanBackend(fake_program(tmp_path / "p")), PyStanBackend()]
    for backend in backends:
        with pytest.raises(InputError, match="warmup must be at least 20"):
            backend.run(means(), data_of(), **{**SETTINGS, "plan": replace(PLAN, warmup=3)})


def test_the_cache_is_where_the_platform_keeps_caches() -> None:
    home = str(Path.home())
    cases = [
        ({"XDG_CACHE_HOME": "/x"}, "linux", "/x/surveysynth/stan"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", f"{home}/.cache/surveysynth/stan"),
        ({}, "linux", f"{home}/.cache/surveysynth/stan"),
        ({}, "darwin", f"{home}/Library/Caches/surveysynth/stan"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/surveysynth/stan"),
        ({}, "win32", f"{home}/AppData/Local/surveysynth/stan"),
    ]
    for environment, system, expected in cases:
        assert cache_directory(environment, system) == Path(expected)


def test_the_environment_chooses_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)
    assert isinstance(default_backend(), CmdStanBackend)
    monkeypatch.setenv(BACKEND_VARIABLE, "pystan")
    assert isinstance(default_backend(), PyStanBackend)
    monkeypatch.setenv(BACKEND_VARIABLE, "jags")
    with pytest.raises(InputError, match="'cmdstan' or 'pystan', got 'jags'"):
        default_backend()


def test_pystan_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "httpstan.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(InputError, match="install the extra 'stan'"):
        PyStanBackend().prepare(means())


def test_the_worker_is_that_of_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is to import the package beside which this one runs, installed or not."""
    searched = []

    def stop(commands: list[list[str]], *_: Any, environment: dict[str, str], **__: Any) -> None:
        assert commands[0][2].startswith("surveysynth.")
        searched.append(Path(environment["PYTHONPATH"].partition(os.pathsep)[0]))
        raise InterruptedError

    monkeypatch.setattr(backends, "run_commands", stop)
    with pytest.raises(InterruptedError):
        PyStanBackend().prepare(means())
    assert searched == [Path(surveysynth.__file__).parents[1]]


@pytest.mark.pystan
@pytest.mark.xdist_group("stan means")
def test_pystan_draws_the_posterior_and_keeps_no_fit(temporary: Path) -> None:
    appdirs = pytest.importorskip("appdirs")
    fits = Path(appdirs.user_cache_dir("httpstan"))
    before = set(fits.rglob("*.gz"))
    backend, data = PyStanBackend(), data_of()
    backend.prepare(means())
    run = backend.run(means(), data, **SETTINGS)
    assert_is_the_posterior(run, data)
    again = backend.run(means(), data, **SETTINGS)
    np.testing.assert_array_equal(again.draws["mu"], run.draws["mu"])
    assert set(fits.rglob("*.gz")) == before


@pytest.mark.pystan
@pytest.mark.xdist_group("stan means")
def test_pystan_fails_without_a_value(temporary: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = StanSource("broken", "data { int n }")
    with pytest.raises(InputError, match=r"does not compile:\nSyntax error in the program, line 1"):
        PyStanBackend().prepare(broken)
    data = data_of()
    data["alpha"][4] = CANARY
    with pytest.raises(InputError, match="Stan names line 6 of it") as caught:
        PyStanBackend().run(means(), data, **SETTINGS)
    assert not any("7319" in text for text in [str(caught.value), *capfd.readouterr()])


@pytest.fixture(scope="session")
def cmdstan_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the tests with the real CmdStan: each compilation takes most of a minute."""
    return tmp_path_factory.mktemp("compiled")


@pytest.mark.cmdstan
def test_cmdstan_compiles_once_and_draws_the_posterior(
    cmdstan_cache: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cmdstanpy

    backend, data = CmdStanBackend(cache=cmdstan_cache), data_of()
    run = backend.run(means(), data, **SETTINGS)
    assert_is_the_posterior(run, data)
    program = compiled_program(means(), cmdstan_cache)

    def no_compiler(*given: Any, **named: Any) -> None:
        raise AssertionError("the second run compiled again")

    monkeypatch.setattr(cmdstanpy, "compile_stan_file", no_compiler)
    again = CmdStanBackend(cache=cmdstan_cache).run(means(), data, **SETTINGS)
    np.testing.assert_array_equal(again.draws["mu"], run.draws["mu"])
    # The executable alone, as on a machine without CmdStan.
    monkeypatch.setenv("CMDSTAN", str(cmdstan_cache / "nowhere"))
    alone = CmdStanBackend(program).run(means(), data, **SETTINGS)
    np.testing.assert_array_equal(alone.draws["mu"], run.draws["mu"])


@pytest.mark.cmdstan
def test_cmdstan_tells_where_a_program_is_broken(cmdstan_cache: Path, temporary: Path) -> None:
    code = means().code.replace("vector[2] mu;", "vector[2] mu")
    with pytest.raises(InputError, match=r"(?s)does not compile.*Syntax error in 'broken\.stan'"):
        compiled_program(StanSource("broken", code), cmdstan_cache)


@pytest.mark.cmdstan
def test_cmdstan_fails_on_data_without_a_value(
    cmdstan_cache: Path, temporary: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = data_of()
    data["alpha"][4] = CANARY
    with pytest.raises(InputError, match="'means' failed on these data") as caught:
        CmdStanBackend(cache=cmdstan_cache).run(means(), data, **SETTINGS)
    assert not any("7319" in text for text in [str(caught.value), *capfd.readouterr()])


@pytest.mark.cmdstan
def test_cmdstan_chain_that_is_killed(
    cmdstan_cache: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_commands = backends.run_commands

    def killed(commands: Any, folder: Path, **arguments: Any) -> Any:
        kill = ["/bin/sh", "-c", "kill -9 $$"]
        return run_commands([*commands[:2], kill, *commands[2:]], folder, **arguments)

    monkeypatch.setattr(backends, "run_commands", killed)
    with pytest.raises(RefusedError, match=r"was killed \(signal 9"):
        CmdStanBackend(cache=cmdstan_cache).run(
            means(), data_of(), **{**SETTINGS, "plan": replace(PLAN, draws=1_000)}
        )


def test_only_this_user_can_enter_the_private_folder() -> None:
    with private_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.stat().st_uid == os.getuid()
    assert not folder.exists()
