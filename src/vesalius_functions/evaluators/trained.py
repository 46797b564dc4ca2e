"""A trained evaluator on disk, and how it takes unit tests: `trained:DIR` wherever an evaluator is named."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from vesalius.api.door import findable_model
from vesalius.api.loading import load
from vesalius.errors import BadInput
from vesalius.files import sha256
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import weights_sha256
from vesalius.progress import Progress
from vesalius_backbones.runs.usage import model_name
from vesalius_functions.agents.evaluator import Tested
from vesalius_functions.box import Function, UnitTest
from vesalius_functions.evaluators.adapter import Adapter
from vesalius_functions.evaluators.data import Row, marks_of
from vesalius_functions.evaluators.documents import EvaluatorTraining
from vesalius_functions.evaluators.forms import Form, form_named
from vesalius_functions.evaluators.naming import ADAPTER_FILE, EVALUATOR_FILE, TRAINED, is_trained, placed
from vesalius_functions.evaluators.training import Measure, repeatable


def findable_evaluator(name: str | None) -> str | None:
    """An evaluator by a name that workers find wherever they run: a trained one by the whole path of its directory."""
    return placed(name) if name is not None and is_trained(name) else findable_model(name)


def evaluator_name(name: str | None) -> str | None:
    """An evaluator's name as documents have it: of a trained one the directory's name alone."""
    return f"{TRAINED}:{Path(name).name}" if name is not None and is_trained(name) else model_name(name)


class TrainedEvaluator:
    """A base with its adapter written into the weights, and the form that it was trained for."""

    def __init__(self, name: str, specimen: Specimen, form: Form, seen: frozenset[str]) -> None:
        self.name, self.specimen, self.form, self.seen = name, specimen, form, seen

    def take(self, description: str, tests: Sequence[UnitTest]) -> Tested:
        """Take the tests of a description. One that says nothing earns nothing."""
        if not tests or not description.strip():
            return Tested((None,) * len(tests), 0.0)
        rows = [Row("", (), description, test) for test in tests]
        model = self.specimen.model
        with repeatable(model.device):
            chosen = Measure(self.form, rows).choices(model, model.device)
        right = sum(choice == test.correct for choice, test in zip(chosen, tests, strict=True))
        return Tested(tuple(chosen), right / len(tests))

    def is_new(self, function: Function) -> bool:
        """Whether neither training nor the choice among trained models saw a concept, relation or program of it."""
        return not marks_of(function) & self.seen


@lru_cache(maxsize=1)
def open_trained(name: str) -> TrainedEvaluator:
    """The trained evaluator of a directory, loaded once per process."""
    name = placed(name)
    directory = Path(name.partition(":")[2])
    made = EvaluatorTraining.read(directory / EVALUATOR_FILE)
    if sha256(directory / ADAPTER_FILE) != made.adapter_sha256:
        raise BadInput(f"{directory / ADAPTER_FILE}: is not the adapter that {EVALUATOR_FILE} names; train it again")
    specimen = load_base(made.base)
    if weights_sha256(specimen.model) != made.base_sha256:
        raise BadInput(f"evaluator {name}: its base {made.base} has other weights here; train it again on these")
    form = form_of(specimen, made.form)
    Adapter.read(directory / ADAPTER_FILE, specimen.model).merge(specimen.model)
    return TrainedEvaluator(name, specimen, form, frozenset(made.seen))


def load_base(name: str, *, device: str = "auto", progress: Progress | bool | None = None) -> Specimen:
    """A language model of its own for training, in float32."""
    specimen = load(name, dtype="float32", device=device, progress=progress)
    if specimen.kind != "natural" or not isinstance(specimen.vocabulary, TextVocabulary):
        raise BadInput(f"`base` {name!r:.60}: reads no text; give a language model such as smollm2-135m")
    if len(specimen.model.devices) > 1:
        raise BadInput(f"`base` {name!r:.60}: lies on several devices; name one with `device`")
    specimen.model.requires_grad_(False)
    return specimen


def form_of(specimen: Specimen, name: str) -> Form:
    """A form for a base."""
    vocabulary: Any = specimen.vocabulary
    return form_named(name, vocabulary.tokenizer, specimen.model.config.n_ctx)
