"""Outputs moved to another position, on three small trained models whose programs read the position.

`token_plus_position`: L0_MLP adds the position to the token. `gate_by_parity`: L0_MLP passes the token at odd
positions. `mirror_marker`: L0_MLP holds the position alone, 5 minus it. The models are in `positions.tgz` beside this
file; their `answer_key/spec.py` trains them again.
"""

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import vesalius.api as ves
from vesalius.components import Component
from vesalius.discovery.discover import discover
from vesalius.documents.explanation import Evidence
from vesalius.explanations.claims import (
    INPUT,
    Combines,
    Computes,
    Copies,
    DependsOnlyOn,
    Hypothesis,
    Necessary,
    check,
    moved,
    worded,
)
from vesalius.explanations.claims.base import cells_by, worst_cell, worst_of
from vesalius.explanations.claims.interchange import WORST
from vesalius.explanations.claims.moved import MOVED, MOVED_EQUAL, MOVED_INPUT, MOVED_WORST, outcome_of
from vesalius.explanations.claims.necessary import is_inert
from vesalius.explanations.claims.rivals import rival_contestants
from vesalius.explanations.laboratory import CircuitLab
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp import Aggregate, Map, Select, SequenceMap, compile_program, indices, tokens
from vesalius_programs.explain import explain_specimen

VOCAB = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("positions")
    with tarfile.open(Path(__file__).with_name("positions.tgz")) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture(scope="module")
def added(models) -> CircuitLab:
    return CircuitLab(ves.load(models / "token_plus_position"), n=400)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer inputs, for tests that need no precision."""
    sizes = {"POOL": 200, "FITTING": 400, "EXCHANGES": 80, "FRESH": 200, "LAB_PAIRS": 400, "REFINEMENTS": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(f"vesalius_programs.explain.{name}", value)


def code(token: str) -> int:
    return VOCAB.index(token)


def inside() -> Hypothesis:
    """What the model does: the position is added in L0_MLP (2 (2 t + 3 i) and the output are the same classes)."""
    inner = SequenceMap(lambda t, i: (2 * code(t) + 3 * i) % 5, tokens, indices, name="inner")
    outer = Map(lambda x: x, inner, name="outer")
    return _compiled(outer, "inner")


def outside() -> Hypothesis:
    """The same outputs with the position added in L1_MLP."""
    inner = Map(code, tokens, name="inner")
    outer = SequenceMap(lambda x, i: (2 * x + 3 * i) % 5, inner, indices, name="outer")
    return _compiled(outer, "inner")


def _compiled(output, inner: str) -> Hypothesis:
    program = compile_program(output, VOCAB, 6, causal=False)
    return Hypothesis(program=program, carriers={"L0_MLP": (inner,), "L1_MLP": ("outer",)})


def test_a_single_move_is_from_another_position(added):
    rows, reads = added.single_moves
    moved = reads >= 0
    assert bool((moved.sum(1) <= 1).all())
    assert float(moved.any(1).float().mean()) > 0.9
    row, base = moved.nonzero(as_tuple=True)
    source = reads[row, base]
    assert bool((source != base).all())
    assert bool(added.real[rows[row], base].all())
    assert bool(added.source_real[rows[row], source].all())


def test_a_moved_output_is_that_of_a_hooked_run(added):
    """Twin: the engine's answer equals running the base with one vector overwritten by hand."""
    rows, reads = added.single_moves
    row = int((reads[:20] >= 0).any(1).nonzero()[0])
    place = int((reads[row] >= 0).nonzero()[0])
    model, pair = added.model, int(rows[row])
    name = "blocks.0.hook_mlp_out"
    source = added.source.take(slice(pair, pair + 1))
    _, cache = model.run_with_cache(source.tokens, mask=source.mask, names=name)
    vector = cache[name][0, int(reads[row, place]) + 1]

    def overwrite(value, hook):
        value = value.clone()
        value[0, place + 1] = vector
        return value

    base = added.batch.take(slice(pair, pair + 1))
    logits = model.run_with_hooks(base.tokens, mask=base.mask, fwd_hooks=[(name, overwrite)])
    answers = logits[0, 1:].argmax(-1)
    real = added.real[pair]
    assert answers[real].tolist() == added.moved_once(Component.parse("L0_MLP"))[row][real].long().tolist()


