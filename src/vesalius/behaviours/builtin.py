"""The built-in behaviours of natural models: prompts with a right and a wrong answer, and their counterfactuals."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from vesalius.behaviours.behaviour import Behaviour, Draw
from vesalius.behaviours.prompts import Material, Prompt, fill
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer

# The pools of words. Order matters: item i belongs to train, validation or test by i mod 3, so only append.
#
# More common words come first within a pool, so that all three splits have enough of them with small vocabularies.


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """'France: Paris; Italy: Rome' as (country, capital) pairs."""
    pairs = (pair.split(":") for pair in text.split(";"))
    return tuple((country.strip(), capital.strip()) for country, capital in pairs)


NAMES = words_of(
    """
    Mary John Tom James Sarah Michael Robert Jennifer David Linda William Patricia Richard Susan Joseph Karen Charles
    Nancy Daniel Lisa Anna Mark Paul Emily Andrew George Alice Peter Jane Kevin Laura Brian Emma Jason Julia Ryan Kate
    Eric Helen Adam Rachel Steven Maria Scott Ruth Simon Rose Edward Henry Claire Frank Amy Martin Jessica Stephen
    Rebecca Jack Elizabeth Patrick Victoria Alex Sophie Ben Lucy Sam Martha Luke Diana Oliver Barbara Arthur Catherine
    Philip Dorothy Anthony Margaret Albert Charlotte Louis Hannah Roger Alexander Samuel Jonathan Matthew Thomas
    Christopher Nicholas Benjamin Jacob Gary Greg Ian Joe Kim Jim Bob Dan Tim Mike Steve Chris Tony Fred Carl Joan
    Marie Ann Ellen Amanda Kelly Bill Bruce Craig Donald Douglas Gordon Howard Keith Kenneth Larry Leonard Neil Oscar
    Ralph Raymond Ronald Walter Wayne Harry Harold Eva Ella Clara Olivia
    """
)

PLACES = words_of(
    """
    store park school office restaurant library garden station market hospital museum beach church theater airport
    bakery farm hotel kitchen bank gym cafe harbor castle village zoo studio warehouse workshop factory
    """
)

OBJECTS = words_of(
    """
    drink book ball letter ring key pen watch guitar computer bottle snack picture camera coat hat ticket map basket
    flower bag phone blanket lamp knife shirt coin gift box card
    """
)

PARAMETERS = words_of(
    """
    size name data file path type value index label key files state mode shape config user option limit count weight
    depth result target source token color scale rate offset flag items width height length level order group table
    column row field format text word line page title image video point node edge graph tree list array matrix vector
    model layer batch step time date year month day hour start stop end first last total mean score rank price cost
    tax fee account bank client server host port address city country region event task job queue stack message error
    warning reason status code version test sample seed noise signal
    """
)
FUNCTIONS = words_of(
    """
    load read open send make find move save run call draw add build parse write check sort merge split join copy clear
    close print fetch update create delete filter select
    """
)

DESCRIPTIONS = words_of(
    """
    crime river garden summer music winter island history kitchen animal village forest letter teacher police mountain
    weather ocean market window castle bridge engine doctor farmer planet desert valley harbor temple soldier artist
    flower candle mirror bottle silver copper marble dinner coffee sugar butter cotton leather paper
    """
)
PERIODS = words_of(
    """
    war siege reign project trial expedition voyage dynasty conflict campaign drought mission rebellion alliance
    occupation famine partnership journey construction plague dispute strike tour investigation exhibition feud survey
    blockade regime treaty
    """
)

CENTURIES = ("17", "16", "18", "15", "14", "13", "12", "11", "19")

CAPITALS = _pairs(
    """
    France: Paris; Italy: Rome; Spain: Madrid; Portugal: Lisbon; Germany: Berlin; Austria: Vienna; Poland: Warsaw;
    Russia: Moscow; Greece: Athens; Egypt: Cairo; Japan: Tokyo; China: Beijing; Iran: Tehran; Iraq: Baghdad; Syria:
    Damascus; Cuba: Havana; Peru: Lima; Chile: Santiago; Canada: Ottawa; Australia: Canberra; Ireland: Dublin;
    Scotland: Edinburgh; England: London; Wales: Cardiff; Norway: Oslo; Sweden: Stockholm; Finland: Helsinki; Denmark:
    Copenhagen; Belgium: Brussels; Hungary: Budapest; Bulgaria: Sofia; Switzerland: Bern; Kenya: Nairobi; Afghanistan:
    Kabul; Tunisia: Tunis; Jamaica: Kingston; the Netherlands: Amsterdam; the Philippines: Manila; the Czech Republic:
    Prague; South Korea: Seoul; New Zealand: Wellington; Northern Ireland: Belfast; Sierra Leone: Freetown; Guyana:
    Georgetown; Turkey: Ankara; Lebanon: Beirut; Jordan: Amman; Romania: Bucharest; Serbia: Belgrade; Croatia: Zagreb;
    Ukraine: Kyiv; Ghana: Accra; Thailand: Bangkok; Vietnam: Hanoi; Pakistan: Islamabad; Bangladesh: Dhaka; Nepal:
    Kathmandu; Taiwan: Taipei; North Korea: Pyongyang; Venezuela: Caracas; Ecuador: Quito; Uruguay: Montevideo; Saudi
    Arabia: Riyadh; Qatar: Doha; Libya: Tripoli; Algeria: Algiers; Morocco: Rabat; Sudan: Khartoum; Senegal: Dakar;
    Nigeria: Abuja; Uganda: Kampala; Zimbabwe: Harare; Zambia: Lusaka; Somalia: Mogadishu; Iceland: Reykjavik; Latvia:
    Riga; Estonia: Tallinn; Lithuania: Vilnius; Belarus: Minsk; Armenia: Yerevan; Albania: Tirana; Slovakia:
    Bratislava; Slovenia: Ljubljana; Bosnia: Sarajevo; Cyprus: Nicosia; Rwanda: Kigali; Angola: Luanda; the Bahamas:
    Nassau; Nicaragua: Managua; Azerbaijan: Baku; Uzbekistan: Tashkent; Liberia: Monrovia
    """
)

DAYS = words_of("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words_of("January February March April May June July August September October November December")
NUMBERS = words_of(
    """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty
    """
)
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


# Country to capital: "The capital of France is" -> Paris.

CAPITALS_TEMPLATES = (
    "The capital of {country} is",
    "The capital city of {country} is",
    "The capital of {country} is the city of",
    "Question: What is the capital of {country}? Answer:",
    "Everybody knows that the capital of {country} is",
    "The seat of government of {country} is the city of",
    "I have never been to {country}, but I know that its capital is",
    "Last year we travelled to the capital of {country}, which is",
    "In the geography class we learned that the capital of {country} is",
)


def _capitals(material: Material) -> Draw:
    tokenizer, templates = material.tokenizer, material.share(CAPITALS_TEMPLATES)
    by_length: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for country, capital in material.share(CAPITALS):
        if tokenizer.is_single(f" {capital}"):
            by_length[len(tokenizer.continuing(f" {country}"))].append((country, capital))
    candidates = [(pair, group) for group in by_length.values() if len(group) > 1 for pair in group]
    material.require(len(candidates), 4, what="countries with a single-token capital")

    def draw(rng: random.Random, i: int) -> Prompt | None:
        (country, capital), group = rng.choice(candidates)
        other_country, other_capital = rng.choice([pair for pair in group if pair[0] != country])
        template = templates[i % len(templates)]
        clean, counterfactual = (fill(template, {"country": name}) for name in (country, other_country))
        return material.prompt(
            clean, counterfactual, correct=f" {capital}", wrong=f" {other_capital}", roles={"country": "country"}
        )

    return draw


CAPITAL = Behaviour("capitals", "Complete 'The capital of France is' with the country's capital.", _capitals)


# Indirect object identification: "When Mary and John went to the store, John gave a drink to" -> Mary.

IOI_TEMPLATES = (
    "When {first} and {second} went to the {place}, {subject} gave a {object} to",
    "After {first} and {second} arrived at the {place}, {subject} handed a {object} to",
    "Then, {first} and {second} went to the {place}. {subject} gave a {object} to",
    "While {first} and {second} were working at the {place}, {subject} gave a {object} to",
    "When {first} and {second} got a {object} at the {place}, {subject} decided to give it to",
    "Then, {first} and {second} had a long talk at the {place}, and {subject} passed a {object} to",
    "Yesterday {first} and {second} met at the {place}, and {subject} offered a {object} to",
    "Once {first} and {second} were inside the {place}, {subject} gave a {object} to",
    "Because {first} and {second} found a {object} at the {place}, {subject} handed it to",
    "As {first} and {second} walked through the {place}, {subject} handed a {object} to",
    "Then, {first} and {second} found a {object} at the {place}. {subject} gave it to",
    "After {first} and {second} had lunch at the {place}, {subject} gave a {object} to",
    "Last week {first} and {second} visited the {place}, and {subject} brought a {object} to",
    "Before {first} and {second} left the {place}, {subject} returned a {object} to",
    "Every day {first} and {second} meet at the {place}, and {subject} gives a {object} to",
)


def _ioi(material: Material) -> Draw:
    names = material.words(NAMES, at_least=5)
    places, objects, templates = material.share(PLACES), material.share(OBJECTS), material.share(IOI_TEMPLATES)
    return ioi_draw(material, names, places, objects, templates)


def ioi_draw(
    material: Material,
    names: Sequence[str],
    places: Sequence[str],
    objects: Sequence[str],
    templates: Sequence[str],
) -> Draw:
    """Indirect objects from these words: the orders ABBA and BABA in turn, the templates in turn within each order."""

    def draw(rng: random.Random, i: int) -> Prompt | None:
        indirect, subject, *others = rng.sample(names, 5)
        abba, template = i % 2 == 0, templates[i // 2 % len(templates)]
        first, second = (indirect, subject) if abba else (subject, indirect)
        scene = {"place": rng.choice(places), "object": rng.choice(objects)}
        clean = fill(template, {"first": first, "second": second, "subject": subject, **scene})
        counterfactual = fill(template, {"first": others[0], "second": others[1], "subject": others[2], **scene})
        roles = {"IO": "first" if abba else "second", "S1": "second" if abba else "first", "S2": "subject"}
        return material.prompt(clean, counterfactual, correct=f" {indirect}", wrong=f" {subject}", roles=roles)

    return draw


IOI = Behaviour(
    "ioi", "Name the person who was mentioned once: 'When Mary and John ..., John gave a drink to' Mary.", _ioi
)


# Docstring completion: the next parameter to document is the next one in the definition.

DEFINED, DESCRIBED = 6, 3
STYLES = tuple((owner, tag) for tag in (":param", "@param") for owner in ("self", "cls", "ctx"))


def _template(owner: str, tag: str) -> str:
    defined = ", ".join(f"{{defined{i}}}" for i in range(DEFINED))
    described = "".join(f"    {tag} {{described{i}}}: {{noun{i}}} {{other_noun{i}}}\n" for i in range(DESCRIBED))
    return f'def {{function}}({owner}, {defined}):\n    """{{noun}} {{other_noun}}\n\n{described}    {tag}'


