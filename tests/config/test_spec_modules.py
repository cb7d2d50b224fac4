"""``modules`` in ``[privacy]``. Truth: divisions of outcomes that hypothesis draws, which have each
outcome once or are refused; tables whose outcomes are counted by hand."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.config.build import noisy_settings_of
from surveysynth.config.spec import Spec, parse_spec
from surveysynth.errors import InputError

NAMES = ["pay", "work", "sick", "rooms"]
TEXT = """
[survey]
data = "survey.csv"
weight = "weight"
population_size = 9000
[synthesizer]
model = "fbs"
[outcomes.pay]
range = [0, 1000]
[outcomes.work]
kind = "categorical"
levels = ["full", "part"]
[outcomes.sick]
kind = "binary"
[outcomes.rooms]
kind = "count"
range = [0, 9]
[privacy]
mechanism = "noisy_statistics"
epsilon = 3.6
modules = {modules}
[tables]
by = {by}
statistics = {statistics}
"""


def spec_of(
    modules: Sequence[Sequence[str]], by: Sequence[str] = ("region",),
    statistics: Sequence[str] = ("mean",), **tables: str,
) -> Spec:  # fmt: skip
    text = TEXT.format(
        modules=json.dumps(modules), by=json.dumps(by), statistics=json.dumps(statistics)
    )
    return parse_spec(text + "\n".join(f'{key} = "{value}"' for key, value in tables.items()))


@given(st.lists(st.lists(st.sampled_from([*NAMES, "wages"]), max_size=4), max_size=4))
def test_lists_that_have_each_outcome_once_are_taken_and_others_refused(
    modules: list[list[str]],
) -> None:
    whole = sorted(name for names in modules for name in names) == sorted(NAMES)
    if not modules or (whole and len(modules) > 1 and all(modules)):
        made = noisy_settings_of(spec_of(modules)).modules
        assert made == tuple(tuple(names) for names in modules)
        return
    with pytest.raises(InputError, match=r"privacy\.modules"):
        spec_of(modules)


DIVIDED = [["pay", "work"], ["sick", "rooms"]]


@pytest.mark.parametrize("first", ["work", "sick"])
@pytest.mark.parametrize(
    ("statistic", "used"),
    [
        ("count", []), ("share", ["work", "sick"]), ("mean", ["pay", "sick", "rooms"]),
        ("median", ["pay", "rooms"]), ("ratio(pay, rooms)", ["pay", "rooms"]),
    ],
)  # fmt: skip
def test_rows_by_an_outcome_have_estimates_of_its_own_module_alone(
    first: str, statistic: str, used: list[str]
) -> None:
    """Shares are of outcomes with levels, means of amounts and of numbers."""
    of = {name: number for number, names in enumerate(DIVIDED) for name in names}
    if len({of[name] for name in (first, *used)}) == 1:
        assert spec_of(DIVIDED, ["region", first], [statistic]).by == ("region", first)
        return
    with pytest.raises(InputError, match=r"different lists of privacy\.modules"):
        spec_of(DIVIDED, ["region", first], [statistic])


def test_conditions_and_rows_are_of_one_module() -> None:
    assert spec_of(DIVIDED, statistics=["count"], where="work == 'full'").tables[0].where
    for by, where in ((["sick"], "work == 'full'"), (["work", "sick"], "region == 'north'")):
        with pytest.raises(InputError, match=r"tables\.by and where: rows would combine"):
            spec_of(DIVIDED, ["region", *by], ["count"], where=where)
    with pytest.raises(InputError, match=r"'ratio.pay, rooms.': rows would combine 'pay' with"):
        spec_of(DIVIDED, statistics=["ratio(pay, rooms)"])
    # Public rows combine nothing.
    assert spec_of(DIVIDED, statistics=["mean", "share"], where="region == 'north'").tables


def test_margins_of_calibration_are_of_one_module() -> None:
    margin = '[[calibration]]\nby = ["work", {}]\ntotals = "totals.csv"\n'
    text = TEXT.format(modules=json.dumps(DIVIDED), by='["region"]', statistics='["count"]')
    with pytest.raises(InputError, match="a margin would combine 'work' with 'sick'"):
        parse_spec(text + margin.format('"sick"'))
    assert parse_spec(text + margin.format('"region"')).calibration


def test_modules_are_of_noisy_statistics_alone() -> None:
    text = TEXT.replace("noisy_statistics", "pseudo_posterior").format(
        modules='[["pay", "work"], ["sick", "rooms"]]', by='["region"]', statistics='["mean"]'
    )
    with pytest.raises(InputError, match="modules: only for mechanism = 'noisy_statistics'"):
        parse_spec(text)
