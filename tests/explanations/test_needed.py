"""Rules about what is needed and what stands in, on effects that are given: no model is run."""

import itertools
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vesalius.components import Component
from vesalius.explanations.claims import BackupOf, Necessary, NotNeededAlone, Redundant, Together, check
from vesalius.explanations.laboratory import NaturalLab, Replacement
from vesalius.explanations.natural.grouping import Groups, Redundancy
from vesalius.explanations.natural.proposing import refuted_by
from vesalius.statistics import counted_interval, exact_share_interval

A, B = Component(0, 0), Component(0, 1)


class GivenEffects(NaturalLab):
    """A laboratory whose effects and lost answers are given by set and replacement."""

    replacements = get_args(Replacement)  # type: ignore[assignment]
    scale = 1.0  # type: ignore[assignment]
    looks_first = False  # type: ignore[assignment]

    def __init__(self, n: int, effects: dict[tuple[frozenset[Component], str], tuple[Any, Any]]) -> None:
        self.n, self.seed, self.settled, self.circuit, self.name = n, 0, {}, (), "given"
        self.model = SimpleNamespace(config=SimpleNamespace(n_layers=1, n_heads=2))  # type: ignore[assignment]
        self.effects = effects

    def losses(self, components: Any, how: str, at: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        return self.effects[frozenset(components), how]

    def effect(self, components: Any, replacement: str) -> torch.Tensor:
        return self.losses(components, replacement)[0]

    def measure(self, sets: Any, replacements: Any, *, n: int | None = None) -> None: ...

    def answers(self, sets: Any, how: str, at: str | None) -> list[Any]:
        return []

    def matched(self, component: Component, *, exclude: Any = (), k: int = 4) -> list[Component]:
        return []


def drawn(n: int, mean: float, spread: float, lost: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(seed)
    return mean + spread * torch.randn(n, generator=noise), (torch.rand(n, generator=noise) < lost).float()


figures = st.tuples(
    st.sampled_from([-0.05, 0.0, 0.03, 0.05, 0.08, 0.3, 0.8]),
    st.sampled_from([0.0, 0.01, 0.1, 0.4]),
    st.sampled_from([0.0, 0.02, 0.06, 0.5]),
    st.integers(0, 50),
)


@settings(max_examples=150, deadline=None)
@given(n=st.sampled_from([8, 16, 64, 128]), by=st.lists(figures, min_size=4, max_size=4))
def test_necessary_and_not_needed_alone_never_stand_together(n: int, by: list[tuple[float, float, float, int]]) -> None:
    kinds = get_args(Replacement)
    lab = GivenEffects(n, {(frozenset([A]), kind): drawn(n, *one) for kind, one in zip(kinds, by, strict=True)})
    spared = [check(NotNeededAlone(component="L0H0", replacement=how), lab) for how in ("zero", "mean")]
    stand = any(one.verdict == "supported" for one in spared)
    for replacement in (None, *kinds):
        needed = check(Necessary(component="L0H0", replacement=replacement), lab)
        assert not (stand and needed.verdict == "supported")
    whole = check(Necessary(component="L0H0"), lab)
    if stand:
        assert whole.verdict == "refuted"


@settings(max_examples=150, deadline=None)
@given(
    n=st.sampled_from([16, 64, 128]),
    by=st.lists(figures, min_size=3, max_size=3),
    how=st.sampled_from(["zero", "resample"]),
)
def test_a_pair_is_redundant_or_one_sided_or_neither(
    n: int, by: list[tuple[float, float, float, int]], how: Any
) -> None:
    sets = [frozenset([A]), frozenset([B]), frozenset([A, B])]
    lab = GivenEffects(n, {(some, how): drawn(n, *one) for some, one in zip(sets, by, strict=True)})
    pair = [("L0H0", ("L0H1",)), ("L0H1", ("L0H0",))]
    redundant = [check(Redundant(component=a, others=b, replacement=how), lab).verdict for a, b in pair]
    backup = [check(BackupOf(component=a, of=b, replacement=how), lab).verdict for a, b in pair]
    assert redundant[0] == redundant[1]  # symmetric
    for one, other in itertools.combinations([redundant[0], *backup], 2):
        assert (one, other) != ("supported", "supported")
    if "supported" in redundant:
        assert check(Together(component="L0H0", others=("L0H1",), replacement=how), lab).verdict == "supported"


@pytest.mark.parametrize(
    ("alone", "other", "both", "kinds"),
    [
        (0.0, 0.0, 0.8, {"together", "redundant"}),  # either is enough
        (0.3, 0.3, 0.9, {"together", "redundant"}),  # both act, and more together
        (0.0, 0.3, 0.9, {"together", "backup_of"}),  # the first acts only once the second is gone
        (0.3, 0.0, 0.9, {"together"}),  # the first is the primary
        (0.5, 0.5, 0.5, set()),  # in series
        (0.4, 0.4, 0.8, set()),  # independent
    ],
)
def test_pairs_worked_by_hand(alone: float, other: float, both: float, kinds: set[str]) -> None:
    effects = {frozenset([A]): alone, frozenset([B]): other, frozenset([A, B]): both}
    lab = GivenEffects(16, {(some, "resample"): drawn(16, mean, 0.01, 0.0, 1) for some, mean in effects.items()})
    claims = [
        Together(component="L0H0", others=("L0H1",)),
        Redundant(component="L0H0", others=("L0H1",)),
        BackupOf(component="L0H0", of=("L0H1",)),
    ]
    assert {one.kind for one in claims if check(one, lab).verdict == "supported"} == kinds


def test_none_lost_of_a_few_prompts_does_not_show_that_none_is() -> None:
    for n, verdict in ((16, "undecided"), (64, "undecided"), (96, "supported")):
        lab = GivenEffects(n, {(frozenset([A]), "zero"): drawn(n, 0.0, 0.01, 0.0, 3)})
        record = check(NotNeededAlone(component="L0H0", replacement="zero"), lab)
        assert record.verdict == verdict
        assert record.evidence[1].high == pytest.approx(1 - 0.025 ** (1 / n), abs=1e-4)


def test_the_interval_of_counts_is_exact() -> None:
    assert exact_share_interval(2, 10) == pytest.approx((0.0252, 0.5561), abs=1e-4)  # Clopper and Pearson's table
    assert counted_interval(torch.tensor([1.0, 1] + [0.0] * 8).numpy(), level=0.95) == pytest.approx(
        (0.0252, 0.5561), abs=1e-4
    )
    low, high = counted_interval(torch.tensor([-1.0, -1] + [0.0] * 8).numpy(), level=0.95)
    assert (low, high) == pytest.approx((-0.5561, -0.0252), abs=1e-4)
    both = counted_interval(torch.tensor([1.0, -1] + [0.0] * 8).numpy(), level=0.95)
    assert both[0] == pytest.approx(-both[1])
    assert both[0] < -0.4


@pytest.mark.parametrize(
    ("zeros", "mean", "verdict"), [(0.0, 0.3, "refuted"), (0.05, 0.3, "undecided"), (0.3, 0.3, "undecided")]
)
def test_what_costs_nothing_refutes_an_open_necessity_and_nothing_else_does(
    zeros: float, mean: float, verdict: str
) -> None:
    """Values of other prompts leave it open; zeros cost nothing, or what lies at the bar, or much."""
    costs = {"zero": (zeros, 0.02), "mean": (mean, 0.02), "resample": (0.055, 0.2), "moved": (0.055, 0.2)}
    lab = GivenEffects(
        128, {(frozenset([A]), kind): drawn(128, *one, 0.0, i) for i, (kind, one) in enumerate(costs.items())}
    )
    asked = check(Necessary(component="L0H0"), lab).model_copy(update={"verdict": "undecided"})
    alone = check(NotNeededAlone(component="L0H0", replacement="zero"), lab)
    settled = refuted_by(alone, asked)
    assert settled.verdict == verdict
    assert (settled.evidence == alone.evidence) == (verdict == "refuted")
    assert refuted_by(None, asked) == asked
    supported = asked.model_copy(update={"verdict": "supported"})
    assert refuted_by(alone, supported) == supported


def test_what_seems_to_stand_in_is_no_control_however_clearly_it_does() -> None:
    groups, other = Groups(), Component(0, 2)
    groups.add(A, Redundancy("redundant", (B,), "zero"))
    groups.leave_out(B, Redundancy("backup_of", (other,), "resample"))
    assert groups.alike() == {A: {B}, B: {A, other}, other: {B}}
