"""SD of Delta over databases against n: ``python -m tests.contraction_study`` (some minutes).

100 databases a source and n ([R] App. D). Summaries go to ``golden/contraction.csv``, beside what
they were made with; ``--figure FILE`` draws them, ``--source NAME`` runs one source alone.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from pathlib import Path  # noqa: E402

import pandas as pd  # noqa: E402

from surveysynth.plots import study as plots  # noqa: E402
from surveysynth.plots.style import draw, png_bytes  # noqa: E402
from surveysynth.release.privacy_file import library_versions  # noqa: E402
from surveysynth.studies.contraction import (  # noqa: E402
    SOURCES,
    contraction,
    summarise_contraction,
)

GOLDEN = Path(__file__).parent / "golden"
SUMMARY, DELTAS, FACTS = (
    GOLDEN / name for name in ("contraction.csv", "contraction_deltas.csv", "contraction.json")
)
SEED = 20260201


def main() -> None:
    """Run the sources that are asked for and keep their results beside the others'."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", action="append", choices=[each.name for each in SOURCES])
    parser.add_argument("--databases", type=int, default=100)
    parser.add_argument("--figure", type=Path, help="file for a figure (PNG)")
    arguments = parser.parse_args()
    wanted = arguments.source if arguments.source is not None else [s.name for s in SOURCES]
    deltas = pd.read_csv(DELTAS) if DELTAS.exists() else pd.DataFrame(columns=["source"])
    facts = json.loads(FACTS.read_text()) if FACTS.exists() else {}
    for source in SOURCES:
        if source.name in wanted:
            begun = time.process_time()
            made = contraction(source, databases=arguments.databases, seed=SEED, progress=print)
            deltas = pd.concat([deltas[deltas["source"] != source.name], made.round(5)])
            facts[source.name] = {
                "model": source.model,
                "cap": source.cap,
                "seed": SEED,
                "processor_seconds": round(time.process_time() - begun, 1),
                "date": datetime.now(UTC).date().isoformat(),
                "versions": library_versions(),
            }
    order = [source.name for source in SOURCES]
    deltas = deltas.sort_values("source", key=lambda names: names.map(order.index), kind="stable")
    deltas.to_csv(DELTAS, index=False, lineterminator="\n")
    summary = summarise_contraction(deltas).round(5)
    summary = summary.sort_values("source", key=lambda names: names.map(order.index), kind="stable")
    summary.to_csv(SUMMARY, index=False, lineterminator="\n")
    FACTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(summary.to_string(index=False))
    if arguments.figure is not None:
        arguments.figure.write_bytes(png_bytes(draw(plots.contraction, deltas)))


if __name__ == "__main__":
    main()