def _docstring(material: Material) -> Draw:
    words = material.words(PARAMETERS, at_least=2 * DEFINED + DESCRIBED)
    nouns, functions = material.share(DESCRIPTIONS), material.share(FUNCTIONS)
    templates = [_template(*style) for style in material.share(STYLES)]
    roles = {f"defined {i + 1}": f"defined{i}" for i in range(DEFINED)}
    roles |= {f"described {i + 1}": f"described{i}" for i in range(DESCRIBED)}

    def draw(rng: random.Random, i: int) -> Prompt | None:
        sample = rng.sample(words, 2 * DEFINED + DESCRIBED)
        names, other_defined, other_described = (
            sample[:DEFINED],
            sample[DEFINED : 2 * DEFINED],
            sample[2 * DEFINED :],
        )
        filler = {"function": rng.choice(functions), "noun": rng.choice(nouns), "other_noun": rng.choice(nouns)}
        for k in range(DESCRIBED):
            filler |= {f"noun{k}": rng.choice(nouns), f"other_noun{k}": rng.choice(nouns)}
        template = templates[i % len(templates)]
        clean = fill(template, {**_numbered("defined", names), **_numbered("described", names[:DESCRIBED]), **filler})
        counterfactual = fill(
            template, {**_numbered("defined", other_defined), **_numbered("described", other_described), **filler}
        )
        correct = names[DESCRIBED]
        wrong = rng.choice([name for name in names if name != correct])
        return material.prompt(clean, counterfactual, correct=f" {correct}", wrong=f" {wrong}", roles=roles)

    return draw


