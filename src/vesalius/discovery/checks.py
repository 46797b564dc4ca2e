"""The checks of a discovered circuit, each on prompts that the discovery has not seen.

| check        | asks                                                           | figure                               |
|--------------|----------------------------------------------------------------|--------------------------------------|
| faithfulness | does the circuit alone keep the behaviour, at every size?      | `cmd`, `cpr`; control: random order  |
| guarantee    | what does it keep at least on new prompts, with 95 %?          | `guaranteed_answers`, `..._kept`     |
| stability    | would other prompts have given the same circuit?               | `jaccard` over 100 resamples         |
| specificity  | does cutting its heads hurt other behaviours and text as much? | `specificity`: own drop / others'    |
| detectors    | do attention patterns alone show its heads?                    | `detectors`: share; control: chance  |
| known heads  | are they the heads published for GPT-2 small?                  | `known_heads`: share; control: chance|

Natural models are checked on the validation split (other names, templates and tokens than the discovery's test split),
specimens with a listed vocabulary on random inputs that the discovery has not seen, neither as prompts nor as
counterfactuals; where those run out there are fewer (`n` of `asked`). Where a method searches heads only, MLPs are kept
throughout the faithfulness curve. Stability resamples the discovery's own scores and costs no forward pass, except for
ACDC; searches sample which heads they measure and are not resampled. A check that cannot be made gives the reason
instead of a figure.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.metrics import has_zero
from vesalius.behaviours.natural import Spread
from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import NothingUnseen, Trial, trial, unseen_of
from vesalius.components import Component, Edge
from vesalius.discovery.faithfulness import Ranking, faithfulness_curve, faithfulness_curves, scores_without
from vesalius.discovery.head_tests import Detections, detect
from vesalius.discovery.known_heads import Overlap, PublishedHeads, overlap, published_heads
from vesalius.discovery.method import Method, MethodResult
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.discovery.specificity import specificity
from vesalius.documents.checks import Bound, Checks, Curve, DetectedHeads, Guarantee, KnownHeads, Stability
from vesalius.documents.checks import Specificity as SpecificityFigures
from vesalius.documents.circuit import Circuit
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress
from vesalius.statistics import mean_lower_bound, share_lower_bound
from vesalius.values import JsonObject

# What a circuit keeps at least: bounds that hold for new prompts of the same distribution with 95 % confidence.
#
# Two quantities, each guaranteed with 95 % confidence on its own (not both at once), over prompts drawn after the
# circuit was chosen:
#
# - `answers`: of the prompts that the model gets right, the share that the circuit gets right with everything else
#   ablated. Right is a positive score for a behaviour whose metric has a zero (the right answer above the wrong one),
#   and every output unchanged for a specimen with a listed vocabulary. The bound is the exact binomial one (Clopper-
#   Pearson). Many prompts can stay right with everything ablated: that share stands beside it.
# - `kept`: the mean over prompts of the share of the score kept, (circuit - ablated) / (model - ablated), each clipped
#   to 0 and 1, over the prompts on which the model scores above the ablated model. Bounded values of any distribution:
#   the bound is by betting (`statistics.mean_lower_bound`).
#
# The second is a mean of shares, not the faithfulness of the curves, which is a ratio of means and has no such bound:
# scores have no limits there. What exceeds 1 on one prompt does not make up for what is missing on another.
#
# Specimens with a listed vocabulary are asked new independent inputs of their own distribution; an input can repeat one
# that the discovery saw, as in the distribution itself. Natural behaviours are asked prompts of the validation split
# that the discovery has not seen; for rows of a file the guarantee holds as far as the rows are independent draws.

PROMPTS, SEED, LEVEL = 100, 2_000_003, 0.95
#: Why a check has no figure where the prompts show no behaviour: any circuit would look perfect.
NOTHING_VARIED = "nothing varied on these prompts"
#: A share of outputs counts as all of them from here on.
_ALL = 1 - 1e-6


def guarantee_prompts(
    specimen: Specimen, seen: Trial, n: int = PROMPTS, *, chose: Trial | None = None, seed: int = 0
) -> Trial:
    """Prompts that had no part in finding the circuit (`seen`) or in choosing its size (`chose`)."""
    if isinstance(specimen.vocabulary, TextVocabulary):
        return _besides(trial(specimen, n, seed=SEED + seed, split=HELD_OUT_SPLIT, apart_from=seen), chose)
    return trial(specimen, n, seed=SEED + seed)


def _besides(drawn: Trial, chose: Trial | None) -> Trial:
    """Those of some prompts of a behaviour that did not choose the circuit's size either: the rows of one split may
    serve as two. Inputs of a listed vocabulary are drawn anew, and may repeat.
    """
    left = drawn if chose is None or drawn.prompts is None else unseen_of(drawn, chose)
    if left is None:
        raise NothingUnseen("every prompt left chose the size of the circuit; give more rows")
    return left


def guarantee(
    specimen: Specimen,
    seen: Trial,
    kept: Collection[Component | Edge],
    candidates: Sequence[Component | Edge],
    *,
    n: int = PROMPTS,
    chose: Trial | None = None,
    seed: int = 0,
) -> Guarantee:
    """The bounds of the circuit `kept` out of `candidates`, on `n` prompts of their own."""
    by_edges = any(isinstance(part, Edge) for part in candidates)
    if by_edges and len(candidates) > MAX_EDGES:
        raise BadInput(
            f"this model has {len(candidates):,} edges and up to {MAX_EDGES:,} are cut; choose a circuit of components"
        )
    material, whole = guarantee_prompts(specimen, seen, n, chose=chose, seed=seed), frozenset(candidates)
    if material.searched:
        raise BadInput(
            "inputs on which outputs differ are rare and were searched; a guarantee needs inputs drawn independently"
        )
    removed = [whole, whole - frozenset(kept), frozenset()]
    scores, forwards = scores_without(specimen.model, material, removed)
    if bool((scores[:, 0] == scores[:, 2]).all()):
        raise BadInput(f"{NOTHING_VARIED}: replacing everything leaves every score as it is")
    preferred = material.prompts is not None
    return Guarantee(
        by="edges" if by_edges else "components",
        size=len(kept),
        level=LEVEL,
        n=len(material.batch),
        preferred=preferred,
        answers=_answers(scores, 0.0 if preferred else _ALL)
        if material.prompts is None or has_zero(material.prompts.metric)
        else None,
        kept=kept_bound(scores),
        rows=forwards * len(material.batch),
    )


def _answers(scores: Float[Tensor, "prompt 3"], least: float) -> Bound | None:
    """Of the prompts that the model gets right, how many the circuit gets right, beside the ablated model."""
    ablated, right = (scores[scores[:, 2] > least, :2] > least).T
    if not len(right):
        return None
    successes = int(right.sum())
    low = share_lower_bound(successes, len(right), level=LEVEL)
    return Bound(value=successes / len(right), low=low, n=len(right), baseline=float(ablated.double().mean()))


def kept_bound(scores: Float[Tensor, "prompt 3"]) -> Bound | None:
    """The mean share of the score that the circuit keeps; columns are everything ablated, the circuit, the model."""
    nothing, own, everything = scores.double().T
    usable = everything > nothing
    if not bool(usable.any()):
        return None
    shares: Float[Tensor, " prompt"] = torch.clamp((own - nothing) / (everything - nothing), 0, 1)[usable]
    low = float(mean_lower_bound(shares.numpy(), level=LEVEL))
    return Bound(value=float(shares.mean()), low=low, n=len(shares))


HELD_OUT_PROMPTS, HELD_OUT_SPLIT, HELD_OUT_SEED = 12, "validation", 1_000_003
#: Where a check needs a circuit of one size, it is the components worth explaining, but never more than this.
LARGEST_CIRCUIT = 10
#: How a circuit was cut.
Cut = Literal["rule", "whole"]
#: The checks that run the model, each on its own.
ELSEWHERE = ("faithfulness", "edge faithfulness", "specificity", "detectors")


def run_checks(
    specimen: Specimen,
    result: MethodResult,
    *,
    n: int = HELD_OUT_PROMPTS,
    size: int | None = None,
    cut: Cut | None = None,
    seed: int = 0,
    spread: Spread | None = None,
    progress: Progress | None = None,
) -> Checks:
    """Make every check of a discovery that its specimen allows.

    `n` held-out prompts for the curves. `cut` says how the circuit in the graph was cut, by a rule or to the smallest
    whole one: that circuit is checked then, otherwise its `size` strongest components (by default `circuit_size`).
    `spread` makes the checks of a natural model that run it elsewhere.
    """
    start, components = time.perf_counter(), len(specimen.model.components)
    if cut:
        size = max(1, sum(part in inside_graph(result.circuit) for part, _ in result.circuit.ranked()))
    case = _Case(specimen, result, n, circuit_size(result.circuit) if size is None else size, seed, cut)
    if not 1 <= case.size <= components:
        raise BadInput(f"a circuit of {case.size} components does not fit; this model has {components}")
    results, missing = ({}, {}) if spread is None else _attempt_elsewhere(case, spread)
    here, refused = _attempt({name: make for name, make in case.checks().items() if name not in results}, progress)
    results, missing = {**results, **here}, {**missing, **refused}
    curve, random_curve = results["faithfulness"] or (None, None)
    stability, resampling = results["stability"] or (None, 0.0)
    detected, detectors = results["detectors"] or (None, None)
    special, curves = results["specificity"], [curve, random_curve, results["edge faithfulness"]]
    return Checks(
        size=case.size,
        of_members=cut is not None,
        n=case.n_held_out,
        asked=n,
        heads_only=all(part.is_head for part in result.circuit.components),
        faithfulness=curve,
        faithfulness_random=random_curve,
        edge_faithfulness=results["edge faithfulness"],
        stability=stability,
        guarantee=results["guarantee"],
        specificity=None if special is None else SpecificityFigures(**special.as_data()),
        detectors=_detected(detected, detectors),
        known_heads=_known(results["known heads"], case.published),
        missing=missing,
        rows=sum(one.forwards * one.n for one in curves if one)
        + resampling
        + (results["guarantee"].rows if results["guarantee"] else 0)
        + (special.rows if special else 0)
        + (detected.rows if detected else 0),
        seconds=time.perf_counter() - start,
    )


def _attempt(
    checks: Mapping[str, Callable[[], object]], progress: Progress | None
) -> tuple[JsonObject, dict[str, str]]:
    """What each check gave, None where it refused, and the reasons of those that did."""
    results, missing = {}, {}
    for place, (check, make) in enumerate(checks.items()):
        if progress:
            progress(f"checking {check}", place, len(checks))
        try:
            results[check] = make()
        except BadInput as error:
            results[check], missing[check] = None, str(error)
    return results, missing


@dataclass(frozen=True)
class CheckPart:
    """One check by name, with what a process needs that has the specimen alone."""

    check: str
    method: Method
    circuit: Circuit
    prompts: Prompts
    chose: Prompts | None
    n: int
    size: int
    seed: int
    cut: Cut | None


def _attempt_elsewhere(case: "_Case", spread: Spread) -> tuple[JsonObject, dict[str, str]]:
    """As `_attempt`, for the checks that run the model."""
    result = case.result
    prompts, chose = result.material.prompts, None if result.chose is None else result.chose.prompts
    assert prompts is not None
    shared = (result.method, result.circuit, prompts, chose, case.n, case.size, case.seed, case.cut)
    answers = spread(check_part, [CheckPart(name, *shared) for name in ELSEWHERE], step="checking the circuit")
    results = {name: outcome for name, (outcome, _) in zip(ELSEWHERE, answers, strict=True)}
    return results, {name: why for name, (_, why) in zip(ELSEWHERE, answers, strict=True) if why is not None}


def check_part(specimen: Specimen, part: CheckPart) -> tuple[Any, str | None]:
    """What one check gave, or why it refused."""
    material, chose = (
        None if prompts is None else Trial.of(prompts, prompts.readout(specimen.model))
        for prompts in (part.prompts, part.chose)
    )
    assert material is not None
    result = MethodResult(part.method, part.circuit, 0.0, 0.0, material, chose=chose)
    results, missing = _attempt(
        {part.check: _Case(specimen, result, part.n, part.size, part.seed, part.cut).checks()[part.check]}, None
    )
    return results[part.check], missing.get(part.check)


def beside_random(
    model: Transformer,
    held_out: Trial,
    ranking: Ranking,
    candidates: Sequence[Any],
    *,
    draw: str,
    searched: Sequence[Component] | None = None,
) -> tuple[Curve, Curve]:
    """How faithful circuits of the best of a ranking are on held-out prompts, and those of the candidates in a random
    order, which the text `draw` decides.
    """
    shuffled = random.Random(draw).sample(candidates, len(candidates))
    own, control = faithfulness_curves(model, held_out, [ranking, shuffled], searched=searched)
    return own, control


def held_out_prompts(specimen: Specimen, material: Trial, n: int = HELD_OUT_PROMPTS, *, seed: int = 0) -> Trial:
    """Up to `n` prompts that a discovery on `material` has not seen."""
    return trial(specimen, n, seed=HELD_OUT_SEED + seed, split=HELD_OUT_SPLIT, apart_from=material)


def inside_graph(circuit: Circuit) -> set[Component]:
    """The components of a circuit that was cut."""
    return {part for part, member in circuit.nodes.items() if isinstance(part, Component) and member.in_graph}


def circuit_size(circuit: Circuit) -> int:
    """How many components are taken as the circuit: those worth explaining, up to ten."""
    return max(1, min(LARGEST_CIRCUIT, len(circuit.chosen())))


@dataclass(frozen=True)
class _Case:
    """One discovery under examination, and the checks of it."""

    specimen: Specimen
    result: MethodResult
    n: int
    size: int
    seed: int
    cut: Cut | None = None

    @cached_property
    def held_out(self) -> Trial:
        """Prompts that the discovery has not seen."""
        return _besides(
            held_out_prompts(self.specimen, self.result.material, self.n, seed=self.seed), self.result.chose
        )

    @property
    def n_held_out(self) -> int:
        """How many there are; 0 where none are left."""
        try:
            return len(self.held_out.batch)
        except NothingUnseen:
            return 0

    @cached_property
    def heads(self) -> list[Component]:
        """The circuit's heads, strongest first."""
        circuit = self.result.circuit
        if self.cut:
            inside = inside_graph(circuit)
            return [part for part, _ in circuit.ranked() if part.is_head and part in inside]
        return [part for part, score in circuit.ranked() if part.is_head and score != 0][: self.size]

    @cached_property
    def published(self) -> PublishedHeads | None:
        """The heads known for this model and behaviour."""
        return published_heads(self.specimen.model.config, self.specimen.behaviour)

    def checks(self) -> dict[str, Callable[[], Any]]:
        """Every check by name, none made yet."""
        return {
            "faithfulness": self._curves,
            "edge faithfulness": self._edge_curve,
            "stability": self._stability,
            "specificity": lambda: specificity(self.specimen, self.heads, seed=self.seed, split=HELD_OUT_SPLIT),
            "detectors": self._detectors,
            "known heads": lambda: self.published and self._overlap(self.published.heads),
            "guarantee": self._guarantee,
        }

    def _curves(self) -> tuple[Curve, Curve]:
        """The discovery's ranking (by magnitude) and a random order of the same components, on held-out prompts."""
        ranking: list[Component] = [part for part, _ in self.result.circuit.ranked()]
        draw = f"trust/{self.seed}"
        return beside_random(self.specimen.model, self.held_out, ranking, ranking, draw=draw, searched=ranking)

    def _edge_curve(self) -> Curve | None:
        """The same by edges, where the method scores them and they are few enough to be cut in reasonable time."""
        ranking = [edge for edge, _ in self.result.circuit.ranked_edges()]
        if len(ranking) > MAX_EDGES:
            raise BadInput(
                f"this model has {len(ranking)} edges and up to {MAX_EDGES} are cut; see the one by components"
            )
        return faithfulness_curve(self.specimen.model, self.held_out, ranking) if ranking else None

    def _guarantee(self) -> Guarantee:
        """Of the circuit that was cut, or of the strongest components; what was not scored is kept."""
        circuit, how = self.result.circuit, {"chose": self.result.chose, "seed": self.seed}
        ranked = [part for part, _ in circuit.ranked()]
        if not self.cut:
            return guarantee(self.specimen, self.result.material, ranked[: self.size], ranked, **how)
        if circuit.edges and self.cut != "whole":
            kept, candidates = circuit.kept_edges, EdgeGraph.of(self.specimen.model.config).edges
            return guarantee(self.specimen, self.result.material, kept, candidates, **how)
        members = [part for part in ranked if part in inside_graph(circuit)]
        return guarantee(self.specimen, self.result.material, members, ranked, **how)

    def _stability(self) -> tuple[Stability, float]:
        """With the work in passes of one prompt."""
        if not any(score for _, score in self.result.circuit.ranked()):
            raise BadInput(f"{NOTHING_VARIED}: every component's score is 0, and would be on any prompts like them")
        stability, forwards = self.result.method.stability(self.specimen, self.result, self.size, seed=self.seed)
        return stability, forwards * len(self.result.material.batch)

    def _detectors(self) -> tuple[Detections, Overlap]:
        detected = detect(self.specimen, seed=self.seed)
        if not detected.heads:
            raise BadInput(
                f"no head of {self.specimen.name} puts more than half of its attention where one of these roles would; "
                "there is nothing to compare with"
            )
        return detected, self._overlap(detected.heads)

    def _overlap(self, known: Collection[Component]) -> Overlap:
        config = self.specimen.model.config
        return overlap(self.heads, known, candidates=config.n_layers * config.n_heads)


def _detected(detected: Detections | None, shared: Overlap | None) -> DetectedHeads | None:
    if detected is None or shared is None:
        return None
    flagged = {role: tuple(map(str, heads)) for role, heads in detected.flagged.items()}
    return DetectedHeads(**shared.as_data(), flagged=flagged)


def _known(shared: Overlap | None, published: PublishedHeads | None) -> KnownHeads | None:
    if shared is None or published is None:
        return None
    roles = {str(head): published.role_of(head) for head in shared.both}
    return KnownHeads(**shared.as_data(), roles=roles, source=published.source)
