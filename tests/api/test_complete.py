"""Prompts continued under interventions, against a plain loop with hooks."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vesalius as ves
from vesalius.documents import Completion
from vesalius.documents.answers import completion_answer
from vesalius.errors import BadInput
from vesalius.intervene.generation import divergence, random_directions
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import write_tensors

PROMPT, SOURCE = "58 -", "76 +"


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("arithmetic", behaviour="addition:signs=-+,high=99,shots=0")


def plain(specimen: Specimen, text: str, n: int, hooks: Callable[[int], list]) -> tuple[Tensor, str]:
    """Log-probabilities of the first token and the likeliest continuation, by runs with hooks."""
    tokens, first = specimen.tokenize([text]), None
    length = tokens.shape[1]
    for _ in range(n):
        logits = specimen.model.run_with_hooks(tokens, fwd_hooks=hooks(length))[0, -1].log_softmax(-1)
        first = logits if first is None else first
        tokens = torch.cat([tokens, logits.argmax()[None, None]], 1)
    assert first is not None
    assert isinstance(specimen.vocabulary, TextVocabulary)
    return first, specimen.vocabulary.tokenizer.decode(tokens[0, length:].tolist())


def check(specimen: Specimen, result: Completion, n: int, hooks: Callable[[int], list]) -> None:
    before, clean = plain(specimen, PROMPT, n, lambda length: [])
    after, edited = plain(specimen, PROMPT, n, hooks)
    assert (result.clean, result.edited) == (clean, edited)
    assert result.divergence == pytest.approx(divergence(before, after), rel=1e-3, abs=1e-6)
    shown = {one.token: (one.clean, one.edited) for one in result.next}
    assert isinstance(specimen.vocabulary, TextVocabulary)
    for side, place in ((before, 0), (after, 1)):
        top = int(side.argmax())
        assert shown[specimen.vocabulary.tokenizer.piece(top)][place] == pytest.approx(float(side[top].exp()), rel=1e-3)


def test_a_zeroed_stream_and_head_at_every_token(specimen: Specimen) -> None:
    result = ves.complete(specimen, prompt=PROMPT, edits="L0H1,L1.mlp_post", tokens=2)

    def head(z: Tensor, point: object) -> Tensor:
        z = z.clone()
        z[:, :, 1] = 0
        return z

    hooks = [("blocks.0.attn.hook_z", head), ("blocks.1.mlp.hook_post", lambda x, point: torch.zeros_like(x))]
    check(specimen, result, 2, lambda length: hooks)
    assert not result.control
    assert result.answered().verdict in ("partly", "no")


def test_values_of_another_text_stand_at_the_tokens_of_the_prompt(specimen: Specimen) -> None:
    result = ves.complete(specimen, prompt=PROMPT, edits="L0.resid", source=SOURCE, tokens=2)
    _, other = specimen.model.run_with_cache(specimen.tokenize([SOURCE]))

    def hooks(length: int) -> list:
        def patch(value: Tensor, point: object) -> Tensor:
            value = value.clone()
            value[:, :length] = other["blocks.0.hook_resid_post"]
            return value

        return [("blocks.0.hook_resid_post", patch)]

    check(specimen, result, 2, hooks)


def test_steering_adds_a_direction_and_is_held_to_random_ones(specimen: Specimen, tmp_path: Path) -> None:
    steered = ves.complete(
        specimen, prompt=PROMPT, steer="L1.resid", toward=["76 +", "5 +"], away="5 -", strength=1.5, tokens=2, seed=3
    )
    name, last = "blocks.1.hook_resid_post", []
    for text in ("76 +", "5 +", "5 -"):
        last.append(specimen.model.run_with_cache(specimen.tokenize([text]))[1][name][0, -1])
    direction = (last[0] + last[1]) / 2 - last[2]
    check(specimen, steered, 2, lambda length: [(name, lambda x, point: x + 1.5 * direction)])
    assert steered.length == pytest.approx(1.5 * float(direction.norm()), rel=1e-4)
    drawn = random_directions(direction, len(steered.control), 3)
    assert torch.allclose(drawn.norm(dim=1), direction.norm().expand(len(drawn)), rtol=1e-5)
    before, _ = plain(specimen, PROMPT, 1, lambda length: [])
    for one, measured in zip(drawn[:2], steered.control, strict=False):
        after, _ = plain(specimen, PROMPT, 1, lambda length, one=one: [(name, lambda x, point: x + 1.5 * one)])
        assert measured == pytest.approx(divergence(before, after), rel=1e-3, abs=1e-6)
    write_tensors(tmp_path / "direction.safetensors", {"direction": direction.contiguous()})
    given = {"prompt": PROMPT, "steer": "L1.resid", "strength": 1.5, "tokens": 2, "seed": 3}
    from_file = ves.complete(specimen, direction=tmp_path / "direction.safetensors", out=tmp_path / "out", **given)
    assert from_file.edited == steered.edited
    assert Completion.read(tmp_path / "out" / "completion.json") == from_file
    assert "behaviour" not in from_file.request.command_line()
    again = ves.rerun(from_file, specimen)
    assert isinstance(again, Completion)
    assert again.next == from_file.next
    in_memory = ves.complete(specimen, direction=direction, **given)
    assert in_memory.divergence == pytest.approx(from_file.divergence)
    with pytest.raises(BadInput, match="given in Python"):
        ves.rerun(in_memory, specimen)


def test_steering_at_one_position_of_one_head(specimen: Specimen) -> None:
    direction = torch.ones(specimen.model.config.d_head)
    result = ves.complete(specimen, prompt=PROMPT, steer="L1H2.q@-1", direction=direction, tokens=1)

    def hooks(length: int) -> list:
        def add(q: Tensor, point: object) -> Tensor:
            q = q.clone()
            q[:, length - 1, 2] += direction
            return q

        return [("blocks.1.attn.hook_q", add)]

    check(specimen, result, 1, hooks)


def test_the_first_line_says_what_was_compared() -> None:
    assert completion_answer("x", "a -> b", 1.0, (0.1, 0.2), changed=True).verdict == "yes"
    doubtful = completion_answer("x", "a -> b", 1.0, (0.1, 2.0), changed=True)
    assert doubtful.verdict == "partly"
    assert "1 of 2 random directions" in doubtful.text
    assert completion_answer("x", "a -> b", 1.0, (), changed=True).verdict == "partly"
    assert completion_answer("x", "a -> a", 1.0, (0.1,), changed=False).verdict == "no"


STEERED = {"prompt": PROMPT, "steer": "L1.resid", "toward": "76 +"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"edits": "L0H1"}, "`prompt` is missing"),
        ({"prompt": PROMPT}, "nothing is replaced or added"),
        ({**STEERED, "strength": float("nan")}, "strength=nan adds no direction"),
        ({**STEERED, "strength": 0.0}, "strength=0.0 adds no direction"),
        ({**STEERED, "strength": 3e38}, "the logits are not numbers under this change"),
        ({"prompt": PROMPT, "edits": "L0.redis"}, "did you mean"),
        ({"prompt": PROMPT, "edits": "L0H1", "kind": "mean"}, "by zero, or by patch"),
        ({"prompt": PROMPT, "edits": "L0H1", "source": "1"}, "as many tokens"),
        ({"prompt": PROMPT, "edits": "L0.resid@S"}, "positions 0 to"),
        ({"prompt": PROMPT, "edits": "L0H1", "tokens": 99}, "has room for"),
        ({"prompt": PROMPT, "steer": "L0.resid"}, "needs one direction"),
        ({"prompt": PROMPT, "steer": "L0H1", "toward": "5 +"}, "what one head has"),
        ({"prompt": PROMPT, "steer": "L0.resid", "toward": "5 +", "away": "5 +"}, "zero or not finite"),
        ({"prompt": PROMPT, "steer": "L0.resid", "direction": torch.ones(3)}, r"shape \(3,\)"),
        ({"prompt": PROMPT, "steer": "L0.resid,L1.resid", "toward": "5 +"}, "give one"),
        ({"prompt": PROMPT, "toward": "5 +", "edits": "L0H1"}, "give `steer`"),
    ],
)
def test_what_cannot_be_asked_is_refused(specimen: Specimen, options: dict, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ves.complete(specimen, **{"tokens": 1, **options})


def test_a_circuit_does_not_write_text() -> None:
    with pytest.raises(BadInput, match="does not write text"):
        ves.complete("frac_prevs", prompt="x", edits="L0H0")


def test_the_end_is_the_last_token_of_a_prompt_of_ones_own(specimen: Specimen) -> None:
    """Where the answer is read, as in a behaviour's prompts: in `what_if` and in `complete` alike."""
    for name in ("L1.resid", "L1H0.q", "L0_MLP->L1H0.v"):
        last, end = (ves.complete(specimen, prompt=PROMPT, edits=f"{name}@{at}", tokens=2) for at in ("-1", "end"))
        assert last.next == end.next
        last, end = (
            ves.what_if(specimen, f"{name}@{at}", prompt=PROMPT, source=SOURCE).edited.value for at in ("-1", "end")
        )
        assert last == end
    last, end = (ves.what_if(specimen, "L1H0", prompt=PROMPT, at=at).edited.value for at in (-1, "end"))
    assert last == end
    with pytest.raises(BadInput, match="these prompts have no such role; give a position"):
        ves.what_if("frac_prevs", "L0_MLP@end", n=2)  # read at every position
