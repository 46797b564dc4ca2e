"""How far a discovered circuit can be trusted: five checks beside the discovery, none on the prompts it was made on.

| check        | asks                                                           | figure                               |
|--------------|----------------------------------------------------------------|--------------------------------------|
| faithfulness | does the circuit alone keep the behaviour, at every size?      | `cmd`, `cpr`; control: random order  |
| stability    | would other prompts have given the same circuit?               | `jaccard` over 100 resamples         |
| specificity  | does cutting its heads hurt other behaviours and text as much? | `specificity`: own drop / others'    |
| detectors    | are its heads told by their attention pattern alone?           | `detectors`: share; control: chance  |
| known heads  | are they the heads published for GPT-2 small?                  | `known_heads`: share; control: chance|

Natural models are checked on the validation split (other names, templates and tokens than the discovery's test split),
specimens with a listed vocabulary on other random inputs. Stability resamples the discovery's own scores and costs no
forward pass. A check that cannot be made says why instead of a figure.
"""

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from vesalius.behaviours.trial import trial
from vesalius.discovery.detectors import Detected, detect
from vesalius.discovery.faithfulness import Curve, faithfulness_curves
from vesalius.discovery.known_heads import Published, published_heads
from vesalius.discovery.methods import Discovery
from vesalius.discovery.overlap import Overlap, overlap
from vesalius.discovery.specificity import Specificity, specificity
from vesalius.discovery.stability import Stability
from vesalius.errors import BadInput
from vesalius.model.components import Component
from vesalius.model.specimen import Specimen

HELD_OUT_PROMPTS, HELD_OUT_SPLIT, HELD_OUT_SEED = 12, "validation", 1_000_003
#: A circuit is at most this many components, and at most a quarter of the model.
LARGEST_CIRCUIT = 10
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Trust:
    """The checks of one discovery; `missing` says why a check gave no figure.

    `size` components (or heads) count as the circuit where a check needs one. `rows` is the work in forward passes of
    one prompt.
    """

    size: int
    n: int
    curve: Curve | None
    random_curve: Curve | None
    stability: Stability | None
    specificity: Specificity | None
    detected: Detected
    detectors: Overlap | None
    published: Published | None
    known_heads: Overlap | None
    missing: dict[str, str]
    rows: float
    seconds: float

    @property
    def metrics(self) -> dict[str, float]:
        """One figure per check, where there is one."""
        found = {
            "cmd": self.curve and self.curve.cmd,
            "cpr": self.curve and self.curve.cpr,
            "jaccard": self.stability and self.stability.value,
            "specificity": self.specificity and self.specificity.ratio,
            "detectors": self.detectors and self.detectors.share,
            "known_heads": self.known_heads and self.known_heads.share,
        }
        return {name: value for name, value in found.items() if value is not None}

    def as_data(self) -> dict[str, Any]:
        """Plain JSON: every figure with its interval, its control and its cost."""
        flagged = self.detected.flagged
        return {
            "size": self.size,
            "n": self.n,
            "faithfulness": self.curve and asdict(self.curve),
            "faithfulness_random": self.random_curve and asdict(self.random_curve),
            "stability": self.stability and asdict(self.stability),
            "specificity": self.specificity and self.specificity.as_data(),
            "detectors": self.detectors
            and {
                **self.detectors.as_data(),
                "flagged": {role: [str(head) for head in heads] for role, heads in flagged.items()},
            },
            "known_heads": self.known_heads and self.published and _known_data(self.known_heads, self.published),
            "missing": self.missing,
            "rows": self.rows,
            "seconds": self.seconds,
        }


def examine(
    specimen: Specimen,
    found: Discovery,
    *,
    n: int = HELD_OUT_PROMPTS,
    size: int | None = None,
    seed: int = 0,
    progress: Tell | None = None,
) -> Trust:
    """Make every check of a discovery that its specimen allows."""
    start, model = time.perf_counter(), specimen.model
    size = size or circuit_size(len(model.components))
    if not 1 <= size <= len(model.components):
        raise BadInput(f"a circuit of {size} components does not fit; this model has {len(model.components)}")
    heads = [part for part, score in found.circuit.ranked() if part.is_head and score != 0][:size]
    missing: dict[str, str] = {}

    def attempt(check: str, place: int, make: Callable[[], Any]) -> Any:
        if progress:
            progress(check, place, 4)
        try:
            return make()
        except BadInput as error:
            missing[check] = str(error)
            return None

    curves = attempt("faithfulness", 0, lambda: _curves(specimen, found, n, seed))
    stability = attempt("stability", 1, lambda: found.stability(size, seed=seed))
    special = attempt("specificity", 2, lambda: specificity(specimen, heads, seed=seed, split=HELD_OUT_SPLIT))
    detected = detect(specimen, seed=seed)
    candidates = model.config.n_layers * model.config.n_heads
    published = published_heads(model.config, specimen.behaviour)
    if progress:
        progress("done", 4, 4)
    return Trust(
        size=size,
        n=n,
        curve=curves and curves[0],
        random_curve=curves and curves[1],
        stability=stability,
        specificity=special,
        detected=detected,
        detectors=attempt("detectors", 3, lambda: overlap(heads, detected.any, candidates=candidates)),
        published=published,
        known_heads=published
        and attempt("known heads", 3, lambda: overlap(heads, published.heads, candidates=candidates)),
        missing=missing,
        rows=sum(curve.forwards * n for curve in curves or ()) + (special.rows if special else 0) + detected.rows,
        seconds=time.perf_counter() - start,
    )


def circuit_size(components: int) -> int:
    """How many components are taken as the circuit: a quarter of a small model, ten of a large one."""
    return max(1, min(LARGEST_CIRCUIT, components // 4))


def _curves(specimen: Specimen, found: Discovery, n: int, seed: int) -> list[Curve]:
    """The discovery's ranking (by magnitude) and a random order of the same components, on held-out prompts."""
    ranking: list[Component] = [part for part, _ in found.circuit.ranked()]
    shuffled = random.Random(f"trust/{seed}").sample(ranking, len(ranking))
    material = trial(specimen, n, seed=HELD_OUT_SEED + seed, split=HELD_OUT_SPLIT)
    return faithfulness_curves(specimen.model, material, [ranking, shuffled])


def _known_data(found: Overlap, published: Published) -> dict[str, Any]:
    return {
        **found.as_data(),
        "roles": {str(head): published.role_of(head) for head in found.both},
        "source": published.source,
    }
