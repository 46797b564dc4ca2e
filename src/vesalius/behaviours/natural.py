"""Natural models as specimens: the embedded SmolLM2, a Hugging Face directory, a GGUF file or a hub id."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vesalius.behaviours.registry import behaviour as find_behaviour
from vesalius.errors import BadInput
from vesalius.model.files import CONFIG_FILE, load_model
from vesalius.model.gguf_file import GgufFile
from vesalius.model.huggingface import download, load_huggingface
from vesalius.model.smollm import NAME as SMOLLM
from vesalius.model.smollm import smollm_directory
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer

N_EXAMPLES = 5
Progress = Callable[[str, int, int], None]


def load_natural(name: str, *, behaviour: str | None = None, progress: Progress | None = None) -> Specimen:
    """Load a natural model by name (`smollm2-135m`), directory, GGUF file or hub id; `behaviour` says what it is
    dissected for.
    """
    known = find_behaviour(behaviour) if behaviour is not None else None
    model, tokenizer = _load(name, progress)
    vocabulary = TextVocabulary(tokenizer, model.config.n_ctx)

    def draw(n: int, seed: int) -> list[Any]:
        if known is None:
            raise BadInput(f"specimen {name!r} is a natural model: name a behaviour to sample from, such as induction")
        config = model.config
        return list(
            known.sample(tokenizer, n, seed=seed, split="test", n_ctx=config.n_ctx, d_vocab=config.d_vocab).texts
        )

    specimen = Specimen(
        id=Path(name).name if Path(name).exists() else name,
        name=Path(name).name if Path(name).exists() else name,
        kind="natural",
        model=model,
        vocabulary=vocabulary,
        components=tuple(model.components),
        examples=(),
        draw=draw,
        behaviour=behaviour,
    )
    return specimen


def examples(specimen: Specimen) -> list[dict[str, Any]]:
    """Prompts of the specimen's behaviour with the answer that counts as right, for showing."""
    if specimen.behaviour is None or not isinstance(specimen.vocabulary, TextVocabulary):
        return list(specimen.examples)
    config, tokenizer = specimen.model.config, specimen.vocabulary.tokenizer
    prompts = find_behaviour(specimen.behaviour).sample(
        tokenizer, N_EXAMPLES, seed=0, split="test", n_ctx=config.n_ctx, d_vocab=config.d_vocab
    )
    answers = [tokenizer.decode([int(token)]) for token in prompts.correct]
    return [{"input": text, "output": answer} for text, answer in zip(prompts.texts, answers, strict=True)]


def _load(name: str, progress: Progress | None) -> tuple[Transformer, Tokenizer]:
    if name == SMOLLM:
        return _from_directory(smollm_directory(progress=progress))
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        file = GgufFile(path)
        model = file.load(progress=(lambda done, total: progress("reading", done, total)) if progress else None)
        return model, Tokenizer(file.tokenizer(), bos=model.config.bos_token)
    if path.is_file():
        raise BadInput(f"{path}: not a model; give a model directory or a file whose name ends in .gguf")
    return _from_directory(path if path.is_dir() else download(name))


def _from_directory(directory: Path) -> tuple[Transformer, Tokenizer]:
    model = load_model(directory) if (directory / CONFIG_FILE).exists() else load_huggingface(directory)
    return model, Tokenizer.from_directory(directory, bos=model.config.bos_token)
