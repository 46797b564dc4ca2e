"""The investigation: components in order of computation, each observed, explained, and put into the program."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from vesalius.components import Component
from vesalius_programs.gathering import ROUTES, Copy
from vesalius_programs.hypotheses import Arguments, TableForm, rank_heads, rank_tables, table_over
from vesalius_programs.observe import (
    ENOUGH,
    MOST_ADDED,
    Observations,
    candidate_pairings,
    observe,
    observe_rare_arguments,
    rare,
)
from vesalius_programs.program import (
    INDICES,
    MEAN_SCALE,
    TOKENS,
    TOLERANCE,
    CircuitProgram,
    Constant,
    Environment,
    Hypothesis,
    Linear,
    refitted,
    simplified,
    with_output,
)
from vesalius_programs.runs import CircuitRuns, Pairings, RecordedRun, exchange_pairings, join

#: Below this score nothing is taken as found, and the variable of the component stays a constant.
FOUND_ABOVE = 0.15
#: Candidates for rare arguments of the output map, per exchange it is fitted on.
RARE_CANDIDATES = 4
#: Hypotheses of a component that stay on record.
KEPT = 12


class Ranked(NamedTuple):
    """One hypothesis of the ranking; a table that was not read off yet is given as a reading."""

    score: float
    hypothesis: Hypothesis | TableForm


@dataclass
class ComponentSearch:
    """What is known of one component: its observations, the ranked hypotheses and the one in use, at `place`; `choice`
    is the place that was asked for.
    """

    observations: Observations
    hypothesis: Hypothesis
    score: float
    ranked: list[Ranked] = field(default_factory=list)
    tried: int = 1
    place: int = 0
    choice: int = 0

    @property
    def simpler(self) -> int | None:
        """The place of the same table without silent positions set apart, or of the named route that a tabulated one
        follows wherever it leads to a position in view: where it leads nowhere, a head attends to anything.
        """
        chosen = self.ranked[self.place].hypothesis if self.ranked else None
        if isinstance(chosen, TableForm):
            return self.place + 1 if chosen.how == "silent" else None
        if not isinstance(chosen, Copy) or chosen.by != INDICES:
            return None
        return next((i for i, (_, other) in enumerate(self.ranked) if _is_named_route_of(other, chosen)), None)

    @property
    def placed(self) -> int | None:
        """The place of the same table with every value at every position apart, where one is offered."""
        forms = (hypothesis for _, hypothesis in self.ranked)
        return next((i for i, form in enumerate(forms) if isinstance(form, TableForm) and form.how == "placed"), None)


@dataclass
class SearchState:
    """Everything the scientist holds while it works."""

    runs: CircuitRuns
    pool: RecordedRun
    findings: dict[Component, ComponentSearch]
    program: CircuitProgram


def _is_named_route_of(other: Hypothesis | TableForm, tabulated: Copy) -> bool:
    if not isinstance(other, Copy) or other.of != tabulated.of or other.by is not None or other.needs_length:
        return False
    leads = ROUTES[other.route]
    route = {place: target for (_, place), target in tabulated.table.items()}
    return all(leads(place, 0) == target for place, target in route.items() if leads(place, 0) in route)


def feeds(sender: Component, receiver: Component) -> bool:
    """Whether the sender is computed before the receiver can read it."""
    return sender.layer < receiver.layer or (sender.layer == receiver.layer and sender.is_head and not receiver.is_head)


def explain_components(
    runs: CircuitRuns,
    pool: RecordedRun,
    *,
    seed: int,
    forced: dict[Component, int] | None = None,
    whole: frozenset[Component] = frozenset(),
    known: Sequence[SearchState] = (),
    without: frozenset[str] = frozenset(),
    progress: Callable[[Component], None] | None = None,
) -> SearchState:
    """Explain every component; `forced` takes a lower-ranked hypothesis for some, and those in `whole` are observed at
    all positions together. What `known` searches of the same runs have observed is reused, and what they found of a
    component where the program before it is the same.
    """
    findings: dict[Component, ComponentSearch] = {}
    program = CircuitProgram({}, None, runs.model.config.causal, runs.numeric)
    for order, component in enumerate(runs.components):
        if progress:
            progress(component)
        upstream = [c for c in findings if feeds(c, component) and not findings[c].observations.is_inert]
        observed = [state.findings[component].observations for state in known]
        observations = observed[0] if observed else observe(runs, pool, component, upstream, seed=seed + 17 * order)
        if component in whole:
            again = next((each for each in observed if each.probe.whole), None)
            observations = again or observations.at_all_positions(runs, pool)
        choice = (forced or {}).get(component, 0)
        same = [state.findings[component] for state in known if _begins_with(state.program, program)]
        same = [one for one in same if one.observations is observations]
        finding = next((one for one in same if one.choice == choice), None)
        if finding is None:
            search = _Search(runs, pool, program, observations, upstream, without)
            ranking = next(((one.ranked, one.tried) for one in same if one.ranked), None)
            finding = search.finding(choice, *(ranking or search.ranking()))
        findings[component] = finding
        program.variables[component] = finding.hypothesis
    return SearchState(runs, pool, findings, program)


def _begins_with(program: CircuitProgram, earlier: CircuitProgram) -> bool:
    return all(program.variables[component] == variable for component, variable in earlier.variables.items())


@dataclass(frozen=True)
class _Search:
    """The hypotheses of one component, given the program before it."""

    runs: CircuitRuns
    pool: RecordedRun
    program: CircuitProgram
    observations: Observations
    upstream: list[Component]
    without: frozenset[str]

    @property
    def _is_last(self) -> bool:
        """Whether no other component reads this one, or adds to the output beside or after it."""
        own = self.observations.component
        return all(other == own or other.layer < own.layer for other in self.runs.components)

    def ranking(self) -> tuple[list[Ranked], int]:
        """The hypotheses that stay on record, and how many were tried."""
        runs, program, observations = self.runs, self.program, self.observations
        if observations.is_inert:
            return [], 1
        env = program.exchanged(self.pool.sequences, observations.pairings)
        names = [str(c) for c in reversed(self.upstream) if program.variables[c].family != "nothing"] + [TOKENS]
        component = observations.component
        if not component.is_head:
            tables = rank_tables(observations, env, names)
            readings = _readings(runs, observations, tables)
            return [Ranked(score, reading) for reading, score in readings[:KEPT]], len(tables)
        heads = rank_heads(
            observations,
            env,
            names,
            attention=_attention(runs, self.pool, observations.pairings, component),
            numeric=runs.numeric,
            causal=runs.model.config.causal,
            without=self.without,
            numbers=_numbers(runs, program),
            outputs=self.pool.outputs[observations.pairings.base] if runs.numeric and self._is_last else None,
        )
        return [Ranked(each.score, each.hypothesis) for each in heads[:KEPT]], len(heads)

    def finding(self, choice: int, ranked: list[Ranked], tried: int) -> ComponentSearch:
        """The hypothesis at a place of the ranking, as a program can use it; nothing where none predicts enough."""
        observations, nothing = self.observations, Constant()
        if not ranked:
            return ComponentSearch(observations, nothing, 0.0, choice=choice)
        place = min(choice, len(ranked) - 1)
        score, hypothesis = ranked[place]
        if score < FOUND_ABOVE:
            return ComponentSearch(observations, nothing, score, ranked, tried, choice=choice)
        if isinstance(hypothesis, TableForm):
            read_off = _of_mlp(self.runs, self.pool, self.program, observations, hypothesis, self.without)
            if read_off is None:
                return ComponentSearch(observations, nothing, 0.0, choice=choice)
            hypothesis = read_off
        return ComponentSearch(observations, hypothesis, score, ranked, tried, place, choice)


def _numbers(runs: CircuitRuns, program: CircuitProgram) -> dict[str, tuple[float, ...]]:
    """What the codes of positions, counts, sums and (where they are numbers) tokens stand for."""
    tokens, places = runs.vocabulary.tokens, tuple(range(runs.vocabulary.max_len + 1))
    numbers: dict[str, tuple[float, ...]] = {INDICES: places}
    if all(isinstance(token, int | float) for token in tokens):
        numbers[TOKENS] = tuple(float(token) for token in tokens)
    counts = (str(c) for c, variable in program.variables.items() if variable.family == "count")
    return {**numbers, **dict.fromkeys(counts, places)}


def _of_mlp(
    runs: CircuitRuns,
    pool: RecordedRun,
    program: CircuitProgram,
    observations: Observations,
    reading: TableForm,
    without: frozenset[str],
) -> Hypothesis | None:
    """What an MLP makes of its arguments: a weighted sum where that holds, else a table, rare entries filled."""
    reads = reading.reads
    shares = {str(component) for component, variable in program.variables.items() if variable.family == "mean"}
    if "linear" not in without and runs.numeric and shares.issuperset(reads):
        weighted = _weighted_sum(program, pool, reads)
        if weighted is not None:
            return weighted
    if "table" in without:
        return None
    more = observe_rare_arguments(runs, pool, program, observations, reads, seed=observations.probe.seed)
    return table_over(more, program.exchanged(pool.sequences, more.pairings), reading, _silent(runs, observations))


def _readings(runs: CircuitRuns, observations: Observations, tables: list[Arguments]) -> list[tuple[TableForm, float]]:
    """Ways to read the table, likeliest first: the chosen arguments in more than one way where heads read later."""
    best = tables[0]
    plain = [(TableForm(each.reads), each.score) for each in tables]
    if not any(later.is_head and later.layer > observations.component.layer for later in runs.components):
        return plain
    silent = [(TableForm(best.reads, "silent"), best.score)] if len(_silent(runs, observations)) else []
    apart, placed = ((TableForm(best.reads, how), best.score) for how in ("apart", "placed"))
    readings = [*silent, plain[0], apart, *plain[1:]]
    # What later heads compare by order may hold the token and the position together.
    return [*readings[: KEPT - 1], placed] if best.reads == (TOKENS,) else readings


def _silent(runs: CircuitRuns, observations: Observations) -> Tensor:
    return observations.silent_positions(numeric=runs.numeric)


def _weighted_sum(program: CircuitProgram, pool: RecordedRun, reads: tuple[str, ...]) -> Linear | None:
    """The outputs as a weighted sum of shares, where that holds: no table could list all pairs of shares."""
    env = program.environment(pool.sequences)
    shares = [env[name][env.real].double() / MEAN_SCALE for name in reads]
    design, outputs = torch.stack([*shares, torch.ones_like(shares[0])], 1), pool.outputs[env.real]
    weights = torch.linalg.lstsq(design, outputs[:, None].double()).solution[:, 0]
    fits = (design @ weights - outputs).abs() < TOLERANCE
    return Linear(reads, tuple(weights[:-1].tolist()), float(weights[-1])) if fits.float().mean() > 0.9 else None


def _attention(runs: CircuitRuns, pool: RecordedRun, pairings: Pairings, component: Component) -> Tensor:
    """Attention on the rows observed; on exchanged rows it is zero, so that only natural ones tabulate routes."""
    natural = runs.attention(pool, component)[pairings.base]
    exchanged = torch.tensor([moved is not None for moved in pairings.moved])
    return natural.masked_fill(exchanged[:, None, None], 0.0)


def assemble(investigation: SearchState, recorded: RecordedRun, *, exchanges: int, seed: int) -> CircuitProgram:
    """Fit the output map on natural and one-exchange runs of fresh inputs, then on exchanges with rare arguments."""
    runs, program = investigation.runs, investigation.program
    live = [c for c, finding in investigation.findings.items() if not finding.observations.is_inert]
    n = len(recorded.sequences)
    pairings = candidate_pairings(n, live, exchanges, seed=seed)
    outputs = _outputs(runs, recorded, pairings)
    env = program.exchanged(recorded.sequences, pairings)
    program = with_output(program, env, outputs)
    assert program.output is not None
    more = _with_rare_outputs(program, env, recorded, live, RARE_CANDIDATES * exchanges, seed=seed + 1)
    if program.output.line is not None or not len(more):
        return simplified(program)
    pairings = join(pairings, more)
    outputs = torch.cat([outputs, _outputs(runs, recorded, more)])
    return simplified(refitted(program, program.exchanged(recorded.sequences, pairings), outputs))


def _outputs(runs: CircuitRuns, recorded: RecordedRun, pairings: Pairings) -> Tensor:
    """The model's outputs on the rows of `pairings`."""
    outputs = recorded.outputs[pairings.base]
    for component in dict.fromkeys(moved for moved in pairings.moved if moved is not None):
        outputs[pairings.rows_of(component)] = runs.outputs_exchanged(recorded, pairings, component)
    return outputs


def _with_rare_outputs(
    program: CircuitProgram, seen: Environment, recorded: RecordedRun, live: list[Component], n: int, *, seed: int
) -> Pairings:
    """Exchanges in which the output map meets arguments it hardly knows."""
    assert program.output is not None
    candidates = exchange_pairings(len(recorded.sequences), n, live, seed=seed)
    env = program.exchanged(recorded.sequences, candidates)
    reads = program.output.reads
    row, _ = env.real.nonzero(as_tuple=True)
    there, here = (torch.stack([each[name][each.real] for name in reads], -1) for each in (env, seen))
    return candidates.take(row[rare(there, here, enough=ENOUGH)].unique()[:MOST_ADDED])
