"""What heads with a positive synergy are to each other: worked by hand, and in a model that is set by hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.discovery.sets.tables import FunctionSource
from vesalius_mechrl.documents import BackupGroup
from vesalius_mechrl.sets.discover import discover_sets
from vesalius_mechrl.sets.planted import plant
from vesalius_mechrl.sets.sources import HeadSet
from vesalius_mechrl.sets.synergy import confirm

PAIR, TRIPLE = frozenset({0, 1}), frozenset({0, 1, 2})
ONE, OTHER = frozenset({0}), frozenset({1})


def by_table(table: dict[HeadSet, float]) -> Callable[[HeadSet], float]:
    return lambda members: table.get(members, 0.0)


@pytest.mark.parametrize(
    ("table", "kind", "said"),
    [
        ({ONE: 0.0, OTHER: 0.0, PAIR: 0.6}, "redundant", "L0H0 and L0H1 are mutually redundant (none acts alone)"),
        ({ONE: 0.2, OTHER: 0.1, PAIR: 0.6}, "redundant", "L0H0 and L0H1 are mutually redundant (each acts alone)"),
        ({ONE: 0.3, OTHER: 0.0, PAIR: 0.6}, "backup_of", "L0H1 is a backup of L0H0"),
        ({ONE: -0.4, OTHER: 0.3, PAIR: 0.6}, "backup_of", "L0H0 is a backup of L0H1"),
        ({ONE: -0.4, OTHER: 0.3, PAIR: 0.3}, "opposed", ""),
        ({ONE: -0.4, OTHER: 0.0, PAIR: 0.0}, "opposed", ""),
    ],
)
def test_pairs_by_hand(table: dict[HeadSet, float], kind: str, said: str) -> None:
    """The clean score is 1, so that 0.05 acts alone and a surplus of 0.1 counts. A head that works against the answer
    lowers the sum; with it ablated as well nothing more is lost than by the other alone.
    """
    found = confirm(FunctionSource(2, by_table(table)), [PAIR], least=0.1)
    (tested,) = found.tested
    assert tested.relation is not None
    assert (tested.verdict, tested.relation.kind) == ("backup", kind)
    assert [BackupGroup.model_validate(group.document()).said for group in found.groups] == ([said] if said else [])


def test_two_heads_behind_one() -> None:
    """Head 0 acts; 1 and 2 each take over a part once it is gone, and 3 has nothing to do with them."""

    def effect(members: HeadSet) -> float:
        return 0.2 * (0 in members) + 0.3 * ({0, 1} <= members) + 0.2 * ({0, 2} <= members) + 0.1 * (3 in members)

    source = FunctionSource(4, effect)
    (group,) = confirm(source, [frozenset({0, 1}), frozenset({0, 2}), frozenset({0, 3})], least=0.1).groups
    assert (group.heads, group.relation.acts) == (("L0H0", "L0H1", "L0H2"), ("L0H0",))
    assert group.relation.backups == ("L0H1", "L0H2")
    assert BackupGroup.model_validate(group.document()).said == "L0H1 and L0H2 are backups of L0H0"


def test_who_acts_alone_may_be_open() -> None:
    """Effects alone between 0 and 0.1 from prompt to prompt: their interval holds 0.05."""
    source = FunctionSource(2, by_table({ONE: 0.05, OTHER: 0.3, PAIR: 0.9}))
    even = source.effects

    def uneven(sets: list[HeadSet]) -> np.ndarray:
        wobble = np.tile([0.05, -0.05], 4)[:, None]
        return even(sets) + wobble * np.array([members == ONE for members in sets])

    source.effects = uneven  # type: ignore[method-assign]
    (group,) = confirm(source, [PAIR], least=0.1).groups
    assert (group.relation.kind, group.relation.open) == ("together", ("L0H0",))
    said = BackupGroup.model_validate(group.document()).said
    assert said == "L0H0 and L0H1 matter together (whether L0H0 acts alone is open)"


@settings(max_examples=60)
@given(
    one=st.floats(-1, 1), other=st.floats(-1, 1), both=st.floats(-1, 2), noise=st.floats(0.0, 0.3), seed=st.integers(0)
)
def test_a_pair_is_one_thing_only(one: float, other: float, both: float, noise: float, seed: int) -> None:
    """Never redundant and backup at once, never a backup that acts alone, never a backup where both cost no more than
    the primary; the order of the heads does not matter.
    """
    wobble = np.random.default_rng(seed % 2**32).normal(size=(8, 3)) * noise
    wobble -= wobble.mean(0)

    def relation(first: float, second: float, columns: np.ndarray):
        source = FunctionSource(2, by_table({ONE: first, OTHER: second, PAIR: both}))
        even, place = source.effects, {ONE: 0, OTHER: 1, PAIR: 2}
        source.effects = lambda sets: even(sets) + columns[:, [place[members] for members in sets]]  # type: ignore
        return confirm(source, [PAIR], least=0.1).tested[0].relation

    found, turned = relation(one, other, wobble), relation(other, one, wobble[:, [1, 0, 2]])
    assert (found and found.kind) == (turned and turned.kind)
    if found is None:
        return
    assert not (found.kind == "redundant" and found.backups)
    assert not set(found.backups) & set(found.acts)
    if found.kind == "backup_of":
        assert both - max(one, other) >= 0.1 - 1e-9
        assert min(one, other) < 0.05 < max(one, other)


def test_planted_copies_are_mutually_redundant(tmp_path: Path) -> None:
    """Two heads of which either is enough: neither is behind the other, and the first line says so with a command."""
    planted = plant(seed=11)
    pool = sorted({*planted.copies, *planted.specialists[:3]})
    found = discover_sets(planted.specimen(tmp_path), "pairs", pool=pool, n=16)
    (group,) = found.backup_groups
    names = ",".join(map(str, planted.copies))
    assert (group.relation, ",".join(group.heads)) == ("redundant", names)
    assert found.answer is not None
    assert found.answer["verdict"] == "yes"
    assert "are mutually redundant (none acts alone)" in found.answer["text"]
    assert found.answer["next"].endswith(f"--components {names}")
