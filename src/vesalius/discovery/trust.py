"""How far a discovered circuit can be trusted: five checks beside the discovery, none on the prompts it was made on.

| check        | asks                                                           | figure                               |
|--------------|----------------------------------------------------------------|--------------------------------------|
| faithfulness | does the circuit alone keep the behaviour, at every size?      | `cmd`, `cpr`; control: random order  |
| stability    | would other prompts have given the same circuit?               | `jaccard` over 100 resamples         |
| specificity  | does cutting its heads hurt other behaviours and text as much? | `specificity`: own drop / others'    |
| detectors    | are its heads told by their attention pattern alone?           | `detectors`: share; control: chance  |
| known heads  | are they the heads published for GPT-2 small?                  | `known_heads`: share; control: chance|

Natural models are checked on the validation split (other names, templates and tokens than the discovery's test split),
specimens with a listed vocabulary on other random inputs. Where a method searches heads only, MLPs are kept throughout
the faithfulness curve. Stability resamples the discovery's own scores and costs no forward pass, except for ACDC. A
check that cannot be made says why instead of a figure.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vesalius.behaviours.trial import Trial, trial
from vesalius.discovery.circuit import Circuit
from vesalius.discovery.detectors import Detected, detect
from vesalius.discovery.faithfulness import Curve, faithfulness_curve, faithfulness_curves
from vesalius.discovery.known_heads import Published, published_heads
from vesalius.discovery.methods import Discovery, acdc_stability
from vesalius.discovery.overlap import Overlap, overlap
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.discovery.specificity import Specificity, specificity
from vesalius.discovery.stability import Stability
from vesalius.errors import BadInput
from vesalius.model.components import Component
from vesalius.model.specimen import Specimen

HELD_OUT_PROMPTS, HELD_OUT_SPLIT, HELD_OUT_SEED = 12, "validation", 1_000_003
#: Where a check needs a circuit of one size, it is the components worth explaining, but never more than this.
LARGEST_CIRCUIT = 10
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Trust:
    """The checks of one discovery; `missing` says why a check gave no figure.

    `size` components (or heads) count as the circuit where a check needs one. `heads_only`: the method searched no
    MLPs, and the curves keep them. `rows` is the work in forward passes of one prompt.
    """

    size: int
    n: int
    heads_only: bool
    curve: Curve | None
    random_curve: Curve | None
    edge_curve: Curve | None
    stability: Stability | None
    specificity: Specificity | None
    detected: Detected | None
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
            "edge_cmd": self.edge_curve and self.edge_curve.cmd,
            "edge_cpr": self.edge_curve and self.edge_curve.cpr,
            "jaccard": self.stability and self.stability.value,
            "specificity": self.specificity and self.specificity.ratio,
            "detectors": self.detectors and self.detectors.share,
            "known_heads": self.known_heads and self.known_heads.share,
        }
        return {name: value for name, value in found.items() if value is not None}

    def as_data(self) -> dict[str, Any]:
        """Plain JSON: every figure with its interval, its control and its cost."""
        flagged = self.detected.flagged if self.detected else {}
        return {
            "size": self.size,
            "n": self.n,
            "heads_only": self.heads_only,
            "faithfulness": self.curve and asdict(self.curve),
            "faithfulness_random": self.random_curve and asdict(self.random_curve),
            "edge_faithfulness": self.edge_curve and asdict(self.edge_curve),
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
    material: Trial | None = None,
    progress: Tell | None = None,
) -> Trust:
    """Make every check of a discovery that its specimen allows.

    `n` held-out prompts for the curves; `size` of the circuit, by default `circuit_size`; `material` are the
    discovery's own prompts, which only the stability of ACDC needs.
    """
    start, model = time.perf_counter(), specimen.model
    size = circuit_size(found.circuit) if size is None else size
    if not 1 <= size <= len(model.components):
        raise BadInput(f"a circuit of {size} components does not fit; this model has {len(model.components)}")
    heads = [part for part, score in found.circuit.ranked() if part.is_head and score != 0][:size]
    candidates = model.config.n_layers * model.config.n_heads
    published = published_heads(model.config, specimen.behaviour)
    checks: dict[str, Callable[[], Any]] = {
        "faithfulness": lambda: _curves(specimen, found, n, seed),
        "edge faithfulness": lambda: _edge_curve(specimen, found, n, seed),
        "stability": lambda: _stability(specimen, found, material, size, seed),
        "specificity": lambda: specificity(specimen, heads, seed=seed, split=HELD_OUT_SPLIT),
        "detectors": lambda: _detectors(specimen, heads, candidates, seed),
        "known heads": lambda: published and overlap(heads, published.heads, candidates=candidates),
    }
    made, missing = _attempted(checks, progress)
    curve, random_curve = made["faithfulness"] or (None, None)
    stability, resampling = made["stability"] or (None, 0.0)
    detected, detectors = made["detectors"] or (None, None)
    special, curves = made["specificity"], [curve, random_curve, made["edge faithfulness"]]
    return Trust(
        size=size,
        n=n,
        heads_only=all(part.is_head for part in found.circuit.components),
        curve=curve,
        random_curve=random_curve,
        edge_curve=made["edge faithfulness"],
        stability=stability,
        specificity=special,
        detected=detected,
        detectors=detectors,
        published=published,
        known_heads=made["known heads"],
        missing=missing,
        rows=sum(one.forwards * n for one in curves if one)
        + resampling
        + (special.rows if special else 0)
        + (detected.rows if detected else 0),
        seconds=time.perf_counter() - start,
    )


def _attempted(checks: Mapping[str, Callable[[], Any]], progress: Tell | None) -> tuple[dict[str, Any], dict[str, str]]:
    """What each check gave, None where it refused, and the reasons of those that did."""
    made, missing = {}, {}
    for place, (check, make) in enumerate(checks.items()):
        if progress:
            progress(check, place, len(checks))
        try:
            made[check] = make()
        except BadInput as error:
            made[check], missing[check] = None, str(error)
    return made, missing


def circuit_size(circuit: Circuit) -> int:
    """How many components are taken as the circuit: those worth explaining, up to ten."""
    return max(1, min(LARGEST_CIRCUIT, len(circuit.chosen())))


def _stability(
    specimen: Specimen, found: Discovery, material: Trial | None, size: int, seed: int
) -> tuple[Stability, float]:
    """By the discovery's own scores; ACDC's are no means, so it is pruned anew on each resample of its prompts."""
    if found.method != "acdc" or material is None:
        return found.stability(size, seed=seed), 0.0
    stability, forwards = acdc_stability(specimen.model, material, seed=seed)
    return stability, forwards * len(material.batch)


def _detectors(specimen: Specimen, heads: Sequence[Component], candidates: int, seed: int) -> tuple[Detected, Overlap]:
    detected = detect(specimen, seed=seed)
    if not detected.any:
        raise BadInput(
            f"no head of {specimen.name} puts more than half of its attention where one of these roles would; there is "
            "nothing to compare with"
        )
    return detected, overlap(heads, detected.any, candidates=candidates)


def _curves(specimen: Specimen, found: Discovery, n: int, seed: int) -> list[Curve]:
    """The discovery's ranking (by magnitude) and a random order of the same components, on held-out prompts."""
    ranking: list[Component] = [part for part, _ in found.circuit.ranked()]
    shuffled = random.Random(f"trust/{seed}").sample(ranking, len(ranking))
    return faithfulness_curves(specimen.model, _held_out(specimen, n, seed), [ranking, shuffled], searched=ranking)


def _edge_curve(specimen: Specimen, found: Discovery, n: int, seed: int) -> Curve | None:
    """The same by edges, where the method scores them and they are few enough to be cut in reasonable time."""
    ranking = [edge for edge, _ in found.circuit.ranked_edges()]
    if len(ranking) > MAX_EDGES:
        raise BadInput(f"this model has {len(ranking)} edges and up to {MAX_EDGES} are cut; see the one by components")
    return faithfulness_curve(specimen.model, _held_out(specimen, n, seed), ranking) if ranking else None


def _held_out(specimen: Specimen, n: int, seed: int) -> Trial:
    return trial(specimen, n, seed=HELD_OUT_SEED + seed, split=HELD_OUT_SPLIT)


def _known_data(found: Overlap, published: Published) -> dict[str, Any]:
    return {
        **found.as_data(),
        "roles": {str(head): published.role_of(head) for head in found.both},
        "source": published.source,
    }
