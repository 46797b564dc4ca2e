"""The built-in scientist: its parts on cases worked by hand, its interchanges against hooked runs, and what it says of
shipped circuits, wrong programs and specimens about which nothing can be said.
"""

import json
import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import vesalius as ves
from tests.closeness import assert_same_document
from tests.intervene.twin import naive_run
from tests.models import random_model, small_config
from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius.explanations.claims import Computes, Hypothesis, check
from vesalius.explanations.claims.interchange import ACCURACY, ELSEWHERE, WORST
from vesalius.explanations.laboratory import CircuitLab
from vesalius.intervene import Batch, Row
from vesalius.intervene.values import activations
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.rasp.document import from_document
from vesalius_bench.ratings.texts import unsigned
from vesalius_programs import explain_specimen
from vesalius_programs.classify import Facts, tag_by_experiment, tags_by_convention
from vesalius_programs.gathering import Copy, Gated, Mean, Selector, Width, extreme, matched
from vesalius_programs.program import (
    MEAN_SCALE,
    CircuitProgram,
    Environment,
    Linear,
    OutputMap,
    StraightLine,
    Table,
)
from vesalius_programs.runs import (
    CircuitRuns,
    Pairings,
    Sequences,
    distinct,
    draw_sequences,
    exchange_pairings,
)
from vesalius_programs.translation import translate
from vesalius_programs.words import Names
from vesalius_programs.yardstick import agreement, exchange_accuracy

L0M, L1M, L0H0, L1H2 = (Component.parse(name) for name in ("L0_MLP", "L1_MLP", "L0H0", "L1H2"))


def specimen_of(n_tokens: int = 4, *, numeric: bool = False, components: tuple[str, ...] = ("L0_MLP",)) -> Specimen:
    """An untrained specimen with listed tokens; no output bias, so that outputs vary."""
    n_outputs = 1 if numeric else 3
    config = small_config(
        d_vocab=n_tokens + 2,
        d_vocab_out=n_outputs,
        n_ctx=6,
        norm="none",
        rotary=None,
        gated=False,
        n_kv_heads=4,
        bos_token=n_tokens,
        pad_token=n_tokens + 1,
    )
    vocabulary = FiniteVocabulary(tuple(range(n_tokens)), None if numeric else (0, 1, 2), 5)
    model = random_model(config, scale=1.0)
    model.b_U.zero_()

    def draw(n: int, seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(n_tokens, (n, 5), generator=generator).tolist()
        return [row[: 3 + i % 3] for i, row in enumerate(rows)]

    parts = tuple(Component.parse(name) for name in components)
    return Specimen("x", "untrained", "trained", model, vocabulary, parts, (), draw)


def environment(rows: list[list[int]], *, causal: bool = False) -> Environment:
    return Environment.of(Sequences(torch.tensor(rows)), causal=causal)


@given(st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 9), st.integers(-1, 1)), min_size=1, max_size=40))
def test_distinct_is_unique(rows: list[tuple[int, int, int]]) -> None:
    table = torch.tensor(rows)
    found, inverse = distinct(table)
    expected, expected_inverse = table.unique(dim=0, return_inverse=True)
    assert torch.equal(found, expected)
    assert torch.equal(inverse, expected_inverse)


def test_variables_by_hand() -> None:
    env = environment([[2, 0, 2, 1], [1, 1, -1, -1]])
    assert Width(Selector("all")).evaluate(env).tolist() == [[4, 4, 4, 4], [2, 2, -1, -1]]
    same = Width(Selector("compare", "tokens", "tokens", "EQ"))
    assert same.evaluate(env).tolist() == [[2, 1, 2, 1], [2, 2, -1, -1]]
    assert Width(Selector("compare", "tokens", "tokens", "LT")).evaluate(env)[0].tolist() == [2, 0, 2, 1]
    assert extreme("tokens", largest=True).evaluate(env).tolist() == [[2, 2, 2, 2], [1, 1, -1, -1]]
    assert Copy("tokens", "next").evaluate(env).tolist() == [[0, 2, 1, -1], [1, -1, -1, -1]]
    assert Copy("tokens", "reverse").evaluate(env)[0].tolist() == [1, 2, 0, 2]
    steered = Copy("tokens", "table", {(0, 2): 3, (0, 0): 0, (0, 1): 1}, "tokens", anywhere=True)
    assert steered.evaluate(env)[0].tolist() == [1, 2, 1, 0]
    assert Gated("tokens", "tokens", 2).evaluate(env)[0].tolist() == [2, -1, 2, -1]
    assert matched("tokens", "indices", "tokens").evaluate(env)[0].tolist() == [2, 2, 2, 0]


