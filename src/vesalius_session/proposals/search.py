"""Improve an explanation where its ladder loses most: another rule, one more head, another place of a variable.

1. On the prompts that choose, see what is lost between the heads' own patterns and their programs, and between the
   model and the circuit. Where more is lost, that is tried first.
2. Another rule, for the head whose program costs most; the few that overlap best with its own attention are tried.
   One more head, the one that gives most back with its own patterns, with a rule of that kind. First of all, for a
   variable whose place does not carry it, the place of the map that does best.
3. A change that gains is confirmed on other prompts: it is accepted where its gain there lies above zero by its
   interval, and is not tried again.
4. Until a share is kept on the confirming prompts, nothing is left to try, or the passes are spent. What comes out is
   measured on prompts of the test split, which neither chose nor confirmed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component
from vesalius.discovery.head_tests import bos_of
from vesalius.discovery.shares import KeptShare, Shares, share_between
from vesalius.documents.base import FrozenDict
from vesalius.documents.metric import Metric
from vesalius.documents.proposal import Proposal
from vesalius.errors import BadInput
from vesalius.explanations.running import Program, parse_program
from vesalius.explanations.running.ladder import pattern_edits
from vesalius.explanations.running.rules import SEEN, Tokens, library
from vesalius.explanations.variables.align import best_place, grade_places
from vesalius.intervene import Plan, run
from vesalius.intervene.engine import Cost
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress, checkpoint, silent
from vesalius_session.documents import Change, Stopped
from vesalius_session.proposals.reading import algorithm_of
from vesalius_session.proposals.run import TRYING

#: Prompts that choose and that confirm, and the seed of the latter.
CHOOSING, CONFIRMING, CONFIRM_SEED = 16, 32, 11_000_027
#: Rules that are run for a head, the best by overlap; the least that a change must gain where it is chosen.
RULES_RUN, LEAST_GAIN = 6, 0.02
#: Bases whose pairs choose a place, and confirm it.
PAIRS = 12

Looks = Mapping[Component, Program | None]


@dataclass
class Stage:
    """Some prompts, with everything replaced and with nothing: what programs keep on them is asked here."""

    specimen: Specimen
    material: Trial
    cost: Cost = field(default_factory=Cost)

    def __post_init__(self) -> None:
        model = self.specimen.model
        self.shares = Shares(model, self.material)
        self.tokens = Tokens.of(self.specimen, self.material.batch, len(bos_of(self.specimen)))
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.config.n_layers)]
        with torch.no_grad():
            _, cache = model.run_with_cache(self.material.batch.to(model.device).tokens, names=names)
        self.patterns = torch.stack([cache[name].cpu() for name in names], 1)
        self.cost.rows += self.shares.cost.rows + len(self.material.batch)

    def own(self, head: Component) -> Float[Tensor, "prompt query key"]:
        """The attention of a head in the intact run."""
        assert head.head is not None
        return self.patterns[:, head.layer, head.head]

    def scores(self, looks: Looks) -> Float[Tensor, " prompt"]:
        """The score with these heads looking as their programs say (None: as in the intact run), all MLPs, and every
        other head at its counterfactual value.
        """
        checkpoint()
        model = self.specimen.model
        kept = set(looks) | {part for part in model.components if not part.is_head}
        removed = [tuple(part for part in model.components if part not in kept)]
        replacement = self.shares.replacement
        plan = Plan.grid(model.config, removed, choices=replacement.choices, positions=self.material.where)
        if looks:
            patterns = {
                head: self.own(head) if program is None else program.pattern(self.tokens)
                for head, program in looks.items()
            }
            plan = replace(plan, patterns=pattern_edits(model, list(looks), patterns))
        with torch.no_grad():
            return run(self.shares.recordings, plan, replacement.values, cost=self.cost).cpu()

    def kept(self, scores: Float[Tensor, " prompt"]) -> float:
        """The share that scores keep."""
        return self.shares.share(scores).value

    def gain(self, now: Float[Tensor, " prompt"], before: Float[Tensor, " prompt"]) -> KeptShare:
        """The paired gain of a change, as a share."""
        return share_between(self.shares.nothing, self.shares.nothing + now - before, self.shares.full)

    def overlap(self, head: Component, program: Program) -> float:
        """How far a program agrees with a head, over all queries: 1 - total variation."""
        apart = (program.pattern(self.tokens) - self.own(head)).abs().sum(-1) / 2
        return float(1 - apart[self.tokens.queries].mean())


@dataclass
class ExplanationSearcher:
    """A search from a proposal, on prompts of the train split."""

    specimen: Specimen
    proposal: Proposal
    until: float
    most: int
    seed: int = 0
    unsafe: bool = False
    progress: Progress = silent

    def __post_init__(self) -> None:
        config = self.specimen.model.config
        first = trial(self.specimen, CHOOSING, seed=self.seed, split=TRYING)
        self.choose = Stage(self.specimen, first)
        self.confirm = Stage(self.specimen, confirming(self.specimen, first, seed=self.seed))
        self.programs: dict[Component, Program] = {
            Component.parse(name).within(config): parse_program(text) for name, text in self.proposal.programs.items()
        }
        self.variables = dict(self.proposal.variables)
        self.changes: list[Change] = []
        self.tried: set[tuple[str, str]] = set()
        self.forwards = 0.0

    @property
    def passes(self) -> float:
        """Passes of one prompt so far."""
        return self.choose.cost.rows + self.confirm.cost.rows + self.forwards

    @property
    def result(self) -> Proposal:
        """What the explanation says by now."""
        programs = FrozenDict({str(head): str(program) for head, program in sorted(self.programs.items())})
        return self.proposal.model_copy(update={"programs": programs, "variables": FrozenDict(self.variables)})

    def search(self) -> Stopped:
        """Try changes until one of the ends is reached; says which."""
        self._places()
        while True:
            kept = self.confirm.kept(self.confirm.scores(self.programs))
            self.progress(f"searching: the words keep {kept:.2f}", len(self.changes), 0)
            if kept >= self.until:
                return "the share is reached"
            if self.passes >= self.most:
                return "the passes are spent"
            if not any(step() for step in self._steps()):
                return "the passes are spent" if self.passes >= self.most else "nothing is left to try"

    def _steps(self) -> Sequence:
        """What to try, where more is lost first."""
        own: dict[Component, Program | None] = dict.fromkeys(self.programs)
        frozen = self.choose.kept(self.choose.scores(own))
        words = self.choose.kept(self.choose.scores(self.programs))
        steps = [self._another_rule, self._one_more_head]
        return steps if frozen - words >= 1 - frozen else steps[::-1]

    def _another_rule(self) -> bool:
        """Another rule for the head whose program costs most; False where none is left to try."""
        before = self.choose.scores(self.programs)
        lost: dict[Component, float] = {}
        for head in self.programs:
            if ("rule", str(head)) in self.tried or self.passes >= self.most:
                continue
            own = self.choose.scores({**self.programs, head: None})
            lost[head] = self.choose.gain(own, before).value
        head = self._leading("rule", lost)
        if head is None:
            return False
        options = [one for one in self._rules(head) if str(one) != str(self.programs[head])]
        return self._best("rule", head, options, before)

    def _one_more_head(self) -> bool:
        """The head outside that gives most back; False where none gives enough."""
        before = self.choose.scores(self.programs)
        gains: dict[Component, float] = {}
        for head in self.specimen.model.components:
            known = not head.is_head or head in self.programs or ("component", str(head)) in self.tried
            if not known and self.passes < self.most:
                scores = self.choose.scores({**self.programs, head: None})
                gains[head] = self.choose.gain(scores, before).value
        head = self._leading("component", gains)
        if head is None:
            return False
        return self._best("component", head, self._rules(head), before)

    def _leading(self, kind: Literal["rule", "component"], gains: dict[Component, float]) -> Component | None:
        """The head that gives most, which is tried from now on; None where none gives enough."""
        head = max(gains, key=lambda one: gains[one], default=None)
        if head is None or gains[head] < LEAST_GAIN:
            return None
        self.tried.add((kind, str(head)))
        return head

    def _best(
        self,
        kind: Literal["rule", "component"],
        head: Component,
        options: Sequence[Program],
        before: Float[Tensor, " prompt"],
    ) -> bool:
        """Run the options, and confirm the one that gains most on other prompts."""
        gains = {
            program: self.choose.gain(self.choose.scores({**self.programs, head: program}), before).value
            for program in options
        }
        best = max(gains, key=lambda one: gains[one], default=None)
        if best is None or gains[best] < LEAST_GAIN:
            return True  # something was tried: others may be left
        then = self.confirm.scores({**self.programs, head: best})
        confirmed = self.confirm.gain(then, self.confirm.scores(self.programs)).metric()
        accepted = confirmed.low is not None and confirmed.low > 0
        was = self.programs.get(head)
        self.changes.append(
            Change(
                kind=kind,
                of=str(head),
                was=None if was is None else str(was),
                now=str(best),
                chosen=round(gains[best], 4),
                confirmed=confirmed,
                accepted=accepted,
            )
        )
        if accepted:
            self.programs[head] = best
        return True

    def _rules(self, head: Component) -> list[Program]:
        """The rules, alone and for tokens seen before, that overlap best with a head's own attention."""
        rules = library([self.choose.tokens])
        options = [Program(((rule, 1.0),)) for rule in rules]
        options += [Program((("BOS", 1.0),), SEEN, ((rule, 1.0),)) for rule in rules]
        options.sort(key=lambda program: -self.choose.overlap(head, program))
        return options[:RULES_RUN]

    def _places(self) -> None:
        """Another place for every variable whose own does not carry it."""
        if self.proposal.algorithm is None:
            return
        algorithm = algorithm_of(self.proposal.algorithm)
        graded = {"n": PAIRS, "seed": self.seed, "unsafe": self.unsafe}
        own = grade_places(self.specimen, algorithm, self.variables, split=TRYING, **graded)
        self.forwards += own.forwards
        for name, at in own.places.items():
            if at.carries or self.passes >= self.most:
                continue
            found = best_place(self.specimen, algorithm, name, split=TRYING, **graded)
            self.forwards += found.forwards
            if found.place == self.variables[name] or found.score <= (at.accuracy.value or 0.0):
                continue
            other = {**graded, "seed": CONFIRM_SEED + self.seed}
            new = grade_places(self.specimen, algorithm, {name: found.place}, split=TRYING, **other)
            self.forwards += new.forwards
            there = new.places[name]
            self.changes.append(
                Change(
                    kind="place",
                    of=name,
                    was=self.variables[name],
                    now=found.place,
                    chosen=round(found.score - (at.accuracy.value or 0.0), 4),
                    confirmed=there.accuracy,
                    accepted=there.carries and _clear(there.accuracy, at.accuracy),
                )
            )
            if self.changes[-1].accepted:
                self.variables[name] = found.place


def _clear(now: Metric, before: Metric) -> bool:
    return now.low is not None and now.low > (before.value or 0.0)


def confirming(specimen: Specimen, choose: Trial, *, seed: int) -> Trial:
    """Prompts of the same split that are not among those that choose."""
    n = CONFIRMING
    while n >= 4:
        try:
            drawn = trial(specimen, n + CHOOSING, seed=CONFIRM_SEED + seed, split=TRYING, apart_from=choose)
        except BadInput:
            n //= 2
            continue
        return drawn.take(slice(0, n))
    raise BadInput("too few prompts to choose changes on some and confirm them on others; give the behaviour more rows")
