"""Interventions on every component of a circuit at the last token: the figures that reference roles are annotated from.

They are for the reader and the raters: no explainer sees them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from vesalius.api.measuring import instruments
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import END
from vesalius.explanations.natural.instruments import MOST_SETS, Instruments
from vesalius.model.specimen import Specimen
from vesalius_bench.study.documents import CircuitEvidence, ComponentEvidence, Localisation, PruningStep

ZERO = "zero"
#: Heads that are pruned one after another: the work grows with the square of their number.
MOST_PRUNED = 24


def measured_evidence(specimen: Specimen, localisation: Localisation, *, n: int, seed: int) -> CircuitEvidence:
    """The interventions on each component of a circuit."""
    tools = instruments(specimen, n=n, seed=seed)
    names = list(localisation.components)
    heads = [name for name in names if Component.parse(name).is_head]
    operands = [role for role in tools.prompts.roles if role != END]
    zeroed = _by_name(names, _each(names, partial(tools.replace, how=ZERO, at=END)))
    attention = tools.attention(heads) if heads else {}
    cuts = {role: _by_name(heads, _each(heads, partial(tools.cut_attention, role=role))) for role in operands}
    corrupted = {role: _by_name(names, _corrupted(tools, names, role)) for role in operands}
    lens, backups = tools.lens(names), _backups(tools, localisation.backup_groups)
    parts = [
        ComponentEvidence(
            component=name,
            zeroed=zeroed[name]["accuracy"],
            attention={role: one["mass"][0] for role, one in attention.get(name, {}).items()},
            cut={role: by_head[name]["accuracy"] for role, by_head in cuts.items() if name in by_head},
            moved={role: one[name]["moved"][0] for role, one in corrupted.items() if name in one},
            switched={role: one[name]["switched"][0] for role, one in corrupted.items() if name in one},
            lens_answer=lens[name]["answer"][0],
            lens_top_5=lens[name]["in_top_5"],
            **backups.get(name, {}),
        )
        for name in names
    ]
    steps = tools.prune(heads[:MOST_PRUNED], how=ZERO, at=END) if heads else []
    pruning = tuple(PruningStep(component=step["replaced"], accuracy=step["accuracy"]) for step in steps)
    return CircuitEvidence(n=len(tools.prompts), components=tuple(parts), pruning=pruning)


def _each(
    names: Sequence[str], call: Callable[[Sequence[Sequence[str]]], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What an instrument says about each component alone."""
    sets = [[name] for name in names]
    return [one for start in range(0, len(sets), MOST_SETS) for one in call(sets[start : start + MOST_SETS])]


def _corrupted(tools: Instruments, names: Sequence[str], role: str) -> list[dict[str, Any]]:
    """Each component patched from a run with another operand; nothing where no answer changes with it."""
    try:
        return _each(names, partial(tools.corrupt, role=role))
    except BadInput:
        return []


def _by_name(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return dict(zip(names, rows, strict=True)) if rows else {}


def _backups(tools: Instruments, groups: Sequence[Sequence[str]]) -> Mapping[str, dict[str, Any]]:
    """For each head of a backup group, the accuracy with the others zeroed, and with all zeroed."""
    backups: dict[str, dict[str, Any]] = {}
    for group in groups:
        without = [[other for other in group if other != head] for head in group]
        *alone, whole = (one["accuracy"] for one in tools.replace([*without, list(group)], how=ZERO, at=END))
        for head, others, rest in zip(group, without, alone, strict=True):
            backups[head] = {"others": tuple(others), "once_others_zeroed": (rest, whole)}
    return backups