def test_a_causal_share_counts_only_what_is_in_view() -> None:
    env = environment([[3, 0, 3, 3]], causal=True)
    shares = Mean("tokens", 3).evaluate(env)[0] / MEAN_SCALE
    assert shares.tolist() == pytest.approx([1, 1 / 2, 2 / 3, 3 / 4], abs=1e-3)


def test_an_exchange_moves_one_variable_and_recomputes_the_rest() -> None:
    flag = Table(("tokens",), {(0,): 0, (1,): 1}, 2)
    count = Width(Selector("constant", "L0_MLP", constant=1))
    program = CircuitProgram({L0M: flag, L1H2: count}, None, causal=False, numeric=False)
    inputs = Sequences(torch.tensor([[0, 0, 0], [1, 1, -1]]))
    pairings = Pairings(torch.tensor([0, 0]), torch.tensor([1, 1]), (L0M, L1H2))
    env = program.exchanged(inputs, pairings)
    assert env["L0_MLP"].tolist() == [[1, 1, 0], [0, 0, 0]]
    assert env["L1H2"].tolist() == [[2, 2, 2], [2, 2, 0]]


@pytest.mark.parametrize("name", ["L0H1", "L0_MLP", "L1H3", "L1_MLP"])
def test_an_interchange_is_that_of_hooked_runs(name: str) -> None:
    specimen = specimen_of(numeric=True, components=("L0H1", "L0_MLP", "L1H3", "L1_MLP"))
    model, vocabulary, component = specimen.model, specimen.vocabulary, Component.parse(name)
    assert isinstance(vocabulary, FiniteVocabulary)
    runs = CircuitRuns(specimen, vocabulary, list(specimen.components))
    recorded = runs.record(draw_sequences(specimen, 12, seed=1))
    pairings = exchange_pairings(12, 20, [component], seed=2)
    outputs, kept = runs.interchange(recorded, pairings, component, keep=(L1M,))
    real = recorded.sequences.real[pairings.base] & recorded.sequences.real[pairings.source]
    ids = recorded.sequences.ids(vocabulary)
    batch = Batch(ids, ids != vocabulary.pad)
    values = activations(model, batch)
    for i, (base, source) in enumerate(zip(pairings.base.tolist(), pairings.source.tolist(), strict=True)):
        positions = (real[i].nonzero()[:, 0] + 1).tolist()
        logits, written = naive_run(model, batch, Row(base, edits={component: source}, positions=positions), values)
        assert torch.allclose(outputs[i], logits[1:, 0], atol=1e-5)
        assert torch.allclose(kept[L1M][i], written[L1M], atol=1e-5)
    assert float((outputs - recorded.outputs[pairings.base]).abs().max()) > 0.01
    assert runs.rows == 12 + 20


