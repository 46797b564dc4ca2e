"""Explain a natural model: which components carry a behaviour, where they attend and what part they play.

1. Check that the model performs the behaviour.
2. On a selection pool select components and make hypotheses (`selection`).
3. On held-out prompts measure each component alone, at the answer position, in its group, along its paths and through
   the logit lens (`study`), and check the claims (`evidence`).
4. Name roles by rule (`roles`) and write them down (`sentences`).

The same seed gives the same explanation. Step 3 can be cut by components: each part makes the same held-out pool anew.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from vesalius.behaviours import behaviours
from vesalius.behaviours.elsewhere import Spread
from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.performance import undecided
from vesalius.behaviours.registry import behaviour_of
from vesalius.behaviours.trial import note_limits
from vesalius.components import Component, parse_components
from vesalius.documents.explanation import LOGITS, TOKENS, ComponentExplanation, Composition, Explanation
from vesalius.documents.performance import Performance
from vesalius.documents.view import title_of
from vesalius.errors import BadInput
from vesalius.explanations.claims import Lab
from vesalius.explanations.claims.laboratory import CLAIM_SEED, Ran
from vesalius.explanations.claims.reading import MIN_CUT_EFFECT
from vesalius.explanations.natural.answers import answer_readout
from vesalius.explanations.natural.evidence import shows_ports
from vesalius.explanations.natural.pool import Pool
from vesalius.explanations.natural.roles import NO_ROLE, Findings, investigate
from vesalius.explanations.natural.selection import Selection, select
from vesalius.explanations.natural.sentences import information_flow, note, task_description
from vesalius.explanations.natural.study import REPORTED, PerPrompt, Study
from vesalius.model.specimen import Specimen
from vesalius.options import require_drawable
from vesalius.progress import Progress, silent

PROMPTS, SELECTION, TOP = 16, 8, 12
#: Intervals from fewer held-out prompts are too wide for any verdict.
MIN_PROMPTS = 4
Path = tuple[str, str, float]


@dataclass(frozen=True)
class Studied:
    """One component after its study: what was found, how it is written down, and the measured paths from it."""

    finding: Findings
    written: ComponentExplanation
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class StudyPart:
    """Some of the selected components to be studied."""

    selection: Selection
    components: tuple[Component, ...]
    n: int
    seed: int
    performs: bool
    request: dict[str, Any]


def explain_natural(
    specimen: Specimen,
    *,
    components: Iterable[str | Component] | None = None,
    n: int = PROMPTS,
    top: int = TOP,
    force: bool = False,
    seed: int = 0,
    spread: Spread | None = None,
    progress: Progress | None = None,
) -> Explanation:
    """Explain a natural model for the behaviour it was loaded with, on `n` held-out prompts.

    `components` names the components to study; by default the `top` by effect, and heads selected by attention and
    composition. A model that does not perform the behaviour is refused, unless `force`: then attention is described
    and no part is named. `spread` studies components elsewhere. `progress` is called at each step.
    """
    started, progress = time.monotonic(), progress or silent
    require_enough(n, top)
    require_drawable(n, seed)
    config = specimen.model.config
    named = None if components is None else sorted(set(parse_components(components, config)))
    progress(f"{specimen.name}: does it perform {title_of(specimen.behaviour or '')}?", 0, 0)
    performance = _performance(specimen, seed, force=force)
    performs = performance.performs or undecided(performance)
    selection_pool = Pool.draw(specimen, SELECTION, seed=seed, split="train")
    note_limits(specimen, selection_pool.prompts, resampled=True)
    selection = select(selection_pool, named=named, top=top, progress=progress, groups=performs)
    request = {"n": n, "top": top if named is None else None, "selection": SELECTION, "force": force}
    whole = StudyPart(selection, tuple(selection.components), n, seed, performs, request)
    studied, rows = _study(specimen, whole, progress) if spread is None else _study_elsewhere(whole, spread)
    findings = [one.finding for one in studied]
    progress("writing the explanation", 0, 0)
    return Explanation(
        specimen=specimen.id,
        behaviour=specimen.behaviour,
        scientist="builtin",
        components=tuple(one.written for one in studied),
        information_flow=information_flow(findings),
        edges=tuple(path for one in studied for path in one.paths),
        compositions=tuple(_compositions(findings)),
        task_description=task_description(behaviour_of(specimen), performance),
        seconds=round(time.monotonic() - started, 2),
        seed=seed,
        rows=round(selection_pool.cost.rows + rows),
    )


def require_enough(n: int, top: int) -> None:
    """Refuse fewer prompts than intervals need, and a choice of no component."""
    if n < MIN_PROMPTS:
        raise BadInput(f"{n} prompts are too few for intervals; request at least {MIN_PROMPTS}")
    if top < 1:
        raise BadInput(f"top={top} selects no components; request at least 1")


def _performance(specimen: Specimen, seed: int, *, force: bool) -> Performance:
    """How well the model performs its behaviour; refuses a model that does not perform it."""
    if specimen.behaviour is None:
        names = ", ".join(b.name for b in behaviours())
        raise BadInput(
            f"specimen {specimen.name!r} is a natural model: name what to explain it for, `behaviour` {names}"
        )
    return require_performance(specimen, seed=seed, force=force, early=True, purpose="see its attention")


def _study_elsewhere(whole: StudyPart, spread: Spread) -> tuple[list[Studied], float]:
    """As `_study`, with the components dealt out to as many parts as work at a time; the clean runs and the controls of
    each part come on top of the work.
    """
    count = min(spread.jobs, len(whole.components))
    parts = [replace(whole, components=whole.components[place::count]) for place in range(count)]
    answers = spread(study_part, parts, step=f"explaining {len(whole.components)} components")
    studied = {one.finding.component: one for part, _ in answers for one in part}
    return [studied[component] for component in whole.components], sum(rows for _, rows in answers)


def study_part(specimen: Specimen, part: StudyPart) -> tuple[list[Studied], float]:
    """The study of one part's components, and its work in forward passes of one prompt."""
    return _study(specimen, part, silent)


