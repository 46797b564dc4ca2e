"""What was asked: everything that decides a result, apart from the weights.

A result carries its request, so that its page can print the command that makes it again.
"""

import importlib.metadata
import platform
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePath
from typing import Literal, Self

from pydantic import Field, JsonValue, computed_field, model_validator

from vesalius.documents.base import Document, FrozenDict, FrozenMap, ShownDocument
from vesalius.documents.view import LONGEST_REPR, cut_text
from vesalius.documents.whole import LEAST_REPORTING
from vesalius.errors import quoted, visible
from vesalius.options import RECORDS, Checked, Cut, Draw, Force, HowFound, Load, Option, options_of
from vesalius.plugins import COMMANDS, find_plugin
from vesalius.values import JsonObject
from vesalius.version import __version__

Command = Literal[
    "sweep",
    "what-if",
    "complete",
    "discover",
    "sets",
    "neurons",
    "align",
    "atlas",
    "faithfulness",
    "explain",
    "retest",
    "ladder",
    "improve",
    "survey",
    "transcoders",
    "latents",
    "study af1",
    "bench circuits",
    "bench discovery",
    "bench functions",
    "bench mechrl",
    "bench natural",
    "functions reliability",
]
#: The digest of prompts that were given in Python, which no command takes.
MATERIAL = "material"
#: What stands for a tokenizer that was given as an object.
IN_PYTHON = "(given in Python)"


def installed_versions() -> dict[str, str]:
    """The versions of Vesalius, Python and torch that are running; torch is not imported for this."""
    running = {
        "vesalius": __version__,
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }
    return FrozenDict(running)


#: The records whose fields are flags of `vesalius discover`; other options of a request are those of its method.
DISCOVER = (Load, HowFound, Draw, Cut, Checked, Force)


class Request(Document, kind="request"):
    """What a command or a call was asked.

    `components` are the names given, `circuit` the file given instead of names. `method` is the discovery method, the
    scientist or the interpreter. `options` are the command's further options by name, only those that decide the
    result; a true value is a flag, `models` are the words after the command. `made_for` is the model that sparse
    dictionaries among the options say they are of, where that is another one.
    """

    SCHEMA = 1
    ABSENT_IF_DEFAULT = ("made_for",)

    schema_version: Literal[1] = 1
    command: Command
    specimen: str | None = None
    behaviour: str | None = None
    components: tuple[str, ...] | None = None
    circuit: str | None = None
    method: str | None = None
    options: FrozenMap[str, JsonValue] = Field(default_factory=FrozenDict)
    seed: int | None = None
    backbone: str | None = None
    protocol: str | None = None
    made_for: str | None = None
    versions: FrozenMap[str, str] = Field(default_factory=installed_versions)

    def __repr__(self) -> str:
        return cut_text(visible(f"Request: {self.command_line()}"), LONGEST_REPR)

    def command_line(self) -> str:
        """A shell command that gives the same result; of prompts given in Python it can only say that there were."""
        command = " ".join(map(shlex.quote, self._words()))
        mark = self.options.get(MATERIAL)
        return command if mark is None else f"{command}  # on prompts given in Python ({mark}): use ves.rerun"

    def followed_by(self, command: str, *options: str) -> str | None:
        """Another command about the same model and behaviour; None where they were given in Python."""
        if self.specimen is None or MATERIAL in self.options:
            return None
        loaded = {option.key: self.options[option.key] for option in options_of(Load) if option.key in self.options}
        words = ["vesalius", *command.split(), self.specimen]
        words += [] if self.behaviour is None else ["--behaviour", self.behaviour]
        words += [word for name, value in loaded.items() for word in _option(command, name, value)]
        return " ".join(map(shlex.quote, [*words, *options]))

    def with_options(self, **options: JsonValue) -> str | None:
        """The same command with other options (None: without one); None where no command takes what was given."""
        if self.specimen is None or MATERIAL in self.options:
            return None
        return self.model_copy(update={"options": FrozenDict({**self.options, **options})}).command_line()

    def on_more_prompts(self, used: int) -> str | None:
        """The same command on more prompts than were used. A file of rows may have no more of them, so it is looked at
        first: there it is said whether it has enough.
        """
        asked = self.behaviour or ""
        own = asked.startswith("{") or PurePath(asked.partition(":")[0]).suffix  # one prompt, or a file
        return self.followed_by("behaviours") if own else self.with_options(n=max(LEAST_REPORTING, 2 * used))

    def remarks(self) -> list[tuple[str, str]]:
        """What a result has to say of its question besides, as facts."""
        if self.made_for is None:
            return []
        return [("dictionaries", f"made for {self.made_for} by what their files say, and not for this model")]

    def keywords(self) -> JsonObject:
        """The keywords of the function of `vesalius` that gives the same result."""
        fields = ("behaviour", "components", "circuit", "seed", "backbone", "protocol")
        given = (
            {name: getattr(self, name) for name in fields}
            | {_method_name(self.command): self.method}
            | dict(self.options)
        )
        keywords = {name: value for name, value in given.items() if value is not None}
        return keywords | {"checks": False} if keywords.pop("quick", False) else keywords

    def _method_with(self, options: Mapping[str, JsonValue]) -> str | None:
        """The method with the options that only it has: `masks:rate=0.05`."""
        if self.method is None or not options:
            return self.method
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
        return ":".join([self.method, *(f"{name}={text}" for name, text in texts.items())])

    def _words(self) -> Iterator[str]:
        yield from ("vesalius", *self.command.split())
        flags = {option.key for record in DISCOVER for option in options_of(record)}
        declared = flags if self.command == "discover" else set(self.options)
        own = {name: value for name, value in self.options.items() if name not in declared and name != MATERIAL}
        if self.specimen is not None:
            yield self.specimen
        named = {
            "--behaviour": self.behaviour,
            "--components": None if self.components is None else ",".join(self.components),
            "--circuit": self.circuit,
            f"--{_method_name(self.command)}": self._method_with(own),
            "--backbone": self.backbone,
            "--protocol": self.protocol,
        }
        for option, text in named.items():
            if text is not None:
                yield from (option, text)
        for name, value in self.options.items():
            if name != MATERIAL and name not in own:
                yield from _option(self.command, name, value)
        if self.seed is not None:
            yield from ("--seed", str(self.seed))


