"""One plug-in of each kind, as small as can be: none of them is good at what it does.

Everything heavy is imported inside the functions, so that listing the plug-ins costs nothing.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vesalius.behaviours import Behaviour
    from vesalius.behaviours.trial import Trial
    from vesalius.discovery.discover import Scores
    from vesalius.explanations.scientists import Explained, Task
    from vesalius.model.sources import LoadedModel
    from vesalius.model.specimen import Specimen
    from vesalius_backbones import Backbone
    from vesalius_functions import Answer, Box


def by_kind(task: "Task", backbone: "Backbone | None") -> "Explained":
    """A scientist that looks at nothing: heads gather, MLPs map."""
    from vesalius.documents.explanation import ComponentExplanation, Explanation
    from vesalius.explanations.scientists import Explained

    names = task.components or tuple(map(str, task.specimen().components))
    parts = tuple(
        ComponentExplanation(
            id=name,
            tag="MAPPER" if name.endswith("_MLP") else "AGGREGATOR",
            tag_by_experiment=None,
            note="not examined: a guess from its kind",
            verdict="untested",
        )
        for name in names
    )
    return Explained(
        Explanation(
            specimen=task.id,
            scientist="by-kind",
            components=parts,
            information_flow="not examined",
            task_description="not examined",
            seconds=0.0,
            seed=task.seed,
        )
    )


def two_points(box: "Box", *, seed: int) -> "Answer":
    """An interpreter that draws a straight line through two points."""
    from vesalius_functions import Answer

    low, high = (reply.value if isinstance(reply.value, float) else 0.0 for reply in box.ask([-50.0, 50.0]))
    slope = (high - low) / 100
    code = f"def f(x):\n    return {low!r} + {slope!r} * (x + 50)\n"
    return Answer(description=f"a straight line of slope {slope:.4g}", code=code)


def write_norm(specimen: "Specimen", material: "Trial", *, seed: int) -> "Scores":
    """A discovery method: a component scores by the length of what it writes, one forward pass in all."""
    import torch

    from vesalius.discovery.discover import Scores

    batch = material.batch
    with torch.no_grad():
        cache = specimen.model.run_with_cache(batch.tokens, mask=batch.mask)[1]
    per_prompt = torch.stack([cache.component(part).norm(dim=-1).mean(-1) for part in specimen.model.components], dim=1)
    means = per_prompt.mean(0).tolist()
    components = dict(zip(specimen.model.components, means, strict=True))
    return Scores(components, {}, forwards=1, unit="length of the write", per_prompt=per_prompt)


def days() -> "Behaviour":
    """A behaviour: the day after a day."""
    from vesalius.behaviours import Behaviour

    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    rows = [
        {
            "prompt": f"The day after {day} is",
            "answer": f" {names[(number + 1) % 7]}",
            "wrong": f" {names[(number + 3) % 7]}",
            "counterfactual": f"The day after {names[(number + 2) % 7]} is",
        }
        for number, day in enumerate(names)
    ]
    return Behaviour.from_rows(rows, name="days")


def load_model(what: str, *, dtype: Any) -> "LoadedModel":
    """A model loader: `example-models:DIRECTORY` reads a model directory, as an own format would be read here."""
    from vesalius.model.sources import read_model

    return read_model(Path(what), dtype="auto" if dtype is None else dtype)


def shared_words(*, measure: str, reference: str, candidate: str, context: str) -> tuple[int, str]:
    """A judge: 1 where a text shares a third of the words of what it is measured by, else 0."""
    wanted, said = (set(re.findall(r"\w+", text.lower())) for text in (reference, candidate))
    share = len(wanted & said) / max(1, len(wanted))
    return int(share >= 1 / 3), f"{share:.2f} of the words are there"
