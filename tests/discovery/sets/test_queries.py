"""Every new set is one query, known sets are free, and budgets that make no sense are refused."""

import pytest

from tests.discovery.sets.tables import FunctionSource, three_heads
from vesalius.errors import BadInput
from vesalius_mechrl.sets.sources import Goal, SetQueries, default_budget
from vesalius_mechrl.strategies import BudgetSpent

A, B, AB = frozenset({0}), frozenset({1}), frozenset({0, 1})


def test_a_set_is_paid_for_once_and_the_empty_set_never() -> None:
    source = FunctionSource(3, len)
    queries = SetQueries(source, 3)
    assert queries.worth([frozenset(), A, B, A]) == [0, 1, 1, 1]
    assert queries.one(A) == 1
    assert (queries.paid, source.asked) == (2, [A, B])


def test_what_the_budget_allows_is_bought_before_it_ends() -> None:
    queries = SetQueries(FunctionSource(3, len), 2)
    with pytest.raises(BudgetSpent):
        queries.worth([A, B, AB])
    assert queries.measured == [A, B]


@pytest.mark.parametrize("budget", [0, -1, 8])
def test_budgets_that_do_not_fit(budget: int) -> None:
    with pytest.raises(BadInput, match=f"budget of {budget} "):
        SetQueries(FunctionSource(3, len), budget)


def test_one_head_makes_no_set() -> None:
    with pytest.raises(BadInput, match="at least two heads"):
        SetQueries(FunctionSource(1, len))


def test_the_default_budget_pays_for_heads_and_pairs() -> None:
    assert [default_budget(n) for n in (2, 3, 32)] == [3, 6, 528]


def test_worth_subtracts_the_control_and_value_the_price() -> None:
    """d(12) = 5 on the task, 1 on the control with weight 2; two heads at 0.25 each."""
    queries = SetQueries(three_heads(), control=_control(), weight=2.0)
    pair = frozenset({1, 2})
    assert queries.one(pair) == pytest.approx(3)
    assert queries.value(pair, Goal(price=0.25, least=1)) == pytest.approx(2.5)


def test_the_best_set_is_the_smaller_one_of_equals() -> None:
    queries = SetQueries(FunctionSource(3, lambda members: float(0 in members)))
    queries.worth([AB, A])
    assert queries.best(Goal(price=0, least=1)) == A


def _control() -> FunctionSource:
    source = FunctionSource(3, lambda members: 1.0)
    source.heads = three_heads().heads
    return source
