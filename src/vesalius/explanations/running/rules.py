"""The rules that attention programs are made of: from the tokens of a prompt to the keys that each query looks at.

A rule reads token ids, positions and classes of tokens, never labels: no role of a behaviour, and nothing that says
where the answer stands. A query that a rule gives no key looks at the first token, as heads do that have nothing to
look for. Weights are even over the keys of a query, but for `near N`, which falls by a factor e every N tokens.

    BOS, self, K back, near N, uniform               by position alone
    earlier copy, after earlier copy                 the same token before, and the token after it
    after earlier pair                               likewise, where the token before agrees too
    copy of previous token                           where the token before this one stood earlier
    last CLASS, all CLASS                            the nearest token of a class, or all of them
    sentence start                                   the token after the last stop
    repeated name, first of repeated name,           capitalised words that come twice (where, and where first), and
    unrepeated name                                  those that came once so far
    named items, item named last                     where items of a list came again after it, and where one did last
    place of item named last, next item, items left  where that item stands in the list, the one after it, and those
                                                     that did not come again

An item of a list is a token between commas that has another beside it: `a, b, c`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.builtin import words_of
from vesalius.behaviours.prompts import Prompts
from vesalius.components import Component
from vesalius.errors import BadInput, choices
from vesalius.explanations.atlas.text import class_of
from vesalius.intervene import Batch
from vesalius.intervene.engine import Cost
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.transformer import Transformer

#: How far back, and over how many tokens, the rules by position look that a fit tries.
BACK, NEAR = (1, 2, 3, 4, 5, 6), (2, 5, 15)
NAME = "capitalised word"
STOP, COMMA, FUNCTION = "stop", "comma", "function word"
PART = "part of a word"
CLASSES = (STOP, COMMA, "line break", "number", "punctuation", FUNCTION, "word", NAME, PART)
SEEN = "seen before"
#: What a query may be asked in an `if`.
CONDITIONS = (SEEN, *CLASSES)
BOS, SELF, UNIFORM = "BOS", "self", "uniform"
_FUNCTION_WORDS = frozenset(
    words_of(
        """
        a an the and or but if of to in on at by for from with as is are was were be been it its he she they we you i
        his her their our your my this that these those not no do did does has had have will would can could who
        which what when where than then so there up out into over after before
        """
    )
)
_COUNTED = re.compile(r"(?:(\d{1,3}) back|near (\d{1,3}))")


@dataclass(frozen=True)
class Tokens:
    """Prompts as rules see them: ids, which of them are no padding, how many stand for BOS, and where each class of
    tokens is.
    """

    ids: Int[Tensor, "prompt pos"]
    real: Bool[Tensor, "prompt pos"]
    first: int
    classes: Mapping[str, Bool[Tensor, "prompt pos"]]
    _known: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, specimen: Specimen, batch: Batch, first: int) -> "Tokens":
        """The prompts of a model. A vocabulary without text has no classes."""
        ids = batch.tokens.cpu()
        real = torch.ones_like(ids, dtype=torch.bool) if batch.mask is None else batch.mask.cpu()
        if not isinstance(specimen.vocabulary, TextVocabulary):
            return cls(ids, real, first, {})
        distinct = ids.unique()
        named = [classes_of(piece) for piece in specimen.pieces(distinct)]
        place = torch.searchsorted(distinct, ids)
        after_bos = real & (torch.arange(ids.shape[1]) >= first)
        here = {one: torch.tensor([one in names for names in named])[place] & after_bos for one in CLASSES}
        return cls(ids, real, first, here)

    @property
    def queries(self) -> Bool[Tensor, "prompt query"]:
        """What programs are asked about: all tokens but padding, BOS, and a first one, which sees only itself."""
        return self.real & (torch.arange(self.ids.shape[1]) >= max(1, self.first))

    def seen(self) -> Bool[Tensor, "query key"]:
        """Which keys come before a query, or are it."""
        n = self.ids.shape[1]
        return torch.ones(n, n, dtype=torch.bool).tril()

    def holds(self, condition: str) -> Bool[Tensor, "prompt query"]:
        """For which queries a condition holds."""
        if condition == SEEN:
            return self.copies().any(-1)
        return self.classes.get(condition, torch.zeros_like(self.real))

    def copies(self) -> Bool[Tensor, "prompt query key"]:
        """Earlier places of each query's token; BOS is no copy."""
        if SEEN not in self._known:
            place = torch.arange(self.ids.shape[1])
            counted = self.real & (place >= self.first)
            same = self.ids[:, :, None] == self.ids[:, None, :]
            self._known[SEEN] = same & counted[:, :, None] & counted[:, None, :] & (place[None, :] < place[:, None])
        return self._known[SEEN]

    def look(self, rule: str) -> tuple[Float[Tensor, "prompt query key"], Bool[Tensor, "prompt query"]]:
        """Where each query looks by a rule, and which queries have a key of the rule's own."""
        weights = _weights(rule)(self).float() * self.real[:, None, :]
        total = weights.sum(-1, keepdim=True)
        own = total[..., 0] > 0
        weights = torch.where(own[..., None], weights / total.clamp(min=1e-9), _first(self))
        return weights, own & self.real


