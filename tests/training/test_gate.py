from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from tests.training.programs import CPU, by_hand, fraction, lookup, odd_places, place_added, small
from tests.training.twin import node_outputs, patched_logits
from vesalius.model import Transformer
from vesalius.model.states import build
from vesalius.rasp.inputs import repetitive_inputs
from vesalius_truth.training.gate import Gate, headroom, measure
from vesalius_truth.training.setting import Setting, Size, differ, draw_pairs, model_tokens, setting_of, targets
from vesalius_truth.training.siit import Curriculum, evaluate, tabulate
from vesalius_truth.training.stack import Copy, Stack
from vesalius_truth.training.stepper import Recipe
from vesalius_truth.training.trainer import TrainingResult, train

PERFECT = {
    "n": 10,
    "seed": 0,
    "accuracy": 1.0,
    "iia": {"L0_MLP": 1.0, "L1H0": 1.0},
    "iia_changed": {"L0_MLP": 1.0, "L1H0": None},
    "crossed": {},
    "crossed_changed": {},
    "strict": {"L0H0": 1.0},
    "strict_all": 1.0,
    "mean_ablated": 1.0,
    "zero_ablated": 1.0,
    "inert": (),
}


def half_trained(setting: Setting) -> Transformer:
    """A partly trained model, whose answers are neither all right nor all wrong."""
    result = list(train([setting], device=CPU, recipe=Recipe(40, 16, pairs=256, checks=1), copies=[(0, 1e-2)]))[-1]
    assert isinstance(result, TrainingResult)
    return result.candidates[setting.name][0].transformer()


def slow_gate(model: Transformer, setting: Setting, n: int, seed: int) -> SimpleNamespace:
    """The gate by hooked runs of one pair at a time."""
    program = setting.program
    pairs = draw_pairs(setting.draw, n, seed=seed, device=CPU)
    answers = targets(program, pairs, setting.slots)
    base, source = (model_tokens(program, codes) for codes in (pairs.base, pairs.source))
    source_outputs, base_outputs = node_outputs(model, source), node_outputs(model, base)
    means = {
        c: torch.cat([base_outputs[c][i, : pairs.base_lengths[i] + 1] for i in range(n)]).mean(0) for c in base_outputs
    }
    counts: dict[str, list[bool]] = {}

    def score(name: str, logits: Tensor, row: int, answer: int, changed: bool = False) -> None:
        for position in range(int(pairs.base_lengths[row])):
            if changed and not bool(differ(program, answers[row, answer, position], answers[row, 0, position])):
                continue
            out, expected = logits[0, position + 1], float(answers[row, answer, position])
            correct = abs(float(out[0]) - expected) < 0.05 if program.numerical else int(out.argmax()) == int(expected)
            counts.setdefault(name, []).append(correct)

    for i in range(n):
        pick = slice(i, i + 1)
        there = (torch.arange(base.shape[1]) <= pairs.source_lengths[i])[None]
        score("accuracy", model(base[pick]), i, 0)
        for s, slot in enumerate(setting.slots):
            value = source_outputs[slot.component][pick]
            if slot.crossed:
                reads = [0] + [int(p) + 1 if p >= 0 else k + 1 for k, p in enumerate(pairs.crossed[i])]
                value = value[:, reads]
            logits = patched_logits(model, base[pick], {slot.component: value}, there)
            name = ("crossed " if slot.crossed else "iia ") + str(slot.component)
            score(name, logits, i, 1 + s)
            score(f"changed {name}", logits, i, 1 + s, changed=True)
        for other in setting.others:
            score(
                f"strict {other}", patched_logits(model, base[pick], {other: source_outputs[other][pick]}, there), i, 0
            )
        everywhere = torch.ones_like(there)
        for name, new, where in [
            ("strict_all", {c: source_outputs[c][pick] for c in setting.others}, there),
            ("mean_ablated", {c: means[c].expand_as(base_outputs[c][pick]) for c in setting.others}, everywhere),
            ("zero_ablated", {c: torch.zeros_like(base_outputs[c][pick]) for c in setting.others}, everywhere),
        ]:
            score(name, patched_logits(model, base[pick], new, where), i, 0)
    return SimpleNamespace(**{name: sum(correct) / len(correct) for name, correct in counts.items()})


@pytest.mark.slow
@pytest.mark.parametrize("program", [fraction, odd_places])
def test_gate_equals_the_slow_twin(program) -> None:
    setting = small(program())
    model = half_trained(setting)
    gate, twin = measure(model, setting, n=24, seed=5), slow_gate(model, setting, 24, 5).__dict__
    for name in ("accuracy", "strict_all", "mean_ablated", "zero_ablated"):
        assert getattr(gate, name) == pytest.approx(twin[name], abs=1e-6)
    for name, value in gate.iia.items():
        assert value == pytest.approx(twin[f"iia {name}"], abs=1e-6)
        expected = twin.get(f"changed iia {name}")
        assert gate.iia_changed[name] == (expected if expected is None else pytest.approx(expected, abs=1e-6))
    for name, value in gate.crossed.items():
        assert value == pytest.approx(twin[f"crossed {name}"], abs=1e-6)
        assert gate.crossed_changed[name] == pytest.approx(twin[f"changed crossed {name}"], abs=1e-6)
    for name, value in gate.strict.items():
        assert value == pytest.approx(twin[f"strict {name}"], abs=1e-6)
    assert 0 < gate.accuracy < 1 or 0 < gate.strict_worst < 1


