"""What a judge is told: the rubric and the rules as the system's words, the texts in blocks as the user's."""

from functools import cache
from typing import Literal, get_args

from jinja2 import Environment, PackageLoader, StrictUndefined

from vesalius.backbones import Message, system, user
from vesalius.backbones.untrusted_text import fence_key, neutralise
from vesalius.grading.judges.measures import MEASURES, MeasureName

Order = Literal["given_first", "judged_first"]
ORDERS: tuple[Order, ...] = get_args(Order)
CONTEXT = "TASK"


def prompt(
    measure: MeasureName, reference: str, candidate: str, *, context: str = "", order: Order = "given_first"
) -> list[Message]:
    """The messages that ask for one score. `context`, if any, always comes first; `order` is that of the other two."""
    asked = MEASURES[measure]
    texts = {CONTEXT: context} if context else {}
    texts |= {asked.given: reference, asked.judged: candidate}
    blocks = [{"title": title, "text": neutralise(text)} for title, text in texts.items()]
    # The key is made from the texts as they will stand there, where a key split by invisible characters is whole again.
    key = fence_key([block["text"] for block in blocks])
    frame = _render("frame.md", measure=measure, key=key, titles=list(texts))
    if order == "judged_first":
        blocks[-2:] = reversed(blocks[-2:])
    return [system(frame), user(_render("blocks.md", blocks=blocks, key=key, judged=asked.judged))]


def _render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values).strip()


@cache
def _environment() -> Environment:
    loader = PackageLoader("vesalius.grading.judges", "templates")
    # Prompts are plain text: escaping for HTML would only hide what the graded text says.
    return Environment(loader=loader, undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)