def classes_of(piece: str) -> tuple[str, ...]:
    """The classes of a token by its text."""
    bare, name = piece.strip(), class_of(piece)
    if bare and all(letter in ".!?" for letter in bare):
        return STOP, name
    if bare == ",":
        return COMMA, name
    if bare.lower() in _FUNCTION_WORDS and name != "part of a word":
        return FUNCTION, *(() if name == "word" else (name,))
    return (name,)


def library(tokens: Sequence[Tokens]) -> list[str]:
    """The rules that a fit tries on these prompts: classes only where there are some."""
    classes = [one for one in CLASSES if any(bool(part.holds(one).any()) for part in tokens)]
    of_classes = [f"{which} {one}" for one in classes for which in ("last", "all")]
    names = [rule for rule in _NAMES if NAME in classes]
    sentence = ["sentence start"] if STOP in classes else []
    lists = list(_LISTS) if any(part.look("named items")[1].any() for part in tokens) else []
    return [*positional(), *_BY_TOKEN, *of_classes, *sentence, *names, *lists]


def positional() -> list[str]:
    """The rules that read no token."""
    return [BOS, SELF, *(f"{k} back" for k in BACK), *(f"near {n}" for n in NEAR), UNIFORM]


def is_positional(rule: str) -> bool:
    """Whether a rule reads no token."""
    return rule in (BOS, SELF, UNIFORM) or _COUNTED.fullmatch(rule) is not None


def require_rule(rule: str) -> None:
    """Refuse a rule that does not exist."""
    _weights(rule)


def target(rule: str) -> str:
    """What a rule looks at, in words."""
    if rule in _TARGETS:
        return _TARGETS[rule]
    if (counted := _COUNTED.fullmatch(rule)) is not None:
        back, near = counted.groups()
        if back is None:
            return f"itself and the tokens before, less by a factor e every {near} tokens"
        return "the token before" if int(back) == 1 else f"the token {int(back)} before"
    which, _, name = rule.partition(" ")
    return f"the nearest {name}" if which == "last" else f"every {name} so far"


def asked(condition: str) -> str:
    """What a condition asks of a query's token, in words."""
    if condition == SEEN:
        return "the token came before"
    article = "" if condition in ("punctuation", PART) else "a "
    return f"the token is {article}{condition}"


