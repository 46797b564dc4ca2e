"""From what was found to claims that the laboratory decides, and from both to an `Explanation`.

The search chose its hypotheses on its own inputs; verdicts come from the laboratory only, on inputs that the search has
not used, by the rules of `explanations.claims`. Every component gets the claims its note rests on: whether it matters
at all, what it computes, and what follows from the kind of variable it carries, such as where a head reads or which
variables an MLP does not see.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import (
    SHOWN,
    ClaimRecord,
    ComponentExplanation,
    Evidence,
    Executable,
    Explanation,
    NamedOperation,
    Tag,
    Verdict,
)
from vesalius.documents.view import join_names
from vesalius.explanations.claims import (
    Aggregates,
    Claim,
    Combines,
    Computes,
    Copies,
    DependsOnlyOn,
    IndependentOf,
    Necessary,
    ReadsFrom,
    check,
    worded,
)
from vesalius.explanations.claims import Hypothesis as ClaimedProgram
from vesalius.explanations.claims.interchange import ELSEWHERE
from vesalius.explanations.claims.necessary import is_inert
from vesalius.explanations.claims.wiring import OTHERS, OUTPUT, Wired, wirings
from vesalius.explanations.laboratory import CircuitLab
from vesalius.rasp.text import render, render_variables
from vesalius.statistics import share_interval
from vesalius_programs.classify import (
    Facts,
    Reading,
    agreeing_tag,
    tag_by_experiment,
    tags_by_convention,
)
from vesalius_programs.gathering import Copy
from vesalius_programs.investigate import SearchState
from vesalius_programs.phrases import phrased
from vesalius_programs.program import INDICES, TOKENS, Hypothesis, Table
from vesalius_programs.standing_in import standing_in, stood_in_for
from vesalius_programs.translation import Translation, operation_reads, recorded_operation
from vesalius_programs.words import Names, information_flow, note, task_description, which_fit
from vesalius_programs.yardstick import FEWEST, FOLLOWS, MARGIN

#: Larger vocabularies are sampled, not enumerated.
LARGE_VOCABULARY = 400
#: Scores of the search are sums of products whose last bits depend on where arrays lie in memory; so many decimals are
#: the same in every repetition.
SCORE_DECIMALS = 3
#: Hypotheses that lost, as far as they are shown.
MOST_REFUTED = 8


@dataclass(frozen=True)
class Report:
    """Everything an explanation is made of. `exact` says per fresh input whether the program gave every output;
    `untold` why there is no translation, if there is none. Tags are read off the program before positions were moved
    into tables (`tagging`): by the conventions, the position counts where it is read. `alone` says of components that
    stand in for others what they do where these are silent.
    """

    investigation: SearchState
    facts: Facts
    tagging: Facts
    names: Names
    claims: dict[Component, tuple[ClaimRecord, ...]]
    exact: Bool[Tensor, " row"]
    translation: Translation | None
    untold: str
    seed: int
    wired: Wired
    alone: Mapping[Component, str] = field(default_factory=dict)

    def explanation(self) -> Explanation:
        """The whole document, but for the specimen's id and the time it took."""
        readings = tags_by_convention(self.tagging)
        return Explanation(
            specimen="specimen",
            scientist="builtin",
            components=tuple(
                self._component(component, readings[component]) for component in self.facts.program.variables
            ),
            information_flow=information_flow(self.facts, self.wired, self._necessary(), self._standing_in())
            + self._several_ways(),
            edges=self._edges(),
            task_description=self._task(),
            program=None if self.executable is None else render(self.executable.program),
            formula=self.formula,
            executable=self.executable,
            program_agreement=self._program_agreement(),
            seconds=0.0,
            seed=self.seed,
            rows=self.investigation.runs.rows,
        )

    @cached_property
    def executable(self) -> Executable | None:
        """The program that is shown and run."""
        return None if self.translation is None else self.translation.executable()

    @cached_property
    def formula(self) -> str | None:
        """The program with every variable substituted, where that is short."""
        if self.translation is None:
            return None
        found = self.translation
        return phrased(found.program, unseen=found.unseen, none_is_said=found.none_is_said)

    @property
    def agreement(self) -> float:
        """Share of fresh inputs on which the program gives every output."""
        return float(self.exact.float().mean())

    def _program_agreement(self) -> Evidence:
        low, high = share_interval(int(self.exact.sum()), len(self.exact))
        return Evidence(
            experiment="program against model on fresh inputs",
            measure="share of inputs with every output right",
            value=self.agreement,
            low=low,
            high=high,
            n=len(self.exact),
            rule="exact at 0.99 or more",
            seed=self.seed,
        )

    def _task(self) -> str:
        verdicts: dict[str, Verdict] = {str(part): self._verdict(part) for part in self.facts.program.variables}
        text = task_description(self.facts, self.names, self.agreement, verdicts, formula=self.formula)
        if all(self._verdict(component) != "supported" for component in self.facts.program.variables):
            text += " Nothing was established: no claim about what a component computes was supported."
        if wrong := self._refuted_where_it_fails():
            text += f" Refuted where the program fails: {join_names(wrong)}."
        if self.untold:
            text += f" The program could not be written so that it runs ({self.untold}), so its claims are untested."
        n = len(self.names.vocabulary.tokens)
        if n > LARGE_VOCABULARY:
            text += f" The vocabulary of {n} tokens was sampled, not enumerated: tokens not drawn are not covered."
        return text

    def _refuted_where_it_fails(self) -> list[str]:
        """The components whose claims are refuted in a failing program that is not wrong about all of them. Whether
        they make it fail was not tried: that would take the program with them put right.
        """
        claims = {part: one for part, own in self.claims.items() for one in own if one.kind == "computes"}
        spared = any(each.outcome == ELSEWHERE for one in claims.values() for each in one.evidence)
        return [str(part) for part, one in claims.items() if one.verdict == "refuted"] if spared else []

    def _necessary(self) -> set[Component]:
        """Components that were shown to matter."""
        return {
            component
            for component, claims in self.claims.items()
            if any(claim.kind == "necessary" and claim.verdict == "supported" for claim in claims)
        }

    def _standing_in(self) -> dict[Component, tuple[str, ...]]:
        return {part: others for part, claims in self.claims.items() if (others := stood_in_for(claims))}

    def _verdict(self, component: Component) -> Verdict:
        """That of what it computes; where no such claim could be made, nothing was tested."""
        for claim in self.claims[component]:
            if claim.kind == "computes":
                return claim.verdict
        return "untested"

    def _component(self, component: Component, convention: Reading) -> ComponentExplanation:
        variable, finding = self.facts.variable(component), self.investigation.findings[component]
        explained = variable.family != "nothing"
        claims = tuple(self._with_search(component, claim) for claim in self.claims[component])
        tags: tuple[Tag | None, Tag | None] = None, None
        if explained:
            by_experiment = tag_by_experiment(component, self.tagging)
            convention = convention if convention.tag != by_experiment else Reading(by_experiment)
            readings = convention.tag, by_experiment
            tags = agreeing_tag(readings, component, variable.reads, claims), by_experiment
        searched = Names(self.names.vocabulary, self.investigation.program)
        refuted = tuple(
            {"hypothesis": hypothesis.words(searched), "score": round(score, SCORE_DECIMALS)}
            for place, (score, hypothesis) in enumerate(finding.ranked)
            if place != finding.place
        )
        return ComponentExplanation(
            id=str(component),
            tag=tags[0],
            tag_by_experiment=tags[1],
            tag_by_convention=convention.tag if explained and convention.rule else None,
            note=note(component, self.facts, claims, self.names, self.wired)
            + self.alone.get(component, "")
            + (_both_readings(convention, tags) if explained else "")
            + self._left_open(str(component)),
            verdict=self._verdict(component),
            program=self._program(str(component)),
            family=None if variable.family == "nothing" else variable.family,
            reads=variable.reads,
            claims=claims,
            refuted=refuted[:MOST_REFUTED],
            table=self._table(variable),
            operation=self._operation(component),
        )

    def _left_open(self, name: str) -> str:
        """What a table does not say, for the note."""
        if self.translation is None or name not in self.translation.open:
            return ""
        unseen, n = self.translation.open[name]
        return f" Of the {n} combinations of its arguments {unseen} were never seen; the program leaves them open."

    def _operation(self, component: Component) -> NamedOperation | None:
        """The name of a supported table, or of the table of positions that a supported head looks up."""
        named = self.names.operations.get(str(component))
        if named is None or self._verdict(component) != "supported":
            return None
        return recorded_operation(
            named,
            text=self.names.words(str(component)),
            arguments=operation_reads(self.facts.variable(component)),
            claims=self.claims[component],
        )

    def _program(self, name: str) -> str | None:
        """The lines of the component's variable, from the program that is run."""
        if self.executable is None or name not in self.executable.carriers:
            return None
        carriers = self.executable.carriers
        others = [variable for other, carried in carriers.items() if other != name for variable in carried]
        return render_variables(self.executable.program, carriers[name], given=others)

    def _with_search(self, component: Component, claim: ClaimRecord) -> ClaimRecord:
        """What it computes also shows how the search came to it, and where position was found to enter."""
        if claim.kind != "computes":
            return claim
        finding, position = self.investigation.findings[component], self.tagging.positions.get(component)
        if finding.hypothesis.family == "nothing":
            return claim  # read off moved outputs, which the claim shows
        rivals = [score for score, _ in finding.ranked if score != finding.score]
        shown = Evidence(
            experiment="fingerprints, on the inputs of the search",
            measure="share of held-out fingerprint variance predicted",
            value=round(finding.score, SCORE_DECIMALS),
            low=None,
            high=None,
            n=len(finding.observations.row),
            controls={"strongest_other": round(max(rivals), SCORE_DECIMALS)} if rivals else {},
            rule="chooses among hypotheses",
            seed=self.seed,
            outcome=SHOWN,
        )
        evidence = [*claim.evidence, shown]
        if position is not None and position.n:
            moved = Evidence(
                experiment="activation moved to another position",
                measure="share of outputs that follow the old position",
                value=round(position.by_old, 4),
                low=None,
                high=None,
                n=position.n,
                controls={"follow_new_position": round(position.by_new, 4)},
                rule=f"inside above {FOLLOWS} and {MARGIN} above the control, n >= {FEWEST}; decides the tag alone",
                seed=self.seed,
                outcome=SHOWN,
            )
            evidence.append(moved)
        return claim.model_copy(update={"evidence": tuple(evidence)})

    def _table(self, variable: Hypothesis) -> dict[str, Any] | None:
        """The classes of a table, or where a tabulated route leads, by itself."""
        if isinstance(variable, Table):
            entries = {
                ", ".join(self.names.value(n, c) for n, c in zip(variable.reads, key, strict=True)): code
                for key, code in variable.codes.items()
            }
            return {"reads": list(variable.reads), "classes": entries}
        if isinstance(variable, Copy) and variable.by is not None:
            own = [] if variable.anywhere else ["indices"]
            places = {
                f"{value}" if variable.anywhere else f"{position}, {value}": place
                for (position, value), place in variable.table.items()
            }
            return {"reads": [*own, variable.by], "positions": places}
        return None

    def _edges(self) -> tuple[tuple[str, str, float], ...]:
        """Who reads whom, with the share of inputs that change where the sender is not held (of several wirings that
        fit, all). Exchanges in place say nothing of the position: it is drawn where the program reads it, with the
        reader's score. So is everything where no program could be run.
        """
        edges: list[tuple[str, str, float]] = []
        for component, variable in self.facts.program.variables.items():
            score = round(self.facts.scores[component], SCORE_DECIMALS)
            edges += self._into(str(component), variable.reads, score)
        output = self.facts.program.output
        return (*edges, *self._into(OUTPUT, output.reads if output else (), round(self.agreement, 4)))

    def _into(self, receiver: str, reads: Iterable[str], score: float) -> list[tuple[str, str, float]]:
        fitting = self.wired.get(receiver)
        if fitting is None:
            return [(name, receiver, score) for name in reads]
        strengths: dict[str, float] = {}
        for wiring in fitting:
            for sender, strength in wiring.strengths.items():
                strengths[sender] = max(strengths.get(sender, 0.0), strength)
        position = [(INDICES, receiver, score)] if INDICES in reads else []
        measured = [(name, receiver, round(strength, 4)) for name, strength in strengths.items() if name != OTHERS]
        return [*measured, *position]

    def _several_ways(self) -> str:
        """What components, or the output, read where more than one wiring fits, or none was found, for the text."""
        return "".join(
            f" What {'the output' if receiver == OUTPUT else receiver} reads is not decided: {which_fit(fitting)}."
            for receiver, fitting in self.wired.items()
            if len(fitting) != 1
        )


