"""`vesalius functions evaluator-train`: from exported tests to an adapter with its accuracy on unseen functions."""

import shutil
import time
from pathlib import Path

from vesalius.api.door import directory_for, verb, written
from vesalius.errors import BadInput, choices
from vesalius.files import sha256
from vesalius.model.specimen import Specimen
from vesalius.model.states import weights_sha256
from vesalius.progress import Progress, silent
from vesalius_functions.evaluators.adapter import Adapter
from vesalius_functions.evaluators.data import Row, data_digest, read_splits, seen_marks, share_right
from vesalius_functions.evaluators.documents import ALL, EvaluatorTraining, TakenTests, TrainedForm, Validation
from vesalius_functions.evaluators.forms import FORMS
from vesalius_functions.evaluators.naming import ADAPTER_FILE, EVALUATOR_FILE
from vesalius_functions.evaluators.trained import form_of, load_base
from vesalius_functions.evaluators.training import (
    STATE_FILE,
    Measure,
    Trained,
    Training,
    claim,
    repeatable,
)
from vesalius_functions.options import Recipe

CHECKPOINTS = "checkpoints"
BASE = "smollm2-135m"


@verb
def evaluator_train(
    data: str | Path,
    *,
    out: str | Path,
    base: str = BASE,
    recipe: Recipe,
    device: str = "auto",
    progress: Progress = silent,
) -> EvaluatorTraining:
    """Train an evaluator of descriptions on the tests that `evaluator_data` wrote to `data`, and measure it.

    Low-rank adapters of the language model `base` are trained in every one of `forms`; the validation split chooses
    the form and the step, and the test split, whose functions were not seen, is read once at the end. `out` gets
    adapter.safetensors and evaluator.json; `trained:OUT` then names the evaluator in `bench_functions` and
    `unit_tests`. The same call continues a training that was interrupted.
    """
    names = _forms(recipe.forms)
    splits = read_splits(Path(data))
    directory = directory_for(out)
    if (directory / EVALUATOR_FILE).exists():
        raise BadInput(f"`out` {directory}: holds a trained evaluator already; choose another place or remove it")
    started = time.monotonic()
    specimen = load_base(base, device=device, progress=progress)
    model, where = specimen.model, specimen.model.device
    source = {"base": base, "base_sha256": weights_sha256(model), "data_sha256": data_digest(Path(data))}
    kept = {**{name: value for name, value in recipe.values().items() if name != "forms"}, **source}
    claim(directory / CHECKPOINTS, kept)
    with repeatable(where):
        forms = {name: form_of(specimen, name) for name in names}
        untuned = {
            name: Measure(form, splits["validation"]).accuracy(model, where, progress) for name, form in forms.items()
        }
        tried: dict[str, Trained] = {}
        for name, form in forms.items():
            training = Training(model, form, recipe, splits)
            tried[name] = training.run(directory / CHECKPOINTS / STATE_FILE.format(name), progress)
        best = max(tried.values(), key=lambda one: one.best[1])
        plain = max(untuned, key=lambda name: untuned[name])
        best.adapter.write(directory / ADAPTER_FILE)
        before = _taken(specimen, plain, splits["test"], progress)
        Adapter.read(directory / ADAPTER_FILE, model).merge(model)
        validated = Measure(forms[best.form], splits["validation"]).accuracy(model, where, progress)
        after = _taken(specimen, best.form, splits["test"], progress)
    evaluator = EvaluatorTraining(
        base=base,
        base_sha256=source["base_sha256"],
        data_sha256=source["data_sha256"],
        form=best.form,
        adapter_sha256=sha256(directory / ADAPTER_FILE),
        adapter_bytes=(directory / ADAPTER_FILE).stat().st_size,
        parameters=best.adapter.size,
        recipe=recipe.values(),
        tests={split: len(rows) for split, rows in splits.items()},
        validation=Validation(
            accuracy=validated,
            untuned=untuned,
            trained={
                name: TrainedForm(step=one.best[0], accuracy=one.best[1], checks=one.checks)
                for name, one in tried.items()
            },
        ),
        untuned=before,
        trained=after,
        device=where.type,
        seconds=round(time.monotonic() - started, 1),
        seen=tuple(seen_marks(splits)),
    )
    written(evaluator, directory, EVALUATOR_FILE)
    shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)
    return evaluator


def _forms(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in FORMS:
            raise BadInput(f"`forms` {name!r:.40}: is not a form; choose from {choices(FORMS)}")
    if not names:
        raise BadInput(f"`forms`: is empty; choose from {choices(FORMS)}")
    return names


def _taken(specimen: Specimen, form: str, rows: list[Row], progress: Progress) -> TakenTests:
    """The share right by category and in all, with intervals over concepts, relations and programs."""
    model = specimen.model
    hits = Measure(form_of(specimen, form), rows).hits(model, model.device, progress)
    accuracy, groups = {}, {}
    for category in (ALL, *sorted({row.category for row in rows})):
        places = [i for i, row in enumerate(rows) if category in (ALL, row.category)]
        own = [rows[i].group for i in places]
        accuracy[category] = share_right([hits[i] for i in places], own)
        groups[category] = len(set(own))
    return TakenTests(form=form, accuracy=accuracy, groups=groups)
