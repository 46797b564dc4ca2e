"""What a record of options is, and how functions take them.

A record is a frozen dataclass whose fields carry their help text and flag names. `Flat` takes a function's records
apart into their fields, so that callers may give either; flags, requests, plans and the names of directories are read
off the same fields.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, FrozenInstanceError, dataclass, field, fields, replace
from functools import cache, wraps
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from vesalius.errors import BadInput, choices, quoted, require_number, require_whole

# Objects that hold their own options: discovery methods and scientists.
#
# Such a class is a frozen dataclass with a name; its fields are made by `option`, each with its help text. It is
# entered in the register of its kind when it is defined, and its name is accepted wherever an object is, with the
# options beside it: `"eap-ig", steps=3` is `EAPIG(steps=3)`.

Kind = TypeVar("Kind", bound="Configured")


def option(default: object, help: str, *, kw_only: bool = False) -> Any:
    """A field of such a class, with what it means."""
    return field(default=default, metadata={"help": help}, kw_only=kw_only)


@dataclass(frozen=True)
class Configured:
    """An object with a `name` and options of its own. `OPTION` is the option of verbs that takes one, and `meaning` a
    sentence that says what it does.
    """

    OPTION: ClassVar[str] = ""
    name: ClassVar[str] = ""
    meaning: ClassVar[str] = ""

    @classmethod
    def enter(cls, register: "dict[str, type[Kind]]", kind: "type[Kind]") -> None:
        """Enter a class that has a name of its own; refused where another one has that name."""
        if name := kind.__dict__.get("name"):
            other = register.get(name)
            if other is not None and (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
                taken = f"{other.__module__} has that name; choose another"
                raise BadInput(f"{cls.OPTION} {name!r} of {kind.__module__}: {taken}")
            register[name] = kind

    @classmethod
    def option_help(cls) -> dict[str, str]:
        """The names of the options and what they mean."""
        return {one.name: one.metadata.get("help", "") for one in fields(cls)}

    @classmethod
    def require_options(cls, given: Iterable[str], **fixed: object) -> None:
        """Refuse options that it does not have; `fixed` are fields that are no options."""
        known = [one.name for one in fields(cls) if one.name not in fixed]
        if unknown := [name for name in given if name not in known]:
            has = f"whose options are {listed(known)}" if known else "which has no options"
            called = cls.name or next(iter(fixed.values()), "")
            raise BadInput(f"{listed(unknown)} cannot be given with `{cls.OPTION}` {called}, {has}; leave it out")

    @classmethod
    def of(cls, given: Mapping[str, object], **fixed: object) -> Self:
        """One with these options, and with fields that are none."""
        cls.require_options(given, **fixed)
        return cls(**fixed, **given)

    def without_more(self, given: Mapping[str, object]) -> Self:
        """The object as it is; options beside it are refused."""
        if given:
            made = f"{type(self).__name__}({', '.join(f'{name}=...' for name in given)})"
            raise BadInput(f"{listed(given)}: the {self.OPTION} is an object, which has its own options; give {made}")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The options that are not the usual ones."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}


def listed(names: Iterable[str]) -> str:
    """Names of options as error messages list them."""
    return ", ".join(f"`{name}`" for name in names)


Answer = TypeVar("Answer")
#: Every record that is declared, in order.
RECORDS: list[type["OptionRecord"]] = []
#: What is asked for where a value is of another kind.
WANTED = {bool: "true or false", str: "a text"}


@dataclass(frozen=True)
class Flag:
    """What a field is besides its type and default.

    `of` lists the accepted values. `rare` options stand under "More" in the help. `asked` says when the field is part
    of a request: "given" where it is not the verb's default, "always", or "never" because it decides nothing. `word` is
    how the name of a directory writes the value. `off` is the flag that switches the field off. `method_of` are the
    commands whose requests call the value their method. `words` stand after the command without a flag.
    """

    help: str
    names: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    metavar: str | None = None
    of: tuple[str, ...] = ()
    rare: bool = False
    asked: str = "given"
    word: str | None = None
    off: str | None = None
    method_of: tuple[str, ...] = ()
    words: bool = False


def flag(text: str, *names: str, **more: Any) -> Flag:
    """The help text of a field, its flags where they are not `--name`, and further fields of `Flag`."""
    return Flag(text, names, **more)


@dataclass(frozen=True)
class Option:
    """A field of a record: its name, its flag, its type in Python and on the command line, and its default."""

    name: str
    flag: Flag
    type: Any
    default: Any

    @property
    def key(self) -> str:
        """What requests and the command line call it: the flag, in Python's spelling."""
        if self.flag.off is not None:
            return self.flag.off
        return self.flag.names[0].removeprefix("--").replace("-", "_") if self.flag.names else self.name

    @property
    def long(self) -> str:
        """Its flag as it is written: `--max-cost`."""
        return f"--{self.key.replace('_', '-')}"

    @property
    def repeated(self) -> bool:
        """Whether it is given once per value on the command line; other lists are one text with commas."""
        return get_origin(_without_none(self.type)) is Sequence

    @property
    def text_type(self) -> Any:
        """Its type on the command line: what is neither a number nor a switch is a text there."""
        kind = _without_none(self.type)
        plain = kind if kind in (bool, int, float, str) else list[str] if self.repeated else str
        return plain | None if self.default is None or self.repeated else plain


