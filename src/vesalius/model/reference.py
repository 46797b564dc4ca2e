"""Our logits against those of transformers' own module, for one model.

Both run the same token ids on the same weights, one prompt at a time. In float32 the two may differ by rounding alone
(`float32_tolerance`). In half precision any two correct programs differ by much more, so the yardstick is transformers
in float32, and the difference of transformers' own half precision from it stands beside ours. Where transformers is not
installed, or does not read files of this kind, there is nothing to compare with and the answer says so.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import computed_field
from torch import Tensor

from vesalius.documents.answers import agreement_answer
from vesalius.documents.base import Answered
from vesalius.documents.view import Answer, Facts, View, Viewable, cell
from vesalius.errors import BadInput, Failed
from vesalius.model import huggingface
from vesalius.model.config import Config
from vesalius.model.devices import weight_bytes, weight_dtype
from vesalius.model.sources import LoadedModel

#: Ordinary sentences, code and numbers; models without a tokenizer get random ids instead.
PROMPTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "When Mary and John went to the store, John gave a drink to",
    "def add(a, b):\n    return a +",
    "1, 2, 3, 4, 5,",
    "Once upon a time there was a little girl who",
    "The opposite of hot is",
    "In 1969, the first people landed on the",
    'She said: "I will be back before',
)
RANDOM_LENGTH = 32
#: Tokens by which a long prompt goes beyond a window or a limit of the rotation.
BEYOND = 16
#: The longest prompt made to reach a limit, and the most tokens times weights on a processor (half a minute or so).
LONGEST_PROMPT, MOST_WORK = 8192, 4e11
#: How many times the expected size of rounding errors is still taken for rounding, since the largest of many is
#: compared: in float32, and in half precision, where transformers' own error is known as well.
MARGIN, HALF_MARGIN = 8, 4
HALF = (torch.bfloat16, torch.float16)


class Agreement(Answered, Viewable):
    """How far two implementations of a model are apart: the largest difference of any logit at any position.

    `agrees` says whether it is within `tolerance`. `compared_with`, `max_difference`, `tolerance` and `agrees` are None
    where there was nothing to compare with; `max_difference` is also None where logits are no numbers (`not_finite` of
    them). In half precision the comparison is with transformers in float32, from which its own half precision is
    `reference_difference` away. There, a router may choose other experts at a near tie, and all that follows changes:
    models with experts are judged by `median_difference`, that of the median position. `not_reached`
    lists limits that no prompt was long enough for. `wrapped` is why the model runs in transformers' own modules, and
    `lacks` what must be installed before anything can be compared. `model` is the one that was asked about, where a
    command can name it.
    """

    family: str
    dtype: str
    device: str
    compared_with: str | None
    max_difference: float | None
    n: int
    tolerance: float | None = None
    agrees: bool | None = None
    reference_difference: float | None = None
    median_difference: float | None = None
    not_finite: int = 0
    longest: int = 0
    not_reached: tuple[str, ...] = ()
    model: str | None = None
    wrapped: str | None = None
    lacks: str | None = None

    def answered(self) -> Answer:
        """Whether rounding explains the difference; then the behaviours of the model, or what would make it clear."""
        said = f"{self.family}: {self.describe()}"
        answer = agreement_answer(said, self.agrees, unreached=bool(self.not_reached))
        if self.agrees is None:
            return replace(answer, then=self.lacks)
        if self.model is None:
            return answer
        half = self.agrees is False and self.dtype != "float32"
        words = ("check", self.model, "--dtype", "float32") if half else ("behaviours", self.model)
        return answer if self.agrees is False and not half else replace(answer, then=shlex.join(("vesalius", *words)))

    def view(self) -> View:
        """The answer, and what was compared."""
        compared = [
            ("compared with", self.compared_with or "nothing"),
            ("largest difference", cell(self.max_difference)),
            ("explained by rounding up to", cell(self.tolerance)),
            ("computed on", f"{self.device}, {self.dtype}, {self.n} prompts of up to {self.longest} tokens"),
        ]
        return View(f"{self.family}: compared with transformers", self.answered(), [Facts(compared)])

    @computed_field
    @property
    def summary(self) -> str:
        """The answer without its verdict, in one line."""
        return self.describe()

    def describe(self) -> str:
        """One line."""
        prompts = f"({self.dtype}, {self.n} prompts)"
        if self.lacks:
            return "nothing was compared, since transformers is not installed"
        if self.agrees is None:
            return "nothing was compared, since transformers cannot load this model here"
        if self.not_finite:
            verdict = f"DIFFERS: {self.not_finite} logits are no numbers {prompts}"
        elif self.agrees:
            verdict = f"agrees to {self.max_difference:.0e} {prompts}"
        else:
            judged = self.max_difference if self.median_difference is None else self.median_difference
            verdict = f"DIFFERS by {judged:.0e}, more than {self.tolerance:.0e} {prompts}"
        if self.median_difference is not None:
            verdict += f"; by {self.median_difference:.0e} at the median position, since near ties of experts may flip"
        if self.reference_difference is not None:
            own = f"{self.reference_difference:.0e}"
            verdict += f"; compared with transformers in float32, from which its own {self.dtype} differs by {own}"
        if self.wrapped:
            verdict += (
                f"; wrapped ({self.wrapped}): transformers' own layers, slower than a family of `vesalius models`"
            )
        if self.not_reached:
            verdict += f"; not reached by prompts of up to {self.longest} tokens: {', '.join(self.not_reached)}"
        return verdict


@dataclass(frozen=True)
class References:
    """transformers' module with the weights of a model: `same` in its number format, and for half precision `exact`, a
    function that makes the one in float32.
    """

    same: Any
    exact: Callable[[], Any] | None = None


@torch.no_grad()
def compare(loaded: LoadedModel, references: References | None, *, n: int = len(PROMPTS), seed: int = 0) -> Agreement:
    """Compare a model with transformers' module of the same weights (None: nothing to compare with)."""
    model, prompts = loaded.model, prompt_ids(loaded, n, seed=seed)
    dtype, longest = str(weight_dtype(model)).removeprefix("torch."), max(map(len, prompts))
    unreached = tuple(words for words, limit in limits(model.config).items() if longest <= limit)
    reason = getattr(model, "reason", None)
    common = {
        "family": loaded.family,
        "dtype": dtype,
        "device": str(model.device),
        "n": len(prompts),
        "wrapped": reason,
    }
    if references is None:
        lacks = None if huggingface.installed() else huggingface.INSTALL
        return Agreement(compared_with=None, max_difference=None, longest=longest, lacks=lacks, **common)
    ours = [model(torch.tensor([ids], device=model.device)).float().cpu() for ids in prompts]
    same = _logits(references.same, prompts)
    yardstick = same if references.exact is None else _logits(references.exact(), prompts)
    far, not_finite = _differences(ours, yardstick)
    own = None if references.exact is None else _differences(same, yardstick)[0]
    sparse = own is not None and model.config.experts is not None
    judged = torch.median if sparse else torch.max
    size = max((float(one[one.isfinite()].abs().max()) for one in yardstick if one.isfinite().any()), default=0.0)
    limit = tolerance(model.config, weight_dtype(model), size=size, own=None if own is None else float(judged(own)))
    return Agreement(
        compared_with=f"transformers {huggingface.transformers().__version__}",
        max_difference=None if not_finite else float(far.max()),
        tolerance=limit,
        agrees=not not_finite and float(judged(far)) <= limit,
        reference_difference=None if own is None else float(own.max()),
        median_difference=float(far.median()) if sparse else None,
        not_finite=not_finite,
        longest=longest,
        not_reached=unreached,
        **common,
    )


