"""Claims about a component of a natural model, each with its experiment, its controls and a verdict by rule.

Typed claims (`necessary`, `backup_of`, `reads_from`) come from the claims library, those about heads that move one
role from `movers`. The others are defined here and follow the same rule: the interval of a mean over held-out prompts
is compared with a bar that is never lower than what the controls reach. Hypotheses were made on another pool, so a
claim counts as the first of its kind; those about the roles that a head moves are counted together.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from vesalius.components import Component
from vesalius.discovery.attention import Target, masses
from vesalius.documents.explanation import ClaimRecord, Evidence, Verdict
from vesalius.documents.frozen import FrozenDict
from vesalius.explanations.claims import BackupOf, Necessary, ReadsFrom, check
from vesalius.explanations.claims.ablation import MIN_EFFECT, Bar, bounded_gain, shows_early
from vesalius.explanations.claims.base import (
    ALPHA,
    above,
    all_of,
    exceeds,
    first_interval,
    join_names,
    level_for,
    marked,
    mean_and_interval,
    mean_evidence,
    rounded,
)
from vesalius.explanations.claims.laboratory import FIRST_LOOK
from vesalius.explanations.claims.reading import MIN_CUT_EFFECT, MIN_MASS
from vesalius.explanations.natural.claims import Inhibits, LensOnly, ReadsRole
from vesalius.explanations.natural.composition import PORT_WORDS, AttentionPort, HeadPaths
from vesalius.explanations.natural.deciding import LOSSES, below
from vesalius.explanations.natural.instruments import END
from vesalius.explanations.natural.movers import BacksUp, MovesRole, Primary, Together
from vesalius.explanations.natural.selection import MIN_ATTENTION_LOSS
from vesalius.explanations.natural.study import SINKS, PerPrompt, Study, finite
from vesalius.explanations.natural.token_roles import MEANINGS, everywhere_in, random_keys, shuffled

#: Under this name the prediction of a claim of this module stands in its record: typed claims have kinds of the same
#: name that are decided by other experiments.
MEASURED = "measured"
#: Direct logit attribution below this share of the clean score does not count as writing the answer; as for effects.
MIN_LENS = MIN_EFFECT
#: A component acts at the answer position if more than this part of its effect arises there.
MOST = 0.5
#: Matched components whose joint replacement is a control of a group.
GROUP_CONTROLS = 2
LEVEL = level_for(1)
#: Replacements that know nothing of the prompt.
Neutral = Literal["zero", "mean"]
NEUTRAL: dict[Neutral, str] = {"zero": "zeros", "mean": "its mean"}


def meaning(role: str) -> str:
    """A token role as a phrase."""
    return MEANINGS.get(role, f"{role} (from the answer position)")


def necessary(study: Study, component: Component) -> ClaimRecord:
    """Replacing it, by whatever value, costs more than replacing matched components does."""
    return check(Necessary(component=str(component)), study.lab)


def not_needed_alone(study: Study, component: Component, necessity: ClaimRecord, *, moves: bool) -> ClaimRecord | None:
    """Zeros, or else its mean, at every position in its place cost neither score nor right answers. None where the
    score alone shows that they do, or the component is necessary by others and its role does not depend on these: it
    does where the component was shown to move a role or to back up others (`moves`).
    """
    shown = {one.experiment: one for one in necessity.evidence}
    for how in NEUTRAL:
        score = shown.get(f"{how} replacement")
        if score is not None:
            most = score.high
        elif moves and shows_early(study.lab, component, how) is None:
            level = 1 - ALPHA / len(study.lab.replacements)
            most = rounded(mean_and_interval(study.lab.effect([component], how), level, seed=study.lab.seed)[2])
        else:
            continue
        if most is not None and most < MIN_EFFECT:
            return not_needed_by(study, component, how)
    return None


def not_needed_by(study: Study, component: Component, how: Neutral) -> ClaimRecord:
    """The same for one kind of replacement."""
    evidence: list[Evidence] = []
    verdicts: list[Verdict] = []
    for measure, lost in zip(LOSSES, study.tools.losses([component], how), strict=True):
        one = mean_evidence(
            study.lab,
            f"{how} replacement",
            measure=measure,
            values=lost,
            level=LEVEL,
            rule=f"interval below {MIN_EFFECT:.3f}",
        )
        verdicts.append(below(one, MIN_EFFECT))
        evidence.append(marked(one, verdicts[-1]))
    text = f"{component} is not needed alone: {NEUTRAL[how]} at every position in its place cost next to nothing."
    return _claim("not_needed_alone", text, all_of(*verdicts), *evidence, replacement=how)


def inhibits(study: Study, component: Component) -> ClaimRecord:
    """Replacing it helps, and more than replacing matched components does."""
    claim = Inhibits(component=str(component))
    verdict, evidence = claim.examine(study.lab, level=LEVEL)
    return _claim(claim.kind, claim.text, verdict, *evidence)


def attends(study: Study, head: Component) -> ClaimRecord | None:
    """Most of its attention lies on the hypothesised role, more than other heads' and more than on shuffled keys."""
    role, target = study.selection.looks_at.get(head), study.target(head)
    if role is None or target is None:
        return None
    if role in SINKS:  # all heads of a layer may attend to BOS, so the control is the key next to it
        controls = {"the key after it": study.mass(head, target.roll(1, -1))}
    else:
        controls = {f"other heads of layer {head.layer}": _other_heads(study, head, target)}
    if role not in ("previous", *SINKS):
        controls["places of another prompt"] = study.mass(head, shuffled(target))
    if role in ("induction", "duplicate"):
        without_copy = target & ~everywhere_in(study.pool, study.pool.prompts.counterfactual)[role]
        mass = masses(study.pool.source_pattern(head.layer)[:, [head.head]], without_copy)[:, 0]
        controls["same places, no copy there"] = finite(mass)
    controls = {name: values for name, values in controls.items() if len(values)}
    bar = _bar(MIN_MASS, controls)
    evidence = _figure(study, "attention", f"mass on {role}", study.mass(head, target), bar)
    text = f"{head} attends mostly to {meaning(role)}."
    return _claim("attends", text, above(evidence, bar.value), evidence, role=role)


