"""What an MLP, or a few of its neurons, write in tokens: those that its output at one position raises most, beyond what
it writes on the counterfactual prompt. It is read off the weights; no claim rests on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vesalius.components import Component
from vesalius.explanations.laboratory import END, NaturalLab
from vesalius.intervene.mlps import with_neurons_kept
from vesalius.intervene.written_tokens import last_norm, raised_and_lowered

#: Prompts that are shown with so many tokens each; the answer is looked for among so many.
EXAMPLES, SHOWN, AMONG = 3, 3, 10


@dataclass(frozen=True)
class Written:
    """`examples` are prompts: the answer, and the tokens raised most. `answer` is the share of prompts whose answer is
    among the ten tokens raised most, `answers` the share of these tokens that are answers of the prompts.
    """

    at: str
    neurons: int | None
    examples: tuple[tuple[str, tuple[str, ...]], ...]
    answer: float
    answers: float
    n: int

    @property
    def sentence(self) -> str:
        """What it writes, with examples."""
        place = "the answer position" if self.at == END else self.at
        who = "what it writes" if self.neurons is None else f"what these {self.neurons} neurons write"
        shown = "; ".join(
            f"{', '.join(map(repr, raised))} where {answer!r} is right" for answer, raised in self.examples
        )
        return (
            f"Beyond the counterfactual prompt, {who} at {place} raises most {shown}. The answer is among the {AMONG} "
            f"tokens raised most on {self.answer:.2f} of {self.n} prompts."
        )

    @property
    def record(self) -> dict[str, Any]:
        """The same for JSON."""
        examples = [{"answer": answer, "raises": list(raised)} for answer, raised in self.examples]
        shares = {"answer_among_ten": round(self.answer, 4), "answers_of_ten": round(self.answers, 4)}
        return {"at": self.at, "neurons": self.neurons, "examples": examples, **shares, "n": self.n}


def written_by(lab: NaturalLab, mlp: Component, at: str, neurons: Sequence[int] = ()) -> Written | None:
    """What an MLP writes at a role's position, or some of its neurons; None where tokens have no text."""
    if lab.vocabulary is None:
        return None
    rows, place, runs = torch.arange(lab.n), lab.place(at), lab.runs
    if neurons:
        inputs = {"read": runs.mlp_input(mlp.layer), "other": runs.mlp_input(mlp.layer, source=True)}
        some, none = (with_neurons_kept(lab.model, mlp, kept, **inputs) for kept in (neurons, ()))
        change = some - none
    else:
        change = -runs.change(mlp)
    raised, _ = raised_and_lowered(lab.model, last_norm(lab.model, change[rows, place]), top=AMONG)
    answers, piece = lab.prompts.correct, lab.vocabulary.tokenizer.piece
    first = {answer: row for row, answer in reversed(list(enumerate(answers.tolist())))}
    chosen = sorted(first.values())[:EXAMPLES]
    return Written(
        at,
        len(neurons) or None,
        tuple((piece(int(answers[row])), tuple(map(piece, raised[row, :SHOWN].tolist()))) for row in chosen),
        float((raised == answers[:, None]).any(1).float().mean()),
        float(torch.isin(raised, answers).float().mean()),
        lab.n,
    )
