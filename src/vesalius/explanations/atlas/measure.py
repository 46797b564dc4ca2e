"""Measure the atlas of a model: one run of repeated random tokens, one of plain text, and arithmetic on the weights.

1. Random tokens, repeated once: attention by role, how much of it position explains, and what each head writes about
   the tokens that it attends to.
2. Passages of plain text: the same, and attention by class of token; what neurons fire on, in both runs.
3. From weights, on a sample of tokens: what each head writes about the token that it reads, and which tokens heads and
   the most selective neurons raise and lower.
4. Names by rule (`discovery.head_tests`).

Of a specimen with a listed vocabulary only attention is measured, on inputs of its own: its outputs are not tokens that
a head could copy.
"""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.head_tests import (
    BOS,
    FIRST_TOKEN,
    NO_NAME,
    RULES,
    AttentionReader,
    Detections,
    Probe,
    is_pattern,
    names_of,
    ordinary_tokens,
    repeated_tokens,
)
from vesalius.documents.atlas import FIGURES, Atlas, AtlasHead, AtlasMlp, AtlasNeuron, OnText, Written
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius.explanations.atlas.text import WORDS, classes, passages
from vesalius.intervene.written_tokens import (
    Writing,
    neuron_vectors,
    raised_and_lowered,
    written_for,
)
from vesalius.model.config import Config
from vesalius.model.hooks import Hook, HookPoint
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.progress import Progress, silent

#: Tokens that figures are standardised over, and neurons of each MLP that are described.
SAMPLE, NEURONS = 512, 3
#: The share of tokens on which a selective neuron has its activity, and how many of them are named.
FEW, NAMED_TOKENS = 0.01, 5
DIGITS = 4


def require_atlas(specimen: Specimen) -> None:
    """Refuse a model without heads to look at."""
    if specimen.model.config.n_heads < 1:
        raise BadInput(f"{specimen.name} has no attention heads; an atlas is of heads")


@torch.no_grad()
def standard_names(specimen: Specimen, seed: int = 0) -> dict[str, tuple[str, ...]]:
    """The names of every head that has one: of the atlas only what names follow from is measured. None has one where
    the model has no heads, or too few tokens to repeat.
    """
    try:
        require_atlas(specimen)
        probe = repeated_tokens(specimen, seed=seed)
    except BadInput:
        return {}
    writing, columns = _writing(specimen, [probe], seed)
    run = _Run(specimen, probe, writing, columns, neurons=False)
    weights = None if writing is None else _weights(specimen, writing)
    parts = [part for part in specimen.model.components if part.is_head]
    return {str(part): names for part in parts if (names := names_of(_figures(part, run, weights)))}


@torch.no_grad()
def atlas_of(
    specimen: Specimen,
    request: Request,
    *,
    model: str,
    seed: int = 0,
    words: Sequence[str] = WORDS,
    progress: Progress = silent,
) -> Atlas:
    """Measure every head and MLP; `model` is the digest of its weights, `words` those that heads are asked about."""
    started, config = time.monotonic(), specimen.model.config
    require_atlas(specimen)
    probe, text = repeated_tokens(specimen, seed=seed), passages(specimen)
    writing, columns = _writing(specimen, [one for one in (probe, text) if one is not None], seed)
    progress("running repeated random tokens", 0, 3)
    random_run = _Run(specimen, probe, writing, columns)
    progress("running plain text", 1, 3)
    text_run = None if text is None else _Run(specimen, text, writing, columns)
    progress("reading the weights", 2, 3)
    from_weights = None if writing is None else _weights(specimen, writing)
    asked = [] if writing is None else _known_words(specimen, words)
    written = _written(specimen, asked)
    heads = [
        _head(Component(layer, head), random_run, text_run, from_weights, written.get((layer, head), ()))
        for layer in range(config.n_layers)
        for head in range(config.n_heads)
    ]
    runs = [run for run in (random_run, text_run) if run is not None]
    mlps = [] if writing is None else [_mlp(specimen, layer, runs, writing) for layer in range(config.n_layers)]
    progress("reading the weights", 3, 3)
    return Atlas(
        request=request,
        model=model,
        layers=config.n_layers,
        heads_per_layer=config.n_heads,
        heads=tuple(heads),
        mlps=tuple(mlps),
        chance=_chance(random_run.detections),
        chance_on_text={} if text_run is None else {**_chance(text_run.detections), **text_run.class_chance},
        rules={rule.name: str(rule) for rule in RULES},
        rows=len(probe.batch),
        text_rows=0 if text is None else len(text.batch),
        sample=0 if writing is None else writing.n,
        notes=tuple(_notes(specimen, text_run, words, asked)),
        forwards=float(sum(len(run.probe.batch) for run in runs)),
        seconds=round(time.monotonic() - started, 2),
    )


