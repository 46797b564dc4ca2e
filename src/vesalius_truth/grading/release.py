"""The answer key of the 84 circuits as a release: one record a circuit, in the layout of AgenticInterpBench.

A record says what a circuit computes, by which RASP program, with five examples, and of each component its tag, note,
labels and hook. The correspondence leads from every node of the compiled program to the hook of the trained model that
carries it. Notes, programs and labels are ours. Whoever reads these files knows the answers: they are for graders and
for people, and a scientist under test must not have them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vesalius.components import Component
from vesalius.errors import BadInput, Failed
from vesalius.files import write_json
from vesalius_truth.grading.keys import graded_specimen
from vesalius_truth.key import answer, task
from vesalius_truth.key.other_keys import ANNOTATIONS

EXAMPLES = 5


def write_release(directory: Path, ids: Iterable[str]) -> dict[str, int]:
    """Write `annotations/case_ID.json` of these benchmark circuits; how many components each has."""
    folder = directory / ANNOTATIONS
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder}: holds files already; name an empty place")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"{folder}: could not be made ({error.strerror})") from None
    sizes = {}
    for id in ids:
        record = case_record(id)
        write_json(folder / f"case_{record['id']}.json", record)
        sizes[record["id"]] = len(record["components"])
    return sizes


def case_record(id: str) -> dict[str, Any]:
    """The record of one circuit."""
    key, known, specimen = answer(id), task(id), graded_specimen(id)
    config = specimen.model.config
    return {
        "id": key.id,
        "name": key.name,
        "task_summary": key.description,
        "examples": [{"input": one["input"], "output": one["output"]} for one in specimen.examples[:EXAMPLES]],
        "program": key.program,
        "model": {
            "n_layers": config.n_layers,
            "n_heads": config.n_heads,
            "d_model": config.d_model,
            "d_head": config.d_head,
            "d_mlp": config.d_mlp,
            "vocab": list(known.vocab),
            "max_len": known.max_len,
            "causal": known.causal,
        },
        "components": [
            {
                "id": _published_name(Component.parse(part.id)),
                "hook": Component.parse(part.id).format("hook"),
                "role": {"tag": str(part.tag), "note": part.note},
                "labels": list(part.variables),
            }
            for part in key.components
        ],
        "correspondence": [
            {
                "label": label,
                "high_level": _node(placed.component),
                "low_level": [_node(known.locate(placed.component))],
            }
            for placed in known.program().components
            for label in placed.variables
        ],
    }


def _published_name(component: Component) -> str:
    """`L1H2_ATTN` and `L0_MLP`, as the published records have them."""
    return f"{component}_ATTN" if component.is_head else str(component)


def _node(component: Component) -> dict[str, str]:
    """The hook of a node and the part of its output: one head, or all of an MLP."""
    if component.is_head:
        return {"name": f"blocks.{component.layer}.attn.hook_result", "index": f"[:, :, {component.head}, :]"}
    return {"name": f"blocks.{component.layer}.mlp.hook_post", "index": "[:]"}
