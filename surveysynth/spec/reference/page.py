"""The reference as a page of Markdown, and as lines for a terminal."""

import re
import textwrap
from collections.abc import Iterator, Sequence

from surveysynth._support.messages import listing, nearest
from surveysynth.errors import InputError
from surveysynth.models import registered
from surveysynth.spec.reference.keys import FILE, Key, SectionKeys, sections

_HEAD = """\
# Every key of a specification

<!-- by `surveysynth keys --markdown`: edit surveysynth/spec/reference/keys.toml -->

A specification is a [TOML](https://toml.io) file. `surveysynth init` writes one with comments,
`surveysynth check` reads one and releases nothing, and `surveysynth keys privacy.m` shows one entry
of this page on a terminal. A key that is not here, a value of another type, or a column that the
data lack is an error that names the nearest right one. "Noisy statistics" and "pseudo-posterior"
are the two [mechanisms](../two_mechanisms.md).

**Every constant in the file is public**: it is published with the release, but for the place of the
data, `id` and `budget`. Under each key stands what becomes public by it, or is taken to be public
already."""

_WIDTH = 96


def markdown() -> str:
    """The page, which vignettes/reference/specification.md is."""
    parts = [_HEAD, "\n".join(_contents())]
    for section in sections():
        parts += [f"## {_title(section.name)}", _wrapped(section.about)]
        parts += [_entry(key) for key in section.keys]
        if section.name == "synthesizer":
            parts += ["### Priors by model", "\n".join(_priors())]
    return "\n\n".join(parts) + "\n"


def terminal(name: str | None) -> list[str]:
    """Lines on all keys (None), on those of a section, or on one key.

    ``name``: a section, ``section.key`` as messages write it, or a key alone. Raises ``InputError``
    for a name of nothing, with the nearest one.
    """
    if name is None:
        return [line for section in sections() for line in _overview(section)]
    wanted = re.sub(r"\[\d+\]", "", name).strip("[]")
    for section in sections():
        if wanted == section.name:
            return [_title(section.name).replace("`", ""), *_filled(section.about), "",
                    *(line for key in section.keys for line in (*_told(key), ""))]  # fmt: skip
    keys = [key for section in sections() for key in section.keys]
    parts = wanted.split(".")
    # A section by name has the name between: outcomes.income.scale.
    found = [key for key in keys if key.path == f"{parts[0]}.{parts[-1]}" or key.name == wanted]
    if not found:
        known = [key.path for key in keys] + [key.name for key in keys]
        raise InputError(
            f"{name!r} is no section and no key of a specification.{nearest(wanted, known)} "
            f"Sections: {listing([each.name for each in sections()])}."
        )
    return [line for key in found for line in (*_told(key), "")]


def _title(section: str) -> str:
    names = {FILE: "The file", "outcomes": "`[outcomes.NAME]`", "labels": "`[labels.COLUMN]`"}
    return names.get(section, f"`[{section}]`")


def _contents() -> Iterator[str]:
    yield "| section | keys |"
    yield "|---|---|"
    for section in sections():
        links = ", ".join(f"[`{key.name}`](#{_anchor(key.path)})" for key in section.keys)
        yield f"| [{_title(section.name)}](#{_anchor(_title(section.name))}) | {links} |"


def _anchor(heading: str) -> str:
    """As GitHub and MyST make them of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _entry(key: Key) -> str:
    models = f" For model {listing([f'`{each}`' for each in key.models])}." if key.models else ""
    values = f": {_code(', '.join(key.values))}" if key.values else ""
    return "\n\n".join([
        f"### `{key.path}`",
        _wrapped(f"*{_shown_kind(key)}*{values}. **Default:** {_code(key.default)}.{models}"),
        _wrapped(_code(key.does)),
        _wrapped(f"**Public by it:** {_code(key.public)}"),
    ])  # fmt: skip


def _shown_kind(key: Key) -> str:
    return "one of" if key.kind == "text" and key.values else _code(key.kind)


def _code(text: str) -> str:
    """With values, keys and sections as code, where they are not yet."""
    parts = re.split(r"(`[^`]*`)", text)
    value = r'(\b[a-z_]+ = "[^"]*"|"[^"]*"|\{ .* \}|\[[a-z_.A-Z]+\](?: [a-z_]+)?|\[".*?"\])'
    return "".join(
        part if part.startswith("`") else re.sub(value, r"`\1`", part) for part in parts
    )


def _wrapped(text: str) -> str:
    # Code with blanks stays on its line.
    held = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(held, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def _priors() -> Iterator[str]:
    yield "| model | constants |"
    yield "|---|---|"
    for model in registered():
        constants = ", ".join(f"`{name}` {value:g}" for name, value in model.default_priors.items())
        yield f"| `{model.name}` | {constants} |"


def _overview(section: SectionKeys) -> list[str]:
    names = ", ".join(key.name for key in section.keys)
    return [_title(section.name).replace("`", ""), *_filled(names), ""]


def _told(key: Key) -> list[str]:
    values = f": {', '.join(key.values)}" if key.values else ""
    models = f" For model {listing(key.models)}." if key.models else ""
    kind = "one of" if key.kind == "text" and key.values else key.kind
    return [
        key.path,
        *_filled(f"{kind}{values}. Default: {key.default}.{models}"),
        *_filled(key.does),
        *_filled(f"Public by it: {key.public}"),
    ]


def _filled(text: str) -> Sequence[str]:
    indent = "    "
    return textwrap.wrap(
        text.replace("`", ""), _WIDTH, initial_indent=indent, subsequent_indent=indent,
        break_on_hyphens=False,
    )  # fmt: skip
