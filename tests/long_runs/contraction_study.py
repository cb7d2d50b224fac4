"""SD of Delta over databases against n, in some minutes:
``python -m tests.long_runs.contraction_study``.

100 databases a source and n ([R] App. D), or ``--databases``. Summaries go to
``golden/contraction.csv``, beside what they were made with, as each source ends; ``--figure FILE``
draws them, ``--source NAME`` runs one source alone.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from pathlib import Path  # noqa: E402

import pandas as pd  # noqa: E402

from surveysynth.release.figure_style import draw, png_bytes  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from tests.long_runs.contraction import (  # noqa: E402
    SOURCES,
    Source,
    contraction,
    contraction_figure,
    summarise_contraction,
)

GOLDEN = Path(__file__).parents[1] / "golden"
SUMMARY, DELTAS, FACTS = (
    GOLDEN / name for name in ("contraction.csv", "contraction_deltas.csv", "contraction.json")
)
SEED = 20260201


def keep(source: Source, made: pd.DataFrame) -> None:
    """Deltas, summary and circumstances of one source, in the place of what was there of it."""
    deltas = pd.read_csv(DELTAS) if DELTAS.exists() else made.iloc[:0]
    deltas = pd.concat([deltas[deltas["source"] != source.name], made.round(5)])
    order = {each.name: place for place, each in enumerate(SOURCES)}
    deltas = deltas.sort_values("source", key=lambda names: names.map(order), kind="stable")
    summary = summarise_contraction(deltas).round(5)
    summary = summary.sort_values("source", key=lambda names: names.map(order), kind="stable")
    facts = json.loads(FACTS.read_text()) if FACTS.exists() else {}
    facts[source.name] = {
        "model": source.model,
        "cap": source.cap,
        "seed": SEED,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": library_versions(),
    }
    deltas.to_csv(DELTAS, index=False, lineterminator="\n")
    summary.to_csv(SUMMARY, index=False, lineterminator="\n")
    FACTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run the sources that are asked for, keep each as it ends, and draw all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", action="append", choices=[each.name for each in SOURCES])
    parser.add_argument("--databases", type=int, default=100)
    parser.add_argument("--figure", type=Path, help="file for a figure (PNG)")
    arguments = parser.parse_args()
    for source in SOURCES:
        if arguments.source is None or source.name in arguments.source:
            made = contraction(source, databases=arguments.databases, seed=SEED, progress=print)
            keep(source, made)
    print(pd.read_csv(SUMMARY).to_string(index=False))
    if arguments.figure is not None:
        figure = draw(contraction_figure, pd.read_csv(DELTAS))
        arguments.figure.write_bytes(png_bytes(figure))


if __name__ == "__main__":
    main()
