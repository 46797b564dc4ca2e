"""Sums are confirmed by parsing the text of each prompt; tokenizers of digits, of whole numbers and of pairs."""

import pickle
import re

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

import vesalius as ves
from tests.behaviours.word_tokenizer import byte_tokenizer, word_tokenizer
from tests.models import small_config
from vesalius.behaviours import Prompts, behaviour
from vesalius.behaviours.addition import Addition
from vesalius.behaviours.metrics import LOG_PROBABILITY
from vesalius.behaviours.performance import answered_right, draw_prompts, performance
from vesalius.behaviours.registry import find_behaviour
from vesalius.documents.view import title_of
from vesalius.errors import BadInput
from vesalius.model import Transformer
from vesalius.model.tokenizer import Tokenizer

DIGITS, BYTES = word_tokenizer("digits"), byte_tokenizer()
SPLITS = ("train", "validation", "test")


def whole_numbers(most: int = 99) -> Tokenizer:
    """A vocabulary of words between spaces: every number up to `most` is one token."""
    words = ["<s>", "<unk>", "+", "-", "=", *map(str, range(most + 1))]
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(backend, bos=0)


NUMBERS = whole_numbers()


def draw(name: str, n: int = 48, *, seed: int = 0, split: str = "train", tokenizer: Tokenizer = DIGITS) -> Prompts:
    return find_behaviour(name).sample(tokenizer, n, seed=seed, split=split, n_ctx=256, d_vocab=tokenizer.size)


def operands_at_roles(prompts: Prompts, row: int, tokenizer: Tokenizer, tokens: torch.Tensor) -> list[str]:
    """The last token of each operand, as text."""
    letters = [role for role in prompts.roles if role.startswith("operand")]
    return [tokenizer.decode([int(tokens[row, prompts.roles[role][row]])]) for role in letters]


@pytest.mark.parametrize("split", SPLITS)
def test_sums_of_digits_read_at_the_units_digit(split: str) -> None:
    prompts = draw("addition", split=split)
    assert list(prompts.roles) == ["operand A", "operand B", "operand C", "end"]
    for i, text in enumerate(prompts.texts):
        *shots, asked = text.split("\n")
        assert len(shots) == 4
        for shot in shots:
            left, right = shot.split("=")
            assert eval(left) == int(right)
            assert 10 <= int(right) <= 19
        left, given = asked.split("=")
        total = eval(left)
        units = DIGITS.decode([int(prompts.correct[i])])
        assert given + units == str(total)
        assert operands_at_roles(prompts, i, DIGITS, prompts.tokens) == left.split("+")
        changed = operands_at_roles(prompts, i, DIGITS, prompts.counterfactual)
        other = sum(map(int, changed))
        assert other != total
        assert str(other) == given + DIGITS.decode([int(prompts.wrong[i])])
    assert prompts.metric is None


def test_a_minus_b_plus_c_in_whole_numbers() -> None:
    prompts = draw("addition:signs=-+,high=99,shots=0", 60, tokenizer=NUMBERS)
    which = []
    for i, text in enumerate(prompts.texts):
        a, b, c = map(int, re.fullmatch(r"(\d+) - (\d+) \+ (\d+) =", text).groups())
        assert NUMBERS.decode([int(prompts.correct[i])]) == str(a - b + c)
        x, y, z = map(int, operands_at_roles(prompts, i, NUMBERS, prompts.counterfactual))
        assert NUMBERS.decode([int(prompts.wrong[i])]) == str(x - y + z)
        which.append([j for j, (one, other) in enumerate(zip((a, b, c), (x, y, z), strict=True)) if one != other])
    assert sorted(which) == [[0]] * 20 + [[1]] * 20 + [[2]] * 20, "each operand is changed in a third of the prompts"


@pytest.mark.parametrize(("change", "places"), [("a", [0]), ("c", [2]), ("all", [0, 1, 2])])
def test_the_counterfactual_changes_the_operands_asked_for(change: str, places: list[int]) -> None:
    prompts = draw(f"addition:high=40,shots=0,answers=0..99,change={change}", 30, tokenizer=NUMBERS)
    at = torch.stack([prompts.roles[f"operand {letter}"] for letter in "ABC"], 1)
    differs = prompts.tokens.gather(1, at) != prompts.counterfactual.gather(1, at)
    assert differs.tolist() == [[place in places for place in range(3)]] * 30


