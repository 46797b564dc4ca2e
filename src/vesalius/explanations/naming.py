"""The names of operations as explanations record them, for programs of the scientist and of language models."""

from collections.abc import Sequence

from vesalius.documents.explanation import ClaimRecord, NamedOperation
from vesalius.explanations.claims.moved import FIXED
from vesalius.model.specimen import json_value
from vesalius.rasp.naming import Operation


def recorded_operation(
    operation: Operation, *, text: str, arguments: Sequence[str], claims: Sequence[ClaimRecord]
) -> NamedOperation:
    """An operation's record; `claims` are those about the component, which say whether its output was moved."""
    return NamedOperation(
        operation=operation.operation,
        text=text,
        formula=operation.formula,
        arguments=tuple(arguments),
        exact=operation.exact,
        entries=operation.entries,
        undefined=operation.undefined,
        otherwise=json_value(operation.otherwise),
        at_own_position=any(claim.kind == "computes" and claim.text.startswith(FIXED) for claim in claims),
    )
