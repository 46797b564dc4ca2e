"""Specimens on disk: the 84 that ship with the package, and those that `vesalius train` makes.

A specimen directory holds `model.json` and `model.safetensors` (the weights), and `specimen.json`: vocabulary,
outputs, input distribution, component list, five examples, the figures of the acceptance gate and the command that
made it. It holds no program, role or note: those are the answer key.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_serializer, field_validator

from vesalius.circuits.inputs import Inputs, Sampler, draw_inputs
from vesalius.components import parse_components
from vesalius.errors import BadInput, choices
from vesalius.files import read_json, write_json
from vesalius.model.files import load_model, save_model
from vesalius.model.specimen import FiniteVocabulary, Specimen, Token, Value, json_value
from vesalius.model.transformer import Transformer
from vesalius.values import from_json, rounded

SPECIMEN_FILE = "specimen.json"
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
    examples: tuple[dict[str, Any], ...]
    gate: dict[str, Any]
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
    def _pairs(cls, examples: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        if not all("input" in example and "output" in example for example in examples):
            raise ValueError("an example needs an input and an output")
        return examples

    def describe(self) -> dict[str, Any]:
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


def as_examples(pairs: Sequence[tuple[Sequence[Token], Sequence[Value]]]) -> tuple[dict[str, Any], ...]:
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