def _both_readings(convention: Reading, tags: tuple[Tag | None, Tag | None]) -> str:
    """Why the tag is not that by experiment, and the rule of the convention that applies; where the claims say
    otherwise, that the tag is not by it.
    """
    tag, by_experiment = tags
    text, by_rule = "", bool(convention.rule) and tag == convention.tag
    if tag != by_experiment:
        made = f"its supported claims make it a {tag}"
        if by_rule:
            made = f"the conventions of the compiled family make it a {tag}, which interchange cannot decide"
        text = f" By experiment alone it is a {by_experiment}; {made}."
    if by_rule:
        return f"{text} The rule of the convention: {convention.rule}."
    if not convention.rule:
        return text
    rule = f"{convention.rule[0].upper()}{convention.rule[1:]}"
    return f"{text} {rule}: by that convention it would be a {convention.tag}, which its own claims contradict."


def abstention(circuit: list[Component], reason: str, *, seed: int, rows: int) -> Explanation:
    """An explanation that says why there is none."""
    return Explanation(
        specimen="specimen",
        scientist="builtin",
        components=tuple(
            ComponentExplanation(
                id=str(component),
                tag=None,
                tag_by_experiment=None,
                note=f"Nothing is claimed about {component}: {reason}.",
                verdict="untested",
            )
            for component in circuit
        ),
        information_flow=f"Not measured: {reason}.",
        task_description=f"No hypothesis was supported: {reason}.",
        seconds=0.0,
        seed=seed,
        rows=rows,
    )


