"""`vesalius/natural`: explain a behaviour of a natural model.

One sample is one model with one behaviour; by default the small arithmetic model that ships. There is no answer key for
most models, so what is scored is what experiments decide: how many of the claims the engine supported, how many of
those fresh prompts support again and, where roles are established, how many contradict them.
"""

from functools import partial

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import Model, ModelOutput, get_model
from inspect_ai.scorer import Score, Scorer, Target, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import store

from vesalius import api
from vesalius.api.explanations import BUILTIN, scientist_named
from vesalius.documents import Explanation
from vesalius.errors import BadInput
from vesalius_agents.cases import grade_natural
from vesalius_agents.inspection.backbone import inspect_backbone
from vesalius_agents.inspection.circuit_task import explanation_text, submitted_explanation
from vesalius_agents.inspection.metrics import COUNTS, number, over_components, with_ours
from vesalius_agents.inspection.sessions import ANSWER, MESSAGES, agent_with, close, in_thread, opened, ours
from vesalius_agents.inspection.tools import instruments, submit_explanation
from vesalius_agents.session import Allowed

VERSION = "1"
MODEL = "arithmetic"
FIGURES = ("claims_supported", "claims_confirmed", "components_supported", "false_support")


@task
@ours
def natural(
    specimen: str = MODEL,
    behaviour: str | None = None,
    components: str | list[str] | None = None,
    scientist: str = BUILTIN,
    backbone: str | None = None,
    protocol: str | None = None,
    agent: bool = False,
    n: int | None = None,
    seed: int = 0,
    *,
    allowed: Allowed,
) -> Task:
    """Explain a behaviour of a natural model: a name or a path, `behaviour` one of ours or a file, `components` the
    circuit (default: what the built-in scientist selects), `n` the prompts that decide a claim.
    """
    scientist_named(scientist)
    if n is not None and n < 1:
        raise BadInput(f"n {n}: a claim is decided on prompts; give 1 or more")
    named = ",".join(components) if isinstance(components, list) else components
    subject = {"behaviour": behaviour, "components": named, "n": n, "seed": seed}
    own = explain_behaviour(scientist, backbone=backbone, protocol=protocol, **subject)
    sample = Sample(
        id=specimen if behaviour is None else f"{specimen} {behaviour}",
        input="Explain how the model carries out the behaviour: say what each component does.",
        metadata={"specimen": specimen},
    )
    return Task(
        dataset=MemoryDataset([sample], name="natural"),
        setup=opened(budget=allowed.values(), brief=agent, **subject),
        solver=agent_with(instruments(natural=True), submit_explanation()) if agent else own,
        scorer=graded_natural(seed=seed + 1),
        cleanup=close,
        message_limit=MESSAGES if agent else None,
        version=VERSION,
    )


@solver
@ours
def explain_behaviour(
    scientist: str = BUILTIN,
    *,
    backbone: str | None = None,
    protocol: str | None = None,
    behaviour: str | None = None,
    components: str | None = None,
    n: int | None = None,
    seed: int = 0,
) -> Solver:
    """One of our scientists on a natural model; the explanation is in the sample's store."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        model = get_model() if scientist != BUILTIN and backbone is None else None

        def explain() -> Explanation:
            asked = inspect_backbone(model) if isinstance(model, Model) else backbone
            return api.explain(
                state.metadata["specimen"],
                None if components is None else components.split(","),
                scientist=scientist,
                backbone=asked,
                protocol=protocol,
                behaviour=behaviour,
                n=n,
                seed=seed,
                progress=False,
            )

        explanation = await in_thread(explain)
        store().set(ANSWER, explanation.as_data())
        state.output = ModelOutput.from_content(model=str(state.model), content=explanation_text(explanation))
        return state

    return solve


@scorer(metrics=with_ours(FIGURES, over_components))
@ours
def graded_natural(seed: int = 1) -> Scorer:
    """What experiments decide of an explanation, on prompts of another `seed`."""

    async def score(state: TaskState, target: Target) -> Score:
        explanation = submitted_explanation(state)
        graded = await in_thread(partial(grade_natural, explanation, state.metadata["specimen"], seed=seed))
        found = graded.metrics
        open_claims = [f"not confirmed: {text}" for text in graded.not_confirmed]
        return Score(
            value={name: number(metric.value) for name, metric in found.items()},
            answer=explanation.task_description,
            explanation="\n".join([*open_claims, *(f"contradicted: {text}" for text in graded.contradicted)]),
            metadata={COUNTS: {name: metric.n for name, metric in found.items()}},
        )

    return score
