"""Rival circuits where they are known: three heads copy a letter and any two of them are enough."""

from html import unescape
from itertools import combinations
from pathlib import Path

import pytest

import vesalius as ves
from vesalius.cli.console import print_view
from vesalius.discovery.rivals import _nearer
from vesalius.documents.discovery import Discovery
from vesalius.documents.metric import Metric
from vesalius.documents.rivals import Rivals
from vesalius.errors import BadInput
from vesalius_mechrl.sets.planted import plant


@pytest.fixture(scope="module")
def discovery(tmp_path_factory: pytest.TempPathFactory) -> Discovery:
    planted = plant(seed=0, n_layers=2, n_heads=3, copies=3, quorum=2, specialists=0)
    specimen = planted.specimen(tmp_path_factory.mktemp("planted"))
    out = tmp_path_factory.mktemp("rivals")
    return ves.discover(specimen, "sweep", n=8, rivals=3, checks=False, out=out, progress=False)


@pytest.fixture(scope="module")
def rivals(discovery: Discovery) -> Rivals:
    assert discovery.rivals is not None
    return discovery.rivals


COPIES = ("L0H2", "L1H0", "L1H2")


def test_every_pair_of_copies_with_the_mlp_is_a_circuit_and_nothing_else(rivals: Rivals) -> None:
    """Three rivals were asked for beside the best; there are two."""
    known = {frozenset({*pair, "L1_MLP"}) for pair in combinations(COPIES, 2)}
    assert {frozenset(row.components) for row in rivals.circuits} == known
    assert len(rivals.circuits) == 3
    assert all(row.as_faithful and row.faithfulness.value == pytest.approx(1.0) for row in rivals.circuits)
    assert [row.overlap for row in rivals.circuits] == [1.0, 0.5, 0.5]  # two of four shared
    assert rivals.core == ("L1_MLP",)


def test_backups_are_exchangeable_by_intervention(rivals: Rivals) -> None:
    """The best circuit keeps nothing without a copy and everything with the third in its place; in the whole model
    ablating one copy costs nothing, ablating two everything.
    """
    best = set(rivals.circuits[0].components)
    (spare,) = set(COPIES) - best
    assert {(pair.one, pair.other) for pair in rivals.exchangeable} == {(one, spare) for one in best - {"L1_MLP"}}
    for pair in rivals.exchangeable:
        assert (pair.without, pair.exchanged) == (pytest.approx(0.0, abs=0.05), pytest.approx(1.0))
        assert pair.synergy == pytest.approx(1.0, abs=0.05)


def test_ablations_of_backups_speak_for_neither_circuit(rivals: Rivals) -> None:
    """A circuit that holds the ablated copy predicts that all is lost, the other that nothing is; nothing is. Ablating
    a copy of either circuit says so, so that the two ablations contradict each other: the circuits are symmetric.
    """
    pairs = [(0, 1), (0, 1), (0, 2), (0, 2), (1, 2), (1, 2)]
    assert [(one.first, one.second) for one in rivals.distinctions] == pairs
    holders = []
    for one in rivals.distinctions:
        (ablated,) = one.ablated
        holds = ablated in rivals.circuits[one.first].components
        assert holds != (ablated in rivals.circuits[one.second].components)
        predictions = (one.first_predicts, one.second_predicts)
        assert predictions == pytest.approx((0.0, 1.0) if holds else (1.0, 0.0), abs=0.05)
        assert one.outcome.value == pytest.approx(1.0)
        assert one.supports == "neither"
        holders.append(holds)
    assert holders == [True, False] * 3


@pytest.mark.parametrize(
    ("predictions", "interval", "nearer"),
    [
        ((0.9, 0.2), (0.80, 0.85, 0.95), "first"),
        ((0.9, 0.2), (0.10, 0.15, 0.20), "second"),
        ((0.9, 0.2), (0.50, 0.60, 0.70), "neither"),
        ((0.5, 0.5), (0.90, 0.95, 0.99), "neither"),
        ((0.5, 0.5), (0.00, 0.05, 0.09), "neither"),
        ((0.54, 0.5), (0.90, 0.95, 0.99), "neither"),
    ],
)
def test_predictions_that_are_alike_distinguish_nothing(
    predictions: tuple[float, float], interval: tuple[float, float, float], nearer: str
) -> None:
    low, value, high = interval
    assert _nearer(predictions, Metric(value=value, low=low, high=high, n=8)) == nearer


