"""Tags: by what the experiments established, by the conventions of the compiled family, and by the component's claims.

By experiment: a head that passes on the value of one position is a ROUTER, any other head an AGGREGATOR; an MLP with
two arguments (position counts) is a COMBINER, a table of the token that has two values, or tells each of its readers
only whether the token is in a set, is an INDICATOR, anything else a MAPPER.

Conventions say how the family of compiled programs is annotated where mechanism alone leaves it open: the MLP that
decodes a count is a MAPPER; tables of tables would have been fused, so a later MLP that sees only the token, or only
the result of another MLP of two arguments, combines, and so does one that sees only the table of a gathered value which
was found to hold the position; of a chain after a length, one link takes the position in.

The published rule tags a component by how its program is written, and a program may be written in more than one way
that computes the same. So where a convention decides, both readings are kept, with the convention's rule in words. A
tag never contradicts a supported claim of its own component (`contradictions`): where the convention's does, the tag is
the other reading.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Tag
from vesalius.explanations.claims.moved import FIXED
from vesalius_programs.gathering import Copy, Gated, Gathered, Mean, Width
from vesalius_programs.program import INDICES, TOKENS, CircuitProgram, Hypothesis, Table
from vesalius_programs.yardstick import PositionTest

#: A copy must predict this much of the fingerprints to make a head a ROUTER.
ROUTER_SCORE = 0.5


@dataclass(frozen=True)
class Facts:
    """What classification may look at."""

    program: CircuitProgram
    scores: dict[Component, float]
    positions: dict[Component, PositionTest] = field(default_factory=dict)

    def variable(self, component: Component) -> Hypothesis:
        """The variable found for a component."""
        return self.program.variables[component]

    def parents(self, component: Component) -> list[Component]:
        """Components whose variables this one reads."""
        reads = self.variable(component).reads
        return [other for other in self.program.variables if str(other) in reads]

    def readers(self, component: Component) -> list[Component]:
        """Components that read this one's variable."""
        return [other for other in self.program.variables if str(component) in self.variable(other).reads]

    def position_enters(self, component: Component) -> bool:
        """Position becomes part of the variable here: inside it, and inside none of its parents'."""
        if self._reads_position(component) or self._inside(component):
            return not any(self._reads_position(parent) or self._inside(parent) for parent in self.parents(component))
        output = self.program.output
        is_last = output is not None and str(component) in output.reads and INDICES in output.reads
        return is_last and not self.readers(component) and not self.position_is_inside_above(component)

    def _reads_position(self, component: Component) -> bool:
        return INDICES in self.variable(component).reads

    def _inside(self, component: Component) -> bool:
        # A moved activation that follows its old position; positions at which nothing shows are weaker evidence, since
        # a later reader may be the one that does not look there.
        return component in self.positions and self.positions[component].is_inside

    def position_is_inside_above(self, component: Component) -> bool:
        """Position was found inside something this component reads, directly or not."""
        return any(self._inside(parent) or self.position_is_inside_above(parent) for parent in self.parents(component))


def tag_by_experiment(component: Component, facts: Facts) -> Tag:
    """The tag that measurements alone support."""
    variable = facts.variable(component)
    if component.is_head:
        passes_on = variable.family in ("copy", "gated") or (variable.family == "match" and _reads_position(variable))
        return "ROUTER" if passes_on and facts.scores[component] > ROUTER_SCORE else "AGGREGATOR"
    if variable.family == "nothing":
        return "MAPPER"
    n_arguments = len(_arguments(variable)) + facts.position_enters(component)
    if n_arguments >= 2:
        return "COMBINER"
    return _table_of_token(component, facts)


def _table_of_token(component: Component, facts: Facts) -> Tag:
    """The tag of a table of one argument."""
    variable = facts.variable(component)
    if not isinstance(variable, Table) or _arguments(variable) != (TOKENS,):
        return "MAPPER"
    two_valued = variable.n_classes == 2 or _each_reader_takes_one_class(component, facts)
    return "INDICATOR" if two_valued else "MAPPER"


@dataclass(frozen=True)
class Reading:
    """A tag, and the convention that decides it, in words; without one experiments decide."""

    tag: Tag
    rule: str = ""


def tags_by_convention(facts: Facts) -> dict[Component, Reading]:
    """The tags by experiment, corrected by the conventions."""
    readings = {component: Reading(tag_by_experiment(component, facts)) for component in facts.program.variables}
    for component, plain in readings.items():
        reading = _of_head(component, facts) if component.is_head else _of_mlp(component, facts)
        readings[component] = reading or plain
    for chain in _length_chains(facts):
        if _position_matters_after(chain[-1], facts):
            takes_position = next((link for link in chain if facts.position_enters(link)), chain[-1])
            rule = f"of the chain of tables after the length, {takes_position} takes the position in"
            readings |= {link: Reading("COMBINER" if link == takes_position else "MAPPER", rule) for link in chain}
    return readings


