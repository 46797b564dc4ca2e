"""How well attribution agrees with exact patching for single edges and single neurons: EAP, EAP-IG and RelP.

    python -m benchmarks.relp_parts --out benchmarks/results/relp_parts.json smollm2-135m:ioi smollm2-135m:induction

Edges and neurons are drawn at random, the same for every prompt seed and every method. For each seed: exact effects of
cutting each edge over to the counterfactual and of putting the counterfactual's value in the place of each neuron,
means over the prompts, and Pearson's correlation of the estimates with them. The figure is the mean over seeds, with
the 95 % bootstrap interval over seeds. EAP-IG takes four times as many passes as the others; at equal passes it sees a
quarter of the prompts. Edges into queries and keys, to which RelP gives no score by its definition, are also apart.
"""

import argparse
import platform
import random
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import vesalius as ves
from benchmarks.relp import METHODS, STEPS, correlation
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component, Edge, mlp_units
from vesalius.files import read_json, write_json
from vesalius.intervene import Plan, Recordings, Replacement, Row, ablation_named, attribute_units, effects, run
from vesalius.intervene.attribution import Rule, edge_attribution
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.values import UNIT_HOOKS, activations
from vesalius.model.hooks import HookPoint, Tap
from vesalius.model.transformer import Transformer
from vesalius.statistics import mean_interval

N, SEEDS, EDGES, NEURONS = 8, 5, 600, 1500
QUARTER = "eap-ig, a quarter of the prompts"


def exact_edges(model: Transformer, material: Trial, edges: list[Edge]) -> Float[Tensor, " edge"]:
    """The mean effect of cutting each edge over to the counterfactual."""
    n, width = material.batch.tokens.shape
    recordings = Recordings(model, material.batch.to(model.device), material.readout)
    where = None if material.where is None else [row.nonzero()[:, 0].tolist() for row in material.where]
    rows = [
        Row(prompt, edges={edge: prompt}, positions=None if where is None else where[prompt])
        for edge in edges
        for prompt in range(n)
    ]
    values = activations(model, material.counterfactual.to(model.device))
    scores = run(recordings, Plan.of(model.config, rows, width=width), values)
    return (recordings.scores() - scores.view(len(edges), n)).mean(1).cpu()


def integrated_neurons(model: Transformer, material: Trial, replacement: Replacement) -> Float[Tensor, "prompt neuron"]:
    """EAP-IG for neurons: gradients averaged over runs whose embeddings lie between the counterfactual's and the clean
    prompt's, times the change of every neuron.
    """
    batch, readout = material.batch.to(model.device), material.readout
    clean, other = activations(model, batch, neurons=True), replacement.values
    total: dict[str, Tensor] = {}
    for step in range(1, STEPS + 1):
        between = other.embed + step / STEPS * (clean.embed - other.embed)
        kept: dict[str, Tensor] = {}

        def start(value: Tensor, hook: HookPoint, between: Tensor = between) -> Tensor:
            return between.detach().requires_grad_()

        def keep(value: Tensor, hook: HookPoint, kept: dict[str, Tensor] = kept) -> None:
            kept[hook.name] = value

        tap = Tap([("blocks.0.hook_resid_pre", start), (lambda name: name.endswith(UNIT_HOOKS), keep)])
        with torch.enable_grad():
            logits = model(batch.tokens, mask=batch.mask, choose=readout.choose, tap=tap)
            rows = torch.arange(len(batch), device=logits.device)
            if readout.at is not None:
                logits = logits[rows[:, None], readout.at.to(logits.device)]
            slopes = torch.autograd.grad(readout.score(logits, rows).sum(), list(kept.values()))
        for name, slope in zip(kept, slopes, strict=True):
            total[name] = total.get(name, 0) + slope / STEPS
    changes = [own - new for own, new in zip(clean.units, other.units, strict=True)]
    return torch.cat([(slope * change).sum(1) for slope, change in zip(total.values(), changes, strict=True)], 1).cpu()


def edge_estimates(model: Transformer, material: Trial, places: Tensor) -> dict[str, Float[Tensor, "prompt edge"]]:
    """Every method's estimates of some edges."""
    return {
        name: edge_attribution(
            model,
            material.batch,
            material.readout,
            counterfactual=material.counterfactual,
            where=material.where,
            **options,
        )[:, places[:, 0], places[:, 1]]
        for name, options in METHODS.items()
    }


