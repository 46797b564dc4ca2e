"""Circuits within a budget of edges: cases worked by hand, all circuits of small networks, and what is refused."""

from collections.abc import Iterator

import numpy as np
import pytest

from vesalius.discovery import networks
from vesalius.discovery.networks import Kept, Network, exact_edges, greedy_edges, top_edges
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph


def network(*edges: tuple[int, int, float]) -> tuple[Network, np.ndarray]:
    """Edges as (sender, receiver, value); 0 is the input, the largest number the output."""
    sender, receiver, values = (np.array(column) for column in zip(*edges, strict=True))
    return Network(int(receiver.max()) + 1, sender, receiver), values.astype(float)


def random_network(seed: int, *, nodes: int = 5, edges: int = 10) -> tuple[Network, np.ndarray]:
    rng = np.random.default_rng(seed)
    pairs = [(s, r) for s in range(nodes - 1) for r in range(s + 1, nodes)]
    chosen = [pairs[i] for i in rng.choice(len(pairs), edges)]
    values = np.round(np.exp(rng.standard_normal(edges)), 3) * (rng.random(edges) < 0.8)
    sender, receiver = np.array(chosen).T
    return Network(nodes, sender, receiver), values


def every_circuit(net: Network, budget: int) -> Iterator[Kept]:
    """All sets of at most `budget` edges that are all on a path."""
    n_edges = len(net.sender)
    for code in range(1 << n_edges):
        kept = (code >> np.arange(n_edges) & 1).astype(bool)
        if kept.sum() <= budget and on_paths_by_search(net, kept) == set(np.flatnonzero(kept)):
            yield kept


def on_paths_by_search(net: Network, kept: Kept) -> set[int]:
    """The edges of all paths of kept edges, walked one by one."""
    found: set[int] = set()

    def walk(node: int, path: list[int]) -> None:
        if node == net.n_nodes - 1:
            found.update(path)
        for edge in np.flatnonzero(kept & (net.sender == node)):
            walk(int(net.receiver[edge]), [*path, edge])

    walk(0, [])
    return found


def test_a_strong_edge_behind_a_weak_one_is_missed_by_greedy() -> None:
    """input -> a -> output is worth 10 + 1, input -> b -> output 3 + 2; backwards from the output b comes first."""
    net, values = network((0, 1, 10), (0, 2, 3), (1, 3, 1), (2, 3, 2))
    assert list(np.flatnonzero(greedy_edges(net, values, 2))) == [1, 3]
    assert list(np.flatnonzero(exact_edges(net, values, 2))) == [0, 2]
    assert list(np.flatnonzero(top_edges(net, values, 2))) == []


def test_a_long_path_is_worth_its_weak_edges() -> None:
    """The chain of 0.1, 9, 0.1 beats the direct edge of 5 and its neighbour once three edges are allowed."""
    edges = ((0, 3, 5.0), (0, 1, 0.1), (1, 2, 9.0), (2, 3, 0.1), (0, 2, 0.2))
    net, values = network(*edges)
    assert [values[exact_edges(net, values, budget)].sum() for budget in range(5)] == pytest.approx(
        [0, 5, 5, 9.2, 14.2]
    )
    assert values[greedy_edges(net, values, 3)].sum() == pytest.approx(5 + 0.2 + 0.1)


@pytest.mark.parametrize("seed", range(8))
def test_exact_is_the_best_of_all_circuits_and_greedy_no_better(seed: int) -> None:
    net, values = random_network(seed)
    for budget in (1, 3, 5):
        best = max(values[kept].sum() for kept in every_circuit(net, budget))
        exact = exact_edges(net, values, budget)
        assert values[exact].sum() == pytest.approx(best)
        for kept in (exact, greedy_edges(net, values, budget), top_edges(net, values, budget)):
            assert kept.sum() <= budget
            assert on_paths_by_search(net, kept) == set(np.flatnonzero(kept))
            assert values[kept].sum() <= best + 1e-9


@pytest.mark.parametrize("budget", [7, 40])
def test_pricing_edges_gives_the_optimum_of_the_whole_program(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a transformer's 479 edges only some enter the program, and it is worth the same."""
    net = Network.of(EdgeGraph(4, 4))
    rng = np.random.default_rng(budget)
    values = np.exp(2 * rng.standard_normal(net.n_nodes))[net.receiver] * np.exp(rng.standard_normal(len(net.sender)))
    whole = exact_edges(net, values, budget)
    entered: list[int] = []
    solve = networks._Program.solve
    monkeypatch.setattr(networks, "FEW_EDGES", 60)
    monkeypatch.setattr(
        networks._Program, "solve", lambda self, some: (entered.append(int(some.sum())), solve(self, some))[1]
    )
    priced = exact_edges(net, values, budget)
    assert values[priced].sum() == pytest.approx(values[whole].sum())
    assert entered[0] < len(values)


def test_greedy_uses_the_whole_budget_of_a_transformer_and_extends_a_start() -> None:
    graph = EdgeGraph(3, 2)
    net, values = Network.of(graph), np.random.default_rng(0).random(graph.n_edges)
    for budget in (1, 2, 9, 30):
        assert greedy_edges(net, values, budget).sum() == budget
    start = greedy_edges(net, values, 5)
    assert (greedy_edges(net, values, 12, start=start) >= start).all()


def test_edges_of_no_value_stay_only_where_they_connect() -> None:
    net, values = network((0, 1, 1), (1, 2, 0), (0, 1, 0))
    assert list(np.flatnonzero(exact_edges(net, values, 4))) == [0, 1]
    assert list(np.flatnonzero(greedy_edges(net, values, 4))) == [0, 1]


def test_refusals() -> None:
    net, values = network((0, 1, 1), (1, 2, 1))
    with pytest.raises(BadInput, match="finite number of at least 0"):
        greedy_edges(net, -values, 1)
    with pytest.raises(BadInput, match="-1 edges is not possible"):
        exact_edges(net, values, -1)
