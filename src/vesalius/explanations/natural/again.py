"""Decide a measured claim of a natural explanation again, on held-out prompts of another seed.

What the claim says (a role, a sender, a receiver, the rest of a group) stands in its record, so that nothing is
selected anew: the hypothesis is the old one, the prompts and the controls are others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims import Lab
from vesalius.explanations.natural import evidence
from vesalius.explanations.natural.composition import PORTS, AttentionPort
from vesalius.explanations.natural.paths import feeds
from vesalius.explanations.natural.pool import Pool
from vesalius.explanations.natural.selection import Selection
from vesalius.explanations.natural.study import Study
from vesalius.explanations.natural.token_roles import at_answer, everywhere
from vesalius.model.specimen import Specimen

Said = Mapping[str, Any]
Decide = Callable[[Study, Component, Said], ClaimRecord | None]


def measured_again(
    specimen: Specimen, component: Component, record: ClaimRecord, *, circuit: Sequence[Component], n: int, seed: int
) -> ClaimRecord:
    """The record of the same claim on `n` held-out prompts of a seed; `circuit` are the components explained."""
    if record.kind not in _DECIDE:
        raise BadInput(f"claim {record.kind!r:.40}: is no kind that is measured; there are {choices(_DECIDE)}")
    assert record.prediction is not None
    said = record.prediction[evidence.MEASURED]
    if not isinstance(said, Mapping):
        raise _unreadable(record)
    pool = Pool.draw(specimen, n, seed=seed, split="test")
    lab = Lab(specimen, n=n, seed=seed, circuit=list(circuit))
    selection = Selection(components=list(circuit))
    study = Study(pool, lab, selection, components=[component])
    decided = _DECIDE[record.kind](study, component, said)
    if decided is None:
        raise _unreadable(record)
    return decided.model_copy(update={"tried": record.tried})


def _unreadable(record: ClaimRecord) -> BadInput:
    return BadInput(f"the claim {record.kind!r:.40}: its prediction cannot be read; explain again with this version")


def _attention(decide: Callable[[Study, Component], ClaimRecord | None]) -> Decide:
    """A claim about where a head attends, with the role as its record has it."""

    def decided(study: Study, head: Component, said: Said) -> ClaimRecord | None:
        _look_at(study, head, said)
        return decide(study, head)

    return decided


def _look_at(study: Study, head: Component, said: Said) -> None:
    role, known = said.get("role"), {**at_answer(study.pool), **everywhere(study.pool)}
    if not head.is_head or role not in known:
        raise BadInput(
            f"role {role!r:.80}: is none of this behaviour's, or {head} is no head; there are {choices(known)}"
        )
    study.selection.looks_at[head] = role


def _composes(study: Study, head: Component, said: Said) -> ClaimRecord | None:
    _look_at(study, head, said)
    port: AttentionPort | None = next((one for one in PORTS if one == said.get("port")), None)
    sender = _other(study, said.get("sender"))
    if port is None or sender.layer >= head.layer:
        return None
    return evidence.composes(study, head, port, sender)


def _path(sign: float) -> Decide:
    def decided(study: Study, sender: Component, said: Said) -> ClaimRecord | None:
        receiver = _other(study, said.get("receiver"))
        if not feeds(sender, receiver, parallel=study.pool.model.config.parallel):
            return None
        study.selection.paths[sender, receiver] = sign
        return evidence.feeds(study, sender, receiver)

    return decided


def _covers(study: Study, component: Component, said: Said) -> ClaimRecord | None:
    rest = [_other(study, name) for name in said.get("others", ())]
    return evidence.covers_for(study, component, rest) if rest and component not in rest else None


def _not_needed(study: Study, component: Component, said: Said) -> ClaimRecord | None:
    how: evidence.Neutral | None = next((one for one in evidence.NEUTRAL if one == said.get("replacement")), None)
    return None if how is None else evidence.not_needed_by(study, component, how)


def _other(study: Study, name: Any) -> Component:
    return Component.parse(str(name)[:80]).within(study.pool.model.config)


_DECIDE: dict[str, Decide] = {
    "attends": _attention(evidence.attends),
    "uses": _attention(evidence.uses),
    "composes": _composes,
    "feeds": _path(1.0),
    "hinders": _path(-1.0),
    "covers": _covers,
    "not_needed_alone": _not_needed,
    "inhibits": lambda study, component, said: evidence.inhibits(study, component),
    "acts_at_answer": lambda study, component, said: evidence.acts_at_answer(study, component),
    "acts_directly": lambda study, component, said: evidence.acts_directly(study, component),
    "writes_answer": lambda study, component, said: evidence.writes_answer(study, component),
}
