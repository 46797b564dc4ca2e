"""Establish what every component of the arithmetic model does, by intervening on sets of components.

    python scripts/study_arithmetic.py

All interventions are at the token `=`, where the answer is read, on prompts that were held out of training. It measures

- accuracy with each component zeroed there, zeroed at every position, and replaced by its mean over prompts;
- accuracy with each of the 4,096 sets of heads of layers 0 and 1 zeroed, with and without all heads of layer 2, and
  with each of the 64 sets of heads of layer 2; from these the largest drop that a head ever makes;
- corrupt-operand patching: how often the answer becomes that of a prompt with another A, B or C when a component, or a
  group, writes what it writes there, and by how many logits the answer moves that way;
- attention from `=` and the direct attribution of the answer (logit lens).

The figures are written to the answer key, `src/vesalius_truth/key/arithmetic.json`; roles are stated there by hand
and kept. A few minutes on one core.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from train_arithmetic import BOS, EQUALS, MINUS, NUMBERS, PLUS, Layer, Model, held_out, turn

from vesalius.api import load
from vesalius.components import Component
from vesalius.intervene import Batch, Readout, Recordings, Replacement, Values, activations, zeros
from vesalius.intervene.effects import effect_columns
from vesalius.intervene.probes import direct_difference
from vesalius.model.sources import arithmetic_directory

PROMPTS, SET_PROMPTS, MEAN_PROMPTS = 200, 50, 2000
END = 6
KEY = Path(__file__).parents[1] / "src" / "vesalius" / "circuits" / "key" / "arithmetic.json"
PLACES = {"BOS": 0, "A": 1, "-": 2, "B": 3, "+": 4, "C": 5, "=": 6}
#: Heads that move the same operands, as the single patches show them.
GROUPS = {
    "A": ("L1H0", "L1H1", "L1H2", "L1H3", "L1H4", "L1H5"),
    "B": ("L0H0", "L0H3", "L0H5"),
    "C": ("L0H1", "L0H2", "L0H4", "L0H5"),
    "none": ("L2H0", "L2H1", "L2H2", "L2H3", "L2H4", "L2H5"),
}


def prompts(count: int, generator: torch.Generator, *, test: bool) -> Tensor:
    """Operands [prompt, 3] whose answer lies in the vocabulary, held out of training or not."""
    operands = torch.randint(NUMBERS, (400 * count, 3), generator=generator)
    a, b, c = operands.unbind(1)
    answer = a - b + c
    return operands[(answer >= 0) & (answer < NUMBERS) & (held_out(a, b, c) == test)][:count]


def tokens_of(operands: Tensor) -> Tensor:
    """The prompts as token ids."""
    rows = torch.tensor([BOS, 0, MINUS, 0, PLUS, 0, EQUALS]).repeat(len(operands), 1)
    rows[:, [1, 3, 5]] = operands
    return rows


def answers_of(operands: Tensor) -> Tensor:
    """A - B + C."""
    return operands[:, 0] - operands[:, 1] + operands[:, 2]


def corrupted(operands: Tensor, place: int, generator: torch.Generator) -> Tensor:
    """The same prompts with another number in one place, and so another answer in the vocabulary."""
    other = operands.clone()
    waiting = torch.ones(len(operands), dtype=torch.bool)
    while bool(waiting.any()):
        other[waiting, place] = torch.randint(NUMBERS, (int(waiting.sum()),), generator=generator)
        answer = answers_of(other)
        waiting = (answer < 0) | (answer >= NUMBERS) | (other[:, place] == operands[:, place])
    return other


class Study:
    """Interventions at `=` on one set of prompts."""

    def __init__(self, count: int, *, seed: int = 0) -> None:
        self.model = load("arithmetic", device="cpu").model
        generator = torch.Generator().manual_seed(seed)
        self.operands = prompts(count, generator, test=True)
        self.answers = answers_of(self.operands)
        self.batch = Batch(tokens_of(self.operands))
        self.at = torch.full((count, 1), END)
        self.where = torch.zeros(count, END + 1, dtype=torch.bool)
        self.where[:, END] = True
        self.cache = self.model.run_with_cache(self.batch.tokens)[1]
        self.recordings = Recordings(self.model, self.batch, self._says(self.answers))
        self.corrupted = {letter: corrupted(self.operands, place, generator) for place, letter in enumerate("ABC")}
        self.zero = Replacement(zeros(self.model), torch.zeros(count, dtype=torch.long))
        self.mean = Replacement(self._means(generator), torch.zeros(count, dtype=torch.long))

    def accuracy(
        self, sets: Sequence[Iterable[Component]], replacement: Replacement, *, everywhere: bool = False
    ) -> list[float]:
        """Share of right answers with each set replaced."""
        return self._scores(self.recordings, sets, replacement, None if everywhere else self.where)

    def switch(self, sets: Sequence[Iterable[Component]], letter: str) -> list[tuple[float, float]]:
        """How often the answer becomes that of the prompt with another operand, and by how many logits it gains on the
        clean answer, with each set patched from that prompt.
        """
        other = self.corrupted[letter]
        replacement = Replacement(activations(self.model, Batch(tokens_of(other))), torch.arange(len(other)))
        right, target = self.answers, answers_of(other)

        def gain(logits: Tensor, prompt: Tensor) -> Tensor:
            rows = torch.arange(len(prompt))
            return logits[rows, 0, target[prompt]] - logits[rows, 0, right[prompt]]

        logits = Recordings(self.model, self.batch, Readout(gain, self.at))
        clean = float(logits.scores().mean())
        rates = self._scores(Recordings(self.model, self.batch, self._says(target)), sets, replacement, self.where)
        gains = self._scores(logits, sets, replacement, self.where)
        return [(rate, value - clean) for rate, value in zip(rates, gains, strict=True)]

    def lens(self, component: Component) -> dict[str, float]:
        """The direct attribution of the answer against the mean token, with its standard error."""
        cache = self.cache
        layers = self.model.config.n_layers
        resid = cache[f"blocks.{layers - 1}.hook_resid_post"][:, END]
        if component.head is None:
            written = cache[f"blocks.{component.layer}.hook_mlp_out"][:, END]
        else:
            written = cache[f"blocks.{component.layer}.attn.hook_result"][:, END, component.head]
        none = torch.full_like(self.answers, -1)
        value = direct_difference(self.model, written, resid=resid, correct=self.answers, wrong=none)
        return {"attribution": float(value.mean()), "error": float(value.std() / len(value) ** 0.5)}

    def attention(self, component: Component) -> dict[str, float]:
        """Mean attention of a head from `=` to every token."""
        pattern = self.cache[f"blocks.{component.layer}.attn.hook_pattern"]
        mean = pattern[:, component.head, END].mean(0)
        return {name: float(mean[place]) for name, place in PLACES.items()}

    def _says(self, answers: Tensor) -> Readout:
        return Readout(lambda logits, prompt: (logits[:, 0].argmax(-1) == answers[prompt]).float(), self.at)

    def _scores(
        self, recordings: Recordings, sets: Sequence[Iterable[Component]], values: Replacement, where: Tensor | None
    ) -> list[float]:
        members = [tuple(one) for one in sets]
        parts = [scores for _, scores in effect_columns(recordings, values, members, positions=where)]
        return torch.cat(parts, 1).mean(0).tolist()

    def _means(self, generator: torch.Generator) -> Values:
        table = activations(self.model, Batch(tokens_of(prompts(MEAN_PROMPTS, generator, test=False))))
        z, mlp = (tuple(part.mean(0, keepdim=True) for part in parts) for parts in (table.z, table.mlp))
        return Values(z, mlp, table.embed.mean(0, keepdim=True))


def largest_drops(accuracy: dict[frozenset[Component], float]) -> dict[Component, dict[str, Any]]:
    """For every head the set whose accuracy falls most when the head is zeroed as well."""
    found = {}
    for head in sorted({head for members in accuracy for head in members}):
        drops = {one: accuracy[one] - accuracy[one | {head}] for one in accuracy if head not in one}
        worst = max(drops, key=lambda one: (drops[one], -len(one), sorted(map(str, one))))
        found[head] = {"drop": drops[worst], "beside": sorted(map(str, worst)), "sets": len(drops)}
    return found


def subsets(heads: Sequence[Component]) -> list[tuple[Component, ...]]:
    return [one for size in range(1, len(heads) + 1) for one in itertools.combinations(heads, size)]


def rounded(value: Any) -> Any:
    """Figures to four digits after the point."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


