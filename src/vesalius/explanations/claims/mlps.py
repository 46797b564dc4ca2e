"""What an MLP of a natural model does: *needs input*, *few neurons*, *carries*, *looks up*.

An MLP reads and writes at one position (*acts at*, in `paths`). What it *needs* is shown by replacing one path into it;
which neurons it works by, by replacing all others. What it *carries* is shown by interchange: its output at its
position comes from another prompt, whose token at a role, or whose answer, is another. If the model then gives the
answer that this class predicts, and outputs of prompts of the same class leave the answer as it is, the output stands
for the class. It *looks up* the answer if, beside that, what it writes there is the answer under the unembedding and
does not come from an earlier MLP.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import BeforeValidator, Field
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import TOKENS, Evidence, Verdict
from vesalius.errors import BadInput
from vesalius.explanations.claims.base import (
    CANDIDATES,
    MIN_EFFECT,
    NaturalClaim,
    Outcome,
    above,
    all_of,
    bar_above,
    exceeds,
    judged,
    mean_evidence,
    rounded,
    weak_controls,
)
from vesalius.explanations.claims.paths import examine_whole_path
from vesalius.explanations.laboratory import END, Lab, NaturalLab
from vesalius.explanations.laboratory.answers import ANSWER
from vesalius.explanations.laboratory.base import PerPrompt
from vesalius.explanations.laboratory.runs import feeds
from vesalius.intervene.values import unit_shape
from vesalius.intervene.written_tokens import ranks

#: A set of neurons keeps an MLP's effect if it keeps this share of it.
KEPT = 0.8
#: Outputs of the same class may disturb the answer by less than this part of what those of another class move it.
DISTURBED = 0.5
THIRD = "output of a third prompt"
LENS = "unembedding, at its position"
RANK = "share of the prompts' answers that the own one lies above"
#: What an MLP writes is the answer where that lies above this share of the other prompts' answers; half is chance.
WRITTEN = 0.75


class _OfAnMlp(NaturalClaim, frozen=True):
    """A claim about an MLP."""

    kind: str

    def mlp_in(self, lab: NaturalLab) -> Component:
        """The MLP; refuses a head."""
        if self.part.is_head:
            raise BadInput(f"{self.kind} {self.component}: it is a head; name an MLP such as L0_MLP")
        return self.part.within(lab.model.config)


def _sender(name: str) -> str:
    return TOKENS if name == TOKENS else str(Component.parse(name))


class NeedsInput(_OfAnMlp, frozen=True):
    """The MLP needs what a component, or the token embeddings (`sender: tokens`), writes directly into it."""

    kind: Literal["needs_input"] = "needs_input"
    sender: Annotated[str, BeforeValidator(_sender)]

    @property
    def text(self) -> str:
        what = "the tokens themselves" if self.sender == TOKENS else f"what {self.sender} writes"
        return f"{self.component} needs {what}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """What replacing the direct path into it costs, against the path of a neighbour of the sender."""
        lab = NaturalLab.require(lab, self.kind)
        mlp = self.mlp_in(lab)
        sender = None if self.sender == TOKENS else Component.parse(self.sender).within(lab.model.config)
        if sender is not None and not feeds(sender, mlp, parallel=lab.model.config.parallel):
            raise BadInput(f"needs_input: {mlp} does not read what {sender} writes; name an earlier sender")
        verdict, evidence = examine_whole_path(lab, sender, mlp, None, sign=1.0, level=level)
        return verdict, (evidence,)


class FewNeurons(_OfAnMlp, frozen=True):
    """A few of the MLP's neurons (`neurons`, their numbers) keep at least 0.8 of its effect where all its others are
    replaced.
    """

    kind: Literal["few_neurons"] = "few_neurons"
    neurons: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)

    @property
    def text(self) -> str:
        return f"{len(self.neurons)} neurons of {self.component} keep its effect."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """What replacing all its other neurons costs, against a fifth of what replacing the MLP costs."""
        lab = NaturalLab.require(lab, self.kind)
        mlp = self.mlp_in(lab)
        # How many neurons an MLP has; refuses one that is made of experts.
        width, *vector = unit_shape(lab.model.config, mlp.layer)
        if vector:
            raise BadInput(f"few_neurons: {mlp} is made of experts, which have no neurons of their own here")
        if outside := [one for one in self.neurons if one >= width]:
            raise BadInput(f"few_neurons: {mlp} has no neuron {outside[0]}; it has 0 to {width - 1}")
        whole, lost = lab.effect([mlp], "resample"), lab.kept_by(mlp, self.neurons)
        experiment = f"all but {len(self.neurons)} of its {width} neurons replaced"
        kept = mean_evidence(
            lab,
            experiment,
            measure=f"its effect kept, less {KEPT} of the whole effect",
            values=(1 - KEPT) * whole - lost,
            level=level,
            rule="interval above 0",
            bar=0.0,
        )
        share = mean_evidence(
            lab,
            experiment,
            measure="share of its effect kept",
            values=(whole - lost) / whole.mean(),
            level=level,
            rule="reported; the verdict rests on the difference",
        )
        return above(kept, 0.0), (kept, share)


class Carries(_OfAnMlp, frozen=True):
    """What the MLP writes at one position (`at`) stands for the token of a role, or for the answer (`variable`): from
    a prompt of another class it brings that one's answer, from one of the same class it changes little.
    """

    kind: Literal["carries", "looks_up"] = "carries"
    variable: str
    at: str = END

    @property
    def text(self) -> str:
        return f"What {self.component} writes at {self.at} carries {_variable(self.variable)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Its output from donors of another class, against matched MLPs and, prompt by prompt, against that of a third
        one; then from donors of the same class.
        """
        lab = NaturalLab.require(lab, self.kind)
        mlp = self.mlp_in(lab)
        if self.variable != ANSWER:
            lab.place(self.variable)
        lab.place(self.at)
        moved = lab.exchange_moves(self.variable)

        def ways(parts: Sequence[Component]) -> list[PerPrompt]:
            return [way(part) for part in parts]

        def way(part: Component, donor: Literal["other", "third"] = "other") -> PerPrompt:
            return moved.shares(moved.clean, [lab.exchanged(part, self.variable, self.at, donor)])[0][1]

        own, further = way(mlp), tuple[Evidence, ...]()
        controls: dict[str, PerPrompt] = {}
        what = _variable(self.variable)
        experiment = f"output at {self.at} from a prompt with another {self.variable}"
        measure = "share of the way to the answer that its class predicts"
        if exceeds(lab, own, MIN_EFFECT, level=level):
            weak = weak_controls(lab, lab.matched(mlp, k=CANDIDATES), ways)
            controls = {str(part): share for part, share in weak.items()}
            # Any output that no longer says the own answer goes a part of the way, on some prompts more than on others:
            # the two are compared prompt by prompt.
            third = way(mlp, "third")
            beyond = {"measure": f"{measure}, beyond that of the {THIRD}", "values": own - third, "bar": MIN_EFFECT}
            rule, shown = bar_above(MIN_EFFECT, {}).rule, {THIRD: rounded(third.mean())}
            further = (mean_evidence(lab, experiment, **beyond, level=level, rule=rule, controls=shown),)
        verdict, evidence = judged(lab, experiment, measure, own, bar_above(MIN_EFFECT, controls), level=level)
        (switched, _), *_ = moved.shares(moved.clean, [lab.exchanged(mlp, self.variable, self.at)])
        rate = mean_evidence(
            lab,
            experiment,
            measure="share of answers that become it",
            values=switched,
            level=level,
            rule="reported; the verdict rests on the logits",
        )
        compared: list[Verdict] = [above(one, MIN_EFFECT) for one in further]
        verdict = all_of(verdict, *compared)
        if verdict != "supported" or self.variable == ANSWER:
            return verdict, (evidence, rate, *further)
        same = lab.exchanged(mlp, self.variable, self.at, "same")
        disturbed = (same.margin - moved.clean.margin)[moved.differs].abs() / moved.way
        alike = mean_evidence(
            lab,
            f"output at {self.at} from a prompt with the same {what}",
            measure=f"{DISTURBED} of the way that another one moves it, less the change",
            values=DISTURBED * own - disturbed,
            level=level,
            rule="interval above 0",
            bar=0.0,
            controls={"change": float(disturbed.mean())},
        )
        return all_of(verdict, above(alike, 0.0)), (evidence, rate, *further, alike)