def test_the_position_is_claimed_where_it_is(added):
    record = check(Computes(component="L0_MLP", hypothesis=inside()), added)
    assert (record.verdict, outcome_of(record.evidence)) == ("supported", "free")
    assert record.text.startswith("L0_MLP computes")
    wrong = check(Computes(component="L0_MLP", hypothesis=outside()), added)
    assert (wrong.verdict, outcome_of(wrong.evidence)) == ("refuted", "dependent")
    # Place by place the two say the same, so everything else about the wrong one holds.
    assert [one.passed for one in wrong.evidence] == [True, True, True, True, False, None]


def test_a_sentence_that_names_a_refuted_input_says_so(added):
    """L1_MLP is right about `inner`, but `inner` is not what L0_MLP carries."""
    wrong, right = outside(), inside()
    said = " Here inner means the variable of the program: the claim that L0_MLP carries it is refuted."
    claim = Computes(component="L1_MLP", hypothesis=wrong)
    record = check(claim, added)
    assert record.verdict == "supported"
    assert record.text.endswith(said)
    (line,) = [one for one in record.evidence if one.measure == INPUT]
    assert (line.outcome, line.passed) == ("refuted", None)
    assert said not in check(Computes(component="L1_MLP", hypothesis=right), added).text
    depends = DependsOnlyOn(component="L1_MLP", program=wrong.program, variables=("inner", "indices"))
    assert check(depends, added, carriers=wrong.carriers).text == f"L1_MLP depends only on inner and indices.{said}"
    # Who carries `inner` is not said, so nothing is said about L0_MLP.
    assert check(depends, added).text == "L1_MLP depends only on inner and indices."
    alone = Hypothesis(program=wrong.program, carriers={"L1_MLP": ("outer",)})
    assert said not in check(Computes(component="L1_MLP", hypothesis=alone), added).text
    # A claim that is not supported rests on nothing.
    refuted = check(Computes(component="L0_MLP", hypothesis=wrong), added)
    assert not any(one.measure == INPUT for one in refuted.evidence)


def answered_otherwise(lab: CircuitLab, monkeypatch: pytest.MonkeyPatch, where) -> None:
    """Let the model ignore the moved output in the rows of a design that `where` picks."""
    real_designs = moved.designs

    def designs(lab, component):
        return [
            replace(design, observed=torch.where(where(design)[:, None], lab.clean[design.rows], design.observed))
            for design in real_designs(lab, component)
        ]

    monkeypatch.setattr(moved, "designs", designs)


@pytest.mark.parametrize("failing", ["single", "all"])
def test_a_claim_that_fails_in_one_design_holds_at_a_fixed_position(added, monkeypatch, failing):
    answered_otherwise(added, monkeypatch, lambda design: torch.full((len(design.rows),), design.label == failing))
    record = check(Computes(component="L0_MLP", hypothesis=inside()), added)
    assert (record.verdict, outcome_of(record.evidence)) == ("supported", "fixed")
    assert record.text.startswith("At a fixed position, L0_MLP computes")
    line = next(one for one in record.evidence if one.measure == MOVED)
    assert line.value == line.controls[f"{failing}: accuracy"]  # the figure shown is that of the worse design
    assert line.value < line.controls[f"{'all' if failing == 'single' else 'single'}: accuracy"]


@pytest.mark.parametrize("place", [0, 5])
def test_a_claim_that_fails_at_one_position_says_which(added, monkeypatch, place):
    """Outputs that are moved to one position are ignored: on the whole the claim still holds."""
    one_place = lambda design: (design.reads[:, place] >= 0) & (design.label == "single")  # noqa: E731
    answered_otherwise(added, monkeypatch, one_place)
    record = check(Computes(component="L0_MLP", hypothesis=inside()), added)
    worst = next(one for one in record.evidence if one.measure == MOVED_WORST)
    assert worst_of(worst) == f"moved to position {place}"
    assert worst.low <= worst.value < worst.high < 0.8
    assert worst.n >= 12
    line = next(one for one in record.evidence if one.measure == MOVED)
    assert (line.outcome, record.verdict) == ("fixed", "supported")
    assert record.text.startswith("At a fixed position, L0_MLP computes")


