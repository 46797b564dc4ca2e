"""A user's own prompts in mode `published`, such as FIND's: what an interpreter is told of its task, and what a
language model behind entities and relations is told of an input.

A run needs the files of what it asks, and no others:

| file | who is told | fields it needs |
| --- | --- | --- |
| `system.md` | the interpreter, first |  |
| `CATEGORY.md` | the interpreter: its task, as in numeric.md | EXEMPLARS, LAYERS where they are shown |
| `entity_system.md` | the model behind entities, first |  |
| `entity.md` | the same: a word, of a function of one concept | CONCEPT, INPUT |
| `entity_pair.md` | the same: a word, of a function of two concepts | CONCEPT_1, CONCEPT_2, INPUT |
| `relation_system.md` | the model behind relations, first |  |
| `relation.md` | the same: an input | CONCEPT_1, CONCEPT_2, INPUT |
| `relation_exception.md` | the same: one with an exception | CONCEPT_1, CONCEPT_2, EXCEPTION, INPUT |

The interpreter's files may also hold MAX_COMMANDS, the commands that it may send.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vesalius.errors import BadInput
from vesalius_backbones.prompt_files import digests, filled, read_prompts

SYSTEM = "system.md"
EXEMPLARS, LAYERS, COMMANDS = "EXEMPLARS", "LAYERS", "MAX_COMMANDS"
ENTITY_SYSTEM, ENTITY, ENTITY_PAIR = "entity_system.md", "entity.md", "entity_pair.md"
RELATION_SYSTEM, RELATION, RELATION_EXCEPTION = "relation_system.md", "relation.md", "relation_exception.md"
#: Files of a language model that answers functions, with their fields, by category.
ANSWERING: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "entities": {ENTITY_SYSTEM: (), ENTITY: ("CONCEPT", "INPUT"), ENTITY_PAIR: ("CONCEPT_1", "CONCEPT_2", "INPUT")},
    "relations": {
        RELATION_SYSTEM: (),
        RELATION: ("CONCEPT_1", "CONCEPT_2", "INPUT"),
        RELATION_EXCEPTION: ("CONCEPT_1", "CONCEPT_2", "EXCEPTION", "INPUT"),
    },
}


@dataclass(frozen=True)
class FunctionPrompts:
    """The texts of a directory by file, those that a run asks with."""

    texts: tuple[tuple[str, str], ...]
    folder: str = field(default="", compare=False)

    @classmethod
    def read(
        cls,
        folder: str | Path,
        category: str,
        *,
        interprets: bool = True,
        shows: bool = False,
        layers: bool = False,
        answers: bool = False,
    ) -> "FunctionPrompts":
        """The prompts of a directory; refused where a run with them could not be what it is said to be.

        `interprets`: a language model interprets, `shows`: it is shown exemplars, `layers`: and the layers of nets;
        `answers`: a language model answers the functions.
        """
        if not interprets and not answers:
            raise BadInput(
                "`prompts` are for a language model; name one with `interpreter` aia, milan or aia+milan, or with "
                "`function_backbone`"
            )
        needed: dict[str, tuple[str, ...]] = {}
        allowed: dict[str, tuple[str, ...]] = {}
        if interprets:
            task = f"{category}.md"
            needed = {SYSTEM: (), task: (*((EXEMPLARS,) if shows else ()), *((LAYERS,) if layers else ()))}
            allowed = {SYSTEM: (COMMANDS,), task: (COMMANDS,)}
        if answers:
            needed |= ANSWERING[category]
        return cls(tuple(read_prompts(folder, needed, allowed).items()), str(folder))

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of every file, as it was read."""
        return digests(dict(self.texts))

    def filled(self, name: str, **values: str) -> str:
        """The text of a file with its fields replaced."""
        return filled(dict(self.texts)[name], values)