class LooksUp(Carries, frozen=True):
    """The MLP looks the answer up: what it writes at one position stands for the token of a role (`carries`), and is
    the answer under the unembedding, which it does not have from an earlier MLP.
    """

    kind: Literal["looks_up"] = "looks_up"

    @property
    def text(self) -> str:
        return f"{self.component} looks up the answer from {self.variable} at {self.at}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """The experiment of `carries`; then where the answer stands among those of the prompts, in what it writes and
        in what it reads. The second needs no run.
        """
        verdict, evidence = super().examine(lab, level=level)
        if verdict != "supported":
            return verdict, evidence
        lab = NaturalLab.require(lab, self.kind)
        written, lens = self._written(lab, level)
        return all_of(verdict, written), (*evidence, *lens)

    def _written(self, lab: NaturalLab, level: float) -> Outcome:
        """That the answer stands in what it writes, and that it was put there: it does not stand in what it reads, or
        it stands there as well where earlier MLPs give it what they write on the donors. Each of these has half the
        error.
        """
        mlp, place, rows = self.mlp_in(lab), lab.place(self.at), torch.arange(lab.n)
        half = 1 - (1 - level) / 2

        def rank(vectors: Float[Tensor, "prompt d_model"]) -> PerPrompt:
            return ranks(lab.model, vectors, lab.clean_answers.token)

        def shown(what: str, values: PerPrompt, bar: float, level: float, of: str = "") -> Evidence:
            rule = f"interval above {bar:g}{of}"
            return mean_evidence(lab, LENS, measure=what, values=values, level=level, rule=rule, bar=bar)

        written = rank(lab.runs.clean_output(mlp)[rows, place])
        read = rank(lab.runs.mlp_input(mlp.layer)[rows, place])
        after = shown(f"{RANK} in what it writes", written, WRITTEN, level)
        gained = shown(f"{RANK}, minus that in what it reads", written - read, 0.0, half, "; this or the next")
        if (new := above(gained, 0.0)) == "supported" or not mlp.layer:
            return all_of(above(after, WRITTEN), new), (after, gained)
        by_itself = rank(lab.written_apart(mlp, self.variable, self.at))
        apart = shown(f"{RANK}, where earlier MLPs tell it of another class", by_itself, WRITTEN, half)
        either: list[Verdict] = [new, above(apart, WRITTEN)]
        made: Verdict = "supported" if "supported" in either else "undecided" if "undecided" in either else "refuted"
        return all_of(above(after, WRITTEN), made), (after, gained, apart)


def _variable(name: str) -> str:
    return "the answer" if name == ANSWER else name
