"""The text of a specification: every choice with its meaning and its alternatives, written once."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surveysynth._support.messages import visible
from surveysynth._support.page import fragment
from surveysynth.config.draft.choices import (
    Choices,
    DataFile,
    OutcomeChoice,
    PublicLevels,
    check_choices,
    settled_amount,
)
from surveysynth.config.mistakes import ANSWERS, OPEN
from surveysynth.config.spec import parse_spec
from surveysynth.errors import InputError
from surveysynth.survey.records import LEAST_RECORDS

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LEFT = re.compile(rf'({"|".join(ANSWERS)}) = "{re.escape(OPEN)}"')

_KINDS = """\
# The kind of outcome. Replace "?" by one of these, then add its other keys:
#   "continuous"      an amount, without values that many records share
#   "semicontinuous"  an amount that is often exactly 0: spikes = [0] (a top code is a spike too)
#   "binary"          0 and 1, true and false, or two levels = ["no", "yes"]
#   "categorical"     levels = ["..", ".."], all that may occur, from the questionnaire
#   "count"           a whole number, such as visits or rooms
# Amounts and counts also need a public range: range = [low, high]."""

_KIND_WORDS = {
    "continuous": "an amount, without values that many records share",
    "semicontinuous": "an amount that is often at one of the spikes",
    "binary": "0 and 1, true and false, or two levels",
    "categorical": "one of several levels",
    "count": "a whole number, such as visits or rooms",
}

_STATISTICS = """\
# Add what suits the kinds of the outcomes: "mean" and "median" for amounts, "mean" for counts,
# "share" for binary and categorical ones, as in statistics = ["count", "mean", "median"]."""

_RANGE = """\
# The lowest and the highest possible value, from a questionnaire or a codebook, never from the
# data. Values outside count as the nearer end; a generous range costs little. A tenth of the
# budget learns the transform: a noisy histogram over the range. Instead of a range, transform,
# center and spread may be declared"""

_TRANSFORM = """\
# The model is normal on the scale of the transform: "yeo_johnson" lies between the logarithm
# (power 0) and the amount itself (power 1); "log" suits amounts above zero that are products."""

_MOMENTS = """\
# center: a typical value. spread: a typical standard deviation on the scale of the transform.
# Noisy statistics need both, from public sources. Values far off cost accuracy, never privacy."""

_MECHANISMS = """\
# "noisy_statistics": exact noise; strict differential privacy for any number of records.
# "pseudo_posterior": influential records get less weight; its epsilon is asymptotic."""