def components(study: Study) -> dict[str, dict[str, Any]]:
    """Every component by itself."""
    parts = list(study.model.components)
    alone = [(part,) for part in parts]
    zeroed, meaned = study.accuracy(alone, study.zero), study.accuracy(alone, study.mean)
    everywhere = study.accuracy(alone, study.zero, everywhere=True)
    switches = {letter: study.switch(alone, letter) for letter in "ABC"}
    found = {}
    for i, part in enumerate(parts):
        found[str(part)] = {
            "accuracy": {"zeroed": zeroed[i], "mean": meaned[i], "zeroed everywhere": everywhere[i]},
            "switch rate": {letter: switches[letter][i][0] for letter in "ABC"},
            "logits gained": {letter: switches[letter][i][1] for letter in "ABC"},
            "lens": study.lens(part),
            **({"attention": study.attention(part)} if part.is_head else {}),
        }
    return found


def groups(study: Study) -> dict[str, dict[str, Any]]:
    """The groups as wholes."""
    members = {name: tuple(Component.parse(one) for one in names) for name, names in GROUPS.items()}
    members["layers 0 and 1"] = tuple(part for part in study.model.components if part.is_head and part.layer < 2)
    members["all heads"] = tuple(part for part in study.model.components if part.is_head)
    sets = list(members.values())
    zeroed = study.accuracy(sets, study.zero)
    switches = {letter: study.switch(sets, letter) for letter in "ABC"}
    return {
        name: {
            "members": [str(part) for part in members[name]],
            "accuracy zeroed": zeroed[i],
            "switch rate": {letter: switches[letter][i][0] for letter in "ABC"},
        }
        for i, name in enumerate(members)
    }


