"""The data of the published experiment on any natural model: two behaviours to train on, held-out ones, and a control.

Everything is measured once into one directory per source, can be resumed, and is only read afterwards: effect matrices
(`matrices`), and attribution and attention of the same rows (`tables`). Held-out behaviours have test rows
only, so nothing can be learned from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from vesalius.behaviours.controls import Corpus
from vesalius.behaviours.metrics import LOG_PROBABILITY
from vesalius.behaviours.natural import with_behaviour
from vesalius.behaviours.registry import behaviour
from vesalius.discovery.known_heads import PUBLISHED, is_gpt2_small, published_heads, recognised_by
from vesalius.errors import BadInput, choices
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress
from vesalius_mechrl.fresh import EpisodeIdentity, FreshEpisodes
from vesalius_mechrl.matrices import (
    EMBEDDINGS_FILE,
    ControlText,
    Matrix,
    behaviour_matrix,
    behaviour_rows,
    control_matrix,
    control_rows,
    load_matrix,
    load_prompt_embeddings,
    prompt_embeddings,
)
from vesalius_mechrl.standin.roles import ESTABLISHED, established_heads
from vesalius_mechrl.tables import (
    ATTENTION_TARGETS,
    CleanFeatures,
    FeatureTables,
    Tables,
    clean_features,
    features_path,
    load_clean_features,
)

TRAINING = ("induction", "ioi")
#: The published batches of both, and of the task that the paper holds out (`behaviours.mechrl`).
PAPER_TRAINING = ("mechrl-induction", "mechrl-ioi")
PAPER_HELD_OUT = ("mechrl-docstring",)
HELD_OUT = ("docstring", "greater-than", "capitals")
FRESH, POOLED = "fresh", "pooled"
CONTROL = "control"
LOGITS, NATS = "logits", "nats"
#: The unit of the task's score, and the metric that is measured for it (None: the behaviour's logit difference).
UNITS = {LOGITS: None, NATS: LOG_PROBABILITY}


@dataclass(frozen=True)
class SuitePlan:
    """What is measured: rows per pool, rows per episode, tokens of a row of control text.

    The default takes about half an hour of one core for SmolLM2-135M; `fewer` are the test rows of a held-out
    behaviour with long prompts. `unit` is what the task's score is measured in: logits of the right less the wrong
    answer, as published, or nats, the log-probability of the answer, which is the unit of the control's loss. With
    `context` the prompts' embeddings are kept as well. `control` names the control text that measured matrices must
    have (None: any). With `fresh` every episode has its own batches, measured for its seed (`fresh`).
    """

    pools: Mapping[str, int] = field(default_factory=lambda: {"train": 24, "validation": 8, "test": 16})
    control_pools: Mapping[str, int] = field(default_factory=lambda: {"train": 8, "validation": 8, "test": 8})
    rows: int = 8
    control_length: int = 16
    training: tuple[str, ...] = TRAINING
    held_out: tuple[str, ...] = HELD_OUT
    fewer: Mapping[str, int] = field(default_factory=lambda: {"docstring": 12, "mechrl-docstring": 12})
    block: int = 8
    control: str | None = None
    unit: str = LOGITS
    context: bool = False
    fresh: bool = False

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadInput(f"reward {self.unit!r} does not exist; choose one of {choices(UNITS)}")
        tasks = (*self.training, *self.held_out)
        for task in tasks:
            behaviour(task)
        if not self.training:
            raise BadInput("`training` names no behaviour; policies are trained on at least one")
        if repeated := [task for task in dict.fromkeys(tasks) if tasks.count(task) > 1]:
            raise BadInput(
                f"{repeated[0]} is named twice; a behaviour is either trained on or held out, and named once"
            )

    def pools_of(self, source: str) -> dict[str, int]:
        """The pools of one source; a held-out behaviour has test rows only."""
        if source == CONTROL:
            return dict(self.control_pools)
        test = min(self.pools["test"], self.fewer.get(source, self.pools["test"]))
        return {"test": test} if source in self.held_out else dict(self.pools)

    @property
    def sources(self) -> tuple[str, ...]:
        """Every matrix, the control last."""
        return (*self.training, *self.held_out, CONTROL)


_FULL_POOLS = {"train": 512, "validation": 128, "test": 256}
#: `laptop` is the default of `SuitePlan`; `full` has the published 32 rows per episode and 60 tokens of control text;
#: it took five minutes of a GPU for SmolLM2-135M.
SIZES = {
    "laptop": SuitePlan(),
    "full": SuitePlan(_FULL_POOLS, _FULL_POOLS, rows=32, control_length=60, fewer={}, block=64),
}


@dataclass(frozen=True)
class Suite:
    """The tables: training tasks in three pools, and every task on test rows; `control` names the control text and
    `batches` says whether episodes have fresh ones.
    """

    train: Tables
    validation: Tables
    test: Tables
    held_out: tuple[str, ...]
    control: str
    batches: str = POOLED


def measure_suite(
    specimen: Specimen,
    corpus: Corpus,
    directory: Path,
    *,
    plan: SuitePlan | None = None,
    progress: Progress | None = None,
) -> None:
    """Measure the parts of the suite that are not in the directory yet."""
    plan = plan or SuitePlan()
    for source in plan.sources:
        measure_source(source, specimen, corpus, Path(directory) / source, plan=plan, progress=progress)


def measure_source(
    source: str,
    specimen: Specimen,
    corpus: Corpus,
    directory: Path,
    *,
    plan: SuitePlan,
    progress: Progress | None = None,
) -> None:
    """Measure the matrix and the features of one source, or what is missing of them."""
    require_text(specimen)
    pools = plan.pools_of(source)
    if source == CONTROL:
        text = ControlText(corpus, plan.control_length)
        rows = control_rows(specimen, text, pools)
        matrix = control_matrix(specimen, text, directory, pools=pools, block=plan.block, progress=progress)
    else:
        metric = UNITS[plan.unit]
        on_behaviour = (
            replace(specimen, behaviour=source) if metric is None else with_behaviour(specimen, source, metric=metric)
        )
        rows = behaviour_rows(on_behaviour, pools)
        matrix = behaviour_matrix(on_behaviour, directory, pools=pools, block=plan.block, progress=progress)
    clean_features(specimen.model, matrix, rows, directory)
    if plan.context:
        prompt_embeddings(specimen.model, matrix, rows, directory)


def require_text(specimen: Specimen) -> None:
    """Refuse a specimen that reads no text, before anything is measured or looked up."""
    if not isinstance(specimen.vocabulary, TextVocabulary):
        raise BadInput(f"specimen {specimen.name!r} has a finite vocabulary; these behaviours need a natural model")


def missing_sources(directory: Path, plan: SuitePlan) -> list[str]:
    """The sources of the plan whose matrix or features are not finished in the directory."""

    def is_finished(place: Path) -> bool:
        files = [place / "matrix.json", place / "matrix.safetensors", features_path(place)]
        files += [place / EMBEDDINGS_FILE] if plan.context else []
        return all(file.is_file() for file in files)

    return [source for source in plan.sources if not is_finished(Path(directory) / source)]


def load_suite(directory: Path, *, plan: SuitePlan | None = None, model: Transformer | None = None) -> Suite:
    """Open a measured suite; with `model`, refuse the suite of another model."""
    plan, directory = plan or SuitePlan(), Path(directory)
    if missing := missing_sources(directory, plan):
        raise BadInput(f"{directory / missing[0]}: is missing or not finished; measure it with `vesalius bench mechrl`")
    matrices = {source: load_matrix(directory / source, model=model) for source in plan.sources}
    for source, matrix in matrices.items():
        if missing_pools := plan.pools_of(source).keys() - matrix.pools.keys():
            raise BadInput(
                f"{directory / source}: was measured without {' and '.join(sorted(missing_pools))} rows (as held out); "
                "choose another directory, or delete it to measure it again"
            )
        if source != CONTROL and matrix.unit != plan.unit:
            raise BadInput(
                f"{directory / source}: was measured in {matrix.unit}, not in {plan.unit}; choose another directory, "
                "or delete it to measure it again"
            )
    measured_on = matrices[CONTROL].identity.source.split("/")[1]
    if plan.control not in (None, measured_on):
        raise BadInput(
            f"{directory / CONTROL}: was measured on the control text {measured_on}, not on {plan.control}; "
            "choose another directory, or delete it to measure it again"
        )
    features = {source: load_clean_features(matrix, directory / source) for source, matrix in matrices.items()}

    embeddings = {
        source: {split: rows.numpy() for split, rows in load_prompt_embeddings(matrix, directory / source).items()}
        for source, matrix in matrices.items()
        if plan.context
    }

    def tables(split: str, tasks: Sequence[str]) -> Tables:
        embedding = {task: embeddings[task][split] for task in tasks} if plan.context else None
        chosen = {task: matrices[task] for task in tasks}
        pooled = _tables(split, chosen, matrices[CONTROL], features, plan.rows, embedding)
        if not plan.fresh:
            return pooled
        control = matrices[CONTROL].identity
        identity = EpisodeIdentity(control.model, control.source, pooled.heads)
        return replace(pooled, fresh=FreshEpisodes(directory, split, plan.rows, identity))

    return Suite(
        tables("train", plan.training),
        tables("validation", plan.training),
        tables("test", (*plan.training, *plan.held_out)),
        plan.held_out,
        measured_on,
        FRESH if plan.fresh else POOLED,
    )


def _tables(
    split: str,
    tasks: Mapping[str, Matrix],
    control: Matrix,
    features: Mapping[str, Mapping[str, CleanFeatures]],
    rows: int,
    embedding: Mapping[str, Float[np.ndarray, "row width"]] | None,
) -> Tables:
    of_tasks = {task: features[task][split] for task in tasks}
    feature_tables = FeatureTables.of(of_tasks, features[CONTROL][split], embedding)
    return Tables.from_matrices(tasks, control, split=split, rows=rows, features=feature_tables)


# The heads that Tables 2 and 3 look for: published ones for GPT-2 small, established ones for a stand-in with its
# truth, detected ones for any other model.
#
# Published heads mean nothing in another model. There a set is the heads with most attention on the target it is named
# after, on training rows, as many as the published set has. Four of the seven categories of IOI were told apart by path
# patching, which no attention target replaces: in another model they have no heads.

IOI = "ioi"
INDUCTION_HEADS = 5
#: The categories in the published order: the role in `known_heads`, and the attention target that tells it (or None).
CATEGORIES = {
    "S-Inhibition": ("S-inhibition head", None),
    "Induction-in-IOI": ("induction head", "after copy"),
    "Backup Name Movers": ("backup name mover", None),
    "Name Movers": ("name mover", None),
    "Negative Name Movers": ("negative name mover", None),
    "Duplicate Token": ("duplicate-token head", "copy"),
    "Previous Token": ("previous-token head", "previous"),
}


@dataclass(frozen=True)
class Category:
    """A category of heads; `heads` is None where it can only be told by path patching."""

    name: str
    size: int
    heads: tuple[str, ...] | None


@dataclass(frozen=True)
class Canonical:
    """The heads of Table 2 on one task, the categories of Table 3 on another, and where each set comes from."""

    ranked: tuple[str, ...]
    ranked_from: str
    categories: tuple[Category, ...]
    categories_from: str

    @property
    def sources(self) -> dict[str, str]:
        """Where the heads of each table come from."""
        return {"table2": self.ranked_from, "table3": self.categories_from}


def canonical_heads(suite: Suite, specimen: Specimen | None = None) -> Canonical:
    """The heads for the first training task (Table 2) and the categories for the last one (Table 3).

    They are the published ones where the specimen has GPT-2 small's shape and they exist for the task, and those that
    were established where the specimen is a stand-in with its truth beside it.
    """
    first, last = suite.train.names[0], suite.train.names[-1]
    known = established_heads(specimen.source, specimen.model) if specimen is not None else None
    if known is not None and (first, last) == PAPER_TRAINING:
        sets = known.categories
        found = [Category(name, len(sets[name] or ()), sets[name]) for name in CATEGORIES]
        return Canonical(known.induction, ESTABLISHED, tuple(found), ESTABLISHED)
    gpt2 = specimen is not None and is_gpt2_small(specimen.model.config)
    recognised = recognised_by(specimen.source) if specimen is not None and gpt2 else ""
    published = (
        published_heads(specimen.model.config, behaviour(first).family) if specimen is not None and gpt2 else None
    )
    if published is not None:
        ranked = tuple(str(head) for heads in published.roles.values() for head in heads)
        ranked_from = f"published ({published.source}); {recognised}"
    else:
        ranked = tuple(heads_by_attention(suite, first, "after copy", INDUCTION_HEADS))
        ranked_from = f"detected: most attention on what came after an earlier copy, {first} prompts"
    if gpt2 and behaviour(last).family == IOI:
        roles, categories_from = PUBLISHED[IOI].roles, f"published ({PUBLISHED[IOI].source}); {recognised}"
        groups: Mapping[str, tuple[str, ...] | None] = {
            name: tuple(map(str, roles[role])) for name, (role, _) in CATEGORIES.items()
        }
    else:
        categories_from = f"detected: most attention on what the name says, {last} prompts"
        groups = {
            name: None if target is None else tuple(heads_by_attention(suite, last, target, published_size(role)))
            for name, (role, target) in CATEGORIES.items()
        }
    categories = [Category(name, published_size(role), groups[name]) for name, (role, _) in CATEGORIES.items()]
    return Canonical(ranked, ranked_from, tuple(categories), categories_from)


def published_size(role: str) -> int:
    """How many heads of GPT-2 small have a role in IOI."""
    return len(PUBLISHED[IOI].roles[role])


def heads_by_attention(suite: Suite, task: str, target: str, size: int) -> list[str]:
    """The heads with most attention on a target, on training rows."""
    assert suite.train.features is not None
    scores = suite.train.features.attention[task].mean(0)[:, ATTENTION_TARGETS.index(target)]
    return [suite.train.heads[i] for i in np.argsort(-scores, kind="stable")[:size]]