def draft_text(
    choices: Choices,
    data: str,
    columns: Sequence[str],
    levels: Mapping[str, PublicLevels],
    spec: str,
    called: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Return the specification of ``choices``, and its keys that are still to be filled in.

    data: the path as written; columns: all names; levels: of the by columns; spec: the file name;
    called: what the file calls values of outcomes.
    Raises ``InputError`` for constants that do not belong together.
    """
    outcomes = {
        f"outcomes.{key(each.name)}": _outcome(each, choices, (called or {}).get(each.name, {}))
        for each in choices.outcomes
    }
    coded = any(each.startswith(_CODES) for lines in outcomes.values() for each in lines)
    sections = {
        "survey": _survey(choices, data, columns, coded=coded),
        "synthesizer": _synthesizer(choices),
        **outcomes,
        **_weight(choices),
        "privacy": _privacy(choices),
        "tables": _tables(choices),
        **_labels(levels),
    }
    parts = [_heading(choices, len(columns), spec)]
    parts += ["\n".join([f"[{name}]", *lines]) for name, lines in sections.items()]
    left = [
        f"{name}.{found[1]}"
        for name, lines in sections.items()
        for found in map(_LEFT.match, lines)
        if found and name.startswith(("survey", "outcomes"))
    ]
    return "\n\n".join(parts) + "\n", tuple(left)


def value(given: Any) -> str:
    """Return a value in TOML; whole numbers have no decimal point."""
    if isinstance(given, list | tuple):
        return f"[{', '.join(map(value, given))}]"
    if isinstance(given, str):
        # JSON escapes all that TOML wants escaped, but for the last control character of ASCII.
        return json.dumps(given, ensure_ascii=False).replace("\x7f", "\\u007f")
    whole = float(given).is_integer() and abs(given) < 1e15
    return str(int(given)) if whole else repr(float(given))


def key(name: str) -> str:
    """Return a key in TOML."""
    return name if _BARE.fullmatch(name) else value(name)


def named(names: Iterable[str]) -> str:
    """Return names in quotes, for a comment."""
    return ", ".join(map(value, names))


def line(name: str, given: Any, words: str = "") -> str:
    """Return ``name = value`` with a comment after it."""
    text = f"{name} = {value(given)}"
    return f"{text:<30} # {words}" if words else text


def _heading(choices: Choices, columns: int, spec: str) -> str:
    read = named(choices.by or ())
    unread = named(choices.confidential)
    looked = f"and the values of {read}" if read else "and no values"
    return "\n".join([
        "# A specification for surveysynth, written by surveysynth init: the survey, its",
        "# synthesis and its tables. Every constant in this file is public.",
        "#",
        f"# Read from the data: the names of the {columns:,} columns, {looked}.",
        f"# Not read: any value of {unread}, or of another column.",
        "# So kinds, scales, typical values and levels of outcomes are a person's choices. They",
        "# must come from public sources: a questionnaire, a register, last year's publication.",
        "#",
        f"# Next:  surveysynth check {value(spec)}",
        f"#        surveysynth release {value(spec)} --out out",
        "spec_version = 1",
    ])  # fmt: skip


def _survey(
    choices: Choices, data: str, columns: Sequence[str], *, coded: bool
) -> list[str]:
    lines = [
        line("data", data, "relative to this file"),
        "# Sampling weights are confidential and synthesized with the outcomes. If they are",
        '# constants of the sample design that anyone can compute, weights = "public" uses and',
        "# publishes them unchanged.",
        *(['weights = "public"'] if choices.public_weights else []),
        line("weight", choices.weight),
    ]
    lines += _sources(choices) + _design(choices)
    used = {*choices.public, *choices.confidential}
    rest = [name for name in columns if name not in used and name.strip()]
    lines += [
        '# Records with blank cells are an error. With missing = "drop" they are left out, and the',
        "# release reports how many."
        + (' With missing = "model" a missing answer is an answer of its own.' * choices.strict),
        line("missing", "model" if choices.strict else "drop") if coded else '# missing = "drop"',
    ]
    if rest:
        lines += [
            f"# Not used: {named(rest[:_NAMED])}{', ..' * (len(rest) > _NAMED)}. Public columns",
            "# can be published next to the synthetic outcomes: public_columns = [..].",
        ]
    return lines


def _sources(choices: Choices) -> list[str]:
    lines = [
        "# What the weights were computed from besides the design: [] for design weights, or the",
        "# columns of a calibration or an adjustment for nonresponse. If one is confidential, a",
        "# release is refused: name the base weights as weight and calibrate after the noise, in a",
        '# section [[calibration]]; or set "unknown", and the statement names the gap.',
    ]
    given = choices.weights_from
    if given is None:
        return [*lines, "# weights_from = []"]
    unlisted = [name for name in given if name not in choices.public]
    if isinstance(given, str) or not unlisted:
        return [*lines, line("weights_from", given)]
    return [
        *lines,
        line("weights_from", given),
        f"# {named(unlisted)}: public for every record? Then name it in public_columns.",
    ]


def _design(choices: Choices) -> list[str]:
    lines = []
    for name, words in (("strata", "the sample was drawn within these"),
                        ("psu", "primary sampling units")):  # fmt: skip
        given = getattr(choices, name)
        written = line(name, given or "..", f"public: {words}")
        lines.append(written if given else f"# {written}")
    if choices.design_effect is not None:
        lines.append("# The public factor by which the units raise variances, for models without")
        lines.append(line("design_effect", choices.design_effect, "effects of units"))
    lines += ["# The size of the population, from a frame or a published source, never the sum of",
              "# the weights."]  # fmt: skip
    if choices.population_size is None:
        return [*lines, "# population_size = .."]
    return [*lines, line("population_size", choices.population_size)]


def _synthesizer(choices: Choices) -> list[str]:
    outcomes = [each.name for each in choices.outcomes]
    model = line("model", "fbs", '"fbp" models the population instead, for one outcome')
    # Effects of units can stand for those of strata.
    carried = choices.strict and choices.psu is not None and choices.design_effect is None
    carried = carried and choices.strata is not None and choices.strata not in (choices.by or ())
    strata = None if carried else choices.strata
    public = dict.fromkeys(name for name in (strata, *(choices.by or ())) if name)
    formula = " * ".join(name if name.isidentifier() else f"`{name}`" for name in public)
    words = [
        "# A formula of public columns. Default: strata and by columns, with all interactions of",
        "# two of them, which the model shrinks.",
    ]
    given = f"# predictors = {value(formula or '1')}"
    if carried and formula:
        words[-1] += " Effects of units can stand for those of"
        words.append("# strata: without them there are fewer cells, and releases are far quicker.")
        given = line("predictors", formula)
    outcome = line("outcome", outcomes, "confidential: what is synthesized")
    return [model, outcome, *words, given]


def _outcome(
    outcome: OutcomeChoice, choices: Choices, called: Mapping[str, str]
) -> list[str]:
    if outcome.kind is None:
        given = [line(name, each) for name, each in outcome.constants.items()]
        return [*_KINDS.split("\n"), line("kind", OPEN), *given]
    lines = [line("kind", outcome.kind, _KIND_WORDS[outcome.kind])]
    if outcome.is_amount:
        settled = settled_amount(outcome, strict=choices.strict)
        ends = settled.get("range")
        codes = [] if ends in (None, OPEN) else [
            code for code in called
            if _NUMBER.fullmatch(code) and not ends[0] <= float(code) <= ends[1]
        ]
        return lines + _amount(outcome, settled) + _codes("outside the range", codes, called)
    constants = dict(outcome.constants)
    if called and "levels" not in constants:
        lines += ["# The labels of the file. What is no answer belongs in missing_codes = [..]:",
                  *(f"#   {value(code)} {value(label)}" for code, label in called.items())]
    if outcome.kind == "categorical":
        constants.setdefault("levels", list(called) or OPEN)
    codes = [code for code in called if code not in constants.get("levels", called)]
    if outcome.levelled:
        lines.append(
            "# All levels that may occur, in order: from the questionnaire, never from the data."
        )
        if "levels" not in constants:
            lines.append('# levels = ["no", "yes"]        # default: 0 and 1, or true and false')
    lines += [line(name, each) for name, each in constants.items()]
    return lines + _codes("not among the levels", codes, called)


def _amount(outcome: OutcomeChoice, settled: Mapping[str, Any]) -> list[str]:
    lines = []
    if "spikes" in settled:
        lines.append(line("spikes", settled["spikes"], "public values that many records share"))
    if "range" in settled:
        if "split" in settled:
            lines.append(line("split", settled["split"], "amounts below are of another kind"))
        return [*lines, *_RANGE.split("\n"), line("range", settled["range"])]
    lines += [*_TRANSFORM.split("\n"), line("transform", settled["transform"])]
    derived = "scale" not in outcome.constants and settled.get("scale") != OPEN
    tenth = "about a tenth of a typical value" + " (center)" * derived
    words = {"scale": tenth, "power": "public, as all of these"}
    lines += [line(k, settled[k], words.get(k, "")) for k in ("scale", "power", "shift")
              if k in settled]  # fmt: skip
    moments = [k for k in ("center", "spread") if k in settled]
    if moments:
        lines += _MOMENTS.split("\n")
    lines += [line(k, settled[k]) for k in moments]
    ends = [line(k, settled[k]) for k in ("lower", "upper") if k in settled]
    return lines + (ends or ["# lower = 0                     # no synthetic amount lies below"])


def _codes(where: str, codes: Sequence[str], called: Mapping[str, str]) -> list[str]:
    """Return labelled codes for no answer, and the key that makes them so."""
    numbers = [float(code) for code in codes if _NUMBER.fullmatch(code)]
    words = ", ".join(f"{code} {value(called[code])}" for code in codes)
    return [
        f"# Labelled in the file and {where}, so no answer, as a blank cell:",
        f"# {words}", line(_CODES, numbers),
    ] if numbers else []  # fmt: skip


def _weight(choices: Choices) -> dict[str, list[str]]:
    """Return the section of the weight, if noisy statistics have no population size."""
    if not choices.strict or choices.public_weights or choices.population_size is not None:
        return {}
    return {
        "outcomes.weight": [
            "# Where population_size above is known, give it and delete this section: counts are",
            "# then scaled to it, which is better, above all where weights have few values. Else",
            "# a typical logarithm of the weight: that of population size over records, or 0 for",
            "# weights of mean 1. A hundredth to a hundred times that weight is the range learned.",
            line("center", OPEN),
        ]
    }


def _privacy(choices: Choices) -> list[str]:
    lines = [
        *_MECHANISMS.split("\n"),
        line("mechanism", choices.mechanism),
        "# The privacy cost of the whole release, all draws together. Every further release",
        "# from the same data adds its own cost.",
        line("epsilon", choices.epsilon),
    ]
    if choices.strict:
        return [
            *lines,
            line("delta", 1e-6, "the probability that epsilon is exceeded; far below 1 / records"),
            line("m", 20, "draws of the model; after the noise they cost nothing"),
        ]
    return [*lines, line("m", 3, "draws of the model, which share epsilon")]


def _tables(choices: Choices) -> list[str]:
    by = choices.by or ()
    statistics = ["count"]
    if any(each.is_amount for each in choices.outcomes):
        statistics.append("mean")
    if any(each.is_amount and each.kind != "count" for each in choices.outcomes):
        statistics.append("median")
    if any(each.levelled for each in choices.outcomes):
        statistics.append("share")
    still_open = any(each.kind is None for each in choices.outcomes)
    return [
        line("by", list(by), "public; tables have all cells and all margins"),
        line("statistics", statistics, "also total, proportion, quantile(0.9)"),
        *(_STATISTICS.split("\n") if still_open else ()),
        line("formats", ["csv", "html"], "also xlsx, ods, latex, markdown"),
        line("flags", "nchs", 'or "statcan", "none": mark or withhold unreliable numbers'),
        '# universe = ".."               # titles: Mean income of UNIVERSE, by sex: PLACE',
        '# place = ".."                  # and time: "United States, 2026"',
        '# title = ".."                  # of the release',
    ]


def _labels(levels: Mapping[str, PublicLevels]) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for name, found in levels.items():
        shown = sections[f"labels.{key(name)}"] = [
            line("title", visible(found.title or name), "as tables show the column"),
            line("margin", found.margin, "the row over all levels"),
        ]
        if found.rare:
            shown += [
                f"# {found.rare:,} of its levels {'have' if found.rare > 1 else 'has'} fewer than "
                f"{LEAST_RECORDS} records, and may be a value of another column:",
                "# look at the file, and list the right levels here; records with others are then",
                '# refused: levels = { code = "label", .. }',
            ]
            continue
        sections[f"labels.{key(name)}.levels"] = [
            "# Code = label, in the order of the tables. Read from the data: is each a code?",
            *(
                f"{key(level)} = {value(visible(found.labels.get(level, level)))}"
                for level in found.levels
            ),
        ]
    return sections


SPEC_NAME = "spec.toml"
#: So many columns without a role are named; a file of an archive has hundreds.
_NAMED = 12
_CODES = "missing_codes"


@dataclass(frozen=True)
class Drafted:
    """A written specification.

    Attributes
    ----------
    path
        The file.
    open
        Keys that are still to be filled in; ``surveysynth check`` names them too.
    read
        Public columns whose values were read.

    Examples
    --------
    >>> from pathlib import Path
    >>>     >>> Drafted(Path("spec.toml"), ("outcomes.salary.kind",), ("field",)).open
    ('outcomes.salary.kind',)
    """

    path: Path
    open: tuple[str, ...]
    read: tuple[str, ...]

    def _repr_html_(self) -> str:
        """Return the open keys, for notebooks."""
        lines = [f"Written: {self.path}."]
        if self.open:
            lines.append(f'Still to be filled in, marked "?": {", ".join(self.open)}.')
        return fragment("Specification", lines=lines)


def check_free(out: Path, *, overwrite: bool) -> None:
    """Raise ``InputError`` for a file that exists or does not end in .toml."""
    if out.suffix.lower() != ".toml":
        raise InputError(f"{out}: expected a file name that ends in .toml; name another file.")
    if out.exists() and not overwrite:
        raise InputError(f"{out} exists; name another with --out or replace it with --overwrite.")


def write_draft(data: DataFile, choices: Choices, out: Path, *, overwrite: bool) -> Drafted:
    """Write the specification of ``choices`` and report the open keys.

    Reads the by columns and no others. Raises ``InputError`` for choices that do not belong
    together and for a file that exists or cannot be written.
    """
    check_free(out, overwrite=overwrite)
    check_choices(choices, data.names)
    by = choices.by or ()
    levels = {name: data.levels(name) for name in by}
    # The name of a link stays; folders are resolved, since a link has another folder above it.
    folder = os.path.relpath(data.path.parent.resolve(), out.parent.resolve())
    path = (Path(folder) / data.path.name).as_posix()
    called = {each.name: data.value_labels(each.name) for each in choices.outcomes}
    text, left = draft_text(choices, path, data.names, levels, out.name, called)
    if not left:
        parse_spec(text, out)
    try:
        _write(out, text.encode("utf-8"), overwrite=overwrite)
    except FileExistsError:
        raise InputError(f"{out} exists; replace it with --overwrite.") from None
    except UnicodeEncodeError:
        raise InputError("a constant or level is not UTF-8 text; correct it.") from None
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}.") from None
    return Drafted(out, left, by)


def _write(out: Path, content: bytes, *, overwrite: bool) -> None:
    if overwrite:
        staged = out.with_name(f".{out.name}.{os.getpid()}")
        try:
            staged.write_bytes(content)
            staged.replace(out)
        finally:
            staged.unlink(missing_ok=True)
        return
    with out.open("xb") as file:  # fails if the file exists by now
        file.write(content)
