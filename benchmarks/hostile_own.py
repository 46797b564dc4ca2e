"""Prompts that users bring of their own, as makers and readers for `benchmarks.hostile_files`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from vesalius_agents.hyve.own_prompts import COMPONENT, NEEDED, OwnPrompts
from vesalius_functions.own_prompts import ANSWERING, FunctionPrompts

#: A maker of a good file or folder, and what reads it.
Pair = tuple[Callable[[Path], None], Callable[[Path], object]]
FOR_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "system.md": (),
    "entities.md": ("EXEMPLARS",),
    **ANSWERING["entities"],
}


def _write_prompts(folder: Path, fields: Mapping[str, tuple[str, ...]]) -> None:
    for name, held in fields.items():
        named = ", ".join(f"{{{one}}}" for one in held) or "asked"
        (folder / name).write_text(f"Say what {named} is.\n", encoding="utf-8")


def make_function_prompts(folder: Path) -> None:
    """Prompts of an interpreter of entities, and of the language model that answers them."""
    _write_prompts(folder, FOR_FUNCTIONS)


def use_function_prompts(folder: Path) -> None:
    """Read the prompts of a user for black-box functions and fill one."""
    prompts = FunctionPrompts.read(folder, "entities", shows=True, answers=True)
    prompts.filled("entity.md", CONCEPT="plants", INPUT="{CONCEPT}")
    assert len(prompts.digests) == len(FOR_FUNCTIONS)


def make_hyve_prompts(folder: Path) -> None:
    """Prompts of the stages of the protocol `paper`."""
    _write_prompts(folder, {name: (*held, COMPONENT) for name, held in NEEDED.items()})


OWN: dict[str, Pair] = {
    "prompts_functions": (make_function_prompts, use_function_prompts),
    "prompts_hyve": (make_hyve_prompts, OwnPrompts.read),
}
