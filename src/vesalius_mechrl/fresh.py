"""Fresh batches: the rewards of episodes whose prompts are written for the episode's seed alone, as published.

A pool of measured rows is cheap, and its rows come back in many episodes. Here every episode has its own: the prompts
of a behaviour drawn with the seed s, and ordinary text drawn with s + 13103. All heads are ablated on them at once, one
file an episode, so that a measurement that was stopped continues, and trainings with the same seeds share their files.
The published run measured only the heads that were picked, 50 of 144, and each again for every policy.

`episodes/identity.json` says of which model, control text and heads the episodes are; those of others are refused.

A file holds the rows of a test episode, with the features of the clean run, and the means over the rows of a training
episode, which no search looks into.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.controls import ArticleRows, Corpus
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.intervene import Batch, effects
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import fingerprint, read_tensors, write_tensors
from vesalius.progress import Progress, silent
from vesalius_mechrl.matrices import PUBLISHED_KIND, Rows, control_source
from vesalius_mechrl.tables import CONTROL_SEED_OFFSET, measure_clean_features

FOLDER, IDENTITY_FILE = "episodes", "identity.json"
#: Splits that episodes are drawn from; only the control text has articles that differ between them.
TRAIN, TEST = "train", "test"


@dataclass(frozen=True)
class EpisodeIdentity:
    """What all episodes of a directory depend on besides their seeds: the model, the control text with the length of
    its rows (as the source of a matrix names them), and the heads.
    """

    model: str
    control: str
    heads: tuple[str, ...]


@dataclass(frozen=True)
class FreshEpisodes:
    """Measured episodes of one split in a directory; `rows` of each are in an episode."""

    directory: Path
    split: str
    rows: int
    identity: EpisodeIdentity

    def path(self, task: str, seed: int) -> Path:
        """The file of an episode."""
        return self.directory / FOLDER / f"{self.split}-{self.rows}" / task / f"{seed}.safetensors"

    def missing(self, episodes: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """The episodes that are not measured yet."""
        self.refuse_others()
        return [(task, seed) for task, seed in episodes if not self.path(task, seed).is_file()]

    def read(self, task: str, seed: int, name: str) -> Float[np.ndarray, "row ..."]:
        """One table of an episode: `task`, `control`, or a feature of the clean run."""
        _ = self._are_ours
        path = self.path(task, seed)
        if not path.is_file():
            raise BadInput(f"{path}: the episode was not measured; run `vesalius bench mechrl --paper` with this seed")
        return read_tensors(path)[name].numpy().astype(np.float64)

    def refuse_others(self) -> None:
        """Refuse a directory with episodes of another model or control text, or of which nobody knows."""
        place = self.directory / FOLDER
        remedy = "choose another directory, or delete this folder to measure them again"
        if not (place / IDENTITY_FILE).is_file():
            if any(place.rglob("*.safetensors")):
                raise BadInput(f"{place}: has no {IDENTITY_FILE}, so the model of its episodes is not known; {remedy}")
            return
        kept = read_json(place / IDENTITY_FILE)
        for name, own in asdict(self.identity).items():
            if kept.get(name) != (list(own) if isinstance(own, tuple) else own):
                raise BadInput(f"{place}: its episodes were measured with another {_WORDS[name]}; {remedy}")

    def identify(self) -> None:
        """Write down what the episodes depend on, before the first of them."""
        (self.directory / FOLDER).mkdir(parents=True, exist_ok=True)
        write_json(self.directory / FOLDER / IDENTITY_FILE, asdict(self.identity))

    @cached_property
    def _are_ours(self) -> bool:
        self.refuse_others()
        return True


_WORDS = {"model": "model", "control": "control text, or rows of it of another length", "heads": "choice of heads"}


@dataclass(frozen=True)
class EpisodeMeasurement:
    """How the episodes of a split are measured: the model, its rows and its ordinary text."""

    specimen: Specimen
    heads: tuple[str, ...]
    episodes: FreshEpisodes
    text: ArticleRows

    @classmethod
    def of(
        cls,
        specimen: Specimen,
        corpus: Corpus,
        directory: Path,
        *,
        split: str,
        rows: int,
        heads: tuple[str, ...],
        length: int,
    ) -> "EpisodeMeasurement":
        """With the articles of the split read once."""
        assert isinstance(specimen.vocabulary, TextVocabulary)
        text = ArticleRows.of(corpus, specimen.vocabulary.tokenizer, length=length, split=split)
        identity = EpisodeIdentity(fingerprint(specimen.model), control_source(corpus.name, length), heads)
        episodes = FreshEpisodes(directory, split, rows, identity)
        return cls(specimen, heads, episodes, text)

    def measure(self, wanted: Iterable[tuple[str, int]], *, progress: Progress = silent) -> int:
        """Measure the episodes that are missing; returns how many that were."""
        missing = self.episodes.missing(wanted)
        self.episodes.identify()
        for done, (task, seed) in enumerate(missing, 1):
            path = self.episodes.path(task, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, self._tables(task, seed))
            progress(f"fresh batches of {task}, {self.episodes.split}", done, len(missing))
        return len(missing)

    def _tables(self, task: str, seed: int) -> dict[str, Tensor]:
        on_task = replace(self.specimen, behaviour=task, behaviour_source=None)
        drawn = trial(on_task, self.episodes.rows, seed=seed, split=self.episodes.split)
        text = self.text.draw(self.episodes.rows, seed=seed + CONTROL_SEED_OFFSET)
        sources = {
            "task": Rows(drawn.batch, drawn.readout, drawn.counterfactual),
            "control": Rows(text.batch, text.readout, Batch(text.batch.tokens.roll(-1, 0), text.batch.mask)),
        }
        tables = {}
        for name, rows in sources.items():
            found = self._effects(rows)
            if not bool(found.isfinite().all()):
                raise BadInput(f"effects of {task}, seed {seed}, are not finite; check the weights for NaN or overflow")
            if self.episodes.split == TRAIN:
                tables[name] = found.mean(0, keepdim=True)
                continue
            heads = [Component.parse(head) for head in self.heads]
            features = measure_clean_features(self.specimen.model, rows, kind=PUBLISHED_KIND, heads=heads)
            tables |= {
                name: found,
                f"{name} attribution": features.attribution,
                f"{name} attention": features.attention,
            }
        return {name: tensor.contiguous() for name, tensor in tables.items()}

    def _effects(self, rows: Rows) -> Float[Tensor, "row head"]:
        model = self.specimen.model
        result = effects(
            model,
            rows.batch.to(model.device),
            rows.readout,
            kind=PUBLISHED_KIND,
            sets=[(head,) for head in self.heads],
            counterfactual=rows.counterfactual,
            reference=rows.batch,
        )
        return result.matrix.to(torch.float32)
