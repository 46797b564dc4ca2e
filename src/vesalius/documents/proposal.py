"""An explanation of a natural model as data: what it says, and what came out when it was run in the model's place.

Whoever explains may propose one: the built-in scientist from what it measured, an agent as a claim of the kind `runs`.
The engine runs it; nothing that the proposer says of it counts.
"""

from pydantic import Field

from vesalius.documents.alignment import AlignedPlace
from vesalius.documents.base import FrozenDict, FrozenMap, Record
from vesalius.documents.metric import Metric
from vesalius.documents.running import PROGRAMS, Running
from vesalius.documents.view import Facts, Section, Sheet
from vesalius.values import JsonObject

#: What a claim of a session is called that gives a proposal.
RUNS = "runs"


class Proposal(Record):
    """What an explanation says, as data. `programs` say where heads look, `mlps` name the MLPs that are needed.
    `algorithm` is the name of a program that ships with the package, or the text of one, and `variables` say at which
    place each of its variables is. Each of `stand_ins` names components that can stand in for each other.
    """

    ABSENT_IF_DEFAULT = ("mlps", "algorithm", "variables", "stand_ins")

    programs: FrozenMap[str, str] = Field(default_factory=FrozenDict)
    mlps: tuple[str, ...] = ()
    algorithm: str | None = None
    variables: FrozenMap[str, str] = Field(default_factory=FrozenDict)
    stand_ins: tuple[tuple[str, ...], ...] = ()

    @property
    def components(self) -> list[str]:
        """Every component that it names."""
        return list(dict.fromkeys([*self.programs, *self.mlps, *(one for group in self.stand_ins for one in group)]))

    @property
    def empty(self) -> bool:
        """Whether it says nothing."""
        return not (self.components or self.variables)


class PlacedVariable(Record):
    """A variable at the place that was named for it, on pairs that the proposer has not seen. At the embedding or at
    the output it is `given`: whatever the model computes, inputs stand there, or answers.
    """

    variable: str
    at: AlignedPlace
    given: bool = False


class StandIn(Record):
    """Components that are said to stand in for each other: what replacing all of them costs beyond the sum of what each
    costs (`excess`, as a share of what replacing everything costs), and whether that is more than chance.
    """

    components: tuple[str, ...]
    excess: Metric
    holds: bool


class RunProposal(Record):
    """A proposal and what it is worth. `running` is the ladder of its programs (None: it names no component),
    `agreement` how often its algorithm gives the model's answer, `rules` its size: rules of its programs, variables and
    MLPs. `rows` are the passes that it took.
    """

    ABSENT_IF_DEFAULT = ("running", "agreement", "variables", "stand_ins")

    proposal: Proposal
    running: Running | None = None
    agreement: Metric | None = None
    variables: tuple[PlacedVariable, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()
    rules: int
    rows: float

    @property
    def kept(self) -> Metric | None:
        """The share of the behaviour that the last rung it claims keeps."""
        return None if self.running is None else self.running.claimed.kept

    @property
    def found(self) -> list[PlacedVariable]:
        """The variables between the embedding and the output."""
        return [one for one in self.variables if not one.given]

    def sections(self) -> list[Section]:
        """What each part of it is worth."""
        parts: list[Section] = [] if self.running is None else list(self.running.sections())
        if self.agreement is not None:
            parts.append(Facts([("algorithm gives the model's answer", self.agreement.text())]))
        if self.variables:
            rows = [
                (
                    one.variable,
                    one.at.place,
                    one.at.accuracy.value,
                    one.at.kept.value,
                    one.at.control.value,
                    one.at.verdict,
                )
                for one in self.variables
            ]
            columns = ("variable", "place", "accuracy", "kept", "control", "verdict")
            parts.append(Sheet(columns, rows, title="Variables at the places that were named"))
        if self.stand_ins:
            parts.append(
                Sheet(
                    ("components", "excess", "low", "high", "holds"),
                    [(" + ".join(one.components), *one.excess.ends, str(one.holds)) for one in self.stand_ins],
                    title="Components that were said to stand in for each other",
                )
            )
        return parts

    def brief(self) -> JsonObject:
        """The figures, without the ladder."""
        programs = None if self.running is None else self.running.rung(PROGRAMS)
        return {
            "kept": None if programs is None else programs.kept.value,
            "rules": self.rules,
            "variables": {one.variable: one.at.accuracy.value for one in self.variables},
            "stand_ins": sum(one.holds for one in self.stand_ins),
        }
