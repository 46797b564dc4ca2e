"""The causal profile of a natural model: which components carry a behaviour, where they look and what part they play.

1. Ask whether the model performs the behaviour at all.
2. On a selection pool choose components and make hypotheses (`choosing`).
3. On held-out prompts measure each component alone, at the answer position, in its group, along its paths and through
   the logit lens (`study`), and examine the claims (`evidence`).
4. Name roles by rule (`roles`) and say it (`words`).

The same seed gives the same explanation.
"""

import time
from collections.abc import Iterable
from typing import Any

from vesalius.behaviours import behaviours
from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.performance import Performance
from vesalius.components import Component, parse_components
from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.errors import BadInput
from vesalius.explanations.claims import Lab
from vesalius.explanations.claims.laboratory import CLAIM_SEED
from vesalius.explanations.claims.reading import MIN_CUT_EFFECT
from vesalius.explanations.natural.choosing import choose
from vesalius.explanations.natural.evidence import path_control
from vesalius.explanations.natural.pool import Pool
from vesalius.explanations.natural.roles import NO_ROLE, Findings, investigate
from vesalius.explanations.natural.study import Study
from vesalius.explanations.natural.words import information_flow, note, task_description
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress, silent

PROMPTS, SELECTION, TOP = 16, 8, 12
#: Fewer held-out prompts give intervals that decide nothing.
FEWEST = 4


def explain_natural(
    specimen: Specimen,
    *,
    components: Iterable[str | Component] | None = None,
    n: int = PROMPTS,
    top: int = TOP,
    force: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Explanation:
    """Explain a natural model for the behaviour it was loaded with, on `n` held-out prompts.

    `components` names what is looked at; by default the `top` by effect, and heads found by attention and composition.
    A model that does not perform the behaviour is refused, unless `force`: then attention is described and no part is
    named. `progress` is called at each step.
    """
    started, progress = time.monotonic(), progress or silent
    if n < FEWEST:
        raise BadInput(f"{n} prompts are too few for intervals; ask for at least {FEWEST}")
    if top < 1:
        raise BadInput(f"the top {top} components are none; ask for at least 1")
    config = specimen.model.config
    named = None if components is None else sorted(set(parse_components(components, config)))
    progress(f"{specimen.name}: does it perform {specimen.behaviour}?", 0, 0)
    performance = _performance(specimen, seed, force=force)
    selection = Pool(specimen, SELECTION, seed=seed, split="train")
    choice = choose(selection, named=named, top=top, progress=progress)
    evidence = Pool(specimen, n, seed=CLAIM_SEED + seed, split="test")
    lab = Lab(specimen, n=n, seed=CLAIM_SEED + seed, circuit=choice.components)
    study = Study(evidence, lab, choice)
    findings = _investigated(study, performs=performance.performs, progress=progress)
    progress("writing the explanation", 0, 0)
    request = {"n": n, "top": top if named is None else None, "selection": SELECTION, "force": force}
    return Explanation(
        specimen=specimen.id,
        behaviour=specimen.behaviour,
        scientist="builtin",
        components=tuple(_component(found, study, request) for found in findings),
        information_flow=information_flow(findings),
        edges=tuple(_edges(study, findings)) if performance.performs else (),
        task_description=task_description(specimen.behaviour or "", performance),
        seconds=round(time.monotonic() - started, 2),
        seed=seed,
        rows=round(selection.cost.rows + evidence.cost.rows + lab.cost.rows),
    )


def _performance(specimen: Specimen, seed: int, *, force: bool) -> Performance:
    """How well the model does; refuses what it does not do."""
    if specimen.behaviour is None:
        names = ", ".join(b.name for b in behaviours())
        raise BadInput(
            f"specimen {specimen.name!r} is a natural model: name what to explain it for, --behaviour {names}"
        )
    return require_performance(specimen, seed=seed, force=force, purpose="see its attention")


def _investigated(study: Study, *, performs: bool, progress: Progress) -> list[Findings]:
    if performs:
        progress(f"cutting {len(study.choice.paths)} paths on held-out prompts", 0, 0)
        study.measure_paths([key for pair in study.choice.paths for key in _path_keys(study, pair)])
    findings = []
    for place, component in enumerate(study.choice.components, 1):
        progress(f"explaining {component}", place, len(study.choice.components))
        findings.append(investigate(study, component, performs=performs))
    return findings


def _path_keys(study: Study, pair: tuple[Component, Component]) -> list[tuple[Component, Component, str | None]]:
    """A path as a whole, by input, and its control's."""
    sender, receiver = pair
    ports: list[str | None] = [None, *("qkv" if receiver.is_head else "")]
    control = path_control(study, sender, receiver)
    return [(sender, receiver, port) for port in ports] + ([] if control is None else [(control, receiver, None)])


def _component(found: Findings, study: Study, request: dict[str, Any]) -> ComponentExplanation:
    numbers = study.numbers(found.component)
    return ComponentExplanation(
        id=str(found.component),
        tag=found.tag,
        tag_by_experiment=found.tag,
        note=note(found),
        verdict="untested" if found.role == NO_ROLE else "supported",
        reads=tuple(dict.fromkeys(str(s) for (head, _), s in study.choice.feeders.items() if head == found.component)),
        claims=found.claims,
        role=found.role,
        profile={
            "pattern": found.pattern,
            "part": found.part,
            "looks_at": found.looks_at,
            "request": request,
            **numbers,
        },
    )


def _edges(study: Study, findings: list[Findings]) -> list[tuple[str, str, float]]:
    """Supported paths between components, and direct paths to the logits whose interval lies beyond the bar."""
    found = []
    for finding in findings:
        sender = finding.component
        for receiver, claim in finding.fed:
            if claim.verdict == "supported":
                found.append((str(sender), str(receiver), round(float(study.path(sender, receiver).mean()), 4)))
        mean, low, high = study.interval(study.direct(sender))
        if low > MIN_CUT_EFFECT or high < -MIN_CUT_EFFECT:
            found.append((str(sender), "logits", round(mean, 4)))
    return found
