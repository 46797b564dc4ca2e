"""Are the names of heads in explanations true? The standard tests by plain hooks and weights, without atlas or claims.

    python -m benchmarks.head_names DIRECTORY --out benchmarks/results/head_names.json
    python -m benchmarks.head_names DIRECTORY --model models/gemma-3-270m-q4_k_m.gguf

reads every explanation of a natural model under the directory (`--model` says where the model lies, if not where it was
explained). A head that is called a previous-token, duplicate-token,
prefix-matching or induction head is measured on random tokens that are repeated once; one that is said to read a role,
or to rest on BOS, on fresh prompts of its behaviour; copying and suppression through the weights: the logit that a
head's value and output matrices give a token for itself, read from the stream after the first layer as in the IOI
paper, less the mean over all tokens, in standard deviations. A name is *false* where its figure misses the bar: a
quarter of the attention for places on random tokens (uniform attention has 0.02 there), half for roles, any copying
for an induction head, and any suppression for a suppressor.

The second figure is how much the entries of components say. *Nothing*: no role, or that it is necessary or a small part
without a place, a path or a content.
"""

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import vesalius as ves
from benchmarks.entries import SILENT
from benchmarks.plain_claims import PlainCheck, natural_explanations
from vesalius.components import Component
from vesalius.files import write_json
from vesalius.model.transformer import Transformer

LENGTH, PROMPTS, SEED = 32, 16, 12345
LEAST_PLACE, LEAST_ROLE = 0.25, 0.5


class StandardTests:
    """The figures of all heads of a model, each made when it is asked for; `first` is the token that begins a text."""

    def __init__(self, model: Transformer, first: int) -> None:
        self.model = model
        generator = torch.Generator().manual_seed(SEED)
        half = torch.randint(1000, model.config.d_vocab, (PROMPTS, LENGTH), generator=generator)
        front = torch.full((PROMPTS, 1), first)
        tokens = torch.cat([front, half, half], 1).to(model.device)
        with torch.no_grad():
            cache = model.run_with_cache(tokens)[1]
        self.tokens, self.stream = tokens, cache["blocks.0.hook_resid_post"].float()
        self.patterns = {
            layer: cache[f"blocks.{layer}.attn.hook_pattern"].float() for layer in range(model.config.n_layers)
        }

    def place(self, head: Component, back: int) -> float:
        """Mean attention of the second half on the token so many places back."""
        pattern = self.patterns[head.layer][:, head.head]
        queries = torch.arange(LENGTH + 1, 2 * LENGTH + 1)
        return float(pattern[:, queries, queries - back].mean())

    @torch.no_grad()
    def copying(self, head: Component) -> float:
        """Mean over tokens of a token's own logit through the value and output matrices, in standard deviations."""
        attention, norm = self.model.blocks[head.layer].attn, self.model.blocks[head.layer].ln1
        read = self._scaled(self.stream[:, 1 : LENGTH + 1].flatten(0, 1), norm)
        written = read @ _value_matrix(attention, head).float() @ attention.W_O[head.head].float()
        for after in (self.model.blocks[head.layer].ln1_post, self.model.ln_final):
            written = written if after.w is None else self._centred(written) * after.w.float()
        logits: Tensor = written @ self.model.W_U.float()
        own = logits.gather(1, self.tokens[:, 1 : LENGTH + 1].flatten()[:, None])[:, 0]
        return float(((own - logits.mean(1)) / logits.std(1)).mean())

    def _scaled(self, read: Tensor, norm: Any) -> Tensor:
        """What a norm makes of the stream, without its bias, which is the same for every token."""
        read = self._centred(read)
        return read * (read.pow(2).mean(-1, keepdim=True) + self.model.config.norm_eps).rsqrt() * norm.w.float()

    def _centred(self, read: Tensor) -> Tensor:
        return read - read.mean(-1, keepdim=True) if self.model.config.norm == "layer" else read