def uses(study: Study, head: Component) -> ClaimRecord | None:
    """Removing the keys of its role from its attention costs more than removing as many others."""
    role, target = study.selection.looks_at.get(head), study.target(head)
    if role is None or role in SINKS or target is None:
        return None
    inputs, asked = HeadPaths(study.pool, head), target.any(-1)

    def lost(keys: Target, n: int | None = None) -> PerPrompt:
        z = inputs.z_without_keys(keys)
        return study.pool.head_effects(head, [z], positions=asked, n=n)[:, 0] / study.pool.scale

    def controls() -> dict[str, PerPrompt]:
        other = random_keys(target, study.pool, seed=study.lab.seed)
        first = lost(other, FIRST_LOOK) if study.lab.looks_first else None
        settled = first is not None and first_interval(first)[1] < MIN_CUT_EFFECT
        return {"as many other keys": first if first is not None and settled else lost(other)}

    experiment = f"{role} keys cut out of the attention"
    verdict, evidence = _against(study, experiment, "effect", lost(target), MIN_CUT_EFFECT, controls)
    return _claim("uses", f"{head} uses what it finds at {meaning(role)}.", verdict, evidence, role=role)


def reads_previous(study: Study, head: Component) -> ClaimRecord:
    """The typed claim of a previous-token head."""
    return check(ReadsFrom(component=str(head), offset=1), study.lab)


def acts_at_answer(study: Study, component: Component) -> ClaimRecord:
    """More than half of its effect arises at the answer position."""
    text = f"{component} acts mostly at the answer position."
    return _mostly(study, component, study.at_answer(component), "acts_at_answer", "at the answer position only", text)


def acts_directly(study: Study, component: Component) -> ClaimRecord:
    """More than half of its effect comes from its direct path to the logits."""
    text = f"{component} acts mostly on the logits directly, not through later components."
    return _mostly(
        study, component, study.direct(component), "acts_directly", "on the direct path to the logits only", text
    )


def _mostly(study: Study, component: Component, part: PerPrompt, kind: str, where: str, text: str) -> ClaimRecord:
    whole = study.solo(component)
    evidence = mean_evidence(
        study.lab,
        f"replacement {where}",
        measure="its effect minus half of the whole effect",
        values=part - MOST * whole,
        level=LEVEL,
        rule="interval above 0",
        bar=0.0,
        controls={f"effect {where}": rounded(part.mean()), "whole effect": rounded(whole.mean())},
    )
    return _claim(kind, text, above(evidence, 0.0), evidence)


def writes_answer(study: Study, component: Component) -> ClaimRecord:
    """What it writes favours the answer directly, more than what matched components write."""
    controls = {str(c): study.lens(c) for c in study.lab.matched(component)}
    controls["answers of another prompt"] = study.lens(component, shuffle=True)
    bar = _bar(MIN_LENS, controls)
    values = study.lens(component)
    evidence = _figure(study, "logit lens on its output", "direct logit attribution, share of the score", values, bar)
    return _claim(
        "writes_answer", f"What {component} writes favours the answer by itself.", above(evidence, bar.value), evidence
    )


def covers(study: Study, component: Component) -> ClaimRecord | None:
    """With the rest of its group replaced, it matters more than alone and more than matched components do."""
    rest = [c for c in study.group(component).members if c != component]
    return covers_for(study, component, rest) if rest else None


