"""`bench discovery`: every method on circuits with known answers, in a run directory that can be resumed.

A case is one method on one circuit. Its record is in the ledger as soon as it is there; a run that was killed does what
is missing, failures included, and the scorecard is made from the ledger alone, in the order of the benchmark.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vesalius.api.benchmarks import performed, selection_word
from vesalius.api.door import directory_for, verb
from vesalius.discovery.discover import CORE_NAMES, circuit_method, circuit_method_names
from vesalius.discovery.method import Method
from vesalius.discovery.pruning import LARGE_EDGES, LARGE_PROMPTS
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.scorecard import AREAS, MEAN, DiscoveryFigures, DiscoveryRow, MethodFigures, Scorecard
from vesalius.errors import BadInput, Failed, note, require_whole
from vesalius.options import BENCHED, Chosen, Compared, Jobs, Out, Sample, require_drawable
from vesalius.progress import Progress, silent
from vesalius.runs.directory import Run
from vesalius.runs.engine import Engine, Failure
from vesalius.runs.kinds import Benchmark
from vesalius.runs.ledger import FAILED, LedgerState, LedgerStep, Record
from vesalius.runs.steps import ScoredSteps, StepProgress
from vesalius.version import __version__
from vesalius_bench.circuits.selection import CircuitCase, chosen_circuits, selection_options
from vesalius_bench.discovery.cases import DiscoveryCase, hard_circuits, hard_metrics, run_case
from vesalius_truth.grading.discovery import median_and_mean

BENCHMARK = "discovery"
#: What a ranking that knows nothing earns; those of the other areas are measured.
AUROC_OF_CHANCE = 0.5


@dataclass(frozen=True)
class DiscoverySettings:
    """What decides the results of a run; `steps` are for methods that take some, as EAP-IG (0: the usual number)."""

    circuits: tuple[CircuitCase, ...]
    methods: tuple[str, ...]
    n: int
    seed: int
    hard: bool = False
    steps: int = 0

    def __post_init__(self) -> None:
        known = circuit_method_names()
        unknown = [name for name in self.methods if name.partition(":")[0] not in known]
        if unknown or not self.methods:
            raise BadInput(f"`methods`: {', '.join(unknown) or 'none named'}; choose from {', '.join(known)}")
        if len(set(self.methods)) < len(self.methods):
            raise BadInput(f"`methods`: {', '.join(self.methods)} names one twice; name each once")
        if not self.circuits:
            raise BadInput("a benchmark of no circuits says nothing; choose at least one")
        if self.n < 2:
            raise BadInput(f"`n` {self.n}: prompts are resampled to see how stable circuits are; give at least 2")
        require_drawable(self.n, self.seed)
        require_whole(steps=self.steps)
        stepped = [method for method in self.scoring if "steps" in method.option_help()]
        if self.steps and not stepped:
            raise BadInput(f"`steps` {self.steps} is for `methods` eap-ig, which is not among them; leave it out")

    @property
    def scoring(self) -> list[Method]:
        """The methods with their options."""
        named = [circuit_method(name, parameter="methods") for name in self.methods]
        return [
            type(method)(steps=self.steps) if self.steps and "steps" in method.option_help() else method  # type: ignore[call-arg]
            for method in named
        ]

    @property
    def cases(self) -> list[DiscoveryCase]:
        """Every method on every circuit."""
        methods = self.scoring
        return [
            DiscoveryCase(method, c.id, c.directory, self.n, self.seed, self.hard, c.wrong_answers, label)
            for c in self.circuits
            for label, method in zip(self.methods, methods, strict=True)
        ]

    def request(self) -> Request:
        """What was asked, so that it can be asked again."""
        planted = sum(circuit.wrong_answers > 0 for circuit in self.circuits)
        chosen = {"limit": planted} if planted else selection_options(self.circuits)
        options = {**({"hard": True} if self.hard else {}), **chosen, **self._own_steps, "n": self.n}
        return Request(command="bench discovery", method=",".join(self.methods), options=options, seed=self.seed)

    @property
    def _own_steps(self) -> dict[str, int]:
        """The steps where they were given; a run without them is the one it was before there was a choice."""
        return {"steps": self.steps} if self.steps else {}

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        return {
            "benchmark": BENCHMARK,
            "methods": list(self.methods),
            "prompts": self.n,
            "checked_on": "inputs that the discovery has not seen",
            "seed": self.seed,
            **({"hard": True} if self.hard else {}),
            **self._own_steps,
            "version": __version__,
            "specimens": {circuit.id: circuit.fingerprint for circuit in self.circuits},
        }

    def notes(self) -> dict[str, Any]:
        """Where the specimens were."""
        return {
            "places": {circuit.id: str(circuit.directory) for circuit in self.circuits},
            "names": {circuit.id: circuit.name for circuit in self.circuits},
        }


DISCOVER = "discover"


class DiscoveryState(LedgerState):
    """The figures of every case, by method and circuit."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        step = LedgerStep(DISCOVER, "discovered", lambda record: DiscoveryFigures.model_validate(record["figures"]))
        super().__init__([step], records)

    def key(self, record: Record) -> tuple[str, str]:
        """The method and the circuit."""
        return record.get("method", ""), record.get("case", "")

    @property
    def figures(self) -> Mapping[tuple[str, str], DiscoveryFigures]:
        """The figures of every finished case."""
        return self.results[DISCOVER]


