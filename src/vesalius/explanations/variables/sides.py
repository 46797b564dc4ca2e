"""Bases and sources: the inputs whose parts are exchanged, in kinds that separate rival variables.

A base and its sources are sides of one `Case`. Where a source differs from its base is what its kind says, so that a
place which carries the repeated name can be distinguished from one that carries the place of the repeated name.

    behaviour      inputs of a program           kinds of sources
    ioi            first, second, subject        name, place, both, names, neither (another object)
    greater-than   start, unit, century, width   start, template, both, unit, neither (another event)
    capitals       country, capitals             country, template, both
    induction      tokens                        token, place, both, neither (other tokens around)
    addition       A, B, C, ...                  all, each operand alone, first two (A - B stays), result (it stays)
    any other      the words at its roles        counterfactual, or the kinds that its rows name

The splits of behaviours have templates and words of their own: what is found on one is graded on another.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vesalius.behaviours import builtin
from vesalius.behaviours.addition import Addition, Sums
from vesalius.behaviours.behaviour import Behaviour, TooFewPrompts
from vesalius.behaviours.prompts import Filled, Material, Prompts, fill
from vesalius.errors import BadInput
from vesalius.intervene.exchanging import END
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.tokenizer import Tokenizer

#: How often a case is drawn again before a split counts as exhausted.
TRIES = 400
#: The kind of a counterfactual whose row names none, and the most rows that are read to find all of a prompt.
UNNAMED, MOST_ROWS = "counterfactual", 1_000_000


@dataclass(frozen=True)
class Side:
    """One input: its tokens, what a program reads of it, and the position of each role."""

    tokens: tuple[int, ...]
    inputs: Mapping[str, Any]
    roles: Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """A base and its sources, by kind."""

    base: Side
    sources: Mapping[str, Side]


#: The token of an answer as it continues a side; None where it is not exactly one.
TokenOf = Callable[[Side, Any], int | None]
DrawCase = Callable[[random.Random, int], Case | None]


@dataclass(frozen=True)
class Sources:
    """Where cases come from: what each kind changes, the roles, and a way to draw."""

    kinds: Mapping[str, str]
    draw: DrawCase
    token_of: TokenOf

    def cases(self, n: int, seed: str) -> list[Case]:
        """Up to `n` cases with distinct bases."""
        rng = random.Random(seed)
        drawn: dict[tuple[int, ...], Case] = {}
        for _ in range(TRIES * n):
            if len(drawn) == n:
                break
            case = self.draw(rng, len(drawn))
            if case is not None:
                drawn.setdefault(case.base.tokens, case)
        return list(drawn.values())


def sources_of(specimen: Specimen, behaviour: Behaviour, split: str, *, n: int, seed: int) -> Sources:
    """The bases and sources of a behaviour's split."""
    assert isinstance(specimen.vocabulary, TextVocabulary)
    tokenizer, config = specimen.vocabulary.tokenizer, specimen.model.config
    material = Material(behaviour.label, tokenizer, split, config.d_vocab)
    if isinstance(behaviour, Addition):
        return _sums(material, behaviour)
    own = {"ioi": _ioi, "greater-than": _greater_than, "capitals": _capitals, "induction": _induction}
    if behaviour.name in own:
        return own[behaviour.name](material)
    return _counterfactuals(specimen, behaviour, split, n=n, seed=seed)


def continuation(tokenizer: Tokenizer, spelled: Callable[[Any], str]) -> TokenOf:
    """The token of an answer, which the behaviour writes as `spelled`."""
    known: dict[str, int | None] = {}

    def token_of(side: Side, answer: object) -> int | None:
        text = spelled(answer)
        if text not in known:
            known[text] = tokenizer.token(text) if tokenizer.is_single(text) else None
        return known[text]

    return token_of


def _side(
    material: Material,
    text: Filled,
    inputs: Mapping[str, object],
    roles: Mapping[str, str],
    *,
    after: Sequence[str] = (),
) -> Side | None:
    """A filled template as a side: `roles` maps each to the field whose last token has it; roles of `after` are
    followed by one at the next token.
    """
    tokens = material.tokenizer.encode(text.text)
    places: dict[str, int] = {}
    for role, field in roles.items():
        before = material.tokenizer.encode(text.text[: text.ends[field]])
        if before != tokens[: len(before)]:
            return None
        places[role] = len(before) - 1
        if role in after:
            places[f"after {role}"] = len(before)
    return Side(tuple(tokens), inputs, {**places, END: len(tokens) - 1})