def _notes(specimen: Specimen, text: "_Run | None", words: Sequence[str], asked: Sequence[int]) -> list[str]:
    """What was not measured, and why."""
    if isinstance(specimen.vocabulary, FiniteVocabulary):
        return [
            "Only attention was measured, on inputs of the specimen's own: its outputs are not tokens that heads could "
            "copy, and it has no text."
        ]
    notes = []
    if text is None:
        notes.append("Its vocabulary cannot say plain text: figures are of random tokens alone.")
    if asked and len(asked) < len(words):
        notes.append(f"{len(words) - len(asked)} of {len(words)} words are not one token here and were left out.")
    if specimen.model.config.experts is not None:
        notes.append("MLPs that are made of experts are not taken apart.")
    if specimen.model.config.d_vocab_out != specimen.model.config.d_vocab:
        notes.append("It writes other tokens than it reads: what heads copy was not measured.")
    return notes


# Runs.


class _Run:
    """A run of a probe: attention by role, what heads write about what they attend to, and what neurons fire on."""

    def __init__(
        self,
        specimen: Specimen,
        probe: Probe,
        writing: Writing | None,
        columns: dict[int, int] | None,
        *,
        neurons: bool = True,
    ) -> None:
        self.probe, self._writing = probe, writing
        model, config = specimen.model, specimen.model.config
        self.sink = BOS if probe.first else FIRST_TOKEN
        self._reader = AttentionReader(model, probe)
        self._patterns: dict[int, Tensor] = {}
        self.copying: list[Tensor] = []
        self.firing: dict[int, _Firing] = {}
        self._tokens = probe.batch.tokens
        self._columns = _at_keys(probe, columns) if columns is not None else None
        text = isinstance(specimen.vocabulary, TextVocabulary)
        self._classes = {kind: _keys(probe, where) for kind, where in classes(specimen, probe).items()} if text else {}
        self._queries = probe.real & (torch.arange(probe.batch.tokens.shape[1]) >= probe.first)
        self._by_class: dict[str, list[Tensor]] = {kind: [] for kind in self._classes}
        hooks: list[Hook] = [(is_pattern, self._see_pattern)]
        if writing is not None:
            hooks += [(_is_z, self._see_z), *([(_is_post, self._see_neurons)] if neurons else [])]
        batch = probe.batch.to(model.device)
        none = torch.zeros(len(batch), 1, dtype=torch.long, device=model.device)
        model.run_with_hooks(batch.tokens, mask=batch.mask, choose=none, fwd_hooks=hooks)
        self.detections = self._reader.detections
        self.by_class = {kind: torch.stack(layers) for kind, layers in self._by_class.items()}
        self.class_chance = _class_chance(config, probe, self._classes, self._queries)

    def _see_pattern(self, pattern: Tensor, point: HookPoint) -> None:
        self._reader.hook(pattern, point)
        for kind, target in self._classes.items():
            self._by_class[kind].append(_class_mass(pattern, target, self._queries))
        if self._writing is not None:
            self._patterns = {point.layer(): pattern}  # only until this layer's z comes

    def _see_z(self, z: Tensor, point: HookPoint) -> None:
        assert self._writing is not None
        assert self._columns is not None
        layer = point.layer()
        self.copying.append(self._writing.in_run(layer, z, self._patterns[layer], self._columns))

    def _see_neurons(self, post: Tensor, point: HookPoint) -> None:
        real = self.probe.real.clone()
        real[:, : self.probe.first] = False
        self.firing[point.layer()] = _Firing(post[real.to(post.device)].abs().float().cpu(), self._tokens[real])


@dataclass(frozen=True)
class _Firing:
    """How active each neuron is at each token, by size."""

    activity: Float[Tensor, "token neuron"]
    tokens: Int[Tensor, " token"]


def _is_z(name: str) -> bool:
    return name.endswith(".attn.hook_z")


def _is_post(name: str) -> bool:
    return name.endswith(".mlp.hook_post")