class DiscoveryBenchmark(ScoredSteps):
    """The benchmark in an open run directory; `work` yields progress, `scorecard` sums up."""

    def __init__(self, run: Run, settings: DiscoverySettings, *, engine: Engine | None = None) -> None:
        self.settings, self.state = settings, DiscoveryState(run.ledger.records)
        super().__init__(run, self.state, engine=engine)

    def work(self, *, jobs: int = 2) -> Generator[StepProgress]:
        """Do what is not done yet; a case that fails is an error and enters no figure."""
        cases = self.settings.cases
        missing = [case for case in cases if case.key not in self.state.figures]

        def keep(case: DiscoveryCase, figures: DiscoveryFigures) -> None:
            self._note("discovered", case.id, method=case.label, figures=figures.model_dump(mode="json"))

        yield from self._each(DISCOVER, run_case, missing, keep, of=len(cases), jobs=jobs)

    def scorecard(self) -> Scorecard:
        """The figures, written to the run directory and returned; refused where every case failed."""
        if not self.state.figures:
            raise Failed(f"{self.run.directory}: no circuit could be discovered; the first: {self.state.first_failure}")
        card = discovery_scorecard(self.settings, self.state)
        self.run.write_scorecard(card)
        return card

    def _label(self, step: str, case: DiscoveryCase) -> str:
        return case.label

    def _note_failure(self, step: str, case: DiscoveryCase, failure: Failure) -> None:
        self._note(FAILED, case.id, method=case.label, kind=failure.kind, reason=failure.reason)

    def _finished(self) -> str:
        return f"{len(self.state.figures)} of {len(self.settings.cases)} cases are discovered"


def discovery_scorecard(settings: DiscoverySettings, state: DiscoveryState) -> Scorecard:
    """The scorecard from the figures of every case."""
    keys = [case.key for case in settings.cases]
    figures = {key: state.figures[key] for key in keys if key in state.figures}
    errors = tuple(state.failed[key, DISCOVER] for key in keys if (key, DISCOVER) in state.failed)
    methods = {
        method: _method_figures([figures[key] for key in figures if key[0] == method], len(settings.circuits))
        for method in settings.methods
    }
    return Scorecard(
        benchmark=BENCHMARK,
        subject=", ".join(settings.methods),
        request=settings.request(),
        n=len(settings.circuits),
        n_error=len({error.case for error in errors}),
        prompts=settings.n,
        held_out_prompts=min((each.held_out for each in figures.values()), default=0),
        prompts_of_acdc=f"{LARGE_PROMPTS} at most for models of more than {LARGE_EDGES} edges",
        seed=settings.seed,
        metrics={
            f"{method}.{name}": metric
            for method, row in methods.items()
            for area in AREAS
            for name in (area, area + MEAN)
            if (metric := getattr(row, name)) is not None
        }
        | _hard_metrics(settings, figures),
        methods=methods,
        cost=0.0,
        seconds=sum(each.work_seconds for each in figures.values()),
        cases=tuple(
            DiscoveryRow(
                id=circuit.id,
                name=circuit.name,
                methods={m: figures[m, circuit.id] for m in settings.methods if (m, circuit.id) in figures},
            )
            for circuit in settings.circuits
        ),
        errors=errors,
    )


