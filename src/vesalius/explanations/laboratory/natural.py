"""The laboratory of a natural model: one behaviour's prompts, drawn and run once, and every experiment on them.

Replacing a component means patching in its value on the counterfactual prompt, zeros, a mean, or its values at other
positions; an effect is the clean score minus the edited one, so a positive effect means that the component helped.
Methods named `..._effects` are in the unit of the metric, on prompts and positions of the caller's choice; the others
are shares of the mean clean score (`scale`) and cached. A *role* is a named position of the prompts; `end` is where the
answer is read.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.metrics import LOGIT_DIFFERENCE, compares_answers, metric_name
from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component, Edge
from vesalius.discovery.head_tests import Target, masses
from vesalius.errors import BadInput, choices
from vesalius.explanations.atlas import standard_names
from vesalius.explanations.laboratory.answers import (
    ANSWER,
    Answers,
    Corrupted,
    Donor,
    DonorRuns,
    Moved,
    NothingChanges,
    answer_readout,
    answers_lost,
    answers_of,
    token_means,
)
from vesalius.explanations.laboratory.base import (
    ALL_REPLACEMENTS,
    CLAIM_SEED,
    FIRST_LOOK,
    Lab,
    PerPrompt,
    Replacement,
    Sets,
    own_circuit,
)
from vesalius.explanations.laboratory.other_tokens import following, patterns_of, without_copies
from vesalius.explanations.laboratory.runs import (
    SINKS,
    HeadPaths,
    Runs,
    at_answer,
    attributed_sides,
    direct_attribution,
    edges_between,
    everywhere,
    logit_difference_of,
    moved_places,
    require_heads,
)
from vesalius.intervene import Plan, Recordings, Values, component_values, means_of, reordered, run, zeros
from vesalius.intervene.plan import KEEP, component_index
from vesalius.intervene.probes import attention_cuts, hooked_scores, zeroing
from vesalius.intervene.signed import LogitSides, parted, word_of
from vesalius.intervene.written_tokens import with_neurons_kept
from vesalius.model.hooks import Hook
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.transformer import Transformer
from vesalius.statistics import above_zero, counted_interval, mean_apart_from_zero

How = Literal["zero", "mean", "token mean", "resample"]
PAIRS = 64
END = "end"
#: Replacements whose answers claims ask for; of the others the score is enough, which needs few logits.
ANSWERED: tuple[str, ...] = ("zero", "mean")
#: Prompts for figures that no verdict rests on.
REPORTED = 8
#: What a component writes to a token counts from this share of the clean logit difference on.
MIN_WRITTEN = 0.03
#: What is lost in score, and in right answers.
Losses = tuple[PerPrompt, PerPrompt]
#: Sender (None: the token embeddings), receiver (None: the logits), and one of its inputs (None: all).
PathKey = tuple[Component | None, Component | None, str | None]
#: Prompts, and the neurons that are kept on them.
KeptApart = tuple[Bool[Tensor, " prompt"], Sequence[int]]


class NaturalLab(Lab):
    """A natural model with prompts of its behaviour. `tokenizer` reads tokens that claims name."""

    finite = False
    needs = "is about roles and answers of a behaviour, so it needs a natural model"

    def __init__(
        self,
        model: Transformer,
        material: Trial,
        *,
        seed: int,
        circuit: Sequence[Component] = (),
        name: str = "model",
        vocabulary: TextVocabulary | None = None,
    ) -> None:
        super().__init__(model, material, seed=seed, circuit=circuit, name=name)
        self.runs, self.vocabulary = Runs(model, material, self.cost), vocabulary
        self._has_prompts = material.prompts is not None
        self._paths: dict[PathKey, PerPrompt] = {}
        self._at_role: dict[tuple[Component, str], PerPrompt] = {}
        self._kept: dict[tuple[Component, tuple[int, ...]], PerPrompt] = {}
        self._following: dict[str, Float[Tensor, "prompt layer head"] | None] = {}
        self._uncopied: tuple[Callable[[int], Tensor], dict[str, Target]] | None = None
        self._exchanges: dict[str, DonorRuns] = {}
        self._exchanged: dict[tuple[Component, str, str, Donor], Answers] = {}
        self._restored: dict[Component, PerPrompt] = {}
        self._answered: dict[tuple[frozenset[Component], str, str | None], Answers] = {}
        self._moved: dict[tuple[frozenset[Component], str, str | None, frozenset[Component]], Losses] = {}
        self._corruptions: dict[str, Corrupted] = {}
        #: For a component those that were seen to do the same on other prompts, which are no control of it.
        self.alike: dict[Component, frozenset[Component]] = {}

    @classmethod
    def draw(
        cls,
        specimen: Specimen,
        n: int = PAIRS,
        *,
        seed: int = CLAIM_SEED,
        split: str = "test",
        circuit: Sequence[Component] | None = None,
    ) -> "NaturalLab":
        """A laboratory on `n` prompts of the behaviour that a natural specimen was loaded for."""
        return cls.on(specimen, trial(specimen, n, seed=seed, split=split, centred=True), seed=seed, circuit=circuit)

    @classmethod
    def on(
        cls, specimen: Specimen, material: Trial, *, seed: int, circuit: Sequence[Component] | None = None
    ) -> "NaturalLab":
        """A laboratory on prompts that were drawn."""
        vocabulary = specimen.vocabulary if isinstance(specimen.vocabulary, TextVocabulary) else None
        circuit = own_circuit(specimen) if circuit is None else circuit
        return cls(specimen.model, material, seed=seed, circuit=circuit, name=specimen.name, vocabulary=vocabulary)

    @property
    def prompts(self) -> Prompts:
        """The behaviour's prompts."""
        return self.runs.prompts

    # Replacements, as every laboratory makes them.

    @cached_property
    def standard_names(self) -> Mapping[str, tuple[str, ...]]:
        """The names that heads have by the tests of the atlas, which hold no behaviour; none where the model is too
        small for them.
        """
        if self.vocabulary is None:
            return {}
        bare = Specimen(
            id=self.name,
            name=self.name,
            kind="natural",
            model=self.model,
            vocabulary=self.vocabulary,
            components=(),
            examples=(),
            draw=lambda n, seed: [],
        )
        return standard_names(bare)

    @cached_property
    def recordings(self) -> Recordings:
        """The clean run; read is the behaviour's metric."""
        return self.runs.recordings

    @cached_property
    def clean_scores(self) -> PerPrompt:
        """The score of each clean prompt: the behaviour's metric, by default the logit difference."""
        return parted(self.runs.clean)[0]

    @cached_property
    def scale(self) -> float:
        """The mean clean score, by which effects are divided to give shares; NaN where its interval does not lie above
        0: the model does not perform the behaviour, and shares are not defined.
        """
        return above_zero(mean_apart_from_zero(self.clean_scores))

    @cached_property
    def replacements(self) -> tuple[Replacement, ...]:
        """The kinds of replacement that can be made: outputs are moved only where an input has another position."""
        if bool((self._moves != torch.arange(self._moves.shape[1])).any()):
            return ALL_REPLACEMENTS
        return tuple(kind for kind in ALL_REPLACEMENTS if kind != "moved")

    @property
    def looks_first(self) -> bool:
        """Whether there are more prompts than a first look takes: every run is expensive."""
        return self.n > FIRST_LOOK

    @property
    def answer_positions(self) -> Int[Tensor, "prompt query"] | None:
        """The positions at which the answer is read."""
        return self.runs.readout.at

    def matched(self, component: Component, *, exclude: Sequence[Component] = (), k: int = 4) -> list[Component]:
        """Up to `k` components of the same kind outside the circuit and the claim that do not do the same (`alike`),
        drawn with the lab's seed. As every run is expensive, all components of a kind have the same controls.
        """
        excluded = {component, *exclude, *self.circuit, *self.alike.get(component, ())}
        kind = [c for c in self.model.components if c.is_head == component.is_head]
        shuffled = random.Random(f"{self.seed}/{'heads' if component.is_head else 'MLPs'}").sample(kind, len(kind))
        return [c for c in shuffled if c not in excluded][:k]

    def token_ids(self, tokens: Sequence[object]) -> list[int]:
        """The ids of tokens that a claim names."""
        if self.vocabulary is None:
            raise BadInput(f"tokens of {self.name!r} have no text here; name a position or an offset")
        return [self.vocabulary.tokenizer.token(str(token)) for token in tokens]

    def _read_by(self, replacement: Replacement) -> Recordings:
        return self._answers if replacement in ANSWERED and self._has_prompts else self.recordings

    def _to_scores(self, readings: Tensor) -> PerPrompt:
        return readings if readings.ndim == 1 else readings[:, 0].float()

    def _made(self, replacement: str) -> Values:
        if replacement == "mean":
            return means_of(self.model, self.runs.source_values)
        if replacement == "moved":
            return reordered(self.runs.source_values, self._moves)
        return token_means(self.runs) if replacement == "token mean" else self.runs.source_values

    @cached_property
    def _moves(self) -> Int[Tensor, "prompt pos"]:
        return moved_places(self.source, self.model.config.bos_token, torch.Generator().manual_seed(self.seed + 5))

    def counted_ends(self, values: PerPrompt, level: float) -> tuple[float, float]:
        """As `ends`, of answers that are lost and gained: exact, for none lost of a few does not show that none is."""
        return counted_interval(values.double().numpy(), level=level)

    # Effects in the unit of the metric, on any prompts and positions.

    def patch_effects(
        self,
        sets: Sets,
        *,
        prompts: Int[Tensor, " chosen"] | None = None,
        positions: Bool[Tensor, "prompt pos"] | None = None,
    ) -> Float[Tensor, "chosen set"]:
        """Effect of patching each set from the counterfactual on each prompt (default: all prompts, everywhere)."""
        return parted(self.runs.patched(sets, self._rows(prompts), positions), 2)[0]

    def path_effects(
        self, paths: Sequence[Sequence[Edge]], *, prompts: Int[Tensor, " chosen"] | None = None
    ) -> Float[Tensor, "chosen path"]:
        """Effect of patching all edges of a path at once with their senders' outputs on the counterfactual."""
        return parted(self.runs.along(paths, self._rows(prompts)), 2)[0]

    def _rows(self, prompts: Int[Tensor, " chosen"] | None) -> Int[Tensor, " chosen"]:
        return torch.arange(self.n) if prompts is None else prompts

    def output_effects(
        self,
        component: Component,
        output: Float[Tensor, "prompt pos width"],
        *,
        positions: Bool[Tensor, "prompt pos"] | None = None,
        n: int | None = None,
    ) -> PerPrompt:
        """Effect of patching another z into a head, or another output into an MLP, on the first `n` prompts (default:
        all).
        """
        n = self.n if n is None else min(n, self.n)
        where = None if positions is None else positions[:n]
        plan = Plan.each(self.model.config, torch.arange(n), component, positions=where)
        readings = run(self.recordings, plan, component_values(self.model, component, output[:n]), cost=self.cost)
        return self.clean_scores[:n] - parted(readings.cpu())[0]

    def kept_effects(
        self, mlp: Component, neurons: Sequence[int], *, n: int | None = None, apart: KeptApart | None = None
    ) -> PerPrompt:
        """Effect of replacing all neurons of an MLP but these on the first `n` prompts (default: all); `apart` are
        prompts on which others are kept.
        """
        inputs = {"read": self.runs.mlp_input(mlp.layer), "other": self.runs.mlp_input(mlp.layer, source=True)}
        output = with_neurons_kept(self.model, mlp, neurons, **inputs)
        if apart is not None:
            prompts, others = apart
            here = prompts[:, None, None].to(output.device)
            output = torch.where(here, with_neurons_kept(self.model, mlp, others, **inputs), output)
        return self.output_effects(mlp, output, positions=self._where, n=n)

    def without_keys(
        self, head: Component, target: Target, *, positions: Bool[Tensor, "prompt pos"], n: int | None = None
    ) -> PerPrompt:
        """Effect of taking the target keys out of a head's attention, of the first `n` prompts, as a share."""
        z = HeadPaths(self.runs, head).z_without_keys(target)
        return self.output_effects(head, z, positions=positions, n=n) / self.scale

    def restored(
        self, sets: Sets, *, positions: Bool[Tensor, "prompt pos"] | None = None, n: int | None = None
    ) -> Float[Tensor, "prompt set"]:
        """What patching the clean values of each set into the counterfactual run restores on the first `n` prompts
        (default: all), as a share of the mean difference between the clean and the counterfactual score.
        """
        index = torch.arange(self.n if n is None else min(n, self.n))
        corrupted, gained = self.runs.restored(sets, index, positions)
        return parted(gained, 2)[0] / mean_apart_from_zero(self.clean_scores[index] - parted(corrupted)[0])

    # Shares of the clean score, cached.

    def at_role(self, component: Component, role: str = END) -> PerPrompt:
        """Effect of replacing a component at a role's position only, by default where the answer is read."""
        self.measure_single([component], restored=False, at=role)
        return self._at_role[component, role]

    def restored_by(self, component: Component) -> PerPrompt:
        """What patching its clean value into the counterfactual run restores, on the first `REPORTED` prompts."""
        self.measure_single([component])
        return self._restored[component]

    def measure_single(self, components: Sequence[Component], *, restored: bool = True, at: str = END) -> None:
        """Measure what `at_role` and `restored_by` ask of several components, in one run each."""
        if missing := [part for part in components if (part, at) not in self._at_role]:
            effects = self.patch_effects([[part] for part in missing], positions=self.mask(at)) / self.scale
            self._at_role |= {(part, at): effect for part, effect in zip(missing, effects.T, strict=True)}
        if missing := [part for part in components if restored and part not in self._restored]:
            shares = self.restored([[part] for part in missing], n=REPORTED)
            self._restored |= dict(zip(missing, shares.T, strict=True))

    def path(
        self, sender: Component | None, receiver: Component | None, port: str | None = None, *, n: int | None = None
    ) -> PerPrompt:
        """Effect of the direct path from one component into another, or into one input of it, on the first `n` prompts
        (default: all).
        """
        self.measure_paths([(sender, receiver, port)], n=n)
        return self._paths[sender, receiver, port][:n]

    def measure_paths(self, keys: Sequence[PathKey], *, n: int | None = None) -> None:
        """Measure several paths in one batch on the first `n` prompts (default: all); nothing is run twice."""
        n = self.n if n is None else min(n, self.n)
        missing: dict[int, list[PathKey]] = {}
        for key in dict.fromkeys(keys):
            known = len(self._paths.get(key, ()))
            if known < n:
                missing.setdefault(known, []).append(key)
        for known, some in missing.items():
            edges = [[e for e in edges_between(a, b) if port in (None, e.port)] for a, b, port in some]
            effects = self.path_effects(edges, prompts=torch.arange(known, n)) / self.scale
            for i, key in enumerate(some):
                self._paths[key] = torch.cat([self._paths[key], effects[:, i]]) if known else effects[:, i]

    def kept_by(self, mlp: Component, neurons: Sequence[int]) -> PerPrompt:
        """Effect of replacing all neurons of an MLP but these."""
        key = mlp, tuple(neurons)
        if key not in self._kept:
            self._kept[key] = self.kept_effects(mlp, neurons) / self.scale
        return self._kept[key]

    def lens(self, component: Component, *, shuffle: bool = False) -> PerPrompt:
        """Its direct logit attribution, as a share of the clean score, or where that is not a logit difference of the
        difference that the final residual stream makes.
        """
        return direct_attribution(self.runs, component, shuffle=shuffle) / self.lens_scale

    # What becomes of the right answer's logit, of the wrong one's and of the rest; None where the metric has no sides.

    def sides(self, components: Sequence[Component], replacement: Replacement) -> LogitSides | None:
        """Clean minus edited logits of each prompt with some components replaced; read of the runs of `effect`."""
        clean, (reading,) = parted(self.runs.clean)[1], self.readings([components], replacement)
        return None if clean is None else clean.minus(LogitSides(*reading[:, -3:].float().unbind(1)))

    def direct_sides(self, component: Component) -> LogitSides | None:
        """What a component adds to each of them directly, by the logit lens; no run is needed."""
        return attributed_sides(self.runs, component) if compares_answers(self.prompts.metric) else None

    def word(self, component: Component, *, level: float = 0.95) -> str | None:
        """The name of what a component writes directly (`signed.words_of`), where it is at least `MIN_WRITTEN` of the
        clean logit difference.
        """
        sides, scale = self.direct_sides(component), self.lens_scale
        if sides is None or math.isnan(scale):
            return None
        return word_of(sides, least=MIN_WRITTEN * scale, level=level, seed=self.seed)

    @property
    def lens_unit(self) -> str:
        """What the logit lens gives shares of."""
        return "score" if metric_name(self.prompts.metric) == LOGIT_DIFFERENCE else "logit difference"

    @cached_property
    def lens_scale(self) -> float:
        """What the logit lens gives shares of, in logits."""
        if self.lens_unit == "score":
            return self.scale
        return above_zero(mean_apart_from_zero(logit_difference_of(self.runs, self.runs.final_resid)))

    # Attention on roles.

    @cached_property
    def general_targets(self) -> dict[str, Target]:
        """The general roles, from every position."""
        return everywhere(self.runs)

    @cached_property
    def answer_targets(self) -> dict[str, Target]:
        """The general roles and the behaviour's own, from the answer position."""
        return at_answer(self.runs)

    def target(self, role: str) -> Target:
        """The (query, key) pairs of a role: from every position for a general one, else from the answer position."""
        general = self.general_targets
        targets = self.answer_targets if role in SINKS or role not in general else general
        if role not in targets:
            known = dict.fromkeys([*self.answer_targets, *general])
            raise BadInput(f"role {role!r:.80}: is none of this behaviour's; there are {choices(known)}")
        return targets[role]

    def mass(self, head: Component, target: Target) -> PerPrompt:
        """A head's attention on a target, for the prompts that have one."""
        mass = masses(self.runs.pattern(head.layer)[:, [head.head]], target)[:, 0]
        return mass[~torch.isnan(mass)]

    def follows(self, head: Component, role: str) -> PerPrompt | None:
        """How much more a head attends from the answer position to a role than to where it was, once it is moved
        (`other_tokens.following`); None where prompts have no room for that.
        """
        if role not in self._following:
            self._following[role] = following(self.runs, self.place(role))
        moved = self._following[role]
        return None if moved is None else moved[:, head.layer, head.head]

    def mass_without_copies(self, head: Component, role: str) -> PerPrompt:
        """A head's attention on the places of copies where these are exchanged for other tokens."""
        if self._uncopied is None:
            tokens, targets = without_copies(self.runs, seed=self.seed)
            self._uncopied = patterns_of(self.runs, tokens, self.prompts.mask), targets
        pattern, targets = self._uncopied
        mass = masses(pattern(head.layer)[:, [head.head]], targets[role])[:, 0]
        return mass[~torch.isnan(mass)]

    def attention_masses(self, head: Component, query: str = END) -> dict[str, PerPrompt]:
        """A head's attention from one role's position to that of every other; 0 where that comes later."""
        require_heads([head])
        rows, at = torch.arange(self.n), self.place(query)
        weights = self.weights_from(head, at)
        return {role: torch.where(place <= at, weights[rows, place], 0.0) for role, place in self.keys_of(at).items()}

    def weights_from(self, head: Component, at: Int[Tensor, " prompt"]) -> Float[Tensor, "prompt key"]:
        """A head's attention from one position of each prompt."""
        return self.runs.pattern(head.layer)[torch.arange(self.n), head.head, at].cpu()

    # Positions by role.

    @cached_property
    def places(self) -> dict[str, Int[Tensor, " prompt"]]:
        """The position of every role in each prompt."""
        return {**self.prompts.roles, END: self.prompts.position}

    def place(self, role: str) -> Int[Tensor, " prompt"]:
        """The position of one role."""
        if role not in self.places:
            raise BadInput(f"role {role!r} does not exist; the prompts have {choices(self.places)}")
        return self.places[role]

    def keys_of(self, query: Int[Tensor, " prompt"]) -> dict[str, Int[Tensor, " prompt"]]:
        """Positions that attention is reported for: the behaviour's roles, the first token, and the query itself."""
        first = "BOS" if self.runs.first else "first token"
        named = {role: place for role, place in self.places.items() if not bool((place == query).all())}
        return {first: torch.zeros_like(query), **named, "itself": query}

    def mask(self, role: str | None) -> Bool[Tensor, "prompt pos"] | None:
        """True at a role's position; None (everywhere) without one."""
        if role is None:
            return None
        return torch.zeros_like(self.prompts.mask).scatter_(1, self.place(role)[:, None], True)

    # Answers, beside the score.

    @cached_property
    def _answers(self) -> Recordings:
        return self.recordings.read_as(answer_readout(self.runs))

    @cached_property
    def clean_answers(self) -> Answers:
        """What the unchanged model answers."""
        return answers_of(self._answers.scores())

    def answers(self, sets: Sets, how: How, at: str | None) -> list[Answers]:
        """The answers with each set replaced; every set is run once, those that are missing in one run."""
        if at is None and (how == "zero" or how == "mean"):
            return [answers_of(reading) for reading in self.readings(sets, how)]
        keys = [(frozenset(members), how, at) for members in sets]
        missing = [key for key in dict.fromkeys(keys) if key not in self._answered]
        if missing:
            runs = self.edited([sorted(key[0]) for key in missing], self.values_by(how), at=at)
            self._answered |= dict(zip(missing, runs, strict=True))
        return [self._answered[key] for key in keys]

    def values_by(self, how: str) -> Values:
        """The values of a replacement that agents name."""
        if how not in get_args(How):
            raise BadInput(f"replacement {how!r} does not exist; choose one of {choices(get_args(How))}")
        return self.table(how)

    def edited(
        self,
        sets: Sets,
        values: Values,
        *,
        at: str | None = None,
        suppressed: Sequence[Component] = (),
        read_by: Recordings | None = None,
    ) -> list[Answers]:
        """The answers with each set replaced (an empty set: none) and the suppressed components zeroed."""
        n, config, where = self.n, self.model.config, self.mask(at)
        choice = torch.full((len(sets), n, len(self.model.components)), KEEP)
        chosen = torch.zeros(n, dtype=torch.long) if len(values) == 1 else torch.arange(n)
        for place, group in enumerate(sets):
            for part in group:
                choice[place, :, component_index(part, config)] = chosen
        if suppressed:
            choice[:, :, [component_index(part, config) for part in suppressed]] = len(values)
            values = values.stack(zeros(self.model))
        rows = torch.arange(n).repeat(len(sets))
        plan = Plan(rows, choice.flatten(0, 1), None if where is None else where[rows])
        readings = run(self._answers if read_by is None else read_by, plan, values, cost=self.cost)
        return [answers_of(part) for part in readings.split(n)]

    def hooked(self, hooks: Sequence[Hook]) -> Answers:
        """The answers of one run with hooks."""
        self.cost.rows += self.n
        return answers_of(hooked_scores(self.model, self.runs.batch, self._answers.readout, hooks))

    def lost(self, before: Answers, after: Answers) -> Losses:
        """The score (as a share) and the right answers that one run has lost against another."""
        return (before.score - after.score) / self.scale, answers_lost(before, after)

    def losses(self, components: Sequence[Component], how: How, at: str | None = None) -> Losses:
        """The score (as a share) and the right answers that replacing a set costs."""
        (after,) = self.answers([components], how, at)
        return self.lost(self.clean_answers, after)

    def backup_gains(
        self, components: Sequence[Component], others: Sequence[Component], how: How, at: str | None
    ) -> list[Losses]:
        """How much more replacing each of some components costs once others are replaced, as `losses`."""
        singles, both = [[part] for part in components], [[*others, part] for part in components]
        rest, *runs = self.answers([others, *singles, *both], how, at)
        gains = []
        for alone, after in zip(runs[: len(singles)], runs[len(singles) :], strict=True):
            then, before = self.lost(rest, after), self.lost(self.clean_answers, alone)
            gains.append((then[0] - before[0], then[1] - before[1]))
        return gains

    def cut(
        self, heads: Sequence[Component], key: str, query: str, suppressed: Sequence[Component] = ()
    ) -> tuple[Answers, Answers]:
        """The answers before and after some heads' attention from one role's position on another is set to zero."""
        require_heads(heads)
        asked = self.place(query)
        there = self.keys_of(asked).get(key)
        there = self.place(key) if there is None else there
        if not suppressed and len({head.layer for head in heads}) == 1:
            return self.clean_answers, self.edited([heads], self.runs.values_without(heads, asked, there), at=query)[0]
        zeroed = zeroing(self.model, suppressed, asked)
        before = self.hooked(zeroed) if suppressed else self.clean_answers
        return before, self.hooked([*zeroed, *attention_cuts(heads, asked, there)])

    # What MLPs write, exchanged between prompts (`exchanges`).

    def exchange(self, variable: str) -> DonorRuns:
        """The prompts with donors that differ in the token of a role, or in the answer; refuses a role that no answer
        depends on.
        """
        if variable not in self._exchanges:
            changed = None if variable == ANSWER else self.corrupted(variable)
            self._exchanges[variable] = DonorRuns(self.runs, self.places, self.clean_answers, changed)
        return self._exchanges[variable]

    def exchange_moves(self, variable: str) -> Moved:
        """What the donors' classes predict."""
        return self.exchange(variable).moved

    def exchanged(self, mlp: Component, variable: str, at: str, donor: Donor = "other") -> Answers:
        """The answers with an MLP's output at a role's position from donors."""
        key = mlp, variable, at, donor
        if key not in self._exchanged:
            self._exchanged[key] = self.exchange(variable).answers(mlp, at, donor)
        return self._exchanged[key]

    def written_apart(self, mlp: Component, variable: str, at: str) -> Float[Tensor, "prompt d_model"]:
        """What an MLP writes where earlier MLPs give it what they write on the donors."""
        return self.exchange(variable).written_apart(mlp, at)

    # Runs with another token at one role.

    def corrupted(self, role: str) -> Corrupted:
        """The prompts with another prompt's token at a role, run once; refuses a role that no answer depends on."""
        if role not in self._corruptions:
            self._corruptions[role] = Corrupted(self.runs, role, self.place(role), self.clean_answers)
        if not bool(self._corruptions[role].differs.any()):
            raise NothingChanges(role)
        return self._corruptions[role]

    def moved_shares(
        self, sets: Sets, role: str, at: str | None = END, suppressed: Sequence[Component] = ()
    ) -> list[Losses]:
        """Where patching each set from the corrupted run makes the answer that run's, and how far it moves the logits,
        on the prompts whose answer changes; every set is run once, those that are missing in one run.
        """
        keys = [(frozenset(one), role, at, frozenset(suppressed)) for one in sets]
        if missing := [key for key in dict.fromkeys(keys) if key not in self._moved]:
            sets = [(), *(sorted(key[0]) for key in missing)]
            before, *runs = self._moved_answers(sets, role, at, suppressed)
            self._moved |= dict(zip(missing, self.corrupted(role).moved.shares(before, runs), strict=True))
        return [self._moved[key] for key in keys]

    def moved_by_values(
        self, sets: Sets, role: str, at: str | None = END, suppressed: Sequence[Component] = ()
    ) -> list[PerPrompt]:
        """How far sets of heads move the logits, as `moved_shares`, where their values at other positions alone come
        from the corrupted run and they attend as on the clean prompts.
        """
        before, *runs = self._moved_answers([(), *sets], role, at, suppressed, by_values=True)
        return [moved for _, moved in self.corrupted(role).moved.shares(before, runs)]

    def _moved_answers(
        self, sets: Sets, role: str, at: str | None, suppressed: Sequence[Component], *, by_values: bool = False
    ) -> list[Answers]:
        """The answers with each set patched from the corrupted run, or by its values at other positions only."""
        source, where = self.corrupted(role), None if at is None else self.place(at)
        heads = sorted({head for group in sets for head in group}) if by_values else []
        values = source.outputs_by_values(heads, suppressed, where) if heads else source.outputs(suppressed, where)
        return self.edited(sets, values, at=at, suppressed=suppressed, read_by=source.recordings)
