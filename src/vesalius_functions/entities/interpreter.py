"""The built-in interpreter of entity functions: look for the words that score highest, and sort them by concept.

1. Ask words from all over the vocabulary, then words that promise a high score (`probing`).
2. Sort the high scorers into groups by asking two words together (`sorting`).
3. Search on for each of the two main groups, and sort again.
4. Each group with enough words is a concept, two at most, named by its highest scorers.

It names concepts in the vocabulary's own words and knows no list of concepts. What is near is judged in a space of word
vectors (`space_name`), which should not be the one behind the function. Words that our tests use are neither asked nor
named, so the tests hold words that it has not seen; `without` leaves out more.
"""

import random
from collections.abc import Collection

from vesalius_functions.answer import Answer
from vesalius_functions.box import Box
from vesalius_functions.entities.probing import Notebook, halves, open_notebook, search
from vesalius_functions.entities.sorting import Group, Sorter

MOST_QUERIES = 1240
#: Shares of the queries made when words have been asked from everywhere, sorting begins, and searching ends.
EVERYWHERE, SORTING, SEARCHED = 300 / MOST_QUERIES, 500 / MOST_QUERIES, 1060 / MOST_QUERIES
#: Groups to search on for have this many words, concepts this many.
PROMISING, ENOUGH = 2, 3
CONCEPTS = 2
#: How many words describe a concept, and how many of them come first.
NAMED, FOREMOST = 8, 3


def interpret(box: Box, *, seed: int = 0, without: Collection[str] = (), space_name: str = "wordllama") -> Answer:
    """Say which concept, or which two, a function responds to, with at most 1,240 queries or what the budget has left.

    `without` are words that are neither asked nor named. `space_name` says which word vectors judge what is near.
    """
    notebook = open_notebook(box, MOST_QUERIES, without=without, space_name=space_name)
    rng = random.Random(f"entities/probes/{seed}")
    everywhere = max(1, int(EVERYWHERE * notebook.most))
    notebook.ask_words(rng.sample(range(len(notebook.words)), min(everywhere, len(notebook.words))))
    _search_until(SORTING, notebook, [])
    sorter = Sorter(notebook)
    promising = [group for group in sorter.groups(keep=notebook.most // 3) if len(group) >= PROMISING][:CONCEPTS]
    _search_until(SEARCHED, notebook, promising)
    concepts = [[notebook.words[i] for i in group] for group in _concepts(notebook, sorter.groups())]
    names = " or to ".join(map(_in_words, concepts))
    return Answer(
        description=f"The function scores how strongly a word relates to {names}.",
        structure={"concepts": concepts},
        interpreter="builtin",
        queries=box.asked,
    )


def _search_until(share: float, notebook: Notebook, groups: list[Group]) -> None:
    """Search until a share of the queries is made: for two groups, or else for all and for either half in turn."""
    turn, least_left = 0, notebook.most - int(share * notebook.most)
    while notebook.left > least_left:
        turn += 1
        whole = bool(groups) and turn % 2 == 1
        sides = groups if len(groups) > 1 else [] if whole else halves(notebook)
        if not search(notebook, sides):
            return


def _concepts(notebook: Notebook, groups: list[Group]) -> list[Group]:
    """The words that name each concept; where nothing scores high, the best there are."""
    large_groups = [group for group in groups if len(group) >= ENOUGH][:CONCEPTS] or groups[:1]
    if not large_groups:
        return [notebook.best()[:NAMED].tolist()]
    return [sorted(group, key=lambda number: -notebook.odds[number])[:NAMED] for group in large_groups]


def _in_words(words: list[str]) -> str:
    further = f" (words such as {', '.join(words[FOREMOST:])})" if len(words) > FOREMOST else ""
    return ", ".join(words[:FOREMOST]) + further
