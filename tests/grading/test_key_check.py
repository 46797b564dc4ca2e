"""The key's notes against trained weights: the figures of hand-made attention, and what is said of them."""

import pytest
import torch

from vesalius.rasp import Comparison, Select, SelectorWidth, compile_program, tokens
from vesalius_truth.grading.key_check import attention_figures
from vesalius_truth.key import answer, task
from vesalius_truth.key.task import NOTES, measurements, note_in_model, remarks


def test_attention_is_compared_with_what_the_selector_selects() -> None:
    """Two a's and one b; the first a puts 0.5 on the start, 0.3 and 0.1 on the a's and 0.1 on the b."""
    program = compile_program(SelectorWidth(Select(tokens, tokens, Comparison.EQ)), ["a", "b"], 3, causal=False)
    trace = program.run(*program.encode([["a", "a", "b"]]))
    pattern = torch.zeros(1, 4, 4)
    pattern[0, 1:] = torch.tensor([[0.5, 0.3, 0.1, 0.1], [0.5, 0.3, 0.1, 0.1], [0.5, 0.0, 0.0, 0.5]])
    figures = attention_figures(program, program.components[0], trace, pattern)
    assert figures["on_selected"] == pytest.approx((0.8 + 0.8 + 1.0) / 3, abs=1e-4)
    assert figures["by_chance"] == pytest.approx((2 / 3 + 2 / 3 + 1 / 3) / 3, abs=1e-4)
    assert figures["uneven"] == pytest.approx(0.25, abs=1e-4)  # 3/4 and 1/4 against halves
    assert figures["start"] == pytest.approx(0.5, abs=1e-4)


def test_remarks_are_made_only_where_the_model_differs() -> None:
    assert remarks({}) == remarks({"on_selected": 0.9, "by_chance": 0.2, "uneven": 0.5, "moved": 0.95}) == []
    (elsewhere,) = remarks({"on_selected": 0.29, "by_chance": 0.5})
    assert "29% of its attention on tokens" in elsewhere
    assert "50% by chance" in elsewhere
    assert len(remarks({"on_selected": None, "uneven": 0.25, "moved": 0.4, "n_moved": 100})) == 2
    assert remarks({"moved": 0.4, "n_moved": 10}) == []


def test_grading_uses_the_note_that_holds_in_the_model() -> None:
    for (id_, component), note in NOTES.items():
        assert next(part.note for part in answer(id_).components if part.id == component) == note
        assert note != task(id_).notes[component]
    assert note_in_model("no such circuit", "L0H0", "It counts.") == "It counts."


def test_every_component_was_measured() -> None:
    for id_ in ("2", "21", "97", "113"):
        assert set(measurements()[id_]) == {str(component) for component, _ in task(id_).components}
    # The figures behind the notes: reads elsewhere, or unevenly, or carries no position.
    assert measurements()["97"]["L1H0"]["on_selected"] < measurements()["97"]["L1H0"]["by_chance"]
    assert measurements()["113"]["L0H0"]["uneven"] > 0.1
    assert measurements()["21"]["L1H0"]["uneven"] > 0.1
    assert measurements()["21"]["L2_MLP"]["moved"] < 0.7
