"""Programs that PyStan has compiled. Truth: counted compilations by a stand-in, which writes what
it was given; files damaged on purpose; one marked test asks the real program."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from surveysynth.sampling.stan import pystan
from surveysynth.sampling.stan.backends import PyStanBackend
from surveysynth.sampling.stan.pystan import HASH, PROGRAM, compile_program, is_sound
from surveysynth.sampling.stan.source import StanSource
from tests.stan.fake_cmdstan import MEANS

pytestmark = pytest.mark.pystan

CODE = "parameters { real mu; }"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Programs compiled, in order: files of the program's text, of which those with "broken" do
    not load."""
    import httpstan.cache
    import httpstan.models

    texts: list[str] = []

    def build(code: str, name: str) -> None:
        texts.append(code)
        directory = httpstan.cache.model_directory(name)
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("*.so"):
            old.unlink()
        (directory / "stan_services_model_x.cpython-311-x.so").write_text(code)

    def load(name: str) -> None:
        if "broken" in loaded(name):
            raise ImportError("a library is missing")

    monkeypatch.setattr(pystan, "_build", build)
    monkeypatch.setattr(httpstan.models, "import_services_extension_module", load)
    monkeypatch.setattr(httpstan.cache, "cache_directory", lambda: tmp_path / "httpstan")
    return texts


def loaded(name: str) -> str:
    """What PyStan would load."""
    import httpstan.cache

    (program,) = httpstan.cache.model_directory(name).glob("*.so")
    return program.read_text()


def name_of(code: str) -> str:
    import httpstan.models

    return httpstan.models.calculate_model_name(code)


def the_kept(folder: Path) -> Path:
    (entry,) = (path for path in folder.iterdir() if path.is_dir())
    return entry


def test_once_for_every_environment(
    built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    for executable in (sys.executable, "/other/venv/bin/python", sys.executable):
        monkeypatch.setattr(sys, "executable", executable)
        compile_program(CODE, kept)
        assert loaded(name_of(CODE)) == CODE
        # PyStan reads these of a program that it finds, whoever compiled it.
        cache = importlib.import_module("httpstan.cache")
        assert cache.load_services_extension_module_compiler_output(name_of(CODE)) is not None
        assert cache.load_stanc_warnings(name_of(CODE)) is not None
    assert built == [CODE]
    assert is_sound(the_kept(kept))


def test_all_that_changes_the_program_is_in_the_key(
    built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpstan

    kept = tmp_path / "kept"
    compile_program(CODE, kept)
    changes = (
        lambda patch: patch.setattr(httpstan, "__version__", "0.0"),
        lambda patch: patch.setattr(sys, "version", "3.99"),
        lambda patch: patch.setattr(pystan, "COMPILER_FLAGS", ("-O0",)),
        lambda patch: patch.setattr(pystan, "_version_of", lambda compiler: "g++ 99"),
        lambda patch: patch.setenv("CXXFLAGS", "-march=native"),
    )
    for change in changes:
        with monkeypatch.context() as patch:
            change(patch)
            compile_program(CODE, kept)
    compile_program(CODE + " ", kept)
    assert built == [CODE] * 6 + [CODE + " "]
    compile_program(CODE, kept)
    assert len(built) == 7


def shortened(entry: Path) -> None:
    (entry / PROGRAM).write_text(CODE[:-1])


def one_letter(entry: Path) -> None:
    (entry / PROGRAM).write_text(CODE.replace("mu", "nu"))


def without_program(entry: Path) -> None:
    (entry / PROGRAM).unlink()


def without_hash(entry: Path) -> None:
    (entry / HASH).unlink()


def odd_hash(entry: Path) -> None:
    (entry / HASH).write_bytes(b"\xff" * 64)


@pytest.mark.parametrize(
    "damage", [shortened, one_letter, without_program, without_hash, odd_hash]
)
def test_what_is_damaged_is_compiled_again(built: list[str], tmp_path: Path, damage) -> None:
    compile_program(CODE, tmp_path / "kept")
    damage(the_kept(tmp_path / "kept"))
    assert not is_sound(the_kept(tmp_path / "kept"))
    compile_program(CODE, tmp_path / "kept")
    assert built == [CODE, CODE]
    assert is_sound(the_kept(tmp_path / "kept"))
    assert loaded(name_of(CODE)) == CODE


def test_what_does_not_load_is_compiled_again(built: list[str], tmp_path: Path) -> None:
    code = f"{CODE} // broken"
    compile_program(code, tmp_path / "kept")
    compile_program(code, tmp_path / "kept")
    assert built == [code, code]


def test_an_interrupted_compilation_leaves_nothing(
    built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(code: str, name: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pystan, "_build", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compile_program(CODE, tmp_path / "kept")
    assert [path.suffix for path in (tmp_path / "kept").iterdir()] == [".lock"]
    compile_program(CODE, tmp_path / "kept")
    assert built == [CODE]


#: In a process of its own: one that loads a program under two names ends badly.
ELSEWHERE = """
import sys, httpstan.cache, httpstan.models
from surveysynth.sampling.stan import pystan
sys.executable = "/another/environment/bin/python"
pystan._build = None
code = sys.stdin.read()
name = httpstan.models.calculate_model_name(code)
try:
    pystan.compile_program(code)
    program = httpstan.models.import_services_extension_module(name)
    data = {"n": 1, "y": [0.0], "log_w": [0.0], "alpha": [1.0], "prior_sd": 1.0}
    print(*program.get_param_names(data))
finally:
    httpstan.cache.delete_model_directory(name)
"""


@pytest.mark.xdist_group("stan means")
def test_another_environment_loads_the_same_program() -> None:
    code = StanSource.read(MEANS).code
    PyStanBackend().prepare(StanSource.read(MEANS))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ELSEWHERE],
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "mu"
