"""Every key of a specification: type, limits and default from the typed settings, and its words.

Words stand in ``keys.toml`` beside this file. A key without words, and words of no key, are a
``LookupError``, so that neither can be added without the other.
"""

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from surveysynth.mechanisms.noisy_statistics.settings import NOISY_PLAN
from surveysynth.models import model_names, registered
from surveysynth.spec.formats import format_names
from surveysynth.spec.privacy import NoisyStatisticsSection, PrivacySection
from surveysynth.spec.sections import Section, SynthesizerSection
from surveysynth.spec.spec import Spec

WORDS = Path(__file__).with_name("keys.toml")
#: The keys of the file itself, above its sections.
FILE = "file"

#: Values that registries know, which the settings take as any text.
_REGISTRIES: dict[str, Callable[[], Sequence[str]]] = {
    "synthesizer.model": model_names,
    "tables.formats": lambda: format_names("tables"),
    "tables.figures": lambda: format_names("figures"),
}

_PLAIN = {"string": "text", "number": "number", "integer": "whole number",
          "boolean": "true or false"}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """One key: ``section.name``, what may stand there, and what it does.

    kind: the type in words, with its limits; values: the words that it may be, if they are few;
    default: in words; does: what it changes; public: what is public by it; models: those that take
    the key, where not all do.
    """

    section: str
    name: str
    kind: str
    values: tuple[str, ...]
    default: str
    does: str
    public: str
    models: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """``section.name``, or the name alone of a key of the file."""
        return self.name if self.section == FILE else f"{self.section}.{self.name}"


@dataclass(frozen=True)
class SectionKeys:
    """A section with its keys, in the order of the words; ``about``: what it is for."""

    name: str
    about: str
    keys: tuple[Key, ...]


@cache
def sections() -> tuple[SectionKeys, ...]:
    """The file's own keys, then every section of a specification.

    Raises ``LookupError`` naming the keys without words, and the words without a key.
    """
    words = tomllib.loads(WORDS.read_text(encoding="utf-8"))
    typed: dict[str, dict[str, type[BaseModel]]] = {FILE: {"spec_version": Spec}, **dict(_typed())}
    _same_keys(typed, words)
    return tuple(
        SectionKeys(
            name, words[name]["about"],
            tuple(
                _key(name, key, typed[name][key], each)
                for key, each in words[name].items() if key != "about"
            ),
        )
        for name in words
    )  # fmt: skip


def _typed() -> Iterator[tuple[str, dict[str, type[BaseModel]]]]:
    """Each section's name, and its keys with the settings that have them."""
    for name, field in Spec.model_fields.items():
        if name == "shared":
            continue  # the same keys again
        keys: dict[str, type[BaseModel]] = {}
        for model in _sections_in(field.annotation):
            keys = {**dict.fromkeys(model.model_fields, model), **keys}
        if keys:
            yield name, keys


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_in(argument)


def _same_keys(typed: Mapping[str, Mapping[str, Any]], words: Mapping[str, Any]) -> None:
    settings = {f"{name}.{key}" for name, keys in typed.items() for key in keys}
    told = {f"{name}.{key}" for name, keys in words.items() for key in keys if key != "about"}
    if settings != told:
        raise LookupError(
            f"{WORDS.name}: without words: {sorted(settings - told)}; "
            f"without a key: {sorted(told - settings)}."
        )


def _key(section: str, name: str, model: type[BaseModel], words: Mapping[str, str]) -> Key:
    schema = _schema(model)[name]
    path = f"{section}.{name}"
    listed = _REGISTRIES[path]() if path in _REGISTRIES else schema.get("enum", ())
    values = tuple(f'"{each}"' for each in listed if each is not None)
    if "values" in words:
        values = tuple(words["values"].split(", "))
    owners = tuple(each.name for each in registered() if name in each.options)
    return Key(
        section, name, words.get("type") or _kind(schema), values,
        words.get("default") or _defaults(section, name, model),
        words["does"], words["public"], owners if section == "synthesizer" else (),
    )  # fmt: skip


@cache
def _schema(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The schema of each key, that of None left out."""
    found: dict[str, dict[str, Any]] = {}
    for key, each in model.model_json_schema()["properties"].items():
        some = [one for one in each.get("anyOf", [each]) if one.get("type") != "null"]
        found[key] = some[0]
        if "items" in some[0] and "enum" in some[0]["items"]:
            found[key] = {**some[0], "enum": some[0]["items"]["enum"]}
    return found


def _kind(schema: Mapping[str, Any]) -> str:
    """A type with its limits, in words."""
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


def _defaults(section: str, name: str, model: type[BaseModel]) -> str:
    """The default as TOML writes it, and that of noisy statistics where it is another."""
    field = model.model_fields[name]
    default = _toml(field.get_default(call_default_factory=True))
    strict: Any = field.default
    if issubclass(model, PrivacySection) and name not in ("epsilon", "mechanism"):
        other = NoisyStatisticsSection.model_fields.get(name, field)
        strict = other.default
    elif model is SynthesizerSection and name in ("chains", "draws", "warmup"):
        strict = getattr(NOISY_PLAN, name)
    if strict == field.default:
        return default
    return f"{default}; noisy statistics: {_toml(strict)}"


def _toml(value: Any) -> str:
    """A default as it would stand in a file; raises ``LookupError`` where none could."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        raise LookupError(f"{WORDS.name}: a default of {value!r} needs words.")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:g}" if isinstance(value, float) else str(value)
