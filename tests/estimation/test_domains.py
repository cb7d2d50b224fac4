"""Table layout against counts by plain pandas queries, row by row."""

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import InputError
from surveysynth.estimation.domains import build_domains

LEVELS = {"field": ["2", "10", "1"], "sex": ["m", "f"], "area": ["x", "y"]}


def random_frame(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {name: rng.choice(levels[:2], n) for name, levels in LEVELS.items()}, dtype=str
    )


@pytest.mark.parametrize("by", [[], ["sex"], ["field", "sex"], ["field", "sex", "area"]])
def test_rows_hold_the_records_that_their_labels_say(by: list[str]) -> None:
    frame = random_frame()
    domains = build_domains(frame, by, LEVELS, {"sex": "Both"})
    n_rows = int(np.prod([1 + len(LEVELS[name]) for name in by], dtype=int))
    assert domains.n_rows == len(domains.n) == n_rows
    assert domains.codes.shape == (2 ** len(by), len(frame))
    margin = {"sex": "Both", "field": "All", "area": "All"}
    for row, labels in domains.table.iterrows():
        inside = np.ones(len(frame), dtype=bool)
        for name in by:
            if labels[name] != margin[name]:
                inside &= (frame[name] == labels[name]).to_numpy()
        assert domains.n[row] == inside.sum()
        member = (domains.codes == row).any(axis=0)
        assert (member == inside).all()
        assert labels["is_margin"] == (not by or any(labels[name] == margin[name] for name in by))


def test_row_order_is_margin_then_levels_as_given() -> None:
    domains = build_domains(random_frame(), ["field", "sex"], LEVELS)
    assert domains.table["field"].tolist() == [x for x in ("All", "2", "10", "1") for _ in range(3)]
    assert domains.table["sex"].tolist() == ["All", "m", "f"] * 4
    assert domains.table.loc[domains.n == 0, "field"].unique().tolist() == ["1"]  # kept, empty


def test_codes_of_other_types_match_levels_as_text() -> None:
    frame = pd.DataFrame({"field": [2, 10, 10, 1]})
    assert build_domains(frame, ["field"], LEVELS).n.tolist() == [4, 1, 2, 1]


def test_value_outside_the_levels_is_counted_not_shown() -> None:
    frame = random_frame()
    frame.loc[[3, 4], "sex"] = "secret"
    frame.loc[5, "sex"] = None
    with pytest.raises(InputError, match=r"3 of 40") as caught:
        build_domains(frame, ["sex"], LEVELS)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("by", "labels", "message"),
    [
        (["sex"], {"sex": "m"}, "one of its levels"),
        (["income"], {}, "'income' is not a column"),
        (["sex", "sex"], {}, "only once"),
    ],
)
def test_unusable_requests(by: list[str], labels: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_domains(random_frame(), by, LEVELS, labels)
