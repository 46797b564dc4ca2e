"""What a claim says about other components: the inputs it names, and whether they carry what it takes them for.

"L1_MLP computes f of L0H0" is tested with the program's variable L0H0, a function of the input. If the claim that the
head L0H0 carries this variable fails, the sentence about L1_MLP may still hold of the variable, which then reaches it
by another way or in another form, but not of the head. The rule, for every author of claims: a supported claim whose
named input is not itself supported, by the rule of `computes` in the same program, keeps its verdict, and its sentence
says that the name stands for the variable of the program and what became of the claim about the component.

The inputs' own claims are decided at the level of a single claim: whatever is refuted however many were tried is
refuted at that level too.
"""

from collections.abc import Mapping

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.explanations.claims.aggregating import Aggregates
from vesalius.explanations.claims.base import Claim, level_for
from vesalius.explanations.claims.dependence import Combines, DependsOnlyOn, IndependentOf
from vesalius.explanations.claims.interchange import Computes, examine_program, expression_of
from vesalius.explanations.claims.laboratory import Lab
from vesalius.explanations.claims.reading import Copies
from vesalius.rasp import Program, Variable

INPUT = "the claim about an input that the sentence names"
Carriers = Mapping[str, tuple[str, ...]]


def unsupported_inputs(claim: Claim, lab: Lab, carriers: Carriers) -> tuple[Evidence, ...]:
    """One piece of evidence for each component whose variable the claim names and whose own claim is not supported.

    `carriers` says what the components of the claim's program carry, where the claim itself does not.
    """
    if isinstance(claim, Computes | Aggregates):
        program, carriers = claim.hypothesis.program, claim.hypothesis.carriers
        owners = _owners(carriers)
        named = _nearest(program, claim.hypothesis.carried_by(claim.component), owners)
    elif isinstance(claim, Combines | DependsOnlyOn | IndependentOf | Copies):
        program = claim.program
        carriers = claim.carriers if isinstance(claim, Combines) and claim.carriers else carriers
        owners, named = _owners(carriers), _variables(claim)
    else:
        return ()
    limiting = []
    for variable in dict.fromkeys(named):
        owner = owners.get(variable)
        if owner is None or owner == claim.component:
            continue
        verdict, evidence = examine_program(lab, Component.parse(owner), program, carriers[owner], level=level_for(1))
        if verdict != "supported":
            limiting.append(_evidence(owner, variable, verdict, evidence))
    return tuple(limiting)


def input_words(evidence: tuple[Evidence, ...]) -> str:
    """What the sentence of a claim adds about the inputs it names."""
    return "".join(f" {one.experiment}" for one in evidence if one.measure == INPUT)


def _evidence(owner: str, variable: str, verdict: Verdict, evidence: tuple[Evidence, ...]) -> Evidence:
    """The figure that decided the input's claim, under the sentence that limits this one."""
    decided = next((one for one in reversed(evidence) if one.passed is not True), evidence[-1])
    said = f"Here {variable} means the variable of the program: the claim that {owner} carries it is {verdict}."
    return decided.model_copy(
        update={"experiment": said, "measure": INPUT, "controls": {}, "outcome": verdict, "passed": None}
    )


def _variables(claim: Combines | DependsOnlyOn | IndependentOf | Copies) -> tuple[str, ...]:
    if isinstance(claim, Copies):
        return (claim.variable,)
    return (claim.variable, *claim.given) if isinstance(claim, IndependentOf) else claim.variables


def _owners(carriers: Carriers) -> dict[str, str]:
    """The component of each variable; the head of a count carries the count."""
    owners = {variable.removesuffix("_head"): name for name, carried in carriers.items() for variable in carried}
    return owners | {variable: name for name, carried in carriers.items() for variable in carried}


def _nearest(program: Program, carried: tuple[str, ...], owners: Mapping[str, str]) -> list[str]:
    """The variables nearest below the carried ones that some component carries."""
    nearest: list[str] = []
    nodes = [operand for name in carried for operand in expression_of(program, name).inputs]
    for node in nodes:  # grows while it is read
        name = program.name_of(node) if isinstance(node, Variable) else ""
        if name in owners and name not in carried:
            nearest.append(name)
        else:
            nodes += [operand for operand in node.inputs if operand not in nodes]
    return nearest