def _of_head(component: Component, facts: Facts) -> Reading | None:
    if not _passes_own_value(facts.variable(component)):
        return None
    return Reading("AGGREGATOR", "a head that hands a value on in place selects it by value, not by position")


def _of_mlp(component: Component, facts: Facts) -> Reading | None:
    if _decodes(component, facts):
        return Reading("MAPPER", "an MLP that decodes counts of its own layer is a table, of however many counts")
    if _holds_two_maps(component, facts):
        return Reading("MAPPER", "an MLP that reads two heads and is combined later holds one table for each")
    if _is_late_token_table(component, facts):
        return Reading("COMBINER", "a second table of the token would be fused with the first, so it combines two")
    if _combines_parts(component, facts):
        return Reading("COMBINER", "a table of one result would be fused with it, so it combines two parts of it")
    if any(_hands_on_gathered(parent, component, facts) for parent in facts.parents(component)):
        return Reading("COMBINER", "the position that its input was found to hold comes in here")
    if _leaves_position_to_reader(component, facts):
        return Reading(_table_of_token(component, facts), "the position it was found to hold comes in at its reader")
    return None


#: What a kind of component may be.
_MLP_TAGS: tuple[Tag, ...] = ("MAPPER", "COMBINER")
_HEAD_TAGS: tuple[Tag, ...] = ("ROUTER", "AGGREGATOR")


def contradictions(
    tag: Tag, component: Component, reads: Sequence[str], claims: Sequence[ClaimRecord]
) -> tuple[str, ...]:
    """The supported claims of a component that its tag contradicts, as sentences.

    A table of one argument is not a COMBINER, and one of two is neither MAPPER nor INDICATOR; a head that copies from a
    place is a ROUTER, one that counts or averages is not. A claim that holds at a fixed position only leaves open
    whether the position is an argument.
    """
    against = []
    for claim in claims:
        if claim.verdict != "supported":
            continue
        if component.is_head:
            wrong = tag == "AGGREGATOR" and claim.kind == "copies"
        else:
            fewest, most = _arguments_claimed(claim, str(component), reads)
            wrong = fewest >= 2 if tag in ("MAPPER", "INDICATOR") else tag == "COMBINER" and most == 1
        if wrong:
            against.append(claim.text)
    return tuple(against)


def agreeing_tag(
    readings: Sequence[Tag], component: Component, reads: Sequence[str], claims: Sequence[ClaimRecord]
) -> Tag:
    """The first of some readings, or else of all tags of the kind, that no supported claim contradicts."""
    every: tuple[Tag, ...] = (*readings, *(_HEAD_TAGS if component.is_head else _MLP_TAGS))
    for tag in every:
        if not contradictions(tag, component, reads, claims):
            return tag
    return readings[0]


def _arguments_claimed(claim: ClaimRecord, own: str, reads: Sequence[str]) -> tuple[float, float]:
    """The fewest and the most arguments that a claim about an MLP leaves it; any number where it says nothing."""
    given = (claim.prediction or {}).get("variables", ())
    if claim.kind == "combines":
        return 2, 2
    if claim.kind == "computes":
        given = reads
    elif claim.kind != "depends_only_on" or own in given:
        return 0, math.inf
    if claim.text.startswith(FIXED):
        given = [name for name in given if name != INDICES]
        return len(given) if claim.kind == "computes" else 0, math.inf if len(given) < 2 else len(given)
    return len(given) if claim.kind == "computes" else 0, len(given)


def _arguments(variable: Hypothesis) -> tuple[str, ...]:
    """What a variable reads, the position left out."""
    return tuple(name for name in variable.reads if name != INDICES)


def _reads_position(variable: Hypothesis) -> bool:
    return isinstance(variable, Gathered) and variable.uses_position


def _passes_own_value(variable: Hypothesis) -> bool:
    """A derived value handed on in place selects by value, not by position."""
    return isinstance(variable, Gated) or (
        isinstance(variable, Copy) and variable.route == "self" and variable.of != TOKENS
    )


def _decodes(component: Component, facts: Facts) -> bool:
    """It reads only counts of heads in its own layer."""
    parents, variable = facts.parents(component), facts.variable(component)
    return (
        bool(parents)
        and len(parents) == len(_arguments(variable))
        and all(isinstance(facts.variable(parent), Width) and parent.layer == component.layer for parent in parents)
    )


