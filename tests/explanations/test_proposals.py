"""Explanations as data: what is right holds, what is false is refuted, and an agent gives one by a claim."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.discovery.shares import Shares
from vesalius.documents.base import FrozenDict
from vesalius.documents.proposal import RUNS, Proposal
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius_bench.natural.planted import ADDITION, adding_model, planted_tokenizer, repeating_model
from vesalius_session.budget import Budget
from vesalius_session.command import InstrumentTable
from vesalius_session.findings import Statement
from vesalius_session.proposals.reading import read_proposal
from vesalius_session.proposals.run import (
    GRADING,
    TRYING,
    Runs,
    null_of,
    proposal_prompts,
    run_proposal,
    size_of,
    stand_ins,
)
from vesalius_session.session import Session

RIGHT = {"programs": {"L0H0": "1 back", "L1H1": "after earlier copy"}}
DIFFERENCE = "def difference(A, B):\n    return A - B\n\ndef answer(difference, C):\n    return difference + C\n"


def specimen_of(model: Any, behaviour: str) -> Specimen:
    return Specimen(
        id="by_hand",
        name="by_hand",
        kind="natural",
        model=model,
        vocabulary=TextVocabulary(planted_tokenizer(), model.config.n_ctx),
        components=tuple(model.components),
        examples=(),
        draw=lambda n, seed: [],
        behaviour=behaviour,
    )


@pytest.fixture(scope="module")
def repeats() -> Specimen:
    return specimen_of(repeating_model({1: 1.0}), "induction")


@pytest.fixture(scope="module")
def adds() -> Specimen:
    return specimen_of(adding_model(first=1, then=3, last=5, signs=(-1, 1)), ADDITION)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "must be an object"),
        ({}, "says nothing"),
        ({"heads": {}}, "'heads' is not one of its fields"),
        ({"programs": {"L0H0": "the answer"}}, "rule 'the answer' does not exist"),
        ({"programs": {"L9H0": "BOS"}}, "L9H0"),
        ({"programs": {"L0_MLP": "BOS"}}, "name it in `mlps`"),
        ({"programs": ["L0H0"]}, "object of names and texts"),
        ({"mlps": ["L0H0"]}, "give it a program"),
        ({"mlps": "L0_MLP"}, "must be a list"),
        ({"variables": {"copied": "resid1@B"}}, "give `algorithm` too"),
        ({"algorithm": "induction", "variables": {"sum": "resid1@B"}}, "'sum' is not in the algorithm"),
        ({"algorithm": "induction", "variables": {"a b": "resid1@B"}}, "is not the name of a variable"),
        ({"algorithm": "/etc/passwd", "variables": {"x": "resid1@B"}}, "does not exist; name one of"),
        ({"algorithm": "def answer(:", "variables": {"x": "resid1@B"}}, "not Python"),
        ({"stand_ins": [["L0H0"]]}, "fewer than two"),
        ({"stand_ins": "L0H0"}, "list of at most"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(repeats: Specimen, given: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        read_proposal(given, repeats.model.config)
    assert "\n" not in str(refused.value)


def test_a_proposal_is_read_as_it_is_written(repeats: Specimen) -> None:
    given = {**RIGHT, "stand_ins": [["L1H1", "L1H0"]], "algorithm": "induction", "variables": {"copied": "resid1@B"}}
    proposal = read_proposal(given, repeats.model.config)
    assert read_proposal(proposal.as_data(), repeats.model.config) == proposal
    assert proposal.stand_ins == (("L1H0", "L1H1"),)
    assert size_of(proposal) == 3  # two rules and a variable


def test_prompts_that_grade_share_none_with_those_that_an_agent_tries_on(repeats: Specimen) -> None:
    tried, graded = (
        proposal_prompts(repeats, 8, split=split, seed=0).report.batch.tokens for split in (TRYING, GRADING)
    )
    assert not {tuple(row) for row in tried.tolist()} & {tuple(row) for row in graded.tolist()}


@pytest.mark.slow
def test_the_right_words_keep_the_behaviour_and_a_null_does_not(repeats: Specimen) -> None:
    places = {"copied": "resid1@B", "match": "resid1@end"}  # the second is false
    proposal = read_proposal({**RIGHT, "algorithm": "induction", "variables": places}, repeats.model.config)
    right = run_proposal(repeats, proposal, n=8)
    assert right.kept is not None
    assert right.running is not None
    assert right.kept.low is not None
    assert right.kept.low > 0.9
    assert right.running.beaten_by == []
    assert [(one.variable, one.at.verdict) for one in right.found] == [("copied", "carries"), ("match", "no")]
    for seed in range(3):
        null = null_of(proposal, repeats, seed=seed)
        assert (set(null.programs), null.mlps, set(null.variables)) == (set(proposal.programs), (), set(places))
        assert not set(null.programs.values()) & set(proposal.programs.values())
    worth = run_proposal(repeats, null, n=8)
    assert worth.kept is not None
    assert worth.running is not None
    assert worth.kept.value is not None
    assert worth.kept.value < 0.2
    assert worth.running.beaten_by
    assert null.variables["copied"] in {"resid1@first A", "resid1@end"}
    assert [one.at.accuracy.value for one in worth.found] == [0.0, 0.0]


@pytest.mark.slow
def test_a_false_program_of_a_head_that_nothing_needs_is_refuted(repeats: Specimen) -> None:
    """L0H2 does nothing, so that the words keep everything whatever is said of it."""
    for beside, verdict in (({}, "supported"), ({"L0H2": "BOS"}, "refuted")):
        given = {"programs": {**RIGHT["programs"], **beside}}
        run = run_proposal(repeats, read_proposal(given, repeats.model.config), n=8)
        assert run.kept is not None
        assert run.kept.value == pytest.approx(1.0, abs=0.05)
        record = Runs(component="L0H0", proposal=run.proposal).record(run, seed=0)
        assert record.verdict == verdict
        assert [one.experiment for one in record.evidence if one.passed is False] == ["L0H2 looks at BOS 1.00"] * len(
            beside
        )
        (by_head,) = [one for one in record.evidence if one.experiment == "programs head by head"]
        assert (by_head.n, by_head.passed) == (2 + len(beside), None)


@pytest.mark.slow
def test_a_false_algorithm_and_a_wrong_place_are_refuted(adds: Specimen) -> None:
    config = adds.model.config
    one_more = DIFFERENCE.replace("A - B", "A - B + 1")
    at = {"difference": "resid1@B"}
    right = run_proposal(adds, read_proposal({"algorithm": DIFFERENCE, "variables": at}, config), n=8)
    false = run_proposal(adds, read_proposal({"algorithm": one_more, "variables": at}, config), n=8)
    placed = run_proposal(
        adds, read_proposal({"algorithm": "arithmetic", "variables": {"difference": "resid1@A"}}, config), n=8
    )
    assert right.running is None
    assert (right.agreement and right.agreement.value, right.variables[0].at.accuracy.value) == (1.0, 1.0)
    assert false.agreement is not None
    assert (false.agreement.value, false.variables[0].at.verdict) == (0.0, "no")
    assert placed.variables[0].at.verdict == "no"
    assert placed.variables[0].at.accuracy.value == 0.0


@pytest.mark.slow
def test_what_stands_at_the_embedding_by_construction_supports_no_claim(adds: Specimen) -> None:
    def verdict(places: Mapping[str, str]) -> tuple[str, list[bool]]:
        given = {"algorithm": DIFFERENCE, "variables": places}
        proposal = read_proposal(given, adds.model.config)
        run = run_proposal(adds, proposal, n=8)
        return Runs(component="L0H0", proposal=proposal).record(run, seed=0).verdict, [
            one.given for one in run.variables
        ]

    assert verdict({"A": "resid0@A", "answer": "resid2@end"}) == ("untested", [True, True])
    assert verdict({"A": "resid0@A", "difference": "resid1@B"}) == ("supported", [True, False])
    assert verdict({"A": "resid0@A", "difference": "resid1@A"}) == ("refuted", [True, False])


def without(specimen: Specimen, material: Trial, heads: list[Component]) -> torch.Tensor:
    """The score with these heads at their counterfactual value, by plain hooks."""
    names = {f"blocks.{head.layer}.attn.hook_z" for head in heads}
    _, other = specimen.model.run_with_cache(material.counterfactual.tokens, names=list(names))

    def put(value: torch.Tensor, hook: Any) -> torch.Tensor:
        edited = value.clone()
        for head in heads:
            if hook.name == f"blocks.{head.layer}.attn.hook_z":
                edited[:, :, head.head] = other[hook.name][:, :, head.head]
        return edited

    logits = specimen.model.run_with_hooks(material.batch.tokens, fwd_hooks=[(name, put) for name in names])
    prompts = material.prompts
    assert prompts is not None
    last = logits[torch.arange(len(logits)), prompts.position]
    return (last.gather(1, prompts.correct[:, None]) - last.gather(1, prompts.wrong[:, None]))[:, 0]


@pytest.mark.slow
def test_stand_ins_are_those_whose_joint_cost_exceeds_the_sum_and_equal_plain_hooks() -> None:
    specimen = specimen_of(repeating_model({0: 4.0, 2: 4.0}, norm="rms"), "induction")
    material = proposal_prompts(specimen, 8, split=GRADING, seed=0).report
    shares = Shares(specimen.model, material)
    both, other = stand_ins(shares, [("L1H0", "L1H2"), ("L0H0", "L1H0")])
    assert (both.holds, other.holds) == (True, False)
    one, two = Component(1, 0), Component(1, 2)
    clean = without(specimen, material, [])
    lost = {parts: clean - without(specimen, material, list(parts)) for parts in ((one,), (two,), (one, two))}
    excess = (lost[one, two] - lost[one,] - lost[two,]).mean()
    everything = (shares.full - shares.nothing).mean()
    assert both.excess.value == pytest.approx(float(excess / everything), abs=1e-4)


@pytest.mark.slow
def test_an_agent_proposes_through_the_session_and_is_graded_on_prompts_that_it_has_not_seen(repeats: Specimen) -> None:
    budget = Budget(executions=4, claims=4)
    with Session.open(repeats, ["L0H0", "L1H1"], budget=budget, n=8) as session:
        table = InstrumentTable(session)
        assert '"kind": "runs"' in str(table.task(seed=0, timeout=10.0)["runs"])
        left = table.left["claims"]
        false = table.answer({"claim": {"kind": RUNS, "programs": {"L0H0": "self", "L1H1": "3 back"}}})
        assert false["records"][0]["verdict"] == "refuted"
        answer = table.answer({"claim": {"kind": RUNS, **RIGHT}})
        (record,) = answer["records"]
        # A sharper rule than the head's own pattern keeps more than that: a fault of the ladder, and no more than open.
        above = "keeps" in (record["evidence"][0]["outcome"] or "")
        assert record["verdict"] == ("undecided" if above else "supported")
        assert record["evidence"][0]["low"] > 0.9
        assert record["evidence"][0]["measure"] == "share kept"
        assert set(record["evidence"][0]["controls"]) >= {"shuffled programs", "counterfactual patterns"}
        assert (left, answer["left"]["claims"]) == (4, 2)
        with pytest.raises(BadInput, match="L9H9"):
            table.answer({"claim": {"kind": RUNS, "programs": {"L9H9": "self"}}})
        explanation = session.submit(Statement({}, "-", "-"))
    proposed = explanation.proposed
    assert proposed is not None
    assert dict(proposed.proposal.programs) == {"L0H0": "1 back 1.00", "L1H1": "after earlier copy 1.00"}
    assert proposed.kept is not None
    assert (proposed.kept.value or 0.0) > 0.9
    assert all(claim.kind != RUNS for part in explanation.components for claim in part.claims)


def test_an_earlier_proposal_is_recalled_and_of_a_finished_one_nothing_is_lost(repeats: Specimen) -> None:
    class Briefing:
        specimen = repeats

    class Setting:
        briefing, behaviour = Briefing, "induction"

    session = Session(Setting, None)  # type: ignore[arg-type]
    given: Mapping[str, Any] = {"kind": RUNS, **RIGHT}
    session.recall(given, {})
    assert session.memory.proposal == Proposal(
        programs=FrozenDict({"L0H0": "1 back 1.00", "L1H1": "after earlier copy 1.00"})
    )
    assert session.memory.copy().proposal == session.memory.proposal
