"""The page for users of R: its block as it stands, run by R.

Truth: svymean and svytotal of R's survey package for the same design, without privacy.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.test_vignettes import blocks_of

PAGE = Path(__file__).parents[1] / "vignettes" / "software.md"
NEEDED = ("survey", "reticulate", "tibble")
CHECKS = """
stopifnot(inherits(tables, "tbl_df"))
write.csv(tables, "private.csv", row.names = FALSE)
means <- as.data.frame(svyby(~api00, ~stype, design, svymean))
write.csv(cbind(means, count = coef(svytotal(~stype, design))), "own.csv", row.names = FALSE)
writeLines(private$statement, "statement.txt")
"""


def r(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    root = str(PAGE.parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "RETICULATE_PYTHON": sys.executable, "PYTHONPATH": path}
    return subprocess.run(
        ["Rscript", "-e", program], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("Rscript") is None:
        pytest.skip("Rscript is not installed")
    missing = f"cat(setdiff(c{NEEDED}, rownames(installed.packages())))"
    found = r(missing, tmp_path)
    if found.returncode or found.stdout.strip():
        pytest.skip(f"R packages are not installed: {found.stdout.strip()}")
    return tmp_path


def test_a_design_of_r_becomes_a_tibble_of_private_tables(folder: Path) -> None:
    (block,) = (each for each in blocks_of(PAGE) if each.language == "r")
    lines = [line for line in block.text.splitlines() if line.strip()]
    assert len(lines) <= 10
    done = r(block.text + CHECKS, folder)
    assert done.returncode == 0, done.stderr
    private = pd.read_csv(folder / "private.csv").set_index(["statistic", "stype"])
    own = pd.read_csv(folder / "own.csv").set_index("stype")
    assert private.loc[("count", "All"), "estimate"] == pytest.approx(6194)
    # Nearer to R's estimates than a few of their own standard errors: the noise adds to them.
    for level in ("E", "H", "M"):
        gap = private.loc[("mean", level), "estimate"] - own.loc[level, "api00"]
        se = np.hypot(private.loc[("mean", level), "se"], own.loc[level, "se"])
        assert abs(gap) < 5 * se
        assert private.loc[("mean", level), "n"] > 10
        # R's weights are not scaled to the population, whose size the private tables know.
        share = private.loc[("count", level), "estimate"] / 6194
        assert share == pytest.approx(own.loc[level, "count"] / own["count"].sum(), abs=0.15)
    assert "zero-concentrated differential privacy" in (folder / "statement.txt").read_text()