def neuron_estimates(model: Transformer, material: Trial) -> dict[str, Float[Tensor, "prompt neuron"]]:
    """Every method's estimates of all neurons."""
    replacement = ablation_named("resample").table(
        model, material.batch, counterfactual=material.counterfactual, neurons=True
    )
    rules: dict[str, Rule] = {"eap": "gradient", "relp": "relp", "relp-qk": "relp-qk"}
    estimates = {
        name: attribute_units(model, material.batch, material.readout, replacement, rule=rule)
        for name, rule in rules.items()
    }
    return estimates | {"eap-ig": integrated_neurons(model, material, replacement)}


def correlations(exact: Tensor, estimates: dict[str, Tensor]) -> dict[str, float]:
    """Pearson's correlation of the means of every method with exact effects."""
    means = {name: scores.mean(0) for name, scores in estimates.items()}
    means[QUARTER] = estimates["eap-ig"][: N // 4].mean(0)
    return {name: correlation(mean, exact) for name, mean in means.items() if float(mean.abs().max()) > 0}


def one_seed(
    model: Transformer, material: Trial, edges: list[Edge], places: Tensor, neurons: list[Component]
) -> dict[str, dict[str, float]]:
    """The correlations of one draw of prompts."""
    exact, estimates = exact_edges(model, material, edges), edge_estimates(model, material, places)
    groups = {
        "edges": torch.ones(len(edges), dtype=torch.bool),
        "edges into queries and keys": torch.tensor([edge.port in ("q", "k") for edge in edges]),
        "other edges": torch.tensor([edge.port not in ("q", "k") for edge in edges]),
    }
    result = {
        kind: correlations(exact[own], {name: scores[:, own] for name, scores in estimates.items()})
        for kind, own in groups.items()
    }
    every = {part: i for i, part in enumerate(mlp_units(model.config))}
    columns = torch.tensor([every[part] for part in neurons])
    swept = effects(
        model,
        material.batch,
        material.readout,
        kind="resample",
        sets=[(part,) for part in neurons],
        counterfactual=material.counterfactual,
    )
    scores = {name: scores[:, columns] for name, scores in neuron_estimates(model, material).items()}
    return {**result, "neurons": correlations(swept.mean, scores)}


def measured(model_name: str, behaviour: str, n_seeds: int = SEEDS) -> dict[str, Any]:
    """One behaviour of one model."""
    specimen = ves.load(model_name, behaviour=behaviour)
    model, rng, graph = specimen.model, random.Random(0), EdgeGraph.of(specimen.model.config)
    drawn = sorted(rng.sample(range(graph.n_edges), min(EDGES, graph.n_edges)))
    places = graph.places[drawn]
    edges = [Edge(graph.senders[s], *graph.receivers[r]) for s, r in places.tolist()]
    every = mlp_units(model.config)
    neurons = sorted(rng.sample(every, min(NEURONS, len(every))))
    seeds = [one_seed(model, trial(specimen, N, seed=seed), edges, places, neurons) for seed in range(n_seeds)]
    return {
        "model": specimen.name,
        "behaviour": behaviour,
        "n": N,
        "seeds": n_seeds,
        "edges": [len(edges), graph.n_edges],
        "neurons": [len(neurons), len(every)],
        "correlations": {kind: _over_seeds([one[kind] for one in seeds]) for kind in seeds[0]},
    }


def _over_seeds(seeds: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and interval of each method; one that gives no score has none."""
    figures = {}
    for name in seeds[0]:
        values = torch.tensor([[seed[name]] for seed in seeds if name in seed], dtype=torch.float64)
        low, high = mean_interval(values)
        figures[name] = {"mean": float(values.mean()), "low": float(low), "high": float(high), "n": len(values)}
    return figures


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="MODEL:BEHAVIOUR")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    runs = read_json(given.out)["runs"] if given.out.exists() else []
    machine = {"processor": platform.machine(), "torch": torch.__version__, "threads": torch.get_num_threads()}
    for model, behaviour in (case.rsplit(":", 1) for case in given.cases):
        if (Path(model).stem, behaviour) not in {(one["model"], one["behaviour"]) for one in runs}:
            runs.append(measured(model, behaviour, given.seeds))
            write_json(given.out, {"benchmark": "relp parts", "schema": 1, "machine": machine, "runs": runs})


if __name__ == "__main__":
    main()
