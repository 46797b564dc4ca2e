"""The scientist's search: rare arguments are found and filled, values are counted together, families can be left out,
and the conventions follow how programs are compiled.
"""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import vesalius as ves
from tests.explanations.test_scientist import environment
from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius.explanations.claims.wiring import Wiring
from vesalius.model.specimen import FiniteVocabulary
from vesalius_programs import explain, explain_specimen
from vesalius_programs.classify import Facts, tag_by_experiment, tags_by_convention
from vesalius_programs.gathering import Copy, Mean, Selector, Width
from vesalius_programs.hypotheses import FAMILIES, TableForm, rank_heads, table_over
from vesalius_programs.investigate import ComponentSearch, Ranked
from vesalius_programs.observe import (
    Contexts,
    Observations,
    Probe,
    Written,
    observe,
    observe_rare_arguments,
    one_position_edit,
    rare,
)
from vesalius_programs.program import MEAN_SCALE, CircuitProgram, OutputMap, Table, simplified
from vesalius_programs.runs import CircuitRuns, draw_sequences, natural_pairings
from vesalius_programs.words import information_flow
from vesalius_programs.yardstick import PositionTest

pytestmark = pytest.mark.slow

L0M, L1M, L2M, L0H0, L0H1, L1H0 = (
    Component.parse(name) for name in ("L0_MLP", "L1_MLP", "L2_MLP", "L0H0", "L0H1", "L1H0")
)


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 2)), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 2)), min_size=1, max_size=30),
    st.integers(1, 4),
)
def test_rare_candidates_are_those_a_slow_count_takes(
    candidates: list[tuple[int, int]], seen: list[tuple[int, int]], enough: int
) -> None:
    counts, expected = Counter(seen), []
    for place, values in enumerate(candidates):
        if counts[values] < enough:
            counts[values] += 1
            expected.append(place)
    assert rare(torch.tensor(candidates), torch.tensor(seen), enough=enough).tolist() == expected


def test_several_values_and_other_scopes_by_hand() -> None:
    env = environment([[2, 0, 1, 2], [1, 1, -1, -1]])
    two = Width(Selector("constant", "tokens", constant=2, others=(1,)))
    assert two.evaluate(env).tolist() == [[3, 3, 3, 3], [2, 2, -1, -1]]
    so_far, before, everywhere = (Mean("tokens", 2, others=(1,), scope=scope) for scope in ("LEQ", "LT", "TRUE"))
    assert (so_far.evaluate(env)[0] / MEAN_SCALE).tolist() == pytest.approx([1, 1 / 2, 2 / 3, 3 / 4], abs=1e-3)
    assert before.evaluate(env).tolist()[0][0] == -1
    assert (before.evaluate(env)[0, 1:] / MEAN_SCALE).tolist() == pytest.approx([1, 1 / 2, 2 / 3], abs=1e-3)
    assert (everywhere.evaluate(env)[0] / MEAN_SCALE).tolist() == pytest.approx([3 / 4] * 4)
    assert Copy("tokens", "second").evaluate(env).tolist() == [[0, 0, 0, 0], [1, 1, -1, -1]]


def made_up(position: list[int], raw: list[float], *, head: bool = False) -> Observations:
    """Observations of one-token rows with given fingerprints."""
    n = len(raw)
    probe = Probe(L0H0 if head else L0M, Contexts(torch.tensor([0]), torch.tensor([0])), 0)
    rows = torch.arange(n)
    return Observations(probe, natural_pairings(n), rows, torch.tensor(position), torch.tensor(raw)[:, None], 1.0)


def test_silent_positions_are_one_class() -> None:
    env = environment([[0, 0], [1, 1], [0, 0], [1, 1]] * 2)
    observations = made_up([0, 0, 0, 0, 1, 1, 1, 1], [5.0, 5.0, 5.0, 5.0, -1.0, 1.0, -1.0, 1.0])
    silent = observations.silent_positions(numeric=False)
    assert silent.tolist() == [0]
    table = table_over(observations, env, TableForm(("tokens",), "silent"), silent)
    assert table.evaluate(env)[:2].tolist() == [[0, 1], [0, 2]]
    apart = table_over(observations, env, TableForm(("tokens",), "apart"), silent)
    assert apart.evaluate(env)[:2].tolist() == [[0, 0], [1, 1]]


