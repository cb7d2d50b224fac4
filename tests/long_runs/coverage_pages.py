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
databases of n records contract to one value. Hu, Savitsky, and Williams (2025, appendix D) show
Delta, the largest weighted absolute log-likelihood of a record, for n = 1,000. Here n grows, for
their two count models and for samples of the [published
design](../methods.md#71-population-and-sample). None of these rules for alpha searches for a
target:

- **unweighted**: alpha = 1.
- **linear**: the paper's weights, scale 1 and shift 0.
- **capped**: alpha = min(1, c / f) with f the record's largest absolute log-likelihood in the
  unweighted fit, and c = 3.5 (Poisson), 6 (negative binomial), 1.8 (survey): the first step of our
  default, which repeats it until Delta is c on every database.

Mean and standard deviation (SD) of Delta, with the Monte Carlo error of the SD in parentheses:

"""

_CAPTION = """
![Delta of every database by n and rule, and its SD against n](../../images/contraction.png)

- **Without weights** the mean rises with log n, and the spread falls slowly if at all: nothing
  contracts. (The survey's spread falls because nearly every sample of 20,000 contains the
  population's most extreme units.)
- **With linear weights** Delta keeps part of this spread and tends to rise.
- **With capped weights** the SD of Delta falls with n everywhere, roughly as 1/√n.

`python -m tests.long_runs.contraction_study` runs the study;
`python -m tests.long_runs.coverage_pages` makes this page.
"""

PAGES = {"contraction.md": contraction}


if __name__ == "__main__":
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), encoding="utf-8")
        print(f"Wrote {FOLDER / name}.")