def _keys(probe: Probe, where: Tensor) -> Tensor:
    """The pairs of every query behind BOS with the keys of a class before it."""
    place = torch.arange(where.shape[1])
    queries = probe.real & (place >= probe.first)
    return queries[:, :, None] & where[:, None, :] & (place[None, :] <= place[:, None])


def _class_mass(pattern: Tensor, target: Tensor, queries: Tensor) -> Float[Tensor, " head"]:
    """Attention on the keys of a class, averaged over all queries, also those before which the class does not occur."""
    mass = torch.einsum("phqk,pqk->h", pattern.float(), target.to(pattern.device).float())
    return (mass / queries.sum()).cpu()


def _class_chance(config: Config, probe: Probe, targets: dict[str, Tensor], queries: Tensor) -> dict[str, float]:
    """What uniform attention has on each class of tokens."""
    uniform = probe.uniform(causal=config.causal)[:, None]
    return {kind: round(_class_mass(uniform, target, queries).item(), DIGITS) for kind, target in targets.items()}


def _at_keys(probe: Probe, columns: dict[int, int]) -> Int[Tensor, "prompt key"]:
    """Which column of the sample the token at each key is; -1 for the first position, where heads look that have
    nothing to find, and for padding.
    """
    found = torch.tensor([[columns.get(token, -1) for token in row] for row in probe.batch.tokens.tolist()])
    found[:, 0] = -1
    return found.masked_fill(~probe.real, -1)


# Weights.


@dataclass(frozen=True)
class _FromWeights:
    """What each head writes about the token that it reads, `[layer, head]`; with the embedding alone, and with the
    effective one, which the first layer does not read.
    """

    plain: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    effective: list[tuple[Tensor, Tensor]] = field(default_factory=list)


def _writing(specimen: Specimen, probes: Sequence[Probe], seed: int) -> tuple[Writing | None, dict[int, int] | None]:
    """The two ends of the model on a sample of tokens, and the column of each token of the sample and the probes. The
    random tokens that were run are in the sample.
    """
    config = specimen.model.config
    if isinstance(specimen.vocabulary, FiniteVocabulary) or config.d_vocab != config.d_vocab_out:
        return None, None
    ordinary = ordinary_tokens(specimen)
    sample = probes[0].batch.tokens[:, probes[0].first :].unique().tolist()
    others = sorted(set(ordinary) - set(sample))
    sample += random.Random(f"atlas/{seed}").sample(others, max(0, min(SAMPLE - len(sample), len(others))))
    further = sorted({token for probe in probes for token in probe.batch.tokens.unique().tolist()} - set(sample))
    columns = {token: place for place, token in enumerate([*sample, *further])}
    return Writing(specimen.model, torch.tensor(sample), torch.tensor(further, dtype=torch.long)), columns


def _weights(specimen: Specimen, writing: Writing) -> _FromWeights:
    found = _FromWeights()
    for layer in range(specimen.model.config.n_layers):
        found.plain.append(writing.own_token(layer, writing.plain))
        found.effective.append(writing.own_token(layer, writing.effective) if layer else found.plain[0])
    return found


def _known_words(specimen: Specimen, words: Sequence[str]) -> list[int]:
    """The tokens of those words that are one."""
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary):
        return []
    return [vocabulary.tokenizer.token(word) for word in words if vocabulary.tokenizer.is_single(word)]


def _written(specimen: Specimen, asked: Sequence[int]) -> dict[tuple[int, int], tuple[Written, ...]]:
    """What every head raises and lowers where it reads each of these tokens."""
    if not asked:
        return {}
    found = {}
    names = specimen.pieces(torch.tensor(asked))
    for layer, (raised, lowered) in enumerate(written_for(specimen.model, asked)):
        for head in range(len(raised)):
            found[layer, head] = tuple(
                Written(
                    token=name,
                    raises=specimen.pieces(raised[head, place]),
                    lowers=specimen.pieces(lowered[head, place]),
                )
                for place, name in enumerate(names)
            )
    return found


# Parts of the document.


def _figures(part: Component, run: _Run, weights: _FromWeights | None) -> dict[str, float | None]:
    """The figures that names follow from."""
    figures: dict[str, float | None] = {**_attention(run, part), "positional": _at(run.detections.positional, part)}
    if weights is not None:
        layer, head = part.layer, part.head or 0
        figures["copying"] = _number(weights.effective[layer][0][head])
        figures["copying_in_run"] = _number(run.copying[layer][head])
    return figures


