"""The prompts: template files in `prompts/`, filled with what an agent is told of the specimen (`Briefing`) and what is
known so far. Natural models go through the same stages with other templates (`prompts/natural`). A user's own prompts
(`own_prompts`) take the place of all of them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vesalius.components import Component
from vesalius.documents.trace import Attempt
from vesalius.documents.view import cut_text
from vesalius.model.specimen import Specimen
from vesalius_agents.hyve.own_prompts import SYSTEM, OwnPrompts
from vesalius_session.briefing import Briefing

PROMPTS = Path(__file__).parent / "prompts"
#: Characters of a compact prompt for what is known of one component, and for one text of the model's own.
LONGEST_KNOWN, LONGEST_QUOTE = 120, 400


@dataclass(frozen=True)
class Known:
    """What is believed of a component when another stage reads it. `established` is what was tested, as it was tested:
    a hypothesis may say more.
    """

    component: str
    hypothesis: str
    verdict: str
    established: str = ""
    #: The tag that follows from a tested program by rule; only classification shows it.
    tag: str | None = None
    #: The most characters that a compact prompt spends on it.
    longest: int | None = None

    @property
    def words(self) -> str:
        """What was established, and the hypothesis, marked as the words that were not tested as a whole."""
        if self.longest is not None:
            return cut_text(self.established or self.hypothesis, self.longest)
        if not self.established or self.established == self.hypothesis:
            return self.hypothesis
        return f"{self.established} (The hypothesis, not tested word for word: {self.hypothesis})"


@dataclass(frozen=True)
class StagePrompts:
    """Renders the prompts of one run: ours, or the user's `own`."""

    briefing: Briefing
    own: OwnPrompts | None = None

    @cached_property
    def _environment(self) -> Environment:
        folders = [PROMPTS] if self.briefing.scores_variables else [PROMPTS / "natural", PROMPTS]
        environment = Environment(
            loader=FileSystemLoader(folders), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
        return environment

    def system(self, component: Component | None = None, known: Sequence[Known] = ()) -> str:
        """The standing instructions. Ours are the same in every call of a run, so that a provider's cache finds them;
        the user's may name the component under study and what is known so far.
        """
        if self.own is not None:
            return self.own.filled(SYSTEM, self.briefing, component, known=_in_own(known))
        return self._render(SYSTEM)

    def stage(self, template: str, component: Component | None = None, **facts: Any) -> str:
        """One stage's instructions; what differs between components stands last, so that the rest can be cached."""
        if self.own is not None:
            known = _in_own(facts.pop("known", ()))
            return self.own.filled(template, self.briefing, component, known=known, **facts)
        hooks = [] if component is None else hooks_of(component, self.briefing.specimen)
        return self._render(template, component=component, hooks=hooks, **facts)

    def _render(self, template: str, **more: Any) -> str:
        text = self._environment.get_template(template).render(**self.briefing.facts, **more)
        return "\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n"


def _in_own(known: Sequence[Known]) -> list[tuple[str, str, str]]:
    return [(one.component, one.verdict, one.hypothesis) for one in known]


def hooks_of(component: Component, specimen: Specimen) -> list[str]:
    """The hook points of a component with their shapes."""
    config, layer = specimen.model.config, component.layer
    if component.is_head:
        head, widths = component.head, {"hook_q, hook_k": config.d_head, "hook_v, hook_z": config.d_value}
        if config.d_head == config.d_value:
            widths = {", ".join(widths): config.d_head}
        return [
            f"blocks.{layer}.attn.hook_pattern [batch, head, query, key], head {head}",
            *(f"blocks.{layer}.attn.{names} [batch, pos, head, {n}], head {head}" for names, n in widths.items()),
            f"blocks.{layer}.attn.hook_result [batch, pos, head, {config.d_model}], head {head}",
        ]
    return [
        f"blocks.{layer}.mlp.hook_pre, hook_post [batch, pos, {config.d_mlp}]",
        f"blocks.{layer}.hook_mlp_out [batch, pos, {config.d_model}]",
    ]


def failures_of(attempts: Sequence[Attempt], *, longest: int | None = None) -> list[dict[str, str]]:
    """Earlier hypotheses that were not supported, with what speaks against them; each text at most so long."""
    # Whether nothing was tested or what was stays open makes no difference to what is asked next.
    said = {"refuted": "refuted", "undecided": "could not be decided", "untested": "could not be decided"}

    def cut(text: str) -> str:
        return text if longest is None else cut_text(text, longest)

    return [
        {"hypothesis": cut(attempt.hypothesis), "how": said[attempt.verdict], "why": cut(attempt.reasoning)}
        for attempt in attempts
        if attempt.verdict in said and attempt.hypothesis
    ]
