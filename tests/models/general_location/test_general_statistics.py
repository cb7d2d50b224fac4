"""When FBS and FBP take the general form, its groups, and its sufficient statistics: rows that have
the moments of the records, which are sums over records."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.models import get_model
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.groups import covariance_groups
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.records import GeneralRecords
from surveysynth.models.general_location.stats import GroupRows
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.pooling import NEAR, Pooling
from tests.models.general_location.general_cases import (
    ALL,
    BENEFIT,
    BY,
    GAIN,
    INCOME,
    TAX,
    WORK,
    confidential_of,
    draw,
    general_design,
    model_for,
    random_theta,
)


def records_and_weights(by: tuple[str, ...] = BY) -> tuple[GeneralRecords, np.ndarray]:
    design, model = general_design(400, (*ALL, TAX, GAIN)), model_for(by)
    theta = draw(random_theta(model, design, 1), 0)
    rng = np.random.default_rng(2)
    survey = confidential_of(design, model.simulate(theta, design, rng))
    return model.records(design, survey), rng.random(400)


def test_continuous_outcomes_without_groups_keep_the_papers_models() -> None:
    design = general_design(300, (INCOME,))
    for name in ("fbs", "fbp", "normal"):
        model = get_model(name)
        assert model.of(design) is model


def test_the_general_form_is_taken_where_it_is_needed() -> None:
    design = general_design(600, (INCOME,))
    bounded = Outcome("income", upper=4.0)
    for name in ("fbs", "fbp"):
        for model, of in (
            (get_model(name), replace(design, outcomes=(BENEFIT,))),
            (get_model(name), replace(design, outcomes=(bounded,))),
            (get_model(name, covariance_by=["region"]), design),
        ):
            general = model.of(of)
            assert general is not model
            assert (general.name, general.tilted) == (name, name == "fbp")
            assert "general location" in general.title
            assert general.of(of) is general
    # Unasked, every amount has groups: the cells of by and strata columns.
    unasked = get_model("fbs", covariance_by=None)
    assert unasked.of(design).covariance_by == BY
    assert unasked.of(replace(design, outcomes=(BENEFIT,))).covariance_by == BY
    stratified = replace(design, by=BY[:1], strata_name=BY[1])
    assert unasked.of(stratified).covariance_by == BY[::-1]  # strata first
    assert get_model("fbp", covariance_by=None).of(design).covariance_by == BY
    paper = get_model("fbp", covariance_by=None, smoothing="outcome")
    assert paper.of(design) is paper
    # One group is none.
    one = replace(design, by=(), strata_name=None)
    assert unasked.of(one) is unasked
    clustered = replace(design, psu=np.arange(600) // 10, psu_name="psu")
    assert unasked.of(clustered).covariance_by == BY
    assert get_model("fbp", covariance_by=None).of(clustered).covariance_by == BY
    grouped = get_model("fbs", covariance_by=["region"])
    assert grouped.of(replace(clustered, design_effect=2.0)) is not grouped
    both = grouped.of(clustered)
    assert both.covariance_by == ("region",)
    theta, rng = draw(random_theta(both, clustered, 1), 0), np.random.default_rng(1)
    data = both.simulate(theta, clustered, rng)
    records = both.records_from_simulated(clustered, data)
    with pytest.raises(InputError, match=r"no effects of primary sampling units.*design_effect"):
        both.compress(records, np.ones(600))
    assert get_model("fbp", covariance_by=["region"]).of(clustered).covariance_by == ("region",)


def test_a_layout_without_a_split_is_what_it_was() -> None:
    """A column of z for each amount, there in category 0, after all before it: with the same
    columns in the same order the same random numbers give the same draws, to the bit."""
    layout = Layout.of(general_design(60, ALL), True)
    assert [part.name for part in layout.regressions] == ["1", "3", "5", "weight"]
    category = np.random.default_rng(1).integers(0, 2, (50, 5))
    category[:, 2] = 0
    there = layout.present(category)
    np.testing.assert_array_equal(there[:, 3], True)
    for part, j in zip(layout.regressions, (0, 2, 4), strict=False):
        np.testing.assert_array_equal(part.earlier, np.arange(part.position))
        np.testing.assert_array_equal(there[:, part.position], category[:, j] == 0)
    # With one, above and below are columns of their own, neither of which explains the other.
    split = Layout.of(general_design(60, (INCOME, TAX, BENEFIT)), True)
    assert [part.name for part in split.regressions] == ["1", "2", "2_below", "3", "weight"]
    assert [part.earlier.tolist() for part in split.regressions] == [
        [], [0], [0], [0, 1, 2], [0, 1, 2, 3],
    ]  # fmt: skip
    category = np.array([[0, 0, 0], [0, 1, 0], [0, 2, 1]])
    np.testing.assert_array_equal(
        split.present(category), [[1, 1, 0, 1, 1], [1, 0, 1, 1, 1], [1, 0, 0, 0, 1]]
    )
    x, ones = np.ones((3, split.columns)), np.eye(split.width)[0]
    tilde = split.tilde(x, category)
    told = np.column_stack([tilde @ split.presence(position, ones) for position in range(5)])
    np.testing.assert_array_equal(told, split.present(category))


def test_at_full_weight_both_parts_are_those_of_the_records() -> None:
    """Coefficients of a side are its own records' least squares, by hand; of both sides pooled
    they are not."""
    design, model = general_design(1_500, (TAX,)), model_for(residual_scale=1.0)
    theta = draw(random_theta(model, design, 1), 0)
    for name, centre in (("1", 2.0), ("1_below", 0.5)):
        theta[f"coefficients_{name}"][0] = centre
        theta[f"variance_{name}"][:] = 0.2
    rng = np.random.default_rng(5)
    survey = confidential_of(design, model.simulate(theta, design, rng))
    statistics = model.compress(model.records(design, survey), np.ones(1_500))
    drawn = model.sample(statistics, SamplingPlan(4, 50, 150), rng)
    x, tax = design.matrix.x_cells[design.matrix.cell], survey.outcome[:, 0]
    pooled = np.linalg.lstsq(x[tax != 0], np.abs(tax[tax != 0]), rcond=None)[0]
    for name, sign in (("1", 1.0), ("1_below", -1.0)):
        own, z = x[sign * tax > 0], sign * tax[sign * tax > 0]
        fit = np.linalg.lstsq(own, z, rcond=None)[0]
        spread = np.sqrt(((z - own @ fit) ** 2).mean())
        error = spread * np.sqrt(np.diag(np.linalg.inv(own.T @ own)))
        found = drawn[f"coefficients_{name}"][0].reshape(600, -1)
        assert (np.abs(found.mean(0) - fit) < 0.3 * error).all()
        np.testing.assert_allclose(found.std(0), error, rtol=0.2)
        assert np.abs(pooled - fit).max() > 5.0 * error.max()


def test_other_models_refuse_discrete_outcomes_by_name() -> None:
    design = general_design(100, (WORK,))
    survey = confidential_of(design, model_for().simulate(
        draw(random_theta(model_for(), design, 1), 0), design, np.random.default_rng(1)
    ))  # fmt: skip
    with pytest.raises(InputError, match="'work' is categorical: use the model 'fbs' or 'fbp'"):
        get_model("normal").records(design, survey)
    with pytest.raises(InputError, match="takes one outcome"):
        get_model("fbp").of(general_design(100, (WORK, INCOME)))


def test_small_groups_are_pooled_by_their_margins() -> None:
    design = general_design(1_000, (INCOME,), regions=5)
    names = list(zip(design.frame["region"], design.frame["sex"], strict=True))
    sizes = {pair: names.count(pair) for pair in set(names)}
    for least in (1, 40, 120, 5_000):
        pooling = Pooling(least / NEAR, {}, (), {}, np.ones(1_000, dtype=bool))
        groups = covariance_groups(replace(design, pooling=pooling), BY)
        of_record = groups.cell[design.matrix.cell]
        counts = np.bincount(of_record)
        assert counts.size == groups.count
        assert counts.min() >= min(least, 1_000)
        for pair, size in sizes.items():
            rows = [each == pair for each in names]
            assert len(set(of_record[rows])) == 1
            if size >= least:
                assert groups.labels[of_record[rows][0]] == pair
        pooled = [label for label in groups.labels if len(label) == 1]
        small = {pair[0] for pair, size in sizes.items() if size < least}
        assert {label[0] for label in pooled} <= small
    # Only what is pooled loses a spread of its own.
    pooling = Pooling(2_500.0, {}, (), {}, np.array([pair == names[0] for pair in names]))
    groups = covariance_groups(replace(design, pooling=pooling), BY)
    assert set(groups.labels) == set(sizes) - {names[0]}
    assert covariance_groups(design, BY).count == len(sizes)
    assert covariance_groups(design, ()).count == 1
    with pytest.raises(InputError, match=r"'regoin' is not among.*Did you mean 'region'"):
        covariance_groups(design, ["regoin"])
    frame = design.frame.assign(other=np.arange(1_000) % 2)
    with pytest.raises(InputError, match="records with equal predictors"):
        covariance_groups(replace(design, frame=frame), ["other"])


def moments_of(rows: GroupRows, group: int, pattern: FloatArray) -> FloatArray:
    """(X~, Z)'A(X~, Z) of one block by its rows, of the first database."""
    own = (rows.present[0, group] == pattern).all(1)
    both = np.hstack([rows.x[0, group][own], rows.z[0, group][own]])
    return both.T @ both


