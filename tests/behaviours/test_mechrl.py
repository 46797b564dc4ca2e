"""MechRL's published batches, read back from their tokens and texts."""

import re
from collections import Counter

from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from vesalius.behaviours import Prompts, behaviour, mechrl

TOKENIZER = word_tokenizer()


def draw(name: str, n: int) -> Prompts:
    return behaviour(name).sample(TOKENIZER, n, seed=0, split="test", n_ctx=128, d_vocab=TOKENIZER.size)


def words(ids: list[int]) -> list[str]:
    return [TOKENIZER.piece(i).strip() for i in ids]


def test_induction_is_one_pair_after_the_first_token_and_uniform_tokens_between() -> None:
    prompts = draw("mechrl-induction", 400)
    assert prompts.tokens.shape == (400, 61)
    rows = zip(prompts.tokens.tolist(), prompts.correct.tolist(), prompts.wrong.tolist(), strict=True)
    for (bos, a, b, *_, last), correct, wrong in rows:
        assert (bos, last, correct) == (BOS, a, b)
        assert wrong not in (a, b)
    drawn = prompts.tokens[:, 1:60].flatten()
    assert int(drawn.min()) == 10
    assert int(drawn.max()) == TOKENIZER.size - 1
    halves = (drawn < (10 + TOKENIZER.size) / 2).float().mean()
    assert abs(float(halves) - 0.5) < 0.02, "23,600 uniform draws: a standard error of 0.003"
    other = prompts.counterfactual != prompts.tokens
    assert other.sum(1).tolist() == [1] * 400
    assert bool(other[:, 2].all())


def test_ioi_is_balanced_over_templates_and_orders() -> None:
    prompts = draw("mechrl-ioi", 80)
    seen: Counter[tuple[str, bool]] = Counter()
    for text, correct, wrong in zip(
        prompts.texts, words(prompts.correct.tolist()), words(prompts.wrong.tolist()), strict=True
    ):
        names = [word for word in re.findall("[A-Z][a-z]+", text) if word in mechrl.NAMES]
        assert sorted(names) == sorted([correct, wrong, wrong])
        assert names[2] == wrong
        verb = re.search(r"went|were at|arrived|talking", text)
        assert verb is not None
        seen[verb[0], names[0] == correct] += 1
    assert seen == {(verb, order): 10 for verb in ("went", "were at", "arrived", "talking") for order in (True, False)}


def test_all_parameters_but_the_last_are_described_and_the_wrong_one_is_among_them() -> None:
    prompts = draw("mechrl-docstring", 60)
    wrong_places = Counter()
    for text, correct, wrong in zip(
        prompts.texts, words(prompts.correct.tolist()), words(prompts.wrong.tolist()), strict=True
    ):
        signature = re.search(r"\(self, (.*)\):", text)
        assert signature is not None
        defined, described = signature[1].split(", "), re.findall(r":param (\w+):", text)
        assert len(set(defined)) == 5
        assert described == defined[:4]
        assert correct == defined[4]
        wrong_places[described.index(wrong)] += 1
        assert text.endswith("\n    :param")
    assert set(wrong_places) == {0, 1, 2, 3}
