"""An explanation is improved where its ladder loses most, and only by what is confirmed on other prompts."""

from pathlib import Path

import pytest
import torch

import vesalius as ves
from tests.explanations.test_proposals import specimen_of
from vesalius.components import Component
from vesalius.documents.base import FrozenDict
from vesalius.documents.explanation import Explanation
from vesalius.documents.proposal import Proposal, RunProposal
from vesalius.documents.running import Rung
from vesalius.errors import BadInput
from vesalius.explanations.running import parse_program
from vesalius.model.specimen import Specimen
from vesalius_bench.natural.planted import ADDITION, adding_model, repeating_model
from vesalius_session.documents import Improvement
from vesalius_session.proposals.reading import read_proposal
from vesalius_session.proposals.run import GRADING, proposal_prompts
from vesalius_session.proposals.search import ExplanationSearcher, Stage, confirming

GOLDEN = Path(__file__).parent.parent / "documents" / "golden" / "improvement.json"


@pytest.fixture(scope="module")
def repeats() -> Specimen:
    return specimen_of(repeating_model({1: 1.0}), "induction")


def searched(specimen: Specimen, given: dict, *, most: int = 4_000) -> tuple[ExplanationSearcher, str]:
    work = ExplanationSearcher(specimen, read_proposal(given, specimen.model.config), 0.8, most)
    return work, work.search()


@pytest.mark.slow
def test_a_false_rule_is_replaced_and_a_missing_head_is_found(repeats: Specimen) -> None:
    for given, kind in (({"L1H1": "3 back"}, "rule"), ({"L0H0": "1 back"}, "component")):
        work, stopped = searched(repeats, {"programs": given})
        assert stopped == "the share is reached"
        assert [(one.kind, one.of) for one in work.changes if one.accepted] == [(kind, "L1H1")]
        assert "after earlier copy" in parse_program(work.result.programs["L1H1"]).rules
    chosen, confirmed = (stage.material.batch.tokens for stage in (work.choose, work.confirm))
    report = proposal_prompts(repeats, 8, split=GRADING, seed=0).report.batch.tokens
    sets = [{tuple(row) for row in tokens.tolist()} for tokens in (chosen, confirmed, report)]
    assert not sets[0] & sets[1]
    assert not (sets[0] | sets[1]) & sets[2]


@pytest.mark.slow
def test_what_is_right_is_left_alone_and_a_budget_ends_the_search(repeats: Specimen) -> None:
    right = {"programs": {"L0H0": "1 back", "L1H1": "after earlier copy"}}
    work, stopped = searched(repeats, right)
    assert (stopped, work.changes) == ("the share is reached", [])
    work, stopped = searched(repeats, {"programs": {"L1H1": "3 back"}}, most=1)
    assert (stopped, work.changes) == ("the passes are spent", [])


@pytest.mark.slow
def test_a_variable_is_moved_to_the_place_that_carries_it() -> None:
    adds = specimen_of(adding_model(first=1, then=3, last=5, signs=(-1, 1)), ADDITION)
    given = {"algorithm": "arithmetic", "variables": {"difference": "resid1@A"}, "mlps": ["L0_MLP", "L1_MLP"]}
    work, _ = searched(adds, given, most=600)
    (change,) = [one for one in work.changes if one.kind == "place"]
    assert (change.was, change.now, change.accepted) == ("resid1@A", "resid1@B", True)
    assert change.confirmed.value == 1.0
    assert dict(work.result.variables) == {"difference": "resid1@B"}


