"""Measurements on a natural model that an agent, or any caller, can ask for by name.

An instrument takes component names and role names, runs on the engine for all prompts and all sets at once, and returns
plain data: means with 95 % intervals, rates, names. A *set* is a list of components that are replaced together, so a
backup shows in one call. A *role* is a named position of the behaviour's prompts (`vesalius behaviours` lists them);
`end` is where the answer is read. `suppressed` components are zeroed at the same place, before and after.

    tools = Instruments(NaturalLab.draw(specimen, 32, seed=1), piece=tokenizer.piece)
    tools.replace([["L0H1"], ["L0H1", "L0H3"]], how="zero", at="end")
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.behaviours.metrics import metric_name
from vesalius.components import Component, parse_components
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import mean_and_interval, rounded
from vesalius.explanations.laboratory import END, How, NaturalLab
from vesalius.explanations.laboratory.answers import Answers
from vesalius.explanations.laboratory.base import PerPrompt
from vesalius.explanations.laboratory.runs import edges_between, feeds, logit_difference_of, require_heads
from vesalius.intervene.probes import direct_logits
from vesalius.intervene.signed import LogitSides, parted
from vesalius.statistics import mean_apart_from_zero
from vesalius.values import JsonObject

#: More sets in one call than this are refused.
MOST_SETS = 64
TOP_TOKENS = 5
Given = Sequence[str | Component]


class Instruments:
    """The instruments of a laboratory; `piece` gives the text of a token."""

    def __init__(self, lab: NaturalLab, *, piece: Callable[[int], str]) -> None:
        self.lab, self.model, self.prompts, self._piece = lab, lab.model, lab.prompts, piece

    # What the model does.

    def examples(self, count: int = 5) -> list[JsonObject]:
        """Prompts with the token at each role, the model's answer and whether it is right."""
        shown = range(min(_count(count, "count"), self.lab.n))
        return [
            {
                "prompt": self.prompts.texts[row],
                "roles": {role: self._token(row, at) for role, at in self.lab.places.items()},
                "answer": self._piece(int(self.lab.clean_answers.token[row])),
                "right": bool(self.lab.clean_answers.right[row]),
            }
            for row in shown
        ]

    def clean(self) -> JsonObject:
        """Accuracy and mean score of the unchanged model."""
        return {
            "accuracy": rounded(self.lab.clean_answers.right.float().mean()),
            "score": self._mean(self.lab.clean_answers.score),
            "metric": metric_name(self.prompts.metric),
            "n": self.lab.n,
        }

    # Looking.

    def attention(self, heads: Given, query: str = END) -> dict[str, JsonObject]:
        """Attention of each head from one role's position to every other: mean mass, and the share of prompts in which
        that position gets the most.
        """
        at = self.lab.place(query)
        by_head = {}
        for head in self._heads(heads):
            top = self.lab.weights_from(head, at).argmax(1)
            by_head[str(head)] = {
                role: {"mass": self._mean(mass), "top": rounded((top == self.lab.keys_of(at)[role]).float().mean())}
                for role, mass in self.lab.attention_masses(head, query).items()
            }
        return by_head

    def lens(self, components: Given, k: int = TOP_TOKENS) -> dict[str, JsonObject]:
        """What each component's output at the end adds to the logits: to the answer's (against the mean logit), the
        answer's median rank, how often it is among the top `k`, and the tokens that gain most on average.
        `effect_right`, `effect_wrong` and `effect_rest` are what it adds to the right answer's logit, the wrong one's
        and the mean of all others; `word` names it by rule (mover, suppressor, calibrates).
        """
        k = min(_count(k, "k"), self.model.config.d_vocab)
        rows, answer = torch.arange(self.lab.n), self.prompts.correct
        by_component = {}
        for component in self._components(components):
            output = self.lab.runs.output_of(component, self.lab.runs.values)[rows, self.prompts.position]
            logits = direct_logits(self.model, output, resid=self.lab.runs.final_resid).cpu()
            logits = logits - logits.mean(1, keepdim=True)
            own = logits[rows, answer]
            rank = (logits > own[:, None]).sum(1) + 1
            by_component[str(component)] = {
                "answer": self._mean(own),
                "answer_minus_wrong": self._mean(logit_difference_of(self.lab.runs, output)),
                **self._sides(self.lab.direct_sides(component)),
                "word": self.lab.word(component),
                "rank": float(rank.double().median()),
                f"in_top_{k}": rounded((rank <= k).float().mean()),
                "tokens": [self._piece(int(token)) for token in logits.mean(0).topk(k).indices],
            }
        return by_component

    def layers(self) -> list[JsonObject]:
        """The logit lens on the residual stream at the end, after each layer: how often its top token is the answer."""
        rows = torch.arange(self.lab.n)
        by_layer = []
        for layer in range(self.model.config.n_layers):
            after = (
                self.lab.runs.final_resid
                if layer == self.model.config.n_layers - 1
                else self.lab.runs.resid(layer + 1)[rows, self.prompts.position]
            )
            top = direct_logits(self.model, after, resid=after).argmax(1).cpu()
            by_layer.append({"layer": layer, "answer_on_top": rounded((top == self.prompts.correct).float().mean())})
        return by_layer

    # Replacing.

    def replace(
        self, sets: Sequence[Given], how: How = "resample", at: str | None = None, suppressed: Given = ()
    ) -> list[JsonObject]:
        """Replace each set by zero, by its mean, by its mean over prompts with the same token there (`token mean`), or
        by its value on the counterfactual prompt (`resample`), everywhere or at one role. The effect is the share of
        the clean score that is lost; `effect_right`, `effect_wrong` and `effect_rest` the logits that the right answer,
        the wrong one and all others on average lose.
        """
        groups, first = self._sets(sets), self._components(suppressed)
        before, *runs = self.lab.edited([[], *groups], self.lab.values_by(how), at=at, suppressed=first)
        return [self._outcome(group, before, after) for group, after in zip(groups, runs, strict=True)]

    def backup(self, component: str | Component, of: Given, how: How = "resample", at: str | None = None) -> dict:
        """Whether a component matters more once others are replaced: its effect alone, its effect then, the gain of the
        second over the first, also counted in right answers lost (`gain_in_answers`).
        """
        (part,), others = self._components([component]), self._components(of)
        if part in others or not others:
            raise BadInput(f"backup of {part}: name one or more other components, not itself")
        alone, rest, both = self.lab.answers([[part], others, [*others, part]], how, at)
        ((score, answers),) = self.lab.backup_gains([part], others, how, at)
        return {
            "component": str(part),
            "of": [str(other) for other in others],
            "alone": self._outcome([part], self.lab.clean_answers, alone),
            "once_replaced": self._outcome([part], rest, both),
            "gain": self._mean(score),
            "gain_in_answers": self._mean(answers),
        }

    def cut_attention(
        self, sets: Sequence[Given], role: str, query: str = END, suppressed: Given = ()
    ) -> list[JsonObject]:
        """Set the attention of each set of heads from one role's position to another's to zero, the rest unchanged."""
        groups, first = [self._heads(group) for group in self._checked(sets)], self._components(suppressed)
        self.lab.place(role)
        return [self._outcome(group, *self.lab.cut(group, role, query, first)) for group in groups]

    def corrupt(
        self, sets: Sequence[Given], role: str, at: str | None = END, suppressed: Given = ()
    ) -> list[JsonObject]:
        """Put another prompt's token at a role, run, and patch each set's output from that run into the clean one: how
        often the answer becomes that run's (`switched`), and the change of logit(its answer) - logit(clean answer) as a
        share of what the whole run changes (`moved`); of sets of heads also where only their values at other positions
        come from that run and they attend as before (`moved_by_values`). Prompts with the same answer are left out.
        """
        groups, source, first = self._sets(sets), self.lab.corrupted(role), self._components(suppressed)
        heads = [group for group in groups if all(part.is_head for part in group)]
        by_values = dict(zip(map(tuple, heads), self.lab.moved_by_values(heads, role, at, first), strict=True))
        return [
            {
                "components": [str(part) for part in group],
                "role": role,
                "switched": self._mean(switched),
                "moved": self._mean(moved),
                "moved_by_values": self._mean(by_values[tuple(group)]) if tuple(group) in by_values else None,
                "n": int(source.differs.sum()),
            }
            for group, (switched, moved) in zip(groups, self.lab.moved_shares(groups, role, at, first), strict=True)
        ]

    def restore(self, sets: Sequence[Given], at: str | None = None) -> list[JsonObject]:
        """Patch each set's clean output into the counterfactual run: the share of the score that comes back, and what
        that adds to the logits of the right answer, the wrong one and the rest.
        """
        groups = self._sets(sets)
        corrupted, gained = self.lab.runs.restored(groups, torch.arange(self.lab.n), self.lab.mask(at))
        (scores, sides), before = parted(gained, 2), parted(corrupted)[0]
        shares = scores / mean_apart_from_zero(self.lab.clean_scores - before)
        return [
            {
                "components": [str(part) for part in group],
                "restored": self._mean(shares[:, i]),
                **self._sides(None if sides is None else LogitSides(*(side[:, i] for side in sides))),
            }
            for i, group in enumerate(groups)
        ]

    def direct(self, components: Given) -> dict[str, JsonObject]:
        """The effect of each component on the logits directly, and in all ways (resampled), as shares of the score;
        `effect_right`, `effect_wrong` and `effect_rest` are the direct effects on their logits.
        """
        parts, every = self._components(components), torch.arange(self.lab.n)
        direct, sides = parted(self.lab.runs.along([edges_between(part, None) for part in parts], every), 2)
        total = self.lab.patch_effects([[part] for part in parts]) / self.lab.scale
        return {
            str(part): {
                "direct": self._mean(direct[:, i] / self.lab.scale),
                "total": self._mean(total[:, i]),
                **self._sides(None if sides is None else LogitSides(*(side[:, i] for side in sides))),
            }
            for i, part in enumerate(parts)
        }

    def path(self, sender: str | Component, receiver: str | Component) -> JsonObject:
        """The effect of the direct path from one component into another, and into each of its inputs (resampled)."""
        (first,), (second,) = self._components([sender]), self._components([receiver])
        if not feeds(first, second, parallel=self.model.config.parallel):
            raise BadInput(f"{second} does not read what {first} writes; name an earlier sender")
        edges = edges_between(first, second)
        effects = self.lab.path_effects([edges, *([edge] for edge in edges)]) / self.lab.scale
        ports = {edge.port: self._mean(effects[:, i]) for i, edge in enumerate(edges, 1)}
        return {"sender": str(first), "receiver": str(second), "effect": self._mean(effects[:, 0]), "inputs": ports}

    def prune(self, components: Given, how: How = "resample", at: str | None = None) -> list[JsonObject]:
        """Replace these components one after another, each time the one that costs least, and say what is left after
        each step. What survives longest matters most.
        """
        kept, gone = self._components(components), []
        values, steps = self.lab.values_by(how), []
        while kept:
            runs = self.lab.edited([[*gone, part] for part in kept], values, at=at)
            best = max(range(len(kept)), key=lambda i: float(runs[i].score.mean()))
            gone.append(kept.pop(best))
            steps.append(
                {
                    "replaced": str(gone[-1]),
                    "score_left": rounded(runs[best].score.mean() / self.lab.scale),
                    "accuracy": rounded(runs[best].right.float().mean()),
                }
            )
        return steps

    # Names to places and components.

    def _components(self, given: Given) -> list[Component]:
        if isinstance(given, str | Component):
            given = [given]
        return list(dict.fromkeys(parse_components(given, self.model.config))) if len(given) else []

    def _heads(self, given: Given) -> list[Component]:
        parts = self._components(given)
        require_heads(parts)
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

    # Writing down.

    def _outcome(self, group: Sequence[Component], before: Answers, after: Answers) -> JsonObject:
        return {
            "components": [str(part) for part in group],
            "effect": self._mean(self.lab.lost(before, after)[0]),
            **self._sides(None if before.sides is None or after.sides is None else before.sides.minus(after.sides)),
            "accuracy_before": rounded(before.right.float().mean()),
            "accuracy": rounded(after.right.float().mean()),
            "answers_changed": rounded((before.token != after.token).float().mean()),
        }

    def _sides(self, sides: LogitSides | None) -> dict[str, list[float | None]]:
        """Effects on the logits of the right answer, the wrong one and the rest; none where the metric has no sides."""
        return {} if sides is None else {f"effect_{name}": self._mean(x) for name, x in sides._asdict().items()}

    def _mean(self, values: PerPrompt) -> list[float | None]:
        """Mean, low and high end of its interval."""
        return [rounded(x) for x in mean_and_interval(values.cpu(), 0.95, seed=self.lab.seed)]

    def _token(self, row: int, at: Int[Tensor, " prompt"]) -> str:
        return self._piece(int(self.prompts.tokens[row, at[row]]))


def _count(given: object, name: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise BadInput(f"{name}={given!r:.40} is not a count; give an integer of at least 1")
    return given
