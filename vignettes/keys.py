"""The reference of all keys of a specification, as a page of Markdown.

    python -m vignettes.keys > vignettes/reference/specification.md

Types, limits and defaults come from the sections. The words come from the text below each key in
the source: what the key does, then Type, Values and Default where these differ from the annotation,
and what becomes Public by it. A key without such a text is a ``LookupError``.
"""

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from surveysynth.config.calibration_section import CalibrationSection
from surveysynth.config.outcome_section import OutcomeSection
from surveysynth.config.privacy import (
    NoisyStatisticsSection,
    PrivacySection,
    PseudoPosteriorSection,
)
from surveysynth.config.sections import LabelSection, Section, SurveySection
from surveysynth.config.spec import Spec
from surveysynth.config.synthesizer_section import SynthesizerSection
from surveysynth.config.tables_section import FORMATS, TablesSection
from surveysynth.mechanisms.noisy_statistics.settings import NOISY_PLAN
from surveysynth.models import model_names, registered

#: The keys above the first section.
FILE = "file"
#: The settings of each section, in the order of the page.
SETTINGS: dict[str, tuple[type[BaseModel], ...]] = {
    FILE: (Spec,),
    "survey": (SurveySection,),
    "synthesizer": (SynthesizerSection,),
    "outcomes": (OutcomeSection,),
    "privacy": (PseudoPosteriorSection, NoisyStatisticsSection),
    "calibration": (CalibrationSection,),
    "tables": (TablesSection,),
    "labels": (LabelSection,),
}
#: Values that registries know; the settings accept any text.
_REGISTRIES: dict[str, Callable[[], Sequence[str]]] = {
    "synthesizer.model": model_names,
    "tables.formats": lambda: tuple(FORMATS),
}
_PLAIN = {"string": "text", "number": "number", "integer": "whole number",
          "boolean": "true or false"}  # fmt: skip
_PARTS = re.compile(r" (Type|Values|Default|Public): ")
_WIDTH = 96
_HEAD = """\
# Every key of a specification

<!-- by `python -m vignettes.keys`: edit the texts in surveysynth/config -->

A specification is a [TOML](https://toml.io) file. `surveysynth init` writes one with comments, and
`surveysynth check` reads one and releases nothing. An unknown key, a value of the wrong type, or a
missing column is an error that names the nearest valid choice. "Noisy statistics" and
"pseudo-posterior" are the two [mechanisms](../choosing.md#mechanism).

**Every constant in the file is public.** It is published with the release, except for the location
of the data, `id` and `budget`. Each entry states what the key makes public, or assumes to be public
already."""


@dataclass(frozen=True)
class Key:
    """One key: its path, its values, and what it does.

    kind: the type in words, with its limits; values: the words that it may be, if they are few;
    default: in words; public: what the key makes public.
    """

    section: str
    name: str
    kind: str
    values: tuple[str, ...]
    default: str
    does: str
    public: str

    @property
    def path(self) -> str:
        """``section.name``, or the name alone for a key of the file."""
        return self.name if self.section == FILE else f"{self.section}.{self.name}"

    @property
    def shown_kind(self) -> str:
        """The type as readers see it."""
        return "one of" if self.kind == "text" and self.values else self.kind


@dataclass(frozen=True)
class SectionKeys:
    """A section with its keys; ``about``: what it is for."""

    name: str
    about: str
    keys: tuple[Key, ...]

    @property
    def title(self) -> str:
        """The section's heading."""
        names = {FILE: "The file", "outcomes": "`[outcomes.NAME]`", "labels": "`[labels.COLUMN]`",
                 "calibration": "`[[calibration]]`"}  # fmt: skip
        return names.get(self.name, f"`[{self.name}]`")


@cache
def sections() -> tuple[SectionKeys, ...]:
    """Return the keys of the file and of every section.

    Raises ``LookupError`` for a key without a text.
    """
    found = []
    for name, models in SETTINGS.items():
        about = getattr(models[0], "about", "Keys above the first section.")
        keys: dict[str, Key] = {}
        for model in models:
            for key, text in texts_of(model).items():
                keys.setdefault(key, _key(name, key, model, text))
        found.append(SectionKeys(name, about, tuple(keys.values())))
    return tuple(found)


