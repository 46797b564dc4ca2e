"""Interventions on every component of a circuit at the last token: the figures that roles are annotated from.

All of them are on the same prompts, which the model answers correctly, so that the clean accuracy is 1.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vesalius.api.looking import instruments
from vesalius.behaviours.behaviour import TooFewPrompts
from vesalius.behaviours.performance import draw_counted
from vesalius.behaviours.registry import behaviour_of
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import END, How, NaturalLab
from vesalius.explanations.laboratory.answers import answer_readout
from vesalius.explanations.natural.instruments import MOST_SETS, Instruments
from vesalius.intervene import Readout
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius_bench.study.documents import Localisation
from vesalius_bench.study.evidence import CircuitEvidence, ComponentEvidence, PruningStep, Suppressed
from vesalius_bench.study.targets import TargetLens

ZERO, MEAN, CAMA = "zero", "mean", "token mean"
#: Heads that are pruned one after another: the work grows with the square of their number.
MOST_PRUNED = 24
#: Fewer prompts than this that a model answers correctly are too few for any figure.
LEAST_RIGHT = 4
#: Passes of all prompts that the interventions on one component take: replaced in three ways, five edges cut, patched
#: from runs with three other operands; and what of this is done again for each head that is zeroed before.
PASSES, SUPPRESSED_PASSES = 11, 7
DIGITS = 4


def usable_prompts(specimen: Specimen, n: int, *, seed: int) -> tuple[int, int]:
    """How many prompts, at most `n`, can be had that the model answers correctly, and how many were drawn for them."""
    vocabulary = specimen.vocabulary
    assert isinstance(vocabulary, TextVocabulary)
    while True:
        try:
            source = behaviour_of(specimen)
            prompts, drawn = draw_counted(source, specimen.model, vocabulary.tokenizer, n, seed=seed, split="test")
        except TooFewPrompts as few:
            if few.n < LEAST_RIGHT:
                raise
            n = min(n - 1, few.n)
        else:
            return len(prompts), drawn


def measured_evidence(
    specimen: Specimen, localisation: Localisation, *, n: int, seed: int, drawn: int | None = None
) -> CircuitEvidence:
    """The interventions on each component of a circuit; `drawn` is how many prompts were drawn for the `n`."""
    tools = instruments(specimen, n=n, seed=seed)
    names = list(localisation.components)
    heads = [name for name in names if Component.parse(name).is_head]
    operands = [role for role in tools.prompts.roles if role != END]
    accuracy = {how: _accuracies(tools, names, how) for how in (ZERO, MEAN, CAMA)}
    attention = tools.attention(heads) if heads else {}
    keys = list(tools.lab.keys_of(tools.lab.place(END))) if heads else []
    cuts = {role: _cut(tools.lab, heads, role) for role in keys}
    patched = {role: figures for role in operands if (figures := Patched.of(tools.lab, names, role)) is not None}
    lens, shown = tools.lens(names), TargetLens(specimen, tools.lab, seed=seed)
    groups = localisation.backup_groups
    alone, suppressed = _backups(tools, groups), _suppressed(tools, groups, operands)
    parts = [
        ComponentEvidence(
            component=name,
            zeroed=accuracy[ZERO][name],
            mean_ablated=accuracy[MEAN][name],
            cama_ablated=accuracy[CAMA][name],
            **_attended(attention.get(name, {}), operands, len(tools.prompts)),
            cut={role: by_head[name] for role, by_head in cuts.items() if name in by_head},
            moved={role: one.moved[name] for role, one in patched.items()},
            switched={role: one.switched[name] for role, one in patched.items()},
            exchanged={role: one.exchanged for role, one in patched.items()},
            margin={role: (one.before, one.after[name]) for role, one in patched.items()},
            gain={role: one.gain[name] for role, one in patched.items()},
            lens_answer=lens[name]["answer"][0],
            **shown.of(name),
            **alone.get(name, {}),
            suppressed=suppressed.get(name, ()),
        )
        for name in names
    ]
    steps = tools.prune(heads[:MOST_PRUNED], how=ZERO, at=END) if heads else []
    return CircuitEvidence(
        n=len(tools.prompts),
        components=tuple(parts),
        pruning=tuple(PruningStep(component=step["replaced"], accuracy=step["accuracy"]) for step in steps),
        drawn=drawn,
        controls=shown.controls(names),
        no_targets=shown.no_targets,
    )


def _each(
    names: Sequence[str], call: Callable[[Sequence[Sequence[str]]], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What an instrument says about each component alone."""
    sets = [[name] for name in names]
    return [one for start in range(0, len(sets), MOST_SETS) for one in call(sets[start : start + MOST_SETS])]


def _accuracies(tools: Instruments, names: Sequence[str], how: How, suppressed: Sequence[str] = ()) -> dict[str, float]:
    replaced = _each(names, partial(tools.replace, how=how, at=END, suppressed=suppressed))
    return {name: one["accuracy"] for name, one in zip(names, replaced, strict=True)}


