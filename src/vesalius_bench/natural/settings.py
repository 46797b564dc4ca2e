"""Which cases `bench natural` has: scientists, models and behaviours, and what decides their results."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from vesalius.api.loading import require_known
from vesalius.behaviours.behaviour import label_of
from vesalius.behaviours.registry import find_behaviour
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius.explanations.scientists import BUILTIN, Scientist, scientist_named
from vesalius.json_lines import command_of
from vesalius.model.sources import ARITHMETIC
from vesalius.version import __version__
from vesalius_bench.natural.documents import NULL
from vesalius_bench.natural.planted import planted_models
from vesalius_bench.natural.scripted import Scripted
from vesalius_bench.natural.work import NaturalCase
from vesalius_bench.options import NaturalOptions
from vesalius_bench.survey.documents import short_name
from vesalius_bench.survey.run import distinct_words, model_mark, whole_path

BENCHMARK, PLANTED = "natural", "planted"
SCIENTISTS = (BUILTIN, Scripted.name, NULL)
BEHAVIOURS = ("induction", "ioi", "greater-than", "capitals")
#: What the model that ships is asked for, unless behaviours are named.
SUMS = "addition:signs=-+,high=99,shots=0"
MODELS_FOLDER = "models"


@dataclass(frozen=True)
class NaturalSettings:
    """The models and the options, checked before any model is loaded."""

    models: tuple[str, ...]
    options: NaturalOptions

    def __post_init__(self) -> None:
        for name in self.scientists:
            self.scientist(name)
        if NULL in self.scientists and BUILTIN not in self.scientists:
            raise BadInput("`scientists`: null takes the names of builtin; name builtin beside it")
        for what, given in (("scientist", self.scientists), ("model", self.models)):
            if len(set(given)) < len(given):
                raise BadInput(f"`{what}s`: {', '.join(given)} names one twice; name each once")
        for one in self.models:
            if one != PLANTED:
                require_known(one)
        for one in self.options.behaviours:
            find_behaviour(one)
        if self.models == (PLANTED,) and self.options.behaviours:
            raise BadInput("`behaviours`: planted models have their own; leave it out, or name other models")

    @property
    def scientists(self) -> tuple[str, ...]:
        """Who explains."""
        return tuple(self.options.scientists) or SCIENTISTS

    def scientist(self, name: str) -> Scientist | None:
        """The scientist of a name; None for the null."""
        if name == NULL:
            return None
        if name == Scripted.name:
            return Scripted()
        own = {"n": self.options.claims, "top": self.options.top} if name == BUILTIN or command_of(name) else {}
        return scientist_named(name, **own)

    @property
    def subjects(self) -> list[tuple[str, str, str]]:
        """Every model with its behaviour: the name, the word for files, the behaviour."""
        found = []
        for model in self.models:
            if model == PLANTED:
                found += [(one.id, one.id, one.behaviour) for one in planted_models()]
                continue
            usual = (SUMS,) if model == ARITHMETIC else BEHAVIOURS
            found += [(model, short_name(model), one) for one in self.options.behaviours or usual]
        return found

    def cases(self, directory: Path, *, unsafe: bool = False) -> list[NaturalCase]:
        """Every scientist on every model and behaviour; planted models are below the directory."""
        options, planted = self.options, {one.id for one in planted_models()} if PLANTED in self.models else set()
        subjects = self.subjects
        words = distinct_words([f"{word}-{label_of(behaviour).partition(':')[0]}" for _, word, behaviour in subjects])
        names = distinct_words(list(self.scientists))
        return [
            NaturalCase(
                id=f"{name}-{word}",
                scientist=scientist,
                model=model,
                place=str(directory / MODELS_FOLDER / model) if model in planted else whole_path(model),
                behaviour=behaviour,
                n=options.n,
                seed=options.seed,
                claims=options.claims,
                top=options.top,
                device=options.device,
                unsafe=unsafe,
            )
            for scientist, name in zip(self.scientists, names, strict=True)
            for (model, _, behaviour), word in zip(subjects, words, strict=True)
        ]

    def request(self) -> Request:
        """What was asked, so that it can be asked again."""
        given: dict[str, JsonValue] = {"models": list(self.models)}
        names = {"behaviours": "behaviour", "scientists": "scientist"}
        usual = NaturalOptions().values()
        for name, value in self.options.values().items():
            if value != usual[name] and name != "seed":
                given[names.get(name, name)] = list(value) if isinstance(value, tuple) else value
        return Request(command="bench natural", options=given, seed=self.options.seed)

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        options = self.options
        return {
            "benchmark": BENCHMARK,
            "scientists": list(self.scientists),
            "behaviours": list(options.behaviours),
            "n": options.n,
            "claims": options.claims,
            "top": options.top,
            "seed": options.seed,
            "version": __version__,
            "models": {name: model_mark(name) for name in self.models},
        }

    def notes(self) -> Mapping[str, Any]:
        """Nothing beside."""
        return {}
