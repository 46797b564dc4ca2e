"""Answers as people write them: where each is read, worked out by hand with tokenizers that can be checked on paper."""

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from vesalius.behaviours.encoding import Fate
from vesalius.behaviours.own import RowBehaviour
from vesalius.behaviours.prompts import Prompts
from vesalius.model import Transformer
from vesalius.model.tokenizer import Tokenizer

TOKENIZER = word_tokenizer()
CITY = {"prompt": "The capital of France is", "counterfactual": "The capital of Italy is"}


def fates(*rows: dict, tokenizer: Tokenizer = TOKENIZER, **options) -> list[Fate]:
    made = ves.Behaviour.from_rows(list(rows), **options)
    assert isinstance(made, RowBehaviour)
    return made.check(tokenizer, n_ctx=64, d_vocab=tokenizer.size)


def pieces(tokenizer: Tokenizer, tokens: tuple[int, ...]) -> list[str]:
    return [tokenizer.piece(token) for token in tokens]


def test_what_both_answers_start_with_is_put_behind_both_prompts() -> None:
    [fate] = fates({**CITY, "answer": " Mary John Lima", "wrong": " Mary Paris"})
    prompt = fate.prompt
    assert prompt is not None
    start = ["<bos>", "The", " capital", " of"]
    assert pieces(TOKENIZER, prompt.tokens) == [*start, " France", " is", " Mary"]
    assert pieces(TOKENIZER, prompt.counterfactual) == [*start, " Italy", " is", " Mary"]
    assert pieces(TOKENIZER, (prompt.correct, prompt.wrong)) == [" John", " Paris"]
    assert (prompt.prefix, prompt.roles["end"], prompt.forced) == (1, 6, ())
    assert fate.reason == (
        "' Mary', with which the answers start, is put behind the prompt; ' Mary John Lima' is read at the token "
        "' John'"
    )
    assert fate.tokens == "<bos>|The| capital| of| France| is|[ Mary] → ' John' against ' Paris'"


def test_answers_that_part_at_once_are_compared_there() -> None:
    """One token more of the right answer, and none of the prompt, is read."""
    [fate] = fates({**CITY, "answer": " Mary John", "wrong": " Rome"})
    assert fate.prompt is not None
    assert pieces(TOKENIZER, (fate.prompt.correct, fate.prompt.wrong)) == [" Mary", " Rome"]
    assert fate.prompt.prefix == 0
    assert fate.reason == "' Mary John' is read at the token ' Mary'"


@pytest.mark.parametrize("answer", ["6", " 6"])
def test_a_space_at_the_end_of_a_prompt_is_a_token_before_digits(answer: str) -> None:
    """Digits are tokens without a space here, as in SmolLM2, so that the space stays with the prompt."""
    row = {"prompt": "Mary 4 is  ", "answer": answer, "wrong": "7", "counterfactual": "Mary 5 is"}
    [fate] = fates(row)
    assert fate.prompt is not None
    assert pieces(TOKENIZER, fate.prompt.tokens) == ["<bos>", "Mary", " ", "4", " is", " "]
    assert pieces(TOKENIZER, fate.prompt.counterfactual) == ["<bos>", "Mary", " ", "5", " is", " "]
    assert pieces(TOKENIZER, (fate.prompt.correct, fate.prompt.wrong)) == ["6", "7"]
    assert fate.reason == "the space at the end of the prompt is a token of its own"
    [moved] = fates({**row, "prompt": "Mary 4 is", "answer": " 6", "wrong": " 7"})
    assert moved.prompt is not None
    assert (moved.prompt.tokens, moved.prompt.correct) == (fate.prompt.tokens, fate.prompt.correct)
    assert moved.prompt.counterfactual == fate.prompt.counterfactual
    assert fate.as_data()["tokens"] == "<bos>|Mary| |4| is|  → '6' against '7'"
    assert moved.as_data()["tokens"] == "<bos>|Mary| |4| is|[ ] → '6' against '7'"


def test_a_space_at_the_end_of_a_prompt_belongs_to_a_word_that_has_it() -> None:
    spaced, plain = fates(
        {"prompt": "The capital of France is ", "counterfactual": "The capital of Italy is ", "answer": "Paris",
         "wrong": ["Rome", " Lima"], "roles": {"verb": "is ", "country": [15, 21], "rest": [15, 25]}},
        {**CITY, "answer": " Paris", "wrong": [" Rome", " Lima"], "roles": {"verb": "is"}},
    )  # fmt: skip
    assert spaced.prompt is not None
    assert plain.prompt is not None
    assert spaced.prompt.key == plain.prompt.key
    assert spaced.prompt.roles == {"verb": 5, "country": 4, "rest": 5, "end": 5}
    assert spaced.reason == "the space at the end of the prompt is read with the answer"
    assert plain.reason is None


def test_a_set_is_read_where_its_first_pair_parts() -> None:
    answers, wrongs = [" Mary John", " Paris", " Mary Rome"], [" Mary Lima", " Mary Oslo Lima"]
    [fate] = fates({**CITY, "answer": answers, "wrong": wrongs})
    assert fate.prompt is not None
    assert pieces(TOKENIZER, fate.prompt.answers) == [" John", " Rome"]
    assert (TOKENIZER.piece(fate.prompt.wrong), fate.prompt.wrongs) == (" Lima", ())
    assert fate.reason == (
        "' Mary', with which the answers start, is put behind the prompt; kept without answer ' Paris' (it does not go "
        "on as the first answer does) and wrong ' Mary Oslo Lima' (3 tokens)"
    )