def _hard_metrics(
    settings: DiscoverySettings, figures: Mapping[tuple[str, str], DiscoveryFigures]
) -> dict[str, Metric]:
    """What the hard models add, by method."""
    return {
        f"{method}.{name}": metric
        for method in (settings.methods if settings.hard else ())
        for name, metric in hard_metrics({key[1]: figures[key] for key in figures if key[0] == method}).items()
    }


def _method_figures(results: Sequence[DiscoveryFigures], n_circuits: int) -> MethodFigures:
    """The row of one method: areas over the circuits where they are defined, mean cost per circuit."""
    areas: dict[str, Metric] = {}
    for name in AREAS:
        if (area := _area(name, results)) is not None:
            areas[name], areas[name + MEAN] = area
    return MethodFigures(
        **areas,  # type: ignore[arg-type]
        forwards=sum(result.forwards for result in results) / max(1, len(results)),
        seconds=sum(result.seconds for result in results),
        n=len(results),
        n_error=n_circuits - len(results),
    )


def _area(name: str, results: Sequence[DiscoveryFigures]) -> tuple[Metric, Metric] | None:
    known = [result for result in results if getattr(result, name) is not None]
    values = [getattr(result, name) for result in known]
    if "auroc" in name:
        return median_and_mean(values, baseline=AUROC_OF_CHANCE)
    chance = median_and_mean([result.chance[name] for result in known])
    return median_and_mean(values, baseline=None if chance is None else chance[0].value)


@verb
def bench_discovery(
    *,
    compared: Compared,
    chosen: Chosen,
    sample: Sample = BENCHED,
    workers: Jobs,
    out: Out = None,
    progress: Progress = silent,
) -> Scorecard:
    """Find circuits with known answers by each method, on `n` prompts, and grade the scores against the answer.

    `hard` takes models written by hand that mislead discovery (redundant, negative, cancelling and position-only parts,
    a second task, noise) instead of the 84, each also with a behaviour of which a share of the answers is wrong, and
    adds precision at the true size, the coverage of guarantees and how often faithful circuits are false; `limit` is
    the number of models. With `specimens` or `ids` these are asked the same instead. `steps` is the number of gradients
    that EAP-IG averages (0: 5).
    """
    folder, named, limit, hard = chosen.folder, chosen.names, chosen.limit, compared.hard
    planted = hard and folder is None and named is None
    method_word = None if compared.names == CORE_NAMES else "_".join(compared.names)
    settings_words = (f"steps{compared.steps}" if compared.steps else None, f"n{sample.n}", f"seed{sample.seed}")
    words = (method_word, selection_word(None, None, limit), *settings_words)
    place = directory_for(out, "bench-discovery-hard", *words) if planted else None
    circuits = (
        chosen_circuits(folder, named, limit)
        if place is None
        else hard_circuits(place.with_name(f"{place.name}-models"), limit)
    )
    if any(circuit.annotation is not None for circuit in circuits):
        raise BadInput(f"`specimens` {folder}: holds published models, which `bench circuits` grades; use that")
    settings = DiscoverySettings(tuple(circuits), compared.names, sample.n, sample.seed, hard, compared.steps)
    directory = place or directory_for(
        out,
        "bench-discovery-hard" if hard else "bench-discovery",
        method_word,
        selection_word(folder, named, limit),
        *settings_words,
    )
    names = {circuit.id: circuit.name for circuit in settings.circuits}
    card = performed(
        directory,
        settings,
        lambda run: DiscoveryBenchmark(run, settings),
        names=names,
        jobs=workers.jobs,
        pages=False,
        progress=progress,
    )
    if card.errors:
        first = card.errors[0]
        note(
            f"{len(card.errors)} cases ended in an error and are not in the figures (the first, {first.method} on "
            f"{first.case}: {first.reason}); the same command tries them again"
        )
    return card


class DiscoveryBench(Benchmark):
    """`vesalius bench discovery`."""

    NAME = BENCHMARK

    def run(self, **options: Any) -> Scorecard:
        """Discover and grade."""
        return bench_discovery(**options)
