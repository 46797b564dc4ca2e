"""A user's own prompts for the protocol `paper`, such as the published ones: a directory of eight text files.

A file is what is sent, with fields in braces and capitals, as the paper prints them: {COMPONENT_IDENTIFIER}. All other
braces are text. Everything is checked before the first call: files that are missing, fields that do not exist or are
not known yet at that stage, and files without the field that they are about.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vesalius.errors import BadInput
from vesalius_backbones.prompt_files import FIELD, digests, filled, read_prompts

if TYPE_CHECKING:
    from vesalius.components import Component
    from vesalius_session.briefing import Briefing

SYSTEM = "system.md"
#: Fields that every file may hold, and what they stand for.
FIELDS = {
    "NUM_LAYERS": "layers of the model",
    "NUM_HEADS": "attention heads of a layer",
    "ALL_COMPONENTS": "the components of the circuit",
    "LOCALIZED": "the same",
    "COMPONENT_IDENTIFIER": "the component under study; all of them for classification and summary",
    "VALIDATED": "components whose hypothesis was supported so far, with the hypothesis",
    "VALIDATED_HYPOTHESES": "all components studied so far, with the last hypothesis and whether it was supported",
    "TASK_INFORMATION": "examples: an input and its output on a line",
    "MAX_EXECUTE_ROUNDS": "programs that a stage may run",
}
#: Fields that only these files may hold, and must: what a stage is about.
NEEDED: dict[str, tuple[str, ...]] = {
    SYSTEM: ("TASK_INFORMATION",),
    "observe_plan.md": (),
    "observe.md": ("OBSERVATION_PLAN",),
    "hypothesize.md": ("OBSERVATION", "REFUTED"),
    "validate_plan.md": ("CURRENT_HYPOTHESIS", "OBSERVATION"),
    "validate_paper.md": ("CURRENT_HYPOTHESIS", "VALIDATION_PLAN"),
    "classify.md": ("VALIDATED_HYPOTHESES",),
    "summarize.md": ("VALIDATED_HYPOTHESES", "ROLES"),
}
#: Files of stages that are about one component; they or the system prompt name it.
ABOUT_ONE = ("observe_plan.md", "observe.md", "hypothesize.md", "validate_plan.md", "validate_paper.md")
COMPONENT = "COMPONENT_IDENTIFIER"


@dataclass(frozen=True)
class OwnPrompts:
    """The texts of a directory, by file."""

    texts: Mapping[str, str]

    @classmethod
    def read(cls, folder: str | Path) -> "OwnPrompts":
        """The prompts of a directory; refused where a run with them could not be what it is said to be."""
        texts = read_prompts(folder, NEEDED, dict.fromkeys(NEEDED, FIELDS))
        for name in ABOUT_ONE:
            if not any(COMPONENT in FIELD.findall(texts[one]) for one in (name, SYSTEM)):
                file = Path(folder).expanduser() / name
                raise BadInput(f"{file}: lacks {{{COMPONENT}}}, as does {SYSTEM}; put it into either")
        return cls(texts)

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of every file, as it was read."""
        return digests(self.texts)

    def filled(
        self,
        name: str,
        briefing: "Briefing",
        component: "Component | None" = None,
        *,
        known: Sequence[tuple[str, str, str]] = (),
        **facts: Any,
    ) -> str:
        """The text of a file with its fields replaced; braces in what is put in are text. `known` are components with
        the verdict on their last hypothesis, and the hypothesis.
        """
        values = {**_shared(briefing, component, known), **_of_stage(**facts)}
        return filled(self.texts[name], values)


def _shared(
    briefing: "Briefing", component: "Component | None", known: Sequence[tuple[str, str, str]]
) -> dict[str, str]:
    """What the fields of every file stand for."""
    facts = briefing.facts
    circuit = ", ".join(facts["components"])
    given, answer = ("input", "output") if briefing.scores_variables else ("prompt", "answer")
    examples = [[json.dumps(one[key], ensure_ascii=False) for key in (given, answer)] for one in facts["examples"]]
    return {
        "NUM_LAYERS": str(facts["config"].n_layers),
        "NUM_HEADS": str(facts["config"].n_heads),
        "ALL_COMPONENTS": circuit,
        "LOCALIZED": circuit,
        COMPONENT: circuit if component is None else str(component),
        "VALIDATED": _lines(f"{name}: {said}" for name, verdict, said in known if verdict == "supported"),
        "VALIDATED_HYPOTHESES": _lines(f"{name} ({_status(verdict)}): {said}" for name, verdict, said in known),
        "TASK_INFORMATION": _lines(f"{shown} -> {output}" for shown, output in examples),
        "MAX_EXECUTE_ROUNDS": str(facts["max_executions"]),
    }


def _of_stage(
    *,
    observation: str = "",
    plan: str = "",
    hypothesis: str = "",
    failures: Sequence[Mapping[str, str]] = (),
    roles: Sequence[tuple[str, str, str]] = (),
    **_: Any,
) -> dict[str, str]:
    """What the fields of one stage stand for: a stage has one plan."""
    return {
        "OBSERVATION_PLAN": plan,
        "VALIDATION_PLAN": plan,
        "OBSERVATION": observation,
        "CURRENT_HYPOTHESIS": hypothesis,
        "REFUTED": _lines(f"{one['hypothesis']} ({one['how']}: {one['why'] or 'no reason given'})" for one in failures),
        "ROLES": _lines(f"{name}: {tag}. {description}" for name, tag, description in roles),
    }


def _status(verdict: str) -> str:
    return verdict if verdict == "supported" else "not supported"


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(texts) or "none"


def own_prompts(folder: str | Path | None, protocol: str) -> OwnPrompts | None:
    """The user's own prompts where there are any; refused where the protocol does not ask as published."""
    if folder is None:
        return None
    if protocol != "paper":
        raise BadInput(f"`prompts` replace those of `protocol` paper, this is {protocol}; add `protocol` paper")
    return OwnPrompts.read(folder)