def test_a_named_route_is_simpler_than_its_table_where_it_leads_somewhere() -> None:
    """From position 0 nothing lies before, so the head attends to anything there; the table says position 1."""
    before, half = Copy("tokens", "previous"), Copy("tokens", "half")
    table = Copy("tokens", "table", {(0, 0): 1, (0, 1): 0, (0, 2): 1, (0, 3): 2}, "indices", anywhere=True)
    other = Copy("tokens", "table", {(0, 0): 1, (0, 1): 0, (0, 2): 1, (0, 3): 0}, "indices", anywhere=True)
    place_0 = torch.zeros(1, dtype=torch.long)
    observations = Observations(Probe(L0H0, None, 0), natural_pairings(1), place_0, place_0, torch.zeros(1, 1), 1.0)
    for chosen, place in ((table, 2), (other, None), (before, None)):
        ranked = [Ranked(0.9, chosen), Ranked(0.8, half), Ranked(0.7, before)]
        assert ComponentSearch(observations, chosen, 0.9, ranked).simpler == place


def test_a_count_takes_in_the_values_that_belong() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, (400, 6), generator=generator)
    env = environment(tokens.tolist())
    counts = torch.isin(tokens, torch.tensor([1, 3])).sum(1).float()
    observations = made_up([2] * 400, counts.tolist(), head=True)
    attention = torch.full((400, 6, 6), 1 / 6)
    best = rank_heads(observations, env, ["tokens"], attention=attention, numeric=False)[0]
    assert best.score > 0.99
    assert isinstance(best.hypothesis, Width)
    selector = best.hypothesis.selector
    assert {selector.constant, *selector.others} in ({1, 3}, {0, 2, 4})
    left = rank_heads(
        observations, env, ["tokens"], attention=attention, numeric=False, without=frozenset({"count", "mean"})
    )
    assert left[0].score < 0.6
    assert rank_heads(
        observations, env, ["tokens"], attention=attention, numeric=False, without=frozenset(FAMILIES)
    ) == []  # fmt: skip


def test_a_background_fills_the_other_positions() -> None:
    specimen = ves.load("frac_prevs")
    assert isinstance(specimen.vocabulary, FiniteVocabulary)
    runs = CircuitRuns(specimen, specimen.vocabulary, [L0M])
    pool = runs.record(draw_sequences(specimen, 20, seed=0))
    long = pool.sequences.lengths.argsort(descending=True)[:3]
    base, behind, source = (row[None] for row in long)
    written = pool.component_outputs[L0M]
    edit = one_position_edit(pool, L0M, Contexts(base, behind), written[source], torch.tensor([1]))
    assert torch.equal(edit.values[0, 2], written[source[0], 2])
    assert torch.equal(edit.values[0, 1], written[behind[0], 1])
    assert edit.where[0, :4].tolist() == [False, True, True, True]
    plain = one_position_edit(pool, L0M, Contexts(base, base), written[source], torch.tensor([1]))
    assert plain.where[0].nonzero()[:, 0].tolist() == [2]


def test_arguments_hardly_seen_are_observed() -> None:
    specimen = ves.load("frac_prevs")
    assert isinstance(specimen.vocabulary, FiniteVocabulary)
    runs = CircuitRuns(specimen, specimen.vocabulary, [L0M])
    pool = runs.record(draw_sequences(specimen, 60, seed=0))
    seen = observe(runs, pool, L0M, [], seed=0)
    few = seen.pairings.take(torch.tensor([0]))
    first = Observations(seen.probe, few, torch.tensor([0]), torch.tensor([0]), seen.raw[:1], seen.effect)
    program = CircuitProgram({}, None, causal=True, numeric=True)
    more = observe_rare_arguments(runs, pool, program, first, ("tokens",), seed=0)
    values = more.values(program.exchanged(pool.sequences, more.pairings)["tokens"])
    assert torch.bincount(values).tolist() == [4, 4, 4, 4]
    in_order = seen.row[seen.position == more.position[-1]]
    assert torch.isclose(more.raw[-1], seen.raw[seen.row == more.pairings.base[more.row[-1]]], atol=1e-5).all(1).any()
    assert len(in_order)


def test_what_was_written_is_carried_on_to_the_end_of_a_longer_row() -> None:
    acts = torch.tensor([[9.0, 1.0, 2.0, 3.0], [9.0, 5.0, 6.0, 7.0]])[..., None]
    real = torch.tensor([[True, True, False], [True, True, True]])
    written = Written(acts, real).up_to(torch.tensor([3, 2]))
    assert written.acts[..., 0].tolist() == [[9, 1, 2, 2], [9, 5, 6, 7]]
    assert written.real.tolist() == [[True, True, True], [True, True, False]]


