"""All behaviours by name, those of plug-ins too, and whatever else stands for one: a file, rows, a prompt."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from vesalius.behaviours.addition import ADDITION, parse_addition
from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.builtin import CAPITAL, DOCSTRING, GREATER_THAN, INDUCTION, INDUCTION_OUT, IOI, SUCCESSOR
from vesalius.behaviours.files import ENDINGS, read_behaviour
from vesalius.behaviours.mechrl import MECHRL_DOCSTRING, MECHRL_INDUCTION, MECHRL_IOI
from vesalius.behaviours.metrics import BehaviourMetric, require_metric
from vesalius.behaviours.own import from_prompt, from_rows
from vesalius.behaviours.rows import inline_rows
from vesalius.documents.view import has_options
from vesalius.errors import BadInput, choices
from vesalius.files import require_possible
from vesalius.model.specimen import Specimen
from vesalius.plugins import BEHAVIOURS, all_names, find_plugin, plugin_names

_ALL = (
    *(INDUCTION, INDUCTION_OUT, IOI, DOCSTRING, GREATER_THAN, CAPITAL, SUCCESSOR, ADDITION),
    *(MECHRL_INDUCTION, MECHRL_IOI, MECHRL_DOCSTRING),
)


_NAMES = tuple(one.name for one in _ALL)


def behaviours() -> list[Behaviour]:
    """Every built-in behaviour, in a fixed order."""
    return list(_ALL)


def plugin_behaviours() -> list[str]:
    """The names of behaviours that installed packages offer."""
    return plugin_names(BEHAVIOURS, _NAMES)


def behaviour(name: str) -> Behaviour:
    """The behaviour of this name; `addition` may be followed by options, `addition:high=99,shots=0`."""
    for candidate in _ALL:
        if candidate.name == name:
            return candidate
    if (plugin := find_plugin(BEHAVIOURS, name, _NAMES)) is not None:
        offered = plugin.load()
        with plugin.running():
            made = offered if isinstance(offered, Behaviour) or not callable(offered) else offered()
        if not isinstance(made, Behaviour) or made.name != name:
            raise plugin.refused(f"is no ves.Behaviour of the name {name!r}, nor a function that returns one")
        return made
    if has_options(name):
        head = name.partition(":")[0]
        if head != ADDITION.name:
            raise BadInput(f"behaviour {name!r}: only {ADDITION.name} takes options")
        return parse_addition(name)
    raise BadInput(
        f"behaviour {name!r} does not exist; choose one of {choices(all_names(BEHAVIOURS, _NAMES))}, or give a file of "
        "rows (.jsonl, .json, .csv, .toml)"
    )


def find_behaviour(given: object, *, metric: BehaviourMetric | None = None) -> Behaviour:
    """The behaviour that a name, a path, a hub id, rows, a row written as JSON or a `Behaviour` stands for."""
    require_metric(metric)
    named = _behaviour_given(given)
    return named if metric is None else named.with_metric(metric)


def _behaviour_given(given: object) -> Behaviour:
    if isinstance(given, Behaviour):
        return given
    if isinstance(given, Mapping):
        return from_prompt(given)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Path):
        return from_rows(given)
    if not isinstance(given, str | Path):
        raise BadInput(
            f"behaviour {given!r} is {type(given).__name__}; give a name, a path, a list of rows or a ves.Behaviour"
        )
    text = str(given)
    if text in all_names(BEHAVIOURS, _NAMES) or has_options(text):
        return behaviour(text)
    if (rows := inline_rows(text)) is not None:
        return from_prompt(rows[0]) if len(rows) == 1 and isinstance(rows[0], Mapping) else from_rows(rows)
    require_possible(text, what="behaviour")
    path = Path(text).expanduser()
    if path.suffix in ENDINGS or "/" in text or path.exists():
        return read_behaviour(text)
    return behaviour(text)


def behaviour_of(specimen: Specimen) -> Behaviour:
    """The behaviour that a natural model was loaded for."""
    source = specimen.behaviour_source
    if isinstance(source, Behaviour) and source.name == specimen.behaviour:
        return source
    if specimen.behaviour is None:
        raise BadInput(
            f"specimen {specimen.name!r} is a natural model: name a behaviour, such as `behaviour` induction"
        )
    return behaviour(specimen.behaviour)
