"""The answer of every prompt is confirmed by parsing its text independently."""

import calendar
import re
import string

import pytest
import torch

from tests.behaviours.word_tokenizer import BOS, UNKNOWN, word_tokenizer
from vesalius.behaviours import Prompts, behaviour, behaviours
from vesalius.behaviours.builtin import IOI_TEMPLATES, NAMES
from vesalius.errors import BadInput

DIGITS, PAIRS = word_tokenizer("digits"), word_tokenizer("pairs")
ALL = [b.name for b in behaviours()]


def draw(name: str, n: int = 48, *, seed: int = 0, split: str = "train", tokenizer=DIGITS) -> Prompts:
    return behaviour(name).sample(tokenizer, n, seed=seed, split=split, n_ctx=128, d_vocab=tokenizer.size)


def answers(prompts: Prompts, tokenizer=DIGITS) -> list[tuple[str, str, str]]:
    """(text, correct, wrong) of each prompt, as text."""
    pairs = zip(prompts.correct.tolist(), prompts.wrong.tolist(), strict=True)
    return [(t, tokenizer.decode([c]), tokenizer.decode([w])) for t, (c, w) in zip(prompts.texts, pairs, strict=True)]


def changed(prompts: Prompts) -> list[list[int]]:
    """The positions at which clean and counterfactual differ."""
    return [row.nonzero().flatten().tolist() for row in prompts.tokens != prompts.counterfactual]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_structure(name: str, split: str) -> None:
    prompts = draw(name, split=split)
    assert len(prompts) == len(prompts.texts) == 48
    lengths = prompts.mask.sum(1)
    assert torch.equal(prompts.mask, torch.arange(prompts.tokens.shape[1])[None] < lengths[:, None])
    assert torch.equal(prompts.position, lengths - 1)
    assert torch.equal(prompts.roles["end"], prompts.position)
    assert bool((prompts.correct != prompts.wrong).all())
    assert bool((prompts.tokens[:, 0] == BOS).all())
    assert not bool((prompts.tokens[:, 1:][prompts.mask[:, 1:]] <= UNKNOWN).any())
    assert all(
        differing and max(differing) < end for differing, end in zip(changed(prompts), lengths.tolist(), strict=True)
    )
    assert all(bool((where <= prompts.position).all() and (where > 0).all()) for where in prompts.roles.values())
    rows = zip(
        prompts.tokens.tolist(),
        prompts.counterfactual.tolist(),
        prompts.correct.tolist(),
        prompts.wrong.tolist(),
        strict=True,
    )
    assert len({str(row) for row in rows}) == 48


@pytest.mark.parametrize("name", ALL)
def test_the_seed_decides(name: str) -> None:
    one, again, other = draw(name, seed=3), draw(name, seed=3), draw(name, seed=4)
    assert torch.equal(one.tokens, again.tokens)
    assert torch.equal(one.counterfactual, again.counterfactual)
    assert one.texts == again.texts
    assert one.texts != other.texts


def test_draws_are_the_same_on_every_machine() -> None:
    assert draw("ioi", 2).texts == [
        "When Bill and Kate went to the office, Bill gave a pen to",
        "When Donald and Jason went to the kitchen, Jason gave a basket to",
    ]
    assert draw("capitals", 1).texts == ["The capital of Sierra Leone is"]


@pytest.mark.parametrize("name", ["induction", "induction-out"])
def test_induction_answers_with_what_followed_before(name: str) -> None:
    prompts = draw(name)
    for i, (tokens, other) in enumerate(zip(prompts.tokens.tolist(), prompts.counterfactual.tolist(), strict=True)):
        before = tokens.index(tokens[-1])
        assert before < len(tokens) - 1
        assert tokens[before + 1] == prompts.correct[i]
        places = [int(prompts.roles[role][i]) for role in ("first A", "B", "second A")]
        assert places == [before, before + 1, len(tokens) - 1]
        assert (int(prompts.wrong[i]) in tokens) == (name == "induction")
        assert other.index(other[-1]) == len(other) - 1, "nothing but the last token may be A in the counterfactual"
        assert int(prompts.correct[i]) == other[before + 1], "B stays where it was"
        assert len(tokens) == 32
    assert len(set(prompts.roles["B"].tolist())) > 8, "B must not stand at one place"


def test_ioi_by_counting_names() -> None:
    prompts = draw("ioi", 60)
    orders = []
    for i, (text, correct, wrong) in enumerate(answers(prompts)):
        named = [word for word in re.findall("[A-Z][a-z]+", text) if word in NAMES]
        assert len(named) == 3
        assert named.count(correct.strip()) == 1
        assert named.count(wrong.strip()) == 2
        assert named[2] == wrong.strip()
        assert text.endswith(" to")
        orders.append("ABBA" if named[0] == correct.strip() else "BABA")
        places = [int(prompts.roles[role][i]) for role in ("IO", "S1", "S2")]
        assert sorted(places) == changed(prompts)[i]
        ids = [int(prompts.tokens[i, place]) for place in places]
        assert [DIGITS.decode([token]) for token in ids] == [correct, wrong, wrong]
        others = [int(prompts.counterfactual[i, place]) for place in places]
        assert len({*others, *ids}) == 5
    assert orders.count("ABBA") == orders.count("BABA") == 30


@pytest.mark.parametrize("n", [2, 10, 31, 64])
def test_ioi_is_balanced_in_every_batch(n: int) -> None:
    prompts = draw("ioi", n, split="test")
    abba = int((prompts.roles["IO"] < prompts.roles["S1"]).sum())
    assert abba == (n + 1) // 2