def test_no_sum_is_in_two_splits_not_even_as_a_counterfactual() -> None:
    def sums(split: str) -> set[tuple[int, ...]]:
        prompts = draw("addition:shots=0", 100, split=split)
        return {tuple(row) for part in (prompts.tokens, prompts.counterfactual) for row in part[:, :6].tolist()}

    train, validation, test = map(sums, SPLITS)
    assert not train & validation
    assert not train & test
    assert not validation & test


def test_all_digits_by_teacher_forcing() -> None:
    prompts = draw("addition:read=digits,high=60,operands=2,answers=0..120,shots=2", 40, tokenizer=BYTES)
    assert prompts.metric == LOG_PROBABILITY
    assert prompts.forced is not None
    lengths = set()
    for i, text in enumerate(prompts.texts):
        total = str(eval(text.split("\n")[-1].rstrip("=")))
        forced = [token for token in prompts.forced[i].tolist() if token >= 0]
        assert BYTES.decode(forced) == total
        lengths.add(len(total))
        end = int(prompts.position[i])
        assert prompts.tokens[i, end + 1 : end + len(forced)].tolist() == forced[:-1]
    assert lengths >= {2, 3}


def test_a_template_of_ones_own() -> None:
    name = "addition:operands=2,shots=1,template={a} and {b}, together {answer}"
    prompts = draw(name, 12, tokenizer=BYTES)
    assert find_behaviour(name).name == name
    for i, text in enumerate(prompts.texts):
        a, b, given = re.fullmatch(r"(\d) and (\d), together (\d*)", text.split("\n")[1]).groups()
        assert given + BYTES.decode([int(prompts.correct[i])]) == str(int(a) + int(b))
        assert operands_at_roles(prompts, i, BYTES, prompts.tokens) == [a, b]


@pytest.mark.parametrize(
    ("spelling", "options"),
    [
        ("addition", {}),
        ("addition:signs=-+,high=99,shots=0", {"signs": "-+", "high": 99, "shots": 0}),
        ("addition:operands=4,answers=20..29,change=d", {"operands": 4, "answers": (20, 29), "change": "d"}),
        ("addition:read=digits,keep=right", {"read": "digits", "keep": "right"}),
    ],
)
def test_the_spelling_and_python_agree_and_are_found_again(spelling: str, options: dict) -> None:
    made, found, again = ves.Behaviour.addition(**options), find_behaviour(spelling), behaviour(spelling)
    assert isinstance(made, Addition)
    assert isinstance(found, Addition)
    assert isinstance(again, Addition)
    assert made.name == found.name == spelling == title_of(spelling)
    assert made.options == found.options == again.options
    assert pickle.loads(pickle.dumps(found)).options == found.options, "other processes are handed the behaviour"
    assert found.family == "addition"
    assert found.only_right == (options.get("keep") == "right")
    assert re.fullmatch(r"[a-z0-9-]+", found.label)


def test_labels_of_different_options_differ() -> None:
    assert find_behaviour("addition:signs=-+").label != find_behaviour("addition:signs=+-").label