def test_a_value_that_follows_from_the_length_is_seen_at_all_positions_together() -> None:
    """The head of circuit 111 compares what L1_MLP wrote there with what it wrote here: alone, short lengths look
    alike.
    """
    specimen = ves.load("111")
    assert isinstance(specimen.vocabulary, FiniteVocabulary)
    runs = CircuitRuns(specimen, specimen.vocabulary, [L0H0, L0M, L1M])
    pool = runs.record(draw_sequences(specimen, 260, seed=0))
    alone = observe(runs, pool, L1M, [], seed=0)
    together = alone.at_all_positions(runs, pool)
    assert together.row.tolist() == list(range(260))

    def told_apart(observations: Observations) -> int:
        """Lengths whose fingerprints at position 0 differ from all others by more than from each other."""
        first = observations.position == 0
        lengths, seen = pool.sequences.lengths[observations.row[first]], observations.raw[first]
        means = torch.stack([seen[lengths == length].mean(0) for length in range(1, 10)])
        within = torch.stack([(seen[lengths == n] - means[n - 1]).norm(dim=1).mean() for n in range(1, 10)])
        between = torch.cdist(means, means) + torch.diag(torch.full((9,), torch.inf))
        return int((between.amin(1) > 2 * within).sum())

    assert told_apart(together) == 9
    assert told_apart(alone) < 9


def test_what_reads_a_badly_predicted_component_as_well_is_tried() -> None:
    """A wider table that is as good and reads L0_MLP as well; none that is worse, or that reads less."""
    weak = SimpleNamespace(hypothesis=table(), score=1.0, ranked=[])

    def tried(shares: dict[Component, float | None], *ranked: Ranked) -> list[tuple[Component, int]]:
        reader = SimpleNamespace(hypothesis=ranked[0].hypothesis, score=ranked[0].score, ranked=list(ranked))
        return list(explain._readers(shares, SimpleNamespace(findings={L0M: weak, L1M: reader})))

    own = Ranked(0.95, TableForm(("tokens",)))
    wider, worse, other = (
        Ranked(0.96, TableForm(("L0_MLP", "tokens"))),
        Ranked(0.94, TableForm(("L0_MLP", "tokens"))),
        Ranked(0.96, TableForm(("L0_MLP",))),
    )
    assert tried({L0M: 0.7, L1M: 1.0}, own, other, wider) == [(L1M, 2)]
    assert tried({L0M: 0.7, L1M: 1.0}, own, other, worse) == []
    assert tried({L0M: 0.99, L1M: 0.5}, own, other, wider) == []
    assert tried({L0M: None, L1M: 1.0}, own, wider) == []