@pytest.mark.parametrize("program", [fraction, odd_places])
def test_the_trainers_metrics_agree_with_the_gate(program) -> None:
    setting = small(program())
    stack = Stack([small(lookup()), setting], [Copy(0, 1, 1e-2), Copy(1, 2, 1e-2)], device=CPU)
    metrics = evaluate(stack, tabulate(stack.settings, 200, seed=9, device=CPU), Curriculum(stack)).of(1)
    gate = measure(build(setting.config, stack.export(1), where="test"), setting, n=200, seed=9)
    expected = gate.metrics
    # The trainer takes means over the sources, the gate over the bases.
    metrics.pop("mean_ablated"), expected.pop("mean_ablated")
    assert metrics == pytest.approx(expected, abs=1e-6)


def test_a_hand_written_perfect_model_passes() -> None:
    """The embedding holds the token, L0_MLP shifts it by one, the unembedding reads only the MLP's output."""
    setting = small(lookup(), d_head=3)
    config = setting.config
    state = {
        name: torch.zeros_like(weight)
        for name, weight in Stack([setting], [Copy(0, 0, 1.0)], device=CPU).export(0).items()
    }
    for token in range(5):
        state["embed.W_E"][token, token] = 10.0
        state["blocks.0.mlp.W_in"][token, token] = 1.0
        state["blocks.0.mlp.W_out"][token, 5 + (token + 1) % 5] = 1.0
        state["unembed.W_U"][5 + token, setting.program.outputs.index("abcde"[token])] = 1.0
    gate = measure(build(config, state, where="test"), setting, n=100)
    assert gate.passed
    assert set(gate.metrics.values()) == {1.0}
    assert gate.iia_changed == {"L0_MLP": 1.0}
    assert len(gate.strict) == 9


def test_work_done_outside_the_circuit_fails_the_gate() -> None:
    """The same look-up in the MLP of layer 1: right answers, wrong component."""
    setting = small(lookup(), d_head=3)
    state = {
        name: torch.zeros_like(weight)
        for name, weight in Stack([setting], [Copy(0, 0, 1.0)], device=CPU).export(0).items()
    }
    for token in range(5):
        state["embed.W_E"][token, token] = 10.0
        state["blocks.1.mlp.W_in"][token, token] = 1.0
        state["blocks.1.mlp.W_out"][token, 5 + (token + 1) % 5] = 1.0
        state["unembed.W_U"][5 + token, setting.program.outputs.index("abcde"[token])] = 1.0
    gate = measure(build(setting.config, state, where="test"), setting, n=100)
    assert gate.accuracy == 1.0
    assert gate.iia_changed == {"L0_MLP": 0.0}
    assert gate.strict["L1_MLP"] == gate.strict_worst < 0.5
    assert not gate.passed


def test_thresholds_and_what_counts() -> None:
    assert Gate(**PERFECT).passed
    assert headroom(Gate(**PERFECT).metrics) == 1.0
    short = Gate(**PERFECT | {"zero_ablated": 0.97})
    assert short.shortfalls == ["zero_ablated 0.9700 < 0.98"]
    assert headroom(short.metrics) == pytest.approx(-0.5)
    weak = {"iia": {"L0_MLP": 0.2, "L1H0": 1.0}}
    assert not Gate(**PERFECT | weak).passed
    assert Gate(**PERFECT | weak | {"inert": ("L0_MLP",)}).passed
    moved = Gate(**PERFECT | {"crossed": {"L0_MLP": 0.99}, "crossed_changed": {"L0_MLP": 0.9, "L1H0": None}})
    assert moved.iia_worst == 1.0
    assert moved.moved_worst == 0.9
    assert moved.shortfalls == ["moved_worst 0.9000 < 0.95"]


def test_only_a_moved_output_shows_a_position_in_the_earlier_mlp() -> None:
    """Two models by hand that answer and interchange alike; one holds the position where the program does not."""
    setting = setting_of(place_added(), size=Size(2, 4, 24, 6, 96))
    true, false = (measure(by_hand(place_in_first=first), setting, n=200, seed=3) for first in (False, True))
    assert set(true.metrics.values()) == {1.0}
    assert true.passed
    wrong = {name for name, value in false.metrics.items() if value < 1}
    assert wrong == {"moved_worst"}
    assert false.crossed_changed["L0_MLP"] == false.moved_worst < 0.5
    assert false.crossed_changed["L1_MLP"] == 1.0
    assert not false.passed


def test_repetitive_inputs_count() -> None:
    """Accepted on random inputs, refused for constant ones; gates of before have no such figure."""
    old, good = Gate(**PERFECT), Gate(**PERFECT, repetitive=0.99, rare_counts=0.96)  # type: ignore[arg-type]
    bad = Gate(**PERFECT, repetitive=0.97, rare_counts=0.0)  # type: ignore[arg-type]
    assert old.passed
    assert good.passed
    assert bad.shortfalls == ["repetitive 0.9700 < 0.98", "rare_counts 0.0000 < 0.95"]


@pytest.mark.slow
def test_accuracy_on_repetitive_inputs_is_that_of_single_runs() -> None:
    setting = small(fraction())
    model = half_trained(setting)
    gate = measure(model, setting, n=64, seed=3)
    program = setting.program
    shortest = int(draw_pairs(setting.draw, 64, seed=3, device=CPU).base_lengths.min())
    codes, lengths = repetitive_inputs(len(program.vocab), program.max_len, 64, seed=3, min_length=shortest)
    expected = program.run(codes, lengths).output
    right = []
    for row, length in enumerate(lengths.tolist()):
        logits = model(model_tokens(program, codes[row : row + 1, :length]))
        right += [abs(float(logits[0, i + 1, 0] - expected[row, i])) < 0.05 for i in range(length)]
    assert gate.repetitive == pytest.approx(sum(right) / len(right), abs=2.5 / len(right))  # two answers may round over