def _head(
    part: Component,
    run: _Run,
    text: _Run | None,
    weights: _FromWeights | None,
    writes: tuple[Written, ...],
) -> AtlasHead:
    layer, head = part.layer, part.head or 0
    figures = _figures(part, run, weights)
    names = names_of(figures)
    ranks = (
        {}
        if weights is None
        else {
            "copying_rank": _number(weights.effective[layer][1][head]),
            "copying_embedding": _number(weights.plain[layer][0][head]),
            "copying_embedding_rank": _number(weights.plain[layer][1][head]),
        }
    )
    return AtlasHead.model_validate(
        {"id": str(part), "name": names[0] if names else NO_NAME, "names": names}
        | figures
        | ranks
        | {"text": None if text is None else _on_text(part, text), "writes": writes}
    )


def _on_text(part: Component, run: _Run) -> OnText:
    by_class = {kind: _at(mass, part) for kind, mass in run.by_class.items()}
    copying = _number(run.copying[part.layer][part.head or 0]) if run.copying else None
    return OnText.model_validate({**_attention(run, part), "copying_in_run": copying, "classes": by_class})


def _attention(run: _Run, part: Component) -> dict[str, float]:
    found = run.detections.masses
    roles = {"previous": "previous", "duplicate": "duplicate", "induction": "induction", "current": "self"}
    return {name: _at(found[role], part) for name, role in {**roles, "bos": run.sink}.items()}


def _chance(detections: Detections) -> dict[str, float]:
    """The chance level of every figure."""
    roles = {"previous": "previous", "duplicate": "duplicate", "induction": "induction", "current": "self"}
    sink = BOS if BOS in detections.chance else FIRST_TOKEN
    levels = {name: round(detections.chance[role], DIGITS) for name, role in {**roles, "bos": sink}.items()}
    by_chance = {"positional": 0.0, "copying": 0.0, "copying_in_run": 0.0}
    return {name: {**levels, **by_chance}[name] for name in FIGURES}


def _mlp(specimen: Specimen, layer: int, runs: Sequence[_Run], writing: Writing) -> AtlasMlp:
    part = str(Component(layer))
    if layer not in runs[0].firing:  # it is made of experts, which have no neurons that every token passes
        return AtlasMlp(id=part)
    activity = torch.cat([run.firing[layer].activity for run in runs])
    tokens = torch.cat([run.firing[layer].tokens for run in runs])
    few = max(1, math.ceil(FEW * len(activity)))
    largest = activity.topk(few, 0)
    selectivity = largest.values.sum(0) / activity.sum(0).clamp(min=1e-12)
    outputs = writing.of_neurons(layer)
    chosen = [figures.topk(min(NEURONS, len(figures))).indices.tolist() for figures in (selectivity, outputs)]
    neurons = list(dict.fromkeys([*chosen[0], *chosen[1]]))
    raised, lowered = raised_and_lowered(specimen.model, neuron_vectors(specimen.model, layer, neurons))
    found = {}
    for place, neuron in enumerate(neurons):
        fires_on = list(dict.fromkeys(specimen.pieces(tokens[largest.indices[:, neuron]])))[:NAMED_TOKENS]
        found[neuron] = AtlasNeuron(
            id=str(Component(layer, neuron=neuron)),
            selectivity=_number(selectivity[neuron]),
            tokens=tuple(fires_on),
            largest=_number(outputs[neuron]),
            raises=specimen.pieces(raised[place]),
            lowers=specimen.pieces(lowered[place]),
        )
    inputs, writers = (tuple(found[neuron] for neuron in some) for some in chosen)
    return AtlasMlp(id=part, inputs=inputs, outputs=writers)


def _at(values: Float[Tensor, "layer head"], part: Component) -> float:
    return _number(values[part.layer, part.head or 0])


def _number(value: Tensor) -> float:
    return round(float(value), DIGITS) + 0.0


def prompts_of(specimen: Specimen) -> tuple[int, int]:
    """How many prompts are run, and how long they are."""
    probe, text = repeated_tokens(specimen), passages(specimen)
    widths = [one.batch.tokens.shape[1] for one in (probe, text) if one is not None]
    return sum(len(one.batch) for one in (probe, text) if one is not None), max(widths)
