"""How much each component matters: replace it on every prompt and measure what that costs.

With a directory the edited scores are written to `scores.safetensors` after every portion of work, together with a key
that stands for everything they depend on. The same call finds them again and computes only what is missing.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.api.dictionaries import dictionaries_of, other_model, require_fitting
from vesalius.api.door import place_for, request_on, verb
from vesalius.behaviours.contrast import contrast_on, require_contrast
from vesalius.behaviours.natural import Spread
from vesalius.behaviours.trial import Trial, aligned, columns_of, marked, note_limits, trial
from vesalius.components import Component, Named, split_names
from vesalius.discovery.sweep import swept_in_parts
from vesalius.documents.request import MATERIAL, Request
from vesalius.documents.sweep import SWEEP_FILE, Sweep, SweepRow
from vesalius.documents.view import subject_of
from vesalius.errors import BadInput, Failed, note, result_kept
from vesalius.intervene import Cost, Recordings
from vesalius.intervene.ablations import Ablation, ablation_named
from vesalius.intervene.effects import ComponentSet, Effects, effect_columns, has_units
from vesalius.intervene.effects import pairs as all_pairs
from vesalius.intervene.features import bound, strongest
from vesalius.intervene.signed import lost, parted
from vesalius.intervene.sites import PlacedSet, PlacedSite, SiteValues, placed_sets, require_kind, site_columns
from vesalius.model.dictionaries import Dictionaries
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import read_tensors, write_tensors
from vesalius.model.transformer import Transformer
from vesalius.options import SWEPT, Draw, Force, Knockout, Out, Parts, Sparse
from vesalius.progress import Progress, silent
from vesalius.runs.parts import parts_on
from vesalius.sites import Feature, Site, only_components, parse_sites, sites_of
from vesalius.statistics import interval_or_none
from vesalius.version import __version__

ROWS_BETWEEN_SAVES = 512
#: The kind of sites that stands for the strongest latents of sparse dictionaries.
LATENTS = "features"


#: What is replaced together in each experiment: components, or sites with their positions.
Sets = Sequence[ComponentSet | PlacedSet]


def require_sweepable(specimen: object, knockout: Knockout, sparse: Sparse) -> None:
    """Refuse an ablation that does not exist, and dictionaries that do not go with the model."""
    kinds_of(knockout)
    if knockout.sites == LATENTS and sparse.features is None:
        raise BadInput("`sites` features: give the directory of the sparse dictionaries with `features`")
    require_fitting(specimen, sparse)


def usual_kind(specimen: Specimen) -> str:
    """What components are replaced by where nothing is said: what `discover` uses on a natural model, and zero on a
    specimen with listed tokens.
    """
    return "resample" if isinstance(specimen.vocabulary, TextVocabulary) else "zero"


def kinds_of(knockout: Knockout, usual: str = "zero") -> list[Ablation]:
    """What components are replaced by: the kinds asked for, else the usual one."""
    names = (usual if knockout.kind is None else knockout.kind).split(",")
    return [ablation_named(name) for name in dict.fromkeys(map(str.strip, names))]


@partial(verb, check=require_sweepable)
def sweep(
    specimen: Specimen,
    *,
    knockout: Knockout,
    draw: Draw = SWEPT,
    parts: Parts,
    force: Force,
    sparse: Sparse,
    material: Trial | None = None,
    out: Out = None,
    progress: Progress = silent,
) -> Effects:
    """Effect of replacing each component (or each pair) on `n` prompts: clean minus edited score, positive where it
    helps.

    `kind` is what replaces it: "zero", "mean", "resample" (from the counterfactual prompt) or "value-bias"; by default
    "resample" for natural models, as in `discover`, and "zero" for others. Of several, "zero,mean", the effects of the
    first are returned; the document of `sweep_report` holds all, side by side. `material` gives other prompts than the
    behaviour's own, `behaviour` and `metric` are those of `ves.load`. Where values come from counterfactuals and
    replacing everything does not lower the score, it is refused unless `force`; the result then says so.

    `components` may name any site (`L12.resid`, `L3H1.q`, `L0H1->L5H3.k`), and `sites` every activation of a kind
    ("resid", "q,k"). `features` is a directory of sparse autoencoders or transcoders, whose latents are sites
    (`L12F4711`), replaced with the error kept; `sites` "features" are the 64 with the largest attributions. With `by`
    "position" or "role" each is replaced at one position at a time: of "resid", the map of layers and positions. With
    `out` (a directory, or True for one under `vesalius-runs`) the numbers and a picture are written, and an interrupted
    sweep continues when the same call is made again.

    `engine` ("local" processes or "ray") and `jobs` run parts of a natural model's sweep elsewhere; a part that is
    finished is kept like any other.
    """
    return _sweep(specimen, knockout, draw, parts, force, sparse, material, out, progress)[0]


@partial(verb, check=require_sweepable)
def sweep_report(
    specimen: Specimen,
    *,
    knockout: Knockout,
    draw: Draw = SWEPT,
    parts: Parts,
    force: Force,
    sparse: Sparse,
    material: Trial | None = None,
    out: Out = None,
    progress: Progress = silent,
) -> Sweep:
    """The same as a document, with intervals: what `sweep.json` holds."""
    return _sweep(specimen, knockout, draw, parts, force, sparse, material, out, progress)[1]


def _sweep(
    specimen: Specimen,
    knockout: Knockout,
    draw: Draw,
    parts: Parts,
    force: Force,
    sparse: Sparse,
    material: Trial | None,
    out: Out,
    progress: Progress,
) -> tuple[Effects, Sweep]:
    kinds = kinds_of(knockout, usual_kind(specimen))
    resampled = any(kind.from_counterfactual for kind in kinds)
    spread = parts_on(parts, specimen, progress, material=material)
    dictionaries = dictionaries_of(specimen, sparse)
    latents, sets = knockout.sites == LATENTS, list[ComponentSet | PlacedSet]()
    sites = [] if latents else swept_sites(specimen.model, knockout)
    if sites is None:
        bound([], dictionaries)
        sets += component_sets_of(specimen.model, knockout.components, pairs=knockout.pairs)
    else:
        sites = sites if latents else bound(sites, dictionaries)
        _require_sites(sites, kinds, spread)
    given = material or trial(specimen, draw.n, seed=draw.seed, split=draw.split)
    drawn = len(given.batch)
    if knockout.by == "position":
        given = aligned(given)
    columns = {} if knockout.by is None else columns_of(specimen, given, knockout.by)
    ranked = None
    if latents:
        assert dictionaries is not None
        progress("attribution of every latent", 0, 0)
        sites, ranked = _strongest_latents(specimen, dictionaries, given, kinds)
        _require_sites(sites, kinds, spread)
    if sites is not None:
        # Every site alone, at its own positions or at each of the columns.
        if columns and (own := next((site for site in sites if site.at), None)) is not None:
            raise BadInput(f"`by`: {own} names its position already; leave one of them out")
        each = [[site.placed(at)] for site in sites for at in columns] if columns else [[site] for site in sites]
        sets += placed_sets(each, lambda at: marked(given, at), given.where if resampled else None)
    note_limits(specimen, given.prompts, resampled=resampled)
    contrast = None
    if resampled and given.prompts is not None and material is None:
        progress("replacing everything", 0, 1)
        contrast = contrast_on(specimen.model, given.prompts)
        require_contrast(contrast, specimen.behaviour or "", model=specimen.source or specimen.name, force=force.force)
    asked = (replace(knockout, kind=",".join(kind.name for kind in kinds)), replace(draw, n=drawn), force, sparse)
    made_for = other_model(specimen, dictionaries)
    request = request_on(specimen, "sweep", *asked, material=material, made_for=made_for)
    directory = place_for(out, specimen, request, *asked)
    measured = []
    for place, kind in enumerate(kinds):
        store = _store(directory, request, specimen, given, sets, kind.name if place else None)
        effects = _measured(specimen, sets, given, kind, store, progress, spread)
        measured.append(replace(effects, contrast=contrast if kind.from_counterfactual else None))
    mapped = {
        "contrast": contrast,
        "of": "site" if sites is not None else None,
        "columns": {str(at): label for at, label in columns.items()},
        "aligned": len(given.batch) if len(given.batch) < drawn else None,
        "ranked": ranked,
    }
    effects, document = measured[0], _document(measured, request, draw.seed).model_copy(update=mapped)
    if directory is not None:
        with result_kept(document):
            picture = _picture(specimen, document, sets, directory / "heatmap.png")
            document = document.model_copy(update={"directory": str(directory), "heatmap": picture})
            document.write(directory / SWEEP_FILE)
    return effects, document


def _strongest_latents(
    specimen: Specimen, dictionaries: Dictionaries, given: Trial, kinds: Sequence[Ablation]
) -> tuple[list[Site], int]:
    """The latents with the largest attributions under the first kind of replacement, and how many had one."""
    resampled = kinds[0].from_counterfactual
    sites, ranked = strongest(
        specimen.model,
        given.batch,
        given.readout,
        dictionaries,
        other=given.counterfactual if resampled else None,
        where=given.where if resampled else None,
    )
    if not sites:
        raise BadInput(f"features {dictionaries.where}: no latent acts on these prompts; give another dictionary")
    return sites, ranked


def swept_sites(model: Transformer, knockout: Knockout) -> list[Site] | None:
    """The sites that are swept; None where they are components at every position, which the engine replaces."""
    if knockout.sites is not None:
        return sites_of(knockout.sites, model.config)
    if knockout.components is None:
        return None if knockout.by is None else [Site(component) for component in model.components]
    if not (names := split_names(knockout.components)):
        return None
    sites = parse_sites(names, model.config)
    if knockout.by is None and only_components(sites):
        return None
    if knockout.pairs:
        raise BadInput("`pairs` are of components at every position; leave `pairs` or the other sites out")
    return sites


def _require_sites(sites: Sequence[Site], kinds: Sequence[Ablation], spread: Spread | None) -> None:
    """Refuse what sites cannot be swept by, before the prompts are drawn."""
    if spread is not None:
        raise BadInput("`engine` and `jobs` are for components at every position; sites are swept in this process")
    for kind in kinds:
        for site in sites:
            require_kind(site, kind)


def component_sets_of(
    model: Transformer, components: Iterable[str | Named] | None, *, pairs: bool
) -> list[ComponentSet]:
    """The sets that are replaced: every component of the model, or those named, alone or in pairs."""
    config = model.config
    chosen = (
        model.components
        if components is None
        else list(
            dict.fromkeys(Component.parse(str(name)).within(config, neurons=True) for name in split_names(components))
        )
    )
    if not chosen or (pairs and len(chosen) < 2):
        raise BadInput(
            f"a sweep over {len(chosen)} components{' in pairs' if pairs else ''} is empty; name more components"
        )
    return all_pairs(chosen) if pairs else [(component,) for component in chosen]


def _measured(
    specimen: Specimen,
    sets: Sets,
    material: Trial,
    kind: Ablation,
    store: "StoredScores",
    progress: Progress,
    spread: Spread | None,
) -> Effects:
    """Compute what is not stored yet, saving as it goes."""
    start, cost, n = time.perf_counter(), Cost(), len(material.batch)
    recordings = Recordings(specimen.model, material.batch.to(specimen.model.device), material.signed(specimen.model))
    clean = recordings.scores().cpu()
    store.expect(clean)
    cost.rows += n
    missing = store.missing()

    def keep(span: Sequence[int], scores: Tensor, rows: float = 0.0) -> None:
        cost.rows += rows
        store.add([missing[i] for i in span], scores, cost.rows, time.perf_counter() - start)

    if missing and spread is not None:
        largest = max(1, ROWS_BETWEEN_SAVES // n)
        swept_in_parts(spread, material, kind, _components([sets[i] for i in missing]), keep, largest=largest)
    elif missing:
        for span, scores in _columns(recordings, [sets[i] for i in missing], material, kind, cost, progress):
            keep(span, scores)
    forwards, seconds = store.spent(cost.rows, time.perf_counter() - start)
    (baseline, _), (matrix, sides) = parted(clean), parted(lost(clean, store.scores), 2)
    named = tuple(tuple(part.site if isinstance(part, PlacedSite) else part for part in members) for members in sets)
    return Effects(named, baseline, matrix, kind.name, material.readout.unit, forwards / n, seconds, sides=sides)


def _columns(
    recordings: Recordings, sets: Sets, material: Trial, kind: Ablation, cost: Cost, progress: Progress
) -> Iterator[tuple[Sequence[int], Tensor]]:
    """The edited readings of some sets at a time: components by the engine, other sites by hooks."""
    model, batch, other = recordings.model, material.batch, material.counterfactual

    def report(step: str, done: int, total: int) -> None:
        progress(f"{kind} ablation", done, total)

    components = _components(sets)
    if not all(components):
        placed = [tuple(part for part in members if isinstance(part, PlacedSite)) for members in sets]
        values = SiteValues.make(model, kind, batch, placed, counterfactual=other)
        yield from site_columns(recordings, values, placed, cost=cost, progress=report, block=ROWS_BETWEEN_SAVES)
        return
    replacement = kind.table(model, batch, counterfactual=other, neurons=has_units(components))
    yield from effect_columns(
        recordings,
        replacement,
        components,
        positions=material.where if kind.from_counterfactual else None,
        cost=cost,
        progress=report,
        block=ROWS_BETWEEN_SAVES,
    )


def _components(sets: Sets) -> list[ComponentSet]:
    """The components of each set; none of sites."""
    return [tuple(part for part in members if isinstance(part, Component)) for members in sets]


class StoredScores:
    """Edited scores (signed ones with the logits beside them), NaN where not yet computed, with the work they took;
    kept in a file where `path` is given.

    One file holds the scores, their key and the work, so that numbers are never read under another request's key. A
    file that is damaged or belongs to another request counts as absent.
    """

    def __init__(self, path: Path | None, key: bytes, n_sets: int) -> None:
        self.path, self._n_sets = path, n_sets
        self.scores: Float[Tensor, "prompt set *signed"] = torch.empty(0)
        self._key, self._before = torch.tensor(list(key), dtype=torch.uint8), (0.0, 0.0)

    def expect(self, clean: Float[Tensor, "*prompt"]) -> None:
        """Make room for readings like the clean ones, and take what was kept of them before."""
        self.scores = torch.full((len(clean), self._n_sets, *clean.shape[1:]), torch.nan)
        if self.path is None:
            return
        try:
            saved = read_tensors(self.path)
        except BadInput:
            return
        known = set(saved) == {"key", "scores", "spent"} and torch.equal(saved["key"], self._key)
        if known and saved["scores"].shape == self.scores.shape:
            self.scores, self._before = saved["scores"], tuple(saved["spent"].tolist())

    def missing(self) -> list[int]:
        """Sets without scores."""
        return self.scores.isnan().transpose(0, 1).flatten(1).any(1).nonzero()[:, 0].tolist()

    def add(self, columns: list[int], scores: Tensor, forwards: float, seconds: float) -> None:
        """Keep finished columns."""
        if not bool(scores.isfinite().all()):
            raise BadInput("the model's logits are not finite on these prompts; check its weights for overflow")
        self.scores[:, columns] = scores.float()  # also those of a float64 model
        if self.path is not None:
            spent = torch.tensor(self.spent(forwards, seconds), dtype=torch.float64)
            try:
                write_tensors(self.path, {"key": self._key, "scores": self.scores, "spent": spent})
            except Failed as error:  # what is measured is not lost: the result is printed where it cannot be written
                note(f"{error}; the sweep goes on, and cannot be continued where it is interrupted")

    def spent(self, forwards: float, seconds: float) -> tuple[float, float]:
        """Work of this and of earlier calls on the same numbers."""
        return self._before[0] + forwards, self._before[1] + seconds


def _store(
    directory: Path | None,
    request: Request,
    specimen: Specimen,
    material: Trial,
    sets: Sets,
    beside: str | None,
) -> StoredScores:
    """Where the scores of the first kind of replacement are kept, or of another one `beside` it."""
    if directory is None:
        return StoredScores(None, b"", len(sets))
    key = _key(request, specimen, material, sets)
    name = "scores.safetensors" if beside is None else f"scores-{beside}.safetensors"
    return StoredScores(directory / name, key, len(sets))


def _key(request: Request, specimen: Specimen, material: Trial, sets: Sets) -> bytes:
    """A digest of the request, the prompts, the program's version and the weights. A metric that is a function, and
    the readout of prompts of the caller's own, cannot be compared, so that such a sweep starts anew.
    """
    if MATERIAL in request.options or (material.prompts is not None and callable(material.prompts.metric)):
        return os.urandom(32)
    data = request.model_dump(mode="json", exclude={"versions"})
    digest = hashlib.sha256(json.dumps([data, __version__], sort_keys=True).encode())
    answers = [] if material.prompts is None else [material.prompts.question.answers, material.prompts.question.wrongs]
    for tokens in (material.batch.tokens, material.counterfactual.tokens, *answers):
        digest.update(json.dumps(tokens.tolist()).encode())
    latents = {part.site.place for members in sets for part in members if isinstance(part, PlacedSite)}
    dictionaries = {one.layer: one.dictionary for one in latents if isinstance(one, Feature)}
    weights = [(f"features {layer}", one.W_dec) for layer, one in sorted(dictionaries.items())]
    for name, weight in (*specimen.model.named_parameters(), *weights):
        exact = weight.cpu().double()
        digest.update(f"{name} {tuple(weight.shape)} {exact.sum().item()} {exact.abs().sum().item()}".encode())
    return digest.digest()


def _document(measured: Sequence[Effects], request: Request, seed: int) -> Sweep:
    """The effects of the first kind of replacement, with those of the others beside them."""
    effects = measured[0]
    baseline_low, baseline_high = interval_or_none(effects.baseline, seed=seed)
    return Sweep(
        request=request,
        unit=effects.unit,
        baseline=float(effects.baseline.mean()),
        baseline_low=baseline_low,
        baseline_high=baseline_high,
        components=_rows(effects, seed),
        beside={other.kind: _rows(other, seed) for other in measured[1:]},
        forwards=sum(one.forwards for one in measured),
        seconds=sum(one.seconds for one in measured),
    )


def _rows(effects: Effects, seed: int) -> tuple[SweepRow, ...]:
    """Every effect with its interval, most helpful first."""
    return tuple(sorted(effects.rows(seed=seed), key=lambda row: -row.effect))


def _picture(specimen: Specimen, document: Sweep, sets: Sets, path: Path) -> str | None:
    """The map of a sweep as a picture, where it has one."""
    from vesalius.report.plots import draw_matrix

    if document.of is not None:
        maps = document.site_maps()
        return str(draw_matrix(maps[0], path, title=document.view().title)) if maps else None
    return None if document.pairs or has_units(_components(sets)) else str(_draw(specimen, document, path))


def _draw(specimen: Specimen, document: Sweep, path: Path) -> Path:
    from vesalius.report.plots import draw_heatmap

    config, options = specimen.model.config, document.request.options
    title = f"{subject_of(specimen.name, document.behaviour)}: {document.kind} ablation, {options['n']} prompts"
    heads = replace(document.head_map(), layers=config.n_layers, heads=config.n_heads)
    return draw_heatmap(heads, path, title=title)
