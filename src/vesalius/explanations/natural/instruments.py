"""Measurements on a natural model that an agent, or any caller, can ask for by name.

An instrument takes component names and role names, runs on the engine for all prompts and all sets at once, and returns
plain data: means with 95 % intervals, rates, names. A *set* is a list of components that are replaced together, so a
backup shows in one call. A *role* is a named position of the behaviour's prompts (`vesalius behaviours` lists them);
`end` is where the answer is read. `suppressed` components are zeroed at the same place, before and after.

    tools = Instruments(Pool.draw(specimen, 32, seed=1, split="test"), piece=tokenizer.piece)
    tools.replace([["L0H1"], ["L0H1", "L0H3"]], how="zero", at="end")
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.metrics import metric_name
from vesalius.components import Component, parse_components
from vesalius.errors import BadInput, choices
from vesalius.explanations.claims.base import mean_and_interval, rounded
from vesalius.explanations.claims.laboratory import ANSWERED, Replacement
from vesalius.explanations.natural.answers import Answers, answer_readout, answers_lost, answers_of
from vesalius.explanations.natural.lens import logit_difference_of
from vesalius.explanations.natural.paths import edges_between, feeds
from vesalius.explanations.natural.pool import Pool
from vesalius.explanations.natural.replacements import Corrupted, token_means
from vesalius.intervene import Plan, Recordings, Values, means_of, run, zeros
from vesalius.intervene.hooked import attention_cuts, hooked_scores, zeroing
from vesalius.intervene.logit_lens import direct_logits
from vesalius.intervene.plan import KEEP, component_index
from vesalius.model.hooks import Hook

How = Literal["zero", "mean", "token mean", "resample"]
END = "end"
#: More sets in one call than this are refused.
MOST_SETS = 64
TOP_TOKENS = 5
PerPrompt = Float[Tensor, " prompt"]
Given, Sets = Sequence[str | Component], Sequence[Sequence[Component]]
#: What `answer_readout` reads with each of some sets replaced everywhere.
Readings = Callable[[Sequence[Sequence[Component]], Replacement], list[Tensor]]


class Instruments:
    """The instruments on one pool of prompts; `piece` gives the text of a token. `readings` are those of the answers
    by who replaces components everywhere on the same prompts, and keeps them.
    """

    def __init__(self, pool: Pool, *, piece: Callable[[int], str], readings: Readings | None = None) -> None:
        self.pool, self.model, self.prompts, self._piece = pool, pool.model, pool.prompts, piece
        self._readings = readings

    # What the model does.

    def examples(self, count: int = 5) -> list[dict[str, Any]]:
        """Prompts with the token at each role, the model's answer and whether it is right."""
        shown = range(min(_count(count, "count"), len(self.pool)))
        return [
            {
                "prompt": self.prompts.texts[row],
                "roles": {role: self._token(row, at) for role, at in self._places.items()},
                "answer": self._piece(int(self._clean.token[row])),
                "right": bool(self._clean.right[row]),
            }
            for row in shown
        ]

    def clean(self) -> dict[str, Any]:
        """Accuracy and mean score of the unchanged model."""
        return {
            "accuracy": rounded(self._clean.right.float().mean()),
            "score": self._mean(self._clean.score),
            "metric": metric_name(self.prompts.metric),
            "n": len(self.pool),
        }

    # Looking.

    def attention(self, heads: Given, query: str = END) -> dict[str, dict[str, Any]]:
        """Attention of each head from one role's position to every other: mean mass, and the share of prompts in which
        that position gets the most.
        """
        at = self._place(query)
        by_head = {}
        for head in self._heads(heads):
            top = self._weights(head, at).argmax(1)
            by_head[str(head)] = {
                role: {"mass": self._mean(mass), "top": rounded((top == self._keys(at)[role]).float().mean())}
                for role, mass in self.attention_masses(head, query).items()
            }
        return by_head

    def lens(self, components: Given, k: int = TOP_TOKENS) -> dict[str, dict[str, Any]]:
        """What each component's output at the end adds to the logits: to the answer's (against the mean logit), the
        answer's median rank, how often it is among the top `k`, and the tokens that gain most on average.
        """
        k = min(_count(k, "k"), self.model.config.d_vocab)
        rows, answer = torch.arange(len(self.pool)), self.prompts.correct
        by_component = {}
        for component in self._components(components):
            output = self.pool.output_of(component, self.pool.values)[rows, self.prompts.position]
            logits = direct_logits(self.model, output, resid=self.pool.final_resid).cpu()
            logits = logits - logits.mean(1, keepdim=True)
            own = logits[rows, answer]
            rank = (logits > own[:, None]).sum(1) + 1
            by_component[str(component)] = {
                "answer": self._mean(own),
                "answer_minus_wrong": self._mean(logit_difference_of(self.pool, output)),
                "rank": float(rank.double().median()),
                f"in_top_{k}": rounded((rank <= k).float().mean()),
                "tokens": [self._piece(int(token)) for token in logits.mean(0).topk(k).indices],
            }
        return by_component

    def layers(self) -> list[dict[str, Any]]:
        """The logit lens on the residual stream at the end, after each layer: how often its top token is the answer."""
        rows = torch.arange(len(self.pool))
        by_layer = []
        for layer in range(self.model.config.n_layers):
            after = (
                self.pool.final_resid
                if layer == self.model.config.n_layers - 1
                else self.pool.resid(layer + 1)[rows, self.prompts.position]
            )
            top = direct_logits(self.model, after, resid=after).argmax(1).cpu()
            by_layer.append({"layer": layer, "answer_on_top": rounded((top == self.prompts.correct).float().mean())})
        return by_layer

    # Replacing.

    def replace(
        self, sets: Sequence[Given], how: How = "resample", at: str | None = None, suppressed: Given = ()
    ) -> list[dict[str, Any]]:
        """Replace each set by zero, by its mean, by its mean over prompts with the same token there (`token mean`), or
        by its value on the counterfactual prompt (`resample`), everywhere or at one role. The effect is the share of
        the clean score that is lost.
        """
        groups, first = self._sets(sets), self._components(suppressed)
        values, single = self._values(how)
        where = None if at is None else self._mask(at)
        before, *runs = self._run([[], *groups], values, single=single, where=where, suppressed=first)
        return [self._outcome(group, before, after) for group, after in zip(groups, runs, strict=True)]

    def backup(self, component: str | Component, of: Given, how: How = "resample", at: str | None = None) -> dict:
        """Whether a component matters more once others are replaced: its effect alone, its effect then, the gain of the
        second over the first, also counted in right answers lost (`gain_in_answers`).
        """
        (part,), others = self._components([component]), self._components(of)
        if part in others or not others:
            raise BadInput(f"backup of {part}: name one or more other components, not itself")
        alone, rest, both = self._replaced([[part], others, [*others, part]], how, at)
        ((score, answers),) = self.backup_gains([part], others, how, at)
        return {
            "component": str(part),
            "of": [str(other) for other in others],
            "alone": self._outcome([part], self._clean, alone),
            "once_replaced": self._outcome([part], rest, both),
            "gain": self._mean(score),
            "gain_in_answers": self._mean(answers),
        }

    def cut_attention(
        self, sets: Sequence[Given], role: str, query: str = END, suppressed: Given = ()
    ) -> list[dict[str, Any]]:
        """Set the attention of each set of heads from one role's position to another's to zero, the rest unchanged."""
        groups, first = [self._heads(group) for group in self._checked(sets)], self._components(suppressed)
        asked, key = self._place(query), self._place(role)
        zeroed = zeroing(self.model, first, asked)
        before = self._hooked(zeroed) if first else self._clean
        cuts = [self._hooked([*zeroed, *attention_cuts(group, asked, key)]) for group in groups]
        return [self._outcome(group, before, after) for group, after in zip(groups, cuts, strict=True)]

    def corrupt(
        self, sets: Sequence[Given], role: str, at: str | None = END, suppressed: Given = ()
    ) -> list[dict[str, Any]]:
        """Put another prompt's token at a role, run, and patch each set's output from that run into the clean one: how
        often the answer becomes that run's (`switched`), and the change of logit(its answer) - logit(clean answer) as a
        share of what the whole run changes (`moved`); of sets of heads also where only their values at other positions
        come from that run and they attend as before (`moved_by_values`). Prompts with the same answer are left out.
        """
        groups, source = self._sets(sets), self._corrupted(role)
        heads = [group for group in groups if all(part.is_head for part in group)]
        by_values = dict(zip(map(tuple, heads), self.moved_by_values(heads, role, at, suppressed), strict=True))
        return [
            {
                "components": [str(part) for part in group],
                "role": role,
                "switched": self._mean(switched),
                "moved": self._mean(moved),
                "moved_by_values": self._mean(by_values[tuple(group)]) if tuple(group) in by_values else None,
                "n": int(source.differs.sum()),
            }
            for group, (switched, moved) in zip(groups, self._patched(source, groups, at, suppressed), strict=True)
        ]

    def restore(self, sets: Sequence[Given], at: str | None = None) -> list[dict[str, Any]]:
        """Patch each set's clean output into the counterfactual run: the share of the score that comes back."""
        groups = self._sets(sets)
        where = None if at is None else self._mask(at)
        shares = self.pool.restored(groups, positions=where)
        return [
            {"components": [str(part) for part in group], "restored": self._mean(shares[:, i])}
            for i, group in enumerate(groups)
        ]

    def direct(self, components: Given) -> dict[str, dict[str, Any]]:
        """The effect of each component on the logits directly, and in all ways (resampled)."""
        parts = self._components(components)
        direct = self.pool.path_effects([edges_between(part, None) for part in parts]) / self.pool.scale
        total = self.pool.effects([[part] for part in parts]) / self.pool.scale
        return {
            str(part): {"direct": self._mean(direct[:, i]), "total": self._mean(total[:, i])}
            for i, part in enumerate(parts)
        }

    def path(self, sender: str | Component, receiver: str | Component) -> dict[str, Any]:
        """The effect of the direct path from one component into another, and into each of its inputs (resampled)."""
        (first,), (second,) = self._components([sender]), self._components([receiver])
        if not feeds(first, second, parallel=self.model.config.parallel):
            raise BadInput(f"{second} does not read what {first} writes; name an earlier sender")
        edges = edges_between(first, second)
        effects = self.pool.path_effects([edges, *([edge] for edge in edges)]) / self.pool.scale
        ports = {edge.port: self._mean(effects[:, i]) for i, edge in enumerate(edges, 1)}
        return {"sender": str(first), "receiver": str(second), "effect": self._mean(effects[:, 0]), "inputs": ports}

    def prune(self, components: Given, how: How = "resample", at: str | None = None) -> list[dict[str, Any]]:
        """Replace these components one after another, each time the one that costs least, and say what is left after
        each step. What survives longest matters most.
        """
        kept, gone = self._components(components), []
        values, single = self._values(how)
        where = None if at is None else self._mask(at)
        steps = []
        while kept:
            runs = self._run([[*gone, part] for part in kept], values, single=single, where=where)
            best = max(range(len(kept)), key=lambda i: float(runs[i].score.mean()))
            gone.append(kept.pop(best))
            steps.append(
                {
                    "replaced": str(gone[-1]),
                    "score_left": rounded(runs[best].score.mean() / self.pool.scale),
                    "accuracy": rounded(runs[best].right.float().mean()),
                }
            )
        return steps

    # One value per prompt, for claims.

    def attention_masses(self, head: Component, query: str = END) -> dict[str, PerPrompt]:
        """A head's attention from one role's position to that of every other; 0 where that comes later."""
        (head,) = self._heads([head])
        rows, at = torch.arange(len(self.pool)), self._place(query)
        weights = self._weights(head, at)
        return {role: torch.where(place <= at, weights[rows, place], 0.0) for role, place in self._keys(at).items()}

    def measure(self, sets: Sets, how: How, at: str | None = None) -> None:
        """Replace several sets in one run; `losses` and `backup_gains` then need no run of their own."""
        self._replaced(sets, how, at)

    def losses(self, components: Sequence[Component], how: How, at: str | None = None) -> tuple[PerPrompt, PerPrompt]:
        """The score (as a share) and the right answers that replacing a set costs."""
        (after,) = self._replaced([components], how, at)
        return self._lost(self._clean, after), answers_lost(self._clean, after)

    def cut_losses(self, head: Component, role: str, query: str, suppressed: Given) -> tuple[PerPrompt, PerPrompt]:
        """What setting a head's attention on a role to zero costs, as `losses`."""
        place = self._keys(self._place(query)).get(role)
        key, asked, first = (
            self._place(role) if place is None else place,
            self._place(query),
            self._components(suppressed),
        )
        zeroed = zeroing(self.model, first, asked)
        before = self._hooked(zeroed) if first else self._clean
        after = self._hooked([*zeroed, *attention_cuts(self._heads([head]), asked, key)])
        return self._lost(before, after), answers_lost(before, after)

    def moved_shares(
        self, components: Sequence[Component], role: str, at: str | None = END, suppressed: Given = ()
    ) -> tuple[PerPrompt, PerPrompt]:
        """Where patching a set from the corrupted run makes the answer that run's, and how far it moves the logits, on
        the prompts whose answer changes.
        """
        key = frozenset(components), role, at, frozenset(self._components(suppressed))
        if key not in self._moved:
            (self._moved[key],) = self._patched(self._corrupted(role), [components], at, suppressed)
        return self._moved[key]

    def moved_by_values(self, sets: Sets, role: str, at: str | None = END, suppressed: Given = ()) -> list[PerPrompt]:
        """How far sets of heads move the logits, as `moved_shares`, where their values at other positions alone come
        from the corrupted run and they attend as on the clean prompts.
        """
        source, first = self._corrupted(role), self._components(suppressed)
        heads = sorted({head for group in sets for head in group})
        values = source.outputs_by_values(heads, first, None if at is None else self._place(at))
        return [moved for _, moved in self._patched(source, sets, at, suppressed, values=values)] if heads else []

    def measure_moved(self, sets: Sets, role: str, at: str | None = END) -> None:
        """Patch several sets in one run; `moved_shares` then needs no run of its own."""
        missing = [one for one in sets if (frozenset(one), role, at, frozenset()) not in self._moved]
        if missing:
            for one, shares in zip(missing, self._patched(self._corrupted(role), missing, at, ()), strict=True):
                self._moved[frozenset(one), role, at, frozenset()] = shares

    def backup_gains(
        self, components: Sequence[Component], others: Sequence[Component], how: How, at: str | None
    ) -> list[tuple[PerPrompt, PerPrompt]]:
        """How much more replacing each of some components costs once others are replaced, as `losses`."""
        singles, both = [[part] for part in components], [[*others, part] for part in components]
        rest, *runs = self._replaced([others, *singles, *both], how, at)
        return [
            (
                self._lost(rest, after) - self._lost(self._clean, alone),
                answers_lost(rest, after) - answers_lost(self._clean, alone),
            )
            for alone, after in zip(runs[: len(singles)], runs[len(singles) :], strict=True)
        ]

    def _weights(self, head: Component, at: Int[Tensor, " prompt"]) -> Float[Tensor, "prompt key"]:
        return self.pool.pattern(head.layer)[torch.arange(len(self.pool)), head.head, at].cpu()

    def _patched(
        self, source: Corrupted, sets: Sets, at: str | None, suppressed: Given, *, values: Values | None = None
    ) -> list[tuple[PerPrompt, PerPrompt]]:
        """Where the answer became the corrupted run's, and how far it moved there, for each set; `values` are what the
        components write instead of their outputs there.
        """
        first = self._components(suppressed)
        values = source.outputs(first, None if at is None else self._place(at)) if values is None else values
        where = None if at is None else self._mask(at)
        before, *runs = self._run([[], *sets], values, where=where, suppressed=first, rival=source)
        return source.shares(before, runs)

    # Names to places and components.

    @cached_property
    def _places(self) -> dict[str, Int[Tensor, " prompt"]]:
        return {**self.prompts.roles, END: self.prompts.position}

    def _place(self, role: str) -> Int[Tensor, " prompt"]:
        if role not in self._places:
            raise BadInput(f"role {role!r} does not exist; the prompts have {choices(self._places)}")
        return self._places[role]

    def _keys(self, query: Int[Tensor, " prompt"]) -> dict[str, Int[Tensor, " prompt"]]:
        """Positions that attention is reported for: the behaviour's roles, the first token, and the query itself."""
        first = "BOS" if self.pool.first else "first token"
        named = {role: place for role, place in self._places.items() if not bool((place == query).all())}
        return {first: torch.zeros_like(query), **named, "itself": query}

    def _mask(self, role: str) -> Bool[Tensor, "prompt pos"]:
        return torch.zeros_like(self.prompts.mask).scatter_(1, self._place(role)[:, None], True)

    def _components(self, given: Given) -> list[Component]:
        if isinstance(given, str | Component):
            given = [given]
        return list(dict.fromkeys(parse_components(given, self.model.config))) if len(given) else []

    def _heads(self, given: Given) -> list[Component]:
        parts = self._components(given)
        for part in parts:
            if not part.is_head:
                raise BadInput(f"{part} is an MLP, which has no attention; name heads such as L0H0")
        return parts

    def _checked(self, sets: Sequence[Given]) -> Sequence[Given]:
        if isinstance(sets, str | Component) or not isinstance(sets, Sequence) or not len(sets):
            raise BadInput('sets must be a list of lists of components, such as [["L0H1"], ["L0H1", "L0H3"]]')
        if len(sets) > MOST_SETS:
            raise BadInput(f"{len(sets)} sets in one call; at most {MOST_SETS}")
        return sets

    def _sets(self, sets: Sequence[Given]) -> list[list[Component]]:
        groups = [self._components(group) for group in self._checked(sets)]
        if not all(groups):
            raise BadInput("a set is empty; name at least one component in each")
        return groups

    # Running.

    @cached_property
    def _recordings(self) -> Recordings:
        return self.pool.recordings.read_as(answer_readout(self.pool))

    @cached_property
    def _clean(self) -> Answers:
        return answers_of(self._recordings.scores())

    @cached_property
    def _tables(self) -> dict[str, Values]:
        return {}

    def _values(self, how: str) -> tuple[Values, bool]:
        """The replacement values, and whether there is one row for all prompts."""
        if how not in get_args(How):
            raise BadInput(f"replacement {how!r} does not exist; choose one of {choices(get_args(How))}")
        if how not in self._tables:
            make = {
                "zero": lambda: zeros(self.model),
                "mean": lambda: means_of(self.model, self.pool.source_values),
                "token mean": lambda: token_means(self.pool),
                "resample": lambda: self.pool.source_values,
            }
            self._tables[how] = make[how]()
        return self._tables[how], how in ("zero", "mean")

    def _replaced(self, sets: Sets, how: How, at: str | None) -> list[Answers]:
        """The answers with each set replaced; every set is run once, those that are missing in one run."""
        if at is None and self._readings is not None and how in ANSWERED:
            return [answers_of(reading) for reading in self._readings(sets, how)]
        keys = [(frozenset(members), how, at) for members in sets]
        missing = [key for key in dict.fromkeys(keys) if key not in self._done]
        if missing:
            values, single = self._values(how)
            where = None if at is None else self._mask(at)
            runs = self._run([sorted(key[0]) for key in missing], values, single=single, where=where)
            self._done |= dict(zip(missing, runs, strict=True))
        return [self._done[key] for key in keys]

    @cached_property
    def _done(self) -> dict[tuple[frozenset[Component], str, str | None], Answers]:
        return {}

    @cached_property
    def _moved(self) -> dict[tuple[frozenset[Component], str, str | None, frozenset], tuple[PerPrompt, PerPrompt]]:
        return {}

    def _run(
        self,
        sets: Sets,
        values: Values,
        *,
        single: bool = False,
        where: Bool[Tensor, "prompt pos"] | None = None,
        suppressed: Sequence[Component] = (),
        rival: Corrupted | None = None,
    ) -> list[Answers]:
        """The answers with each set replaced (an empty set: none) and the suppressed components zeroed."""
        n, config = len(self.pool), self.model.config
        choice = torch.full((len(sets), n, len(self.model.components)), KEEP)
        chosen = torch.zeros(n, dtype=torch.long) if single else torch.arange(n)
        for place, group in enumerate(sets):
            for part in group:
                choice[place, :, component_index(part, config)] = chosen
        if suppressed:
            choice[:, :, [component_index(part, config) for part in suppressed]] = len(values)
            values = values.stack(zeros(self.model))
        rows = torch.arange(n).repeat(len(sets))
        plan = Plan(rows, choice.flatten(0, 1), None if where is None else where[rows])
        recordings = self._recordings if rival is None else rival.recordings
        return [answers_of(part) for part in run(recordings, plan, values, cost=self.pool.cost).split(n)]

    def _hooked(self, hooks: Sequence[Hook]) -> Answers:
        self.pool.cost.rows += len(self.pool)
        return answers_of(hooked_scores(self.model, self.pool.batch, self._recordings.readout, hooks))

    def _corrupted(self, role: str) -> Corrupted:
        if role not in self._corruptions:
            self._corruptions[role] = Corrupted(self.pool, role, self._place(role), self._clean)
        if not bool(self._corruptions[role].differs.any()):
            raise BadInput(f"role {role!r}: no prompt's answer changes with the token there; choose another role")
        return self._corruptions[role]

    @cached_property
    def _corruptions(self) -> dict[str, Corrupted]:
        return {}

    # Writing down.

    def _lost(self, before: Answers, after: Answers) -> PerPrompt:
        return (before.score - after.score) / self.pool.scale

    def _outcome(self, group: Sequence[Component], before: Answers, after: Answers) -> dict[str, Any]:
        return {
            "components": [str(part) for part in group],
            "effect": self._mean(self._lost(before, after)),
            "accuracy_before": rounded(before.right.float().mean()),
            "accuracy": rounded(after.right.float().mean()),
            "answers_changed": rounded((before.token != after.token).float().mean()),
        }

    def _mean(self, values: PerPrompt) -> list[float | None]:
        """Mean, low and high end of its interval."""
        return [rounded(x) for x in mean_and_interval(values.cpu(), 0.95, seed=self.pool.seed)]

    def _token(self, row: int, at: Int[Tensor, " prompt"]) -> str:
        return self._piece(int(self.prompts.tokens[row, at[row]]))


def _count(given: Any, name: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise BadInput(f"{name}={given!r:.40} is not a count; give an integer of at least 1")
    return given