def test_attention_is_that_of_a_cached_run_without_bos() -> None:
    specimen = specimen_of()
    assert isinstance(specimen.vocabulary, FiniteVocabulary)
    runs = CircuitRuns(specimen, specimen.vocabulary, [L1H2])
    recorded = runs.record(draw_sequences(specimen, 12, seed=1))
    ids = recorded.sequences.ids(specimen.vocabulary)
    _, cache = specimen.model.run_with_cache(ids, names="blocks.1.attn.hook_pattern")
    expected = cache["blocks.1.attn.hook_pattern"][:, 2, 1:, 1:]
    assert torch.allclose(runs.attention(recorded, L1H2), expected, atol=1e-6)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer inputs, for tests that need no precision."""
    sizes = {"POOL": 120, "FITTING": 300, "EXCHANGES": 60, "FRESH": 200, "LAB_PAIRS": 300, "REFINEMENTS": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(f"vesalius_programs.explain.{name}", value)


@pytest.fixture(scope="module")
def frac_prevs() -> Explanation:
    return explain_specimen(ves.load("frac_prevs"))


def test_frac_prevs_is_explained(frac_prevs: Explanation) -> None:
    by_id = {component.id: component for component in frac_prevs.components}
    assert {name: part.tag for name, part in by_id.items()} == {"L0_MLP": "INDICATOR", "L1H2": "AGGREGATOR"}
    assert all(part.tag == part.tag_by_experiment and part.verdict == "supported" for part in by_id.values())
    assert by_id["L0_MLP"].table == {
        "reads": ["tokens"],
        "classes": {"'a'": 0, "'b'": 0, "'c'": 0, "'x'": 1},
    }
    # The fit gave 1.00014 times the share plus 0.00002; both belong to the fit and not to the circuit.
    share = "L1H2 = Aggregate(Select(indices, indices, Comparison.LEQ), L0_MLP, numerical=True)"
    assert by_id["L1H2"].program == share
    assert by_id["L0_MLP"].program == "L0_MLP = Map({'a': 0, 'b': 0, 'c': 0, 'x': 1}, tokens)"
    assert frac_prevs.program is not None
    assert frac_prevs.program.splitlines()[-2:] == [share, "return L1H2"]
    assert frac_prevs.program_agreement is not None
    assert frac_prevs.program_agreement.value == 1.0
    claim = by_id["L1H2"].claims[0]
    share = "L1H2 computes the share of positions so far where the value of L0_MLP is 1."
    assert claim.text == share  # its moved outputs follow the program too
    accuracy = next(evidence for evidence in claim.evidence if evidence.measure == ACCURACY)
    assert accuracy.value is not None
    assert accuracy.value > 0.99
    assert f"{accuracy.value:.1%} of the changed outputs" in by_id["L1H2"].note
    assert accuracy.controls["shuffled_source"] is not None
    assert accuracy.controls["shuffled_source"] < 0.6


def test_every_component_has_the_claims_its_note_rests_on(frac_prevs: Explanation) -> None:
    kinds = {part.id: {claim.kind: claim.verdict for claim in part.claims} for part in frac_prevs.components}
    assert kinds == {
        "L0_MLP": {"computes": "supported", "depends_only_on": "supported", "necessary": "supported"},
        "L1H2": {"computes": "supported", "aggregates": "supported", "necessary": "supported"},
    }


def test_frac_prevs_can_be_run_from_its_explanation(frac_prevs: Explanation) -> None:
    data = Explanation.model_validate_json(frac_prevs.model_dump_json()).executable
    assert data is not None
    assert data.carriers == {"L0_MLP": ("L0_MLP",), "L1H2": ("L1H2",)}
    program = from_document(data.program)
    codes, lengths = program.encode([["x", "a"], ["a", "x", "x"]])
    outputs = program.decode(program.run(codes, lengths).output, lengths)
    assert outputs[0] == pytest.approx([1, 1 / 2], abs=0.02)
    assert outputs[1] == pytest.approx([0, 1 / 2, 2 / 3], abs=0.02)


@pytest.mark.slow
def test_raters_see_of_it_what_components_compute_and_read(frac_prevs: Explanation) -> None:
    shown = {part.id: unsigned(part.note) for part in frac_prevs.components}
    assert shown["L0_MLP"].startswith("L0_MLP computes whether the token is 'x'.")
    assert shown["L1H2"].startswith("L1H2 computes the share of positions so far where the value of L0_MLP is 1.")
    for text in (*shown.values(), unsigned(frac_prevs.task_description)):
        assert not re.search(r"%|convention|[Cc]laim|[Rr]efuted|Exchanged|[Rr]eplacing", text)


@pytest.mark.usefixtures("quick")
def test_names_and_examples_do_not_reach_the_scientist() -> None:
    specimen = ves.load("79")
    misleading = replace(
        specimen,
        id="113",
        name="count_the_vowels",
        kind="natural",
        examples=({"input": ["z"], "output": ["wrong"]},),
        behaviour="induction",
    )
    plain, misled = explain_specimen(specimen), explain_specimen(misleading)
    assert (plain.specimen, misled.specimen) == (specimen.id, "113")
    plain, misled = (explanation.model_dump(mode="json") for explanation in (plain, misled))
    assert_same_document(plain, misled, leave_out=("seconds", "specimen"))


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_same_seed_gives_the_same_explanation() -> None:
    first, second = (explain_specimen(ves.load("79"), seed=3) for _ in range(2))
    assert_same_document(first.model_dump(mode="json"), second.model_dump(mode="json"))
    assert first.components[0].tag == "INDICATOR"
    assert "whether the token is a prime number" in first.task_description


@pytest.mark.slow
def test_a_claim_that_fails_in_one_cell_is_looked_at_by_itself() -> None:
    """L0H0 of 25 carries how many tokens are equal; what reads it answers as if 7 were another number."""
    (head,) = (part for part in explain_specimen(ves.load("25")).components if part.id == "L0H0")
    (computes,) = (claim for claim in head.claims if claim.kind == "computes")
    assert computes.verdict == "undecided"
    assert next(one for one in computes.evidence if one.measure == WORST).passed is False
    assert ELSEWHERE in [one.outcome for one in computes.evidence]


@pytest.mark.slow
def test_a_head_that_copies_the_next_token_is_a_router() -> None:
    parts = {part.id: part for part in explain_specimen(ves.load("13")).components}
    assert (parts["L0H0"].tag, parts["L0_MLP"].tag) == ("ROUTER", "COMBINER")
    assert "the next position" in parts["L0H0"].note
    texts = {claim.kind: (claim.verdict, claim.text) for claim in parts["L0H0"].claims}
    assert texts["reads_from"] == ("supported", "L0H0 reads from 1 position(s) after and uses what it finds.")
    # The MLP reads the copied token only with the code of its own position: established place by place.
    assert texts["copies"] == ("supported", "At a fixed position, L0H0 copies tokens from 1 position(s) after.")
    combines = next(claim for claim in parts["L0_MLP"].claims if claim.kind == "combines")
    assert (combines.verdict, combines.text[:34]) == ("supported", "L0_MLP combines L0H0 and tokens: e")
    assert parts["L0_MLP"].reads == ("L0H0", "tokens")


@pytest.mark.parametrize("wrong", ["table", "selector"])
def test_a_wrong_program_is_not_supported(wrong: str) -> None:
    specimen = ves.load("frac_prevs")
    vocabulary = specimen.vocabulary
    assert isinstance(vocabulary, FiniteVocabulary)
    code = vocabulary.tokens.index("x")
    marked = {code, 0} if wrong == "table" else {code}
    flag = Table(("tokens",), {(token,): int(token in marked) for token in range(4)}, 2)
    share = Mean("L0_MLP", 1) if wrong == "table" else Copy("L0_MLP", "self")
    line = StraightLine(1.0, 0.0, MEAN_SCALE if wrong == "table" else 1)
    program = CircuitProgram({L0M: flag, L1H2: share}, OutputMap(("L1H2",), {}, 0.0, line), causal=True, numeric=True)
    runs = CircuitRuns(specimen, vocabulary, [L0M, L1H2])
    recorded = runs.record(draw_sequences(specimen, 200, seed=9, natural_share=1.0))
    accuracy = exchange_accuracy(runs, program, recorded, pairs=100, seed=4)[L0M]
    assert float(agreement(program, recorded).float().mean()) < 0.9
    assert accuracy is not None
    assert accuracy < 0.9
    found = translate(program, vocabulary)
    idea = Hypothesis(program=found.program, carriers=found.carriers)
    lab = CircuitLab(specimen, n=300)
    verdicts = [check(Computes(component=name, hypothesis=idea), lab).verdict for name in idea.carriers]
    # A wrong selector is the head's fault alone: what the MLP carries is right, but not established by this program.
    assert verdicts == ["refuted" if wrong == "table" else "undecided", "refuted"]


def test_a_weighted_sum_is_said_as_a_person_would() -> None:
    names = Names(FiniteVocabulary(("a", "b"), None, 3), CircuitProgram({}, None, causal=True, numeric=True))
    first, second = "the value of L0H0", "the value of L1H2"
    assert Linear(("L0H0", "L1H2"), (-1.0, 1.0), 0.0).words(names) == f"{second} minus {first}"
    assert Linear(("L0H0", "L1H2"), (0.5, 1.0), -0.25).words(names) == f"0.5 times {first} plus {second} minus 0.25"
    assert Linear(("L0H0",), (-2.0,), 1.0).words(names) == f"minus 2 times {first} plus 1"


def test_a_weighted_sum_by_hand() -> None:
    env = environment([[0, 1]])
    env.values.update(L0H0=torch.tensor([[MEAN_SCALE, 0]]), L1H2=torch.tensor([[0, MEAN_SCALE // 2]]))
    total = Linear(("L0H0", "L1H2"), (1.0, -1.0), 0.25).evaluate(env)
    assert (total / MEAN_SCALE).tolist() == [[1.25, -0.25]]


def convention_tags(facts):
    """The tags by convention, without their rules."""
    return {component: reading.tag for component, reading in tags_by_convention(facts).items()}


def test_tags_follow_from_what_was_found() -> None:
    flag = Table(("tokens",), {(0,): 0, (1,): 1, (2,): 0}, 2)
    late = Table(("L0_MLP",), {(0,): 1, (1,): 0}, 2)
    program = CircuitProgram({L0M: flag, L1M: late}, OutputMap(("L1_MLP",), {}, 0.0), causal=True, numeric=False)
    facts = Facts(program, {L0M: 1.0, L1M: 1.0})
    assert [tag_by_experiment(part, facts) for part in (L0M, L1M)] == ["INDICATOR", "MAPPER"]
    assert convention_tags(facts) == {L0M: "INDICATOR", L1M: "COMBINER"}
    with_position = replace(program, output=OutputMap(("L1_MLP", "indices"), {}, 0.0))
    assert tag_by_experiment(L1M, Facts(with_position, {L0M: 1.0, L1M: 1.0})) == "COMBINER"


def test_a_decoded_count_is_a_mapper_by_convention_even_of_two() -> None:
    heads = {L0H0: Width(Selector("all")), Component(0, 1): Width(Selector("compare"))}
    decode = Table(("L0H0", "L0H1"), {(3, 1): 0, (3, 2): 1}, 2)
    after = Table(("L0_MLP",), {(0,): 0, (1,): 1}, 2)
    program = CircuitProgram(
        {**heads, L0M: decode, L1M: after}, OutputMap(("L1_MLP",), {}, 0.0), causal=False, numeric=False
    )
    facts = Facts(program, dict.fromkeys(program.variables, 1.0))
    assert tag_by_experiment(L0M, facts) == "COMBINER"
    tags = convention_tags(facts)
    assert (tags[L0M], tags[L1M], tags[L0H0]) == ("MAPPER", "COMBINER", "AGGREGATOR")


def test_a_missing_head_is_refused() -> None:
    with pytest.raises(BadInput, match="L0H9 is not in this model"):
        explain_specimen(ves.load("frac_prevs"), components=["L0H9"])


def test_a_text_vocabulary_is_refused() -> None:
    specimen = replace(specimen_of(), vocabulary=TextVocabulary(None, 8))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="text vocabulary"):
        explain_specimen(specimen)


def test_constant_outputs_leave_nothing_to_explain() -> None:
    specimen = specimen_of()
    with torch.no_grad():
        specimen.model.unembed_weight.zero_()
    explanation = explain_specimen(specimen)
    assert "same on every input" in explanation.task_description
    assert [part.verdict for part in explanation.components] == ["untested"]


def test_nan_activations_are_reported_not_explained() -> None:
    specimen = specimen_of()
    with torch.no_grad():
        specimen.model.blocks[0].mlp.W_in[0, 0] = float("nan")
    explanation = explain_specimen(specimen)
    assert "not finite" in explanation.task_description
    assert explanation.program is None


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_untrained_specimen_gets_no_supported_claim() -> None:
    explanation = explain_specimen(specimen_of(components=("L0_MLP", "L1H2")))
    assert all(part.verdict != "supported" for part in explanation.components)
    assert "The program is not right" in explanation.task_description
    assert "Nothing was established" in explanation.task_description


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_inert_component_is_called_so_with_the_experiment_that_shows_it() -> None:
    specimen = specimen_of(components=("L0_MLP", "L1H2"))
    with torch.no_grad():
        specimen.model.blocks[1].attn.W_O[2].zero_()
    part = explain_specimen(specimen).components[1]
    assert "L1H2 is inert: replacing it changed 0.0% (" in part.note
    assert all(f"0.0% ({kind})" in part.note for kind in ("zero", "mean", "resample", "moved"))
    assert [(claim.kind, claim.verdict) for claim in part.claims] == [("necessary", "refuted")]
    assert part.verdict == "untested"


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_large_vocabulary_is_sampled_and_said_so() -> None:
    explanation = explain_specimen(specimen_of(1000, numeric=True))
    assert "1000 tokens was sampled, not enumerated" in explanation.task_description
    assert explanation.executable is not None
    assert len(json.dumps(explanation.executable.program)) < 1_000_000


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_program_that_cannot_be_written_leaves_its_claims_untested() -> None:
    explanation = explain_specimen(specimen_of(5001, numeric=True))
    assert explanation.executable is None
    assert "could not be written so that it runs" in explanation.task_description
    assert [part.verdict for part in explanation.components] == ["untested"]
