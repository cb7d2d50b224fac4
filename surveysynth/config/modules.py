"""``modules`` in ``[privacy]``: outcomes that have noisy statistics together."""

from collections.abc import Sequence

from surveysynth._support.messages import listing, nearest
from surveysynth.config.calibration_section import CalibrationSection, place_of
from surveysynth.config.tables_section import TablesSection
from surveysynth.estimation.statistics import statistic_of
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.where import columns_of, parse_where

Modules = Sequence[Sequence[str]]
_APART = (
    "which are in different lists of privacy.modules, and the synthetic data have them together "
    "only as far as both go with the weight"
)


def module_problems(
    modules: Modules, outcomes: Sequence[str], margins: Sequence[CalibrationSection] = ()
) -> list[str]:
    """Return why these are not two or more lists that have each outcome once.

    ``margins``: of calibration, none of which may combine outcomes of different lists.
    """
    if not modules:
        return []
    place, named = "privacy.modules", [name for names in modules for name in names]
    problems = [
        f"{place}: {name!r} is not an outcome ({listing(outcomes)}).{nearest(name, outcomes)}"
        for name in dict.fromkeys(named)
        if name not in outcomes
    ]
    problems += [
        f"{place}: {name!r} is in {named.count(name)} lists; each outcome is in one."
        for name in outcomes
        if named.count(name) != 1
    ]
    if len(modules) < 2 or not all(modules):
        problems.append(
            f"{place}: expected two or more lists of outcomes, none of them empty, got "
            f"{len(modules)}; leave it out to model all outcomes together."
        )
    return problems or margin_problems(modules, margins)


def margin_problems(modules: Modules, margins: Sequence[CalibrationSection]) -> list[str]:
    """Return the margins of calibration that would combine outcomes of different modules."""
    of = {name: number for number, names in enumerate(modules) for name in names}
    problems = []
    for number, each in enumerate(margins):
        named = [name for name in (*each.by, each.amount) if name in of]
        apart = [name for name in named if of[name] != of[named[0]]]
        if apart:
            problems.append(
                f"{place_of(number)}: a margin would combine {named[0]!r} with {apart[0]!r}, "
                f"{_APART}. Give each a margin of its own."
            )
    return problems


def apart_problems(
    modules: Modules, tables: TablesSection, declared: Sequence[Outcome]
) -> list[str]:
    """Return what would combine outcomes of different modules in one row of a table."""
    of = {name: number for number, names in enumerate(modules) for name in names}
    conditioned = () if tables.where is None else columns_of(parse_where(tables.where))
    rows = [name for name in dict.fromkeys((*tables.by, *conditioned)) if name in of]
    used = {"by and where": [()]} | {
        f"statistics: {name!r}": _together(name, tables, declared) for name in tables.statistics
    }
    problems = []
    for what, sets in used.items() if of else ():
        for names in sets:
            combined = [name for name in (*rows, *names) if name in of]
            apart = [name for name in combined if of[name] != of[combined[0]]]
            if apart:
                problems.append(
                    f"tables.{what}: rows would combine {combined[0]!r} with {apart[0]!r}, "
                    f"{_APART}. Put them in one list, or make these rows without one of them."
                )
                break
    return problems


def _together(
    name: str, tables: TablesSection, declared: Sequence[Outcome]
) -> list[tuple[str, ...]]:
    """Return the outcomes that one estimate of a statistic needs, for each estimate."""
    statistic = statistic_of(name)
    if statistic.of:
        return [tuple(statistic.of)]
    columns = statistic.columns(declared, tables.by)
    return [(declared[j].name,) for j in columns if j is not None]
