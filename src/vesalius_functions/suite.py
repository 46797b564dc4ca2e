"""Which functions: drawn afresh by seed, or those of a published dataset folder.

The reported suite has 1,000 numeric and 1,000 string functions, 200 entities and 75 relations, all drawn under `SEED`.
Nothing was tuned on it. A shorter draw under a seed is the beginning of a longer one.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from vesalius.errors import BadInput, choices
from vesalius.sandbox import Sandbox
from vesalius_backbones import Backbone, backbone_name, offers_logprobs
from vesalius_functions.box import Answer, Box, Function, Grade, Mode, UnitTest
from vesalius_functions.knowledge.scoring import UnopenedModel
from vesalius_functions.own_prompts import FunctionPrompts
from vesalius_functions.published import Loaded

# The four categories behind one interface; each is a package with the functions of `CategoryModule` at its top.

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


SEED = 2309
MODES: tuple[Mode, ...] = ("fixed", "published")
MOST = 20_000
#: Categories that a language model may answer.
BY_MODEL = ("entities", "relations")
#: Grading seeds are drawn below this.
GRADING_SEEDS = 2**31
#: Between two draws of unit tests.
_NEXT_DRAW = 100_003
#: The names of drawn functions.
_MOST_DIGITS = 5
_DRAWN = re.compile(rf"f[0-9]{{{_MOST_DIGITS}}}")


@dataclass(frozen=True)
class Suite:
    """A choice of functions. `count` None means all: as many as the reported suite has, or the whole dataset.

    `ids` chooses single ones by name instead, such as `f00042` (or 42): the function of that name in any draw under the
    same seed that is long enough. `function_backbone` is the language model that answers entities and relations in
    place of word vectors and fact tables; functions of such a suite are asked as `function(index, backbone)`. `prompts`
    are the user's own for it and for an interpreter that is a language model.
    """

    category: str
    seed: int = SEED
    count: int | None = None
    mode: Mode = "fixed"
    dataset: str | None = None
    ids: tuple[str, ...] | None = None
    function_backbone: str | None = None
    prompts: FunctionPrompts | None = None

    def __post_init__(self) -> None:
        if self.category not in SUITE:
            raise BadInput(f"category {self.category!r} does not exist; choose one of {choices(SUITE)}")
        if self.mode not in MODES:
            raise BadInput(f"mode {self.mode!r} does not exist; choose one of {choices(MODES)}")
        if self.count is not None and not 1 <= self.count <= MOST:
            raise BadInput(f"count {self.count}: give between 1 and {MOST} functions")
        if self.seed < 0:
            raise BadInput(f"seed {self.seed}: give 0 or more")
        if self.dataset is not None and not Path(self.dataset).exists():
            raise BadInput(f"dataset {self.dataset}: no such directory")
        if self.ids is not None:
            object.__setattr__(self, "ids", self._checked(self.ids))
        if self.function_backbone is not None:
            self._check_model(self.function_backbone)
        if self.prompts is not None and self.mode != "published":
            raise BadInput("`prompts` replace those of `mode` published; add `mode` published")

    def _check_model(self, model: str) -> None:
        if self.category not in BY_MODEL:
            raise BadInput(
                f"`function_backbone`: {self.category} functions are code, which no language model answers; "
                f"use it with `category` {' or '.join(BY_MODEL)}"
            )
        if self.category == "entities" and not offers_logprobs(model):
            raise BadInput(
                f"`function_backbone` {model}: offers no log-probabilities, which entities are scored by; use openai, "
                "compatible or local"
            )

    def _checked(self, ids: Sequence[str]) -> tuple[str, ...]:
        """The names in full, each once."""
        if self.count is not None:
            raise BadInput("`ids` and `count`: give one of them; `ids` names the functions, `count` takes the first")
        names = tuple(dict.fromkeys(_full_name(name) for name in ids))
        if not names:
            raise BadInput("`ids`: is empty; name functions, as in f00042")
        if self.dataset is None:
            for name in names:
                if not _DRAWN.fullmatch(name) or _number(name) >= MOST:
                    raise BadInput(f"function {name!r:.60}: drawn functions are called f00000 to f{MOST - 1:05d}")
        return names

    @property
    def module(self) -> CategoryModule:
        """The category's package."""
        return category(self.category)

    def functions(self) -> Sequence[Function]:
        """The functions; made once per process."""
        return _made(replace(self, prompts=None))

    def function(self, index: int, backbone: Backbone | None = None) -> Function:
        """One of the functions, answered by the open language model where there is one."""
        function: Any = self.functions()[index]
        return function if backbone is None else function.answered_by(backbone, self.prompts)

    def pool(self) -> Sequence[Function]:
        """The functions that exemplars are taken from: the whole suite, whichever of them were chosen, answered
        by our own knowledge even where a language model answers the functions.
        """
        return _made(replace(self, count=None, ids=None, function_backbone=None, prompts=None))

    @property
    def left_out(self) -> dict[str, str]:
        """Records of the dataset that are not usable as functions, with the reason."""
        return getattr(self.functions(), "left_out", {})

    @property
    def usual_grading_seed(self) -> int:
        """The grading seed where none was drawn: the noise, points and tests of grading are never those of
        interpreting.
        """
        return self.seed + 1

    def unit_tests(self, function: Function, *, grading_seed: int | None = None, draw: int = 0) -> list[UnitTest]:
        """The unit tests of one of its functions, those that grading takes unless `draw` says otherwise."""
        make = getattr(self.module, "unit_tests", None)
        seed = self.usual_grading_seed if grading_seed is None else grading_seed
        return [] if make is None else make(function, seed=seed + draw * _NEXT_DRAW)


