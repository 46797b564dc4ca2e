"""From a template to one self-contained file: escaping on, figures formatted in one place, nothing fetched.

Style and script are package files that a page carries inline. The content policy of a page names the script by its
hash, so the only code a page can run is ours, whatever a note or a name contains.
"""

import base64
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from vesalius.documents.claims import Tag, spell
from vesalius.documents.view import duration, figure, words
from vesalius.errors import visible
from vesalius.files import write_text
from vesalius.values import JsonObject
from vesalius.version import __version__

LIMIT_BYTES = 2_000_000
#: A longer text of a document is cut.
LONGEST_TEXT = 20_000
#: Characters that a box of the circuit has room for; those of more than 19 are drawn closer together.
LONGEST_ROLE = 27
TEMPLATES = Path(__file__).parent / "templates"
#: Marks, geometry and shades that pages and the workbench draw alike (docs/decisions/0045).
SHARED: JsonObject = json.loads((TEMPLATES / "parts.json").read_text(encoding="utf-8"))
VERDICTS: dict[str, str] = SHARED["verdicts"]
TAG_MEANINGS: dict[Tag, str] = {
    "INDICATOR": "marks whether a condition holds",
    "AGGREGATOR": "collapses many positions into one value",
    "ROUTER": "moves a value from one position to another",
    "MAPPER": "maps one value to another",
    "COMBINER": "combines several values",
}


def render(template: str, scripts: Sequence[str], **values: object) -> str:
    """Fill a template; `scripts` names the package files the page runs."""
    code = "".join(map(package_text, scripts))
    return (
        _environment()
        .get_template(template)
        .render(
            **values,
            style=package_text("parts.css") + package_text("style.css"),
            script=Markup(code),
            script_hash=script_hash(code),
            version=__version__,
        )
    )


def script_hash(code: str) -> str:
    """What a content policy names a script by."""
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def macro(template: str, name: str, *values: object, **options: object) -> str:
    """What one macro of a template prints, on its own."""
    return str(getattr(_environment().get_template(template).module, name)(*values, **options)).strip() + "\n"


def write(path: Path, text: str) -> Path:
    """Write a page, or say in one line why it could not be written."""
    write_text(path, text)
    return path


def anchor(name: str) -> str:
    """A name as a fragment identifier."""
    return "component-" + re.sub(r"[^A-Za-z0-9_-]", "-", name)


@lru_cache(maxsize=8)
def _any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """Any of these names as a word; a page asks for its own thousands of times."""
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, names))})(?!\w)")


def linked(text: str, names: Collection[str]) -> Markup:
    """A text in which each of these names leads to its place on the page."""
    text = shown(text)
    if not names:
        return escape(text)
    pieces = re.split(_any_of(tuple(names)), text)
    links = [Markup('<a href="#{}">{}</a>').format(anchor(name), name) for name in pieces[1::2]]
    return Markup("").join(piece for pair in zip_longest(pieces[::2], links, fillvalue="") for piece in pair)


def shown(value: object) -> Any:
    """A value as a page prints it: text without unseen characters, the end of a very long one left out."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    cut = value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]} ... ({len(value):,} characters)"
    return visible(cut)


def add_filters(filters: Mapping[str, Any], tests: Mapping[str, Any]) -> None:
    """Let templates use these."""
    _environment().filters.update(filters)
    _environment().tests.update(tests)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vesalius.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figure": figure,
        "duration": duration,
        "anchor": anchor,
        "linked": linked,
        "spell": spell,
        "words": words,
        "short_role": short_role,
    }
    used: dict[str, Any] = {"verdict_mark": VERDICTS, "strip": SHARED["strip"], "tags": TAG_MEANINGS}
    environment.globals.update(used)
    return environment


def short_role(role: str) -> str:
    """The first half of a role without its figure, short enough for a box of the circuit."""
    half = role.split(",")[0].split(" but ")[0].split(" (")[0]
    return half if len(half) <= LONGEST_ROLE else f"{half[: LONGEST_ROLE - 1].rpartition(' ')[0]} …"


def package_text(name: str) -> Markup:
    """A style sheet or script of the package, which a page may carry as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))
