"""Parts of texts: nearest names, counts, several problems in one error, and what XML can hold."""

import contextlib
import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from surveysynth.errors import InputError


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` (with a leading blank) for the closest name, else ``""``."""
    candidates = list(known)
    found = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    if not found:
        by_folded = {candidate.casefold().strip(): candidate for candidate in candidates}
        folded = difflib.get_close_matches(name.casefold().strip(), by_folded, n=1, cutoff=0.6)
        found = [by_folded[match] for match in folded]
    return f" Did you mean {found[0]!r}?" if found else ""


def nearest_file(path: Path, suffixes: Sequence[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest file in the folder, else ``""``."""
    with contextlib.suppress(OSError, ValueError):
        beside = [each.name for each in path.parent.iterdir() if each.suffix.lower() in suffixes]
        return nearest(path.name, sorted(beside))
    return ""


#: The remedy for a path as Windows writes it, in a specification.
BACKSLASH = (
    "in double quotes a backslash begins an escape: write the path in single quotes, such as "
    "'C:\\data\\survey.csv', or with /, such as \"C:/data/survey.csv\""
)


def listing(names: Sequence[str], limit: int = 12) -> str:
    """Return names in quotes, separated by commas; the tail of a long list becomes a count."""
    shown = ", ".join(repr(str(name)) for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def capitalized(text: str) -> str:
    """Return the text with a capital first letter and the others unchanged."""
    return text[:1].upper() + text[1:]


def records(count: int) -> str:
    """Return ``1 record`` or ``7 records``."""
    return f"{count:,} record" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """Return seconds in words."""
    if seconds < 90:
        return f"about {seconds:.0f} seconds"
    return f"about {seconds / 60:.0f} minutes"


def raise_problems(heading: str, problems: Sequence[str]) -> None:
    """Raise one ``InputError`` for all problems; nothing happens when there are none."""
    if len(problems) == 1:
        raise InputError(f"{heading}: {problems[0]}")
    if problems:
        lines = [f"{heading}: {len(problems)} problems.", *(f"  - {each}" for each in problems)]
        raise InputError("\n".join(lines))


def no_fixed_point(risk: str) -> str:
    """Return the reason why a risk measure cannot have fixed-point weights, and the remedy."""
    return (
        f"weights = 'fixed_point' is for risk = 'lipschitz', whose risks are the bounds of the "
        f"weighted fit itself; for risk = {risk!r} use weights = 'linear', whose "
        "re-weighting brings record bounds up to the target."
    )


def no_peak() -> str:
    """Return the reason why origin = 'peak' does not apply, and the remedy."""
    return (
        "origin = 'peak' is for fixed-point weights without truncation; linear weights and "
        "truncation are the papers', whose |log-likelihood| is that of the density. Leave out "
        "origin, or set origin = 'density'."
    )


def noisy_statistics_alone(what: str) -> str:
    """Return the error for input that the pseudo-posterior does not accept, with the remedy."""
    return (
        f"{what}, and the pseudo-posterior takes plain amounts (or a count) with declared "
        "transforms, one residual covariance and no effects of units: set mechanism = "
        "'noisy_statistics'."
    )


#: What else there is for a clustered survey.
DESIGN_EFFECT_INSTEAD = (
    "Or declare survey.design_effect, the factor by which clustering raises variances, from a "
    "prior publication and never from these data."
)

#: What XML cannot contain, such as control characters.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def has_control(text: str) -> bool:
    """Return True if a text has characters that XML cannot contain, such as control characters."""
    return _NOT_XML.search(text) is not None


def visible(text: str) -> str:
    """Return the text with such characters as numbers, so that different texts still differ."""
    return _NOT_XML.sub(lambda sign: f"\\x{ord(sign[0]):02x}", text)


def xml_text(text: str) -> str:
    """Return the text on one line, without characters that XML cannot contain."""
    return " ".join(_NOT_XML.sub("", text).split())