@pytest.mark.slow
def test_shares_of_a_stage_equal_plain_hooks(repeats: Specimen) -> None:
    stage = Stage(repeats, proposal_prompts(repeats, 4, split=GRADING, seed=0).report)
    looks = {Component(0, 0): parse_program("1 back"), Component(1, 1): None}
    batch, other = stage.material.batch.tokens, stage.material.counterfactual.tokens
    names = [f"blocks.{layer}.attn.{what}" for layer in (0, 1) for what in ("hook_z", "hook_pattern")]
    _, replaced = repeats.model.run_with_cache(other, names=names)
    _, intact = repeats.model.run_with_cache(batch, names=names)

    def pattern(value: torch.Tensor, hook: object) -> torch.Tensor:
        edited = value.clone()
        if getattr(hook, "name", "").startswith("blocks.0"):
            back = torch.zeros(batch.shape[1], batch.shape[1])
            back[0, 0] = back[1, 0] = 1.0  # BOS is no token that stands back
            for query in range(2, batch.shape[1]):
                back[query, query - 1] = 1.0
            edited[:, 0] = back
        else:
            edited[:, 1] = intact["blocks.1.attn.hook_pattern"][:, 1]
        return edited

    def z(value: torch.Tensor, hook: object) -> torch.Tensor:
        name = getattr(hook, "name", "")
        kept = 0 if name.startswith("blocks.0") else 1
        edited = replaced[name].clone()
        edited[:, :, kept] = value[:, :, kept]
        return edited

    hooks = [(name, pattern if name.endswith("pattern") else z) for name in names]
    logits = repeats.model.run_with_hooks(batch, fwd_hooks=hooks)
    prompts = stage.material.prompts
    assert prompts is not None
    last = logits[torch.arange(len(logits)), prompts.position]
    score = (last.gather(1, prompts.correct[:, None]) - last.gather(1, prompts.wrong[:, None]))[:, 0]
    assert torch.allclose(stage.scores(looks), score, atol=1e-4)


def test_prompts_that_confirm_are_not_those_that_choose(repeats: Specimen) -> None:
    from vesalius.behaviours.trial import trial

    choose = trial(repeats, 8, seed=0, split="train")
    confirm = confirming(repeats, choose, seed=0)
    assert not {tuple(row) for row in choose.batch.tokens.tolist()} & {
        tuple(row) for row in confirm.batch.tokens.tolist()
    }


def explained(specimen: Specimen, programs: dict[str, str]) -> Explanation:
    proposal = Proposal(programs=FrozenDict(programs))
    return Explanation(
        specimen=specimen.id,
        behaviour=specimen.behaviour,
        scientist="scripted",
        components=(),
        information_flow="-",
        task_description="-",
        seconds=0.0,
        seed=0,
        proposed=RunProposal(proposal=proposal, rules=len(programs), rows=0.0),
    )


@pytest.mark.slow
def test_before_and_after_are_measured_on_prompts_that_had_no_part(repeats: Specimen, tmp_path: Path) -> None:
    given = explained(repeats, {"L1H1": "3 back", "L0H0": "1 back"})
    result = ves.improve(given, n=8, passes=900, specimen=repeats, out=tmp_path, progress=False)
    assert result.answered().verdict == "yes"
    assert result.before.kept is not None
    assert result.after.kept is not None
    assert (result.before.kept.value or 0.0) < 0.2
    assert (result.after.kept.low or 0.0) > 0.8
    assert Improvement.read(tmp_path / "improvement.json") == result


def test_a_share_that_a_control_keeps_too_or_that_exceeds_the_model_is_no_yes() -> None:
    document = Improvement.read(GOLDEN)
    assert document.answered().verdict == "yes"
    running = document.after.running
    assert running is not None

    def with_running(**change: object) -> Improvement:
        after = document.after.model_copy(update={"running": running.model_copy(update=change)})
        return document.model_copy(update={"after": after})

    first = running.controls[0]
    assert first.change is not None
    equal = first.model_copy(update={"change": first.change.model_copy(update={"low": -0.1})})
    beaten = with_running(controls=(equal, *running.controls[1:])).answered()
    assert (beaten.verdict, "no more than with" in beaten.text) == ("no", True)

    def keeping(value: float) -> Improvement:
        def at(one: Rung) -> Rung:
            return one.model_copy(update={"kept": one.kept.model_copy(update={"value": value})})

        return with_running(rungs=tuple(at(one) if one.step == "programs" else one for one in running.rungs))

    assert keeping(1.4).answered().verdict == "partly"
    assert "far more than the model" in keeping(1.4).answered().text
    assert "0.8 was asked for" in keeping(0.5).answered().text
    above = [one.model_copy(update={"fault": "too much"} if one.step == "programs" else {}) for one in running.rungs]
    assert with_running(rungs=tuple(above)).answered().verdict == "partly"  # rules that repair what heads do
    assert keeping(document.before.kept.value - 0.1).answered().verdict == "no"  # type: ignore[union-attr, operator]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"until": 0.0}, "share of the behaviour"), ({"until": 1.2}, "up to 1"), ({"passes": 0}, "needs passes")],
)
def test_what_makes_no_sense_is_refused_before_the_model_is_read(repeats: Specimen, options: dict, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ves.improve(explained(repeats, {"L1H1": "3 back"}), **options)
    with pytest.raises(BadInput, match="no program that runs"):
        ves.improve(explained(repeats, {}))
