"""Natural models as specimens: the embedded SmolLM2, a Hugging Face directory, a GGUF file or a hub id."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from vesalius.behaviours.metrics import Metric
from vesalius.behaviours.performance import measure, undecided
from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.registry import behaviour_of, find_behaviour
from vesalius.documents.performance import Performance
from vesalius.errors import BadInput, note
from vesalius.model.files import CONFIG_FILE, load_model
from vesalius.model.gguf_file import GgufFile
from vesalius.model.huggingface import download, load_huggingface
from vesalius.model.smollm import NAME as SMOLLM
from vesalius.model.smollm import smollm_directory
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress

N_EXAMPLES = 5


def load_natural(
    name: str, *, behaviour: Any = None, metric: Metric | None = None, progress: Progress | None = None
) -> Specimen:
    """Load a natural model by name (`smollm2-135m`), directory, GGUF file or hub id.

    The prompts of `behaviour` (a name, a path, rows or a `Behaviour`) are the specimen's examples and samples.
    """
    source = find_behaviour(behaviour, metric=metric) if behaviour is not None else None
    model, tokenizer = _load(name, progress)
    label = Path(name).name if Path(name).exists() else name

    def nothing(n: int, seed: int) -> list[str]:
        raise BadInput(f"specimen {name!r} is a natural model: name a behaviour to sample from, such as induction")

    specimen = Specimen(
        id=label,
        name=label,
        kind="natural",
        model=model,
        vocabulary=TextVocabulary(tokenizer, model.config.n_ctx),
        components=tuple(model.components),
        examples=(),
        draw=nothing,
    )
    return specimen if source is None else with_behaviour(specimen, source)


def with_behaviour(specimen: Specimen, behaviour: Any, *, metric: Metric | None = None) -> Specimen:
    """A natural model that is loaded already, for another behaviour or metric (None: its own)."""
    source = behaviour_of(specimen) if behaviour is None else find_behaviour(behaviour)
    source = source if metric is None else source.with_metric(metric)
    config, vocabulary = specimen.model.config, specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary):
        raise BadInput(f"specimen {specimen.name!r} has one task of its own; leave out the behaviour and the metric")
    tokenizer = vocabulary.tokenizer

    def prompts(n: int, seed: int, split: str = "test") -> Prompts:
        return source.sample(tokenizer, n, seed=seed, split=split, n_ctx=config.n_ctx, d_vocab=config.d_vocab)

    examples = prompts(N_EXAMPLES, 0, source.measured_split)
    answers = [tokenizer.decode([int(token)]) for token in examples.correct]
    return replace(
        specimen,
        examples=tuple({"input": text, "output": answer} for text, answer in zip(examples.texts, answers, strict=True)),
        draw=lambda n, seed: list(prompts(n, seed).texts),
        behaviour=source.name,
        behaviour_source=source,
    )


def require_performance(
    specimen: Specimen, *, seed: int = 0, force: bool = False, purpose: str = "continue anyway"
) -> Performance:
    """How well a natural model performs its behaviour; refuses one it does not perform unless `force`.

    `purpose` says in the error message what forcing is for.
    """
    assert isinstance(specimen.vocabulary, TextVocabulary)
    source = behaviour_of(specimen)
    result = measure(source, specimen.model, specimen.vocabulary.tokenizer, seed=seed)
    if undecided(result) and not force:
        note(
            f"{specimen.name} seems to perform {source.label}, but {result.n} prompt{'s' * (result.n > 1)} cannot show "
            f"it: {result.describe()}"
        )
    elif not result.performs and not force:
        raise BadInput(
            f"{specimen.name} does not perform {source.label}: {result.describe()}; choose another behaviour, or "
            f"--force (in Python force=True) to {purpose}"
        )
    return result


def _load(name: str, progress: Progress | None) -> tuple[Transformer, Tokenizer]:
    if name == SMOLLM:
        return _from_directory(smollm_directory(progress=progress))
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        file = GgufFile(path)
        model = file.load(progress=progress)
        return model, Tokenizer(file.tokenizer(), bos=model.config.bos_token)
    if path.is_file():
        raise BadInput(f"{path}: not a model; give a model directory or a file whose name ends in .gguf")
    return _from_directory(path if path.is_dir() else download(name))


def _from_directory(directory: Path) -> tuple[Transformer, Tokenizer]:
    ours = (directory / CONFIG_FILE).exists()
    if ours and not (directory / "tokenizer.json").exists():
        raise BadInput(f"{directory}: a model without specimen.json and tokenizer.json; copy the whole directory")
    model = load_model(directory) if ours else load_huggingface(directory)
    return model, Tokenizer.from_directory(directory, bos=model.config.bos_token)
