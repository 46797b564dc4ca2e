"""Claims about a natural model measured again with plain hooks: no engine, other prompts.

`holds(kind, text)` reads components, role and condition from a claim's sentence, makes the intervention it speaks of
with `run_with_hooks`, and compares the mean over the prompts with the least that counts: 0.05 of the logit difference
or of the right answers, 0.02 for cut attention and single paths. Kinds that it cannot measure give None.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.model.specimen import Specimen

PROMPTS, SEED = 256, 99
LEAST, LEAST_CUT = 0.05, 0.02
Edit = tuple[str, Callable[[Tensor], Tensor]]


class PlainCheck:
    """Measurements on fresh prompts of a specimen's behaviour, with a single answer token read at the last position."""

    def __init__(self, specimen: Specimen, n: int = PROMPTS) -> None:
        self.model = specimen.model
        prompts = trial(specimen, n, seed=SEED, split="test").prompts
        assert prompts is not None
        self.prompts, self.rows = prompts, torch.arange(n)
        self.cache, self.source = (self._cached(tokens) for tokens in (prompts.tokens, prompts.counterfactual))
        self.clean = self._end([])
        self.scale = float(self._difference(self.clean).mean())
        self._without: dict[tuple[Component, ...], tuple[float, float]] = {}

    def holds(self, kind: str, text: str) -> bool | None:
        """Whether a supported claim holds on these prompts."""
        measure = getattr(self, f"_{kind}", None)
        return None if measure is None else bool(measure(text))

    # Claims.

    def _necessary(self, text: str) -> bool:
        part = _parts(text)[0]
        own = self._value(part)
        values = [*self._neutral(part), self._value(part, self.source), own.roll(1, 1)]
        return max(self._lost([self._put(part, value)])[0] for value in values) > LEAST

    def _small_part(self, text: str) -> bool:
        return 0 < self._resampled(_parts(text)[0]) < 3 * LEAST

    def _not_needed_alone(self, text: str) -> bool:
        part = _parts(text)[0]
        zero, mean = self._neutral(part)
        return max(self._lost([self._put(part, mean if "its mean" in text else zero)])) < LEAST

    def _moves_role(self, text: str) -> bool:
        """The output of a run with another token, and the same where that run attends as the clean one does and reads
        the same at the answer position.
        """
        (part, *zeroed), role = _parts(text), _role(text)
        tokens = self.prompts.tokens.clone()
        place = self.prompts.roles[role]
        tokens[self.rows, place] = tokens[self.rows, place].roll(7)
        clean = self._cached(self.prompts.tokens, self._zeroed(zeroed))
        runs = [self._cached(tokens, [*self._zeroed(zeroed), *edits]) for edits in ([], self._attending(part, clean))]
        whole, before = self.model(tokens)[self.rows, self.prompts.position], self._end(self._zeroed(zeroed))
        edits = [[*self._zeroed(zeroed), self._put(part, self._value(part, source), end=True)] for source in runs]
        return all(self._moved(whole, before, self._end(edit)) > LEAST for edit in edits)

    def _moved(self, whole: Tensor, before: Tensor, after: Tensor) -> float:
        """How far towards the other run the answer goes."""
        rival = whole.argmax(-1)
        differs = rival != self.clean.argmax(-1)
        base = self._margin(self.clean, rival)[differs].mean()
        moved = (self._margin(after, rival) - self._margin(before, rival))[differs].mean()
        return float(moved / (self._margin(whole, rival)[differs].mean() - base))

    def _backs_up(self, text: str) -> bool:
        part, *others = _parts(text)
        alone, rest, both = (self._lost_without(one) for one in ([part], others, [*others, part]))
        return any(both[i] - rest[i] - alone[i] > LEAST for i in (0, 1))

    def _primary(self, text: str) -> bool:
        part, *others = _parts(text)
        own, rest = self._lost_without([part]), [self._lost_without([one]) for one in others]
        return max(own) > LEAST and any(all(own[i] > one[i] for one in rest) for i in (0, 1))

    def _together(self, text: str) -> bool:
        parts = _parts(text)
        joint, singles = self._lost_without(parts), [self._lost_without([one]) for one in parts]
        return any(joint[i] - sum(one[i] for one in singles) > LEAST for i in (0, 1))

    def _reads_role(self, text: str) -> bool:
        (part, *zeroed), role = _parts(text), _role(text)
        masses = {name: float(self._mass(part, name).mean()) for name in self.prompts.roles if name != "end"}
        before = self._lost_without(zeroed)
        after = self._lost([*self._zeroed(zeroed), self._cut(part, role, rescale=False)])
        return max(masses, key=lambda name: masses[name]) == role and max(after[i] - before[i] for i in (0, 1)) > 0.02

    def _attends(self, text: str) -> bool:
        return float(self._mass(_parts(text)[0], _role(text)).mean()) > 0.5

    def _uses(self, text: str) -> bool:
        return self._lost([self._cut(_parts(text)[0], _role(text), rescale=True)])[0] > LEAST_CUT

    def _writes_answer(self, text: str) -> bool:
        output = self._output(_parts(text)[0])[self.rows, self.prompts.position]
        right, _, rest = self._sides(output)
        return min(float(right.mean()), float((right - rest).mean())) > 0 and self._favours(output)

    def _favours(self, output: Tensor) -> bool:
        return float(self._lens(output).mean() / self._lens(self._final()).mean()) > LEAST

    def _suppresses(self, text: str) -> bool:
        right, wrong, rest = self._sides(self._output(_parts(text)[0])[self.rows, self.prompts.position])
        falling, other = (right, wrong) if "the answer itself" in text else (wrong, right)
        falls = max(float(falling.mean()), float((falling - rest).mean())) < 0
        return falls and float((rest - falling).mean()) > abs(float((other - rest).mean()))

    def _lens_only(self, text: str) -> bool:
        part = _parts(text)[0]
        values = (*self._neutral(part), self._value(part, self.source))
        lost = [self._answers_lost([self._put(part, value)]) for value in values]
        return self._favours(self._output(part)[self.rows, self.prompts.position]) and max(lost) < LEAST

    def _acts_at_answer(self, text: str) -> bool:
        part = _parts(text)[0]
        value = self._value(part, self.source)
        here, whole = (self._lost([self._put(part, value, end=end)])[0] for end in (True, False))
        return here > whole / 2

    def _acts_directly(self, text: str) -> bool:
        part = _parts(text)[0]
        change = (self._output(part, self.source) - self._output(part))[self.rows, self.prompts.position]
        direct = self._difference(self.clean) - self._lens(self._final() + change, fixed=False)
        return float(direct.mean()) / self.scale > self._resampled(part) / 2

    def _acts_at(self, text: str) -> bool:
        part = _parts(text)[0]
        place = self._place(text.rstrip(".").partition(" at ")[2])
        own = self._value(part).clone()
        own[self.rows, place] = self._value(part, self.source)[self.rows, place]
        return self._lost([self._put(part, own)])[0] > self._resampled(part) / 2

    def _carries(self, text: str) -> bool:
        """Its output at one position from the prompt before, with another token at the role there."""
        part = _parts(text)[0]
        at, _, variable = text.rstrip(".").partition(" writes at ")[2].partition(" carries ")
        tokens, place = self.prompts.tokens.roll(1, 0).clone(), self._place(at)
        whole = self.clean.roll(1, 0)
        if variable != "the answer":
            role = self.prompts.roles[variable]
            other = self.prompts.tokens[self.rows, role].roll(7)
            tokens[self.rows, role.roll(1)] = other
            changed = self.prompts.tokens.clone()
            changed[self.rows, role] = other
            whole = self.model(changed)[self.rows, self.prompts.position]
        written = self._value(part).clone()
        written[self.rows, place] = self._value(part, self._cached(tokens))[self.rows, place.roll(1)]
        return self._moved(whole, self.clean, self._end([self._put(part, written)])) > LEAST

    def _looks_up(self, text: str) -> bool:
        """So it does, and the answer lies above most answers of other prompts in what it writes."""
        part, (variable, at) = _parts(text)[0], text.rstrip(".").partition(" from ")[2].rsplit(" at ", 1)
        written = self._value(part)[self.rows, self._place(at)] * (self.model.ln_final.w or 1.0)
        logits = (written @ self.model.W_U)[:, self.prompts.correct]
        above = (logits.diagonal()[:, None] > logits).double().mean()
        return float(above) > 0.75 and self._carries(f"What {part} writes at {at} carries {variable}.")

    def _place(self, role: str) -> Tensor:
        return self.prompts.position if role == "end" else self.prompts.roles[role]

    def _needs_input(self, text: str) -> bool:
        receiver, *senders = _parts(text)
        return self._path_matters(senders[0] if senders else None, receiver)

    def _feeds(self, text: str) -> bool:
        sender, receiver = _parts(text)
        return self._path_matters(sender, receiver)

    def _path_matters(self, sender: Component | None, receiver: Component) -> bool:
        """Whether the direct path from a component, or from the token embeddings, matters."""
        embedded = "blocks.0.hook_resid_pre"
        change = self.source[embedded] - self.cache[embedded]
        if sender is not None:
            change = self._output(sender, self.source) - self._output(sender)
        if receiver.head is None:
            block = self.model.blocks[receiver.layer]
            new = self._norm(block.ln2.w, self.cache[f"blocks.{receiver.layer}.hook_resid_mid"] + change)
            lost = self._lost([(f"blocks.{receiver.layer}.ln2.hook_normalized", lambda _: new)])[0]
        else:
            point = f"blocks.{receiver.layer}.ln1.hook_normalized"
            new = self._norm(
                self.model.blocks[receiver.layer].ln1.w, self.cache[f"blocks.{receiver.layer}.hook_resid_pre"] + change
            )
            z = self._kept([(point, lambda _: new)], f"blocks.{receiver.layer}.attn.hook_z")
            lost = self._lost([self._put(receiver, z[:, :, receiver.head])])[0]
        return abs(lost) > LEAST_CUT

    # Interventions.

    def _neutral(self, part: Component) -> tuple[Tensor, Tensor]:
        """Zeros, and the mean over the counterfactual prompts and positions."""
        own = self._value(part)
        return torch.zeros_like(own), self._value(part, self.source).mean((0, 1)).expand_as(own)

    def _resampled(self, part: Component) -> float:
        return self._lost([self._put(part, self._value(part, self.source))])[0]

    def _zeroed(self, parts: Sequence[Component]) -> list[Edit]:
        return [self._put(part, torch.zeros_like(self._value(part)), end=True) for part in parts]

    def _put(self, part: Component, value: Tensor, *, end: bool = False) -> Edit:
        """Another value of a head's z or of what an MLP writes, everywhere or at the answer position."""

        def edit(written: Tensor) -> Tensor:
            written = written.clone()
            own = written if part.head is None else written[:, :, part.head]
            if end:
                own[self.rows, self.prompts.position] = value[self.rows, self.prompts.position]
            else:
                own.copy_(value)
            return written

        return _point(part), edit

    def _cut(self, head: Component, role: str, *, rescale: bool) -> Edit:
        """A head's attention from the answer position to a role set to zero."""

        def edit(pattern: Tensor) -> Tensor:
            pattern = pattern.clone()
            own = pattern[self.rows, head.head, self.prompts.position]
            own[self.rows, self.prompts.roles[role]] = 0.0
            pattern[self.rows, head.head, self.prompts.position] = own / own.sum(-1, keepdim=True) if rescale else own
            return pattern

        return f"blocks.{head.layer}.attn.hook_pattern", edit

    def _attending(self, head: Component, cache: Mapping[str, Tensor]) -> list[Edit]:
        """A head's attention, and the values of its layer at the answer position, as in another run."""
        attention, read = (f"blocks.{head.layer}.attn.hook_{what}" for what in ("pattern", "v"))

        def attend(pattern: Tensor) -> Tensor:
            pattern = pattern.clone()
            pattern[:, head.head] = cache[attention][:, head.head]
            return pattern

        def keep(values: Tensor) -> Tensor:
            values = values.clone()
            values[self.rows, self.prompts.position] = cache[read][self.rows, self.prompts.position]
            return values

        return [(attention, attend), (read, keep)]

    # Runs.

    @torch.no_grad()
    def _end(self, edits: Sequence[Edit]) -> Tensor:
        """Logits at the answer position."""
        hooks = [(point, lambda value, hook, edit=edit: edit(value)) for point, edit in edits]
        logits = self.model.run_with_hooks(self.prompts.tokens, fwd_hooks=hooks)
        return logits[self.rows, self.prompts.position]

    @torch.no_grad()
    def _kept(self, edits: Sequence[Edit], point: str) -> Tensor:
        kept: list[Tensor] = []
        hooks = [(name, lambda value, hook, edit=edit: edit(value)) for name, edit in edits]
        self.model.run_with_hooks(
            self.prompts.tokens, fwd_hooks=[*hooks, (point, lambda value, hook: kept.append(value))]
        )
        return kept[0]

    @torch.no_grad()
    def _cached(self, tokens: Tensor, edits: Sequence[Edit] = ()) -> Mapping[str, Tensor]:
        hooks = [(point, lambda value, hook, edit=edit: edit(value)) for point, edit in edits]
        return self.model.run_with_cache(tokens, fwd_hooks=hooks)[1]

    def _value(self, part: Component, cache: Mapping[str, Tensor] | None = None) -> Tensor:
        """A head's z, or what an MLP writes."""
        values = (self.cache if cache is None else cache)[_point(part)]
        return values if part.head is None else values[:, :, part.head]

    @torch.no_grad()
    def _output(self, part: Component, cache: Mapping[str, Tensor] | None = None) -> Tensor:
        """What a component writes into the residual stream."""
        value = self._value(part, cache)
        return value if part.head is None else value @ self.model.blocks[part.layer].attn.W_O[part.head]

    # Figures.

    def _lost(self, edits: Sequence[Edit]) -> tuple[float, float]:
        """Share of the logit difference, and of the right answers, that is lost."""
        after = self._end(edits)
        score = float((self._difference(self.clean) - self._difference(after)).mean()) / self.scale
        return score, self._right(self.clean) - self._right(after)

    def _lost_without(self, parts: Sequence[Component]) -> tuple[float, float]:
        """The same where these are zeroed, measured once for each set."""
        key = tuple(sorted(parts))
        if key not in self._without:
            self._without[key] = self._lost(self._zeroed(key))
        return self._without[key]

    def _answers_lost(self, edits: Sequence[Edit]) -> float:
        return self._right(self.clean) - self._right(self._end(edits))

    def _right(self, logits: Tensor) -> float:
        return float((logits.argmax(-1) == self.prompts.correct).double().mean())

    def _difference(self, logits: Tensor) -> Tensor:
        return logits[self.rows, self.prompts.correct] - logits[self.rows, self.prompts.wrong]

    def _margin(self, logits: Tensor, rival: Tensor) -> Tensor:
        return logits[self.rows, rival] - logits[self.rows, self.clean.argmax(-1)]

    def _final(self) -> Tensor:
        last = self.model.config.n_layers - 1
        return self.cache[f"blocks.{last}.hook_resid_post"][self.rows, self.prompts.position]

    @torch.no_grad()
    def _lens(self, vector: Tensor, *, fixed: bool = True) -> Tensor:
        """The logit difference of a vector in the final residual stream; `fixed`: the norm's scale is the clean one."""
        if fixed:
            final = self._final()
            return self._difference(vector * (self._norm(self.model.ln_final.w, final) / final) @ self.model.W_U)
        return self._difference(self._norm(self.model.ln_final.w, vector) @ self.model.W_U)

    def _sides(self, vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What a vector in the final residual stream adds to the right logit, to the wrong one and to the others."""
        final = self._final()
        logits = vector * (self._norm(self.model.ln_final.w, final) / final) @ self.model.W_U
        right, wrong = logits[self.rows, self.prompts.correct], logits[self.rows, self.prompts.wrong]
        return right, wrong, (logits.sum(1) - right - wrong) / (logits.shape[1] - 2)

    def _norm(self, weight: Tensor | None, x: Tensor) -> Tensor:
        """Root mean square norm."""
        assert self.model.config.norm == "rms"
        assert weight is not None
        return x / (x.pow(2).mean(-1, keepdim=True) + self.model.config.norm_eps).sqrt() * weight

    def _mass(self, head: Component, role: str) -> Tensor:
        pattern = self.cache[f"blocks.{head.layer}.attn.hook_pattern"][:, head.head]
        return pattern[self.rows, self.prompts.position, self.prompts.roles[role]]


def _point(part: Component) -> str:
    return f"blocks.{part.layer}.{'hook_mlp_out' if part.head is None else 'attn.hook_z'}"


def _parts(text: str) -> list[Component]:
    names = dict.fromkeys(re.findall(r"L\d+(?:H\d+|_MLP)", text))
    return [Component.parse(name) for name in names]


def _role(text: str) -> str:
    found = re.search(r"operand [A-Z]", text)
    assert found is not None, text
    return found.group()
