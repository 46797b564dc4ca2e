"""Natural models as specimens: the embedded SmolLM2, a Hugging Face directory, a GGUF file or a hub id."""

from pathlib import Path

from vesalius.behaviours.performance import Performance, measure
from vesalius.behaviours.prompts import Prompts
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
from vesalius.progress import Progress

N_EXAMPLES = 5


def load_natural(name: str, *, behaviour: str | None = None, progress: Progress | None = None) -> Specimen:
    """Load a natural model by name (`smollm2-135m`), directory, GGUF file or hub id.

    `behaviour` says what it is dissected for; its prompts are then the specimen's examples and samples.
    """
    known = find_behaviour(behaviour) if behaviour is not None else None
    model, tokenizer = _load(name, progress)
    config = model.config

    def prompts(n: int, seed: int) -> Prompts:
        if known is None:
            raise BadInput(f"specimen {name!r} is a natural model: name a behaviour to sample from, such as induction")
        return known.sample(tokenizer, n, seed=seed, split="test", n_ctx=config.n_ctx, d_vocab=config.d_vocab)

    shown = None if known is None else prompts(N_EXAMPLES, 0)
    answers = [] if shown is None else [tokenizer.decode([int(token)]) for token in shown.correct]
    texts = [] if shown is None else shown.texts
    label = Path(name).name if Path(name).exists() else name
    return Specimen(
        id=label,
        name=label,
        kind="natural",
        model=model,
        vocabulary=TextVocabulary(tokenizer, config.n_ctx),
        components=tuple(model.components),
        examples=tuple({"input": text, "output": answer} for text, answer in zip(texts, answers, strict=True)),
        draw=lambda n, seed: list(prompts(n, seed).texts),
        behaviour=behaviour,
    )


def require_performance(
    specimen: Specimen, *, seed: int = 0, force: bool = False, forced: str = "go on all the same"
) -> Performance:
    """How well a natural model does its behaviour; refuses what it does not do, unless `force` (which is there to
    `forced`).
    """
    assert specimen.behaviour is not None
    assert isinstance(specimen.vocabulary, TextVocabulary)
    found = measure(find_behaviour(specimen.behaviour), specimen.model, specimen.vocabulary.tokenizer, seed=seed)
    if not found.performs and not force:
        raise BadInput(
            f"{specimen.name} does not perform {specimen.behaviour}: {found.describe()}; choose another behaviour, or "
            f"--force (in Python force=True) to {forced}"
        )
    return found


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
        raise BadInput(f"{directory}: holds a model but no specimen.json and no tokenizer.json; it is not whole")
    model = load_model(directory) if ours else load_huggingface(directory)
    return model, Tokenizer.from_directory(directory, bos=model.config.bos_token)