def test_cells_count_inputs_and_the_worst_is_worst_for_certain():
    """Hand-worked: label 0 has 3 of 4 cases right in 2 rows, label 1 none of 1; row 3 has no label."""
    right = torch.tensor([[True, True], [True, False], [False, False], [False, False]])
    cases = torch.tensor([[True, True], [True, True], [True, False], [True, True]])
    assert cells_by(torch.tensor([0, 0, 1, -1]), right, cases) == {0: (0.75, 2), 1: (0.0, 1)}
    worst, counted = worst_cell({"few": (0.0, 11), "bad": (0.5, 12), "worse": (0.6, 1200)})
    assert worst is not None
    # 0.5 of 12 may be 0.75 in truth, 0.6 of 1,200 no more than 0.63.
    assert worst.label == "worse"
    assert counted == {"cells": 2.0, "with_too_few_cases": 1.0}


def test_dependence_on_the_token_alone_is_refuted_by_the_moved_output(added):
    program = outside().program
    claim = DependsOnlyOn(component="L0_MLP", program=program, variables=("tokens",), carried=("inner",))
    assert check(claim, added).verdict == "refuted"
    # Without a program there is no rival, and only the place-by-place claim is left.
    record = check(claim.model_copy(update={"carried": ()}), added)
    assert (record.verdict, outcome_of(record.evidence)) == ("supported", "fixed")
    assert record.text == "At a fixed position, L0_MLP depends only on tokens."
    # What is carried travels, and still the answers change where the tokens are equal: there is something else in it.
    more = DependsOnlyOn(component="L0_MLP", program=inside().program, variables=("tokens",), carried=("inner",))
    assert check(more, added).verdict == "refuted"
    both = DependsOnlyOn(component="L0_MLP", program=program, variables=("tokens", "indices"))
    assert check(both, added).text == "L0_MLP depends only on tokens and indices."


def test_token_and_position_are_combined_where_the_moved_output_says_so(added):
    combined = Combines(
        component="L0_MLP", program=inside().program, variables=("tokens", "indices"), carried=("inner",)
    )
    assert check(combined, added).verdict == "supported"
    later = Combines(component="L1_MLP", program=outside().program, variables=("inner", "indices"), carried=("outer",))
    assert check(later, added).verdict != "refuted"  # its output is free of what came in where
    unknown = combined.model_copy(update={"carried": ()})
    assert check(unknown, added).verdict == "undecided"


def test_a_table_beside_an_input_that_holds_the_position_is_tested_place_by_place(added):
    """L0_MLP holds the position already. That L1_MLP reads it beside L0_MLP cannot be seen in L1_MLP's own output."""
    idea = outside()
    record = check(Computes(component="L1_MLP", hypothesis=idea), added)
    assert (record.verdict, outcome_of(record.evidence)) == ("supported", "free")
    assert record.text.startswith("At a fixed position, L1_MLP computes")
    (stays,) = [one for one in record.evidence if one.measure == MOVED_INPUT]
    assert (stays.outcome, stays.passed) == ("dependent", None)
    pair = Combines(component="L1_MLP", program=idea.program, variables=("inner", "indices"), carried=("outer",))
    assert check(pair, added).verdict == "supported"
    assert check(pair.model_copy(update={"carriers": idea.carriers}), added).verdict == "undecided"
    # The true program: L1_MLP reads L0_MLP alone, and nothing is left open.
    true = check(Computes(component="L1_MLP", hypothesis=inside()), added)
    assert true.text.startswith("L1_MLP computes")


def test_rivals_differ_in_where_the_position_comes_from():
    (rival,) = rival_contestants(outside().program, ("inner",))
    assert rival.label == "position inside"
    assert rival.carried == ("inner", "moved_position")
    (other,) = rival_contestants(inside().program, ("inner",))
    assert (other.label, other.carried) == ("position outside", ("moved tokens",))
    assert rival_contestants(inside().program, ("outer",)) == []
    # Nothing moved: every contestant is the program itself.
    for contestant, program in ((rival, outside().program), (other, inside().program)):
        codes = program.encode([["a", "d", "c"], ["b", "b"]])
        assert contestant.program.run(*codes).output.tolist() == program.run(*codes).output.tolist()


def test_a_head_may_stand_between_a_value_and_a_position():
    """A position that is read after a head is not the position of the value."""
    inner = Map(code, tokens, name="inner")
    first = Aggregate(Select(indices, indices, lambda key, query: key == 0), inner, name="first")
    outer = SequenceMap(lambda x, i: (x + i) % 5, first, indices, name="outer")
    program = compile_program(outer, VOCAB, 6, causal=False)
    assert rival_contestants(program, ("inner",)) == []
    assert [rival.label for rival in rival_contestants(program, ("first",))] == ["position inside"]


