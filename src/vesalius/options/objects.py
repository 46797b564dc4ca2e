"""Objects that hold their own options: discovery methods and scientists.

Such a class is a frozen dataclass with a name; its fields are made by `option`, each with its help text. It is entered
in the register of its kind when it is defined, and its name is accepted wherever an object is, with the options beside
it: `"eap-ig", steps=3` is `EAPIG(steps=3)`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar

from vesalius.errors import BadInput

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
