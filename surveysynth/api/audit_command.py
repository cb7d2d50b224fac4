"""``surveysynth audit``: what the command takes and prints.

Imported at the start of every command: what is heavy is imported inside.
"""

from pathlib import Path
from typing import Annotated

import typer

from surveysynth.errors import RefusedError


def audit_command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")],
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="[SPEC]", help="A specification, of which public inputs are read. "
                       "Without it, the package's examples of every model and mechanism."),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="One of the examples; may be given several times."),
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", help="Records of the examples; 1,000.", min=100)
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every replacement, and fresh random numbers too.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Makes other simulated surveys.", min=0)] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace DIR if an audit wrote it.")
    ] = False,
) -> None:
    """Replace a record of a simulated survey: does a release tell more than is stated?

    Nothing confidential is read. Exit code 3: some replacement moved more than is stated, in a
    setting that the mechanism does not refuse; the folder says which.
    """
    from surveysynth._support.progress import report_count
    from surveysynth.api.audit import audit as run
    from surveysynth.evaluation.audit.folder import REPORT_NAME
    from surveysynth.evaluation.audit.report import sentence

    found = run(
        spec, out=out, cases=case or (), n=n, full=full, seed=seed, overwrite=overwrite,
        progress=report_count, tell=lambda line: print(sentence(line), flush=True),
    )  # fmt: skip
    print(f"Report: {found.out / REPORT_NAME}")
    if found.passed:
        raise RefusedError(
            f"{found.passed:,} of {len(found.table):,} replacements moved more than is stated, as "
            "told above. Use mechanism = 'noisy_statistics', a higher epsilon, or fewer columns of "
            "X and larger strata."
        )
