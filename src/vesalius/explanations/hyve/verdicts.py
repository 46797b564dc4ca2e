"""Verdicts by rule: what the checked claims of one hypothesis say about it."""

from collections.abc import Iterable

from vesalius.documents.explanation import ClaimRecord, Evidence, Verdict
from vesalius.explanations.claims import CIRCUIT_KINDS, NATURAL_KINDS

#: Claims that say what a component does, not merely that it matters.
FUNCTIONAL = frozenset(name for name, kind in CIRCUIT_KINDS.items() if kind.functional)
FUNCTIONAL_NATURAL = frozenset(name for name, kind in NATURAL_KINDS.items() if kind.functional)
FREE_CODE = "free_code"
FREE_CODE_RULE = "decided by the language model from its own code"


def verdict_of(records: Iterable[ClaimRecord]) -> Verdict:
    """Supported where a functional claim is and none is refuted; refuted where one is; else untested.

    Claims from free code do not count: their author also judged them.
    """
    return verdict_of_kinds((record.kind, record.verdict) for record in records)


def verdict_of_kinds(claims: Iterable[tuple[str, Verdict]]) -> Verdict:
    """The same rule on the kinds of claims and their verdicts."""
    checked = [(kind, verdict) for kind, verdict in claims if kind != FREE_CODE]
    if any(verdict == "refuted" for _, verdict in checked):
        return "refuted"
    functional = FUNCTIONAL | FUNCTIONAL_NATURAL
    return (
        "supported" if any(verdict == "supported" and kind in functional for kind, verdict in checked) else "untested"
    )


def from_free_code(text: str, verdict: Verdict, *, programs: int, tried: int, seed: int) -> ClaimRecord:
    """A claim that a language model judged by itself, marked as such; `programs` is how many of its programs ran."""
    evidence = Evidence(
        experiment="code written by the language model",
        measure="programs that ran to a result",
        value=float(programs),
        low=None,
        high=None,
        n=programs,
        rule=FREE_CODE_RULE,
        seed=seed,
        passed={"supported": True, "refuted": False, "untested": None}[verdict],
    )
    return ClaimRecord(kind=FREE_CODE, text=text, verdict=verdict, evidence=(evidence,), tried=tried)