def _numbered(field: str, words: list[str]) -> dict[str, str]:
    return {f"{field}{i}": word for i, word in enumerate(words)}


DOCSTRING = Behaviour("docstring", "Continue a Python docstring with the next parameter of the definition.", _docstring)


# Induction: [... A B ... A] -> B on random tokens, where only the earlier occurrence gives the answer.

LENGTH = 31
SHORTEST_STRETCH, LONGEST_STRETCH = 4, 8
LEAST_FILLERS_BETWEEN = 2


def _induction(material: Material, *, in_context: bool) -> Draw:
    ids = material.ids(at_least=LENGTH + 1)
    bos = [] if material.tokenizer.bos is None else [material.tokenizer.bos]

    def draw(rng: random.Random, _: int) -> Prompt:
        n_stretch = rng.randint(SHORTEST_STRETCH, LONGEST_STRETCH)
        sample = rng.sample(ids, LENGTH + 1)
        body, replacement, absent = sample[: LENGTH - n_stretch], sample[LENGTH - n_stretch : LENGTH], sample[LENGTH]
        start = rng.randrange(len(body) - n_stretch - LEAST_FILLERS_BETWEEN)
        b = start + n_stretch
        tokens = [*bos, *body, *body[start:b]]
        counterfactual = [*bos, *body[:start], *replacement, *body[b:], *body[start:b]]
        distractor = rng.choice(body[:start] + body[b + 1 :]) if in_context else absent
        end = len(tokens) - 1
        roles = {"first A": len(bos) + b - 1, "B": len(bos) + b, "second A": end, "end": end}
        return Prompt(
            tuple(tokens),
            tuple(counterfactual),
            body[b],
            distractor,
            roles,
            material.tokenizer.decode(tokens[len(bos) :]),
        )

    return draw


