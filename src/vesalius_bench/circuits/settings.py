"""What a run of the circuits benchmark was asked: what decides its results."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from vesalius.discovery.discover import circuit_method
from vesalius.documents.request import Request
from vesalius.errors import BadInput, choices, quoted
from vesalius.explanations.scientists import BUILTIN, Scientist, chosen_scientist, protocol_of, scientist_named
from vesalius.files import mark_of, sha256
from vesalius.options import MAX_TOKENS, Ask, Who
from vesalius.options.records import listed
from vesalius.plugins import JUDGES, find_plugin, loaded_plugin, plugin_names
from vesalius.version import __version__
from vesalius_bench.circuits.selection import CircuitCase, selection_options

BENCHMARK = "circuits"


@dataclass(frozen=True)
class BenchmarkSettings:
    """What decides the results of a run."""

    circuits: tuple[CircuitCase, ...]
    scientist: str = BUILTIN
    seed: int = 0
    leave_out: str | None = None
    backbone: str | None = None
    protocol: str | None = None
    judges: tuple[str, ...] = ()
    prices: str | None = None
    circuit_from: str | None = None
    compact: bool = False
    max_tokens: int = MAX_TOKENS
    prompts: str | None = None

    def __post_init__(self) -> None:
        self.explainer.require_model(self.backbone is not None)
        if self.circuit_from is not None:
            circuit_method(self.circuit_from)
        for judge in self.judges:
            if loaded_plugin(JUDGES, judge, ()) is None and ":" not in judge:
                names = choices([*plugin_names(JUDGES, ()), "PROVIDER:MODEL"])
                raise BadInput(f"`judge` {quoted(judge, 80)} does not exist; use {names}")
        if not self.circuits:
            raise BadInput("a benchmark of no circuits says nothing; choose at least one")
        if self.prices is not None and not self.models:
            raise BadInput("`prices`: no language model is asked; leave it out")
        if self.backbone is None and (self.compact or self.max_tokens != MAX_TOKENS):
            raise BadInput("`compact` and `max_tokens`: no language model is asked; leave them out")

    @classmethod
    def of(
        cls, circuits: Iterable[CircuitCase], who: Who, ask: Ask, judges: tuple[str, ...], circuit_from: str | None
    ) -> "BenchmarkSettings":
        """The settings that options state: who explains, and how a language model is asked."""
        own = {"leave_out": who.leave_out, "protocol": ask.protocol, "compact": ask.compact or None}
        own |= {"prompts": None if ask.prompts is None else str(ask.prompts)}
        scientist = chosen_scientist(who.scientist, ask.backbone is not None, **own)
        if fixed := set(scientist.options) - {*own, "program", "function"}:
            raise BadInput(f"{listed(sorted(fixed))}: a benchmark has its own; leave it out of the scientist")
        return cls(
            tuple(circuits),
            scientist.label,
            who.seed,
            getattr(scientist, "leave_out", None),
            backbone=ask.backbone,
            protocol=protocol_of(scientist),
            judges=judges,
            prices=None if ask.prices is None else str(ask.prices),
            circuit_from=circuit_from,
            compact=getattr(scientist, "compact", False),
            max_tokens=ask.max_tokens,
            prompts=getattr(scientist, "prompts", None),
        )

    @property
    def explainer(self) -> Scientist:
        """Who explains, with its options."""
        own = {"leave_out": self.leave_out, "protocol": self.protocol, "compact": self.compact or None}
        return scientist_named(self.scientist, **own, prompts=self.prompts)

    @property
    def prompt_sums(self) -> dict[str, str]:
        """The user's own prompts by file, with the checksum of each."""
        return self.explainer.checksums

    @property
    def models(self) -> tuple[str, ...]:
        """Every language model of the run, the scientist's first."""
        judges = (judge for judge in self.judges if find_plugin(JUDGES, judge, ()) is None)
        return (*(() if self.backbone is None else (self.backbone,)), *judges)

    @property
    def _asking(self) -> dict[str, Any]:
        """How the scientist's language model is asked, where that is not as usual."""
        given = {"compact": True} if self.compact else {}
        return given if self.max_tokens == MAX_TOKENS else {**given, "max_tokens": self.max_tokens}

    def request(self) -> Request:
        """What was asked, so that it can be asked again."""
        options: dict[str, JsonValue] = {
            **selection_options(self.circuits),
            "judge": list(self.judges) or None,
            "leave_out": self.leave_out,
            "circuit_from": self.circuit_from,
            "prices": self.prices,
            "prompts": self.prompts,
            **self._asking,
        }
        return Request(
            command="bench circuits",
            method=self.scientist,
            options={name: value for name, value in options.items() if value is not None},
            seed=self.seed,
            backbone=self.backbone,
            protocol=self.protocol,
        )

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        return {
            "benchmark": BENCHMARK,
            "scientist": self.scientist,
            "seed": self.seed,
            "leave_out": self.leave_out,
            "circuit_from": self.circuit_from,
            "backbone": self.backbone,
            "protocol": self.protocol,
            "judges": list(self.judges) or None,
            "prices": None if self.prices is None else sha256(Path(self.prices))[:16],
            **({"prompts": mark_of(self.prompt_sums)} if self.prompts else {}),
            "version": __version__,
            "specimens": {circuit.id: circuit.fingerprint for circuit in self.circuits},
            **self._asking,
        }

    def notes(self) -> dict[str, Any]:
        """Where the specimens and prices were, for pages made later and for replay."""
        places = {circuit.id: str(circuit.directory) for circuit in self.circuits}
        annotated = {c.id: str(c.annotation) for c in self.circuits if c.annotation is not None}
        return {
            "places": places,
            **({"annotations": annotated} if annotated else {}),
            "names": {circuit.id: circuit.name for circuit in self.circuits},
            "prices": self.prices,
            **({"prompts": self.prompts} if self.prompts else {}),
        }

    @classmethod
    def of_run(cls, data: dict[str, Any]) -> "BenchmarkSettings":
        """The settings of a run from its run.json; refused where this version would not do the same."""
        asked, places, names = data["settings"], data.get("places", {}), data.get("names", {})
        if asked.get("version") != __version__:
            raise BadInput(f"the run was made by version {asked.get('version')}, this is {__version__}; use that one")
        keys = data.get("annotations", {})
        selection = tuple(
            CircuitCase(
                case, names.get(case, case), Path(places[case]), annotation=Path(keys[case]) if case in keys else None
            )
            for case in asked["specimens"]
            if case in places
        )
        settings = cls(
            circuits=selection,
            scientist=asked["scientist"],
            seed=asked["seed"],
            leave_out=asked["leave_out"],
            backbone=asked.get("backbone"),
            protocol=asked.get("protocol"),
            judges=tuple(asked.get("judges") or ()),
            prices=data.get("prices"),
            circuit_from=asked.get("circuit_from"),
            compact=asked.get("compact", False),
            max_tokens=asked.get("max_tokens", MAX_TOKENS),
            prompts=data.get("prompts"),
        )
        if settings.prompts and mark_of(settings.prompt_sums) != asked.get("prompts"):
            raise BadInput(f"`prompts` {settings.prompts}: are not those of the run; put them back")
        now = {circuit.id: circuit.fingerprint for circuit in selection}
        changed = next((case for case, mark in asked["specimens"].items() if now.get(case) != mark), None)
        if changed is not None:
            raise BadInput(f"specimen {changed!r}: is not the one that was explained; put it back")
        return settings