def _is_late_token_table(component: Component, facts: Facts) -> bool:
    """It sees only the token, in a layer where a plain table would have been fused; after another of its kind only if
    no position was found inside, since a table of what combines token and position is a table.
    """
    if component.layer == 0 or not _sees_only_token(component, facts):
        return False
    follows_another = any(_is_late_token_table(parent, facts) for parent in facts.parents(component))
    return not follows_another or not facts.position_is_inside_above(component)


def _leaves_position_to_reader(component: Component, facts: Facts) -> bool:
    """A table of the token or of one gathered value, found to hold the position, whose reader can combine it with
    nothing else: there it comes in.
    """
    readers = [reader for reader in facts.readers(component) if not reader.is_head]
    if _arguments(facts.variable(component)) == (TOKENS,):
        return any(_is_late_token_table(reader, facts) for reader in readers)
    return any(_hands_on_gathered(component, reader, facts) for reader in readers)


def _hands_on_gathered(component: Component, reader: Component, facts: Facts) -> bool:
    """An MLP reads one head and the position, and its reader, an MLP too, reads it alone: two tables one after the
    other would have been fused, so the position comes in at the second. Decoded counts are not fused.
    """
    parents = facts.parents(component)
    return (
        not component.is_head
        and not reader.is_head
        and _arguments(facts.variable(reader)) == (str(component),)
        and [parent.is_head for parent in parents] == [True]
        and len(_arguments(facts.variable(component))) == 1
        and facts.position_enters(component)
        and not _decodes(component, facts)
    )


def _sees_only_token(component: Component, facts: Facts) -> bool:
    variable = facts.variable(component)
    if component.is_head or not isinstance(variable, Table) or len(_arguments(variable)) != 1:
        return False
    return _arguments(variable) == (TOKENS,) or all(
        _sees_only_token(parent, facts) for parent in facts.parents(component)
    )


def _combines_parts(component: Component, facts: Facts) -> bool:
    """It reads one MLP only, and that one has two arguments: a table of its result would have been part of it, so it
    holds two variables that are combined here.
    """
    parents = facts.parents(component)
    return (
        len(parents) == 1 == len(_arguments(facts.variable(component)))
        and not parents[0].is_head
        and len(_arguments(facts.variable(parents[0]))) >= 2
    )


def _holds_two_maps(component: Component, facts: Facts) -> bool:
    """It reads two heads of its own layer, and its only reader combines its parts: one table for each head."""
    parents, readers = facts.parents(component), facts.readers(component)
    return (
        len(parents) == 2 == len(_arguments(facts.variable(component)))
        and all(parent.is_head and parent.layer == component.layer for parent in parents)
        and len(readers) == 1
        and not readers[0].is_head
        and _combines_parts(readers[0], facts)
    )


def _each_reader_takes_one_class(component: Component, facts: Facts) -> bool:
    """Heads read it, and each only asks whether its value is in one set: what it tells each of them is yes or no."""
    readers, variable = facts.readers(component), facts.variable(component)
    return (
        bool(readers)
        and variable.reads == (TOKENS,)
        and all(
            isinstance(reads := facts.variable(reader), Mean)
            or (isinstance(reads, Width) and reads.selector.kind == "constant")
            for reader in readers
        )
    )


def _is_length(variable: Hypothesis) -> bool:
    return isinstance(variable, Width) and variable.selector.kind == "all"


def _length_chains(facts: Facts) -> list[list[Component]]:
    """MLPs that follow a decoded length one after another, each reading only the one before."""
    chains = []
    for component in facts.program.variables:
        parents = facts.parents(component)
        if len(parents) != 1 or not _is_length(facts.variable(parents[0])) or not _decodes(component, facts):
            continue
        chain, last = [], component
        while following := [
            reader
            for reader in facts.readers(last)
            if not reader.is_head and _arguments(facts.variable(reader)) == (str(last),)
        ]:
            last = following[0]
            chain.append(last)
        if chain:
            chains.append(chain)
    return chains


def _position_matters_after(component: Component, facts: Facts) -> bool:
    """Some later reader uses the position together with this variable."""
    readers = facts.readers(component)
    routes = [facts.variable(reader) for reader in readers if reader.is_head]
    if any(isinstance(route, Copy) and route.by == str(component) and not route.anywhere for route in routes):
        return True
    if any(_reads_position(route) for route in routes):
        return True
    output = facts.program.output
    if output is not None and INDICES in output.reads and str(component) in output.reads:
        return True
    return any(not reader.is_head and _position_matters_after(reader, facts) for reader in readers)