def _case(base: Side | None, sources: Mapping[str, Side | None]) -> Case | None:
    if base is None or any(source is None for source in sources.values()):
        return None
    return Case(base, {kind: source for kind, source in sources.items() if source is not None})


def _ioi(material: Material) -> Sources:
    names = material.words(builtin.NAMES, at_least=5)
    places, objects = material.share(builtin.PLACES), material.share(builtin.OBJECTS)
    templates = material.share(builtin.IOI_TEMPLATES)
    roles = {"S2": "subject", "first": "first", "second": "second"}

    def draw(rng: random.Random, i: int) -> Case | None:
        (one, two, three, four), template = rng.sample(names, 4), templates[i // 2 % len(templates)]
        subject, other_name = (one, two) if i % 2 == 0 else (two, one)
        place, (thing, other_thing) = rng.choice(places), rng.sample(objects, 2)

        def side(first: str, second: str, subject: str, object: str) -> Side | None:
            words = {"first": first, "second": second, "subject": subject}
            text = fill(template, {**words, "place": place, "object": object})
            return _side(material, text, words, roles, after=("S2",))

        sources = {
            "both": side(one, two, other_name, thing),
            "place": side(two, one, subject, thing),
            "name": side(two, one, other_name, thing),
            "names": side(three, four, rng.choice((three, four)), thing),
            "neither": side(one, two, subject, other_thing),
        }
        return _case(side(one, two, subject, thing), sources)

    kinds = {
        "both": "the other name is repeated: name and place differ",
        "place": "the two names in the other order: only the place of the repeated name differs",
        "name": "the other order, and the other name repeated: only the repeated name differs",
        "names": "two other names",
        "neither": "another object",
    }
    return Sources(kinds, draw, continuation(material.tokenizer, lambda name: f" {name}"))


def _greater_than(material: Material) -> Sources:
    width = 1 if builtin.year_form(material.tokenizer) == "digits" else 2
    year = "{start}{unit}" if width == 1 else "{start}"
    periods, centuries = material.share(builtin.PERIODS), material.share(builtin.CENTURIES)
    templates = [
        template.replace("{start}", "{century}" + year) for template in material.share(builtin.GREATER_THAN_TEMPLATES)
    ]
    most = 10**width

    def draw(rng: random.Random, i: int) -> Case | None:
        (template, other_template), century = rng.sample(templates, 2), rng.choice(centuries)
        period, other_period = rng.sample(periods, 2)
        start = rng.randrange(most // 10, most // 2)
        later, (unit, other_unit) = rng.randrange(start + max(2, most // 5), most - 1), rng.sample(range(10), 2)

        def side(template: str, start: int, unit: int, period: str) -> Side | None:
            years = {"century": century, "start": str(start).zfill(width), "unit": str(unit), "century_again": century}
            text = fill(template, {"period": period, **years})
            inputs = {"start": start, "unit": unit, "century": int(century), "width": width}
            return _side(material, text, inputs, {"start year": "start", "century": "century"}, after=("start year",))

        sources = {
            "start": side(template, later, unit, period),
            "template": side(other_template, start, unit, period),
            "both": side(other_template, later, unit, period),
            "neither": side(template, start, unit, other_period),
        }
        if width == 1:
            sources["unit"] = side(template, start, other_unit, period)
        return _case(side(template, start, unit, period), sources)

    kinds = {
        "start": "a later start, the same template: only the token differs",
        "template": "another template with the same years: only the place differs",
        "both": "a later start in another template",
        "neither": "another event",
    }
    if width == 1:
        kinds["unit"] = "another last digit of the start year"
    return Sources(kinds, draw, continuation(material.tokenizer, str))


def _capitals(material: Material) -> Sources:
    tokenizer, templates = material.tokenizer, material.share(builtin.CAPITALS_TEMPLATES)
    known = {country: city for country, city in material.share(builtin.CAPITALS) if tokenizer.is_single(f" {city}")}
    by_length: dict[int, list[str]] = defaultdict(list)
    for country in known:
        by_length[len(tokenizer.continuing(f" {country}"))].append(country)
    countries = [country for group in by_length.values() if len(group) > 1 for country in group]
    material.require(len(countries), 4, what="countries with a single-token capital")

    def draw(rng: random.Random, i: int) -> Case | None:
        template, other_template = rng.sample(templates, 2)
        country = rng.choice(countries)
        group = by_length[len(tokenizer.continuing(f" {country}"))]
        other = rng.choice([one for one in group if one != country])

        def side(template: str, country: str) -> Side | None:
            text, inputs = fill(template, {"country": country}), {"country": country, "capitals": known}
            return _side(material, text, inputs, {"country": "country"}, after=("country",))

        sources = {
            "country": side(template, other),
            "template": side(other_template, country),
            "both": side(other_template, other),
        }
        return _case(side(template, country), sources)

    kinds = {
        "country": "another country in the same template: only the token differs",
        "template": "the same country in another template: only the place differs",
        "both": "another country in another template",
    }
    return Sources(kinds, draw, continuation(tokenizer, lambda city: f" {city}"))


#: Tokens of an induction prompt, and the shortest and longest stretch that is repeated.
LENGTH, STRETCH = 24, (4, 6)


def _induction(material: Material) -> Sources:
    ids = material.ids(at_least=2 * LENGTH + 1)
    bos = [] if material.tokenizer.bos is None else [material.tokenizer.bos]

    def draw(rng: random.Random, _: int) -> Case | None:
        k = rng.randint(*STRETCH)
        n_around = LENGTH - 2 * k - 1
        drawn = rng.sample(ids, k + 2 + 2 * n_around)
        stretch, copied, other = drawn[:k], drawn[k], drawn[k + 1]
        around, other_around = drawn[k + 2 : k + 2 + n_around], drawn[k + 2 + n_around :]
        start, elsewhere = rng.sample(range(n_around - 1), 2)

        def side(start: int, copied: int, around: list[int]) -> Side:
            tokens = [*bos, *around[:start], *stretch, copied, *around[start:], *stretch]
            at = len(bos) + start + k
            return Side(tuple(tokens), {"tokens": tokens}, {"first A": at - 1, "B": at, END: len(tokens) - 1})

        sources = {
            "token": side(start, other, around),
            "place": side(elsewhere, copied, around),
            "both": side(elsewhere, other, around),
            "neither": side(start, copied, other_around),
        }
        return Case(side(start, copied, around), sources)

    kinds = {
        "token": "another B at the same place: only the token differs",
        "place": "A B stands elsewhere: only the place differs",
        "both": "another B, and A B stands elsewhere",
        "neither": "other tokens around A B",
    }
    return Sources(kinds, draw, lambda side, answer: answer if isinstance(answer, int) else None)


def _sums(material: Material, behaviour: Addition) -> Sources:
    sums, options = Sums.of(material, behaviour.options), behaviour.options
    letters = options.letters
    roles = {letter.upper(): letter for letter in letters}
    second = -1 if options.every_sign[0] == "-" else 1

    def side(operands: tuple[int, ...]) -> Side | None:
        inputs = {letter.upper(): operand for letter, operand in zip(letters, operands, strict=True)}
        return _side(material, sums.text(operands), inputs, roles)

    def other(rng: random.Random, suits: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Side | None:
        """A sum with other operands; `suits` changes random ones into such as the kind needs."""
        for _ in range(TRIES):
            operands = suits(tuple(rng.randint(options.low, options.high) for _ in letters))
            if all(options.low <= one <= options.high for one in operands) and sums.allows(operands):
                return side(operands)
        return None

    def draw(rng: random.Random, i: int) -> Case | None:
        base = sums.draw(rng)
        if base is None:
            return None
        sources = {"all": other(rng, lambda drawn: drawn)}
        for place, letter in enumerate(letters):
            alone = lambda drawn, place=place: (*base[:place], drawn[place], *base[place + 1 :])  # noqa: E731
            sources[letter.upper()] = other(rng, lambda drawn, alone=alone: alone(drawn))
        sources["result"] = other(rng, lambda drawn: _last_fits(drawn, options.total(base)))
        if len(letters) > 2:
            kept = base[0] + second * base[1]
            sources["first two"] = other(rng, lambda drawn: (drawn[0], second * (kept - drawn[0]), *drawn[2:]))
        return _case(side(base), sources)

    def _last_fits(drawn: tuple[int, ...], answer: int) -> tuple[int, ...]:
        rest = options.total((*drawn[:-1], 0))
        return (*drawn[:-1], (answer - rest) * (1 if options.every_sign[-1] == "+" else -1))

    first_two = f"A {'-' if second < 0 else '+'} B"
    kinds = {"all": "other operands"}
    kinds |= {letter.upper(): f"only {letter.upper()} differs" for letter in letters}
    kinds["result"] = "other operands with the same result"
    if len(letters) > 2:
        kinds["first two"] = f"other operands with the same {first_two}"
    return Sources(kinds, draw, continuation(material.tokenizer, sums.spelled))


def _counterfactuals(specimen: Specimen, behaviour: Behaviour, split: str, *, n: int, seed: int) -> Sources:
    """Any other behaviour: its own prompts with their counterfactuals, of which each may be of another kind where rows
    name kinds. A program reads the word at each role.
    """
    assert isinstance(specimen.vocabulary, TextVocabulary)
    tokenizer, config = specimen.vocabulary.tokenizer, specimen.model.config
    sampled = partial(behaviour.sample, tokenizer, seed=seed, split=split, n_ctx=config.n_ctx, d_vocab=config.d_vocab)
    try:
        prompts = sampled(n)
    except TooFewPrompts as few:
        if not few.n:
            raise
        prompts = sampled(few.n)
    if prompts.kinds:  # the rows of one prompt may be anywhere among the others
        prompts = sampled(MOST_ROWS)
    roles = [role for role in prompts.roles if role != END]
    if not roles:
        raise BadInput(
            f"behaviour {behaviour.label}: its prompts have no roles, so that a program has nothing to read; name them "
            "in the rows (`roles`)"
        )
    cases = list(_of_prompts(prompts, tokenizer, roles))
    named = dict.fromkeys(kind for case in cases for kind in case.sources)
    spell = continuation(tokenizer, lambda answer: answer if str(answer).startswith(" ") else f" {answer}")
    exact = continuation(tokenizer, str)

    def draw(_: random.Random, i: int) -> Case | None:
        return cases[i] if i < len(cases) else None

    def token_of(side: Side, answer: object) -> int | None:
        spaced = spell(side, str(answer))
        return exact(side, answer) if spaced is None else spaced

    kinds = {
        kind: "the prompt's own counterfactual" if kind == UNNAMED else f"a row of the kind {kind}" for kind in named
    }
    return Sources(kinds, draw, token_of)


def input_name(role: str) -> str:
    """A role as a parameter of a program."""
    return "".join(letter if letter.isalnum() else "_" for letter in role)


def _of_prompts(prompts: Prompts, tokenizer: Tokenizer, roles: Sequence[str]) -> Iterator[Case]:
    """One case for each prompt; of several counterfactuals of one kind the first is its source."""
    bases: dict[tuple[int, ...], Side] = {}
    sources: dict[tuple[int, ...], dict[str, Side]] = defaultdict(dict)
    for row in range(len(prompts)):
        end = int(prompts.position[row]) + 1
        places = {role: int(prompts.roles[role][row]) for role in roles}
        sides = []
        for tokens in (prompts.tokens[row, :end].tolist(), prompts.counterfactual[row, :end].tolist()):
            words = {input_name(role): tokenizer.piece(tokens[place]).strip() for role, place in places.items()}
            sides.append(Side(tuple(tokens), words, {**places, END: end - 1}))
        base, source = sides
        kind = (prompts.kinds[row] if prompts.kinds else "") or UNNAMED
        bases.setdefault(base.tokens, base)
        sources[base.tokens].setdefault(kind, source)
    for tokens, base in bases.items():
        yield Case(base, sources[tokens])
