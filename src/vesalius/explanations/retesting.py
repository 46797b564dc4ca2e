"""Decide a claim of an explanation again, on inputs of another seed.

The laboratory is the one that the explanation's scientists use: the same experiment, controls and rule, on other
held-out inputs. With the seed of the explanation the same inputs are drawn, and the record comes out again.
"""

from functools import cached_property

from vesalius.components import parse_components
from vesalius.documents.explanation import ClaimRecord, Explanation
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims import CIRCUIT_KINDS, NATURAL_KINDS, check, claim_data, claim_from
from vesalius.explanations.laboratory import CLAIM_SEED, Lab, blinded, circuit_lab, growing_lab
from vesalius.explanations.natural import PROMPTS
from vesalius.explanations.scientists import BUILTIN
from vesalius.model.specimen import Specimen, TextVocabulary


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
    try:
        claim_data(record, component, explanation.executable, builtin=explanation.scientist == BUILTIN)
    except BadInput as error:
        return str(error)
    return None


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
            return circuit_lab(blinded(self._specimen), self._circuit, seed=self._seed)
        return growing_lab(self._specimen, self._n, seed=CLAIM_SEED + self._seed, circuit=self._circuit)

    def decide(self, component: str, record: ClaimRecord) -> ClaimRecord:
        """The record of the same claim on these inputs."""
        executable, builtin = self._explanation.executable, self._explanation.scientist == BUILTIN
        data = claim_data(record, component, executable, builtin=builtin)
        kinds = NATURAL_KINDS if self._natural else CIRCUIT_KINDS
        if record.kind not in kinds:
            about = "a circuit of a finite vocabulary" if self._natural else "a natural model"
            raise BadInput(f"the claim {record.kind!r:.40} is about {about}, and {self._specimen.name} is none")
        claim = claim_from(data, kinds)
        claim.part.within(self._specimen.model.config)
        carriers = executable.carriers if builtin and executable is not None and not self._natural else None
        return check(claim, self._lab, tried=record.tried, carriers=carriers)
