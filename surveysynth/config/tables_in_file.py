"""Several tables in one release: ``[[tables]]``, with ``[all_tables]`` for shared keys.

    [all_tables]            # optional; any key of [tables] but name and where, as default of each
    title = "..."           # of the release
    statistics = ["count", "mean"]
    [[tables]]
    name = "by_field"       # its folder: tables/by_field/
    by = ["field"]
    [[tables]]
    name = "adults"
    by = ["field", "gender"]
    where = "age >= 18"
"""

from collections.abc import Mapping, Sequence
from typing import Any

from surveysynth._support.messages import listing, nearest
from surveysynth.errors import InputError
from surveysynth.estimation.subpopulation import levels_held
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.where import Relation, Value, columns_of, parse_where, relations

TABLES, ALL_TABLES = "tables", "all_tables"
#: The field of a specification that holds the section [all_tables].
_SHARED = "shared"
#: Keys of one table among several.
OWN = ("name", "where")
#: Keys of all tables of a release together.
OF_RELEASE = ("linearisation", "microdata", "microdata_digits")


def folded(given: Any) -> Any:
    """Return the sections of a file with ``tables`` as a list of whole sections.

    ``shared`` is the section [all_tables] where the file has [[tables]]. Raises ``ValueError`` for
    keys in the wrong section.
    """
    if not isinstance(given, Mapping):
        return given
    if _SHARED in given:
        raise ValueError(f"{_SHARED}: unknown section. Use [{ALL_TABLES}].")
    tables = given.get(TABLES, {})
    if not isinstance(tables, list | tuple):
        if ALL_TABLES in given:
            raise ValueError(
                f"{ALL_TABLES}: this section is for several [[tables]]; with one [tables], put its "
                "keys there."
            )
        return {**given, TABLES: (tables,)} if TABLES in given else given
    shared = given.get(ALL_TABLES, {})
    problems = _misplaced(shared, tables)
    if problems:
        raise ValueError("\n".join(problems))
    default = shared if isinstance(shared, Mapping) else {}
    default = {key: value for key, value in default.items() if key != "title"}
    whole = tuple({**default, **own} if isinstance(own, Mapping) else own for own in tables)
    rest = {key: value for key, value in given.items() if key != ALL_TABLES}
    return {**rest, TABLES: whole, _SHARED: shared}


def _misplaced(shared: Any, tables: Sequence[Any]) -> list[str]:
    if not tables:
        return [f"{TABLES}: expected at least one table."]
    problems = [
        f"{ALL_TABLES}.{key}: this key belongs to one table; move it to one of [[tables]]."
        for key in OWN
        if isinstance(shared, Mapping) and key in shared
    ]
    problems += [
        f"{TABLES}[{number}].{key}: this key is for all tables; move it to [{ALL_TABLES}]."
        for number, own in enumerate(tables, start=1)
        for key in OF_RELEASE
        if isinstance(own, Mapping) and key in own
    ]
    names = [own.get("name") for own in tables if isinstance(own, Mapping)]
    lower = [name.casefold() if isinstance(name, str) else None for name in names]
    for number, name in enumerate(names, start=1):
        if name is None:
            problems.append(
                f"{TABLES}[{number}].name: missing; each of several tables needs a name, which "
                'also names its folder, such as name = "income_by_region".'
            )
        elif isinstance(name, str) and lower.index(name.casefold()) < number - 1:
            problems.append(
                f"{TABLES}[{number}].name: another table is also named {name!r}; rename one."
            )
    return problems


def unfolded(content: dict[str, Any]) -> dict[str, Any]:
    """Return the sections as a file has them; the inverse of ``folded``."""
    if TABLES not in content:
        return content
    if _SHARED not in content:
        (alone,) = content[TABLES]
        return {**content, TABLES: alone}
    shared = content[_SHARED]
    own = [
        {key: value for key, value in each.items() if key == "title" or shared.get(key) != value}
        for each in content[TABLES]
    ]
    rest = {key: value for key, value in content.items() if key not in (_SHARED, TABLES)}
    return {**rest, ALL_TABLES: shared, TABLES: own}