def covers_for(study: Study, component: Component, rest: Sequence[Component]) -> ClaimRecord:
    """The same for a group that is given: `rest` are its other members. The gain is that of `bounded_gain`."""
    joint, without = study.lab.effect([*rest, component], "resample"), study.lab.effect(rest, "resample")
    measure, values = bounded_gain(study.gain(component, rest), joint=joint, without=without)
    experiment = f"replacement with and without {join_names(rest)}"
    text = f"{component} covers for {join_names(rest)}: it matters more once they are replaced."

    def controls() -> dict[str, PerPrompt]:
        matched = study.lab.matched(component, exclude=rest)[:GROUP_CONTROLS]
        study.lab.measure([[*one, c] for c in matched for one in ([], rest)], ["resample"])
        return {f"{c} instead": study.gain(c, rest) for c in matched}

    verdict, evidence = _against(study, experiment, measure, values, MIN_EFFECT, controls)
    return _claim("covers", text, verdict, evidence, others=list(map(str, rest)))


def backup_of(study: Study, component: Component) -> ClaimRecord | None:
    """The typed claim that it is a backup of the strongest other member of its group."""
    rest = [c for c in study.group(component).members if c != component]
    primary = max(rest, key=lambda c: study.selection.effect.get(c, 0.0), default=None)
    if primary is None:
        return None
    return check(BackupOf(component=str(component), primary=str(primary), replacement="resample"), study.lab)


def group_claims(study: Study, head: Component) -> list[tuple[str, ClaimRecord]]:
    """Which roles a head moves to the answer position, what it backs up, and whether it is the primary one or matters
    together with others; each with the role it is about. What a backup reads and moves is asked with the heads zeroed
    that it stands behind.
    """
    groups, name, lab = study.selection.groups, str(head), study.lab
    roles, backups = groups.moves.get(head, ()), groups.backups.get(head, ())
    found = [(role, check(MovesRole(component=name, role=role), lab, tried=len(roles))) for role in roles]
    moved = [role for role, claim in found if claim.verdict == "supported"]
    for role, of in backups:
        others = tuple(map(str, of))
        backup = BacksUp(component=name, of=others, replacement="zero", at=END)
        found.append((role, check(backup, lab, tried=len(backups))))
        if found[-1][1].verdict != "supported":
            continue
        if role not in moved:
            then = MovesRole(component=name, role=role, suppressed=others)
            found.append((role, check(then, lab, tried=len(roles) + len(backups))))
        reads = ReadsRole(component=name, role=role, suppressed=others)
        found.append((role, check(reads, lab, tried=len(backups))))
    for role, members in groups.members.items():
        rest = tuple(str(member) for member in members if member != head)
        leader = groups.primary.get(role)
        if leader is not None and leader.head == head:
            claim = Primary(component=name, role=role, over=rest, replacement=leader.how)
            found.append((role, check(claim, lab)))
        if members[0] == head and any(backup.role == role for backup in backups):
            found.append((role, check(Together(component=name, others=rest, replacement="zero", at=END), lab)))
    return found


def lens_only(study: Study, component: Component) -> ClaimRecord:
    """The typed claim that the logit lens shows it and no replacement costs anything."""
    return check(LensOnly(component=str(component)), study.lab)


def composes(study: Study, head: Component, port: AttentionPort, sender: Component) -> ClaimRecord | None:
    """The sender writes the head's queries or keys: without its path the attention leaves its target."""
    target = study.target(head)
    if target is None:
        return None
    inputs = HeadPaths(study.pool, head)
    neighbours = _neighbours(study, sender, head)
    controls = {str(c): finite(inputs.mass_lost(c, port, target)) for c in neighbours}
    bar = _bar(MIN_ATTENTION_LOSS, controls, shown=3)
    lost = finite(inputs.mass_lost(sender, port, target))
    attention = _figure(
        study, f"path into the {PORT_WORDS[port]} replaced", "attention that leaves the target", lost, bar
    )
    effect = mean_evidence(
        study.lab,
        f"path into the {PORT_WORDS[port]} replaced",
        measure="effect",
        values=study.reported_path(sender, head, port),
        level=LEVEL,
        rule="reported; the verdict rests on the attention",
    )
    role = study.selection.looks_at[head] or ""
    text = f"{sender} makes the {PORT_WORDS[port]} by which {head} finds {meaning(role)}."
    said = {"sender": str(sender), "port": port, "role": role}
    return _claim("composes", text, above(attention, bar.value), attention, effect, **said)


