"""One cap for many processes: it holds, and what a killed process held is counted once."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.runs import stub_work
from vesalius.errors import Failed
from vesalius.runs.engine import map_cases
from vesalius_backbones import CapReached
from vesalius_backbones.runs.access import SharedCap, SpendingFile

HELD = (
    r"cap \$1.00: \$0.0000 is spent, \$0.6000 is held for calls of other jobs that are under way, and the next call"
    r" could cost up to \$0.5000; raise `max_cost` or give fewer `jobs`,"
)


def budget(path: Path, account: str, limit: float = 1.0) -> SharedCap:
    return SharedCap(limit, SpendingFile(path), account)


def test_one_purse_by_hand(tmp_path: Path) -> None:
    ours, theirs = (budget(tmp_path / "spending.json", name) for name in ("a", "b"))
    ours.hold(0.6)
    assert (theirs.left, theirs.spent) == (pytest.approx(0.4), 0.0)
    with pytest.raises(CapReached, match=HELD):
        theirs.hold(0.5)
    ours.settle(0.6, 0.1)
    theirs.hold(0.5)
    theirs.settle(0.5, 0.5)
    assert ours.spent == theirs.spent == pytest.approx(0.6)
    with pytest.raises(CapReached, match=r"\$0.6000 is spent and the next call .* raise `max_cost` and give"):
        ours.hold(0.41)


def test_what_a_killed_process_held_counts_once(tmp_path: Path) -> None:
    """It held 0.5 and died; its record says 0.5 at the most, and whoever opens the record sets the account from it."""
    path = tmp_path / "spending.json"
    budget(path, "a").hold(0.5)
    again = budget(path, "a")
    again.restore("anywhere", 0.5)
    assert again.spent == 0.5
    again.hold(0.5)
    with pytest.raises(CapReached):
        budget(path, "b").hold(0.01)


def test_a_run_begins_from_its_records(tmp_path: Path) -> None:
    path = tmp_path / "spending.json"
    budget(path, "a").hold(0.9)
    SpendingFile(path).begin({"a": (0.25, None), "b": (0.25, None)})
    assert budget(path, "c").spent == 0.5
    path.write_text("{")
    with pytest.raises(Failed, match="damaged; delete it"):
        budget(path, "c").hold(0.1)
    SpendingFile(path).begin({})
    assert budget(path, "c").left == 1.0


def test_processes_never_spend_more_than_the_cap(tmp_path: Path) -> None:
    """Three processes buy at one cent until they may not: a hundred are bought, not one more."""
    path = tmp_path / "spending.json"
    bought = dict(map_cases(stub_work.buy, [(str(path), name) for name in "abc"], jobs=3))
    assert sum(count for count in bought.values() if isinstance(count, int)) == 100
    assert math.isclose(sum(spent for spent, _ in json.loads(path.read_text()).values()), 1.0)


def test_threads_wait_for_each_other(tmp_path: Path) -> None:
    shared = budget(tmp_path / "spending.json", "a", limit=100.0)

    def spend(_: int) -> None:
        shared.hold(1.0)
        shared.settle(1.0, 0.5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(spend, range(40)))
    assert shared.spent == 20.0
