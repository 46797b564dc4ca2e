"""The reference page of the documents, from their schemas: `python -m vesalius.documents.reference > PAGE`."""

from collections.abc import Iterator

from vesalius.documents.base import Document
from vesalius.documents.kinds import kind_named, schema, schema_names
from vesalius.values import JsonObject

HEADING = """# Documents

Results pass between the parts of Vesalius, and onto the disk, as these documents. Each is a frozen pydantic type in
`vesalius.documents` (or in a wing) with a schema version; `.read(path)` and `.write(path)` read and write its file.
`vesalius schema NAME` prints the JSON Schema that these lists are made from.

A field with * is in every file. `X?` may be null, `X[]` is a list, `object<X>` maps strings to X, `json` is any value.
`answer` is Yes, Partly or No by the rule for such results, the figures that decide it, and the next command. The parts
of documents of wings (`study.json`, `league.json`, ...) are in `vesalius schema NAME` alone.

This page is generated: `python -m vesalius.documents.reference > docs/reference/documents.md`.
"""

#: Fields that mean the same in every document: the heading says what.
COMMON = ("answer",)


def reference() -> str:
    """The whole page as Markdown."""
    kinds = {name: kind_named(name) for name in schema_names()}
    described = {"JsonValue", *(kind.__name__ for kind in kinds.values())}
    lines = [HEADING]
    for name, kind in kinds.items():
        body, file = schema(name), kind.FILE if issubclass(kind, Document) else None
        lines += [f"## {kind.__name__}: `{file}`" if file else f"## {kind.__name__}", "", *_section(body)]
        core = kind.__module__.startswith("vesalius.")
        for part, definition in body.get("$defs", {}).items() if core else ():
            if part not in described:
                described.add(part)
                lines += [f"### {part}", "", *_section(definition)]
    return "\n".join(lines)


def _section(body: JsonObject) -> Iterator[str]:
    """What a document or a part of one is, and its fields with their types, a line each."""
    yield from (_prose(body.get("description", "")), "", "```text")
    for name, field in body.get("properties", {}).items():
        meaning = "" if name in COMMON else _prose(field.get("description", ""))
        always = "*" if name in body.get("required", ()) else ""
        yield f"{name}{always}: {_type(field)}" + (f"    # {meaning}" if meaning else "")
    yield from ("```", "")


def _prose(text: str) -> str:
    return " ".join(text.split())


def _type(field: JsonObject) -> str:
    """A field's type: `X?` may be null, `X[]` is a list."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        return "json" if name == "JsonValue" else name
    if "const" in field:
        return repr(field["const"])
    if "enum" in field:
        return "|".join(map(repr, field["enum"]))
    if "anyOf" in field:
        types = list(dict.fromkeys(map(_type, field["anyOf"])))
        present = [name for name in types if name != "null"]
        return "|".join(present) + "?" * (len(present) < len(types))
    match field.get("type"):
        case "array" if "prefixItems" in field:
            return f"[{', '.join(map(_type, field['prefixItems']))}]"
        case "array":
            return f"{_type(field.get('items', {}))}[]"
        case "object" if isinstance(field.get("additionalProperties"), dict) and field["additionalProperties"]:
            return f"object<{_type(field['additionalProperties'])}>"
        case str(name):
            return name
    return "json"


if __name__ == "__main__":
    print(reference(), end="")