def _value_matrix(attention: Any, head: Component) -> Tensor:
    """The head's own value matrix; several heads may share one."""
    assert head.head is not None
    return attention.W_V[head.head * len(attention.W_V) // len(attention.W_O)]


def figures(role: str, head: Component, tests: StandardTests, prompts: PlainCheck) -> dict[str, tuple[float, float]]:
    """What a name is about: each figure with the least that it must reach."""
    shown: dict[str, tuple[float, float]] = {}
    if "previous-token head" in role:
        shown["attention on the previous token"] = tests.place(head, 1), LEAST_PLACE
    if "duplicate-token head" in role:
        shown["attention on the same token"] = tests.place(head, LENGTH), LEAST_PLACE
    if "prefix-matching head" in role or "induction head" in role:
        shown["attention on the token after the earlier copy"] = tests.place(head, LENGTH - 1), LEAST_PLACE
    if "induction head" in role:
        shown["copying, from weights"] = tests.copying(head), 0.0
    if "copy-suppression head" in role:
        shown["suppression, from weights"] = -tests.copying(head), 0.0
    if "BOS sink" in role:
        pattern = prompts.cache[f"blocks.{head.layer}.attn.hook_pattern"][:, head.head]
        shown["attention on BOS"] = float(pattern[prompts.rows, prompts.position, 0].mean()), LEAST_ROLE
    for name, place in prompts.roles.items():
        if f"reads {name}" in role.split(", "):
            pattern = prompts.cache[f"blocks.{head.layer}.attn.hook_pattern"][:, head.head]
            shown[f"attention on {name}"] = float(pattern[prompts.rows, prompts.position, place].mean()), LEAST_ROLE
        for query, at in prompts.roles.items():
            if f"reads {name} from {query}" in role.split(", "):
                pattern = prompts.cache[f"blocks.{head.layer}.attn.hook_pattern"][:, head.head]
                words = f"attention on {name} from {query}"
                shown[words] = float(pattern[prompts.rows, at, place].mean()), LEAST_ROLE
    return shown


def audit(document: Mapping[str, Any], tests: StandardTests, prompts: PlainCheck) -> list[dict[str, Any]]:
    """The role of every component, what it says, and its figures."""
    rows = []
    for part in document["components"]:
        head, role = Component.parse(part["id"]), part["role"] or SILENT[0]
        found = figures(role, head, tests, prompts) if head.is_head else {}
        rows.append(
            {
                "behaviour": document["behaviour"],
                "seed": document["seed"],
                "component": part["id"],
                "role": role,
                "silent": role in SILENT,
                "figures": {name: round(value, 4) for name, (value, _) in found.items()},
                "false": [name for name, (value, least) in found.items() if value < least],
            }
        )
    return rows


def main() -> None:
    """Print the false names and the share of entries that say nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--model", help="the model, where it does not lie where it was explained")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    tests: dict[str, StandardTests] = {}
    prompts: dict[tuple[str, str], PlainCheck] = {}
    for document in natural_explanations(given.directory):
        name, behaviour = given.model or document["specimen"], document["behaviour"]
        if (name, behaviour) not in prompts:
            specimen = ves.load(name, behaviour=behaviour)
            prompts[name, behaviour] = PlainCheck(specimen, given.prompts)
            if name not in tests:
                tests[name] = StandardTests(specimen.model, int(prompts[name, behaviour].tokens[0, 0]))
        rows += audit(document, tests[name], prompts[name, behaviour])
    named = [row for row in rows if row["figures"]]
    wrong = [row for row in named if row["false"]]
    silent = [row for row in rows if row["silent"]]
    print(f"{len(named)} of {len(rows)} entries have a name with a standard test; false: {len(wrong)}")
    for row in wrong:
        print(row["behaviour"], row["seed"], row["component"], row["role"], row["figures"])
    print(f"entries that say nothing: {len(silent)} of {len(rows)} ({len(silent) / max(1, len(rows)):.2f})")
    print(Counter(row["role"] for row in silent).most_common())
    if given.out:
        silences = dict(Counter(row["role"] for row in silent))
        data = {"prompts": given.prompts, "entries": len(rows), "silent": silences, "rows": named}
        write_json(given.out, {"benchmark": "head_names", **data})


if __name__ == "__main__":
    main()
