"""What a judge is told: the rubric and the rules as the system's words, the texts in blocks as the user's."""

from functools import cache
from typing import Literal, get_args

from jinja2 import Environment, PackageLoader, StrictUndefined

from vesalius.backbones import Message, system, user
from vesalius.grading.judges.blocks import fence_key, neutralised
from vesalius.grading.judges.measures import MEASURES, MeasureName

Order = Literal["given_first", "judged_first"]
ORDERS: tuple[Order, ...] = get_args(Order)
CONTEXT = "TASK"


def prompt(
    measure: MeasureName, reference: str, candidate: str, *, context: str = "", order: Order = "given_first"
) -> list[Message]:
    """The messages that ask for one score. `context`, if any, always comes first; `order` is that of the other two."""
    asked = MEASURES[measure]
    pair = [(asked.given, reference), (asked.judged, candidate)]
    texts = [*([(CONTEXT, context)] if context else []), *(pair if order == "given_first" else reversed(pair))]
    key = fence_key([context, reference, candidate])
    blocks = [{"title": title, "text": neutralised(text)} for title, text in texts]
    titles = [*([CONTEXT] if context else []), asked.given, asked.judged]
    frame = _render("frame.md", measure=measure, key=key, titles=titles)
    return [system(frame), user(_render("blocks.md", blocks=blocks, key=key, judged=asked.judged))]


def _render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values).strip()


@cache
def _environment() -> Environment:
    loader = PackageLoader("vesalius.grading.judges", "templates")
    # Prompts are plain text: escaping for HTML would only hide what the graded text says.
    return Environment(loader=loader, undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)