class Walk:
    """The model at `=` alone, for many sets of zeroed heads: the tokens before have the keys and values of the clean
    run, which nothing at `=` can change.
    """

    def __init__(self, study: Study) -> None:
        directory = arithmetic_directory()
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        self.heads = config["num_attention_heads"]
        self.model = Model(config["num_hidden_layers"], self.heads, config["hidden_size"])
        weights = load_file(directory / "model.safetensors")
        state = {name.removeprefix("model."): weight.float() for name, weight in weights.items()}
        self.model.load_state_dict(state)
        self.tokens, self.answers = study.batch.tokens, study.answers
        x = self.model.embed_tokens(self.tokens)
        self.before = []
        for layer in self.model.blocks:
            self.before.append([part[:, :, :END] for part in self._heads(layer, layer.input_layernorm(x), slice(None))])
            x = layer(x, self.model.cos, self.model.sin, 0.0)

    def accuracy(self, kept: Tensor) -> list[float]:
        """Share of right answers for each row of `kept` [set, layer, head]."""
        n = len(self.tokens)
        found = []
        for part in kept.split(max(1, 4096 // n)):
            x = self.model.embed_tokens(self.tokens[:, END]).repeat(len(part), 1)[:, None]
            for place, layer in enumerate(self.model.blocks):
                q, k, v = self._heads(layer, layer.input_layernorm(x), slice(END, None))
                keys, values = (
                    torch.cat([old.repeat(len(part), 1, 1, 1), new], 2)
                    for old, new in zip(self.before[place][1:], (k, v), strict=True)
                )
                z = torch.nn.functional.scaled_dot_product_attention(q, keys, values)
                z = z * part[:, place].repeat_interleave(n, 0)[:, :, None, None]
                x = x + layer.self_attn.o_proj(z.transpose(1, 2).flatten(2))
                x = x + layer.mlp(layer.post_attention_layernorm(x))
            best = self.model.lm_head(self.model.norm(x[:, 0])).argmax(-1).view(len(part), n)
            found += (best == self.answers).float().mean(1).tolist()
        return found

    def _heads(self, layer: Layer, x: Tensor, where: slice) -> list[Tensor]:
        """Queries, keys and values [prompt, head, position, size] of the positions `where`."""
        attention = layer.self_attn
        q, k, v = (
            projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        cos, sin = self.model.cos[where], self.model.sin[where]
        return [turn(q, cos, sin), turn(k, cos, sin), v]


def kept_heads(sets: Sequence[Iterable[Component]], like: Walk) -> Tensor:
    """1 where a head of [set, layer, head] is left alone, 0 where it is zeroed."""
    kept = torch.ones(len(sets), len(like.model.layers), like.heads)
    for i, members in enumerate(sets):
        for part in members:
            kept[i, part.layer, part.head] = 0.0
    return kept


def all_sets(study: Study) -> tuple[dict[Component, dict[str, Any]], dict[str, Any]]:
    """The largest drop of every head over all sets of other heads, and the accuracy by the number of heads zeroed."""
    smaller = Study(SET_PROMPTS)
    walk, heads = Walk(smaller), [part for part in study.model.components if part.is_head]
    some = [(heads[0],), (heads[3], heads[7]), tuple(heads[6:12]), tuple(heads[2:15:3])]
    slow = smaller.accuracy(some, smaller.zero)
    assert walk.accuracy(kept_heads(some, walk)) == slow, "the walk must agree with the engine"
    late = tuple(head for head in heads if head.layer == 2)
    drops: dict[Component, dict[str, Any]] = {}
    by_size: dict[str, Any] = {}
    kept: dict[frozenset[Component], float] = {}
    for name, own, beside in (
        ("layers 0 and 1", [head for head in heads if head.layer < 2], ()),
        ("layers 0 and 1, all heads of layer 2 zeroed as well", [head for head in heads if head.layer < 2], late),
        ("layer 2", late, ()),
    ):
        every = subsets(own)
        values = walk.accuracy(kept_heads([(*one, *beside) for one in every], walk))
        accuracy = dict(zip(map(frozenset, every), values, strict=True))
        by_size[name] = {
            str(size): sum(same) / len(same)
            for size in range(1, len(own) + 1)
            if (same := [value for one, value in accuracy.items() if len(one) == size])
        }
        if not beside:
            drops |= largest_drops(accuracy | {frozenset(): 1.0})
            kept = accuracy
        else:
            by_size["largest difference that layer 2 makes"] = max(abs(accuracy[one] - kept[one]) for one in accuracy)
        print(f"{len(every)} sets of {name} are measured", flush=True)
    return drops, by_size


def main() -> None:
    study = Study(PROMPTS)
    document = json.loads(KEY.read_text(encoding="utf-8")) if KEY.exists() else {}
    roles = {name: {"role": one["role"], "note": one["note"]} for name, one in document.get("components", {}).items()}
    with torch.no_grad():
        alone = components(study)
        document |= {
            "model": "arithmetic",
            "prompts": {"components and groups": PROMPTS, "all sets": SET_PROMPTS},
            "accuracy": float(study.recordings.scores().mean()),
            "components": {name: {**roles.get(name, {"role": "", "note": ""}), **one} for name, one in alone.items()},
            "groups": groups(study),
        }
        KEY.write_text(json.dumps(rounded(document), indent=1) + "\n", encoding="utf-8")
        print("components and groups are measured", flush=True)
        drops, by_size = all_sets(study)
    for head, one in drops.items():
        document["components"][str(head)]["largest drop"] = one
    document["mean accuracy by number of heads zeroed"] = by_size
    KEY.write_text(json.dumps(rounded(document), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
