"""Sites (components, activations, edges) replaced together, with everything that many such questions share kept: the
clean run of the prompts and the tables of replacement values. The first question pays for the clean run; each further
one costs the layers from the first replaced component on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.contrast import contrast_on
from vesalius.behaviours.trial import Trial, marked
from vesalius.components import Component
from vesalius.documents.performance import Contrast
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Plan, Readout, Recordings, run
from vesalius.intervene.ablations import Ablation, Mean, Patch, Replacement, Resample, Zero, ablation_named
from vesalius.intervene.effects import has_units
from vesalius.intervene.engine import Cost
from vesalius.intervene.readout import chosen_logits
from vesalius.intervene.signed import LogitSides, parted
from vesalius.intervene.sites import SiteValues, placed_sets, site_scores
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.sites import Site, only_components

#: What may take a component's place.
KINDS = tuple(kind.name for kind in (Zero, Mean, Resample, Patch))
LIKELY = 5
#: Digits of numeric outputs that are shown and compared.
DIGITS = 2
Logits = Float[Tensor, "prompt query out"]


@dataclass(frozen=True)
class RunOutputs:
    """What one run of the prompts gives: a score, an output and the likeliest next tokens of each; where the score
    compares two answers also the logits of the right one, the wrong one and the rest.
    """

    score: Float[Tensor, " prompt"]
    outputs: list[Any]
    likely: list[list[tuple[str, float]]]
    sides: LogitSides | None = None


class Replacements:
    """One specimen on one set of prompts, ready for any number of questions; `reference` are the prompts that means are
    taken over (None: the prompts themselves, as in a sweep).
    """

    def __init__(self, specimen: Specimen, material: Trial, *, reference: Batch | None = None, likely: int = 0) -> None:
        self.specimen, self.material, self.model = specimen, material, specimen.model
        self.reference = reference
        self.cost, self._likely = Cost(), likely
        readout = Readout(lambda logits, prompt: logits, material.readout.at, unit=material.readout.unit)
        self._recordings = Recordings(self.model, material.batch.to(self.model.device), readout)
        self._tables: dict[tuple[Ablation, bool], Replacement] = {}

    @cached_property
    def clean(self) -> RunOutputs:
        """The model as it is."""
        self.cost.rows += len(self.material.batch)
        return self._read(self._recordings.scores())

    @cached_property
    def contrast(self) -> Contrast | None:
        """Whether replacing everything from the counterfactual prompts lowers the score; None without a behaviour."""
        return None if self.material.prompts is None else contrast_on(self.model, self.material.prompts)

    def edited(self, sites: Sequence[Site], kind: Ablation | str, at: str | int | None = None) -> RunOutputs:
        """The model with these sites replaced, at their own positions, or at one position, or everywhere."""
        ablation = ablation_named(kind, KINDS)
        if at is not None and (own := next((site for site in sites if site.at), None)) is not None:
            raise BadInput(f"`at` {at}: {own} names its position already; leave one of them out")
        where = None if at is None else marked(self.material, [at])
        if ablation.from_counterfactual and self.material.where is not None:
            where = self.material.where if where is None else where & self.material.where
        components = tuple(site.place for site in sites if isinstance(site.place, Component))
        if only_components(sites):
            replacement = self._replacement(ablation, units=has_units([components]))
            plan = Plan.grid(self.model.config, [components], choices=replacement.choices, positions=where)
            return self._read(run(self._recordings, plan, replacement.values, cost=self.cost))
        (placed,) = placed_sets([sites], lambda names: marked(self.material, names), where)
        other = self.material.counterfactual
        values = SiteValues.make(
            self.model, ablation, self.material.batch, [placed], counterfactual=other, reference=self.reference
        )
        return self._read(site_scores(self._recordings, values, placed, cost=self.cost))

    def texts(self) -> list[str]:
        """The prompts as people read them."""
        if self.material.prompts is not None:
            return list(self.material.prompts.texts)
        vocabulary, rows = self.specimen.vocabulary, self._tokens()
        if isinstance(vocabulary, TextVocabulary):
            return ["".join(vocabulary.tokenizer.piece(token) for token in row) for row in rows]
        names = getattr(vocabulary, "tokens", ())
        return [" ".join(str(names[token]) if token < len(names) else str(token) for token in row) for row in rows]

    def _tokens(self) -> list[list[int]]:
        """The tokens of each prompt, without BOS and padding."""
        batch = self.material.batch
        kept = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask
        first = int(self.model.config.begin_with_bos(batch.tokens))
        return [row[mask][first:].tolist() for row, mask in zip(batch.tokens, kept, strict=True)]

    def _replacement(self, ablation: Ablation, *, units: bool) -> Replacement:
        if (ablation, units) not in self._tables:
            other = self.material.counterfactual
            table = ablation.table(
                self.model, self.material.batch, counterfactual=other, reference=self.reference, neurons=units
            )
            self._tables[ablation, units] = table
        return self._tables[ablation, units]

    def _read(self, logits: Logits) -> RunOutputs:
        readout, n = self.material.signed(self.model), len(self.material.batch)
        every = torch.arange(n, device=logits.device)
        score, sides = parted(readout.score(chosen_logits(readout, logits, every), every).float().cpu())
        if not bool(score.isfinite().all()) or bool(logits.isnan().any()):
            raise BadInput("the model's logits are not finite on these prompts; check its weights for overflow")
        vocabulary = self.specimen.vocabulary
        if not isinstance(vocabulary, TextVocabulary):
            lengths = [len(row) for row in self._tokens()]
            decoded = zip(self.specimen.decode(logits.cpu()), lengths, strict=True)
            outputs = [[_shown(value) for value in row[:length]] for row, length in decoded]
            return RunOutputs(score, outputs, [[] for _ in range(n)], sides)
        piece = vocabulary.tokenizer.piece
        top = [piece(int(token)) for token in logits[:, 0].argmax(-1).cpu()]
        return RunOutputs(score, top, self._likeliest(logits[:, 0]), sides)

    def _likeliest(self, logits: Float[Tensor, "prompt out"]) -> list[list[tuple[str, float]]]:
        if not self._likely:
            return [[] for _ in range(len(logits))]
        assert isinstance(self.specimen.vocabulary, TextVocabulary)
        piece = self.specimen.vocabulary.tokenizer.piece
        best = logits.float().softmax(-1).topk(min(self._likely, logits.shape[-1]))
        return [
            [(piece(token), probability) for token, probability in zip(tokens, probabilities, strict=True)]
            for tokens, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def _shown(value: object) -> object:
    """An output; a number as far as models are trained to give it."""
    return round(value, DIGITS) + 0.0 if isinstance(value, float) else value
