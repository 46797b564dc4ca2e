"""The few functions a notebook needs, gathered from the floors below.

`load` finds a specimen by id, name or path; `specimens` lists what there is; `sweep` measures how much each
component matters; `discover` finds the circuit; `explain` says what its components do.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from vesalius.behaviours.natural import load_natural
from vesalius.behaviours.trial import Trial, trial
from vesalius.circuits.originals import WEIGHTS as ORIGINAL_WEIGHTS
from vesalius.circuits.originals import load_original
from vesalius.circuits.specimens import (
    SPECIMEN_FILE,
    benchmark_cards,
    benchmark_directory,
    known_names,
    load_specimen,
)
from vesalius.components import Component, all_components
from vesalius.discovery.methods import Discovery, discover
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius.intervene import Effects, effects
from vesalius.intervene.effects import pairs as all_pairs
from vesalius.model.config import Config
from vesalius.model.smollm import NAME as SMOLLM
from vesalius.model.specimen import Specimen

if TYPE_CHECKING:
    from vesalius.backbones import Backbone

__all__ = ["Discovery", "chosen_device", "discover", "explain", "load", "specimens", "sweep", "sweep_sets"]

#: Natural models that need no download; their shape is stated so that listing them loads nothing.
NATURAL = {
    SMOLLM: Config(
        n_layers=30,
        n_heads=9,
        n_kv_heads=3,
        d_model=576,
        d_head=64,
        d_mlp=1536,
        d_vocab=49152,
        d_vocab_out=49152,
        n_ctx=8192,
    )
}


def load(
    name: str | int | Path,
    *,
    behaviour: str | None = None,
    device: str | torch.device = "cpu",
    progress: Callable[[str, int, int], None] | None = None,
) -> Specimen:
    """Load a specimen.

    A benchmark circuit by id or name (`3`, `frac_prevs`), a directory made by `vesalius train`, a case folder of
    the published InterpBench models, or a natural model with the behaviour it is dissected for (`smollm2-135m`, a
    Hugging Face directory, a GGUF file, a hub id).
    """
    text = str(name)
    if not text.strip():
        raise BadInput(f"specimen {text!r} is no name; use one that `vesalius specimens` lists, a path or a hub id")
    path = Path(text).expanduser()
    directory = benchmark_directory(text) or (path if (path / SPECIMEN_FILE).is_file() else None)
    if directory is not None:
        if behaviour is not None:
            raise BadInput(f"specimen {text!r} has one task of its own; leave out the behaviour {behaviour!r}")
        specimen = load_specimen(directory)
    elif (path / ORIGINAL_WEIGHTS).is_file():
        specimen = load_original(path)
    elif text in NATURAL or path.exists() or "/" in text or text.endswith(".gguf"):
        specimen = load_natural(text, behaviour=behaviour, progress=progress)
    else:
        known = f"{', '.join(NATURAL)}, {known_names(3)}"
        raise BadInput(f"specimen {text!r} is not known; use {known}, a path or a hub id such as org/model")
    specimen.model.to(chosen_device(device))
    return specimen


def specimens() -> list[dict[str, Any]]:
    """Every specimen that needs no download, one description each: the benchmark circuits, then the natural models."""
    natural = [
        {
            "id": name,
            "name": name,
            "kind": "natural",
            "components": [str(component) for component in all_components(config)],
            "layers": config.n_layers,
            "heads": config.n_heads,
            "d_model": config.d_model,
        }
        for name, config in NATURAL.items()
    ]
    return [card.describe() for card in benchmark_cards()] + natural


def sweep(
    specimen: Specimen,
    *,
    kind: str = "zero",
    components: Iterable[str | Component] | None = None,
    pairs: bool = False,
    n: int = 32,
    seed: int = 0,
    split: str = "test",
    material: Trial | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Effects:
    """Effect of replacing each component (or each pair) on `n` prompts: clean minus edited score, positive where it
    helps.
    """
    material = material or trial(specimen, n, seed=seed, split=split)
    return effects(
        specimen.model,
        material.batch,
        material.readout,
        kind=kind,
        sets=sweep_sets(specimen, components, pairs=pairs),
        counterfactual=material.counterfactual,
        positions=material.where if kind == "resample" else None,
        progress=progress,
    )


def sweep_sets(
    specimen: Specimen, components: Iterable[str | Component] | None, *, pairs: bool
) -> Sequence[tuple[Component, ...]]:
    """The sets a sweep replaces: every component of the model, or those named, alone or in pairs."""
    config = specimen.model.config
    chosen = (
        [Component.parse(c).within(config) for c in components] if components is not None else specimen.model.components
    )
    if not chosen or (pairs and len(chosen) < 2):
        raise BadInput(
            f"a sweep over {len(chosen)} components{' in pairs' if pairs else ''} is empty; name more components"
        )
    return all_pairs(chosen) if pairs else [(component,) for component in chosen]


def explain(
    specimen: Specimen,
    components: Circuit | Discovery | Iterable[str | Component] | None = None,
    *,
    n: int | None = None,
    top: int | None = None,
    force: bool = False,
    backbone: "str | Backbone | None" = None,
    protocol: Literal["typed", "paper"] = "typed",
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Explanation:
    """Say what each component of a circuit does, with evidence.

    `components` is what `ves.discover` returned or a circuit read from its file (of both, the components that score
    at least a tenth of the largest are explained), or names; by default the specimen's own. Listed vocabularies go
    to the built-in scientist, natural models to the causal profile for the behaviour they were loaded with; `n`
    (held-out prompts), `top` (components) and `force` (go on although the model does not perform the behaviour)
    are for natural models. With `backbone`, such as "openai:gpt-5.4", a language model proposes (HyVE), by
    the `protocol` "typed" or "paper".
    """
    # Imported here: loading and sweeping a specimen must leave the language of the answer key unopened.
    from vesalius.explanations.circuits import explained_components
    from vesalius.explanations.either import explain_either

    named = explained_components(specimen, components)
    if backbone is None:
        return explain_either(specimen, named, n=n, top=top, force=force, seed=seed, progress=progress)
    from vesalius.backbones import open_backbone
    from vesalius.explanations.hyve import explain_hyve

    options: dict[str, Any] = {"protocol": protocol, "components": named, "seed": seed, "progress": progress}
    if not isinstance(backbone, str):
        return explain_hyve(specimen, backbone=backbone, **options).explanation
    with open_backbone(backbone) as opened:
        return explain_hyve(specimen, backbone=opened, **options).explanation


def chosen_device(name: str | torch.device) -> torch.device:
    """A device by name, or one line saying why it cannot be used here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"device {str(name)!r} cannot be used here ({str(error).splitlines()[0]}); try cpu") from None
    return device
