"""The options of language models and of benchmark runs, each declared once as a field of a record, like those of
`verbs`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from vesalius.options.records import OptionRecord, flag
from vesalius.options.verbs import Sample

#: The longest reply of a language model in tokens, and the seconds that one is waited for.
MAX_TOKENS, TIMEOUT = 4096, 120.0


class Cap(OptionRecord):
    """What language models may cost."""

    max_cost: Annotated[
        float | None,
        flag("Spend at most this many dollars, over all jobs and resumptions.", rare=True, asked="never"),
    ] = None


class Paid(Cap):
    """What language models may cost, and how long they are waited for."""

    timeout: Annotated[
        float,
        flag(
            "Seconds to wait for a language model before trying again, or for a line of a command.",
            rare=True,
            asked="never",
        ),
    ] = TIMEOUT
    prices: Annotated[
        str | Path | None,
        flag("A JSON file of prices that replace or join the package's table.", rare=True, asked="never"),
    ] = None


class Sandboxed(OptionRecord):
    """Whether code may run where the kernel cannot contain it."""

    unsafe_sandbox: Annotated[
        bool,
        flag(
            "Run code of models and foreign programs even where the kernel offers no isolation.",
            "--unsafe-sandbox",
            rare=True,
            asked="never",
        ),
    ] = False


class Foreign(Sandboxed):
    """What foreign programs are given: they are confined, with their own files and an empty environment."""

    pass_env: Annotated[
        Sequence[str] | None,
        flag(
            "A variable of the environment that a `command:` program gets; give it again for more.",
            "--pass-env",
            metavar="NAME",
            rare=True,
            asked="never",
        ),
    ] = None
    allow_read: Annotated[
        Sequence[str] | None,
        flag(
            "A file or directory that a `command:` program may read, beside its own files.",
            "--allow-read",
            metavar="PATH",
            rare=True,
            asked="never",
        ),
    ] = None
    allow_network: Annotated[
        bool,
        flag("Give a `command:` program the network.", "--allow-network", rare=True, asked="never"),
    ] = False

    @property
    def granted(self) -> dict[str, Any]:
        """The fields of `vesalius.sandbox.command.Grants`."""
        read = tuple(os.path.abspath(os.path.expanduser(path)) for path in self.allow_read or ())
        own = {"env": tuple(self.pass_env or ()), "read": read, "network": self.allow_network}
        return {**own, "unsafe": self.unsafe_sandbox}


class Spend(Paid, Foreign):
    """What language models may cost, and what code they write and foreign programs may do."""


class Ask(Spend):
    """What is asked of a language model that explains, and how."""

    backbone: Annotated[Any, flag("The language model, as PROVIDER:MODEL, such as openai:gpt-5.4.", metavar="P:M")] = (
        None
    )
    protocol: Annotated[
        str | None,
        flag(
            "typed (default): claims that the engine decides. paper: free code that the model judges itself.", rare=True
        ),
    ] = None
    base_url: Annotated[str | None, flag("Address of your own server, for compatible and local models.", rare=True)] = (
        None
    )
    max_tokens: Annotated[int, flag("The longest reply of the language model.", rare=True)] = MAX_TOKENS
    compact: Annotated[
        bool,
        flag("Short typed prompts without free code, for models with a small context.", "--compact", rare=True),
    ] = False
    prompts: Annotated[
        str | Path | None,
        flag("A directory of your own prompts for --protocol paper, such as the published ones.", rare=True),
    ] = None


class Calls(OptionRecord):
    """Where calls of a language model are kept, or served from."""

    record: Annotated[
        str | Path | None,
        flag(
            "Where to record the calls, and to find those made before. Default: the run's directory.",
            rare=True,
            asked="never",
        ),
    ] = None
    replay: Annotated[
        str | Path | None,
        flag("Serve every call from this record; nothing is asked or paid.", rare=True, asked="never"),
    ] = None


class Chosen(OptionRecord):
    """Which circuits with known answers."""

    specimens: Annotated[
        str | Path | None,
        flag("Instead of the 84: a directory of specimens made by `vesalius train`, or a published collection."),
    ] = None
    ids: Annotated[
        str | int | Sequence[str | int] | None,
        flag("Only these benchmark circuits, by id or name, comma-separated: 3,4,8."),
    ] = None
    limit: Annotated[int | None, flag("Only the first N of them.", least=1)] = None

    @property
    def folder(self) -> str | None:
        """The directory or hub id."""
        return None if self.specimens is None else str(self.specimens)

    @property
    def names(self) -> list[str] | None:
        """The ids and names."""
        if isinstance(self.ids, str | int):
            return [name.strip() for name in str(self.ids).split(",") if name.strip()]
        return None if self.ids is None else [str(name).strip() for name in self.ids]


class Published(Chosen):
    """Which circuits, with the answers that were published of models that were."""

    annotations: Annotated[
        str | Path | None,
        flag(
            "For published InterpBench models (--specimens: a directory with one folder per case, or a hub id): a "
            "directory of case_ID.json or a hub dataset. Default: annotations/ in or beside --specimens.",
            rare=True,
        ),
    ] = None


class Jobs(OptionRecord):
    """How many cases of a benchmark run at a time."""

    jobs: Annotated[int, flag("Cases in parallel; the results do not depend on it.", least=1, asked="never")] = 2


class Workers(Jobs):
    """Where the cases of a benchmark run."""

    engine: Annotated[str, flag("Where cases run: local processes, or ray.", rare=True, asked="never")] = "local"


class Judges(OptionRecord):
    """Who judges texts."""

    judges: Annotated[
        Sequence[str],
        flag("Who judges the texts: a language model, P:M, or a plug-in; give it twice for two.", "--judge"),
    ] = ()


class Compared(OptionRecord):
    """Which discovery methods are compared, and on which models."""

    methods: Annotated[
        str | Sequence[str],
        flag(
            "Discovery methods, comma-separated, with their options: masks:steps=300; also of plug-ins.",
            method_of=("bench discovery",),
        ),
    ] = ("sweep", "eap", "eap-ig", "relp", "relp-qk", "acdc")
    hard: Annotated[
        bool, flag("Models written by hand that mislead discovery, instead of the 84 circuits.", "--hard")
    ] = False
    steps: Annotated[int, flag("eap-ig: gradients to average; 0: the default, 5.", least=0)] = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the methods."""
        if isinstance(self.methods, str):
            return tuple(name.strip() for name in self.methods.split(",") if name.strip())
        return tuple(self.methods)


#: The prompts of a benchmark of discovery methods.
BENCHED = Sample(n=32)
