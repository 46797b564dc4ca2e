"""The candidate-target lens: what a component's output adds to the logits of the answer, of sums of two operands, of
operands and of tokens drawn at random; and the directions it points in.
"""

import random
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.addition import Addition, Options
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import NaturalLab
from vesalius.intervene.probes import direct_logits, unembedding_cosines
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius_bench.study.evidence import ANSWER, RANDOM

#: Tokens drawn at random for each prompt, and components drawn outside the circuit of each kind.
RANDOM_TOKENS, CONTROLS = 16, 8
NO_TOKEN = -1
DIGITS = 4
#: How a number may continue a prompt, tried in this order: as it is, after a space, its last digit alone.
SPELLINGS: tuple[Callable[[int], str], ...] = (str, lambda value: f" {value}", lambda value: str(value)[-1])
Tokens = Int[Tensor, " prompt"]


class TargetLens:
    """The lens on the prompts of a laboratory. `no_targets` says why operands and their sums have no token here."""

    def __init__(self, specimen: Specimen, lab: NaturalLab, *, seed: int) -> None:
        self._lab, self._seed, self.no_targets = lab, seed, ""
        source, vocabulary = specimen.behaviour_source, specimen.vocabulary
        assert isinstance(source, Addition)
        assert isinstance(vocabulary, TextVocabulary)
        self._targets: dict[str, Tokens] = {ANSWER: lab.prompts.correct}
        numbers = self._numbers(source.options, vocabulary)
        for name, values in numbers.items():
            self._targets[name] = values

    def of(self, name: str) -> dict[str, Any]:
        """Rates, logits by target and cosines of one component."""
        logits, rows = self._logits(name), torch.arange(self._lab.n)
        ranks, values, top_5, counts = {}, {}, {}, {}
        for target, tokens in self._targets.items():
            has = tokens != NO_TOKEN
            counts[target] = int(has.sum())
            if not counts[target]:
                continue
            own = logits[rows[has], tokens[has]]
            rank = (logits[has] > own[:, None]).sum(1) + 1
            ranks[target] = rank
            values[target], top_5[target] = _mean(own), _mean((rank <= 5).float())
        drawn = logits.gather(1, self._random)
        values[RANDOM], counts[RANDOM] = _mean(drawn), self._lab.n
        answer = ranks[ANSWER]
        return {
            **{f"lens_top_{k}": _mean((answer <= k).float()) for k in (1, 3, 5)},
            "target_logits": values,
            "target_top_5": top_5,
            "target_prompts": counts,
            "cosine_answer": self._cosine_answer(name),
            "cosine_residual": self._cosine_residual(name),
        }

    def controls(self, circuit: Sequence[str]) -> dict[str, float]:
        """What components drawn outside the circuit add to the answer's logit, up to `CONTROLS` heads and MLPs."""
        outside = [part for part in self._lab.model.components if str(part) not in set(circuit)]
        chosen: list[Component] = []
        for heads in (True, False):
            kind = [part for part in outside if part.is_head == heads]
            chosen += random.Random(f"{self._seed}/controls").sample(kind, min(CONTROLS, len(kind)))
        rows, answer = torch.arange(self._lab.n), self._lab.prompts.correct
        return {str(part): _mean(self._logits(str(part))[rows, answer]) for part in sorted(chosen)}

    def _output(self, name: str) -> Float[Tensor, "prompt d_model"]:
        runs, rows = self._lab.runs, torch.arange(self._lab.n)
        return runs.clean_output(Component.parse(name))[rows, self._lab.prompts.position]

    def _logits(self, name: str) -> Float[Tensor, "prompt vocab"]:
        return direct_logits(self._lab.model, self._output(name), resid=self._lab.runs.final_resid).cpu()

    def _cosine_answer(self, name: str) -> float:
        """The cosine of the output with the answer's unembedding, behind the last norm, where the unembedding reads."""
        runs, answer = self._lab.runs, self._lab.prompts.correct
        return _mean(unembedding_cosines(runs.model, self._output(name), answer, resid=runs.final_resid))

    def _cosine_residual(self, name: str) -> float:
        """The cosine of the output with the residual stream that the component reads, before its norm."""
        part, runs, rows = Component.parse(name), self._lab.runs, torch.arange(self._lab.n)
        before = runs.resid(part.layer) if part.is_head else runs.mlp_input(part.layer)
        read = before[rows, self._lab.prompts.position]
        return _mean(torch.nn.functional.cosine_similarity(self._output(name).double(), read.double(), dim=1))

    @cached_property
    def _random(self) -> Int[Tensor, "prompt drawn"]:
        """Tokens drawn for each prompt, none of them the answer."""
        generator = torch.Generator().manual_seed(self._seed)
        size, n = self._lab.model.config.d_vocab, self._lab.n
        step = torch.randint(1, size, (n, RANDOM_TOKENS), generator=generator)
        return (self._lab.prompts.correct[:, None] + step) % size

    def _numbers(self, options: Options, vocabulary: TextVocabulary) -> dict[str, Tokens]:
        """The tokens of operands and of their sums by twos, as they would stand in the answer's place."""
        texts, encode = self._lab.prompts.texts, vocabulary.tokenizer.encode
        letters, signs = options.letters, f"+{options.every_sign}"
        found = [[int(number) for number in re.findall(r"\d+", text.splitlines()[-1])] for text in texts]
        operands = [numbers[: len(letters)] for numbers in found]
        if any(len(one) < len(letters) for one in operands):
            self.no_targets = "the prompts' last lines do not have the operands in digits"
            return {}
        answers = self._lab.prompts.correct.tolist()

        def token(text: str, written: str) -> int:
            try:
                before, after = encode(text), encode(text + written)
            except BadInput:  # not in the vocabulary
                return NO_TOKEN
            one = len(after) == len(before) + 1 and after[: len(before)] == before
            return after[-1] if one else NO_TOKEN

        totals = [options.total(tuple(one)) for one in operands]
        for spelling in SPELLINGS:
            tokens = [token(text, spelling(total)) for text, total in zip(texts, totals, strict=True)]
            if tokens == answers:
                break
        else:
            self.no_targets = "no spelling of the answer gives the token that is read, as where it has several tokens"
            return {}
        named = {
            "".join(f"{sign}{letter.upper()}" for letter, sign in pair).removeprefix("+"): [
                sum(one[letters.index(letter)] * (1 if sign == "+" else -1) for letter, sign in pair)
                for one in operands
            ]
            for count in (2, 1)
            for pair in combinations(list(zip(letters, signs, strict=True)), count)
        }
        single = {letter.upper(): [one[place] for one in operands] for place, letter in enumerate(letters)}
        values = {name: given for name, given in named.items() if name.lstrip("-") not in single} | single
        # A sum that is negative has no token of its own, nor has one that is the answer anything to tell it by.
        return {
            name: torch.tensor(
                [
                    NO_TOKEN if value < 0 or (own := token(text, spelling(value))) == answer else own
                    for text, value, answer in zip(texts, given, answers, strict=True)
                ]
            )
            for name, given in values.items()
        }


def _mean(values: Tensor) -> float:
    return round(float(values.double().mean()), DIGITS)
