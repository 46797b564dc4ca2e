"""A natural specimen as another process loads it again, and how work on it is cut into parts.

Lower rooms do not know engines. A function that can be cut takes a `Spread`: it gives it a function of a module, which
takes the specimen and one part, and a list of parts; it gets the results in the order of the parts. `runs.parts` makes
one from an engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.natural import load_natural, with_behaviour
from vesalius.behaviours.registry import behaviour_of
from vesalius.errors import BadInput
from vesalius.model.devices import place
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import fingerprint

#: What is done with one part: a function of a module, so that other processes find it by name.
Work = Callable[[Specimen, Any], Any]


class Spread(Protocol):
    """Does parts of a specimen's work somewhere else."""

    @property
    def jobs(self) -> int:
        """How many parts are worked on at a time."""
        ...

    def __call__(
        self, work: Work, parts: Sequence[Any], *, step: str, keep: Callable[[int, Any], None] | None = None
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
        loaded = _loaded(self.source, self.dtype, self.devices, self.mark, self.revision)
        return with_behaviour(replace(loaded, vocabulary=self.vocabulary, source=self.source), self.behaviour)


@lru_cache(maxsize=1)
def _loaded(source: str, dtype: str, devices: str, mark: str, revision: str | None) -> Specimen:
    specimen = load_natural(source, dtype=dtype, revision=revision)
    if fingerprint(specimen.model) != mark:
        raise BadInput(f"{source}: holds other weights than those that were loaded here; load the model again")
    place(specimen.model, devices)
    return specimen