def _weights(rule: str) -> Callable[[Tokens], Tensor]:
    """How a rule weighs the keys of each query, before they are normalised."""
    if rule in _RULES:
        return _RULES[rule]
    if (counted := _COUNTED.fullmatch(rule)) is not None:
        back, near = counted.groups()
        if back is not None:
            return lambda tokens: _back(tokens, int(back))
        if int(near):
            return lambda tokens: _near(tokens, int(near))
    which, _, name = rule.partition(" ")
    if which in ("last", "all") and name in CLASSES:
        return lambda tokens: _of_class(tokens, name, nearest=which == "last")
    known = [
        BOS,
        SELF,
        UNIFORM,
        "K back",
        "near N",
        *_BY_TOKEN,
        "last CLASS",
        "all CLASS",
        "sentence start",
        *_NAMES,
        *_LISTS,
    ]
    raise BadInput(
        f"attention rule {rule!r} does not exist; choose one of {choices(known)}; CLASS is {choices(CLASSES)}"
    )


def _first(tokens: Tokens) -> Float[Tensor, "prompt query key"]:
    weights = torch.zeros(*tokens.ids.shape, tokens.ids.shape[1])
    weights[:, :, 0] = 1.0
    return weights


def _back(tokens: Tokens, steps: int) -> Tensor:
    place = torch.arange(tokens.ids.shape[1])
    back = place[:, None] - place[None, :]
    return ((back == steps) & (place[None, :] >= tokens.first)).expand(len(tokens.ids), -1, -1)


def _near(tokens: Tokens, decay: int) -> Tensor:
    place = torch.arange(tokens.ids.shape[1])
    back = (place[:, None] - place[None, :]).float()
    weights = torch.exp(-back / decay) * (back >= 0) * (place[None, :] >= tokens.first)
    return weights.expand(len(tokens.ids), -1, -1)


def _uniform(tokens: Tokens) -> Tensor:
    return tokens.seen().expand(len(tokens.ids), -1, -1)


def _after(copies: Tensor) -> Tensor:
    """The key after each of these."""
    after = torch.zeros_like(copies)
    after[:, :, 1:] = copies[:, :, :-1]
    return after


def _after_copy(tokens: Tokens) -> Tensor:
    return _after(tokens.copies())


def _after_pair(tokens: Tokens) -> Tensor:
    copies = tokens.copies()
    before = torch.zeros_like(copies)
    before[:, 1:, 1:] = copies[:, :-1, :-1]
    return _after(copies & before)


def _copy_of_previous(tokens: Tokens) -> Tensor:
    copies = torch.zeros_like(tokens.copies())
    copies[:, 1:] = tokens.copies()[:, :-1]
    return copies


def _of_class(tokens: Tokens, name: str, *, nearest: bool) -> Tensor:
    here = tokens.classes.get(name, torch.zeros_like(tokens.real))
    keys = here[:, None, :] & tokens.seen()
    return _nearest(keys) if nearest else keys


def _nearest(keys: Bool[Tensor, "prompt query key"]) -> Bool[Tensor, "prompt query key"]:
    """The last key of each query."""
    later = keys.flip(-1).long().cumsum(-1).flip(-1)
    return keys & (later == 1)


def _sentence_start(tokens: Tokens) -> Tensor:
    stops = tokens.classes.get(STOP, torch.zeros_like(tokens.real))
    starts = torch.zeros_like(stops)
    starts[:, 1:] = stops[:, :-1]
    if tokens.first < starts.shape[1]:
        starts[:, tokens.first] = True
    return _nearest((starts & tokens.real)[:, None, :] & tokens.seen())


def _repeated(tokens: Tokens, *, where: str) -> Tensor:
    """Names up to each query: where one came again, where it stood first, or those that came once."""
    names = tokens.classes.get(NAME, torch.zeros_like(tokens.real))
    named = tokens.copies() & names[:, None, :] & names[:, :, None]
    again = named.any(-1)  # a name that was there before
    if where == "again":
        return _nearest(again[:, None, :] & tokens.seen())
    later = named.transpose(1, 2)  # [earlier place, later place]
    repeated_by = (later[:, None] & tokens.seen()[None, :, None, :]).any(-1)  # [query, key]: has come again by then
    if where == "first":
        return repeated_by & ~again[:, None, :] & tokens.seen()
    once = names[:, None, :] & ~again[:, None, :] & ~repeated_by
    return once & tokens.seen()


