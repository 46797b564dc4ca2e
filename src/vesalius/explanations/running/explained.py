"""Put an explanation in the model's place: fit programs to the heads of a set, and measure the ladder.

1. Fit a program to every head of the set, on text, repeated random tokens and the behaviour's training prompts.
2. Grade each on other text, other random tokens, held-out prompts, and prompts of other templates.
3. Run the ladder on the held-out prompts and on those of other templates, with its controls.

Programs that were given, or that an explanation has, are graded and run in the same way, on prompts of any seed.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch

from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component
from vesalius.discovery.account import SPLIT, NamedSet, SetRuns, account_prompts
from vesalius.discovery.head_tests import bos_of
from vesalius.discovery.whole import CHOOSE_SEED, ELSEWHERE_SPLIT, PromptSets, Shares
from vesalius.documents.running import Running
from vesalius.errors import BadInput
from vesalius.explanations.running.battery import OWN, Sample, behaviour_samples, samples
from vesalius.explanations.running.fitting import PositionMeans, fit_programs, graded
from vesalius.explanations.running.ladder import Readings, Stage, Words, measured, rungs_of
from vesalius.explanations.running.lookups import Lookups, find_lookups
from vesalius.explanations.running.programs import Program, parse_program
from vesalius.explanations.running.rules import Tokens
from vesalius.intervene.engine import Cost
from vesalius.intervene.recordings import Recordings
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.progress import Progress, silent

HELD_OUT, OTHER_TEMPLATES = "held-out prompts", "other templates"
#: The most prompts that programs are fitted to; more change little and take longer.
FIT = 24


def put_in_place(
    specimen: Specimen,
    named: NamedSet,
    *,
    given: Mapping[Component, Program] | None = None,
    runs: SetRuns | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Running | None:
    """The running explanation of a set of components; None where its prompts have no two sides to compare. `given`
    programs are not fitted. `runs` of its prompts that were made already are not counted again.
    """
    if named.sets.report.prompts is None:
        return None
    heads = [part for part in sorted(named.components) if part.is_head]
    mlps = [part for part in sorted(named.components) if not part.is_head]
    return _Runner(specimen, named.sets, seed, progress, runs).running(heads, mlps, given or {})


def run_again(
    specimen: Specimen,
    running: Running,
    *,
    programs: Mapping[str, str] | None = None,
    fitted: Trial | None = None,
    n: int = 32,
    seed: int = 1,
    progress: Progress = silent,
) -> Running:
    """The program of an explanation on new prompts of its behaviour. `programs` take the place of those that it has;
    none of the prompts is one that the programs were `fitted` to.
    """
    own = {one.head: one.program for one in running.heads}
    for name in programs or {}:
        if str(Component.parse(name).within(specimen.model.config)) not in own:
            raise BadInput(f"head {name} has no program in this explanation; choose one of {', '.join(own)}")
    own |= {str(Component.parse(name)): text for name, text in (programs or {}).items()}
    given = {Component.parse(name).within(specimen.model.config): parse_program(text) for name, text in own.items()}
    mlps = [Component.parse(name).within(specimen.model.config) for name in running.mlps]
    runner = _Runner(specimen, ladder_prompts(specimen, n, seed=seed, fit=fitted), seed, progress)
    return runner.running(list(given), mlps, given)


def fitted_prompts(specimen: Specimen, n: int, *, seed: int) -> Trial:
    """The prompts that the programs of an explanation were fitted to: at least `n` reported on it."""
    return _fitted_to(account_prompts(specimen, n, seed=seed))


def _fitted_to(sets: PromptSets) -> Trial:
    """Those that rank, or those that chose where they are more."""
    return sets.choose if len(sets.choose.batch) > len(sets.rank.batch) else sets.rank


def ladder_prompts(specimen: Specimen, n: int, *, seed: int, fit: Trial | None = None) -> PromptSets:
    """Prompts to fit (or those that did), `n` others of the same templates, and `n` of other templates where the
    behaviour has some. A small pool gives fewer.
    """
    fit = fit or trial(specimen, FIT, seed=seed, split=SPLIT)
    report = trial(specimen, n + FIT, seed=CHOOSE_SEED + seed, split=SPLIT, apart_from=fit)
    report = report.take(slice(0, n))
    try:
        elsewhere = trial(specimen, n, seed=CHOOSE_SEED + seed, split=ELSEWHERE_SPLIT, apart_from=fit)
    except BadInput:  # rows of one's own that are not divided
        elsewhere = None
    return PromptSets(fit, fit, report, elsewhere)


class _Runner:
    """One model with the prompts of one behaviour."""

    def __init__(
        self, specimen: Specimen, sets: PromptSets, seed: int, progress: Progress, runs: SetRuns | None = None
    ) -> None:
        self.specimen, self.sets, self.seed, self.progress = specimen, sets, seed, progress
        self.runs, self.made = runs or SetRuns(specimen.model, sets), runs is None
        self.cost = Cost()

    def running(
        self, heads: Sequence[Component], mlps: Iterable[Component], given: Mapping[Component, Program]
    ) -> Running:
        """Fit what is not given, grade, and run the ladder."""
        fit = self._samples(heads, _fitted_to(self.sets), grading=False) if heads else []
        programs = dict(given) | fit_programs(fit, [h for h in heads if h not in given], progress=self.progress)
        tables = self._lookups(list(mlps)) if heads else None
        words = Words({head: programs[head] for head in heads}, list(mlps), tables)
        grading: dict[str, list[Sample]] = {}
        if heads:
            grading[HELD_OUT] = self._samples(heads, self.sets.report, grading=True, runs=self.runs.report.recordings)
            if self.sets.elsewhere is not None and (other := self.runs.elsewhere) is not None:
                grading[OTHER_TEMPLATES] = behaviour_samples(
                    self.specimen, heads, self.sets.elsewhere, cost=self._count, runs=other.recordings
                )
        records = graded(words.programs, fit, grading, progress=self.progress)
        means = PositionMeans(fit)
        here = self._readings(self.runs.report, words, grading.get(HELD_OUT, []), means)
        there = self.runs.elsewhere
        elsewhere = None if there is None else self._readings(there, words, grading.get(OTHER_TEMPLATES, []), means)
        rungs, controls = rungs_of(here, elsewhere)
        vocabulary = self.specimen.vocabulary
        tokenizer = vocabulary.tokenizer if isinstance(vocabulary, TextVocabulary) else None
        return Running(
            heads=tuple(records[head] for head in heads),
            mlps=tuple(map(str, words.mlps)),
            lookups=() if tables is None else tuple(tables.graded(self.runs.report, tokenizer, self.seed)),
            rungs=rungs,
            controls=controls,
            given=tuple(map(str, given)),
            n_fit=len(_fitted_to(self.sets).batch),
            rows=round(self.cost.rows, 1),
        )

    def _lookups(self, mlps: Sequence[Component]) -> Lookups | None:
        """The MLPs of the set that are tables, by words at roles that every prompt has."""
        drawn = [one.prompts for one in (self.sets.report, self.sets.elsewhere) if one is not None]
        roles = [one.roles for one in drawn if one is not None]
        common = [role for role in roles[0] if all(role in one for one in roles)]
        return find_lookups(self.specimen.model, mlps, _fitted_to(self.sets), common, self.cost)

    def _samples(
        self, heads: Sequence[Component], own: Trial, *, grading: bool, runs: Recordings | None = None
    ) -> list[Sample]:
        return samples(self.specimen, heads, own, grading=grading, cost=self._count, runs=runs)

    def _count(self, prompts: float) -> None:
        self.cost.rows += prompts

    def _readings(self, shares: Shares, words: Words, graded_on: Sequence[Sample], means: PositionMeans) -> Readings:
        """The ladder on some prompts; the patterns of the heads there are known from grading."""
        material = shares.material
        if self.made:
            self.cost.rows += shares.cost.rows
        own = next((sample for sample in graded_on if sample.kind == OWN), None)
        prefix, width = bos_of(self.specimen), material.batch.tokens.shape[1]
        tokens = Tokens.of(self.specimen, material.batch, len(prefix)) if own is None else own.tokens
        average = {head: means.of(OWN, head, width).expand(len(material.batch), -1, -1) for head in words.heads}
        partner = {} if own is None or own.partner is None else own.partner
        stage = Stage(tokens, {} if own is None else own.patterns, partner, average)
        with torch.no_grad():
            return measured(
                shares,
                stage,
                words,
                seed=self.seed,
                prefix=prefix,
                cost=self.cost,
                progress=self.progress,
            )
