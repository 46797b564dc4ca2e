"""`vesalius_functions`: say what black-box functions do, from queries alone.

One sample is one function of a category. The solver runs one of our interpreters, or with `agent=true` inspect's react
agent, which asks with `query_function` and answers with `submit_function`. The seed of the test points is drawn when
the task is made, unless `grading_seed` names it; the scores name it, and no message does.
"""

from functools import partial

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageUser, ModelOutput, get_model
from inspect_ai.scorer import Score, Scorer, Target, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import store

from vesalius.api.explanations import BUILTIN
from vesalius.errors import BadInput
from vesalius_agents.inspection.backbone import inspect_backbone
from vesalius_agents.inspection.metrics import number, over_functions, with_ours
from vesalius_agents.inspection.sessions import ANSWER, MESSAGES, SESSION, agent_with, close, in_thread, ours, session
from vesalius_agents.inspection.tools import query_function, submit_function
from vesalius_functions.bench.functions import FunctionCases
from vesalius_functions.box import Answer, Box
from vesalius_functions.interpreters import WITH_MODEL
from vesalius_functions.options import Drawn

VERSION = "1"
QUERIES = 400
#: The functions of a task, where it does not say which.
FIRST = Drawn(count=100)
#: What grading decides in each category; what does not apply to a function is unscored.
FIGURES = {
    "numeric": ("success", "family_named", "interval_found", "queries"),
    "strings": ("exact_match", "unit_test", "family_named", "queries"),
    "entities": ("unit_test", "family_named", "queries"),
    "relations": ("unit_test", "family_named", "interval_found", "queries"),
}


@task
@ours
def functions(
    category: str = "numeric",
    interpreter: str = BUILTIN,
    backbone: str | None = None,
    agent: bool = False,
    drawn: Drawn = FIRST,
    queries: int = QUERIES,
    rounds: int = 20,
    grading_seed: int | None = None,
) -> Task:
    """Say what black-box functions do. `category` is numeric, strings, entities or relations; `queries` bounds what may
    be asked of each. `interpreter` is builtin, oracle, table, aia, milan, aia+milan or `package.module:function`; those
    with a language model ask inspect's, or the `backbone` that is named.
    """
    cases = FunctionCases.chosen(category, drawn, grading_seed=grading_seed)
    asks = interpreter in WITH_MODEL
    cases.require(interpreter, model="inspect" if asks and backbone is None else backbone)
    if queries < 1:
        raise BadInput(f"queries {queries}: a function must be asked to be interpreted; give 1 or more")
    own = interpret_function(cases, interpreter, backbone=backbone, queries=queries, rounds=rounds)
    return Task(
        dataset=MemoryDataset(
            [Sample(id=case, input="Say what the black-box function does.") for case in cases.ids],
            name=f"functions-{category}",
        ),
        setup=opened_function(cases, queries=queries, brief=agent),
        solver=agent_with([query_function()], submit_function()) if agent else own,
        scorer=graded_function(cases),
        cleanup=close,
        message_limit=MESSAGES if agent else None,
        version=VERSION,
        metadata={"category": category, "suite_seed": cases.suite.seed},
    )


def opened_function(cases: FunctionCases, *, queries: int, brief: bool) -> Solver:
    """Make the function of a sample known to `query_function`."""

    @solver(name="opened_function")
    @ours
    def opened() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            store().set(SESSION, state.uuid)
            case = str(state.sample_id)
            box = await in_thread(lambda: session(lambda: cases.box(case, budget=queries), Box))
            if brief:
                state.messages = [ChatMessageUser(content=cases.briefing(box))]
            return state

        return solve

    return opened()


def interpret_function(
    cases: FunctionCases, interpreter: str = BUILTIN, *, backbone: str | None, queries: int, rounds: int
) -> Solver:
    """One of our interpreters as a solver; the answer is in the sample's store."""

    @solver(name="interpret_function")
    @ours
    def interpreted(interpreter: str, backbone: str | None, queries: int, rounds: int) -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            model = inspect_backbone(get_model()) if interpreter in WITH_MODEL and backbone is None else backbone
            case = str(state.sample_id)
            options = {"backbone": model, "budget": queries, "rounds": rounds}
            answer = await in_thread(partial(cases.interpret, case, interpreter, **options))
            store().set(ANSWER, answer.model_dump(mode="json"))
            state.output = ModelOutput.from_content(model=str(state.model), content=_text(answer))
            return state

        return solve

    return interpreted(interpreter, backbone, queries, rounds)


def graded_function(cases: FunctionCases) -> Scorer:
    """Our grading of one answer; an answer that was not submitted is wrong."""
    figures = FIGURES[cases.suite.category]

    @scorer(name="graded_function", metrics=with_ours(figures, over_functions))
    @ours
    def graded() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            given = state.store.get(ANSWER)
            answer = Answer(description="") if given is None else Answer.model_validate(given)
            figured = await in_thread(lambda: cases.grade(str(state.sample_id), answer).metrics)
            return Score(
                value={name: number(figured.get(name)) for name in figures},
                answer="(nothing was submitted)" if given is None else _text(answer),
                metadata={"figures": figured, "grading_seed": cases.grading_seed},
            )

        return score

    return graded()


def _text(answer: Answer) -> str:
    parts = [answer.description, answer.domain, None if answer.code is None else f"```python\n{answer.code}\n```"]
    return "\n\n".join(part for part in parts if part)
