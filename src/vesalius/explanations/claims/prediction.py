"""A claim's typed prediction as the data of its record, and the claim again from them.

A record holds what the claim says beside its kind and component. Programs are large and shared by many claims, so a
record holds their digest, and they are taken from the explanation's executable if that is the same one.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from vesalius.documents.explanation import ClaimRecord, Executable
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import Claim
from vesalius.rasp.document import to_document

PROGRAM, HYPOTHESIS = "program", "hypothesis"
#: Fields that a record has of its own, and those that stand as digests.
_ELSEWHERE = {"kind", "component", PROGRAM, HYPOTHESIS}


def prediction_of(claim: Claim) -> dict[str, Any]:
    """What a record holds of a claim."""
    data = claim.model_dump(mode="json", exclude=_ELSEWHERE, exclude_defaults=True)
    if (program := getattr(claim, PROGRAM, None)) is not None:
        data[PROGRAM] = digest(to_document(program))
    if (hypothesis := getattr(claim, HYPOTHESIS, None)) is not None:
        data[HYPOTHESIS] = digest([to_document(hypothesis.program), hypothesis.carriers])
    return data


def claim_data(record: ClaimRecord, component: str, executable: Executable | None, *, builtin: bool) -> dict[str, Any]:
    """The claim of a record as `claim_from` reads it.

    Records of earlier versions hold no prediction: that a component is necessary needs none, and the built-in scientist
    claims `computes` and `aggregates` of its executable.
    """
    prediction = record.prediction
    if prediction is None and record.kind == "necessary":
        prediction = {}
    elif prediction is None and builtin and executable is not None and record.kind in ("computes", "aggregates"):
        prediction = {HYPOTHESIS: digest([executable.program, executable.carriers])}
    if prediction is None:
        why = (
            "explain again with this version"
            if builtin
            else "it rests on code or on a judgement of the scientist, or on an earlier version: choose one that the "
            "engine decided, or explain again"
        )
        raise BadInput(f"the claim {record.kind!r:.40} about {component} was saved without its prediction; {why}")
    return {**prediction, **_programs(prediction, executable), "kind": record.kind, "component": component}


def _programs(prediction: Mapping[str, Any], executable: Executable | None) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name in (PROGRAM, HYPOTHESIS):
        if name not in prediction:
            continue
        program = None if executable is None else plain(executable.program)
        carriers = None if executable is None else plain(executable.carriers)
        if prediction[name] != digest(program if name == PROGRAM else [program, carriers]):
            raise BadInput("the claim is about another program than the one that the explanation holds; explain again")
        given[name] = program if name == PROGRAM else {"program": program, "carriers": carriers}
    return given


def digest(data: Any) -> str:
    """Sixteen digits that differ where the JSON data do."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def plain(data: Any) -> Any:
    """Frozen data as JSON has them."""
    return json.loads(json.dumps(data))