def section_of(location: Sequence[int | str], keys: Sequence[str]) -> (
    tuple[str, tuple[str, ...]]
):
    """Return the name of an unknown key's section in a file, and those ``keys`` that it may have.

    Some keys belong to one table, others to all tables.
    """
    section = str(location[0])
    if section == "calibration":
        return "[calibration]", tuple(keys)
    if section == TABLES and isinstance(location[1], int):
        return f"[{TABLES}]", tuple(key for key in keys if key not in OF_RELEASE)
    refused = {TABLES: OWN[:1], ALL_TABLES: OWN}.get(section, ())
    return section, tuple(key for key in keys if key not in refused)


def inherited(location: Sequence[int | str], content: Mapping[str, Any]) -> bool:
    """Return True for a mistake in a key that a table has from ``all_tables``, reported there."""
    tables = content.get(TABLES)
    if len(location) < 3 or location[0] != TABLES or not isinstance(tables, list | tuple):
        return False
    own = tables[int(location[1])]
    return isinstance(own, Mapping) and location[2] not in own


def as_written(location: tuple[int | str, ...], content: Mapping[str, Any]) -> (
    tuple[int | str, ...]
):
    """Return the place of a mistake in the file, from its place after ``folded``."""
    if location[:1] == (_SHARED,):
        return (ALL_TABLES, *location[1:])
    if location[:1] == (TABLES,) and not isinstance(content.get(TABLES), list | tuple):
        return (TABLES, *location[2:])
    return location


def where_problems(
    text: str | None, declared: Sequence[Outcome], public: Sequence[str], weight: str | None
) -> list[str]:
    """Return the columns and levels that the condition of a table cannot use.

    ``public``: columns that are public and in the model; ``weight``: the confidential weight.
    """
    if text is None:
        return []
    condition = parse_where(text)
    outcomes = {outcome.name: outcome for outcome in declared}
    known = (*public, *(each.name for each in declared if not each.is_amount))
    problems = []
    for name in columns_of(condition):
        place = next(each.place for each in relations(condition) if each.column == name)
        if name in outcomes and outcomes[name].is_amount:
            problems.append(
                f"tables.where: character {place}: {name!r} is an amount; a condition uses "
                "public columns, and binary or categorical outcomes. Declare its classes as a "
                "separate outcome."
            )
        elif name == weight:
            problems.append(
                f"tables.where: character {place}: {name!r} is the weight, which is "
                "confidential; a condition uses public columns, and binary or categorical "
                "outcomes."
            )
        elif name not in known:
            problems.append(
                f"tables.where: character {place}: {name!r} is not among the columns that the "
                f"model knows ({listing(known) or 'none'}).{nearest(name, known)} To use "
                "it, name it in tables.by or synthesizer.predictors, so that synthetic records "
                "have it."
            )
    return problems or [
        f"tables.where: {problem}"
        for each in relations(condition)
        if each.column in outcomes
        for problem in _of_outcome(each, outcomes[each.column])
    ]


def _of_outcome(relation: Relation, outcome: Outcome) -> list[str]:
    """Return the literals that are no levels of an outcome; declared levels are public."""
    levels, place = outcome.category_names, f"character {relation.place}:"
    known: set[Value] = set(levels)
    if relation.of_numbers:
        try:
            levels_held(relation, levels)  # which are then numbers
        except InputError as error:
            return [str(error)]
        known = {float(level) for level in levels}
    unknown = [value for value in relation.values if value not in known]
    if unknown and relation.operator in ("==", "!=", "in", "not in"):
        return [
            f"{place} {unknown[0]!r} is not among the levels of {outcome.name!r}, "
            f"{listing(levels)}.{nearest(str(unknown[0]), levels)}"
        ]
    if not levels_held(relation, levels).any():
        return [f"{place} no level of {outcome.name!r} satisfies this: {listing(levels)}."]
    return []