def _without_none(kind: Any) -> object:
    parts = [part for part in get_args(kind) if part is not type(None)]
    return parts[0] if get_origin(kind) in (Union, UnionType) and len(parts) == 1 else kind


@dataclass_transform(frozen_default=True)
class OptionRecord:
    """Options that belong together: the subclass is a frozen dataclass, with its fields declared in the class.

    Values that can be refused without a model are refused when the record is made. The methods that `dataclass` would
    write for every class stand here once: writing them takes longer than the rest of `vesalius --help` of ours.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        RECORDS.append(cls)

    def __init__(self, *args: Any, **given: Any) -> None:
        own = fields(self)
        places = [one.name for one in own if not one.kw_only]
        values = dict(zip(places, args, strict=False))
        if len(args) > len(places) or values.keys() & given.keys() or given.keys() - {one.name for one in own}:
            raise TypeError(f"{type(self).__name__} has the options {', '.join(one.name for one in own)}, each once")
        for one in own:
            object.__setattr__(self, one.name, (values | given).get(one.name, one.default))
        # Refuse values that are not of the kind that their field declares.
        for option in options_of(type(self)):
            value = getattr(self, option.name)
            kind, left_out = _without_none(option.type), value is None and option.default is None
            if kind is int and not left_out:
                require_whole(**{option.name: value})
            elif kind is float and not left_out:
                require_number(**{option.name: value})
            elif kind in (bool, str) and not left_out and not isinstance(value, kind):
                raise BadInput(f"{option.name}={quoted(value, 40)} is not {WANTED[kind]}; give one")
            if option.flag.of and value not in option.flag.of:
                raise BadInput(f"{option.name} {value!r} does not exist; choose one of {choices(option.flag.of)}")
        self.__post_init__()

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.values().items())})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and cast(OptionRecord, other).values() == self.values()

    def __hash__(self) -> int:
        return hash(tuple(self.values().values()))

    def __post_init__(self) -> None:
        """Refuse or normalise more, in a record that says how."""

    def values(self) -> dict[str, Any]:
        """The fields by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@cache
def options_of(record: type[OptionRecord]) -> tuple[Option, ...]:
    """The fields of a record, in order."""
    hints = get_type_hints(record, include_extras=True)
    found = []
    for one in fields(record):
        kind, told = get_args(hints[one.name])[:2]
        found.append(Option(one.name, told, kind, one.default))
    return tuple(found)


