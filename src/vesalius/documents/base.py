"""What all documents share: they are frozen, and they carry the version of their schema.

A class that says its kind in its class statement is registered by that (`class Sweep(..., kind="sweep")`). What else
there is to say about a kind it says itself: the file of a run directory that holds it, how a list of results tells of
it, which command makes it again, and, if it has a method `compared`, how two of them differ. Listing, comparing,
drawing and repeating ask the registry (`kinds`), so that a new kind is one class.

A `Record` is a part of a document, a `Document` a whole file. A frozen pydantic model only refuses other values for its
fields, so its sequences are tuples and its mappings are `FrozenDict`, a dict without the methods that change one: it is
compared, pickled and written as JSON like any other. Free JSON inside (options of a request, programs, tables) is what
a parser gave and is not frozen further: walking it on every load would cost more than it protects.

A file of another schema is refused with the command that makes it anew. Fields that are computed from others (`method`
of a discovery, from its request) are written for readers of the file and ignored when read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    computed_field,
    model_serializer,
    model_validator,
)

from vesalius.documents.view import (
    LONGEST_REPR,
    Answer,
    Facts,
    Several,
    View,
    Viewable,
    cell,
    cut_text,
    html_table,
    made,
    repr_of_first,
    subject_of,
    words,
)
from vesalius.errors import BadInput, visible
from vesalius.files import read_json, write_json
from vesalius.values import JsonObject

#: The two names that files give the schema version.
VERSION_FIELDS = ("schema_version", "schema")
#: Every kind of document whose class is imported; `kinds` finds those of packages that are not.
REGISTERED: dict[str, "type[Record]"] = {}
#: Characters of an answer in a list of results.
LONGEST_LINE = 240


class Record(BaseModel):
    """A frozen part of a document; a field that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    #: The name of its JSON Schema; None for what is only a part of other documents.
    KIND: ClassVar[str | None] = None
    #: Fields that JSON lacks where they hold their default; computed ones, where they hold nothing.
    ABSENT_IF_DEFAULT: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, kind: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.KIND = kind
        if kind is None:
            return
        other = REGISTERED.get(kind, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise BadInput(
                f"kind {kind!r} is {other.__module__}.{other.__qualname__}; give {cls.__name__} another name"
            )
        REGISTERED[kind] = cls

    def as_data(self) -> JsonObject:
        """Plain JSON data, as a file holds them."""
        return self.model_dump(mode="json", by_alias=True)

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> JsonObject:
        absent = {name for name in self.ABSENT_IF_DEFAULT if self._is_absent(name)}
        return {name: value for name, value in handler(self).items() if name not in absent}

    def _is_absent(self, name: str) -> bool:
        field = type(self).model_fields.get(name)
        value = getattr(self, name)
        return not value if field is None else value == field.get_default(call_default_factory=True)

    def __repr__(self) -> str:
        return cut_text(visible(super().__repr__()), LONGEST_REPR)

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return html_table([{"field": name, "value": getattr(self, name)} for name in type(self).model_fields])


class Answered(Record):
    """What has a first line that a rule decides (`documents/answers.py`); JSON holds the answer as well."""

    def answered(self) -> Answer | None:
        """The first line and the next command; None where no rule decides."""
        raise NotImplementedError

    @computed_field
    @property
    def answer(self) -> dict[str, str] | None:
        """Yes, partly or no by the rule for such results, the figures that decide it, and the next command."""
        said = self.answered()
        return None if said is None else said.as_data()


@dataclass(frozen=True)
class Line:
    """What a list of results says of one: its title, its answer in one line, what it cost, how long it took."""

    title: str = ""
    figures: str = ""
    cost: float | None = None
    seconds: float | None = None


class Document(Record):
    """A whole file. Subclasses state their `SCHEMA` and have a field `schema_version`."""

    SCHEMA: ClassVar[int]
    #: What to do about a file that cannot be read.
    REMEDY: ClassVar[str] = ""
    #: Its file in a run directory, and the files that are read with it.
    FILE: ClassVar[str | None] = None
    BESIDE: ClassVar[tuple[str, ...]] = ()
    #: Of several results in one directory the first by rank says what the directory holds; None: it never does.
    RANK: ClassVar[int | None] = 100
    #: True if what lies below its directory belongs to it and is not listed by itself.
    OWNS_DIRECTORY: ClassVar[bool] = False
    #: Fields by which a file of any name is recognised.
    RECOGNISED_BY: ClassVar[tuple[str, ...]] = ()
    #: The command whose request makes it, and the function of `vesalius.api` that repeats such a request.
    COMMAND: ClassVar[str | None] = None
    VERB: ClassVar[str | None] = None

    @classmethod
    def kind_name(cls) -> str:
        """Its kind as lists of results name it."""
        return (cls.KIND or cls.__name__.lower()).replace("_", "-")

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        named = getattr(self, "request", None) or self
        return subject_of(getattr(named, "specimen", None), getattr(named, "behaviour", None))

    def listed(self) -> Line:
        """What a list of results says of it: its first line, as it is printed."""
        answer = self.answered() if isinstance(self, Answered) else None
        said = str(self).split("\n", 1)[0] if answer is None else str(answer)
        return Line(
            self.listed_as(), cut_text(said, LONGEST_LINE), getattr(self, "cost", None), getattr(self, "seconds", None)
        )

    @classmethod
    def from_data(cls, data: Mapping[str, object], *, source: str = "") -> Self:
        """Read plain JSON data; `source` names it in errors."""
        try:
            return cls.model_validate(dict(data))
        except ValidationError as error:
            remedy = cls.REMEDY and f"; {cls.REMEDY}"
            raise BadInput(f"{source or cls.__name__.lower()}: {first_error(error)}{remedy}") from None

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a JSON file."""
        path = Path(path)
        return cls.from_data(read_json(path), source=str(path))

    def write(self, path: Path | str) -> None:
        """Write the JSON file in one step."""
        write_json(Path(path), self.as_data())

    @model_validator(mode="before")
    @classmethod
    def _current(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        version = next((data[name] for name in VERSION_FIELDS if name in data), cls.SCHEMA)
        if isinstance(version, int) and version != cls.SCHEMA:
            older = version < cls.SCHEMA
            said = f"older than {cls.SCHEMA}, the only one" if older else f"newer than {cls.SCHEMA}, the latest"
            raise ValueError(f"schema {version} is {said} that this version reads{cls._of_another_kind(data)}")
        return {name: value for name, value in data.items() if name not in cls.model_computed_fields}

    @classmethod
    def _of_another_kind(cls, data: Mapping[str, object]) -> str:
        """What is added where a file lacks fields that this document has had from its first schema on."""
        lacking = [name for name, field in cls.model_fields.items() if field.is_required() and name not in data]
        return f"; or it is not a {cls.__name__}, since it has no {lacking[0]!r}" if lacking else ""


class ShownDocument(Viewable, Document):
    """A document that shows itself; it states the version of its schema."""

    def save(self, directory: Path | str) -> Path:
        """Write its file into a directory, which is made if needed, and return its path; one with a field `directory`
        says there where it is.
        """
        place = made(directory)
        path = place / (self.FILE or f"{type(self).__name__.lower()}.json")
        placed = {"directory": str(place)} if "directory" in type(self).model_fields else {}
        self.model_copy(update=placed).write(path)
        return path


class ResultDocument(ShownDocument):
    """A document that shows itself, in its first schema."""

    SCHEMA = 1

    schema_version: Literal[1] = Field(default=1, alias="schema")

    def view(self) -> View:
        """Its fields, where the class does not say how it shows itself."""
        fields = [(name, cell(getattr(self, name))) for name in type(self).model_fields if name != VERSION_FIELDS[0]]
        facts = [(words(name), cut_text(text, LONGEST_REPR // 4)) for name, text in fields]
        return View(self.kind_name(), Answer(words(self.KIND or type(self).__name__)), [Facts(facts)])


def first_error(error: ValidationError) -> str:
    """The first problem of a validation, as one line: where it is and what is wrong."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return " ".join((f"{place}: {message}" if place else message).split())


K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that refuses to be changed; `{**this, ...}` and `this | other` make plain ones."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a document cannot be changed; make another with .model_copy(update={...})")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = _refuse
    setdefault = update = _refuse  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr_of_first((f"{key!r}: {cut_text(repr(self[key]), 80)}" for key in self), len(self), "{{{}}}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


#: A mapping of a document, and a sequence that may be long.
FrozenMap = Annotated[dict[K, V], AfterValidator(FrozenDict)]
#: An object of JSON within a document: what it holds is checked by who reads it.
JsonMap = FrozenMap[str, Any]
#: Characters of a name that a file or a folder has.
LONGEST_FILE_NAME = 200


def _one_name(name: str) -> str:
    if not name or name.startswith(".") or len(name) > LONGEST_FILE_NAME or any(one in name for one in "/\\\0"):
        raise ValueError("is not the name of a file: one that leads elsewhere is not followed")
    return name


#: The name of a case that a file is named after.
FileName = Annotated[str, AfterValidator(_one_name)]
FrozenList = Annotated[tuple[V, ...], AfterValidator(Several)]


# How a foreign program ran: in which confinement, and what it was given beyond that. Results of programs carry it.


class Ran(Record):
    """How a foreign program ran. `isolation` names what the kernel enforced; `contained` is False only where the caller
    accepted the risk. `passed` are the environment variables it was given, by name, `read` the paths it could read
    beyond its own files, and `network` whether it had one.
    """

    contained: bool
    isolation: str
    passed: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    network: bool = False

    @property
    def word(self) -> str:
        """One word for a table."""
        return "confined" if self.contained else "unconfined"

    @property
    def sentence(self) -> str:
        """For a page and the terminal."""
        given = [f"the variables {', '.join(self.passed)}"] if self.passed else []
        given += [f"read access to {', '.join(self.read)}"] if self.read else []
        given += ["the network"] if self.network else []
        beyond = f", with {' and '.join(given)}" if given else ""
        if self.contained:
            return f"The program ran confined ({self.isolation}){beyond}."
        return f"The program ran UNCONFINED ({self.isolation}){beyond}: it could read files and keys of its caller."


def least_confined(runs: Iterable[Ran | None]) -> Ran | None:
    """Of several runs, one that was not contained if there is one, for a sentence about all; None without any."""
    known = [one for one in runs if one is not None]
    return min(known, key=lambda one: one.contained, default=None)
