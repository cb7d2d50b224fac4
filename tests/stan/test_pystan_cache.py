"""Programs that PyStan has compiled. Truth: counted compilations by a stand-in, which writes what
it was given into PyStan's own cache."""

import importlib
import subprocess
from pathlib import Path

import pytest

from surveysynth.sampling.stan.pystan import TRANSLATIONS, compile_program

pytestmark = pytest.mark.pystan

CODE = "parameters { real mu; }"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Programs compiled, in order, of which those with "broken" do not load."""
    import httpstan.cache
    import httpstan.compile
    import httpstan.models

    texts: list[str] = []

    async def build(code: str, flags: list[str]) -> str:
        texts.append(code)
        directory = httpstan.cache.model_directory(httpstan.models.calculate_model_name(code))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "program.so").write_text(code)
        return ""

    def load(name: str) -> None:
        programs = list(httpstan.cache.model_directory(name).glob("*.so"))
        if not programs:
            raise KeyError(name)
        if "broken" in programs[0].read_text():
            raise ImportError("a library is missing")

    monkeypatch.setattr(httpstan.compile, "compile", lambda code, name: ("", ""))
    monkeypatch.setattr(httpstan.models, "build_services_extension_module", build)
    monkeypatch.setattr(httpstan.models, "import_services_extension_module", load)
    monkeypatch.setattr(httpstan.cache, "cache_directory", lambda: tmp_path / "httpstan")
    return texts


def test_a_program_is_compiled_once_and_recognized(built: list[str]) -> None:
    cache, models = (importlib.import_module(f"httpstan.{each}") for each in ("cache", "models"))
    for code in (CODE, CODE, CODE + " ", CODE):
        compile_program(code)
        name = models.calculate_model_name(code)
        assert cache.load_services_extension_module_compiler_output(name) is not None
        assert cache.load_stanc_warnings(name) is not None
    assert built == [CODE, CODE + " "]


def test_what_does_not_load_is_compiled_again(built: list[str]) -> None:
    compile_program(f"{CODE} // broken")
    compile_program(f"{CODE} // broken")
    assert len(built) == 2


def test_a_busy_machine_is_asked_again(
    built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, tries = importlib.import_module("httpstan.compile"), []

    def slow(code: str, name: str) -> tuple[str, str]:
        tries.append(code)
        if len(tries) % 3:
            raise subprocess.TimeoutExpired("stanc", 1)
        return "", ""

    monkeypatch.setattr(compiler, "compile", slow)
    compile_program(CODE)
    assert (len(tries), built) == (3, [CODE])
    tries.clear()

    def never(code: str, name: str) -> None:
        tries.append(code)
        raise subprocess.TimeoutExpired("stanc", 1)

    monkeypatch.setattr(compiler, "compile", never)
    with pytest.raises(subprocess.TimeoutExpired):
        compile_program(CODE + " ")
    assert len(tries) == TRANSLATIONS
