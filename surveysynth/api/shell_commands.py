"""Shell commands with flags and messages of their own: init, audit, keys and docs.

Imported at the start of every command: heavy modules are imported inside.
"""

import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surveysynth.errors import InputError, RefusedError, SurveySynthError

if TYPE_CHECKING:
    from surveysynth.spec.draft.write import Drafted

#: Where a checkout is: around the package, or where the command is run. The wheel has no pages.
_PAGES = Path(__file__).parents[2] / "vignettes"
_HERE = Path("vignettes")
_NEEDED = {"sphinx": "sphinx", "numpydoc": "numpydoc", "myst_parser": "myst-parser",
           "sphinx_gallery": "sphinx-gallery", "furo": "furo",
           "latex2mathml": "latex2mathml"}  # fmt: skip
ColumnOption = Annotated[str | None, typer.Option(metavar="COLUMN", help="A public column.")]


def init_command(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A data file: csv, parquet, dta, sav, xpt.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="SPEC", help="The file to write; spec.toml beside DATA unless given."),
    ] = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KIND]",
            help="A confidential column: continuous, semicontinuous, binary, categorical or "
            "count; may be given several times.",
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME.KEY=VALUE",
            help="Of an outcome, from a public source: centre, range, spread, transform, scale, "
            "power, shift, spikes, lower, upper, levels; may be given several times.",
        ),
    ] = None,
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sampling weights.")] = None,
    public_weights: Annotated[
        bool | None, typer.Option("--public-weights", help="They are constants of the design.")
    ] = None,
    strata: ColumnOption = None,
    psu: ColumnOption = None,
    design_effect: Annotated[
        float | None, typer.Option(help="Of the units, where models have no effects of them.")
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option(metavar="A,B,..", help="Tables by these public columns.")
    ] = None,
    population_size: Annotated[float | None, typer.Option(help="From a public source.")] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="pseudo_posterior or noisy_statistics.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Of the whole release.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace SPEC if it is there.")
    ] = False,
) -> None:
    """Write a specification for DATA, every choice explained; asks on a terminal.

    Of the data, the names of all columns and the values of the --by columns are looked at, and no
    others.
    """
    _write(
        data, data.with_name("spec.toml") if out is None else out, outcome or (), constant or (),
        by, overwrite=overwrite, weight=weight, public_weights=public_weights, strata=strata,
        psu=psu, design_effect=design_effect, population_size=population_size,
        mechanism=mechanism, epsilon=epsilon,
    )  # fmt: skip


def _write(
    data: Path,
    out: Path,
    outcomes: Sequence[str],
    constants: Sequence[str],
    by: Sequence[str] | None,
    *,
    overwrite: bool,
    **said: Any,
) -> None:
    """Choices from flags and, on a terminal, from answers; ``said``: parts of ``Choices``."""
    from surveysynth.spec.draft.choices import Choices, check_choices
    from surveysynth.spec.draft.columns import open_data
    from surveysynth.spec.draft.flags import check_said, read_outcomes, split_columns
    from surveysynth.spec.draft.questions import ask_rest
    from surveysynth.spec.draft.write import check_free, write_draft

    check_free(out, overwrite=overwrite)  # before anything is asked
    file = open_data(data)
    choices = Choices(
        outcomes=read_outcomes(outcomes, constants, file.names),
        by=None if by is None else split_columns("--by", by, file.names),
        **said,
    )
    check_choices(choices, file.names)
    if sys.stdin.isatty():
        choices = ask_rest(choices, file, Prompt())
    check_said(choices)
    print("\n".join(_told(write_draft(file, choices, out, overwrite=overwrite))))


class Prompt:
    """Questions on the terminal that the command runs in."""

    def tell(self, text: str) -> None:
        """Shows lines."""
        print(text, flush=True)

    def ask(self, question: str) -> str:
        """The answer without its outer blanks."""
        return str(typer.prompt(question, default="", show_default=False)).strip()


def _told(made: "Drafted") -> list[str]:
    """What was written, looked at, and left open."""
    looked = f" and the values of {', '.join(made.read)}" if made.read else ""
    lines = [
        f"Wrote {made.path}, with every choice explained.",
        f"Looked at: the names of the columns{looked}; at no other value.",
    ]
    if made.open:
        lines += ["Still to be filled in, where it says \"?\":", *(f"  {key}" for key in made.open)]
    return [*lines, f"Next: surveysynth check {made.path}"]


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
    from surveysynth.evaluation.audit.folder import REPORT_NAME
    from surveysynth.evaluation.audit.folder import audit as run
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


def keys_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A section, as privacy, or a key, as privacy.m. Without it, all."
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The whole reference, as a page of Markdown.")
    ] = False,
) -> None:
    """Look up a key of a specification: type, default, what it changes, what is public by it."""
    from surveysynth.spec import reference

    text = reference.markdown() if markdown else "\n".join(reference.terminal(name)).rstrip() + "\n"
    print(text, end="")


def docs_command(
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to build; build/site of the checkout otherwise."),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Build, and open nothing.")] = False,
) -> None:
    """Build the documentation, without a network, and open it in a browser.

    Needs a checkout and the extra docs. What has not changed since the last time is not built
    again. A warning is an error.
    """
    found = [each.resolve() for each in (_PAGES, _HERE) if (each / "_site" / "links.py").is_file()]
    if not found:
        raise InputError(
            "the documentation is built from a checkout of the source: run this command in one, "
            "after pip install '.[docs]'."
        )
    pages = found[0]
    missing = [name for module, name in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise InputError(
            f"the documentation needs {', '.join(missing)}: pip install '.[docs]' in "
            f"{pages.parent}."
        )
    target = (out if out is not None else pages.parent / "build" / "site").resolve()
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet",
         "-b", "html", "-d", str(target.with_name(f"{target.name}-doctrees")),
         str(pages), str(target)],
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SurveySynthError("the documentation was not built; Sphinx says above why.")
    first = target / "index.html"
    print(f"Documentation: {first}")
    if not no_open:
        webbrowser.open(first.as_uri())