@dataclass(frozen=True)
class Flat:
    """A function's parameters with its records taken apart into their fields.

    `plain` are the parameters that are no records, `records` the default of each record by the parameter's name. `open`
    says that the function takes further keywords, as `discover` does for the options of a method.
    """

    name: str
    plain: dict[str, inspect.Parameter]
    records: dict[str, OptionRecord]
    open: inspect.Parameter | None = None

    @classmethod
    def of(cls, function: Callable[..., object], more: Mapping[str, OptionRecord] | None = None) -> "Flat":
        """Those of a function, with `more` records that it does not see itself."""
        plain, records, further = {}, {}, None
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            kind = parameter.annotation
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                further = parameter
            elif isinstance(kind, type) and issubclass(kind, OptionRecord):
                records[name] = kind() if parameter.default is parameter.empty else parameter.default
            else:
                plain[name] = parameter
        records |= more or {}
        flat = [option.name for one in records.values() for option in options_of(type(one))]
        assert len({*flat, *plain}) == len(flat) + len(plain), f"{function.__name__}: two options have one name"
        return cls(function.__name__, plain, records, further)

    def options(self) -> Iterator[tuple[str, Option]]:
        """Every field with its record's parameter; defaults are those of this function."""
        for name, record in self.records.items():
            for option in options_of(type(record)):
                yield name, replace(option, default=getattr(record, option.name))

    def signature(self, returns: Any = inspect.Signature.empty) -> inspect.Signature:
        """What callers may give: the plain parameters, and every field as a keyword."""
        keyword = inspect.Parameter.KEYWORD_ONLY
        first = [one for one in self.plain.values() if one.kind is not keyword]
        own = [
            inspect.Parameter(option.name, keyword, default=option.default, annotation=option.type)
            for _, option in self.options()
        ]
        last = [one for one in self.plain.values() if one.kind is keyword]
        further = [] if self.open is None else [self.open]
        return inspect.Signature([*first, *own, *last, *further], return_annotation=returns)

    def further(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords among the arguments that are neither parameters nor fields."""
        return {name: value for name, value in arguments.items() if name not in self.plain and name not in self.records}

    def gather(self, args: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The function's arguments: records are made of the fields given, on top of a record where one is given too."""
        records, rest = dict(self.records), []
        owner = {option.name: name for name, option in self.options()}
        plain: dict[str, Any] = {}
        further: dict[str, Any] = {}
        changes: dict[str, dict[str, Any]] = {}
        for value in args:
            name = next((name for name, one in self.records.items() if type(one) is type(value)), None)
            if name is not None:
                records[name] = value
            elif isinstance(value, Configured) and value.OPTION in owner:
                changes.setdefault(owner[value.OPTION], {})[value.OPTION] = value
            else:
                rest.append(value)
        for key, value in given.items():
            if key in self.plain:
                plain[key] = value
            elif isinstance(value, OptionRecord) and key in records:
                records[key] = value
            elif key in owner:
                changes.setdefault(owner[key], {})[key] = value
            elif self.open is not None:
                further[key] = value
            else:
                from difflib import get_close_matches

                near = get_close_matches(key, [*self.plain, *owner], 1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{self.name}() has no option {key!r}{meant}")
        made = {name: replace(one, **changes[name]) if name in changes else one for name, one in records.items()}  # type: ignore[type-var]
        own = inspect.Signature(list(self.plain.values()))
        try:
            bound = own.bind(*rest, **plain)
            bound.apply_defaults()
            return bound.arguments | made | further
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None


def flattened(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """A function of records that takes their fields as keywords too."""
    flat = Flat.of(function)

    @wraps(function)
    def call(*args: Any, **given: Any) -> Answer:
        return function(**flat.gather(args, given))

    call.__signature__ = flat.signature(function.__annotations__.get("return"))  # type: ignore[attr-defined]
    return call


def given_options(records: Sequence[OptionRecord], usual: Sequence[OptionRecord]) -> Iterator[tuple[Option, Any]]:
    """The fields that a request names: those that are always named, and those that are not the usual ones."""
    defaults = {type(one): one for one in usual}
    for record in records:
        for option in options_of(type(record)):
            value, default = getattr(record, option.name), getattr(defaults[type(record)], option.name)
            if option.flag.asked == "always" or (option.flag.asked == "given" and value != default):
                yield option, value
