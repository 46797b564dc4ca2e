"""Attention programs: a decision list of mixtures of rules, written and read as one line of text, and said in words.

if seen before: after earlier copy 0.89 + BOS 0.11; else: BOS 1.00
"""

import re
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.documents.view import join_names
from vesalius.errors import BadInput, choices, quoted
from vesalius.explanations.running.rules import CONDITIONS, Tokens, asked, is_positional, require_rule, target

#: Characters of a program that is read.
LONGEST_PROGRAM = 4_000
Mixture = tuple[tuple[str, float], ...]
_PART = re.compile(r"(?P<rule>.+?)\s+(?P<weight>\d*\.?\d+)")
_IF = re.compile(r"if (?P<condition>[^:]+): *(?P<then>[^;]+); *else: *(?P<other>[^;]+)")


@dataclass(frozen=True)
class Program:
    """What the queries for which `condition` holds look at, and what the others do; without a condition all look by
    `other`.
    """

    other: Mixture
    condition: str | None = None
    then: Mixture = ()

    @property
    def rules(self) -> list[str]:
        """Every rule in it."""
        return [rule for rule, _ in (*self.then, *self.other)]

    @property
    def reads_tokens(self) -> bool:
        """Whether it depends on tokens, not on positions alone."""
        return self.condition is not None or not all(map(is_positional, self.rules))

    def pattern(self, tokens: Tokens) -> Float[Tensor, "prompt query key"]:
        """The attention of every query; padding looks at the first token."""
        weights = _mixed(self.other, tokens)
        if self.condition is not None:
            weights = torch.where(tokens.holds(self.condition)[..., None], _mixed(self.then, tokens), weights)
        first = torch.zeros_like(weights)
        first[:, :, 0] = 1.0
        return torch.where(tokens.real[..., None], weights, first)

    @property
    def words(self) -> str:
        """Where it looks, in words."""
        if self.condition is None:
            return _said(self.other)
        return f"{_said(self.then)} where {asked(self.condition)}, and elsewhere at {_said(self.other)}"

    def __str__(self) -> str:
        if self.condition is None:
            return _text(self.other)
        return f"if {self.condition}: {_text(self.then)}; else: {_text(self.other)}"


def parse_program(text: str) -> Program:
    """Read a program; rules without a weight share what is left evenly."""
    if len(text) > LONGEST_PROGRAM:
        raise BadInput(
            f"attention program {quoted(text, 60)} has {len(text):,} characters; at most {LONGEST_PROGRAM:,} are read"
        )
    whole = " ".join(text.split())
    found = _IF.fullmatch(whole)
    if found is None:
        if whole.startswith("if ") or not whole:
            raise BadInput(
                f"attention program {quoted(text, 60)} cannot be read; write RULE WEIGHT + RULE WEIGHT, or "
                "if CONDITION: ...; else: ..."
            )
        return Program(_read(whole))
    condition = found["condition"].strip()
    if condition not in CONDITIONS:
        raise BadInput(
            f"condition {condition!r} of an attention program does not exist; choose one of {choices(CONDITIONS)}"
        )
    return Program(_read(found["other"]), condition, _read(found["then"]))


def _read(text: str) -> Mixture:
    parts: list[tuple[str, float | None]] = []
    for word in text.split("+"):
        found = _PART.fullmatch(word.strip())
        rule, weight = (word.strip(), None) if found is None else (found["rule"], float(found["weight"]))
        if found is not None and rule == "near":  # its number is no weight
            rule, weight = word.strip(), None
        require_rule(rule)
        parts.append((rule, weight))
    given = sum(weight for _, weight in parts if weight is not None)
    open_parts = sum(weight is None for _, weight in parts)
    rest = max(0.0, 1 - given) / open_parts if open_parts else 0.0
    mixture = tuple((rule, rest if weight is None else weight) for rule, weight in parts)
    total = sum(weight for _, weight in mixture)
    if abs(total - 1) > 0.05:
        raise BadInput(f"the weights of {quoted(text.strip(), 60)} sum to {total:.2f}; let them sum to 1")
    return tuple((rule, weight / total) for rule, weight in mixture)


def _text(mixture: Mixture) -> str:
    return " + ".join(f"{rule} {weight:.2f}" for rule, weight in mixture)


def _said(mixture: Mixture) -> str:
    """The targets of a mixture with their weights, which one alone does not need."""
    if len(mixture) == 1:
        return target(mixture[0][0])
    return join_names(f"{target(rule)} ({weight:.2f})" for rule, weight in mixture)


def _mixed(mixture: Mixture, tokens: Tokens) -> Float[Tensor, "prompt query key"]:
    return torch.stack([weight * tokens.look(rule)[0] for rule, weight in mixture]).sum(0)


def mixture(weights: dict[str, float], *, least: float = 0.02) -> Mixture:
    """Weights with two digits, as they are written: those below `least` are left out, and the largest takes up what
    rounding leaves.
    """
    kept = {rule: weight for rule, weight in weights.items() if weight >= least}
    total = sum(kept.values())
    rounded = {rule: round(weight / total, 2) for rule, weight in kept.items()}
    order = sorted(rounded, key=lambda rule: (-rounded[rule], rule))
    rounded[order[0]] = round(rounded[order[0]] + 1 - sum(rounded.values()), 2)
    return tuple((rule, rounded[rule]) for rule in order)
