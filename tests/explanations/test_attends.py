"""Attention on a role or on its place: heads set by hand that follow a token, keep to a position or to a distance."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from tests.explanations.lookup_model import ANSWER, CONTEXT, WIDTH, lookup_model
from vesalius.behaviours.trial import trial
from vesalius.explanations.claims import Attends, check
from vesalius.explanations.claims.attending import ONE_PLACE, PUT_IN
from vesalius.explanations.laboratory import NaturalLab, growing_lab, other_tokens
from vesalius.explanations.laboratory.other_tokens import _with_words, without_copies
from vesalius.explanations.laboratory.runs import Runs

BY_TOKEN, BY_POSITION, BY_DISTANCE = "L0H0", "L1H0", "L2H0"
COPIES = "same places, no copy there"


@pytest.fixture(scope="module")
def one_place() -> NaturalLab:
    """Prompts of one template, in which the country always sits at one position. L0H0 attends to the country, L1H0 to
    its position, L2H0 to what is as far back.
    """
    model = lookup_model()
    specimen = as_specimen(model, "capitals")
    material = trial(specimen, 64, seed=5, centred=True)
    assert material.prompts is not None
    shape = torch.stack([material.prompts.roles["country"], material.prompts.position], dim=1)
    place, end = shape.mode(0).values.tolist()
    rows = (shape == torch.tensor([place, end])).all(1).nonzero()[:, 0][:16]
    assert len(rows) == 16
    with torch.no_grad():
        model.W_pos[:, ANSWER] = torch.eye(CONTEXT, WIDTH)
        first, second = (model.blocks[layer].attn for layer in (1, 2))
        first.W_K[0][ANSWER.start + place, 0] = 400.0
        first.b_Q[0][0] = 1.0
        for query in range(end - place, CONTEXT):
            second.W_Q[0][ANSWER.start + query, query - (end - place)] = 400.0
        second.W_K[0][ANSWER] = torch.eye(WIDTH)
    return NaturalLab.on(specimen, material.take(rows), seed=5)


@pytest.mark.parametrize(
    ("head", "verdict", "follows"),
    [(BY_TOKEN, "supported", 1.0), (BY_POSITION, "refuted", -1.0), (BY_DISTANCE, "refuted", -1.0)],
)
def test_a_role_at_one_position_is_told_from_the_position(
    one_place: NaturalLab, head: str, verdict: str, follows: float
) -> None:
    """All three have all their attention there in every prompt; once it is moved, one still has."""
    record = check(Attends(component=head, role="country"), one_place)
    attention, moved = record.evidence
    assert attention.passed is True
    assert attention.value == pytest.approx(1.0, abs=1e-3)
    assert moved.experiment == PUT_IN
    assert moved.value == pytest.approx(follows, abs=1e-3)
    assert (record.verdict, ONE_PLACE in record.text) == (verdict, False)


def test_moved_attention_is_that_of_plain_runs(one_place: NaturalLab) -> None:
    """The twin puts words into lists and runs prompt by prompt."""
    lab, rows = one_place, []
    prompts = lab.prompts
    place, end = int(prompts.roles["country"][0]), int(prompts.position[0])
    own = [row[: int(real.sum())] for row, real in zip(prompts.tokens.tolist(), prompts.mask, strict=True)]
    for prompt in range(lab.n):
        before = own[prompt - 1]
        free = [token for i, token in enumerate(before) if i and i not in (place, end)]
        moves = []
        for at, moved, was in ((1, place + 2, place), (end, place, place + 2)):
            tokens = torch.tensor([[*own[prompt][:at], *free[:2], *own[prompt][at:]]])
            cache = lab.model.run_with_cache(tokens)[1]
            weights = torch.stack([cache[f"blocks.{layer}.attn.hook_pattern"][0, :, end + 2] for layer in range(3)])
            moves.append(weights[:, :, moved] - weights[:, :, was])
        rows.append(torch.stack(moves).amin(0))
    for part in lab.model.components:
        if part.head is not None:
            follows = lab.follows(part, "country")
            assert follows is not None
            assert torch.allclose(follows, torch.stack(rows)[:, part.layer, part.head], atol=1e-4)


def test_where_prompts_have_no_room_the_sentence_says_so(
    one_place: NaturalLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_tokens, "PUT_IN", CONTEXT)
    monkeypatch.setattr(one_place, "_following", {})
    record = check(Attends(component=BY_POSITION, role="country"), one_place)
    assert record.verdict == "supported"
    assert ONE_PLACE in record.text


def test_words_are_put_in_before_a_position_of_each_prompt() -> None:
    tokens = torch.tensor([[1, 5, 6, 7], [1, 8, 9, 0]])
    mask = torch.tensor([[True] * 4, [True, True, True, False]])
    longer, real = _with_words(tokens, mask, torch.tensor([1, 2]), torch.tensor([[2, 3], [4, 5]]))
    assert longer.tolist() == [[1, 2, 3, 5, 6, 7], [1, 8, 4, 5, 9, 0]]
    assert real.tolist() == [[True] * 6, [True] * 5 + [False]]


def test_copies_are_exchanged_for_tokens_that_are_nowhere_else() -> None:
    """BOS a b a c a: both earlier a become others, so that the last one has nothing to find after the first (b) and
    after the second (c), nor at either; the query at the second a is gone.
    """
    tokens = torch.tensor([[0, 1, 2, 1, 3, 1], [0, 4, 5, 6, 7, 8]])
    prompts = SimpleNamespace(tokens=tokens, mask=torch.ones_like(tokens, dtype=torch.bool))
    other, places = without_copies(cast(Runs, SimpleNamespace(prompts=prompts, first=1)), seed=0)
    assert other[1].tolist() == tokens[1].tolist()
    assert [i for i in range(6) if other[0, i] != tokens[0, i]] == [1, 3]
    assert len({*other[0].tolist()}) == 6
    assert places["induction"].nonzero().tolist() == [[0, 5, 2], [0, 5, 4]]
    assert places["duplicate"].nonzero().tolist() == [[0, 5, 1], [0, 5, 3]]


def test_a_head_that_looks_for_copies_is_decided_where_every_counterfactual_keeps_them() -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    material = trial(specimen, 16, seed=5, centred=True)
    prompts = material.prompts
    assert prompts is not None
    kept = replace(material, prompts=replace(prompts, counterfactual=prompts.tokens))
    lab = NaturalLab.on(specimen, kept, seed=5)
    record = check(Attends(component="L1H0", role="induction"), lab)
    control = record.evidence[0].controls[COPIES]
    assert record.verdict == "supported"
    assert control is not None
    assert control < 0.2 < (record.evidence[0].value or 0.0)


def test_looks_join_what_their_parts_found() -> None:
    """The parts put in words of their own prompts; what they find lies one after the other."""
    lab = growing_lab(as_specimen(lookup_model(), "capitals"), 16).at_least(16)
    head = lab.model.components[0]
    follows = lab.follows(head, "country")
    assert follows is not None
    assert len(follows) == 16
    assert torch.allclose(follows, torch.ones(16), atol=1e-3)
