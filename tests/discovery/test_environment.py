"""The game: its reward on a table worked by hand, and its bookkeeping."""

import numpy as np
import pytest

from tests.discovery.planted import by_hand, planted_tables
from vesalius.errors import BadInput
from vesalius_mechrl.environment import Episodes
from vesalius_mechrl.tables import CONTROL_SEED_OFFSET, Tables


def test_the_weight_scales_the_control_alone() -> None:
    tables = by_hand()
    assert Tables(tables.heads, tables.tasks, tables.control, weight=2, rows=2).episode("t", 0).tolist() == [
        1.5,
        -1,
        -1.5,
    ]
    assert Tables(tables.heads, tables.tasks, rows=2).episode("t", 0).tolist() == [2, -1, 0.5]


def test_rows_are_drawn_by_the_published_seeds() -> None:
    tables = planted_tables(best={"t": 3})
    task = np.random.default_rng(77).choice(64, 32, replace=False)
    control = np.random.default_rng(77 + 13103).choice(64, 32, replace=False)
    assert CONTROL_SEED_OFFSET == 13103
    assert tables.control is not None
    expected = tables.tasks["t"][task].mean(0) - tables.control[control].mean(0)
    assert tables.episode("t", 77) == pytest.approx(expected, abs=1e-5)


def test_published_planning_forgets_what_it_paid_for_and_the_corrected_does_not() -> None:
    candidates = np.array([[4, 7, 9]])
    paper, corrected = (Episodes(planted_tables(best={"t": 7}), 1, paper=flag) for flag in (True, False))
    for games in (paper, corrected):
        games.begin(0, 1, "t")
        reward, head = games.step(candidates)
        assert head.tolist() == [7]
        assert reward[0] == games.rewards[0, 7]
        assert games.queries.tolist() == [3]
    assert np.flatnonzero(paper.tried[0]).tolist() == [7]
    assert np.flatnonzero(corrected.tried[0]).tolist() == [4, 7, 9]
    assert (paper.used[0], corrected.used[0]) == (1, 3)
    paper.step(np.array([[4, 9, 2]]))
    assert paper.queries.tolist() == [4]


def test_a_task_without_a_label_shows_none_and_a_primed_one_shows_the_other() -> None:
    tables = planted_tables(best={"new": 1})
    for prime, shown in ((None, [0, 0]), ("b", [0, 1])):
        games = Episodes(tables, 1, labels=("a", "b"), prime=prime)
        games.begin(0, 0, "new")
        assert games.observe()[0, :2].tolist() == shown


def test_bad_tables_are_refused() -> None:
    heads = ("L0H0", "L0H1")
    good = np.zeros((4, 2), np.float32)
    with pytest.raises(BadInput, match="not finite"):
        Tables(heads, {"t": np.full((4, 2), np.nan)}, rows=4)
    with pytest.raises(BadInput, match="an episode draws 5"):
        Tables(heads, {"t": good}, rows=5)
    with pytest.raises(BadInput, match="2 columns"):
        Tables(heads, {"t": np.zeros((4, 3))}, rows=4)