@pytest.mark.parametrize(
    ("spelling", "says"),
    [
        ("addition:colour=red", "'colour=red' is no option; there are operands, signs"),
        ("addition:signs=*", r"signs=\* cannot be used; write \+ or -"),
        ("addition:signs=-+,operands=4", "4 operands have 3 of them, or one for all"),
        ("addition:operands=1", "operands=1 cannot be used; choose 2 to 8"),
        ("addition:high=many", "high=many cannot be used; write a whole number"),
        ("addition:low=7,high=7", "0 <= low < high"),
        ("addition:answers=19..10", r"answers=19\.\.10 cannot be used"),
        ("addition:answers=40..50", "operands from 0 to 9 reach 0 to 27"),
        ("addition:answers=10", r"write two numbers, such as 10\.\.19"),
        ("addition:shots=99", "shots=99 cannot be used; choose 0 to 32"),
        ("addition:change=d", "change=d cannot be used; choose balanced, all, a, b, c"),
        ("addition:template={a}+{b}=", r"it needs \{a\}, \{b\}, \{c\} once each"),
        ("addition:template={a}{b}{c}{answer}!", "stands once, at its end"),
        ("addition:template={a", "template='{a' cannot be used"),
        ("addition:read=words", "read=words cannot be used; choose number, units, digits"),
        ("addition:keep=wrong", "keep=wrong cannot be used"),
        ("addition:high=9,high=8", "high is given twice"),
        ("ioi:high=9", "only addition takes options"),
    ],
)
def test_bad_options_are_one_clear_line(spelling: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as error:
        find_behaviour(spelling)
    assert "\n" not in str(error.value)


def test_python_refuses_what_is_no_number() -> None:
    with pytest.raises(BadInput, match="high='9' cannot be used; give a whole number"):
        ves.Behaviour.addition(high="9")


def test_digits_are_not_compared_by_single_logits() -> None:
    with pytest.raises(BadInput, match="read=digits scores answers of several tokens"):
        find_behaviour("addition:read=digits", metric="logit-difference")


def test_a_tokenizer_that_cannot_say_sums_is_refused() -> None:
    backend = Backend(models.WordLevel({"<s>": 0, "<unk>": 1, "word": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(BadInput, match="the answer cannot be read"):
        draw("addition:shots=0", 4, tokenizer=Tokenizer(backend, bos=0))


def model_that_answers_after(tokenizer: Tokenizer) -> Transformer:
    """A random model that reads this vocabulary."""
    torch.manual_seed(0)
    return Transformer(small_config(d_vocab=tokenizer.size, d_vocab_out=tokenizer.size, n_ctx=64))


def test_only_prompts_that_the_model_answers_correctly() -> None:
    """The model says 9 after every prompt: of all sums only those are kept."""
    model = model_that_answers_after(NUMBERS)
    source = find_behaviour("addition:operands=2,shots=0,answers=0..18,keep=right")
    every = find_behaviour("addition:operands=2,shots=0,answers=0..18")
    sizes = {"n_ctx": 64, "d_vocab": NUMBERS.size}
    # The unembedding points at the sum 9 after every prompt.
    with torch.no_grad():
        model.b_U.zero_()
        model.b_U[NUMBERS.encode("9", bos=False)[0]] = 1000.0
    found = draw_prompts(source, model, NUMBERS, 2, seed=0, split="train")
    assert len(found) == 2
    assert [NUMBERS.decode([int(token)]) for token in found.correct] == ["9", "9"]
    drawn = every.sample(NUMBERS, 8, seed=0, split="train", **sizes)
    right = answered_right(model, drawn)
    assert right.tolist() == [NUMBERS.decode([int(token)]) == "9" for token in drawn.correct]
    with torch.no_grad():
        model.b_U[NUMBERS.encode("77", bos=False)[0]] = 2000.0
    with pytest.raises(BadInput, match=r"the model answers 0 of \d+ prompts of the train split correctly, and 2 were"):
        draw_prompts(source, model, NUMBERS, 2, seed=0, split="train")


def test_an_answer_of_several_digits_is_right_if_every_digit_is() -> None:
    """The model prefers the byte "1" everywhere: of two-digit sums only 11 is right, and its first digit alone is not
    enough.
    """
    model = model_that_answers_after(BYTES)
    prompts = draw("addition:read=digits,operands=2,shots=0,answers=10..18", 30, tokenizer=BYTES)
    with torch.no_grad():
        model.b_U.zero_()
        model.b_U[BYTES.encode("1", bos=False)[0]] = 1000.0
    answers = [eval(text.rstrip("=")) for text in prompts.texts]
    right = [answer == 11 for answer in answers]
    assert any(right)
    assert answered_right(model, prompts).tolist() == right
    assert performance(model, prompts).accuracy == pytest.approx(sum(right) / 30)
