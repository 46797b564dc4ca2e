"""One conversation of a language model with a function: ask, read, ask again, answer.

Every turn of the model costs a round, whether its command could be read or not. An answer ends the conversation; one
that stands beside a command is kept in case no better one comes, and the command is carried out. When the rounds are
used up the model is asked once for its answer. Whatever it writes after a command is cut from the conversation, so
that outputs it invented cannot mislead it later.
"""

import random
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from vesalius.errors import BadInput, choices
from vesalius_backbones import Backbone, Message, Rejected, TokenUsage, assistant, system, user
from vesalius_backbones.untrusted_text import THOUGHTS
from vesalius_functions.agents.commands import (
    DIGITS,
    Ask,
    Malformed,
    Parts,
    invented,
    read_answer,
    read_command,
    render,
    said_input,
    said_layers,
    said_pairs,
    usable_input,
)
from vesalius_functions.box import Answer, Box, Category, Function, Mode
from vesalius_functions.domains import read_structured
from vesalius_functions.own_prompts import COMMANDS, EXEMPLARS, LAYERS, SYSTEM, FunctionPrompts
from vesalius_functions.suite import Suite

# What MILAN is shown: a few inputs chosen in advance.

#: As published for entities and relations; the same number is drawn for the other two.
COUNT = 10
BELONGING = 2
#: So many further draws of a function's unit tests are searched for inputs that no test has.
DRAWS = 3
_WORDS = ["apple", "Banana", "river", "42nd", "OpenAI", "window", "zebra", "Quiet", "house7", "LEVEL", "Tokyo", "x9"]


@dataclass(frozen=True)
class Exemplars:
    """Inputs to show, and how many of the function's own list are inputs of its unit tests as well."""

    inputs: tuple[Any, ...]
    overlap: int = 0


def exemplars_for(
    function: Function, suite: Suite, *, count: int = COUNT, grading_seed: int | None = None
) -> Exemplars:
    """The exemplars of a function of a suite whose unit tests are drawn with `grading_seed`."""
    if function.category in ("numeric", "strings"):
        return Exemplars(tuple(drawn(function.category, count, seed=f"{function.id}:{suite.seed}")))
    tests = suite.unit_tests(function, grading_seed=grading_seed)
    tested = {value for test in tests for value in test.inputs}
    own: Sequence[Any] = getattr(function, "hints", ())
    if not own:
        return Exemplars(tuple(_put_together(function, suite, tested, count)))
    overlap = [value for value in own if value in tested]
    kept = [value for value in own if suite.mode == "published" or value not in overlap]
    return Exemplars(tuple(kept[:count]), len(overlap))


def _put_together(function: Function, suite: Suite, tested: Collection[object], count: int) -> list[Any]:
    """Two inputs that belong to the function, the rest from other functions, in a random order."""
    dice = random.Random(f"exemplars:{function.id}:{suite.seed}")
    chosen = _belonging(function, suite, tested, dice)[:BELONGING]
    others = [other for other in suite.pool() if other.id != function.id]
    dice.shuffle(others)
    for other in others:
        if len(chosen) == count:
            break
        strange = [value for value in _belonging(other, suite, tested, dice) if value not in chosen]
        chosen += strange[:1]
    dice.shuffle(chosen)
    return chosen or drawn(function.category, count, seed=f"{function.id}:{suite.seed}")


def _belonging(function: Function, suite: Suite, tested: Collection[object], dice: random.Random) -> list[Any]:
    """Inputs that belong to a function, none of them tested: its defining words, of each concept in turn, or what
    other draws of its unit tests hold."""
    groups = [list(words) for words in function.truth().get("defining_words", [])]
    if not groups:
        groups = [[test.right.input for draw in range(1, 1 + DRAWS) for test in suite.unit_tests(function, draw=draw)]]
    for words in groups:
        dice.shuffle(words)
    in_turn = [word for together in zip_longest(*groups) for word in together if word is not None]
    return [word for word in dict.fromkeys(in_turn) if word not in tested]


