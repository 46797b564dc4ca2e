"""Specimens on disk: the 84 that ship with the package, and those that `vesalius train` makes.

A specimen directory holds `model.json` and `model.safetensors` (the weights), and `specimen.json`: vocabulary,
outputs, input distribution, component list, five examples, the figures of the acceptance gate and the command that
made it. It holds no program, role or note: those are the answer key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from pydantic import BaseModel, ConfigDict, ValidationError, field_serializer, field_validator
from torch import Generator, Tensor

from vesalius.components import all_components, parse_components
from vesalius.errors import BadInput, choices
from vesalius.files import read_json, write_json
from vesalius.model.specimen import FiniteVocabulary, Specimen, Token, Value, json_value
from vesalius.model.states import load_model, save_model
from vesalius.model.transformer import Transformer
from vesalius.values import JsonObject, from_json, rounded

# Random inputs of variable length, drawn so that every branch of a task's program is reached.

PAD = -1
Codes = Int[Tensor, "batch pos"]
Sampler = Literal["uniform", "often_sorted", "often_equal", "often_even"]


@dataclass(frozen=True)
class Inputs:
    """The input distribution of a task: tokens, longest sequence (without BOS) and how sequences are drawn."""

    vocab: tuple[Token, ...]
    max_len: int
    sampler: Sampler = "uniform"


def draw_inputs(
    inputs: Inputs, n: int, *, seed: int, min_length: int = 3, device: torch.device | str | None = None
) -> tuple[Codes, Int[Tensor, " batch"]]:
    """`n` random inputs of a task as (codes padded with -1, lengths), lengths uniform from `min_length` to `max_len`.

    The same seed gives the same inputs on every device.
    """
    if n < 1 or not 1 <= min_length <= inputs.max_len:
        raise BadInput(
            f"n={n}, min_length={min_length} is out of range: n must be at least 1, min_length 1 to {inputs.max_len}"
        )
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(min_length, inputs.max_len + 1, (n,), generator=generator)
    return _draw(inputs, lengths, generator).to(device), lengths.to(device)


def draw_of_lengths(inputs: Inputs, lengths: Int[Tensor, " batch"], *, seed: int) -> Codes:
    """One random input per given length, as codes padded with -1."""
    return _draw(inputs, lengths, torch.Generator().manual_seed(seed))


def _draw(inputs: Inputs, lengths: Int[Tensor, " batch"], generator: Generator) -> Codes:
    is_real = torch.arange(inputs.max_len) < lengths[:, None]
    return _SAMPLERS[inputs.sampler](inputs, is_real, generator).masked_fill(~is_real, PAD)


def _uniform(inputs: Inputs, is_real: Bool[Tensor, "batch pos"], generator: Generator) -> Codes:
    return torch.randint(len(inputs.vocab), tuple(is_real.shape), generator=generator)


def _often_sorted(inputs: Inputs, is_real: Bool[Tensor, "batch pos"], generator: Generator) -> Codes:
    """Half sorted, 15 % sorted but for one token, the rest uniform. The vocabulary ascends, so codes sort as values."""
    uniform = _uniform(inputs, is_real, generator)
    ascending = uniform.masked_fill(~is_real, len(inputs.vocab)).sort(dim=1).values
    lengths = is_real.sum(1)
    changed_place = (torch.rand((len(is_real),), generator=generator) * lengths).long()
    is_changed = torch.arange(is_real.shape[1]) == changed_place[:, None]
    nearly = torch.where(is_changed, uniform, ascending)
    kind = torch.rand((len(is_real), 1), generator=generator)
    return torch.where(kind < 0.5, ascending, torch.where(kind < 0.65, nearly, uniform))


def _often_equal(inputs: Inputs, is_real: Bool[Tensor, "batch pos"], generator: Generator) -> Codes:
    """Half all equal; a sixth each without repeats, with two distinct tokens, and uniform."""
    batch, longest = is_real.shape
    uniform = _uniform(inputs, is_real, generator)
    unrepeated = torch.rand((batch, len(inputs.vocab)), generator=generator).argsort(dim=1)[:, :longest]
    is_second = torch.rand((batch, longest), generator=generator) < 0.5
    of_two = torch.where(is_second, unrepeated[:, 1:2], unrepeated[:, :1])
    equal = uniform[:, :1].expand(batch, longest)
    kind = (torch.rand((batch, 1), generator=generator) * 6).long()
    return torch.where(kind < 3, equal, torch.where(kind == 3, unrepeated, torch.where(kind == 4, of_two, uniform)))


def _often_even(inputs: Inputs, is_real: Bool[Tensor, "batch pos"], generator: Generator) -> Codes:
    """Half all even; in the rest each token is odd with a rate drawn per sequence."""
    batch, longest = is_real.shape
    even, odd = (
        torch.tensor([code for code, value in enumerate(inputs.vocab) if int(value) % 2 == rest]) for rest in (0, 1)
    )
    rate = torch.rand((batch, 1), generator=generator) * (torch.rand((batch, 1), generator=generator) < 0.5)
    is_odd = torch.rand((batch, longest), generator=generator) < rate
    even_codes = even[torch.randint(len(even), (batch, longest), generator=generator)]
    odd_codes = odd[torch.randint(len(odd), (batch, longest), generator=generator)]
    return torch.where(is_odd, odd_codes, even_codes)


_SAMPLERS: dict[str, Callable[[Inputs, Bool[Tensor, "batch pos"], Generator], Codes]] = {
    "uniform": _uniform,
    "often_sorted": _often_sorted,
    "often_equal": _often_equal,
    "often_even": _often_even,
}


SPECIMEN_FILE = "specimen.json"
#: The folder beside a specimen that holds its answer, where it has one.
KEY_FOLDER = "answer_key"
SCHEMA = 1


class Card(BaseModel):
    """The contents of `specimen.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = SCHEMA
    id: str
    name: str
    kind: Literal["benchmark", "trained"]
    vocab: tuple[Token, ...]
    max_len: int
    min_len: int = 1
    outputs: tuple[Any, ...] | None
    sampler: Sampler = "uniform"
    components: tuple[str, ...]
    layers: int
    heads: int
    d_model: int
    examples: tuple[JsonObject, ...]
    gate: JsonObject
    made_by: str

    @field_serializer("outputs")
    def _json_outputs(self, outputs: tuple[Any, ...] | None) -> list[Any] | None:
        """JSON has no infinity: write values as predictions do."""
        return None if outputs is None else [json_value(value) for value in outputs]

    @classmethod
    def read(cls, path: Path) -> "Card":
        """Read and check `specimen.json`."""
        data = read_json(path)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise BadInput(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None

    @field_validator("examples")
    @classmethod
    def _pairs(cls, examples: tuple[JsonObject, ...]) -> tuple[JsonObject, ...]:
        if not all("input" in example and "output" in example for example in examples):
            raise ValueError("an example needs an input and an output")
        return examples

    def describe(self) -> JsonObject:
        """One entry of the list that `vesalius specimens` prints."""
        names = ("id", "name", "kind", "layers", "heads", "d_model")
        return {**{name: getattr(self, name) for name in names}, "components": list(self.components)}


def write_specimen(directory: Path, model: Transformer, card: Card) -> None:
    """Write a specimen directory; `specimen.json` is written last and marks it as complete."""
    save_model(model, directory)
    write_card(directory, card)


def write_card(directory: Path, card: Card) -> None:
    """Write what is said of a specimen beside its weights."""
    write_json(directory / SPECIMEN_FILE, card.model_dump(mode="json"))


def load_specimen(directory: Path) -> Specimen:
    """Load a specimen directory."""
    card = Card.read(directory / SPECIMEN_FILE)
    model = load_model(directory)
    outputs = None if card.outputs is None else from_json(list(card.outputs))
    vocabulary = FiniteVocabulary(card.vocab, outputs, card.max_len, card.min_len)
    _check(card, vocabulary, model, directory)
    inputs = Inputs(card.vocab, card.max_len, card.sampler)

    def draw(n: int, seed: int) -> list[list[Token]]:
        codes, lengths = draw_inputs(inputs, n, seed=seed, min_length=card.min_len)
        return [
            [card.vocab[code] for code in row[:length]]
            for row, length in zip(codes.tolist(), lengths.tolist(), strict=True)
        ]

    return Specimen(
        id=card.id,
        name=card.name,
        kind=card.kind,
        model=model,
        vocabulary=vocabulary,
        components=tuple(parse_components(card.components, model.config)),
        examples=tuple({**example, "output": rounded(example["output"])} for example in card.examples),
        draw=draw,
    )


def benchmark_cards() -> list[Card]:
    """The cards of the 84 benchmark circuits, in the order of their ids."""
    return list(_cards().values())


def benchmark_directory(id_or_name: str) -> Path | None:
    """The directory of a benchmark circuit, by id or name; None if there is no such circuit."""
    for card in benchmark_cards():
        if id_or_name in (card.id, card.name):
            return benchmark_root() / card.id
    return None


def known_names(limit: int = 12) -> str:
    """Benchmark ids and names for an error message."""
    return choices([f"{card.id} ({card.name})" for card in benchmark_cards()], limit)


def as_examples(pairs: Sequence[tuple[Sequence[Token], Sequence[Value]]]) -> tuple[JsonObject, ...]:
    """Input-output pairs in the format of a card."""
    return tuple(
        {"input": list(tokens), "output": [json_value(value) for value in outputs]} for tokens, outputs in pairs
    )


def benchmark_root() -> Path:
    """The package's directory of benchmark circuits, one folder per id."""
    return Path(str(files("vesalius.circuits").joinpath("data")))


@cache
def _cards() -> dict[str, Card]:
    root = benchmark_root()
    folders = [path for path in root.iterdir() if (path / SPECIMEN_FILE).exists()] if root.is_dir() else []
    return {path.name: Card.read(path / SPECIMEN_FILE) for path in sorted(folders, key=lambda path: int(path.name))}


def _check(card: Card, vocabulary: FiniteVocabulary, model: Transformer, directory: Path) -> None:
    config = model.config
    width = 1 if vocabulary.outputs is None else len(vocabulary.outputs)
    expected = {
        "d_vocab": vocabulary.pad + 1,
        "d_vocab_out": width,
        "n_ctx": card.max_len + 1,
        "pad_token": vocabulary.pad,
    }
    for name, value in expected.items():
        if getattr(config, name) != value:
            raise BadInput(f"{directory}: {name} of model.json is {getattr(config, name)}, specimen.json needs {value}")
    try:
        parse_components(card.components, config)
    except BadInput as error:
        raise BadInput(f"{directory / SPECIMEN_FILE}: {error}") from None


# Specimens without anything that gives their program away: a new name, no key, no figures by component.

MADE_BY = "vesalius league make"


def write_blind(source: Path, target: Path, *, name: str, circuit_given: bool) -> Transformer:
    """Copy a trained specimen under another name; without `circuit_given` its card lists every component of the model.

    The card of a trained specimen names the task, which holds the seed, and says for every component what interchange
    showed; neither is kept.
    """
    card, model = Card.read(source / SPECIMEN_FILE), load_model(source)
    every = tuple(map(str, all_components(model.config)))
    blind = card.model_copy(
        update={
            "id": name,
            "name": name,
            "kind": "trained",
            "components": card.components if circuit_given else every,
            "gate": {name: card.gate[name] for name in ("n", "accuracy") if name in card.gate},
            "made_by": MADE_BY,
        }
    )
    target.mkdir(parents=True, exist_ok=True)
    write_specimen(target, model, blind)
    return model