def feeds(study: Study, sender: Component, receiver: Component) -> ClaimRecord:
    """The path between two components matters, more than the path from a neighbour of the sender. Which input of a head
    it goes by is reported where it does.
    """
    sign = _sign(study, sender, receiver)
    whole, verdict = _whole_path(study, sender, receiver)
    ports = [
        mean_evidence(
            study.lab,
            f"path into the {PORT_WORDS[port]} replaced",
            measure=f"effect by its {PORT_WORDS[port]}",
            values=study.reported_path(sender, receiver, port),
            level=LEVEL,
            rule="reported; the verdict rests on the whole path",
        )
        for port in ("qkv" if receiver.is_head and verdict == "supported" else "")
    ]
    kind, harm = ("feeds", "") if sign > 0 else ("hinders", ", against the answer")
    text = f"{sender} feeds {receiver} directly{harm}."
    return _claim(kind, text, verdict, whole, *ports, receiver=str(receiver))


def shows_ports(study: Study, sender: Component, receiver: Component) -> bool:
    """Whether the path into a head matters, so that its inputs are measured one by one."""
    return receiver.is_head and _whole_path(study, sender, receiver)[1] == "supported"


def _whole_path(study: Study, sender: Component, receiver: Component) -> tuple[Evidence, Verdict]:
    sign, control = _sign(study, sender, receiver), path_control(study, sender, receiver)

    def controls() -> dict[str, PerPrompt]:
        return {} if control is None else {str(control): sign * study.control_path(control, receiver, sign=sign)}

    measure, values = "effect" if sign > 0 else "gain", sign * study.path(sender, receiver)
    verdict, whole = _against(study, "path replaced", measure, values, MIN_CUT_EFFECT, controls)
    return whole, verdict


def _sign(study: Study, sender: Component, receiver: Component) -> float:
    """1 where the path was found to help, else -1."""
    return 1.0 if study.selection.paths[sender, receiver] >= 0 else -1.0


def path_control(study: Study, sender: Component, receiver: Component) -> Component | None:
    """A neighbour of the sender that is not under study, as a control."""
    neighbours = [c for c in _neighbours(study, sender, receiver) if c not in study.selection.components]
    order = torch.randperm(len(neighbours), generator=torch.Generator().manual_seed(study.lab.seed + sender.layer))
    return neighbours[int(order[0])] if neighbours else None


def _neighbours(study: Study, sender: Component, receiver: Component) -> list[Component]:
    """Other heads of the sender's layer, or MLPs of nearby layers, that come before the receiver."""
    distance = 0 if sender.is_head else 2
    return [
        c
        for c in study.pool.model.components
        if c.is_head == sender.is_head
        and c != sender
        and abs(c.layer - sender.layer) <= distance
        and c.layer < receiver.layer
    ]


def _other_heads(study: Study, head: Component, target: Target) -> PerPrompt:
    """Mean attention of the layer's other heads on a target."""
    mass = masses(study.pool.pattern(head.layer), target)
    others = [h for h in range(mass.shape[1]) if h != head.head]
    return finite(mass[:, others].mean(1)) if others else mass[:0, 0]


def _bar(least: float, controls: dict[str, PerPrompt], *, shown: int | None = None) -> Bar:
    """The least that counts, or the largest control, as the record has it; `shown` is how many controls that keeps,
    largest first.
    """
    reached = {name: rounded(values.mean()) for name, values in controls.items() if len(values)}
    means = {name: mean for name, mean in reached.items() if mean is not None}
    if shown is not None:
        means = dict(sorted(means.items(), key=lambda item: -item[1])[:shown])
    strongest = max(means, key=lambda name: means[name], default=None)
    if strongest is None or means[strongest] <= least:
        return Bar(least, "the least that counts", {**means})
    return Bar(means[strongest], f"the control: {strongest}", {**means})


def _against(
    study: Study,
    experiment: str,
    measure: str,
    values: PerPrompt,
    least: float,
    controls: Callable[[], dict[str, PerPrompt]],
) -> tuple[Verdict, Evidence]:
    """The verdict of values against the least that counts and the controls, which are measured only where the values
    exceed the least that counts.
    """
    shows = exceeds(values, least, level=LEVEL, seed=study.lab.seed)
    bar = _bar(least, controls() if shows else {})
    evidence = _figure(study, experiment, measure, values, bar)
    return above(evidence, bar.value), evidence


def _figure(study: Study, experiment: str, measure: str, values: PerPrompt, bar: Bar) -> Evidence:
    return mean_evidence(
        study.lab,
        experiment,
        measure=measure,
        values=values,
        level=LEVEL,
        rule=bar.rule,
        bar=bar.value,
        controls=bar.controls,
    )


def _claim(kind: str, text: str, verdict: Verdict, *evidence: Evidence, **said: Any) -> ClaimRecord:
    """The record of a claim of this module; `said` is what `measured_again` needs beside its kind and component."""
    return ClaimRecord(
        kind=kind, text=text, verdict=verdict, evidence=evidence, prediction=FrozenDict({MEASURED: said})
    )