def _cut(lab: NaturalLab, heads: Sequence[str], role: str, suppressed: Sequence[Component] = ()) -> dict[str, float]:
    """The accuracy without each head's attention from the last token to one place."""
    runs = {name: lab.cut([Component.parse(name)], role, END, suppressed)[1] for name in heads}
    return {name: _mean(run.right) for name, run in runs.items()}


def _attended(by_role: Mapping[str, dict[str, Any]], operands: Sequence[str], n: int) -> dict[str, Any]:
    """Where a head attends from the last token; nothing of an MLP."""
    if not by_role:
        return {}
    masses = {role: one["mass"][0] for role, one in by_role.items()}
    return {
        "attention": masses,
        "top_key": {role: round(one["top"] * n) for role, one in by_role.items()},
        "operand_mass": round(sum(masses.get(role, 0.0) for role in operands), DIGITS),
    }


# A component's output from a run with another operand, patched into the clean run.


class Patched:
    """What that does for each component: how often the answer becomes that run's, the margin of that answer over the
    clean one before and after, what its logit gains, and how far the margin moves as a share of the whole run's way.
    """

    def __init__(self, lab: NaturalLab, names: Sequence[str], role: str, suppressed: Sequence[Component] = ()) -> None:
        source = lab.corrupted(role)
        sets = [[], *([Component.parse(name)] for name in names)]
        recordings = lab.runs.recordings.read_as(_rival_logits(lab, lab.clean_answers.token, source.whole.token))
        values = source.outputs(suppressed, lab.place(END))
        runs = lab.edited(sets, values, at=END, suppressed=suppressed, read_by=recordings)
        before, *after = runs
        differs = source.differs
        self.before, self.exchanged = _mean(before.margin[differs]), int(differs.sum())
        shares = source.moved.shares(before, after)
        self.switched, self.moved, self.after, self.gain = {}, {}, {}, {}
        for name, (switched, moved), run in zip(names, shares, after, strict=True):
            self.switched[name], self.moved[name] = _mean(switched), _mean(moved)
            self.after[name] = _mean(run.margin[differs])
            self.gain[name] = _mean((run.score - before.score)[differs])

    @classmethod
    def of(
        cls, lab: NaturalLab, names: Sequence[str], role: str, suppressed: Sequence[Component] = ()
    ) -> "Patched | None":
        """The same; None where no answer changes with the operand."""
        try:
            return cls(lab, names, role, suppressed)
        except BadInput:
            return None


def _rival_logits(lab: NaturalLab, own: Tensor, rival: Tensor) -> Readout:
    """Answers whose `score` is the logit of the other run's answer, and whose margin is that over the clean answer."""
    readout = answer_readout(lab.runs, own=own, rival=rival)

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        read = readout.score(logits, prompt)[:, :4].clone()
        rows = torch.arange(len(logits), device=logits.device)
        read[:, 0] = logits[rows, 0, rival.to(logits.device)[prompt]]
        return read

    return Readout(score, readout.at, unit="logits")


def _mean(values: Tensor) -> float:
    return round(float(values.float().mean()), DIGITS)


# Heads that stand in for each other.


def _backups(tools: Instruments, groups: Sequence[Sequence[str]]) -> Mapping[str, dict[str, Any]]:
    """For each head, the accuracy with the others of its first group zeroed, and with all of it zeroed."""
    backups: dict[str, dict[str, Any]] = {}
    for group in groups:
        without = [[other for other in group if other != head] for head in group]
        *alone, whole = (one["accuracy"] for one in tools.replace([*without, list(group)], how=ZERO, at=END))
        for head, others, rest in zip(group, without, alone, strict=True):
            backups.setdefault(head, {"others": tuple(others), "once_others_zeroed": (rest, whole)})
    return backups


def _suppressed(
    tools: Instruments, groups: Sequence[Sequence[str]], operands: Sequence[str]
) -> dict[str, tuple[Suppressed, ...]]:
    """For each head of a group, what it does once the strongest head is zeroed, the two strongest, and so on."""
    found: dict[str, tuple[Suppressed, ...]] = {}
    for group in groups:
        for count in range(1, len(group)):
            without, weaker = list(group[:count]), list(group[count:])
            gone = [Component.parse(name) for name in without]
            before, zeroed = tools.replace([without], how=ZERO, at=END)[0], _accuracies(tools, weaker, ZERO, without)
            cuts = {role: _cut(tools.lab, weaker, role, gone) for role in operands}
            patched = {role: one for role in operands if (one := Patched.of(tools.lab, weaker, role, gone)) is not None}
            for name in weaker:
                then = Suppressed(
                    without=tuple(without),
                    before=before["accuracy"],
                    zeroed=zeroed[name],
                    cut={role: by_head[name] for role, by_head in cuts.items()},
                    gain={role: one.gain[name] for role, one in patched.items()},
                )
                found[name] = (*found.get(name, ()), then)
    return found
