"""Natural models as specimens: the embedded SmolLM2, a Hugging Face directory, a GGUF file or a hub id."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.contrast import contrast_on, require_contrast, with_best_partners
from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.behaviours.performance import PROMPTS, performance, undecided
from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.registry import behaviour_of, find_behaviour
from vesalius.documents.performance import Performance
from vesalius.documents.view import title_of
from vesalius.errors import BadInput, note
from vesalius.model.devices import gpus, place, replica_devices
from vesalius.model.precision import in_a_fast_format
from vesalius.model.sources import ARITHMETIC, LoadedModel, read_model
from vesalius.model.sources import BEHAVIOUR as ARITHMETIC_BEHAVIOUR
from vesalius.model.specimen import IdVocabulary, Specimen, TextVocabulary
from vesalius.model.states import fingerprint
from vesalius.model.tokenizer import Tokenizer
from vesalius.progress import REPLICA, Progress

N_EXAMPLES = 5
#: Length of the inputs that are drawn for a model without a tokenizer.
RANDOM_IDS = 16


def load_natural(
    name: Any,
    *,
    behaviour: Any = None,
    metric: BehaviourMetric | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> Specimen:
    """Load a natural model by name (`smollm2-135m`), directory, GGUF file, hub id, or from a transformers model.

    The prompts of `behaviour` (a name, a path, rows or a `Behaviour`) are the specimen's examples and samples; the
    model `arithmetic` has one of its own. `reading` are the options of `read_model`.
    """
    if behaviour is None and name == ARITHMETIC:
        behaviour = ARITHMETIC_BEHAVIOUR
    source = find_behaviour(behaviour, metric=metric) if behaviour is not None else None
    loaded = read_model(name, progress=progress, **reading)
    number_format = in_a_fast_format(loaded.model, reading.get("dtype", "auto"), reading.get("device", "cpu"))
    model, tokenizer, label = loaded.model, loaded.tokenizer, loaded.label
    if tokenizer is None:
        if source is not None:
            lacks = "a model in memory has no tokenizer; give one of transformers or tokenizers"
            if isinstance(name, str | Path):
                lacks = "there is no tokenizer.json; add one, or give another's directory with --tokenizer, in Python"
            raise BadInput(f"{label}: a behaviour needs texts, and {lacks} with tokenizer=")
        return replace(_ids_only(loaded), dtype=number_format)

    def nothing(n: int, seed: int) -> list[str]:
        raise BadInput(f"specimen {label!r} is a natural model: name a behaviour to sample from, such as induction")

    specimen = Specimen(
        id=label,
        name=loaded.name,
        kind="natural",
        model=model,
        vocabulary=TextVocabulary(tokenizer, model.config.n_ctx),
        components=tuple(model.components),
        examples=(),
        draw=nothing,
        dtype=number_format,
    )
    return specimen if source is None else with_behaviour(specimen, source)


def with_behaviour(specimen: Specimen, behaviour: object, *, metric: BehaviourMetric | None = None) -> Specimen:
    """A natural model that is loaded already, for another behaviour or metric (None: its own)."""
    source = behaviour_of(specimen) if behaviour is None else find_behaviour(behaviour)
    source = source if metric is None else source.with_metric(metric)
    config, vocabulary = specimen.model.config, specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary):
        raise BadInput(f"specimen {specimen.name!r} has one task of its own; leave out the behaviour and the metric")
    tokenizer = vocabulary.tokenizer
    source = with_best_partners(source, specimen.model, tokenizer)

    def prompts(n: int, seed: int, split: str = "test") -> Prompts:
        return source.sample(tokenizer, n, seed=seed, split=split, n_ctx=config.n_ctx, d_vocab=config.d_vocab)

    examples = prompts(N_EXAMPLES, 0, source.measured_split)
    answers = [tokenizer.piece(int(token)) for token in examples.correct]
    return replace(
        specimen,
        examples=tuple({"input": text, "output": answer} for text, answer in zip(examples.texts, answers, strict=True)),
        draw=lambda n, seed: _inputs(prompts(n, seed), tokenizer),
        behaviour=source.name,
        behaviour_source=source,
    )


def _inputs(prompts: Prompts, tokenizer: Tokenizer) -> list[str | list[str]]:
    """The prompts as the specimen reads them: texts, or lists of tokens where a vocabulary of whole words cannot read
    the text back (random words without spaces between them).
    """
    start = int(tokenizer.bos is not None)

    def readable(text: str, row: list[int]) -> str | list[str]:
        try:
            tokenizer.encode(text)
        except BadInput:
            return [tokenizer.piece(token) for token in row[start:]]
        return text

    ends = (prompts.position + 1).tolist()
    rows = [row[:end] for row, end in zip(prompts.tokens.tolist(), ends, strict=True)]
    return [readable(text, row) for text, row in zip(prompts.texts, rows, strict=True)]


def require_performance(
    specimen: Specimen, *, seed: int = 0, force: bool = False, early: bool = False, purpose: str = "continue anyway"
) -> Performance:
    """How well a natural model performs its behaviour, and its contrast; refuses a behaviour that it does not perform,
    and a contrast without a clearly positive range, unless `force`.

    That the right answer is preferred is asked for; where it is not what the model says, that is one of the result's
    `doubts`. With `early`, half the prompts are enough where they leave no doubt. `purpose` says in the error message
    what forcing is for.
    """
    assert isinstance(specimen.vocabulary, TextVocabulary)
    source = behaviour_of(specimen)
    model, config = specimen.model, specimen.model.config
    prompts = source.sample(
        specimen.vocabulary.tokenizer,
        PROMPTS,
        seed=seed,
        split=source.measured_split,
        n_ctx=config.n_ctx,
        d_vocab=config.d_vocab,
    )
    result = performance(model, prompts, early=early)
    if undecided(result) and not force:
        note(
            f"{result.n} prompt{'s' * (result.n > 1)} cannot show whether {specimen.name} performs {source.label}: "
            f"{result.describe()}"
        )
    elif not result.performs and not force:
        raise BadInput(
            f"{specimen.name} does not perform {title_of(source.name)}: {result.describe()}; choose another behaviour, "
            f"or `force` to {purpose}"
        )
    result = result.model_copy(update={"contrast": contrast_on(model, prompts), "open_answer": source.open_answer})
    assert result.contrast is not None
    require_contrast(result.contrast, source.name, model=specimen.source or specimen.name, force=force)
    return result


def _ids_only(loaded: LoadedModel) -> Specimen:
    """A model without a tokenizer: inputs are random token ids, and there is no behaviour."""
    config = loaded.model.config

    def random_ids(n: int, seed: int) -> list[list[int]]:
        shape = (n, min(RANDOM_IDS, config.n_ctx))
        return torch.randint(0, config.d_vocab, shape, generator=torch.Generator().manual_seed(seed)).tolist()

    return Specimen(
        id=loaded.label,
        name=loaded.name,
        kind="natural",
        model=loaded.model,
        vocabulary=IdVocabulary(config.d_vocab, config.n_ctx),
        components=tuple(loaded.model.components),
        examples=(),
        draw=random_ids,
    )


# A natural specimen as another process loads it again, and how work on it is cut into parts.
#
# Lower rooms do not know engines. A function that can be cut takes a `Spread`: it gives it a function of a module,
# which takes the specimen and one part, and a list of parts; it gets the results in the order of the parts.
# `runs.parts` makes one from an engine.

#: What is done with one part: a function of a module, so that other processes find it by name.
Work = Callable[[Specimen, Any], Any]


class Spread(Protocol):
    """Does parts of a specimen's work somewhere else."""

    @property
    def jobs(self) -> int:
        """How many parts are worked on at a time."""
        ...

    def __call__(
        self, work: Work, parts: Sequence[object], *, step: str, keep: Callable[[int, Any], None] | None = None
    ) -> list[Any]:
        """The result of every part, in order; `keep` is given each one's place and result as soon as it is there."""
        ...


