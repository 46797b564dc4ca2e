"""Rows divided into parts that share no prompt, as far as rows can be.

A row's counterfactual is often the prompt of another row: the singular of a plural, the next country of a list. What is
chosen on one of the two has seen the other, whose activations took the place of its own. So rows that are linked like
this stay together, and a chain of links that is longer than a part is cut into as many pieces as there are parts. Rows
of one wording are shared out over the parts, so that three templates in turns are in all of three parts.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

#: A word that a smaller share of the prompts has is a word of the prompt, not of its template.
LEAST_COMMON = 1 / 6
#: What stands for a prompt: its text, or its token ids.
Key = TypeVar("Key", bound=Hashable)


def parts_apart(
    links: Mapping[Key, Sequence[Key]], n: int, kinds: Mapping[Key, Hashable] | None = None
) -> dict[Key, int]:
    """In which of `n` parts each prompt is. `links` gives each prompt its counterfactuals; those that are no prompts
    themselves link nothing. Of single prompts of one kind the first is in part 0, the second in part 1, and so on.
    """
    kinds = kinds or {}
    pieces = list[list[Key]]()
    for group in _linked(links):
        size = -(-len(group) // (n if n * len(group) > len(links) else 1))
        pieces += [group[at : at + size] for at in range(0, len(group), size)]
    placed: dict[Key, int] = {}
    held: list[Counter[Hashable]] = [Counter() for _ in range(n)]
    for piece in sorted(pieces, key=len, reverse=True):
        own = [kinds.get(prompt) for prompt in piece]
        part = min(range(n), key=lambda at: (sum(held[at][kind] for kind in own), held[at].total(), at))
        held[part].update(own)
        placed |= dict.fromkeys(piece, part)
    return placed


def _linked(links: Mapping[Key, Sequence[Key]]) -> list[list[Key]]:
    """Groups of prompts that links join, each in the order of a walk along them."""
    joined: dict[Key, list[Key]] = {prompt: [] for prompt in links}
    for prompt, others in links.items():
        for other in others:
            if other in joined:
                joined[prompt].append(other)
                joined[other].append(prompt)
    groups, seen = list[list[Key]](), set[Key]()
    for start in links:
        group, ahead = list[Key](), [start]
        while ahead:
            if (prompt := ahead.pop()) not in seen:
                seen.add(prompt)
                group.append(prompt)
                ahead += reversed(joined[prompt])
        if group:
            groups.append(group)
    return groups


def wordings(prompts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The words of each prompt that many prompts have at this place, with gaps for the others: roughly its template."""
    words = {prompt: prompt.split() for prompt in prompts}
    common = Counter(place for own in words.values() for place in enumerate(own))
    least = LEAST_COMMON * len(words)
    return {
        prompt: tuple(word if common[at, word] >= least else "" for at, word in enumerate(own))
        for prompt, own in words.items()
    }
