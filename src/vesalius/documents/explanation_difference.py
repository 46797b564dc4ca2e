"""How two explanations, or two runs' explanations of the same cases, differ: verdicts, what is said, and figures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Protocol

from vesalius.documents.claims import ComponentExplanation, Evidence, Verdict
from vesalius.documents.difference import ClaimDifference, Compared, ComponentDifference, FigurePair, figure_pair

VerdictByClaim = dict[tuple[str, str, str], Verdict]


class Compares(Protocol):
    """What is compared of an explanation."""

    @property
    def components(self) -> Sequence[ComponentExplanation]: ...
    @property
    def program_agreement(self) -> Evidence | None: ...
    @property
    def cost(self) -> float: ...


def compared_explanations(first: Mapping[str, Compares], second: Mapping[str, Compares]) -> Compared:
    """How explanations of the same cases differ; cases that one side lacks are left out. The one case of a single
    explanation has no name.
    """
    cases = [case for case in first if case in second]
    flipped, only, moved = [], [], []
    same = stayed = 0
    for case in cases:
        turned, alone, kept = _compared_claims(_claims_of(first[case]), _claims_of(second[case]), case or None)
        parts, left = _compared_parts(first[case], second[case], case or None)
        flipped, only, moved = [*flipped, *turned], [*only, *alone], [*moved, *parts]
        same, stayed = same + kept, stayed + left
    left_out = len(first) + len(second) - 2 * len(cases)
    return Compared(
        claims_flipped=flipped,
        claims_only=only,
        claims_same=same,
        components_moved=moved,
        components_same=stayed,
        rule="explained by one alone, or with another tag, role or verdict",
        metrics=_compared_figures([first[case] for case in cases], [second[case] for case in cases]),
        notes=(f"{left_out} cases are in one run alone; their claims are left out",) if left_out else (),
    )


def _claims_of(explanation: Compares) -> VerdictByClaim:
    return {
        (part.id, claim.kind, claim.text): claim.verdict for part in explanation.components for claim in part.claims
    }


def _compared_claims(
    a: VerdictByClaim, b: VerdictByClaim, specimen: str | None = None
) -> tuple[list[ClaimDifference], list[ClaimDifference], int]:
    """Claims with two verdicts, claims of one alone, and how many are the same."""
    flipped, only = [], []
    for key in dict.fromkeys([*a, *b]):
        first, second = a.get(key), b.get(key)
        if first == second:
            continue
        component, kind, text = key
        entry = ClaimDifference(specimen=specimen, component=component, kind=kind, text=text, a=first, b=second)
        (only if first is None or second is None else flipped).append(entry)
    return flipped, only, sum(a.get(key) == verdict for key, verdict in b.items())


def _compared_parts(a: Compares, b: Compares, specimen: str | None = None) -> tuple[list[ComponentDifference], int]:
    """Components that differ in what is said of them, and how many do not."""
    parts = [{part.id: part for part in one.components} for one in (a, b)]
    moved: list[ComponentDifference] = []
    names = dict.fromkeys(chain(*parts))
    for name in names:
        first, second = parts[0].get(name), parts[1].get(name)
        if first is None or second is None:
            there = [None if one is None else one.role or one.tag or one.verdict for one in (first, second)]
            moved.append(
                ComponentDifference(specimen=specimen, component=name, what="explained", a=there[0], b=there[1])
            )
            continue
        for what in ("tag", "role", "verdict"):
            one, other = getattr(first, what), getattr(second, what)
            if one != other:
                moved.append(ComponentDifference(specimen=specimen, component=name, what=what, a=one, b=other))
    return moved, len(names) - len({one.component for one in moved})


def _compared_figures(a: Sequence[Compares], b: Sequence[Compares]) -> dict[str, FigurePair]:
    """Verdicts of claims, roles of natural models, and how far the program agrees with the model."""
    if not a or not b:
        return {}
    verdicts = [
        Counter(claim.verdict for one in side for part in one.components for claim in part.claims) for side in (a, b)
    ]
    roles = [Counter(part.role for one in side for part in one.components if part.role) for side in (a, b)]
    figures = {
        f"claims {name}": figure_pair(verdicts[0][name], verdicts[1][name]) for name in dict.fromkeys(chain(*verdicts))
    }
    figures |= {
        f"components: {name}": figure_pair(roles[0][name], roles[1][name]) for name in dict.fromkeys(chain(*roles))
    }
    if len(a) == len(b) == 1:
        first, second = a[0].program_agreement, b[0].program_agreement
        if first is not None and second is not None:
            ends = ((one.low, one.high) for one in (first, second))
            figures["program_agreement"] = figure_pair(first.value, second.value, *ends)
        figures["cost"] = figure_pair(a[0].cost, b[0].cost)
    return figures
