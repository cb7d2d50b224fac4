"""The command line: thin, quick to start, and silent about confidential values.

Modules that import NumPy or pandas are imported inside the commands, after the number of BLAS
threads is settled.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from surveysynth._support import exits
from surveysynth._support.confidential import sweep
from surveysynth._support.resources import THREAD_VARIABLES, version_of
from surveysynth.api.shell_commands import init_command, read_guesses, study_command
from surveysynth.errors import RefusedError

app = typer.Typer(
    help="Private survey tables from synthetic microdata, with a stated epsilon.",
    add_completion=False,
    # Pretty tracebacks show local variables, and those hold confidential records.
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

SpecArgument = Annotated[Path, typer.Argument(metavar="SPEC", help="The specification file.")]
LedgerOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The file of the survey's ledger. Default: in the user's state folder.",
    ),
]
SeedOption = Annotated[int | None, typer.Option(help="Make the run repeatable.", min=0)]


_EXITS = (
    "Exit codes: 0 done, 1 defect, 2 bad input, 3 refused, 4 failed tasks, 130 interrupted."
)


def _end(example: str) -> str:
    """Return the end of the help of a command; \b keeps its line breaks."""
    return f"\b\nExample: surveysynth {example}\n{_EXITS}"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"surveysynth {version_of('surveysynth')}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Private survey tables from synthetic microdata, with a stated epsilon."""


@app.command(epilog=_end("example ex"))
def example(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    n: Annotated[int, typer.Option("--n", help="Number of records.")] = 1000,
    seed: SeedOption = None,
    study: Annotated[
        bool, typer.Option("--study", help="Also write population.csv, the frame of a study.")
    ] = False,
) -> None:
    """Write an example survey and specification."""
    from surveysynth.api.start import DEFAULT_SEED
    from surveysynth.api.start import example as write

    seed = DEFAULT_SEED if seed is None else seed
    survey, spec = write(directory, n, seed, study=study)
    print(f"Wrote {survey} ({n:,} simulated records) and {spec}, for noisy statistics.")
    print(f"Next: surveysynth release {spec} --out out")
    print(f"The papers' mechanism: {spec.with_name('spec_pseudo_posterior.toml')}.")
    if study:
        print(
            f"And:  surveysynth study {spec} --population {directory / 'population.csv'} "
            f"--size-column size --n {n} --out study"
        )


init = app.command("init", epilog=_end("init survey.csv"))(init_command)


@app.command(epilog=_end("check ex/spec.toml"))
def check(
    spec: SpecArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder for standard errors of every row of a simulated release.",
        ),
    ] = None,
    ledger: LedgerOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace DIR if it holds such errors.")
    ] = False,
    guess: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW,HIGH",
            help="For the simulation: two values of a learned column between which about two "
            "thirds of the population lie. May be repeated.",
        ),
    ] = None,
    simulate: Annotated[
        bool | None,
        typer.Option(
            "--simulate/--quick",
            help="Simulate a release for expected standard errors, or only validate SPEC. "
            "Default: simulate, but for a model that is a Stan program.",
        ),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="Another epsilon to simulate at. May be repeated."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also show design, cells, noise and files.")
    ] = False,
) -> None:
    """Preview a release; spends nothing.

    The first line is the verdict. Expected standard errors: the median row, and the range of the
    middle 80% of rows.
    """
    from surveysynth.api.check import check as previewed

    checked = previewed(
        spec, out=out, ledger=ledger, overwrite=overwrite, guesses=read_guesses(guess or ()),
        simulate=simulate, epsilons=epsilon or (),
    )  # fmt: skip
    print(checked if verbose else checked.summary)
    if checked.confidential:
        print(checked.confidential)
    if not verbose:
        print(f"Details: surveysynth check {shlex.quote(str(spec))} --verbose")
    if not checked.feasible:
        raise RefusedError("a release with these settings would be refused; see the report above.")


@app.command(epilog=_end("release ex/spec.toml --out out"))
def release(
    spec: SpecArgument,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")],
    confidential: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder for diagnostics and a copy of the ledger. Default: OUT/confidential.",
        ),
    ] = None,
    ledger: LedgerOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUT if a release wrote it.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            help="For tests only: repeatable, therefore NOT private; every file says so.", min=0
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before spending.")] = False,
) -> None:
    """Release private tables; spends budget.

    Writes tables, microdata and a privacy statement. On a terminal it asks before it spends.
    """
    from surveysynth._support.progress import StageReporter
    from surveysynth.config.spec import load_spec
    from surveysynth.release.pipeline import release as run
    from surveysynth.release.run_record import cost_words

    if seed is not None:
        print("This is a test run: not private, and not counted.", flush=True)
    else:
        print(f"This release will spend {cost_words(load_spec(spec))}.", flush=True)
        if sys.stdin.isatty() and not yes:
            typer.confirm("Continue?", abort=True)
    with StageReporter() as progress:
        result = run(
            spec, out, confidential=confidential, ledger=ledger, overwrite=overwrite, seed=seed,
            progress=progress,
        )  # fmt: skip
    for warning in result.warnings:
        print(warning)
    option = "" if ledger is None else f" --ledger {shlex.quote(str(ledger))}"
    print("\n".join(result.closing(f"surveysynth ledger {shlex.quote(str(spec))}{option}")))


