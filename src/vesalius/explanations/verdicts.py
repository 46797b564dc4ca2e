"""Verdicts by rule: what the checked claims of one hypothesis say about it, and a decided claim as text for agents."""

import json
from collections.abc import Iterable

from vesalius.documents.explanation import ClaimRecord, Evidence, Verdict
from vesalius.explanations.claims import CIRCUIT_KINDS, NATURAL_KINDS
from vesalius.files import plain_json

#: Claims that say what a component does, not merely that it matters.
FUNCTIONAL = frozenset(name for name, kind in CIRCUIT_KINDS.items() if kind.functional)
FUNCTIONAL_NATURAL = frozenset(name for name, kind in NATURAL_KINDS.items() if kind.functional)
#: Claims that a component carries variables of a program: one replaces another whatever it is called.
OF_PROGRAMS = frozenset({"circuit", "computes", "aggregates"})
FREE_CODE = "free_code"
FREE_CODE_RULE = "decided by the language model from its own code"


def verdict_of(records: Iterable[ClaimRecord]) -> Verdict:
    """Supported where a functional claim is and none is refuted; refuted where one is; else untested.

    A refuted claim that says what the component does was replaced where a later one of its kind is supported: the
    hypothesis was corrected, and the rule was stricter for the correction. Claims from free code do not count: their
    author also judged them.
    """
    return verdict_of_kinds((record.kind, record.verdict) for record in records)


def verdict_of_kinds(claims: Iterable[tuple[str, Verdict]]) -> Verdict:
    """The same rule on the kinds of claims and their verdicts, in the order of their experiments."""
    checked = [(kind, verdict) for kind, verdict in claims if kind != FREE_CODE]
    functional = FUNCTIONAL | FUNCTIONAL_NATURAL
    corrected: set[str] = set()
    supported = False
    for kind, verdict in reversed(checked):
        replaces = "program" if kind in OF_PROGRAMS else kind
        if verdict == "refuted" and replaces not in corrected:
            return "refuted"
        if verdict == "supported" and kind in functional:
            corrected.add(replaces)
            supported = True
    return "supported" if supported else "untested"


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


def record_text(record: ClaimRecord) -> str:
    """A checked claim as text: its verdict; where it is not supported, every experiment, those that failed first, and
    inputs that contradict it.
    """
    line = f"{record.verdict}: {record.text}"
    if record.verdict == "supported":
        return f"{line} ({len(record.evidence)} experiments)"
    ordered = sorted(record.evidence, key=lambda one: one.passed is not False)
    shown = [f"- {evidence_text(one)}" for one in ordered]
    against = [f"- {json.dumps(plain_json(one), ensure_ascii=False)}" for one in record.counterexamples]
    return "\n".join([line, *shown, *(["Inputs that contradict it, drawn anew:", *against] if against else [])])


def evidence_text(one: Evidence) -> str:
    """One experiment in a line."""
    interval = "" if one.low is None or one.high is None else f" [{one.low}, {one.high}]"
    controls = "; ".join(f"{name} {value}" for name, value in one.controls.items())
    outcome = f" ({one.outcome})" if one.outcome else ""
    return (
        f"{one.mark}: {one.experiment}: {one.measure} = {one.value}{interval}{outcome}, n = {one.n}; rule {one.rule}"
        + (f"; controls: {controls}" if controls else "")
    )
