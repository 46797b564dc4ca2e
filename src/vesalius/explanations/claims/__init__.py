"""The catalogue of claims: one class a kind, each with its experiment, its controls and a verdict by rule.

    lab = CircuitLab(specimen)
    record = check(Necessary(component="L0_MLP"), lab)
    idea = Hypothesis(program=program, carriers={"L0_MLP": ("is_x",), "L1H2": ("share",)})
    record = check(Computes(component="L0_MLP", hypothesis=idea), lab, tried=3)

A claim predicts what an experiment must show if the claim is true; `check` runs the experiment. The verdict follows
from the evidence by rule, never from the opinion of the claim's author.

A record holds what the claim says beside its kind and component (its *prediction*), so that the same claim can be
tested again: `claim_data` reads it, `claim_from` makes the claim, `check` runs its class. Programs are large and shared
by many claims, so a record holds their digest, and they are taken from the explanation's executable if that is the same
one.

A claim may name other components as its inputs. "L1_MLP computes f of L0H0" is tested with the program's variable L0H0,
a function of the input. If the claim that the head L0H0 carries this variable fails, the sentence about L1_MLP may
still hold of the variable, which then reaches it by another way or in another form, but not of the head. So a supported
claim whose named input is not itself supported, by the rule of `computes` in the same program at the level of a single
claim, keeps its verdict, and its sentence says that the name stands for the variable and what became of the claim about
the component.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from vesalius.components import Component
from vesalius.documents.claims import TOO_CLOSE
from vesalius.documents.explanation import ClaimRecord, Evidence, Executable, Verdict
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims.attending import ONE_PLACE, Attends, Composes, ReadsRole, Uses
from vesalius.explanations.claims.base import Claim, Hypothesis, Outcome, level_for, may_decide
from vesalius.explanations.claims.dependence import Combines, DependsOnlyOn, IndependentOf
from vesalius.explanations.claims.interchange import Computes, examine_program, expression_of
from vesalius.explanations.claims.joint import BackupOf, Redundant, Sufficient, Together
from vesalius.explanations.claims.mlps import Carries, FewNeurons, LooksUp, NeedsInput
from vesalius.explanations.claims.moved import scoped
from vesalius.explanations.claims.movers import MovesRole, Primary
from vesalius.explanations.claims.necessary import Inhibits, Necessary, NotNeededAlone, SmallPart
from vesalius.explanations.claims.paths import (
    ActsAt,
    ActsAtAnswer,
    ActsDirectly,
    Feeds,
    Hinders,
    LensOnly,
    Suppresses,
    WritesAnswer,
)
from vesalius.explanations.claims.reading import BESIDE, Aggregates, Copies, ReadsFrom
from vesalius.explanations.laboratory import CircuitLab, Lab, NaturalLab
from vesalius.explanations.laboratory.answers import NothingChanges
from vesalius.rasp import Program, Variable
from vesalius.rasp.document import to_document
from vesalius.values import JsonObject

__all__ = [
    "KINDS",
    "ActsAt",
    "ActsAtAnswer",
    "ActsDirectly",
    "Aggregates",
    "Attends",
    "BackupOf",
    "Carries",
    "Claim",
    "Combines",
    "Composes",
    "Computes",
    "Copies",
    "DependsOnlyOn",
    "Feeds",
    "FewNeurons",
    "Hinders",
    "Hypothesis",
    "IndependentOf",
    "Inhibits",
    "LensOnly",
    "LooksUp",
    "MovesRole",
    "Necessary",
    "NeedsInput",
    "NotNeededAlone",
    "Primary",
    "ReadsFrom",
    "ReadsRole",
    "Redundant",
    "SmallPart",
    "Sufficient",
    "Suppresses",
    "Together",
    "Uses",
    "WritesAnswer",
    "check",
    "claim_data",
    "claim_from",
    "digest",
    "kinds_in",
    "worded",
]

#: Every kind of claim by its name.
KINDS: dict[str, type[Claim]] = {
    kind.model_fields["kind"].default: kind
    for kind in (
        ActsAt,
        ActsAtAnswer,
        ActsDirectly,
        Aggregates,
        Attends,
        BackupOf,
        Carries,
        Combines,
        Composes,
        Computes,
        Copies,
        DependsOnlyOn,
        Feeds,
        FewNeurons,
        Hinders,
        IndependentOf,
        Inhibits,
        LensOnly,
        LooksUp,
        MovesRole,
        Necessary,
        NeedsInput,
        NotNeededAlone,
        Primary,
        ReadsFrom,
        ReadsRole,
        Redundant,
        SmallPart,
        Sufficient,
        Suppresses,
        Together,
        Uses,
        WritesAnswer,
    )
}
PROGRAM, HYPOTHESIS = "program", "hypothesis"
#: Where on so many prompts no answer depends on a token, none is looked for on more.
MOST_WITHOUT_CHANGE = 16
#: Fields that a record has of its own, and those that stand as digests.
_ELSEWHERE = {"kind", "component", PROGRAM, HYPOTHESIS}


def kinds_in(laboratory: type[Lab]) -> dict[str, type[Claim]]:
    """The kinds of claim that a laboratory can test."""
    return {name: kind for name, kind in KINDS.items() if issubclass(laboratory, kind.tested_in)}


#: What can be claimed about circuits of a finite vocabulary, and about natural models.
CIRCUIT_KINDS, NATURAL_KINDS = kinds_in(CircuitLab), kinds_in(NaturalLab)


def claim_from(data: Any, kinds: Mapping[str, type[Claim]] = KINDS) -> Claim:
    """Read a claim of one of these kinds from JSON data, as `claim.model_dump(mode="json")` writes it."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise BadInput(
            f"claim cannot be read: kind {kind!r:.40} does not exist; the kinds are {choices(sorted(kinds))}"
        )
    try:
        return kinds[kind].model_validate(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "claim"
        raise BadInput(f"claim cannot be read: {where}: {' '.join(first['msg'].split())}") from None


def check(
    claim: Claim, lab: Lab, *, tried: int = 1, carriers: Mapping[str, tuple[str, ...]] | None = None
) -> ClaimRecord:
    """Run a claim's experiment, in a growing laboratory on more and more prompts until it is decided. `tried` counts
    the claims of this kind tried on the component, including this one: the more claims, the wider every interval of the
    rule. `carriers` says which variables of the claim's program each component carries, for claims without a
    hypothesis: inputs that they name are then checked as well.
    """
    claim.tested_in.require(lab, claim.kind)
    verdict, evidence = _until_decided(claim, lab, level=level_for(tried))
    if verdict == "undecided" and not any(one.n for one in evidence):
        verdict = "untested"  # there was no case to test it on
    if verdict == "supported":
        evidence += unsupported_inputs(claim, lab, carriers or {})
    text = worded(claim.text, verdict, evidence)
    return ClaimRecord(
        kind=claim.kind,
        text=text,
        verdict=verdict,
        evidence=evidence,
        tried=tried,
        prediction=prediction_of(claim),
    )


def _until_decided(claim: Claim, lab: Lab, *, level: float) -> Outcome:
    """The claim's outcome at the first look that decides it, or at the last one that may."""
    outcome: Outcome = "undecided", ()
    for look in lab.looks():
        try:
            outcome = claim.examine(look, level=level)
        except NothingChanges:
            if look.n >= MOST_WITHOUT_CHANGE:
                raise
            continue
        if outcome[0] != "undecided" or not may_decide(outcome[1], look):
            break
    verdict, evidence = outcome
    return verdict, tuple(_called(one) if verdict == "undecided" else one for one in evidence)


def _called(evidence: Evidence) -> Evidence:
    """Open evidence of several looks with the word for it."""
    open_ = evidence.passed is None and evidence.bar is not None and evidence.outcome is None
    return evidence.model_copy(update={"outcome": TOO_CLOSE}) if open_ and evidence.low is not None else evidence


def worded(text: str, verdict: Verdict, evidence: tuple[Evidence, ...]) -> str:
    """A claim's sentence, no wider than what its evidence covers."""
    text = scoped(text, evidence, verdict=verdict)
    if verdict != "supported":
        return text
    if any(one.outcome == BESIDE for one in evidence):
        text += " It carries something beside: swaps where this value is equal change outputs too."
    if any(one.outcome == ONE_PLACE for one in evidence):
        text += f" That is {ONE_PLACE}, so that it may attend to the position alone."
    return text + input_words(evidence)


def prediction_of(claim: Claim) -> JsonObject:
    """What a record holds of a claim."""
    data = claim.model_dump(mode="json", exclude=_ELSEWHERE, exclude_defaults=True)
    if (program := getattr(claim, PROGRAM, None)) is not None:
        data[PROGRAM] = digest(to_document(program))
    if (hypothesis := getattr(claim, HYPOTHESIS, None)) is not None:
        data[HYPOTHESIS] = digest([to_document(hypothesis.program), hypothesis.carriers])
    return data


def claim_data(record: ClaimRecord, component: str, executable: Executable | None, *, builtin: bool) -> JsonObject:
    """The claim of a record as `claim_from` reads it.

    Records of earlier versions hold no prediction: that a component is necessary needs none, and the built-in scientist
    claims `computes` and `aggregates` of its executable.
    """
    prediction = record.prediction
    if prediction is None and record.kind == "necessary":
        prediction = {}
    elif prediction is None and builtin and executable is not None and record.kind in ("computes", "aggregates"):
        prediction = {HYPOTHESIS: digest([executable.program, executable.carriers])}
    if prediction is None:
        why = (
            "explain again with this version"
            if builtin
            else "it rests on code or on a judgement of the scientist, or on an earlier version: choose one that the "
            "engine decided, or explain again"
        )
        raise BadInput(f"the claim {record.kind!r:.40} about {component} was saved without its prediction; {why}")
    given: dict[str, object] = {}
    for name in (PROGRAM, HYPOTHESIS):
        if name not in prediction:
            continue
        program = None if executable is None else plain(executable.program)
        carriers = None if executable is None else plain(executable.carriers)
        if prediction[name] != digest(program if name == PROGRAM else [program, carriers]):
            raise BadInput("the claim is about another program than the one that the explanation holds; explain again")
        given[name] = program if name == PROGRAM else {"program": program, "carriers": carriers}
    return {**prediction, **given, "kind": record.kind, "component": component}


def digest(data: object) -> str:
    """Sixteen digits that differ where the JSON data do."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def plain(data: object) -> Any:
    """Frozen data as JSON has them."""
    return json.loads(json.dumps(data))


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
    lab, limiting = CircuitLab.require(lab, claim.kind), []
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