#: Routes that are one step for every position, by how far before the query the key stands.
_OFFSETS = {"self": 0, "previous": 1, "previous_but_one": 2, "next": -1, "next_but_one": -2}


@dataclass(frozen=True)
class ClaimJudge:
    """The laboratory, the program on trial, and how many hypotheses were tried on each component before it."""

    lab: CircuitLab
    translation: Translation | None
    facts: Facts
    tried: dict[Component, int]
    names: Names

    def records(self, component: Component) -> tuple[ClaimRecord, ...]:
        """Every claim about a component with its verdict; what it computes comes first, where anything was found."""
        variable = self.facts.variable(component)
        records: list[ClaimRecord] = []
        if self.translation is not None and str(component) in self.translation.carriers:
            for claim in self._about_variable(component, variable, self.translation):
                is_program = isinstance(claim, Computes | Aggregates | Copies)
                tried = max(1, self.tried[component]) if is_program else 1
                record = check(claim, self.lab, tried=tried, carriers=self.translation.carriers)
                records.append(self._worded(record, component, claim))
        return (*records, check(Necessary(component=str(component)), self.lab))

    def with_standing_in(
        self, claims: Mapping[Component, tuple[ClaimRecord, ...]]
    ) -> dict[Component, tuple[ClaimRecord, ...]]:
        """The claims, and of every component that does nothing alone what it stands in for, if anything shows that."""
        idle = [part for part, records in claims.items() if is_inert(records[-1].evidence)]
        proposed = {part: standing_in(self.lab, part, idle) for part in idle}
        return {
            part: (*records, *(check(claim, self.lab) for claim in [proposed.get(part)] if claim is not None))
            for part, records in claims.items()
        }

    def wirings(self) -> Wired:
        """What every component and the output read, by exchanges of their inputs; nothing without a program to run."""
        if self.translation is None:
            return {}
        program, carriers = self.translation.program, self.translation.carriers
        parts = [component for component in self.facts.program.variables if str(component) in carriers]
        wired = {str(component): wirings(self.lab, component, program, carriers) for component in parts}
        return wired | {OUTPUT: wirings(self.lab, None, program, carriers)}

    def _about_variable(self, component: Component, variable: Hypothesis, translation: Translation) -> Iterator[Claim]:
        name = str(component)
        whole = ClaimedProgram(program=translation.program, carriers=translation.carriers)
        yield Computes(component=name, hypothesis=whole)
        if component.is_head:
            yield from _about_head(name, variable, whole)
            return
        reads, carried = variable.reads, translation.carriers[name]
        others = tuple(read for read in reads if read != INDICES)
        if others:  # what depends on the position alone never differs in a swap; the moved output decides `computes`
            yield DependsOnlyOn(
                component=name,
                program=translation.program,
                variables=reads,
                carried=carried,
                carriers=translation.carriers,
            )
        if len(reads) == 2:
            pair = reads[0], reads[1]
            yield Combines(
                component=name,
                program=translation.program,
                variables=pair,
                carried=carried,
                carriers=translation.carriers,
            )
        if TOKENS not in reads and others:
            yield IndependentOf(component=name, program=translation.program, variable=TOKENS, given=others)

    def _worded(self, record: ClaimRecord, component: Component, claim: Claim) -> ClaimRecord:
        """The record with its sentence in the scientist's words, where the claim can only name variables."""
        words = self.names.words(str(component))
        if isinstance(claim, Computes):
            text = f"{component} computes {words}."
        elif isinstance(claim, DependsOnlyOn) and claim.variables == (str(component),):
            text = f"{component} depends on nothing but {words}."
        else:
            return record
        return record.model_copy(update={"text": worded(text, record.verdict, record.evidence)})


def _about_head(name: str, variable: Hypothesis, whole: ClaimedProgram) -> Iterator[Claim]:
    """Where it reads and what it brings for a fixed route; otherwise that the gathered value is all it stands for."""
    program = whole.program
    if isinstance(variable, Copy) and variable.by is None and (variable.route in _OFFSETS or variable.route == "first"):
        offset = _OFFSETS.get(variable.route)
        position = 0 if offset is None else None
        yield ReadsFrom(component=name, offset=offset, position=position)
        yield Copies(
            component=name,
            program=program,
            variable=variable.of,
            offset=offset,
            position=position,
            carried=whole.carried_by(name),
        )
    elif variable.family in ("mean", "sum") and not _is_numerical(whole, name):
        # Written as tables of counts, so there is no one Aggregate to name.
        yield DependsOnlyOn(component=name, program=program, variables=(name,), carried=whole.carried_by(name))
    else:
        yield Aggregates(component=name, hypothesis=whole)


def _is_numerical(whole: ClaimedProgram, name: str) -> bool:
    placed = (part for part in whole.program.components if name in part.variables)
    return any(node.numerical for part in placed for node in part.expressions if whole.program.name_of(node) == name)
