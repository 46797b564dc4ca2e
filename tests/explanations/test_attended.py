"""The large grammar of heads: what attention proposes, what each operation gives, and orders of classes."""

import torch

from tests.explanations.test_scientist import environment
from tests.explanations.test_scientist_search import made_up
from vesalius.components import Component
from vesalius.explanations.claims import DependsOnlyOn, Hypothesis
from vesalius.model.specimen import FiniteVocabulary
from vesalius_programs.attended import Relation
from vesalius_programs.gathering import Gathered, Selector, Width
from vesalius_programs.hypotheses import _route_table, rank_heads
from vesalius_programs.observe import Observations, Probe
from vesalius_programs.program import MEAN_SCALE, TOKENS, CircuitProgram, OutputMap, StraightLine, Table
from vesalius_programs.program import Hypothesis as Variable
from vesalius_programs.runs import Sequences, natural_pairings
from vesalius_programs.simplify import in_order, merged
from vesalius_programs.translation import translate
from vesalius_programs.writing import _about_head

TABLE, HEAD = Component.parse("L0_MLP"), Component.parse("L1H0")


def test_operations_by_hand() -> None:
    env = environment([[2, 0, 2, 1], [1, 0, -1, -1]])
    same = Selector("compare", TOKENS, TOKENS)
    assert Gathered("indices", same, "first").evaluate(env).tolist() == [[0, 1, 0, 3], [0, 1, -1, -1]]
    assert Gathered("indices", same, "last").evaluate(env)[0].tolist() == [2, 1, 2, 3]
    above_0 = Selector("constant", TOKENS, constant=1, others=(2,))
    assert Gathered(TOKENS, above_0, "most").evaluate(env).tolist() == [[2] * 4, [1, 1, -1, -1]]
    assert Gathered(TOKENS, above_0, "sum", (0, 10, 20)).evaluate(env).tolist() == [[50] * 4, [10, 10, -1, -1]]
    mean = Gathered(TOKENS, above_0, "mean", (0, 10, 20)).evaluate(env)[0] / MEAN_SCALE
    assert torch.allclose(mean, torch.full((4,), 50 / 3), atol=1e-3)
    listed = Selector("pairs", TOKENS, "indices", pairs=frozenset({(0, 0), (2, 1), (1, 3)}))
    assert Width(listed).evaluate(env).tolist() == [[1, 2, 0, 1], [1, 0, -1, -1]]


def test_a_vote_that_is_a_tie_goes_to_the_smallest_code() -> None:
    env = environment([[2, 1, 1, 2]])
    assert Gathered(TOKENS, Selector("all"), "most").evaluate(env).tolist() == [[1] * 4]


def best(rows: torch.Tensor, gathered: torch.Tensor, mask: torch.Tensor) -> Variable:
    """What is chosen for a head that attends by `mask` and writes `gathered` at position 1 of every row."""
    env = environment(rows.tolist())
    attention = mask.float() / (1 + mask.sum(-1, keepdim=True))
    observations = made_up([1] * len(rows), gathered[:, 1].float().tolist(), head=True)
    numbers = {TOKENS: tuple(range(5)), "indices": tuple(range(6))}
    return rank_heads(observations, env, [TOKENS], attention=attention, numeric=True, numbers=numbers)[0].hypothesis


def test_a_pointer_is_found() -> None:
    rows = torch.randint(5, (300, 5), generator=torch.Generator().manual_seed(0))
    chosen = best(rows, rows.gather(1, rows), torch.arange(5) == rows[:, :, None])
    assert isinstance(chosen, Gathered)
    assert (chosen.of, chosen.how) == (TOKENS, "first")
    assert {chosen.selector.keys, chosen.selector.queries} == {"indices", TOKENS}


def test_a_pointer_does_not_depend_on_the_own_position_where_it_is_seen_at_one_only() -> None:
    """A table of the own position and the variable fits as well there, and says more than was seen."""
    rows = torch.randint(5, (300, 5), generator=torch.Generator().manual_seed(0))
    env = environment(rows.tolist())
    env.values["L0_MLP"] = pointed = (rows + 1) % 5
    attention = (torch.arange(5) == pointed[:, :, None]) / 2
    observations = made_up([1] * len(rows), rows.gather(1, pointed)[:, 1].float().tolist(), head=True)
    chosen = rank_heads(observations, env, ["L0_MLP", TOKENS], attention=attention, numeric=True)[0].hypothesis
    assert isinstance(chosen, Gathered)
    assert {chosen.selector.keys, chosen.selector.queries} == {"indices", "L0_MLP"}


def test_a_mean_over_a_set_of_tokens_is_found() -> None:
    rows = torch.randint(5, (300, 5), generator=torch.Generator().manual_seed(0))
    kept = rows > 1
    mean = (rows * kept).sum(1) / kept.sum(1).clamp(min=1)
    chosen = best(rows, mean[:, None].expand(-1, 5), kept[:, None, :].expand(-1, 5, -1))
    assert isinstance(chosen, Gathered)
    assert (chosen.of, chosen.how) == (TOKENS, "mean")
    assert {chosen.selector.constant, *chosen.selector.others} == {2, 3, 4}


