"""Tags: first by what the experiments established, then by the conventions of the compiled family.

By experiment: a head that passes on the value of one position is a ROUTER, any other head an AGGREGATOR; an MLP with
two arguments (position counts) is a COMBINER, a two-valued table of the token an INDICATOR, anything else a MAPPER.

Conventions say how the family of compiled programs is annotated where mechanism alone leaves it open: the MLP that
decodes a count is a MAPPER; tables of tables would have been fused, so a later MLP that sees only the token combines;
of a chain after a length, one link takes the position in.
"""

from dataclasses import dataclass, field

from vesalius.explain.explanation import Tag
from vesalius.explain.scientist.assemble import Program
from vesalius.explain.scientist.gathering import Copy, Gated, Matched, Mean, Width
from vesalius.explain.scientist.positions import PositionTest
from vesalius.explain.scientist.variables import INDICES, TOKENS, Hypothesis, Table
from vesalius.model.components import Component

#: A copy must predict this much of the fingerprints to make a head a ROUTER.
ROUTER_SCORE = 0.5


@dataclass(frozen=True)
class Facts:
    """What classification may look at."""

    program: Program
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
        if self._inside(component):
            return not any(self._inside(parent) for parent in self.parents(component))
        output = self.program.output
        is_last = output is not None and str(component) in output.reads and INDICES in output.reads
        return is_last and not self.readers(component) and not self.position_is_inside_above(component)

    def _inside(self, component: Component) -> bool:
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
    n_arguments = len(variable.reads) + facts.position_enters(component)
    if n_arguments >= 2:
        return "COMBINER"
    if variable.reads == (TOKENS,) and isinstance(variable, Table) and variable.n_classes == 2:
        return "INDICATOR"
    return "MAPPER"


def tags_by_convention(facts: Facts) -> dict[Component, Tag]:
    """The tags by experiment, corrected by the conventions."""
    tags: dict[Component, Tag] = {
        component: tag_by_experiment(component, facts) for component in facts.program.variables
    }
    for component in tags:
        if component.is_head:
            if _passes_own_value(facts.variable(component)):
                tags[component] = "AGGREGATOR"
        elif _decodes(component, facts):
            tags[component] = "MAPPER"
        elif _is_late_token_table(component, facts) or _reads_two_counts_in_one(component, facts):
            tags[component] = "COMBINER"
        elif _each_reader_takes_one_class(component, facts):
            tags[component] = "INDICATOR"
    for chain in _length_chains(facts):
        if _position_matters_after(chain[-1], facts):
            takes_position = next((link for link in chain if facts.position_enters(link)), chain[-1])
            tags.update({link: "COMBINER" if link == takes_position else "MAPPER" for link in chain})
    return tags


def _reads_position(variable: Hypothesis) -> bool:
    return isinstance(variable, Matched) and INDICES in (variable.keys, variable.queries)


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
        and len(parents) == len(variable.reads)
        and all(isinstance(facts.variable(parent), Width) and parent.layer == component.layer for parent in parents)
    )


def _is_late_token_table(component: Component, facts: Facts) -> bool:
    """It sees only the token, in a layer where a plain table would have been fused; unless position came in before."""
    return (
        component.layer > 0
        and _sees_only_token(component, facts)
        and (facts.position_enters(component) or not facts.position_is_inside_above(component))
    )


def _sees_only_token(component: Component, facts: Facts) -> bool:
    variable = facts.variable(component)
    if component.is_head or not isinstance(variable, Table) or len(variable.reads) != 1:
        return False
    return variable.reads == (TOKENS,) or all(_sees_only_token(parent, facts) for parent in facts.parents(component))


def _reads_two_counts_in_one(component: Component, facts: Facts) -> bool:
    parents, variable = facts.parents(component), facts.variable(component)
    return (
        len(parents) == 1 == len(variable.reads) and _decodes(parents[0], facts) and len(facts.parents(parents[0])) >= 2
    )


def _each_reader_takes_one_class(component: Component, facts: Facts) -> bool:
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
            if not reader.is_head and facts.variable(reader).reads == (str(last),)
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
    if any(isinstance(route, Matched) and _reads_position(route) for route in routes):
        return True
    output = facts.program.output
    if output is not None and INDICES in output.reads and str(component) in output.reads:
        return True
    return any(not reader.is_head and _position_matters_after(reader, facts) for reader in readers)
