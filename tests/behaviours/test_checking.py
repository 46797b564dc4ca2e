"""The report on a behaviour, the gate and the proposals, on a model of induction whose every answer is known.

After "Anna Paul Mary Kevin Paul" it says " Mary". A counterfactual that exchanges Kevin changes nothing; one that
exchanges Mary for the wrong answer turns it.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius import api
from vesalius.behaviours.contrast import with_best_partners
from vesalius.behaviours.natural import require_performance, with_behaviour
from vesalius.behaviours.own import ALL_ROWS, from_rows
from vesalius.behaviours.prompts import SWAPPED_PROMPT
from vesalius.behaviours.proposals import Substitution, readable
from vesalius.errors import BadInput, Failed
from vesalius.model.specimen import Specimen, TextVocabulary

PAIRS = [("Mary", "John"), ("James", "Robert"), ("Linda", "David"), ("Susan", "Thomas"), ("Karen", "Daniel")] * 2
STARTS = ["Paul", "Mark", "George", "Kevin", "Brian", "Paul", "Mark", "George", "Kevin", "Brian"]
STARTS[5:] = ["Mark", "George", "Kevin", "Brian", "Paul"]


def rows(counterfactual: str | None) -> list[dict[str, Any]]:
    """Ten prompts "Anna A B Edward A" with the answer B; the counterfactual fills `{a}`, `{right}` and `{wrong}`."""
    made = []
    for a, (right, wrong) in zip(STARTS, PAIRS, strict=True):
        row = {"prompt": f"Anna {a} {right} Edward {a}", "answer": f" {right}", "wrong": f" {wrong}"}
        if counterfactual is not None:
            row["counterfactual"] = counterfactual.format(a=a, right=right, wrong=wrong)
        made.append(row)
    return made


TURNED, UNTOUCHED = "Anna {a} {wrong} Edward {a}", "Anna {a} {right} Jason {a}"


@pytest.fixture(scope="module")
def model() -> Specimen:
    return as_specimen(induction_model(word_tokenizer().size), task=None)


def test_a_turned_answer_can_be_explained_and_the_range_is_twice_the_score(model: Specimen) -> None:
    report = ves.behaviours(model, behaviour=rows(TURNED))
    assert report.answer["verdict"] == "yes"
    assert report.contrast["verdict"] == "clear"
    assert report.contrast["replaced"]["value"] == pytest.approx(-report.contrast["full"]["value"], rel=0.2)
    assert (report.accuracy["value"], report.top1["value"], report.says_instead) == (1.0, 1.0, [])
    assert "at least 24 rows" in report.next  # ten are too few to rank, to choose and to report apart
    assert ", then: vesalius discover by_hand -b " in report.next


def test_an_untouched_answer_cannot_be_explained(model: Specimen) -> None:
    report = ves.behaviours(model, behaviour=rows(UNTOUCHED))
    assert report.answer["verdict"] == "no"
    assert report.contrast["verdict"] in ("empty", "reversed")
    assert abs(report.contrast["range"]["value"]) < 0.05 * report.contrast["full"]["value"]
    assert repr(report).startswith("No: ")


def test_a_model_that_prefers_but_does_not_say_is_at_most_partly_explained(model: Specimen) -> None:
    """The answers are what stands two words later: the model says B, and prefers neither by much or one by chance."""
    asked = [
        {**row, "answer": row["wrong"], "wrong": f" {STARTS[place]}", "counterfactual": row["prompt"].replace(
            row["answer"].strip(), "Jason")}
        for place, row in enumerate(rows(None))
    ]  # fmt: skip
    report = ves.behaviours(model, behaviour=asked)
    assert report.top1["value"] == 0.0
    said = {one["text"]: one["n"] for one in report.says_instead}
    assert said == {f" {right}": 2 for right, _ in PAIRS}
    assert report.answer["verdict"] != "yes"
    assert any("says the right answer on 0.00 of 10 prompts" in doubt for doubt in report.doubts)


@pytest.mark.slow
def test_the_gate_refuses_an_empty_contrast_everywhere_and_force_carries_the_sentence(model: Specimen) -> None:
    empty = with_behaviour(model, from_rows(rows(UNTOUCHED), name="same"))
    calls = (
        lambda **more: ves.discover(empty, n=4, checks=False, **more),
        lambda **more: api.sweep_report(empty, n=4, **more),
        lambda **more: api.sweep_report(empty, kind="zero,resample", n=4, **more),
        lambda **more: ves.what_if(empty, "L0H0", kind="resample", n=4, **more),
    )
    for call in calls:
        with pytest.raises(BadInput, match=r"behaviour same: the contrast is .*with everything replaced.*`force`"):
            call()
    results: list[Any] = [call(force=True) for call in calls]
    discovery, swept, _, asked = results
    assert (swept.kind, swept.request.options["force"]) == ("resample", True)
    assert discovery.performance is not None
    for contrast in (discovery.performance.contrast, swept.contrast, asked.contrast):
        assert contrast is not None
        assert contrast.verdict in ("empty", "reversed")
    assert "the contrast is" in str(discovery.performance.weak)
    effects = ves.sweep(empty, kind="resample", n=4, force=True)
    assert all("the contrast is" in str(one.view()) for one in (swept, asked, effects))
    zero = api.sweep_report(empty, kind="zero", n=4)  # zeros do not come from the counterfactual
    assert zero.contrast is None
    assert "contrast" not in zero.as_data()


def test_a_good_contrast_is_part_of_the_performance(model: Specimen) -> None:
    measured = require_performance(with_behaviour(model, from_rows(rows(TURNED), name="turned")))
    assert measured.contrast is not None
    assert measured.contrast.verdict == "clear"
    assert (measured.doubts, measured.weak) == ((), None)
    assert "contrast" in measured.as_data()
    few = measured.model_copy(update={"top1": 0.14})
    assert few.weak == f"the model says the right answer on 0.14 of {measured.n} prompts, though it may prefer it"
    unsure = few.model_copy(update={"performs": False})
    assert str(unsure.weak).startswith("the model does not clearly prefer the right answer")
    assert len(unsure.doubts) == 2


def test_rows_without_a_counterfactual_take_the_prompt_of_their_wrong_answer_where_that_lowers_the_score_more(
    model: Specimen,
) -> None:
    swapped = [{**row, "answer": row["wrong"], "wrong": row["answer"], "prompt": row["prompt"].replace(
        row["answer"].strip(), row["wrong"].strip())} for row in rows(None)[:5]]  # fmt: skip
    behaviour = from_rows([*rows(None)[:5], *swapped], name="both")
    assert isinstance(model.vocabulary, TextVocabulary)
    tokenizer = model.vocabulary.tokenizer
    config = model.model.config
    decided = with_best_partners(behaviour, model.model, tokenizer)
    prompts = decided.sample(tokenizer, 10, seed=0, split=ALL_ROWS, n_ctx=config.n_ctx, d_vocab=config.d_vocab)
    assert set(prompts.sources) == {SWAPPED_PROMPT}
    by_answer = {int(right): place for place, right in enumerate(prompts.correct)}
    for place in range(10):
        partner = by_answer[int(prompts.wrong[place])]
        assert torch.equal(prompts.counterfactual[place], prompts.tokens[partner])
    nobody = from_rows([{**row, "wrong": " Ryan"} for row in rows(None)], name="nobody")
    assert with_best_partners(nobody, model.model, tokenizer) == replace(nobody, swap=False)


@pytest.mark.slow
def test_proposals_turn_the_answer_and_are_written_to_a_new_file(model: Specimen, tmp_path: Path) -> None:
    file = tmp_path / "new.jsonl"
    given = [{**rows(TURNED)[0], "split": "train"}, *rows(None)[1:]]
    words = [wrong for _, wrong in PAIRS]
    report = ves.behaviours(model, behaviour=given, propose=file, words=words)
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["prompt"] for row in written] == [row["prompt"] for row in given]
    assert written[0]["counterfactual"] == given[0]["counterfactual"]
    assert all(len(row["counterfactual"].split()) == 5 for row in written if "counterfactual" in row)
    assert report.proposed["n_asked"] == 9
    turned = [one for one in report.proposed["rows"] if one["counterfactual"] is not None]
    assert len(turned) == report.proposed["n_proposed"] >= 7
    assert all(one["range"] > 0 and one["wrong_rise"] > 0 for one in turned)
    assert report.proposed["contrast"]["verdict"] == "clear"
    again = ves.behaviours(model, behaviour=file)
    assert again.contrast["range"]["low"] > 0
    with pytest.raises(BadInput, match=r"new\.jsonl: is there already; give a new file"):
        ves.behaviours(model, behaviour=given, propose=file)


def test_rows_of_one_answer_take_random_tokens_and_are_never_a_yes(model: Specimen) -> None:
    names = [*(wrong for _, wrong in PAIRS[1:5]), *(right for right, _ in PAIRS[1:5])]
    same = [{"prompt": f"{name} Paul Mary Edward Paul", "answer": " Mary", "wrong": " John"} for name in names]
    report = ves.behaviours(model, behaviour=same)
    assert report.contrast["source"] == "random tokens"
    assert report.answer["verdict"] != "yes"
    assert "random tokens" in report.answer["text"]
    assert "--propose" in report.next


def test_a_proposal_is_the_word_that_turns_and_of_those_the_likeliest_sentence() -> None:
    def one(turn: float, broken: float, *, listed: bool = False) -> Substitution:
        return Substitution(0, 1, (5,), (6,), 2 * turn, turn, turn + 1, broken, listed)

    broken, likely, weak, mine = one(10, 2.9), one(8.5, -1), one(7, -5), one(1, 6, listed=True)
    assert readable([broken, likely, weak]) is likely
    assert readable([broken, likely, weak, mine]) is mine
    assert one(3, 3.0).works
    assert not one(3, 3.1).works
    assert one(3, 3.1, listed=True).works
    lowered_only = replace(likely, wrong_rise=-0.1)  # a broken sentence lowers both answers
    assert (lowered_only.range > 0, lowered_only.works) == (True, False)


@pytest.mark.slow
def test_what_cannot_be_proposed_is_refused_in_one_line(model: Specimen, tmp_path: Path) -> None:
    new = tmp_path / "new.jsonl"
    with pytest.raises(BadInput, match="no usable row lacks a counterfactual"):
        ves.behaviours(model, behaviour=rows(TURNED), propose=new)
    with pytest.raises(BadInput, match="has counterfactuals of its own"):
        ves.behaviours(model, behaviour="induction", propose=new)
    with pytest.raises(BadInput, match="words: are candidates for counterfactuals; give `propose`"):
        ves.behaviours(model, behaviour=rows(None), words=["John"])
    with pytest.raises(BadInput, match=r"ends with \.jsonl"):
        ves.behaviours(model, behaviour=rows(None), propose=tmp_path / "new.csv")
    with pytest.raises(BadInput, match="name the rows that counterfactuals are for"):
        ves.behaviours(model, propose=new)
    with pytest.raises(BadInput, match="is not a directory"):
        ves.behaviours(model, behaviour=rows(None), propose=tmp_path / "nowhere" / "new.jsonl")
    constant = as_specimen(induction_model(word_tokenizer().size, strengths={0: 0.0}, junk=0.0), task=None)
    with pytest.raises(Failed, match="no word was found that turns the answer"):
        ves.behaviours(constant, behaviour=rows(None), propose=new)
    assert not new.exists()