def tolerance(config: Config, dtype: torch.dtype, *, size: float, own: float | None = None) -> float:
    """The largest difference that rounding explains, for logits of this size.

    A sum of d terms, rounded at every step, is off by about sqrt(d) unit roundoffs u of its size; 2 sums in each of L
    layers and the unembedding add their errors like independent ones. Both sides do so, hence sqrt(2). Half precision
    sums in float32 and rounds each result once, which leaves out sqrt(d); there the error of transformers' own half
    precision (`own`) is known as well, and the larger of the two counts.
    """
    roundoff, steps = torch.finfo(dtype).eps / 2, 2 * config.n_layers + 1
    terms = 1 if dtype in HALF else 2 * max(config.d_model, config.d_mlp)
    expected = roundoff * (terms * steps) ** 0.5 * size
    return MARGIN * expected if own is None else HALF_MARGIN * max(expected, own)


def limits(config: Config) -> dict[str, int]:
    """Lengths beyond which a model computes something else: windows and chunks, and rotations and queries that depend
    on the length.
    """
    lengths = {f"the window of {window} tokens": window for window in config.windows if window is not None}
    lengths |= {f"the first chunk of {chunk} tokens": chunk for chunk in config.chunks if chunk is not None}
    if (scale := config.query_scale) is not None and scale.strength:
        limit = scale.every - scale.first
        lengths[f"the first {limit} positions, beyond which queries grow"] = limit
    for rotary in {config.rotary_of(layer) for layer in range(config.n_layers)} - {None}:
        if rotary is not None and rotary.scaling in ("longrope", "dynamic"):
            lengths[f"the limit of {rotary.scaling} rotation, {rotary.original_n_ctx} tokens"] = rotary.original_n_ctx
    return {words: limit for words, limit in lengths.items() if limit < config.n_ctx}