def _study(specimen: Specimen, part: StudyPart, progress: Progress) -> tuple[list[Studied], float]:
    """Study the components of a part on held-out prompts; also the work in forward passes of one prompt."""
    seed, selection = CLAIM_SEED + part.seed, part.selection
    pool = Pool.draw(specimen, part.n, seed=seed, split="test")
    ran = Ran(pool.recordings.read_as(answer_readout(pool)), pool.recordings, pool.source_values)
    lab = Lab(specimen, n=part.n, seed=seed, circuit=selection.components, ran=ran)
    study = Study(pool, lab, selection)
    pairs = [pair for pair in selection.paths if pair[0] in part.components]
    if part.performs:
        progress(f"cutting {len(pairs)} paths on held-out prompts", 0, 0)
        study.measure_paths([(*pair, None) for pair in pairs])
        ports = [(*pair, port) for pair in pairs if shows_ports(study, *pair) for port in "qkv"]
        study.measure_paths(ports, n=REPORTED)
        progress(f"replacing {len(part.components)} components and their controls", 0, 0)
        study.measure_replacements(part.components)
    findings = []
    for place, component in enumerate(part.components, 1):
        progress(f"explaining {component}", place, len(part.components))
        findings.append(investigate(study, component, performs=part.performs))
    if part.performs:
        study.look_at_tokens([finding.component for finding in findings if _asks_for_tokens(finding)])
    studied = [
        Studied(
            finding,
            _component(finding, study, part.request),
            tuple(_paths(study, finding)) if part.performs else (),
        )
        for finding in findings
    ]
    return studied, pool.cost.rows + lab.cost.rows


def _component(finding: Findings, study: Study, request: dict[str, Any]) -> ComponentExplanation:
    numbers = study.numbers(finding.component, grouped=not finding.supported("necessary"))
    return ComponentExplanation(
        id=str(finding.component),
        tag=finding.tag,
        tag_by_experiment=finding.tag_by_experiment,
        note=note(finding),
        verdict="untested" if finding.role == NO_ROLE else "supported",
        reads=tuple(
            dict.fromkeys(str(s) for (head, _), s in study.selection.feeders.items() if head == finding.component)
        ),
        claims=finding.claims,
        role=finding.role,
        profile={
            "pattern": finding.pattern,
            "part": finding.part,
            "looks_at": finding.looks_at,
            "moves": finding.roles("moves_role"),
            "request": request,
            **numbers,
        },
    )


def _paths(study: Study, finding: Findings) -> Iterator[Path]:
    """Supported paths to other components, and the direct paths from the token embeddings and to the logits whose
    interval lies beyond the bar. What reads the embeddings is measured where the component has a role or feeds others.
    """
    sender = finding.component
    if _asks_for_tokens(finding) and (effect := _beyond_bar(study, study.from_tokens(sender))) is not None:
        yield TOKENS, str(sender), effect
    for receiver in _fed_by(finding):
        yield str(sender), str(receiver), round(float(study.path(sender, receiver).mean()), 4)
    if (effect := _beyond_bar(study, study.direct(sender))) is not None:
        yield str(sender), LOGITS, effect


def _asks_for_tokens(finding: Findings) -> bool:
    return finding.role != NO_ROLE or bool(_fed_by(finding))


def _fed_by(finding: Findings) -> list[Component]:
    return [receiver for receiver, claim in finding.outgoing if claim.verdict == "supported"]


def _beyond_bar(study: Study, effects: PerPrompt) -> float | None:
    """The mean effect of a path if its whole interval lies beyond the bar."""
    mean, low, high = study.interval(effects)
    return round(mean, 4) if low > MIN_CUT_EFFECT or high < -MIN_CUT_EFFECT else None


def _compositions(findings: list[Findings]) -> list[Composition]:
    """The supported claims that a component writes a head's queries or keys."""
    return [
        Composition(
            sender=str(sender),
            receiver=str(finding.component),
            port="queries" if port == "q" else "keys",
            **claim.evidence[0].model_dump(include={"value", "low", "high"}),
        )
        for finding in findings
        for sender, port, claim in finding.incoming
        if claim.verdict == "supported"
    ]