def drawn(category: Category, count: int, *, seed: str) -> list[Any]:
    """Inputs by seed: numbers over the whole domain, more of them near zero; words and made-up texts."""
    dice = random.Random(seed)
    if category == "numeric":
        near = [round(dice.uniform(-8, 8), 1) for _ in range(count // 3)]
        return near + [round(dice.uniform(-128, 128), 1) for _ in range(count - len(near))]
    words = dice.sample(_WORDS, min(count, len(_WORDS)))
    if category != "strings":
        return words
    return [_text(dice, word) if number % 2 else word for number, word in enumerate(words)]


def _text(dice: random.Random, word: str) -> str:
    letters = "".join(dice.choice(string.ascii_letters + string.digits) for _ in range(dice.randint(3, 8)))
    return f"{word} {letters}"


#: What is wanted besides the description, as published, and the words that ask for it. `INTERVAL` is ours.
PARTS: dict[Category, tuple[str, ...]] = {
    "numeric": ("DESCRIPTION", "DOMAIN", "CODE"),
    "strings": ("DESCRIPTION", "CODE"),
    "entities": ("DESCRIPTION",),
    "relations": ("DESCRIPTION", "DOMAIN"),
}
WORDS = {
    "DESCRIPTION": "what f does, in words",
    "DOMAIN": "for which x the rule holds; where it does not hold, within which bounds, and what happens there",
    "INTERVAL": 'none, or the interval in which f behaves differently, as in {"low": 10, "high": 20}; null for no end; '
    'with "outside": true where f behaves differently everywhere else',
    "CODE": "Python in a fenced block that defines def f(x): and behaves like f",
}
#: The same in mode `published`: the paper's questions in our words.
PUBLISHED_WORDS: dict[tuple[Category, str], str] = {
    ("numeric", "DOMAIN"): "what the domain of f is; whether there is an interval in which f behaves unexpectedly, its "
    "numeric bounds, and what happens there",
    ("relations", "DOMAIN"): "whether there is a part of the domain where the usual rule does not hold, and which; if "
    "there is none, for which inputs the rule applies",
    ("numeric", "CODE"): "Python code that approximates f, in a fenced block that defines def f(x):",
    ("strings", "CODE"): "Python code that approximates f, in a fenced block that defines def f(x):",
}
#: The published system prompts: one for most models, and a stricter one that the paper wrote for Llama-2.
SYSTEM_PROMPTS = ("gpt", "llama-2")
#: A longer turn is cut before it is read.
LONGEST_TURN = 40_000


@dataclass(frozen=True)
class DialogueLimits:
    """How long a conversation may be; 20 commands as published. Without commands (MILAN) only the repairs count."""

    rounds: int = 20
    inputs: int = 64
    #: How often an answer without commands may be asked for again when it could not be read.
    repairs: int = 2
    #: Which of `SYSTEM_PROMPTS` opens a conversation in mode `published`.
    system: str = "gpt"

    def __post_init__(self) -> None:
        if self.system not in SYSTEM_PROMPTS:
            raise BadInput(f"system prompt {self.system!r} does not exist; choose one of {choices(SYSTEM_PROMPTS)}")
        for name in ("rounds", "inputs"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} {getattr(self, name)}: an interpreter needs at least 1")


@dataclass
class _Talk:
    """A conversation so far."""

    turns: list[Message]
    mode: Mode = "fixed"
    usage: TokenUsage = field(default_factory=lambda: TokenUsage(input=0, output=0))
    rounds: int = 0
    invented: int = 0
    answer: Parts = field(default_factory=Parts)


def interpret_with(
    backbone: Backbone,
    box: Box,
    *,
    asking: bool = True,
    exemplars: Exemplars | None = None,
    limits: DialogueLimits | None = None,
    name: str = "",
    mode: Mode = "fixed",
    prompts: FunctionPrompts | None = None,
) -> Answer:
    """Let a language model explain what is in a box.

    Args:
        backbone: the model. A `BackboneError` is passed on: it is a failure of the machinery, not a wrong answer.
        box: the function; the exemplars are asked through it as well, so they count as queries.
        asking: whether the model may ask (AIA). Without it the exemplars are all it sees (MILAN).
        exemplars: inputs whose outputs are shown at the start.
        limits: rounds and inputs per round.
        name: what the answer calls its author.
        mode: `published` says what the paper's prompts say and asks for its parts alone; `fixed` says more, and also
            asks for the corrupted interval of a numeric function in a form that a program reads.
        prompts: the user's own, which take the place of the first two messages.
    """
    limits = limits or DialogueLimits()
    if not asking and (exemplars is None or not exemplars.inputs):
        raise BadInput("exemplars: without them and without questions there is nothing to interpret")
    opening = _opening(box, asking=asking, exemplars=exemplars, limits=limits, mode=mode, prompts=prompts)
    talk = _Talk(opening, mode)
    turns_left = limits.rounds + 1 if asking else 1 + limits.repairs
    while turns_left and _next_turn(talk, backbone, box, limits=limits, asking=asking, turns_left=turns_left):
        turns_left -= 1
    return Answer(
        description=talk.answer.description or "",
        domain=talk.answer.domain,
        code=talk.answer.code,
        structure=_structure(talk.answer) if box.category == "numeric" else {},
        interpreter=name or backbone.name,
        queries=box.asked,
        rounds=talk.rounds,
        input_tokens=talk.usage.input,
        output_tokens=talk.usage.output,
        hallucinated=talk.invented,
    )


def _structure(answer: Parts) -> dict[str, Any]:
    """The corrupted part, where it was given in the form that a program reads."""
    reading = read_structured(answer.interval)
    if not reading.said:
        return {}
    return {"interval": None} if reading.corrupted is None else reading.corrupted.structure()


def wanted_parts(category: Category, mode: Mode) -> tuple[str, ...]:
    """The parts of an answer, in order."""
    parts = PARTS[category]
    if category != "numeric" or mode == "published":
        return parts
    return (*parts[:-1], "INTERVAL", parts[-1])


def _opening(
    box: Box,
    *,
    asking: bool,
    exemplars: Exemplars | None,
    limits: DialogueLimits,
    mode: Mode,
    prompts: FunctionPrompts | None,
) -> list[Message]:
    shown = [] if exemplars is None else list(exemplars.inputs[: box.left])
    box.ask(shown)
    numeric, parts = box.category == "numeric", wanted_parts(box.category, mode)
    asked = box.log[len(box.log) - len(shown) :]
    if prompts is not None:
        values = {
            EXEMPLARS: said_pairs(asked),
            LAYERS: "" if box.layers is None else said_layers(box.layers),
            COMMANDS: str(limits.rounds),
        }
        own = (prompts.filled(file, **values) for file in (SYSTEM, f"{box.category}.md"))
        return [turn(text) for turn, text in zip((system, user), own, strict=True)]
    published = "published_" if mode == "published" else ""
    instructions = render(
        f"{published}system",
        asking=asking,
        numeric=numeric,
        code="CODE" in parts,
        limits=limits,
        budget=box.left,
        system=limits.system,
    )
    task = render(
        f"{published}task",
        category=box.category,
        asking=asking,
        exemplars=shown,
        pairs=said_pairs(asked),
        layers="" if box.layers is None else said_layers(box.layers),
        digits=DIGITS,
        parts={
            part: PUBLISHED_WORDS.get((box.category, part), WORDS[part]) if published else WORDS[part] for part in parts
        },
    )
    return [system(instructions), user(task)]


def _next_turn(
    talk: _Talk, backbone: Backbone, box: Box, *, limits: DialogueLimits, asking: bool, turns_left: int
) -> bool:
    """One turn of the model and our reply to it; whether the conversation goes on."""
    try:
        reply = backbone.chat(talk.turns, label=f"{box.category} round {talk.rounds + 1}")
    except Rejected:
        if talk.rounds == 0:
            raise
        return False  # the conversation has outgrown the model's window: what it said so far is its answer
    turn = THOUGHTS.sub("", reply.text[:LONGEST_TURN])
    talk.rounds += 1
    talk.usage = talk.usage if reply.usage is None else talk.usage + reply.usage
    made_up = invented(turn, box.log)
    talk.invented += made_up
    command = read_command(turn)
    parts = read_answer(turn)
    talk.answer = parts if parts.description else talk.answer
    if parts.description and not (asking and isinstance(command, Ask) and turns_left > 1):
        return False
    kept = turn if command is None else turn[: command.end]
    # After the last command a turn is left for the answer alone.
    rounds_left = max(0, turns_left - 2)
    message = _reply_to(
        command,
        box,
        limits=limits,
        asking=asking and turns_left > 1,
        left=rounds_left,
        made_up=made_up,
        mode=talk.mode,
    )
    talk.turns += [assistant(kept), user(message)]
    return True


def _reply_to(
    command: Ask | Malformed | None,
    box: Box,
    *,
    limits: DialogueLimits,
    asking: bool,
    left: int,
    made_up: int,
    mode: Mode,
) -> str:
    """What the model hears: outputs, or what was wrong with its command."""
    numeric = box.category == "numeric"
    reason = ""
    if isinstance(command, Malformed):
        reason = command.reason
    elif command is not None and not asking:
        reason = "no further commands are possible"
    elif command is not None and len(command.inputs) > limits.inputs:
        reason = f"{len(command.inputs)} inputs in one command, and at most {limits.inputs} are allowed"
    elif command is not None:
        taken = [(value, *usable_input(value, box.category)) for value in command.inputs]
        usable = [value for _, value, problem in taken if problem is None]
        if box.left is not None and len(usable) > box.left:
            reason = f"{len(usable)} inputs asked and {box.left} are left"
        else:
            box.ask(usable)
            return render(
                "published_outputs" if mode == "published" else "outputs",
                pairs=said_pairs(box.log[len(box.log) - len(usable) :]),
                refused=[(said_input(value), problem) for value, _, problem in taken if problem],
                invented=made_up,
                rounds_left=0 if box.left == 0 else left,
                queries_left=box.left,
            )
    return render("error", reason=reason, rounds_left=left, asking=asking, numeric=numeric)
