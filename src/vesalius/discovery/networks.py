"""The best connected circuit within a budget of edges: an edge counts only on a path from the input to the output.

Every edge has a value of at least 0, and a circuit is worth the sum of its edges. Three ways to choose at most `budget`
edges, each of them on a path of chosen edges:

- `top_edges`: the strongest edges wherever they are; then whatever is not on a path is dropped, so that the budget is
  rarely used up.
- `greedy_edges`: from the output backwards, always the strongest edge that enters what is already chosen. Of the budget
  one edge is set aside for each component that has no input yet. A strong edge behind a weak one is missed.
- `exact_edges`: the integer program. With x per edge and y per component: maximise the sum of value * x, subject to
  sum x <= budget, x <= y of both ends, y <= sum of x into it and y <= sum of x out of it. In an acyclic network a
  component with an input and an output lies on a path. For fixed y the rest is a network flow, so only y is integer.
"""

import heapq
import time
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array, csc_array, csr_array
from scipy.sparse.csgraph import breadth_first_order

from vesalius.errors import BadInput, Failed
from vesalius.intervene.edges import EdgeGraph

#: Seconds that the integer program may take.
TIME_LIMIT = 600.0
#: Up to this many edges all enter the integer program.
FEW_EDGES = 1_000
#: Of values whose largest is 1.
_ROUNDING = 1e-9
_TIME_LIMIT_REACHED = 1
Kept = Bool[np.ndarray, " edge"]


@dataclass(frozen=True)
class Network:
    """Edges between nodes in order of computation: 0 is the input, the last node the output."""

    n_nodes: int
    sender: Int[np.ndarray, " edge"]
    receiver: Int[np.ndarray, " edge"]

    @classmethod
    def of(cls, graph: EdgeGraph) -> "Network":
        """The network of a model: q, k and v of a head are inputs of one node."""
        place = {part: i for i, part in enumerate(graph.senders)}
        last = len(graph.senders)
        columns = np.array([last if part is None else place[part] for part, _ in graph.receivers])
        rows, inputs = graph.places.numpy().T
        return cls(last + 1, rows, columns[inputs])

    def on_paths(self, kept: Kept) -> Kept:
        """The kept edges on a path of kept edges from the input to the output."""
        ends = (self.sender[kept], self.receiver[kept])
        forward = _reached(ends, 0, self.n_nodes)
        backward = _reached((ends[1], ends[0]), self.n_nodes - 1, self.n_nodes)
        return kept & forward[self.sender] & backward[self.receiver]


def _reached(ends: tuple[np.ndarray, np.ndarray], start: int, n_nodes: int) -> Bool[np.ndarray, " node"]:
    matrix = csr_array((np.ones(len(ends[0])), ends), shape=(n_nodes, n_nodes))
    reached = np.zeros(n_nodes, dtype=bool)
    reached[breadth_first_order(matrix, start, return_predecessors=False)] = True
    return reached


def top_edges(network: Network, values: Float[np.ndarray, " edge"], budget: int) -> Kept:
    """The strongest edges, less those that are not on a path."""
    _require(network, values, budget)
    strongest = np.argsort(-values, kind="stable")[:budget]
    kept = np.zeros(len(values), dtype=bool)
    kept[strongest[values[strongest] > 0]] = True
    return network.on_paths(kept)


def greedy_edges(
    network: Network, values: Float[np.ndarray, " edge"], budget: int, *, start: Kept | None = None
) -> Kept:
    """From the output backwards, the strongest edge first; `start` is a circuit to be extended."""
    _require(network, values, budget)
    growth = _Growth(network, values, budget)
    if start is not None:
        for edge in sorted(np.flatnonzero(start), key=lambda edge: -network.receiver[edge]):
            growth.take(int(edge))
    growth.run()
    return network.on_paths(growth.kept)


