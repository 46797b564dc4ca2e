"""What a session works on: a briefing, a laboratory and a sandbox for one specimen, small circuit or natural model."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, Unpack

from vesalius.behaviours.natural import require_performance
from vesalius.components import Component, parse_components
from vesalius.documents.account import Account
from vesalius.documents.performance import Performance
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import CLAIM_SEED, Lab, NaturalLab, blinded, circuit_lab, growing_lab
from vesalius.explanations.natural.explain import PROMPTS, SELECTION, require_enough
from vesalius.explanations.natural.instruments import Instruments
from vesalius.explanations.natural.selection import ChosenComponents, StudyLimits, choose
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.model.states import fingerprint
from vesalius.progress import Progress, silent
from vesalius.sandbox import Executions, Limits, Outcome, Sandbox
from vesalius_session import natural_scope, scope
from vesalius_session.briefing import Briefing, NaturalBriefing

#: Examples to show where a specimen has none of its own.
EXAMPLES, EXAMPLES_SEED = 5, 3_000_017


@dataclass(frozen=True)
class Setting:
    """One specimen, ready for a session.

    `preload` and `hand_over` put it into a sandbox, `subject` is what the outcome of a program depends on beside its
    code, `toolbox` the directory that programs may read. `id` and `seed` are those of the explanation; no program and
    no prompt is given the `id`. Of a natural model, `performance` is how well it does the behaviour, and `account` says
    what the explained components carry of it.
    """

    id: str
    seed: int
    briefing: Briefing
    lab: Callable[[], Lab]
    preload: str
    hand_over: Callable[[Path], dict[str, Any]]
    subject: Mapping[str, Any]
    toolbox: Path
    limits: Limits
    behaviour: str | None = None
    performance: Performance | None = None
    account: Callable[[Sequence[Component]], Account | None] = lambda explained: None


class SettingOptions(TypedDict, total=False):
    """How a specimen is studied: `compact` keeps prompts short; `n` (prompts per claim), `top` (components to select)
    and `force` (go on where the model does not perform the behaviour) are for natural models.
    """

    n: int | None
    top: int | None
    force: bool
    compact: bool
    progress: Progress | None


def setting_of(
    specimen: Specimen,
    components: Iterable[str | Component] | None,
    stack: ExitStack,
    *,
    seed: int,
    **options: Unpack[SettingOptions],
) -> Setting:
    """The setting of a specimen: with listed tokens, or of a natural model."""
    if isinstance(specimen.vocabulary, FiniteVocabulary):
        return _listed_setting(specimen, components, seed=seed, compact=options.get("compact", False))
    return _natural_setting(specimen, components, stack, seed=seed, options=options)


def _listed_setting(
    specimen: Specimen,
    components: Iterable[str | Component] | None,
    *,
    seed: int,
    compact: bool,
) -> Setting:
    """The setting of a specimen with listed tokens, on a blind copy of it."""
    circuit = _circuit(specimen, specimen.components if components is None else components)
    blind = replace(blinded(specimen), examples=specimen.examples or _examples(specimen))
    return Setting(
        specimen.id,
        seed,
        Briefing(blind, circuit, compact=compact),
        cache(lambda: circuit_lab(blind, list(circuit), seed=seed)),
        scope.PRELOAD,
        lambda directory: scope.handed_over(blind, directory, seed=seed),
        {"model": fingerprint(specimen.model), "seed": seed},
        scope.TOOLBOX,
        Limits(),
    )


def _natural_setting(
    specimen: Specimen,
    components: Iterable[str | Component] | None,
    stack: ExitStack,
    *,
    seed: int,
    options: SettingOptions,
) -> Setting:
    """The setting of a natural model for the behaviour it was loaded for."""
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary) or specimen.behaviour is None:
        raise BadInput(f"specimen {specimen.name!r} is a natural model: name what to explain it for, with a behaviour")
    given_n, top = options.get("n"), options.get("top")
    n = PROMPTS if given_n is None else given_n
    require_enough(n, top)
    force = options.get("force", False)
    performance = require_performance(specimen, seed=seed, force=force, purpose="explain it all the same")
    usable, progress = performance.contrast is not None and performance.contrast.usable, options.get("progress")

    def chosen(given: Sequence[Component] | None) -> ChosenComponents:
        selecting = NaturalLab.draw(specimen, SELECTION, seed=seed, split="train")
        limits, how = StudyLimits.of(top, n, agents=True), {"seed": seed, "progress": progress or silent}
        return choose(specimen, selecting, given=given, limits=limits, usable=usable, **how)

    selected = chosen(None) if components is None else None
    circuit = _circuit(specimen, (components or ()) if selected is None else selected.components)

    def account(explained: Sequence[Component]) -> Account | None:
        """That of the set which the circuit was taken from, where all of it is explained."""
        own = selected if selected is not None and set(explained) == set(circuit) else chosen(explained)
        return own.account(specimen, seed=seed)

    blind = replace(specimen, id="specimen", name="specimen", source=None)
    observed = NaturalLab.draw(blind, natural_scope.PROMPTS, seed=natural_scope.PROMPTS_SEED + seed, split="train")
    tools = Instruments(observed, piece=vocabulary.tokenizer.piece)
    briefing = NaturalBriefing(
        blind,
        circuit,
        observed.prompts,
        tuple(tools.examples(EXAMPLES)),
        tools.clean()["accuracy"],
        compact=options.get("compact", False),
    )
    return Setting(
        specimen.id,
        seed,
        briefing,
        cache(lambda: growing_lab(blind, n, seed=CLAIM_SEED + seed, circuit=circuit)),
        natural_scope.PRELOAD,
        lambda directory: natural_scope.handed_over(blind, directory, observed.prompts, seed=seed),
        {"model": fingerprint(specimen.model), "seed": seed, "prompts": natural_scope.prompts_digest(observed.prompts)},
        _written_toolbox(stack),
        natural_scope.LIMITS,
        specimen.behaviour,
        performance,
        account,
    )


class LazyWorkspace:
    """A sandbox that is opened for the first program whose outcome is not recorded; the toolbox needs none."""

    def __init__(self, setting: Setting, stack: ExitStack, executions: Executions, *, unsafe: bool) -> None:
        self._setting, self._stack, self._executions, self._unsafe = setting, stack, executions, unsafe
        self._closed = Sandbox(toolbox=setting.toolbox)
        self._open: Sandbox | None = None

    def execute(self, code: str) -> Outcome:
        """What one program does."""
        return self._executions.outcome(code, dict(self._setting.subject), lambda: self._run(code))

    def _run(self, code: str) -> Outcome:
        if self._open is None:
            directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="vesalius-hyve-")))
            argument = self._setting.hand_over(directory)
            sandbox = Sandbox(
                self._setting.preload,
                argument,
                toolbox=self._setting.toolbox,
                limits=self._setting.limits,
                unsafe=self._unsafe,
            )
            self._open = self._stack.enter_context(sandbox)
        return self._open.execute(code)

    def list_directory(self, path: str = ".") -> list[str]:
        """Names in the toolbox."""
        return self._closed.list_directory(path)

    def read_file(self, path: str) -> str:
        """A file of the toolbox."""
        return self._closed.read_file(path)


def _circuit(specimen: Specimen, components: Iterable[str | Component]) -> tuple[Component, ...]:
    return tuple(sorted(set(parse_components(components, specimen.model.config))))


def _examples(specimen: Specimen) -> tuple[dict[str, object], ...]:
    """What the model itself answers, for a specimen without examples."""
    inputs = specimen.sample(EXAMPLES, EXAMPLES_SEED)
    outputs = specimen.predict(inputs)
    return tuple({"input": given, "output": found} for given, found in zip(inputs, outputs, strict=True))


def _written_toolbox(stack: ExitStack) -> Path:
    """A directory with one file that says what every instrument returns."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vesalius-toolbox-")))
    (directory / natural_scope.TOOLBOX_FILE).write_text("\n\n".join(natural_scope.instrument_lines()) + "\n")
    os.chmod(directory, 0o755)
    return directory