@pytest.mark.parametrize(("lost", "kept"), [(10, 0), (0, 1)])
def test_a_refinement_that_loses_inputs_is_refused(lost: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanges are predicted better, but the program no longer gives the outputs of one input in ten."""
    finding = SimpleNamespace(simpler=None, placed=1, ranked=[], score=1.0, hypothesis=table("tokens"))
    searches = [SimpleNamespace(runs=None, pool=None, findings={L0M: finding}) for _ in range(2)]
    programs = [CircuitProgram({L0M: table("tokens")}, None, causal=True, numeric=False) for _ in range(2)]
    right = {id(programs[0]): torch.ones(100), id(programs[1]): (torch.arange(100) >= lost).float()}
    shares = {id(programs[0]): {L0M: 0.7}, id(programs[1]): {L0M: 0.96}}
    monkeypatch.setattr(explain, "explain_components", lambda *args, **options: searches[1])
    monkeypatch.setattr(explain, "assemble", lambda *args, **options: programs[1])
    monkeypatch.setattr(explain, "exchange_accuracy", lambda runs, one, *args, **options: shares[id(one)])
    monkeypatch.setattr(explain, "agreement", lambda one, recorded: right[id(one)])
    monkeypatch.setattr(explain, "_constant_in_rows", lambda *args: frozenset())
    _, chosen = explain._refined(
        searches[0], programs[0], None, 1.0, seed=0, without=frozenset(), tell=lambda message: None
    )
    assert chosen is programs[kept]


@pytest.fixture(scope="module")
def without_means() -> Explanation:
    return explain_specimen(ves.load("frac_prevs"), without=frozenset({"mean"}))


def test_without_its_family_a_head_is_not_called_a_share(without_means: Explanation) -> None:
    head = next(part for part in without_means.components if part.id == "L1H2")
    assert head.family != "mean"
    assert "numerical" not in (head.program or "")


def test_without_all_families_nothing_is_claimed() -> None:
    explanation = explain_specimen(ves.load("frac_prevs"), without=frozenset(FAMILIES))
    assert all(part.verdict == "untested" and part.program is None for part in explanation.components)
    assert explanation.program_agreement is not None
    assert explanation.program_agreement.value < 0.5


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(BadInput, match=r"no family of hypotheses 'sums'; the families are count, mean"):
        explain_specimen(ves.load("frac_prevs"), without=frozenset({"sums"}))


def facts_of(variables: dict, *, positions: dict[Component, PositionTest] | None = None) -> Facts:
    last = list(variables)[-1]
    program = CircuitProgram(variables, OutputMap((str(last),), {}, 0.0), causal=False, numeric=False)
    return Facts(program, dict.fromkeys(variables, 1.0), positions or {})


def table(*reads: str, classes: int = 3) -> Table:
    return Table(reads, {(code,) * len(reads): code for code in range(classes)}, classes)


def test_a_table_that_tells_each_head_yes_or_no_is_an_indicator() -> None:
    count = Width(Selector("constant", "L0_MLP", constant=0, others=(2,)))
    assert tag_by_experiment(L0M, facts_of({L0M: table("tokens"), L1H0: count})) == "INDICATOR"
    same = Width(Selector("compare", "L0_MLP", "L0_MLP"))
    assert tag_by_experiment(L0M, facts_of({L0M: table("tokens"), L1H0: same})) == "MAPPER"


def convention_tags(facts):
    """The tags by convention, without their rules."""
    return {component: reading.tag for component, reading in tags_by_convention(facts).items()}


def test_what_reads_only_an_mlp_of_two_arguments_combines_its_parts() -> None:
    heads = {L0H0: Copy("tokens", "first"), L0H1: Copy("tokens", "next")}
    two_heads = facts_of({**heads, L0M: table("L0H0", "L0H1"), L1M: table("L0_MLP")})
    tags = convention_tags(two_heads)
    assert (tags[L0M], tags[L1M]) == ("MAPPER", "COMBINER")
    with_token = facts_of({**heads, L0M: table("L0H0", "tokens"), L1M: table("L0_MLP")})
    tags = convention_tags(with_token)
    assert (tags[L0M], tags[L1M]) == ("COMBINER", "COMBINER")


def test_of_two_token_tables_the_later_takes_the_position() -> None:
    inside = {L0M: PositionTest(by_old=1.0, by_new=0.1, n=100)}
    facts = facts_of({L0M: table("tokens"), L1M: table("L0_MLP"), L2M: table("L1_MLP")}, positions=inside)
    assert tag_by_experiment(L0M, facts) == "COMBINER"
    assert convention_tags(facts) == {L0M: "MAPPER", L1M: "COMBINER", L2M: "MAPPER"}


def test_of_two_tables_of_a_gathered_value_the_later_takes_the_position() -> None:
    """A decoded count stands for itself, so a table after it need not combine anything."""
    inside = {L0M: PositionTest(by_old=1.0, by_new=0.1, n=100)}
    chain = {L0M: table("L0H0"), L1M: table("L0_MLP")}
    facts = facts_of({L0H0: Copy("tokens", "next"), **chain}, positions=inside)
    assert [tag_by_experiment(part, facts) for part in (L0M, L1M)] == ["COMBINER", "MAPPER"]
    tags = convention_tags(facts)
    assert (tags[L0M], tags[L1M]) == ("MAPPER", "COMBINER")
    counted = facts_of({L0H0: Width(Selector("compare", "tokens", "tokens")), **chain}, positions=inside)
    tags = convention_tags(counted)
    assert (tags[L0M], tags[L1M]) == ("MAPPER", "MAPPER")
    without_position = facts_of({L0H0: Copy("tokens", "next"), **chain})
    tags = convention_tags(without_position)
    assert (tags[L0M], tags[L1M]) == ("MAPPER", "MAPPER")


def test_a_component_that_matters_and_that_nothing_reads_is_said_to_have_a_reader() -> None:
    facts = facts_of({L0M: table("tokens"), L1M: table("tokens")})
    missing = "What reads L0_MLP was not found."
    assert missing in information_flow(facts, {}, {L0M, L1M})
    assert "What reads L1_MLP" not in information_flow(facts, {}, {L0M, L1M})  # the output does
    assert missing not in information_flow(facts, {}, {L1M})
    assert missing not in information_flow(facts_of({L0M: table("tokens"), L1M: table("L0_MLP")}), {}, {L0M})
    assert missing not in information_flow(facts, {"output": (Wiring({"L0_MLP": 0.5}),)}, {L0M})


def test_an_argument_that_never_shows_is_dropped() -> None:
    split = Table(("L0_MLP", "L0H0"), {(0, 5): 0, (0, 6): 0, (1, 5): 1, (1, 6): 2}, 3)
    variables = {L0H0: Width(Selector("all")), L0M: table("tokens"), L1M: split}
    output = OutputMap(("L1_MLP",), {(0,): 4.0, (1,): 7.0, (2,): 7.0}, 4.0)
    program = simplified(CircuitProgram(variables, output, causal=False, numeric=False))
    assert program.variables[L1M] == Table(("L0_MLP",), {(0,): 0, (1,): 1}, 2)
    assert program.output == OutputMap(("L1_MLP",), {(0,): 4.0, (1,): 7.0}, 4.0)
    needed = CircuitProgram(variables, OutputMap(("L1_MLP",), {(0,): 4.0, (1,): 7.0, (2,): 8.0}, 4.0), False, False)
    assert simplified(needed) is needed
