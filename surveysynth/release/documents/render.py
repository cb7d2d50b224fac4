"""Documents from the templates in ``templates/``, which hold all of their prose.

A template is Markdown with Jinja2 in it. Every value is escaped when it is printed, so that a label
shows the characters that it has; ``| safe`` prints trusted Markdown, ``| code`` a value between
backticks. The lines of a paragraph may be broken anywhere: ``joined`` makes one line of them.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from surveysynth._support.messages import capitalised
from surveysynth._support.resources import environment
from surveysynth.config.privacy import as_noisy_statistics
from surveysynth.mechanisms.base import gap_of_weights
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.tables.labels import listed
from surveysynth.release.writers.markdown import escape

if TYPE_CHECKING:
    from jinja2 import Environment

_FENCE = "```"
#: How lines begin that are no continuation of the line above.
_BLOCKS = ("# ", "## ", "### ", "#### ", "- ", "|", _FENCE)


def render_markdown(name: str, context: dict[str, Any]) -> str:
    """Return the document of ``templates/NAME``, filled in."""
    return joined(_templates().get_template(f"templates/{name}").render(context))




def joined(text: str) -> str:
    """Return Markdown with every paragraph and every item of a list on one line.

    Items indented by two spaces stay below the item before them; code is unchanged.
    """
    lines: list[str] = []
    in_code = False
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(_FENCE):
            in_code = not in_code
            lines.append(stripped)
        elif in_code:
            lines.append(line)
        elif not stripped:
            lines += [""] * bool(lines and lines[-1])
        elif stripped.startswith(_BLOCKS):
            nested = stripped.startswith("- ") and line.startswith("  ")
            lines.append(f"  {stripped}" if nested else stripped)
        elif lines and lines[-1] and not lines[-1].startswith(("#", "|", _FENCE)):
            lines[-1] += f" {stripped}"
        else:
            lines.append(stripped)
    return "\n".join(lines).strip("\n") + "\n"


@cache
def _templates() -> "Environment":
    """Return the templates, which print every value escaped for Markdown."""
    from markupsafe import Markup

    def marked(text: Callable[[Any], str]) -> Callable[[Any], Markup]:
        return lambda value: Markup(text(value))

    def shown(value: Any) -> Markup:
        return value if isinstance(value, Markup) else Markup(_markdown_text(str(value)))

    found = environment(__package__).overlay(autoescape=True, finalize=shown)
    found.filters = {
        **found.filters,
        "code": marked(str),
        "named": marked(_named),
        "one_line": marked(lambda text: " ".join(text.split())),
        "listed": listed,
        "capitalized": capitalised,
        "commas": lambda value: f"{value:,}",
        "short": lambda value: f"{value:g}",
        "two": lambda value: f"{value:.2g}",
        "three": lambda value: f"{value:.3g}",
        "four": lambda value: f"{value:.4g}",
        "amount": lambda value: f"{value:,.10g}",
        "percent": lambda share: f"{share:.0%}",
        "limit": percent,
        "sentence": lambda text: text if text.endswith(".") else f"{text}.",
    }
    return found


def _markdown_text(text: str) -> str:
    """Return text escaped for Markdown; spaces at its ends stay, for words in a template."""
    before, after = (" " if end.isspace() else "" for end in (text[:1], text[1:][-1:]))
    return f"{before}{escape(text)}{after}"


def _named(names: Iterable[str]) -> str:
    """Return names of columns in bold, with commas."""
    return ", ".join(f"**{escape(name)}**" for name in names)


def percent(probability: float) -> str:
    """Return a limit in percent, rounded up to two digits of it or of what is left to 100%."""
    value = 100.0 * probability
    if value <= 50.0:
        places = max(0, 1 - math.floor(math.log10(value)))
        return f"{math.ceil(value * 10**places - 1e-9) / 10**places:.{places}f}%"
    rest = 100.0 * (1.0 - probability)
    if rest < 1e-4:
        return "nearly 100%"
    places = 1 - math.floor(math.log10(rest))
    return f"{100.0 - math.floor(rest * 10**places + 1e-9) / 10**places:.{max(places, 0)}f}%"


def shared_context(facts: ReleaseFacts) -> dict[str, Any]:
    """Return size and unit of the guarantee, and what is public of the survey.

    ``rho`` and ``delta`` are None under an asymptotic guarantee. ``protected`` is the public column
    whose units are protected as a whole, None for single records. ``outside`` is a clause, empty
    unless settings take the release out of what the statement covers.
    """
    design, settings, privacy = facts.design, facts.settings, facts.spec.privacy
    noisy = as_noisy_statistics(privacy) if privacy.currency == "rho" else None
    protected = None if privacy.protect == RECORD else privacy.protect
    return {
        "title": facts.title,
        "warnings": facts.warnings,
        "test": facts.test,
        "private": settings.private,
        "proved": noisy is not None,
        "epsilon": settings.epsilon,
        "rho": None if noisy is None else noisy.cost.rho,
        "delta": None if noisy is None else noisy.delta,
        "factor": factor_words(settings.epsilon),
        "m": settings.m,
        "outside": facts.statement.outside,
        "protected": protected,
        "unit": "one record" if protected is None else f"all records of one unit of {protected!r}",
        "values": _confidential(facts),
        "n": design.n,
        "dropped": design.dropped,
        "shift": design.shift,
        "modelled": design.missing == "model",
        "psu": design.psu_name,
        "weight_name": design.weight_name,
        "weighted": design.weight_name is not None or design.public_weight is not None,
        "weight_sources": _sources(facts),
        "weights_gap": gap_of_weights(design),
        "frame_columns": list(map(str, design.frame.columns)),
        "by": list(design.by),
        "debiased": facts.debias is not None and facts.debias.debiased,
    }


def _sources(facts: ReleaseFacts) -> list[str]:
    """Return the columns that the weights were computed from, where they are declared."""
    given = facts.design.weights_from
    return list(given) if isinstance(given, tuple) else []


def outside_sentence(facts: ReleaseFacts) -> str:
    """Return a sentence if settings take the release out of what is stated, otherwise nothing."""
    outside = facts.statement.outside
    return f"This release is {outside}; the limit does not hold for it." if outside else ""


def _confidential(facts: ReleaseFacts) -> str:
    """Return the confidential columns, as part of a sentence."""
    names = list(facts.design.outcome_names)
    if facts.design.weight_name is not None:
        names.append(f"the sampling weight ({facts.design.weight_name})")
    return listed(names)


def factor_words(epsilon: float) -> str:
    """Return exp(epsilon) with two significant digits, from epsilon = 100 on as a power of e."""
    if epsilon >= 100:
        return f"exp(epsilon) = e to the power {epsilon:g}"
    value = math.exp(epsilon)
    if value >= 1e15:
        return f"exp(epsilon) = about {value:.1e}"
    places = 1 - math.floor(math.log10(value))
    return f"exp(epsilon) = about {round(value, places):,.{max(places, 0)}f}"
