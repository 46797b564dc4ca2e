"""What an MLP writes, exchanged between prompts at one position.

A *variable* is the token of a role, or the answer. For a role every prompt gets two donors, which are another prompt
with a token of its own choice at the role: one with another token, whose answer is that of the prompt itself with that
token there (`Corrupted`), and one with the same token. For the answer the donor is another prompt that has another
one. A donor's output at a position says what the MLP would write there, wherever the prompts differ otherwise: if it
brings the answer that the donor's class predicts, and a donor of the same class leaves the answer as it is, the output
carries the class and no more. A donor that belongs to another prompt (*third*) is the control.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.laboratory.answers import Answers, Corrupted, Moved, answer_readout, answers_of
from vesalius.explanations.laboratory.runs import Runs
from vesalius.intervene import Batch, Plan, Values, component_values, run
from vesalius.intervene.mlps import final_margin, mlp_output
from vesalius.intervene.values import activations

#: The variable that is no role.
ANSWER = "answer"
Donor = Literal["other", "same", "third"]
Place = Int[Tensor, " prompt"]


class Exchange:
    """The prompts of a laboratory with their donors for one variable; donors are run once, for all MLPs."""

    def __init__(self, runs: Runs, places: Mapping[str, Place], clean: Answers, changed: Corrupted | None) -> None:
        self._runs, self._places = runs, places
        rows = torch.arange(len(runs))
        if changed is not None:
            self.of = rows.roll(1)
            self.recordings, self.moved = changed.recordings, changed.moved
            self._tokens = changed.tokens[rows, places[changed.role]], runs.batch.tokens[rows, places[changed.role]]
            self._role = changed.role
            self._donors: Values | None = None
            return
        self._role = None
        self.of = _another(clean.token)
        own, rival = clean.token, clean.token[self.of]
        self.recordings = runs.recordings.read_as(answer_readout(runs, own=own, rival=rival))
        final = runs.final_resid
        margin = final_margin(runs.model, final[self.of.to(final.device)], rival, own)
        clean = answers_of(self.recordings.scores())
        whole = Answers(clean.score, rival, torch.zeros(len(rows), dtype=torch.bool), margin)
        self.moved = Moved(whole, clean, rival != own)
        self._donors = runs.values

    def answers(self, mlp: Component, at: str, donor: Donor) -> Answers:
        """The answers where an MLP writes at one position what it writes there in the donor's run."""
        runs = self._runs
        written = self.written(mlp, at, donor)
        place = self._places[at]
        where = torch.zeros_like(runs.prompts.mask).scatter_(1, place[:, None], True)
        plan = Plan.each(runs.model.config, torch.arange(len(runs)), mlp, positions=where)
        values = component_values(runs.model, mlp, written[:, None])
        return answers_of(run(self.recordings, plan, values, cost=runs.cost))

    def written(self, mlp: Component, at: str, donor: Donor) -> Float[Tensor, "prompt d_model"]:
        """What an MLP writes at a position of each prompt's donor."""
        table = self._values().mlp[mlp.layer]
        rows, place = torch.arange(len(self.of)), self._places[at]
        if self._role is None:
            if donor == "same":
                raise BadInput("the answer: prompts of the same one are not looked for; exchange another")
            of = self.of if donor == "other" else self.of.roll(-1)
            return table[of, place[of]]
        first = len(rows) if donor == "same" else 0
        mine = rows.roll(-1) if donor == "third" else rows
        return table[first + mine, place[self.of][mine]]

    def written_apart(self, mlp: Component, at: str) -> Float[Tensor, "prompt d_model"]:
        """What an MLP writes at a position where it reads there what earlier MLPs write in the donor's run, and all
        else as on the prompts themselves: one layer's arithmetic.
        """
        runs, rows, place = self._runs, torch.arange(len(self.of)), self._places[at]
        read = runs.mlp_input(mlp.layer)[rows, place]
        for layer in range(mlp.layer):
            earlier = Component(layer)
            change = self.written(earlier, at, "other") - runs.values.mlp[layer][rows, place]
            read = read + change.to(read.device)
        return mlp_output(runs.model, mlp, read)

    def _values(self) -> Values:
        """What the donors write, those with another token before those with the same one."""
        if self._donors is None:
            runs = self._runs
            assert self._role is not None
            rows, tokens, mask = torch.arange(len(runs)), runs.batch.tokens[self.of], runs.batch.mask
            donors = []
            for token in self._tokens:
                changed = tokens.clone()
                changed[rows, self._places[self._role][self.of]] = token.to(tokens.device)
                donors.append(changed)
            runs.cost.rows += 2 * len(runs)
            masks = None if mask is None else mask[self.of].repeat(2, 1)
            self._donors = activations(runs.model, Batch(torch.cat(donors), masks))
        return self._donors


def _another(tokens: Int[Tensor, " prompt"]) -> Int[Tensor, " prompt"]:
    """For each prompt the next one with another token; itself where there is none."""
    rows = torch.arange(len(tokens))
    found = rows.clone()
    for step in range(len(tokens) - 1, 0, -1):
        found = torch.where(tokens.roll(-step) != tokens, rows.roll(-step), found)
    return found