def test_numbers_are_fitted_where_the_outputs_are_their_mean() -> None:
    """Classes stand for 0.5, 3, 0.5 and -1, which nothing but the outputs says."""
    rows = torch.randint(4, (300, 5), generator=torch.Generator().manual_seed(0))
    numbers = torch.tensor([0.5, 3.0, 0.5, -1.0])
    kept = rows != 0
    mean = (numbers[rows] * kept).sum(1) / kept.sum(1).clamp(min=1)
    env = environment(rows.tolist())
    attention = kept[:, None, :].expand(-1, 5, -1) / (1 + kept.sum(1)[:, None, None])
    observations = made_up([1] * len(rows), mean.tolist(), head=True)
    outputs = mean[:, None].expand(-1, 5)
    ranked = rank_heads(observations, env, [TOKENS], attention=attention, numeric=True, outputs=outputs)
    chosen = ranked[0].hypothesis
    assert isinstance(chosen, Gathered)
    assert (chosen.of, chosen.how, chosen.numbers[1:]) == (TOKENS, "mean", (3.0, 0.5, -1.0))
    assert {chosen.selector.constant, *chosen.selector.others} == {1, 2, 3}
    without = rank_heads(observations, env, [TOKENS], attention=attention, numeric=True)
    assert without[0].score < ranked[0].score - 0.05


def test_a_route_is_read_off_where_it_leads_into_view() -> None:
    """Value v leads to position v + 2, which the first positions of a causal model do not see: there it looks at 0."""
    env = environment([[0, 1, 2, 0, 1, 2]] * 3, causal=True)
    env.values["L0_MLP"] = env[TOKENS]
    leads = (torch.arange(6) == env[TOKENS][:, :, None] + 2) & env.visible
    attention = torch.where(leads.any(-1, keepdim=True), leads, torch.arange(6) == 0).float()
    place = torch.zeros(1, dtype=torch.long)
    everywhere = Observations(
        Probe(HEAD, None, 0), natural_pairings(3), place.repeat(6), torch.arange(6), torch.ones(6, 1), 1.0
    )
    routes = _route_table(everywhere, env, "L0_MLP", attention, anywhere=True)
    assert routes == {(0, 0): 2, (0, 1): 3, (0, 2): 4}


def test_classes_that_stand_for_one_number_are_one_class_of_their_mean() -> None:
    table = Table((TOKENS,), {(0,): 0, (1,): 1, (2,): 2}, 3)
    head = Gathered("L0_MLP", Selector("all"), "mean", (0.5, 2.0, 0.5))
    output = OutputMap(("L1H0",), {}, 0.0, StraightLine(1.0, 0.0, MEAN_SCALE))
    before = CircuitProgram({TABLE: table, HEAD: head}, output, causal=False, numeric=True)
    after = merged(before, TABLE)
    assert after.variables[TABLE].codes == {(0,): 0, (1,): 1, (2,): 0}
    assert after.variables[HEAD].numbers == (0.5, 2.0)
    inputs = Sequences(torch.randint(3, (60, 5), generator=torch.Generator().manual_seed(1)))
    assert torch.equal(before.predict(before.environment(inputs)), after.predict(after.environment(inputs)))


def test_an_order_is_read_off_pairs_of_which_some_were_never_seen() -> None:
    true_order = [3, 0, 4, 1, 2]
    place = torch.tensor([true_order.index(value) for value in range(5)])
    attended = place[:, None] < place
    seen = torch.ones(5, 5, dtype=torch.bool)
    seen[0, 2] = seen[2, 0] = False
    relation = Relation(attended & seen, seen)
    assert relation.order() == true_order
    smaller = {(a, b) for at, b in enumerate(true_order) for a in true_order[:at]}
    assert relation.in_order(true_order) == smaller
    circular = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=torch.bool)
    assert Relation(circular, torch.ones(3, 3, dtype=torch.bool)).order() is None


def test_a_sum_written_as_tables_is_claimed_by_what_it_depends_on() -> None:
    """No one Aggregate computes it, so `aggregates` could not be claimed."""
    total = Gathered(TOKENS, Selector("constant", TOKENS, constant=1), "sum", (0, 1, 2))
    output = OutputMap(("L1H0",), {(n,): float(n) for n in range(4)}, 0.0)
    program = CircuitProgram({HEAD: total}, output, causal=False, numeric=False)
    translation = translate(program, FiniteVocabulary(("a", "b", "c"), (0, 1, 2, 3), 3))
    whole = Hypothesis(program=translation.program, carriers=translation.carriers)
    (claim,) = _about_head("L1H0", total, whole)
    assert isinstance(claim, DependsOnlyOn)


def sorting_program() -> CircuitProgram:
    """Tokens 0 to 3 have the order 2 < 0 = 3 < 1 in the table's own codes; the head counts what is smaller."""
    table = Table((TOKENS,), {(0,): 0, (1,): 1, (2,): 2, (3,): 3}, 4)
    pairs = frozenset({(2, 0), (2, 3), (2, 1), (0, 1), (3, 1)})
    head = Width(Selector("pairs", "L0_MLP", "L0_MLP", pairs=pairs))
    output = OutputMap(("L1H0",), {(count,): float(count) for count in range(5)}, 0.0)
    return CircuitProgram({TABLE: table, HEAD: head}, output, causal=False, numeric=False)


def test_classes_are_merged_and_numbered_in_the_order_in_which_a_head_compares_them() -> None:
    before = sorting_program()
    after = in_order(merged(before, TABLE), TABLE)
    table, head = after.variables[TABLE], after.variables[HEAD]
    assert isinstance(table, Table)
    assert isinstance(head, Width)
    assert table.codes == {(2,): 0, (0,): 1, (3,): 1, (1,): 2}
    assert (head.selector.kind, head.selector.comparison) == ("compare", "LT")
    inputs = Sequences(torch.randint(4, (60, 5), generator=torch.Generator().manual_seed(1)))
    assert torch.equal(before.predict(before.environment(inputs)), after.predict(after.environment(inputs)))
