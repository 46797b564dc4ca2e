"""Does the program do what the model does? An explanation's executable, run against the model on fresh inputs.

The author of the explanation has no influence here: inputs are drawn with a separate seed, and the interchange that
shows a component is chosen from the model's behaviour alone. Place by place where that changes the model's answers,
else with the source read at other positions (which shows what depends on the position alone), else the component is
*inert*: no interchange shows it, and it is counted apart.

    iia            share of outputs predicted right when a component takes its values from another input
    iia_changed    the same over outputs that change, in the program or in the model
    chance         the same figures with the carried variables ignored, or with a shuffled source: the better of the two
    task           share of fresh sequences on which the program gives every output of the model; exact from 0.99

A component that no variable is assigned to, and every component of a program that cannot be read, scores 0.
"""

from functools import cached_property

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Executable
from vesalius.errors import BadInput
from vesalius.explanations.claims.interchange import MIN_CHANGED_ROWS, InterchangeTest
from vesalius.explanations.laboratory import CircuitLab
from vesalius.model.specimen import Specimen
from vesalius.rasp import Program
from vesalius.rasp.document import from_document

#: Base inputs take this seed, sources the next: far from 7,000,003 (claims), 1,000,003 (the training gate) and from
#: every seed a scientist reaches from the one it was given.
GRADING_SEED = 9_100_003
_REACH = 1_000_000
EXACT_FROM = 0.99
GOOD_FROM = 0.95


class ComponentScore(BaseModel):
    """The interchange figures of one component; None where it is inert. `reason` says why a score is 0 unmeasured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inert: bool = False
    crossed: bool = False
    iia: float | None = None
    iia_changed: float | None = None
    chance: float | None = None
    chance_changed: float | None = None
    reason: str = ""


class ProgramGrade(BaseModel):
    """An executable held against the model on `n` fresh pairs of inputs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    components: dict[str, ComponentScore]
    task_agreement: float
    task_exact: bool
    n: int
    seed: int


def fresh_seed(used: int) -> int:
    """The grading seed, moved out of the way of a scientist that started from a seed close to it."""
    return GRADING_SEED if abs(used - GRADING_SEED) >= _REACH else GRADING_SEED + 2 * _REACH


class Grader:
    """One specimen and its fresh inputs; grades any number of executables, the model's answers being shared."""

    def __init__(self, specimen: Specimen, *, seed: int = GRADING_SEED, n: int | None = None) -> None:
        self.lab = CircuitLab(specimen, n=n, seed=seed)
        self.components = specimen.components

    @cached_property
    def crossed(self) -> dict[Component, bool | None]:
        """Whether a component is shown by reading the source at other positions; None where nothing shows it."""
        return {component: self._shown(component) for component in self.components}

    def grade(self, executable: Executable | None) -> ProgramGrade:
        """Every figure of the module for one executable."""
        program, carriers, reason = self._read(executable)
        scores = {
            str(component): self._score(component, program, carriers.get(component, ()), reason)
            for component in self.components
        }
        agreement = 0.0 if program is None else self._agreement(program)
        return ProgramGrade(
            components=scores,
            task_agreement=agreement,
            task_exact=agreement >= EXACT_FROM,
            n=self.lab.n,
            seed=self.lab.seed,
        )

    def alike(self, first: Executable | None, second: Executable | None) -> tuple[str, ...]:
        """Components about which two executables predict the same answer to every exchange.

        Where one variable passes straight into the next, exchanging either is the same thing, and no interchange can
        tell which of the two a component carries.
        """
        read = [self._read(executable)[:2] for executable in (first, second)]
        indistinguishable = []
        for component, crossed in self.crossed.items():
            ours, theirs = (self._predicted(component, *one, crossed=crossed) for one in read)
            if ours is not None and theirs is not None and bool((self.lab.same(ours, theirs) | ~self.lab.real).all()):
                indistinguishable.append(str(component))
        return tuple(indistinguishable)

    def _predicted(
        self,
        component: Component,
        program: Program | None,
        carriers: dict[Component, tuple[str, ...]],
        *,
        crossed: bool | None,
    ) -> Tensor | None:
        """What a program predicts of a component's exchange; None where it predicts nothing or nothing shows."""
        carried = carriers.get(component, ())
        if program is None or not carried or crossed is None:
            return None
        try:
            return InterchangeTest(self.lab, component, carried, program, crossed=crossed).predict(program)
        except BadInput:
            return None

    def _read(self, executable: Executable | None) -> tuple[Program | None, dict[Component, tuple[str, ...]], str]:
        """The program, what each component carries, and why there is none."""
        if executable is None:
            return None, {}, "no program"
        try:
            program = from_document(executable.program)
            carriers = {Component.parse(name): carried for name, carried in executable.carriers.items()}
            self._outputs(program)  # refuses another vocabulary or kind of output
        except BadInput as error:
            return None, {}, str(error)
        return program, carriers, ""

    def _score(
        self, component: Component, program: Program | None, carried: tuple[str, ...], reason: str
    ) -> ComponentScore:
        crossed = self.crossed[component]
        if crossed is None:
            return ComponentScore(inert=True, reason=reason)
        if program is None or not carried:
            return _zero(crossed, reason or "nothing is said to be carried")
        try:
            return self._measured(InterchangeTest(self.lab, component, carried, program, crossed=crossed), program)
        except BadInput as error:  # a carried variable that the program does not have
            return _zero(crossed, str(error))

    def _measured(self, bench: InterchangeTest, program: Program) -> ComponentScore:
        comparison = bench.compare(program)
        controls = [bench.right_if_ignored(program), bench.right_if_shuffled(program)]
        return ComponentScore(
            crossed=bench.crossed,
            iia=_share(comparison.right, self.lab.real),
            iia_changed=_share(comparison.right, comparison.changed),
            chance=max(_share(right, self.lab.real) for right in controls),
            chance_changed=max(_share(right, comparison.changed) for right in controls),
        )

    def _shown(self, component: Component) -> bool | None:
        lab = self.lab
        for crossed in (False, True):
            observed = lab.crossed_interchange(component) if crossed else lab.whole_interchange(component)
            changed = ~lab.same(observed, lab.clean) & lab.real
            if int(changed.any(1).sum()) >= MIN_CHANGED_ROWS:
                return crossed
        return None

    def _outputs(self, program: Program) -> Tensor:
        return self.lab.answers(program, self.lab.traces(program)[0].output)

    def _agreement(self, program: Program) -> float:
        lab = self.lab
        whole = (lab.same(self._outputs(program), lab.clean) | ~lab.real).all(1)
        return round(float(whole.double().mean()), 6)


def _zero(crossed: bool, reason: str) -> ComponentScore:
    return ComponentScore(crossed=crossed, iia=0.0, iia_changed=0.0, chance=0.0, chance_changed=0.0, reason=reason)


def _share(right: Tensor, where: Tensor) -> float:
    return round(float((right & where).sum() / where.sum()), 6)