INDUCTION = Behaviour(
    "induction",
    "After [A B ... A] say B, on random tokens; the wrong answer is another token of the prompt.",
    partial(_induction, in_context=True),
)
INDUCTION_OUT = Behaviour(
    "induction-out",
    "After [A B ... A] say B, on random tokens; the wrong answer is a token that is not in the prompt.",
    partial(_induction, in_context=False),
    variant_of=INDUCTION.name,
)


# Successor: "In order: Tuesday, Wednesday," -> Thursday; days, months, numbers in words and letters.

SUCCESSOR_TEMPLATES = (
    "In order: {before}, {last},",
    "The list goes like this: {before}, {last},",
    "Here they are in the right order: {before}, {last},",
    "The sequence goes {before}, {last},",
    "Please continue the list: {before}, {last},",
    "They come one after the other: {before}, {last},",
    "Let us say them in order: {before}, {last},",
    "The order is {before}, {last},",
    "The children learned to say {before}, {last},",
)
CYCLES, LINES = (DAYS, MONTHS), (NUMBERS, LETTERS)


@dataclass(frozen=True)
class Stretch:
    """Two consecutive items and the one that follows."""

    before: str
    last: str
    answer: str

    def clashes(self, other: "Stretch") -> bool:
        """Whether one stretch contains the other's answer."""
        return self.answer in (other.before, other.last, other.answer) or other.answer in (self.before, self.last)


def stretches(series: tuple[str, ...]) -> list[Stretch]:
    """Every stretch of a series in order of its answer; days and months are cyclic."""
    starts = range(len(series)) if series in CYCLES else range(2, len(series))
    return [Stretch(series[i - 2], series[i - 1], series[i]) for i in starts]


def _successor(material: Material) -> Draw:
    single = material.tokenizer.is_single
    choices: list[list[tuple[Stretch, Stretch]]] = []
    for series in (*CYCLES, *LINES):
        usable = [
            s for s in material.share(stretches(series)) if all(single(f" {x}") for x in (s.before, s.last, s.answer))
        ]
        choices.append([(one, other) for one in usable for other in usable if not one.clashes(other)])
    choices = [pairs for pairs in choices if pairs]
    material.require(sum(map(len, choices)), 6, what="pairs of single-token stretches")
    templates = material.share(SUCCESSOR_TEMPLATES)

    def draw(rng: random.Random, i: int) -> Prompt | None:
        one, other = rng.choice(rng.choice(choices))
        clean, counterfactual = (
            fill(templates[i % len(templates)], {"before": s.before, "last": s.last}) for s in (one, other)
        )
        roles = {"before": "before", "last": "last"}
        return material.prompt(clean, counterfactual, correct=f" {one.answer}", wrong=f" {other.answer}", roles=roles)

    return draw