class PromptedDocument(ShownDocument):
    """A result on prompts: what its request says of them stands in its file as well."""

    request: Request

    @model_validator(mode="after")
    def _whole_numbers(self) -> Self:
        """Refuse options that are not numbers when a file is read, not when it is shown."""
        _ = self.n
        return self

    @computed_field
    @property
    def specimen(self) -> str | None:
        """The specimen, as it was asked for."""
        return self.request.specimen

    @computed_field
    @property
    def behaviour(self) -> str | None:
        """The behaviour of a natural model."""
        return self.request.behaviour

    @computed_field
    @property
    def n(self) -> int:
        """Prompts of the experiment, at most."""
        return whole_option(self.request, "n")

    @computed_field
    @property
    def seed(self) -> int:
        """Seed of the prompts, and of what is drawn beside them."""
        return self.request.seed or 0


def whole_option(request: Request, name: str) -> int:
    """An option that is a whole number, 0 where it is not given; a file may say anything."""
    value = request.options.get(name)
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise ValueError(f"request: the option {name} is {quoted(value, 40)}, which is not a whole number")
    return value or 0


@cache
def _method_name(command: str) -> str:
    """What a command calls its method, as a record declares it."""
    return next((option.key for option in _declared(command) if command in option.flag.method_of), "method")


def _declared(command: str) -> Iterator[Option]:
    """The options of all records, among them those of the package that the command is of."""
    for name in (command.replace(" ", "."), command.partition(" ")[0]):
        plugin = find_plugin(COMMANDS, name, ())
        if plugin is not None and plugin.built_in:
            plugin.load()
            break
    return (option for record in tuple(RECORDS) for option in options_of(record))


def _option(command: str, name: str, value: JsonValue) -> Iterator[str]:
    """The words of one option; none where it is off or left out. A list is given once per value where a record says
    so, otherwise as one value with commas; `programs`, a mapping, as one `--program NAME=VALUE` for each entry.
    """
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return
    if value is True:
        yield option
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from (option.removesuffix("s"), f"{key}={one}")
    elif isinstance(value, list):
        several = [one for one in _declared(command) if one.key == name and one.repeated]
        words = any(one.flag.words for one in several)
        for text in map(str, value) if several else [",".join(map(str, value))]:
            yield from (text,) if words else (option, text)
    else:
        yield from (option, str(value))
