import json
from pathlib import Path

import pytest

from tests.closeness import assert_same_document, mean_difference
from tests.training.programs import CPU, fraction, lookup, odd_places, small
from vesalius.errors import BadInput
from vesalius.model.states import load_model
from vesalius_truth.training.fit import FitResult, Retry, SettingResult, fit, train_group
from vesalius_truth.training.gate import measure
from vesalius_truth.training.setting import Setting, default_size, setting_of
from vesalius_truth.training.stepper import Recipe
from vesalius_truth.training.trainer import CheckReport, StepReport, TrainingResult, train

pytestmark = pytest.mark.slow

SHORT = Recipe(60, 8, pairs=128, checks=4, validation=32, selection=32)


def finish(settings: list[Setting], **options) -> TrainingResult:
    last = list(train(settings, device=CPU, recipe=SHORT, copies=[(0, 1e-2), (1, 5e-3)], stop_early=False, **options))[
        -1
    ]
    assert isinstance(last, TrainingResult)
    return last


def test_a_stopped_run_resumes_and_ends_alike(tmp_path: Path) -> None:
    settings = [small(fraction()), small(odd_places())]
    uninterrupted = finish(settings, seed=3)
    run = train(
        settings, device=CPU, recipe=SHORT, copies=[(0, 1e-2), (1, 5e-3)], stop_early=False, seed=3, checkpoint=tmp_path
    )
    for event in run:
        if isinstance(event, StepReport) and event.step > 30:
            break  # after the check at step 30, before the next one
    run.close()
    assert json.loads((tmp_path / "checkpoint.json").read_text())["step"] == 30
    events = list(
        train(
            settings,
            device=CPU,
            recipe=SHORT,
            copies=[(0, 1e-2), (1, 5e-3)],
            stop_early=False,
            seed=3,
            checkpoint=tmp_path,
        )
    )
    assert [event.step for event in events if isinstance(event, CheckReport)] == [45, 60]
    resumed = events[-1]
    assert isinstance(resumed, TrainingResult)
    # Sixty steps of Adam scale up rounding error, but the same seed stays far closer than another one.
    for name, candidates in uninterrupted.candidates.items():
        again = {candidate.seed: candidate for candidate in resumed.candidates[name]}
        between_seeds = mean_difference(candidates[0].state, candidates[1].state)
        for one in candidates:
            assert mean_difference(one.state, again[one.seed].state) < between_seeds / 20
            assert one.metrics == pytest.approx(again[one.seed].metrics, abs=0.1)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    finish([small(lookup())], seed=0, checkpoint=tmp_path)
    with pytest.raises(BadInput, match="another run"):
        finish([small(lookup())], seed=1, checkpoint=tmp_path)
    tensors = next(tmp_path.glob("*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:100])
    with pytest.raises(BadInput, match="not a complete safetensors file"):
        finish([small(lookup())], seed=0, checkpoint=tmp_path)


def test_settings_need_unique_names() -> None:
    with pytest.raises(BadInput, match="unique names"):
        finish([small(lookup()), small(lookup())])


def test_candidates_come_best_first() -> None:
    for candidates in finish([small(lookup()), small(fraction())]).candidates.values():
        headrooms = [candidate.headroom for candidate in candidates]
        assert headrooms == sorted(headrooms, reverse=True)
        assert {candidate.seed for candidate in candidates} == {0, 1}


def test_a_lookup_meets_the_gate() -> None:
    setting = setting_of(lookup())
    *_, last = fit(setting, device=CPU)
    assert isinstance(last, FitResult)
    assert last.gate.passed
    assert measure(last.model, setting, n=500, seed=77).passed


def test_a_position_flag_is_trained_to_matter() -> None:
    *_, last = fit(setting_of(odd_places()), device=CPU)
    assert isinstance(last, FitResult)
    assert last.gate.passed
    assert last.gate.crossed["L0_MLP"] >= 0.99
    assert last.gate.crossed_changed["L0_MLP"] >= 0.98


def test_the_size_of_a_setting_is_the_default_one() -> None:
    assert default_size(fraction()) == setting_of(fraction()).size


def test_a_try_that_fails_the_gate_is_followed_by_longer_and_wider_ones(tmp_path: Path) -> None:
    tiny = Recipe(2, 4, pairs=16, checks=1, validation=8, selection=8)
    setting = small(fraction())
    events = list(fit(setting, device=CPU, attempts=3, recipe=tiny, gate_pairs=16, checkpoint=tmp_path))
    retries = [event for event in events if isinstance(event, Retry)]
    assert [event.attempt for event in retries] == [2, 3]
    assert retries[0].reason.startswith("try 1 with d_model 8: accuracy 0.")
    assert [event.steps for event in events if isinstance(event, TrainingResult)] == [2, 4, 4]
    assert [
        event.candidates["fraction"][0].config.d_model for event in events if isinstance(event, TrainingResult)
    ] == [
        8,
        8,
        12,
    ]
    assert isinstance(events[-1], FitResult)
    assert not events[-1].gate.passed
    assert events[-1].attempts == 3
    again = list(fit(setting, device=CPU, attempts=3, recipe=tiny, gate_pairs=16, checkpoint=tmp_path))
    repeated = [event for event in again if isinstance(event, Retry)]
    assert_same_document([vars(event) for event in repeated], [vars(event) for event in retries])
    assert sum(isinstance(event, TrainingResult) for event in again) == 1


def test_a_group_writes_accepted_models_and_metrics_of_all(tmp_path: Path) -> None:
    easy, hard = setting_of(lookup()), small(fraction(), d_head=1)
    recipe = Recipe(150, 32, pairs=1024, checks=3, validation=64, selection=64)
    events = list(
        train_group([easy, hard], device=CPU, out=tmp_path, copies=[(0, 1e-2)], recipe=recipe, gate_pairs=200)
    )
    results = {event.name: event for event in events if isinstance(event, SettingResult)}
    assert results["lookup"].gate is not None
    assert results["lookup"].gate.passed
    record = json.loads((tmp_path / "lookup" / "training.json").read_text())
    assert record["accepted"] is True
    assert record["circuit"] == ["L0_MLP"]
    again = measure(load_model(tmp_path / "lookup"), easy, n=200)
    assert_same_document(record["gate"], again.model_dump(mode="json"))
    assert json.loads((tmp_path / "fraction" / "training.json").read_text())["accepted"] is False
    assert not (tmp_path / "fraction" / "model.safetensors").exists()
    assert not (tmp_path / "checkpoint").exists()
