"""Planted claims of the kinds beside `computes`, true and false, made from a program whose answer is known."""

from collections.abc import Iterator

from vesalius.components import Component
from vesalius.explanations.claims import (
    Aggregates,
    Claim,
    Combines,
    Copies,
    DependsOnlyOn,
    Hypothesis,
    IndependentOf,
    Necessary,
    ReadsFrom,
    Sufficient,
)
from vesalius.explanations.claims.interchange import expression_of
from vesalius.explanations.claims.rivals import rivals
from vesalius.explanations.laboratory import CircuitLab
from vesalius.rasp import Aggregate, Program, SelectorWidth, Variable, indices
from vesalius_truth.key import shows_across_positions

KINDS = (
    "aggregates",
    "combines",
    "copies",
    "depends_only_on",
    "independent_of",
    "necessary",
    "reads_from",
    "sufficient",
)
NEAR_MISS_SEED = 20_001
Carriers = dict[str, tuple[str, ...]]
#: A claim, what was changed, and whether it is true of the program.
Planted = tuple[Claim, str, bool]


def planted(program: Program, carriers: Carriers, component: Component, lab: CircuitLab) -> Iterator[Planted]:
    """Claims about one component."""
    name, own = str(component), carriers[str(component)]
    # A component that holds constants which the model keeps elsewhere does nothing, and the others do without it.
    empty = not shows_across_positions(lab.specimen.id, component)
    yield Necessary(component=name), "", not empty
    for other in lab.matched(component, k=1):
        yield Necessary(component=str(other)), f"instead of {name}", False
    yield Sufficient(component=name, components=tuple(carriers)), "", True
    if len(carriers) > 1:
        kept = tuple(part for part in carriers if part != name)
        yield Sufficient(component=kept[0], components=kept), f"without {name}", empty
    if len(own) != 1:
        return
    if component.is_head:
        yield from _about_head(program, carriers, name)
    else:
        yield from _about_table(program, name, own)


def _about_head(program: Program, carriers: Carriers, name: str) -> Iterator[Planted]:
    node = expression_of(program, carriers[name][0])
    if not isinstance(node, Aggregate | SelectorWidth):
        return
    yield Aggregates(component=name, hypothesis=Hypothesis(program=program, carriers=carriers)), "", True
    for rival in rivals(program, carriers[name], seed=NEAR_MISS_SEED, limit=2):
        idea = Hypothesis(program=rival.program, carriers=carriers)
        if isinstance(expression_of(rival.program, carriers[name][0]), Aggregate | SelectorWidth):
            yield Aggregates(component=name, hypothesis=idea), rival.label, False
    offset = _offset(program, node)
    if offset is None or not isinstance(node, Aggregate):
        return
    variable = program.name_of(node.values)
    for step in (0, -1, 1):
        change = f"{step:+d} position" if step else ""
        yield ReadsFrom(component=name, offset=offset + step), change, not step
        claim = Copies(component=name, program=program, variable=variable, offset=offset + step)
        yield claim, change, not step


def _offset(program: Program, node: Aggregate | SelectorWidth) -> int | None:
    """How far before the query the one selected key stands, if that is the same everywhere."""
    selector = node.selector
    if selector.keys is not indices or selector.queries is not indices:
        return None
    selected = program.tables.selected[selector]
    offsets = {int(query) - int(key) for key, query in zip(*selected.nonzero(), strict=True)}
    return offsets.pop() if len(offsets) == 1 else None


def _about_table(program: Program, name: str, own: tuple[str, ...]) -> Iterator[Planted]:
    node = expression_of(program, own[0])
    if isinstance(node, Aggregate | SelectorWidth):
        return
    arguments = tuple(dict.fromkeys(program.name_of(each) for each in node.inputs if isinstance(each, Variable)))
    plain = tuple(each for each in arguments if each != "indices")
    unrelated = [each for each in ("tokens",) if each not in _ancestors(program, own[0])]
    if plain:
        yield DependsOnlyOn(component=name, program=program, variables=arguments, carried=own), "", True
    if len(plain) == 2:
        for left_out in plain:
            kept = tuple(each for each in plain if each != left_out)
            claim = DependsOnlyOn(component=name, program=program, variables=kept, carried=own)
            yield claim, f"without {left_out}", False
            given = IndependentOf(component=name, program=program, variable=left_out, given=kept)
            yield given, f"of its argument {left_out}", False
        pair = plain[0], plain[1]
        yield Combines(component=name, program=program, variables=pair, carried=own), "", True
    if "tokens" not in plain and plain:
        independent = IndependentOf(component=name, program=program, variable="tokens", given=plain)
        yield independent, "", True
    for spurious in unrelated if len(plain) == 1 else []:
        claim = Combines(component=name, program=program, variables=(plain[0], spurious))
        yield claim, f"with {spurious}, which it does not read", False
    if len(plain) == 1 and plain != ("tokens",):
        claim = Combines(component=name, program=program, variables=(plain[0], "tokens"))
        if not unrelated:
            yield claim, "with the token, which it reads through its argument only", False


def _ancestors(program: Program, name: str) -> set[str]:
    """Every variable a variable is computed from, at any position."""
    found: set[str] = set()
    nodes = [expression_of(program, name)]
    while nodes:
        node = nodes.pop()
        for each in node.inputs:
            if isinstance(each, Variable):
                found.add(program.name_of(each))
                nodes.append(each)
            else:
                for operand in each.inputs:
                    if isinstance(operand, Variable):
                        found.add(program.name_of(operand))
                        nodes.append(operand)
    return found
