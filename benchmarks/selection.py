"""Choosing a connected circuit among 100,000 edges: greedy against the exact integer program, in one run.

    OMP_NUM_THREADS=1 python -m benchmarks.selection --out benchmarks/results/selection.json

A transformer of 16 layers with 16 heads has 101,273 edges. Their values are products: how much a sender matters, how
much a receiver matters (both log-normal, sigma 2) and log-normal noise (sigma 1), as first-order scores are. `share` is
what greedy keeps of the best sum; times are CPU seconds, `ratio` is exact / greedy.
"""

import numpy as np

from benchmarks.measure import progress, report, rivals
from vesalius.discovery.networks import Network, exact_edges, greedy_edges, top_edges
from vesalius.intervene.edges import EdgeGraph

LAYERS, HEADS, BUDGETS, SEEDS = 16, 16, (100, 1000), (0, 1, 2)


def edge_values(network: Network, seed: int) -> np.ndarray:
    """Values of edges by the strength of their ends; the embedding and the logits are strong."""
    rng = np.random.default_rng(seed)
    sending, receiving = np.exp(2 * rng.standard_normal((2, network.n_nodes)))
    sending[0] = receiving[-1] = np.exp(4)
    noise = np.exp(rng.standard_normal(len(network.sender)))
    return sending[network.sender] * receiving[network.receiver] * noise


def selection(seed: int, budget: int) -> dict:
    """One set of values under one budget."""
    network = Network.of(EdgeGraph(LAYERS, HEADS))
    values = edge_values(network, seed)
    progress(f"seed {seed}, budget {budget}")
    kept = {name: choose(network, values, budget) for name, choose in RULES.items()}
    worth = {name: float(values[one].sum()) for name, one in kept.items()}
    timed = rivals(
        lambda: greedy_edges(network, values, budget),
        lambda: exact_edges(network, values, budget),
        repeats=1,
        warm_up=False,
    )
    return {
        "edges": len(values),
        "budget": budget,
        "seed": seed,
        "kept": {name: int(one.sum()) for name, one in kept.items()},
        "share": {name: worth[name] / worth["exact"] for name in ("greedy", "top")},
        "greedy": timed["ours"],
        "exact": timed["theirs"],
        "ratio": timed["ratio"],
    }


RULES = {"top": top_edges, "greedy": greedy_edges, "exact": exact_edges}

if __name__ == "__main__":
    report("selection", [selection(seed, budget) for budget in BUDGETS for seed in SEEDS])