@dataclass
class _Growth:
    """A circuit on its way from the output to the input; `open` nodes are in it and have no input yet."""

    network: Network
    values: np.ndarray
    budget: int
    kept: Kept = field(init=False)
    size: int = 0

    def __post_init__(self) -> None:
        order = np.argsort(-self.values, kind="stable")
        self.entering: list[list[int]] = [[] for _ in range(self.network.n_nodes)]
        for edge in order.tolist():
            self.entering[self.network.receiver[edge]].append(edge)
        self.kept = np.zeros(len(self.values), dtype=bool)
        self.inside = {0, self.network.n_nodes - 1}
        self.open: set[int] = {self.network.n_nodes - 1}
        self.too_dear: dict[int, list[int]] = {}
        self.heap: list[tuple[float, int]] = []
        self._offer(self.entering[self.network.n_nodes - 1])

    def run(self) -> None:
        """Take edges until none fits."""
        while self.heap:
            _, edge = heapq.heappop(self.heap)
            closes = int(self.network.receiver[edge]) in self.open
            if self.kept[edge] or not (self.values[edge] > 0 or closes):
                continue
            sender = int(self.network.sender[edge])
            opens = sender not in self.inside
            if self.size + 1 + len(self.open) - closes + opens <= self.budget:
                self.take(edge)
            elif opens:  # it fits once its sender is in the circuit by another edge
                self.too_dear.setdefault(sender, []).append(edge)

    def take(self, edge: int) -> None:
        """Keep an edge and offer those that enter its sender."""
        sender, receiver = int(self.network.sender[edge]), int(self.network.receiver[edge])
        self.kept[edge] = True
        self.size += 1
        self.open.discard(receiver)
        if sender not in self.inside:
            self.inside.add(sender)
            self.open.add(sender)
            self._offer(self.entering[sender])
            self._offer(self.too_dear.pop(sender, []))

    def _offer(self, edges: list[int]) -> None:
        for edge in edges:
            heapq.heappush(self.heap, (-float(self.values[edge]), edge))


def exact_edges(
    network: Network, values: Float[np.ndarray, " edge"], budget: int, *, time_limit: float = TIME_LIMIT
) -> Kept:
    """The circuit of the largest sum, by the integer program (HiGHS), which stops within a millionth of the largest
    value of the optimum.

    Of a large network only edges that can be in a best circuit enter it. The relaxed program (y between 0 and 1) is
    solved on some edges and extended by those that would improve it, until it bounds the whole network. Its dual prices
    say how much each edge left out would cost at least; an edge that costs more than the bound is above the best
    circuit known is in no better one.
    """
    _require(network, values, budget)
    scale = float(values.max(initial=0.0))
    if not scale or not budget:
        return np.zeros(len(values), dtype=bool)
    program = _Program(network, values / scale, budget, time.monotonic() + time_limit)
    if len(values) <= FEW_EDGES:
        best = program.solve(np.ones(len(values), dtype=bool))
    else:
        entered, bound, cost = program.bounded()
        best = program.solve(entered)
        needed = entered | (cost <= bound - program.worth(best) + _ROUNDING)
        if (needed & ~entered).any():
            best = program.solve(needed)
    return _without_idle(network, values, network.on_paths(best))


