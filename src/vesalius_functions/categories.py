"""The four categories behind one interface; each is a package with the functions of `CategoryModule` at its top."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from vesalius.errors import BadInput, choices
from vesalius.sandbox import Sandbox
from vesalius_functions.answer import Answer, Grade, Mode
from vesalius_functions.box import Box, Function

#: Where each is; imported when it is asked for. The number of functions in the reported suite.
CATEGORIES = {
    "numeric": "vesalius_functions.numeric",
    "strings": "vesalius_functions.strings",
    "entities": "vesalius_functions.entities",
    "relations": "vesalius_functions.relations",
}
SUITE = {"numeric": 1000, "strings": 1000, "entities": 200, "relations": 75}


class CategoryModule(Protocol):
    """What a category offers."""

    def sample(self, count: int, *, seed: int, mode: Mode = "fixed") -> Sequence[Function]:
        """Functions drawn afresh: the first of a longer draw under the same seed are the same functions."""
        ...

    def load_published(self, directory: Path, *, mode: Mode = "published") -> Sequence[Function]:
        """The functions of a published dataset folder, as far as they can be run, with their own tests."""
        ...

    def interpret(self, box: Box, *, seed: int = 0) -> Answer:
        """The built-in interpreter: no language model."""
        ...

    def oracle(self, function: Function) -> Answer:
        """The answer of an interpreter that knows the truth: its score is the ceiling."""
        ...

    def grade(self, function: Function, answer: Answer, *, sandbox: Sandbox, seed: int = 0) -> Grade:
        """Score an answer; its code runs in the sandbox only."""
        ...


def category(name: str) -> CategoryModule:
    """The category of that name."""
    if name not in CATEGORIES:
        raise BadInput(f"category {name!r} does not exist; choose one of {choices(CATEGORIES)}")
    return cast(CategoryModule, import_module(CATEGORIES[name]))
