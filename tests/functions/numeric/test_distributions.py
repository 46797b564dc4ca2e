"""Draws are compared with draws: what is the same is seen as the same, and what differs on purpose as different."""

from benchmarks.function_distributions import Draw, compared, drawn

from vesalius_functions.numeric.expressions import Atom
from vesalius_functions.numeric.function import Corruption, NumericFunction


def function(place: int, **more: object) -> NumericFunction:
    atom = Atom("absolute", (float(place), 1.0))
    return NumericFunction(f"f{place:05d}", atom, kind=more.pop("kind", "clean"), mode="fixed", noise_key=1, **more)  # type: ignore[arg-type]


def test_what_is_compared_by_hand() -> None:
    corrupted = function(2, kind="corrupted", corruption=Corruption("inside", (1.0, 8.5), 0.0))
    draw = Draw([function(1), corrupted, function(3, kind="noised", noise="uniform")], nets=[Atom("sin", (1, 1, 1, 1))])
    assert draw.n == 4
    assert draw.shares["kinds"] == ["clean", "corrupted", "noised", "mlp"]
    assert draw.shares["families"] == ["absolute", "absolute", "absolute", "sin"]
    assert (draw.shares["noise"], draw.shares["corrupted where"]) == (["uniform"], ["inside"])
    assert draw.numbers["scale"] == [1.0, 2.0, 3.0]
    assert draw.numbers["length of a finite interval"] == [7.5]


def test_modes_differ_where_they_should() -> None:
    ours, same = (drawn(400, seed=seed, mode="fixed") for seed in (1, 2))
    paper = drawn(400, seed=3, mode="published")
    alike = {row["property"]: row for row in compared(ours, same)}
    assert alike["kinds"]["p"] == 1  # the shares are exact in every 20
    assert min(row["p"] for row in alike.values()) > 1e-4  # nine properties of one distribution
    other = {row["property"]: row for row in compared(ours, paper)}
    assert other["bias"]["p"] < 1e-6  # within 10 here, within 30 there
    assert other["corrupted where"]["p"] < 1e-3  # only there outside of an interval