def texts_of(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each key of a section, on one line, in the order of the source.

    Raises ``LookupError`` that names the keys without a text.
    """
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, (Section, Spec)):
            texts |= _own_texts(base)
    # The other keys of the file are its sections.
    missing = set() if model is Spec else set(model.model_fields) - set(texts)
    if missing:
        raise LookupError(f"{model.__name__}: keys without a text: {sorted(missing)}.")
    return texts


def _own_texts(model: type[BaseModel]) -> dict[str, str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        key.target.id: " ".join(str(text.value.value).split())
        for key, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }  # fmt: skip


def _key(section: str, name: str, model: type[BaseModel], text: str) -> Key:
    does, *rest = _PARTS.split(text)
    words = dict(zip(rest[::2], rest[1::2], strict=True))
    if "Public" not in words:
        raise LookupError(f"{model.__name__}.{name}: the text does not say what is Public by it.")
    schema, path = _schema(model)[name], f"{section}.{name}"
    listed = _REGISTRIES[path]() if path in _REGISTRIES else schema.get("enum", ())
    values = tuple(f'"{each}"' for each in listed if each is not None)
    if "Values" in words:
        values = tuple(words["Values"].removesuffix(".").split(", "))
    return Key(
        section, name, words.get("Type", "").removesuffix(".") or _kind(schema), values,
        words.get("Default", "").removesuffix(".") or _default(section, name, model),
        does, words["Public"],
    )  # fmt: skip


@cache
def _schema(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Return the schema of each key, without that of None."""
    found: dict[str, dict[str, Any]] = {}
    for key, each in model.model_json_schema()["properties"].items():
        some = [one for one in each.get("anyOf", [each]) if one.get("type") != "null"]
        found[key] = some[0]
        if "items" in some[0] and "enum" in some[0]["items"]:
            found[key] = {**some[0], "enum": some[0]["items"]["enum"]}
    return found


def _kind(schema: Mapping[str, Any]) -> str:
    """Return a type with its limits, in words."""
    kind = schema.get("type")
    if kind == "array":
        least = ", at least one" if schema.get("minItems", schema.get("minLength")) else ""
        return f"list of {_plural(_kind(schema['items']))}{least}"
    if kind == "object":
        return f"table of {_plural(_kind(schema['additionalProperties']))} by name"
    if "const" in schema:
        return f"the number {schema['const']}"
    return " ".join([_PLAIN[str(kind)], *_limits(schema)])


def _plural(words: str) -> str:
    first, _, rest = words.partition(" ")
    if first == "whole":
        first, rest = "whole numbers", rest.removeprefix("number").strip()
        return f"{first} {rest}".strip()
    return f"{first}s {rest}".strip()


def _limits(schema: Mapping[str, Any]) -> Iterator[str]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        yield f"from {least:,} to {most:,}"
        return
    words = {"exclusiveMinimum": "above", "minimum": "from", "exclusiveMaximum": "below",
             "maximum": "up to"}  # fmt: skip
    limits = [f"{word} {schema[key]:,}" for key, word in words.items() if key in schema]
    if limits:
        yield " and ".join(limits)


def _default(section: str, name: str, model: type[BaseModel]) -> str:
    """Return the default as TOML has it, with that of noisy statistics if it differs."""
    field = model.model_fields[name]
    default = _toml(field.get_default(call_default_factory=True))
    strict: Any = field.default
    if issubclass(model, PrivacySection) and name not in ("epsilon", "mechanism"):
        strict = NoisyStatisticsSection.model_fields.get(name, field).default
    elif model is SynthesizerSection and name in ("chains", "draws", "warmup"):
        strict = getattr(NOISY_PLAN, name)
    if strict == field.default:
        return default
    return f"{default}; noisy statistics: {_toml(strict)}"


def _toml(value: Any) -> str:
    """Return a default as a file has it; raises ``LookupError`` for a default that needs words."""
    if value is None or (not isinstance(value, bool | int | float) and not len(value)):
        return "none"
    if isinstance(value, float) and math.isnan(value):
        raise LookupError(f"a default of {value!r} needs words: add Default to the text.")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:g}" if isinstance(value, float) else str(value)


def markdown() -> str:
    """Return the page vignettes/reference/specification.md."""
    contents = ["| section | keys |", "|---|---|"]
    for section in sections():
        links = ", ".join(f"[`{key.name}`](#{_anchor(key.path)})" for key in section.keys)
        contents.append(f"| [{section.title}](#{_anchor(section.title)}) | {links} |")
    parts = [_HEAD, "\n".join(contents)]
    for section in sections():
        parts += [f"## {section.title}", _wrapped(section.about)]
        parts += [_entry(key) for key in section.keys]
        if section.name == "synthesizer":
            parts += ["### Priors by model", "\n".join(_priors())]
    return "\n\n".join(parts) + "\n"


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub and MyST make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _entry(key: Key) -> str:
    values = f": {_code(', '.join(key.values))}" if key.values else ""
    return "\n\n".join([
        f"### `{key.path}`",
        _wrapped(f"*{_code(key.shown_kind)}*{values}. **Default:** {_code(key.default)}."),
        _wrapped(_code(key.does)),
        _wrapped(f"**Public:** {_code(key.public)}"),
    ])  # fmt: skip


def _code(text: str) -> str:
    """Mark values, keys and sections as code where they are not yet."""
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


if __name__ == "__main__":
    print(markdown(), end="")
