"""How many claims were tried on a component: the more there were of a kind, the stricter the rule.

Claims that a component carries variables of a program are one kind, whatever they are called: they follow one rule, so
the same program with the same variables has the same number, and with it the same verdict, every time.
"""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field

from vesalius.explanations.claims import Aggregates, Claim, Computes, Copies
from vesalius.rasp.document import to_document


@dataclass
class Tries:
    """The claims tried on one component: how many of each kind, and the programs, each by its digest."""

    kinds: Counter[str] = field(default_factory=Counter)
    programs: list[str] = field(default_factory=list)

    def number(self, kind: str, program: str | None = None) -> int:
        """The number of the next claim of a kind, itself included; of a program, the number that it has or gets."""
        if program is None:
            return self.kinds[kind] + 1
        return (self.programs.index(program) if program in self.programs else len(self.programs)) + 1

    def add(self, kind: str, program: str | None = None) -> None:
        """Count a claim."""
        if program is None:
            self.kinds[kind] += 1
        elif program not in self.programs:
            self.programs.append(program)


def counted_as(claim: Claim) -> tuple[str, str | None]:
    """What a claim is counted by: its kind and, where the component is said to carry variables of a program, a digest
    of both that is equal where they are.
    """
    if isinstance(claim, Computes | Aggregates):
        program, carried = claim.hypothesis.program, claim.hypothesis.carried_by(claim.component)
    elif isinstance(claim, Copies) and claim.carried:
        program, carried = claim.program, claim.carried
    else:
        return claim.kind, None
    text = json.dumps([to_document(program), carried], sort_keys=True)
    return claim.kind, hashlib.sha256(text.encode()).hexdigest()[:16]
