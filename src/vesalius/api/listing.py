"""What is known by name, read from the files that describe it: nothing is loaded for these lists, not even torch."""

import json
from dataclasses import dataclass
from pathlib import Path

from vesalius.components import all_components
from vesalius.documents.catalogue import Listing, ModelFamily, SpecimenEntry


@dataclass(frozen=True)
class NaturalShape:
    """The shape of a natural model that is known by name."""

    n_layers: int
    n_heads: int
    d_model: int


NATURAL = {"smollm2-135m": NaturalShape(30, 9, 576), "arithmetic": NaturalShape(3, 6, 192)}
#: The `model_type`s of each family that `vesalius.model.families` reads.
MODEL_TYPES = {
    "gpt2": ["gpt2"],
    "gpt_neo": ["gpt_neo"],
    "gpt_neox": ["gpt_neox"],
    "gptj": ["gptj"],
    "opt": ["opt"],
    "llama": ["llama"],
    "mistral": ["mistral"],
    "ministral3": ["ministral3"],
    "qwen2": ["qwen2"],
    "qwen3": ["qwen3"],
    "smollm3": ["smollm3"],
    "phi3": ["phi3"],
    "mixtral": ["mixtral"],
    "qwen3_moe": ["qwen3_moe"],
    "qwen2_moe": ["qwen2_moe"],
    "glm4_moe": ["glm4_moe"],
    "llama4": ["llama4_text"],
    "gpt_oss": ["gpt_oss"],
    "stablelm": ["stablelm"],
    "starcoder2": ["starcoder2"],
    "nemotron": ["nemotron"],
    "cohere2": ["cohere2"],
    "gemma": ["gemma"],
    "gemma2": ["gemma2"],
    "gemma3": ["gemma3_text"],
    "phi": ["phi"],
    "olmo": ["olmo"],
    "olmo2": ["olmo2"],
    "olmo3": ["olmo3"],
    "olmoe": ["olmoe"],
    "granite": ["granite"],
    "granitemoe": ["granitemoe"],
    "glm": ["glm"],
    "glm4": ["glm4"],
    "bloom": ["bloom"],
    "mpt": ["mpt"],
    "falcon": ["falcon"],
    "deepseek_v2": ["deepseek_v2"],
    "deepseek_v3": ["deepseek_v3"],
}
#: What of `specimen.json` is listed.
_LISTED = ("id", "name", "kind", "components", "layers", "heads", "d_model")


def specimens() -> Listing[SpecimenEntry]:
    """Every specimen that is known by name, one description each: the benchmark circuits, then the natural models."""
    data = Path(__file__).parents[1] / "circuits" / "data"
    cards = sorted(data.glob("*/specimen.json"), key=lambda path: int(path.parent.name))
    listed = [json.loads(path.read_text(encoding="utf-8")) for path in cards]
    natural = [
        {
            "id": name,
            "name": name,
            "kind": "natural",
            "components": [str(component) for component in all_components(shape)],
            "layers": shape.n_layers,
            "heads": shape.n_heads,
            "d_model": shape.d_model,
        }
        for name, shape in NATURAL.items()
    ]
    return Listing(SpecimenEntry(**{name: one[name] for name in _LISTED}) for one in [*listed, *natural])


def models() -> Listing[ModelFamily]:
    """The families of models that are read, with the `model_type`s of each; `exact` says that its logits are held to
    those of transformers' own module by the tests.
    """
    return Listing(ModelFamily(family=name, model_types=types, exact=True) for name, types in MODEL_TYPES.items())