def test_ioi_uses_every_template_of_the_split_in_both_orders() -> None:
    prompts = draw("ioi", 2 * len(IOI_TEMPLATES[::3]))
    abba = [
        text.split()[0]
        for text, io, s in zip(prompts.texts, prompts.roles["IO"], prompts.roles["S1"], strict=True)
        if io < s
    ]
    assert sorted(abba) == sorted(template.split()[0] for template in IOI_TEMPLATES[::3])


def test_docstring_by_reading_the_definition() -> None:
    prompts = draw("docstring")
    for i, (text, correct, wrong) in enumerate(answers(prompts)):
        signature = re.match(r"def \w+\((\w+), ([\w, ]+)\):", text)
        assert signature
        defined = signature[2].split(", ")
        described = re.findall(r"param (\w+):", text)
        assert len(set(defined)) == 6
        assert described == defined[:3]
        assert correct == f" {defined[3]}"
        assert wrong.strip() in defined
        assert text.endswith("param")
        other = set(prompts.counterfactual[i].tolist())
        assert not {int(prompts.correct[i]), int(prompts.wrong[i])} & other
        marked = [DIGITS.decode([int(prompts.tokens[i, prompts.roles[f"defined {k + 1}"][i]])]) for k in range(6)]
        assert marked == [f" {name}" for name in defined]


def test_greater_than_by_digits() -> None:
    prompts = draw("greater-than")
    for i, (text, correct, wrong) in enumerate(answers(prompts)):
        century, decade = re.findall(r"\b(\d\d)(\d)\d\b", text)[0]
        assert text.endswith(f"the year {century}")
        assert int(wrong) < int(decade) < int(correct)
        assert int(correct) - int(decade) == int(decade) - int(wrong)
        place = int(prompts.roles["start year"][i])
        assert changed(prompts)[i] == [place]
        assert DIGITS.decode([int(prompts.tokens[i, place])]) == decade
        assert DIGITS.decode([int(prompts.counterfactual[i, place])]) == "0"


def test_greater_than_by_pairs_of_digits() -> None:
    prompts = draw("greater-than", tokenizer=PAIRS)
    for i, (text, correct, wrong) in enumerate(answers(prompts, PAIRS)):
        century, year = re.findall(r"\b(\d\d)(\d\d)\b", text)[0]
        assert text.endswith(f"the year {century}")
        assert len(correct) == len(wrong) == 2
        assert int(wrong) < int(year) < int(correct)
        place = int(prompts.roles["start year"][i])
        assert changed(prompts)[i] == [place]
        assert PAIRS.decode([int(prompts.tokens[i, place])]) == year
        assert int(PAIRS.decode([int(prompts.counterfactual[i, place])])) < int(wrong)


def test_capitals_known_by_heart() -> None:
    capitals = {
        "France": " Paris",
        "Poland": " Warsaw",
        "Egypt": " Cairo",
        "Norway": " Oslo",
        "Canada": " Ottawa",
        "Cuba": " Havana",
    }
    prompts = draw("capitals", 120)
    countries = set()
    for i, (text, correct, _) in enumerate(answers(prompts)):
        country = next((name for name in capitals if name in text), None)
        if country:
            countries.add(country)
            assert correct == capitals[country]
            place = int(prompts.roles["country"][i])
            assert DIGITS.decode([int(prompts.tokens[i, place])]) == f" {country}"
    assert countries == set(capitals)


def test_the_wrong_capital_is_right_for_the_counterfactual() -> None:
    prompts = draw("capitals", 200)
    place = prompts.roles["country"]
    rows = torch.arange(len(prompts))
    clean, other = prompts.tokens[rows, place].tolist(), prompts.counterfactual[rows, place].tolist()
    right = dict(zip(clean, prompts.correct.tolist(), strict=True))
    assert all(right[country] == wrong for country, wrong in zip(other, prompts.wrong.tolist(), strict=True))


def test_successor_by_calendar_and_alphabet() -> None:
    series = [list(calendar.day_name), list(calendar.month_name)[1:], list(string.ascii_uppercase)]
    following = {s[i]: s[(i + 1) % len(s)] for s in series for i in range(len(s))}
    following |= {
        "one": "two",
        "two": "three",
        "nine": "ten",
        "ten": "eleven",
        "fourteen": "fifteen",
        "nineteen": "twenty",
    }
    checked = 0
    for split in ("train", "validation", "test"):
        for text, correct, wrong in answers(draw("successor", 60, split=split)):
            before, last = re.findall(r"(\w+), (\w+),$", text)[0]
            if last in following:
                checked += 1
                assert following[last] == correct.strip()
                assert following.get(before, last) == last
            assert wrong.strip() not in (before, last)
    assert checked > 100


@pytest.mark.slow
def test_requesting_too_many_prompts_is_refused() -> None:
    with pytest.raises(
        BadInput,
        match=r"behaviour capitals: 100000 prompts .* the test split has only \d+ distinct ones .* request fewer",
    ) as error:
        draw("capitals", 100_000, split="test")
    assert "\n" not in str(error.value)


def test_no_prompts_is_refused() -> None:
    with pytest.raises(BadInput, match="behaviour ioi: 0 prompts were requested"):
        draw("ioi", 0)


def test_a_context_too_short_is_refused() -> None:
    with pytest.raises(BadInput, match="the model's context holds 12"):
        behaviour("docstring").sample(DIGITS, 4, seed=0, n_ctx=12, d_vocab=DIGITS.size)