def test_a_wrong_answer_that_shares_the_token_of_a_right_one_is_left_out() -> None:
    [fate] = fates({**CITY, "answer": " Mary John", "wrong": [" Rome Lima", " Mary Rome"]})
    assert fate.prompt is not None
    assert pieces(TOKENIZER, (fate.prompt.correct, fate.prompt.wrong)) == [" Mary", " Rome"]
    assert fate.prompt.wrongs == ()
    assert "kept without wrong answers that share that token with a right one" in (fate.reason or "")


def test_partners_and_random_tokens_keep_the_prefix_of_the_row() -> None:
    rows = [
        {"prompt": "The capital of France is", "answer": " Mary Paris", "wrong": " Mary Lima"},
        {"prompt": "The capital of Italy is", "answer": " Rome", "wrong": " Oslo"},
        {"prompt": "The capital city of Italy is", "answer": " Mary Rome", "wrong": " Mary Oslo"},
    ]
    made = ves.Behaviour.from_rows(rows)
    prompts = made.sample(TOKENIZER, 9, seed=0, split="test", n_ctx=32, d_vocab=TOKENIZER.size)
    by_text = {text: place for place, text in enumerate(prompts.texts)}
    first, second, third = (
        by_text[text] for text in ("The capital of France is Mary", "The capital of Italy is",
                                   "The capital city of Italy is Mary")
    )  # fmt: skip
    lengths = (prompts.position + 1).tolist()
    read = [pieces(TOKENIZER, tuple(row[:n])) for row, n in zip(prompts.counterfactual.tolist(), lengths, strict=True)]
    assert read[first] == ["<bos>", "The", " capital", " of", " Italy", " is", " Mary"]
    assert read[second] == ["<bos>", "The", " capital", " of", " France", " is"]
    assert (read[third][0], read[third][-1], len(read[third])) == ("<bos>", " Mary", 8)


def test_as_written_reads_an_answer_that_the_tokenizer_would_join() -> None:
    """c a t is one token, c a t s another: "cat" and "s" are read as two because the row says so."""
    words = ["<bos>", "c", "a", "t", "s", "e", "ca", "cat", "cats"]
    model = models.BPE({word: place for place, word in enumerate(words)}, [("c", "a"), ("ca", "t"), ("cat", "s")])
    backend = Backend(model)
    backend.decoder = decoders.Fuse()
    tokenizer, row = Tokenizer(backend, bos=0), {"prompt": "cat", "answer": "s", "wrong": "e", "as_written": True}
    assert pieces(tokenizer, tuple(tokenizer.encode("cats"))) == ["<bos>", "cats"]
    [fate] = fates(row, tokenizer=tokenizer)
    assert fate.tokens == "<bos>|cat → 's' against 'e'"
    assert fate.reason == "'s' is read apart from the prompt, with which the tokenizer would join it"


def test_teacher_forcing_reads_the_whole_answer_after_the_prompt() -> None:
    [fate] = fates({**CITY, "answer": " Mary John", "wrong": " Mary Rome"}, metric="log-probability")
    assert fate.prompt is not None
    assert pieces(TOKENIZER, fate.prompt.forced) == [" Mary", " John"]
    assert fate.prompt.prefix == 0
    assert fate.reason == "kept without wrong ' Mary Rome' (2 tokens)"


@pytest.mark.smollm
def test_digits_and_cities_as_smollm_reads_them(smollm: tuple[Transformer, Tokenizer]) -> None:
    model, tokenizer = smollm
    sum_row = {"prompt": "2 plus 4 equals ", "answer": "6", "wrong": "7", "counterfactual": "2 plus 5 equals "}
    city = {"prompt": "The largest city of the USA is", "answer": " New York", "wrong": " New Jersey"}
    found = fates(sum_row, city, {**sum_row, "answer": ["6", "six"]}, tokenizer=tokenizer)
    digits, york, either = (fate.prompt for fate in found)
    assert digits is not None and york is not None and either is not None  # noqa: PT018
    assert pieces(tokenizer, digits.tokens) == ["<|im_start|>", "2", " plus", " ", "4", " equals", " "]
    assert pieces(tokenizer, digits.counterfactual) == ["<|im_start|>", "2", " plus", " ", "5", " equals", " "]
    assert pieces(tokenizer, (digits.correct, digits.wrong)) == ["6", "7"]
    assert pieces(tokenizer, (york.correct, york.wrong)) == [" York", " Jersey"]
    assert pieces(tokenizer, york.tokens)[-2:] == [" is", " New"]
    assert (either.tokens, either.correct, either.wrong) == (digits.tokens, digits.correct, digits.wrong)
    assert found[0].tokens == "<|im_start|>|2| plus| |4| equals|  → '6' against '7'"
    prompts = Prompts.from_rows([digits, york], pad=0, n_ctx=64, d_vocab=model.config.d_vocab)
    with torch.no_grad():
        logits = model(torch.tensor([digits.tokens]))[0, -1]
        read = model(prompts.tokens, mask=prompts.mask, at=prompts.readout().at, choose=prompts.readout().choose)
    scores = prompts.readout().score(read, torch.arange(2))
    assert float(scores[0]) == pytest.approx(float(logits[digits.correct] - logits[digits.wrong]), abs=1e-4)
    assert float(scores[1]) > 0, "New York is preferred to New Jersey"
