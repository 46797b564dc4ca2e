"""Variables of an algorithm as a submission to MIB's causal variable localization track, and the score of a folder.

1. Train: choose a place of the variable on the pairs that train (or take those that are given), and find directions
   there, as `vesalius align` does.
2. Write the place and its directions as a folder `TASK_MODEL_VARIABLE`.
3. Score: on held-out pairs that the model answers as the program says, base and source, exchange each unit and compare
   the output with what the program says after the variable alone is taken from the source. The accuracy counts all such
   pairs, as MIB's does; beside it stands what an unchanged model earns, and the share of the pairs whose output has to
   change.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Bool
from torch import Tensor

from vesalius.api.door import verb
from vesalius.behaviours.registry import behaviour_of
from vesalius.documents.answers import CARRIED
from vesalius.documents.base import FrozenDict
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput, choices
from vesalius.explanations.variables import directions
from vesalius.explanations.variables.algorithms import Algorithm, find_algorithm
from vesalius.explanations.variables.align import FITTING, HELD_OUT, Material
from vesalius.explanations.variables.pairs import CHANGES, Pairs, make_pairs
from vesalius.explanations.variables.places import parse_places
from vesalius.explanations.variables.sides import Case, Sources, sources_of
from vesalius.intervene.exchanging import Place
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.options import Sample, Sandboxed
from vesalius.progress import Progress, silent
from vesalius_bench.mib.documents import MibInterchange, MibUnit
from vesalius_bench.mib.features import FolderName, Unit, model_name, read_units, task_name, unit_name, write_units
from vesalius_bench.mib.tasks import TaskRows, algorithm_of, task_named
from vesalius_bench.options import MIB_PAIRS, MibRows, MibTrained

#: Why a pair of a behaviour's prompts is not graded.
UNANSWERED = "pairs whose base or source the model does not answer as the program says"


@dataclass(frozen=True)
class _Question:
    """What is asked of a model: the pairs of a task's rows, or (None) of the specimen's behaviour, and the program."""

    specimen: Specimen
    rows: TaskRows | None
    algorithm: Algorithm
    draw: Sample
    unsafe: bool

    @classmethod
    def of(cls, specimen: Specimen, task: str | None, asked: MibRows, draw: Sample, unsafe: bool) -> "_Question":
        """Read the rows and the program; `task` is what a folder's name says, where there is one."""
        if not isinstance(specimen.vocabulary, TextVocabulary):
            raise BadInput(f"specimen {specimen.name!r} reads no text; name a natural model, such as smollm2-135m")
        if asked.rows is not None:
            if (named := asked.task or task) is None:
                raise BadInput("`task` is missing: say which task the rows are of, such as arithmetic")
            return cls(specimen, TaskRows.of(asked.rows, named), algorithm_of(named, asked.algorithm), draw, unsafe)
        if specimen.behaviour is None:
            raise BadInput("neither `rows` nor a behaviour is given; give MIB's rows, or a behaviour such as ioi")
        return cls(specimen, None, find_algorithm(asked.algorithm, behaviour=behaviour_of(specimen).name), draw, unsafe)

    @property
    def last(self) -> str:
        """What the task calls the last position."""
        return task_named("" if self.rows is None else self.rows.task).last

    @property
    def task(self) -> str:
        """The task as a folder's name has it."""
        return task_name(self.specimen.behaviour or "") if self.rows is None else self.rows.task

    def pairs(self, *, train: bool, n: int) -> tuple[Pairs, dict[str, int]]:
        """The pairs that train or that grade, and how many rows were left out, by reason."""
        cases, sources, roles, left_out = self._cases(train=train, n=n)
        vocabulary = self.specimen.vocabulary
        assert isinstance(vocabulary, TextVocabulary)
        where = "these rows" if self.rows is not None else f"behaviour {self.specimen.behaviour}"
        self.algorithm.require_inputs(cases[0].base.inputs, where)
        with self.algorithm.runner(unsafe=self.unsafe) as runner:
            pad = vocabulary.tokenizer.bos or 0
            pairs = make_pairs(self.specimen.model, runner, cases, sources.token_of, roles=roles, pad=pad)
        return pairs, left_out

    def _cases(self, *, train: bool, n: int) -> tuple[list[Case], Sources, tuple[str, ...], dict[str, int]]:
        if self.rows is not None:
            found = self.rows.sources(self.specimen, train=train)
            return found.cases[:n], found.sources, found.roles, dict(found.left_out)
        behaviour, split = behaviour_of(self.specimen), FITTING if train else HELD_OUT
        sources = sources_of(self.specimen, behaviour, split, n=n, seed=self.draw.seed)
        cases = sources.cases(n, f"{behaviour.name}/{split}/{self.draw.seed}")
        if not cases:
            raise BadInput(
                f"behaviour {behaviour.label}: no base with its sources could be drawn from the {split} split"
            )
        return cases, sources, tuple(Material(sources, cases).roles), {}

    def require_variable(self, variable: str) -> None:
        """Refuse a variable that the program does not have."""
        if variable not in self.algorithm.variables:
            raise BadInput(
                f"variable {variable!r} is not one of {self.algorithm.name}; it has {choices(self.algorithm.variables)}"
            )


