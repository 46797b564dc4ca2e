"""Counterfactuals for rows that have none: another prompt of the same split and length, else random tokens."""

import random
from collections.abc import Sequence
from dataclasses import replace

from vesalius.behaviours.encoding import Fate
from vesalius.behaviours.prompts import OTHER_PROMPT, RANDOM_TOKENS, Prompt, Prompts
from vesalius.model.tokenizer import Tokenizer


def with_counterfactuals(fates: Sequence[Fate]) -> list[Fate]:
    """Kept rows that lack a counterfactual get the next prompt of their split and length, with what would align."""
    groups: dict[tuple[str, int], list[int]] = {}
    for place, fate in enumerate(fates):
        if fate.prompt is not None:
            groups.setdefault((fate.split, len(fate.prompt.tokens)), []).append(place)
    filled = list(fates)
    for group in groups.values():
        prompts = [prompt for place in group if (prompt := fates[place].prompt) is not None]
        for place, prompt, partner in zip(group, prompts, partners(prompts), strict=True):
            if fates[place].row.counterfactual is not None:
                continue
            text, taken = f"a prompt of {len(prompt.tokens)} tokens would align", replace(prompt, source=RANDOM_TOKENS)
            if partner is not None:
                other = fates[group[partner]].row
                text = f"row {other.number} would align ({other.prompt!r})"
                taken = replace(prompt, counterfactual=prompts[partner].tokens, source=OTHER_PROMPT)
            filled[place] = replace(fates[place], prompt=taken, suggestion=f"no counterfactual: {text}")
    return filled


def partners(prompts: Sequence[Prompt]) -> list[int | None]:
    """For each prompt the place of the next one, in a circle, with other tokens and another answer.

    Prompts that share the answer, or the tokens, and stand beside each other are passed in one step: thousands of rows
    with one answer take as long as thousands with many.
    """
    to_other_answer = _to_next_other([prompt.correct for prompt in prompts])
    to_other_tokens = _to_next_other([prompt.tokens for prompt in prompts])
    return [_partner(start, prompts, to_other_answer, to_other_tokens) for start in range(len(prompts))]


def _partner(
    start: int, prompts: Sequence[Prompt], to_other_answer: Sequence[int], to_other_tokens: Sequence[int]
) -> int | None:
    at = passed = start
    while passed < start + len(prompts):
        if prompts[at].correct == prompts[start].correct:
            steps = to_other_answer[at]
        elif prompts[at].tokens == prompts[start].tokens:
            steps = to_other_tokens[at]
        else:
            return at
        if not steps:
            return None
        passed += steps
        at = passed % len(prompts)
    return None


def _to_next_other(values: Sequence[object]) -> list[int]:
    """How many steps on, in a circle, the next different value stands; 0 everywhere if all are the same."""
    n, steps = len(values), [0] * len(values)
    if all(value == values[0] for value in values):
        return steps
    for place in reversed(range(2 * n)):  # twice around: the first pass finds what follows the last
        here, after = place % n, (place + 1) % n
        steps[here] = 1 if values[here] != values[after] else steps[after] + 1
    return steps


def random_tokens(row: Prompt, tokenizer: Tokenizer, d_vocab: int) -> tuple[int, ...]:
    """As many random tokens as a prompt has, for want of another prompt of its length."""
    first = int(bool(row.tokens) and row.tokens[0] == tokenizer.bos)
    rng = random.Random(f"{row.text}/{len(row.tokens)}")
    return (*row.tokens[:first], *(_random_token(rng, tokenizer, d_vocab) for _ in row.tokens[first:]))


def _random_token(rng: random.Random, tokenizer: Tokenizer, d_vocab: int) -> int:
    """A token that is a word or a piece of one; any token where a vocabulary has few of those."""
    token = 0
    for _ in range(50):
        token = rng.randrange(d_vocab)
        if tokenizer.piece(token).strip().isalpha():
            break
    return token


def source_note(name: str, prompts: Prompts) -> str | None:
    """What takes the place of counterfactuals that are missing."""
    others, drawn = prompts.sources.count(OTHER_PROMPT), prompts.sources.count(RANDOM_TOKENS)
    if not others and not drawn:
        return None
    parts = [f"{others} from another prompt of the same length"] if others else []
    parts += [f"{drawn} from random tokens"] if drawn else []
    return f"behaviour {name} lacks counterfactuals: of {len(prompts)} prompts {' and '.join(parts)} are resampled"