@dataclass(frozen=True)
class _Program:
    """The integer program over some edges of a network; `deadline` on the monotonic clock."""

    network: Network
    values: np.ndarray
    budget: int
    deadline: float

    def worth(self, kept: Kept) -> float:
        """What a circuit is worth."""
        return float(self.values[kept].sum())

    def solve(self, entered: Kept) -> Kept:
        """The best circuit of the entered edges."""
        edges, inner = np.flatnonzero(entered), self.network.n_nodes - 2
        rows = self._rows(edges)
        answer = milp(
            np.concatenate([-self.values[edges], np.zeros(inner)]),
            integrality=np.concatenate([np.zeros(len(edges)), np.ones(inner)]),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(rows, ub=self._limits(rows)),  # type: ignore[arg-type]
            options={"mip_rel_gap": 0.0, "time_limit": max(1.0, self.deadline - time.monotonic())},
        )
        if answer.x is None or answer.status == _TIME_LIMIT_REACHED:
            raise self._too_slow()
        kept = np.zeros(len(self.values), dtype=bool)
        kept[edges[answer.x[: len(edges)] > 0.5]] = True
        return kept

    def bounded(self) -> tuple[Kept, float, Float[np.ndarray, " edge"]]:
        """Edges on which the relaxed program has the same optimum as on all, that optimum, and what each edge costs."""
        network, inner = self.network, self.network.n_nodes - 2
        entered = np.zeros(len(self.values), dtype=bool)
        entered[np.argsort(-self.values, kind="stable")[: max(FEW_EDGES, 2 * self.budget)]] = True
        entered |= (network.sender == 0) | (network.receiver == network.n_nodes - 1)
        while True:
            edges = np.flatnonzero(entered)
            objective = np.concatenate([-self.values[edges], np.zeros(inner)])
            rows = self._rows(edges)
            answer = linprog(objective, A_ub=rows, b_ub=self._limits(rows), bounds=(0, 1), method="highs")
            if time.monotonic() > self.deadline:
                raise self._too_slow()
            prices = -answer.ineqlin.marginals
            below, above = (np.zeros(network.n_nodes) for _ in range(2))
            below[1:-1], above[1:-1] = prices[1 : 1 + inner], prices[1 + inner : 1 + 2 * inner]
            cost = prices[0] - self.values - below[network.sender] - above[network.receiver]
            improving = ~entered & (cost < -_ROUNDING)
            if not improving.any():
                return entered, -float(answer.fun), cost
            entered |= improving

    def _rows(self, edges: Int[np.ndarray, " some"]) -> csc_array:
        """The constraints as rows * (x, y) <= limits: the budget, y <= sum x for outputs and inputs, x <= y."""
        n, inner = len(edges), self.network.n_nodes - 2
        entries: list[tuple[np.ndarray, np.ndarray, float]] = [(np.zeros(n, int), np.arange(n), 1.0)]
        every, first = np.arange(inner), 1 + 2 * inner
        for place, ends in enumerate((self.network.sender[edges], self.network.receiver[edges])):
            within = np.flatnonzero((ends > 0) & (ends <= inner))
            node, each = ends[within] - 1, first + np.arange(len(within))
            own = 1 + place * inner
            entries += [(own + every, n + every, 1.0), (own + node, within, -1.0)]
            entries += [(each, within, 1.0), (each, n + node, -1.0)]
            first += len(within)
        rows, columns, numbers = zip(*entries, strict=True)
        filled = np.concatenate([np.full(len(row), number) for row, number in zip(rows, numbers, strict=True)])
        places = (np.concatenate(rows), np.concatenate(columns))
        return csc_array(coo_array((filled, places), shape=(first, n + inner)))

    def _limits(self, rows: csc_array) -> Float[np.ndarray, " row"]:
        assert rows.shape is not None
        limits = np.zeros(rows.shape[0])
        limits[0] = self.budget
        return limits

    def _too_slow(self) -> Failed:
        return Failed(
            f"no circuit of {self.budget} among {len(self.values):,} edges is proven best in time; select greedy"
        )


def _without_idle(network: Network, values: np.ndarray, kept: Kept) -> Kept:
    """The circuit without edges of value 0 that connect nothing."""
    for edge in np.flatnonzero(kept & (values == 0)):
        fewer = kept.copy()
        fewer[edge] = False
        fewer = network.on_paths(fewer)
        if not (kept & ~fewer & (values > 0)).any():
            kept = fewer
    return kept


def _require(network: Network, values: np.ndarray, budget: int) -> None:
    if len(values) != len(network.sender) or not np.isfinite(values).all() or (values < 0).any():
        raise BadInput("values of edges: give one finite number of at least 0 per edge")
    if budget < 0:
        raise BadInput(f"a circuit of {budget} edges is not possible; give at least 0")
