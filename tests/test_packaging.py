"""The wheel and the source archive: what is in them, what is not, and that the wheel works."""

import email
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("packaging")  # what its tests share is made once

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]


def _build(what: str, source: Path, folder: Path) -> Path:
    """Run the build backend's own hook, in the folder that it builds."""
    program = f"import sys; from hatchling.build import build_{what} as build; build(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", program, str(folder)], cwd=source, check=True, capture_output=True
    )
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of this checkout, unpacked."""
    archive = _build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as tar:
        # Debian 12 has Python 3.11.2, without filters.
        tar.extraction_filter = tarfile.data_filter if hasattr(tarfile, "data_filter") else None
        tar.extractall(folder)
    (source,) = folder.iterdir()
    return source


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the source archive, as an index or a distributor builds it."""
    return _build("wheel", sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """Names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _files(folder: str, pattern: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob(pattern)
        if "__pycache__" not in path.parts
    }


def test_every_module_and_data_file_is_in_the_wheel(names: set[str]) -> None:
    literature = {f"surveysynth/{name}" for name in _files("tables/literature", "*.csv")}
    programs = {f"surveysynth/{name}" for name in _files("stan", "*.stan")}
    assert len(literature) >= 5
    assert _files("surveysynth", "*.py") | literature | programs <= names
    assert {"surveysynth/py.typed", "surveysynth/stan/README.md"} <= names


def test_nothing_else_is_in_the_wheel(names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"surveysynth", f"surveysynth-{VERSION}.dist-info"}
    inside = {Path(name) for name in names if name.startswith("surveysynth/")}
    suffixes = {".py", ".pyi", ".typed", ".css", ".csv", ".j2", ".md", ".stan", ".tex", ".toml"}
    assert {path.suffix for path in inside} <= suffixes
    unwanted = {"tests", "vignettes", "__pycache__", "benchmarks", "confidential"}
    assert not [path for path in inside if unwanted & set(path.parts)]
    data = [path for path in inside if path.parts[1] in ("stan", "tables")]
    assert not [path for path in data if path.suffix == ".py"]


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(path))
        scripts = archive.read(path.replace("METADATA", "entry_points.txt")).decode()
        assert path.replace("METADATA", "licenses/LICENSE") in archive.namelist()
    assert metadata["Name"] == "surveysynth"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "surveysynth = surveysynth.cli:main" in scripts
    needed = [each for each in metadata.get_all("Requires-Dist") if "extra ==" not in each]
    assert len(needed) == len(PROJECT["dependencies"])
    assert "asymptotic" in str(metadata.get_payload())


def test_the_source_archive_has_what_a_packager_needs(sdist: Path) -> None:
    for name in ("LICENSE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "tests/conftest.py"):
        assert (sdist / name).is_file(), name


def test_the_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    program = (
        "import surveysynth, sys; from surveysynth.cli import main; print(surveysynth.__file__);"
        "sys.exit(main(['example', 'ex', '--n', '100']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site))
    assert (work / "ex" / "survey.csv").is_file()


def test_versions_agree() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
