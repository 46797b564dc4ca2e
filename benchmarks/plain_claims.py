"""Claims about a natural model measured again with plain hooks: no engine, other prompts.

    python -m benchmarks.plain_claims DIRECTORY --prompts 64 --out benchmarks/results/plain_claims.json

reads every explanation (`explanation.json`, or any other `.json` of one) under the directory, loads its model and
behaviour, and measures its supported and refuted claims on fresh prompts: other draws of the split that the claims
were tested on, and other templates, which are those of another split.

`PlainCheck.outcome(kind, text)` reads components, role and condition from a claim's sentence, makes the intervention it
speaks of with `run_with_hooks`, and compares the mean over the prompts with the least that counts: 0.05 of the logit
difference or of the right answers, 0.02 for cut attention and single paths. A claim *holds* where the mean exceeds the
bar, is *false* where it lies more than two standard errors below, and *borderline* between. Kinds that it cannot
measure give None.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.files import write_json
from vesalius.model.specimen import Specimen

PROMPTS, SEED = 256, 99
LEAST, LEAST_CUT = 0.05, 0.02
Edit = tuple[str, Callable[[Tensor], Tensor]]
Outcome = Literal["holds", "borderline", "false"]
#: What each prompt adds to the mean of a figure less its bar; a claim holds where all figures of one of its cases do.
Margins = Sequence[Tensor]
Cases = Sequence[Margins]
#: Words of the sentence for general places of attention.
PLACES = {
    "the token after an earlier copy": "induction",
    "earlier copies of the current token": "duplicate",
    "the previous token": "previous",
    "BOS": "BOS",
}
ORDER: tuple[Outcome, ...] = ("false", "borderline", "holds")


class PlainCheck:
    """Measurements on fresh prompts of a specimen's behaviour, with a single answer token read at the last position."""

    def __init__(self, specimen: Specimen, n: int = PROMPTS, *, split: str = "test", seed: int = SEED) -> None:
        self.model = specimen.model
        prompts = trial(specimen, n, seed=seed, split=split).prompts
        assert prompts is not None
        self.prompts = prompts
        device = next(iter(self.model.parameters())).device
        self.tokens, self.other = prompts.tokens.to(device), prompts.counterfactual.to(device)
        self.position, self.mask = prompts.position.to(device), prompts.mask.to(device)
        self.correct, self.wrong = prompts.correct.to(device), prompts.wrong.to(device)
        self.roles = {role: place.to(device) for role, place in prompts.roles.items()}
        self.rows = torch.arange(len(self.tokens), device=device)
        self.cache, self.source = (self._cached(tokens) for tokens in (self.tokens, self.other))
        self.clean = self._end([])
        self.scale = float(self._difference(self.clean).mean())
        self._without: dict[tuple[Component, ...], tuple[Tensor, Tensor]] = {}

    def holds(self, kind: str, text: str, prediction: Mapping[str, Any] | None = None) -> bool | None:
        """Whether a supported claim holds on these prompts; its prediction holds what its sentence leaves out."""
        cases = self._cases(kind, text, prediction)
        return None if cases is None else any(all(float(one.mean()) > 0 for one in case) for case in cases)

    def outcome(self, kind: str, text: str, prediction: Mapping[str, Any] | None = None) -> Outcome | None:
        """Whether it holds, by how much: the best of its cases, each of them as good as its worst figure."""
        cases = self._cases(kind, text, prediction)
        if cases is None:
            return None
        return ORDER[max(min(map(_judged, case)) for case in cases)]

    def _cases(self, kind: str, text: str, prediction: Mapping[str, Any] | None) -> Cases | None:
        if kind == "few_neurons":
            return None if prediction is None else self._few_neurons(text, list(prediction["neurons"]))
        measure = getattr(self, f"_{kind}", None)
        return None if measure is None else measure(text)

    # Claims.

    def _necessary(self, text: str) -> Cases:
        part = _parts(text)[0]
        own = self._value(part)
        values = [*self._neutral(part), self._value(part, self.source), own.roll(1, 1)]
        return [[self._lost([self._put(part, value)])[0] - LEAST] for value in values]

    def _small_part(self, text: str) -> Cases:
        lost = self._resampled(_parts(text)[0])
        return [[lost, 3 * LEAST - lost]]

    def _not_needed_alone(self, text: str) -> Cases:
        part = _parts(text)[0]
        zero, mean = self._neutral(part)
        return [[LEAST - lost for lost in self._lost([self._put(part, mean if "its mean" in text else zero)])]]

    def _moves_role(self, text: str) -> Cases | None:
        """The output of a run with another token, and the same where that run attends as the clean one does and reads
        the same at the answer position.
        """
        (part, *zeroed), role = _parts(text), self._role(text)
        if role is None:
            return None
        tokens = self.tokens.clone()
        place = self.roles[role]
        tokens[self.rows, place] = tokens[self.rows, place].roll(7)
        clean = self._cached(self.tokens, self._zeroed(zeroed))
        runs = [self._cached(tokens, [*self._zeroed(zeroed), *edits]) for edits in ([], self._attending(part, clean))]
        whole, before = self.model(tokens)[self.rows, self.position].detach(), self._end(self._zeroed(zeroed))
        edits = [[*self._zeroed(zeroed), self._put(part, self._value(part, source), end=True)] for source in runs]
        moved = [self._moved(whole, before, self._end(edit)) for edit in edits]
        return None if len(moved[0]) < 8 else [[one - LEAST for one in moved]]

    def _moved(self, whole: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """How far towards the other run the answer goes, where the other run answers otherwise."""
        rival = whole.argmax(-1)
        differs = rival != self.clean.argmax(-1)
        base = self._margin(self.clean, rival)[differs].mean()
        moved = (self._margin(after, rival) - self._margin(before, rival))[differs]
        return moved / (self._margin(whole, rival)[differs].mean() - base)

    def _backup_of(self, text: str) -> Cases | None:
        part, *others = _parts(text)
        if " by zeros at end" not in text:
            return None
        alone, rest, both = (self._lost_without(one) for one in ([part], others, [*others, part]))
        strongest = max((self._lost_without([one]) for one in others), key=lambda one: float(one[1].mean()))
        primary = max(strongest, key=lambda lost: float(lost.mean())) - LEAST
        return [[both[i] - rest[i] - alone[i] - LEAST, *(LEAST - one for one in alone), primary] for i in (0, 1)]

    def _redundant(self, text: str) -> Cases | None:
        """More than the sum, and each of them acts alone by one measure, or none does by any."""
        if " by zeros at end" not in text:
            return None
        singles = [self._lost_without([one]) for one in _parts(text)]
        act = [max(one, key=lambda lost: float(lost.mean())) - LEAST for one in singles]
        return [[*case, *alike] for case in self._together(text) for alike in (act, [-one for one in act])]

    def _primary(self, text: str) -> Cases:
        part, *others = _parts(text)
        own, rest = self._lost_without([part]), [self._lost_without([one]) for one in others]
        costs = max(own, key=lambda lost: float(lost.mean()))
        return [[costs - LEAST, *(own[i] - one[i] for one in rest)] for i in (0, 1)]

    def _together(self, text: str) -> Cases:
        """By zeros at the answer position, or by the counterfactual prompts' values everywhere, then by the score."""
        parts = _parts(text)
        lost = self._lost_without if " by zeros at end" in text else lambda some: [self._resampled(*some)]
        joint, singles = lost(parts), [lost([one]) for one in parts]
        return [[joint[i] - torch.stack([one[i] for one in singles]).sum(0) - LEAST] for i in range(len(joint))]

    def _reads_role(self, text: str) -> Cases | None:
        part, *zeroed = _parts(text)
        role, query = (self._first(words) for words in text.partition(" reads ")[2].split(" from ", 1))
        if role is None or query is None:
            return None
        masses = {name: self._mass(part, name, query) for name in self.roles if name not in ("end", query)}
        own, before = masses.pop(role), self._lost_without(zeroed)
        after = self._lost([*self._zeroed(zeroed), self._cut(part, role, query, rescale=False)])
        return [[*(own - other for other in masses.values()), after[i] - before[i] - LEAST_CUT] for i in (0, 1)]

    def _first(self, words: str) -> str | None:
        """The role that words begin with."""
        return max((role for role in (*self.roles, "end") if words.startswith(role)), key=len, default=None)

    def _attends(self, text: str) -> Cases | None:
        place = next((name for words, name in PLACES.items() if words in text), None)
        head, role = _parts(text)[0], self._role(text)
        if place is None:
            return None if role is None else [[self._mass(head, role) - 0.5]]
        pattern = self.cache[f"blocks.{head.layer}.attn.hook_pattern"][:, head.head]
        if place == "BOS":
            return [[pattern[self.rows, self.position, 0] - 0.5]]
        return [[self._mass_on(pattern, place) - 0.5]]

    def _mass_on(self, pattern: Tensor, place: str) -> Tensor:
        """Attention on a general place, over the queries of a prompt that have one; only prompts with any count."""
        length = self.tokens.shape[1]
        earlier = torch.ones(length, length, device=self.tokens.device).tril(-1).bool()
        same = (self.tokens[:, :, None] == self.tokens[:, None, :]) & earlier
        if place == "previous":
            target = torch.zeros_like(same)
            target[:, range(1, length), range(length - 1)] = True
        else:
            target = same if place == "duplicate" else torch.nn.functional.pad(same, (1, 0))[:, :, :-1] & earlier
        has = target.any(-1) & self.mask.bool()
        mass = (pattern * target).sum(-1) * has
        kept = has.any(-1)
        return mass[kept].sum(-1) / has[kept].sum(-1)

    def _uses(self, text: str) -> Cases | None:
        role = self._role(text)
        return (
            None
            if role is None
            else [[self._lost([self._cut(_parts(text)[0], role, "end", rescale=True)])[0] - LEAST_CUT]]
        )

    def _writes_answer(self, text: str) -> Cases:
        output = self._output(_parts(text)[0])[self.rows, self.position]
        right, _, rest = self._sides(output)
        return [[right, right - rest, self._favours(output)]]

    def _favours(self, output: Tensor) -> Tensor:
        return self._lens(output) / self._lens(self._final()).mean() - LEAST

    def _suppresses(self, text: str) -> Cases:
        right, wrong, rest = self._sides(self._output(_parts(text)[0])[self.rows, self.position])
        falling, other = (right, wrong) if "the answer itself" in text else (wrong, right)
        size = (other - rest).mean().abs()
        return [[-one, rest - falling - size] for one in (falling, falling - rest)]

    def _lens_only(self, text: str) -> Cases:
        part = _parts(text)[0]
        values = (*self._neutral(part), self._value(part, self.source))
        lost = [self._lost([self._put(part, value)])[1] for value in values]
        return [[self._favours(self._output(part)[self.rows, self.position]), *(LEAST - one for one in lost)]]

    def _acts_at_answer(self, text: str) -> Cases:
        part = _parts(text)[0]
        value = self._value(part, self.source)
        here, whole = (self._lost([self._put(part, value, end=end)])[0] for end in (True, False))
        return [[here - whole / 2]]

    def _acts_directly(self, text: str) -> Cases:
        part = _parts(text)[0]
        change = (self._output(part, self.source) - self._output(part))[self.rows, self.position]
        direct = self._difference(self.clean) - self._lens(self._final() + change, fixed=False)
        return [[direct / self.scale - self._resampled(part) / 2]]

    def _acts_at(self, text: str) -> Cases:
        part = _parts(text)[0]
        place = self._place(text.rstrip(".").partition(" at ")[2])
        own = self._value(part).clone()
        own[self.rows, place] = self._value(part, self.source)[self.rows, place]
        return [[self._lost([self._put(part, own)])[0] - self._resampled(part) / 2]]

    def _carries(self, text: str) -> Cases | None:
        """Its output at one position from the prompt before, with another token at the role there."""
        part = _parts(text)[0]
        at, _, variable = text.rstrip(".").partition(" writes at ")[2].partition(" carries ")
        tokens, place, whole = self.tokens.roll(1, 0).clone(), self._place(at), self.clean.roll(1, 0)
        if variable != "the answer":
            role = self.roles[variable]
            other = self.tokens[self.rows, role].roll(7)
            tokens[self.rows, role.roll(1)] = other
            changed = self.tokens.clone()
            changed[self.rows, role] = other
            whole = self.model(changed)[self.rows, self.position].detach()
        written = self._value(part).clone()
        written[self.rows, place] = self._value(part, self._cached(tokens))[self.rows, place.roll(1)]
        moved = self._moved(whole, self.clean, self._end([self._put(part, written)]))
        return None if len(moved) < 8 else [[moved - LEAST]]

    def _looks_up(self, text: str) -> Cases | None:
        """So it does, and the answer lies above most answers of other prompts in what it writes."""
        part, (variable, at) = _parts(text)[0], text.rstrip(".").partition(" from ")[2].rsplit(" at ", 1)
        carries = self._carries(f"What {part} writes at {at} carries {variable}.")
        weight = self.model.ln_final.w
        written = self._value(part)[self.rows, self._place(at)]
        logits = ((written if weight is None else written * weight) @ self.model.W_U)[:, self.correct.unique()]
        own = (written if weight is None else written * weight) @ self.model.W_U
        above = (own[self.rows, self.correct][:, None] >= logits).double().mean(1)
        return None if carries is None else [[*carries[0], above - 0.75]]

    def _few_neurons(self, text: str, neurons: list[int]) -> Cases:
        part = _parts(text)[0]
        point = f"blocks.{part.layer}.mlp.hook_post"

        def keep(post: Tensor) -> Tensor:
            new = self.source[point].clone()
            new[..., neurons] = post[..., neurons]
            return new

        return [[0.2 * self._resampled(part) - self._lost([(point, keep)])[0]]]

    def _place(self, role: str) -> Tensor:
        return self.position if role == "end" else self.roles[role]

    def _needs_input(self, text: str) -> Cases:
        receiver, *senders = _parts(text)
        return self._path(senders[0] if senders else None, receiver)

    def _feeds(self, text: str) -> Cases:
        sender, receiver = _parts(text)
        return self._path(sender, receiver)

    def _path(self, sender: Component | None, receiver: Component) -> Cases:
        """The direct path from a component, or from the token embeddings."""
        embedded = "blocks.0.hook_resid_pre"
        change = self.source[embedded] - self.cache[embedded]
        if sender is not None:
            change = self._output(sender, self.source) - self._output(sender)
        if receiver.head is None:
            block = self.model.blocks[receiver.layer]
            new = self._normed(block.ln2, self.cache[f"blocks.{receiver.layer}.hook_resid_mid"] + change)
            lost = self._lost([(f"blocks.{receiver.layer}.ln2.hook_normalized", lambda _: new)])[0]
        else:
            point = f"blocks.{receiver.layer}.ln1.hook_normalized"
            read = self.cache[f"blocks.{receiver.layer}.hook_resid_pre"] + change
            new = self._normed(self.model.blocks[receiver.layer].ln1, read)
            z = self._kept([(point, lambda _: new)], f"blocks.{receiver.layer}.attn.hook_z")
            lost = self._lost([self._put(receiver, z[:, :, receiver.head])])[0]
        sign = 1.0 if float(lost.mean()) >= 0 else -1.0
        return [[sign * lost - LEAST_CUT]]

    # Interventions.

    def _neutral(self, part: Component) -> tuple[Tensor, Tensor]:
        """Zeros, and the mean over the counterfactual prompts and positions."""
        own = self._value(part)
        return torch.zeros_like(own), self._mean(part).expand_as(own)

    def _mean(self, part: Component) -> Tensor:
        """The mean over the positions of the counterfactual prompts, without padding."""
        return self._value(part, self.source)[self.mask.bool()].mean(0)

    def _resampled(self, *parts: Component) -> Tensor:
        return self._lost([self._put(part, self._value(part, self.source)) for part in parts])[0]

    def _zeroed(self, parts: Sequence[Component]) -> list[Edit]:
        return [self._put(part, torch.zeros_like(self._value(part)), end=True) for part in parts]

    def _put(self, part: Component, value: Tensor, *, end: bool = False) -> Edit:
        """Another value of a head's z or of what an MLP writes, everywhere or at the answer position."""

        def edit(written: Tensor) -> Tensor:
            written = written.clone()
            own = written if part.head is None else written[:, :, part.head]
            if end:
                own[self.rows, self.position] = value[self.rows, self.position]
            else:
                own.copy_(value)
            return written

        return _point(part), edit

    def _cut(self, head: Component, role: str, query: str, *, rescale: bool) -> Edit:
        """A head's attention from one role's position to another's set to zero."""
        at = self._place(query)

        def edit(pattern: Tensor) -> Tensor:
            pattern = pattern.clone()
            own = pattern[self.rows, head.head, at]
            own[self.rows, self.roles[role]] = 0.0
            pattern[self.rows, head.head, at] = own / own.sum(-1, keepdim=True) if rescale else own
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
            values[self.rows, self.position] = cache[read][self.rows, self.position]
            return values

        return [(attention, attend), (read, keep)]

    # Runs.

    @torch.no_grad()
    def _end(self, edits: Sequence[Edit]) -> Tensor:
        """Logits at the answer position."""
        hooks = [(point, lambda value, hook, edit=edit: edit(value)) for point, edit in edits]
        logits = self.model.run_with_hooks(self.tokens, fwd_hooks=hooks)
        return logits[self.rows, self.position]

    @torch.no_grad()
    def _kept(self, edits: Sequence[Edit], point: str) -> Tensor:
        kept: list[Tensor] = []
        hooks = [(name, lambda value, hook, edit=edit: edit(value)) for name, edit in edits]
        self.model.run_with_hooks(self.tokens, fwd_hooks=[*hooks, (point, lambda value, hook: kept.append(value))])
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

    def _lost(self, edits: Sequence[Edit]) -> tuple[Tensor, Tensor]:
        """Of each prompt, the share of the logit difference, and the right answer, that is lost."""
        after = self._end(edits)
        score = (self._difference(self.clean) - self._difference(after)) / self.scale
        return score, self._right(self.clean) - self._right(after)

    def _lost_without(self, parts: Sequence[Component]) -> tuple[Tensor, Tensor]:
        """The same where these are zeroed, measured once for each set."""
        key = tuple(sorted(parts))
        if key not in self._without:
            self._without[key] = self._lost(self._zeroed(key))
        return self._without[key]

    def _right(self, logits: Tensor) -> Tensor:
        return (logits.argmax(-1) == self.correct).float()

    def _difference(self, logits: Tensor) -> Tensor:
        return logits[self.rows, self.correct] - logits[self.rows, self.wrong]

    def _margin(self, logits: Tensor, rival: Tensor) -> Tensor:
        return logits[self.rows, rival] - logits[self.rows, self.clean.argmax(-1)]

    def _final(self) -> Tensor:
        last = self.model.config.n_layers - 1
        return self.cache[f"blocks.{last}.hook_resid_post"][self.rows, self.position]

    @torch.no_grad()
    def _lens(self, vector: Tensor, *, fixed: bool = True) -> Tensor:
        """The logit difference of a vector in the final residual stream; `fixed`: the norm's scale is the clean one."""
        if fixed:
            return self._difference(self._scaled(self.model.ln_final, vector, self._final()) @ self.model.W_U)
        return self._difference(self._normed(self.model.ln_final, vector) @ self.model.W_U)

    def _sides(self, vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What a vector in the final residual stream adds to the right logit, to the wrong one and to the others."""
        logits = self._scaled(self.model.ln_final, vector, self._final()) @ self.model.W_U
        right, wrong = logits[self.rows, self.correct], logits[self.rows, self.wrong]
        return right, wrong, (logits.sum(1) - right - wrong) / (logits.shape[1] - 2)

    def _scaled(self, norm: Any, vector: Tensor, stream: Tensor) -> Tensor:
        """What a norm makes of a vector at the scale that the stream has, without its bias."""
        if self.model.config.norm == "layer":
            vector, stream = (x - x.mean(-1, keepdim=True) for x in (vector, stream))
        return vector / (stream.pow(2).mean(-1, keepdim=True) + self.model.config.norm_eps).sqrt() * norm.w

    def _normed(self, norm: Any, stream: Tensor) -> Tensor:
        scaled = self._scaled(norm, stream, stream)
        return scaled if norm.b is None else scaled + norm.b

    def _role(self, text: str) -> str | None:
        """The role that a sentence names: the longest of those in it, the answer position apart."""
        found = [role for role in self.roles if role != "end" and re.search(rf"\b{re.escape(role)}\b", text)]
        return max(found, key=len, default=None)

    def _mass(self, head: Component, role: str, query: str = "end") -> Tensor:
        pattern = self.cache[f"blocks.{head.layer}.attn.hook_pattern"][:, head.head]
        return pattern[self.rows, self._place(query), self.roles[role]]


def _point(part: Component) -> str:
    return f"blocks.{part.layer}.{'hook_mlp_out' if part.head is None else 'attn.hook_z'}"


def _parts(text: str) -> list[Component]:
    names = dict.fromkeys(re.findall(r"L\d+(?:H\d+|_MLP)", text))
    return [Component.parse(name) for name in names]


def _judged(margin: Tensor) -> int:
    """The place in `ORDER` of a figure less its bar."""
    if float(margin.mean()) > 0:
        return 2
    error = float(margin.std()) / len(margin) ** 0.5
    return int(float(margin.mean()) + 2 * error > 0)


def natural_explanations(directory: Path) -> Iterator[dict[str, Any]]:
    """The explanations of natural models under a directory."""
    for path in sorted(directory.rglob("*.json")):
        document = json.loads(path.read_text())
        if "components" in document and document.get("behaviour"):
            yield document


def check_explanation(document: Mapping[str, Any], checks: Mapping[str, PlainCheck]) -> list[dict[str, Any]]:
    """Every decided claim of an explanation, measured again on the prompts of each check, by its name."""
    rows = []
    for part in document["components"]:
        for claim in part["claims"]:
            if claim["verdict"] not in ("supported", "refuted"):
                continue
            found = {
                name: check.outcome(claim["kind"], claim["text"], claim.get("prediction"))
                for name, check in checks.items()
            }
            rows.append({"kind": claim["kind"], "text": claim["text"], "verdict": claim["verdict"], **found})
    return rows


def main() -> None:
    """Measure the claims of all explanations in a directory again and count what becomes of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    splits = {"fresh prompts": "test", "other templates": "validation"}
    counts: Counter[tuple[str, str, str]] = Counter()
    wrong, of = [], []
    checks: dict[tuple[str, str], dict[str, PlainCheck]] = {}
    for document in natural_explanations(arguments.directory):
        of.append({key: document[key] for key in ("specimen", "behaviour", "seed")})
        subject = document["specimen"], document["behaviour"]
        if subject not in checks:
            specimen = ves.load(subject[0], behaviour=subject[1])
            made = {name: PlainCheck(specimen, arguments.prompts, split=split) for name, split in splits.items()}
            checks[subject] = made
        for row in check_explanation(document, checks[subject]):
            for name in splits:
                counts[name, row["verdict"], str(row[name])] += 1
            if row["verdict"] == "supported" and "false" in (row[name] for name in splits):
                wrong.append({"behaviour": document["behaviour"], "seed": document["seed"], **row})
    for key, count in sorted(counts.items()):
        print(*key, count, sep=", ")
    for row in wrong:
        print(row)
    if arguments.out:
        table = [
            {"on": on, "verdict": verdict, "outcome": found, "claims": n} for (on, verdict, found), n in counts.items()
        ]
        data = {"prompts": arguments.prompts, "explanations": of, "counts": table, "supported_but_false": wrong}
        write_json(arguments.out, {"benchmark": "plain_claims", **data})


if __name__ == "__main__":
    main()