def _items(tokens: Tokens) -> Bool[Tensor, "prompt query item"]:
    """The items of lists of which each query sees enough to say so: three tokens on."""
    comma = tokens.classes.get(COMMA, torch.zeros_like(tokens.real))
    wide = torch.nn.functional.pad(comma, (3, 3))
    n = comma.shape[1]
    before, after, third, last = (wide[:, 3 + by : 3 + by + n] for by in (-1, 1, 3, -3))
    items = ~comma & tokens.real & ((before & after) | (after & third) | (before & last))
    return items[:, None, :] & torch.ones(n, n, dtype=torch.bool).tril(-3)


def _of_list(tokens: Tokens, *, where: str) -> Tensor:
    """Items of a list that a token up to each query names again: where it does (`all`, or the `last`), their `place` in
    the list and the `next` one after it; and those that are `left`.
    """
    known = _items(tokens)
    mentions = tokens.copies() & known  # [where an item is named, the item]
    named = mentions.any(-1)[:, None, :] & tokens.seen()
    if where == "left":
        so_far = torch.einsum("bqm,bmi->bqi", named.float(), mentions.float()) > 0
        return known & ~so_far & named.any(-1, keepdim=True)
    if where == "all":
        return named
    last = _nearest(named)
    if where == "last":
        return last
    place = torch.einsum("bqm,bmi->bqi", last.float(), mentions.float()) > 0
    if where == "place":
        return place
    return _after(_after(place) & tokens.classes.get(COMMA, torch.zeros_like(tokens.real))[:, None, :])


_BY_TOKEN = ("earlier copy", "after earlier copy", "after earlier pair", "copy of previous token")
_NAMES = ("repeated name", "first of repeated name", "unrepeated name")
_LISTS = ("named items", "item named last", "place of item named last", "next item", "items left")
_RULES: dict[str, Callable[[Tokens], Tensor]] = {
    BOS: _first,
    SELF: lambda tokens: _back(tokens, 0),
    UNIFORM: _uniform,
    "earlier copy": Tokens.copies,
    "after earlier copy": _after_copy,
    "after earlier pair": _after_pair,
    "copy of previous token": _copy_of_previous,
    "sentence start": _sentence_start,
    "repeated name": lambda tokens: _repeated(tokens, where="again"),
    "first of repeated name": lambda tokens: _repeated(tokens, where="first"),
    "unrepeated name": lambda tokens: _repeated(tokens, where="once"),
    "named items": lambda tokens: _of_list(tokens, where="all"),
    "item named last": lambda tokens: _of_list(tokens, where="last"),
    "place of item named last": lambda tokens: _of_list(tokens, where="place"),
    "next item": lambda tokens: _of_list(tokens, where="next"),
    "items left": lambda tokens: _of_list(tokens, where="left"),
}

_TARGETS = {
    BOS: "the first token",
    SELF: "itself",
    UNIFORM: "all tokens so far",
    "earlier copy": "earlier copies of the token",
    "after earlier copy": "what came after earlier copies of the token",
    "after earlier pair": "what came after earlier copies of the token and the one before",
    "copy of previous token": "earlier copies of the token before",
    "sentence start": "the start of the sentence",
    "repeated name": "the last capitalised word that had come before",
    "first of repeated name": "where capitalised words stood first that came again",
    "unrepeated name": "capitalised words that came once",
    "named items": "where items of a list were named again",
    "item named last": "where an item of a list was last named again",
    "place of item named last": "the place in the list of the item last named again",
    "next item": "the item in the list after the one last named again",
    "items left": "items of a list that were not named again",
}


# What heads read in place of their own values: each token alone, or what the variables of a prompt determine.
#
# Alone, a token stands after BOS. A variable is whatever the words at a prompt's roles determine, its places
# included: it is read off a donor, another prompt with the same words at the same roles in the same order, and
# everything else different. What a head reads at a role, or at the position whose answer is read, is then the
# donor's; elsewhere the token alone. Of a word of several tokens the last one is the donor's too. A prompt without a
# donor has tokens alone.