SUCCESSOR = Behaviour("successor", "Say what comes next among days, months, numbers in words or letters.", _successor)


# Greater-than: "The war lasted from the year 1732 to the year 17" must continue with a later year.

GREATER_THAN_TEMPLATES = (
    "The {period} lasted from the year {start} to the year {century_again}",
    "The {period} began in the year {start} and ended in the year {century_again}",
    "The {period} went on from the year {start} until the year {century_again}",
    "According to the book, the {period} lasted from the year {start} to the year {century_again}",
    "The {period} started in the year {start} and was over by the year {century_again}",
    "We know that the {period} ran from the year {start} through the year {century_again}",
)
LATEST_EARLY_YEAR = 9


def year_form(tokenizer: Tokenizer) -> str:
    """ "digits" where 1732 ends in the tokens 3 and 2, "pairs" where it ends in the token 32."""
    century, year = (tokenizer.continuing(text) for text in (" 17", " 1732"))
    pieces = [tokenizer.piece(token).strip() for token in year[len(century) :]]
    if year[: len(century)] == century and pieces in (["3", "2"], ["32"]):
        return "digits" if len(pieces) == 2 else "pairs"
    tokens = [tokenizer.piece(token) for token in year]
    raise BadInput(
        f"behaviour greater-than: this tokenizer splits ' 1732' into {tokens}; digits or ' 17' + '32' are needed"
    )


def _greater_than(material: Material) -> Draw:
    return _digits(material) if year_form(material.tokenizer) == "digits" else _builtin_pairs(material)


def _digits(material: Material) -> Draw:
    scenes = _Scenes(material, "{century}{decade}{unit}")

    def draw(rng: random.Random, _: int) -> Prompt | None:
        decade, unit = rng.randrange(2, 9), str(rng.randrange(10))
        distance = rng.randint(1, min(decade - 1, 9 - decade))
        starts = [{"decade": digit, "unit": unit} for digit in (str(decade), "0")]
        return scenes.prompt(rng, starts, correct=str(decade + distance), wrong=str(decade - distance), role="decade")

    return draw


def _builtin_pairs(material: Material) -> Draw:
    scenes = _Scenes(material, "{century}{rest}")

    def draw(rng: random.Random, _: int) -> Prompt | None:
        early, year = rng.randint(1, LATEST_EARLY_YEAR), rng.randint(LATEST_EARLY_YEAR + 2, 97)
        distance = rng.randint(1, min(year - LATEST_EARLY_YEAR - 1, 98 - year))
        starts = [{"rest": f"{number:02}"} for number in (year, early)]
        return scenes.prompt(rng, starts, correct=str(year + distance), wrong=str(year - distance), role="rest")

    return draw


class _Scenes:
    """Templates, centuries and periods of one split; the format string `year` replaces the template's start year."""

    def __init__(self, material: Material, year: str) -> None:
        self.material = material
        self.periods, self.centuries = material.share(PERIODS), material.share(CENTURIES)
        self.templates = [template.replace("{start}", year) for template in material.share(GREATER_THAN_TEMPLATES)]

    def prompt(
        self, rng: random.Random, starts: list[dict[str, str]], *, correct: str, wrong: str, role: str
    ) -> Prompt | None:
        template, century = rng.choice(self.templates), rng.choice(self.centuries)
        shared = {"period": rng.choice(self.periods), "century": century, "century_again": century}
        clean, counterfactual = (fill(template, {**shared, **start}) for start in starts)
        roles = {"period": "period", "century": "century", "start year": role}
        return self.material.prompt(clean, counterfactual, correct=correct, wrong=wrong, roles=roles)


GREATER_THAN = Behaviour(
    "greater-than",
    "End a span of years later than it began: 'from the year 1732 to the year 17' + 4 to 9.",
    _greater_than,
    open_answer=True,  # any later digit is right
)
