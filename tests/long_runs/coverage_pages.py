"""Pages on m, epsilon and n, from committed results: ``python -m tests.long_runs.coverage_pages``.

Writes ``vignettes/coverage/draws_and_epsilon.md`` and ``contraction.md`` from the goldens of
``python -m tests.long_runs.coverage_table DIR --grid`` and of
``python -m tests.long_runs.contraction_study``.
"""

from pathlib import Path

import pandas as pd

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDER = Path(__file__).parents[2] / "vignettes" / "coverage"
LABELS = {
    "sample": "confidential sample",
    "laplace": "Laplace",
    "fbs_paper": "FBS",
    "fbp_paper": "FBP",
}


def grid() -> pd.DataFrame:
    """Summary of the study over m and bounds, with the bound of a draw."""
    frame = pd.read_csv(GOLDEN / "coverage_grid_summary.csv")
    return frame.assign(bound=(frame["epsilon"] / (2 * frame["m"])).round(6))


def draws_and_epsilon() -> str:
    """The page on numbers of draws and bounds."""
    frame = grid()
    lines = [
        "| method | bound | m | epsilon | counts: coverage | RMSE ratio | length ratio "
        "| means: coverage | RMSE ratio | length ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, part in frame.groupby(["method", "bound", "m"], sort=False, dropna=False):
        method, bound, m = key
        by_statistic = part.set_index("statistic")
        cells = ["", "", ""]
        if method != "sample":
            cells = [f"{bound:.1f}", f"{m}", f"{part['epsilon'].iloc[0]:.4g}"]
        for statistic in ("count", "mean"):
            row = by_statistic.loc[statistic]
            cells += [f"{row['coverage']:.3f} ({row['coverage_mcse']:.3f})",
                      f"{row['rmse_ratio']:.2f}", f"{row['length_ratio']:.2f}"]  # fmt: skip
        lines.append(f"| {LABELS[method]} | " + " | ".join(cells) + " |")
    release = pd.read_csv(GOLDEN / "coverage_default_summary.csv")
    release = release.set_index(["method", "statistic"])
    errors = {f"{model}_{statistic}": release.loc[(model, statistic), "rmse_ratio"]
              for model in ("fbs", "fbp") for statistic in ("count", "mean")}  # fmt: skip
    return _GRID.format(**errors) + "\n".join(lines) + "\n"


_GRID = """\
# What more draws and a larger bound buy

The study has 100 samples of the published design, by FBS, FBP, and Laplace noise, at bounds of
1.8 and 3.4 a draw and m = 1, 3, 5, and 10 draws, as in Figures 6, 7, 11, and 12 of the paper. It
has the paper's inference, one dataset a draw, and our risk weights, smoothing, and linearization.
Draws are nested: the draw of m = 1 is the first of the three of m = 3. A release of m draws at
bound b has epsilon 2 m b. Errors are those of the median cell over the confidential sample's;
Monte Carlo standard errors are in brackets. `python -m tests.long_runs.coverage_table DIR --grid`
runs the study, and `python -m tests.long_runs.coverage_pages` makes this page.

- **More draws** remove synthesis error from the estimates, most of it by m = 3.
- **With m = 1** the variance between draws cannot be estimated, and intervals are too short.
- **FBP counts** have intervals that are too short at every m. Their Taylor variance omits
  variation that the sample had. With few draws the variance between draws makes up for it, so
  coverage falls again as m grows.
- **A larger bound** down-weights less, and FBS means gain from it.
- **Noise** falls with epsilon. Its counts come near at the largest epsilons, but its means and all
  of its intervals do not.

A release has different inference: variances come from data as the sample would have been, and
there are several datasets of each draw, which cost nothing. At m = 3 and bound 1.8 the errors
of FBS are then {fbs_count:.2f} (counts) and {fbs_mean:.2f} (means), those of FBP {fbp_count:.2f}
and {fbp_mean:.2f}, and [their intervals](README.md) have the right coverage.

"""


def contraction() -> str:
    """The page on Delta against n."""
    frame = pd.read_csv(GOLDEN / "contraction.csv")
    sizes = sorted(set(frame["n"]))
    head = "".join(f" n = {n:,} |" for n in sizes)
    lines = [f"| databases of | alpha | |{head}", "|---|---|---|" + "---|" * len(sizes)]
    for source, of_source in frame.groupby("source", sort=False):
        for scheme in ("unweighted", "linear", "capped"):
            part = of_source[of_source["scheme"] == scheme].set_index("n").loc[sizes]
            means = " | ".join(f"{value:.3f}" for value in part["mean"])
            spreads = " | ".join(
                f"{row.sd:.4f} ({row.sd_mcse:.4f})" for row in part.itertuples()
            )
            told = f"{source}, {part['databases'].iloc[0]} each" if scheme == "unweighted" else ""
            lines.append(f"| {told} | {scheme} | mean | {means} |")
            lines.append(f"| | | SD | {spreads} |")
    return _CONTRACTION + "\n".join(lines) + "\n" + _CAPTION


_CONTRACTION = """\
# From one database to all: Delta against n

The bound of a release is found on one database, and the guarantee is asymptotic: bounds of
databases of n records contract onto one value. [Hu and co-authors (2025)](../../CITATION.cff)
show the distribution of Delta, the largest alpha times absolute log-likelihood of a record, over
100 databases of n = 1,000. Here n grows from 500 to 20,000, with many simulated databases each:
the two models of counts of their appendix D, and samples of the published survey design with FBS
and FBP. The rules for alpha are fixed beforehand and do not search for a target:

- **unweighted**: alpha = 1.
- **linear**: the paper's weights, scale 1 and shift 0.
- **capped**: alpha = min(1, c / f) with f the record's largest absolute log-likelihood in the
  unweighted fit, and c = 3.5 (Poisson), 6 (negative binomial), 1.8 (survey). This is the first step
  of our default, which repeats it until Delta is c on every database.

Mean and standard deviation (SD) of Delta, with the Monte Carlo error of the SD in brackets:

"""

_CAPTION = """
![Delta of every database by n and rule, and its SD against n](../images/contraction.png)

- **Without weights** Delta is the log-likelihood of the most extreme record. Its spread is that of
  a largest value, which falls slowly with n if it falls at all, while its mean rises with log n:
  nothing contracts. (The survey samples come from one finite population, whose most extreme units
  are in nearly every sample of 20,000; the spread falls there for that reason.)
- **Linear weights** are scaled by that same largest value, and keep a part of its spread and of its
  rise. With counts their SD falls slowly or rises, which the paper's single n cannot show.
- **Weights capped at a constant** leave the posterior as the only source of spread, and the SD of
  Delta falls with n everywhere, about as 1/√n. This is one more reason for fixed-point weights,
  with which the bound found on the database at hand is the target itself.

`python -m tests.long_runs.contraction_study` runs the study, and
`python -m tests.long_runs.coverage_pages` makes this page.
"""

PAGES = {"draws_and_epsilon.md": draws_and_epsilon, "contraction.md": contraction}


if __name__ == "__main__":
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), encoding="utf-8")
        print(f"Wrote {FOLDER / name}.")