def test_a_component_of_the_position_alone_is_necessary_and_not_inert(models):
    lab = CircuitLab(ves.load(models / "mirror_marker"), n=300)
    record = check(Necessary(component="L0_MLP"), lab)
    effects = {one.experiment: one.value for one in record.evidence}
    assert record.verdict == "supported"
    assert effects["resample replacement"] == 0.0
    assert min(effects[f"{kind} replacement"] for kind in ("zero", "mean", "moved")) > 0.1
    assert not is_inert(record.evidence)
    assert all("interval above" in one.rule and "(" in one.rule for one in record.evidence)


@pytest.mark.parametrize("method", ["sweep", "acdc", "eap", "eap-ig"])
def test_discovery_finds_a_component_of_the_position_alone(models, method):
    found = discover(ves.load(models / "mirror_marker"), method, n=24)
    assert {str(part) for part, _ in found.circuit.ranked()[:2]} == {"L0_MLP", "L1H0"}
    (note,) = found.notes
    assert note.startswith("L0_MLP shows only when its output is moved")
    assert f"{method} cannot see it" in note


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_variable_of_the_position_alone_is_found_and_named(models):
    parts = {part.id: part for part in explain_specimen(ves.load(models / "mirror_marker")).components}
    assert parts["L0_MLP"].reads == ("indices",)
    assert parts["L0_MLP"].verdict == "supported"
    assert "L0_MLP" in parts["L1H0"].reads
    assert "inert" not in parts["L0_MLP"].note


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_position_is_found_inside_and_two_seeds_give_the_same_classes(models):
    tables = []
    for seed in (0, 1):
        first, second = explain_specimen(ves.load(models / "token_plus_position"), seed=seed).components
        assert (first.reads, first.verdict) == (("tokens", "indices"), "supported")
        assert second.reads == ("L0_MLP",)
        assert first.table is not None
        tables.append(_classes(first.table["classes"]))
    # (2 t + 3 i) mod 5 has five classes; every pair of token and position is in one of them.
    cells = {(t, i): (2 * code(t) + 3 * i) % 5 for t in VOCAB for i in range(6)}
    expected = {frozenset(f"'{t}', {i}" for (t, i), value in cells.items() if value == k) for k in range(5)}
    assert tables[0] == tables[1] == expected


def _classes(entries: dict[str, int]) -> set[frozenset[str]]:
    return {frozenset(key for key, value in entries.items() if value == each) for each in set(entries.values())}


def test_a_sentence_is_no_wider_than_its_evidence():
    def moved(outcome: str, experiment: str = "output moved") -> tuple[Evidence, ...]:
        fields = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 30, "rule": "", "seed": 0}
        return (Evidence(experiment=experiment, measure=MOVED, outcome=outcome, **fields),)

    assert worded("X computes y.", "supported", moved("free")) == "X computes y."
    assert worded("X computes y.", "supported", moved("fixed")) == "At a fixed position, X computes y."
    assert worded("X computes y.", "supported", moved("untested")) == "At a fixed position, X computes y."
    assert worded("X computes y.", "refuted", moved("dependent")) == "X computes y."
    single = moved("untested", "output moved (inputs have one position only)")
    assert worded("X computes y.", "supported", single) == "X computes y."
    assert worded("X is necessary.", "supported", ()) == "X is necessary."


def test_the_worst_argument_has_a_name_and_an_interval(added):
    record = check(Computes(component="L0_MLP", hypothesis=inside()), added)
    worst = next(one for one in record.evidence if one.measure == WORST)
    assert "; worst: " in worst.experiment
    assert worst.low is not None
    assert worst.high is not None
    assert worst.low <= (worst.value or 0.0) <= worst.high
    assert worst.n >= 12


def test_a_copy_is_tested_across_positions():
    """Circuit 19 copies the previous token; the moved test is made wherever the swaps support the claim."""
    lab = CircuitLab(ves.load("19"), n=256)
    vocabulary = lab.specimen.vocabulary
    assert isinstance(vocabulary, FiniteVocabulary)
    program = compile_program(
        Aggregate(Select(indices, indices, lambda key, query: key == query - 1), tokens, name="previous"),
        vocabulary.tokens,
        vocabulary.max_len,
        causal=lab.model.config.causal,
    )
    head = next(str(part) for part in lab.circuit if part.is_head)
    record = check(Copies(component=head, program=program, offset=1), lab)
    assert record.verdict == "supported"
    assert any(one.measure == MOVED_EQUAL for one in record.evidence)
