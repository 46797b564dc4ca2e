"""Rows divided into parts that share no prompt, and the three sets of prompts of a search."""

import itertools
from collections import Counter

import pytest

import vesalius as ves
from vesalius.behaviours.apart import parts_apart, wordings
from vesalius.behaviours.trial import Trial, in_two, rows_of, trial
from vesalius.discovery.whole import PromptSets, prompt_sets


def prompts_of(material: Trial) -> list[tuple[int, ...]]:
    """The token ids of each prompt; these have one length."""
    return [tuple(row) for row in material.batch.tokens.tolist()]


def require_apart(sets: PromptSets) -> None:
    """No prompt of a later set is a prompt or a counterfactual of an earlier one."""
    assert sets.shared is None
    for earlier, later in itertools.combinations((sets.rank, sets.choose, sets.report), 2):
        assert not rows_of(earlier) & set(prompts_of(later))


def test_prompts_without_links_take_turns() -> None:
    links = {number: [] for number in range(10)}
    assert list(parts_apart(links, 3).values()) == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("templates", [2, 3, 6, 9])
def test_every_part_has_every_template_whatever_their_turns(templates: int) -> None:
    texts = [f"Template number {at} speaks of word{word}" for word in range(12) for at in range(templates)]
    kinds = wordings(texts)
    part = parts_apart({text: [] for text in texts}, 3, kinds)
    counts = Counter((part[text], text.split()[2]) for text in texts)
    if templates <= 6:  # of more, each has too few prompts for its number to be a word of the template
        assert set(counts.values()) == {4}
    assert set(Counter(part.values()).values()) == {4 * templates}


def test_a_prompt_and_its_counterfactual_are_in_one_part() -> None:
    links = {f"{noun}{ending}": [f"{noun}{other}"] for noun in "abcdefgh" for ending, other in ("xy", "yx")}
    part = parts_apart(links, 3)
    assert all(part[prompt] == part[others[0]] for prompt, others in links.items())
    assert sorted(Counter(part.values()).values()) == [4, 6, 6]


@pytest.mark.parametrize("step", [1, 5, 7])
def test_a_ring_of_counterfactuals_is_cut_in_as_few_places_as_parts(step: int) -> None:
    links = {number: [(number + step) % 24] for number in range(24)}
    part = parts_apart(links, 3)
    assert set(Counter(part.values()).values()) == {8}
    assert sum(part[number] != part[others[0]] for number, others in links.items()) == 3


def test_one_prompt_that_is_the_counterfactual_of_all_costs_one_prompt() -> None:
    links = {number: [0] for number in range(12)}
    part = parts_apart(links, 3)
    assert set(Counter(part.values()).values()) == {4}


COUNTRIES = ("France", "Germany", "Spain", "Italy", "Japan", "China", "Russia", "Greece", "Sweden", "Poland", "Turkey")
MORE = ("Finland", "Denmark", "Norway", "Korea", "Israel", "Iran", "Brazil", "Mexico", "England", "Hungary", "Vietnam")


def ring() -> list[dict[str, str]]:
    """Each country's prompt has the next one's as its counterfactual."""
    names = [*COUNTRIES, *MORE]
    after = itertools.pairwise([*names, names[0]])
    return [
        {
            "prompt": f"She lives in {a} and",
            "answer": f" {a}",
            "wrong": f" {b}",
            "counterfactual": f"She lives in {b} and",
        }
        for a, b in after
    ]


def pairs() -> list[dict[str, str]]:
    """Singular and plural, each the counterfactual of the other."""
    rows = list[dict[str, str]]()
    for noun in ("boy", "girl", "dog", "cat", "king", "tree", "car", "house", "book", "bird", "horse", "river"):
        one, many = f"Then the {noun}", f"Then the {noun}s"
        rows.append({"prompt": one, "answer": " was", "wrong": " were", "counterfactual": many})
        rows.append({"prompt": many, "answer": " were", "wrong": " was", "counterfactual": one})
    return rows


def one_other_split() -> list[dict[str, str]]:
    """Rows that name two splits of the three."""
    return [{**row, "split": "test" if at < 12 else "validation"} for at, row in enumerate(pairs())]


@pytest.mark.parametrize("rows", [ring(), pairs(), one_other_split()], ids=["ring", "pairs", "two splits"])
@pytest.mark.parametrize("split", ["test", "train"])
def test_no_prompt_that_reports_was_seen_before(rows: list[dict[str, str]], split: str) -> None:
    specimen = ves.load("smollm2-135m", behaviour=rows)
    sets = prompt_sets(specimen, trial(specimen, 32 if split == "test" else 4, split=split), split=split)
    require_apart(sets)
    assert min(len(one.batch) for one in (sets.rank, sets.choose, sets.report)) >= 4


@pytest.mark.parametrize("behaviour", ["capitals", "successor", "addition"])
def test_prompts_of_a_small_pool_that_report_did_not_choose(behaviour: str) -> None:
    specimen = ves.load("smollm2-135m", behaviour=behaviour)
    require_apart(prompt_sets(specimen, trial(specimen, 16)))


def test_rows_whose_counterfactuals_are_each_other_are_halved_in_pairs() -> None:
    specimen = ves.load("smollm2-135m", behaviour=[{**row, "split": "test"} for row in pairs()])
    everything = trial(specimen, 24)
    one, other = in_two(everything, len(everything.batch) // 2)
    assert other is not None
    assert not rows_of(one) & set(prompts_of(other))
    assert len(one.batch) + len(other.batch) == len(everything.batch)
    assert in_two(everything, len(everything.batch)) == (everything, None)
