"""Decide a claim of an explanation again, on inputs of another seed.

The laboratory is the one that the explanation's scientists use: the same experiment, controls and rule, on other
held-out inputs. With the seed of the explanation the same inputs are drawn, and the record comes out again.
"""

from functools import cached_property
from typing import get_args

from vesalius.components import Component, parse_components
from vesalius.documents.explanation import ClaimRecord, Explanation
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims import Claim, Lab, check, claim_from
from vesalius.explanations.claims.laboratory import CLAIM_SEED
from vesalius.explanations.claims.prediction import claim_data
from vesalius.explanations.natural import PROMPTS
from vesalius.explanations.natural.again import measured_again
from vesalius.explanations.natural.claims import NaturalClaim, natural_claim_from
from vesalius.explanations.natural.evidence import MEASURED
from vesalius.explanations.scientist.explain import blinded, laboratory
from vesalius.explanations.scientists import BUILTIN
from vesalius.model.specimen import Specimen, TextVocabulary

_NATURAL = {kind.model_fields["kind"].default for kind in get_args(get_args(NaturalClaim)[0])}


def record_of(explanation: Explanation, component: str, claim: int | str) -> tuple[int, ClaimRecord]:
    """A claim about a component with its number from 1, by that number or, the first of it, by its kind."""
    parts = {part.id: part.claims for part in explanation.components}
    if component not in parts:
        raise BadInput(f"component {component!r:.80}: is not explained here; choose one of {choices(parts) or 'none'}")
    claims = parts[component]
    if isinstance(claim, str) and not (claim.isascii() and claim.isdecimal()):
        numbers = [number for number, record in enumerate(claims, 1) if record.kind == claim]
        if not numbers:
            kinds = choices(dict.fromkeys(record.kind for record in claims))
            raise BadInput(f"claim {claim!r:.80}: none of this kind about {component}; there are {kinds or 'none'}")
        return numbers[0], claims[numbers[0] - 1]
    number = int(claim)
    if not 1 <= number <= len(claims):
        raise BadInput(f"claim {number}: there are {len(claims)} claims about {component}, counted from 1")
    return number, claims[number - 1]


def why_not_again(explanation: Explanation, component: str, record: ClaimRecord) -> str | None:
    """Why a claim cannot be decided again, in one line; None where it can, as far as the explanation shows."""
    if _is_measured(record):
        return None
    try:
        claim_data(record, component, explanation.executable, builtin=explanation.scientist == BUILTIN)
    except BadInput as error:
        return str(error)
    return None


def _is_measured(record: ClaimRecord) -> bool:
    return record.prediction is not None and MEASURED in record.prediction


def decide_again(
    specimen: Specimen, explanation: Explanation, component: str, record: ClaimRecord, *, seed: int
) -> ClaimRecord:
    """The record of the same claim on the inputs of another seed."""
    return Retester(specimen, explanation, seed=seed).decide(component, record)


class Retester:
    """Claims of one explanation, decided again on the inputs of another seed, all in one laboratory."""

    def __init__(self, specimen: Specimen, explanation: Explanation, *, seed: int) -> None:
        self._specimen, self._explanation, self._seed = specimen, explanation, seed
        self._natural = isinstance(specimen.vocabulary, TextVocabulary)

        self._circuit = sorted(
            set(parse_components([part.id for part in explanation.components], specimen.model.config))
        )
        asked = explanation.request.options.get("n") if explanation.request else None
        self._n = asked if isinstance(asked, int) else PROMPTS

    @cached_property
    def _lab(self) -> Lab:
        if not self._natural:
            return laboratory(blinded(self._specimen), self._circuit, seed=self._seed)
        return Lab(self._specimen, n=self._n, seed=CLAIM_SEED + self._seed, circuit=self._circuit)

    def decide(self, component: str, record: ClaimRecord) -> ClaimRecord:
        """The record of the same claim on these inputs."""
        specimen, explanation = self._specimen, self._explanation
        if _is_measured(record):
            if not self._natural:
                raise BadInput(f"the claim {record.kind!r:.40} is about a natural model, and {specimen.name} is none")
            part = Component.parse(component).within(specimen.model.config)
            seed = CLAIM_SEED + self._seed
            return measured_again(specimen, part, record, circuit=self._circuit, n=self._n, seed=seed)
        executable, builtin = explanation.executable, explanation.scientist == BUILTIN
        data = claim_data(record, component, executable, builtin=builtin)
        read = natural_claim_from if self._natural and record.kind in _NATURAL else claim_from
        claim: Claim = read(data)
        claim.part.within(specimen.model.config)
        carriers = executable.carriers if builtin and executable is not None and not self._natural else None
        return check(claim, self._lab, tried=record.tried, carriers=carriers)
