"""Training data of an evaluator: no concept, relation or program is in two splits, and the answers are right."""

import json
from pathlib import Path

import pytest

from tests.functions.needs import needs_facts
from vesalius import api
from vesalius.errors import BadInput
from vesalius_functions.agents.evaluator import SPLITS, evaluator_examples, split_of
from vesalius_functions.entities.functions import Concept, EntityFunction
from vesalius_functions.knowledge.scoring import VectorScorer
from vesalius_functions.suite import Suite


@needs_facts
def test_splits_share_no_relation_and_answers_are_right(tmp_path: Path) -> None:
    counts = api.evaluator_data(tmp_path, categories="relations", tests=800, seed=6)
    rows = {split: [json.loads(line) for line in (tmp_path / f"{split}.jsonl").open()] for split in SPLITS}
    assert {split: len(rows[split]) for split in SPLITS} == {split: counts[split]["tests"] for split in SPLITS}
    assert sum(map(len, rows.values())) == 800
    groups = [{tuple(row["group"]) for row in rows[split]} for split in SPLITS]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert all(groups)
    functions = {one.id: one for one in Suite("relations", 6).functions()}
    for row in rows["test"][:40]:
        right = row["examples"][row["answer"] - 1]
        (reply,) = functions[row["function"]].replies([right["input"]])
        assert reply.value == right["output"]  # the function itself says so
        assert json.loads(row["messages"][-1]["content"]) == {"example": row["answer"]}
        assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]


def test_a_pair_of_two_splits_is_left_out() -> None:
    def of(*names: str) -> EntityFunction:
        return EntityFunction("f", tuple(map(Concept, names)), VectorScorer())

    names = [f"concept {number}" for number in range(40)]
    split = {name: split_of(of(name), 1) for name in names}
    assert set(split.values()) == set(SPLITS)
    for a in names[:10]:
        for b in names[10:20]:
            assert split_of(of(a, b), 1) == (split[a] if split[a] == split[b] else None)


def test_no_test_is_there_twice() -> None:
    tests = [(one.function, one.test) for one in evaluator_examples(["strings"], tests=300, seed=2)]
    assert len(tests) == len(set(tests)) == 300


def test_what_has_no_tests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="`category` 'numeric': has no unit tests of descriptions"):
        api.evaluator_data(tmp_path, categories="numeric")