def load_references(source: Any, loaded: LoadedModel) -> References | None:
    """transformers' own module with the same weights, or None where it cannot be had."""
    dtype = weight_dtype(loaded.model)
    if not isinstance(source, str) and hasattr(source, "state_dict"):
        same = source if source.dtype == dtype else _copy(source, dtype)
        return References(same, (lambda: _copy(same, torch.float32)) if dtype in HALF else None)
    if not huggingface.installed() or not (loaded.directory or loaded.gguf):
        return None

    def read(dtype: torch.dtype) -> Any:
        place, gguf = loaded.directory, None
        if loaded.gguf is not None:
            place, gguf = loaded.gguf.parent, loaded.gguf.name
        assert place is not None
        # Eager attention of transformers adds Falcon's biases of scores twice, the one that it takes by default once.
        twice = (alibi := loaded.model.config.alibi) is not None and alibi.scaled
        attention = "sdpa" if twice else "eager"
        reference = huggingface.read(place, dtype=dtype, label=loaded.label, gguf=gguf, attention=attention)
        return reference.to(loaded.model.device).eval()

    def exact() -> Any:
        model = read(torch.float32)
        model.load_state_dict(same.state_dict())  # weights of float32 files, rounded as they are in half precision
        return model

    same = read(dtype)
    return References(same, exact if dtype in HALF else None)


def _copy(model: Any, dtype: torch.dtype) -> Any:
    """A module in memory in another number format. It is made anew: one that was converted has rounded its table of
    rotary frequencies, which is not a weight.
    """
    made = type(model)(model.config)
    made.load_state_dict(model.state_dict())
    frequencies = {name: table.clone() for name, table in made.named_buffers() if name.endswith("inv_freq")}
    made.to(device=model.device, dtype=dtype)
    for name, table in frequencies.items():
        made.get_buffer(name).data = table.to(model.device)
    return made.eval()


def prompt_ids(loaded: LoadedModel, n: int, *, seed: int = 0) -> list[list[int]]:
    """Token ids to compare on: ordinary texts where there is a tokenizer, then random ids, then one prompt that is long
    enough to reach every window and limit that can be reached at a moderate cost.
    """
    config, prompts = loaded.model.config, []
    if loaded.tokenizer is not None:
        for text in PROMPTS[:n]:
            try:
                prompts.append(loaded.tokenizer.encode(text)[: config.n_ctx])
            except BadInput:  # a small vocabulary does not have these words
                continue
    shape = (n - len(prompts), min(RANDOM_LENGTH, config.n_ctx))
    random = torch.randint(0, config.d_vocab, shape, generator=torch.Generator().manual_seed(seed))
    prompts = [ids for ids in prompts if ids] + random.tolist()
    # The length that reaches the farthest limit that is not too far.
    n_weights = weight_bytes(loaded.model) / weight_dtype(loaded.model).itemsize
    most = LONGEST_PROMPT if loaded.model.device.type == "cuda" else min(LONGEST_PROMPT, int(MOST_WORK / n_weights))
    lengths = (min(limit + BEYOND, loaded.model.config.n_ctx) for limit in limits(loaded.model.config).values())
    longest, wanted = max(map(len, prompts)), max((length for length in lengths if length <= most), default=0)
    if wanted > longest:  # last: transformers' dynamic rotation remembers the longest prompt that it saw
        all_ids = [token for ids in prompts for token in ids]
        prompts.append((all_ids * (1 + wanted // len(all_ids)))[:wanted])
    return prompts


def _logits(reference: Any, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
    with _evaluating(reference):
        try:
            return [reference(torch.tensor([ids], device=reference.device)).logits.float().cpu() for ids in prompts]
        except RuntimeError as error:
            kind = str(reference.dtype).removeprefix("torch.")
            reason = str(error).splitlines()[0]
            raise Failed(f"transformers could not run its own module of this model in {kind} ({reason})") from None


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Without dropout; the caller's module is left as it was."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def _differences(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> tuple[Tensor, int]:
    """The largest difference at each position of logits that are numbers on both sides, and how many are no numbers:
    NaN, or infinite, unless both sides rule the token out (minus infinity).
    """
    largest, odd = [], 0
    for one, other in zip(ours, theirs, strict=True):
        both = one.isfinite() & other.isfinite()
        odd += int((~both & ~((one == other) & (one < 0))).sum())
        largest.append((one - other).abs().where(both, 0.0).amax(-1).flatten())
    return torch.cat(largest), odd
