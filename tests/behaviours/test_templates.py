"""Rows from templates: what they draw, that splits share nothing, and what is refused."""

import pytest

import vesalius as ves
from vesalius.behaviours.own import LEAST_TO_DIVIDE, RowBehaviour
from vesalius.errors import BadInput

TEMPLATES = {
    "templates": [
        "The capital of {a.country} is",
        "The capital city of {a.country} is",
        "{{Now}} of {a.country|upper}",
    ],
    "answer": " {a.capital}",
    "wrong": " {b.capital}",
    "counterfactual": {"a": "b"},
    "slots": {"a": "places", "b": "places"},
    "words": {"places": [{"country": f"C{i}", "capital": f"P{i}"} for i in range(12)]},
    "rows": 6,
}


def test_templates_share_no_word_and_no_template_between_splits() -> None:
    made = ves.Behaviour.from_templates(TEMPLATES)
    assert isinstance(made, RowBehaviour)
    assert made.note is None
    seen: dict[str, str] = {}
    for row in made.rows:
        template = row.prompt.split("C")[0]
        right, wrong = (str(texts[0]).strip()[1:] for texts in (row.answers, row.wrongs))
        numbers = {right, wrong}
        assert len(numbers) == 2, "slots of one list draw different words"
        for thing in (template, *numbers):
            assert seen.setdefault(thing, row.split) == row.split
        assert all(int(number) % 3 == ("train", "validation", "test").index(row.split) for number in numbers)
        assert row.counterfactual == row.prompt.replace(f"C{right}", f"C{wrong}")
        start, end = row.roles["a"]
        assert row.prompt[start:end] == f"C{right}"
    assert [sum(row.split == split for row in made.rows) for split in ("train", "validation", "test")] == [6, 6, 6]
    assert any(row.prompt.startswith("{Now} of C") for row in made.rows)


def test_short_lists_serve_every_split_and_it_is_said() -> None:
    made = ves.Behaviour.from_templates({**TEMPLATES, "words": {"places": TEMPLATES["words"]["places"][:4]}})
    assert isinstance(made, RowBehaviour)
    assert made.note == "templates: too few to divide, so that every split uses them: the words of places"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"templates": "The {c} is"}, "no slot 'c'; there are a, b"),
        ({"answer": " {a}"}, "{a} does not fit"),
        ({"answer": " {a.mayor}"}, "{a.mayor} does not fit"),
        ({"answer": " {a.capital|loud}"}, "'loud' is not a form of a word; use lower, upper, capitalize"),
        ({"answer": None}, "answer must be a text or a list of texts"),
        ({"slots": {"a": "towns"}}, "slot 'a': no list 'towns' in [words]; there are places"),
        ({"counterfactual": {"a": "z"}}, "counterfactual: no slot 'z'"),
        ({"colour": "red"}, "'colour' is not known here"),
        (
            {"words": {"places": TEMPLATES["words"]["places"][:1]}},
            "2 slots draw different words from places, which has 1",
        ),
        ({"rows": 0}, "rows = 0 is not a number of rows"),
        ({"rows": True}, "rows = True is not a number of rows"),
        ({"rows": 10**9}, "is not a number of rows for each split, 1 to 100,000"),
        ({"templates": []}, "the list templates is empty; give at least one text"),
        ({"answer": []}, "the list answer is empty"),
        ({"wrong": []}, "the list wrong is empty; give at least one text, or leave it out"),
        ({"words": {"places": []}}, "the list 'places' is empty; give slot 'a' some words"),
        ({"slots": {"a": []}, "words": {}}, "the list 'a' is empty; give slot 'a' some words"),
        (
            {"words": {"places": [{"country": "C", "capital": ["P"]}]}},
            "must be texts or tables of texts, not {'country'",
        ),
        ({"templates": "The {a.country is"}, "a brace without its other half"),
        ({"answer": " a.capital}"}, "a brace without its other half"),
        ({"templates": "The {} is"}, "no slot ''; there are a, b"),
        ({"slots": {}, "words": {}}, "no slot 'a'; there are none"),
    ],
)
def test_bad_templates(change: dict, reason: str) -> None:
    with pytest.raises(BadInput) as error:
        ves.Behaviour.from_templates({**TEMPLATES, **change})
    assert reason in str(error.value)


def test_prompts_of_shared_words_are_in_one_split_each() -> None:
    """Five words and one template: the splits share the words, and yet no prompt."""
    data = {"templates": "{a} {b} is", "answer": " {a}", "wrong": " {b}", "slots": {"a": "w", "b": "w"}}
    made = ves.Behaviour.from_templates({**data, "words": {"w": ["one", "two", "three", "four", "five"]}})
    assert isinstance(made, RowBehaviour)
    split_of: dict[str, str] = {}
    for row in made.rows:
        assert split_of.setdefault(row.prompt, row.split) == row.split
    assert len(split_of) == 20, "every ordered pair of five words"
    assert set(split_of.values()) == {"train", "validation", "test"}
    few = ves.Behaviour.from_templates({**data, "words": {"w": ["one", "two", "three"]}})
    assert isinstance(few, RowBehaviour)
    assert (len(few.rows), few.divided) == (6, False)
    assert LEAST_TO_DIVIDE > 6