def test_it_is_printed_written_and_on_the_page(discovery: Discovery, capsys: pytest.CaptureFixture[str]) -> None:
    print_view(discovery.view(), top=3)
    assert "core of those as faithful as the best: L1_MLP" in capsys.readouterr().out
    assert discovery.directory is not None
    place = Path(discovery.directory)
    assert Discovery.read(place / "discovery.json").rivals == discovery.rivals
    assert "Rival circuits" in (place / "discovery.html").read_text()
    assert "--rivals 3" in discovery.request.command_line()


@pytest.mark.slow
def test_a_circuit_without_backups_has_no_rival() -> None:
    rivals = ves.discover("frac_prevs", "sweep", n=8, rivals=1, checks=False, progress=False).rivals
    assert rivals is not None
    assert [row.components for row in rivals.circuits] == [("L0_MLP", "L1H2")]
    assert (rivals.exchangeable, rivals.distinctions) == ((), ())
    plan = ves.plan("discover", "frac_prevs", method="sweep", n=8, rivals=1, checks=False, progress=False)
    assert rivals.forwards <= plan.rivals_forwards == (1 + 4) * 2 * 10


def test_refusals() -> None:
    with pytest.raises(BadInput, match="choose 0 to 10"):
        ves.discover("frac_prevs", rivals=11, progress=False)
    with pytest.raises(BadInput, match=r"use `vesalius sets` or ves\.discover_sets"):
        ves.discover("frac_prevs", "sets", rivals=1, progress=False)
    with pytest.raises(BadInput, match="`rivals_by` edges needs a method that scores edges"):
        ves.discover("frac_prevs", "sweep", rivals=1, rivals_by="edges", progress=False)
    with pytest.raises(BadInput, match="'heads' does not exist; choose components"):
        ves.discover("frac_prevs", "eap", rivals=1, rivals_by="heads", progress=False)  # type: ignore[arg-type]


@pytest.mark.slow
def test_by_edges_each_pair_of_copies_is_the_circuit_of_its_five_edges(tmp_path: Path) -> None:
    """A copy reads the token by its values and writes into the MLP, which writes the output; the rest is idle. A backup
    is two edges here, so that no single edge is exchangeable.
    """
    planted = plant(seed=0, n_layers=2, n_heads=3, copies=3, quorum=2, specialists=0)
    specimen = planted.specimen(tmp_path)
    discovery = ves.discover(
        specimen, "eap", n=8, rivals=2, rivals_by="edges", checks=False, out=tmp_path / "out", progress=False
    )
    rivals = discovery.rivals
    assert rivals is not None
    paths = {head: {f"input->{head}<v>", f"{head}->m1"} for head in ("a0.h2", "a1.h0", "a1.h2")}
    known = {frozenset({*paths[one], *paths[other], "m1->logits"}) for one, other in combinations(paths, 2)}
    assert {frozenset(row.edges) for row in rivals.circuits} == known
    assert {frozenset(row.components) for row in rivals.circuits} == {
        frozenset({*pair, "L1_MLP"}) for pair in combinations(COPIES, 2)
    }
    assert (rivals.by, rivals.core, rivals.exchangeable) == ("edges", ("m1->logits",), ())
    for one in rivals.distinctions:
        predictions = sorted((one.first_predicts, one.second_predicts))
        assert predictions == pytest.approx([0.0, 1.0], abs=0.05)
        assert one.outcome.value == pytest.approx(1.0)
    assert "--rivals 2 --rivals-by edges" in discovery.request.command_line()
    assert "L1_MLP->logits" in unescape((tmp_path / "out" / "discovery.html").read_text())
