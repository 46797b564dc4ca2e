"""The built-in scientist: a specimen in, an explanation out.

Observe (causal fingerprints), hypothesise (smallest first), assemble a program, try the runners-up where an exchange
is not predicted (three times at most), then validate once on fresh inputs, classify, and say what was found. Nothing
but the model, its vocabulary and its input distribution is used.

Which figures are held out: thresholds were set on the benchmark tasks with odd ids. The even ones were first looked at
in the aggregate; then two rules were added after seeing one of them (4) fail in detail: the weighted sum of shares,
and among equally good hypotheses about a head the nearest variable. The conventions of `classify` come from a study of
all the tasks. Figures on the benchmark are therefore in-sample; new tasks are needed for an honest one.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from vesalius.explain.explanation import ClaimRecord, ComponentExplanation, Evidence, Explanation
from vesalius.explain.scientist.assemble import Program
from vesalius.explain.scientist.body import Body, Recorded
from vesalius.explain.scientist.classify import Facts, tag_by_experiment, tags_by_convention
from vesalius.explain.scientist.gathering import Copy
from vesalius.explain.scientist.inputs import draw_sequences, finite_vocabulary
from vesalius.explain.scientist.investigate import Finding, Investigation, assemble, explain_components
from vesalius.explain.scientist.positions import PositionTest, position_test
from vesalius.explain.scientist.validate import RULE, Check, agreement, check_components
from vesalius.explain.scientist.variables import Hypothesis, Table
from vesalius.explain.scientist.words import Names, information_flow, note, program_text, task_description
from vesalius.intervene.statistics import share_interval
from vesalius.model.components import Component, parse_components
from vesalius.model.specimen import FiniteVocabulary, Specimen

POOL, FITTING, EXCHANGES, FRESH, PAIRS = 400, 2000, 300, 1000, 400
#: Long inputs cost more; they get this share of the rows.
LONG, LONG_SHARE = 20, 0.3
REFINEMENTS = 3
#: Circuits with more components are not refined: each trial explains everything downstream again.
MOST_REFINED = 6
#: A component is looked at again when its exchanges are predicted worse than this.
REFINE_BELOW = 0.95
#: A runner-up is tried if its score is less than this below the one in use.
RUNNER_UP = 0.3
#: Larger vocabularies are sampled, not enumerated.
LARGE_VOCABULARY = 400


def explain_specimen(
    specimen: Specimen,
    *,
    components: Iterable[str | Component] | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Explanation:
    """Explain a specimen with listed tokens, component by component, with evidence; the same seed, the same result.

    `components` names the circuit (default: the specimen's own). `progress` is told what is being done.
    """
    started = time.monotonic()
    vocabulary = finite_vocabulary(specimen)
    circuit = sorted(
        set(parse_components(specimen.components if components is None else components, specimen.model.config))
    )
    body = Body(specimen, vocabulary, circuit)
    tell = progress or (lambda message: None)
    share = LONG_SHARE if vocabulary.max_len > LONG else 1.0
    pool = body.record(draw_sequences(specimen, int(POOL * share), seed=seed))
    if reason := _nothing_to_explain(pool):
        return _abstention(specimen, circuit, reason, seconds=time.monotonic() - started, seed=seed, rows=body.rows)
    fitting = body.record(draw_sequences(specimen, int(FITTING * share), seed=seed + 1, natural_share=0.9))
    investigation = explain_components(body, pool, seed=seed, progress=lambda c: tell(f"{specimen.name}: {c}"))
    program = assemble(investigation, fitting, exchanges=int(EXCHANGES * share), seed=seed + 2)
    investigation, program = _refined(investigation, program, fitting, share, seed=seed, tell=tell)
    tell(f"{specimen.name}: validating")
    fresh = body.record(draw_sequences(specimen, int(FRESH * share), seed=seed + 1000, natural_share=1.0))
    checks = check_components(body, program, fresh, pairs=int(PAIRS * share), seed=seed + 1001)
    positions = _position_tests(body, program, fresh, seed=seed + 1002)
    facts = Facts(program, {c: f.score for c, f in investigation.findings.items()}, positions)
    report = _Report(specimen, vocabulary, investigation, facts, checks, agreement(program, fresh), seed)
    return report.explanation(seconds=time.monotonic() - started)


def _nothing_to_explain(pool: Recorded) -> str | None:
    """Why no experiment can say anything, or None."""
    if not bool(torch.isfinite(pool.outputs.float()).all()) or any(
        not bool(torch.isfinite(written).all()) for written in pool.written.values()
    ):
        return "activations are not finite (NaN or infinite): no experiment can be read"
    outputs = pool.outputs[pool.sequences.real].float()
    if float(outputs.max() - outputs.min()) < 1e-3:
        return "the outputs are the same on every input: there is nothing to explain"
    return None


def _refined(
    investigation: Investigation,
    program: Program,
    recorded: Recorded,
    share: float,
    *,
    seed: int,
    tell: Callable[[str], None],
) -> tuple[Investigation, Program]:
    """Where exchanges are badly predicted, put the runner-up in and keep it if the program gets better."""
    body = investigation.body
    known = {c: finding.observations for c, finding in investigation.findings.items()}
    forced: dict[Component, int] = {}
    checks = check_components(body, program, recorded, pairs=int(150 * share), seed=seed + 3)
    quality = _quality(checks)
    for _ in range(REFINEMENTS if len(checks) <= MOST_REFINED else 0):
        weakest = _weakest(checks, investigation, forced)
        if weakest is None:
            break
        tell(f"trying another hypothesis for {weakest}")
        trial = {**forced, weakest: forced.get(weakest, 0) + 1}
        other = explain_components(body, investigation.pool, seed=seed, forced=trial, known=known)
        other_program = assemble(other, recorded, exchanges=int(EXCHANGES * share), seed=seed + 2)
        other_checks = check_components(body, other_program, recorded, pairs=int(150 * share), seed=seed + 3)
        forced = trial
        if _quality(other_checks) > quality + 0.01:
            investigation, program, checks, quality = other, other_program, other_checks, _quality(other_checks)
    return investigation, program


def _quality(checks: dict[Component, Check]) -> float:
    shares = [check.iia_changed for check in checks.values() if check.iia_changed is not None]
    return sum(shares) / max(1, len(shares))


def _weakest(
    checks: dict[Component, Check], investigation: Investigation, forced: dict[Component, int]
) -> Component | None:
    """The component predicted worst that still has a runner-up."""
    weak = [
        (check.iia_changed, component)
        for component, check in checks.items()
        if check.iia_changed is not None
        and check.iia_changed < REFINE_BELOW
        and _has_runner_up(investigation.findings[component], forced.get(component, 0) + 1)
    ]
    return min(weak)[1] if weak else None


def _has_runner_up(finding: Finding, place: int) -> bool:
    """There is a hypothesis at this place of the ranking, and it is not hopeless."""
    return len(finding.ranked) > place and finding.ranked[place].score > finding.score - RUNNER_UP


def _position_tests(body: Body, program: Program, recorded: Recorded, *, seed: int) -> dict[Component, PositionTest]:
    """Only MLPs above the last layer can hold a position that shows later."""
    last = list(program.variables)[-1]
    return {
        component: position_test(body, program, recorded, component, seed=seed)
        for component, variable in program.variables.items()
        if not component.is_head and component != last and variable.family != "nothing"
    }


class _Report:
    """Turns what was found into an `Explanation`."""

    def __init__(
        self,
        specimen: Specimen,
        vocabulary: FiniteVocabulary,
        investigation: Investigation,
        facts: Facts,
        checks: dict[Component, Check],
        exact: torch.Tensor,
        seed: int,
    ) -> None:
        self.specimen, self.vocabulary, self.seed = specimen, vocabulary, seed
        self.investigation, self.facts, self.checks, self.exact = investigation, facts, checks, exact
        self.names = Names(vocabulary, facts.program)
        self.tags = tags_by_convention(facts)
        self.agreement = float(exact.float().mean())

    def explanation(self, *, seconds: float) -> Explanation:
        """The whole document."""
        n, right = len(self.exact), int(self.exact.sum())
        low, high = share_interval(right, n)
        return Explanation(
            specimen=self.specimen.id,
            scientist="builtin",
            components=tuple(self._component(component) for component in self.facts.program.variables),
            information_flow=information_flow(self.facts),
            edges=self._edges(),
            task_description=task_description(self.facts, self.names, self.agreement) + self._sampled(),
            program=program_text(self.facts.program, self.names),
            program_agreement=Evidence(
                experiment="program against model on fresh inputs",
                measure="share of inputs with every output right",
                value=self.agreement,
                low=low,
                high=high,
                n=n,
                rule="exact at 0.99 or more",
                seed=self.seed,
            ),
            seconds=seconds,
            seed=self.seed,
            rows=self.investigation.body.rows,
        )

    def _component(self, component: Component) -> ComponentExplanation:
        check, variable = self.checks[component], self.facts.variable(component)
        finding = self.investigation.findings[component]
        tags = self.tags[component], tag_by_experiment(component, self.facts)
        found = variable.family != "nothing"
        verdict = check.verdict(self.agreement) if found else "untested"
        claim = ClaimRecord(
            kind="computes",
            text=f"{component} computes {variable.words(self.names)}",
            verdict=verdict,
            evidence=(self._evidence(component),),
            tried=max(1, len(finding.ranked)),
        )
        refuted = tuple(
            {"hypothesis": label, "score": round(score, 4)}
            for label, score, hypothesis in finding.ranked
            if hypothesis is not variable and hypothesis != variable.reads
        )
        return ComponentExplanation(
            id=str(component),
            tag=tags[0],
            tag_by_experiment=tags[1],
            note=note(component, self.facts, check, self.names, tags),
            verdict=verdict,
            program=f"{component} = {variable.rasp(self.names)}" if found else None,
            reads=variable.reads,
            claims=(claim,) if found else (),
            refuted=refuted[:8],
            table=self._table(variable),
        )

    def _table(self, variable: Hypothesis) -> dict[str, Any] | None:
        """What the program's line only names: the classes of a table, or where a tabulated route leads."""
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

    def _evidence(self, component: Component) -> Evidence:
        check, finding = self.checks[component], self.investigation.findings[component]
        low, high = share_interval(check.right, check.changed)
        rivals = [score for _, score, _ in finding.ranked if score != finding.score]
        position = self.facts.positions.get(component)
        controls = {
            "all_outputs": check.iia,
            "worst_value_or_position": check.worst,
            "shuffled_source": check.shuffled,
            "variable_ignored": check.ignored,
            "fingerprint_score": finding.score,
            "strongest_rival_score": max(rivals, default=None),
            "program_agreement": self.agreement,
        }
        if position is not None and position.n:
            controls |= {"follows_old_position": position.by_old, "follows_new_position": position.by_new}
        return Evidence(
            experiment="interchange inside the program, fresh pairs",
            measure="share right on changed outputs",
            value=check.iia_changed,
            low=low if check.changed else None,
            high=high if check.changed else None,
            n=check.changed,
            controls=controls,
            rule=RULE,
            seed=self.seed,
        )

    def _edges(self) -> tuple[tuple[str, str, float], ...]:
        """Who reads whom, weighted by the reader's score; the output's readers by the program's agreement."""
        edges = [
            (name, str(component), round(self.facts.scores[component], 4))
            for component, variable in self.facts.program.variables.items()
            for name in variable.reads
        ]
        output = self.facts.program.output
        return tuple(edges) + tuple(
            (name, "output", round(self.agreement, 4)) for name in (output.reads if output else ())
        )

    def _sampled(self) -> str:
        n = len(self.vocabulary.tokens)
        if n <= LARGE_VOCABULARY:
            return ""
        return f" The vocabulary of {n} tokens was sampled, not enumerated: tokens that were not drawn are not covered."


def _abstention(
    specimen: Specimen, circuit: list[Component], reason: str, *, seconds: float, seed: int, rows: int
) -> Explanation:
    """An explanation that says why there is none."""
    return Explanation(
        specimen=specimen.id,
        scientist="builtin",
        components=tuple(
            ComponentExplanation(
                id=str(component),
                tag="AGGREGATOR" if component.is_head else "MAPPER",
                tag_by_experiment="AGGREGATOR" if component.is_head else "MAPPER",
                note=f"Nothing is claimed about {component}: {reason}. The tag is a default.",
                verdict="untested",
            )
            for component in circuit
        ),
        information_flow=f"Not measured: {reason}.",
        task_description=f"No hypothesis was supported: {reason}.",
        seconds=seconds,
        seed=seed,
        rows=rows,
    )
