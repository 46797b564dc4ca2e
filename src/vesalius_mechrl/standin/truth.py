"""What the heads of a stand-in do, established by ablating all of them and by where they attend.

On every task every head alone and every pair of heads is replaced, on prompts that nothing else uses: as published
(its bias alone is left, `value-bias`) and, for heads alone, by its value on the counterfactual prompt. A head *matters
alone* where both cost at least a twentieth of the clean score, with the interval's lower end above 0, and it *works
against* the answer where both gain as much. It has a role where it matters alone, or works against the answer, **and**
puts at least 0.3 of its attention, at the token where the role is played, on what the role is named after:

| role              | on                | from                        | to                          |
|-------------------|-------------------|-----------------------------|-----------------------------|
| induction head    | mechrl-induction  | the last token              | what came after its copy    |
| previous token    | mechrl-induction  | the answer's first mention  | the token before            |
| name mover        | mechrl-ioi        | the last token              | the indirect object         |
| duplicate token   | mechrl-ioi        | the second mention          | the first mention           |
| parameter mover   | mechrl-docstring  | the last token              | the answer in the signature |

A head is a *backup* where it does not matter alone and a partner exists that it costs a twentieth more to lose with it:
the pair costs that much more than the partner alone and than the sum of both.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.api.loading import loaded
from vesalius.behaviours.trial import Trial, trial
from vesalius.circuits.specimens import KEY_FOLDER
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.intervene import effects
from vesalius.model.specimen import Specimen
from vesalius.model.states import fingerprint
from vesalius.options import Load
from vesalius.progress import Progress, silent
from vesalius.statistics import means_interval
from vesalius_mechrl.matrices import PUBLISHED_KIND
from vesalius_mechrl.suite import PAPER_HELD_OUT, PAPER_TRAINING
from vesalius_truth.planted import TRUTH_FILE

INDUCTION, IOI, DOCSTRING = *PAPER_TRAINING, *PAPER_HELD_OUT
TASKS = (INDUCTION, IOI, DOCSTRING)
#: The share of the clean score from which an effect counts, and the share of attention from which a head attends there.
LEAST, ATTENDS = 0.05, 0.3
#: Prompts of each task, and a seed of theirs that no pool and no episode has.
PROMPTS, SEED = 64, 7_340_001
PROMPTS_OF_PAIRS = 16
RESAMPLED = "resample"


@dataclass(frozen=True)
class Role:
    """A role of heads on a task: from which place to which; both are names of the prompts' roles."""

    name: str
    task: str
    source: str
    target: str


ROLES = (
    Role("induction head", INDUCTION, "end", "B"),
    Role("previous-token head", INDUCTION, "B", "first A"),
    Role("name mover", IOI, "end", "IO"),
    Role("duplicate-token head", IOI, "S2", "S1"),
    Role("parameter mover", DOCSTRING, "end", "defined 5"),
)


def establish(directory: Path | str, *, device: str = "cpu", progress: Progress = silent) -> dict[str, Any]:
    """Measure everything and write `answer_key/truth.json` into the stand-in's directory."""
    directory = Path(directory)
    if not (directory / "config.json").is_file():
        raise BadInput(f"{directory}: no stand-in is there; train one with `python -m vesalius_mechrl.standin train`")
    specimen = loaded(str(directory), Load(device=device))
    heads = tuple(str(component) for component in specimen.model.components if component.is_head)
    tasks = {}
    for done, task in enumerate(TASKS, 1):
        tasks[task] = _task(replace(specimen, behaviour=task, behaviour_source=None), task, heads)
        progress(f"every head and every pair on {task}", done, len(TASKS))
    truth = {
        "schema": 1,
        "model": fingerprint(specimen.model),
        "rule": {"least": LEAST, "attends": ATTENDS, "prompts": PROMPTS, "prompts of pairs": PROMPTS_OF_PAIRS},
        "heads": list(heads),
        "tasks": tasks,
    }
    (directory / KEY_FOLDER).mkdir(exist_ok=True)
    write_json(directory / KEY_FOLDER / TRUTH_FILE, truth)
    return truth


