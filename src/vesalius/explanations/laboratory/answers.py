"""What runs of the prompts answered, and runs that claims about answers need beside the clean and the counterfactual.

`Answers` are read of any run: score, predicted token, whether it is right, and its margin over a rival answer. *Token
means* say what a position would hold if only its own token were known (the "context-aware mean" of arithmetic studies):
the mean over the prompts that have the same token at the same position, or, where prompts differ in length, the same
token anywhere. *Corrupted* prompts have one role's token from another prompt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.metrics import NONE
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.laboratory.base import PerPrompt
from vesalius.explanations.laboratory.runs import Runs
from vesalius.intervene import Batch, Plan, Readout, Values, component_values, run
from vesalius.intervene.probes import hooked_scores, zeroing
from vesalius.intervene.readout import chosen_logits
from vesalius.intervene.signed import LogitSides, parted
from vesalius.intervene.values import activations, activations_and_logits
from vesalius.intervene.written_tokens import final_margin, mlp_output
from vesalius.model.hooks import Hook
from vesalius.statistics import above_zero, mean_apart_from_zero

#: What the heads of each layer read at every position.
Read = tuple[Float[Tensor, "prompt pos kv_head d_head"], ...]


@dataclass(frozen=True)
class Answers:
    """One value per prompt. `token` is the most likely next token; `right` that it is an answer, or that every token of
    an answer of several is predicted; `margin` is logit(rival answer) - logit(own answer), where those were given.
    """

    score: Float[Tensor, " prompt"]
    token: Int[Tensor, " prompt"]
    right: Bool[Tensor, " prompt"]
    margin: Float[Tensor, " prompt"]
    sides: LogitSides | None = None

    @classmethod
    def joined(cls, parts: Sequence["Answers"]) -> "Answers":
        """The answers of several parts of the prompts, one after the other."""
        score, token, right, margin = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("score", "token", "right", "margin")
        )
        sides = [part.sides for part in parts if part.sides is not None]
        joined = LogitSides(*map(torch.cat, zip(*sides, strict=True))) if len(sides) == len(parts) else None
        return cls(score, token, right, margin, joined)


def answers_of(reading: Float[Tensor, "prompt read"]) -> Answers:
    """From what `answer_readout` reads."""
    score, token, right, margin, *sides = reading.cpu().unbind(1)
    logits = LogitSides(*(side.float() for side in sides)) if sides else None
    return Answers(score.float(), token.long(), right > 0.5, margin.float(), logits)


def answers_lost(before: Answers, after: Answers) -> Float[Tensor, " prompt"]:
    """1 where a right answer is lost, -1 where one is gained, else 0."""
    return before.right.float() - after.right.float()


def answer_readout(
    runs: Runs, *, own: Int[Tensor, " prompt"] | None = None, rival: Int[Tensor, " prompt"] | None = None
) -> Readout:
    """A readout of the prompts' metric, the predicted token, whether it is right, and the margin of `rival` over `own`
    (by default the right answer, so that the margin is 0); then the logits of right, wrong and the rest, where the
    metric compares answers.
    """
    prompts, metric = runs.prompts, runs.recordings.readout
    assert metric.at is not None
    question = prompts.question
    forced = question.answers[:, :1] if question.forced is None else question.forced
    steps = min(forced.shape[1], metric.at.shape[1])
    pair = tuple(prompts.correct if token is None else token for token in (own, rival))

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        value, sides = parted(metric.score(chosen_logits(metric, logits, prompt), prompt))
        top = logits[:, :steps].argmax(-1)
        ids = forced.to(logits.device)[prompt][:, :steps]
        several = (ids != NONE).sum(1) > 1
        every = ((top == ids) | (ids == NONE)).all(1)
        one = (top[:, :1] == question.answers.to(logits.device)[prompt]).any(1)
        rows, first = torch.arange(len(logits), device=logits.device), logits[:, 0]
        own_id, rival_id = (tokens.to(logits.device)[prompt] for tokens in pair)
        margin = first[rows, rival_id] - first[rows, own_id]
        right = torch.where(several, every, one)
        return torch.stack([x.double() for x in (value, top[:, 0], right, margin, *(sides or ()))], 1)

    return Readout(score, metric.at, unit=metric.unit)


def token_means(runs: Runs) -> Values:
    """The mean output of every component over the clean and counterfactual prompts with the same token there."""
    keys, weights = _groups(runs)
    count = weights.new_zeros(int(keys.max()) + 1).index_add_(0, keys, weights)

    def grouped(clean: Tensor, source: Tensor) -> Tensor:
        both = torch.cat([clean, source]).flatten(0, 1)
        here, weight = keys.to(both.device), weights.to(both)
        wide = weight.view(-1, *[1] * (both.ndim - 1))
        sums = both.new_zeros(len(count), *both.shape[1:], dtype=torch.float32).index_add_(
            0, here, (both * wide).float()
        )
        mean = sums / count.to(sums).clamp(min=1.0).view(-1, *[1] * (both.ndim - 1))
        return mean[here[: clean.shape[0] * clean.shape[1]]].view(clean.shape).to(clean.dtype)

    clean, source = runs.values, runs.source_values
    return Values(
        tuple(grouped(a, b) for a, b in zip(clean.z, source.z, strict=True)),
        tuple(grouped(a, b) for a, b in zip(clean.mlp, source.mlp, strict=True)),
        grouped(clean.embed, source.embed),
    )


def _groups(runs: Runs) -> tuple[Int[Tensor, " place"], Tensor]:
    """The group of every position of the clean, then of the counterfactual prompts, and 1 where it is a real token."""
    prompts = runs.prompts
    tokens = torch.cat([prompts.tokens, prompts.counterfactual])
    key = tokens
    if bool((prompts.position == prompts.position[0]).all()):
        key = tokens * tokens.shape[1] + torch.arange(tokens.shape[1])
    keys = key.flatten().unique(return_inverse=True)[1]
    return keys, prompts.mask.repeat(2, 1).flatten().float()


class NothingChanges(BadInput):
    """No answer depends on the token at a role."""

    def __init__(self, role: str) -> None:
        super().__init__(f"role {role!r}: no prompt's answer changes with the token there; choose another role")


@dataclass(frozen=True)
class Moved:
    """What a corrupted run answers (`whole`), where that is not the clean answer (`differs`), and the clean answers
    with their margin against it.
    """

    whole: Answers
    clean: Answers
    differs: Bool[Tensor, " prompt"]

    @classmethod
    def joined(cls, parts: Sequence["Moved"]) -> "Moved":
        """The same of several parts of the prompts."""
        whole, clean = (Answers.joined([getattr(part, name) for part in parts]) for name in ("whole", "clean"))
        return cls(whole, clean, torch.cat([part.differs for part in parts]))

    def shares(self, before: Answers, runs: Sequence[Answers]) -> list[tuple[PerPrompt, PerPrompt]]:
        """Where the answer became this run's, and how far the logits moved there, on the prompts whose answer differs;
        for each of some edited runs, against the one before the edit.
        """
        return [
            (
                (after.token == self.whole.token)[self.differs].float(),
                (after.margin - before.margin)[self.differs] / self.way,
            )
            for after in runs
        ]

    @property
    def way(self) -> float:
        """How far the logits move from the clean run to the corrupted one, on average over the prompts that differ."""
        return above_zero(mean_apart_from_zero((self.whole.margin - self.clean.margin)[self.differs]))


#: Further tokens that are tried at a role where the first one leaves the answer as it is.
FURTHER_TOKENS = 6


class Corrupted:
    """The prompts with the token of another prompt at one role, run once.

    `others` are the tokens that may be put there, beginning with the prompts' own (default: only these). A role is
    exchanged on purpose: where the first token leaves the model's answer as it is, others are tried, first those that
    stand at other roles of the same prompt. What is chosen by is the answer of the whole model, never a component, so
    that claims are about the same prompts as before, those whose answer depends on the token, and there are more of
    them. `whole` is what that run answers, `differs` where it is not the clean answer, `clean` the clean answers with
    their margin against it; `recordings` start from the clean run and read that margin. `outputs` are those of a run in
    which the `suppressed` components are zeroed `at` one position of each prompt (None: everywhere), as in the run that
    they are patched into.
    """

    def __init__(
        self,
        runs: Runs,
        role: str,
        place: Int[Tensor, " prompt"],
        clean: Answers,
        *,
        others: Int[Tensor, " token"] | None = None,
    ) -> None:
        self._runs, self.role = runs, role
        self._batch = Batch(self._exchanged(role, place, clean, others), runs.batch.mask)
        values, logits, read = self._run(())
        self._done: dict[tuple[frozenset[Component], tuple[int, ...] | None], tuple[Values, Read]] = {}
        self._done[frozenset(), None] = values, read
        prompt = torch.arange(len(runs), device=logits.device)
        rival = answers_of(answer_readout(runs).score(logits, prompt)).token
        self.differs = rival != clean.token
        readout = answer_readout(runs, own=clean.token, rival=rival)
        self.recordings = runs.recordings.read_as(readout)
        self.clean = answers_of(self.recordings.scores())
        self.whole = answers_of(readout.score(logits, prompt))
        self.moved = Moved(self.whole, self.clean, self.differs)

    def _exchanged(
        self, role: str, place: Int[Tensor, " prompt"], clean: Answers, others: Int[Tensor, " token"] | None
    ) -> Int[Tensor, "prompt pos"]:
        """The clean prompts with another token at the role: for each the first one tried that changes the answer, or
        else the first.
        """
        runs = self._runs
        first = tokens = _with_other_tokens(runs, role, place, others)
        left, changed = torch.arange(len(runs)), torch.zeros(len(runs), dtype=torch.bool)
        further = _further_tokens(runs, place, first, others)
        for turn in range(1 + FURTHER_TOKENS):
            if turn:
                left = left[[len(further[row]) >= turn for row in left.tolist()]]
                tokens = tokens.clone()
                other = torch.tensor([further[row][turn - 1] for row in left.tolist()], dtype=tokens.dtype)
                tokens[left, place[left]] = other.to(tokens.device)
            if not len(left):
                break
            changed[left] = self._answers_to(tokens, left).token != clean.token[left]
            left = left[~changed[left]]
        return torch.where(changed[:, None].to(tokens.device), tokens, first)

    @torch.no_grad()
    def _answers_to(self, tokens: Int[Tensor, "prompt pos"], rows: Int[Tensor, " row"]) -> Answers:
        """What the model answers to some of the prompts with other tokens."""
        runs, whole = self._runs, answer_readout(self._runs)
        assert whole.at is not None
        some = Readout(lambda logits, row: whole.score(logits, rows.to(row.device)[row]), whole.at[rows])
        mask = None if runs.batch.mask is None else runs.batch.mask[rows]
        runs.cost.rows += len(rows)
        return answers_of(hooked_scores(runs.model, Batch(tokens[rows], mask), some, ()))

    @property
    def tokens(self) -> Int[Tensor, "prompt pos"]:
        """The prompts with the other token."""
        return self._batch.tokens

    def outputs(self, suppressed: Sequence[Component], at: Int[Tensor, " prompt"] | None) -> Values:
        """What every component writes."""
        return self._ran(suppressed, at)[0]

    @torch.no_grad()
    def outputs_by_values(
        self, heads: Sequence[Component], suppressed: Sequence[Component], at: Int[Tensor, " prompt"] | None
    ) -> Values:
        """The same with other outputs of some heads: those of their attention on the clean prompts, with their values
        at other positions from here and at the position itself from the clean prompts, where nothing is moved.
        """
        outputs, read = self._ran(suppressed, at)
        layers = {head.layer: outputs.z[head.layer].clone() for head in heads}
        clean = self._clean_attention(sorted(layers), suppressed, at)
        for head in heads:
            assert head.head is not None
            kv, (patterns, values) = head.head // self._runs.model.config.queries_per_kv, clean[head.layer]
            own, pattern = read[head.layer][:, :, kv], patterns[:, head.head]
            in_place = pattern.diagonal(dim1=1, dim2=2)[..., None] * (own - values[:, :, kv])
            layers[head.layer][:, :, head.head] = pattern @ own - in_place
        return replace(outputs, z=tuple(layers.get(layer, z) for layer, z in enumerate(outputs.z)))

    def _clean_attention(
        self, layers: Sequence[int], suppressed: Sequence[Component], at: Int[Tensor, " prompt"] | None
    ) -> dict[int, tuple[Float[Tensor, "prompt head query key"], Float[Tensor, "prompt pos kv_head d_head"]]]:
        """Where the heads of some layers attend on the clean prompts and what they read there, with the same components
        zeroed.
        """
        runs = self._runs
        if not suppressed:
            return {layer: (runs.pattern(layer), runs.read_values(layer)) for layer in layers}
        names = {layer: [f"blocks.{layer}.attn.hook_{what}" for what in ("pattern", "v")] for layer in layers}
        runs.cost.rows += len(runs)
        _, cache = runs.model.run_with_cache(
            runs.batch.tokens,
            mask=runs.batch.mask,
            names=[name for both in names.values() for name in both],
            choose=torch.zeros(len(runs), 1, dtype=torch.long, device=runs.batch.tokens.device),
            fwd_hooks=zeroing(runs.model, suppressed, at),
        )
        return {layer: (cache[pattern], cache[values]) for layer, (pattern, values) in names.items()}

    def _ran(self, suppressed: Sequence[Component], at: Int[Tensor, " prompt"] | None) -> tuple[Values, Read]:
        where = None if at is None or not suppressed else tuple(at.tolist())
        key = frozenset(suppressed), where
        if key not in self._done:
            values, _, read = self._run(zeroing(self._runs.model, suppressed, at))
            self._done[key] = values, read
        return self._done[key]

    def _run(self, hooks: Sequence[Hook]) -> tuple[Values, Float[Tensor, "prompt query out"], Read]:
        runs = self._runs
        assert runs.readout.at is not None
        runs.cost.rows += len(runs)
        return activations_and_logits(runs.model, self._batch, runs.readout.at, hooks=hooks)


def _further_tokens(
    runs: Runs, place: Int[Tensor, " prompt"], first: Int[Tensor, "prompt pos"], others: Int[Tensor, " token"] | None
) -> list[list[int]]:
    """For each prompt further values of the role: those that stand at its other roles, then those of other prompts in
    their order; neither its own token nor the first that was tried.
    """
    rows, tokens = torch.arange(len(runs)), runs.prompts.tokens
    own = tokens[rows, place]
    others = own if others is None else others
    values, tried = set(others.tolist()), first[rows, place].tolist()
    beside = [tokens[rows, at].tolist() for at in runs.prompts.roles.values()]
    further = []
    for row, token in enumerate(own.tolist()):
        here = [value for role in beside if (value := role[row]) in values]
        candidates = dict.fromkeys([*here, *others.roll(-row).tolist()])
        further.append([one for one in candidates if one not in (token, tried[row])][:FURTHER_TOKENS])
    return further


def _with_other_tokens(
    runs: Runs, role: str, place: Int[Tensor, " prompt"], others: Int[Tensor, " token"] | None
) -> Int[Tensor, "prompt pos"]:
    """The clean prompts with the token of the next prompt that has another one at this role."""
    rows = torch.arange(len(runs))
    own = runs.prompts.tokens[rows, place]
    others, new = own if others is None else others, own.clone()
    for step in range(1, len(others)):
        new = torch.where(new == own, others.roll(-step)[: len(own)], new)
    if bool((new == own).any()):
        raise BadInput(f"role {role!r}: every prompt has the same token there, so there is none to put in its place")
    tokens = runs.batch.tokens.clone()
    tokens[rows, place] = new.to(tokens.device)
    return tokens


# What an MLP writes, exchanged between prompts at one position.
#
# A *variable* is the token of a role, or the answer. For a role every prompt gets two donors, which are another
# prompt with a token of its own choice at the role: one with another token, whose answer is that of the prompt itself
# with that token there (`Corrupted`), and one with the same token. For the answer the donor is another prompt that
# has another one. A donor's output at a position says what the MLP would write there, wherever the prompts differ
# otherwise: if it brings the answer that the donor's class predicts, and a donor of the same class leaves the answer
# as it is, the output carries the class and no more. A donor that belongs to another prompt (*third*) is the control.

#: The variable that is no role.
ANSWER = "answer"
Donor = Literal["other", "same", "third"]
Place = Int[Tensor, " prompt"]


class DonorRuns:
    """The prompts of a laboratory with their donors for one variable; donors are run once, for all MLPs."""

    def __init__(self, runs: Runs, places: Mapping[str, Place], clean: Answers, changed: Corrupted | None) -> None:
        self._runs, self._places = runs, places
        rows = torch.arange(len(runs))
        if changed is not None:
            self.of = rows.roll(1)
            self.recordings, self.moved = changed.recordings, changed.moved
            self._tokens = changed.tokens[rows, places[changed.role]], runs.batch.tokens[rows, places[changed.role]]
            self._role = changed.role
            self._donors: Values | None = None
            return
        self._role = None
        self.of = _another(clean.token)
        own, rival = clean.token, clean.token[self.of]
        self.recordings = runs.recordings.read_as(answer_readout(runs, own=own, rival=rival))
        final = runs.final_resid
        margin = final_margin(runs.model, final[self.of.to(final.device)], rival, own)
        clean = answers_of(self.recordings.scores())
        whole = Answers(clean.score, rival, torch.zeros(len(rows), dtype=torch.bool), margin)
        self.moved = Moved(whole, clean, rival != own)
        self._donors = runs.values

    def answers(self, mlp: Component, at: str, donor: Donor) -> Answers:
        """The answers where an MLP writes at one position what it writes there in the donor's run."""
        runs = self._runs
        written = self.written(mlp, at, donor)
        place = self._places[at]
        where = torch.zeros_like(runs.prompts.mask).scatter_(1, place[:, None], True)
        plan = Plan.each(runs.model.config, torch.arange(len(runs)), mlp, positions=where)
        values = component_values(runs.model, mlp, written[:, None])
        return answers_of(run(self.recordings, plan, values, cost=runs.cost))

    def written(self, mlp: Component, at: str, donor: Donor) -> Float[Tensor, "prompt d_model"]:
        """What an MLP writes at a position of each prompt's donor."""
        table = self._values().mlp[mlp.layer]
        rows, place = torch.arange(len(self.of)), self._places[at]
        if self._role is None:
            if donor == "same":
                raise BadInput("the answer: prompts of the same one are not looked for; exchange another")
            of = self.of if donor == "other" else self.of.roll(-1)
            return table[of, place[of]]
        first = len(rows) if donor == "same" else 0
        mine = rows.roll(-1) if donor == "third" else rows
        return table[first + mine, place[self.of][mine]]

    def written_apart(self, mlp: Component, at: str) -> Float[Tensor, "prompt d_model"]:
        """What an MLP writes at a position where it reads there what earlier MLPs write in the donor's run, and all
        else as on the prompts themselves: one layer's arithmetic.
        """
        runs, rows, place = self._runs, torch.arange(len(self.of)), self._places[at]
        read = runs.mlp_input(mlp.layer)[rows, place]
        for layer in range(mlp.layer):
            earlier = Component(layer)
            change = self.written(earlier, at, "other") - runs.values.mlp[layer][rows, place]
            read = read + change.to(read.device)
        return mlp_output(runs.model, mlp, read)

    def _values(self) -> Values:
        """What the donors write, those with another token before those with the same one."""
        if self._donors is None:
            runs = self._runs
            assert self._role is not None
            rows, tokens, mask = torch.arange(len(runs)), runs.batch.tokens[self.of], runs.batch.mask
            donors = []
            for token in self._tokens:
                changed = tokens.clone()
                changed[rows, self._places[self._role][self.of]] = token.to(tokens.device)
                donors.append(changed)
            runs.cost.rows += 2 * len(runs)
            masks = None if mask is None else mask[self.of].repeat(2, 1)
            self._donors = activations(runs.model, Batch(torch.cat(donors), masks))
        return self._donors


def _another(tokens: Int[Tensor, " prompt"]) -> Int[Tensor, " prompt"]:
    """For each prompt the next one with another token; itself where there is none."""
    rows = torch.arange(len(tokens))
    found = rows.clone()
    for step in range(len(tokens) - 1, 0, -1):
        found = torch.where(tokens.roll(-step) != tokens, rows.roll(-step), found)
    return found
