"""What it costs to do without the two runs that stand beside the engine's plans (docs/decisions/0015-fast-paths.md).

Edge masks: all prompts with half of a model's edges cut, under several masks, against the same cuts as plans of the
engine. Stacked training: the gradient of one interchange for several small models at once, against the same models one
after another with hooks (the engine's own runs keep no gradient).
"""

import torch
from torch import Tensor

from benchmarks.measure import agree, report, rivals
from benchmarks.shapes import TINY, random_transformer
from vesalius.components import Component
from vesalius.intervene import Batch, Plan, Recordings, activations, logit_difference, run
from vesalius.intervene.edges import EdgeGraph, SenderRecordings, run_edge_masks
from vesalius.intervene.plan import KEEP, EdgeEdit
from vesalius.model import Config, Transformer
from vesalius.model.states import build
from vesalius.rasp import Map, compile_program, tokens
from vesalius_truth.training.setting import setting_of
from vesalius_truth.training.stack import Copy, Nodes, Patch, Stack

SMALL = Config(n_layers=4, n_heads=4, d_model=64, d_head=16, d_mlp=256, d_vocab=500, d_vocab_out=500, n_ctx=16)
MASKS, PROMPTS, COPIES, ROWS = 16, 8, 16, 64


def edge_masks(name: str, config: Config, std: float) -> dict:
    """Masks that cut half of the edges at random, on prompts of ten tokens."""
    model, graph = random_transformer(config, std=std), EdgeGraph.of(config)
    generator = torch.Generator().manual_seed(0)
    prompts, others = torch.randint(0, config.d_vocab, (2, PROMPTS, 10), generator=generator)
    readout = logit_difference(*(torch.full((PROMPTS,), x) for x in (9, 1, 2)))
    cut = (torch.rand(MASKS, *graph.real.shape, generator=generator) < 0.5) & graph.real

    def by_masks() -> Tensor:
        recordings = SenderRecordings(model, Batch(prompts), readout, counterfactual=Batch(others))
        return run_edge_masks(recordings, cut)

    def by_plans() -> Tensor:
        edits = tuple(
            EdgeEdit(mask * PROMPTS + prompt, edge, prompt)
            for mask in range(MASKS)
            for edge, (sender, receiver) in zip(graph.edges, graph.places.tolist(), strict=True)
            if cut[mask, sender, receiver]
            for prompt in range(PROMPTS)
        )
        choice = torch.full((MASKS * PROMPTS, len(model.components)), KEEP)
        plan = Plan(torch.arange(PROMPTS).repeat(MASKS), choice, edges=edits)
        values = activations(model, Batch(others))
        return run(Recordings(model, Batch(prompts), readout), plan, values).view(MASKS, PROMPTS)

    difference = agree(name, (by_masks() - by_plans()).abs().max().item(), 1e-4)
    timed = rivals(by_masks, by_plans, repeats=3, warm_up=False)
    return {
        "name": name,
        "edges": len(graph.edges),
        "masks": MASKS,
        "prompts": PROMPTS,
        "agreement": difference,
        **timed,
    }


def stacked_training() -> dict:
    """Gradients of COPIES models of one shape under an interchange of their first head."""
    following = dict(zip("abcde", "bcdea", strict=True))
    program = compile_program(Map(following.get, tokens), list("abcde"), 9, causal=False, name="lookup")
    setting = setting_of(program)
    stack = Stack([setting], [Copy(0, seed, 1e-3) for seed in range(COPIES)], device=torch.device("cpu"))
    generator, width = torch.Generator().manual_seed(0), setting.config.n_ctx
    base, source = torch.randint(0, 5, (2, COPIES, ROWS, width), generator=generator)
    real = torch.ones(COPIES, width, ROWS, dtype=torch.bool)
    head = Component(0, 0)

    def by_stack() -> Tensor:
        weights = stack.weights
        _, nodes = stack.run(weights, source.transpose(1, 2), real)
        mask = torch.zeros(COPIES, stack.n_nodes, width, ROWS, dtype=torch.bool)
        mask[:, stack.node(head)] = True
        logits, _ = stack.run(weights, base.transpose(1, 2), real, Patch(mask, Nodes(nodes.z, nodes.mlp)))
        loss = logits.log_softmax(1)[:, 0].mean((1, 2))
        return torch.autograd.grad(loss.sum(), weights)[0].norm(dim=1)

    models = [_model(stack, copy) for copy in range(COPIES)]

    def one_after_another() -> Tensor:
        return torch.stack([_gradient(model, base[i], source[i], head) for i, model in enumerate(models)])

    together, alone = by_stack(), one_after_another()
    difference = agree("stacked training", ((together - alone).abs() / alone).max().item(), 1e-3)
    timed = rivals(by_stack, one_after_another, repeats=5, warm_up=False)
    return {"name": "stacked training", "copies": COPIES, "rows": ROWS, "agreement": difference, **timed}


def _model(stack: Stack, copy: int) -> Transformer:
    model = build(stack.configs[copy], stack.export(copy), where="benchmark")
    return model.requires_grad_(True)


def _gradient(model: Transformer, base: Tensor, source: Tensor, head: Component) -> Tensor:
    """The norm of the gradient of one model, by two hooked runs."""
    name = f"blocks.{head.layer}.attn.hook_z"
    kept = {}

    def keep(z: Tensor, hook: object) -> None:
        kept["z"] = z

    def put(z: Tensor, hook: object) -> Tensor:
        return torch.cat([kept["z"][:, :, :1], z[:, :, 1:]], 2)

    model.run_with_hooks(source, fwd_hooks=[(name, keep)])
    logits = model.run_with_hooks(base, fwd_hooks=[(name, put)])
    loss = logits.log_softmax(-1)[..., 0].mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return torch.cat([gradient.flatten() for gradient in gradients if gradient is not None]).norm()


if __name__ == "__main__":
    torch.set_num_threads(1)
    report(
        "fast_paths",
        [
            edge_masks("edge masks, tiny shape", TINY, 0.7),
            edge_masks("edge masks, 4 layers of 4 heads", SMALL, 0.1),
            stacked_training(),
        ],
    )
