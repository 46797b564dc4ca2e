"""The purse and its spenders: what a look costs, who never beats the oracle, and who finds a planted head."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.discovery.planted import planted_tables
from vesalius.discovery.mechrl.tables import Known, Tables
from vesalius.discovery.search.contest import contest, purse_of, same_for_all, standard_entrants
from vesalius.discovery.search.purse import Purse, Spent
from vesalius.discovery.search.rivals import full_sweep, halving, in_order, layers_first, random_order, spend, thompson
from vesalius.errors import BadInput


def with_attribution(tables: Tables, seed: int = 0) -> Tables:
    """The same tables with attributions that are their rows and some noise."""
    rng = np.random.default_rng(seed)
    noisy = {name: table + rng.normal(0, 1, table.shape).astype(np.float32) for name, table in tables.tasks.items()}
    attention = {name: rng.random((*table.shape, 4)).astype(np.float32) for name, table in tables.tasks.items()}
    assert tables.control is not None
    known = Known(noisy, np.zeros_like(tables.control), attention)
    return Tables(tables.heads, tables.tasks, tables.control, tables.weight, tables.rows, tables.unit, known)


def by_hand(budget: float) -> Purse:
    """Three heads on two rows, worth 2, 0.5 and 3 on average."""
    table = np.array([[1.0, 1.0, 6.0], [3.0, 0.0, 0.0]])
    return Purse(lambda head, rows: table[rows, head], 3, 2, budget, lambda: np.array([0.1, 0.3, 0.2]))


def test_the_account_by_hand() -> None:
    purse = by_hand(4.5)
    assert purse.query(0) == 2.0
    assert purse.pull(2) == [6.0]
    assert (purse.spent, purse.trace) == (1.5, [(1.0, 0)])
    assert purse.query(2) == 3.0, "only the row that was missing is paid for"
    assert purse.query(2) == 3.0, "what is known is free"
    assert purse.spent == 2.0
    with pytest.raises(Spent):
        purse.attribute()
    assert purse.query(1) == 0.5
    assert [purse.named_at(budget) for budget in (0.5, 1, 1.9, 2, 9)] == [None, 0, 0, 2, 2]


def test_rows_are_looked_at_in_the_order_given() -> None:
    purse = by_hand(3)
    turned = Purse(purse.look, 3, 2, 3.0, order=np.array([1, 0]))
    assert (list(purse.pull(2)), list(turned.pull(2))) == ([6.0], [0.0])
    assert turned.query(2) == 3.0


def test_attribution_costs_three_queries_and_orders_the_rest() -> None:
    tables = with_attribution(planted_tables(best={"t": 5}))
    purse = purse_of(tables, "t", 1, budget=5)
    spend(standard_entrants(tables, "t", ranking=None)["attribution"](tables, "t", [1], 0)[0], purse, rng())
    order = np.argsort(-tables.attribution("t", 1), kind="stable")
    assert purse.trace == [(3.0, order[0]), (4.0, order[0]), (5.0, purse.named_at(5))]
    assert len(purse.seen[order[1]]) == tables.rows
    with pytest.raises(BadInput, match="no attribution"):
        purse_of(planted_tables(best={"t": 5}), "t", 1, budget=5).attribute()


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@given(seed=st.integers(0, 500), budget=st.integers(1, 24))
@settings(max_examples=10, deadline=None)
def test_nobody_overspends_or_beats_the_oracle(seed: int, budget: int) -> None:
    tables = replace(with_attribution(planted_tables(best={"a": 3, "b": 11}, seed=seed, noise=2.0), seed), rows=4)
    entrants = standard_entrants(tables, "a", ranking=tables)
    rewards = tables.episode("a", seed)
    assert {"random", "layers", "sweep", "static", "attribution", "halving", "thompson"} <= set(entrants)
    for name, entrant in entrants.items():
        purse = spend(entrant(tables, "a", [seed], 0)[0], purse_of(tables, "a", seed, budget=budget), rng())
        assert purse.spent <= budget + 1e-6, name
        paid = sum(map(len, purse.seen)) / tables.rows + (3 if name == "attribution" and budget >= 3 else 0)
        assert paid == pytest.approx(purse.spent)
        assert all(rewards[head] <= rewards.max() for _, head in purse.trace)
        assert [at for at, _ in purse.trace] == sorted(at for at, _ in purse.trace)
    found = contest(entrants, tables, "a", seeds=2, episodes=2, budgets=(budget,))
    assert all(min(regret.mean) >= 0 for regret in found.methods)


@pytest.mark.parametrize(("search", "budget"), [(halving, 16), (thompson(), 12), (full_sweep, 20), (random_order, 20)])
def test_a_planted_head_is_found_within_the_budget(search: object, budget: int) -> None:
    tables = planted_tables(best={"t": 13})
    for number in range(5):
        purse = spend(search, purse_of(tables, "t", number, budget=budget), rng())  # type: ignore[arg-type]
        assert purse.named_at(budget) == 13


def test_halving_sees_every_head_and_spends_its_budget() -> None:
    """20 heads, 4 rows, 10 queries: 40 looks. Rounds of 20, 10, 5, 3 and 2 heads, one look each."""
    tables = replace(planted_tables(best={"t": 13}), rows=4)
    purse = spend(halving, purse_of(tables, "t", 0, budget=10), rng())
    assert [len(values) > 0 for values in purse.seen] == [True] * 20
    assert sorted(map(len, purse.seen), reverse=True)[:5] == [4, 4, 4, 3, 3]
    assert purse.named_at(10) == 13
    assert spend(halving, purse_of(tables, "t", 0, budget=2.5), rng()).spent == 2.5, "10 of the 20 heads, one look each"


def test_thompson_looks_further_although_the_first_heads_are_noisy() -> None:
    """Four heads are worth 0.5 with noise of 3, one is worth 2, the others nothing, with noise of 0.1.

    With the pooled noise taken from the spread of the means, as it once was, 4 of the 10 searches gave up too soon.
    """
    dice = np.random.default_rng(5)
    table = dice.normal(0, 0.1, (32, 200))
    table[:, :4] = dice.normal(0.5, 3, (32, 4))
    table[:, 199] += 2
    for seed in range(10):
        purse = Purse(lambda head, rows: table[rows, head], 200, 32, 20.0)
        assert spend(thompson(), purse, np.random.default_rng(seed)).named_at(20) == 199


def test_layers_come_in_order_and_a_sweep_answers_at_its_end() -> None:
    tables = planted_tables(best={"t": 13})
    purse = purse_of(tables, "t", 0, budget=6)
    spend(layers_first, purse, rng())
    looked = [head for head, values in enumerate(purse.seen) if values]
    assert set(looked[:4]) == {0, 1, 2, 3}, "L0H0 to L0H3 first"
    assert set(looked[4:]) < {4, 5, 6, 7}
    assert spend(full_sweep, purse_of(tables, "t", 0, budget=19), rng()).trace == []


def test_regret_by_hand() -> None:
    """One row, all drawn: the best is worth 5; the order names heads worth 1, 1 and 5; blindly it is their mean."""
    tables = Tables(("L0H0", "L0H1", "L0H2"), {"t": np.array([[1.0, 5.0, 0.0]])}, rows=1)
    found = contest(
        {"order": same_for_all(in_order([0, 2, 1]))}, tables, "t", seeds=1, episodes=2, budgets=(0.5, 1, 2, 3)
    )
    assert found.oracle == 5
    assert found.methods[0].budgets == (0.5, 1, 2, 3)
    assert found.methods[0].mean == pytest.approx((3.0, 4.0, 4.0, 0.0))
    assert found.methods[0].low is None
