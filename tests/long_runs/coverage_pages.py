"""The page on Delta against n: ``python -m tests.long_runs.coverage_pages``.

Writes ``vignettes/technical/coverage/contraction.md`` from the golden of
``python -m tests.long_runs.contraction_study``.
"""

from pathlib import Path

import pandas as pd

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDER = Path(__file__).parents[2] / "vignettes" / "technical" / "coverage"


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
databases of n records contract onto one value. [Hu and co-authors (2025)](../../../CITATION.cff)
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
![Delta of every database by n and rule, and its SD against n](../../images/contraction.png)

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

PAGES = {"contraction.md": contraction}


if __name__ == "__main__":
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), encoding="utf-8")
        print(f"Wrote {FOLDER / name}.")
