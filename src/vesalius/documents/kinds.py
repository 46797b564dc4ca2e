"""The kinds of documents: those of this package, of the packages beside it and of plug-ins, all found in one way.

A class registers itself when it is defined (`base`). Classes of other packages are entry points of the group
`vesalius.documents`, named as their kind, and are imported when a kind is asked for by name or all of them are. One
that cannot be imported is refused by its name and left out of lists.
"""

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from vesalius.documents.base import REGISTERED, Document, Record
from vesalius.errors import BadInput, choices
from vesalius.files import read_json
from vesalius.plugins import DOCUMENTS, find_plugin, plugin_names
from vesalius.values import JsonObject

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_names() -> list[str]:
    """Every kind that has a JSON Schema, by name; nothing is imported."""
    return sorted({*REGISTERED, *plugin_names(DOCUMENTS, ())})


def kind_named(name: str) -> type[Record]:
    """The class of a kind."""
    if name not in REGISTERED:
        plugin = find_plugin(DOCUMENTS, name, ())
        if plugin is None:
            raise BadInput(f"document {name!r} does not exist; choose one of {choices(schema_names())}")
        loaded: object = plugin.load()
        if not (isinstance(loaded, type) and issubclass(loaded, Record) and plugin.name == loaded.KIND):
            raise plugin.refused(f"is no document whose class says kind={plugin.name!r}")
    return REGISTERED[name]


def stored_kinds() -> list[type[Document]]:
    """The kinds that say what a directory holds, the one that says most first."""
    _import_all(tuple(sys.path))
    kinds = [one for one in REGISTERED.values() if issubclass(one, Document) and one.FILE and one.RANK is not None]
    return sorted(kinds, key=lambda one: (one.RANK or 0, one.KIND or ""))


def kind_in(directory: Path) -> type[Document] | None:
    """The kind of result that a directory holds; None if it holds none."""
    return next((kind for kind in stored_kinds() if kind.FILE and (directory / kind.FILE).is_file()), None)


def kind_of_file(path: Path) -> type[Document] | None:
    """The kind of a JSON file, by its name or else by the fields it has; None if it is of no kind."""
    kinds = stored_kinds()
    named = next((kind for kind in kinds if path.name == kind.FILE), None)
    if named is not None:
        return named
    data = read_json(path)
    fields = set(data) if isinstance(data, dict) else set()
    return next((kind for kind in kinds if kind.RECOGNISED_BY and fields.issuperset(kind.RECOGNISED_BY)), None)


class _OfFields(GenerateJsonSchema):
    """Serializers that leave absent fields out do not change which fields there are."""

    def ser_schema(self, schema: Any) -> JsonSchemaValue | None:
        return None if schema["type"] == "function-wrap" else super().ser_schema(schema)


def schema(name: str) -> JsonObject:
    """JSON Schema of a document by name, such as "explanation": what `vesalius schema NAME` prints."""
    kind = kind_named(name)
    body = kind.model_json_schema(mode="serialization", by_alias=True, schema_generator=_OfFields)
    required = [field for field in body.get("required", ()) if field not in kind.ABSENT_IF_DEFAULT]
    return {"$schema": DIALECT, **body, "required": required}


@lru_cache(maxsize=4)
def _import_all(path: tuple[str, ...]) -> None:
    """Import every kind of the packages on the path; one that cannot be stays out."""
    for name in plugin_names(DOCUMENTS, ()):
        try:
            kind_named(name)
        except BadInput:
            continue


def look_again() -> None:
    """Import, when they are next asked for, kinds that were refused before: their package is trusted now."""
    _import_all.cache_clear()
