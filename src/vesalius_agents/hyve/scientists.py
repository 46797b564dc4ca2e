"""HyVE and the hybrid as scientists, found by their entry points as those of a plug-in are."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from vesalius.documents.trace import DEFAULT_PROTOCOL, Protocol
from vesalius.explanations.scientists import (
    HYBRID,
    HYVE,
    Backbone,
    Builtin,
    Explained,
    Studying,
    Task,
    require_protocol,
)
from vesalius.options.records import option
from vesalius_agents.hyve.own_prompts import own_prompts

if TYPE_CHECKING:
    from vesalius.model.specimen import Specimen
    from vesalius_agents.hyve import HyveResult


@dataclass(frozen=True)
class Hyve(Studying):
    """The HyVE agent, driven by a language model."""

    name = HYVE
    meaning = "A language model proposes, and the engine decides."
    asks = "always"
    protocol: str = option(
        DEFAULT_PROTOCOL, "typed: claims that the engine decides. paper: code that is judged by the model."
    )
    compact: bool = option(False, "Short typed prompts without free code, for models with a small context.")
    prompts: str | None = option(None, "A directory of your own prompts, for the protocol paper.")

    def __post_init__(self) -> None:
        require_protocol(self.protocol)
        own_prompts(self.prompts, self.protocol)

    @property
    def checksums(self) -> dict[str, str]:
        """Those of the user's own prompts."""
        own = own_prompts(self.prompts, self.protocol)
        return {} if own is None else own.digests

    def require(self, specimen: "Specimen", *, force: bool = False) -> None:
        """Refuse options of natural models for a listed vocabulary."""
        from vesalius.model.specimen import TextVocabulary

        if not isinstance(specimen.vocabulary, TextVocabulary):
            self.refuse_natural_options(specimen, force=force)

    def explain(self, task: Task, backbone: Backbone | None) -> Explained:
        """Let the language model explain."""
        from vesalius_agents.hyve import explain_hyve

        assert backbone is not None
        task = replace(task, loaded=task.specimen())
        self.require(task.specimen(), force=task.force)
        explain = partial(explain_hyve, protocol=cast(Protocol, self.protocol), prompts=self.prompts)
        return _with_language_model(explain, self, task, backbone)


@dataclass(frozen=True)
class Hybrid(Studying):
    """The built-in scientist, and a language model, if there is one, for what it left open."""

    name = HYBRID
    meaning = "The built-in scientist, then a language model for what it left open."
    compact: bool = option(False, "Short typed prompts without free code, for models with a small context.")

    def explain(self, task: Task, backbone: Backbone | None) -> Explained:
        """Explain with experiments first."""
        first = Builtin(n=self.n, top=self.top)
        if backbone is None:
            return first.explain(task, None)
        from vesalius_agents.hyve import explain_hybrid

        task = replace(task, loaded=task.specimen())
        first.require(task.specimen(), force=task.force)
        return _with_language_model(explain_hybrid, self, task, backbone)


def _with_language_model(
    explain: "Callable[..., HyveResult]", scientist: Hyve | Hybrid, task: Task, backbone: Backbone
) -> Explained:
    from vesalius.sandbox import Executions

    result = explain(
        task.specimen(),
        components=task.components,
        backbone=backbone,
        seed=task.seed,
        compact=scientist.compact,
        sandbox_unsafe=task.sandbox_unsafe,
        executions=Executions(task.executions, writable=task.executions_writable),
        n=scientist.n,
        top=scientist.top,
        force=task.force,
        progress=task.progress,
    )
    return Explained(result.explanation, result.trace)