@app.command(epilog=_end("adequacy out"))
def adequacy(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of a release.")],
    confidential: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Its confidential folder. Default: OUT/confidential."),
    ] = None,
) -> None:
    """CONFIDENTIAL: is a release near its sample?

    Each difference is divided by its expected error, noise included. Epsilon does not cover the
    result, nor a decision that depends on it.
    """
    from surveysynth._support.progress import ADEQUACY_STAGES, StageReporter
    from surveysynth.api.commands import adequacy as compared

    with StageReporter(ADEQUACY_STAGES) as progress:
        found = compared(out, confidential=confidential, progress=progress)
    print("\n".join(found.sentences()))


@app.command(epilog=_end("compare ex/spec.toml --out compared"))
def compare(
    spec: SpecArgument,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")],
    ledger: LedgerOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUT if a comparison wrote it.")
    ] = False,
    seed: SeedOption = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another synthesizer. May be repeated."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B,..", help="Methods to compare with the sample. May be repeated."
        ),
    ] = None,
    sensitivity: Annotated[
        str,
        typer.Option(
            metavar="RULE", help="Sensitivity of means for Laplace noise: paper or honest."
        ),
    ] = "paper",
) -> None:
    """CONFIDENTIAL: compare methods on the sample.

    Writes a CONFIDENTIAL report on sample, noise and synthesis at one epsilon, and no release.
    """
    from surveysynth._support.progress import COMPARISON_STAGES, StageReporter
    from surveysynth.evaluation.compare.folder import REPORT_NAME
    from surveysynth.evaluation.compare.folder import compare as run
    from surveysynth.evaluation.methods import by_reason

    given = (word.strip() for each in methods or () for word in each.split(","))
    with StageReporter(COMPARISON_STAGES) as progress:
        result = run(
            spec, out, ledger=ledger, overwrite=overwrite, seed=seed, models=model or (),
            methods=tuple(dict.fromkeys(word for word in given if word)), sensitivity=sensitivity,
            progress=progress,
        )  # fmt: skip
    for why, names in by_reason(result.comparison.left_out).items():
        print(f"Left out: {', '.join(names)}: {why}")
    print(f"CONFIDENTIAL: {result.out / REPORT_NAME} shows confidential estimates.")
    print("Nothing was released. Do not publish any file of this folder.")
    print("\n".join(result.ledger.sentences()))


@app.command("ledger", epilog=_end("ledger ex/spec.toml"))
def ledger_of(spec: SpecArgument, ledger: LedgerOption = None) -> None:
    """CONFIDENTIAL: budget spent on a survey."""
    from surveysynth.config.spec import load_spec
    from surveysynth.release.run_record import entry_of, hints_of
    from surveysynth.release.run_record import ledger_of as find

    specification = load_spec(spec)
    kept = find(specification, ledger)
    hints = hints_of(kept, entry_of(specification, test=True), named=ledger is not None)
    print("\n".join([*kept.summary().sentences(), *hints]))
    print(f"Ledger: {kept.path}. Add the runs that other ledgers record.")


@app.command(epilog=_end("rebuild out/release --out again"))
def rebuild(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="A folder published by noisy statistics.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace DIR if rebuilt tables are in it.")
    ] = False,
    all_datasets: Annotated[
        bool, typer.Option("--all-datasets", help="Write all synthetic datasets too.")
    ] = False,
) -> None:
    """Rebuild tables from published files.

    Works for releases by noisy statistics only.
    """
    from surveysynth._support.progress import REBUILD_STAGES, StageReporter
    from surveysynth.release.pipeline import rebuild as run

    with StageReporter(REBUILD_STAGES) as progress:
        made = run(
            release, out, overwrite=overwrite, all_datasets=all_datasets, progress=progress
        )
    print(f"Rebuilt: {made.out}")
    print(f"Equal to the published files, byte by byte: {len(made.same)}.")
    if made.different:
        print(f"Not equal: {', '.join(made.different)}.")
        print("Other versions of libraries round otherwise: privacy.json has those of the release.")


study = app.command("study", epilog=_end("study --out study"))(study_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code, see ``exits``."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")

    def command() -> object:
        for message in sweep():
            exits.say(message)
        return app(args=given or ["--help"], prog_name="surveysynth", standalone_mode=False)

    return exits.code_of(command)


if __name__ == "__main__":
    sys.exit(main())
