"""The data folder is found in a checkout and in a wheel, and the checkout wins."""

from pathlib import Path

import pytest

from surveysynth._support.resources import literature_table, tables_directory


def _with_literature(folder: Path) -> Path:
    (folder / "literature").mkdir(parents=True)
    return folder


def test_checkout_beside_the_package_wins_over_the_copy_inside(tmp_path: Path) -> None:
    package = tmp_path / "surveysynth"
    _with_literature(package / "tables")
    beside = _with_literature(tmp_path / "tables")
    (tmp_path / "pyproject.toml").touch()
    assert tables_directory(package) == beside


def test_installed_wheel_ignores_a_foreign_folder_beside_it(tmp_path: Path) -> None:
    package = tmp_path / "surveysynth"
    inside = _with_literature(package / "tables")
    _with_literature(tmp_path / "tables")
    assert tables_directory(package) == inside


def test_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="tables/literature"):
        tables_directory(tmp_path / "surveysynth")


def test_published_tables_are_there() -> None:
    assert literature_table("simulation_counts_table4.csv").is_file()
    assert literature_table("simulation_mean_salary_table5.csv").is_file()
