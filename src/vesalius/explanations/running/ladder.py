"""The ladder: what is left of a behaviour as words take the place of more and more of the model.

Every variant is a row of the engine for each prompt: components outside are replaced from the counterfactual prompt,
heads inside have a pattern set, and may read given values. Shares are paired over prompts, and controls draw patterns
anew for each prompt, so that no single draw decides.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.discovery.shares import KeptShare, Shares, share_between
from vesalius.documents.metric import Metric
from vesalius.documents.running import (
    ALL_BOS,
    CIRCUIT,
    CONTROLLED,
    COUNTERFACTUAL,
    FROZEN,
    LOOKUPS,
    MEAN_LOOKUPS,
    MISPLACED,
    NAMED_MLPS,
    POSITION_MEAN,
    PROGRAMS,
    RANDOM,
    SHUFFLED,
    SHUFFLED_LOOKUPS,
    TOKEN_VALUES,
    VARIABLE_VALUES,
    WHOLE,
    Rung,
)
from vesalius.explanations.claims.base import MIN_EFFECT
from vesalius.explanations.running.lookups import Lookups, shuffled_words, words_of
from vesalius.explanations.running.misplaced import misplaced
from vesalius.explanations.running.programs import Program
from vesalius.explanations.running.rules import Tokens, Values, library, token_values, variable_values
from vesalius.intervene import Plan, Readout, run
from vesalius.intervene.engine import Cost
from vesalius.intervene.patterns import OWN, PatternEdits
from vesalius.intervene.readout import chosen_logits
from vesalius.intervene.values import Values as Replacements
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, checkpoint, silent

#: Draws of shuffled and of random programs for each prompt.
DRAWS = 2
#: What each rung is compared with.
BELOW = {
    CIRCUIT: WHOLE,
    FROZEN: CIRCUIT,
    PROGRAMS: FROZEN,
    VARIABLE_VALUES: PROGRAMS,
    TOKEN_VALUES: PROGRAMS,
    NAMED_MLPS: PROGRAMS,
    LOOKUPS: PROGRAMS,
}
Patterns = Mapping[Component, Float[Tensor, "prompt query key"]]


@dataclass(frozen=True)
class Words:
    """What is put in the place of a set: programs for its heads, and its MLPs, of which some are tables."""

    programs: Mapping[Component, Program]
    mlps: Collection[Component]
    lookups: Lookups | None = None

    @property
    def heads(self) -> list[Component]:
        """The heads that have a program."""
        return list(self.programs)


@dataclass(frozen=True)
class Stage:
    """The prompts that a ladder is measured on: what rules see of them, and patterns of the heads on them, on their
    counterfactuals, and on average at each position.
    """

    tokens: Tokens
    own: Patterns
    counterfactual: Patterns
    position_means: Patterns


@dataclass(frozen=True)
class Readings:
    """For each variant the score, the logits of right and wrong (NaN where there are none) and whether the answer was
    right, prompt by prompt.
    """

    variants: Mapping[str, Float[Tensor, "prompt 4"]]
    nothing: Float[Tensor, " prompt"]

    def score(self, name: str) -> Float[Tensor, " prompt"]:
        """The score of every prompt."""
        return self.variants[name][:, 0]

    def kept(self, name: str) -> KeptShare:
        """The share that a variant keeps."""
        return share_between(self.nothing, self.score(name), self.score(WHOLE))

    def difference(self, name: str, other: str) -> KeptShare:
        """By how much of the range a variant keeps more than another, paired."""
        more = self.nothing + self.score(name) - self.score(other)
        return share_between(self.nothing, more, self.score(WHOLE))


def measured(
    shares: Shares,
    stage: Stage,
    words: Words,
    *,
    seed: int,
    prefix: Sequence[int],
    cost: Cost,
    progress: Progress = silent,
) -> Readings:
    """Run every rung and control on the prompts of `shares`, from their runs; `prefix` is what stands before every
    text.
    """
    model, material, replacement, heads = shares.model, shares.material, shares.replacement, words.heads
    recordings = shares.recordings.read_as(_readings(material, model))
    assert material.prompts is not None
    patterns = _Patterns(stage, words, material.prompts, seed)
    full = recordings.scores().cpu()
    parts, every = list(model.components), set(model.components)
    named = set(heads) | {part for part in parts if not part.is_head}
    variants: list[tuple[str, set[Component], Patterns | None, Values | None]] = [(CIRCUIT, every - named, None, None)]
    tables: dict[str, Replacements] = {}
    if heads:
        variants += [(name, every - named, one, None) for name, one in patterns.variants()]
        alone = token_values(model, stage.tokens, heads, prefix, cost)
        if (given := variable_values(model, alone, material.prompts, cost)) is not None:
            variants.append((VARIABLE_VALUES, every - named, patterns.programs, given))
        variants.append((TOKEN_VALUES, every - named, patterns.programs, alone))
        if any(not part.is_head for part in every - set(words.mlps)):
            variants.append((NAMED_MLPS, every - set(heads) - set(words.mlps), patterns.programs, None))
        if words.lookups is not None:
            tables = _tables(shares, words.lookups, material.prompts, patterns.rng)
            variants += [(name, every - named | set(words.lookups.by), patterns.programs, None) for name in tables]
    found: dict[str, list[Tensor]] = {WHOLE: [full]}

    def rows(
        name: str, removed: Collection[Component], looks: Patterns | None, read: Values | None
    ) -> Float[Tensor, "prompt 4"]:
        plan = Plan.grid(model.config, [tuple(removed)], choices=replacement.choices, positions=material.where)
        if looks:
            edits = pattern_edits(model, heads, looks, read)
            plan = replace(plan, patterns=edits)
        return run(recordings, plan, tables.get(name, replacement.values), cost=cost).cpu()

    for place, (name, removed, looks, read) in enumerate(variants, 1):
        checkpoint()
        progress("running the explanation in the model's place", place, len(variants))
        found.setdefault(name, []).append(rows(name, removed, looks, read))
    return Readings({name: torch.stack(several).mean(0) for name, several in found.items()}, shares.nothing)


def rungs_of(here: Readings, elsewhere: Readings | None) -> tuple[tuple[Rung, ...], tuple[Rung, ...]]:
    """The rungs and the controls of a ladder, from its readings on held-out prompts and on other templates."""
    rungs = [_rung(name, here, elsewhere, BELOW.get(name)) for name in (WHOLE, *BELOW) if name in here.variants]
    controls = [_control(name, here, elsewhere) for name in here.variants if name != WHOLE and name not in BELOW]
    return tuple(rungs), tuple(controls)


def _rung(name: str, here: Readings, elsewhere: Readings | None, below: str | None) -> Rung:
    values = here.variants[name]
    top1 = Metric.of_mean(values[:, 3])
    right, wrong = (None if bool(side.isnan().any()) else round(float(side.mean()), 4) for side in values[:, 1:3].T)
    change = there = fault = None
    if below is not None:
        change = here.difference(name, below).metric()
        there = None if elsewhere is None else elsewhere.difference(name, below).metric()
        if change.low is not None and change.low > MIN_EFFECT:
            fault = f"`{name}` keeps {change.value:.2f} more than `{below}`: what it takes away hinders there"
    return Rung(
        step=name,
        kept=here.kept(name).metric(),
        elsewhere=None if elsewhere is None else elsewhere.kept(name).metric(),
        top1=top1,
        right=right,
        wrong=wrong,
        below=below,
        change=change,
        change_elsewhere=there,
        fault=fault,
    )


def _control(name: str, here: Readings, elsewhere: Readings | None) -> Rung:
    """A control; its change is what the programs (or the tables that it controls) keep beyond it."""
    of = CONTROLLED.get(name, PROGRAMS)
    more = here.difference(of, name).metric()
    there = None if elsewhere is None else elsewhere.difference(of, name).metric()
    plain = _rung(name, here, elsewhere, None)
    return plain.model_copy(update={"below": of, "change": more, "change_elsewhere": there})


def _tables(shares: Shares, lookups: Lookups, prompts: Prompts, rng: random.Random) -> dict[str, Replacements]:
    """What MLPs that are tables write, by variant."""
    own = words_of(prompts)
    return {
        LOOKUPS: lookups.values(shares, own),
        SHUFFLED_LOOKUPS: lookups.values(shares, shuffled_words(own, rng)),
        MEAN_LOOKUPS: lookups.values(shares, own, mean=True),
    }


def _readings(material: Trial, model: Transformer) -> Readout:
    """The score, the logits of right and wrong where the metric compares two answers, and whether the right answer
    was said.
    """
    base, prompts = material.signed(model), material.prompts
    assert prompts is not None
    assert base.at is not None
    said, read = prompts.said(), base.at.shape[1]

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        values = base.score(chosen_logits(base, logits[:, :read], prompt), prompt)
        right = said.score(logits, prompt).to(values)
        if values.ndim == 1:
            none = torch.full_like(values, torch.nan)
            return torch.stack([values, none, none, right], 1)
        return torch.stack([*values.unbind(1)[:3], right], 1)

    return Readout(score, said.at, None, base.unit)


class _Patterns:
    """The patterns that heads are given, by variant."""

    def __init__(self, stage: Stage, words: Words, prompts: Prompts, seed: int) -> None:
        self.stage, self.words, self.prompts, self.rng = stage, words, prompts, random.Random(f"ladder/{seed}")
        self.programs = {head: program.pattern(stage.tokens) for head, program in words.programs.items()}

    def variants(self) -> list[tuple[str, Patterns]]:
        """Each variant, those that are drawn several times."""
        stage, heads = self.stage, self.words.heads
        bos = torch.zeros_like(next(iter(self.programs.values())))
        bos[:, :, 0] = 1.0
        drawn = [(RANDOM, self._random()) for _ in range(DRAWS)]
        if len({str(program) for program in self.words.programs.values()}) > 1:
            drawn += [(SHUFFLED, self._shuffled()) for _ in range(DRAWS)]
        moved = misplaced(stage.own, self.prompts) if heads else None
        return [
            (FROZEN, stage.own),
            (PROGRAMS, self.programs),
            *drawn,
            (ALL_BOS, dict.fromkeys(heads, bos)),
            (COUNTERFACTUAL, stage.counterfactual),
            *([] if moved is None else [(MISPLACED, moved)]),
            (POSITION_MEAN, stage.position_means),
        ]

    def _shuffled(self) -> Patterns:
        """Programs of other heads, drawn anew for each prompt. None is the head's own: where redundant heads have the
        same one, an exchange among them would leave everything as it is.
        """
        heads, n = self.words.heads, len(self.stage.tokens.ids)
        together = torch.stack([self.programs[head] for head in heads])
        texts = [str(self.words.programs[head]) for head in heads]
        found = {}
        for head, own in zip(heads, texts, strict=True):
            others = [place for place, text in enumerate(texts) if text != own]
            found[head] = together[torch.tensor(self.rng.choices(others, k=n)), torch.arange(n)]
        return found

    def _random(self) -> Patterns:
        """As many rules as each program has, drawn anew for each prompt, with random weights."""
        tokens = self.stage.tokens
        rules = library([tokens])
        looks = torch.stack([tokens.look(rule)[0] for rule in rules])
        generator = torch.Generator().manual_seed(self.rng.getrandbits(40))
        found = {}
        for head, program in self.words.programs.items():
            size, n = len(program.rules), len(tokens.ids)
            chosen = torch.rand(n, len(rules), generator=generator).argsort(1)[:, :size]
            weights = torch.rand(n, size, generator=generator).clamp(min=1e-6).log().neg()
            weights = weights / weights.sum(1, keepdim=True)
            mixed = torch.einsum("ns,nsqk->nqk", weights, looks[chosen, torch.arange(n)[:, None]])
            found[head] = torch.where(tokens.real[..., None], mixed, program.pattern(tokens))
        return found


def pattern_edits(
    model: Transformer, heads: Sequence[Component], looks: Patterns, values: Values | None = None
) -> PatternEdits:
    """Patterns for every head on every prompt, one row of a plan for each prompt."""
    n = len(looks[heads[0]])
    row = torch.arange(n).repeat(len(heads))
    index = torch.tensor([head.layer * model.config.n_heads + (head.head or 0) for head in heads])
    table = torch.cat([looks[head] for head in heads]).to(model.device)
    place = torch.full_like(row, OWN) if values is None else torch.cat([values.place(head) for head in heads])
    read = None if values is None else values.vectors.to(model.device)
    return PatternEdits(row, index.repeat_interleave(n), torch.arange(len(table)), table, place, read)