def _task(specimen: Specimen, task: str, heads: Sequence[str]) -> dict[str, Any]:
    drawn = trial(specimen, PROMPTS, seed=SEED, split="test")
    few = trial(specimen, PROMPTS_OF_PAIRS, seed=SEED, split="test")
    singles = [(head,) for head in heads]
    by_kind = {kind: _effects(specimen, drawn, singles, kind) for kind in (PUBLISHED_KIND, RESAMPLED)}
    pairs = list(itertools.combinations(heads, 2))
    together = _effects(specimen, few, [*singles, *pairs], PUBLISHED_KIND)[1]
    clean = float(by_kind[PUBLISHED_KIND][0].mean())
    figures = {kind: _intervals(matrix) for kind, (_, matrix) in by_kind.items()}
    attention = {role.name: role_attention(specimen, drawn, role) for role in ROLES if role.task == task}
    rows: dict[str, dict[str, Any]] = {
        head: {
            **{kind: figures[kind][column] for kind in figures},
            "says": _says([figures[kind][column] for kind in figures], clean),
            "attention": {name: float(values[column]) for name, values in attention.items()},
        }
        for column, head in enumerate(heads)
    }
    return {
        "clean": clean,
        "accuracy": float((by_kind[PUBLISHED_KIND][0] > 0).float().mean()),
        "heads": rows,
        "roles": {
            name: [h for h in heads if rows[h]["says"] != "nothing alone" and rows[h]["attention"][name] >= ATTENDS]
            for name in attention
        },
        "backups": _backups(heads, pairs, together, rows, clean),
    }


def _effects(
    specimen: Specimen, drawn: Trial, sets: Sequence[tuple[str, ...]], kind: str
) -> tuple[Float[Tensor, " prompt"], Float[Tensor, "prompt set"]]:
    """The clean scores, and what replacing every set costs."""
    model = specimen.model
    result = effects(
        model,
        drawn.batch.to(model.device),
        drawn.readout,
        kind=kind,
        sets=sets,
        counterfactual=drawn.counterfactual,
        reference=drawn.batch,
    )
    return result.baseline.float().cpu(), result.matrix.float().cpu()


def _intervals(matrix: Float[Tensor, "prompt set"]) -> list[list[float]]:
    """Mean and 95 % interval of every set."""
    low, high = means_interval(matrix)
    rows = zip(matrix.mean(0).tolist(), low.tolist(), high.tolist(), strict=True)
    return [[round(value, 4) for value in row] for row in rows]


def _says(figures: Sequence[Sequence[float]], clean: float) -> str:
    """What a head does alone, by every way of replacing it."""
    least = LEAST * abs(clean)
    if all(value >= least and low > 0 for value, low, _ in figures):
        return "matters alone"
    if all(value <= -least and high < 0 for value, _, high in figures):
        return "works against"
    return "nothing alone"


def role_attention(specimen: Specimen, drawn: Trial, role: Role) -> Float[Tensor, " head"]:
    """The mean attention of every head of the model from a role's source to its target."""
    model, prompts = specimen.model, drawn.prompts
    assert prompts is not None
    places = {"end": prompts.position, **prompts.roles}
    rows = torch.arange(len(prompts.tokens))
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.config.n_layers)]
    with torch.no_grad():
        _, cache = model.run_with_cache(
            prompts.tokens.to(model.device), mask=prompts.mask.to(model.device), names=names
        )
    source, target = places[role.source], places[role.target]
    return torch.cat([cache[name].cpu()[rows, :, source, target].mean(0) for name in names])


def _backups(
    heads: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    matrix: Float[Tensor, "prompt set"],
    rows: Mapping[str, Mapping[str, Any]],
    clean: float,
) -> list[dict[str, Any]]:
    """Every backup with the partner that it costs most beside, on the prompts of the pairs."""
    least, found = LEAST * abs(clean), {}
    column = {head: place for place, head in enumerate(heads)}
    for place, (one, other) in enumerate(pairs, len(heads)):
        for head, partner in ((one, other), (other, one)):
            alone, beside = matrix[:, column[head]], matrix[:, place] - matrix[:, column[partner]]
            synergy = beside - alone.clamp_min(0)
            low = float(means_interval(synergy[:, None])[0])
            if rows[head]["says"] != "nothing alone" or float(synergy.mean()) < least or low <= 0:
                continue
            row = {"head": head, "of": partner, "adds": round(float(beside.mean()), 4), "synergy low": round(low, 4)}
            if row["adds"] > found.get(head, {"adds": float("-inf")})["adds"]:
                found[head] = row
    return list(found.values())