def require_files(asked: MibRows) -> None:
    """Refuse rows and programs that cannot be read before the model is."""
    if asked.rows is not None and asked.task is not None:
        TaskRows.of(asked.rows, asked.task)
    if asked.algorithm is not None:
        find_algorithm(asked.algorithm, behaviour="")


@partial(verb, check=require_files)
def align_mib(
    specimen: Specimen,
    out: str | Path,
    *,
    asked: MibRows,
    trained: MibTrained,
    draw: Sample = MIB_PAIRS,
    sandboxed: Sandboxed,
    progress: Progress = silent,
) -> MibInterchange:
    """Place a variable on the pairs that train, write it as a folder of MIB's causal variable track, and score that on
    held-out pairs.
    """
    question = _Question.of(specimen, None, asked, draw, sandboxed.unsafe_sandbox)
    question.require_variable(trained.variable)
    name = FolderName(question.task, model_name(specimen), trained.variable)
    folder = Path(out) / str(name)
    if folder.exists():
        raise BadInput(f"{folder}: is there already; choose another `out`, or remove it")
    progress("running the pairs that train", 0, 0)
    pairs, _ = question.pairs(train=True, n=draw.n)
    if not len(pairs.rows(trained.variable, CHANGES)):
        raise BadInput(
            f"no pair that trains changes {trained.variable}: the model answers {pairs.agreement.text()} of the bases "
            "as the program says; give other rows, or a model that performs the task"
        )
    places = [_within(pairs, one, trained, draw.seed) for one in _places(question, pairs, trained, progress)]
    write_units(folder, places, question.last)
    return _scored(question, folder, name, trained.held_out, progress)


@partial(verb, check=require_files)
def interchange_mib(
    folder: str | Path,
    specimen: Specimen,
    *,
    asked: MibRows,
    draw: Sample = MIB_PAIRS,
    sandboxed: Sandboxed,
    progress: Progress = silent,
) -> MibInterchange:
    """Score a folder of MIB's causal variable track by interchange accuracy, on held-out pairs."""
    place = Path(folder)
    name = FolderName.parse(place.name)
    question = _Question.of(specimen, name.task, asked, draw, sandboxed.unsafe_sandbox)
    question.require_variable(name.variable)
    return _scored(question, place, name, draw.n, progress)


def _places(question: _Question, pairs: Pairs, trained: MibTrained, progress: Progress) -> list[Place]:
    """The places that are given, or the residual stream where it does best on the pairs that train."""
    config, roles = question.specimen.model.config, pairs.exchange.roles
    given = parse_places(list(trained.at), config, roles)
    for place in given:
        if trained.directions and place.layer is None:
            raise BadInput(f"place {place}: directions are found in the residual stream; leave out `directions`")
        for head in (
            [place] if place.layer is not None else [Place(place.roles, components=(one,)) for one in place.components]
        ):
            unit_name(head, question.last)
    if given:
        return given
    rows = pairs.graded_rows()
    tried = [Place((role,), layer=layer) for layer in range(1, max(2, config.n_layers)) for role in roles]
    scores = []
    for done, place in enumerate(tried):
        progress("exchanging the residual stream", done, len(tried))
        scores.append(pairs.grade(trained.variable, pairs.exchange.answers(place, rows), rows).score)
    return [tried[max(range(len(tried)), key=scores.__getitem__)]]


