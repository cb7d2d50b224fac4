"""Replace a record of a simulated survey: does a release reveal more than it states?

    python -m tests.audit --out DIR [--spec FILE] [--case NAME] [--n N] [--full] [--seed SEED]

writes ``audit.csv``, a line a replacement, and the page ``audit.md``. Of a specification only
public inputs are read: its public columns and its declarations; outcomes and weights are simulated.
Without it, the examples of every model and mechanism are tested. Exit code 3: a replacement moved
the result by more than is stated, in a setting that the mechanism accepts, or a planted violation
was not found.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from surveysynth.errors import SurveySynthError
from tests.audit.lines import Line, frame_of, worst
from tests.audit.report import page_of, sentence
from tests.audit.runs import DEFAULT_N, audited, examples, of_specification

HOLDS, BAD_INPUT, PASSED = 0, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the audit and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--spec", type=Path, help="a specification; without it, the examples")
    parser.add_argument("--case", action="append", default=[], help="an example; may be repeated")
    parser.add_argument("--n", type=int, default=DEFAULT_N, help="records of the examples")
    parser.add_argument("--full", action="store_true", help="every replacement, and fresh numbers")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    lines: list[Line] = []
    try:
        cases = (
            examples(given.n, given.seed, given.case) if given.spec is None
            else of_specification(given.spec, given.seed)
        )
        for made in audited(cases, given.seed, given.n, full=given.full):
            print(*map(sentence, worst(made)), sep="\n", flush=True)
            lines += made
    except SurveySynthError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    given.out.mkdir(parents=True, exist_ok=True)
    frame_of(lines).to_csv(given.out / "audit.csv", index=False, lineterminator="\n")
    source = "the examples" if given.spec is None else given.spec.name
    page = given.out / "audit.md"
    page.write_text(page_of(lines, source, given.seed), encoding="utf-8")
    print(f"Report: {page}")
    found = [sum(line.verdict == each for line in lines) for each in ("missed", "passed")]
    if any(found):
        print(
            f"{found[0]:,} planted violations were not found; {found[1]:,} of {len(lines):,} "
            "replacements moved more than is stated.", file=sys.stderr,
        )  # fmt: skip
        return PASSED
    return HOLDS


if __name__ == "__main__":
    sys.exit(main())
