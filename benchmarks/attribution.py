"""Edge attribution of 8 prompt pairs against TransformerLens 4.3's edge mode, position by position, on the same
GPT-2-small-shaped weights.

Theirs takes the gradient at the corrupt run and points towards the clean one; ours takes it at the run it is given and
points away from the counterfactual. With corrupt and clean exchanged, ours is theirs with the sign turned. Theirs
returns the mean over the pairs, so that is what is compared; ours keeps the pairs apart as well.

Runs in an environment of its own (`make bench-lens`), because TransformerLens brings 80 packages.
"""

import os
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor
from transformer_lens.model_bridge.sources import build_bridge_from_module
from transformer_lens.tools.analysis.attribution_patching import (
    EdgeAttributionConfig,
    Node,
    attribution_patch,
)
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.measure import agree, report, rivals
from vesalius.components import Component, Edge
from vesalius.intervene import Batch, logit_difference
from vesalius.intervene.attribution import edge_attribution
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.sources import load_huggingface

PAIRS, TOKENS, VOCABULARY = 8, 15, 50257
RIGHT, WRONG = 464, 1212
PORTS = {"q_input": "q", "k_input": "k", "v_input": "v", "mlp_in": "mlp", "logits": "logits"}


def main() -> None:
    """Agreement of every score at every position, then time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = GPT2Config()
    config._attn_implementation = "eager"
    theirs = GPT2LMHeadModel(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load_huggingface(Path(folder))
    bridge = build_bridge_from_module(theirs, "GPT2LMHeadModel", hf_config=config, tokenizer=None).eval()
    clean, corrupt = torch.randint(0, VOCABULARY, (2, PAIRS, TOKENS), generator=torch.Generator().manual_seed(0))
    readout = logit_difference(*(torch.full((PAIRS,), x) for x in (TOKENS - 1, RIGHT, WRONG)))
    graph = EdgeGraph.of(ours.config)

    def our_scores() -> Tensor:
        found = edge_attribution(ours, Batch(corrupt), readout, counterfactual=Batch(clean), per_position=True)
        return -found.mean(0)

    def lens_scores() -> dict[tuple[Node, Node], float]:
        def metric(logits: Tensor) -> Tensor:
            return logits[0, -1, RIGHT] - logits[0, -1, WRONG]

        edge_mode = EdgeAttributionConfig(granularity="edge")
        return attribution_patch(bridge, clean, corrupt, metric, config=edge_mode).edge_scores

    table = laid_out(lens_scores(), graph)
    largest, difference = float(table.abs().max()), float((our_scores() - table).abs().max())
    agree("attribution", difference, 1e-5 * min(1.0, largest))
    timed = rivals(our_scores, lens_scores, repeats=3)
    row = {
        "name": "gpt2-small shape, edge attribution per position",
        "peer": f"transformer-lens {version('transformer-lens')}",
        "pairs": PAIRS,
        "tokens": TOKENS,
        "edges": len(graph.edges),
        "scores": len(graph.edges) * TOKENS,
        "agreement": difference,
        "largest_score": largest,
        "ours_per_pair": timed["ours"] / PAIRS,
        "theirs_per_pair": timed["theirs"] / PAIRS,
    }
    report("attribution", [{**row, **timed}])


def laid_out(scores: dict[tuple[Node, Node], float], graph: EdgeGraph) -> Tensor:
    """Their dictionary as `[pos, sender, receiver]`; an edge that only one side has is refused."""
    places = dict(zip(graph.edges, graph.places.tolist(), strict=True))
    if len(scores) != len(places) * TOKENS:
        raise SystemExit(f"attribution: they score {len(scores)} edges, ours has {len(places) * TOKENS}")
    table = torch.zeros(TOKENS, *graph.real.shape)
    for (writer, reader), score in scores.items():
        sender = None if writer.layer is None else Component(writer.layer, writer.head)
        receiver = None if reader.kind == "logits" else Component(reader.layer or 0, reader.head)
        row, column = places[Edge(sender, receiver, PORTS[reader.kind])]  # type: ignore[arg-type]
        table[writer.position, row, column] = score
    return table


if __name__ == "__main__":
    main()