@dataclass(frozen=True)
class Elsewhere:
    """What another process needs to load a specimen again: where from, in which format and onto which devices, the
    behaviour itself, the tokenizer in use, and a fingerprint of the weights that it is held to.
    """

    source: str
    dtype: str
    devices: str
    mark: str
    vocabulary: TextVocabulary
    behaviour: Behaviour
    revision: str | None = None

    @property
    def gpus(self) -> int:
        """How many GPUs it is on."""
        return sum(name.strip().startswith("cuda") for name in self.devices.split(","))

    @classmethod
    def of(cls, specimen: Specimen) -> "Elsewhere":
        """The description of a natural specimen with a behaviour; others are refused."""
        if not isinstance(specimen.vocabulary, TextVocabulary):
            raise BadInput(
                f"specimen {specimen.name!r}: parts of the work are run elsewhere for natural models only; leave out "
                "the engine and the jobs"
            )
        if specimen.source is None:
            raise BadInput(
                f"specimen {specimen.name!r} is in memory only, where other processes do not find it; write it with "
                ".save(directory) and load that"
            )
        path = Path(specimen.source).expanduser()
        return cls(
            source=str(path.resolve()) if path.exists() else specimen.source,
            dtype=str(next(specimen.model.parameters()).dtype).removeprefix("torch."),
            devices=",".join(map(str, specimen.model.devices)),
            mark=fingerprint(specimen.model),
            vocabulary=specimen.vocabulary,
            behaviour=behaviour_of(specimen),
            revision=specimen.revision,
        )

    def specimen(self) -> Specimen:
        """The specimen, loaded; the model of the last one stays for the next part."""
        number = os.environ.get(REPLICA, "0")
        devices = replica_devices(self.devices, int(number) if number.isdigit() else 0, len(gpus()))
        loaded = _loaded(self.source, self.dtype, devices, self.mark, self.revision)
        return with_behaviour(replace(loaded, vocabulary=self.vocabulary, source=self.source), self.behaviour)


@lru_cache(maxsize=1)
def _loaded(source: str, dtype: str, devices: str, mark: str, revision: str | None) -> Specimen:
    specimen = load_natural(source, dtype=dtype, revision=revision, device=devices)
    if fingerprint(specimen.model) != mark:
        raise BadInput(f"{source}: holds other weights than those that were loaded here; load the model again")
    place(specimen.model, devices)
    return specimen