def test_statistics_are_sums_over_records() -> None:
    records, alpha = records_and_weights()
    statistics = model_for(BY).compress(records, alpha)
    rows = statistics.rows
    assert rows is not None
    x_rows, group = records.x_rows[records.row], records.row_group[records.row]
    present = records.present[records.row]
    both = np.hstack([x_rows, np.where(present, records.z, 0.0)])
    for g in range(records.groups):
        np.testing.assert_allclose(rows.total[0, g], alpha[group == g] @ present[group == g])
        patterns = np.unique(present[group == g], axis=0)
        assert len(patterns) > 3
        for pattern in patterns:
            here = (group == g) & (present == pattern).all(1)
            expected = (both[here].T * alpha[here]) @ both[here]
            np.testing.assert_allclose(moments_of(rows, g, pattern), expected, atol=1e-9)
    # Rows are no more than the moments need.
    blocks = sum(block.columns.size + records.x_rows.shape[1] for block in records.blocks)
    assert rows.present.any(-1).sum() <= blocks
    for part, table, counts in zip(
        records.layout.logits, records.tables, statistics.logits, strict=True
    ):
        rows, code = x_rows[:, part.columns], records.category[:, part.outcome]
        assert np.unique(table.rows, axis=0).shape == table.rows.shape
        for row, found in zip(table.rows, counts.counts[0], strict=True):
            here = (rows == row).all(1)
            expected = [alpha[here & (code == c)].sum() for c in range(part.categories)]
            np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_block_has_no_more_rows_than_moments() -> None:
    """One group of many cells: as many rows as columns; no digits are lost far from zero."""
    design = general_design(3_000, (INCOME,), regions=12)
    rng = np.random.default_rng(1)
    z = 1e6 + rng.standard_normal((3_000, 2))
    records = model_for().records_from_simulated(design, Simulated(z))
    rows = model_for().compress(records, np.ones(3_000)).rows
    assert rows is not None
    x = design.matrix.x_cells[design.matrix.cell]
    assert rows.x.shape[2] == x.shape[1] + 2 < x.shape[0]
    fit = np.linalg.lstsq(x, z, rcond=None)[0]
    expected = ((z - x @ fit) ** 2).sum(0)
    found = ((rows.z[0, 0] - rows.x[0, 0] @ fit) ** 2).sum(0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    # Sums of squares of z itself have lost them.
    lost = (z * z).sum(0) - (fit * (x.T @ z)).sum(0)
    assert (np.abs(lost / expected - 1.0) > 1e-4).any()


def test_a_record_of_weight_two_is_a_record_twice() -> None:
    records, alpha = records_and_weights()
    twice = np.repeat(np.arange(400), 2)
    doubled = GeneralRecords(
        records.layout, records.x_cells, records.cell[twice], records.category[twice],
        records.z[twice], records.group_of_cell, records.groups,
    )  # fmt: skip
    model = model_for(BY)
    one, two = model.compress(records, alpha), model.compress(doubled, alpha[twice] / 2)
    assert one.rows is not None
    assert two.rows is not None
    for g in range(records.groups):
        for pattern in np.unique(one.rows.present[0, g], axis=0):
            np.testing.assert_allclose(
                moments_of(one.rows, g, pattern), moments_of(two.rows, g, pattern), atol=1e-9
            )
    np.testing.assert_allclose(one.rows.total, two.rows.total)
