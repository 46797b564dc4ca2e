"""Explain a natural model: which components carry a behaviour, where they attend and what part they play.

1. Check that the model performs the behaviour.
2. On a selection pool choose the set of components that the behaviour needs, and make hypotheses (`selection`).
3. On prompts that chose nothing measure what the set carries and what is left out: the account (`discovery.account`).
4. On held-out prompts make and check the claims about each component (`proposing`), on more of them until decided.
5. Name roles by rule (`roles`) and write them down (`sentences`).
6. Run it in the model's place: programs for the heads of the set, and the ladder (`explanations.running`).

The same seed gives the same explanation. Step 4 can be cut by components: each part makes the same laboratory anew.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from vesalius.behaviours import behaviours
from vesalius.behaviours.metrics import metric_name
from vesalius.behaviours.natural import Spread, require_performance
from vesalius.behaviours.performance import undecided
from vesalius.behaviours.registry import behaviour_of
from vesalius.behaviours.trial import note_limits
from vesalius.components import Component, parse_components
from vesalius.discovery.account import SetRuns
from vesalius.discovery.specificity import each_specificity
from vesalius.documents.account import Account
from vesalius.documents.claims import NOT_DEFINED, PartSpecificity
from vesalius.documents.explanation import LOGITS, TOKENS, ComponentExplanation, Composition, Explanation
from vesalius.documents.performance import Performance
from vesalius.documents.running import Running
from vesalius.documents.view import title_of
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import MIN_CUT_EFFECT, first_interval, mean_and_interval, rounded
from vesalius.explanations.laboratory import CLAIM_SEED, FIRST_LOOK, SECOND_LOOK, NaturalLab, growing_lab
from vesalius.explanations.laboratory.base import PerPrompt
from vesalius.explanations.laboratory.runs import without_role
from vesalius.explanations.natural.proposing import investigate, measure_ahead
from vesalius.explanations.natural.roles import Findings
from vesalius.explanations.natural.selection import ChosenComponents, StudyLimits, add_hypotheses, choose
from vesalius.explanations.natural.sentences import information_flow, note, specificity_sentence, task_description
from vesalius.explanations.running import put_in_place
from vesalius.explanations.verdicts import open_verdict
from vesalius.model.specimen import Specimen
from vesalius.options import require_drawable
from vesalius.progress import Progress, silent
from vesalius.statistics import LOOKS
from vesalius.values import JsonObject

#: The most held-out prompts that a claim draws until it is decided, and those that components are selected on.
PROMPTS, SELECTION = LOOKS[-1], 8
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

    selection: ChosenComponents
    components: tuple[Component, ...]
    n: int
    seed: int
    performs: bool
    request: JsonObject


def explain_natural(
    specimen: Specimen,
    *,
    components: Iterable[str | Component] | None = None,
    n: int = PROMPTS,
    top: int | None = None,
    force: bool = False,
    seed: int = 0,
    ladder: bool = True,
    spread: Spread | None = None,
    progress: Progress | None = None,
) -> Explanation:
    """Explain a natural model for the behaviour it was loaded with, on up to `n` held-out prompts: a claim that is not
    decided draws more of them.

    `components` names the components to study; by default they are as many as the behaviour needs, at most `top`, with
    those that back them up or write their queries and keys. A model that does not perform the behaviour is refused,
    unless `force`: then attention is described and no part is named. With `ladder` the explanation is run in the
    model's place. `spread` studies components elsewhere. `progress` is called at each step.
    """
    started, progress = time.monotonic(), progress or silent
    require_enough(n, top)
    require_drawable(n, seed)
    config = specimen.model.config
    named = None if components is None else sorted(set(parse_components(components, config)))
    progress(f"{specimen.name}: does it perform {title_of(specimen.behaviour or '')}?", 0, 0)
    performance = _performance(specimen, seed, force=force)
    performs = performance.performs or undecided(performance)
    usable = performance.contrast is not None and performance.contrast.usable
    selection_lab = NaturalLab.draw(specimen, SELECTION, seed=seed, split="train")
    note_limits(specimen, selection_lab.prompts, resampled=True)
    limits = StudyLimits.of(top, n)
    how = {"given": named, "limits": limits, "usable": usable, "seed": seed, "progress": progress}
    selection = choose(specimen, selection_lab, **how)
    add_hypotheses(selection_lab, selection, extend=named is None, progress=progress, groups=performs)
    account, runs = _account_and_ladder(specimen, selection, seed, progress, ladder=ladder and performs)
    request = {"n": n, "top": top if named is None else None, "selection": SELECTION, "force": force}
    hypotheses = replace(selection, named=None, suspects=[])  # parts are studied without the prompts of the account
    whole = StudyPart(hypotheses, tuple(selection.components), n, seed, performs, request)
    studied, rows = _study(specimen, whole, progress) if spread is None else _study_elsewhere(whole, spread)
    findings = [one.finding for one in studied]
    progress("writing the explanation", 0, 0)
    explanation = Explanation(
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
        rows=round(selection_lab.cost.rows + rows + sum(one.rows for one in (account, runs) if one is not None)),
        performance=performance,
        running=runs,
    )
    return explanation.with_account(account)


def _account_and_ladder(
    specimen: Specimen, selection: ChosenComponents, seed: int, progress: Progress, *, ladder: bool
) -> tuple[Account | None, Running | None]:
    """What the set carries, and what its program keeps: on the same prompts, which are run once for both."""
    named = selection.named
    if named is None:
        return None, None
    runs = SetRuns(specimen.model, named.sets)
    account = selection.account(specimen, seed=seed, runs=runs, progress=progress)
    if not ladder or not named.components:
        return account, None
    return account, put_in_place(specimen, named, runs=runs, seed=seed, progress=progress)


def require_enough(n: int, top: int | None) -> None:
    """Refuse fewer prompts than intervals need, and a choice of no component."""
    if n < MIN_PROMPTS:
        raise BadInput(f"{n} prompts are too few for intervals; request at least {MIN_PROMPTS}")
    if top is not None and top < 1:
        raise BadInput(f"top={top} selects no components; request at least 1")


def _performance(specimen: Specimen, seed: int, *, force: bool) -> Performance:
    """How well the model performs its behaviour; refuses a model that does not perform it."""
    specimen.require_patterns("explain")
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
    selection, components = part.selection, part.components
    lab = growing_lab(specimen, part.n, seed=CLAIM_SEED + part.seed, circuit=selection.components)
    lab.alike |= selection.groups.alike()
    reported = lab.at_least(SECOND_LOOK)
    if part.performs:
        progress(f"replacing {len(components)} components, their paths and their controls", 0, 0)
        measure_ahead(lab, selection, components)
    reported.measure_single(components)
    reported.measure_paths([(component, None, None) for component in components])
    findings = []
    for place, component in enumerate(components, 1):
        progress(f"explaining {component}", place, len(components))
        findings.append(investigate(lab, selection, component, performs=part.performs))
    if part.performs and reported.looks_first:
        asked = [finding.component for finding in findings if _asks_for_tokens(finding)]
        reported.measure_paths([(None, component, None) for component in asked], n=FIRST_LOOK)
    needed = [finding.component for finding in findings if finding.supported("necessary")]
    specific, rows = each_specificity(specimen, needed, seed=part.seed)
    studied = [
        Studied(
            finding,
            _component(finding, reported, selection, part.request, specific.get(finding.component)),
            tuple(_paths(reported, finding)) if part.performs else (),
        )
        for finding in findings
    ]
    return studied, lab.cost.rows + rows


def _component(
    finding: Findings,
    lab: NaturalLab,
    selection: ChosenComponents,
    request: JsonObject,
    specificity: PartSpecificity | None,
) -> ComponentExplanation:
    numbers = _profile(lab, selection, finding.component)
    return ComponentExplanation(
        id=str(finding.component),
        tag=finding.tag,
        tag_by_experiment=finding.tag_by_experiment,
        note=note(finding) if specificity is None else f"{note(finding)} {specificity_sentence(specificity)}",
        specificity=specificity,
        not_asked=finding.not_asked,
        verdict="supported" if finding.established else open_verdict((one.kind, one.verdict) for one in finding.claims),
        reads=tuple(dict.fromkeys(str(s) for (head, _), s in selection.feeders.items() if head == finding.component)),
        claims=finding.claims,
        role=finding.role,
        profile={
            "pattern": finding.pattern,
            "part": finding.part,
            "looks_at": finding.looks_at,
            "moves": finding.roles("moves_role"),
            "request": request,
            **({} if finding.written is None else {"writes": finding.written.record}),
            **({} if finding.why is None else {"why": finding.why}),
            **numbers,
        },
    )


def _profile(lab: NaturalLab, selection: ChosenComponents, component: Component) -> dict[str, object]:
    """What was measured, for JSON: means with intervals, shares of the clean score, attention mass by role; with those
    replaced that it may stand in for, where there are some.
    """
    found = next((one for one in selection.groups.joint.get(component, ()) if one.how == "resample"), None)
    effects = {
        "solo": lab.effect([component], "resample"),
        "at_answer": lab.at_role(component),
        "direct": lab.path(component, None),
        "lens": lab.lens(component),
        "restored": lab.restored_by(component),
    }
    if found is not None:
        effects["joint"] = lab.effect([component, *found.others], "resample")
        effects["joint_without"] = lab.effect(found.others, "resample")
        effects["gain"] = effects["joint"] - effects["joint_without"] - effects["solo"]
    metric = metric_name(lab.prompts.metric).replace("-", " ")
    flips = (lab.clean_scores > 0) & ~(lab.scores([component], "resample") > 0)
    return {
        "chosen_by": selection.reasons[component],
        "unit": f"share of the clean {metric}" + (f" ({NOT_DEFINED})" if math.isnan(lab.scale) else ""),
        "clean": rounded(lab.clean_scores.mean()),
        "effects": {name: _interval(lab, values) for name, values in effects.items()},
        "n": {name: len(values) for name, values in effects.items()},
        "flips": rounded(float(flips.float().mean())),
        "group": None
        if found is None
        else {"name": found.kind.replace("_", " "), "members": [str(c) for c in sorted([component, *found.others])]},
        "attention": _attention(lab, component) if component.is_head else None,
    }


def _attention(lab: NaturalLab, head: Component) -> dict[str, dict[str, list[float | None]]]:
    from_answer = {**lab.answer_targets, "elsewhere": without_role(lab.answer_targets, lab.runs)}
    return {
        where: {role: _interval(lab, lab.mass(head, target)) for role, target in targets.items() if bool(target.any())}
        for where, targets in (("answer", from_answer), ("everywhere", lab.general_targets))
    }


def _interval(lab: NaturalLab, values: PerPrompt) -> list[float | None]:
    return [rounded(x) for x in mean_and_interval(values, 0.95, seed=lab.seed)]


def _paths(lab: NaturalLab, finding: Findings) -> Iterator[Path]:
    """Supported paths to other components, and the direct paths from the token embeddings and to the logits whose
    interval lies beyond the bar. What reads the embeddings is measured where the component has a role or feeds others.
    """
    sender = finding.component
    if _asks_for_tokens(finding) and (effect := _beyond_bar(lab, _from_tokens(lab, sender))) is not None:
        yield TOKENS, str(sender), effect
    for receiver in _fed_by(finding):
        yield str(sender), str(receiver), round(float(lab.path(sender, receiver).mean()), 4)
    if (effect := _beyond_bar(lab, lab.path(sender, None))) is not None:
        yield str(sender), LOGITS, effect


def _from_tokens(lab: NaturalLab, component: Component) -> PerPrompt:
    """Effect of replacing the token embeddings on their direct path into it only; of few prompts where these show that
    it lies below the bar.
    """
    if lab.looks_first:
        first = lab.path(None, component, n=FIRST_LOOK)
        low, high = first_interval(first)
        if low > -MIN_CUT_EFFECT and high < MIN_CUT_EFFECT:
            return first
    return lab.path(None, component)


def _asks_for_tokens(finding: Findings) -> bool:
    return finding.established or bool(_fed_by(finding))


def _fed_by(finding: Findings) -> list[Component]:
    return [receiver for receiver, claim in finding.outgoing if claim.verdict == "supported"]


def _beyond_bar(lab: NaturalLab, effects: PerPrompt) -> float | None:
    """The mean effect of a path if its whole interval lies beyond the bar."""
    mean, low, high = mean_and_interval(effects, 0.95, seed=lab.seed)
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