AT_ONCE = 256


@dataclass(frozen=True)
class Values:
    """What each key-value head of some layers reads, for every prompt and position; `layers` are their numbers."""

    table: Float[Tensor, "layer prompt pos kv d_head"]
    layers: Sequence[int]
    group: int

    @property
    def vectors(self) -> Float[Tensor, "vector pos d_head"]:
        """One row for every layer, key-value head and prompt."""
        return self.table.permute(0, 3, 1, 2, 4).flatten(0, 2)

    def place(self, head: Component) -> Int[Tensor, " prompt"]:
        """The rows of a head."""
        assert head.head is not None
        _, n, _, kv, _ = self.table.shape
        return (self.layers.index(head.layer) * kv + head.head // self.group) * n + torch.arange(n)


def token_values(
    model: Transformer, tokens: Tokens, heads: Sequence[Component], prefix: Sequence[int], cost: Cost
) -> Values:
    """What heads read where each token stands alone after `prefix`."""
    first, layers = len(prefix), sorted({head.layer for head in heads})
    distinct, where = tokens.ids.unique(return_inverse=True)
    alone = torch.cat([torch.tensor(prefix).expand(len(distinct), first).long(), distinct[:, None]], 1)
    table = _read(model, alone, layers)
    cost.rows += len(alone) * alone.shape[1] / tokens.ids.shape[1]
    here = table[:, where, -1]
    if first:  # BOS has nothing before it
        here[:, :, :first] = table[:, :1, :first].expand(-1, len(where), -1, -1, -1)
    return Values(here, layers, model.config.n_heads // table.shape[3])


def variable_values(model: Transformer, alone: Values, prompts: Prompts, cost: Cost) -> Values | None:
    """What heads read where the words at a prompt's roles are given and nothing else; None without any donor."""
    places = torch.stack([*prompts.roles.values(), prompts.position], 1)
    rows, of = donors(prompts)
    if not len(rows):
        return None
    tokens = prompts.tokens[of].clone()
    roles = places[:, :-1]
    tokens.scatter_(1, roles[of], prompts.tokens[rows].gather(1, roles[rows]))
    table = alone.table.clone()
    read = _read(model, tokens, alone.layers)
    cost.rows += len(rows)
    for place in range(places.shape[1]):
        table[:, rows, places[rows, place]] = read[:, torch.arange(len(rows)), places[of, place]]
    return replace(alone, table=table)


def donors(prompts: Prompts) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Prompts that have a donor, and the donor of each: of those whose roles stand in the same order the one that
    shares the fewest of its other tokens.
    """
    if not prompts.roles:
        return torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long)
    roles = torch.stack(list(prompts.roles.values()), 1)
    order = [row.argsort(stable=True).tolist() for row in roles]
    others = prompts.mask.scatter(1, roles, value=False)
    rest = [set(tokens[here].tolist()) for tokens, here in zip(prompts.tokens, others, strict=True)]
    rows, of = [], []
    for row, kind in enumerate(order):
        like = [other for other, its in enumerate(order) if its == kind and other != row]
        if like:
            rows.append(row)
            of.append(min(like, key=lambda other: (len(rest[row] & rest[other]), other)))
    return torch.tensor(rows, dtype=torch.long), torch.tensor(of, dtype=torch.long)


@torch.no_grad()
def _read(
    model: Transformer, tokens: Int[Tensor, "prompt pos"], layers: Sequence[int]
) -> Float[Tensor, "layer prompt pos kv d_head"]:
    """The values of every key-value head of some layers."""
    names, found = [f"blocks.{layer}.attn.hook_v" for layer in layers], []
    for part in tokens.split(AT_ONCE):
        choose = torch.zeros(len(part), 1, dtype=torch.long, device=model.device)
        _, cache = model.run_with_cache(part.to(model.device), names=names, choose=choose)
        found.append(torch.stack([cache[name].cpu() for name in names]))
    return torch.cat(found, 1)