def _within(pairs: Pairs, place: Place, trained: MibTrained, seed: int) -> Place:
    """The directions of a place that carry the variable, where some are asked for."""
    if not trained.directions:
        return place
    whole = directions.graded(pairs, trained.variable, place, pairs.graded_rows())
    enough = max(whole.score, CARRIED)
    return directions.fit(pairs, trained.variable, place, trained.directions, enough=enough, seed=seed).place


def _scored(question: _Question, folder: Path, name: FolderName, n: int, progress: Progress) -> MibInterchange:
    """The accuracy of every unit of a folder on held-out pairs."""
    start, specimen = time.perf_counter(), question.specimen
    progress("running the pairs that grade", 0, 0)
    pairs, left_out = question.pairs(train=False, n=n)
    units = read_units(folder, specimen.model.config, pairs.exchange.roles, question.last)
    wanted = pairs.wanted[name.variable]
    asked = [row for row in range(len(pairs)) if pairs.usable[row] and wanted[row] is not None]
    if len(pairs) > len(asked):
        left_out[UNANSWERED] = len(pairs) - len(asked)
    if not asked:
        raise BadInput(
            f"no pair can be graded: the model answers {pairs.agreement.text()} of the bases as the program says; give "
            "other rows, or a model that performs the task"
        )
    rows = torch.tensor(asked)
    still = torch.tensor([pairs.base_answers[row] in (wanted[row] or ()) for row in asked])
    kinds = [pairs.kinds[row] for row in asked]
    found = []
    for done, unit in enumerate(units):
        progress("exchanging units", done, len(units))
        answers = pairs.exchange.answers(unit.place, rows).tolist()
        right = torch.tensor([answer in (wanted[row] or ()) for answer, row in zip(answers, asked, strict=True)])
        found.append(_unit(unit, right, still, kinds))
    layers: dict[int, float] = {}
    for unit, one in zip(units, found, strict=True):
        at = unit.place.first_layer
        layers[at] = max(layers.get(at, 0.0), one.accuracy.value or 0.0)
    return MibInterchange(
        folder=str(folder),
        task=name.task,
        model=name.model,
        variable=name.variable,
        specimen=specimen.source or specimen.id,
        behaviour=specimen.behaviour,
        rows=None if question.rows is None else question.rows.source,
        algorithm=question.algorithm.name,
        agreement=pairs.agreement,
        pairs=len(asked),
        left_out=FrozenDict(left_out),
        units=tuple(found),
        highest=max((one.accuracy for one in found), key=lambda one: one.value or 0.0),
        average=sum(layers.values()) / len(layers),
        seconds=time.perf_counter() - start,
    )


def _unit(unit: Unit, right: Bool[Tensor, " pair"], still: Bool[Tensor, " pair"], kinds: list[str]) -> MibUnit:
    """What a unit earns; `still` are the pairs that an unchanged model answers as the program says."""

    def share(rows: Bool[Tensor, " pair"], *, beside: bool = True) -> Metric:
        unchanged = float(still[rows].double().mean()) if beside and bool(rows.any()) else None
        return Metric.of_share(int(right[rows].sum()), int(rows.sum()), baseline=unchanged)

    by_kind: Mapping[str, Metric] = {
        kind: share(torch.tensor([one == kind for one in kinds])) for kind in dict.fromkeys(kinds)
    }
    return MibUnit(
        unit=unit.name,
        place=str(unit.place),
        directions=None if unit.place.directions is None else unit.place.directions.shape[1],
        accuracy=share(torch.ones_like(still)),
        changes=share(~still, beside=False),
        kinds=FrozenDict(by_kind),
    )