def in_words(truth: dict[str, Any]) -> str:
    """A function's truth in one line, from whatever its category says of it."""
    if truth.get("concepts"):
        return " or ".join(map(str, truth["concepts"]))
    if truth.get("input") and truth.get("output"):
        exception = f", except if {truth['exception_text']}" if truth.get("exception_text") else ""
        return f"{truth['input']} → {truth['output']}{exception}"
    loaded = truth.get("description") or truth.get("formula")
    if not loaded:
        return json.dumps({name: value for name, value in truth.items() if value is not None}, ensure_ascii=False)
    extras = [str(truth["kind"])] if truth.get("kind") else []
    extras += [f"{name} {truth[name]}" for name in ("noise", "interval") if truth.get(name)]
    extras += ["corrupted outside the interval"] if truth.get("outside") else []
    return " ".join(str(loaded).split()) + (f" ({', '.join(extras)})" if extras else "")


@lru_cache(maxsize=4)
def _made(suite: Suite) -> Sequence[Function]:
    module: Any = suite.module
    model = suite.function_backbone
    options = {"mode": suite.mode} | ({} if model is None else {"backbone": UnopenedModel(backbone_name(model))})
    if suite.dataset is None and suite.ids is not None:
        return _drawn_at(suite, sorted(map(_number, suite.ids)), options)
    if suite.dataset is None:
        return module.sample(suite.count or SUITE[suite.category], seed=suite.seed, **options)
    loaded = module.load_published(Path(suite.dataset), **options)
    if not loaded:
        raise BadInput(f"dataset {suite.dataset}: holds no {suite.category} function that can be run")
    ordered = sorted(loaded, key=lacks_source)  # those that were published whole come first
    left_out = getattr(loaded, "left_out", {})
    if suite.ids is None:
        return Loaded(ordered[: suite.count], left_out)
    known = {function.id: function for function in ordered}
    for name in suite.ids:
        if name not in known:
            raise BadInput(f"function {name!r:.60}: not in dataset {suite.dataset}; it has {choices(known)}")
    return Loaded([known[name] for name in suite.ids], left_out)


def _drawn_at(suite: Suite, places: Sequence[int], options: dict[str, Any]) -> Sequence[Function]:
    """The functions at these places of a draw; a category that can draws no others on the way."""
    module: Any = suite.module
    sample_at = getattr(module, "sample_at", None)
    if sample_at is not None:
        return sample_at(places, seed=suite.seed, **options)
    drawn = module.sample(places[-1] + 1, seed=suite.seed, **options)
    return [drawn[place] for place in places]


def _full_name(name: str) -> str:
    name = str(name).strip()
    return f"f{int(name):05d}" if name.isascii() and name.isdigit() and len(name) <= _MOST_DIGITS else name


def _number(name: str) -> int:
    return int(name.removeprefix("f"))


def lacks_source(function: Function) -> bool:
    """Whether a function was published as test pairs without its source, so that a stand-in is needed."""
    return function.truth().get("source") == "missing"
