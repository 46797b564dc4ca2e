"""What a study will cost at most: passes, memory and time of the sweep, the sets, the interventions and the built-in
explanation.
"""

import math
from pathlib import Path
from typing import Any

from vesalius.api.circuit_sources import Given, Source
from vesalius.api.loading import loaded
from vesalius.api.plans import plan
from vesalius.api.shapes import read_shape
from vesalius.discovery.known_heads import AF1_COMPONENTS, is_llama_3_8b
from vesalius.documents.plan import Plan
from vesalius.model.devices import Devices
from vesalius.model.specimen import Specimen
from vesalius.options import Load
from vesalius.progress import Progress, shown
from vesalius_bench.study.studies import PROMPTS, TOP, require_study
from vesalius_bench.study.study_evidence import MOST_PRUNED
from vesalius_bench.study.study_steps import POOL, given_circuit, required_sums, sums_of, with_sums
from vesalius_mechrl.sets.queries import default_budget

#: Passes of all prompts that the interventions on one component take, apart from the pruning of heads.
EVIDENCE_PASSES = 8


def study_plan(
    name: str,
    model: Specimen | str | Path,
    *,
    circuit: Given | Source = None,
    behaviour: Any = None,
    n: int = PROMPTS,
    top: int = TOP,
    seed: int = 0,
    quick: bool = False,
    dtype: str = "auto",
    device: Devices = "auto",
    progress: Progress | bool | None = None,
) -> Plan:
    """Passes, bytes at the peak and estimated seconds of a study without language models; `options` are those of
    `study`. One small chunk is run to time it, and nothing is written. A directory with a `config.json` and no weights
    can be planned too.
    """
    require_study(name)
    sums = required_sums(behaviour)
    with shown(progress) as report:
        shape = None if isinstance(model, Specimen) else read_shape(model, dtype=dtype)
        subject: dict[str, Any] = {"n": n, "seed": seed, "progress": report}
        if shape is None:
            model = with_sums(loaded(model, Load(dtype=dtype, device=device), progress=report), sums)
            config = model.model.config
        else:
            config = shape.model.config
            subject |= {"behaviour": sums_of(config, None, sums), "dtype": dtype, "device": device}
        names: tuple[str, ...] | None = None
        if circuit is not None and isinstance(model, Specimen):
            names = given_circuit(model, circuit).components
        elif circuit is not None:
            subject |= {"circuit": circuit}  # refused: a circuit is found in weights
        elif is_llama_3_8b(config):
            names = tuple(map(str, AF1_COMPONENTS))
        studied = top if names is None else len(names)
        explaining = _with_evidence(plan("explain", model, components=names, top=top, **subject), studied)
        if names is not None:
            return explaining.model_copy(update={"command": f"study {name}"})
        sweep = plan("discover", model, checks=not quick, **subject)
    sets = default_budget(min(POOL, config.n_layers * config.n_heads))
    per_pass = sweep.seconds / (sweep.forwards + sweep.checks_forwards)
    return explaining.model_copy(
        update={
            "command": f"study {name}",
            "forwards": math.fsum((explaining.forwards, sweep.forwards, sets)),
            "checks_forwards": sweep.checks_forwards,
            "peak_bytes": max(explaining.peak_bytes, sweep.peak_bytes),
            "fits": None if explaining.fits is None else explaining.fits and bool(sweep.fits),
            "seconds": math.fsum((explaining.seconds, sweep.seconds, sets * per_pass)),
        }
    )


def _with_evidence(explaining: Plan, components: int) -> Plan:
    """The plan of an explanation with the interventions on each component."""
    pruned = min(components, MOST_PRUNED)
    more = EVIDENCE_PASSES * components + pruned * (pruned + 1) / 2
    seconds = explaining.seconds * (1 + more / explaining.forwards)
    return explaining.model_copy(update={"forwards": explaining.forwards + more, "seconds": seconds})
