"""What a component reads, by exchanging its inputs: who is wired to whom.

Two components may hold the same value on every input. Then no choice among natural inputs can tell which of them a
third one reads, for where the value of one is equal, so is that of the other. So the component's inputs are exchanged
path by path (`laboratory.inputs`): what is named is held, and everything else is varied, one by one and together. A set
of senders *fits* if nothing changes while it is held and all others are varied together. A *wiring* is a set that fits
where none of fewer senders does. Several wirings may fit, as where a component takes what two of three say: then all of
them are listed, and none is called the wiring. All sets of few senders are tried; of larger ones only that of all
senders that break something by themselves. If none of these fits, what the component reads is not decided.

One thing is not varied freely: what a held value is computed from. A trained component often reads a value together
with the token that it was made from, because one takes off what the other adds, and a token that goes with the value of
another token occurs nowhere. Such a sender is varied only where the held value stays equal, which is what the model
has, and a sender that is varied by itself is varied together with what it is made from, as far as that is not held.
Senders of which neither is made from the other have no such excuse, and are varied everywhere.

The position is the same on both sides of an exchange in place, so these experiments say nothing about it; moved outputs
do (`moved`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import torch
from jaxtyping import Bool
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.documents.view import join_names
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims.base import rounded, share_interval_at
from vesalius.explanations.laboratory import CircuitLab
from vesalius.explanations.laboratory.inputs import TOKENS, PathsInto
from vesalius.rasp import Aggregate, Expression, Program, SelectorWidth, Variable

#: Inputs that must stay the same while what is named is held, and inputs that must change when it is exchanged.
MIN_STAYS, MIN_CHANGES = 0.97, 0.05
#: The share of inputs from which a path counts as read, and the most senders of which all sets are tried.
READ, MOST_HELD = 1 - MIN_STAYS, 3
#: All components that the program says nothing about, exchanged together.
OTHERS = "all other components"
INDICES = "indices"
HELD = "share of inputs whose outputs all stay while the named inputs are held"
EXCHANGED = "share of inputs whose outputs all stay when the named inputs are exchanged"
#: The outcome where several sets of inputs fit.
SEVERAL = "several wirings fit"
#: The outcome where no set fits of those that are tried; `wirings` then has none.
NONE = "no wiring was found"
#: The output as a receiver.
OUTPUT = "output"
Carriers = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Wiring:
    """Senders that fit, as few as any that do, each with the share of inputs that change if it is not held as well."""

    strengths: Mapping[str, float]

    @property
    def senders(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.strengths)


#: The wirings of every component, and of the output, by name.
Wired = Mapping[str, tuple[Wiring, ...]]


class Reader:
    """One receiver (None: the output) of a program's values, and what is known of its inputs."""

    def __init__(self, lab: CircuitLab, receiver: Component | None, program: Program, carriers: Carriers) -> None:
        self.lab, self.receiver, self.program = lab, receiver, program
        self.carriers = {str(Component.parse(name)): carried for name, carried in carriers.items()}
        self.paths = PathsInto(lab, receiver)
        self._equal: dict[tuple[str, ...], Tensor] = {}

    @cached_property
    def senders(self) -> tuple[str, ...]:
        """The tokens, the components of the program that come before, and the others as one; not the position."""
        own = [name for name in self.paths.senders if name in self.carriers]
        others = [name for name in self.paths.senders if name not in (TOKENS, *own)]
        return (TOKENS, *own, *([OTHERS] if others else []))

    def changed(self, exchanged: Collection[str], *, freely: bool = False) -> Bool[Tensor, " pair"]:
        """Inputs that change when some senders are exchanged and all others are held; what a held value is computed
        from is exchanged only where that value is equal, unless `freely`.
        """
        names, where = self._exchange(exchanged, freely=freely)
        return self.paths.changed(names, where=where) if names else torch.zeros(self.paths.n, dtype=torch.bool)

    def _exchange(self, exchanged: Collection[str], *, freely: bool) -> tuple[list[str], dict[str, Tensor]]:
        """The senders by themselves, and the positions that some of them are limited to."""
        held = [name for name in self.senders if name not in exchanged]
        where: dict[str, Tensor] = {}
        names: list[str] = []
        for sender in exchanged:
            if sender == OTHERS:
                names += [name for name in self.paths.senders if name not in self.senders]
                continue
            names.append(sender)
            made = () if freely else self._made_from(sender, held)
            if made:
                where[sender] = self._where_equal(made)
        return names, where

    def breaks(self, exchanged: Collection[str], *, freely: bool) -> bool:
        """Whether more inputs change than a path may that is not read; see `changed`."""
        names, where = self._exchange(exchanged, freely=freely)
        return bool(names) and self.paths.changes_more(READ, names, where=where)

    def with_sources(self, sender: str, others: Collection[str]) -> list[str]:
        """A sender with those of `others` that its value is computed from; they are exchanged together."""
        return [name for name in others if name == sender or self._made_from(name, [sender])]

    def share(self, held: Collection[str]) -> float:
        """The share of inputs that change while some senders are held and all others are varied together: freely, or
        where that changes more, with what the held values are computed from only where these are equal.
        """
        rest = [name for name in self.senders if name not in held]
        free = float(self.changed(rest, freely=True).float().mean())
        return free if free <= READ else min(free, float(self.changed(rest).float().mean()))

    def fits(self, held: Collection[str]) -> bool:
        """Whether nothing changes while these are held and the others are varied together, as `share` has it."""
        rest = [name for name in self.senders if name not in held]
        return not (self.breaks(rest, freely=True) and self.breaks(rest, freely=False))

    def wirings(self) -> tuple[Wiring, ...]:
        """The sets of fewest senders that fit. Of more than `MOST_HELD`, only that of all senders that break something
        by themselves is tried; empty where it does not fit either.
        """
        for size in range(min(len(self.senders), MOST_HELD) + 1):
            fitting = [held for held in combinations(self.senders, size) if self.fits(held)]
            if fitting:
                return tuple(map(self._measured, fitting))
        needed = [name for name in self.senders if float(self.changed([name]).float().mean()) > READ]
        return (self._measured(needed),) if self.fits(needed) else ()

    def _measured(self, held: Collection[str]) -> Wiring:
        return Wiring({name: self.share([one for one in held if one != name]) for name in self.senders if name in held})

    def holding(self, variables: Sequence[str]) -> tuple[str, ...] | None:
        """The senders that hold these variables: those that carry them, and those that carry nothing but functions of
        them at the same position. None where a variable is the receiver's own, or no sender holds it.
        """
        own = () if self.receiver is None else self.carriers.get(str(self.receiver), ())
        held: list[str] = []
        for name in variables:
            owners = self._holders(name, own)
            if owners is None:
                return None
            held += owners
        known = {*variables, INDICES}
        for sender in self.senders:
            carried = self.carriers.get(sender, ())
            if carried and all(_is_function_of(self.program, name, known) for name in carried):
                held.append(sender)
        return tuple(name for name in self.senders if name in held)

    def _holders(self, name: str, own: Collection[str]) -> list[str] | None:
        if name == INDICES:
            return []
        if name == TOKENS:
            return [TOKENS]
        if name in own or f"{name}_head" in own:
            return None
        for sender in self.senders:
            if {name, f"{name}_head"} & set(self.carriers.get(sender, ())):
                return [sender]
        node = _nodes(self.program).get(name)
        if node is None or isinstance(node, Aggregate | SelectorWidth):
            return None
        held: list[str] = []
        for operand in node.inputs:
            owners = self._holders(self.program.name_of(operand), own) if isinstance(operand, Variable) else []
            if owners is None:
                return None
            held += owners
        return held

    def _made_from(self, sender: str, held: Collection[str]) -> tuple[str, ...]:
        """Variables carried by held senders that are computed from what this sender holds."""
        return tuple(name for one in held for name in self._made[sender, one])

    @cached_property
    def _made(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """For two senders the variables of the second that are computed from what the first holds."""
        above = {name: _upstream(self.program, name) for one in self.senders for name in self.carriers.get(one, ())}
        made: dict[tuple[str, str], tuple[str, ...]] = {}
        for sender in self.senders:
            own = {TOKENS} if sender == TOKENS else set(self.carriers.get(sender, ()))
            own |= {name.removesuffix("_head") for name in own}
            for one in self.senders:
                made[sender, one] = tuple(
                    name
                    for name in self.carriers.get(one, ())
                    if own & above[name] and not own & {name, name.removesuffix("_head")}
                )
        return made

    def _where_equal(self, variables: tuple[str, ...]) -> Bool[Tensor, "pair pos"]:
        if variables not in self._equal:
            base, source = self.lab.traces(self.program)
            equal = self.lab.real & self.lab.source_real
            for name in variables:
                name = name if name in base.values else name.removesuffix("_head")
                ours, theirs = base.values[name], source.values[name]
                same = (ours - theirs).abs() < 0.005 if ours.is_floating_point() else ours == theirs
                equal = equal & same
            self._equal[variables] = equal[: self.paths.n]
        return self._equal[variables]


def reader(lab: CircuitLab, receiver: Component | None, program: Program, carriers: Carriers) -> Reader:
    """The reader of a receiver; cached in the laboratory."""
    outcomes = lab.outcomes.setdefault(program, {})
    key = "reader", receiver, tuple(sorted(carriers.items()))
    if key not in outcomes:
        outcomes[key] = Reader(lab, receiver, program, carriers)
    return outcomes[key]


def wirings(lab: CircuitLab, receiver: Component | None, program: Program, carriers: Carriers) -> tuple[Wiring, ...]:
    """Every smallest set of senders of a receiver that fits; cached in the laboratory."""
    outcomes = lab.outcomes.setdefault(program, {})
    key = "wirings", receiver, tuple(sorted(carriers.items()))
    if key not in outcomes:
        outcomes[key] = reader(lab, receiver, program, carriers).wirings()
    return outcomes[key]


def read_alone(
    lab: CircuitLab,
    component: Component,
    program: Program,
    carriers: Carriers,
    variables: Sequence[str],
    *,
    level: float,
) -> tuple[Verdict, tuple[Evidence, ...]]:
    """Whether a component reads these variables and nothing else: what holds them is held and all else varied, each
    with what it is made from, and all together. Without evidence where nobody is said to hold them. The interval is
    that of the worst of these experiments, so its level is stricter by their number.
    """
    known = reader(lab, component, program, carriers)
    held = known.holding(variables)
    if held is None:
        return "supported", ()
    others = [name for name in known.senders if name not in held]
    together = known.changed(others)
    alone: dict[str, Bool[Tensor, " pair"]] = {}
    for name in others:
        exchanged = known.with_sources(name, others)
        alone[f"{name} alone" if exchanged == [name] else f"{name} and what it is made from"] = known.changed(exchanged)
    worst = max([together, *alone.values()], key=lambda changed: int(changed.sum()))
    low, high = share_interval_at(float((~worst).sum()), len(worst), 1 - (1 - level) / (1 + len(alone)))
    stays = float((~worst).float().mean())
    verdict: Verdict = "supported" if stays >= MIN_STAYS else "refuted" if high < MIN_STAYS else "undecided"
    names = join_names(held) if held else "nothing"
    controls = {label: rounded((~changed).float().mean()) for label, changed in alone.items()}
    first = Evidence(
        experiment=f"inputs of {component} exchanged path by path, {names} held",
        measure=HELD,
        value=rounded(stays),
        low=rounded(low),
        high=rounded(high),
        n=len(worst),
        controls={**controls, "all of them together": rounded((~together).float().mean())},
        rule=f">= {MIN_STAYS} with all others exchanged together, and with each and what it is made from",
        seed=lab.seed,
        passed={"supported": True, "refuted": False}.get(verdict),
    )
    if verdict != "supported":
        return verdict, (first,)
    return _matters(known, held, first, level=level)


def _matters(
    known: Reader, held: tuple[str, ...], first: Evidence, *, level: float
) -> tuple[Verdict, tuple[Evidence, ...]]:
    """The held inputs exchanged in their turn, and whether another wiring fits: one with an input that is not held."""
    changed = known.changed(held, freely=True)
    low, high = share_interval_at(float((~changed).sum()), len(changed), level)
    matters = high < 1 - MIN_CHANGES
    fitting = wirings(known.lab, known.receiver, known.program, known.carriers)
    beside = [one.senders for one in fitting if not set(one.senders) <= set(held)]
    outcome = SEVERAL if beside else None if fitting else NONE
    second = Evidence(
        experiment=f"{join_names(held) if held else 'nothing'} exchanged, all other inputs held"
        + (f"; these fit as well: {'; '.join(map(join_names, beside))}" if matters and beside else ""),
        measure=EXCHANGED,
        value=rounded((~changed).float().mean()),
        low=rounded(low),
        high=rounded(high),
        n=len(changed),
        controls={},
        rule=f"interval below {1 - MIN_CHANGES}, and no smallest set that fits has another input",
        seed=known.lab.seed,
        outcome=outcome if matters else None,
        passed=True if matters and outcome is None else None,
    )
    return "supported" if matters and outcome is None else "undecided", (first, second)


def _nodes(program: Program) -> dict[str, Variable]:
    return {program.name_of(node): node for node in program.expressions if isinstance(node, Variable)}


def _upstream(program: Program, name: str) -> set[str]:
    """Every variable that one is computed from, at any position."""
    nodes = _nodes(program)
    if name not in nodes and name.removesuffix("_head") not in nodes:
        raise BadInput(f"variable {name!r} is not in program {program.name!r}; it has {choices(nodes)}")
    found: set[str] = set()
    left: list[Expression] = [nodes[name] if name in nodes else nodes[name.removesuffix("_head")]]
    while left:
        for operand in left.pop().inputs:
            if isinstance(operand, Variable):
                if (its := program.name_of(operand)) in found:
                    continue
                found.add(its)
            left.append(operand)
    return found


def _is_function_of(program: Program, name: str, known: Collection[str]) -> bool:
    """Whether a variable is computed from these alone, at the same position."""
    if name in known or name.removesuffix("_head") in known:
        return True
    node = _nodes(program).get(name)
    if node is None or isinstance(node, Aggregate | SelectorWidth) or not node.inputs:
        return False
    return all(
        isinstance(operand, Variable) and _is_function_of(program, program.name_of(operand), known)
        for operand in node.inputs
    )
