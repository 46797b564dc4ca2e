"""How the 84 specimens are made: trained in groups of similar shape, accepted by the gate, installed as package data.

    python -m vesalius_truth.key.make train --device DEVICE --out DIR [--groups small wide ...] [--copies N]
    python -m vesalius_truth.key.make install --out DIR
    python -m vesalius_truth.key.make measure
    python -m vesalius_truth.key.make table

`train` stacks the models of a group on one device and writes every accepted model to DIR/ID. `install` measures the
gate again, on the CPU, on inputs used neither for training nor for selection, and writes the specimen directories that
ship; `measure` does so for those that ship and lack a figure. This module is part of the answer key because it reads
the programs.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vesalius.circuits.specimens import (
    SPECIMEN_FILE,
    Card,
    as_examples,
    benchmark_cards,
    benchmark_root,
    draw_inputs,
    load_specimen,
    write_card,
    write_specimen,
)
from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.model.states import CONFIG_FILE, State, load_model, to_state
from vesalius.model.transformer import Transformer
from vesalius.rasp.inputs import repetitive_inputs, shuffled
from vesalius_truth.key import INERT, Task, all_tasks, examples, task, trained_size
from vesalius_truth.training.fit import SettingResult, train_group
from vesalius_truth.training.gate import REPETITIVE_THRESHOLDS, THRESHOLDS, Gate, measure
from vesalius_truth.training.setting import Setting, Size, find_inert
from vesalius_truth.training.stepper import Recipe
from vesalius_truth.training.trainer import CheckReport

INSTALL_PAIRS, INSTALL_SEED = 2048, 7_000_003
#: Pairs of inputs that show whether a moved output changes an answer.
FEWEST_FOR_MOVES = 256
MODULE = "python -m vesalius_truth.key.make"


@dataclass(frozen=True)
class TrainingGroup:
    """Tasks trained in one stack: their schedule and the learning rates of their copies."""

    tasks: tuple[str, ...]
    recipe: Recipe
    rates: tuple[float, ...]


def _groups() -> dict[str, TrainingGroup]:
    """Every task in exactly one group, with its measured schedule (including the hardened strict term)."""
    named = {
        "counts": ("25", "19"),
        "long": ("39",),
        "deep": ("2", "21", "82"),
        "maximum": ("97",),
        "sorted": ("113",),
    }
    placed = {one for group in named.values() for one in group}
    rest = [one for one in all_tasks() if one.id not in placed]
    small = tuple(t.id for t in rest if trained_size(t).n_layers == 2 and trained_size(t).d_model <= 8)
    wide = tuple(t.id for t in rest if trained_size(t).n_layers == 2 and trained_size(t).d_model > 8)
    middle = tuple(t.id for t in rest if trained_size(t).n_layers == 3)
    pairs = 262_144
    return {
        "small": TrainingGroup(small, Recipe(3000, 64, pairs=pairs, validation=512), (1e-2, 5e-3)),
        "middle": TrainingGroup(middle, Recipe(7000, 128, pairs=pairs, validation=512), (5e-3, 4e-3)),
        "wide": TrainingGroup(wide, Recipe(8000, 128, pairs=pairs, validation=512), (5e-3, 4e-3)),
        "counts": TrainingGroup(named["counts"], Recipe(8000, 128, pairs=pairs, validation=512), (4e-3, 3e-3)),
        "long": TrainingGroup(
            named["long"], Recipe(3000, 48, pairs=32_768, validation=256, selection=512), (3e-3, 2e-3)
        ),
        "deep": TrainingGroup(named["deep"], Recipe(7000, 128, pairs=pairs, validation=512), (3e-3, 2e-3)),
        "maximum": TrainingGroup(named["maximum"], Recipe(15_000, 128, pairs=pairs, validation=512), (3e-3, 2e-3)),
        "sorted": TrainingGroup(named["sorted"], Recipe(20_000, 256, pairs=pairs, validation=512), (2e-3, 1.5e-3)),
    }


def setting_for(one: Task, *, min_length: int = 1, start: State | None = None, repetitive: float = 0.0) -> Setting:
    """The trainer's and the gate's setting for a task; inputs have at least `min_length` tokens, and a share of them is
    `repetitive`: constant, nearly constant, or with a rare count of one token.
    """
    size = trained_size(one)
    reasons = {component: why for (id_, component), why in INERT.items() if id_ == one.id}

    def draw(n: int, seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        n_repetitive = int(n * repetitive)
        codes, lengths = draw_inputs(one.inputs, n - n_repetitive, seed=seed, min_length=min_length, device=device)
        if not n_repetitive:
            return codes, lengths
        more = repetitive_inputs(
            len(one.vocab), one.max_len, n_repetitive, seed=seed, min_length=min_length, device=device
        )
        return shuffled((codes, lengths), more, seed=seed)

    return Setting(
        name=one.id,
        program=one.program(),
        size=Size(size.n_layers, size.n_heads, size.d_model, size.d_head, size.d_mlp),
        draw=draw,
        placement=dict(one.head_override),
        inert=frozenset(reasons),
        crossed=find_inert(one.program(), draw, n=FEWEST_FOR_MOVES)[1],
        start=start,
    )


def train_groups(names: list[str], *, device: str, out: Path, copies: int, seed: int) -> dict[str, Gate]:
    """Train groups one after another and report progress on stderr."""
    gates: dict[str, Gate] = {}
    for name in names:
        group = _groups()[name]
        settings = [setting_for(task(id_)) for id_ in group.tasks]
        seeds_and_rates = [(seed + i, group.rates[i % len(group.rates)]) for i in range(copies)]
        for event in train_group(
            settings, device=device, out=out, seed=seed, copies=seeds_and_rates, recipe=group.recipe
        ):
            if isinstance(event, CheckReport):
                passing = f"{sum(count > 0 for count in event.passing.values())}/{len(settings)} tasks pass"
                _say(f"{name}: step {event.step}/{event.steps}, {passing}, {event.seconds:.0f} s")
            elif isinstance(event, SettingResult):
                gates[event.name] = event.gate
                if not event.gate.passed:
                    _say(f"{name}: task {event.name} does not pass: {'; '.join(event.gate.shortfalls)}")
        _say(f"{name}: {sum(gates[id_].passed for id_ in group.tasks)}/{len(group.tasks)} accepted")
    return gates


def polish(
    ids: list[str], *, device: str, out: Path, seed: int, rate: float, steps: int, batch: int, repetitive: float
) -> dict[str, Gate]:
    """Continue training shipped models one by one until they pass: on the shortest and on repetitive inputs, moved."""
    gates: dict[str, Gate] = {}
    for id_ in ids:
        directory = benchmark_root() / id_
        start, shortest = to_state(load_model(directory)), Card.read(directory / SPECIMEN_FILE).min_len
        setting = setting_for(task(id_), min_length=shortest, start=start, repetitive=repetitive)
        recipe = Recipe(steps, batch, pairs=32_768, checks=max(1, steps // 100), validation=512)
        early = not setting.program.numerical  # numbers become exact only while the learning rate falls
        for event in train_group(
            [setting], device=device, out=out, seed=seed, copies=[(seed, rate)], recipe=recipe, stop_early=early
        ):
            if isinstance(event, CheckReport):
                _say(f"task {id_}: step {event.step}/{event.steps}, {event.best[id_]}, {event.seconds:.0f} s")
            elif isinstance(event, SettingResult):
                gates[id_] = event.gate
                _say(f"task {id_}: {'accepted' if event.gate.passed else '; '.join(event.gate.shortfalls)}")
    return gates


def install(out: Path) -> list[str]:
    """Measure accepted models on unseen inputs on the CPU and write those that pass; returns the ids that do not."""
    missing = []
    for one in all_tasks():
        folder = out / one.id
        if not (folder / CONFIG_FILE).exists():
            missing.append(one.id)
            continue
        setting, model = setting_for(one), load_model(folder)
        for min_length in (1, 3):
            gate = _gate(one, model, min_length)
            if gate.passed:
                break
        if not gate.passed:
            _say(f"task {one.id} does not pass on unseen inputs: {'; '.join(gate.shortfalls)}")
            missing.append(one.id)
            continue
        write_specimen(
            benchmark_root() / one.id, model, _card(one, setting, gate, read_json(folder / "training.json"), min_length)
        )
    _say(f"{len(all_tasks()) - len(missing)} specimens installed; missing: {', '.join(missing) or 'none'}")
    return missing


def measure_missing() -> None:
    """Measure the gate of shipped specimens whose card was written before all of its figures existed."""
    for card in benchmark_cards():
        if card.gate.get("repetitive") is None or "moved_worst" not in card.gate["figures"]:
            directory = benchmark_root() / card.id
            gate = _gate(task(card.id), load_model(directory), card.min_len)
            _say(f"task {card.id}: {'; '.join(gate.shortfalls) or 'passes'}")
            write_card(directory, card.model_copy(update={"gate": _figures(gate)}))


def _gate(one: Task, model: Transformer, min_length: int) -> Gate:
    """The gate of a model that ships, on inputs used for nothing else."""
    n = INSTALL_PAIRS if one.max_len < 30 else INSTALL_PAIRS // 8
    return measure(model, setting_for(one, min_length=min_length), n=n, seed=INSTALL_SEED)


def _figures(gate: Gate) -> dict[str, Any]:
    return {**gate.model_dump(mode="json"), "figures": gate.metrics}


def _card(one: Task, setting: Setting, gate: Gate, record: dict, min_length: int = 1) -> Card:
    program, size = one.program(), setting.size
    how = f"seed {record['seed']}, learning rate {record['learning_rate']}, {record['steps']} steps"
    return Card(
        id=one.id,
        name=one.name,
        kind="benchmark",
        vocab=one.vocab,
        max_len=one.max_len,
        min_len=min_length,
        outputs=None if one.numerical else program.outputs,
        sampler=one.sampler,
        components=tuple(str(component) for component in setting.circuit),
        layers=size.n_layers,
        heads=size.n_heads,
        d_model=size.d_model,
        examples=as_examples([(example.input, example.output) for example in examples(one)]),
        gate=_figures(gate),
        made_by=f"{MODULE} {'polish' if record.get('continued') else 'train'} ({how})",
    )


def table() -> str:
    """The table of the docs: every shipped specimen with the gate figures stored with its weights."""
    head = (
        "| id | name | circuit | L, d, d_head | weights | accuracy | IIA | changed | moved | strict | all | mean "
        "| zero | repetitive | rare counts | n |"
    )
    lines = [head, "|" + "---|" * head.count(" |")]
    for card in benchmark_cards():
        size = trained_size(task(card.id))
        f, shape = card.gate["figures"], f"{size.n_layers}, {size.d_model}, {size.d_head}"
        weights = sum(w.numel() for w in load_specimen(benchmark_root() / card.id).model.parameters())
        on_repetitive = [card.gate[name] for name in REPETITIVE_THRESHOLDS]
        figures = " | ".join(map(_short, [*(f.get(name) for name in THRESHOLDS), *on_repetitive]))
        circuit = " ".join(name + ("*" if name in card.gate["inert"] else "") for name in card.components)
        lines.append(f"| {card.id} | {card.name} | {circuit} | {shape} | {weights} | {figures} | {card.gate['n']} |")
    return "\n".join(lines)


def _short(value: float | None) -> str:
    if value is None:
        return "not measured"
    return "1" if value >= 0.99995 else f"{value:.4f}".removeprefix("0")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Train, install, print the table."""
    parser = argparse.ArgumentParser(prog=MODULE, description="Train and install the benchmark circuits.")
    parser.add_argument("command", choices=["train", "polish", "install", "measure", "table"])
    parser.add_argument("--out", type=Path, default=Path("trained"), help="where trained models are written and read")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--groups", nargs="+", default=list(_groups()), choices=list(_groups()))
    parser.add_argument("--copies", type=int, default=2, help="seeds and learning rates tried per task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", nargs="+", default=[], help="with polish: ids")
    parser.add_argument("--rate", type=float, default=2e-3, help="with polish: peak learning rate")
    parser.add_argument("--steps", type=int, default=2000, help="with polish: maximum number of steps")
    parser.add_argument("--batch", type=int, default=64, help="with polish: pairs in a step")
    parser.add_argument("--repetitive", type=float, default=0.3, help="with polish: share of repetitive inputs")
    args = parser.parse_args()
    try:
        if args.command == "train":
            gates = train_groups(args.groups, device=args.device, out=args.out, copies=args.copies, seed=args.seed)
            sys.exit(0 if all(gate.passed for gate in gates.values()) else 1)
        if args.command == "polish":
            names = ("device", "out", "seed", "rate", "steps", "batch", "repetitive")
            gates = polish(args.tasks, **{name: getattr(args, name) for name in names})
            sys.exit(0 if all(gate.passed for gate in gates.values()) else 1)
        if args.command == "measure":
            sys.exit(measure_missing())
        if args.command == "table":
            sys.exit(print(table()))
        sys.exit(1 if install(args.out) else 0)
    except BadInput as error:
        sys.exit(f"make: {error}")


if __name__ == "__main__":
    main()
